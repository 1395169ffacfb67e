"""`jax._src.literals`: types of numbers that have an element type. Numbers are arrays here, so that no operation gives
one."""


class TypedInt(int):
    """An integer with an element type."""

    dtype = None


class TypedFloat(float):
    """A floating-point number with an element type."""

    dtype = None


class TypedComplex(complex):
    """A complex number with an element type."""

    dtype = None
