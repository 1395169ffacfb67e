"""Primitives whose rules are methods, `jax.experimental.hijax.VJPHiPrimitive`, in a process of their own."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines

PROGRAM = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.experimental.hijax import VJPHiPrimitive

    class Power(VJPHiPrimitive):
        def __init__(self, aval, power):
            self.in_avals, self.out_aval, self.params = (aval,), aval, dict(power=power)
            super().__init__()
        def expand(self, x): return x ** self.power

    class Scaled(VJPHiPrimitive):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = ({"a": aval, "b": aval},), (aval, aval), {}
            super().__init__()
        def expand(self, d): return 2 * d["a"], 3 * d["b"]
        def vjp_fwd(self, wanted, d):
            print("wanted", wanted)
            return self(d), None
        def vjp_bwd(self, _, g, sums):
            sums["a"].accum(g[0]); sums["a"].accum(jnp.ones(sums["a"].aval.shape) * g[0]); sums["b"].accum(3 * g[1])

    def with_rules(**rules):
        kind = type("Kind", (Power,), rules)
        return lambda x: kind(jax.typeof(x), 3)(x)

    def said(call):
        try:
            return call()
        except NotImplementedError as error:
            return str(error).split()[1]
"""


def test_rules_count_in_both_modes_and_for_mapped_axes() -> None:
    found = lines(f"""{PROGRAM}
    f = with_rules(
        vjp_fwd=lambda self, wanted, x: (self(x), x),
        vjp_bwd_retval=lambda self, x, g: (100 * g * x,),
        jvp=lambda self, primals, tangents: (self(*primals), 10 * primals[0] * tangents[0]),
        batch_dim_rule=lambda self, axis, dims: dims[0],
    )
    x = jnp.arange(3.0)
    for g in (f, jax.jit(f), jax.checkpoint(f)):
        print(g(2.0), jax.grad(g)(2.0), jax.jvp(g, (2.0,), (1.0,))[1], jax.vmap(g)(x), jax.vmap(jax.grad(g))(x))
    print(jax.lax.scan(lambda c, _: (f(c), c), 2.0, None, length=2)[0])
    swapped = with_rules(batch=lambda self, axis, args, dims: (jnp.ones((2, axis.size)), 1))
    print(jax.vmap(swapped)(jnp.ones((3, 2))).shape)
    print(jax.grad(lambda d: Scaled(jax.typeof(d["a"]))(d)[1])({{"a": 1.0, "b": 2.0}})["b"])
    """)
    assert found == [
        *["8.0 200.0 20.0 [0. 1. 8.] [  0. 100. 200.]"] * 3,
        "512.0",
        "(3, 2)",
        "wanted ({'a': True, 'b': True},)",
        "3.0",
    ]


def test_missing_rules_are_errors_and_a_linear_rule_serves_both_modes() -> None:
    found = lines(f"""{PROGRAM}
    f = with_rules(
        lin=lambda self, wanted, x: (self(x), x), linearized=lambda self, x, t: t * self.power * x ** (self.power - 1)
    )
    print(jax.linearize(f, 2.0)[1](1.0), jax.grad(f)(2.0), jax.jvp(f, (2.0,), (1.0,)))
    bare = with_rules()
    print(said(lambda: jax.grad(bare)(1.0)), said(lambda: jax.vmap(bare)(jnp.ones(2))))
    try:
        with_rules(vjp_bwd=lambda *x: None, vjp_bwd_retval=lambda *x: None)(1.0)
    except AttributeError as error:
        print("should not override both" in str(error))
    """)
    assert found == [
        "12.0 12.0 (Array(8., dtype=float32, weak_type=True), Array(12., dtype=float32, weak_type=True))",
        "jvp vmap",
        "True",
    ]
