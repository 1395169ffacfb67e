"""Numbers and lists as they stand in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """A number of things: `1 step`, `1,200 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(items: Iterable[object], most: int) -> str:
    """A list of texts, of many the first ones and how many there are more: `a, b, 7 more`."""
    texts = list(map(str, items))
    more = len(texts) - most
    return ", ".join([*texts[:most], *([f"{more} more"] if more > 0 else [])])


def amount(number: float, unit: str = "") -> str:
    """A number with three digits and a prefix: 1.57 MB."""
    if number < 1000:
        return f"{number:.0f} {unit}".rstrip()
    power = min(4, int(math.log10(number * 1.0005) // 3))
    return f"{number / 1000**power:.3g} {' kMGT'[power]}{unit}"


def duration(seconds: float) -> str:
    """A time with three digits: 12.3 us."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 0.9995:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
