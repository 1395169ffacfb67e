"""Reverse mode: record what is applied to tracers and how to go back, then go back.

A `TapeTracer` carries its value, which is one of the enclosing level - a concrete array outside `jit`, a tracer inside
- so Python can look at it wherever there is one. Each op is applied to the values at once, and its pullback is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tinyxla.errors import DifferentiationError, SourceLine
from tinyxla.ops import Op, elementwise, movement
from tinyxla.ops.op import (
    Bilinear,
    ByAttributes,
    ByOperands,
    Decomposition,
    Derivative,
    Joint,
    Linear,
    NotDifferentiable,
    Partials,
    Rules,
    Zero,
)
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.axis_types import EVERY, with_auto_axes
from tinyxla.tracing.core import CarryingTracer, GraphTracer, Trace, current_scope, state
from tinyxla.util.name_stacks import extended

Pullback = Callable[[Any], Sequence[Any]]  # from the result's cotangent to the operands' (None: zero)


class PartialPullback(NamedTuple):
    """A pullback of cotangents of some results: of those to which a derivative flows."""

    pullback: Callable[[Any], list[Any]]
    flows: Sequence[bool]

    def __call__(self, cotangents: Any) -> list[Any]:
        return self.pullback(cotangents)


class Node(NamedTuple):
    """One op on the tape: how to go back, and which cotangents take part."""

    pullback: Pullback
    operands: tuple[int | None, ...]  # the operands' numbers on the tape
    results: tuple[int | None, ...]  # the results'; None for one without a derivative
    templates: tuple[Any, ...] | None  # the results' values, for the shapes of zeros; None: it takes symbolic ones
    single: bool
    scope: str  # where the op was applied, and so where going back belongs
    source: SourceLine | None  # the same, of what is recorded; a rule of the user's has lines of its own
    maps_zeros: bool  # the pullback of zeros may be another value than zero: it is a rule of the user's

    def back(self, cotangents: list[Any]) -> Any:
        """The cotangents of the operands, given those of the results, of which some are None: zeros."""
        if self.templates is not None:
            pairs = zip(cotangents, self.templates, strict=True)
            cotangents = [zeros_like(x) if g is None else g for g, x in pairs]
        return self.pullback(cotangents[0] if self.single else tuple(cotangents))


class TapeTracer(CarryingTracer):
    __slots__ = ("number",)

    def __init__(self, trace: TapeTrace, value: Array, number: int) -> None:
        self.owner = trace
        self.carried = value
        self.number = number


def is_inexact(x: Any) -> bool:
    return element_type(x.dtype).is_inexact


class TapeTrace(Trace):
    what = "a differentiated function (grad, vjp)"
    tracks = staticmethod(is_inexact)  # which values have cotangents

    def __init__(self, scope: str = "", back_scope: str = "") -> None:
        super().__init__()
        self.scope = scope
        self.back_scope = back_scope  # how name stacks call the way back
        self.around = ""  # the scopes around the function
        self.nodes: list[Node] = []
        self.count = 0

    def _enter(self) -> None:
        self.around = current_scope()

    def track(self, value: Array) -> TapeTracer:
        """A tracer whose cotangent is wanted."""
        self.count += 1
        return TapeTracer(self, value, self.count - 1)

    def number(self, x: Any) -> int | None:
        """That of a tracer of this tape."""
        return x.number if isinstance(x, TapeTracer) and x.owner is self else None

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        derivative = derivative_of(op, operands, attributes)
        if isinstance(derivative, Decomposition):
            return derivative.decompose(*operands, **attributes)
        numbers = tuple(map(self.number, operands))
        values = tuple(x.carried if n is not None else x for x, n in zip(operands, numbers, strict=True))
        wanted = tuple(n is not None for n in numbers)
        ans, pullback = apply(op, derivative, values, wanted, attributes)
        if pullback is None:
            return ans
        results = ans if isinstance(ans, tuple) else (ans,)
        flows = pullback.flows if isinstance(pullback, PartialPullback) else None
        if flows is None and isinstance(derivative, Joint) and derivative.flows is not None:
            flows = derivative.flows(wanted, **attributes)
        if flows is None:
            tracked = tuple(self.track(x) if self.tracks(x) else x for x in results)
        else:
            pairs = zip(results, flows, strict=True)
            tracked = tuple(self.track(x) if flow and self.tracks(x) else x for x, flow in pairs)
        source = _source(results[0]) if type(op) is Op and results else None
        marks = tuple(map(self.number, tracked))
        templates = None if isinstance(derivative, Joint | Rules) and derivative.symbolic_zeros else results
        single, maps_zeros = not isinstance(ans, tuple), getattr(attributes.get("rule") or op, "maps_zeros", False)
        self.nodes.append(Node(pullback, numbers, marks, templates, single, current_scope(), source, maps_zeros))
        return tracked if isinstance(ans, tuple) else tracked[0]

    def backward(self, outputs: Sequence[Any], cotangents: Sequence[Any], inputs: Sequence[TapeTracer]) -> list[Any]:
        """The cotangents of the inputs, given those of the outputs; None where nothing flows.

        A cotangent that a `custom_vjp` rule leaves out is zero, and symbolic as far as the next such rule, which is
        called with zeros, as in JAX: rules return updates of state for cotangents (8-bit floats' scales in Flax).
        """
        found: dict[int, Any] = {}
        zeros: set[int] = set()  # the numbers of those symbolic ones

        def accumulate(number: int | None, cotangent: Any) -> None:
            if number is not None and cotangent is not None:
                found[number] = elementwise.add(found[number], cotangent) if number in found else cotangent

        for output, cotangent in zip(outputs, cotangents, strict=True):
            accumulate(self.number(output), cotangent)
        kept = {x.number for x in inputs}
        outer = state.scope, state.source
        scope = extended(current_scope(), self.back_scope)
        source = outer[1] and outer[1].moved("")
        inside: dict[str, str] = {}  # the scopes of the way back by those of the way there
        try:
            for node in reversed(self.nodes):
                present = _taken(found, node.results, kept)
                if all(g is None for g in present):
                    if zeros.isdisjoint(node.results):
                        continue
                    if not node.maps_zeros:
                        zeros.update(n for n in node.operands if n is not None)
                        continue
                if node.scope not in inside:
                    inside[node.scope] = extended(scope, node.scope[len(self.around) :].lstrip("/"))
                if node.source is None:
                    state.scope, state.source = inside[node.scope], source
                else:  # one line for all that is recorded
                    state.scope, state.source = "", node.source.moved(inside[node.scope])
                back = node.back(present)
                for number, cotangent in zip(node.operands, back, strict=True):
                    accumulate(number, cotangent)
                    if cotangent is None and number is not None and node.maps_zeros:
                        zeros.add(number)
        finally:
            state.scope, state.source = outer
        return [zeros_like(x) if x.number in zeros - found.keys() else found.get(x.number) for x in inputs]


def is_integer(x: Any) -> bool:
    return element_type(x.dtype).is_integer


class IntegerTape(TapeTrace):
    """The tape of a linear function of integers. What has no derivative is not linear."""

    what = "a function that linear_transpose transposes"
    tracks = staticmethod(is_integer)

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        if isinstance(derivative_of(op, operands, attributes), Zero) and any(
            self.number(x) is not None for x in operands
        ):
            raise DifferentiationError(
                f"linear_transpose: the function must be linear, but {op.name} is not, or not of integers.",
                state.source,
            )
        return super().record(op, operands, attributes)


def _taken(found: dict[int, Any], results: Sequence[int | None], kept: set[int]) -> list[Any]:
    """The cotangents of results, which are needed no more unless they are `kept`."""
    present = [found.get(r) if r is not None else None for r in results]
    for r in results:
        if r is not None and r not in kept:
            found.pop(r, None)
    return present


def _source(x: Any) -> SourceLine | None:
    """The line of the instruction that a value is."""
    while isinstance(x, CarryingTracer):
        x = x.carried
    return x.instruction.source if isinstance(x, GraphTracer) else None


def zeros_like(x: Any) -> Any:
    return movement.full(0, x.dtype, x.shape)


def derivative_of(op: Op, operands: Sequence[Any], attributes: dict[str, Any]) -> Derivative:
    found = op.derivative
    if isinstance(found, ByOperands):
        return found.choose(*operands, **attributes)
    return found.choose(**attributes) if isinstance(found, ByAttributes) else found


def apply(
    op: Op, derivative: Derivative, values: tuple[Any, ...], wanted: tuple[bool, ...], attributes: dict[str, Any]
) -> tuple[Any, Pullback | None]:
    """The op on values, and how to go back through it (None: its derivative is zero)."""
    if isinstance(derivative, NotDifferentiable):
        raise DifferentiationError(f"{op.name} has no derivative: {derivative.reason}.", state.source)
    if isinstance(derivative, Joint):
        return derivative.reverse(wanted, *values, **attributes)
    if isinstance(derivative, Rules) and derivative.residuals is not None:
        return derivative.residuals(*values, **attributes)
    ans = op(*values, **attributes)
    if isinstance(derivative, Zero):
        return ans, None
    if isinstance(derivative, Partials):
        partials = derivative.partials

        def by_partials(g: Any) -> list[Any]:
            return [
                partial(g, ans, *values, **attributes) if want and partial else None
                for want, partial in zip(wanted, partials, strict=True)
            ]

        return ans, by_partials
    if isinstance(derivative, Linear):
        linear = derivative.operands

        def by_transpose(g: Any) -> list[Any]:
            cotangents = list(derivative.transpose(g, *values, **attributes))
            if linear is None:
                return cotangents
            spread: list[Any] = [None] * len(values)
            for k, cotangent in zip(linear, cotangents, strict=True):
                spread[k] = cotangent
            return spread

        return ans, by_transpose
    if isinstance(derivative, Bilinear):

        def by_factors(g: Any) -> list[Any]:
            sides = (derivative.left, derivative.right)
            return [side(g, *values, **attributes) if want else None for want, side in zip(wanted, sides, strict=True)]

        return ans, by_factors
    assert isinstance(derivative, Rules)
    return ans, lambda g: derivative.vjp(g, ans, *values, **attributes)


def vjp(
    function: Callable[..., Sequence[Any]],
    inputs: Sequence[Any],
    tape: TapeTrace | None = None,
    scope: str = "",
    back_scope: str = "",
) -> tuple[list[Any], PartialPullback]:
    """`function(*inputs)`, which returns a flat list, and its pullback: from cotangents of the results to those of the
    inputs. It is recorded on a tape of its own, or on one that is given, which must be empty. Name stacks call it
    `scope`, and the pullback `back_scope`."""
    tape = tape or TapeTrace(scope, back_scope)
    tape.function = function

    def apply() -> tuple[list[Any], list[Any]]:
        tracked = [tape.track(x) if tape.tracks(x) else x for x in inputs]
        return tracked, list(function(*tracked))

    tracked, outputs = tape.run(apply)
    values = [x if tape.number(x) is None else x.carried for x in outputs]

    def pullback(cotangents: Sequence[Any]) -> list[Any]:
        active = [tape.number(x) is not None for x in tracked]
        reached = [x for x, a in zip(tracked, active, strict=True) if a]
        found = iter(with_auto_axes(EVERY, lambda: tape.backward(outputs, cotangents, reached)))
        return [next(found) if a else None for a in active]

    return values, PartialPullback(pullback, [tape.number(x) is not None for x in outputs])
