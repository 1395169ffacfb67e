"""`jax.experimental.hijax`."""

from tinyxla.jax.jaxprs.avals import (
    AbstractRef as AbstractRef,
    AbstractValue as AbstractValue,
    ShapedArray as ShapedArray,
    Zero as Zero,
    instantiate_zeros as instantiate_zeros,
    is_undefined_primal as is_undefined_primal,
)
from tinyxla.jax.jaxprs.primitives.hi_primitives import VJPHiPrimitive as VJPHiPrimitive
from tinyxla.jax.jaxprs.primitives.hijax import (
    AvalMutableQDD as AvalMutableQDD,
    AvalQDD as AvalQDD,
    HiPrimitive as HiPrimitive,
    HiType as HiType,
    MutableHiType as MutableHiType,
    aval_method as aval_method,
    aval_property as aval_property,
    control_flow_allowed_effects as control_flow_allowed_effects,
    register_hitype as register_hitype,
)
