"""`jax._src.lax.linalg`: that of tinyxla, and its primitives."""

from tinyxla.jax.interface.lax.linalg import *  # noqa: F403
from tinyxla.lax.linalg import *  # noqa: F403
