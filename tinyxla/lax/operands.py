"""What the functions do with their operands. Unlike `tinyxla.numpy` they do not promote: element types have to be
equal, and so do ranks, but a scalar goes with any shape, a size of 1 stretches, and a Python number takes the others'
type."""

from __future__ import annotations

from typing import Any

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.numpy.arguments import ArrayLike, broadcasted, cast, operand, paired, type_of
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import promote_types

DTypeLike = Any


def of_one_type(what: str, *values: ArrayLike) -> list[Array]:
    """The values as arrays of the one element type that they have, all of them weakly typed or none."""
    given = [operand(x, what) for x in values]
    fixed = {x.dtype for x in given if isinstance(x, Array) and not x.weak_type}
    types = [type_of(x) for x in given]
    common, weak = promote_types(*types)
    if len(fixed) > 1 or (common not in fixed if fixed else len({dtype for dtype, _ in types}) > 1):
        raise DTypeError(
            f"{what}: the operands have different element types, {described(given)}; convert them with "
            f"lax.convert_element_type, or use the function of tinyxla.numpy, which promotes."
        )
    return [cast(x, common, weak).with_weak_type(weak) for x in given]


def described(values: list[Any]) -> str:
    """The shapes of arrays, and numbers as they are."""
    return " and ".join(str(Shape.of(x)) if isinstance(x, Array) else repr(x) for x in values)


def of_one_shape(what: str, arrays: list[Array], is_elementwise: bool = False) -> list[Array]:
    """Arrays of one shape: scalars and dimensions of size 1 are spread. Those for an element-wise op are so where its
    trace wants that."""
    first = arrays[0].shape
    if all(x.shape == first for x in arrays):
        return arrays
    ranks = {x.ndim for x in arrays if x.ndim}
    if len(ranks) > 1:
        raise ShapeError(
            f"{what}: the operands have different ranks, {described(list(arrays))}; give them the same number of "
            "dimensions (lax.broadcast_in_dim, lax.expand_dims), or use the function of tinyxla.numpy."
        )
    return paired(what, arrays) if is_elementwise else broadcasted(what, arrays)


def matched(what: str, *values: ArrayLike) -> list[Array]:
    """The values as arrays of one element type, and one shape as far as an element-wise op wants that."""
    return of_one_shape(what, of_one_type(what, *values), True)
