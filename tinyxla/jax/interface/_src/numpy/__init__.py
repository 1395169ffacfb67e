"""`jax._src.numpy`: what packages whose arrays are of their own, such as quaxed and unxt, take from it."""
