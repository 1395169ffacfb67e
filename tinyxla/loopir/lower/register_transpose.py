"""In-register transposes of small squares, as routines that kernels call for copies between row-major and column-major
order.

A square of n x n elements is n vectors. In steps of s in 1, 2, 4, ..., n / 2, rows that differ in bit s of their
number exchange the off-diagonal quadrants of every block of 2 s x 2 s elements (Eklundh, A fast computer method for
matrix transposing, 1972).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tinyxla.compiler.costs import LINE_BYTES
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Builder, Index, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.lower.emit import Lowering
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.shapes import element_type

Address = Callable[[Index, Index], tuple[Buffer, Index]]


def transpose_copy(
    low: Lowering,
    source: Address,
    target: Address,
    extent: tuple[Index, Index],
    max_size: int,
    prefetched: Address,
    first: Index = 0,
) -> None:
    """Transpose-copy from a source that is contiguous in the first index to a target that is contiguous in the
    second, by n x n in-register transposes with n <= `max_size`, in the order of the source. The last tiles overlap
    so that none is partial. Falls back to an element-wise copy if no square fits. Addresses in `prefetched` are
    prefetched. First indices below `first` may be skipped."""
    b = low.builder
    (height, length), bytes_each = extent, element_type(source(0, 0)[0].type).dtype.itemsize
    n = square_size(bytes_each, max_size)
    if n == 1:
        with low.loop(0, length) as (j, _), low.loop(first, height) as (i, _):
            b.store(*target(i, j), b.load(*source(i, j)))
        return
    column_tiles, row_tiles = (b.ceil_div(size, n) for size in (length, height))
    pitches = b.scratch(INDEX, len(_ARGUMENTS))
    source_pitch, target_pitch = _pitch(b, source(0, 0), source(0, 1)), _pitch(b, target(0, 0), target(1, 0))
    store_arguments(b, pitches, _ARGUMENTS, source_pitch=source_pitch, target_pitch=target_pitch)
    with low.loop(0, column_tiles) as (q, _), low.loop(b.floordiv(first, n), row_tiles) as (p, _):
        i = b.min(b.mul(p, n), b.sub(height, n))
        j = b.min(b.mul(q, n), b.sub(length, n))
        b.call(_declare(n, bytes_each), source(i, j), target(i, j), prefetched(i, j), (pitches, 0))


def _pitch(b: Builder, row: tuple[Buffer, Index], next_row: tuple[Buffer, Index]) -> Index:
    return b.sub(next_row[1], row[1])


def square_size(bytes_each: int, max_size: int) -> int:
    """The size of the largest supported square of such elements, at most `max_size`; 1 if there is none."""
    return next((n for n in (16, 8, 4) if n <= max_size and n * bytes_each <= LINE_BYTES), 1)


_ARGUMENTS = ("source_pitch", "target_pitch")


@functools.cache
def _declare(n: int, bytes_each: int) -> str:
    """Declare `transpose(source, target, prefetched, (source pitch, target pitch))` for squares of n x n elements of
    `bytes_each` bytes; returns its name. Pitches are in elements; the prefetched square has the source's."""
    words = max(1, bytes_each // 8)  # 64-bit words of an element
    b = ParametricBuilder("transpose", " ".join(_ARGUMENTS))
    type = f"u{8 * bytes_each // words}"
    source, target, prefetched = b.argument(type), b.argument(type, True), b.argument(type)
    source_pitch, target_pitch = (b.mul(b.parameter[name], words) for name in _ARGUMENTS)
    rows: list[Value] = []
    start: Index = 0
    for _ in range(n):
        rows.append(b.load(source, start, n * words))
        b.prefetch(prefetched, b.add(start, n * words - 1))  # in a line where no row ends
        start = b.add(start, source_pitch)
    start = 0
    for row in transposed(b, rows, words):
        b.store(target, start, row)
        start = b.add(start, target_pitch)
    return declare_kernel(f"transpose_{n}_{bytes_each}", b.kernel)


def transposed(b: Builder, square: Sequence[Value], words: int) -> list[Value]:
    """The rows of the transposed square; each element is so many words."""
    rows, n, step = [*square], len(square), 1
    while step < n:
        lower = [n + j - step if j & step else j for j in range(n)]
        upper = [n + j if j & step else j + step for j in range(n)]
        lower_words, upper_words = ([j * words + w for j in order for w in range(words)] for order in (lower, upper))
        for k in range(n):
            if not k & step:
                pair = rows[k], rows[k + step]
                rows[k], rows[k + step] = b.shuffle(lower_words, *pair), b.shuffle(upper_words, *pair)
        step *= 2
    return rows
