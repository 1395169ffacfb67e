"""Padding with zeros as copies of rows: one kernel and one routine for all shapes, which take LLVM little time.

A row is what lies inside of the innermost padded dimension: zeros, elements that follow each other in the operand too,
and zeros. Around it are axes, of which each place is inside the operand or outside; rows that are outside of any are
zeros. Rows are filled and copied by the C library, so the code around them needs not be good.
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
from tinyxla.loopir.lower.axes import PARALLEL_CHUNK_ELEMENTS
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, declare_routine, load_arguments, store_arguments
from tinyxla.ops import movement

_LEAST = 512  # bytes of a row: shorter ones are copied sooner by a loop
_AXES = 3
_AXIS_SIZES = ("size", "low", "count", "step")
_SIZES = "before copied after whole".split() + [f"{name}{k}" for k in range(_AXES) for name in _AXIS_SIZES]
_NAMES = ("row", *_SIZES)


def lower(x: Instruction, plan: Plan) -> LoweredKernel | None:
    """The kernel that pads what is in memory, if rows are long."""
    source = buffer_of(x.operands[0]) if x.op is movement.pad else None
    if source is None or not is_in_memory(source, plan.materialized) or not _is_zero(x.operands[1]):
        return None
    sizes, config = x.operands[0].array_shape.dimensions, x.attributes.padding_config
    padded = [d for d, c in enumerate(config) if any(c)]
    if not padded or any(min(c) < 0 or c[2] for c in config):
        return None
    last = padded[-1]
    inside = math.prod(sizes[last + 1 :]) * x.array_shape.dtype.itemsize
    before, copied, after = (n * inside for n in (config[last][0], sizes[last], config[last][1]))
    axes, step, is_joined = list[list[int]](), copied, False
    for d in reversed(range(last)):
        size = sizes[d] + sum(config[d])
        if is_joined:  # with the axis inside of it, which is not padded
            _, _, inner, apart = axes.pop()
            axes.append([size * inner, config[d][0] * inner, sizes[d] * inner, apart])
        else:
            axes.append([size, config[d][0], sizes[d], step])
        is_joined = not any(config[d])
        step *= sizes[d]
    whole = before + copied + after
    if whole < _LEAST or len(axes) > _AXES:
        return None
    rows = math.prod(axis[0] for axis in axes)
    numbers = [before, copied, after, whole, *(n for axis in axes for n in axis), *[1, 0, 1, 0] * (_AXES - len(axes))]
    return LoweredKernel(
        _kernel(), [source, x], rows, max(1, 4 * PARALLEL_CHUNK_ELEMENTS // whole), [x], tuple(numbers), is_builtin=True
    )


def _is_zero(x: Instruction) -> bool:
    value = scalar_value(x)
    return value is not None and not any(np.asarray(value).tobytes())


@functools.cache
def _kernel() -> Kernel:
    b = ParametricBuilder("pad", " ".join(_SIZES))
    source, to = b.argument("u8"), b.argument("u8", True)
    numbers = b.scratch(INDEX, len(_NAMES))
    store_arguments(b, numbers, _NAMES, **b.parameter)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True) as (row, _):
        store_arguments(b, numbers, _NAMES, row=row)
        b.call(_provide(), (to, 0), (source, 0), (numbers, 0))
    return b.kernel


@functools.cache
def _provide() -> str:
    axes = "".join(_AXIS.substitute(k=k, outer=k + 1) for k in range(_AXES))
    return declare_routine("pad", _TEXT.substitute(numbers=load_arguments(_NAMES), axes=axes, axis=_AXES), is_cold=True)


_AXIS = Template("""
  %row$outer = udiv i64 %row$k, %size$k
  %index$k = urem i64 %row$k, %size$k
  %at$k = sub i64 %index$k, %low$k
  %is_in$k = icmp ult i64 %at$k, %count$k
  %in$outer = and i1 %in$k, %is_in$k
  %moved$k = mul i64 %at$k, %step$k
  %place$outer = add i64 %place$k, %moved$k""")

_TEXT = Template("""
define void @routine(ptr %to, ptr %from, ptr %numbers) nounwind {
  %in0 = icmp eq i64 0, 0
  %place0 = add i64 0, 0
$numbers
  %row0 = add i64 %row, 0
$axes
  %start = getelementptr i8, ptr %to, i64 (mul i64 %row, %whole)
  br i1 %in$axis, label %inside, label %outside
inside:
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %before, i1 false)
  %begin = getelementptr i8, ptr %start, i64 %before
  call void @llvm.memcpy.p0.p0.i64(ptr %begin, ptr %from[i8 %place$axis], i64 %copied, i1 false)
  call void @llvm.memset.p0.i64(ptr %begin[i8 %copied], i8 0, i64 %after, i1 false)
  ret void
outside:
  call void @llvm.memset.p0.i64(ptr %start, i8 0, i64 %whole, i1 false)
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""")
