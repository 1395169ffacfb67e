"""Programs of many processes, planned in one: what they cost is known without running them."""

from __future__ import annotations

from tinyxla.compiler.pipeline import compile_program
from tinyxla.compiler.schedule.costs import ProcessCost, process_cost_of
from tinyxla.hlo import Computation
from tinyxla.runtime import mpi


def process_cost(computation: Computation, processes: int) -> ProcessCost:
    """What a call costs the first of so many processes, of which the program is given. It is planned, and no code is
    made: that takes as long for many processes as for few."""
    with mpi.simulated(processes):
        block, _ = compile_program(computation, (), lambda *_: None)
    return process_cost_of(block, processes)
