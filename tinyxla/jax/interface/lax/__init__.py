"""`jax.lax`: `tinyxla.lax`, loops and branches that jaxprs show, and the primitives `add_p`, `sin_p`, ..."""

from tinyxla.jax.catalogue import primitives as _primitives
from tinyxla.jax.control_flow import (
    cond as cond,
    fori_loop as fori_loop,
    map_ as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)

globals().update({f"{name}_p": primitive for name, primitive in _primitives.items()})
