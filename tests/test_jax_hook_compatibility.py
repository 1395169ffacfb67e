"""What packages' own tests ask of `import jax` under the hook: options and flags, devices, private modules, 64-bit
types, random keys among arrays, and functions that are traced once."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.test_jax_hook import lines as printed, run


def test_config_flags_of_the_command_line_set_options(tmp_path: Path) -> None:
    pytest.importorskip("absl")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import jax
        jax.config.parse_flags_with_absl()
        jax.config.parse_flags_with_absl()
        print(jax.config.jax_enable_x64, jax.config.read("jax_disable_jit"), jax.config.values["jax_enable_x64"])
        """)
    )
    found = run("-m", "tinyxla.jax", str(program), "--jax_enable_x64=true", "--other=3", "--", "--jax_disable_jit=true")
    assert found.stdout.split() == ["True", "False", "True"]


def test_config_flags_are_read_by_absl_app(tmp_path: Path) -> None:
    pytest.importorskip("absl")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import jax
        from absl import app
        jax.config.config_with_absl()
        app.run(lambda argv: print(jax.config.jax_numpy_rank_promotion, argv[1:]))
        """)
    )
    found = run("-m", "tinyxla.jax", str(program), "--jax_numpy_rank_promotion=raise", "rest")
    assert found.stdout.strip() == "raise ['rest']"


def test_64_bit_types_asked_for_by_name_are_narrowed_with_a_warning_unless_x64() -> None:
    lines = printed("""
        import warnings
        import numpy as np, jax, jax.numpy as jnp
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            arrays = [jnp.zeros(2, jnp.float64), jnp.arange(3, dtype="int64"), jnp.ones(2).astype(np.float64),
                      jnp.float64(3), jax.lax.full((2,), 1, np.complex128), jax.random.normal(jax.random.key(0), (), float)]
        print(*[x.dtype for x in arrays])
        print(len(seen), all("Explicitly requested dtype" in str(w.message) for w in seen))
        print(jnp.finfo(jnp.float64).bits, jnp.dtype(jnp.int64), jnp.can_cast(np.float64, np.float32))
        with jax.enable_x64(True):
            print(jnp.zeros(2, jnp.float64).dtype)
        jax.config.update("jax_explicit_x64_dtypes", "error")
        try:
            jnp.zeros(2, jnp.float64)
        except TypeError as error:
            print(str(error).splitlines()[0])
        jax.config.update("jax_explicit_x64_dtypes", "allow")
        print(jnp.zeros(2, jnp.float64).dtype)
        """)
    assert lines == [
        "float32 int32 float32 float32 complex64 float32",
        "5 True",
        "64 int64 False",
        "float64",
        "numpy.zeros: Explicitly requested dtype float64 is not available without the option enable_x64; ask for float32.",
        "float64",
    ]


def test_functions_that_compute_in_64_bits_inside_are_unchanged_where_such_types_are_refused() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax import lax
        def values():
            slope = jax.grad(lambda a: lax.igamma(a, 1.0))(2.0)
            return float(slope), int(lax.mulhi(jnp.int32(1 << 30), jnp.int32(12)))
        jax.config.update("jax_explicit_x64_dtypes", "allow")
        before = values()
        jax.clear_caches()
        jax.config.update("jax_explicit_x64_dtypes", "error")
        print(before == values(), before[1])
        """)
    assert lines == ["True 3"]


def test_devices_that_are_not_there_are_runtime_errors() -> None:
    lines = printed("""
        import jax
        from jax._src import xla_bridge
        for call in (lambda: jax.devices("gpu"), lambda: jax.device_count("tpu"), lambda: xla_bridge.get_backend("gpu")):
            try:
                call()
            except RuntimeError as error:
                print(type(error).__name__, isinstance(error, ValueError))
        print(xla_bridge.get_backend().platform, xla_bridge.process_index(), len(xla_bridge._backends), jax.devices()[0])
        """)
    assert lines == ["PlatformError False"] * 3 + ["cpu 0 0 cpu:0"]


def test_random_keys_are_compared_as_arrays_are() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        keys = jax.random.split(jax.random.key(0), 3)
        print(jnp.isnan(keys), jnp.isfinite(keys), jnp.isclose(keys, keys[::-1]))
        print(jnp.allclose(keys, keys), jnp.array_equal(keys, keys, equal_nan=True))
        try:
            jnp.isclose(keys, 1.0)
        except TypeError:
            print("refused")
        """)
    assert lines == ["[False False False] [ True  True  True] [False  True False]", "True True", "refused"]


def test_partial_evaluation_of_functions_of_random_keys() -> None:
    lines = printed("""
        import jax, jax.numpy as jnp
        from jax.extend import linear_util as lu
        from jax.interpreters import partial_eval as pe
        aval = jax.typeof(jax.random.key(0))
        function = lambda key: [jax.random.fold_in(key, 1), jax.random.uniform(key), jnp.ones(2)]
        jaxpr, values, constants = pe.trace_to_jaxpr_nounits(lu.wrap_init(function), [pe.PartialVal.unknown(aval)])
        print([v.is_known() for v in values], values[0].get_aval().dtype == aval.dtype, values[1].get_aval().shape)
        """)
    assert lines == ["[False, False, True] True ()"]


def test_private_names_that_packages_import() -> None:
    lines = printed("""
        import collections, warnings
        import numpy as np, jax
        from jax._src import dtypes, traceback_util
        from jax._src.public_test_util import check_close
        from jax._src.tree_util import prefix_errors
        warnings.simplefilter("error")
        print(dtypes.to_complex_dtype(np.int32), dtypes.to_complex_dtype(np.float64), dtypes.to_inexact_dtype("int8"))
        print(prefix_errors({"a": 1}, {"a": [2]}), str(prefix_errors({"a": [1]}, {"a": 2})[0]("in_axes"))[:21])
        check_close({"a": 1.0}, {"a": 1.0 + 1e-7})
        count = len(traceback_util._exclude_paths)
        traceback_util.register_exclusion("some/file.py")
        print(len(traceback_util._exclude_paths) - count, type(jax.jit(len)).__name__)
        Pair = collections.namedtuple("Pair", "first second")
        jax.tree_util.register_pytree_node(Pair, lambda p: ((p.first,), p.second), lambda s, f: Pair(*f, s))
        print(jax.tree.leaves(Pair(1, 2)))
        """)
    assert lines == [
        "complex64 complex128 float32",
        "[] in_axes: the trees ha",
        "1 PjitFunction",
        "[1]",
    ]


def test_trees_have_leaves_in_exit_functions_that_were_registered_before() -> None:
    code = """
        import atexit
        atexit.register(lambda: print(tinyxla.tree_util.tree_leaves({"a": (1, 2)})))
        import tinyxla
        """
    assert run("-c", textwrap.dedent(code)).stdout.strip() == "[1, 2]"
