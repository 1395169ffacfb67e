"""Epilogues: what is made of the result of a convolution or of windows element by element, and of nothing that comes
after it, is made where the result is; so the result itself is never written to memory. A bias and an activation are
this, and the division of an average.
"""

from __future__ import annotations

from dataclasses import replace

from tinyxla.compiler.analysis.access_maps import normalize
from tinyxla.compiler.fusion.plan import Fusion, HostCall, Plan, Step, buffer_of, is_leaf, producer_of, walk_producers
from tinyxla.compiler.passes.canonicalize.convolution import is_product
from tinyxla.compiler.passes.canonicalize.reduce_window import is_large
from tinyxla.hlo import Instruction
from tinyxla.ops import convolution, windows


def with_epilogues(plan: Plan) -> Plan:
    """The plan in which such nests belong to others, and are no steps of their own."""
    steps = list(plan.steps)
    after: dict[Instruction, Fusion] = {}
    for step in plan.steps:
        x = step.root if isinstance(step, HostCall) else None
        if x is not None and _has_epilogue(x):
            found = _epilogue(x, steps, plan)
            if found is not None:
                after[x] = found
                steps.remove(found)
    return replace(plan, steps=steps, epilogues=after) if after else plan


def _has_epilogue(x: Instruction) -> bool:
    if x.op is windows.reduce_window:
        sizes = x.operands[0].array_shape.dimensions
        return len(x.operands) == 2 and x.array_shape.size > 1 and not is_large(x.attributes.window, sizes)
    return x.op is convolution.convolution and is_product(x) and x.attributes.groups == 1


def _epilogue(x: Instruction, steps: list[Step], plan: Plan) -> Fusion | None:
    """The only nest that reads x, if it does so element by element and needs only what is there before x is."""
    readers = [step for step in steps if x in _read(step)]
    if len(readers) != 1 or x in map(buffer_of, plan.computation.outputs):
        return None
    (nest,) = readers
    if not isinstance(nest, Fusion) or nest.kind != "loop" or nest.outer != x.array_shape.dimensions:
        return None
    here = normalize(range(len(nest.outer)), nest.outer)
    own = set(nest.roots)
    known: set[Instruction] = set()
    for step in steps:
        if isinstance(step, HostCall) and step.root is x:
            break
        known.update(step.roots if isinstance(step, Fusion) else [step.root])
    for y, place, from_memory in walk_producers(nest.roots, plan.materialized):
        memory = buffer_of(y)
        if memory is x and (y is not x or place != here):
            return None
        if (
            from_memory
            and memory is not x
            and not is_leaf(memory)
            and memory not in own
            and producer_of(memory) not in known
        ):
            return None
    return nest


def _read(step: Step) -> set[Instruction]:
    """What a step reads from memory."""
    return set(step.reads) if isinstance(step, Fusion) else set(map(buffer_of, step.root.operands))
