"""`jax._src.dtypes`."""

import numpy as np

from tinyxla.dtypes import extended, finfo, issubdtype
from tinyxla.errors import PromotionError as TypePromotionError

DType = np.dtype


class ExtendedDType:
    """The base class of element types that are made of others."""


def supports_inf(dtype):
    """Whether a floating type has infinities."""
    return issubdtype(dtype, np.floating) and bool(np.isinf(np.asarray(np.inf, dtype)))


__all__ = ["ExtendedDType", "TypePromotionError", "extended", "finfo", "issubdtype", "supports_inf"]
