"""Convolutions as loop nests: sums of products over axes.

After the pass `canonicalize_convolutions` every index into the input, the kernel and the result is a sum of multiples
of loop indices. So a convolution is a list of `_Axis`, each with its step in each of the three arrays:

    result[...] += input[...] * kernel[...]    over all axes

There are four kinds of axes: groups, which all three have; places (batch and spatial), which the kernel lacks; features
of the result, which the input lacks; and terms (input features and the window), which the result lacks.

Two nests are made of these. `_Products` is for the types that the BLAS has: a tile of the input, places by terms, is
copied to a matrix in the cache (all that a convolution adds to a matrix product) and multiplied with the kernel, which
is a matrix of terms by features as it stands. `_direct` is for the rest: integers, and groups of few features as in a
depthwise convolution, of which the BLAS makes nothing.

Tiles have fixed places, and the sum over the terms of a tile is continued tile by tile by the same thread, so results
do not depend on the number of threads. Where there are few places and features, as in the gradient by a kernel, the
terms are cut into pieces that are added up in the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import Buffer, Index, Matrix, Operand
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Users, zero
from tinyxla.compiler.fusion import Plan, supported
from tinyxla.hlo import Instruction
from tinyxla.ops.convolution import Convolution
from tinyxla.shapes import Shape

_TILE_BYTES = 192 * 1024  # of a matrix of places by terms, on a thread's stack
_MOST_TERMS = 512  # of a tile
_FEW_FEATURES = 4  # of a group; with fewer, products are a waste
_UNITS = 8  # into how many pieces the work is cut at least, if it is enough
_ROW = 1 << 10  # sums that are computed side by side
_FEW_TERMS = 32  # that are written out
_MANY_TERMS = 64  # which the BLAS sums faster, even for one feature
_BLAS_TYPES = ("f32", "f64", "c64", "c128")


@dataclass(frozen=True)
class _Axis:
    """A loop, and how far each step of it goes in the input, in the kernel and in the result."""

    size: int
    lhs: int
    rhs: int
    out: int


def _strides(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


class _Axes:
    """The axes of a convolution by kind, each kind from the outermost in memory to the innermost: of the result, or of
    the kernel for terms."""

    def __init__(self, x: Instruction) -> None:
        dims: Convolution = x.attributes
        lhs, rhs, out = (o.array_shape.dimensions for o in (*x.operands, x))
        s, t, u = map(_strides, (lhs, rhs, out))
        a, b, c = dims.dim_labels
        groups = dims.groups
        features, terms, batch = rhs[b[0]] // groups, rhs[b[1]], out[c[0]]
        step = s[a[0]] * batch if dims.batch_group_count > 1 else s[a[1]] * terms
        self.group = _Axis(groups, step, t[b[0]] * features, u[c[1]] * features)
        self.feature = _Axis(features, 0, t[b[0]], u[c[1]])
        places, inner = [_Axis(batch, s[a[0]], 0, u[c[0]])], [_Axis(terms, s[a[1]], t[b[1]], 0)]
        for w, i, j, k in zip(dims.window, a[2:], b[2:], c[2:], strict=True):
            places.append(_Axis(out[k], s[i] * w.stride, 0, u[k]))
            inner.append(_Axis(rhs[j], s[i] * w.window_dilation, t[j], 0))
        self.places = _merged(sorted((p for p in places if p.size > 1), key=lambda p: -p.out))
        self.terms = _merged(sorted((p for p in inner if p.size > 1), key=lambda p: -p.rhs))


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
    dims: Convolution = x.attributes
    simple = all(w[2:4] == (0, 0) and w[5:] == (1, False) for w in dims.window)
    return simple and dims.preferred_element_type is None and supported(x.array_shape)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    axes = _Axes(x)
    terms = _count(axes.terms)
    worthwhile = axes.group.size == 1 and terms >= _MANY_TERMS
    few = terms < _FEW_FEATURES or (axes.feature.size < _FEW_FEATURES and not worthwhile)
    if few or x.array_shape.element_type.name not in _BLAS_TYPES:
        return [_direct(x, axes, plan)]
    from tinyxla.backends.numba.blas import provide_multiplier  # here, since SciPy takes long to load

    provide_multiplier(x.array_shape.element_type.name)  # pyright: ignore[reportArgumentType]
    return _Products(x, axes).lower(plan)


def _offset(low: Lowering, axes: Sequence[_Axis], indices: Sequence[Index], array: str) -> Index:
    """Where the element with these indices is."""
    b = low.builder
    place: Index = 0
    for axis, index in zip(axes, indices, strict=True):
        step = getattr(axis, array)
        if step:
            place = b.index("add", place, b.index("multiply", index, step))
    return place


# --- products ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """Axes cut into tiles: `rows` of all but the innermost axis, of which a tile takes the whole, or if that is long,
    a piece of one row."""

    outer: list[_Axis]
    inner: _Axis
    rows: int  # of a tile
    width: int

    @staticmethod
    def of(axes: Sequence[_Axis], most: int) -> _Run:
        inner = axes[-1] if axes else _Axis(1, 0, 0, 0)
        outer = list(axes[:-1])
        if inner.size > most:
            return _Run(outer, inner, 1, -(-inner.size // -(-inner.size // most)))
        rows = max(1, most // inner.size)
        tiles = -(-_count(outer) // rows)
        return _Run(outer, inner, -(-_count(outer) // tiles), inner.size)

    @property
    def most(self) -> int:
        """Elements of a tile."""
        return self.rows * self.width

    @property
    def across(self) -> int:
        return -(-self.inner.size // self.width)

    @property
    def tiles(self) -> int:
        return -(-_count(self.outer) // self.rows) * self.across


@dataclass(frozen=True)
class _Tile:
    """A tile of a run: its first row and how many, its first column and how many; and where it begins in the run."""

    run: _Run
    row: Index
    rows: Index
    column: Index
    columns: Index
    first: Index
    size: Index

    @staticmethod
    def of(low: Lowering, run: _Run, tile: Index) -> _Tile:
        b = low.builder
        row = b.index("multiply", b.index("divide", tile, run.across), run.rows)
        column = b.index("multiply", b.index("remainder", tile, run.across), run.width)
        rows = b.index("minimum", b.index("subtract", _count(run.outer), row), run.rows)
        columns = b.index("minimum", b.index("subtract", run.inner.size, column), run.width)
        first = b.index("add", b.index("multiply", row, run.inner.size), column)
        return _Tile(run, row, rows, column, columns, first, b.index("multiply", rows, columns))

    def row_offset(self, low: Lowering, row: Index) -> Index:
        """Where the row-th row of the tile begins in the input."""
        indices = low.split_index(low.builder.index("add", self.row, row), [a.size for a in self.run.outer])
        b = low.builder
        start = b.index("multiply", self.column, self.run.inner.lhs)
        return b.index("add", _offset(low, self.run.outer, indices, "lhs"), start)


class _Products:
    """Which tiles there are, and the loops over them.

    The result is a matrix of places by features; or, if features are not last in memory, of features by the places
    `together` that come after them, for each of the places `apart` that come before.
    """

    def __init__(self, x: Instruction, axes: _Axes) -> None:
        self.x, self.axes = x, axes
        self.kind = x.array_shape.element_type
        self.features_last = axes.feature.out == 1
        self.apart = [] if self.features_last else [p for p in axes.places if p.out > axes.feature.out]
        self.together = [p for p in axes.places if p not in self.apart]
        most = _TILE_BYTES // self.kind.dtype.itemsize
        self.terms = _Run.of(axes.terms, _MOST_TERMS)
        outer = axes.group.size * _count(self.apart)
        units = max(1, _UNITS // outer)
        self.places = _Run.of(self.together, min(most // self.terms.most, max(64, -(-_count(self.together) // units))))
        self.units = outer * self.places.tiles
        pieces = min(self.terms.tiles, _UNITS // self.units) if 2 * self.units <= _UNITS else 1
        self.length = -(-self.terms.tiles // pieces)  # of a piece of the terms, in tiles
        self.pieces = -(-self.terms.tiles // self.length)
        self.along_terms = _is_along_terms(self.places.inner, self.terms.inner)
        self.pitch = self.terms.most if self.along_terms else self.places.most

    def lower(self, plan: Plan) -> list[LoweredKernel]:
        x, places, terms = self.x, self.places, self.terms
        low = Lowering("convolution", plan)
        b = low.builder
        lhs, rhs = (low.buffer(o) for o in x.operands)
        partial = Partial(Shape(self.kind, (self.pieces, x.array_shape.size)))
        out = low.buffer(x if self.pieces == 1 else partial, True)
        copy = b.scratch(self.kind.name, places.most * terms.most)
        fixed = [self.axes.group, *self.apart]
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            *outer, tile, piece = low.split_index(index, [*(a.size for a in fixed), places.tiles, self.pieces])
            source, kernel, result = (_offset(low, fixed, outer, name) for name in ("lhs", "rhs", "out"))
            result = b.index("add", result, b.index("multiply", piece, x.array_shape.size))
            here = _Tile.of(low, places, tile)
            begin = b.index("multiply", piece, self.length)
            end = b.index("minimum", b.index("add", begin, self.length), terms.tiles)
            with low.loop(begin, end, sequential=True) as (part, _):
                inner = _Tile.of(low, terms, part)
                _copy(low, lhs, copy, source, here, inner, self.along_terms, self.pitch)
                more = b.index("minimum", b.index("subtract", part, begin), 1)
                self._multiply(low, (out, result), copy, (rhs, kernel), here, inner, more)
        work = places.most * terms.most * self.length * (1 + self.axes.feature.size // 16)
        first = finished(low, self.units * self.pieces, work, [x])
        return [first] if self.pieces == 1 else [first, _sum_of(partial, x, plan)]

    def _multiply(
        self,
        low: Lowering,
        result: tuple[Buffer, Index],
        copy: Buffer,
        kernel: tuple[Buffer, Index],
        places: _Tile,
        terms: _Tile,
        more: Index,
    ) -> None:
        """The product of a tile and the part of the kernel that goes with it."""
        b, feature = low.builder, self.axes.feature

        def part(of: tuple[Buffer, Index], tile: _Tile, step: int, pitch: int, transposed: bool) -> Matrix:
            return Matrix(of[0], b.index("add", of[1], b.index("multiply", tile.first, step)), pitch, transposed)

        place, term = self.together[-1].out if self.together else 1, self.axes.terms[-1].rhs
        by_terms = feature.rhs == 1  # the rows of the kernel
        factor = part(kernel, terms, term, term if by_terms else feature.rhs, by_terms != self.features_last)
        # the pitch of a single row does not matter, but the BLAS wants it to be as long as the row
        pitch = place if self.features_last else max(feature.out, self.places.most)
        into = part(result, places, place, pitch, False)
        tile = Matrix(copy, 0, self.pitch, self.along_terms != self.features_last)
        if self.features_last:
            b.multiply(into, tile, factor, (places.size, feature.size, terms.size), more)
        else:
            b.multiply(into, factor, tile, (feature.size, places.size, terms.size), more)


def _sum_of(partial: Partial, x: Instruction, plan: Plan) -> LoweredKernel:
    """The pieces of the sums over the terms, together."""
    low = Lowering("pieces", plan)
    b = low.builder
    pieces, size = partial.shape.dimensions
    with low.loop(b.kernel.first, b.kernel.last) as (k, _):
        total = low.load(partial, (0, k))
        for piece in range(1, pieces):
            total = b.compute("add", x.array_shape.element_type.name, total, low.load(partial, (piece, k)))
        b.store(low.buffer(x, True), k, total)
    return finished(low, size, pieces, [x])


def _is_along_terms(places: _Axis, terms: _Axis) -> bool:
    """Whether to copy terms in the inner loop: of the two axes, the one that is contiguous in the input, and long."""
    return (terms.lhs == 1, terms.size) > (places.lhs == 1, places.size)


def _copy(
    low: Lowering,
    lhs: Buffer,
    tile: Buffer,
    start: Index,
    places: _Tile,
    terms: _Tile,
    along_terms: bool,
    pitch: int,
) -> None:
    """The part of the input that a tile of places and one of terms see, as a matrix."""
    b = low.builder
    outer, inner = (places, terms) if along_terms else (terms, places)
    with low.loop(0, outer.rows) as (i, _), low.loop(0, inner.rows) as (j, _):
        source = b.index("add", start, b.index("add", outer.row_offset(low, i), inner.row_offset(low, j)))
        row = b.index("multiply", b.index("multiply", i, outer.columns), pitch)
        target = b.index("add", row, b.index("multiply", j, inner.columns))
        with low.loop(0, outer.columns) as (k, _):
            begin = b.index("add", source, b.index("multiply", k, outer.run.inner.lhs))
            line = b.index("add", target, b.index("multiply", k, pitch))
            with low.loop(0, inner.columns) as (m, _):
                value = b.load(lhs, b.index("add", begin, b.index("multiply", m, inner.run.inner.lhs)))
                b.store(tile, b.index("add", line, m), value)


# --- sums without the BLAS --------------------------------------------------------------------------------------------


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
    whole = sorted((a for a in (axes.group, axes.feature, *axes.places) if a.size > 1), key=lambda a: -a.out)
    *outer, inner = whole or [axes.feature]
    width = min(inner.size, _ROW)
    pieces = -(-inner.size // width)
    terms = axes.terms or [_Axis(1, 0, 0, 0)]
    nothing = zero(x.array_shape)

    def plus(total: Operand, more: Sequence[Index], k: Index, **how: bool) -> Operand:
        """The sum with the product of one term for the k-th element."""
        elements: list[Operand] = []
        for buffer, name in ((lhs, "lhs"), (rhs, "rhs")):
            place = b.index("add", at[name], b.index("multiply", k, getattr(inner, name)))
            elements.append(b.load(buffer, b.index("add", place, _offset(low, terms, more, name))))
        return b.compute("add", kind.name, total, b.compute("multiply", kind.name, *elements), **how)

    def deliver(k: Index, total: Operand) -> None:
        b.store(out, b.index("add", at["out"], b.index("multiply", k, inner.out)), total)

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
        begin = b.index("multiply", piece, width)
        count = b.index("minimum", b.index("subtract", inner.size, begin), width)
        start = [*indices, begin]
        at = {name: _offset(low, whole or [axes.feature], start, name) for name in ("lhs", "rhs", "out")}
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
    return finished(low, _count(outer) * pieces, width * _count(terms), [x])
