"""Functions of arrays of few dimensions, mapped over all further ones: `vectorize`, `apply_along_axis`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tinyxla.api import vmap
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import ArrayLike, array_of, broadcast_shapes, function_of, is_several
from tinyxla.numpy.manipulation import expand_dims, moveaxis, squeeze
from tinyxla.numpy.operations import movement
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.pytrees import map_tree
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed

_TERM = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(f"^{_TERM}(?:,{_TERM})*->{_TERM}(?:,{_TERM})*$")

Cores = list[tuple[str, ...]]  # the names of the core dimensions, of each argument or result


@boundary
def vectorize(pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = (), signature: str | None = None) -> Any:
    """A function of any arrays, of one of arrays of few dimensions: mapped over the others, which broadcast.

    Args:
        pyfunc: the function.
        excluded: numbers, and names, of the arguments that are passed as they are. Keyword arguments must be among
            them; None is passed as it is, too.
        signature: the core dimensions of arguments and results, as `"(m,n),(n)->(m)"`; without it, there are none.

    Returns:
        A function of arrays of any further dimensions.

    Raises:
        ArgumentError: a signature that is none, or that does not fit the arguments or results.
        ShapeError: core dimensions of different sizes.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> dot = jnp.vectorize(jnp.dot, signature="(n),(n)->()")
        >>> dot(jnp.ones((2, 3)), jnp.ones(3))
        Array([3., 3.], dtype=float32)
    """
    _check_excluded(excluded)
    cores = None if signature is None else core_dimensions(signature)

    @transformed("vectorize", pyfunc)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        others = [name for name in kwargs if name not in excluded]
        if others:
            raise ArgumentError(
                f"vectorize: the keyword arguments {others} are not among those excluded; pass them by position, or "
                "name them in excluded."
            )
        mapped_over = [k for k in range(len(args)) if k not in excluded]
        taken, given = cores or ([()] * len(mapped_over), None)
        if len(taken) != len(mapped_over):
            raise ArgumentError(
                f"vectorize: the signature {signature!r} is for {len(taken)} arguments, but {len(mapped_over)} are "
                "mapped."
            )
        absent = [k for k, names in zip(mapped_over, taken, strict=True) if args[k] is None and names]
        if absent:
            raise ArgumentError(
                f"vectorize: Cannot pass None at locations {set(absent)}, which have core dimensions in {signature!r}."
            )
        taken = [names for k, names in zip(mapped_over, taken, strict=True) if args[k] is not None]
        places = [k for k in mapped_over if args[k] is not None]
        arrays = [array_of(args[k], "vectorize") for k in places]
        sizes: dict[str, int] = {}
        for k, names, x in zip(places, taken, arrays, strict=True):
            check_sizes(f"{signature!r} argument {k}", names, x, sizes, exactly=False)

        def function(*values: Any) -> Any:
            whole = list(args)
            for k, value in zip(places, values, strict=True):
                whole[k] = value
            result = pyfunc(*whole, **kwargs)
            if given is not None:
                check_results(str(signature), given, result, sizes)
            return result

        return _over_outer(function, arrays, [len(names) for names in taken])

    return mapped


def _check_excluded(excluded: Any) -> None:
    if (
        not isinstance(excluded, Collection)
        or isinstance(excluded, str)
        or not all(isinstance(x, str) or (isinstance(x, int) and x >= 0) for x in excluded)
    ):
        raise ArgumentError(
            f"vectorize: excluded must have numbers of arguments, from 0, and names, but is {excluded!r}."
        )


def core_dimensions(signature: str) -> tuple[Cores, Cores]:
    """The core dimensions of arguments and results that a signature names."""
    text = signature.replace(" ", "")
    if not _SIGNATURE.match(text):
        raise ArgumentError(f"vectorize: {signature!r} is no signature; write for example '(m,n),(n)->(m)'.")
    taken, given = (
        [tuple(name for name in term[1:-1].split(",") if name) for term in re.findall(_TERM, side)]
        for side in text.split("->")
    )
    return taken, given


def check_sizes(what: str, names: Sequence[str], x: Array, sizes: dict[str, int], exactly: bool) -> None:
    """The last dimensions, or `exactly` all of them, have the sizes of their names, which are noted."""
    if x.ndim < len(names) or (exactly and x.ndim != len(names)):
        raise ShapeError(f"vectorize: by {what} has {len(names)} dimensions, but got shape {x.shape}.")
    for name, n in zip(names, x.shape[x.ndim - len(names) :], strict=True):
        if sizes.setdefault(name, n) != n:
            raise ShapeError(f"vectorize: by {what} has size {sizes[name]} in dimension {name}, but got size {n}.")


def check_results(signature: str, given: Cores, result: Any, sizes: dict[str, int]) -> None:
    """Results are as many, and have the core dimensions, that a signature says."""
    several = isinstance(result, (tuple, list))
    results: Sequence[Any] = result if several else (result,)
    if len(results) != len(given):
        found = f"{len(results)} in a {type(result).__name__}" if several else "one"
        raise ArgumentError(f"vectorize: by {signature!r} there are {len(given)} results, but there is {found}.")
    known = dict(sizes)
    for k, (names, x) in enumerate(zip(given, results, strict=True)):
        check_sizes(f"{signature!r} result {k}", names, array_of(x, "vectorize"), known, exactly=True)


def _over_outer(function: Callable[..., Any], arrays: Sequence[Array], ranks: Sequence[int]) -> Any:
    """Map over the outer dimensions, last first; an array of size 1 along one of them takes no part there."""
    outer = broadcast_shapes("vectorize", *(x.shape[: x.ndim - rank] for x, rank in zip(arrays, ranks, strict=True)))
    inputs: list[Array] = []
    maps: list[list[int | None]] = []
    for x, rank in zip(arrays, ranks, strict=True):
        missing = len(outer) - (x.ndim - rank)
        shape = (1,) * missing + x.shape
        single = [d for d in range(len(outer)) if shape[d] == 1 and outer[d] != 1]
        inputs.append(squeeze(x, [d - missing for d in single if d >= missing]))
        maps.append([None if d in single or d < missing else 0 for d in range(len(outer))])
    for d in reversed(range(len(outer))):
        axes = tuple(m[d] for m in maps)
        if any(axis is not None for axis in axes):
            function = vmap(function, axes)
    return function(*inputs)


@boundary
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Array:
    """A function of vectors, applied to all along an axis at once: it is called with a traced vector.

    Args:
        func1d: a function of a vector, and of `args` and `kwargs`. It gives an array, or a pytree of arrays.
        axis: the axis; negative ones count from the end.
        arr: an array.
        *args, **kwargs: further arguments of the function.

    Returns:
        An array, or a pytree like the function's result: the axis is replaced by those of the function's result.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.apply_along_axis(jnp.sum, 0, jnp.array([[1, 2], [3, 4]]))
        Array([4, 6], dtype=int32)
    """
    x = array_of(arr, "apply_along_axis")
    along = canonical_axis(axis, x.ndim, "apply_along_axis")
    function_of("apply_along_axis", "func1d", func1d)
    behind = moveaxis(x, along, -1)
    outer = behind.shape[:-1]
    rows = movement.reshape_to(behind, (math.prod(outer), behind.shape[-1]))

    def function(vector: Array) -> Any:
        return map_tree(lambda leaf: array_of(leaf, "apply_along_axis"), func1d(vector, *args, **kwargs))

    def at_axis(found: Array) -> Array:
        found = movement.reshape_to(found, (*outer, *found.shape[1:]))
        inner = found.ndim - len(outer)
        return moveaxis(found, tuple(range(len(outer), found.ndim)), tuple(range(along, along + inner)))

    return map_tree(at_axis, vmap(function)(rows))


@boundary
def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: int | Sequence[int]) -> Array:
    """A reduction over several axes, one after the other; axes that it removes come back with size 1.

    Args:
        func: a function of an array and an axis, such as `numpy.sum`.
        a: an array.
        axes: an axis, or several.

    Returns:
        An array of the same rank.

    Raises:
        AxisError: an axis that the array does not have.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> jnp.apply_over_axes(jnp.sum, jnp.ones((2, 3, 4)), (0, 2))
        Array([[[8.],
                [8.],
                [8.]]], dtype=float32)
    """
    x = array_of(a, "apply_over_axes")
    for axis in axes if is_several(axes) else (axes,):
        along = canonical_axis(axis, x.ndim, "apply_over_axes")
        found = array_of(function_of("apply_over_axes", "func", func)(x, along), "apply_over_axes")
        x = expand_dims(found, along) if found.ndim == x.ndim - 1 else found
    return x
