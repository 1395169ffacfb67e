"""`jax._src.lax_reference`: operations of `jax.lax` by NumPy and SciPy."""

from tinyxla.jax.testing.lax_reference import functions as _functions

globals().update(_functions)
