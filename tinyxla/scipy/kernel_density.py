"""Kernel density estimation with Gaussian kernels, under the name of `jax.scipy.stats.gaussian_kde`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla import numpy as tnp, random
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.nn.normalization import logsumexp
from tinyxla.numpy.arguments import ArrayLike, inexact_array, promoted, refuse_complex, shape_of
from tinyxla.numpy.linalg import triangular
from tinyxla.scipy.normal_special import ndtr
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.tree_util import register_pytree_node_class

_NAME = "scipy.stats.gaussian_kde"
_ARRAYS = ("neff", "dataset", "weights", "covariance", "inv_cov")


@register_pytree_node_class
class gaussian_kde:
    """A density made of equal normal ones around samples (Scott, "Multivariate Density Estimation", 1992).

    Args:
        dataset: n samples, at least two: of shape [n], or [d, n] for vectors of d numbers.
        bw_method: the width relative to the samples' covariance: "scott" (also None), "silverman", a number, or a
            function that makes one of this object, of which `dataset`, `weights`, `neff`, `d` and `n` are set then.
        weights: of shape [n], positive.

    It is a pytree of the arrays `neff`, `dataset`, `weights`, `covariance` and `inv_cov`.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import gaussian_kde
    >>> density = gaussian_kde(np.array([0.0, 1.0, 2.0]))
    >>> density(np.array([1.0])).round(4)
    Array([0.3182], dtype=float32)
    >>> density.integrate_box_1d(-10.0, 1.0).round(4)
    Array(0.5, dtype=float32)
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: ArrayLike, bw_method: Any = None, weights: ArrayLike = None) -> None:
        (samples, *given), _ = promoted(_NAME, dataset, *(() if weights is None else (weights,)), to_inexact=True)
        refuse_complex(_NAME, samples, *given)
        self.dataset = tnp.atleast_2d(samples)
        if self.dataset.ndim != 2 or self.dataset.size < 2:
            raise ShapeError(
                f"{_NAME}: dataset should have multiple elements, [n] or [d, n], but is {Shape.of(samples)}."
            )
        weight: Any = given[0] if given else tnp.ones(self.n, self.dataset.dtype)
        if weight.shape != (self.n,):
            raise ShapeError(f"{_NAME}: weights must be one for each of {self.n} samples, but are {Shape.of(weight)}.")
        self.weights = weight / tnp.sum(weight)
        self.neff = 1 / tnp.sum(self.weights**2)
        factor = self._bandwidth(bw_method)
        spread = tnp.atleast_2d(tnp.cov(self.dataset, bias=False, aweights=self.weights))
        self.covariance = spread * factor**2
        self.inv_cov = tnp.linalg.inv(spread) / factor**2

    def _bandwidth(self, method: Any) -> Any:
        if method is None or (isinstance(method, str) and method == "scott"):
            return self.neff ** (-1 / (self.d + 4))
        if isinstance(method, str) and method == "silverman":
            return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        if isinstance(method, Callable):
            return method(self)
        if isinstance(method, str) or np.ndim(method) != 0:
            raise ArgumentError(
                f"{_NAME}: bw_method should be 'scott', 'silverman', a scalar, or a callable, but is {method!r}."
            )
        return method

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The arrays, and nothing else."""
        return tuple(getattr(self, name) for name in _ARRAYS), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: tuple[Any, ...]) -> gaussian_kde:
        """The density of the arrays that `tree_flatten` gives."""
        found = cls.__new__(cls)
        for name, value in zip(_ARRAYS, children, strict=True):
            setattr(found, name, value)
        return found

    @property
    def d(self) -> int:
        """How many numbers a sample has."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """How many samples there are."""
        return self.dataset.shape[1]

    def _points(self, x: ArrayLike) -> Any:
        value = inexact_array(x, _NAME)
        refuse_complex(_NAME, value)
        points: Any = tnp.atleast_2d(value)
        if points.ndim == 2 and points.shape == (1, self.d) and self.d > 1:
            points = points.T
        if points.ndim != 2 or points.shape[0] != self.d:
            raise ShapeError(
                f"{_NAME}: points must be of shape ({self.d}, m), like the samples, but got {Shape.of(points)}."
            )
        return points

    def _log_kernels(self, mean: Any, covariance: Any) -> Any:
        """The logarithms of normal densities around the samples at points [d, m], of shape [m, n]."""
        factor = tnp.linalg.cholesky(covariance)
        samples, points = (triangular(factor, x.astype(factor.dtype), True) for x in (self.dataset, mean))
        squares = tnp.sum((points[:, :, None] - samples[:, None, :]) ** 2, 0)
        logarithm = tnp.sum(tnp.log(tnp.diagonal(factor))) + self.d / 2 * math.log(2 * math.pi)
        return -0.5 * squares - logarithm

    def logpdf(self, x: ArrayLike) -> Array:
        """The logarithm of the density at points of shape [m], or [d, m].

        Args:
            x: m points, of shape [d, m], or [m] where samples are numbers.

        Returns:
            Real numbers, of shape [m].

        Raises:
            DTypeError: complex points, or what is no array or number.
            ShapeError: points of another dimension than the samples.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.logpdf(jnp.array([0.0, 100.0]))  # also where the density underflows
        Array([-1.4567597e+00, -3.2349443e+03], dtype=float32)
        """
        return logsumexp(self._log_kernels(self._points(x), self.covariance), axis=1, b=self.weights[None, :])

    def pdf(self, x: ArrayLike) -> Array:
        """The density at points of shape [m], or [d, m].

        Args:
            x: m points, of shape [d, m], or [m] where samples are numbers.

        Returns:
            Real numbers, of shape [m].

        Raises:
            DTypeError: complex points, or what is no array or number.
            ShapeError: points of another dimension than the samples.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.pdf(jnp.array([-1.0, 0.0, 1.0])).round(3)
        Array([0.205, 0.233, 0.205], dtype=float32)
        """
        return tnp.exp(self.logpdf(x))

    __call__ = evaluate = pdf

    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The integral of the density times a normal density.

        Args:
            mean: of shape [d], or a number.
            cov: the covariance, of shape [d, d], or a number.

        Returns:
            A scalar.

        Raises:
            DTypeError: what is no array or number.
            ShapeError: a mean or covariance of another dimension than the samples.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.integrate_gaussian(0.0, 1.0).round(3)
        Array(0.206, dtype=float32)
        """
        center = tnp.atleast_1d(tnp.squeeze(inexact_array(mean, _NAME)))
        spread = tnp.atleast_2d(inexact_array(cov, _NAME))
        if center.shape != (self.d,) or spread.shape != (self.d, self.d):
            raise ShapeError(
                f"{_NAME}: mean and covariance must have dimension {self.d}, but are {Shape.of(center)} and "
                f"{Shape.of(spread)}."
            )
        kernels = self._log_kernels(center[:, None], self.covariance + spread)
        return tnp.sum(tnp.exp(kernels[0]) * self.weights)

    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """The probability between two numbers, of samples that are numbers.

        Args:
            low, high: the limits, scalars.

        Returns:
            A scalar, from 0 to 1.

        Raises:
            DTypeError: what is no number.
            ShapeError: limits that are no scalars, or samples that are no numbers.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.integrate_box_1d(0.0, jnp.inf)
        Array(0.5, dtype=float32)
        """
        if self.d != 1:
            raise ShapeError(
                f"{_NAME}: integrate_box_1d() only handles 1D densities, but samples have {self.d} numbers."
            )
        if np.ndim(low) or np.ndim(high):
            raise ShapeError(f"{_NAME}: the limits of integration in integrate_box_1d must be scalars.")
        scale = tnp.sqrt(self.covariance[0, 0])
        below, above = ((tnp.asarray(x, scale.dtype) - self.dataset[0]) / scale for x in (low, high))
        return tnp.sum(self.weights * (ndtr(above) - ndtr(below)))

    def integrate_box(self, low_bounds: ArrayLike, high_bounds: ArrayLike, maxpts: int | None = None) -> Array:
        """The probability within a box, which is computed for samples that are numbers only.

        Args:
            low_bounds, high_bounds: the limits, of shape [1] or scalars.
            maxpts: accepted for compatibility.

        Returns:
            A scalar, from 0 to 1.

        Raises:
            ArgumentError: samples that are no numbers.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.integrate_box(jnp.array([-10.0]), jnp.array([10.0])).round(3)
        Array(1., dtype=float32)
        """
        if self.d != 1:
            raise ArgumentError(f"{_NAME}: integrate_box takes one dimension only, but samples have {self.d} numbers.")
        return self.integrate_box_1d(tnp.squeeze(tnp.asarray(low_bounds)), tnp.squeeze(tnp.asarray(high_bounds)))

    def integrate_kde(self, other: Any) -> Array:
        """The integral of the product with another density.

        Args:
            other: a `gaussian_kde` of samples of the same dimension.

        Returns:
            A scalar.

        Raises:
            ArgumentError: what is no such density.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.integrate_kde(density).round(3)
        Array(0.174, dtype=float32)
        """
        if not isinstance(other, gaussian_kde) or other.d != self.d:
            raise ArgumentError(
                f"{_NAME}: integrate_kde takes a density of the same dimension {self.d}, not {other!r}."
            )
        kernels = self._log_kernels(other.dataset, self.covariance + other.covariance)
        return tnp.sum(tnp.exp(kernels) * (other.weights[:, None] * self.weights[None, :]))

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Array:
        """Random samples from the density.

        Args:
            key: of random numbers.
            shape: how many; the result has the shape [d, *shape].

        Returns:
            Samples, of shape [d, *shape].

        Raises:
            ArgumentError: what is no random key, or no shape.
            ShapeError: a negative size.

        >>> from tinyxla import random
        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.resample(random.key(0), (5,)).shape
        (1, 5)
        """
        sizes = shape_of(_NAME, shape)
        first, second = random.split(key)
        index = random.choice(first, self.n, sizes, p=self.weights)
        zero = tnp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(second, zero, self.covariance, sizes, self.dataset.dtype)
        return self.dataset[:, index] + tnp.moveaxis(noise, -1, 0)

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not possible, since arrays do not change: an error that says what to do.

        Args:
            bw_method: not used.

        Raises:
            ArgumentError: always.

        >>> import tinyxla.numpy as jnp
        >>> from tinyxla.scipy.stats import gaussian_kde
        >>> density = gaussian_kde(jnp.array([-1.0, 1.0]))
        >>> density.set_bandwidth(0.5)
        Traceback (most recent call last):
            ...
        tinyxla.errors.ArgumentError: scipy.stats.gaussian_kde: the bandwidth of a density does not change; make ...
        """
        raise ArgumentError(f"{_NAME}: the bandwidth of a density does not change; make another gaussian_kde.")
