"""`jax.core`."""

import numpy as np

from tinyxla.api.context_managers import ensure_compile_time_eval as ensure_compile_time_eval
from tinyxla.jax.avals import AbstractValue as AbstractValue, ShapedArray as ShapedArray, get_aval as _get_aval
from tinyxla.jax.jaxprs import Atom as Atom, eval_jaxpr as eval_jaxpr
from tinyxla.tracing.array import Array as Value
from tinyxla.tracing.core import Trace as Trace, Tracer as Tracer

ParamDict = dict
pytype_aval_mappings = {np.ndarray: _get_aval}
eval_context = ensure_compile_time_eval
max_dim, min_dim = max, min

__all__ = """
    AbstractValue Atom ParamDict ShapedArray Trace Tracer Value ensure_compile_time_eval eval_context eval_jaxpr max_dim
    min_dim pytype_aval_mappings
""".split()
