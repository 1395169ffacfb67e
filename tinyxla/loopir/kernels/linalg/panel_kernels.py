"""Panel kernels of dense factorizations (getf2, potf2, laswp and small trsm), in vectors.

A panel holds columns of a block of a matrix one after the other, `pitch` elements apart, so that vectors run along
columns. Behind its last row and column is padding of any value. In a matrix, vectors run along its rows, which are
`pitch` elements apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tinyxla.compiler.costs import INTERLEAVED
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Literal, Operand, Value, operand_of
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.gemm.arithmetic import bits_of
from tinyxla.loopir.lower.routine_calls import ParametricBuilder
from tinyxla.loopir.target import vector_bytes

GETF2_ARGUMENTS = ("rows", "columns", "pitch", "first_row")
SWAP_ROWS_ARGUMENTS = ("pivot_count", "columns", "pitch", "first_row")
POTF2_ARGUMENTS = ("order", "pitch")
TRSM_ARGUMENTS = tuple("unknowns columns matrix_start pitch factors_start row_stride column_stride unit".split())


def lanes(type: str) -> int:
    """Elements of a vector."""
    return 8 * vector_bytes() // bits_of(type)


@functools.cache
def getf2(type: str) -> str:
    """Declare `getf2(panel, pivots, arguments)` and return its symbol: unblocked LU with partial pivoting, in place.

    The pivot is the first row whose element has the largest magnitude; pivots count from `first_row`. Columns are
    processed in groups: a group is factored, and then applied to all columns behind it.
    """
    b = _Getf2Builder(type)
    b.factor()
    return declare_kernel(f"getf2_{type}", b.kernel)


class _Step(NamedTuple):
    """Elimination below the diagonal of column k, whose vectors begin at row `start`. `diagonal_row` is k in all
    lanes."""

    k: Index
    column: Buffer
    start: Index
    diagonal_row: Value


class _Getf2Builder(ParametricBuilder):
    """Builds getf2."""

    def __init__(self, type: str) -> None:
        super().__init__("getf2", " ".join(GETF2_ARGUMENTS))
        self.type, self.lanes = type, lanes(type)
        self.panel, self.pivots = self.argument(type, True), self.argument("s32", True)
        self.rows, self.columns, self.pitch, self.first_row = self.kernel.parameters

    def factor(self) -> None:
        steps = self.min(self.rows, self.columns)
        row_count = self.broadcast(self.convert("s32", self.rows), self.lanes)
        with self.loop(0, steps, sequential=True) as (k, _):
            start = self.mul(self.floordiv(k, self.lanes), self.lanes)
            step = _Step(k, self._column(k), start, self.broadcast(self.convert("s32", k), self.lanes))
            pivot = self._find_pivot(step, row_count)
            self.store(self.pivots, k, self.convert("s32", self.add(pivot, self.first_row)))
            self._swap_rows(k, pivot)
            self._divide(step)
            group_end = self.mul(self.add(self.floordiv(k, INTERLEAVED), 1), INTERLEAVED)
            is_group = self.compare("LE", group_end, steps)
            self._update_group(step, self.select(is_group, group_end, self.columns))
            ends_group = self.and_(is_group, self.compare("EQ", self.add(k, 1), group_end))
            with self.when(ends_group):
                self._update_trailing(step)

    def _column(self, j: Index) -> Buffer:
        return self.view(self.panel, self.mul(j, self.pitch))

    def _row_numbers(self, row: Index) -> Value:
        """The numbers of the rows of a vector."""
        return self.iota(self.convert("s32", row), self.lanes)

    @contextmanager
    def _vectors(self, step: _Step) -> Generator[tuple[Index, Value]]:
        """A loop over the vectors of a column; gives the first row of each, and which rows are below the diagonal."""
        with self.loop(step.start, self.rows, sequential=True, step=self.lanes) as (row, _):
            yield row, self.compare("GT", self._row_numbers(row), step.diagonal_row)

    def _multiply_add(self, x: Operand, y: Operand, addend: Operand) -> Value:
        return self.compute("multiply-add", self.type, x, y, addend)

    def _negated(self, x: Operand) -> Value:
        return self.compute("negate", self.type, x)

    def _find_pivot(self, step: _Step, row_count: Value) -> Value:
        """The first row from the diagonal on with the largest element: in each lane, then of all lanes."""
        initial = [self.broadcast(Literal(self.type, 0.0), self.lanes), step.diagonal_row]
        with self.loop(step.start, self.rows, initial, sequential=True, step=self.lanes) as (i, loop):
            largest, largest_row = loop.carried
            magnitude = self.compute("abs", self.type, self.load(step.column, i, self.lanes))
            row = self._row_numbers(i)
            is_row = self.and_(self.compare("GE", row, step.diagonal_row), self.compare("LT", row, row_count))
            is_larger = self.and_(is_row, self.compare("GT", magnitude, largest.arg))
            largest.next = self.select(is_larger, magnitude, largest.arg)
            largest_row.next = self.select(is_larger, row, largest_row.arg)
        column_largest = self.broadcast(self._fold_lanes("maximum", largest.result), self.lanes)
        is_largest = self.compare("EQ", largest.result, column_largest)
        candidates = self.select(is_largest, largest_row.result, row_count)
        return self.convert("s64", self._fold_lanes("minimum", candidates))

    def _fold_lanes(self, op: str, x: Value) -> Value:
        """The lanes of a vector combined to a scalar, by halves."""
        while x.lanes > 1:
            half = x.lanes // 2
            x = self.compute(op, x.type, self.shuffle(range(half), x), self.shuffle(range(half, x.lanes), x))
        return x

    def _swap_rows(self, k: Index, pivot: Index) -> None:
        with self.loop(0, self.columns, sequential=True) as (j, _):
            column = self._column(j)
            x, y = self.load(column, k), self.load(column, pivot)
            self.store(column, k, y)
            self.store(column, pivot, x)

    def _divide(self, step: _Step) -> None:
        """Divide the column by the pivot, unless that is zero."""
        pivot = self.load(step.column, step.k)
        is_zero = self.compare("EQ", pivot, Literal(self.type, 0.0))
        divisor = self.broadcast(self.select(is_zero, Literal(self.type, 1.0), pivot), self.lanes)
        with self._vectors(step) as (i, is_below):
            x = self.load(step.column, i, self.lanes)
            self.store(step.column, i, self.select(is_below, self.compute("divide", self.type, x, divisor), x))

    def _update_group(self, step: _Step, end: Index) -> None:
        """Eliminate in the columns behind, up to `end`."""
        with self.loop(self.add(step.k, 1), end, sequential=True) as (j, _):
            target = self._column(j)
            top = self.broadcast(self.load(target, step.k), self.lanes)
            with self._vectors(step) as (i, is_below):
                multiplier, x = self.load(step.column, i, self.lanes), self.load(target, i, self.lanes)
                difference = self._multiply_add(self._negated(multiplier), top, x)
                self.store(target, i, self.select(is_below, difference, x))

    def _update_trailing(self, step: _Step) -> None:
        """Apply the group that ends with a step's column to all columns behind it: its rows by substitution, those
        below by a product of the group."""
        group_rows = [self.sub(step.k, INTERLEAVED - 1 - s) for s in range(INTERLEAVED)]
        group = [self._column(row) for row in group_rows]
        multipliers = [[self._negated(self.load(x, row)) for x in group[:r]] for r, row in enumerate(group_rows)]
        with self.loop(self.add(step.k, 1), self.columns, sequential=True, step=INTERLEAVED) as (j, _):
            columns = [self._column(self.add(j, v)) for v in range(INTERLEAVED)]
            tops = [self._substitute(column, group_rows, multipliers) for column in columns]
            with self._vectors(step) as (i, is_below):
                below = [self._negated(self.load(x, i, self.lanes)) for x in group]
                for column, top in zip(columns, tops, strict=True):
                    x = difference = self.load(column, i, self.lanes)
                    for multiplier, y in zip(below, top, strict=True):
                        difference = self._multiply_add(multiplier, y, difference)
                    self.store(column, i, self.select(is_below, difference, x))

    def _substitute(
        self, column: Buffer, group_rows: Sequence[Index], multipliers: Sequence[Sequence[Value]]
    ) -> list[Value]:
        """Solve for the group's rows of a column; the result are broadcasts of them."""
        known: list[Value] = []
        for row, factors in zip(group_rows, multipliers, strict=True):
            x = self.load(column, row)
            for factor, y in zip(factors, known, strict=True):
                x = self._multiply_add(factor, y, x)
            self.store(column, row, x)
            known.append(x)
        return [self.broadcast(x, self.lanes) for x in known]


@functools.cache
def swap_rows(type: str) -> str:
    """Declare `swap_rows(matrix, pivots, arguments)` and return its symbol: swap row `first_row` + k with row
    pivots[k], for all k in order (laswp)."""
    b, count = ParametricBuilder("swap_rows", " ".join(SWAP_ROWS_ARGUMENTS)), lanes(type)
    matrix, pivots, n = b.argument(type, True), b.argument("s32"), b.parameter
    with b.loop(0, n["pivot_count"], sequential=True) as (k, _):
        pivot, row = b.convert("s64", b.load(pivots, k)), b.add(n["first_row"], k)
        rows = [b.view(matrix, b.mul(i, n["pitch"])) for i in (row, pivot)]
        columns = b.select(b.compare("NE", row, pivot), n["columns"])
        with b.loop(0, columns, sequential=True, step=count) as (j, _):
            mask = b.lane_mask(j, n["columns"], count)
            x, y = (b.load(row, j, count, mask=mask) for row in rows)
            b.store(rows[0], j, y, mask=mask)
            b.store(rows[1], j, x, mask=mask)
    return declare_kernel(f"swap_rows_{type}", b.kernel)


@functools.cache
def trsm(type: str, vectors: int = INTERLEAVED) -> str:
    """Declare `trsm(matrix, factors, arguments)` and return its symbol: forward substitution in place.

    The first `unknowns` rows of the matrix, from `matrix_start` on, are right-hand sides. The triangle, from
    `factors_start` on, has strides `row_stride` and `column_stride`, and a diagonal of ones if `unit` is 1. The pitch
    and the strides may be negative. Each iteration solves for `vectors` vectors of columns.
    """
    b = _SubstitutionBuilder("trsm", TRSM_ARGUMENTS, type, vectors)
    n, factors = b.parameter, b.argument(type)

    def divide(row: Buffer, sums: Sequence[Value], masks: Sequence[Value], diagonal: Index) -> None:
        """Divide by the diagonal, unless that is a one."""
        has_ones = b.compare("EQ", n["unit"], 1)
        quotients = b.branch(has_ones, lambda: sums, lambda: b.quotients(sums, b.load(factors, diagonal)))
        b.store_vectors(row, quotients, masks)

    triangle = _Triangle(factors, n["factors_start"], n["row_stride"], n["column_stride"])
    b.substitute(triangle, n["unknowns"], n["columns"], n["matrix_start"], divide)
    return declare_kernel(f"trsm_{vectors}_{type}", b.kernel)


@functools.cache
def potf2(type: str, vectors: int) -> str:
    """Declare `potf2(matrix, arguments)` and return its symbol: unblocked Cholesky, in place, of the upper factor U in
    U' U.

    It is a substitution whose triangle is the factor, as far as that is computed. A pivot that is not positive is left
    as it is.
    """
    b = _SubstitutionBuilder("potf2", POTF2_ARGUMENTS, type, vectors)
    n = b.parameter

    def divide(row: Buffer, sums: Sequence[Value], masks: Sequence[Value], diagonal: Index) -> None:
        """Divide by the square root of the pivot."""
        b.store_vectors(row, sums, masks)
        pivot = b.load(b.matrix, diagonal)
        is_not_positive = b.compare("LE", pivot, Literal(type, 0.0))
        root = b.select(is_not_positive, pivot, b.compute("sqrt", type, pivot))
        b.store_vectors(row, b.quotients(sums, root), masks)
        b.store(b.matrix, diagonal, root)

    b.substitute(_Triangle(b.matrix, 0, 1, n["pitch"]), n["order"], n["order"], 0, divide)
    return declare_kernel(f"potf2_{vectors}_{type}", b.kernel)


class _Triangle(NamedTuple):
    """A triangle of factors: element (k, s) stands at start + k row_stride + s column_stride."""

    factors: Buffer
    start: Index
    row_stride: Index
    column_stride: Index


# divide(row, sums, masks, diagonal): store a row of quotients of sums, given the position of the diagonal's element.
_Divide = Callable[[Buffer, Sequence[Value], Sequence[Value], Index], None]


class _SubstitutionBuilder(ParametricBuilder):
    """Builds forward substitution on rows of a matrix, for some vectors of columns at a time."""

    def __init__(self, name: str, arguments: Sequence[str], type: str, vectors: int) -> None:
        super().__init__(name, " ".join(arguments))
        self.type, self.lanes, self.vectors = type, lanes(type), vectors
        self.matrix = self.argument(type, True)

    def substitute(self, triangle: _Triangle, unknowns: Index, columns: Index, start: Index, divide: _Divide) -> None:
        """For each unknown: from its row, subtract the rows before times their factors; then divide by the diagonal."""
        pitch = self.parameter["pitch"]
        with self.loop(0, columns, sequential=True, step=self.vectors * self.lanes) as (j, _):
            masks = [self.lane_mask(self.add(j, position), columns, self.lanes) for position in self._positions()]
            first_row = self.add(start, j)
            with self.loop(0, unknowns, sequential=True) as (k, _):
                row = self.view(self.matrix, self.add(first_row, self.mul(k, pitch)))
                first_factor = self.add(triangle.start, self.mul(k, triangle.row_stride))
                carried = [operand_of(first_factor), operand_of(first_row), *self._load_vectors(row, masks)]
                with self.loop(0, k, carried, sequential=True) as (_, terms):
                    factor, known_row, *sums = terms.carried
                    negated = self.compute("negate", self.type, self.load(triangle.factors, factor.arg))
                    x = self.broadcast(negated, self.lanes)
                    known = self._load_vectors(self.view(self.matrix, known_row.arg), masks)
                    for total, y in zip(sums, known, strict=True):
                        total.next = self.compute("multiply-add", self.type, x, y, total.arg)
                    factor.next = operand_of(self.add(factor.arg, triangle.column_stride))
                    known_row.next = operand_of(self.add(known_row.arg, pitch))
                divide(row, [total.result for total in sums], masks, factor.result)

    def _positions(self) -> range:
        """Where the vectors of a row are."""
        return range(0, self.vectors * self.lanes, self.lanes)

    def _load_vectors(self, row: Buffer, masks: Sequence[Value]) -> list[Value]:
        return [self.load(row, k, self.lanes, mask=mask) for k, mask in zip(self._positions(), masks, strict=True)]

    def store_vectors(self, row: Buffer, values: Sequence[Value], masks: Sequence[Value]) -> None:
        for position, value, mask in zip(self._positions(), values, masks, strict=True):
            self.store(row, position, value, mask=mask)

    def quotients(self, values: Sequence[Value], divisor: Value) -> list[Value]:
        divisors = self.broadcast(divisor, self.lanes)
        return [self.compute("divide", self.type, x, divisors) for x in values]
