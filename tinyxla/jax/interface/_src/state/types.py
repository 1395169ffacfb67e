"""`jax._src.state.types`."""

from tinyxla.jax.jaxprs.avals import AbstractRef as AbstractRef
from tinyxla.jax.jaxprs.jaxpr import RefEffect as RefEffect
