"""`jax.ref`: mutable arrays."""

from tinyxla.jax.jaxprs.avals import AbstractRef as AbstractRef
from tinyxla.jax.jaxprs.refs import (
    Ref as Ref,
    addupdate as addupdate,
    empty_ref as empty_ref,
    free_ref as free_ref,
    freeze as freeze,
    get as get,
    new_ref as new_ref,
    set as set,
    swap as swap,
)
