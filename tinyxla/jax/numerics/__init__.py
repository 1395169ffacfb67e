"""Functions that JAX has and the library does not."""
