"""Jaxprs of parts of functions, as `jax.interpreters.partial_eval` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.hlo import Computation, Instruction
from tinyxla.jax.avals import get_aval
from tinyxla.jax.jaxprs import IO_EFFECT, DropVar, Jaxpr, Var
from tinyxla.jax.linear_util import WrappedFun
from tinyxla.jax.staging import closed_jaxpr
from tinyxla.jax.translation import of_computation
from tinyxla.ops.calls import get_tuple_element
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import GraphTracer, trace
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.computations import chosen, effects, subgraph
from tinyxla.transforms.key_arrays import KeyArray


class PartialVal(tuple[Any, Any]):
    """A value that is known, or its type."""

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        return cls((aval, None))

    @classmethod
    def known(cls, value: Any) -> PartialVal:
        return cls((None, value))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        return self[1]

    def get_aval(self) -> Any:
        return self[0]


def trace_to_jaxpr_nounits(fun: WrappedFun, values: Sequence[PartialVal], instantiate: Any = False) -> Any:
    """Partial evaluation: what depends on known values alone is computed, and the remainder is recorded.

    Args:
        fun: a function of flat lists.
        values: its arguments, known ones and types.
        instantiate: record known results, too.

    Returns:
        The jaxpr of the unknown arguments and results, all results as `PartialVal`s, and the jaxpr's constants.
    """
    results: list[Any] = []

    def recorded(x: Any) -> bool:
        words = x.words if isinstance(x, KeyArray) else x
        return bool(instantiate) or (isinstance(words, GraphTracer) and words.instruction in own)

    own: set[Any] = set()

    def function(*leaves: Any) -> list[Any]:
        given = iter(pytrees.unflatten(structure, leaves))
        found = fun.call_wrapped(*[v.get_known() if v.is_known() else next(given) for v in values])
        results.extend(x if isinstance(x, KeyArray) else as_array(x) for x in found)
        own.update(leaves[0].owner.instructions if leaves else ())
        return pytrees.leaves([x for x in results if recorded(x)])

    unknown = [ShapeDtypeStruct(v[0].shape, v[0].dtype) for v in values if not v.is_known()]
    structs, structure = pytrees.flatten(unknown)  # keys are their words
    shapes = [Shape(element_type(x.dtype), x.shape) for x in structs]
    made, captured, weak = trace(function, shapes, fun.__name__, staging=False)
    operands = [*(None for _ in shapes), *captured]
    found = [None] * len(made.outputs) if instantiate else _known_outputs(made, operands)
    unfound = [value is None for value in found]
    if not all(unfound):
        made = subgraph(made.name, made.parameters, chosen(made.outputs, unfound), effects=effects(made))
    jaxpr, constants = of_computation(made, len(shapes), fun.__name__, chosen(weak, unfound))
    recorded_values = iter(found)
    partial: list[PartialVal] = []
    for x in results:
        value = next(recorded_values) if recorded(x) else x
        if value is None:
            partial.append(PartialVal.unknown(get_aval(x)))
        else:
            is_words = isinstance(x, KeyArray) and value is not x
            partial.append(PartialVal.known(KeyArray(x.dtype, value) if is_words else value))
    return jaxpr, partial, [*captured, *constants]


def _known_outputs(computation: Computation, operands: Sequence[Any]) -> list[Any]:
    """The outputs of a computation that do not depend on unknown operands (None); None for the others. Calls are
    looked into, but for those with rules."""
    unknown = _unknown(computation, [x is None for x in operands])
    wanted = {x for x in computation.outputs if not all(unknown[x])}
    for x in reversed(computation.instructions):
        if x in wanted:
            wanted.update(o for o in x.operands if not all(unknown[o]))
    values: dict[Instruction, Any] = dict(zip(computation.parameters, operands, strict=True))
    for x in computation.instructions:
        if x not in wanted or x in values:
            continue
        inputs: list[Any] = [values.get(o) for o in x.operands]
        if any(unknown[x]):
            values[x] = _known_outputs(x.attributes.to_apply, inputs)
        elif x.op is get_tuple_element:
            values[x] = inputs[0][x.attributes.index]
        else:
            values[x] = x.op(*inputs, **x.attributes._asdict())
    return [values.get(x) for x in computation.outputs]


def _unknown(computation: Computation, operands: Sequence[bool]) -> dict[Instruction, tuple[bool, ...]]:
    """For each instruction, which of its results depend on the operands that are marked."""
    found: dict[Instruction, tuple[bool, ...]] = {
        p: (mark,) for p, mark in zip(computation.parameters, operands, strict=True)
    }
    for x in computation.instructions:
        if x in found:
            continue
        marks = [any(found[o]) for o in x.operands]
        if x.op is get_tuple_element:
            found[x] = (found[x.operands[0]][x.attributes.index],)
        elif x.op.name == "call" and not x.attributes.rule and any(marks):
            inner = _unknown(x.attributes.to_apply, marks)
            found[x] = tuple(any(inner[y]) for y in x.attributes.to_apply.outputs)
        else:
            found[x] = (any(marks),) * (len(x.shape.elements) if isinstance(x.shape, TupleShape) else 1)
    return found


def trace_to_jaxpr_dynamic(fun: WrappedFun, avals: Sequence[Any], **ignored: Any) -> Any:
    """The jaxpr of a flat function for arguments of these types, the types of its results, and constants."""
    closed, _, _ = closed_jaxpr(fun.call_wrapped, tuple(ShapeDtypeStruct(a.shape, a.dtype) for a in avals))
    return closed.jaxpr, closed.out_avals, closed.consts


def dce_jaxpr(jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False) -> Any:
    """Dead code elimination: the equations that the used results need, and which inputs these use."""
    outputs = [v for v, used in zip(jaxpr.outvars, used_outputs, strict=True) if used]
    live = {v for v in outputs if isinstance(v, Var)}
    kept: list[Any] = []
    for eqn in reversed(jaxpr.eqns):
        if IO_EFFECT in eqn.effects or any(v in live for v in eqn.outvars):
            kept.append(eqn.replace(outvars=[v if v in live else DropVar(v.aval) for v in eqn.outvars]))
            live.update(v for v in eqn.invars if isinstance(v, Var))
    needs = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    used = [v in live or n for v, n in zip(jaxpr.invars, needs, strict=True)]
    inputs = [v for v, u in zip(jaxpr.invars, used, strict=True) if u]
    return jaxpr.replace(invars=inputs, outvars=outputs, eqns=kept[::-1]), used
