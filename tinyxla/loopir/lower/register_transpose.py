"""Routines that transpose a small square of elements in registers: kernels of the loop IR call them for arrays that lie
across.

A square of n x n elements is n vectors. In steps s = 1, 2, 4, ... n / 2, the rows that differ in bit s of their number
swap, of every block of 2 s x 2 s elements, the parts off the diagonal (Eklundh, A fast computer method for matrix
transposing, 1972).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tinyxla.loopir.ir.loop_ir import Buffer, Index
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.lower.emit import Lowering
from tinyxla.shapes import element_type

_WIDEST = 64  # bytes of a row

Address = Callable[[Index, Index], tuple[Buffer, Index]]


def turn(
    low: Lowering,
    source: Address,
    target: Address,
    extent: tuple[Index, Index],
    most: int,
    ahead: Address,
    first: Index = 0,
) -> None:
    """Copy what lies across, from where memory goes on with the first index to where it does so with the second: by
    small squares, of `most` so many rows, in the order in which they are read, the last ones such that they end where
    all does; or element by element, where there is no square so small. `ahead` will be read soon. Of the first index,
    what comes before `first` is not needed."""
    b = low.builder
    (height, length), bytes_each = extent, element_type(source(0, 0)[0].type).dtype.itemsize
    n = rows(bytes_each, most)
    if n == 1:
        with low.loop(0, length) as (j, _), low.loop(first, height) as (i, _):
            b.store(*target(i, j), b.load(*source(i, j)))
        return
    across, along = (b.ceil_div(size, n) for size in (length, height))
    with low.loop(0, across) as (q, _), low.loop(b.floordiv(first, n), along) as (p, _):
        i = b.min(b.mul(p, n), b.sub(height, n))
        j = b.min(b.mul(q, n), b.sub(length, n))
        lines = source(i, j), source(i, b.add(j, 1)), target(i, j), target(b.add(i, 1), j)
        b.call(_provide(n, bytes_each), *lines, ahead(i, j))


def rows(bytes_each: int, most: int) -> int:
    """Of the largest square of such elements that a routine transposes, but at most so many; 1 where there is none."""
    return next((n for n in (16, 8, 4) if n <= most and n * bytes_each <= _WIDEST), 1)


@functools.cache
def _provide(n: int, bytes_each: int) -> str:
    """Let kernels call the routine for n rows of elements of so many bytes; its name. It takes the address of the first
    row and that of the second, which tells how far apart rows are, the same of the result, and the address of a square
    that will be read soon."""
    name = f"transpose_{n}_{bytes_each}"
    declare_llvm(name, _text(n, bytes_each), "transpose", is_optimized=True)
    return name


def _text(n: int, bytes_each: int) -> str:
    words = max(1, bytes_each // 8)  # of an element, where it is more than one
    align = bytes_each // words
    vector = f"<{n * words} x i{8 * align}>"
    lines = [
        "define void @transpose(ptr %first, ptr %second, ptr noalias %to, ptr %then, ptr %soon) {",
        *_difference("pitch", "first", "second"),
        *_difference("distance", "to", "then"),
        f"  %end = getelementptr i8, ptr %soon, i64 {n * bytes_each - 1}",  # in a line that no row here ends in
    ]
    for k in range(n):
        lines += [
            f"  %offset{k} = mul i64 %pitch, {k}",
            f"  %at{k} = getelementptr i8, ptr %first, i64 %offset{k}",
            f"  %row{k} = load {vector}, ptr %at{k}, align {align}",
            f"  %soon{k} = getelementptr i8, ptr %end, i64 %offset{k}",
            f"  call void @llvm.prefetch.p0(ptr %soon{k}, i32 0, i32 2, i32 1)",
        ]
    found = [f"%row{k}" for k in range(n)]
    step = 1
    while step < n:
        for k in range(n):
            if k & step:
                continue
            pair = f"{vector} {found[k]}, {vector} {found[k + step]}"
            upper = [n + j - step if j & step else j for j in range(n)]
            for which, mask in ((k, upper), (k + step, [j + step if not j & step else n + j for j in range(n)])):
                numbers = ", ".join(f"i32 {j * words + w}" for j in mask for w in range(words))
                found[which] = f"%swapped{step}.{which}"
                lines.append(f"  {found[which]} = shufflevector {pair}, <{n * words} x i32> <{numbers}>")
        step *= 2
    for k in range(n):
        lines += [
            f"  %line{k} = mul i64 %distance, {k}",
            f"  %to{k} = getelementptr i8, ptr %to, i64 %line{k}",
            f"  store {vector} {found[k]}, ptr %to{k}, align {align}",
        ]
    return "\n".join([*lines, "  ret void", "}", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)", ""])


def _difference(name: str, one: str, other: str) -> list[str]:
    return [
        f"  %{one}.at = ptrtoint ptr %{one} to i64",
        f"  %{other}.at = ptrtoint ptr %{other} to i64",
        f"  %{name} = sub i64 %{other}.at, %{one}.at",
    ]
