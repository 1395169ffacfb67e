"""`jaxlib._jax`."""

from tinyxla.api.jit import Jitted as PjitFunction
from tinyxla.tracing.array import ConcreteArray as ArrayImpl
from tinyxla.tracing.device import Device

__all__ = ["ArrayImpl", "Device", "PjitFunction"]
