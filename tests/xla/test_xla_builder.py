"""The builder interface: the documents' names and arguments, aliases, broadcasting, layouts, and errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
from tests.support import ROOT
from tinyxla import errors, xla
from tinyxla.ops.op import ops
from tinyxla.text import parse_hlo, print_module

F32 = xla.ShapeUtil.MakeShape(xla.F32, [])


def shape(*dimensions: int, of: Any = xla.F32) -> Any:
    return xla.ShapeUtil.MakeShape(of, dimensions)


def parameters(builder: Any, *shapes: Any) -> list[Any]:
    return [xla.Parameter(builder, k, s) for k, s in enumerate(shapes)]


def addition() -> Any:
    builder = xla.XlaBuilder("add")
    return builder.Build(xla.Add(*parameters(builder, F32, F32)))


# --- names and arguments ----------------------------------------------------------------------------------------------

# As the newest page has them, in its order; or an older one, for what only that has.
UNARY = "Abs Ceil Floor Round RoundNearestAfz RoundNearestEven Sign Neg Real Imag Not Clz PopulationCount IsFinite"
ACCURATE = "Cbrt Cos Cosh Erf Exp Expm1 Log Log1p Logistic Rsqrt Sin Sqrt Tan Tanh"
BINARY = """
    Add Sub Mul Div Rem Max Min Pow Atan2 Complex And Or Xor ShiftLeft ShiftRightArithmetic ShiftRightLogical
    Eq Ne Ge Gt Le Lt EqTotalOrder NeTotalOrder GeTotalOrder GtTotalOrder LeTotalOrder LtTotalOrder LogicalAnd LogicalOr
"""
CONVOLUTION = "feature_group_count, batch_group_count, precision_config, preferred_element_type"
SIGNATURES = f"""
    BatchNormGrad(operand, scale, batch_mean, batch_var, grad_output, epsilon, feature_index)
    BatchNormInference(operand, scale, offset, mean, variance, epsilon, feature_index)
    BatchNormTraining(operand, scale, offset, epsilon, feature_index)
    BitcastConvertType(operand, new_element_type)
    Broadcast(operand, broadcast_sizes)
    BroadcastInDim(operand, out_dim_size, broadcast_dimensions)
    Call(computation, operands)
    Cholesky(a, lower)
    Clamp(min, operand, max)
    Collapse(operand, dimensions)
    CompositeCall(computation, operands, name, attributes, version)
    ConcatInDim(operands, dimension)
    Concatenate(operands, dimension)
    Constant(literal)
    ConstantLiteral(literal)
    Conv(lhs, rhs, window_strides, padding, {CONVOLUTION})
    ConvGeneral(lhs, rhs, window_strides, padding, dimension_numbers, {CONVOLUTION})
    ConvGeneralDilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, {CONVOLUTION},
        window_reversal)
    ConvWithGeneralDimensions(lhs, rhs, window_strides, padding, dimension_numbers, {CONVOLUTION})
    ConvWithGeneralPadding(lhs, rhs, window_strides, padding, {CONVOLUTION})
    ConvertElementType(operand, new_element_type)
    CustomCall(call_target_name, operands, shape)
    Dot(lhs, rhs, precision_config, preferred_element_type)
    DotGeneral(lhs, rhs, dimension_numbers, precision_config, preferred_element_type)
    DynamicSlice(operand, start_indices, slice_sizes)
    DynamicUpdateSlice(operand, update, start_indices)
    Fft(operand, fft_type, fft_length)
    Gather(operand, start_indices, dimension_numbers, slice_sizes, indices_are_sorted)
    GetTupleElement(tuple_data, index)
    Iota(shape, iota_dimension)
    Map(operands, computation, dimensions, static_operands)
    OptimizationBarrier(operand)
    Pad(operand, padding_value, padding_config)
    Parameter(number, shape, name)
    RaggedDot(lhs, rhs, group_sizes, dimension_numbers, precision_config, preferred_element_type)
    Reduce(operands, init_values, computation, dimensions_to_reduce)
    ReducePrecision(operand, exponent_bits, mantissa_bits)
    ReduceWindow(operands, init_values, computation, window_dimensions, window_strides, base_dilations,
        window_dilations, padding)
    Reshape(operand, dimensions)
    Rev(operand, dimensions)
    RngBernoulli(mean, shape)
    RngBitGenerator(algorithm, initial_state, shape)
    RngNormal(mu, sigma, shape)
    RngUniform(a, b, shape)
    ScaledDot(lhs, lhs_scale, rhs, rhs_scale, dimension_number, precision_config, preferred_element_type)
    Scatter(operands, scatter_indices, updates, update_computation, dimension_numbers, indices_are_sorted,
        unique_indices)
    Select(pred, on_true, on_false)
    SelectAndScatter(operand, select, window_dimensions, window_strides, padding, source, init_value, scatter)
    Slice(operand, start_indices, limit_indices, strides)
    Sort(operands, comparator, dimension, is_stable)
    TopK(operand, k, largest)
    Transpose(operand, permutation)
    TriangularSolve(a, b, left_side, lower, unit_diagonal, transpose_a)
    SetDimensionSize(operand, val, dimension)
    GetDimensionSize(operand, dimension)
    DynamicReshape(operand, dim_sizes, new_size_bounds, dims_are_dynamic)
    AfterAll(tokens)
    Tuple(elements)
    While(condition, body, init)
"""
DOCUMENTED = [
    (name, arguments.split(", ")) for name, arguments in re.findall(r"(\w+)\((.*?)\)", re.sub(r"\s+", " ", SIGNATURES))
]
DOCUMENTED += [(name, ["operand"]) for name in [*UNARY.split(), "LogicalNot"]]
DOCUMENTED += [(name, ["operand", "result_accuracy"]) for name in ACCURATE.split()]
DOCUMENTED += [(name, ["lhs", "rhs", "broadcast_dimensions"]) for name in BINARY.split()]


@pytest.mark.parametrize(("name", "arguments"), DOCUMENTED, ids=[name for name, _ in DOCUMENTED])
def test_documented_signature(name: str, arguments: list[str]) -> None:
    function = getattr(xla, name)
    assert list(inspect.signature(function).parameters)[: len(arguments) + 1] == ["builder", *arguments]
    assert function.__doc__
    assert getattr(xla.XlaBuilder("b"), name).func is function


def test_everything_is_exported() -> None:
    from tinyxla.xla.builder import functions

    assert set(functions) <= vars(xla).keys()


def test_builder_first_or_not_or_as_a_method() -> None:
    builder = xla.XlaBuilder("three")
    x, y = parameters(builder, shape(2), shape(2))
    total = xla.Tuple(
        [xla.Add(x, y), xla.Add(builder, x, rhs=y), builder.Add(x, y), xla.Add(builder=builder, lhs=x, rhs=y)]
    )
    for found in builder.Build(total)(np.float32([1, 2]), np.float32([3, 4])):
        np.testing.assert_array_equal(found, [4, 6])


OLDER: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = [
    (lambda b, x: xla.Reverse(x, [0]), lambda b, x: xla.Rev(x, [0])),
    (lambda b, x: xla.Concat([x, x], 1), lambda b, x: xla.ConcatInDim(b, [x, x], 1)),
    (lambda b, x: xla.Reshape(x, new_sizes=[6]), lambda b, x: xla.Reshape(x, [6])),
    (lambda b, x: xla.Reshape(shape=shape(6), operand=x), lambda b, x: xla.Reshape(x, [6])),
    (lambda b, x: xla.RoundNearestAfz(x), lambda b, x: xla.Round(x)),
    (lambda b, x: xla.SliceInDim(x, 0, 2, 1, 1), lambda b, x: xla.Slice(x, [0, 0], [2, 2], [1, 1])),
    (lambda b, x: xla.Compare(x, x, "LT"), lambda b, x: xla.Lt(x, x)),
    (
        lambda b, x: xla.Reduce(operand=x, init_value=b.Constant(0.0), computation=addition(), dimensions=[0]),
        lambda b, x: xla.Reduce(b, [x], [xla.ConstantLiteral(b, 0.0)], addition(), [0]),
    ),
    (
        lambda b, x: xla.ReduceAll(x, b.Constant(0.0), addition()),
        lambda b, x: xla.Reduce(x, b.Constant(0.0), addition(), [0, 1]),
    ),
    (
        lambda b, x: xla.Pad(x, b.Constant(0.0), xla.make_padding_config([(1, 0, 0), (0, 2, 1)])),
        lambda b, x: xla.Pad(x, b.Constant(0.0), [(1, 0, 0), (0, 2, 1)]),
    ),
    (
        lambda b, x: xla.PadInDim(x, b.Constant(0.0), 1, 2, 3),
        lambda b, x: xla.Pad(x, b.Constant(0.0), [(0, 0, 0), (2, 3, 0)]),
    ),
]


@pytest.mark.parametrize("number", range(len(OLDER)))
def test_another_form_makes_the_same_graph(number: int) -> None:
    texts: list[str] = []
    for build in OLDER[number]:
        builder = xla.XlaBuilder("same")
        (x,) = parameters(builder, shape(2, 3))
        texts.append(str(builder.Build(build(builder, x))))
    assert texts[0] == texts[1]


def test_python_operators() -> None:
    builder = xla.XlaBuilder("operators")
    x, y = parameters(builder, shape(of=xla.S32), shape(of=xla.S32))
    results = [x + y, x - y, x * y, x / y, x % y, -x, x & y, x | y, x ^ y, ~x, x << y, x >> y]
    found = builder.Build(xla.Tuple(results))(np.int32(13), np.int32(3))
    assert [int(v) for v in found] == [16, 10, 39, 4, 1, -13, 1, 15, 14, -14, 104, 1]


# --- element types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in vars(xla.PrimitiveType) if n.isupper() and n not in ("TOKEN", "OPAQUE")])
def test_primitive_types(name: str) -> None:
    kind = getattr(xla.PrimitiveType, name)
    assert getattr(xla, name) is kind
    assert kind.name == name.lower()
    assert xla.PrimitiveType.from_dtype(kind.dtype) is kind
    builder = xla.XlaBuilder("b")
    literal = np.zeros(2, kind.dtype)
    found = builder.Build(xla.ConstantLiteral(builder, literal))()
    assert np.asarray(found).dtype == kind.dtype


def test_constants_of_python_numbers() -> None:
    builder = xla.XlaBuilder("b")
    kinds = [xla.ConstantLiteral(builder, x).shape for x in (True, 1, 1.0, 1j)]
    assert [str(kind) for kind in kinds] == ["pred[]", "s32[]", "f32[]", "c64[]"]
    assert str(xla.ConstantLiteral(builder, np.float64(1)).shape) == "f64[]"


def test_extremes() -> None:
    assert xla.LiteralUtil.MinValue(xla.F32) == -np.inf
    assert xla.LiteralUtil.MaxValue(xla.BF16).dtype == ml_dtypes.bfloat16
    assert xla.LiteralUtil.MinValue(xla.S8) == -128
    assert xla.LiteralUtil.MaxValue(xla.U16) == 65535


# --- computations -----------------------------------------------------------------------------------------------------


def test_program_shape_and_text() -> None:
    builder = xla.XlaBuilder("program")
    pair = xla.ShapeUtil.MakeTupleShape([shape(2), shape(of=xla.S32)])
    t, x = xla.Parameter(builder, 0, pair, "t"), xla.Parameter(builder, 1, F32, "x")
    assert str(builder.GetProgramShape()) == "(t: (f32[2], s32[]), x: f32[]) -> f32[]"
    root = xla.Tuple([xla.Add(xla.GetTupleElement(t, 0), x), xla.Tuple([xla.GetTupleElement(t, 1)])])
    assert str(builder.GetShape(root)) == "(f32[2], (s32[]))"
    computation = builder.Build(root)
    assert str(builder.build(root).program_shape()) == str(computation.GetProgramShape())
    assert computation.name == "program"
    assert str(computation.GetProgramShape()) == "(t: (f32[2], s32[]), x: f32[]) -> (f32[2], (s32[]))"
    text = computation.as_hlo_text()
    assert text == str(computation)
    assert text.startswith("HloModule program")
    assert "add(" in text
    first, (second,) = computation((np.float32([1, 2]), 7), 0.5)
    np.testing.assert_array_equal(first, [1.5, 2.5])
    assert int(second) == 7


def test_parameters_in_any_order_and_building_on() -> None:
    builder = xla.XlaBuilder("order")
    y, x = xla.Parameter(builder, 1, F32), xla.Parameter(builder, 0, F32)
    difference = xla.Sub(x, y)
    first = builder.Build()
    second = builder.Build(xla.Neg(difference))
    assert float(first(5.0, 3.0)) == 2
    assert float(second(5.0, 3.0)) == -2


def test_empty_tuple() -> None:
    builder = xla.XlaBuilder("empty")
    assert builder.Build(xla.Tuple(builder, []))() == ()


def test_computations_have_derivatives() -> None:
    builder = xla.XlaBuilder("square")
    (x,) = parameters(builder, F32)
    square = builder.Build(x * x)
    assert float(tx.grad(square)(3.0)) == 6
    np.testing.assert_array_equal(tx.vmap(square)(tx.numpy.arange(3.0)), [0, 1, 4])
    np.testing.assert_array_equal(tx.jit(lambda v: square(v) + 1)(2.0), 5)


def test_accuracy_is_asked_for() -> None:
    def text(accuracy: Any) -> str:
        return str(_of(lambda x: xla.Exp(x, result_accuracy=accuracy), shape(3)))

    assert "accuracy" not in text(None)
    assert "highest" in text(xla.ResultAccuracy("highest")).lower()
    computation = _of(lambda x: xla.Exp(x, xla.ResultAccuracy("tolerance", ulps=4)), shape(3))
    np.testing.assert_allclose(computation(np.float32([0, 1, 2])), np.exp([0, 1, 2]), rtol=1e-6)


def test_dynamic_dimensions_of_parameters() -> None:
    dynamic = xla.ShapeUtil.MakeShape(xla.F32, [4], [True])
    builder = xla.XlaBuilder("dynamic")
    x = xla.Parameter(builder, 0, dynamic, "x")
    assert str(x.shape) == "f32[<=4]"
    total = xla.Reduce(x, xla.ConstantLiteral(builder, 0.0), addition(), [0])
    computation = builder.Build(xla.Tuple([xla.GetDimensionSize(x, 0), total, xla.Neg(x)]))
    for backend in ("numba", "interpreter"):
        size, found, negative = computation(np.float32([1, 2, 3]), backend=backend)
        assert (int(size), float(found)) == (3, 6)
        np.testing.assert_array_equal(negative, [-1, -2, -3])
    with pytest.raises(errors.ShapeError, match=r"argument x must be f32\[<=4\]"):
        computation(np.ones(5, np.float32))


def test_builder_inside_a_traced_function() -> None:
    def function(v: Any) -> Any:
        builder = xla.XlaBuilder("inner")
        (x,) = parameters(builder, F32)
        return builder.Build(xla.Add(x, xla.ConstantLiteral(builder, 1.0)))(v)

    assert float(tx.jit(function)(2.0)) == 3


# --- broadcasting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "dimensions", "result"),
    [
        ((2, 3), (), None, (2, 3)),
        ((), (2, 3), None, (2, 3)),
        ((2, 3), (), [], (2, 3)),
        ((2, 3), (2, 3), [0, 1], (2, 3)),
        ((1, 3), (2, 1), None, (2, 3)),
        ((2, 3, 4), (3,), [1], (2, 3, 4)),
        ((3,), (2, 3, 4), [1], (2, 3, 4)),
        ((2, 3, 4), (2, 4), [0, 2], (2, 3, 4)),
        ((2, 3, 4), (1, 4), [0, 2], (2, 3, 4)),
        ((2, 1, 4), (3,), [1], (2, 3, 4)),
        ((2, 0), (1, 1), None, (2, 0)),
    ],
)
def test_broadcasting(left: Any, right: Any, dimensions: Any, result: Any, generator: np.random.Generator) -> None:
    x, y = (generator.integers(-9, 9, s).astype(np.int32) for s in (left, right))

    def spread(value: Any) -> Any:
        if value.ndim and dimensions and value.ndim < len(result):
            value = value.reshape(
                [value.shape[dimensions.index(d)] if d in dimensions else 1 for d in range(len(result))]
            )
        return np.broadcast_to(value, result)

    for function, op in ((xla.Sub, np.subtract), (xla.Lt, np.less), (xla.Max, np.maximum)):
        builder = xla.XlaBuilder("broadcasting")
        operands = parameters(builder, shape(*left, of=xla.S32), shape(*right, of=xla.S32))
        computation = builder.Build(function(*operands, broadcast_dimensions=dimensions))
        for backend in ("numba", "interpreter"):
            np.testing.assert_array_equal(computation(x, y, backend=backend), op(spread(x), spread(y)))


def test_scalars_in_ternary_operations() -> None:
    builder = xla.XlaBuilder("ternary")
    x, zero, upper = parameters(builder, shape(3), F32, shape(3))
    pred = xla.Gt(x, zero)
    some = xla.Select(xla.ConstantLiteral(builder, False), x, zero)
    root = xla.Tuple([xla.Clamp(zero, x, upper), xla.Clamp(x, zero, upper), xla.Select(pred, x, zero), some])
    given = np.float32([-1, 2, 9])
    clamped, older, selected, scalars = builder.Build(root)(given, 0.0, np.float32([5, 1, 6]))
    np.testing.assert_array_equal(clamped, [0, 1, 6])
    np.testing.assert_array_equal(older, [0, 1, 6])
    np.testing.assert_array_equal(selected, [0, 2, 9])
    np.testing.assert_array_equal(scalars, [0, 0, 0])


# --- arguments that are translated ------------------------------------------------------------------------------------


def _both(generator: np.random.Generator, sizes: Any, one: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Two functions of f32 arrays of these sizes give the same."""
    arrays = [generator.integers(-4, 5, s).astype(np.float32) for s in sizes]
    found: list[Any] = []
    for function in (one, other):
        builder = xla.XlaBuilder("b")
        computation = builder.Build(function(builder, *parameters(builder, *(shape(*s) for s in sizes))))
        found.append(np.asarray(computation(*arrays)))
    assert found[0].size
    np.testing.assert_array_equal(*found)


SPATIAL = xla.ConvolutionDimensionNumbers(0, 3, [1, 2], 3, 2, [0, 1], 0, 3, [1, 2])


def test_holes_of_convolutions(generator: np.random.Generator) -> None:
    def holes(b: Any, x: Any, *interior: int) -> Any:
        return xla.Pad(x, xla.ConstantLiteral(b, 0.0), [(0, 0, n) for n in interior])

    _both(
        generator,
        [(2, 5, 6, 3), (2, 3, 3, 4)],
        lambda b, x, k: xla.ConvGeneralDilated(x, k, (2, 1), ((1, 2), (0, 3)), [2, 1], [1, 3], SPATIAL),
        lambda b, x, k: xla.ConvGeneral(
            holes(b, x, 0, 1, 0, 0), holes(b, k, 0, 2, 0, 0), (2, 1), ((1, 2), (0, 3)), SPATIAL
        ),
    )


def test_reversal_of_convolutions(generator: np.random.Generator) -> None:
    _both(
        generator,
        [(1, 5, 6, 2), (2, 3, 2, 2)],
        lambda b, x, k: xla.ConvGeneralDilated(
            x, k, (1, 1), ((0, 0), (0, 0)), None, None, SPATIAL, window_reversal=[True, False]
        ),
        lambda b, x, k: xla.ConvWithGeneralDimensions(x, xla.Rev(k, [0]), [1, 1], xla.Padding.kValid, SPATIAL),
    )


def test_feature_groups_of_convolutions(generator: np.random.Generator) -> None:
    def halves(x: Any, dimension: int, size: int) -> list[Any]:
        return [xla.SliceInDim(x, k * size // 2, (k + 1) * size // 2, 1, dimension) for k in (0, 1)]

    _both(
        generator,
        [(2, 4, 7), (6, 2, 3)],
        lambda b, x, k: xla.Conv(x, k, [2], xla.Padding.kSame, feature_group_count=2),
        lambda b, x, k: xla.ConcatInDim(
            b,
            [
                xla.ConvWithGeneralPadding(part, kernel, [2], [(1, 1)])
                for part, kernel in zip(halves(x, 1, 4), halves(k, 0, 6), strict=True)
            ],
            1,
        ),
    )


def test_gather_and_scatter_with_batching_dimensions() -> None:
    builder = xla.XlaBuilder("batching")
    x, places = parameters(builder, shape(2, 5), shape(2, 3, 1, of=xla.S64))
    gather = xla.GatherDimensionNumbers([], [1], [1], 2, operand_batching_dims=[0], start_indices_batching_dims=[0])
    taken = xla.Gather(x, places, gather, [1, 1])
    scatter = xla.ScatterDimensionNumbers([], [1], [1], 2, input_batching_dims=[0], scatter_indices_batching_dims=[0])
    put = xla.Scatter(x, places, taken, addition(), scatter)
    values = np.arange(10, dtype=np.float32).reshape(2, 5)
    at = np.array([[4, 0, 2], [1, 3, 0]])
    found, sums = builder.Build(xla.Tuple([taken, put]))(values, at[..., None])
    np.testing.assert_array_equal(found, np.take_along_axis(values, at, 1))
    expected = values.copy()
    np.put_along_axis(expected, at, 2 * np.take_along_axis(values, at, 1), 1)
    np.testing.assert_array_equal(sums, expected)


def test_options_of_products() -> None:
    builder = xla.XlaBuilder("products")
    x, y = parameters(builder, shape(2, 3, of=xla.S8), shape(3, of=xla.S8))
    highest = xla.PrecisionConfig([xla.PrecisionConfig.Precision.HIGHEST, xla.PrecisionConfig.Precision.DEFAULT])
    product = builder.Build(xla.Dot(x, y, precision_config=highest, preferred_element_type=xla.S32))
    assert "operand_precision={highest,default}" in str(product)
    left, right = np.full((2, 3), 100, np.int8), np.full(3, 100, np.int8)
    np.testing.assert_array_equal(product(left, right), np.int32([30000, 30000]))


def test_scaled_and_ragged_products(generator: np.random.Generator) -> None:
    builder = xla.XlaBuilder("scaled")
    numbers = xla.DotDimensionNumbers([1], [0])
    x, x_scale, y, y_scale = parameters(builder, shape(2, 4), shape(2, 2), shape(4, 3), shape(1, 3))
    scaled = builder.Build(xla.ScaledDot(x, x_scale, y, y_scale, numbers))
    arrays = [generator.integers(-4, 5, s).astype(np.float32) for s in ((2, 4), (2, 2), (4, 3), (1, 3))]
    left, left_scale, right, right_scale = arrays
    np.testing.assert_array_equal(scaled(*arrays), (left * np.repeat(left_scale, 2, 1)) @ (right * right_scale))

    builder = xla.XlaBuilder("ragged")
    x, y, sizes = parameters(builder, shape(5, 4), shape(2, 4, 3), shape(2, of=xla.S32))
    ragged = xla.RaggedDotDimensionNumbers(xla.DotDimensionNumbers([1], [1]), [0], [0])
    product = builder.Build(xla.RaggedDot(x, y, sizes, ragged))
    rows, groups = (generator.integers(-4, 5, s).astype(np.float32) for s in ((5, 4), (2, 4, 3)))
    expected = np.concatenate([rows[:2] @ groups[0], rows[2:] @ groups[1]])
    np.testing.assert_array_equal(product(rows, groups, np.int32([2, 3])), expected)


def test_map_with_an_array_that_is_the_same_everywhere() -> None:
    computation = _of(lambda x, table: xla.Mul(x, xla.Reduce(table, x - x, addition(), [0])), F32, shape(3))
    builder = xla.XlaBuilder("map")
    x, table = parameters(builder, shape(2, 2), shape(3))
    mapped = builder.Build(xla.Map([x], computation, [0, 1], static_operands=[table]))
    np.testing.assert_array_equal(mapped(np.float32([[1, 2], [3, 4]]), np.float32([1, 2, 3])), [[6, 12], [18, 24]])


def test_tokens_and_barriers() -> None:
    builder = xla.XlaBuilder("order")
    (x,) = parameters(builder, shape(2))
    token = xla.AfterAll(builder, [xla.CreateToken(builder), xla.AfterAll(builder, [])])
    assert str(token.shape) == "token[]"
    held = builder.Build(xla.OptimizationBarrier(xla.Tuple([x, xla.Tuple([xla.Neg(x)])])))
    assert "opt-barrier" in str(held)
    first, (second,) = held(np.float32([1, 2]))
    np.testing.assert_array_equal(first, -np.asarray(second))


def test_select_and_scatter_with_general_padding() -> None:
    builder = xla.XlaBuilder("scatter")
    x, source = parameters(builder, shape(4), shape(3))
    larger = _of(lambda x, y: xla.Ge(x, y), F32, F32)
    zero = xla.ConstantLiteral(builder, 0.0)
    rest = (source, zero, addition())
    found = builder.Build(xla.SelectAndScatterWithGeneralPadding(x, larger, [2], [2], [(1, 1)], *rest))
    np.testing.assert_array_equal(found(np.float32([1, 3, 2, 5]), np.float32([10, 20, 30])), [10, 20, 0, 30])


# --- layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "minor_to_major", "tiles", "padded"),
    [
        ((), [], [], []),
        ((5,), [0], [], [8]),
        ((2, 3, 4), [1, 0, 2], [], []),
        ((2, 3, 4), [1, 0, 2], [], [4, 3, 5]),
        ((3, 5), [1, 0], [[2, 2]], []),
        ((3, 5), [0, 1], [[2, 4]], []),
        ((5, 7), [1, 0], [[4, 4], [2, 1]], []),
        ((2, 3, 5), [2, 1, 0], [[2, 3]], [2, 5, 6]),
        ((2, 0), [1, 0], [], []),
    ],
)
def test_linear_indices(sizes: Any, minor_to_major: Any, tiles: Any, padded: Any) -> None:
    """Indices, values by index and values by reshaping agree."""
    layout = xla.LayoutUtil.MakeLayout(minor_to_major, tiles, padded, padding_value=-1)
    target = xla.ShapeUtil.MakeShapeWithLayout(xla.S32, sizes, layout)
    values = np.arange(np.prod(sizes, dtype=int), dtype=np.int32).reshape(sizes)
    linear = xla.LiteralUtil.LinearValues(values, layout)
    np.testing.assert_array_equal(xla.LiteralUtil.FromLinearValues(target, linear), values)
    places = set()
    for index in np.ndindex(*sizes):
        place = xla.IndexUtil.MultidimensionalIndexToLinearIndex(target, index)
        assert linear[place] == values[index]
        assert xla.IndexUtil.LinearIndexToMultidimensionalIndex(target, place) == list(index)
        places.add(place)
    assert len(places) == values.size
    for place in set(range(linear.size)) - places:
        assert linear[place] == -1
        with pytest.raises(errors.OutOfBoundsError, match="padding"):
            xla.IndexUtil.LinearIndexToMultidimensionalIndex(target, place)


def test_tiled_layout() -> None:
    """The page on tiled layouts: F32[3,5] in tiles of 2x2 is 2x3 tiles, and the element (2, 3) is at 17."""
    target = xla.ShapeUtil.MakeShapeWithLayout(xla.F32, [3, 5], xla.LayoutUtil.MakeLayout([1, 0], [[2, 2]]))
    assert target.text() == "f32[3,5]{1,0:T(2,2)}"
    assert xla.IndexUtil.MultidimensionalIndexToLinearIndex(target, [2, 3]) == 17


def test_layout_questions() -> None:
    dense = xla.ShapeUtil.MakeShapeWithDenseLayout(xla.F32, [2, 3, 4], [0, 2, 1])
    assert dense.text() == "f32[2,3,4]{0,2,1}"
    assert not xla.ShapeUtil.Equal(dense, shape(2, 3, 4))
    assert xla.ShapeUtil.Compatible(dense, shape(2, 3, 4))
    layout = xla.LayoutUtil.LayoutOf(dense)
    assert xla.LayoutUtil.Minor(layout, 0) == 0
    assert xla.LayoutUtil.Major(layout, 0) == 1
    assert [xla.IndexUtil.GetDimensionStride(dense, d) for d in range(3)] == [1, 8, 2]
    assert not xla.LayoutUtil.IsPadded(dense)
    assert xla.ShapeUtil.HumanStringWithLayout(shape(2)) == "f32[2]{0}"


def test_layouts_of_parameters_and_constants() -> None:
    """They are kept in the text; arrays mean the same whatever their layout."""
    builder = xla.XlaBuilder("layouts")
    x = xla.Parameter(builder, 0, xla.ShapeUtil.MakeShapeWithLayout(xla.S32, [2, 3], [0, 1]), "x")
    values = xla.LiteralUtil.FromLinearValues(x.shape, [1, 4, 2, 5, 3, 6])
    constant = xla.ConstantLiteral(builder, values, xla.LayoutUtil.MakeLayout([0, 1]))
    total = builder.Build(xla.Add(x, constant))
    text = str(total)
    assert "x = s32[2,3]{0,1} parameter(0)" in text
    assert "s32[2,3]{0,1} constant({ {1, 2, 3}, {4, 5, 6} })" in text
    assert print_module(parse_hlo(text)) == text
    for backend in ("numba", "interpreter"):
        found = total(np.ones((2, 3), np.int32), backend=backend)
        np.testing.assert_array_equal(found, [[2, 3, 4], [5, 6, 7]])


# --- errors -----------------------------------------------------------------------------------------------------------


def _operands(builder: Any) -> list[Any]:
    """f32[2,3], f32[3], s32[], pred[], (f32[2,3], s32[])"""
    pair = xla.ShapeUtil.MakeTupleShape([shape(2, 3), shape(of=xla.S32)])
    return parameters(builder, shape(2, 3), shape(3), shape(of=xla.S32), shape(of=xla.PRED), pair)


def _of(build: Callable[..., Any], *shapes: Any) -> Any:
    builder = xla.XlaBuilder("inner")
    return builder.Build(build(*parameters(builder, *shapes)))


MISTAKES: list[tuple[type[Exception], str, Callable[..., Any]]] = [
    (
        errors.ArgumentError,
        "Add: rhs must be an XlaOp, but is 1.0 of type float",
        lambda b, x, v, n, p, t: xla.Add(x, 1.0),
    ),
    (errors.ArgumentError, "Add.*missing a required argument: 'rhs'", lambda b, x, v, n, p, t: xla.Add(x)),
    (errors.ArgumentError, "Iota: no operand tells the builder", lambda b, x, v, n, p, t: xla.Iota(shape(2), 0)),
    (errors.ArgumentError, "Add: rhs must be an operation of .*b", lambda b, x, v, n, p, t: xla.Add(x, _foreign())),
    (errors.ArgumentError, r"ConcatInDim: operands must be a list", lambda b, x, v, n, p, t: xla.ConcatInDim(b, 3, 0)),
    (
        errors.ArgumentError,
        r"ConcatInDim: operands\[1\] must be",
        lambda b, x, v, n, p, t: xla.ConcatInDim(b, [x, 3], 0),
    ),
    (
        errors.ArgumentError,
        "Reduce: computation must be of type XlaComputation",
        lambda b, x, v, n, p, t: xla.Reduce(x, v, max, [0]),
    ),
    (
        errors.ArgumentError,
        "Rev: dimensions must be a list of integers, but is 0",
        lambda b, x, v, n, p, t: xla.Rev(x, 0),
    ),
    (errors.ArgumentError, "already has a parameter 0", lambda b, x, v, n, p, t: xla.Parameter(b, 0, F32)),
    (errors.ArgumentError, "numbered from 0 on, but got -1", lambda b, x, v, n, p, t: xla.Parameter(b, -1, F32)),
    (
        errors.ArgumentError,
        "shape must be of type Shape or TupleShape",
        lambda b, x, v, n, p, t: xla.Parameter(b, 9, "f32[]"),
    ),
    (errors.ShapeError, "Neg: operand must be an array, but is the tuple", lambda b, x, v, n, p, t: xla.Neg(t)),
    (errors.ShapeError, "tuple_data must be a tuple", lambda b, x, v, n, p, t: xla.GetTupleElement(x, 0)),
    (
        errors.OutOfBoundsError,
        "index must be from 0 to 1, but is 2",
        lambda b, x, v, n, p, t: xla.GetTupleElement(t, 2),
    ),
    (errors.ShapeError, "operands without it must be of equal rank", lambda b, x, v, n, p, t: xla.Add(x, v)),
    (errors.ShapeError, "increasing order, but is \\[2\\]", lambda b, x, v, n, p, t: xla.Add(x, v, [2])),
    (errors.ShapeError, "sizes must agree or be 1", lambda b, x, v, n, p, t: xla.Add(x, v, [0])),
    (errors.ShapeError, "left out for operands of equal rank", lambda b, x, v, n, p, t: xla.Add(x, x, [1, 0])),
    (errors.DTypeError, "add: ", lambda b, x, v, n, p, t: xla.Add(x, n)),
    (errors.ShapeError, "pred must be a scalar", lambda b, x, v, n, p, t: xla.Select(xla.Lt(x, x), t, t)),
    (errors.ShapeError, "on_true and on_false must have one shape", lambda b, x, v, n, p, t: xla.Select(p, t, x)),
    (errors.ShapeError, "consecutive ones of", lambda b, x, v, n, p, t: xla.Collapse(x, [1, 0])),
    (
        errors.ShapeError,
        "consecutive ones of",
        lambda b, x, v, n, p, t: xla.Collapse(xla.Broadcast(x, [1]), [0, 2]),
    ),
    (errors.DTypeError, "element type of the operand", lambda b, x, v, n, p, t: xla.Reshape(shape(6, of=xla.S8), x)),
    (errors.ShapeError, "vectors or matrices", lambda b, x, v, n, p, t: xla.Dot(xla.Broadcast(x, [2]), v)),
    (
        errors.ArgumentError,
        "precision_config must be of type PrecisionConfig",
        lambda b, x, v, n, p, t: xla.Dot(x, v, "highest"),
    ),
    (errors.ArgumentError, "Conditional: the arguments must be", lambda b, x, v, n, p, t: xla.Conditional(p, x)),
    (errors.ArgumentError, "operand for each branch", lambda b, x, v, n, p, t: xla.Conditional(n, [], [])),
    (errors.AttributeValueError, "asks for rtol", lambda b, x, v, n, p, t: xla.Exp(x, _tolerance(1e-30))),
    (errors.ArgumentError, "padding must be a Padding", lambda b, x, v, n, p, t: _window(b, x, 3)),
    (errors.ArgumentError, "padding must be a Padding", lambda b, x, v, n, p, t: _window(b, x, [(1, 1)])),
    (
        errors.ShapeError,
        "window_strides must have an entry",
        lambda b, x, v, n, p, t: _window(b, x, xla.Padding.kSame, [1]),
    ),
    (errors.ArgumentError, "Concat.*: dimension must be an integer", lambda b, x, v, n, p, t: xla.Concat([x, x], 0.5)),
    (errors.ArgumentError, "Iota: shape must be of type Shape", lambda b, x, v, n, p, t: xla.Iota(b, [2], 0)),
    (
        errors.ArgumentError,
        "must be of type DotDimensionNumbers",
        lambda b, x, v, n, p, t: xla.DotGeneral(x, v, ((1,), (0,))),
    ),
    (
        errors.ArgumentError,
        "padding_config must be a PaddingConfig",
        lambda b, x, v, n, p, t: xla.Pad(x, b.Constant(0.0), 3),
    ),
    (errors.ArgumentError, "at least one array", lambda b, x, v, n, p, t: xla.Sort(b, [])),
    (errors.ArgumentError, "at least one array", lambda b, x, v, n, p, t: xla.Map(b, [], addition())),
    (errors.ShapeError, "consecutive ones of", lambda b, x, v, n, p, t: xla.Collapse(x, [1, 2])),
    (
        errors.AttributeValueError,
        "strides must be positive",
        lambda b, x, v, n, p, t: _window(b, x, xla.Padding.kSame, [0, 1]),
    ),
    (errors.ArgumentError, "Add: rhs must be an XlaOp, but is None", lambda b, x, v, n, p, t: xla.Add(x, None)),
    (
        errors.ArgumentError,
        "builder must be of type XlaBuilder",
        lambda b, x, v, n, p, t: xla.Iota(builder=x, shape=F32, iota_dimension=0),
    ),
    (errors.ArgumentError, "gather.*missing a required argument", lambda b, x, v, n, p, t: xla.gather(x, n, [1])),
    (errors.ShapeError, "PadInDim", lambda b, x, v, n, p, t: xla.PadInDim(x, b.Constant(0.0), 2, 1, 1)),
    (
        errors.ShapeError,
        "Call: the computation add must take",
        lambda b, x, v, n, p, t: xla.Call(addition(), [x, x]),
    ),
    (
        errors.ShapeError,
        "While: the body inner must give what it takes",
        lambda b, x, v, n, p, t: xla.While(
            _of(lambda n: xla.Lt(n, n), shape(of=xla.S32)), _of(lambda n: xla.Lt(n, n), shape(of=xla.S32)), n
        ),
    ),
    (
        errors.ShapeError,
        "all branches must give the same",
        lambda b, x, v, n, p, t: xla.Conditional(
            p, n, _of(lambda n: n + n, shape(of=xla.S32)), n, _of(lambda n: xla.Lt(n, n), shape(of=xla.S32))
        ),
    ),
]


def _tolerance(rtol: float) -> Any:
    return xla.ResultAccuracy("tolerance", rtol=rtol)


def _foreign() -> Any:
    return xla.Parameter(xla.XlaBuilder("other"), 0, shape(2, 3))


def _window(b: Any, x: Any, padding: Any, strides: Any = (1, 1)) -> Any:
    return xla.ReduceWindow(x, xla.ConstantLiteral(b, 0.0), addition(), [1, 2], strides, padding=padding)


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes_are_found_at_the_call(number: int) -> None:
    kind, message, build = MISTAKES[number]
    builder = xla.XlaBuilder("b")
    with pytest.raises(kind, match=message) as caught:
        build(builder, *_operands(builder))
    assert caught.value.line is not None
    assert Path(caught.value.line.file).name == "test_xla_builder.py"


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no builder function 'Ad'"):
        _ = xla.XlaBuilder("b").Ad
    with pytest.raises(AttributeError, match="no field 'add_axis'"):
        _ = xla.DotDimensionNumbers().add_axis


def test_building_what_is_incomplete() -> None:
    builder = xla.XlaBuilder("b")
    with pytest.raises(errors.ArgumentError, match="no instructions"):
        builder.Build()
    xla.Parameter(builder, 1, F32)
    with pytest.raises(errors.ArgumentError, match="no parameter 0"):
        builder.Build()
    xla.Parameter(builder, 0, F32)
    with pytest.raises(errors.ArgumentError, match="root must be an XlaOp of"):
        builder.Build(_foreign())


@pytest.mark.parametrize(
    ("kind", "message", "arguments"),
    [
        (errors.ArgumentError, "takes 2 arguments", (1.0,)),
        (errors.DTypeError, r"argument p0 must be f32\[\], but is f64\[\]; convert it", (np.float64(1), 1.0)),
        (errors.ShapeError, r"argument p1 must be f32\[\], but is f32\[2\]", (1.0, np.ones(2, np.float32))),
        (errors.ArgumentError, "must be an array", ("1", 1.0)),
        (errors.DTypeError, "is the Python number True", (True, 1.0)),
        (errors.DTypeError, "is the Python number 1j", (1j, 1.0)),
    ],
)
def test_arguments_are_checked(kind: type[Exception], message: str, arguments: Any) -> None:
    with pytest.raises(kind, match=message):
        addition()(*arguments)


def test_arguments_are_not_referred_to() -> None:
    builder = xla.XlaBuilder("identity")
    (x,) = parameters(builder, shape(3))
    identity = builder.Build(x)
    given = np.ones(3, np.float32)
    found = identity(given)
    given[:] = 7
    np.testing.assert_array_equal(found, [1, 1, 1])
    np.testing.assert_array_equal(identity(np.arange(6, dtype=">f4")[::2]), [0, 2, 4])


def test_tuple_arguments_and_backends_are_checked() -> None:
    builder = xla.XlaBuilder("b")
    xla.GetTupleElement(xla.Parameter(builder, 0, xla.ShapeUtil.MakeTupleShape([F32]), "t"), 0)
    first = builder.Build()
    with pytest.raises(errors.ArgumentError, match="argument t must be a tuple of 1"):
        first(1.0)
    with pytest.raises(errors.DTypeError, match=r"argument t\[0\] must be f32"):
        first((np.int32(1),))
    with pytest.raises(errors.AttributeValueError, match="no backend 'cuda'"):
        first((1.0,), backend="cuda")


@pytest.mark.parametrize(
    ("kind", "message", "make"),
    [
        (errors.ShapeError, "each of 0 to 1 once", lambda: xla.LayoutUtil.MakeLayout([0, 0])),
        (errors.ShapeError, "positive sizes", lambda: xla.LayoutUtil.MakeLayout([0], [[0]])),
        (
            errors.ShapeError,
            "must have the 2 dimensions",
            lambda: xla.ShapeUtil.MakeShapeWithLayout(xla.F32, [2, 3], [0]),
        ),
        (
            errors.ShapeError,
            "no less than its own",
            lambda: xla.ShapeUtil.MakeShapeWithLayout(
                xla.F32, [2, 3], xla.LayoutUtil.MakeLayout([0, 1], padded_dimensions=[1, 3])
            ),
        ),
        (
            errors.OutOfBoundsError,
            "index into",
            lambda: xla.IndexUtil.MultidimensionalIndexToLinearIndex(shape(2), [2]),
        ),
        (errors.OutOfBoundsError, "from 0 to 1", lambda: xla.IndexUtil.LinearIndexToMultidimensionalIndex(shape(2), 2)),
        (
            errors.ArgumentError,
            "must be the 2 in the memory",
            lambda: xla.LiteralUtil.FromLinearValues(shape(2), [1.0]),
        ),
        (errors.ShapeError, "must not be negative", lambda: shape(-1)),
        (errors.ShapeError, "out of range", lambda: xla.ShapeUtil.GetDimension(shape(2), 1)),
        (errors.ArgumentError, "must be a list of shapes", lambda: xla.ShapeUtil.MakeTupleShape([xla.F32])),
        (errors.DTypeError, "not an element type", lambda: xla.PrimitiveType.from_dtype("datetime64")),
    ],
)
def test_shapes_and_layouts_are_checked(kind: type[Exception], message: str, make: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=message):
        make()


# --- the guide --------------------------------------------------------------------------------------------------------

GUIDE = ROOT / "docs" / "xla-builder.md"


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Its code, block by block, and the error that it shows."""
    guide = GUIDE.read_text()
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
        exec(code, names)
    printed = capsys.readouterr().out
    assert printed.startswith("[3. 3. 3.]\n[3. 3. 3.]\n(a: f32[], x: f32[3], y: f32[3]) -> f32[3]\nHloModule axpy")
    assert "[[ 8. 11.]\n [20. 23.]]" in printed
    assert "[[0. 0. 0. 0. 0. 0.]\n [0. 0. 1. 0. 0. 1.]" in printed
    assert "[1 4 0 2 5 0 3 6 0 0 0 0 0 0 0]\n7\n(4, 8)\n3.0 5.0\n" in printed
    assert "[Array([2.   , 3.875], dtype=float32), Array([2.   , 3.875], dtype=float32)]\n9.0\n" in printed
    assert names["weights"].shape == (3,)
    assert len(names["losses"]) == 100
    builder = xla.XlaBuilder("b")
    with pytest.raises(errors.ShapeError) as caught:
        xla.Add(*parameters(builder, shape(2, 3), shape(3)))
    (shown,) = re.findall(r"```\n(Add: .*?)\n```", guide, re.DOTALL)
    assert str(caught.value).startswith(shown.replace("\n", " "))


THREE: Any = 3
MATRIX = xla.ShapeUtil.MakeShape(xla.F32, [2, 3])
PAIR: Any = xla.ShapeUtil.MakeTupleShape([MATRIX])
WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("Rank: shape must be of type Shape", lambda: xla.ShapeUtil.Rank(PAIR)),
    ("TrueRank: shape must be of type Shape", lambda: xla.ShapeUtil.TrueRank(THREE)),
    ("ElementsIn: shape must be of type Shape", lambda: xla.ShapeUtil.ElementsIn(PAIR)),
    ("GetDimensionNumber: shape must be of type Shape", lambda: xla.ShapeUtil.GetDimensionNumber(PAIR, 0)),
    ("MakeTupleShape: shapes must be a list", lambda: xla.ShapeUtil.MakeTupleShape(THREE)),
    ("MakeDescendingLayout: rank must not be negative", lambda: xla.LayoutUtil.MakeDescendingLayout(-1)),
    ("MakeAscendingLayout: rank", lambda: xla.LayoutUtil.MakeAscendingLayout(PAIR)),
    ("LayoutOf: shape must be of type Shape", lambda: xla.LayoutUtil.LayoutOf(THREE)),
    ("Minor: layout must be of type Layout", lambda: xla.LayoutUtil.Minor(THREE, 0)),
    ("IndexInBounds: index must be a list of integers", lambda: xla.IndexUtil.IndexInBounds(MATRIX, THREE)),
    ("FromLinearValues: values must be numbers", lambda: xla.LiteralUtil.FromLinearValues(MATRIX, ["a"] * 6)),
    ("MinValue: takes an element type of arrays", lambda: xla.LiteralUtil.MinValue(xla.PrimitiveType.TOKEN)),
    ("with_dynamic: takes a boolean for each of the 2 dimensions", lambda: MATRIX.with_dynamic([True])),
    ("GetShape: takes an XlaOp", lambda: xla.XlaBuilder("b").GetShape(THREE)),
    ("Parameter: takes an integer and a shape", lambda: xla.XlaBuilder("b").add_parameter(0, THREE, "x")),
    ("wrap: the value must be one of the graph", lambda: xla.XlaBuilder("b").wrap(THREE)),
    ("Shape: dimensions must be a sequence of integers", lambda: MATRIX.with_dimensions(THREE)),
    ("Shape: dimensions must be .* is \\(2, -1\\)", lambda: xla.Shape(xla.F32, (2, -1))),
    ("3 is not an element type", lambda: xla.Shape(THREE, (2,))),
    ("transpose: the operands must be described by shapes", lambda: ops["transpose"].shape(THREE)),
]


@pytest.mark.parametrize(("message", "function"), WRONG)
def test_utilities_refuse_arguments_of_another_kind(message: str, function: Callable[[], Any]) -> None:
    with pytest.raises(errors.TinyxlaError, match=message):
        function()
