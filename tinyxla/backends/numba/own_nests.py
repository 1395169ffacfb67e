"""Ops that are loop nests of their own, which nothing fuses with: where the order of loops is the op's, as in a sort.

A lowering gives the kernels of one instruction, in order. It reads its operands from memory (`Lowering.value`), applies
computations (`Lowering.apply`), and stores what `results_of` lists; temporaries between its kernels are `Partial`s. An
op without an entry, or one that the entry does not support, is evaluated by the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tinyxla.backends.numba.lowering import LoweredKernel, Users
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction


class OwnNest(NamedTuple):
    supports: Callable[[Instruction], bool]
    lower: Callable[[Instruction, Plan, Users], list[LoweredKernel]]


OWN_NESTS: dict[str, OwnNest] = {}


def lower_own(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel] | None:
    """The kernels of an instruction, or None if the host evaluates it."""
    nest = OWN_NESTS.get(x.op.name)
    return nest.lower(x, plan, users) if nest is not None and nest.supports(x) else None
