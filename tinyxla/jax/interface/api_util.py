"""`jax.api_util`."""

from tinyxla.jax.stages.donated import (
    donation_vector as donation_vector,
    rebase_donate_argnums as rebase_donate_argnums,
)
from tinyxla.jax.tracing.linear_util import (
    argnums_partial as argnums_partial,
    debug_info as debug_info,
    flatten_axes as flatten_axes,
    flatten_fun as flatten_fun,
    flatten_fun_nokwargs as flatten_fun_nokwargs,
    safe_map as safe_map,
    safe_zip as safe_zip,
    shaped_abstractify as shaped_abstractify,
)
