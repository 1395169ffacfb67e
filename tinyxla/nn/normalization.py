"""Functions of whole vectors: softmax and its logarithm, and bringing mean and variance to 0 and 1."""

from __future__ import annotations

from typing import Any

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import replayed
from tinyxla.errors import AttributeValueError
from tinyxla.lax.elementwise import stop_gradient
from tinyxla.numpy.arguments import ArrayLike, Axis, canonical_axes, inexact_array, operand, promoted, with_flags
from tinyxla.ops import elementwise
from tinyxla.tracing.array import Array


@replayed
def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """exp(x) divided by its sum along one or more axes.

    Args:
        x: any real array; elements may be -inf, which become 0.
        axis: one axis, several, or None for all.
        where: elements where it is false are left out, and become 0.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import softmax
    >>> softmax(np.array([0.0, 0.0, -np.inf]))
    Array([0.5, 0.5, 0. ], dtype=float32)
    """
    value = inexact_array(x, "nn.softmax")
    canonical_axes("nn.softmax", axis, value.ndim)
    weights = tnp.exp(value - _largest(value, axis, where))
    if where is not None:
        weights = tnp.where(where, weights, 0.0)
    result = weights / tnp.sum(weights, axis=axis, keepdims=True)
    return result if where is None else tnp.where(where, result, 0.0)


@replayed
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """The logarithm of softmax(x): x minus the logarithm of the sum of exp(x).

    Args:
        x: an array of real numbers.
        axis: one axis, several, or None for all.
        where: elements where it is false are left out.

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import log_softmax
    >>> log_softmax(np.array([0.0, 0.0]))
    Array([-0.6931472, -0.6931472], dtype=float32)
    """
    value = inexact_array(x, "nn.log_softmax")
    canonical_axes("nn.log_softmax", axis, value.ndim)
    shifted = value - _largest(value, axis, where)
    weights = tnp.exp(shifted)
    if where is not None:
        weights = tnp.where(where, weights, 0.0)
    result = shifted - tnp.log(tnp.sum(weights, axis=axis, keepdims=True))
    return result if where is None else tnp.where(where, result, -tnp.inf)


def _largest(x: Array, axis: Axis, where: ArrayLike | None) -> Array:
    """The maximum, as a constant: shifting x by any does not change the result, but keeps exp from overflowing."""
    considered = x if where is None else tnp.where(where, x, -tnp.inf)
    initial = None if considered.size else -tnp.inf
    return stop_gradient(tnp.max(considered, axis=axis, keepdims=True, initial=initial))


@replayed
@with_flags
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """log(sum(b exp(a))) without overflow.

    Args:
        a: any array.
        axis: one axis, several, or None for all.
        b: factors, which broadcast with a; 1 unless given.
        keepdims: keep the axes, with size 1.
        return_sign: give the logarithm of the magnitude, and the sign, of a sum that may be negative.
        where: elements where it is false are left out.

    Returns:
        An array without the axes, in floating point; with `return_sign` also the sign.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import logsumexp
    >>> logsumexp(np.array([1000.0, -np.inf]))
    Array(1000., dtype=float32)
    """
    given = (a,) if b is None else (a, b)
    value, *factors = promoted("nn.logsumexp", *given, to_inexact=True)[0]
    canonical_axes("nn.logsumexp", axis, value.ndim)
    if factors:
        value, factor = tnp.broadcast_arrays(value, *factors)
    else:
        factor = None
    size = tnp.real(value) if factor is None else tnp.where(factor == 0, -tnp.inf, tnp.real(value))
    shift = _largest(size, axis, where)
    shift = tnp.where(tnp.isfinite(shift), shift, 0.0)
    terms = tnp.exp(value - shift.astype(value.dtype))
    if factor is not None:  # 0 beside a factor of 0, by which there is a derivative
        terms = elementwise.chain_mul(terms, factor, either=True)
    if where is not None:
        terms = tnp.where(where, terms, 0.0)
    total = tnp.sum(terms, axis=axis, keepdims=keepdims)
    shift = shift if keepdims else tnp.squeeze(shift, axis=axis)
    if return_sign:
        sign = stop_gradient(tnp.sign(total))
        return tnp.log(tnp.abs(total)) + shift, sign
    return tnp.log(total) + shift.astype(total.dtype)


@replayed
@with_flags
def logmeanexp(x: ArrayLike, axis: Axis = None, where: ArrayLike | None = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) without overflow.

    Args:
        x: an array of real numbers.
        axis: one axis, several, or None for all.
        where: elements where it is false are left out.
        keepdims: keep the axes, with size 1.

    Returns:
        An array without the axes, in floating point.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import logmeanexp
    >>> logmeanexp(np.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    value = inexact_array(x, "nn.logmeanexp")
    canonical_axes("nn.logmeanexp", axis, value.ndim)
    counted = tnp.ones_like(value) if where is None else tnp.where(where, tnp.ones_like(value), 0.0)
    count = tnp.sum(counted, axis=axis, keepdims=keepdims)
    return logsumexp(value, axis=axis, where=where, keepdims=keepdims) - tnp.log(count)


@replayed
def standardize(
    x: ArrayLike,
    axis: Axis = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
    *,
    algorithm: str = "fast",
) -> Array:
    """x with its mean taken away, divided by the square root of its variance plus epsilon.

    `algorithm` is "fast" or "stable"; the variance is that of x with its mean taken away with both.

    Args:
        x: an array of real numbers.
        axis: one axis, several, or None for all.
        mean, variance: those of x along the axes; computed unless given.
        epsilon: a small number added to the variance.
        where: elements where it is false are left out.
        algorithm: "fast" or "stable".

    Returns:
        An array of the shape of x, in floating point.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import standardize
    >>> standardize(np.array([-1.0, 1.0]), epsilon=0.0)
    Array([-1.,  1.], dtype=float32)
    """
    if algorithm not in ("fast", "stable"):
        raise AttributeValueError(f"nn.standardize: algorithm must be 'fast' or 'stable', but is {algorithm!r}.")
    value = inexact_array(x, "nn.standardize")
    canonical_axes("nn.standardize", axis, value.ndim)
    if mean is None:
        mean = tnp.mean(value, axis=axis, keepdims=True, where=where)
    centred = value - operand(mean, "nn.standardize")
    if variance is None:
        variance = tnp.mean(tnp.square(centred), axis=axis, keepdims=True, where=where)
    return centred / tnp.sqrt(operand(variance, "nn.standardize") + operand(epsilon, "nn.standardize"))
