"""Epilogue fusion: elementwise nests that read only the result of a convolution or reduce-window, and arrays that
exist before it, are computed with the result's tiles, so that the result itself is never written to memory.
Examples: bias and activation, or the division of an average pooling.
"""

from __future__ import annotations

from dataclasses import replace

from tinyxla.compiler.analysis.access_maps import normalize
from tinyxla.compiler.fusion.plan import LibraryKernel, LoopNest, Plan, Step, buffer_of, is_leaf, producer_of
from tinyxla.compiler.passes.canonicalize.convolution import is_gemm
from tinyxla.compiler.passes.canonicalize.reduce_window import is_large
from tinyxla.hlo import Instruction
from tinyxla.ops import windows
from tinyxla.ops.products import convolution


def fuse_epilogues(plan: Plan) -> Plan:
    """The plan with such nests as epilogues rather than steps."""
    steps = list(plan.steps)
    epilogues: dict[Instruction, LoopNest] = {}
    for step in plan.steps:
        x = step.root if isinstance(step, LibraryKernel) else None
        if x is not None and _has_epilogue(x):
            nest = _epilogue(x, steps, plan)
            if nest is not None:
                epilogues[x] = nest
                steps.remove(nest)
    return replace(plan, steps=steps, epilogues=epilogues) if epilogues else plan


def _has_epilogue(x: Instruction) -> bool:
    if x.op is windows.reduce_window:
        sizes = x.operands[0].array_shape.dimensions
        return len(x.operands) == 2 and x.array_shape.size > 1 and not is_large(x.attributes.window, sizes)
    return x.op is convolution.convolution and is_gemm(x) and x.attributes.groups == 1


def _epilogue(x: Instruction, steps: list[Step], plan: Plan) -> LoopNest | None:
    """The only nest that reads x, if it is elementwise in x and reads nothing that is computed after x; otherwise
    None."""
    readers = [step for step in steps if x in _buffers_read(step)]
    if len(readers) != 1 or x in map(buffer_of, plan.computation.outputs):
        return None
    (nest,) = readers
    if not isinstance(nest, LoopNest) or nest.kind != "loop" or nest.outer != x.array_shape.dimensions:
        return None
    identity = normalize(range(len(nest.outer)), nest.outer)
    own = set(nest.roots)
    computed_before: set[Instruction] = set()
    for step in steps:
        if isinstance(step, LibraryKernel) and step.root is x:
            break
        computed_before.update(step.roots if isinstance(step, LoopNest) else [step.root])
    for producer, access, from_memory in plan.accesses.read_by(nest.roots):
        buffer = buffer_of(producer)
        if buffer is x and (producer is not x or access != identity):
            return None
        is_available = is_leaf(buffer) or buffer in own or producer_of(buffer) in computed_before
        if from_memory and buffer is not x and not is_available:
            return None
    return nest


def _buffers_read(step: Step) -> set[Instruction]:
    """The buffers that a step reads."""
    return set(step.reads) if isinstance(step, LoopNest) else set(map(buffer_of, step.root.operands))
