"""Rows of the tables: workloads measured in all libraries that can run them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from benchmarks.first_calls import compare_first_calls
from benchmarks.groups import GROUPS
from benchmarks.groups.collectives import DEVICES
from benchmarks.libraries import Library
from benchmarks.machine import TRANSCENDENTAL, Machine
from benchmarks.measure import ONCE, QUICK, THOROUGH, Call, Effort, Timing, compare_calls, compare_once
from benchmarks.report import THREADS, Row, row_line
from benchmarks.workload import Calls, Once, Workload, moved_bytes

Chosen = list[tuple[str, Workload | Calls | Once]]


def measure(
    group: str, workload: Workload | Calls | Once, libraries: Sequence[Library], machine: Machine, quick: bool = False
) -> Row:
    """Measure one workload in all libraries that can run it."""
    able = [library for library in libraries if workload.runs_in(library)]
    names = [library.name for library in able]
    effort, once = (QUICK, QUICK) if quick else (THOROUGH, ONCE)
    if isinstance(workload, Once):
        samples = compare_once([partial(workload.sample, library) for library in able], once)
        return Row(group, workload.name, dict(zip(names, map(Timing.of, samples), strict=True)))
    if isinstance(workload, Calls):
        timings = _steady(workload, able, [workload.build(library) for library in able], effort)
        return Row(group, workload.name, dict(zip(names, timings, strict=True)))
    arguments = {library.name: workload.arguments(library) for library in able}
    first = compare_first_calls(workload, arguments, able, once)
    calls = [partial(workload.function(library), *arguments[library.name]) for library in able]
    timings = _steady(workload, able, calls, effort)
    return Row(
        group,
        workload.name,
        dict(zip(names, timings, strict=True)),
        first,
        limit=_limit(workload, able[0], calls[0], machine),
        efficiency=_efficiency(workload, able),
    )


def _efficiency(workload: Workload, libraries: Sequence[Library]) -> dict[int, float]:
    """The bound on parallel efficiency of tinyxla's program, if it takes part."""
    for library in libraries:
        if library.name == "tinyxla":
            lowered = library.tx.jit(workload.make(library.tx)).lower(*workload.arguments(library))
            return lowered.compile().parallel_efficiency(THREADS)
    return {}


OF_DEVICES = ("Collectives",)


def measure_on_devices(chosen: Chosen, libraries: Sequence[str], machine: Machine, quick: bool) -> list[Row]:
    """The rows of groups for which JAX has several devices: in a process of their own, since that makes it start more
    threads."""
    names = [(group, workload.name) for group, workload in chosen if group in OF_DEVICES]
    if not names:
        return []
    os.environ["JAX_NUM_CPU_DEVICES"] = str(DEVICES)
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(
                _rows, names, [x for x in libraries if x in ("tinyxla", "jax")], machine, quick
            ).result()
    finally:
        del os.environ["JAX_NUM_CPU_DEVICES"]


def _rows(names: Sequence[tuple[str, str]], libraries: Sequence[str], machine: Machine, quick: bool) -> list[Row]:
    contestants = Library.load_all(libraries)
    rows: list[Row] = []
    for group, name in names:
        (workload,) = (workload for workload in GROUPS[group] if workload.name == name)
        rows.append(measure(group, workload, contestants, machine, quick))
        print(row_line(rows[-1], libraries), flush=True)
    return rows


def _steady(
    workload: Workload | Calls, libraries: Sequence[Library], calls: Sequence[Call], effort: Effort
) -> list[Timing]:
    waiters = [library.waiter(call()) for library, call in zip(libraries, calls, strict=True)]
    return compare_calls(list(zip(calls, waiters, strict=True)), effort, workload.wait_each)


def _limit(workload: Workload, library: Library, call: partial[object], machine: Machine) -> float:
    """The seconds that the machine needs at least for a call."""
    operations, moved = workload.operations, workload.moved
    if operations is None:
        cost = library.tx.jit(workload.make(library.tx)).lower(*call.args).cost_analysis()
        operations = cost["flops"] + TRANSCENDENTAL * cost["transcendentals"]
    if moved is None:
        moved = moved_bytes(library, (call.args, call()))
    return machine.limit(operations, moved)
