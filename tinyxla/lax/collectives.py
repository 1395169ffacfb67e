"""Communication between the examples of a mapped function, over the axis that `vmap(..., axis_name="i")` names.

An axis is given by its name or by a tuple of names, which stand for one axis with the last name running fastest. A
number among the names of a reduction is a dimension of the operand. All functions take pytrees of arrays, and
`axis_index_groups`: tuples of lanes, all of one length, which together are all lanes; each talks to its own group only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tinyxla.api.functions import arrays_of
from tinyxla.errors import ArgumentError, AttributeValueError, AxisNameError, DTypeError, ShapeError
from tinyxla.numpy.arguments import cast
from tinyxla.numpy.indexing.take_where import take
from tinyxla.ops import elementwise, movement, reduction
from tinyxla.ops.distributed import collectives, exchanges, varying
from tinyxla.ops.distributed.replica_groups import REPLICAS
from tinyxla.ops.op import OWN
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.core import axis_indices, state, varying_axes
from tinyxla.tracing.signatures import Tree
from tinyxla.transforms.key_arrays import refuse
from tinyxla.transforms.manual import kind_along, spread_along

Groups = Sequence[Sequence[int]] | None


class Axis(NamedTuple):
    """A named axis."""

    name: Hashable
    size: int


# --- axes -------------------------------------------------------------------------------------------------------------


def _axes(what: str, axis_name: Any) -> list[Axis]:
    """The axes that are named; an error for one that is not there."""
    if isinstance(axis_name, set | frozenset):
        raise ArgumentError(f"{what}: axis_name must be a name or a tuple of names, but is {axis_name!r}.")
    found: list[Axis] = []
    for name in axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,):
        try:
            _, size = state.axes[name]
        except (KeyError, TypeError):
            there = [
                f"{other!r} (size {size})" for other, (_, size) in state.axes.items() if other not in (OWN, REPLICAS)
            ]
            listed = f"the axes here are {', '.join(there)}" if there else "no axis has a name here"
            raise AxisNameError(
                f"{what}: there is no axis named {name!r}; {listed}. Call it inside a function that is mapped with "
                f"vmap(..., axis_name={name!r})."
            ) from None
        found.append(Axis(name, size))
    return found


def _count(axes: Sequence[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def axis_size(axis_name: Hashable) -> int:
    """The number of examples along a named axis, a Python integer.

    Args:
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.

    Returns:
        The size of the axis; the product of the sizes for several names.

    Raises:
        AxisNameError: there is no such axis.

    >>> import numpy as np
    >>> from tinyxla.lax import axis_size
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: x * axis_size("i"), axis_name="i")(np.array([1, 2]))
    Array([2, 4], dtype=int32)
    """
    return _count(_axes("lax.axis_size", axis_name))


def axis_index(axis_name: Hashable) -> Array:
    """The number of the example along a named axis, an int32 scalar.

    Args:
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.

    Returns:
        The index of the example along the axis, an int32 scalar. For several names it is row-major.

    Raises:
        AxisNameError: there is no such axis.

    >>> import numpy as np
    >>> from tinyxla.lax import axis_index
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: x + axis_index("i"), axis_name="i")(np.array([10, 10]))
    Array([10, 11], dtype=int32)
    """
    return _index(_axes("lax.axis_index", axis_name))


def _index(axes: Sequence[Axis]) -> Any:
    number: Any = ConcreteArray(np.zeros((), np.int32))
    for k, axis in enumerate(axes):
        known = axis_indices.get().get(axis.name) if state.axes[axis.name][0] is None else None
        own: Any = cast(exchanges.replica_id(axis_name=axis.name) if known is None else known, np.dtype(np.int32))
        number = own if k == 0 else number * np.int32(axis.size) + own
    return number


class _Group:
    """The lanes that talk to one another: those along axes, or groups of these."""

    def __init__(self, what: str, axis_name: Any, groups: Groups) -> None:
        self.what = what
        self.axes = _axes(what, axis_name)
        self.size = _count(self.axes)
        self.members = None
        if groups is not None:
            members = [[operator.index(lane) for lane in group] for group in groups]
            lengths = {len(group) for group in members}
            if sorted(lane for group in members for lane in group) != list(range(self.size)) or len(lengths) > 1:
                names = " and ".join(repr(axis.name) for axis in self.axes)
                raise AttributeValueError(
                    f"{what}: axis_index_groups must have each of the {self.size} lanes of {names} once, in groups of "
                    f"one length, but is {groups!r}."
                )
            self.members = np.array(members, np.int32).reshape(len(members), -1)
            self.size = self.members.shape[1]

    @property
    def is_manual(self) -> bool:
        """Whether the axes are those of a `shard_map` which knows what varies along them."""
        return state.manual is not None and all(axis.name in state.manual.names for axis in self.axes)

    @property
    def participants(self) -> dict[str, Any] | None:
        """The attributes of a collective operation of this group; None if it is along several axes."""
        if len(self.axes) != 1:
            return None
        groups = () if self.members is None else tuple(map(tuple, self.members.tolist()))
        return {"axis_name": self.axes[0].name, "replica_groups": groups}

    def gathered(self, x: Any) -> Any:
        """The values of all lanes of the group, along a new first dimension."""
        whole = movement.reshape_to(x, (1, *x.shape))
        for axis in reversed(self.axes):
            whole = collectives.all_gather(whole, all_gather_dimension=0, shard_count=axis.size, axis_name=axis.name)
        if self.members is None:
            return whole
        own = np.empty((_count(self.axes), self.size), np.int32)  # for each lane, those of its group
        own[self.members] = self.members[:, None, :]
        return _rows(whole, _rows(own, _index(self.axes)))

    def gathered_once(self, x: Any) -> Any:
        """The same as one value, which is known to be the same on all devices: the sum of arrays each of which has the
        value of one lane, and zeros."""
        number = x if x.dtype != np.bool_ else cast(x, np.dtype(np.int32))
        sizes = (self.size, *x.shape)
        lanes = movement.iota(shape=Shape(element_type(np.int32), sizes), iota_dimension=0)
        own = elementwise.eq(lanes, movement.broadcast(_index(self.axes), sizes=sizes, dimensions=()))
        spread = movement.broadcast(number, sizes=sizes, dimensions=tuple(range(1, len(sizes))))
        found = elementwise.select(own, spread, movement.full(0, number.dtype, sizes))
        for axis in self.axes:
            found = varying.psum_invariant(found, axis_name=axis.name)
        return cast(found, x.dtype)

    def position(self) -> Any:
        """The number of the lane in its group."""
        number = _index(self.axes)
        if self.members is None:
            return number
        places = np.empty(_count(self.axes), np.int32)
        places[self.members] = np.arange(self.size)
        return _rows(places, number)


def _rows(x: Any, places: Any, axis: int = 0) -> Any:
    return take(x, places, axis, mode="clip")


def _split(what: str, x: Any, dimension: int, group: _Group, tiled: bool) -> Any:
    """A dimension with an element for each lane: of x as it is, or if it is `tiled` as many as lanes go into it."""
    length = x.shape[dimension]
    if not tiled and length != group.size:
        raise ShapeError(
            f"{what}: dimension {dimension} of {Shape.of(x)} must have an element for each of the {group.size} lanes; "
            "with tiled=True it may have several."
        )
    if not tiled:
        return x
    if length % max(group.size, 1):
        raise ShapeError(
            f"{what}: the size of dimension {dimension} of {Shape.of(x)} must be a multiple of the {group.size} lanes."
        )
    each = length // max(group.size, 1)
    return movement.reshape_to(x, (*x.shape[:dimension], group.size, each, *x.shape[dimension + 1 :]))


def _mapped(what: str, function: Callable[[Any], Any], tree: Any, computes: bool = False) -> Any:
    """A function of each leaf, which of random keys moves elements only; one that computes refuses them."""
    leaves, treedef = arrays_of(tree, f"{what}: the operand")
    if computes and any(pytrees.key_leaves(treedef)):
        refuse(what)
    return pytrees.unflatten(treedef, [function(x) for x in leaves])


# --- reductions -------------------------------------------------------------------------------------------------------


_REDUCERS = {"add": reduction.reduce_sum, "maximum": reduction.reduce_max, "minimum": reduction.reduce_min}


def _reduced(what: str, combiner: str, x: Any, axis_name: Any, groups: Groups) -> Any:
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    dimensions = [name for name in names if isinstance(name, int)]
    group = _Group(what, tuple(name for name in names if not isinstance(name, int)), groups)
    reduce = _REDUCERS[combiner]

    def leaf(x: Any) -> Any:
        if combiner == "add" and x.dtype == np.bool_:
            x = cast(x, np.dtype(np.int32))
        x = reduce(x, tuple(canonical_axis(d, x.ndim, what) for d in dimensions))
        if combiner != "add" and x.dtype.kind == "c":
            raise DTypeError(
                f"{what}: {combiner} does not take {Shape.of(x)}; take its real part or its absolute value."
            )
        to_apply = reduction.scalar_computation(combiner, x.dtype)
        if combiner == "add" and group.members is None and group.is_manual:
            for axis in group.axes:
                x = varying.psum_invariant(_own_summand(x, axis.name), axis_name=axis.name)
            return x
        if group.participants is not None:
            return collectives.all_reduce(x, to_apply=to_apply, **group.participants)
        if group.members is not None:
            return reduce(group.gathered(x), (0,))
        for axis in group.axes:
            x = collectives.all_reduce(x, to_apply=to_apply, axis_name=axis.name)
        return x

    return _mapped(what, leaf, x, computes=True)


def psum(x: Tree, axis_name: Any, *, axis_index_groups: Groups = None) -> Tree:
    """The sum over the examples along a named axis: the same for all of them.

    Args:
        x: a pytree of arrays. Of a Python number it is a Python number, so `psum(1, name)` is the size of the axis.
        axis_name: a name, or several; a number among them is a dimension of x.
        axis_index_groups: lanes that are summed together, instead of all.

    Returns:
        The sum, of the shapes and types of x.

    Raises:
        AxisNameError: there is no such axis.

    The derivative, too, is one of all examples together: the cotangent is the sum of all examples' cotangents.

    >>> import numpy as np
    >>> from tinyxla.lax import psum
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: x / psum(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    if isinstance(x, (bool, int, float, complex)):
        count: Any = _Group("lax.psum", axis_name, axis_index_groups).size
        return x * count
    return _reduced("lax.psum", "add", x, axis_name, axis_index_groups)


def _varying_over(x: Any, names: Sequence[Hashable]) -> Any:
    """A value as one that varies along these axes, of which it may along some already."""
    known = varying_axes(x)
    return x if known is None else spread_along(x, known, known.union(names))


def _own_summand(x: Any, name: Hashable) -> Any:
    """A summand of a sum over the devices along an axis, as a value that varies; others as they are."""
    if kind_along(varying_axes(x) or frozenset(), name) != "unreduced":
        return x
    return varying.recast(x, axis_name=name, source="unreduced", target="varying")


_CASTS = {("invariant", "varying"), ("invariant", "reduced"), ("varying", "unreduced"), ("reduced", "varying")}


def pvary(x: Tree, axis_name: Any) -> Tree:
    """Inside of `shard_map`, a value that all devices along an axis have, as one that may differ among them. It is what
    happens by itself where such a value meets one that differs; its transpose is a sum over the axis.

    Args:
        x: a pytree of arrays.
        axis_name: a name, or several.

    Returns:
        Arrays of the shapes of x.

    Raises:
        AxisNameError: there is no such axis.

    >>> import tinyxla as tx
    >>> mesh = tx.make_mesh((1,), ("x",))
    >>> P = tx.sharding.PartitionSpec
    >>> tx.shard_map(lambda x: tx.lax.pvary(x, "x"), mesh=mesh, in_specs=P(), out_specs=P("x"))(tx.numpy.ones(2))
    Array([1., 1.], dtype=float32)
    """
    names = [axis.name for axis in _axes("lax.pvary", axis_name)]
    return _mapped("lax.pvary", lambda x: _varying_over(x, names), x)


def pcast(x: Tree, axis_name: Any, *, to: str) -> Tree:
    """Inside of `shard_map`, a value of one kind as one of another along an axis. Nothing moves.

    Args:
        x: a pytree of arrays.
        axis_name: a name, or several.
        to: "varying" of a value that is the same on all devices, or reduced (as `pvary`); "unreduced" of one that
            varies: a summand of each device, whose sum is made by `psum` or `psum_scatter`; "reduced" of one that is
            the same: its cotangent is unreduced, so that the sum over devices can be made later.

    Returns:
        Arrays of the shapes of x.

    Raises:
        AttributeValueError: `to` is another word, or no such cast is there for what x is along the axis.

    >>> import tinyxla as tx
    >>> mesh = tx.make_mesh((1,), ("x",))
    >>> P = tx.sharding.PartitionSpec
    >>> f = tx.shard_map(lambda x: tx.lax.pcast(x, "x", to="varying"), mesh=mesh, in_specs=P(), out_specs=P("x"))
    >>> f(tx.numpy.ones(2))
    Array([1., 1.], dtype=float32)
    """
    if to not in ("varying", "unreduced", "reduced"):
        raise AttributeValueError(
            f"lax.pcast: to must be 'varying', 'unreduced' or 'reduced', but is {to!r}; use lax.psum for what is the "
            "same."
        )
    names = [axis.name for axis in _axes("lax.pcast", axis_name)]

    def leaf(x: Any) -> Any:
        known = varying_axes(x)
        for name in names if known is not None else ():
            source = kind_along(known, name)  # pyright: ignore[reportArgumentType]
            if (source, to) not in _CASTS and (source, to) != ("varying", "varying"):
                raise AttributeValueError(
                    f"lax.pcast: to={to!r} is for a value that is "
                    f"{' or '.join(kind for kind, target in sorted(_CASTS) if target == to)} along {name!r}, but this "
                    f"one is {source}."
                )
            if source == "invariant":
                x, source = varying.pvary(x, axis_name=name), "varying"
            if source != to:
                x = varying.recast(x, axis_name=name, source=source, target=to)
        return x

    return _mapped("lax.pcast", leaf, x)


def pmean(x: Tree, axis_name: Any, *, axis_index_groups: Groups = None) -> Tree:
    """The mean over the examples along a named axis; arguments as for `psum`.

    Args:
        x: an array, or a pytree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        axis_index_groups: lists of indices of examples, each index once: a result is that of the example's group; None
            for one group of all.

    Returns:
        The mean, of the shapes of x; of integers it is floating point.

    Raises:
        AxisNameError: there is no such axis.

    >>> import numpy as np
    >>> from tinyxla.lax import pmean
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: x - pmean(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float32)
    """
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    return pytrees.map_tree(lambda t: t / count, total)


def pmax(x: Tree, axis_name: Any, *, axis_index_groups: Groups = None) -> Tree:
    """The maximum over the examples along a named axis; arguments as for `psum`. Examples that tie for it share its
    derivative.

    Args:
        x: an array, or a pytree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        axis_index_groups: lists of indices of examples, each index once: a result is that of the example's group; None
            for one group of all.

    Returns:
        The maximum, of the shapes and types of x.

    Raises:
        AxisNameError: there is no such axis.

    >>> import numpy as np
    >>> from tinyxla.lax import pmax
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: pmax(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([3., 3.], dtype=float32)
    """
    return _reduced("lax.pmax", "maximum", x, axis_name, axis_index_groups)


def pmin(x: Tree, axis_name: Any, *, axis_index_groups: Groups = None) -> Tree:
    """The minimum over the examples along a named axis; arguments as for `psum`. Examples that tie for it share its
    derivative.

    Args:
        x: an array, or a pytree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        axis_index_groups: lists of indices of examples, each index once: a result is that of the example's group; None
            for one group of all.

    Returns:
        The minimum, of the shapes and types of x.

    Raises:
        AxisNameError: there is no such axis.

    >>> import numpy as np
    >>> from tinyxla.lax import pmin
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: pmin(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([1., 1.], dtype=float32)
    """
    return _reduced("lax.pmin", "minimum", x, axis_name, axis_index_groups)


# --- gathering and scattering -----------------------------------------------------------------------------------------


def all_gather(
    x: Tree,
    axis_name: Any,
    *,
    axis_index_groups: Groups = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Tree:
    """The values of all examples along a named axis: the same for all of them.

    Args:
        x: a pytree of arrays.
        axis_name: a name, or several.
        axis_index_groups: lanes that are gathered together, instead of all.
        axis: where in the result the examples run.
        tiled: along a dimension of x, one example after the other, instead of a new dimension.
        to: inside of `shard_map`, "invarying" makes a result that is known to be the same on all devices, so that its
            out_spec may lack the axis; its cotangent is one, too. "reduced" is the same, but its cotangent is
            unreduced.

    Returns:
        Arrays with a new dimension `axis` whose size is the number of examples; with `tiled`, that dimension is as many
        times longer.

    Raises:
        AxisNameError: there is no such axis.
        AttributeValueError: `to` is another word, or not "varying" for groups.

    >>> import numpy as np
    >>> from tinyxla.lax import all_gather
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: all_gather(x, "i"), axis_name="i")(np.array([1.0, 3.0]))
    Array([[1., 3.],
           [1., 3.]], dtype=float32)
    """
    what = "lax.all_gather"
    group = _Group(what, axis_name, axis_index_groups)
    if to not in ("varying", "invarying", "reduced"):
        raise AttributeValueError(f"{what}: to must be 'varying', 'invarying' or 'reduced', but is {to!r}.")
    if to != "varying" and group.members is not None:
        raise AttributeValueError(f"{what}: groups have different results; leave out to, or axis_index_groups.")

    def leaf(x: Any) -> Any:
        at = canonical_axis(axis, x.ndim + (not tiled), f"{what}: axis")
        if to == "reduced" and group.is_manual:
            found = all_gather(x, axis_name, axis=axis, tiled=tiled)
            for own in group.axes:
                found = varying.recast(found, axis_name=own.name, source="varying", target="reduced")
            return found
        if to == "invarying" and group.is_manual:
            found = movement.move_axis(group.gathered_once(x), 0, at)
            return collectives.merged(found, at) if tiled else found
        if group.participants is not None and group.size:
            whole = x if tiled else movement.reshape_to(x, (*x.shape[:at], 1, *x.shape[at:]))
            return collectives.all_gather(whole, all_gather_dimension=at, shard_count=group.size, **group.participants)
        found = movement.move_axis(group.gathered(x), 0, at)
        return collectives.merged(found, at) if tiled else found

    return _mapped(what, leaf, x)


def psum_scatter(
    x: Tree, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Groups = None, tiled: bool = False
) -> Tree:
    """Of the sum over the examples along a named axis, the part of each example.

    Args:
        x: a pytree of arrays.
        axis_name: a name, or several.
        scatter_dimension: the dimension that is divided among the examples. It has an element for each, and goes.
        axis_index_groups: lanes that are summed together, and share the sum, instead of all.
        tiled: the dimension has as many elements for each example, and stays.

    Returns:
        Arrays without the dimension `scatter_dimension`; with `tiled`, that dimension is divided by the number of
        examples.

    Raises:
        AxisNameError: there is no such axis.
        ShapeError: a size that the examples do not divide.

    >>> import numpy as np
    >>> from tinyxla.lax import psum_scatter
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: psum_scatter(x, "i"), axis_name="i")(np.array([[1.0, 3.0], [5.0, 7.0]]))
    Array([ 6., 10.], dtype=float32)
    """
    what = "lax.psum_scatter"
    group = _Group(what, axis_name, axis_index_groups)

    def leaf(x: Any) -> Any:
        for own in group.axes if group.members is None else ():
            x = _own_summand(x, own.name)
        at = canonical_axis(scatter_dimension, x.ndim, f"{what}: scatter_dimension")
        parts = _split(what, x, at, group, tiled)
        if group.participants is not None and group.size:
            own = collectives.reduce_scatter(
                parts,
                to_apply=reduction.scalar_computation("add", x.dtype),
                scatter_dimension=at,
                shard_count=group.size,
                **group.participants,
            )
            return movement.reshape_to(own, (*own.shape[:at], *own.shape[at + 1 :]))
        return _rows(reduction.reduce_sum(group.gathered(parts), (0,)), group.position(), at)

    return _mapped(what, leaf, x, computes=True)


def all_to_all(
    x: Tree, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Groups = None, tiled: bool = False
) -> Tree:
    """Each example hands each other one a part of its array, and puts together what it gets.

    Args:
        x: a pytree of arrays.
        axis_name: a name, or several.
        split_axis: the dimension that is divided among the examples. It has an element for each, and goes.
        concat_axis: where in the result what comes from the examples runs, in a new dimension.
        axis_index_groups: lanes that exchange among themselves, instead of all.
        tiled: both are dimensions that x has and the result has, with several elements for each example.

    Returns:
        Arrays in which the dimension `split_axis` is replaced by one of the same size at `concat_axis`; with `tiled`,
        the first is divided by the number of examples and the second multiplied by it.

    Raises:
        AxisNameError: there is no such axis.
        ShapeError: a size that the examples do not divide.

    >>> import numpy as np
    >>> from tinyxla.lax import all_to_all
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: all_to_all(x, "i", 0, 0), axis_name="i")(np.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    what = "lax.all_to_all"
    group = _Group(what, axis_name, axis_index_groups)

    def leaf(x: Any) -> Any:
        split = canonical_axis(split_axis, x.ndim, f"{what}: split_axis")
        concat = canonical_axis(concat_axis, x.ndim, f"{what}: concat_axis")
        parts = _split(what, x, split, group, tiled)
        if group.participants is not None:
            given = exchanges.all_to_all(movement.move_axis(parts, split, 0), dimensions=(0,), **group.participants)
        else:
            given = _rows(group.gathered(parts), group.position(), split + 1)
        found = movement.move_axis(given, 0, concat)
        return collectives.merged(found, concat) if tiled else found

    return _mapped(what, leaf, x)


def pswapaxes(x: Tree, axis_name: Any, axis: int, *, axis_index_groups: Groups = None) -> Tree:
    """A dimension of an array, with an element for each example, exchanged with the named axis.

    Args:
        x: an array, or a pytree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        axis: the dimension of each array; its size is that of the named axis.
        axis_index_groups: lists of indices of examples, each index once: a result is that of the example's group; None
            for one group of all.

    Returns:
        Arrays of the shapes of x.

    Raises:
        AxisNameError: there is no such axis.
        ShapeError: a dimension with another size than the named axis.

    >>> import numpy as np
    >>> from tinyxla.lax import pswapaxes
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: pswapaxes(x, "i", 0), axis_name="i")(np.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


# --- handing on -------------------------------------------------------------------------------------------------------


def ppermute(x: Tree, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Tree:
    """Examples hand their values to others along a named axis.

    Args:
        x: a pytree of arrays.
        axis_name: a name, or several.
        perm: pairs of the number of an example and of the one that gets its value; one that gets none has zeros.

    Returns:
        Arrays of the shapes of x.

    Raises:
        AxisNameError: there is no such axis.
        AttributeValueError: a number that is no example's, or that is there twice as a source or as a target.

    >>> import numpy as np
    >>> from tinyxla.lax import ppermute
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(np.array([1, 2, 3]))
    Array([0, 1, 2], dtype=int32)
    """
    what = "lax.ppermute"
    group = _Group(what, axis_name, None)
    try:
        pairs = tuple((operator.index(source), operator.index(target)) for source, target in perm)
    except (TypeError, ValueError):
        raise ArgumentError(f"{what}: perm must have pairs (source, target) of integers, but is {perm!r}.") from None
    for lanes in zip(*pairs, strict=True):
        if len(set(lanes)) < len(lanes) or not all(0 <= lane < group.size for lane in lanes):
            raise AttributeValueError(
                f"{what}: perm must have each source and each target once, from 0 to {group.size - 1}, but is {perm!r}."
            )

    def leaf(x: Any) -> Any:
        if group.participants is not None:
            return exchanges.collective_permute(x, source_target_pairs=pairs, axis_name=group.axes[0].name)
        sources = np.full(group.size, group.size, np.int32)
        for source, target in pairs:
            sources[target] = source
        whole = group.gathered(x)
        zeros = movement.full(0, x.dtype, (1, *x.shape))
        return _rows(movement.concatenate(whole, zeros, dimension=0), _rows(sources, group.position()))

    return _mapped(what, leaf, x)


def pshuffle(x: Tree, axis_name: Any, perm: Sequence[int]) -> Tree:
    """Example k gets the value of example `perm[k]` along a named axis.

    Args:
        x: an array, or a pytree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        perm: a permutation of the indices of the examples.

    Returns:
        Arrays of the shapes of x.

    Raises:
        AxisNameError: there is no such axis.
        AttributeValueError: no permutation of the examples.

    >>> import numpy as np
    >>> from tinyxla.lax import pshuffle
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: pshuffle(x, "i", [2, 0, 1]), axis_name="i")(np.array([1, 2, 3]))
    Array([3, 1, 2], dtype=int32)
    """
    size = _Group("lax.pshuffle", axis_name, None).size
    if sorted(perm) != list(range(size)):
        raise AttributeValueError(
            f"lax.pshuffle: perm must have each number from 0 to {size - 1} once, but is {perm!r}; for others use "
            "lax.ppermute."
        )
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


def pbroadcast(x: Tree, axis_name: Any, source: int) -> Tree:
    """The value of one example along a named axis, for all of them.

    Args:
        x: an array, or a pytree of arrays.
        axis_name: the name of an axis of `vmap`, `pmap` or `shard_map`, or a tuple of names.
        source: the index of the example whose value all get.

    Returns:
        Arrays of the shapes of x.

    Raises:
        AxisNameError: there is no such axis.
        AttributeValueError: a source that is no example's number.

    >>> import numpy as np
    >>> from tinyxla.lax import pbroadcast
    >>> import tinyxla as tx
    >>> tx.vmap(lambda x: pbroadcast(x, "i", 1), axis_name="i")(np.array([1, 2, 3]))
    Array([2, 2, 2], dtype=int32)
    """
    what = "lax.pbroadcast"
    group = _Group(what, axis_name, None)
    if not 0 <= source < group.size:
        raise AttributeValueError(f"{what}: source must be from 0 to {group.size - 1}, but is {source!r}.")

    def leaf(x: Any) -> Any:
        if group.participants is None:
            return movement.reshape_to(movement.slice_axis(group.gathered(x), 0, source, source + 1), x.shape)
        others = (lane for lane in range(group.size) if lane != source)
        return exchanges.collective_broadcast(x, replica_groups=((source, *others),), axis_name=group.axes[0].name)

    return _mapped(what, leaf, x)
