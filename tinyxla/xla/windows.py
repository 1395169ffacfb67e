"""Windows from the lists that builder functions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.lax.padding import padtype_to_pads
from tinyxla.shapes import Window, WindowDimension
from tinyxla.shapes.window import dilated
from tinyxla.xla.dimension_numbers import Padding
from tinyxla.xla.functions import integers


def window_of(
    what: str,
    base: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: Any,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> Window:
    """The window that moves over an array of the sizes `base`. Strides and dilations are 1 unless given."""
    ones = [1] * len(base)
    fields = {
        "window_dimensions": window_dimensions,
        "window_strides": window_strides or ones,
        "base_dilations": base_dilations or ones,
        "window_dilations": window_dilations or ones,
        "window_reversal": window_reversal or [False] * len(base),
    }
    found = {name: integers(f"{what}: {name}", given) for name, given in fields.items()}
    for name, given in found.items():
        if len(given) != len(base):
            raise ShapeError(
                f"{what}: {name} must have an entry for each of the {len(base)} dimensions that the window moves over, "
                f"but is {list(given)}."
            )
    sizes, strides, spread, holes, reversal = found.values()
    if any(stride < 1 for stride in strides):
        raise AttributeValueError(f"{what}: window_strides must be positive, but are {list(strides)}.")
    pads = _pads(what, padding, base, sizes, strides, spread, holes)
    rows = zip(sizes, strides, pads, holes, spread, reversal, strict=True)
    return tuple(WindowDimension(n, stride, low, high, h, b, bool(r)) for n, stride, (low, high), h, b, r in rows)


def _pads(
    what: str,
    padding: Any,
    base: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    spread: Sequence[int],
    holes: Sequence[int],
) -> list[tuple[int, int]]:
    if isinstance(padding, Padding):
        wide = [dilated(n, b) for n, b in zip(base, spread, strict=True)]
        window = [dilated(n, h) for n, h in zip(sizes, holes, strict=True)]
        return padtype_to_pads(wide, window, strides, padding.value)
    try:
        pairs = [integers(f"{what}: padding", pair) for pair in padding]
    except TypeError:
        pairs = []
    if len(pairs) != len(base) or any(len(pair) != 2 for pair in pairs):
        raise ArgumentError(
            f"{what}: padding must be a Padding, or (low, high) for each of the {len(base)} dimensions that the window "
            f"moves over, but is {padding!r}."
        )
    return [(low, high) for low, high in pairs]
