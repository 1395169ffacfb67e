"""Guards of transfers: copies to and between devices that are not asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import AttributeValueError, TransferGuardError
from tinyxla.tracing.config import setting

_double = tx.jit(lambda x: 2 * x)
_HOST = np.ones(3, np.float32)
IMPLICIT: list[Callable[[], Any]] = [
    lambda: _double(_HOST),
    lambda: _double(1.0),
    lambda: tx.jit(lambda x: x + 1)(_HOST),
    lambda: jnp.ones(1),
    lambda: jnp.zeros((2, 2)),
    lambda: jnp.asarray(_HOST),
    lambda: jnp.array([1.0, 2.0]),
    lambda: jnp.sin(_HOST),
    lambda: jnp.add(_HOST, _HOST),
    lambda: jnp.sum(_HOST),
]


@pytest.mark.parametrize("call", IMPLICIT)
@pytest.mark.parametrize("guard", [tx.transfer_guard, tx.transfer_guard_host_to_device])
def test_copies_to_a_device_that_are_not_asked_for(
    guard: Callable[[str], Any], call: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    call()
    for value in ("disallow", "disallow_explicit"):
        with (
            guard(value),
            pytest.raises(TransferGuardError, match="is copied from the host to a device, which "),
        ):
            call()
    for value in ("allow", "log"):
        with caplog.at_level(logging.WARNING, "tinyxla"), guard(value):
            call()
    assert any("is copied from the host to a device (transfer_guard" in x for x in caplog.messages)
    call()


def test_a_guard_leaves_arrays_and_programs_alone() -> None:
    x, traced = jnp.arange(3.0), []

    @tx.jit
    def function(x: Any) -> Any:
        traced.append(x)
        return x * np.arange(3.0) + jnp.ones(3)  # constants are part of the program

    function(x)
    with tx.transfer_guard("disallow"), setting("no_tracing", True):
        np.testing.assert_array_equal(function(x), [1, 2, 5])
        np.testing.assert_array_equal(x + x, [0, 2, 4])
        assert [y.tolist() for y in (x.sum(), x.mean(), x[1], jnp.concatenate([x, x]))] == [3, 1, 1, [0, 1, 2] * 2]
    assert len(traced) == 1
    with tx.transfer_guard("disallow"):
        np.testing.assert_array_equal(tx.jit(lambda x: jnp.where(x > 1, x, 0))(x), [0, 0, 2])


def test_guards_nest() -> None:
    with tx.transfer_guard_host_to_device("disallow"), tx.transfer_guard("allow"):
        jnp.ones(1)
    with tx.transfer_guard("disallow"):
        with tx.transfer_guard_host_to_device("allow"):
            jnp.ones(1)
        with pytest.raises(TransferGuardError):
            jnp.ones(1)
    jnp.ones(1)
    with pytest.raises(AttributeValueError, match="transfer_guard_host_to_device' is one of allow, log, disallow"):
        tx.transfer_guard_host_to_device("never")


def test_a_guard_is_also_an_option_of_the_process() -> None:
    tx.config.update("jax_transfer_guard", "disallow")
    try:
        assert tx.config.transfer_guard_device_to_device == "disallow"
        with pytest.raises(TransferGuardError):
            _double(1.0)
    finally:
        tx.config.update("jax_transfer_guard", "allow")
    assert _double(1.0) == 2


def test_explicit_copies_are_refused_where_a_guard_says_so() -> None:
    x = jnp.arange(4.0)
    with tx.transfer_guard("disallow"):
        y = tx.device_put(_HOST)
        np.testing.assert_array_equal(np.asarray(y), tx.device_get(y))
    with tx.transfer_guard("disallow_explicit"):
        for given in (_HOST, {"a": 1.0}):
            with pytest.raises(TransferGuardError, match="device_put: float"):
                tx.device_put(given)
        assert x.tolist() == [0, 1, 2, 3]  # on a CPU no copy


def test_arrays_that_go_to_other_devices(eight_devices: None) -> None:
    x, mesh = jnp.arange(4.0), tx.make_mesh((4,), ("x",))
    rows = tx.NamedSharding(mesh, tx.P("x"))
    split, one = tx.device_put(x, rows), tx.device_put(x, tx.devices()[1])
    implicit = tx.jit(lambda x: x, in_shardings=rows), lambda x: x + split
    with tx.transfer_guard("disallow"):
        for call in implicit:
            with pytest.raises(
                TransferGuardError, match=r"f32\[4\] is copied to NamedSharding.* which transfer_guard_dev"
            ):
                call(x)
        for moved in (split, one):
            np.testing.assert_array_equal(_double(moved), 2 * np.arange(4.0))
        for given in (x, split):
            assert tx.device_put(given, tx.NamedSharding(mesh, tx.P())).sharding.is_fully_replicated
    for place in (rows, tx.devices()[1]):
        with tx.transfer_guard_device_to_device("disallow_explicit"), pytest.raises(TransferGuardError):
            tx.device_put(x, place)
    with tx.transfer_guard_device_to_device("disallow"):
        np.testing.assert_array_equal(split + 1, 1 + np.arange(4.0))
