"""GEMM arithmetic: which multiply-add instruction the microkernel uses for which element types, and the size of its
tile.

Three instructions are known: the multiply-add of the element type; dot products of pairs (two bf16 into an f32, two s16
into an s32), where the processor has them; and Intel's AMX, whose matrix unit multiplies pairs of bf16 and groups of
four 8-bit integers. The factors of a dot-product instruction share a 32-bit word, and panels then hold such words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyxla.loopir.kernels.gemm.amx import BLOCK, FEATURES, SIDE
from tinyxla.loopir.target import has_feature, has_tiles, vector_bytes

EXACT_ROWS = 16  # up to this m the tile is chosen for the exact m, above for any m, so that kernels are shared
_MIN_AMX_PRODUCTS = 1 << 13  # least m * n * k, in words, for which AMX is faster even if k is below a tile's side
_MIN_SHARED_ROWS, _MAX_SHARED_ROWS = 6, 16  # rows of a tile of one vector that shares loads between terms
_MAX_AMX_BLOCKS = 4  # AMX blocks side by side for which A stays in the L1 cache
_BITS = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16, "pred": 8}
_PAIR_FEATURES = {64: "avx512bw", 32: "avx2", 16: "sse2"}  # with dot products of two s16, by bytes of a vector


def bits_of(type: str) -> int:
    """Bits of an element of this type in memory."""
    return _BITS[type] if type in _BITS else int(type[1:])


@dataclass(frozen=True)
class Arithmetic:
    """A microkernel's multiply-add instruction and the shape of its register tile.

    `accumulator` is the type of sums and `packed_type` the type of the factors that share a 32-bit word ("" if a word
    is one factor). A row of the tile has `vectors` vectors, or with `vector_divisor` 2 half of one. `strided_rows`
    successive rows of A have one stride, so they share an address register. With `shared_terms` above 1, successive
    terms of k read A at the same stride, so an element is loaded once for all rows that use it. `skinny_rows` is the
    height of a tile for an A of few rows, which prefetches B; 0 for other tiles. With `uses_amx` the tile is a block of
    AMX's registers.
    """

    accumulator: str
    packed_type: str = ""
    vectors: int = 1
    vector_divisor: int = 1
    strided_rows: int = 1
    shared_terms: int = 1
    skinny_rows: int = 0
    uses_amx: bool = False

    @property
    def factors_per_word(self) -> int:
        """Terms of k that one instruction multiplies and adds."""
        return 32 // bits_of(self.packed_type) if self.packed_type else 1

    @property
    def panel_type(self) -> str:
        """Element type of packed panels."""
        return "u16" if self.packed_type == "bf16" else self.packed_type or self.accumulator

    @property
    def word_bits(self) -> int:
        """Bits of a word: one factor, or the factors of a dot-product instruction."""
        return bits_of(self.accumulator)

    @property
    def lanes(self) -> int:
        """Words of a vector."""
        return 8 * vector_bytes() // self.word_bits // self.vector_divisor

    @property
    def nr(self) -> int:
        """Columns of the register tile (NR in BLIS)."""
        return self.vectors * self.lanes

    @property
    def mr(self) -> int:
        """Rows of the register tile (MR in BLIS): as many as there are registers for accumulators and addresses."""
        if self.uses_amx:
            return BLOCK
        if self.shared_terms > 1:
            return self.strided_rows
        if self.skinny_rows:
            return self.skinny_rows
        max_rows = (24 if vector_bytes() == 64 else 12) // self.vectors
        return min(8 * self.strided_rows, max_rows // self.strided_rows * self.strided_rows)

    @property
    def k_multiple(self) -> int:
        """Words of k that one instruction consumes: k is cut at multiples."""
        return SIDE if self.uses_amx else 1

    def choose_tile(self, rows: int, columns: int, words: int, strided_rows: int = 1) -> Arithmetic:
        """The same instruction with the register tile of least time for an m x n x k product, k in words; partial tiles
        cost as much as full ones. `strided_rows` successive rows of A may have one stride."""

        def time(arithmetic: Arithmetic) -> float:
            row_tiles = -(-rows // arithmetic.mr) if rows <= EXACT_ROWS else rows / arithmetic.mr
            return (
                row_tiles
                * -(-columns // arithmetic.nr)
                * (max(arithmetic.mr * arithmetic.vectors, arithmetic.mr + arithmetic.vectors) + 2)
            )

        if self._has_matrix_unit() and (words >= SIDE or rows * columns * words >= _MIN_AMX_PRODUCTS):
            blocks = min(_MAX_AMX_BLOCKS, -(-columns // BLOCK))
            return replace(self, vectors=BLOCK // SIDE * (1 << (blocks - 1).bit_length()), uses_amx=True)
        divisor, widths = 1, [v for v in (4, 3, 2, 1) if vector_bytes() == 64 or v < 3]
        if vector_bytes() == 64 and not self.packed_type and 2 * columns <= self.lanes:
            divisor, widths = 2, [1]  # some processors execute two half-width additions per cycle
        candidates = (
            replace(self, vectors=v, vector_divisor=divisor, strided_rows=r, uses_amx=False)
            for v in widths
            for r in sorted({1, strided_rows})
        )
        return min((arithmetic for arithmetic in candidates if arithmetic.mr), key=time)

    def for_skinny_a(self, rows: int, columns: int) -> Arithmetic:
        """The same instruction with a tile for an A of few rows, whose time is that of reading B from memory."""
        tiles = ((8, 2), (6, 4), (4, 4), (2, 8)) if vector_bytes() == 64 else ((6, 2), (4, 2), (2, 4))
        column_vectors = -(-columns // self.lanes)
        candidates = [replace(self, skinny_rows=r, vectors=v) for r, v in tiles if v <= column_vectors]

        def time(arithmetic: Arithmetic) -> int:
            loads = arithmetic.mr + 2 * arithmetic.vectors + 2
            return (
                -(-rows // arithmetic.mr)
                * -(-columns // arithmetic.nr)
                * (max(arithmetic.mr * arithmetic.vectors, loads) + 2)
            )

        return min(candidates, key=time, default=self)

    def with_shared_terms(self, positions: int, terms: int) -> Arithmetic:
        """The same instruction with a tile of one vector that loads an element of A once for `terms` terms, if they are
        several. Its height divides `positions`."""
        max_rows = min(_MAX_SHARED_ROWS, (32 if vector_bytes() == 64 else 16) - terms - 2)
        rows = next((r for r in range(max_rows, _MIN_SHARED_ROWS - 1, -1) if positions % r == 0), 0)
        if not rows or terms == 1 or self.packed_type or self.uses_amx:
            return self
        return replace(self, vectors=1, strided_rows=rows, shared_terms=terms)

    def _has_matrix_unit(self) -> bool:
        is_supported = self.packed_type in FEATURES and has_feature(FEATURES[self.packed_type])
        return is_supported and vector_bytes() == 4 * SIDE and has_tiles()


def choose_arithmetic(operands: str, result: str, m: int, n: int, k: int) -> Arithmetic | None:
    """The arithmetic of an m x n x k product of `operands` elements with `result` sums; None if no instruction is
    known."""
    if result in ("s32", "u32") and operands in ("s8", "u8"):
        arithmetic = Arithmetic("s32", operands)
        arithmetic = arithmetic.choose_tile(m, n, -(-k // arithmetic.factors_per_word))
        if arithmetic.uses_amx:
            return arithmetic
    arithmetic = _instruction_for(operands, result)
    return arithmetic and arithmetic.choose_tile(m, n, -(-k // arithmetic.factors_per_word))


def _multiplies_pairs() -> bool:
    """Whether the processor has a dot product of s16 pairs."""
    return vector_bytes() in _PAIR_FEATURES and has_feature(_PAIR_FEATURES[vector_bytes()])


def _instruction_for(operands: str, result: str) -> Arithmetic | None:
    """The vector instruction for these element types, with the default tile; None if there is none."""
    if result == "f32" and operands == "bf16" and has_feature("avx512bf16"):
        return Arithmetic("f32", "bf16")
    if result in ("f32", "f64") and operands in ("f64", "f32", "f16", "bf16"):
        return Arithmetic(result)
    if result in ("s32", "u32") and operands in ("s8", "u8", "s16") and _multiplies_pairs():
        return Arithmetic("s32", "s16")
    integers = {"s32": "s32", "u32": "s32", "s64": "s64", "u64": "s64"}
    return Arithmetic(integers[result]) if result in integers and operands[0] in "su" else None
