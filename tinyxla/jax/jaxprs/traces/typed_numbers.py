"""Numbers of Python that have an element type, which is weak: operands of traces that programs define."""

from __future__ import annotations

from typing import Any

from tinyxla.jax.jaxprs.avals import ShapedArray
from tinyxla.tracing.array import ConcreteArray


class _Typed:
    """A number of Python with an element type."""

    def __new__(cls, value: Any, dtype: Any) -> Any:
        number: Any = super().__new__(cls, value)  # type: ignore[call-arg]
        number.dtype = dtype
        number.aval = ShapedArray((), dtype, weak_type=True)
        return number


class TypedInt(_Typed, int):
    """An integer with an element type."""


class TypedFloat(_Typed, float):
    """A floating-point number with an element type."""


class TypedComplex(_Typed, complex):
    """A complex number with an element type."""


_KINDS: dict[str, Any] = {"i": TypedInt, "f": TypedFloat, "c": TypedComplex}


def typed(x: Any) -> Any:
    """A known scalar of a weak type, which a number of Python is, as a number again; anything else as it is."""
    if type(x) is not ConcreteArray or x.ndim or not x.weak_type:
        return x
    return _KINDS[x.dtype.kind](x.buffer()[()], x.dtype)
