"""Dot plots of ratios as SVG text: one for all groups, one for the rows of each.

A bar reaches from 1 to how many times longer JAX takes than tinyxla, on a logarithmic axis; a circle is the better one
of NumPy and PyTorch. Blue is tinyxla ahead and vermilion behind: colours of Okabe and Ito's palette, which colour-blind
people tell apart (https://jfly.uni-koeln.de/color/).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.report import ALL, Row, by_group, mean

_LABELS = 270  # width of the names
_SCALE = 320  # width of the bars
_FIGURES = 60  # width of the ratios as text
_WIDTH = _LABELS + _SCALE + _FIGURES
_HEAD = 52  # height of the legend and the ticks
_FOOT = 34
_LINE = 19  # height of a row
_AXIS = "time relative to tinyxla's, logarithmic: right of 1× tinyxla takes less"
# A page that is dark says so to its pictures (`color-scheme`), and each paints its own ground: no text is ever lost.
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.ground { fill: #ffffff }
.small { font-size: 11px; fill: #57606a }
.total { font-weight: bold }
.grid { stroke: #d0d7de }
.one { stroke: #57606a; stroke-width: 1.5 }
.ahead { fill: #0072b2 }
.behind { fill: #d55e00 }
.other { fill: #ffffff; stroke: #24292f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ground { fill: #131416 }
  .small { fill: #9aa4ae }
  .grid { stroke: #30363d }
  .one { stroke: #8b949e }
  .ahead { fill: #56b4e9 }
  .behind { fill: #e8833a }
  .other { fill: #131416; stroke: #e6edf3 }
}
"""


class Line(NamedTuple):
    """A line of a chart: how many times longer than tinyxla JAX takes, and the better one of NumPy and PyTorch."""

    label: str
    jax: float | None
    other: float | None


def charts(rows: Sequence[Row]) -> dict[str, str]:
    """The charts by their titles: `ALL` groups, and each group that has ratios."""
    lines = {name: [_line(row) for row in group] for name, group in by_group(rows)}
    groups = {name: known for name, of in lines.items() if (known := [line for line in of if line.jax or line.other])}
    means = [_mean(name, lines) for name, lines in groups.items()]
    total = _mean(ALL, [line for lines in groups.values() for line in lines])
    return {ALL: draw([*means, total])} | {name: draw(lines) for name, lines in groups.items()}


def write_charts(rows: Sequence[Row], folder: Path) -> dict[str, str]:
    """Write the charts into a folder, and return by their titles the paths from where the folder is."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: dict[str, str] = {}
    for title, chart in charts(rows).items():
        path = folder / (re.sub(r"\W+", "-", title.lower()) + ".svg")
        path.write_text(chart, encoding="utf-8")
        paths[title] = f"{folder.name}/{path.name}"
    return paths


def _line(row: Row) -> Line:
    return Line(row.name, row.ratio("jax"), row.ratio(row.other))


def _mean(label: str, lines: Sequence[Line]) -> Line:
    """The geometric means of lines, as one line."""
    return Line(label, mean(line.jax for line in lines), mean(line.other for line in lines))


def draw(lines: Sequence[Line]) -> str:
    """The chart of some lines as the text of an SVG file."""
    shown = [ratio for line in lines for ratio in (line.jax, line.other) if ratio]
    low = min([0.5, *shown]) / 1.1
    high = max([2.0, *shown]) * 1.1

    def position(ratio: float) -> float:
        return _LABELS + _SCALE * math.log(ratio / low) / math.log(high / low)

    bottom = _HEAD + _LINE * len(lines)
    marks = [mark for n, line in enumerate(lines) for mark in _marks(line, position, _HEAD + _LINE * n)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + _FOOT}" width="{_WIDTH}">',
            f"<style>{_STYLE}</style>",
            f'<path class="ground" d="M0 0h{_WIDTH}v{bottom + _FOOT}H0z"/>',
            *_legend(),
            *_grid(low, high, position, bottom),
            *marks,
            _text(_LABELS + _SCALE / 2, bottom + 24, _AXIS, "small", "middle"),
            "</svg>\n",
        ]
    )


def _grid(low: float, high: float, position: Callable[[float], float], bottom: int) -> list[str]:
    """Vertical lines where ratios are round, with the ratios above them."""
    ticks = [tick for power in range(-4, 6) for tick in (10.0**power, 3 * 10.0**power) if low <= tick <= high]
    return [
        f'<line class="{"one" if tick == 1 else "grid"}" x1="{position(tick):.1f}" x2="{position(tick):.1f}" '
        f'y1="{_HEAD - 6}" y2="{bottom + 4}"/>{_text(position(tick), _HEAD - 12, f"{tick:g}×", "small", "middle")}'
        for tick in ticks
    ]


def _legend() -> list[str]:
    """The legend of the marks, above the ticks."""
    return [
        f'<path class="ahead" d="M{_LABELS} 8h24v10h-24z"/>',
        f'<path class="behind" d="M{_LABELS + 26} 8h12v10h-12z"/>',
        _text(_LABELS + 44, 17, "JAX"),
        f'<path class="other" d="{_disc(_LABELS + 96, 13)}"/>',
        _text(_LABELS + 106, 17, "better one of NumPy and PyTorch"),
    ]


def _marks(line: Line, position: Callable[[float], float], top: float) -> list[str]:
    """The label, the bar, the circle and JAX's ratio of a line."""
    middle = top + _LINE / 2
    marks = [_text(_LABELS - 8, middle + 4, line.label, "total" if line.label == ALL else "", "end")]
    if line.jax is not None:
        start, end = sorted((position(1.0), position(line.jax)))
        kind = "ahead" if line.jax >= 1 else "behind"
        marks += [
            f'<rect class="{kind}" x="{start:.1f}" y="{top + 4:.1f}" width="{max(end - start, 1):.1f}" '
            f'height="{_LINE - 8}"><title>{escape(line.label)}: JAX {line.jax:.2f}×</title></rect>',
            _text(_WIDTH - 8, middle + 4, f"{line.jax:.3g}×", "small", "end"),
        ]
    if line.other is not None:
        marks.append(
            f'<circle class="other" cx="{position(line.other):.1f}" cy="{middle:.1f}" r="4">'
            f"<title>{escape(line.label)}: better one of NumPy and PyTorch {line.other:.2f}×</title></circle>"
        )
    return marks


def _disc(x: float, y: float) -> str:
    """The path of a circle of the radius that circles of lines have."""
    return f"M{x - 4} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
