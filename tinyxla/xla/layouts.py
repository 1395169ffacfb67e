"""Layouts, and where the elements of an array are in linear memory.

A layout pads the dimensions, orders them from major to minor, and cuts the result into tiles. In the terms used here an
index is *logical* (of the array), *physical* (padded and in the order of memory), or *tiled*.

Sources: "Shapes and Layout", sections "Layout" and "Indexing into arrays"; "Tiled layout".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, OutOfBoundsError, ShapeError
from tinyxla.ops.reduction import identity_element
from tinyxla.shapes import Layout, Shape, element_type
from tinyxla.xla.functions import integers

Ints = tuple[int, ...]
Array = np.ndarray[Any, Any]


class LayoutUtil:
    """Making layouts and asking about them."""

    @staticmethod
    def MakeLayout(
        minor_to_major: Sequence[int],
        tiles: Sequence[Sequence[int]] = (),
        padded_dimensions: Sequence[int] = (),
        padding_value: Any = 0,
    ) -> Layout:
        """A layout.

        Args:
            minor_to_major: all dimension numbers, that of the fastest varying index first.
            tiles: the sizes of each tile, for the most minor dimensions; the next one tiles what the one before made.
            padded_dimensions: for each dimension the size to which it is padded; none for no padding.
            padding_value: what stands in the padding.

        >>> print(LayoutUtil.MakeLayout([0, 1]))
        {0,1}
        """
        order = integers("MakeLayout: minor_to_major", minor_to_major)
        if sorted(order) != list(range(len(order))):
            raise ShapeError(
                f"MakeLayout: minor_to_major must name each of 0 to {len(order) - 1} once, but is {list(order)}."
            )
        made = tuple(integers("MakeLayout: tiles", tile) for tile in tiles)
        if any(size < 1 for tile in made for size in tile):
            raise ShapeError(f"MakeLayout: tiles must have positive sizes, but are {[list(t) for t in made]}.")
        return Layout(order, made, integers("MakeLayout: padded_dimensions", padded_dimensions), padding_value)

    @staticmethod
    def MakeDescendingLayout(rank: int) -> Layout:
        """The last dimension is most minor: row-major, the default."""
        return Layout.default(rank)

    @staticmethod
    def MakeAscendingLayout(rank: int) -> Layout:
        """Dimension 0 is most minor: column-major."""
        return Layout(tuple(range(rank)))

    GetDefaultLayoutForRank = MakeDescendingLayout

    @staticmethod
    def GetDefaultLayoutForShape(shape: Shape) -> Layout:
        """The layout of shapes made without one: from major to minor in dimension order."""
        return Layout.default(shape.rank)

    @staticmethod
    def LayoutOf(shape: Shape) -> Layout:
        """The layout of a shape, the default one if it has none."""
        return shape.layout or Layout.default(shape.rank)

    @staticmethod
    def WithLayout(shape: Shape, layout: Layout) -> Shape:
        """The shape in another layout, which must fit it."""
        LayoutUtil.ValidateLayoutForShape(layout, shape)
        return Shape(shape.element_type, shape.dimensions, layout)

    @staticmethod
    def ValidateLayoutForShape(layout: Layout, shape: Shape) -> None:
        """Raise `ShapeError` if a layout does not fit a shape."""
        if len(layout.minor_to_major) != shape.rank:
            raise ShapeError(
                f"Layout: minor_to_major must have the {shape.rank} dimensions of {shape}, but is "
                f"{list(layout.minor_to_major)}."
            )
        padded = layout.padded_dimensions
        if padded and (len(padded) != shape.rank or any(p < n for p, n in zip(padded, shape.dimensions, strict=True))):
            raise ShapeError(
                f"Layout: padded_dimensions must have a size for each dimension of {shape}, no less than its own, but "
                f"is {list(padded)}."
            )
        if layout.tiles and len(layout.tiles[0]) > shape.rank:
            raise ShapeError(f"Layout: a tile {layout.tiles[0]} must have no more dimensions than {shape}.")

    @staticmethod
    def IsMonotonicWithDim0Minor(layout: Layout) -> bool:
        """Whether dimensions go from minor to major in order ("dim 0 is minor")."""
        return layout.minor_to_major == tuple(range(len(layout.minor_to_major)))

    @staticmethod
    def IsMonotonicWithDim0Major(layout: Layout) -> bool:
        """Whether dimensions go from major to minor in order ("dim 0 is major"): the default."""
        return layout.minor_to_major == Layout.default(len(layout.minor_to_major)).minor_to_major

    @staticmethod
    def IsPadded(shape: Shape) -> bool:
        """Whether the layout pads a dimension."""
        padded = LayoutUtil.LayoutOf(shape).padded_dimensions
        return bool(padded) and padded != shape.dimensions

    @staticmethod
    def Minor(layout: Layout, physical_dimension_number: int) -> int:
        """The dimension that is so many places from the most minor one."""
        return layout.minor_to_major[physical_dimension_number]

    @staticmethod
    def Major(layout: Layout, physical_dimension_number: int) -> int:
        """The dimension that is so many places from the most major one."""
        return layout.minor_to_major[-1 - physical_dimension_number]

    @staticmethod
    def Equal(lhs: Layout, rhs: Layout) -> bool:
        return lhs == rhs


def _physical(shape: Shape) -> Ints:
    """The sizes of dimensions in memory, from major to minor, before tiling."""
    layout = LayoutUtil.LayoutOf(shape)
    sizes = layout.padded_dimensions or shape.dimensions
    return tuple(sizes[d] for d in reversed(layout.minor_to_major))


def _cut(sizes: Ints, tile: Ints) -> Ints:
    """The sizes of an array in tiles: how many tiles there are, then what is in one."""
    outer, inner = sizes[: len(sizes) - len(tile)], sizes[len(sizes) - len(tile) :]
    return (*outer, *(-(-n // t) for n, t in zip(inner, tile, strict=True)), *tile)


def _steps(shape: Shape) -> list[Ints]:
    """The sizes of the array in memory: before tiling, and after each tile."""
    steps = [_physical(shape)]
    for tile in LayoutUtil.LayoutOf(shape).tiles:
        steps.append(_cut(steps[-1], tile))
    return steps


class IndexUtil:
    """From multidimensional indices to linear ones, and back."""

    @staticmethod
    def MultidimensionalIndexToLinearIndex(shape: Shape, multi_index: Sequence[int]) -> int:
        """Where the element with this index is in memory.

        Raises:
            OutOfBoundsError: the index is outside the array.

        >>> shape = Shape(element_type("f32"), (2, 3), Layout((0, 1)))
        >>> IndexUtil.MultidimensionalIndexToLinearIndex(shape, [0, 1])
        2
        """
        index = integers("MultidimensionalIndexToLinearIndex: multi_index", multi_index)
        if not IndexUtil.IndexInBounds(shape, index):
            raise OutOfBoundsError(f"MultidimensionalIndexToLinearIndex: {list(index)} must be an index into {shape}.")
        layout = LayoutUtil.LayoutOf(shape)
        place = tuple(index[d] for d in reversed(layout.minor_to_major))
        for tile in layout.tiles:
            outer, inner = place[: len(place) - len(tile)], place[len(place) - len(tile) :]
            pairs = [divmod(i, t) for i, t in zip(inner, tile, strict=True)]
            place = (*outer, *(p[0] for p in pairs), *(p[1] for p in pairs))
        linear = 0
        for i, size in zip(place, _steps(shape)[-1], strict=True):
            linear = linear * size + i
        return linear

    @staticmethod
    def LinearIndexToMultidimensionalIndex(shape: Shape, linear_index: int) -> list[int]:
        """The index of the element at a place in memory.

        Raises:
            OutOfBoundsError: the place is outside the array's memory, or in its padding.

        >>> shape = Shape(element_type("f32"), (2, 3), Layout((0, 1)))
        >>> IndexUtil.LinearIndexToMultidimensionalIndex(shape, 2)
        [0, 1]
        """
        given, steps = linear_index, _steps(shape)
        if not 0 <= linear_index < math.prod(steps[-1]):
            raise OutOfBoundsError(
                f"LinearIndexToMultidimensionalIndex: the index must be from 0 to {math.prod(steps[-1]) - 1}, inside "
                f"{shape.text()}, but is {given}."
            )
        place: list[int] = []
        for size in reversed(steps[-1]):
            linear_index, i = divmod(linear_index, size)
            place.insert(0, i)
        layout = LayoutUtil.LayoutOf(shape)
        for tile in reversed(layout.tiles):
            outer = len(place) - 2 * len(tile)
            whole, inside = place[outer : outer + len(tile)], place[outer + len(tile) :]
            place[outer:] = [w * t + i for w, t, i in zip(whole, tile, inside, strict=True)]
        found = [place[::-1][layout.minor_to_major.index(d)] for d in range(shape.rank)]
        if not IndexUtil.IndexInBounds(shape, found):
            raise OutOfBoundsError(
                f"LinearIndexToMultidimensionalIndex: the index must be the place of an element of {shape.text()}, but "
                f"{given} is in its padding."
            )
        return found

    @staticmethod
    def IndexInBounds(shape: Shape, index: Sequence[int]) -> bool:
        """Whether an array has an element with this index."""
        return len(index) == shape.rank and all(0 <= i < n for i, n in zip(index, shape.dimensions, strict=True))

    @staticmethod
    def GetDimensionStride(shape: Shape, dimension: int) -> int:
        """How far apart in memory neighbours along a dimension are, in a layout without tiles."""
        layout = LayoutUtil.LayoutOf(shape)
        if layout.tiles:
            raise ShapeError(f"GetDimensionStride: neighbours in the tiles of {shape.text()} have no one distance.")
        return math.prod(_physical(shape)[shape.rank - layout.minor_to_major.index(dimension) :])


class LiteralUtil:
    """Values of constants, which are NumPy arrays, and their order in memory."""

    @staticmethod
    def Zero(primitive_type: Any) -> Array:
        """The scalar 0."""
        return np.zeros((), element_type(primitive_type).dtype)

    @staticmethod
    def One(primitive_type: Any) -> Array:
        """The scalar 1."""
        return np.ones((), element_type(primitive_type).dtype)

    @staticmethod
    def MinValue(primitive_type: Any) -> Array:
        """The least scalar: minus infinity where there is one.

        >>> LiteralUtil.MinValue("f32")
        array(-inf, dtype=float32)
        """
        return _extreme(primitive_type, "maximum")

    @staticmethod
    def MaxValue(primitive_type: Any) -> Array:
        """The greatest scalar: infinity where there is one."""
        return _extreme(primitive_type, "minimum")

    @staticmethod
    def LinearValues(literal: Any, layout: Layout | None = None) -> Array:
        """The values of an array in the order in which they are in memory, padding included.

        Args:
            literal: an array.
            layout: the default one unless given.

        Returns:
            An array with one dimension.

        >>> print(LiteralUtil.LinearValues(np.array([[1, 2, 3], [4, 5, 6]]), Layout((0, 1))))
        [1 4 2 5 3 6]
        """
        value = np.asarray(literal)
        shape = Shape.of(value)
        shape = LayoutUtil.WithLayout(shape, layout or Layout.default(shape.rank))
        chosen = LayoutUtil.LayoutOf(shape)
        value = _filled(value, chosen.padded_dimensions or value.shape, chosen.padding_value)
        value = value.transpose(tuple(reversed(chosen.minor_to_major)))
        for tile in chosen.tiles:
            outer, inner = value.shape[: value.ndim - len(tile)], value.shape[value.ndim - len(tile) :]
            counts = tuple(-(-n // t) for n, t in zip(inner, tile, strict=True))
            value = _filled(value, (*outer, *(c * t for c, t in zip(counts, tile, strict=True))), chosen.padding_value)
            value = value.reshape((*outer, *(n for pair in zip(counts, tile, strict=True) for n in pair)))
            first = len(outer)
            last = range(first, value.ndim)
            value = value.transpose((*range(first), *last[::2], *last[1::2]))
        return value.reshape(-1)

    @staticmethod
    def FromLinearValues(shape: Shape, values: Any) -> Array:
        """The array whose values in memory these are: the inverse of `LinearValues`.

        >>> LiteralUtil.FromLinearValues(Shape(element_type("s32"), (2, 3), Layout((0, 1))), [1, 4, 2, 5, 3, 6])
        array([[1, 2, 3],
               [4, 5, 6]], dtype=int32)
        """
        given = np.asarray(values, shape.dtype)
        size = math.prod(_steps(shape)[-1])
        if given.shape != (size,):
            raise ArgumentError(
                f"FromLinearValues: values must be the {size} in the memory of {shape.text()}, in one dimension, but "
                f"have the shape {given.shape}."
            )
        places = LiteralUtil.LinearValues(
            np.arange(1, shape.size + 1).reshape(shape.dimensions),
            _with_padding(LayoutUtil.LayoutOf(shape), 0),
        )
        out = np.empty(shape.size, shape.dtype)
        out[places[places > 0] - 1] = given[places > 0]
        return out.reshape(shape.dimensions)


def _extreme(primitive_type: Any, op: str) -> Array:
    dtype = element_type(primitive_type).dtype
    return np.asarray(identity_element(op, dtype)).astype(dtype)


def _filled(value: Array, sizes: Ints, padding_value: Any) -> Array:
    """The array at the start of a larger one."""
    if value.shape == sizes:
        return value
    out = np.full(sizes, padding_value, value.dtype)
    out[tuple(map(slice, value.shape))] = value
    return out


def _with_padding(layout: Layout, value: Any) -> Layout:
    return Layout(layout.minor_to_major, layout.tiles, layout.padded_dimensions, value)
