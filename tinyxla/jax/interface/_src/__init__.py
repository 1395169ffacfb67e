"""The few private modules of JAX that packages import."""
