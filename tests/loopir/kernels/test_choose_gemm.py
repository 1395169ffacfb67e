"""The choice of the GEMM kernel by element types, sizes and strides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tinyxla.loopir.kernels.gemm import choose_kernel
from tinyxla.loopir.kernels.gemm.choose_kernel import GemmKernel
from tinyxla.loopir.kernels.gemm.problem import GemmProblem, StridedMatrices


def problem(types: str, layouts: str, batch: int, m: int, n: int, k: int) -> GemmProblem:
    """A problem of dense matrices; the layouts of A and B are R (row-major) or C (column-major)."""

    def dense(layout: str, rows: int, columns: int) -> StridedMatrices:
        pitches = (columns, 1) if layout == "R" else (1, rows)
        return StridedMatrices(rows * columns if batch > 1 else 0, *pitches, layout == "R")

    a, b, c = types.split()
    return GemmProblem(
        (a, b, c), batch, m, n, k, dense(layouts[0], m, k), dense(layouts[1], k, n), StridedMatrices(m * n, n, 1, True)
    )


CHOICES = [
    (GemmKernel.DOT_PRODUCT, "f32 f32 f32", "RC", (1, 4, 200, 300), 1),
    (GemmKernel.DOT_PRODUCT, "f64 f64 f64", "CC", (1, 4, 200, 300), 1),  # A is transposed first
    (GemmKernel.PACKED, "f32 f32 f32", "CC", (1, 4, 100, 300), 1),
    (GemmKernel.PACKED, "f32 f32 f32", "RR", (1, 200, 200, 200), 1),
    (GemmKernel.PACKED, "bf16 bf16 f32", "RR", (1, 2, 2, 2), 1),
    (GemmKernel.PACKED, "s64 s64 s64", "RR", (1, 5, 5, 5), 1),
    (GemmKernel.ROW_GEMV, "f32 f32 f32", "RR", (100, 8, 1, 8), 1),
    (GemmKernel.COLUMN_GEMV, "f32 f32 f32", "CR", (1, 8, 1, 8), 64),
    (GemmKernel.SMALL_GEMM, "f32 f32 f32", "RR", (1, 800, 5, 6), 1),  # eight rows of A at a time
    (GemmKernel.SMALL_GEMM, "f64 f64 f64", "CC", (70, 4, 5, 6), 1),
    (GemmKernel.BLAS_GEMV, "f32 f32 f32", "RR", (1, 300, 1, 100), 1),
    (GemmKernel.BLAS_GEMV, "c64 c64 c64", "RR", (1, 3, 300, 300), 1),  # a product for each row of A
    (GemmKernel.BLAS_GEMM, "c128 c128 c128", "RR", (1, 50, 50, 50), 1),
    (GemmKernel.BLAS_GEMM, "f32 f32 f32", "RR", (1, 9, 9, 9), 1),  # which would be a small one if it ran often
]


@pytest.mark.sample(every=1)
@pytest.mark.parametrize(("kernel", "types", "layouts", "sizes", "runs"), CHOICES)
def test_choice(kernel: GemmKernel, types: str, layouts: str, sizes: tuple[int, int, int, int], runs: int) -> None:
    p = problem(types, layouts, *sizes)
    in_loop_ir = choose_kernel._choose_loop_ir_kernel(p)
    assert (in_loop_ir or choose_kernel.choose_blas_kernel(p, runs)[0]) is kernel


def test_every_kernel_has_a_choice() -> None:
    assert {kernel for kernel, *_ in CHOICES} == set(GemmKernel)


@pytest.mark.parametrize("empty", ["batch", "m", "n", "k"])
def test_an_empty_product_has_no_kernel(empty: str) -> None:
    p = replace(problem("f32 f32 f32", "RC", 2, 40, 40, 400), **{empty: 0})
    assert choose_kernel._choose_loop_ir_kernel(p) is None


def test_rows_of_a_tall_matrix_are_small_products() -> None:
    _, p = choose_kernel.choose_blas_kernel(problem("f32 f32 f32", "RR", 1, 804, 5, 6), 64)
    assert (p.batch, p.m, p.left.batch, p.right.batch, p.result.batch) == (201, 4, 24, 0, 20)
