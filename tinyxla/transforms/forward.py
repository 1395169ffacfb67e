"""Forward mode: tracers that carry a value and its tangent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import DifferentiationError
from tinyxla.ops import Op, elementwise
from tinyxla.ops.op import Bilinear, Decomposition, Joint, Linear, NotDifferentiable, Partials, Rules, Zero
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import CarryingTracer, Trace, state
from tinyxla.transforms.reverse import derivative_of, is_inexact, zeros_like


class TangentTracer(CarryingTracer):
    __slots__ = ("tangent",)

    owner: TangentTrace

    def __init__(self, trace: TangentTrace, value: Array, tangent: Array) -> None:
        self.owner = trace
        self.carried = value
        self.tangent = tangent

    def copy(self) -> TangentTracer:
        return TangentTracer(self.owner, self.carried.copy(), self.tangent.copy())


class TangentTrace(Trace):
    what = "a differentiated function (jvp)"

    def split(self, x: Any) -> tuple[Any, Any]:
        """Value and tangent (None: zero)."""
        return (x.carried, x.tangent) if isinstance(x, TangentTracer) and x.owner is self else (x, None)

    def join(self, value: Any, tangent: Any) -> Any:
        return value if tangent is None or not is_inexact(value) else TangentTracer(self, value, tangent)

    def record(self, op: Op, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        derivative = derivative_of(op, operands, attributes)
        if isinstance(derivative, Decomposition):
            return derivative.decompose(*operands, **attributes)
        if isinstance(derivative, NotDifferentiable):
            raise DifferentiationError(f"{op.name} has no derivative: {derivative.reason}.", state.source)
        pairs = [self.split(x) for x in operands]
        values, tangents = tuple(v for v, _ in pairs), tuple(t for _, t in pairs)
        if isinstance(derivative, Joint):
            return self.joined(*derivative.forward(tangents, *values, **attributes))
        ans = op(*values, **attributes)
        if isinstance(derivative, Zero):
            return ans
        if isinstance(derivative, Rules):
            tangent = derivative.jvp(tangents, ans, *values, **attributes)
        elif isinstance(derivative, Partials):
            tangent = _total(
                partial(t, ans, *values, **attributes)
                for t, partial in zip(tangents, derivative.partials, strict=True)
                if t is not None and partial is not None
            )
        elif isinstance(derivative, Linear):
            tangent = _linear(op, derivative, values, tangents, attributes)
        else:
            assert isinstance(derivative, Bilinear)
            (x, y), (dx, dy) = values, tangents
            sides = [(dx, y)] if dx is not None else []
            sides += [(x, dy)] if dy is not None else []
            tangent = _total(op(*side, **attributes) for side in sides)
        return self.joined(ans, tangent)

    def joined(self, ans: Any, tangent: Any) -> Any:
        """A result and its tangent, or tuples of both, as tracers."""
        if isinstance(ans, tuple):
            tangents = tangent or (None,) * len(ans)
            return tuple(self.join(a, t) for a, t in zip(ans, tangents, strict=True))
        return self.join(ans, tangent)


def _linear(
    op: Op, rule: Linear, values: tuple[Any, ...], tangents: tuple[Any, ...], attributes: dict[str, Any]
) -> Any:
    """The op on the tangents of the operands in which it is linear, and on the others' values."""
    linear = range(len(values)) if rule.operands is None else rule.operands
    if all(tangents[k] is None for k in linear):
        return None
    inputs = list(values)
    for k in linear:
        inputs[k] = zeros_like(values[k]) if tangents[k] is None else tangents[k]
    return op(*inputs, **attributes)


def _total(parts: Any) -> Any:
    total = None
    for part in parts:
        total = part if total is None else elementwise.add(total, part)
    return total


def jvp(
    function: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any], scope: str = ""
) -> tuple[list[Any], list[Any]]:
    """`function(*primals)`, which returns a flat list, and the tangents of the results (None: zero). Name stacks
    call it `scope`."""
    forward = TangentTrace()
    forward.scope = scope
    forward.function = function

    def apply() -> list[tuple[Any, Any]]:
        inputs = [forward.join(x, t) for x, t in zip(primals, tangents, strict=True)]
        return [forward.split(x) for x in function(*inputs)]

    outputs = forward.run(apply)
    return [value for value, _ in outputs], [tangent for _, tangent in outputs]
