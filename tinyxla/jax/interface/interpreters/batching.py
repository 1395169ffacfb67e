"""`jax.interpreters.batching`: batching rules."""

from tinyxla.jax.jaxprs.primitives.program_primitives import (
    AxisData as AxisData,
    axis_primitive_batchers as axis_primitive_batchers,
    bdim_at_front as bdim_at_front,
    defbroadcasting as defbroadcasting,
    defreducer as defreducer,
    defvectorized as defvectorized,
    fancy_primitive_batchers as fancy_primitive_batchers,
    moveaxis as moveaxis,
    not_mapped as not_mapped,
    primitive_batchers as primitive_batchers,
)
from tinyxla.jax.jaxprs.traces.vmappables import (
    is_vmappable as is_vmappable,
    register_vmappable as register_vmappable,
    unregister_vmappable as unregister_vmappable,
)
from tinyxla.transforms.batch import BatchTrace as BatchTrace

NotMapped = type(None)


def broadcast(x, size, axis, *ignored):
    """An array repeated along a new axis."""
    return moveaxis(bdim_at_front(x, None, size), 0, axis)
