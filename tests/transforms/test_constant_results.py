"""Results of loops, branches, calls and rules to which no derivative flows have none: rules that see them are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.custom_derivatives import SymbolicZero


@tx.custom_jvp
def refusing(x: Any) -> Any:
    return x


@partial(refusing.defjvp, symbolic_zeros=True)
def _refusing_jvp(primals: Any, tangents: Any) -> Any:
    assert isinstance(tangents[0], SymbolicZero)
    return refusing(*primals), tangents[0]


@tx.custom_jvp
def halved(x: Any, y: Any) -> Any:
    return x, y


@partial(halved.defjvp, symbolic_zeros=True)
def _halved_jvp(primals: Any, tangents: Any) -> Any:
    return halved(*primals), (tangents[0], SymbolicZero(primals[1]))


def _branch(c: Any) -> Any:
    return lax.cond(c[1] > 0, lambda c: (c[0] + refusing(c[1]), c[1] + 1), lambda c: c, c)


CONSTANT: dict[
    str, Callable[..., Any]
] = {  # of pairs, whose second results no derivative by the first arguments flows to
    "cond": _branch,
    "a cond in a scan": lambda c: lax.scan(lambda c, _: (_branch(c), None), c, None, length=3)[0],
    "a cond in a while": lambda c: lax.fori_loop(0, 3, lambda i, c: _branch(c), c),
    "jit": tx.jit(lambda c: (c[0] * c[1], refusing(c[1]) * 2)),
    "a stopped gradient": tx.jit(lambda c: (c[0] * c[1], lax.stop_gradient(c[0]))),
    "a rule": lambda c: halved(c[0], c[0] * c[1]),
    "a rule in jit": tx.jit(lambda c: halved(c[0], c[0] * c[1])),
}


@pytest.mark.parametrize("what", CONSTANT)
@pytest.mark.parametrize("transformed", [lambda f: f, tx.jit])
def test_results_to_which_no_derivative_flows_are_constants(what: str, transformed: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        first, second = CONSTANT[what]((x, tnp.float32(2.0)))
        return first + refusing(second)

    plain = tx.jvp(f, (tnp.float32(1.0),), (tnp.float32(1.0),))[1]
    assert transformed(tx.grad(f))(tnp.float32(1.0)) == plain == (2 if what in ("jit", "a stopped gradient") else 1)
