"""`jax.core`."""

import numpy as np

from tinyxla.api.context_managers import ensure_compile_time_eval as ensure_compile_time_eval
from tinyxla.errors import InconclusiveDimensionOperation as InconclusiveDimensionOperation
from tinyxla.jax.jaxprs.avals import AbstractValue as AbstractValue, ShapedArray as ShapedArray, get_aval as _get_aval
from tinyxla.jax.jaxprs.jaxpr import (
    Atom as Atom,
    ClosedJaxpr as ClosedJaxpr,
    DebugInfo as DebugInfo,
    DropVar as DropVar,
    Effect as Effect,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    Var as Var,
    check_jaxpr as check_jaxpr,
    eval_jaxpr as eval_jaxpr,
    gensym as gensym,
    jaxpr_as_fun as jaxpr_as_fun,
    jaxprs_in_params as jaxprs_in_params,
    no_effects as no_effects,
    subjaxprs as subjaxprs,
)
from tinyxla.jax.jaxprs.primitives.program_primitives import Primitive as Primitive
from tinyxla.jax.jaxprs.traces.program_traces import JaxTrace as Trace, JaxTracer as Tracer
from tinyxla.jax.tracing.trace_state import (
    concrete_or_error as concrete_or_error,
    find_top_trace as find_top_trace,
    get_opaque_trace_state as get_opaque_trace_state,
    is_under_jit as unsafe_am_i_under_a_jit_DO_NOT_USE,
    is_under_vmap as unsafe_am_i_under_a_vmap_DO_NOT_USE,
    named_axes as unsafe_get_axis_names_DO_NOT_USE,
    nonempty_axis_env as nonempty_axis_env_DO_NOT_USE,
    primal_dtype_to_tangent_dtype as primal_dtype_to_tangent_dtype,
    trace_state_clean as trace_state_clean,
    valid_jaxtype as valid_jaxtype,
)
from tinyxla.shapes.symbolic import max_dim as max_dim, min_dim as min_dim
from tinyxla.tracing.array import Array as Value

Effects = frozenset
ParamDict = dict
get_aval = _get_aval
new_jaxpr_eqn = JaxprEqn  # with the same arguments
pytype_aval_mappings = {np.ndarray: _get_aval}
eval_context = ensure_compile_time_eval

__all__ = """
    AbstractValue Atom ParamDict ShapedArray Trace Tracer Value ensure_compile_time_eval eval_context eval_jaxpr max_dim
    min_dim pytype_aval_mappings
""".split()
