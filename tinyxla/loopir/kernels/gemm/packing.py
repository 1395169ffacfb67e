"""GEMM packing: row-major and transposing copies that convert elements to the type of packed panels, in vectors.

A routine takes the target, the source and an array of its arguments (`COPY_ARGUMENTS`): it copies `rows` rows of
`columns` elements with a pitch of `source_pitch` elements to rows with a pitch of `target_pitch`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import Builder, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic, bits_of
from tinyxla.loopir.lower.register_transpose import transposed
from tinyxla.loopir.lower.routine_calls import ParametricBuilder
from tinyxla.loopir.target import vector_bytes

COPY_ARGUMENTS = ("columns", "source_pitch", "rows", "target_pitch", "terms")  # of every routine here
_PREFETCH_ROWS = 16  # rows that prefetches run ahead of the copy
_WORD_BITS = 64  # of the largest unit that is moved; larger elements are several words


def transpose_size() -> int:
    """Rows of the square tile that is transposed in registers."""
    return 8 if vector_bytes() == 64 else 4


class _Conversion(NamedTuple):
    """A conversion of elements from type `source` in memory to type `target` of a panel."""

    source: str
    target: str


def _conversion(source: str, target: str) -> _Conversion:
    """The conversion, or a copy of plain words where none is needed, so that equal routines share one name."""
    is_same = source == target or (source, target) == ("bf16", "u16")
    return _Conversion(*2 * (f"u{bits_of(source)}",)) if is_same else _Conversion(source, target)


def _converted(b: Builder, x: Value, type: str) -> Value:
    return x if x.type == type else b.convert(type, x)


# --- row-major copies -------------------------------------------------------------------------------------------------


@functools.cache
def pack_rows(source: str, arithmetic: Arithmetic, combines: bool) -> str:
    """Declare `pack_rows(to, from, arguments)` and return its symbol: to[i, j] = from[i, j], zero-padded to a full
    vector.

    With `combines`, word to[i, j] combines elements j of as many successive source rows as the arithmetic has factors
    per word; of source rows there are `terms`. Only the last vectors of a row are loaded with a mask: where processors
    have no masked loads of the type, LLVM loads element by element.
    """
    conversion, factors = _conversion(source, arithmetic.panel_type), arithmetic.factors_per_word if combines else 1
    bits = bits_of(conversion.target)
    lanes = arithmetic.lanes if combines else 8 * vector_bytes() // bits // arithmetic.vector_divisor
    b = ParametricBuilder("pack_rows", " ".join(COPY_ARGUMENTS))
    target = b.argument(f"u{bits * factors}" if combines else conversion.target, True)
    elements, n = b.argument(conversion.source), b.parameter
    prefetch_distance = b.mul(n["source_pitch"], _PREFETCH_ROWS)
    with b.loop(0, n["rows"], sequential=True, nonempty=True) as (i, _):
        first = b.mul(i, factors)
        rows = [b.view(elements, b.mul(b.add(first, k), n["source_pitch"])) for k in range(factors)]
        is_row = [b.compare("LT", b.add(first, k), n["terms"]) for k in range(1, factors)]
        ends = [n["columns"], *(b.select(condition, n["columns"]) for condition in is_row)]
        target_row = b.view(target, b.mul(i, n["target_pitch"]))
        full_columns = b.mul(b.floordiv(ends[-1], lanes), lanes)  # the last row is the shortest
        for start, stop in ((0, full_columns), (full_columns, n["columns"])):
            with b.loop(start, stop, sequential=True, step=lanes) as (j, _):
                parts: list[Value] = []
                for row, end in zip(rows, ends, strict=True):
                    b.prefetch(row, b.add(j, prefetch_distance), cache_level=1)
                    mask = None if stop is full_columns else b.lane_mask(j, end, lanes)
                    parts.append(_converted(b, b.load(row, j, lanes, mask=mask), conversion.target))
                b.store(target_row, j, _combined(b, parts, bits) if combines else parts[0])
    name = f"pack_rows_{conversion.source}_{conversion.target}_{factors}_{arithmetic.vector_divisor}"
    return declare_kernel(name, b.kernel)


def _combined(b: Builder, parts: Sequence[Value], bits: int) -> Value:
    """Words of several parts of so many bits, the first one lowest."""
    word = f"u{bits * len(parts)}"
    wide = [b.convert(word, b.compute("bitcast-convert", f"u{bits}", x)) for x in parts]
    shifted = [wide[0], *(b.shift_left(x, k * bits) for k, x in enumerate(wide) if k)]
    return functools.reduce(b.or_, shifted)


# --- transposing copies -----------------------------------------------------------------------------------------------


def transpose(bits: int, is_exact: bool = False) -> str:
    """Declare `transpose(to, from, arguments)` and return its symbol: to[j, i] = from[i, j] for `columns` j and a tile
    of i. Beyond `rows` the last row is repeated, or with `is_exact` nothing is stored."""
    return _declare_transpose(_conversion(f"u{bits}", f"u{bits}"), 1, is_exact)


def pack_transposed(source: str, arithmetic: Arithmetic) -> str:
    """The transposing copy with a conversion for a GEMM; where words combine several elements, a source row has `terms`
    elements."""
    return _declare_transpose(_conversion(source, arithmetic.panel_type), arithmetic.factors_per_word)


@functools.cache
def _declare_transpose(conversion: _Conversion, factors: int, is_exact: bool = False) -> str:
    """In-register transposes of square tiles, whose elements are words of several factors; the last columns are
    gathered."""
    b = _TransposeBuilder(conversion, factors, is_exact)
    b.copy()
    return declare_kernel(f"transpose_{conversion.source}_{conversion.target}_{factors}_{is_exact}", b.kernel)


class _TransposeBuilder(ParametricBuilder):
    """Builds a transposing copy. An element of the transpose is `words` words, and comes from `step` source elements:
    several factors of a word, or the words of a large element."""

    def __init__(self, conversion: _Conversion, factors: int, is_exact: bool) -> None:
        super().__init__("transpose", " ".join(COPY_ARGUMENTS))
        bits = bits_of(conversion.target) * factors
        self.words = max(1, bits // _WORD_BITS)
        self.factors, self.step, self.is_exact = factors, factors * self.words, is_exact
        word = f"u{bits // self.words}"
        source, self.converted = (word, word) if self.words > 1 else conversion
        self.word = word if factors > 1 else self.converted
        self.to, self.source = self.argument(self.word, True), self.argument(source)

    def copy(self) -> None:
        n, height = self.parameter, transpose_size()
        last_row = self.sub(n["rows"], 1)
        rows = [
            self.view(self.source, self.mul(self.min(i, last_row), n["source_pitch"], self.words))
            for i in range(height)
        ]
        lanes = height * self.words
        mask = self.lane_mask(0, self.mul(n["rows"], self.words), lanes) if self.is_exact else None
        columns = n["columns"]
        complete = columns if self.factors == 1 else self.min(self.floordiv(n["terms"], self.factors), columns)
        full_columns = self.mul(self.floordiv(complete, height), height)
        pitch = self.mul(n["target_pitch"], self.words)
        with self.loop(0, full_columns, sequential=True, step=height) as (p, _):
            first, start = self.mul(p, self.step), self.mul(p, pitch)
            square = [self._words(self.load(row, first, height * self.step)) for row in rows]
            for column in transposed(self, square, self.words):
                self.store(self.to, start, column, mask=mask)
                start = self.add(start, pitch)
        with self.loop(full_columns, columns, sequential=True) as (q, _):
            first = self.mul(q, self.step)
            is_term = self.lane_mask(first, n["terms"], self.factors) if self.factors > 1 else None
            column = [self._words(self.load(row, first, self.step, mask=is_term)) for row in rows]
            self.store(self.to, self.mul(q, pitch), _concatenated(self, column), mask=mask)

    def _words(self, x: Value) -> Value:
        """Elements as words."""
        x = _converted(self, x, self.converted)
        return x if self.factors == 1 else self.compute("bitcast-convert", self.word, x, lanes=x.lanes // self.factors)


def _concatenated(b: Builder, vectors: Sequence[Value]) -> Value:
    """One vector of as many vectors (or scalars) as a power of two."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [b.shuffle(range(2 * x.lanes), x, y) for x, y in pairs]
    return vectors[0]
