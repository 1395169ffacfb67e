"""`jax.experimental.custom_partitioning`: functions that say how they are partitioned. On one device they run whole."""

from tinyxla.util.wrapping import wraps


class custom_partitioning:
    """A function with rules for its partitioning, which are not needed on one device.

    Args:
        fun: of arrays.
        static_argnums: positions of arguments that stay Python values.
    """

    def __init__(self, fun, static_argnums=()):
        wraps(fun)(self)
        self.fun = fun

    def def_partition(self, partition=None, infer_sharding_from_operands=None, propagate_user_sharding=None, **rules):
        """Set the rules."""
        self.partition = partition

    def __call__(self, *args, **kwargs):
        return self.fun(*args, **kwargs)
