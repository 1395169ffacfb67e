"""`jax.test_util`: derivatives against finite differences, with JAX's steps and tolerances."""

from tinyxla.jax.testing.tolerances import check_grads, check_jvp, check_vjp

__all__ = ["check_grads", "check_jvp", "check_vjp"]
