"""Bound on parallel efficiency: the speed-up of a program divided by the number of threads, as limited by the chunks of
its kernels (load balance) and its sequential steps (Amdahl's law).

A step of work w whose chunks keep the busiest of T threads for the part s of it (its span) takes w s; all steps of a
program with the works w, one after the other, take at least the sum of w s, where T threads without loss take the sum
of w / T. The bound is the quotient of the two. Work is counted as the report counts it; caches, memory bandwidth and
the time to start a kernel are no part of it, so that the bound is a property of the schedule alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.backends.numba.program.blas_gemm import gemm_step_of
from tinyxla.backends.numba.program.parallelism import assign_parallelism
from tinyxla.compiler.costs import COSTLY_OPS, OPS_PER_BYTE
from tinyxla.compiler.fusion.plan import BlasCall, Collective, HostCall
from tinyxla.compiler.pipeline import compile_program
from tinyxla.compiler.schedule.blocks import Block, ConcurrentBlocks, inner_blocks, runs_of_blocks, shape_of
from tinyxla.hlo import Module
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.passes.cost_model import kernel_cost
from tinyxla.loopir.target import current_target
from tinyxla.ops.cost import bytes_of, operations_of
from tinyxla.tracing.config import config, setting


def parallel_efficiency(module: Module, donated: Sequence[int], threads: Sequence[int]) -> dict[int, float]:
    """The bound for each number of threads, with the cuts that the compiler makes for so many processors."""
    found: dict[int, float] = {}
    for count in threads:
        with setting("target", f"{config.target},processors={count}"):
            block, aliases = compile_program(module.entry, donated, lambda *_: None)
            assign_parallelism(block, aliases)
        found[count] = efficiency_of(block, count)
    return found


def efficiency_of(block: Block, threads: int) -> float:
    """The bound for a schedule."""
    total, busiest = _times(block, threads)
    return total / (threads * busiest) if busiest else 1.0


def _times(block: Block, threads: int) -> tuple[float, float]:
    """The work of a block's steps, and the part of it that the busiest thread does (the span)."""
    total = busiest = 0.0
    for step in block.steps:
        kernel = step.work
        inner = [_times(x, threads) for x in inner_blocks(step)]
        if isinstance(kernel, ConcurrentBlocks):
            total += sum(work for work, _ in inner)
            busiest += max(max(last for _, last in inner), sum(work for work, _ in inner) / threads)
            continue
        runs = runs_of_blocks(step)
        times = 1 if runs is None else runs
        total += sum(work for work, _ in inner) * times
        busiest += sum(last for _, last in inner) * times
        work = 0.0
        extent = grain = 1
        if isinstance(kernel, LoweredKernel):
            cost = kernel_cost(kernel)
            work = _work(cost.bytes, cost.operations, cost.transcendentals)
            extent, grain = kernel.extent, kernel.grain
        elif isinstance(kernel, BlasCall | HostCall | Collective):
            moved = sum(bytes_of(shape_of(x)) for x in [*step.reads, *step.writes])
            work = _work(moved, *operations_of(kernel.root))
            if isinstance(kernel, BlasCall):
                product = gemm_step_of(kernel.root, 1)
                extent, grain = product.extent, product.grain
        total += work
        busiest += work * span(extent, grain, threads)
    return total, busiest


def span(extent: int, grain: int, threads: int) -> float:
    """The part of a kernel's iterations that the busiest of `threads` threads has, if each takes the next chunk as
    soon as it is free and all iterations take equally long."""
    if extent < 1:
        return 1.0
    full, last = divmod(extent, min(grain, extent))
    rounds, others = divmod(full, threads)
    return (rounds * min(grain, extent) + (min(grain, extent) if others else last)) / extent


def _work(moved: float, operations: float, transcendentals: float) -> float:
    ops_per_byte = OPS_PER_BYTE if moved >= current_target().private_bytes else 1  # of a core's own caches
    return max(ops_per_byte * moved, operations + COSTLY_OPS * transcendentals)
