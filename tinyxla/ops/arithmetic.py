"""What compiled code makes of NumPy arrays, to the last bit: where an instruction is computed before it is compiled, or
instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.hlo import Instruction

# The functions that the arithmetic of IEEE 754 leaves open, so that NumPy's are others.
_FUNCTIONS = {
    "atan2": "atan2",
    "cbrt": "cbrt",
    "cosh": "cosh",
    "cosine": "cos",
    "erf": "erf",
    "erf-inv": "erf_inv",
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "log": "log",
    "log-plus-one": "log1p",
    "logistic": "logistic",
    "power": "pow",
    "rsqrt": "rsqrt",
    "sine": "sin",
    "sinh": "sinh",
    "tan": "tan",
    "tanh": "tanh",
}
_ORDINARY = ("f16", "bf16", "f32", "f64")


def evaluator(x: Instruction, as_compiled: bool = True) -> Callable[..., Any]:
    """What computes an instruction on arrays, `as_compiled` code does or else as NumPy does."""
    name, attributes = _FUNCTIONS.get(x.op.name), x.attributes._asdict()
    if as_compiled and name and not any(attributes.values()) and x.array_shape.element_type.name in _ORDINARY:
        return functools.partial(_computed, name, x.array_shape.dtype)
    return functools.partial(x.op.evaluate, **attributes)


def _computed(name: str, dtype: np.dtype[Any], *operands: Any) -> Any:
    from tinyxla_kernels import elementary  # here, since eager programs may do without
    from tinyxla_kernels.numpy_scalar import NumpyScalar

    working = np.float32 if dtype.itemsize < 4 else dtype
    return getattr(elementary, name)(*(NumpyScalar(x.astype(working)) for x in operands)).array.astype(dtype)
