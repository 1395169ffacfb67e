"""Functions of geometry, under the names of `jax.scipy.spatial`."""

from tinyxla.scipy.spatial import transform as transform
