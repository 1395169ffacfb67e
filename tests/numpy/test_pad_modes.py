"""`pad` in all modes and element types against NumPy, whose semantics jax.numpy documents as its own."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, ShapeError

ROUTES = {
    "eager": lambda function, *arrays: function(*arrays),
    "jit": lambda function, *arrays: tx.jit(function)(*arrays),
}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("constant", {"constant_values": (3, 4)}),
    ("edge", {}),
    ("wrap", {}),
    ("reflect", {}),
    ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {"reflect_type": "odd"}),
    ("linear_ramp", {"end_values": 5}),
    ("linear_ramp", {"end_values": (3.7, 2.5)}),
    ("maximum", {"stat_length": 2}),
    ("minimum", {"stat_length": (1, 3)}),
    ("mean", {}),
    ("mean", {"stat_length": (1, 3)}),
    ("median", {}),
    ("median", {"stat_length": 3}),
]
TYPES = ("int8", "uint8", "int16", "int32", "uint32", "float16", "float32")


def _close(found: Any, expected: np.ndarray[Any, Any]) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    tolerance = 0 if expected.dtype.kind in "iu" else 4 * float(np.finfo(expected.dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("mode", "options"), OPTIONS)
def test_pad_equals_numpy_for_every_element_type(
    mode: str, options: dict[str, Any], generator: np.random.Generator
) -> None:
    for dtype, shape in itertools.product(TYPES, ((5,), (1,), (2, 3))):
        x = generator.integers(0, 100, shape).astype(dtype)
        for widths in ((3, 0), (2, 7)):
            _close(jnp.pad(x, widths, mode=mode, **options), np.pad(x, widths, mode, **options))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("mode", "options"), OPTIONS)
def test_pad_compiled_equals_eager(mode: str, options: dict[str, Any], generator: np.random.Generator) -> None:
    for dtype in ("int16", "float32"):
        x = generator.integers(-50, 50, (2, 3)).astype(dtype)
        compiled = tx.jit(lambda v: jnp.pad(v, ((1, 2), (0, 4)), mode=mode, **options))(x)
        _close(compiled, np.asarray(jnp.pad(x, ((1, 2), (0, 4)), mode=mode, **options)))


def test_pad_mean_of_int16_sums_without_overflow() -> None:
    x = np.array([32000, 32000, 31999], np.int16)
    _close(jnp.pad(x, 1, mode="mean"), np.pad(x, 1, "mean"))


def test_pad_linear_ramp_of_integers_is_the_exact_floor() -> None:
    """In NumPy the steps are multiples of a rounded quotient, which may be below the integer that is exact: 49 * (1/49)
    is less than 1. Here the quotients themselves are rounded down."""
    x = np.array([98], np.int32)
    expected = [(98 * k) // 98 for k in range(98)]
    np.testing.assert_array_equal(jnp.pad(x, (98, 0), mode="linear_ramp"), [*expected, 98])
    np.testing.assert_array_equal(jnp.pad(np.array([-3]), (3, 0), mode="linear_ramp"), [0, -1, -2, -3])


@pytest.mark.parametrize("route", ROUTES)
def test_pad_linear_ramp_begins_with_end_values_beside_infinities_and_nan(route: str) -> None:
    """The values at the ends are exact; NumPy multiplies an infinite step by zero there."""
    x = np.array([np.inf, 2, np.nan], np.float32)
    found = ROUTES[route](lambda v: jnp.pad(v, 3, mode="linear_ramp", end_values=4), x)
    np.testing.assert_array_equal(found, [4, *[np.inf] * 3, 2, *[np.nan] * 3, 4])
    found = ROUTES[route](lambda v: jnp.pad(v, 2, mode="linear_ramp", end_values=np.inf), x[1:2])
    np.testing.assert_array_equal(found, [np.inf, np.inf, 2, np.inf, np.inf])


def test_pad_linear_ramp_gradient_under_float_power_is_finite() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    found = tx.grad(lambda v: jnp.float_power(jnp.pad(v, 2, mode="linear_ramp"), 2.5).sum())(x)
    half = 1.25 * np.array([0.5, 0, 1.5]) ** 1.5
    np.testing.assert_allclose(found, 2.5 * x**1.5 + half, rtol=1e-5)


def test_pad_end_values_and_constant_values_keep_their_derivatives() -> None:
    """JAX takes no traced values here; a constant would be a wrong derivative."""
    x = np.array([1.0, 3.0], np.float32)
    ramp = tx.grad(lambda v: jnp.pad(x, 2, mode="linear_ramp", end_values=v).sum())(np.float32(2))
    assert float(ramp) == 3.0
    constants = np.array([[2, 3], [4, 5]], np.float32)
    found = tx.jit(tx.grad(lambda v: jnp.pad(np.ones((2, 2), np.float32), 1, constant_values=v).sum()))(constants)
    np.testing.assert_array_equal(found, [[2, 2], [4, 4]])  # rows first; corners belong to columns


def test_pad_with_a_function_equals_jax() -> None:
    def ends(vector: Any, widths: tuple[int, int], axis: int, options: dict[str, Any]) -> Any:
        size = vector.shape[0]
        return vector.at[: widths[0]].set(options["first"] + axis).at[size - widths[1] :].set(7)

    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    found, expected = (ns.pad(x, ((1, 2), (2, 1)), ends, first=9) for ns in (jnp, jax.numpy))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["edge", "reflect", "maximum", "mean", "median", "linear_ramp", "wrap"])
def test_pad_of_an_empty_axis_raises(mode: str) -> None:
    with pytest.raises(ShapeError, match=r"axis 1 of shape \(2, 0\) is empty"):
        jnp.pad(np.zeros((2, 0)), ((0, 0), (1, 1)), mode=mode)
    assert jnp.pad(np.zeros((2, 0)), ((1, 1), (0, 0)), mode=mode).shape == (4, 0)


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("edge", {"reflect_type": "odd"}, "mode 'edge' takes no options, but got reflect_type"),
        ("reflect", {"stat_length": 2}, "mode 'reflect' takes only reflect_type, but got stat_length"),
        ("reflect", {"reflect_type": "both"}, "reflect_type must be one of 'even', 'odd', but got 'both'"),
    ],
)
def test_pad_options_of_other_modes_raise(mode: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        jnp.pad(np.ones(3), 1, mode=mode, **options)


def test_pad_stat_length_zero_raises() -> None:
    with pytest.raises(ShapeError, match="stat_length must be positive on axis 0"):
        jnp.pad(np.ones(3), 1, mode="mean", stat_length=0)
