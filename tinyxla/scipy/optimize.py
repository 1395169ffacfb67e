"""Minimization, under the names of `jax.scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tinyxla import lax, numpy as tnp
from tinyxla.api import value_and_grad
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import inexact_array
from tinyxla.scipy.limited_memory import LIMITED_MEMORY, minimize_with_limited_memory
from tinyxla.scipy.line_search import OptimizeResults as OptimizeResults, line_search
from tinyxla.shapes import Shape
from tinyxla.util.tracebacks import boundary


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
    """A local minimum of a function of a vector, by the method of Broyden, Fletcher, Goldfarb and Shanno, with the
    whole estimate of the Hessian's inverse or with its last updates.

    Args:
        fun: `fun(x, *args)` gives a number.
        x0: where to start, a vector.
        args: further arguments.
        method: "BFGS", or "l-bfgs-experimental-do-not-rely-on-this" for limited memory, also of complex unknowns.
        tol: the norm of the gradient at which to stop, if `options` have no "gtol" (1e-5).
        options: "gtol", "norm" (the order of that norm, infinity), "maxiter" (200 times the number of unknowns),
            "line_search_maxiter" (how many lengths of a step are tried, 30). With limited memory: "gtol", "norm",
            "maxiter" (without limit), "maxcor" (how many updates are kept, 10), "ftol" (the relative decrease at which
            to stop, 2.2e-9), "maxls" (lengths of a step, 20), "maxfun" and "maxgrad" (how many calls, without limit).

    A minimum is where the norm of the gradient is small. Where no acceptable length of a step is found, as on account
    of rounding, the search ends without success.

    The first estimate of the Hessian's inverse is the identity, scaled before the first update (6.20) where it is wrong
    by orders of magnitude.

    Source: J. Nocedal and S. Wright, "Numerical Optimization" (2006), algorithm 6.1.

    Returns:
        The minimum, its value and gradient, whether the search succeeded, and counts of calls.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.optimize import minimize
    >>> minimize(lambda x: ((x - 1) ** 2).sum(), np.zeros(2), method="BFGS").x
    Array([1., 1.], dtype=float32)
    """
    what = "scipy.optimize.minimize"
    x = inexact_array(x0, what)
    if str(method).lower() == LIMITED_MEMORY:
        return minimize_with_limited_memory(what, lambda x: fun(x, *args), x, tol, options or {})
    given: dict[str, Any] = {
        "gtol": 1e-5 if tol is None else tol,
        "norm": tnp.inf,
        "maxiter": None,
        "line_search_maxiter": 30,
    }
    unknown = {*(options or {})} - {*given}
    if str(method).lower() != "bfgs" or unknown:
        raise ArgumentError(
            f"{what}: method must be 'BFGS' or {LIMITED_MEMORY!r} and options among {', '.join(given)}, but got "
            f"{method!r} and {sorted(unknown)}."
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
        search = line_search(function, s.x, s.value, s.gradient, along, first, most)
        moved = search.length * along
        change = search.gradient - s.gradient
        inverse = tnp.where(s.steps == 0, _scale(moved, change) * s.inverse, s.inverse)
        updated = _updated(inverse, moved, change)
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


def _scale(moved: Any, change: Any) -> Any:
    """The scale of the identity as first estimate of the Hessian's inverse, from a step that changed the gradient: one,
    unless rounding would lose half of the digits of the first update of the identity."""
    product = tnp.vdot(moved, change)
    estimate = tnp.where(product > 0, product / tnp.where(product > 0, tnp.vdot(change, change), 1), 1)
    least = tnp.sqrt(tnp.finfo(moved.dtype).eps)
    return tnp.where((estimate < least) | (estimate > 1 / least), estimate, 1)


def _updated(inverse: Any, moved: Any, change: Any) -> Any:
    """The inverse of the Hessian after a step that changed the gradient: it stays positive definite."""
    product = tnp.vdot(moved, change)
    rho = tnp.where(product > 0, 1 / tnp.where(product > 0, product, 1), 0)
    side = tnp.eye(moved.size, dtype=moved.dtype) - rho * tnp.outer(moved, change)
    return side @ inverse @ side.T + rho * tnp.outer(moved, moved)


__all__ = ["OptimizeResults", "minimize"]


def __dir__() -> list[str]:
    return __all__
