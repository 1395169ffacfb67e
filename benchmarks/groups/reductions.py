"""Workloads: reductions, what is made of them row by row, and cumulative operations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.workload import Calls, Function, Once, Workload, everywhere, normal

_TABLE = (4096, 1024)

Row = Workload | Calls | Once


def softmax(xp: Any, x: Any) -> Any:
    exponentials = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return exponentials / xp.sum(exponentials, axis=-1, keepdims=True)


def log_sum_exp(xp: Any, x: Any) -> Any:
    largest = xp.max(x, axis=-1, keepdims=True)
    return xp.log(xp.sum(xp.exp(x - largest), axis=-1)) + largest[..., 0]


def layer_norm(xp: Any, x: Any) -> Any:
    """Zero mean and unit variance over the last axis."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5)


def _gradient(function: Any) -> Any:
    """Of the sum of a row-wise function, weighted."""
    return lambda tx: tx.grad(lambda x, weights: tx.numpy.sum(weights * function(tx.numpy, x)))


def _scaled_norm(tx: Any) -> Function:
    """All gradients of a layer norm with scale and shift."""

    def loss(x: Any, scale: Any, shift: Any, weights: Any) -> Any:
        return tx.numpy.sum(weights * (layer_norm(tx.numpy, x) * scale + shift))

    return tx.grad(loss, (0, 1, 2))


def _narrow(generator: np.random.Generator) -> tuple[Any, ...]:
    return (generator.standard_normal(_TABLE, dtype=np.float32).astype(ml_dtypes.bfloat16),)


def _batch_statistics(xp: Any, x: Any) -> Any:
    """Mean and variance of each channel."""
    mean = xp.mean(x, axis=(0, 1, 2))
    return mean, xp.mean((x - mean) ** 2, axis=(0, 1, 2))


def _distances(xp: Any, x: Any, y: Any) -> Any:
    apart = x[:, None] - y[None]
    return xp.sqrt(xp.sum(apart * apart, axis=-1))


def _inside(xp: Any, x: Any) -> Any:
    """Whether any is far out, whether all are finite, and how many are positive."""
    return xp.any(xp.abs(x) > 6), xp.all(xp.isfinite(x)), xp.count_nonzero(x > 0)


def _histogram(xp: Any, x: Any, edges: Any) -> Any:
    return xp.sum(x[:, None] > edges, axis=0)


def _cumulative(name: str, axis: int, shape: tuple[int, ...], title: str) -> Workload:
    """NumPy's and PyTorch's names where they have one."""
    ufunc = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate}[name]
    return Workload(
        title,
        lambda tx: lambda x: getattr(tx.lax, name)(x, axis=axis),
        normal(shape),
        lambda x: ufunc(x, axis=axis),
        lambda torch: lambda x: getattr(torch, name)(x, axis),
    )


WORKLOADS: tuple[Row, ...] = (
    everywhere("sum, 1e5", lambda xp, x: xp.sum(x), normal((10**5,))),
    everywhere("sum, 4096 x 1024", lambda xp, x: xp.sum(x), normal(_TABLE)),
    everywhere("L2 norm, 1e7", lambda xp, x: xp.sqrt(xp.sum(x * x)), normal((10**7,))),
    everywhere("mean of rows, 4096 x 1024", lambda xp, x: xp.mean(x, axis=1), normal(_TABLE)),
    everywhere("mean of columns, 4096 x 1024", lambda xp, x: xp.mean(x, axis=0), normal(_TABLE)),
    Workload(
        "max of columns, 4096 x 1024",
        lambda tx: lambda x: tx.numpy.max(x, axis=0),
        normal(_TABLE),
        lambda x: np.max(x, axis=0),
        lambda torch: lambda x: torch.amax(x, 0),
    ),
    everywhere("sum over the middle, 64 x 256 x 256", lambda xp, x: xp.sum(x, axis=1), normal((64, 256, 256))),
    everywhere("sum of rows of 4, 1e5 x 4", lambda xp, x: xp.sum(x, axis=1), normal((10**5, 4))),
    Workload(
        "max of rows of 8, 1e5 x 8",
        lambda tx: lambda x: tx.numpy.max(x, axis=1),
        normal((10**5, 8)),
        lambda x: np.max(x, axis=1),
        lambda torch: lambda x: torch.amax(x, 1),
    ),
    Workload(
        "variance of rows, 4096 x 1024",
        lambda tx: lambda x: tx.numpy.var(x, axis=1),
        normal(_TABLE),
        lambda x: np.var(x, axis=1),
        lambda torch: lambda x: torch.var(x, 1, unbiased=False),
    ),
    everywhere("argmax, 4e6", lambda xp, x: xp.argmax(x), normal((4 * 10**6,))),
    everywhere("argmax of rows, 4096 x 1024", lambda xp, x: xp.argmax(x, axis=1), normal(_TABLE)),
    everywhere("argmin of columns, 4096 x 1024", lambda xp, x: xp.argmin(x, axis=0), normal(_TABLE)),
    Workload(
        "log-sum-exp, 4096 x 1024",
        lambda tx: lambda x: log_sum_exp(tx.numpy, x),
        normal(_TABLE),
        lambda x: log_sum_exp(np, x),
        lambda torch: lambda x: torch.logsumexp(x, 1),
    ),
    Workload(
        "softmax, 4096 x 1024",
        lambda tx: lambda x: softmax(tx.numpy, x),
        normal(_TABLE),
        lambda x: softmax(np, x),
        lambda torch: lambda x: torch.softmax(x, 1),
    ),
    Workload(
        "softmax, 256 x 128",
        lambda tx: lambda x: softmax(tx.numpy, x),
        normal((256, 128)),
        torch=lambda torch: lambda x: torch.softmax(x, 1),
    ),
    Workload("gradient of the softmax, 2048 x 1024", _gradient(softmax), normal((2048, 1024), (2048, 1024))),
    Workload(
        "layer norm, 4096 x 1024",
        lambda tx: lambda x: layer_norm(tx.numpy, x),
        normal(_TABLE),
        lambda x: layer_norm(np, x),
        lambda torch: lambda x: torch.nn.functional.layer_norm(x, (1024,)),
    ),
    Workload(
        "gradients of the layer norm, 2048 x 1024", _scaled_norm, normal((2048, 1024), (1024,), (1024,), (2048, 1024))
    ),
    everywhere("statistics of channels, 32 x 56 x 56 x 64", _batch_statistics, normal((32, 56, 56, 64))),
    _cumulative("cumsum", 0, (10**6,), "cumulative sum, 1e6"),
    _cumulative("cumsum", 1, (1000, 1000), "cumulative sum of rows, 1000 x 1000"),
    _cumulative("cumsum", 0, (1000, 1000), "cumulative sum of columns, 1000 x 1000"),
    Workload(
        "cumulative max of rows, 1000 x 1000",
        lambda tx: lambda x: tx.lax.cummax(x, axis=1),
        normal((1000, 1000)),
        lambda x: np.maximum.accumulate(x, axis=1),
        lambda torch: lambda x: torch.cummax(x, 1)[0],
    ),
    _cumulative("cumprod", 1, (1000, 1000), "cumulative product of rows, 1000 x 1000"),
    Workload(
        "distances, 1000 x 1000 x 3",
        lambda tx: lambda x, y: _distances(tx.numpy, x, y),
        normal((1000, 3), (1000, 3)),
        lambda x, y: _distances(np, x, y),
        lambda torch: torch.cdist,
    ),
    everywhere("any, all and count, 4e6", _inside, normal((4 * 10**6,))),
    everywhere("histogram by comparison, 1e5 in 64", _histogram, normal((10**5,), (64,))),
    Workload(
        "sum of rows of bf16, 4096 x 1024",
        lambda tx: lambda x: tx.numpy.sum(x, axis=1),
        _narrow,
    ),
)
