"""Operations as primitives that traces of programs process.

An op is translated as a computation of nothing else would be into a jaxpr, and the trace processes each equation. Known
scalars, also those that are repeated to a shape, are operands as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.jax.jaxprs.jaxpr import Literal as Known
from tinyxla.jax.jaxprs.primitives.catalogue import primitives
from tinyxla.jax.jaxprs.primitives.op_translations import is_argument_reduction
from tinyxla.jax.jaxprs.primitives.program_primitives import PrimitiveRule
from tinyxla.jax.jaxprs.traces.current_trace import (
    JaxTrace as JaxTrace,
    JaxTracer as JaxTracer,
    ProgramTrace,
    set_record,
)
from tinyxla.jax.jaxprs.traces.recording import Region
from tinyxla.jax.jaxprs.traces.rule_calls import jvp_call, vjp_call
from tinyxla.jax.jaxprs.traces.typed_numbers import typed
from tinyxla.jax.jaxprs.translation import Translation, is_known
from tinyxla.ops import calls, elementwise, movement
from tinyxla.shapes import Shape, TupleShape
from tinyxla.tracing.array import ConcreteArray, wrap
from tinyxla.tracing.core import infer_shape
from tinyxla.transforms.calls import call
from tinyxla.transforms.custom import CustomJvp, CustomVjp, Rule

Params = dict[str, Any]


def record(trace: ProgramTrace, op: Any, operands: tuple[Any, ...], attributes: Params) -> Any:
    """The results of an op, or of a function with a rule of its own, as a trace processes its primitives."""
    if isinstance(op, Rule):
        return tuple(_applied(trace, op, operands))
    if op is movement.constant:
        return ConcreteArray(attributes["literal"].value)
    if op is movement.broadcast and type(operands[0]) is ConcreteArray and not operands[0].ndim:
        (x,) = operands
        shape = infer_shape(op, (Shape.of(x),), attributes)
        return ConcreteArray(np.broadcast_to(x.buffer(), shape.dimensions), x.weak_type)  # type: ignore[union-attr]
    if op.expand is not None and not is_known(op):  # JAX has no such primitive, but those that it is made of
        return op.expand(*operands, **op.attributes(**attributes)._asdict())
    return _Single(op, operands, attributes).processed(trace)


def _applied(trace: ProgramTrace, rule: Rule, values: Sequence[Any]) -> Sequence[Any]:
    if isinstance(rule, (Region, PrimitiveRule)):
        return trace.processed(rule.primitive, values, rule.params)
    if isinstance(rule, CustomJvp) and (not isinstance(rule.key, str) or _has_rules(trace)):
        return trace.processed(primitives["custom_jvp_call"], values, jvp_call(rule, rule.function))
    if isinstance(rule, CustomVjp):
        return trace.processed(primitives["custom_vjp_call"], values, vjp_call(rule, rule.function))
    if isinstance(rule, CustomJvp) and isinstance(rule.key, str):
        return rule.function(*values)
    shapes, weak = [Shape.of(x) for x in values], [x.weak_type for x in values]
    made, captured, _ = rule.traced(shapes, weak, trace.recordings)
    found = record(trace, call, (*values, *captured), {"to_apply": made, "rule": rule})
    return found if isinstance(found, tuple) else (found,)


def _has_rules(trace: ProgramTrace) -> bool:
    """Whether a trace processes rules of `custom_jvp`. For one that does not, functions of the library that have
    some are what they are made of: they are primitives, or without a rule, in JAX."""
    return type(trace).process_custom_jvp_call is not ProgramTrace.process_custom_jvp_call


class _Single:
    """A computation of one op. What its operands are, and which scalars they repeat, is known."""

    def __init__(self, op: Any, operands: Sequence[Any], attributes: Params) -> None:
        self.values: dict[Instruction, Any] = {}
        self.instructions: list[Instruction] = []
        inputs = [self._input(x) for x in operands]
        if op.name in elementwise.NAMES:
            sizes = max((x.shape for x in operands), key=len)
            inputs = [self._repeated(x, sizes) if x.array_shape.dimensions != sizes else x for x in inputs]
        shape = infer_shape(op, tuple(x.shape for x in inputs), attributes)
        self.result = self._append(op, inputs, op.attributes(**attributes), shape)

    def _append(self, op: Any, inputs: Sequence[Instruction], attributes: Any, shape: Any) -> Instruction:
        self.instructions.append(Instruction(op, inputs, attributes, shape, None))
        return self.instructions[-1]

    def _input(self, x: Any) -> Instruction:
        scalar = _scalar(x)
        if scalar is None:
            shape = Shape.of(x)
            made = self._append(movement.parameter, (), movement.Parameter(len(self.values), shape), shape)
            self.values[made] = x
            return made
        literal = Literal(scalar)
        made = self._append(movement.constant, (), movement.Constant(literal), Shape.of(scalar))
        if not x.ndim:
            return made
        return self._repeated(made, x.shape)

    def _repeated(self, scalar: Instruction, sizes: tuple[int, ...]) -> Instruction:
        attributes = {"sizes": sizes, "dimensions": ()}
        shape = infer_shape(movement.broadcast, (scalar.shape,), attributes)
        return self._append(movement.broadcast, (scalar,), movement.broadcast.attributes(**attributes), shape)

    def processed(self, trace: ProgramTrace) -> Any:
        """The result, or a tuple of them, after a trace has processed the equations."""
        outputs = [self.result]
        if isinstance(self.result.shape, TupleShape):
            parts = enumerate(self.result.shape.elements)
            taken = [(calls.GetTupleElement(k), part) for k, part in parts]
            outputs = [self._append(calls.get_tuple_element, (self.result,), a, part) for a, part in taken]
        if is_argument_reduction(self.result):
            outputs = outputs[1:]  # nothing here uses the extremum beside its index
        root = self._append(
            calls.tuple_, outputs, calls.tuple_.attributes(), TupleShape(tuple(x.shape for x in outputs))
        )
        computation = Computation("op", list(self.values), self.instructions, root)
        found = _evaluated(computation, self.values, trace)
        if is_argument_reduction(self.result):
            return None, found[0]
        return tuple(found) if isinstance(self.result.shape, TupleShape) else found[0]


def _evaluated(computation: Computation, values: dict[Instruction, Any], trace: ProgramTrace) -> list[Any]:
    translation = Translation(computation)
    results = translation.outputs(())
    known: dict[Any, Any] = {translation.variable(x): value for x, value in values.items()}

    def read(atom: Any) -> Any:
        return wrap(np.asarray(atom.val)) if isinstance(atom, Known) else known[atom]

    for eqn in translation.equations:
        found = trace.processed(eqn.primitive, list(map(read, eqn.invars)), eqn.primitive.get_bind_params(eqn.params))
        known.update(zip(eqn.outvars, found, strict=True))
    return list(map(read, results))


def _scalar(x: Any) -> Any:
    """The number that an array is, or that it repeats; None if it is neither."""
    if type(x) is not ConcreteArray:
        return None
    value = np.asarray(x.buffer())
    return None if value.size == 0 or any(value.strides) else value[(0,) * value.ndim]


set_record(record, typed)
