"""Instrumentation: programs that take a timestamp around each step, and the records that a call writes: the count and
the total time of each step, and single timestamps as far as there is room."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np

from tinyxla.backends.clock import now
from tinyxla.backends.numba.program.executable import CompiledModule
from tinyxla.backends.numba.runtime.bytecode import Schedule, template
from tinyxla.compiler.schedule.blocks import ConcurrentBlocks, Step, walk_steps

_HEADER_WORDS = 3  # the last timestamp, the first free word, and the end of the record
BEFORE, SCHEDULE, FIRST_STEP = range(3)  # the counters: time before the call, of the schedule itself, and of steps


def pair_of(number: int) -> int:
    """The offset, in words, of the count and the nanoseconds of a counter."""
    return _HEADER_WORDS + 2 * number


class Record:
    """The record of one call: `counters` counts and times, and at most `events` timestamps."""

    def __init__(self, counters: int, events: int) -> None:
        first = pair_of(counters)
        self._words = np.zeros(first + 2 * events, np.int64)
        self._first = first
        self._words[:_HEADER_WORDS] = now(), first, first + 2 * events
        self.address = self._words.ctypes.data
        self.overhead = 0  # nanoseconds that only an instrumented call takes

    def counted(self) -> list[tuple[int, int]]:
        """For each counter, the number of its timestamps and the nanoseconds that ended with them."""
        pairs = self._words[_HEADER_WORDS : self._first].reshape(-1, 2)
        return [(int(count), int(total)) for count, total in pairs]

    def marks(self) -> list[tuple[int, int]]:
        """The counter and the time of each timestamp that was kept."""
        pairs = self._words[self._first : int(self._words[1])].reshape(-1, 2)
        return [((int(word) - _HEADER_WORDS) // 2, int(time)) for word, time in pairs]


class InstrumentedModule(CompiledModule):
    """A program whose schedule takes a timestamp between steps."""

    def instrument(self, events: int) -> None:
        self._records: defaultdict[int, list[Record]] = defaultdict(list)  # of the calls of each thread
        self._events = events
        self._record_slot = len(self.slots)
        self._numbers = {id(step): number for number, (step, *_) in enumerate(walk_steps(self.block))}
        self._enclosing = BEFORE
        self._build_schedule()

    def _emit_step(self, step: Step, schedule: Schedule, repeats: int) -> None:
        enclosing, number = self._enclosing, FIRST_STEP + self._numbers[id(step)]
        schedule.mark(self._record_slot, pair_of(enclosing))
        self._enclosing = number
        super()._emit_step(step, schedule, repeats)
        self._enclosing = enclosing or SCHEDULE
        schedule.mark(self._record_slot, pair_of(number))

    def _emit_concurrent(self, concurrent: ConcurrentBlocks, schedule: Schedule, repeats: int) -> None:
        """Sequential, so that each step has a time of its own."""
        for block in concurrent.blocks:
            self._emit(block, schedule, repeats)

    def _filled(self, base: int) -> Any:
        start = now()
        record = Record(FIRST_STEP + len(self._numbers), self._events)
        self._records[threading.get_ident()].append(record)
        filled = template(self._schedule_address, self._fixed, [*self._words(base), record.address])
        record.overhead = now() - start
        return filled

    def record(self) -> Record:
        """The record of this thread's last call. Each call needs one `record()`."""
        return self._records[threading.get_ident()].pop()
