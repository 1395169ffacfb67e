"""`jax._src.ad_checkpoint`."""

from tinyxla.ad_checkpoint import saved_residuals as _saved_residuals
from tinyxla.jax.jaxprs.avals import ShapedArray as _ShapedArray


def saved_residuals(f, *args, **kwargs):
    """The abstract values of the residuals of a function, and where they come from."""
    return [
        (_ShapedArray(shape.dimensions, shape.dtype), origin) for shape, origin in _saved_residuals(f, args, kwargs)
    ]
