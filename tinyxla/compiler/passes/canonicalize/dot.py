"""Products of matrices made simple, as a pass from graph to graph: those that something is made for stay, in the types
that it takes; all others become multiplications, which fuse with the sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.rewriter import Rewriter, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import contraction, elementwise, movement, reduction
from tinyxla.shapes import ElementType, Shape, element_type


@of_opcodes("dot")
def canonicalize_dots(computation: Computation) -> Computation:
    """Leave products of matrices to what is made for them, and make multiplications of the others, which fuse with the
    sums over them.

    Matrices may have narrow types: what they are summed in is converted afterwards. In all other products - those with
    nothing to contract, of vectors, and of small matrices with few rows - narrow types are widened first. Those of f32,
    f64, c64 and c128 that contract something stay, but for inner products, which are sums like others, and those of
    many small matrices with vectors. Matrices of integers whose rows a vector weighs are summed in memory's order.
    """

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is not contraction.dot:
            return None
        dims: contraction.Dot = x.attributes
        kind = x.array_shape.element_type
        sizes = contraction.matrix_sizes(dims, *(o.array_shape.dimensions for o in operands))
        are_matrices = min(sizes[1:3]) > _FEW and sizes[0] > 0 and sizes[3] > 1
        are_matrices = are_matrices or _has_narrow_matrix(operands, dims, kind, sizes)
        total = _total(operands[0].array_shape.element_type, kind) if are_matrices else None
        if total is None:
            pieces = _in_pieces(rewriter, operands, dims, kind)
            if pieces is not None:
                return pieces
            wide = element_type(contraction.accumulator(kind.dtype))
            lhs, rhs = (converted(rewriter, o, wide) for o in operands)
            if _are_short_sums(operands, dims, sizes) or _sums_rows(operands, dims, kind, sizes):
                return converted(rewriter, _short_sums(rewriter, lhs, rhs, dims, x.array_shape), kind)
            of_vectors = max(sizes[1:3]) == 1
            if wide.name in ("f32", "f64", "c64", "c128") and sizes[3] > 1 and not of_vectors:
                attributes = dims._replace(preferred_element_type=None)._asdict()
                product = rewriter.emit(contraction.dot, lhs, rhs, **attributes)
            else:
                product = as_multiplication(rewriter, lhs, rhs, dims, x.array_shape.with_type(wide))
            return converted(rewriter, product, kind)
        factors, wide = total
        lhs, rhs = (converted(rewriter, o, factors) for o in operands)
        preferred = None if wide is factors else wide
        attributes = dims._replace(preferred_element_type=preferred)._asdict()
        return converted(rewriter, rewriter.emit(contraction.dot, lhs, rhs, **attributes), kind)

    return rewrite(computation, visit)


_FEW = 4  # rows or columns
_LARGE_OF_INTEGERS = 1 << 17  # products of few rows or columns with a matrix
_LARGE_OF_FLOATS = 1 << 19
_MANY = 8  # matrices
_SMALL = 1 << 17  # elements of a matrix
_PIECES = 8  # of the terms of a long sum, at most
_LONG = 1 << 12  # terms of a sum with few results
_NARROW = 64  # rows or columns of these


def _has_narrow_matrix(
    operands: tuple[Instruction, ...], dims: contraction.Dot, kind: ElementType, sizes: Sequence[int]
) -> bool:
    """Whether few rows or columns are multiplied with a large matrix of integers or narrow floats, which to widen takes
    longer than to multiply; but integers whose sums are of whole rows of the matrix, or that weigh rows which are
    summed, are sums like others."""
    batch, m, n, terms = sizes
    side = int(n > m)
    shape, products = operands[side].array_shape, m * n * terms
    if batch < 1 or terms < 2 or max(m, n) <= _FEW or _are_short_sums(operands, dims, sizes):
        return False
    if shape.element_type.is_integer and kind.is_integer:
        is_sum = shape.rank - 1 in dims.contracting(side) or _sums_rows(operands, dims, kind, sizes)
        return products >= _LARGE_OF_INTEGERS and not is_sum
    is_narrow = shape.element_type.name in ("bf16", "f16") and kind.name in ("bf16", "f16", "f32")
    return is_narrow and products >= _LARGE_OF_FLOATS


def _are_short_sums(operands: tuple[Instruction, ...], dims: contraction.Dot, sizes: Sequence[int]) -> bool:
    """Whether many small matrices are multiplied with a vector each, so that a call for each would take longer than its
    sums: those of whole rows if these are whole vectors, or of several rows at once."""
    batch, m, n, terms = sizes
    if batch < _MANY or min(m, n) > 1 or max(m, n) == 1 or not 1 < terms <= _SMALL // max(m, n):
        return False
    side = int(n > 1)
    shape, batches = operands[side].array_shape, dims.batch(side)
    length = shape.dimensions[-1]
    is_sum_of_rows = shape.rank - 1 not in dims.contracting(side)
    return batches == tuple(range(len(batches))) and (length >= 16 if is_sum_of_rows else length % 64 == 0)


def _sums_rows(
    operands: tuple[Instruction, ...], dims: contraction.Dot, kind: ElementType, sizes: Sequence[int]
) -> bool:
    """Whether a vector of integers weighs the rows of a matrix, whose sum is taken in the order of memory."""
    batch, m, n, terms = sizes
    side = int(n > 1)
    batches, is_integer = dims.batch(side), operands[side].array_shape.element_type.is_integer and kind.is_integer
    is_in_order = (*batches, *dims.contracting(side)) == tuple(range(len(batches) + 1))
    return is_integer and is_in_order and batch > 0 and min(m, n) == 1 < min(max(m, n), terms)


def _short_sums(
    rewriter: Rewriter, lhs: Instruction, rhs: Instruction, dims: contraction.Dot, shape: Shape
) -> Instruction:
    """Of the elements of the larger operand, in its order, with those of the other one."""
    side = int(lhs.array_shape.size < rhs.array_shape.size)
    matrix, vector = (lhs, rhs) if side == 0 else (rhs, lhs)
    place = dict(zip(dims.batch(1 - side), dims.batch(side), strict=True))
    place.update(zip(dims.contracting(1 - side), dims.contracting(side), strict=True))
    taken = sorted(place)
    sizes = [vector.array_shape.dimensions[d] for d in taken]
    vector = rewriter.emit(movement.reshape, vector, sizes=tuple(sizes))
    spread = rewriter.emit(
        movement.broadcast, vector, sizes=matrix.array_shape.dimensions, dimensions=tuple(place[d] for d in taken)
    )
    total = _sum(rewriter, rewriter.emit(elementwise.mul, matrix, spread), dims.contracting(side))
    return rewriter.emit(movement.reshape, total, sizes=shape.dimensions)


def _in_pieces(
    rewriter: Rewriter, operands: tuple[Instruction, ...], dims: contraction.Dot, kind: ElementType
) -> Instruction | None:
    """A product with long sums, as pieces of them and the sums of these, so that all threads work: that of a vector
    with a large matrix whose rows it sums, where memory is read in order; and one with a small result."""
    if dims.lhs_batch_dims or len(dims.lhs_contracting_dims) != 1 or kind.name not in ("f32", "f64", "c64", "c128"):
        return None
    shapes, over = [o.array_shape for o in operands], [dims.contracting(side)[0] for side in (0, 1)]
    terms = shapes[0].dimensions[over[0]]
    few, many = sorted(shape.size // max(1, terms) for shape in shapes)
    sums_rows = few == 1 and all(d == 0 for d in over) and terms * many >= 1 << 20 and many >= terms // _PIECES
    pieces = next(n for n in range(_PIECES, 0, -1) if terms % n == 0)
    has_few = 1 < many <= _NARROW and terms >= _LONG and (kind.name[0] == "f" or few == 1 or few > _FEW)
    if not (sums_rows or has_few) or pieces == 1:
        return None
    if any(shape.element_type is not kind for shape in shapes):
        return None
    parts = [
        rewriter.emit(movement.reshape, o, sizes=(*sizes[:d], pieces, terms // pieces, *sizes[d + 1 :]))
        for o, sizes, d in zip(operands, (shape.dimensions for shape in shapes), over, strict=True)
    ]
    (i, j), precision = over, dims.operand_precision
    attributes = contraction.Dot((i + 1,), (j + 1,), (i,), (j,), None, precision)
    return _sum(rewriter, rewriter.emit(contraction.dot, *parts, **attributes._asdict()), (0,))


def _sum(rewriter: Rewriter, x: Instruction, dimensions: tuple[int, ...]) -> Instruction:
    dtype = x.array_shape.dtype
    return rewriter.emit(
        reduction.reduce,
        x,
        rewriter.emit(movement.constant, literal=Literal(np.zeros((), dtype))),
        dimensions=dimensions,
        to_apply=reduction.scalar_computation("add", dtype),
    )


def _total(factors: ElementType, result: ElementType) -> tuple[ElementType, ElementType] | None:
    """As what products of matrices are multiplied, and as what they are summed, if there is something made for them."""
    if factors.is_integer and result.is_integer:
        name = f"{factors.name[0]}{max(32, result.bits)}"
        return (factors if factors.bits >= 8 else element_type(f"{factors.name[0]}8")), element_type(name)
    if result.name in ("f64", "f32", "f16", "bf16"):
        wide = element_type("f64" if result.name == "f64" else "f32")
        return (factors if factors.name in ("f16", "bf16") and wide.name == "f32" else wide), wide
    return None


def converted(rewriter: Rewriter, x: Instruction, kind: Any) -> Instruction:
    if x.array_shape.element_type is kind:
        return x
    return rewriter.emit(elementwise.convert, x, new_element_type=kind)


def as_multiplication(
    rewriter: Rewriter, lhs: Instruction, rhs: Instruction, dims: contraction.Dot, shape: Shape
) -> Instruction:
    """Over the result's dimensions followed by the contracting ones, or as both operands are in memory."""
    together, others = (dims.batch(side) + dims.contracting(side) for side in (0, 1))
    is_alike = together == others and len(together) == lhs.array_shape.rank == rhs.array_shape.rank
    if is_alike and dims.lhs_contracting_dims and dims.lhs_batch_dims == tuple(sorted(dims.lhs_batch_dims)):
        return _sum(rewriter, rewriter.emit(elementwise.mul, lhs, rhs), dims.lhs_contracting_dims)
    batch, contracted = len(dims.lhs_batch_dims), len(dims.lhs_contracting_dims)
    lhs_free = contraction.free_dimensions(lhs.array_shape.rank, dims.lhs_contracting_dims, dims.lhs_batch_dims)
    rhs_free = contraction.free_dimensions(rhs.array_shape.rank, dims.rhs_contracting_dims, dims.rhs_batch_dims)
    sizes = (*shape.dimensions, *(lhs.array_shape.dimensions[d] for d in dims.lhs_contracting_dims))

    def spread(x: Instruction, batches: Any, free: Any, contracting: Any, first_free: int) -> Instruction:
        place: dict[int, int] = {d: k for k, d in enumerate(batches)}
        place.update({d: first_free + k for k, d in enumerate(free)})
        place.update({d: shape.rank + k for k, d in enumerate(contracting)})
        dimensions = tuple(place[d] for d in range(x.array_shape.rank))
        return rewriter.emit(movement.broadcast, x, sizes=sizes, dimensions=dimensions)

    product = rewriter.emit(
        elementwise.mul,
        spread(lhs, dims.lhs_batch_dims, lhs_free, dims.lhs_contracting_dims, batch),
        spread(rhs, dims.rhs_batch_dims, rhs_free, dims.rhs_contracting_dims, batch + len(lhs_free)),
    )
    if not contracted:
        return product
    return _sum(rewriter, product, tuple(range(shape.rank, shape.rank + contracted)))
