"""`jax.interpreters.mlir`: what primitives are made of in compiled programs. Programs are lowered to this library's
graph, whose values stand where MLIR's do in the rules."""

from tinyxla.jax.host_calls.callbacks import emit_python_callback as emit_python_callback
from tinyxla.jax.jaxprs.primitives.program_primitives import (
    lower_fun as lower_fun,
    register_lowering as register_lowering,
)
from tinyxla.jax.tracing.trace_state import Token as Token

LoweringRule = LoweringRuleContext = object
