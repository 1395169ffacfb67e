"""`jax._src.lax.lax`."""

from tinyxla.lax import convert_element_type as _convert
from tinyxla.numpy.types import dtype_of as _dtype_of


def _convert_element_type(operand, new_dtype=None, weak_type=False, *ignored):
    """The elements converted by value, weakly typed if asked for."""
    dtype = _dtype_of(operand, "convert_element_type") if new_dtype is None else new_dtype
    return _convert(operand, dtype).with_weak_type(weak_type)
