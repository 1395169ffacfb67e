"""Calls of native functions by their address: custom calls of targets that are `void f(T *in0, ..., T *out0, ...)`.

The kernel is one call; operands and results are row-major arrays in memory. It runs on one thread. A target with side
effects is called by the host, which keeps their order.
"""

from __future__ import annotations

from tinyxla.compiler.costs import CALL_OPS
from tinyxla.compiler.fusion.plan import Plan, buffer_of, is_in_memory, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer
from tinyxla.loopir.ir.routines import NativeRoutine, declare
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Temporary, Users
from tinyxla.ops.host import custom_call
from tinyxla.shapes import Shape, TupleShape


def supports(x: Instruction) -> bool:
    """Whether the target has an address, and is called for its results alone."""
    target = custom_call.targets.get(x.attributes.custom_call_target)
    return target is not None and target.address is not None and not x.attributes.custom_call_has_side_effect


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernel that calls the target once."""
    name = x.attributes.custom_call_target
    address = custom_call.targets[name].address
    assert address is not None, "the target is supported"
    declare(NativeRoutine(name, address()))
    results = results_of(x, users)
    low = Lowering("native_call", plan, results)
    b = low.builder
    inputs = [_operand(low, o, plan) for o in x.operands]
    used = {r.attributes.index if r is not x else 0: r for r in results}
    shapes = x.shape.elements if isinstance(x.shape, TupleShape) else (x.shape,)
    outputs = [
        low.buffer(used.get(k) or Temporary(shape), True) for k, shape in enumerate(shapes) if isinstance(shape, Shape)
    ]
    with low.loop(b.kernel.first, b.kernel.last, sequential=True):
        b.call(name, *((buffer, 0) for buffer in (*inputs, *outputs)))
    work = CALL_OPS * sum(o.array_shape.size for o in x.operands)
    return [make_kernel(low, 1, work, results or [x])]


def _operand(low: Lowering, x: Instruction, plan: Plan) -> Buffer:
    """The memory of an operand; a scalar that is computed where it is used is stored first."""
    whole = buffer_of(x)
    if is_in_memory(whole, plan.materialized):
        return low.buffer(whole)
    scalar = low.builder.scratch(x.array_shape.element_type.name, 1)
    low.builder.store(scalar, 0, low.value(x, (0,) * x.array_shape.rank))
    return scalar
