"""Packed, cache-blocked GEMM (Goto and van de Geijn) for element types that the BLAS lacks, and where its set-up costs
too much.

Loops around the microkernel (see `microkernel`), from the inside: mr x nr tiles of C in registers; panels of B of nr
columns; blocks of mc rows of A; blocks of kc terms. B is read in place if its rows are contiguous, fit into the L2
cache and do not share cache sets. Otherwise it is packed into panels [panel, k, nr]: once for all threads, or by each
thread for its block of A. A is packed by the thread that needs its rows if a tile does not find its elements in order.
Packing converts element types. `arithmetic` selects the multiply-add instruction, among them AMX (see `amx`).

Tiles depend on shapes alone, and a long k is split at fixed places (split-K), so results do not depend on the number of
threads. Kernels are parametric: sizes and strides are scalars of the kernel, so one kernel serves all shapes.

Source: K. Goto and R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34 (2008); F. Van Zee
and R. van de Geijn, BLIS: a framework for rapidly instantiating BLAS functionality, ACM TOMS 41 (2015).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from tinyxla.compiler.costs import L2_BYTES
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Kernel
from tinyxla.loopir.kernels.gemm import packing
from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic, bits_of, choose_arithmetic
from tinyxla.loopir.kernels.gemm.microkernel import MICROKERNEL_ARGUMENTS, declare_microkernel
from tinyxla.loopir.kernels.gemm.packing import COPY_ARGUMENTS, transpose_size
from tinyxla.loopir.kernels.gemm.problem import (
    CHUNKS,
    MIN_CHUNK_MULTIPLIES,
    GemmProblem,
)
from tinyxla.loopir.lower.axes import parallel_grain
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.loopir.lower.reductions import combine_partials
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape, element_type

_KC = 384  # Goto's kc, in words: a tile's rows of A and panel of B stay in the L2 cache
_AMX_KC = 256  # kc for AMX, whose panels are wider
_PITCH_PADDING = 16  # words by which packed rows of A are padded, so that their pitch is no power of two
_STREAMING_KC = 64  # kc if B is streamed: each row of B is read once, all columns in order
_MAX_STREAMING_ROWS = 2  # rows of A for which B is streamed even if it fits into the cache
_MAX_ALIASED_ROWS = 4  # rows of B that may share a set of the cache
_MC = 48  # Goto's mc, a multiple of mr
_TALL_MC = 144  # mc if no panel stays in the L2 cache
_FUSED_PACKING_MC = 336  # mc if each block packs its own panels of B and reads A in place
_MIN_PACKED_ROWS = 512  # m above which a B beyond the L2 cache is packed although A is packed too
_MIN_REPACK_PANELS = 8  # panels of B for which repacking a block of A pays
_AMX_MC = 128  # mc for AMX
_STORE_TERMS = 4  # terms of k that take as long as loading and storing the accumulator
_REPACKING_ROWS = 4  # rows of A whose products take as long as packing a panel of B, or reading it once more
_MAX_ROW_PARTS = 4  # parts of a usual block of A

# --- kernels around the microkernel -----------------------------------------------------------------------------------


class Panel(NamedTuple):
    """A panel of B: nr columns (`panel`) of matrix `batch`, `words` rows of words from row `start` on."""

    batch: Index
    panel: Index
    start: Index
    words: Index


Address = tuple[Buffer, Index]
_PARAMETERS = (
    "k m n words a_batch a_row a_column b_batch b_row b_column c_batch c_row c_split row_blocks mc panel_groups "
    "group_panels k_splits split_words kc upper_only block_divisor group_divisor"
)


def _pack_panel(
    b: ParametricBuilder,
    arithmetic: Arithmetic,
    type: str,
    row_major: bool,
    to: Address,
    source: Buffer,
    sizes: Buffer,
    at: Panel,
) -> None:
    """Pack `at.words` words of a panel of B, whose rows (`row_major`) or else columns are contiguous, into the buffer
    at `to`."""
    n, start = b.parameter, b.mul(at.start, arithmetic.factors_per_word)
    first_column, columns = b.tile_start_and_size(at.panel, arithmetic.nr, n["n"])
    row, column = (n["b_row"], 1) if row_major else (1, n["b_column"])
    base = b.add(b.mul(at.batch, n["b_batch"]), b.mul(first_column, column), b.mul(start, row))
    store_arguments(b, sizes, COPY_ARGUMENTS, target_pitch=arithmetic.nr, terms=b.sub(n["k"], start))
    if row_major:
        store_arguments(b, sizes, COPY_ARGUMENTS, columns=columns, source_pitch=row, rows=at.words)
        b.call(packing.pack_rows(type, arithmetic, arithmetic.factors_per_word > 1), to, (source, base), (sizes, 0))
        return
    store_arguments(b, sizes, COPY_ARGUMENTS, columns=at.words, source_pitch=column)
    height = transpose_size()
    with b.loop(0, b.ceil_div(columns, height), sequential=True) as (group, _):
        j = b.mul(group, height)
        store_arguments(b, sizes, COPY_ARGUMENTS, rows=b.sub(columns, j))
        target = to[0], b.add(to[1], b.mul(j, arithmetic.factors_per_word))
        b.call(packing.pack_transposed(type, arithmetic), target, (source, b.add(base, b.mul(j, column))), (sizes, 0))


@functools.cache
def _packing_kernel(arithmetic: Arithmetic, type: str, row_major: bool) -> Kernel:
    """The kernel that packs B into panels [batch, panel, k, nr]."""
    b = ParametricBuilder(
        "panels", "k n words pitch b_batch b_row b_column panels chunk_panels groups chunks chunk_words"
    )
    n = b.parameter
    source = b.argument(type)
    panels = b.argument(arithmetic.panel_type, True)
    sizes = b.scratch(INDEX, len(COPY_ARGUMENTS))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, group, chunk = b.delinearize(index, n["groups"], n["chunks"])
        start, stop = b.tile_range(chunk, n["chunk_words"], n["words"])
        first, last = b.tile_range(group, n["chunk_panels"], n["panels"])
        with b.loop(first, last, sequential=True) as (panel, _):
            row = b.add(b.mul(b.add(b.mul(batch, n["panels"]), panel), n["pitch"]), start)
            to = panels, b.mul(row, arithmetic.nr * arithmetic.factors_per_word)
            at = Panel(batch, panel, start, b.sub(stop, start))
            _pack_panel(b, arithmetic, type, row_major, to, source, sizes, at)
    return b.kernel


class PackedRows(NamedTuple):
    """A block of A to pack: `words` of each of `rows` rows; columns are `column_stride` elements apart, `terms` columns
    remain, and the packed block has room for `max_rows` rows."""

    words: Index
    rows: Index
    terms: Index
    column_stride: Index
    max_rows: int


def _pack_transposed_rows(
    b: ParametricBuilder,
    arithmetic: Arithmetic,
    type: str,
    to: Buffer,
    words: Buffer,
    source: Address,
    sizes: Buffer,
    at: PackedRows,
) -> None:
    """Pack rows of a column-major A for AMX: a few columns are combined to words, which are then transposed."""
    height = transpose_size()
    with b.loop(0, b.ceil_div(at.words, height), sequential=True) as (group, _):
        word = b.mul(group, height)
        term, count = b.mul(word, arithmetic.factors_per_word), b.min(b.sub(at.words, word), height)
        terms = b.sub(at.terms, term)
        store_arguments(b, sizes, COPY_ARGUMENTS, columns=at.rows, source_pitch=at.column_stride, rows=count)
        store_arguments(b, sizes, COPY_ARGUMENTS, target_pitch=at.max_rows, terms=terms)
        first_column = source[0], b.add(source[1], b.mul(term, at.column_stride))
        b.call(packing.pack_rows(type, arithmetic, True), (words, 0), first_column, (sizes, 0))
        store_arguments(b, sizes, COPY_ARGUMENTS, source_pitch=at.max_rows, target_pitch=_AMX_KC + _PITCH_PADDING)
        b.call(packing.transpose(arithmetic.word_bits), (to, term), (words, 0), (sizes, 0))


class GemmForm(NamedTuple):
    """What distinguishes GEMM kernels: the instruction and its tile, element types, and how operands are read.

    A is packed (`packs_a`) or read in place. With `packs_b` the kernel packs the panels of B for its block of A.
    """

    arithmetic: Arithmetic
    a_type: str
    b_type: str
    result: str
    packs_a: bool
    a_row_major: bool
    packs_b: bool
    b_row_major: bool

    @property
    def transposes_a(self) -> bool:
        return self.packs_a and self.arithmetic.uses_amx and not self.a_row_major


class _Block(NamedTuple):
    """A block of A and a part of k: the matrix, the offsets in A and C, the rows, and the range of words."""

    batch: Index
    source: Index
    target: Index
    rows: Index
    begin: Index
    end: Index


@functools.cache
def _gemm_kernel(form: GemmForm) -> Kernel:
    """The kernel of blocks of A by groups of panels of B, for each part of a split k."""
    return _GemmBuilder(form).build()


class _GemmBuilder(ParametricBuilder):
    """The builder of a GEMM kernel."""

    def __init__(self, form: GemmForm) -> None:
        super().__init__("product", _PARAMETERS)
        self.form, self.arithmetic, n = form, form.arithmetic, self.parameter
        self.a, self.right = self.argument(form.a_type), self.argument(form.b_type)
        self.c = self.argument(form.result, True)
        factors, panel_type, nr = self.arithmetic.factors_per_word, self.arithmetic.panel_type, self.arithmetic.nr
        self.max_rows = _max_mc(self.arithmetic, form.packs_a, form.packs_b)
        kc = _kc(self.arithmetic)
        self.pitch = kc + _PITCH_PADDING
        self.packed_a = self.scratch(panel_type, self.max_rows * self.pitch * factors) if form.packs_a else self.a
        words = transpose_size() * self.max_rows * factors
        self.words = self.scratch(panel_type, words) if form.transposes_a else self.a
        self.packed_b = self.scratch(panel_type, kc * nr * factors) if form.packs_b else self.right
        self.copy = self.scratch(INDEX, len(COPY_ARGUMENTS))
        self.sizes = self.scratch(INDEX, len(MICROKERNEL_ARGUMENTS))
        self.offset_lists = [self.scratch(INDEX, count) for count in (self.max_rows, self.max_rows, kc, kc)]
        self.row, self.column = (n["a_row"], 1) if form.a_row_major else (1, n["a_column"])
        self._fill_offset_lists()

    def _fill_offset_lists(self) -> None:
        """Offsets of the rows and words of a block, which are those of all blocks."""
        form, n = self.form, self.parameter
        a_row_offsets, c_row_offsets, a_k_offsets, b_k_offsets = self.offset_lists
        row_stride, word_stride = (self.pitch, 1) if form.a_row_major or form.transposes_a else (1, self.max_rows)
        if not form.packs_a:
            factors = self.arithmetic.factors_per_word
            row_stride, word_stride = self.floordiv(self.row, factors) if form.a_row_major else 1, self.column
        self.list(a_row_offsets, self.min(n["mc"], n["m"]), row_stride)
        self.list(c_row_offsets, self.min(n["mc"], n["m"]), n["c_row"])
        self.list(a_k_offsets, self.min(n["kc"], n["words"]), word_stride)
        b_row = self.arithmetic.nr if form.packs_b else n["b_row"]
        store_arguments(self, self.sizes, MICROKERNEL_ARGUMENTS, b_k_stride=b_row)
        self.list(b_k_offsets, self.min(n["kc"], n["words"]), b_row)

    def build(self) -> Kernel:
        """The kernel: a loop over the blocks of A, groups of panels and parts of k."""
        n, nr = self.parameter, self.arithmetic.nr
        with self.loop(self.kernel.first, self.kernel.last) as (index, _):
            batch, block, split = self.delinearize(index, self.mul(n["row_blocks"], n["panel_groups"]), n["k_splits"])
            row_block = self.remainder(self.floordiv(block, n["block_divisor"]), n["row_blocks"])
            group = self.remainder(self.floordiv(block, n["group_divisor"]), n["panel_groups"])
            first, last = self.tile_range(row_block, n["mc"], n["m"])
            first_panel, last_panel = self.tile_range(group, n["group_panels"], self.ceil_div(n["n"], nr))
            on_diagonal = self.floordiv(self.mul(first, n["upper_only"]), nr)
            first_panel = self.max(first_panel, on_diagonal)
            begin, end = self.tile_range(split, n["split_words"], n["words"])
            source = self.add(self.mul(batch, n["a_batch"]), self.mul(first, self.row))
            matrix, row_offset = self.mul(batch, n["c_batch"]), self.mul(first, n["c_row"])
            target = self.add(matrix, row_offset, self.mul(split, n["c_split"]))
            rows = self.sub(last, first)
            store_arguments(self, self.sizes, MICROKERNEL_ARGUMENTS, m=rows)
            tile = _Block(batch, source, target, rows, begin, end)
            if self.arithmetic.uses_amx and not self.form.packs_a:
                # Keep accumulators of one panel in the cache between blocks of kc.
                with self.loop(first_panel, last_panel, sequential=True) as (panel, _):
                    self._multiply(tile, panel, self.add(panel, 1))
            else:
                self._multiply(tile, first_panel, last_panel)
        return self.kernel

    def _multiply(self, block: _Block, first_panel: Index, last_panel: Index) -> None:
        """Accumulate the products of a block of A and some panels, kc words at a time."""
        n = self.parameter
        with self.loop(0, self.ceil_div(self.sub(block.end, block.begin), n["kc"]), sequential=True) as (chunk, _):
            start = self.add(block.begin, self.mul(chunk, n["kc"]))
            words = self.min(self.sub(block.end, start), n["kc"])
            term = self.mul(start, self.arithmetic.factors_per_word)
            a_offset = self.add(block.source, self.mul(term, self.column))
            store_arguments(self, self.sizes, MICROKERNEL_ARGUMENTS, k=words, accumulate=self.min(chunk, 1))
            if self.form.packs_a:
                self._pack_a(block.rows, words, self.sub(n["k"], term), a_offset)
                a_offset = 0
            with self.loop(first_panel, last_panel, sequential=True) as (panel, _):
                self._multiply_panel(block, a_offset, Panel(block.batch, panel, start, words))

    def _pack_a(self, rows: Index, words: Index, terms: Index, offset: Index) -> None:
        """Pack some words of a block of A, of `terms` columns that remain."""
        form, factors = self.form, self.arithmetic.factors_per_word
        if form.transposes_a:
            block = PackedRows(words, rows, terms, self.column, self.max_rows)
            source = self.a, offset
            _pack_transposed_rows(
                self, self.arithmetic, form.a_type, self.packed_a, self.words, source, self.copy, block
            )
            return
        source_pitch = self.row if form.a_row_major else self.column
        store_arguments(self, self.copy, COPY_ARGUMENTS, source_pitch=source_pitch, terms=terms)
        if form.a_row_major:
            columns = self.min(terms, self.mul(words, factors))
            target_pitch = self.pitch * factors
            store_arguments(self, self.copy, COPY_ARGUMENTS, rows=rows, columns=columns, target_pitch=target_pitch)
        else:
            store_arguments(self, self.copy, COPY_ARGUMENTS, rows=words, columns=rows, target_pitch=self.max_rows)
        routine = packing.pack_rows(form.a_type, self.arithmetic, factors > 1 and not form.a_row_major)
        self.call(routine, (self.packed_a, 0), (self.a, offset), (self.copy, 0))

    def _multiply_panel(self, block: _Block, a_offset: Index, at: Panel) -> None:
        """Call the microkernel for a block of A and a panel of B, which is packed first if need be."""
        form, n = self.form, self.parameter
        first_column, columns = self.tile_start_and_size(at.panel, self.arithmetic.nr, n["n"])
        store_arguments(self, self.sizes, MICROKERNEL_ARGUMENTS, n=columns)
        b_offset: Index = 0
        if form.packs_b:
            to = self.packed_b, 0
            _pack_panel(self, self.arithmetic, form.b_type, form.b_row_major, to, self.right, self.copy, at)
        else:
            matrix, column_offset = self.mul(block.batch, n["b_batch"]), self.mul(first_column, n["b_column"])
            b_offset = self.add(matrix, column_offset, self.mul(at.start, n["b_row"]))
            b_offset = self.mul(b_offset, self.arithmetic.factors_per_word)
        c_offset = self.add(block.target, first_column)
        matrices = (self.c, c_offset), (self.packed_a, a_offset), (self.packed_b, b_offset)
        arrays = ((array, 0) for array in (*self.offset_lists, self.sizes))
        self.call(declare_microkernel(self.arithmetic), *matrices, *arrays)


# --- block sizes ------------------------------------------------------------------------------------------------------


def _kc(arithmetic: Arithmetic) -> int:
    """Words of k in a block."""
    return _AMX_KC if arithmetic.uses_amx else _KC


def _max_mc(arithmetic: Arithmetic, packs_a: bool, packs_b: bool) -> int:
    """The largest mc of a kernel."""
    if arithmetic.uses_amx:
        return _AMX_MC // 2 if packs_b else _AMX_MC
    return _MC if packs_a else _FUSED_PACKING_MC


def _can_read_a_in_place(arithmetic: Arithmetic, p: GemmProblem) -> bool:
    """Whether elements of A, or words of contiguous ones, are factors without a conversion."""
    left, type = p.left, p.types[0]
    if arithmetic.factors_per_word == 1:
        return type == arithmetic.accumulator
    has_whole_words = not any(size % arithmetic.factors_per_word for size in (p.k, left.row, left.batch))
    return type == arithmetic.packed_type and left.row_major and has_whole_words


@dataclass(frozen=True)
class _Blocking:
    """Block sizes of a GEMM (Goto's mc and kc, in rows and words), and how its work is cut into chunks for threads."""

    mc: int
    row_blocks: int
    panel_groups: int
    group_panels: int
    k_splits: int
    split_words: int
    kc: int
    max_mc: int
    keeps_group: bool  # whether a group of panels stays in the cache for all blocks of A

    @property
    def chunks(self) -> int:
        """Chunks of each matrix of the batch."""
        return self.row_blocks * self.panel_groups * self.k_splits


def _choose_blocking(
    p: GemmProblem, arithmetic: Arithmetic, kc: int, packs_a: bool, packs_b: bool, fuses: bool
) -> _Blocking:
    """The blocks of a GEMM. `packs_b` says that B is packed, and `fuses` that each block of A packs its panels of B.
    `kc` is the largest number of rows of B to read in place at once."""
    words = -(-p.k // arithmetic.factors_per_word)
    panels = -(-p.n // arithmetic.nr)
    b_bytes = _bytes_of_b(p, arithmetic)
    cached_panels = L2_BYTES // (2 * arithmetic.nr * words * arithmetic.word_bits // 8)
    max_mc = _max_mc(arithmetic, packs_a, fuses)
    if not (arithmetic.uses_amx or fuses):
        max_mc = min(max_mc, _MC if cached_panels else _TALL_MC)
    streams_b = arithmetic.skinny_rows > 0 and (p.m <= _MAX_STREAMING_ROWS or b_bytes > 2 * L2_BYTES)
    if streams_b or fuses:
        mc = p.m
    elif panels >= CHUNKS:  # B is the larger operand: read it once
        mc = min(max_mc, p.m)
    else:
        mc = min(max_mc, max(arithmetic.mr, -(-p.m * p.batch // CHUNKS)))
    mc = _round_up(-(-p.m // -(-p.m // mc)), arithmetic.mr)
    row_blocks = -(-p.m // mc)
    if streams_b:
        kc = max(1, min(_STREAMING_KC, L2_BYTES * 8 // arithmetic.word_bits // p.right.row))
    elif packs_b:
        kc = _kc(arithmetic)
    k_blocks = -(-words // kc)
    missing = -(-CHUNKS // (p.batch * row_blocks))
    panel_groups = 1 if streams_b and k_blocks >= missing else max(1, min(panels, missing))
    group = max(cached_panels, _MIN_REPACK_PANELS if packs_a else 1)
    keeps_group = panels > group * panel_groups and not (streams_b or fuses)
    group_panels = group if keeps_group else max(1, panels // panel_groups)
    panel_groups = -(-panels // group_panels)
    k_splits = min(k_blocks // 2, CHUNKS // (p.batch * row_blocks * panel_groups)) // 2 * 2 or 1
    split_words = _round_up(-(-words // k_splits), arithmetic.k_multiple)
    kc = _round_up(-(-split_words // -(-split_words // kc)), arithmetic.k_multiple)
    k_splits = -(-words // split_words)
    return _Blocking(mc, row_blocks, panel_groups, group_panels, k_splits, split_words, kc, max_mc, keeps_group)


def _balanced(blocks: _Blocking, p: GemmProblem, arithmetic: Arithmetic) -> _Blocking:
    """The blocks of a GEMM for many processors: groups of panels and blocks of A become smaller, so that the busiest
    processor of the target has least to do. The split of k, and so each sum, stays the same."""
    processors = min(current_target().processors, p.batch * p.m * p.n * p.k // MIN_CHUNK_MULTIPLIES)
    if 2 * processors <= CHUNKS:
        return blocks
    panels = -(-p.n // arithmetic.nr)

    def time(candidate: _Blocking) -> float:
        share = -(-p.batch * candidate.chunks // processors) * candidate.mc * min(candidate.group_panels, panels)
        return share * (1 + _REPACKING_ROWS / candidate.mc)  # a block of A may pack its panels of B

    candidates = [blocks]
    for parts in range(1, _MAX_ROW_PARTS + 1):
        mc = _round_up(-(-p.m // (blocks.row_blocks * parts)), arithmetic.mr)
        for group in {-(-panels // k) for k in range(blocks.panel_groups, min(panels, 4 * processors) + 1)}:
            candidates.append(
                replace(blocks, mc=mc, row_blocks=-(-p.m // mc), group_panels=group, panel_groups=-(-panels // group))
            )
    return min(candidates, key=time)


def _bytes_of_b(p: GemmProblem, arithmetic: Arithmetic) -> int:
    """Bytes of one matrix B."""
    return p.k * p.right.row * arithmetic.word_bits // 8


def _choose_packing(
    p: GemmProblem, arithmetic: Arithmetic, panels: int, is_b_in_order: bool
) -> tuple[int, bool, bool, bool]:
    """The terms kc of a block, whether A and B are packed, and whether B is packed by the kernel of the product."""
    row_bytes = p.right.row * arithmetic.word_bits // 8
    way_bytes = L2_BYTES // 8  # of the cache: addresses this far apart share a set
    kc = min(_kc(arithmetic), _MAX_ALIASED_ROWS * way_bytes // math.gcd(row_bytes, way_bytes))
    packs_a = not _can_read_a_in_place(arithmetic, p) or (not p.left.row_major and panels > 1)
    is_scattered = kc < _kc(arithmetic) // 2 or _bytes_of_b(p, arithmetic) > L2_BYTES * (1 if p.m >= _MC else 2)
    pays_off = is_scattered and p.m > (_MIN_PACKED_ROWS if packs_a else _MC)
    packs_b = not is_b_in_order or pays_off
    fuses = packs_b and p.m <= _max_mc(arithmetic, packs_a, True) and (p.batch == 1 or p.right.batch > 0)
    return kc, packs_a, packs_b, fuses


def kernels(x: Instruction, p: GemmProblem, plan: Plan) -> list[LoweredKernel]:
    """The kernels of a GEMM: packing of B, the product, the sum of a split k, and the mirror image of a symmetric
    result."""
    type, b_type, result = p.types
    arithmetic = choose_arithmetic(type, result, p.m, p.n, p.k)
    assert arithmetic is not None
    is_b_in_order = arithmetic.factors_per_word == 1 and b_type == arithmetic.accumulator and p.right.row_major
    if p.m <= _MC and is_b_in_order:
        arithmetic = arithmetic.for_skinny_a(p.m, p.n)
    words, panels = -(-p.k // arithmetic.factors_per_word), -(-p.n // arithmetic.nr)
    steps: list[LoweredKernel] = []
    kc, packs_a, packs_b, fuses = _choose_packing(p, arithmetic, panels, is_b_in_order)
    right: Storage = x.operands[1]
    b_batch, b_row, b_column = p.right.batch, p.right.row, p.right.column
    if packs_b and not fuses:
        right, packing_step, pitch = _pack_b(x, p, arithmetic)
        steps.append(packing_step)
        b_batch, b_row, b_column = panels * pitch * arithmetic.nr if p.right.batch else 0, arithmetic.nr, pitch
    blocks = _balanced(_choose_blocking(p, arithmetic, kc, packs_a, packs_b, fuses), p, arithmetic)
    is_symmetric = _is_symmetric(x) and p.m >= 2 * blocks.max_mc
    partial = Temporary(Shape(x.array_shape.element_type, (blocks.k_splits, x.array_shape.size)))
    target: Storage = x if blocks.k_splits == 1 else partial
    parameters = (
        *(p.k, p.m, p.n, words, p.left.batch, p.left.row, p.left.column, b_batch, b_row, b_column),
        *(p.m * p.n, p.n, x.array_shape.size, blocks.row_blocks, blocks.mc, blocks.panel_groups, blocks.group_panels),
        *(blocks.k_splits, blocks.split_words, blocks.kc, int(is_symmetric)),
        *((1, blocks.row_blocks) if blocks.keeps_group else (blocks.panel_groups, 1)),
    )
    b_type = b_type if fuses or not packs_b else arithmetic.panel_type
    form = GemmForm(arithmetic, type, b_type, result, packs_a, p.left.row_major, fuses, p.right.row_major)
    kernel = _gemm_kernel(form)
    work = blocks.mc * blocks.group_panels * arithmetic.nr * (min(blocks.split_words, words) + _STORE_TERMS) // 2
    arguments = [x.operands[0], right, target]
    steps.append(bind_parameters(kernel, arguments, parameters, p.batch * blocks.chunks, work, x))
    if blocks.k_splits > 1:
        steps.append(combine_partials(partial, x, plan))
    return [*steps, _mirror_triangle(x, p)] if is_symmetric else steps


def _pack_b(x: Instruction, p: GemmProblem, arithmetic: Arithmetic) -> tuple[Temporary, LoweredKernel, int]:
    """Pack B: the panels, the kernel that packs them, and the pitch of a panel in words of k."""
    source, words = x.operands[1], -(-p.k // arithmetic.factors_per_word)
    count, panels = p.batch if p.right.batch else 1, -(-p.n // arithmetic.nr)
    pitch = words + 1  # no power of two, so that panels do not share cache sets
    packed = Temporary(
        Shape(element_type(arithmetic.panel_type), (count, panels, pitch, arithmetic.nr * arithmetic.factors_per_word))
    )
    chunk_words, chunk_panels = (_MC, panels) if p.right.row_major else (_kc(arithmetic), 1)
    groups, chunks = panels // chunk_panels, -(-words // chunk_words)
    strides = (p.right.batch, p.right.row, p.right.column)
    parameters = (p.k, p.n, words, pitch, *strides, panels, chunk_panels, groups, chunks, chunk_words)
    work = 2 * chunk_panels * arithmetic.nr * arithmetic.factors_per_word * min(words, chunk_words)
    kernel = _packing_kernel(arithmetic, source.array_shape.element_type.name, p.right.row_major)
    return packed, bind_parameters(kernel, [source, packed], parameters, count * groups * chunks, work, x), pitch


def bind_parameters(
    kernel: Kernel, arguments: list[Storage], parameters: tuple[int, ...], extent: int, work: int, x: Instruction
) -> LoweredKernel:
    """The kernel with values of its scalar parameters, as one step over `extent` iterations of `work` operations
    each."""
    return LoweredKernel(kernel, arguments, extent, parallel_grain(extent, work), [x], parameters)


def _is_symmetric(x: Instruction) -> bool:
    """Whether a matrix is multiplied by its own transpose (BLAS syrk), so that a triangle of C suffices."""
    lhs, rhs = x.operands
    dims: contraction.Dot = x.attributes
    return lhs is rhs and dims.contracting(0) == dims.contracting(1) and dims.batch(0) == dims.batch(1)


@functools.cache
def _mirror_kernel(type: str) -> Kernel:
    """The kernel that copies the strict upper triangle of tiles, transposed, below the diagonal."""
    b = ParametricBuilder("mirror", "m groups size")
    n, height = b.parameter, transpose_size()
    out, sizes = b.argument(type, True), b.scratch(INDEX, len(COPY_ARGUMENTS))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        matrix, group = b.delinearize(index, n["groups"])
        first, after = b.tile_range(group, height, n["m"])
        pitches = {"source_pitch": n["m"], "target_pitch": n["m"]}
        store_arguments(b, sizes, COPY_ARGUMENTS, rows=height, columns=b.sub(n["m"], after), **pitches)
        base = b.mul(matrix, n["size"])
        below, right = b.add(base, b.mul(after, n["m"]), first), b.add(base, b.mul(first, n["m"]), after)
        b.call(packing.transpose(bits_of(type)), (out, below), (out, right), (sizes, 0))
    return b.kernel


def _mirror_triangle(x: Instruction, p: GemmProblem) -> LoweredKernel:
    """The kernel step that completes a symmetric C. Tiles on the diagonal are complete: terms are summed in the same
    order for (i, j) and (j, i)."""
    groups = -(-p.m // transpose_size())
    kernel = _mirror_kernel(x.array_shape.element_type.name)
    return bind_parameters(kernel, [x], (p.m, groups, p.m * p.m), p.batch * groups, p.m * transpose_size(), x)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
