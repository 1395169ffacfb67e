"""`jax._src.literals`: numbers that have an element type."""

from tinyxla.jax.jaxprs.traces.typed_numbers import (
    TypedComplex as TypedComplex,
    TypedFloat as TypedFloat,
    TypedInt as TypedInt,
)
