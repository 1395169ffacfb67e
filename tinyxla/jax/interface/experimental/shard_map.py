"""`jax.experimental.shard_map`."""

from tinyxla.jax.sharded import positional_shard_map as shard_map

__all__ = ["shard_map"]
