"""Primitives in jaxprs under the hook: their names are those in JAX's jaxprs, and a jaxpr that is run equation by
equation gives what the function does."""

from __future__ import annotations

import pytest

from tests.jax.test_jax_hook import lines as printed

# A function of x (a vector), m (a matrix), i (integers) and c (complex): the primitive that JAX has for its last step.
CASES = {
    "integer_pow": "x ** 3",
    "integer_pow of a negative": "x ** -2",
    "square": "lax.square(x)",
    "square of jax.numpy": "jnp.square(x)",
    "add of a derivative": "jax.grad(lambda v: jnp.sum(v ** 3) / 3)(x) + jnp.square(x)",
    "integer_pow of an inverse": "jnp.reciprocal(x)",
    "integer_pow by power": "jnp.power(x, 3)",
    "mul of a scalar and an array": "x[0] * x",
    "select_n of a remainder": "jnp.mod(x - 3, jnp.array([2.0, -2.0, 1.5]))",
    "select_n of an operator": "(x - 2) % 1.5",
    "acos": "jnp.arccos(x / 4)",
    "atanh": "jnp.arctanh(x / 4)",
    "igamma of scipy": "jax.scipy.special.gammainc(x, x)",
    "regularized_incomplete_beta": "lax.betainc(1.0, 2.0, x / 4)",
    "approx_top_k": "lax.approx_min_k(x, 2)",
    "eig of lax": "lax.linalg.eig(m)",
    "hessenberg": "lax.linalg.hessenberg(m)",
    "schur": "lax.linalg.schur(m)",
    "tridiagonal": "lax.linalg.tridiagonal(m + m.T, lower=False)",
    "while of lanes": "jax.vmap(lambda v, k: lax.while_loop(lambda c: c[0] < k, lambda c: (c[0] + 1, c[1] * v), "
    "(0, v)))(x, i)",
    "while of two kinds of lanes": "jax.vmap(jax.vmap(lambda v, k: lax.fori_loop(0, k, lambda _, c: c * v, v)), "
    "(1, None))(m, i)",
    "asin": "lax.asin(x / 4)",
    "erfc": "lax.erfc(x)",
    "lgamma": "lax.lgamma(x)",
    "igamma": "lax.igamma(x, x)",
    "conj": "lax.conj(c)",
    "stop_gradient": "lax.stop_gradient(x)",
    "gather": "x[i]",
    "scatter": "x.at[i].set(1.0)",
    "scatter-add": "x.at[i].add(1.0)",
    "scatter-mul": "x.at[i].mul(2.0)",
    "scatter-max": "x.at[i].max(2.0)",
    "conv_general_dilated": "lax.conv(m[None, None], m[None, None], (1, 1), 'SAME')",
    "dot_general of a precision": "lax.dot(m, m, precision='highest')",
    "conv_general_dilated of a precision": "lax.conv(m[None, None], m[None, None], (1, 1), 'SAME', precision='high')",
    "reduce_window_sum": "lax.reduce_window(m, 0.0, lax.add, (2, 2), (1, 1), 'VALID')",
    "reduce_window_max": "lax.reduce_window(m, -jnp.inf, lax.max, (2, 2), (2, 1), 'SAME')",
    "cumsum": "lax.cumsum(x, reverse=True)",
    "cumprod": "lax.cumprod(m, 1)",
    "cummax": "lax.cummax(x)",
    "cumlogsumexp": "lax.cumlogsumexp(x)",
    "sort": "lax.sort((i, x), num_keys=2)",
    "top_k": "lax.top_k(x, 2)",
    "lu": "lax.linalg.lu(m)",
    "argmax": "lax.argmax(m, 1, jnp.int32)",
    "argmin": "jnp.argmin(x)",
    "cholesky": "lax.linalg.cholesky(m @ m.T, symmetrize_input=False)",
    "eig": "jnp.linalg.eig(m)",
    "svd": "lax.linalg.svd(m, full_matrices=False)",
    "qr": "lax.linalg.qr(m, full_matrices=False)",
    "triangular_solve": "lax.linalg.triangular_solve(m, m, transpose_a=True)",
    "mul": "jax.jvp(jnp.sin, (x,), (x,))[1]",
    "debug_callback": "jax.debug.callback(lambda x: None, x)",
    "io_callback": "jax.experimental.io_callback(lambda x: x, x, x)",
    "reduce": "lax.reduce(m, 1.0, lambda a, b: a * b + a, (0,))",
    "reduce of pairs": "lax.reduce((m, m), (1.0, 0.0), lambda a, b: (a[0] * b[0], a[1] + b[1]), (1,))",
    "reduce_window": "lax.reduce_window(m, 1.0, lax.mul, (2, 2), (1, 1), 'VALID')",
    "select_and_scatter_add": "jax.vjp(lambda m: lax.reduce_window(m, -9.0, lax.max, (1, 2), (1, 1), 'SAME'), m)[1](m)",
    "name": "jax.ad_checkpoint.checkpoint_name(x, 'x')",
    "custom_linear_solve": "lax.custom_linear_solve(lambda v: 2 * v, x, lambda mv, b: b / 2)",
    "custom_jvp_call": "lax.custom_root(lambda v: v - x, x, lambda f, y: x + 0, lambda g, y: y)",
    "linear_call": "jax.custom_derivatives.linear_call(lambda r, v: v * 2, lambda r, g: g * 2, (), x)",
    "iota of 64 bits": "lax.igamma(x, 2 * x)",
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Of each function the name of the last primitive, and whether its equations give its value."""
    return {name: line.split() for name, line in zip(CASES, printed(_PROGRAM), strict=True)}


_PROGRAM = f"""
import jax, jax.numpy as jnp, numpy as np
import jax.experimental
from jax import lax
args = (jnp.arange(1.0, 4.0), jnp.eye(3) + jnp.arange(9.0).reshape(3, 3) / 9, jnp.array([2, 0, 1]), jnp.ones(3) * 1j)
for source in {list(CASES.values())!r}:
    function = eval(f"lambda x, m, i, c: {{source}}")
    closed = jax.make_jaxpr(function)(*args)
    results = jax.core.eval_jaxpr(closed.jaxpr.replace(), closed.consts, *args)
    wanted = jax.tree.leaves(function(*args))
    right = all(np.allclose(a, b, rtol=1e-5) for a, b in zip(results, wanted, strict=True))
    names = [eqn.primitive.name for eqn in closed.eqns]
    print(names[-1], right)
"""


@pytest.mark.parametrize("name", CASES)
def test_primitive_and_value_of_equations(found: dict[str, list[str]], name: str) -> None:
    primitive = {"iota of 64 bits": "igamma"}.get(name, name.partition(" ")[0])
    assert found[name] == [primitive, "True"]


def test_primitives_are_names_of_their_modules() -> None:
    names = """lax.gather_p lax.scatter_add_p lax.sort_p lax.conv_general_dilated_p lax.reduce_window_sum_p lax.psum_p
        lax.linalg.lu_p lax.linalg.eigh_p lax.linalg.cholesky_p random.random_gamma_p
        extend.core.primitives.random_bits_p extend.core.primitives.scatter_p""".split()
    program = f"""
        import jax, jax.extend.core.primitives, jax.lax.linalg
        for name in {names!r}:
            found = jax
            for part in name.split("."):
                found = getattr(found, part)
            print(found.name)
        print(jax.lax.scatter_add_p.bind.__self__ is jax.lax.scatter_add_p)
        """
    wanted = [name.rpartition(".")[2].removesuffix("_p").replace("scatter_add", "scatter-add") for name in names]
    assert printed(program) == [*wanted, "True"]


def test_primitives_of_windows_and_stacks_are_bound() -> None:
    """With the parameters that JAX's have; the values are JAX's."""
    program = """
        import jax, jax.numpy as jnp
        from jax import lax
        from jax.extend.core import primitives
        m = jnp.array([[1.0, 5.0, 2.0], [4.0, 3.0, 0.0]])
        window = dict(window_dimensions=(1, 2), window_strides=(1, 1), padding=((0, 0), (0, 0)))
        dilated = window | dict(base_dilation=(1, 1), window_dilation=(1, 1))
        ge, add = (jax.make_jaxpr(f)(1.0, 1.0) for f in (lax.ge, lax.add))
        print(lax.select_and_scatter_add_p.bind(m[:, :2], m, select_prim=lax.ge_p, **window).tolist())
        print(lax.select_and_gather_add_p.bind(10 * m, m, select_prim=lax.ge_p, **dilated).tolist())
        folds = dict(select_jaxpr=ge, select_consts=(), scatter_jaxpr=add, scatter_consts=())
        print(lax.select_and_scatter_p.bind(m, m[:, :2], 1.0, **folds, **window).tolist())
        print(lax.approx_top_k_p.bind(m[0], k=2, reduction_dimension=-1, recall_target=0.9, is_max_k=False)[0].tolist())
        print(lax.stack_p.bind(m[0], m[1], axis=1).shape, len(lax.unstack_p.bind(m, axis=0)))
        print(primitives.add_jaxvals_p.bind(1.0, 2.0), primitives.linear_solve_p.name, primitives.remat_p.name)
        """
    assert printed(program) == [
        "[[0.0, 6.0, 0.0], [4.0, 3.0, 0.0]]",
        "[[50.0, 50.0], [40.0, 30.0]]",
        "[[1.0, 7.0, 1.0], [5.0, 4.0, 1.0]]",
        "[1.0, 2.0]",
        "(3, 2) 2",
        "3.0 custom_linear_solve remat2",
    ]


def test_collectives_have_their_primitives() -> None:
    program = """
        import jax, jax.numpy as jnp
        from jax import lax
        def f(x):
            swapped = lax.ppermute(x, "i", [(0, 1), (1, 0)])
            return lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i"), swapped
        made = jax.make_jaxpr(f, axis_env=[("i", 2)])(1.0)
        print(*(f"{e.primitive} {e.params}" for e in made.eqns), sep="\\n")
        run = jax.vmap(lambda x: jax.core.eval_jaxpr(made.jaxpr, made.consts, x), axis_name="i")
        print(*(x.tolist() for x in run(jnp.arange(2.0))))
        """
    assert printed(program) == [
        "ppermute {'axis_name': ('i',), 'perm': ((0, 1), (1, 0))}",
        *(f"{name} {{'axes': ('i',), 'axis_index_groups': None}}" for name in ("psum", "pmax", "pmin")),
        "[1.0, 1.0] [1.0, 1.0] [0.0, 0.0] [1.0, 0.0]",
    ]


def test_sequential_vmap_is_a_scan() -> None:
    program = """
        import jax, jax.numpy as jnp
        f = jax.custom_batching.sequential_vmap(lambda x, y: x + y)
        made = jax.make_jaxpr(jax.vmap(f, in_axes=(0, None)))(jnp.arange(3.0), 4.0)
        print(*(e.primitive for e in made.eqns), jax.vmap(f, in_axes=(0, None))(jnp.arange(3.0), 4.0))
        """
    assert printed(program) == ["scan [4. 5. 6.]"]


def test_captured_arrays_are_constants_and_numbers_are_literals() -> None:
    """As in JAX: arrays without axes are constants, each one once, through loops and branches, too; what is made of
    numbers meanwhile is a literal; a compiled function has its constants itself."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax import lax
        scalar, vector, first = jnp.asarray(2.0), jnp.arange(3.0), jnp.asarray(2)
        functions = [
            lambda x: x * scalar + scalar,
            lambda x: x * jnp.asarray(3.0) + np.float32(2) + jnp.float32(1) + jnp.zeros(()),
            lambda x: lax.scan(lambda c, y: (c * scalar, c + y), x, vector)[0] + vector,
            lambda x: lax.cond(x > scalar, lambda y: y * scalar, lambda y: y + vector[0], x),
            lambda x: jax.checkpoint(lambda y: y * scalar)(x),
            lambda x: jax.jit(lambda y: y * vector)(x),
            lambda x: lax.fori_loop(first, 5, lambda i, y: y + scalar, x),
        ]
        for f in functions:
            closed = jax.make_jaxpr(f)(1.0)
            again = jax.core.eval_jaxpr(closed.jaxpr.replace(), closed.consts, 1.0)
            print([np.shape(c) for c in closed.consts], np.allclose(again[0], f(1.0)), closed.eqns[-1].primitive)
        """
    assert printed(program) == [
        "[()] True add",
        "[] True add",
        "[(), (3,)] True add",
        "[(), (3,)] True cond",
        "[()] True remat2",
        "[] True jit",
        "[()] True scan",
    ]


def test_make_jaxpr_inside_of_an_option_that_is_set_for_all_leaves_the_option() -> None:
    assert printed("""
        import jax, jax.numpy as jnp
        jax.config.update("jax_numpy_rank_promotion", "raise")
        with jax.numpy_rank_promotion("raise"):
            jax.make_jaxpr(jnp.sin)(1.0)
        print(jax.config.jax_numpy_rank_promotion)
        """) == ["raise"]


def test_equations_know_their_line_and_the_scopes_around_it() -> None:
    program = """
        import jax
        import jax.numpy as jnp
        from jax.extend import source_info_util

        @jax.named_scope("layer")
        def f(x):
            with jax.named_scope("inner"):
                y = jnp.sin(x)
            return jnp.cos(y)[None]

        for equation in jax.make_jaxpr(f)(1.0).eqns:
            print(equation.primitive, equation.source_info.name_stack)
        print("(f)" in source_info_util.summarize(equation.source_info))
        with jax.named_scope("outer"):
            print(source_info_util.current().name_stack, source_info_util.current_name_stack())
        """
    assert printed(program) == ["sin layer/inner", "cos layer", "broadcast_in_dim layer", "True", "outer outer"]


def test_name_stacks_have_transformations_around_scopes_and_those_of_bodies_begin_there() -> None:
    program = """
        import jax, jax.numpy as jnp
        from jax import lax

        @jax.named_scope("layer")
        def f(x):
            return lax.while_loop(lambda x: x < 5, jax.named_scope("step")(lambda x: x + 1), jnp.sin(x))

        def stacks(f, *args):
            jaxpr = jax.make_jaxpr(f)(*args).jaxpr
            print(*(f"{e.primitive}:{e.source_info.name_stack}" for e in jaxpr.eqns))
            return jaxpr

        body = stacks(jax.vmap(f), jnp.ones(2)).eqns[-1].params["body_jaxpr"]
        print(body.eqns[0].source_info.name_stack)
        g = jax.named_scope("layer")(jnp.sin)
        stacks(jax.named_scope("around")(jax.grad(g)), 1.0)
        stacks(jax.grad(jax.jit(g)), 1.0)
        stacks(lambda x: jax.linear_transpose(jax.named_scope("layer")(lambda x: 2 * x), x)(x), 1.0)
        print(jax.make_jaxpr(g)(1.0).pretty_print(name_stack=True))
        print("layer" in jax.jit(g).lower(1.0).compile().as_text())
        """
    assert printed(program) == [
        "sin:vmap(layer) while:vmap(layer)",
        "step",
        "sin:around/jvp(layer) cos:around/transpose(jvp(layer)) mul:around/transpose(jvp(layer))",
        "jit:jvp() jit:transpose(jvp())",
        "mul:transpose(layer)",
        "{ lambda ; a:f32[]. let",
        "    b:f32[] = sin a # [layer]",
        "  in (b,) }",
        "True",
    ]


def test_functions_called_twice_stand_in_front_and_share_the_names_of_their_arguments() -> None:
    assert printed(
        """
        import jax, jax.numpy as jnp
        f = jax.jit(lambda x, y: (x * y, x))
        print(jax.make_jaxpr(lambda x: f(x, x))(jnp.ones(3)))
        h = jax.jit(lambda x: jax.lax.cos(x))
        print(jax.make_jaxpr(lambda x: h(x) + h(x))(jnp.ones(3)))
        """
    ) == [
        "{ lambda ; a:f32[3]. let",
        "    b:f32[3] c:f32[3] = jit[",
        "      name=<lambda>",
        "      jaxpr={ lambda ; a:f32[3] d:f32[3]. let b:f32[3] = mul a d in (b, a) }",
        "    ] a a",
        "  in (b, c) }",
        "let lambda = { lambda ; a:f32[3]. let b:f32[3] = cos a in (b,) } in",
        "{ lambda ; c:f32[3]. let",
        "    d:f32[3] = jit[name=<lambda> jaxpr=lambda] c",
        "    e:f32[3] = jit[name=<lambda> jaxpr=lambda] c",
        "    f:f32[3] = add d e",
        "  in (f,) }",
    ]
