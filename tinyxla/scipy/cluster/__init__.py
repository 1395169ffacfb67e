"""Functions under the names of `jax.scipy.cluster`."""

from tinyxla.scipy.cluster import vq as vq
