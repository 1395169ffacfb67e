"""`jax.experimental.shard_alike`."""

from tinyxla.errors import ShapeError
from tinyxla.lax import with_sharding_constraint
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import NamedSharding


def shard_alike(x, y):
    """Two arrays of one shape and element type, sharded alike: the second as the first, if that is sharded.

    Raises:
        ShapeError: their shapes or element types differ.
    """
    first, second = as_array(x, "shard_alike"), as_array(y, "shard_alike")
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        raise ShapeError(
            f"shard_alike: the arrays must have one shape and element type, but are {first.dtype.name}"
            f"{list(first.shape)} and {second.dtype.name}{list(second.shape)}."
        )
    if isinstance(first.sharding, NamedSharding):
        return first, with_sharding_constraint(second, first.sharding)
    if isinstance(second.sharding, NamedSharding):
        return with_sharding_constraint(first, second.sharding), second
    return first, second
