"""Zero padding (HLO `pad`) as memset and memcpy of rows: one kernel with one routine for all shapes, cheap to compile.

A row spans the innermost padded dimension and all dimensions inside of it: zeros, a contiguous range of the operand,
zeros. A row is copied if it lies within the operand along all outer axes; other rows are zeros. Does not apply to
negative or interior padding, to padding by other values, to short rows, and to more than `_MAX_AXES` outer axes.
"""

from __future__ import annotations

import functools
import math
from string import Template

import numpy as np

from tinyxla.compiler.fusion.plan import Plan, buffer_of, is_in_memory
from tinyxla.compiler.passes.algebraic_simplifier import scalar_value
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Kernel
from tinyxla.loopir.lower.axes import MANY_PROCESSORS, PARALLEL_CHUNK_ELEMENTS
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, declare_routine, load_arguments, store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.ops import movement

_MIN_ROW_BYTES = 512  # a loop copies shorter rows faster
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
    if size < _MIN_ROW_BYTES or len(axes) > _MAX_AXES:
        return None
    rows = math.prod(axis[0] for axis in axes)
    processors = current_target().processors
    if processors > MANY_PROCESSORS and rows < min(processors, rows * size // PARALLEL_CHUNK_ELEMENTS):
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
        b.call(_declare(), (target, 0), (source, 0), (arguments, 0))
    return b.kernel


@functools.cache
def _declare() -> str:
    """Declare the routine that writes one row; returns its name."""
    axes = "".join(_AXIS_TEXT.substitute(k=k, outer=k + 1) for k in range(_MAX_AXES))
    return declare_routine(
        "pad",
        _ROUTINE.substitute(arguments=load_arguments(_ROUTINE_ARGUMENTS), axes=axes, axis=_MAX_AXES),
        is_cold=True,
    )


_AXIS_TEXT = Template("""
  %row$outer = udiv i64 %row$k, %size$k
  %index$k = urem i64 %row$k, %size$k
  %at$k = sub i64 %index$k, %low$k
  %is_in$k = icmp ult i64 %at$k, %count$k
  %in$outer = and i1 %in$k, %is_in$k
  %shift$k = mul i64 %at$k, %stride$k
  %offset$outer = add i64 %offset$k, %shift$k""")

_ROUTINE = Template("""
define void @routine(ptr %to, ptr %from, ptr %numbers) nounwind {
  %in0 = icmp eq i64 0, 0
  %offset0 = add i64 0, 0
$arguments
  %row0 = add i64 %row, 0
$axes
  %start = getelementptr i8, ptr %to, i64 (mul i64 %row, %row_bytes)
  br i1 %in$axis, label %copy, label %zeros
copy:
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %before, i1 false)
  %begin = getelementptr i8, ptr %start, i64 %before
  call void @llvm.memcpy.p0.p0.i64(ptr %begin, ptr %from[i8 %offset$axis], i64 %copied, i1 false)
  call void @llvm.memset.p0.i64(ptr %begin[i8 %copied], i8 0, i64 %after, i1 false)
  ret void
zeros:
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %row_bytes, i1 false)
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""")
