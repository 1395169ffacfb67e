"""Choice of the GEMM kernel: one for each `GemmProblem`, by element types, sizes and strides.

| kernel | element types | sizes and strides |
|---|---|---|
| dot-product microkernel | f32, f64 | few rows of A or B', both operands contiguous along a long k |
| packed GEMM | f32, f64, and all that the BLAS lacks | any; of f32 and f64 neither vectors nor small matrices |
| small GEMV by rows or columns | f32, f64 | many small matrices, each with a vector |
| small GEMM | f32, f64 | many matrices of at most 16 x 16, or a tall one |
| BLAS GEMV | f32, f64, c64, c128 | few columns of B, or few rows of A |
| BLAS GEMM | f32, f64, c64, c128 | any |

The first two are kernels of the loop IR, which take part in the plan; the others are one step of a schedule, chosen
when it is known how often the step runs. `arithmetic` then chooses the instruction and the register tile, and `packed`
the blocks for the caches.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum

from tinyxla.compiler.costs import L2_BYTES
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.kernels.gemm import dot_product, packed
from tinyxla.loopir.kernels.gemm.arithmetic import bits_of, choose_arithmetic
from tinyxla.loopir.kernels.gemm.problem import GemmProblem, as_gemv, gemm_problem
from tinyxla.loopir.kernels.gemm.small_gemm import vectors_in_matrix
from tinyxla.loopir.lower.emit import LoweredKernel, Users

_REAL_BLAS_TYPES = ("f32", "f64")
_MAX_SKINNY_ROWS, _MIN_OTHER_ROWS = 32, 32  # rows of the skinny operand, and of the other one
_MAX_TRANSPOSED_ROWS, _MIN_OTHER_ROWS_IF_TRANSPOSED = 8, 128  # the same if the skinny operand is transposed first
_MIN_K, _MIN_K_OF_VECTOR = 32, 256  # terms of k, and for a skinny operand of one row
_MIN_K_PER_ROW = 8  # terms of k for each skinny row from which the final reduction costs less than packing
_MAX_SMALL_SIZE = 16  # n and k of a small GEMM, and m but of a tall one
_TALL_BLOCK_ROWS = 8  # of a tall A that are a small GEMM
_MIN_SMALL_RUNS = 64  # runs of a small kernel that pay for compiling it
_MIN_ROW_ELEMENTS = 8  # elements of a contiguous row in a small matrix-vector product
_MAX_MATRIX_VECTORS = 96  # vectors of the matrix in a small matrix-vector product
_MAX_PACKED_GEMV_COLUMNS = 2  # columns of B up to which GEMV is faster than packing
_MAX_GEMV_COLUMNS = 4  # columns of B, or rows of A, up to which GEMV is faster than the BLAS's GEMM


class GemmKernel(Enum):
    """The kernel that computes a GEMM."""

    DOT_PRODUCT = "dot-product microkernel"
    PACKED = "packed GEMM"
    ROW_GEMV = "small GEMV with contiguous rows"
    COLUMN_GEMV = "small GEMV with contiguous columns"
    SMALL_GEMM = "small GEMM"
    BLAS_GEMV = "BLAS GEMV"
    BLAS_GEMM = "BLAS GEMM"


def supports(x: Instruction) -> bool:
    """Whether a dot is computed by kernels of the loop IR."""
    return _choose_loop_ir_kernel(gemm_problem(x)) is not None


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of the loop IR for a dot."""
    p = gemm_problem(x)
    assert p is not None
    is_dot_product = _choose_loop_ir_kernel(p) is GemmKernel.DOT_PRODUCT
    return dot_product.kernels(x, p) if is_dot_product else packed.kernels(x, p, plan)


def _choose_loop_ir_kernel(p: GemmProblem | None) -> GemmKernel | None:
    """The kernel of the loop IR for a problem; None if the BLAS or a small kernel is faster, or there is none."""
    if p is None or not (p.batch and p.m and p.n and p.k):
        return None
    if _is_skinny(p):
        return GemmKernel.DOT_PRODUCT
    return GemmKernel.PACKED if _is_packed(p) else None


def choose_blas_kernel(p: GemmProblem, runs: int) -> tuple[GemmKernel, GemmProblem]:
    """The kernel for a problem that the loop IR has none for, and the problem as that kernel solves it: in rows of a
    tall A, or in columns of B. `runs` is the expected number of runs of each matrix."""
    if 1 in (p.m, p.n) and p.batch * runs >= _MIN_SMALL_RUNS:
        kernel = _small_gemv_kernel(p)
        if kernel is not None:
            return kernel, p
    small = _in_small_blocks(p)
    if small is not None and small.batch * runs >= _MIN_SMALL_RUNS:
        return GemmKernel.SMALL_GEMM, small
    p = _in_columns(p)
    return (GemmKernel.BLAS_GEMV if 1 in (p.m, p.n) else GemmKernel.BLAS_GEMM), p


def _is_skinny(p: GemmProblem) -> bool:
    """Whether one operand is skinny, k is long enough, and the other operand has contiguous rows along k; the skinny
    one has too, or is transposed first at little cost."""
    if p.types not in ((type,) * 3 for type in _REAL_BLAS_TYPES):
        return False
    skinny, other_rows = sorted((p.m, p.n))
    is_contiguous = dot_product.have_contiguous_rows(p)
    min_k = max(_MIN_K if skinny > 1 else _MIN_K_OF_VECTOR, _MIN_K_PER_ROW * skinny)
    if not is_contiguous[p.m <= p.n] or p.k < min_k:
        return False
    if is_contiguous[p.m > p.n]:
        return skinny <= _MAX_SKINNY_ROWS and other_rows >= _MIN_OTHER_ROWS
    return skinny <= _MAX_TRANSPOSED_ROWS and other_rows >= _MIN_OTHER_ROWS_IF_TRANSPOSED


def _is_packed(p: GemmProblem) -> bool:
    """Whether packing pays, or the BLAS lacks the element type."""
    type, _, result = p.types
    if type not in _REAL_BLAS_TYPES:
        return choose_arithmetic(type, result, p.m, p.n, p.k) is not None
    is_large = p.right.row_major and p.k * p.right.row * bits_of(type) // 8 >= L2_BYTES
    return (p.m > 1 or is_large) and p.n > _MAX_PACKED_GEMV_COLUMNS and max(p.n, p.k) > _MAX_SMALL_SIZE


def _small_gemv_kernel(p: GemmProblem) -> GemmKernel | None:
    """The kernel of small matrix-vector products, which loads contiguous rows or columns of the matrix as vectors;
    None if the matrix is too large, or a vector is strided."""
    x, type = as_gemv(p), p.types[2]
    if type not in _REAL_BLAS_TYPES or x.stride_y != 1:
        return None
    if x.row_major:
        fits = x.stride_x == 1 and p.k >= _MIN_ROW_ELEMENTS
        vectors, kernel = vectors_in_matrix(type, x.length, p.k), GemmKernel.ROW_GEMV
    else:
        fits = x.length >= _MIN_ROW_ELEMENTS
        vectors, kernel = vectors_in_matrix(type, p.k, x.length), GemmKernel.COLUMN_GEMV
    return kernel if fits and vectors <= _MAX_MATRIX_VECTORS else None


def _in_small_blocks(p: GemmProblem) -> GemmProblem | None:
    """The problem as a batch of small GEMMs: itself, or a tall A by some rows at a time; None if it is too large."""
    if p.types[2] not in _REAL_BLAS_TYPES or max(p.n, p.k) > _MAX_SMALL_SIZE:
        return None
    if p.m <= _MAX_SMALL_SIZE:
        return p
    height = math.gcd(p.m, _TALL_BLOCK_ROWS)
    if p.batch > 1 or not p.left.row_major or height == 1:
        return None
    left, result = (replace(x, batch=height * x.row) for x in (p.left, p.result))
    return replace(p, m=height, batch=p.m // height, left=left, right=replace(p.right, batch=0), result=result)


def _in_columns(p: GemmProblem) -> GemmProblem:
    """A problem of few columns of B or rows of A as a batch of GEMVs, which read the large matrix at the speed of
    memory, while GEMM packs it first; others as they are."""
    if p.batch > 1:
        return p
    left, right, result = p.left, p.right, p.result
    if p.n <= p.m and p.n <= _MAX_GEMV_COLUMNS:
        right, result = replace(right, batch=right.column), replace(result, batch=result.column)
        return replace(p, n=1, batch=p.n, left=replace(left, batch=0), right=right, result=result)
    if p.m <= _MAX_GEMV_COLUMNS:
        left, result = replace(left, batch=left.row), replace(result, batch=result.row)
        return replace(p, m=1, batch=p.m, left=left, right=replace(right, batch=0), result=result)
    return p
