"""`fwd_and_bwd`: the forward and the backward pass of a function as two functions, each compiled once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.derivatives import Chosen, vjp
from tinyxla.api.functions import check_callable
from tinyxla.api.jit import jit
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import named, transformed

Function = Callable[..., Any]


def fwd_and_bwd(
    fun: Function, argnums: int | Sequence[int], has_aux: bool = False, jitted: bool = True
) -> tuple[Function, Function]:
    """The forward and the backward pass of a function.

    Args:
        fun: of pytrees of arrays, with a pytree of arrays as its result.
        argnums: the argument to differentiate by, or several.
        has_aux: the function gives `(result, auxiliary)`; the second is passed through undifferentiated.
        jitted: whether both functions are compiled; each is then compiled once for arguments of the same shapes.

    Returns:
        `(fwd, bwd)`: `fwd(*args)` gives `(result, residuals)`, or `(result, residuals, auxiliary)`, and
        `bwd(residuals, cotangent)` the cotangent of the argument, or a tuple of those of several.

    Raises:
        ArgumentError: `fun` is not callable, or `argnums` names an argument that a call does not have.

    Example:
        >>> import tinyxla as tx
        >>> fwd, bwd = tx.fwd_and_bwd(lambda x, y: x * y, argnums=(0, 1))
        >>> y, residuals = fwd(2.0, 3.0)
        >>> bwd(residuals, 1.0)
        (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    check_callable("fwd_and_bwd", fun)
    by = Chosen("fwd_and_bwd", fun, argnums, holomorphic=False)

    @transformed("fwd", fun)
    def fwd(*args: Any, **kwargs: Any) -> Any:
        chosen = by.positions(args, kwargs)
        return vjp(by.partial(chosen, args, kwargs), *(args[n] for n in chosen), has_aux=has_aux)

    @boundary
    def bwd(residuals: Function, cotangent: Any) -> Any:
        return by.only(residuals(cotangent))

    back = named("bwd", fun, bwd)
    return (jit(fwd), jit(back)) if jitted else (fwd, back)
