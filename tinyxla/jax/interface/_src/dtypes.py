"""`jax._src.dtypes`."""

import numpy as np

from tinyxla.dtypes import canonicalize_dtype, extended, finfo, iinfo, issubdtype
from tinyxla.errors import PromotionError as TypePromotionError
from tinyxla.jax.testing.element_types import default_types as default_types
from tinyxla.numpy.arguments import inexact as _inexact
from tinyxla.numpy.types import result_type as _result_type
from tinyxla.tracing.array import Array as _Array

DType = np.dtype


class ExtendedDType:
    """The base class of element types that are made of others."""


python_scalar_types = {bool, int, float, complex}
python_scalar_types_to_dtypes = {kind: np.asarray(kind(0)).dtype for kind in (bool, int, float, complex)}
default_int_dtype, default_uint_dtype = default_types["i"], default_types["u"]
default_float_dtype, default_complex_dtype = default_types["f"], default_types["c"]


def is_python_scalar(x):
    """Whether a value is weakly typed."""
    return x.weak_type if isinstance(x, _Array) else type(x) in python_scalar_types


is_weakly_typed = is_python_scalar


def to_numeric_dtype(dtype):
    """The type of numbers in which booleans are summed, or the type itself."""
    return np.dtype("int32") if np.dtype(dtype) == bool else np.dtype(dtype)


def safe_to_cast(input_dtype_or_value, output_dtype_or_value):
    """Whether promotion of the first type, or value, with the second type gives that."""
    output = _result_type(output_dtype_or_value)
    return output in (_result_type(input_dtype_or_value), _result_type(input_dtype_or_value, output))


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
