"""Activation functions: element-wise functions put between the layers of a neural network.

Those with a corner have the derivatives that `jax.nn` gives there.
"""

from __future__ import annotations

import math
from typing import Any

from tinyxla import numpy as tnp
from tinyxla.api.eager_replay import replayed
from tinyxla.errors import ShapeError
from tinyxla.lax.elementwise import clamp, stop_gradient
from tinyxla.lax.special import erfc
from tinyxla.numpy.arguments import ArrayLike, array_of, cast, inexact, inexact_array, operand, type_of
from tinyxla.numpy.elementwise.definitions import constant_beyond, with_slope
from tinyxla.ops import elementwise
from tinyxla.shapes import element_type
from tinyxla.shapes.shape import canonical_axis
from tinyxla.tracing.array import Array
from tinyxla.tracing.core import Tracer
from tinyxla.tracing.promotion import join_types


def identity(x: ArrayLike) -> Array:
    """x itself.

    Args:
        x: an array, or a number.

    Returns:
        The argument.

    Raises:
        DTypeError: what is no array or number.

    Example:
        >>> import tinyxla as tx
        >>> tx.nn.identity(tx.numpy.arange(3))
        Array([0, 1, 2], dtype=int32)
    """
    return array_of(x, "nn.identity")


def _with_number(number: complex, x: ArrayLike, what: str) -> Array:
    """A floating array, of the type that sums of x and a Python number have: with a float that of integers is the
    default one, weakly."""
    value = array_of(x, what)
    return cast(value, *inexact(join_types((value.dtype, value.weak_type), type_of(number))))


def _parameter(value: ArrayLike, what: str) -> Any:
    """A parameter of an activation: a Python number, or an array, of integers, too, which leave the type of floats as
    it is."""
    return operand(value, what)


# --- with corners -----------------------------------------------------------------------------------------------------


@replayed
def relu(x: ArrayLike) -> Array:
    """The rectified linear unit (ReLU): max(x, 0), with the derivative 0 at 0 and at NaN, which stays NaN.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape and element type of x; of booleans, of integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import relu
    >>> relu(np.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    value = array_of(x, "nn.relu")
    if value.dtype.kind == "b":
        value = cast(value, *join_types((value.dtype, False), type_of(0)))
    zero = tnp.zeros_like(value)
    if value.dtype.kind in "iu":
        return tnp.where(value <= 0, zero, value)
    is_nan = tnp.isnan(value)
    if value.dtype.kind == "c":  # by the real part first, which may be a number beside a NaN
        return tnp.where(value <= 0, zero, tnp.where(is_nan, stop_gradient(value), value))
    # The derivative takes one comparison; NaN stays NaN.
    return tnp.where(value > 0, value, tnp.where(is_nan, stop_gradient(value), zero))


@replayed
def relu6(x: ArrayLike) -> Array:
    """The rectified linear unit up to 6: min(max(x, 0), 6), with the derivative 0 at both corners.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import relu6
    >>> relu6(np.array([-1.0, 2.0, 8.0]))
    Array([0., 2., 6.], dtype=float32)
    """
    value = _with_number(0.0, x, "nn.relu6")
    if value.dtype.kind == "c":  # in NumPy's order, by the real part first
        return tnp.minimum(tnp.maximum(value, 0.0), 6.0)
    return clamp(0.0, value, 6.0)


@replayed
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """The leaky rectified linear unit: x where it is positive, else x times a small slope.

    Args:
        x: an array, or a number.
        negative_slope: the slope for negative values.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import leaky_relu
    >>> leaky_relu(np.array([-1.0, 2.0]), 0.5)
    Array([-0.5,  2. ], dtype=float32)
    """
    value = array_of(x, "nn.leaky_relu")
    return tnp.where(value >= 0, value, _parameter(negative_slope, "nn.leaky_relu") * value)


@replayed
def hard_tanh(x: ArrayLike) -> Array:
    """The hard hyperbolic tangent, which is piecewise linear: x, or -1 or 1 beyond them.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape and element type of x; of booleans, of integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import hard_tanh
    >>> hard_tanh(np.array([-3.0, 0.5]))
    Array([-1. ,  0.5], dtype=float32)
    """
    value = array_of(x, "nn.hard_tanh")
    above = value if element_type(value.dtype).kind == "unsigned" else tnp.where(value < -1, -1, value)
    return tnp.where(value > 1, 1, above)


@replayed
def hard_sigmoid(x: ArrayLike) -> Array:
    """The hard sigmoid, which is piecewise linear: relu6(x + 3) / 6.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import hard_sigmoid
    >>> hard_sigmoid(np.array([-4.0, 0.0]))
    Array([0. , 0.5], dtype=float32)
    """
    return relu6(_with_number(0.0, x, "nn.hard_sigmoid") + 3.0) / 6.0


@replayed
def hard_silu(x: ArrayLike) -> Array:
    """The hard SiLU (hard swish): x times hard_sigmoid(x).

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import hard_silu
    >>> hard_silu(np.array([-4.0, 3.0]))
    Array([-0.,  3.], dtype=float32)
    """
    value = _with_number(0.0, x, "nn.hard_silu")
    return value * hard_sigmoid(value)


hard_swish = hard_silu

# --- exponential below zero -------------------------------------------------------------------------------------------


@replayed
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """The exponential linear unit (ELU): x where it is positive, else alpha (exp(x) - 1).

    Args:
        x: an array, or a number.
        alpha: the scale of negative values.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import elu
    >>> elu(np.array([-100.0, 2.0]))
    Array([-1.,  2.], dtype=float32)
    """
    value = _with_number(0.0, x, "nn.elu")
    below = tnp.where(value > 0, tnp.zeros_like(value), value)  # expm1 of large x would overflow, and so its derivative
    return tnp.where(value > 0, value, _parameter(alpha, "nn.elu") * tnp.expm1(below))


@replayed
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """The continuously differentiable exponential linear unit (CELU): x where it is positive, else alpha (exp(x /
    alpha) - 1).

    Source: J. T. Barron, "Continuously differentiable exponential linear units", arXiv:1704.07483.

    Args:
        x: an array, or a number.
        alpha: the scale of negative values, positive.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import celu
    >>> celu(np.array([0.0, 2.0]), 2.0)
    Array([0., 2.], dtype=float32)
    """
    value, alpha = _with_number(0.0, x, "nn.celu"), _parameter(alpha, "nn.celu")
    below = tnp.where(value > 0, tnp.zeros_like(value), value)
    return tnp.where(value > 0, value, alpha * tnp.expm1(below / alpha))


# Chosen so that mean 0 and variance 1 are a fixed point of a layer.
# Source: G. Klambauer et al., "Self-normalizing neural networks", NeurIPS 2017, equation (14) of the appendix.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@replayed
def selu(x: ArrayLike) -> Array:
    """The scaled exponential linear unit (SELU): `elu` with the factors that keep activations normalised.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import selu
    >>> selu(np.array([0.0]))
    Array([0.], dtype=float32)
    """
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


# --- smooth -----------------------------------------------------------------------------------------------------------

_SATURATED = 1000.0  # exp(-x) is 0 beyond, in all types


def sigmoid(x: ArrayLike) -> Array:
    """The sigmoid (logistic) function: 1 / (1 + exp(-x)).

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.nn import sigmoid
    >>> sigmoid(0.0)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return elementwise.logistic(inexact_array(x, "nn.sigmoid"))


@replayed
def softplus(x: ArrayLike) -> Array:
    """The softplus function: log(1 + exp(x)), without overflow.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import softplus
    >>> softplus(np.array([-np.inf, 100.0]))
    Array([  0., 100.], dtype=float32)
    """
    value = _with_number(0, x, "nn.softplus")
    if value.dtype.kind == "c":  # with the imaginary part of the principal logarithm
        return tnp.logaddexp(value, 0)
    positive = value > 0
    size = tnp.where(positive, value, -value)  # not abs, whose derivatives at 0 are those of neither side
    return tnp.where(positive, value, tnp.zeros_like(value)) + tnp.log1p(tnp.exp(-size))


@replayed
def log_sigmoid(x: ArrayLike) -> Array:
    """The logarithm of the sigmoid, accurate also where that is nearly 0 or 1.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import log_sigmoid
    >>> log_sigmoid(np.array([-100.0]))
    Array([-100.], dtype=float32)
    """
    return -softplus(-inexact_array(x, "nn.log_sigmoid"))


@replayed
def soft_sign(x: ArrayLike) -> Array:
    """The soft sign: x / (1 + |x|).

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import soft_sign
    >>> soft_sign(np.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32)
    """
    value = _with_number(0, x, "nn.soft_sign")
    return value / cast(tnp.abs(value) + 1.0, value.dtype, value.weak_type)


@replayed
def silu(x: ArrayLike) -> Array:
    """The sigmoid linear unit (SiLU, swish): x times sigmoid(x).

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import silu
    >>> silu(np.array([0.0, 100.0]))
    Array([  0., 100.], dtype=float32)
    """
    value = inexact_array(x, "nn.silu")
    if value.dtype.kind == "c":
        return value * sigmoid(value)
    return value * sigmoid(constant_beyond(value, _SATURATED))


swish = silu


@replayed
def mish(x: ArrayLike) -> Array:
    """The mish function: x times tanh(softplus(x)).

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import mish
    >>> mish(np.array([0.0, 100.0]))
    Array([  0., 100.], dtype=float32)
    """
    value = _with_number(0, x, "nn.mish")
    if value.dtype.kind == "c":
        return value * tnp.tanh(softplus(value))
    return value * tnp.tanh(softplus(constant_beyond(value, _SATURATED)))


@replayed
def squareplus(x: ArrayLike, b: ArrayLike = 4.0) -> Array:
    """The squareplus function: (x + sqrt(x**2 + b)) / 2, a softplus without exponentials.

    Args:
        x: an array, or a number.
        b: the curvature at 0; with 0 it is `relu`.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import squareplus
    >>> squareplus(np.array([0.0]))
    Array([1.], dtype=float32)
    """
    value = inexact_array(x, "nn.squareplus")
    large = tnp.abs(value) > math.sqrt(float(tnp.finfo(value.dtype).max)) / 2  # the square overflows
    safe = tnp.where(large, tnp.ones_like(value), value)
    found = (safe + tnp.sqrt(tnp.square(safe) + _parameter(b, "nn.squareplus"))) / 2.0
    return tnp.where(large, tnp.where(value > 0, value, tnp.zeros_like(value)), found)


@replayed
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """The Gaussian error linear unit (GELU): x times the normal distribution function at x, or (`approximate`) a
    formula with tanh close to it.

    Source: D. Hendrycks and K. Gimpel, "Gaussian error linear units", arXiv:1606.08415, section 2.

    Args:
        x: an array, or a number.
        approximate: whether to use the formula with tanh.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import gelu
    >>> gelu(np.array([0.0, 100.0]), approximate=False)
    Array([  0., 100.], dtype=float32)
    """
    value = inexact_array(x, "nn.gelu")
    if approximate:
        near = value if value.dtype.kind == "c" else constant_beyond(value, 30.0)
        inner = math.sqrt(2 / math.pi) * (near + 0.044715 * (near * near * near))
        return value * (0.5 * (1.0 + tnp.tanh(inner)))
    return 0.5 * value * erfc(constant_beyond(value, 30.0) * -math.sqrt(0.5))


@replayed
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The gated linear unit (GLU): the first half of x along an axis times the sigmoid of the second.

    Args:
        x: an array whose size along the axis is even.
        axis: the axis.

    Returns:
        An array of half the size along the axis, in floating point.

    Raises:
        ShapeError: an odd size.
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import glu
    >>> glu(np.array([1.0, 2.0, 0.0, 0.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    value = inexact_array(x, "nn.glu")
    d = canonical_axis(axis, value.ndim, "nn.glu")
    if value.shape[d] % 2:
        raise ShapeError(f"nn.glu: axis {axis} of shape {value.shape} has an odd size, so it has no halves.")
    first, second = tnp.split(value, 2, axis=d)
    return first * sigmoid(second)


@replayed
def log1mexp(x: ArrayLike) -> Array:
    """log(1 - exp(-x)) of positive x, exact for small and for large x.

    Source: M. Mächler, "Accurately computing log(1 - exp(-|a|))", 2012, equation (7).

    Args:
        x: positive floating-point numbers.

    Returns:
        An array of the shape of x.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import log1mexp
    >>> log1mexp(np.array([np.inf]))
    Array([-0.], dtype=float32)
    """
    return _log_of_complement(inexact_array(x, "nn.log1mexp"))


def _log_one_minus_exp(value: Any) -> Any:
    small = value < math.log(2)
    near = tnp.where(small, value, tnp.ones_like(value))  # either formula gets harmless values where the other is taken
    far = tnp.where(small, tnp.ones_like(value), value)
    return tnp.where(small, tnp.log(-tnp.expm1(-near)), tnp.log1p(-tnp.exp(-far)))


def _log1mexp_slope(ans: Any, x: Any) -> Any:
    """1 / (exp(x) - 1), where exp(x) does not overflow."""
    near = x < 1
    below, above = tnp.where(near, x, 1.0), tnp.where(near, 1.0, x)
    return tnp.where(near, 1.0 / tnp.expm1(below), tnp.exp(-above) / -tnp.expm1(-above))


_log_of_complement = with_slope("log1mexp", _log_one_minus_exp, _log1mexp_slope)


def tanh(x: ArrayLike) -> Array:
    """The hyperbolic tangent.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> from tinyxla.nn import tanh
    >>> tanh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return elementwise.tanh(inexact_array(x, "nn.tanh"))


@replayed
def one_hot(x: ArrayLike, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Array:
    """For each integer a vector that is 1 there and else 0; all zeros for integers outside 0 ... num_classes - 1.

    Args:
        x: integers.
        num_classes: the length of the vectors.
        dtype: of the result, by default floating point.
        axis: where the vectors lie in the result.

    Returns:
        An array of the shape of x with one more axis, of size `num_classes`.

    Raises:
        AxisError: an axis that the array does not have.

    >>> import numpy as np
    >>> from tinyxla.nn import one_hot
    >>> one_hot(np.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    classes = array_of(tnp.asarray(x) if isinstance(x, list | tuple) else x, "nn.one_hot")
    if isinstance(num_classes, Tracer):
        num_classes.concrete("num_classes of nn.one_hot, which decides the shape,")
    rank = classes.ndim + 1
    d = canonical_axis(axis, rank, "nn.one_hot")
    spread = [1] * rank
    spread[d] = num_classes
    index_type = classes.dtype if element_type(classes.dtype).kind != "pred" else None
    numbers = tnp.arange(num_classes, dtype=index_type).reshape(spread)
    return (tnp.expand_dims(classes, d) == numbers).astype(float if dtype is None else dtype)


@replayed
def sparse_plus(x: ArrayLike) -> Array:
    """The sparse plus function: 0 up to -1, x from 1, and (x + 1)^2 / 4 between; a `softplus` that vanishes.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.nn import sparse_plus
    >>> sparse_plus(np.array([-2.0, 0.0, 2.0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    value = _with_number(0.0, x, "nn.sparse_plus")
    return tnp.where(value <= -1, 0, tnp.where(value >= 1, value, (value + 1) ** 2 / 4))


@replayed
def sparse_sigmoid(x: ArrayLike) -> Array:
    """The sparse sigmoid, the derivative of `sparse_plus`: 0 up to -1, 1 from 1, and linear between.

    Args:
        x: an array, or a number.

    Returns:
        An array of the shape of x, in floating point also for integers.

    Raises:
        DTypeError: complex numbers.

    >>> import numpy as np
    >>> from tinyxla.nn import sparse_sigmoid
    >>> sparse_sigmoid(np.array([-2.0, 0.0, 2.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return tnp.clip(0.5 * (_with_number(0.0, x, "nn.sparse_sigmoid") + 1), 0, 1)
