"""How often something is traced, compiled or copied to a device in a block. Outside of such blocks nothing is counted.

What is counted is what this library does: operations on small arrays that run one by one are not compiled, and loops
are traced as parts of the functions around them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from tinyxla.api import compile_log
from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation
from tinyxla.jax.stages import monitoring
from tinyxla.tracing import transfers
from tinyxla.tracing.config import config, setting
from tinyxla.transforms.computations import program_of_op

Count = Callable[[], int]

_GUARD = "transfer_guard_host_to_device"


class _Events:
    """The number of events of this thread."""

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind
        self._thread = threading.get_ident()
        self.number = 0

    def __call__(self, what: Any, *more: Any) -> None:
        if threading.get_ident() == self._thread and (self._kind is None or what == self._kind):
            self.number += 1


@contextlib.contextmanager
def count_jit_tracing_cache_miss() -> Generator[Count]:
    """A context with a function that gives the number of functions that were traced in it to be compiled."""
    events = _Events("trace")
    with compile_log.work_done.observed_by(events):
        yield lambda: events.number


count_pjit_cpp_cache_miss = count_jit_tracing_cache_miss  # what is traced is what no call had the program of


@contextlib.contextmanager
def count_jit_and_pmap_lowerings() -> Generator[Count]:
    """A context with a function that gives the number of functions that were compiled in it, for some shapes of
    arguments, also where an equal program was there."""
    events = _Events()
    with compile_log.program_made.observed_by(events):
        yield lambda: events.number


count_jit_compilation_cache_miss = count_compilation_after_persistent_cache_miss = count_jit_and_pmap_lowerings


@contextlib.contextmanager
def assert_num_jit_and_pmap_compilations(times: int) -> Generator[None]:
    """A context in which so many functions are compiled.

    Raises:
        AssertionError: they are more or less.
    """
    with count_jit_and_pmap_lowerings() as count:
        yield
    if count() != times:
        raise AssertionError(f"Expected exactly {times} XLA compilations, but executed {count()}")


@contextlib.contextmanager
def count_device_put() -> Generator[Count]:
    """A context with a function that gives the number of values of Python's and NumPy's that became arrays in it,
    because a program put them there or called a function with them."""
    events = _Events()
    without_short_cuts = setting(_GUARD, getattr(config, _GUARD))  # which would ask no guard
    with transfers.copied_to_device.observed_by(events), without_short_cuts:
        yield lambda: events.number


@contextlib.contextmanager
def count_subjaxpr_to_hlo_conversion(fun_name: str) -> Generator[Count]:
    """A context with a function that gives the number of computations of functions with this text in their name, in the
    programs that were compiled in it.

    Raises:
        ArgumentError: by that function, if the text is in several names, or in none.
    """
    seen: dict[Computation, None] = {}

    def observe(computation: Computation) -> None:
        if computation not in seen:
            seen[computation] = None
            for x in computation.instructions:
                for inner in x.computations():
                    observe(inner)

    def number() -> int:
        found = Counter(computation.name for computation in seen if fun_name in computation.name)
        if len(found) != 1:
            raise ArgumentError(f"{fun_name!r} must be in one name of a function, but is in {sorted(found)}.")
        return found.total()

    with compile_log.program_made.observed_by(observe):
        yield number


class PrimitivePrograms:
    """The programs of operations that run one by one and are compiled, which is what `cache_info` counts.

    >>> PrimitivePrograms().cache_info().misses >= 0
    True
    """

    @staticmethod
    def cache_info() -> Any:
        """Hits, misses and size."""
        return program_of_op.cache_info()

    @staticmethod
    def cache_clear() -> None:
        """Forget them."""
        program_of_op.cache_clear()


@contextlib.contextmanager
def count_primitive_compiles() -> Generator[Count]:
    """A context with a function that gives, when it has ended, the number of operations that ran one by one in it and
    were compiled."""
    PrimitivePrograms.cache_clear()
    number = -1
    try:
        yield lambda: number
    finally:
        number = PrimitivePrograms.cache_info().misses


@contextlib.contextmanager
def register_event_duration_listener(callback: Callable[..., Any]) -> Generator[None]:
    """A context in which a function is called with the events of `jax.monitoring` that have a duration."""
    monitoring.register_event_duration_secs_listener(callback)
    try:
        yield
    finally:
        monitoring.unregister_event_duration_listener(callback)
