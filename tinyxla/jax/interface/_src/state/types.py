"""`jax._src.state.types`."""

from tinyxla.jax.refs import AbstractRef as AbstractRef
