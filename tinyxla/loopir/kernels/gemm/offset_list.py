"""Offset lists: the offsets of an array's elements in row-major order over some dimensions, from one element on, as the
GEMM microkernel reads them."""

from __future__ import annotations

import functools

from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, LoopCarried, Operand, Value, operand_of
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.lower.routine_calls import ParametricBuilder

OFFSETS_PER_VECTOR = 8  # offsets that one store writes: a list has room for as many beyond its end
OFFSET_LIST_ARGUMENTS = ("start", "ordinal", "count", "rank")
DIMENSION_WORDS = 3


@functools.cache
def declare_offset_list() -> str:
    """Declare `offset_list(offsets, dimensions, arguments)` and return its symbol: it fills a list with the offsets of
    `count` elements from the one with an ordinal on; element 0 has the offset `start`. `dimensions` are
    `rank` times a size, a stride and a word of scratch, from the innermost one on."""
    b = _OffsetListBuilder()
    b.fill()
    return declare_kernel("offset_list", b.kernel, is_cold=True)


class _OffsetListBuilder(ParametricBuilder):
    """Builds the routine. The scratch words of the dimensions are the current element's index."""

    def __init__(self) -> None:
        super().__init__("offset_list", " ".join(OFFSET_LIST_ARGUMENTS))
        self.offsets, self.dimensions = self.argument(INDEX, True), self.argument(INDEX, True)

    def fill(self) -> None:
        """Runs of elements along the innermost dimension, one after the other."""
        count, zero = self.parameter["count"], Literal(INDEX, 0)
        offset = self._first_offset()
        size, stride, index = self._dimension(0)
        runs, extent = self.ceil_div(self.add(index, count), size), self.mul(size, stride)
        steps = self.iota(zero, OFFSETS_PER_VECTOR)
        distances, vector_stride = self.compute("multiply", INDEX, steps, stride), self.mul(stride, OFFSETS_PER_VECTOR)
        with self.loop(0, runs, [zero, index, offset], sequential=True, nonempty=True) as (_, run):
            first, index, offset = run.carried
            end = self.min(self.add(first.arg, self.sub(size, index.arg)), count)
            start = [offset.arg]
            with self.loop(first.arg, end, start, sequential=True, step=OFFSETS_PER_VECTOR, nonempty=True) as (
                k,
                vectors,
            ):
                (vector_offset,) = vectors.carried
                self.store(self.offsets, k, self.compute("add", INDEX, distances, vector_offset.arg))
                vector_offset.next = operand_of(self.add(vector_offset.arg, vector_stride))
            run_end = self.add(offset.arg, self.mul(self.sub(end, first.arg), stride))
            (offset.next,) = self.branch(
                self.compare("LT", end, count),
                lambda: self._carry(self.sub(run_end, extent)),
                lambda: [operand_of(run_end)],
            )
            first.next, index.next = operand_of(end), zero

    def _dimension(self, d: Index) -> list[Value]:
        """The size, the stride and the index of a dimension."""
        word = self.mul(d, DIMENSION_WORDS)
        return [self.load(self.dimensions, self.add(word, k)) for k in range(DIMENSION_WORDS)]

    def _set_index(self, d: Index, index: Index) -> None:
        self.store(self.dimensions, self.add(self.mul(d, DIMENSION_WORDS), DIMENSION_WORDS - 1), operand_of(index))

    def _first_offset(self) -> Value:
        """The offset of the first element, whose index is stored."""
        n = self.parameter
        with self.loop(0, n["rank"], [n["ordinal"], n["start"]], sequential=True, nonempty=True) as (d, dimensions):
            ordinal, offset = dimensions.carried
            size, stride, _ = self._dimension(d)
            index = self.remainder(ordinal.arg, size)
            self._set_index(d, index)
            ordinal.next = operand_of(self.floordiv(ordinal.arg, size))
            offset.next = operand_of(self.add(offset.arg, self.mul(index, stride)))
        return offset.result

    def _carry(self, offset: Index) -> list[Operand]:
        """The offset of the next run: the index in the next dimension grows by one, and at the end of that, those after
        it."""
        size, stride, index = self._dimension(1)
        advanced = self.add(index, 1)

        def advance() -> list[Operand]:
            self._set_index(1, advanced)
            return [operand_of(self.add(offset, stride))]

        def wrap() -> list[Operand]:
            self._set_index(1, 0)
            start = self.sub(offset, self.mul(self.sub(size, 1), stride))
            carried = [Literal(INDEX, 1), operand_of(start)]
            with self.loop(2, self.parameter["rank"], carried, sequential=True) as (d, dimensions):
                self._add_carry(d, *dimensions.carried)
            return [dimensions.carried[1].result]

        return [*self.branch(self.compare("EQ", advanced, size), wrap, advance)]

    def _add_carry(self, d: Index, carry: LoopCarried, offset: LoopCarried) -> None:
        size, stride, index = self._dimension(d)
        advanced = self.add(index, carry.arg)
        is_end = self.compare("EQ", advanced, size)
        self._set_index(d, self.select(is_end, 0, advanced))
        step = self.sub(carry.arg, self.select(is_end, size))
        offset.next = operand_of(self.add(offset.arg, self.mul(step, stride)))
        carry.next = self.select(is_end, 1)
