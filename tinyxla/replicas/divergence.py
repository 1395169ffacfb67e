"""Divergence analysis: do all replicas take the same way through a program?

A value is uniform if it is the same on all replicas. A loop or branch whose predicate is not uniform diverges; if there
are operations in it that wait for other replicas, the replicas cannot run as lanes of one program. It is a forward
data-flow analysis to a fixed point, conservative: what is not known to be uniform varies.

Source: "Divergence Analysis" (Coutinho, Sampaio, Pereira, Meira, 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops.tuples import leaf_shapes
from tinyxla.replicas.resolution import PARTICIPATING

_OF_ALL = ("all-gather", "all-reduce")  # the same for all members of a group
_VARYING = ("infeed", "partition-id", "recv-done", "replica-id", "rng")
Varies = list[bool]  # for each array of a value


class Found(NamedTuple):
    results: Varies
    diverges: bool


def analyse(computation: Computation, varying: Sequence[bool]) -> Found:
    """Which results vary among replicas if these parameters do, and whether replicas part before they meet.

    Args:
        computation: resolved, so that its groups are of devices.
        varying: for each parameter.
    """
    values: dict[Instruction, Varies] = {p: [v] for p, v in zip(computation.parameters, varying, strict=True)}
    diverges = False
    for x in computation.instructions:
        if x not in values:
            operands = [values[o] for o in x.operands]
            values[x], apart = _instruction(x, operands)
            diverges = diverges or apart
    return Found(values[computation.root], diverges)


def _instruction(x: Instruction, operands: list[Varies]) -> tuple[Varies, bool]:
    name, flat = x.op.name, [v for operand in operands for v in operand]
    if name == "tuple":
        return flat, False
    if name == "get-tuple-element":
        return [operands[0][x.attributes.index]], False
    if name == "while":
        return _while(x.attributes.condition, x.attributes.body, flat)
    if name == "conditional":
        return _conditional(flat[0], x.attributes.branch_computations, flat[1:])
    if name == "call":
        return analyse(x.attributes.to_apply, flat)
    count = len(leaf_shapes(x.shape))
    if name in _OF_ALL and len(x.attributes.replica_groups) <= 1:
        return [False] * count, False
    return [name in _VARYING or name in PARTICIPATING or any(flat)] * count, False


def _while(condition: Computation, body: Computation, carry: Varies) -> tuple[Varies, bool]:
    while True:
        predicate = analyse(condition, carry)
        step = analyse(body, carry)
        varies = predicate.results[0]
        after = [a or b or varies for a, b in zip(carry, step.results, strict=True)]
        if after == carry:
            meets = _meets(condition) or _meets(body)
            return carry, predicate.diverges or step.diverges or (varies and meets)
        carry = after


def _conditional(varies: bool, branches: Sequence[Computation], operands: Varies) -> tuple[Varies, bool]:
    found = [analyse(branch, operands) for branch in branches]
    together: Any = zip(*(branch.results for branch in found), strict=True)
    results = [varies or any(several) for several in together]
    return results, any(f.diverges for f in found) or (varies and any(map(_meets, branches)))


def _meets(computation: Computation) -> bool:
    """Whether there is an operation in it that others or the host take part in."""
    return bool(computation.all_opcodes & PARTICIPATING)
