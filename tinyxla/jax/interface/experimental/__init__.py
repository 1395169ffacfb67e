"""`jax.experimental`."""

from tinyxla import enable_x64 as enable_x64
from tinyxla.jax.host_calls.callbacks import io_callback as io_callback
from tinyxla.jax.jaxprs.primitives.hijax import cur_qdd as cur_qdd
