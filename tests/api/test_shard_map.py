"""`shard_map`: which specs and results it takes, what it does without a mesh of its own, and what it captures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import ArgumentError, AttributeValueError, PytreeError, ShapeError

P = tx.P
ROWS = np.arange(32.0, dtype=np.float32).reshape(8, 4)


pytestmark = pytest.mark.usefixtures("eight_devices")


def _mapped(f: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
    return tx.shard_map(f, mesh=tx.make_mesh((4, 2), ("x", "y")), in_specs=in_specs, out_specs=out_specs, **options)


def test_parts_are_those_of_the_specs() -> None:
    shapes: list[Any] = []

    def function(tree: Any, whole: Any) -> Any:
        shapes.append((tree["a"].shape, tree["b"].shape, whole.shape))
        return tree["a"] + whole, tree["b"].sum(keepdims=True)

    mapped = _mapped(function, (P("x"), None), (P("x"), P("x")))
    total, sums = mapped({"a": ROWS, "b": ROWS[:, 0]}, ROWS[:2])
    assert shapes[0] == ((2, 4), (2,), (2, 4))
    np.testing.assert_array_equal(total, ROWS + np.tile(ROWS[:2], (4, 1)))
    np.testing.assert_array_equal(sums, ROWS[:, 0].reshape(4, 2).sum(1))
    assert total.sharding.spec == P("x")


def test_the_mesh_may_be_the_current_one_and_values_may_be_captured() -> None:
    offset = jnp.arange(4.0)

    @tx.shard_map(in_specs=P("y"), out_specs=P("y"))
    def shifted(x: Any) -> Any:
        return x + offset + lax.axis_index("y")

    with tx.set_mesh(tx.make_mesh((4, 2), ("x", "y"))):
        found = shifted(ROWS)
    np.testing.assert_array_equal(found, ROWS + np.arange(4) + np.repeat([0, 1], 4)[:, None])
    with pytest.raises(ArgumentError, match="there is no mesh; pass one"):
        shifted(ROWS)


def test_gathered_result_may_be_the_same_on_all_devices() -> None:
    def function(x: Any) -> Any:
        return lax.all_gather(x, "x", tiled=True, to="invarying")

    gathered = _mapped(function, P("x"), P())
    np.testing.assert_array_equal(gathered(ROWS), ROWS)
    np.testing.assert_array_equal(tx.grad(lambda x: (gathered(x) * ROWS).sum())(jnp.asarray(ROWS)), ROWS)
    with pytest.raises(ShapeError, match="must be the same on all devices along 'x'"):
        _mapped(lambda x: lax.all_gather(x, "x", tiled=True), P("x"), P())(ROWS)
    with pytest.raises(AttributeValueError, match="groups have different results"):
        _mapped(lambda x: lax.all_gather(x, "x", axis_index_groups=[[0, 1], [2, 3]], to="invarying"), P("x"), P())(ROWS)


def test_collectives_of_what_all_devices_have() -> None:
    """A value that is the same on all devices counts once for each of them, and so in its derivative."""
    for check_vma in (True, False):
        total = _mapped(lambda w: lax.psum(w, "x"), P(), P(), check_vma=check_vma)
        rows = _mapped(lambda w: lax.all_gather(w, "x").sum(0)[None], P(), P("x"), check_vma=check_vma)
        w = jnp.arange(3.0)
        np.testing.assert_array_equal(total(w), 4 * w)
        np.testing.assert_array_equal(tx.grad(lambda w, f=total: f(w).sum())(w), [4, 4, 4])
        np.testing.assert_array_equal(rows(w), np.tile(4 * w, (4, 1)))
        np.testing.assert_array_equal(tx.grad(lambda w, f=rows: f(w).sum())(w), [16, 16, 16])


@pytest.mark.parametrize(
    ("in_specs", "out_specs", "error", "said"),
    [
        (P("z"), P("x"), ShapeError, "names 'z', but the mesh has the axes"),
        (P("x", "x"), P("x"), ShapeError, "must not name an axis twice"),
        (P(None, ("x", "y")), P("x"), ShapeError, "the size of dimension 1 of (8, 4) must be a multiple of 8"),
        (P("x"), P(), ShapeError, "must be the same on all devices along 'x', but may vary there"),
        ((P("x"), P("x")), P("x"), PytreeError, "in_specs has another structure"),
        ("x", P("x"), ArgumentError, "in_specs must be PartitionSpecs, but has 'x'"),
    ],
)
def test_specs_that_do_not_fit(in_specs: Any, out_specs: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        _mapped(lambda x: x, in_specs, out_specs)(ROWS)
    assert said in str(raised.value)
