"""Element types of results, against JAX's."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla
import tinyxla.numpy as jnp
from tinyxla.errors import DTypeError
from tinyxla.shapes import element_types

NAMES = [t.dtype.name for t in element_types.values()]
WEAK: list[Any] = [int, float, complex]


@pytest.fixture
def wide() -> Any:
    """64-bit defaults, here and in JAX."""
    tinyxla.config.update("enable_x64", True)
    with jax.enable_x64(True):
        yield
    tinyxla.config.update("enable_x64", False)


def outcome(function: Any, *args: Any) -> str:
    try:
        return np.dtype(function(*args)).name
    except (TypeError, ValueError):
        return "refused"


def test_promote_types(wide: None) -> None:
    for a, b in itertools.product([*NAMES, *WEAK], repeat=2):
        assert outcome(jnp.promote_types, a, b) == outcome(jax.numpy.promote_types, a, b), (a, b)


def values(module: Any, name: str, weak: bool) -> Any:
    return module.asarray({"i": 1, "f": 1.0, "c": 1j}[np.dtype(name).kind]) if weak else module.ones((), name)


OPERANDS = [(name, False) for name in NAMES if np.dtype(name).itemsize < 8 or name == "complex64"]
OPERANDS += [(name, True) for name in ("int32", "float32", "complex64")]


def kind_of(module: Any, function: str, *operands: Any) -> Any:
    """The type of a result; JAX only traces for it, which is faster than compiling."""
    try:
        compute = lambda: getattr(module, function)(*(x() if callable(x) else x for x in operands))  # noqa: E731
        result = jax.eval_shape(compute) if module is jax.numpy else compute()
    except (TypeError, ValueError, NotImplementedError):
        return "refused"
    return result.dtype.name, bool(result.weak_type) and result.dtype != bool  # weak booleans are like others


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("function", ["add", "multiply", "true_divide", "maximum", "equal"])
def test_types_of_arrays(function: str) -> None:
    for x, y in itertools.product(OPERANDS, repeat=2):
        if function != "add" and not {x[0], y[0]} <= {
            "bool",
            "int8",
            "uint16",
            "int32",
            "float32",
            "bfloat16",
            "float16",
        }:
            continue
        # JAX has no arrays of some of the types, but traces them
        found, expected = (
            kind_of(m, function, *(functools.partial(values, m, *operand) for operand in (x, y)))
            for m in (jnp, jax.numpy)
        )
        assert found == expected, (function, x, y)


SCALARS: list[Any] = [True, 3, 2.5, 1j, np.int64(3), np.float64(2.5), np.float32(2.5), np.int8(3), np.arange(3)]
NARROW = ["bool", "int8", "uint8", "uint32", "int32", "bfloat16", "float16", "float32", "complex64", "float8_e5m2"]


BINARY = """
add multiply true_divide power less subtract floor_divide remainder fmod left_shift arctan2 hypot logaddexp copysign
heaviside maximum fmax bitwise_and logical_or float_power logaddexp2 right_shift nextafter isclose
""".split()
REAL_ONLY = ("arctan2", "hypot", "logaddexp", "logaddexp2", "copysign", "heaviside", "nextafter")
NEVER_WEAK = ("hypot", "heaviside", "logaddexp2")


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("function", BINARY)
def test_types_with_scalars(function: str) -> None:
    for name, scalar, turned in itertools.product(NARROW, SCALARS, (False, True)):
        if function in REAL_ONLY and "complex" in f"{name} {type(scalar)}":
            continue
        step = -1 if turned else 1
        found, expected = (kind_of(m, function, *(m.ones(3, name), scalar)[::step]) for m in (jnp, jax.numpy))
        if function in NEVER_WEAK and expected != "refused":  # where JAX is strong though nothing in the operands is
            found, expected = found[0], expected[0]
        assert found == expected or expected == "refused", (function, name, scalar, turned)


UNARY = """
abs negative sign square sqrt sin exp floor rint isnan logical_not real imag conjugate sum prod mean var std max
argmax any cumsum cumprod reciprocal log2 deg2rad signbit trunc round nan_to_num sort argsort median ptp
count_nonzero positive invert sinc arcsin expm1 zeros_like ones_like diff isfinite nansum nanmax
""".split()


WEAK_IF_SCALAR = ("deg2rad", "sinc")  # JAX's results of weak arrays are weak without dimensions only


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("function", UNARY)
def test_types_of_functions_of_one_array(function: str) -> None:
    for name, weak in [*((n, False) for n in NARROW[:-1]), ("int32", True), ("float32", True), ("complex64", True)]:
        arguments = [m.broadcast_to(values(m, name, weak), (2,)) for m in (jnp, jax.numpy)]
        found, expected = (kind_of(m, function, x) for m, x in zip((jnp, jax.numpy), arguments, strict=True))
        if function in WEAK_IF_SCALAR and expected != "refused":
            found, expected = found[0], expected[0]
        assert found == expected or expected == "refused", (name, weak, found, expected)


def test_defaults() -> None:
    for make in (
        lambda m: m.zeros(2),
        lambda m: m.ones(2),
        lambda m: m.arange(3),
        lambda m: m.arange(3.0),
        lambda m: m.full(2, 1),
        lambda m: m.full(2, 1.0),
        lambda m: m.eye(2),
        lambda m: m.linspace(0, 1, 3),
        lambda m: m.array([1, 2]),
        lambda m: m.array([1.0, 2]),
        lambda m: m.array([1, True]),
        lambda m: m.array(1),
        lambda m: m.array(2.0),
        lambda m: m.array(1j),
        lambda m: m.asarray(np.arange(3)),
        lambda m: m.asarray(np.float64(2)),
        lambda m: m.array([]),
        lambda m: m.float32(1),
        lambda m: m.int8(3),
        lambda m: m.bool_(2),
        lambda m: m.arange(2, dtype="float16"),
        lambda m: m.asarray(1.0).astype(float),
        lambda m: m.asarray(1.0).astype("float32"),
        lambda m: m.tri(2),
        lambda m: m.where(True, 1, 2.0),
        lambda m: m.where(m.arange(2) > 0, m.ones(2, "bfloat16"), 1.0),
        lambda m: m.stack([m.ones(2), m.ones(2, "int8")]),
        lambda m: m.concatenate([m.ones(2, bool), m.ones(2, "int8")]),
        lambda m: m.clip(m.arange(3), 0, 1.5),
        lambda m: m.arange(3) ** 2,
        lambda m: 2 ** m.arange(3),
        lambda m: m.dot(m.ones(2, "int8"), m.ones(2)),
        lambda m: m.asarray(1.0).at[()].set(2),
        lambda m: m.identity(2),
        lambda m: m.full_like(m.asarray(1.0), 2),
        lambda m: m.full_like(m.arange(2), 2.5),
        lambda m: m.logspace(0, 1, 3),
        lambda m: m.zeros_like(m.asarray(1)),
        lambda m: m.linspace(0, 5, 3, dtype=int),
        lambda m: m.average(m.arange(3)),
        lambda m: m.einsum("i,i", m.ones(2, "int8"), m.ones(2, "int8")),
        lambda m: m.indices((2, 2)),
    ):
        mine, theirs = make(jnp), make(jax.numpy)
        assert (mine.dtype, mine.weak_type) == (theirs.dtype, theirs.weak_type), theirs
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-6)


def test_64_bit_types_are_honoured_when_asked_for() -> None:
    x = jnp.zeros(3, "float64")
    assert x.dtype == np.float64
    assert jnp.arange(3).astype("int64").dtype == np.int64
    assert jnp.float64(0.1) + 0.2 == 0.1 + 0.2
    assert (x + 0.1).dtype == np.float64
    assert (x + 0.1)[0] == 0.1
    assert (jnp.asarray([1], dtype="int64") + 2**40)[0] == 2**40 + 1
    assert jnp.array(2**40, "int64") == 2**40
    assert jnp.asarray(np.arange(3), np.int64).dtype == np.int64


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(OverflowError, match="Python integer 3000000000 does not fit the element type int32"):
        jnp.arange(3) + 3_000_000_000
    with pytest.raises(OverflowError, match="Python integer -1 does not fit the element type uint8"):
        jnp.ones(3, "uint8") * -1


def test_no_promotion_between_narrow_floats() -> None:
    with pytest.raises(DTypeError, match="no implicit promotion between"):
        jnp.ones(2, "float8_e5m2") + jnp.ones(2, "float8_e4m3fn")


def test_types_are_callable_and_equal_dtypes() -> None:
    assert jnp.float32 == np.float32
    assert np.dtype(jnp.bfloat16) == jnp.bfloat16
    assert jnp.zeros(2, jnp.bfloat16).dtype == jnp.bfloat16
    assert jnp.issubdtype(jnp.bfloat16, jnp.floating)
    assert not jnp.issubdtype(jnp.int8, jnp.floating)
    assert jnp.finfo(jnp.bfloat16).bits == 16
    assert jnp.iinfo("int8").max == 127
    assert repr(jnp.float32(2)) == "Array(2., dtype=float32)"


def test_default_types() -> None:
    assert jnp.int_(3).dtype == jnp.zeros(2, jnp.int_).dtype == np.int32
    assert jnp.float_ == np.float32
    assert jnp.bool is jnp.bool_
    tinyxla.config.update("enable_x64", True)
    try:
        assert jnp.int_(3).dtype == np.int64
        assert jnp.complex_ == np.complex128
    finally:
        tinyxla.config.update("enable_x64", False)


def test_wide_defaults(wide: None) -> None:
    for make in (
        lambda m: m.arange(3),
        lambda m: m.zeros(2),
        lambda m: m.sin(m.arange(3, dtype="int8")),
        lambda m: m.asarray(np.arange(3.0)),
        lambda m: m.sum(m.ones(2, "int8")),
        lambda m: m.ones(2, "float32") + 1.0,
        lambda m: m.arange(3) / 2,
        lambda m: m.asarray(2) * m.ones(2, "int16"),
    ):
        mine, theirs = make(jnp), make(jax.numpy)
        assert (mine.dtype, mine.weak_type) == (theirs.dtype, theirs.weak_type)


def test_arithmetic_of_booleans_has_32_bits_as_in_jax(wide: None) -> None:
    for name in ("remainder", "fmod", "floor_divide", "left_shift", "right_shift", "power"):
        ours, theirs = (getattr(m, name)(m.ones(2, bool), m.ones(2, bool)) for m in (jnp, jax.numpy))
        assert ours.dtype == theirs.dtype == np.int32, name


WEAKLY: dict[str, Any] = {
    "dynamic_slice": lambda lib, x: lib.lax.dynamic_slice(x, (0, 0), (1, 1)),
    "cumsum": lambda lib, x: lib.lax.cumsum(x),
    "cummax": lambda lib, x: lib.lax.cummax(x),
    "top_k": lambda lib, x: lib.lax.top_k(x, 1)[0],
    "select": lambda lib, x: lib.lax.select(x > 0, x, x),
    "select of two": lambda lib, x: lib.lax.select(x > 0, x, x.astype(np.float32)),
    "jit": lambda lib, x: lib.jit(lambda y: y * 2)(x),
}


@pytest.mark.parametrize("name", WEAKLY)
def test_weak_types_stay_weak(name: str) -> None:
    def result(lib: Any) -> Any:
        return lib.jit(lambda: WEAKLY[name](lib, lib.numpy.full((2, 2), 2.0)) * lib.numpy.ones((), np.float16))()

    assert result(tinyxla).dtype == result(jax).dtype
