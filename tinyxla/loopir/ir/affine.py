"""Indices in loop IR that is made already: what they are elsewhere, and how they move with a loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from tinyxla.loopir.ir.loop_ir import INDEX, Compute, Index, Literal, Load, Loop, Operand, Statement, Value

WIDE, NATURAL = (("index", "wide"),), (("index", "natural"),)


class IndexRewriter:
    """Statements that compute indices."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def compute(self, name: str, op: str, left: Index, right: Index) -> Value:
        result = Value(INDEX, name)
        self.statements.append(Compute(result, op, (_operand(left), _operand(right)), WIDE))
        return result

    def at(self, index: Index, body: Sequence[Statement], places: Mapping[Value, Index], suffix: str) -> Index:
        """What an index that the body of a loop computes is where some others are at these places."""
        made = {x.result: x for x in body if isinstance(x, Compute)}
        known: dict[Operand, Operand] = {x: _operand(place) for x, place in places.items()}

        def found(x: Operand) -> Operand:
            if x not in known and x in made:
                y = made[x]
                result = known[x] = Value(INDEX, f"{x.name}_{suffix}")
                kind = WIDE if y.attributes == NATURAL else y.attributes  # which the end of an empty loop is not
                operands = tuple(map(found, y.operands))
                self.statements.append(replace(y, result=result, operands=operands, attributes=kind))
            return known.get(x, x)

        value = found(_operand(index))
        return value if isinstance(value, Value) else value.value


def _operand(index: Index) -> Operand:
    return Literal(INDEX, index) if isinstance(index, int) else index


def is_unit_stride(index: Index, loop: Loop) -> bool:
    """Whether an index grows by one with the loop's own."""
    return isinstance(index, Value) and stride_of(loop.index, index, loop.body) == 1


def stride_of(other: Value, index: Operand, body: Sequence[Statement]) -> float:
    """By how much an index that the body of a loop computes grows with another one; NaN if not evenly. What it is made
    of is looked at once, however often it is used: one that is hashed, or drawn at random, is made of itself again and
    again."""
    made = {x.result: x for x in body if isinstance(x, Compute | Load)}

    @cache
    def step(x: Operand) -> float:
        if x is other or x not in made:
            return float(x is other)
        y = made[x]
        steps = [step(operand) for operand in y.operands] if isinstance(y, Compute) else [math.nan]
        if not any(steps):
            return 0
        if isinstance(y, Compute) and y.op in ("add", "subtract"):
            return steps[0] + steps[1] if y.op == "add" else steps[0] - steps[1]
        factor = y.operands[1] if isinstance(y, Compute) and y.op == "multiply" else None
        return steps[0] * factor.value if isinstance(factor, Literal) else math.nan

    return step(index)
