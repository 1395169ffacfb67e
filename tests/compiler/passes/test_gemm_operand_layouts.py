"""Large matrices whose columns are summed over in products are turned first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str, bool]] = {
    "weights' gradient": (lambda xp, a, b: a.T @ b, ((1024, 200), (1024, 130)), "f4", True),
    "both across": (lambda xp, a, b: a.T @ b.T, ((700, 300), (150, 700)), "f4", True),
    "of what is computed": (lambda xp, a, b: xp.tanh(a).T @ b, ((1024, 200), (1024, 130)), "f4", True),
    "double": (lambda xp, a, b: a.T @ b, ((600, 170), (600, 130)), "f8", True),
    "batch": (lambda xp, a, b: xp.einsum("bkm,bkn->bmn", a, b), ((2, 520, 400), (2, 520, 130)), "f4", True),
    "short sums": (lambda xp, a, b: a.T @ b, ((200, 1024), (200, 130)), "f4", False),
    "small": (lambda xp, a, b: a.T @ b, ((1024, 100), (1024, 130)), "f4", False),
    "few columns": (lambda xp, a, b: a.T @ b, ((1024, 200), (1024, 100)), "f4", False),
    "along rows": (lambda xp, a, b: a @ b, ((200, 1024), (1024, 130)), "f4", False),
    "by itself": (lambda xp, a, _: a.T @ a, ((1024, 200), (1,)), "f4", False),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_values_and_what_is_turned(name: str) -> None:
    function, shapes, kind, is_turned = PRODUCTS[name]
    random = np.random.default_rng(0)
    with tx.enable_x64(kind == "f8"):
        arguments = [jnp.asarray(random.standard_normal(shape), kind) for shape in shapes]
        program = tx.jit(lambda *given: function(jnp, *given)).lower(*arguments).compile()
        found = np.asarray(program(*arguments))
        with tx.num_threads(1):
            assert found.tobytes() == np.asarray(program(*arguments)).tobytes()
    expected = function(np, *(np.asarray(x, np.float64) for x in arguments))
    tolerance = 1e-4 if kind == "f4" else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=10 * tolerance)
    assert (program.memory_analysis().temp_size_in_bytes >= arguments[0].nbytes) == is_turned
