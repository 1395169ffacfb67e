"""`jax._src.literals`: numbers that have an element type. No operation here gives one: numbers become arrays."""

from tinyxla.jax.jaxprs.avals import ShapedArray as _ShapedArray


class _Typed:
    """A number of Python with an element type."""

    def __new__(cls, value, dtype):
        number = super().__new__(cls, value)
        number.dtype = dtype
        number.aval = _ShapedArray((), dtype, weak_type=True)
        return number


class TypedInt(_Typed, int):
    """An integer with an element type."""


class TypedFloat(_Typed, float):
    """A floating-point number with an element type."""


class TypedComplex(_Typed, complex):
    """A complex number with an element type."""
