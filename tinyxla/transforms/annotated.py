"""Traces that know something of each array they record, which follows from what is known of operands: along which axes
of a mesh it varies, or how it is split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from tinyxla.errors import SourceLine
from tinyxla.hlo import Instruction
from tinyxla.ops import Op
from tinyxla.shapes import AnyShape
from tinyxla.tracing.core import GraphTrace, GraphTracer

Fact = TypeVar("Fact")


class AnnotatedTrace(GraphTrace, ABC, Generic[Fact]):
    """Records a graph, and a fact of each array.

    Args:
        what: names the function in errors.
        parameters: the facts of its parameters; further ones stand for captured values.
        staging: as for `GraphTrace`.

    Attributes:
        known: the facts of the arrays of each instruction's result.
    """

    def __init__(self, what: str, parameters: Sequence[Fact], staging: bool = True) -> None:
        super().__init__(what, staging)
        self.known: dict[Instruction, list[Fact]] = {}
        self._given = parameters

    @abstractmethod
    def _of_value(self, value: Any) -> Fact:
        """The fact of a value from outside."""

    @abstractmethod
    def _of_results(self, x: Instruction, operands: list[list[Fact]]) -> list[Fact]:
        """The facts of an instruction's result, from those of its operands."""

    def parameter(self, shape: AnyShape, weak_type: bool = False) -> GraphTracer:
        tracer = super().parameter(shape, weak_type)
        number = len(self.parameters) - 1
        if number < len(self._given):
            self.known[tracer.instruction] = [self._given[number]]
        return tracer

    def lift(self, value: Any) -> Instruction:
        is_new = id(value) not in self._lifted and not (isinstance(value, GraphTracer) and value.owner is self)
        made = super().lift(value)
        if is_new:
            self.known[made] = [self._of_value(value)]
        return made

    def _append(
        self, op: Op, operands: Sequence[Instruction], attributes: Any, shape: AnyShape, source: SourceLine | None
    ) -> Instruction:
        made = super()._append(op, operands, attributes, shape, source)
        self.known[made] = self._of_results(made, [self.known[o] for o in operands])
        return made
