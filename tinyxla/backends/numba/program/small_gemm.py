"""Batched GEMM of small matrices as straight-line vector code: a row of C is one vector, and four rows are computed
together; a matrix-vector product instead reads rows of A as vectors. A BLAS spends more on the set-up of such a product
than on its arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from string import Template

from tinyxla.backends.numba.jit.engine import compile_llvm
from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.target import vector_bytes

_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}  # LLVM type and bytes of an element


_KERNEL = Template("""
define void @small(ptr %table, i64 %first, i64 %last) {
entry:
$loads
  %transposed = alloca [$AREA x $ELEMENT], align 64
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
    """The kernel of a batch of products of one type and shape, with matrices as they are stored. Its table has the
    addresses of A, B and C, the batch strides, and the leading dimensions."""
    element, size = _TYPES[type]
    code = _Emitter(type, n)
    rows_of_b, leading_dimension_b = "%matrix_b", "%ldb"
    if transpose_b:  # transpose B, so that its rows are loaded as vectors
        rows_of_b, leading_dimension_b = "%transposed", str(n)
        for j in range(n):
            for p in range(k):
                address = code.address("%transposed", str(n), p, j)
                code.instruction(f"store {element} {code.load('%matrix_b', '%ldb', j, p)}, ptr {address}")
    for block in range(0, m, 4):
        rows = range(block, min(block + 4, m))
        sums = ["zeroinitializer"] * len(rows)
        for p in range(k):
            address = code.address(rows_of_b, leading_dimension_b, p, 0)
            row_of_b = code.value(f"load {code.vector}, ptr {address}, align {size}")
            for r, i in enumerate(rows):
                element_of_a = (p, i) if transpose_a else (i, p)
                a = code.broadcast(code.load("%matrix_a", "%lda", *element_of_a))
                sums[r] = code.multiply_add(a, row_of_b, sums[r])
        for i, total in zip(rows, sums, strict=True):
            c_address = code.address("%matrix_c", "%ldc", i, 0)
            code.instruction(f"store {code.vector} {total}, ptr {c_address}, align {size}")
    return code.compile(n * k)


def vectors_in_matrix(type: str, m: int, k: int) -> int:
    """Vectors that a matrix of m rows of k elements takes, if each row begins a new one."""
    return m * -(-k * _TYPES[type][1] // vector_bytes())


@functools.cache
def row_kernel(type: str, m: int, k: int) -> int:
    """The kernel of a batch of matrix-vector products with contiguous rows of A; its table is that of `small_kernel`.
    As many rows as a vector has elements are multiplied together, and their horizontal sums are one vector of C."""
    code = _Emitter(type, vector_bytes() // _TYPES[type][1])
    offsets = range(0, k, code.n)
    factors = [code.load_vector("%matrix_b", "0", 0, p, k - p) for p in offsets]
    for block in range(0, m, code.n):
        rows = range(block, min(block + code.n, m))
        sums = ["zeroinitializer"] * len(rows)
        for p, x_vector in zip(offsets, factors, strict=True):
            for r, i in enumerate(rows):
                vector = code.load_vector("%matrix_a", "%lda", i, p, k - p)
                sums[r] = code.multiply_add(vector, x_vector, sums[r])
        order = ", ".join(f"i32 {j}" for j in range(len(rows)))
        total = code.horizontal_sums(sums)
        total = code.value(f"shufflevector {code.vector} {total}, {code.vector} poison, <{len(rows)} x i32> <{order}>")
        c_address = code.address("%matrix_c", "0", 0, block)
        code.instruction(f"store <{len(rows)} x {code.element}> {total}, ptr {c_address}, align {code.size}")
    return code.compile(1)


class _Emitter:
    """Instructions of a kernel, with numbered values."""

    def __init__(self, type: str, n: int) -> None:
        self.element, self.size = _TYPES[type]
        self.type, self.n = type, n
        self.vector = f"<{n} x {self.element}>"
        self.instructions: list[str] = []
        self._fmuladd = f"@llvm.fmuladd.v{n}{type}"

    def compile(self, area: int) -> int:
        """The address of the compiled kernel, whose transposed B has `area` elements."""
        text = _KERNEL.substitute(
            ELEMENT=self.element,
            VECTOR=self.vector,
            SUFFIX=self.type,
            N=self.n,
            AREA=area,
            loads=load_words("table", "a b c step_a step_b step_c lda ldb ldc".split(), "a b c"),
            body="\n".join(self.instructions),
        )
        return compile_llvm(text, ("small",))["small"]

    def instruction(self, text: str) -> None:
        self.instructions.append("  " + text)

    def value(self, text: str) -> str:
        name = f"%v{len(self.instructions)}"
        self.instruction(f"{name} = {text}")
        return name

    def address(self, matrix: str, leading_dimension: str, row: int, column: int) -> str:
        start = self.value(f"mul i64 {leading_dimension}, {row}")
        index = self.value(f"add i64 {start}, {column}")
        return self.value(f"getelementptr {self.element}, ptr {matrix}, i64 {index}")

    def load(self, matrix: str, leading_dimension: str, row: int, column: int) -> str:
        return self.value(f"load {self.element}, ptr {self.address(matrix, leading_dimension, row, column)}")

    def load_vector(self, matrix: str, leading_dimension: str, row: int, column: int, count: int) -> str:
        """A vector of a row, zero past the `count` elements that remain."""
        address = self.address(matrix, leading_dimension, row, column)
        if count >= self.n:
            return self.value(f"load {self.vector}, ptr {address}, align {self.size}")
        mask = ", ".join(f"i1 {int(j < count)}" for j in range(self.n))
        load = f"@llvm.masked.load.v{self.n}{self.type}.p0(ptr {address}, i32 {self.size}, <{self.n} x i1> <{mask}>"
        return self.value(f"call {self.vector} {load}, {self.vector} zeroinitializer)")

    def horizontal_sums(self, rows: Sequence[str]) -> str:
        """The horizontal sums of vectors as one vector: neighbours are added, of two vectors at a time."""
        zero = "zeroinitializer"
        sums = [*rows, *[zero] * (self.n - len(rows))]
        while len(sums) > 1:
            pairs = zip(sums[::2], sums[1::2], strict=True)
            sums = [zero if x == y == zero else self._add_pairs(x, y) for x, y in pairs]
        return sums[0]

    def _add_pairs(self, x: str, y: str) -> str:
        orders = [", ".join(f"i32 {2 * j + side}" for j in range(self.n)) for side in (0, 1)]
        pair = f"{self.vector} {x}, {self.vector} {y}"
        left, right = (self.value(f"shufflevector {pair}, <{self.n} x i32> <{order}>") for order in orders)
        return self.value(f"fadd {self.vector} {left}, {right}")

    def broadcast(self, scalar: str) -> str:
        one = self.value(f"insertelement {self.vector} poison, {self.element} {scalar}, i64 0")
        zeros = f"{self.vector.replace(self.element, 'i32')} zeroinitializer"
        return self.value(f"shufflevector {self.vector} {one}, {self.vector} poison, {zeros}")

    def multiply_add(self, x: str, y: str, addend: str) -> str:
        vector = self.vector
        return self.value(f"call {vector} {self._fmuladd}({vector} {x}, {vector} {y}, {vector} {addend})")
