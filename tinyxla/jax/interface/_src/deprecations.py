"""`jax._src.deprecations`."""

from tinyxla.jax.errors.deprecations import (
    accelerate as accelerate,
    is_accelerated as is_accelerated,
    register as register,
    unregister as unregister,
    warn as warn,
)
