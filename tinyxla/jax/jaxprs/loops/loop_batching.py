"""Batching of loops and branches that jaxprs show: a mapped `scan` is a scan of the mapped body, a mapped `cond` whose
index is the same for all lanes is one of mapped branches, and a mapped `while` is one of a mapped body, whose condition
has an element for each lane: those that are false keep their values. What else is mapped is shown as its ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.jax.jaxprs.jaxpr import ClosedJaxpr, jaxpr_as_fun
from tinyxla.jax.jaxprs.staging import restaged_jaxpr
from tinyxla.jax.jaxprs.traces.recording import Batched, Batcher, Region
from tinyxla.ops import movement
from tinyxla.ops.op import Axes
from tinyxla.transforms.custom import Lanes

Flags = list[bool]


def _mapped_jaxpr(closed: ClosedJaxpr, lanes: Lanes, is_mapped: Flags, wanted: Flags) -> tuple[ClosedJaxpr, Flags]:
    """A jaxpr mapped over the first axis of some operands: it, and which of its results are mapped, over the first axis
    again. Those that are wanted so are."""
    flows: Flags = []

    def function(*values: Any) -> list[Any]:
        places = [0 if m else None for m in is_mapped]
        found = lanes.map(lambda inputs: jaxpr_as_fun(closed)(*inputs), values, places)
        flows[:] = [axis is not None or w for axis, w in zip(found.axes, wanted, strict=True)]
        return _aligned(lanes, found.values, found.axes, flows, [0] * len(flows))

    return restaged_jaxpr(function, _structs(closed, lanes, is_mapped)), flows


def _structs(closed: ClosedJaxpr, lanes: Lanes, is_mapped: Flags) -> tuple[ShapeDtypeStruct, ...]:
    """The types of a jaxpr's inputs, some of them mapped over the first axis."""
    avals = [v.aval for v in closed.jaxpr.invars]
    shapes = [(lanes.size,) * m + a.shape for a, m in zip(avals, is_mapped, strict=True)]
    return tuple(ShapeDtypeStruct(s, a.dtype) for s, a in zip(shapes, avals, strict=True))


def _settled(closed: ClosedJaxpr, lanes: Lanes, is_mapped: Flags, carried: slice) -> tuple[ClosedJaxpr, Flags, Flags]:
    """The mapped body of a loop: a carry that becomes mapped in a step is so from the beginning. It, which operands are
    mapped, and which results."""
    is_mapped = list(is_mapped)
    while True:
        carry = is_mapped[carried]
        wanted = carry + [False] * (len(closed.out_avals) - len(carry))
        mapped, flows = _mapped_jaxpr(closed, lanes, is_mapped, wanted)
        if flows[: len(carry)] == carry:
            return mapped, is_mapped, flows
        is_mapped[carried] = flows[: len(carry)]


def _aligned(
    lanes: Lanes, operands: Sequence[Any], axes: Sequence[int | None], is_mapped: Flags, places: Sequence[int]
) -> list[Any]:
    """The operands with their mapped axes at these places."""
    found: list[Any] = []
    for x, axis, mapped, place in zip(operands, axes, is_mapped, places, strict=True):
        found.append(movement.align_axis(x, axis, place, lanes.size) if mapped else x)
    return found


def _applied(made: Region, lanes: Lanes, params: dict[str, Any], operands: Sequence[Any]) -> tuple[Any, ...]:
    return made.applied_to_lanes(lanes, params, lambda *x: made.primitive.bind(*x, **params), operands)


def _scan(made: Region, lanes: Lanes, operands: Sequence[Any], axes: Axes) -> Batched:
    """The mapped axis is the first of constants and carries, and the second one of what is scanned."""
    constants, carry = made.params["num_consts"], made.params["num_carry"]
    carried = slice(constants, constants + carry)
    closed, is_mapped, flows = _settled(made.params["jaxpr"], lanes, [a is not None for a in axes], carried)
    places = [0] * carried.stop + [1] * (len(operands) - carried.stop)
    operands = _aligned(lanes, operands, axes, is_mapped, places)
    outputs = _applied(made, lanes, made.params | {"jaxpr": closed}, operands)
    return outputs, [(int(k >= carry) if m else None) for k, m in enumerate(flows)]


def _while(made: Region, lanes: Lanes, operands: Sequence[Any], axes: Axes) -> Batched:
    """A loop whose lanes end at steps of their own has a condition with an element for each; so it is mapped again."""
    params, is_mapped = made.params, [a is not None for a in axes]
    first = params["cond_nconsts"]
    second = first + params["body_nconsts"]
    carried = slice(second - first, len(operands) - first)
    body, of_body, flows = _settled(params["body_jaxpr"], lanes, is_mapped[first:], carried)
    has_lanes = [bool(params["cond_jaxpr"].out_avals[0].shape)]
    test, (varies,) = _mapped_jaxpr(params["cond_jaxpr"], lanes, is_mapped[:first] + flows, has_lanes)
    if varies and not all(flows):
        flows = [True] * len(flows)
        test, _ = _mapped_jaxpr(params["cond_jaxpr"], lanes, is_mapped[:first] + flows, [True])
        of_body[carried] = flows
        body, _ = _mapped_jaxpr(params["body_jaxpr"], lanes, of_body, flows)
    is_mapped = is_mapped[:first] + of_body
    operands = _aligned(lanes, operands, axes, is_mapped, [0] * len(operands))
    outputs = _applied(made, lanes, params | {"cond_jaxpr": test, "body_jaxpr": body}, operands)
    return outputs, [0 if m else None for m in flows]


def _cond(made: Region, lanes: Lanes, operands: Sequence[Any], axes: Axes) -> Batched:
    if axes[0] is not None:  # lanes take branches of their own
        return None
    is_mapped = [a is not None for a in axes]
    branches = made.params["branches"]
    found = [_mapped_jaxpr(b, lanes, is_mapped[1:], [False] * len(b.out_avals))[1] for b in branches]
    wanted = [any(flows) for flows in zip(*found, strict=True)]
    mapped = tuple(_mapped_jaxpr(b, lanes, is_mapped[1:], wanted)[0] for b in branches)
    operands = _aligned(lanes, operands, axes, is_mapped, [0] * len(operands))
    outputs = _applied(made, lanes, made.params | {"branches": mapped}, operands)
    return outputs, [0 if m else None for m in wanted]


BATCHERS: dict[str, Batcher] = {"scan": _scan, "while": _while, "cond": _cond}
