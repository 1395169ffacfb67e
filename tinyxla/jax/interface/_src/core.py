"""`jax._src.core`."""

from tinyxla.jax.jaxprs.avals import AbstractValue as AbstractValue, ShapedArray as ShapedArray, get_aval as get_aval
from tinyxla.jax.jaxprs.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    Var as Var,
    eval_jaxpr as eval_jaxpr,
    jaxpr_as_fun as jaxpr_as_fun,
)
from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive as Primitive
from tinyxla.jax.jaxprs.refs import freeze as freeze, new_ref as new_ref
from tinyxla.jax.jaxprs.traces.current_trace import (
    EvalTrace as EvalTrace,
    TraceContext as _TraceContext,
    set_current_trace as set_current_trace,
    take_current_trace as take_current_trace,
)
from tinyxla.jax.jaxprs.traces.program_traces import JaxTrace as Trace, JaxTracer as Tracer
from tinyxla.jax.tracing.trace_state import (
    TraceTag as TraceTag,
    concrete_or_error as concrete_or_error,
    find_top_trace as find_top_trace,
    trace_state_clean as trace_state_clean,
)
from tinyxla.shapes.symbolic import is_symbolic as is_symbolic_dim

typeof = get_aval
mutable_array = new_ref


def is_constant_dim(d):
    """Whether a size is known."""
    return not is_symbolic_dim(d)


def definitely_equal(x, y):
    """Whether two sizes are the same number, or the same polynomial."""
    return x is y or x == y


trace_ctx = _TraceContext()
call_p, closed_call_p = _primitives["call"], _primitives["closed_call"]
