"""Attributes of arrays, traces and options that JAX's interface alone has, given to this library's classes."""

from __future__ import annotations

from typing import Any

from tinyxla.compilation import Jitted, PlacingJitted
from tinyxla.custom_derivatives import SymbolicZero
from tinyxla.jax import flags
from tinyxla.jax.avals import ShapedArray
from tinyxla.jax.consumed_keys import consumption
from tinyxla.jax.key_reuse import checking
from tinyxla.jax.random_primitives import record_generators
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Trace, Tracer
from tinyxla.tracing.options import Config, define_option
from tinyxla.transforms.key_arrays import KeyArray


def _aval(self: Any) -> ShapedArray:
    """The shape, element type and weakness."""
    return ShapedArray(self.shape, self.dtype, getattr(self, "weak_type", False))


def _trace(self: Any) -> Trace:
    """The trace to which a tracer belongs."""
    return self.owner


def _main(self: Any) -> Any:
    """What is the same for all tracers of one trace: the trace."""
    return self


def set_attributes() -> None:
    """Give the classes these attributes, and generators of random bits their primitives."""
    record_generators()
    define_option("debug_key_reuse", False)
    KeyArray._consumed = property(consumption)  # type: ignore[attr-defined]
    for kind in (Jitted, PlacingJitted):
        kind._general = checking(kind._general)  # type: ignore[method-assign]
    for kind in (Array, KeyArray, SymbolicZero):
        kind.aval = property(_aval)  # type: ignore[attr-defined]
    # As in JAX, NumPy's functions take arrays for their values and give NumPy's arrays, which can be written to;
    # operators between arrays of both give this library's.
    for protocol in ("__array_ufunc__", "__array_function__"):
        delattr(Array, protocol)
    Tracer._trace = property(_trace)  # type: ignore[attr-defined]
    Trace.main = property(_main)  # type: ignore[attr-defined]
    for method in (flags.config_with_absl, flags.parse_flags_with_absl, flags.read):
        setattr(Config, method.__name__, method)
    # Programs tell functions that are compiled by the name of their type.
    for kind in (Jitted, PlacingJitted):
        kind.__name__ = kind.__qualname__ = "PjitFunction"
        kind.__module__ = "jaxlib._jax"
    Config.values = property(flags.values)  # type: ignore[attr-defined]
