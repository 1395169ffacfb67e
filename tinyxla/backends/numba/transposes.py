"""A routine that transposes a small square of elements in registers: kernels of the loop IR call it for arrays that
lie across.

A square of n x n elements is n vectors. In steps s = 1, 2, 4, ... n / 2, the rows that differ in bit s of their number
swap, of every block of 2 s x 2 s elements, the parts off the diagonal (Eklundh, A fast computer method for matrix
transposing, 1972).
"""

from __future__ import annotations

import functools

from tinyxla.backends.numba.llvm_printer import routine_name
from tinyxla.backends.numba.native import provide_llvm

_AHEAD = 256  # bytes from what is read to what will be: so many rows at a time are more than processors foresee
_ROWS = {1: 16, 2: 16, 4: 16, 8: 8}  # of a square, by the bytes of an element


def rows(bytes_each: int) -> int:
    """Of the square of such elements that the routine transposes; 1 where there is none."""
    return _ROWS.get(bytes_each, 1)


@functools.cache
def provide(bytes_each: int, pitch: int) -> str:
    """Let kernels call the routine for elements of so many bytes; its name. It takes the address of the first row, that
    of the second, which tells how far apart rows are, and the address of the result, whose rows are `pitch` elements
    apart."""
    name = f"transpose_{bytes_each}_{pitch}"
    provide_llvm(routine_name(name), _text(rows(bytes_each), bytes_each, pitch), "transpose", is_final=True)
    return name


def _text(n: int, bytes_each: int, pitch: int) -> str:
    element = f"i{8 * bytes_each}"
    vector = f"<{n} x {element}>"
    lines = [
        "define void @transpose(ptr %first, ptr %second, ptr noalias %to) {",
        "  %from = ptrtoint ptr %first to i64",
        "  %after = ptrtoint ptr %second to i64",
        "  %pitch = sub i64 %after, %from",
    ]
    for k in range(n):
        lines += [
            f"  %offset{k} = mul i64 %pitch, {k}",
            f"  %at{k} = getelementptr i8, ptr %first, i64 %offset{k}",
            f"  %row{k} = load {vector}, ptr %at{k}, align {bytes_each}",
            f"  %ahead{k} = getelementptr i8, ptr %at{k}, i64 {_AHEAD}",
            f"  call void @llvm.prefetch.p0(ptr %ahead{k}, i32 0, i32 2, i32 1)",
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
                numbers = ", ".join(f"i32 {j}" for j in mask)
                found[which] = f"%swapped{step}.{which}"
                lines.append(f"  {found[which]} = shufflevector {pair}, <{n} x i32> <{numbers}>")
        step *= 2
    for k in range(n):
        lines += [
            f"  %to{k} = getelementptr {element}, ptr %to, i64 {k * pitch}",
            f"  store {vector} {found[k]}, ptr %to{k}, align {bytes_each}",
        ]
    return "\n".join([*lines, "  ret void", "}", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)", ""])
