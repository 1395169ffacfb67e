"""`jax.memory`: kinds of memory."""

from tinyxla.jax.memory_spaces import Space as Space
