"""Errors under the hook also say what JAX says: what programs and tests look for in JAX's messages is there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.jax.test_jax_hook import lines as printed

jax = pytest.importorskip("jax")


def exported(sizes: str, call: str) -> str:
    """The source of a call of an exported function."""
    shape = f"jax.ShapeDtypeStruct(jax.export.symbolic_shape({sizes!r}), 'float32')"
    return f"jax.export.export(jax.jit(lambda a: a))({shape}).call({call})"


# Calls that are mistakes, of x (a vector of 3), m (2 by 3) and i (integers), with how many words of JAX's message
# count.
CASES = {
    "jnp.zeros(3) + jnp.zeros(4)": 8,
    "jax.closure_convert(lambda a: a, x)[0]((x, x))": 20,
    "jax.jit(lambda a: a).lower(x).as_text(dialect='xyz')": 3,
    "jax.jit(lambda a: a).lower(x).compile()(m)": 12,
    "jax.jit(lambda a, b: a, static_argnums=1)(x, [1])": 30,
    "jax.jit(lambda a, b: a, static_argnums=1)(x, np.asarray(1))": 30,
    "jax.jit(lambda a, b: (a + 1, b * 2), donate_argnums=(0, 1))(x, x)": 10,
    "jax.jit(lambda a, b: (a + 1, b * 2), donate_argnums=1)(x, x)": 8,
    "jax.custom_jvp(lambda a: a)(x)": 8,
    "jax.custom_vjp(lambda a: a)(x)": 8,
    "jax.export.export(lambda x: x)": 11,
    "jax.export.export(jax.jit(lambda a, b: a))(x, x).call(x, b=x)": 9,
    exported("6*a, 3", "m"): 16,
    exported("a + 2, 3", "m"): 40,
    exported("a, a", "m"): 25,
    exported("a, 4", "m"): 7,
    exported("a, 3", "x"): 4,
    exported("a, 3", "i"): 4,
    exported("a*a", "x"): 14,
    "jax.export.register_namedtuple_serialization(str, serialized_name='str')": 7,
    "jax.grad(jnp.sin)(1)": 12,
    "jax.grad(lambda x: x)(x)": 10,
    "jax.grad(lambda x: x.astype(complex))(1.0)": 8,
    "jax.jacfwd(jnp.sin)(1)": 8,
    "jax.grad(jnp.sin, argnums=1)(1.0)": 12,
    "jax.jacrev(lambda x: x)(1j)": 8,
    "jax.grad(lambda x: x, holomorphic=True)(1.0)": 8,
    "jax.value_and_grad(lambda x: x**2, has_aux=True)(3.0)": 10,
    "jax.vmap(lambda x: x, in_axes=None)(x)": 12,
    "jax.vmap(lambda x: x, in_axes=({'a': 0},))({'b': x})": 10,
    "lax.scan(lambda c, a: (c, a), 1.0, x, length=4)": 11,
    "lax.scan(lambda c, a: (c, a), 1.0, (x, m))": 10,
    "x[[0, 1]]": 11,
    "m.at[[0, slice(None)]].set(0)": 11,
    "x[jnp.array([True])]": 7,
    "jnp.zeros((2, 0))[0, 0]": 10,
    "jnp.sum(x, where=jnp.ones(3, int))": 8,
    "jnp.nanmax(x, initial=x)": 10,
    "jnp.cumulative_sum(m)": 11,
    "jnp.cov(m, dtype=int)": 10,
    "jnp.fft.fft2(m, axes=[0])": 7,
    "jnp.fft.ifft(x, axis=(0, 0))": 15,
    "jnp.fft.fftn(m, axes=[1, 1])": 9,
    "jnp.fft.fftfreq([3])": 12,
    "jnp.fft.rfftfreq(3, [0.5])": 12,
    "jnp.concatenate([m, m.T])": 12,
    "jnp.take(x, 5, mode='nope')": 5,
    "x.item(5)": 11,
    "bool(x)": 12,
    "float(x)": 9,
    "iter(x[0])": 5,
    "len(x[0])": 4,
    "jax.config.update('jax_nope', 1)": 4,
    "jnp.einsum('ij,jk->ikz', m, m.T)": 8,
    "jnp.vectorize(lambda x: x, signature='(n)->(n')(x)": 5,
    "jnp.vectorize(lambda x: x, signature='(n,m)->(n)')(x)": 11,
    "jnp.array(2**40)": 9,
    "jax.random.normal(x)": 12,
    "jax.random.key(0) + 1": 6,
    "jax.named_scope(1)": 6,
    "jnp.nanargmax(jnp.zeros(0))": 6,
    "jnp.clip(x * 1j, 0, 1)": 12,
    "jnp.hypot(x * 1j, x)": 8,
    "jnp.pad(x, 1, 'constant', end_values=0)": 5,
    "jax.jit(lambda i: jnp.choose(i, [x, x, x]))(i)": 6,
    "jax.jit(lambda i: jnp.ravel_multi_index((i, i), (3, 3)))(i)": 6,
    "jnp.trace(m, axis1=1, axis2=-1)": 6,
    "jnp.corrcoef(x, dtype=int)": 9,
    "jnp.take(jnp.zeros(0), 0)": 9,
    "jnp.broadcast_to(m, (3,))": 7,
    "jnp.sin(np.ma.array([1.0]))": 10,
    "jnp.array(3, [('a', '<i4')])": 7,
    "jnp.ones(2, 3)": 10,
    "jnp.rot90(x)": 12,
    "jnp.size(m, (1, 1))": 1,
    "jnp.take_along_axis(x, x, 0)": 8,
    "jnp.r_['x', 1]": 3,
    "jax.jit(lambda n: jnp.mgrid[:n])(1)": 6,
    "jax.jit(jnp.arange)(1)": 8,
    "jax.jit(lambda x: x.tolist())(x)": 16,
    "jax.jit(jnp.zeros)(2)": 8,
    "jnp.vectorize(jnp.dot, signature='(n),(n)->()')(x)": 5,
    "jnp.vectorize(jnp.dot, signature='(n),(n)->(n)')(x, x)": 4,
    "jnp.vectorize(jnp.dot, signature='(n),(n)->(),()')(x, x)": 5,
    "jnp.vectorize(lambda x: (x, x), signature='()->(),(),()')(x)": 5,
    "jnp.vectorize(jnp.sin, excluded={1.5})": 8,
    "jax.jit(1)": 5,
    "jax.jvp(jnp.sin, (1.0,), (x,))": 8,
    "jax.vjp(jnp.sin, 1.0)[1](x)": 12,
    "jax.jit(lambda x: x, static_argnums=3)(1)": 9,
    "jax.jit(lambda x: x if x > 0 else -x)(1.0)": 8,
    "jax.jit(lambda x: float(x))(1.0)": 12,
    "jax.jit(lambda x: range(x))(1)": 8,
    "jax.jit(lambda x: x[x > 0])(x)": 7,
    "jax.vmap(jnp.sin, in_axes=2)(x)": 18,
    "jax.vmap(lambda x, y: x)(x, m)": 9,
    "lax.scan(lambda c, x: (c,), 0.0, x)": 6,
    "lax.scan(lambda c, x: (x.astype(int), x), 0.0, x)": 12,
    "lax.while_loop(lambda c: c, lambda c: c, 1.0)": 8,
    "lax.cond(True, lambda: 1, lambda: (2, 3))": 10,
    "lax.switch(1.5, [lambda: 1, lambda: 2])": 6,
    "lax.psum(1.0, 'i')": 4,
    "jax.tree_util.register_dataclass(jax.Array)": 12,
    "jax.tree_util.register_dataclass(jax.Array, data_fields=['x'])": 16,
    "jax.random.key(x)": 8,
    "jax.random.key(0, impl='nope')": 3,
    "jnp.negative(jax.random.key(0))": 6,
    "jnp.float8_e5m2(1) + x": 2,  # JAX names the types in the order of a set
    "jax.sharding.Mesh(jax.devices()[:1], (None,))": 6,
    "jax.make_array_from_single_device_arrays((3,), x.sharding, x)": 9,
    "jax.make_array_from_single_device_arrays((3,), x.sharding, [x], dtype=int)": 15,
    "jax.make_array_from_callback((2,), x.sharding, lambda index: x)": 4,
    "jnp.reshape(x, (2, 2))": 10,
    "jnp.matmul(x, m)": 9,
    "jnp.sum(x, axis=3)": 9,
    "jnp.max(jnp.zeros(0))": 8,
    "x[0.5]": 8,
    "lax.add(x, m)": 8,
    "lax.add(x, i)": 9,
    "lax.sin(i)": 10,
    "lax.bitwise_and(x, x)": 8,
    "lax.lt(x * 1j, x * 1j)": 8,
    "lax.select(x > 0, x, i)": 8,
    "lax.broadcast_in_dim(x, (2, 3), (5,))": 8,
    "lax.broadcast_in_dim(m, (2,), (0, 1))": 12,
    "lax.transpose(m, (0,))": 12,
    "lax.concatenate([], 0)": 6,
    "lax.pad(x, 0.0, ((1, 1, -1),))": 6,
    "lax.dynamic_slice(x, (0,), (5,))": 8,
    "lax.dot_general(m, m, (((0,), (1,)), ((), ())))": 10,
    "lax.sort((x, x), num_keys=3)": 6,
    "lax.top_k(x, 5)": 10,
    "lax.argmax(jnp.zeros(0), 0, jnp.int32)": 7,
    "lax.linalg.svd(x)": 8,
    "jax.grad(lambda x: x)('foo')": 10,
    "jax.jvp(jnp.sin, 1.0, (1.0,))": 14,
    "jax.grad(jax.custom_jvp(jnp.sin))(1.0)": 9,
    "[f := jax.custom_jvp(lambda x, y: x), f.defjvp(f), f(x)]": 22,
    "[f := jax.custom_jvp(lambda x, *, z: x), f.defjvp(f), f(x, z=1)]": 27,
    "jax.pmap(lambda a, b: a, static_broadcasted_argnums=1)(x[:1], b=1)": 18,
    "bool(jnp.zeros(0))": 9,
    "jax.jvp(jnp.sin, (1.0,), [1.0])": 26,
    "jax.jvp(jnp.sin, (np.float16(1),), (np.float32(1),))": 8,
    "jax.vjp(lambda x: (x, x), 1.0)[1](1.0, 1.0)": 12,
    "jax.linearize(jnp.sin, 1.0)[1](1)": 10,
    "jax.linear_transpose(lambda x: [x], 1.0)(1.0)": 4,
    "jax.linear_transpose(lambda x: x, 1.0)(1j)": 5,
    "jax.vmap(lambda a, b: a, (0, 1))(m, m)": 48,
    "jax.vmap(lambda a, *b: a, axis_size=4)(x, x, c=m)": 50,
    "jax.vmap(lambda *b: b)({'a': x}, m)": 41,
    "jax.jit(lambda x: hex(x))(x)": 8,
    "jax.sharding.Mesh(np.array(jax.devices()[:1]), ('a', 'b'))": 13,
    "jax.vmap(jnp.sin, in_axes=False)(x)": 8,
    "jax.vmap(jnp.sin, in_axes=(x,))(x)": 8,
    "jax.vmap(jnp.sin, out_axes=(x,))(x)": 8,
    "jax.vmap(jnp.sin, in_axes={'a': 0})": 25,
    "jax.jit(staticmethod(jnp.sin))": 4,
    "jax.jit(jnp.sin, compiler_options={'such': 1})(x)": 6,
    "jnp.sin(np.ma.array([1.0], mask=[True]))": 10,
    "jax.ShapeDtypeStruct((), None)": 5,
    "jax.random.uniform(jax.random.key(0), (2,), int)": 8,
    "lax.cond(None, lambda: 1, lambda: 2)": 4,
    "lax.cond('a', lambda: 1, lambda: 2)": 9,
    "lax.switch('a', [lambda: 1, lambda: 2])": 8,
    "lax.scan(lambda c, a: ((0, 0, 0), a), (1, (2, 3)), x)": 44,
    "lax.scan(lambda c, a: (({'p': c[0]['p'], 'q': c[0]['p']},) * 2, a), ({'p': x},) * 2, x)": 48,
    "lax.scan(lambda c, a: ((c[0] + 0.5, c[1].reshape(1, 3), c[2]), a), (i[0], x, x), x)": 60,
    "lax.while_loop(lambda c: True, lambda c: (1.0, 1.0), 0.0)": 23,
    "lax.fori_loop(0, 1, lambda k, c: {'T': c['t']}, {'t': x})": 17,
    "lax.cond(True, lambda: {'a': 2.0}, lambda: {'a': (3.0, 3.0)})": 12,
    "lax.switch(1, [lambda: {'a': x}, lambda: {'a': x[0]}])": 10,
    "lax.scan(lambda c, x: c, 0.0, x)": 8,
    "lax.scan(lambda c, x: (c, x), 0.0, x, unroll=-1)": 3,
    "jax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 0, unroll=2))(3)": 12,
    "jax.jit(lambda n: lax.scan(lambda c, x: (c, x), 0, None, n))(3)": 9,
    "lax.squeeze(x, (0, 0))": 3,
    "lax.squeeze(x, (None,))": 8,
    "lax.reduce(x, 0.0, lax.add, (0, 0))": 4,
    "lax.reduce({'a': x}, {'b': 0.0}, lambda x, y: x, (0,))": 8,
    "lax.add(0, 0.0)": 8,
    "lax.reshape(x, (1.5,))": 10,
    "lax.platform_dependent(x, tpu=lambda x: x)": 5,
    "lax.custom_root(lambda x: (x, x), 0.0, lambda f, x: x, lambda f, x: x)": 6,
    "lax.ragged_dot(jnp.ones((4, 3)), jnp.ones((2, 3, 5)), i)": 10,
    "jax.random.choice(jax.random.key(0), x, (5,), replace=False)": 10,
    "jax.set_mesh(mesh('Manual'))": 1,
    "over(mesh(), None)": 4,
    "over(mesh(), jax.P('c'))": 10,
    "over(mesh(), jax.P('a', 'a'))": 23,
    "lax.with_sharding_constraint(x, over(mesh(), jax.P('a', 'b')))": 9,
    "lax.with_sharding_constraint(x, over(mesh().abstract_mesh, jax.P('a')))": 18,
    "lax.with_sharding_constraint(x, jax.P('a'))": 12,
    "jax.vmap(lambda x: lax.with_sharding_constraint(x, over(mesh(), jax.P('a'))), spmd_axis_name='a')(m)": 12,
    "on(m, 'a', 'b') * on(m, 'b', 'a')": 6,
    "on(m, 'a', 'b') @ on(m.T, 'b', 'a')": 22,
    "on(m, 'a') @ on(m.T, None, 'a')": 12,
    "on(m, None, 'b') @ on(m.T, 'a')": 8,
    "lax.select(on(m, 'a') > 0, on(m, 'a', 'b'), on(m, 'b', 'a'))": 8,
    "lax.dot_general(on(m, 'a'), on(m, 'b'), (((1,), (1,)), ((0,), (0,))))": 14,
    "jax.vmap(lambda x, y: x)(on(m, 'a'), on(m, 'b'))": 16,
    "jax.vmap(lambda x: x, spmd_axis_name='b')(on(m, 'a'))": 19,
}

MESHES = """
def mesh(kind="Auto"):
    kinds = (getattr(jax.sharding.AxisType, kind),) * 2
    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"), axis_types=kinds)
over = jax.NamedSharding
on = lambda x, *spec: jax.device_put(x, over(mesh("Explicit"), jax.P(*spec)))
"""


def _arguments(jnp: Any) -> dict[str, Any]:
    return {"x": jnp.arange(1.0, 4.0), "m": jnp.ones((2, 3)), "i": jnp.arange(3)}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The message of each mistake under the hook, in one line."""
    program = f"""
        import jax, jax.numpy as jnp, numpy as np
        from jax import lax
        import numpy as np
        x, m, i = jnp.arange(1.0, 4.0), jnp.ones((2, 3)), jnp.arange(3)
        exec({MESHES!r})
        for source in {list(CASES)!r}:
            try:
                eval(source)
                print("none")
            except Exception as error:
                print(" ".join(str(error).split()))
        """
    return dict(zip(CASES, printed(program), strict=True))


@pytest.mark.parametrize("source", CASES)
@pytest.mark.filterwarnings("ignore")
def test_message_has_the_words_of_jax(found: dict[str, str], source: str) -> None:
    names = {"jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": np, **_arguments(jax.numpy)}
    exec(MESHES, names)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        eval(source, names)
    said = re.sub(r"np\.int64\((\d+)\)", r"\1", " ".join(str(caught.value).split()[: CASES[source]]))
    assert said.rstrip(".,") in found[source]


def test_messages_begin_with_the_words_of_this_library() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        try:
            jax.grad(lambda x: x)(jnp.ones(3))
        except TypeError as error:
            first, _, *last = str(error).splitlines()
            print(first.startswith("grad of <lambda>: the function must return one"), *last)
        try:
            jax.random.normal(3)
        except TypeError as error:
            print(str(error).splitlines()[0])
        """) == [
        "True   In JAX: Gradient only defined for scalar-output functions. Output had shape: (3,).",
        "jax.random.normal: the first argument is a key, made by jax.random.key(seed), but got 3.",
    ]


def test_warnings_of_rank_promotion_have_the_words_of_jax() -> None:
    assert printed("""
        import warnings
        import jax, jax.numpy as jnp
        with jax.numpy_rank_promotion("warn"), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            jnp.ones(2) + jnp.ones((1, 2))
        text = str(seen[0].message)
        print(text.startswith("add: arrays of shapes (2,), (1, 2) broadcast"))
        print("Following NumPy automatic rank promotion for add on shapes (2,) (1, 2)." in text)
        """) == ["True", "True"]


def test_values_that_are_wanted_have_the_words_of_jax_for_what_they_depend_on() -> None:
    assert (
        printed("""
        import jax, jax.numpy as jnp
        def said(f, *args):
            try:
                jax.jit(f)(*args)
            except jax.errors.ConcretizationTypeError as error:
                return str(error)
        print("depends on the values of the arguments x and z." in said(lambda x, y, z: x if x > z else y, 1, 2, 3))
        print("depends on the value of the argument x." in said(lambda x: x if x > 0 else 0, 1))
        print("on these lines" in said(lambda: 1 if jnp.add(1, 1) > 0 else 0))
        """)
        == ["True"] * 3
    )
