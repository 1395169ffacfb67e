"""The kernels that are printed as Python run under Numba's `njit`, and compute what the compiled ones do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp

numba = pytest.importorskip("numba")


def _softmax(x: Any) -> Any:
    exponentials = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return exponentials / jnp.sum(exponentials, axis=-1, keepdims=True)


def _chain(x: Any) -> Any:
    return jnp.sqrt(jnp.maximum(x * x + 0.5, 0.1)) - x


@pytest.mark.parametrize("function", [_softmax, _chain])
def test_printed_kernels_run_under_njit(function: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    compiled = tx.jit(function).lower(x).compile()
    (kernel,) = compiled.kernels
    scope: dict[str, Any] = {}
    exec(kernel.source, scope)
    result = np.empty(x.size, np.float32)
    numba.njit(scope[kernel.name])(x.ravel(), result, 0, kernel.extent)
    np.testing.assert_allclose(result.reshape(x.shape), np.asarray(compiled(x)), rtol=1e-6)


def test_a_short_loop_over_costly_elements_has_a_known_end() -> None:
    """So vectors take all of them, and no element is computed by itself."""

    def source(function: Callable[[Any], Any], *sizes: int) -> str:
        (kernel,) = tx.jit(function).lower(np.ones(sizes, np.float32)).compile().kernels
        return kernel.source

    assert "in range(12):" in source(jnp.tanh, 12)
    assert "in range(first, last):" in source(jnp.tanh, 5000)
    assert "in range(first, last):" in source(jnp.negative, 12)


@pytest.mark.parametrize("start", [0, 1])
def test_places_that_are_not_negative_say_so(start: int) -> None:
    """Else LLVM gathers every so many elements of memory one by one, unless they are the first ones."""

    def places(function: Callable[[Any], Any], *sizes: int) -> list[str]:
        (kernel,) = tx.jit(function).lower(np.ones(sizes, np.uint8)).compile().kernels
        return [
            line for line in kernel.llvm.splitlines() if " = mul " in line or (" = add " in line and "next" not in line)
        ]

    rows = places(lambda x: x[start::2, start::3], 600, 900)
    channels = places(lambda x: x[:, :, start], 100, 2000, 3)
    assert len(rows) > 0 < len(channels)
    assert all(" nuw nsw " in line for line in [*rows, *channels])
