"""Functions of `scipy.special` that are computed on the host: against SciPy, and derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import tinyxla as tx
from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, DTypeError
from tinyxla.scipy import special

X = np.array([0.1, 0.5, 1.0, 1.3, 2.9, 7.5])
SIGNED = np.concatenate([X, -X])
# The operands, and by which of them there is a derivative
CALLS: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "dawsn": ((SIGNED,), (0,)),
    "erfcx": ((np.append(SIGNED[SIGNED > -2], 40.0),), (0,)),
    "exp1": ((X,), (0,)),
    "expi": ((SIGNED,), (0,)),
    "expn": ((np.array([0, 1, 2, 3, 5, 9]), X), (1,)),
    "fresnel": ((SIGNED,), (0,)),
    "hyp1f1": ((np.array(1.5), np.array(2.25), SIGNED / 3), (0, 1, 2)),
    "hyp2f1": ((np.array(0.5), np.array(1.5), np.array(2.25), SIGNED / 8), (0, 1, 2, 3)),
    "owens_t": ((SIGNED, np.array(0.7)), (0, 1)),
    "sici": ((X,), (0,)),
    "spence": ((X,), (0,)),
}


def leaves(x: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(y) for y in tx.tree.leaves(x)]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(name: str, dtype: Any) -> None:
    function, operands = getattr(special, name), [x.astype(dtype) for x in CALLS[name][0]]
    expected = getattr(scipy.special, name)(*(x.astype(np.float64) for x in operands))
    error = 3e-6 if dtype == np.float32 else 1e-12
    with tx.enable_x64():
        for found in (function(*operands), tx.jit(lambda *x: function(*x))(*operands)):
            for x, y in zip(leaves(found), leaves(expected), strict=True):
                assert x.dtype == dtype
                np.testing.assert_allclose(x, y, error, error)


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name: str) -> None:
    """Also those of derivatives by the last argument."""
    function, (operands, by) = getattr(special, name), CALLS[name]
    with tx.enable_x64():
        for part in range(len(leaves(function(*operands)))):

            def total(*x: Any, part: int = part) -> Any:
                return tnp.sum(tx.tree.leaves(function(*x))[part])

            for k in by:
                slope = tx.jit(tx.grad(total, k))
                np.testing.assert_allclose(slope(*operands), differences(total, operands, k), 1e-6, 1e-6)
                if k == len(operands) - 1:
                    again = tx.grad(lambda *x, k=k, total=total: tnp.sum(tx.grad(total, k)(*x)), k)(*operands)
                    expected = differences(lambda *x, k=k, total=total: tnp.sum(tx.grad(total, k)(*x)), operands, k)
                    np.testing.assert_allclose(again, expected, 1e-5, 1e-5)


def differences(function: Callable[..., Any], operands: Any, k: int) -> Any:
    found = np.zeros(operands[k].shape)
    for place in np.ndindex(found.shape):
        sides: list[Any] = []
        for step in (1e-5, -1e-5):
            moved = operands[k].copy()
            moved[place] += step
            sides.append(float(function(*operands[:k], moved, *operands[k + 1 :])))
        found[place] = (sides[0] - sides[1]) / 2e-5
    return found


def test_under_vmap_and_with_integers() -> None:
    np.testing.assert_allclose(tx.vmap(special.expn, (None, 0))(2, X), scipy.special.expn(2, X), 1e-5)
    np.testing.assert_allclose(special.exp1(1), scipy.special.exp1(1), 1e-6)
    assert special.hyp1f1(1, 2, x=tnp.ones((2, 3))).shape == (2, 3)


def test_slopes_at_one_and_zero() -> None:
    assert float(tx.grad(special.spence)(1.0)) == -1
    assert float(tx.grad(lambda x: special.sici(x)[0])(0.0)) == 1
    np.testing.assert_allclose(tx.grad(special.expn, 1)(0, 2.0), -np.exp(-2) * 0.75, 1e-5)
    assert np.isnan(tx.grad(special.expn)(2.0, 1.0))


def test_bessel_functions() -> None:
    with tx.enable_x64():
        z = X.reshape(2, 3)
        found = special.bessel_jn(z, v=4)
        np.testing.assert_allclose(found, [scipy.special.jv(k, z) for k in range(5)], 1e-12)
        slope = tx.jit(tx.grad(lambda z: tnp.sum(special.bessel_jn(z, v=4))))(z)
        np.testing.assert_allclose(slope, sum(scipy.special.jvp(k, z) for k in range(5)), 1e-10)


def test_bernoulli_numbers() -> None:
    for n in (0, 1, 2, 12):
        np.testing.assert_allclose(special.bernoulli(n), scipy.special.bernoulli(max(n, 1))[: n + 1], 1e-6)


@pytest.mark.parametrize(
    ("kind", "message", "function"),
    [
        (ArgumentError, "bernoulli: n is an integer", lambda: special.bernoulli(1.5)),
        (ArgumentError, "bessel_jn: v is an integer", lambda: special.bessel_jn(1.0, v="a")),
        (DTypeError, "expi: not defined for complex64", lambda: special.expi(1j)),
        (DTypeError, "scipy.special.hyp1f1", lambda: special.hyp1f1("a", 1, 2)),
    ],
)
def test_errors(kind: Any, message: str, function: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=message):
        function()
