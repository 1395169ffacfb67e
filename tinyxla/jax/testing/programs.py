"""Checks of what functions do: errors, jaxprs of them and of their derivatives, what they print, and variables of the
environment."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from typing import Any, TextIO

import numpy as np

from tinyxla.api import vjp
from tinyxla.api.jit import jit
from tinyxla.errors import ArgumentError
from tinyxla.jax.jaxprs.jaxpr import Jaxpr, subjaxprs
from tinyxla.jax.jaxprs.primitives.catalogue import primitives
from tinyxla.jax.jaxprs.staging import make_jaxpr
from tinyxla.jax.testing.warning_records import ignore_warning

Function = Callable[..., Any]


def _raised(thunk: Callable[[], Any], err_type: type[Exception]) -> str:
    try:
        thunk()
    except err_type as error:
        return str(error)
    raise AssertionError(f"{err_type.__name__} was not raised")


def check_raises(thunk: Callable[[], Any], err_type: type[Exception], msg: str) -> None:
    """A call raises an error whose text begins so.

    Raises:
        AssertionError: it does not.
    """
    found = _raised(thunk, err_type)
    assert found.startswith(msg), f"\n{found}\n\n{msg}\n"


def check_raises_regexp(thunk: Callable[[], Any], err_type: type[Exception], pattern: str) -> None:
    """A call raises an error whose text begins with what a pattern describes.

    Raises:
        AssertionError: it does not.
    """
    found = _raised(thunk, err_type)
    assert re.match(pattern, found), f"{found}\n\n{pattern}\n"


def iter_eqns(jaxpr: Jaxpr) -> Iterator[Any]:
    """The equations of a jaxpr and of those in it."""
    yield from jaxpr.eqns
    for inner in subjaxprs(jaxpr):
        yield from iter_eqns(inner)


def _of_products(name: str, fun: Function, args: Any, kwargs: Any) -> list[Any]:
    """A parameter of all products of matrices in the jaxpr of a function."""
    jaxpr = make_jaxpr(functools.partial(fun, **kwargs))(*args)
    product = primitives["dot_general"]
    return [eqn.params[name] for eqn in iter_eqns(jaxpr.jaxpr) if eqn.primitive is product]


def assert_dot_precision(expected_precision: Any, fun: Function, *args: Any) -> None:
    """All products of matrices in a function have this precision.

    Raises:
        AssertionError: one has another.
    """
    for found in _of_products("precision", fun, args, {}):
        both = found[:2] if isinstance(found, tuple) else (found,)
        assert all(x == expected_precision for x in both), f"Unexpected precision: {expected_precision} != {found}"


def assert_dot_preferred_element_type(expected: Any, fun: Function, *args: Any, **kwargs: Any) -> None:
    """All products of matrices in a function have this type of results.

    Raises:
        AssertionError: one has another.
    """
    for found in _of_products("preferred_element_type", fun, args, kwargs):
        assert expected == found, f"Unexpected preferred_element_type: {expected} != {found}"


def fwd_bwd_jaxprs(f: Function, *example_args: Any) -> tuple[Any, Any]:
    """The jaxprs of the value with the residuals, and of the way back."""
    forward, (value, pullback) = make_jaxpr(lambda *args: vjp(f, *args), return_shape=True)(*example_args)
    return forward, make_jaxpr(lambda pullback, cotangents: pullback(cotangents))(pullback, value)


def _named(function: Function, name: str) -> Function:
    """The function, with an attribute that says what it is."""

    @functools.wraps(function)
    def named(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    named._name = name  # type: ignore[attr-defined]
    return named


JIT_IMPLEMENTATION = (_named(jit, "jit"), _named(lambda function, *args, **kwargs: function, "noop"))
"""`jit`, and a decorator that changes nothing."""


@contextlib.contextmanager
def _captured(stream: Callable[[], TextIO]) -> Generator[Callable[[], str]]:
    """A context with a function that gives, when it has ended, what was written to a stream in it, by Python or other
    code."""
    file = stream()
    text: list[str] = []

    def written() -> str:
        if not text:
            raise ArgumentError("What is captured is known when the context has ended.")
        return text[0]

    file.flush()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as copy:
        number = file.fileno()
        kept = os.dup(number)
        os.dup2(copy.fileno(), number)
        try:
            yield written
        finally:
            file.flush()
            os.dup2(kept, number)
            os.close(kept)
            copy.seek(0)
            text.append(copy.read())


def capture_stdout() -> contextlib.AbstractContextManager[Callable[[], str]]:
    """A context with a function that gives, when it has ended, what was printed in it."""
    return _captured(lambda: sys.stdout)


def capture_stderr() -> contextlib.AbstractContextManager[Callable[[], str]]:
    """The same for messages of errors."""
    return _captured(lambda: sys.stderr)


@contextlib.contextmanager
def set_env(**kwargs: str | None) -> Generator[None]:
    """A context with these variables of the environment; None for one that is not set."""
    before = {name: os.environ.get(name) for name in kwargs}

    def put(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    put(kwargs)
    try:
        yield
    finally:
        put(before)


def complex_plane_sample(dtype: Any, size_re: int = 10, size_im: int | None = None) -> np.ndarray[Any, Any]:
    """Complex numbers on a grid over the whole plane: infinities, the largest and the smallest numbers, and a number of
    points on each half axis, spaced by a factor.

    Args:
        dtype: a complex type.
        size_re, size_im: the number of points on half of the real and of the imaginary axis.

    Returns:
        An array of shape `(3 + 2 * size_im, 3 + 2 * size_re)`.

    >>> complex_plane_sample(np.complex64, 0, 1).shape
    (5, 3)
    """
    info = np.finfo(dtype)
    log10_of_2 = 1 / 3.3219280948873626

    def axis(size: int) -> np.ndarray[Any, Any]:
        with ignore_warning(category=RuntimeWarning):  # numbers too large for the type are replaced
            ends = info.maxexp * log10_of_2, info.minexp * log10_of_2
            negative = -np.logspace(*ends, size, dtype=info.dtype)
        if size > 1:
            negative[0] = info.min
        if size > 0:
            negative[-1] = -info.tiny
        infinite, zero = np.array([np.inf], info.dtype), np.zeros(1, info.dtype)
        return np.concatenate([-infinite, negative, zero, -negative[::-1], infinite])

    real, imaginary = axis(size_re), axis(size_re if size_im is None else size_im)
    found = np.empty((imaginary.size, real.size), dtype)
    found.real, found.imag = real, imaginary[:, None]
    return found
