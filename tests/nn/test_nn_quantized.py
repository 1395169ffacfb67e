"""`nn`: products of operands quantized in blocks, attention with rows that see nothing, complex initial weights."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import nn
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.example_libraries import stax

RANDOM = np.random.default_rng(0)
LAST_AXES = (((2,), (2,)), ((0,), (0,)))


def normal(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_scaled_matmul_multiplies_blocks_by_their_scales(dtype: Any, kind: Any) -> None:
    a, b = (normal(2, n, 64).astype(dtype) for n in (3, 5))
    scales = [np.exp2(RANDOM.integers(-3, 3, (2, n, 2))).astype(ml_dtypes.float8_e8m0fnu) for n in (3, 5)]
    wide = [np.repeat(s.astype("f"), 32, 2) * x.astype("f") for s, x in zip(scales, (a, b), strict=True)]
    found = nn.scaled_matmul(a, b, *scales, preferred_element_type=kind)
    assert found.dtype == kind
    wanted = np.einsum("bmk,bnk->bmn", *wide)
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=1e-2, atol=0.2)


@pytest.mark.parametrize(("mode", "error"), [("mxfp8", 0.06), ("nvfp4", 0.2)])
def test_scaled_dot_general_is_near_the_product_and_its_derivatives(mode: str, error: float) -> None:
    configs = [nn.get_scaled_dot_general_config(mode)] * 3
    a, b = normal(2, 32, 64), normal(2, 64, 64)

    def quantized(a: Any, b: Any) -> Any:
        return nn.scaled_dot_general(a, b, LAST_AXES, configs=configs)

    def exact(a: Any, b: Any) -> Any:
        return nn.scaled_dot_general(a, b, LAST_AXES)

    for ours, wanted in (
        (quantized(a, b), exact(a, b)),
        (tx.jit(quantized)(a, b), exact(a, b)),
        *zip(
            tx.grad(lambda *x: (quantized(*x) ** 2).sum(), (0, 1))(a, b),
            tx.grad(lambda *x: (exact(*x) ** 2).sum(), (0, 1))(a, b),
            strict=True,
        ),
    ):
        distance = np.linalg.norm(np.asarray(ours) - wanted) / np.linalg.norm(wanted)
        assert 1e-4 < distance < error


def test_quantization_is_exact_for_elements_of_the_type() -> None:
    """Powers of two as scales leave what has few digits as it is; blocks of zeros stay zero."""
    a = np.tile(np.array([448, -1, 0.5, 3], np.float32), (1, 8)) * np.array([[1], [2**-9], [0]], np.float32)
    configs = [nn.get_scaled_dot_general_config("mxfp8")] * 3
    found = nn.scaled_dot_general(a, np.eye(32, dtype=np.float32), (((1,), (1,)), ((), ())), configs=configs)
    np.testing.assert_array_equal(found, a)
    configs = [nn.get_scaled_dot_general_config("nvfp4", np.array([0.5], np.float32))] * 3
    found = nn.scaled_dot_general(a / 64 * 0, a, (((1,), (1,)), ((), ())), configs=configs)
    np.testing.assert_array_equal(found, np.zeros((3, 3)))


def test_quantized_products_refuse_what_does_not_fit() -> None:
    config = nn.get_scaled_dot_general_config("mxfp8")
    plain = (((1,), (1,)), ((), ()))
    with pytest.raises(ShapeError, match="multiple of 32"):
        nn.scaled_dot_general(normal(2, 40), normal(2, 40), plain, configs=[config] * 3)
    with pytest.raises(ArgumentError, match="three results"):
        nn.scaled_dot_general(normal(2, 32), normal(2, 32), plain, configs=["mxfp8"] * 3)
    with pytest.raises(ArgumentError, match="mode"):
        nn.get_scaled_dot_general_config("fp8")
    with pytest.raises(ShapeError, match=r"k / block"):
        nn.scaled_matmul(normal(1, 2, 32), normal(1, 2, 32), normal(1, 2, 3), normal(1, 2, 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_attention_of_queries_that_see_no_key_is_the_mean_of_values(dtype: Any) -> None:
    q, k, v = (normal(1, n, 2, 4).astype(dtype) for n in (3, 5, 5))
    found = nn.dot_product_attention(q, k, v, mask=np.zeros((1, 1, 1, 1), bool))
    wanted = np.broadcast_to(v.astype("f").mean(1, keepdims=True), q.shape)
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=2e-2, atol=2e-2)
    _, residual = nn.dot_product_attention(q, k, v, return_residual=True)
    assert (residual.shape, residual.dtype) == ((1, 3, 2), np.dtype(dtype))


@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
def test_complex_initial_weights_have_the_variance_asked_for(distribution: str) -> None:
    weights = nn.initializers.variance_scaling(2.0, "fan_in", distribution)(tx.random.key(1), (200, 300), np.complex64)
    assert weights.dtype == np.complex64
    assert abs(np.mean(np.abs(weights) ** 2) * 100 - 1) < 0.02
    assert abs(np.mean(weights)) < 2e-3
    most = {"normal": np.inf, "truncated_normal": 2.1, "uniform": np.sqrt(2) + 1e-5}[distribution] * 0.1
    assert np.abs(weights).max() < most


def test_stax_has_the_older_names() -> None:
    assert stax.glorot()(tx.random.key(0), (3, 4)).shape == stax.randn()(tx.random.key(0), (3, 4)).shape
    assert stax.logsoftmax is stax.log_softmax is nn.log_softmax
    assert stax.relu is nn.relu
