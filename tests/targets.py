"""Machines of other sizes, for which tests compile: with the fixture `use_target`."""

from __future__ import annotations

from collections.abc import Callable

UseTarget = Callable[[str], None]  # takes sizes, as `config.target` does

SMALL_CACHES = "last_level_bytes=512"  # all but the smallest arrays are beyond the caches
