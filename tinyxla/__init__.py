"""A JAX-like array library in pure Python: functions are traced into graphs of XLA operations, transformed and
compiled."""

from tinyxla import errors, ffi, lax, modules, nn, numpy, random, scipy, tree, tree_util
from tinyxla.api import (
    ShapeDtypeStruct,
    block_until_ready,
    device_get,
    device_put,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    make_graph,
    value_and_grad,
    vjp,
    vmap,
)
from tinyxla.compilation import clear_caches, jit
from tinyxla.tracing import Array, config

__version__ = "0.1.0"

__all__ = [
    "Array",
    "ShapeDtypeStruct",
    "block_until_ready",
    "clear_caches",
    "config",
    "device_get",
    "device_put",
    "errors",
    "eval_shape",
    "ffi",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "make_graph",
    "modules",
    "nn",
    "numpy",
    "random",
    "scipy",
    "tree",
    "tree_util",
    "value_and_grad",
    "vjp",
    "vmap",
]
