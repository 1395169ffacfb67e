"""Ordinary differential equations, under the name of `jax.experimental.ode`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api import vmap
from tinyxla.errors import ShapeError
from tinyxla.flatten_util import ravel_pytree
from tinyxla.numpy.arguments import inexact_array
from tinyxla.util.tracebacks import boundary

Slope = Callable[[Any, Any], Any]

# J. Dormand and P. Prince, "A family of embedded Runge-Kutta formulae", Journal of Computational and Applied
# Mathematics 6 (1980): what part of the step each stage is at, and of which slopes it is made; what the last stage
# differs by from a formula of order 4.
_PLACES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# L. Shampine, "Some practical Runge-Kutta formulas", Mathematics of Computation 46 (1986): the middle of the step,
# in halves of its length.
_MIDDLE = (
    6025192743 / 30085553152,
    0.0,
    51252292925 / 65400821598,
    -2691868925 / 45128329728,
    187940372067 / 1594534317056,
    -1776094331 / 19743644256,
    11237099 / 235043384,
)


def _like(y: Any, found: Any) -> Any:
    """What the user's function gives, which must be as many numbers."""
    if found.shape != y.shape:
        raise ShapeError(
            f"experimental.ode.odeint: func must give what has the shapes of y0, {y.size} numbers, but gives "
            f"{found.size}."
        )
    return found.astype(y.dtype)


def _mix(weights: Any, slopes: list[Any]) -> Any:
    return sum(w * k for w, k in zip(weights, slopes, strict=True) if w)


def _stages(slope: Slope, y: Any, first: Any, at: Any, h: Any) -> tuple[Any, list[Any]]:
    """The end of a step of length h, and all slopes on the way, of which the first is known."""
    slopes, new = [first], y
    for place, weights in zip(_PLACES, _STAGES, strict=True):
        new = y + h * _mix(weights, slopes)
        slopes.append(slope(new, at + place * h))
    return new, slopes


def _value(line: Any, target: Any) -> Any:
    """At a time within a step, by the polynomial with the values and slopes of its ends, and its middle."""
    at, h, y, dy, middle, new, d_new = line
    x = (target - at) / tnp.where(h == 0, 1, h)
    a = 2 * (d_new - dy) - 8 * (new + y) + 16 * middle
    b = 5 * dy - 3 * d_new + 18 * y + 14 * new - 32 * middle
    c = d_new - 4 * dy - 11 * y - 5 * new + 16 * middle
    return (((a * x + b) * x + c) * x + dy) * x + y


def _first_length(slope: Slope, size: Callable[..., Any], y: Any, first: Any, at: Any) -> Any:
    """E. Hairer, S. Norsett, G. Wanner, "Solving Ordinary Differential Equations I" (1993), section II.4."""
    d0, d1 = size(y, y, y), size(first, y, y)
    guess = tnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / tnp.where(d1 == 0, 1, d1))
    d2 = size(slope(y + guess * first, at + guess) - first, y, y) / guess
    most = tnp.maximum(d1, d2)
    h = tnp.where(most <= 1e-15, tnp.maximum(1e-6, guess * 1e-3), (0.01 / tnp.maximum(most, 1e-15)) ** 0.2)
    return lax.stop_gradient(tnp.minimum(100 * guess, h)).astype(at.dtype)


@boundary
def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = np.inf,
    hmax: float = np.inf,
) -> Any:
    """The solution of y' = func(y, t, *args) at the times t, from y0 at t[0].

    Args:
        func: gives what has the structure and shapes of y.
        y0: a pytree of arrays.
        t: a vector of times in ascending order.
        args: further arguments, pytrees of arrays. There are derivatives by what is in these, in t and in y0.
        rtol, atol: the error that a step may have is atol + rtol |y|.
        mxstep: the largest number of steps from one time to the next.
        hmax: the longest step.

    Returns:
        As y0, with a first dimension for the times. It is made of polynomials of order 4, as the steps of Dormand and
        Prince's method pass the times. Derivatives are those of the steps that are taken: no equation is solved
        backwards, at the cost of keeping the values of all steps.

    Raises:
        ArgumentError: a leaf that is no array or number.

    >>> import numpy as np
    >>> from tinyxla.experimental.ode import odeint
    >>> odeint(lambda y, t: -y, 1.0, np.array([0.0, 1.0]), rtol=1e-5, atol=1e-6).round(4)
    Array([1.    , 0.3679], dtype=float32)
    """
    start, unravel = ravel_pytree(y0)
    start = inexact_array(start, "experimental.ode.odeint")
    times = inexact_array(t, "experimental.ode.odeint")
    if times.ndim != 1 or times.size == 0:
        raise ShapeError(f"experimental.ode.odeint: t must be a vector of times, but has the shape {times.shape}.")

    def slope(y: Any, at: Any) -> Any:
        return _like(y, ravel_pytree(func(unravel(y), at, *args))[0])

    def size(x: Any, y: Any, new: Any) -> Any:
        allowed = atol + rtol * tnp.maximum(tnp.abs(y), tnp.abs(new))
        return lax.stop_gradient(tnp.sqrt(tnp.mean(tnp.abs(x / allowed) ** 2)))

    def step(s: Any) -> Any:
        """From the end of the last step, its slope, time and length to come, and its polynomial, to those of the next;
        or to the same ones with a shorter length."""
        y, first, at, h, line, k = s
        h = tnp.minimum(h, hmax)
        new, slopes = _stages(slope, y, first, at, h)
        error = size(h * _mix(_ERROR, slopes), y, new)
        good = error <= 1
        factor = tnp.clip(0.9 * tnp.maximum(error, 1e-10) ** -0.2, 0.2, 10.0)
        h_next = lax.stop_gradient(h * tnp.where(good, factor, tnp.minimum(factor, 1.0)))
        middle = y + 0.5 * h * _mix(_MIDDLE, slopes)
        made = (at, h, y, h * first, middle, new, h * slopes[-1])
        line = [tnp.where(good, a, b) for a, b in zip(made, line, strict=True)]
        moved = [tnp.where(good, a, b) for a, b in zip((new, slopes[-1], at + h), (y, first, at), strict=True)]
        return *moved, tnp.where(error == error, h_next, 0.2 * h), line, k + 1

    def advance(s: Any, target: Any) -> Any:
        done = lax.while_loop(lambda s: (s[2] < target) & (s[-1] < mxstep) & (s[3] > 0), step, (*s[:-1], 0))
        return done, _value(done[4], target)

    first = slope(start, times[0])
    h = _first_length(slope, size, start, first, times[0])
    none = tnp.zeros_like(start)
    line = [times[0], tnp.zeros_like(h), start, none, start, start, none]
    _, found = lax.scan(advance, (start, first, times[0], h, line, 0), times[1:])
    return vmap(unravel)(tnp.concatenate([start[None], found]))


__all__ = ["odeint"]


def __dir__() -> list[str]:
    return __all__
