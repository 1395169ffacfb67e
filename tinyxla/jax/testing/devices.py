"""The device under test, which is a CPU, and tests that run on some devices only."""

from __future__ import annotations

import datetime
import functools
import os
import re
import sys
import unittest
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinyxla.api.sharding.devices import devices
from tinyxla.errors import ArgumentError
from tinyxla.jax.flags import Flag, bool_env, read
from tinyxla.jax.testing.threads import is_running_under_pytest
from tinyxla.tracing.config import config

Test = Callable[..., Any]

_TEST_DUT = Flag("jax_test_dut", "", "The name of the device under test, if it needs to be told.")
SKIP_SLOW_TESTS = Flag(
    "jax_skip_slow_tests", bool_env("JAX_SKIP_SLOW_TESTS", False), "Leave out tests of more than five seconds."
)
TEST_WITH_PERSISTENT_COMPILATION_CACHE = Flag(
    "jax_test_with_persistent_compilation_cache",
    bool_env("JAX_TEST_WITH_PERSISTENT_COMPILATION_CACHE", False),
    "Run tests with a kernel cache on disk of their own.",
)


def device_under_test() -> str:
    """The name of the device's platform."""
    return _TEST_DUT.value or "cpu"


def _never() -> bool:
    """False: the device is a CPU, and the library is no instrumented build."""
    return False


is_device_rocm = is_device_cuda = is_cloud_tpu = is_asan = is_msan = is_tsan = is_sanitized = _never


def _no_capability(*asked: Any, **more: Any) -> bool:
    """False: the device is a CPU."""
    return False


is_device_tpu_at_least = is_device_tpu = _no_capability
is_cuda_compute_capability_at_least = is_cuda_compute_capability_equal = is_cuda_version_at_least = _no_capability


def is_optimized_build() -> bool:
    """True."""
    return True


def is_gil_disabled() -> bool:
    """Whether Python runs without a global lock."""
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def is_test_rbe() -> bool:
    """Whether the environment variable of JAX's remote builds is set."""
    return os.environ.get("IS_JAX_RBE_TESTING", "").lower() in ("true", "1", "yes", "y")


def is_cloud_tpu_at_least(year: int, month: int, day: int) -> bool:
    """True, as on all devices but TPUs."""
    return bool(datetime.date(year, month, day))


def pjrt_c_api_version_at_least(major_version: int, minor_version: int) -> bool:
    """True, as where devices are no plugins."""
    return True


def stablehlo_version_at_least(required_version: str) -> bool:
    """True, as where devices are no plugins."""
    return True


def get_tpu_version() -> int:
    """Raises an error: there is no TPU.

    Raises:
        ArgumentError: always.
    """
    raise ArgumentError("get_tpu_version: the device is no TPU, but a CPU.")


def pattern_search(patterns: str | Sequence[str], string: str) -> str | None:
    """The first one of some patterns that is found in a text."""
    listed = (patterns,) if isinstance(patterns, str) else patterns
    return next((pattern for pattern in listed if re.search(pattern, string)), None)


def device_kind_match(device_patterns: str | Sequence[str]) -> str | None:
    """The first one of some patterns that is found in the kind of the device."""
    return pattern_search(device_patterns, devices()[0].device_kind)


def test_device_matches(device_types: Iterable[str]) -> bool:
    """Whether the device is one of these.

    Raises:
        ArgumentError: a text in place of a list.
    """
    if isinstance(device_types, str):
        raise ArgumentError(f"test_device_matches takes a list of names, but got {device_types!r}.")
    return device_under_test() in tuple(device_types)


test_device_matches.__test__ = False  # type: ignore[attr-defined]  # for pytest


def _runs_if(condition: Callable[[], bool], reason: Callable[[Test], str]) -> Callable[[Test], Test]:
    """A decorator of tests that are skipped where a condition does not hold."""

    def decorated(test: Test) -> Test:
        @functools.wraps(test)
        def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not condition():
                raise unittest.SkipTest(reason(test))
            return test(self, *args, **kwargs)

        return checked

    return decorated


def skip_on_devices(*disabled_devices: str, skip_reason: str | None = None) -> Callable[[Test], Test]:
    """A decorator of tests that do not run on these devices."""
    reason = skip_reason or f"Skipped on devices with tags: {', '.join(disabled_devices)}"
    return _runs_if(lambda: not test_device_matches(disabled_devices), lambda test: reason)


def run_on_devices(*enabled_devices: str, skip_reason: str | None = None) -> Callable[[Test], Test]:
    """A decorator of tests that run on these devices alone."""
    reason = skip_reason or f"Skipped unless running on devices with tags: {', '.join(enabled_devices)}"
    return _runs_if(lambda: test_device_matches(enabled_devices), lambda test: reason)


def device_supports_buffer_donation() -> Callable[[Test], Test]:
    """A decorator of tests of donated arguments, which all devices have."""
    return _runs_if(lambda: True, lambda test: "")


def skip_on_flag(flag_name: str, skip_value: Any) -> Callable[[Test], Test]:
    """A decorator of tests that do not run where an option or flag has a value."""
    return _runs_if(
        lambda: read(config, flag_name) != skip_value,
        lambda test: f"{getattr(test, '__name__', 'The test')} not supported when FLAGS.{flag_name} is {skip_value}",
    )


def skip_under_pytest(reason: str) -> Callable[[Test], Test]:
    """A decorator of tests that do not run under pytest."""
    return unittest.skipIf(is_running_under_pytest(), f"Running under pytest: {reason}")


def pytest_mark_if_available(marker: str) -> Callable[[Any], Any]:
    """A decorator that gives a mark of pytest's, if that is installed."""
    try:
        import pytest  # here: it need not be installed
    except ImportError:
        return lambda marked: marked
    return getattr(pytest.mark, marker)


def request_cpu_devices(nr_devices: int) -> None:
    """Divide the process into so many devices at least, if no device was used yet."""
    if config.num_cpu_devices < nr_devices:
        config.update("num_cpu_devices", nr_devices)


def runtime_environment() -> str | None:
    """What runs the tests: "bazel" or "pytest"; None where the interpreter is not known."""
    executable = str(sys.executable or "")
    if not executable:
        return None
    return "bazel" if "bazel-out" in executable else "pytest"


class CudaArchSpecificTest:
    """For classes of tests of some GPUs alone, which are skipped here."""

    skipTest: Callable[[str], Any]

    def skip_unless_sm90a(self) -> None:
        """Skip the test."""
        self.skipTest("Only works on GPU with capability sm90a")

    def skip_unless_tcgen05(self) -> None:
        """Skip the test."""
        self.skipTest("Only works on GPU")

    skip_unless_tcgen05_int8 = skip_unless_tcgen05
