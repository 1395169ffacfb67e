"""Probability distributions, under the names of `jax.scipy.stats`.

Each family is an object, whose methods take the numbers at which to evaluate, then the shape parameters of the family,
`loc` and `scale` (`loc` alone for whole numbers), by place or by name; all these broadcast. What a family has is in its
definition below: its methods follow from functions of the standard variable, (x - loc) / scale. The formulas are those
of Johnson, Kotz and Balakrishnan: "Continuous Univariate Distributions" (1994), "Univariate Discrete Distributions"
(2005).

>>> import numpy as np
>>> from tinyxla.scipy.stats import gamma, norm, poisson
>>> round(float(norm.logpdf(1.0, loc=1.0, scale=2.0)), 4)
-1.6121
>>> gamma.cdf(np.array([0.0, 1.0]), 1.0).round(4)
Array([0.    , 0.6321], dtype=float32)
>>> poisson.pmf(np.array([0, 1]), 2.0).round(4)
Array([0.1353, 0.2707], dtype=float32, weak_type=True)
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import jvp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.lax import cummax, cummin
from tinyxla.numpy.arguments import (
    ArrayLike,
    array_of,
    broadcasted,
    canonical_axes,
    cast,
    choice_of,
    inexact_array,
    of_rank,
    promoted,
    refuse_complex,
    with_flags,
)
from tinyxla.numpy.elementwise.definitions import with_slope
from tinyxla.scipy.kernel_density import gaussian_kde as gaussian_kde
from tinyxla.scipy.linalg import solve_triangular
from tinyxla.scipy.special import (
    betainc,
    betaln,
    expit,
    gammainc,
    gammaincc,
    gammaln,
    i0e,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)
from tinyxla.shapes import Shape
from tinyxla.tracing.array import Array
from tinyxla.util.binding import bind
from tinyxla.util.did_you_mean import missing as _missing

Rule = Callable[..., Any]
_LOG_2PI = math.log(2 * math.pi)


def _all_positive(*shapes: Any) -> Any:
    return functools.reduce(operator.and_, [x > 0 for x in shapes], True)


def _is_probability(p: Any) -> Any:
    return (p >= 0) & (p <= 1)


def _with_signature(method: Callable[..., Array]) -> functools.cached_property[Callable[..., Array]]:
    """A method of a family as a function whose signature has the family's parameters."""

    def function(self: Family) -> Callable[..., Array]:
        def call(*args: ArrayLike, **kwargs: ArrayLike) -> Array:
            return method(self, *args, **kwargs)

        found: Any = functools.wraps(method)(call)
        found.__signature__ = self.signature_of(method.__name__)
        return found

    return functools.cached_property(functools.wraps(method)(function))


class Family:
    """What all families share: names of parameters, the interval in which the standard variable lies, and which shape
    parameters are valid; of others, and of a scale that is not positive, all functions give NaN, as SciPy's do."""

    _variable = "x"  # what the argument of densities is called

    def __init__(self, name: str, parameters: str, within: Any, valid: Rule, /, **defaults: float) -> None:
        """`within` is the interval's ends, or a function from the shape parameters to these."""
        self.name = f"scipy.stats.{name}"
        self.__name__ = name
        self._valid = valid
        self._within: Rule = within if callable(within) else lambda *_: within
        names = [Parameter(p, Parameter.POSITIONAL_OR_KEYWORD) for p in parameters.split()]
        optional = [Parameter(p, Parameter.POSITIONAL_OR_KEYWORD, default=value) for p, value in defaults.items()]
        self._parameters = [*names, *optional]
        self._signature = self._signature_with(self._variable)

    def _signature_with(self, variable: str) -> Signature:
        """The signature of a function of an argument of that name and the parameters."""
        return Signature([Parameter(variable, Parameter.POSITIONAL_OR_KEYWORD), *self._parameters])

    def signature_of(self, method: str) -> Signature:
        """The signature of a method."""
        return self._signature

    def _arguments(self, args: Any, kwargs: Any, method: str = "") -> list[Array]:
        """x, the shape parameters and what has defaults, of one floating type, which is weak if none is a float
        of a type of its own."""
        signature = self.signature_of(method)
        bound = bind(self.name, signature, args, kwargs, f"; the arguments are {signature}")
        bound.apply_defaults()
        arrays, (_, is_weak) = promoted(self.name, *bound.args, to_inexact=True)
        refuse_complex(self.name, *arrays)
        return [x.with_weak_type(is_weak) for x in arrays]


def _log_of(probability: Rule, complement: Rule) -> Rule:
    """The logarithm of a probability, that of 1 less its complement where it is nearly 1."""

    def logarithm(z: Array, *shapes: Array) -> Array:
        share = probability(z, *shapes)
        return tnp.where(share < 0.5, tnp.log(share), tnp.log1p(-complement(z, *shapes)))

    return logarithm


def _one_less_exp(x: Array) -> Array:
    """1 - exp(x) of x up to 0, by `expm1` near 0; elsewhere the derivative of that, its result plus 1, would cancel."""
    near = x > -0.5
    return tnp.where(near, -tnp.expm1(tnp.where(near, x, 0.0)), 1 - tnp.exp(x))


def _mirrored(rule: Rule) -> Rule:
    return lambda z, *shapes: rule(-z, *shapes)


class Continuous(Family):
    """Distributions of real numbers, by the logarithm of the density of the standard variable."""

    def __init__(
        self,
        name: str,
        parameters: str,
        log_density: Rule,
        within: Any = (-math.inf, math.inf),
        valid: Rule = _all_positive,
    ) -> None:
        super().__init__(name, parameters, within, valid, loc=0, scale=1)
        self._log_density = log_density

    def _standard(self, args: Any, kwargs: Any) -> tuple[Array, list[Array], Array, Array]:
        """The standard variable, the shape parameters, the scale, and whether these are valid."""
        x, *shapes, loc, scale = self._arguments(args, kwargs)
        z = (x - loc) / scale + 0.0  # of -0.0 it is 0.0, the lower end of a support
        return z, shapes, scale, (scale > 0) & self._valid(*shapes)

    @_with_signature
    def logpdf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The logarithm of the density; -inf where there is none."""
        z, shapes, scale, valid = self._standard(args, kwargs)
        low, high = self._within(*shapes)
        found = tnp.where((z < low) | (z > high), -math.inf, self._log_density(z, *shapes) - tnp.log(scale))
        return tnp.where(valid, found, math.nan)

    @_with_signature
    def pdf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The density."""
        return tnp.exp(self.logpdf(*args, **kwargs))


class Cumulative(Continuous):
    """Distributions of real numbers with a known probability to be below one, and above it; if they are `symmetric`
    about 0, that is the probability to be below the negative."""

    def __init__(
        self,
        name: str,
        parameters: str,
        log_density: Rule,
        cdf: Rule,
        sf: Rule | None = None,
        within: Any = (-math.inf, math.inf),
        logcdf: Rule | None = None,
        logsf: Rule | None = None,
        symmetric: bool = False,
        valid: Rule = _all_positive,
    ) -> None:
        super().__init__(name, parameters, log_density, within, valid)
        if symmetric:
            sf, logsf = _mirrored(cdf), logcdf and _mirrored(logcdf)
        assert sf is not None
        self._cdf, self._sf, self._logcdf, self._logsf = cdf, sf, logcdf, logsf

    def _apply(self, rule: Rule, outside: tuple[float, float], args: Any, kwargs: Any) -> Array:
        """By a rule inside the interval, and the values below and above it."""
        z, shapes, _, valid = self._standard(args, kwargs)
        low, high = self._within(*shapes)
        inside = tnp.where(z < low, low, tnp.where(z > high, high, z))  # an end has the slope from inside
        found = tnp.where(z < low, outside[0], tnp.where(z > high, outside[1], rule(inside, *shapes)))
        return tnp.where(valid, found, math.nan)

    @_with_signature
    def cdf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The probability of a number up to x."""
        return self._apply(self._cdf, (0.0, 1.0), args, kwargs)

    @_with_signature
    def sf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The probability of a number above x."""
        return self._apply(self._sf, (1.0, 0.0), args, kwargs)

    @_with_signature
    def logcdf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The logarithm of `cdf`."""
        return self._apply(self._logcdf or _log_of(self._cdf, self._sf), (-math.inf, 0.0), args, kwargs)

    @_with_signature
    def logsf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The logarithm of `sf`."""
        return self._apply(self._logsf or _log_of(self._sf, self._cdf), (0.0, -math.inf), args, kwargs)


class Invertible(Cumulative):
    """Distributions of real numbers with known quantiles."""

    def __init__(
        self,
        name: str,
        parameters: str,
        log_density: Rule,
        cdf: Rule,
        ppf: Rule,
        isf: Rule | None = None,
        symmetric: bool = False,
        quantile_of: str = "q",
        **rest: Any,
    ) -> None:
        """`quantile_of` is what the argument of quantiles is called."""
        super().__init__(name, parameters, log_density, cdf, symmetric=symmetric, **rest)
        self._signature_of_quantiles = self._signature_with(quantile_of)
        self._ppf = ppf
        self._isf = isf or (lambda q, *shapes: -ppf(q, *shapes) if symmetric else ppf(1 - q, *shapes))

    def signature_of(self, method: str) -> Signature:
        """The signature of a method."""
        return self._signature_of_quantiles if method in ("ppf", "isf") else self._signature

    def _quantile(self, rule: Rule, args: Any, kwargs: Any) -> Array:
        q, *shapes, loc, scale = self._arguments(args, kwargs, "ppf")
        valid = (scale > 0) & self._valid(*shapes) & _is_probability(q)
        return tnp.where(valid, loc + scale * rule(q + 0.0, *shapes), math.nan)

    @_with_signature
    def ppf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The number up to which the probability is the first argument; NaN if that is not from 0 to 1."""
        return self._quantile(self._ppf, args, kwargs)

    @_with_signature
    def isf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The number above which the probability is the first argument; NaN if that is not from 0 to 1."""
        return self._quantile(self._isf, args, kwargs)


class Discrete(Family):
    """Distributions of whole numbers, by the logarithm of the probability of k - loc."""

    _variable = "k"

    def __init__(
        self, name: str, parameters: str, log_mass: Rule, valid: Rule = _all_positive, within: Any = (0, math.inf)
    ) -> None:
        super().__init__(name, parameters, within, valid, loc=0)
        self._log_mass = log_mass

    def _standard(self, args: Any, kwargs: Any) -> tuple[Array, list[Array], Array]:
        """The number, the shape parameters, and whether these are valid and it is one."""
        k, *shapes, loc = self._arguments(args, kwargs)
        return k - loc, shapes, self._valid(*shapes) & (k - loc == k - loc)

    @_with_signature
    def logpmf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The logarithm of the probability of k; -inf for what is no whole number of the family."""
        k, shapes, valid = self._standard(args, kwargs)
        low, high = self._within(*shapes)
        found = tnp.where((k < low) | (k > high) | (tnp.floor(k) != k), -math.inf, self._log_mass(k, *shapes))
        return tnp.where(valid, found, math.nan)

    @_with_signature
    def pmf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The probability of k."""
        return tnp.exp(self.logpmf(*args, **kwargs))


class CumulativeDiscrete(Discrete):
    """Distributions of whole numbers with a known probability to be at most one."""

    def __init__(
        self,
        name: str,
        parameters: str,
        log_mass: Rule,
        cdf: Rule,
        valid: Rule = _all_positive,
        within: Any = (0, math.inf),
    ) -> None:
        super().__init__(name, parameters, log_mass, valid, within)
        self._cdf = cdf

    @_with_signature
    def cdf(self, *args: ArrayLike, **kwargs: ArrayLike) -> Array:
        """The probability of a number up to k."""
        k, shapes, valid = self._standard(args, kwargs)
        low, high = self._within(*shapes)
        inside = self._cdf(tnp.floor(tnp.clip(k, low, high)), *shapes)
        return tnp.where(valid, tnp.where(k < low, 0.0, tnp.where(k >= high, 1.0, inside)), math.nan)


# --- real numbers -----------------------------------------------------------------------------------------------------

_UNIT, _POSITIVE = (0, 1), (0, math.inf)


def _normal(z: Any) -> Any:
    return -0.5 * (z * z + _LOG_2PI)


def _gamma(z: Any, a: Any) -> Any:
    return xlogy(a - 1, z) - z - gammaln(a)


def _student(z: Any, df: Any) -> Any:
    """The normal density in the limit of infinitely many degrees of freedom."""
    endless = df == math.inf
    df = tnp.where(endless, 1.0, df)
    normalizer = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * tnp.log(df * math.pi)
    return tnp.where(endless, _normal(z), normalizer - (df + 1) / 2 * tnp.log1p(z * z / df))


def _below_student(z: Any, df: Any) -> Any:
    return _probability_below_student(*broadcasted("scipy.stats.t.cdf", promoted("scipy.stats.t.cdf", z, df)[0]))


def _student_probability(z: Any, df: Any) -> Any:
    """By an incomplete beta function of z^2 / (df + z^2) near 0, and of df / (df + z^2) in the tails."""
    endless = df == math.inf
    df = tnp.where(endless, 1.0, df)
    square = z * z
    near = square < df
    middle = 0.5 * tnp.sign(z) * betainc(0.5, df / 2, tnp.where(near, square / (df + square), 0.0))
    tail = 0.5 * betainc(df / 2, 0.5, tnp.where(near, 0.5, df / (df + square)))
    outer = tnp.where(z < 0, tail, 1 - tail)
    return tnp.where(endless, ndtr(z), tnp.where(near, 0.5 + middle, outer))


_probability_below_student = with_slope(
    "t.cdf",
    _student_probability,
    lambda ans, z, df: tnp.exp(_student(z, df)),
    lambda ans, z, df: jvp(lambda n: _student_probability(z, n), (df,), (tnp.ones_like(df),))[1],
)


def _log_normal_between(low: Any, high: Any) -> Any:
    """log(ndtr(high) - ndtr(low)), computed in the tail that is farther from 1."""
    mirrored = low > 0
    a, b = tnp.where(mirrored, -high, low), tnp.where(mirrored, -low, high)
    nothing = b == -math.inf
    whole = tnp.where(nothing, 0.0, log_ndtr(b))
    tail = whole + tnp.log1p(-tnp.exp(log_ndtr(a) - whole))
    return tnp.where(b > 0, tnp.log1p(-ndtr(a) - ndtr(-b)), tnp.where(nothing, -math.inf, tail))


def _truncated_below(z: Any, a: Any, b: Any) -> Any:
    outside = z <= a  # where the probability is the constant 0
    below, above = _log_normal_between(a, tnp.where(outside, b, z)), _log_normal_between(tnp.where(z >= b, a, z), b)
    found = _log_share(below, above, _log_normal_between(a, b), (z > a) & (z < b))
    return tnp.where(outside, -math.inf, tnp.where(z >= b, 0.0, found))


def _truncated_above(z: Any, a: Any, b: Any) -> Any:
    outside = z >= b
    above, below = _log_normal_between(tnp.where(outside, a, z), b), _log_normal_between(a, tnp.where(z <= a, b, z))
    found = _log_share(above, below, _log_normal_between(a, b), (z > a) & (z < b))
    return tnp.where(outside, -math.inf, tnp.where(z <= a, 0.0, found))


def _log_share(part: Any, other: Any, whole: Any, proper: Any) -> Any:
    """log(part / whole) of two parts' and the whole's logarithms; where a `proper` part is nearly the whole, by the
    share of the other one, in which nothing cancels. Source: `scipy.stats.truncnorm`, with its bound for "nearly"."""
    found = part - whole
    nearly = proper & (found > -0.1)
    missing = tnp.exp(tnp.where(nearly, other - whole, -math.inf))
    return tnp.where(nearly, tnp.log1p(-missing), found)


def _below_generalized_normal(z: Any, beta: Any) -> Any:
    tail = 0.5 * gammaincc(1 / beta, tnp.abs(z) ** beta)  # exact where the difference from 1 would not be
    return tnp.where(z < 0, tail, 1 - tail)


def _cauchy_quantile(q: Any) -> Any:
    inner = tnp.tan(math.pi * (tnp.clip(q, 0.25, 0.75) - 0.5))
    outer = tnp.where(q < 0.25, -1 / tnp.tan(math.pi * q), 1 / tnp.tan(math.pi * (1 - q)))
    return tnp.where(tnp.abs(q - 0.5) > 0.25, outer, inner)


def _laplace_quantile(q: Any) -> Any:
    return tnp.where(q < 0.5, tnp.log(2 * q), -tnp.log(2 * (1 - q)))


def _wrapped_cauchy(z: Any, c: Any) -> Any:
    return tnp.log1p(-c * c) - _LOG_2PI - tnp.log1p(c * c - 2 * c * tnp.cos(z))


norm = Invertible("norm", "", _normal, cdf=ndtr, ppf=ndtri, logcdf=log_ndtr, symmetric=True)
uniform = Invertible("uniform", "", lambda z: 0 * z, cdf=lambda z: z, sf=lambda z: 1 - z, ppf=lambda q: q, within=_UNIT)
expon = Invertible(
    "expon",
    "",
    lambda z: -z,
    cdf=lambda z: _one_less_exp(-z),
    sf=lambda z: tnp.exp(-z),
    ppf=lambda q: -tnp.log1p(-q),
    isf=lambda q: -tnp.log(q),
    within=_POSITIVE,
    logsf=lambda z: -z,
)
cauchy = Invertible(
    "cauchy",
    "",
    lambda z: -math.log(math.pi) - tnp.log1p(z * z),
    cdf=lambda z: tnp.arctan2(1, -z) / math.pi,
    ppf=_cauchy_quantile,
    symmetric=True,
)
laplace = Invertible(
    "laplace",
    "",
    lambda z: -tnp.abs(z) - math.log(2),
    cdf=lambda z: tnp.where(z < 0, 0.5 * tnp.exp(z), 1 - 0.5 * tnp.exp(-z)),
    ppf=_laplace_quantile,
    symmetric=True,
)
logistic = Invertible(
    "logistic",
    "",
    lambda z: -tnp.abs(z) - 2 * tnp.log1p(tnp.exp(-tnp.abs(z))),
    cdf=expit,
    ppf=logit,
    logcdf=lambda z: -tnp.logaddexp(0, -z),
    symmetric=True,
    quantile_of="x",
)
gumbel_r = Invertible(
    "gumbel_r",
    "",
    lambda z: -z - tnp.exp(-z),
    cdf=lambda z: tnp.exp(-tnp.exp(-z)),
    sf=lambda z: _one_less_exp(-tnp.exp(-z)),
    ppf=lambda q: -tnp.log(-tnp.log(q)),
    isf=lambda q: -tnp.log(-tnp.log1p(-q)),
    logcdf=lambda z: -tnp.exp(-z),
    quantile_of="p",
)
gumbel_l = Invertible(
    "gumbel_l",
    "",
    lambda z: z - tnp.exp(z),
    cdf=lambda z: _one_less_exp(-tnp.exp(z)),
    sf=lambda z: tnp.exp(-tnp.exp(z)),
    ppf=lambda q: tnp.log(-tnp.log1p(-q)),
    isf=lambda q: tnp.log(-tnp.log(q)),
    logsf=lambda z: -tnp.exp(z),
    quantile_of="p",
)
pareto = Invertible(
    "pareto",
    "b",
    lambda z, b: tnp.log(b) - (b + 1) * tnp.log(z),
    cdf=lambda z, b: _one_less_exp(-b * tnp.log(z)),
    sf=lambda z, b: z**-b,
    ppf=lambda q, b: tnp.exp(-tnp.log1p(-q) / b),
    isf=lambda q, b: q ** (-1 / b),
    within=(1, math.inf),
    logsf=lambda z, b: -b * tnp.log(z),
)
gamma = Cumulative("gamma", "a", _gamma, lambda z, a: gammainc(a, z), lambda z, a: gammaincc(a, z), within=_POSITIVE)
chi2 = Cumulative(
    "chi2",
    "df",
    lambda z, df: _gamma(z / 2, df / 2) - math.log(2),
    cdf=lambda z, df: gammainc(df / 2, z / 2),
    sf=lambda z, df: gammaincc(df / 2, z / 2),
    within=_POSITIVE,
)
beta = Cumulative(
    "beta",
    "a b",
    lambda z, a, b: xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b),
    cdf=lambda z, a, b: betainc(a, b, z),
    sf=lambda z, a, b: betainc(b, a, 1 - z),
    within=_UNIT,
)
t = Cumulative("t", "df", _student, _below_student, symmetric=True)
gennorm = Cumulative(
    "gennorm",
    "beta",
    lambda z, beta: tnp.log(beta / 2) - gammaln(1 / beta) - tnp.abs(z) ** beta,
    cdf=_below_generalized_normal,
    symmetric=True,
)
truncnorm = Cumulative(
    "truncnorm",
    "a b",
    lambda z, a, b: _normal(z) - _log_normal_between(a, b),
    cdf=lambda z, a, b: tnp.exp(_truncated_below(z, a, b)),
    sf=lambda z, a, b: tnp.exp(_truncated_above(z, a, b)),
    within=lambda a, b: (a, b),
    logcdf=_truncated_below,
    logsf=_truncated_above,
    valid=lambda a, b: a < b,
)
vonmises = Continuous(
    "vonmises",
    "kappa",
    lambda z, kappa: kappa * (tnp.cos(z) - 1) - _LOG_2PI - tnp.log(i0e(kappa)),
    valid=lambda kappa: kappa >= 0,
)
wrapcauchy = Continuous("wrapcauchy", "c", _wrapped_cauchy, (0, 2 * math.pi), valid=lambda c: (c > 0) & (c < 1))


# --- whole numbers ----------------------------------------------------------------------------------------------------


def _log_choices(n: Any, k: Any) -> Any:
    """The logarithm of the number of ways to choose k of n."""
    return -tnp.log1p(n) - betaln(n - k + 1, k + 1)


class Bernoulli(CumulativeDiscrete):
    """The family of 1 with a probability, and else 0."""

    def ppf(self, q: ArrayLike, p: ArrayLike) -> Array:
        """The number up to which the probability is at least q; NaN if q or p is not from 0 to 1.

        >>> import numpy as np
        >>> from tinyxla.scipy.stats import bernoulli
        >>> bernoulli.ppf(np.array([0.2, 0.6]), 0.5)
        Array([0., 1.], dtype=float32)
        """
        (chance, share), _ = promoted(f"{self.name}.ppf", q, p, to_inexact=True)
        proper = (chance >= 0) & (chance <= 1) & (share >= 0) & (share <= 1)
        return tnp.where(proper, (chance > 1 - share).astype(chance.dtype), math.nan)


class Poisson(CumulativeDiscrete):
    """The family of how many events there are, if mu of them are expected."""

    def entropy(self, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
        """The mean of -logpmf, for any loc: a sum over the numbers up to 256; for mu above 100 the asymptotic series,
        whose next term is below 1e-8. NaN of negative mu.

        Source: R. Evans and J. Boersma, "The Entropy of a Poisson Distribution", SIAM Review 30 (1988).

        >>> from tinyxla.scipy.stats import poisson
        >>> round(float(poisson.entropy(1.0)), 4)
        1.3048
        """
        found, _ = promoted(f"{self.name}.entropy", mu, loc, to_inexact=True)
        mean, _ = broadcasted(f"{self.name}.entropy", found)
        few, many = (mean > 0) & (mean <= 100), mean > 100
        small = tnp.where(few, mean, 1.0)[..., None]
        logarithm = self._log_mass(of_rank(tnp.arange(257, dtype=mean.dtype), small.ndim), small)
        summed = -tnp.sum(tnp.exp(logarithm) * logarithm, axis=-1)
        large = tnp.where(many, mean, 1.0)
        rest = (1 / 12 + (1 / 24 + 19 / 360 / large) / large) / large
        series = 0.5 * (1 + _LOG_2PI + tnp.log(large)) - rest
        known = tnp.where(few, summed, tnp.where(many, series, 0.0))
        return tnp.where(mean >= 0, known, math.nan)


bernoulli = Bernoulli(
    "bernoulli",
    "p",
    lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p),
    cdf=lambda k, p: 1 - p,
    valid=_is_probability,
    within=_UNIT,
)
binom = CumulativeDiscrete(
    "binom",
    "n p",
    lambda k, n, p: _log_choices(n, k) + xlogy(k, p) + xlog1py(n - k, -p),
    cdf=lambda k, n, p: betainc(n - k, k + 1, 1 - p),
    valid=lambda n, p: (n >= 0) & (tnp.floor(n) == n) & _is_probability(p),
    within=lambda n, p: (0, n),
)
betabinom = Discrete(
    "betabinom",
    "n a b",
    lambda k, n, a, b: _log_choices(n, k) + betaln(k + a, n - k + b) - betaln(a, b),
    valid=lambda n, a, b: (n >= 0) & (tnp.floor(n) == n) & _all_positive(a, b),
    within=lambda n, a, b: (0, n),
)
nbinom = CumulativeDiscrete(
    "nbinom",
    "n p",
    lambda k, n, p: -tnp.log(n + k) - betaln(n, k + 1) + xlogy(n, p) + xlog1py(k, -p),
    cdf=lambda k, n, p: betainc(n, k + 1, p),
    valid=lambda n, p: _all_positive(n, p) & (p <= 1),
)
geom = CumulativeDiscrete(
    "geom",
    "p",
    lambda k, p: xlog1py(k - 1, -p) + tnp.log(p),
    cdf=lambda k, p: -tnp.expm1(xlog1py(k, -p)),
    valid=lambda p: (p > 0) & (p <= 1),
    within=(1, math.inf),
)
poisson = Poisson(
    "poisson",
    "mu",
    lambda k, mu: xlogy(k, mu) - gammaln(k + 1) - mu,
    cdf=lambda k, mu: gammaincc(k + 1, mu),
    valid=lambda mu: mu >= 0,
)


# --- vectors ----------------------------------------------------------------------------------------------------------


class MultivariateNormal:
    """Normal vectors. With `mean` of shape [..., n] and `cov` [..., n, n], positive definite; a number for `cov` stands
    for that multiple of the identity. Where `mean` is a number, too, each element is a vector of one number.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import multivariate_normal
    >>> round(float(multivariate_normal.logpdf(np.zeros(2), np.zeros(2), np.eye(2))), 4)
    -1.8379
    """

    @staticmethod
    def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
        """The logarithm of the density at vectors of shape [..., n], or at numbers if `mean` is one; `allow_singular`
        must be None.

        Raises:
            ShapeError: `cov` is not of shape [..., n, n].
            ArgumentError: a value of `allow_singular`.
        """
        if allow_singular is not None:  # pyright: ignore[reportUnnecessaryComparison]
            raise ArgumentError(
                f"scipy.stats.multivariate_normal: allow_singular must be None, but got {allow_singular!r}: a singular "
                "covariance has no density; leave the dependent variables out."
            )
        (value, centre, covariance), _ = promoted("scipy.stats.multivariate_normal", x, mean, cov, to_inexact=True)
        if centre.ndim == 0:
            offset = value - centre
            return -0.5 * (offset * offset / covariance + tnp.log(covariance) + _LOG_2PI)
        n = centre.shape[-1]
        if covariance.ndim == 0:
            covariance = tnp.where(np.eye(n, dtype=bool), covariance, tnp.zeros((), covariance.dtype))
        if covariance.shape[-2:] != (n, n):
            raise ShapeError(
                f"scipy.stats.multivariate_normal: cov must be of shape (..., {n}, {n}) for a mean of shape "
                f"{centre.shape}, but got {Shape.of(covariance)}."
            )
        offset = tnp.atleast_1d(value - centre)
        factor = tnp.linalg.cholesky(covariance)
        batch = np.broadcast_shapes(factor.shape[:-2], offset.shape[:-1])
        white = solve_triangular(
            tnp.broadcast_to(factor, (*batch, n, n)), tnp.broadcast_to(offset, (*batch, n))[..., None], lower=True
        )
        half_log_det = tnp.sum(tnp.log(tnp.diagonal(factor, axis1=-2, axis2=-1)), -1)
        return -0.5 * (tnp.sum(white[..., 0] ** 2, -1) + n * _LOG_2PI) - half_log_det

    @staticmethod
    def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
        """The density at vectors of shape [..., n]."""
        return tnp.exp(multivariate_normal.logpdf(x, mean, cov))


multivariate_normal = MultivariateNormal()


class Dirichlet:
    """Vectors of n positive numbers with sum 1, along the first axis, by n concentrations.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import dirichlet
    >>> round(float(dirichlet.pdf(np.array([0.5, 0.5]), np.array([1.0, 1.0]))), 4)
    1.0
    """

    @staticmethod
    def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
        """The logarithm of the density at x, of shape [n, ...] or, without the last number, [n - 1, ...]."""
        (value, alphas), _ = promoted("scipy.stats.dirichlet", x, alpha, to_inexact=True)
        if alphas.ndim != 1 or not value.ndim or value.shape[0] not in (alphas.size, alphas.size - 1):
            raise ShapeError(
                f"scipy.stats.dirichlet: x must hold as many numbers along its first axis as the vector alpha, or one "
                f"less, but got {Shape.of(value)} and {Shape.of(alphas)}."
            )
        if value.shape[0] < alphas.size:
            value = tnp.concatenate([value, 1 - tnp.sum(value, 0, keepdims=True)])
        exponents = tnp.reshape(alphas - 1, (-1,) + (1,) * (value.ndim - 1))
        density = tnp.sum(xlogy(exponents, value), 0) + gammaln(tnp.sum(alphas)) - tnp.sum(gammaln(alphas))
        inside = tnp.all(value >= 0, 0) & (tnp.abs(tnp.sum(value, 0) - 1) < 1e-3)
        return tnp.where(inside, density, -math.inf)

    @staticmethod
    def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
        """The density."""
        return tnp.exp(dirichlet.logpdf(x, alpha))


dirichlet = Dirichlet()


class Multinomial:
    """Counts of n draws among outcomes with probabilities p, along the last axis.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import multinomial
    >>> round(float(multinomial.pmf(np.array([1, 1]), 2, np.array([0.5, 0.5]))), 4)
    0.5
    """

    @staticmethod
    def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """The logarithm of the probability of counts of shape [..., k]."""
        kind = inexact_array(p, "scipy.stats.multinomial").dtype  # counts take the type of the probabilities
        counts = [cast(array_of(v, "scipy.stats.multinomial"), kind) for v in (x, n)]
        (value, total, chances), _ = promoted("scipy.stats.multinomial", *counts, p, to_inexact=True)
        mass = gammaln(total + 1) + tnp.sum(xlogy(value, chances) - gammaln(value + 1), -1)
        return tnp.where(tnp.sum(value, -1) == total, mass, -math.inf)

    @staticmethod
    def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
        """The probability."""
        return tnp.exp(multinomial.logpmf(x, n, p))


multinomial = Multinomial()


# --- samples ----------------------------------------------------------------------------------------------------------


class ModeResult(NamedTuple):
    mode: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride] - as SciPy and JAX name it


@with_flags
def mode(a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent element along an axis (of all, with None), the least of several, and how often it is there; of
    no elements NaN, and 0.0. Of equal elements the first one has the derivative. `nan_policy` must be "propagate": NaN
    counts as an element.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        nan_policy: must be "propagate".
        keepdims: whether the axis stays, with size 1.

    Returns:
        The elements and the counts, without the axis.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import mode
    >>> mode(np.array([3, 1, 3, 1, 2]))
    ModeResult(mode=Array(1, dtype=int32), count=Array(2, dtype=int32))
    """
    choice_of("scipy.stats.mode", "nan_policy", nan_policy, ("propagate",))
    x = tnp.atleast_1d(array_of(a, "scipy.stats.mode"))
    moved = tnp.moveaxis(x, axis, 0) if axis is not None else tnp.reshape(x, (-1,))
    ordered = tnp.sort(moved, 0)
    counts = tnp.cumsum(tnp.ones(ordered.shape, int), 0)
    first = tnp.concatenate([tnp.ones_like(ordered[:1], bool), ordered[1:] != ordered[:-1]])
    started = cummax(tnp.where(first, counts, 0), 0)
    run = counts - started + 1
    if moved.shape[0]:
        last = tnp.argmax(run, 0, keepdims=True)
        count = tnp.take_along_axis(run, last, 0)
        found = ModeResult(tnp.take_along_axis(ordered, last - count + 1, 0), count)
    else:
        nothing = (1, *moved.shape[1:])
        found = ModeResult(tnp.full(nothing, math.nan, float), tnp.zeros(nothing))
    if keepdims:
        return ModeResult(*(tnp.moveaxis(y, 0, axis) if axis is not None else y.reshape((1,) * x.ndim) for y in found))
    return ModeResult(*(tnp.squeeze(y, 0) for y in found))


def rankdata(a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """The place of each element in the order of all along an axis, from 1; `method` says which of equal ones get:
    their "average", "min" or "max" place, each its own with "ordinal", or places without gaps with "dense". Beside a
    NaN all places are NaN: `nan_policy` must be "propagate".

    Args:
        a: an array.
        method: "average", "min", "max", "dense" or "ordinal".
        axis: the axis; None for the flattened array.
        nan_policy: must be "propagate".

    Returns:
        An array of the shape of a, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import rankdata
    >>> rankdata(np.array([10, 30, 20, 20]))
    Array([1. , 4. , 2.5, 2.5], dtype=float32)
    """
    choice_of("scipy.stats.rankdata", "nan_policy", nan_policy, ("propagate",))
    choice_of("scipy.stats.rankdata", "method", method, ("average", "min", "max", "dense", "ordinal"))
    x = array_of(a, "scipy.stats.rankdata")
    lines = tnp.moveaxis(x, axis, -1) if axis is not None else tnp.reshape(x, (-1,))
    order = tnp.argsort(lines, -1)
    ordered = tnp.take_along_axis(lines, order, -1)
    back = tnp.argsort(order, -1)
    places = tnp.cumsum(tnp.ones(lines.shape, int), -1)
    change = ordered[..., 1:] != ordered[..., :-1]
    ends = tnp.ones_like(ordered[..., :1], bool)
    first = cummax(tnp.where(tnp.concatenate([ends, change], -1), places, 0), places.ndim - 1)
    last = tnp.where(tnp.concatenate([change, ends], -1), places, lines.shape[-1])
    last = cummin(last, last.ndim - 1, reverse=True)
    dense = tnp.cumsum(tnp.concatenate([ends, change], -1).astype(int), -1)
    ranks = {"average": (first + last) / 2, "min": first, "max": last, "dense": dense, "ordinal": places}[method]
    found = tnp.take_along_axis(ranks, back, -1).astype(float)
    found = tnp.where(tnp.any(tnp.isnan(lines), -1, keepdims=True), math.nan, found)
    return tnp.moveaxis(found, -1, axis) if axis is not None else found


@with_flags
def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Array:
    """The standard error of the mean along an axis: the deviation over the root of the count. With `nan_policy` "omit"
    instead of "propagate" NaN do not count.

    Args:
        a: an array.
        axis: the axis; None for the flattened array.
        ddof: what is subtracted from the count in the divisor of the variance.
        nan_policy: "propagate" or "omit".
        keepdims: whether the axis stays, with size 1.

    Returns:
        An array without the axis, in floating point.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla.scipy.stats import sem
    >>> round(float(sem(np.array([1.0, 3.0]))), 4)
    1.0
    """
    choice_of("scipy.stats.sem", "nan_policy", nan_policy, ("propagate", "omit"))
    x = inexact_array(a, "scipy.stats.sem")
    if nan_policy == "omit":
        present: Any = tnp.sum(~tnp.isnan(x), axis, keepdims=keepdims).astype(x.real.dtype)
        return tnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / tnp.sqrt(present)
    count = math.prod(x.shape[d] for d in canonical_axes("scipy.stats.sem", axis, x.ndim))
    return tnp.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(count)


__getattr__ = _missing(__name__)


__all__ = [
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gaussian_kde",
    "gennorm",
    "geom",
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]


def __dir__() -> list[str]:
    return __all__
