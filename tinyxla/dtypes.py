"""Element types and questions about them, under the names of `jax.dtypes`.

>>> import numpy as np
>>> from tinyxla.dtypes import canonicalize_dtype
>>> from tinyxla.numpy import bfloat16, issubdtype
>>> canonicalize_dtype("float64"), issubdtype(bfloat16, np.floating)
(dtype('float32'), True)
"""

from __future__ import annotations

from typing import Any

from ml_dtypes import bfloat16

from tinyxla.errors import PromotionError
from tinyxla.numpy.arguments import named_dtype
from tinyxla.numpy.types import dtype_of, finfo, iinfo, issubdtype, promote_types, result_type
from tinyxla.shapes import KeyType, element_type
from tinyxla.shapes.key_types import extended as extended, prng_key as prng_key
from tinyxla.tracing.promotion import default_dtype, float0


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """What values of a type become where no type is asked for: 32-bit ones, unless `enable_x64` is set.

    With `allow_extended_dtype`, a type that is no number, such as `float0`, stays as it is.

    Args:
        dtype: an element type.
        allow_extended_dtype: whether types of no numbers are allowed.

    Returns:
        A NumPy dtype.

    Raises:
        DTypeError: what is no element type.

    >>> from tinyxla.dtypes import canonicalize_dtype, float0
    >>> canonicalize_dtype("int64"), canonicalize_dtype(float0, allow_extended_dtype=True)
    (dtype('int32'), dtype([('float0', 'V')]))
    """
    if allow_extended_dtype and (dtype == float0 or isinstance(dtype, KeyType)):
        return dtype
    return default_dtype(named_dtype(dtype))


TypePromotionError = PromotionError


def scalar_type_of(x: Any) -> type:
    """The Python type of which a value is: bool, int, float or complex.

    Args:
        x: an array, a number, or an element type.

    Returns:
        A Python type.

    Raises:
        DTypeError: what is no element type.

    >>> import numpy as np
    >>> from tinyxla.dtypes import scalar_type_of
    >>> scalar_type_of(np.float32(1))
    <class 'float'>
    """
    kind = element_type(dtype_of(x, "dtypes.scalar_type_of")).kind
    return {"pred": bool, "float": float, "complex": complex}.get(kind, int)


def itemsize_bits(dtype: Any) -> int:
    """The width of an element in bits.

    Args:
        dtype: an element type.

    Returns:
        The number of bits.

    Raises:
        DTypeError: what is no element type.

    >>> from tinyxla.dtypes import itemsize_bits
    >>> itemsize_bits("int4")
    4
    """
    return element_type(dtype_of(dtype, "dtypes.itemsize_bits")).bits


__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "promote_types",
    "result_type",
    "scalar_type_of",
]


def __dir__() -> list[str]:
    return __all__
