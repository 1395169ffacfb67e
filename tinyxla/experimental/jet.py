"""Derivatives of higher order in Taylor mode, under the name of `jax.experimental.jet`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import OfLeaves, arrays_of, check_callable, name_of
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.tracing import pytrees
from tinyxla.tracing.promotion import as_array
from tinyxla.transforms.reverse import is_inexact, zeros_like
from tinyxla.transforms.taylor import scaled, taylor
from tinyxla.util.tracebacks import boundary

__all__ = ["jet"]


@boundary
def jet(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    series: Sequence[Sequence[Any]],
    factorial_scaled: bool = True,
    **options: Any,
) -> tuple[Any, Any]:
    """The Taylor series of a function along a curve: all derivatives up to an order in one pass.

    Of arguments x(t) = x_0 + x_1 t + x_2 t^2 / 2! + ... + x_K t^K / K! these are the same coefficients of
    fun(x(t)): its value, and its derivatives by t at 0 up to the K-th.

    Args:
        fun: of arrays, with a pytree of arrays as its result.
        primals: for each argument x_0, an array or a number.
        series: for each argument the list of x_1, ..., x_K, of its shape; all lists are of one length, the order K.
        factorial_scaled: coefficients are derivatives; if False, those of t^k, without 1 / k!, given and taken.
        options: accepted for JAX's sake.

    Returns:
        `(value, coefficients)`: the result, and in its structure a list of K arrays for each array.

    Raises:
        ArgumentError: lists of different lengths, or not one for each argument; arguments that are no arrays.
        ShapeError: a coefficient of another shape than its argument.

    Source: A. Griewank and A. Walther, "Evaluating Derivatives", chapter 13.

    Example:
        >>> from tinyxla.experimental.jet import jet
        >>> import tinyxla as tx
        >>> value, derivatives = jet(tx.numpy.sin, (0.0,), ([1.0, 0.0, 0.0],))
        >>> [float(d) for d in derivatives]
        [1.0, 0.0, -1.0]
    """
    check_callable("jet", fun)
    name = f"jet of {name_of(fun)}"
    if len(primals) != len(series):
        raise ArgumentError(f"{name}: there are {len(primals)} arguments, but {len(series)} series; give one for each.")
    lengths = {len(terms) for terms in series}
    if len(lengths) > 1:
        raise ArgumentError(f"{name}: jet terms have inconsistent lengths for different arguments: {sorted(lengths)}.")
    order = lengths.pop() if lengths else 0
    for k, (x, terms) in enumerate(zip(primals, series, strict=True)):
        _check_leaf(x, f"{name}: primal value at position {k}")
        for j, term in enumerate(terms):
            _check_leaf(term, f"{name}: term {j} for argument {k}")
    leaves, structure = arrays_of(tuple(primals), f"{name}: argument ")
    scales = [math.factorial(k) if factorial_scaled else 1 for k in range(1, order + 1)]
    given = [_coefficients(name, k, x, terms, scales) for k, (x, terms) in enumerate(zip(leaves, series, strict=True))]
    flat = OfLeaves(fun, structure)
    values, found = taylor(flat, leaves, given)
    results = [
        [zeros_like(x) for _ in scales] if s is None else [scaled(c, f) for c, f in zip(s, scales, strict=True)]
        for x, s in zip(values, found, strict=True)
    ]
    return flat.result(values), flat.result(results)


def _check_leaf(x: Any, what: str) -> None:
    if not pytrees.flatten(x)[0] or pytrees.flatten(x)[0][0] is not x:
        raise ArgumentError(f"{what} is not an array, but {type(x).__name__}; pass its arrays as arguments each.")


def _coefficients(name: str, k: int, x: Any, terms: Sequence[Any], scales: Sequence[int]) -> tuple[Any, ...] | None:
    """The coefficients of powers of t, of the argument's type; None for an integer, which is constant."""
    if not is_inexact(x):
        return None
    arrays = [as_array(term) for term in terms]
    for number, term in enumerate(arrays):
        if term.shape != x.shape:
            raise ShapeError(
                f"{name}: term {number} for argument {k} must have the argument's shape {x.shape}, but has "
                f"{term.shape}."
            )
    return tuple(scaled(c.astype(x.dtype), 1 / f) for c, f in zip(arrays, scales, strict=True))


def __dir__() -> list[str]:
    return __all__
