"""`jax._src.dtypes`."""

import numpy as np

from tinyxla.dtypes import canonicalize_dtype, extended, finfo, iinfo, issubdtype
from tinyxla.errors import PromotionError as TypePromotionError
from tinyxla.numpy.arguments import inexact as _inexact

DType = np.dtype


class ExtendedDType:
    """The base class of element types that are made of others."""


def supports_inf(dtype):
    """Whether a floating type has infinities."""
    return issubdtype(dtype, np.floating) and bool(np.isinf(np.asarray(np.inf, dtype)))


def to_inexact_dtype(dtype):
    """The floating or complex type in which functions of real numbers compute for that type."""
    return _inexact((np.dtype(dtype), False))[0]


def to_complex_dtype(dtype):
    """The complex type of parts of the inexact type."""
    wide = np.dtype(to_inexact_dtype(dtype)) in (np.float64, np.complex128)
    return np.dtype(np.complex128 if wide else np.complex64)


__all__ = """ExtendedDType TypePromotionError canonicalize_dtype extended finfo iinfo issubdtype supports_inf
    to_complex_dtype to_inexact_dtype""".split()
