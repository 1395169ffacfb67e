"""The measurements as lines on the screen and as a Markdown document."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.first_calls import DISK
from benchmarks.libraries import Library
from benchmarks.machine import TRANSCENDENTAL, Machine, processor
from benchmarks.measure import Timing
from benchmarks.memory import Memory

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
THREADS = (2, 8, 32, 64, 128)  # for which the bound on parallel efficiency is stated
ALL = "all"  # groups, in the summary
LARGE = "Large arrays"  # the group whose rows are to come near the memory's bandwidth
_TITLES = {"jax": "JAX", "numpy": "NumPy", "torch": "PyTorch"}


@dataclass(frozen=True)
class Row:
    """One workload: by the names of the libraries its timings, the seconds of its first calls and its memory; and the
    seconds that the machine needs at least."""

    group: str
    name: str
    timings: dict[str, Timing]
    first: dict[str, float] = field(default_factory=dict[str, float])
    memory: dict[str, Memory] = field(default_factory=dict[str, Memory])
    limit: float | None = None
    efficiency: dict[int, float] = field(default_factory=dict[int, float])  # the bound, by numbers of threads

    @property
    def other(self) -> str | None:
        """The faster one of NumPy and PyTorch, if any of them takes part."""
        names = [name for name in ("numpy", "torch") if name in self.timings]
        return min(names, key=lambda name: self.timings[name].median) if names else None

    def ratio(self, other: str | None) -> float | None:
        """How many times longer another library takes than tinyxla, if both ran."""
        if other not in self.timings or "tinyxla" not in self.timings:
            return None
        return self.timings[other].median / self.timings["tinyxla"].median

    def distance(self, library: str) -> float | None:
        """How many times longer a library takes than the machine must."""
        if self.limit is None or library not in self.timings:
            return None
        return self.timings[library].median / self.limit

    def first_ratio(self, kind: str = "tinyxla") -> float | None:
        """The time of tinyxla's first call, or of one with the code on disk, relative to that of JAX."""
        return self.first[kind] / self.first["jax"] if {kind, "jax"} <= set(self.first) else None

    def memory_ratio(self) -> float | None:
        """The memory of tinyxla's calls relative to that of JAX's."""
        if not {"tinyxla", "jax"} <= set(self.memory):
            return None
        return self.memory["tinyxla"].calls / max(1, self.memory["jax"].calls)


# Cells.


def duration(seconds: float | None) -> str:
    """Return the seconds with three significant digits and a unit."""
    if seconds is None:
        return ""
    scale, unit = next(((s, u) for s, u in _UNITS if seconds >= s), _UNITS[-1])
    return f"{_digits(seconds / scale)} {unit}"


def _digits(value: float) -> str:
    return f"{value:.{max(0, 3 - len(str(int(value))))}f}"


def _timing(timing: Timing | None) -> str:
    return "" if timing is None else f"{duration(timing.median)} ±{timing.spread:.0%}"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio with three significant digits, or two decimals."""
    if ratio is None:
        return ""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def _megabytes(memory: int) -> str:
    return _digits(memory / 1e6)


def title(name: str) -> str:
    """A library's name as it is written."""
    return _TITLES.get(name, name)


def row_line(row: Row, libraries: Sequence[str]) -> str:
    """Return the row for the screen."""
    cells = [f"{row.name:<48}"]
    for name in libraries:
        ratio = "" if name == "tinyxla" else f" {ratio_text(row.ratio(name)):>5}"
        if name in row.timings:
            cells.append(f"{title(name)} {duration(row.timings[name].median)}{ratio}")
    if row.limit is not None:
        cells.append(f"limit x{ratio_text(row.distance('tinyxla'))}")
    if row.first:
        shown = [f"{title(name)} {duration(seconds)}" for name, seconds in row.first.items()]
        cells.append(f"first call {', '.join(shown)}")
    return "  ".join(cells)


# Tables.

SECTION_OF_PROCESSES = "## Many processes"  # which `benchmarks.processes` writes
SECTION_OF_SCALING = "## Scaling"  # which `benchmarks.scaling` writes
OF_OTHERS = (SECTION_OF_PROCESSES, SECTION_OF_SCALING)


def section_of(document: str, heading: str) -> str:
    """A section of a document from its heading to the next one of its level; nothing if there is none."""
    found = re.search(rf"^{re.escape(heading)}\n.*?(?=^## |\Z)", document, re.MULTILINE | re.DOTALL)
    return "" if found is None else found[0]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def steady_table(rows: Sequence[Row]) -> str:
    """How long warm calls take, next to the peers and to the machine's limit."""
    head = ["workload", "tinyxla", "JAX", "JAX / tinyxla", "best of NumPy, PyTorch", "it / tinyxla"]
    head += ["limit", "tinyxla / limit", "JAX / limit", f"efficiency at {', '.join(map(str, THREADS))} threads"]
    return markdown_table(
        head,
        (
            [
                row.name,
                _timing(row.timings.get("tinyxla")),
                _timing(row.timings.get("jax")),
                ratio_text(row.ratio("jax")),
                f"{title(row.other)} {duration(row.timings[row.other].median)}" if row.other else "",
                ratio_text(row.ratio(row.other)),
                duration(row.limit),
                ratio_text(row.distance("tinyxla")),
                ratio_text(row.distance("jax")),
                " ".join(f"{row.efficiency[n]:.2f}" for n in THREADS if n in row.efficiency),
            ]
            for row in rows
        ),
    )


def first_table(rows: Sequence[Row]) -> str:
    """First calls and memory; nothing if there are no such measurements."""
    rows = [row for row in rows if row.first or row.memory]
    if not rows:
        return ""
    head = ["workload", "first call: tinyxla", "JAX", "tinyxla / JAX", "code on disk", "it / JAX"]
    head += ["MB of calls: tinyxla", "JAX", "tinyxla / JAX", "MB of the process: tinyxla", "JAX"]
    return markdown_table(
        head,
        (
            [
                row.name,
                duration(row.first.get("tinyxla")),
                duration(row.first.get("jax")),
                ratio_text(row.first_ratio()),
                duration(row.first.get(DISK)),
                ratio_text(row.first_ratio(DISK)),
                *[_megabytes(m.calls) if (m := row.memory.get(name)) else "" for name in ("tinyxla", "jax")],
                ratio_text(row.memory_ratio()),
                *[_megabytes(m.process) if (m := row.memory.get(name)) else "" for name in ("tinyxla", "jax")],
            ]
            for row in rows
        ),
    )


def mean(ratios: Iterable[float | None]) -> float | None:
    """The geometric mean of the ratios that are known, if any is."""
    known = [max(ratio, 1e-9) for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known else None


def summary_table(rows: Sequence[Row]) -> str:
    """Geometric means for each group and for all rows."""
    head = ["group", "rows", "JAX / tinyxla", "ahead of JAX", "best of NumPy, PyTorch / tinyxla", "tinyxla / limit"]
    head += ["JAX / limit", "first call: tinyxla / JAX", "from disk / JAX", "memory: tinyxla / JAX"]

    def cells(name: str, rows: Sequence[Row]) -> list[str]:
        ratios = [ratio for row in rows if (ratio := row.ratio("jax")) is not None]
        return [
            name,
            str(len(rows)),
            ratio_text(mean(ratios)),
            f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}",
            ratio_text(mean(row.ratio(row.other) for row in rows)),
            ratio_text(mean(row.distance("tinyxla") for row in rows)),
            ratio_text(mean(row.distance("jax") for row in rows)),
            ratio_text(mean(row.first_ratio() for row in rows)),
            ratio_text(mean(row.first_ratio(DISK) for row in rows)),
            ratio_text(mean(row.memory_ratio() for row in rows)),
        ]

    return markdown_table(head, [*(cells(*group) for group in by_group(rows)), cells(ALL, rows)])


def by_group(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The groups in order, with their rows."""
    names = dict.fromkeys(row.group for row in rows)
    return [(name, [row for row in rows if row.group == name]) for name in names]


def behind(rows: Sequence[Row], why: dict[str, str]) -> str:
    """The rows that miss a goal: how they miss it, and why as far as that is known."""
    lines: list[str] = []
    for row in rows:
        missed = missed_goals(row)
        if missed:
            reason = why.get(row.name, "not looked into yet.")
            lines.append(f"- **{row.name}** ({row.group}): {'; '.join(missed)}. Why: {reason}")
    return "\n".join(lines) or "None."


def missed_goals(row: Row) -> list[str]:
    """How a row is behind: slower than JAX, or than the best of NumPy and PyTorch by more than a quarter, slower than
    JAX by more than twice in its first call, larger, or, on large arrays, at less than 0.8 of the bandwidth."""
    missed: list[str] = []
    ratio, other, first, memory = row.ratio("jax"), row.ratio(row.other), row.first_ratio(), row.memory_ratio()
    if ratio is not None and ratio < 1:
        missed.append(f"takes {ratio_text(1 / ratio)} times as long as JAX")
    if other is not None and other < 0.8 and row.other:
        missed.append(f"takes {ratio_text(1 / other)} times as long as {title(row.other)}")
    if first is not None and first > 2:
        missed.append(f"its first call takes {ratio_text(first)} times as long as JAX's")
    distance = row.distance("tinyxla") if row.group == LARGE else None
    if distance is not None and distance > 1.25:
        missed.append(f"reaches {1 / distance:.2f} of the memory's bandwidth")
    if memory is not None and memory > 1.05:
        missed.append(f"needs {ratio_text(memory)} times JAX's memory")
    return missed


# The document.


def document(
    rows: Sequence[Row],
    libraries: Sequence[Library],
    machine: Machine,
    command: str,
    charts: dict[str, str],
    why: dict[str, str],
) -> str:
    """Return the Markdown document: the charts (their paths by title), the summary, how it was measured, on what, what
    is behind, and the tables."""
    sections = "\n\n".join(_section(name, group, charts.get(name)) for name, group in by_group(rows))
    return f"""# Benchmarks

Written by `{command}` on {datetime.date.today().isoformat()}.

![How many times longer JAX and the better one of NumPy and PyTorch take than tinyxla: the geometric mean of each group
of workloads]({charts[ALL]})

{summary_table(rows)}

A figure of a group is the geometric mean of its rows.

## What is measured

- Machine: {processor()}, {len(os.sched_getaffinity(0))} cores; {platform.platform(terse=True)}.
- Versions: {_versions(libraries)}.
- All libraries run in one process and take turns in a rotating order, on the same 32-bit inputs, with their default
  numbers of threads. A figure is the median of the samples; the spread after ± is the distance between their quartiles
  relative to it. Results are waited for after every call, except in the rows on dispatch and eager operations, which
  measure how fast calls follow each other. A ratio "A / B" is A's time divided by B's.
- The first call is that of a new function in a process that has compiled others: it is traced, compiled and run, when
  all that the library keeps in memory has been cleared. "Code on disk" is the same when tinyxla finds the object code
  that another process left. The least of some samples is shown.
- The memory is measured in a process for each workload and library: by how much the resident memory during three warm
  calls exceeds that of before the inputs were made, when the library was imported and had run a small matrix product.
  The results of a call are dropped before the next. It counts inputs, results, temporaries and code. The memory of the
  process is the most it ever needed, for the library and its compiler too.
- The limit of a row is max(bytes / bandwidth, operations / peak). The bytes are those of the inputs and results, each
  moved once, unless the workload says otherwise; the bandwidth is that of the level of memory which holds them. The
  operations are those on floating-point numbers, where a transcendental function counts as {TRANSCENDENTAL}. It is a
  lower bound that not every computation can come near.
- The efficiency is a bound, not a measurement: which part of the time of so many threads the program can use at most,
  by the cuts of its kernels for so many processors and the steps that one thread does (`parallel_efficiency` in
  [performance.md](performance.md)). It is to be at least 0.9 at 64 threads where one thread takes more than 10 ms.

{_machine_table(machine)}

The peak is {machine.peak / 1e9:.0f} GFLOP/s, what the BLAS reaches with a large single-precision matrix product on all
cores.

## Behind

The rows that are slower than JAX, or than the best of NumPy and PyTorch by more than a quarter, whose first call takes
more than twice as long as JAX's, or that need more memory than JAX; and those on large arrays that reach less than 0.8
of the memory's bandwidth.

{behind(rows, why)}

{sections}
"""


def _section(name: str, rows: Sequence[Row], chart: str | None) -> str:
    """A group: its chart if there is one, and its tables folded up."""
    picture = f"![{name}: how many times longer than tinyxla]({chart})\n\n" if chart else ""
    tables = "\n\n".join(table for table in (steady_table(rows), first_table(rows)) if table)
    summary = f"All figures of {len(rows)} rows"
    return f"## {name}\n\n{picture}<details><summary>{summary}</summary>\n\n{tables}\n\n</details>"


def _machine_table(machine: Machine) -> str:
    head = ["level", "MB", "GB/s, one thread", "GB/s, all"]
    return markdown_table(
        head,
        (
            [
                level.name,
                "" if level.size == float("inf") else f"{level.size / 2**20:.0f}",
                f"{level.one / 1e9:.0f}",
                f"{level.all / 1e9:.0f}",
            ]
            for level in machine.levels
        ),
    )


def _versions(libraries: Sequence[Library]) -> str:
    versions = {"Python": platform.python_version()}
    versions |= {title(library.name): library.version for library in libraries}
    versions |= {name: importlib.metadata.version(name.lower()) for name in ("NumPy", "SciPy", "llvmlite")}
    return ", ".join(f"{name} {version}" for name, version in versions.items())
