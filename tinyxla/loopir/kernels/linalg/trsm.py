"""Blocked TRSM: triangular systems of row-major right-hand sides, solved in place.

For a block of unknowns the contribution of the unknowns before is computed by a GEMM and subtracted; then the block is
solved by forward substitution. Back substitution and a transposed triangle are the same with other strides of the
triangle. Threads share chunks of right-hand sides, whose width depends on sizes alone.

Source: G. Golub and C. Van Loan, Matrix Computations, section 3.1.
"""

from __future__ import annotations

import functools
import math

from tinyxla.compiler.costs import CACHED_ELEMENTS, INTERLEAVED, MIN_GEMM_FEATURES, VECTOR_ELEMENTS
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Kernel
from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic
from tinyxla.loopir.kernels.gemm.microkernel import MICROKERNEL_ARGUMENTS, declare_microkernel
from tinyxla.loopir.kernels.gemm.packed import bind_parameters
from tinyxla.loopir.kernels.linalg import panel_kernels as panel_kernels
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.ops.linalg.linear_algebra import TriangularSolve

_BLOCK = VECTOR_ELEMENTS  # unknowns solved for at once
_KC = CACHED_ELEMENTS // _BLOCK  # unknowns in one block of the GEMM (kc)


def supports(x: Instruction) -> bool:
    """Whether blocked TRSM applies: a real triangle on the left, of some size, with several right-hand sides."""
    shape = x.array_shape
    options = TriangularSolve(*x.attributes)
    *_, size, rhs = shape.dimensions
    return (
        shape.element_type.name in ("f32", "f64")
        and options.left_side
        and size >= VECTOR_ELEMENTS // 2
        and rhs >= MIN_GEMM_FEATURES
    )


def _rhs_per_chunk(type: str) -> int:
    """Right-hand sides that are solved together: the vectors that the substitution unrolls."""
    return INTERLEAVED * panel_kernels.lanes(type)


@functools.cache
def _kernel(type: str, arithmetic: Arithmetic, vectors: int) -> Kernel:
    """The kernel over chunks of right-hand sides of a batch of systems."""
    b = ParametricBuilder("substitution", "size rhs chunks rhs_first pitch factor_first row_stride column_stride unit")
    n, rhs_per_chunk = b.parameter, _rhs_per_chunk(type)
    factors, rhs = b.argument(type), b.argument(type, True)
    sizes = b.scratch(INDEX, max(len(MICROKERNEL_ARGUMENTS), len(panel_kernels.TRSM_ARGUMENTS)))
    sums = b.scratch(type, _BLOCK * rhs_per_chunk)
    counts, strides = (_BLOCK, _BLOCK, _KC, _KC), (n["row_stride"], rhs_per_chunk, n["column_stride"], n["pitch"])
    offset_lists = [b.scratch(INDEX, count) for count in counts]
    for offsets, count, stride in zip(offset_lists, counts, strides, strict=True):
        b.list(offsets, b.min(count, n["size"]), stride)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        matrix, chunk = b.delinearize(index, n["chunks"])
        first_rhs, width = b.tile_start_and_size(chunk, rhs_per_chunk, n["rhs"])
        first = b.add(b.mul(matrix, n["size"], n["rhs"]), n["rhs_first"], first_rhs)
        first_factor = b.add(b.mul(matrix, n["size"], n["size"]), n["factor_first"])
        with b.loop(0, b.ceil_div(n["size"], _BLOCK), sequential=True) as (block, _):
            start, unknowns = b.tile_start_and_size(block, _BLOCK, n["size"])
            rows_offset = b.add(first, b.mul(start, n["pitch"]))
            factor_offset = b.add(first_factor, b.mul(start, n["row_stride"]))
            store_arguments(b, sizes, MICROKERNEL_ARGUMENTS, m=unknowns, n=width)
            with b.loop(0, b.ceil_div(start, _KC), sequential=True) as (k_block, _):
                begin, terms = b.tile_start_and_size(k_block, _KC, start)
                store_arguments(b, sizes, MICROKERNEL_ARGUMENTS, k=terms, accumulate=b.min(k_block, 1))
                left = factors, b.add(factor_offset, b.mul(begin, n["column_stride"]))
                right = rhs, b.add(first, b.mul(begin, n["pitch"]))
                arrays = ((x, 0) for x in (*offset_lists, sizes))
                b.call(declare_microkernel(arithmetic), (sums, 0), left, right, *arrays)
            updated_rows = b.select(b.compare("GT", start, 0), unknowns)
            with b.loop(0, updated_rows, sequential=True) as (k, _), b.loop(0, width) as (j, _):
                offset = b.add(rows_offset, b.mul(k, n["pitch"]), j)
                product = b.load(sums, b.add(b.mul(k, rhs_per_chunk), j))
                b.store(rhs, offset, b.compute("subtract", type, b.load(rhs, offset), product))
            names = panel_kernels.TRSM_ARGUMENTS
            diagonal = b.add(factor_offset, b.mul(start, n["column_stride"]))
            store_arguments(b, sizes, names, unknowns=unknowns, columns=width)
            store_arguments(b, sizes, names, matrix_start=rows_offset, factors_start=diagonal)
            store_arguments(b, sizes, names, **{x: n[x] for x in ("pitch", "row_stride", "column_stride", "unit")})
            b.call(panel_kernels.trsm(type, vectors), (rhs, 0), (factors, 0), (sizes, 0))
    return b.kernel


def triangular_solve(x: Instruction) -> list[LoweredKernel]:
    """The kernel that solves the systems in place of their right-hand sides."""
    options = TriangularSolve(*x.attributes)
    *batch, size, rhs = x.array_shape.dimensions
    type = x.array_shape.element_type.name
    is_transposed = options.transpose_a != "NO_TRANSPOSE"
    row_stride, column_stride = (1, size) if is_transposed else (size, 1)
    rhs_per_chunk = _rhs_per_chunk(type)
    chunks, width = -(-rhs // rhs_per_chunk), min(rhs, rhs_per_chunk)
    unit = int(options.unit_diagonal)
    parameters = (size, rhs, chunks, 0, rhs, 0, row_stride, column_stride, unit)
    if options.lower == is_transposed:  # from the last row on
        parameters = (size, rhs, chunks, (size - 1) * rhs, -rhs, size * size - 1, -row_stride, -column_stride, unit)
    arithmetic = Arithmetic(type).choose_tile(_BLOCK, width, _KC)
    kernel = _kernel(type, arithmetic, 1 if width <= panel_kernels.lanes(type) else INTERLEAVED)
    return [bind_parameters(kernel, [x.operands[0], x], parameters, math.prod(batch) * chunks, size * size * width, x)]
