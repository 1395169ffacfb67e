"""The measurements as lines on the screen and as a Markdown document."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.libraries import Library
from benchmarks.measure import Timing

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_NAMES = {"jax": "JAX", "numpy": "NumPy"}


@dataclass(frozen=True)
class Row:
    """One workload: its timings by the names of the libraries that ran it."""

    workload: str
    timings: dict[str, Timing]

    def ratio(self, other: str, reference: str) -> float | None:
        """Return how many times longer the other library takes than the reference, if both ran."""
        if other not in self.timings or reference not in self.timings:
            return None
        return self.timings[other].median / self.timings[reference].median


def duration(seconds: float) -> str:
    """Return the seconds with three significant digits and a unit."""
    scale, unit = next(((s, u) for s, u in _UNITS if seconds >= s), _UNITS[-1])
    value = seconds / scale
    decimals = max(0, 2 - len(str(int(value))) + 1)
    return f"{value:.{decimals}f} {unit}"


def _cell(timing: Timing | None) -> str:
    return "" if timing is None else f"{duration(timing.median)} ±{timing.spread:.0%}"


def _ratio_cell(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def row_line(row: Row, libraries: Sequence[str]) -> str:
    """Return the row for the screen."""
    reference, *others = libraries
    cells = [f"{row.workload:<45}", f"{reference} {_cell(row.timings.get(reference)):<16}"]
    for other in others:
        cells.append(f"{other} {_cell(row.timings.get(other)):<16} {_ratio_cell(row.ratio(other, reference)):>7}")
    return "  ".join(cells)


def summary(rows: Sequence[Row], libraries: Sequence[str]) -> list[str]:
    """Return a sentence for each library but the first: in how many workloads it takes longer, and the mean ratio."""
    reference, *others = libraries
    sentences: list[str] = []
    for other in others:
        ratios = [ratio for row in rows if (ratio := row.ratio(other, reference)) is not None]
        if not ratios:
            continue
        longer = sum(ratio > 1 for ratio in ratios)
        mean = statistics.geometric_mean(ratios)
        sentences.append(
            f"{_title(other)} takes longer than {_title(reference)} in {longer} of {len(ratios)} workloads; "
            f"the geometric mean of the ratios is {mean:.2f}."
        )
    return sentences


def document(rows: Sequence[Row], libraries: Sequence[Library], command: str) -> str:
    """Return the Markdown document: how it was measured, on what, and the table."""
    names = [library.name for library in libraries]
    reference, *others = names
    head = ["workload", _title(reference)]
    for other in others:
        head += [_title(other), f"{_title(other)} / {_title(reference)}"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in rows:
        cells = [row.workload, _cell(row.timings.get(reference))]
        for other in others:
            cells += [_cell(row.timings.get(other)), _ratio_cell(row.ratio(other, reference))]
        lines.append(cells)
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"""# Benchmarks

Written by `{command}` on {datetime.date.today().isoformat()}.
A ratio above 1 means that {_title(reference)} is faster.

- Machine: {processor()}, {len(os.sched_getaffinity(0))} cores; {platform.platform(terse=True)}.
- Versions: {_versions(libraries)}.
- All libraries run in one process and take turns in a rotating order, on the same 32-bit inputs, with their default
  numbers of threads. A figure is the median of the samples; the spread after ± is the distance between their quartiles
  relative to it. Results are waited for after every call, except in the rows on dispatch and eager operations, which
  measure how fast calls follow each other.
- "Compile" is the first call of a new function in a running process, and finds nothing in tinyxla's caches; JAX keeps
  what it knows of its own helpers. The last three rows are fresh processes.
- {"  ".join(summary(rows, names))}

{table}
"""


def _title(name: str) -> str:
    return _NAMES.get(name, name)


def _versions(libraries: Sequence[Library]) -> str:
    versions = {"Python": platform.python_version()}
    versions |= {_title(library.name): library.version for library in libraries}
    versions |= {name: importlib.metadata.version(name.lower()) for name in ("Numba", "llvmlite", "SciPy")}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def processor() -> str:
    """Return the processor's model as Linux reports it, or what Python knows elsewhere."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
