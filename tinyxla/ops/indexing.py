"""Many slices at computed places: gather, scatter.

Sources: sections "Gather" and "Scatter" of the XLA documents. Slices that would reach outside an array are moved
inside, as XLA does; updates by scatter that would are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.ops.op import (
    Array,
    Axes,
    ByAttributes,
    Cotangent,
    Decomposition,
    Derivative,
    Factors,
    Ints,
    Linear,
    NotDifferentiable,
    Op,
    Rules,
    Sample,
    Value,
    Zero,
)
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import has_symbolic

T = TypeVar("T")


def check_indices(name: str, shape: Shape) -> None:
    """Numbers of places are integers."""
    if not shape.element_type.is_integer:
        raise DTypeError(f"{name}: indices must be integers, but got {shape}; convert them.")


def clamped(indices: Value, vector_dim: int, limits: Sequence[int]) -> Value:
    """Index vectors, moved between 0 and the limit of each of their entries."""
    if has_symbolic(limits):
        entries = [movement.full(n, indices.dtype, (1,)) for n in limits]
        bounds = movement.concatenate(*entries, dimension=0)
    else:
        bounds = movement.constant(literal=Literal(np.asarray(limits).astype(indices.dtype)))
    high = movement.broadcast(bounds, sizes=indices.shape, dimensions=(vector_dim,))
    return elementwise.clamp(elementwise.zeros_like(indices), indices, high)


# --- gather -----------------------------------------------------------------------------------------------------------


class Gather(NamedTuple):
    offset_dims: Ints  # of the result: those that run inside a slice
    collapsed_slice_dims: Ints  # of the operand: of size 1 in a slice, and left out
    start_index_map: Ints  # of the operand: the dimension that each entry of an index vector is for
    index_vector_dim: int  # of the indices: the one that runs along an index vector
    slice_sizes: Ints
    operand_batching_dims: Ints = ()  # of the operand, and ...
    start_indices_batching_dims: Ints = ()  # ... of the indices: those that run together
    indices_are_sorted: bool = False
    drops_gradients: bool = False  # of slices that reach outside, which are read where they are moved inside

    def window(self, rank: int) -> Ints:
        """The dimensions of an operand that run inside a slice."""
        return tuple(d for d in range(rank) if d not in self.collapsed_slice_dims + self.operand_batching_dims)

    def parted(self, parts: Sequence[T]) -> tuple[list[T], list[T]]:
        """Of something that each dimension of slices side by side has: that of the batch, and that of the window."""
        return [c for d, c in enumerate(parts) if d not in self.offset_dims], [parts[d] for d in self.offset_dims]

    def vector(self, batch: Sequence[T], entry: T, rank: int) -> tuple[T, ...]:
        """Where in indices of this rank an entry of an index vector is; one alone may have no dimension of its own."""
        own = (entry,) if self.index_vector_dim < rank else ()
        return (*batch[: self.index_vector_dim], *own, *batch[self.index_vector_dim :])

    def pairs(self) -> list[tuple[int, int]]:
        """Dimensions of the operand and of the batch that run together."""
        along = (d - (d > self.index_vector_dim) for d in self.start_indices_batching_dims)
        return list(zip(self.operand_batching_dims, along, strict=True))


def _check_batching(name: str, operand: Shape, indices: Shape, a: Gather) -> None:
    dims, index_dims = a.operand_batching_dims, a.start_indices_batching_dims
    if len(dims) != len(index_dims):
        raise ShapeError(
            f"{name}: the operand and the indices must have as many batching dimensions, "
            f"but got {dims} and {index_dims}."
        )
    movement.check_dimensions(name, "the indices' batching dimensions", index_dims, indices.rank)
    for d, i in zip(dims, index_dims, strict=True):
        if i == a.index_vector_dim:
            raise ShapeError(
                f"{name}: dimension {i} of the indices runs along index vectors and must not be a batching dimension."
            )
        if operand.dimensions[d] != indices.dimensions[i]:
            raise ShapeError(
                f"{name}: batching dimension {d} of {operand} and {i} of the indices {indices} must have one size."
            )


def _batch_sizes(name: str, operand: Shape, indices: Shape, a: Gather, names: Sequence[str]) -> Ints:
    """The sizes of the batch, if dimension numbers are right; `names` are those of the first three fields, and that of
    the operand's batching dimensions, in the op."""
    check_indices(name, indices)
    if not 0 <= a.index_vector_dim <= indices.rank:
        raise ShapeError(
            f"{name}: index_vector_dim must be from 0 to the rank of the indices {indices}, but got "
            f"{a.index_vector_dim}."
        )
    batch = indices.dimensions[: a.index_vector_dim] + indices.dimensions[a.index_vector_dim + 1 :]
    length = indices.dimensions[a.index_vector_dim] if a.index_vector_dim < indices.rank else 1
    if len(a.start_index_map) != length:
        raise ShapeError(
            f"{name}: there must be a dimension of the operand for each of the {length} entries of an index vector of "
            f"{indices}, along dimension {a.index_vector_dim}, but got {a.start_index_map}."
        )
    offsets, collapsed, index_map, batching = names
    for what, dimensions in ((collapsed, a.collapsed_slice_dims), (index_map, a.start_index_map)):
        both = (*dimensions, *a.operand_batching_dims)
        movement.check_dimensions(name, f"{what} and {batching}", both, operand.rank)
    given = a.offset_dims, a.collapsed_slice_dims, a.operand_batching_dims
    for attribute, dimensions in zip((offsets, collapsed, batching), given, strict=True):
        if list(dimensions) != sorted(dimensions):
            raise ShapeError(f"{name}: {attribute} must ascend, but got {dimensions}; sort them.")
    _check_batching(name, operand, indices, a)
    window = a.window(operand.rank)
    if len(window) != len(a.offset_dims):
        raise ShapeError(
            f"{name}: {offsets} must be {len(window)}, one for each of {window} in slices, but got {a.offset_dims}."
        )
    movement.check_dimensions(name, offsets, a.offset_dims, len(batch) + len(window))
    return batch


def _gather_shape(x: AnyShape, start_indices: AnyShape, **attributes: Any) -> Shape:
    operand, indices = (movement.array_operand("gather", v) for v in (x, start_indices))
    a = Gather(**attributes)
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "operand_batching_dims")
    batch = _batch_sizes("gather", operand, indices, a, names)
    if len(a.slice_sizes) != operand.rank or any(
        not 0 <= n <= size for n, size in zip(a.slice_sizes, operand.dimensions, strict=True)
    ):
        raise ShapeError(f"gather: slice_sizes must fit inside {operand}, but got {a.slice_sizes}.")
    for d in (*a.collapsed_slice_dims, *a.operand_batching_dims):
        if a.slice_sizes[d] != 1 and (a.slice_sizes[d] or math.prod(batch)):
            raise ShapeError(
                f"gather: slice_sizes must be 1 in dimension {d}, which is collapsed or of a batch, but got "
                f"{a.slice_sizes}."
            )
    sizes = [a.slice_sizes[d] for d in a.window(operand.rank)]
    return operand.with_dimensions(_interleaved(batch, sizes, a.offset_dims))


def _interleaved(batch: Sequence[T], window: Sequence[T], offset_dims: Ints) -> tuple[T, ...]:
    """Sizes of which those of the window stand at `offset_dims`."""
    outer, inner = iter(batch), iter(window)
    rank = len(batch) + len(window)
    return tuple(next(inner) if d in offset_dims else next(outer) for d in range(rank))


def _vectors(indices: Array, vector_dim: int) -> Array:
    """The index vectors along the last axis, as numbers that do not overflow."""
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    wide = np.minimum(indices, 1 << 62) if indices.dtype == np.uint64 else indices
    return np.moveaxis(wide, vector_dim, -1).astype(np.int64)


class _Places(NamedTuple):
    """Where elements of slices are in an operand, in NumPy's terms.

    The operand is to be transposed to `order`: first the dimensions that are indexed, then those that slices have
    whole.
    """

    order: Ints
    indices: tuple[Array, ...]  # of the former dimensions; they broadcast to the batch and the window's sizes
    window: Ints  # the window dimensions (of the operand) of the indices, and ...
    whole: Ints  # ... those that are not indexed


def _places(operand: Ints, starts: Array, a: Gather) -> _Places:
    """`starts` has the batch dimensions, then index vectors."""
    batch, window, pairs = starts.ndim - 1, a.window(len(operand)), dict(a.pairs())
    whole = tuple(d for d in window if d not in a.start_index_map and a.slice_sizes[d] == operand[d])
    inner = tuple(d for d in window if d not in whole)
    rank = batch + len(inner)

    def counted(size: int, along: int) -> Array:
        return np.arange(size).reshape([-1 if k == along else 1 for k in range(rank)])

    order = tuple(d for d in range(len(operand)) if d not in whole)
    indices: list[Array] = []
    for d in order:
        place: Array = np.zeros((1,) * rank, np.int64)
        if d in a.start_index_map:
            entry = starts[..., a.start_index_map.index(d)]
            place = place + entry.reshape(entry.shape + (1,) * len(inner))
        if d in pairs:
            place = place + counted(operand[d], pairs[d])
        if d in inner:
            place = place + counted(a.slice_sizes[d], batch + inner.index(d))
        indices.append(place)
    return _Places((*order, *whole), tuple(indices), inner, whole)


def _last_starts(x: Any, a: Gather) -> list[int]:
    """The last places at which a slice fits, for each entry of an index vector."""
    return [x.shape[d] - a.slice_sizes[d] for d in a.start_index_map]


def _taken_along(x: Array, indices: Array, a: Gather) -> int | None:
    """The dimension along which elements are taken, where this is NumPy's `take`."""
    batch = a.index_vector_dim  # so many dimensions, where index vectors are the last one
    if len(a.start_index_map) != 1 or a.collapsed_slice_dims != a.start_index_map or batch < indices.ndim - 1:
        return None
    (along,) = a.start_index_map
    slices = tuple(1 if d == along else size for d, size in enumerate(x.shape))
    offsets = (*range(along), *range(along + batch, x.ndim - 1 + batch))
    fits = a.slice_sizes == slices and a.offset_dims == offsets and not a.operand_batching_dims
    return along if fits and x.size and np.can_cast(indices.dtype, np.intp) else None


def _gather_evaluate(x: Array, start_indices: Array, **attributes: Any) -> Array:
    a = Gather(**attributes)
    if (along := _taken_along(x, start_indices, a)) is not None:
        return x.take(start_indices.reshape(start_indices.shape[: a.index_vector_dim]), along, mode="clip")
    starts = _vectors(start_indices, a.index_vector_dim)
    places = _places(x.shape, np.clip(starts, 0, np.asarray(_last_starts(x, a), np.int64)), a)
    batch = starts.shape[:-1]
    sizes = (*batch, *(a.slice_sizes[d] for d in places.window), *(x.shape[d] for d in places.whole))
    if 0 in batch or 0 in a.slice_sizes:
        taken = np.zeros(sizes, x.dtype)
    else:
        taken = np.broadcast_to(x.transpose(places.order)[places.indices], sizes)
    made = (*places.window, *places.whole)  # the operand's dimensions behind the batch, as they stand now
    axes = [len(batch) + made.index(d) for d in a.window(x.ndim)]
    return taken.transpose(_interleaved(range(len(batch)), axes, a.offset_dims))


def _gather_transpose(g: Value, x: Value, start_indices: Value, **attributes: Any) -> tuple[Value]:
    a = Gather(**attributes)
    inside = _with_vectors(start_indices, a)
    if not a.drops_gradients:
        inside = clamped(inside, a.index_vector_dim, _last_starts(x, a))
    places = _scatter_like(a, reduction.scalar_computation("add", g.dtype))
    return (scatter(elementwise.zeros_like(x), inside, g, **places._asdict()),)


def _with_vectors(indices: Value, a: Gather) -> Value:
    """Indices with a dimension of index vectors, where that is implicit."""
    return indices if a.index_vector_dim < indices.ndim else movement.reshape_to(indices, (*indices.shape, 1))


def _scatter_like(a: Gather, to_apply: Computation) -> Scatter:
    """The scatter that writes where a gather reads."""
    return Scatter(
        update_window_dims=a.offset_dims,
        inserted_window_dims=a.collapsed_slice_dims,
        scatter_dims_to_operand_dims=a.start_index_map,
        index_vector_dim=a.index_vector_dim,
        input_batching_dims=a.operand_batching_dims,
        scatter_indices_batching_dims=a.start_indices_batching_dims,
        indices_are_sorted=a.indices_are_sorted,
        moves_gradients=a.drops_gradients,
        to_apply=to_apply,
    )


def _later(dimensions: Ints) -> Ints:
    """Dimension numbers of an array that has got one more in front."""
    return tuple(d + 1 for d in dimensions)


def _gather_batch(size: int, operands: tuple[Value, Value], axes: Axes, **attributes: Any) -> tuple[Value, int]:
    (x, indices), (axis, index_axis) = operands, axes
    a = Gather(**attributes)
    if axis is not None:
        x = movement.move_axis(x, axis, 0)
        a = a._replace(
            collapsed_slice_dims=_later(a.collapsed_slice_dims),
            start_index_map=_later(a.start_index_map),
            operand_batching_dims=_later(a.operand_batching_dims),
        )
    if index_axis is None:  # every slice has the mapped dimension whole
        both = a._replace(offset_dims=(0, *_later(a.offset_dims)), slice_sizes=(size, *a.slice_sizes))
        return gather(x, indices, **both._asdict()), 0
    indices = movement.move_axis(indices, index_axis, 0)
    a = a._replace(
        offset_dims=_later(a.offset_dims),
        index_vector_dim=a.index_vector_dim + 1,
        start_indices_batching_dims=_later(a.start_indices_batching_dims),
        indices_are_sorted=False,
    )
    if axis is not None:  # the mapped dimensions run together
        a = a._replace(
            slice_sizes=(min(1, size), *a.slice_sizes),
            operand_batching_dims=(0, *a.operand_batching_dims),
            start_indices_batching_dims=(0, *a.start_indices_batching_dims),
        )
    return gather(x, indices, **a._asdict()), 0


_GATHERS: tuple[tuple[Ints, Any, Gather], ...] = (
    ((5,), [[3], [0], [9], [-1]], Gather((), (0,), (0,), 1, (1,))),
    ((5,), [3, 0, 3], Gather((), (0,), (0,), 1, (1,))),
    ((4, 3), [[2], [0]], Gather((1,), (0,), (0,), 1, (1, 3))),
    ((4, 3), [[2], [0]], Gather((0,), (1,), (1,), 1, (4, 1))),
    ((4, 3), [[2, 1], [0, 7], [3, -4]], Gather((), (0, 1), (0, 1), 1, (1, 1))),
    ((4, 5), [[0, 3, 1], [2, 4, -1]], Gather((1, 2), (), (1, 0), 0, (2, 3))),
    ((2, 4, 3), [[[2], [0]], [[1], [1]]], Gather((2,), (1,), (1,), 2, (1, 1, 3), (0,), (0,))),
    ((3, 2, 4), [[[2, 0, 1], [1, 3, 3]]], Gather((1,), (2,), (2,), 0, (1, 2, 1), (0,), (2,))),
    ((4, 3), [[0], [2]], Gather((0, 2), (), (0,), 1, (2, 3))),
    ((4, 0), [[0], [2]], Gather((1,), (0,), (0,), 1, (1, 0))),
)


def _gather_samples(random: np.random.Generator) -> Iterator[Sample]:
    for shape, indices, attributes in _GATHERS:
        yield Sample((movement.sample_values(shape), np.asarray(indices, np.int32)), attributes._asdict())


def _of_batch(a: Gather, rank: int, first: int) -> tuple[int | None, ...]:
    """The factors of the dimensions of indices, from `first` on; those of an index vector are whole."""
    return tuple(None if d == a.index_vector_dim else first + d for d in range(rank))


def _gather_factors(x: Shape, start_indices: Shape, **attributes: Any) -> Factors:
    """The batch, and dimensions that are whole in slices, stand in the result. Of elements that are looked up, devices
    have those in their part."""
    a = Gather(**attributes)
    operand: list[int | None] = [None] * x.rank
    indices = _of_batch(a, start_indices.rank, x.rank)
    for d, i in zip(a.operand_batching_dims, a.start_indices_batching_dims, strict=True):
        operand[d] = indices[i]
    looked_up: list[int] = []
    for d in range(x.rank):
        if d not in a.operand_batching_dims and a.slice_sizes[d] == x.dimensions[d] and d not in a.collapsed_slice_dims:
            operand[d] = d
        elif d in a.start_index_map and a.slice_sizes[d] == 1:
            operand[d] = d
            looked_up.append(d)
    batch = [factor for d, factor in enumerate(indices) if d != a.index_vector_dim]
    window = [None if d in looked_up else operand[d] for d in a.window(x.rank)]
    return Factors(
        (tuple(operand), indices),
        (_interleaved(batch, window, a.offset_dims),),
        tuple((d, reduction.union(x.dtype)) for d in looked_up),
        _gather_of_part,
        frozenset(looked_up),
    )


def _gather_of_part(attributes: dict[str, Any], operands: Sequence[Ints], results: Sequence[Ints]) -> dict[str, Any]:
    """Dimensions that are smaller in the part are taken whole."""
    pairs = zip(attributes["slice_sizes"], operands[0], strict=True)
    return attributes | {"slice_sizes": tuple(min(pair) for pair in pairs)}


gather = Op(
    "gather",
    sharding=_gather_factors,
    attributes=Gather,
    shape=_gather_shape,
    evaluate=_gather_evaluate,
    derivative=Linear(_gather_transpose, operands=(0,)),
    batch=_gather_batch,
    samples=_gather_samples,
)

# --- scatter ----------------------------------------------------------------------------------------------------------


class Scatter(NamedTuple):
    update_window_dims: Ints  # of the updates: those that run inside a slice
    inserted_window_dims: Ints  # of the operand: of size 1 in a slice, and left out
    scatter_dims_to_operand_dims: Ints  # of the operand: the dimension that each entry of an index vector is for
    index_vector_dim: int  # of the indices
    to_apply: Computation  # of an element so far and its update: the new element
    input_batching_dims: Ints = ()  # of the operand, and ...
    scatter_indices_batching_dims: Ints = ()  # ... of the indices: those that run together
    indices_are_sorted: bool = False
    unique_indices: bool = False
    moves_gradients: bool = False  # of updates that are left out where they are added: to where they would be inside

    def gather(self, slice_sizes: Ints = ()) -> Gather:
        """The gather that reads where this writes."""
        return Gather(
            offset_dims=self.update_window_dims,
            collapsed_slice_dims=self.inserted_window_dims,
            start_index_map=self.scatter_dims_to_operand_dims,
            index_vector_dim=self.index_vector_dim,
            slice_sizes=slice_sizes,
            operand_batching_dims=self.input_batching_dims,
            start_indices_batching_dims=self.scatter_indices_batching_dims,
            indices_are_sorted=self.indices_are_sorted,
            drops_gradients=self.moves_gradients,
        )


@cache
def replacement(dtype: Any) -> Computation:
    """The computation that takes the update: what scatter replaces elements with."""
    shape = Shape(element_type(dtype))
    x, y = (Instruction(movement.parameter, (), movement.Parameter(k, shape), shape) for k in (0, 1))
    return Computation("replacement", [x, y], [x, y], y)


def _thirds(operands: Sequence[Any]) -> tuple[list[Any], Any, list[Any]]:
    """Operands, indices, updates."""
    count = len(operands) // 2
    return list(operands[:count]), operands[count], list(operands[count + 1 :])


def _scatter_shape(*shapes: AnyShape, **attributes: Any) -> AnyShape:
    a = Scatter(**attributes)
    if len(shapes) < 3 or len(shapes) % 2 == 0:
        raise ShapeError(f"scatter: operands must be arrays, indices, and as many updates, but got {len(shapes)}.")
    arrays, indices, updates = _thirds([movement.array_operand("scatter", s) for s in shapes])
    first = arrays[0]
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "input_batching_dims")
    batch = _batch_sizes("scatter", first, indices, a.gather(), names)
    window = a.gather().window(first.rank)
    for x, update in zip(arrays, updates, strict=True):
        if x.dimensions != first.dimensions or update.dimensions != updates[0].dimensions:
            raise ShapeError(f"scatter: operands must have one shape, and updates too, but got {arrays} and {updates}.")
        if x.element_type is not update.element_type:
            raise DTypeError(f"scatter: updates of {x} must have its element type, but got {update}; convert them.")
    sizes = (
        [updates[0].dimensions[d] for d in a.update_window_dims] if updates[0].rank == len(batch) + len(window) else []
    )
    if len(sizes) != len(window) or any(n > first.dimensions[d] for n, d in zip(sizes, window, strict=True)):
        raise ShapeError(
            f"scatter: updates must have the dimensions of the indices {indices} and of slices inside {first}, but got "
            f"{updates[0]}."
        )
    if updates[0].dimensions != _interleaved(batch, sizes, a.update_window_dims):
        raise ShapeError(
            f"scatter: updates must have the sizes {batch} of the indices {indices}, but got {updates[0]}."
        )
    scalars = [Shape(x.element_type) for x in arrays]
    reduction.check_computation("scatter: to_apply", a.to_apply, scalars * 2, scalars)
    return TupleShape(tuple(arrays)) if isinstance(a.to_apply.root.shape, TupleShape) else first


def _is_replacement(computation: Computation) -> bool:
    return len(computation.parameters) == 2 and computation.root is computation.parameters[1]


def _scatter_evaluate(*operands: Array, **attributes: Any) -> Any:
    a = Scatter(**attributes)
    arrays, indices, updates = _thirds(operands)
    like = _gather_like(a, arrays[0], updates[0])
    starts = _vectors(indices, a.index_vector_dim)
    inside = np.all((starts >= 0) & (starts <= np.asarray(_last_starts(arrays[0], like), np.int64)), axis=-1)
    places = _places(arrays[0].shape, starts, like)
    window, batch = like.window(arrays[0].ndim), starts.ndim - 1
    outer = [d for d in range(updates[0].ndim) if d not in a.update_window_dims]
    behind = [a.update_window_dims[window.index(d)] for d in (*places.window, *places.whole)]
    rows = [u.transpose(*outer, *behind) for u in updates]
    grid = rows[0].shape[: batch + len(places.window)]
    where = [np.broadcast_to(i, grid)[inside] for i in places.indices]  # the batch becomes one axis
    rows = [u[inside] for u in rows]
    results = [np.array(x) for x in arrays]
    views = [x.transpose(places.order) for x in results]
    _apply_updates(views, tuple(where), rows, a.to_apply)
    return tuple(results) if isinstance(a.to_apply.root.shape, TupleShape) else results[0]


def _apply_updates(views: list[Array], where: tuple[Array, ...], rows: list[Array], to_apply: Computation) -> None:
    """Update views of the results in place; of updates of one element, later ones come later."""
    if not rows[0].size or not views[0].size:
        return
    ufunc = reduction.ufunc_of(to_apply, views[0].dtype)
    if not where:  # slices are whole arrays
        for k in range(rows[0].shape[0]):
            _combine_at(views, (), [u[k] for u in rows], to_apply)
    elif _is_replacement(to_apply):
        views[0][where] = rows[0]
    elif ufunc:
        ufunc.at(views[0], where, rows[0])
    else:
        for chosen in _rounds(where, views[0].shape):
            at = tuple(i.reshape(-1)[chosen] for i in where)
            flat = [u.reshape(where[0].size, *u.shape[where[0].ndim :])[chosen] for u in rows]
            _combine_at(views, at, flat, to_apply)


def _combine_at(views: list[Array], at: tuple[Array, ...], updates: list[Array], to_apply: Computation) -> None:
    old = [np.asarray(v[at]) for v in views]
    for view, new in zip(views, calls.evaluate_elements(to_apply, [*old, *updates]), strict=True):
        view[at] = new


def _rounds(where: tuple[Array, ...], shape: Ints) -> Iterator[Array]:
    """Groups of updates in which no element occurs twice; the first has the first update of each element, and so on."""
    flat = np.ravel_multi_index([i.reshape(-1) for i in where], shape[: len(where)])
    order = np.argsort(flat, kind="stable")
    sorted_places = flat[order]
    first = np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]])
    starts = np.flatnonzero(first)
    number = np.arange(flat.size) - np.repeat(starts, np.diff(np.append(starts, flat.size)))
    for k in range(int(number.max()) + 1):
        yield order[number == k]


def _gather_like(a: Scatter, x: Any, updates: Any) -> Gather:
    """The gather that reads where a scatter writes."""
    sizes = [1] * x.ndim
    for d, k in zip(a.gather().window(x.ndim), a.update_window_dims, strict=True):
        sizes[d] = updates.shape[k]
    return a.gather(tuple(sizes))


def _read(source: Value, indices: Value, updates: Value, a: Scatter) -> Value:
    """The elements of `source` at the positions of the updates; zero for updates out of bounds, such as all of an empty
    `source`."""
    if not source.size:
        return movement.full(0, source.dtype, updates.shape)
    taken = gather(source, indices, **_gather_like(a, source, updates)._asdict())
    return elementwise.select(_inside(source, indices, updates, a), taken, elementwise.zeros_like(taken))


def _inside(x: Value, indices: Value, updates: Value, a: Scatter) -> Value:
    """Which updates are not left out."""
    if not x.size:
        return movement.full(False, np.bool_, updates.shape)
    like = _gather_like(a, x, updates)
    indices = _with_vectors(indices, like)
    kept = elementwise.eq(indices, clamped(indices, a.index_vector_dim, _last_starts(x, like)))
    every = reduction.reduce_and(kept, (a.index_vector_dim,))
    outer = tuple(d for d in range(updates.ndim) if d not in a.update_window_dims)
    return movement.broadcast(every, sizes=updates.shape, dimensions=outer)


def _with(a: Scatter, op: str, dtype: Any) -> dict[str, Any]:
    return a._replace(to_apply=reduction.scalar_computation(op, dtype))._asdict()


def _add_transpose(g: Value, x: Value, indices: Value, updates: Value, **attributes: Any) -> tuple[Value, Value]:
    a = Scatter(**attributes)
    if a.moves_gradients and g.size:  # the transpose of a gather, whose transpose is the gather again
        return g, gather(g, indices, **_gather_like(a, g, updates)._asdict())
    return g, _read(g, indices, updates, a)


def _replace_transpose(g: Value, x: Value, indices: Value, updates: Value, **attributes: Any) -> tuple[Value, Value]:
    """An element that is replaced has no part any more, and of several updates of one only the last has."""
    a = Scatter(**attributes)
    kept = scatter(g, indices, movement.full(0, g.dtype, updates.shape), **attributes)
    taken = _read(g, indices, updates, a)
    if a.unique_indices:
        return kept, taken
    number = movement.iota(shape=Shape(element_type(np.int32), (updates.size,)), iota_dimension=0)
    number = movement.reshape_to(number, updates.shape)
    none = movement.full(-1, np.int32, x.shape)
    winners = scatter(none, indices, number, **a._replace(to_apply=replacement(np.int32))._asdict())
    last = elementwise.eq(_read(winners, indices, updates, a), number)
    return kept, elementwise.select(last, taken, elementwise.zeros_like(taken))


class _Products(NamedTuple):
    """A scatter that multiplies: factors by which the tangent of the operand, and those of the updates, count."""

    of_operand: Value
    of_updates: Value


def _products(ans: Value, x: Value, indices: Value, updates: Value, a: Scatter) -> _Products:
    """Each update's factor is the product of the operand's element and of all other updates of it: the result divided
    by it, or if it is zero, the product of the element and the updates that are not. If one other is zero, too, the
    product is zero, but has a derivative by that one."""
    one, none = movement.full(1, x.dtype, x.shape), elementwise.zeros_like(updates)
    of_operand = scatter(one, indices, updates, **a._asdict())
    if a.unique_indices:
        return _Products(of_operand, _read(x, indices, updates, a))
    is_zero = elementwise.eq(updates, none)
    safe = elementwise.select(is_zero, movement.full(1, x.dtype, updates.shape), updates)
    nonzero = _read(scatter(x, indices, safe, **_with(a, "multiply", x.dtype)), indices, updates, a)

    def sum_of_others(zeros: Value) -> Value:
        start, add = movement.full(0, zeros.dtype, x.shape), _with(a, "add", zeros.dtype)
        return elementwise.sub(_read(scatter(start, indices, zeros, **add), indices, updates, a), zeros)

    others = sum_of_others(elementwise.convert(is_zero, new_element_type=element_type(np.int32)))
    alone, two = (elementwise.eq(others, movement.full(k, np.int32, updates.shape)) for k in (0, 1))
    by_other = elementwise.chain_mul(sum_of_others(elementwise.select(is_zero, updates, none)), nonzero, either=True)
    if_zero = elementwise.select(alone, nonzero, elementwise.select(two, by_other, none))
    quotient = elementwise.div(_read(ans, indices, updates, a), safe)
    return _Products(of_operand, elementwise.select(is_zero, if_zero, quotient))


def _shares(ans: Value, x: Value, indices: Value, updates: Value, a: Scatter) -> tuple[Value, Value]:
    """A scatter that takes extrema: those that are the extremum share the derivative equally."""
    kind = element_type(x.dtype)
    hits = elementwise.convert(elementwise.eq(x, ans), new_element_type=kind)
    equal = elementwise.eq(updates, _read(ans, indices, updates, a))
    inside = _inside(x, indices, updates, a)
    update_hits = elementwise.convert(elementwise.and_(equal, inside), new_element_type=kind)
    count = scatter(hits, indices, update_hits, **_with(a, "add", x.dtype))
    count = elementwise.max_(count, movement.full(1, x.dtype, x.shape))
    per_update = elementwise.select(inside, _read(count, indices, updates, a), movement.full(1, x.dtype, updates.shape))
    return elementwise.div(hits, count), elementwise.div(update_hits, per_update)


def _factors(ans: Value, x: Value, indices: Value, updates: Value, a: Scatter) -> tuple[Value, Value]:
    if reduction.monoid(a.to_apply) == "multiply":
        return _products(ans, x, indices, updates, a)
    return _shares(ans, x, indices, updates, a)


def _factor_jvp(
    tangents: tuple[Cotangent, ...], ans: Value, x: Value, indices: Value, updates: Value, **attributes: Any
) -> Value:
    a = Scatter(**attributes)
    by_operand, by_updates = _factors(ans, x, indices, updates, a)
    moved = elementwise.chain_mul(tangents[0], by_operand) if tangents[0] is not None else elementwise.zeros_like(ans)
    if tangents[2] is None:
        return moved
    return scatter(moved, indices, elementwise.chain_mul(tangents[2], by_updates), **_with(a, "add", x.dtype))


def _factor_vjp(
    g: Value, ans: Value, x: Value, indices: Value, updates: Value, **attributes: Any
) -> tuple[Cotangent, ...]:
    a = Scatter(**attributes)
    by_operand, by_updates = _factors(ans, x, indices, updates, a)
    to_updates = elementwise.chain_mul(_read(g, indices, updates, a), by_updates)
    return elementwise.chain_mul(g, by_operand), None, to_updates


def _scatter_derivative(**attributes: Any) -> Derivative:
    a = Scatter(**attributes)
    op = reduction.monoid(a.to_apply)
    if _is_replacement(a.to_apply):
        return Linear(_replace_transpose, operands=(0, 2))
    if op == "add":
        return Linear(_add_transpose, operands=(0, 2))
    if not any(element_type(x.array_shape.dtype).is_inexact for x in a.to_apply.outputs):
        return Zero()
    if op in ("multiply", "maximum", "minimum"):
        return Rules(_factor_jvp, _factor_vjp)
    if a.unique_indices:
        return Decomposition(_apart)
    return NotDifferentiable(
        "scatter has derivatives if it replaces, adds, multiplies or takes extrema, or if unique_indices is set, but "
        f"{a.to_apply.name} may meet an element several times"
    )


def _apart(*operands: Value, **attributes: Any) -> Any:
    """A scatter that meets no element twice: what is there is read, all of it is updated, and put back."""
    a = Scatter(**attributes)
    arrays, indices, updates = _thirds(operands)
    inside = _inside(arrays[0], indices, updates[0], a)
    old = [_read(x, indices, u, a) for x, u in zip(arrays, updates, strict=True)]
    new = [elementwise.select(inside, u, elementwise.zeros_like(u)) for u in updates]
    sizes = updates[0].shape
    count = updates[0].size
    flat = [movement.reshape_to(x, (count,)) for x in (*old, *new)]
    found, axes = calls.inline_batched(a.to_apply, count, flat, (0,) * len(flat))
    several = isinstance(found, tuple)
    pairs = zip(found, axes, strict=True) if several else ((found, axes),)
    aligned = [movement.reshape_to(movement.align_axis(y, d, 0, count), sizes) for y, d in pairs]
    results = tuple(
        scatter(x, indices, y, **a._replace(to_apply=replacement(x.dtype))._asdict())
        for x, y in zip(arrays, aligned, strict=True)
    )
    return results if several else results[0]


def _scatter_batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Any, Any]:
    a = Scatter(**attributes)
    arrays, indices, updates = _thirds(operands)
    array_axes, index_axis, update_axes = _thirds(axes)
    arrays = movement.in_front(arrays, array_axes, size)
    updates = movement.in_front(updates, update_axes, size)
    a = a._replace(
        inserted_window_dims=_later(a.inserted_window_dims),
        scatter_dims_to_operand_dims=_later(a.scatter_dims_to_operand_dims),
        input_batching_dims=_later(a.input_batching_dims),
        update_window_dims=_later(a.update_window_dims),
    )
    if index_axis is None:  # every update has the mapped dimension whole
        a = a._replace(update_window_dims=(0, *a.update_window_dims))
    else:  # the mapped dimensions run together
        indices = movement.move_axis(indices, index_axis, 0)
        a = a._replace(
            index_vector_dim=a.index_vector_dim + 1,
            input_batching_dims=(0, *a.input_batching_dims),
            scatter_indices_batching_dims=(0, *_later(a.scatter_indices_batching_dims)),
            indices_are_sorted=False,
        )
    result = scatter(*arrays, indices, *updates, **a._asdict())
    return result, (0,) * len(arrays) if isinstance(result, tuple) else 0


def _scatter_samples(random: np.random.Generator) -> Iterator[Sample]:
    for op in ("add", "multiply", "maximum", "minimum", "replacement"):
        for shape, given, like in _GATHERS:
            x, indices = movement.sample_values(shape), np.asarray(given, np.int32)
            sizes = _gather_shape(Shape.of(x), Shape.of(indices), **like._asdict()).dimensions
            updates = movement.sample_values(sizes) / 2 + 0.25
            computation = replacement(x.dtype) if op == "replacement" else reduction.scalar_computation(op, x.dtype)
            yield Sample((x, indices, updates.astype(x.dtype)), _scatter_like(like, computation)._asdict())
    like = Gather((), (0,), (0,), 1, (1,))
    x, indices, updates = np.arange(5, dtype=np.int32), np.asarray([[1], [1], [4]], np.int32), np.full(3, 6, np.int32)
    for op in ("and", "or", "xor", "subtract"):
        yield Sample((x, indices, updates), _scatter_like(like, reduction.scalar_computation(op, np.int32))._asdict())
    apart = _scatter_like(like, reduction.scalar_computation("subtract", np.float32))._replace(unique_indices=True)
    x = movement.sample_values((5,))
    yield Sample((x, np.asarray([[3], [9], [0]], np.int32), movement.sample_values((3,)) / 2), apart._asdict())


def _scatter_factors(*shapes: Shape, **attributes: Any) -> Factors:
    """Dimensions that are whole in slices, and the batching ones, go along. Each part of an array takes the updates of
    its own elements; parts of the updates give partial results if they are combined by one associative op."""
    a = Scatter(**attributes)
    like = a.gather()
    arrays, start_indices, updates = _thirds(shapes)
    x = arrays[0]
    operand: list[int | None] = [None] * x.rank
    indices = _of_batch(like, start_indices.rank, x.rank)
    for d, i in zip(a.input_batching_dims, a.scatter_indices_batching_dims, strict=True):
        operand[d] = indices[i]
    op = reduction.monoid(a.to_apply)
    summed = {d for d in indices if d is not None and d not in operand}
    window = like.window(x.rank)
    sizes = dict(zip(window, (updates[0].dimensions[d] for d in a.update_window_dims), strict=True))
    for d in range(x.rank):
        if sizes.get(d) == x.dimensions[d]:
            operand[d] = d
    whole = [operand[d] for d in window]
    batch = [factor for d, factor in enumerate(indices) if d != a.index_vector_dim]
    update = _interleaved(batch, whole, a.update_window_dims)
    written = {d for d in a.scatter_dims_to_operand_dims if operand[d] is None and sizes.get(d, 1) == 1}
    own = tuple(d if d in written else factor for d, factor in enumerate(operand))
    made = Factors(
        (*(own,) * len(arrays), indices, *(update,) * len(updates)),
        (own,) * len(arrays),
        tuple((d, op) for d in sorted(summed)) if op else (),
        communicating=frozenset(written | summed),
    )
    return made if op else made.without(summed)


scatter = Op(
    "scatter",
    sharding=_scatter_factors,
    attributes=Scatter,
    shape=_scatter_shape,
    evaluate=_scatter_evaluate,
    derivative=ByAttributes(_scatter_derivative),
    batch=_scatter_batch,
    samples=_scatter_samples,
)


def take_along(x: Value, indices: Value, axis: int) -> Value:
    """The elements of x whose places along an axis `indices` has, which has the sizes of x along all other axes."""
    return gather(x, indices, **_along(x, indices, axis)._asdict())


def add_along(updates: Value, like: Value, indices: Value, axis: int) -> Value:
    """The transpose: an array like another one, with zeros but for updates added at places along an axis."""
    return _gather_transpose(updates, like, indices, **_along(like, indices, axis)._asdict())[0]


def _along(x: Value, indices: Value, axis: int) -> Gather:
    others = tuple(d for d in range(x.ndim) if d != axis)
    return Gather((), (axis,), (axis,), indices.ndim, tuple(min(1, n) for n in x.shape), others, others)
