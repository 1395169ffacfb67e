"""Types of values that `vmap` takes apart by rules of the user's, though they are no pytrees:
`jax.interpreters.batching.register_vmappable`.

Such a value has an axis of a type that was registered with it, in the place of an integer in `in_axes` and `out_axes`.
The function gets a value of the same type: that of one example.

Source: the tests of JAX's `jax.interpreters.batching`; there is no documentation of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import vmap as vmap_of_arrays
from tinyxla.errors import ArgumentError, AttributeValueError, ShapeError
from tinyxla.jax.errors.vmap_sizes import size_words
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.util.wrapping import transformed


@dataclass(frozen=True)
class _Vmappable:
    """What is registered with a type of values."""

    axis_type: type
    to_example: Callable[..., Any]
    from_example: Callable[..., Any]


_vmappables: dict[type, _Vmappable] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[..., Any],
    from_elt: Callable[..., Any],
    make_iota: Callable[..., Any] | None = None,
) -> None:
    """Have `vmap` map over values of a type.

    Args:
        data_type: the type.
        spec_type: the type of what stands for an axis of such values in `in_axes` and `out_axes`.
        axis_size_type: the type of numbers of examples: int.
        to_elt: `to_elt(take, index, value, axis)` gives the value of one example, in which each array x is
            `take(x, k)`, the part of one example along the axis k; `index()` gives the number of the example.
        from_elt: `from_elt(stack, size, value, axis)` gives the value of all examples from that of one, in which each
            array x is `stack(size, x, k)`.
        make_iota: not needed where numbers of examples are integers.

    Raises:
        ArgumentError: the number of examples is of another type.
    """
    if axis_size_type is not int or make_iota is not None:
        raise ArgumentError(
            f"register_vmappable of {data_type.__name__}: numbers of examples must be int, and make_iota be None, but "
            f"got {axis_size_type!r} and {make_iota!r}."
        )
    _vmappables[data_type] = _Vmappable(spec_type, to_elt, from_elt)


def unregister_vmappable(data_type: type) -> None:
    """Undo `register_vmappable`."""
    del _vmappables[data_type]


def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
    spmd_axis_name: Hashable | None = None,
    sum_match: bool = False,
) -> Callable[..., Any]:
    """`vmap`, which also maps over values of types that are registered by `register_vmappable`."""
    names: dict[str, Any] = {"axis_name": axis_name, "spmd_axis_name": spmd_axis_name}
    options: dict[str, Any] = {**names, "axis_size": axis_size, "sum_match": sum_match}
    plain = vmap_of_arrays(fun, in_axes, out_axes, **options)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes

    @transformed("vmap", fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if not _vmappables or not _has_axis_of_type((axes, out_axes)):
            try:
                return plain(*args, **kwargs)
            except ShapeError as error:
                if "the mapped axes must have one size" in error.args[0] and not hasattr(error, "in_jax"):
                    error.in_jax = size_words(fun, args, kwargs, axes, options.get("axis_size"))  # type: ignore[attr-defined]
                raise
        return _Call(fun, args, kwargs, axes, out_axes).mapped(options)

    if fun.__doc__:
        name = getattr(fun, "__name__", "a function")
        mapped.__doc__ = (
            f"Vectorized version of {name}: its arguments have one more axis where `in_axes` says.\n\n"
            f"Original documentation:\n\n{fun.__doc__}"
        )
    return mapped


def is_vmappable(x: Any) -> bool:
    """Whether a value is of a type that `register_vmappable` knows."""
    return type(x) in _vmappables


def _has_axis_of_type(axes: Any) -> bool:
    types = tuple(kind.axis_type for kind in _vmappables.values())
    return any(isinstance(axis, types) for axis in pytrees.leaves(axes))


def _example(x: Any, axis: Any, take: Callable[[Any, Any], Any], index: Callable[[], Any]) -> Any:
    """One example of a value; what is not mapped may be any object, and is passed on as it is."""
    if axis is None:
        return x
    if not is_vmappable(x):
        return take(x, axis)
    return _vmappables[type(x)].to_example(lambda x, axis: _example(x, axis, take, index), index, x, axis)


def _whole(size: int, x: Any, axis: Any, stack: Callable[[Any, Any], Any]) -> Any:
    """All examples of a value."""
    if not is_vmappable(x):
        return stack(x, axis)
    if axis is None:
        return x
    return _vmappables[type(x)].from_example(lambda size, x, axis: _whole(size, x, axis, stack), size, x, axis)


class _Call:
    """A call of a mapped function with values of registered types: `vmap` of the arrays in them."""

    def __init__(self, fun: Callable[..., Any], args: Any, kwargs: Any, in_axes: Any, out_axes: Any) -> None:
        self.fun = fun
        self.out_axes = out_axes
        self.leaves, self.tree = pytrees.flatten_shown((args, kwargs))
        named = len(pytrees.flatten_shown(kwargs)[0])
        self.axes = pytrees.broadcast_prefix(in_axes, args, "vmap: in_axes") + [0] * named
        self.arrays: list[Any] = []
        self.array_axes: list[int] = []
        for x, axis in zip(self.leaves, self.axes, strict=True):
            _example(x, axis, self._add, lambda: 0)

    def _add(self, x: Any, axis: Any) -> Any:
        """Note an array, and give what has the shape of one example."""
        x = x if isinstance(x, KeyArray) else as_array(x)
        if not isinstance(axis, int):
            raise ArgumentError(f"vmap: in_axes has {axis!r} for an array; give an integer or None.")
        axis = canonical_axis(axis, x.ndim, "vmap: in_axes")
        self.arrays.append(x)
        self.array_axes.append(axis)
        return tnp.zeros(x.shape[:axis] + x.shape[axis + 1 :], x.dtype)

    def mapped(self, options: dict[str, Any]) -> Any:
        """The results of all examples."""
        size = options.get("axis_size")
        if size is None and not self.arrays:
            raise AttributeValueError("vmap: no argument is mapped over; name an axis in in_axes, or pass axis_size.")
        size = self.arrays[0].shape[self.array_axes[0]] if size is None else size
        places: list[Any] = []  # of the arrays in results; vmap looks at them after it has called the function
        made: list[Any] = []

        def of_arrays(index: Any, *arrays: Any) -> list[Any]:
            left, found = iter(arrays), []
            pairs = zip(self.leaves, self.axes, strict=True)
            values = [_example(x, axis, lambda x, axis: next(left), lambda: index) for x, axis in pairs]
            args, kwargs = pytrees.unflatten(self.tree, values)
            result = self.fun(*args, **kwargs)
            made[:] = *pytrees.flatten_shown(result), pytrees.broadcast_prefix(self.out_axes, result, "vmap: out_axes")

            def note(x: Any, axis: Any) -> Any:
                found.append(x)
                places.append(axis)
                return x if axis is None else tnp.expand_dims(x, axis)

            for x, axis in zip(made[0], made[2], strict=True):
                _whole(size, x, axis, note)
            return found

        inner = vmap_of_arrays(of_arrays, (0, *self.array_axes), places, **options)
        results = iter(inner(np.arange(size, dtype=np.int32), *self.arrays))
        pairs = zip(made[0], made[2], strict=True)
        return pytrees.unflatten(made[1], [_whole(size, x, axis, lambda x, axis: next(results)) for x, axis in pairs])
