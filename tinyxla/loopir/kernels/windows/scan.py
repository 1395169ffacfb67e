"""Prefix scans along one dimension (cumulative sums and the like), in either direction.

Each element of a scan depends on the one before, so several independent *runs* are interleaved: columns, lines, or
parts of a line, whose prefixes are known from the totals of the parts before. A few long lines are also cut into chunks
for threads, in one pass over memory (decoupled look-back): a chunk is reduced, which loads it into the cache; the
thread waits for the prefix of the chunk, publishes the prefix of the next chunk, and then scans.

Source: D. Merrill and M. Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tinyxla.compiler.analysis.fusibility import is_costly
from tinyxla.compiler.costs import (
    BLOCK_ELEMENTS,
    INTERLEAVED,
    L1_BYTES,
    LONG_ROW,
    MAX_UNROLLED,
    MIN_REUSE,
    PARALLEL_CHUNK_ELEMENTS,
    TASKS,
    VECTOR_ELEMENTS,
)
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Operand, operand_of
from tinyxla.loopir.kernels.windows import vector_scan
from tinyxla.loopir.kernels.windows.window_reduction import LineLayout, WindowReduction, load, store
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Storage, Temporary
from tinyxla.ops import reduction
from tinyxla.shapes import Shape, element_type


class _Scan:
    """One scan kernel. Rows are the elements along lines, counted from the end of a line if `backward`; a chunk has
    `parts` runs."""

    def __init__(
        self,
        fold: WindowReduction,
        line: LineLayout,
        targets: list[Storage],
        backward: bool,
        is_cut: bool,
        parts: int = 1,
        width: int = 1,
    ) -> None:
        self.fold, self.line, self.targets, self.backward, self.parts = fold, line, targets, backward, parts
        self.low = fold.lowering("scan")
        self.starts = [self.low.value(o, ()) for o in fold.x.operands[len(fold.x.operands) // 2 :]]
        self.applies_initial = backward and not fold.is_commutative  # the initial value comes first
        self.columns = -(-line.inner // width)  # blocks of columns
        min_rows = MIN_REUSE if width > 1 else 1
        # Of a chunk; the last one has more.
        self.rows = max(min_rows, PARALLEL_CHUNK_ELEMENTS // (width * parts)) * parts
        self.leading_rows = line.dimension.size % parts  # rows before the first chunk
        self.chunks = max(1, line.dimension.size // self.rows) if is_cut else 1
        self.sizes = line.outer, self.chunks + 1, line.inner
        self.carries = fold.temporaries(self.sizes)
        type = element_type("s64")
        self.flags = [Temporary(Shape(type, (line.outer, self.chunks + 1, self.columns))) for _ in self.carries]

    def chunk_rows(self, p: Index) -> tuple[Index, Index]:
        """First row of a chunk, and the rows of each of its parts."""
        b, even_rows = self.low.builder, self.line.dimension.size - self.leading_rows
        extra_rows = even_rows - self.chunks * self.rows
        first = b.add(b.mul(p, self.rows), self.leading_rows)
        is_last = b.floordiv(p, self.chunks - 1) if self.chunks > 1 else 1
        return first, b.add(b.mul(is_last, extra_rows // self.parts), self.rows // self.parts)

    def element(self, line: Index, row: Index, column: Index) -> Index:
        offset = self.low.builder.sub(self.line.dimension.size - 1, row) if self.backward else row
        return self.low.linearize(self.line.sizes, (line, offset, column))

    def first_offset(self, line: Index, row: Index, rows: Index, column: Index = 0) -> Index:
        """The lowest offset of `rows` rows."""
        b = self.low.builder
        return self.element(line, b.sub(b.add(row, rows), 1) if self.backward else row, column)

    def load(self, offset: Index) -> list[Operand]:
        return [self.low.builder.load(self.low.buffer(s), offset) for s in self.fold.arrays]

    def store(self, offset: Index, values: Sequence[Operand]) -> None:
        if self.applies_initial:
            values = self.fold.apply(self.low, self.starts, values)
        for target, value in zip(self.targets, values, strict=True):
            self.low.builder.store(self.low.buffer(target, True), offset, value)

    def store_block(
        self, line: Index, row: Index, rows: Index, column: Index, count: Index, results: Sequence[Buffer]
    ) -> None:
        """Store `count` buffered results, which are contiguous."""
        b = self.low.builder
        offset = self.first_offset(line, row, rows, column)
        with self.low.loop(0, count) as (k, _):
            self.store(b.add(offset, k), [b.load(buffer, k) for buffer in results])

    def for_blocks(
        self,
        length: Index,
        height: int,
        values: Sequence[Operand],
        visit: Callable[[Index, Index, list[Operand]], list[Operand]],
    ) -> None:
        """Visit `height` rows of a run at a time; all at once if `height` is 0."""
        b = self.low.builder

        def block(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
            return visit(*b.tile_start_and_size(indices[0], height, length), carried)

        if not height:
            visit(0, length, list(values))
        else:
            self.low.nest([(0, b.ceil_div(length, height))], values, block, sequential=True)

    def join(self, prefix: Sequence[Operand], values: Sequence[Operand]) -> list[Operand]:
        left, right = (values, prefix) if self.backward else (prefix, values)
        return self.fold.apply(self.low, left, right)

    def step(self, prefix: Sequence[Operand], row: Index, offset: Index) -> list[Operand]:
        """The next prefix of a run."""
        elements = self.load(offset)
        combined = self.join(prefix, elements)
        if not self.applies_initial:
            return combined
        b = self.low.builder
        first = b.compare("EQ", row, 0)
        return [b.select(first, x, y) for x, y in zip(elements, combined, strict=True)]

    def scan_leading_rows(self, values: Sequence[Operand], line: Index, p: Index, column: Index) -> list[Operand]:
        """The prefix before the parts of a chunk. The rows before the first chunk, which belong to no part, are scanned
        here."""

        def visit(indices: Coordinates, values: list[Operand]) -> list[Operand]:
            offset = self.element(line, indices[0], column)
            combined = self.step(values, indices[0], offset)
            self.store(offset, combined)
            return combined

        if not self.leading_rows:
            return list(values)
        b = self.low.builder
        count = self.leading_rows if self.chunks == 1 else b.select(b.compare("EQ", p, 0), self.leading_rows)
        return self.low.nest([(0, count)], values, visit, sequential=True)

    def signal(self, routine: str, line: Index, p: Index, block: Index) -> None:
        """Wait for the flag of a chunk's prefix, or set it."""
        if self.chunks > 1:
            offset = self.low.linearize((*self.sizes[:2], self.columns), (line, p, block))
            for flag, prefix in zip(self.flags, self.carries, strict=True):
                buffers = self.low.buffer(flag, True), self.low.buffer(prefix, True)
                self.low.builder.call(routine, (buffers[0], offset), (buffers[1], 0))

    def incoming_carry(self, line: Index, p: Index, column: Index) -> list[Operand]:
        """The prefix before a chunk."""
        if self.chunks == 1:
            return self.starts
        return [load(self.low, s, self.sizes, (line, p, column)) for s in self.carries]

    def publish_carry(self, line: Index, p: Index, column: Index, values: Sequence[Operand]) -> None:
        """Store the prefix before a chunk."""
        if self.chunks > 1:
            for storage, value in zip(self.carries, values, strict=True):
                store(self.low, storage, self.sizes, (line, p, column), value)

    def make_kernels(self, extent: int, work: int) -> list[LoweredKernel]:
        """The scan kernel, after a kernel that clears the flags if there are chunks."""
        roots = [self.fold.x]
        if self.chunks == 1:
            return [make_kernel(self.low, extent, work, roots)]
        scan = replace(make_kernel(self.low, extent, work, roots), grain=1, starts_in_order=True)
        low = self.fold.lowering("begin")
        b, blocks = low.builder, (self.chunks + 1) * self.columns
        with low.loop(b.kernel.first, b.kernel.last) as (line, _):
            starts = [low.value(o, ()) for o in self.fold.x.operands[len(self.fold.x.operands) // 2 :]]
            with low.loop(0, blocks) as (k, _):
                is_first = b.convert("s64", b.compare("LT", k, self.columns))
                for flag in self.flags:
                    store(low, flag, (self.line.outer, blocks), (line, k), is_first)
            with low.loop(0, self.line.inner) as (j, _):
                for prefix, start in zip(self.carries, starts, strict=True):
                    store(low, prefix, self.sizes, (line, 0, j), start)
        return [make_kernel(low, self.line.outer, blocks, roots), scan]


def lower_scan(fold: WindowReduction, line: LineLayout, targets: list[Storage], backward: bool) -> list[LoweredKernel]:
    """The kernels of the scan schedule that fits: the vector scan, vectorized runs, or runs in registers."""
    op, type = reduction.monoid(fold.computation), fold.x.operands[0].array_shape.element_type.name
    if line.inner == 1 and line.dimension.size >= 2 * VECTOR_ELEMENTS and vector_scan.supports(op, type):
        return _lower_vector_scan(fold, line, targets[0], str(op), backward)
    is_expensive = any(map(is_costly, fold.computation.instructions))
    in_vectors = is_expensive or 2 < line.inner <= MAX_UNROLLED or line.inner >= VECTOR_ELEMENTS
    if in_vectors:
        return _VectorizedScan(fold, line, targets, backward).kernels()
    return _lower_in_registers(fold, line, targets, backward)


def _lower_vector_scan(
    fold: WindowReduction, line: LineLayout, target: Storage, op: str, backward: bool
) -> list[LoweredKernel]:
    """Contiguous lines by the in-register vector scan. Results that bypass the cache are buffered in scratch memory."""
    scan = _Scan(fold, line, [target], backward, line.outer < TASKS)
    low, b = scan.low, scan.low.builder
    type = fold.x.operands[0].array_shape.element_type.name
    routine = vector_scan.declare_scan(op, type, backward)
    (identity,) = low.identity(fold.x)
    carry, count = b.scratch(type, 2), b.scratch(INDEX, 1)
    source = low.buffer(fold.arrays[0])
    result = b.scratch(type, BLOCK_ELEMENTS) if fold.exceeds_cache else low.buffer(target, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        o, p = low.split_index(index, (line.outer, scan.chunks))
        first, length = scan.chunk_rows(p)
        b.store(carry, 0, *_carries_of_runs(scan, [(o, first)], length, p))
        b.store(carry, 1, identity)

        def visit(begin: Index, rows: Index, values: list[Operand]) -> list[Operand]:
            row = b.add(first, begin)
            offset = scan.first_offset(o, row, rows)
            to = 0 if fold.exceeds_cache else offset
            b.store(count, 0, operand_of(rows))
            b.call(routine, (source, offset), (result, to), (carry, 0), (count, 0))
            if fold.exceeds_cache:
                scan.store_block(o, row, rows, 0, rows, [result])
            return values

        scan.for_blocks(length, BLOCK_ELEMENTS if fold.exceeds_cache else 0, [], visit)
    return scan.make_kernels(line.outer * scan.chunks, line.dimension.size // scan.chunks)


def _lower_in_registers(
    fold: WindowReduction, line: LineLayout, targets: list[Storage], backward: bool
) -> list[LoweredKernel]:
    """A few runs of few columns, whose prefixes stay in registers. Results that bypass the cache are buffered in
    scratch memory."""
    inner, n, count = line.inner, line.dimension.size, len(targets)
    run_count = max(1, INTERLEAVED // inner)
    has_many_lines = line.outer >= run_count * TASKS or n < LONG_ROW or (backward and not fold.is_commutative)
    group_lines = min(run_count, line.outer) if has_many_lines else 1
    scan = _Scan(fold, line, targets, backward, not has_many_lines, 1 if has_many_lines else run_count, inner)
    low, b = scan.low, scan.low.builder
    stores_directly = n * inner < LONG_ROW or not fold.exceeds_cache
    height = 0 if stores_directly else max(1, BLOCK_ELEMENTS // (inner * count))  # rows of results in scratch memory
    types = [o.array_shape.element_type.name for o in fold.x.operands[:count]]
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        if has_many_lines:
            length: Index = n
            lines = [b.min(b.add(b.mul(index, group_lines), k), line.outer - 1) for k in range(group_lines)]
            runs: list[tuple[Index, Index]] = [(o, 0) for o in lines]
            values = scan.starts * (group_lines * inner)
        else:
            o, p = b.floordiv(index, scan.chunks), b.remainder(index, scan.chunks)
            first, length = scan.chunk_rows(p)
            runs = [(o, b.add(first, b.mul(length, k))) for k in range(run_count)]
            values = _carries_of_runs(scan, runs, length, p)
        rows = [[] if stores_directly else [b.scratch(type, height * inner) for type in types] for _ in runs]

        def visit(begin: Index, row_count: Index, values: list[Operand]) -> list[Operand]:
            def element(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
                (t,) = indices
                updated: list[Operand] = []
                at = b.sub(b.sub(row_count, 1), t) if backward else t
                for (o, first), row in zip(runs, rows, strict=True):
                    u = b.add(first, b.add(begin, t))
                    for j in range(inner):
                        offset = scan.element(o, u, j)
                        new = scan.step(carried[len(updated) : len(updated) + count], u, offset)
                        updated += new
                        if stores_directly:
                            scan.store(offset, new)
                        else:
                            for buffer, value in zip(row, new, strict=True):
                                b.store(buffer, b.add(b.mul(at, inner), j), value)
                return updated

            values = low.nest([(0, row_count)], values, element, sequential=True)
            for (o, first), row in zip(runs, rows, strict=True):
                if not stores_directly:
                    scan.store_block(o, b.add(first, begin), row_count, 0, b.mul(row_count, inner), row)
            return values

        scan.for_blocks(length, height, values, visit)
    return scan.make_kernels(-(-line.outer // group_lines) * scan.chunks, n // scan.chunks * inner * group_lines)


def _carries_of_runs(scan: _Scan, runs: Sequence[tuple[Index, Index]], length: Index, p: Index) -> list[Operand]:
    """The prefix before each part of a chunk, column by column."""
    low, b, inner = scan.low, scan.low.builder, scan.line.inner
    o = runs[0][0]
    starts = scan.starts
    count = len(starts)
    totals: list[list[Operand]] = []
    if scan.chunks * len(runs) > 1:
        columns_of_runs = [(first, j) for _, first in runs for j in range(inner)]
        flag = reduction.monoid(scan.fold.computation) is not None
        for group_lines in (
            [[x] for x in columns_of_runs] if flag else [columns_of_runs]
        ):  # as vectors, or as independent operations

            def visit(indices: Coordinates, carried: list[Operand], group_lines: Any = group_lines) -> list[Operand]:
                updated: list[Operand] = []
                for first, j in group_lines:
                    elements = scan.load(scan.element(o, b.add(first, indices[0]), j))
                    updated += scan.join(carried[len(updated) : len(updated) + count], elements)
                return updated

            initial = [v for first, j in group_lines for v in scan.load(scan.element(o, first, j))]
            combined = low.nest([(1, length)], initial, visit, sequential=not flag)
            totals += [combined[k : k + count] for k in range(0, len(combined), count)]
    scan.signal("wait", o, p, 0)
    values: list[list[Operand]] = []
    for j in range(inner):
        prefix = scan.scan_leading_rows(scan.incoming_carry(o, p, j), o, p, j)
        values.append(prefix)
        for k in range(len(runs)):
            if totals:
                prefix = scan.join(prefix, totals[k * inner + j])
            values.append(prefix)
        scan.publish_carry(o, b.add(p, 1), j, prefix)
    scan.signal("announce", o, b.add(p, 1), 0)
    per = len(runs) + 1
    return [v for k in range(len(runs)) for j in range(inner) for v in values[j * per + k]]


class _VectorizedScan(_Scan):
    """Runs as vectors: columns or, where there are none, many lines or parts of a line. The current block has `length`
    rows from `first` on and `block_size` elements in a row."""

    def __init__(self, fold: WindowReduction, line: LineLayout, targets: list[Storage], backward: bool) -> None:
        inner, n, arrays = line.inner, line.dimension.size, fold.x.operands[: len(targets)]
        self.is_block = inner > 1
        is_ordered = backward and not fold.is_commutative
        self.is_split = (
            not (self.is_block or is_ordered)
            and line.outer < VECTOR_ELEMENTS
            and n >= VECTOR_ELEMENTS * VECTOR_ELEMENTS
        )
        self.width = VECTOR_ELEMENTS
        if self.is_block:
            for_threads = min(BLOCK_ELEMENTS, -(-inner * line.outer // TASKS)) // VECTOR_ELEMENTS * VECTOR_ELEMENTS
            bytes_each = sum(o.array_shape.dtype.itemsize for o in arrays)
            self.width = min(inner, max(LONG_ROW, L1_BYTES // 2 // bytes_each if fold.exceeds_cache else for_threads))
        is_cut = self.is_split or (self.is_block and not is_ordered and line.outer * -(-inner // self.width) < TASKS)
        parts = VECTOR_ELEMENTS if self.is_split else 1
        super().__init__(fold, line, targets, backward, is_cut, parts, self.width if self.is_block else 1)
        self.stores_directly = not (self.is_block and fold.exceeds_cache)
        # the previous row is read back from the results; short rows stay in registers
        self.reads_back = self.stores_directly and inner > VECTOR_ELEMENTS and not self.applies_initial
        is_buffered = self.columns == 1 and not self.stores_directly  # rows of results in scratch memory
        self.height = max(1, BLOCK_ELEMENTS // self.width) if is_buffered else int(not self.stores_directly)
        b = self.low.builder
        self.row = [b.scratch(o.array_shape.element_type.name, self.width) for o in arrays]
        self.results = [b.scratch(x.type, self.height * self.width) for x in self.row] if self.height > 1 else self.row
        self.o: Index = 0
        self.p: Index = 0
        self.block: Index = 0
        self.first: Index = 0
        self.length: Index = n
        self.block_size: Index = self.width

    def kernels(self) -> list[LoweredKernel]:
        """The kernels of the scan."""
        with self.low.loop(self.low.builder.kernel.first, self.low.builder.kernel.last) as (index, _):
            self._set_block(index)
            folded = self.is_split or self.chunks > 1
            with self.low.loop(0, self.block_size) as (j, _):
                self._set_values(j, self.load(self._row_and_offset(j, 0)[1]) if folded else self.starts)
            if folded:
                self._reduce()
            self.for_blocks(self.length, self.height, [], self._scan_rows)
        units = self.line.outer if self.is_block or self.is_split else -(-self.line.outer // VECTOR_ELEMENTS)
        work = self.line.dimension.size // self.chunks * self.width
        return self.make_kernels(units * self.chunks * self.columns, work)

    def _set_block(self, index: Index) -> None:
        """The line, the chunk and the columns of an iteration."""
        b, line = self.low.builder, self.line
        if self.is_block:
            self.o, self.p, self.block = self.low.split_index(index, (line.outer, self.chunks, self.columns))
            _, self.block_size = b.tile_start_and_size(self.block, self.width, line.inner)
        elif self.is_split:
            self.o, self.p = self.low.split_index(index, (line.outer, self.chunks))
        else:
            self.o, self.block_size = b.tile_start_and_size(index, VECTOR_ELEMENTS, line.outer)
        if self.is_block or self.is_split:
            self.first, self.length = self.chunk_rows(self.p)

    def _row_and_offset(self, j: Index, t: Index) -> tuple[Index, Index]:
        """The row, and its element's offset in memory."""
        b = self.low.builder
        row = b.add(self.first, t)
        if self.is_block:
            return row, self.element(self.o, row, self._column(j))
        if self.is_split:
            row = b.add(row, b.mul(j, self.length))
            return row, self.element(self.o, row, 0)
        return row, self.element(b.add(self.o, j), row, 0)

    def _column(self, j: Index) -> Index:
        b = self.low.builder
        return b.add(b.mul(self.block, self.width), j)

    def _values(self, j: Index) -> list[Operand]:
        return [self.low.builder.load(x, j) for x in self.row]

    def _set_values(self, j: Index, new: Sequence[Operand]) -> None:
        for x, value in zip(self.row, new, strict=True):
            self.low.builder.store(x, j, value)

    def _reduce(self) -> None:
        """Replace the totals of the runs by the prefixes before them."""
        low, o, p = self.low, self.o, self.p
        with low.loop(1, self.length, sequential=True) as (t, _), low.loop(0, self.block_size) as (j, _):
            self._set_values(j, self.join(self._values(j), self.load(self._row_and_offset(j, t)[1])))
        self.signal("wait", o, p, self.block)
        next_chunk = low.builder.add(p, 1)
        if self.is_split:
            prefix = self.scan_leading_rows(self.incoming_carry(o, p, 0), o, p, 0)

            def lane_prefix(indices: Coordinates, carried: list[Operand]) -> list[Operand]:
                total = self._values(indices[0])
                self._set_values(indices[0], carried)
                return self.join(carried, total)

            self.publish_carry(o, next_chunk, 0, low.nest([(0, VECTOR_ELEMENTS)], prefix, lane_prefix, sequential=True))
        else:
            with low.loop(0, self.block_size) as (j, _):
                prefix = self.incoming_carry(o, p, self._column(j))
                self.publish_carry(o, next_chunk, self._column(j), self.join(prefix, self._values(j)))
                self._set_values(j, prefix)
        self.signal("announce", o, next_chunk, self.block)

    def _scan_rows(self, begin: Index, count: Index, carried: list[Operand]) -> list[Operand]:
        """Scan rows one after the other."""
        b = self.low.builder
        if self.reads_back:
            self._scan_row(begin, count, 0)
        with self.low.loop(int(self.reads_back), count, sequential=True) as (t, _):
            self._scan_row(begin, count, t)
        if not self.stores_directly:
            elements = b.mul(count, self.width) if self.columns == 1 else self.block_size
            self.store_block(self.o, b.add(self.first, begin), count, self._column(0), elements, self.results)
        return carried

    def _scan_row(self, begin: Index, count: Index, t: Index) -> None:
        """Scan one row of a block."""
        b = self.low.builder
        with self.low.loop(0, self.block_size) as (j, _):
            number, at = self._row_and_offset(j, b.add(begin, t))
            if self.reads_back and t != 0:
                last = self._row_and_offset(j, b.sub(t, 1))[1]
                prefix: list[Operand] = [b.load(self.low.buffer(target, True), last) for target in self.targets]
            else:
                prefix = self._values(j)
            new = self.step(prefix, number, at)
            if not self.reads_back:
                self._set_values(j, new)
            if self.stores_directly:
                self.store(at, new)
            elif self.height > 1:
                at = b.sub(b.sub(count, 1), t) if self.backward else t
                for buffer, value in zip(self.results, new, strict=True):
                    b.store(buffer, b.add(b.mul(at, self.width), j), value)
