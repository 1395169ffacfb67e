"""`jax._src.test_util`, with which JAX's own tests are written, and private names that are imported at their top."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from tests.jax.test_jax_hook import run
from tests.support import ROOT

# What test_util takes from absl, which need not be installed.
_ABSL = {
    "__init__.py": "",
    "testing/__init__.py": "",
    "testing/absltest.py": "from unittest import TestLoader",
    "testing/parameterized.py": """
        from unittest import TestCase
        def parameters(*cases):
            def decorate(test):
                test.cases = cases
                return test
            return decorate
        named_parameters = parameters
        """,
}


@pytest.fixture(scope="module")
def with_absl(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A path to import absl from."""
    folder = tmp_path_factory.mktemp("packages")
    for name, text in _ABSL.items():
        file = folder / "absl" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(textwrap.dedent(text))
    return os.pathsep.join([str(folder), str(ROOT)])


def lines(code: str, path: str) -> list[str]:
    head = "import numpy as np, jax, jax.numpy as jnp\nfrom jax._src import test_util as jtu\n"
    return run("-m", "tinyxla.jax", "-c", head + textwrap.dedent(code), PYTHONPATH=path).stdout.splitlines()


def test_random_arrays_and_sampled_cases_are_those_of_jax(with_absl: str) -> None:
    assert lines(
        """
        rng = np.random.RandomState
        print(jtu.rand_default(rng(0))((2,), np.float32), jtu.rand_some_nan(rng(6))((3,), np.complex64))
        print(jtu.rand_fullrange(rng(0))((2,), np.uint16), jtu.rand_int(rng(0), high=9)((3,), np.int8))
        print(type(jtu.rand_default(rng(0))(jtu.PYTHON_SCALAR_SHAPE, np.int32)).__name__)
        print(jtu.rand_indices_unique_along_axis(rng(0))(4, (2, 3), 1).tolist())
        cases = jtu.sample_product_testcases([dict(a=1, b=2), dict(a=3, b=4)], c=range(9), d="abc")
        print(len(cases), [tuple(case.values()) for case in cases[:3]])
        test = jtu.parameterized_filterable(kwargs=[dict(shape=(2, 3), dtype="f")])(lambda: None)
        print([case["testcase_name"] for case in test.cases])
        print(jtu.format_shape_dtype_string((2, 3), np.int32), jtu.complex_plane_sample(np.complex64, 0, 1)[1, 0])
        """,
        with_absl,
    ) == [
        "[5.292157  1.2004716] [ 2.2810202-2.6573486j  7.271457 +7.8938417j -5.3869305+1.8054668j]",
        "[ 2732 35967] [4 7 5]",
        "int",
        "[[-2, 3, 1], [-4, 2, 1]]",
        "10 [(3, 4, 0, 'b'), (3, 4, 6, 'c'), (1, 2, 6, 'c')]",
        "['dtype_f_shape_2_3_']",
        "int32[2,3] (-inf-1.1754944e-38j)",
    ]


def test_python_integers_are_converted_by_their_low_bits(with_absl: str) -> None:
    assert lines("print(jax.lax.convert_element_type(2**32 + 5, 'int32'))", with_absl) == ["5"]


def test_cases_compare_arrays_and_run_with_options_of_their_own(with_absl: str) -> None:
    assert lines(
        """
        import unittest
        @jtu.with_config(jax_numpy_dtype_promotion="standard")
        class Standard(jtu.JaxTestCase):
            def test_promotion(self):
                jnp.ones(2, "int32") + jnp.ones(2, "float32")
        class Strict(jtu.JaxTestCase):
            def test_promotion(self):
                jnp.ones(2, "int32") + jnp.ones(2, "float32")
            def test_rank(self):
                jnp.ones(2) + jnp.ones((2, 2))
            def test_values(self):
                self.assertAllClose([1.0, {"a": jnp.ones(2)}], [1.0, {"a": np.ones(2) + 1e-3}])
            def test_types(self):
                self.assertArraysEqual(jnp.ones(2), jnp.ones(2, int))
            def test_functions(self):
                args = lambda: [self.rng().rand(3).astype("float32")]
                self._CheckAgainstNumpy(np.sin, jnp.sin, args)
                self._CompileAndCheck(jnp.sin, args)
            def test_python_side_effects(self):
                self._CompileAndCheck(lambda x: np.sin(x), lambda: [np.ones(2)])
            @jtu.skip_on_devices("cpu")
            def test_gpu(self):
                pass
            def test_option_that_stays(self):
                jax.config.update("jax_debug_nans", True)
            def test_misses(self):
                f = jax.jit(lambda x: x + 1)
                self.assertCacheMisses(lambda: [f(1.0), f(2.0), f(1)], tracing=2, lowering=2)
        loader, result = unittest.TestLoader(), unittest.TestResult()
        for kind in (Standard, Strict):
            loader.loadTestsFromTestCase(kind).run(result)
        print(sorted(test._testMethodName for test, _ in result.failures + result.errors))
        print(len(result.skipped), result.testsRun)
        """,
        with_absl,
    ) == [
        "['test_option_that_stays', 'test_promotion', 'test_python_side_effects', 'test_rank', 'test_types', "
        "'test_values']",
        "1 10",
    ]


def test_references_agree_with_lax(with_absl: str) -> None:
    assert lines(
        """
        import mpmath
        from jax import lax
        from jax._src import lax_reference as reference
        from jax._src.internal_test_util import lax_test_util as cases
        def check(name, *args, **options):
            found, expected = (getattr(m, name)(*args, **options) for m in (lax, reference))
            both = np.asarray(found, complex), np.asarray(expected, complex)
            np.testing.assert_allclose(*both, 1e-2, 1e-5, err_msg=name)
        for case in cases.lax_ops():
            rng = case.rng_factory(np.random.RandomState(0))
            check(case.op, *(rng((2, 3), case.dtypes[-1]) for _ in range(case.nargs)))
        x, y = np.random.RandomState(0).randint(0, 9, (2, 2, 3, 5, 5)).astype("float32")[:, :, :, :4]
        k = y[:, :, :2, :3]
        check("conv", x, k, (1, 2), "SAME")
        check("conv_general_dilated", x, k, (1, 1), [(1, 0), (2, 1)], (2, 1), (1, 2), ("NCHW", "OIHW", "NHWC"))
        check("dot_general", x, y, (((3,), (3,)), ((0,), (0,))))
        check("pad", x, np.float32(1), [(0, 1, 0), (1, -1, 1), (-1, 0, 2), (0, 0, 0)])
        check("top_k", x, 2)
        check("rev", x, (1, 3))
        sine = jtu.numpy_with_mpmath(mpmath, extra_prec_multiplier=1).sin(np.float32([0.5, 2]))
        np.testing.assert_allclose(sine, np.sin(np.float32([0.5, 2])), 1e-6)
        print(len(cases.lax_ops()), sine.dtype)
        """,
        with_absl,
    ) == ["69 float32"]


def test_counters_count_what_is_traced_compiled_and_copied(with_absl: str) -> None:
    assert lines(
        """
        @jax.jit
        def inner(x):
            return x * 2
        f = jax.jit(lambda x: inner(x) + 1)
        x = np.ones(3, np.float32)
        with jtu.count_jit_tracing_cache_miss() as traced, jtu.count_jit_and_pmap_lowerings() as compiled:
            with jtu.count_subjaxpr_to_hlo_conversion("inner") as functions:
                f(x), f(x)
        print(traced(), compiled(), functions())
        with jtu.count_jit_tracing_cache_miss() as traced, jtu.count_device_put() as copied:
            f(x), f(jnp.ones(3))
        print(traced(), copied())
        with jtu.count_primitive_compiles() as compiled:
            jnp.ones(3) + 1
        print(compiled())
        try:
            with jtu.assert_num_jit_and_pmap_compilations(2):
                jax.jit(lambda x: x)(1)
        except AssertionError as error:
            print(error)
        """,
        with_absl,
    ) == ["2 1 1", "0 1", "0", "Expected exactly 2 XLA compilations, but executed 1"]


def test_without_absl_it_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['absl'] = None\nfrom jax._src import test_util"
    found = run("-m", "tinyxla.jax", "-c", code, check=False).stderr
    assert "jax._src.test_util needs absl-py" in found
    assert "pip install absl-py" in found


def test_private_names_are_imported_and_refused_where_they_are_used() -> None:
    code = """
        import jax
        from jax._src import cache_key, test_multiprocess
        from jax._src.lax import lax as lax_internal, parallel
        from jax._src.core import pjit_p_of_old
        from jax._src.mesh import Mesh, AbstractMesh
        from jax._src.shard_map import shard_map
        print(shard_map is jax.shard_map, jax.numpy.ones(2)._check_if_deleted(), jax.numpy.ones(2)._npy_value)
        print(lax_internal.exp is jax.lax.exp, parallel.psum is jax.lax.psum, Mesh is jax.sharding.Mesh)
        print(hasattr(jax._src.core, "nothing"), hasattr(lax_internal, "nothing"), hasattr(pjit_p_of_old, "bind"))
        try:
            pjit_p_of_old.bind(1)
        except NotImplementedError as error:
            print(str(error).splitlines()[0])
        for use in (lambda x: x(), bool, iter, len, lambda x: x[0], lambda x: isinstance(1, x), lambda x: x < 1):
            try:
                use(pjit_p_of_old)
            except (NotImplementedError, TypeError) as error:
                continue
            print("used")
        try:
            from jax._src.core import nothing
        except ImportError:
            print("no name")
        try:
            import jax._src.nothing
        except ImportError:
            print("no module")
        """
    found = run("-m", "tinyxla.jax", "-c", textwrap.dedent(code)).stdout.splitlines()
    assert found == [
        "True None None",
        "True True True",
        "False False False",
        "jax._src.core.pjit_p_of_old: its attribute 'bind' is asked for, but it is an implementation detail of JAX, "
        "which tinyxla does not have. What is public in JAX is there under its public name.",
        "no name",
        "no module",
    ]


def test_imports_that_may_fail_fail_in_modules_too(tmp_path: Path) -> None:
    (tmp_path / "needs_private.py").write_text("from jax._src.core import nothing")
    (tmp_path / "program.py").write_text(
        "try:\n    import needs_private\nexcept ImportError:\n    print('no')\nimport needs_private\nprint('there')"
    )
    assert run("-m", "tinyxla.jax", str(tmp_path / "program.py")).stdout.split() == ["no", "there"]
