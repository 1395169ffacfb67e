"""Loops, branches and barriers as HLO has them: with one tuple where the graph has arrays. Bitcasts, which in HLO take
the layout of their operand from its shape, are given operands that have it; and memory whose elements are arbitrary,
which XLA has for some platforms only, has zeros.

`as_written` brings a module to that form before it is printed; `tinyxla.text.parser` brings back what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal, Module
from tinyxla.ops import calls, hlo_only, movement
from tinyxla.shapes import Layout, TupleShape
from tinyxla.text.transfers import with_contexts


class Branches(NamedTuple):
    """The attributes of a conditional that asks for a truth value."""

    true_computation: Computation
    false_computation: Computation


class _Writer:
    def __init__(self) -> None:
        self.whole: dict[int, Computation] = {}  # by identity: names matter here
        self.of_tuples: dict[int, Computation] = {}

    def computation(self, x: Computation) -> Computation:
        """With the form of HLO inside; its parameters and result are what they were."""
        found = self.whole.get(id(x))
        if found is None:
            new: dict[Instruction, Instruction] = {}
            instructions: list[Instruction] = []
            given = with_contexts(x)
            for old in given.instructions:
                new[old] = self.instruction(old, [new[o] for o in old.operands], instructions)
                instructions.append(new[old])
            found = Computation(x.name, [new[p] for p in given.parameters], instructions, new[given.root])
            found = self.whole[id(x)] = found if instructions != x.instructions else x
        return found

    def instruction(self, x: Instruction, operands: list[Instruction], before: list[Instruction]) -> Instruction:
        attributes: Any = x.attributes
        if x.op.name == "while":
            operands = [_tupled(operands, before)]
            attributes = _changed(attributes, self.of_tuple)
        elif x.op.name == "opt-barrier":
            operands = [_tupled(operands, before)]
        elif getattr(attributes, "custom_call_target", "") == "AllocateBuffer":
            return _zeros(x, before)
        elif x.op is hlo_only.bitcast:
            operands = [_laid_out(operands[0], attributes.operand_layout, before)]
        elif x.op.name == "conditional":
            index, *rest = operands
            attributes = _changed(attributes, self.of_tuple)
            branches: tuple[Computation, ...] = attributes.branch_computations
            operands = [index] + [_tupled(rest, before)] * len(branches)
            attributes = Branches(*branches) if index.array_shape.element_type.kind == "pred" else attributes
        else:
            attributes = _changed(attributes, self.computation)
        if attributes is x.attributes and operands == list(x.operands):
            return x
        return Instruction(x.op, operands, attributes, x.shape, x.source, x.name, x.annotations, x.origin or x)

    def of_tuple(self, x: Computation) -> Computation:
        """The computation with one tuple as its parameter."""
        found = self.of_tuples.get(id(x))
        if found is None:
            inner = self.computation(x)
            shape = TupleShape(tuple(inner.parameter_shapes))
            whole = Instruction(movement.parameter, (), movement.Parameter(0, shape), shape)
            new: dict[Instruction, Instruction] = {}
            for k, p in enumerate(inner.parameters):
                taken = calls.GetTupleElement(k)
                new[p] = Instruction(
                    calls.get_tuple_element, (whole,), taken, p.shape, p.source, p.name, p.annotations, p.origin or p
                )
            for old in inner.instructions:
                if old not in new:
                    rest = [new[o] for o in old.operands]
                    new[old] = Instruction(
                        old.op,
                        rest,
                        old.attributes,
                        old.shape,
                        old.source,
                        old.name,
                        old.annotations,
                        old.origin or old,
                    )
            found = Computation(x.name, [whole], [whole, *new.values()], new[inner.root])
            self.of_tuples[id(x)] = found
        return found


def _tupled(operands: list[Instruction], before: list[Instruction]) -> Instruction:
    shape = TupleShape(tuple(x.shape for x in operands))
    before.append(Instruction(calls.tuple_, operands, calls.tuple_.attributes(), shape))
    return before[-1]


def _zeros(x: Instruction, before: list[Instruction]) -> Instruction:
    zero = Literal(np.zeros((), x.array_shape.dtype))
    scalar = x.array_shape.with_dimensions(())
    before.append(Instruction(movement.constant, (), movement.Constant(zero), scalar))
    attributes = movement.broadcast.attributes(sizes=x.array_shape.dimensions, dimensions=())
    return Instruction(movement.broadcast, before[-1:], attributes, x.shape, x.source)


def _laid_out(x: Instruction, minor_to_major: tuple[int, ...], before: list[Instruction]) -> Instruction:
    """A copy in another layout, unless x is in that."""
    shape = x.array_shape
    if shape.major_to_minor == minor_to_major[::-1]:
        return x
    attributes = hlo_only.copy.attributes()
    before.append(Instruction(hlo_only.copy, (x,), attributes, shape.in_layout(Layout(minor_to_major)), x.source))
    return before[-1]


def _changed(attributes: Any, change: Callable[[Computation], Computation]) -> Any:
    """The attributes with other computations; the same if none changes."""

    def one(value: Any) -> Any:
        if isinstance(value, Computation):
            return change(value)
        plain = isinstance(value, tuple) and not hasattr(value, "_fields")
        return tuple(map(one, value)) if plain else value

    new: Mapping[str, Any] = {name: one(value) for name, value in attributes._asdict().items()}
    same = all(a is b or (a == b and not _has_computation(a)) for a, b in zip(attributes, new.values(), strict=True))
    return attributes if same else attributes._replace(**new)


def _has_computation(value: Any) -> bool:
    return isinstance(value, Computation) or (isinstance(value, tuple) and any(map(_has_computation, value)))


def as_written(module: Module) -> Module:
    """The module in the form of HLO text."""
    return Module(module.name, _Writer().computation(module.entry), module.attributes)
