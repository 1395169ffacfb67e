"""Functions under the names of `jax.scipy`."""

from tinyxla.scipy import special

__all__ = ["special"]
