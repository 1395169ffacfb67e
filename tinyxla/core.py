"""The few names of `jax.core` that programs use: to ask whether a value is traced, what its type is, and for the
greater or smaller of two sizes that may be symbolic."""

from tinyxla.api import ShapeDtypeStruct as ShapedArray
from tinyxla.api.context_managers import ensure_compile_time_eval
from tinyxla.shapes.symbolic import max_dim, min_dim
from tinyxla.tracing.core import Trace, Tracer

__all__ = ["ShapedArray", "Trace", "Tracer", "ensure_compile_time_eval", "max_dim", "min_dim"]


def __dir__() -> list[str]:
    return __all__
