"""Zero padding (HLO `pad`) as memset and memcpy of rows: one kernel with one routine for all shapes, cheap to compile.

A row spans the innermost padded dimension and all dimensions inside of it: zeros, a contiguous range of the operand,
zeros. A row is copied if it lies within the operand along all outer axes; other rows are zeros. Does not apply to
negative or interior padding, to padding by other values, to short rows, and to more than `_MAX_AXES` outer axes.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from tinyxla.compiler.costs import LINE_BYTES, PARALLEL_CHUNK_ELEMENTS, TASKS
from tinyxla.compiler.fusion.plan import Plan, buffer_of, is_in_memory
from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Kernel, Operand, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.ops import movement

_MAX_AXES = 3
_AXIS_PARAMETERS = ("size", "low", "count", "stride")
_PARAMETERS = "before copied after row_bytes".split() + [
    f"{name}{k}" for k in range(_MAX_AXES) for name in _AXIS_PARAMETERS
]
_ROUTINE_ARGUMENTS = ("row", *_PARAMETERS)


def lower(x: Instruction, plan: Plan) -> LoweredKernel | None:
    """The kernel that pads an array in memory with zeros; None if this form of padding does not apply."""
    source = buffer_of(x.operands[0]) if x.op is movement.pad else None
    if source is None or not is_in_memory(source, plan.materialized) or not _is_zero(x.operands[1]):
        return None
    sizes, padding = x.operands[0].array_shape.dimensions, x.attributes.padding_config
    padded_dims = [d for d, c in enumerate(padding) if any(c)]
    if not padded_dims or any(min(c) < 0 or c[2] for c in padding):
        return None
    inner_dim = padded_dims[-1]
    row_bytes = math.prod(sizes[inner_dim + 1 :]) * x.array_shape.dtype.itemsize
    before, copied, after = (n * row_bytes for n in (padding[inner_dim][0], sizes[inner_dim], padding[inner_dim][1]))
    axes, stride, is_collapsed = list[list[int]](), copied, False
    for d in reversed(range(inner_dim)):
        extent = sizes[d] + sum(padding[d])
        if is_collapsed:  # with the next inner axis, which is not padded
            _, _, inner, inner_stride = axes.pop()
            axes.append([extent * inner, padding[d][0] * inner, sizes[d] * inner, inner_stride])
        else:
            axes.append([extent, padding[d][0], sizes[d], stride])
        is_collapsed = not any(padding[d])
        stride *= sizes[d]
    size = before + copied + after
    if size < 8 * LINE_BYTES or len(axes) > _MAX_AXES:  # a loop copies shorter rows faster
        return None
    rows = math.prod(axis[0] for axis in axes)
    processors = current_target().processors
    if processors > TASKS and rows < min(processors, rows * size // PARALLEL_CHUNK_ELEMENTS):
        return None  # a loop over elements has enough chunks
    parameters = [
        before,
        copied,
        after,
        size,
        *(n for axis in axes for n in axis),
        *[1, 0, 1, 0] * (_MAX_AXES - len(axes)),
    ]
    return LoweredKernel(
        _kernel(),
        [source, x],
        rows,
        max(1, 4 * PARALLEL_CHUNK_ELEMENTS // size),
        [x],
        tuple(parameters),
        is_builtin=True,
    )


def _is_zero(x: Instruction) -> bool:
    value = scalar_value(x)
    return value is not None and not any(np.asarray(value).tobytes())


@functools.cache
def _kernel() -> Kernel:
    b = ParametricBuilder("pad", " ".join(_PARAMETERS))
    source, target = b.argument("u8"), b.argument("u8", True)
    arguments = b.scratch(INDEX, len(_ROUTINE_ARGUMENTS))
    store_arguments(b, arguments, _ROUTINE_ARGUMENTS, **b.parameter)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True) as (row, _):
        store_arguments(b, arguments, _ROUTINE_ARGUMENTS, row=row)
        b.call(_declare_row(), (target, 0), (source, 0), (arguments, 0))
    return b.kernel


@functools.cache
def _declare_row() -> str:
    """Declare the routine that writes one row; returns its name."""
    b = ParametricBuilder("pad_row", " ".join(_ROUTINE_ARGUMENTS))
    target, source, n = b.argument("u8", True), b.argument("u8"), b.parameter
    outer: Index = n["row"]
    source_start: Index = 0
    conditions: list[Value] = []
    for k in range(_MAX_AXES):
        size, low, count, stride = (n[f"{name}{k}"] for name in _AXIS_PARAMETERS)
        index = b.sub(b.remainder(outer, size), low)
        conditions += [b.compare("GE", index, 0), b.compare("LT", index, count)]
        outer, source_start = b.floordiv(outer, size), b.add(source_start, b.mul(index, stride))
    row = b.view(target, b.mul(n["row"], n["row_bytes"]))

    def copy() -> list[Operand]:
        b.fill_zeros(row, 0, n["before"])
        b.copy_elements(row, n["before"], source, source_start, n["copied"])
        b.fill_zeros(row, b.add(n["before"], n["copied"]), n["after"])
        return []

    def clear() -> list[Operand]:
        b.fill_zeros(row, 0, n["row_bytes"])
        return []

    b.branch(functools.reduce(b.and_, conditions), copy, clear)
    return declare_kernel("pad_row", b.kernel, is_cold=True)
