"""The loop IR: what LLVM makes of a kernel, what its Python text computes, and what NumPy says, are the same."""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from tinyxla import cache
from tinyxla.backends.numba.emit.operations import UnsupportedKernel
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit import engine
from tinyxla.compiler.costs import SCRATCH_BYTES
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import Builder, Kernel, Literal, Operand
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.ops import Op, ops
from tinyxla.ops.op import ScalarFunction
from tinyxla.runtime.threads import num_threads
from tinyxla.shapes.element_types import element_types

pytestmark = pytest.mark.platform

Arrays = Sequence[np.ndarray[Any, Any]]
SIGNED = ["s8", "s16", "s32", "s64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTEGERS = SIGNED + UNSIGNED
FLOATS = ["f16", "bf16", "f32", "f64"]
COMPLEXES = ["c64", "c128"]
EVERY = ["pred", *INTEGERS, *FLOATS, *COMPLEXES]
CARRIER = {"f16": np.float32, "bf16": np.float32}


@pytest.fixture(scope="module", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("cache")
        path.chmod(0o700)
        patch.setenv("TINYXLA_CACHE_DIR", str(path))
        yield path


def dtype(type: str) -> np.dtype[Any]:
    return element_types[type].dtype


def run_address(address: int, arrays: Arrays, first: int, last: int, parameters: Sequence[int] = ()) -> None:
    table = np.array([*(array.ctypes.data for array in arrays), *parameters], np.int64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    function(table.ctypes.data, first, last)


def run_native(kernel: Kernel, arrays: Arrays, first: int, last: int, parameters: Sequence[int] = ()) -> None:
    run_address(engine.compile_kernel(kernel), arrays, first, last, parameters)


def run_python(kernel: Kernel, arrays: Arrays, first: int, last: int, parameters: Sequence[int] = ()) -> None:
    namespace: dict[str, Any] = {}
    exec(print_python(kernel), namespace)
    with np.errstate(all="ignore"):
        namespace[kernel.name](*arrays, first, last, *parameters)


def run_both(kernel: Kernel, inputs: Arrays, shape: int, type: str, first: int, last: int) -> Arrays:
    """The one output, as the compiled kernel and as the Python function make it."""
    outputs: list[np.ndarray[Any, Any]] = []
    for run in (run_native, run_python):
        output = np.zeros(shape, dtype(type))
        run(kernel, [*inputs, output], first, last)
        outputs.append(output)
    return outputs


def elementwise(op: str, types: Sequence[str], result: str, **attributes: Any) -> Kernel:
    """out[i] = op(in[i], ...)"""
    builder = Builder("elementwise")
    arguments = [builder.argument(type) for type in types]
    output = builder.argument(result, written=True)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        operands = [builder.load(argument, i) for argument in arguments]
        builder.store(output, i, builder.compute(op, result, *operands, **attributes))
    return builder.kernel


def values(type: str, seed: int, count: int = 67) -> np.ndarray[Any, Any]:
    """Numbers of a type: its edges first, then a random mixture."""
    random = np.random.default_rng(seed)
    kind = element_types[type].kind
    if kind == "pred":
        return random.integers(0, 2, count).astype(bool)
    if kind == "complex":
        return (random.normal(size=count) + 1j * random.normal(size=count)).astype(dtype(type))
    if kind == "float":
        edges = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -0.5, np.inf, -np.inf, np.nan])
        mixed = random.normal(size=count) * 10.0 ** random.integers(-3, 2, count)
        mixed[: len(edges)] = np.roll(edges, seed)
        return mixed.astype(dtype(type))
    information = np.iinfo(dtype(type))
    edges = np.array([0, 1, 2, 3, information.min, information.max, information.max - 1], dtype(type))
    mixed = random.integers(information.min, information.max, count, dtype(type), endpoint=True)
    mixed[1::2] = random.integers(0, 12, len(mixed[1::2])).astype(dtype(type))
    mixed[: len(edges)] = np.roll(edges, seed)
    return mixed


def assert_close(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], ulps: float) -> None:
    assert actual.dtype == expected.dtype
    if not np.issubdtype(actual.dtype, np.inexact) and actual.dtype not in (dtype("bf16"), dtype("f16")):
        np.testing.assert_array_equal(actual, expected)
        return
    epsilon = float(ml_dtypes.finfo(actual.dtype).eps)
    tiny = float(ml_dtypes.finfo(actual.dtype).tiny)
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=ulps * epsilon, atol=tiny)


def wrapped(function: Callable[[int, int], int]) -> Callable[..., np.ndarray[Any, Any]]:
    """A function of Python integers as one of arrays, wrapping around."""

    def over(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        bits = 8 * x.itemsize
        unsigned = [function(int(a), int(b)) % (1 << bits) for a, b in zip(x, y, strict=True)]
        return np.array(unsigned, f"u{x.itemsize}").view(x.dtype)

    return over


def truncated(x: int, y: int) -> int:
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def whole_power(x: int, y: int) -> int:
    if y >= 0:
        return pow(x, y, 1 << 64)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


def shifted(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], how: str) -> np.ndarray[Any, Any]:
    bits = 8 * x.itemsize

    def one(a: int, b: int) -> int:
        inside = 0 <= b < bits
        unsigned = a % (1 << bits)
        if how == "left":
            return unsigned << b if inside else 0
        if how == "logical":
            return unsigned >> b if inside else 0
        signed = unsigned - (1 << bits) if unsigned >> (bits - 1) else unsigned
        return signed >> (b if inside else bits - 1)

    return wrapped(one)(x, y)


def away_from_zero(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(abs(x - np.trunc(x)) == 0.5, np.trunc(x) + np.copysign(1, x), np.rint(x)).astype(x.dtype)


# op -> (function of arrays, types, permitted error in units of the type's epsilon)
UNARY: dict[str, tuple[Callable[[Any], Any], list[str], float]] = {
    "abs": (np.abs, SIGNED + FLOATS + COMPLEXES, 2),
    "cbrt": (np.cbrt, FLOATS, 2),
    "ceil": (np.ceil, FLOATS, 0),
    "copy": (lambda x: x, EVERY, 0),
    "cosh": (np.cosh, FLOATS + COMPLEXES, 4),
    "cosine": (np.cos, FLOATS + COMPLEXES, 4),
    "count-leading-zeros": (
        lambda x: np.array([8 * x.itemsize - (int(v) % (1 << 8 * x.itemsize)).bit_length() for v in x], x.dtype),
        INTEGERS,
        0,
    ),
    "erf": (scipy.special.erf, FLOATS, 4),
    "erf-inv": (scipy.special.erfinv, FLOATS, 8),
    "exponential": (np.exp, FLOATS + COMPLEXES, 4),
    "exponential-minus-one": (np.expm1, FLOATS + COMPLEXES, 4),
    "floor": (np.floor, FLOATS, 0),
    "log": (np.log, FLOATS + COMPLEXES, 4),
    "log-plus-one": (np.log1p, FLOATS, 4),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), FLOATS + COMPLEXES, 8),
    "negate": (np.negative, INTEGERS + FLOATS + COMPLEXES, 0),
    "not": (np.invert, ["pred", *INTEGERS], 0),
    "popcnt": (lambda x: np.array([(int(v) % (1 << 8 * x.itemsize)).bit_count() for v in x], x.dtype), INTEGERS, 0),
    "round-nearest-afz": (away_from_zero, FLOATS, 0),
    "round-nearest-even": (np.rint, FLOATS, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), FLOATS + COMPLEXES, 4),
    "sign": (np.sign, SIGNED + FLOATS, 0),
    "sine": (np.sin, FLOATS + COMPLEXES, 4),
    "sinh": (np.sinh, FLOATS + COMPLEXES, 4),
    "sqrt": (np.sqrt, FLOATS + COMPLEXES, 4),
    "tan": (np.tan, FLOATS + COMPLEXES, 8),
    "tanh": (np.tanh, FLOATS + COMPLEXES, 4),
}


def derived_row(op: Op, function: ScalarFunction) -> tuple[Callable[[Any], Any], list[str], float]:
    """The row of an op that the table lacks: by its own values on NumPy."""
    is_complex = any(np.iscomplexobj(sample.operands[0]) for sample in op.samples(np.random.default_rng(0)))
    return op.evaluate, FLOATS + COMPLEXES if is_complex else FLOATS, 2 * function.accuracy.f32 + 2


BINARY: dict[str, tuple[Callable[[Any, Any], Any], list[str], float]] = {
    "add": (np.add, EVERY, 0),
    "and": (np.bitwise_and, ["pred", *INTEGERS], 0),
    "atan2": (np.arctan2, FLOATS, 4),
    "divide": (np.divide, FLOATS + COMPLEXES, 4),
    "maximum": (np.maximum, ["pred", *INTEGERS, *FLOATS], 0),
    "minimum": (np.minimum, ["pred", *INTEGERS, *FLOATS], 0),
    "multiply": (np.multiply, EVERY, 4),
    "or": (np.bitwise_or, ["pred", *INTEGERS], 0),
    "power": (np.power, FLOATS, 4),
    "remainder": (np.fmod, FLOATS, 0),
    "subtract": (np.subtract, INTEGERS + FLOATS + COMPLEXES, 0),
    "xor": (np.bitwise_xor, ["pred", *INTEGERS], 0),
}

UNARY |= {
    name: derived_row(op, op.scalar)
    for name, op in ops.items()
    if op.scalar and name not in UNARY.keys() | BINARY.keys()
}

INTEGER_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "divide": wrapped(truncated),
    "power": wrapped(whole_power),
    "remainder": wrapped(lambda x, y: x - truncated(x, y) * y if y else x),
    "shift-left": lambda x, y: shifted(x, y, "left"),
    "shift-right-arithmetic": lambda x, y: shifted(x, y, "arithmetic"),
    "shift-right-logical": lambda x, y: shifted(x, y, "logical"),
}


def reference(function: Callable[..., Any], type: str, result: str, *inputs: np.ndarray[Any, Any]) -> Any:
    """NumPy's answer; for 16-bit floats, computed in 32 bits and rounded."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*(x.astype(CARRIER.get(type, x.dtype)) for x in inputs))).astype(dtype(result))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("op", "type"), [(op, type) for op, (_, types, _) in UNARY.items() for type in types])
def test_unary_operation(op: str, type: str) -> None:
    function, _, ulps = UNARY[op]
    result = {"c64": "f32", "c128": "f64"}[type] if op == "abs" and type in COMPLEXES else type
    x = values(type, 1)
    expected = reference(function, type, result, x)
    for actual in run_both(elementwise(op, [type], result), [x], len(x), result, 0, len(x)):
        assert_close(actual, expected, ulps)


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("op", ["exponential", "power"])
def test_scaling_without_an_instruction_for_it(op: str, type: str) -> None:
    """Processors with shorter vectors multiply by powers of two in two steps: the same bits, down to subnormals."""
    kernel = elementwise(op, [type] * (1 if op == "exponential" else 2), type)
    reach = 104.0 if type == "f32" else 746.0
    x = np.linspace(-reach, reach, 4001).astype(dtype(type))
    inputs = [x] if op == "exponential" else [np.abs(x), x / 8]
    found = [np.zeros_like(x) for _ in range(2)]
    run_native(kernel, [*inputs, found[0]], 0, len(x))
    text = print_llvm(kernel, "narrow", vector_bytes=32)
    assert "llvm.ldexp" not in text
    run_address(engine.compile_llvm(text, ["narrow"])["narrow"], [*inputs, found[1]], 0, len(x))
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("op", "type"), [(op, type) for op, (_, types, _) in BINARY.items() for type in types])
def test_binary_operation(op: str, type: str) -> None:
    function, _, ulps = BINARY[op]
    x, y = values(type, 1), values(type, 2)
    expected = reference(function, type, type, x, y)
    for actual in run_both(elementwise(op, [type, type], type), [x, y], len(x), type, 0, len(x)):
        assert_close(actual, expected, ulps)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("op", INTEGER_BINARY)
@pytest.mark.parametrize("type", INTEGERS)
def test_integer_operation_without_traps(op: str, type: str) -> None:
    x, y = values(type, 1, 301), values(type, 3, 301)
    if type in SIGNED:
        x[20:30], y[20:30] = np.iinfo(dtype(type)).min, -1
    y[30:40] = 0
    expected = INTEGER_BINARY[op](x, y)
    for actual in run_both(elementwise(op, [type, type], type), [x, y], len(x), type, 0, len(x)):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("type", EVERY)
@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_compare(type: str, direction: str) -> None:
    if type in COMPLEXES and direction not in ("EQ", "NE"):
        pytest.skip("complex numbers have no order")
    x, y = values(type, 1), values(type, 2)
    y[::3] = x[::3]
    functions = {"EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater}
    with np.errstate(all="ignore"):
        expected = ({**functions, "LE": np.less_equal, "LT": np.less}[direction])(x, y)
    kernel = elementwise("compare", [type, type], "pred", direction=direction, compare_type="FLOAT")
    for actual in run_both(kernel, [x, y], len(x), "pred", 0, len(x)):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("type", FLOATS)
def test_total_order(type: str) -> None:
    x = np.array([-np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan], dtype(type))
    x[0], x[-1] = np.copysign(x[0], dtype(type).type(-1)), np.copysign(x[-1], dtype(type).type(1))
    left, right = np.repeat(x, 8), np.tile(x, 8)
    expected = np.repeat(np.arange(8), 8) < np.tile(np.arange(8), 8)
    kernel = elementwise("compare", [type, type], "pred", direction="LT", compare_type="TOTALORDER")
    for actual in run_both(kernel, [left, right], 64, "pred", 0, 64):
        np.testing.assert_array_equal(actual, expected)


def converted(x: np.ndarray[Any, Any], source: str, target: str) -> np.ndarray[Any, Any]:
    kind = element_types[target].kind
    if source in COMPLEXES and target not in COMPLEXES:
        x = x.real
    if kind in ("signed", "unsigned") and element_types[source].kind in ("float", "complex"):
        information = np.iinfo(dtype(target))
        exact = [0 if math.isnan(v) else v for v in x.astype(np.float64)]
        whole = [int(min(max(v, information.min), information.max)) for v in exact]
        return np.array([min(max(v, information.min), information.max) for v in whole], dtype(target))
    with np.errstate(all="ignore"):
        return x.astype(dtype(target))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("source", EVERY)
@pytest.mark.parametrize("target", EVERY)
def test_convert(source: str, target: str) -> None:
    x = values(source, 1)
    if source in FLOATS:
        with np.errstate(all="ignore"):
            x[20:24] = np.array([3e9, -3e9, 1e19, -1e30]).astype(x.dtype)
    expected = converted(x, source, target)
    for actual in run_both(elementwise("convert", [source], target), [x], len(x), target, 0, len(x)):
        assert_close(actual, expected, 0)


def test_f64_becomes_f16_with_one_rounding() -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, -1 - 3 * 2.0**-11 + 2.0**-45, 65519.99999, 65520.0, 1e-300])
    x = np.concatenate([x, 2.0**-25 * (1 + np.array([0.0, 2.0**-40, -(2.0**-40)]))])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    for actual in run_both(elementwise("convert", ["f64"], "f16"), [x], len(x), "f16", 0, len(x)):
        np.testing.assert_array_equal(actual, expected)


def test_bf16_keeps_subnormals() -> None:
    x = (np.arange(1, 60) * 2.0**-133).astype(ml_dtypes.bfloat16)
    expected = (x.astype(np.float32) * np.float32(0.5)).astype(ml_dtypes.bfloat16)
    half = np.full(len(x), 0.5, ml_dtypes.bfloat16)
    for actual in run_both(elementwise("multiply", ["bf16", "bf16"], "bf16"), [x, half], len(x), "bf16", 0, len(x)):
        np.testing.assert_array_equal(actual.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize(
    ("source", "target"), [("f32", "u32"), ("s64", "f64"), ("bf16", "s16"), ("u16", "f16"), ("s8", "u8")]
)
def test_bitcast_convert(source: str, target: str) -> None:
    x = values(source, 4) if source != "u16" else np.arange(67, dtype=np.uint16) * 300
    for actual in run_both(elementwise("bitcast-convert", [source], target), [x], len(x), target, 0, len(x)):
        assert actual.tobytes() == x.tobytes()


@pytest.mark.parametrize("type", EVERY)
def test_select(type: str) -> None:
    chosen, x, y = values("pred", 5), values(type, 1), values(type, 2)
    for actual in run_both(elementwise("select", ["pred", type, type], type), [chosen, x, y], 67, type, 0, 67):
        assert_close(actual, np.where(chosen, x, y), 0)


@pytest.mark.parametrize("type", INTEGERS + FLOATS)
def test_clamp(type: str) -> None:
    low, x, high = values(type, 1), values(type, 2), values(type, 3)
    expected = reference(lambda a, b, c: np.minimum(np.maximum(b, a), c), type, type, low, x, high)
    for actual in run_both(elementwise("clamp", [type] * 3, type), [low, x, high], 67, type, 0, 67):
        assert_close(actual, expected, 0)


@pytest.mark.parametrize("type", FLOATS)
def test_is_finite(type: str) -> None:
    x = values(type, 1)
    for actual in run_both(elementwise("is-finite", [type], "pred"), [x], 67, "pred", 0, 67):
        np.testing.assert_array_equal(actual, np.isfinite(x))


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_reduce_precision_to_the_format_of_f16(type: str) -> None:
    x = values(type, 1)
    x[20:23] = [65519.0, 65521.0, -7e4]
    with np.errstate(all="ignore"):
        expected = x.astype(np.float16).astype(x.dtype)
    expected[np.abs(expected) < 2.0**-14] *= 0  # below its smallest normal number there is only zero
    kernel = elementwise("reduce-precision", [type], type, exponent_bits=5, mantissa_bits=10)
    for actual in run_both(kernel, [x], 67, type, 0, 67):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("type", "part"), [("c64", "f32"), ("c128", "f64")])
def test_complex_from_parts_and_back(type: str, part: str) -> None:
    builder = Builder("parts")
    real, imag, out = builder.argument(part), builder.argument(part), builder.argument(type, written=True)
    swapped = builder.argument(type, written=True)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        both = builder.compute("complex", type, builder.load(real, i), builder.load(imag, i))
        builder.store(out, i, both)
        parts = [builder.compute(op, part, both) for op in ("imag", "real")]
        builder.store(swapped, i, builder.compute("complex", type, *parts))
    x, y = values(part, 1), values(part, 2)
    for run in (run_native, run_python):
        outputs = [np.zeros(67, dtype(type)) for _ in range(2)]
        run(builder.kernel, [x, y, *outputs], 0, 67)
        np.testing.assert_array_equal(np.real(outputs[0]), x)
        np.testing.assert_array_equal(np.imag(outputs[0]), y)
        np.testing.assert_array_equal(np.imag(outputs[1]), x)


@pytest.mark.parametrize("type", COMPLEXES)
def test_complex_logarithm_of_one_plus(type: str) -> None:
    """NumPy's loses the real part's digits where |1 + z| is near 1: only the absolute error can be compared."""
    z = values(type, 1)
    for actual in run_both(elementwise("log-plus-one", [type], type), [z], len(z), type, 0, len(z)):
        np.testing.assert_allclose(actual, np.log1p(z), atol=4 * np.finfo(z.dtype).eps)


def test_every_float_constant_is_exact() -> None:
    nan = np.array([0x7FC00123], np.uint32).view(np.float32)[0]
    constants = [0.1, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float(nan)]
    builder = Builder("constants")
    out = builder.argument("f32", written=True)
    for position, value in enumerate(constants):
        builder.store(out, position, Literal("f32", value))
    output = np.zeros(7, np.float32)
    run_native(builder.kernel, [output], 0, 1)
    assert output.tobytes() == np.array([*constants[:-1], nan], np.float32).tobytes()


# Kernels of several loops.


def chain(type: str) -> Kernel:
    """out = tanh(x * y + 0.1) - x"""
    builder = Builder("chain")
    x, y, out = builder.argument(type), builder.argument(type), builder.argument(type, written=True)
    tenth = Literal(type, float(dtype(type).type(0.1)))
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        product = builder.compute("multiply", type, builder.load(x, i), builder.load(y, i))
        curve = builder.compute("tanh", type, builder.compute("add", type, product, tenth))
        builder.store(out, i, builder.compute("subtract", type, curve, builder.load(x, i)))
    return builder.kernel


@pytest.mark.parametrize("type", FLOATS)
def test_chain_rounds_after_every_operation(type: str) -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 1000)).astype(dtype(type))
    carrier = CARRIER.get(type, x.dtype)

    def rounded(value: Any) -> Any:
        return value.astype(x.dtype).astype(carrier)

    tenth = dtype(type).type(0.1).astype(carrier)
    curve = rounded(np.tanh(rounded(rounded(x.astype(carrier) * y.astype(carrier)) + tenth)))
    expected = rounded(curve - x.astype(carrier)).astype(x.dtype)
    compiled, printed = run_both(chain(type), [x, y], 1000, type, 0, 1000)
    np.testing.assert_array_equal(printed, expected)
    tolerance = 4 * float(ml_dtypes.finfo(x.dtype).eps)
    np.testing.assert_allclose(compiled.astype(np.float64), expected.astype(np.float64), atol=tolerance)


@pytest.mark.parametrize("op", ["divide", "remainder"])
def test_integers_are_divided_in_vectors(op: str) -> None:
    """Up to 32 bits, and unless the divisor is a constant: LLVM multiplies by that."""
    for type in INTEGERS:
        text = print_llvm(elementwise(op, [type, type], type))
        assert ("fdiv" in text) == (np.dtype(dtype(type)).itemsize < 8), type
    builder = Builder("seven")
    x, out = builder.argument("s32"), builder.argument("s32", written=True)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        builder.store(out, i, builder.compute(op, "s32", builder.load(x, i), Literal("s32", 7)))
    assert "fdiv" not in print_llvm(builder.kernel)


@pytest.mark.parametrize("size", [2, 8])
def test_an_index_modulo_a_power_of_two(size: int) -> None:
    builder = Builder("cycle")
    x, out = builder.argument("f32"), builder.argument("f32", written=True)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        builder.store(out, i, builder.load(x, builder.remainder(i, size)))
    values = np.arange(size, dtype=np.float32) + 1
    for first in (0, 1, 37):
        for actual in run_both(builder.kernel, [values], 100, "f32", first, 99):
            assert not actual[:first].any()
            np.testing.assert_array_equal(actual[first:99], values[np.arange(first, 99) % size])


def test_a_range_of_the_outermost_index() -> None:
    x = np.arange(100, dtype=np.float32)
    for actual in run_both(chain("f32"), [x, x], 100, "f32", 37, 71):
        assert not actual[:37].any()
        assert not actual[71:].any()
        assert actual[37:71].all()
    for actual in run_both(chain("f32"), [x, x], 100, "f32", 71, 37):
        assert not actual.any()


def softmax(columns: int) -> Kernel:
    builder = Builder("softmax")
    x, out = builder.argument("f32"), builder.argument("f32", written=True)
    row = builder.scratch("f32", columns)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        base = builder.mul(i, columns)
        with builder.loop(0, columns, [Literal("f32", float("-inf"))]) as (j, loop):
            element = builder.load(x, builder.add(base, j))
            largest = loop.carried[0]
            largest.next = builder.compute("maximum", "f32", largest.arg, element, reassociate=True)
        with builder.loop(0, columns, [Literal("f32", 0.0)]) as (j, loop):
            element = builder.load(x, builder.add(base, j))
            power = builder.compute("exponential", "f32", builder.compute("subtract", "f32", element, largest.result))
            builder.store(row, j, power)
            total = loop.carried[0]
            total.next = builder.compute("add", "f32", total.arg, power, reassociate=True)
        with builder.loop(0, columns) as (j, _):
            share = builder.compute("divide", "f32", builder.load(row, j), total.result)
            builder.store(out, builder.add(base, j), share)
    return builder.kernel


@pytest.mark.parametrize("columns", [1, 16, 100, 1024])
def test_softmax_of_rows(columns: int) -> None:
    x = np.random.default_rng(2).normal(size=(5, columns)).astype(np.float32)
    expected = scipy.special.softmax(x, axis=1)
    for actual in run_both(softmax(columns), [x.ravel()], x.size, "f32", 0, 5):
        np.testing.assert_allclose(actual.reshape(x.shape), expected, rtol=1e-5)


def test_softmax_passes_nan_on() -> None:
    x = np.zeros((2, 100), np.float32)
    x[1, 77] = np.nan
    for actual in run_both(softmax(100), [x.ravel()], x.size, "f32", 0, 2):
        np.testing.assert_array_equal(np.isnan(actual.reshape(2, 100)).sum(axis=1), [0, 100])


def reduction(op: str, type: str, initial: Any) -> Kernel:
    """out[0] = reduce(in[first:last])"""
    builder = Builder("reduction")
    x, out = builder.argument(type), builder.argument(type, written=True)
    kernel = builder.kernel
    with builder.loop(kernel.first, kernel.last, [Literal(type, initial)]) as (i, loop):
        carried = loop.carried[0]
        carried.next = builder.compute(op, type, carried.arg, builder.load(x, i), reassociate=True)
    builder.store(out, 0, carried.result)
    return kernel


@pytest.mark.parametrize("type", ["s32", "u8", "f32", "f64", "c64"])
@pytest.mark.parametrize("count", [0, 1, 1003])
def test_full_sum(type: str, count: int) -> None:
    x = values(type, 3, 1003) if element_types[type].is_integer else np.linspace(-1, 1, 1003).astype(dtype(type))
    expected = x[:count].sum(dtype=x.dtype)
    for actual in run_both(reduction("add", type, 0), [x], 1, type, 0, count):
        np.testing.assert_allclose(actual[0], expected, atol=1e-12 if type == "f64" else 1e-4)


@pytest.mark.parametrize(("op", "initial", "function"), [("and", True, np.all), ("or", False, np.any)])
def test_full_reduction_of_predicates(op: str, initial: bool, function: Callable[[Any], Any]) -> None:
    for x in (np.ones(100, bool), np.zeros(100, bool), np.arange(100) == 50):
        for actual in run_both(reduction(op, "pred", initial), [x], 1, "pred", 0, 100):
            assert actual[0] == function(x)


@pytest.mark.parametrize("type", ["f32", "f64", "bf16", "s16"])
@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_full_extremum(op: str, type: str) -> None:
    x = np.random.default_rng(3).integers(-1000, 1000, 1003).astype(dtype(type))
    expected = x.max() if op == "maximum" else x.min()
    for actual in run_both(reduction(op, type, -5000 if op == "maximum" else 5000), [x], 1, type, 0, 1003):
        assert actual[0] == expected


def column_sums(rows: int, columns: int) -> Kernel:
    """out[i] = sum over r of in[r, i], one chunk of columns at a time in scratch."""
    builder = Builder("column_sums")
    x, out = builder.argument("f32"), builder.argument("f32", written=True)
    sums = builder.scratch("f32", columns)
    with builder.loop(0, columns) as (j, _):
        builder.store(sums, j, Literal("f32", 0.0))
    with builder.loop(0, rows, sequential=True) as (i, _):
        base = builder.mul(i, columns)
        with builder.loop(0, columns) as (j, _):
            element = builder.load(x, builder.add(base, j))
            builder.store(sums, j, builder.compute("add", "f32", builder.load(sums, j), element))
    with builder.loop(0, columns) as (j, _):
        builder.store(out, j, builder.load(sums, j))
    return builder.kernel


def test_column_sums_keep_their_order() -> None:
    x = np.random.default_rng(4).normal(size=(40, 77)).astype(np.float32)
    expected = np.zeros(77, np.float32)
    for row in x:
        expected += row
    for actual in run_both(column_sums(40, 77), [x.ravel()], 77, "f32", 0, 1):
        np.testing.assert_array_equal(actual, expected)


def test_recurrence_in_a_written_argument() -> None:
    builder = Builder("running")
    x, out = builder.argument("s32"), builder.argument("s32", written=True)
    builder.store(out, 0, builder.load(x, 0))
    with builder.loop(1, builder.kernel.last, sequential=True) as (i, _):
        before = builder.load(out, builder.sub(i, 1))
        builder.store(out, i, builder.compute("add", "s32", before, builder.load(x, i)))
    x_values = values("s32", 1)
    for actual in run_both(builder.kernel, [x_values], 67, "s32", 0, 67):
        np.testing.assert_array_equal(actual, np.cumsum(x_values, dtype=np.int32))


def test_loops_that_carry_numbers_of_every_kind() -> None:
    builder = Builder("carry")
    out = [builder.argument(type, written=True) for type in ("c64", "pred", "bf16", "s64")]
    one = [Literal("c64", 1 + 0j), Literal("pred", True), Literal("bf16", 1.0), Literal("s64", 1)]
    with builder.loop(builder.kernel.first, builder.kernel.last, one, sequential=True) as (i, loop):
        number, flag, small, whole = loop.carried
        number.next = builder.compute("multiply", "c64", number.arg, Literal("c64", 1j))
        flag.next = builder.compute("not", "pred", flag.arg)
        small.next = builder.compute("add", "bf16", small.arg, Literal("bf16", 1.0))
        whole.next = builder.compute("add", "s64", whole.arg, i)
    for buffer, carried in zip(out, loop.carried, strict=True):
        builder.store(buffer, 0, carried.result)
    for run in (run_native, run_python):
        for count in (0, 3, 300):
            outputs = [np.zeros(1, dtype(buffer.type)) for buffer in out]
            run(builder.kernel, outputs, 0, count)
            expected = [1j**count, 1 - count % 2, min(count + 1, 256), 1 + count * (count - 1) // 2]
            assert [complex(output[0]) for output in outputs] == pytest.approx(expected)


def padded(low: int, size: int, total: int) -> Kernel:
    """out = pad(in, 7.0): the load is guarded by clamping its index."""
    builder = Builder("padded")
    x, out = builder.argument("f32"), builder.argument("f32", written=True)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        source = builder.sub(i, low)
        assert not isinstance(source, int)
        inside: list[Operand] = [
            builder.compute("compare", "pred", source, Literal("s64", bound), direction=direction)
            for direction, bound in (("GE", 0), ("LT", size))
        ]
        clamped = builder.min(builder.max(source, 0), size - 1)
        chosen = builder.compute("and", "pred", *inside)
        value = builder.compute("select", "f32", chosen, builder.load(x, clamped), Literal("f32", 7.0))
        builder.store(out, i, value)
    return builder.kernel


def test_padding_by_guarded_index() -> None:
    x = np.arange(1, 51, dtype=np.float32)
    for actual in run_both(padded(5, 50, 70), [x], 70, "f32", 0, 70):
        np.testing.assert_array_equal(actual, np.pad(x, (5, 15), constant_values=7))


def test_index_division_gives_a_transpose() -> None:
    builder = Builder("transpose")
    x, out = builder.argument("s16"), builder.argument("s16", written=True)
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        row, column = builder.floordiv(i, 7), builder.remainder(i, 7)
        source = builder.add(builder.mul(column, 11), row)
        builder.store(out, i, builder.load(x, source))
    x_values = np.arange(77, dtype=np.int16).reshape(7, 11)
    for actual in run_both(builder.kernel, [x_values.ravel()], 77, "s16", 0, 77):
        np.testing.assert_array_equal(actual.reshape(11, 7), x_values.T)


def test_loops_that_never_run() -> None:
    builder = Builder("never")
    out = builder.argument("f32", written=True)
    with builder.loop(3, 3, [Literal("f32", 5.0)]) as (_, loop):
        loop.carried[0].next = builder.compute("add", "f32", loop.carried[0].arg, Literal("f32", 1.0))
    builder.store(out, 0, loop.carried[0].result)
    for actual in run_both(builder.kernel, [], 1, "f32", 0, 1):
        assert actual[0] == 5.0


# What the code looks like, and what is refused.


def test_row_maximum_and_sum_are_vectorised() -> None:
    engine.compile_kernel(softmax(1024))
    text = engine.optimized_text(print_llvm(softmax(1024)))
    assert "x float> @llvm.maximum" in text
    assert "fadd reassoc contract <" in text


def test_print_llvm_names_arguments_as_the_builder_does() -> None:
    text = print_llvm(chain("f32"), "renamed")
    assert "define void @renamed(ptr %table, i64 %first, i64 %last)" in text
    assert "ptr noalias readonly %in0, ptr noalias readonly %in1, ptr noalias %out2" in text


def test_print_python_reads_as_python() -> None:
    source = print_python(chain("f32"))
    assert source.splitlines()[0] == "import numpy as np"
    assert "    for i1 in range(first, last):" in source
    assert "np.tanh(" in source


def test_types_without_native_code_are_refused() -> None:
    with pytest.raises(UnsupportedKernel, match="s4 has no native code"):
        print_llvm(elementwise("add", ["s4", "s4"], "s4"))
    with pytest.raises(UnsupportedKernel, match="sine of s32 has no native code"):
        print_llvm(elementwise("sine", ["s32"], "s32"))


def test_too_much_scratch_is_refused() -> None:
    print_llvm(softmax(SCRATCH_BYTES // 4))
    with pytest.raises(UnsupportedKernel, match="262148 bytes"):
        print_llvm(softmax(SCRATCH_BYTES // 4 + 1))


def test_unknown_functions_are_refused() -> None:
    with pytest.raises(UnsupportedKernel, match="no_such_function"):
        engine.compile_llvm(CALLS_NOTHING, ["f"])


# Caches.

CALLS_NOTHING = "declare void @no_such_function()\ndefine void @f() {\n  call void @no_such_function()\n  ret void\n}\n"


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(path))
    forget(monkeypatch)
    return path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing is known in memory."""
    monkeypatch.setattr(engine, "_addresses", {})


def counts() -> tuple[int, int]:
    info = engine.cache_info()
    return info.compilations, info.disk_hits


def change(before: tuple[int, int]) -> tuple[int, ...]:
    return tuple(now - then for now, then in zip(counts(), before, strict=True))


def test_equal_kernels_compile_once(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = counts()
    kernel = chain("f32")
    kernel.name = "another_name"
    assert engine.compile_kernel(kernel) == engine.compile_kernel(chain("f32"))
    assert change(before) == (1, 0)
    forget(monkeypatch)
    address = engine.compile_kernel(chain("f32"))
    assert change(before) == (1, 1)
    x = np.linspace(-1, 1, 50).astype(np.float32)
    output = np.zeros_like(x)
    run_address(address, [x, x, output], 0, 50)
    np.testing.assert_allclose(output, np.tanh(x * x + np.float32(0.1)) - x, rtol=1e-5, atol=1e-6)


def test_threads_may_compile_at_once(fresh_cache: Path) -> None:
    x = np.arange(5, dtype=np.float32)
    kernels = [reduction("add", "f32", float(start)) for start in range(4)] * 3

    def total(kernel: Kernel) -> float:
        output = np.zeros(1, np.float32)
        run_native(kernel, [x, output], 0, 5)
        return float(output[0])

    before = counts()
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(total, kernels)) == [10.0, 11.0, 12.0, 13.0] * 3
    assert change(before) == (4, 0)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_kernels_are_compiled_together(fresh_cache: Path, threads: int) -> None:
    x = np.arange(5, dtype=np.float32)
    with num_threads(threads):
        before = counts()
        engine.define_kernel("tinyxla_test_nothing", Builder("nothing").kernel)
        addresses = [engine.start_kernel(reduction("add", "f32", float(start))) for start in range(20, 28)]
        again = engine.start_kernel(reduction("add", "f32", 20.0))
        for start, address in enumerate(addresses, 20):
            output = np.zeros(1, np.float32)
            run_address(address(), [x, output], 0, 5)
            assert output[0] == start + 10
        assert again() == addresses[0]()
        assert change(before) == (9, 0)
    assert engine.function_address("tinyxla_test_nothing") != 0
    assert len(list(fresh_cache.glob("*.object"))) == 9


def test_the_code_does_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, bytes]] = []
    header = len(cache.FORMAT) + 32  # a checksum, which depends on a secret of each directory
    for threads in (1, 4):
        monkeypatch.setenv("TINYXLA_CACHE_DIR", str(tmp_path / str(threads)))
        forget(monkeypatch)
        with num_threads(threads):
            started = [engine.start_kernel(softmax(n)) for n in (3, 33, 300)] + [engine.start_kernel(chain("f64"))]
            assert all(address() for address in started)
        found.append({path.name: path.read_bytes()[header:] for path in (tmp_path / str(threads)).glob("*.object")})
    assert found[0] == found[1]
    assert len(found[0]) == 4


def test_a_module_that_cannot_be_loaded_spoils_no_other(fresh_cache: Path) -> None:
    good = engine.start_kernel(reduction("add", "f32", 30.0))
    with pytest.raises(UnsupportedKernel, match="no_such_function"):
        engine.compile_llvm(CALLS_NOTHING, ["f"])
    assert good() != 0


def test_an_interrupted_compilation_is_made_up_for(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with num_threads(1):
        addresses = [engine.start_kernel(reduction("add", "f32", float(start))) for start in (40, 41)]
        with monkeypatch.context() as patch:
            patch.setattr(engine, "_object_code", interrupted)
            with pytest.raises(KeyboardInterrupt):
                addresses[0]()
        assert engine.compile_kernel(reduction("add", "f32", 40.0)) == addresses[0]() != addresses[1]() != 0


def test_an_interruption_before_compilation_is_made_up_for(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(deque[Any]):
        def append(self, _: Any) -> None:
            raise KeyboardInterrupt

        appendleft = append

    with num_threads(1):
        with monkeypatch.context() as patch:
            patch.setattr(engine, "_queue", Interrupted())
            with pytest.raises(KeyboardInterrupt):
                engine.start_kernel(reduction("add", "f32", 42.0))
        assert engine.compile_kernel(reduction("add", "f32", 42.0)) != 0


def test_canonical_text_tells_kernels_apart() -> None:
    kernels = [chain("f32"), chain("f64"), softmax(4), softmax(5), column_sums(2, 3), column_sums(3, 2)]
    kernels += [reduction("add", "f32", value) for value in (0.0, -0.0, float("nan"))]
    assert len({kernel_fingerprint(kernel) for kernel in kernels}) == len(kernels)
    assert kernel_fingerprint(softmax(4)) == kernel_fingerprint(softmax(4))
