"""Solvers of large linear systems, under the name of `jax.scipy.sparse`."""

from tinyxla.scipy.sparse import linalg as linalg
