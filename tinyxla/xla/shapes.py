"""Element types and shapes under their names in XLA's builder interface.

Source: "Shapes and Layout".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.shapes import OPAQUE, TOKEN, AnyShape, ElementType, Layout, Shape, TupleShape, element_type, element_types
from tinyxla.shapes.shape import canonical_axis
from tinyxla.xla.functions import checked_instance, integers
from tinyxla.xla.layouts import LayoutUtil


class PrimitiveType:
    """The element types.

    >>> from tinyxla.xla import PrimitiveType
    >>> PrimitiveType.BF16, PrimitiveType.BF16.dtype, PrimitiveType.BF16.bits
    (bf16, dtype(bfloat16), 16)
    """

    PRED = element_types["pred"]
    S2, S4, S8, S16, S32, S64 = (element_types[f"s{n}"] for n in (2, 4, 8, 16, 32, 64))
    U2, U4, U8, U16, U32, U64 = (element_types[f"u{n}"] for n in (2, 4, 8, 16, 32, 64))
    F4E2M1FN = element_types["f4e2m1fn"]
    F8E3M4, F8E4M3, F8E4M3B11FNUZ = (element_types[f"f8{kind}"] for kind in ("e3m4", "e4m3", "e4m3b11fnuz"))
    F8E4M3FN, F8E4M3FNUZ = (element_types[f"f8{kind}"] for kind in ("e4m3fn", "e4m3fnuz"))
    F8E5M2, F8E5M2FNUZ, F8E8M0FNU = (element_types[f"f8{kind}"] for kind in ("e5m2", "e5m2fnuz", "e8m0fnu"))
    F16, BF16, F32, F64 = (element_types[kind] for kind in ("f16", "bf16", "f32", "f64"))
    C64, C128 = (element_types[kind] for kind in ("c64", "c128"))
    TOKEN = TOKEN
    OPAQUE = OPAQUE

    @staticmethod
    def from_dtype(dtype: Any) -> ElementType:
        """The element type of a NumPy dtype.

        Args:
            dtype: a dtype, or its name.

        Returns:
            The element type.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import PrimitiveType
        >>> PrimitiveType.from_dtype("float32")
        f32
        """
        return element_type(dtype)


class ShapeUtil:
    """Making shapes and asking about them.

    >>> from tinyxla.xla import S32, ShapeUtil
    >>> shape = ShapeUtil.MakeShape(S32, [2, 3])
    >>> ShapeUtil.Rank(shape), ShapeUtil.ElementsIn(shape)
    (2, 6)
    """

    @staticmethod
    def MakeShape(
        element_type: Any, dimensions: Sequence[int], dynamic_dimensions: Sequence[bool] | None = None
    ) -> Shape:
        """The shape of an array, in the default layout; the sizes of dynamic dimensions are bounds.

        Args:
            element_type: an element type.
            dimensions: the sizes.
            dynamic_dimensions: for each dimension whether it is dynamic; None if none is.

        Returns:
            A `Shape`.

        Raises:
            ArgumentError: sizes that are no integers.
            DTypeError: what is no element type.
            ShapeError: a negative size, or `dynamic_dimensions` of another number of dimensions.

        >>> from tinyxla.xla import PrimitiveType, ShapeUtil
        >>> ShapeUtil.MakeShape(PrimitiveType.F32, [2, 3])
        f32[2,3]
        """
        sizes = integers("MakeShape: dimensions", dimensions)
        if any(size < 0 for size in sizes):
            raise ShapeError(f"MakeShape: dimensions must not be negative, but are {list(sizes)}.")
        dynamic = tuple(map(bool, dynamic_dimensions or ()))
        if dynamic and len(dynamic) != len(sizes):
            raise ShapeError(
                f"MakeShape: dynamic_dimensions must say of each of the {len(sizes)} dimensions whether it is, but is "
                f"{list(dynamic)}."
            )
        return Shape(PrimitiveType.from_dtype(element_type), sizes).with_dynamic(dynamic)

    @staticmethod
    def MakeShapeWithLayout(element_type: Any, dimensions: Sequence[int], layout: Layout | Sequence[int]) -> Shape:
        """The shape of an array in a layout, or in that with this `minor_to_major`.

        Args:
            element_type: an element type.
            dimensions: the sizes.
            layout: a `Layout`, or all dimension numbers, that of the fastest varying index first.

        Returns:
            A `Shape`.

        Raises:
            ArgumentError: sizes or dimension numbers that are no integers.
            DTypeError: what is no element type.
            ShapeError: a negative size, or a layout that does not fit the dimensions.

        >>> from tinyxla.xla import PrimitiveType, ShapeUtil
        >>> ShapeUtil.MakeShapeWithLayout(PrimitiveType.F32, [2, 3], [0, 1]).text()
        'f32[2,3]{0,1}'
        """
        shape = ShapeUtil.MakeShape(element_type, dimensions)
        chosen = layout if isinstance(layout, Layout) else LayoutUtil.MakeLayout(layout)
        return LayoutUtil.WithLayout(shape, chosen)

    MakeShapeWithDenseLayout = MakeShapeWithLayout

    @staticmethod
    def MakeScalarShape(element_type: Any) -> Shape:
        """The shape of a scalar.

        Args:
            element_type: an element type.

        Returns:
            A `Shape` without dimensions.

        Raises:
            DTypeError: what is no element type.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.MakeScalarShape(F32)
        f32[]
        """
        return ShapeUtil.MakeShape(element_type, ())

    @staticmethod
    def MakeTupleShape(shapes: Sequence[AnyShape]) -> TupleShape:
        """The shape of a tuple.

        Args:
            shapes: the shapes of the elements.

        Returns:
            A `TupleShape`.

        Raises:
            ArgumentError: what is no list of shapes.

        >>> from tinyxla.xla import PrimitiveType, ShapeUtil
        >>> ShapeUtil.MakeTupleShape([ShapeUtil.MakeShape(PrimitiveType.F32, [2]), ShapeUtil.MakeTokenShape()])
        (f32[2], token[])
        """
        if not isinstance(shapes, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"MakeTupleShape: shapes must be a list of shapes, but is {shapes!r}.")
        for x in shapes:
            if not isinstance(x, (Shape, TupleShape)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(f"MakeTupleShape: shapes must be a list of shapes, but has {x!r}.")
        return TupleShape(tuple(shapes))

    @staticmethod
    def MakeTokenShape() -> Shape:
        """The shape of a token.

        Returns:
            A `Shape`.

        >>> from tinyxla.xla import ShapeUtil
        >>> ShapeUtil.MakeTokenShape()
        token[]
        """
        return Shape(TOKEN)

    @staticmethod
    def IsTuple(shape: AnyShape) -> bool:
        """Whether a shape is that of a tuple.

        Args:
            shape: a shape.

        Returns:
            True or False.

        >>> from tinyxla.xla import ShapeUtil
        >>> ShapeUtil.IsTuple(ShapeUtil.MakeTupleShape([]))
        True
        """
        return isinstance(shape, TupleShape)

    @staticmethod
    def IsArray(shape: AnyShape) -> bool:
        """Whether a shape is that of an array: neither of a tuple nor of a token.

        Args:
            shape: a shape.

        Returns:
            True or False.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.IsArray(ShapeUtil.MakeScalarShape(F32)), ShapeUtil.IsArray(ShapeUtil.MakeTokenShape())
        (True, False)
        """
        return isinstance(shape, Shape) and shape.element_type not in (TOKEN, OPAQUE)

    @staticmethod
    def IsScalar(shape: AnyShape) -> bool:
        """Whether a shape is that of an array without dimensions.

        Args:
            shape: a shape.

        Returns:
            True or False.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.IsScalar(ShapeUtil.MakeShape(F32, [1]))
        False
        """
        return ShapeUtil.IsArray(shape) and isinstance(shape, Shape) and shape.rank == 0

    @staticmethod
    def Rank(shape: Shape) -> int:
        """The number of dimensions.

        Args:
            shape: the shape of an array.

        Returns:
            An integer from 0 on.

        Raises:
            ArgumentError: what is no shape of an array.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.Rank(ShapeUtil.MakeShape(F32, [1, 3, 1]))
        3
        """
        return checked_instance("Rank: shape", shape, Shape).rank

    @staticmethod
    def TrueRank(shape: Shape) -> int:
        """The number of dimensions of size greater than 1.

        Args:
            shape: the shape of an array.

        Returns:
            An integer from 0 on.

        Raises:
            ArgumentError: what is no shape of an array.

        >>> from tinyxla.xla import PrimitiveType, ShapeUtil
        >>> ShapeUtil.TrueRank(ShapeUtil.MakeShape(PrimitiveType.F32, [1, 3, 1, 2]))
        2
        """
        return sum(size > 1 for size in checked_instance("TrueRank: shape", shape, Shape).dimensions)

    @staticmethod
    def ElementsIn(shape: Shape) -> int:
        """The number of elements.

        Args:
            shape: the shape of an array.

        Returns:
            An integer from 0 on.

        Raises:
            ArgumentError: what is no shape of an array.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.ElementsIn(ShapeUtil.MakeShape(F32, [2, 3])), ShapeUtil.ElementsIn(ShapeUtil.MakeScalarShape(F32))
        (6, 1)
        """
        return checked_instance("ElementsIn: shape", shape, Shape).size

    @staticmethod
    def GetDimensionNumber(shape: Shape, dimension_number: int) -> int:
        """A dimension number, which may be counted from the end (-1 is the last), counted from the front.

        Args:
            shape: the shape of an array.
            dimension_number: the number of a dimension.

        Returns:
            An integer from 0 on.

        Raises:
            AxisError: a dimension that the shape does not have.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.GetDimensionNumber(ShapeUtil.MakeShape(F32, [2, 3]), -1)
        1
        """
        rank = checked_instance("GetDimensionNumber: shape", shape, Shape).rank
        return canonical_axis(dimension_number, rank, "GetDimensionNumber")

    @staticmethod
    def GetDimension(shape: Shape, dimension_number: int) -> int:
        """The size of a dimension, which may be counted from the end.

        Args:
            shape: the shape of an array.
            dimension_number: the number of a dimension.

        Returns:
            The size; of a dynamic dimension its bound.

        Raises:
            AxisError: a dimension that the shape does not have.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.GetDimension(ShapeUtil.MakeShape(F32, [2, 3]), -1)
        3
        """
        number = ShapeUtil.GetDimensionNumber(shape, dimension_number)
        return shape.dimensions[number]

    @staticmethod
    def Equal(lhs: AnyShape, rhs: AnyShape) -> bool:
        """Whether two shapes agree, in layout too.

        Args:
            lhs, rhs: shapes.

        Returns:
            True or False.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> rows, columns = (ShapeUtil.MakeShapeWithLayout(F32, [2, 3], order) for order in ([1, 0], [0, 1]))
        >>> ShapeUtil.Equal(rows, columns), ShapeUtil.Equal(rows, ShapeUtil.MakeShape(F32, [2, 3]))
        (False, True)
        """
        return lhs == rhs and lhs.text() == rhs.text()

    @staticmethod
    def Compatible(lhs: AnyShape, rhs: AnyShape) -> bool:
        """Whether two shapes agree but for layouts.

        Args:
            lhs, rhs: shapes.

        Returns:
            True or False.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> rows, columns = (ShapeUtil.MakeShapeWithLayout(F32, [2, 3], order) for order in ([1, 0], [0, 1]))
        >>> ShapeUtil.Compatible(rows, columns)
        True
        """
        return lhs == rhs

    @staticmethod
    def HumanString(shape: AnyShape) -> str:
        """The shape as text, without layouts.

        Args:
            shape: a shape.

        Returns:
            The text.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.HumanString(ShapeUtil.MakeShape(F32, [2, 3], dynamic_dimensions=[True, False]))
        'f32[<=2,3]'
        """
        return str(shape)

    @staticmethod
    def HumanStringWithLayout(shape: AnyShape) -> str:
        """The shape as text, with layouts.

        Args:
            shape: a shape.

        Returns:
            The text.

        >>> from tinyxla.xla import F32, ShapeUtil
        >>> ShapeUtil.HumanStringWithLayout(ShapeUtil.MakeShape(F32, [2, 3]))
        'f32[2,3]{1,0}'
        """
        return shape.text()
