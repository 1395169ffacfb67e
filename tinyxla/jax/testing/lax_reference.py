"""References of operations of `jax.lax` on arrays of NumPy's, by NumPy and SciPy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from scipy import special

from tinyxla.dtypes import itemsize_bits
from tinyxla.numpy.types import issubdtype

Values = Any

# --- element-wise


def _in_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result has the element type of the last argument."""
    return lambda *args: function(*args).astype(args[-1].dtype)


def _round(x: Values) -> Values:
    half = np.nextafter(np.array(0.5, x.dtype), np.array(0, x.dtype), dtype=x.dtype)
    return np.trunc(x + np.copysign(half, x)).astype(x.dtype)


def _mul(x: Values, y: Values, /, *, out_dtype: Any = None) -> Values:
    return np.multiply(x, y) if out_dtype is None else np.multiply(x.astype(out_dtype), y.astype(out_dtype))


def _mulhi(x: Values, y: Values) -> Values:
    x, y = np.asarray(x), np.asarray(y)
    products = x.astype(object) * y.astype(object)
    return np.asarray(products >> np.iinfo(x.dtype).bits).astype(x.dtype)


def _div(x: Values, y: Values) -> Values:
    if not issubdtype(np.result_type(x), np.integer):
        return np.divide(x, y)
    quotient, remainder = np.floor_divide(x, y), np.remainder(x, y)
    return np.where((np.sign(x) != np.sign(y)) & (remainder != 0), quotient + 1, quotient)  # towards zero


def _rem(x: Values, y: Values) -> Values:
    return np.sign(x) * np.remainder(np.abs(x), np.abs(y))


def _bits(x: Values) -> Values:
    """The bits of integers along a new last axis, the highest one first."""
    width = np.iinfo(x.dtype).bits
    unsigned = x.astype(f"uint{width}")
    return unsigned[..., None] >> np.arange(width - 1, -1, -1, dtype=unsigned.dtype) & 1


def _population_count(x: Values) -> Values:
    return np.sum(_bits(x), -1).astype(x.dtype)


def _clz(x: Values) -> Values:
    bits = _bits(x)
    return np.where(x == 0, bits.shape[-1], np.argmax(bits, -1)).astype(x.dtype)


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "round": _round,
    "is_finite": np.isfinite,
    "atan2": np.arctan2,
    "rsqrt": lambda x: np.ones_like(x) / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "logistic": _in_type(lambda x: 1 / (1 + np.exp(-x))),
    "betainc": _in_type(special.betainc),
    "lgamma": _in_type(special.gammaln),
    "digamma": _in_type(special.digamma),
    "igamma": special.gammainc,
    "igammac": special.gammaincc,
    "erf": _in_type(special.erf),
    "erfc": _in_type(special.erfc),
    "erf_inv": _in_type(special.erfinv),
    "bessel_i0e": _in_type(special.i0e),
    "bessel_i1e": _in_type(special.i1e),
    "conj": lambda x: np.conj(x) + np.complex64(0),
    "complex": lambda x, y: x + np.complex64(1j) * y,
    "abs": np.absolute,
    "pow": np.power,
    "sub": np.subtract,
    "mul": _mul,
    "mulhi": _mulhi,
    "div": _div,
    "rem": _rem,
    "max": np.maximum,
    "min": np.minimum,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "population_count": _population_count,
    "clz": _clz,
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "clamp": lambda low, x, high: np.clip(x, np.clip(low, None, high), high).astype(x.dtype),
    "select": np.where,
    "convert_element_type": lambda x, dtype: np.asarray(x, dtype=dtype),
}
_OF_NUMPY = """sign floor ceil nextafter exp exp2 expm1 log log1p tanh sin cos sqrt cbrt square reciprocal tan sinh cosh
    real imag bitwise_not bitwise_and bitwise_or bitwise_xor add dot sum squeeze transpose sort""".split()


def bitcast_convert_type(operand: Values, dtype: Any) -> Values:
    """The bits of the elements in another type."""
    operand = np.asarray(operand)
    given, wanted = itemsize_bits(operand.dtype), itemsize_bits(dtype)
    shape = operand.shape
    if wanted > given:
        shape = shape[:-1]
    elif wanted < given:
        shape = (*shape, given // wanted)
    if given == 4:  # two in a byte, the lower one first
        halves = operand.view("uint4").astype(np.uint8)
        operand = halves[..., ::2] + (halves[..., 1::2] << 4)
    if wanted == 4:
        whole = operand.view(np.uint8)
        operand = np.stack([whole & 15, whole >> 4], -1).astype("uint4")
    return np.ascontiguousarray(operand).view(dtype).reshape(shape)


# --- products and windows


def dot_general(lhs: Values, rhs: Values, dimension_numbers: Any) -> Values:
    """The sums of products over the contracted dimensions."""
    (contracted, batch), count = dimension_numbers, itertools.count()
    axes = [[next(count) for _ in x.shape] for x in (lhs, rhs)]
    for left, right in itertools.chain(zip(*contracted, strict=True), zip(*batch, strict=True)):
        axes[1][right] = axes[0][left]
    used = {side: {*contracted[side], *batch[side]} for side in (0, 1)}
    free = [axis for side in (0, 1) for n, axis in enumerate(axes[side]) if n not in used[side]]
    is_narrow = lhs.dtype == ml_dtypes.bfloat16
    kind = np.float32 if is_narrow else None
    found = np.einsum(lhs, axes[0], rhs, axes[1], [*(axes[0][n] for n in batch[0]), *free], dtype=kind)
    return found.astype(lhs.dtype) if is_narrow else found


def ragged_dot(lhs: Values, rhs: Values, group_sizes: Values) -> Values:
    """The product of each group of rows with the matrix of its own."""
    found = np.zeros((lhs.shape[0], rhs.shape[2]), lhs.dtype)
    start = 0
    for matrix, size in zip(rhs, group_sizes, strict=True):
        rows = slice(start, start + size)
        found[rows] = np.matmul(lhs[rows].astype(np.result_type(lhs, np.float32)), matrix).astype(lhs.dtype)
        start += size
    return found


def padtype_to_pads(in_shape: Sequence[int], filter_shape: Any, window_strides: Any, padding: str) -> list[Any]:
    """The padding that a word says, before and after each dimension."""
    if padding.upper() == "VALID":
        return [(0, 0)] * len(in_shape)
    pads: list[Any] = []
    for size, window, stride in zip(in_shape, filter_shape, window_strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if padding.upper() == "SAME" else (more, less))
    return pads


def pad(operand: Values, padding_value: Values, padding_config: Any) -> Values:
    """The array with elements before, after and between; negative numbers take away."""
    low, high, interior = (np.array(x, int) for x in zip(*padding_config, strict=True))
    spread = np.maximum(np.array(operand.shape) + interior * (np.array(operand.shape) - 1), 0)
    before, after = np.maximum(low, 0), np.maximum(high, 0)
    found = np.full(spread + before + after, padding_value, operand.dtype)
    ends = before + spread
    steps = (interior + 1).tolist()
    found[tuple(slice(a, b, s) for a, b, s in zip(before.tolist(), ends.tolist(), steps, strict=True))] = operand
    cut = zip((before - low).tolist(), (np.array(found.shape) - after + high).tolist(), strict=True)
    return found[tuple(slice(a, max(b, a)) for a, b in cut)]


def _windows(operand: Values, sizes: Any, strides: Any) -> Values:
    """The windows over the last dimensions: places first, then offsets."""
    axes = tuple(range(operand.ndim - len(sizes), operand.ndim))
    found = np.lib.stride_tricks.sliding_window_view(operand, tuple(sizes), axes)
    return found[(..., *(slice(None, None, s) for s in strides), *(slice(None),) * len(sizes))]


def conv_with_general_padding(
    lhs: Values, rhs: Values, window_strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any
) -> Values:
    """The convolution of arrays whose first two dimensions are batch and features, and output and input features."""
    edges = [(0, 0, 0)] * 2
    spread = pad(lhs, 0, [*edges, *((*p, d - 1) for p, d in zip(padding, lhs_dilation, strict=True))])
    kernel = pad(rhs, 0, [*edges, *((0, 0, d - 1) for d in rhs_dilation)])
    found = _windows(spread, kernel.shape[2:], window_strides)
    count = kernel.ndim - 2
    axes = [1, *range(found.ndim - count, found.ndim)], [1, *range(2, 2 + count)]
    wide = np.float32 if lhs.dtype == ml_dtypes.bfloat16 else lhs.dtype
    return np.moveaxis(np.tensordot(found.astype(wide), kernel.astype(wide), axes), -1, 1).astype(lhs.dtype)


def conv(lhs: Values, rhs: Values, window_strides: Any, padding: str) -> Values:
    """The convolution without dilation."""
    pads = padtype_to_pads(lhs.shape[2:], rhs.shape[2:], window_strides, padding)
    ones = (1,) * len(pads)
    return conv_with_general_padding(lhs, rhs, window_strides, pads, ones, ones)


def conv_general_dilated(
    lhs: Values,
    rhs: Values,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
) -> Values:
    """The convolution of arrays whose dimensions are named by letters, as "NHWC", "HWIO" and "NHWC"."""
    left, right, out = dimension_numbers
    spatial = [c for c in right if c not in "OI"]
    orders = [
        [spec.index(c) for c in (*leading, *spatial)] for spec, leading in ((left, "NC"), (right, "OI"), (out, "NC"))
    ]
    lhs, rhs = lhs.transpose(orders[0]), rhs.transpose(orders[1])
    if isinstance(padding, str):
        padding = padtype_to_pads(lhs.shape[2:], rhs.shape[2:], window_strides, padding)
    found = conv_with_general_padding(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation)
    return found.transpose(np.argsort(orders[2]))


# --- reductions and order


def _folded(x: Values, init_value: Values, computation: Callable[..., Any], axes: Sequence[int]) -> Values:
    """The elements along axes combined with an initial value, one after the other."""
    kept = [n for n in range(x.ndim) if n not in axes]
    rows = x.transpose([*axes, *kept]).reshape(-1, *(x.shape[n] for n in kept))
    first = np.full(rows.shape[1:], init_value, x.dtype)
    return np.asarray(functools.reduce(lambda a, b: np.asarray(computation(a, b), x.dtype), rows, first))


def reduce(operand: Values, init_value: Values, computation: Callable[..., Any], dimensions: Any) -> Values:
    """The reduction over dimensions by a binary function."""
    operand = np.asarray(operand)
    return _folded(operand, init_value, computation, tuple(dimensions))


def reduce_window(
    operand: Values,
    init_value: Values,
    computation: Callable[..., Any],
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any,
) -> Values:
    """The reduction over windows by a binary function."""
    if isinstance(padding, str):
        padding = padtype_to_pads(operand.shape, window_dimensions, window_strides, padding)
    dilation = base_dilation or (1,) * operand.ndim
    spread = pad(operand, init_value, [(*p, d - 1) for p, d in zip(padding, dilation, strict=True)])
    found = _windows(spread, window_dimensions, window_strides)
    return _folded(found, init_value, computation, range(operand.ndim, 2 * operand.ndim))


def sort_key_val(keys: Values, values: Values, dimension: int = -1) -> tuple[Values, Values]:
    """Keys in order along a dimension, and values in the order of their keys."""
    order = np.argsort(keys, axis=dimension)
    return np.take_along_axis(keys, order, dimension), np.take_along_axis(values, order, dimension)


def top_k(operand: Values, k: int, axis: int = -1) -> tuple[Values, Values]:
    """The largest elements along an axis, the first of equal ones first, and their indices."""
    flipped = np.argsort(np.flip(operand, axis), axis=axis, kind="stable")
    order = operand.shape[axis] - 1 - np.flip(flipped, axis)
    indices = np.take(order, range(k), axis).astype(np.int32)
    return np.take_along_axis(operand, indices, axis), indices


# --- shapes


def concatenate(operands: Any, dimension: int) -> Values:
    """Arrays one after the other along a dimension."""
    return np.concatenate(operands, axis=dimension)


def broadcast(operand: Values, sizes: Any) -> Values:
    """The array repeated along new first dimensions."""
    return np.broadcast_to(operand, (*sizes, *np.shape(operand)))


def broadcast_in_dim(operand: Values, shape: Any, broadcast_dimensions: Any) -> Values:
    """The array repeated along the dimensions that it does not have."""
    sizes = dict(zip(broadcast_dimensions, operand.shape, strict=True))
    return np.broadcast_to(operand.reshape([sizes.get(n, 1) for n in range(len(shape))]), shape)


def reshape(operand: Values, new_sizes: Any, dimensions: Any = None) -> Values:
    """The elements in another shape, read along the dimensions in this order."""
    return np.reshape(np.transpose(operand, dimensions), new_sizes)


def rev(operand: Values, dimensions: Any) -> Values:
    """The elements in the opposite order along dimensions."""
    return np.flip(operand, tuple(dimensions))


def _slice(operand: Values, start_indices: Any, limit_indices: Any, strides: Any = None) -> Values:
    steps = strides or (1,) * len(start_indices)
    return operand[tuple(map(slice, start_indices, limit_indices, steps))]


def dynamic_slice(operand: Values, start_indices: Any, slice_sizes: Any) -> Values:
    """A part of an array, with zeros for what is outside of it."""
    found = np.zeros(slice_sizes, operand.dtype)
    part = operand[tuple(slice(a, a + n) for a, n in zip(start_indices, slice_sizes, strict=True))]
    found[tuple(map(slice, part.shape))] = part
    return found


def dynamic_update_slice(operand: Values, update: Values, start_indices: Any) -> Values:
    """The array with other values in a part."""
    found = np.copy(operand)
    found[tuple(slice(a, a + n) for a, n in zip(start_indices, update.shape, strict=True))] = update
    return found


functions: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _OF_NUMPY},
    **_ELEMENTWISE,
    "slice": _slice,
    **{
        function.__name__: function
        for function in (
            bitcast_convert_type,
            dot_general,
            ragged_dot,
            padtype_to_pads,
            pad,
            conv_with_general_padding,
            conv,
            conv_general_dilated,
            reduce,
            reduce_window,
            sort_key_val,
            top_k,
            concatenate,
            broadcast,
            broadcast_in_dim,
            reshape,
            rev,
            dynamic_slice,
            dynamic_update_slice,
        )
    },
}
"""The references by the names of the operations."""
