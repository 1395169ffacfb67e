"""The measurements of many processes as tables, and as a section of a Markdown document."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.machine import processor
from benchmarks.processes.calls import ITERATIONS
from benchmarks.processes.run import Times
from benchmarks.report import SECTION_OF_PROCESSES, duration, markdown_table, ratio_text, section_of, title

_SIZED = re.compile(r"^(\S+) (\d+)(.*)$")


def shown(row: str) -> str:
    """The name of a row with its bytes as one reads them."""
    found = _SIZED.match(row)
    if found is None:
        return row
    number, unit = int(found[2]), "B"
    for larger in ("KB", "MB"):
        if number >= 1024:
            number, unit = number // 1024, larger
    return f"{found[1]} of {number} {unit}{found[3]}"


def rows_of(measured: Mapping[str, Times]) -> tuple[list[str], list[list[str]]]:
    """The head of a table, and its rows: times, and for other libraries how many times longer they take."""
    others = [name for name in measured if name != "tinyxla"]
    head = ["workload", *map(title, measured), *(f"{title(name)} / tinyxla" for name in others)]
    own = measured["tinyxla"]
    rows = [
        [
            shown(row),
            *(duration(times.get(row)) for times in measured.values()),
            *(ratio_text(measured[name][row] / own[row] if row in measured[name] else None) for name in others),
        ]
        for row in own
    ]
    return head, rows


def section(measured: Mapping[str, Times], processes: int, command: str) -> str:
    """The section of the document."""
    return f"""{SECTION_OF_PROCESSES}

Written by `{command}` on {datetime.date.today().isoformat()}: {processes} processes on {processor()},
{len(os.sched_getaffinity(0))} cores. The same program for tinyxla and for JAX over its CPU collectives (gloo); for
mpi4py its own calls on NumPy's arrays. A figure is the median of some rounds in the slowest process. Before it is
measured, each process compares its parts of the results with those of the program over devices of one process. The
bytes of a collective operation are those of the operand in each process; "in a loop" are {ITERATIONS} of them in a
compiled `fori_loop`, of mpi4py in one of Python, and the time is that of one.

{markdown_table(*rows_of(measured))}
"""


def write_section(path: Path, text: str) -> None:
    """Put a section in place of the one that the document has under its heading, or at its end."""
    document = path.read_text(encoding="utf-8")
    before = section_of(document, text.partition("\n")[0])
    if before:
        start, end = document.split(before)
        changed = f"{start}{text.rstrip()}\n\n{end}".rstrip() + "\n"
    else:
        changed = f"{document.rstrip()}\n\n{text}"
    path.write_text(changed, encoding="utf-8")


def screen_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table with aligned columns."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    aligned = [
        [row[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(row[1:], widths[1:], strict=True))]
        for row in [head, *rows]
    ]
    return "\n".join("  ".join(row) for row in aligned)
