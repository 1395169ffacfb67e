"""Collective operations: what replicas of one program compute together.

Each talks over one axis: that of the program's replicas, or a named axis of `vmap` (`replica_groups`). The batch rule
for that axis, whose name is then `OWN`, is what the operation means: there lanes are a dimension of the
operand. Mapped over any other axis they are operations like others. By itself an operation is that of one replica.

Derivatives are those of all replicas together: what one hands to others comes back as the sum of their cotangents.

Sources: the sections of the XLA documents named after each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.distributed.replica_groups import (
    REPLICAS,
    GroupMode,
    Groups,
    all_lanes,
    by_axis,
    by_group,
    by_lane,
    check_alone,
    check_groups,
    group_mode,
    group_of,
    rows,
)
from tinyxla.ops.movement import array_operand, check_dimensions
from tinyxla.ops.op import (
    OWN,
    Axes,
    ByAttributes,
    Decomposition,
    Derivative,
    Ints,
    Linear,
    NotDifferentiable,
    Op,
    Rules,
    Sample,
    Value,
    Zero,
    ops,
)
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

OneShape = Callable[..., Shape]  # of one operand's shape and the attributes
OneRule = Callable[..., tuple[Value, int | None]]  # size, operand, its axis and the attributes to a result and its axis


# --- operations on each of several arrays -----------------------------------------------------------------------------


def _as_result(parts: Sequence[Any]) -> Any:
    """One result, or the tuple of several."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def shape_of_each(name: str, one: OneShape) -> Callable[..., AnyShape]:
    def shape(*operands: AnyShape, **attributes: Any) -> AnyShape:
        if not operands:
            raise ShapeError(f"{name}: there must be at least one operand.")
        found = [one(array_operand(name, x), **attributes) for x in operands]
        return found[0] if len(found) == 1 else TupleShape(tuple(found))

    return shape


def batch_of_each(own: OneRule, other: OneRule) -> Callable[..., Any]:
    """The batch rule: `own` for the axis that the operation talks over, `other` for any other axis."""

    def batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> Any:
        rule = own if attributes["axis_name"] is OWN else other
        pairs = [rule(size, x, axis, **attributes) for x, axis in zip(operands, axes, strict=True)]
        return _as_result([x for x, _ in pairs]), _as_result([axis for _, axis in pairs])

    return batch


def same_for_all(op: Callable[[], Op]) -> OneRule:
    """The rule for another axis of an operation that is the same for all elements."""

    def rule(size: int, x: Value, axis: int | None, **attributes: Any) -> tuple[Value, int | None]:
        return op()(x, **attributes), axis

    return rule


def alone(name: str, one: Callable[..., Any]) -> Callable[..., Any]:
    """The value for the one replica of a program that is run by itself, of arrays or of any values; among processes,
    that for this process."""

    def evaluate(
        *operands: Any, axis_name: Hashable, replica_groups: Groups = (), channel_id: Any = None, **attributes: Any
    ) -> Any:
        check_alone(name, axis_name, replica_groups)
        return _as_result([one(x, **attributes) for x in operands])

    return by_axis(name, evaluate)


def of_one_shard(name: str) -> Callable[..., Any]:
    """`alone` for an operation whose `shard_count` must be that of the one replica."""

    def one(x: Any, *, shard_count: int, **attributes: Any) -> Any:
        if shard_count != 1:
            raise AttributeValueError(
                f"{name}: shard_count must be 1, the number of replicas when a computation is called, but is "
                f"{shard_count}; run several with execute_replicated."
            )
        return x

    return alone(name, one)


def transposed(transpose: Callable[..., Value]) -> Linear:
    """Linear in each operand; `transpose(g, x, **attributes)` is the cotangent of one."""

    def each(g: Any, *operands: Value, **attributes: Any) -> tuple[Value | None, ...]:
        cotangents = g if isinstance(g, tuple) else (g,)
        return tuple(
            None if c is None else transpose(c, x, **attributes) for c, x in zip(cotangents, operands, strict=True)
        )

    return Linear(each)


def samples(*shapes: Ints, **attributes: Any) -> Callable[[np.random.Generator], Iterator[Sample]]:
    def samples(random: np.random.Generator) -> Iterator[Sample]:
        pairs = [(shape, dtype) for shape in shapes for dtype in (np.float32, np.int32)]
        for shape, dtype in pairs:
            yield Sample((movement.sample_values(shape, dtype),), given(dtype))
        x = movement.sample_values(*pairs[-1])
        yield Sample((x, x + 1), given(pairs[-1][1]))

    def given(dtype: Any) -> dict[str, Any]:
        return {key: make(dtype) if callable(make) else make for key, make in attributes.items()}

    return samples


def sum_of(dtype: Any) -> Computation:
    return reduction.scalar_computation("add", dtype)


# --- AllReduce --------------------------------------------------------------------------------------------------------


class AllReduce(NamedTuple):
    to_apply: Computation
    replica_groups: Groups = ()
    channel_id: int | None = None
    use_global_device_ids: bool = False
    axis_name: Hashable = REPLICAS


def _check_reduction(name: str, operands: Sequence[AnyShape], to_apply: Computation) -> None:
    kinds = list(dict.fromkeys(array_operand(name, x).element_type for x in operands))
    if len(kinds) != 1:
        raise DTypeError(f"{name}: the operands must be arrays of one element type, but are {list(operands)}.")
    if kinds[0].kind == "token":
        raise DTypeError(f"{name}: the operand must be an array of numbers, but is a token.")
    scalar = Shape(kinds[0])
    reduction.check_computation(f"{name}: to_apply", to_apply, [scalar, scalar], [scalar])


def _all_reduce_shape(
    *operands: AnyShape,
    to_apply: Computation,
    replica_groups: Groups,
    channel_id: int | None,
    use_global_device_ids: bool,
    axis_name: Hashable,
) -> AnyShape:
    if not operands:
        raise ShapeError("all-reduce: there must be at least one operand.")
    _check_reduction("all-reduce", operands, to_apply)
    check_groups("all-reduce", replica_groups, equal_sizes=False)
    group_mode("all-reduce", channel_id, use_global_device_ids)  # checks these two
    arrays = [array_operand("all-reduce", x) for x in operands]
    return arrays[0] if len(arrays) == 1 else TupleShape(tuple(arrays))


def fold(x: Value, to_apply: Computation) -> Value:
    """The rows of an array combined, in order, by an associative computation of two scalars."""
    op = reduction.monoid(to_apply)
    if op is not None:
        identity = movement.full(reduction.identity_element(op, x.dtype), x.dtype)
        return reduction.reduce(x, identity, dimensions=(0,), to_apply=to_apply)
    first = movement.reshape_to(movement.slice_axis(x, 0, 0, 1), x.shape[1:])
    if x.shape[0] == 1:
        return first
    paired = x.shape[0] - x.shape[0] % 2
    left, right = (movement.slice_axis(x, 0, k, paired, 2) for k in (0, 1))
    (combined,) = reduction.combine_values(to_apply, [left], [right])
    if paired < x.shape[0]:
        combined = movement.concatenate(combined, movement.slice_axis(x, 0, paired, x.shape[0]), dimension=0)
    return fold(combined, to_apply)


def fold_groups(x: Value, groups: Groups, to_apply: Computation) -> Value:
    """A row for each group of rows: what its rows combine to."""
    if len({len(group) for group in groups}) == 1:
        grouped = by_group(x, groups)
        return fold(movement.move_axis(grouped, 1, 0), to_apply)
    found = [movement.reshape_to(fold(rows(x, group), to_apply), (1, *x.shape[1:])) for group in groups]
    return movement.concatenate(*found, dimension=0)


def _all_reduce_own(
    size: int, x: Value, axis: int | None, *, to_apply: Computation, replica_groups: Groups, **others: Any
) -> tuple[Value, int | None]:
    groups = all_lanes("all-reduce", replica_groups, size)
    op = reduction.monoid(to_apply)
    if axis is None and op in ("maximum", "minimum", "and", "or"):
        return x, None
    if axis is None and op == "add" and len({len(group) for group in groups}) == 1:
        return elementwise.mul(x, movement.full(len(groups[0]), x.dtype, x.shape)), None
    if len(groups) == 1 and op is not None and axis is not None:
        identity = movement.full(reduction.identity_element(op, x.dtype), x.dtype)
        return reduction.reduce(x, identity, dimensions=(axis,), to_apply=to_apply), None
    x = movement.align_axis(x, axis, 0, size)
    if not size:
        return x, 0
    folded = fold_groups(x, groups, to_apply)
    if len(groups) == 1:
        return movement.reshape_to(folded, x.shape[1:]), None
    return rows(folded, group_of(groups, size)), 0


def _hits(x: Value, extremum: Value, attributes: dict[str, Any]) -> tuple[Value, Value]:
    """Which elements are the extremum of their group, and how many share its derivative; if it is NaN all do, and their
    number is NaN."""
    is_nan = elementwise.ne(extremum, extremum)
    hits = elementwise.or_(elementwise.eq(x, extremum), is_nan)
    count = _all_reduce_sum(elementwise.convert(hits, new_element_type=element_type(x.dtype)), attributes)
    return hits, elementwise.select(is_nan, extremum, count)


def _all_reduce_sum(x: Value, attributes: dict[str, Any]) -> Value:
    return all_reduce(x, **{**attributes, "to_apply": sum_of(x.dtype)})


def _extremum_jvp(tangents: Sequence[Value | None], ans: Any, *operands: Value, **attributes: Any) -> Any:
    found = ans if isinstance(ans, tuple) else (ans,)
    parts: list[Value] = []
    for t, a, x in zip(tangents, found, operands, strict=True):
        zero = elementwise.zeros_like(x)
        if t is None:
            parts.append(zero)
            continue
        hits, count = _hits(x, a, attributes)
        total = _all_reduce_sum(elementwise.select(hits, t, zero), attributes)
        parts.append(elementwise.chain_div(total, count))
    return _as_result(parts)


def _extremum_vjp(g: Any, ans: Any, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
    cotangents, found = (x if isinstance(x, tuple) else (x,) for x in (g, ans))
    parts: list[Value] = []
    for c, a, x in zip(cotangents, found, operands, strict=True):
        hits, count = _hits(x, a, attributes)
        share = elementwise.chain_div(_all_reduce_sum(c, attributes), count)
        parts.append(elementwise.select(hits, share, elementwise.zeros_like(x)))
    return tuple(parts)


def _all_reduce_by_gathering(*operands: Value, to_apply: Computation, replica_groups: Groups, **others: Any) -> Any:
    count = len(replica_groups[0])
    gathered = [
        all_gather(
            movement.reshape_to(x, (1, *x.shape)),
            all_gather_dimension=0,
            shard_count=count,
            replica_groups=replica_groups,
            **others,
        )
        for x in operands
    ]
    return _as_result([fold(x, to_apply) for x in gathered])


def _all_reduce_derivative(*, to_apply: Computation, replica_groups: Groups, **others: Any) -> Derivative:
    op = reduction.monoid(to_apply)
    if op == "add":
        return transposed(lambda g, x, **attributes: all_reduce(g, **attributes))
    if op in ("maximum", "minimum"):
        return Rules(_extremum_jvp, _extremum_vjp)
    if op in ("and", "or", "xor"):
        return Zero()
    if not replica_groups or len({len(group) for group in replica_groups}) > 1:
        return NotDifferentiable(
            f"the derivative of all-reduce with {to_apply.name} depends on the number of replicas; give replica_groups "
            "of one size"
        )
    return Decomposition(_all_reduce_by_gathering)


all_reduce = Op(
    "all-reduce",
    attributes=AllReduce,
    fill_defaults=True,
    shape=_all_reduce_shape,
    evaluate=alone("all-reduce", lambda x, **attributes: x),
    derivative=ByAttributes(_all_reduce_derivative),
    batch=batch_of_each(_all_reduce_own, same_for_all(lambda: all_reduce)),
    samples=lambda random: (
        sample
        for op in ("add", "maximum", "multiply")
        for sample in samples(
            (),
            (2, 3),
            (0, 2),
            replica_groups=((0,),),
            to_apply=lambda dtype, op=op: reduction.scalar_computation(op, dtype),
        )(random)
    ),
    expand=alone("all-reduce", lambda x, **attributes: x),
)


# --- AllGather --------------------------------------------------------------------------------------------------------


class AllGather(NamedTuple):
    all_gather_dimension: int
    shard_count: int  # the size of each group
    replica_groups: Groups = ()
    channel_id: int | None = None
    use_global_device_ids: bool = False
    axis_name: Hashable = REPLICAS


def _check_shards(
    name: str, shard_count: int, groups: Groups, channel_id: int | None, use_global_device_ids: bool
) -> None:
    check_groups(name, groups, equal_sizes=True)
    mode = group_mode(name, channel_id, use_global_device_ids)
    if mode is GroupMode.CROSS_REPLICA_AND_PARTITION and groups and shard_count > 0:
        fits = shard_count % len(groups[0]) == 0  # all partitions of these replicas
    else:
        fits = shard_count >= 0 and (not groups or len(groups[0]) == shard_count)
    if not fits:
        size = f"{len(groups[0])}, the size of each of {groups}" if groups else "the number of replicas"
        raise AttributeValueError(f"{name}: shard_count must be {size}, but is {shard_count}.")


def _resized(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = shape.dimensions
    return shape.with_dimensions((*sizes[:dimension], size, *sizes[dimension + 1 :]))


def _all_gather_shape(
    x: Shape,
    *,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups,
    channel_id: int | None,
    use_global_device_ids: bool,
    axis_name: Hashable,
) -> Shape:
    check_dimensions("all-gather", "all_gather_dimension", (all_gather_dimension,), x.rank)
    _check_shards("all-gather", shard_count, replica_groups, channel_id, use_global_device_ids)
    return _resized(x, all_gather_dimension, x.dimensions[all_gather_dimension] * shard_count)


def _own_groups(name: str, groups: Groups, size: int, shard_count: int) -> Groups:
    """The groups of an axis of this size, each of `shard_count` lanes."""
    found = all_lanes(name, groups, size)
    if len(found[0]) != shard_count:
        raise AttributeValueError(
            f"{name}: there must be {shard_count} replicas in a group, as shard_count says, but there are "
            f"{len(found[0])}; give replica_groups or another shard_count."
        )
    return found


def merged(x: Value, dimension: int) -> Value:
    """A dimension and the one after it as one."""
    before, after = x.shape[:dimension], x.shape[dimension + 2 :]
    return movement.reshape_to(x, (*before, x.shape[dimension] * x.shape[dimension + 1], *after))


def divided(x: Value, dimension: int, parts: int) -> Value:
    """A dimension as two: the part, and the position in it."""
    sizes = x.shape
    each = sizes[dimension] // max(parts, 1)
    return movement.reshape_to(x, (*sizes[:dimension], parts, each, *sizes[dimension + 1 :]))


def _all_gather_own(
    size: int,
    x: Value,
    axis: int | None,
    *,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups,
    **others: Any,
) -> tuple[Value, int | None]:
    groups = _own_groups("all-gather", replica_groups, size, shard_count)
    if len(groups) == 1 and groups[0] == tuple(range(size)):
        return merged(movement.align_axis(x, axis, all_gather_dimension, size), all_gather_dimension), None
    grouped = by_group(movement.align_axis(x, axis, 0, size), groups)
    gathered = merged(movement.move_axis(grouped, 1, all_gather_dimension + 1), all_gather_dimension + 1)
    if len(groups) == 1:
        return movement.reshape_to(gathered, gathered.shape[1:]), None
    return rows(gathered, group_of(groups, size)), 0


def _all_gather_other(
    size: int, x: Value, axis: int | None, *, all_gather_dimension: int, **others: Any
) -> tuple[Value, int | None]:
    if axis is None:
        return all_gather(x, all_gather_dimension=all_gather_dimension, **others), None
    at = all_gather_dimension + (axis <= all_gather_dimension)
    return all_gather(x, all_gather_dimension=at, **others), axis


def _all_gather_transpose(g: Value, x: Value, *, all_gather_dimension: int, **others: Any) -> Value:
    return reduce_scatter(g, to_apply=sum_of(g.dtype), scatter_dimension=all_gather_dimension, **others)


all_gather = Op(
    "all-gather",
    attributes=AllGather,
    fill_defaults=True,
    shape=shape_of_each("all-gather", _all_gather_shape),
    evaluate=of_one_shard("all-gather"),
    derivative=transposed(_all_gather_transpose),
    batch=batch_of_each(_all_gather_own, _all_gather_other),
    samples=samples((3,), (2, 3), (2, 0), all_gather_dimension=0, shard_count=1),
    expand=of_one_shard("all-gather"),
)


# --- ReduceScatter ----------------------------------------------------------------------------------------------------


class ReduceScatter(NamedTuple):
    to_apply: Computation
    scatter_dimension: int
    shard_count: int  # the size of each group
    replica_groups: Groups = ()
    channel_id: int | None = None
    use_global_device_ids: bool = False
    axis_name: Hashable = REPLICAS


def _reduce_scatter_shape(
    x: Shape,
    *,
    to_apply: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups,
    channel_id: int | None,
    use_global_device_ids: bool,
    axis_name: Hashable,
) -> Shape:
    check_dimensions("reduce-scatter", "scatter_dimension", (scatter_dimension,), x.rank)
    _check_shards("reduce-scatter", shard_count, replica_groups, channel_id, use_global_device_ids)
    _check_reduction("reduce-scatter", (x,), to_apply)
    length = x.dimensions[scatter_dimension]
    if not shard_count or length % shard_count:
        raise ShapeError(
            f"reduce-scatter: the size of dimension {scatter_dimension} of {x} must be a multiple of shard_count, "
            f"{shard_count}; pad it."
        )
    return _resized(x, scatter_dimension, length // shard_count)


def _reduce_scatter_own(
    size: int,
    x: Value,
    axis: int | None,
    *,
    to_apply: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups,
    **others: Any,
) -> tuple[Value, int | None]:
    groups = _own_groups("reduce-scatter", replica_groups, size, shard_count)
    folded = fold_groups(movement.align_axis(x, axis, 0, size), groups, to_apply)
    parts = movement.move_axis(divided(folded, scatter_dimension + 1, shard_count), scatter_dimension + 1, 1)
    return by_lane(parts, groups), 0


def _reduce_scatter_other(
    size: int, x: Value, axis: int | None, *, scatter_dimension: int, **others: Any
) -> tuple[Value, int | None]:
    if axis is None:
        return reduce_scatter(x, scatter_dimension=scatter_dimension, **others), None
    at = scatter_dimension + (axis <= scatter_dimension)
    return reduce_scatter(x, scatter_dimension=at, **others), axis


def _reduce_scatter_transpose(
    g: Value, x: Value, *, to_apply: Computation, scatter_dimension: int, **others: Any
) -> Value:
    return all_gather(g, all_gather_dimension=scatter_dimension, **others)


def _reduce_scatter_by_exchange(
    *operands: Value,
    to_apply: Computation,
    scatter_dimension: int,
    shard_count: int,
    use_global_device_ids: bool,
    **others: Any,
) -> Any:
    """Each replica is given its part of each other's array, and combines these."""
    found: list[Value] = []
    for x in operands:
        exchanged = ops["all-to-all"](x, dimensions=(scatter_dimension,), **others)
        parts = divided(exchanged, scatter_dimension, shard_count)
        found.append(fold(movement.move_axis(parts, scatter_dimension, 0), to_apply))
    return _as_result(found)


def _reduce_scatter_derivative(*, to_apply: Computation, channel_id: int | None, **others: Any) -> Derivative:
    if reduction.monoid(to_apply) == "add":
        return transposed(_reduce_scatter_transpose)
    if channel_id is not None:
        return NotDifferentiable(f"reduce-scatter with {to_apply.name} has a derivative if it has no channel_id")
    return Decomposition(_reduce_scatter_by_exchange)


reduce_scatter = Op(
    "reduce-scatter",
    attributes=ReduceScatter,
    fill_defaults=True,
    shape=shape_of_each("reduce-scatter", _reduce_scatter_shape),
    evaluate=of_one_shard("reduce-scatter"),
    derivative=ByAttributes(_reduce_scatter_derivative),
    batch=batch_of_each(_reduce_scatter_own, _reduce_scatter_other),
    samples=lambda random: (
        sample
        for op in ("add", "maximum")
        for sample in samples(
            (3,),
            (2, 3),
            (2, 0),
            scatter_dimension=0,
            shard_count=1,
            to_apply=lambda dtype, op=op: reduction.scalar_computation(op, dtype),
        )(random)
    ),
    expand=of_one_shard("reduce-scatter"),
)
