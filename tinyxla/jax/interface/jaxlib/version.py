"""`jaxlib`: its version."""
