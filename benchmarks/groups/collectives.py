"""Workloads: collective operations among replicas in one process.

tinyxla runs a builder's computation on several replicas, JAX a `shard_map` on as many CPU devices. Each replica has its
argument already, and keeps its result: arrays that an execution before has made. XLA has no broadcast for CPUs, so JAX
gathers and takes the first; RaggedAllToAll, which it has neither, is not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.libraries import Library
from benchmarks.workload import Calls
from tinyxla import xla

DEVICES = 8  # that JAX must be told of before it starts
Build = Callable[[Any, int], Any]  # of an operation and the number of replicas
Apply = Callable[[Any, Any, int], Any]  # of `jax.lax`, an array and the number of devices


def _sum() -> Any:
    builder = xla.XlaBuilder("add")
    scalar = xla.ShapeUtil.MakeShape(xla.F32, ())
    return builder.Build(xla.Add(*(xla.Parameter(builder, k, scalar, "xy"[k]) for k in (0, 1))))


def _ring(count: int) -> list[tuple[int, int]]:
    return [(k, (k + 1) % count) for k in range(count)]


OPERATIONS: dict[str, tuple[Build, Apply]] = {
    "all-reduce": (
        lambda x, count: xla.AllReduce(x, _sum()),
        lambda lax, x, count: lax.psum(x, "i"),
    ),
    "all-gather": (
        lambda x, count: xla.AllGather(x, 0, count),
        lambda lax, x, count: lax.all_gather(x, "i", tiled=True),
    ),
    "reduce-scatter": (
        lambda x, count: xla.ReduceScatter(x, _sum(), 0, count),
        lambda lax, x, count: lax.psum_scatter(x, "i", tiled=True),
    ),
    "all-to-all": (
        lambda x, count: xla.AllToAll(x, 0, 0, count),
        lambda lax, x, count: lax.all_to_all(x, "i", 0, 0, tiled=True),
    ),
    "collective-permute": (
        lambda x, count: xla.CollectivePermute(x, _ring(count)),
        lambda lax, x, count: lax.ppermute(x, "i", _ring(count)),
    ),
    "broadcast": (
        lambda x, count: xla.CollectiveBroadcast(x),
        lambda lax, x, count: lax.all_gather(x, "i")[0],
    ),
}
SCATTERING = ("reduce-scatter", "all-to-all")  # each replica's array has an element for each


def _arguments(count: int, size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((count, size), np.float32)


def _computation(size: int, build: Callable[[Any], Any]) -> Any:
    builder = xla.XlaBuilder("program")
    x = xla.Parameter(builder, 0, xla.ShapeUtil.MakeShape(xla.F32, (size,)), "x")
    return builder.Build(build(x))


def _in_tinyxla(count: int, size: int, build: Build) -> Callable[[], object]:
    negated = _computation(size, xla.Neg)
    placed = negated.execute_replicated([[-row] for row in _arguments(count, size)])
    program = _computation(size, lambda x: build(x, count))
    return partial(program.execute_replicated, [[x] for x in placed])


def _in_jax(library: Library, count: int, size: int, apply: Apply) -> Callable[[], object]:
    jax = library.tx
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("i",))
    rows = jax.sharding.PartitionSpec("i")
    placed = jax.device_put(_arguments(count, size), jax.sharding.NamedSharding(mesh, rows))

    def one(x: Any) -> Any:
        return apply(jax.lax, x[0], count)[None]

    return partial(jax.jit(jax.shard_map(one, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)), placed)


def _row(name: str, count: int, size: int) -> Calls:
    build, apply = OPERATIONS[name]
    length = max(size, count) if name in SCATTERING else size

    def call(library: Library) -> Callable[[], object]:
        if library.name == "tinyxla":
            return _in_tinyxla(count, length, build)
        return _in_jax(library, count, length, apply)

    number, unit = length * 4, "B"
    for larger in ("KB", "MB"):
        if number >= 1024:
            number, unit = number // 1024, larger
    shown = f"{number} {unit}"
    return Calls(f"{name} of {shown}, {count} replicas", call)


_SIZES: Sequence[int] = (1, 1 << 10, 1 << 16, 1 << 20)

WORKLOADS = tuple(_row(name, count, size) for name in OPERATIONS for size in _SIZES for count in (2, 4, 8))
