"""What functions of arrays take, for annotations: the names of `jax.typing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.tracing.array import Array

# Classes without parameters, so that isinstance takes the union.
ArrayLike = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
"""An array, or what becomes one: NumPy's arrays and scalars, and Python's numbers."""

DTypeLike = Any
"""An element type: a NumPy dtype, one of `tinyxla.numpy`'s types, a Python type, or a name."""

__all__ = ["ArrayLike", "DTypeLike"]


def __dir__() -> list[str]:
    return __all__
