"""Minima and maxima of floats, some of them masked, infinite or NaN, against NumPy; and other row reductions that LLVM
does not vectorize by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir.ir.loop_ir import Builder, Kernel, Literal

LENGTHS = (5, 64, 100, 300, 1003)  # unrolled, a multiple of the vector length, with a masked tail, with a scalar tail


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("type", ["float32", "float64", "float16", "bfloat16"])
def test_min_and_max_of_masked_elements(type: str, length: int) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-50, 50, (7, length)).astype(np.float64)
    x[1, -1] = x[3, 0] = x[4, random.integers(length)] = np.nan
    x[5] = np.where(random.random(length) < 0.5, -np.inf, np.inf)
    x[6] = -np.inf
    chosen = random.random(x.shape) < 0.7
    chosen[2] = False

    def function(x: Any, chosen: Any) -> Any:
        return (
            jnp.max(x, axis=1, where=chosen, initial=-jnp.inf),
            jnp.min(x, axis=1, where=chosen, initial=jnp.inf),
            jnp.max(x, axis=1, initial=jnp.nan),
            jnp.where(x > 0, x, jnp.asarray(-jnp.inf, x.dtype)).max(1),
            x.min(1),
            x.max(1),
            x[:3].max(),
            x[2:3].min(),
        )

    with np.errstate(invalid="ignore"):
        expected = (
            x.max(1, where=chosen, initial=-np.inf),
            x.min(1, where=chosen, initial=np.inf),
            np.full(len(x), np.nan),
            np.where(x > 0, x, -np.inf).max(1),
            x.min(1),
            x.max(1),
            x[:3].max(),
            x[2:3].min(),
        )
    with tx.enable_x64(type == "float64"):
        found = tx.jit(function)(jnp.asarray(x).astype(type), chosen)
    for one, other in zip(found, expected, strict=True):
        assert_equal(np.asarray(one).astype(np.float64), other)


def masked_maximum(type: str, count: int) -> Kernel:
    """out[0] = the largest of the positive elements."""
    builder = Builder("masked")
    x, out = builder.argument(type), builder.argument(type, written=True)
    none = Literal(type, float("-inf"))
    with builder.loop(builder.kernel.first, builder.kernel.last) as (i, _):
        with builder.loop(0, count, [none]) as (j, loop):
            element = builder.load(x, j)
            positive = builder.compute("compare", "pred", element, Literal(type, 0.0), direction="GT")
            chosen = builder.compute("select", type, positive, element, none)
            loop.carried[0].next = builder.compute("maximum", type, loop.carried[0].arg, chosen)
        builder.store(out, i, loop.carried[0].result)
    return builder.kernel


@pytest.mark.parametrize(("type", "register"), [("f32", "float"), ("f64", "double"), ("f16", "float")])
def test_masked_maximum_is_vectorized(type: str, register: str) -> None:
    text = engine.optimized_text(print_llvm(masked_maximum(type, 4096)))
    assert f"x {register}> @llvm.maximum" in text.replace("half", "float")


@pytest.mark.parametrize("length", [20, 300])
def test_products_of_complex_numbers(length: int) -> None:
    random = np.random.default_rng(0)
    x = np.exp(1j * random.random((7, length))).astype(np.complex64)
    found = tx.jit(lambda x: (x.prod(1), x.prod(), x.sum(1), x.prod(0)))(x)
    wide = x.astype(np.complex128)
    for one, other in zip(found, (wide.prod(1), wide.prod(), wide.sum(1), wide.prod(0)), strict=True):
        assert_allclose(np.asarray(one), other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [3, 5, 11])
@pytest.mark.parametrize("width", [8, 20, 100])
def test_short_rows_are_reduced_several_at_once(rows: int, width: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, rows, 5, width)).astype(np.float32)
    found = tx.jit(lambda x: (x.sum((1, 3)), x.max((1, 3)), x.sum((0, 3))))(x)
    for one, other in zip(found, (x.sum((1, 3)), x.max((1, 3)), x.sum((0, 3))), strict=True):
        assert_equal(np.asarray(one), other)


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_sums_of_narrow_floats_are_rounded_once(op: str, type: str) -> None:
    x = np.full((5, 3000), 1 if op == "add" else 1 + 2**-7).astype(np.float32)
    x[:, 0] = 2.0**12 if op == "add" else 2.0**-30
    array = jnp.asarray(x).astype(type)
    reduce = tx.lax.reduce_sum if op == "add" else tx.lax.reduce_prod
    found = tx.jit(lambda x: reduce(x, axes=(1,)))(array)
    expected = getattr(np.asarray(array).astype(np.float64), "sum" if op == "add" else "prod")(1)
    with np.errstate(over="ignore"):
        assert_allclose(
            np.asarray(found).astype(np.float64), expected.astype(found.dtype).astype(np.float64), rtol=1e-2
        )
