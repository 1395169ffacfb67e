"""`jax._src.lax.control_flow`."""

from tinyxla.jax.interface.lax import (
    cond as cond,
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from tinyxla.lax import associative_scan as associative_scan
