"""Workloads: windows - convolutions of images, signals and volumes, pooling and filters, and their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Inputs, Once, Workload, normal, summed_gradient


@dataclass(frozen=True)
class _Convolution:
    """A convolution over `rank` dimensions. Channels are last unless `channels_first`, as PyTorch has them."""

    rank: int = 2
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1
    channels_first: bool = False

    def make(self, tx: Any) -> Function:
        places = "DHW"[-self.rank :]
        numbers = (f"N{places}C", f"{places}IO", f"N{places}C")
        if self.channels_first:
            numbers = (f"NC{places}", f"OI{places}", f"NC{places}")
        return lambda x, kernel: tx.lax.conv_general_dilated(
            x,
            kernel,
            (self.stride,) * self.rank,
            ((self.padding, self.padding),) * self.rank,
            rhs_dilation=(self.dilation,) * self.rank,
            dimension_numbers=numbers,
            feature_group_count=self.groups,
        )

    def torch(self, torch: Any) -> Function:
        convolve = getattr(torch.nn.functional, f"conv{self.rank}d")

        def function(x: Any, kernel: Any) -> Any:
            if not self.channels_first:
                x, kernel = x.movedim(-1, 1), kernel.movedim((-1, -2), (0, 1))
            found = convolve(x, kernel, None, self.stride, self.padding, self.dilation, self.groups)
            return found if self.channels_first else found.movedim(1, -1)

        return function


def _torch_gradient(function: Function, torch: Any, arguments: tuple[int, ...] = (0,)) -> Function:
    """The gradient of the sum of squares of a function's result."""

    def gradient(*inputs: Any) -> Any:
        inputs = tuple(x.detach().requires_grad_(k in arguments) for k, x in enumerate(inputs))
        return torch.autograd.grad((function(*inputs) ** 2).sum(), [inputs[k] for k in arguments])

    return gradient


def _forward(name: str, images: tuple[int, ...], kernel: tuple[int, ...], **how: Any) -> Workload:
    convolution = _Convolution(len(images) - 2, **how)
    return Workload(name, convolution.make, normal(images, kernel), torch=convolution.torch)


def _gradients(
    name: str, images: tuple[int, ...], kernel: tuple[int, ...], arguments: tuple[int, ...] = (0, 1), **how: Any
) -> Workload:
    convolution = _Convolution(len(images) - 2, **how)
    return Workload(
        name,
        lambda tx: summed_gradient(convolution.make(tx), tx, arguments),
        normal(images, kernel),
        torch=lambda torch: _torch_gradient(convolution.torch(torch), torch, arguments),
    )


def _bias_and_relu(tx: Any) -> Function:
    convolution = _Convolution().make(tx)
    return lambda x, kernel, bias: tx.nn.relu(convolution(x, kernel) + bias)


def _torch_bias_and_relu(torch: Any) -> Function:
    def function(x: Any, kernel: Any, bias: Any) -> Any:
        x, kernel = x.movedim(-1, 1), kernel.movedim((-1, -2), (0, 1))
        return torch.relu(torch.nn.functional.conv2d(x, kernel, bias, padding=1)).movedim(1, -1)

    return function


def _bfloat16(tx: Any) -> Function:
    convolution, narrow = _Convolution().make(tx), tx.numpy.bfloat16
    return lambda x, kernel: convolution(x.astype(narrow), kernel.astype(narrow))


def _torch_bfloat16(torch: Any) -> Function:
    convolution = _Convolution().torch(torch)
    return lambda x, kernel: convolution(x.bfloat16(), kernel.bfloat16())


def _transposed(tx: Any) -> Function:
    return lambda x, kernel: tx.lax.conv_transpose(
        x, kernel, (2, 2), ((2, 2), (2, 2)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _torch_transposed(torch: Any) -> Function:
    def function(x: Any, kernel: Any) -> Any:
        kernel = kernel.flip(0, 1).permute(2, 3, 0, 1)
        found = torch.nn.functional.conv_transpose2d(x.movedim(-1, 1), kernel, stride=2, padding=1)
        return found.movedim(1, -1)

    return function


def _residual_block(tx: Any) -> Function:
    """Two convolutions with batch normalisation, added to the block's input."""
    xp, convolution = tx.numpy, _Convolution().make(tx)

    def normalized(x: Any, scale: Any) -> Any:
        mean, variance = xp.mean(x, (0, 1, 2)), xp.var(x, (0, 1, 2))
        return (x - mean) / xp.sqrt(variance + 1e-5) * scale

    def block(x: Any, first: Any, second: Any, scale: Any) -> Any:
        hidden = tx.nn.relu(normalized(convolution(x, first), scale))
        return tx.nn.relu(x + normalized(convolution(hidden, second), scale))

    return block


def _torch_residual_block(torch: Any) -> Function:
    functional = torch.nn.functional

    def convolution(x: Any, kernel: Any) -> Any:
        return functional.conv2d(x, kernel.movedim((-1, -2), (0, 1)), padding=1)

    def normalized(x: Any, scale: Any) -> Any:
        return functional.batch_norm(x, None, None, scale, training=True)

    def block(x: Any, first: Any, second: Any, scale: Any) -> Any:
        x = x.movedim(-1, 1)
        hidden = torch.relu(normalized(convolution(x, first), scale))
        return torch.relu(x + normalized(convolution(hidden, second), scale)).movedim(1, -1)

    return block


def _blur(tx: Any) -> Function:
    """A separable filter of an image."""

    def filtered(image: Any, taps: Any) -> Any:
        reach, x = taps.shape[0] // 2, image[None, :, :, None]
        for shape, padding in (((-1, 1, 1, 1), ((reach, reach), (0, 0))), ((1, -1, 1, 1), ((0, 0), (reach, reach)))):
            x = tx.lax.conv_general_dilated(
                x, taps.reshape(shape), (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return x[0, :, :, 0]

    return filtered


def _torch_blur(torch: Any) -> Function:
    def filtered(image: Any, taps: Any) -> Any:
        convolve, reach, x = torch.nn.functional.conv2d, taps.shape[0] // 2, image[None, None]
        x = convolve(x, taps[None, None, :, None], padding=(reach, 0))
        return convolve(x, taps[None, None, None, :], padding=(0, reach))[0, 0]

    return filtered


def _image_and_taps(generator: np.random.Generator) -> tuple[Any, ...]:
    taps = np.exp(-0.5 * (np.arange(-5, 6) / 2) ** 2).astype(np.float32)
    return generator.random((1024, 1024), dtype=np.float32), taps / taps.sum()


def _pool(tx: Any, size: int, stride: int, average: bool = False) -> Function:
    """Pooling of images whose channels are last."""
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    if average:
        return lambda x: tx.lax.reduce_window(x, 0.0, tx.lax.add, window, strides, "VALID") / size**2
    return lambda x: tx.lax.reduce_window(x, -np.inf, tx.lax.max, window, strides, "VALID")


def _torch_pool(torch: Any, size: int, stride: int, average: bool = False) -> Function:
    pool = getattr(torch.nn.functional, "avg_pool2d" if average else "max_pool2d")
    return lambda x: pool(x.movedim(-1, 1), size, stride).movedim(1, -1)


def _blocks(x: Any) -> Any:
    """Images as blocks of 2 x 2."""
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels)


def _pooling(name: str, images: tuple[int, ...], *how: Any, numpy: Function | None = None) -> Workload:
    return Workload(
        name, lambda tx: _pool(tx, *how), normal(images), numpy, torch=lambda torch: _torch_pool(torch, *how)
    )


def _pooling_gradient(name: str, images: tuple[int, ...], *how: Any) -> Workload:
    return Workload(
        name,
        lambda tx: summed_gradient(_pool(tx, *how), tx),
        normal(images),
        torch=lambda torch: _torch_gradient(_torch_pool(torch, *how), torch),
    )


def _box(tx: Any) -> Function:
    return lambda x: tx.lax.reduce_window(x, 0.0, tx.lax.add, (9, 9), (1, 1), "VALID") / 81


def _moving_average(tx: Any) -> Function:
    return lambda x: tx.lax.reduce_window(x, 0.0, tx.lax.add, (100,), (1,), "VALID") / 100


_IMAGES = (8, 32, 32, 64), (3, 3, 64, 64)
_DEPTHWISE = (8, 32, 32, 64), (3, 3, 1, 64)
_FIRST = (8, 112, 112, 3), (7, 7, 3, 64)
_STRIDED = (8, 32, 32, 64), (3, 3, 64, 128)
_SOUND = (8, 4000, 32), (9, 32, 32)
_CHANNELS_FIRST = (16, 64, 28, 28), (64, 64, 3, 3)
_BLOCK: Inputs = normal((8, 28, 28, 64), (3, 3, 64, 64), (3, 3, 64, 64), (64,))
_POOLED = (16, 64, 64, 32)

WORKLOADS: tuple[Workload | Calls | Once, ...] = (
    _forward("convolution 3 x 3, 8 x 32 x 32, 64 to 64", *_IMAGES),
    _gradients("gradients of the convolution", *_IMAGES),
    Workload(
        "convolution 3 x 3 with bias and relu", _bias_and_relu, normal(*_IMAGES, (64,)), torch=_torch_bias_and_relu
    ),
    Workload("convolution 3 x 3 in bfloat16", _bfloat16, normal(*_IMAGES), torch=_torch_bfloat16),
    _forward("convolution 1 x 1, 16 x 28 x 28, 128 to 256", (16, 28, 28, 128), (1, 1, 128, 256), padding=0),
    _forward("convolution 5 x 5, 16 x 16 x 16, 32 to 64", (16, 16, 16, 32), (5, 5, 32, 64), padding=2),
    _forward("convolution 7 x 7 by 2, 8 x 112 x 112, 3 to 64", *_FIRST, stride=2, padding=3),
    _gradients("gradient by the kernel of the 7 x 7", *_FIRST, (1,), stride=2, padding=3),
    _forward("convolution 3 x 3 of digits, 64 x 28 x 28, 1 to 32", (64, 28, 28, 1), (3, 3, 1, 32)),
    _forward("convolution 3 x 3 by 2, 8 x 32 x 32, 64 to 128", *_STRIDED, stride=2),
    _gradients("gradients of the convolution by 2", *_STRIDED, stride=2),
    _forward("dilated convolution 3 x 3", *_IMAGES, padding=2, dilation=2),
    _forward("convolution 3 x 3 in 8 groups", (8, 32, 32, 128), (3, 3, 16, 128), groups=8),
    _gradients("gradients of the convolution in 8 groups", (8, 32, 32, 128), (3, 3, 16, 128), groups=8),
    _forward("depthwise convolution 3 x 3", *_DEPTHWISE, groups=64),
    _gradients("gradients of the depthwise convolution", *_DEPTHWISE, groups=64),
    _forward("convolution of sound, 9, 8 x 4000, 32 to 32", *_SOUND, padding=4),
    _gradients("gradients of the convolution of sound", *_SOUND, padding=4),
    Workload(
        "transposed convolution 4 x 4 by 2, 64 to 32",
        _transposed,
        normal((8, 16, 16, 64), (4, 4, 64, 32)),
        torch=_torch_transposed,
    ),
    _forward("convolution 3 x 3 x 3, 2 x 16 x 16 x 16, 16 to 32", (2, 16, 16, 16, 16), (3, 3, 3, 16, 32)),
    _forward("convolution, channels first, 16 x 28 x 28, 64 to 64", *_CHANNELS_FIRST, channels_first=True),
    _gradients("gradients of the convolution, channels first", *_CHANNELS_FIRST, channels_first=True),
    Workload("residual block, 8 x 28 x 28 x 64", _residual_block, _BLOCK, torch=_torch_residual_block),
    Workload(
        "gradient of the residual block",
        lambda tx: summed_gradient(_residual_block(tx), tx, (0, 1, 2, 3)),
        _BLOCK,
        torch=lambda torch: _torch_gradient(_torch_residual_block(torch), torch, (0, 1, 2, 3)),
    ),
    _pooling("max pool 2 x 2, 16 x 64 x 64 x 32", _POOLED, 2, 2, numpy=lambda x: _blocks(x).max((2, 4))),
    _pooling_gradient("gradient of the max pool", _POOLED, 2, 2),
    _pooling("max pool 3 x 3 by 2, 16 x 64 x 64 x 32", _POOLED, 3, 2),
    _pooling_gradient("gradient of the max pool 3 x 3 by 2", _POOLED, 3, 2),
    _pooling("average pool 2 x 2, 16 x 64 x 64 x 32", _POOLED, 2, 2, True, numpy=lambda x: _blocks(x).mean((2, 4))),
    _pooling_gradient("gradient of the average pool", _POOLED, 2, 2, True),
    Workload("separable blur of 11, 1024 x 1024", _blur, _image_and_taps, torch=_torch_blur),
    Workload(
        "box filter 9 x 9, 1024 x 1024",
        _box,
        normal((1024, 1024)),
        torch=lambda torch: lambda x: torch.nn.functional.avg_pool2d(x[None, None], 9, 1)[0, 0],
    ),
    Workload(
        "moving average of 100, 1e6",
        _moving_average,
        normal((10**6,)),
        numpy=lambda x: np.convolve(x, np.full(100, 0.01, np.float32), "valid"),
        torch=lambda torch: lambda x: torch.nn.functional.avg_pool1d(x[None, None], 100, 1)[0, 0],
    ),
)
