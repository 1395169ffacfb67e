"""`jax._src.ad_util`."""

from tinyxla.jax.jaxprs.avals import Zero as Zero, add_tangents as add_tangents, instantiate_zeros as instantiate_zeros
from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives

stop_gradient_p = _primitives["stop_gradient"]


def p2tz(primal):
    """The zero tangent of a value."""
    return Zero.from_primal_value(primal)
