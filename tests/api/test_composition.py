"""Transformations compose in any order: `compositions.py` says which over what, and has JAX's values for all."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tests.support import compositions
from tinyxla.api import executables
from tinyxla.backends import Executable, compile_module
from tinyxla.hlo import Computation, Module
from tinyxla.ops import dynamic_slices, elementwise
from tinyxla.ops.op import Linear, Partials
from tinyxla.ops.products import contraction
from tinyxla.transforms.computations import clear_transformed

Case = tuple[str, tuple[str, ...]]  # the name of a function, and what is applied to it, the innermost first

# The rule of `rules` is not the derivative of its function, so that it shows whether it is used. In a second derivative
# of a loop JAX takes the function's own derivative for what is carried, and the rule elsewhere; here it is the rule.
OTHERWISE_IN_JAX = {"jacfwd of vjp of scan of rules"}
CASES = [case for case in compositions.cases() if compositions.key(*case) not in OTHERWISE_IN_JAX]
# What is transformed does not depend on what runs it, so most is interpreted, which takes a tenth of the time. Triples
# are many: every fourth of them.
COMPILED = [case for n, case in enumerate(CASES) if len(case[1]) == 1 or n % 4 ** (len(case[1]) - 1) == 1]
INTERPRETED = [case for n, case in enumerate(CASES) if case not in COMPILED and (len(case[1]) < 3 or n % 4 == 3)]
EXPECTED = compositions.expected()


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    """All in 64 bits, so that what differs is wrong."""
    tx.config.update("enable_x64", True)
    try:
        yield
    finally:
        tx.config.update("enable_x64", False)


def distance(case: Case, jitted: bool = False) -> float:
    """How far the value is from JAX's, as a part of it."""
    function = compositions.transformed(tx, *case)
    found = np.asarray((tx.jit(function) if jitted else function)(compositions.START))
    expected = EXPECTED[compositions.key(*case)]
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    return float(np.max(np.abs(found - expected) / (1 + np.abs(expected))))


def test_all_are_known() -> None:
    """Else run `python -m tests.support.compositions`."""
    assert EXPECTED.keys() == {compositions.key(*case) for case in CASES} | OTHERWISE_IN_JAX


def wrong_ones(cases: list[Case], function: str, first: str) -> dict[str, float]:
    chosen = [case for case in cases if case[0] == function and case[1][0] == first]
    return {compositions.key(*case): found for case in chosen if not (found := distance(case)) < 1e-8}


def by_first(cases: list[Case]) -> Any:
    return pytest.mark.parametrize(("function", "first"), sorted({(f, path[0]) for f, path in cases}))


@pytest.mark.sample(every=4)
@by_first(COMPILED)
def test_as_in_jax(function: str, first: str) -> None:
    assert not wrong_ones(COMPILED, function, first)


@pytest.mark.sample(every=3)
@by_first(INTERPRETED)
def test_interpreted_as_in_jax(function: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "_compiled", _interpreted)
    assert not wrong_ones(INTERPRETED, function, first)


@functools.cache
def _interpreted(computation: Computation, *_: Any) -> Executable:
    return compile_module(Module(computation.name, computation), "interpreter")


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("function", compositions.FUNCTIONS)
def test_compiled_as_a_whole(function: str) -> None:
    """A sample, since most cases have a `jit` somewhere."""
    several = [case for case in CASES if case[0] == function and "jit" not in case[1]]
    wrong = {compositions.key(*case): found for case in several[5::41] if not (found := distance(case, True)) < 1e-8}
    assert not wrong


@pytest.mark.thorough
def test_expected_values_are_those_of_this_jax() -> None:
    with jax.enable_x64(True):
        for case in CASES[7::211]:
            found = jax.jit(compositions.transformed(jax, *case))(compositions.START)
            np.testing.assert_allclose(found, EXPECTED[compositions.key(*case)], rtol=1e-8, atol=1e-8)


# --- planted errors ---------------------------------------------------------------------------------------------------


def _wrong_sine(monkeypatch: Any) -> None:
    partial = elementwise.sin.derivative.partials[0]  # type: ignore[union-attr]
    monkeypatch.setattr(elementwise.sin, "derivative", Partials((lambda *a, **k: partial(*a, **k) * 1.001,)))  # type: ignore[misc]


def _wrong_product(monkeypatch: Any) -> None:
    batch = contraction.dot.batch
    monkeypatch.setattr(contraction.dot, "batch", lambda size, x, axes, **k: batch(size, x[::-1], axes[::-1], **k))


def _wrong_update(monkeypatch: Any) -> None:
    rule = dynamic_slices.dynamic_update_slice.derivative
    assert isinstance(rule, Linear)
    swapped = lambda *a, **k: (rule.transpose(*a, **k)[0] * 0, *rule.transpose(*a, **k)[1:])  # noqa: E731
    monkeypatch.setattr(dynamic_slices.dynamic_update_slice, "derivative", rule._replace(transpose=swapped))


PLANTED = {
    "a derivative that is a little wrong": (_wrong_sine, "indices", ("grad",)),
    "operands exchanged by a batch rule": (_wrong_product, "dense", ("vmap over columns",)),
    "a cotangent that is lost": (_wrong_update, "indices", ("grad",)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_show(name: str, monkeypatch: Any) -> None:
    plant, function, path = PLANTED[name]
    assert distance((function, path)) < 1e-8
    plant(monkeypatch)
    clear_transformed()
    try:
        found = distance((function, path))
    except Exception:
        return
    finally:
        clear_transformed()
    assert not found < 1e-8
