"""Register-blocked GEMM microkernel with indirection: GEMM and implicit-GEMM convolution read A and B through offset
lists.

    c[c_row_offsets[i] + j] (+)= sum over t of a[a_row_offsets[i] + a_k_offsets[t]] * b[b_k_offsets[t] + j]

or, for a depthwise convolution with `depth_multiplier` outputs per input channel, a[... + j / depth_multiplier]. An mr
x nr tile of C stays in vector registers while one loop runs over the terms t. Each iteration loads some vectors of B
and broadcasts one element of A for each row, so whatever can be addressed is read in place. The last columns are
masked, in a loop of their own, since a masked load takes an issue slot of a multiplication on Intel's processors. The
last rows overlap those before, so that the tile is full.

Depthwise case: the vector of inputs is loaded with a free subvector broadcast. Columns therefore appear in transposed
order [multiplier, channel]; factors are permuted to that order, and results permuted back.

Strided rows: successive rows of A with one stride, as neighbouring output positions of a convolution have, share an
address register, so tiles of one or two vectors have as many rows as there are registers for accumulators. Shared
terms: if successive terms move in A as far as the next row does, as in a sliding window, an element is loaded once for
all rows and terms that use it; only so is a tile of one vector not bound by its loads.

Skinny A: the time is that of reading B from memory, so a tile for few rows has more vectors, and prefetches B.

A routine takes the addresses of c, a and b, of the four offset lists and of its arguments: m, n, k, whether to
accumulate into C (0 or 1), the stride in A of strided rows, and the stride in B of shared terms (whose lists have the
first term only) or, for a skinny A, of successive terms. There is one routine for each instruction and tile (see
`Arithmetic`). Dot-product instructions read words of several factors. AMX has a routine of its own (see `amx`).

Source: K. Goto and R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34 (2008); M. Dukhan,
The indirect convolution algorithm (2019).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.gemm.amx import amx_microkernel
from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic
from tinyxla.loopir.lower.routine_calls import ParametricBuilder

MICROKERNEL_ARGUMENTS = ("m", "n", "k", "accumulate", "a_row_stride", "b_k_stride")
_PREFETCH_VECTORS = 32  # prefetch distance of a tile for a skinny A, in vectors of B
_MAX_PREFETCH_TERMS = 8  # the same, in terms of k


@functools.cache
def declare_microkernel(arithmetic: Arithmetic, depth_multiplier: int = 0) -> str:
    """Declare the microkernel of this instruction and tile and return its symbol. A `depth_multiplier` other than 0 is
    that of a depthwise convolution."""
    if arithmetic.uses_amx:
        kernel = amx_microkernel(arithmetic.packed_type, arithmetic.accumulator, MICROKERNEL_ARGUMENTS)
        return declare_kernel(f"amx_{arithmetic.packed_type}", kernel)
    b = _MicrokernelBuilder(arithmetic, depth_multiplier)
    b.build()
    form = f"depthwise{depth_multiplier}" if depth_multiplier else "product"
    tile_name = f"{arithmetic.nr}_{arithmetic.strided_rows}_{arithmetic.shared_terms}_{arithmetic.skinny_rows}"
    return declare_kernel(f"{form}_{arithmetic.packed_type or arithmetic.accumulator}_{tile_name}", b.kernel)


class _Columns(NamedTuple):
    """The columns of a tile from `first` on, in vectors, with the masks of those that C has; a full tile has none. In a
    depthwise convolution they depend on inputs from `first_input` on, and each vector on those from its start on."""

    first: Index
    factors: Buffer  # B from the first column on
    masks: Sequence[Value | None]
    first_input: Index
    input_starts: Sequence[Index]
    input_masks: Sequence[Value | None]


class _Rows(NamedTuple):
    """The rows of a tile: in A, one address for each run of strided rows; and in C."""

    runs: Sequence[Buffer]
    targets: Sequence[Buffer]


class _Term(NamedTuple):
    """A term of k, or the first of several shared ones: its offset in A, and its rows of B as vectors."""

    a_offset: Index
    factors: Sequence[Sequence[Value]]


class _MicrokernelBuilder(ParametricBuilder):
    """Builds a microkernel. The values of a tile are in row-major order, in vectors."""

    def __init__(self, arithmetic: Arithmetic, depth_multiplier: int) -> None:
        super().__init__("microkernel", " ".join(MICROKERNEL_ARGUMENTS))
        self.arithmetic, self.depth_multiplier = arithmetic, depth_multiplier
        self.lanes, self.vectors = arithmetic.lanes, arithmetic.vectors
        self.inputs = max(1, self.lanes // depth_multiplier) if depth_multiplier else 1  # of a vector of columns
        self.is_transposed = 1 < self.inputs < self.lanes
        word = f"u{arithmetic.word_bits}" if arithmetic.packed_type else arithmetic.accumulator
        self.c = self.argument(arithmetic.accumulator, True)
        self.a, self.b = self.argument(word), self.argument(word)
        lists = [self.argument(INDEX) for _ in range(4)]
        self.a_row_offsets, self.c_row_offsets, self.a_k_offsets, self.b_k_offsets = lists
        prefetch_terms = min(_MAX_PREFETCH_TERMS, _PREFETCH_VECTORS // self.vectors) if arithmetic.skinny_rows else 0
        self.prefetch_distance = self.mul(self.parameter["b_k_stride"], prefetch_terms)

    def build(self) -> None:
        """The tiles of C, one after the other."""
        n, arithmetic = self.parameter, self.arithmetic
        with self.loop(0, n["n"], sequential=True, step=arithmetic.nr, nonempty=True) as (j, _):
            full = self._full_columns(j)
            columns = self._masked(full)
            is_full = self.compare("LE", self.add(j, arithmetic.nr), n["n"])
            with self.loop(0, n["m"], sequential=True, step=arithmetic.mr, nonempty=True) as (i, _):
                rows = self._rows(i, columns)
                sums = self._initial_sums(i, columns, rows)
                totals = self.branch(is_full, *(partial(self._add_products, sums, x, rows) for x in (full, columns)))
                for (target, start, mask), total in zip(self._tile(columns, rows), totals, strict=True):
                    self.store(target, start, self._transposed(total, self.lanes // self.inputs), mask=mask)

    def _full_columns(self, j: Index) -> _Columns:
        unmasked, depth_multiplier = [None] * self.vectors, self.depth_multiplier
        first_input = self.floordiv(j, depth_multiplier) if depth_multiplier else 0
        starts = [v * self.lanes // max(1, depth_multiplier) for v in range(self.vectors)]
        return _Columns(j, self.view(self.b, j), unmasked, first_input, starts, unmasked)

    def _masked(self, columns: _Columns) -> _Columns:
        """The columns, with masks."""
        n, starts = self.parameter["n"], columns.input_starts
        masks = [self.lane_mask(self.add(columns.first, v * self.lanes), n, self.lanes) for v in range(self.vectors)]
        if self.depth_multiplier < 2:
            return columns._replace(masks=masks, input_masks=masks)
        inputs = self.floordiv(n, self.depth_multiplier)
        if self.inputs > 1:
            input_masks = [self.lane_mask(self.add(columns.first_input, x), inputs, self.inputs) for x in starts]
            return columns._replace(masks=masks, input_masks=input_masks)
        last_input = self.sub(inputs, self.add(columns.first_input, 1))  # in its place, since no column is stored
        return columns._replace(masks=masks, input_starts=[self.min(x, last_input) if x else x for x in starts])

    def _rows(self, i: Index, columns: _Columns) -> _Rows:
        arithmetic, last_run = self.arithmetic, self.sub(self.parameter["m"], self.arithmetic.strided_rows)
        runs: list[Buffer] = []
        targets: list[Buffer] = []
        for run in range(0, arithmetic.mr, arithmetic.strided_rows):
            first_row = self.min(self.add(i, run), last_run)
            start = self.add(self.load(self.a_row_offsets, first_row), columns.first_input)
            runs.append(self.view(self.a, start))
            for r in range(arithmetic.strided_rows):
                offset = self.load(self.c_row_offsets, self.add(first_row, r))
                targets.append(self.view(self.c, self.add(offset, columns.first)))
        return _Rows(runs, targets)

    def _tile(self, columns: _Columns, rows: _Rows) -> Iterator[tuple[Buffer, int, Value | None]]:
        """The address in C and the mask of each vector."""
        for target, (v, mask) in product(rows.targets, enumerate(columns.masks)):
            yield target, v * self.lanes, mask

    def _initial_sums(self, i: Index, columns: _Columns, rows: _Rows) -> list[Value]:
        """The values of C, or zeros. The lines that are written are prefetched: those of the next tile if this one is
        read."""
        tile, last_row = list(self._tile(columns, rows)), self.sub(self.parameter["m"], 1)

        def load_tile() -> list[Value]:
            for r in range(self.arithmetic.mr):
                row = self.min(self.add(i, self.arithmetic.mr + r), last_row)
                target = self.view(self.c, self.add(self.load(self.c_row_offsets, row), columns.first))
                self._prefetch_writes((target, v * self.lanes) for v in range(self.vectors))
            loads = (self.load(target, start, self.lanes, mask=mask) for target, start, mask in tile)
            return [self._transposed(x, self.inputs) for x in loads]

        def begin_tile() -> list[Operand]:
            self._prefetch_writes((target, start) for target, start, _ in tile)
            return [self.broadcast(Literal(self.c.type, 0), self.lanes)] * len(tile)

        return self.branch(self.compare("NE", self.parameter["accumulate"], 0), load_tile, begin_tile)

    def _prefetch_writes(self, addresses: Iterable[tuple[Buffer, Index]]) -> None:
        for target, start in addresses:
            self.prefetch(target, start, for_writing=True, cache_level=1)

    def _add_products(self, sums: Sequence[Value], columns: _Columns, rows: _Rows) -> list[Value]:
        """The sums with the products of all terms."""
        add = self._add_by_rows if self.arithmetic.shared_terms == 1 else self._add_by_terms
        with self.loop(0, self.parameter["k"], sums, sequential=True, nonempty=True) as (t, loop):
            a_offset, b_row = self.load(self.a_k_offsets, t), self.view(columns.factors, self.load(self.b_k_offsets, t))
            term = _Term(a_offset, self._factors(b_row, columns))
            totals = add([carried.arg for carried in loop.carried], term, columns, rows)
            for carried, total in zip(loop.carried, totals, strict=True):
                carried.next = total
        return [carried.result for carried in loop.carried]

    def _factors(self, row: Buffer, columns: _Columns) -> list[list[Value]]:
        """Rows of B, of a term or of each shared one, as vectors."""
        factors: list[list[Value]] = []
        for k in range(self.arithmetic.shared_terms):
            row = self.view(row, self.parameter["b_k_stride"]) if k else row
            factors.append([self._load_factors(row, v, columns) for v in range(self.vectors)])
        return factors

    def _load_factors(self, row: Buffer, v: int, columns: _Columns) -> Value:
        start = v * self.lanes
        if self.arithmetic.skinny_rows:
            self.prefetch(row, self.add(self.prefetch_distance, start), cache_level=1)
        return self._transposed(self.load(row, start, self.lanes, mask=columns.masks[v]), self.inputs)

    def _add_by_rows(self, sums: Sequence[Value], term: _Term, columns: _Columns, rows: _Rows) -> list[Value]:
        """The sums with the products of one term: an element of A for each row."""
        (factors,), offsets, totals = term.factors, [term.a_offset], list[Value]()
        while len(offsets) < self.arithmetic.strided_rows:
            offsets.append(self.add(offsets[-1], self.parameter["a_row_stride"]))
        for r, (run, offset) in enumerate(product(rows.runs, offsets)):
            x = None if self.depth_multiplier else self.broadcast(self.load(run, offset), self.lanes)
            for v, y in enumerate(factors):
                left = self._load_inputs(run, offset, v, columns) if x is None else x
                totals.append(self._multiply_add(left, y, sums[r * self.vectors + v]))
        return totals

    def _add_by_terms(self, sums: Sequence[Value], term: _Term, columns: _Columns, rows: _Rows) -> list[Value]:
        """The sums with the products of shared terms: each loaded element of A is used by all rows and terms that read
        it."""
        totals, shared_terms = [*sums], self.arithmetic.shared_terms
        (elements,), distance = rows.runs, term.a_offset
        for i in range(self.arithmetic.mr + shared_terms - 1):
            elements, distance = self.view(elements, distance), self.parameter["a_row_stride"]
            x = self._load_inputs(elements, 0, 0, columns)
            for k in range(max(0, i - self.arithmetic.mr + 1), min(i + 1, shared_terms)):
                totals[i - k] = self._multiply_add(x, term.factors[k][0], totals[i - k])
        return totals

    def _load_inputs(self, run: Buffer, offset: Index, v: int, columns: _Columns) -> Value:
        """Inputs of a vector of columns, each repeated as often as columns use it."""
        offset = self.add(offset, columns.input_starts[v])
        if self.inputs == 1:
            return self.broadcast(self.load(run, offset), self.lanes)
        x = self.load(run, offset, self.inputs, mask=columns.input_masks[v])
        return x if self.inputs == self.lanes else self.shuffle([k % self.inputs for k in range(self.lanes)], x)

    def _transposed(self, x: Value, rows: int) -> Value:
        """The transpose of a vector as a matrix of `rows` rows; of vectors in memory's order, the vector."""
        columns = self.lanes // rows
        order = [lane % rows * columns + lane // rows for lane in range(self.lanes)]
        return self.shuffle(order, x) if self.is_transposed else x

    def _multiply_add(self, x: Operand, y: Operand, addend: Operand) -> Value:
        type = self.c.type
        if self.arithmetic.packed_type:
            return self.compute("dot-product-add", type, x, y, addend, factors=self.arithmetic.packed_type)
        if type[0] == "s":
            return self.compute("add", type, self.compute("multiply", type, x, y), addend)
        return self.compute("multiply-add", type, x, y, addend)
