"""Compiled functions and containers that are in each other so deeply that recursion ends: an error says what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import tinyxla as tx
from tinyxla.errors import NestingError
from tinyxla.tracing.references import Reference

tnp = tx.numpy


def nested(depth: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return x + 1

    for _ in range(depth):
        function = tx.jit(lambda x, inner=function: inner(x) * 1.0)
    return function


def tree(depth: int, kind: Callable[[Any], Any] = lambda x: [x]) -> Any:
    found: Any = tnp.ones(2)
    for _ in range(depth):
        found = kind(found)
    return found


@contextmanager
def recursion_limit(limit: int) -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def frames_per_level(apply: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> int:
    """Python's calls between a function and one that it applies."""
    depths: list[int] = []

    def depth() -> int:
        frame, count = sys._getframe(), 0  # pyright: ignore[reportPrivateUsage]
        while frame.f_back is not None:
            frame, count = frame.f_back, count + 1
        return count

    def inner(x: Any) -> Any:
        depths.append(depth())
        return x * 2

    def outer(x: Any) -> Any:
        depths.append(depth())
        return apply(inner)(x)

    tx.jit(outer)(tnp.ones(2))
    return depths[1] - depths[0]


@pytest.mark.parametrize(
    ("apply", "frames"),
    [
        (tx.jit, 10),
        (lambda f: lambda x: tx.lax.cond(x.sum() > 0, f, lambda x: x, x), 12),
        (lambda f: lambda x: tx.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0], 17),
    ],
    ids=["jit", "cond", "scan"],
)
def test_a_level_of_nesting_takes_few_calls(apply: Any, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's limit is 1000: so some seventy compiled functions or conditionals may be in each other."""
    monkeypatch.setattr(Reference, "exist", False)
    assert frames_per_level(apply) <= frames


def endless(x: Any) -> Any:
    return tx.jit(endless)(x) + 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: nested(300)(1.0),
        lambda: nested(300).lower(1.0),  # type: ignore[attr-defined]
        lambda: tx.grad(nested(300))(1.0),
        lambda: tx.vmap(nested(300))(tnp.ones(3)),
        lambda: tx.jit(endless)(1.0),
    ],
    ids=["call", "lower", "grad", "vmap", "without end"],
)
def test_functions_nested_too_deeply_are_an_error_that_says_what_to_do(call: Callable[[], Any]) -> None:
    with pytest.raises(NestingError, match=r"take jit from the inner ones.*setrecursionlimit") as caught:
        call()
    assert isinstance(caught.value, RecursionError)
    assert float(nested(3)(1.0)) == 2  # nothing is left behind


EVERY_DEPTH = """
from contextlib import suppress
import tinyxla as tx
from tinyxla.errors import NestingError
from tinyxla.tracing.references import Reference

def nested(depth):
    function = lambda x: x + 1
    for _ in range(depth):
        function = tx.jit(lambda x, inner=function: inner(x) * 1.0)
    return function

for depth in range(50, 90, 5):
    for call in (
        lambda f: f(1.0),
        lambda f: tx.grad(f)(1.0),
        lambda f: tx.jvp(f, (1.0,), (1.0,)),
        lambda f: tx.linearize(f, 1.0)[1](1.0),
        lambda f: tx.vmap(f)(tx.numpy.ones(3)),
        lambda f: tx.hessian(f)(1.0),
        lambda f: tx.jit(tx.grad(f))(1.0),
        lambda f: tx.lax.scan(lambda c, _: (f(c), None), 1.0, None, length=2),
    ):
        tx.clear_caches()  # else what was made of the inner functions is there
        with suppress(NestingError):  # but no other RecursionError
            call(nested(depth))
"""


def test_functions_nested_at_any_depth_work_or_are_that_error() -> None:
    """In a process of its own, whose stack is empty: else tracing ends first."""
    done = subprocess.run([sys.executable, "-c", EVERY_DEPTH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_higher_limit_lets_functions_nest_deeper() -> None:
    with recursion_limit(5000):
        assert float(nested(100)(1.0)) == 2


USES: dict[str, Callable[[Any], Any]] = {
    "leaves": tx.tree.leaves,
    "flatten": tx.tree.flatten,
    "structure": tx.tree.structure,
    "map": lambda t: tx.tree.map(lambda x: x, t),
    "paths": tx.tree_util.tree_flatten_with_path,
    "jit": lambda t: tx.jit(lambda t: t)(t),
    "grad": lambda t: tx.grad(lambda t: tx.tree.leaves(t)[0].sum())(t),
    "vmap": lambda t: tx.vmap(lambda t: t)(t),
    "scan": lambda t: tx.lax.scan(lambda c, _: (c, None), t, None, length=2),
    "device_put": tx.device_put,
}


@pytest.mark.parametrize("kind", [lambda x: [x], lambda x: {"a": x}, lambda x: (x,)], ids=["list", "dict", "tuple"])
@pytest.mark.parametrize("name", USES)
def test_trees_nested_too_deeply_are_an_error_that_says_what_to_do(name: str, kind: Callable[[Any], Any]) -> None:
    with pytest.raises(NestingError, match=r"A pytree has containers in each other.*one list"):
        USES[name](tree(10_000, kind))


@pytest.mark.parametrize("name", USES)
def test_trees_of_a_hundred_levels_work(name: str) -> None:
    USES[name](tree(100))


def test_compiled_functions_take_trees_whose_reader_cannot_recurse() -> None:
    """A tree that optree takes apart, while generated readers go as deep as Python's limit."""
    deep = tree(150)
    function = tx.jit(lambda t: tx.tree.leaves(t)[0] * 2)
    with recursion_limit(len(_stack()) + 120):
        for _ in range(3):
            assert function(deep).tolist() == [2, 2]


def _stack() -> list[Any]:
    frames: list[Any] = [sys._getframe()]
    while frames[-1].f_back is not None:
        frames.append(frames[-1].f_back)
    return frames


def test_recursion_of_a_users_function_stays_what_it_is() -> None:
    def endless_leaf(x: Any) -> Any:
        return endless_leaf(x)

    with pytest.raises(RecursionError) as caught:
        tx.tree.map(endless_leaf, [1, 2])
    assert not isinstance(caught.value, NestingError)
