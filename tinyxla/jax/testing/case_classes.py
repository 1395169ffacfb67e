"""`JaxTestCase`: the class of JAX's tests, with comparisons of arrays, and the options under which tests run."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np

from tinyxla.api.jit import jit
from tinyxla.errors import ArgumentError
from tinyxla.jax import flags
from tinyxla.jax.errors.deprecations import is_accelerated
from tinyxla.jax.options import states
from tinyxla.jax.testing import counters
from tinyxla.jax.testing.absl_testing import parameterized
from tinyxla.jax.testing.devices import TEST_WITH_PERSISTENT_COMPILATION_CACHE
from tinyxla.jax.testing.threads import TEST_NUM_THREADS
from tinyxla.jax.testing.tolerances import Tolerance, assert_numpy_allclose, canonical, dtype_of, tolerance
from tinyxla.jax.testing.warning_records import raise_on_warnings, record_warnings
from tinyxla.jax.tracing.trace_state import trace_state_clean
from tinyxla.tracing import pytrees
from tinyxla.tracing.config import Config, config


def _option(name: str, value: Any) -> AbstractContextManager[Any]:
    """A context in which an option has a value. Those without effect here have none, and nothing is said of it."""
    option = name.removeprefix("jax_")
    return states[option](value) if hasattr(Config, option) or option not in states else nullcontext()


@contextlib.contextmanager
def thread_local_config_context(**kwds: Any) -> Generator[None]:
    """A context in which options have these values, in this thread."""
    with ExitStack() as stack:
        for name, value in kwds.items():
            stack.enter_context(_option(name, value))
        yield


@contextlib.contextmanager
def global_config_context(**kwds: Any) -> Generator[None]:
    """A context in which options have these values, in all threads."""
    before = {name: flags.read(config, name) for name in kwds}
    try:
        for name, value in kwds.items():
            config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            config.update(name, value)


@contextlib.contextmanager
def assert_global_configs_unchanged() -> Generator[None]:
    """A context after which options must be what they were.

    Raises:
        AssertionError: one is not.
    """
    before = flags.values(config)
    yield
    after = flags.values(config)
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    if changed:
        raise AssertionError(f"Test changed global config values. Differing values are: {changed}")


def _with_options(attribute: str, options: dict[str, Any]) -> Callable[[type], type]:
    def decorated(cls: type) -> type:
        if not (isinstance(cls, type) and issubclass(cls, JaxTestCase)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"with_config is a decorator of classes derived from JaxTestCase, but got {cls!r}.")
        inherited = [getattr(base, attribute, {}) for base in cls.__bases__]
        found: dict[str, Any] = {}
        for values in (*inherited, options):
            found.update(values)
        setattr(cls, attribute, found)
        return cls

    return decorated


def with_config(**kwds: Any) -> Callable[[type], type]:
    """A decorator of a class of tests, which run with these options."""
    return _with_options("_default_thread_local_config", kwds)


def with_global_config(**kwds: Any) -> Callable[[type], type]:
    """A decorator of a class of tests, which run with these options in all threads."""
    return _with_options("_default_global_config", kwds)


def is_sequence(x: Any) -> bool:
    """Whether something can be iterated over."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def _is_nested(x: Any) -> bool:
    return is_sequence(x) and not hasattr(x, "__array__")


def _is_array_like(x: Any) -> bool:
    return hasattr(x, "__array__") or np.isscalar(x)


class JaxTestCase(parameterized.TestCase):
    """A class of tests that compare arrays. They run with strict promotion of types and ranks, and random numbers of
    `rng()` depend on the name of the test."""

    _default_global_config: dict[str, Any] = {}  # noqa: RUF012 - classes that are derived have their own
    _default_thread_local_config: dict[str, Any] = {  # noqa: RUF012
        "jax_enable_checks": True,
        "jax_numpy_dtype_promotion": "strict",
        "jax_numpy_rank_promotion": "raise",
        "jax_traceback_filtering": "off",
        "jax_legacy_prng_key": "error",
    }

    def setUp(self) -> None:
        """Set the options and the random numbers of the test."""
        super().setUp()
        _let_subprocesses_import()
        self.enterContext(assert_global_configs_unchanged())
        self._rng = np.random.RandomState(zlib.adler32(self._testMethodName.encode()))
        self.enterContext(global_config_context(**self._default_global_config))
        self.enterContext(thread_local_config_context(**self._default_thread_local_config))
        if TEST_WITH_PERSISTENT_COMPILATION_CACHE.value:
            folder = self.enterContext(tempfile.TemporaryDirectory())
            self.enterContext(_option("enable_compilation_cache", True))
            self.enterContext(_option("compilation_cache_dir", folder))

    def tearDown(self) -> None:
        """Check that all transformations have ended."""
        assert trace_state_clean(), "a transformation did not end in the test"
        super().tearDown()

    def rng(self) -> np.random.RandomState:
        """The random numbers of the test."""
        return self._rng

    # --- arrays

    def assertDtypesMatch(self, actual: Any, desired: Any, *, canonicalize_dtypes: bool = True) -> None:
        """Compare element types, 64-bit ones as what they become without `enable_x64`, if asked for."""
        found = dtype_of(actual), dtype_of(desired)
        if canonicalize_dtypes and not config.enable_x64:
            found = canonical(found[0]), canonical(found[1])
        self.assertEqual(*found)

    def assertArraysEqual(
        self,
        actual: Any,
        desired: Any,
        *,
        check_dtypes: bool = True,
        err_msg: str = "",
        allow_object_dtype: bool = False,
        verbose: bool = True,
    ) -> None:
        """Compare arrays, whose elements must be equal.

        Raises:
            ArgumentError: arrays of objects, unless they are allowed.
        """
        if check_dtypes:
            self.assertDtypesMatch(actual, desired)
        actual, desired = np.asarray(actual), np.asarray(desired)
        if not allow_object_dtype and object in (actual.dtype, desired.dtype):
            raise ArgumentError(
                "assertArraysEqual does not compare what NumPy takes for objects, such as random keys or lists of "
                "arrays of different shapes; use assertAllClose, or pass allow_object_dtype=True."
            )
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(actual, desired, err_msg=err_msg, verbose=verbose)

    def assertArraysAllClose(
        self,
        actual: Any,
        desired: Any,
        *,
        check_dtypes: bool = True,
        atol: Tolerance = None,
        rtol: Tolerance = None,
        err_msg: str = "",
    ) -> None:
        """Compare arrays within tolerances, by default those of the coarser one of the two element types."""
        self.assertEqual(actual.shape, desired.shape)
        absolute, relative = (
            max(tolerance(dtype_of(actual), tol), tolerance(dtype_of(desired), tol)) for tol in (atol, rtol)
        )
        assert_numpy_allclose(actual, desired, absolute, relative, err_msg)
        if check_dtypes:
            self.assertDtypesMatch(actual, desired)

    def assertAllClose(
        self,
        actual: Any,
        desired: Any,
        *,
        check_dtypes: bool = True,
        atol: Tolerance = None,
        rtol: Tolerance = None,
        canonicalize_dtypes: bool = True,
        err_msg: str = "",
    ) -> None:
        """Compare arrays, numbers, or dicts and sequences of these within tolerances."""
        options: dict[str, Any] = {"check_dtypes": check_dtypes, "atol": atol, "rtol": rtol, "err_msg": err_msg}
        options["canonicalize_dtypes"] = canonicalize_dtypes
        if isinstance(actual, dict):
            self.assertIsInstance(desired, dict)
            self.assertEqual(set(actual), set(desired))
            for key, value in actual.items():
                self.assertAllClose(value, desired[key], **options)
        elif _is_nested(actual):
            if not _is_nested(desired):
                self.fail(f"Expected sequence, got {desired}")
            self.assertEqual(len(actual), len(desired))
            for one, other in zip(actual, desired, strict=True):
                self.assertAllClose(one, other, **options)
        elif _is_array_like(actual):
            if not _is_array_like(desired):
                self.fail(f"Expected array-like, got {desired}")
            if check_dtypes:
                self.assertDtypesMatch(actual, desired, canonicalize_dtypes=canonicalize_dtypes)
            arrays = np.asarray(actual), np.asarray(desired)
            self.assertArraysAllClose(*arrays, check_dtypes=False, atol=atol, rtol=rtol, err_msg=err_msg)
        elif actual != desired:
            raise ArgumentError(f"assertAllClose compares arrays, but got {type(actual)} and {type(desired)}.")

    # --- text and warnings

    def assertMultiLineStrippedEqual(self, expected: str, what: str) -> None:
        """Compare texts, but not the space at the ends of lines."""
        texts = [re.sub(r"\s*\n\s*", "\n", textwrap.dedent(text).strip()) for text in (expected, what)]
        self.assertMultiLineEqual(*texts, msg=f"Found\n{what}\nExpecting\n{expected}")

    @contextlib.contextmanager
    def assertNoWarnings(self) -> Generator[None]:
        """A context in which there is no warning."""
        with raise_on_warnings():
            yield

    @contextlib.contextmanager
    def assertWarns(self, warning: Any, *, msg: str | None = None) -> Generator[None]:
        """A context with a warning of this class, and with this text."""
        with self._asserting_warning(warning, msg, lambda text: msg is None or msg in text):
            yield

    @contextlib.contextmanager
    def assertWarnsRegex(self, warning: Any, regex: Any) -> Generator[None]:
        """A context with a warning of this class, in which the pattern is found."""
        with self._asserting_warning(warning, regex, lambda text: regex is None or bool(re.search(regex, text))):
            yield

    @contextlib.contextmanager
    def _asserting_warning(self, warning: Any, what: Any, is_meant: Callable[[str], bool]) -> Generator[None]:
        with record_warnings() as found:
            yield
        if not any(isinstance(w.message, warning) and is_meant(str(w.message)) for w in found):
            texts = [str(w.message) for w in found]
            self.fail(f"Expected warning not found {warning}:{what!r}, got warnings: {texts}")

    def assertDeprecationWarnsOrRaises(
        self, deprecation_id: str, message: str, *, error_class: type[Exception] = ValueError
    ) -> Any:
        """A context with a warning of a deprecation, or with its error where it is accelerated."""
        if is_accelerated(deprecation_id):
            return self.assertRaisesRegex(error_class, message)
        return self.assertWarnsRegex(DeprecationWarning, message)

    # --- functions

    def _CompileAndCheck(
        self,
        fun: Callable[..., Any],
        args_maker: Callable[[], Any],
        *,
        check_dtypes: bool = True,
        tol: Tolerance = None,
        rtol: Tolerance = None,
        atol: Tolerance = None,
        check_cache_misses: bool = True,
    ) -> None:
        """Compare a function with the compiled one, which is traced once for all arguments of these shapes."""
        options: dict[str, Any] = {"check_dtypes": check_dtypes, "atol": atol or tol, "rtol": rtol or tol}
        may_be_called = True

        def watched(*args: Any) -> Any:
            self.assertTrue(may_be_called)
            return fun(*args)

        args = args_maker()
        expected = fun(*args)
        shapes = pytrees.map_tree(lambda x: np.shape(x), expected)
        self.assertEqual(shapes, pytrees.map_tree(lambda x: np.shape(np.asarray(x)), expected))
        misses = counters.PrimitivePrograms.cache_info().misses
        expected = fun(*args)
        if check_cache_misses and TEST_NUM_THREADS.value <= 1:
            self.assertEqual(
                misses,
                counters.PrimitivePrograms.cache_info().misses,
                f"Compilation detected during second call of {fun} in op-by-op mode.",
            )
        compiled: Any = jit(watched)
        first = compiled(*args)
        may_be_called = False
        second = compiled(*args)
        self.assertAllClose(first, expected, **options)
        self.assertAllClose(second, expected, **options)
        args = args_maker()
        expected = fun(*args)
        self.assertAllClose(compiled(*args), expected, **options)

    def _CheckAgainstNumpy(
        self,
        numpy_reference_op: Callable[..., Any],
        lax_op: Callable[..., Any],
        args_maker: Callable[[], Any],
        check_dtypes: bool = True,
        tol: Tolerance = None,
        atol: Tolerance = None,
        rtol: Tolerance = None,
        canonicalize_dtypes: bool = True,
    ) -> None:
        """Compare a function with one of NumPy's."""
        args = args_maker()
        found = lax_op(*args)
        self.assertAllClose(
            found,
            numpy_reference_op(*args),
            check_dtypes=check_dtypes,
            atol=atol or tol,
            rtol=rtol or tol,
            canonicalize_dtypes=canonicalize_dtypes,
        )

    def assertCacheMisses(
        self,
        func: Callable[[], Any],
        *,
        cpp: int | None = None,
        aot_call: int | None = None,
        tracing: int | None = None,
        lowering: int | None = None,
        compilation_after_persistent_cache_miss: int | None = None,
    ) -> None:
        """Compare how often functions are traced and compiled when a function is called.

        Args:
            func: the function.
            cpp, tracing: the number of traced functions.
            lowering, compilation_after_persistent_cache_miss: the number of compiled functions.
            aot_call: is not counted.

        Raises:
            ArgumentError: `aot_call` is asked for.
        """
        if aot_call is not None:
            raise ArgumentError(
                "assertCacheMisses: aot_call is not counted here: a compiled program has one way to run."
            )
        with counters.count_jit_tracing_cache_miss() as traced, counters.count_jit_and_pmap_lowerings() as compiled:
            func()
        for expected, found in (
            (cpp, traced),
            (tracing, traced),
            (lowering, compiled),
            (compilation_after_persistent_cache_miss, compiled),
        ):
            if expected is not None:
                self.assertEqual(expected, found())


class BufferDonationTestCase(JaxTestCase):
    """Tests of arrays that are deleted when a function is called with them."""

    def assertDeleted(self, x: Any) -> None:
        """The array is deleted."""
        self.assertTrue(x.is_deleted())

    def assertNotDeleted(self, x: Any) -> None:
        """The array is there."""
        self.assertFalse(x.is_deleted())


def _let_subprocesses_import() -> None:
    """Let processes of Python that tests start find what this one finds."""
    paths, known = os.pathsep.join(sys.path), os.environ.get("PYTHONPATH", "")
    if paths not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (paths, known)))
