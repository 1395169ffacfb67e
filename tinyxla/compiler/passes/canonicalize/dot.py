"""Canonical form of dots: GEMMs in types that the backend has kernels for stay; all others become multiplications
and sums, which fuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.costs import ACCUMULATORS, CHUNK_OPS, MIN_GEMM_FEATURES, TASKS, VECTOR_ELEMENTS
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.products import contraction
from tinyxla.shapes import ElementType, Shape, element_type


@for_opcodes("dot")
def canonicalize_dots(computation: Computation) -> Computation:
    """The computation with every dot either a GEMM or a multiply and reduce.

    GEMMs may have narrow factor types; their sums are converted afterwards. In all other dots (outer products, inner
    products, small matrices) narrow types are widened first. Those of f32, f64, c64 and c128 with a contracting
    dimension stay, except inner products and batches of small matrix-vector products. Weighted sums of the rows of an
    integer matrix become reductions in memory order.
    """

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot:
            return None
        dims: contraction.Dot = x.attributes
        type = x.array_shape.element_type
        sizes = contraction.matrix_sizes(dims, *(o.array_shape.dimensions for o in operands))
        are_matrices = min(sizes[1:3]) > MIN_GEMM_FEATURES and sizes[0] > 0 and sizes[3] > 1
        are_matrices = are_matrices or _is_skinny_narrow_gemm(operands, dims, type, sizes)
        gemm_types = _gemm_types(operands[0].array_shape.element_type, type) if are_matrices else None
        if gemm_types is None:
            split = _split_k(rewriter, operands, dims, type)
            if split is not None:
                return split
            sum_type = element_type(contraction.accumulator(type.dtype))
            lhs, rhs = (convert_to(rewriter, o, sum_type) for o in operands)
            if _is_batched_small_gemv(operands, dims, sizes) or _is_integer_row_sum(operands, dims, type, sizes):
                return convert_to(rewriter, _multiply_in_matrix_order(rewriter, lhs, rhs, dims, x.array_shape), type)
            is_inner_product = max(sizes[1:3]) == 1
            if sum_type.name in ("f32", "f64", "c64", "c128") and sizes[3] > 1 and not is_inner_product:
                attributes = dims._replace(preferred_element_type=None)._asdict()
                product = rewriter.emit(contraction.dot, lhs, rhs, **attributes)
            else:
                product = as_multiply_reduce(rewriter, lhs, rhs, dims, x.array_shape.with_type(sum_type))
            return convert_to(rewriter, product, type)
        factor_type, sum_type = gemm_types
        lhs, rhs = (convert_to(rewriter, o, factor_type) for o in operands)
        preferred = None if sum_type is factor_type else sum_type
        attributes = dims._replace(preferred_element_type=preferred)._asdict()
        return convert_to(rewriter, rewriter.emit(contraction.dot, lhs, rhs, **attributes), type)

    return rewrite(computation, visit)


def _is_skinny_narrow_gemm(
    operands: tuple[Instruction, ...], dims: contraction.Dot, type: ElementType, sizes: Sequence[int]
) -> bool:
    """True if a skinny operand meets a large int8 or bf16 matrix, which costs more to widen than to multiply.
    Integer row sums and weighted row sums are excluded: they lower as ordinary reductions."""
    batch, m, n, terms = sizes
    side = int(n > m)
    shape, products = operands[side].array_shape, m * n * terms
    if batch < 1 or terms < 2 or max(m, n) <= MIN_GEMM_FEATURES or _is_batched_small_gemv(operands, dims, sizes):
        return False
    if shape.element_type.is_integer and type.is_integer:
        is_sum = shape.rank - 1 in dims.contracting(side) or _is_integer_row_sum(operands, dims, type, sizes)
        return products >= CHUNK_OPS and not is_sum
    is_narrow = shape.element_type.name in ("bf16", "f16") and type.name in ("bf16", "f16", "f32")
    return is_narrow and products >= 4 * CHUNK_OPS  # the BLAS of the widened type pays for longer


def _is_batched_small_gemv(operands: tuple[Instruction, ...], dims: contraction.Dot, sizes: Sequence[int]) -> bool:
    """True for a batch of small matrices times vectors, where a call per matrix costs more than its sums, if the
    sums vectorize."""
    batch, m, n, terms = sizes
    is_matrix_vector = min(m, n) == 1 < max(m, n) and terms > 1
    if batch < VECTOR_ELEMENTS // 2 or not is_matrix_vector or max(m, n) * terms > CHUNK_OPS:  # threads share a matrix
        return False
    side = int(n > 1)
    shape, batches = operands[side].array_shape, dims.batch(side)
    row_size = shape.dimensions[-1]
    is_sum_of_rows = shape.rank - 1 not in dims.contracting(side)
    fills_vectors = row_size >= VECTOR_ELEMENTS if is_sum_of_rows else row_size % ACCUMULATORS == 0
    return batches == tuple(range(len(batches))) and fills_vectors


def _is_integer_row_sum(
    operands: tuple[Instruction, ...], dims: contraction.Dot, type: ElementType, sizes: Sequence[int]
) -> bool:
    """True if an integer vector weighs the rows of a matrix, so that the sum is taken in memory order."""
    batch, m, n, terms = sizes
    side = int(n > 1)
    batches, is_integer = dims.batch(side), operands[side].array_shape.element_type.is_integer and type.is_integer
    is_in_order = (*batches, *dims.contracting(side)) == tuple(range(len(batches) + 1))
    return is_integer and is_in_order and batch > 0 and min(m, n) == 1 < min(max(m, n), terms)


def _multiply_in_matrix_order(
    rewriter: Rewriter, lhs: Instruction, rhs: Instruction, dims: contraction.Dot, shape: Shape
) -> Instruction:
    """A batched matrix-vector product as a multiplication in the order of the matrix and a reduction."""
    side = int(lhs.array_shape.size < rhs.array_shape.size)
    matrix, vector = (lhs, rhs) if side == 0 else (rhs, lhs)
    dim_of = dict(zip(dims.batch(1 - side), dims.batch(side), strict=True))
    dim_of.update(zip(dims.contracting(1 - side), dims.contracting(side), strict=True))
    vector_dims = sorted(dim_of)
    sizes = [vector.array_shape.dimensions[d] for d in vector_dims]
    vector = rewriter.emit(movement.reshape, vector, sizes=tuple(sizes))
    broadcast = rewriter.emit(
        movement.broadcast,
        vector,
        sizes=matrix.array_shape.dimensions,
        dimensions=tuple(dim_of[d] for d in vector_dims),
    )
    total = _sum(rewriter, rewriter.emit(elementwise.mul, matrix, broadcast), dims.contracting(side))
    return rewriter.emit(movement.reshape, total, sizes=shape.dimensions)


def _split_k(
    rewriter: Rewriter, operands: tuple[Instruction, ...], dims: contraction.Dot, type: ElementType
) -> Instruction | None:
    """Split-K: a dot with a long contracting dimension as a batch of partial dots and their sum, so that all threads
    work. Applies to a vector times a large matrix whose rows it sums, and to small results; otherwise None."""
    if dims.lhs_batch_dims or len(dims.lhs_contracting_dims) != 1 or type.name not in ("f32", "f64", "c64", "c128"):
        return None
    shapes, contracting = [o.array_shape for o in operands], [dims.contracting(side)[0] for side in (0, 1)]
    terms = shapes[0].dimensions[contracting[0]]
    smaller, larger = sorted(shape.size // max(1, terms) for shape in shapes)
    sums_rows = (
        smaller == 1
        and all(d == 0 for d in contracting)
        and terms * larger >= 8 * CHUNK_OPS
        and larger >= terms // TASKS
    )
    splits = next(n for n in range(TASKS, 0, -1) if terms % n == 0)
    has_small_result = (
        1 < larger <= ACCUMULATORS  # few columns, and sums so long that each part is long
        and terms >= ACCUMULATORS**2
        and (type.name[0] == "f" or smaller == 1 or smaller > MIN_GEMM_FEATURES)
    )
    if not (sums_rows or has_small_result) or splits == 1:
        return None
    if any(shape.element_type is not type for shape in shapes):
        return None
    factors = [
        rewriter.emit(movement.reshape, o, sizes=(*sizes[:d], splits, terms // splits, *sizes[d + 1 :]))
        for o, sizes, d in zip(operands, (shape.dimensions for shape in shapes), contracting, strict=True)
    ]
    (i, j), precision = contracting, dims.operand_precision
    attributes = contraction.Dot((i + 1,), (j + 1,), (i,), (j,), None, precision)
    return _sum(rewriter, rewriter.emit(contraction.dot, *factors, **attributes._asdict()), (0,))


def _sum(rewriter: Rewriter, x: Instruction, dimensions: tuple[int, ...]) -> Instruction:
    dtype = x.array_shape.dtype
    return rewriter.emit(
        reduction.reduce,
        x,
        rewriter.emit(movement.constant, literal=Literal(np.zeros((), dtype))),
        dimensions=dimensions,
        to_apply=reduction.scalar_computation("add", dtype),
    )


def _gemm_types(factor_type: ElementType, result_type: ElementType) -> tuple[ElementType, ElementType] | None:
    """The factor type and the sum type of a GEMM that the backend has kernels for; None if it has none."""
    if factor_type.is_integer and result_type.is_integer:
        name = f"{factor_type.name[0]}{max(32, result_type.bits)}"
        return (factor_type if factor_type.bits >= 8 else element_type(f"{factor_type.name[0]}8")), element_type(name)
    if result_type.name in ("f64", "f32", "f16", "bf16"):
        sum_type = element_type("f64" if result_type.name == "f64" else "f32")
        return (factor_type if factor_type.name in ("f16", "bf16") and sum_type.name == "f32" else sum_type), sum_type
    return None


def convert_to(rewriter: Rewriter, x: Instruction, type: Any) -> Instruction:
    """x converted to a type."""
    if x.array_shape.element_type is type:
        return x
    return rewriter.emit(elementwise.convert, x, new_element_type=type)


def as_multiply_reduce(
    rewriter: Rewriter, lhs: Instruction, rhs: Instruction, dims: contraction.Dot, shape: Shape
) -> Instruction:
    """A dot as a multiplication and a sum, over the result's dimensions followed by the contracting ones, or
    elementwise if the operands have the same layout."""
    lhs_dims, rhs_dims = (dims.batch(side) + dims.contracting(side) for side in (0, 1))
    is_elementwise = lhs_dims == rhs_dims and len(lhs_dims) == lhs.array_shape.rank == rhs.array_shape.rank
    if is_elementwise and dims.lhs_contracting_dims and dims.lhs_batch_dims == tuple(sorted(dims.lhs_batch_dims)):
        return _sum(rewriter, rewriter.emit(elementwise.mul, lhs, rhs), dims.lhs_contracting_dims)
    batch, contracted = len(dims.lhs_batch_dims), len(dims.lhs_contracting_dims)
    lhs_free = contraction.free_dimensions(lhs.array_shape.rank, dims.lhs_contracting_dims, dims.lhs_batch_dims)
    rhs_free = contraction.free_dimensions(rhs.array_shape.rank, dims.rhs_contracting_dims, dims.rhs_batch_dims)
    sizes = (*shape.dimensions, *(lhs.array_shape.dimensions[d] for d in dims.lhs_contracting_dims))

    def broadcast(x: Instruction, batches: Any, free: Any, contracting: Any, first_free: int) -> Instruction:
        dim_of: dict[int, int] = {d: k for k, d in enumerate(batches)}
        dim_of.update({d: first_free + k for k, d in enumerate(free)})
        dim_of.update({d: shape.rank + k for k, d in enumerate(contracting)})
        dimensions = tuple(dim_of[d] for d in range(x.array_shape.rank))
        return rewriter.emit(movement.broadcast, x, sizes=sizes, dimensions=dimensions)

    product = rewriter.emit(
        elementwise.mul,
        broadcast(lhs, dims.lhs_batch_dims, lhs_free, dims.lhs_contracting_dims, batch),
        broadcast(rhs, dims.rhs_batch_dims, rhs_free, dims.rhs_contracting_dims, batch + len(lhs_free)),
    )
    if not contracted:
        return product
    return _sum(rewriter, product, tuple(range(shape.rank, shape.rank + contracted)))
