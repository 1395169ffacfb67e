"""`jax.extend.core`: primitives and jaxprs."""

from tinyxla.jax.jaxprs.avals import mapped_aval as mapped_aval, unmapped_aval as unmapped_aval
from tinyxla.jax.jaxprs.jaxpr import (
    ClosedJaxpr as ClosedJaxpr,
    DebugInfo as DebugInfo,
    DropVar as DropVar,
    Effect as Effect,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    Var as Var,
    check_jaxpr as check_jaxpr,
    gensym as gensym,
    jaxpr_as_fun as jaxpr_as_fun,
    jaxprs_in_params as jaxprs_in_params,
    no_effects as no_effects,
    subjaxprs as subjaxprs,
)
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive as Primitive
from tinyxla.jax.jaxprs.traces.current_trace import (
    set_current_trace as set_current_trace,
    take_current_trace as take_current_trace,
)
from tinyxla.jax.tracing.trace_state import (
    AbstractToken as AbstractToken,
    Token as Token,
    TraceTag as TraceTag,
    array_types as array_types,
    concrete_or_error as concrete_or_error,
    find_top_trace as find_top_trace,
    get_opaque_trace_state as get_opaque_trace_state,
    is_under_jit as unsafe_am_i_under_a_jit_DO_NOT_USE,
    is_under_vmap as unsafe_am_i_under_a_vmap_DO_NOT_USE,
    named_axes as unsafe_get_axis_names_DO_NOT_USE,
    nonempty_axis_env as nonempty_axis_env_DO_NOT_USE,
    primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    valid_jaxtype as valid_jaxtype,
)

Effects = frozenset
new_jaxpr_eqn = JaxprEqn  # with the same arguments
CallPrimitive = Primitive


def call_impl(function, *args):
    """Calls a function."""
    return function(*args)
