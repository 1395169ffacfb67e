"""Kernels of operations that update a part of an array: dynamic-update-slice and scatter.

The result begins as a copy of the operand or in the operand's memory (`OpLowering.aliased_operands`); the kernels write
the updated elements only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinyxla.compiler.analysis.fusibility import is_native_type, is_scalar_computation
from tinyxla.compiler.costs import LINE_BYTES, MIN_REUSE, PARALLEL_CHUNK_ELEMENTS, TASKS
from tinyxla.compiler.fusion.plan import Plan, buffer_of, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand
from tinyxla.loopir.lower.axes import make_kernel, tile_of
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Storage, Temporary, Users, start_index
from tinyxla.loopir.target import current_target
from tinyxla.ops import indexing, reduction

# --- dynamic-update-slice ---------------------------------------------------------------------------------------------


def supports_update(x: Instruction) -> bool:
    """Every dynamic-update-slice is supported."""
    return True


def aliased_operands(x: Instruction) -> dict[int, int]:
    """Results and the operands as whose copy they begin."""
    return {k: k for k in range(len(x.operands) // 2)} if x.op is indexing.scatter else {0: 0}


def lower_update(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Copy the update row by row, where a row is contiguous in both arrays; an update that is computed in the kernel is
    written along its last dimension."""
    _, update, *starts = x.operands
    total, update_sizes = x.array_shape.dimensions, update.array_shape.dimensions
    contiguous_from = len(update_sizes) - 1
    while contiguous_from > 0 and update_sizes[contiguous_from] == total[contiguous_from]:
        contiguous_from -= 1
    # The dimension of the inner loop.
    last = max((d for d, size in enumerate(update_sizes) if size != 1), default=len(update_sizes) - 1)
    low = Lowering("update", plan, [x])
    b = low.builder
    if not low.in_memory(buffer_of(update)):
        contiguous_from = last
    outer, row = update_sizes[: max(contiguous_from, 0)], math.prod(update_sizes[max(contiguous_from, 0) :])
    rows = math.prod(outer)
    chunks = max(1, -(-row // PARALLEL_CHUNK_ELEMENTS)) if rows < current_target().balanced_tasks else 1
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        row_index, begin, end = tile_of(low, index, chunks, row)
        limits = [n - size for n, size in zip(total, update_sizes, strict=True)]
        first = [start_index(low, start, (), limit) for start, limit in zip(starts, limits, strict=True)]
        indices = low.split_index(row_index, outer)
        with low.loop(begin, end) as (j, _):
            inner: Coordinates = tuple(j if d == last else 0 for d in range(len(outer), len(update_sizes)))
            position: Coordinates = (*indices, *inner)
            target = [b.add(f, c) for f, c in zip(first, position, strict=True)]
            low.store(x, target, low.value(update, position))
    return [make_kernel(low, rows * chunks if row else 0, -(-row // chunks), [x])]


# --- scatter ----------------------------------------------------------------------------------------------------------


def supports_scatter(x: Instruction) -> bool:
    """Whether the combiner can be part of a loop, and indices have a native type."""
    count = len(x.operands) // 2
    return is_scalar_computation(x.attributes.to_apply) and is_native_type(x.operands[count].array_shape)


def lower_scatter(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Updates in order, each with loops over its window.

    Chunks are independent if they cannot write the same element: batching dimensions, all updates if indices are
    unique, parts of a window dimension along which updates do not move, and ranges of the first index, which sorted
    updates reach in order. If many updates go to few elements, threads update private copies, which are combined in
    order afterwards.
    """
    return _Scatter(x, plan, users).kernels()


class _Scatter:
    """The kernels of a scatter."""

    def __init__(self, x: Instruction, plan: Plan, users: Users) -> None:
        self.x, self.plan, self.low = x, plan, Lowering("scatter", plan, results_of(x, users))
        self.a: indexing.Gather = x.attributes.gather()
        count = len(x.operands) // 2
        self.indices, self.updates = x.operands[count], x.operands[count + 1 :]
        self.sizes = x.operands[0].array_shape.dimensions
        self.window = self.a.window(len(self.sizes))
        self.batch, self.update_sizes = self.a.parted(self.updates[0].array_shape.dimensions)
        batching_dims = [c for _, c in self.a.pairs()]
        self.independent_dims = [c for c in range(len(self.batch)) if x.attributes.unique_indices or c in batching_dims]
        self.ordered_dims = [c for c in range(len(self.batch)) if c not in self.independent_dims]
        self.independent = math.prod(self.batch[c] for c in self.independent_dims)
        moving = self.a.start_index_map
        fixed_dims = [k for k, d in enumerate(self.window) if d not in moving and self.update_sizes[k] > 1]
        self.cut, self.chunks = 0, 1
        if self.independent < current_target().balanced_tasks:
            self.cut, self.chunks = _cut_window(self.update_sizes, fixed_dims, math.prod(self.batch))
        is_single, elements = self.independent * self.chunks == 1, math.prod(self.update_sizes) * math.prod(self.batch)
        self.private_copies = _private_copy_count(x, elements) if is_single else 1
        self.ranges = 1
        if is_single and self.private_copies == 1:
            self.ranges = _range_count(self.a, self.sizes, self.window, elements)
        self.results, self.copies = _targets(x, plan, users)
        self.targets = self.results
        if self.private_copies > 1:
            sizes = self.private_copies, _padded_size(math.prod(self.sizes))
            self.targets = [Temporary(x.operands[0].array_shape.with_dimensions(sizes))]

    def kernels(self) -> list[LoweredKernel]:
        """Copies of operands whose results are not read, the updates, and the combination of private copies."""
        low, batch = self.low, self.batch
        b = low.builder
        if 0 in self.update_sizes or 0 in batch:
            return self.copies
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            bounds: list[tuple[Index, Index]] = [(0, size) for size in self.update_sizes]
            extents: list[tuple[Index, Index]] = [(0, batch[c]) for c in self.ordered_dims]
            own_range: list[Index] = []
            base: Index = 0
            if self.private_copies > 1:
                base = self._clear_private(index)
                largest = max(range(len(extents)), key=lambda k: batch[self.ordered_dims[k]])
                index, start, stop = tile_of(low, index, self.private_copies, batch[self.ordered_dims[largest]])
                extents[largest] = start, stop
            if self.ranges > 1:
                index, *own_range = tile_of(low, index, self.ranges, self.sizes[self.a.start_index_map[0]])
            if self.chunks > 1:
                index, start, stop = tile_of(low, index, self.chunks, self.update_sizes[self.cut])
                bounds[self.cut] = start, stop
            independent_indices = low.split_index(index, [batch[c] for c in self.independent_dims])
            fixed = dict(zip(self.independent_dims, independent_indices, strict=True))

            def visit(ordered_index: Coordinates, values: list[Operand]) -> list[Operand]:
                batch_index = fixed | dict(zip(self.ordered_dims, ordered_index, strict=True))
                self._emit_update([batch_index[c] for c in range(len(batch))], bounds, own_range, base)
                return []

            low.nest(extents, [], visit, sequential=True)
        chunks = self.independent * self.chunks * self.ranges * self.private_copies
        elements = math.prod(self.update_sizes) * math.prod(batch) // chunks
        result = [*self.copies, make_kernel(low, chunks, 4 * elements, [self.x])]
        if self.private_copies > 1:
            result.append(_combine_private(self.x, self.plan, self.targets[0], self.results[0], self.private_copies))
        return result

    def _clear_private(self, index: Index) -> Index:
        """Fill a private copy with the identity; its offset."""
        low, total = self.low, math.prod(self.sizes)
        base = low.builder.mul(index, _padded_size(total))
        with low.loop(0, total) as (i, _):
            position = low.builder.add(base, i)
            low.builder.store(low.buffer(self.targets[0], True), position, _identity(self.x))
        return base

    def _emit_update(
        self, coordinates: list[Index], bounds: list[tuple[Index, Index]], own_range: list[Index], base: Index
    ) -> None:
        """One update, unless its window is out of bounds or its index belongs to another range."""
        low, sizes = self.low, self.sizes
        b = low.builder
        position: list[Index] = [0] * len(sizes)
        all_in_bounds: Operand | None = None
        for k, d in enumerate(self.a.start_index_map):
            extent = self.update_sizes[self.window.index(d)] if d in self.window else 1
            vector = self.a.vector(coordinates, k, self.indices.array_shape.rank)
            position[d], in_bounds = checked_index(low, low.value(self.indices, vector), sizes[d] - extent)
            if not k:
                for direction, end in zip(("GE", "LT"), own_range, strict=False):
                    in_bounds = b.and_(in_bounds, b.compare(direction, position[d], end))
            all_in_bounds = in_bounds if all_in_bounds is None else b.and_(all_in_bounds, in_bounds)
        for d, c in self.a.pairs():
            position[d] = coordinates[c]

        def update(inner: Coordinates, values: list[Operand]) -> list[Operand]:
            at = list(position)
            for d, c in zip(self.window, inner, strict=True):
                at[d] = b.add(at[d], c)
            others, offset_index = iter(coordinates), dict(zip(self.a.offset_dims, inner, strict=True))
            source = tuple(
                offset_index[d] if d in offset_index else next(others) for d in range(len(coordinates) + len(inner))
            )
            target_offset = b.add(low.linearize(sizes, at), base)
            old = [b.load(low.buffer(target, True), target_offset) for target in self.targets]
            new = low.apply(self.x.attributes.to_apply, [*old, *(low.value(u, source) for u in self.updates)])
            for target, value in zip(self.targets, new, strict=True):
                b.store(low.buffer(target, True), target_offset, value)
            return []

        with low.loop(0, 1 if all_in_bounds is None else b.select(all_in_bounds, 1), sequential=True):
            is_long = tuple(self.update_sizes[-1:]) > (3,)  # others are the components of a point
            low.nest(bounds, [], update, force_vectorize=is_long)


def _private_copy_count(x: Instruction, elements: int) -> int:
    """Private copies of the operand: more than one for a commutative combiner with many updates per element."""
    type, a = x.operands[0].array_shape.element_type, x.attributes
    if len(x.operands) != 3 or reduction.monoid(a.to_apply) is None or type.bits < 32 or type.kind == "complex":
        return 1
    return (
        min(
            2 * TASKS,
            elements // PARALLEL_CHUNK_ELEMENTS,
            elements // (MIN_REUSE * max(1, x.operands[0].array_shape.size)),
        )
        or 1
    )


def _padded_size(size: int) -> int:
    """The size of a private copy, padded so that no cache line has elements of two."""
    multiple = LINE_BYTES // 2  # private copies have elements of at least 16 bits
    return -(-size // multiple) * multiple


def _identity(x: Instruction) -> Literal:
    """The identity of the combiner."""
    shape, op = x.operands[0].array_shape, reduction.monoid(x.attributes.to_apply)
    assert op is not None, "private copies are of monoids"
    value = np.asarray(reduction.identity_element(op, shape.dtype), shape.dtype)
    zero_is_signed = op == "add" and shape.element_type.kind == "float"  # the sum's identity is -0: -0 + -0 is -0
    return Literal(shape.element_type.name, (-value if zero_is_signed else value).item())


def _combine_private(
    x: Instruction, plan: Plan, private: Storage, result: Storage, private_copies: int
) -> LoweredKernel:
    """The kernel that combines private copies with the result."""
    low = Lowering("combine", plan, [x])
    b, size = low.builder, x.operands[0].array_shape.size
    target, source = low.buffer(result, True), low.buffer(private)
    with low.loop(b.kernel.first, b.kernel.last) as (i, _):
        value: Operand = b.load(target, i)
        for k in range(private_copies):
            other = b.load(source, b.add(i, k * _padded_size(size)))
            (value,) = low.apply(x.attributes.to_apply, [value, other])
        b.store(target, i, value)
    return make_kernel(low, size, private_copies, [x])


def _cut_window(update_sizes: Sequence[int], fixed_dims: Sequence[int], updates: int) -> tuple[int, int]:
    """The window dimension that is cut, and the number of its parts."""
    if not fixed_dims:
        return 0, 1
    cut = max(fixed_dims, key=lambda k: update_sizes[k])
    elements = math.prod(update_sizes)
    count = min(
        current_target().balanced_tasks,
        update_sizes[cut],
        elements // LINE_BYTES,  # whole cache lines of any type
        elements * updates // PARALLEL_CHUNK_ELEMENTS,
    )
    return cut, max(1, count)


def _range_count(a: indexing.Gather, sizes: Sequence[int], window: Sequence[int], elements: int) -> int:
    """Index ranges that share sorted updates. For each range all indices are read; with sorted indices the branch is
    predictable."""
    first = a.start_index_map[:1]
    if not first or first[0] in window or not a.indices_are_sorted:
        return 1
    return max(1, min(2, sizes[first[0]], elements // PARALLEL_CHUNK_ELEMENTS))


def checked_index(low: Lowering, index: Operand, last: int) -> tuple[Index, Operand]:
    """An index as a loop IR index, and whether it is between 0 and `last`."""
    b = low.builder
    position = b.convert(INDEX, index)
    if last < 0:
        return position, Literal("pred", False)
    unsigned = b.convert("u64", position)  # where negative indices exceed all others
    return position, b.compare("LE", unsigned, Literal("u64", last))


def _targets(x: Instruction, plan: Plan, users: Users) -> tuple[list[Storage], list[LoweredKernel]]:
    """Memory of the results. A result that is not read needs memory, too, since the combiner reads it."""
    read = {r.attributes.index if r is not x else 0: r for r in results_of(x, users)}
    targets: list[Storage] = []
    copies: list[LoweredKernel] = []
    for k in range(len(x.operands) // 2):
        if k in read:
            targets.append(read[k])
        else:
            targets.append(Temporary(x.operands[k].array_shape))
            copies.append(copy_kernel(x.operands[k], targets[-1], plan))
    return targets, copies


def copy_kernel(source: Instruction, target: Storage, plan: Plan) -> LoweredKernel:
    """The kernel that copies an operand to memory."""
    low = Lowering("copy", plan)
    b = low.builder
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        b.store(low.buffer(target, True), index, b.load(low.buffer(source), index))
    return make_kernel(low, source.array_shape.size, 1, [])
