"""`jax.lax`: `tinyxla.lax`, loops and branches that jaxprs show, and the primitives `add_p`, `sin_p`, ..."""

from tinyxla.jax.errors.index_checks import (
    gather as gather,
    scatter as scatter,
    scatter_add as scatter_add,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_sub as scatter_sub,
)
from tinyxla.jax.jaxprs.loops.control_flow import (
    cond as cond,
    fori_loop as fori_loop,
    map_ as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from tinyxla.jax.jaxprs.primitives.catalogue import primitives as _primitives
from tinyxla.jax.jaxprs.primitives.recorded_functions import compositions as _compositions, integer_pow as integer_pow


def dce_sink(val, *, prevent_mlir_dce=False):
    """Nothing: what a program computes and does not use is left out."""


globals().update(_compositions)
globals().update({f"{name.replace('-', '_')}_p": primitive for name, primitive in _primitives.items()})
linear_solve_p = _primitives["custom_linear_solve"]
