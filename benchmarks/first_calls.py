"""First calls: how long a function that is new to a library takes to be traced, compiled and run once."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.libraries import Library
from benchmarks.measure import ONCE, Effort, Sampler, compare_once
from benchmarks.workload import Workload

DISK = "disk"  # tinyxla with the object code that an earlier process left there
REFERENCE = "tinyxla"


def compare_first_calls(
    workload: Workload, arguments: dict[str, tuple[Any, ...]], libraries: list[Library], effort: Effort = ONCE
) -> dict[str, float]:
    """The seconds of a first call in each library that compiles, and in tinyxla with what is on disk: the least of some
    samples."""
    samplers: dict[str, Sampler] = {}
    for library in libraries:
        if hasattr(library.tx, "clear_caches"):
            first = partial(first_call, workload, library, arguments[library.name])
            samplers[library.name] = first
            if library.name == REFERENCE:
                samplers[DISK] = partial(_again, first)
    found = compare_once(list(samplers.values()), effort)
    return {name: min(samples) for name, samples in zip(samplers, found, strict=True)}


def first_call(workload: Workload, library: Library, arguments: tuple[Any, ...], keep: bool = False) -> float:
    """Time the first call of a new function by a library that has forgotten all others; with `keep`, what tinyxla has
    on disk stays. (JAX's cache on disk is off, as is its default.)"""
    library.tx.clear_caches()
    if library.name == REFERENCE and not keep:
        shutil.rmtree(os.environ["TINYXLA_CACHE_DIR"], ignore_errors=True)
    gc.collect()
    start = time.perf_counter()
    library.tx.block_until_ready(workload.function(library)(*arguments))
    return time.perf_counter() - start


def first_call_of(workload: Workload) -> Callable[[Library], float]:
    """What times such a call of a workload's function."""
    return lambda library: first_call(workload, library, workload.arguments(library))


def _again(first: partial[float]) -> float:
    """A first call where the code is on disk: another one has put it there."""
    if not os.path.isdir(os.environ["TINYXLA_CACHE_DIR"]):
        first()
    return first(keep=True)
