"""Sorting, the largest elements, and scans along a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import check_callable
from tinyxla.errors import ArgumentError, ResultTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.lax.operands import ArrayLike, described
from tinyxla.numpy.arguments import array_of, integer_of, with_flags
from tinyxla.ops import movement, reduction, window_doubling, windows
from tinyxla.ops.sorting import order_computation, sort as sort_op, topk
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.shapes.symbolic import has_symbolic
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import trace
from tinyxla.tracing.signatures import Tree
from tinyxla.util.tracebacks import boundary

# --- sorting ----------------------------------------------------------------------------------------------------------


@with_flags
def sort(operand: Tree, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Tree:
    """An array, or a sequence of arrays of one shape, in ascending order along a dimension; NaN comes last.

    Args:
        operand: an array, or a sequence of arrays: all are put in the order of the first ones.
        dimension: along which.
        is_stable: equal elements stay in order (they always do here).
        num_keys: by how many of the arrays to sort; a later one decides where the earlier ones are equal.

    Returns:
        The sorted array, or a tuple of them.

    Raises:
        ShapeError: arrays of different shapes.
        AxisError: a dimension that the arrays do not have.

    >>> import numpy as np
    >>> from tinyxla.lax import sort
    >>> sort(np.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """
    what = "lax.sort"
    several = isinstance(operand, Sequence)
    arrays = [array_of(x, what) for x in operand] if isinstance(operand, Sequence) else [array_of(operand, what)]
    if not arrays:
        raise ArgumentError(f"{what} takes at least one array, but got none.")
    keys = integer_of(what, "num_keys", num_keys)
    if not 1 <= keys <= len(arrays):
        raise ArgumentError(f"{what}: num_keys must be from 1 to the number of arrays, {len(arrays)}, but got {keys}.")
    d = canonical_axis(dimension, arrays[0].ndim, what)
    comparator = order_computation(tuple(x.dtype for x in arrays), keys)
    result: Any = sort_op(*arrays, dimensions=(d,), to_apply=comparator, is_stable=bool(is_stable))
    sorted_arrays = result if isinstance(result, tuple) else (result,)
    found: Any = tuple(y.with_weak_type(x.weak_type) for x, y in zip(arrays, sorted_arrays, strict=True))
    return found if several else found[0]


@with_flags
def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Keys in ascending order along a dimension, and values in the order of their keys.

    Args:
        keys: an array of real or complex numbers.
        values: an array of the shape of the keys.
        dimension: the dimension along which keys are sorted.
        is_stable: whether equal keys stay in order, which they always do.

    Returns:
        The sorted keys and the values.

    Raises:
        ShapeError: keys and values of different shapes.
        AxisError: a dimension that they do not have.

    >>> import numpy as np
    >>> from tinyxla.lax import sort_key_val
    >>> sort_key_val(np.array([3, 1, 2]), np.array([30, 10, 20]))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    return sort((keys, values), dimension, is_stable)


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis in descending order, and their places there; of equal ones the first comes
    first.

    The order is total: NaN is larger than all numbers (smaller, if its sign is set), and 0 larger than -0.

    Args:
        operand: real, of any shape but a scalar's.
        k: from 0 to the size of the axis.
        axis: along which.

    Returns:
        The elements and their int32 indices, of the operand's shape with k along the axis.

    Raises:
        ShapeError: if k is larger than the axis.
        DTypeError: if the operand is complex.

    Source: section "TopK" of the XLA documents.

    >>> import numpy as np
    >>> from tinyxla.lax import top_k
    >>> top_k(np.array([3, 1, 2]), 2)
    (Array([3, 2], dtype=int32), Array([0, 2], dtype=int32))
    """
    return _top("lax.top_k", operand, k, axis, largest=True)


@with_flags
def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The k largest elements along a dimension and their places, as `top_k` gives them: all are found.

    Args:
        operand: real, of any shape but a scalar's.
        k: from 0 to the size of the dimension.
        reduction_dimension: along which.
        recall_target, reduction_input_size_override, aggregate_to_topk: how much of the result may be missed, which is
            none of it in any case.

    Returns:
        The elements and their int32 indices, of the operand's shape with k along the dimension.

    Raises:
        ShapeError: a k that exceeds the size of the dimension.

    >>> import numpy as np
    >>> from tinyxla.lax import approx_max_k
    >>> approx_max_k(np.array([3.0, 1.0, 2.0]), 1)
    (Array([3.], dtype=float32), Array([0], dtype=int32))
    """
    return _top("lax.approx_max_k", operand, k, reduction_dimension, largest=True)


@with_flags
def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The k smallest elements along a dimension in ascending order and their places; see `approx_max_k`.

    Args:
        operand: real, of any shape but a scalar's.
        k: from 0 to the size of the dimension.
        reduction_dimension: the dimension.
        recall_target, reduction_input_size_override, aggregate_to_topk: accepted for compatibility: all k are found.

    Returns:
        The elements and their int32 indices, of the operand's shape with k along the dimension.

    Raises:
        ShapeError: a k that exceeds the size of the dimension.

    >>> import numpy as np
    >>> from tinyxla.lax import approx_min_k
    >>> approx_min_k(np.array([3.0, 1.0, 2.0]), 1)
    (Array([1.], dtype=float32), Array([1], dtype=int32))
    """
    return _top("lax.approx_min_k", operand, k, reduction_dimension, largest=False)


_MAX_PLACES = 1 << 31  # they are numbered by signed integers of 32 bits


def _top(what: str, operand: ArrayLike, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    x: Any = array_of(operand, what)
    d = canonical_axis(axis, x.ndim, what)
    count = integer_of(what, "k", k)
    if not 0 <= count <= x.shape[d]:
        raise ShapeError(f"{what}: k must be from 0 to the size of axis {d} of {described([x])}, but got {count}.")
    if not has_symbolic(x.shape[d : d + 1]) and x.shape[d] > _MAX_PLACES:
        raise ShapeError(
            f"{what}: axis {d} of {described([x])} has more places than its result, of s32, can name, {_MAX_PLACES}; "
            "take the largest of parts of it."
        )
    found: Any = topk(movement.move_axis(x, d, x.ndim - 1), k=count, largest=largest)
    values, places = (movement.move_axis(part, x.ndim - 1, d) for part in found)
    return values.with_weak_type(x.weak_type), places  # type: ignore[return-value]


# --- scans ------------------------------------------------------------------------------------------------------------


@boundary
@with_flags
def associative_scan(fn: Callable[[Tree, Tree], Any], elems: Tree, reverse: bool = False, axis: int = 0) -> Tree:
    """The folds of all beginnings of a sequence by an associative function, in a logarithmic number of steps.

    Source: G. E. Blelloch, "Prefix sums and their applications", 1990.

    Args:
        fn: from two trees of arrays to one; it is applied to many elements at once, along `axis`.
        elems: a tree of arrays that have the same size along the axis.
        reverse: fold ends of the sequence instead, from the back.
        axis: along which the sequence runs.

    Returns:
        A tree of arrays of the shapes of `elems`.

    Raises:
        ShapeError: arrays of different sizes along the axis.
        ArgumentError: what is no function.

    >>> import numpy as np
    >>> from tinyxla.lax import associative_scan
    >>> associative_scan(lambda x, y: x * y, np.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    what = "lax.associative_scan"
    check_callable(what, fn)
    leaves, treedef = pytrees.flatten(elems)
    if not leaves:
        raise ArgumentError(f"{what} takes at least one array, but {elems!r} has none.")
    arrays: list[Any] = [array_of(x, what) for x in leaves]
    axes = [canonical_axis(axis, x.ndim, what) for x in arrays]
    sizes = {x.shape[d] for x, d in zip(arrays, axes, strict=True)}
    if len(sizes) > 1:
        raise ShapeError(f"{what}: the arrays have different sizes along axis {axis}: {described(arrays)}.")
    d = axes[0] if axis >= 0 else axis

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        found, structure = pytrees.flatten(fn(pytrees.unflatten(treedef, left), pytrees.unflatten(treedef, right)))
        if len(found) != len(left):  # as in JAX, the leaves count: a tuple may stand for a named one
            raise ArgumentError(
                f"{what}: the function must give the structure that it takes, {pytrees.structure_text(treedef)} where "
                f"* stands for an array, but gives {pytrees.structure_text(structure)}."
            )
        results = [array_of(x, what) for x in found]
        for x, given in zip(results, left, strict=True):
            if x.shape != given.shape or x.dtype != given.dtype:
                raise ResultTypeError(
                    f"{what}: the function must give the shapes and types that it takes, but makes {Shape.of(x)} of "
                    f"{Shape.of(given)}; it is applied to several elements at once, along axis {axis}."
                )
        return results

    op = _monoid(combine, arrays[0]) if len(arrays) == 1 else None
    if op is not None:
        return pytrees.unflatten(treedef, [windows.cumulative_monoid(arrays[0], axes[0], op, reverse)])
    if reverse:
        arrays = [_reversed(x, d) for x in arrays]
    results = window_doubling.scan(combine, arrays, d)
    if reverse:
        results = [_reversed(x, d) for x in results]
    return pytrees.unflatten(treedef, results)


def _monoid(combine: Callable[[list[Any], list[Any]], list[Any]], x: Any) -> str | None:
    """The operation that a function is on elements, if it is one whose cumulative form is made in one go."""
    if x.size == 0 or windows.is_narrow(x.dtype) or element_type(x.dtype).kind == "pred":
        return None
    made = trace(lambda a, b: combine([a], [b]), [Shape.of(x)] * 2, "combine")[0]
    return reduction.monoid(Computation(made.name, made.parameters, made.instructions[:-1], made.outputs[0]))


def _reversed(x: Any, axis: int) -> Any:
    return movement.reverse(x, dimensions=(axis % x.ndim,))
