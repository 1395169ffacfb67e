"""NaN-separated extrema: innermost reductions to the minimum or maximum of floats, rewritten so that LLVM vectorizes
them.

The result is NaN if any element is. x86's instructions do not propagate NaN, so that a step takes three dependent
operations. So the loop reduces the NaN tests separately from the extremum of numbers, which may be arbitrary if there
is a NaN. The initial value may be NaN, too, and is compared once more after the loop. (Combined with the loop's flag by
"or" it would be moved into the loop, and short loops would not be vectorized.)

If the element is a select between a masked element and an infinity (the identity), LLVM turns the step into a select
between the old and the new extremum, and does not vectorize it. So infinities are made opaque to LLVM.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from tinyxla.loopir.ir.affine import WIDE
from tinyxla.loopir.ir.loop_ir import INDEX, Compute, Literal, Load, Loop, LoopCarried, Operand, Statement, Store, Value

_NUMBER_EXTREMA = {"maximum": "maximum-of-numbers", "minimum": "minimum-of-numbers"}
_INFINITIES = {"f16": ("u16", 0x7C00), "bf16": ("u16", 0x7F80), "f32": ("u32", 0x7F800000), "f64": ("u64", 0x7FF << 52)}


def split_nan_check(loop: Loop, opaque: Value) -> tuple[list[Statement], Loop, list[Statement]]:
    """The statements before an innermost loop, the rewritten loop, and the statements after it. `opaque` is a
    nonnegative index whose value LLVM does not know."""
    if loop.sequential or any(not isinstance(x, (Compute, Load, Store)) for x in loop.body):
        return [], loop, []
    uses, definitions = _uses(loop), {x.result: x for x in loop.body if isinstance(x, Compute)}
    extrema: dict[Value, Compute] = {}
    carried, nan_checks, after = list(loop.carried), list[Statement](), list[Statement]()
    nan_flags: dict[Operand, Value] = {}  # by element: whether one was NaN
    for k, c in enumerate(loop.carried):
        x = definitions.get(c.next) if isinstance(c.next, Value) else None
        if x is None or not _is_extremum_of(x, c) or uses[c.arg] > 1 or uses[x.result] > 1:
            continue
        extrema[x.result] = replace(x, op=_NUMBER_EXTREMA[x.op], attributes=())
        name, extremum = c.result.name, Value(c.result.type, f"{c.result.name}_number")
        carried[k] = replace(c, result=extremum)
        (element,) = (o for o in x.operands if o is not c.arg)
        if element not in nan_flags:
            is_nan_now, nan_so_far, nan_updated, any_nan = (
                Value("pred", f"{name}_{w}") for w in ("now", "inside", "so_far", "ever")
            )
            nan_checks += [_is_nan(is_nan_now, element), Compute(nan_updated, "or", (nan_so_far, is_nan_now))]
            carried.append(LoopCarried(nan_so_far, Literal("pred", False), any_nan, nan_updated))
            nan_flags[element] = any_nan
        loop_result = Value(c.result.type, f"{name}_of_elements")
        after += [
            Compute(loop_result, "select", (nan_flags[element], Literal(c.result.type, math.nan), extremum)),
            Compute(c.result, x.op, (c.init, loop_result), x.attributes),
        ]
    before: list[Statement] = []
    body = [_hide_infinities(x, opaque, before) if extrema and isinstance(x, Compute) else x for x in loop.body]
    body = [extrema.get(x.result, x) if isinstance(x, Compute) else x for x in body]
    return before, replace(loop, body=[*body, *nan_checks], carried=carried), after


def _uses(loop: Loop) -> Counter[Operand | None]:
    """How often each value is used in a loop without inner loops."""
    computed = [o for x in loop.body if isinstance(x, Compute) for o in x.operands]
    stored = [x.value for x in loop.body if isinstance(x, Store)]
    return Counter([*computed, *stored, *(c.next for c in loop.carried)])


def _is_extremum_of(x: Compute, c: LoopCarried) -> bool:
    """True if x is the extremum of floats of which the loop carries the one found so far."""
    return x.op in _NUMBER_EXTREMA and x.result.type in _INFINITIES and c.arg in x.operands


def _is_nan(result: Value, x: Operand) -> Compute:
    return Compute(result, "compare", (x, x), (("direction", "NE"),))


def _hide_infinities(x: Compute, opaque: Value, before: list[Statement]) -> Compute:
    """A select whose infinities LLVM does not recognize, since statements before the loop compute them from
    `opaque`."""
    if x.op != "select" or x.result.type not in _INFINITIES:
        return x
    operands = list(x.operands)
    for k, o in enumerate(operands[1:], 1):
        if isinstance(o, Literal) and math.isinf(o.value):
            bits_type, bits = _INFINITIES[o.type]
            negative, masked, pattern, positive, operands[k] = values = [
                Value(type, f"{x.result.name}_{name}{k}")
                for name, type in zip("abcde", (INDEX, INDEX, bits_type, o.type, o.type), strict=True)
            ]
            before += [
                Compute(negative, "subtract", (Literal(INDEX, 0), opaque), WIDE),
                Compute(masked, "maximum", (negative, Literal(INDEX, bits)), WIDE),
                Compute(pattern, "convert", (masked,)),
                Compute(positive, "bitcast-convert", (pattern,)),
                Compute(values[-1], "negate" if o.value < 0 else "copy", (positive,)),
            ]
    return replace(x, operands=tuple(operands))
