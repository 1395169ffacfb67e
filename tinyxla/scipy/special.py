"""Special functions, under the names of `jax.scipy.special`."""

from __future__ import annotations

from typing import Any

from tinyxla import numpy as tnp
from tinyxla.nn.activations import sigmoid as expit
from tinyxla.nn.normalization import log_softmax, logsumexp, softmax
from tinyxla.numpy.arguments import inexact_array, promoted
from tinyxla.ops import elementwise
from tinyxla.tracing.array import Array

ArrayLike = Any


def logit(x: ArrayLike) -> Array:
    """log(x / (1 - x)), the inverse of `expit`.

    >>> logit(0.5)
    Array(0., dtype=float32, weak_type=True)
    """
    value = inexact_array(x, "scipy.special.logit")
    return tnp.log(value / (1.0 - value))


def erf(x: ArrayLike) -> Array:
    """The error function.

    >>> erf(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.erf(inexact_array(x, "scipy.special.erf"))


def erfinv(y: ArrayLike) -> Array:
    """The inverse of the error function.

    >>> erfinv(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.erf_inv(inexact_array(y, "scipy.special.erfinv"))


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(y), which is 0 where x is 0, with the derivatives that follow.

    >>> xlogy(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    Array([0., 0.], dtype=float32)
    """
    return _times_log("scipy.special.xlogy", tnp.log, x, y)


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """x log(1 + y), which is 0 where x is 0.

    >>> xlog1py(np.array([0.0]), np.array([-1.0]))
    Array([0.], dtype=float32)
    """
    return _times_log("scipy.special.xlog1py", tnp.log1p, x, y)


def _times_log(what: str, log: Any, x: ArrayLike, y: ArrayLike) -> Array:
    (factor, value), _ = promoted(what, x, y, to_inexact=True)
    vanishes = (factor == 0) & ~tnp.isnan(value)
    return tnp.where(vanishes, 0.0, factor * log(tnp.where(vanishes, 1.0, value)))


def entr(x: ArrayLike) -> Array:
    """-x log(x) of positive x, 0 at 0, and -inf below.

    >>> entr(np.array([0.0, 1.0, -1.0]))
    Array([  0.,   0., -inf], dtype=float32)
    """
    value = inexact_array(x, "scipy.special.entr")
    return tnp.where(value < 0, -tnp.inf, 0.0 - xlogy(value, value))


__all__ = ["entr", "erf", "erfinv", "expit", "log_softmax", "logit", "logsumexp", "softmax", "xlog1py", "xlogy"]
