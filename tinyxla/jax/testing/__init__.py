"""Test utilities: the names of `jax._src.test_util`, which JAX's own tests and those of packages use."""
