"""`jax._src.internal_test_util`."""
