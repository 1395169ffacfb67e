"""A JAX-like array library in pure Python: functions are traced into graphs of XLA operations, transformed and
compiled."""

from tinyxla import (
    ad_checkpoint,
    checkpoint_policies,
    core,
    custom_batching,
    custom_derivatives,
    debug,
    dtypes,
    errors,
    experimental,
    ffi,
    flatten_util,
    lax,
    modules,
    nn,
    numpy,
    ops,
    random,
    scipy,
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
from tinyxla.linearization import linear_transpose, linearize
from tinyxla.replication import pmap
from tinyxla.tracing import Array, config
from tinyxla.tracing.device import Device
from tinyxla.tracing.promotion import float0

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

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
    "grad",
    "hessian",
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
    "numpy",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "ops",
    "pmap",
    "print_environment_info",
    "process_count",
    "process_index",
    "process_indices",
    "pure_callback",
    "random",
    "remat",
    "scipy",
    "stages",
    "tree",
    "tree_util",
    "typeof",
    "typing",
    "value_and_grad",
    "vjp",
    "vmap",
]
