"""`jax._src.pjit`."""

from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives

jit_p = _primitives["jit"]
