"""Small computations: those that one loop nest can run with all that they compute in registers.

Arrays of a few elements are as many scalars there; loops and branches are loops and branches of scalars. Large arrays
stay in memory and may be read, or changed in place, a few elements at a time: a loop reads a row of its sequence and
writes a row of its outputs or residuals.

An array in memory has *versions*: what an update gives is the same memory later. So each version is updated at most
once, and what reads it goes before that; where no such order exists, the computation is not small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tinyxla.compiler.analysis.fusibility import is_costly, is_inlined, is_native_type, is_of_scalars, is_reduction
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, indexing, movement
from tinyxla.ops.custom_call import custom_call
from tinyxla.shapes import Shape

MOST_ELEMENTS = 64  # of an array in registers
MOST_WORK = 2048  # of all operations, in simple ones
COSTLY_WORK = 32  # of an exponential, say
WIDE = 8  # elements that a step of the schedule computes at once
WORK_OF_A_STEP = 100  # what a step costs besides, in simple operations
MOST_SCRATCH = 1 << 10  # elements of memory that a small computation allocates
CONSTANT = -1  # the memory of a constant, instead of a parameter's number; below, what is allocated

Memory = frozenset[int]  # the numbers of the parameters that are arrays in memory
Homes = dict[Instruction, int]  # of arrays in memory: the parameter whose memory it is, or one of the others


class ScalarizedRegion(NamedTuple):
    """A small computation: its instructions in an order in which nothing is read too late, the arrays in memory, and
    for each result the number of the parameter whose memory it is (None: it is in registers). `saved` is the work that
    steps of the schedule would cost besides: each takes long to begin, but not for a wide array, nor to find an element
    by its index."""

    computation: Computation
    order: list[Instruction]
    homes: Homes
    begins: tuple[int | None, ...]
    updated: Memory
    work: int
    saved: int


@lru_cache(1024)
def scalarize(computation: Computation, memory: Memory) -> ScalarizedRegion | None:
    """The computation as a small one, with these parameters in memory, or None. It must be optimized, as are those
    inside."""
    try:
        return _Analysis(computation, memory).result()
    except _NotSmall:
        return None


def scalarize_without_memory(computation: Computation) -> ScalarizedRegion | None:
    """The computation as a small one, with those of its parameters in memory that had better be."""
    if not all(isinstance(shape, Shape) for shape in computation.parameter_shapes):
        return None
    found = (scalarize(computation, memory) for memory in _in_memory(computation))
    return next((nest for nest in found if nest is not None), None)


def lane_of(to_apply: Computation, mapped: Sequence[bool]) -> ScalarizedRegion | None:
    """What one of several lanes computes, as a small computation; what it changes in memory must be the lane's own."""
    found = scalarize_without_memory(to_apply)
    return found if found is not None and all(k is None or mapped[k] for k in found.begins) else None


def is_large(computation: Computation) -> bool:
    """Whether something computes with arrays that are not small, as is seen before anything is optimized."""
    for x in computation.instructions:
        if x.op.name in elementwise.NAMES and x.array_shape.size > MOST_ELEMENTS:
            return True
    return any(is_large(c) for x in computation.instructions for c in x.computations())


def _in_memory(computation: Computation) -> Iterable[Memory]:
    """Which parameters to leave in memory, the best choice first: large arrays, and those that are indexed."""
    sizes = [p.array_shape.size for p in computation.parameters]
    large = frozenset(k for k, size in enumerate(sizes) if size > MOST_ELEMENTS)
    return dict.fromkeys((large | {k for k in indexed(computation) if sizes[k] > 1}, large))


@lru_cache(1024)
def indexed(computation: Computation) -> frozenset[int]:
    """The numbers of the parameters of which elements are read or written at places that are computed."""
    found: set[Instruction] = set()
    for x in computation.instructions:
        if x.op in _INDEXING:
            found.add(x.operands[0])
        elif x.op.name in ("while", "conditional"):
            for inside in x.computations():
                operands = x.operands[len(x.operands) - len(inside.parameters) :]
                found.update(operands[k] for k in indexed(inside))
    return frozenset(k for k, p in enumerate(computation.parameters) if p in found)


_INDEXING = (dynamic_slices.dynamic_slice, dynamic_slices.dynamic_update_slice, indexing.gather, indexing.scatter)


def is_allocation(x: Instruction) -> bool:
    """Whether it is memory whose elements are arbitrary until they are written."""
    return x.op is custom_call and x.attributes.custom_call_target == "AllocateBuffer"


def is_wide_and_costly(x: Instruction) -> bool:
    """Whether vectors compute the elements of a small array, as in a step of the schedule."""
    return is_costly(x) and x.array_shape.size >= WIDE // 2


class _NotSmall(Exception):
    pass


def _require(fact: bool) -> None:
    if not fact:
        raise _NotSmall


class _Analysis:
    def __init__(self, computation: Computation, memory: Memory) -> None:
        self.computation = computation
        self.homes: Homes = {}
        self.readers: dict[Instruction, list[Instruction]] = {}  # of a version
        self.updater: dict[Instruction, Instruction] = {}  # of a version
        self.results: dict[Instruction, list[int | None]] = {}  # of loops and branches: the homes of their results
        self.work = self.saved = 0
        for number, x in enumerate(computation.parameters):
            _require(isinstance(x.shape, Shape) and is_native_type(x.shape))
            if number in memory:
                self.homes[x] = number
            _require(number in memory or x.array_shape.size <= MOST_ELEMENTS)
        for x in computation.instructions:
            if x.op is not movement.parameter and not (x.op is calls.tuple_ and x is computation.root):
                self._visit(x)

    def result(self) -> ScalarizedRegion:
        outputs = self.computation.outputs
        begins = tuple(self.homes.get(x) for x in outputs)
        known = [k for k in begins if k is not None]
        homes = {self.homes[version] for version in self.updater}
        updated = frozenset(home for home in homes if home >= 0)
        _require(CONSTANT not in homes and len({*known}) == len(known) and updated <= {*known})
        _require(all(home >= 0 for home in known))
        _require(not any(x in self.updater for x in outputs))
        return ScalarizedRegion(self.computation, self._ordered(), self.homes, begins, updated, self.work, self.saved)

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
            if shape.size > MOST_ELEMENTS:
                self.homes[x] = CONSTANT
            return
        if is_allocation(x):
            _require(is_native_type(shape) and shape.size <= MOST_SCRATCH)
            self.homes[x] = min([CONSTANT, *self.homes.values()]) - 1
            self._add(shape.size)
            return
        _require(is_inlined(x) and is_native_type(shape) and shape.size <= MOST_ELEMENTS)
        is_chain = x.op in _INDEXING and x.operands[0] not in self.homes and x.operands[0].op is not movement.constant
        work = shape.size * (x.operands[0].array_shape.size if is_chain else COSTLY_WORK if is_costly(x) else 1)
        is_wide = shape.size >= WIDE and x.op.name in elementwise.NAMES and not is_wide_and_costly(x)
        self._add(work, slower=is_wide or is_chain)
        self._read(x, x.operands)

    def _add(self, work: int, slower: bool = False, steps: int = 0) -> None:
        self.work += work
        self.saved += steps * WORK_OF_A_STEP - slower * work
        _require(self.work <= MOST_WORK)

    def _read(self, x: Instruction, operands: Iterable[Instruction]) -> None:
        for o in operands:
            if o in self.homes:
                self.readers.setdefault(o, []).append(x)

    def _change(self, x: Instruction, version: Instruction) -> None:
        _require(version not in self.updater)
        self.updater[version] = x

    def reduce(self, x: Instruction) -> None:
        _require(is_reduction(x))
        count = len(x.operands) // 2
        size = x.operands[0].array_shape.size
        self._add(size * count, size >= WIDE, steps=1)
        self._read(x, x.operands)

    def dot(self, x: Instruction) -> None:
        lhs = x.operands[0].array_shape
        _require(is_native_type(x.array_shape) and x.array_shape.size <= MOST_ELEMENTS)
        work = 2 * x.array_shape.size * math.prod(lhs.dimensions[d] for d in x.attributes.lhs_contracting_dims)
        self._add(work, work >= WIDE * WIDE, steps=1)
        self._read(x, x.operands)

    def update(self, x: Instruction) -> None:
        """dynamic-update-slice and scatter."""
        is_scatter = x.op is indexing.scatter
        _require(isinstance(x.shape, Shape) and is_native_type(x.shape))
        _require(not is_scatter or is_of_scalars(x.attributes.to_apply))
        whole, update = x.operands[0], x.operands[2 if is_scatter else 1].array_shape
        _require(update.size <= MOST_ELEMENTS)
        self._read(x, x.operands[1:])
        if whole in self.homes:
            self.homes[x] = self.homes[whole]
            self._change(x, whole)
            self._add(4 * update.size, steps=1)
        else:
            _require(x.array_shape.size <= MOST_ELEMENTS)
            self._add(x.array_shape.size * (1 + update.size), slower=True, steps=1)

    def while_(self, x: Instruction) -> None:
        memory = self._memory(x.operands)
        condition, body = scalarize(x.attributes.condition, memory), scalarize(x.attributes.body, memory)
        if condition is None or body is None or condition.updated:
            raise _NotSmall
        _require(all(begin == (k if k in memory else None) for k, begin in enumerate(body.begins)))
        self._add(2 * condition.work + body.work, steps=3)
        self.saved += condition.saved + body.saved
        self._enter(x, x.operands, memory, body.updated)
        self.results[x] = [self.homes.get(o) for o in x.operands]

    def conditional(self, x: Instruction) -> None:
        operands = x.operands[1:]
        memory = self._memory(operands)
        branches = [scalarize(branch, memory) for branch in x.attributes.branch_computations]
        found = [branch for branch in branches if branch is not None]
        _require(len(found) == len(branches) and all(branch.begins == found[0].begins for branch in found))
        self._add(sum(branch.work for branch in found), steps=2)
        self.saved += sum(branch.saved for branch in found)
        self._read(x, x.operands[:1])
        self._enter(x, operands, memory, frozenset[int]().union(*(branch.updated for branch in found)))
        self.results[x] = [None if k is None else self.homes[operands[k]] for k in found[0].begins]

    def _memory(self, operands: Sequence[Instruction]) -> Memory:
        return frozenset(k for k, o in enumerate(operands) if o in self.homes)

    def _enter(self, x: Instruction, operands: Sequence[Instruction], memory: Memory, updated: Memory) -> None:
        """A loop or branches that update some of their operands and read the others."""
        for k in memory:
            if k in updated:
                self._change(x, operands[k])
            else:
                self._read(x, [operands[k]])

    def _ordered(self) -> list[Instruction]:
        """What reads a version goes before what updates it."""
        before: dict[Instruction, list[Instruction]] = {}
        for version, x in self.updater.items():
            readers = self.readers.get(version, [])
            _require(x not in readers)
            before.setdefault(x, []).extend(readers)
        order: dict[Instruction, None] = {}
        open_: set[Instruction] = set()
        waiting = [(x, False) for x in reversed([*self.computation.parameters, *self.computation.outputs])]
        while waiting:
            x, ready = waiting.pop()
            if ready:
                order[x] = None
            elif x not in order:
                _require(x not in open_)
                open_.add(x)
                waiting.append((x, True))
                waiting.extend((o, False) for o in reversed([*before.get(x, ()), *x.operands]))
        return list(order)


_VISITS: dict[str, Callable[[_Analysis, Instruction], None]] = {
    "conditional": _Analysis.conditional,
    "dot": _Analysis.dot,
    "dynamic-update-slice": _Analysis.update,
    "reduce": _Analysis.reduce,
    "scatter": _Analysis.update,
    "while": _Analysis.while_,
}
