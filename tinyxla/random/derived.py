"""Distributions that are made of others: the gamma distribution by rejection, and what follows from it, from normal and
from uniform numbers. Keys are split as `jax.random` does, so the numbers are those it gives for the same key, up to the
last places (where these decide whether a candidate is rejected, a number may be another one).

Sources: G. Marsaglia and W. W. Tsang, "A Simple Method for Generating Gamma Variables" (2000); W. Hörmann, "The
Transformed Rejection Method for Generating Poisson Random Variables" and "The Generation of Binomial Random Variates"
(1993); L. Devroye, "Non-Uniform Random Variate Generation" (1986), section X.4.3, for binomial numbers of small mean;
D. Knuth, "The Art of Computer Programming", volume 2, for Poisson numbers of small mean; F. Barthe and others, "A
Probabilistic Approach to the Geometry of the l_p^n-Ball" (2005).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinyxla import lax, numpy as tnp
from tinyxla.api import vmap
from tinyxla.api.eager_replay import drawn
from tinyxla.custom_derivatives import custom_jvp
from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.nn.normalization import softmax
from tinyxla.numpy.arguments import cast, listed, operand, promoted, python_dtype, shape_of
from tinyxla.random.distributions import (
    DTypeLike,
    _float_type as float_type,  # pyright: ignore[reportPrivateUsage]
    _parameter as parameter,  # pyright: ignore[reportPrivateUsage]
    _probability as probability,  # pyright: ignore[reportPrivateUsage]
    _real as real,  # pyright: ignore[reportPrivateUsage]
    _shape as shape_for,  # pyright: ignore[reportPrivateUsage]
    _spread as spread,  # pyright: ignore[reportPrivateUsage]
    exponential,
    normal,
    rademacher,
    uniform,
)
from tinyxla.random.keys import ShapeLike, checked_key, clone, split
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.promotion import default_float, default_int

MaybeShape = ShapeLike | None


# --- gamma and what follows from it -----------------------------------------------------------------------------------


@drawn("shape", "dtype")
def gamma(key: Array, a: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The gamma distribution: numbers x > 0 with the density x**(a-1) exp(-x) / gamma(a); differentiable by a.

    Args:
        key: a random key.
        a: the shape parameter, a positive number or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, gamma
    >>> gamma(PRNGKey(42), 2.0, (3,)).shape
    (3,)
    """
    return _gamma("gamma", key, a, shape, dtype, False)


@drawn("shape", "dtype")
def loggamma(key: Array, a: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The logarithm of numbers of the gamma distribution, which for small `a` are too small themselves.

    Args:
        key: a random key.
        a: the shape parameter, a positive number or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    Example:
        >>> import tinyxla as tx
        >>> bool(tx.random.loggamma(tx.random.key(0), 1e-3) < 0)
        True
    """
    return _gamma("loggamma", key, a, shape, dtype, True)


def _gamma(name: str, key: Array, a: Any, shape: MaybeShape, dtype: DTypeLike, logarithmic: bool) -> Any:
    what = f"tinyxla.random.{name}"
    sizes, kind = shape_for(what, shape, a), float_type(what, dtype)
    alphas = spread(what, a, kind, sizes).ravel()
    keys = split(checked_key(what, key), math.prod(sizes))

    @custom_jvp
    def samples(keys: Any, alphas: Any) -> Any:
        return vmap(lambda k, alpha: _one_gamma(k, alpha, logarithmic))(keys, alphas)

    @samples.defjvp
    def rule(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        alpha, t = primals[1], tangents[1]
        x = samples(*primals)
        if not logarithmic:
            return x, t * lax.random_gamma_grad(alpha, x)
        plain = tnp.maximum(tnp.exp(x), float(tnp.finfo(kind).tiny))
        return x, t * lax.random_gamma_grad(alpha, plain) / plain

    return samples(keys, alphas).reshape(sizes) if alphas.size else tnp.zeros(sizes, kind)


def _one_gamma(key: Any, alpha: Any, logarithmic: bool) -> Any:
    """Candidates d v with v = (1 + c x)^3, x normal, until one is accepted. For alpha < 1 the number is that for
    alpha + 1 times u^(1 / alpha), u uniform."""
    dtype = alpha.dtype
    large = alpha >= 1
    d = tnp.where(large, alpha, alpha + 1) - 1 / 3
    c = (1 / 3) / tnp.sqrt(d)

    def attempt(key: Any, for_x: Any, for_u: Any) -> Any:
        """The state after a candidate: a further key for x, whether v is positive, and whether it is accepted."""
        following, own = split(for_x)
        x = normal(own, (), dtype)
        root = 1 + x * c
        square, v, u = x * x, (root * root) * root, uniform(for_u, (), dtype)
        # Asked in the negative, so that NaN, which parameters give that are no positive numbers, is accepted at once.
        slowly = tnp.log(u) >= square * 0.5 + d * ((1 - v) + tnp.log(tnp.where(root > 0, v, 1)))
        rejected = (root <= 0) | ((u >= 1 - 0.0331 * (square * square)) & slowly)
        return key, following, for_u, v, root > 0, ~rejected

    def again(state: Any) -> Any:
        key, *same, _, positive, _ = state
        return attempt(*(tnp.where(positive, x, y) for x, y in zip(split(key, 3), (key, *same), strict=True)))

    first, for_boost = split(key)
    # Most first candidates are accepted: those of all numbers are made side by side.
    _, _, _, v, _, _ = lax.while_loop(lambda state: tnp.logical_not(state[-1]), again, attempt(*split(first, 3)))
    if logarithmic:
        lower = -exponential(for_boost, (), dtype)
        return (tnp.log(d) + tnp.log(v)) + tnp.where(large | (lower == 0), 0.0, lower * (1 / alpha)).astype(dtype)
    boost = tnp.where(large, 1.0, tnp.power(1 - uniform(for_boost, (), dtype), 1 / alpha))
    return ((d * v) * boost).astype(dtype)


@drawn("shape", "dtype")
def beta(key: Array, a: Any, b: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The beta distribution: numbers from 0 to 1 with a density proportional to x**(a-1) (1-x)**(b-1).

    Args:
        key: a random key.
        a, b: positive numbers, or arrays.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, beta
    >>> beta(PRNGKey(42), 2.0, 3.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.beta"
    sizes, kind = shape_for(what, shape, a, b), float_type(what, dtype)
    keys = split(checked_key(what, key))
    first, second = (loggamma(k, x, sizes, kind) for k, x in zip(keys, (a, b), strict=True))
    largest = tnp.maximum(first, second)
    left, right = tnp.exp(first - largest), tnp.exp(second - largest)
    return left / (left + right)


@drawn("shape", "dtype")
def dirichlet(key: Array, alpha: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The Dirichlet distribution: vectors of positive numbers whose sum is 1.

    Args:
        key: a random key.
        alpha: concentrations, an array of shape [..., n].
        shape: the axes of the result in front.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `(*shape, n)`; `shape` is by default that of `alpha` without its last axis.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> import numpy as np
    >>> from tinyxla.random import PRNGKey, dirichlet
    >>> dirichlet(PRNGKey(42), np.ones(3), (4,)).shape
    (4, 3)
    """
    what = "tinyxla.random.dirichlet"
    weights = listed(alpha, what)
    if weights.ndim == 0:
        raise ShapeError(f"{what}: alpha must have at least one dimension, the entries of a vector, but is a number.")
    sizes = weights.shape[:-1] if shape is None else shape_of(what, shape)
    kind = float_type(what, dtype)
    return softmax(loggamma(checked_key(what, key), weights, (*sizes, weights.shape[-1]), kind), -1)


@drawn("shape", "dtype")
def chisquare(key: Array, df: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The chi-square distribution: sums of the squares of `df` normal numbers.

    Args:
        key: a random key.
        df: degrees of freedom, a number or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, chisquare
    >>> chisquare(PRNGKey(42), 3.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.chisquare"
    sizes, kind = shape_for(what, shape, df), float_type(what, dtype)
    half = parameter(what, df, kind) / 2
    return tnp.exp(loggamma(checked_key(what, key), half, sizes, kind)) * 2


@drawn("shape", "dtype")
def f(key: Array, dfnum: Any, dfden: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The F distribution: quotients of two chi-square numbers, each divided by its degrees of freedom.

    Args:
        key: a random key.
        dfnum, dfden: degrees of freedom, numbers or arrays.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, f
    >>> f(PRNGKey(42), 3.0, 4.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.f"
    sizes, kind = shape_for(what, shape, dfnum, dfden), float_type(what, dtype)
    below, above = split(checked_key(what, key))
    number, divisor = (parameter(what, x, kind) for x in (dfnum, dfden))
    return (chisquare(above, number, sizes, kind) / number) / (chisquare(below, divisor, sizes, kind) / divisor)


@drawn("shape", "dtype")
def t(key: Array, df: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """Student's t distribution: normal numbers divided by the root of chi-square ones per degree of freedom.

    Args:
        key: a random key.
        df: degrees of freedom, a number or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, t
    >>> t(PRNGKey(42), 3.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.t"
    sizes, kind = shape_for(what, shape, df), float_type(what, dtype)
    above, below = split(checked_key(what, key))
    half = parameter(what, df, kind) / 2
    return normal(above, sizes, kind) * tnp.sqrt(half / gamma(below, half, sizes, kind))


def _order(what: str, p: Any) -> Any:
    """The exponent p, which is positive if it is known."""
    p = operand(p, what)
    if not isinstance(p, Array) and not (p.imag == 0 and p.real > 0):
        raise AttributeValueError(f"{what}: p must be positive, but got {p}.")
    return p


@drawn("shape", "dtype")
def generalized_normal(key: Array, p: float, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The generalized normal distribution: numbers with a density proportional to exp(-|x|**p).

    Args:
        key: a random key.
        p: a positive number.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, generalized_normal
    >>> generalized_normal(PRNGKey(42), 3.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.generalized_normal"
    size, sign = split(checked_key(what, key))
    p = _order(what, p)
    sizes, kind = shape_of(what, shape), float_type(what, dtype)
    return rademacher(sign, sizes, kind) * gamma(size, 1 / p, sizes, kind) ** (1 / p)


@drawn("d", "p", "shape", "dtype")
def ball(key: Array, d: int, p: float = 2, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The uniform distribution on the unit ball of d dimensions in the norm of order p.

    Args:
        key: a random key.
        d: the number of dimensions.
        p: the order of the norm, positive.
        shape: the axes of the result in front.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `(*shape, d)`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        AttributeValueError: a p that is not positive.

    >>> from tinyxla.random import PRNGKey, ball
    >>> ball(PRNGKey(42), 3, shape=(4,)).shape
    (4, 3)
    """
    what = "tinyxla.random.ball"
    p = _order(what, p)
    sizes, kind = shape_of(what, shape), float_type(what, dtype)
    direction, radius = split(checked_key(what, key))
    point = generalized_normal(direction, p, (*sizes, d), kind)
    length = (tnp.abs(point) ** p).sum(-1) + exponential(radius, sizes, kind)
    return point / (length ** (1 / p))[..., None]


# --- by normal numbers ------------------------------------------------------------------------------------------------


@drawn("shape", "dtype", "method")
def multivariate_normal(
    key: Array, mean: Any, cov: Any, shape: MaybeShape = None, dtype: DTypeLike = None, method: str = "cholesky"
) -> Array:
    """The multivariate normal distribution: normal vectors with a mean and a covariance.

    Args:
        key: a random key.
        mean: of shape [..., n].
        cov: of shape [..., n, n].
        method: how a root of the covariance is found: "cholesky", "eigh" or "svd".
        shape: the axes of the result in front.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `(*shape, n)`; `shape` is by default what the other axes of both broadcast to.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point, a complex mean or covariance.
        ShapeError: shapes that do not fit.
        AttributeValueError: another method.

    >>> import numpy as np
    >>> from tinyxla.random import PRNGKey, multivariate_normal
    >>> multivariate_normal(PRNGKey(42), np.zeros(2), np.eye(2), (3,)).shape
    (3, 2)
    """
    what = "tinyxla.random.multivariate_normal"
    (centre, covariance), (kind, _) = promoted(what, real(what, mean), real(what, cov), to_inexact=True)
    if dtype is not None:
        kind = float_type(what, dtype)
        centre, covariance = cast(centre, kind, False), cast(covariance, kind, False)
    if centre.ndim < 1 or covariance.ndim < 2 or covariance.shape[-2:] != (centre.shape[-1],) * 2:
        raise ShapeError(
            f"{what}: mean must be of shape (..., n) and cov of shape (..., n, n), but they have the shapes "
            f"{centre.shape} and {covariance.shape}."
        )
    sizes = shape_for(what, shape, centre[..., 0], covariance[..., 0, 0])
    if method == "cholesky":
        root = tnp.linalg.cholesky(covariance)
    elif method == "eigh":
        values, vectors = tnp.linalg.eigh(covariance)
        root = vectors * tnp.sqrt(values[..., None, :])
    elif method == "svd":
        left, values, _ = tnp.linalg.svd(covariance)
        root = left * tnp.sqrt(values[..., None, :])
    else:
        raise AttributeValueError(f"{what}: method must be 'cholesky', 'eigh' or 'svd', but is {method!r}.")
    drawn = normal(checked_key(what, key), (*sizes, centre.shape[-1]), kind)
    return tnp.broadcast_to(centre, drawn.shape) + tnp.einsum("...ij,...j->...i", root, drawn)


def _matrix_type(what: str, dtype: DTypeLike) -> np.dtype[Any]:
    """A floating or complex type."""
    found = default_float() if dtype is None else python_dtype(dtype)
    return found if found.kind == "c" else float_type(what, found)


@drawn("n", "shape", "dtype", "m")
def orthogonal(key: Array, n: int, shape: ShapeLike = (), dtype: DTypeLike = None, m: int | None = None) -> Array:
    """The uniform (Haar) distribution of orthogonal matrices, or of unitary ones if the dtype is complex.

    Args:
        key: a random key.
        n, m: the numbers of rows and columns; m is n, if None. If they differ, rows or columns are orthonormal.
        shape: the axes of the result in front.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `(*shape, n, m)`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point or complex.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.random import PRNGKey, orthogonal
    >>> x = orthogonal(PRNGKey(42), 3)
    >>> bool(tnp.allclose(x @ x.T, tnp.eye(3), atol=1e-5))
    True
    """
    what = "tinyxla.random.orthogonal"
    columns = n if m is None else m
    sizes = shape_of(what, (max(n, columns), min(n, columns)))
    drawn = normal(checked_key(what, key), (*shape_of(what, shape), *sizes), _matrix_type(what, dtype))
    found: Any = tnp.linalg.qr(drawn)
    turned = found[0] * tnp.sign(tnp.diagonal(found[1], axis1=-2, axis2=-1))[..., None, :]
    return turned.mT if n < columns else turned


@drawn("shape", "dtype")
def maxwell(key: Array, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The Maxwell distribution: lengths of vectors of three normal numbers.

    Args:
        key: a random key.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, maxwell
    >>> maxwell(PRNGKey(42), (3,)).shape
    (3,)
    """
    what = "tinyxla.random.maxwell"
    vector = normal(checked_key(what, key), (*shape_of(what, shape), 3), float_type(what, dtype))
    return tnp.sqrt((vector[..., 0] ** 2 + vector[..., 1] ** 2) + vector[..., 2] ** 2)


@drawn("shape", "dtype")
def double_sided_maxwell(key: Array, loc: Any, scale: Any, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The double-sided Maxwell distribution: numbers of `maxwell` with a random sign, times `scale`, plus `loc`.

    Args:
        key: a random key.
        loc, scale: numbers, or arrays.
        shape: the axes of the result in front.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `(*shape, *s)`, where s is what `loc` and `scale` broadcast to; `shape` is by default s.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, double_sided_maxwell
    >>> double_sided_maxwell(PRNGKey(42), 0.0, 1.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.double_sided_maxwell"
    kind, given = float_type(what, dtype), shape_for(what, None, loc, scale)
    sizes = (*(shape_of(what, shape) or given), *given)
    size, sign = split(checked_key(what, key))
    return maxwell(size, sizes, kind) * rademacher(sign, sizes, kind) * spread(what, scale, kind, sizes) + spread(
        what, loc, kind, sizes
    )


@drawn("shape", "dtype")
def wald(key: Array, mean: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The Wald (inverse normal) distribution with that mean and scale 1.

    Args:
        key: a random key.
        mean: a positive number, or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, wald
    >>> wald(PRNGKey(42), 2.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.wald"
    sizes, kind = shape_for(what, shape, mean), float_type(what, dtype)
    centre = spread(what, mean, kind, sizes)
    first, second = split(checked_key(what, key))
    y = normal(first, sizes, kind) ** 2
    root = tnp.sqrt(4 * centre * y + centre**2 * y**2)
    x = centre + centre**2 * y / 2 - centre / 2 * root
    return tnp.where(uniform(second, sizes, kind) <= centre / (centre + x), x, centre**2 / x)


# --- by uniform numbers -----------------------------------------------------------------------------------------------


@drawn("shape", "dtype")
def pareto(key: Array, b: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The Pareto distribution: numbers x >= 1 with the density b x**(-b-1).

    Args:
        key: a random key.
        b: a positive number, or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, pareto
    >>> pareto(PRNGKey(42), 2.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.pareto"
    sizes, kind = shape_for(what, shape, b), float_type(what, dtype)
    return tnp.exp(exponential(checked_key(what, key), sizes, kind) / spread(what, b, kind, sizes))


@drawn("shape", "dtype")
def rayleigh(key: Array, scale: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The Rayleigh distribution: lengths of vectors of two normal numbers, times `scale`.

    Args:
        key: a random key.
        scale: a number, or an array.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, rayleigh
    >>> rayleigh(PRNGKey(42), 2.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.rayleigh"
    sizes, kind = shape_for(what, shape, scale), float_type(what, dtype)
    drawn = uniform(checked_key(what, key), sizes, kind)
    return spread(what, scale, kind, sizes) * tnp.sqrt(tnp.log(drawn) * -2)


@drawn("shape", "dtype")
def weibull_min(key: Array, scale: Any, concentration: Any, shape: ShapeLike = (), dtype: DTypeLike = None) -> Array:
    """The Weibull distribution: numbers that are larger than x with the probability exp(-(x / scale)**concentration).

    Args:
        key: a random key.
        scale, concentration: positive numbers.
        shape: of the result.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.

    >>> from tinyxla.random import PRNGKey, weibull_min
    >>> weibull_min(PRNGKey(42), 1.0, 2.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.weibull_min"
    drawn = uniform(checked_key(what, key), shape_of(what, shape), float_type(what, dtype))
    scale, concentration = (cast(operand(x, what), drawn.dtype) for x in (scale, concentration))
    return tnp.power(-tnp.log1p(-drawn), 1.0 / concentration) * scale


@drawn("shape", "dtype")
def triangular(
    key: Array, left: Any, mode: Any, right: Any, shape: MaybeShape = None, dtype: DTypeLike = None
) -> Array:
    """The triangular distribution: numbers from `left` to `right` whose density grows up to `mode` and falls from
    there.

    Args:
        key: a random key.
        left, mode, right: numbers, or arrays.
        shape: of the result; by default that of the parameters, broadcast.
        dtype: the floating-point type; by default float32, or float64 with `enable_x64`.
        out_sharding: where the result is to be.

    Returns:
        An array of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, triangular
    >>> triangular(PRNGKey(42), 0.0, 1.0, 3.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.triangular"
    sizes, kind = shape_for(what, shape, left, mode, right), float_type(what, dtype)
    low, top, high = (spread(what, x, kind, sizes) for x in (left, mode, right))
    drawn = uniform(checked_key(what, key), sizes, kind)
    rising = low + tnp.sqrt(drawn * (high - low) * (top - low))
    falling = high - tnp.sqrt((1 - drawn) * (high - low) * (high - top))
    return tnp.where(drawn < (top - low) / (high - low), rising, falling)


# --- whole numbers ----------------------------------------------------------------------------------------------------


def _integer_type(what: str, dtype: DTypeLike) -> np.dtype[Any]:
    found = default_int() if dtype is None else python_dtype(dtype)
    if not element_type(found).is_integer:
        raise DTypeError(f"{what}: the numbers are integers, but got dtype {found}.")
    return found


@drawn("shape", "dtype")
def geometric(key: Array, p: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The geometric distribution: the number of trials until one succeeds, if each does with probability p.

    Args:
        key: a random key.
        p: a probability, or an array.
        shape: of the result; by default that of the parameter.
        dtype: the integer type.
        out_sharding: where the result is to be.

    Returns:
        An array of integers of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` of no integers.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, geometric
    >>> geometric(PRNGKey(42), 0.5, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.geometric"
    sizes, kind = shape_for(what, shape, p), _integer_type(what, dtype)
    chance = probability(what, p)
    drawn = uniform(checked_key(what, key), sizes, chance.dtype)
    ratio = tnp.log(tnp.where(drawn == 0, 1, drawn)) / tnp.log1p(-chance)
    return (tnp.floor(ratio) + 1).astype(kind)


@drawn("shape", "dtype")
def poisson(key: Array, lam: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The Poisson distribution: the number of independent events of which there are `lam` on average.

    Args:
        key: a random key.
        lam: a number, or an array.
        shape: of the result; by default that of the parameter.
        dtype: the integer type.
        out_sharding: where the result is to be.

    Returns:
        An array of integers of the shape `shape`.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` of no integers.
        ShapeError: a shape to which the parameters do not broadcast.

    >>> from tinyxla.random import PRNGKey, poisson
    >>> poisson(PRNGKey(42), 3.0, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.poisson"
    sizes, kind = shape_for(what, shape, lam), _integer_type(what, dtype)
    source = checked_key(what, key)
    rate = spread(what, lam, np.dtype(np.float32), sizes)
    few = tnp.isnan(rate) | (rate < 10)
    small = _poisson_by_products(source, tnp.where(few, rate, 0.0), kind)
    large = _poisson_by_rejection(clone(source), tnp.where(few, 1e5, rate), few).astype(kind)
    return tnp.where(rate == 0, 0, tnp.where(few, small, large)).astype(kind)


def _poisson_by_products(key: Any, rate: Any, kind: np.dtype[Any]) -> Any:
    """The number of uniform numbers whose product stays above exp(-rate)."""

    def step(state: Any) -> Any:
        count, key, product = state
        following, own = split(key)
        count = tnp.where(product > -rate, count + 1, count)
        return count, following, product + tnp.log(uniform(own, rate.shape, np.float32))

    start = (tnp.zeros(rate.shape, kind), key, tnp.zeros(rate.shape, np.float32))
    return lax.while_loop(lambda state: (state[2] > -rate).any(), step, start)[0] - 1


def _poisson_by_rejection(key: Any, rate: Any, unwanted: Any) -> Any:
    """Hörmann's transformed rejection, with his constants."""
    b = 0.931 + 2.53 * tnp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    quick = 0.9277 - 3.6224 / (b - 2)

    def step(state: Any) -> Any:
        found, accepted, key = state
        following, for_u, for_v = split(key, 3)
        u = uniform(for_u, rate.shape, rate.dtype) - 0.5
        v = uniform(for_v, rate.shape, rate.dtype)
        inner = 0.5 - tnp.abs(u)
        k = tnp.floor((2 * a / inner + b) * u + rate + 0.43)
        bound = -rate + k * tnp.log(rate) - lax.lgamma(k + 1)
        slowly = tnp.log(v * inverse_alpha / (a / (inner * inner) + b)) <= bound
        outside = (k < 0) | ((inner < 0.013) & (v > inner))
        taken = ((inner >= 0.07) & (v <= quick)) | (~outside & slowly)
        return tnp.where(taken, k, found), accepted | taken, following

    start = (tnp.full(rate.shape, -1, rate.dtype), unwanted, key)
    return lax.while_loop(lambda state: ~state[1].all(), step, start)[0]


@drawn("shape", "dtype")
def binomial(key: Array, n: Any, p: Any, shape: MaybeShape = None, dtype: DTypeLike = None) -> Array:
    """The binomial distribution: how many of n trials succeed if each does with probability p, in floating point. NaN
    where n is negative or NaN, or p is no probability; of infinitely many trials infinitely many succeed, unless p is
    0.

    Args:
        key: a random key.
        n: numbers of trials.
        p: probabilities.
        shape: the shape of the result; by default the broadcast shape of the parameters.
        dtype: a floating-point type, `float32` unless another is asked for.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of counts, in floating point.

    Raises:
        ArgumentError: what is no key.
        DTypeError: a `dtype` that is not floating-point.
        ShapeError: a shape to which n and p do not broadcast.

    >>> from tinyxla.random import PRNGKey, binomial
    >>> binomial(PRNGKey(42), 10, 0.3, (3,)).shape
    (3,)
    """
    what = "tinyxla.random.binomial"
    sizes, kind = shape_for(what, shape, n, p), float_type(what, dtype)
    source = checked_key(what, key)
    trials, chance = (spread(what, x, kind, sizes) for x in (n, p))
    valid = (chance >= 0) & (chance <= 1) & (trials >= 0)
    endless = trials == math.inf
    trials = tnp.where(endless, 0, trials)
    rare = tnp.where(valid, tnp.where(chance < 0.5, chance, 1 - chance), 0)  # the rarer of success and failure
    few = ~valid | (trials * rare <= 10)
    trials = tnp.floor(trials)
    by_gaps = _binomial_by_gaps(source, tnp.where(valid & few, trials, -1), rare)
    other = _binomial_by_rejection(clone(source), tnp.where(few, 1e4, trials), tnp.where(few, 0.5, rare), few)
    found = tnp.where(few, by_gaps, other)
    found = tnp.where(chance < 0.5, found, trials - found)
    found = tnp.where(endless & (chance > 0), math.inf, found)
    return tnp.where(valid, found, tnp.nan).astype(kind)


def _binomial_by_gaps(key: Any, trials: Any, chance: Any) -> Any:
    """From one success to the next it takes a geometric number of trials; as many as fit."""
    scale = tnp.log1p(-chance)

    def step(state: Any) -> Any:
        count, used, key = state
        own, following = split(key)
        count = tnp.where(used <= trials, count + 1, count)
        return count, used + tnp.ceil(tnp.log(uniform(own, trials.shape, trials.dtype)) / scale), following

    start = (tnp.zeros_like(trials), tnp.zeros_like(trials), key)
    return lax.while_loop(lambda state: (state[1] <= trials).any(), step, start)[0] - 1


# What Stirling's formula for log(k!) leaves, for k up to 9; for larger ones it is taken to be that of 9.
_STIRLING = [math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + k + 1 - 0.5 * math.log(2 * math.pi) for k in range(10)]


def _binomial_by_rejection(key: Any, n: Any, p: Any, unwanted: Any) -> Any:
    """Hörmann's transformed rejection (BTRS), with his constants."""
    deviation, odds = tnp.sqrt(n * p * (1 - p)), p / (1 - p)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * deviation
    mode = tnp.floor((n + 1) * p)

    def rest(k: Any) -> Any:
        return tnp.take(tnp.asarray(_STIRLING, n.dtype), tnp.clip(k, 0, 9).astype(np.int32))

    def step(state: Any) -> Any:
        found, accepted, key = state
        following, for_u, for_v = split(key, 3)
        u = uniform(for_u, n.shape, n.dtype) - 0.5
        v = uniform(for_v, n.shape, n.dtype)
        inner = 0.5 - tnp.abs(u)
        k = tnp.floor((2 * a / inner + b) * u + (n * p + 0.5))
        bound = (
            (mode + 0.5) * tnp.log((mode + 1) / (odds * (n - mode + 1)))
            + (n + 1) * tnp.log((n - mode + 1) / (n - k + 1))
            + (k + 0.5) * tnp.log(odds * (n - k + 1) / (k + 1))
            + (rest(mode) + rest(n - mode) - rest(k) - rest(n - k))
        )
        slowly = (k >= 0) & (k <= n) & (tnp.log(v * alpha / (a / (inner * inner) + b)) <= bound)
        taken = ((inner >= 0.07) & (v <= 0.92 - 4.2 / b)) | slowly
        return tnp.where(taken, k, found), accepted | taken, following

    start = (tnp.full(n.shape, -1, n.dtype), unwanted, key)
    return lax.while_loop(lambda state: ~state[1].all(), step, start)[0]


@drawn("shape", "dtype", "unroll")
def multinomial(
    key: Array, n: Any, p: Any, *, shape: MaybeShape = None, dtype: DTypeLike = None, unroll: int | bool = 1
) -> Array:
    """How many of n trials have each outcome, along the last axis, as floating-point numbers.

    Args:
        key: a key.
        n: numbers of trials, of a shape that broadcasts with the leading axes of p.
        p: the outcomes' probabilities, along the last axis.
        shape: of the result; its last axis are the outcomes. By default the broadcast shape of n and p.
        dtype: a floating-point type, `float32` unless another is asked for.
        unroll: how many outcomes to write out after one another in the loop over them.
        out_sharding: the sharding of the result, with explicit mesh axes.

    Returns:
        An array of counts, in floating point.

    Raises:
        ArgumentError: what is no key.
        DTypeError: complex numbers.
        ShapeError: a shape that does not end with the outcomes.

    >>> import numpy as np
    >>> from tinyxla.random import PRNGKey, multinomial
    >>> multinomial(PRNGKey(42), 10, np.array([0.2, 0.3, 0.5])).sum()
    Array(10., dtype=float32)
    """
    what = "tinyxla.random.multinomial"
    kind = float_type(what, dtype)
    chances = parameter(what, p, kind)
    if not chances.ndim:
        raise ShapeError(f"{what}: p must have at least one dimension, the outcomes, but is a number.")
    outcomes = chances.shape[-1]
    if shape is not None:
        shape = shape_of(what, shape)
        if not shape or shape[-1] != outcomes:
            raise ShapeError(f"{what}: shape must end with the {outcomes} outcomes of p, but is {shape}.")
        shape = shape[:-1]
    sizes = shape_for(what, shape, n, chances[..., 0])
    left = tnp.flip(tnp.cumsum(tnp.flip(chances, -1), -1), -1)
    shares = tnp.moveaxis(tnp.clip(chances / tnp.where(left == 0, 1, left), 0, 1), -1, 0)

    def outcome(trials: Any, given: Any) -> Any:
        found = binomial(given[0], trials, given[1], sizes, kind)
        return trials - found, found

    keys = split(checked_key(what, key), shares.shape[0])
    _, counts = lax.scan(outcome, spread(what, n, kind, sizes), (keys, shares), unroll=unroll)
    return tnp.moveaxis(counts, 0, -1)
