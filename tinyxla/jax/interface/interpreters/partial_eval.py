"""`jax.interpreters.partial_eval`."""

from tinyxla.jax.jaxprs.partial_evaluation import (
    PartialVal as PartialVal,
    dce_jaxpr as dce_jaxpr,
    dce_rules as dce_rules,
    trace_to_jaxpr_dynamic as trace_to_jaxpr_dynamic,
    trace_to_jaxpr_nounits as trace_to_jaxpr_nounits,
)
from tinyxla.tracing.core import GraphTracer as DynamicJaxprTracer

JaxprTracer = DynamicJaxprTracer
custom_partial_eval_rules: dict = {}
partial_eval_jaxpr_custom_rules: dict = {}
