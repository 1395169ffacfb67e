"""The interpreter: op by op on NumPy, with each op's `evaluate`. The readable reference, and what runs without a
compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.compiler.report import BufferInfo, Report, StepInfo
from tinyxla.compiler.step_costs import Cost
from tinyxla.hlo import Instruction, Module
from tinyxla.ops import calls
from tinyxla.ops.cost import bytes_of, operations_of
from tinyxla.shapes import TupleShape
from tinyxla.text.hlo_text import instruction_names


class InterpretedModule:
    """A module that is run as it stands."""

    kernels: Sequence[Any] = ()

    def __init__(self, module: Module) -> None:
        self.module = module

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        result = calls.evaluate(self.module.entry, arguments)
        parts = result if isinstance(self.module.entry.root.shape, TupleShape) else (result,)
        return [np.asarray(part, order="C") for part in parts]

    def parallel_efficiency(self, threads: Sequence[int]) -> dict[int, float]:
        return {count: 1 / count for count in threads}  # one thread works

    def report(self) -> Report:
        names = instruction_names(self.module)
        outputs = self.module.entry.outputs
        instructions = [
            x for x in self.module.entry.instructions if x.op.name not in ("parameter", "constant", "tuple")
        ]
        steps = tuple(_step(k, x, names) for k, x in enumerate(instructions))
        total = Cost()
        for step in steps:
            total += step.cost
        buffers = [
            BufferInfo(names[x], str(x.shape), bytes_of(x.shape), "result" if x in outputs else "array")
            for x in instructions
        ]
        return Report(self.module.name, steps, tuple(buffers), 0, total)

    def instrumented(self, events: int) -> None:
        return None


def _step(number: int, x: Instruction, names: Mapping[Instruction, str]) -> StepInfo:
    moved = (sum(bytes_of(o.shape) for o in x.operands), bytes_of(x.shape))
    return StepInfo(
        number,
        kind="NumPy",
        instructions=(names[x],),
        roots=(x.op.name,),
        lines=(str(x.source),) if x.source else (),
        shares=(1.0,) if x.source else (),
        reads=tuple(names[o] for o in x.operands),
        writes=(names[x],),
        cost=Cost(*moved, *operations_of(x)),
    )
