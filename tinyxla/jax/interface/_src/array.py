"""`jax._src.array`."""

from tinyxla.tracing.array import ConcreteArray as ArrayImpl

__all__ = ["ArrayImpl"]
