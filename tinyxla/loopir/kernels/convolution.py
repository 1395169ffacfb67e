"""Convolution kernels: implicit GEMM, and direct convolution for the shapes and types that GEMM does not fit.

After the pass `canonicalize/convolution` every index into the input, the kernel and the result is an affine function of
loop indices. Where the input is dilated that holds for each residue of the output index, and where it is padded, for
each region of outputs whose windows overlap the input alike. So a convolution is a list of `_Axis`, each with its
stride in each of the three arrays, or several such lists:

    result[...] += input[...] * kernel[...]    over all axes

There are four kinds of axes: groups, which all three arrays have; output positions (batch and spatial), which the
kernel lacks; output channels, which the input lacks; and the reduction's terms (input channels and the window), which
the result lacks.

Implicit GEMM (`_ImplicitGemm`) multiplies output positions x terms by terms x output channels. The pass has made
channels the minor dimension of the kernel and of the result, and the microkernel reads the input through offset lists
(see `gemm.microkernel`), without an im2col copy. In a depthwise convolution the channels of all groups are columns.
Direct convolution (`_DirectConvolution`) is for the rest: types without a microkernel, and groups of few channels.

Tiles are cut at fixed places, and the same thread continues the sums of a tile over all blocks of terms, so results do
not depend on the number of threads. If there are few output positions and channels, as in the gradient with respect to
a kernel, the reduction is split and the partial results are combined (split-K).

Source: M. Dukhan, The indirect convolution algorithm (2019).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tinyxla.compiler.analysis.fusibility import is_native_type
from tinyxla.compiler.fusion.plan import LoopNest, Plan
from tinyxla.compiler.passes.canonicalize.convolution import (
    GEMM_TYPES,
    MIN_GEMM_FEATURES,
    VECTOR_MULTIPLIERS,
    WindowRange,
    has_bf16_pairs,
    is_canonical,
    is_gemm,
    window_ranges as parts_of,
)
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Kernel, Literal, Operand, Value
from tinyxla.loopir.kernels.gemm.amx import MAX_K_WORDS
from tinyxla.loopir.kernels.gemm.arithmetic import EXACT_ROWS, Arithmetic, choose_arithmetic
from tinyxla.loopir.kernels.gemm.microkernel import MICROKERNEL_ARGUMENTS, declare_microkernel
from tinyxla.loopir.kernels.gemm.offset_list import (
    DIMENSION_WORDS,
    OFFSET_LIST_ARGUMENTS,
    OFFSETS_PER_VECTOR,
    declare_offset_list,
)
from tinyxla.loopir.kernels.gemm.packing import COPY_ARGUMENTS, pack_rows
from tinyxla.loopir.kernels.gemm.problem import CHUNKS, MIN_CHUNK_MULTIPLIES
from tinyxla.loopir.lower import pointwise
from tinyxla.loopir.lower.axes import PARALLEL_CHUNK_ELEMENTS, make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage, Temporary, Users, zero
from tinyxla.loopir.lower.reductions import combine_partials
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.ops.products.convolution import Convolution
from tinyxla.shapes import Shape, element_type

_MAX_TILE_POSITIONS = 192  # output positions in a tile
_MIN_TILE_POSITIONS = 64  # the same, unless there are fewer
_MIN_TILE_CHANNELS = 64  # output channels in a tile, unless there are fewer
_MAX_KC = MAX_K_WORDS  # terms of the reduction in a block
_MIN_LIST_RANK = 4  # of output positions and of the reduction: offset lists have room for so many dimensions
# Candidates for output positions of one stride in the input: the first that divides the innermost axis.
_STRIDED_ROWS = (4, 2, 1)
_LONG_CHUNKS, _LONG_MULTIPLIES = 64, 1 << 27  # chunks from so many multiplications on
_LIST_ROWS = 4  # output positions whose sums take as long as a tile's offset lists
_ROW_ACCUMULATORS = 1 << 10  # outputs in a row of accumulators
_MAX_UNROLLED_TERMS = 32  # terms up to which the reduction is unrolled


@dataclass(frozen=True)
class _Axis:
    """A loop, and its stride in the input, in the kernel and in the result."""

    size: int
    lhs: int
    rhs: int
    out: int


_ONE = _Axis(1, 0, 0, 0)


def _strides(sizes: Sequence[int]) -> list[int]:
    """Row-major strides of an array."""
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


class _ConvolutionAxes:
    """The axes of a convolution by kind, each kind from the outermost in memory to the innermost: of the result, or of
    the kernel for terms; and the offset of their first element in each array. Output positions are those of one region
    (`window_ranges`)."""

    def __init__(self, x: Instruction, parts: Sequence[WindowRange], lhs: Sequence[int], rhs: Sequence[int]) -> None:
        dims: Convolution = x.attributes
        out = x.array_shape.dimensions
        s, t, u = map(_strides, (lhs, rhs, out))
        a, b, c = dims.dim_labels
        groups = dims.groups
        channels, terms, batch = out[c[1]] // groups, rhs[b[1]], out[c[0]]
        step = s[a[0]] * batch if dims.batch_group_count > 1 else s[a[1]] * terms
        self.group = _Axis(groups, step, t[b[0]] * channels, u[c[1]] * channels)
        self.channel = _Axis(channels, 0, t[b[0]], u[c[1]])
        self.has_minor_channels = channels == 1 or (t[b[0]], u[c[1]]) == (1, 1)
        self.start: dict[str, int] = dict.fromkeys(("lhs", "rhs", "out"), 0)
        positions, inner = [_Axis(batch, s[a[0]], 0, u[c[0]])], [_Axis(terms, s[a[1]], t[b[1]], 0)]
        for w, part, i, j, k in zip(dims.window, parts, a[2:], b[2:], c[2:], strict=True):
            first = part.first_position * w.stride + part.first_element * w.window_dilation - w.padding_low
            self.start["lhs"] += first // w.base_dilation * s[i]
            self.start["rhs"] += part.first_element * t[j]
            self.start["out"] += part.first_position * u[k]
            positions.append(_Axis(part.positions, s[i] * w.stride, 0, u[k] * part.position_stride))
            inner.append(_Axis(part.elements, s[i] * w.window_dilation, t[j] * part.element_stride, 0))
        group = self.group
        is_minor = (group.lhs, group.rhs, group.out) == (1, channels, channels)
        is_depthwise = (
            channels in VECTOR_MULTIPLIERS
            and groups * channels > MIN_GEMM_FEATURES
            and is_minor
            and not has_bf16_pairs(x)
        )
        self.depth_multiplier = channels if is_depthwise and x.array_shape.element_type.name in GEMM_TYPES else 0
        if self.depth_multiplier:
            self.group, self.channel = _ONE, _Axis(groups * channels, 0, 1, 1)
        self.positions = _collapse_axes(sorted((p for p in positions if p.size != 1), key=lambda p: -p.out))
        inner = sorted((p for p in inner if p.size != 1), key=lambda p: -p.rhs)
        self.terms = _collapse_axes(inner)
        self.innermost = self.positions[-1] if self.positions else _ONE
        # Terms that move in the input as far as the next output position does.
        self.shared_terms = next((p for p in inner if p.lhs == self.innermost.lhs), _ONE)
        self.outer_terms = _collapse_axes([p for p in inner if p is not self.shared_terms])


def _collapse_axes(axes: Sequence[_Axis]) -> list[_Axis]:
    """Adjacent axes that are contiguous in all three arrays, as one."""
    result: list[_Axis] = []
    for axis in axes:
        if result:
            last = result[-1]
            if all(getattr(last, name) == getattr(axis, name) * axis.size for name in ("lhs", "rhs", "out")):
                result[-1] = _Axis(last.size * axis.size, axis.lhs, axis.rhs, axis.out)
                continue
        result.append(axis)
    return result


def _total_size(axes: Sequence[_Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def supports(x: Instruction) -> bool:
    """Whether the convolution is canonical and of a native type."""
    return is_canonical(x) and is_native_type(x.array_shape)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a convolution, one for each region of output positions."""
    sizes, (lhs, _, out) = x.operands[0].array_shape.dimensions, x.attributes.dim_labels
    window_dims = zip(x.attributes.window, lhs[2:], out[2:], strict=True)
    regions = itertools.product(*(parts_of(w, sizes[i], x.array_shape.dimensions[k]) for w, i, k in window_dims))
    arithmetic, kernels = Arithmetic(x.array_shape.element_type.name), list[LoweredKernel]()
    arrays = [_Array(o, o.array_shape.dimensions) for o in x.operands]
    if has_bf16_pairs(x):
        arithmetic = choose_arithmetic("bf16", "f32", EXACT_ROWS, 1, 1) or arithmetic
        for k, array in enumerate(arrays):
            if k or arithmetic.factors_per_word == 1:
                arrays[k], copy = _packed_operand(array, arithmetic, x)
                kernels.append(copy)
            else:
                arrays[k] = _Array(array.storage, (*array.sizes[:-1], array.sizes[-1] // 2))
    axes_of_regions = [_ConvolutionAxes(x, region, *(array.sizes for array in arrays)) for region in regions]
    products = [
        _ImplicitGemm(x, axes, plan, arithmetic, [array.storage for array in arrays])
        for axes in axes_of_regions
        if ((is_gemm(x) and axes.has_minor_channels) or axes.depth_multiplier) and _total_size(axes.terms)
    ]
    epilogue = plan.epilogues.get(x)
    fuses_epilogue = len(products) == len(axes_of_regions) and all(product.splits == 1 for product in products)
    for product in products:
        kernels += product.lower(epilogue if fuses_epilogue else None)
    kernels += [
        _DirectConvolution(x, axes, plan).kernel()
        for axes in axes_of_regions
        if all(axes is not product.axes for product in products)
    ]
    return kernels if epilogue is None or fuses_epilogue else [*kernels, *pointwise.lower(epilogue, plan, users)]


class _Array(NamedTuple):
    """An operand with the sizes of its dimensions, in elements or in pairs of bf16."""

    storage: Storage
    sizes: tuple[int, ...]


@functools.cache
def _packing_kernel(arithmetic: Arithmetic) -> Kernel:
    """The kernel that packs rows of bf16: pairs of two rows each, or wider elements."""
    b = ParametricBuilder("pairs", "rows columns pitch length")
    n, sizes = b.parameter, b.scratch(INDEX, len(COPY_ARGUMENTS))
    source, to = b.argument("bf16"), b.argument(arithmetic.panel_type, True)
    routine = pack_rows("bf16", arithmetic, arithmetic.factors_per_word > 1)
    with b.loop(b.kernel.first, b.kernel.last) as (chunk, _):
        start, stop = b.tile_range(chunk, n["length"], n["rows"])
        rows = b.sub(stop, start)
        terms = b.mul(rows, arithmetic.factors_per_word)
        store_arguments(
            b,
            sizes,
            COPY_ARGUMENTS,
            columns=n["columns"],
            source_pitch=n["columns"],
            rows=rows,
            target_pitch=n["pitch"],
            terms=terms,
        )
        into = b.mul(start, n["pitch"], arithmetic.factors_per_word)
        offset = b.mul(start, n["columns"], arithmetic.factors_per_word)
        b.call(routine, (to, into), (source, offset), (sizes, 0))
    return b.kernel


def _packed_operand(array: _Array, arithmetic: Arithmetic, x: Instruction) -> tuple[_Array, LoweredKernel]:
    """A copy of an operand as pairs of rows or as wider elements, with rows of full vectors and a vector of padding at
    the end."""
    *outer, columns = array.sizes
    outer[-1] //= arithmetic.factors_per_word
    count, pitch = math.prod(outer), -(-columns // arithmetic.lanes) * arithmetic.lanes
    result = Temporary(
        Shape(element_type(arithmetic.panel_type), ((count * pitch + arithmetic.lanes) * arithmetic.factors_per_word,))
    )
    length = _even_block(count, max(1, PARALLEL_CHUNK_ELEMENTS // pitch))
    parameters = (count, columns, pitch, length)
    kernel = LoweredKernel(
        _packing_kernel(arithmetic), [array.storage, result], -(-count // length), 1, [x], parameters
    )
    return _Array(result, (*outer, pitch)), kernel


def _offset(low: Lowering, axes: Sequence[_Axis], indices: Sequence[Index], array: str) -> Index:
    """The offset of the element with these indices in an array."""
    b = low.builder
    offset: Index = 0
    for axis, index in zip(axes, indices, strict=True):
        step = getattr(axis, array)
        if step:
            offset = b.add(offset, b.mul(index, step))
    return offset


# --- implicit GEMM ----------------------------------------------------------------------------------------------------


class _ImplicitGemm:
    """Tiles of output positions by output channels, whose sums run over blocks of terms. Sizes and strides are
    parameters, so that most convolutions share one kernel."""

    def __init__(
        self, x: Instruction, axes: _ConvolutionAxes, plan: Plan, arithmetic: Arithmetic, operands: Sequence[Storage]
    ) -> None:
        self.x, self.axes, self.plan, self.operands = x, axes, plan, operands
        self.element_type = x.array_shape.element_type
        groups, positions, terms = axes.group.size, _total_size(axes.positions), _total_size(axes.terms)
        chunks = max(1, CHUNKS // groups)
        self.blocks = -(-axes.channel.size // _MIN_TILE_CHANNELS)
        if x not in plan.epilogues:  # an epilogue should find its tile in the cache
            self.blocks = min(self.blocks, -(-chunks // -(-positions // _MAX_TILE_POSITIONS)))
        self.width = -(-axes.channel.size // (_MIN_TILE_CHANNELS * self.blocks)) * _MIN_TILE_CHANNELS
        self.blocks = -(-axes.channel.size // self.width)
        chunks = -(-chunks // self.blocks)
        self.height = _even_block(
            positions, min(_MAX_TILE_POSITIONS, max(_MIN_TILE_POSITIONS, -(-positions // chunks)))
        )
        strided_rows = next(r for r in _STRIDED_ROWS if axes.innermost.size % r == 0)
        columns, depth = min(self.width, axes.channel.size), _even_block(terms, _MAX_KC)
        self.arithmetic = arithmetic.choose_tile(self.height, columns, depth, strided_rows)
        if self.arithmetic.vectors == 1 or axes.depth_multiplier:
            self.arithmetic = self.arithmetic.with_shared_terms(axes.innermost.size, axes.shared_terms.size)
        self.terms = axes.terms if self.arithmetic.shared_terms == 1 else axes.outer_terms
        terms = _total_size(self.terms)
        self.depth = _even_block(terms, _MAX_KC)
        self.height = -(-self.height // self.arithmetic.mr) * self.arithmetic.mr
        self.depth = -(-self.depth // self.arithmetic.k_multiple) * self.arithmetic.k_multiple
        self.tiles, tiles = -(-positions // self.height), -(-terms // self.depth)
        self.tile_count = groups * self.blocks * self.tiles
        covers_result = groups * positions * axes.channel.size == x.array_shape.size
        splits = min(tiles, CHUNKS // self.tile_count) if covers_result and 2 * self.tile_count <= CHUNKS else 1
        multiplies = self.tile_count * self.height * self.width * terms
        if covers_result and multiplies >= _LONG_MULTIPLIES:  # adding the parts takes no time if they are of many terms
            splits = max(splits, min(terms // _MAX_KC, _LONG_CHUNKS // self.tile_count))
        self.length = -(-tiles // splits) * self.depth  # of a part of a split reduction
        self.splits = -(-terms // self.length)
        self._balance(positions, groups * self.blocks * self.splits, multiplies)
        self.low = Lowering("convolution", plan)
        self.parameters: list[int] = []

    def _balance(self, positions: int, others: int, multiplies: int) -> None:
        """Make tiles lower, so that the busiest processor of the target has least to do; the sums stay the same.
        `others` is the number of tiles of the same positions."""
        processors = min(current_target().processors, multiplies // MIN_CHUNK_MULTIPLIES)
        if 2 * processors <= CHUNKS:
            return
        rows = range(self.arithmetic.mr, self.height + 1, self.arithmetic.mr)

        def time(height: int) -> float:
            return -(-others * -(-positions // height) // processors) * (height + _LIST_ROWS)

        self.height = min(rows, key=lambda height: (time(height), -height), default=self.height)
        self.tiles = -(-positions // self.height)
        self.tile_count = others // self.splits * self.tiles

    def parameter(self, value: int) -> Value:
        """A scalar parameter of the kernel with this value."""
        kernel = self.low.builder.kernel
        self.parameters.append(value)
        kernel.parameters.append(Value(INDEX, f"n{len(self.parameters)}"))
        return kernel.parameters[-1]

    def lower(self, epilogue: LoopNest | None) -> list[LoweredKernel]:
        """The kernels, with an epilogue that is computed on each tile, or None."""
        x, axes = self.x, self.axes
        roots = epilogue.roots if epilogue is not None else []
        self.low = low = Lowering("convolution", self.plan, [x, *roots])
        b = low.builder
        lhs, rhs = map(low.buffer, self.operands)
        partial = Temporary(Shape(self.element_type, (self.splits, x.array_shape.size)))
        if epilogue is not None:
            out = b.scratch(self.element_type.name, self.height * self.width)
        else:
            out = low.buffer(x if self.splits == 1 else partial, True)
        routine = declare_microkernel(self.arithmetic, axes.depth_multiplier)
        microkernel_arguments = b.scratch(INDEX, len(MICROKERNEL_ARGUMENTS))
        positions, terms = (self.parameter(_total_size(part)) for part in (axes.positions, self.terms))
        height, depth, length, tiles, splits, a_row_stride, b_k_stride = map(
            self.parameter,
            (self.height, self.depth, self.length, self.tiles, self.splits, axes.innermost.lhs, axes.shared_terms.rhs),
        )
        groups, width, channels = map(self.parameter, (axes.group.size, self.width, axes.channel.size))
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            block, tile, group, split = b.delinearize(index, tiles, groups, splits)
            channel, columns = b.tile_start_and_size(block, width, channels)
            bases = {array: self._base_offset(array, group, channel) for array in ("lhs", "rhs", "out")}
            split_offset = b.mul(split, self.parameter(x.array_shape.size))
            bases["out"] = b.add(bases["out"], split_offset)
            first, rows = b.tile_start_and_size(tile, height, positions)
            limit = _MAX_TILE_POSITIONS
            sources, results = (
                self._offset_list(axes.positions, array, bases[array], first, rows, limit) for array in ("lhs", "out")
            )
            targets = results
            if epilogue is not None:
                targets = self._offset_list([_Axis(self.height, 0, 0, self.width)], "out", 0, 0, rows, limit)
            begin, end = b.tile_range(split, length, terms)
            with low.loop(0, b.ceil_div(b.sub(end, begin), depth), sequential=True) as (step, _):
                term = b.add(begin, b.mul(step, depth))
                count = b.min(b.sub(end, term), depth)
                inner = [
                    self._offset_list(self.terms, array, start, term, count, _MAX_KC)
                    for array, start in (("lhs", 0), ("rhs", bases["rhs"]))
                ]
                _store_all(low, microkernel_arguments, (rows, columns, count, b.min(step, 1), a_row_stride, b_k_stride))
                arrays = ((array, 0) for array in (sources, targets, *inner, microkernel_arguments))
                b.call(routine, (out, 0), (lhs, 0), (rhs, 0), *arrays)
            if epilogue is not None:
                self._emit_epilogue(epilogue, out, results, rows, columns)
        work = self.height * self.length * self.arithmetic.shared_terms * (1 + self.width // 16)
        work *= 1 + bool(axes.depth_multiplier)
        result = make_kernel(low, self.tile_count * self.splits, work, [x, *roots])
        result.parameters = tuple(self.parameters)
        return [result] if self.splits == 1 else [result, combine_partials(partial, x, self.plan)]

    def _base_offset(self, array: str, group: Index, channel: Index) -> Index:
        """The offset of a tile's group and first channel in an array."""
        b, axes = self.low.builder, self.axes
        start = b.mul(group, self.parameter(getattr(axes.group, array)))
        if array != "lhs":
            start = b.add(start, b.mul(channel, getattr(axes.channel, array)))
        elif axes.depth_multiplier:
            start = b.add(start, b.floordiv(channel, axes.depth_multiplier))
        return b.add(start, self.parameter(axes.start[array]))

    def _emit_epilogue(self, epilogue: LoopNest, tile: Buffer, positions: Buffer, rows: Index, columns: Index) -> None:
        """Emit the epilogue for a tile, whose rows have these offsets in the result."""
        low, b, sizes = self.low, self.low.builder, self.x.array_shape.dimensions
        with low.loop(0, rows) as (i, _):
            offset = low.split_index(b.load(positions, i), sizes)
            outer = tuple(0 if size == 1 else c for c, size in zip(offset[:-1], sizes, strict=False))
            row = b.mul(i, self.width)
            with low.loop(0, columns) as (j, _):
                coordinates = (*outer, b.add(offset[-1], j))
                low.bind_value(self.x, coordinates, b.load(tile, b.add(row, j)))
                for root in epilogue.roots:
                    low.emit_root(root, coordinates)

    def _offset_list(
        self, axes: list[_Axis], array: str, start: Index, first: Index, count: Index, max_count: int
    ) -> Buffer:
        """An offset list for `count` elements of the axes from the `first` one on, with room for `max_count`."""
        b = self.low.builder
        into = b.scratch(INDEX, max_count + OFFSETS_PER_VECTOR)
        first_dimension = len(OFFSET_LIST_ARGUMENTS)
        arguments = b.scratch(INDEX, first_dimension + DIMENSION_WORDS * max(_MIN_LIST_RANK, len(axes)))
        sizes = [(self.parameter(axis.size), self.parameter(getattr(axis, array)), 0) for axis in _padded_axes(axes)]
        _store_all(self.low, arguments, (start, first, count, len(sizes), *itertools.chain(*sizes)))
        b.call(declare_offset_list(), (into, 0), (arguments, first_dimension), (arguments, 0))
        return into


def _even_block(count: int, max_count: int) -> int:
    """The size of equal blocks of at most `max_count` elements."""
    return -(-count // -(-count // max_count))


def _padded_axes(axes: list[_Axis]) -> list[_Axis]:
    """The axes from the innermost on, padded to the usual rank."""
    return [*reversed(axes), *[_ONE] * (_MIN_LIST_RANK - len(axes))]


def _store_all(low: Lowering, into: Buffer, microkernel_arguments: Sequence[Index]) -> None:
    """Store indices one after the other."""
    for k, parameter in enumerate(microkernel_arguments):
        low.builder.store(into, k, Literal(INDEX, parameter) if isinstance(parameter, int) else parameter)


# --- direct convolution -----------------------------------------------------------------------------------------------


class _DirectConvolution:
    """Direct convolution: the innermost axis of the result is the inner loop, with a row of accumulators.

    Few terms are unrolled in that loop instead. If terms are contiguous where this axis is not, or the axis is shorter,
    the terms are the inner loop.
    """

    def __init__(self, x: Instruction, axes: _ConvolutionAxes, plan: Plan) -> None:
        self.x, self.axes, self.low = x, axes, Lowering("convolution", plan)
        self.b, self.type = self.low.builder, x.array_shape.element_type
        self.lhs, self.rhs = (self.low.buffer(o) for o in x.operands)
        self.out = self.low.buffer(x, True)
        candidates = (a for a in (axes.group, axes.channel, *axes.positions) if a.size != 1)
        self.output_axes = sorted(candidates, key=lambda a: -a.out) or [axes.channel]
        *self.outer, self.inner = self.output_axes
        self.terms = axes.terms or [_ONE]
        self.identity = zero(x.array_shape)
        self.start: dict[str, Index] = {}  # offsets of the row of results in each array

    def kernel(self) -> LoweredKernel:
        """The kernel over rows of results."""
        low, b, inner = self.low, self.b, self.inner
        width = min(inner.size, _ROW_ACCUMULATORS)
        rows = -(-inner.size // width)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            *indices, row = low.split_index(index, [*(a.size for a in self.outer), rows])
            begin = b.mul(row, width)
            count = b.min(b.sub(inner.size, begin), width)
            start = [*indices, begin]
            self.start = {
                name: b.add(_offset(low, self.output_axes, start, name), self.axes.start[name])
                for name in ("lhs", "rhs", "out")
            }
            last, is_unrolled = self.terms[-1], _total_size(self.terms) <= _MAX_UNROLLED_TERMS
            if (last.lhs == 1, last.size) > (inner.lhs == 1, inner.size) or is_unrolled:
                with low.loop(0, count) as (k, _):
                    self._store(k, self._sum_unrolled(k) if is_unrolled else self._sum_terms(k))
            else:
                self._accumulate_row(count, width)
        return make_kernel(low, _total_size(self.outer) * rows, width * _total_size(self.terms), [self.x])

    def _accumulate_row(self, count: Index, width: int) -> None:
        """Add term after term to a row of accumulators."""
        low, b = self.low, self.b
        row = b.scratch(self.type.name, width)
        with low.loop(0, count) as (k, _):
            b.store(row, k, self.identity)

        def add(term: Sequence[Index], values: Sequence[Operand]) -> Sequence[Operand]:
            with low.loop(0, count) as (k, _):
                b.store(row, k, self._add_term(b.load(row, k), term, k))
            return values

        low.nest([(0, t.size) for t in self.terms], (), add, sequential=True)
        with low.loop(0, count) as (k, _):
            self._store(k, b.load(row, k))

    def _add_term(self, total: Operand, term: Sequence[Index], k: Index, **flags: bool) -> Operand:
        """The sum plus the product of one term of the k-th output."""
        b, elements = self.b, list[Operand]()
        for buffer, name in ((self.lhs, "lhs"), (self.rhs, "rhs")):
            offset = b.add(self.start[name], b.mul(k, getattr(self.inner, name)))
            elements.append(b.load(buffer, b.add(offset, _offset(self.low, self.terms, term, name))))
        product = b.compute("multiply", self.type.name, *elements)
        return b.compute("add", self.type.name, total, product, **flags)

    def _store(self, k: Index, total: Operand) -> None:
        self.b.store(self.out, self.b.add(self.start["out"], self.b.mul(k, self.inner.out)), total)

    def _sum_terms(self, k: Index) -> Operand:
        """The sum of all terms by loops over these."""
        flags = {"reassociate": True} if self.type.is_inexact else {}

        def add(term: Sequence[Index], totals: Sequence[Operand]) -> list[Operand]:
            return [self._add_term(totals[0], term, k, **flags)]

        (total,) = self.low.nest([(0, t.size) for t in self.terms], [self.identity], add)
        return total

    def _sum_unrolled(self, k: Index) -> Operand:
        """The sum of all terms, unrolled."""
        total: Operand = self.identity
        for term in itertools.product(*(range(t.size) for t in self.terms)):
            total = self._add_term(total, term, k)
        return total
