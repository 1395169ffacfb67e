"""Functions of shards over meshes. There is one device, so that each mesh axis has size 1 and a shard is all of an
array; inside the function the axes have their names for collective operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinyxla.errors import ArgumentError
from tinyxla.jax.recording import with_axes
from tinyxla.partitioning.placement import placed
from tinyxla.tracing import pytrees
from tinyxla.tracing.device import Placement
from tinyxla.tracing.meshes import AbstractMesh, current_mesh
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec
from tinyxla.util.wrapping import wraps

Function = Callable[..., Any]


def shard_map(
    f: Function | None = None,
    /,
    *,
    out_specs: Any = None,
    in_specs: Any = None,
    mesh: AbstractMesh | None = None,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
    **ignored: Any,
) -> Any:
    """A function of shards as one of whole arrays.

    Args:
        f: of pytrees of arrays, the shards.
        out_specs, in_specs: pytrees of `PartitionSpec`s.
        mesh: over which arrays are split; by default the current one.
        axis_names: the mesh axes that f is about; by default all.

    Raises:
        ArgumentError: there is no mesh.

    Example:
        >>> import tinyxla.jax
        >>> import jax
        >>> mesh = jax.make_mesh((1,), ("x",))
        >>> f = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P())
        >>> f(jax.numpy.ones(2))
        Array([1., 1.], dtype=float32)
    """
    if f is None:
        return functools.partial(
            shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, check_vma=check_vma
        )
    function = f

    @wraps(function)
    def whole(*args: Any) -> Any:
        over = current_mesh() if mesh is None else mesh
        if over.empty:
            raise ArgumentError("shard_map: there is no mesh; pass one, or make one the current by set_mesh.")
        names = [name for name in over.axis_names if not axis_names or name in axis_names]
        found = with_axes([(name, 1) for name in names], lambda: function(*args))
        return placed("shard_map: out_specs", found, _over(over, out_specs))

    return whole


def _over(mesh: AbstractMesh, specs: Any) -> Any:
    """The shardings of a pytree of specs over a mesh."""

    def over_mesh(x: Any) -> Any:
        return NamedSharding(mesh, x) if isinstance(x, PartitionSpec) else x

    return pytrees.map_tree(over_mesh, specs, is_leaf=lambda x: x is None or isinstance(x, Placement))


def positional_shard_map(f: Function, mesh: Any, in_specs: Any, out_specs: Any, **options: Any) -> Function:
    """The same with the mesh by position, as `jax.experimental.shard_map` has it."""
    return shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


def reshard(x: Any, out_shardings: Any) -> Any:
    """The arrays with another sharding: on one device the same ones, which tell it outside of compiled functions."""
    return placed("reshard", x, out_shardings)
