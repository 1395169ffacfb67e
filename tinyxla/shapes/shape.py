"""Shapes of arrays and tuples, in XLA's sense and XLA's text form (`f32[2,3]{1,0}`)."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from tinyxla.errors import AxisError, ShapeError, TinyxlaError
from tinyxla.shapes.element_types import ElementType, element_type
from tinyxla.shapes.symbolic import is_symbolic


class PaddingValue(Enum):
    """What stands in the padding of a layout, for any element type.

    >>> import numpy as np
    >>> from tinyxla.xla import LayoutUtil, LiteralUtil, PaddingValue
    >>> layout = LayoutUtil.MakeLayout([0], padded_dimensions=[4], padding_value=PaddingValue.LOWEST_PAD)
    >>> LiteralUtil.LinearValues(np.float32([1, 2]), layout)
    array([  1.,   2., -inf, -inf], dtype=float32)
    """

    INVALID_PAD = 0
    ZERO_PAD = 1
    ONE_PAD = 2
    LOWEST_PAD = 3
    HIGHEST_PAD = 4
    UNKNOWN_PAD = 5


COMBINED = -1  # in a tile, `*` in text: the dimension is taken together with the next more minor one


@dataclass(frozen=True, slots=True)
class Layout:
    """How the elements of an array lie in memory: `minor_to_major[0]` is the dimension whose index varies fastest.

    Before they are laid out, dimensions are padded to `padded_dimensions` (if given) with `padding_value`, and then cut
    into `tiles`: the first tiles the array, major dimensions first, and each other one tiles what the one before made.

    Sources: "Shapes and Layout", section "Layout"; "Tiled layout".

    >>> from tinyxla.xla import Layout
    >>> print(Layout((0, 1), tiles=((2, 128),)))
    {0,1:T(2,128)}
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    padded_dimensions: tuple[int, ...] = ()
    padding_value: Any = PaddingValue.ZERO_PAD  # or an element

    def __post_init__(self) -> None:
        rank = len(self.minor_to_major)
        if sorted(self.minor_to_major) != list(range(rank)):
            raise ShapeError(
                f"Layout: minor_to_major must name each of 0 to {rank - 1} once, but is {list(self.minor_to_major)}."
            )
        for tile in self.tiles:
            if any(size < 1 and size != COMBINED for size in tile) or tile[-1:] == (COMBINED,):
                raise ShapeError(
                    f"Layout: a tile must have positive sizes, or {COMBINED} for a dimension that is taken together "
                    f"with the next one, but is {list(tile)}."
                )
        if self.padded_dimensions and len(self.padded_dimensions) != rank:
            raise ShapeError(
                f"Layout: padded_dimensions must have a size for each of the {rank} dimensions, but is "
                f"{list(self.padded_dimensions)}."
            )

    @staticmethod
    def default(rank: int) -> Layout:
        """The last dimension fastest: row-major, NumPy's C order.

        Args:
            rank: the number of dimensions.

        Returns:
            A `Layout`.

        >>> from tinyxla.xla import Layout
        >>> Layout.default(3).minor_to_major
        (2, 1, 0)
        """
        return Layout(tuple(range(rank - 1, -1, -1)))

    def __str__(self) -> str:
        tiles = "".join(f"({','.join('*' if n == COMBINED else str(n) for n in tile)})" for tile in self.tiles)
        return "{" + ",".join(map(str, self.minor_to_major)) + (f":T{tiles}" if tiles else "") + "}"


def _are_sizes(dimensions: Any) -> bool:
    if type(dimensions) is not tuple:
        return False
    for n in dimensions:  # noqa: SIM110 - a generator takes longer
        if type(n) is not int or n < 0:
            return False
    return True


def _checked_dimensions(dimensions: Any) -> tuple[int, ...]:
    """Sizes as Python integers, symbolic ones as they are."""
    try:
        sizes = tuple(n if is_symbolic(n) else operator.index(n) for n in dimensions)
    except TypeError:
        sizes = None
    if sizes is None or any(not is_symbolic(n) and n < 0 for n in sizes):
        raise ShapeError(
            f"Shape: dimensions must be a sequence of integers that are not negative, but is {dimensions!r}."
        )
    return sizes


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Element type and dimensions of an array. Equal shapes are equal and hash alike, whatever their layout.

    A dynamic dimension has a size that is known only when the program runs; in `dimensions` stands its bound.

    Raises:
        DTypeError: what is no element type.
        ShapeError: dimensions that are no sizes, or a layout that does not fit them.

    >>> import numpy as np
    >>> from tinyxla.xla import F32, Layout, Shape
    >>> columns = Shape(F32, (2, 3), Layout((0, 1)))
    >>> columns.text(), columns == Shape(F32, (2, 3)), columns.size
    ('f32[2,3]{0,1}', True, 6)
    """

    element_type: ElementType
    dimensions: tuple[int, ...] = ()
    layout: Layout | None = None  # None: the default layout
    dynamic: tuple[bool, ...] = ()  # for each dimension whether it is; () if none is

    def __post_init__(self) -> None:
        if type(self.element_type) is not ElementType:
            object.__setattr__(self, "element_type", element_type(self.element_type))
        if not _are_sizes(self.dimensions):
            object.__setattr__(self, "dimensions", _checked_dimensions(self.dimensions))
        layout = self.layout
        if layout is None:
            return
        if len(layout.minor_to_major) != self.rank:
            raise ShapeError(
                f"Layout: minor_to_major must have the {self.rank} dimensions of {self}, but is "
                f"{list(layout.minor_to_major)}."
            )
        padded = layout.padded_dimensions
        if padded and any(p < n for p, n in zip(padded, self.dimensions, strict=True)):
            raise ShapeError(
                f"Layout: padded_dimensions must have for each dimension of {self} a size no less than its own, but is "
                f"{list(padded)}."
            )

    @staticmethod
    def of(value: Any) -> Shape:
        """The shape of anything with `dtype` and `shape`.

        Args:
            value: an array, or anything that has a dtype and a shape.

        Returns:
            A `Shape` in the default layout.

        Raises:
            DTypeError: the dtype is no element type.

        >>> import numpy as np
        >>> from tinyxla.xla import Shape
        >>> Shape.of(np.zeros((2, 3), np.int8))
        s8[2,3]
        """
        return Shape(element_type(value.dtype), tuple(value.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.element_type.dtype

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.dimensions)

    @property
    def is_dynamic(self) -> bool:
        return bool(self.dynamic)

    def in_layout(self, layout: Layout | None) -> Shape:
        """The same in another layout, or in the default one.

        Args:
            layout: a layout; None for the default one.

        Returns:
            A `Shape`.

        Raises:
            ShapeError: a layout that does not fit the dimensions.

        >>> from tinyxla.xla import F32, Layout, Shape
        >>> Shape(F32, (2, 3)).in_layout(Layout((0, 1))).text()
        'f32[2,3]{0,1}'
        """
        return Shape(self.element_type, self.dimensions, layout, self.dynamic)

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        """The dimensions in the order of memory: that whose index varies fastest comes last."""
        return (self.layout or Layout.default(self.rank)).minor_to_major[::-1]

    def admits(self, dimensions: tuple[int, ...]) -> bool:
        """Whether an array of these dimensions has the shape: a dynamic one may be smaller than its bound.

        Args:
            dimensions: the sizes of an array.

        Returns:
            True or False.

        >>> from tinyxla.xla import F32, Shape
        >>> at_most_3 = Shape(F32, (2, 3)).with_dynamic([False, True])
        >>> at_most_3.admits((2, 1)), at_most_3.admits((1, 3))
        (True, False)
        """
        if not self.dynamic:
            return dimensions == self.dimensions
        sizes = zip(dimensions, self.dimensions, self.dynamic, strict=False)
        return len(dimensions) == self.rank and all(n == m or (d and n < m) for n, m, d in sizes)

    def with_dynamic(self, dynamic: Sequence[bool]) -> Shape:
        """The same with these dimensions dynamic.

        Args:
            dynamic: for each dimension whether it is dynamic; nothing if none is.

        Returns:
            A `Shape`.

        Raises:
            ShapeError: another number of dimensions.

        >>> from tinyxla.xla import F32, Shape
        >>> Shape(F32, (2, 3)).with_dynamic([False, True])
        f32[2,<=3]
        """
        marks = tuple(dynamic)
        if marks and len(marks) != self.rank:
            raise ShapeError(f"with_dynamic: takes a boolean for each of the {self.rank} dimensions, but got {marks}.")
        return Shape(self.element_type, self.dimensions, self.layout, marks if any(marks) else ())

    def with_dimensions(self, dimensions: Sequence[int]) -> Shape:
        """The shape with the same element type and other dimensions, in the default layout.

        Args:
            dimensions: the sizes.

        Returns:
            A `Shape`.

        Raises:
            ShapeError: what are no sizes.

        >>> from tinyxla.xla import F32, Shape
        >>> Shape(F32, (2, 3)).with_dimensions([6])
        f32[6]
        """
        return Shape(self.element_type, dimensions)  # pyright: ignore[reportArgumentType] - it makes a tuple of them

    def with_type(self, dtype: Any) -> Shape:
        """The shape with another element type, in the default layout.

        Args:
            dtype: an element type.

        Returns:
            A `Shape`.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import F32, Shape
        >>> Shape(F32, (2, 3)).with_type("int8")
        s8[2,3]
        """
        return Shape(element_type(dtype), self.dimensions)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Shape)
            and self.element_type is other.element_type
            and self.dimensions == other.dimensions
            and self.dynamic == other.dynamic
        )

    def __hash__(self) -> int:
        return hash((self.element_type.name, self.dimensions))

    def __str__(self) -> str:
        if not self.dynamic:
            return f"{self.element_type.name}[{','.join(map(str, self.dimensions))}]"
        sizes = (f"<={n}" if d else str(n) for n, d in zip(self.dimensions, self.dynamic, strict=True))
        return f"{self.element_type.name}[{','.join(sizes)}]"

    __repr__ = __str__

    def text(self) -> str:
        """With the layout, as HLO text has it.

        Returns:
            The text.

        >>> from tinyxla.xla import F32, Shape
        >>> Shape(F32, (2, 3)).text()
        'f32[2,3]{1,0}'
        """
        if not self.dimensions:
            return str(self)
        return f"{self}{self.layout or Layout.default(self.rank)}"


@dataclass(frozen=True, slots=True)
class TupleShape:
    """The shape of a tuple: the shapes of its elements.

    >>> from tinyxla.xla import F32, PRED, Shape, TupleShape
    >>> TupleShape((Shape(F32, (2,)), TupleShape((Shape(PRED),))))
    (f32[2], (pred[]))
    """

    elements: tuple[AnyShape, ...]
    is_dynamic: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_dynamic", any(x.is_dynamic for x in self.elements))

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"

    __repr__ = __str__

    def text(self) -> str:
        """The shapes of the elements with their layouts, as HLO text has them.

        Returns:
            The text.

        >>> from tinyxla.xla import F32, PRED, Shape, TupleShape
        >>> TupleShape((Shape(F32, (2, 3)), Shape(PRED))).text()
        '(f32[2,3]{1,0}, pred[])'
        """
        return f"({', '.join(x.text() for x in self.elements)})"


AnyShape = Shape | TupleShape


def canonical_axis(axis: Any, rank: int, what: str) -> int:
    """`axis` counted from the front; an error that names `what` if it is outside an array of `rank` dimensions."""
    try:
        index = int(axis.__index__())
    except TinyxlaError:
        raise
    except (AttributeError, TypeError):  # of an array of several
        raise ShapeError(f"{what}: an axis is an integer, but got {axis!r}.") from None
    if not -rank <= index < rank:
        hint = f"use one from {-rank} to {rank - 1}" if rank else "a scalar has no axes"
        raise AxisError(f"{what}: axis {index} is out of range for an array with {rank} dimensions; {hint}.")
    return index % rank
