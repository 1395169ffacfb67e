"""Layouts, and where the elements of an array are in linear memory.

A layout pads the dimensions, orders them from major to minor, and cuts the result into tiles. In the terms used here an
index is *logical* (of the array), *physical* (padded and in the order of memory), or *tiled*.

Sources: "Shapes and Layout", sections "Layout" and "Indexing into arrays"; "Tiled layout".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError
from tinyxla.ops.reduction import identity_element
from tinyxla.shapes import COMBINED, OPAQUE, TOKEN, ElementType, Layout, PaddingValue, Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.xla.computation import checked_argument
from tinyxla.xla.functions import checked_instance, integers

Ints = tuple[int, ...]
Array = np.ndarray[Any, Any]


def _rank(what: str, rank: Any) -> int:
    (found,) = integers(f"{what}: rank", [rank])
    if found < 0:
        raise ShapeError(f"{what}: rank must not be negative, but is {found}.")
    return found


class LayoutUtil:
    """Making layouts and asking about them.

    >>> from tinyxla.xla import F32, LayoutUtil, ShapeUtil
    >>> shape = LayoutUtil.WithLayout(ShapeUtil.MakeShape(F32, [2, 3]), LayoutUtil.MakeAscendingLayout(2))
    >>> ShapeUtil.HumanStringWithLayout(shape)
    'f32[2,3]{0,1}'
    """

    @staticmethod
    def MakeLayout(
        minor_to_major: Sequence[int],
        tiles: Sequence[Sequence[int]] = (),
        padded_dimensions: Sequence[int] = (),
        padding_value: Any = PaddingValue.ZERO_PAD,
    ) -> Layout:
        """A layout.

        Args:
            minor_to_major: all dimension numbers, that of the fastest varying index first.
            tiles: the sizes of each tile, for the most minor dimensions; the next one tiles what the one before made.
                The size -1 takes a dimension together with the next more minor one before that is cut.
            padded_dimensions: for each dimension the size to which it is padded; none for no padding.
            padding_value: what stands in the padding: a `PaddingValue`, or an element.

        Returns:
            A `Layout`.

        Raises:
            ShapeError: no order of dimensions, sizes that are not positive, or padding of another rank.

        >>> from tinyxla.xla import LayoutUtil
        >>> print(LayoutUtil.MakeLayout([0, 1]))
        {0,1}
        """
        return Layout(
            integers("MakeLayout: minor_to_major", minor_to_major),
            tuple(integers("MakeLayout: tiles", tile) for tile in tiles),
            integers("MakeLayout: padded_dimensions", padded_dimensions),
            padding_value,
        )

    @staticmethod
    def MakeDescendingLayout(rank: int) -> Layout:
        """The last dimension is most minor: row-major, the default.

        Args:
            rank: the number of dimensions.

        Returns:
            A `Layout`.

        Raises:
            ArgumentError: a rank that is no integer.
            ShapeError: a negative rank.

        >>> from tinyxla.xla import LayoutUtil
        >>> print(LayoutUtil.MakeDescendingLayout(3))
        {2,1,0}
        """
        return Layout.default(_rank("MakeDescendingLayout", rank))

    @staticmethod
    def MakeAscendingLayout(rank: int) -> Layout:
        """Dimension 0 is most minor: column-major.

        Args:
            rank: the number of dimensions.

        Returns:
            A `Layout`.

        Raises:
            ArgumentError: a rank that is no integer.
            ShapeError: a negative rank.

        >>> from tinyxla.xla import LayoutUtil
        >>> print(LayoutUtil.MakeAscendingLayout(3))
        {0,1,2}
        """
        return Layout(tuple(range(_rank("MakeAscendingLayout", rank))))

    GetDefaultLayoutForRank = MakeDescendingLayout

    @staticmethod
    def GetDefaultLayoutForShape(shape: Shape) -> Layout:
        """The layout of shapes made without one: from major to minor in dimension order.

        Args:
            shape: the shape of an array.

        Returns:
            A `Layout`.

        Raises:
            ArgumentError: what is no shape of an array.

        >>> from tinyxla.xla import F32, LayoutUtil, ShapeUtil
        >>> print(LayoutUtil.GetDefaultLayoutForShape(ShapeUtil.MakeShapeWithLayout(F32, [2, 3], [0, 1])))
        {1,0}
        """
        return Layout.default(checked_instance("GetDefaultLayoutForShape: shape", shape, Shape).rank)

    @staticmethod
    def LayoutOf(shape: Shape) -> Layout:
        """The layout of a shape, the default one if it has none.

        Args:
            shape: the shape of an array.

        Returns:
            A `Layout`.

        Raises:
            ArgumentError: what is no shape of an array.

        >>> from tinyxla.xla import F32, LayoutUtil, ShapeUtil
        >>> print(LayoutUtil.LayoutOf(ShapeUtil.MakeShapeWithLayout(F32, [2, 3], [0, 1])))
        {0,1}
        """
        checked_instance("LayoutOf: shape", shape, Shape)
        return shape.layout or Layout.default(shape.rank)

    @staticmethod
    def WithLayout(shape: Shape, layout: Layout) -> Shape:
        """The shape in another layout, which must fit it.

        Args:
            shape: the shape of an array.
            layout: a layout of its dimensions.

        Returns:
            A `Shape` that equals the first one, but in that layout.

        Raises:
            ShapeError: a layout that does not fit the dimensions.

        >>> from tinyxla.xla import F32, LayoutUtil, ShapeUtil
        >>> print(LayoutUtil.WithLayout(ShapeUtil.MakeShape(F32, [2, 3]), LayoutUtil.MakeLayout([0, 1])).text())
        f32[2,3]{0,1}
        """
        LayoutUtil.ValidateLayoutForShape(checked_instance("Layout", layout, Layout), shape)
        return shape.in_layout(layout)

    @staticmethod
    def ValidateLayoutForShape(layout: Layout, shape: Shape) -> None:
        """Raise `ShapeError` if a layout does not fit the dimensions of a shape, `DTypeError` if its padding is of
        another element type.

        Args:
            layout: a layout.
            shape: the shape of an array.

        Raises:
            ArgumentError: what is no layout.
            DTypeError: padding of another element type.
            ShapeError: a layout that does not fit the dimensions.

        >>> from tinyxla.xla import F32, LayoutUtil, ShapeUtil
        >>> LayoutUtil.ValidateLayoutForShape(LayoutUtil.MakeLayout([0]), ShapeUtil.MakeShape(F32, [2, 3]))
        Traceback (most recent call last):
            ...
        tinyxla.errors.ShapeError: Layout: minor_to_major must have the 2 dimensions of f32[2,3], but is ...
        """
        checked_instance("ValidateLayoutForShape: layout", layout, Layout)
        checked_instance("ValidateLayoutForShape: shape", shape, Shape)
        sizes = _physical(shape.in_layout(layout))
        for tile in layout.tiles:
            if len(tile) > len(sizes):
                raise ShapeError(
                    f"Layout: a tile must have no more sizes than the {len(sizes)} dimensions that it cuts, those of "
                    f"{shape}, but is {list(tile)}."
                )
            sizes = _Tiling.of(sizes, tile).sizes
        _padding(layout, shape.element_type)

    @staticmethod
    def IsMonotonicWithDim0Minor(layout: Layout) -> bool:
        """Whether dimensions go from minor to major in order ("dim 0 is minor").

        Args:
            layout: a layout.

        Returns:
            True or False.

        Raises:
            ArgumentError: what is no layout.

        >>> from tinyxla.xla import LayoutUtil
        >>> LayoutUtil.IsMonotonicWithDim0Minor(LayoutUtil.MakeLayout([0, 1]))
        True
        """
        checked_instance("IsMonotonicWithDim0Minor: layout", layout, Layout)
        return layout.minor_to_major == tuple(range(len(layout.minor_to_major)))

    @staticmethod
    def IsMonotonicWithDim0Major(layout: Layout) -> bool:
        """Whether dimensions go from major to minor in order ("dim 0 is major"): the default.

        Args:
            layout: a layout.

        Returns:
            True or False.

        Raises:
            ArgumentError: what is no layout.

        >>> from tinyxla.xla import LayoutUtil
        >>> LayoutUtil.IsMonotonicWithDim0Major(LayoutUtil.MakeLayout([0, 1]))
        False
        """
        checked_instance("IsMonotonicWithDim0Major: layout", layout, Layout)
        return layout.minor_to_major == tuple(reversed(range(len(layout.minor_to_major))))

    @staticmethod
    def IsPadded(shape: Shape) -> bool:
        """Whether the layout pads a dimension.

        Args:
            shape: the shape of an array.

        Returns:
            True or False.

        Raises:
            ArgumentError: what is no shape of an array.

        >>> from tinyxla.xla import F32, LayoutUtil, ShapeUtil
        >>> layout = LayoutUtil.MakeLayout([1, 0], padded_dimensions=[2, 4])
        >>> LayoutUtil.IsPadded(LayoutUtil.WithLayout(ShapeUtil.MakeShape(F32, [2, 3]), layout))
        True
        """
        padded = LayoutUtil.LayoutOf(shape).padded_dimensions
        return bool(padded) and padded != shape.dimensions

    @staticmethod
    def Minor(layout: Layout, physical_dimension_number: int) -> int:
        """The dimension that is so many places from the most minor one.

        Args:
            layout: a layout.
            physical_dimension_number: 0 for the most minor dimension, and so on.

        Returns:
            The number of a dimension.

        Raises:
            ArgumentError: what is no layout.
            AxisError: a number that is none of a dimension.

        >>> from tinyxla.xla import LayoutUtil
        >>> LayoutUtil.Minor(LayoutUtil.MakeLayout([2, 0, 1]), 0)
        2
        """
        checked_instance("Minor: layout", layout, Layout)
        rank = len(layout.minor_to_major)
        return layout.minor_to_major[canonical_axis(physical_dimension_number, rank, "Minor")]

    @staticmethod
    def Major(layout: Layout, physical_dimension_number: int) -> int:
        """The dimension that is so many places from the most major one.

        Args:
            layout: a layout.
            physical_dimension_number: 0 for the most major dimension, and so on.

        Returns:
            The number of a dimension.

        Raises:
            ArgumentError: what is no layout.
            AxisError: a number that is none of a dimension.

        >>> from tinyxla.xla import LayoutUtil
        >>> LayoutUtil.Major(LayoutUtil.MakeLayout([2, 0, 1]), 0)
        1
        """
        checked_instance("Major: layout", layout, Layout)
        rank = len(layout.minor_to_major)
        return layout.minor_to_major[-1 - canonical_axis(physical_dimension_number, rank, "Major")]

    @staticmethod
    def Equal(lhs: Layout, rhs: Layout) -> bool:
        """Whether two layouts are the same, tiles and padding included.

        Args:
            lhs, rhs: layouts.

        Returns:
            True or False.

        >>> from tinyxla.xla import LayoutUtil
        >>> LayoutUtil.Equal(LayoutUtil.MakeLayout([1, 0]), LayoutUtil.MakeLayout([1, 0], tiles=[[2]]))
        False
        """
        return lhs == rhs


def _linear(index: Sequence[int], sizes: Ints) -> int:
    """Where an index is in a row-major array."""
    found = 0
    for i, size in zip(index, sizes, strict=True):
        found = found * size + i
    return found


def _index(linear: int, sizes: Ints) -> Ints:
    """The index at a place of a row-major array; behind its end, the first index is too large."""
    found: list[int] = []
    for size in reversed(sizes[1:]):
        linear, i = divmod(linear, size)
        found.append(i)
    return (linear, *reversed(found)) if sizes else ()


def _physical(shape: Shape) -> Ints:
    """The sizes of dimensions in memory, from major to minor, before tiling."""
    sizes = LayoutUtil.LayoutOf(shape).padded_dimensions or shape.dimensions
    return tuple(sizes[d] for d in shape.major_to_minor)


class _Tiling(NamedTuple):
    """How a tile cuts an array: its major dimensions stay, of the others some are taken together, and each that is left
    becomes two, the number of a tile and the place inside."""

    major: Ints
    groups: tuple[Ints, ...]  # the sizes that are taken together
    tile: Ints

    @staticmethod
    def of(sizes: Ints, tile: Ints) -> _Tiling:
        first = len(sizes) - len(tile)
        groups: list[Ints] = []
        group: Ints = ()
        for size, cut in zip(sizes[first:], tile, strict=True):
            group = (*group, size)
            if cut != COMBINED:
                groups.append(group)
                group = ()
        return _Tiling(sizes[:first], tuple(groups), tuple(cut for cut in tile if cut != COMBINED))

    @property
    def counts(self) -> Ints:
        """How many tiles there are."""
        return tuple(-(-math.prod(group) // cut) for group, cut in zip(self.groups, self.tile, strict=True))

    @property
    def sizes(self) -> Ints:
        """The sizes of the array in tiles."""
        return (*self.major, *self.counts, *self.tile)

    def cut(self, index: Ints) -> Ints:
        """The index into the array in tiles."""
        place = len(self.major)
        pairs: list[tuple[int, int]] = []
        for group, cut in zip(self.groups, self.tile, strict=True):
            pairs.append(divmod(_linear(index[place : place + len(group)], group), cut))
            place += len(group)
        return (*index[: len(self.major)], *(p[0] for p in pairs), *(p[1] for p in pairs))

    def whole(self, index: Ints) -> Ints:
        """The index into the array that is cut: the inverse of `cut`, but for places in padding."""
        first, count = len(self.major), len(self.tile)
        tiles, inside = index[first : first + count], index[first + count :]
        parts = zip(tiles, self.tile, inside, self.groups, strict=True)
        return (*index[:first], *(i for tile, cut, place, group in parts for i in _index(tile * cut + place, group)))

    def values(self, value: Array, padding: Array) -> Array:
        """An array in tiles, padded to whole ones."""
        counts, first = self.counts, len(self.major)
        value = value.reshape((*self.major, *map(math.prod, self.groups)))
        value = _filled(value, (*self.major, *(n * t for n, t in zip(counts, self.tile, strict=True))), padding)
        value = value.reshape((*self.major, *(n for pair in zip(counts, self.tile, strict=True) for n in pair)))
        rest = range(first, value.ndim)
        return value.transpose((*range(first), *rest[::2], *rest[1::2]))


def _tilings(shape: Shape) -> tuple[list[_Tiling], Ints]:
    """How the tiles of a layout cut, and the sizes in memory."""
    layout = LayoutUtil.LayoutOf(shape)
    LayoutUtil.ValidateLayoutForShape(layout, shape)
    sizes = _physical(shape)
    tilings: list[_Tiling] = []
    for tile in layout.tiles:
        tilings.append(_Tiling.of(sizes, tile))
        sizes = tilings[-1].sizes
    return tilings, sizes


class IndexUtil:
    """From multidimensional indices to linear ones, and back.

    >>> from tinyxla.xla import F32, IndexUtil, ShapeUtil
    >>> columns = ShapeUtil.MakeShapeWithLayout(F32, [2, 3], [0, 1])
    >>> [IndexUtil.LinearIndexToMultidimensionalIndex(columns, k) for k in range(3)]
    [[0, 0], [1, 0], [0, 1]]
    """

    @staticmethod
    def MultidimensionalIndexToLinearIndex(shape: Shape, multi_index: Sequence[int]) -> int:
        """Where the element with this index is in memory.

        Args:
            shape: the shape of an array.
            multi_index: an integer for each dimension.

        Returns:
            The number of the element, from 0 on.

        Raises:
            OutOfBoundsError: the index is outside the array.

        >>> from tinyxla.xla import F32, IndexUtil, ShapeUtil
        >>> shape = ShapeUtil.MakeShapeWithLayout(F32, [2, 3], [0, 1])
        >>> IndexUtil.MultidimensionalIndexToLinearIndex(shape, [0, 1])
        2
        """
        index = integers("MultidimensionalIndexToLinearIndex: multi_index", multi_index)
        if not IndexUtil.IndexInBounds(shape, index):
            raise OutOfBoundsError(f"MultidimensionalIndexToLinearIndex: {list(index)} must be an index into {shape}.")
        tilings, sizes = _tilings(shape)
        place = tuple(index[d] for d in shape.major_to_minor)
        for tiling in tilings:
            place = tiling.cut(place)
        return _linear(place, sizes)

    @staticmethod
    def LinearIndexToMultidimensionalIndex(shape: Shape, linear_index: int) -> list[int]:
        """The index of the element at a place in memory.

        Args:
            shape: the shape of an array.
            linear_index: the number of an element, from 0 on.

        Returns:
            An integer for each dimension.

        Raises:
            OutOfBoundsError: the place is outside the array's memory, or in its padding.

        >>> from tinyxla.xla import F32, IndexUtil, ShapeUtil
        >>> shape = ShapeUtil.MakeShapeWithLayout(F32, [2, 3], [0, 1])
        >>> IndexUtil.LinearIndexToMultidimensionalIndex(shape, 2)
        [0, 1]
        """
        tilings, sizes = _tilings(shape)
        (given,) = integers("LinearIndexToMultidimensionalIndex: linear_index", [linear_index])
        if not 0 <= given < math.prod(sizes):
            raise OutOfBoundsError(
                f"LinearIndexToMultidimensionalIndex: linear_index must be one of the {math.prod(sizes)} places of "
                f"{shape.text()}, from 0 to {math.prod(sizes) - 1}, but is {given}."
            )
        place = _index(given, sizes)
        for tiling in reversed(tilings):
            place = tiling.whole(place)
        found = [place[shape.major_to_minor.index(d)] for d in range(shape.rank)]
        if (
            not IndexUtil.IndexInBounds(shape, found)
            or IndexUtil.MultidimensionalIndexToLinearIndex(shape, found) != given
        ):
            raise OutOfBoundsError(
                f"LinearIndexToMultidimensionalIndex: linear_index must be the place of an element of {shape.text()}, "
                f"but {given} is in its padding."
            )
        return found

    @staticmethod
    def IndexInBounds(shape: Shape, index: Sequence[int]) -> bool:
        """Whether an array has an element with this index.

        Args:
            shape: the shape of an array.
            index: integers.

        Returns:
            True or False.

        Raises:
            ArgumentError: what are no integers.

        >>> from tinyxla.xla import F32, IndexUtil, ShapeUtil
        >>> [IndexUtil.IndexInBounds(ShapeUtil.MakeShape(F32, [2, 3]), index) for index in ([1, 2], [1, 3], [1])]
        [True, False, False]
        """
        checked_instance("IndexInBounds: shape", shape, Shape)
        index = integers("IndexInBounds: index", index)
        return len(index) == shape.rank and all(0 <= i < n for i, n in zip(index, shape.dimensions, strict=True))

    @staticmethod
    def GetDimensionStride(shape: Shape, dimension: int) -> int:
        """How far apart in memory neighbours along a dimension are, in a layout without tiles.

        Args:
            shape: the shape of an array.
            dimension: the number of a dimension.

        Returns:
            The distance in elements.

        Raises:
            ShapeError: a layout with tiles.

        >>> from tinyxla.xla import F32, IndexUtil, ShapeUtil
        >>> shape = ShapeUtil.MakeShape(F32, [2, 3])
        >>> IndexUtil.GetDimensionStride(shape, 0), IndexUtil.GetDimensionStride(shape, 1)
        (3, 1)
        """
        if LayoutUtil.LayoutOf(shape).tiles:
            raise ShapeError(f"GetDimensionStride: neighbours in the tiles of {shape.text()} have no one distance.")
        d = canonical_axis(dimension, shape.rank, "GetDimensionStride")
        return math.prod(_physical(shape)[shape.major_to_minor.index(d) + 1 :])


class LiteralUtil:
    """Values of constants, which are NumPy arrays, and their order in memory.

    >>> import numpy as np
    >>> from tinyxla.xla import LayoutUtil, LiteralUtil
    >>> print(LiteralUtil.LinearValues(np.array([[1, 2], [3, 4]]), LayoutUtil.MakeLayout([0, 1])))
    [1 3 2 4]
    """

    @staticmethod
    def Zero(primitive_type: Any) -> Array:
        """The scalar 0.

        Args:
            primitive_type: an element type.

        Returns:
            An array without dimensions.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import S8, LiteralUtil
        >>> LiteralUtil.Zero(S8)
        array(0, dtype=int8)
        """
        return np.zeros((), _dtype_of("Zero", primitive_type))

    @staticmethod
    def One(primitive_type: Any) -> Array:
        """The scalar 1.

        Args:
            primitive_type: an element type.

        Returns:
            An array without dimensions.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import BF16, LiteralUtil
        >>> LiteralUtil.One(BF16)
        array(1, dtype=bfloat16)
        """
        return np.ones((), _dtype_of("One", primitive_type))

    @staticmethod
    def MinValue(primitive_type: Any) -> Array:
        """The least scalar: minus infinity where there is one.

        Args:
            primitive_type: an element type.

        Returns:
            An array without dimensions.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import LiteralUtil
        >>> LiteralUtil.MinValue("f32")
        array(-inf, dtype=float32)
        """
        return _extreme("MinValue", primitive_type, "maximum")

    @staticmethod
    def MaxValue(primitive_type: Any) -> Array:
        """The greatest scalar: infinity where there is one.

        Args:
            primitive_type: an element type.

        Returns:
            An array without dimensions.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import F32, S8, LiteralUtil
        >>> LiteralUtil.MaxValue(F32), LiteralUtil.MaxValue(S8)
        (array(inf, dtype=float32), array(127, dtype=int8))
        """
        return _extreme("MaxValue", primitive_type, "minimum")

    @staticmethod
    def LinearValues(literal: Any, layout: Layout | None = None) -> Array:
        """The values of an array in the order in which they are in memory, padding included.

        Args:
            literal: an array.
            layout: the default one unless given.

        Returns:
            An array with one dimension.

        Raises:
            ArgumentError: what is no layout.
            DTypeError: what is no array of numbers.
            ShapeError: a layout that does not fit the dimensions.

        >>> import numpy as np
        >>> from tinyxla.xla import Layout, LiteralUtil
        >>> print(LiteralUtil.LinearValues(np.array([[1, 2, 3], [4, 5, 6]]), Layout((0, 1))))
        [1 4 2 5 3 6]
        """
        value = np.asarray(literal)
        chosen = Layout.default(value.ndim) if layout is None else layout
        shape = LayoutUtil.WithLayout(Shape.of(value), chosen)
        tilings, _ = _tilings(shape)
        padding = _padding(chosen, shape.element_type)
        value = _filled(value, chosen.padded_dimensions or value.shape, padding).transpose(shape.major_to_minor)
        for tiling in tilings:
            value = tiling.values(value, padding)
        return value.reshape(-1)

    @staticmethod
    def FromLinearValues(shape: Shape, values: Any) -> Array:
        """The array whose values in memory these are: the inverse of `LinearValues`.

        Args:
            shape: the shape of the array, with its layout.
            values: a vector of all elements in their order in memory, padding included.

        Returns:
            An array of that shape.

        Raises:
            ArgumentError: another number of values.

        >>> from tinyxla.xla import S32, LiteralUtil, ShapeUtil
        >>> shape = ShapeUtil.MakeShapeWithLayout(S32, [2, 3], [0, 1])
        >>> LiteralUtil.FromLinearValues(shape, [1, 4, 2, 5, 3, 6])
        array([[1, 2, 3],
               [4, 5, 6]], dtype=int32)
        """
        checked_instance("FromLinearValues: shape", shape, Shape)
        try:
            given = np.asarray(values, shape.dtype)
        except (TypeError, ValueError):
            raise ArgumentError(f"FromLinearValues: values must be numbers of {shape}, but got {values!r}.") from None
        size = math.prod(_tilings(shape)[1])
        if given.shape != (size,):
            raise ArgumentError(
                f"FromLinearValues: values must be the {size} in the memory of {shape.text()}, in one dimension, but "
                f"have the shape {given.shape}."
            )
        zero_padded = replace(LayoutUtil.LayoutOf(shape), padding_value=0)
        places = LiteralUtil.LinearValues(np.arange(1, shape.size + 1).reshape(shape.dimensions), zero_padded)
        out = np.empty(shape.size, shape.dtype)
        out[places[places > 0] - 1] = given[places > 0]
        return out.reshape(shape.dimensions)


def _dtype_of(what: str, primitive_type: Any) -> np.dtype[Any]:
    kind = element_type(primitive_type)
    if kind in (TOKEN, OPAQUE):
        raise DTypeError(f"LiteralUtil.{what}: takes an element type of arrays, but got {kind}.")
    return kind.dtype


def _extreme(what: str, primitive_type: Any, op: str) -> Array:
    dtype = _dtype_of(what, primitive_type)
    return np.asarray(identity_element(op, dtype)).astype(dtype)


_PADDING: dict[PaddingValue, Callable[[ElementType], Array]] = {
    PaddingValue.ZERO_PAD: LiteralUtil.Zero,
    PaddingValue.ONE_PAD: LiteralUtil.One,
    PaddingValue.LOWEST_PAD: LiteralUtil.MinValue,
    PaddingValue.HIGHEST_PAD: LiteralUtil.MaxValue,
    PaddingValue.UNKNOWN_PAD: LiteralUtil.Zero,
}


def _padding(layout: Layout, kind: ElementType) -> Array:
    """What stands in the padding of an array of this element type."""
    given = layout.padding_value
    if not isinstance(given, PaddingValue):
        return np.asarray(checked_argument(given, Shape(kind), "Layout: padding_value"))
    if given not in _PADDING:
        raise ArgumentError(f"Layout: padding_value must be one of {[x.name for x in _PADDING]}, but is {given.name}.")
    return _PADDING[given](kind)


def _filled(value: Array, sizes: Ints, padding: Array) -> Array:
    """The array at the start of a larger one."""
    if value.shape == sizes:
        return value
    out = np.full(sizes, padding, value.dtype)
    out[tuple(map(slice, value.shape))] = value
    return out
