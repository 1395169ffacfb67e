"""`jax._src.tree_util`."""

from tinyxla.jax.pytrees.prefixes import prefix_errors as prefix_errors
from tinyxla.jax.pytrees.registry import Registry as _Registry
from tinyxla.jax.pytrees.treedefs import *  # noqa: F403
from tinyxla.tree_util import *  # noqa: F403

_registry = _Registry()
