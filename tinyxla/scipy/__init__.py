"""Functions under the names of `jax.scipy`."""

from tinyxla.scipy import linalg, special

__all__ = ["linalg", "special"]
