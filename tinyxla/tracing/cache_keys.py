"""Python values as parts of keys: of what is traced or compiled once for each."""

from __future__ import annotations

from typing import Any

import numpy as np


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


def exact(value: Any) -> Any:
    """A value with its type, as a key; floats by their text, which tells zeros apart and is equal for NaN."""
    if isinstance(value, tuple):
        return (type(value), *map(exact, value))
    return (type(value), repr(value) if isinstance(value, (float, complex, np.inexact)) else value)
