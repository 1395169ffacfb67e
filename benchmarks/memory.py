"""The memory of a workload, in a process of its own: `python -m benchmarks.memory LIBRARY WORKLOAD` prints two numbers.

The first is by how many bytes the resident memory during three warm calls exceeds what it was before the inputs were
made and the function compiled, when the library was imported and had compiled and run a small matrix product, for which
it loads what it has. So it counts inputs, results, temporaries and code alike in all libraries. The second is the most
that the whole process ever needed.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT
from benchmarks.groups import GROUPS
from benchmarks.libraries import Library
from benchmarks.workload import Workload


@dataclass(frozen=True)
class Memory:
    """Bytes: of warm calls, and of the whole process at its worst."""

    calls: int
    process: int


def measure_memory(pairs: Iterable[tuple[str, str]]) -> list[Memory | None]:
    """The memory of pairs of a library's and a workload's name, two at a time; None where the system does not
    tell, or the process failed."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pair: _in_process(*pair), pairs))


def _in_process(library: str, workload: str) -> Memory | None:
    if not sys.platform.startswith("linux"):
        return None
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TINYXLA_CACHE_DIR": cache}
        command = [sys.executable, "-m", "benchmarks.memory", library, workload]
        finished = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        return None
    calls, process = map(int, finished.stdout.split()[-2:])
    return Memory(calls, process)


def _status(field: str) -> int:
    """A field of the kernel's account of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}.")


def _measure(library: Library, workload: Workload) -> Memory:
    library.tx.block_until_ready(library.tx.jit(lambda x: x @ x + 1)(library.jnp.ones((64, 64))))
    gc.collect()
    before = _status("VmRSS")
    call = workload.build(library)
    library.tx.block_until_ready(call())
    gc.collect()
    process = _status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the mark of the highest starts anew
    for _ in range(3):
        library.tx.block_until_ready(call())  # its results go before those of the next call come
    peak = _status("VmHWM")
    return Memory(max(0, peak - before), max(peak, process))


if __name__ == "__main__":
    named = {workload.name: workload for group in GROUPS.values() for workload in group}
    chosen = named[sys.argv[2]]
    assert isinstance(chosen, Workload)
    measured = _measure(Library.load(sys.argv[1]), chosen)
    print(measured.calls, measured.process)
