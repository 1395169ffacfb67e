"""`jax.memory`: kinds of memory."""

from tinyxla.jax.devices.memory_spaces import Space as Space
