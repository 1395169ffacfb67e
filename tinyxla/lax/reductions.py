"""Reductions: arrays folded over some of their dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import ArgumentError, DTypeError, ShapeError, TracerError
from tinyxla.hlo import Computation
from tinyxla.lax.operands import ArrayLike, DTypeLike, described
from tinyxla.numpy.arguments import array_of, cast, constant, function_of, named, operand, python_dtype, several_of
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.partitioning.placement import placed_result
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import GraphTrace
from tinyxla.tracing.promotion import as_array
from tinyxla.util.tracebacks import boundary

Axes = Sequence[int]


def _axes(what: str, axes: Axes, rank: int) -> tuple[int, ...]:
    return tuple(sorted(canonical_axis(a, rank, what) for a in several_of(what, "axes", axes)))


# --- by any computation -----------------------------------------------------------------------------------------------


@boundary
def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Axes,
    out_sharding: Any = None,
) -> Any:
    """Arrays folded together over dimensions by an associative function.

    Args:
        operands: a pytree of arrays of one shape.
        init_values: of the same structure, the scalars to begin with: neutral elements of the computation.
        computation: from two such trees of scalars to one. It may not use traced values from outside.
        dimensions: those that go.
        out_sharding: how the result is sharded, with explicit mesh axes.

    Returns:
        A tree of arrays with the other dimensions.

    Raises:
        AxisError: an axis that the array does not have.
        ShapeError: an initial value that is not a scalar of the element type.

    >>> import numpy as np
    >>> from tinyxla.lax import reduce
    >>> reduce(np.array([[1, 2], [3, 4]]), 1, lambda x, y: x * y, (0,))
    Array([3, 8], dtype=int32)
    """
    what = "lax.reduce"
    if out_sharding is not None:
        return placed_result(
            f"{what}: out_sharding", lambda: reduce(operands, init_values, computation, dimensions), out_sharding
        )
    arrays, initial, to_apply, treedef = fold_operands(what, operands, init_values, computation)
    axes = _axes(what, dimensions, arrays[0].ndim)
    results = reduction.reduce(*arrays, *initial, dimensions=axes, to_apply=to_apply)
    return pytrees.unflatten(treedef, results if isinstance(results, tuple) else [results])


def fold_operands(
    what: str, operands: Any, init_values: Any, computation: Callable[[Any, Any], Any]
) -> tuple[list[Array], list[Array], Computation, pytrees.TreeDef]:
    """The arrays of a tree to be folded, their initial values, the computation that folds them, and the structure."""
    leaves, treedef = pytrees.flatten(operands)
    starts, start_treedef = pytrees.flatten(init_values)
    if treedef != start_treedef:
        raise ArgumentError(f"{what}: operands and init_values differ in structure, {treedef} and {start_treedef}.")
    if not leaves:
        raise ArgumentError(f"{what} takes at least one array, but {operands!r} has none.")
    arrays = [array_of(x, what) for x in leaves]
    initial = [_start(what, start, x) for start, x in zip(starts, arrays, strict=True)]
    scalars = [Shape(element_type(x.dtype)) for x in arrays]
    return arrays, initial, scalar_function(what, computation, scalars, treedef), treedef


def _start(what: str, start: Any, x: Array) -> Array:
    value = operand(start, what)
    if isinstance(value, Array) and value.dtype != x.dtype and not value.weak_type:
        raise DTypeError(f"{what}: the initial value for {described([x])} has another type, {described([value])}.")
    return cast(value, x.dtype)


def scalar_function(
    what: str, function: Callable[[Any, Any], Any], scalars: list[Shape], treedef: pytrees.TreeDef
) -> Computation:
    """The computation of a function of two trees of scalars; of one result, not a tuple, if the tree has one leaf."""
    function_of(what, "the computation", function)
    graph = GraphTrace(f"the computation of {what}")

    def record() -> Computation:
        parameters = [graph.parameter(shape) for shape in (*scalars, *scalars)]
        count = len(scalars)
        result = function(*(pytrees.unflatten(treedef, half) for half in (parameters[:count], parameters[count:])))
        leaves, found = pytrees.flatten(result)
        if found != treedef:
            raise ArgumentError(
                f"{what}: the computation gives the structure {found}, but its operands have {treedef}."
            )
        outputs = [cast(as_array(x, what), s.dtype) if _is_weak(x) else x for x, s in zip(leaves, scalars, strict=True)]
        for x, scalar in zip(outputs, scalars, strict=True):
            if Shape.of(x) != scalar:
                raise DTypeError(f"{what}: the computation gives {Shape.of(x)} where its operand is {scalar}.")
        return graph.finish(getattr(function, "__name__", "computation").strip("<>"), outputs, as_tuple=count > 1)

    made = graph.run(record)
    if graph.captured:
        outer = ", ".join(str(Shape.of(tracer)) for tracer in graph.captured.values())
        raise TracerError(
            f"{what}: the computation uses traced values of the function around it, {outer}; hand them in as operands."
        )
    return made


def _is_weak(x: Any) -> bool:
    return not isinstance(x, Array) or x.weak_type


# --- by the usual ones ------------------------------------------------------------------------------------------------


def _reducer(
    name: str, apply: Callable[..., Any], text: str, example: str, bits: bool = False
) -> Callable[[ArrayLike, Axes], Array]:
    what = f"lax.{name}"

    def function(operand: ArrayLike, axes: Axes) -> Array:
        x = array_of(operand, what)
        if bits and element_type(x.dtype).is_inexact:
            raise DTypeError(f"{what}: takes integers and booleans, but got {described([x])}; compare it, or cast it.")
        return apply(x, _axes(what, axes, x.ndim))

    raises = "DTypeError: floating-point or complex numbers." if bits else "ShapeError: one that is there twice."
    whole = f"""{text} over the given dimensions, which the result does not have.

    Args:
        operand: an array.
        axes: the dimensions that are reduced.

    Returns:
        An array of the operand's type without these dimensions.

    Raises:
        AxisError: a dimension that the array does not have.
        {raises}

    >>> import numpy as np
    >>> from tinyxla.lax import {name}
    >>> {name}(np.array([[1, 2], [3, 4]]), (0,))
    Array({example}, dtype=int32)
    """
    return named(function, name, whole)


_sum = _reducer("reduce_sum", reduction.reduce_sum, "The sum", "[4, 6]")


def reduce_sum(operand: ArrayLike, axes: Axes, *, out_sharding: Any = None) -> Array:
    """The sum over the given dimensions, which the result does not have.

    Args:
        operand: an array.
        axes: the dimensions that are reduced.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of the operand's type without these dimensions.

    Raises:
        AxisError: a dimension that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.lax import reduce_sum
    >>> reduce_sum(np.array([[1, 2], [3, 4]]), (0,))
    Array([4, 6], dtype=int32)
    """
    if out_sharding is not None:
        return placed_result("lax.reduce_sum: out_sharding", lambda: reduce_sum(operand, axes), out_sharding)
    return _sum(operand, axes)


reduce_prod = _reducer("reduce_prod", reduction.reduce_prod, "The product", "[3, 8]")
reduce_max = _reducer("reduce_max", reduction.reduce_max, "The largest element", "[3, 4]")
reduce_min = _reducer("reduce_min", reduction.reduce_min, "The smallest element", "[1, 2]")
reduce_and = _reducer("reduce_and", reduction.reduce_and, "All elements, by `bitwise_and`,", "[1, 0]", bits=True)
reduce_or = _reducer("reduce_or", reduction.reduce_or, "All elements, by `bitwise_or`,", "[3, 6]", bits=True)
reduce_xor = _reducer("reduce_xor", reduction.reduce_xor, "All elements, by `bitwise_xor`,", "[2, 6]", bits=True)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """The index of the largest element along a dimension: the first of equal ones, and of NaNs.

    Args:
        operand: an array of real numbers.
        axis: the dimension, which the result does not have.
        index_dtype: the integer type of the result.

    Returns:
        Indices, of the operand's shape without the axis.

    Raises:
        ShapeError: the dimension is empty.
        DTypeError: an `index_dtype` of no integers.

    >>> import numpy as np
    >>> from tinyxla.lax import argmax
    >>> argmax(np.array([1, 3, 3]), 0, int)
    Array(1, dtype=int32)
    """
    return _argument("lax.argmax", operand, axis, index_dtype, "GT", "maximum")


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """The index of the smallest element along a dimension: the first of equal ones, and of NaNs.

    Args:
        operand: an array of real numbers.
        axis: the dimension, which the result does not have.
        index_dtype: the integer type of the result.

    Returns:
        Indices, of the operand's shape without the axis.

    Raises:
        ShapeError: the dimension is empty.
        DTypeError: an `index_dtype` of no integers.

    >>> import numpy as np
    >>> from tinyxla.lax import argmin
    >>> argmin(np.array([3, 1, 1]), 0, int)
    Array(1, dtype=int32)
    """
    return _argument("lax.argmin", operand, axis, index_dtype, "LT", "minimum")


def _argument(what: str, operand: ArrayLike, axis: int, index_dtype: DTypeLike, direction: str, monoid: str) -> Array:
    x: Any = array_of(operand, what)
    d = canonical_axis(axis, x.ndim, what)
    if not x.shape[d]:
        raise ShapeError(f"{what}: dimension {d} of {described([x])} is empty, so no element is first.")
    dtype = python_dtype(index_dtype)
    if not element_type(dtype).is_integer:
        raise DTypeError(f"{what}: index_dtype is an integer type, but got {dtype}.")
    if element_type(x.dtype).kind == "pred":
        x = elementwise.convert(x, new_element_type=element_type(np.uint8))
    index = movement.iota(shape=Shape(element_type(dtype), x.shape), iota_dimension=d)
    start = constant(reduction.identity_element(monoid, x.dtype), x.dtype)
    to_apply = reduction.argument_computation(direction, x.dtype, dtype)
    return reduction.reduce(x, index, start, constant(0, dtype), dimensions=(d,), to_apply=to_apply)[1]
