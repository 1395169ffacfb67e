"""Choice of the form of a region: how a `while`, a `conditional` or a batch of them (op `lanes`) becomes a kernel.

| form | applies to | parallel axes | carried values |
|---|---|---|---|
| `pointwise_while` | a `while` of known trip count on independent elements | elements | rows of a block |
| `batched_while` | a batch of single loops over small arrays | instances, in vectors | rows of a group |
| `scalarized` | any region of small arrays, a batch too | instances | registers; large arrays in memory |

The first two share the loops over a block of independent instances (`lock_step`), the last two the scalarized body. A
region that has none of these forms is steps of the schedule.
"""

from __future__ import annotations

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.kernels.control_flow import batched_while, pointwise_while, scalarized
from tinyxla.loopir.lower.emit import LoweredKernel, Users
from tinyxla.transforms.batched_region import lanes


def supports(x: Instruction) -> bool:
    """Whether a region has one of the forms."""
    return _pointwise_state(x) is not None or scalarized.region_of(x) is not None


def aliased_operands(x: Instruction) -> dict[int, int]:
    """For results that stay in memory, the operands as which they begin."""
    state = _pointwise_state(x)
    if state is not None:
        return pointwise_while.aliased_operands(x, state)
    region = scalarized.region_of(x)
    assert region is not None
    return {k: begin for k, begin in enumerate(region.result_homes) if begin is not None}


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a region. Elements in vectors compile faster than the same number of scalars."""
    state = _pointwise_state(x)
    if state is not None:
        return pointwise_while.lower(x, state, plan, users)
    region = scalarized.region_of(x)
    assert region is not None
    loop = batched_while.single_loop(region) if x.op is lanes else None
    if loop is not None:
        return batched_while.lower(x, loop, region, plan, users)
    return scalarized.lower(x, region, plan, users)


def _pointwise_state(x: Instruction) -> pointwise_while.CarriedState | None:
    """What a pointwise loop carries; None for other regions."""
    return pointwise_while.carried_state(x) if x.op.name == "while" else None
