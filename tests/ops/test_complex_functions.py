"""Functions of complex numbers where signs of zeros, infinities and extreme sizes matter: eager and compiled they give
what NumPy, whose functions are those of the C standard, gives in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import numpy as tnp

INVERSE: dict[str, Callable[[Any], Any]] = {
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    "arcsinh": mpmath.asinh,
    "arccosh": mpmath.acosh,
    "arctanh": mpmath.atanh,
}
OTHER = "sqrt log log2 log10 exp sin cos tan sinh cosh tanh abs".split()
TYPES = pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
Values = np.ndarray[Any, Any]


def grid(dtype: Any) -> Values:
    extreme = [1e-37, 1e-20, 1e20, 1e38] if dtype == np.complex64 else [1e-307, 1e-200, 1e-20, 1e20, 1e200, 1e307]
    positive = np.array([0, *extreme, 0.5, 1, 3, np.inf])
    parts = np.concatenate([positive, -positive, [np.nan]])
    return joined(*(part.ravel() for part in np.meshgrid(parts, parts))).astype(dtype)


def joined(real: Values, imag: Values) -> Values:
    z = np.empty(np.shape(real), np.complex128)
    z.real, z.imag = real, imag
    return z


def real_parts(x: Any) -> list[Values]:
    array = np.asarray(x)
    return [array.real, array.imag] if np.iscomplexobj(array) else [array]


def assert_as_numpy(name: str, z: Values, signs: Values) -> None:
    """Each part of the results, eager, compiled and mapped; the signs of infinities and zeros where `signs` is set."""
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(z.astype(np.complex128))
    function = getattr(tnp, name)
    with tx.enable_x64():
        results = [function(tnp.asarray(z)), tx.jit(function)(z), tx.vmap(function)(tnp.asarray(z))]
    for result in results:
        for found, exact in zip(real_parts(result), real_parts(expected), strict=True):
            with np.errstate(over="ignore"):
                wanted = exact.astype(found.dtype)
            tiny = 4 * np.finfo(found.dtype).tiny
            a, b = (np.where(signs | ~np.isinf(x), x, np.abs(x)) for x in (found, wanted))
            np.testing.assert_allclose(a, b, 8 * np.finfo(found.dtype).eps, tiny, err_msg=name)
            settled = signs & ~np.isnan(wanted) & ((exact == 0) | (np.abs(wanted) > tiny))
            np.testing.assert_array_equal(np.signbit(found)[settled], np.signbit(wanted)[settled])


@pytest.mark.sample(every=3)
@TYPES
@pytest.mark.parametrize("name", INVERSE)
def test_inverse_functions_everywhere(name: str, dtype: Any) -> None:
    z = grid(dtype)
    assert_as_numpy(name, z, np.ones(z.shape, bool))


@pytest.mark.sample(every=4)
@TYPES
@pytest.mark.parametrize("name", OTHER)
def test_functions_everywhere(name: str, dtype: Any) -> None:
    """The C standard leaves some signs open where a part of the argument is infinite or NaN."""
    z = grid(dtype)
    assert_as_numpy(name, z, np.isfinite(z))


def random_points(dtype: Any) -> Values:
    """Of all sizes, close to the branch points, and close to the axes."""
    random = np.random.default_rng(0)
    direction = np.exp(1j * random.uniform(-np.pi, np.pi, 60))
    sizes = np.exp(random.uniform(-30, 30, 60))
    near = [point + 10 ** random.uniform(-15, -1, 60) * direction for point in (1, -1, 1j, -1j)]
    flat = 3 * random.random(60) + 1j * 10 ** random.uniform(-30, 0, 60)
    return np.concatenate([sizes * direction, *near, flat, 1j * flat]).astype(dtype)


SLOPES: dict[str, Callable[[Any], Any]] = {
    "arcsin": lambda z: 1 / mpmath.sqrt(1 - z) / mpmath.sqrt(1 + z),
    "arccos": lambda z: -1 / mpmath.sqrt(1 - z) / mpmath.sqrt(1 + z),
    "arctan": lambda z: 1 / (1 + z * z),
    "arcsinh": lambda z: 1 / mpmath.sqrt(1 - 1j * z) / mpmath.sqrt(1 + 1j * z),
    "arccosh": lambda z: 1 / mpmath.sqrt(z - 1) / mpmath.sqrt(z + 1),
    "arctanh": lambda z: 1 / ((1 - z) * (1 + z)),
}


@pytest.mark.sample(every=3)
@TYPES
@pytest.mark.parametrize("name", INVERSE)
def test_inverse_functions_are_accurate(name: str, dtype: Any) -> None:
    """Each part of the value by itself; derivatives, which are computed from real parts in either mode, as a whole."""
    z, function = random_points(dtype), getattr(tnp, name)
    eps = np.finfo(dtype).eps
    with mpmath.workprec(400):
        exact, slope = ([f(mpmath.mpc(complex(x))) for x in z] for f in (INVERSE[name], SLOPES[name]))
        values = joined(np.array([float(x.real) for x in exact]), np.array([float(x.imag) for x in exact]))
        slopes = np.array([complex(x) for x in slope])
    with tx.enable_x64():
        found = tx.jit(function)(z)
        forward = tx.jit(lambda z: tx.jvp(function, (z,), (tnp.ones_like(z),))[1])(z)
        reverse = tx.jit(tx.grad(lambda z: function(z).sum(), holomorphic=True))(z)
    for mine, wanted in zip(real_parts(found), real_parts(values), strict=True):
        np.testing.assert_allclose(mine, wanted, 4 * eps)
    for mine in (forward, reverse):
        assert np.max(np.abs(np.asarray(mine) - slopes) / np.abs(slopes)) < 8 * eps


@pytest.mark.parametrize("name", INVERSE)
def test_slopes_on_the_axes_are_those_of_the_side_that_is_meant(name: str) -> None:
    parts = np.array([0.0, -0.0, 0.5, -0.5, 3, -3])
    z, function = joined(*(part.ravel() for part in np.meshgrid(parts, parts))), getattr(tnp, name)
    upright = (z.real == 0) & (name in ("arctan", "arcsinh"))  # steps are along the cut
    before, after = (
        joined(np.where(upright, z.real, z.real + h), np.where(upright, z.imag + h, z.imag)) for h in (-1e-6, 1e-6)
    )
    expected = (getattr(np, name)(after) - getattr(np, name)(before)) / np.where(upright, 2e-6j, 2e-6)
    with tx.enable_x64():
        found = tx.grad(lambda z: function(z).sum(), holomorphic=True)(tnp.asarray(z))
    np.testing.assert_allclose(found, expected, 1e-5, 1e-9)


def test_a_power_keeps_its_size_where_its_angle_is_lost() -> None:
    exponents = np.array([1e20j, 1 + 1e20j, -1e20, 1e20], np.complex64)
    sizes = [1, 2, 0, np.inf]
    np.testing.assert_allclose(np.abs(np.asarray(tx.jit(tnp.exp2)(exponents))), sizes, 1e-6)
    np.testing.assert_allclose(np.abs(np.asarray(tnp.exp2(exponents))), sizes, 1e-6)


def test_parts_keep_their_signs_when_they_are_joined() -> None:
    zero = np.array([0.0, -0.0], np.float32)
    real, imag = (part.ravel() for part in np.meshgrid(zero, zero))
    for join in (tx.lax.complex, tx.jit(tx.lax.complex)):
        found = np.asarray(join(real, imag))
        np.testing.assert_array_equal(np.signbit(found.real), np.signbit(real))
        np.testing.assert_array_equal(np.signbit(found.imag), np.signbit(imag))
        np.testing.assert_array_equal(np.signbit(np.asarray(tnp.conj(found)).real), np.signbit(real))


def test_expm1_of_infinities_is_the_same_compiled() -> None:
    z = joined(*np.meshgrid([np.inf, -np.inf], [0.0, 1.0, np.inf, np.nan])).astype(np.complex64)
    np.testing.assert_array_equal(np.asarray(tnp.expm1(z)), np.asarray(tx.jit(tnp.expm1)(z)))
