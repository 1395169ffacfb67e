"""Computations as pictures: Graphviz text, and SVG that any browser or notebook shows.

Constants are small and stand beside whoever uses them, once for each user, since lines from one constant all over the
picture say nothing. A computation that another one calls has a frame of its own; one that is a single op on scalars, as
reductions have, is only named.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import NamedTuple

from tinyxla.errors import ArgumentError
from tinyxla.hlo import Computation, Instruction, Module, is_constant
from tinyxla.ops import reduction
from tinyxla.text.attributes import attributes_text
from tinyxla.text.graph_drawing import Box, Drawing, Point, arrange
from tinyxla.text.literals import literal_text

# Fill and line of each family of ops.
_COLOURS = {
    "parameter": ("#fff7d6", "#c9a227"),
    "elementwise": ("#e3eefb", "#5b8fce"),
    "movement": ("#e4f5e6", "#5fa86a"),
    "reduction": ("#fdeadb", "#dd8b47"),
    "contraction": ("#fbe1e3", "#cf5f68"),
    "structure": ("#f0f0f2", "#9a9aa5"),
    "call": ("#efe6fa", "#8e6bc0"),
}
_FAMILIES = {
    "parameter": "parameter",
    "movement": """
        bitcast bitcast-convert broadcast concatenate copy dynamic-slice dynamic-update-slice gather iota pad reshape
        reverse scatter slice sort transpose
    """,
    "reduction": "reduce reduce-window select-and-scatter batch-norm-training batch-norm-inference batch-norm-grad",
    "contraction": "cholesky convolution dot fft ragged-dot scaled-dot triangular-solve",
    "structure": "get-tuple-element opt-barrier tuple",
    "call": "async-start call callback conditional custom-call fusion map while",
}
_FAMILY = {name: family for family, names in _FAMILIES.items() for name in names.split()}


def _colours(x: Instruction) -> tuple[str, str]:
    return _COLOURS[_FAMILY.get(x.op.name, "elementwise")]


# --- what is shown ----------------------------------------------------------------------------------------------------


def _small(x: Instruction) -> bool:
    """Shown beside each user: constants, and constants that are spread."""
    if x.op.name == "broadcast":
        (source,) = x.operands
        return is_constant(source) and source.array_shape.rank == 0
    return is_constant(x)


def _small_text(x: Instruction) -> str:
    literal = (x.operands[0] if x.op.name == "broadcast" else x).attributes.literal
    return literal_text(literal) if literal.value.size <= 4 else str(x.shape)


def _nodes(computation: Computation) -> list[Instruction]:
    """What has a box: all but the small ones, unless nothing uses them."""
    hidden = {x for x in computation.instructions if _small(x)} - {computation.root}
    return [x for x in computation.instructions if x not in hidden]


def _title(x: Instruction) -> str:
    return f"parameter {x.attributes.parameter_number}" if x.op.name == "parameter" else x.op.name


def _details(x: Instruction) -> list[str]:
    """The attributes in short lines, at most four."""
    if x.op.name == "parameter":
        return []
    lines: list[str] = []
    for name, value in attributes_text(x, lambda called: called.name).items():
        text = _shortened(f"{name}={value}", 30)
        if lines and len(lines[-1]) + len(text) < 30:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return lines[:4]


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _shown(what: str, computation: Computation) -> list[Computation]:
    """The computation, and those it refers to that have a frame."""
    if not isinstance(computation, Computation):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(computation).__name__
        raise ArgumentError(
            f"text.{what}: takes a computation, such as lowered.module.entry, but got one of type {kind}."
        )
    inner = [c for c in Module(computation.name, computation).computations() if c is not computation]
    return [computation, *(c for c in reversed(inner) if reduction.monoid(c) is None)]


# --- Graphviz ---------------------------------------------------------------------------------------------------------


def to_dot(computation: Computation) -> str:
    """The computation as text for Graphviz (`dot -Tsvg`).

    Args:
        computation: a computation.

    Returns:
        The text.

    Raises:
        ArgumentError: what is no computation.

    >>> import tinyxla
    >>> from tinyxla.text import to_dot
    >>> to_dot(tinyxla.jit(lambda x: x * x).lower(1.0).module.entry).splitlines()[0]
    'digraph {'
    """
    lines = ["digraph {", '  node [shape=box style="rounded,filled" fontname="Helvetica" fontsize=11]']
    lines.append('  edge [color="#777777" arrowsize=0.6]')
    for number, shown in enumerate(_shown("to_dot", computation)):
        inside = list(_dot_lines(shown, f"c{number}_"))
        if number:
            lines.append(f"  subgraph cluster_{number} {{")
            lines.append(f'    label={_quoted(shown.name)} fontname=Helvetica color="#bbbbbb"')
            lines += [f"  {line}" for line in inside]
            lines.append("  }")
        else:
            lines += inside
    return "\n".join([*lines, "}"]) + "\n"


def _dot_lines(computation: Computation, prefix: str) -> Iterator[str]:
    names = {x: f"{prefix}{k}" for k, x in enumerate(computation.instructions)}
    for x in _nodes(computation):
        label = "\n".join([_title(x), _shortened(str(x.shape), 36), *_details(x)])
        fill, line = _colours(x)
        width = 2 if x is computation.root else 1
        yield f'  {names[x]} [label={_quoted(label)} fillcolor="{fill}" color="{line}" penwidth={width}]'
        for k, operand in enumerate(x.operands):
            if _small(operand):
                tag = f"{names[x]}_{k}"
                yield f'  {tag} [label={_quoted(_small_text(operand))} shape=plaintext style="" fontsize=9]'
                yield f"  {tag} -> {names[x]} [arrowhead=none]"
            else:
                yield f"  {names[operand]} -> {names[x]}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


# --- SVG --------------------------------------------------------------------------------------------------------------

_LINE = 14.0  # of text
_MARGIN = 12.0
# In a page styles hold for all of it, so they name the picture's class.
_STYLE = """
  .tinyxla-graph text { font: 11px Helvetica, Arial, sans-serif; fill: #222; text-anchor: middle }
  .tinyxla-graph .op { font-weight: bold }
  .tinyxla-graph .detail, .tinyxla-graph .small { font-size: 9px; fill: #555 }
  .tinyxla-graph .title { font-size: 12px; font-weight: bold; text-anchor: start; fill: #888 }
  .tinyxla-graph .edge { fill: none; stroke: #888; stroke-width: 1.1 }
"""


class _Node(NamedTuple):
    """A box on the page: lines of text and the tags of its constants."""

    lines: list[tuple[str, str]]  # class and text
    tags: list[str]
    width: float

    @property
    def box(self) -> Box:
        beside = max(map(_tag_width, self.tags), default=-6.0) + 6.0
        return Box(self.width / 2 + beside, self.width / 2, 10.0 + _LINE * max(len(self.lines), len(self.tags)))


def _tag_width(text: str) -> float:
    return 5.2 * len(text) + 8.0


def _node(x: Instruction) -> _Node:
    lines = [("op", _title(x)), ("shape", _shortened(str(x.shape), 36))]
    lines += [("detail", text) for text in _details(x)]
    tags = [_shortened(_small_text(o), 16) for o in x.operands if _small(o)]
    widest = max((5.0 if name == "detail" else 6.6) * len(text) for name, text in lines)
    return _Node(lines, tags, max(56.0, widest + 16.0))


def to_svg(computation: Computation) -> str:
    """The computation as a self-contained SVG document; computations that it calls stand to its right. It has no
    background: boxes bring theirs, and lines are grey, for light and dark pages.

    Args:
        computation: a computation.

    Returns:
        The text.

    Raises:
        ArgumentError: what is no computation.

    >>> import tinyxla
    >>> from tinyxla.text import to_svg
    >>> picture = to_svg(tinyxla.jit(lambda x: x * x).lower(1.0).module.entry)
    >>> picture[:4], picture.count("<rect") > 1
    ('<svg', True)
    """
    parts: list[str] = []
    right = bottom = _MARGIN
    for number, shown in enumerate(_shown("to_svg", computation)):
        elements, width, height = _framed(shown, framed=number > 0)
        parts.append(f'<g transform="translate({right:.1f} {_MARGIN})">{elements}</g>')
        right += width + _MARGIN
        bottom = max(bottom, height + _MARGIN)
    bottom += _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tinyxla-graph" width="{right:.0f}" height="{bottom:.0f}" '
        f'viewBox="0 0 {right:.0f} {bottom:.0f}">'
    )
    arrow = '<path d="M0 0 L6 3 L0 6 z" fill="#888"/>'
    marker = f'<marker id="end" markerWidth="6" markerHeight="6" refX="6" refY="3" orient="auto">{arrow}</marker>'
    return "\n".join([head, f"<style>{_STYLE}</style>", f"<defs>{marker}</defs>", *parts, "</svg>"]) + "\n"


def _framed(computation: Computation, framed: bool) -> tuple[str, float, float]:
    """The elements of one computation, and their width and height."""
    elements, drawing = _drawn(computation)
    if not framed:
        return "\n".join(elements), drawing.width, drawing.height
    title = html.escape(computation.name)
    width = max(drawing.width, 7.0 * len(title)) + 2 * _MARGIN
    height = drawing.height + 2 * _MARGIN + 20.0
    frame = f'<rect width="{width:.1f}" height="{height:.1f}" rx="6" fill="none" stroke="#bbb" stroke-dasharray="4 3"/>'
    label = f'<text class="title" x="{_MARGIN}" y="20">{title}</text>'
    inside = f'<g transform="translate({_MARGIN} {_MARGIN + 20.0})">{"".join(elements)}</g>'
    return f"{frame}{label}{inside}", width, height


def _drawn(computation: Computation) -> tuple[list[str], Drawing]:
    shown = _nodes(computation)
    number = {x: k for k, x in enumerate(shown)}
    nodes = [_node(x) for x in shown]
    edges = [(number[o], number[x]) for x in shown for o in x.operands if o in number]
    drawing = arrange([node.box for node in nodes], edges)
    elements: list[str] = []
    for x, node in zip(shown, nodes, strict=True):
        feeding = [number[o] for o in x.operands if o in number]
        spread = min(14.0, (node.width - 16.0) / max(len(feeding), 1))
        for place, source in enumerate(feeding):
            end = drawing.anchors[number[x]]
            port = Point(end.x + spread * (place - (len(feeding) - 1) / 2), end.y)
            start = drawing.anchors[source]
            bottom = Point(start.x, start.y + nodes[source].box.height)
            elements.append(_curve(bottom, drawing.bends[source, number[x]], port))
    for x, node in zip(shown, nodes, strict=True):
        elements += _box(x, node, drawing.anchors[number[x]], x is computation.root)
    return elements, drawing


def _curve(start: Point, bends: list[tuple[Point, Point]], end: Point) -> str:
    """Straight down through the layers it passes, and in curves between them."""
    at = start
    path = f"M{start.x:.1f} {start.y:.1f}"
    for upper, lower in (*bends, (end, end)):
        middle = (at.y + upper.y) / 2
        path += f" C{at.x:.1f} {middle:.1f} {upper.x:.1f} {middle:.1f} {upper.x:.1f} {upper.y:.1f}"
        if lower != upper:
            path += f" L{lower.x:.1f} {lower.y:.1f}"
        at = lower
    return f'<path class="edge" d="{path}" marker-end="url(#end)"/>'


def _box(x: Instruction, node: _Node, anchor: Point, is_root: bool) -> Iterator[str]:
    fill, line = _colours(x)
    height = node.box.height
    left = anchor.x - node.width / 2
    yield (
        f'<rect x="{left:.1f}" y="{anchor.y:.1f}" width="{node.width:.1f}" height="{height:.1f}" rx="5" '
        f'fill="{fill}" stroke="{line}" stroke-width="{2.2 if is_root else 1.1}"/>'
    )
    first = anchor.y + height / 2 - _LINE * len(node.lines) / 2 + 10.5
    for k, (kind, text) in enumerate(node.lines):
        yield f'<text class="{kind}" x="{anchor.x:.1f}" y="{first + _LINE * k:.1f}">{html.escape(text)}</text>'
    top = anchor.y + height / 2 - _LINE * len(node.tags) / 2
    for k, text in enumerate(node.tags):
        width = _tag_width(text)
        y = top + _LINE * k
        yield f'<path class="edge" d="M{left - 6.0:.1f} {y + 6.5:.1f} H{left:.1f}"/>'
        yield f'<rect x="{left - 6.0 - width:.1f}" y="{y:.1f}" width="{width:.1f}" height="13" rx="6" fill="#eee"/>'
        yield f'<text class="small" x="{left - 6.0 - width / 2:.1f}" y="{y + 9.5:.1f}">{html.escape(text)}</text>'
