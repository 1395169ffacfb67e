"""Scalarization analysis: which loops and branches on small arrays one kernel can run with all elements in registers
(register promotion).

Arrays of a few elements become as many scalars; loops and branches become loops and branches of scalars. Large arrays
stay in memory, where a few elements at a time are read or updated in place: a loop reads a row of its sequence and
writes a row of its outputs or residuals.

An array in memory has *versions*: the result of an update is the same memory later. So each version is updated at most
once, and its readers are scheduled before the update; if no such order exists, the computation is not scalarized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tinyxla.compiler.analysis.fusibility import (
    is_costly,
    is_inlined,
    is_native_type,
    is_reduction,
    is_scalar_computation,
)
from tinyxla.compiler.costs import ACCUMULATORS, BLOCK_ELEMENTS, CALL_OPS, COSTLY_OPS, MAX_INSTRUCTIONS, MAX_UNROLLED
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement
from tinyxla.ops.host.custom_call import custom_call
from tinyxla.shapes import Shape

MAX_REGISTER_ELEMENTS = ACCUMULATORS  # of an array in registers
VECTOR_ELEMENTS = MAX_UNROLLED  # of an array for which a kernel of its own computes in vectors
CONSTANT = -1  # home of a constant; smaller numbers are allocations

Memory = frozenset[int]  # numbers of the parameters that stay in memory
Homes = dict[Instruction, int]  # of arrays in memory: the parameter that owns the memory, or CONSTANT, or an allocation


class ScalarizedRegion(NamedTuple):
    """A scalarized computation: its instructions in a valid order, the homes of arrays in memory, and for each
    result the number of the parameter in whose memory it is (None: in registers). `work` is its cost in simple
    operations; `saved` is the cost of schedule steps that it saves: their overhead, minus what vectors and direct
    indexing would have saved."""

    computation: Computation
    order: list[Instruction]
    homes: Homes
    result_homes: tuple[int | None, ...]
    updated: Memory
    work: int
    saved: int


@lru_cache(1024)
def scalarize(computation: Computation, memory: Memory) -> ScalarizedRegion | None:
    """The scalarized computation with these parameters in memory, or None. The computation and those within must be
    optimized."""
    try:
        return _Analysis(computation, memory).result()
    except _NotScalarizable:
        return None


def scalarize_without_memory(computation: Computation) -> ScalarizedRegion | None:
    """The scalarized computation with the best choice of parameters in memory, or None."""
    if not all(isinstance(shape, Shape) for shape in computation.parameter_shapes):
        return None
    candidates = (scalarize(computation, memory) for memory in _memory_candidates(computation))
    return next((region for region in candidates if region is not None), None)


def scalarize_lane(to_apply: Computation, mapped: Sequence[bool]) -> ScalarizedRegion | None:
    """The scalarized computation of one instance of a vmapped region, or None; parameters that it updates in memory
    must be mapped."""
    region = scalarize_without_memory(to_apply)
    return region if region is not None and all(k is None or mapped[k] for k in region.result_homes) else None


def is_large(computation: Computation) -> bool:
    """True if the computation has elementwise operations on arrays that are not small, before any optimization."""
    for x in computation.instructions:
        if x.op.name in elementwise.NAMES and x.array_shape.size > MAX_REGISTER_ELEMENTS:
            return True
    return any(is_large(c) for x in computation.instructions for c in x.computations())


def _memory_candidates(computation: Computation) -> Iterable[Memory]:
    """Sets of parameters to keep in memory, the best first: large arrays and those that are indexed, then large
    arrays only."""
    sizes = [p.array_shape.size for p in computation.parameters]
    large = frozenset(k for k, size in enumerate(sizes) if size > MAX_REGISTER_ELEMENTS)
    return dict.fromkeys((large | {k for k in indexed_parameters(computation) if sizes[k] > 1}, large))


@lru_cache(1024)
def indexed_parameters(computation: Computation) -> frozenset[int]:
    """The numbers of the parameters that are read or updated at computed indices."""
    operands_indexed: set[Instruction] = set()
    for x in computation.instructions:
        if x.op in _INDEXING:
            operands_indexed.add(x.operands[0])
        elif x.op.name in ("while", "conditional"):
            for region in x.computations():
                operands = x.operands[len(x.operands) - len(region.parameters) :]
                operands_indexed.update(operands[k] for k in indexed_parameters(region))
    return frozenset(k for k, p in enumerate(computation.parameters) if p in operands_indexed)


_INDEXING = (dynamic_slices.dynamic_slice, dynamic_slices.dynamic_update_slice, indexing.gather, indexing.scatter)


def is_allocation(x: Instruction) -> bool:
    """True for a custom call that allocates memory with arbitrary contents."""
    return x.op is custom_call and x.attributes.custom_call_target == "AllocateBuffer"


def is_wide_and_costly(x: Instruction) -> bool:
    """True if a small array is worth computing by vectors."""
    return is_costly(x) and x.array_shape.size >= VECTOR_ELEMENTS // 2


class _NotScalarizable(Exception):
    pass


def _require(condition: bool) -> None:
    if not condition:
        raise _NotScalarizable


class _Analysis:
    def __init__(self, computation: Computation, memory: Memory) -> None:
        self.computation = computation
        self.homes: Homes = {}
        self.readers: dict[Instruction, list[Instruction]] = {}  # of a version
        self.updater: dict[Instruction, Instruction] = {}  # of a version
        self.results: dict[Instruction, list[int | None]] = {}  # homes of the results of loops and branches
        self.work = self.saved = 0
        for number, x in enumerate(computation.parameters):
            _require(isinstance(x.shape, Shape) and is_native_type(x.shape))
            if number in memory:
                self.homes[x] = number
            _require(number in memory or x.array_shape.size <= MAX_REGISTER_ELEMENTS)
        for x in computation.instructions:
            if x.op is not movement.parameter and not (x.op is calls.tuple_ and x is computation.root):
                self._visit(x)

    def result(self) -> ScalarizedRegion:
        outputs = self.computation.outputs
        result_homes = tuple(self.homes.get(x) for x in outputs)
        memory_results = [k for k in result_homes if k is not None]
        homes = {self.homes[version] for version in self.updater}
        updated = frozenset(home for home in homes if home >= 0)
        _require(
            CONSTANT not in homes and len({*memory_results}) == len(memory_results) and updated <= {*memory_results}
        )
        _require(all(home >= 0 for home in memory_results))
        _require(not any(x in self.updater for x in outputs))
        return ScalarizedRegion(
            self.computation, self._schedule(), self.homes, result_homes, updated, self.work, self.saved
        )

    def _visit(self, x: Instruction) -> None:
        if x.op is calls.get_tuple_element:
            homes = self.results.get(x.operands[0])
            home = homes[x.attributes.index] if homes else None
            if home is not None:
                self.homes[x] = home
            return
        name = x.op.name
        if name in _VISITS:
            _VISITS[name](self, x)
            return
        _require(isinstance(x.shape, Shape) and not x.has_side_effect)
        _require(isinstance(x.shape, Shape))
        shape = x.array_shape
        if x.op is movement.constant:
            _require(is_native_type(shape))
            if shape.size > MAX_REGISTER_ELEMENTS:
                self.homes[x] = CONSTANT
            return
        if is_allocation(x):
            _require(is_native_type(shape) and shape.size <= BLOCK_ELEMENTS)
            self.homes[x] = min([CONSTANT, *self.homes.values()]) - 1
            self._add_work(shape.size)
            return
        _require(is_inlined(x) and is_native_type(shape) and shape.size <= MAX_REGISTER_ELEMENTS)
        is_chain = x.op in _INDEXING and x.operands[0] not in self.homes and x.operands[0].op is not movement.constant
        scalar_ops = 4 * COSTLY_OPS if is_costly(x) else 1  # costly ones gain most by vectors
        work = shape.size * (x.operands[0].array_shape.size if is_chain else scalar_ops)
        is_wide = shape.size >= VECTOR_ELEMENTS and x.op.name in elementwise.NAMES and not is_wide_and_costly(x)
        self._add_work(work, is_slower=is_wide or is_chain)
        self._record_reads(x, x.operands)

    def _add_work(self, work: int, is_slower: bool = False, steps: int = 0) -> None:
        self.work += work
        self.saved += steps * CALL_OPS - is_slower * work
        _require(self.work <= MAX_INSTRUCTIONS)

    def _record_reads(self, x: Instruction, operands: Iterable[Instruction]) -> None:
        for o in operands:
            if o in self.homes:
                self.readers.setdefault(o, []).append(x)

    def _record_update(self, x: Instruction, version: Instruction) -> None:
        _require(version not in self.updater)
        self.updater[version] = x

    def reduce(self, x: Instruction) -> None:
        _require(is_reduction(x))
        count = len(x.operands) // 2
        size = x.operands[0].array_shape.size
        self._add_work(size * count, size >= VECTOR_ELEMENTS, steps=1)
        self._record_reads(x, x.operands)

    def dot(self, x: Instruction) -> None:
        lhs = x.operands[0].array_shape
        _require(is_native_type(x.array_shape) and x.array_shape.size <= MAX_REGISTER_ELEMENTS)
        work = 2 * x.array_shape.size * math.prod(lhs.dimensions[d] for d in x.attributes.lhs_contracting_dims)
        self._add_work(work, work >= VECTOR_ELEMENTS * VECTOR_ELEMENTS, steps=1)
        self._record_reads(x, x.operands)

    def update(self, x: Instruction) -> None:
        """dynamic-update-slice and scatter."""
        is_scatter = x.op is indexing.scatter
        _require(isinstance(x.shape, Shape) and is_native_type(x.shape))
        _require(not is_scatter or is_scalar_computation(x.attributes.to_apply))
        array, update = x.operands[0], x.operands[2 if is_scatter else 1].array_shape
        _require(update.size <= MAX_REGISTER_ELEMENTS)
        self._record_reads(x, x.operands[1:])
        if array in self.homes:
            self.homes[x] = self.homes[array]
            self._record_update(x, array)
            self._add_work(4 * update.size, steps=1)
        else:
            _require(x.array_shape.size <= MAX_REGISTER_ELEMENTS)
            self._add_work(x.array_shape.size * (1 + update.size), is_slower=True, steps=1)

    def while_(self, x: Instruction) -> None:
        memory = self._operands_in_memory(x.operands)
        condition, body = scalarize(x.attributes.condition, memory), scalarize(x.attributes.body, memory)
        if condition is None or body is None or condition.updated:
            raise _NotScalarizable
        _require(all(home == (k if k in memory else None) for k, home in enumerate(body.result_homes)))
        self._add_work(2 * condition.work + body.work, steps=3)
        self.saved += condition.saved + body.saved
        self._record_region(x, x.operands, memory, body.updated)
        self.results[x] = [self.homes.get(o) for o in x.operands]

    def conditional(self, x: Instruction) -> None:
        operands = x.operands[1:]
        memory = self._operands_in_memory(operands)
        branches = [scalarize(branch, memory) for branch in x.attributes.branch_computations]
        scalarized = [branch for branch in branches if branch is not None]
        _require(
            len(scalarized) == len(branches)
            and all(branch.result_homes == scalarized[0].result_homes for branch in scalarized)
        )
        self._add_work(sum(branch.work for branch in scalarized), steps=2)
        self.saved += sum(branch.saved for branch in scalarized)
        self._record_reads(x, x.operands[:1])
        self._record_region(x, operands, memory, frozenset[int]().union(*(branch.updated for branch in scalarized)))
        self.results[x] = [None if k is None else self.homes[operands[k]] for k in scalarized[0].result_homes]

    def _operands_in_memory(self, operands: Sequence[Instruction]) -> Memory:
        return frozenset(k for k, o in enumerate(operands) if o in self.homes)

    def _record_region(self, x: Instruction, operands: Sequence[Instruction], memory: Memory, updated: Memory) -> None:
        """Record that a loop or branches update some of their operands and read the others."""
        for k in memory:
            if k in updated:
                self._record_update(x, operands[k])
            else:
                self._record_reads(x, [operands[k]])

    def _schedule(self) -> list[Instruction]:
        """An order in which the readers of a version precede its update."""
        predecessors: dict[Instruction, list[Instruction]] = {}
        for version, x in self.updater.items():
            readers = self.readers.get(version, [])
            _require(x not in readers)
            predecessors.setdefault(x, []).extend(readers)
        order: dict[Instruction, None] = {}
        visiting: set[Instruction] = set()
        pending = [(x, False) for x in reversed([*self.computation.parameters, *self.computation.outputs])]
        while pending:
            x, is_ready = pending.pop()
            if is_ready:
                order[x] = None
            elif x not in order:
                _require(x not in visiting)
                visiting.add(x)
                pending.append((x, True))
                pending.extend((o, False) for o in reversed([*predecessors.get(x, ()), *x.operands]))
        return list(order)


_VISITS: dict[str, Callable[[_Analysis, Instruction], None]] = {
    "conditional": _Analysis.conditional,
    "dot": _Analysis.dot,
    "dynamic-update-slice": _Analysis.update,
    "reduce": _Analysis.reduce,
    "scatter": _Analysis.update,
    "while": _Analysis.while_,
}
