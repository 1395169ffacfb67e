"""Checks of derivatives against finite differences, under the names of `jax.test_util`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.api import jvp, vjp
from tinyxla.errors import ArgumentError
from tinyxla.shapes import element_type
from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import as_array, float0

Function = Callable[..., Any]
Leaves = list[np.ndarray[Any, Any]]

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
        modes: "fwd" for forward mode (`jvp`), "rev" for reverse mode (`vjp`), or both.
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
    if not set(modes) <= {"fwd", "rev"} or order < 1:
        raise ArgumentError(
            f'check_grads: modes must be of "fwd" and "rev", and order at least 1, but got {modes}, {order}.'
        )
    _check(f, tuple(args), order, modes, (atol, rtol, eps), "")


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
        err_msg: a text in front of messages.

    Raises:
        AssertionError: the derivatives differ.

    Example:
        >>> from tinyxla.test_util import check_jvp
        >>> import tinyxla as tx
        >>> check_jvp(tx.numpy.sin, lambda primals, tangents: tx.jvp(tx.numpy.sin, primals, tangents), (0.3,))
    """
    directions = _random_like(tuple(args), 0)
    value, tangent = f_jvp(tuple(args), directions)
    options = _options(tuple(args), atol, rtol, eps)
    expected = _differences(f, tuple(args), directions, options[2])
    _assert_close(value, f(*args), options, f"{err_msg}the value under jvp")
    _assert_close(tangent, expected, options, f"{err_msg}jvp and differences")


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
        err_msg: a text in front of messages.

    Raises:
        AssertionError: the derivatives differ.

    Example:
        >>> from tinyxla.test_util import check_vjp
        >>> import tinyxla as tx
        >>> check_vjp(tx.numpy.sin, lambda *args: tx.vjp(tx.numpy.sin, *args), (0.3,))
    """
    directions = _random_like(tuple(args), 0)
    value, pullback = f_vjp(*args)
    options = _options(tuple(args), atol, rtol, eps)
    _assert_close(value, f(*args), options, f"{err_msg}the value under vjp")
    seeds = _random_like(value, 1)
    expected = _product(seeds, _differences(f, tuple(args), directions, options[2]))
    _assert_close(_product(pullback(seeds), directions), expected, options, f"{err_msg}vjp and differences")


def _check(f: Function, args: Any, order: int, modes: Sequence[str], options: Any, where: str) -> None:
    """Both modes here, and those of the derivatives in each."""
    if "fwd" in modes:
        check_jvp(f, lambda primals, tangents: jvp(f, primals, tangents), args, *options, err_msg=where)
    if "rev" in modes:
        check_vjp(f, lambda *primals: vjp(f, *primals), args, *options, err_msg=where)
    if order > 1:
        tangents = _random_like(args, 2)
        seeds = _random_like(f(*args), 3)
        if "fwd" in modes:
            _check(lambda *x: jvp(f, x, tangents)[1], args, order - 1, modes, options, f"{where}of the jvp: ")
        if "rev" in modes:
            _check(lambda *x: _inexact(vjp(f, *x)[1](seeds)), args, order - 1, modes, options, f"{where}of the vjp: ")


def _inexact(tree: Any) -> list[Any]:
    return [x for x in pytrees.leaves(tree) if x.dtype != float0]


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
        options = (_tolerance(pair, atol, _ROUNDING, 0.0), _tolerance(pair, rtol, _ROUNDING, 0.0), 0.0)
        _assert_close(pair[0], pair[1], options, err_msg or "the trees")

    pytrees.map_tree(compared, xs, ys)


def _options(args: Any, atol: Tolerance, rtol: Tolerance, eps: float | None) -> tuple[float, float, float]:
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


def _random_like(tree: Any, seed: int) -> Any:
    """Directions in the leaves' shapes and types, no element near 0, where an error would hide; float0 for integers."""
    random = np.random.default_rng(seed)

    def leaf(x: Any) -> Any:
        like = as_array(x)
        kind = element_type(like.dtype)
        if not kind.is_inexact:
            return np.zeros(like.shape, float0)
        drawn = random.uniform(0.5, 1.5, like.shape) * random.choice([-1, 1], like.shape)
        if kind.kind == "complex":
            drawn = drawn + 1j * random.uniform(0.5, 1.5, like.shape)
        return as_array(np.asarray(drawn, like.dtype))

    return pytrees.map_tree(leaf, tree)


def _numbers(tree: Any) -> Leaves:
    """The leaves in NumPy's widest types: all arithmetic here is exact to that."""
    found: Leaves = []
    for x in pytrees.leaves(tree):
        values = np.zeros(x.shape) if getattr(x, "dtype", None) == float0 else np.asarray(as_array(x))
        found.append(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
    return found


def _differences(f: Function, args: Any, directions: Any, eps: float) -> Leaves:
    """Central differences of fourth order in the step, along the directions."""

    def at(step: float) -> Leaves:
        def moved(x: Any, d: Any) -> Any:
            if d.dtype == float0:
                return x
            start = np.asarray(as_array(x))
            return as_array((start + step * np.asarray(d.buffer())).astype(start.dtype))

        return _numbers(f(*pytrees.map_tree(moved, args, directions)))

    def difference(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with np.errstate(invalid="ignore"):
            return np.where(x == y, 0, x - y)  # also of equal infinities

    points = [at(k * eps) for k in (-2, -1, 1, 2)]
    return [(difference(a, d) + 8 * difference(c, b)) / (12 * eps) for a, b, c, d in zip(*points, strict=True)]


def _product(x: Any, y: Any) -> Leaves:
    """The sum of the products of elements, without conjugation; its real part, since complex numbers are pairs."""
    pairs = zip(_numbers(x), _numbers(y), strict=True)
    return [np.asarray(sum(float(np.real(np.sum(a * b))) for a, b in pairs))]


def _assert_close(found: Any, expected: Any, options: tuple[float, float, float], what: str) -> None:
    pairs = zip(_numbers(found), _numbers(expected), strict=True)
    for k, (x, y) in enumerate(pairs):
        np.testing.assert_allclose(x, y, options[1], options[0], err_msg=f"{what} differ at leaf {k} of the result")


__all__ = ["check_grads", "check_jvp", "check_vjp"]


def __dir__() -> list[str]:
    return __all__
