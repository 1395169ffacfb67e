"""What JAX's own tests, and tests of packages, take from `jax._src.test_util`."""
