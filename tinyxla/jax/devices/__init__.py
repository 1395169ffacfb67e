"""Devices, their memories, and how arrays lie in them, as JAX describes these."""
