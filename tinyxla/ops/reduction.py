"""Reduce: a computation folded over dimensions of arrays.

Source: section "Reduce" of the XLA documents. The computation is associative; the order in which it is applied is not
defined. The common monoids are recognised by their computation, whoever built it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tinyxla.errors import ShapeError
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, elementwise, movement
from tinyxla.ops.op import ByAttributes, Decomposition, Derivative, Factors, Linear, Op, Rules, Sample, Value, Zero, ops
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.shapes.key_types import numbers_only
from tinyxla.shapes.symbolic import is_symbolic
from tinyxla.shapes.window import WindowDimension

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


class Reduce(NamedTuple):
    dimensions: Ints
    to_apply: Computation


@cache
def scalar_computation(op: str, dtype: Any) -> Computation:
    """The computation of one binary op on scalars: what Reduce takes."""
    shape = Shape(element_type(dtype))
    x, y = (Instruction(movement.parameter, (), movement.Parameter(number, shape), shape) for number in (0, 1))
    root = Instruction(ops[op], (x, y), ops[op].attributes(), shape)
    return Computation(op, [x, y], [x, y, root], root)


def monoid(computation: Computation) -> str | None:
    """The name of the op if the computation is one commutative op on its two parameters."""
    root = computation.root
    if root.op.name not in _UFUNCS or len(computation.parameters) != 2 or len(computation.instructions) != 3:
        return None
    return root.op.name if set(root.operands) == set(computation.parameters) else None


def union(dtype: np.dtype[Any]) -> str:
    """The op that combines an element with `nothing` to the element."""
    return "or" if dtype.kind == "b" else "add"


def nothing(dtype: np.dtype[Any]) -> Any:
    """The exact identity of `union`: -0 for floats, since -0 + 0 is 0."""
    return np.negative(np.zeros((), dtype)) if element_type(dtype).is_inexact else np.zeros((), dtype)


_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@lru_cache(256)
def ufunc_of(computation: Computation, dtype: Any) -> np.ufunc | None:
    """What a monoid is in NumPy, which has none for integers of less than 8 bits."""
    op, kind = monoid(computation), element_type(dtype)
    return None if op is None or (kind.is_integer and kind.bits < 8) else _UFUNCS[op]


@cache
def identity_element(op: str, dtype: Any) -> Any:
    """The neutral element of a monoid."""
    numbers_only(dtype)
    found = element_type(dtype)
    kind = found.kind
    if op in ("add", "or", "xor"):
        return 0
    if op == "multiply":
        return 1
    if op == "and":
        return True if kind == "pred" else np.array(-1).astype(dtype)
    if kind == "pred":
        return op == "minimum"
    if kind in ("signed", "unsigned"):
        count = 1 << found.bits
        lowest = 0 if kind == "unsigned" else -count // 2
        return lowest if op == "maximum" else lowest + count - 1
    limits = ml_dtypes.finfo(found.dtype)  # of a type without infinities the last numbers
    last = -math.inf if op == "maximum" else math.inf
    return last if np.isinf(np.array(last).astype(found.dtype)) else limits.min if op == "maximum" else limits.max


# --- rules ------------------------------------------------------------------------------------------------------------


def halves(operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Arrays, and initial values."""
    count = len(operands) // 2
    return list(operands[:count]), list(operands[count:])


def check_computation(what: str, given: Computation, takes: list[Shape], gives: list[Shape]) -> None:
    """A computation of these parameters with these results."""
    found = [x.shape for x in given.outputs]
    if given.parameter_shapes != takes or found != gives:
        raise ShapeError(f"{what} must map {takes} to {gives}, but got {given.parameter_shapes} -> {found}.")


def check_folded(name: str, operands: Sequence[AnyShape], to_apply: Computation) -> list[Shape]:
    """The arrays of an op that folds them, each from an initial value."""
    if len(operands) < 2 or len(operands) % 2:
        raise ShapeError(f"{name}: there must be as many initial values as arrays, but got {len(operands)} operands.")
    arrays, initial = ([movement.array_operand(name, x) for x in half] for half in halves(operands))
    for x, start in zip(arrays, initial, strict=True):
        if x.dimensions != arrays[0].dimensions:
            raise ShapeError(f"{name}: the operands must have the same dimensions, but got {arrays[0]} and {x}.")
        if start.rank or start.element_type is not x.element_type:
            raise ShapeError(f"{name}: the initial value for {x} must be a scalar {x.element_type}, but got {start}.")
    scalars = [Shape(x.element_type) for x in arrays]
    check_computation(f"{name}: to_apply", to_apply, scalars * 2, scalars)
    return arrays


def _reduce_shape(*operands: AnyShape, dimensions: Ints, to_apply: Computation) -> AnyShape:
    arrays = check_folded("reduce", operands, to_apply)
    movement.check_dimensions("reduce", "dimensions", dimensions, arrays[0].rank)
    kept = [size for d, size in enumerate(arrays[0].dimensions) if d not in dimensions]
    results = tuple(x.with_dimensions(kept) for x in arrays)
    return TupleShape(results) if isinstance(to_apply.root.shape, TupleShape) else results[0]


def _reduce_evaluate(*operands: Array, dimensions: Ints, to_apply: Computation) -> Any:
    arrays, initial = halves(operands)
    ufunc = ufunc_of(to_apply, arrays[0].dtype)
    if ufunc is None or (arrays[0].dtype.kind == "b" and ufunc in (np.add, np.multiply)):
        return _fold_arrays(arrays, initial, dimensions, to_apply)
    x, start = arrays[0], initial[0][()]
    if _accumulates_in_single(ufunc, x.dtype):
        return _reduced_in_single(ufunc, x, dimensions, start)
    return ufunc.reduce(x, axis=dimensions, dtype=x.dtype, initial=start)


@cache
def _accumulates_in_single(ufunc: np.ufunc, dtype: Any) -> bool:
    """Whether arrays are reduced in f32, and rounded once, as in compiled programs: 16-bit floats by + and *."""
    kind = element_type(dtype)
    return kind.kind == "float" and kind.bits == 16 and ufunc in (np.add, np.multiply)


def _reduced_in_single(ufunc: np.ufunc, x: Array, dimensions: Ints, start: Any) -> Any:
    found = ufunc.reduce(x, axis=dimensions, dtype=np.float32, initial=start.astype(np.float32))
    return np.asarray(found).astype(x.dtype)


def folded(op: str, x: Array, dimensions: Ints) -> Any:
    """An array reduced by a monoid."""
    ufunc, start, in_single = _folding(op, x.dtype)
    with np.errstate(all="ignore"):
        if ufunc is None:
            return _fold_arrays([x], [start], dimensions, scalar_computation(op, x.dtype))
        if in_single:
            return _reduced_in_single(ufunc, x, dimensions, start)
        return ufunc.reduce(x, axis=dimensions, dtype=x.dtype, initial=start)


@cache
def _folding(op: str, dtype: Any) -> tuple[np.ufunc | None, Any, bool]:
    """What a monoid is in NumPy, if it is something there, its neutral element, and whether f32 accumulates it."""
    start = np.asarray(identity_element(op, dtype)).astype(dtype)
    ufunc = ufunc_of(scalar_computation(op, dtype), dtype)
    if ufunc is None or (dtype.kind == "b" and op in ("add", "multiply")):
        return None, start, False
    return ufunc, start[()], _accumulates_in_single(ufunc, dtype)


def _fold_arrays(arrays: list[Array], initial: list[Array], dimensions: Ints, to_apply: Computation) -> Any:
    """Neighbours are combined, level by level; so only about log n steps are taken in Python."""
    kept = [d for d in range(arrays[0].ndim) if d not in dimensions]
    sizes = [arrays[0].shape[d] for d in kept]
    count = math.prod(arrays[0].shape[d] for d in dimensions)
    rows = [x.transpose(*dimensions, *kept).reshape((count, *sizes)) for x in arrays]
    while count > 1:
        even = count - count % 2
        paired = combine_arrays(to_apply, [x[0:even:2] for x in rows], [x[1:even:2] for x in rows])
        rows = [np.concatenate([p, x[even:]]) for p, x in zip(paired, rows, strict=True)]
        count = rows[0].shape[0]
    starts = [np.broadcast_to(x, sizes) for x in initial]
    results = combine_arrays(to_apply, starts, [x[0] for x in rows]) if count else starts
    return tuple(results) if isinstance(to_apply.root.shape, TupleShape) else results[0]


def combine_arrays(to_apply: Computation, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """A computation of scalars, on arrays of one shape element by element."""
    return calls.evaluate_elements(to_apply, [*left, *right])


def combine_values(to_apply: Computation, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    """The same as ops, on any values."""
    shape = left[0].shape
    flat = [movement.reshape_to(x, (x.size,)) for x in (*left, *right)]
    result, axes = calls.inline_batched(to_apply, flat[0].size, flat, [0] * len(flat))
    parts = result if isinstance(result, tuple) else (result,)
    axes = axes if isinstance(axes, tuple) else (axes,)
    aligned = [movement.align_axis(p, a, 0, flat[0].size) for p, a in zip(parts, axes, strict=True)]
    return [movement.reshape_to(p, shape) for p in aligned]


def _fold(*operands: Value, dimensions: Ints, to_apply: Computation) -> Any:
    """The same as ops: what the derivative of a general reduction is taken of. Initial values may have leading axes."""
    arrays, initial = halves(operands)
    kept = [d for d in range(arrays[0].ndim) if d not in dimensions]
    sizes = tuple(arrays[0].shape[d] for d in kept)
    count = math.prod(arrays[0].shape[d] for d in dimensions)
    rows = [
        movement.reshape_to(movement.transpose_to(x, (*dimensions, *kept)), (count, math.prod(sizes))) for x in arrays
    ]
    if is_symbolic(count):
        rows = [_last_product(rows[0], count, to_apply)] if monoid(to_apply) and len(rows) == 1 else rows
        count = rows[0].shape[0]
    while count > 1:
        even = count - count % 2
        paired = combine_values(
            to_apply,
            [movement.slice_axis(x, 0, 0, even, 2) for x in rows],
            [movement.slice_axis(x, 0, 1, even, 2) for x in rows],
        )
        rest = [movement.slice_axis(x, 0, even, count) for x in rows]
        rows = (
            [movement.concatenate(p, r, dimension=0) for p, r in zip(paired, rest, strict=True)]
            if count % 2
            else paired
        )
        count = rows[0].shape[0]
    starts = [
        movement.reshape_to(movement.broadcast(x, sizes=sizes, dimensions=tuple(range(x.ndim))), (math.prod(sizes),))
        for x in initial
    ]
    flat = [movement.reshape_to(x, (math.prod(sizes),)) for x in rows] if count else []
    results = combine_values(to_apply, starts, flat) if count else starts
    shaped = tuple(movement.reshape_to(x, sizes) for x in results)
    return shaped if isinstance(to_apply.root.shape, TupleShape) else shaped[0]


def _last_product(rows: Value, count: int, to_apply: Computation) -> Value:
    """All rows combined by a monoid, as one row: the last of what is cumulative, whose derivative needs no number."""
    op = monoid(to_apply)
    assert op is not None
    start = movement.constant(literal=Literal(np.asarray(identity_element(op, rows.dtype)).astype(rows.dtype)))
    window = (WindowDimension(count, padding_low=count - 1), WindowDimension(1))
    found = ops["reduce-window"](rows, start, window=window, to_apply=to_apply)
    return movement.slice_axis(found, 0, count - 1, count)


def _kept(x: Value, dimensions: Ints) -> Ints:
    return tuple(d for d in range(x.ndim) if d not in dimensions)


def _spread(small: Value, x: Value, dimensions: Ints) -> Value:
    """A reduction's result along the dimensions that were reduced."""
    return movement.broadcast(small, sizes=x.shape, dimensions=_kept(x, dimensions))


def _sum_transpose(
    g: Value, x: Value, initial: Value, *, dimensions: Ints, to_apply: Computation
) -> tuple[Value, Value]:
    return _spread(g, x, dimensions), reduce_sum(g, tuple(range(g.ndim)))


def _extremum_jvp(
    tangents: tuple[Value | None, ...], ans: Value, x: Value, initial: Value, *, dimensions: Ints, to_apply: Computation
) -> Value | None:
    hits, count, alone = _hits(ans, x, dimensions)
    parts: list[Value] = []
    if tangents[0] is not None:
        chosen = elementwise.select(hits, tangents[0], elementwise.zeros_like(x))
        parts.append(elementwise.chain_div(reduce_sum(chosen, dimensions), count))
    if tangents[1] is not None:
        parts.append(elementwise.mul(movement.broadcast(tangents[1], sizes=ans.shape, dimensions=()), alone))
    return parts[0] if len(parts) == 1 else elementwise.add(*parts)


def _extremum_vjp(
    g: Value, ans: Value, x: Value, initial: Value, *, dimensions: Ints, to_apply: Computation
) -> tuple[Value, Value]:
    hits, count, alone = _hits(ans, x, dimensions)
    share = _spread(elementwise.chain_div(g, count), x, dimensions)
    to_initial = reduce_sum(elementwise.mul(g, alone), tuple(range(g.ndim)))
    return elementwise.select(hits, share, elementwise.zeros_like(x)), to_initial


def _hits(ans: Value, x: Value, dimensions: Ints) -> tuple[Value, Value, Value]:
    """Which elements are the extremum, how many of them share its derivative equally (at least one), and where the
    initial value alone is it: only there it has a derivative. If the extremum is NaN so is the derivative by all
    elements: they share it, and their number is NaN."""
    kind = element_type(x.dtype)
    spread = _spread(ans, x, dimensions)
    hits = elementwise.or_(elementwise.eq(x, spread), elementwise.ne(spread, spread))
    count = reduce_sum(elementwise.convert(hits, new_element_type=kind), dimensions)
    none = elementwise.eq(count, elementwise.zeros_like(count))
    safe = elementwise.select(none, elementwise.one_like(count), count)
    shared = elementwise.select(elementwise.ne(ans, ans), ans, safe)
    return hits, shared, elementwise.convert(none, new_element_type=kind)


def _derivative(*, dimensions: Ints, to_apply: Computation) -> Derivative:
    op = monoid(to_apply)
    if op == "add":
        return Linear(_sum_transpose)
    if op in ("maximum", "minimum"):
        return Rules(_extremum_jvp, _extremum_vjp)
    return Zero() if op in ("and", "or", "xor") else Decomposition(_fold)


def _reduce_batch(
    size: int, operands: tuple[Value, ...], axes: tuple[int | None, ...], *, dimensions: Ints, to_apply: Computation
) -> tuple[Any, Any]:
    count = len(operands) // 2
    arrays = [movement.align_axis(x, a, 0, size) for x, a in zip(operands[:count], axes[:count], strict=True)]
    inner = tuple(d + 1 for d in dimensions)
    if all(axis is None for axis in axes[count:]):
        result = reduce(*arrays, *operands[count:], dimensions=inner, to_apply=to_apply)
    else:
        initial = [movement.align_axis(x, a, 0, size) for x, a in zip(operands[count:], axes[count:], strict=True)]
        result = _fold(*arrays, *initial, dimensions=inner, to_apply=to_apply)
    return result, (0,) * count if isinstance(result, tuple) else 0


def _reduce_samples(random: np.random.Generator) -> Iterator[Sample]:
    for op in _UFUNCS:
        dtypes: tuple[Any, ...] = (np.int32, np.bool_) if op in ("and", "or", "xor") else (np.float32, np.int32)
        for dtype in dtypes:
            start = np.asarray(identity_element(op, dtype)).astype(dtype)
            for shape, dimensions in (
                ((3, 4), (1,)),
                ((3, 4), (0,)),
                ((2, 3, 2), (0, 2)),
                ((5,), (0,)),
                ((2, 0), (1,)),
                ((2,), ()),
            ):
                x = elementwise.sample_array(random, dtype, shape, 1, 3)
                yield Sample((x, start), {"dimensions": dimensions, "to_apply": scalar_computation(op, dtype)})
    for dtype, start in ((np.float32, 2.0), (element_type("bf16").dtype, 0.0)):
        x = elementwise.sample_array(random, dtype, (4, 5), -1, 1)
        attributes = {"dimensions": (0,), "to_apply": scalar_computation("add", dtype)}
        yield Sample((x, np.asarray(start).astype(dtype)), attributes)
    x = movement.sample_values((3, 5))
    index = np.broadcast_to(np.arange(5, dtype=np.int32), (3, 5))
    start = (np.float32(-np.inf).reshape(()), np.int32(0).reshape(()))
    yield Sample((x, index, *start), {"dimensions": (1,), "to_apply": argument_computation("GT", np.float32, np.int32)})


def _reduce_factors(*operands: Shape, dimensions: Ints, to_apply: Computation) -> Factors:
    """Parts of what is reduced over are combined if the computation is one associative op."""
    rank, op = operands[0].rank, monoid(to_apply)
    kept = tuple(d for d in range(rank) if d not in dimensions)
    own = tuple(d if d in kept or op else None for d in range(rank))
    count = len(operands) // 2
    reductions = tuple((d, op) for d in dimensions) if op else ()
    return Factors((*(own,) * count, *((),) * count), (kept,) * count, reductions)


reduce = Op(
    "reduce",
    attributes=Reduce,
    sharding=_reduce_factors,
    shape=_reduce_shape,
    evaluate=_reduce_evaluate,
    derivative=ByAttributes(_derivative),
    batch=_reduce_batch,
    samples=_reduce_samples,
)


@cache
def argument_computation(direction: str, dtype: Any, index_dtype: Any) -> Computation:
    """(value, index) pairs: the one whose value comes first in that direction; of equal ones the lower index; NaN
    first."""
    value, index = Shape(element_type(dtype)), Shape(element_type(index_dtype))
    parameters = [
        Instruction(movement.parameter, (), movement.Parameter(k, shape), shape)
        for k, shape in enumerate((value, index, value, index))
    ]
    instructions = list(parameters)

    def emit(op: Op, *operands: Instruction, **attributes: Any) -> Instruction:
        shape = op.shape(*(x.shape for x in operands), **attributes)
        instructions.append(Instruction(op, operands, op.attributes(**attributes), shape))
        return instructions[-1]

    def compare(x: Instruction, y: Instruction, direction: str) -> Instruction:
        kind = elementwise.comparison_type(x.array_shape.dtype)
        return emit(elementwise.compare, x, y, direction=direction, type=kind)

    x, i, y, j = parameters
    first = emit(elementwise.or_, compare(x, y, direction), compare(x, x, "NE"))
    tie = emit(elementwise.and_, compare(x, y, "EQ"), compare(i, j, "LT"))
    nan_tie = emit(elementwise.and_, compare(y, y, "NE"), compare(j, i, "LT"))
    keep = emit(elementwise.or_, first, tie)
    keep = emit(elementwise.and_, keep, emit(elementwise.not_, nan_tie))
    root = emit(calls.tuple_, emit(elementwise.select, keep, x, y), emit(elementwise.select, keep, i, j))
    return Computation("argument_" + direction.lower(), parameters, instructions, root)


def is_argument(computation: Computation) -> bool:
    """Whether a computation is one of those that choose a (value, index) pair."""
    if len(computation.parameters) != 4:
        return False
    value, index = (computation.parameters[k].array_shape.dtype for k in (0, 1))
    if element_type(value).kind == "complex":
        return False
    return any(computation == argument_computation(direction, value, index) for direction in ("GT", "LT"))


def _reducer(op: str) -> Callable[[Value, Ints], Value]:
    def apply(x: Value, dimensions: Ints) -> Value:
        if not dimensions:
            return x
        start = np.asarray(identity_element(op, x.dtype)).astype(x.dtype)
        return reduce(
            x,
            movement.constant(literal=Literal(start)),
            dimensions=dimensions,
            to_apply=scalar_computation(op, x.dtype),
        )

    apply.__name__ = f"reduce_{op}"
    apply.__doc__ = f"Reduce over `dimensions` with {op}; the result has the other dimensions."
    return apply


reduce_sum = _reducer("add")
reduce_prod = _reducer("multiply")
reduce_max = _reducer("maximum")
reduce_min = _reducer("minimum")
reduce_and = _reducer("and")
reduce_or = _reducer("or")
reduce_xor = _reducer("xor")
