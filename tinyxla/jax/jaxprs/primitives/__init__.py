"""JAX's primitives and those that programs define."""
