"""All-reduce combiner: small all-reduces among the same processes, which are ready together, become one of their
operands side by side, since a message costs more than the bytes in it.

Those are ready together whose operands depend on chains of equally many messages: no one of these can depend on
another, also after others were combined. All processes combine the same ones, in the same order. Large arrays are left
alone: nothing is gained, and all copied. So are computations with side effects, whose order is kept.

Source: XLA's pass of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.compiler.costs import MESSAGE_START_BYTES
from tinyxla.compiler.rewriter import Rewriter, for_opcodes
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import movement
from tinyxla.ops.cost import bytes_of
from tinyxla.ops.distributed.process_collectives import is_message, message_of, mpi_collective

MAX_COMBINED_BYTES = MESSAGE_START_BYTES * 2  # copying fewer costs less than what a message costs

Bucket = list[Instruction]


@for_opcodes("mpi-collective")
def combine_all_reduces(computation: Computation) -> Computation:
    """The computation with small all-reduces combined."""
    buckets = [] if computation.has_side_effect else _buckets(computation)
    if not buckets:
        return computation
    bucket_of = {x: bucket for bucket in buckets for x in bucket}
    rewriter = Rewriter()
    new = {p: rewriter.keep(p) for p in computation.parameters}
    for x in _ordered(computation, bucket_of):
        if x in new:
            continue
        rewriter.locate(x)
        inputs = tuple(new[o] for o in x.operands)
        if x in bucket_of:
            operands = [new[y.operands[0]] for y in bucket_of[x]]
            new.update(zip(bucket_of[x], _combined(rewriter, x, operands), strict=True))
        else:
            new[x] = rewriter.keep(x) if inputs == x.operands else rewriter.copy(x, inputs)
    return Computation(computation.name, computation.parameters, rewriter.instructions, new[computation.root])


def _buckets(computation: Computation) -> list[Bucket]:
    """The all-reduces that become one."""
    depth: dict[Instruction, int] = {}  # messages on the longest path to an instruction
    last: dict[tuple[Any, ...], Bucket] = {}
    found: list[Bucket] = []
    for x in computation.instructions:
        depth[x] = max((depth[o] + is_message(o) for o in x.operands), default=0)
        if not is_message(x) or message_of(x).kind != "all-reduce" or bytes_of(x.shape) > MAX_COMBINED_BYTES:
            continue
        key = depth[x], message_of(x), x.array_shape.element_type
        bucket = last.get(key)
        if bucket is None or sum(bytes_of(y.shape) for y in (*bucket, x)) > MAX_COMBINED_BYTES:
            bucket = last[key] = []
            found.append(bucket)
        bucket.append(x)
    return [bucket for bucket in found if len(bucket) > 1]


def _ordered(computation: Computation, bucket_of: dict[Instruction, Bucket]) -> list[Instruction]:
    """All instructions, in a topological order in which the operands of a bucket come before its first member."""
    done: dict[Instruction, None] = {}
    pending = computation.instructions[::-1]
    while pending:
        x = pending[-1]
        needed = [o for y in bucket_of.get(x, [x]) for o in y.operands if o not in done]
        if x in done or not needed:
            done[pending.pop()] = None
        else:
            pending += reversed(needed)
    return list(done)


def _combined(rewriter: Rewriter, first: Instruction, operands: Sequence[Instruction]) -> list[Instruction]:
    """The results of the all-reduces of these operands, as slices of that of all."""
    flat = [rewriter.emit(movement.reshape, x, sizes=(x.array_shape.size,)) for x in operands]
    whole = rewriter.emit(movement.concatenate, *flat, dimension=0)
    total = rewriter.emit(mpi_collective, whole, **message_of(first)._asdict())
    results: list[Instruction] = []
    start = 0
    for x in operands:
        limit = start + x.array_shape.size
        part = rewriter.emit(movement.slice_, total, start_indices=(start,), limit_indices=(limit,), strides=(1,))
        results.append(rewriter.emit(movement.reshape, part, sizes=x.array_shape.dimensions))
        start = limit
    return results
