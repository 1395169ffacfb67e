"""Dead code elimination of jaxprs under the hook, inside of loops, branches and calls, too."""

from __future__ import annotations

from tests.jax.test_jax_hook import lines as printed


def test_dead_code_is_eliminated_inside_of_equations() -> None:
    """The counts are JAX's, and what is left gives the values that were there before."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax import lax
        from jax.interpreters import partial_eval as pe

        def scanned(x, y):
            def step(c, a):
                return (c[0] + c[2], c[1] * y, c[2] + 1.0), (c[0] * 2, a * c[1])
            return lax.scan(step, (x, y, y), jnp.ones(3))

        functions = {
            "jit": lambda x, y: jax.jit(lambda a, b: (jnp.sin(a), jnp.cos(b)))(x, y),
            "remat": lambda x, y: jax.checkpoint(lambda a, b: (jnp.sin(a), jnp.cos(b)))(x, y),
            "cond": lambda x, y: lax.cond(x > 0, lambda a, b: (a, b * 2), lambda a, b: (a * 3, b), x, y),
            "scan": scanned,
        }
        for name, f in functions.items():
            closed = jax.make_jaxpr(f)(1.0, 2.0)
            values = jax.tree.leaves(f(1.0, 2.0))
            for k in range(2):
                used = [n == k for n in range(len(values))]
                jaxpr, needed = pe.dce_jaxpr(closed.jaxpr, used)
                eqn = jaxpr.eqns[-1]
                inner = eqn.params["branches"] if name == "cond" else [eqn.params["jaxpr"]]
                args = [x for x, need in zip((1.0, 2.0), needed) if need]
                (found,) = jax.core.eval_jaxpr(jaxpr, closed.consts, *args)
                counts = [len(getattr(j, "jaxpr", j).eqns) for j in inner], len(eqn.invars), len(eqn.outvars)
                print(name, needed, *counts, eqn.params.get("num_carry"), np.allclose(found, values[k]))
        closed = jax.make_jaxpr(lambda x: (jax.debug.print("{}", x), jnp.sin(x), jnp.cos(x))[1:])(1.0)
        print([eqn.primitive.name for eqn in pe.dce_jaxpr(closed.jaxpr, [False, True])[0].eqns])
        """
    assert printed(program) == [
        "jit [True, False] [1] 1 1 None True",
        "jit [False, True] [1] 1 1 None True",
        "remat [True, False] [1] 1 1 None True",
        "remat [False, True] [1] 1 1 None True",
        "cond [True, False] [1, 0] 2 1 None True",
        "cond [True, True] [0, 1] 2 1 None True",
        "scan [True, True] [2] 2 2 2 True",
        "scan [False, True] [1] 2 1 1 True",
        "['debug_callback', 'cos']",
    ]


def test_dead_code_inside_of_functions_with_rules_of_their_own() -> None:
    """The text of the whole function is JAX's; derivatives of what is left are those of the rules."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.interpreters import partial_eval as pe

        def function(x, y):
            return jnp.sin(x), jnp.cos(y)

        f, g = jax.custom_jvp(function), jax.custom_vjp(function)
        def rule(primals, tangents):
            return f(*primals), (2 * tangents[0], 3 * tangents[1])
        def forward(x, y):
            return g(x, y), None
        def backward(residuals, t):
            return 2 * t[0], 3 * t[1]
        f.defjvp(rule)
        g.defvjp(forward, backward)
        for h in (f, g):
            jaxpr = jax.make_jaxpr(h)(0.5, 1.5).jaxpr
            print(jaxpr)
            for k in range(2):
                left = pe.dce_jaxpr(jaxpr, [k == 0, k == 1])[0]
                inner = left.eqns[0].params["call_jaxpr"].jaxpr
                called = lambda x, y: jax.core.eval_jaxpr(left, (), x, y)[0]
                same = np.allclose(called(0.5, 1.5), function(0.5, 1.5)[k])
                print([eqn.primitive.name for eqn in inner.eqns], same, *map(float, jax.grad(called, (0, 1))(0.5, 1.5)))
        """
    lines = [line.strip() for line in printed(program)]
    left = ["['sin'] True 2.0 0.0", "['cos'] True 0.0 3.0"]
    inner = "call_jaxpr={ lambda ; e:f32[] f:f32[]. let g:f32[] = sin e; h:f32[] = cos f in (g, h) }"
    head, tail = "{ lambda ; a:f32[] b:f32[]. let", ["symbolic_zeros=False", "] a b", "in (c, d) }"]
    assert lines == [
        *(head, "c:f32[] d:f32[] = custom_jvp_call[", "name=function", inner, "jvp=rule", *tail, *left),
        *(head, "c:f32[] d:f32[] = custom_vjp_call[", "name=function", "bwd=backward", inner, "fwd=forward"),
        *(*tail, *left),
    ]
