"""`jax.experimental.pallas`, in its interpreted form."""

from tinyxla.jax.pallas.blocks import (
    Blocked as Blocked,
    BlockSpec as BlockSpec,
    Buffered as Buffered,
    Element as Element,
    GridSpec as GridSpec,
    RevisitMode as RevisitMode,
    Squeezed as Squeezed,
    no_block_spec as no_block_spec,
    squeezed as squeezed,
)
from tinyxla.jax.pallas.calls import pallas_call as pallas_call
from tinyxla.jax.pallas.control import (
    align_to as align_to,
    broadcast_to as broadcast_to,
    cdiv as cdiv,
    debug_check as debug_check,
    debug_print as debug_print,
    enable_debug_checks as enable_debug_checks,
    loop as loop,
    multiple_of as multiple_of,
    next_power_of_2 as next_power_of_2,
    reciprocal as reciprocal,
    strides_from_shape as strides_from_shape,
    when as when,
)
from tinyxla.jax.pallas.cores import core_map as core_map, kernel as kernel
from tinyxla.jax.pallas.costs import CostEstimate as CostEstimate, estimate_cost as estimate_cost
from tinyxla.jax.pallas.grids import num_programs as num_programs, program_id as program_id
from tinyxla.jax.pallas.memory import (
    MemoryRef as MemoryRef,
    MemorySpace as MemorySpace,
    empty_ref_like as empty_ref_like,
    run_scoped as run_scoped,
    run_state as run_state,
    semaphore_read as semaphore_read,
    semaphore_signal as semaphore_signal,
    semaphore_wait as semaphore_wait,
    with_scoped as with_scoped,
)
from tinyxla.numpy import empty as empty, empty_like as empty_like
from tinyxla.numpy.indexing.dynamic_slices import Slice as Slice, ds as ds

ANY, HOST = MemorySpace.ANY, MemorySpace.HOST
dslice = ds
BlockDim = Element | Squeezed | Blocked
