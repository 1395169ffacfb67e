"""Minimization, under the names of `jax.scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tinyxla import lax, numpy as tnp
from tinyxla.api import value_and_grad
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import inexact_array
from tinyxla.shapes import Shape
from tinyxla.tracebacks import boundary


class OptimizeResults(NamedTuple):
    """What `minimize` found: the place `x`, the value `fun` and the gradient `jac` there, whether it is a minimum
    (`success`; `status` is else 1 at the limit of steps, 3 where no step goes down), the inverse of the Hessian as it
    was estimated, how often the function and the gradient were computed, and the number of steps."""

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


def _line_search(
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


@boundary
def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """A local minimum of a function of a vector, by the method of Broyden, Fletcher, Goldfarb and Shanno.

    Args:
        fun: `fun(x, *args)` gives a number.
        x0: where to start, a vector.
        args: further arguments.
        method: "BFGS".
        tol: the norm of the gradient at which to stop, if `options` have no "gtol" (1e-5).
        options: "gtol", "norm" (the order of that norm, infinity), "maxiter" (200 times the number of unknowns),
            "line_search_maxiter" (how many lengths of a step are tried, 30).

    A minimum is where the norm of the gradient is small. Where no acceptable length of a step is found, as on account
    of rounding, the search ends without success.

    Source: J. Nocedal and S. Wright, "Numerical Optimization" (2006), algorithm 6.1.

    >>> minimize(lambda x: ((x - 1) ** 2).sum(), np.zeros(2), method="BFGS").x
    Array([1., 1.], dtype=float32)
    """
    what = "scipy.optimize.minimize"
    x = inexact_array(x0, what)
    given = {"gtol": 1e-5 if tol is None else tol, "norm": tnp.inf, "maxiter": None, "line_search_maxiter": 30}
    unknown = {*(options or {})} - {*given}
    if method.lower() != "bfgs" or unknown:
        raise ArgumentError(
            f"{what}: method must be 'BFGS' and options among {', '.join(given)}, but got {method!r} and "
            f"{sorted(unknown)}."
        )
    if x.ndim != 1:
        raise ShapeError(f"{what}: x0 must be a vector, but is {Shape.of(x)}.")
    given.update(options or {})
    limit = 200 * x.size if given["maxiter"] is None else given["maxiter"]
    function = value_and_grad(lambda x: fun(x, *args))

    def step(s: _State) -> _State:
        along = -(s.inverse @ s.gradient)
        slope = tnp.vdot(s.gradient, along)
        expected = 2.02 * (s.value - s.before) / slope  # that the value falls as much as in the step before: eq. 3.60
        first = tnp.where(expected > 0, tnp.minimum(expected, 1), 1)
        most = given["line_search_maxiter"]
        search = _line_search(function, s.x, s.value, s.gradient, along, first, most)
        moved = search.length * along
        updated = _updated(s.inverse, moved, search.gradient - s.gradient)
        better = (s.x + moved, search.value, search.gradient, updated, s.value)
        kept: list[Any] = [tnp.where(search.found, n, o) for n, o in zip(better, s[:5], strict=True)]
        return _State._make([*kept, s.count + search.count, s.steps + 1, ~search.found])

    def small(gradient: Any) -> Any:
        return tnp.linalg.norm(gradient, ord=given["norm"]) <= given["gtol"]

    value, gradient = function(x)
    before = value + tnp.linalg.norm(gradient) / 2  # so that the first trial is a step of length one or shorter
    start = _State(x, value, gradient, tnp.eye(x.size, dtype=x.dtype), before, 1, 0, False)
    s: _State = lax.while_loop(lambda s: ~(small(s.gradient) | s.failed) & (s.steps < limit), step, start)
    done = small(s.gradient)
    status = tnp.where(done, 0, tnp.where(s.failed, 3, 1))
    return OptimizeResults(s.x, done, status, s.value, s.gradient, s.inverse, s.count, s.count, s.steps)


class _State(NamedTuple):
    """Where the minimization is: the place, value and gradient there, the inverse of the Hessian, the value before the
    last step, the numbers of calls and steps, and whether the last line search failed."""

    x: Any
    value: Any
    gradient: Any
    inverse: Any
    before: Any
    count: Any
    steps: Any
    failed: Any


def _updated(inverse: Any, moved: Any, change: Any) -> Any:
    """The inverse of the Hessian after a step that changed the gradient: it stays positive definite."""
    product = tnp.vdot(moved, change)
    rho = tnp.where(product > 0, 1 / tnp.where(product > 0, product, 1), 0)
    side = tnp.eye(moved.size, dtype=moved.dtype) - rho * tnp.outer(moved, change)
    return side @ inverse @ side.T + rho * tnp.outer(moved, moved)
