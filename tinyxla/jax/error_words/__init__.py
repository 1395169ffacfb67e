"""What JAX says where this library has errors of its own words."""
