"""Derivatives and mapping of loops and branches in jaxprs: they are loops and branches again, as in JAX, and give what
the function does."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines as printed

SCAN = "lambda c: lax.scan(lambda c, x: (jnp.sin(c * x) * w, c), c, xs)"
COND = "lambda c: lax.cond(c[0] > 0, lambda c: jnp.sin(c) * c, lambda c: c / 2, c)"
WHILE = "lambda c: lax.while_loop(lambda c: c[0] < 3, lambda c: c * w + 1, c)"
CUSTOM = "lambda c: lax.scan(lambda c, x: (custom(c) * x, c), c, xs)"
NESTED = f"lambda c: lax.scan(lambda c, x: (({COND})(c) * x, ({SCAN})(c)[1].sum(0)), c, xs)"

# A function of x, a vector, and the loops and branches in its jaxpr; R is a scan in reverse.
CASES = {
    f"jvp({SCAN})": "scan",
    f"grad({SCAN})": "scan scanR",
    f"grad(lambda c: ({SCAN})(c)[1])": "scan scanR",
    "grad(lambda w: lax.scan(lambda c, x: (c * w, x * c), xs[0], xs, reverse=True))": "scanR scan",
    "grad(lambda c: lax.fori_loop(0, 3, lambda i, c: c * c[i], c))": "scan scanR",
    f"grad({CUSTOM})": "scan scanR",
    "grad(lambda c: lax.cond(c[0] > 0, custom, jnp.cos, c))": "cond cond",
    f"jvp({COND})": "cond",
    f"grad({COND})": "cond cond",
    f"jvp({WHILE})": "while",
    f"jax.vmap(jvp({WHILE}))": "while",
    f"grad({NESTED})": "scan cond scan scanR cond scanR",
    f"jax.vmap(grad({SCAN}))": "scan scanR",
    f"jvp(grad({SCAN}))": "scan scanR",
    f"grad(grad({SCAN}))": "scan scan scanR scanR",
    f"grad(jax.jit({SCAN}))": "scan scanR",
    "grad(lambda c: lax.scan(lambda n, x: (n + 1, n), 0, xs)[1] * c.sum())": "scan",
}


_PROGRAM = f"""
import jax, jax.numpy as jnp, numpy as np
from jax import lax
x, w, xs = jnp.array([0.5, 1.5, 0.7]), jnp.float32(1.3), jnp.arange(1.0, 7.0).reshape(2, 3) / 5

@jax.custom_vjp
def custom(c):
    return jnp.sin(c)

custom.defvjp(lambda c: (custom(c), c), lambda c, g: (g * jnp.cos(c),))

def total(f):
    return lambda c: sum(jnp.sum(y) for y in jax.tree.leaves(f(c)))

def grad(f):
    return jax.grad(total(f))

def jvp(f):
    return lambda c: jax.jvp(f, (c,), (jnp.cos(c),))

def loops(jaxpr):
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("scan", "while", "cond"):
            yield eqn.primitive.name + "R" * eqn.params.get("reverse", False)
        for inner in jax.core.jaxprs_in_params(eqn.params):
            yield from loops(inner)

for source in {list(CASES)!r}:
    function, mapped = eval(source), source.startswith("jax.vmap")
    given = jnp.stack([x, 2 * x]) if mapped else x
    closed = jax.make_jaxpr(function)(given)
    results = jax.core.eval_jaxpr(closed.jaxpr.replace(), closed.consts, given)
    wanted = jax.tree.leaves(function(given))
    print(*loops(closed.jaxpr), all(np.allclose(a, b, rtol=1e-4) for a, b in zip(results, wanted, strict=True)))
"""


def test_derivatives_of_loops_are_loops() -> None:
    found = {name: line.split() for name, line in zip(CASES, printed(_PROGRAM), strict=True)}
    assert {name: sorted(words[:-1]) for name, words in found.items()} == {
        k: sorted(v.split()) for k, v in CASES.items()
    }
    assert {name: words[-1] for name, words in found.items()} == dict.fromkeys(CASES, "True")


def test_linearized_functions_have_the_same_jaxpr_for_known_and_for_traced_values() -> None:
    program = """
        import jax, jax.numpy as jnp

        def show(scale, x):
            _, derivative = jax.linearize(lambda x: 0.5 * x * scale, x)
            print(jax.make_jaxpr(derivative)(x))
            return x

        scale = jnp.zeros(())
        jax.jit(lambda x: show(scale, x))(1.0)
        jax.jit(show)(scale, 1.0)
        """
    jaxpr = ["{ lambda a:f32[]; b:f32[]. let", "    c:f32[] = mul b 0.5:f32[]", "    d:f32[] = mul c a", "  in (d,) }"]
    assert printed(program) == [*jaxpr, *jaxpr]


def test_results_of_branches_without_derivatives_have_no_tangents_in_recorded_loops_either() -> None:
    program = """
        import functools, jax
        from jax import lax

        @jax.custom_jvp
        def constant(x):
            return x

        @functools.partial(constant.defjvp, symbolic_zeros=True)
        def rule(primals, tangents):
            print(type(tangents[0]).__name__ == "SymbolicZero")
            return primals[0], tangents[0]

        def branch(x):
            return constant(lax.cond(x > 0, lambda: lax.stop_gradient(x), lambda: 1.0))

        def loop(x):
            def body(carry, _):
                a, b = carry
                b = constant(b)
                return (a * x, lax.cond(a > 0, lambda: lax.stop_gradient(a), lambda: b)), None
            return lax.scan(body, (x, lax.stop_gradient(x)), None, length=3)[0]

        for f in (branch, loop, constant):
            closed = jax.make_jaxpr(f)(1.0)
            jax.vjp(lambda x: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x), 1.0)
        """
    assert printed(program) == ["False"]  # that of the last one
