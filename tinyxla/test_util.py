"""Checks of derivatives against finite differences, under the names of `jax.test_util`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinyxla.api import jvp, vjp
from tinyxla.api.linearize import linearize
from tinyxla.errors import ArgumentError
from tinyxla.shapes import element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import as_array, float0

Function = Callable[..., Any]

# Differences lose half of the digits, and gradients of them again: what is left for each type.
_TOLERANCE = {"f64": 1e-5, "c128": 1e-5, "f32": 2e-2, "c64": 2e-2, "f16": 1e-1, "bf16": 1e-1}
_STEP = {"f64": 1e-4, "c128": 1e-4, "f32": 1e-3, "c64": 1e-3}
# What the rounding of a few operations leaves of values; integers are exact.
_ROUNDING = {"f64": 1e-15, "c128": 1e-15, "f32": 1e-6, "c64": 1e-6, "f16": 1e-3, "bf16": 1e-2}

Tolerance = float | Mapping[Any, float] | None
"""One number, or one for each element type; other types have the default."""


def check_grads(
    f: Function,
    args: Sequence[Any],
    order: int,
    modes: str | Sequence[str] = ("fwd", "rev"),
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
) -> None:
    """Compare the derivatives of a function with finite differences, along a random direction.

    Args:
        f: a function of pytrees of arrays; its result is one, too.
        args: a tuple of arguments, away from places where there is no derivative.
        order: derivatives up to this order are checked, each mode applied to those of the orders below.
        modes: "fwd" for forward mode (`jvp`), "rev" for reverse mode (`vjp`), "lin" for `linearize`, or several.
        atol, rtol: tolerances, absolute and relative: numbers, or dicts of numbers by element type; by default what
            differences can tell for the arguments' types.
        eps: the step of the differences.

    Raises:
        AssertionError: a derivative differs; the message says which mode, order and leaf.

    Example:
        >>> from tinyxla.test_util import check_grads
        >>> import tinyxla as tx
        >>> check_grads(lambda x, y: tx.numpy.sin(x) * y, (0.3, 2.0), order=2)
    """
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if not set(modes) <= {"fwd", "rev", "lin"} or order < 1:
        raise ArgumentError(
            f'check_grads: modes must be of "fwd", "rev" and "lin", and order at least 1, but got {modes}, {order}.'
        )
    DerivativeChecks(*_limits(tuple(args), atol, rtol, eps)).check_grads(f, tuple(args), order, modes)


def check_jvp(
    f: Function,
    f_jvp: Function,
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Compare `f_jvp(args, tangents)`, which gives a value and its tangent, with finite differences of `f`.

    Args:
        f: a function of arrays.
        f_jvp: a function of the arguments and tangents, such as `functools.partial(jvp, f)`.
        args: its arguments.
        atol, rtol: the absolute and the relative tolerance; by the element type if None.
        eps: the step of finite differences; by the element type if None.
        err_msg: what messages begin with.

    Raises:
        AssertionError: the derivatives differ.

    Example:
        >>> from tinyxla.test_util import check_jvp
        >>> import tinyxla as tx
        >>> check_jvp(tx.numpy.sin, lambda primals, tangents: tx.jvp(tx.numpy.sin, primals, tangents), (0.3,))
    """
    DerivativeChecks(*_limits(tuple(args), atol, rtol, eps)).check_jvp(f, f_jvp, tuple(args), err_msg)


def check_vjp(
    f: Function,
    f_vjp: Function,
    args: Sequence[Any],
    atol: Tolerance = None,
    rtol: Tolerance = None,
    eps: float | None = None,
    err_msg: str = "",
) -> None:
    """Compare `f_vjp(*args)`, which gives a value and its pullback, with finite differences of `f`: the product of a
    cotangent with the tangent of the result is that of the pulled-back cotangent with the tangent of the arguments.

    Args:
        f: a function of arrays.
        f_vjp: a function of the arguments, such as `functools.partial(vjp, f)`.
        args: its arguments.
        atol, rtol: the absolute and the relative tolerance; by the element type if None.
        eps: the step of finite differences; by the element type if None.
        err_msg: what messages begin with.

    Raises:
        AssertionError: the derivatives differ.

    Example:
        >>> from tinyxla.test_util import check_vjp
        >>> import tinyxla as tx
        >>> check_vjp(tx.numpy.sin, lambda *args: tx.vjp(tx.numpy.sin, *args), (0.3,))
    """
    DerivativeChecks(*_limits(tuple(args), atol, rtol, eps)).check_vjp(f, f_vjp, tuple(args), err_msg)


def check_close(xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = "") -> None:
    """Compare pytrees of arrays, leaf by leaf.

    Args:
        xs, ys: trees of one structure.
        atol, rtol: tolerances, absolute and relative: numbers, or dicts of numbers by element type; by default the
            rounding of the coarser of the two element types.
        err_msg: the beginning of the message.

    Raises:
        AssertionError: a leaf differs.
        PytreeError: the trees differ in structure.

    Example:
        >>> from tinyxla.test_util import check_close
        >>> check_close({"a": 1.0}, {"a": 1.0 + 1e-8})
    """

    def compared(x: Any, y: Any) -> None:
        pair = (as_array(x), as_array(y))
        absolute, relative = (_tolerance(pair, tolerance, _ROUNDING, 0.0) for tolerance in (atol, rtol))
        _assert_close(*pair, absolute, relative, err_msg or "the trees")

    pytrees.map_tree(compared, xs, ys)


def _assert_close(found: Any, expected: Any, atol: float, rtol: float, what: str) -> None:
    pairs = zip(_wide_leaves(found), _wide_leaves(expected), strict=True)
    for k, (x, y) in enumerate(pairs):
        np.testing.assert_allclose(x, y, rtol, atol, err_msg=f"{what}: leaf {k} of the result differs")


def _limits(args: Any, atol: Tolerance, rtol: Tolerance, eps: float | None) -> tuple[float, float, float]:
    """Tolerances and the step, by the coarsest type among the arguments."""
    leaves = [as_array(x) for x in pytrees.leaves(args)]
    names = [element_type(x.dtype).name for x in leaves]
    step = max((_STEP.get(name, 1e-1) for name in names if name in _TOLERANCE), default=1e-4)
    bounds = [_tolerance(leaves, tolerance, _TOLERANCE, 1e-5) for tolerance in (atol, rtol)]
    return bounds[0], bounds[1], step if eps is None else eps


def _tolerance(arrays: Sequence[Any], given: Tolerance, usual: Mapping[str, float], exact: float) -> float:
    """The largest tolerance of the arrays' types: the given one, that of the type, or for others `exact`."""
    if given is not None and not isinstance(given, Mapping):
        return given
    by_type = {np.dtype(kind): value for kind, value in (given or {}).items()}
    return max((by_type.get(x.dtype, usual.get(element_type(x.dtype).name, exact)) for x in arrays), default=exact)


def _wide(x: Any) -> np.ndarray[Any, Any]:
    """An array in NumPy's widest type: all arithmetic here is exact to that."""
    values = np.zeros(x.shape) if getattr(x, "dtype", None) == float0 else np.asarray(as_array(x))
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _wide_leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    return list(map(_wide, pytrees.leaves(tree)))


def differences(f: Function, args: Any, directions: Any, eps: float, stencil: Sequence[float]) -> Any:
    """The derivative of a function along a direction, by differences.

    Args:
        f: a function of trees of arrays.
        args: its arguments.
        directions: a tree like them; where it is of `float0`, arguments stay.
        eps: the step.
        stencil: the weights of f(x + k eps d) - f(x - k eps d) for k = 1, 2 and so on.

    Returns:
        a tree like f's result.
    """

    def at(step: float) -> Any:
        def moved(x: Any, d: Any) -> Any:
            if getattr(d, "dtype", None) == float0:
                return x
            start = np.asarray(as_array(x))
            return as_array((start + step * np.asarray(d)).astype(start.dtype))

        return f(*pytrees.map_tree(moved, args, directions))

    def weighted(*values: Any) -> Any:
        total: Any = 0
        pairs = zip(values[::2], values[1::2], strict=True)
        for weight, (after, before) in zip(stencil, pairs, strict=True):
            with np.errstate(invalid="ignore"):
                difference = np.where(after == before, 0, after - before)  # also of equal infinities
            total = total + weight * difference
        return total / eps

    points = [at(sign * k * eps) for k in range(1, len(stencil) + 1) for sign in (1, -1)]
    return pytrees.map_tree(lambda *values: weighted(*map(_wide, values)), *points)


def _jvp_by_linearize(f: Function, primals: Any, tangents: Any) -> tuple[Any, Any]:
    value, linear = linearize(f, *primals)
    return value, linear(*tangents)


class DerivativeChecks:
    """Comparisons of derivatives with differences along random directions.

    Args:
        atol, rtol: the absolute and the relative tolerance of `assert_close`.
        eps: the step of the differences.
    """

    stencil: tuple[float, ...] = (8 / 12, -1 / 12)  # of fourth order in the step

    def __init__(self, atol: Any, rtol: Any, eps: float) -> None:
        self.atol, self.rtol, self.eps = atol, rtol, eps

    def direction(self, random: np.random.RandomState, x: Any) -> Any:
        """An array of the shape and type of x, no element near 0, where an error would hide; float0 for integers."""
        like = as_array(x)
        kind = element_type(like.dtype)
        if not kind.is_inexact:
            return np.zeros(like.shape, float0)
        drawn = random.uniform(0.5, 1.5, like.shape) * random.choice([-1, 1], like.shape)
        if kind.kind == "complex":
            drawn = drawn + 1j * random.uniform(0.5, 1.5, like.shape)
        return as_array(np.asarray(drawn, like.dtype))

    def product(self, x: Any, y: Any) -> Any:
        """The sum of the products of elements, without conjugation; its real part, since complex numbers are pairs."""
        pairs = zip(_wide_leaves(x), _wide_leaves(y), strict=True)
        return np.asarray(sum(float(np.real(np.sum(a * b))) for a, b in pairs))

    def assert_close(self, found: Any, expected: Any, what: str) -> None:
        """Compare trees."""
        _assert_close(found, expected, self.atol, self.rtol, what)

    def of_jvp(self, f_jvp: Function, args: Any) -> tuple[Function, Any]:
        """What is checked of a derivative in forward mode for the next order: a function and its arguments."""
        tangents = self._directions(np.random.RandomState(2), args)
        return lambda *x: f_jvp(x, tangents)[1], args

    def of_vjp(self, f_vjp: Function, args: Any) -> tuple[Function, Any]:
        """The same in reverse mode."""
        seeds = self._directions(np.random.RandomState(3), f_vjp(*args)[0])
        return lambda *x: [g for g in pytrees.leaves(f_vjp(*x)[1](seeds)) if g.dtype != float0], args

    def check_jvp(self, f: Function, f_jvp: Function, args: Any, what: str = "") -> None:
        """Compare `f_jvp(args, tangents)`, a value and its tangent, with the function and differences."""
        tangents = self._directions(np.random.RandomState(0), args)
        value, tangent = f_jvp(args, tangents)
        self.assert_close(value, f(*args), f"{what or 'JVP'} primal")
        expected = differences(f, args, tangents, self.eps, self.stencil)
        self.assert_close(tangent, expected, f"{what or 'JVP'} tangent")

    def check_vjp(self, f: Function, f_vjp: Function, args: Any, what: str = "") -> None:
        """Compare `f_vjp(*args)`, a value and its pullback, with the function and differences."""
        random = np.random.RandomState(0)
        value, pullback = f_vjp(*args)
        self.assert_close(value, f(*args), f"{what or 'VJP'} primal")
        tangents, cotangents = self._directions(random, args), self._directions(random, value)
        expected = self.product(differences(f, args, tangents, self.eps, self.stencil), cotangents)
        found = self.product(tangents, pullback(cotangents))
        self.assert_close(found, expected, f"{what or 'VJP'} cotangent projection")

    def check_grads(self, f: Function, args: Any, order: int, modes: Sequence[str], where: str = "") -> None:
        """Compare derivatives up to an order, each mode applied to those of the orders below."""
        by_mode = (
            ("fwd", "JVP", self.check_jvp, self.of_jvp, partial(jvp, f)),
            ("lin", "LIN", self.check_jvp, self.of_jvp, partial(_jvp_by_linearize, f)),
            ("rev", "VJP", self.check_vjp, self.of_vjp, partial(vjp, f)),
        )
        for mode, name, check, next_order, derivative in by_mode:
            if mode in modes:
                what = f"{name}{where}"
                check(f, derivative, args, what)
                if order > 1:
                    self.check_grads(*next_order(derivative, args), order - 1, modes, f" of {what}")

    def _directions(self, random: np.random.RandomState, tree: Any) -> Any:
        return pytrees.map_tree(partial(self.direction, random), tree)


__all__ = ["check_grads", "check_jvp", "check_vjp"]


def __dir__() -> list[str]:
    return __all__
