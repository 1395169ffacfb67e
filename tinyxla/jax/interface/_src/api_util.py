"""`jax._src.api_util`."""

from tinyxla.jax.stages.donated import (
    donation_vector as donation_vector,
    infer_argnums_and_argnames as infer_argnums_and_argnames,
    rebase_donate_argnums as rebase_donate_argnums,
)
from tinyxla.jax.tracing.linear_util import (
    argnums_partial as argnums_partial,
    debug_info as debug_info,
    flatten_axes as flatten_axes,
    flatten_fun as flatten_fun,
    flatten_fun_nokwargs as flatten_fun_nokwargs,
    shaped_abstractify as shaped_abstractify,
)
