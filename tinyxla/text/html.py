"""Displays in notebooks: tables with bars, summaries of arrays, and small pictures of them.

Everything is one fragment of HTML with its styles inside. Text and lines have the colour of the page's text, and there
is no background, so that displays fit light and dark themes.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

_MAX_PIXELS = 192  # of a picture along each axis; of more, some are left out
_WIDTH = 192  # of a picture on the page
_FEWEST_PIXELS = 8  # along each axis, from which on a matrix has a picture
_FEWEST_ELEMENTS = 17  # from which on an array has a display
_MAX_ELEMENTS = 1 << 24  # that are summarized
_CELL = "padding:.15em .6em;text-align:{};vertical-align:top;white-space:pre-wrap;border:0;background:none"


class Bar(NamedTuple):
    """A cell of a table: a share of a whole as a bar, with text behind it."""

    share: float
    text: str


def page(head: str, *parts: str) -> str:
    """A display: a line that says what is shown, and HTML below it."""
    return f'<div style="color:inherit"><div><b>{html.escape(head)}</b></div>{"".join(parts)}</div>'


def paragraph(text: str) -> str:
    """A line of text that is less important."""
    return f'<div style="opacity:.7">{html.escape(text)}</div>'


def details(summary: str, inside: str) -> str:
    """HTML that is shown when its summary is clicked."""
    return f"<details><summary>{html.escape(summary)}</summary>{inside}</details>"


def preformatted(text: str) -> str:
    """Text as it is."""
    return f'<pre style="background:none;color:inherit">{html.escape(text)}</pre>'


def scrolling(inside: str) -> str:
    """HTML in a frame that scrolls if it is large."""
    return f'<div style="overflow:auto;max-height:40em;max-width:100%">{inside}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str | Bar]], right: Sequence[int] = ()) -> str:
    """Rows below their heads, in a frame that scrolls on narrow pages; columns in `right` are right-aligned."""

    def cells(row: Sequence[str | Bar], tag: str) -> str:
        sides = ("right" if k in right else "left" for k in range(len(row)))
        return "".join(
            f'<{tag} style="{_CELL.format(side)}">{_cell(x)}</{tag}>' for side, x in zip(sides, row, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    style = "border-collapse:collapse;margin:.4em 0;color:inherit"
    inside = f"<thead><tr>{cells(heads, 'th')}</tr></thead><tbody>{body}</tbody>"
    return f'<div style="overflow-x:auto"><table style="{style}">{inside}</table></div>'


def _cell(content: str | Bar) -> str:
    if isinstance(content, str):
        return html.escape(content)
    style = "display:inline-block;height:.7em;margin-right:.5em;background:currentColor;opacity:.45"
    width = 8 * min(1.0, max(0.0, content.share))
    bar = f'<span style="{style};width:{width:.2f}em"></span>'
    return f'<span style="white-space:nowrap">{bar}{html.escape(content.text)}</span>'


# --- arrays -----------------------------------------------------------------------------------------------------------


def array(text: str, value: np.ndarray[Any, Any]) -> str | None:
    """The display of an array: its type and shape, a summary of its values, a picture of what is one, and its text.
    None for small arrays, which their text says all of."""
    if value.size < _FEWEST_ELEMENTS:
        return None
    parts = [paragraph(x) for x in [_summary(value)] if x]
    pixels = _pixels(value)
    if pixels is not None:
        parts.append(_image(pixels))
    head = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    return page(head, *parts, details("values", preformatted(text)))


def _summary(value: np.ndarray[Any, Any]) -> str:
    if value.size > _MAX_ELEMENTS:
        return ""
    if value.dtype == np.bool_:
        return f"{int(np.count_nonzero(value)):,} of {value.size:,} true"
    x, what = _real(value)
    finite = x[np.isfinite(x)]
    facts = [f"{value.size - finite.size:,} not finite"] * (finite.size < value.size)
    if finite.size:
        named = (("min", finite.min()), ("mean", finite.mean()), ("max", finite.max()))
        facts = [*(f"{name} {number:.4g}" for name, number in named), *facts]
    return f"{what}{', '.join(facts)}"


def _real(value: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], str]:
    """The values as real numbers, and what they are of complex ones."""
    if value.dtype.kind == "c":
        return np.abs(value).astype(np.float64), "absolute values: "
    return value.astype(np.float64), ""


def _pixels(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """A picture as bytes [height, width, channels]: of an image, or of a matrix in grey from its smallest to its
    largest value, where what is not finite is transparent. None for other arrays."""
    if value.ndim not in (2, 3) or min(value.shape[:2]) < _FEWEST_PIXELS:
        return None
    steps = [-(-size // _MAX_PIXELS) for size in value.shape[:2]]
    part = value[:: steps[0], :: steps[1]]
    if value.ndim == 3:
        return _image_pixels(part)
    x, _ = _real(part)
    is_finite = np.isfinite(x)
    low, high = (x[is_finite].min(), x[is_finite].max()) if is_finite.any() else (0.0, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        grey = np.where(is_finite, (x - low) / ((high - low) or 1.0), 0.0)
    return np.stack([_byte(grey), np.where(is_finite, 255, 0).astype(np.uint8)], axis=-1)


def _image_pixels(part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The bytes of an image of three or four channels: bytes, or real numbers from 0 to 1."""
    if part.shape[2] not in (3, 4) or part.dtype.kind == "c":
        return None
    if part.dtype == np.uint8:
        return part
    x, _ = _real(part)
    is_image = part.dtype.kind not in "biu" and bool(((x >= 0) & (x <= 1)).all())
    return _byte(x) if is_image else None


def _byte(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.rint(np.clip(x, 0.0, 1.0) * 255).astype(np.uint8)


def _image(pixels: np.ndarray[Any, Any]) -> str:
    height, width = pixels.shape[:2]
    scale = _WIDTH / max(height, width)
    size = f"width:{width * scale:.0f}px;height:{height * scale:.0f}px"
    data = base64.b64encode(png(pixels)).decode()
    return f'<img alt="picture" style="{size};image-rendering:pixelated" src="data:image/png;base64,{data}"/>'


_COLOUR_TYPES = {2: 4, 3: 2, 4: 6}  # PNG's, of grey with transparency, and of colours without and with it


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """A picture of bytes [height, width, channels] as a PNG file (https://www.w3.org/TR/png)."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # 0: no filter
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
