"""`tinyxla.jax`: after it, `import jax` gives this library. Each test runs in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT


def run(*arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    """The interpreter with these arguments, in a process where the library can be imported."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        timeout=300,
    )
    assert not check or found.returncode == 0, found.stderr
    return found


def lines(code: str) -> list[str]:
    """What a program prints under the hook, line by line."""
    return run("-m", "tinyxla.jax", "-c", textwrap.dedent(code)).stdout.splitlines()


def test_script_gets_its_arguments_and_folder(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import jax\nvalue = jax.__version__")
    script = tmp_path / "script.py"
    script.write_text("import sys, helper, jax\nprint(sys.argv[1:], helper.value, jax.jit.__module__, __name__)")
    found = run("-m", "tinyxla.jax", str(script), "a", "-b").stdout
    assert found == "['a', '-b'] 0.10.2 tinyxla.api.jit __main__\n"


@pytest.mark.parametrize("how", ["file", "-", "-c"])
def test_program_is_the_main_module_and_its_errors_have_its_frames_alone(tmp_path: Path, how: str) -> None:
    """As of `python`, by which the same program is run."""
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
            import dataclasses, pickle, sys
            print(sys.argv, __name__, globals().get("__file__"), repr(sys.path[0]))
            print(vars(sys.modules["__main__"]) is globals())
            @dataclasses.dataclass
            class Pair:
                x: "int" = 1
            print(pickle.loads(pickle.dumps(Pair())))
            def divide(x):
                return x / 0
            divide(1)
        """)
    )
    program = (tmp_path / "program.py").read_text()
    given = {"file": ["program.py", "a"], "-": ["-", "a"], "-c": ["-c", program, "a"]}[how]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: x for name, x in os.environ.items() if not name.startswith("JAX_")}  # of which some warn
    settings: Any = {"cwd": tmp_path, "env": {**environment, "PYTHONPATH": paths}, "input": program}
    found, wanted = (
        subprocess.run([sys.executable, *hook, *given], capture_output=True, text=True, timeout=300, **settings)
        for hook in (("-m", "tinyxla.jax"), ())
    )
    assert (found.stdout, found.stderr, found.returncode) == (wanted.stdout, wanted.stderr, wanted.returncode)


def test_missing_script_and_errors_of_syntax() -> None:
    missing = run("-m", "tinyxla.jax", "absent.py", check=False)
    assert missing.returncode == 2
    assert "cannot open" in missing.stderr
    wrong = run("-m", "tinyxla.jax", "-c", "x =", check=False)
    assert wrong.returncode == 1
    assert wrong.stderr.splitlines()[-4] == '  File "<string>", line 1'


def test_module_and_first_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import jax, sys\nprint(jax.jit.__module__, sys.argv[1:])")
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    assert run("-m", "tinyxla.jax", "-m", "program", "x", PYTHONPATH=paths).stdout == "tinyxla.api.jit ['x']\n"
    assert run("-c", "import tinyxla.jax, jax; print(jax.jit.__module__)").stdout == "tinyxla.api.jit\n"


def test_pytest_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import jax\ndef test_it():\n    assert 'tinyxla' in jax.jit.__module__")
    found = run("-m", "pytest", "-q", "-p", "tinyxla.jax", "-p", "no:cacheprovider", str(tmp_path))
    assert "1 passed" in found.stdout


def test_objects_of_imported_modules_count_as_old() -> None:
    code = """
        import gc, importlib.util
        kept = [[k] for k in range(600)]
        importlib.util.find_spec("wave")
        print(gc.get_count()[0] < 100, gc.get_freeze_count())
    """
    assert lines(code) == ["True 0"]


def test_exit_status_and_usage() -> None:
    assert run("-m", "tinyxla.jax", "-c", "import sys; sys.exit(3)", check=False).returncode == 3
    assert run("-m", "tinyxla.jax").stdout.startswith("usage: python -m tinyxla.jax")


def test_versions_and_submodules() -> None:
    assert lines(
        """
        import importlib.metadata as metadata
        import jax, jaxlib, jax.scipy.stats.norm as norm
        from jax.scipy.special import erf
        from jax import lax
        print(jax.__version__, metadata.version("jax"), metadata.version("jaxlib"), jaxlib.__version__)
        print(jax.__version_info__, metadata.version("numpy") != jax.__version__)
        print(jax.numpy.__name__, norm.__name__, float(norm.cdf(0.0)), float(erf(0.0)), lax.scan is jax.lax.scan)
        """
    ) == ["0.10.2 0.10.2 0.10.2 0.10.2", "(0, 10, 2) True", "tinyxla.numpy norm 0.5 0.0 True"]


def test_missing_names_say_who_lacks_them() -> None:
    found = lines(
        """
        import jax
        codes = "jax.nonsense", "jax.numpy.nonsense", "import jax.nonsense", "from jax.lax import nonsense"
        for code in (*codes, "from jax.config import config", "import jax.numpy.r_"):
            try:
                exec(code)
            except (AttributeError, ImportError) as error:
                print(type(error).__name__, error)
        """
    )
    assert found[0].startswith("AttributeError module 'jax' has no attribute 'nonsense': tinyxla")
    assert "tinyxla" in found[1]
    assert any(line.startswith("ModuleNotFoundError No module named 'jax.nonsense': tinyxla") for line in found)
    assert any(line.startswith("ImportError cannot import name 'nonsense'") for line in found)
    assert found[-2].startswith("ModuleNotFoundError No module named 'jax.config'")  # an object there
    assert found[-1].startswith("ModuleNotFoundError No module named 'jax.numpy.r_'")


def test_hook_after_jax_is_refused() -> None:
    found = run("-c", "import jax, tinyxla.jax", check=False)
    assert "had been imported before; import tinyxla.jax first" in found.stderr


JAXPRS = [
    "lambda x: jnp.sin(x) * 2",
    "lambda x: jnp.sum(x)",
    "lambda x: x[1:]",
    "lambda x: x + big",
    "lambda x: x",
    "lambda x: jnp.broadcast_to(x, (2, 3))",
    "lambda x: lax.iota('int32', 3)",
    "lambda x: lax.reshape(lax.broadcast(x, (2,)), (6,))",
    "lambda x: jnp.mean(x)",
    "lambda x: lax.sort(x)",
    "lambda x: lax.top_k(x, 2)",
    "lambda x: lax.cumsum(x)",
    "lambda x: jax.vmap(jnp.dot, (None, 0))(x, jnp.ones((2, 3)))",
    "lambda x: lax.linalg.qr(x[:, None])",
    "lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2, x)",
    "lambda x: lax.while_loop(lambda y: y[0] < 3, lambda y: y * 2, x)",
    "lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x)",
    "lambda x: lax.scan(lambda c, a: (c + a, c), x[0], x)",
]


def test_jaxprs_are_printed_as_jax_prints_them() -> None:
    code = "\n".join(["import jax, jax.numpy as jnp", "from jax import lax", "big, x = jnp.arange(3.0), jnp.ones(3)"])
    code += "".join(f"\nprint(jax.make_jaxpr({function})(x))" for function in JAXPRS)
    expected = io.StringIO()
    with contextlib.redirect_stdout(expected):
        exec(code, {})
    assert lines(code) == expected.getvalue().splitlines()


def test_loops_branches_and_calls_are_single_equations() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp
        from jax import lax

        @jax.custom_jvp
        def f(x):
            return x * 2
        f.defjvps(lambda t, ans, x: 3 * t)

        rows, index = jnp.arange(3.0), jnp.array(1)

        def program(x):
            x, ys = lax.scan(lambda c, a: (c + a, c), x, rows)
            x = lax.while_loop(lambda v: v < 9, lambda v: v * 2, x)
            x = lax.fori_loop(0, 3, lambda i, v: v + i, x)
            x = lax.cond(x > 0, jnp.sin, jnp.cos, x)
            x = lax.switch(index, [jnp.sin, jnp.cos], x)
            return f(jax.jit(jnp.exp)(x)), ys

        closed = jax.make_jaxpr(program)(1.0)
        print([eqn.primitive.name for eqn in closed.eqns])
        scan = next(e for e in closed.eqns if e.primitive.name == "scan")
        print(scan.params["length"], scan.params["num_carry"], type(scan.params["jaxpr"]).__name__)
        got = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, 1.0)
        print(all(jnp.allclose(a, b) for a, b in zip(got, jax.tree.leaves(program(1.0)))))
        of_weak = jax.make_jaxpr(lambda x: x + 1)(2.0)
        print([jax.core.eval_jaxpr(of_weak.jaxpr, (), jnp.asarray(2.0, t))[0].weak_type for t in (None, "float32")])
        opened = jax.extend.core.ClosedJaxpr(closed.jaxpr.replace(), closed.consts)
        again = jax.extend.core.jaxpr_as_fun(opened)  # a copy has no computation: primitives are bound one by one
        print(all(jnp.allclose(a, b) for a, b in zip(again(1.0), got)))
        print(float(jax.grad(lambda x: again(x)[0])(1.0)) == float(jax.grad(lambda x: program(x)[0])(1.0)))
        """
    ) == [
        "['scan', 'while', 'scan', 'gt', 'convert_element_type', 'cond', 'clamp', 'cond', 'jit', 'custom_jvp_call']",
        "3 1 ClosedJaxpr",
        "True",
        "[True, False]",
        "True",
        "True",
    ]


def test_interpreter_over_jaxprs_inverts_a_function() -> None:
    """An interpreter as users write them: it walks over equations and looks primitives up by identity."""
    assert lines(
        """
        import jax, jax.numpy as jnp
        from jax.extend import core

        inverses = {jax.lax.exp_p: jnp.log, jax.lax.tanh_p: jnp.arctanh}

        def inverse(fun):
            def wrapped(y):
                jaxpr = jax.make_jaxpr(fun)(y).jaxpr
                env = {jaxpr.outvars[0]: y}
                for eqn in reversed(jaxpr.eqns):
                    env[eqn.invars[0]] = inverses[eqn.primitive](env[eqn.outvars[0]])
                return env[jaxpr.invars[0]]
            return wrapped

        f = lambda x: jnp.exp(jnp.tanh(x))
        print(round(float(inverse(f)(f(0.3))), 5))
        print(round(float(jax.grad(inverse(f))(f(0.3)) * jax.grad(f)(0.3)), 5))
        """
    ) == ["0.3", "1.0"]


def test_interpreter_binds_primitives_with_their_parameters() -> None:
    """Calls with rules have the function among the parameters for `bind`, as `subfuns`."""
    assert lines(
        """
        import jax, jax.numpy as jnp
        from jax.extend import core

        @jax.custom_jvp
        def f(x):
            return jnp.sin(x)

        f.defjvp(lambda primals, tangents: (f(*primals), 5 * tangents[0]))

        def run(jaxpr, *args):
            env = dict(zip(jaxpr.invars, args))
            read = lambda v: v.val if isinstance(v, core.Literal) else env[v]
            for eqn in jaxpr.eqns:
                params = eqn.primitive.get_bind_params(eqn.params)
                found = eqn.primitive.bind(*map(read, eqn.invars), **params)
                env.update(zip(eqn.outvars, found if eqn.primitive.multiple_results else [found]))
                if "subfuns" in params:
                    print(eqn.primitive, *params["subfuns"][0].call_wrapped(0.0))
            return read(jaxpr.outvars[0])

        jaxpr = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, jnp.cos, jnp.sin, 2 * f(x)))(1.0).jaxpr
        print(jax.grad(lambda x: run(jaxpr, x))(0.0))
        """
    ) == ["custom_jvp_call 0.0", "10.0"]


def test_lowering_rules_call_python() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp, numpy as np
        from jax.extend.core import Primitive
        from jax.interpreters import ad, mlir

        twice = Primitive("twice")
        twice.multiple_results = True
        twice.def_abstract_eval(lambda x: [jax.core.ShapedArray(x.shape, x.dtype)])

        def lowered(ctx, x):
            results, token, kept = mlir.emit_python_callback(
                ctx, lambda x: (np.asarray(2 * x),), None, [x], ctx.avals_in, ctx.avals_out, has_side_effect=False
            )
            ctx.module_context.add_keepalive(kept)
            return results

        mlir.register_lowering(twice, lowered)
        ad.primitive_jvps[twice] = lambda primals, tangents: (twice.bind(*primals), twice.bind(*tangents))
        ad.primitive_transposes[twice] = lambda cotangents, x: [3 * cotangents[0]]  # which is not that of the JVP rule
        print(jax.jit(lambda x: twice.bind(x)[0])(jnp.arange(3.0)))
        print(*jax.linear_transpose(lambda x: twice.bind(x)[0], 1.0)(1.0))
        """
    ) == ["[0. 2. 4.]", "3.0"]


def test_primitives_with_rules_are_traced_differentiated_batched_and_compiled() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp, numpy as np
        from jax.extend.core import Primitive
        from jax.interpreters import ad, batching, mlir

        twice = Primitive("twice")
        twice.def_impl(lambda x, *, by: np.asarray(x) * by)
        twice.def_abstract_eval(lambda x, *, by: jax.core.ShapedArray(x.shape, x.dtype))
        mlir.register_lowering(twice, mlir.lower_fun(lambda x, *, by: x * by, multiple_results=False))
        ad.deflinear2(twice, lambda ct, x, *, by: [twice.bind(ct, by=by)])
        batching.primitive_batchers[twice] = lambda xs, axes, *, by: (twice.bind(*xs, by=by), axes[0])

        f = lambda x: jnp.sum(twice.bind(jnp.sin(x), by=2.0) ** 2)
        x = jnp.arange(3.0)
        plain = lambda x: jnp.sum((jnp.sin(x) * 2.0) ** 2)
        compiled = lambda g: jax.jit(jax.grad(g))
        along = lambda g: lambda x: jax.jvp(g, (x,), (x,))[1]
        for way in (lambda g: g, jax.jit, jax.grad, compiled, jax.hessian, along):
            print(bool(jnp.allclose(way(f)(x), way(plain)(x))), end=" ")
        print(jax.vmap(lambda v: twice.bind(v, by=3.0))(x[:, None]).shape)
        print(jax.make_jaxpr(lambda x: twice.bind(x, by=2.0))(1.0))
        undefined = Primitive("undefined")
        for call in (lambda: undefined.bind(1.0), lambda: jax.grad(undefined.bind)(1.0)):
            try:
                call()
            except Exception as error:
                print(type(error).__name__, str(error).splitlines()[0])
        """
    ) == [
        "True True True True True True (3, 1)",
        "{ lambda ; a:f32[]. let b:f32[] = twice[by=2.0] a in (b,) }",
        "NotImplementedError Evaluation rule for 'undefined' not implemented; define one with def_impl.",
        "NotImplementedError Differentiation rule for 'undefined' not implemented; define one in "
        "jax.interpreters.ad.primitive_jvps.",
    ]


def test_results_of_a_lowering_are_weakly_typed_as_abstract_evaluation_says() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp
        from jax.extend.core import Primitive
        from jax.interpreters import mlir

        for weak in (False, True):
            two = Primitive("two")
            two.def_abstract_eval(lambda x: jax.core.ShapedArray((), jnp.int32, weak_type=weak))
            rule = mlir.lower_fun(lambda x: 2 if not weak else jnp.int32(2), multiple_results=False)
            mlir.register_lowering(two, rule)
            print(jax.jit(lambda x: two.bind(x) * jnp.int8(3))(1.0).dtype, jax.eval_shape(two.bind, 1.0))
        """
    ) == [
        "int32 ShapeDtypeStruct(shape=(), dtype=int32)",
        "int8 ShapeDtypeStruct(shape=(), dtype=int32, weak_type=True)",
    ]


def test_an_implementation_by_apply_primitive_is_the_lowering() -> None:
    assert lines(
        """
        from functools import partial
        import jax, jax.numpy as jnp
        from jax._src import dispatch
        from jax.extend.core import Primitive
        from jax.interpreters import ad, mlir, xla

        twice = Primitive("twice")
        twice.def_impl(partial(xla.apply_primitive, twice))
        twice.def_abstract_eval(lambda x: jax.core.ShapedArray(x.shape, x.dtype))
        try:
            twice.bind(1.0)
        except NotImplementedError as error:
            print("twice" in str(error))
        mlir.register_lowering(twice, mlir.lower_fun(lambda x: 2 * x, multiple_results=False))
        ad.deflinear2(twice, lambda cotangent, x: [twice.bind(cotangent)])
        x = jnp.ones(2)
        print(twice.bind(x), jax.jit(twice.bind)(x), jax.grad(lambda x: twice.bind(x).sum())(x))
        print(dispatch.apply_primitive(jax.lax.add_p, x, x))
        """
    ) == ["True", "[2. 2.] [2. 2.] [2. 2.]", "[2. 2.]"]


def test_axis_environment_and_shapes_of_jaxprs() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp
        f = lambda x, n: (jax.lax.psum(x, "i"), {"a": x * n})
        closed, shape = jax.make_jaxpr(f, static_argnums=1, axis_env=[("i", 4)], return_shape=True)(jnp.ones(2), 3)
        print(len(closed.eqns) > 0, shape[1]["a"].shape, closed.in_avals, closed.out_avals[1].str_short())
        y = jax.vmap(lambda y: jax.make_jaxpr(lambda x: x + y)(1.0).consts[0] is y)
        jax.vmap(lambda y: print(jax.make_jaxpr(lambda x: x + y)(1.0).consts[0] is y) or y)(jnp.ones(2))
        """
    ) == ["True (2,) [ShapedArray(float32[2])] float32[2]", "True"]


def test_refs_are_written_where_they_are_made_alone() -> None:
    found = lines(
        """
        import jax, jax.numpy as jnp
        def total(x):
            ref = jax.new_ref(jnp.zeros(()))
            for k in range(3):
                ref[...] = ref[...] + x * k
            return jax.freeze(ref)
        print(float(total(2.0)), float(jax.grad(total)(2.0)), float(jax.jit(total)(2.0)))
        ref = jax.new_ref(jnp.zeros(2))
        ref[0] = 5
        print(ref[...], ref.shape)
        try:
            jax.vmap(lambda x: ref.set(x))(jnp.ones((3, 2)))
        except ValueError as error:
            print(str(error).splitlines()[0])
        """
    )
    assert found[:2] == ["6.0 3.0 6.0", "[5. 0.] (2,)"]
    assert found[2].startswith("A Ref is used inside a batched function (vmap), but was made outside of it")


def test_shardings_over_one_device() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        mesh = jax.make_mesh((1,), ("x",))
        x = jax.device_put(jnp.arange(4.0), NamedSharding(mesh, P("x")))
        f = jax.shard_map(lambda x: jax.lax.psum(x, "x") * 2, mesh=mesh, in_specs=P("x"), out_specs=P())
        print(f(x), x.sharding.device_set, x.is_fully_addressable)
        with mesh:
            print(jax.sharding.get_abstract_mesh().axis_names, jax.lax.with_sharding_constraint(x, P("x")).shape)
        try:
            NamedSharding(mesh, P("y"))
        except ValueError as error:
            print(str(error).splitlines()[0])
        """
    ) == [
        "[0. 2. 4. 6.] {CpuDevice(id=0)} True",
        "('x',) (4,)",
        "NamedSharding: P('y',) names 'y', but the mesh has the axes {'x': 1}.",
    ]


EXAMPLES = """
    jaxprs.avals jaxprs.primitives.program_primitives jaxprs.staging jaxprs.refs tracing.linear_util pytrees.treedefs
""".split()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings(name: str) -> None:
    code = f"""
    import doctest, importlib
    module = importlib.import_module("tinyxla.jax.{name}")
    found = doctest.testmod(module)
    print(found.failed, found.attempted > 0)
    """
    assert lines(code)[-1] == "0 True"


def test_functions_are_exported() -> None:
    assert lines(
        """
        import jax, jax.numpy as jnp
        from jax import export
        (b,) = export.symbolic_shape("b")
        f = jax.jit(lambda p, x: (jnp.tanh(x @ p["w"]).mean(0), x.shape[0] * 2))
        w = {"w": jnp.zeros((3, 2))}
        shape = jax.ShapeDtypeStruct((b, 3), jnp.float32)
        again = export.deserialize(export.export(f)(w, shape).serialize(vjp_order=1))
        print(again.in_avals[0] == jax.core.ShapedArray((3, 2), w["w"].dtype))
        print(again.in_avals[1].str_short())
        print(again.in_avals[1].shape, again.has_vjp(), *again.call(w, jnp.ones((4, 3))))
        print(jax.grad(lambda p: again.call(p, jnp.ones((4, 3)))[0].sum())(w)["w"][0])
        try:
            export.export(jax.jit(lambda x: x if x.shape[0] > 3 else -x))(shape)
        except jax.errors.InconclusiveDimensionOperation as error:
            print(str(error).split(".")[0])
        """
    ) == [
        "True",
        "float32[b,3]",
        "(b, 3) True [0. 0.] 8",
        "[1. 1.]",
        "Whether b > 3 depends on the size of symbolic dimensions",
    ]


def test_compiled_functions_are_serialized_and_take_keys_for_descriptions_of_keys() -> None:
    assert lines(
        """
        import pickle
        import jax, jax.numpy as jnp
        from jax.experimental.serialize_executable import deserialize_and_load, serialize
        key = jax.random.key(0)
        x = jnp.ones((2, 2))
        f = jax.jit(lambda x, *, p: {"y": (x @ p["w"]).sum(), "n": jax.random.normal(p["key"])})
        p = {"w": x, "key": key}
        compiled = f.lower(jax.ShapeDtypeStruct((2, 2), x.dtype), p=jax.eval_shape(lambda: p)).compile()
        loaded = deserialize_and_load(*pickle.loads(pickle.dumps(serialize(compiled))))
        print(type(loaded).__name__, loaded(x, p=p) == compiled(x, p=p) == f(x, p=p))
        print(loaded.in_tree == compiled.in_tree)
        for wrong in (lambda: loaded(x[:1], p=p), lambda: serialize(f)):
            try:
                wrong()
            except TypeError as error:
                print(str(error).split()[0])
        """
    ) == ["Compiled True", "True", "A", "serialize"]


def test_environment_variables_set_options() -> None:
    code = (
        "import jax; print(jax.config.jax_enable_x64, jax.config.jax_numpy_rank_promotion, jax.config.jax_disable_jit)"
    )
    variables = {"JAX_ENABLE_X64": "true", "JAX_NUMPY_RANK_PROMOTION": "raise", "JAX_DISABLE_JIT": "0"}
    assert run("-m", "tinyxla.jax", "-c", code, **variables).stdout == "True raise False\n"
