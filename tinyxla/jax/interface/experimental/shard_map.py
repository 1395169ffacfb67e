"""`jax.experimental.shard_map`."""

from tinyxla.api.sharding.shard_map import shard_map as _shard_map


def shard_map(f, mesh, in_specs, out_specs, check_rep=True, auto=frozenset()):
    """`jax.shard_map` with the mesh by position."""
    names = frozenset(mesh.axis_names) - frozenset(auto)
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep, axis_names=names)


__all__ = ["shard_map"]
