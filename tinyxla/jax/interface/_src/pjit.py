"""`jax._src.pjit`."""

from tinyxla.api.sharding.axis_types import auto_axes as auto_axes, explicit_axes as explicit_axes
from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives

jit_p = _primitives["jit"]
