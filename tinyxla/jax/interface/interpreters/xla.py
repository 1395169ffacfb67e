"""`jax.interpreters.xla`."""

import numpy as np

from tinyxla.jax.jaxprs.avals import get_aval
from tinyxla.tracing.promotion import as_array


def apply_primitive(primitive, *args, **params):
    """The results of a primitive for concrete arrays by its lowering: programs say by
    `def_impl(partial(apply_primitive, primitive))` that it has no other implementation."""
    return primitive.apply_lowering(*args, **params)


# What makes arrays, and abstract values, of NumPy's: types that programs add are converted by their __array__.
canonicalize_dtype_handlers = {np.ndarray: as_array}
pytype_aval_mappings = {np.ndarray: get_aval}
