"""`pmap` over several devices: where copies run, and what they give."""

from __future__ import annotations

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("four_devices")


def test_each_device_has_its_copy() -> None:
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    found = tx.pmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(x)
    np.testing.assert_allclose(found, x / x.sum(0))
    assert [(s.device.id, s.data.shape) for s in found.addressable_shards] == [(k, (1, 2)) for k in range(4)]


def test_copies_run_on_the_devices_that_are_named() -> None:
    devices = tx.devices()[2:]
    found = tx.pmap(lambda x: x + 1, devices=devices)(jnp.zeros((2, 3)))
    assert [s.device for s in found.addressable_shards] == devices


@pytest.mark.parametrize("copies", [1, 3, 7])
def test_any_number_of_copies_gives_the_same(copies: int) -> None:
    x = np.arange(2.0 * copies, dtype=np.float32).reshape(copies, 2)
    found = tx.pmap(lambda x: lax.pmax(x, "i") - x, axis_name="i")(x)
    np.testing.assert_array_equal(found, x.max(0) - x)
    assert len(found.sharding.device_set) == (copies if copies <= 4 else 1)


def test_axes_of_results_and_gradients() -> None:
    x = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    turned, count = tx.pmap(lambda x: (x * 2, lax.axis_size("i")), axis_name="i", out_axes=(1, None))(x)
    np.testing.assert_array_equal(turned, 2 * x.T)
    assert turned.addressable_shards[1].data.shape == (2, 1)
    assert int(count) == 4
    gradient = tx.grad(lambda x: tx.pmap(lambda x: lax.psum(x**2, "i"), axis_name="i")(x).sum())(jnp.asarray(x))
    np.testing.assert_array_equal(gradient, 8 * x)


def test_static_arguments_of_pmap_are_passed_by_position() -> None:
    function = tx.pmap(lambda a, b: a + b, static_broadcasted_argnums=1)
    with pytest.raises(ArgumentError, match=r"static_broadcasted_argnums is \(1,\), but the call has 1 positional"):
        function(tx.numpy.ones((1, 1)), b=1)


@pytest.mark.parametrize("over", ["i", "j", ("i", "j")])
def test_nested_copies_talk_over_either_axis(over: str | tuple[str, str]) -> None:
    x = np.arange(8.0, dtype=np.float32).reshape(2, 2, 2)
    found = tx.pmap(tx.pmap(lambda x: lax.psum(x, over), axis_name="j"), axis_name="i")(x)
    axes = tuple("ij".index(name) for name in over)
    np.testing.assert_array_equal(found, np.broadcast_to(x.sum(axes, keepdims=True), x.shape))
    assert len(found.sharding.device_set) == 2
