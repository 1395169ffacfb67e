"""The few names of `jax.core` that programs use: to ask whether a value is traced, and what its type is."""

from tinyxla.api import ShapeDtypeStruct as ShapedArray
from tinyxla.api.context_managers import ensure_compile_time_eval
from tinyxla.tracing.core import Trace, Tracer

__all__ = ["ShapedArray", "Trace", "Tracer", "ensure_compile_time_eval"]


def __dir__() -> list[str]:
    return __all__
