"""Element types and questions about them, under the names of `jax.dtypes`.

>>> canonicalize_dtype("float64"), issubdtype(bfloat16, np.floating)
(dtype('float32'), True)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxla.numpy.arguments import python_dtype
from tinyxla.numpy.types import bfloat16, finfo, iinfo, issubdtype, promote_types, result_type
from tinyxla.shapes import element_type
from tinyxla.tracing.promotion import default_dtype


def canonicalize_dtype(dtype: Any) -> np.dtype[Any]:
    """What values of a type become where no type is asked for: 32-bit ones, unless `enable_x64` is set."""
    return default_dtype(python_dtype(dtype))


def itemsize_bits(dtype: Any) -> int:
    """The width of an element in bits.

    >>> itemsize_bits("int4")
    4
    """
    return element_type(python_dtype(dtype)).bits


__all__ = [
    "bfloat16",
    "canonicalize_dtype",
    "finfo",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "promote_types",
    "result_type",
]
