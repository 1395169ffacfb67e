"""Structures of pytrees as JAX has them."""
