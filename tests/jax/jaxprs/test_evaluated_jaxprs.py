"""`eval_jaxpr` in traced functions: a call for compiled functions, the operations for jaxprs and traces of programs."""

from __future__ import annotations

import textwrap

from tests.jax.test_jax_hook import lines as printed

_PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax

def function(x, y):
    z = jnp.sin(x) * y
    for _ in range(3):
        z = jnp.cos(z) + x * z
    return z, x, 2 * jnp.sum(z)

args = jnp.array([0.5, 1.5, 0.7]), jnp.float32(1.3)
closed = jax.make_jaxpr(function)(*args)
evaluated = jax.core.jaxpr_as_fun(closed)

def loss(f):
    return lambda x, y: sum(jnp.sum(z) for z in f(x, y))

def scanned(f):
    return lambda x, y: lax.scan(lambda c, _: (f(c, y)[0], f(c, y)[2]), x, None, 4)
"""


def _printed(program: str) -> list[str]:
    return printed(_PROGRAM + textwrap.dedent(program))


def test_a_jaxpr_that_is_evaluated_in_a_compiled_function_is_a_call() -> None:
    """Its derivatives and mappings are those of the function."""
    program = """
        twice = lambda x, y: evaluated(x, y)[0] + evaluated(y * x, y)[0]
        counts = lambda text: [text.count(f" {name}(") for name in ("cosine", "call")]
        print(counts(jax.jit(twice).lower(*args).as_text("hlo")), str(jax.make_jaxpr(twice)(*args)).count(" cos "))
        for transformed in (
            lambda f: f,
            lambda f: jax.grad(loss(f), (0, 1)),
            lambda f: lambda x, y: jax.jvp(lambda x: f(x, y), (x,), (y * x,)),
            lambda f: lambda x, y: jax.vmap(jax.grad(loss(f)), (0, None))(jnp.stack([x, y * x]), y),
            lambda f: jax.hessian(loss(f)),
            lambda f: jax.grad(loss(scanned(f))),
        ):
            found, wanted = (jax.tree.leaves(jax.jit(transformed(f))(*args)) for f in (evaluated, function))
            print(all(np.allclose(a, b, rtol=1e-5) for a, b in zip(found, wanted, strict=True)), end=" ")
        """
    assert _printed(program) == ["[3, 2] 6", "True True True True True True "]


def test_weak_types_of_an_evaluated_jaxpr_follow_its_operands() -> None:
    program = """
        closed = jax.make_jaxpr(lambda x: (jnp.sin(jnp.cos(jnp.sin(jnp.cos(x)))) * x + x - x, x))(1.0)
        weak = []
        def f(x):
            weak.append([y.weak_type for y in jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)])
            return x
        jax.jit(f)(1.0), jax.jit(f)(jnp.float32(1))
        print(weak)
        """
    assert _printed(program) == ["[[True, True], [False, False]]"]


def test_an_evaluated_jaxpr_takes_other_shapes_and_weak_constants_stay_weak() -> None:
    program = """
        closed = jax.make_jaxpr(lambda x: (function(x, 1.3)[0], 2.0, 3))(args[0])
        def f(x):
            found = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, x)
            return np.shape(found[0]), found[1].weak_type, found[2].weak_type
        x = args[0]
        print(f(x), f(x[:2]), jax.jit(lambda x: jnp.zeros(f(x)[0]))(jnp.stack([x, x])).shape)
        """
    assert _printed(program) == ["((3,), True, True) ((2,), True, True) (2, 3)"]


def test_traces_of_programs_process_the_operations_of_an_evaluated_jaxpr() -> None:
    program = """
        from jax._src import core

        class Names(core.Trace):
            found = []
            def process_primitive(self, primitive, tracers, params):
                self.found.append(primitive.name)
                with core.set_current_trace(self.parent_trace):
                    return primitive.bind(*[getattr(x, "value", x) for x in tracers], **params)

        @jax.jit
        def f(x, y):
            with core.take_current_trace() as parent:
                trace = Names()
                trace.parent_trace = parent
                with core.set_current_trace(trace):
                    return evaluated(x, y)[2]

        f(*args)
        print(sorted({*Names.found}))
        """
    assert _printed(program) == ["['add', 'broadcast_in_dim', 'cos', 'mul', 'reduce_sum', 'sin']"]


def test_linearize_of_an_evaluated_jaxpr_holds_the_same_inside_of_a_jaxpr() -> None:
    """diffrax's implicit solvers choose by `cond` between derivatives that were found inside of a jaxpr and outside."""
    program = """
        implicit = lambda x, y: tuple(z - jnp.sin(z) * lax.stop_gradient(jnp.cos(z)) for z in (x, y))
        closed = jax.make_jaxpr(implicit)(jnp.ones(3), jnp.ones((2, 2)))
        held = []
        def f(x, y):
            _, derivative = jax.linearize(jax.core.jaxpr_as_fun(closed), x, y)
            held.append([z.shape for z in jax.make_jaxpr(derivative)(x, y).consts])
            return x
        jax.jit(f)(jnp.ones(3), jnp.ones((2, 2))), jax.make_jaxpr(f)(jnp.ones(3), jnp.ones((2, 2)))
        print(held[0] == held[1], len(held[0]))
        """
    assert _printed(program) == ["True 4"]


def test_shardings_of_compiled_functions_are_parameters_of_jit() -> None:
    assert printed("""
        import jax, numpy as np
        from jax import lax
        from jax.sharding import NamedSharding, PartitionSpec as P
        jax.config.update("jax_num_cpu_devices", 2)
        mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
        f = jax.jit(lambda x, y: (2 * x + y, y), in_shardings=(rows, whole), out_shardings=(rows, rows))
        x = np.arange(4.0)
        for g in (f, jax.vmap(f), lambda x, y: f(x, lax.with_sharding_constraint(y, rows))):
            made = jax.make_jaxpr(g)(np.ones((4, 2)), np.ones((4, 2)))
            eqn = made.eqns[-1]
            shardings = [s.spec for name in ("in_shardings", "out_shardings") for s in eqn.params[name]]
            print(*[e.primitive.name for e in made.eqns], *[e.primitive.name for e in eqn.params["jaxpr"].eqns])
            print(*shardings)
        made = jax.make_jaxpr(f)(x, x)
        print(*[y.sharding.spec for y in jax.core.eval_jaxpr(made.jaxpr.replace(), [], x, x)])
        print(*[np.asarray(y) for y in jax.jit(jax.extend.core.jaxpr_as_fun(made))(x, x)])
        """) == [
        "jit mul add",
        "P('x', None) P(None, None) P('x', None) P('x', None)",
        "jit mul add",
        "P(UNCONSTRAINED, 'x') P(UNCONSTRAINED, None) P(UNCONSTRAINED, 'x') P(UNCONSTRAINED, 'x')",
        "sharding_constraint jit mul add",
        "P('x', None) P(None, None) P('x', None) P('x', None)",
        "P('x',) P('x',)",
        "[0. 3. 6. 9.] [0. 1. 2. 3.]",
    ]


def test_the_jaxpr_of_a_traced_function_is_that_of_make_jaxpr() -> None:
    program = """
        def f(x, n, *, y):
            return lax.scan(lambda c, x: (c + x**2 * y, c), 0.0, x)[0] ** n
        traced = jax.jit(f, static_argnums=1).trace(jnp.ones(3), 3, y=2.0)
        print(str(traced.jaxpr) == str(jax.make_jaxpr(f, static_argnums=1)(jnp.ones(3), 3, y=2.0)))
        with jax.enable_x64(True):
            traced = jax.jit(lambda x: x + 1).trace(1.0)
        print(traced.jaxpr.in_avals[0].dtype)
        """
    assert _printed(program) == ["True", "float64"]
