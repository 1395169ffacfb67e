"""`jaxlib`: its version."""

from tinyxla.jax.finder import JAX_VERSION as __version__
