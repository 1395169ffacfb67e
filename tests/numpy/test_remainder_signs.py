"""`floor_divide` and `remainder` at infinities and zeros: as NumPy and the Python array API standard have them."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp

EDGES = np.array([-np.inf, -2, -1.5, -0.0, 0.0, 1.5, 2, np.inf, np.nan])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_quotients_at_edges_have_the_values_and_signs_of_numpy(name: str, dtype: type, compiled: bool) -> None:
    x, y = (v.astype(dtype).ravel() for v in np.meshgrid(EDGES, EDGES))
    function = getattr(jnp, name)
    with tx.enable_x64():
        found = np.asarray((tx.jit(function) if compiled else function)(jnp.array(x), jnp.array(y)))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    np.testing.assert_array_equal(found, expected, strict=True)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


def test_remainder_of_multiples_keeps_its_derivatives() -> None:
    for x, y in ((4.0, 2.0), (4.0, -2.0), (-4.0, 2.0), (0.0, 3.0), (5.0, 2.0)):
        assert tx.grad(jnp.remainder)(x, y) == 1.0
        assert tx.grad(jnp.remainder, 1)(x, y) == -np.floor(x / y)
        assert tx.grad(jnp.floor_divide)(x, y) == 0.0
