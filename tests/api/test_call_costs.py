"""Calls that compute next to nothing cost no more Python calls than these: bounds on work, not on time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.support import ROOT

A = jnp.array(np.ones(8, np.float32))
SQUARE = jnp.array(np.eye(4, dtype=np.float32))
KEY = tx.random.key(0)
add_one = tx.jit(lambda x: x + 1)
summed = tx.jit(lambda *xs: sum(xs))
tree = {"a": A, "b": (A, A)}

# A call, and how many functions in Python it may call, itself included.
CALLS: dict[str, tuple[Callable[[], Any], int]] = {
    "jit": (lambda: add_one(A), 11),
    "jit of ten arrays": (lambda: summed(*[A] * 10), 11),
    "sin": (lambda: jnp.sin(A), 5),
    "a + a": (lambda: A + A, 6),
    "a + 1": (lambda: A + 1, 11),
    "a[0]": (lambda: A[0], 5),
    "sum": (lambda: A.sum(), 35),
    "mean": (lambda: jnp.mean(A), 19),
    "var": (lambda: jnp.var(A), 42),
    "reshape": (lambda: A.reshape(2, 4), 29),
    "concatenate": (lambda: jnp.concatenate([A, A]), 56),
    "cumsum": (lambda: jnp.cumsum(A), 20),
    "solve": (lambda: jnp.linalg.solve(SQUARE, SQUARE), 22),
    "normal": (lambda: tx.random.normal(KEY, (4,)), 22),
    "bool": (lambda: bool(A[0]), 9),
    "asarray of NumPy's": (lambda: jnp.asarray(np.float32(1)), 12),
    "NumPy's asarray": (lambda: np.asarray(A), 6),
    "astype": (lambda: A.astype(jnp.int32), 22),
    "arange": (lambda: jnp.arange(8), 24),
    "tree_map": (lambda: tx.tree_util.tree_map(lambda x: x, tree), 11),
}


def called_by(call: Callable[[], Any]) -> list[str]:
    """The functions in Python that a warm call calls."""
    for _ in range(50):  # until it is replayed, or compiled
        call()
    called: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return called


@pytest.fixture(scope="module")
def called() -> dict[str, list[str]]:
    """For each call, in a process of their own: what other tests did there would count."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, __file__], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", CALLS)
def test_warm_call_of_small_arrays_calls_few_python_functions(name: str, called: dict[str, list[str]]) -> None:
    _, most = CALLS[name]
    assert len(called[name]) <= most, called[name]


if __name__ == "__main__":
    print(json.dumps({name: called_by(call) for name, (call, _) in CALLS.items()}))
