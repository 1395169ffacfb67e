"""Loops and branches of scalars alone: one kernel, instead of steps of the schedule with a few operations each."""

from __future__ import annotations

from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Users
from tinyxla.compiler.fusion import Plan, is_of_scalars, results_of, supported
from tinyxla.hlo import Computation, Instruction
from tinyxla.shapes import Shape


def supports(x: Instruction) -> bool:
    return all(map(_is_scalar, x.operands)) and all(map(_has_scalars_only, x.computations()))


def _is_scalar(x: Instruction) -> bool:
    return isinstance(x.shape, Shape) and x.shape.rank == 0 and supported(x.shape)


def _has_scalars_only(computation: Computation) -> bool:
    arrays = [x for x in computation.instructions if isinstance(x.shape, Shape)]
    inside = [c for x in computation.instructions for c in x.computations()]
    return is_of_scalars(computation) and all(map(_is_scalar, arrays)) and all(map(_has_scalars_only, inside))


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    results = results_of(x, users)
    low = Lowering(x.op.name, plan, results)
    with low.loop(low.builder.kernel.first, low.builder.kernel.last):
        for result in results:
            low.store(result, (), low.parts(x, ())[result.attributes.index])
    return [finished(low, 1, 1, results)]
