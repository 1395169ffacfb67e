"""Arrays, tracers and traces; promotion of types; pytrees."""

from tinyxla.tracing.array import Array, ConcreteArray, set_namespace, wrap
from tinyxla.tracing.core import GraphTrace, GraphTracer, Trace, Tracer, bind, state, trace
from tinyxla.tracing.promotion import as_array, config, promote_types

__all__ = [
    "Array",
    "ConcreteArray",
    "GraphTrace",
    "GraphTracer",
    "Trace",
    "Tracer",
    "as_array",
    "bind",
    "config",
    "promote_types",
    "set_namespace",
    "state",
    "trace",
    "wrap",
]
