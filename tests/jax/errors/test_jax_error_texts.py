"""Words of JAX's errors that the tests of packages look for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx

jax = pytest.importorskip("jax")

CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "broadcast_shapes": ("Incompatible shapes for broadcasting", lambda p: p.lax.broadcast_shapes((2, 3), (3, 2))),
    "numpy_broadcast_shapes": (
        "Incompatible shapes for broadcasting",
        lambda p: p.numpy.broadcast_shapes((2, 1, 3), (4,)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_error_has_the_words_of_jax(name: str) -> None:
    words, call = CASES[name]
    for package in (jax, tx):
        with pytest.raises(ValueError, match=re.escape(words)):
            call(package)


def test_array_like_is_a_union_that_isinstance_takes() -> None:
    values = [np.ones(2), np.float32(1), np.bool_(True), True, 1, 1.0, 1j]
    for package in (jax, tx):
        assert all(isinstance(x, package.typing.ArrayLike) for x in (*values, package.numpy.ones(2)))
        assert not any(isinstance(x, package.typing.ArrayLike) for x in ("a", [1], None, np.str_("a")))
