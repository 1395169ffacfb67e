"""How arrays lie in memory, as JAX describes it: all are dense and row-major."""

from __future__ import annotations

from typing import Any, NamedTuple

from tinyxla.tracing import pytrees


class Layout(NamedTuple):
    """The order of dimensions in memory, the slowest first."""

    major_to_minor: tuple[int, ...]
    tiling: Any = None
    sub_byte_element_size_in_bits: int = 0


class Format(NamedTuple):
    """A layout and a sharding."""

    layout: Layout | None = None
    sharding: Any = None


def _dense(shape: tuple[int, ...], sharding: Any) -> Format:
    return Format(Layout(tuple(range(len(shape))), ()), sharding)


def array_format(x: Any) -> Format:
    """The format of an array."""
    return _dense(x.shape, x.sharding)


def _formats(types: Any, shardings: Any) -> Any:
    leaves, structure = pytrees.flatten_shown(types)
    pairs = zip(leaves, pytrees.leaves(shardings), strict=True)
    return pytrees.unflatten(structure, [_dense(x.shape, sharding) for x, sharding in pairs])


def input_formats(compiled: Any) -> Any:
    """`(args, kwargs)` with the format of each array."""
    return _formats(compiled.args_info, compiled.input_shardings)


def output_formats(compiled: Any) -> Any:
    """The result with the format of each array."""
    return _formats(compiled.out_info, compiled.output_shardings)
