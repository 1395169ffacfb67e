"""`jax._src.numpy.util`."""

import tinyxla.numpy as jnp
from tinyxla.jax.interface._src.dtypes import to_complex_dtype, to_inexact_dtype


def promote_dtypes(*args):
    """The arrays in the element type that operations on all of them give."""
    return [jnp.asarray(x, jnp.result_type(*args)) for x in args]


def promote_dtypes_inexact(*args):
    """The arrays in the floating or complex element type of functions of all of them."""
    return [jnp.asarray(x, to_inexact_dtype(jnp.result_type(*args))) for x in args]


def promote_dtypes_complex(*args):
    """The arrays in the complex element type of functions of all of them."""
    return [jnp.asarray(x, to_complex_dtype(jnp.result_type(*args))) for x in args]
