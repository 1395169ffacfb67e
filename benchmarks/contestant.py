"""A process that measures rows for `benchmarks.against`: requests come as lines of JSON, and so go the answers."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.first_calls import first_call
from benchmarks.groups import GROUPS
from benchmarks.libraries import Library
from benchmarks.measure import Effort, calls_per_sample, paused_sample
from benchmarks.workload import Calls, Once, Workload


class Measurer:
    """Handlers of the requests, one method each. A row is named by its group and its name; one row is kept ready."""

    def __init__(self) -> None:
        self.library = Library.load("tinyxla")
        self._call: tuple[Callable[[], object], Callable[[object], object]] | None = None

    def _workload(self, group: str, name: str) -> Any:
        (workload,) = (workload for workload in GROUPS[group] if workload.name == name)
        return workload

    def once(self, group: str, name: str) -> float:
        workload: Once = self._workload(group, name)
        return workload.sample(self.library)

    def first(self, group: str, name: str) -> float:
        workload: Workload = self._workload(group, name)
        return first_call(workload, self.library, workload.arguments(self.library))

    def prepare(self, group: str, name: str, sample: float) -> int:
        """Build and warm a call; the number of calls that take so many seconds."""
        workload: Workload | Calls = self._workload(group, name)
        call = workload.build(self.library)
        self._call = call, self.library.waiter(call())
        gc.collect()
        return calls_per_sample(*self._call, Effort(sample, 0, 1, 1))

    def sample(self, group: str, name: str, count: int) -> float:
        """The seconds of a call, of so many."""
        assert self._call is not None
        return paused_sample(*self._call, count, self._workload(group, name).wait_each)


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # workloads may print
    measurer = Measurer()
    gc.disable()
    for line in sys.stdin:
        request, *arguments = json.loads(line)
        print(json.dumps(getattr(measurer, request)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
