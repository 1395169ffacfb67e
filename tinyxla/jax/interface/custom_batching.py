"""`jax.custom_batching`: that of tinyxla, with loops that jaxprs show."""

from tinyxla.custom_batching import sequential_vmap as _sequential_vmap
from tinyxla.jax.jaxprs.loops.control_flow import map_ as _map


def sequential_vmap(f):
    """A function that under `vmap` runs for one example after the other, by `lax.map`."""
    return _sequential_vmap(f, lax_map=_map)
