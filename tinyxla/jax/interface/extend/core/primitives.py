"""`jax.extend.core.primitives`: `add_p`, `jit_p`, `scan_p`, ..."""

from tinyxla.jax.catalogue import primitives as _primitives

globals().update({f"{name}_p": primitive for name, primitive in _primitives.items()})
call_p, remat_p = _primitives["core_call"], _primitives["checkpoint"]
