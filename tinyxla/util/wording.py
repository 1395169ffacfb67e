"""Numbers and lists as they stand in sentences."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """A number of things: `1 step`, `1,200 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortened(items: Iterable[object], most: int) -> str:
    """A list of texts, of many the first ones and how many there are more: `a, b, 7 more`."""
    texts = list(map(str, items))
    more = len(texts) - most
    return ", ".join([*texts[:most], *([f"{more} more"] if more > 0 else [])])
