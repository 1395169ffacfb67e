"""`jax.experimental.sparse.bcsr`: that of tinyxla, and its primitives."""

from tinyxla.jax.jaxprs.primitives.sparse_primitives import sparse_primitives as _primitives

globals().update({name: primitive for name, primitive in _primitives.items() if name.startswith("bcsr_")})
