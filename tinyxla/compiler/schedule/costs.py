"""Costs of schedules: of a step, and of all steps of a program."""

from __future__ import annotations

from tinyxla.compiler.costs import BYTES_PER_NANOSECOND, OPS_PER_NANOSECOND
from tinyxla.compiler.fusion.plan import BlasCall, Collective, CollectiveDone, HostCall
from tinyxla.compiler.schedule.blocks import Block, Step, shape_of, walk_steps
from tinyxla.compiler.step_costs import CollectiveCost, Cost, ProcessCost
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.loopir.passes.cost_model import kernel_cost
from tinyxla.ops.cost import bytes_of, operations_of
from tinyxla.ops.distributed.communication import Communication, communication_of
from tinyxla.ops.distributed.process_collectives import is_message, message_of
from tinyxla.runtime.mpi.calls import Message


def cost_of_step(step: Step) -> Cost:
    """What one execution of a step reads, writes and computes. Loops, branches and waits for messages cost nothing:
    their steps, and the starts of messages, do."""
    work = step.work
    if isinstance(work, LoweredKernel):
        return kernel_cost(work)
    if isinstance(work, BlasCall | HostCall | Collective) and not isinstance(work, CollectiveDone):
        read, written = (sum(bytes_of(shape_of(x)) for x in side) for side in (step.reads, step.writes))
        return Cost(read, written, *operations_of(work.root))
    return Cost()


def nanoseconds(operations: float, moved: float) -> float:
    """The time of a kernel on one core: that of its operations, or of the bytes it moves."""
    return max(operations / OPS_PER_NANOSECOND, moved / BYTES_PER_NANOSECOND)


def message_in(step: Step) -> Message | None:
    """What a step says to other processes, if it does; of a split message its start."""
    work = step.work
    if not isinstance(work, Collective) or isinstance(work, CollectiveDone) or not is_message(work.root):
        return None
    return message_of(work.root)


def communication_of_step(step: Step) -> Communication:
    """What a step sends to other processes, and receives."""
    message = message_in(step)
    return Communication() if message is None else communication_of(message, shape_of(step.reads[0]))


def process_cost_of(block: Block, processes: int) -> ProcessCost:
    """The cost of a program of a process. Loops of unknown length count once, and of a conditional all branches."""
    kernels, cost, communication = 0, Cost(), Communication()
    collectives: list[CollectiveCost] = []
    for step, _, _, known_times in walk_steps(block):
        times = 1 if known_times is None else known_times
        message = message_in(step)
        if message is not None:
            own = communication_of_step(step)
            collectives.append(CollectiveCost(message.kind, str(message), times, own))
            communication = communication.plus(own, times)
        elif isinstance(step.work, LoweredKernel | BlasCall | HostCall):
            kernels += times
            cost += cost_of_step(step) * times
    return ProcessCost(processes, kernels, cost, communication, tuple(collectives))
