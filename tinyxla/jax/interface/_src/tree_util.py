"""`jax._src.tree_util`."""

from tinyxla.jax.registry import Registry as _Registry
from tinyxla.tree_util import *  # noqa: F403

_registry = _Registry()
