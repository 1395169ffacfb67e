"""Arguments and options that ask for what is not there: nonsense is refused, the rest warns once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.api import compiler_options
from tinyxla.errors import ArgumentError, AttributeValueError, NoEffectWarning

tnp = tx.numpy
CPU = tx.devices()[0]
STRUCT = tx.ShapeDtypeStruct((2,), np.float32)


@pytest.fixture(autouse=True)
def nothing_was_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tinyxla.tracing.config"], "_warned", set())
    monkeypatch.setattr(compiler_options, "_warned_of", [])


def messages(function: Callable[[], Any]) -> list[str]:
    """What a function warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    assert all(issubclass(x.category, NoEffectWarning) for x in caught)
    assert all(x.filename == __file__ for x in caught)  # the user's line
    return [str(x.message) for x in caught]


# --- devices and shardings --------------------------------------------------------------------------------------------

PLACES: dict[str, Callable[[Any], Any]] = {
    "jit: device": lambda place: tx.jit(lambda x: x, device=place),
    "jit": lambda place: tx.jit(lambda x: x, backend=place),
    "jit: in_shardings": lambda place: tx.jit(lambda x: x, in_shardings=place),
    "jit: out_shardings": lambda place: tx.jit(lambda x: x, out_shardings=place),
    "pmap: devices": lambda place: tx.pmap(lambda x: x, devices=[place]),
    "pmap: backend": lambda place: tx.pmap(lambda x: x, backend=place),
    "device_put": lambda place: tx.device_put(
        ({"a": tnp.ones(2), "b": 1.0}, [2.0]) if isinstance(place, tuple) else tnp.ones(2), place
    ),
    "device_put: src": lambda place: tx.device_put(tnp.ones(2), src=place),
    "to_device": lambda place: tnp.ones(2).to_device(place),
    "lax.with_sharding_constraint": lambda place: tx.lax.with_sharding_constraint(tnp.ones(2), place),
    "lax.empty: out_sharding": lambda place: tx.lax.empty((2,), "float32", out_sharding=place),
    "repeat: out_sharding": lambda place: tnp.repeat(tnp.ones(2), 2, out_sharding=place),
    "ShapeDtypeStruct: sharding": lambda place: tx.ShapeDtypeStruct((2,), "float32", sharding=place),
    "pure_callback: sharding": lambda place: tx.pure_callback(lambda: np.zeros(2, "f"), STRUCT, sharding=place),
    "io_callback: sharding": lambda place: tx.io_callback(lambda: np.zeros(2, "f"), STRUCT, sharding=place),
    "default_device": tx.default_device,
    "The option 'default_device'": lambda place: tx.config.update("jax_default_device", place),
}


@pytest.mark.parametrize("name", PLACES)
def test_another_device_is_refused(name: str) -> None:
    for place in ("gpu0", "nonsense", object(), 3):
        with pytest.raises(ArgumentError, match=f"^{name}.*the only device is 'cpu'"):
            PLACES[name](place)


@pytest.mark.parametrize("name", PLACES)
def test_the_one_device_is_taken(name: str) -> None:
    for place in ("cpu", CPU) if name == "lax.with_sharding_constraint" else (None, "cpu", CPU):
        assert messages(lambda place=place: PLACES[name](place)) == []


@pytest.mark.parametrize("name", ["jit: in_shardings", "jit: out_shardings", "device_put"])
def test_places_of_pytrees_are_looked_into(name: str) -> None:
    PLACES[name](({"a": CPU, "b": None}, ["cpu"]))
    with pytest.raises(ArgumentError, match="but got 'gpu'"):
        PLACES[name](({"a": CPU, "b": None}, ["gpu"]))


def test_pmap_takes_a_sequence_of_devices() -> None:
    np.testing.assert_array_equal(tx.pmap(lambda x: x + 1, devices=[CPU, CPU])(tnp.ones(2)), [2, 2])
    for devices in (3, "cpu"):
        with pytest.raises(ArgumentError, match="pmap: devices must be a sequence"):
            tx.pmap(lambda x: x, devices=devices)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [{"keep_unused": "yes"}, {"inline": 3}, {"compiler_options": 3}])
def test_options_of_jit_of_another_kind_are_refused(option: Any) -> None:
    with pytest.raises(ArgumentError, match=f"jit: {next(iter(option))} must be"):
        tx.jit(lambda x: x, **option)


def test_options_of_another_compiler_warn_once() -> None:
    make = lambda: tx.jit(lambda x: x, compiler_options={"xla_such": True})  # noqa: E731
    assert ["'xla_such'" in message for message in messages(make)] == [True]
    assert messages(make) == []
    assert messages(lambda: tx.jit(lambda x: x, compiler_options={})) == []


# --- options of the process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("jax_platforms", "gpu"),
        ("jax_platform_name", "tpu"),
        ("jax_default_matmul_precision", "bfloat16"),
        ("jax_log_checkpoint_residuals", True),
    ],
)
def test_known_options_without_effect_warn_once(option: str, value: Any) -> None:
    name = option.removeprefix("jax_")
    try:
        found = messages(lambda: tx.config.update(option, value))
        assert len(found) == 1
        assert f"'{name}' has no effect here, but got {value!r}" in found[0]
        assert getattr(tx.config, option) == value
        assert messages(lambda: tx.config.update(option, value)) == []
        assert messages(lambda: setattr(tx.config, name, value)) == []
    finally:
        tx.config.update(option, None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("jax_platforms", "cpu"),
        ("jax_platforms", None),
        ("jax_default_matmul_precision", "highest"),
        ("jax_log_checkpoint_residuals", False),
        ("jax_disable_most_optimizations", True),
        ("jax_default_device", CPU),
    ],
)
def test_options_that_ask_for_what_holds_say_nothing(option: str, value: Any) -> None:
    assert messages(lambda: tx.config.update(option, value)) == []
    tx.config.update(option, None)


def test_contexts_without_effect_warn_once() -> None:
    make = lambda: tx.default_matmul_precision("bfloat16")  # noqa: E731
    assert ["default_matmul_precision" in message for message in messages(make)] == [True]
    assert messages(make) == []
    assert messages(lambda: tx.default_matmul_precision("float32")) == []


def test_contexts_without_effect_are_decorators() -> None:
    for context in (tx.default_matmul_precision("float32"), tx.transfer_guard("allow"), tx.default_device(CPU)):
        assert context(lambda: 3)() == 3  # type: ignore[operator]


@pytest.mark.parametrize("name", ["nonsense", "jax_nonsense", "special", "update", "_watchers"])
def test_unknown_options_are_refused(name: str) -> None:
    with pytest.raises(AttributeValueError, match="There is no option"):
        tx.config.update(name, "gpu")
    with pytest.raises(AttributeValueError, match="There is no option"):
        setattr(tx.config, name, "gpu")


# --- donation ---------------------------------------------------------------------------------------------------------


def test_donated_arrays_that_no_result_replaces_are_named_when_traced() -> None:
    function = tx.jit(lambda x, y: (x.sum(), y * 2), donate_argnums=(0, 1))
    x, y = tnp.ones(3), tnp.ones(4)
    found = messages(lambda: function(x, y))
    assert len(found) == 1
    assert "Some donated buffers were not usable: f32[3]." in found[0]
    assert (x.is_deleted(), y.is_deleted()) == (False, True)
    assert messages(lambda: function(x, tnp.ones(4))) == []


def test_donated_arrays_of_pmap_are_deleted() -> None:
    x = tnp.ones((2, 3))
    assert messages(lambda: tx.pmap(lambda x: x + 1, donate_argnums=0)(x)) == []
    assert x.is_deleted()


def test_donated_arrays_in_containers_are_deleted() -> None:
    x, y = tnp.ones(3), tnp.ones(3)
    found = tx.jit(lambda tree: tx.tree.map(lambda x: x + 1, tree), donate_argnums=0)({"a": x, "b": [y]})
    assert x.is_deleted()
    assert y.is_deleted()
    np.testing.assert_array_equal(np.asarray(found["a"]), np.asarray(found["b"][0]))


@pytest.mark.parametrize(
    "context",
    [tx.default_matmul_precision("float32"), tx.transfer_guard("allow"), tx.default_device(None), tx.debug_nans()],
    ids=["default_matmul_precision", "transfer_guard", "default_device", "debug_nans"],
)
def test_contexts_are_decorators(context: Any) -> None:
    assert context(lambda x: x + 1)(2) == 3


def test_compiler_options_that_xla_does_not_have_are_errors() -> None:
    for make in (lambda options: tx.jit(lambda x: x, compiler_options=options), tx.jit(lambda x: x).lower(1).compile):
        with pytest.raises(AttributeValueError, match="there is no option 'such' of XLA's compiler"):
            make({"such": True})


def test_all_options_of_jax_are_accepted() -> None:
    jax = pytest.importorskip("jax")
    set_to = {name: value for name, value in jax.config.values.items() if name.startswith("jax_")}
    assert len(set_to) > 100
    del set_to["jax_debug_key_reuse"]  # is defined by the import hook
    for option, value in set_to.items():
        getattr(tx.config, option)
        if hasattr(type(tx.config), option.removeprefix("jax_")):
            continue
        messages(lambda option=option, value=value: tx.config.update(option, value))  # a warning at most
