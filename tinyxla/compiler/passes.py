"""The passes that simplify a graph before it is fused: pure functions from computation to computation, in one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tinyxla.compiler.convolutions import canonicalize_convolutions
from tinyxla.compiler.invariants import hoist
from tinyxla.compiler.meetings import turn_what_meets
from tinyxla.compiler.ragged_dots import canonicalize_ragged_dots
from tinyxla.compiler.rewriting import Rewriter, Visit, is_unshared, rewrite
from tinyxla.compiler.rows import compute_together
from tinyxla.compiler.short_rows import join_short_rows
from tinyxla.compiler.simplification import scalar_value, simplify
from tinyxla.compiler.small import Small, is_large, smallest
from tinyxla.compiler.sorts import canonicalize_sorts
from tinyxla.compiler.structured import prune
from tinyxla.compiler.transposes import sink_transposes
from tinyxla.compiler.turned_factors import turn_factors
from tinyxla.compiler.windows import canonicalize_windows
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import Op, calls, contraction, elementwise, movement, reduction
from tinyxla.ops.arithmetic import evaluator
from tinyxla.shapes import AnyShape, ElementType, Shape, TupleShape, element_type
from tinyxla.text.hlo_text import OPCODES
from tinyxla.tracing.core import trace
from tinyxla.tracing.options import config
from tinyxla.transforms.computations import with_computations

Pass = Callable[[Computation], Computation]


def expand(computation: Computation) -> Computation:
    """Put what ops are made of in the place of those that say it."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.expand is None or x.op.name in elementwise.NAMES:  # those have native code
            return None
        return _expanded(rewriter, x, operands, visit)

    return rewrite(computation, visit)


def write_out(computation: Computation) -> Computation:
    """Put XLA's operations in the place of those that only this library has, inside loops and branches too: for a text
    that XLA is to run. What is not made of others stays."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name == "lanes":
            return rewriter.splice(x.attributes.in_lock_step, operands, visit)
        if x.op.name in OPCODES:
            return rewriter.emit(x.op, *operands, **with_computations(x, write_out)) if any(x.computations()) else None
        return None if x.op.expand is None else _expanded(rewriter, x, operands, visit)

    return rewrite(computation, visit)


def _expanded(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...], visit: Visit) -> Instruction:
    """What an op is made of, itself visited."""
    body = _expansion(x.op, tuple(o.shape for o in operands), x.attributes, config.while_residual_bytes)
    root = rewriter.splice(body, operands, visit)
    return root if isinstance(x.shape, TupleShape) else root.operands[0]


@lru_cache(1024)
def _expansion(op: Op, shapes: tuple[AnyShape, ...], attributes: Any, residual_bytes: int) -> Computation:
    """`residual_bytes` decides how the way back through a loop is written out."""

    def function(*operands: Any) -> Sequence[Any]:
        assert op.expand is not None
        found = op.expand(*operands, **attributes._asdict())
        return found if isinstance(found, tuple) else (found,)

    return trace(function, shapes, op.name)[0]


def inline_calls(computation: Computation) -> Computation:
    """Put the instructions of called computations in the place of the calls, inside loops and branches too; tuples that
    are taken apart vanish."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name == "call":
            return rewriter.splice(x.attributes.to_apply, operands, visit, own=True)
        if x.op is calls.get_tuple_element and operands[0].op is calls.tuple_:
            return operands[0].operands[x.attributes.index]
        if any(map(_has_calls, x.computations())):
            return rewriter.emit(x.op, *operands, **with_computations(x, inline_calls))
        return None

    return rewrite(computation, visit)


def _has_calls(computation: Computation) -> bool:
    return any(x.op.name == "call" or any(map(_has_calls, x.computations())) for x in computation.instructions)


def fold_constants(computation: Computation) -> Computation:
    """Compute what depends on small constants alone."""
    largest = 1024

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if not operands or not isinstance(x.shape, Shape) or x.op is movement.broadcast:
            return None
        scalars = [scalar_value(o) for o in operands] if x.op.name in elementwise.NAMES and x.shape.rank else [None]
        if all(value is not None for value in scalars):  # the same for each element
            with np.errstate(all="ignore"):
                value = evaluator(x)(*map(np.asarray, scalars))
            found = rewriter.emit(movement.constant, literal=Literal(np.asarray(value).reshape(())))
            return rewriter.emit(movement.broadcast, found, sizes=x.shape.dimensions, dimensions=())
        if any(o.op is not movement.constant for o in operands) or is_unshared(x):
            return None
        same = x.op in (movement.concatenate, movement.reshape)  # which make nothing larger
        if not same and max(x.shape.size, *(o.array_shape.size for o in operands)) > largest:
            return None
        with np.errstate(all="ignore"):
            value = evaluator(x)(*(o.attributes.literal.value for o in operands))
        return rewriter.emit(movement.constant, literal=Literal(np.asarray(value)))

    return rewrite(computation, visit)


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
            lhs, rhs = (_converted(rewriter, o, wide) for o in operands)
            if _are_short_sums(operands, dims, sizes) or _sums_rows(operands, dims, kind, sizes):
                return _converted(rewriter, _short_sums(rewriter, lhs, rhs, dims, x.array_shape), kind)
            of_vectors = max(sizes[1:3]) == 1
            if wide.name in ("f32", "f64", "c64", "c128") and sizes[3] > 1 and not of_vectors:
                attributes = dims._replace(preferred_element_type=None)._asdict()
                product = rewriter.emit(contraction.dot, lhs, rhs, **attributes)
            else:
                product = _as_multiplication(rewriter, lhs, rhs, dims, x.array_shape.with_type(wide))
            return _converted(rewriter, product, kind)
        factors, wide = total
        lhs, rhs = (_converted(rewriter, o, factors) for o in operands)
        preferred = None if wide is factors else wide
        attributes = dims._replace(preferred_element_type=preferred)._asdict()
        return _converted(rewriter, rewriter.emit(contraction.dot, lhs, rhs, **attributes), kind)

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


def _converted(rewriter: Rewriter, x: Instruction, kind: Any) -> Instruction:
    if x.array_shape.element_type is kind:
        return x
    return rewriter.emit(elementwise.convert, x, new_element_type=kind)


def _as_multiplication(
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


def prepare_computations(computation: Computation) -> Computation:
    """Bring the computations that kernels take in - of reductions, windows, sorts - to what can be emitted there: no
    calls, nothing made of other ops, sums of products for dots. Those of loops and branches are programs of their own.
    """

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name in ("while", "conditional", "lanes") or not any(x.computations()):
            return None
        return rewriter.emit(x.op, *operands, **with_computations(x, _for_scalars))

    return rewrite(computation, visit)


@lru_cache(1024)
def _for_scalars(computation: Computation) -> Computation:
    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op is contraction.dot:
            lhs, rhs = (_converted(rewriter, o, x.array_shape.element_type) for o in operands)
            return _as_multiplication(rewriter, lhs, rhs, x.attributes, x.array_shape)
        if any(x.computations()):
            return rewriter.emit(x.op, *operands, **with_computations(x, _for_scalars))
        return None

    return rewrite(inline_calls(expand(computation)), visit)


def share(computation: Computation) -> Computation:
    """Equal instructions become one, and what nothing needs goes: rewriting does both."""
    return rewrite(computation, lambda rewriter, x, operands: None)


def join_lanes(computation: Computation) -> Computation:
    """Let lanes that are not small computations run in lock step."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name != "lanes" or small_lane(x) is not None:
            return None
        return rewriter.splice(inline_calls(x.attributes.in_lock_step), operands, visit)

    return rewrite(computation, visit)


def small_lane(x: Instruction) -> Small | None:
    """What one of several lanes computes, as a small computation; what it changes in memory must be the lane's own."""
    if is_large(x.attributes.to_apply):
        return None
    found = _small_lane(x.attributes.to_apply, config.while_residual_bytes)
    own = x.attributes.mapped
    return found if found is not None and all(k is None or own[k] for k in found.begins) else None


@lru_cache(256)
def _small_lane(computation: Computation, residual_bytes: int) -> Small | None:
    return smallest(optimize_inside(computation))


PASSES: list[tuple[str, Pass]] = [
    ("inline-calls", inline_calls),
    ("join-lanes", join_lanes),
    ("hoist", hoist),
    ("prune-first", prune),
    ("compute-together", compute_together),
    ("expand", expand),
    ("inline-calls-of-expansions", inline_calls),
    ("simplify", simplify),
    ("sink-transposes", sink_transposes),
    ("fold-constants", fold_constants),
    ("canonicalize-convolutions", canonicalize_convolutions),
    ("canonicalize-windows", canonicalize_windows),
    ("canonicalize-ragged-dots", canonicalize_ragged_dots),
    ("canonicalize-dots", canonicalize_dots),
    ("canonicalize-sorts", canonicalize_sorts),
    ("join-short-rows", join_short_rows),
    ("prune", prune),
    ("simplify-again", simplify),
    ("turn-what-meets", turn_what_meets),
    ("turn-factors", turn_factors),
    ("prepare-computations", prepare_computations),
    ("share", share),
]


def optimize(computation: Computation, check: Callable[[str, Computation], None] | None = None) -> Computation:
    """Run all passes; `check(name, computation)` is called after each."""
    for name, apply in PASSES:
        computation = apply(computation)
        if check:
            check(name, computation)
    return computation


def optimize_inside(computation: Computation) -> Computation:
    """Run all passes on a computation, and on those of the loops and branches inside."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name not in ("while", "conditional"):
            return None
        return rewriter.emit(x.op, *operands, **with_computations(x, optimize_inside))

    return rewrite(optimize(computation), visit)
