"""`jax._src.dispatch`."""

from tinyxla.api.callbacks import effects_barrier as wait_for_tokens
from tinyxla.jax.interface.interpreters.xla import apply_primitive as apply_primitive
from tinyxla.jax.testing.counters import PrimitivePrograms as _PrimitivePrograms
from tinyxla.tracing.shardings import SingleDeviceSharding as _SingleDeviceSharding


def is_single_device_sharding(sharding):
    """Whether a sharding is of one device, with no mesh."""
    return isinstance(sharding, _SingleDeviceSharding)


xla_primitive_callable = _PrimitivePrograms()

__all__ = ["wait_for_tokens"]
