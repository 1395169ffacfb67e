"""The scalar math of kernels against wider arithmetic: float64 for f32, longdouble or mpmath for f64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

from tinyxla.backends.numba.emit.scalar import Emitter, LlvmScalar
from tinyxla.ops import ops
from tinyxla.scalar_math import complex_numbers, elementary
from tinyxla.scalar_math.accuracy import EXACT
from tinyxla.scalar_math.complex_numbers import Complex
from tinyxla.scalar_math.numpy_scalar import DTYPES, NumpyScalar
from tinyxla.scalar_math.trigonometry import REDUCTION_LIMIT

Values = np.ndarray[Any, Any]

SPECIAL = [0.0, 1.0, 0.5, 2.0, 1.5, 3.0, 10.0, 88.7228, 88.72284, 103.972, 103.973, 0.25, np.pi, np.pi / 2, np.inf]
BY_FUNCTION = {op.scalar.name: op for op in ops.values() if op.scalar and op.scalar.accuracy != EXACT}
ACCURACY = {name: op.scalar.accuracy for name, op in BY_FUNCTION.items() if op.scalar}
LONG_DOUBLE_IS_LONGER = np.finfo(np.longdouble).nmant >= 63


def seeded(request_name: str) -> np.random.Generator:
    return np.random.default_rng(list(request_name.encode()))


def with_signs(values: Iterable[float]) -> list[float]:
    return [sign * value for value in values for sign in (1.0, -1.0)]


def special_values(dtype: type) -> Values:
    limits = np.finfo(dtype)
    extremes = [limits.max, limits.smallest_normal, limits.smallest_subnormal, limits.smallest_normal / 2]
    return np.array([*with_signs([*SPECIAL, *map(float, extremes)]), np.nan]).astype(dtype)


def random_bits(rng: np.random.Generator, count: int, dtype: type) -> Values:
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    return rng.integers(0, np.iinfo(unsigned).max, count, unsigned, endpoint=True).view(dtype)


def samples(rng: np.random.Generator, count: int, dtype: type, low: float, high: float) -> Values:
    """A third random bits, a third uniform between the limits, a third logarithmic up to the larger limit."""
    third = count // 3
    smallest = -30 if dtype is np.float32 else -60
    scales = np.exp2(rng.uniform(smallest, math.log2(max(abs(low), abs(high))), third))
    logarithmic = np.clip(scales * rng.choice([-1.0, 1.0], third), low, high)
    parts = [random_bits(rng, third, dtype), rng.uniform(low, high, third), logarithmic, special_values(dtype)]
    with np.errstate(invalid="ignore"):
        return np.concatenate([part.astype(dtype) for part in parts])


def errors_in_places(result: Values, exact: Values) -> Values:
    """The distance of results from wider ones in units in the last place; infinite where special values differ."""
    limits = np.finfo(result.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        exponent = np.frexp(np.where(np.isfinite(exact), exact, 1))[1] - 1
        place = np.ldexp(np.ones_like(exact), np.maximum(exponent, limits.minexp) - limits.nmant)
        error = np.abs(result.astype(exact.dtype) - exact) / place
    regular = np.isfinite(result) & np.isfinite(exact)
    alike = (result == rounded) | (np.isnan(result) & np.isnan(exact))
    error = np.where(regular, error, np.where(alike, 0, np.inf))
    wrong_zero = (exact == 0) & ((result != 0) | (np.signbit(result) != np.signbit(exact)))
    return np.where(wrong_zero, np.inf, error)


def assert_within(bound: float, result: Values, exact: Values, *operands: Values) -> None:
    errors = errors_in_places(result, exact)
    worst = int(np.argmax(errors))
    arguments = ", ".join(repr(operand[worst]) for operand in operands)
    assert errors[worst] <= bound, (
        f"{float(errors[worst])} places at ({arguments}): {result[worst]!r}, not {exact[worst]!r}"
    )


def odd_at_zero(x: Values, exact: Values) -> Values:
    """Zeros get the sign of x, which some references lose."""
    return np.where((exact == 0) & np.signbit(x), -0.0, exact)


def bound_of(name: str, dtype: type) -> float:
    accuracy = ACCURACY[name]
    return accuracy.f32 if dtype is np.float32 else accuracy.f64


def through_mpmath(function: Callable[[Any], Any], precision: int = 120) -> Callable[[Values], Values]:
    """An elementwise function that takes finite numbers to longdoubles by way of mpmath, with NaN for all others."""

    def apply(x: Values) -> Values:
        out = np.full(x.shape, np.nan, np.longdouble)
        with mpmath.workprec(precision):
            for index, value in enumerate(x):
                if not np.isfinite(value):
                    continue
                exact = function(mpmath.mpf(float(value)))
                high = float(exact)
                low = float(exact - high) if math.isfinite(high) else 0.0
                out[index] = np.longdouble(high) + np.longdouble(low)
        return odd_at_zero(x, out)

    return apply


def logistic(x: Values) -> Values:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def inverse_error_function(x: mpmath.mpf) -> mpmath.mpf:
    """From SciPy's value, two Newton steps on whichever of erf and erfc loses nothing."""
    small = abs(x) < 0.5
    start = scipy.special.erfinv(float(x)) if small else scipy.special.erfcinv(float(1 - abs(x)))
    y = mpmath.mpf(float(start)) * (1 if small else mpmath.sign(x))
    for _ in range(2):
        residual = mpmath.erf(y) - x if small else mpmath.sign(x) * ((1 - abs(x)) - mpmath.erfc(abs(y)))
        y -= residual * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
    return y


@dataclass(frozen=True)
class Case:
    """A function, where to sample it most, and what to compare it with."""

    name: str
    low: float
    high: float
    wider: Callable[[Values], Values]
    exact: Callable[[Any], Any] | None = None  # for f64, where NumPy has no good longdouble version
    is_derived: bool = False  # from the op's declaration


CASES = [
    Case("exp", -104, 89, np.exp),
    Case("expm1", -20, 89, np.expm1),
    Case("log", 0, 100, np.log),
    Case("log1p", -1, 100, np.log1p),
    Case("logistic", -104, 104, logistic),
    Case("tanh", -10, 10, np.tanh),
    Case("sinh", -90, 90, np.sinh),
    Case("cosh", -90, 90, np.cosh),
    Case("sqrt", 0, 100, np.sqrt),
    Case("rsqrt", 0, 100, lambda x: 1 / np.sqrt(x)),
    Case("cbrt", -100, 100, np.cbrt),
    Case("erf", -6, 6, scipy.special.erf, mpmath.erf),
    Case("erf_inv", -1, 1, scipy.special.erfinv, inverse_error_function),
    Case("sin", -1e5, 1e5, np.sin, mpmath.sin),
    Case("cos", -1e5, 1e5, np.cos, mpmath.cos),
    Case("tan", -1e5, 1e5, np.tan, mpmath.tan),
]


def derived_case(name: str) -> Case:
    """The case of a function that the table lacks: near its op's samples, against the op on NumPy and mpmath's."""
    op = BY_FUNCTION[name]
    samples = [float(v) for sample in op.samples(seeded(name)) for v in np.asarray(sample.operands[0]).flat]
    return Case(name, 4 * min(samples), 4 * max(samples), op.evaluate, getattr(mpmath, name), is_derived=True)


CASES += [derived_case(name) for name in ACCURACY if name not in {"atan2", "pow", *(case.name for case in CASES)}]
BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.sample(every=4)
@BY_NAME
def test_f32_is_as_accurate_as_promised(case: Case) -> None:
    x = samples(seeded(case.name), 200_000, np.float32, case.low, case.high)
    result = getattr(elementary, case.name)(NumpyScalar(x)).array
    with np.errstate(all="ignore"):
        exact = case.wider(x.astype(np.float64))
    exact = odd_at_zero(x, exact) if case.name == "erf_inv" else exact
    assert_within(ACCURACY[case.name].f32, result, exact, x)


@pytest.mark.sample(every=4)
@BY_NAME
def test_f64_is_as_accurate_as_promised(case: Case) -> None:
    if case.exact is None and not LONG_DOUBLE_IS_LONGER:
        pytest.skip("NumPy has no number wider than float64 here.")
    x = samples(seeded(case.name), 20_000 if case.exact is None else 900, np.float64, case.low, case.high)
    if case.exact is None:
        with np.errstate(all="ignore"):
            exact = case.wider(x.astype(np.longdouble))
    else:
        exact = through_mpmath(case.exact, precision=1300 if case.name in ("sin", "cos", "tan") else 120)(
            x if case.name != "erf_inv" else np.where(np.abs(x) < 1, x, np.nan)
        )
    if case.name in ("erf", "erf_inv"):
        exact = np.where(np.isfinite(x), exact, case.wider(x))
        exact = np.where(np.abs(x) == 1, case.wider(x), exact) if case.name == "erf_inv" else exact
    if case.is_derived:  # mpmath's zeros have no sign
        with np.errstate(invalid="ignore"):
            exact = np.where(exact == 0, np.copysign(0, case.wider(x)), exact)
    assert_within(ACCURACY[case.name].f64, getattr(elementary, case.name)(NumpyScalar(x)).array, exact, x)


def test_every_promise_is_tested() -> None:
    assert {case.name for case in CASES} | {"atan2", "pow"} == set(ACCURACY)


def test_errors_in_places_sees_wrong_results() -> None:
    one = np.ones(1, np.float32)
    assert errors_in_places(one, np.ones(1)) == 0
    assert errors_in_places(np.nextafter(one, np.float32(2)), np.ones(1)) == 1
    assert errors_in_places(-np.zeros(1, np.float32), np.zeros(1)) == np.inf
    assert errors_in_places(np.full(1, np.nan, np.float32), np.zeros(1)) == np.inf
    assert errors_in_places(np.full(1, np.inf, np.float32), np.full(1, 3e38)) == np.inf
    assert errors_in_places(np.full(1, 1e-45, np.float32), np.full(1, 3e-45)) == pytest.approx(1.14, abs=0.01)


# The arguments nearest to multiples of pi / 2 are from Muller, Elementary Functions, third edition, section 11.3.
HARDEST = {np.float32: 16367173 * 2.0**72, np.float64: 6381956970095103 * 2.0**797}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reduction_near_multiples_of_half_pi_and_at_the_limit(name: str, dtype: type) -> None:
    limit = REDUCTION_LIMIT["f32" if dtype is np.float32 else "f64"]
    rng = seeded(name)
    multiples = np.concatenate([np.arange(1, 300), rng.integers(300, int(limit / 1.6), 300)]) * np.pi / 2
    near_limit = limit * (1 + np.linspace(-1e-6, 1e-6, 20))
    huge = np.exp2(rng.uniform(math.log2(limit), np.finfo(dtype).maxexp - 1, 300))
    x = np.array(with_signs([*multiples, *near_limit, *huge, HARDEST[dtype]])).astype(dtype)
    exact = through_mpmath(getattr(mpmath, name), 1300)(x)
    bound = bound_of(name, dtype)
    function = getattr(elementary, name)
    assert_within(bound, function(NumpyScalar(x)).array, exact, x)
    usual = np.abs(x) <= limit
    assert_within(bound, function(NumpyScalar(x[usual]), huge=False).array, exact[usual], x[usual])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_sine_exceeds_one(dtype: type) -> None:
    peaks = ((np.arange(20_000) + 0.5) * np.pi).astype(dtype)
    near = np.concatenate([peaks, np.nextafter(peaks, dtype(0)), np.nextafter(peaks, dtype(np.inf))])
    assert np.all(np.abs(elementary.sin(NumpyScalar(near)).array) <= 1)
    assert np.all(np.abs(elementary.cos(NumpyScalar(near - dtype(np.pi / 2))).array) <= 1)


def pairs(values: Values) -> tuple[Values, Values]:
    first, second = np.meshgrid(values, values)
    return first.ravel(), second.ravel()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atan2(dtype: type) -> None:
    rng = seeded("atan2")
    y, x = pairs(special_values(dtype))
    count = 100_000 if dtype is np.float32 else 10_000
    scale = np.exp2(rng.uniform(-100, 100, count))
    y = np.concatenate([y, random_bits(rng, count, dtype), (rng.normal(size=count) * scale).astype(dtype)])
    x = np.concatenate([x, random_bits(rng, count, dtype), (rng.normal(size=count) * scale).astype(dtype)])
    wider = np.float64 if dtype is np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        exact = np.arctan2(y.astype(wider), x.astype(wider))
    assert_within(bound_of("atan2", dtype), elementary.atan2(NumpyScalar(y), NumpyScalar(x)).array, exact, y, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow(dtype: type) -> None:
    rng = seeded("pow")
    limits = np.finfo(dtype)
    count = 60_000 if dtype is np.float32 else 5_000
    x, y = pairs(special_values(dtype))
    wide = np.exp2(rng.uniform(limits.minexp, limits.maxexp, count))
    near_one = 1 + rng.uniform(-0.3, 0.3, count)
    exponents = rng.uniform(limits.minexp - limits.nmant, limits.maxexp, count)
    bases = [random_bits(rng, count, dtype), wide, near_one, -rng.uniform(0, 10, count), rng.integers(-9, 9, count)]
    powers = [
        random_bits(rng, count, dtype),
        exponents / np.log2(wide),
        exponents / np.log2(near_one),
        rng.integers(-30, 30, count),
        rng.integers(-9, 9, count),
    ]
    with np.errstate(all="ignore"):
        x = np.concatenate([x, *(base.astype(dtype) for base in bases)])
        y = np.concatenate([y, *(power.astype(dtype) for power in powers)])
        wider = np.float64 if dtype is np.float32 else np.longdouble
        exact = np.power(x.astype(wider), y.astype(wider))
    assert_within(bound_of("pow", dtype), elementary.pow(NumpyScalar(x), NumpyScalar(y)).array, exact, x, y)


def test_remainder_of_floats_is_exact() -> None:
    rng = seeded("rem")
    x, y = random_bits(rng, 2_000, np.float32), random_bits(rng, 2_000, np.float32)
    result = elementary.rem(NumpyScalar(x), NumpyScalar(y)).array
    for a, b, r in zip(x, y, result, strict=True):
        if np.isfinite(a) and np.isfinite(b) and b != 0:
            quotient = Fraction(float(a)) / Fraction(float(b))
            assert Fraction(float(r)) == Fraction(float(a)) - math.trunc(quotient) * Fraction(float(b))


def test_sign_and_rounding() -> None:
    x = np.array([0.5, 1.5, 2.5, 0.49999997, 8388609.0, 4194304.5, 0.2, np.inf, 0.0, 1e-45], np.float32)
    x = np.concatenate([x, -x, [np.float32(np.nan)]])
    away = np.array([1, 2, 3, 0, 8388609, 4194305, 0, np.inf, 0, 0], np.float32)
    np.testing.assert_array_equal(
        elementary.round_afz(NumpyScalar(x)).array, np.concatenate([away, -away, [np.float32(np.nan)]])
    )
    np.testing.assert_array_equal(elementary.round_even(NumpyScalar(x)).array, np.rint(x))
    assert np.array_equal(np.signbit(elementary.round_afz(NumpyScalar(x)).array[10:20]), np.ones(10, bool))
    signs = elementary.sign(NumpyScalar(x)).array
    np.testing.assert_array_equal(signs, np.sign(x))
    assert np.array_equal(np.signbit(signs), np.signbit(x))
    integers = np.array([-128, -1, 0, 1, 127], np.int8)
    assert elementary.sign(NumpyScalar(integers)).array.tolist() == [-1, -1, 0, 1, 1]
    assert elementary.sign(NumpyScalar(integers.view(np.uint8))).array.tolist() == [1, 1, 0, 1, 1]


INTEGER_TYPES = [name for name in DTYPES if name[0] in "su"]


def wrapped(value: int, dtype: np.dtype[Any]) -> int:
    info = np.iinfo(dtype)
    return (value - int(info.min)) % 2**info.bits + int(info.min)


def integer_pairs(name: str) -> tuple[Values, Values]:
    info = np.iinfo(DTYPES[name])
    edges = [info.min, info.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63, 64, info.max - 1, info.max]
    inside = [value for value in edges if info.min <= value <= info.max]
    random = seeded(name).integers(info.min, info.max, 20, DTYPES[name], endpoint=True)
    return pairs(np.concatenate([np.array(inside, DTYPES[name]), random]))


@pytest.mark.parametrize("name", INTEGER_TYPES)
def test_integer_arithmetic_follows_xla(name: str) -> None:
    dtype = DTYPES[name]
    width = 8 * dtype.itemsize

    def quotient(x: int, y: int) -> int:
        return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    def remainder(x: int, y: int) -> int:
        return x if y == 0 else x - quotient(x, y) * y

    def power(x: int, y: int) -> int:
        if y >= 0:
            return pow(x, y, 2**width)
        return x ** (-y % 2 + 2) if abs(x) == 1 else 0

    def right(x: int, y: int) -> int:
        return x >> min(y % 2**width, width - 1) if 0 <= y < width else -int(x < 0)

    def arithmetic(x: int, y: int) -> int:
        return right(x if name[0] == "s" else (x ^ 2 ** (width - 1)) - 2 ** (width - 1), y)

    expected: dict[str, Callable[[int, int], int]] = {
        "divide": quotient,
        "remainder": remainder,
        "rem": remainder,
        "power": power,
        "shift_left": lambda x, y: x << y if 0 <= y < width else 0,
        "shift_right_logical": lambda x, y: (x % 2**width) >> y if 0 <= y < width else 0,
        "shift_right_arithmetic": arithmetic,
    }
    if width <= 32:
        expected |= {"divide_in_vectors": quotient, "remainder_in_vectors": remainder}
    x, y = integer_pairs(name)
    for function, rule in expected.items():
        result = getattr(elementary, function)(NumpyScalar(x), NumpyScalar(y)).array
        exact = [wrapped(rule(int(a), int(b)), dtype) for a, b in zip(x, y, strict=True)]
        assert result.dtype == dtype
        assert result.tolist() == exact, function


@pytest.mark.parametrize("name", INTEGER_TYPES)
def test_bit_counts_and_absolute_value(name: str) -> None:
    x, _ = integer_pairs(name)
    width = 8 * x.dtype.itemsize
    patterns = [int(value) % 2**width for value in x]
    scalar = NumpyScalar(x)
    assert elementary.count_leading_zeros(scalar).array.tolist() == [width - p.bit_length() for p in patterns]
    assert elementary.population_count(scalar).array.tolist() == [p.bit_count() for p in patterns]
    assert elementary.absolute(scalar).array.tolist() == [wrapped(abs(int(value)), x.dtype) for value in x]


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", INTEGER_TYPES)
def test_conversion_to_integers_saturates(source: str, target: str) -> None:
    dtype = DTYPES[source].type
    info = np.iinfo(DTYPES[target])
    edges = np.array([info.min, info.max, 0, 128, 256, 2.0**31, 2.0**32, 2.0**63, 2.0**64, 0.7, 1e30], dtype)
    around = np.concatenate([edges, np.nextafter(edges, dtype(np.inf)), np.nextafter(edges, dtype(-np.inf))])
    x = np.concatenate([around, -around, special_values(dtype)])
    result = elementary.convert(NumpyScalar(x), target).array

    def saturated(value: float) -> int:
        if math.isnan(value):
            return 0
        return (
            int(max(info.min, min(info.max, math.trunc(value))))
            if math.isfinite(value)
            else (int(info.max) if value > 0 else int(info.min))
        )

    assert result.dtype == DTYPES[target]
    assert result.tolist() == [saturated(float(value)) for value in x]


def test_a_remainder_by_zero_takes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rare: list[bool] = []

    def usual(self: NumpyScalar, on_true: object, on_false: list[NumpyScalar]) -> list[NumpyScalar]:
        rare.extend(self.array.tolist())
        return on_false

    monkeypatch.setattr(NumpyScalar, "slow_path", usual)
    x, y = np.array([[5, 0, np.inf, 1e30], [0, -0.0, 0, 1]], np.float32)
    result = elementary.rem(NumpyScalar(x), NumpyScalar(y)).array
    assert np.isnan(result[:3]).all()
    assert rare == [False, False, False, True]


@pytest.mark.parametrize(("target", "count"), [("s8", 7), ("u16", 7), ("s32", 9), ("u64", 9)])
def test_conversion_to_integers_takes_few_instructions(target: str, count: int) -> None:
    emitter = Emitter()
    elementary.convert(LlvmScalar(emitter, "f32", "%x"), target)
    assert len(emitter.lines) == count


def test_other_conversions() -> None:
    x = NumpyScalar(np.array([-1, 0, 200, 70_000], np.int32))
    assert elementary.convert(x, "pred").array.tolist() == [True, False, True, True]
    assert elementary.convert(x, "u8").array.tolist() == [255, 0, 200, 112]
    assert elementary.convert(x, "f32").array.tolist() == [-1.0, 0.0, 200.0, 70_000.0]
    large = NumpyScalar(np.array([2**24 + 1, 2**24 + 3], np.int32))
    assert elementary.convert(large, "f32").array.tolist() == [2.0**24, 2.0**24 + 4]
    truth = NumpyScalar(np.array([True, False]))
    assert elementary.convert(truth, "s32").array.tolist() == [1, 0]
    assert elementary.convert(truth, "f64").array.tolist() == [1.0, 0.0]
    assert elementary.convert(NumpyScalar(np.array([np.nan, -0.0])), "pred").array.tolist() == [True, False]


def test_total_order() -> None:
    ascending = [-np.nan, -np.inf, -1e300, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e300, np.inf, np.nan]
    x = np.array(ascending)
    x[0], x[-1] = np.copysign(np.nan, -1), np.copysign(np.nan, 1)
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore", under="ignore"):
            keys = elementary.total_order(NumpyScalar(x.astype(dtype))).array
        steps = np.diff(keys.astype(object))
        lost = dtype is np.float32  # where 5e-324 and 1e300 are not numbers of their own
        assert np.all(steps >= 0) if lost else np.all(steps > 0)
        assert keys[0] < keys[1]
        assert keys[-2] < keys[-1]
        assert elementary.total_order(NumpyScalar(np.array([-0.0, 0.0], dtype))).array.tolist() == [-1, 0]


def test_reduce_precision() -> None:
    rng = seeded("reduce_precision")
    x = np.concatenate([random_bits(rng, 20_000, np.float32), special_values(np.float32)])
    x = np.concatenate([x, np.array([65504, 65519.996, 65520, 6.1e-5, 6.0e-5, 2049, 2051, 2050], np.float32)])
    scalar = NumpyScalar(x)
    with np.errstate(all="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    smallest = np.float32(np.finfo(np.float16).smallest_normal)
    rounded = elementary.reduce_precision(scalar, 5, 10).array
    normal = (np.abs(half) > smallest) | np.isnan(x)
    np.testing.assert_array_equal(rounded[normal], half[normal])
    subnormal = np.abs(x) < np.float32(6.0e-5)
    assert np.all(rounded[subnormal] == 0)
    assert np.array_equal(np.signbit(rounded[subnormal]), np.signbit(x[subnormal]))
    np.testing.assert_array_equal(elementary.reduce_precision(scalar, 8, 23).array, x)
    coarse = elementary.reduce_precision(NumpyScalar(np.array([1.5, 2.5, 3.0, 5.0, -6.0], np.float32)), 8, 0).array
    assert coarse.tolist() == [2.0, 2.0, 2.0, 4.0, -8.0]  # the exponent's last bit decides ties
    with np.errstate(invalid="ignore"):
        doubles = x.astype(np.float64)
    wide = elementary.reduce_precision(NumpyScalar(doubles), 8, 23).array
    regular = (np.abs(x) >= np.finfo(np.float32).smallest_normal) | (x == 0) | np.isnan(x)
    np.testing.assert_array_equal(wide[regular], doubles[regular])


def complex_samples(rng: np.random.Generator, count: int, dtype: type) -> tuple[Values, Values]:
    angle = rng.uniform(-np.pi, np.pi, count)
    size = np.concatenate([np.ones(count // 4), np.exp2(rng.uniform(-12, 4, count - count // 4))])
    return (size * np.cos(angle)).astype(dtype), (size * np.sin(angle)).astype(dtype)


def scalars(real: Values, imag: Values) -> Complex:
    return Complex(NumpyScalar(real), NumpyScalar(imag))


def complex_function(function: Callable[[Any], Any], real: Values, imag: Values) -> tuple[Values, Values]:
    """Real and imaginary parts, as longdoubles, of what mpmath makes of complex numbers."""
    parts = np.empty((2, *real.shape), np.longdouble)
    with mpmath.workprec(200):
        for index, (a, b) in enumerate(zip(real, imag, strict=True)):
            value = mpmath.mpc(function(mpmath.mpc(float(a), float(b))))
            for part, exact in enumerate((value.real, value.imag)):
                parts[part, index] = np.longdouble(float(exact)) + np.longdouble(float(exact - float(exact)))
    return parts[0], parts[1]


COMPLEX_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log1p": lambda z: mpmath.log(1 + z),
    "sqrt": mpmath.sqrt,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
    "logistic": lambda z: 1 / (1 + mpmath.exp(-z)),
    "sign": lambda z: z / abs(z),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_functions(name: str, dtype: type) -> None:
    real, imag = complex_samples(seeded(name), 400, dtype)
    exact_real, exact_imag = complex_function(COMPLEX_FUNCTIONS[name], real, imag)
    result = getattr(complex_numbers, name)(scalars(real, imag))
    size = np.hypot(exact_real, exact_imag)
    error = np.hypot(result.real.array - exact_real, result.imag.array - exact_imag) / size / np.finfo(dtype).eps
    worst = int(np.argmax(error))
    assert error[worst] <= 4, f"{error[worst]} at {real[worst]!r} + {imag[worst]!r}i"
    if name in ("log", "log1p"):
        assert_within(4, result.real.array, exact_real, real, imag)
        assert_within(4, result.imag.array, exact_imag, real, imag)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_complex_arithmetic(dtype: type) -> None:
    rng = seeded("complex arithmetic")
    limits = np.finfo(dtype)
    scale = np.exp2(rng.uniform(limits.minexp / 2 + 16, limits.maxexp / 2 - 16, 1000))
    x = [(part * scale).astype(dtype) for part in complex_samples(rng, 1000, dtype)]
    y = [(part * rng.permutation(scale)).astype(dtype) for part in complex_samples(rng, 1000, dtype)]
    z, w = scalars(*x), scalars(*y)
    wide_z, wide_w = (a.astype(np.clongdouble) + 1j * b.astype(np.clongdouble) for a, b in (x, y))
    for result, exact in [(z + w, wide_z + wide_w), (z - w, wide_z - wide_w), (z / w, wide_z / wide_w)]:
        parts = result.real.array + 1j * result.imag.array.astype(np.clongdouble)
        assert np.max(np.abs(parts - exact) / np.abs(exact)) <= 4 * limits.eps
    product = z * z.conjugate()
    assert np.all(product.imag.array == 0)
    assert_within(1.5, abs(z).array, np.abs(wide_z), *x)
    assert np.all(z.equal(z).array)
    assert not np.any(z.not_equal(z).array)
    assert np.all((-z).not_equal(z).array)


def test_complex_pow() -> None:
    rng = seeded("complex pow")
    real, imag = complex_samples(rng, 300, np.float32)
    power_real, power_imag = (part.astype(np.float32) for part in rng.uniform(-4, 4, (2, 300)))
    result = complex_numbers.pow(scalars(real, imag), scalars(power_real, power_imag))
    for index in range(300):
        base = mpmath.mpc(float(real[index]), float(imag[index]))
        power = mpmath.mpc(float(power_real[index]), float(power_imag[index]))
        exact = mpmath.exp(power * mpmath.log(base))
        error = abs(mpmath.mpc(float(result.real.array[index]), float(result.imag.array[index])) - exact) / abs(exact)
        assert error <= (4 + 2 * abs(power * mpmath.log(base))) * np.finfo(np.float32).eps


COMPLEX_SPECIAL = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan], np.float64)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"])
def test_complex_special_values_are_those_of_c(name: str) -> None:
    real, imag = pairs(COMPLEX_SPECIAL)
    z = np.empty(real.shape, np.complex128)
    z.real, z.imag = real, imag
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(z)
    result = getattr(complex_numbers, name)(scalars(real, imag))
    for part, wanted, other in [
        (result.real, expected.real, expected.imag),
        (result.imag, expected.imag, expected.real),
    ]:
        undirected = np.isinf(wanted) & np.isnan(other)  # C leaves the sign of such an infinity open
        got = np.where(undirected, np.abs(part.array), part.array)
        np.testing.assert_allclose(got, np.where(undirected, np.abs(wanted), wanted), rtol=1e-14)


def test_complex_division_and_distance_at_the_edges() -> None:
    def quotient(z: complex, w: complex) -> complex:
        parts = [np.array([part]) for part in (z.real, z.imag, w.real, w.imag)]
        result = scalars(*parts[:2]) / scalars(*parts[2:])
        return complex(result.real.array[0], result.imag.array[0])

    infinity = complex(math.inf, math.inf)
    assert quotient(1 + 1j, 0j) == infinity
    assert quotient(complex(math.inf, 0), 1 + 1j) == complex(math.inf, -math.inf)
    assert quotient(1 + 1j, infinity) == 0
    assert math.isnan(quotient(0j, 0j).real)
    assert math.isnan(quotient(infinity, infinity).real)
    assert quotient(1e308 + 1e308j, 1e308 + 1e308j) == 1
    assert quotient(5e-324 + 5e-324j, 5e-324 + 5e-324j) == 1
    assert quotient(1e-300 + 1e-300j, 1e300 + 0j) == 0
    assert quotient(1e300 + 0j, 1e-300 + 0j) == math.inf

    real = np.array([3e200, 3e-200, np.inf, np.nan, 0.0, 5e-324])
    imag = np.array([4e200, 4e-200, np.nan, -np.inf, -0.0, 0.0])
    np.testing.assert_allclose(abs(scalars(real, imag)).array, [5e200, 5e-200, np.inf, np.inf, 0.0, 5e-324], rtol=1e-15)
    large = complex_numbers.log(scalars(np.array([1.5e308]), np.array([1.5e308])))
    assert large.real.array[0] == pytest.approx(math.log(1.5e308) + math.log(2) / 2)
    growing = complex_numbers.exp(scalars(np.array([710.0]), np.array([1.5])))
    assert growing.real.array[0] == pytest.approx(math.exp(700) * (math.cos(1.5) * math.exp(10)), rel=1e-12)


# NumpyScalar itself


def test_fused_multiply_add_rounds_once() -> None:
    rng = seeded("fma")
    for dtype in (np.float32, np.float64):
        a, b = random_bits(rng, 3000, dtype), random_bits(rng, 3000, dtype)
        if dtype is np.float64:
            a, b = rng.normal(size=(2, 3000)) * np.exp2(rng.integers(-600, 40, (2, 3000)))
        with np.errstate(all="ignore"):
            c = (-(a * b) * dtype(1 + 4 * np.finfo(dtype).eps)).astype(dtype)
        finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (np.abs(a) < 1e15) & (np.abs(b) < 1e15)
        a, b, c = a[finite], b[finite], c[finite]
        result = NumpyScalar(a).fma(NumpyScalar(b), NumpyScalar(c)).array
        assert len(a) > 500
        for x, y, z, r in zip(a, b, c, result, strict=True):
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            error = abs(Fraction(float(r)) - exact)
            for neighbour in (np.nextafter(r, dtype(np.inf)), np.nextafter(r, dtype(-np.inf))):
                assert error <= abs(Fraction(float(neighbour)) - exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fused_multiply_add_just_below_a_tie(dtype: type) -> None:
    """Rounding to a wider format first would make it a tie, and the second rounding would go up."""
    eps = np.finfo(dtype).eps
    a, b, c = (np.array([value], dtype) for value in ((1 + eps) * (eps / 2), 1 - eps, 1 + eps))
    assert NumpyScalar(a).fma(NumpyScalar(b), NumpyScalar(c)).array == c
    assert NumpyScalar(-a).fma(NumpyScalar(b), NumpyScalar(-c)).array == -c


def test_fused_multiply_add_of_special_values() -> None:
    for dtype in (np.float32, np.float64):
        a, b, c = (part.ravel() for part in np.meshgrid(*[special_values(dtype)] * 3))
        with np.errstate(all="ignore"):
            wide = np.float64 if dtype is np.float32 else np.longdouble
            plain = (a.astype(wide) * b.astype(wide) + c).astype(dtype)
        unlike = ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c) | (a == 0) | (b == 0)
        result = NumpyScalar(a).fma(NumpyScalar(b), NumpyScalar(c)).array
        np.testing.assert_array_equal(result[unlike], plain[unlike])
        assert np.array_equal(np.signbit(result[unlike & (plain == 0)]), np.signbit(plain[unlike & (plain == 0)]))


def test_extrema_order_zeros_and_keep_nan() -> None:
    x, y = (NumpyScalar(values) for values in pairs(np.array([-0.0, 0.0, 1.0, np.nan])))
    smaller, larger = x.minimum(y).array, x.maximum(y).array
    either = np.isnan(x.array) | np.isnan(y.array)
    assert np.array_equal(np.isnan(smaller), either)
    assert np.array_equal(np.isnan(larger), either)
    zeros = (x.array == 0) & (y.array == 0)
    assert np.array_equal(np.signbit(smaller[zeros]), np.signbit(x.array[zeros]) | np.signbit(y.array[zeros]))
    assert np.array_equal(np.signbit(larger[zeros]), np.signbit(x.array[zeros]) & np.signbit(y.array[zeros]))


def test_scalars_refuse_what_they_do_not_mean() -> None:
    x = NumpyScalar(np.ones(1, np.float32))
    with pytest.raises(TypeError, match="types f32 and s32 do not mix"):
        x + NumpyScalar(np.ones(1, np.int32))
    with pytest.raises(TypeError, match="And is not defined for f32"):
        x & x
    with pytest.raises(TypeError, match="differ in width"):
        x.bitcast("u64")
    with pytest.raises(TypeError, match="make one of them a scalar"):
        (x < 1.0).where(1.0, 0.0)
    with pytest.raises(TypeError, match="cannot hold complex64"):
        NumpyScalar(np.ones(1, np.complex64))
    with pytest.raises(TypeError, match="computes in f32 and f64, not in s32"):
        elementary.exp(NumpyScalar(np.ones(1, np.int32)))
