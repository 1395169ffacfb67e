"""Batched GEMM of small matrices as straight-line vector code: a row of C is one vector, and four rows are computed
together; a matrix-vector product instead reads rows of A as vectors. A BLAS spends more on the set-up of such a product
than on its arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from tinyxla.loopir.ir.loop_ir import Buffer, Index, Kernel, Literal, Operand, Value
from tinyxla.loopir.kernels.gemm.arithmetic import bits_of
from tinyxla.loopir.lower.register_transpose import transposed
from tinyxla.loopir.lower.routine_calls import ParametricBuilder
from tinyxla.loopir.target import vector_bytes

_ROWS = 4  # of C that are computed together
_PARAMETERS = "step_a step_b step_c lda ldb ldc"  # strides between matrices and between rows, in elements


def small_kernel(type: str, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> Kernel:
    """The kernel of a batch of products of one type and shape, with matrices as they are stored. Its arguments are A, B
    and C, and its parameters the batch strides and the leading dimensions."""
    b = _SmallGemmBuilder("small", type, n)
    with b.products() as (matrix_a, matrix_b, matrix_c):
        lda, ldb, ldc = (b.parameter[name] for name in ("lda", "ldb", "ldc"))
        if transpose_b:
            matrix_b, ldb = b.transposed([*b.rows(matrix_b, ldb, n)], k)
        a_rows, c_rows = b.rows(matrix_a, lda, m), b.rows(matrix_c, ldc, m)
        for block in range(0, m, _ROWS):
            rows = [*itertools.islice(c_rows, _ROWS)]
            if transpose_a:
                factors = ([b.load(row, block + r) for r in range(len(rows))] for row in b.rows(matrix_a, lda, k))
            else:
                block_of_a = [*itertools.islice(a_rows, _ROWS)]
                factors = ([b.load(row, p) for row in block_of_a] for p in range(k))
            sums: list[Operand] = [b.zero] * len(rows)
            for row, column_of_a in zip(b.rows(matrix_b, ldb, k), factors, strict=True):
                row_of_b = b.load(row, 0, n)
                sums = [b.multiply_add(b.broadcast(x, n), row_of_b, y) for x, y in zip(column_of_a, sums, strict=True)]
            for row, total in zip(rows, sums, strict=True):
                b.store(row, 0, total)
    return b.kernel


def vectors_in_matrix(type: str, m: int, k: int) -> int:
    """Vectors that a matrix of m rows of k elements takes, if each row begins a new one."""
    return m * -(-k // _lanes(type))


def row_kernel(type: str, m: int, k: int) -> Kernel:
    """The kernel of a batch of matrix-vector products with contiguous rows of A; its arguments are those of
    `small_kernel`. As many rows as a vector has elements are multiplied together, and their horizontal sums are one
    vector of C."""
    lanes = _lanes(type)
    b = _SmallGemmBuilder("rows", type, lanes)
    with b.products() as (matrix_a, x, y):
        a_rows, factors = b.rows(matrix_a, b.parameter["lda"], m), b.vectors(x, k)
        for block in range(0, m, lanes):
            sums: list[Operand] = []
            for row in itertools.islice(a_rows, lanes):
                total: Operand = b.zero
                for left, right in zip(b.vectors(row, k), factors, strict=True):
                    total = b.multiply_add(left, right, total)
                sums.append(total)
            b.store(y, block, b.shuffle(range(len(sums)), b.horizontal_sums(sums)))
    return b.kernel


def _lanes(type: str) -> int:
    """Elements of a vector register."""
    return 8 * vector_bytes() // bits_of(type)


class _SmallGemmBuilder(ParametricBuilder):
    """A builder of kernels on vectors of `lanes` elements of a type."""

    def __init__(self, name: str, type: str, lanes: int) -> None:
        super().__init__(name, _PARAMETERS)
        self.type, self.lanes = type, lanes
        self.matrices = self.argument(type), self.argument(type), self.argument(type, True)
        self.zero = self.broadcast(Literal(type, 0.0), lanes)

    @contextmanager
    def products(self) -> Generator[list[Buffer]]:
        """A loop over the batch; gives the matrices of a product."""
        with self.loop(self.kernel.first, self.kernel.last, sequential=True) as (i, _):
            steps = (self.parameter[name] for name in ("step_a", "step_b", "step_c"))
            yield [self.view(x, self.mul(i, step)) for x, step in zip(self.matrices, steps, strict=True)]

    def rows(self, matrix: Buffer, leading_dimension: Index, count: int) -> Iterator[Buffer]:
        """The rows of a matrix as it is stored, one after the other."""
        for i in range(count):
            matrix = self.view(matrix, leading_dimension) if i else matrix
            yield matrix

    def transposed(self, rows: Sequence[Buffer], columns: int) -> tuple[Buffer, int]:
        """The transpose of a matrix in scratch, by squares in registers, and its leading dimension."""
        side = min(_lanes(self.type), 1 << (max(len(rows), columns) - 1).bit_length())
        pitch, height = (-(-size // side) * side for size in (len(rows), columns))
        target, zeros = self.scratch(self.type, pitch * height), self.broadcast(Literal(self.type, 0.0), side)
        for j, p in itertools.product(range(0, pitch, side), range(0, height, side)):
            mask = self.lane_mask(p, columns, side) if p + side > columns else None
            square = [self.load(row, p, side, mask=mask) for row in rows[j : j + side]]
            square += [zeros] * (side - len(square))
            for column, vector in enumerate(transposed(self, square, 1)):
                self.store(target, (p + column) * pitch + j, vector)
        return target, pitch

    def vectors(self, row: Buffer, count: int) -> list[Value]:
        """The elements of a row, zero past the last one."""
        lanes, full = self.lanes, count // self.lanes * self.lanes
        loaded = [self.load(row, p, lanes) for p in range(0, full, lanes)]
        remainder = [self.load(row, full, lanes, mask=self.lane_mask(full, count, lanes))] if full < count else []
        return loaded + remainder

    def multiply_add(self, x: Operand, y: Operand, addend: Operand) -> Value:
        return self.compute("multiply-add", self.type, x, y, addend)

    def horizontal_sums(self, rows: Sequence[Operand]) -> Operand:
        """The horizontal sums of vectors as one vector: neighbours are added, of two vectors at a time."""
        sums = [*rows, *[self.zero] * (self.lanes - len(rows))]
        while len(sums) > 1:
            pairs = zip(sums[::2], sums[1::2], strict=True)
            sums = [self.zero if x is y is self.zero else self._add_pairs(x, y) for x, y in pairs]
        return sums[0]

    def _add_pairs(self, x: Operand, y: Operand) -> Value:
        left, right = (self.shuffle(range(side, 2 * self.lanes, 2), x, y) for side in (0, 1))
        return self.compute("add", self.type, left, right)
