"""Exchanges between replicas: AllToAll, CollectivePermute, CollectiveBroadcast, RaggedAllToAll; ReplicaId, PartitionId.

`tinyxla.ops.distributed.collectives` has the other collective operations, and says what all have in common.

Sources: the sections of the XLA documents named after each operation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.ops import elementwise, indexing, movement
from tinyxla.ops.distributed.collectives import (
    all_reduce,
    alone,
    batch_of_each,
    divided,
    merged,
    same_for_all,
    samples,
    shape_of_each,
    sum_of,
    transposed,
)
from tinyxla.ops.distributed.replica_groups import (
    PROCESSES,
    REPLICAS,
    Groups,
    Pairs,
    all_lanes,
    by_axis,
    by_group,
    by_lane,
    check_alone,
    check_groups,
    check_lanes,
    check_pairs,
    group_of,
    rows,
)
from tinyxla.ops.movement import array_operand, check_dimensions
from tinyxla.ops.op import (
    OWN,
    Axes,
    ByAttributes,
    Derivative,
    Ints,
    Linear,
    NotDifferentiable,
    Op,
    Sample,
    Value,
    Zero,
)
from tinyxla.runtime.mpi import world
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type

# --- AllToAll ---------------------------------------------------------------------------------------------------------


class AllToAll(NamedTuple):
    """Member i of a group gives its part j to member j, where it is part i. Parts are blocks along `dimensions`, which
    has one, or, if there is none, the operands, one for each member."""

    dimensions: Ints = ()
    replica_groups: Groups = ()
    channel_id: int | None = None
    axis_name: Hashable = REPLICAS


def _all_to_all_shape(*operands: AnyShape, dimensions: Ints, replica_groups: Groups, **others: Any) -> AnyShape:
    arrays = [array_operand("all-to-all", x) for x in operands]
    check_groups("all-to-all", replica_groups, equal_sizes=True)
    count = len(replica_groups[0]) if replica_groups else None
    if dimensions:
        if len(arrays) != 1 or len(dimensions) != 1:
            raise ShapeError(
                f"all-to-all: one array is split along one dimension, but there are {len(arrays)} operands and the "
                f"dimensions {dimensions}."
            )
        check_dimensions("all-to-all", "dimensions", dimensions, arrays[0].rank)
        if count is not None and arrays[0].dimensions[dimensions[0]] % count:
            raise ShapeError(
                f"all-to-all: the size of dimension {dimensions[0]} of {arrays[0]} must be a multiple of the {count} "
                "replicas of a group; pad it."
            )
        return arrays[0]
    if not arrays or any(x != arrays[0] for x in arrays) or (count is not None and len(arrays) != count):
        wanted = "for each replica of a group" if count is None else f"for each of the {count} replicas of a group"
        raise ShapeError(f"all-to-all: there must be an operand {wanted}, all of one shape, but got {list(operands)}.")
    return TupleShape(tuple(arrays))


def _all_to_all_own(
    size: int, x: Value, axis: int | None, *, dimensions: Ints, replica_groups: Groups, **others: Any
) -> tuple[Value, int | None]:
    groups = all_lanes("all-to-all", replica_groups, size)
    (dimension,), count = dimensions, len(groups[0])
    if count == 0 or (x.shape[dimension + (axis is not None and axis <= dimension)]) % count:
        raise ShapeError(
            f"all-to-all: the size of dimension {dimension}, which is split, must be a multiple of the {count} "
            f"replicas of a group, but the operand is {Shape.of(x)} with all replicas; pad it."
        )
    x = movement.align_axis(x, axis, 0, size)
    grouped = divided(by_group(x, groups), dimension + 2, count)
    others_ = [d for d in range(2, grouped.ndim) if d != dimension + 2]
    others_.insert(dimension, 1)
    exchanged = movement.transpose_to(grouped, (0, dimension + 2, *others_))
    return by_lane(merged(exchanged, dimension + 2), groups), 0


def _all_to_all_other(
    size: int, x: Value, axis: int | None, *, dimensions: Ints, **others: Any
) -> tuple[Value, int | None]:
    if axis is None:
        return all_to_all(x, dimensions=dimensions, **others), None
    at = dimensions[0] + (axis <= dimensions[0])
    return all_to_all(x, dimensions=(at,), **others), axis


_all_to_all_array_batch = batch_of_each(_all_to_all_own, _all_to_all_other)


def _all_to_all_batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> Any:
    if attributes["dimensions"]:
        return _all_to_all_array_batch(size, operands, axes, **attributes)
    stacked = movement.concatenate(*(with_one(x, 1) for x in movement.in_front(operands, axes, size)), dimension=1)
    value, axis = _all_to_all_array_batch(size, (stacked,), (0,), **{**attributes, "dimensions": (0,)})
    value = movement.align_axis(value, axis, 0, size)
    parts = [movement.slice_axis(value, 1, k, k + 1) for k in range(len(operands))]
    return tuple(movement.reshape_to(x, (size, *x.shape[2:])) for x in parts), (0,) * len(operands)


def with_one(x: Value, dimension: int) -> Value:
    return movement.reshape_to(x, (*x.shape[:dimension], 1, *x.shape[dimension:]))


def _all_to_all_transpose(g: Any, *operands: Value, **attributes: Any) -> tuple[Value | None, ...]:
    if attributes["dimensions"]:
        return (all_to_all(g, **attributes),)
    whole = [elementwise.zeros_like(x) if c is None else c for c, x in zip(g, operands, strict=True)]
    return all_to_all(*whole, **attributes)


def _all_to_all_alone(
    *operands: Any, dimensions: Ints, replica_groups: Groups, axis_name: Hashable, **others: Any
) -> Any:
    check_alone("all-to-all", axis_name, replica_groups)
    if not dimensions and len(operands) != 1:
        raise ShapeError(
            f"all-to-all: there must be an operand for each replica, but there are {len(operands)}, and there is one "
            "replica when a computation is called; run several with execute_replicated."
        )
    return operands[0] if dimensions else operands


all_to_all = Op(
    "all-to-all",
    attributes=AllToAll,
    fill_defaults=True,
    shape=_all_to_all_shape,
    evaluate=by_axis("all-to-all", _all_to_all_alone),
    derivative=Linear(_all_to_all_transpose),
    batch=_all_to_all_batch,
    samples=lambda random: (
        Sample((movement.sample_values(shape),), {"dimensions": dimensions})
        for dimensions in ((0,), ())
        for shape in ((1, 3), (2, 2), (2, 0))
    ),
    expand=by_axis("all-to-all", _all_to_all_alone),
)


def exchange(x: Value, split_dimension: int, concat_dimension: int, split_count: int, **participants: Any) -> Value:
    """AllToAll whose parts are taken along one dimension and put together along another."""
    if split_dimension == concat_dimension:
        return all_to_all(x, dimensions=(split_dimension,), **participants)
    parts = movement.move_axis(divided(x, split_dimension, split_count), split_dimension, 0)
    given = all_to_all(parts, dimensions=(0,), **participants)
    return merged(movement.move_axis(given, 0, concat_dimension), concat_dimension)


# --- CollectivePermute and CollectiveBroadcast ------------------------------------------------------------------------


class CollectivePermute(NamedTuple):
    source_target_pairs: Pairs
    channel_id: int | None = None
    axis_name: Hashable = REPLICAS


def _permute_shape(x: Shape, *, source_target_pairs: Pairs, **others: Any) -> Shape:
    check_pairs("collective-permute", source_target_pairs)
    return x


def _permute_own(
    size: int, x: Value, axis: int | None, *, source_target_pairs: Pairs, **others: Any
) -> tuple[Value, int | None]:
    replicas = (replica for pair in source_target_pairs for replica in pair)
    check_lanes("collective-permute", "source_target_pairs", replicas, size)
    if axis is None and len(source_target_pairs) == size:
        return x, None
    if not size:
        return movement.align_axis(x, axis, 0, size), 0
    given = {target: source for source, target in source_target_pairs}
    return rows(movement.align_axis(x, axis, 0, size), [given.get(lane) for lane in range(size)]), 0


def _permute_transpose(g: Value, x: Value, *, source_target_pairs: Pairs, **others: Any) -> Value:
    return collective_permute(g, source_target_pairs=tuple((t, s) for s, t in source_target_pairs), **others)


def _permute_alone(x: Any, source_target_pairs: Pairs) -> Any:
    check_lanes("collective-permute", "source_target_pairs", (r for pair in source_target_pairs for r in pair), 1)
    if source_target_pairs:
        return x
    return np.zeros_like(x) if isinstance(x, (np.ndarray, np.generic)) else elementwise.zeros_like(x)


collective_permute = Op(
    "collective-permute",
    attributes=CollectivePermute,
    fill_defaults=True,
    shape=shape_of_each("collective-permute", _permute_shape),
    evaluate=alone("collective-permute", _permute_alone),
    derivative=transposed(_permute_transpose),
    batch=batch_of_each(_permute_own, same_for_all(lambda: collective_permute)),
    samples=lambda random: (
        sample for pairs in (((0, 0),), ()) for sample in samples((), (2, 3), (0,), source_target_pairs=pairs)(random)
    ),
    expand=alone("collective-permute", _permute_alone),
)


class CollectiveBroadcast(NamedTuple):
    replica_groups: Groups = ()
    channel_id: int | None = None
    axis_name: Hashable = REPLICAS


def _broadcast_shape(x: Shape, *, replica_groups: Groups, **others: Any) -> Shape:
    check_groups("collective-broadcast", replica_groups, equal_sizes=False)
    return x


def _broadcast_groups(groups: Groups, size: int) -> Groups:
    check_lanes("collective-broadcast", "replica_groups", (lane for group in groups for lane in group), size)
    return groups or (tuple(range(size)),)


def _broadcast_own(
    size: int, x: Value, axis: int | None, *, replica_groups: Groups, **others: Any
) -> tuple[Value, int | None]:
    groups = _broadcast_groups(replica_groups, size)
    covered = sum(map(len, groups)) == size
    if not size or (axis is None and covered):
        return x, axis
    x = movement.align_axis(x, axis, 0, size)
    if len(groups) == 1 and covered:
        return movement.reshape_to(rows(x, groups[0][:1]), x.shape[1:]), None
    source = [None if number is None else groups[number][0] for number in group_of(groups, size)]
    return rows(x, source), 0


def _broadcast_transpose(g: Value, x: Value, *, replica_groups: Groups, channel_id: int | None, **axis: Any) -> Value:
    """The first replica of a group gets the sum of the group's cotangents, the others zeros."""
    if replica_groups:
        longest = max(map(len, replica_groups))
        members = [[(group[k], group[0]) for group in replica_groups if k < len(group)] for k in range(longest)]
        given = [collective_permute(g, source_target_pairs=tuple(p), channel_id=channel_id, **axis) for p in members]
        return functools.reduce(elementwise.add, given)
    total = all_reduce(g, to_apply=sum_of(g.dtype), **axis)
    number = replica_id(**axis)
    is_first = elementwise.eq(number, elementwise.zeros_like(number))
    here = movement.broadcast(is_first, sizes=g.shape, dimensions=())
    return elementwise.select(here, total, elementwise.zeros_like(g))


def _broadcast_derivative(*, replica_groups: Groups, channel_id: int | None, axis_name: Hashable) -> Derivative:
    if channel_id is not None and not replica_groups:
        return NotDifferentiable("collective-broadcast over a channel has a derivative if replica_groups is given")
    return transposed(_broadcast_transpose)


collective_broadcast = Op(
    "collective-broadcast",
    attributes=CollectiveBroadcast,
    fill_defaults=True,
    shape=shape_of_each("collective-broadcast", _broadcast_shape),
    evaluate=alone("collective-broadcast", lambda x, **attributes: x),
    derivative=ByAttributes(_broadcast_derivative),
    batch=batch_of_each(_broadcast_own, same_for_all(lambda: collective_broadcast)),
    samples=samples((), (2, 3), (0,), replica_groups=((0,),)),
    expand=alone("collective-broadcast", lambda x, **attributes: x),
)


# --- RaggedAllToAll ---------------------------------------------------------------------------------------------------


class RaggedAllToAll(NamedTuple):
    """Rows of `input` go to members of the group: of the operands `input, output, input_offsets, send_sizes,
    output_offsets, recv_sizes` the element (or row, for several updates) i of the latter four says what is sent to
    (received from) member i. The offsets are those of the rows here, and of the rows of the result there."""

    replica_groups: Groups = ()
    channel_id: int | None = None
    axis_name: Hashable = REPLICAS


def _ragged_shape(*operands: AnyShape, replica_groups: Groups, **others: Any) -> Shape:
    name = "ragged-all-to-all"
    check_groups(name, replica_groups, equal_sizes=True)
    if len(operands) != 6:
        raise ShapeError(
            f"{name}: the operands must be input, output, input_offsets, send_sizes, output_offsets and "
            f"recv_sizes, but there are {len(operands)}."
        )
    source, target, *ragged = (array_operand(name, x) for x in operands)
    if source.rank < 1 or source.dimensions[1:] != target.dimensions[1:] or target.rank < 1:
        raise ShapeError(
            f"{name}: input and output must be alike but for their first dimension, but are {source} and {target}."
        )
    if source.element_type is not target.element_type:
        raise DTypeError(f"{name}: input and output must have one element type, but are {source} and {target}.")
    if any(x != ragged[0] for x in ragged) or ragged[0].rank not in (1, 2) or not ragged[0].element_type.is_integer:
        raise ShapeError(
            f"{name}: offsets and sizes must be integers, all of one shape [replicas] or [replicas, updates], but are "
            f"{ragged}."
        )
    if replica_groups:
        _check_updates(ragged[0].dimensions, len(replica_groups[0]))
    return target


def _check_updates(sizes: Ints, count: int) -> None:
    """As many updates for each member of a group."""
    if not count or (sizes[0] % count if len(sizes) == 1 else sizes[0] != count):
        raise ShapeError(
            f"ragged-all-to-all: offsets and sizes must have as many elements for each of the {count} replicas of a "
            f"group, but have {sizes[0]}; give one for each."
        )


_INDEX = element_type("s64")  # wide enough for an offset from any row


def _ragged_own(size: int, operands: tuple[Value, ...], axes: Axes, *, replica_groups: Groups) -> tuple[Value, int]:
    """For each member that sends: its rows where they belong in all members' results, the others' rows as they are."""
    groups = all_lanes("ragged-all-to-all", replica_groups, size)
    count = len(groups[0])
    source, target, *ragged = (by_group(x, groups) for x in movement.in_front(operands, axes, size))
    _check_updates(ragged[0].shape[2:], count)
    ragged = [movement.reshape_to(x, (*x.shape[:2], math.prod(x.shape[2:]))) for x in ragged]
    each = ragged[0].shape[2] // count
    last = source.shape[2] - 1
    if last < 0:
        return by_lane(target, groups), 0
    position = _like_rows(target, _counting(target.shape[2]), 2)
    for member in range(count):
        start, length, at = (
            elementwise.convert(
                movement.reshape_to(movement.slice_axis(x, 1, member, member + 1), (len(groups), count, each)),
                new_element_type=_INDEX,
            )
            for x in ragged[:3]
        )
        sent = movement.slice_axis(source, 1, member, member + 1)
        for k in range(each):
            first, number, place = (
                _like_rows(target, movement.reshape_to(movement.slice_axis(x, 2, k, k + 1), (len(groups), count)), 0, 1)
                for x in (start, length, at)
            )
            there = elementwise.sub(position, place)
            at_least_first = elementwise.ge(there, elementwise.zeros_like(there))
            inside = elementwise.and_(at_least_first, elementwise.lt(there, number))
            target = elementwise.select(
                _over_elements(inside, target), _rows_at(sent, elementwise.add(there, first), last), target
            )
    return by_lane(target, groups), 0


def _counting(count: int) -> Value:
    return movement.iota(shape=Shape(_INDEX, (count,)), iota_dimension=0)


def _like_rows(x: Value, given: Value, *dimensions: int) -> Value:
    return movement.broadcast(given, sizes=x.shape[:3], dimensions=dimensions)


def _over_elements(x: Value, like: Value) -> Value:
    return movement.broadcast(x, sizes=like.shape, dimensions=(0, 1, 2))


def _rows_at(x: Value, numbers: Value, last: int) -> Value:
    """Of each group's one member those rows, (group, member, row) to (group, member, row, ...)."""
    limit = movement.full(last, np.int64, numbers.shape)
    clipped = elementwise.min_(elementwise.max_(numbers, elementwise.zeros_like(numbers)), limit)
    offset = movement.broadcast(_counting(x.shape[0]), sizes=numbers.shape, dimensions=(0,))
    flat = movement.reshape_to(x, (x.shape[0] * x.shape[2], *x.shape[3:]))
    index = elementwise.add(elementwise.mul(offset, movement.full(last + 1, np.int64, numbers.shape)), clipped)
    return indexing.gather(
        flat,
        index,
        offset_dims=tuple(range(3, 3 + flat.ndim - 1)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
        index_vector_dim=3,
        slice_sizes=(1, *flat.shape[1:]),
    )


def _ragged_batch(
    size: int, operands: tuple[Value, ...], axes: Axes, *, replica_groups: Groups, axis_name: Hashable, **others: Any
) -> Any:
    if axis_name is OWN:
        return _ragged_own(size, operands, axes, replica_groups=replica_groups)
    given = {"replica_groups": replica_groups, "axis_name": axis_name, **others}
    aligned = movement.in_front(operands, axes, size)
    found = [
        ragged_all_to_all(
            *(movement.reshape_to(movement.slice_axis(x, 0, k, k + 1), x.shape[1:]) for x in aligned), **given
        )
        for k in range(size)
    ]
    if not found:
        return aligned[1], 0
    return movement.concatenate(*(with_one(x, 0) for x in found), dimension=0), 0


def _ragged_alone(*operands: Any, replica_groups: Groups, axis_name: Hashable, **others: Any) -> Any:
    check_alone("ragged-all-to-all", axis_name, replica_groups)
    source, target, start, length, at, _ = operands
    found = np.array(target)
    for first, number, place in zip(
        *(np.asarray(x, np.int64).reshape(-1).tolist() for x in (start, length, at)), strict=True
    ):
        rows_ = np.arange(len(found)) - place
        inside = (rows_ >= 0) & (rows_ < number)
        found[inside] = source[np.clip(rows_[inside] + first, 0, len(source) - 1)]
    return found


def _ragged_expand(*operands: Value, replica_groups: Groups, axis_name: Hashable, **others: Any) -> Value:
    check_alone("ragged-all-to-all", axis_name, replica_groups)
    value, _ = _ragged_own(1, operands, (None,) * 6, replica_groups=())
    return movement.reshape_to(value, value.shape[1:])


def _ragged_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape in ((5, 2), (5,)):
        source, target = movement.sample_values(shape), -movement.sample_values((6, *shape[1:]))
        yield Sample((source, target, *(np.array([n], np.int32) for n in (1, 3, 2, 3))))
    yield Sample((source, target, *(np.array([n], np.int32) for n in ((3, 0), (2, 1), (0, 4), (2, 1)))))


ragged_all_to_all = Op(
    "ragged-all-to-all",
    attributes=RaggedAllToAll,
    fill_defaults=True,
    shape=_ragged_shape,
    evaluate=by_axis("ragged-all-to-all", _ragged_alone),
    derivative=NotDifferentiable("XLA's contract gives ragged-all-to-all none; pad the rows and use all_to_all"),
    batch=_ragged_batch,
    samples=_ragged_samples,
    expand=by_axis("ragged-all-to-all", _ragged_expand),
)


# --- ReplicaId and PartitionId ----------------------------------------------------------------------------------------


class Number(NamedTuple):
    axis_name: Hashable = REPLICAS
    partition_count: int = 1  # lanes are devices, of which each replica has so many


_NUMBER = Shape(element_type("u32"))


def _number(name: str, of_device: Callable[[Value, int], Value]) -> Op:
    """The number of the replica or partition, which is `of_device(lane, partition_count)`; of a process, its rank."""

    def batch(size: int, operands: Any, axes: Axes, *, axis_name: Hashable, partition_count: int) -> Any:
        if axis_name is not OWN:
            return op(axis_name=axis_name, partition_count=partition_count), None
        lane = movement.iota(shape=_NUMBER.with_dimensions((size,)), iota_dimension=0)
        return of_device(lane, partition_count), 0

    def own(axis_name: Hashable) -> int:
        if axis_name is PROCESSES:
            return world().rank
        check_alone(name, axis_name)
        return 0

    op = Op(
        name,
        attributes=Number,
        fill_defaults=True,
        shape=lambda **attributes: _NUMBER,
        evaluate=lambda *, axis_name, partition_count: np.array(own(axis_name), np.uint32),
        derivative=Zero(),
        batch=batch,
        samples=lambda random: iter([Sample(())]),
        expand=lambda *, axis_name, partition_count: movement.full(own(axis_name), np.uint32),
    )
    return op


def _partitions(lane: Value, count: int) -> Value:
    return movement.full(count, np.uint32, lane.shape)


replica_id = _number(
    "replica-id", lambda lane, count: lane if count == 1 else elementwise.div(lane, _partitions(lane, count))
)
partition_id = _number("partition-id", lambda lane, count: elementwise.rem(lane, _partitions(lane, count)))
