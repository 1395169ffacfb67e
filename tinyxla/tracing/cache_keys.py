"""Python values as parts of keys: of what is traced or compiled once for each."""

from __future__ import annotations

from typing import Any


class _Identity:
    """Stands for an object that cannot be hashed: equal to itself alone."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


def hashable(value: Any) -> Any:
    """A key for a Python value: equal for equal ones of the same type, as far as that can be told."""
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return type(value), value
