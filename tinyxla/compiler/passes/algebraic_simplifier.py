"""Algebraic simplification: a table of identities. Each is tried on every instruction; the first that applies wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.compiler.rewriter import Rewriter, rewrite, to_fixed_point
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import bits, calls, contraction, dynamic_slices, elementwise, indexing, movement, reduction
from tinyxla.ops.movement import inverse_permutation
from tinyxla.ops.op import Op
from tinyxla.shapes import Shape, TupleShape, WindowDimension, element_type
from tinyxla.shapes.window import dilated

Operands = tuple[Instruction, ...]
Ints = tuple[int, ...]
Rule = Callable[[Rewriter, Instruction, Operands], Instruction | None]

_LARGE = 1 << 8  # elements
_HALVES = (0.5, 1.5, 2.5)
_DEPTH = 12  # of what is looked at, from an instruction on
_MOST_ROUNDS = 8  # what an identity makes possible is mostly found in the same round


@to_fixed_point
def simplify(computation: Computation) -> Computation:
    """Apply the table of identities, until none applies."""
    for _ in range(_MOST_ROUNDS):
        simpler = rewrite(computation, apply)
        if simpler is computation:
            computation.fixed_points.add(simplify.__name__)
            break
        computation = simpler
    return computation


def scalar_value(x: Instruction) -> Any:
    """The value of a constant with one element, also under a broadcast; else None."""
    if x.op is movement.broadcast:
        x = x.operands[0]
    return x.attributes.literal.splat if x.op is movement.constant else None


def _is(x: Instruction, value: float) -> bool:
    found = scalar_value(x)
    return found is not None and bool(found == value) and not (value == 0 and np.signbit(np.real(found)))


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
    # a product that is zero where a factor is = the product, if the other factor is finite or that factor not zero
    safe = _is_finite(o[1]) and (not x.attributes.either or _is_finite(o[0]))
    if safe or (_is_not_zero(o[0]) and not x.attributes.either):
        return r.emit(elementwise.mul, *o)
    return None


def _chain_divide(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # the same for a quotient
    return r.emit(elementwise.div, *o) if _is_not_zero(o[1]) or _is_not_zero(o[0]) else None


def _chain_divide_by_few(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a derivative over numbers that are fewer than its elements = the derivative times their reciprocals
    return _by_reciprocals(r, elementwise.chain_mul, *o)


def _divide_exponentials(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # the same for exp(y - maximum), which is rounded anyway, over sums, which are not so small that 1 / sum overflows
    power = o[0].operands[1] if o[0].op is elementwise.select else o[0]
    if power.op is not elementwise.exp or power.operands[0].op is not elementwise.sub:
        return None
    largest = power.operands[0].operands[1]
    while largest.op in (movement.broadcast, movement.reshape):
        largest = largest.operands[0]
    is_known = largest.op is reduction.reduce and reduction.monoid(largest.attributes.to_apply) == "maximum"
    return _by_reciprocals(r, elementwise.mul, *o) if is_known else None


def _by_reciprocals(r: Rewriter, product: Op, x: Instruction, y: Instruction) -> Instruction | None:
    few = y.operands[0] if y.op is movement.broadcast and scalar_value(y) is None else y
    if y.array_shape.element_type.name not in ("f32", "f64") or few.array_shape.size >= y.array_shape.size:
        return None
    reciprocals = r.emit(elementwise.div, _ones(r, y.array_shape.dtype, few.array_shape.dimensions), few)
    return r.emit(product, x, r.emit(movement.broadcast, reciprocals, **y.attributes._asdict()))


def _ones(r: Rewriter, dtype: np.dtype[Any], sizes: Ints) -> Instruction:
    one = r.emit(movement.constant, literal=Literal(np.ones((), dtype)))
    return r.emit(movement.broadcast, one, sizes=sizes, dimensions=()) if sizes else one


def _is_finite(x: Instruction) -> bool:
    found = scalar_value(x)
    if found is not None:
        return bool(np.isfinite(found))
    wide = x.array_shape.element_type.name in ("bf16", "f32", "f64", "c64", "c128")  # than any integer
    return wide and x.op is elementwise.convert and not x.operands[0].array_shape.element_type.is_inexact


def _is_not_zero(x: Instruction) -> bool:
    found = scalar_value(x)
    return found is not None and bool(found != 0) and bool(found == found)


def _add_zero(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # x + 0 = x for integers; x + -0.0 = x for floats (x + 0.0 turns -0.0 into 0.0)
    for this, other in (o, o[::-1]):
        if (_is_integer(this) and _is(this, 0)) or _is_negative_zero(this):
            return other
    return None


def _is_negative_zero(x: Instruction) -> bool:
    found = scalar_value(x)
    return found is not None and found.dtype.kind == "f" and found == 0 and bool(np.signbit(found))


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
    is_short = exponent == -1 or abs(exponent) in _HALVES
    if not is_short or x.array_shape.element_type.name not in ("f32", "f64"):  # of narrow types, parts overflow early
        return None
    if exponent != -1 and not _is_not_negative(o[0], _DEPTH):
        return None
    found = r.emit(elementwise.sqrt, o[0]) if exponent % 1 else o[0]
    for _ in range(int(abs(exponent)) - (exponent == -1)):
        found = r.emit(elementwise.mul, found, o[0])
    if exponent > 0:
        return found
    return r.emit(elementwise.div, _ones(r, x.array_shape.dtype, x.array_shape.dimensions), found)


def _is_not_negative(x: Instruction, depth: int) -> bool:
    """Whether it is seen that no element is less than 0 or -0.0."""
    if x.op is movement.constant:
        value = x.attributes.literal.value
        return value.dtype.kind in "fiu" and not np.signbit(value).any()
    if depth == 0 or not x.operands or not isinstance(x.shape, Shape):
        return False
    if x.op is reduction.reduce:
        return reduction.monoid(x.attributes.to_apply) == "add" and all(
            _is_not_negative(o, depth - 1) for o in x.operands
        )
    if x.op.name in ("exponential", "abs") or (x.op is elementwise.mul and x.operands[0] is x.operands[1]):
        return x.array_shape.element_type.kind == "float"
    further = ("broadcast", "reshape", "transpose", "slice", "add", "multiply", "divide", "sqrt")
    return x.op.name in further and all(_is_not_negative(o, depth - 1) for o in x.operands)


def _convert_nothing(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # convert(x) to the type it has = x
    return o[0] if o[0].shape == x.shape else None


def _bitcast(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # bits seen as another type and back = x, unless pred between them has lost all bits but one
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
    # select(p, update of x, x) = an update of x by nothing new, unless p: so x need not be read as a whole
    pred = o[0].operands[0] if o[0].op is movement.broadcast else o[0]
    if pred.array_shape.rank or x.array_shape.rank == 0:
        return None
    for updated, whole in (o[1:], o[:0:-1]):
        chain = _updates(updated, whole)
        if chain:
            found = whole
            for update in reversed(chain):
                found = _update_if(r, update, found, pred, updated is o[1])
            return found
    return None


def _updates(x: Instruction, whole: Instruction) -> list[Instruction]:
    """What makes an array of another by changing parts of it, the last change first; empty if it is not made so."""
    found: list[Instruction] = []
    while x is not whole:
        if not (x.op is dynamic_slices.dynamic_update_slice or (x.op is indexing.scatter and _can_skip(x))):
            return []
        found.append(x)
        x = x.operands[0]
    return found


def _can_skip(scatter: Instruction) -> bool:
    """Whether there is an index that is outside, which leaves the array as it is."""
    if len(scatter.operands) != 3 or not scatter.attributes.scatter_dims_to_operand_dims:
        return False
    return scatter.operands[1].array_shape.dtype.kind == "i"


def _update_if(r: Rewriter, update: Instruction, whole: Instruction, pred: Instruction, wanted: bool) -> Instruction:
    """The update of `whole` where the predicate is what is wanted."""
    attributes = update.attributes._asdict()
    _, new, *others = update.operands
    if update.op is indexing.scatter:
        outside = r.emit(movement.constant, literal=Literal(np.full((), -1, new.array_shape.dtype)))
        old = r.emit(movement.broadcast, outside, sizes=new.array_shape.dimensions, dimensions=())
    else:
        old = r.emit(dynamic_slices.dynamic_slice, whole, *others, dynamic_slice_sizes=new.array_shape.dimensions)
    several = r.emit(movement.broadcast, pred, sizes=new.array_shape.dimensions, dimensions=())
    chosen = r.emit(elementwise.select, several, *((new, old) if wanted else (old, new)))
    return r.emit(update.op, whole, chosen, *others, **attributes)


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
        place = inverse_permutation(permutation)
        dimensions = tuple(place[d] for d in o[0].attributes.dimensions)
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
    # a new dimension of size 1 that was there before as a reshape goes straight into the broadcast
    if o[0].op is movement.reshape:
        source = o[0].operands[0]
        kept = [d for d, size in enumerate(o[0].array_shape.dimensions) if size != 1]
        if source.array_shape.dimensions == tuple(o[0].array_shape.dimensions[d] for d in kept):
            return r.emit(movement.broadcast, source, sizes=sizes, dimensions=tuple(dimensions[d] for d in kept))
    return None


def _part_of_one_number(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a part of a scalar's broadcast = a broadcast of it
    if o[0].op is not movement.broadcast or o[0].attributes.dimensions:
        return None
    sizes = x.array_shape.dimensions
    return r.emit(movement.broadcast, o[0].operands[0], sizes=sizes, dimensions=()) if sizes else o[0].operands[0]


def _slice_all(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a slice of everything = x
    return o[0] if o[0].shape == x.shape else None


def _pad_nothing(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # padding by nothing = x
    return o[0] if all(config == (0, 0, 0) for config in x.attributes.padding_config) else None


def _concatenate_one(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # operands without elements add nothing; concatenate(x) = x
    kept = [operand for operand in o if operand.array_shape.size] or list(o[:1])
    if len(kept) == 1 and kept[0].shape == x.shape:
        return kept[0]
    return r.emit(movement.concatenate, *kept, dimension=x.attributes.dimension) if len(kept) < len(o) else None


def _reverse_nothing(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # reversing dimensions of size <= 1 changes nothing
    return o[0] if all(o[0].array_shape.dimensions[d] <= 1 for d in x.attributes.dimensions) else None


def _reduce(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a reduction over nothing = x, with the neutral element; one over dimensions of size 1 is a reshape
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


def _reduction_of_halves(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a reduction of 16-bit floats = one of the same numbers as f32, of which processors have vectors, rounded but once
    kind = x.array_shape.element_type if len(o) == 2 else None
    op = reduction.monoid(x.attributes.to_apply)
    if kind is None or kind.name not in ("f16", "bf16") or op is None:
        return None
    wide = [r.emit(elementwise.convert, operand, new_element_type=element_type("f32")) for operand in o]
    body = reduction.scalar_computation(op, np.float32)
    found = r.emit(reduction.reduce, *wide, dimensions=x.attributes.dimensions, to_apply=body)
    return r.emit(elementwise.convert, found, new_element_type=kind)


def _window_of_all(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # one window over all of the dimensions in which it is not of size 1 = a reduction over these
    if reduction.monoid(x.attributes.to_apply) is None:
        return None
    sizes = o[0].array_shape.dimensions
    wide = [d for d, w in enumerate(x.attributes.window) if w != WindowDimension(1)]
    for d in wide:
        w = x.attributes.window[d]
        covers = 0 <= w.padding_low <= w.size - dilated(sizes[d], w.base_dilation)
        if x.array_shape.dimensions[d] != 1 or w.window_dilation != 1 or not covers:
            return None
    reduced = r.emit(reduction.reduce, *o, dimensions=tuple(wide), to_apply=x.attributes.to_apply)
    return r.emit(movement.reshape, reduced, sizes=x.array_shape.dimensions)


def _dot_of_transpose(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # a product of a transpose is a product of the original over other dimension numbers, as far as the BLAS can tell
    dims: contraction.Dot = x.attributes
    for side, operand in enumerate(o):
        if operand.op is not movement.transpose:
            continue
        contracting, batch = dims.contracting(side), dims.batch(side)
        free = contraction.free_dimensions(operand.array_shape.rank, contracting, batch)
        permutation = operand.attributes.permutation
        moved = tuple(permutation[d] for d in free)
        if moved != tuple(sorted(moved)):  # the order of the result's dimensions would change
            continue
        if batch and not _is_matrix(permutation, batch, contracting, free):
            continue
        new = dims.with_side(side, tuple(permutation[d] for d in contracting), tuple(permutation[d] for d in batch))
        operands = [operand.operands[0] if k == side else other for k, other in enumerate(o)]
        return r.emit(contraction.dot, *operands, **new._asdict())
    return None


def _is_matrix(permutation: Ints, batch: Ints, contracting: Ints, free: Ints) -> bool:
    """Whether what is transposed is a strided batch of matrices without a copy: in it, the dimensions of each kind lie
    together and in order, and the batch is not innermost."""
    places = [[permutation[d] for d in dims] for dims in (batch, contracting, free)]
    together = all(p == list(range(p[0], p[0] + len(p))) for p in places if p)
    return together and places[0][-1] != len(permutation) - 1


def _update_of_most(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # an update, computed there, of most of an array at a place that is known = parts of the array around the update
    whole, part, *starts = o
    sizes, parts = whole.array_shape.dimensions, part.array_shape.dimensions
    computed = part.op.name in elementwise.NAMES
    if not computed or 2 * part.array_shape.size < whole.array_shape.size or whole.array_shape.size < _LARGE:
        return None
    if any(scalar_value(s) is None for s in starts):
        return None
    limits = [n - p for n, p in zip(sizes, parts, strict=True)]
    begin = [min(max(int(scalar_value(s)), 0), limit) for s, limit in zip(starts, limits, strict=True)]
    end = [b + p for b, p in zip(begin, parts, strict=True)]
    for d in reversed(range(len(sizes))):
        pieces = [part]
        for place, low, high in ((0, 0, begin[d]), (1, end[d], sizes[d])):
            if low < high:
                first, last = (*begin[:d], low, *[0] * (len(sizes) - d - 1)), (*end[:d], high, *sizes[d + 1 :])
                strides = (1,) * len(sizes)
                around = r.emit(movement.slice_, whole, start_indices=first, limit_indices=last, strides=strides)
                pieces.insert(place * len(pieces), around)
        part = r.emit(movement.concatenate, *pieces, dimension=d) if len(pieces) > 1 else part
    return part


def _empty(r: Rewriter, x: Instruction, o: Operands) -> Instruction | None:
    # arrays without elements are constants; what is made of them alone is the initial, padding or neutral value
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
    # an element of a tuple that is made here is the operand it is made of
    return o[0].operands[x.attributes.index] if o[0].op is calls.tuple_ else None


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_add_zero,),
    "subtract": (_subtract_zero,),
    "multiply": (_multiply_by_one,),
    "chain-multiply": (_chain_multiply,),
    "chain-divide": (_chain_divide, _chain_divide_by_few),
    "divide": (_divide_by_one, _divide_exponentials),
    "negate": (_negate_twice,),
    "power": (_power,),
    "convert": (_convert_nothing,),
    "bitcast-convert": (_bitcast,),
    "select": (_select_same, _select_update),
    "reshape": (_reshape,),
    "transpose": (_transpose, _transpose_of_dot),
    "broadcast": (_broadcast,),
    "slice": (_slice_all, _part_of_one_number),
    "dynamic-slice": (_part_of_one_number,),
    "gather": (_part_of_one_number,),
    "pad": (_pad_nothing,),
    "concatenate": (_concatenate_one,),
    "dynamic-update-slice": (_update_of_most,),
    "reverse": (_reverse_nothing,),
    "reduce": (_reduce, _reduction_of_halves),
    "reduce-window": (_window_of_all,),
    "dot": (_dot_of_transpose,),
    "get-tuple-element": (_element,),
}


def apply(rewriter: Rewriter, x: Instruction, operands: Operands) -> Instruction | None:
    """What stands for x by the first identity that applies, if one does."""
    found = _empty(rewriter, x, operands)
    if found is not None:
        return found
    for rule in RULES.get(x.op.name, ()):
        found = rule(rewriter, x, operands)
        if found is not None:
            return found
    return None
