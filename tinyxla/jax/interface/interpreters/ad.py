"""`jax.interpreters.ad`: derivative rules."""

from tinyxla.jax.jaxprs.avals import (
    UndefinedPrimal as UndefinedPrimal,
    Zero as Zero,
    add_tangents as add_tangents,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
    zeros_like_aval as zeros_like_aval,
)
from tinyxla.jax.jaxprs.primitives.program_primitives import (
    defbilinear as defbilinear,
    defjvp as defjvp,
    defjvp2 as defjvp2,
    deflinear as deflinear,
    deflinear2 as deflinear2,
    primitive_jvps as primitive_jvps,
    primitive_transposes as primitive_transposes,
)
from tinyxla.transforms.forward import TangentTrace as JVPTrace, TangentTracer as JVPTracer

add_jaxvals = add_tangents


def get_primitive_transpose(primitive):
    """The transpose rule of a primitive."""
    return primitive_transposes[primitive]
