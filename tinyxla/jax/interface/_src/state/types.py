"""`jax._src.state.types`."""

from tinyxla.jax.avals import AbstractRef as AbstractRef
from tinyxla.jax.jaxprs import RefEffect as RefEffect
