"""`jax._src.shard_map`."""

from tinyxla.api.shard_map import shard_map as shard_map, smap as smap
