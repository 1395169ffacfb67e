"""Jaxprs of parts of functions, as `jax.interpreters.partial_eval` has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.hlo import Computation, Instruction
from tinyxla.jax.jaxprs.avals import get_aval
from tinyxla.jax.jaxprs.jaxpr import SIDE_EFFECTS, DropVar, Jaxpr, JaxprEqn, Var
from tinyxla.jax.jaxprs.primitives.catalogue import primitives
from tinyxla.jax.jaxprs.staging import closed_jaxpr
from tinyxla.jax.jaxprs.translation import of_computation
from tinyxla.jax.tracing.linear_util import WrappedFun
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


# --- dead code elimination --------------------------------------------------------------------------------------------

Flags = Sequence[bool]
DceRule = Callable[[list[bool], JaxprEqn], tuple[list[bool], JaxprEqn | None]]


def dce_jaxpr(jaxpr: Jaxpr, used_outputs: Flags, instantiate: bool | Flags = False) -> tuple[Jaxpr, list[bool]]:
    """Dead code elimination: the equations that the used results need, and which inputs these use.

    Args:
        jaxpr: an open one.
        used_outputs: which of its results are used.
        instantiate: inputs that are kept all the same.
    """
    outputs = [v for v, used in zip(jaxpr.outvars, used_outputs, strict=True) if used]
    live = {v for v in outputs if isinstance(v, Var)}
    kept: list[JaxprEqn] = []
    for eqn in reversed(jaxpr.eqns):
        needed, made = dce_rules.get(eqn.primitive, _whole)([v in live for v in eqn.outvars], eqn)
        if made is not None:
            kept.append(made.replace(outvars=[v if v in live else DropVar(v.aval) for v in made.outvars]))
        live.update(v for v, need in zip(eqn.invars, needed, strict=True) if need and isinstance(v, Var))
    needs = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    used = [v in live or n for v, n in zip(jaxpr.invars, needs, strict=True)]
    return jaxpr.replace(invars=chosen(jaxpr.invars, used), outvars=outputs, eqns=kept[::-1]), used


def _is_dead(used: Flags, eqn: JaxprEqn) -> bool:
    return not any(used) and SIDE_EFFECTS.isdisjoint(eqn.effects)


def _whole(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The rule of a primitive that needs all operands for any result."""
    is_dead = _is_dead(used, eqn)
    return [not is_dead] * len(eqn.invars), None if is_dead else eqn


def _eliminated(closed: Any, used: Flags, instantiate: bool | Flags = False) -> tuple[Any, list[bool]]:
    """Dead code elimination in a jaxpr, be it closed or open."""
    if isinstance(closed, Jaxpr):
        return dce_jaxpr(closed, used, instantiate)
    jaxpr, needed = dce_jaxpr(closed.jaxpr, used, instantiate)
    return closed.replace(jaxpr=jaxpr), needed


def _kept(eqn: JaxprEqn, used: Flags, needed: Flags, **params: Any) -> JaxprEqn:
    """An equation with the used results and needed operands alone."""
    operands, results = chosen(eqn.invars, needed), chosen(eqn.outvars, used)
    return eqn.replace(invars=operands, outvars=results, params=eqn.params | params)


def _inside(name: str) -> DceRule:
    """The rule of a call of the jaxpr that a parameter is."""

    def rule(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        if _is_dead(used, eqn):
            return _whole(used, eqn)
        jaxpr, needed = _eliminated(eqn.params[name], used)
        donated = eqn.params.get("donated_invars")
        params = {name: jaxpr} | ({} if donated is None else {"donated_invars": tuple(chosen(donated, needed))})
        return needed, _kept(eqn, used, needed, **params)

    return rule


def _of_parts(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The rule of `shard_map`: operands and results have specs."""
    if _is_dead(used, eqn):
        return _whole(used, eqn)
    jaxpr, needed = _eliminated(eqn.params["jaxpr"], used)
    ins, outs = (tuple(chosen(eqn.params[name], flags)) for name, flags in (("in_specs", needed), ("out_specs", used)))
    return needed, _kept(eqn, used, needed, jaxpr=jaxpr, in_specs=ins, out_specs=outs)


def _of_scan(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """A carry counts if it is used after the loop or in a step for another one that counts."""
    if _is_dead(used, eqn):
        return _whole(used, eqn)
    constants, count = eqn.params["num_consts"], eqn.params["num_carry"]
    carried, used = slice(constants, constants + count), list(used)
    while True:
        needs = [constants <= k < constants + count and used[k - constants] for k in range(len(eqn.invars))]
        jaxpr, needed = _eliminated(eqn.params["jaxpr"], used, needs)
        if needed[carried] == used[:count]:
            break
        used[:count] = needed[carried]
    counts = {"num_consts": sum(needed[:constants]), "num_carry": sum(used[:count])}
    return needed, _kept(eqn, used, needed, jaxpr=jaxpr, **counts)


def _of_cond(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """An operand counts if it does in any branch."""
    if _is_dead(used, eqn):
        return _whole(used, eqn)
    branches = eqn.params["branches"]
    needed = [any(flags) for flags in zip(*(_eliminated(b, used)[1] for b in branches), strict=True)]
    found = tuple(_eliminated(b, used, needed)[0] for b in branches)
    return [True, *needed], _kept(eqn, used, [True, *needed], branches=found)


def _with_rule(name: str) -> DceRule:
    """The rule of a function with derivatives of its own, which a parameter is: these take all operands."""

    def rule(used: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        if _is_dead(used, eqn):
            return _whole(used, eqn)
        jaxpr, needed = _eliminated(eqn.params["call_jaxpr"], used, True)
        return needed, _kept(eqn, used, needed, call_jaxpr=jaxpr, **{name: eqn.params[name].only(tuple(used))})

    return rule


dce_rules: dict[Any, DceRule] = {
    **{primitives[name]: _inside("jaxpr") for name in ("jit", "remat2")},
    **{primitives[name]: _inside("call_jaxpr") for name in ("call", "closed_call")},
    primitives["custom_jvp_call"]: _with_rule("jvp_jaxpr_fun"),
    primitives["custom_vjp_call"]: _with_rule("fwd_jaxpr_thunk"),
    primitives["shard_map"]: _of_parts,
    primitives["scan"]: _of_scan,
    primitives["cond"]: _of_cond,
}
