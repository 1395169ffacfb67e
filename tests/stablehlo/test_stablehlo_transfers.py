"""Transfers in StableHLO: sends, receives and queues with the host, read from text, run, and written again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.support import xla_oracle
from tinyxla import stablehlo, xla
from tinyxla.errors import ArgumentError, AttributeValueError

X = np.array([1.0, 2.0], np.float32)
SENDS = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %token = stablehlo.create_token : !stablehlo.token
  %y = stablehlo.add %x, %x : tensor<2xf32>
  %after = "stablehlo.send"(%x, %y, %token) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>,
    is_host_transfer = false}> : (tensor<2xf32>, tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
  return %y : tensor<2xf32>
}
"""
RECEIVES = """
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %token = stablehlo.create_token : !stablehlo.token
  %y:3 = "stablehlo.recv"(%token) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>,
    is_host_transfer = false}> : (!stablehlo.token) -> (tensor<2xf32>, tensor<2xf32>, !stablehlo.token)
  %z = stablehlo.multiply %x, %y#0 : tensor<2xf32>
  return %z, %y#1 : tensor<2xf32>, tensor<2xf32>
}
"""


def traced(program: Any) -> Any:
    return tx.jit(program).lower(X)


@pytest.mark.parametrize("backend", ["interpreter", "numba"])
@pytest.mark.parametrize("again", [False, True])
def test_one_program_sends_and_another_receives(backend: str, again: bool) -> None:
    programs = [stablehlo.parse(text) for text in (SENDS, RECEIVES)]
    if again:
        programs = [stablehlo.parse(traced(p).as_text("stablehlo")) for p in programs]
    computations = [(traced(p).compiler_ir("hlo"), [X]) for p in programs]
    sent, received = xla.execute_parallel(computations, backend)
    for x, wanted in zip(tx.tree.leaves((sent, received)), (2 * X, X * X, 2 * X), strict=True):
        np.testing.assert_array_equal(np.asarray(x).reshape(-1), wanted)


def test_sends_and_receives_are_written() -> None:
    sends, receives = (traced(stablehlo.parse(t)).as_text("stablehlo") for t in (SENDS, RECEIVES))
    handle = "channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, is_host_transfer = false"
    assert sends.count(f'"stablehlo.send"(%arg0, %0) <{{{handle}}}>') == 1
    assert sends.count("stablehlo.send") == receives.count('"stablehlo.recv"') == 2
    assert f"<{{{handle}}}> : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)" in receives


def test_channels_of_the_wrong_direction_are_refused() -> None:
    text = SENDS.replace("type = 1", "type = 3").replace("is_host_transfer = false", "is_host_transfer = true")
    with pytest.raises(AttributeValueError, match="type 3"):
        traced(stablehlo.parse(text))


def test_texts_of_transfers_are_those_of_stablehlo() -> None:
    ir = pytest.importorskip("jaxlib.mlir.ir")
    mlir = pytest.importorskip("jax._src.interpreters.mlir")
    assert xla_oracle
    for text in (SENDS, RECEIVES):
        with mlir.make_ir_context():
            assert ir.Module.parse(traced(stablehlo.parse(text)).as_text("stablehlo")).operation.verify()


def test_quantized_types_are_refused() -> None:
    text = """
    func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %q = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> tensor<2x!quant.uniform<i8:f32, 0.5>>
      %y = stablehlo.uniform_dequantize %q : (tensor<2x!quant.uniform<i8:f32, 0.5>>) -> tensor<2xf32>
      return %y : tensor<2xf32>
    }
    """
    with pytest.raises((ArgumentError, tx.errors.MlirSyntaxError, tx.errors.DTypeError)):
        stablehlo.parse(text)(X)
