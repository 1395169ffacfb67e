"""`jax.lax.linalg`: that of tinyxla, and its primitives."""

from tinyxla.jax.jaxprs.primitives.catalogue import FACTORIZATIONS as _NAMES, primitives as _primitives
from tinyxla.jax.jaxprs.primitives.recorded_functions import factorizations as _factorizations

globals().update(_factorizations)
globals().update({f"{name}_p": _primitives[name] for name in ("cholesky", "svd", *_NAMES)})
