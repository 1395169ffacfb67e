"""`jax._src.named_sharding`."""

from tinyxla.sharding import NamedSharding as NamedSharding
