"""Small matrix products: straight-line code in which a row of C is one vector, and four rows are computed side by side;
in those with vectors, rows of A are.

A BLAS spends more on setting up a tiny product than on its arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from string import Template

from tinyxla.backends.numba.jit.engine import compile_llvm
from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.target import vector_bytes

_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}  # of elements: in LLVM, and their bytes


_KERNEL = Template("""
define void @small(ptr %table, i64 %first, i64 %last) {
entry:
$loads
  %turned = alloca [$AREA x $ELEMENT], align 64
  br label %product
product:
  %i = phi i64 [ %first, %entry ], [ %next, %product ]
  %matrix_a = getelementptr $ELEMENT, ptr %a, i64 (mul i64 %i, %step_a)
  %matrix_b = getelementptr $ELEMENT, ptr %b, i64 (mul i64 %i, %step_b)
  %matrix_c = getelementptr $ELEMENT, ptr %c, i64 (mul i64 %i, %step_c)
$body
  %next = add i64 %i, 1
  br i1 (icmp slt i64 %next, %last), label %product, label %done
done:
  ret void
}

declare $VECTOR @llvm.fmuladd.v$N$SUFFIX($VECTOR, $VECTOR, $VECTOR)
declare $VECTOR @llvm.masked.load.v$N$SUFFIX.p0(ptr, i32, <$N x i1>, $VECTOR)
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
    return code.compiled(n * k)


def vectors_of_rows(type: str, m: int, k: int) -> int:
    """How many vectors the rows of a matrix are."""
    return m * -(-k * _TYPES[type][1] // vector_bytes())


@functools.cache
def row_kernel(type: str, m: int, k: int) -> int:
    """The kernel of products of matrices A, whose rows lie together in memory, with vectors B; its table is the same.
    As many rows as a vector has elements are multiplied at once, and their sums are one vector of C."""
    code = _Code(type, vector_bytes() // _TYPES[type][1])
    parts = range(0, k, code.n)
    factors = [code.load_part("%matrix_b", "0", 0, p, k - p) for p in parts]
    for block in range(0, m, code.n):
        rows = range(block, min(block + code.n, m))
        sums = ["zeroinitializer"] * len(rows)
        for p, factor in zip(parts, factors, strict=True):
            for position, i in enumerate(rows):
                part = code.load_part("%matrix_a", "%lda", i, p, k - p)
                sums[position] = code.multiply_add(part, factor, sums[position])
        few = ", ".join(f"i32 {j}" for j in range(len(rows)))
        total = code.value(
            f"shufflevector {code.vector} {code.row_sums(sums)}, {code.vector} poison, <{len(rows)} x i32> <{few}>"
        )
        place_of_c = code.place("%matrix_c", "0", 0, block)
        code.line(f"store <{len(rows)} x {code.element}> {total}, ptr {place_of_c}, align {code.size}")
    return code.compiled(1)


class _Code:
    """Collects instructions, numbering the values they define."""

    def __init__(self, type: str, n: int) -> None:
        self.element, self.size = _TYPES[type]
        self.type, self.n = type, n
        self.vector = f"<{n} x {self.element}>"
        self.lines: list[str] = []
        self._fmuladd = f"@llvm.fmuladd.v{n}{type}"

    def compiled(self, area: int) -> int:
        """The kernel, with room for so many elements of B."""
        text = _KERNEL.substitute(
            ELEMENT=self.element,
            VECTOR=self.vector,
            SUFFIX=self.type,
            N=self.n,
            AREA=area,
            loads=load_words("table", "a b c step_a step_b step_c lda ldb ldc".split(), "a b c"),
            body="\n".join(self.lines),
        )
        return compile_llvm(text, ("small",))["small"]

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

    def load_part(self, matrix: str, distance: str, row: int, column: int, count: int) -> str:
        """A vector of a row, with zeros past the last of so many elements."""
        place = self.place(matrix, distance, row, column)
        if count >= self.n:
            return self.value(f"load {self.vector}, ptr {place}, align {self.size}")
        mask = ", ".join(f"i1 {int(j < count)}" for j in range(self.n))
        load = f"@llvm.masked.load.v{self.n}{self.type}.p0(ptr {place}, i32 {self.size}, <{self.n} x i1> <{mask}>"
        return self.value(f"call {self.vector} {load}, {self.vector} zeroinitializer)")

    def row_sums(self, rows: Sequence[str]) -> str:
        """The sums of the elements of vectors, as one: neighbours are added, of two vectors at a time."""
        zero = "zeroinitializer"
        found = [*rows, *[zero] * (self.n - len(rows))]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [zero if x == y == zero else self._joined(x, y) for x, y in pairs]
        return found[0]

    def _joined(self, x: str, y: str) -> str:
        orders = [", ".join(f"i32 {2 * j + side}" for j in range(self.n)) for side in (0, 1)]
        pair = f"{self.vector} {x}, {self.vector} {y}"
        left, right = (self.value(f"shufflevector {pair}, <{self.n} x i32> <{order}>") for order in orders)
        return self.value(f"fadd {self.vector} {left}, {right}")

    def spread(self, scalar: str) -> str:
        one = self.value(f"insertelement {self.vector} poison, {self.element} {scalar}, i64 0")
        zeros = f"{self.vector.replace(self.element, 'i32')} zeroinitializer"
        return self.value(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")

    def multiply_add(self, factor: str, other: str, addend: str) -> str:
        return self.value(
            f"call {self.vector} {self._fmuladd}({self.vector} {factor}, {self.vector} {other}, {self.vector} {addend})"
        )
