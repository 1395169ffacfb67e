"""Latency-hiding scheduler: messages among processes are split into a start and a done, and kernels run in between.

List scheduling of a block, after its storages have their memory. A message is started as soon as its operand is there.
Its done, with all that depends on it, is put off until kernels that are independent of it have run about as long as the
message takes. A message that finds too few of them stays a blocking call. Steps depend on each other if one writes a
memory that the other accesses; from its start to its done, a message writes its result and reads its operand.

All processes schedule alike, since only shapes and kernels decide; they compare the order of messages, and which ones
are split (`runtime/mpi/comparison.py`). Only kernels and products run during a message. Loops, branches and calls of
the host wait for all messages: they may end the run, have messages of their own, or effects whose order counts.

Source: XLA's pass of that name.
"""

from __future__ import annotations

from tinyxla.compiler.costs import COSTLY_OPS, MESSAGE_BYTES_PER_NANOSECOND, MESSAGE_START_BYTES
from tinyxla.compiler.fusion.plan import BlasCall, Collective, CollectiveDone, CollectiveStart, producer_of
from tinyxla.compiler.schedule.blocks import AliasMap, Block, Step, inner_blocks, shape_of
from tinyxla.compiler.schedule.costs import cost_of_step, message_in, nanoseconds
from tinyxla.hlo import Instruction
from tinyxla.loopir.lower.emit import LoweredKernel, Storage
from tinyxla.ops.cost import bytes_of
from tinyxla.runtime.mpi.library import MAX_COUNT

MIN_HIDDEN = 0.25  # of the time of a message that kernels run: for less of it, it is not split


def hide_latency(block: Block, aliases: AliasMap) -> None:
    """Split the messages of a block, and of those in its loops and branches, where kernels can run meanwhile."""
    for step in block.steps:
        for inner in inner_blocks(step):
            hide_latency(inner, aliases)
    if any(map(_is_long_message, block.steps)):
        block.steps = _ListScheduler(aliases).schedule(block.steps)


def _is_message(step: Step) -> bool:
    """Whether a step is a message, or the start of one."""
    return message_in(step) is not None


def _is_long_message(step: Step) -> bool:
    # A smaller one takes little longer than its start and its done, and a longer one may go in several calls.
    return _is_message(step) and MESSAGE_START_BYTES <= bytes_of(shape_of(step.reads[0])) <= MAX_COUNT


class _ListScheduler:
    """List scheduling of the steps of a block."""

    def __init__(self, aliases: AliasMap) -> None:
        self._aliases = aliases
        self._placed: list[Step] = []
        self._waiting: list[Step] = []  # dones, and what depends on them, in the order of the program
        self._left: dict[Step, float] = {}  # of a done that waits: the nanoseconds that its message still takes
        self._times: dict[Step, float] = {}  # nanoseconds of the kernels that are placed
        self._accesses: dict[Step, tuple[frozenset[Storage], frozenset[Storage]]] = {}

    def schedule(self, steps: list[Step]) -> list[Step]:
        for step in self._with_early_messages(steps):
            if _may_run_during_messages(step):
                self._place(step)
                self._reconsider()
            else:
                self._finish()
                self._placed.append(step)
        self._finish()
        return self._joined()

    def _with_early_messages(self, steps: list[Step]) -> list[Step]:
        """The steps, with each long message just behind what it depends on, and behind messages that are there."""
        result: list[Step] = []
        for step in steps:
            position = len(result)
            if _is_long_message(step):
                while position and _may_run_during_messages(x := result[position - 1]) and not self._depends(step, x):
                    position -= 1
                while position < len(result) and _is_message(result[position]):
                    position += 1
            result.insert(position, step)
        return result

    def _place(self, step: Step) -> None:
        """Place a step next, after dones of messages that are over, or let it wait for others."""
        needed = [x for x in self._waiting if self._depends(step, x) or _are_ordered(step, x)]
        if any(self._left.get(x, 1.0) > 0 for x in needed):
            self._waiting.append(step)
            return
        for done in needed:
            self._place_done(done)
        if not _is_long_message(step):
            self._placed.append(step)
            self._times[step] = _time(step)
            self._pass(self._times[step])
            return
        assert isinstance(step.work, Collective)
        root = step.work.root
        start, done = (
            Step(kind(root), step.reads, step.writes, step.planned) for kind in (CollectiveStart, CollectiveDone)
        )
        self._placed.append(start)
        self._waiting.append(done)
        self._left[done] = _message_time(root)

    def _pass(self, time: float) -> None:
        """Let time pass, in which one message after the other moves."""
        for done, left in self._left.items():
            self._left[done] = max(0.0, left - time)
            time = max(0.0, time - left)

    def _place_done(self, done: Step) -> None:
        self._waiting.remove(done)
        del self._left[done]
        self._placed.append(done)

    def _reconsider(self) -> None:
        """Place what waits for messages that are over by now."""
        count = -1
        while count != len(self._placed) and (not self._left or not all(self._left.values())):
            count = len(self._placed)
            steps, self._waiting = self._waiting, []
            for step in steps:
                if step in self._left:
                    self._waiting.append(step)
                else:
                    self._place(step)

    def _finish(self) -> None:
        """Place all that waits."""
        while self._waiting:
            self._left = dict.fromkeys(self._left, 0.0)
            self._reconsider()
            if len(self._waiting) == len(self._left):
                for done in list(self._left):
                    self._place_done(done)

    def _joined(self) -> list[Step]:
        """The steps that are placed, with those messages blocking again of which too little is hidden."""
        hidden: dict[Instruction, float] = {}  # nanoseconds of kernels since the start
        total = 0.0
        for step in self._placed:
            work = step.work
            if isinstance(work, CollectiveStart):
                hidden[work.root] = -total
            elif isinstance(work, CollectiveDone):
                hidden[work.root] += total
            else:
                total += self._times.get(step, 0.0)
        few = {root for root, time in hidden.items() if time < MIN_HIDDEN * _message_time(root)}
        result: list[Step] = []
        for step in self._placed:
            work = step.work
            if isinstance(work, CollectiveStart) and work.root in few:
                step.work = Collective(work.root)
            if not (isinstance(work, CollectiveDone) and work.root in few):
                result.append(step)
        return result

    def _depends(self, step: Step, earlier: Step) -> bool:
        """Whether a step must stay behind an earlier one."""
        reads, writes = self._accessed(step)
        earlier_reads, earlier_writes = self._accessed(earlier)
        return not (
            writes.isdisjoint(earlier_writes) and writes.isdisjoint(earlier_reads) and reads.isdisjoint(earlier_writes)
        )

    def _accessed(self, step: Step) -> tuple[frozenset[Storage], frozenset[Storage]]:
        """The memories that a step reads and writes, also by way of pointers."""
        if step not in self._accesses:
            reads, writes = ({y for x in side for y in self._aliases.memories(x)} for side in (step.reads, step.writes))
            self._accesses[step] = frozenset(reads), frozenset(writes)
        return self._accesses[step]


def _are_ordered(*steps: Step) -> bool:
    """Whether all of these are messages, which keep their order."""
    return all(map(_is_message, steps))


def _message_time(root: Instruction) -> float:
    """Nanoseconds of a message: its operand and its result pass through memory, or a network."""
    return max(bytes_of(root.operands[0].shape), bytes_of(root.shape)) / MESSAGE_BYTES_PER_NANOSECOND


def _time(step: Step) -> float:
    """Nanoseconds of a kernel: what it computes, or what it reads and writes."""
    cost = cost_of_step(step)
    return nanoseconds(cost.operations + COSTLY_OPS * cost.transcendentals, cost.bytes)


def _may_run_during_messages(step: Step) -> bool:
    work = step.work
    if isinstance(work, LoweredKernel):
        return not any(producer_of(x).has_side_effect for x in work.roots)
    return isinstance(work, BlasCall) or _is_message(step)
