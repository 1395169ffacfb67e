"""In-register transposes of small squares, as routines that kernels call for copies between row-major and column-major
order.

A square of n x n elements is n vectors. In steps s = 1, 2, 4, ..., n / 2, rows that differ in bit s of their number
exchange the off-diagonal quadrants of every block of 2 s x 2 s elements (Eklundh, A fast computer method for matrix
transposing, 1972).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tinyxla.loopir.ir.loop_ir import Buffer, Index
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.lower.emit import Lowering
from tinyxla.shapes import element_type

_MAX_ROW_BYTES = 64  # of a square

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
    with low.loop(0, column_tiles) as (q, _), low.loop(b.floordiv(first, n), row_tiles) as (p, _):
        i = b.min(b.mul(p, n), b.sub(height, n))
        j = b.min(b.mul(q, n), b.sub(length, n))
        addresses = source(i, j), source(i, b.add(j, 1)), target(i, j), target(b.add(i, 1), j)
        b.call(_declare(n, bytes_each), *addresses, prefetched(i, j))


def square_size(bytes_each: int, max_size: int) -> int:
    """The size of the largest supported square of such elements, at most `max_size`; 1 if there is none."""
    return next((n for n in (16, 8, 4) if n <= max_size and n * bytes_each <= _MAX_ROW_BYTES), 1)


@functools.cache
def _declare(n: int, bytes_each: int) -> str:
    """Declare the routine for squares of n x n elements of `bytes_each` bytes; returns its name. The arguments are
    the addresses of the first two rows of the source (their difference is the pitch) and of the target, and of a
    square to prefetch."""
    name = f"transpose_{n}_{bytes_each}"
    declare_llvm(name, _text(n, bytes_each), "transpose", is_optimized=True)
    return name


def _text(n: int, bytes_each: int) -> str:
    words = max(1, bytes_each // 8)  # 64-bit words of an element
    align = bytes_each // words
    vector = f"<{n * words} x i{8 * align}>"
    lines = [
        "define void @transpose(ptr %first, ptr %second, ptr noalias %to, ptr %to_second, ptr %prefetched) {",
        *_difference("pitch", "first", "second"),
        *_difference("to_pitch", "to", "to_second"),
        f"  %end = getelementptr i8, ptr %prefetched, i64 {n * bytes_each - 1}",  # in a line where no row ends
    ]
    for k in range(n):
        lines += [
            f"  %offset{k} = mul i64 %pitch, {k}",
            f"  %at{k} = getelementptr i8, ptr %first, i64 %offset{k}",
            f"  %row{k} = load {vector}, ptr %at{k}, align {align}",
            f"  %prefetched{k} = getelementptr i8, ptr %end, i64 %offset{k}",
            f"  call void @llvm.prefetch.p0(ptr %prefetched{k}, i32 0, i32 2, i32 1)",
        ]
    rows = [f"%row{k}" for k in range(n)]
    step = 1
    while step < n:
        for k in range(n):
            if k & step:
                continue
            pair = f"{vector} {rows[k]}, {vector} {rows[k + step]}"
            low_half = [n + j - step if j & step else j for j in range(n)]
            high_half = [j + step if not j & step else n + j for j in range(n)]
            for row, mask in ((k, low_half), (k + step, high_half)):
                mask_text = ", ".join(f"i32 {j * words + w}" for j in mask for w in range(words))
                rows[row] = f"%swapped{step}.{row}"
                lines.append(f"  {rows[row]} = shufflevector {pair}, <{n * words} x i32> <{mask_text}>")
        step *= 2
    for k in range(n):
        lines += [
            f"  %to_offset{k} = mul i64 %to_pitch, {k}",
            f"  %to{k} = getelementptr i8, ptr %to, i64 %to_offset{k}",
            f"  store {vector} {rows[k]}, ptr %to{k}, align {align}",
        ]
    return "\n".join([*lines, "  ret void", "}", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)", ""])


def _difference(name: str, one: str, other: str) -> list[str]:
    return [
        f"  %{one}.at = ptrtoint ptr %{one} to i64",
        f"  %{other}.at = ptrtoint ptr %{other} to i64",
        f"  %{name} = sub i64 %{other}.at, %{one}.at",
    ]
