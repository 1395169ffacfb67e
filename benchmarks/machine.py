"""What the machine can do at best, measured: the bandwidth of each level of its memory, and its speed in arithmetic."""

from __future__ import annotations

import functools
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs

TRANSCENDENTAL = 8  # floating-point operations that a transcendental function counts as
_CACHES = {"L2": 1 << 20, "L3": 32 << 20}  # bytes, where the system does not tell


@dataclass(frozen=True)
class Level:
    """A level of the memory: its bytes, all cores together, and what a sum of two streams into a third moves per second
    with one thread and with all."""

    name: str
    size: float
    one: float
    all: float


@dataclass(frozen=True)
class Machine:
    """Levels from the smallest on, and floating-point operations per second: those of a large single-precision matrix
    product, on all cores."""

    levels: tuple[Level, ...]
    peak: float

    def limit(self, operations: float, moved: float) -> float:
        """The seconds that so many operations on so many bytes take at least."""
        level = next(level for level in self.levels if moved <= level.size)
        return max(moved / level.all, operations / self.peak)


def measure_machine(seconds: float = 1.0) -> Machine:
    """Measure for about so long per figure."""
    cores = len(os.sched_getaffinity(0))
    l2, l3 = _cache_size("L2") * cores, _cache_size("L3")
    spaces = {"L2": (l2, 0.5 * l2), "L3": (l3, 0.5 * l3), "DRAM": (float("inf"), 8.0 * l3)}
    levels: list[Level] = []
    for name, (size, touched) in spaces.items():  # a cache keeps some of what is several times its size
        one = _bandwidth(1, touched / cores if name == "L2" else touched, seconds)
        levels.append(Level(name, size, one, _bandwidth(cores, touched, seconds)))
    return Machine(tuple(levels), _peak(seconds))


def _cache_size(name: str) -> int:
    """The bytes of a cache of the first core."""
    try:
        for directory in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            if f"L{(directory / 'level').read_text().strip()}" == name:
                return int((directory / "size").read_text().strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        pass
    return _CACHES[name]


@functools.cache
def _compiled_triad() -> Callable[..., None]:
    import numba  # here, since it takes long

    def triad(a: Any, b: Any, c: Any, repeats: int) -> None:
        for _ in range(repeats):
            for k in range(a.size):
                a[k] = b[k] + np.float32(0.5) * c[k]

    compiled: Any = numba.njit(nogil=True)(triad)
    return compiled


def _bandwidth(threads: int, touched: float, seconds: float) -> float:
    """Bytes per second of a triad over so many bytes, in equal parts for each thread: the median of many runs, as that
    of the workloads, since what others on the machine leave of its bandwidth varies."""
    triad = _compiled_triad()
    count = int(touched / threads / 12)
    parts = [tuple(np.full(count, k, np.float32) for k in range(3)) for _ in range(threads)]
    triad(*parts[0], 1)
    repeats = max(1, int(4e10 * 1e-3 / (12 * count)))
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        times.append(_together(triad, parts, repeats))
    return threads * 12 * count * repeats / statistics.median(times)


def _together(triad: Callable[..., None], parts: list[Any], repeats: int) -> float:
    """The seconds from when the first of some threads starts until the last ends."""
    barrier = threading.Barrier(len(parts))
    times: list[float] = []

    def run(part: Any) -> None:
        triad(*part, 1)  # into this core's cache
        barrier.wait()
        times.append(time.perf_counter())
        triad(*part, repeats)
        times.append(time.perf_counter())

    workers = [threading.Thread(target=run, args=(part,)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(times) - min(times)


def _peak(seconds: float) -> float:
    """Operations per second of a matrix product by the BLAS: the best of many runs."""
    size = 1536
    a = np.ones((size, size), np.float32, order="F")
    product: Any = get_blas_funcs("gemm", (a,))
    best = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        product(1.0, a, a)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def processor() -> str:
    """The processor's model as Linux reports it, or what Python knows elsewhere."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
