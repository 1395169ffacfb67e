"""`jax._src.state.types`."""

from tinyxla.jax.jaxprs import RefEffect as RefEffect
from tinyxla.jax.refs import AbstractRef as AbstractRef
