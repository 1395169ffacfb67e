"""Quantiles with several shares under `numpy_dtype_promotion="strict"` and `numpy_rank_promotion="raise"`."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxla as tx


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile", "nanpercentile"])
@pytest.mark.parametrize("axis", [None, 0, 2, (0, 1)])
def test_quantiles_at_several_shares_promote_nothing(name: str, axis: int | tuple[int, ...] | None) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    x[0, 0, 0] = np.nan if name.startswith("nan") else 0.0
    q = np.array([20, 75], np.float32) / (100 if name.endswith("quantile") else 1)
    wanted = getattr(np, name)(x, q, axis=axis)
    with tx.numpy_dtype_promotion("strict"), tx.numpy_rank_promotion("raise"):
        for call in (lambda f: f, tx.jit):
            found = call(lambda x: getattr(tx.numpy, name)(x, tx.numpy.asarray(q), axis=axis))(tx.numpy.asarray(x))
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)
