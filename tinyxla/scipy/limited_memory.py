"""Minimization by the method of Broyden, Fletcher, Goldfarb and Shanno with limited memory (L-BFGS)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tinyxla import lax, numpy as tnp
from tinyxla.api import value_and_grad
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import count_of
from tinyxla.scipy.line_search import OptimizeResults, line_search
from tinyxla.shapes import Shape

LIMITED_MEMORY = "l-bfgs-experimental-do-not-rely-on-this"
_UNLIMITED = 1 << 30


class _State(NamedTuple):
    """The unknowns, the value and gradient there; the last steps and changes of the gradient, the newest last, with
    the inverses of their products (0 where there is none), and the scale of the Hessian's inverse; the numbers of calls
    and steps, whether the last line search failed, and whether the last step changed the value but little."""

    x: Any
    value: Any
    gradient: Any
    moves: Any
    changes: Any
    inverses: Any
    scale: Any
    count: Any
    steps: Any
    failed: Any
    settled: Any


def _inner(x: Any, y: Any) -> Any:
    return tnp.real(tnp.vdot(x, y))


def _direction(s: _State) -> Any:
    """The negative gradient times the estimate of the Hessian's inverse. Source: J. Nocedal and S. Wright, "Numerical
    Optimization" (2006), algorithm 7.4."""
    found, shares = s.gradient, []
    count = s.moves.shape[0]
    for k in reversed(range(count)):
        share = s.inverses[k] * _inner(s.moves[k], found)
        found = found - share * s.changes[k]
        shares.append(share)
    found = s.scale * found
    for k, share in enumerate(reversed(shares)):
        found = found + s.moves[k] * (share - s.inverses[k] * _inner(s.changes[k], found))
    return -found


def minimize_with_limited_memory(
    what: str, fun: Callable[[Any], Any], x: Any, tol: float | None, options: Mapping[str, Any]
) -> OptimizeResults:
    """See `minimize`. The gradient of a real function of complex unknowns is taken conjugated, so that it points where
    the function grows."""
    given: dict[str, Any] = {"gtol": 1e-5 if tol is None else tol, "norm": tnp.inf, "ftol": 2.220446049250313e-9}
    given |= {"maxiter": None, "maxcor": 10, "maxls": 20, "maxfun": None, "maxgrad": None}
    unknown = {*options} - {*given}
    if unknown:
        raise ArgumentError(f"{what}: options of {LIMITED_MEMORY} are {', '.join(given)}, but got {sorted(unknown)}.")
    if x.ndim != 1:
        raise ShapeError(f"{what}: x0 must be a vector, but is {Shape.of(x)}.")
    given.update(options)
    limits = [_UNLIMITED if given[n] is None else given[n] for n in ("maxiter", "maxfun", "maxgrad")]
    kept = count_of(what, "maxcor", given["maxcor"])
    derived = value_and_grad(fun)

    def function(x: Any) -> Any:
        value, gradient = derived(x)
        return value, tnp.conj(gradient)

    def step(s: _State) -> _State:
        along = _direction(s)
        length = tnp.where(s.steps == 0, tnp.minimum(1, 1 / tnp.linalg.norm(s.gradient)), 1).astype(s.value.dtype)
        search = line_search(function, s.x, s.value, s.gradient, along, length, given["maxls"])
        moved, change = search.length * along, search.gradient - s.gradient
        product = _inner(moved, change)
        curved = search.found & (product > 0)
        inverse = 1 / tnp.where(curved, product, 1)
        histories = zip((s.moves, s.changes, s.inverses), (moved, change, inverse), strict=True)
        updated = [tnp.where(curved, tnp.concatenate([old, new[None]])[1:], old) for old, new in histories]
        scale = tnp.where(curved, product / tnp.where(curved, _inner(change, change), 1), s.scale)
        decrease = given["ftol"] * tnp.maximum(tnp.maximum(tnp.abs(s.value), tnp.abs(search.value)), 1)
        settled = search.found & (s.value - search.value <= decrease)
        better = (s.x + moved, search.value, search.gradient)
        place: list[Any] = [tnp.where(search.found, n, o) for n, o in zip(better, s[:3], strict=True)]
        others: list[Any] = [scale, s.count + search.count, s.steps + 1, ~search.found, settled]
        return _State(*place, *updated, *others)

    def small(gradient: Any) -> Any:
        return tnp.linalg.norm(gradient, ord=given["norm"]) <= given["gtol"]

    def going_on(s: _State) -> Any:
        within = (s.steps < limits[0]) & (s.count < min(limits[1:]))
        return ~(small(s.gradient) | s.failed | s.settled) & within

    value, gradient = function(x)
    history = tnp.zeros((kept, x.size), x.dtype)
    one = tnp.ones_like(value)
    start = _State(x, value, gradient, history, history, tnp.zeros(kept, value.dtype), one, 1, 0, False, False)
    s: Any = lax.while_loop(going_on, step, start)
    done = small(s.gradient) | s.settled
    status = tnp.where(done, 0, tnp.where(s.failed, 5, 1))
    return OptimizeResults(s.x, done, status, s.value, tnp.conj(s.gradient), None, s.count, s.count, s.steps)
