"""Jaxprs of parts of functions, as `jax.interpreters.partial_eval` has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.jax.avals import get_aval
from tinyxla.jax.jaxprs import IO_EFFECT, DropVar, Jaxpr, Var
from tinyxla.jax.linear_util import WrappedFun
from tinyxla.jax.staging import closed_jaxpr
from tinyxla.jax.translation import of_computation
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import GraphTracer, trace
from tinyxla.tracing.promotion import as_array
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
    jaxpr, constants = of_computation(made, len(shapes), fun.__name__, weak)
    partial = [PartialVal.unknown(get_aval(x)) if recorded(x) else PartialVal.known(x) for x in results]
    return jaxpr, partial, [*captured, *constants]


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
