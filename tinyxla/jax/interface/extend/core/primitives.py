"""`jax.extend.core.primitives`: `add_p`, `jit_p`, `scan_p`, ..."""

from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives
from tinyxla.jax.jaxprs.primitives.random_primitives import RANDOM as _RANDOM

globals().update({f"{name.replace('-', '_')}_p": primitive for name, primitive in (_primitives | _RANDOM).items()})
add_jaxvals_p, linear_solve_p = _primitives["add_any"], _primitives["custom_linear_solve"]
remat_p = _primitives["remat2"]
