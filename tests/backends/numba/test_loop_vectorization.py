"""Loops over many elements are vectors: LLVM refuses what it cannot prove, and says nothing."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from typing import Any

import pytest

import tinyxla as tx
import tinyxla.numpy as jnp

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86's instructions")

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
    "argmax": jnp.argmax,
    "both ends": lambda x, axis: (x.max(axis), x.min(axis)),
    "largest magnitude": lambda x, axis: abs(x).max(axis),
    "masked": lambda x, axis: jnp.max(x, axis, where=x > 0, initial=-jnp.inf),
    "variance": jnp.var,
    "log-sum-exp": tx.scipy.special.logsumexp,
    "softmax": tx.nn.softmax,
}
SHAPES = {
    "even rows that no cache holds": ((8192, 4096), 1),
    "uneven rows that no cache holds": ((16384, 2000), 1),
    "rows that a cache holds": ((100, 1000), 1),
    "columns": ((1000, 512), 0),
    "both": ((300, 500), (0, 1)),
    "the middle": ((20, 100, 64), 1),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("where", SHAPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions(reduction: str, where: str) -> None:
    shape, axis = SHAPES[where]
    if reduction == "argmax" and not isinstance(axis, int):
        pytest.skip("argmax has one axis")
    program = tx.jit(lambda x: REDUCTIONS[reduction](x, axis=axis))
    kernels = program.lower(tx.ShapeDtypeStruct(shape, jnp.float32)).compile().kernels
    largest = max((x for x in kernels if x.name != "combine"), key=lambda kernel: len(kernel.assembly))
    assert re.search(r"\bv?(add|sub|mul|max|min|cmp\w*|fn?m\w+)ps\b", largest.assembly), largest.assembly
