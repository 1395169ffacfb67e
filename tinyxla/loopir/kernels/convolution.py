"""Convolutions as loop nests: sums of products over axes.

After the pass `canonicalize_convolutions` every index into the input, the kernel and the result is a sum of multiples
of loop indices; where the input has holes, that is so for each residue of the result's index by the distance of
elements, and where it is padded, for places whose windows have the same elements in it. So a convolution is a list of
`_Axis`, each with its step in each of the three arrays, or several of them:

    result[...] += input[...] * kernel[...]    over all axes

There are four kinds of axes: groups, which all three have; places (batch and spatial), which the kernel lacks; features
of the result, which the input lacks; and terms (input features and the window), which the result lacks.

Two nests are made of these. `_Products` is for what is close to a matrix product: the pass has put features last in the
kernel and in the result, which are matrices of terms and of places by features, and the input is read where it is (see
`gathered`). So it is for groups of few features that are all last: those of all groups are columns, of which each has
an input of its own, or some neighbours have one.
`_direct` is for the rest: types without such products, and groups of few features.

Tiles have fixed places, and the sum over the terms of a tile is continued tile by tile by the same thread, so results
do not depend on the number of threads. Where there are few places and features, as in the gradient by a kernel, the
terms are cut into pieces that are added up in the end.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tinyxla.compiler.analysis.fusibility import is_native_type
from tinyxla.compiler.fusion.plan import Fusion, Plan
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
from tinyxla.loopir.kernels.gemm.amx import MOST_TERMS
from tinyxla.loopir.kernels.gemm.microkernel import LISTED, NUMBERS, provide_list, provide_product
from tinyxla.loopir.kernels.gemm.packing import COPY, FEW_ROWS, Arithmetic, arithmetic as arithmetic_of, lines
from tinyxla.loopir.lower import pointwise
from tinyxla.loopir.lower.axes import PARALLEL_CHUNK_ELEMENTS, make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage, Temporary, Users, zero
from tinyxla.loopir.lower.reductions import combine_partials
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.ops.convolution import Convolution
from tinyxla.shapes import Shape, element_type

_MOST_PLACES = 192  # of a tile
_LEAST_PLACES = 64  # of a tile, unless there are fewer
_LEAST_FEATURES = 64  # of a tile, unless there are fewer
_MOST_TERMS = MOST_TERMS  # of a tile
_USUAL_RANK = 4  # of places and of terms
_RUNS = (4, 2, 1)  # places of a tile that lie equally apart in the input: so many divide the innermost axis
_UNITS = 8  # into how many pieces the work is cut at least, if it is enough
_ROW = 1 << 10  # sums that are computed side by side
_FEW_TERMS = 32  # that are written out


@dataclass(frozen=True)
class _Axis:
    """A loop, and how far each step of it goes in the input, in the kernel and in the result."""

    size: int
    lhs: int
    rhs: int
    out: int


_ONE = _Axis(1, 0, 0, 0)


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


class _Axes:
    """The axes of a convolution by kind, each kind from the outermost in memory to the innermost: of the result, or of
    the kernel for terms; and where they begin in each array. Of the result's places, those of these parts."""

    def __init__(self, x: Instruction, parts: Sequence[WindowRange], lhs: Sequence[int], rhs: Sequence[int]) -> None:
        dims: Convolution = x.attributes
        out = x.array_shape.dimensions
        s, t, u = map(_strides, (lhs, rhs, out))
        a, b, c = dims.dim_labels
        groups = dims.groups
        features, terms, batch = out[c[1]] // groups, rhs[b[1]], out[c[0]]
        step = s[a[0]] * batch if dims.batch_group_count > 1 else s[a[1]] * terms
        self.group = _Axis(groups, step, t[b[0]] * features, u[c[1]] * features)
        self.feature = _Axis(features, 0, t[b[0]], u[c[1]])
        self.has_features_last = features == 1 or (t[b[0]], u[c[1]]) == (1, 1)
        self.start: dict[str, int] = dict.fromkeys(("lhs", "rhs", "out"), 0)
        places, inner = [_Axis(batch, s[a[0]], 0, u[c[0]])], [_Axis(terms, s[a[1]], t[b[1]], 0)]
        for w, part, i, j, k in zip(dims.window, parts, a[2:], b[2:], c[2:], strict=True):
            first = part.first_position * w.stride + part.first_element * w.window_dilation - w.padding_low
            self.start["lhs"] += first // w.base_dilation * s[i]
            self.start["rhs"] += part.first_element * t[j]
            self.start["out"] += part.first_position * u[k]
            places.append(_Axis(part.positions, s[i] * w.stride, 0, u[k] * part.position_stride))
            inner.append(_Axis(part.elements, s[i] * w.window_dilation, t[j] * part.element_stride, 0))
        group = self.group
        stands = (group.lhs, group.rhs, group.out) == (1, features, features)
        is_by_columns = (
            features in VECTOR_MULTIPLIERS
            and groups * features > MIN_GEMM_FEATURES
            and stands
            and not has_bf16_pairs(x)
        )
        self.each = features if is_by_columns and x.array_shape.element_type.name in GEMM_TYPES else 0
        if self.each:
            self.group, self.feature = _ONE, _Axis(groups * features, 0, 1, 1)
        self.places = _merged(sorted((p for p in places if p.size != 1), key=lambda p: -p.out))
        inner = sorted((p for p in inner if p.size != 1), key=lambda p: -p.rhs)
        self.terms = _merged(inner)
        self.innermost = self.places[-1] if self.places else _ONE
        self.taps = next((p for p in inner if p.lhs == self.innermost.lhs), _ONE)  # which move windows by a place
        self.around = _merged([p for p in inner if p is not self.taps])


def _merged(axes: Sequence[_Axis]) -> list[_Axis]:
    """Neighbours that run on in all arrays are one."""
    found: list[_Axis] = []
    for axis in axes:
        if found:
            last = found[-1]
            if all(getattr(last, name) == getattr(axis, name) * axis.size for name in ("lhs", "rhs", "out")):
                found[-1] = _Axis(last.size * axis.size, axis.lhs, axis.rhs, axis.out)
                continue
        found.append(axis)
    return found


def _count(axes: Sequence[_Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def supports(x: Instruction) -> bool:
    """Whether the pass has made it simple, and kernels have its type."""
    return is_canonical(x) and is_native_type(x.array_shape)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    sizes, (lhs, _, out) = x.operands[0].array_shape.dimensions, x.attributes.dim_labels
    along = zip(x.attributes.window, lhs[2:], out[2:], strict=True)
    whole = itertools.product(*(parts_of(w, sizes[i], x.array_shape.dimensions[k]) for w, i, k in along))
    arithmetic, kernels = Arithmetic(x.array_shape.element_type.name), list[LoweredKernel]()
    arrays = [_Array(o, o.array_shape.dimensions) for o in x.operands]
    if has_bf16_pairs(x):
        arithmetic = arithmetic_of("bf16", "f32", FEW_ROWS, 1, 1) or arithmetic
        for k, array in enumerate(arrays):
            if k or arithmetic.step == 1:
                arrays[k], copy = _copied(array, arithmetic, x)
                kernels.append(copy)
            else:
                arrays[k] = _Array(array.storage, (*array.sizes[:-1], array.sizes[-1] // 2))
    parts = [_Axes(x, some, *(array.sizes for array in arrays)) for some in whole]
    products = [
        _Products(x, axes, plan, arithmetic, [array.storage for array in arrays])
        for axes in parts
        if ((is_gemm(x) and axes.has_features_last) or axes.each) and _count(axes.terms)
    ]
    after = plan.epilogues.get(x)
    together = len(products) == len(parts) and all(product.pieces == 1 for product in products)
    for product in products:
        kernels += product.lower(after if together else None)
    kernels += [_direct(x, axes, plan) for axes in parts if all(axes is not product.axes for product in products)]
    return kernels if after is None or together else [*kernels, *pointwise.lower(after, plan, users)]


class _Array(NamedTuple):
    """An operand as it is multiplied: the sizes tell how far apart elements are, or pairs of them."""

    storage: Storage
    sizes: tuple[int, ...]


@functools.cache
def _copy(kind: Arithmetic) -> Kernel:
    """Rows of bf16 as what is multiplied: pairs from each two of them, or wider elements."""
    b = ParametricBuilder("pairs", "lines columns pitch length")
    n, sizes = b.parameter, b.scratch(INDEX, len(COPY))
    source, to = b.argument("bf16"), b.argument(kind.held, True)
    routine = lines("bf16", kind, kind.step > 1)
    with b.loop(b.kernel.first, b.kernel.last) as (piece, _):
        start, stop = b.tile_range(piece, n["length"], n["lines"])
        rows = b.sub(stop, start)
        terms = b.mul(rows, kind.step)
        store_arguments(b, sizes, COPY, steps=n["columns"], row=n["columns"], rows=rows, pitch=n["pitch"], terms=terms)
        into, place = b.mul(start, n["pitch"], kind.step), b.mul(start, n["columns"], kind.step)
        b.call(routine, (to, into), (source, place), (sizes, 0))
    return b.kernel


def _copied(array: _Array, kind: Arithmetic, x: Instruction) -> tuple[_Array, LoweredKernel]:
    """An operand as pairs of rows, or as wider elements, in rows of whole vectors, with room behind for one more."""
    *outer, columns = array.sizes
    outer[-1] //= kind.step
    count, pitch = math.prod(outer), -(-columns // kind.lanes) * kind.lanes
    found = Temporary(Shape(element_type(kind.held), ((count * pitch + kind.lanes) * kind.step,)))
    length = _evenly(count, max(1, PARALLEL_CHUNK_ELEMENTS // pitch))
    numbers = (count, columns, pitch, length)
    kernel = LoweredKernel(_copy(kind), [array.storage, found], -(-count // length), 1, [x], numbers)
    return _Array(found, (*outer, pitch)), kernel


def _offset(low: Lowering, axes: Sequence[_Axis], indices: Sequence[Index], array: str) -> Index:
    """Where the element with these indices is."""
    b = low.builder
    place: Index = 0
    for axis, index in zip(axes, indices, strict=True):
        step = getattr(axis, array)
        if step:
            place = b.add(place, b.mul(index, step))
    return place


# --- products ---------------------------------------------------------------------------------------------------------


class _Products:
    """Tiles of places by features, the sums for which run over tiles of terms. What comes from sizes are numbers that
    the kernel is given, so that most convolutions have the same one."""

    def __init__(
        self, x: Instruction, axes: _Axes, plan: Plan, arithmetic: Arithmetic, operands: Sequence[Storage]
    ) -> None:
        self.x, self.axes, self.plan, self.operands = x, axes, plan, operands
        self.kind = x.array_shape.element_type
        groups, places, terms = axes.group.size, _count(axes.places), _count(axes.terms)
        parts = max(1, _UNITS // groups)
        self.blocks = -(-axes.feature.size // _LEAST_FEATURES)
        if x not in plan.epilogues:  # with which a tile should stay in the cache
            self.blocks = min(self.blocks, -(-parts // -(-places // _MOST_PLACES)))
        self.width = -(-axes.feature.size // (_LEAST_FEATURES * self.blocks)) * _LEAST_FEATURES
        self.blocks = -(-axes.feature.size // self.width)
        parts = -(-parts // self.blocks)
        self.height = _evenly(places, min(_MOST_PLACES, max(_LEAST_PLACES, -(-places // parts))))
        run = next(r for r in _RUNS if axes.innermost.size % r == 0)
        columns, depth = min(self.width, axes.feature.size), _evenly(terms, _MOST_TERMS)
        self.multiply = arithmetic.fitting(self.height, columns, depth, run)
        if self.multiply.vectors == 1 or axes.each:
            self.multiply = self.multiply.sliding(axes.innermost.size, axes.taps.size)
        self.terms = axes.terms if self.multiply.taps == 1 else axes.around
        terms = _count(self.terms)
        self.depth = _evenly(terms, _MOST_TERMS)
        self.height = -(-self.height // self.multiply.rows) * self.multiply.rows
        self.depth = -(-self.depth // self.multiply.whole) * self.multiply.whole
        self.tiles, tiles = -(-places // self.height), -(-terms // self.depth)
        self.units = groups * self.blocks * self.tiles
        is_whole = groups * places * axes.feature.size == x.array_shape.size
        pieces = min(tiles, _UNITS // self.units) if is_whole and 2 * self.units <= _UNITS else 1
        self.length = -(-tiles // pieces) * self.depth  # of a piece of the terms
        self.pieces = -(-terms // self.length)
        self.low = Lowering("convolution", plan)
        self.words: list[int] = []

    def number(self, value: int) -> Value:
        """A number that is no part of the code."""
        kernel = self.low.builder.kernel
        self.words.append(value)
        kernel.parameters.append(Value(INDEX, f"n{len(self.words)}"))
        return kernel.parameters[-1]

    def lower(self, after: Fusion | None) -> list[LoweredKernel]:
        """With a nest that is computed for each tile after it, or none."""
        x, axes = self.x, self.axes
        roots = after.roots if after is not None else []
        self.low = low = Lowering("convolution", self.plan, [x, *roots])
        b = low.builder
        lhs, rhs = map(low.buffer, self.operands)
        partial = Temporary(Shape(self.kind, (self.pieces, x.array_shape.size)))
        if after is not None:
            out = b.scratch(self.kind.name, self.height * self.width)
        else:
            out = low.buffer(x if self.pieces == 1 else partial, True)
        routine = provide_product(self.multiply, axes.each)
        numbers = b.scratch(INDEX, len(NUMBERS))
        places, terms = (self.number(_count(some)) for some in (axes.places, self.terms))
        height, depth, length, tiles, pieces, between, beside = map(
            self.number,
            (self.height, self.depth, self.length, self.tiles, self.pieces, axes.innermost.lhs, axes.taps.rhs),
        )
        groups, width, features = map(self.number, (axes.group.size, self.width, axes.feature.size))
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            block, tile, group, piece = b.delinearize(index, tiles, groups, pieces)
            feature, columns = b.tile_start_and_size(block, width, features)

            def begin_in(array: str) -> Index:
                start = b.mul(group, self.number(getattr(axes.group, array)))
                if array != "lhs":
                    start = b.add(start, b.mul(feature, getattr(axes.feature, array)))
                elif axes.each:
                    start = b.add(start, b.floordiv(feature, axes.each))
                return b.add(start, self.number(axes.start[array]))

            begins = {array: begin_in(array) for array in ("lhs", "rhs", "out")}
            whole = b.mul(piece, self.number(x.array_shape.size))
            begins["out"] = b.add(begins["out"], whole)
            first, rows = b.tile_start_and_size(tile, height, places)
            sources, results = (
                self._places(axes.places, array, begins[array], first, rows, _MOST_PLACES) for array in ("lhs", "out")
            )
            targets = results
            if after is not None:
                targets = self._places([_Axis(self.height, 0, 0, self.width)], "out", 0, 0, rows, _MOST_PLACES)
            begin, end = b.tile_range(piece, length, terms)
            with low.loop(0, b.ceil_div(b.sub(end, begin), depth), sequential=True) as (step, _):
                term = b.add(begin, b.mul(step, depth))
                count = b.min(b.sub(end, term), depth)
                inner = [
                    self._places(self.terms, array, start, term, count, _MOST_TERMS)
                    for array, start in (("lhs", 0), ("rhs", begins["rhs"]))
                ]
                _put(low, numbers, (rows, columns, count, b.min(step, 1), between, beside))
                b.call(
                    routine, (out, 0), (lhs, 0), (rhs, 0), *((into, 0) for into in (sources, targets, *inner, numbers))
                )
            if after is not None:
                self._finish(after, out, results, rows, columns)
        work = self.height * self.length * self.multiply.taps * (1 + self.width // 16) * (1 + bool(axes.each))
        found = make_kernel(low, self.units * self.pieces, work, [x, *roots])
        found.parameters = tuple(self.words)
        return [found] if self.pieces == 1 else [found, combine_partials(partial, x, self.plan)]

    def _finish(self, after: Fusion, tile: Buffer, places: Buffer, rows: Index, columns: Index) -> None:
        """Compute what is made of the elements of a tile, whose rows begin at these places in the result."""
        low, b, sizes = self.low, self.low.builder, self.x.array_shape.dimensions
        with low.loop(0, rows) as (i, _):
            place = low.split_index(b.load(places, i), sizes)
            outer = tuple(0 if size == 1 else c for c, size in zip(place[:-1], sizes, strict=False))
            row = b.mul(i, self.width)
            with low.loop(0, columns) as (j, _):
                coordinates = (*outer, b.add(place[-1], j))
                low.bind_value(self.x, coordinates, b.load(tile, b.add(row, j)))
                for root in after.roots:
                    low.emit_root(root, coordinates)

    def _places(self, axes: list[_Axis], array: str, start: Index, first: Index, count: Index, most: int) -> Buffer:
        """Memory with the places in an array of so many elements along the axes."""
        b = self.low.builder
        into, given = b.scratch(INDEX, most + LISTED), b.scratch(INDEX, 4 + 3 * max(_USUAL_RANK, len(axes)))
        sizes = [(self.number(axis.size), self.number(getattr(axis, array)), 0) for axis in _filled(axes)]
        _put(self.low, given, (start, first, count, len(sizes), *itertools.chain(*sizes)))
        b.call(provide_list(), (into, 0), (given, 0))
        return into


def _evenly(count: int, most: int) -> int:
    """The size of equal pieces of at most so many."""
    return -(-count // -(-count // most))


def _filled(axes: list[_Axis]) -> list[_Axis]:
    """The axes from the innermost, with as many as there usually are."""
    return [*reversed(axes), *[_ONE] * (_USUAL_RANK - len(axes))]


def _put(low: Lowering, into: Buffer, numbers: Sequence[Index]) -> None:
    for k, number in enumerate(numbers):
        low.builder.store(into, k, Literal(INDEX, number) if isinstance(number, int) else number)


# --- sums without products --------------------------------------------------------------------------------------------


def _direct(x: Instruction, axes: _Axes, plan: Plan) -> LoweredKernel:
    """The result's innermost axis is the loop inside of that over the terms, with a row of sums; but few terms are
    written out inside of it, and terms that are contiguous where this axis is not, or is shorter, have the inner loop.
    """
    low = Lowering("convolution", plan)
    b = low.builder
    lhs, rhs = (low.buffer(o) for o in x.operands)
    out = low.buffer(x, True)
    kind = x.array_shape.element_type
    reassociate = {"reassociate": True} if kind.is_inexact else {}
    whole = sorted((a for a in (axes.group, axes.feature, *axes.places) if a.size != 1), key=lambda a: -a.out)
    *outer, inner = whole or [axes.feature]
    width = min(inner.size, _ROW)
    pieces = -(-inner.size // width)
    terms = axes.terms or [_ONE]
    nothing = zero(x.array_shape)

    def plus(total: Operand, more: Sequence[Index], k: Index, **how: bool) -> Operand:
        """The sum with the product of one term for the k-th element."""
        elements: list[Operand] = []
        for buffer, name in ((lhs, "lhs"), (rhs, "rhs")):
            place = b.add(at[name], b.mul(k, getattr(inner, name)))
            elements.append(b.load(buffer, b.add(place, _offset(low, terms, more, name))))
        return b.compute("add", kind.name, total, b.compute("multiply", kind.name, *elements), **how)

    def deliver(k: Index, total: Operand) -> None:
        b.store(out, b.add(at["out"], b.mul(k, inner.out)), total)

    def by_terms(k: Index) -> None:
        bounds: list[tuple[Index, Index]] = [(0, t.size) for t in terms]
        (total,) = low.nest(bounds, [nothing], lambda more, totals: [plus(totals[0], more, k, **reassociate)])
        deliver(k, total)

    def written_out(k: Index) -> None:
        total: Operand = nothing
        for more in itertools.product(*(range(t.size) for t in terms)):
            total = plus(total, more, k)
        deliver(k, total)

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        *indices, piece = low.split_index(index, [*(a.size for a in outer), pieces])
        begin = b.mul(piece, width)
        count = b.min(b.sub(inner.size, begin), width)
        start = [*indices, begin]
        at = {
            name: b.add(_offset(low, whole or [axes.feature], start, name), axes.start[name])
            for name in ("lhs", "rhs", "out")
        }
        last = terms[-1]
        if (last.lhs == 1, last.size) > (inner.lhs == 1, inner.size) or _count(terms) <= _FEW_TERMS:
            with low.loop(0, count) as (k, _):
                written_out(k) if _count(terms) <= _FEW_TERMS else by_terms(k)
        else:
            row = b.scratch(kind.name, width)
            with low.loop(0, count) as (k, _):
                b.store(row, k, nothing)

            def add(more: Sequence[Index], values: Sequence[Operand]) -> Sequence[Operand]:
                with low.loop(0, count) as (k, _):
                    b.store(row, k, plus(b.load(row, k), more, k))
                return values

            low.nest([(0, t.size) for t in terms], (), add, sequential=True)
            with low.loop(0, count) as (k, _):
                deliver(k, b.load(row, k))
    return make_kernel(low, _count(outer) * pieces, width * _count(terms), [x])
