"""A JAX-like array library in pure Python: functions are traced into graphs of XLA operations, transformed and
compiled."""

import importlib as _importlib
from typing import TYPE_CHECKING, Any as _Any

from tinyxla.runtime.allocation import rarely_collected as _rarely_collected

if not TYPE_CHECKING:
    _rarely_collected(lambda: _importlib.import_module("tinyxla.api"))  # the objects of modules stay

from tinyxla import (
    ad_checkpoint as ad_checkpoint,
    checkpoint_policies as checkpoint_policies,
    core as core,
    custom_batching as custom_batching,
    custom_derivatives as custom_derivatives,
    dtypes as dtypes,
    errors as errors,
    flatten_util as flatten_util,
    lax as lax,
    numpy as numpy,
    ops as ops,
    sharding as sharding,
    stages as stages,
    tree as tree,
    tree_util as tree_util,
    typing as typing,
)
from tinyxla.ad_checkpoint import checkpoint as checkpoint, remat as remat
from tinyxla.api import (
    ShapeDtypeStruct as ShapeDtypeStruct,
    elementwise_grad as elementwise_grad,
    eval_shape as eval_shape,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacrev as jacrev,
    jvp as jvp,
    make_graph as make_graph,
    typeof as typeof,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from tinyxla.api.callbacks import (
    effects_barrier as effects_barrier,
    io_callback as io_callback,
    pure_callback as pure_callback,
)
from tinyxla.api.context_managers import (
    check_tracer_leaks as check_tracer_leaks,
    debug_infs as debug_infs,
    debug_nans as debug_nans,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    disable_jit as disable_jit,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    ensure_compile_time_eval as ensure_compile_time_eval,
    explain_cache_misses as explain_cache_misses,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    named_call as named_call,
    named_scope as named_scope,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from tinyxla.api.fwd_and_bwd import fwd_and_bwd as fwd_and_bwd
from tinyxla.api.jit import clear_caches as clear_caches, jit as jit
from tinyxla.api.linearize import linear_transpose as linear_transpose, linearize as linearize
from tinyxla.api.sharding.devices import (
    block_until_ready as block_until_ready,
    copy_to_host_async as copy_to_host_async,
    default_backend as default_backend,
    default_device as default_device,
    device_count as device_count,
    device_get as device_get,
    device_put as device_put,
    devices as devices,
    live_arrays as live_arrays,
    local_device_count as local_device_count,
    local_devices as local_devices,
    print_environment_info as print_environment_info,
    process_count as process_count,
    process_index as process_index,
    process_indices as process_indices,
)
from tinyxla.api.sharding.pmap import pmap as pmap
from tinyxla.api.sharding.shard_map import shard_map as shard_map, smap as smap
from tinyxla.api.sharding.sharded_arrays import (
    make_array_from_callback as make_array_from_callback,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    reshard as reshard,
)
from tinyxla.custom_derivatives import (
    closure_convert as closure_convert,
    custom_gradient as custom_gradient,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
)
from tinyxla.errors import TinyxlaError as _TinyxlaError
from tinyxla.hlo import Module as _Module
from tinyxla.kernels import kernel as kernel
from tinyxla.numpy import segment_reductions
from tinyxla.numpy.indexing.dynamic_slices import ds as ds
from tinyxla.runtime.threads import (
    get_num_threads as get_num_threads,
    num_threads as num_threads,
    set_num_threads as set_num_threads,
)
from tinyxla.sharding import (
    NamedSharding as NamedSharding,
    PartitionSpec as PartitionSpec,
    make_mesh as make_mesh,
    set_mesh as set_mesh,
)
from tinyxla.tracing import Array as Array, config as config
from tinyxla.tracing.device import Device as Device
from tinyxla.tracing.promotion import float0 as float0
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.public_names import listing as _listing
from tinyxla.util.tracebacks import install as _install_displays
from tinyxla.util.version import VERSION as _VERSION

jacobian, make_jaxpr = jacrev, make_graph
P = PartitionSpec
checking_leaks = check_tracer_leaks

__version__ = _VERSION
__version_info__ = tuple(map(int, _VERSION.split(".")))

if TYPE_CHECKING:
    from tinyxla import (
        debug as debug,
        distributed as distributed,
        example_libraries as example_libraries,
        experimental as experimental,
        export as export,
        ffi as ffi,
        image as image,
        nn as nn,
        profiler as profiler,
        random as random,
        scipy as scipy,
        stablehlo as stablehlo,
        xla as xla,
    )
    from tinyxla.lax.loops.progress_bar import progress as progress
    from tinyxla.saving import load as load, save as save

_MODULES = """
ad_checkpoint checkpoint_policies core custom_batching custom_derivatives dtypes errors flatten_util kernels lax
numpy ops sharding stages tree tree_util typing
""".split()
_LATER = frozenset(
    "debug distributed example_libraries experimental export ffi image nn profiler random scipy stablehlo xla".split()
)
_FUNCTIONS_LATER = {
    "load": "saving",
    "progress": "lax.loops.progress_bar",
    "save": "saving",
}  # by the module that has them


def __getattr__(name: str) -> _Any:
    """What not every program needs is loaded by its first use."""
    if name in _LATER:
        return _importlib.import_module(f"tinyxla.{name}")
    if name in _FUNCTIONS_LATER:
        return getattr(_importlib.import_module(f"tinyxla.{_FUNCTIONS_LATER[name]}"), name)
    return _missing(__name__)(name)


__dir__ = _listing(globals(), (*_LATER, *_MODULES, *_FUNCTIONS_LATER))


def _run_module(module: _Module, arguments: _Any, backend: str | None) -> _Any:
    from tinyxla.api.module_call import run_module

    return run_module(module, arguments, backend)


def _run_replicated(module: _Module, *arguments: _Any) -> list[_Any]:
    from tinyxla.api.module_call import run_replicated

    return run_replicated(module, *arguments)


def _print_module(module: _Module) -> str:
    from tinyxla.text import print_module

    return print_module(module)


_Module.run, _Module.printed = staticmethod(_run_module), staticmethod(_print_module)
_Module.run_replicated = staticmethod(_run_replicated)


# `ops` is the package of operations; JAX has this name for reductions over segments, so users find them there too.
for _name in segment_reductions.__all__:
    setattr(ops, _name, getattr(segment_reductions, _name))

_install_displays(_TinyxlaError)
