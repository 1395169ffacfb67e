"""`jax.experimental.key_reuse` under the hook: keys that are consumed twice are found in traced functions, and, with
the option `debug_key_reuse`, in calls. One process runs all cases."""

from __future__ import annotations

import pytest

from tests.jax.test_jax_hook import lines as printed

PREAMBLE = """
import re
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax._src import prng
from jax.experimental.key_reuse import KeyReuseError, _core
from jax.experimental.key_reuse._core import *
from jax.extend.core import Primitive
assert_consumed, assert_unconsumed, consume = _core.assert_consumed, _core.assert_unconsumed, _core.consume
bits, uniform, normal, split = jax.random.bits, jax.random.uniform, jax.random.normal, jax.random.split
key, keys = jax.random.key(0), split(jax.random.key(0))
unknown_p = Primitive("unknown")
unknown_p.def_impl(lambda x: x)
unknown_p.def_abstract_eval(lambda x: x)

def report(name, function, *args):
    try:
        found = function(*args)
        print(name, "passes" if found is None else found)
    except (KeyReuseError, AssertionError) as error:
        print(name, type(error).__name__, str(error).splitlines()[0])
"""

# A function of the keys above, as an expression over several lines; what becomes of it.
JIT, BITS = (
    "KeyReuseError In jit, argument 0 is already consumed.",
    "KeyReuseError In random_bits, argument 0 is already",
)
CASES = {
    "fresh": ("assert_unconsumed(key)", "passes"),
    "not_consumed": ("assert_consumed(key)", "AssertionError Expected the consumption True of a key, but it is False"),
    "unknown": ("k = unknown_p.bind(key); assert_consumed(key); assert_consumed(k)", "passes"),
    "consume": ("k = consume(key); assert_consumed(key); assert_consumed(k)", "passes"),
    "clone": ("consume(key); assert_unconsumed(prng.reuse_key(key))", "passes"),
    "seed": ("assert_unconsumed(jax.random.key(0))", "passes"),
    "split": ("k = split(key); assert_consumed(key); assert_unconsumed(k)", "passes"),
    "fold_in": ("k = jax.random.fold_in(key, 2); assert_unconsumed(key); assert_unconsumed(k)", "passes"),
    "bits": ("bits(key); assert_consumed(key)", "passes"),
    "wrap": ("assert_unconsumed(jax.random.wrap_key_data(np.zeros(2, np.uint32)))", "passes"),
    "unwrap": ("jax.random.key_data(key); assert_unconsumed(key)", "passes"),
    "gamma": ("jax.random.gamma(key, 1.0); assert_consumed(key)", "passes"),
    "added_axis": ("k = key[None]; assert_unconsumed(k); consume(key); assert_consumed(k)", "passes"),
    "reshape": ("k = key.reshape(1); assert_unconsumed(k); consume(key); assert_consumed(k)", "passes"),
    "squeeze": ("k = lax.squeeze(key[None], (0,)); consume(key); assert_consumed(k)", "passes"),
    "slice": ("keys[0]; assert_consumed(keys, np.array([True, False])); assert_unconsumed(keys[1])", "passes"),
    "slice_twice": ("keys[0]; keys[0]", "KeyReuseError In slice, argument 0 is already consumed."),
    "jit": ("jax.jit(bits)(key); assert_consumed(key)", "passes"),
    "jit_closure": ("k = jax.jit(lambda: key)(); consume(key); assert_consumed(k)", "passes"),
    "jit_outputs": (
        "a, b = jax.jit(lambda k: (k, k))(key); bits(a); assert_consumed(key); assert_consumed(b)",
        "passes",
    ),
    "cond_both": ("jax.lax.cond(flag, uniform, normal, key); assert_consumed(key)", "passes"),
    "cond_one": ("jax.lax.cond(flag, uniform, lambda k: 1.0, key); assert_consumed(key)", "passes"),
    "cond_none": ("jax.lax.cond(flag, lambda k: 0.0, lambda k: 1.0, key); assert_unconsumed(key)", "passes"),
    "cond_again": ("jax.lax.cond(flag, uniform, lambda k: 1.0, key); uniform(key)", JIT),
    "twice": ("uniform(key); uniform(key)", JIT),
    "twice_words": ("k = jax.random.PRNGKey(0); uniform(k); uniform(k)", "passes"),  # words are not followed
    "after_split": ("split(key); uniform(key)", JIT),
    "after_fold_in": ("[uniform(jax.random.fold_in(key, i)) for i in range(3)]; uniform(key)", "passes"),
    "after_axis": ("bits(key); jax.vmap(bits)(key[None])", BITS),
    "vmap": ("jax.vmap(lambda s: bits(jax.random.key(s)))(jnp.arange(4))", "passes"),
    "vmap_twice": ("jax.vmap(lambda s: bits(key) + bits(key))(jnp.arange(4))", BITS),
    "vmap_twice_mapped": ("jax.vmap(lambda k: bits(k) + bits(k))(keys)", BITS),
    "scan": ("lax.scan(lambda k, _: (split(k)[0], 1), key, None, 3)", "passes"),
    "scan_constant": (
        "lax.scan(lambda c, _: (c, bits(key)), 0, None, 3)",
        "KeyReuseError scan body function leads to key reuse when repeatedly execute",
    ),
    "scan_carry": (
        "lax.scan(lambda k, _: (k, bits(k)), key, None, 3)",
        "KeyReuseError scan body function leads to key reuse when repeatedly execute",
    ),
    "map": ("lax.map(bits, split(key, 5))", "passes"),
    "while": ("lax.while_loop(lambda c: c[1] < 9, lambda c: (split(c[0])[0], c[1] + 1), (key, 0))", "passes"),
    "while_condition": (
        "lax.while_loop(lambda c: c < uniform(key), lambda c: c + 1, 0)",
        "KeyReuseError while_loop cond function leads to key reuse when repeatedly e",
    ),
    "while_body": (
        "lax.while_loop(lambda c: c[1] < 9, lambda c: (c[0], c[1] + bits(c[0])), (key, jnp.uint32(0)))",
        "KeyReuseError while_loop body function leads to key reuse when repeatedly e",
    ),
    "keys_of_a_loop": ("jax.random.multinomial(key, 5.0, jnp.ones(3) / 3); assert_consumed(key)", "passes"),
    "two_algorithms": ("jax.random.poisson(key, 3.0); assert_consumed(key)", "passes"),
    "checkpointed_key": (
        "jax.grad(jax.checkpoint(lambda x, k: x * uniform(k)))(1.0, key); assert_consumed(key)",
        "passes",
    ),
    "gradient": ("jax.grad(jax.checkpoint(lambda x: x * bits(key)))(1.0)", "passes"),
    "gradient_twice": ("jax.grad(jax.checkpoint(lambda x: x * bits(key) + bits(key)))(1.0)", BITS),
}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """What `check_key_reuse` says, by case."""
    code = [PREAMBLE]
    for name, (source, _) in CASES.items():
        statements = "".join(f"    {line.strip()}\n" for line in source.split("; "))
        code.append(f"def {name}_(key, keys, flag):\n{statements}")
        code.append(f"report({name!r}, check_key_reuse, {name}_, key, keys, True)")
    program = "\n".join(code)
    return dict(line.split(" ", 1) for line in printed(program))


@pytest.mark.parametrize("name", CASES)
def test_consumption_of_keys_in_traced_functions(found: dict[str, str], name: str) -> None:
    expected = CASES[name][1]
    assert found[name][: len(expected)] == expected


def test_signatures_of_primitives_are_those_of_functions() -> None:
    lines = printed(
        PREAMBLE
        + """
struct = jax.eval_shape(jax.random.key, 0)
line = jax.eval_shape(lambda: jax.random.key(0)[None])
for primitive, function, *args in [
    (consume_p, consume, struct),
    (prng.random_bits_p, bits, struct),
    (prng.random_seed_p, jax.random.key, 0),
    (prng.random_split_p, split, struct),
    (prng.random_wrap_p, jax.random.wrap_key_data, np.uint32([0, 0])),
    (jax.random.random_gamma_p, jax.random.gamma, struct, 1.0),
    (jax.lax.squeeze_p, jnp.squeeze, line),
    (jax.lax.dynamic_update_slice_p, lax.dynamic_update_slice, line, line, (0,)),
    (jax.lax.copy_p, jnp.array, struct),
]:
    print(function_type_signature(function, *args) == key_reuse_signatures[primitive])
print(KeyReuseSignature(Forward(0, 1), Source(1, np.array([True, False])), Sink(0)))
print(Sink(0) == Sink(0, np.array([True, True])), Sink(0) == Source(0), len({Sink(1), Sink(1, True)}))
"""
    )
    assert lines[:-2] == ["True"] * 9
    assert lines[-2:] == ["KeyReuseSignature(Sink(0), Source(1, [ True False]), Forward(0, 1))", "True False 1"]


def test_debug_key_reuse_looks_at_calls() -> None:
    lines = printed(
        PREAMBLE
        + """
def again(function, *args):
    function(*args)
    report("again", function, *args)

first, second = jax.random.split(jax.random.key(1))
with jax.debug_key_reuse(True):
    again(bits, jax.random.key(0))
    again(jax.jit(bits), jax.random.key(0))
    again(jax.jit(lambda: uniform(first)))
    with jax.disable_jit():
        again(bits, jax.random.key(0))
    report("jit", jax.jit(lambda: bits(second) + bits(second)))
    key = jax.random.key(0)
    copy = jax.random.clone(key)
    uniform(key)
    print(key._consumed, copy._consumed, jax.jit(lambda k: (split(k)[0], k))(copy)[0]._consumed)
bits(key), bits(key)
jax.config.update("jax_debug_key_reuse", True)
report("option", bits, key)
"""
    )
    said = "KeyReuseError Previously-consumed key passed to"
    assert lines == [
        f"again {said} jit-compiled function at index 0",
        f"again {said} jit-compiled function at index 0",
        f"again {said} jit-compiled function at index 0",
        f"again {said} random_bits at index 0",
        "jit KeyReuseError In random_bits, argument 0 is already consumed.",
        "True False False",
        f"option {said} jit-compiled function at index 0",
    ]


@pytest.mark.thorough
def test_random_functions_are_primitives_in_jaxprs() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        print(jax.make_jaxpr(lambda k: jax.random.split(k, 3))(jax.random.key(0)))
        print(jax.make_jaxpr(jax.vmap(jax.random.bits))(jax.random.split(jax.random.key(0))))
        made = jax.make_jaxpr(lambda s: jax.random.uniform(jax.random.key(s), (2,)))(3)
        print(*[eqn.primitive for eqn in made.eqns], made.eqns[1].params["name"])
        f = lambda s: jax.random.normal(jax.random.fold_in(jax.random.PRNGKey(s), 1), (2,))
        closed = jax.make_jaxpr(f)(3)
        print((jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 3)[0] == f(3)).all())
        by_equations = closed.jaxpr.replace()
        print((jax.core.eval_jaxpr(by_equations, closed.consts, 3)[0] == f(3)).all())
        def g(key, x):
            first, second = jax.random.split(key)
            return jnp.sum(jax.random.normal(first, (3,)) * x) + jax.random.gamma(jax.random.clone(second), x)
        for impl in ("threefry2x32", "rbg"):
            key = jax.random.key(3, impl=impl)
            closed = jax.make_jaxpr(jax.grad(g, 1))(key, 2.0)
            for jaxpr in (closed.jaxpr, closed.jaxpr.replace()):
                found = jax.core.eval_jaxpr(jaxpr, closed.consts, jax.random.key_data(key), 2.0)[0]
                print(jnp.allclose(found, jax.grad(g, 1)(key, 2.0)))
        """)
    assert lines == [
        "{ lambda ; a:u32[2]. let b:u32[3,2] = random_split[shape=(3,)] a in (b,) }",
        "{ lambda ; a:u32[2,2]. let",
        "    b:u32[2] = random_bits[bit_width=32 shape=()] a",
        "  in (b,) }",
        "random_seed jit _uniform",
        *["True"] * 6,
    ]


def test_mapped_loops_and_branches_stay_such_in_jaxprs() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp, numpy as np
        from jax import lax
        x = jnp.arange(6.0).reshape(2, 3)
        functions = [
            lambda x, flag: lax.scan(lambda c, y: (c + y, c * 2), 0.0, x),
            lambda x, flag: lax.scan(lambda c, y: ((c[1], c[0] + y), 1.0), (0.0, 1.0), x),
            lambda x, flag: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
            lambda x, flag: lax.cond(flag, lambda x: x * 2, lambda x: jnp.ones(3), x),
            lambda x, flag: lax.map(jnp.sin, x),
        ]
        for f in functions:
            g = jax.vmap(f, (0, None))
            traced = jax.make_jaxpr(g)(x, True)
            for y in (traced.jaxpr, traced.jaxpr.replace()):
                for a, b in zip(jax.core.eval_jaxpr(y, traced.consts, x, True), jax.tree.leaves(g(x, True))):
                    np.testing.assert_array_equal(a, b)
            print(*[e.primitive for e in traced.eqns if e.primitive.name in ("scan", "while", "cond")])
        """)
    assert lines == ["scan", "scan", "while", "cond", "scan"]
