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
