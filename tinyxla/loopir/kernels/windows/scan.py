"""The beginnings or ends of lines, folded: cumulative sums and their like.

Lines are gone through by *runs*, side by side, since each element of one waits for the last: these are columns,
lines, or parts of a line, what comes before which is known from the folds of those before it. Few long lines are cut
into pieces, too, for threads. Memory is read once and written once: a piece is folded, which brings it to the cache,
waits for what comes before it, hands on what comes before the next piece, and is then gone through.
Source: D. Merrill and M. Garland, "Single-pass parallel prefix scan with decoupled look-back", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tinyxla.compiler.analysis.fusibility import is_costly
from tinyxla.compiler.passes.canonicalize.reduce_window import MIN_VECTOR_COLUMNS
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Operand
from tinyxla.loopir.kernels.windows import vector_scan
from tinyxla.loopir.kernels.windows.window_reduction import Fold, Line, load, store
from tinyxla.loopir.lower.axes import PARALLEL_CHUNK_ELEMENTS, make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Storage, Temporary
from tinyxla.ops import reduction
from tinyxla.shapes import Shape, element_type

ROW = 1 << 10  # results
LINES = 4  # folded together, since one waits for its last element
FEW_LINES = 8  # fewer than this, and lines are cut
SHORT = 128  # rows
SHORTEST = 32  # of which vectors are made
WRITTEN_OUT = 8  # columns, which become one vector
NARROWEST = 128  # columns that are gone through together, where there are more
WIDE = 1 << 14  # bytes of such columns, past the caches
ROWS = 16  # of a piece of columns, at least


class _Scan:
    """One kernel. Rows are the elements along lines, counted from where these begin, or from their ends if it is
    `backward`; a piece has so many `parts`, which are runs."""

    def __init__(
        self,
        fold: Fold,
        line: Line,
        targets: list[Storage],
        backward: bool,
        few: bool,
        parts: int = 1,
        width: int = 1,
    ) -> None:
        self.fold, self.line, self.targets, self.backward, self.parts = fold, line, targets, backward, parts
        self.low = fold.lowering("scan")
        self.starts = [self.low.value(o, ()) for o in fold.x.operands[len(fold.x.operands) // 2 :]]
        self.puts_first = backward and not fold.is_commutative  # the initial value, for each result
        self.columns = -(-line.inner // width)  # blocks of them
        least = ROWS if width > 1 else 1
        self.rows = max(least, PARALLEL_CHUNK_ELEMENTS // (width * parts)) * parts  # of a piece; the last one has more
        self.rest = line.along.size % parts  # rows before the first piece
        self.pieces = max(1, line.along.size // self.rows) if few else 1
        self.sizes = line.outer, self.pieces + 1, line.inner
        self.before = fold.partials(self.sizes)
        kind = element_type("s64")
        self.known = [Temporary(Shape(kind, (line.outer, self.pieces + 1, self.columns))) for _ in self.before]

    def piece(self, p: Index) -> tuple[Index, Index]:
        """The first row of a piece, and the rows of each of its parts."""
        b, body = self.low.builder, self.line.along.size - self.rest
        more = body - self.pieces * self.rows
        first = b.add(b.mul(p, self.rows), self.rest)
        is_last = b.floordiv(p, self.pieces - 1) if self.pieces > 1 else 1
        return first, b.add(b.mul(is_last, more // self.parts), self.rows // self.parts)

    def element(self, line: Index, row: Index, column: Index) -> Index:
        place = self.low.builder.sub(self.line.along.size - 1, row) if self.backward else row
        return self.low.linearize(self.line.sizes, (line, place, column))

    def lowest(self, line: Index, row: Index, rows: Index, column: Index = 0) -> Index:
        """The first place of so many rows."""
        b = self.low.builder
        return self.element(line, b.sub(b.add(row, rows), 1) if self.backward else row, column)

    def load(self, place: Index) -> list[Operand]:
        return [self.low.builder.load(self.low.buffer(s), place) for s in self.fold.arrays]

    def store(self, place: Index, values: Sequence[Operand]) -> None:
        if self.puts_first:
            values = self.fold.apply(self.low, self.starts, values)
        for target, value in zip(self.targets, values, strict=True):
            self.low.builder.store(self.low.buffer(target, True), place, value)

    def put_away(
        self, line: Index, row: Index, rows: Index, column: Index, count: Index, results: Sequence[Buffer]
    ) -> None:
        """So many results, which are those of neighbouring columns or rows."""
        b = self.low.builder
        place = self.lowest(line, row, rows, column)
        with self.low.loop(0, count) as (k, _):
            self.store(b.add(place, k), [b.load(buffer, k) for buffer in results])

    def by_blocks(
        self,
        length: Index,
        height: int,
        values: Sequence[Operand],
        visit: Callable[[Index, Index, list[Operand]], list[Operand]],
    ) -> None:
        """Visit so many rows at a time of a run; all at once, if `height` is 0."""
        b = self.low.builder

        def block(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            return visit(*b.tile_start_and_size(indices[0], height, length), carried)

        if not height:
            visit(0, length, list(values))
        else:
            self.low.nest([(0, b.ceil_div(length, height))], values, block, sequential=True)

    def join(self, before: Sequence[Operand], after: Sequence[Operand]) -> list[Operand]:
        left, right = (after, before) if self.backward else (before, after)
        return self.fold.apply(self.low, left, right)

    def step(self, before: Sequence[Operand], row: Index, place: Index) -> list[Operand]:
        elements = self.load(place)
        found = self.join(before, elements)
        if not self.puts_first:
            return found
        b = self.low.builder
        first = b.compare("EQ", row, 0)
        return [b.select(first, x, y) for x, y in zip(elements, found, strict=True)]

    def through_rest(self, values: Sequence[Operand], line: Index, p: Index, column: Index) -> list[Operand]:
        """What comes before the parts of a piece: before the first one, there are rows that are in none."""

        def visit(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            place = self.element(line, indices[0], column)
            found = self.step(values, indices[0], place)
            self.store(place, found)
            return found

        if not self.rest:
            return list(values)
        b = self.low.builder
        count = self.rest if self.pieces == 1 else b.select(b.compare("EQ", p, 0), self.rest)
        return self.low.nest([(0, count)], values, visit, sequential=True)

    def hand(self, routine: str, line: Index, p: Index, block: Index) -> None:
        """Wait until it is known what comes before a piece, or let it be known."""
        if self.pieces > 1:
            place = self.low.linearize((*self.sizes[:2], self.columns), (line, p, block))
            for known, before in zip(self.known, self.before, strict=True):
                buffers = self.low.buffer(known, True), self.low.buffer(before, True)
                self.low.builder.call(routine, (buffers[0], place), (buffers[1], 0))

    def received(self, line: Index, p: Index, column: Index) -> list[Operand]:
        """What comes before a piece."""
        if self.pieces == 1:
            return self.starts
        return [load(self.low, s, self.sizes, (line, p, column)) for s in self.before]

    def send(self, line: Index, p: Index, column: Index, values: Sequence[Operand]) -> None:
        if self.pieces > 1:
            for storage, value in zip(self.before, values, strict=True):
                store(self.low, storage, self.sizes, (line, p, column), value)

    def finished(self, extent: int, work: int) -> list[LoweredKernel]:
        """The kernels."""
        roots = [self.fold.x]
        if self.pieces == 1:
            return [make_kernel(self.low, extent, work, roots)]
        scan = replace(make_kernel(self.low, extent, work, roots), grain=1, starts_in_order=True)
        low = self.fold.lowering("begin")
        b, blocks = low.builder, (self.pieces + 1) * self.columns
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            starts = [low.value(o, ()) for o in self.fold.x.operands[len(self.fold.x.operands) // 2 :]]
            with low.loop(0, blocks) as (k, _):
                is_first = b.convert("s64", b.compare("LT", k, self.columns))
                for known in self.known:
                    store(low, known, (self.line.outer, blocks), (line, k), is_first)
            with low.loop(0, self.line.inner) as (j, _):
                for before, start in zip(self.before, starts, strict=True):
                    store(low, before, self.sizes, (line, 0, j), start)
        return [make_kernel(low, self.line.outer, blocks, roots), scan]


def lower_scan(fold: Fold, line: Line, targets: list[Storage], backward: bool) -> list[LoweredKernel]:
    op, type = reduction.monoid(fold.computation), fold.x.operands[0].array_shape.element_type.name
    if line.inner == 1 and line.along.size >= SHORTEST and vector_scan.supports(op, type):
        return _by_routine(fold, line, targets[0], str(op), backward)
    costly = any(map(is_costly, fold.computation.instructions))
    in_vectors = costly or 2 < line.inner <= WRITTEN_OUT or line.inner >= MIN_VECTOR_COLUMNS
    if in_vectors:
        return _Vectors(fold, line, targets, backward).kernels()
    return _in_registers(fold, line, targets, backward)


def _by_routine(fold: Fold, line: Line, target: Storage, op: str, backward: bool) -> list[LoweredKernel]:
    """Lines of which a routine makes vectors. What goes past the caches goes through a row of scratch."""
    scan = _Scan(fold, line, [target], backward, line.outer < FEW_LINES)
    low, b = scan.low, scan.low.builder
    type = fold.x.operands[0].array_shape.element_type.name
    routine = vector_scan.provide(op, type, backward)
    carry = b.scratch(type, 1)
    source, result = low.buffer(fold.arrays[0]), b.scratch(type, ROW) if fold.is_large else low.buffer(target, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        o, p = low.split_index(index, (line.outer, scan.pieces))
        first, length = scan.piece(p)
        b.store(carry, 0, *_starts_of_runs(scan, [(o, first)], length, p))

        def visit(begin: Index, rows: Index, values: list[Operand]) -> list[Operand]:
            row = b.add(first, begin)
            place = scan.lowest(o, row, rows)
            to = 0 if fold.is_large else place
            b.call(routine, (source, place), (result, to), (result, b.add(to, rows)), (carry, 0))
            if fold.is_large:
                scan.put_away(o, row, rows, 0, rows, [result])
            return values

        scan.by_blocks(length, ROW if fold.is_large else 0, [], visit)
    return scan.finished(line.outer * scan.pieces, line.along.size // scan.pieces)


def _in_registers(fold: Fold, line: Line, targets: list[Storage], backward: bool) -> list[LoweredKernel]:
    """Few runs of few columns. What goes past the caches goes through rows of scratch."""
    inner, n, count = line.inner, line.along.size, len(targets)
    side = max(1, LINES // inner)
    many = line.outer >= side * FEW_LINES or n < SHORT or (backward and not fold.is_commutative)
    group = min(side, line.outer) if many else 1
    scan = _Scan(fold, line, targets, backward, not many, 1 if many else side, inner)
    low, b = scan.low, scan.low.builder
    direct = n * inner < SHORT or not fold.is_large
    height = 0 if direct else max(1, ROW // (inner * count))  # rows of which results are put together
    types = [o.array_shape.element_type.name for o in fold.x.operands[:count]]
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        if many:
            length: Index = n
            lines = [b.min(b.add(b.mul(index, group), k), line.outer - 1) for k in range(group)]
            runs: list[tuple[Index, Index]] = [(o, 0) for o in lines]
            values = scan.starts * (group * inner)
        else:
            o, p = b.floordiv(index, scan.pieces), b.remainder(index, scan.pieces)
            first, length = scan.piece(p)
            runs = [(o, b.add(first, b.mul(length, k))) for k in range(side)]
            values = _starts_of_runs(scan, runs, length, p)
        rows = [[] if direct else [b.scratch(type, height * inner) for type in types] for _ in runs]

        def visit(begin: Index, here: Index, values: list[Operand]) -> list[Operand]:
            def element(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
                (t,) = indices
                updated: list[Operand] = []
                at = b.sub(b.sub(here, 1), t) if backward else t
                for (o, first), row in zip(runs, rows, strict=True):
                    u = b.add(first, b.add(begin, t))
                    for j in range(inner):
                        place = scan.element(o, u, j)
                        new = scan.step(carried[len(updated) : len(updated) + count], u, place)
                        updated += new
                        if direct:
                            scan.store(place, new)
                        else:
                            for buffer, value in zip(row, new, strict=True):
                                b.store(buffer, b.add(b.mul(at, inner), j), value)
                return updated

            values = low.nest([(0, here)], values, element, sequential=True)
            for (o, first), row in zip(runs, rows, strict=True):
                if not direct:
                    scan.put_away(o, b.add(first, begin), here, 0, b.mul(here, inner), row)
            return values

        scan.by_blocks(length, height, values, visit)
    return scan.finished(-(-line.outer // group) * scan.pieces, n // scan.pieces * inner * group)


def _starts_of_runs(scan: _Scan, runs: Sequence[tuple[Index, Index]], length: Index, p: Index) -> list[Operand]:
    """What comes before each part of a piece, column by column."""
    low, b, inner = scan.low, scan.low.builder, scan.line.inner
    o = runs[0][0]
    starts = scan.starts
    count = len(starts)
    totals: list[list[Operand]] = []
    if scan.pieces * len(runs) > 1:
        all_of = [(first, j) for _, first in runs for j in range(inner)]
        known = reduction.monoid(scan.fold.computation) is not None
        for group in [[x] for x in all_of] if known else [all_of]:  # vectors, or what does not wait for each other

            def visit(indices: Coordinates, carried: list[Operand], group: Any = group) -> list[Operand]:
                updated: list[Operand] = []
                for first, j in group:
                    elements = scan.load(scan.element(o, b.add(first, indices[0]), j))
                    updated += scan.join(carried[len(updated) : len(updated) + count], elements)
                return updated

            initial = [v for first, j in group for v in scan.load(scan.element(o, first, j))]
            found = low.nest([(1, length)], initial, visit, sequential=not known)
            totals += [found[k : k + count] for k in range(0, len(found), count)]
    scan.hand("wait", o, p, 0)
    values: list[list[Operand]] = []
    for j in range(inner):
        before = scan.through_rest(scan.received(o, p, j), o, p, j)
        values.append(before)
        for k in range(len(runs)):
            if totals:
                before = scan.join(before, totals[k * inner + j])
            values.append(before)
        scan.send(o, b.add(p, 1), j, before)
    scan.hand("announce", o, b.add(p, 1), 0)
    per = len(runs) + 1
    return [v for k in range(len(runs)) for j in range(inner) for v in values[j * per + k]]


class _Vectors(_Scan):
    """Runs side by side in vectors: columns, or, where there are none, many lines or parts of a line. Of a block of
    these, `length` rows from `first` on are gone through, `here` elements at once."""

    def __init__(self, fold: Fold, line: Line, targets: list[Storage], backward: bool) -> None:
        inner, n, arrays = line.inner, line.along.size, fold.x.operands[: len(targets)]
        self.wide = inner > 1
        whole = backward and not fold.is_commutative
        self.split = (
            not (self.wide or whole)
            and line.outer < MIN_VECTOR_COLUMNS
            and n >= MIN_VECTOR_COLUMNS * MIN_VECTOR_COLUMNS
        )
        self.width = MIN_VECTOR_COLUMNS
        if self.wide:
            for_threads = min(ROW, -(-inner * line.outer // FEW_LINES)) // MIN_VECTOR_COLUMNS * MIN_VECTOR_COLUMNS
            bytes_each = sum(o.array_shape.dtype.itemsize for o in arrays)
            self.width = min(inner, max(NARROWEST, WIDE // bytes_each if fold.is_large else for_threads))
        few = self.split or (self.wide and not whole and line.outer * -(-inner // self.width) < FEW_LINES)
        parts = MIN_VECTOR_COLUMNS if self.split else 1
        super().__init__(fold, line, targets, backward, few, parts, self.width if self.wide else 1)
        self.direct = not (self.wide and fold.is_large)
        # the row before is read back from the results: shorter ones stay in registers
        self.reads_back = self.direct and inner > MIN_VECTOR_COLUMNS and not self.puts_first
        several = self.columns == 1 and not self.direct  # rows of which results are put together
        self.height = max(1, ROW // self.width) if several else int(not self.direct)
        b = self.low.builder
        self.row = [b.scratch(o.array_shape.element_type.name, self.width) for o in arrays]
        self.results = [b.scratch(x.type, self.height * self.width) for x in self.row] if self.height > 1 else self.row
        self.o: Index = 0
        self.p: Index = 0
        self.block: Index = 0
        self.first: Index = 0
        self.length: Index = n
        self.here: Index = self.width

    def kernels(self) -> list[LoweredKernel]:
        with self.low.loop(self.low.builder.kernel.first, self.low.builder.kernel.last) as (index, _):
            self._enter(index)
            folded = self.split or self.pieces > 1
            with self.low.loop(0, self.here) as (j, _):
                self._put(j, self.load(self._place(j, 0)[1]) if folded else self.starts)
            if folded:
                self._fold()
            self.by_blocks(self.length, self.height, [], self._several)
        units = self.line.outer if self.wide or self.split else -(-self.line.outer // MIN_VECTOR_COLUMNS)
        work = self.line.along.size // self.pieces * self.width
        return self.finished(units * self.pieces * self.columns, work)

    def _enter(self, index: Index) -> None:
        b, line = self.low.builder, self.line
        if self.wide:
            self.o, self.p, self.block = self.low.split_index(index, (line.outer, self.pieces, self.columns))
            _, self.here = b.tile_start_and_size(self.block, self.width, line.inner)
        elif self.split:
            self.o, self.p = self.low.split_index(index, (line.outer, self.pieces))
        else:
            self.o, self.here = b.tile_start_and_size(index, MIN_VECTOR_COLUMNS, line.outer)
        if self.wide or self.split:
            self.first, self.length = self.piece(self.p)

    def _place(self, j: Index, t: Index) -> tuple[Index, Index]:
        """The row, and the place in memory."""
        b = self.low.builder
        row = b.add(self.first, t)
        if self.wide:
            return row, self.element(self.o, row, self._column(j))
        if self.split:
            row = b.add(row, b.mul(j, self.length))
            return row, self.element(self.o, row, 0)
        return row, self.element(b.add(self.o, j), row, 0)

    def _column(self, j: Index) -> Index:
        b = self.low.builder
        return b.add(b.mul(self.block, self.width), j)

    def _values(self, j: Index) -> list[Operand]:
        return [self.low.builder.load(x, j) for x in self.row]

    def _put(self, j: Index, new: Sequence[Operand]) -> None:
        for x, value in zip(self.row, new, strict=True):
            self.low.builder.store(x, j, value)

    def _fold(self) -> None:
        """What comes before each run, in the place of what it holds together."""
        low, o, p = self.low, self.o, self.p
        with low.loop(1, self.length, sequential=True) as (t, _), low.loop(0, self.here) as (j, _):
            self._put(j, self.join(self._values(j), self.load(self._place(j, t)[1])))
        self.hand("wait", o, p, self.block)
        after = low.builder.add(p, 1)
        if self.split:
            before = self.through_rest(self.received(o, p, 0), o, p, 0)

            def one(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
                total = self._values(indices[0])
                self._put(indices[0], carried)
                return self.join(carried, total)

            self.send(o, after, 0, low.nest([(0, MIN_VECTOR_COLUMNS)], before, one, sequential=True))
        else:
            with low.loop(0, self.here) as (j, _):
                before = self.received(o, p, self._column(j))
                self.send(o, after, self._column(j), self.join(before, self._values(j)))
                self._put(j, before)
        self.hand("announce", o, after, self.block)

    def _several(self, begin: Index, count: Index, carried: list[Operand]) -> list[Operand]:
        """Some rows one after the other."""
        b = self.low.builder
        if self.reads_back:
            self._step(begin, count, 0)
        with self.low.loop(int(self.reads_back), count, sequential=True) as (t, _):
            self._step(begin, count, t)
        if not self.direct:
            most = b.mul(count, self.width) if self.columns == 1 else self.here
            self.put_away(self.o, b.add(self.first, begin), count, self._column(0), most, self.results)
        return carried

    def _step(self, begin: Index, count: Index, t: Index) -> None:
        b = self.low.builder
        with self.low.loop(0, self.here) as (j, _):
            number, at = self._place(j, b.add(begin, t))
            if self.reads_back and t != 0:
                last = self._place(j, b.sub(t, 1))[1]
                before: list[Operand] = [b.load(self.low.buffer(target, True), last) for target in self.targets]
            else:
                before = self._values(j)
            new = self.step(before, number, at)
            if not self.reads_back:
                self._put(j, new)
            if self.direct:
                self.store(at, new)
            elif self.height > 1:
                at = b.sub(b.sub(count, 1), t) if self.backward else t
                for buffer, value in zip(self.results, new, strict=True):
                    b.store(buffer, b.add(b.mul(at, self.width), j), value)
