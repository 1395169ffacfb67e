"""Sort: arrays put in order along a dimension, together, by a comparator; and the first elements in an order, topk.

Source: sections "Sort" and "TopK" of the XLA documents. The comparator takes the two elements of each array in turn
and says whether the first comes first. The plain orders are recognised by their computation, whoever built it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, elementwise, indexing, movement
from tinyxla.ops.op import Cotangent, Op, Rules, Sample, Value, batches, but_for
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


class Sort(NamedTuple):
    dimensions: Ints  # one
    to_apply: Computation
    is_stable: bool = True


class Order(NamedTuple):
    """A plain order: lexicographic by the first arrays, the keys; NaN last, and -0 equal to 0."""

    keys: int
    descending: bool


# --- comparators ------------------------------------------------------------------------------------------------------

_orders: dict[Computation, Order] = {}


@cache
def order_computation(dtypes: tuple[Any, ...], keys: int = 1, descending: bool = False) -> Computation:
    """The comparator of a plain order of arrays of these types."""
    scalars = [Shape(element_type(t)) for t in dtypes]
    parameters = [
        Instruction(movement.parameter, (), movement.Parameter(k, scalars[k // 2]), scalars[k // 2])
        for k in range(2 * len(scalars))
    ]
    instructions = list(parameters)
    made_before: dict[Any, Instruction] = {}

    def emit(op: Op, *operands: Instruction, **attributes: Any) -> Instruction:
        """Each instruction once, and none that is not needed: as the compiler leaves them, which knows an order by its
        computation."""
        key = (op.name, operands, op.attributes(**attributes))
        if key not in made_before:
            shape = op.shape(*(x.shape for x in operands), **attributes)
            made_before[key] = Instruction(op, operands, key[2], shape)
            instructions.append(made_before[key])
        return made_before[key]

    def compare(x: Instruction, y: Instruction, direction: str) -> Instruction:
        kind = elementwise.comparison_type(x.array_shape.dtype)
        return emit(elementwise.compare, x, y, direction=direction, type=kind)

    def less(x: Instruction, y: Instruction) -> Instruction:
        """Whether x comes before y, by one key."""
        if x.array_shape.element_type.kind == "complex":
            parts = [[emit(part, v) for v in (x, y)] for part in (elementwise.real, elementwise.imag)]
            return either(less(*parts[0]), equal(*parts[0]), less(*parts[1]))
        before = compare(x, y, "LT")
        if x.array_shape.element_type.kind == "float":
            x_nan, y_nan = compare(x, x, "NE"), compare(y, y, "NE")
            before = emit(elementwise.or_, before, emit(elementwise.and_, emit(elementwise.not_, x_nan), y_nan))
        return before

    def equal(x: Instruction, y: Instruction) -> Instruction:
        if x.array_shape.element_type.kind == "complex":
            parts = [[emit(part, v) for v in (x, y)] for part in (elementwise.real, elementwise.imag)]
            return emit(elementwise.and_, equal(*parts[0]), equal(*parts[1]))
        same = compare(x, y, "EQ")
        if x.array_shape.element_type.kind == "float":
            x_nan, y_nan = compare(x, x, "NE"), compare(y, y, "NE")
            same = emit(elementwise.or_, same, emit(elementwise.and_, x_nan, y_nan))
        return same

    def either(before: Instruction, same: Instruction, later: Instruction) -> Instruction:
        return emit(elementwise.or_, before, emit(elementwise.and_, same, later))

    root: Instruction | None = None
    for k in reversed(range(keys)):
        pair = parameters[2 * k : 2 * k + 2]
        x, y = reversed(pair) if descending else pair
        root = less(x, y) if root is None else either(less(x, y), equal(x, y), root)
    assert root is not None, "an order has at least one key"
    made = Computation("greater" if descending else "less", parameters, instructions, root)
    _orders[made] = Order(keys, descending)
    return made


@cache
def total_order(dtype: Any, descending: bool = False) -> Computation:
    """The comparator of a total order of pairs of an element of a type and an s32, at which it does not look: -0 comes
    before 0, and NaNs come outermost, by their sign."""
    shapes = [Shape(element_type(t)) for t in (dtype, np.int32) for _ in (0, 1)]
    parameters = [
        Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k, shape in enumerate(shapes)
    ]
    kind = elementwise.comparison_type(dtype)
    compare = elementwise.Compare("GT" if descending else "LT", "TOTALORDER" if kind == "FLOAT" else kind)
    root = Instruction(elementwise.compare, parameters[:2], compare, Shape(element_type("pred")))
    return Computation("total_order", parameters, [*parameters, root], root)


def order_of(comparator: Computation) -> Order | None:
    """The plain order that a comparator is, if it is one."""
    return _orders.get(comparator)


@cache
def _with_passenger(comparator: Computation, dtype: Any) -> Computation:
    """The comparator for one more array, at which it does not look."""
    made, _ = comparator.copy()
    shape = Shape(element_type(dtype))
    count = len(made.parameters)
    for number in (count, count + 1):
        parameter = Instruction(movement.parameter, (), movement.Parameter(number, shape), shape)
        made.parameters.append(parameter)
        made.instructions.insert(number, parameter)
    if comparator in _orders:
        _orders[made] = _orders[comparator]
    return made


# --- rules ------------------------------------------------------------------------------------------------------------


def _sort_shape(*operands: AnyShape, dimensions: Ints, to_apply: Computation, is_stable: bool = True) -> AnyShape:
    if not operands:
        raise ShapeError("sort: there must be at least one array, but got none.")
    arrays = [movement.array_operand("sort", x) for x in operands]
    first = arrays[0]
    if len(dimensions) != 1:
        raise ShapeError(f"sort: dimensions must be one, but got {dimensions}.")
    movement.check_dimensions("sort", "dimensions", dimensions, first.rank)
    for x in arrays:
        if x.dimensions != first.dimensions:
            raise ShapeError(f"sort: the operands must have the same dimensions, but got {first} and {x}.")
    scalars: list[AnyShape] = [Shape(x.element_type) for x in arrays for _ in (0, 1)]
    if to_apply.parameter_shapes != scalars or to_apply.root.shape != Shape(element_type("pred")):
        got = f"{to_apply.parameter_shapes} -> {to_apply.root.shape}"
        raise ShapeError(f"sort: the comparator must map {scalars} to pred[], but got {got}.")
    return first if len(arrays) == 1 else TupleShape(tuple(arrays))


def _sort_evaluate(
    first: Array, *others: Array, dimensions: Ints, to_apply: Computation, is_stable: bool = True
) -> Any:
    operands = (first, *others)
    axis = dimensions[0]
    order = order_of(to_apply)
    if order is None:
        places = _network(operands, axis, to_apply)
    elif not others and not order.descending and element_type(first.dtype).kind != "complex":
        return _plain_sort(first, axis)
    else:
        places = _argument_sort(operands[: order.keys], axis, order.descending)
    results = tuple(np.take_along_axis(x, places, axis) for x in operands)
    return results if others else results[0]


def _plain_sort(x: Array, axis: int) -> Array:
    """By NumPy's fastest sort, which does not keep the order of equal elements. Of those that are equal and yet differ,
    zeros and NaNs, there are as many in a sorted line as before: they go there in their order."""
    lines = np.ascontiguousarray(_sortable(x).swapaxes(axis, -1))
    found = np.sort(lines, -1)
    if found.dtype.kind == "f":
        found[found == 0] = lines[lines == 0]
        found[found != found] = lines[lines != lines]
    return found.swapaxes(axis, -1).astype(x.dtype, copy=False)


def _sortable(x: Array) -> Array:
    """The values in a type that NumPy sorts."""
    kind = element_type(x.dtype)
    if kind.kind == "float" and kind.bits < 32:
        return x.astype(np.float32)
    return x.astype(np.int32) if kind.bits < 8 else x


def _argument_sort(keys: Sequence[Array], axis: int, descending: bool) -> Array:
    """Where the elements of the sorted arrays come from: sorted stably by each key, the last key first."""
    places: Array | None = None
    for key in reversed([part for k in keys for part in _parts(k)]):
        current = key if places is None else np.take_along_axis(key, places, axis)
        # The last of equal elements first, in a reversed array: then reversing the result keeps their order.
        step = np.flip(np.argsort(np.flip(current, axis), axis, kind="stable"), axis) if descending else None
        step = np.argsort(current, axis, kind="stable") if step is None else current.shape[axis] - 1 - step
        places = step if places is None else np.take_along_axis(places, step, axis)
    assert places is not None
    return places


def _parts(key: Array) -> list[Array]:
    return [key.real, key.imag] if key.dtype.kind == "c" else [_sortable(key)]


def _network(operands: Sequence[Array], axis: int, comparator: Computation) -> Array:
    """Where the elements come from, for any comparator: a sorting network, each of whose steps is one call of it.

    Equal elements stay in order, since places break ties. Source: K. E. Batcher, "Sorting networks and their
    applications" (1968): bitonic sort.
    """
    length = operands[0].shape[axis]
    width = 1 << max(length - 1, 0).bit_length()
    rows = [np.moveaxis(x, axis, 0) for x in operands]
    outer = rows[0].shape[1:]
    places = np.broadcast_to(np.arange(width).reshape(-1, *[1] * len(outer)), (width, *outer)).copy()
    if length == 0:
        return np.moveaxis(places[:0], 0, axis)
    number = np.arange(width)
    block = 2
    while block <= width:
        distance = block // 2
        while distance:
            low = number[(number & distance) == 0]
            high = low | distance
            a, b = places[low], places[high]
            after = _comes_after(rows, a, b, length, comparator)
            ascending = ((low & block) == 0).reshape(-1, *[1] * len(outer))
            swap = after == ascending
            places[low], places[high] = np.where(swap, b, a), np.where(swap, a, b)
            distance //= 2
        block *= 2
    return np.moveaxis(places[:length], 0, axis)


def _comes_after(rows: Sequence[Array], a: Array, b: Array, length: int, comparator: Computation) -> Array:
    """Whether the elements from places a come after those from b; places past the end come last."""
    inside = [np.minimum(p, length - 1) for p in (a, b)]
    x, y = ([np.take_along_axis(row, p, 0) for row in rows] for p in inside)
    first, second = (
        calls.evaluate_elements(comparator, [v for pair in pairs for v in pair])[0]
        for pairs in (zip(x, y, strict=True), zip(y, x, strict=True))
    )
    by_value = second | (~first & (a > b))
    beyond = (a >= length) | (b >= length)
    return np.where(beyond, a > b, by_value)


def _sorted_with_places(operands: tuple[Value, ...], sort_attributes: Sort) -> tuple[tuple[Value, ...], Value]:
    """The sorted arrays, and where their elements come from."""
    x = operands[0]
    axis = sort_attributes.dimensions[0]
    number = movement.iota(shape=Shape(element_type(np.int32), x.shape), iota_dimension=axis)
    carried = sort_attributes._replace(to_apply=_with_passenger(sort_attributes.to_apply, np.dtype(np.int32)))
    *results, places = sort(*operands, number, **carried._asdict())
    return tuple(results), places


def _sort_jvp(tangents: tuple[Cotangent, ...], ans: Any, *operands: Value, **attributes: Any) -> Any:
    given = Sort(**attributes)
    _, places = _sorted_with_places(operands, given)
    moved = [None if t is None else indexing.take_along(t, places, given.dimensions[0]) for t in tangents]
    return moved[0] if len(operands) == 1 else tuple(moved)


def _sort_vjp(g: Any, ans: Any, *operands: Value, **attributes: Any) -> list[Cotangent]:
    return _back(g, operands, _sorted_with_places(operands, Sort(**attributes))[1], Sort(**attributes).dimensions[0])


def _back(g: Any, operands: tuple[Value, ...], places: Value, axis: int) -> list[Cotangent]:
    """The inverse of a permutation is what sorts it."""
    cotangents = (g,) if len(operands) == 1 else g
    int32 = np.dtype(np.int32)
    number = movement.iota(shape=Shape(element_type(np.int32), places.shape), iota_dimension=axis)
    by_place = order_computation((int32, int32))
    _, inverse = sort(places, number, dimensions=(axis,), to_apply=by_place, is_stable=True)
    return [
        indexing.take_along(c, inverse, axis) if element_type(x.dtype).is_inexact else None
        for c, x in zip(cotangents, operands, strict=True)
    ]


def _sort_residuals(*operands: Value, **attributes: Any) -> tuple[Any, Any]:
    results, places = _sorted_with_places(operands, Sort(**attributes))
    axis = Sort(**attributes).dimensions[0]
    return results[0] if len(operands) == 1 else results, lambda g: _back(g, operands, places, axis)


def _sort_batch(
    size: int, operands: tuple[Value, ...], axes: tuple[int | None, ...], *, dimensions: Ints, **attributes: Any
) -> tuple[Any, Any]:
    aligned = [movement.align_axis(x, a, 0, size) for x, a in zip(operands, axes, strict=True)]
    result = sort(*aligned, dimensions=(dimensions[0] + 1,), **attributes)
    return result, (0,) * len(operands) if len(operands) > 1 else 0


def _sort_samples(random: np.random.Generator) -> Iterator[Sample]:
    bf16 = element_type("bf16").dtype
    for dtype in (np.float32, np.int32, np.uint8, np.bool_, np.complex64, bf16):
        for shape, axis in (((5,), 0), ((3, 4), 1), ((4, 2), 0), ((0, 2), 0)):
            for descending in (False, True):
                x = elementwise.sample_array(random, dtype, shape, -3, 3)
                comparator = order_computation((x.dtype,), 1, descending)
                yield Sample((x,), Sort((axis,), comparator)._asdict())
    keys = np.array([3, 1, 3, 1, 2], np.int32)
    x = movement.sample_values((5,))
    for count in (1, 2):
        yield Sample((keys, x), Sort((0,), order_computation((keys.dtype, x.dtype), count))._asdict())
    yield Sample((x,), Sort((0,), by_magnitude(x.dtype))._asdict())
    special = np.array([np.nan, 1, -0.0, np.inf, 0.0, -np.inf, np.nan, -1], np.float32)
    yield Sample((special,), Sort((0,), order_computation((special.dtype,)))._asdict())


def by_magnitude(dtype: Any) -> Computation:
    """A comparator that is not one of the plain orders: for samples and tests."""
    shape = Shape(element_type(dtype))
    x, y = (Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k in (0, 1))
    sizes = [Instruction(elementwise.abs_, (v,), elementwise.abs_.attributes(), shape) for v in (x, y)]
    kind = elementwise.Compare("LT", elementwise.comparison_type(dtype))
    root = Instruction(elementwise.compare, sizes, kind, Shape(element_type("pred")))
    return Computation("by_magnitude", [x, y], [x, y, *sizes, root], root)


sort = Op(
    "sort",
    sharding=lambda *operands, dimensions, **attributes: but_for(
        dimensions, operands[0].rank, len(operands), len(operands)
    ),
    attributes=Sort,
    shape=_sort_shape,
    evaluate=_sort_evaluate,
    derivative=Rules(_sort_jvp, _sort_vjp, _sort_residuals),
    batch=_sort_batch,
    samples=_sort_samples,
)


# --- topk -------------------------------------------------------------------------------------------------------------


class TopK(NamedTuple):
    k: int
    largest: bool = True


def _topk_shape(x: AnyShape, *, k: int, largest: bool = True) -> TupleShape:
    shape = movement.array_operand("topk", x)
    if shape.element_type.kind == "complex":
        raise DTypeError(f"topk: the element type must have an order, but got {shape}; take the absolute values, say.")
    if not shape.rank:
        raise ShapeError(f"topk: the operand must have a dimension, but got {shape}.")
    if not 0 <= k <= shape.dimensions[-1]:
        raise ShapeError(f"topk: k must be from 0 to the size of the last dimension of {shape}, but got {k}.")
    values = shape.with_dimensions((*shape.dimensions[:-1], k))
    return TupleShape((values, Shape(element_type(np.int32), values.dimensions)))


def _topk_evaluate(x: Array, *, k: int, largest: bool = True) -> tuple[Array, Array]:
    keys = _order_keys(x)
    keys = ~keys if largest else keys
    places = _first_places(keys, k)
    order = np.argsort(np.take_along_axis(keys, places, -1), -1, kind="stable")
    places = np.take_along_axis(places, order, -1)
    return np.take_along_axis(x, places, -1), places.astype(np.int32)


def _first_places(keys: Array, k: int) -> Array:
    """Where each line has its k smallest keys, from the left: of those equal to the last of them the first ones."""
    if not 0 < k < keys.shape[-1]:
        return np.broadcast_to(np.arange(k), (*keys.shape[:-1], k))
    last = np.partition(keys, k - 1, -1)[..., k - 1 : k]
    chosen = keys <= last
    excess = np.count_nonzero(chosen, -1, keepdims=True) - k
    if excess.any():
        equal = keys == last
        kept = np.count_nonzero(equal, -1, keepdims=True) - excess
        chosen &= ~equal | (np.cumsum(equal, -1) <= kept)
    return np.nonzero(chosen)[-1].reshape(*keys.shape[:-1], k)


def _order_keys(x: Array) -> Array:
    """Unsigned integers in the total order of the elements."""
    wide = _sortable(x)
    if wide.dtype.kind in "ub":
        return wide.astype(np.uint8) if wide.dtype.kind == "b" else wide
    bits = np.ascontiguousarray(wide).view(f"u{wide.dtype.itemsize}")
    sign = bits.dtype.type(1 << (8 * wide.dtype.itemsize - 1))
    return bits ^ np.where((bits & sign != 0) & (wide.dtype.kind == "f"), ~bits.dtype.type(0), sign)


def _topk_jvp(tangents: tuple[Cotangent, ...], ans: Any, x: Value, **attributes: Any) -> Any:
    (t,) = tangents
    return None if t is None else indexing.take_along(t, ans[1], x.ndim - 1), None


def _topk_vjp(g: Any, ans: Any, x: Value, **attributes: Any) -> list[Cotangent]:
    return [None if g[0] is None else indexing.add_along(g[0], x, ans[1], x.ndim - 1)]


def _topk_batch(size: int, operands: tuple[Value], axes: tuple[int], **attributes: Any) -> tuple[Any, Any]:
    return topk(movement.move_axis(operands[0], axes[0], 0), **attributes), (0, 0)


def _topk_samples(random: np.random.Generator) -> Iterator[Sample]:
    for dtype in (np.float32, np.float64, np.int8, np.uint32, np.int64, np.bool_, element_type("bf16").dtype):
        for shape, k in (((5,), 2), ((3, 4), 4), ((2, 0), 0), ((12,), 3)):
            yield Sample((elementwise.sample_array(random, dtype, shape, -3, 3),), {"k": k, "largest": k != 3})
    special = np.array([np.nan, 1, -0.0, np.inf, 0.0, -np.inf, -np.nan, -1, 1, -0.0], np.float32)
    yield Sample((special,), {"k": 9, "largest": True})


topk = Op(
    "topk",
    sharding=lambda x, **attributes: batches((x,), (1,), (1, 1)),
    attributes=TopK,
    shape=_topk_shape,
    evaluate=_topk_evaluate,
    derivative=Rules(_topk_jvp, _topk_vjp),
    batch=_topk_batch,
    samples=_topk_samples,
)
