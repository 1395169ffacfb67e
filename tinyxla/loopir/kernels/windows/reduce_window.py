"""Kernels of reduce-window and select-and-scatter.

Small windows are unrolled in the loop over a row of results (`_lower_direct`). Select-and-scatter finds the selected
element in the same way and updates it at once, window by window. Large windows move along one dimension (see the pass
`canonicalize/reduce_window`), and are combined from suffixes and prefixes of blocks as long as the window, of a part of
the array that stays in the cache (van Herk); sums are never subtracted. Windows that are prefixes of a line, as in a
cumulative sum, are a scan (`scan`).

Source: M. van Herk, A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels
(1992).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from tinyxla.compiler.analysis.fusibility import is_native_type, is_scalar_computation
from tinyxla.compiler.costs import BLOCK_ELEMENTS, CACHED_ELEMENTS, VECTOR_ELEMENTS
from tinyxla.compiler.fusion.plan import Plan, buffer_of
from tinyxla.compiler.passes.canonicalize.reduce_window import is_large, undilate
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Literal, Operand
from tinyxla.loopir.kernels.windows.scan import lower_scan
from tinyxla.loopir.kernels.windows.window_reduction import (
    IDENTITY_WINDOW,
    Dimension,
    LineLayout,
    WindowReduction,
    load,
    store,
)
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Storage, Users, zero
from tinyxla.ops import reduction
from tinyxla.ops.window_doubling import cumulative_direction
from tinyxla.shapes.window import Window


def _collapsed_dimensions(sizes: Sequence[int], window: Window) -> list[Dimension]:
    """Dimensions of the array, where adjacent ones over which windows do not move are one."""
    dimensions: list[Dimension] = []
    for n, w in zip(sizes, window, strict=True):
        if w == IDENTITY_WINDOW and dimensions and dimensions[-1].window == IDENTITY_WINDOW:
            n *= dimensions.pop().size
        if w != IDENTITY_WINDOW or n != 1:
            dimensions.append(Dimension(n, w.positions(n), w))
    return dimensions or [Dimension(1, 1, IDENTITY_WINDOW)]


def _non_unit_dimensions(x: Instruction) -> list[int]:
    """Dimensions of more than one element, or over which windows move."""
    dimensions = zip(x.operands[0].array_shape.dimensions, x.attributes.window, strict=True)
    return [d for d, (n, w) in enumerate(dimensions) if n != 1 or w != IDENTITY_WINDOW]


def _sizes(dimensions: Sequence[Dimension]) -> list[int]:
    return [d.size for d in dimensions]


def _result_sizes(dimensions: Sequence[Dimension]) -> list[int]:
    return [d.positions for d in dimensions]


def _ceil_div_non_negative(low: Lowering, value: Index, step: int) -> Index:
    """value / step, rounded up, and at least 0."""
    b = low.builder
    return b.floordiv(b.max(b.add(value, step - 1), 0), step)


# --- direct evaluation ------------------------------------------------------------------------------------------------

_WindowElements = list[
    tuple[Index, Operand | None]
]  # of a window, each with the condition that it is in bounds; None for always


def _window_elements(
    low: Lowering, d: Dimension, o: Index, has_all_in_bounds: bool = False, clamp: bool = False
) -> _WindowElements:
    """Input indices of output o's window, each with an in-bounds condition (None: always).

    With `clamp`, indices out of bounds are clamped instead, which is valid for idempotent reductions.
    """
    b, w, dilation = low.builder, d.window, d.window.base_dilation
    if w == IDENTITY_WINDOW:
        return [(o, None)]
    first = b.sub(b.mul(o, w.stride), w.padding_low)
    if has_all_in_bounds or d.has_all_in_bounds:
        return [(b.add(first, k * w.window_dilation), None) for k in range(w.size)]
    if clamp and d.clamps_to_window:
        indices = (b.max(b.add(first, k), 0) for k in range(w.size))
        return [(b.min(index, d.size - 1), None) for index in indices]
    shift = -(-max(w.padding_low, 0) // dilation)  # elements by which indices are shifted, so that none is negative
    shifted = b.add(first, shift * dilation)
    elements: _WindowElements = []
    for k in range(d.max_elements if w.window_dilation == 1 else w.size):
        if w.window_dilation == 1:
            index = b.add(b.ceil_div(shifted, dilation), k)
            in_bounds = b.compare("LT", b.mul(index, dilation), b.add(shifted, w.size))
        else:
            position = b.add(shifted, k * w.window_dilation)
            index, in_bounds = b.floordiv(position, dilation), b.compare("EQ", b.remainder(position, dilation), 0)
        for limit, direction in ((shift, "GE"), (shift + d.size, "LT")):
            in_bounds = b.and_(in_bounds, b.compare(direction, index, limit))
        index = b.min(b.sub(b.max(index, shift), shift), d.size - 1)
        elements.append((index, in_bounds))
    return elements


def _all_conditions(
    low: Lowering, element: Sequence[tuple[Index, Operand | None]], *further: Operand
) -> Operand | None:
    """The conjunction of all conditions; None if there are none."""
    conditions = [*further, *(in_bounds for _, in_bounds in element if in_bounds is not None)]
    return functools.reduce(low.builder.and_, conditions) if conditions else None


def _lower_direct(fold: WindowReduction, dimensions: list[Dimension], sources: list[Storage]) -> LoweredKernel:
    """The kernel whose windows are unrolled in the loop over a row of results: without conditions where windows are in
    bounds, and with conditions at the edges of the minor dimension."""
    epilogue, counts, (*outer, last) = fold.plan.epilogues.get(fold.x), _result_sizes(dimensions), dimensions
    roots = [fold.x, *(epilogue.roots if epilogue is not None else [])]
    low, targets = fold.lowering("windows", roots[1:]), fold.results(counts)
    b, sizes, w = low.builder, _sizes(dimensions), last.window
    clamp = reduction.monoid(fold.computation) in ("maximum", "minimum", "and", "or")
    width, blocks = min(last.positions, BLOCK_ELEMENTS), -(-last.positions // BLOCK_ELEMENTS)
    interior_start, interior_stop = 0, last.positions
    if w.base_dilation > 1:
        interior_stop = 0
    elif w != IDENTITY_WINDOW and not last.has_all_in_bounds:
        last_start = last.size - 1 - (w.size - 1) * w.window_dilation + w.padding_low
        interior_start = min(max(0, -(-w.padding_low // w.stride)), interior_stop)
        interior_stop = max(interior_start, min(last_start // w.stride + 1, interior_stop))
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, end = b.tile_range(b.remainder(index, blocks), BLOCK_ELEMENTS, last.positions)
        result = low.split_index(b.floordiv(index, blocks), _result_sizes(outer))
        outer_elements = [_window_elements(low, d, o, clamp=clamp) for d, o in zip(outer, result, strict=True)]
        initial = low.initial(fold.x)

        def results(start: Index, stop: Index, has_all_in_bounds: bool) -> None:
            with low.loop(start, stop) as (o, _):
                values = initial
                inner_elements = _window_elements(low, last, o, has_all_in_bounds, clamp)
                for element in itertools.product(*outer_elements, inner_elements):
                    loaded = [load(low, a, sizes, [i for i, _ in element]) for a in sources]
                    combined, in_bounds = fold.apply(low, values, loaded), _all_conditions(low, element)
                    if in_bounds is not None:
                        combined = [b.select(in_bounds, x, y) for x, y in zip(combined, values, strict=True)]
                    values = combined
                if epilogue is not None:
                    index_of = dict(zip(_non_unit_dimensions(fold.x), (*result, o), strict=True))
                    full_index = tuple(index_of.get(d, 0) for d in range(fold.x.array_shape.rank))
                    low.bind_value(fold.x, full_index, values[0])
                    for root in epilogue.roots:
                        low.emit_root(root, full_index)
                    return
                for target, value in zip(targets, values, strict=True):
                    store(low, target, counts, (*result, o), value)

        if interior_start < interior_stop:
            results(b.max(begin, interior_start), b.min(end, interior_stop), True)
        if interior_start > 0 or interior_stop < last.positions:
            with low.loop(0, 2, sequential=True) as (side, _):
                first, second = b.min(end, interior_start), b.max(begin, interior_stop)
                start = b.add(begin, b.mul(side, b.sub(second, begin)))
                stop = b.add(first, b.mul(side, b.sub(end, first)))
                results(start, stop, False)
    work = width * math.prod(d.max_elements for d in dimensions)
    return make_kernel(low, math.prod(_result_sizes(outer)) * blocks, work, roots)


# --- large windows along one dimension --------------------------------------------------------------------------------


def _lower_large(fold: WindowReduction, dimensions: list[Dimension]) -> list[LoweredKernel]:
    """Kernels of windows that move along one dimension only."""
    (d,) = (d for d, dimension in enumerate(dimensions) if dimension.window != IDENTITY_WINDOW)
    line = LineLayout(math.prod(_sizes(dimensions[:d])), dimensions[d], math.prod(_sizes(dimensions[d + 1 :])))
    targets = fold.results(line.result_sizes)
    direction = cumulative_direction(line.dimension.window, line.dimension.size)
    if not direction:
        return [_lower_van_herk(fold, line, targets)]
    return lower_scan(fold, line, targets, direction == "backward")


def _lower_van_herk(fold: WindowReduction, line: LineLayout, targets: list[Storage]) -> LoweredKernel:
    """The kernel of van Herk's algorithm over blocks of columns: a window is the suffix of the block in which it begins
    and a prefix of the next block."""
    low = fold.lowering("windows")
    b, (n, count, w) = low.builder, line.dimension
    width = min(line.inner, max(1, CACHED_ELEMENTS // w.size // VECTOR_ELEMENTS) * VECTOR_ELEMENTS)
    blocks, columns = (count - 1) * w.stride // w.size + 1, -(-line.inner // width)
    suffixes, prefixes = (b.scratch(fold.x.array_shape.element_type.name, (w.size + 1) * width) for _ in range(2))
    (identity,) = low.identity(fold.x)

    def scratch_at(row: Index, j: Index) -> Index:
        return b.add(b.mul(row, width), j)

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        outer, block, column = low.split_index(index, (line.outer, blocks, columns))
        first_column, first = b.mul(column, width), b.mul(block, w.size)
        block_columns = b.min(b.sub(line.inner, first_column), width)

        def element(row: Index, j: Index) -> Operand:
            """An element of the block and of those after it."""
            index = b.sub(b.add(first, row), w.padding_low)
            in_bounds = b.and_(b.compare("GE", index, 0), b.compare("LT", index, n))
            index = b.min(b.max(index, 0), n - 1)
            value = load(low, fold.arrays[0], line.sizes, (outer, index, b.add(first_column, j)))
            return b.select(in_bounds, value, identity)

        with low.loop(0, block_columns) as (j, _):
            b.store(suffixes, scratch_at(w.size, j), identity)
            b.store(prefixes, j, identity)
        with low.loop(0, w.size, sequential=True) as (k, _), low.loop(0, block_columns) as (j, _):
            row = b.sub(w.size - 1, k)
            suffix = b.load(suffixes, scratch_at(b.add(row, 1), j))
            b.store(suffixes, scratch_at(row, j), *fold.apply(low, [element(row, j)], [suffix]))
            prefix, value = b.load(prefixes, scratch_at(k, j)), element(b.add(k, w.size), j)
            b.store(prefixes, scratch_at(b.add(k, 1), j), *fold.apply(low, [prefix], [value]))
        start = _ceil_div_non_negative(low, first, w.stride)
        stop = b.min(_ceil_div_non_negative(low, b.add(first, w.size), w.stride), count)
        with low.loop(start, stop, sequential=True) as (o, _), low.loop(0, block_columns) as (j, _):
            at = scratch_at(b.sub(b.mul(o, w.stride), first), j)
            combined = fold.apply(low, [b.load(suffixes, at)], [b.load(prefixes, at)])
            combined = fold.apply(low, low.initial(fold.x), combined)
            store(low, targets[0], line.result_sizes, (outer, o, b.add(first_column, j)), combined[0])
    return make_kernel(low, line.outer * blocks * columns, 3 * w.size * width, [fold.x])


# --- reduce-window ----------------------------------------------------------------------------------------------------


def supports_reduce(x: Instruction) -> bool:
    """Whether the combiner can be part of a loop."""
    return is_scalar_computation(x.attributes.to_apply) and all(is_native_type(o.array_shape) for o in x.operands)


def lower_reduce(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a reduce-window."""
    fold, sizes, window = WindowReduction(x, plan, users), x.operands[0].array_shape.dimensions, x.attributes.window
    dimensions = _collapsed_dimensions(sizes, window)
    if 0 in _result_sizes(dimensions):
        return []
    if is_large(window, sizes) and 0 not in sizes:
        return _lower_large(fold, _collapsed_dimensions(*undilate(sizes, window)))
    if x in plan.epilogues:
        dimensions = [Dimension(sizes[d], window[d].positions(sizes[d]), window[d]) for d in _non_unit_dimensions(x)]
    return [_lower_direct(fold, dimensions, fold.arrays)]


# --- select-and-scatter -----------------------------------------------------------------------------------------------


def supports_select(x: Instruction) -> bool:
    """Whether both computations can be part of a loop."""
    computations = x.attributes.select, x.attributes.scatter
    return all(map(is_scalar_computation, computations)) and all(is_native_type(o.array_shape) for o in x.operands)


def lower_select(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernel that selects an element of each window and updates it. One thread processes windows that overlap,
    after it has filled their elements with the initial value."""
    if not x.array_shape.size:
        return []
    low = Lowering("select", plan, [x])
    dimensions = _collapsed_dimensions(x.array_shape.dimensions, x.attributes.window)
    return [_Selection(low, x, dimensions).kernel()]


class _Selection:
    """Emits the kernel of a select-and-scatter."""

    def __init__(self, low: Lowering, x: Instruction, dimensions: list[Dimension]) -> None:
        self.low, self.x = low, x
        self.operand, self.source, _ = map(buffer_of, x.operands)
        *self.outer, self.last = self.dimensions = dimensions
        self.sizes, self.counts = _sizes(dimensions), _result_sizes(dimensions)
        is_tiled = all(d.has_all_in_bounds and d.window.size == d.window.stride for d in dimensions)
        self.is_tiled = is_tiled and all(d.positions * d.window.stride == d.size for d in dimensions)
        w = self.last.window
        self.by_elements = w != IDENTITY_WINDOW and not (self.last.has_all_in_bounds and w.size <= w.stride)
        self.width = max(1, min(self.last.positions, BLOCK_ELEMENTS))
        # The selected element of each window of the row.
        self.row = low.builder.scratch("s32", self.width if self.by_elements else 1)
        low.buffer(x, True)

    def kernel(self) -> LoweredKernel:
        """The kernel over batches, or over tiles if windows do not overlap."""
        low, b, x, outer, counts = self.low, self.low.builder, self.x, self.outer, self.counts
        has_batch = self.dimensions[0].window == IDENTITY_WINDOW and len(outer) > 0 and 0 not in counts
        parallel_dims = len(outer) if self.is_tiled else int(has_batch)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            initial = low.value(x.operands[2], ())
            parallel_index = low.split_index(index, counts[:parallel_dims])
            batch_elements = math.prod(self.sizes[parallel_dims:])
            if not self.is_tiled:
                first = b.mul(low.linearize(counts[:parallel_dims], parallel_index), batch_elements)
                with low.loop(0, batch_elements) as (i, _):
                    store(low, x, [x.array_shape.size], [b.add(first, i)], initial)
            line = self.emit_by_elements if self.by_elements else self.emit_by_windows
            bounds: list[tuple[Index, Index]] = [(0, n) for n in counts[parallel_dims:-1]]
            low.nest(
                bounds,
                (),
                lambda inner_result, _: line((*parallel_index, *inner_result), initial) or (),
                sequential=True,
            )
        work = math.prod(counts[parallel_dims:]) * math.prod(d.max_elements for d in self.dimensions) * 4
        return make_kernel(low, math.prod(counts[:parallel_dims]), work, [x])

    def emit_by_windows(self, result: Coordinates, initial: Operand) -> None:
        """A row of windows that do not overlap: select and update."""
        outer_elements = self.outer_elements(result)
        with self.low.loop(0, self.last.positions) as (o, _):
            elements = [*outer_elements, _window_elements(self.low, self.last, o)]
            selected = self.select(elements)
            for k, element in enumerate(itertools.product(*elements)):
                self.scatter(k, selected, tuple(i for i, _ in element), (*result, o), initial)

    def emit_by_elements(self, result: Coordinates, initial: Operand) -> None:
        """A row of windows: select first, then update the k-th elements of all windows for one k after the other, so
        that overlapping windows update an element in order."""
        low, b, last, w = self.low, self.low.builder, self.last, self.last.window
        outer_elements = self.outer_elements(result)
        with low.loop(0, -(-last.positions // self.width), sequential=True) as (block, _):
            begin, end = b.tile_range(block, self.width, last.positions)
            with low.loop(begin, end) as (o, _):
                b.store(self.row, b.sub(o, begin), self.select([*outer_elements, _window_elements(low, last, o)]))
            for k, (outer, inner) in enumerate(itertools.product(itertools.product(*outer_elements), range(w.size))):
                offset = w.padding_low - inner
                start, stop = max(0, -(-offset // w.stride)), max(0, (last.size - 1 + offset) // w.stride + 1)
                with low.loop(b.max(begin, start), b.min(end, stop)) as (o, _):
                    at = b.sub(b.mul(o, w.stride), offset)
                    selected = b.load(self.row, b.sub(o, begin))
                    self.scatter(k, selected, (*(i for i, _ in outer), at), (*result, o), initial)

    def outer_elements(self, result: Coordinates) -> list[_WindowElements]:
        return [_window_elements(self.low, d, o) for d, o in zip(self.outer, result, strict=True)]

    def select(self, elements: Sequence[_WindowElements]) -> Operand:
        """The ordinal of the selected element."""
        low, b = self.low, self.low.builder
        best: Operand = zero(self.x.array_shape.with_dimensions(()))
        selected_index: Operand = Literal("s32", -1)
        for k, candidate in enumerate(itertools.product(*elements)):
            element = load(low, self.operand, self.sizes, [i for i, _ in candidate])
            is_selected = b.compute("not", "pred", low.apply(self.x.attributes.select, [best, element])[0])
            is_first = b.compare("EQ", selected_index, Literal("s32", -1))
            condition = _all_conditions(low, candidate, *([b.or_(is_first, is_selected)] if k else []))
            best = element if condition is None else b.select(condition, element, best)
            selected_index = (
                Literal("s32", k) if condition is None else b.select(condition, Literal("s32", k), selected_index)
            )
        return selected_index

    def scatter(self, k: int, selected: Operand, index: Coordinates, result: Coordinates, initial: Operand) -> None:
        """Update the k-th element of a window, if it is the selected one."""
        low, b, x = self.low, self.low.builder, self.x
        old = initial if self.is_tiled else load(low, x, self.sizes, index)
        (new,) = low.apply(x.attributes.scatter, [old, load(low, self.source, self.counts, result)])
        is_selected_k = b.compare("EQ", selected, Literal("s32", k))
        store(low, x, self.sizes, index, b.select(is_selected_k, new, old))
