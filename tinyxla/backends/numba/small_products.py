"""Small matrix products: straight-line code in which a row of C is one vector, and four rows are computed side by side.

A BLAS spends more on setting up a tiny product than on its arithmetic.
"""

from __future__ import annotations

import functools
from string import Template

from tinyxla.backends.numba.native import compile_llvm, loaded_words

_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}  # of elements: in LLVM, and their bytes


_KERNEL = Template("""
define void @small(ptr %table, i64 %first, i64 %last) {
entry:
$loads
  %turned = alloca [$AREA x $ELEMENT], align 64
  br label %product
product:
  %i = phi i64 [ %first, %entry ], [ %next, %product ]
  %offset_a = mul i64 %i, %step_a
  %offset_b = mul i64 %i, %step_b
  %offset_c = mul i64 %i, %step_c
  %matrix_a = getelementptr $ELEMENT, ptr %a, i64 %offset_a
  %matrix_b = getelementptr $ELEMENT, ptr %b, i64 %offset_b
  %matrix_c = getelementptr $ELEMENT, ptr %c, i64 %offset_c
$body
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %product, label %done
done:
  ret void
}

declare $VECTOR @llvm.fmuladd.v$N$SUFFIX($VECTOR, $VECTOR, $VECTOR)
""")


@functools.cache
def small_kernel(type: str, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> int:
    """The kernel of products of one type and shape, as matrices are stored; its table has the addresses of A, B and C,
    the distances between matrices of a batch, and those between rows."""
    element, size = _TYPES[type]
    code = _Code(type, n)
    rows_of_b, distance_b = "%matrix_b", "%ldb"
    if transpose_b:  # turn B, so that its rows can be loaded as vectors
        rows_of_b, distance_b = "%turned", str(n)
        for j in range(n):
            for p in range(k):
                place = code.place("%turned", str(n), p, j)
                code.line(f"store {element} {code.load('%matrix_b', '%ldb', j, p)}, ptr {place}")
    for block in range(0, m, 4):
        rows = range(block, min(block + 4, m))
        sums = ["zeroinitializer"] * len(rows)
        for p in range(k):
            row_of_b = code.value(f"load {code.vector}, ptr {code.place(rows_of_b, distance_b, p, 0)}, align {size}")
            for position, i in enumerate(rows):
                place = (p, i) if transpose_a else (i, p)
                factor = code.spread(code.load("%matrix_a", "%lda", *place))
                sums[position] = code.multiply_add(factor, row_of_b, sums[position])
        for i, total in zip(rows, sums, strict=True):
            place_of_c = code.place("%matrix_c", "%ldc", i, 0)
            code.line(f"store {code.vector} {total}, ptr {place_of_c}, align {size}")
    text = _KERNEL.substitute(
        ELEMENT=element,
        VECTOR=code.vector,
        SUFFIX=type,
        N=n,
        AREA=n * k,
        loads=loaded_words("table", "a b c step_a step_b step_c lda ldb ldc".split(), "a b c"),
        body="\n".join(code.lines),
    )
    return compile_llvm(text, ("small",))["small"]


class _Code:
    """Collects instructions, numbering the values they define."""

    def __init__(self, type: str, n: int) -> None:
        self.element, _ = _TYPES[type]
        self.vector = f"<{n} x {self.element}>"
        self.lines: list[str] = []
        self._fmuladd = f"@llvm.fmuladd.v{n}{type}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.line(f"{name} = {text}")
        return name

    def place(self, matrix: str, distance: str, row: int, column: int) -> str:
        start = self.value(f"mul i64 {distance}, {row}")
        index = self.value(f"add i64 {start}, {column}")
        return self.value(f"getelementptr {self.element}, ptr {matrix}, i64 {index}")

    def load(self, matrix: str, distance: str, row: int, column: int) -> str:
        return self.value(f"load {self.element}, ptr {self.place(matrix, distance, row, column)}")

    def spread(self, scalar: str) -> str:
        one = self.value(f"insertelement {self.vector} poison, {self.element} {scalar}, i64 0")
        zeros = f"{self.vector.replace(self.element, 'i32')} zeroinitializer"
        return self.value(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")

    def multiply_add(self, factor: str, other: str, addend: str) -> str:
        return self.value(
            f"call {self.vector} {self._fmuladd}({self.vector} {factor}, {self.vector} {other}, {self.vector} {addend})"
        )
