"""`vectorize`: a function of arrays of few dimensions, mapped over all further ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tinyxla.api import vmap
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import array_of, broadcast_shapes
from tinyxla.numpy.manipulation import squeeze
from tinyxla.tracing.array import Array

_TERM = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(f"^{_TERM}(?:,{_TERM})*->{_TERM}(?:,{_TERM})*$")


def vectorize(pyfunc: Callable[..., Any], *, excluded: Collection[int] = (), signature: str | None = None) -> Any:
    """A function of any arrays, of one of arrays of few dimensions: mapped over the others, which broadcast.

    Args:
        pyfunc: the function.
        excluded: numbers of the arguments that are passed as they are.
        signature: the core dimensions of arguments and results, as `"(m,n),(n)->(m)"`; without it, there are none.

    Example:
        >>> import tinyxla.numpy as jnp
        >>> dot = jnp.vectorize(jnp.dot, signature="(n),(n)->()")
        >>> dot(jnp.ones((2, 3)), jnp.ones(3))
        Array([3., 3.], dtype=float32)
    """
    cores = None if signature is None else _core_dimensions(signature)

    @functools.wraps(pyfunc)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        places = [k for k in range(len(args)) if k not in excluded]
        arrays = [array_of(args[k], "vectorize") for k in places]
        ranks = [0] * len(arrays) if cores is None else [len(c) for c in cores]
        if len(ranks) != len(arrays):
            raise ArgumentError(f"vectorize: the signature {signature!r} does not fit {len(arrays)} arguments.")
        if cores is not None:
            _check_sizes(str(signature), cores, arrays)

        def function(*values: Any) -> Any:
            whole = list(args)
            for k, value in zip(places, values, strict=True):
                whole[k] = value
            return pyfunc(*whole, **kwargs)

        return _over_outer(function, arrays, ranks)

    return mapped


def _core_dimensions(signature: str) -> list[tuple[str, ...]]:
    text = signature.replace(" ", "")
    if not _SIGNATURE.match(text):
        raise ArgumentError(f"vectorize: {signature!r} is no signature; write for example '(m,n),(n)->(m)'.")
    terms = re.findall(_TERM, text.split("->")[0])
    return [tuple(name for name in term[1:-1].split(",") if name) for term in terms]


def _check_sizes(signature: str, cores: Sequence[tuple[str, ...]], arrays: Sequence[Array]) -> None:
    sizes: dict[str, int] = {}
    for names, x in zip(cores, arrays, strict=True):
        if x.ndim < len(names):
            raise ShapeError(f"vectorize: {signature!r} takes {len(names)} dimensions, but got shape {x.shape}.")
        for name, n in zip(names, x.shape[x.ndim - len(names) :], strict=True):
            if sizes.setdefault(name, n) != n:
                raise ShapeError(f"vectorize: in {signature!r} the dimension {name} has sizes {sizes[name]} and {n}.")


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
