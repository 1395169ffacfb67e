"""Affine index analysis on emitted loop IR: the stride of an index with respect to a loop variable, and index
expressions evaluated for other values of loop variables (copy and substitute).

Indices are chains of `add`, `subtract`, `multiply` and the like in the body of a loop. An index that depends on loaded
values has no stride.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyxla.loopir.ir.loop_ir import INDEX, Compute, Index, Literal, Load, Loop, Operand, Statement, Value

WIDE, NONNEGATIVE = (("index", "wide"),), (("index", "natural"),)


class IndexRewriter:
    """Emits index arithmetic; `statements` collects the emitted statements."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def compute(self, name: str, op: str, left: Index, right: Index) -> Value:
        """Emit `name = op(left, right)`."""
        result = Value(INDEX, name)
        self.statements.append(Compute(result, op, (_operand(left), _operand(right)), WIDE))
        return result

    def at(self, index: Index, body: Sequence[Statement], values: Mapping[Value, Index], suffix: str) -> Index:
        """Emit an index of a loop body with variables replaced by `values`; new names end in `suffix`. Returns the
        new index."""
        definitions = {x.result: x for x in body if isinstance(x, Compute)}
        rewritten: dict[Operand, Operand] = {x: _operand(value) for x, value in values.items()}

        def rewrite(x: Operand) -> Operand:
            if x not in rewritten and x in definitions:
                definition = definitions[x]
                result = rewritten[x] = Value(INDEX, f"{x.name}_{suffix}")
                attributes = definition.attributes
                if attributes == NONNEGATIVE:  # the last index of an empty loop is negative
                    attributes = WIDE
                operands = tuple(map(rewrite, definition.operands))
                self.statements.append(replace(definition, result=result, operands=operands, attributes=attributes))
            return rewritten.get(x, x)

        value = rewrite(_operand(index))
        return value if isinstance(value, Value) else value.value


def _operand(index: Index) -> Operand:
    return Literal(INDEX, index) if isinstance(index, int) else index


def is_unit_stride(index: Index, loop: Loop) -> bool:
    """True if an index grows by one per iteration of the loop."""
    return isinstance(index, Value) and stride_of(loop.index, index, loop.body) == 1


def stride_of(variable: Value, index: Operand, body: Sequence[Statement]) -> float:
    """The growth of an index per unit of `variable`; NaN if it is not constant.

    Memoized: in a hash or a random generator each intermediate value is used many times, and a plain recursion would
    take exponential time.
    """
    definitions: dict[Operand, Compute | Load] = {x.result: x for x in body if isinstance(x, Compute | Load)}
    return _stride(index, definitions, {variable: 1.0})


def _stride(x: Operand, definitions: Mapping[Operand, Compute | Load], strides: dict[Operand, float]) -> float:
    if x not in strides:
        definition = definitions.get(x)
        if isinstance(definition, Compute):
            strides[x] = _stride_of_result(definition, [_stride(o, definitions, strides) for o in definition.operands])
        else:
            strides[x] = 0 if definition is None else math.nan
    return strides[x]


def _stride_of_result(definition: Compute, strides: Sequence[float]) -> float:
    """The stride of a result, from those of its operands."""
    if not any(strides):
        return 0
    if definition.op in ("add", "subtract"):
        return strides[0] + strides[1] if definition.op == "add" else strides[0] - strides[1]
    factor = definition.operands[1] if definition.op == "multiply" else None
    return strides[0] * factor.value if isinstance(factor, Literal) else math.nan
