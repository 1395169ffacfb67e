"""A TypeError that comes into a call from outside, as from a signal's handler, stays what it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla.errors import ArgumentError
from tinyxla.util.binding import bind


def _interrupted(*args: Any, **kwargs: Any) -> Any:
    raise TypeError("from a signal's handler")


CALLS: dict[str, Callable[[], Any]] = {
    "arguments of a function with a rule": lambda: tx.custom_jvp(lambda x: x)(1.0),
    "arguments of a distribution": lambda: tx.scipy.stats.norm.pdf(1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_type_error_while_arguments_are_bound_is_passed_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect.Signature, "bind", _interrupted)
    with pytest.raises(TypeError, match="from a signal's handler") as caught:
        CALLS[name]()
    assert type(caught.value) is TypeError


def test_type_error_while_arguments_become_arrays_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise TypeError("from a signal's handler")

    with pytest.raises(TypeError, match="from a signal's handler") as caught:
        tx.jit(lambda x: x)(Lazy())
    assert not isinstance(caught.value, ArgumentError)


def test_arguments_that_do_not_fit_are_refused_in_words() -> None:
    signature = inspect.signature(lambda a, b=1: None)
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"c": 1}), ((1,), {"a": 1})):
        with pytest.raises(ArgumentError, match=r"^f: .*; see g"):
            bind("f", signature, args, kwargs, "; see g")
    with pytest.raises(ArgumentError, match="argument x is <object"):
        tx.jit(lambda x: x)(object())
    with pytest.raises(ArgumentError, match="jit of <lambda>"):
        tx.jit(lambda x: x)(np.array(["a"]))
