"""`jax.scipy.special`."""

from tinyxla.jax.legendre import lpmn_values as lpmn_values
