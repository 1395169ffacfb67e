"""Collective operations among the processes of an MPI program (the axis `PROCESSES`), as messages that MPI passes.

`mpi_collective` is one message: its operand's first dimension is the one that is gathered, scattered or exchanged, and
MPI folds the elements itself. The other operations are made of it here, with transposes and folds that are fused with
what stands around them:

- Maxima and minima of floats are those of integers in the same order, above or below all of which NaN is.
- What MPI cannot fold (narrow floats, computations that are no monoid) the processes exchange and fold: an all-reduce
  is a gather and a fold, or for large arrays a reduce-scatter and an all-gather.
- Groups of several sizes, and ragged exchanges, gather all operands; each process takes its own result.

Derivatives, batching rules and shapes are those of replicas. Results depend on the number of processes alone.

Source for the composition of an all-reduce: "Optimization of Collective Communication Operations in MPICH" (Thakur,
Rabenseifner, Gropp, 2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import AttributeValueError, ShapeError, user_line
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import bits, elementwise, movement, reduction
from tinyxla.ops.distributed.collectives import divided, fold, merged
from tinyxla.ops.distributed.exchanges import with_one
from tinyxla.ops.distributed.replica_groups import Groups, Pairs, among_processes, check_groups
from tinyxla.ops.movement import array_operand
from tinyxla.ops.op import OWN, Array, Axes, NotDifferentiable, Op, Sample, Value, ops
from tinyxla.runtime.mpi.calls import Message, call_of, perform
from tinyxla.runtime.mpi.comparison import Part, Step
from tinyxla.runtime.mpi.library import MAX_COUNT, is_folded_natively
from tinyxla.runtime.mpi.world import World, world
from tinyxla.shapes import AnyShape, Shape, element_type

GATHERED_BYTES = (
    1 << 16
)  # up to so many from all processes, what MPI cannot fold is gathered: one message is sooner than two

# --- one message ------------------------------------------------------------------------------------------------------


def _shape(x: AnyShape, *, kind: str, groups: Groups, **others: Any) -> Shape:
    shape = array_operand("mpi-collective", x)
    in_rows = kind in ("all-gather", "all-to-all", "reduce-scatter")
    check_groups("mpi-collective", groups, equal_sizes=in_rows)
    if not in_rows:
        return shape
    if not groups or not shape.dimensions:
        raise ShapeError(f"mpi-collective: {kind} takes groups and an array with a first dimension, but got {shape}.")
    count, (first, *minor) = len(groups[0]), shape.dimensions
    if kind != "all-gather" and first % count:
        raise ShapeError(f"mpi-collective: {kind} among {count} takes a multiple of so many rows, but got {shape}.")
    rows = {"all-gather": first * count, "all-to-all": first, "reduce-scatter": first // count}[kind]
    return shape.with_dimensions((rows, *minor))


def _evaluate(x: Array, **attributes: Any) -> Array:
    message, shape, among = Message(**attributes), Shape.of(x), world()
    if not isinstance(among, World):
        if any(message.participants):
            raise _unknown_process("mpi-collective", 1)
        return np.array(x)
    result = np.empty(_shape(shape, **attributes).dimensions, x.dtype)
    if x.size:
        operand, call = np.ascontiguousarray(x), call_of(message, shape, among)
        addresses = operand.ctypes.data, result.ctypes.data
        step, used = step_of(message, shape, str(user_line() or "")), filter(None, (call.communicator,))
        part = Part(message.kind, (step,), message.participants, tuple(used))
        among.together(part, lambda: among.step(1, lambda: perform(call, *addresses, among)))
    return result


def step_of(message: Message, operand: Shape, line: str, is_split: bool = False) -> Step:
    """A message as it is compared among processes; also by whether it is split into a start and a done, since MPI's
    blocking and non-blocking operations do not match."""
    among, kind = message.pairs or message.groups, f"{message.kind}-start" if is_split else message.kind
    return Step(f"{kind} {message.reduction} of {operand} among {among}".replace("  ", " "), line, message.meetings)


def _batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Value, int | None]:
    (x,), (axis,) = operands, axes
    if axis == 0 and x.ndim > 1:  # the first dimension of each example stays the first
        x, axis = movement.move_axis(x, 0, 1), 1
    return mpi_collective(x, **attributes), axis


def _samples(random: np.random.Generator) -> Iterator[Sample]:
    """Those of one process."""
    for shape in ((3,), (2, 3), (1, 0)):
        for kind in ("all-gather", "all-to-all", "collective-broadcast"):
            yield Sample((movement.sample_values(shape),), {"kind": kind, "groups": ((0,),)})
        yield Sample((movement.sample_values(shape),), {"kind": "all-reduce", "groups": ((0,),), "reduction": "add"})
        yield Sample((movement.sample_values(shape),), {"kind": "collective-permute", "pairs": ((0, 0),)})


mpi_collective = Op(
    "mpi-collective",
    attributes=Message,
    fill_defaults=True,
    shape=_shape,
    evaluate=_evaluate,
    derivative=NotDifferentiable("a message has none; the operation that it is made for has one"),
    batch=_batch,
    samples=_samples,
)


def is_message(x: Instruction) -> bool:
    return x.op is mpi_collective


def message_of(x: Instruction) -> Message:
    """What a message says."""
    return x.attributes


# --- the operations ---------------------------------------------------------------------------------------------------


def _unknown_process(name: str, size: int) -> AttributeValueError:
    return AttributeValueError(
        f"{name}: the groups of processes must have numbers below {size}, the number of processes, and this one; start "
        "as many by mpirun -n, and call distributed.initialize first."
    )


def _own_group(name: str, groups: Groups) -> tuple[int, ...]:
    """The group of this process."""
    among = world()
    found = next((group for group in groups if among.rank in group), None)
    if found is None or any(process >= among.size for group in groups for process in group):
        raise _unknown_process(name, among.size)
    return found


def _define(name: str, lower: Callable[..., Any]) -> None:
    """Let a function of operands and attributes be the operation of that name among processes. If it is called with
    NumPy's arrays it evaluates the operation."""

    def lowered(*operands: Any, **attributes: Any) -> Any:
        if not any(isinstance(x, np.ndarray | np.generic) for x in operands):
            return lower(*operands, **attributes)
        found = lower(*(movement.constant(literal=Literal(np.asarray(x))) for x in operands), **attributes)
        return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)

    among_processes[name] = lowered


def _for_each(one: Callable[..., Value]) -> Callable[..., Any]:
    def lower(*operands: Value, **attributes: Any) -> Any:
        found = [one(x, **attributes) for x in operands]
        return found[0] if len(found) == 1 else tuple(found)

    return lower


def _by_lanes(name: str, operands: Sequence[Value], groups: Groups, **attributes: Any) -> Value:
    """An operation of one result: all operands are gathered, and this process takes its row of what lanes compute."""
    _own_group(name, groups)
    members = tuple(sorted(process for group in groups for process in group))
    gathered = tuple(mpi_collective(with_one(x, 0), kind="all-gather", groups=(members,)) for x in operands)
    numbered = tuple(tuple(map(members.index, group)) for group in groups)
    value, axis = ops[name].batch(
        len(members),
        gathered,
        (0,) * len(gathered),
        axis_name=OWN,
        replica_groups=numbered,
        channel_id=None,
        **attributes,
    )
    if axis is None:
        return value
    lane = members.index(world().rank)
    row = movement.slice_axis(value, axis, lane, lane + 1)
    return movement.reshape_to(row, (*value.shape[:axis], *value.shape[axis + 1 :]))


def _all_reduce(x: Value, *, to_apply: Computation, replica_groups: Groups, **others: Any) -> Value:
    count, op = len(_own_group("all-reduce", replica_groups)), reduction.monoid(to_apply)
    if max(map(len, replica_groups)) == 1 or not x.size:
        return x
    if op is not None and is_folded_natively(op, element_type(x.dtype)):
        return mpi_collective(x, kind="all-reduce", groups=replica_groups, reduction=op)
    if op is not None and _has_integer_order(op, x):
        key = _all_reduce(_to_integers(op, x), to_apply=_on_integers(op, x), replica_groups=replica_groups)
        return _from_integers(key, x)
    if len(set(map(len, replica_groups))) > 1:
        return _by_lanes("all-reduce", (x,), replica_groups, to_apply=to_apply, use_global_device_ids=False)
    if x.size * x.dtype.itemsize * count <= GATHERED_BYTES:
        return fold(mpi_collective(with_one(x, 0), kind="all-gather", groups=replica_groups), to_apply)
    each = math.ceil(x.size / count)
    flat = movement.reshape_to(x, (x.size,))
    padding = movement.full(0, x.dtype, (each * count - x.size,))
    parts = movement.reshape_to(movement.concatenate(flat, padding, dimension=0), (count, each))
    folded = fold(mpi_collective(parts, kind="all-to-all", groups=replica_groups), to_apply)
    whole = mpi_collective(folded, kind="all-gather", groups=replica_groups)
    return movement.reshape_to(movement.slice_axis(whole, 0, 0, x.size), x.shape)


_KEYS = {"f16": "s16", "bf16": "s16", "f32": "s32", "f64": "s64"}  # integers in whose order floats are


def _has_integer_order(op: str, x: Value) -> bool:
    return op in ("maximum", "minimum") and element_type(x.dtype).name in _KEYS


def _on_integers(op: str, x: Value) -> Computation:
    return reduction.scalar_computation(op, element_type(_KEYS[element_type(x.dtype).name]).dtype)


def _to_integers(op: str, x: Value) -> Value:
    """Integers in the order of floats: the bits, of which all but the sign are inverted if it is set. NaN wins."""
    key = _ordered_bits(bits.bitcast_convert(x, new_element_type=element_type(_KEYS[element_type(x.dtype).name])))
    winner = np.iinfo(key.dtype).max if op == "maximum" else np.iinfo(key.dtype).min
    return elementwise.select(elementwise.ne(x, x), movement.full(winner, key.dtype, key.shape), key)


def _from_integers(key: Value, x: Value) -> Value:
    return bits.bitcast_convert(_ordered_bits(key), new_element_type=element_type(x.dtype))


def _ordered_bits(key: Value) -> Value:
    """Its own inverse."""
    limits = np.iinfo(key.dtype)
    sign = elementwise.shift_right_arithmetic(key, movement.full(limits.bits - 1, key.dtype, key.shape))
    return elementwise.xor(key, elementwise.and_(sign, movement.full(limits.max, key.dtype, key.shape)))


def _all_gather(x: Value, *, all_gather_dimension: int, replica_groups: Groups, **others: Any) -> Value:
    _own_group("all-gather", replica_groups)
    if len(replica_groups[0]) == 1:
        return x
    if all_gather_dimension == 0:
        return mpi_collective(x, kind="all-gather", groups=replica_groups)
    gathered = mpi_collective(with_one(x, 0), kind="all-gather", groups=replica_groups)
    return merged(movement.move_axis(gathered, 0, all_gather_dimension), all_gather_dimension)


def _reduce_scatter(
    x: Value, *, to_apply: Computation, scatter_dimension: int, replica_groups: Groups, **others: Any
) -> Value:
    count, op = len(_own_group("reduce-scatter", replica_groups)), reduction.monoid(to_apply)
    if count == 1:
        return x
    if op is not None and _has_integer_order(op, x):
        key = _reduce_scatter(
            _to_integers(op, x),
            to_apply=_on_integers(op, x),
            scatter_dimension=scatter_dimension,
            replica_groups=replica_groups,
        )
        return _from_integers(key, x)
    parts = movement.move_axis(divided(x, scatter_dimension, count), scatter_dimension, 0)
    if op is None or not is_folded_natively(op, element_type(x.dtype)) or x.size // count > MAX_COUNT:
        return fold(mpi_collective(parts, kind="all-to-all", groups=replica_groups), to_apply)
    part = mpi_collective(parts, kind="reduce-scatter", groups=replica_groups, reduction=op)
    return movement.reshape_to(part, part.shape[1:])


def _all_to_all(*operands: Value, dimensions: tuple[int, ...], replica_groups: Groups, **others: Any) -> Any:
    count = len(_own_group("all-to-all", replica_groups))
    if count == 1:
        return operands[0] if dimensions else operands
    if not dimensions:
        stacked = movement.concatenate(*(with_one(x, 0) for x in operands), dimension=0)
        given = mpi_collective(stacked, kind="all-to-all", groups=replica_groups)
        return tuple(
            movement.reshape_to(movement.slice_axis(given, 0, k, k + 1), operands[0].shape) for k in range(count)
        )
    (dimension,) = dimensions
    parts = movement.move_axis(divided(operands[0], dimension, count), dimension, 0)
    given = mpi_collective(parts, kind="all-to-all", groups=replica_groups)
    return merged(movement.move_axis(given, 0, dimension), dimension)


def _collective_permute(x: Value, *, source_target_pairs: Pairs, **others: Any) -> Value:
    if any(process >= world().size for pair in source_target_pairs for process in pair):
        raise _unknown_process("collective-permute", world().size)
    if not source_target_pairs:
        return elementwise.zeros_like(x)
    if world().size == 1:
        return x
    return mpi_collective(x, kind="collective-permute", pairs=source_target_pairs)


def _collective_broadcast(x: Value, *, replica_groups: Groups, **others: Any) -> Value:
    if any(process >= world().size for group in replica_groups for process in group):
        raise _unknown_process("collective-broadcast", world().size)
    if world().size == 1:
        return x
    return mpi_collective(x, kind="collective-broadcast", groups=replica_groups)


def _ragged_all_to_all(*operands: Value, replica_groups: Groups, **others: Any) -> Value:
    return _by_lanes("ragged-all-to-all", operands, replica_groups)


for _name, _lower in (
    ("all-reduce", _for_each(_all_reduce)),
    ("all-gather", _for_each(_all_gather)),
    ("reduce-scatter", _for_each(_reduce_scatter)),
    ("all-to-all", _all_to_all),
    ("collective-permute", _for_each(_collective_permute)),
    ("collective-broadcast", _for_each(_collective_broadcast)),
    ("ragged-all-to-all", _ragged_all_to_all),
):
    _define(_name, _lower)
