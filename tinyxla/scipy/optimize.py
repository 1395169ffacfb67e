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


def _length(function: Callable[..., Any], place: tuple[Any, Any, Any], along: Any, most: Any) -> tuple[Any, ...]:
    """A step's length that goes down enough and far enough from a place with this value and gradient, after how many
    trials, whether there is one, and the value and gradient there."""
    x, value, gradient = place
    slope = tnp.vdot(gradient, along)

    def halve(s: Any) -> Any:
        t, low, high, k, *_ = s
        new, gradient = function(x + t * along)
        too_far = ~(new <= value + 1e-4 * t * slope)
        too_near = ~too_far & (tnp.vdot(gradient, along) < 0.9 * slope)
        low, high = tnp.where(too_near, t, low), tnp.where(too_far, t, high)
        longer = tnp.where(tnp.isinf(high), 2 * t, (low + high) / 2)
        found = ~(too_far | too_near)
        return tnp.where(found, t, longer), low, high, k + 1, found, new, gradient

    none = (tnp.zeros_like(value), tnp.full_like(value, tnp.inf), 0, False, value, tnp.zeros_like(x))
    found = lax.while_loop(lambda s: ~s[4] & (s[3] < most), halve, (tnp.ones_like(value), *none))
    return found[0], *found[3:]


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

    Source: A. Lewis and M. Overton, "Nonsmooth optimization via quasi-Newton methods", Mathematical Programming 141
    (2013), for the length of steps.

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

    def step(s: Any) -> Any:
        x, value, gradient, inverse, count, k, _ = s
        along = -(inverse @ gradient)
        t, tries, found, new, changed = _length(function, (x, value, gradient), along, given["line_search_maxiter"])
        moved, turned = t * along, changed - gradient
        product = tnp.vdot(moved, turned)
        rho = tnp.where(product > 0, 1 / tnp.where(product > 0, product, 1), 0)
        side = tnp.eye(x.size, dtype=x.dtype) - rho * tnp.outer(moved, turned)
        updated = side @ inverse @ side.T + rho * tnp.outer(moved, moved)
        better = (x + moved, new, changed, updated)
        kept = [tnp.where(found, n, o) for n, o in zip(better, (x, value, gradient, inverse), strict=True)]
        return *kept, count + tries, k + 1, ~found

    def small(gradient: Any) -> Any:
        return tnp.linalg.norm(gradient, ord=given["norm"]) <= given["gtol"]

    start = (x, *function(x), tnp.eye(x.size, dtype=x.dtype), 1, 0, False)
    s: Any = lax.while_loop(lambda s: ~(small(s[2]) | s[6]) & (s[5] < limit), step, start)
    done = small(s[2])
    status = tnp.where(done, 0, tnp.where(s[6], 3, 1))
    return OptimizeResults(s[0], done, status, s[1], s[2], s[3], s[4], s[4], s[5])
