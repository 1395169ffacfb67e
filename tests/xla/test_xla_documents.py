"""Every worked example and every piece of pseudo-code of the XLA documents, through the builder, on both backends.

An example is a function of a builder and its parameters, with arguments and the result that the documents state; it is
registered under its section. Where the pages differ the newest is followed, and a comment says so.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support import xla_oracle
from tinyxla import ffi, xla
from tinyxla.hlo import Module
from tinyxla.hlo.verifier import verify
from tinyxla.ops.tuples import leaves
from tinyxla.text import parse_hlo

F32, S32, S64, PRED = np.float32, np.int32, np.int64, np.bool_
BACKENDS = ("numba", "interpreter")


class Example(NamedTuple):
    section: str
    build: Callable[..., Any]
    arguments: tuple[Any, ...]
    expected: Any
    tolerance: float


EXAMPLES: list[Example] = []


def f32(x: Any) -> Any:
    return np.asarray(x, F32)


def s32(x: Any) -> Any:
    return np.asarray(x, S32)


def example(section: str, *arguments: Any, gives: Any, tolerance: float = 0.0) -> Callable[..., Any]:
    """An example of a section: what `build(builder, *parameters)` makes gives this for these arguments."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        EXAMPLES.append(Example(section, build, arguments, gives, tolerance))
        return build

    return register


def shape_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return xla.ShapeUtil.MakeTupleShape([shape_of(x) for x in value])
    value = np.asarray(value)
    return xla.ShapeUtil.MakeShape(xla.PrimitiveType.from_dtype(value.dtype), value.shape)


def made(build: Callable[..., Any], *arguments: Any, name: str = "example") -> Any:
    """The computation that `build` makes for parameters with the shapes of these."""
    builder = xla.XlaBuilder(name)
    parameters = [xla.Parameter(builder, k, shape_of(x), f"x{k}") for k, x in enumerate(arguments)]
    computation = builder.Build(build(builder, *parameters))
    verify(Module(name, computation.computation))
    return computation


def scalar(op: Callable[..., Any], dtype: Any = F32, arity: int = 2) -> Any:
    """The computation of an op on scalars of one type."""
    return made(lambda b, *x: op(*x), *[np.zeros((), dtype)] * arity, name=op.__name__)


def equal(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for x, y in zip(found, expected, strict=True):
            equal(x, y, tolerance)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if tolerance:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


# --- BatchNorm --------------------------------------------------------------------------------------------------------

_random = np.random.default_rng(0)
_X = _random.normal(size=(3, 2, 4, 2))  # m, w, h, and the features l
_SCALE, _OFFSET, _EPSILON = _random.normal(size=2), _random.normal(size=2), 0.25
_MEAN = _X.sum((0, 1, 2)) / 24
_VARIANCE = ((_X - _MEAN) ** 2).sum((0, 1, 2)) / 24
_NORMALIZED = _SCALE * (_X - _MEAN) / np.sqrt(_VARIANCE + _EPSILON) + _OFFSET


@example("BatchNormTraining", _X, _SCALE, _OFFSET, gives=(_NORMALIZED, _MEAN, _VARIANCE), tolerance=1e-12)
def batch_norm_training(b: Any, operand: Any, scale: Any, offset: Any) -> Any:
    return xla.BatchNormTraining(operand, scale, offset, epsilon=_EPSILON, feature_index=3)


@example("BatchNormInference", _X, _SCALE, _OFFSET, _MEAN, _VARIANCE, gives=_NORMALIZED, tolerance=1e-12)
def batch_norm_inference(b: Any, operand: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    return xla.BatchNormInference(operand, scale, offset, mean, variance, _EPSILON, 3)


_DY = _random.normal(size=_X.shape)
_C = (_DY * (_X - _MEAN) / (_VARIANCE + _EPSILON)).sum((0, 1, 2)) / 24
_D = _DY.sum((0, 1, 2)) / 24
_GRADIENTS = (
    _SCALE / np.sqrt(_VARIANCE + _EPSILON) * (_DY - _D - _C * (_X - _MEAN)),
    (_DY * (_X - _MEAN) / np.sqrt(_VARIANCE + _EPSILON)).sum((0, 1, 2)),
    _DY.sum((0, 1, 2)),
)


@example("BatchNormGrad", _X, _SCALE, _MEAN, _VARIANCE, _DY, gives=_GRADIENTS, tolerance=1e-12)
def batch_norm_grad(b: Any, operand: Any, scale: Any, mean: Any, variance: Any, grad_output: Any) -> Any:
    return xla.BatchNormGrad(operand, scale, mean, variance, grad_output, epsilon=_EPSILON, feature_index=3)


# --- BitcastConvertType, Broadcast ------------------------------------------------------------------------------------

_TEN = np.arange(1, 11, dtype=F32) / 3


@example("BitcastConvertType", _TEN, gives=_TEN.view(np.float16).reshape(10, 2))
def bitcast_to_narrower(b: Any, x: Any) -> Any:
    return xla.BitcastConvertType(x, xla.F16)


@example("BitcastConvertType", F32(1.25), gives=np.float32(1.25).reshape(1).view(np.float16))
def bitcast_of_effective_scalar(b: Any, x: Any) -> Any:
    return xla.BitcastConvertType(x, xla.F16)


@example("BitcastConvertType", _TEN.view(np.float16).reshape(10, 2), gives=_TEN)
def bitcast_to_wider(b: Any, x: Any) -> Any:
    return xla.BitcastConvertType(x, xla.F32)


@example("BitcastConvertType", s32([0x01020304]), gives=np.array([[4, 3, 2, 1]], np.int8))
def one_s32_becomes_four_s8(b: Any, x: Any) -> Any:
    return xla.BitcastConvertType(x, new_element_type=xla.S8)


@example("Broadcast", F32(2.0), gives=np.full((2, 3), 2.0, F32))
def broadcast_scalar(b: Any, x: Any) -> Any:
    return xla.Broadcast(x, [2, 3])


@example("Broadcast", f32([5, 6, 7]), gives=f32([[[5, 6, 7]] * 3] * 2))
def broadcast_inserts_on_the_left(b: Any, x: Any) -> Any:  # output[i0, i1, j0] = operand[j0]
    return xla.Broadcast(operand=x, broadcast_sizes=[2, 3])


@example("BroadcastInDim", s32([[1], [2]]), gives=s32([[[1, 1, 1]] * 4, [[2, 2, 2]] * 4]))
def broadcast_in_dim_expands_size_1(b: Any, x: Any) -> Any:
    return xla.BroadcastInDim(x, out_dim_size=[2, 4, 3], broadcast_dimensions=[0, 2])


# The page on broadcasting: a matrix and a vector, by rows and by columns; dimensions of size 1 on either side.
@example("Broadcasting", f32([[1, 2, 3], [4, 5, 6]]), f32([7, 8, 9]), gives=f32([[8, 10, 12], [11, 13, 15]]))
def vector_matches_columns(b: Any, matrix: Any, vector: Any) -> Any:
    return xla.Add(matrix, vector, broadcast_dimensions=[1])


@example("Broadcasting", f32([[1, 2, 3], [4, 5, 6]]), f32([7, 8]), gives=f32([[8, 9, 10], [12, 13, 14]]))
def vector_matches_rows(b: Any, matrix: Any, vector: Any) -> Any:
    return xla.Add(vector, matrix, [0])


@example("Broadcasting", s32([[1, 2]]), s32([[10], [20]]), gives=s32([[11, 12], [21, 22]]))
def degenerate_dimensions_on_both_sides(b: Any, x: Any, y: Any) -> Any:
    return xla.Add(x, y)


@example("Broadcasting", s32([1, 2]), s32([[[5]], [[6]]]), gives=s32([[[6, 7]], [[7, 8]]]))
def degenerate_after_in_dim(b: Any, x: Any, y: Any) -> Any:
    return xla.Add(x, y, broadcast_dimensions=[2])


# --- Call, CompositeCall, Clamp, Collapse -----------------------------------------------------------------------------


@example("Call", f32([1, 2]), f32([3, 4]), gives=f32([3, 8]))
def call(b: Any, x: Any, y: Any) -> Any:
    return xla.Call(b, made(lambda b, x, y: xla.Mul(x, y), f32([0, 0]), f32([0, 0])), [x, y])


@example("Call", gives=s32(7))
def call_without_operands(b: Any) -> Any:
    return xla.Call(b, made(lambda b: xla.ConstantLiteral(b, 7)), [])


@example("CompositeCall", F32(2), gives=F32(4))
def composite_call(b: Any, cst: Any) -> Any:
    decomposition = made(lambda b, x: xla.Mul(x, x), F32(0))
    return xla.CompositeCall(
        decomposition, [cst], name="foo.bar", attributes="{n = 1 : i32, tensor = dense<1> : tensor<i32>}", version=1
    )


@example("Clamp", s32([-1, 5, 9]), S32(0), S32(6), gives=s32([0, 5, 6]))
def clamp_between_scalars(b: Any, operand: Any, low: Any, high: Any) -> Any:
    return xla.Clamp(min=low, operand=operand, max=high)


@example("Clamp", s32([-1, 5, 9]), S32(0), S32(6), gives=s32([0, 5, 6]))
def clamp_in_the_older_order(b: Any, operand: Any, low: Any, high: Any) -> Any:
    return xla.Clamp(operand, low, high)


@example("Clamp", f32([3, 1, 2]), f32([2, 2, 2]), f32([1, 1, 1]), gives=f32([1, 1, 1]))
def clamp_is_min_of_max(b: Any, operand: Any, low: Any, high: Any) -> Any:  # clamp(a, x, b) = min(max(a, x), b)
    return xla.Clamp(low, operand, high)


_V = f32(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ]
)
_FLAT = f32([10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47])


@example("Collapse", _V, gives=_FLAT)
def collapse_to_one_dimension(b: Any, v: Any) -> Any:
    return xla.Collapse(v, [0, 1, 2])


# The page has f32[4x6] for {0, 1} and f32[8x3] for {1, 2}: the two results are swapped there. Collapsing dimensions of
# sizes 4 and 2 gives 8, as the text before the example says.
@example("Collapse", _V, gives=_FLAT.reshape(8, 3))
def collapse_the_first_two(b: Any, v: Any) -> Any:
    return xla.Collapse(v, [0, 1])


@example("Collapse", _V, gives=_FLAT.reshape(4, 6))
def collapse_the_last_two(b: Any, v: Any) -> Any:
    return xla.Collapse(v, [1, 2])


# --- comparisons ------------------------------------------------------------------------------------------------------

_ORDER = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], F32)
_SMALLER = np.arange(8)[:, None] < np.arange(8)


@example("Lt", _ORDER.reshape(8, 1), _ORDER.reshape(1, 8), gives=_SMALLER)
def less_in_the_total_order(b: Any, x: Any, y: Any) -> Any:
    return xla.LtTotalOrder(x, y)


@example("Eq", _ORDER.reshape(8, 1), _ORDER.reshape(1, 8), gives=np.eye(8, dtype=bool))
def equal_in_the_total_order(b: Any, x: Any, y: Any) -> Any:
    return xla.EqTotalOrder(x, y)


@example("Compare", f32([1, np.nan, 0.0]), f32([1, np.nan, -0.0]), gives=np.array([True, False, True]))
def equal_in_ieee_order(b: Any, x: Any, y: Any) -> Any:
    return xla.Compare(x, y, xla.ComparisonDirection.kEq)


# --- Concatenate, Conditional -----------------------------------------------------------------------------------------


@example("Concatenate", s32([2, 3]), s32([4, 5]), s32([6, 7]), gives=s32([2, 3, 4, 5, 6, 7]))
def concat_1d(b: Any, *operands: Any) -> Any:
    return xla.Concat(list(operands), 0)


@example("Concatenate", s32([[1, 2], [3, 4], [5, 6]]), s32([[7, 8]]), gives=s32([[1, 2], [3, 4], [5, 6], [7, 8]]))
def concat_2d(b: Any, x: Any, y: Any) -> Any:
    return xla.ConcatInDim(b, [x, y], 0)


def _conditional(b: Any, pred: Any, x: Any, y: Any) -> Any:
    doubled = made(lambda b, x: xla.Add(x, x), f32([0, 0]))
    total = made(lambda b, y: xla.Broadcast(xla.GetTupleElement(y, 1), [2]), (s32([0]), F32(0)))
    return xla.Conditional(pred, x, doubled, y, total)


example("Conditional", PRED(True), f32([1, 2]), (s32([7]), F32(9)), gives=f32([2, 4]))(_conditional)
example("Conditional", PRED(False), f32([1, 2]), (s32([7]), F32(9)), gives=f32([9, 9]))(_conditional)


def _switch(b: Any, index: Any, x: Any) -> Any:
    branches = [made(lambda b, x, k=k: xla.Add(x, xla.ConstantLiteral(b, F32(k))), F32(0)) for k in (10, 20, 30)]
    return xla.Conditional(index, branches, [x, x, x])


for _index, _added in ((0, 10), (1, 20), (2, 30), (3, 30), (-1, 30)):  # outside of the range: the last
    example("Conditional", S32(_index), F32(1), gives=F32(1 + _added))(_switch)


# --- ConvertElementType, Conv -----------------------------------------------------------------------------------------


@example("ConvertElementType", s32([0, 1, 2]), gives=f32([0, 1, 2]))
def convert(b: Any, a: Any) -> Any:
    return xla.ConvertElementType(a, xla.F32)


_INPUT, _KERNEL = _random.normal(size=(2, 3, 7, 6)), _random.normal(size=(4, 3, 3, 2))
_STRIDES, _PADDING = (2, 1), ((1, 2), (2, 0))


def _convolved() -> Any:
    """The page's pseudo-code of a 2d convolution with padding and striding."""
    sizes = [
        (n + low + high - k) // s + 1
        for n, k, s, (low, high) in zip(_INPUT.shape[2:], _KERNEL.shape[2:], _STRIDES, _PADDING, strict=True)
    ]
    output = np.zeros((2, 4, *sizes))
    for b, oz, oy, ox in np.ndindex(*output.shape):
        value = 0.0
        for iz, ky, kx in np.ndindex(3, 3, 2):
            iy = oy * _STRIDES[0] + ky - _PADDING[0][0]
            ix = ox * _STRIDES[1] + kx - _PADDING[1][0]
            if 0 <= iy < 7 and 0 <= ix < 6:
                value += _INPUT[b, iz, iy, ix] * _KERNEL[oz, iz, ky, kx]
        output[b, oz, oy, ox] = value
    return output


@example("Conv", _INPUT, _KERNEL, gives=_convolved(), tolerance=1e-12)
def convolution_as_in_pseudo_code(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.ConvWithGeneralPadding(lhs, rhs, window_strides=_STRIDES, padding=_PADDING)


@example("Conv", f32(np.ones((1, 1, 4))), f32(np.ones((1, 1, 3))), gives=f32([[[2, 3, 3, 2]]]))
def same_padding_keeps_the_shape(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.Conv(lhs, rhs, [1], xla.Padding.kSame)


@example("Conv", f32(np.ones((1, 1, 4))), f32(np.ones((1, 1, 3))), gives=f32([[[3, 3]]]))
def valid_padding_is_none(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.Conv(lhs, rhs, [1], xla.Padding.kValid)


_NHWC = xla.ConvolutionDimensionNumbers(0, 3, [1, 2], 3, 2, [0, 1], 0, 3, [1, 2])


@example(
    "Conv",
    _INPUT.transpose(0, 2, 3, 1),
    _KERNEL.transpose(2, 3, 1, 0),
    gives=_convolved().transpose(0, 2, 3, 1),
    tolerance=1e-12,
)
def convolution_with_dimension_numbers(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.ConvGeneral(lhs, rhs, _STRIDES, _PADDING, _NHWC)


_DEPTHWISE_INPUT, _FILTER = _random.normal(size=(2, 5, 6, 3)), _random.normal(size=(2, 3, 3, 2))


def _depthwise() -> Any:
    """Each channel with its own filters: [filter_height, filter_width, in_channels, channel_multiplier]."""
    output = np.zeros((2, 4, 4, 3, 2))
    for y, x in np.ndindex(4, 4):
        window = _DEPTHWISE_INPUT[:, y : y + 2, x : x + 3]
        output[:, y, x] = np.einsum("bijc,ijcm->bcm", window, _FILTER)
    return output.reshape(2, 4, 4, 6)


@example("Conv", _DEPTHWISE_INPUT, _FILTER, gives=_depthwise(), tolerance=1e-12)
def depthwise_convolution(b: Any, lhs: Any, rhs: Any) -> Any:
    kernel = xla.Reshape(rhs, [2, 3, 1, 6])
    return xla.ConvWithGeneralDimensions(lhs, kernel, [1, 1], xla.Padding.kValid, _NHWC, feature_group_count=3)


@example("Conv", _INPUT, _KERNEL, gives=True)
def batch_groups_are_pairwise_convolutions(b: Any, lhs: Any, rhs: Any) -> Any:
    """Each group of the batch with the same group of the output features, put together along the features."""
    whole = xla.Conv(lhs, rhs, [1, 1], xla.Padding.kValid, batch_group_count=2)
    parts = [
        xla.Conv(
            xla.SliceInDim(lhs, k, k + 1, 1, 0), xla.SliceInDim(rhs, 2 * k, 2 * k + 2, 1, 0), [1, 1], xla.Padding.kValid
        )
        for k in (0, 1)
    ]
    distance = xla.Abs(xla.Sub(whole, xla.ConcatInDim(b, parts, 1)))
    close = xla.Lt(distance, xla.ConstantLiteral(b, np.float64(1e-12)))
    return xla.Reduce(close, xla.ConstantLiteral(b, True), scalar(xla.And, PRED), [0, 1, 2, 3])


# --- CustomCall -------------------------------------------------------------------------------------------------------


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
def _myfunc(out: int, inputs: Any) -> None:
    def array(address: int, *sizes: int) -> Any:
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), sizes)

    x, y, z = array(inputs[0], 2), array(inputs[1], 2, 3), array(out, 3, 3)
    np.testing.assert_array_equal(x, [1, 2])
    np.testing.assert_array_equal(y, [[10, 20, 30], [40, 50, 60]])
    z[...] = 0
    z[0, 0] = x[1] + y[1, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_call(backend: str) -> None:
    """The call of `myfunc` with f32[2] and f32[2x3], and its implementation."""
    ffi.register_ffi_target("documents.myfunc", _myfunc)

    def build(b: Any, x: Any, y: Any) -> Any:
        return xla.CustomCall("documents.myfunc", [x, y], xla.ShapeUtil.MakeShape(xla.F32, [3, 3]))

    x, y = f32([1, 2]), f32([[10, 20, 30], [40, 50, 60]])
    assert np.asarray(made(build, x, y)(x, y, backend=backend))[0, 0] == 2 + 40


# --- Dot --------------------------------------------------------------------------------------------------------------


@example("Dot", f32([1, 2, 3]), f32([4, 5, 6]), gives=F32(32))
def vector_dot_vector(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.Dot(lhs, rhs)


@example("Dot", f32([[1, 2, 3], [4, 5, 6]]), f32([1, 0, 2]), gives=f32([7, 16]))
def matrix_dot_vector(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.Dot(lhs, rhs)


@example("Dot", f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 0], [0, 1], [1, 1]]), gives=f32([[4, 5], [10, 11]]))
def matrix_dot_matrix(b: Any, lhs: Any, rhs: Any) -> Any:
    return xla.Dot(lhs, rhs)


@example("DotGeneral", f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]]), gives=f32([[6, 12], [15, 30]]))
def contracting_dimension_numbers(b: Any, lhs: Any, rhs: Any) -> Any:
    dnums = xla.DotDimensionNumbers()
    dnums.add_lhs_contracting_dimensions(1)
    dnums.add_rhs_contracting_dimensions(1)
    return xla.DotGeneral(lhs, rhs, dnums)


_BATCH = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])


@example("DotGeneral", _BATCH, f32([np.eye(2), np.eye(2)]), gives=_BATCH)
def batch_dimension_numbers(b: Any, lhs: Any, rhs: Any) -> Any:
    dnums = xla.DotDimensionNumbers()
    dnums.add_lhs_contracting_dimensions(2)
    dnums.add_rhs_contracting_dimensions(1)
    dnums.add_lhs_batch_dimensions(0)
    dnums.add_rhs_batch_dimensions(0)
    return xla.DotGeneral(lhs, rhs, dnums)


_LEFT, _RIGHT = _random.normal(size=(2, 3, 4, 5)), _random.normal(size=(2, 3, 5, 2))


@example("DotGeneral", _LEFT, _RIGHT, gives=_LEFT @ _RIGHT, tolerance=1e-12)
def two_batch_dimensions(b: Any, lhs: Any, rhs: Any) -> Any:  # [b0, b1, m, k] dot [b0, b1, k, n] -> [b0, b1, m, n]
    return xla.DotGeneral(lhs, rhs, xla.DotDimensionNumbers([3], [2], [0, 1], [0, 1]))


# --- DynamicSlice, DynamicUpdateSlice ---------------------------------------------------------------------------------

_A = f32([0, 1, 2, 3, 4])
_B = f32(np.arange(12).reshape(4, 3))


@example("DynamicSlice", _A, s32([2]), gives=f32([2, 3]))
def dynamic_slice_1d(b: Any, a: Any, s: Any) -> Any:
    return xla.DynamicSlice(a, s, [2])


@example("DynamicSlice", _B, s32([2, 1]), gives=f32([[7, 8], [10, 11]]))
def dynamic_slice_2d(b: Any, x: Any, s: Any) -> Any:
    return xla.DynamicSlice(x, s, [2, 2])


@example("DynamicSlice", _B, S32(2), S32(1), gives=f32([[7, 8], [10, 11]]))
def dynamic_slice_by_scalars(b: Any, x: Any, *starts: Any) -> Any:
    return xla.DynamicSlice(operand=x, start_indices=list(starts), size_indices=[2, 2])


@example("DynamicSlice", _A, s32([9]), gives=f32([3, 4]))
def dynamic_slice_is_moved_inside(b: Any, a: Any, s: Any) -> Any:
    return xla.DynamicSlice(a, s, [2])


@example("DynamicUpdateSlice", _A, f32([5, 6]), s32([2]), gives=f32([0, 1, 5, 6, 4]))
def dynamic_update_slice_1d(b: Any, a: Any, u: Any, s: Any) -> Any:
    return xla.DynamicUpdateSlice(a, u, s)


@example(
    "DynamicUpdateSlice",
    _B,
    f32([[12, 13], [14, 15], [16, 17]]),
    s32([1, 1]),
    gives=f32([[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]]),
)
def dynamic_update_slice_2d(b: Any, x: Any, u: Any, s: Any) -> Any:
    return xla.DynamicUpdateSlice(x, u, s)


# --- Fft --------------------------------------------------------------------------------------------------------------

_SIGNAL = _random.normal(size=(3, 16))


@example("Fft", _SIGNAL, gives=np.fft.rfft(_SIGNAL), tolerance=1e-12)
def rfft_has_half_the_length(b: Any, x: Any) -> Any:
    return xla.Fft(x, xla.FftType.RFFT, [16])


@example("Fft", np.fft.rfft(_SIGNAL), gives=np.fft.irfft(np.fft.rfft(_SIGNAL), 17), tolerance=1e-12)
def irfft_has_the_length_asked_for(b: Any, x: Any) -> Any:  # RFFT of 16 and of 17 elements have the same shape
    return xla.Fft(x, xla.FftType.IRFFT, [17])


@example("Fft", _SIGNAL, gives=np.fft.rfftn(_SIGNAL), tolerance=1e-12)
def several_lengths_are_a_cascade(b: Any, x: Any) -> Any:
    innermost = xla.Fft(x, xla.FftType.RFFT, [16])
    rows = xla.Fft(xla.Transpose(innermost, [1, 0]), xla.FftType.FFT, [3])
    return xla.Transpose(rows, [1, 0])


@example("Fft", _SIGNAL, gives=np.fft.rfftn(_SIGNAL), tolerance=1e-12)
def several_lengths_at_once(b: Any, x: Any) -> Any:
    return xla.Fft(x, xla.FftType.RFFT, [3, 16])


# --- Gather -----------------------------------------------------------------------------------------------------------

_TABLE = np.arange(16 * 11, dtype=S32).reshape(16, 11)
_STARTS = _random.integers(0, [9, 6], (5, 2))
_STARTS_2D = _random.integers(0, [9, 6], (4, 5, 2))


@example("Gather", _TABLE, _STARTS, gives=np.stack([_TABLE[x : x + 8, y : y + 6] for x, y in _STARTS]))
def five_slices(b: Any, operand: Any, start_indices: Any) -> Any:
    numbers = xla.GatherDimensionNumbers(offset_dims=[1, 2], start_index_map=[0, 1], index_vector_dim=1)
    return xla.Gather(operand, start_indices, numbers, slice_sizes=[8, 6])


@example(
    "Gather",
    _TABLE,
    _STARTS_2D,
    gives=np.stack([[_TABLE[x : x + 8, y : y + 6] for x, y in row] for row in _STARTS_2D]),
)
def indices_of_two_dimensions(b: Any, operand: Any, start_indices: Any) -> Any:
    numbers = xla.GatherDimensionNumbers(offset_dims=[2, 3], start_index_map=[0, 1], index_vector_dim=2)
    return xla.gather(operand, start_indices, numbers, slice_sizes=[8, 6], indices_are_sorted=False)


_ROWS = _random.integers(0, 16, (4, 5, 1))


@example("Gather", _TABLE, _ROWS, gives=_TABLE[_ROWS[..., 0]])
def gather_nd(b: Any, operand: Any, start_indices: Any) -> Any:
    numbers = xla.GatherDimensionNumbers([2], [0], [0], 2)
    return xla.Gather(operand, start_indices, numbers, [1, 11])


@example("Gather", _TABLE, _ROWS, gives=_TABLE[_ROWS[..., 0]])
def gather_nd_on_the_older_page(b: Any, operand: Any, gather_indices: Any) -> Any:
    return xla.gather(
        operand,
        gather_indices,
        output_window_dims=[2],
        elided_window_dims=[0],
        window_bounds=[1, 11],
        gather_dims_to_operand_dims=[0],
    )


@example("Gather", _TABLE, _ROWS[..., 0], gives=_TABLE[_ROWS[..., 0]])
def trailing_1_is_implied(b: Any, operand: Any, start_indices: Any) -> Any:  # index_vector_dim = start_indices.rank
    return xla.Gather(operand, start_indices, xla.GatherDimensionNumbers([2], [0], [0], 2), [1, 11])


# --- Tuple, GetTupleElement, Iota, IsFinite ---------------------------------------------------------------------------

_V10 = np.arange(10, dtype=F32)


@example("GetTupleElement", _V10, S32(5), gives=S32(5))
def element_1(b: Any, v: Any, s: Any) -> Any:
    return xla.GetTupleElement(xla.Tuple(b, [v, s]), 1)


@example("Tuple", _V10, S32(5), gives=(_V10, s32(5)))
def tuple_of_two(b: Any, v: Any, s: Any) -> Any:
    return xla.Tuple([v, s])


@example("Tuple", (_V10, (S32(5), PRED(True))), gives=((s32(5), np.array(True)), _V10))
def nested_tuples_as_parameter_and_result(b: Any, t: Any) -> Any:
    return xla.Tuple([xla.GetTupleElement(t, 1), xla.GetTupleElement(t, 0)])


@example("Iota", gives=np.repeat(s32([[0], [1], [2], [3]]), 8, 1))
def iota_along_0(b: Any) -> Any:
    return xla.Iota(b, xla.ShapeUtil.MakeShape(xla.S32, [4, 8]), 0)


@example("Iota", gives=np.tile(s32([0, 1, 2, 3, 4, 5, 6, 7]), (4, 1)))
def iota_along_1(b: Any) -> Any:
    return xla.Iota(b, shape=xla.ShapeUtil.MakeShape(xla.S32, [4, 8]), iota_dimension=1)


@example("Iota", gives=np.arange(5, dtype=F32))
def iota_of_floats_is_converted(b: Any) -> Any:
    return xla.ConvertElementType(xla.Iota(b, xla.ShapeUtil.MakeShape(xla.S32, [5]), 0), xla.F32)


@example("IsFinite", f32([1, np.inf, -np.inf, np.nan]), gives=np.array([True, False, False, False]))
def is_finite(b: Any, x: Any) -> Any:
    return xla.IsFinite(x)


@example("Imag", f32([1, 2]), gives=f32([0, 0]))
def imag_of_real(b: Any, x: Any) -> Any:
    return xla.Imag(x)


@example("Real", f32([1, 2]), gives=f32([1, 2]))
def real_of_real(b: Any, x: Any) -> Any:
    return xla.Real(x)


@example("Sign", f32([-3, -0.0, np.nan, 0.0, 2]), gives=f32([-1, -0.0, np.nan, 0.0, 1]))
def sign(b: Any, x: Any) -> Any:
    return xla.Sign(x)


@example("Rem", s32([7, -7, 7, -7]), s32([3, 3, -3, -3]), gives=s32([1, -1, 1, -1]))
def remainder_has_the_sign_of_the_dividend(b: Any, x: Any, y: Any) -> Any:
    return xla.Rem(x, y)


# --- Map, Pad ---------------------------------------------------------------------------------------------------------

_OPS = f32([[1, 2], [3, 4]]), f32([[5, 6], [7, 8]]), f32([[1, 0], [2, 1]])


@example("Map", *_OPS, F32(10), gives=_OPS[0] * _OPS[1] + _OPS[2] * 10)
def map_with_a_static_operand(b: Any, op1: Any, op2: Any, op3: Any, par1: Any) -> Any:
    computation = made(lambda b, x, y, z, p: x * y + z * p, *[F32(0)] * 4)
    return xla.Map([op1, op2, op3], computation, [0, 1], static_operands=[par1])


@example("Map", *_OPS[:2], gives=_OPS[0] > _OPS[1])
def map_to_another_type(b: Any, op1: Any, op2: Any) -> Any:
    return xla.Map(b, [op1, op2], scalar(xla.Gt), dimensions=[0, 1])


def _pad(b: Any, operand: Any, *rows: tuple[int, int, int]) -> Any:
    config = xla.PaddingConfig()
    for low, high, interior in rows:
        config.dimensions.append(
            xla.PaddingConfigDimension(edge_padding_low=low, edge_padding_high=high, interior_padding=interior)
        )
    return xla.Pad(operand, xla.ConstantLiteral(b, S32(9)), config)


@example("Pad", s32([[1, 2], [3, 4]]), gives=s32([[1, 2], [3, 4]]))
def pad_by_nothing(b: Any, operand: Any) -> Any:
    return _pad(b, operand, (0, 0, 0), (0, 0, 0))


@example("Pad", s32([[1, 2], [3, 4]]), gives=s32([[9, 9, 9], [1, 2, 9], [9, 9, 9], [3, 4, 9]]))
def pad_edges_and_interior(b: Any, operand: Any) -> Any:
    return _pad(b, operand, (1, 0, 1), (0, 1, 0))


@example("Pad", s32([1, 2, 3]), gives=s32([9, 2, 9]))
def negative_edges_remove_after_interior_padding(b: Any, operand: Any) -> Any:
    return _pad(b, operand, (-1, -1, 1))


# --- Reduce -----------------------------------------------------------------------------------------------------------


def _add(dtype: Any = F32) -> Any:
    return scalar(xla.Add, dtype)


def _zero(b: Any, dtype: Any = xla.F32) -> Any:
    return xla.ConstantLiteral(b, xla.LiteralUtil.Zero(dtype))


def _maximum() -> Any:
    """The page's computation for a reduction, as it makes it: with methods of the builder, and without a root."""
    builder = xla.XlaBuilder("max")
    y = builder.Parameter(0, xla.ShapeUtil.MakeShape(xla.F32, []), "y")
    x = builder.Parameter(1, xla.ShapeUtil.MakeShape(xla.F32, []), "x")
    builder.Max(y, x)
    return builder.Build()


@example("Reduce", f32([10, 11, 12, 13]), gives=F32(46))
def reduce_a_vector(b: Any, x: Any) -> Any:
    return xla.Reduce(x, _zero(b), _add(), [0])


@example("Reduce", f32([10, 11, 12, 13]), gives=F32(46))
def reduce_one_by_one(b: Any, x: Any) -> Any:  # f(10, f(11, f(12, f(init_value, 13))))
    f, result = _add(), _zero(b)
    for k, operand_first in ((3, False), (2, True), (1, True), (0, True)):
        element = xla.Reshape(xla.Slice(x, [k], [k + 1]), [])
        result = xla.Call(f, [element, result] if operand_first else [result, element])
    return result


@example("Reduce", f32([10, 11, 12, 13]), gives=F32(46))
def reduce_as_a_tree(b: Any, x: Any) -> Any:
    # f(init_value, f(f(10, f(init_value, 11)), f(f(init_value, 12), f(init_value, 13))))
    computation, init_value = _add(), _zero(b)
    ten, eleven, twelve, thirteen = (xla.Reshape(xla.Slice(x, [k], [k + 1]), []) for k in range(4))

    def f(*operands: Any) -> Any:
        return xla.Call(computation, list(operands))

    right = f(f(init_value, twelve), f(init_value, thirteen))
    return f(init_value, f(f(ten, f(init_value, eleven)), right))


_MATRIX = f32([[1, 2, 3], [4, 5, 6]])
_CUBE = np.tile(_MATRIX, (4, 1, 1))


def _summed(operand: Any, dimensions: tuple[int, ...]) -> Any:
    """The page's pseudo-code of a reduction by summation."""
    kept = [d for d in range(operand.ndim) if d not in dimensions]
    result = np.zeros([operand.shape[d] for d in kept], operand.dtype)
    for index in np.ndindex(*operand.shape):
        result[tuple(index[d] for d in kept)] += operand[index]
    return result


for _operand, _dimensions, _expected in (
    (_MATRIX, (0,), f32([5, 7, 9])),
    (_MATRIX, (1,), f32([6, 15])),
    (_CUBE, (0,), f32([[4, 8, 12], [16, 20, 24]])),
    (_CUBE, (2,), f32([[6, 15]] * 4)),
    (_CUBE, (0, 1), f32([20, 28, 36])),
    (_CUBE, (1, 0), f32([20, 28, 36])),  # in any order
    (_CUBE, (0, 1, 2), F32(84)),
):
    np.testing.assert_array_equal(_summed(_operand, _dimensions), _expected)

    @example("Reduce", _operand, gives=_expected)
    def reduce_dimensions(b: Any, x: Any, dimensions: Any = _dimensions) -> Any:
        return xla.Reduce(b, [x], [_zero(b)], _add(), dimensions_to_reduce=dimensions)


@example("Reduce", _MATRIX, gives=f32([6, 15]))
def reduce_with_older_names(b: Any, x: Any) -> Any:
    return xla.Reduce(operand=x, init_value=_zero(b), computation=_add(), dimensions=[1])


def _arg_max() -> Any:
    """f(max, argmax, value, index): if value >= max: return (value, index), else: return (max, argmax)."""

    def build(b: Any, maximum: Any, argmax: Any, value: Any, index: Any) -> Any:
        return xla.Select(xla.Ge(value, maximum), xla.Tuple([value, index]), xla.Tuple([maximum, argmax]))

    return made(build, F32(0), S32(0), F32(0), S32(0))


@example("Reduce", f32([3, 9, 1, 7]), gives=(F32(9), S32(1)))
def maximum_and_its_place(b: Any, values: Any) -> Any:
    places = xla.Iota(b, xla.ShapeUtil.MakeShape(xla.S32, [4]), 0)
    starts = [xla.ConstantLiteral(b, xla.LiteralUtil.MinValue(xla.F32)), _zero(b, xla.S32)]
    return xla.Reduce(b, [values, places], starts, _arg_max(), [0])


@example("Reduce", f32([3, 9, 1, 7]), gives=(F32(9), S32(1)))
def maximum_and_its_place_one_by_one(b: Any, values: Any) -> Any:
    # f_0 = f(I_V, I_K, V_0, K_0), f_1 = f(f_0.first, f_0.second, V_1, K_1), ...
    found = xla.Tuple([xla.ConstantLiteral(b, xla.LiteralUtil.MinValue(xla.F32)), _zero(b, xla.S32)])
    for k in range(4):
        value, index = xla.Reshape(xla.Slice(values, [k], [k + 1]), []), xla.ConstantLiteral(b, k)
        f = [xla.GetTupleElement(found, 0), xla.GetTupleElement(found, 1), value, index]
        found = xla.Call(_arg_max(), f)
    return found


@example("ReducePrecision", f32([1 + 2**-11, 1 + 3 * 2**-11, 1e6, np.nan]), gives=f32([1, 1 + 2**-9, np.inf, np.nan]))
def reduce_precision_to_half(b: Any, x: Any) -> Any:  # ties to even; infinity beyond the range
    return xla.ReducePrecision(x, exponent_bits=5, mantissa_bits=10)


# --- ReduceWindow -----------------------------------------------------------------------------------------------------

_GRID = f32(_random.permutation(24).reshape(4, 6))


@example("ReduceWindow", _GRID, gives=_GRID.reshape(2, 2, 2, 3).max((1, 3)))
def reduce_window_2x3(b: Any, x: Any) -> Any:
    return b.ReduceWindow(
        x,
        b.ConstantLiteral(xla.LiteralUtil.MinValue(xla.F32)),
        _maximum(),
        [2, 3],  # window_dimensions
        [2, 3],  # window_stride_dimensions
        xla.Padding.kValid,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_reduce_window_example_1(backend: str) -> None:
    """The page's code line by line."""
    builder = xla.XlaBuilder("reduce_window_2x3")
    shape = xla.ShapeUtil.MakeShape(xla.F32, [4, 6])
    input = builder.Parameter(0, shape, "input")
    least = builder.ConstantLiteral(xla.LiteralUtil.MinValue(xla.F32))
    builder.ReduceWindow(input, least, _maximum(), [2, 3], [2, 3], xla.Padding.kValid)
    equal(builder.Build()(_GRID, backend=backend), _GRID.reshape(2, 2, 2, 3).max((1, 3)))


_POWERS = f32([10000, 1000, 100, 10, 1])


def _least(b: Any, x: Any, padding: Any) -> Any:
    start = xla.ConstantLiteral(b, xla.LiteralUtil.MaxValue(xla.F32))
    return xla.ReduceWindow(x, start, scalar(xla.Min), window_dimensions=[3], window_strides=[2], padding=padding)


@example("ReduceWindow", _POWERS, gives=f32([100, 1]))
def minimum_of_valid_windows(b: Any, x: Any) -> Any:
    return _least(b, x, xla.Padding.kValid)


@example("ReduceWindow", _POWERS, gives=f32([1000, 10, 1]))
def minimum_of_padded_windows(b: Any, x: Any) -> Any:
    return _least(b, x, xla.Padding.kSame)


@example("ReduceWindow", s32([[1, 2], [3, 4], [5, 6]]), gives=s32([[0, 0], [3, 4]]))
def reduce_window_with_dilations(b: Any, x: Any) -> Any:
    return xla.ReduceWindowWithGeneralPadding(
        x,
        _zero(b, xla.S32),
        _add(S32),
        window_dimensions=[2, 1],
        window_strides=[4, 1],
        base_dilations=[2, 1],
        window_dilations=[3, 1],
        padding=[(2, 1), (0, 0)],
    )


# --- Reshape, Rev -----------------------------------------------------------------------------------------------------


@example("Reshape", _V, gives=_FLAT)
def reshape_to_24(b: Any, v: Any) -> Any:
    return xla.Reshape(v, [24])


@example("Reshape", _V, gives=_FLAT.reshape(8, 3))
def reshape_to_8_3(b: Any, v: Any) -> Any:
    return xla.Reshape(v, [8, 3])


@example("Reshape", f32([[5]]), gives=F32(5))
def reshape_to_scalar(b: Any, x: Any) -> Any:
    return xla.Reshape(x, [])


@example("Reshape", F32(5), gives=f32([[5]]))
def reshape_from_scalar(b: Any, x: Any) -> Any:
    return xla.Reshape(x, [1, 1])


@example("Reshape (explicit)", _V, gives=_FLAT.reshape(8, 3))
def reshape_to_a_shape(b: Any, v: Any) -> Any:
    return xla.Reshape(xla.ShapeUtil.MakeShape(xla.F32, [8, 3]), v)


_OUT_OF_ORDER = f32([10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47])

# On the older pages: the order in which dimensions are collapsed, then the new sizes. The page writes the result of
# {2, 6, 2} in three levels of braces as here.
for _order, _sizes, _expected in (
    ((0, 1, 2), (24,), _FLAT),
    ((0, 1, 2), (8, 3), _FLAT.reshape(8, 3)),
    ((1, 2, 0), (24,), _OUT_OF_ORDER),
    ((1, 2, 0), (8, 3), _OUT_OF_ORDER.reshape(8, 3)),
    ((1, 2, 0), (2, 6, 2), _OUT_OF_ORDER.reshape(2, 6, 2)),
):

    @example("Reshape", _V, gives=_expected)
    def reshape_with_an_order(b: Any, v: Any, order: Any = _order, sizes: Any = _sizes) -> Any:
        return xla.Reshape(v, order, sizes)


@example("Reshape", f32([[5]]), gives=F32(5))
def reshape_to_scalar_with_an_order(b: Any, x: Any) -> Any:
    return xla.Reshape(x, [0, 1], [])


@example("Reshape", F32(5), gives=f32([[5]]))
def reshape_from_scalar_with_an_order(b: Any, x: Any) -> Any:
    return xla.Reshape(x, dimensions=[], new_sizes=[1, 1])


@example("Transpose", _V, gives=_V.transpose(2, 0, 1))
def transpose_is_a_reshape(b: Any, v: Any) -> Any:
    # Reshape(operand, permutation, Permute(permutation, operand.shape.dimensions))
    return xla.Reshape(v, [2, 0, 1], [3, 4, 2])


@example("Transpose", _V, gives=_V.transpose(2, 0, 1))
def transpose(b: Any, v: Any) -> Any:
    return xla.Transpose(v, [2, 0, 1])


@example("Rev", _B, gives=_B[::-1, ::-1])
def reverse_both(b: Any, x: Any) -> Any:  # index i becomes N - 1 - i
    return xla.Rev(x, [0, 1])


# --- Scatter ----------------------------------------------------------------------------------------------------------

_TARGET = np.arange(1, 49, dtype=S32).reshape(2, 3, 4, 2)
_PLACES = np.array(
    [[[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]], [[[0, 0], [2, 1], [2, 2]], [[1, 2], [0, 1], [1, 0]]]], S64
)
_UPDATES = np.arange(100, 124, dtype=S32).reshape(2, 2, 3, 1, 2)


def _scattered() -> Any:
    """The page's figure and its rule: window dimensions [3, 4], scatter_dims_to_operand_dims = [2, 1]; dimension 0 of
    the operand runs with dimension 1 of the indices, and dimension 1 of the operand is inserted."""
    output = _TARGET.copy()
    for index in np.ndindex(*_UPDATES.shape):
        start = _PLACES[index[:3]]
        full = [index[1], start[1], start[0] + index[3], index[4]]
        if all(0 <= i < n for i, n in zip(full, output.shape, strict=True)):  # others are skipped
            output[tuple(full)] += _UPDATES[index]
    return output


_SCATTER = xla.ScatterDimensionNumbers(
    update_window_dims=[3, 4],
    inserted_window_dims=[1],
    scatter_dims_to_operand_dims=[2, 1],
    index_vector_dim=3,
    input_batching_dims=[0],
    scatter_indices_batching_dims=[1],
)


@example("Scatter", _TARGET, _PLACES, _UPDATES, gives=_scattered())
def scatter(b: Any, operand: Any, indices: Any, updates: Any) -> Any:
    return xla.Scatter(operand, indices, updates, _add(S32), _SCATTER)


@example("Scatter", s32([1, 2, 3]), s32([[1], [2]]), s32([10, 20]), gives=s32([1, -8, -17]))
def first_argument_is_the_current_value(b: Any, operand: Any, indices: Any, updates: Any) -> Any:
    numbers = xla.ScatterDimensionNumbers([], [0], [0], 1)
    return xla.Scatter([operand], indices, [updates], scalar(xla.Sub, S32), numbers, unique_indices=True)


# --- SetDimensionSize, DynamicReshape ---------------------------------------------------------------------------------

_TO_TEN = np.arange(1, 11, dtype=F32)


@example("SetDimensionSize", _TO_TEN, S32(5), S32(6), gives=(F32(15), F32(120), F32(21)))
def padding_is_ignored_by_reductions(b: Any, v: Any, five: Any, six: Any) -> Any:
    padded_v_five = xla.SetDimensionSize(v, five, dimension=0)
    padded_v_six = xla.SetDimensionSize(v, six, dimension=0)
    product = xla.Reduce(padded_v_five, xla.ConstantLiteral(b, 1.0), scalar(xla.Mul), [0])
    sums = [xla.Reduce(padded, _zero(b), _add(), [0]) for padded in (padded_v_five, padded_v_six)]
    return xla.Tuple([sums[0], product, sums[1]])


@example("GetDimensionSize", _TO_TEN, S32(4), gives=(S32(10), S32(4)))
def size_of_a_static_and_of_a_dynamic_dimension(b: Any, v: Any, four: Any) -> Any:
    return xla.Tuple([xla.GetDimensionSize(v, 0), xla.GetDimensionSize(xla.SetDimensionSize(v, four, 0), 0)])


@example("DynamicReshape", _TO_TEN, S32(6), S32(3), S32(2), gives=_TO_TEN[:6].reshape(3, 2))
def reshape_to_sizes_known_at_run_time(b: Any, v: Any, six: Any, *dim_sizes: Any) -> Any:
    part = xla.SetDimensionSize(v, six, 0)
    return xla.DynamicReshape(part, list(dim_sizes), new_size_bounds=[5, 2], dims_are_dynamic=[True, False])


# --- Select, SelectAndScatter -----------------------------------------------------------------------------------------

_V1, _V2 = s32([1, 2, 3, 4]), s32([100, 200, 300, 400])


@example("Select", np.array([True, False, False, True]), _V1, _V2, gives=s32([1, 200, 300, 4]))
def select_elements(b: Any, pred: Any, v1: Any, v2: Any) -> Any:
    return xla.Select(pred, v1, v2)


@example("Select", PRED(True), _V1, _V2, gives=_V1)
def select_an_array(b: Any, pred: Any, v1: Any, v2: Any) -> Any:
    return xla.Select(pred, v1, v2)


@example("Select", PRED(False), (_V1, F32(1)), (_V2, F32(2)), gives=(_V2, F32(2)))
def select_a_tuple(b: Any, pred: Any, on_true: Any, on_false: Any) -> Any:
    return xla.Select(pred, on_true, on_false)


_PEAKS = f32([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])


@example(
    "SelectAndScatter",
    _PEAKS,
    f32([[2, 6], [3, 1]]),
    gives=f32([[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]),
)
def overlapping_windows_select_9_twice(b: Any, operand: Any, source: Any) -> Any:  # 8 = 2 + 6
    return xla.SelectAndScatter(operand, scalar(xla.Ge), [2, 3], [2, 2], xla.Padding.kValid, source, _zero(b), _add())


@example(
    "SelectAndScatter",
    f32([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]]),
    f32([[2, 6], [3, 1]]),
    gives=f32([[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]]),
)
def windows_side_by_side(b: Any, operand: Any, source: Any) -> Any:
    return xla.SelectAndScatter(operand, scalar(xla.Ge), [2, 3], [2, 3], xla.Padding.kValid, source, _zero(b), _add())


# --- Slice, Sort, TopK ------------------------------------------------------------------------------------------------


@example("Slice", _A, gives=f32([2, 3]))
def slice_1d(b: Any, a: Any) -> Any:
    return xla.Slice(a, [2], [4])


@example("Slice", _B, gives=f32([[7, 8], [10, 11]]))
def slice_2d(b: Any, x: Any) -> Any:
    return xla.Slice(x, [2, 1], [4, 3])


@example("Slice", _V10, gives=f32([1, 4, 7]))
def slice_by_strides(b: Any, x: Any) -> Any:  # every strides[d]-th element
    return xla.Slice(x, [1], [10], [3])


def _by_first() -> Any:
    """The comparator of three arrays that looks at the first alone."""
    scalars = [S32(0), S32(0), S32(0), S32(0), F32(0), F32(0)]
    return made(lambda b, x, y, *_: xla.Lt(x, y), *scalars)


@example("Sort", s32([3, 1]), s32([42, 50]), f32([-3.0, 1.1]), gives=(s32([1, 3]), s32([50, 42]), f32([1.1, -3.0])))
def sort_three_together(b: Any, *operands: Any) -> Any:
    return xla.Sort(b, list(operands), _by_first(), 0, False)


_UNSORTED = f32([[3, 1, 2], [0, 5, 1]])


@example("Sort", _UNSORTED, gives=np.sort(_UNSORTED, 0))
def sort_each_column(b: Any, x: Any) -> Any:
    return xla.Sort(x, scalar(xla.Lt), dimension=0)


@example("Sort", _UNSORTED, gives=np.sort(_UNSORTED, 1))
def sort_the_last_dimension_by_default(b: Any, x: Any) -> Any:
    return xla.Sort([x], comparator=scalar(xla.Lt))


@example("Sort", f32([3, 1, 2]), gives=f32([1, 2, 3]))
def sort_of_the_older_pages(b: Any, operand: Any) -> Any:
    return xla.Sort(operand)


@example("Sort", s32([13, 21, 11, 22, 12]), gives=s32([13, 11, 12, 21, 22]))
def stable_sort_keeps_the_order_of_equals(b: Any, x: Any) -> Any:
    ten = lambda b: xla.ConstantLiteral(b, 10)  # noqa: E731
    by_tens = made(lambda b, x, y: xla.Lt(xla.Div(x, ten(b)), xla.Div(y, ten(b))), S32(0), S32(0))
    return xla.Sort([x], by_tens, 0, is_stable=True)


@example("TopK", f32([[1, 5, 5, 2], [4, 3, 0, 4]]), gives=(f32([[5, 5], [4, 4]]), s32([[1, 2], [0, 3]])))
def largest_two(b: Any, x: Any) -> Any:  # of equal ones the lower index first
    return xla.TopK(x, 2, largest=True)


@example("TopK", f32([3, 1, 2]), gives=(f32([1, 2]), s32([1, 2])))
def smallest_two(b: Any, x: Any) -> Any:
    return xla.TopK(x, k=2, largest=False)


# --- Cholesky, TriangularSolve ----------------------------------------------------------------------------------------

_ROOT = np.tril(_random.normal(size=(2, 3, 3))) + 3 * np.eye(3)
_SYMMETRIC = _ROOT @ _ROOT.transpose(0, 2, 1)


@example("Cholesky", _SYMMETRIC, gives=_SYMMETRIC, tolerance=1e-10)
def cholesky_lower(b: Any, a: Any) -> Any:  # a = l . l^T
    mask = xla.ConstantLiteral(b, np.tril(np.ones((2, 3, 3))))  # the other triangle may be anything
    zero = xla.ConstantLiteral(b, np.float64(0))
    lower = xla.Select(xla.Gt(mask, zero), xla.Cholesky(a, lower=True), zero)
    return xla.DotGeneral(lower, lower, xla.DotDimensionNumbers([2], [2], [0], [0]))


@example("Cholesky", _SYMMETRIC, gives=_SYMMETRIC, tolerance=1e-10)
def cholesky_upper(b: Any, a: Any) -> Any:  # a = u^T . u
    mask = xla.ConstantLiteral(b, np.triu(np.ones((2, 3, 3))))
    zero = xla.ConstantLiteral(b, np.float64(0))
    upper = xla.Select(xla.Gt(mask, zero), xla.Cholesky(a, lower=False), zero)
    return xla.DotGeneral(upper, upper, xla.DotDimensionNumbers([1], [1], [0], [0]))


_COMPLEX = _ROOT + 1j * np.tril(_random.normal(size=(2, 3, 3)))


@example("TriangularSolve", _COMPLEX, _COMPLEX[:, :, :2], gives=_COMPLEX[:, :, :2], tolerance=1e-10)
def solve_with_the_conjugate_transpose(b: Any, a: Any, rhs: Any) -> Any:  # Conj(Transpose(a)) * x = b
    x = xla.TriangularSolve(
        a,
        rhs,
        left_side=True,
        lower=True,
        unit_diagonal=False,
        transpose_a=xla.TriangularSolveOptions.Transpose.ADJOINT,
    )
    return xla.DotGeneral(xla.Conj(a), x, xla.DotDimensionNumbers([1], [1], [0], [0]))


@example("TriangularSolve", _ROOT, _V[:2].astype(float), gives=_V[:2].astype(float), tolerance=1e-10)
def solve_from_the_right(b: Any, a: Any, rhs: Any) -> Any:  # x * op(a) = b, with op the transpose
    x = xla.TriangularSolve(a, rhs, False, True, False, xla.TriangularSolveOptions.Transpose.TRANSPOSE)
    return xla.DotGeneral(x, a, xla.DotDimensionNumbers([2], [2], [0], [0]))


# --- While ------------------------------------------------------------------------------------------------------------

_CONSTANT = np.arange(10, dtype=F32) / 8


@example("While", gives=(s32(1000), _CONSTANT * 1000))
def a_vector_added_1000_times(b: Any) -> Any:
    state = (S32(0), np.zeros(10, F32))

    def condition(b: Any, result: Any) -> Any:
        return xla.Lt(xla.GetTupleElement(result, 0), xla.ConstantLiteral(b, 1000))

    def body(b: Any, result: Any) -> Any:
        iteration = xla.GetTupleElement(result, 0) + xla.ConstantLiteral(b, 1)
        new_vector = xla.GetTupleElement(result, 1) + xla.ConstantLiteral(b, _CONSTANT)
        return xla.Tuple([iteration, new_vector])

    return xla.While(made(condition, state), made(body, state), xla.ConstantLiteral(b, state))


@example("While", S32(3), gives=s32(48))
def while_of_one_array(b: Any, init: Any) -> Any:
    condition = made(lambda b, x: xla.Lt(x, xla.ConstantLiteral(b, 40)), S32(0))
    return xla.While(condition, made(lambda b, x: xla.Add(x, x), S32(0)), init)


# --- every section ----------------------------------------------------------------------------------------------------

# The sections of the newest page, in its order, and those that only older pages have.
SECTIONS = """
    Abs Add AddDependency AfterAll AllGather AllReduce CrossReplicaSum AllToAll RaggedAllToAll And Async Atan2
    BatchNormGrad BatchNormInference BatchNormTraining Bitcast BitcastConvertType Broadcast BroadcastInDim Call
    CompositeCall Cbrt Ceil Cholesky Clamp Collapse Clz CollectiveBroadcast CollectivePermute Compare Eq Ne Ge Gt Le
    Lt Complex Concatenate Conditional Constant ConvertElementType Conv Copy Cos Cosh CustomCall Div Domain Dot
    DotGeneral ScaledDot RaggedDot DynamicReshape DynamicSlice DynamicUpdateSlice Erf Exp Expm1 Fft Floor Fusion
    Gather GetDimensionSize GetTupleElement Imag Infeed Iota IsFinite Log Log1p Logistic Map Max Min Mul Neg Not
    OptimizationBarrier Or Outfeed Pad Parameter PartitionID PopulationCount Pow Real Recv Reduce ReducePrecision
    ReduceScatter ReduceWindow Rem ReplicaId Reshape Rev RngNormal RngUniform RngBitGenerator RngGetAndUpdateState
    Round RoundNearestAfz RoundNearestEven Rsqrt Scatter Select SelectAndScatter Send SetDimensionSize ShiftLeft
    ShiftRightArithmetic ShiftRightLogical Sign Sin Slice Sort Sqrt Sub Tan Tanh TopK Transpose TriangularSolve
    Tuple While Xor RngBernoulli
""".split()
# Those that show nothing to run: a signature, a formula that is the function's name, or nothing for users.
WITHOUT_EXAMPLE = """
    Abs Add AddDependency AfterAll And Async Atan2 Bitcast Cbrt Ceil Clz Complex Constant Copy Cos Cosh Div Domain
    ScaledDot RaggedDot Erf Exp Expm1 Floor Fusion Ge Gt Le Log Log1p Logistic Max Min Mul Ne Neg Not
    OptimizationBarrier Or Parameter PopulationCount Pow RngGetAndUpdateState Round RoundNearestAfz RoundNearestEven
    Rsqrt ShiftLeft ShiftRightArithmetic ShiftRightLogical Sin Sqrt Sub Tan Tanh Xor
""".split()
TESTED_HERE = "CustomCall RngNormal RngUniform RngBitGenerator RngBernoulli".split()  # by functions of their own
ACROSS_REPLICAS = """
    AllGather AllReduce CrossReplicaSum AllToAll RaggedAllToAll CollectiveBroadcast CollectivePermute Infeed Outfeed
    PartitionID Recv ReduceScatter ReplicaId Send
""".split()


def test_every_section_is_accounted_for() -> None:
    with_example = {e.section for e in EXAMPLES} - {"Broadcasting", "Reshape (explicit)"}
    assert set(SECTIONS) == {*with_example, *WITHOUT_EXAMPLE, *TESTED_HERE, *ACROSS_REPLICAS}
    assert not with_example & {*WITHOUT_EXAMPLE, *TESTED_HERE, *ACROSS_REPLICAS}


# --- what runs them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[f"{e.section}-{e.build.__name__}" for e in EXAMPLES])
def test_example(number: int, backend: str) -> None:
    e = EXAMPLES[number]
    equal(made(e.build, *e.arguments)(*e.arguments, backend=backend), e.expected, e.tolerance)


# --- RngBitGenerator, RngUniform, RngNormal, RngBernoulli -------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("algorithm", "state"), [("RNG_THREE_FRY", 2), ("RNG_PHILOX", 3), ("RNG_DEFAULT", 3)])
def test_random_bits_are_a_function_of_the_state(algorithm: str, state: int, backend: str) -> None:
    def build(b: Any, initial_state: Any) -> Any:
        shape = xla.ShapeUtil.MakeShape(xla.U32, [7, 3])
        return xla.RngBitGenerator(xla.RandomAlgorithm[algorithm], initial_state, shape)

    initial = np.arange(state, dtype=np.uint64) + 5
    draw = made(build, initial)
    new, bits = draw(initial, backend=backend)
    again, same = draw(initial, backend=backend)
    _, others = draw(new, backend=backend)
    equal((again, same), (new, bits))
    assert new.shape == (state,)
    assert bits.shape == (7, 3)
    assert not np.array_equal(bits, others)


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers(backend: str) -> None:
    """RngUniform over [a, b), RngNormal with mean and deviation, and RngBernoulli of the oldest page."""
    shape = xla.ShapeUtil.MakeShape(xla.F32, [4000])

    def build(b: Any, low: Any, high: Any) -> Any:
        ones = xla.RngBernoulli(xla.ConstantLiteral(b, 0.25), xla.ShapeUtil.MakeShape(xla.U32, [4000]))
        return xla.Tuple([xla.RngUniform(low, high, shape), xla.RngNormal(low, high, shape), ones])

    draw = made(build, F32(0), F32(0))
    uniform, normal, ones = map(np.asarray, draw(F32(2), F32(5), backend=backend))
    assert uniform.min() >= 2
    assert uniform.max() < 5
    assert abs(uniform.mean() - 3.5) < 0.1
    assert abs(normal.mean() - 2) < 0.5
    assert abs(normal.std() - 5) < 0.5
    assert ones.dtype == np.uint32
    assert set(ones.tolist()) == {0, 1}
    assert abs(ones.mean() - 0.25) < 0.05
    assert not np.array_equal(uniform, draw(F32(2), F32(5), backend=backend)[0])


# --- Shapes and Layout ------------------------------------------------------------------------------------------------

_LETTERS = np.array([[ord(c) for c in row] for row in ("abc", "def")], np.uint8)


def _letters(values: Any) -> str:
    return " ".join(chr(v) if v else "0" for v in values)


@pytest.mark.parametrize(
    ("minor_to_major", "padded_dimensions", "expected"),
    [
        ([0, 1], [], "a d b e c f"),
        ([1, 0], [], "a b c d e f"),
        ([0, 1], [3, 5], "a d 0 b e 0 c f 0 0 0 0 0 0 0"),
        ([1, 0], [3, 5], "a b c 0 0 d e f 0 0 0 0 0 0 0"),  # the padded array by rows, as the page draws it
    ],
)
def test_linear_memory(minor_to_major: list[int], padded_dimensions: list[int], expected: str) -> None:
    layout = xla.LayoutUtil.MakeLayout(minor_to_major, padded_dimensions=padded_dimensions, padding_value=0)
    linear = xla.LiteralUtil.LinearValues(_LETTERS, layout)
    assert _letters(linear) == expected
    shape = xla.ShapeUtil.MakeShapeWithLayout(xla.U8, [2, 3], layout)
    equal(xla.LiteralUtil.FromLinearValues(shape, linear), _LETTERS)
    for index in np.ndindex(2, 3):
        place = xla.IndexUtil.MultidimensionalIndexToLinearIndex(shape, index)
        assert linear[place] == _LETTERS[index]
        assert xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape, place) == list(index)


def test_terminology() -> None:
    a, b, c = 2, 1, 4
    shape = xla.ShapeUtil.MakeShape(xla.F32, [a, b, c])
    assert shape.dimensions == (a, b, c)
    assert xla.ShapeUtil.Rank(shape) == 3
    assert xla.ShapeUtil.TrueRank(shape) == 2
    assert xla.ShapeUtil.GetDimension(shape, -1) == c
    assert xla.ShapeUtil.GetDimension(shape, -2) == b
    layout = xla.LayoutUtil.GetDefaultLayoutForShape(shape)
    assert layout.minor_to_major == (2, 1, 0)
    assert xla.LayoutUtil.IsMonotonicWithDim0Major(layout)
    assert xla.LayoutUtil.IsMonotonicWithDim0Minor(xla.LayoutUtil.MakeLayout([0, 1, 2]))


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[f"{e.section}-{e.build.__name__}" for e in EXAMPLES])
def test_text_of_example_reads_back(number: int) -> None:
    computation = made(EXAMPLES[number].build, *EXAMPLES[number].arguments)
    assert parse_hlo(str(computation)).entry == computation.computation


def test_text_of_composite_call() -> None:
    """The page's example of its text."""
    text = str(made(composite_call, F32(0)))
    (line,) = (line for line in text.splitlines() if "is_composite" in line)
    assert re.search(r"ROOT \S+ = f32\[\] call\(\S+\), to_apply=\S+, is_composite=true, frontend_attributes=", line)
    assert 'composite.name="foo.bar"' in line
    assert "composite.attributes={n = 1 : i32, tensor = dense<1> : tensor<i32>}" in line
    assert 'composite.version="1"' in line


def test_text_of_bitcast_convert() -> None:
    """The page's lines, with the same shapes."""
    for source, target in ((_TEN, "f16[10,2]{1,0}"), (F32(0), "f16[2]{0}")):
        assert f"{target} bitcast-convert(" in str(made(bitcast_to_narrower, source))


# Results of dynamic size come with their padding there; and what takes the text in does not know `largest`.
NOT_BY_XLA = ("reshape_to_sizes_known_at_run_time", "smallest_two")
BY_XLA = [e for e in EXAMPLES if e.build.__name__ not in NOT_BY_XLA]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("number", range(len(BY_XLA)), ids=[f"{e.section}-{e.build.__name__}" for e in BY_XLA])
def test_xla_gives_the_same_for_the_text_of_example(number: int) -> None:
    e = BY_XLA[number]
    found = xla_oracle.run(str(made(e.build, *e.arguments)), [np.asarray(x) for x in leaves(e.arguments)])
    equal(tuple(found), tuple(map(np.asarray, leaves(e.expected))), max(e.tolerance, 1e-6) if e.tolerance else 0.0)
