"""`lax.dot_general` of two different types of 8-bit floats, between which there is no promotion, against JAX."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import tinyxla
from tinyxla.errors import PromotionError

TYPES = "float8_e4m3fn float8_e5m2 float8_e4m3 float8_e4m3b11fnuz float8_e5m2fnuz float8_e3m4 float4_e2m1fn".split()
SAME_RANGE = {"float8_e5m2", "float8_e5m2fnuz"}
MATRICES = (((1,), (0,)), ((), ()))


def _arrays(*types: str) -> list[np.ndarray[Any, Any]]:
    values = np.array([[1.5, -2.0], [3.0, 0.5]])
    return [values.astype(getattr(ml_dtypes, t)) for t in types]


@pytest.mark.parametrize("types", [p for p in itertools.permutations(TYPES, 2) if set(p) != SAME_RANGE])
def test_mixed_float_product_has_the_type_of_jax(types: tuple[str, str]) -> None:
    x, y = _arrays(*types)
    for preferred in (None, np.float32, ml_dtypes.bfloat16):
        wanted = np.asarray(jax.lax.dot_general(x, y, MATRICES, preferred_element_type=preferred))
        found = np.asarray(tinyxla.lax.dot_general(x, y, MATRICES, preferred_element_type=preferred))
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


def test_mixed_float_product_under_transformations() -> None:
    x, y = _arrays("float8_e4m3fn", "float8_e5m2")

    def product(lib: Any, a: Any, b: Any) -> Any:
        return lib.lax.dot_general(a, b, MATRICES, preferred_element_type=np.float32)

    wanted = np.asarray(product(jax, x, y))
    np.testing.assert_array_equal(tinyxla.jit(lambda a, b: product(tinyxla, a, b))(x, y), wanted)
    np.testing.assert_array_equal(tinyxla.vmap(lambda a, b: product(tinyxla, a, b))(x[None], y[None])[0], wanted)
    gradients = [lib.grad(lambda a, b, lib=lib: product(lib, a, b).sum(), (0, 1))(x, y) for lib in (tinyxla, jax)]
    for mine, theirs in zip(*gradients, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(mine, np.float32), np.asarray(theirs, np.float32))


def test_mixed_float_product_of_types_with_the_same_range_is_refused() -> None:
    with pytest.raises(PromotionError, match="no implicit promotion between f8e5m2 and f8e5m2fnuz"):
        tinyxla.lax.dot_general(*_arrays("float8_e5m2", "float8_e5m2fnuz"), MATRICES)
