"""Tests on several threads, as the flag `jax_test_num_threads` says, and which tests run, as `test_targets` does. What
loads tests for `absl.testing.absltest` is here."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import unittest
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tinyxla.jax.flags import Flag
from tinyxla.jax.testing.absl_testing import absltest
from tinyxla.jax.testing.warning_records import install_threadsafe_warning_handlers

_TEST_TARGETS = Flag("test_targets", os.environ.get("JAX_TEST_TARGETS", ""), "A pattern of the names of tests to run.")
_EXCLUDED = Flag(
    "exclude_test_targets",
    os.environ.get("JAX_EXCLUDE_TEST_TARGETS", ""),
    "A pattern of the names of tests to leave out.",
)
TEST_NUM_THREADS = Flag(
    "jax_test_num_threads",
    int(os.environ.get("JAX_TEST_NUM_THREADS", "0")),
    "How many threads run tests; 0 for the main thread alone.",
)


class _SharedLock:
    """A lock that many may hold together, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders = 0
        self._waiting = 0

    @contextlib.contextmanager
    def together(self) -> Generator[None]:
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._holders)
            self._waiting -= 1
            self._holders = -1
        try:
            yield
        finally:
            with self._changed:
                self._holders = 0
                self._changed.notify_all()

    @contextlib.contextmanager
    def instead_alone(self) -> Generator[None]:
        """Alone, for one who holds it together with others."""
        self._leave()
        try:
            with self.alone():
                yield
        finally:
            self._enter()

    def _enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._holders >= 0 and not self._waiting)
            self._holders += 1

    def _leave(self) -> None:
        with self._changed:
            self._holders -= 1
            self._changed.notify_all()


_lock = _SharedLock()


@contextlib.contextmanager
def thread_unsafe_test(condition: bool = True) -> Generator[None]:
    """A context, or a decorator of a test, in which no other test runs, if the condition holds."""
    if not condition or TEST_NUM_THREADS.value <= 0:
        yield
        return
    with _lock.instead_alone():
        yield


def thread_unsafe_test_class(condition: bool = True) -> Callable[[type], type]:
    """A decorator of a class of tests beside which no other test runs, if the condition holds."""

    def marked(cls: type) -> type:
        assert issubclass(cls, unittest.TestCase), f"{cls} is no class of tests"
        cls.thread_hostile = condition  # type: ignore[attr-defined]
        return cls

    return marked


class _DelayedResult:
    """What a test of a thread tells; the result is told of all of it when the test ends."""

    def __init__(self, result: Any, lock: Any) -> None:
        self._result, self._lock = result, lock
        self._told: list[Callable[[], object]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        self._start = time.time()

    def stopTest(self, test: unittest.TestCase) -> None:
        end = time.time()
        with self._lock:
            clock = getattr(self._result, "time_getter", None)  # of absl's results, which write the times of tests
            self._result.time_getter = lambda: self._start
            self._result.startTest(test)
            for tell in self._told:
                tell()
            self._result.time_getter = lambda: end
            self._result.stopTest(test)
            if clock is not None:
                self._result.time_getter = clock

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("add") or not hasattr(self._result, name):
            raise AttributeError(name)
        return lambda *found: self._told.append(lambda: getattr(self._result, name)(*found))


def _run_one(test: Any, result: _DelayedResult) -> None:
    with _lock.alone() if getattr(type(test), "thread_hostile", False) else _lock.together():
        test(result)


def _tests_of(suite: Any) -> Iterator[Any]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests_of(test)
        else:
            yield test


class JaxTestSuite(unittest.TestSuite):
    """Tests that run on several threads, if the flag says so; then functions that set up classes and modules do not."""

    def __init__(self, suite: Any = ()) -> None:
        super().__init__(list(suite))

    def run(self, result: unittest.TestResult, debug: bool = False) -> unittest.TestResult:
        if TEST_NUM_THREADS.value <= 0:
            return super().run(result)
        install_threadsafe_warning_handlers()
        lock = threading.Lock()
        with ThreadPoolExecutor(TEST_NUM_THREADS.value) as executor:
            running = [executor.submit(_run_one, test, _DelayedResult(result, lock)) for test in _tests_of(self)]
        for one in running:
            one.result()
        return result


class JaxTestLoader(absltest.TestLoader):
    """Finds tests whose names fit the flags."""

    suiteClass = JaxTestSuite

    def getTestCaseNames(self, testCaseClass: Any) -> list[str]:
        names: list[str] = list(super().getTestCaseNames(testCaseClass))
        for pattern, is_wanted in ((_TEST_TARGETS.value, True), (_EXCLUDED.value, False)):
            if pattern:
                full = {name: f"{testCaseClass.__name__}.{name}" for name in names}
                names = [name for name in names if bool(re.search(pattern, full[name])) is is_wanted]
        return names


def is_running_under_pytest() -> bool:
    """Whether pytest runs."""
    return "pytest" in sys.modules
