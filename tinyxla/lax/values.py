"""Functions of `jax.lax` that make, stack and name values, or speak of shapes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import ShapeDtypeStruct, eval_shape
from tinyxla.errors import ArgumentError, DTypeError, PlatformError, PlatformsDifferError, ShapeError
from tinyxla.lax.convolution import conv_general_dilated, conv_transpose
from tinyxla.lax.loops.control_flow import switch
from tinyxla.lax.movement import full
from tinyxla.lax.operands import ArrayLike, DTypeLike, of_one_shape, of_one_type
from tinyxla.numpy.arguments import array_of, integers_of, python_dtype, several_of, shape_of
from tinyxla.ops import elementwise
from tinyxla.partitioning.placement import check_not_manual, check_stays, placed, placed_result
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import config
from tinyxla.tracing.promotion import as_array, default_dtype
from tinyxla.tracing.signatures import Tree

Sizes = Sequence[int]


def empty(shape: int | Sizes, dtype: DTypeLike, *, out_sharding: Any = None) -> Array:
    """An array whose elements are not specified (here, zeros).

    Args:
        shape: the sizes of the result.
        dtype: its element type.
        out_sharding: its sharding, with explicit mesh axes.

    Returns:
        An array of this shape and element type.

    Raises:
        DTypeError: what is no element type.

    >>> from tinyxla.lax import empty
    >>> empty((2,), "int32")
    Array([0, 0], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result("lax.empty: out_sharding", lambda: empty(shape, dtype), out_sharding)
    return full(shape, 0, dtype)


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Arrays of one shape and type along a new axis.

    Args:
        operands: arrays of one shape and type.
        axis: the position of the new axis.

    Returns:
        An array with one more dimension, the axis, whose size is the number of operands.

    Raises:
        ShapeError: different shapes.
        DTypeError: different element types.

    >>> import numpy as np
    >>> from tinyxla.lax import stack
    >>> stack([np.zeros(2), np.ones(2)]).shape
    (2, 2)
    """
    return tnp.stack(of_one_type("lax.stack", *several_of("lax.stack", "operands", operands)), axis)


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The slices of an array along an axis, without it.

    Args:
        x: an array.
        axis: the axis.

    Returns:
        As many arrays as the size of the axis, each with one dimension less.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.unstack(np.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    return tuple(tnp.unstack(array_of(x, "lax.unstack"), axis=axis))


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """The array several times along each of its dimensions.

    Args:
        operand: an array.
        reps: how often the array is repeated, for each dimension.

    Returns:
        An array of the operand's type.

    Raises:
        ShapeError: another number of counts than dimensions. (`numpy.tile` takes fewer, or more.)

    >>> import numpy as np
    >>> from tinyxla.lax import tile
    >>> tile(np.arange(2), [2])
    Array([0, 1, 0, 1], dtype=int32)
    """
    x = array_of(operand, "lax.tile")
    counts = integers_of("lax.tile", "reps", reps)
    if len(counts) != x.ndim:
        raise ShapeError(f"lax.tile: reps must have one number for each of {x.ndim} dimensions, but is {counts}.")
    return tnp.tile(x, counts)


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """The first array, broadcast to the shape of the second.

    Args:
        arr: an array.
        like_arr: an array that has the shape of the result.

    Returns:
        An array of the type of the first one.

    Raises:
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.broadcast_like(np.arange(2), np.ones((2, 2)))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    return tnp.broadcast_to(array_of(arr, "lax.broadcast_like"), array_of(like_arr, "lax.broadcast_like").shape)


def dtype(x: Any) -> np.dtype[Any]:
    """The element type of a value, or of a type.

    Args:
        x: an array, a number, or an element type.

    Returns:
        A NumPy dtype.

    Raises:
        DTypeError: what is neither a value nor an element type.

    >>> from tinyxla.lax import dtype
    >>> dtype(1.0), dtype("int8")
    (dtype('float32'), dtype('int8'))
    """
    if isinstance(x, (type, str, np.dtype)):
        return default_dtype(python_dtype(x))
    found = getattr(x, "dtype", None)
    return default_dtype(python_dtype(found)) if found is not None else as_array(x, "lax.dtype").dtype


def stage(x: ArrayLike, /) -> Array:
    """The value as an array.

    Args:
        x: an array, or a number.

    Returns:
        An array.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla import lax
    >>> lax.stage(2.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return array_of(x, "lax.stage")


def shape_as_value(shape: Sizes) -> Array:
    """A shape as an array of integers.

    Args:
        shape: a tuple of sizes.

    Returns:
        A vector of int32.

    Raises:
        ArgumentError: a size that is no integer.

    >>> from tinyxla import lax
    >>> lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    return tnp.asarray(shape_of("lax.shape_as_value", shape), np.int32)


def with_sharding_constraint(x: Tree, shardings: Any) -> Tree:
    """The value, sharded so: inside of `jit` a constraint for the compiler, outside an array that is placed so.

    Args:
        x: a pytree of arrays.
        shardings: a pytree of shardings, or of `PartitionSpec`s for the current mesh, that may stop earlier than x. A
            dimension that is `PartitionSpec.UNCONSTRAINED` is left open; inside of `jit` one that has no equal parts
            stays whole.

    Returns:
        A pytree of arrays of the shapes of x.

    Raises:
        ArgumentError: a device that there is not, or no sharding.
        ShapeError: a sharding that does not fit an array.
        ShardingTypeError: a sharding along an axis that a function of parts around is about.

    Example:
        >>> import tinyxla as tx
        >>> mesh = tx.make_mesh((1,), ("x",))
        >>> sharding = tx.sharding.NamedSharding(mesh, tx.sharding.PartitionSpec("x"))
        >>> tx.lax.with_sharding_constraint(tx.numpy.arange(2), sharding).sharding.spec
        PartitionSpec('x')
    """
    if shardings is None:
        raise ArgumentError("lax.with_sharding_constraint: there must be a sharding, but got None; leave the call out.")
    check_stays("lax.with_sharding_constraint", x, shardings)
    check_not_manual("lax.with_sharding_constraint", shardings)
    return placed("lax.with_sharding_constraint", x, shardings, only_even=False)


class _Lowering(threading.local):
    """Of the program that is traced for several platforms: a traced number, that of its platform."""

    index: Any = None


_lowering = _Lowering()


@contextlib.contextmanager
def platform_index(index: Any) -> Generator[None]:
    """Where a program is traced that takes the number of its platform among `config.lowering_platforms`."""
    outer, _lowering.index = _lowering.index, index
    try:
        yield
    finally:
        _lowering.index = outer


def platform_dependent(*args: Any, default: Callable[..., Any] | None = None, **per_platform: Any) -> Any:
    """What the function for the platform "cpu" gives, or the default; in a function that `export` traces, that for the
    platforms of the program.

    Args:
        *args: the arguments of the functions.
        default: the function for platforms that are not named.
        **per_platform: a function for each platform.

    Returns:
        The result of the function.

    Raises:
        PlatformError: no function for the platform, and no default.

    >>> from tinyxla.lax import platform_dependent
    >>> platform_dependent(1.0, cpu=lambda x: x + 1, default=lambda x: x)
    2.0
    """
    platforms = config.lowering_platforms
    chosen = {platform: per_platform.get(platform, default) for platform in platforms}
    for platform, function in chosen.items():
        if function is None:
            raise PlatformError(
                f"lax.platform_dependent: there is neither a default nor a function for {platform!r}, but for "
                f"{[*per_platform]}."
            )
    functions = cast(Sequence[Callable[..., Any]], [*dict.fromkeys(chosen.values())])
    if len(functions) == 1:
        return functions[0](*args)
    if _lowering.index is None:
        raise PlatformsDifferError(
            f"lax.platform_dependent: there are different functions for {' and '.join(platforms)}, which a program of "
            "several devices cannot have; export it for each platform by itself."
        )
    numbers = tnp.array([functions.index(chosen[platform]) for platform in platforms])
    return switch(numbers[_lowering.index], functions, *args)


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The upper half of the bits of the product of integers of 8 bits or more.

    Args:
        x, y: integers of one shape and type.

    Returns:
        An array of the shape and type of x.

    Raises:
        DTypeError: what are no such integers, or different types.
        ShapeError: different shapes.

    >>> import numpy as np
    >>> from tinyxla.lax import mulhi
    >>> mulhi(np.int32(1 << 30), np.int32(8))
    Array(2, dtype=int32)
    """
    a, b = of_one_shape("lax.mulhi", of_one_type("lax.mulhi", x, y))
    kind = element_type(a.dtype)
    if not kind.is_integer or kind.bits < 8:
        raise DTypeError(f"lax.mulhi: not defined for {a.dtype.name}; the operands must be integers of 8 bits or more.")
    return elementwise.multiply_high(a, b)


# --- shapes of convolutions -------------------------------------------------------------------------------------------


def _shape_of(function: Callable[..., Array], *shapes: Sizes) -> tuple[int, ...]:
    return eval_shape(
        function, *(ShapeDtypeStruct(shape_of("a shape of a convolution", s), np.float32) for s in shapes)
    ).shape


def conv_general_shape_tuple(
    lhs_shape: Sizes, rhs_shape: Sizes, window_strides: Sizes, padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of what `conv_general_dilated` gives for operands of these shapes.

    Args:
        lhs_shape, rhs_shape: the shapes of input and kernel.
        window_strides: the steps of the window.
        padding: a name, or (low, high) for each spatial dimension.
        dimension_numbers: words of one letter per dimension, for input, kernel and result.

    Returns:
        A shape.

    Raises:
        ArgumentError: a size that is no integer.

    >>> from tinyxla.lax import conv_general_shape_tuple
    >>> conv_general_shape_tuple((1, 3, 8, 8), (4, 3, 2, 2), (2, 2), "SAME", ("NCHW", "OIHW", "NCHW"))
    (1, 4, 4, 4)
    """
    return _shape_of(
        lambda x, k: conv_general_dilated(x, k, window_strides, padding, dimension_numbers=dimension_numbers),
        lhs_shape,
        rhs_shape,
    )


def conv_shape_tuple(
    lhs_shape: Sizes, rhs_shape: Sizes, strides: Sizes, pads: Any, batch_group_count: int = 1
) -> tuple[int, ...]:
    """The shape of what a convolution gives for operands of these shapes, batch and feature first.

    Args:
        lhs_shape, rhs_shape: the shapes of input and kernel.
        strides: the steps of the window.
        pads: a name, or (low, high) for each spatial dimension.
        batch_group_count: the number of groups of the batch.

    Returns:
        A shape.

    Raises:
        ShapeError: operands whose sizes do not fit.

    >>> from tinyxla import lax
    >>> lax.conv_shape_tuple((1, 3, 8, 8), (4, 3, 3, 3), (1, 1), "VALID")
    (1, 4, 6, 6)
    """
    return _shape_of(
        lambda x, k: conv_general_dilated(x, k, strides, pads, batch_group_count=batch_group_count),
        lhs_shape,
        rhs_shape,
    )


def conv_transpose_shape_tuple(
    lhs_shape: Sizes, rhs_shape: Sizes, window_strides: Sizes, padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of what `conv_transpose` gives for operands of these shapes.

    Args:
        lhs_shape, rhs_shape: the shapes of input and kernel.
        window_strides: by how much each spatial dimension grows.
        padding: a name, or (low, high) for each spatial dimension.
        dimension_numbers: words of one letter per dimension, for input, kernel and result.

    Returns:
        A shape.

    Raises:
        ArgumentError: a size that is no integer.

    >>> from tinyxla import lax
    >>> lax.conv_transpose_shape_tuple((1, 4, 4, 3), (2, 2, 3, 5), (2, 2), "VALID", ("NHWC", "HWIO", "NHWC"))
    (1, 8, 8, 5)
    """
    return _shape_of(
        lambda x, k: conv_transpose(x, k, window_strides, padding, dimension_numbers=dimension_numbers),
        lhs_shape,
        rhs_shape,
    )


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The transpositions that bring operands and result, named by letters, to the order batch, feature, spatial ones.

    Args:
        dimension_numbers: words of one letter per dimension, for input, kernel and result.

    Returns:
        A permutation for each of the three.

    Raises:
        ArgumentError: words that do not have each letter once.

    >>> from tinyxla.lax import conv_general_permutations
    >>> conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    what = "lax.conv_general_permutations"
    dimension_numbers = several_of(what, "dimension_numbers", dimension_numbers, 3)
    if not all(isinstance(names, str) for names in dimension_numbers):
        raise ArgumentError(f"{what}: dimension_numbers must be three words of letters, but got {dimension_numbers}.")
    spatial = [letter for letter in dimension_numbers[1] if letter not in "OI"]
    orders = [("N", "C", *spatial), ("O", "I", *spatial), ("N", "C", *spatial)]
    for order, names in zip(orders, dimension_numbers, strict=True):
        if sorted(order) != sorted(names):
            raise ArgumentError(
                f"lax.conv_general_permutations: {names!r} must have each of the letters {''.join(order)} once."
            )
    return tuple(tuple(map(names.index, order)) for order, names in zip(orders, dimension_numbers, strict=True))
