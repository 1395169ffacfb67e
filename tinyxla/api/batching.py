"""`vmap`: a function of one example as one of many."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from tinyxla.api.functions import Function, OfLeaves, argument_names, arrays_of, check_callable, name_of
from tinyxla.errors import ArgumentError, AttributeValueError, PytreeError, ShapeError, ShardingTypeError
from tinyxla.ops import movement, reduction
from tinyxla.shapes import Shape
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.float_zeros import as_float0, as_numbers, is_float0
from tinyxla.tracing.references import Reference, check_whole, reference_of, write_all
from tinyxla.tracing.shardings import axes_of
from tinyxla.tracing.signatures import P, R
from tinyxla.transforms import batch as batch_flat
from tinyxla.transforms.sharding_types import type_of_examples, with_examples_along
from tinyxla.util.name_stacks import VMAP
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed, wraps


@boundary
def vmap(
    fun: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable | None = None,
    sum_match: bool = False,
) -> Callable[P, R]:
    """Map a function over an axis of its arguments, at the cost of one call.

    Args:
        fun: written for one example.
        in_axes: for each positional argument (or for all) the axis to map over, or None; may be a pytree that is a
            prefix of the arguments. Keyword arguments are mapped over their first axis.
        out_axes: where the mapped axis stands in the results; may be a prefix of the result. None says that a result is
            the same for all examples; a number of Python, or an array of NumPy, then stays what it is.
        axis_name: a name of the axis, over which examples can talk to each other: `lax.psum(x, axis_name)` and the
            like. Where a name is given twice, the inner axis has it.
        axis_size: the number of examples, needed only where no argument has the axis.
        spmd_axis_name: an axis of a mesh, or a tuple of such, along which the examples are split wherever the function
            states a sharding, by `lax.with_sharding_constraint` or as a `shard_map`.
        sum_match: where `out_axes` is None for a result that differs between examples, give their sum.

    Returns:
        A function of the same arguments with one more axis, and results with one more axis.

    Raises:
        ArgumentError: an argument or result that is no array.
        PytreeError: axes in another structure than the arguments or results.
        AttributeValueError: no argument is mapped over, or `out_axes` is None for a result that differs.
        ShapeError: an axis that an array does not have, or axes of different sizes.
        ShardingTypeError: the examples of arguments are split along different explicit axes of a mesh.

    Example:
        >>> import tinyxla as tx
        >>> tx.vmap(lambda x, y: x @ y, in_axes=(0, None))(tx.numpy.ones((2, 3)), tx.numpy.ones(3))
        Array([3., 3.], dtype=float32)
    """
    check_callable("vmap", fun)
    what = f"vmap of {name_of(fun)}"
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    _check_axes(f"{what}: in_axes", in_axes, is_of_arguments=True)
    _check_axes(f"{what}: out_axes", out_axes)
    if not isinstance(axis_name, Hashable):
        raise ArgumentError(f"{what}: axis_name must be hashable, as a string is, but is {axis_name!r}.")
    if not isinstance(spmd_axis_name, Hashable):
        raise ArgumentError(
            f"{what}: spmd_axis_name must be an axis of a mesh, or a tuple of such, but is {spmd_axis_name!r}."
        )
    mesh_axes = axes_of(spmd_axis_name)
    mapping = _Mapping(what, cast(Any, fun), in_axes, out_axes, axis_name, axis_size, sum_match, mesh_axes)

    @transformed("vmap", fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return mapping.call(args, kwargs)

    return mapped


@dataclass(frozen=True)
class _Mapping:
    """A function with the arguments of `vmap`; `what` names it in errors."""

    what: str
    fun: Function
    in_axes: Any
    out_axes: Any
    axis_name: Hashable | None
    axis_size: int | None
    sum_match: bool
    mesh_axes: tuple[Hashable, ...] = ()

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        what = self.what
        _check_count(what, self.in_axes, args)
        leaves, treedef = pytrees.flatten((args, kwargs))
        wanted = pytrees.broadcast_prefix(self.in_axes, args, f"{what}: in_axes")
        wanted += [0] * (len(leaves) - len(wanted))
        if Reference.exist and any(reference_of(x) is not None for x in leaves):
            check_whole(what, (args, kwargs))
            return self._with_references(leaves, treedef, wanted)

        def name(k: int) -> str:
            return f"argument {argument_names(args, kwargs)[k]}"

        are_zeros = [is_float0(x) for x in leaves]
        leaves = as_numbers(leaves) if any(are_zeros) else leaves
        of_keys = pytrees.key_leaves(treedef)
        axes = [_axis(leaves, k, axis, of_keys[k], what, name) for k, axis in enumerate(wanted)]
        size = _batch_size(leaves, axes, name, self.axis_size, what)
        returned: list[Any] = []
        flat = OfLeaves(self._of_numbers(returned), treedef, named=True)

        def of_leaves(*values: Any) -> Any:
            return flat(*(as_float0(x) if zero else x for x, zero in zip(values, are_zeros, strict=True)))

        names = () if self.axis_name is None else (self.axis_name,)
        typed = type_of_examples(what, leaves, axes)
        if typed and self.mesh_axes not in ((), typed[1]):
            raise ShardingTypeError(
                f"{what}: spmd_axis_name is {self.mesh_axes}, but the examples are split along {typed[1]} by their "
                "type; leave it out, or reshard the arguments."
            )
        mesh_axes = typed[1] if typed else self.mesh_axes
        results = batch_flat(
            of_leaves if any(are_zeros) else flat, size, leaves, axes, *names, mesh_axes=mesh_axes, scope=VMAP
        )
        placed = self._placed(results, returned, flat.tree, size, typed)
        return flat.result(as_float0(x) if is_float0(returned[k]) else x for k, x in enumerate(placed))

    def _of_numbers(self, returned: list[Any]) -> Function:
        """The function with numbers for results of the type float0; `returned` gets the leaves of its result that are
        these, numbers of Python or arrays of NumPy, and None for others."""
        fun = self.fun

        @wraps(fun)
        def of_numbers(*args: Any, **kwargs: Any) -> Any:
            result = fun(*args, **kwargs)
            returned[:] = [x if isinstance(x, _HOST_VALUES) or is_float0(x) else None for x in pytrees.leaves(result)]
            return as_numbers(result) if any(map(is_float0, returned)) else result

        return of_numbers

    def _placed(
        self,
        results: Sequence[tuple[Any, int | None]],
        returned: Sequence[Any],
        tree: pytrees.TreeDef,
        size: int,
        typed: Any,
    ) -> Iterator[Any]:
        """Results, each with the axis of examples where `out_axes` says; what is the same for all examples is split
        among these as the arguments are. Numbers of Python and arrays of NumPy that get no axis stay what they are."""
        whole = pytrees.with_placeholders(tree)
        targets = pytrees.broadcast_prefix(self.out_axes, whole, f"{self.what}: out_axes")
        of_keys = pytrees.key_leaves(tree)
        for k, ((value, axis), to) in enumerate(zip(results, targets, strict=True)):
            if to is None and axis is not None and self.sum_match and not of_keys[k]:
                yield reduction.reduce_sum(value, (axis,))
            elif to is None and isinstance(returned[k], _HOST_VALUES) and not of_keys[k]:
                yield returned[k]
            else:
                name = lambda k=k: f"{self.what}: the result{pytrees.leaf_names(whole)[k]}"  # noqa: E731
                found = _placed(value, axis, to, size, of_keys[k], name)
                is_new = typed and axis is None and to is not None and not of_keys[k]
                yield with_examples_along(found, to % found.ndim, *typed) if is_new else found

    def _with_references(self, leaves: list[Any], treedef: pytrees.TreeDef, axes: list[Any]) -> Any:
        """References among the arguments: each example has one of its own, and what these hold is written back."""
        fun, references = self.fun, {k: r for k, x in enumerate(leaves) if (r := reference_of(x)) is not None}

        @wraps(fun)
        def of_values(values: list[Any]) -> Any:
            own = {k: r.like(values[k]) for k, r in references.items()}
            args, kwargs = pytrees.unflatten(treedef, [own[k].target if k in own else x for k, x in enumerate(values)])
            result = fun(*args, **kwargs)
            return result, [r.read() for r in own.values()]

        out_axes = (self.out_axes, [axes[k] for k in references])
        given = [references[k].read() if k in references else x for k, x in enumerate(leaves)]
        one = replace(self, fun=of_values, in_axes=(axes,), out_axes=out_axes)
        result, after = one.call((given,), {})
        write_all([*references.values()], after)
        return result


_HOST_VALUES = (bool, int, float, complex, np.generic, np.ndarray)


def _check_axes(what: str, axes: Any, is_of_arguments: bool = False) -> None:
    """An error for axes that are no integers, or those of arguments in another container than a tuple."""
    if is_of_arguments and isinstance(axes, Mapping):
        raise PytreeError(
            f"{what} must be an axis, or a tuple with an entry for each positional argument, but is {axes!r}; put it "
            "into a tuple."
        )
    for axis in pytrees.leaves(axes):
        if isinstance(axis, (bool, np.bool_, np.ndarray, Array, float)):
            raise AttributeValueError(f"{what} must consist of integers and None, but has {axis!r}.")


def _check_count(what: str, in_axes: Any, args: tuple[Any, ...]) -> None:
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise PytreeError(
            f"{what}: in_axes must have one entry for each positional argument, but {in_axes} has {len(in_axes)} "
            f"and the call has {len(args)}."
        )


def _axis(leaves: list[Any], k: int, axis: Any, of_keys: bool, what: str, name: Callable[[int], str]) -> int | None:
    """The axis that a leaf is mapped over, which makes it an array. What is not mapped over may be anything. Words of
    keys are not mapped over their last axis."""
    if axis is None:
        return None
    (leaves[k],), _ = arrays_of(leaves[k], f"{what}: ", lambda: [name(k)])
    rank = leaves[k].ndim - of_keys
    if not isinstance(axis, int) or not -rank <= axis < rank:
        axis = canonical_axis(axis, rank, f"{what}: in_axes for {name(k)}")
    return axis % rank


def _batch_size(
    inputs: Sequence[Any], axes: Sequence[int | None], name: Callable[[int], str], given: int | None, what: str
) -> int:
    mapped = [(k, x, a) for k, (x, a) in enumerate(zip(inputs, axes, strict=True)) if a is not None]
    sizes = {x.shape[a] for _, x, a in mapped}
    if given is not None:
        if not hasattr(given, "__index__"):
            raise ArgumentError(f"{what}: axis_size must be an integer, but is {given!r}.")
        if given < 0:
            raise ShapeError(f"{what}: axis_size must not be negative, but is {given}.")
        sizes.add(operator.index(given))
    if not sizes:
        raise AttributeValueError(f"{what}: no argument is mapped over; name an axis in in_axes, or pass axis_size.")
    if len(sizes) > 1:
        told = [f"{name(k)} is {Shape.of(x)} and mapped over its axis {a}" for k, x, a in mapped]
        told += [f"axis_size is {given}"] if given is not None else []
        raise ShapeError(f"{what}: the mapped axes must have one size, but have {sorted(sizes)}: {', '.join(told)}.")
    return sizes.pop()


def _placed(value: Any, axis: int | None, to: Any, size: int, of_keys: bool, name: Callable[[], str]) -> Any:
    if to is None:
        if axis is not None:
            raise AttributeValueError(
                f"{name()} differs between examples, along axis {axis}, but out_axes is None for it; give the axis "
                "along which to stack the examples, or return what is the same for all, such as lax.psum of it over a "
                "named axis."
            )
        return value
    rank = value.ndim + (axis is None) - of_keys
    if not isinstance(to, int) or not -rank <= to < rank:
        to = canonical_axis(to, rank, f"{name()}, with the axis of examples: out_axes")
    return movement.align_axis(value, axis, to % rank, size)
