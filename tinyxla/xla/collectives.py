"""Collective operations between the replicas of a program.

`replica_groups` are lists of replica ids, or `ReplicaGroup`s; none at all stands for one group of all replicas. Where a
`layout` is given, the result has it.

Source: the sections of the XLA documents named after each function.
"""

from __future__ import annotations

from typing import Any

from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import Value, reduction
from tinyxla.ops.calls import get_tuple_element
from tinyxla.ops.distributed import collectives, exchanges
from tinyxla.ops.movement import check_dimensions
from tinyxla.ops.tuples import leaf_shapes, leaves
from tinyxla.shapes import AnyShape, Layout, Shape, TupleShape, element_type
from tinyxla.xla.builder import Tree, XlaBuilder, shape_of
from tinyxla.xla.computation import XlaComputation
from tinyxla.xla.functions import Channel, Groups, Pairs, alias, builder_function, checked_trees
from tinyxla.xla.layouts import LayoutUtil


def _arrays(name: str, operand: Tree) -> tuple[Value, ...]:
    """The operand, or the elements of the non-empty tuple of arrays that it is."""
    if not isinstance(operand, tuple):
        return (operand,)
    if not operand or any(isinstance(x, tuple) for x in operand):
        raise ShapeError(
            f"{name}: the operand must be an array or a non-empty tuple of arrays, but is {shape_of(operand)}."
        )
    return operand


def _like_operand(operand: Tree, result: Any) -> Tree:
    """A tuple for a tuple, also for one of one array."""
    return (result,) if isinstance(operand, tuple) and not isinstance(result, tuple) else result


def _in_layout(result: Tree, layout: Layout | None) -> Tree:
    """The result, each array of it in a layout."""
    if layout is not None:
        for x in leaves(result):
            set_shape(x, LayoutUtil.WithLayout(x.instruction.shape, layout))
    return result


def set_shape(x: Any, shape: Shape) -> None:
    """Of an array, and of the tuple that it is taken from."""
    made: Instruction = x.instruction
    made.shape = shape
    if made.op is get_tuple_element:
        (whole,) = made.operands
        elements = list(whole.shape.elements)  # pyright: ignore[reportAttributeAccessIssue]
        elements[made.attributes.index] = shape
        whole.shape = TupleShape(tuple(elements))


def _check_shard_count(name: str, shard_count: int) -> None:
    if shard_count < 1:
        raise AttributeValueError(
            f"{name}: shard_count must be the number of replicas in a group, but is {shard_count}."
        )


# --- reductions -------------------------------------------------------------------------------------------------------


@builder_function()
def AllReduce(
    builder: XlaBuilder,
    operand: Tree,
    computation: XlaComputation,
    replica_groups: Groups = (),
    channel_id: Channel | None = None,
    shape_with_layout: AnyShape | None = None,
    use_global_device_ids: bool | None = None,
) -> Tree:
    """An array, or each array of a tuple, combined by a computation of two scalars with those of the other replicas of
    the group. `shape_with_layout` is the operand's shape in the layouts that the result is to have.

    Args:
        operand: an array, or a tuple of them.
        computation: a computation of two scalars.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        channel_id: the number of a channel, with which operations of several partitions are connected.
        shape_with_layout: the layout of the result.
        use_global_device_ids: whether groups name devices instead of replicas.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ShapeError: a computation of other scalars, or another `shape_with_layout`.
        AttributeValueError: groups that are empty, or that have a replica twice.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, AllReduce, Max, ShapeUtil, XlaBuilder
    >>> inner, b = XlaBuilder("larger"), XlaBuilder()
    >>> x, y = (inner.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> total = AllReduce(b.Parameter(0, ShapeUtil.MakeShape(F32, [2])), inner.Build(Max(x, y)))
    >>> b.Build().execute_replicated([[np.float32([1, 8])], [np.float32([3, 5])]])
    [Array([3., 8.], dtype=float32), Array([3., 8.], dtype=float32)]
    """
    return _all_reduce(
        "AllReduce",
        operand,
        computation.computation,
        shape_with_layout,
        replica_groups=replica_groups,
        channel_id=channel_id,
        use_global_device_ids=bool(use_global_device_ids),
    )


@builder_function()
def CrossReplicaSum(builder: XlaBuilder, operand: Tree, replica_groups: Groups = ()) -> Tree:
    """The sum of an array, or of each array of a tuple, over the replicas of the group; of truth values it is `or`.

    Args:
        operand: an array, or a tuple of them.
        replica_groups: lists of numbers of replicas; one of all if it is empty.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ShapeError: an empty or a nested tuple.
        AttributeValueError: groups that are empty, or that have a replica twice.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, CrossReplicaSum, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> total = CrossReplicaSum(b.Parameter(0, ShapeUtil.MakeShape(F32, [])), [[0, 1], [2]])
    >>> b.Build().execute_replicated([[np.float32(x)] for x in (1, 2, 4)])
    [Array(3., dtype=float32), Array(3., dtype=float32), Array(4., dtype=float32)]
    """
    kind = element_type(_arrays("CrossReplicaSum", operand)[0].dtype)
    total = reduction.scalar_computation("or" if kind.kind == "pred" else "add", kind.dtype)
    return _all_reduce("CrossReplicaSum", operand, total, None, replica_groups=replica_groups)


def _all_reduce(
    name: str, operand: Tree, to_apply: Computation, shape_with_layout: AnyShape | None, **participants: Any
) -> Tree:
    if shape_with_layout is not None and shape_with_layout != shape_of(operand):
        raise ShapeError(
            f"{name}: shape_with_layout must be the operand's shape {shape_of(operand)} in some layout, but is "
            f"{shape_with_layout}."
        )
    result = collectives.all_reduce(*_arrays(name, operand), to_apply=to_apply, **participants)
    if shape_with_layout is not None:
        for x, shape in zip(leaves(result), leaf_shapes(shape_with_layout), strict=True):
            set_shape(x, shape)
    return _like_operand(operand, result)


@builder_function()
def ReduceScatter(
    builder: XlaBuilder,
    operand: Tree,
    computation: XlaComputation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel | None = None,
    layout: Layout | None = None,
    use_global_device_ids: bool | None = None,
) -> Tree:
    """AllReduce, of whose result, split into `shard_count` blocks, replica i of the group gets block i.

    Args:
        operand: an array, or a tuple of them.
        computation: a computation of two scalars.
        scatter_dimension: the dimension that is split.
        shard_count: the number of replicas in a group.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        channel_id: the number of a channel, with which operations of several partitions are connected.
        layout: the layout of the result.
        use_global_device_ids: whether groups name devices instead of replicas.

    Returns:
        An `XlaOp` of the operand's shape, with that dimension divided by `shard_count`.

    Raises:
        ShapeError: a dimension whose size is no multiple of `shard_count`, or a computation of other scalars.
        AttributeValueError: a `shard_count` that is not the size of the groups.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, ReduceScatter, ShapeUtil, XlaBuilder
    >>> inner, b = XlaBuilder("plus"), XlaBuilder()
    >>> x, y = (inner.Parameter(k, ShapeUtil.MakeShape(F32, [])) for k in range(2))
    >>> shard = ReduceScatter(b.Parameter(0, ShapeUtil.MakeShape(F32, [2])), inner.Build(x + y), 0, shard_count=2)
    >>> b.Build().execute_replicated([[np.float32([1, 2])], [np.float32([10, 20])]])
    [Array([11.], dtype=float32), Array([22.], dtype=float32)]
    """
    _check_shard_count("ReduceScatter", shard_count)
    result = collectives.reduce_scatter(
        *_arrays("ReduceScatter", operand),
        to_apply=computation.computation,
        scatter_dimension=scatter_dimension,
        shard_count=shard_count,
        replica_groups=replica_groups,
        channel_id=channel_id,
        use_global_device_ids=bool(use_global_device_ids),
    )
    return _like_operand(operand, _in_layout(result, layout))


# --- exchanges --------------------------------------------------------------------------------------------------------


@builder_function(all_gather_dim="all_gather_dimension")
def AllGather(
    builder: XlaBuilder,
    operand: Tree,
    all_gather_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: Channel | None = None,
    layout: Layout | None = None,
    use_global_device_ids: bool | None = None,
) -> Tree:
    """The arrays of all `shard_count` replicas of the group, concatenated in its order.

    Args:
        operand: an array, or a tuple of them.
        all_gather_dimension: the dimension of concatenation.
        shard_count: the number of replicas in a group.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        channel_id: the number of a channel, with which operations of several partitions are connected.
        layout: the layout of the result.
        use_global_device_ids: whether groups name devices instead of replicas.

    Returns:
        An `XlaOp` of the operand's shape, with that dimension `shard_count` times as long.

    Raises:
        ShapeError: a dimension that the operand does not have.
        AttributeValueError: a `shard_count` that is not the size of the groups.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, AllGather, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> whole = AllGather(b.Parameter(0, ShapeUtil.MakeShape(F32, [1])), all_gather_dimension=0, shard_count=2)
    >>> b.Build().execute_replicated([[np.float32([1])], [np.float32([2])]])
    [Array([1., 2.], dtype=float32), Array([1., 2.], dtype=float32)]
    """
    _check_shard_count("AllGather", shard_count)
    result = collectives.all_gather(
        *_arrays("AllGather", operand),
        all_gather_dimension=all_gather_dimension,
        shard_count=shard_count,
        replica_groups=replica_groups,
        channel_id=channel_id,
        use_global_device_ids=bool(use_global_device_ids),
    )
    return _like_operand(operand, _in_layout(result, layout))


@builder_function()
def AllToAll(
    builder: XlaBuilder,
    operand: Value,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: Groups = (),
    layout: Layout | None = None,
    channel_id: Channel | None = None,
) -> Value:
    """The array split into `split_count` blocks, of which replica i of the group gets block i; what a replica gets is
    concatenated in the group's order.

    Args:
        operand: an array.
        split_dimension: the dimension that is split.
        concat_dimension: the dimension of concatenation.
        split_count: the number of replicas in a group.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        layout: the layout of the result.
        channel_id: the number of a channel, with which operations of several partitions are connected.

    Returns:
        An `XlaOp`.

    Raises:
        ShapeError: a dimension whose size is no multiple of `split_count`.
        AttributeValueError: a `split_count` that is not the size of the groups.

    >>> import numpy as np
    >>> from tinyxla.xla import S32, AllToAll, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = AllToAll(b.Parameter(0, ShapeUtil.MakeShape(S32, [2])), 0, 0, split_count=2)
    >>> b.Build().execute_replicated([[np.int32([0, 1])], [np.int32([10, 11])]])
    [Array([ 0, 10], dtype=int32), Array([ 1, 11], dtype=int32)]
    """
    for what, dimension in (("split_dimension", split_dimension), ("concat_dimension", concat_dimension)):
        check_dimensions("AllToAll", what, (dimension,), operand.ndim)
    if split_count < 1 or (replica_groups and split_count != len(replica_groups[0])):
        size = f"{len(replica_groups[0])}, the size of the first of {replica_groups}" if replica_groups else "positive"
        raise AttributeValueError(
            f"AllToAll: split_count must be the number of replicas in a group, {size}, but is {split_count}."
        )
    if operand.shape[split_dimension] % split_count:
        raise ShapeError(
            f"AllToAll: the size of dimension {split_dimension} of {Shape.of(operand)} must be a multiple of "
            f"split_count, {split_count}; pad it."
        )
    result = exchanges.exchange(
        operand, split_dimension, concat_dimension, split_count, replica_groups=replica_groups, channel_id=channel_id
    )
    return _in_layout(result, layout)


@builder_function(operand="operands")
def AllToAllTuple(
    builder: XlaBuilder,
    operands: Any,
    replica_groups: Groups = (),
    layout: Layout | None = None,
    channel_id: Channel | None = None,
) -> Tree:
    """AllToAll of blocks that are arrays of their own: of the operands, a tuple or a list, replica i of the group gets
    number i.

    Args:
        operands: arrays of one shape.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        layout: the layout of the result.
        channel_id: the number of a channel, with which operations of several partitions are connected.

    Returns:
        An `XlaOp`: a tuple of as many arrays.

    Raises:
        ShapeError: operands of different shapes, or not as many as replicas in a group.

    >>> import numpy as np
    >>> from tinyxla.xla import S32, AllToAllTuple, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = AllToAllTuple([b.Parameter(k, ShapeUtil.MakeShape(S32, [])) for k in range(2)])
    >>> b.Build().execute_replicated([[np.int32(0), np.int32(1)], [np.int32(10), np.int32(11)]])
    [(Array(0, dtype=int32), Array(10, dtype=int32)), (Array(1, dtype=int32), Array(11, dtype=int32))]
    """
    given = checked_trees(builder, "AllToAllTuple: operands", operands)
    arrays = given[0] if len(given) == 1 and isinstance(given[0], tuple) else tuple(given)
    result = exchanges.all_to_all(
        *_arrays("AllToAllTuple", arrays), replica_groups=replica_groups, channel_id=channel_id
    )
    return _in_layout(result, layout)


@builder_function()
def RaggedAllToAll(
    builder: XlaBuilder,
    input: Value,
    input_offsets: Value,
    send_sizes: Value,
    output: Value,
    output_offsets: Value,
    recv_sizes: Value,
    replica_groups: Groups = (),
    channel_id: Channel | None = None,
) -> Value:
    """`output`, into which rows of all replicas of the group are written: `send_sizes[i]` rows of `input` from
    `input_offsets[i]` on go to replica i, there from row `output_offsets[i]` on.

    Args:
        input, output: arrays that differ in the first dimension only.
        input_offsets, send_sizes: the first row and the number of rows for each replica.
        output_offsets: the row of the receiver's output from which on they are written.
        recv_sizes: the number of rows from each replica.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        channel_id: the number of a channel, with which operations of several partitions are connected.

    Returns:
        An `XlaOp` of the shape of `output`.

    Raises:
        ShapeError: an output that differs from the input in other dimensions than the first.

    >>> import numpy as np
    >>> from tinyxla.xla import S32, RaggedAllToAll, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> rows = b.Parameter(0, ShapeUtil.MakeShape(S32, [3]))
    >>> offsets, sizes = (b.Parameter(k, ShapeUtil.MakeShape(S32, [2])) for k in (1, 2))
    >>> places, received = (b.Parameter(k, ShapeUtil.MakeShape(S32, [2])) for k in (3, 4))
    >>> x = RaggedAllToAll(rows, offsets, sizes, b.Constant(np.zeros(3, np.int32)), places, received)
    >>> first = [np.int32(x) for x in ([1, 2, 3], [0, 1], [1, 2], [0, 0], [1, 0])]  # a row stays, two go to replica 1
    >>> second = [np.int32(x) for x in ([4, 5, 6], [0, 0], [0, 1], [1, 2], [2, 1])]  # a row stays
    >>> b.Build().execute_replicated([first, second])
    [Array([1, 0, 0], dtype=int32), Array([2, 3, 4], dtype=int32)]
    """
    return exchanges.ragged_all_to_all(
        input,
        output,
        input_offsets,
        send_sizes,
        output_offsets,
        recv_sizes,
        replica_groups=replica_groups,
        channel_id=channel_id,
    )


@builder_function()
def CollectiveBroadcast(
    builder: XlaBuilder, operand: Value, replica_groups: Groups = (), channel_id: Channel | None = None
) -> Value:
    """The array of the first replica of the group; zeros outside of all groups.

    Args:
        operand: an array.
        replica_groups: lists of numbers of replicas; one of all if it is empty.
        channel_id: the number of a channel, with which operations of several partitions are connected.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        AttributeValueError: groups that are empty, or that have a replica twice.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, CollectiveBroadcast, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = CollectiveBroadcast(b.Parameter(0, ShapeUtil.MakeShape(F32, [])), [[1, 0]])
    >>> b.Build().execute_replicated([[np.float32(1)], [np.float32(2)], [np.float32(3)]])
    [Array(2., dtype=float32), Array(2., dtype=float32), Array(0., dtype=float32)]
    """
    return exchanges.collective_broadcast(operand, replica_groups=replica_groups, channel_id=channel_id)


@builder_function()
def CollectivePermute(
    builder: XlaBuilder,
    operand: Value,
    source_target_pairs: Pairs,
    channel_id: Channel | None = None,
    inplace: bool | None = None,
) -> Value:
    """The array of the replica that is this one's source; zeros where there is none. `inplace` asks for the operand's
    memory for the result, which the compiler decides by itself.

    Args:
        operand: an array.
        source_target_pairs: pairs of numbers of replicas.
        channel_id: the number of a channel, with which operations of several partitions are connected.
        inplace: accepted: the compiler decides by itself.

    Returns:
        An `XlaOp` of the operand's shape.

    Raises:
        ArgumentError: what are no pairs.
        AttributeValueError: a replica that is there twice as a source or as a target.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, CollectivePermute, ShapeUtil, XlaBuilder
    >>> b = XlaBuilder()
    >>> x = CollectivePermute(b.Parameter(0, ShapeUtil.MakeShape(F32, [])), source_target_pairs=[(0, 1)])
    >>> b.Build().execute_replicated([[np.float32(1)], [np.float32(2)]])
    [Array(0., dtype=float32), Array(1., dtype=float32)]
    """
    return exchanges.collective_permute(operand, source_target_pairs=source_target_pairs, channel_id=channel_id)


# --- numbers ----------------------------------------------------------------------------------------------------------


@builder_function()
def ReplicaId(builder: XlaBuilder) -> Value:
    """The number of the replica, a scalar u32.

    Returns:
        An `XlaOp`, a scalar.

    Raises:
        ArgumentError: no operand, and no builder as the first argument.

    >>> from tinyxla.xla import ReplicaId, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(ReplicaId(b)).execute_replicated([[], []])
    [Array(0, dtype=uint32), Array(1, dtype=uint32)]
    """
    return exchanges.replica_id()


@builder_function()
def PartitionId(builder: XlaBuilder, shape: Shape | None = None) -> Value:
    """The number of the partition of the replica, a scalar u32, as which `shape` must be given if at all.

    Args:
        shape: u32[].

    Returns:
        An `XlaOp`, a scalar.

    Raises:
        ShapeError: another shape.

    >>> from tinyxla.xla import PartitionId, XlaBuilder
    >>> b = XlaBuilder()
    >>> b.Build(PartitionId(b)).execute_replicated([[], []], replica_count=1, partition_count=2)
    [Array(0, dtype=uint32), Array(1, dtype=uint32)]
    """
    number = Shape(element_type("u32"))
    if shape is not None and shape != number:
        raise ShapeError(f"PartitionId: shape must be {number}, but is {shape}.")
    return exchanges.partition_id()


PartitionID = alias("PartitionID", PartitionId)
