"""`out_sharding=` and `sharding=` where JAX's functions have them: the one device there is, or an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla
from tinyxla import lax, nn
from tinyxla.errors import ArgumentError, AttributeValueError

X, IDS = np.ones((2, 2), np.float32), np.array([0, 1], np.int32)
NUMBERS = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
CALLS: dict[str, Callable[..., Any]] = {
    "numpy.bincount": lambda f, **o: f(IDS, length=3, **o),
    "numpy.broadcast_to": lambda f, **o: f(X, (3, 2, 2), **o),
    "numpy.dot": lambda f, **o: f(X, X, **o),
    "numpy.linalg.tensordot": lambda f, **o: f(X, X, axes=1, **o),
    "numpy.matmul": lambda f, **o: f(X, X, **o),
    "numpy.ravel": lambda f, **o: f(X, **o),
    "numpy.tensordot": lambda f, **o: f(X, X, 1, **o),
    "lax.broadcast": lambda f, **o: f(X, (3,), **o),
    "lax.broadcasted_iota": lambda f, **o: f(np.int32, (2, 3), 1, **o),
    "lax.dot": lambda f, **o: f(X, X, **o),
    "lax.ragged_dot": lambda f, **o: f(X, np.ones((2, 2, 1), np.float32), np.array([1, 1], np.int32), **o),
    "lax.ragged_dot_general": lambda f, **o: f(X, np.ones((2, 2, 1), np.float32), IDS, NUMBERS, **o),
    "lax.reduce": lambda f, **o: f(X, np.float32(0), lambda x, y: x + y, (0,), **o),
    "lax.reduce_sum": lambda f, **o: f(X, (0,), **o),
    "lax.rng_bit_generator": lambda f, **o: f(np.zeros(4, np.uint32), (2,), **o),
    "nn.initializers.ones": lambda f, **o: f(None, (2,), **o),
    "nn.initializers.zeros": lambda f, **o: f(None, (2,), **o),
    "ops.segment_max": lambda f, **o: f(X, IDS, 2, **o),
    "ops.segment_min": lambda f, **o: f(X, IDS, 2, **o),
    "ops.segment_prod": lambda f, **o: f(X, IDS, 2, **o),
    "ops.segment_sum": lambda f, **o: f(X, IDS, 2, **o),
}


def _found(root: Any, name: str) -> Any:
    for part in name.split("."):
        root = getattr(root, part)
    return root


@pytest.mark.parametrize("name", CALLS)
def test_out_sharding_may_be_the_one_device(name: str) -> None:
    function = _found(tinyxla, name)
    wanted = tinyxla.tree.leaves(CALLS[name](function))
    for place in (None, tinyxla.devices()[0]):
        for x, y in zip(tinyxla.tree.leaves(CALLS[name](function, out_sharding=place)), wanted, strict=True):
            np.testing.assert_array_equal(x, y)
    with pytest.raises(ArgumentError, match="out_sharding"):
        CALLS[name](function, out_sharding=3)


def test_full_takes_a_sharding() -> None:
    device = tinyxla.devices()[0]
    np.testing.assert_array_equal(lax.full((2,), 1.0, sharding=device), np.ones(2))
    np.testing.assert_array_equal(lax.full_like(X, 1.0, sharding=device), X)
    for call in (lambda: lax.full((2,), 1.0, sharding=3), lambda: lax.full_like(X, 1.0, sharding=3)):
        with pytest.raises(ArgumentError, match="sharding"):
            call()


MODULES = ["numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "nn.initializers", "random", "ops"]


@pytest.mark.parametrize("module", MODULES)
def test_every_sharding_keyword_of_jax_is_taken(module: str) -> None:
    ours, theirs = _found(tinyxla, module), _found(jax, module)
    missing: list[str] = []
    for name in sorted(vars(theirs).keys() & vars(ours).keys()):
        function = getattr(theirs, name)
        if name.startswith("_") or inspect.isclass(function) or not callable(function):
            continue
        try:
            wanted, found = (inspect.signature(f).parameters for f in (function, getattr(ours, name)))
        except (TypeError, ValueError):
            continue
        variadic = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values())
        missing += [f"{name}({k})" for k in wanted.keys() - found.keys() if "sharding" in k and not variadic]
    assert missing == []


def test_ragged_dot_refuses_a_group_offset() -> None:
    with pytest.raises(ArgumentError, match="group_offset must be None, but is 1"):
        CALLS["lax.ragged_dot"](lax.ragged_dot, group_offset=1)


def test_standardize_takes_the_names_of_algorithms() -> None:
    x = np.array([1.0, 2.0, 4.0], np.float32)
    for algorithm in ("fast", "stable"):
        found = nn.standardize(x, algorithm=algorithm)
        np.testing.assert_allclose(found, jax.nn.standardize(x, algorithm=algorithm), 1e-5)
    with pytest.raises(AttributeValueError, match="algorithm must be 'fast' or 'stable', but is 'exact'"):
        nn.standardize(x, algorithm="exact")
