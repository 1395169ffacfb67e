"""Loops that compute each element of what they carry from that element alone: a few go through all steps at once.

Without this, each step goes through all of memory. Here a block of elements stays in the cache, in rows, while the loop
runs for it; threads share the blocks. What a step reads besides - a row of a sequence, scalars, what stays the same -
it may read anywhere; what it adds to stacked results it writes there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tinyxla.compiler.analysis.access_maps import CONSTANT, AccessMap, normalize
from tinyxla.compiler.analysis.fusibility import is_inlined, is_native_type
from tinyxla.compiler.fusion.plan import Plan, results_of, walk_producers
from tinyxla.hlo import Computation, Instruction
from tinyxla.loopir.ir.loop_ir import VECTOR_ITERATIONS, Buffer, Compute, Index, Loop, Operand
from tinyxla.loopir.ir.operations import has_slow_path
from tinyxla.loopir.kernels.scatter import copied
from tinyxla.loopir.lower.axes import Axis, collapse_axes, expand_indices, make_kernel, ops_per_element
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Storage, Temporary, Users, start_index
from tinyxla.ops import dynamic_slices, movement
from tinyxla.shapes import Shape
from tinyxla.transforms.computations import effects, needed
from tinyxla.transforms.invariants import is_cheap

BLOCK = 1 << 13  # bytes of what is carried, beside which a step's other rows fit in the cache
LEAST = 32  # elements of a block, which fill some vectors
SHORTEST = 32  # elements of a row
BLOCKS = 8  # for threads, where there are as many elements
MOST_WORK = 1 << 26  # operations of a block: no signal ends it
MOST_ARRAYS = 64  # of a kernel: with more, rows do not fill vectors, and some passes of LLVM take their square


class _Parts(NamedTuple):
    """What a loop carries, by number: `arrays` of `sizes`, `numbers`, and what is `stacked`, with the updates of a step
    and the elements that they write; all else stays the same. `scalars` are what a step computes for all elements, and
    `work` is that of one."""

    body: Computation
    sizes: tuple[int, ...]
    arrays: list[int]
    numbers: list[int]
    stacked: dict[int, list[tuple[Instruction, Instruction]]]
    scalars: list[Instruction]
    axes: list[Axis]
    work: int
    gives_numbers: bool = True


def supports(x: Instruction) -> bool:
    return _parts(x) is not None


def updates(x: Instruction) -> dict[int, int]:
    """What is stacked begins as it is, and what stays the same remains."""
    parts = _parts(x)
    assert parts is not None
    return {k: k for k in range(len(x.operands)) if k not in (*parts.arrays, *parts.numbers)}


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    parts = _parts(x)
    assert parts is not None
    kernels: list[LoweredKernel] = []
    for part in _distributed(parts):
        low = _Blocks(x, part, plan, users)
        kernels += [copied(x.operands[k], y, plan) for k, y in low.stacked.items() if isinstance(y, Temporary)]
        kernels.append(low.lowered())
    return kernels


def _parts(x: Instruction) -> _Parts | None:
    count = x.attributes.known_trip_count
    if not count or effects(x.attributes.condition) or not all(isinstance(o.shape, Shape) for o in x.operands):
        return None
    parts = _analyzed(x.attributes.body)
    return parts if parts is not None and LEAST * count * parts.work <= MOST_WORK else None


def _distributed(parts: _Parts) -> list[_Parts]:
    """Loop distribution: arrays that do not depend on each other have loops of their own where there are many; each of
    these computes the numbers, and the first one gives them."""
    if len(parts.arrays) + len(parts.stacked) <= MOST_ARRAYS:
        return [parts]
    found: list[_Parts] = []
    arrays: list[int] = []
    for component in [*_components(parts), []]:
        if arrays and (not component or len(arrays) + len(component) > MOST_ARRAYS):
            chosen = set(arrays)
            stacked = {k: writes for k, writes in parts.stacked.items() if k in chosen}
            own = [k for k in parts.arrays if k in chosen]
            work = max(1, parts.work * len(chosen) // (len(parts.arrays) + len(parts.stacked)))
            found.append(parts._replace(arrays=own, stacked=stacked, gives_numbers=not found, work=work))
            arrays = []
        arrays += component
    return found


def _components(parts: _Parts) -> list[list[int]]:
    """The numbers of arrays by what depends on one another, or on one costly operation."""
    body = parts.body
    roots = {k: [body.outputs[k]] for k in parts.arrays}
    roots |= {k: [y for write in writes for y in write] for k, writes in parts.stacked.items()}
    numbers = {body.parameters[k]: k for k in roots}
    parent = {k: k for k in roots}  # of a union-find forest
    first_user: dict[Instruction, int] = {}

    def root_of(k: int) -> int:
        while parent[k] != k:
            parent[k] = k = parent[parent[k]]
        return k

    for k, several in roots.items():
        for y in needed(several):
            if y in numbers:
                parent[root_of(k)] = root_of(numbers[y])
            elif y.op is not movement.parameter and not is_cheap(y):
                parent[root_of(k)] = root_of(first_user.setdefault(y, k))
    found: dict[int, list[int]] = {}
    for k in roots:
        found.setdefault(root_of(k), []).append(k)
    return list(found.values())


@lru_cache(256)
def _analyzed(body: Computation) -> _Parts | None:
    if effects(body) or not _may_be_of_elements(body):
        return None
    arrays: list[int] = []
    numbers: list[int] = []
    chains: dict[int, list[Instruction]] = {}
    for k, (p, y) in enumerate(zip(body.parameters, body.outputs, strict=True)):
        if y.op is dynamic_slices.dynamic_update_slice:
            chains[k] = _updates_of(p, y)
        elif y is not p:
            (arrays if p.array_shape.rank else numbers).append(k)
    sizes = {body.parameters[k].array_shape.dimensions for k in arrays}
    space = next(iter(sizes), ())
    whole = [chain and all(_is_row(u, space) for u in chain) for chain in chains.values()]
    if len(sizes) != 1 or math.prod(space) < LEAST or not all(whole):
        return None
    stacked = {k: [(u, _reshaped(u.operands[1], space)) for u in reversed(chain)] for k, chain in chains.items()}
    written = [write for writes in stacked.values() for write in writes]
    roots = [body.outputs[k] for k in arrays] + [element for _, element in written]
    scalars = [body.outputs[k] for k in numbers] + [start for update, _ in written for start in update.operands[2:]]
    here = normalize(range(len(space)), space)
    read = [*((y, here) for y in roots), *((y, ()) for y in scalars)]
    read += [(y, place) for y, place, _ in walk_producers([*roots, *scalars], set())]
    own = {body.parameters[k]: {here} for k in arrays}
    own.update((body.parameters[k], {_place(update, space) for update in chain}) for k, chain in chains.items())
    if not all(_is_read_in_place(y, place, own) for y, place in read):
        return None
    axes = collapse_axes(roots, set(), space, extra_accesses=[(update, _place(update, space)) for update, _ in written])
    if axes[-1].size < SHORTEST:
        return None
    work = ops_per_element([*roots, *scalars], set())
    reached = {y for y, _ in read}
    scalars = [y for y in body.instructions if y in reached and not y.array_shape.rank]
    found = _Parts(body, space, arrays, numbers, stacked, scalars, axes, work)
    return found if all(len(part.arrays) + len(part.stacked) <= MOST_ARRAYS for part in _distributed(found)) else None


def _may_be_of_elements(body: Computation) -> bool:
    """Whether nothing in it says at once that elements meet."""
    structure = ("parameter", "tuple", "get-tuple-element", "dynamic-update-slice")
    return all(x.op.name in structure or is_inlined(x) for x in body.instructions)


def _updates_of(parameter: Instruction, y: Instruction) -> list[Instruction]:
    """The updates that make an array of a parameter, the last one first; none if it is not made so."""
    found: list[Instruction] = []
    while y.op is dynamic_slices.dynamic_update_slice:
        found.append(y)
        y = y.operands[0]
    return found if y is parameter else []


def _is_row(update: Instruction, space: Sequence[int]) -> bool:
    """Whether an update writes an element for each of the space, along whole dimensions."""
    part, whole = update.operands[1].array_shape.dimensions, update.array_shape.dimensions
    return _wide(part) == _wide(space) and all(n in (1, size) for n, size in zip(part, whole, strict=True))


def _wide(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size != 1]


def _reshaped(x: Instruction, sizes: tuple[int, ...]) -> Instruction:
    return Instruction(movement.reshape, (x,), movement.Reshape(sizes), x.array_shape.with_dimensions(sizes))


def _place(update: Instruction, space: Sequence[int]) -> AccessMap:
    """Where an element is written."""
    dimensions = iter([d for d, size in enumerate(space) if size != 1])
    sizes = zip(update.operands[1].array_shape.dimensions, update.array_shape.dimensions, strict=True)
    return tuple(next(dimensions) if part != 1 else CONSTANT if size == 1 else frozenset() for part, size in sizes)


def _is_read_in_place(x: Instruction, place: AccessMap, own: dict[Instruction, set[AccessMap]]) -> bool:
    """Whether loops can compute it, and what the loop carries is read where this element of it is, or its rows are."""
    if not isinstance(x.shape, Shape) or not is_native_type(x.shape):
        return False
    if x in own:
        return {normalize(place, x.shape.dimensions)} == own[x]
    return x.op is movement.parameter or is_inlined(x)


class _Blocks(Lowering):
    """Emits the kernel. Parameters of the body are operands of the loop, or have elements of their own."""

    def __init__(self, x: Instruction, parts: _Parts, plan: Plan, users: Users) -> None:
        made = {*parts.arrays, *parts.stacked, *(parts.numbers if parts.gives_numbers else ())}
        self.results = {r.attributes.index: r for r in results_of(x, users) if r.attributes.index in made}
        super().__init__("elements", plan, self.results.values())
        self.count, self.initial_values, self.carried = x.attributes.known_trip_count, x.operands, parts
        self.operands = dict(zip(parts.body.parameters, x.operands, strict=True))
        self.stacked: dict[int, Storage] = {
            k: self.results.get(k) or Temporary(x.operands[k].array_shape) for k in parts.stacked
        }
        self.written = {parts.body.parameters[k]: self.buffer(y, True) for k, y in self.stacked.items()}
        self.current: dict[Instruction, Operand] = {}

    def value(self, x: Instruction, coordinates: Coordinates) -> Operand:
        if x in self.current:
            return self.current[x]
        if x in self.written:
            return self.builder.load(self.written[x], self.linearize(x.array_shape.dimensions, coordinates))
        return super().value(self.operands.get(x, x), coordinates)

    def lowered(self) -> LoweredKernel:
        b, parts = self.builder, self.carried
        *outer, inner = parts.axes
        arrays = [self.initial_values[k] for k in parts.arrays]
        around = math.prod(axis.size for axis in outer)
        most = min(BLOCK // sum(x.array_shape.dtype.itemsize for x in arrays), inner.size * around // BLOCKS)
        width = min(inner.size, max(VECTOR_ITERATIONS, most // VECTOR_ITERATIONS * VECTOR_ITERATIONS))
        blocks = -(-inner.size // width)
        rows = [b.scratch(x.array_shape.element_type.name, width) for x in arrays]
        with self.loop(b.kernel.first, b.kernel.last) as (index, _):
            *indices, block = self.split_index(index, (*(axis.size for axis in outer), blocks))
            first, here = b.tile_start_and_size(block, width, inner.size)

            def place(j: Index) -> Coordinates:
                return expand_indices(parts.axes, (*indices, b.add(first, j)), len(parts.sizes))

            with self.loop(0, here) as (j, _):
                for row, x in zip(rows, arrays, strict=True):
                    b.store(row, j, self.value(x, place(j)))
            numbers = [self.value(self.initial_values[k], ()) for k in parts.numbers]
            with self.loop(0, self.count, numbers, sequential=True) as (_, steps):
                for slot, value in zip(steps.carried, self._numbers([c.arg for c in steps.carried]), strict=True):
                    slot.next = value
                with self.loop(0, here) as (j, loop):
                    made = self._step(loop, rows, place(j))
                if made is not rows:
                    with self.loop(0, here) as (j, _):
                        for row, new in zip(rows, made, strict=True):
                            b.store(row, j, b.load(new, j))
            for k, slot in zip(parts.numbers, steps.carried, strict=True):
                if k in self.results:
                    self.store(self.results[k], (), slot.result)
            with self.loop(0, here) as (j, _):
                for k, row in zip(parts.arrays, rows, strict=True):
                    if k in self.results:
                        self.store(self.results[k], place(j), b.load(row, j))
        return make_kernel(self, around * blocks, width * self.count * parts.work, list(self.results.values()))

    def _numbers(self, values: Sequence[Operand]) -> list[Operand]:
        """What is the same for all elements, once in a step; the numbers for the next one."""
        parameters, outputs = self.carried.body.parameters, self.carried.body.outputs
        self.current = {parameters[k]: value for k, value in zip(self.carried.numbers, values, strict=True)}
        for x in self.carried.scalars:
            self.value(x, ())
        return [self.value(outputs[k], ()) for k in self.carried.numbers]

    def _step(self, loop: Loop, rows: list[Buffer], place: Coordinates) -> list[Buffer]:
        """One element; the rows that have the next values. A loop that writes what it reads cannot be run again for
        what is rarely needed, such as sines of large numbers."""
        b, parts, j = self.builder, self.carried, loop.index
        for k, row in zip(parts.arrays, rows, strict=True):
            self.current[parts.body.parameters[k]] = b.load(row, j)
        new = [self.value(parts.body.outputs[k], place) for k in parts.arrays]
        written = [(self.stacked[k], *write) for k, writes in parts.stacked.items() for write in writes]
        values = [self.value(element, place) for _, _, element in written]
        for (storage, update, _), value in zip(written, values, strict=True):
            self.store(storage, self._written(update, place), value)
        if any(isinstance(x, Compute) and has_slow_path(x) for x in loop.body):
            rows = [b.scratch(row.type, row.size or 0) for row in rows]
        for row, value in zip(rows, new, strict=True):
            b.store(row, j, value)
        return rows

    def _written(self, update: Instruction, place: Coordinates) -> Coordinates:
        """Where an element goes."""
        along = iter([c for c, size in zip(place, self.carried.sizes, strict=True) if size != 1])
        part, whole = update.operands[1].array_shape.dimensions, update.array_shape.dimensions
        return tuple(
            next(along) if n != 1 else start_index(self, start, (), size - 1)
            for n, size, start in zip(part, whole, update.operands[2:], strict=True)
        )
