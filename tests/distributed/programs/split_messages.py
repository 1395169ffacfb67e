"""Programs of many cases in which every message is split into a start and a done, however short it is."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.distributed.programs import every_collective, transformed
from tinyxla.backends.numba.program import collectives
from tinyxla.compiler.schedule import latency_hiding
from tinyxla.runtime.mpi.calls import STARTING_ROUTINES


def with_all_split(main: Callable[[], None]) -> None:
    """Run a program where every message is split."""
    latency_hiding.MESSAGE_START_BYTES = 1  # pyright: ignore[reportConstantRedefinition]
    latency_hiding.MIN_HIDDEN = 0.0  # pyright: ignore[reportConstantRedefinition]
    main()
    started = collectives._start.cache_info().currsize  # pyright: ignore[reportPrivateUsage]
    assert started == len(STARTING_ROUTINES), "some kind of message was never split"


if __name__ == "__main__":
    with_all_split({"transformed": transformed.main, "every_collective": every_collective.main}[sys.argv[1]])
