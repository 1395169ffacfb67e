"""What the tutorials of JAX teach of arrays, compilation, mapping, control flow, trees, random numbers and models, as
programs that give the same with both packages."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tests.programs.harness import Programs, error_of, floats

programs = Programs()


# --- first steps ------------------------------------------------------------------------------------------------------


@programs(floats(5), floats(4, 3), floats(4), floats(2, 4))
def first_steps(jax: Any, x: Any, features: Any, wanted: Any, batch: Any) -> Any:
    jnp = jax.numpy

    def selu(x: Any, alpha: float = 1.67, scale: float = 1.05) -> Any:
        return scale * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)

    def total(x: Any) -> Any:
        return jnp.sum(1 / (1 + jnp.exp(-x)))

    third = jax.grad(jax.jit(jax.grad(jax.jit(jax.grad(lambda x: jnp.tanh(x) * x)))))
    hessian = jax.jit(jax.jacfwd(jax.jacrev(total)))
    matrix = jnp.arange(12.0).reshape(3, 4)
    naive = jnp.stack([matrix @ v for v in batch])
    return (
        jax.jit(selu)(x),
        jax.grad(total)(x),
        third(1.0),
        hessian(x),
        jax.jacobian(jnp.cumsum)(x),
        naive,
        jnp.dot(batch, matrix.T),
        jax.jit(jax.vmap(functools.partial(jnp.dot, matrix)))(batch),
        jax.value_and_grad(lambda w: ((features @ w - wanted) ** 2).mean())(jnp.zeros(3)),
    )


@programs(floats(3), traced=False)
def what_arrays_are(jax: Any, x: Any) -> Any:
    """Immutable, with devices, updated out of place; NumPy's and Python's values mix with them."""
    jnp, lax = jax.numpy, jax.lax
    y = x.at[0].set(10)
    assert isinstance(x, jax.Array)
    assert type(error_of(x.__setitem__, 0, 10.0)) is TypeError or isinstance(error_of(x.__setitem__, 0, 1), TypeError)
    assert isinstance(error_of(lambda: lax.add(jnp.ones(2, jnp.int32), jnp.ones(2))), TypeError)
    assert isinstance(error_of(lambda: jnp.sum([1, 2, 3])), TypeError)
    assert len(x.devices()) == 1
    assert [int(v) for v in jnp.arange(3)] == [0, 1, 2]
    seen = []

    @jax.jit
    def f(x: Any) -> Any:
        assert isinstance(x, jax.Array)
        seen.append((x.shape, str(x.dtype), x.ndim, x.size))
        return x + 1

    f(x), f(y), f(jnp.ones((2, 2)))
    return y, x, jnp.add(1, 1.0), np.sin(np.asarray(x)) + x, f(np.float64(2)), seen


@programs(floats(3, 3), traced=False)
def shapes_must_be_static(jax: Any, x: Any) -> Any:
    """What depends on shapes is computed by NumPy while tracing; what depends on values is an error."""
    jnp, errors = jax.numpy, jax.errors

    @jax.jit
    def flat(x: Any) -> Any:
        return x.reshape((int(np.prod(x.shape)),))

    @jax.jit
    def flat_by_values(x: Any) -> Any:
        return x.reshape(jnp.array(x.shape).prod())

    @jax.jit
    def without_nans(x: Any) -> Any:
        return x[~jnp.isnan(x)]

    assert isinstance(error_of(flat_by_values, x), TypeError)
    assert isinstance(error_of(without_nans, x), errors.NonConcreteBooleanIndexError)
    assert isinstance(error_of(jax.jit(jnp.nonzero), x), errors.ConcretizationTypeError)
    assert isinstance(error_of(jax.jit(lambda n: jnp.ones(n)), 3), TypeError)
    assert isinstance(error_of(jax.jit(lambda n: jnp.arange(n)), 3), errors.ConcretizationTypeError)
    mean = jax.jit(lambda x: jnp.where(jnp.isnan(x), 0, x).sum() / (~jnp.isnan(x)).sum())
    return flat(x), mean(x.at[0, 0].set(jnp.nan)), jax.jit(lambda x: jnp.nonzero(x > 0, size=4, fill_value=-1))(x)


# --- compilation ------------------------------------------------------------------------------------------------------


@programs(np.int32(3), traced=False)
def branches_need_values(jax: Any, n: Any) -> Any:
    errors = jax.errors

    def f(x: Any) -> Any:
        return 3 * x**2 if x < 3 else -4 * x

    def loop(x: Any, n: Any) -> Any:
        i = 0
        while i < n:
            i += 1
        return x + i

    def by_range(x: Any, n: Any) -> Any:
        for _ in range(n):
            x = x * 2
        return x

    assert isinstance(error_of(jax.jit(f), 2), errors.TracerBoolConversionError)
    assert isinstance(error_of(jax.jit(loop), 10, 20), errors.TracerBoolConversionError)
    assert isinstance(error_of(jax.jit(by_range), 1.0, 3), errors.TracerIntegerConversionError)
    assert isinstance(error_of(jax.jit(lambda i: [1, 2, 3][i]), 1), errors.TracerIntegerConversionError)
    assert isinstance(error_of(jax.jit(float), 1.0), errors.ConcretizationTypeError)
    assert isinstance(error_of(jax.jit(lambda x: x.item()), 1.0), errors.ConcretizationTypeError)
    assert isinstance(error_of(jax.jit(lambda x: np.sin(np.asarray(x))), 1.0), errors.TracerArrayConversionError)
    assert isinstance(error_of(jax.jit(lambda x: x > 0 and x < 2), 1.0), errors.TracerBoolConversionError)
    assert isinstance(error_of(jax.jit(lambda x: not x), 1.0), errors.TracerBoolConversionError)
    return (
        jax.jit(f, static_argnums=0)(2.0),
        jax.jit(f, static_argnames="x")(x=5.0),
        jax.jit(loop, static_argnames=["n"])(10, n=20),
        jax.jit(by_range, static_argnums=(1,))(1.0, 3),
        jax.grad(f)(2.0),
        jax.grad(f)(4.0),
        f(n),
        jax.jit(lambda x: jax.lax.cond(x < 3, lambda x: 3.0 * x**2, lambda x: -4.0 * x, x))(2.0),
        jax.jit(lambda x, n: jax.lax.while_loop(lambda i: i < n, lambda i: i + 1, 0) + x)(10, 20),
    )


@programs(np.float32(2), traced=False)
def what_is_traced_again(jax: Any, x: Any) -> Any:
    """Once for each combination of shapes, types and static values; side effects happen while tracing only."""
    seen: list[Any] = []

    @functools.partial(jax.jit, static_argnames=("power", "negated"))
    def f(x: Any, power: int, negated: bool = False) -> Any:
        seen.append((power, negated, x.shape, str(x.dtype)))
        y = 1
        for _ in range(power):
            y = y * x
        return -y if negated else y

    results = [f(x, 2), f(x, 2), f(x, power=3), f(np.ones(2, np.float32), 2), f(np.int32(3), 2), f(x, 2, True), f(x, 2)]
    assert isinstance(error_of(f, x, jax.numpy.ones(2)), (TypeError, ValueError))  # static values must be hashable

    def unchanged(x: Any) -> Any:
        return x + 1

    assert jax.jit(unchanged).__name__ == "unchanged"
    assert jax.jit(jax.jit(unchanged))(x) == 3
    counts = []

    def outer(x: Any) -> Any:
        return jax.jit(lambda y: (counts.append(0), y + x)[1])(x)  # a new function each time

    return [*results, outer(x), outer(x)], seen, len(counts)


@programs(np.float32(3), traced=False)
def globals_and_leaks(jax: Any, x: Any) -> Any:
    """What a compiled function reads from outside stays as it was; what it leaves outside is an error later."""
    scale = 1.0
    kept: list[Any] = []

    def f(x: Any) -> Any:
        return x * scale

    @jax.jit
    def leaking(x: Any) -> Any:
        kept.append(x + 1)
        return x

    compiled = jax.jit(f)
    first = compiled(x)
    scale = 10.0
    leaking(x)
    assert isinstance(error_of(lambda: kept[0] * 2), jax.errors.UnexpectedTracerError)
    iterator = iter(range(10))
    from_iterator = jax.lax.fori_loop(0, 4, lambda i, total: total + next(iterator), 0)
    return first, compiled(x), compiled(jax.numpy.ones(2)), from_iterator


@programs(np.float32(3), traced=False)
def methods(jax: Any, x: Any) -> Any:
    """`self` as a pytree, as a static argument with its own hash, or bound before `jit`."""

    @jax.tree_util.register_pytree_node_class
    class Tree:
        def __init__(self, scale: Any, is_on: bool) -> None:
            self.scale, self.is_on = scale, is_on

        @jax.jit
        def apply(self, y: Any) -> Any:
            return self.scale * y if self.is_on else y

        def tree_flatten(self) -> Any:
            return (self.scale,), {"is_on": self.is_on}

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls(*children, **aux)

    class Hashed:
        def __init__(self, scale: Any) -> None:
            self.scale = scale

        @functools.partial(jax.jit, static_argnums=0)
        def apply(self, y: Any) -> Any:
            return self.scale * y

        def __hash__(self) -> int:
            return hash(self.scale)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Hashed) and self.scale == other.scale

    class Plain:
        def __init__(self, scale: Any) -> None:
            self.scale = scale
            self.apply = jax.jit(lambda y: self.scale * y)

        @jax.jit
        def refused(self, y: Any) -> Any:
            return self.scale * y

    tree, hashed = Tree(2.0, True), Hashed(2.0)
    results = [tree.apply(x), hashed.apply(x), Plain(2.0).apply(x)]
    tree.is_on = False
    assert isinstance(error_of(Plain(2.0).refused, x), TypeError)
    return [*results, tree.apply(x), Hashed(5.0).apply(x), jax.grad(lambda t: t.apply(x))(Tree(2.0, True)).scale]


@programs(floats(4), traced=False)
def ahead_of_time(jax: Any, x: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return 2 * x + y

    lowered = jax.jit(f).lower(x, jax.ShapeDtypeStruct((4,), jax.numpy.float32))
    compiled = lowered.compile()
    assert isinstance(error_of(compiled, x, jax.numpy.ones(5)), TypeError)
    assert "add" in lowered.as_text()
    static = jax.jit(f, static_argnums=0).lower(7, 8).compile()
    shape = jax.eval_shape(f, x, x)
    donated = jax.jit(lambda x: x + 1, donate_argnums=0)(jax.numpy.ones(3))
    return compiled(x, x), static(5), shape.shape, str(shape.dtype), donated, jax.jit(f, inline=True)(x, 1)


# --- mapping ----------------------------------------------------------------------------------------------------------


@programs(floats(5), floats(3), floats(4, 5), floats(4, 3))
def automatic_vectorization(jax: Any, x: Any, w: Any, xs: Any, ws: Any) -> Any:
    jnp, vmap = jax.numpy, jax.vmap

    def convolved(x: Any, w: Any) -> Any:
        return jnp.array([jnp.dot(x[i - 1 : i + 2], w) for i in range(1, len(x) - 1)])

    everywhere = vmap(convolved, in_axes=(0, None))
    return (
        convolved(x, w),
        vmap(convolved)(xs, ws),
        vmap(convolved, in_axes=1, out_axes=1)(xs.T, ws.T),
        vmap(convolved, in_axes=[0, None])(xs, w),
        jax.jit(everywhere)(xs, w),
        vmap(jax.jit(convolved), (None, 0))(x, ws),
        vmap(vmap(convolved, (None, 0)), (0, None))(xs, ws),
        vmap(lambda p, x: p["w"] @ x + p["b"], ({"w": 0, "b": None}, None))({"w": ws, "b": 1.0}, w),
        vmap(
            lambda x: {"same": x, "constant": jnp.ones(2), "sum": x.sum()},
            out_axes={"same": 1, "constant": None, "sum": 0},
        )(xs),
        vmap(lambda x, *, scale: x * scale)(xs, scale=jnp.arange(4.0)),
        vmap(lambda pair, y: pair[0] * y + pair[1], in_axes=((0, -1), None))((xs, xs.T), 2.0),
    )


@programs(floats(4), traced=False)
def what_vmap_refuses(jax: Any, x: Any) -> Any:
    jnp, vmap = jax.numpy, jax.vmap

    def branches(x: Any) -> Any:
        return x if x > 0 else -x

    assert isinstance(error_of(vmap(branches), x), jax.errors.TracerBoolConversionError)
    assert isinstance(error_of(vmap(jnp.add), x, jnp.ones(3)), ValueError)
    assert isinstance(error_of(vmap(jnp.sin, in_axes=1), x), ValueError)
    assert isinstance(error_of(vmap(jnp.sin, in_axes=None), x), ValueError)
    assert isinstance(error_of(vmap(jnp.sin, out_axes=None), x), ValueError)
    assert isinstance(error_of(vmap(jnp.add, in_axes=(0,)), x, x), ValueError)
    assert isinstance(error_of(vmap(jnp.sin), 1.0), (ValueError, TypeError))
    return vmap(lambda x: jax.lax.cond(x > 0, lambda: x, lambda: -x))(x)


@programs(floats(6, 3), np.float32([0, 1, 1, 0, 1, 0]))
def batched_log_densities(jax: Any, x: Any, y: Any) -> Any:
    """A Bayesian logistic regression by variational inference: written for one sample, and mapped."""
    jnp, random = jax.numpy, jax.random

    def log_joint(beta: Any) -> Any:
        prior = jnp.sum(-0.5 * beta**2)
        return prior - jnp.sum(jnp.log1p(jnp.exp(-(2 * y - 1) * (x @ beta))))

    def bound(loc: Any, log_scale: Any, noise: Any) -> Any:
        return jnp.mean(jax.vmap(log_joint)(loc + jnp.exp(log_scale) * noise)) + jnp.sum(log_scale - 0.5 * 1.837877)

    @jax.jit
    def step(state: Any, key: Any) -> Any:
        noise = random.normal(key, (8, 3))
        value, (a, b) = jax.value_and_grad(bound, (0, 1))(*state, noise)
        return (state[0] + 0.05 * a, state[1] + 0.05 * b), value

    state, values = (jnp.zeros(3), jnp.zeros(3)), []
    for i in range(3):
        state, value = step(state, random.fold_in(random.PRNGKey(10003), i))
        values.append(value)
    return state, values, jax.vmap(log_joint)(jnp.eye(3))


@programs(floats(4, 3))
def named_axes(jax: Any, x: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def normalized(x: Any) -> Any:
        return jnp.exp(x) / lax.psum(jnp.exp(x), "i")

    def statistics(x: Any) -> Any:
        mean = lax.pmean(x, "batch")
        return (x - mean) * lax.rsqrt(lax.pmean((x - mean) ** 2, "batch") + 1e-5)

    def both(x: Any) -> Any:
        return x / lax.psum(x, ("rows", "columns")), lax.axis_index("rows") * 3 + lax.axis_index("columns")

    return (
        jax.vmap(normalized, axis_name="i")(x),
        jax.jit(jax.vmap(statistics, axis_name="batch"))(x),
        jax.vmap(jax.vmap(both, axis_name="columns"), axis_name="rows")(x),
        jax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i", out_axes=None)(x),
        jax.vmap(lambda x: lax.ppermute(x, "i", [(k, (k + 1) % 4) for k in range(4)]), axis_name="i")(x),
        jax.vmap(lambda x: x + lax.axis_size("i"), axis_name="i")(x),
        jax.vmap(lambda: lax.axis_index("i"), axis_name="i", axis_size=3)(),
        jax.vmap(jax.grad(lambda x: (lax.pmean(x, "i") ** 2).sum()), axis_name="i")(x),
        jax.vmap(lambda x: lax.pmax(x, "i") - lax.pmin(x, "i"), axis_name="i", out_axes=None)(x),
    )


# --- control flow -----------------------------------------------------------------------------------------------------


@programs(floats(3), np.int32(1))
def structured_control_flow(jax: Any, x: Any, k: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax
    branches = [lambda x: x, lambda x: -x, lambda x: 10 * x]
    return (
        lax.cond(True, lambda x: x + 1, lambda x: x - 1, x),
        lax.cond(k > 5, lambda x, _: x + 1, lambda _, y: {"y": y}["y"], x, 2 * x),
        lax.cond(k, lambda: 1, lambda: 0),
        lax.switch(k, branches, x),
        lax.switch(k + 7, branches, x),
        lax.switch(k - 7, branches, x),
        lax.while_loop(lambda v: v[0] < 10, lambda v: (v[0] + 1, v[1] * 1.5), (0, x)),
        lax.fori_loop(0, 10, lambda i, v: v + i, 0),
        lax.fori_loop(k, 3 * k + 2, lambda i, v: v.at[i % 3].add(i), x),
        lax.scan(lambda c, x: (c + x, c * x), 0.0, x),
        lax.scan(lambda c, _: (c * 2, c), k, length=4),
        lax.scan(lambda c, xs: (c + xs["a"], {"b": xs["a"]}), 1.0, {"a": x}, reverse=True, unroll=2),
        lax.map(lambda x: x**2, x),
        lax.map(lambda xs: xs[0] + xs[1], (x, x), batch_size=2),
        lax.associative_scan(jnp.add, x),
        jnp.piecewise(x, [x < 0, x > 1], [lambda x: -x, lambda x: x**2, 0.5]),
        jnp.select([x < 0, x > 1], [-x, x**2], 0.5),
        lax.select(x > 0, x, -x),
        jnp.where((k > 0) & (x > 0) | ~(k > 0), x, 0),
        [lax.cond(c, lambda: 1.0, lambda: lax.cond(k > 0, lambda: 2.0, lambda: 3.0)) for c in (0, 1)],
    )


@programs(floats(3))
def which_loops_have_derivatives(jax: Any, x: Any) -> Any:
    """JAX has the reverse mode for all but loops whose number of steps is not known."""
    jnp, lax = jax.numpy, jax.lax

    def by_cond(x: Any) -> Any:
        return lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x).sum()

    def by_scan(x: Any) -> Any:
        return lax.scan(lambda c, x: (jnp.sin(c) * x, c), 1.0, x)[0]

    def by_fori(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, v: v * jnp.sin(x[i]), 1.0)

    def by_while(x: Any) -> Any:
        return lax.while_loop(lambda v: v.sum() < 100, lambda v: v**2 + jnp.abs(x) + 1, x).sum()

    first = [jax.grad(f)(x) for f in (by_cond, by_scan, by_fori)]
    tangents = [jax.jvp(f, (x,), (jnp.ones(3),)) for f in (by_cond, by_scan, by_fori, by_while)]
    return first, tangents, jax.vmap(by_while)(jnp.stack([x, 2 * x])), jax.hessian(by_scan)(x)


@programs(floats(3), traced=False)
def what_loops_refuse(jax: Any, x: Any) -> Any:
    lax = jax.lax
    assert isinstance(error_of(lambda: lax.cond(True, lambda: 1.0, lambda: (1.0, 2.0))), TypeError)
    assert isinstance(error_of(lambda: lax.cond(True, lambda: 1.0, lambda: x)), TypeError)
    assert isinstance(error_of(lambda: lax.while_loop(lambda v: v < 3, lambda v: v + x, 0.0)), TypeError)
    assert isinstance(error_of(lambda: lax.while_loop(lambda v: x > 0, lambda v: v, 0.0)), TypeError)
    assert isinstance(error_of(lambda: lax.scan(lambda c, x: (c + 1, (c, x), x), 0, x)), (TypeError, ValueError))
    assert isinstance(error_of(lambda: lax.scan(lambda c, x: ((c, x), x), 0.0, x)), TypeError)
    assert isinstance(error_of(lambda: lax.scan(lambda c, x: (c, x), 0, (x, x[:2]))), ValueError)
    assert isinstance(error_of(lambda: lax.fori_loop(0, 3, lambda i, v: (v, v), x)), TypeError)
    assert isinstance(error_of(lambda: lax.switch(0, [], x)), ValueError)
    return lax.scan(lambda c, x: (c, x), jax.numpy.int32(0), x)


# --- sharp bits -------------------------------------------------------------------------------------------------------


@programs(np.arange(10, dtype=np.float32), np.int32([3, 11, -1, -12]))
def out_of_bounds(jax: Any, x: Any, i: Any) -> Any:
    """Compiled, reads are held within the array, and updates outside are left out; or as the mode says."""
    jnp = jax.numpy
    return (
        jax.jit(lambda i: x[i])(i),
        x.at[i].get(mode="fill", fill_value=jnp.nan),
        x.at[i].get(mode="clip"),
        jax.jit(lambda i: x.at[i].add(100.0))(i),
        x.at[i].set(7.0, mode="drop"),
        x.at[jnp.array([1, 1, 4])].multiply(2.0),
        x.at[::3].min(2.0).at[2:4].max(9.0).at[5].divide(2).at[6].power(2),
        x.at[3].apply(jnp.cos),
        x.reshape(2, 5).at[:, 1].set(jnp.array([20.0, 30.0])).at[1, ::2].add(1),
        jax.grad(lambda x: x.at[i].get(mode="fill").sum())(x),
        jnp.take(x, i, mode="wrap"),
        x.at[i].get(mode="fill", fill_value=-1).astype(jnp.int32),
    )


@programs(np.float32([0, 1, 2]), traced=False)
def numbers(jax: Any, x: Any) -> Any:
    """NaNs, 32 bits by default, and Python scalars that take the type of what they meet."""
    jnp = jax.numpy
    with jax.debug_nans(True):
        assert isinstance(error_of(lambda: jnp.divide(0.0, 0.0)), FloatingPointError)
        assert isinstance(error_of(jax.jit(lambda x: x[0] / x[0]), x), FloatingPointError)
    types = [jnp.arange(3), jnp.ones(2), jnp.asarray(np.zeros(2)), x + 1, jnp.int8(1) + 1, jnp.int32(1) + 1.0]
    jax.config.update("jax_enable_x64", True)
    try:
        types += [jnp.arange(3), jnp.ones(2), jnp.asarray(np.zeros(2)), jnp.float32(1) + 1, jnp.linspace(0, 1, 5)]
        fine = jax.grad(lambda x: jnp.sin(x) ** 3)(1.0)
    finally:
        jax.config.update("jax_enable_x64", False)
    with jax.numpy_rank_promotion("raise"):
        assert isinstance(error_of(lambda: jnp.ones((2, 3)) + jnp.ones(3)), ValueError)
    with jax.numpy_dtype_promotion("strict"):
        assert isinstance(error_of(lambda: x + jnp.arange(3)), Exception)
    gradients = [
        jax.grad(jnp.sqrt)(0.0),
        jax.grad(lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), 0.0))(0.0),
    ]
    return types, fine, gradients, str(jnp.result_type(jnp.int16, 2.0)), jnp.promote_types("int8", "uint8") == "int16"


# --- random numbers ---------------------------------------------------------------------------------------------------


@programs(np.uint32(42))
def random_numbers(jax: Any, seed: Any) -> Any:
    random, jnp = jax.random, jax.numpy
    key = random.key(seed)
    new, sub = random.split(key)
    keys = random.split(key, (2, 3))
    batched = jax.vmap(lambda k: random.normal(k, (2,)))(random.split(sub, 3))
    return (
        random.key_data(key),
        random.normal(key),
        random.normal(key, (3,)),
        random.key_data(new),
        random.key_data(keys[1, 2]),
        jax.vmap(lambda i: random.uniform(random.fold_in(key, i)))(jnp.arange(3)),
        batched,
        random.randint(sub, (4,), 0, 10),
        random.key_data(random.wrap_key_data(random.key_data(key))),
        random.PRNGKey(seed),
        jax.lax.scan(
            lambda k, _: (lambda a, b: (a, random.normal(b)))(*random.split(k)), random.PRNGKey(seed), length=3
        ),
    )


# --- trees ------------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


@programs(floats(3), traced=False)
def trees(jax: Any, x: Any) -> Any:
    tree, jnp = jax.tree, jax.numpy
    examples = [[1, "a", object()], (1, (2, 3), ()), [1, {"k1": 2, "k2": (3, 4)}, 5], {"a": 2, "b": (2, 3)}, x, None]
    lists = [[1, 2, 3], [1, 2], [1, 2, 3, 4]]
    found = [
        [len(tree.leaves(e)) for e in examples],
        tree.map(lambda x: x * 2, lists),
        tree.map(lambda x, y: x + y, lists, lists),
        tree.reduce(lambda a, b: a + b, lists),
        tree.all([True, 1]),
        tree.leaves([None, 1], is_leaf=lambda x: x is None),
        tree.map(lambda p, q: p if q is None else p - q, [1.0, 2.0], [None, 0.5], is_leaf=lambda x: x is None),
        tree.transpose(tree.structure([0, 0]), tree.structure({"a": 0}), [{"a": 1}, {"a": 2}]),
        tree.map(lambda *xs: jnp.stack(xs), Point(1.0, x), Point(2.0, x)),
        str(tree.structure([1, {"a": (2, None)}])) == str(tree.structure([0, {"a": (0, None)}])),
    ]
    leaves, structure = tree.flatten([1, {"b": 2, "a": Point(3, 4)}])
    found += [leaves, tree.unflatten(structure, [10 * v for v in leaves]), structure.num_leaves]
    assert isinstance(error_of(tree.map, lambda a, b: a, [1, 2], (1, 2)), ValueError)
    assert isinstance(error_of(tree.map, lambda a, b: a, {"a": 1}, {"b": 1}), ValueError)
    assert isinstance(error_of(tree.unflatten, structure, [1]), ValueError)
    paths = tree.leaves_with_path([1, {"k": Point(2, 3)}, (4,)])
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    found += [names, tree.map_with_path(lambda path, v: f"{jax.tree_util.keystr(path)}={v}", {"a": [1, 2]})]
    return found, jax.grad(lambda p: (p.x * p.y**2).sum())(Point(x, 2.0)), jax.tree.map(jnp.shape, {"w": x})


@programs(floats(3), traced=False)
def own_nodes(jax: Any, x: Any) -> Any:
    """Classes as nodes: by functions, by methods, with keys, and dataclasses."""
    util = jax.tree_util

    class Special:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    class Registered(Special):
        pass

    class Keyed(Special):
        pass

    util.register_pytree_node(Registered, lambda v: ((v.x, v.y), None), lambda _, c: Registered(*c))
    util.register_pytree_with_keys(
        Keyed, lambda v: (((util.GetAttrKey("x"), v.x), (util.GetAttrKey("y"), v.y)), None), lambda _, c: Keyed(*c)
    )

    @util.register_pytree_node_class
    class Methods(Special):
        def tree_flatten(self) -> Any:
            return (self.x,), self.y

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls(*children, aux)

    @functools.partial(util.register_dataclass, data_fields=["a", "b"], meta_fields=["name"])
    @dataclass
    class Data:
        a: Any
        b: Any
        name: str

    @util.register_dataclass
    @dataclass
    class Inferred:
        a: Any
        b: int = 3

    assert isinstance(error_of(jax.tree.map, lambda x: x + 1, [Special(0, 1)]), TypeError)
    moved = jax.jit(lambda v: jax.tree.map(lambda x: x + 1, v))
    data = moved(Data(x, 2.0, "name"))
    kept = moved(Methods(x, "static"))
    batch = jax.vmap(lambda v: v.a * v.b)(Data(x, x, "name"))
    gradient = jax.grad(lambda v: (v.a**2).sum() * v.b)(Data(x, 2.0, "name"))
    return (
        jax.tree.leaves([Registered(0, 1), Registered(2, 4)]),
        [
            util.keystr(path)
            for path, _ in jax.tree.leaves_with_path([Keyed(0, 1), Data(1, 2, "name"), Registered(0, 1)])
        ],
        (data.a, data.b, data.name),
        (kept.x, kept.y),
        batch,
        (gradient.a, gradient.b, gradient.name),
        jax.tree.leaves(Inferred(1)),
        jax.tree.map(lambda x: x, Inferred(1)) == Inferred(1),
        [v.x for v in jax.tree.map(lambda x: x + 1, [Registered(0, 1)])],
    )


@programs(floats(3), traced=False)
def partial_functions(jax: Any, x: Any) -> Any:
    partial = jax.tree_util.Partial
    scaled = partial(lambda a, x: a * x, jax.numpy.float32(2))

    @jax.jit
    def twice(f: Any, x: Any) -> Any:
        return f(f(x))

    flat, unravel = importlib.import_module(f"{jax.__name__}.flatten_util").ravel_pytree({"w": x, "b": 1.0})
    return (
        twice(scaled, x),
        jax.grad(lambda f: f(x).sum())(scaled).args,
        jax.tree.leaves(scaled),
        flat,
        unravel(2 * flat),
    )


# --- state and models -------------------------------------------------------------------------------------------------


@programs(floats(10, 1), traced=False)
def state(jax: Any, x: Any) -> Any:
    """A counter whose state goes in and out, and a linear regression that updates a tree of parameters."""
    jnp, tree = jax.numpy, jax.tree

    class Params(NamedTuple):
        weight: Any
        bias: Any

    class Counter:
        def __init__(self) -> None:
            self.n = 0

        def count(self) -> int:
            self.n += 1
            return self.n

    stateful, n, counts = Counter(), 0, []
    compiled = jax.jit(stateful.count)
    counts = [int(compiled()) for _ in range(3)]  # the state is what it was while tracing
    pure = jax.jit(lambda n: (n + 1, n + 1))
    for _ in range(3):
        value, n = pure(n)
        counts.append(int(value))

    y = 3 * x - 1

    @jax.jit
    def update(params: Any, x: Any, y: Any) -> Any:
        gradient = jax.grad(lambda p: jnp.mean((p.weight * x + p.bias - y) ** 2))(params)
        return tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    params = Params(jnp.float32(0.5), jnp.float32(0.1))
    for _ in range(20):
        params = update(params, x, y)
    return counts, tuple(params)


def multilayer_perceptron(jax: Any, sizes: tuple[int, ...]) -> tuple[Any, Callable[..., Any]]:
    random, jnp = jax.random, jax.numpy
    keys = random.split(random.PRNGKey(0), len(sizes))
    params = []
    for m, n, key in zip(sizes[:-1], sizes[1:], keys, strict=False):
        w, b = random.split(key)
        params.append((0.1 * random.normal(w, (n, m)), 0.1 * random.normal(b, (n,))))

    def predict(params: Any, image: Any) -> Any:
        *hidden, (w, b) = params
        for u, c in hidden:
            image = jax.nn.relu(u @ image + c)
        scores = w @ image + b
        return scores - jax.scipy.special.logsumexp(scores)

    def batched(params: Any, images: Any) -> Any:
        return jax.vmap(predict, in_axes=(None, 0))(params, images)

    assert batched(params, jnp.zeros((2, sizes[0]))).shape == (2, sizes[-1])
    return params, batched


@programs(floats(12, 16), np.arange(12) % 3)
def network_of_layers(jax: Any, images: Any, labels: Any) -> Any:
    jnp = jax.numpy
    params, predict = multilayer_perceptron(jax, (16, 5, 3))
    targets = jnp.array(labels[:, None] == jnp.arange(3), jnp.float32)

    def loss(params: Any) -> Any:
        return -jnp.mean(predict(params, images) * targets)

    @jax.jit
    def update(params: Any) -> Any:
        return [(w - dw, b - db) for (w, b), (dw, db) in zip(params, jax.grad(loss)(params), strict=True)]

    for _ in range(2):
        params = update(params)
    return params, loss(params), jnp.mean(jnp.argmax(predict(params, images), axis=1) == labels)


@programs(floats(8, 2), np.int32([1, 2, 3]))
def ensembles(jax: Any, x: Any, seeds: Any) -> Any:
    """Several models trained at once by mapping initialization and training, over seeds and over rates."""
    jnp, random, lax = jax.numpy, jax.random, jax.lax
    y = jnp.prod(x, 1, keepdims=True)

    def start(seed: Any) -> Any:
        a, b = random.split(random.PRNGKey(seed))
        return {"u": random.normal(a, (2, 4)), "v": random.normal(b, (4, 1))}

    def loss(p: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ p["u"]) @ p["v"] - y) ** 2)

    def train(p: Any, rate: Any) -> Any:
        def step(p: Any, _: Any) -> Any:
            value, g = jax.value_and_grad(loss)(p)
            return jax.tree.map(lambda p, g: p - rate * g, p, g), value

        return lax.scan(step, p, None, length=4)

    models = jax.vmap(start)(seeds)
    trained, losses = jax.vmap(train, (0, None))(models, 0.1)
    by_rate = jax.vmap(jax.vmap(train, (None, 0)), (0, None))(models, jnp.array([0.01, 0.1]))[1]
    return trained, losses, by_rate, jax.vmap(lambda p: jnp.tanh(x @ p["u"]) @ p["v"])(trained).mean(0)


@programs(floats(6, 2, 3), floats(3, 4), floats(4, 4))
def recurrent_networks(jax: Any, xs: Any, w: Any, u: Any) -> Any:
    """A cell in a scan, unrolled in Python, with lengths that differ, from both ends, and mapped over examples."""
    jnp, lax = jax.numpy, jax.lax
    lengths = jnp.array([6, 4])

    def cell(p: Any, h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ p["w"] + h @ p["u"])
        return h, h

    def run(p: Any, xs: Any, **options: Any) -> Any:
        return lax.scan(functools.partial(cell, p), jnp.zeros((*xs.shape[1:-1], 4)), xs, **options)

    def unrolled(p: Any) -> Any:
        h = jnp.zeros((2, 4))
        for x in xs:
            h, _ = cell(p, h, x)
        return h

    def masked(p: Any) -> Any:
        def step(h: Any, tx: Any) -> Any:
            t, x = tx
            return jnp.where((t < lengths)[:, None], cell(p, h, x)[0], h), None

        return lax.scan(step, jnp.zeros((2, 4)), (jnp.arange(6), xs))[0]

    p = {"w": w, "u": u}
    gradients = [jax.grad(lambda p, f=f: (f(p) ** 2).sum())(p) for f in (lambda p: run(p, xs)[0], unrolled, masked)]
    return run(p, xs), run(p, xs, reverse=True), jax.vmap(run, (None, 1))(p, xs), gradients


# --- convolutions and contractions ------------------------------------------------------------------------------------


@programs(floats(10), floats(3), floats(6, 7, 2), floats(3, 3, 2, 4))
def convolutions(jax: Any, x: Any, window: Any, image: Any, kernel: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax
    batch = image[None]
    first, channels = jnp.transpose(batch, [0, 3, 1, 2]), jnp.transpose(kernel, [3, 2, 0, 1])
    layout = lax.conv_dimension_numbers(batch.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))

    def general(strides: Any, padding: Any, **dilations: Any) -> Any:
        return lax.conv_general_dilated(batch, kernel, strides, padding, dimension_numbers=layout, **dilations)

    line = x.reshape(1, 5, 2)
    line_layout = lax.conv_dimension_numbers(line.shape, (3, 2, 2), ("NWC", "WIO", "NWC"))
    return (
        [jnp.convolve(x, window, mode) for mode in ("full", "same", "valid")],
        jnp.correlate(x, window),
        lax.conv(first, channels, (1, 1), "SAME"),
        lax.conv_with_general_padding(first, channels, (1, 1), ((2, 2), (2, 2)), (1, 1), (1, 1)),
        general((1, 1), "SAME"),
        general((2, 2), "SAME"),
        general((1, 1), "VALID"),
        general((1, 1), ((0, 0), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(2, 3)),
        general((1, 1), ((1, 0), (0, 1)), lhs_dilation=(2, 2)),
        lax.conv_transpose(batch, kernel, (2, 2), "SAME", dimension_numbers=layout),
        lax.conv_general_dilated(line, jnp.ones((3, 2, 2)), (1,), "SAME", (1,), (2,), line_layout),
        lax.conv_general_dilated(
            batch, kernel[:, :, :1], (1, 1), "SAME", dimension_numbers=layout, feature_group_count=2
        ),
        lax.conv_general_dilated(
            image.reshape(1, 6, 7, 2, 1),
            jnp.ones((2, 2, 2, 1, 3)),
            (1, 1, 1),
            "SAME",
            dimension_numbers=("NHWDC", "HWDIO", "NHWDC"),
        ),
        jax.grad(lambda k: (lax.conv(first, k, (2, 2), "SAME") ** 2).sum())(channels),
        jax.vmap(lambda x: jnp.convolve(x, window))(x.reshape(2, 5)),
    )


@programs(floats(2, 3, 4), floats(2, 4, 3), floats(3, 3))
def contractions(jax: Any, x: Any, y: Any, m: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax
    subscripts = {
        "bij,bjk->bik": (x, y), "bij->bji": (x,), "ii": (m,), "ii->i": (m,), "i...->...": (x,), "bij,bjk,kl": (x, y, m),
        "...ij,...jk": (x, y), "ij,kl->ijkl": (m, m), "bij->": (x,), "bij,bji->b": (x, y), "ij,ij->ij": (m, m),
    }  # fmt: skip
    return (
        [jnp.einsum(s, *operands) for s, operands in subscripts.items()],
        jnp.einsum(x, [0, 1, 2], y, [0, 2, 3], [0, 1, 3]),
        jax.grad(lambda x: (jnp.einsum("bij,bjk->ik", x, y) ** 2).sum())(x),
        jax.vmap(lambda x, y: jnp.einsum("ij,jk->ik", x, y))(x, y),
        lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
        jnp.tensordot(x, y, axes=((0, 2), (0, 1))),
        jnp.vectorize(lambda a, b: a @ b, signature="(n,m),(m)->(n)")(x, y[:, :, 0]),
        jnp.vectorize(lambda a, b: a @ b, signature="(k),(k)->()", excluded=set())(x, m[:1, :1].repeat(4)),
    )
