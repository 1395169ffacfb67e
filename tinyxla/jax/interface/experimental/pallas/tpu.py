"""`jax.experimental.pallas.tpu`, interpreted on the CPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tinyxla.jax.pallas.blocks import PrefetchScalarGridSpec as PrefetchScalarGridSpec
from tinyxla.jax.pallas.calls import emit_pipeline as emit_pipeline
from tinyxla.jax.pallas.control import (
    bitcast as bitcast,
    einshape as einshape,
    is_tpu_device as is_tpu_device,
    prng_random_bits as prng_random_bits,
    prng_seed as prng_seed,
    roll as roll,
)
from tinyxla.jax.pallas.cores import TensorCoreMesh as TensorCoreMesh, create_tensorcore_mesh as create_tensorcore_mesh
from tinyxla.jax.pallas.interpretation import (
    InterpretParams as InterpretParams,
    force_tpu_interpret_mode as force_tpu_interpret_mode,
    reset_tpu_interpret_mode_state as reset_tpu_interpret_mode_state,
    set_tpu_interpret_mode as set_tpu_interpret_mode,
)
from tinyxla.jax.pallas.memory import (
    SemaphoreType as SemaphoreType,
    TpuMemorySpace as MemorySpace,
    async_copy as async_copy,
    load as load,
    make_async_copy as make_async_copy,
    store as store,
    sync_copy as sync_copy,
)

VMEM, VMEM_SHARED, SMEM, CMEM = MemorySpace.VMEM, MemorySpace.VMEM_SHARED, MemorySpace.SMEM, MemorySpace.CMEM
HBM, SEMAPHORE = MemorySpace.HBM, MemorySpace.SEMAPHORE


class GridDimensionSemantics(Enum):
    """Whether the programs along an axis of the grid may run at once on an accelerator."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL, CORE_PARALLEL = GridDimensionSemantics.PARALLEL, GridDimensionSemantics.CORE_PARALLEL
SUBCORE_PARALLEL, ARBITRARY = GridDimensionSemantics.SUBCORE_PARALLEL, GridDimensionSemantics.ARBITRARY


@dataclass(frozen=True)
class CompilerParams:
    """Parameters of Mosaic, the compiler of kernels for TPUs; interpreted kernels pass them by."""

    dimension_semantics: Sequence[Any] | None = None
    allow_input_fusion: Sequence[bool] | None = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: Any = False
    flags: Mapping[str, Any] | None = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False
