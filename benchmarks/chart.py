"""The ratios as a picture: one bar for each workload on a logarithmic scale, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from benchmarks.report import Row, by_group

_LABELS = 330  # width of the names
_SCALE = 520  # width of the bars
_LINE = 14  # height of a row
_RIGHT = 60
_STYLE = """
text { font: 11px system-ui, sans-serif; fill: #24292f }
.group { font-weight: bold; font-size: 12px }
.grid { stroke: #d0d7de }
.one { stroke: #57606a; stroke-width: 1.5 }
.ahead { fill: #2f81c7 }
.behind { fill: #d1662b }
.other { fill: none; stroke: #24292f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .grid { stroke: #30363d }
  .one { stroke: #8b949e }
  .ahead { fill: #58a6ff }
  .behind { fill: #f0883e }
  .other { stroke: #e6edf3 }
}
"""


def draw(rows: Sequence[Row]) -> str:
    """A bar from 1 to how many times longer JAX takes than tinyxla, to the right where tinyxla is ahead; a circle is
    the better one of NumPy and PyTorch."""
    rows = [row for row in rows if row.ratio("jax") is not None]
    shown = [ratio for row in rows for ratio in (row.ratio("jax"), row.ratio(row.other)) if ratio is not None]
    low = min([0.5, *shown]) / 1.1
    high = max([2.0, *shown]) * 1.1

    def place(ratio: float) -> float:
        return _LABELS + _SCALE * math.log(ratio / low) / math.log(high / low)

    y = 40.0
    marks: list[str] = []
    for name, group in by_group(rows):
        marks.append(_text(8, y + 12, name, "group"))
        y += _LINE + 4
        for row in group:
            marks += _row(row, place, y)
            y += _LINE
        y += 8
    ticks = [tick for power in range(-3, 5) for tick in (10.0**power, 3 * 10.0**power) if low <= tick <= high]
    grid = [
        f'<line class="{"one" if tick == 1 else "grid"}" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="34" '
        f'y2="{y:.0f}"/>{_text(place(tick), 28, f"{tick:g}×", anchor="middle")}'
        for tick in ticks
    ]
    head = _text(8, 14, "How many times longer than tinyxla: bars JAX, circles the best of NumPy and PyTorch")
    width = _LABELS + _SCALE + _RIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 8:.0f}" width="{width}">',
            f"<style>{_STYLE}</style>",
            head,
            *grid,
            *marks,
            "</svg>\n",
        ]
    )


def _row(row: Row, place: Callable[[float], float], y: float) -> list[str]:
    ratio, other = row.ratio("jax"), row.ratio(row.other)
    assert ratio is not None
    start, end = sorted((place(1.0), place(ratio)))
    kind = "ahead" if ratio >= 1 else "behind"
    marks = [
        _text(_LABELS - 8, y + 11, row.name, anchor="end"),
        f'<rect class="{kind}" x="{start:.1f}" y="{y + 2:.1f}" width="{max(end - start, 1):.1f}" height="{_LINE - 5}">'
        f"<title>{escape(row.name)}: {ratio:.2f}</title></rect>",
    ]
    if other is not None:
        marks.append(f'<circle class="other" cx="{place(other):.1f}" cy="{y + _LINE / 2 - 0.5:.1f}" r="3.5"/>')
    return marks


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
