"""`jax._src.state.types`."""

from tinyxla.jax.avals import AbstractRef as AbstractRef
