"""Line searches that satisfy the strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tinyxla import lax, numpy as tnp


class OptimizeResults(NamedTuple):
    """What `minimize` found: the place `x`, the value `fun` and the gradient `jac` there, whether it is a minimum
    (`success`; `status` is else 1 at the limit of steps, 3 where no step goes down), the inverse of the Hessian as it
    was estimated, how often the function and the gradient were computed, and the number of steps.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.scipy.optimize import minimize
    >>> result = minimize(lambda x: ((x - 1) ** 2).sum(), jnp.zeros(2), method="BFGS")
    >>> result.x.round(3), bool(result.success)
    (Array([1., 1.], dtype=float32), True)
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class _Trial(NamedTuple):
    """A length of a step, with the value of the function there and its slope along the step."""

    length: Any
    value: Any
    slope: Any


class _Search(NamedTuple):
    """A line search: the length to try next; an interval of acceptable lengths between the best trial `low` and `high`,
    which is infinitely long until one is found; and the last trial, of which `found` says whether it is accepted."""

    length: Any
    low: _Trial
    high: _Trial
    count: Any
    found: Any
    value: Any
    gradient: Any


_DECREASE, _CURVATURE = 1e-4, 0.9  # the constants of the Wolfe conditions
_MARGIN = 0.1  # of an interval, at both ends of which the next trial does not lie


def line_search(
    function: Callable[..., Any], x: Any, start: Any, gradient: Any, along: Any, first: Any, most: Any
) -> Any:
    """A step's length that satisfies the strong Wolfe conditions, of at most so many trials.

    `low` satisfies the first condition and has the lowest value so far. While the function still falls there the next
    trial is twice as long; then the interval to `high` holds an acceptable length, and is narrowed down.

    Source: J. Nocedal and S. Wright, "Numerical Optimization" (2006), algorithms 3.5 and 3.6 with one trial in a step.
    """
    slope = tnp.vdot(gradient, along).real

    def step(s: _Search) -> _Search:
        value, gradient = function(x + s.length * along)
        trial = _Trial(s.length, value, tnp.vdot(gradient, along).real)
        low_enough = (value <= start + _DECREASE * s.length * slope) & (value < s.low.value)  # and no NaN
        found = low_enough & (tnp.abs(trial.slope) <= -_CURVATURE * slope)
        rises = (trial.slope >= 0) == (s.high.length > s.low.length)  # towards `high`
        low = _chosen(low_enough, trial, s.low)
        high = _chosen(low_enough, _chosen(rises, s.low, s.high), trial)
        length = tnp.where(tnp.isinf(high.length), 2 * s.length, _between(low, high))
        return _Search(tnp.where(found, s.length, length), low, high, s.count + 1, found, value, gradient)

    low = _Trial(tnp.zeros_like(start), start, slope)
    high = _Trial(tnp.full_like(start, tnp.inf), start, slope)
    initial = _Search(first, low, high, 0, False, start, gradient)
    return lax.while_loop(lambda s: ~s.found & (s.count < most), step, initial)


def _chosen(condition: Any, a: _Trial, b: _Trial) -> _Trial:
    return _Trial(*(tnp.where(condition, x, y) for x, y in zip(a, b, strict=True)))


def _between(low: _Trial, high: _Trial) -> Any:
    """The minimum of the cubic polynomial with the values and slopes of two trials; the middle between them where it is
    near one of these, or not there. Source: Nocedal and Wright, equation 3.59."""
    width = high.length - low.length
    d1 = low.slope + high.slope - 3 * (high.value - low.value) / width
    d2 = tnp.sign(width) * tnp.sqrt(d1 * d1 - low.slope * high.slope)
    share = 1 - (high.slope + d2 - d1) / (high.slope - low.slope + 2 * d2)
    return low.length + width * tnp.where((share > _MARGIN) & (share < 1 - _MARGIN), share, 0.5)
