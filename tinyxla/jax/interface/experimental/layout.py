"""`jax.experimental.layout`: arrays are dense and row-major."""

from typing import NamedTuple


class Layout(NamedTuple):
    """The order of dimensions in memory, the slowest first."""

    major_to_minor: tuple[int, ...]


class Format(NamedTuple):
    """A layout and a sharding."""

    layout: Layout | None = None
    sharding: object = None
