"""`jaxlib.xla_client`: the classes that programs name."""

from tinyxla.errors import TinyxlaError as XlaRuntimeError
from tinyxla.tracing.array import Array as ArrayImpl
from tinyxla.tracing.device import Device
from tinyxla.tracing.shardings import NamedSharding, Sharding, SingleDeviceSharding

__all__ = ["ArrayImpl", "Device", "NamedSharding", "Sharding", "SingleDeviceSharding", "XlaRuntimeError"]
