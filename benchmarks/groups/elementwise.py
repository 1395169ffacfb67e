"""Workloads: element by element, and data that moves on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Inputs, Once, Workload, everywhere, normal, uniform

Row = Workload | Calls | Once


def ten_operations(xp: Any, x: Any) -> Any:
    """Ten element-wise operations."""
    y = x * 0.5
    y = y + 1.0
    y = y * y
    y = xp.exp(-y)
    y = y + x
    y = xp.tanh(y)
    y = xp.clip(y, 0.1, None)
    y = xp.sqrt(y)
    return y - x


def _gelu(tx: Any) -> Function:
    return lambda x: 0.5 * x * (1 + tx.lax.erf(x * 0.7071067811865476))


def _cross_entropy(xp: Any, x: Any, y: Any) -> Any:
    """Of logits and the probabilities they should give, without overflow."""
    return xp.clip(x, 0, None) - x * y + xp.log1p(xp.exp(-xp.abs(x)))


def _quantised(x: Any, xp: Any) -> Any:
    return xp.round(xp.clip(x * 31.75, -127, 127))


def _hash(unsigned: Any = np.uint32) -> Function:
    """The finaliser of MurmurHash3, then a round of xorshift."""

    def mixed(x: Any) -> Any:
        x = (x ^ (x >> unsigned(16))) * unsigned(0x85EBCA6B)
        x = (x ^ (x >> unsigned(13))) * unsigned(0xC2B2AE35)
        x = x ^ (x >> unsigned(16))
        x = x ^ (x << unsigned(13))
        x = x ^ (x >> unsigned(17))
        return x ^ (x << unsigned(5))

    return mixed


def _pictures(generator: np.random.Generator) -> tuple[Any, ...]:
    """Bytes of 16 pictures, the means and the deviations of their colours."""
    pictures = generator.integers(0, 256, (16, 224, 224, 3), dtype=np.uint8)
    return pictures, np.array([123.7, 116.3, 103.5], np.float32), np.array([58.4, 57.1, 57.4], np.float32)


def _normalised(pictures: Any, mean: Any, deviation: Any) -> Any:
    return (pictures - mean) / deviation


def _standardised(xp: Any, x: Any, row: Any, column: Any) -> Any:
    return (x - row) * column[:, None] + xp.abs(x)


def _masked(xp: Any, x: Any) -> Any:
    return xp.where((x > -1) & (x < 1), x * x, 2 * xp.abs(x) - 1)


def _complex(generator: np.random.Generator) -> tuple[Any, ...]:
    real, imaginary = generator.standard_normal((2, 2, 10**6), dtype=np.float32)
    return tuple(real + 1j * imaginary)


def _complex_size(xp: Any, x: Any, y: Any) -> Any:
    return xp.abs(x * y + x)


def _symmetric(x: Any) -> Any:
    return 0.5 * (x + x.T)


def _channels_last(xp: Any, x: Any) -> Any:
    return xp.transpose(x, (0, 2, 3, 1)) * 2 + 1


def _mirrored(xp: Any, x: Any, y: Any) -> Any:
    """Both, joined and turned round, with an edge of zeros."""
    joined = xp.concatenate([x[1:], y[:-1]])
    return xp.pad(joined[::-1] + xp.roll(joined, 3), 2)


def _positive(generator: np.random.Generator) -> tuple[Any, ...]:
    return (generator.random(10**6, dtype=np.float32) * 10 + 0.1,)


def _single(name: str, size: int = 10**6, inputs: Inputs | None = None) -> Workload:
    return everywhere(
        f"{name}, 1e{len(str(size)) - 1}", lambda xp, *x: getattr(xp, name)(*x), inputs or normal((size,))
    )


WORKLOADS: tuple[Row, ...] = (
    everywhere("chain of 10 operations, 1e3", ten_operations, normal((10**3,))),
    everywhere("chain of 10 operations, 1e5", ten_operations, normal((10**5,))),
    everywhere("chain of 10 operations, 1e6", ten_operations, normal((10**6,))),
    everywhere("chain of 10 operations, 1e7", ten_operations, normal((10**7,))),
    everywhere("x + y, 1e5", lambda xp, x, y: x + y, normal((10**5,), (10**5,))),
    everywhere("a x + y, 1e7", lambda xp, x, y: 2 * x + y, normal((10**7,), (10**7,))),
    _single("exp"),
    _single("log", inputs=_positive),
    _single("tanh"),
    _single("sin"),
    _single("cos"),
    _single("sin", 10**5),
    _single("sqrt", inputs=_positive),
    everywhere("power, 1e6", lambda xp, x, y: x**y, uniform((10**6,), (10**6,))),
    everywhere("atan2, 1e6", lambda xp, x, y: xp.arctan2(x, y), normal((10**6,), (10**6,))),
    Workload("erf, 1e6", lambda tx: tx.lax.erf, normal((10**6,)), torch=lambda torch: torch.erf),
    Workload("GELU, 1e6", _gelu, normal((10**6,)), torch=lambda torch: torch.nn.functional.gelu),
    Workload("gradient of the GELU, 1e6", lambda tx: tx.grad(lambda x: tx.numpy.sum(_gelu(tx)(x))), normal((10**6,))),
    everywhere("sigmoid cross-entropy, 1e6", _cross_entropy, uniform((10**6,), (10**6,))),
    Workload(
        "f32 to bf16 and back, 4e6",
        lambda tx: lambda x: (x.astype(tx.numpy.bfloat16) * 2).astype(tx.numpy.float32),
        normal((4 * 10**6,)),
        torch=lambda torch: lambda x: (x.to(torch.bfloat16) * 2).to(torch.float32),
    ),
    Workload(
        "f32 to int8, 4e6",
        lambda tx: lambda x: _quantised(x, tx.numpy).astype(tx.numpy.int8),
        normal((4 * 10**6,)),
        lambda x: _quantised(x, np).astype(np.int8),
        lambda torch: lambda x: _quantised(x, torch).to(torch.int8),
    ),
    Workload(
        "normalised pictures, 16 x 224 x 224 x 3", lambda _: _normalised, _pictures, _normalised, lambda _: _normalised
    ),
    Workload(
        "hash of integers, 1e6",
        lambda _: _hash(),
        lambda generator: (generator.integers(0, 2**32, 10**6, dtype=np.uint32),),
        _hash(),
    ),
    everywhere("outer product, 1000 x 1000", lambda xp, x, y: x[:, None] * y, normal((1000,), (1000,))),
    everywhere("rows and columns, 2000 x 2000", _standardised, normal((2000, 2000), (2000,), (2000,))),
    everywhere("where, 1e6", _masked, normal((10**6,))),
    everywhere("complex, 1e6", _complex_size, _complex),
    everywhere("x + x.T, 2048 x 2048", lambda xp, x: _symmetric(x), normal((2048, 2048))),
    Workload(
        "channels to the end, 16 x 64 x 56 x 56",
        lambda tx: lambda x: _channels_last(tx.numpy, x),
        normal((16, 64, 56, 56)),
        lambda x: np.ascontiguousarray(_channels_last(np, x)),
        lambda torch: lambda x: (torch.permute(x, (0, 2, 3, 1)) * 2 + 1).contiguous(),
    ),
    Workload(
        "joined, turned and padded, 1e6",
        lambda tx: lambda x, y: _mirrored(tx.numpy, x, y),
        normal((10**6,), (10**6,)),
        lambda x, y: _mirrored(np, x, y),
    ),
)
