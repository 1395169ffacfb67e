"""Windows: how a small box moves over an array. What reduce-window, select-and-scatter and convolution share.

Source: sections "ReduceWindow" and "Conv" of the XLA documents; the names are those of XLA's `WindowDimension`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tinyxla.shapes.symbolic import is_symbolic, max_dim


def dilated(size: int, dilation: int) -> int:
    """The extent of `size` elements with `dilation - 1` holes between neighbours."""
    return (size - 1) * dilation + 1 if size else 0


class WindowDimension(NamedTuple):
    """One dimension of a window. `base_dilation` puts holes into the array, `window_dilation` into the window; padding
    comes after base dilation and may be negative; `window_reversal` runs through the window backwards.

    >>> from tinyxla.shapes import WindowDimension
    >>> WindowDimension(size=3, stride=2, padding_low=1).positions(10)
    5
    """

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    def padded(self, size: int) -> int:
        """The extent over which the window moves, for an array of this size.

        >>> from tinyxla.shapes import WindowDimension
        >>> WindowDimension(size=3, padding_low=1, base_dilation=2).padded(4)  # 1 + 7
        8
        """
        return max(0, self.padding_low + dilated(size, self.base_dilation) + self.padding_high)

    def positions(self, size: int) -> int:
        """How many places the window has on an array of this size: the size of the result.

        >>> from tinyxla.shapes import WindowDimension
        >>> WindowDimension(size=3, window_dilation=2).positions(10), WindowDimension(size=3).positions(2)
        (6, 0)
        """
        window, base = dilated(self.size, self.window_dilation), self.padded(size)
        count = (base - window) // self.stride + 1
        return max_dim(count, 0) if is_symbolic(count) else max(count, 0)


Window = tuple[WindowDimension, ...]


def window_text(window: Window) -> str:
    """A window as HLO text has it: `{size=2x3 stride=1x2 pad=0_0x1_1}`; what is trivial is left out.

    >>> from tinyxla.shapes import WindowDimension
    >>> from tinyxla.shapes.window import window_text
    >>> window_text((WindowDimension(3, stride=2), WindowDimension(5, padding_low=1)))
    '{size=3x5 stride=2x1 pad=0_0x1_0}'
    """

    def field(name: str, values: Iterable[str | int], trivial: str) -> str:
        texts = [str(x) for x in values]
        return "" if all(x == trivial for x in texts) else f" {name}={'x'.join(texts)}"

    return "".join(
        [
            "{size=" + "x".join(str(w.size) for w in window) if window else "{",
            field("stride", (w.stride for w in window), "1"),
            field("pad", (f"{w.padding_low}_{w.padding_high}" for w in window), "0_0"),
            field("lhs_dilate", (w.base_dilation for w in window), "1"),
            field("rhs_dilate", (w.window_dilation for w in window), "1"),
            field("rhs_reversal", (int(w.window_reversal) for w in window), "0"),
            "}",
        ]
    )
