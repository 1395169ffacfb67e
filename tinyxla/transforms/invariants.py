"""What a step of a loop computes from values that stay the same: once before the loop is enough."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, elementwise, movement
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape
from tinyxla.transforms.computations import Mask, subgraph

_MOVEMENT = frozenset("broadcast reshape transpose reverse slice pad concatenate iota dynamic-slice".split())
_OF_ITS_PLACE = frozenset({"custom-call", "opt-barrier", "rng", "rng-get-and-update-state"})


class Hoisted(NamedTuple):
    """`before` computes what does not change from all parameters of a step; `step` takes that after its own."""

    before: Computation
    step: Computation


def unchanged(body: Computation) -> Mask:
    """Which of the values carried stay as they are; further results may come after these."""
    return tuple(x is p for x, p in zip(body.outputs, body.parameters, strict=False))


def is_movement(x: Instruction) -> bool:
    """Whether it only moves elements, or has none to compute: free where it is read."""
    return x.op.name in _MOVEMENT or x.op is movement.constant


def is_cheap(x: Instruction) -> bool:
    """Whether computing it again costs about what reading it would."""
    return is_movement(x) or (x.op.name in elementwise.NAMES and x.op.cost.work == 1)


@lru_cache(512)
def hoisted(step: Computation, same: Mask) -> Hoisted | None:
    """The step of a loop with what it computes from the parameters that stay the `same`, and from constants, taken out
    as far as that is worth while (None: nothing is). What only moves elements stays: it is free inside."""
    fixed = {p for p, stays in zip(step.parameters, same, strict=True) if stays}
    for x in step.instructions:
        if all(o in fixed for o in x.operands) and x.op.name not in ("parameter", "tuple") and not _stays(x):
            fixed.add(x)
    found: dict[Instruction, None] = {}
    for x in step.instructions:
        if x not in fixed:
            for o in x.operands:
                if o in fixed:
                    found.update((y, None) for y in computed(o) if _is_worth(y) or _reads_memory(x))
    if not found:
        return None
    before = subgraph(f"{step.name}_before", step.parameters, list(found))
    parameters = [*step.parameters, *found]
    as_tuple = step.root.op is calls.tuple_
    effects = [x for x in step.instructions if x.has_side_effect]
    return Hoisted(before, subgraph(step.name, parameters, step.outputs, as_tuple, effects))


def carrying(step: Computation, own: int) -> Computation:
    """With what comes after its `own` parameters handed on to the next step."""
    results = [*step.outputs, *step.parameters[own:]]
    effects = [x for x in step.instructions if x.has_side_effect]
    return subgraph(step.name, step.parameters, results, effects=effects)


def _stays(x: Instruction) -> bool:
    """Whether it must run where it stands, as often as it does there."""
    inside = (y for called in x.computations() for y in called.instructions)
    return x.op.name in _OF_ITS_PLACE or x.has_side_effect or any(map(_stays, inside))


def computed(x: Instruction) -> list[Instruction]:
    """What an instruction is moved from."""
    if x.op is movement.parameter:
        return []
    return [y for o in x.operands for y in computed(o)] if is_movement(x) else [x]


def _is_worth(x: Instruction) -> bool:
    """Whether memory for it is well spent: it costs more than to read it, or is no larger than what it is made of."""
    if not isinstance(x.shape, Shape):
        return False
    seen: set[Instruction] = set()
    waiting, size = [x], 0
    while waiting:
        y = waiting.pop()
        if y in seen:
            continue
        seen.add(y)
        if not is_cheap(y) and y.op is not movement.parameter and y.op is not calls.get_tuple_element:
            return True
        if y.op is movement.parameter or (y.op is movement.constant and y.array_shape.size > 1):
            size += y.array_shape.size
        waiting.extend(y.operands)
    return 1 < x.array_shape.size <= size


def _reads_memory(x: Instruction) -> bool:
    """Whether there is memory for its operands in any case."""
    is_product = x.op is contraction.dot and len(x.attributes.lhs_contracting_dims) > 0
    return is_product and x.array_shape.element_type.name in ("f32", "f64", "c64", "c128")


def counting(body: Computation) -> dict[int, int]:
    """Which of the values carried are integers that grow by a constant in every step, and by which."""
    found = {k: step_of(body, k) for k, x in enumerate(body.parameters) if _is_counter(x.shape)}
    return {k: step for k, step in found.items() if step is not None}


def _is_counter(shape: object) -> bool:
    return isinstance(shape, Shape) and not shape.rank and shape.element_type.name in ("s32", "s64", "u32", "u64")


def step_of(body: Computation, number: int) -> int | None:
    """What the body adds to one of its parameters, if that is a constant."""
    x, parameter = body.outputs[number], body.parameters[number]
    if x.op not in (elementwise.add, elementwise.sub) or list(x.operands).count(parameter) != 1:
        return None
    first, second = x.operands
    if x.op is elementwise.sub:
        found = literal_of(second) if first is parameter else None
        return None if found is None else -found
    return literal_of(second if first is parameter else first)


def literal_of(x: Instruction) -> int | None:
    """The number that a scalar constant is."""
    return x.attributes.literal.value.item() if x.op is movement.constant and not x.array_shape.rank else None
