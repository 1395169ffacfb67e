"""`jax.experimental.sparse`: that of tinyxla, and the primitives `bcoo_todense_p`, ..."""

from tinyxla.jax.jaxprs.primitives.sparse_primitives import sparse_primitives as _primitives

globals().update(_primitives)
