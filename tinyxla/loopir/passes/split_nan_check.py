"""Loops that find the largest or the least of floats, so that LLVM makes good vectors of them.

The result is NaN if any element is. For x86, whose instruction forgets that, each step then is three operations, each
waiting for the one before it, as are those between the elements of the last vector. So a loop looks for NaN apart from
the extremum of the numbers, which may then be anything where there is one. What the loop began with may be NaN too: it
is compared once more after the loop. (Joined to what the loop found by an "or" it would be drawn into the loop, whose
length LLVM may know, and that would make no vectors.)

Where a choice between an element and the infinity that changes nothing is what is compared - of masked elements - LLVM
makes of it a choice between what was found before and after it, of which it makes no vectors: it must not know which
number the infinity is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from tinyxla.loopir.ir.affine import WIDE
from tinyxla.loopir.ir.loop_ir import INDEX, Compute, Literal, Load, Loop, LoopCarried, Operand, Statement, Store, Value

_OF_NUMBERS = {"maximum": "maximum-of-numbers", "minimum": "minimum-of-numbers"}
_INFINITIES = {"f16": ("u16", 0x7C00), "bf16": ("u16", 0x7F80), "f32": ("u32", 0x7F800000), "f64": ("u64", 0x7FF << 52)}


def split_nan_check(loop: Loop, natural: Value) -> tuple[list[Statement], Loop, list[Statement]]:
    """What comes before an innermost loop, the loop, and what comes after it. `natural` is some number that is not
    negative, which LLVM does not know."""
    computed = [x for x in loop.body if isinstance(x, Compute)]
    stored = [x.value for x in loop.body if isinstance(x, Store)]
    if loop.sequential or any(not isinstance(x, (Compute, Load, Store)) for x in loop.body):
        return [], loop, []
    uses = Counter([*(o for x in computed for o in x.operands), *stored, *(c.next for c in loop.carried)])
    made = {x.result: x for x in computed}
    extrema: dict[Value, Compute] = {}
    carried, more, after = list(loop.carried), list[Statement](), list[Statement]()
    found: dict[Operand, Value] = {}  # by what is looked at: whether it was NaN
    for k, c in enumerate(loop.carried):
        x = made.get(c.next) if isinstance(c.next, Value) else None
        if x is None or x.op not in _OF_NUMBERS or x.result.type not in _INFINITIES or c.arg not in x.operands:
            continue
        if uses[c.arg] > 1 or uses[x.result] > 1:
            continue
        extrema[x.result] = replace(x, op=_OF_NUMBERS[x.op], attributes=())
        name, number = c.result.name, Value(c.result.type, f"{c.result.name}.number")
        carried[k] = replace(c, result=number)
        (other,) = (o for o in x.operands if o is not c.arg)
        if other not in found:
            now, inside, so_far, ever = (Value("pred", f"{name}.{w}") for w in ("now", "inside", "so_far", "ever"))
            more += [_is_nan(now, other), Compute(so_far, "or", (inside, now))]
            carried.append(LoopCarried(inside, Literal("pred", False), ever, so_far))
            found[other] = ever
        of_elements = Value(c.result.type, f"{name}.of_elements")
        after += [
            Compute(of_elements, "select", (found[other], Literal(c.result.type, math.nan), number)),
            Compute(c.result, x.op, (c.init, of_elements), x.attributes),
        ]
    before: list[Statement] = []
    body = [_hidden(x, natural, before) if extrema and isinstance(x, Compute) else x for x in loop.body]
    body = [extrema.get(x.result, x) if isinstance(x, Compute) else x for x in body]
    return before, replace(loop, body=[*body, *more], carried=carried), after


def _is_nan(result: Value, x: Operand) -> Compute:
    return Compute(result, "compare", (x, x), (("direction", "NE"),))


def _hidden(x: Compute, natural: Value, before: list[Statement]) -> Compute:
    """A choice in which LLVM does not see an infinity, which is computed before the loop."""
    if x.op != "select" or x.result.type not in _INFINITIES:
        return x
    operands = list(x.operands)
    for k, o in enumerate(operands[1:], 1):
        if isinstance(o, Literal) and math.isinf(o.value):
            held, bits = _INFINITIES[o.type]
            negative, at_least, number, infinity, operands[k] = made = [
                Value(type, f"{x.result.name}.{name}{k}")
                for name, type in zip("abcde", (INDEX, INDEX, held, o.type, o.type), strict=True)
            ]
            before += [
                Compute(negative, "subtract", (Literal(INDEX, 0), natural), WIDE),
                Compute(at_least, "maximum", (negative, Literal(INDEX, bits)), WIDE),
                Compute(number, "convert", (at_least,)),
                Compute(infinity, "bitcast-convert", (number,)),
                Compute(made[-1], "negate" if o.value < 0 else "copy", (infinity,)),
            ]
    return replace(x, operands=tuple(operands))
