"""Products of matrices that are quantized in blocks, each with a scale.

Source: "OCP Microscaling Formats (MX) Specification" 1.0 (2023) for mxfp8; NVIDIA, "Introducing NVFP4 for efficient and
accurate low-precision inference" (2025) for nvfp4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.custom_derivatives import custom_vjp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import array_of, choice_of, python_dtype, several_of
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array


@dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an operand is quantized: the elements' type, the size of blocks along the contracted axis, the type of their
    scales, and a factor of all of them."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """How `scaled_dot_general` quantizes an operand.

    Args:
        mode: `"mxfp8"` (blocks of 32 elements of float8_e4m3fn, with powers of two as scales) or `"nvfp4"` (blocks of
            16 elements of float4_e2m1fn, with scales of float8_e4m3fn).
        global_scale: of nvfp4 a factor of all scales, float32, 1 by default.

    Returns:
        A configuration for `scaled_dot_general`.

    Raises:
        ArgumentError: another mode.

    >>> from tinyxla.nn import get_scaled_dot_general_config
    >>> get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    choice_of("nn.get_scaled_dot_general_config", "mode", mode, ("nvfp4", "mxfp8"))
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, None, False)
    factor = tnp.ones((1,), np.float32) if global_scale is None else global_scale
    return BlockScaleConfig(mode, 16, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, factor, False)


def scaled_matmul(
    lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = np.float32
) -> Array:
    """The products of matrices a and transposed b, of which each block along the last axis has a scale.

    Args:
        lhs: a, of shape [batch, m, k].
        rhs: b, of shape [batch, n, k].
        lhs_scales: of shape [batch, m, k / block].
        rhs_scales: of shape [batch, n, k / block].
        preferred_element_type: of the result, of shape [batch, m, n].

    Returns:
        An array [batch, m, n].

    Raises:
        ShapeError: the shapes do not fit.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.nn import scaled_matmul
    >>> a = tnp.ones((1, 2, 32))
    >>> scaled_matmul(a, a, tnp.full((1, 2, 1), 2.0), tnp.ones((1, 2, 1)))[0]
    Array([[64., 64.],
           [64., 64.]], dtype=float32)
    """
    what = "nn.scaled_matmul"
    a, b, a_scales, b_scales = (array_of(x, what) for x in (lhs, rhs, lhs_scales, rhs_scales))
    fits = all(x.ndim == 3 for x in (a, b, a_scales, b_scales)) and a.shape[::2] == b.shape[::2]
    if not (fits and _fit(a, a_scales) and _fit(b, b_scales)):
        raise ShapeError(
            f"{what}: takes [batch, m, k] and [batch, n, k] with scales [batch, m or n, k / block], but got "
            f"{Shape.of(a)} and {Shape.of(b)} with {Shape.of(a_scales)} and {Shape.of(b_scales)}."
        )
    return _scaled_product(a, b, a_scales, b_scales).astype(python_dtype(preferred_element_type))


def _fit(x: Any, scales: Any) -> bool:
    """Whether the scales fit the blocks of an operand."""
    blocks = scales.shape[2]
    return x.shape[:2] == scales.shape[:2] and (x.shape[2] == 0 or (blocks > 0 and x.shape[2] % blocks == 0))


def _scaled_product(a: Any, b: Any, a_scales: Any, b_scales: Any) -> Any:
    wide = []
    for x, scales in ((a, a_scales), (b, b_scales)):
        size = x.shape[2] // max(scales.shape[2], 1)
        wide.append(x.astype(np.float32) * tnp.repeat(scales.astype(np.float32), size, axis=2))
    return tnp.matmul(wide[0], tnp.matrix_transpose(wide[1]))


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: Any = None,
    implementation: str | None = None,
) -> Array:
    """The sum of products as `lax.dot_general`, of operands that are quantized in blocks along the contracted axes.

    Args:
        lhs, rhs: floating arrays; the product of their contracted sizes is a multiple of the blocks.
        dimension_numbers: contracted and batch axes, as in `lax.dot_general`.
        preferred_element_type: of the result.
        configs: three results of `get_scaled_dot_general_config`, of lhs, of rhs, and of the cotangent in a backward
            pass, where operands are quantized along the axes that are contracted then; or None for no quantization.
        implementation: accepted for compatibility.

    Returns:
        Batch dimensions, then the other ones of lhs, then those of rhs.

    Raises:
        ShapeError: an axis is no multiple of the blocks.
        ArgumentError: there are not three configurations.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.nn import get_scaled_dot_general_config, scaled_dot_general
    >>> configs = [get_scaled_dot_general_config("mxfp8")] * 3
    >>> x = tnp.ones((2, 32))
    >>> scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=configs)
    Array([[32., 32.],
           [32., 32.]], dtype=float32)
    """
    what = "nn.scaled_dot_general"
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)
    chosen = several_of(what, "configs", configs)
    if len(chosen) < 2 or not all(isinstance(c, BlockScaleConfig) for c in chosen):
        raise ArgumentError(f"{what}: configs are three results of get_scaled_dot_general_config, but got {configs!r}.")
    x, y = array_of(lhs, what), array_of(rhs, what)
    (x_contracted, y_contracted), (x_batch, y_batch) = ((tuple(a), tuple(b)) for a, b in dimension_numbers)
    left, rows = _as_matrices(x, x_contracted, x_batch)
    right, columns = _as_matrices(y, y_contracted, y_batch)
    if left.shape[0] != right.shape[0] or left.shape[2] != right.shape[2]:
        raise ShapeError(f"{what}: {Shape.of(x)} and {Shape.of(y)} do not fit dimension_numbers {dimension_numbers}.")
    batch = tuple(x.shape[d] for d in x_batch)
    kind = x.dtype if preferred_element_type is None else python_dtype(preferred_element_type)
    found = _quantized_product(left, right, chosen)
    return found.reshape((*batch, *rows, *columns)).astype(kind)


def _as_matrices(x: Any, contracted: tuple[int, ...], batch: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """[batch, other, contracted], and the sizes of the other axes."""
    others = tuple(d for d in range(x.ndim) if d not in contracted and d not in batch)
    sizes = [tuple(x.shape[d] for d in dims) for dims in (batch, others, contracted)]
    moved = tnp.transpose(x, (*batch, *others, *contracted))
    return moved.reshape(tuple(math.prod(s) for s in sizes)), sizes[1]


def _quantized(x: Any, config: BlockScaleConfig) -> tuple[Any, Any]:
    """The elements and scales of [batch, rows, k], with blocks along k; without the global scale."""
    size = config.block_size
    if x.shape[-1] % size or not x.shape[-1]:
        raise ShapeError(
            f"nn.scaled_dot_general: the contracted size must be a multiple of {size}, the block of {config.mode}, but "
            f"is {x.shape[-1]}."
        )
    blocks = x.astype(np.float32).reshape((*x.shape[:-1], x.shape[-1] // size, size))
    largest = float(ml_dtypes.finfo(config.data_type).max)
    if config.mode == "nvfp4":
        blocks = blocks / tnp.asarray(config.global_scale, np.float32).reshape((1,) * blocks.ndim)
    scale = tnp.max(tnp.abs(blocks), -1, keepdims=True) / largest
    if config.mode == "nvfp4":
        scales = tnp.minimum(scale, float(ml_dtypes.finfo(config.scale_type).max)).astype(config.scale_type)
    else:
        fraction, exponent = tnp.frexp(scale)
        power = tnp.clip(tnp.where(fraction == 0.5, exponent - 1, exponent), -127, 127)
        scales = tnp.ldexp(tnp.ones_like(scale), tnp.where(scale == 0, -127, power)).astype(config.scale_type)
    divisor = scales.astype(np.float32)
    scaled = tnp.clip(blocks / tnp.where(divisor == 0, 1, divisor), -largest, largest)
    return scaled.astype(config.data_type).reshape(x.shape), scales[..., 0]


def _product_of_quantized(x: Any, y: Any, x_config: BlockScaleConfig, y_config: BlockScaleConfig) -> Any:
    (a, a_scales), (b, b_scales) = _quantized(x, x_config), _quantized(y, y_config)
    found = _scaled_product(a, b, a_scales, b_scales)
    for config in (x_config, y_config):
        if config.global_scale is not None:
            found = found * tnp.asarray(config.global_scale, np.float32).reshape((1,) * found.ndim)
    return found


def _quantized_product(x: Any, y: Any, configs: Any) -> Any:
    first, second, *others = configs

    @custom_vjp
    def product(x: Any, y: Any) -> Any:
        return _product_of_quantized(x, y, first, second)

    def forward(x: Any, y: Any) -> tuple[Any, Any]:
        return product(x, y), (x, y)

    def backward(residuals: Any, g: Any) -> tuple[Any, Any]:
        """Straight through the quantization, but for what it cuts off."""
        if not others:
            raise ArgumentError("nn.scaled_dot_general: a derivative needs a third configuration, of the cotangent.")
        x, y = residuals
        by_x = _product_of_quantized(g, tnp.matrix_transpose(y), others[0], second)
        by_y = _product_of_quantized(tnp.matrix_transpose(g), tnp.matrix_transpose(x), others[0], first)
        return _where_kept(x, by_x, first), _where_kept(y, by_y, second)

    product.defvjp(forward, backward)
    return product(x, y)


def _where_kept(x: Any, slope: Any, config: BlockScaleConfig) -> Any:
    slope = slope.astype(x.dtype)
    if config.global_scale is None:
        return slope
    most = float(ml_dtypes.finfo(config.data_type).max) * float(ml_dtypes.finfo(config.scale_type).max)
    limit = most * tnp.asarray(config.global_scale, np.float32).reshape((1,) * x.ndim)
    return tnp.where(tnp.abs(x) <= limit.astype(x.dtype), slope, 0)
