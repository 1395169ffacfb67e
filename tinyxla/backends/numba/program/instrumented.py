"""Programs with a clock around each step, and what the marks of their schedules write: how often each step ran and how
long, and, as far as there is room, when."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np

from tinyxla.backends.clock import now
from tinyxla.backends.numba.program.executable import CompiledModule
from tinyxla.backends.numba.runtime.bytecode import Schedule, template
from tinyxla.compiler.schedule.blocks import ConcurrentBlocks, Step, walk_steps

_HEAD = 3  # words: the time of the last mark, the first free word, and the last one
BEFORE, SCHEDULE, FIRST_STEP = range(3)  # what time goes to: what was before the call, the schedule itself, and steps


def pair_of(number: int) -> int:
    """The word at which the count and the nanoseconds of a number stand."""
    return _HEAD + 2 * number


class Record:
    """Of one call: counts and times of `numbers` things, and at most `events` marks one by one."""

    def __init__(self, numbers: int, events: int) -> None:
        first = pair_of(numbers)
        self._words = np.zeros(first + 2 * events, np.int64)
        self._first = first
        self._words[:_HEAD] = now(), first, first + 2 * events
        self.address = self._words.ctypes.data
        self.made_in = 0  # nanoseconds, which a call that is not observed does not take

    def counted(self) -> list[tuple[int, int]]:
        """For each number how often a mark named it, and the nanoseconds that came together before these marks."""
        pairs = self._words[_HEAD : self._first].reshape(-1, 2)
        return [(int(count), int(total)) for count, total in pairs]

    def marks(self) -> list[tuple[int, int]]:
        """The number and the time of each mark that was kept."""
        pairs = self._words[self._first : int(self._words[1])].reshape(-1, 2)
        return [((int(word) - _HEAD) // 2, int(time)) for word, time in pairs]


class ObservedModule(CompiledModule):
    """A program whose schedule marks the time between steps."""

    def observe(self, events: int) -> None:
        self._records: defaultdict[int, list[Record]] = defaultdict(list)  # of the calls of each thread
        self._events = events
        self._record_slot = len(self.slots)
        self._numbers = {id(step): number for number, (step, *_) in enumerate(walk_steps(self.block))}
        self._around = BEFORE
        self._lay_out()

    def _emit_step(self, step: Step, schedule: Schedule, repeats: int) -> None:
        around, number = self._around, FIRST_STEP + self._numbers[id(step)]
        schedule.mark(self._record_slot, pair_of(around))
        self._around = number
        super()._emit_step(step, schedule, repeats)
        self._around = around or SCHEDULE
        schedule.mark(self._record_slot, pair_of(number))

    def _emit_concurrent(self, concurrent: ConcurrentBlocks, schedule: Schedule, repeats: int) -> None:
        """One after the other, so that each step has its own time."""
        for block in concurrent.blocks:
            self._emit(block, schedule, repeats)

    def _filled(self, base: int) -> Any:
        start = now()
        record = Record(FIRST_STEP + len(self._numbers), self._events)
        self._records[threading.get_ident()].append(record)
        filled = template(self._schedule_address, self._fixed, [*self._words(base), record.address])
        record.made_in = now() - start
        return filled

    def record(self) -> Record:
        """What the last call of this thread left; to be asked for after each."""
        return self._records[threading.get_ident()].pop()
