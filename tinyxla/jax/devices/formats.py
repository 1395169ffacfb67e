"""How arrays lie in memory, as JAX describes it: all are dense and row-major."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tinyxla.errors import ArgumentError, AttributeValueError
from tinyxla.partitioning.array import ShardedArray
from tinyxla.tracing import pytrees
from tinyxla.tracing.device import PlacementOf
from tinyxla.tracing.shardings import Sharding

_CONCRETE = ("device_put", "ShapeDtypeStruct", "make_array_from_callback", "make_array_from_single_device_arrays")


class _Auto:
    """Leaves the layout to the compiler, whose arrays are row-major."""

    def __repr__(self) -> str:
        return "AUTO"


class Layout:
    """The order of dimensions in memory, the slowest first.

    >>> Layout((0, 1)).major_to_minor
    (0, 1)
    """

    AUTO: ClassVar[Any] = _Auto()

    def __init__(
        self, major_to_minor: tuple[int, ...], tiling: Any = None, sub_byte_element_size_in_bits: int = 0
    ) -> None:
        self.major_to_minor = tuple(major_to_minor)
        self.tiling = None if tiling is None else tuple(map(tuple, tiling))
        self.sub_byte_element_size_in_bits = sub_byte_element_size_in_bits

    def _key(self) -> Any:
        return self.major_to_minor, self.tiling or None, self.sub_byte_element_size_in_bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"Layout(major_to_minor={self.major_to_minor}, tiling={self.tiling}, "
            f"sub_byte_element_size_in_bits={self.sub_byte_element_size_in_bits})"
        )


class Format(PlacementOf):
    """A layout and a sharding. Where arrays are placed the sharding counts; they stay row-major.

    >>> Format(None, SingleDeviceSharding()).layout is None
    True
    """

    def __init__(self, layout: Any = None, sharding: Any = None) -> None:
        if sharding is not None and not isinstance(sharding, Sharding):
            raise ArgumentError(f"Format: sharding must be a sharding or None, but is {sharding!r}.")
        if isinstance(layout, Layout) and sharding is None:
            raise AttributeValueError(f"Format: a sharding must be concrete where the layout is, {layout!r}.")
        self.layout = layout
        self.sharding = sharding

    def check_placed(self, what: str) -> None:
        if self.layout is Layout.AUTO and what in _CONCRETE:
            raise ArgumentError(f"{what}: the sharding and layout of {self!r} must be concrete.")

    def check_array(self, what: str, x: Any) -> None:
        if self.layout is Layout.AUTO:
            if what.startswith("jit of") and "in_shardings" in what and isinstance(x, ShardedArray):
                raise ArgumentError(
                    f"{what}: an argument must have the layout AUTO, but has {array_format(x).layout}; lower the "
                    "function for a ShapeDtypeStruct."
                )
            return
        if not isinstance(self.layout, Layout):
            return
        order = self.layout.major_to_minor
        if len(order) != np.ndim(x):
            raise ArgumentError(
                f"{what}: the layout must have as many dimensions as the array, which has {np.ndim(x)}, but is {order}."
            )
        if "in_shardings" in what and isinstance(x, ShardedArray) and order != tuple(range(x.ndim)):
            raise ArgumentError(
                f"{what}: an argument must have the layout {self.layout}, but has {array_format(x).layout}; arrays are "
                "row-major here."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and (self.layout, self.sharding) == (other.layout, other.sharding)

    def __hash__(self) -> int:
        return hash((self.layout, self.sharding))

    def __repr__(self) -> str:
        return f"Format(layout={self.layout}, sharding={self.sharding})"


def _dense(shape: tuple[int, ...], sharding: Any) -> Format:
    return Format(Layout(tuple(range(len(shape))), ()), sharding)


def array_format(x: Any) -> Format:
    """The format of an array."""
    return _dense(x.shape, x.sharding)


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The arrays, whose memory stays row-major.

    Args:
        x: a pytree of arrays.
        layouts: a `Layout` for all of them, or a pytree with one for each.

    Returns:
        x.

    Raises:
        ArgumentError: what is no layout, or one of another number of dimensions than its array.

    >>> with_layout_constraint(np.ones((2, 3)), Layout((1, 0))).shape
    (2, 3)
    """
    arrays = pytrees.leaves(x)
    given: list[Any] = [layouts] * len(arrays) if isinstance(layouts, Layout) else pytrees.leaves(layouts)
    for array, layout in zip(arrays, given, strict=True):
        if not isinstance(layout, Layout) or len(layout.major_to_minor) != np.ndim(array):
            raise ArgumentError(
                f"with_layout_constraint: the layout of an array of {np.ndim(array)} dimensions must be a Layout with "
                f"as many, but is {layout!r}."
            )
    return x


def _formats(types: Any, shardings: Any) -> Any:
    leaves, structure = pytrees.flatten_shown(types)
    pairs = zip(leaves, pytrees.leaves(shardings), strict=True)
    return pytrees.unflatten(structure, [_dense(x.shape, sharding) for x, sharding in pairs])


def input_formats(compiled: Any) -> Any:
    """`(args, kwargs)` with the format of each array."""
    return _formats(compiled.args_info, compiled.input_shardings)


def output_formats(compiled: Any) -> Any:
    """The result with the format of each array."""
    return _formats(compiled.out_info, compiled.output_shardings)
