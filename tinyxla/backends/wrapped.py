"""Executables around others: what happens to arguments and results is theirs, all else the inner one's."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyxla.compiler.report import Report


class WrappedExecutable:
    """What an executable shows of the one inside of it."""

    def __init__(self, inside: Any) -> None:
        self._inside = inside

    @property
    def kernels(self) -> Sequence[Any]:
        return self._inside.kernels

    def report(self) -> Report:
        return self._inside.report()

    def parallel_efficiency(self, threads: Sequence[int]) -> dict[int, float]:
        return self._inside.parallel_efficiency(threads)

    def instrumented(self, events: int) -> Any:
        made = copy.copy(self)
        made._inside = self._inside.instrumented(events)
        return None if made._inside is None else made

    def record(self) -> Any:
        return self._inside.record()
