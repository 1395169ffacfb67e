"""Computations over windows that move over arrays, and cumulative functions along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.lax.operands import ArrayLike, described
from tinyxla.lax.padding import pads_of
from tinyxla.lax.reductions import fold_operands
from tinyxla.numpy.arguments import array_of, cast, flag_of, integers_of, named
from tinyxla.ops import movement, windows
from tinyxla.shapes import element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.window import Window, WindowDimension, dilated
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.util.tracebacks import boundary

Ints = Sequence[int]


def _window(
    what: str,
    sizes: Sequence[int],
    window_dimensions: Ints,
    window_strides: Ints | None,
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Ints | None,
    window_dilation: Ints | None,
) -> Window:
    def given(name: str, values: Ints | None) -> list[int]:
        entries = [1] * len(sizes) if values is None else list(integers_of(what, name, values))
        if len(entries) != len(sizes):
            raise ArgumentError(f"{what}: {name} must have {len(sizes)} entries, one a dimension, but got {values}.")
        return entries

    extents, strides = given("window_dimensions", window_dimensions), given("window_strides", window_strides)
    base, holes = given("base_dilation", base_dilation), given("window_dilation", window_dilation)
    reach = [dilated(n, k) for n, k in zip(extents, holes, strict=True)]
    pads = pads_of(what, padding, sizes, reach, [max(1, s) for s in strides])
    rows = zip(extents, strides, pads, holes, base, strict=True)
    return tuple(WindowDimension(size, stride, low, high, w, b) for size, stride, (low, high), w, b in rows)


@boundary
def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Ints,
    window_strides: Ints | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> Any:
    """Each window of arrays folded together by an associative function.

    Args:
        operand: a pytree of arrays of one shape.
        init_value: of the same structure, the scalars to begin with.
        computation: from two such trees of scalars to one. It may not use traced values from outside.
        window_dimensions: the size of the window in each dimension.
        window_strides: how far apart windows are; 1 if None.
        padding: `"VALID"`, `"SAME"`, `"SAME_LOWER"`, or a (low, high) pair for each dimension, also of negative
            numbers. What is added takes no part in the results.
        base_dilation: the distance at which elements of the arrays are put; 1 if None.
        window_dilation: the distance of the elements of a window; 1 if None.

    Returns:
        A tree of arrays that have an element for each place of the window.

    Raises:
        ArgumentError: for arguments of the wrong length; AttributeValueError for sizes, strides or dilations below 1.

    Source: section "ReduceWindow" of the XLA documents.

    >>> import numpy as np
    >>> from tinyxla.lax import reduce_window
    >>> from tinyxla import lax
    >>> reduce_window(np.array([10000, 1000, 100, 10, 1]), 2**31 - 1, lax.min, (3,), (2,), "SAME")
    Array([1000,   10,    1], dtype=int32)
    """
    what = "lax.reduce_window"
    arrays, initial, to_apply, treedef = fold_operands(what, operand, init_value, computation)
    window = _window(what, arrays[0].shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    results = windows.reduce_window(*arrays, *initial, window=window, to_apply=to_apply)
    return pytrees.unflatten(treedef, results if isinstance(results, tuple) else [results])


def reduce_window_shape_tuple(
    operand_shape: Ints,
    window_dimensions: Ints,
    window_strides: Ints,
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> tuple[int, ...]:
    """How many places a window has in each dimension; arguments as for `reduce_window`.

    Args:
        operand_shape: the sizes of the operand.
        window_dimensions, window_strides: the sizes and the steps of the window.
        padding: a name, or (low, high) for each dimension.
        base_dilation, window_dilation: distances between elements of the operand and of the window.

    Returns:
        The number of positions of the window in each dimension.

    Raises:
        ArgumentError: what is no shape.

    >>> from tinyxla.lax import reduce_window_shape_tuple
    >>> reduce_window_shape_tuple((4, 6), (2, 3), (2, 3), "VALID")
    (2, 2)
    """
    what = "lax.reduce_window_shape_tuple"
    shape = integers_of(what, "operand_shape", operand_shape)
    window = _window(what, shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    return tuple(w.positions(n) for w, n in zip(window, shape, strict=True))


# --- cumulative functions ---------------------------------------------------------------------------------------------


def _cumulative(name: str, apply: Callable[[Any, int, bool], Any], text: str, example: str) -> Callable[..., Array]:
    what = f"lax.{name}"

    def function(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        x = array_of(operand, what)
        if element_type(x.dtype).kind == "pred":
            raise DTypeError(f"{what}: the operand must have a number type, but got {described([x])}; convert it.")
        d = canonical_axis(axis, x.ndim, what)
        wide = cast(x, np.dtype(np.float32)) if windows.is_narrow(x.dtype) else x
        return cast(apply(wide, d, flag_of(f"lax.{name}", "reverse", reverse)), x.dtype).with_weak_type(x.weak_type)

    whole = f"""{text} of all elements up to each, along an axis; of all from each on if `reverse`.

    Args:
        operand: an array of numbers.
        axis: the axis along which elements are accumulated; negative ones count from the end.
        reverse: whether to accumulate from the end.

    Returns:
        An array of the operand's shape and type. Floats of less than 32 bits are computed with in float32.

    Raises:
        AxisError: an axis that the array does not have.
        DTypeError: an array of booleans.

    >>> import numpy as np
    >>> from tinyxla.lax import {name}
    >>> {example}
    """
    return named(function, name, whole)


def _monoid(op: str) -> Callable[[Any, int, bool], Any]:
    return lambda x, axis, reverse: windows.cumulative_monoid(x, axis, op, reverse)


def _logsumexp(x: Any, axis: int, reverse: bool) -> Any:
    if reverse:  # beginnings are folded in one go by any computation
        forward = _logsumexp(movement.reverse(x, dimensions=(axis,)), axis, False)
        return movement.reverse(forward, dimensions=(axis,))
    _, (start,), to_apply, _ = fold_operands("lax.cumlogsumexp", x, -np.inf, tnp.logaddexp)
    return windows.cumulative(x, axis, to_apply, start, reverse)


def _numbers(name: str, result: str) -> str:
    return f"{name}(np.array([1, 3, 2]))\n    Array({result}, dtype=int32)"


cumsum = _cumulative("cumsum", _monoid("add"), "The sum", _numbers("cumsum", "[1, 4, 6]"))
cumprod = _cumulative("cumprod", _monoid("multiply"), "The product", _numbers("cumprod", "[1, 3, 6]"))
cummax = _cumulative("cummax", _monoid("maximum"), "The largest", _numbers("cummax", "[1, 3, 3]"))
cummin = _cumulative("cummin", _monoid("minimum"), "The smallest", _numbers("cummin", "[1, 1, 1]"))
cumlogsumexp = _cumulative(
    "cumlogsumexp",
    _logsumexp,
    "The logarithm of the sum of the exponentials",
    "np.round(np.exp(cumlogsumexp(np.zeros(3, np.float32))))\n    Array([1., 2., 3.], dtype=float32)",
)
