"""Differences from JAX that are intended, one line each: function, kind and way, message; and the reason.

The three are regular expressions that must match in full, except the message, which is searched.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .differences import Difference


class Intended(NamedTuple):
    """A difference that is no defect."""

    name: str
    kind: str
    message: str
    reason: str

    def covers(self, found: Difference) -> bool:
        return bool(
            re.fullmatch(self.name, found.name)
            and re.fullmatch(self.kind, f"{found.kind} {found.way}")
            and re.search(self.message, found.detail)
        )


ANY = ".*"
INTENDED: tuple[Intended, ...] = (
    Intended(ANY, "accepts eager", "narrow-width integers|1-bit, 2-bit and 4-bit", "4-bit integers have all operations"),
    Intended(r"lax\..*", "accepts eager", "negative axes|out-of-bounds|Out-of-bounds", "negative axes count from the end"),
)


def reason_for(found: Difference) -> Intended | None:
    """The line of the table that the difference is covered by."""
    return next((line for line in INTENDED if line.covers(found)), None)
