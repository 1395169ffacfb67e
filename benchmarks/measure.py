"""Timing that treats every contestant alike.

All contestants of a workload live in one process and take turns, in an order that rotates from round to round, so that
drifts of the machine meet all of them. A turn starts with a short pause, in which worker threads that still spin for
the previous contestant fall asleep, and with one call that is not counted, which brings data and threads back. Then a
fixed number of calls is timed as one sample. The figure of a contestant is the median of its samples, which a disturbed
sample does not move; the spread between the quartiles says how much to trust it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

PAUSE = 0.03  # seconds; OpenBLAS's workers spin longest, some 2**26 clock ticks

Call = Callable[[], object]
Wait = Callable[[object], object]
Sampler = Callable[[], float]


@dataclass(frozen=True)
class Effort:
    """How long to measure: the least duration of a sample and the time per contestant in seconds, and its samples."""

    sample: float
    budget: float
    least: int
    most: int

    def rounds(self, seconds_per_sample: float) -> int:
        """Return how many samples of this duration fit into the time, within the limits."""
        return min(self.most, max(self.least, int(self.budget / seconds_per_sample)))


THOROUGH = Effort(sample=5e-3, budget=0.25, least=7, most=25)
QUICK = Effort(sample=5e-4, budget=0.1, least=2, most=3)
ONCE = Effort(sample=0.0, budget=0.2, least=2, most=5)  # for what happens once per sample


@dataclass(frozen=True)
class Timing:
    """The median of the samples in seconds per call, and the distance between their quartiles relative to it."""

    median: float
    spread: float

    @staticmethod
    def of(samples: Sequence[float]) -> Timing:
        median = statistics.median(samples)
        lower, _, upper = statistics.quantiles([*samples, median], n=4, method="inclusive")
        return Timing(median, (upper - lower) / median)


def take_turns(samplers: Sequence[Sampler], rounds: int) -> list[list[float]]:
    """Call each sampler once per round, starting one place further in each round, and return what they return."""
    samples: list[list[float]] = [[] for _ in samplers]
    for number in range(rounds):
        for turn in range(len(samplers)):
            contestant = (number + turn) % len(samplers)
            samples[contestant].append(samplers[contestant]())
    return samples


def time_calls(call: Call, wait: Wait, count: int, wait_each: bool) -> float:
    """Return the seconds per call over `count` calls.

    Each result stays alive until the next one replaces it, as in a training loop. With `wait_each` every result is
    waited for; without it only the last one is, which measures how fast calls can be issued.
    """
    result = call()
    wait(result)
    start = time.perf_counter()
    if wait_each:
        for _ in range(count):
            result = call()
            wait(result)
    else:
        for _ in range(count):
            result = call()
        wait(result)
    return (time.perf_counter() - start) / count


def calls_per_sample(call: Call, wait: Wait, effort: Effort) -> int:
    """Warm the call up and return how many of it make a sample of the demanded duration."""
    for _ in range(2):
        wait(call())
    count = 1
    for _ in range(2):  # a first estimate from one call is coarse
        count = max(1, round(effort.sample / time_calls(call, wait, count, wait_each=True)))
    return count


def compare_calls(calls: Sequence[tuple[Call, Wait]], effort: Effort, wait_each: bool) -> list[Timing]:
    """Time warm calls, each given with the function that waits for its result."""
    samplers: list[Sampler] = []
    longest = 0.0
    for call, wait in calls:
        count = calls_per_sample(call, wait, effort)
        samplers.append(partial(paused_sample, call, wait, count, wait_each))
        longest = max(longest, PAUSE + (count + 1) * time_calls(call, wait, count, wait_each))
    gc.collect()
    gc.disable()
    try:
        return [Timing.of(samples) for samples in take_turns(samplers, effort.rounds(longest))]
    finally:
        gc.enable()


def paused_sample(call: Call, wait: Wait, count: int, wait_each: bool) -> float:
    """Take one sample after the pause."""
    time.sleep(PAUSE)
    return time_calls(call, wait, count, wait_each)


def compare_once(samplers: Sequence[Sampler], effort: Effort = ONCE) -> list[list[float]]:
    """Time what can only happen once per sample, such as a compilation; the samplers time themselves."""
    first = [sampler() for sampler in samplers]
    more = take_turns(samplers, effort.rounds(max(*first, 1e-9)) - 1)
    return [[one, *others] for one, others in zip(first, more, strict=True)]
