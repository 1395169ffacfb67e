"""Algebraic simplifier: a table of identities by op. The first identity that applies to an instruction replaces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.costs import LONG_ROW, MAX_PRODUCERS, MAX_ROUNDS
from tinyxla.compiler.rewriter import Rewriter, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import bits, calls, dynamic_slices, elementwise, indexing, movement, reduction
from tinyxla.ops.movement import inverse_permutation
from tinyxla.ops.op import Op
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape, TupleShape, WindowDimension, element_type
from tinyxla.shapes.window import dilated

Operands = tuple[Instruction, ...]
Ints = tuple[int, ...]
Rule = Callable[[Rewriter, Instruction, Operands], Instruction | None]


@to_fixed_point
def simplify(computation: Computation) -> Computation:
    """The computation with identities applied until none applies any more (`MAX_ROUNDS` times at most)."""
    for _ in range(MAX_ROUNDS):
        simpler = rewrite(computation, apply)
        if simpler is computation:
            computation.fixed_points.add(simplify.__name__)
            break
        computation = simpler
    return computation


def scalar_value(x: Instruction) -> Any:
    """The value of a constant with one element, or of its broadcast; otherwise None."""
    if x.op is movement.broadcast:
        x = x.operands[0]
    return x.attributes.literal.splat if x.op is movement.constant else None


def _is(x: Instruction, value: float) -> bool:
    splat = scalar_value(x)
    return splat is not None and bool(splat == value) and not (value == 0 and np.signbit(np.real(splat)))


def _is_integer(x: Instruction) -> bool:
    return x.array_shape.element_type.is_integer


def _multiply_by_one(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # x * 1 = x, but for complex numbers, where an infinite part times zero is NaN
    if x.array_shape.element_type.kind == "complex":
        return None
    return o[0] if _is(o[1], 1) else o[1] if _is(o[0], 1) else None


def _divide_by_one(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # x / 1 = x, but for complex numbers, as above
    if x.array_shape.element_type.kind == "complex":
        return None
    return o[0] if _is(o[1], 1) else None


def _chain_multiply(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # chain-multiply(g, d) = g d, if d is finite (and g, for `either`) or g is not zero
    is_safe = _is_finite(o[1]) and (not x.attributes.either or _is_finite(o[0]))
    if is_safe or (_is_nonzero(o[0]) and not x.attributes.either):
        return r.emit(elementwise.mul, *o)
    return None


def _chain_divide(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # chain-divide(g, d) = g / d, if d or g is not zero
    return r.emit(elementwise.div, *o) if _is_nonzero(o[1]) or _is_nonzero(o[0]) else None


def _chain_divide_by_broadcast(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # chain-divide(g, broadcast(d)) = chain-multiply(g, broadcast(1 / d))
    return _by_reciprocals(r, elementwise.chain_mul, *o)


def _divide_exponentials(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # exp(y - max) / broadcast(sum) = exp(y - max) broadcast(1 / sum), whose 1 / sum does not overflow
    exponential = o[0].operands[1] if o[0].op is elementwise.select else o[0]
    if exponential.op is not elementwise.exp or exponential.operands[0].op is not elementwise.sub:
        return None
    row_maximum = exponential.operands[0].operands[1]
    while row_maximum.op in (movement.broadcast, movement.reshape):
        row_maximum = row_maximum.operands[0]
    is_maximum = row_maximum.op is reduction.reduce and reduction.monoid(row_maximum.attributes.to_apply) == "maximum"
    return _by_reciprocals(r, elementwise.mul, *o) if is_maximum else None


def _by_reciprocals(r: Rewriter, product: Op, x: Instruction, y: Instruction) -> Instruction | None:
    divisor = y.operands[0] if y.op is movement.broadcast and scalar_value(y) is None else y
    if y.array_shape.element_type.name not in ("f32", "f64") or divisor.array_shape.size >= y.array_shape.size:
        return None
    reciprocals = r.emit(elementwise.div, _ones(r, y.array_shape.dtype, divisor.array_shape.dimensions), divisor)
    return r.emit(product, x, r.emit(movement.broadcast, reciprocals, **y.attributes._asdict()))


def _ones(r: Rewriter, dtype: np.dtype[Any], sizes: Ints) -> Instruction:
    one = r.emit(movement.constant, literal=Literal(np.ones((), dtype)))
    return r.emit(movement.broadcast, one, sizes=sizes, dimensions=()) if sizes else one


def _is_finite(x: Instruction) -> bool:
    splat = scalar_value(x)
    if splat is not None:
        return bool(np.isfinite(splat))
    is_wide = x.array_shape.element_type.name in ("bf16", "f32", "f64", "c64", "c128")  # holds any integer
    return is_wide and x.op is elementwise.convert and not x.operands[0].array_shape.element_type.is_inexact


def _is_nonzero(x: Instruction) -> bool:
    splat = scalar_value(x)
    return splat is not None and bool(splat != 0) and bool(splat == splat)


def _add_zero(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # x + 0 = x for integers; x + -0.0 = x for floats (x + 0.0 turns -0.0 into 0.0)
    for zero, other in (o, o[::-1]):
        if (_is_integer(zero) and _is(zero, 0)) or _is_negative_zero(zero):
            return other
    return None


def _is_negative_zero(x: Instruction) -> bool:
    splat = scalar_value(x)
    return splat is not None and splat.dtype.kind == "f" and splat == 0 and bool(np.signbit(splat))


def _subtract_zero(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # x - 0 = x, also for x = -0.0
    return o[0] if _is(o[1], 0) else None


def _negate_twice(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # -(-x) = x
    return o[0].operands[0] if o[0].op is elementwise.neg else None


def _power(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # x^1 = x, x^2 = x x, x^-1 = 1 / x; x^0.5 = sqrt x, x^1.5 = x sqrt x, ... where x is not negative, -0.0 or -inf
    exponent = scalar_value(o[1])
    if exponent is None or x.array_shape.element_type.kind not in ("float", "signed", "unsigned"):
        return None
    if exponent == 1:
        return o[0]
    if exponent == 2:
        return r.emit(elementwise.mul, o[0], o[0])
    is_short = exponent == -1 or abs(exponent) in (0.5, 1.5, 2.5)
    if not is_short or x.array_shape.element_type.name not in (
        "f32",
        "f64",
    ):  # intermediate values of narrow types overflow early
        return None
    if exponent != -1 and not _is_nonnegative(o[0], MAX_PRODUCERS):
        return None
    result = r.emit(elementwise.sqrt, o[0]) if exponent % 1 else o[0]
    for _ in range(int(abs(exponent)) - (exponent == -1)):
        result = r.emit(elementwise.mul, result, o[0])
    if exponent > 0:
        return result
    return r.emit(elementwise.div, _ones(r, x.array_shape.dtype, x.array_shape.dimensions), result)


def _is_nonnegative(x: Instruction, depth: int) -> bool:
    """True if the producers show that no element is negative or -0.0."""
    if x.op is movement.constant:
        value = x.attributes.literal.value
        return value.dtype.kind in "fiu" and not np.signbit(value).any()
    if depth == 0 or not x.operands or not isinstance(x.shape, Shape):
        return False
    if x.op is reduction.reduce:
        return reduction.monoid(x.attributes.to_apply) == "add" and all(
            _is_nonnegative(o, depth - 1) for o in x.operands
        )
    if x.op.name in ("exponential", "abs") or (x.op is elementwise.mul and x.operands[0] is x.operands[1]):
        return x.array_shape.element_type.kind == "float"
    further = ("broadcast", "reshape", "transpose", "slice", "add", "multiply", "divide", "sqrt")
    return x.op.name in further and all(_is_nonnegative(o, depth - 1) for o in x.operands)


def _convert_to_same_type(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # convert(x) to the type it has = x
    return o[0] if o[0].shape == x.shape else None


def _bitcast(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # bitcast to another type and back = x, except by way of pred, which loses bits
    if o[0].shape == x.shape:
        return o[0]
    there_and_back = o[0].op is bits.bitcast_convert and o[0].operands[0].shape == x.shape
    return o[0].operands[0] if there_and_back and o[0].array_shape.element_type.kind != "pred" else None


def _select_same(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # select(p, x, x) = x; select(true, x, y) = x; select(false, x, y) = y
    if o[1] is o[2]:
        return o[1]
    pred = scalar_value(o[0])
    return None if pred is None else o[1] if pred else o[2]


def _select_update(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # select(p, update(x, u), x) = update(x, select(p, u, x at the update)), which does not read all of x
    pred, along = o[0], tuple(range(x.array_shape.rank))
    if pred.op is movement.broadcast:
        pred, along = pred.operands[0], pred.attributes.dimensions
    if x.array_shape.rank == 0:
        return None
    single = pred.array_shape.size == 1
    for updated, original in (o[1:], o[:0:-1]):
        chain = _update_chain(updated, original)
        places = [() if single else _index_dimensions(update, along) for update in chain]
        if not chain or None in places:
            continue
        result = original
        if single and pred.array_shape.rank:
            pred = r.emit(movement.reshape, pred, sizes=())
        for update, place in zip(reversed(chain), reversed(places), strict=True):
            result = _predicated_update(r, update, result, pred, place or (), updated is o[1])
        return result
    return None


def _index_dimensions(update: Instruction, along: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions of a scatter's indices which go with these of its array, if they are all batch dimensions."""
    if update.op is not indexing.scatter:
        return None
    pairs = zip(update.attributes.input_batching_dims, update.attributes.scatter_indices_batching_dims, strict=True)
    batching = dict(pairs)
    if not all(d in batching for d in along):
        return None
    found = tuple(batching[d] for d in along)
    return found if found == tuple(sorted(found)) else None


def _update_chain(x: Instruction, original: Instruction) -> list[Instruction]:
    """The updates that lead from one array to another, the last first; empty if there is no such chain."""
    chain: list[Instruction] = []
    while x is not original:
        if not (x.op is dynamic_slices.dynamic_update_slice or (x.op is indexing.scatter and _can_skip(x))):
            return []
        chain.append(x)
        x = x.operands[0]
    return chain


def _can_skip(scatter: Instruction) -> bool:
    """True if an index out of bounds can suppress the updates of a scatter."""
    if len(scatter.operands) != 3 or not scatter.attributes.scatter_dims_to_operand_dims:
        return False
    return scatter.operands[1].array_shape.dtype.kind == "i"


def _predicated_update(
    r: Rewriter, update: Instruction, array: Instruction, pred: Instruction, along: tuple[int, ...], on_true: bool
) -> Instruction:
    """The update of an array where the predicate, along these dimensions of the indices, has the given value."""
    attributes = update.attributes._asdict()
    _, new, *indices = update.operands
    if update.op is indexing.scatter:
        attributes["indices_are_sorted"] &= not along
        out_of_bounds = r.emit(movement.constant, literal=Literal(np.full((), -1, new.array_shape.dtype)))
        old = r.emit(movement.broadcast, out_of_bounds, sizes=new.array_shape.dimensions, dimensions=())
    else:
        old = r.emit(dynamic_slices.dynamic_slice, array, *indices, dynamic_slice_sizes=new.array_shape.dimensions)
    mask = r.emit(movement.broadcast, pred, sizes=new.array_shape.dimensions, dimensions=along)
    selected = r.emit(elementwise.select, mask, *((new, old) if on_true else (old, new)))
    return r.emit(update.op, array, selected, *indices, **attributes)


def _reshape(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # reshape to the shape it has = x; reshape(reshape(x)) = reshape(x); reshape of a scalar's broadcast = a broadcast
    if o[0].shape == x.shape:
        return o[0]
    if o[0].op is movement.reshape:
        return r.emit(movement.reshape, o[0].operands[0], sizes=x.attributes.sizes)
    if o[0].op is movement.broadcast and not o[0].attributes.dimensions:
        return r.emit(movement.broadcast, o[0].operands[0], sizes=x.attributes.sizes, dimensions=())
    return None


def _transpose(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # transpose by the identity = x; transposes compose; a transpose of a broadcast is a broadcast
    permutation = x.attributes.permutation
    if permutation == tuple(range(len(permutation))):
        return o[0]
    if o[0].op is movement.transpose:
        inner = o[0].attributes.permutation
        return r.emit(movement.transpose, o[0].operands[0], permutation=tuple(inner[d] for d in permutation))
    if o[0].op is movement.broadcast:
        inverse = inverse_permutation(permutation)
        dimensions = tuple(inverse[d] for d in o[0].attributes.dimensions)
        return r.emit(movement.broadcast, o[0].operands[0], sizes=x.array_shape.dimensions, dimensions=dimensions)
    # moving only dimensions of size 1 is a reshape
    sizes = o[0].array_shape.dimensions
    if [d for d in permutation if sizes[d] != 1] == [d for d in range(len(sizes)) if sizes[d] != 1]:
        return r.emit(movement.reshape, o[0], sizes=x.array_shape.dimensions)
    return None


def _transpose_of_dot(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # (x y)' = y' x': exchange the operands when the free dimensions trade places
    product = o[0]
    if product.op is not contraction.dot:
        return None
    dims: contraction.Dot = product.attributes
    batch = len(dims.lhs_batch_dims)
    lhs, rhs = product.operands
    left = lhs.array_shape.rank - batch - len(dims.lhs_contracting_dims)
    rank = product.array_shape.rank
    if x.attributes.permutation != (*range(batch), *range(batch + left, rank), *range(batch, batch + left)):
        return None
    swapped = contraction.Dot(
        dims.rhs_contracting_dims,
        dims.lhs_contracting_dims,
        dims.rhs_batch_dims,
        dims.lhs_batch_dims,
        dims.preferred_element_type,
    )
    return r.emit(contraction.dot, rhs, lhs, **swapped._asdict())


def _broadcast(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # broadcast to the shape it has = x; broadcasts compose
    sizes, dimensions = x.attributes
    if o[0].shape == x.shape and dimensions == tuple(range(len(sizes))):
        return o[0]
    if o[0].op is movement.broadcast:
        inner = tuple(dimensions[d] for d in o[0].attributes.dimensions)
        return r.emit(movement.broadcast, o[0].operands[0], sizes=sizes, dimensions=inner)
    # broadcast(reshape(x)) that inserts dimensions of size 1 = broadcast(x)
    if o[0].op is movement.reshape:
        source = o[0].operands[0]
        kept_dims = [d for d, size in enumerate(o[0].array_shape.dimensions) if size != 1]
        if source.array_shape.dimensions == tuple(o[0].array_shape.dimensions[d] for d in kept_dims):
            return r.emit(movement.broadcast, source, sizes=sizes, dimensions=tuple(dimensions[d] for d in kept_dims))
    return None


def _slice_of_splat(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # slice, dynamic-slice or gather of a scalar's broadcast = a broadcast of the scalar
    if o[0].op is not movement.broadcast or o[0].attributes.dimensions:
        return None
    sizes = x.array_shape.dimensions
    return r.emit(movement.broadcast, o[0].operands[0], sizes=sizes, dimensions=()) if sizes else o[0].operands[0]


def _full_slice(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a full slice = x
    return o[0] if o[0].shape == x.shape else None


def _pad_by_nothing(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # padding by nothing = x
    return o[0] if all(config == (0, 0, 0) for config in x.attributes.padding_config) else None


def _concatenate_single(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # operands without elements add nothing; concatenate(x) = x
    non_empty = [operand for operand in o if operand.array_shape.size] or list(o[:1])
    if len(non_empty) == 1 and non_empty[0].shape == x.shape:
        return non_empty[0]
    return (
        r.emit(movement.concatenate, *non_empty, dimension=x.attributes.dimension) if len(non_empty) < len(o) else None
    )


def _reverse_size_one(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # reversing dimensions of size <= 1 changes nothing
    return o[0] if all(o[0].array_shape.dimensions[d] <= 1 for d in x.attributes.dimensions) else None


def _reduce(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a reduction from the identity over no dimensions = x; over dimensions of size 1 = reshape(x)
    if len(o) != 2:
        return None
    op = reduction.monoid(x.attributes.to_apply)
    start = scalar_value(o[1])
    if (
        op is None
        or start is None
        or start != np.asarray(reduction.identity_element(op, start.dtype)).astype(start.dtype)
    ):
        return None
    if any(o[0].array_shape.dimensions[d] != 1 for d in x.attributes.dimensions):
        return None
    return o[0] if o[0].shape == x.shape else r.emit(movement.reshape, o[0], sizes=x.array_shape.dimensions)


def _reduce_16_bit_floats(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a reduction of 16-bit floats = the reduction in f32, rounded once
    type = x.array_shape.element_type if len(o) == 2 else None
    op = reduction.monoid(x.attributes.to_apply)
    if type is None or type.name not in ("f16", "bf16") or op is None:
        return None
    widened = [r.emit(elementwise.convert, operand, new_element_type=element_type("f32")) for operand in o]
    body = reduction.scalar_computation(op, np.float32)
    result = r.emit(reduction.reduce, *widened, dimensions=x.attributes.dimensions, to_apply=body)
    return r.emit(elementwise.convert, result, new_element_type=type)


def _global_window(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a window over the full extent of some dimensions = a reduction over these
    if reduction.monoid(x.attributes.to_apply) is None:
        return None
    sizes = o[0].array_shape.dimensions
    window_dims = [d for d, w in enumerate(x.attributes.window) if w != WindowDimension(1)]
    for d in window_dims:
        w = x.attributes.window[d]
        covers = 0 <= w.padding_low <= w.size - dilated(sizes[d], w.base_dilation)
        if x.array_shape.dimensions[d] != 1 or w.window_dilation != 1 or not covers:
            return None
    reduced = r.emit(reduction.reduce, *o, dimensions=tuple(window_dims), to_apply=x.attributes.to_apply)
    return r.emit(movement.reshape, reduced, sizes=x.array_shape.dimensions)


def _dot_of_transpose(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # dot(transpose(x), y) = dot(x, y) with other dimension numbers, if x stays a strided batch of matrices
    dims: contraction.Dot = x.attributes
    for side, operand in enumerate(o):
        if operand.op is not movement.transpose:
            continue
        contracting, batch = dims.contracting(side), dims.batch(side)
        free = contraction.free_dimensions(operand.array_shape.rank, contracting, batch)
        permutation = operand.attributes.permutation
        moved_dims = tuple(permutation[d] for d in free)
        if moved_dims != tuple(sorted(moved_dims)):  # the order of the result's dimensions would change
            continue
        if batch and not _is_strided_batch(permutation, batch, contracting, free):
            continue
        new = dims.with_side(side, tuple(permutation[d] for d in contracting), tuple(permutation[d] for d in batch))
        operands = [operand.operands[0] if k == side else other for k, other in enumerate(o)]
        return r.emit(contraction.dot, *operands, **new._asdict())
    return None


def _is_strided_batch(permutation: Ints, batch: Ints, contracting: Ints, free: Ints) -> bool:
    """True if the source of a transpose is a strided batch of matrices without a copy: batch, contracting and free
    dimensions are each contiguous and in order, and the batch is not minor."""
    source_dims = [[permutation[d] for d in dims] for dims in (batch, contracting, free)]
    are_contiguous = all(p == list(range(p[0], p[0] + len(p))) for p in source_dims if p)
    return are_contiguous and source_dims[0][-1] != len(permutation) - 1


def _update_as_concatenate(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # dynamic-update-slice of most of an array at constant indices = concatenation of the update and slices around it
    array, update, *starts = o
    sizes, update_sizes = array.array_shape.dimensions, update.array_shape.dimensions
    computed = update.op.name in elementwise.NAMES
    if not computed or 2 * update.array_shape.size < array.array_shape.size or array.array_shape.size < 2 * LONG_ROW:
        return None
    if any(scalar_value(s) is None for s in starts):
        return None
    limits = [n - p for n, p in zip(sizes, update_sizes, strict=True)]
    start = [min(max(int(scalar_value(s)), 0), limit) for s, limit in zip(starts, limits, strict=True)]
    end = [b + p for b, p in zip(start, update_sizes, strict=True)]
    for d in reversed(range(len(sizes))):
        slices = [update]
        for side, low, high in ((0, 0, start[d]), (1, end[d], sizes[d])):
            if low < high:
                first, last = (*start[:d], low, *[0] * (len(sizes) - d - 1)), (*end[:d], high, *sizes[d + 1 :])
                strides = (1,) * len(sizes)
                slice_ = r.emit(movement.slice_, array, start_indices=first, limit_indices=last, strides=strides)
                slices.insert(side * len(slices), slice_)
        update = r.emit(movement.concatenate, *slices, dimension=d) if len(slices) > 1 else update
    return update


def _empty(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # empty arrays are constants; results of empty operands are the initial value, the padding value or zero
    if isinstance(x.shape, Shape) and x.shape.size == 0:
        if x.op in (movement.constant, movement.parameter):
            return None
        return r.emit(movement.constant, literal=Literal(np.empty(x.shape.dimensions, x.shape.dtype)))
    if not o or any(not isinstance(y.shape, Shape) for y in o) or o[0].array_shape.size:
        return None
    if x.op is reduction.reduce:
        kept = x.shape.elements[0] if isinstance(x.shape, TupleShape) else x.shape
        assert isinstance(kept, Shape)
        starts = [r.emit(movement.broadcast, start, sizes=kept.dimensions, dimensions=()) for start in o[len(o) // 2 :]]
        return r.emit(calls.tuple_, *starts) if isinstance(x.shape, TupleShape) else starts[0]
    if x.op is movement.pad:
        return r.emit(movement.broadcast, o[1], sizes=x.array_shape.dimensions, dimensions=())
    if x.op is contraction.dot:
        zero = r.emit(movement.constant, literal=Literal(np.zeros((), x.array_shape.dtype)))
        return r.emit(movement.broadcast, zero, sizes=x.array_shape.dimensions, dimensions=())
    return None


def _element(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # get-tuple-element(tuple(x, ...)) = x
    return o[0].operands[x.attributes.index] if o[0].op is calls.tuple_ else None


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_add_zero,),
    "subtract": (_subtract_zero,),
    "multiply": (_multiply_by_one,),
    "chain-multiply": (_chain_multiply,),
    "chain-divide": (_chain_divide, _chain_divide_by_broadcast),
    "divide": (_divide_by_one, _divide_exponentials),
    "negate": (_negate_twice,),
    "power": (_power,),
    "convert": (_convert_to_same_type,),
    "bitcast-convert": (_bitcast,),
    "select": (_select_same, _select_update),
    "reshape": (_reshape,),
    "transpose": (_transpose, _transpose_of_dot),
    "broadcast": (_broadcast,),
    "slice": (_full_slice, _slice_of_splat),
    "dynamic-slice": (_slice_of_splat,),
    "gather": (_slice_of_splat,),
    "pad": (_pad_by_nothing,),
    "concatenate": (_concatenate_single,),
    "dynamic-update-slice": (_update_as_concatenate,),
    "reverse": (_reverse_size_one,),
    "reduce": (_reduce, _reduce_16_bit_floats),
    "reduce-window": (_global_window,),
    "dot": (_dot_of_transpose,),
    "get-tuple-element": (_element,),
}


def apply(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
    """The replacement of x by the first identity that applies; None if there is none."""
    result = _empty(rewriter, x, operands)
    if result is not None:
        return result
    for rule in RULES.get(x.op.name, ()):
        result = rule(rewriter, x, operands)
        if result is not None:
            return result
    return None
