"""GEMM microkernel for Intel's AMX: tiles of C in its matrix registers, with the interface of `microkernel`.

AMX has eight registers of 16 rows of 64 bytes. One instruction multiplies a tile of A, 16 rows by 16 words, with a tile
of B, 16 words by 16 columns, and accumulates in a tile of 16 x 16 sums. A word holds two bf16 or four 8-bit integers,
whose products are added together.

The routine computes blocks of 32 x 32 sums (or half as many rows or columns) in four registers; two tiles of A and of B
are in the others. A tile's rows must have one stride in memory. So before a block of 32 rows a list is made of where
the tiles of A are: in place, if the rows have one stride and the terms are contiguous, else in a copy. The same is done
for B, whose rows nearly always have one stride. The last terms are always copied and zero-padded. Blocks that have
fewer than 32 columns, or whose rows of C have no common stride, are stored through a buffer. Columns of B that complete
a tile of 16 are read but not used.

Source: Intel, Architecture Instruction Set Extensions Programming Reference, chapter 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Kernel, Literal, Operand, Value, operand_of
from tinyxla.loopir.kernels.gemm.offset_list import OFFSETS_PER_VECTOR
from tinyxla.loopir.lower.routine_calls import ParametricBuilder

MAX_K_WORDS = 512  # of k in one call
SIDE = 16  # rows of a tile, words of its rows, and columns of its product
BLOCK = 2 * SIDE
FEATURES = {"bf16": "amx-bf16", "s8": "amx-int8", "u8": "amx-int8"}  # the processor feature that multiplies a type
_MAX_STEPS = MAX_K_WORDS // SIDE  # tiles along k
_STEP_WORDS = BLOCK * SIDE  # of two tiles


def amx_microkernel(factors: str, accumulator: str, parameters: Sequence[str]) -> Kernel:
    """The microkernel for factors and sums of some types, with the parameters of all microkernels."""
    b = _AmxBuilder(factors, accumulator, parameters)
    b.build()
    return b.kernel


class _Matrix(NamedTuple):
    """Where the tiles of A or B are: for each step along k, whether the two tiles of a block are packed in `copy`
    rather than read in `memory`, the offset of the first one, and the pitch of their rows."""

    memory: Buffer
    copy: Buffer
    are_packed: Buffer
    offsets: Buffer
    pitches: Buffer


class _Offsets(NamedTuple):
    """Some offsets of a list: the first one, the distance of the second one, and whether all have this stride."""

    first: Value
    stride: Index
    is_uniform: Value


class _Rows(NamedTuple):
    """Rows of a block from `first` on, and their strides in A and C: 0 if they have no common one, or if the block has
    fewer than it may have."""

    first: Index
    size: Index
    a_stride: Value
    c_stride: Value


class _Columns(NamedTuple):
    """Columns of a block from `first` on, in two vectors."""

    first: Index
    size: Index
    masks: Sequence[Value]


class _Target(NamedTuple):
    """Where the sums of a block are loaded and stored."""

    memory: Buffer
    pitch: Value


class _AmxBuilder(ParametricBuilder):
    """Builds the microkernel."""

    def __init__(self, factors: str, accumulator: str, parameters: Sequence[str]) -> None:
        super().__init__("microkernel", " ".join(parameters))
        self.factors, word = factors, "u32"
        self.c = self.argument(accumulator, True)
        memories = [self.argument(word) for _ in range(2)]
        lists = [self.argument(INDEX) for _ in range(4)]
        self.a_row_offsets, self.c_row_offsets, self.a_k_offsets, self.b_k_offsets = lists
        self.a, self.b = (
            _Matrix(
                memory,
                self.scratch(word, _MAX_STEPS * _STEP_WORDS),
                self.scratch("pred", _MAX_STEPS),
                *(self.scratch(INDEX, _MAX_STEPS) for _ in range(2)),
            )
            for memory in memories
        )
        self.has_contiguous_terms = self.scratch("pred", _MAX_STEPS)  # of each step, in A
        self.buffer = self.scratch(accumulator, BLOCK * BLOCK)
        self.sums = {part: self.tile(accumulator, SIDE, SIDE) for part in product(range(2), repeat=2)}
        self.left, self.right = ([self.tile(word, SIDE, SIDE) for _ in range(2)] for _ in range(2))
        self.k = self.parameter["k"]
        self.steps = self.ceil_div(self.k, SIDE)
        self.accumulates = self.compare("NE", self.parameter["accumulate"], 0)

    def build(self) -> None:
        """The blocks of C, one after the other."""
        m, n = self.parameter["m"], self.parameter["n"]
        with self.loop(0, self.steps, sequential=True, nonempty=True) as (step, _):
            self._find_terms(step)
        with self.loop(0, m, sequential=True, step=BLOCK, nonempty=True) as (i, _):
            rows = _Rows(i, self.min(self.sub(m, i), BLOCK), *self._row_strides(i))
            with self.loop(0, self.steps, sequential=True, nonempty=True) as (step, _):
                self._find_rows(step, rows)
            with self.loop(0, n, sequential=True, step=BLOCK, nonempty=True) as (j, _):
                masks = [self.lane_mask(self.add(j, half), n, SIDE) for half in (0, SIDE)]
                columns = _Columns(j, self.sub(n, j), masks)
                with self.loop(0, self.steps, sequential=True, nonempty=True) as (step, _):
                    self._pack_columns(step, columns)
                self._multiply(rows, columns)

    def _offsets(
        self, offsets: Buffer, first: Index, count: int, valid: Index | None = None, stride: int | None = None
    ) -> _Offsets:
        """Whether `count` offsets from one on, or the first `valid` count of them, have one stride."""
        vectors: list[Value] = []
        masks: list[Value | None] = []
        for k in range(0, count, OFFSETS_PER_VECTOR):
            masks.append(None if valid is None else self.lane_mask(k, valid, OFFSETS_PER_VECTOR))
            vectors.append(self.load(offsets, self.add(first, k), OFFSETS_PER_VECTOR, mask=masks[-1]))
        start, second = (self.shuffle([lane], vectors[0]) for lane in range(2))
        common = self.sub(second, start) if stride is None else stride
        differences: list[Value] = []
        for k, (found, mask) in enumerate(zip(vectors, masks, strict=True)):
            ordinals = self.iota(Literal(INDEX, k * OFFSETS_PER_VECTOR), OFFSETS_PER_VECTOR)
            distances = self.compute("multiply", INDEX, ordinals, operand_of(common))
            difference = self.compute("xor", INDEX, found, self.compute("add", INDEX, distances, start))
            differences.append(difference if mask is None else self.select(mask, difference, 0))
        total = functools.reduce(self.or_, differences)
        while total.lanes > 1:
            half = total.lanes // 2
            total = self.or_(self.shuffle(range(half), total), self.shuffle(range(half, total.lanes), total))
        return _Offsets(start, common, self.compare("EQ", total, 0))

    def _find_terms(self, step: Value) -> None:
        """Whether the terms of a step are contiguous in A, and where its rows of B are."""
        term = self.mul(step, SIDE)
        left = self.sub(self.k, term)
        terms = self._offsets(self.a_k_offsets, term, SIDE, left, stride=1)
        self.store(self.has_contiguous_terms, step, terms.is_uniform)
        rows = self._offsets(self.b_k_offsets, term, SIDE, left)
        is_packed = self._not(self.and_(rows.is_uniform, self._is_full(term)))
        self._set(self.b, step, is_packed, rows.first, self.select(is_packed, BLOCK, rows.stride))

    def _is_full(self, term: Index) -> Value:
        """Whether there are all terms of a step."""
        return self.compare("LE", self.add(term, SIDE), self.k)

    def _not(self, x: Value) -> Value:
        return self.compute("not", "pred", x)

    def _set(self, matrix: _Matrix, step: Value, is_packed: Value, offset: Operand, pitch: Operand) -> None:
        """Store where the tiles of a step are."""
        self.store(matrix.are_packed, step, is_packed)
        self.store(matrix.offsets, step, offset)
        self.store(matrix.pitches, step, pitch)

    def _row_strides(self, i: Index) -> list[Value]:
        """The strides of the rows of a block in A and C."""

        def common() -> list[Operand]:
            found = [self._offsets(x, i, BLOCK) for x in (self.a_row_offsets, self.c_row_offsets)]
            return [self.select(x.is_uniform, x.stride, 0) for x in found]

        is_full = self.compare("LE", self.add(i, BLOCK), self.parameter["m"])
        return self.branch(is_full, common, lambda: [Literal(INDEX, 0)] * 2)

    def _find_rows(self, step: Value, rows: _Rows) -> None:
        """Where the tiles of A of a step are, in place or packed."""
        term = self.mul(step, SIDE)
        is_contiguous = self.load(self.has_contiguous_terms, step)
        has_stride = self.compare("NE", rows.a_stride, 0)
        is_in_place = self.and_(self.and_(is_contiguous, has_stride), self._is_full(term))
        first_term = self.load(self.a_k_offsets, term)
        start = self.mul(step, _STEP_WORDS)

        def in_place() -> list[Operand]:
            return [operand_of(self.add(self.load(self.a_row_offsets, rows.first), first_term)), rows.a_stride]

        def packed() -> list[Operand]:
            mask = self.lane_mask(term, self.k, SIDE)
            copy = self.view(self.a.copy, start)
            self.branch(
                is_contiguous,
                lambda: self._pack_rows(copy, rows, lambda row: self.load(row, first_term, SIDE, mask=mask)),
                lambda: self._gather_rows(copy, rows, self.load(self.a_k_offsets, term, SIDE, mask=mask), mask),
            )
            return [operand_of(start), Literal(INDEX, SIDE)]

        self._set(self.a, step, self._not(is_in_place), *self.branch(is_in_place, in_place, packed))

    def _pack_rows(self, copy: Buffer, rows: _Rows, words: Callable[[Buffer], Value]) -> list[Operand]:
        """Pack the words of each row of a block of A."""
        with self.loop(0, rows.size, sequential=True, nonempty=True) as (r, _):
            row = self.view(self.a.memory, self.load(self.a_row_offsets, self.add(rows.first, r)))
            self.store(copy, self.mul(r, SIDE), words(row))
        return []

    def _gather_rows(self, copy: Buffer, rows: _Rows, offsets: Value, mask: Value) -> list[Operand]:
        return self._pack_rows(copy, rows, lambda row: self.gather(row, offsets, mask=mask))

    def _pack_columns(self, step: Value, columns: _Columns) -> None:
        """Pack the tiles of B of a step, if they are not read in place."""
        with self.when(self.load(self.b.are_packed, step)):
            start = self.mul(step, _STEP_WORDS)
            self.store(self.b.offsets, step, operand_of(self.sub(start, columns.first)))
            copy = self.view(self.b.copy, start)
            with self.loop(0, SIDE, sequential=True, nonempty=True) as (r, _):
                term = self.add(self.mul(step, SIDE), r)
                offset = self.load(self.b_k_offsets, self.min(term, self.sub(self.k, 1)))
                row = self.view(self.b.memory, self.add(offset, columns.first))
                is_term = self.compare("LT", term, self.k)
                for half, mask in enumerate(columns.masks):
                    words = self.load(row, half * SIDE, SIDE, mask=self.and_(mask, is_term))
                    self.store(copy, self.add(self.mul(r, BLOCK), half * SIDE), words)

    def _multiply(self, rows: _Rows, columns: _Columns) -> None:
        """A block of C, in place or by way of the buffer."""
        is_whole = self.or_(
            self.compare("GE", columns.size, BLOCK), self.compare("EQ", self.remainder(columns.size, SIDE), 0)
        )
        is_in_place = self.and_(self.compare("NE", rows.c_stride, 0), is_whole)
        is_buffered = self._not(is_in_place)
        block = self.view(self.c, self.add(self.load(self.c_row_offsets, rows.first), columns.first))
        target = _Target(
            self.select_buffer(is_in_place, block, self.buffer), self.select(is_in_place, rows.c_stride, BLOCK)
        )
        with self.when(self.and_(self.accumulates, is_buffered)):
            self._copy_sums(rows, columns, to_buffer=True)
        is_high, is_wide = (self.compare("GT", x.size, SIDE) for x in (rows, columns))
        self.branch(is_high, *(partial(self._multiply_rows, height, is_wide, columns, target) for height in (2, 1)))
        with self.when(is_buffered):
            self._copy_sums(rows, columns, to_buffer=False)

    def _copy_sums(self, rows: _Rows, columns: _Columns, to_buffer: bool) -> None:
        """Copy the rows of a block of C to the buffer or back."""
        with self.loop(0, rows.size, sequential=True, nonempty=True) as (r, _):
            offset = self.load(self.c_row_offsets, self.add(rows.first, r))
            row, buffered = (
                self.view(self.c, self.add(offset, columns.first)),
                self.view(self.buffer, self.mul(r, BLOCK)),
            )
            for half, mask in enumerate(columns.masks):
                start = half * SIDE
                if to_buffer:
                    self.store(buffered, start, self.load(row, start, SIDE, mask=mask))
                else:
                    self.store(row, start, self.load(buffered, start, SIDE), mask=mask)

    def _multiply_rows(self, height: int, is_wide: Value, columns: _Columns, target: _Target) -> list[Operand]:
        """Blocks of so many tiles of rows."""
        tiles = (partial(self._multiply_tiles, height, width, columns, target) for width in (2, 1))
        return [*self.branch(is_wide, *tiles)]

    def _multiply_tiles(self, height: int, width: int, columns: _Columns, target: _Target) -> list[Operand]:
        """The product of `height` x `width` tiles."""
        parts = [*product(range(height), range(width))]
        starts = {(r, v): self.add(self.mul(target.pitch, r * SIDE), v * SIDE) for r, v in parts}

        def load() -> list[Operand]:
            for part in parts:
                self.tile_load(self.sums[part], target.memory, starts[part], target.pitch)
            return []

        def zero() -> list[Operand]:
            for part in parts:
                self.tile_zero(self.sums[part])
            return []

        self.branch(self.accumulates, load, zero)
        with self.loop(0, self.steps, sequential=True, nonempty=True) as (step, _):
            a, a_start, a_pitch = self._tiles(self.a, step)
            b, b_offset, b_pitch = self._tiles(self.b, step)
            b_start = self.add(b_offset, columns.first)
            for r, v in parts:
                if v == 0:
                    self.tile_load(self.left[r], a, self.add(a_start, self.mul(a_pitch, r * SIDE)), a_pitch)
                if r == 0:
                    self.tile_load(self.right[v], b, self.add(b_start, v * SIDE), b_pitch)
                self.tile_multiply_add(self.sums[r, v], self.left[r], self.right[v], self.factors)
        for part in parts:
            self.tile_store(self.sums[part], target.memory, starts[part], target.pitch)
        return []

    def _tiles(self, matrix: _Matrix, step: Value) -> tuple[Buffer, Value, Value]:
        """The memory of the tiles of a step, the offset of the first one and the pitch of their rows."""
        memory = self.select_buffer(self.load(matrix.are_packed, step), matrix.copy, matrix.memory)
        return memory, self.load(matrix.offsets, step), self.load(matrix.pitches, step)
