"""`jaxlib._jax`."""

from tinyxla.api.jit import Jitted as PjitFunction
from tinyxla.tracing.device import Device

__all__ = ["Device", "PjitFunction"]
