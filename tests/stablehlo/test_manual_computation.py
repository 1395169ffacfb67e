"""Functions of parts in Shardy's form: `sdy.manual_computation`, on one device and on several."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import stablehlo
from tinyxla.errors import ArgumentError

X = np.arange(64.0, dtype=np.float32).reshape(8, 8)
BLOCKS = X.reshape(4, 2, 2, 4).transpose(0, 2, 1, 3)  # of the mesh's rows and columns
SUM = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %r = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %r : tensor<f32> })"""
ROWS, COLUMNS = "[[0, 2, 4, 6], [1, 3, 5, 7]]", "[[0, 1], [2, 3], [4, 5], [6, 7]]"  # groups along x and along y


def program(
    body: str,
    part: str = "2x4",
    whole: str = "8x8",
    ins: str = '{"x"}, {"y"}',
    outs: str = '{"x"}, {"y"}',
    axes: str = '"x", "y"',
    given: str = "2x4",
) -> str:
    """A function of parts of an array f32[8,8] over a mesh of 4 by 2 devices; its body computes %r from %a."""
    return f"""
module @parts {{
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(%x: tensor<8x8xf32>) -> tensor<{whole}xf32> {{
    %y = sdy.manual_computation(%x)
        in_shardings=[<@mesh, [{ins}]>] out_shardings=[<@mesh, [{outs}]>] manual_axes={{{axes}}}
        (%a: tensor<{given}xf32>) {{
      {body}
      sdy.return %r : tensor<{part}xf32>
    }} : (tensor<8x8xf32>) -> tensor<{whole}xf32>
    return %y : tensor<{whole}xf32>
  }}
}}"""


def dense(rows: str) -> str:
    """A matrix of integers as an attribute."""
    m, n = np.shape(ast.literal_eval(rows))
    return f"dense<{rows}> : tensor<{m}x{n}xi64>"


def joined(blocks: Any) -> Any:
    """The array of which these are the blocks."""
    rows, columns, m, n = np.shape(blocks)
    return np.asarray(blocks).transpose(0, 2, 1, 3).reshape(rows * m, columns * n)


def reduced(groups: str) -> str:
    return (
        f'%r = "stablehlo.all_reduce"(%a) <{{replica_groups = {dense(groups)}}}> {SUM} : '
        "(tensor<2x4xf32>) -> tensor<2x4xf32>"
    )


def gathered(dimension: int, groups: str, part: str) -> str:
    return (
        f'%r = "stablehlo.all_gather"(%a) <{{all_gather_dim = {dimension} : i64, replica_groups = {dense(groups)}}}> : '
        f"(tensor<2x4xf32>) -> tensor<{part}xf32>"
    )


INDEX = """%n = stablehlo.partition_id : tensor<ui32>
      %f = stablehlo.convert %n : (tensor<ui32>) -> tensor<f32>
      %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
      %r = stablehlo.add %a, %b : tensor<2x4xf32>"""


def sent(pairs: str) -> str:
    return (
        f'%r = "stablehlo.collective_permute"(%a) <{{source_target_pairs = {dense(pairs)}}}> : '
        "(tensor<2x4xf32>) -> tensor<2x4xf32>"
    )


ALONG_X = "[[0, 2], [2, 4], [4, 6], [6, 0], [1, 3], [3, 5], [5, 7], [7, 1]]"
CASES: dict[str, tuple[str, Callable[[], Any]]] = {
    "sum along x": (
        program(reduced(ROWS), outs='{}, {"y"}', whole="2x8"),
        lambda: joined(BLOCKS.sum(0, keepdims=True)),
    ),
    "sum along all axes": (
        program(reduced("[[0, 1, 2, 3, 4, 5, 6, 7]]"), outs="{}, {}", whole="2x4"),
        lambda: BLOCKS.sum((0, 1)),
    ),
    "sum of one": (program(reduced("[[0], [1], [2], [3], [4], [5], [6], [7]]")), lambda: X),
    "gather along y": (
        program(gathered(1, COLUMNS, "2x8"), "2x8", outs='{"x"}, {}'),
        lambda: X,
    ),
    "gather along y and x": (
        program(gathered(0, "[[0, 2, 4, 6, 1, 3, 5, 7]]", "16x4"), "16x4", "16x4", outs="{}, {}"),
        lambda: BLOCKS.transpose(1, 0, 2, 3).reshape(16, 4),
    ),
    "scatter along y": (
        program(
            f'%r = "stablehlo.reduce_scatter"(%a) <{{scatter_dimension = 1 : i64, replica_groups = dense<{COLUMNS}> : '
            f"tensor<4x2xi64>}}> {SUM} : (tensor<2x4xf32>) -> tensor<2x2xf32>",
            "2x2",
            "8x4",
        ),
        lambda: BLOCKS.sum(1).reshape(8, 4),
    ),
    "exchange along y": (
        program(
            '%r = "stablehlo.all_to_all"(%a) <{split_dimension = 1 : i64, concat_dimension = 1 : i64, split_count = '
            f"2 : i64, replica_groups = dense<{COLUMNS}> : tensor<4x2xi64>}}> : (tensor<2x4xf32>) -> tensor<2x4xf32>"
        ),
        lambda: X.reshape(8, 2, 2, 2).transpose(0, 2, 1, 3).reshape(8, 8),
    ),
    "shift along x": (program(sent(ALONG_X)), lambda: joined(np.roll(BLOCKS, 1, 0))),
    "send from one": (
        program(sent("[[0, 3]]")),
        lambda: joined(np.where(np.arange(8).reshape(4, 2, 1, 1) == 3, BLOCKS[0, 0], 0)),
    ),
    "number of the device": (program(INDEX), lambda: joined(BLOCKS + np.arange(8).reshape(4, 2, 1, 1))),
    "some axes": (
        program(
            reduced(ROWS).replace("2x4xf32", "2x8xf32"), "2x8", ins='{"x", ?}, {?}', outs='{"x", ?}, {?}', axes='"x"',
            given="2x8",
        ),
        lambda: np.tile(X.reshape(4, 2, 8).sum(0), (4, 1)),
    ),
    "a value of outside": (
        program("%r = stablehlo.multiply %a, %c : tensor<2x4xf32>").replace(
            "%y = sdy", "%c = stablehlo.constant dense<2.0> : tensor<2x4xf32>\n    %y = sdy"
        ),
        lambda: 2 * X,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_on_one_device(name: str) -> None:
    text, expected = CASES[name]
    np.testing.assert_array_equal(stablehlo.parse(text)(X), expected())


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("name", CASES)
def test_on_eight_devices(name: str) -> None:
    text, expected = CASES[name]
    mesh = tx.make_mesh((4, 2), ("x", "y"))
    found = stablehlo.parse(text)(tx.device_put(X, tx.NamedSharding(mesh, tx.P("x", "y"))))
    np.testing.assert_array_equal(found, expected())
    assert len(found.sharding.device_set) == 8


def test_derivatives() -> None:
    f = stablehlo.parse(CASES["sum along x"][0])
    gradient = tx.grad(lambda x: (f(x) ** 2).sum())(tx.numpy.asarray(X))
    np.testing.assert_allclose(gradient, joined(np.broadcast_to(2 * BLOCKS.sum(0), BLOCKS.shape)), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (program(reduced("[[0, 1, 2, 3], [4, 5, 6, 7]]")), "groups must be the devices along axes of AbstractMesh"),
        (program(INDEX, ins='{"x":(1)2}, {"y"}'), "parts of axes are not supported"),
        (
            program(INDEX).replace('[{"x"}, {"y"}]>] manual', '[{"x"}, {"y"}], unreduced={"x"}>] manual'),
            "unreduced arrays are not",
        ),
        (program(INDEX).replace("sdy.mesh @mesh", "sdy.mesh @other"), "the module has no mesh mesh"),
    ],
)
def test_what_is_not_supported(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        stablehlo.parse(text)(X)
