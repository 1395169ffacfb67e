"""A JAX-like array library in pure Python: functions are traced into graphs of XLA operations, transformed and
compiled."""

import importlib
from typing import TYPE_CHECKING
from typing import Any as _Any

from tinyxla import (
    ad_checkpoint,
    checkpoint_policies,
    core,
    custom_batching,
    custom_derivatives,
    dtypes,
    errors,
    flatten_util,
    lax,
    numpy,
    ops,
    segments,
    stages,
    tree,
    tree_util,
    typing,
)
from tinyxla.ad_checkpoint import checkpoint, remat
from tinyxla.api import (
    ShapeDtypeStruct,
    block_until_ready,
    device_get,
    device_put,
    elementwise_grad,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    make_graph,
    typeof,
    value_and_grad,
    vjp,
    vmap,
)
from tinyxla.api import jacrev as jacobian
from tinyxla.api import make_graph as make_jaxpr
from tinyxla.callbacks import effects_barrier, io_callback, pure_callback
from tinyxla.compilation import clear_caches, jit
from tinyxla.contexts import (
    debug_infs,
    debug_nans,
    disable_jit,
    enable_x64,
    ensure_compile_time_eval,
    named_call,
    named_scope,
    numpy_dtype_promotion,
    numpy_rank_promotion,
)
from tinyxla.contexts import without_effect as check_tracer_leaks
from tinyxla.contexts import without_effect as checking_leaks
from tinyxla.contexts import without_effect as default_matmul_precision
from tinyxla.contexts import without_effect as log_compiles
from tinyxla.custom_derivatives import closure_convert, custom_gradient, custom_jvp, custom_vjp
from tinyxla.devices import (
    default_backend,
    default_device,
    device_count,
    devices,
    local_device_count,
    local_devices,
    print_environment_info,
    process_count,
    process_index,
    process_indices,
)
from tinyxla.hlo import Module as _Module
from tinyxla.linearization import linear_transpose, linearize
from tinyxla.replication import pmap
from tinyxla.threads import get_num_threads, num_threads, set_num_threads
from tinyxla.tracing import Array, config
from tinyxla.tracing.device import Device
from tinyxla.tracing.promotion import float0

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

if TYPE_CHECKING:
    from tinyxla import debug, experimental, ffi, image, modules, nn, profiler, random, scipy

_LATER = frozenset("debug experimental ffi image modules nn profiler random scipy".split())


def __getattr__(name: str) -> _Any:
    """What not every program needs is loaded by its first use."""
    if name not in _LATER:
        raise AttributeError(f"module 'tinyxla' has no attribute {name!r}")
    return importlib.import_module(f"tinyxla.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def _run_module(module: _Module, arguments: _Any, backend: str | None) -> _Any:
    from tinyxla.modules import run_module

    return run_module(module, arguments, backend)


def _print_module(module: _Module) -> str:
    from tinyxla.text import print_module

    return print_module(module)


_Module.run, _Module.printed = staticmethod(_run_module), staticmethod(_print_module)


# `ops` is the package of operations; JAX has this name for reductions over segments, so users find them there too.
for _name in segments.__all__:
    setattr(ops, _name, getattr(segments, _name))

__all__ = [
    "Array",
    "Device",
    "ShapeDtypeStruct",
    "ad_checkpoint",
    "block_until_ready",
    "check_tracer_leaks",
    "checking_leaks",
    "checkpoint",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "config",
    "core",
    "custom_batching",
    "custom_derivatives",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "debug",
    "debug_infs",
    "debug_nans",
    "default_backend",
    "default_device",
    "default_matmul_precision",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "dtypes",
    "effects_barrier",
    "elementwise_grad",
    "enable_x64",
    "ensure_compile_time_eval",
    "errors",
    "eval_shape",
    "experimental",
    "ffi",
    "flatten_util",
    "float0",
    "get_num_threads",
    "grad",
    "hessian",
    "image",
    "io_callback",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "local_device_count",
    "local_devices",
    "log_compiles",
    "make_graph",
    "make_jaxpr",
    "modules",
    "named_call",
    "named_scope",
    "nn",
    "num_threads",
    "numpy",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "ops",
    "pmap",
    "print_environment_info",
    "process_count",
    "process_index",
    "process_indices",
    "profiler",
    "pure_callback",
    "random",
    "remat",
    "scipy",
    "set_num_threads",
    "stages",
    "tree",
    "tree_util",
    "typeof",
    "typing",
    "value_and_grad",
    "vjp",
    "vmap",
]
