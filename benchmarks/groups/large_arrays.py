"""Workloads whose arrays are larger than the caches: what counts is how near they come to the memory's bandwidth."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.groups.reductions import layer_norm, log_sum_exp, softmax
from benchmarks.workload import Calls, Function, Inputs, Once, Workload, everywhere, normal

_ROWS = normal((8192, 4096))  # 128 MB
_SQUARE = normal((5600, 5600))
_PICTURES = normal((64, 64, 88, 88))

Row = Workload | Calls | Once


def _narrow(generator: np.random.Generator) -> tuple[Any, ...]:
    return (generator.standard_normal((16384, 4096), dtype=np.float32).astype(ml_dtypes.bfloat16),)


def _small_integers(generator: np.random.Generator) -> tuple[Any, ...]:
    return (generator.integers(-128, 128, (16384, 4096), dtype=np.int8),)


def _jax_like(name: str, function: Any, inputs: Inputs, torch: Any = None) -> Workload:
    """A function `function(jnp, *arrays)` for libraries with JAX's interface; PyTorch's is `torch(torch, *tensors)`."""

    def bound(tx: Any) -> Function:
        return lambda *arrays: function(tx.numpy, *arrays)

    def of_torch(module: Any) -> Function:
        return lambda *tensors: torch(module, *tensors)

    return Workload(name, bound, inputs, torch=of_torch if torch else None)


def _adam(jnp: Any, parameter: Any, gradient: Any, mean: Any, square: Any) -> Any:
    """One step: seven arrays are read or written."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient * gradient
    return parameter - 1e-3 * mean / (jnp.sqrt(jnp.abs(square)) + 1e-8), mean, square


def _softmax_gradient(tx: Any) -> Function:
    return tx.grad(lambda x, weights: tx.numpy.sum(weights * softmax(tx.numpy, x)))


def _cumulative(name: str, shape: tuple[int, ...], axis: int) -> Workload:
    return _jax_like(name, lambda jnp, x: jnp.cumsum(x, axis), normal(shape), lambda torch, x: torch.cumsum(x, axis))


WORKLOADS: tuple[Row, ...] = (
    _jax_like("x + y, 128 MB each", lambda jnp, x, y: x + y, normal((2**25,), (2**25,)), lambda torch, x, y: x + y),
    _jax_like("exp, 128 MB", lambda jnp, x: jnp.exp(x), _ROWS, lambda torch, x: torch.exp(x)),
    _jax_like(
        "rows plus a bias, rectified, 128 MB", lambda jnp, x, b: jnp.maximum(x + b, 0), normal((8192, 4096), (4096,))
    ),
    _jax_like("doubled, bf16, 128 MB", lambda jnp, x: x + x, _narrow),
    _jax_like("f32 to bf16, 128 MB", lambda jnp, x: x.astype(jnp.bfloat16), _ROWS, lambda torch, x: x.bfloat16()),
    _jax_like("s8 to f32, 64 MB", lambda jnp, x: x.astype(jnp.float32) * 0.1, _small_integers),
    _jax_like("Adam, 64 MB each", _adam, normal(*4 * [(2**24,)])),
    everywhere("sum, 128 MB", lambda xp, x: xp.sum(x), _ROWS),
    everywhere("mean of rows, 128 MB", lambda xp, x: xp.mean(x, axis=1), _ROWS),
    everywhere("mean of columns, 128 MB", lambda xp, x: xp.mean(x, axis=0), _ROWS),
    _jax_like("max of rows, 128 MB", lambda jnp, x: jnp.max(x, 1), _ROWS, lambda torch, x: torch.amax(x, 1)),
    everywhere("argmax of rows, 128 MB", lambda xp, x: xp.argmax(x, axis=1), _ROWS),
    _jax_like(
        "variance of rows, 128 MB",
        lambda jnp, x: jnp.var(x, 1),
        _ROWS,
        lambda torch, x: torch.var(x, 1, unbiased=False),
    ),
    _jax_like("log-sum-exp of rows, 128 MB", log_sum_exp, _ROWS, lambda torch, x: torch.logsumexp(x, 1)),
    _jax_like("softmax, 128 MB", softmax, _ROWS, lambda torch, x: torch.softmax(x, 1)),
    Workload("gradient of softmax, 128 MB each", _softmax_gradient, normal((8192, 4096), (8192, 4096))),
    _jax_like("layer norm, 128 MB", layer_norm, _ROWS, lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[1:])),
    _jax_like("transposed, 120 MB", lambda jnp, x: x.T * 2, _SQUARE, lambda torch, x: (x.T * 2).contiguous()),
    _jax_like("x + x.T, 120 MB", lambda jnp, x: x + x.T, _SQUARE, lambda torch, x: x + x.T),
    _jax_like(
        "channels to the end, 127 MB",
        lambda jnp, x: jnp.transpose(x, (0, 2, 3, 1)) * 2,
        _PICTURES,
        lambda torch, x: (x.permute((0, 2, 3, 1)) * 2).contiguous(),
    ),
    _cumulative("cumulative sum, 128 MB", (2**25,), 0),
    _cumulative("cumulative sum of rows, 128 MB", (8192, 4096), 1),
    _cumulative("cumulative sum of columns, 128 MB", (8192, 4096), 0),
)
