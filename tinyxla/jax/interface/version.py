"""`jax.version`."""

from tinyxla.jax.finder import JAX_VERSION as __version__

__version_info__ = tuple(map(int, __version__.split(".")))
