"""`jax._src.compiler`: programs of this library are not compiled through it."""
