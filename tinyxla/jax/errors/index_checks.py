"""`lax.gather`, `lax.scatter` and its relatives with their arguments checked in the order in which JAX checks them, and
with the words that its errors begin with. What passes is computed by the functions of `tinyxla.lax`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import lax
from tinyxla.errors import ShapeError

Dims = Sequence[int]


def _require(holds: bool, said: str) -> None:
    if not holds:
        raise ShapeError(said)


def _sorted(op: str, name: str, dims: Dims) -> None:
    _require(list(dims) == sorted(dims), f"{name} in {op} op must be sorted; got {tuple(dims)}")


def _distinct(op: str, name: str, dims: Dims) -> None:
    _require(len(set(dims)) == len(dims), f"{name} in {op} op must not repeat; got: {tuple(dims)}.")


def _in_range(op: str, name: str, dims: Dims, rank: int) -> None:
    for d in dims:
        _require(0 <= d < rank, f"Invalid {name} set in {op} op; valid range is [0, {rank}); got: {d}.")


def _disjoint(op: str, first: tuple[str, Dims], second: tuple[str, Dims]) -> None:
    if not set(first[1]).isdisjoint(second[1]):
        names, dims = f"{first[0]} and {second[0]}", f"{tuple(first[1])} and {tuple(second[1])}"
        raise ShapeError(f"{names} in {op} op must be disjoint; got: {dims}.")


def _map_in_range(said: str, dims: Dims, rank: int) -> None:
    for k, d in enumerate(dims):
        _require(0 <= d < rank, f"Invalid {said}; domain is [0, {rank}), got: {k}->{d}.")


def _batching(op: str, operand: Dims, indices: Dims, names: tuple[str, str], dims: tuple[Dims, Dims]) -> None:
    """The batching dimensions of the indices, and that they have the sizes of those of the operand."""
    vector, title = len(indices) - 1, op.capitalize()
    _distinct(op, names[1], dims[1])
    _in_range(op, names[1], dims[1], len(indices))
    _require(
        vector not in dims[1],
        f"{title} op cannot have the index vector dimension as a batching dimension; got {tuple(dims[1])}.",
    )
    _require(
        len(dims[0]) == len(dims[1]),
        f"{title} op requires equal numbers of {names[0]} and {names[1]}, got {tuple(dims[0])} and {tuple(dims[1])}.",
    )
    sizes = tuple(operand[d] for d in dims[0]), tuple(indices[d] for d in dims[1])
    _require(
        sizes[0] == sizes[1],
        f"{title} op requires operand batching dimensions and indices batching dimensions to have the same shape, got "
        f"{sizes[0]} and {sizes[1]}.",
    )


def _check_vector_size(op: str, name: str, mapped: Dims, indices: Dims) -> None:
    vector = len(indices) - 1
    _require(
        len(mapped) == indices[vector],
        f"{op} op has {len(mapped)} elements in {name} and the bound of dimension index_vector_dim={vector} of indices "
        f"is {indices[vector]}. These two numbers must be equal.",
    )


def check_gather(operand: Dims, indices: Dims, numbers: Any, slice_sizes: Dims) -> None:
    """The errors of `gather` for shapes of its operand and indices."""
    op, rank = "gather", len(operand)
    _require(len(indices) > 0, "Gather index leaf dimension must be within [0, rank(indices) + 1); rank(indices) is 0.")
    _sorted(op, "offset_dims", numbers.offset_dims)
    _distinct(op, "offset_dims", numbers.offset_dims)
    result = len(numbers.offset_dims) + len(indices) - 1
    for k, d in enumerate(numbers.offset_dims):
        said = f"Offset dimension {k} in gather op is out of bounds; got {d}, but should have been in [0, {result})"
        _require(0 <= d < result, said)
    _check_vector_size("Gather", "start_index_map", numbers.start_index_map, indices)
    _map_in_range("start_index_map", numbers.start_index_map, rank)
    _distinct(op, "start_index_map", numbers.start_index_map)
    collapsed = "collapsed_slice_dims", numbers.collapsed_slice_dims
    batching = "operand_batching_dims", numbers.operand_batching_dims
    _sorted(op, *collapsed)
    _in_range(op, *collapsed, rank)
    _distinct(op, *collapsed)
    _distinct(op, *batching)
    _sorted(op, *batching)
    _in_range(op, *batching, rank)
    _disjoint(op, collapsed, batching)
    _disjoint(op, ("start_index_map", numbers.start_index_map), batching)
    names = "operand_batching_dims", "start_indices_batching_dims"
    dims = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    _batching(op, operand, indices, names, dims)
    _check_slices(operand, indices, numbers, slice_sizes)


def _check_slices(operand: Dims, indices: Dims, numbers: Any, sizes: Dims) -> None:
    _require(
        len(operand) == len(sizes),
        f"Gather op must have one slice size for every input dimension; got: len(slice_sizes)={len(sizes)}, "
        f"input_shape.rank={len(operand)}",
    )
    named = len(numbers.offset_dims) + len(numbers.collapsed_slice_dims) + len(numbers.operand_batching_dims)
    _require(
        len(sizes) == named,
        "All components of the offset index in a gather op must either be a offset dimension or explicitly "
        f"collapsed/batching; got len(slice_sizes)={len(sizes)}, output_slice_sizes={tuple(numbers.offset_dims)}, "
        f"collapsed_slice_dims={tuple(numbers.collapsed_slice_dims)}, "
        f"operand_batching_dims={tuple(numbers.operand_batching_dims)}.",
    )
    for k, (n, size) in enumerate(zip(sizes, operand, strict=True)):
        said = f"Slice size at index {k} in gather op is out of range, must be within [0, {size} + 1), got {n}."
        _require(0 in indices or 0 <= n <= size, said)
    for kind, dims, least in (
        ("collapse slice dims with bound 1", numbers.collapsed_slice_dims, 1),
        ("have operand batching dims with bound 0/1", numbers.operand_batching_dims, 0),
    ):
        for k, d in enumerate(dims):
            said = f"Gather op can only {kind}, but bound is {sizes[d]} for index {d} at position {k}."
            _require(least <= sizes[d] <= 1, said)


def check_scatter(operand: Dims, indices: Dims, updates: Dims, numbers: Any) -> None:
    """The errors of `scatter` for shapes of its operands."""
    op, rank, vector = "scatter", len(operand), len(indices) - 1
    _require(vector >= 0, "Scatter index leaf dimension must be within [0, rank(indices) + 1); rank(indices) is 0.")
    window = "update_window_dims", numbers.update_window_dims
    inserted = "inserted_window_dims", numbers.inserted_window_dims
    batching = "operand_batching_dims", numbers.operand_batching_dims
    mapped = "scatter_dims_to_operand_dims", numbers.scatter_dims_to_operand_dims
    expected = vector + len(window[1])
    _require(len(updates) == expected, f"Updates tensor must be of rank {expected}; got {len(updates)}.")
    for (name, dims), limit in ((window, len(updates)), (inserted, rank), (batching, rank)):
        _sorted(op, name, dims)
        _distinct(op, name, dims)
        _in_range(op, name, dims, limit)
    _disjoint(op, inserted, batching)
    _disjoint(op, mapped, batching)
    indices_dims = numbers.scatter_indices_batching_dims
    _batching(op, operand, indices, (batching[0], "scatter_indices_batching_dims"), (batching[1], indices_dims))
    outer = [n for d, n in enumerate(updates) if d not in window[1]]
    sizes = tuple(operand[d] for d in batching[1]), tuple(outer[d] for d in indices_dims)
    _require(
        sizes[0] == sizes[1],
        "Scatter op requires operand batching dimensions and updates batching dimensions to have the same shape, got "
        f"{sizes[0]} and {sizes[1]}.",
    )
    size = len(window[1]) + len(inserted[1]) + len(batching[1])
    _require(rank == size, f"Scatter op has window of size {size}; doesn't match operand of rank {rank}.")
    _check_vector_size("Scatter", *mapped, indices)
    _map_in_range("scatter_dims_to_operand_dims mapping", mapped[1], rank)
    _distinct(op, *mapped)
    _check_updates(operand, indices, updates, numbers, outer)


def _check_updates(operand: Dims, indices: Dims, updates: Dims, numbers: Any, outer: Dims) -> None:
    left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    largest = [n for d, n in enumerate(operand) if d not in left_out]
    for d, size in zip(numbers.update_window_dims, largest, strict=True):
        _require(
            updates[d] <= size,
            "Bounds of the window dimensions of updates must not exceed the bounds of the corresponding dimensions of "
            f"operand. For dimension {d}, updates bound is {updates[d]}, operand bound is {size}.",
        )
    for d, (n, size) in enumerate(zip(outer, indices[:-1], strict=True)):
        _require(
            n == size,
            "Bounds of the scatter dimensions of updates must be the same as the bounds of the corresponding "
            f"dimensions of scatter indices. For scatter dimension {d}, updates bound is {n}, indices bound is {size}.",
        )


@functools.wraps(lax.gather)
def gather(operand: Any, start_indices: Any, dimension_numbers: Any, slice_sizes: Any, **options: Any) -> Any:
    if isinstance(dimension_numbers, lax.GatherDimensionNumbers):
        check_gather(np.shape(operand), np.shape(start_indices), dimension_numbers, slice_sizes)
    return lax.gather(operand, start_indices, dimension_numbers, slice_sizes, **options)


def _scatterer(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: Any, **options: Any) -> Any:
        if isinstance(dimension_numbers, lax.ScatterDimensionNumbers):
            check_scatter(np.shape(operand), np.shape(scatter_indices), np.shape(updates), dimension_numbers)
        return function(operand, scatter_indices, updates, dimension_numbers, **options)

    return checked


scatter, scatter_add, scatter_sub, scatter_mul, scatter_min, scatter_max = map(
    _scatterer, (lax.scatter, lax.scatter_add, lax.scatter_sub, lax.scatter_mul, lax.scatter_min, lax.scatter_max)
)
