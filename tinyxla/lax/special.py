"""Special functions. `lgamma`, `digamma` and `erfc` are formulas of other operations, and so are `igamma` and `igammac`
in compiled functions; the others are computed by SciPy on the host. All have derivatives by all their arguments.

Sources: C. Lanczos, "A Precision Approximation of the Gamma Function" (1964), in the form with g = 7 and nine terms;
the "Digital Library of Mathematical Functions", chapters 5, 7, 8, 10 and 25, for the derivatives.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import ShapeDtypeStruct, jvp, vmap
from tinyxla.api.callbacks import pure_callback
from tinyxla.custom_derivatives import SymbolicZero, custom_jvp
from tinyxla.errors import DTypeError
from tinyxla.lax.examples import documented
from tinyxla.lax.loops.control_flow import cond, while_loop
from tinyxla.lax.operands import of_one_shape, of_one_type
from tinyxla.numpy.arguments import ArrayLike, cast, named
from tinyxla.numpy.elementwise.definitions import constant_beyond, with_slope
from tinyxla.ops import elementwise
from tinyxla.runtime.imports import requiring
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import setting
from tinyxla.tracing.core import state

Function = Callable[..., Any]
Partial = Callable[..., Any]  # of the result and the operands: the derivative by one of these


def special_function(name: str, names: str, function: Function, partials: Sequence[Partial], text: str) -> Function:
    """The function of arrays of one floating type and shape that has these derivatives; `names` are its arguments'.
    Of types of less than 32 bits, the function and its derivatives are computed in 32."""
    signature = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names.split()]
    )
    ruled = custom_jvp(function)

    def rule(operands: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        ans = ruled(*operands)
        moving = [not isinstance(t, SymbolicZero) for t in tangents]
        parts = [
            elementwise.chain_mul(t, p(ans, *operands)) for t, p, m in zip(tangents, partials, moving, strict=True) if m
        ]
        return ans, sum(parts[1:], parts[0])

    ruled.defjvp(rule, symbolic_zeros=True)

    def apply(*args: ArrayLike, **kwargs: ArrayLike) -> Array:
        operands = signature.bind(*args, **kwargs).args
        values = of_one_shape(name, of_one_type(name, *operands))
        if element_type(values[0].dtype).kind != "float":
            raise DTypeError(f"{name}: not defined for {values[0].dtype.name}; convert to a floating type.")
        return narrowed(ruled)(*values).with_weak_type(values[0].weak_type)

    apply.__signature__ = signature
    short = name.rpartition(".")[2]
    return named(apply, short, documented(short, text, names.split()) if text else "")


def narrowed(function: Function) -> Function:
    """Types of less than 32 bits are computed in 32."""

    def widened(*operands: Any) -> Any:
        dtype = operands[0].dtype
        wide = [x.astype(np.float32) if element_type(dtype).bits < 32 else x for x in operands]
        return cast(function(*wide), dtype)

    return widened


def on_host(name: str, part: int | None = None, whole: int = 0) -> Function:
    """The function of SciPy of that name; of several results, the one at that place. The first `whole` operands are
    whole numbers."""

    def compute(*values: Any) -> Any:
        with requiring("scipy.special", "SciPy", name):
            import scipy.special  # here, since importing it costs more than importing this package

        wide = [np.asarray(x, np.float64 if x.dtype == np.float64 else np.float32) for x in values]
        with np.errstate(all="ignore"):
            found = getattr(scipy.special, name)(*(x.astype(int) for x in wide[:whole]), *wide[whole:])
        return np.asarray(found if part is None else found[part]).astype(values[0].dtype)

    def function(*operands: Any) -> Any:
        result = ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
        return pure_callback(compute, result, *operands, vmap_method="broadcast_all")

    return function


_STEPS = {1: 1e-3, 2: 4e-3}  # the relative step of differences, by their order: rounding and truncation are alike


def slope_on_host(name: str, *numbers: int) -> Partial:
    """The derivative of a function of SciPy by one or two operands, by differences of fourth order in double precision.
    Its error is some 1e-9 of the function's value. That by one operand has derivatives, that by two has none."""

    def compute(*values: Any) -> Any:
        with requiring("scipy.special", "SciPy", name):
            import scipy.special  # here, since importing it costs more than importing this package

        wide = [np.asarray(x, np.float64) for x in values]
        function = getattr(scipy.special, name)
        for number in numbers:
            function = _difference(function, number, wide[number], _STEPS[len(numbers)])
        with np.errstate(all="ignore"):
            return np.asarray(function(*wide)).astype(values[0].dtype)

    def slope(*operands: Any) -> Any:
        result = ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
        return pure_callback(compute, result, *operands, vmap_method="broadcast_all")

    if len(numbers) == 2:
        return lambda ans, *operands: slope(*operands)
    ruled = custom_jvp(slope)

    def rule(operands: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        moving = [k for k, t in enumerate(tangents) if not isinstance(t, SymbolicZero)]
        parts = [elementwise.chain_mul(tangents[k], slope_on_host(name, *numbers, k)(None, *operands)) for k in moving]
        return ruled(*operands), sum(parts[1:], parts[0])

    ruled.defjvp(rule, symbolic_zeros=True)
    return lambda ans, *operands: ruled(*operands)


def _difference(function: Function, number: int, around: Any, step: float) -> Function:
    """The derivative by an operand near some values, by differences: central ones, or near zero, which may be an end of
    the domain, those from there on away from it; zero has no sign."""
    near_zero = np.abs(around) < step / 10
    by = np.where(near_zero, np.copysign(step / 10, around + 0.0), step * np.minimum(np.abs(around), 1.0))

    def difference(*values: Any) -> Any:
        def at(k: int) -> Any:
            return function(*(x + k * by if n == number else x for n, x in enumerate(values)))

        central = at(-2) - 8 * at(-1) + 8 * at(1) - at(2)
        if near_zero.any():
            one_sided = -25 * at(0) + 48 * at(1) - 36 * at(2) + 16 * at(3) - 3 * at(4)
            central = np.where(near_zero, one_sided, central)
        return central / (12 * by)

    return difference


# --- the gamma function -----------------------------------------------------------------------------------------------

_G = 7
_TERMS = (
    676.520368121885098567009190444019, -1259.13921672240287047156078755283, 771.3234287776530786528486258894,
    -176.61502916214059906584551354, 12.507343278686904814458936853, -0.13857109526572011689554707,
    9.984369578019570859563e-6, 1.50563273514931155834e-7,
)  # fmt: skip
_FIRST = 0.99999999999980993227684700473478

# log(gamma(x)) / ((x - 1) (x - 2)) in powers of x - 3/2, interpolated at Chebyshev's points of [3/4, 9/4]; for f32, f64
_BETWEEN_ROOTS_32 = (
    0.4831289419, -0.1459598905, 0.06291250603, -0.0313091796, 0.01677454552, -0.009411497676, 0.005611948099,
    -0.003315693926, 0.001390205322, -0.000831017199, 0.001446787998, -0.0008976960783,
)  # fmt: skip
_BETWEEN_ROOTS_64 = (
    0.483128950540980932, -0.145959895914306109, 0.0629114010745396366, -0.0313084875009946465, 0.0167970986336970225,
    -0.00942562245009204539, 0.00544645774701161944, -0.00321207401415871885, 0.00192291810258169052,
    -0.00116441574222815271, 0.000711498863569333728, -0.000437980002691993012, 0.000271455168628161563,
    -0.000169009394921877243, 0.000104721901490025513, -0.0000657308646034030579, 0.0000448709011161436474,
    -0.0000283988096682796813, 9.55207816256719922e-6, -5.98969132624069146e-6, 0.0000177133611192369988,
    -0.0000113882176257235339, -7.48060215124238626e-6, 4.84688878661420533e-6, 6.01644675686556665e-6,
    -3.88012467527475978e-6,
)  # fmt: skip


def _log_gamma(x: Any) -> Any:
    """Lanczos' sum for x of at least 1/2; below that by the reflection, pi / sin(pi x) = gamma(x) gamma(1 - x). Near
    the roots 1 and 2, where the sum cancels, a polynomial times (x - 1) (x - 2)."""
    reflected = x < 0.5
    z = tnp.where(reflected, -x, x - 1)
    total = _FIRST + sum(c / (z + k) for k, c in enumerate(_TERMS, 1))
    shifted = z + (_G + 0.5)
    log_shifted = math.log(_G + 0.5) + tnp.log1p(z / (_G + 0.5))
    smooth = (z + 0.5 - shifted / log_shifted) * log_shifted + 0.5 * math.log(2 * math.pi)
    part = tnp.abs(x) - tnp.floor(tnp.abs(x))
    sine = _sine_of_half_turns(tnp.where(part > 0.5, 1 - part, part))
    log_total = tnp.log(tnp.where(reflected, sine * total, total))
    mirrored = tnp.where(sine == 0, tnp.inf, math.log(math.pi) - log_total - smooth)
    coefficients = _BETWEEN_ROOTS_32 if x.dtype.itemsize < 8 else _BETWEEN_ROOTS_64
    near_roots = (x - 1) * (x - 2) * polynomial(coefficients, x - 1.5)
    direct = tnp.where(tnp.abs(x - 1.5) < 0.75, near_roots, smooth + log_total)
    return tnp.where(tnp.isinf(x), tnp.inf, tnp.where(reflected, mirrored, direct))


def _sine_of_half_turns(t: Any) -> Any:
    """sin(pi t) for t of at most 1/2 in size, by its series: `sin` has to be prepared for any angle."""
    terms = 6 if t.dtype.itemsize < 8 else 11
    series = [(-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(terms)]
    return polynomial(series, t * t) * t


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Its value, by Horner's rule. The lowest coefficient comes first."""
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _digamma(x: Any) -> Any:
    """The derivative of the above, and digamma(1 - x) - digamma(x) = pi / tan(pi x)."""
    reflected = x < 0.5
    z = tnp.where(reflected, -x, x - 1)
    total = _FIRST + sum(c / (z + k) for k, c in enumerate(_TERMS, 1))
    slope = -sum(c / ((z + k) * (z + k)) for k, c in enumerate(_TERMS, 1))
    log_shifted = math.log(_G + 0.5) + tnp.log1p(z / (_G + 0.5))
    direct = log_shifted + slope / total - _G / (z + (_G + 0.5))
    part = x + tnp.abs(tnp.floor(x + 0.5))  # nearer to zero by whole periods, for the sake of accuracy
    mirrored = direct - math.pi * _sine_of_half_turns(0.5 - tnp.abs(part)) / _sine_of_half_turns(part)
    pole = (x <= 0) & (x == tnp.floor(x))
    return tnp.where(pole, tnp.nan, tnp.where(reflected, mirrored, direct))


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _zeta_of_positive(s: Any, q: Any) -> Any:
    """Ten terms, and the rest by Euler's and Maclaurin's formula (DLMF 2.10.1)."""
    end = q + 10.0
    last = end**-s
    total = sum((q + k) ** -s for k in range(10)) + last * (end / (s - 1) + 0.5)
    term = last * s / end
    for j, b in enumerate(_BERNOULLI, 1):
        total = total + b / math.factorial(2 * j) * term
        term = term * (s + (2 * j - 1)) * (s + 2 * j) / (end * end)
    total = tnp.where(q == tnp.inf, 0.0, total)
    infinite = (s == 1) | ((s > 1) & (q == 0))
    return cast(tnp.where(infinite, tnp.inf, tnp.where(s > 1, total, tnp.nan)), q.dtype)


def _zeta_of_any(positive: Function) -> Function:
    """Hurwitz' zeta function by that of numbers from 0 on. The terms below zero are whole powers of the negatives of
    numbers, whose sum is a difference of two zeta functions; other powers are not real. There is a pole at each whole
    number that is not positive."""

    def below_zero(s: Any, q: Any) -> Any:
        low, pole = tnp.minimum(q, 0.0), q == tnp.floor(q)
        part, rest = low - tnp.floor(low), tnp.ceil(low) - low
        sign = tnp.where(s % 2 == 0, 1.0, tnp.where(s % 2 == 1, -1.0, math.nan))
        # In this order what is at halves cancels exactly.
        found = positive(s, part) + sign * positive(s, rest) - sign * positive(s, 1 - low)
        return tnp.where(pole, tnp.where(tnp.asarray(s) >= 1, math.inf, math.nan), found)

    def with_negative(s: Any, q: Any, found: Any) -> Any:
        return cast(tnp.where(q < 0, below_zero(s, q), found), q.dtype)

    def function(s: Any, q: Any) -> Any:
        found = positive(s, tnp.maximum(q, 0.0))
        return cond(tnp.any(q < 0), functools.partial(with_negative, s), lambda _, found: found, q, found)

    return function


def _in_programs(function: Function, host: Function) -> Function:
    """A function of arrays that compiled programs compute; outside `jit` it is the host's."""
    return lambda *operands: host(*operands) if state.staging is None else function(*operands)


zeta = special_function(
    "lax.zeta",
    "x q",
    _in_programs(_zeta_of_any(_zeta_of_positive), _zeta_of_any(on_host("zeta"))),
    [slope_on_host("zeta", 0), lambda ans, s, q: -s * zeta(s + 1, q)],
    "Hurwitz' zeta function: the sum of (q + k)^-x over k = 0, 1, ..., for x > 1.",
)
_PRODUCTS = 20  # up to so many factors a power is made of products


@lru_cache
def _zeta_at(s: int) -> Function:
    """`zeta` of a number that is known: its powers are products."""

    compiled, host = _zeta_of_any(_zeta_of_positive), _zeta_of_any(on_host("zeta"))
    function = _in_programs(lambda q: compiled(s, q), lambda q: host(tnp.full_like(q, s), q))
    return special_function("lax.polygamma", "x", function, [lambda ans, q: -s * _zeta_at(s + 1)(q)], "")


lgamma = special_function(
    "lax.lgamma",
    "x",
    _log_gamma,
    [lambda ans, x: digamma(x)],
    "The logarithm of the absolute value of the gamma function.",
)
digamma = special_function(
    "lax.digamma",
    "x",
    _digamma,
    [lambda ans, x: polygamma(1, x)],
    "The digamma function: the derivative of `lgamma`.",
)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The polygamma function: the derivative of order m of `digamma`, for whole numbers m (NaN for others). It is
    differentiable by x.

    Args:
        m: the order of the derivative.
        x: the argument.

    Returns:
        An array of the broadcast shape of the arguments.

    Raises:
        DTypeError: operands of different element types.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.polygamma(1, np.float32([1, 2]))
    Array([1.644934  , 0.64493406], dtype=float32)
    """
    if isinstance(m, (int, float)) and m in range(1, _PRODUCTS):
        return (-1) ** (int(m) + 1) * float(math.factorial(int(m))) * _zeta_at(int(m) + 1)(x)
    order, value = of_one_shape("lax.polygamma", of_one_type("lax.polygamma", m, x))
    sign = cast(tnp.where(order % 2 == 0, -1.0, 1.0), value.dtype)
    higher = sign * tnp.exp(lgamma(order + 1)) * zeta(order + 1, tnp.where(order == 0, 1.0, value))
    is_order = (order >= 0) & (order == tnp.floor(order))
    return tnp.where(is_order, tnp.where(order == 0, digamma(value), higher), np.nan)


def _vanishing(x: Any, y: Any, of_y: Any) -> Any:
    """x times a function of y, which is 0 where x is 0, unless y is NaN."""
    return tnp.where((x == 0) & tnp.isnan(y), y, elementwise.chain_mul(x, of_y))


def _ratio(x: Any, y: Any) -> Any:
    """x / y, which is 0 where both are; elsewhere its slope by x is 1 / y, also where x is 0."""
    none = (x == 0) & (y == 0)
    return tnp.where(none, tnp.zeros_like(x), x / tnp.where(none, 1.0, y))


x_log_y = with_slope(
    "xlogy",
    lambda x, y: _vanishing(x, y, tnp.log(y)),
    lambda ans, x, y: tnp.log(y),
    lambda ans, x, y: _ratio(x, y),
)
x_log1p_y = with_slope(
    "xlog1py",
    lambda x, y: _vanishing(x, y, tnp.log1p(y)),
    lambda ans, x, y: tnp.log1p(y),
    lambda ans, x, y: _ratio(x, 1 + y),
)


def _of_defined(ans: Any, slope: Any) -> Any:
    """A slope, which is NaN where the function is."""
    return tnp.where(tnp.isnan(ans), math.nan, slope)


def _gamma_density(a: Any, x: Any) -> Any:
    """The density at the edge x = 0 of its support is 1 for a = 1, infinite below and 0 above; at infinity it is 0."""
    return tnp.exp(tnp.where(x == math.inf, 0.0, x_log_y(a - 1, x)) - x - lgamma(a))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    logarithm = x_log_y(a - 1, x) + x_log1p_y(b - 1, -x)
    return tnp.exp(logarithm - lgamma(a) - lgamma(b) + lgamma(a + b))


class _GammaExpansion(NamedTuple):
    """One share of the gamma function's integral, the upper one if x is in the tail: x^a exp(-x) / gamma(a) times a
    fraction there, x^a exp(-x) / gamma(a + 1) times a series elsewhere."""

    tail: Any
    log_before: Any
    factor: Any


def _gamma_expansion(first: Any, second: Any, error: float) -> _GammaExpansion:
    """By the power series up to x = a, and beyond by Legendre's continued fraction, from its front as W. Lentz does
    (Applied Optics 15, 1976); DLMF 8.11.4 and 8.9.2. What stands before them is for large a by Stirling's series, free
    of differences of large numbers."""
    tail = (second > 1) & (second > first)
    one = tnp.ones_like(second)

    def add(s: Any) -> Any:
        k, term, total = s
        term = term * (second / (first + k))
        return k + 1, term, total + term

    def deepen(s: Any) -> Any:
        k, b, c, d, found, _, until = s
        numerator = k * (first - k)
        b = b + 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        until = tnp.where(tnp.abs(first - k) < 0.01, k + (math.log(error) ** 2 / 16) / second, until)
        return k + 1, b, c, d, found * (c * d), c * d, until

    *_, total = while_loop(lambda s: ~tail & (s[1] > error * s[2]) & (s[0] < _MAX_STEPS), add, (one, one, one))
    b = tnp.where(tail, second + 1 - first, 1.0)
    start = (one, b, one * 1e300, 1 / b, 1 / b, 2 * one, one)
    # For whole numbers a the fraction ends, but its derivative does not: it takes some (log error)^2 / 16 x steps more.
    *_, fraction, _, _ = while_loop(
        lambda s: tail & ((tnp.abs(s[5] - 1) > error) | (s[0] < s[6])) & (s[0] < _MAX_STEPS), deepen, start
    )
    off, square = (second - first) / first, first * first
    stirling = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * square)) / square) / square) / first
    is_far = off < -0.5  # where the difference loses digits
    logarithm = tnp.where(is_far, tnp.log(second / first), tnp.log1p(tnp.where(is_far, 0.0, off)))
    large = first * (logarithm - off) - stirling - 0.5 * tnp.log(2 * math.pi / first)
    log_before = tnp.where(
        first > 20,
        tnp.where(tail, large, large - tnp.log(first)),
        first * tnp.log(second) - second - lgamma(tnp.where(tail, first, first + 1)),
    )
    return _GammaExpansion(tail, log_before, tnp.where(tail, fraction, total))


def _gamma_shares(a: Any, x: Any, error: float) -> Any:
    """The lower and the upper share of the gamma function's integral, for numbers, by an expansion. An a above 1e6, for
    which it takes too many steps, has an asymptotic one; an upper share for a small a is not 1 less the lower one,
    which would cancel."""
    edge = (x <= 0) | (a <= 0) | ~(x + a < math.inf)
    is_huge = ~edge & (a > _HUGE)
    first, second = tnp.where(edge | is_huge, 1.0, a), tnp.where(edge | is_huge, 1.0, x)
    tail, log_before, factor = _gamma_expansion(first, second, error)
    part = tnp.exp(log_before) * factor
    lower, upper = tnp.where(tail, 1 - part, part), tnp.where(tail, part, 1 - part)
    is_small = (second <= 1) & (first < 0.5)
    upper = tnp.where(is_small, _small_upper_share(tnp.where(is_small, first, 0.25), second, is_small, error), upper)
    lower = tnp.where(is_small & (upper < 0.5), 1 - upper, lower)
    asymptotic = _huge_shares(tnp.where(is_huge, a, 2 * _HUGE), tnp.where(is_huge, x, 2 * _HUGE))
    lower, upper = (tnp.where(is_huge, new, old) for new, old in zip(asymptotic, (lower, upper), strict=True))
    at_edge = tnp.where((a < math.inf) & (x > 0), 1.0, 0.0)
    no_share = ~((a >= 0) & (x >= 0)) | ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
    at_edge = tnp.where(no_share, math.nan, at_edge)
    return tnp.where(edge, at_edge, lower), tnp.where(edge, 1 - at_edge, upper)


_MAX_STEPS = 1 << 17  # steps
_HUGE = 1e6

# The coefficients of c_0, c_1 and c_2 in powers of eta (DLMF 8.12.11, from N. Temme, SIAM J. Math. Anal. 10, 1979).
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600),
    (-1 / 540, -1 / 288, 1 / 378, -77 / 77760),
    (25 / 6048, -139 / 51840),
)


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """The sum of c_k x^k, by Horner's rule."""
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _huge_shares(a: Any, x: Any) -> tuple[Any, Any]:
    """The shares for an a above 1e6, by Temme's uniform expansion (DLMF 8.12.3, 8.12.4 and 8.12.7). Where eta is larger
    than its series allow, exp(-a eta^2 / 2) is 0."""
    mu = tnp.clip((x - a) / a, -0.06, 0.06)
    # mu - log(1 + mu), in powers of mu since the difference cancels
    half_square = mu * mu * _polynomial([(-1) ** k / (k + 2) for k in range(14)], mu)
    eta = mu * tnp.sqrt(2 * _polynomial([(-1) ** k / (k + 2) for k in range(14)], mu))
    series = _polynomial([_polynomial(c, eta) for c in _TEMME], 1 / a)
    remainder = tnp.exp(-a * half_square) / tnp.sqrt(2 * math.pi * a) * series
    distance = eta * tnp.sqrt(a / 2)
    return 0.5 * erfc(-distance) - remainder, 0.5 * erfc(distance) + remainder


# zeta(2), ..., zeta(13).
_ZETA = (
    math.pi**2 / 6,
    1.2020569031595942,
    math.pi**4 / 90,
    1.0369277551433699,
    math.pi**6 / 945,
    1.0083492773819228,
    math.pi**8 / 9450,
    1.0020083928260822,
    1.0009945751278181,
    1.0004941886041195,
    1.0002460865533080,
    1.0001227133475785,
)
# log gamma(1 + a) / a in powers of a, for a < 0.05 (DLMF 5.7.3).
_LOG_GAMMA_1P = (-0.5772156649015329, *((-1) ** k * zeta / k for k, zeta in enumerate(_ZETA, 2)))


def _small_upper_share(a: Any, x: Any, wanted: Any, error: float) -> Any:
    """The upper share for a < 1/2 and x <= 1: of P = x^a / gamma(1 + a) (1 + a sum of (-x)^k / ((a + k) k!)), DLMF
    8.7.1, it is 1 - P without the difference."""

    def add(s: Any) -> Any:
        k, power, term, total = s
        power = power * (-x / k)
        term = power / (a + k)
        return k + 1, power, term, total + term

    one = tnp.ones_like(x)
    *_, total = while_loop(
        lambda s: wanted & (tnp.abs(s[2]) > error * tnp.abs(s[3])) & (s[0] < 40), add, (one, one, one, 0 * x)
    )
    log_gamma = tnp.where(a < 0.05, a * _polynomial(_LOG_GAMMA_1P, a), lgamma(1 + a))
    logarithm = a * tnp.log(x) - log_gamma
    return -tnp.expm1(logarithm) - tnp.exp(logarithm) * a * total


def _by_lanes(function: Function, host: Function) -> Function:
    """A function of numbers, in double precision, for each element in a loop of its own; the host's outside `jit`."""

    in_lanes = _in_lanes(function)

    def apply(*operands: Any) -> Any:
        return host(*operands) if state.staging is None else in_lanes(*operands)

    return apply


def _in_lanes(function: Function) -> Function:
    """The same everywhere."""

    def apply(*operands: Any) -> Any:
        dtype, shape = operands[0].dtype, operands[0].shape
        error = 1e-17 if dtype.itemsize == 8 else 2e-9

        @setting("explicit_x64_dtypes", "allow")
        def of_numbers(*v: Any) -> Any:
            return cast(function(*(cast(x, np.dtype(np.float64), False) for x in v), error), dtype)

        return vmap(of_numbers)(*(v.reshape(-1) for v in operands)).reshape(shape)

    return apply


def _gamma_slope(share: int, name: str) -> Partial:
    """The derivative of a share by a."""

    def slope(a: Any, x: Any, error: float) -> Any:
        inside = tnp.where(a == 0, 1e-60, a)  # at 0, where the shares are constants, the slope is the limit
        return jvp(lambda a: _gamma_shares(a, x, error)[share], (inside,), (tnp.ones_like(a),))[1]

    @custom_jvp
    def by_differences(a: Any, x: Any) -> Any:
        return slope_on_host(name, 0)(a, a, x)

    @by_differences.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (a, x), one = primals, tnp.ones_like(primals[0])
        by_a = jvp(lambda a: _in_lanes(slope)(a, x), (a,), (one,))[1]
        by_x = jvp(lambda x: _in_lanes(slope)(a, x), (x,), (one,))[1]
        return by_differences(a, x), by_a * tangents[0] + by_x * tangents[1]

    choose = _by_lanes(slope, by_differences)
    return lambda ans, a, x: _of_defined(ans, choose(a, x))


def _slope_of_sample(a: Any, x: Any, error: float) -> Any:
    """The derivative of a sample by a, for numbers: that of the expansion divided by the density, which is a factor of
    it. For an a above 1e6 that of Wilson and Hilferty's cubic (PNAS 17, 1931)."""
    valid = (x > 0) & (a > 0) & (x + a < math.inf)
    is_huge = a > _HUGE
    first, second = tnp.where(valid & ~is_huge, a, 1.0), tnp.where(valid & ~is_huge, x, 1.0)
    found, slope = jvp(lambda a: _gamma_expansion(a, second, error)[1:], (first,), (tnp.ones_like(a),))
    product = found[1] * slope[0] + slope[1]
    tail = (second > 1) & (second > first)
    inside = tnp.where(tail, second * product, -second / first * product)
    root = tnp.cbrt(tnp.where(valid, x / a, 1.0))
    huge = root * root * (root + 1.5 * (1 - root) + 1 / (6 * tnp.where(valid, a, 1.0)))
    return tnp.where(valid, tnp.where(is_huge, huge, inside), tnp.where((x == 0) & (a > 0), 0.0, math.nan))


def _gamma_sample_slope(a: Any, x: Any) -> Any:
    return _in_lanes(_slope_of_sample)(a, x)


igamma = special_function(
    "lax.igamma",
    "a x",
    _by_lanes(lambda *v: _gamma_shares(*v)[0], on_host("gammainc")),
    [_gamma_slope(0, "gammainc"), lambda ans, a, x: _of_defined(ans, _gamma_density(a, x))],
    "The regularized lower incomplete gamma function of a and x.",
)
igammac = special_function(
    "lax.igammac",
    "a x",
    _by_lanes(lambda *v: _gamma_shares(*v)[1], on_host("gammaincc")),
    [_gamma_slope(1, "gammaincc"), lambda ans, a, x: -_of_defined(ans, _gamma_density(a, x))],
    "The regularized upper incomplete gamma function of a and x: 1 - `igamma`.",
)
betainc = special_function(
    "lax.betainc",
    "a b x",
    on_host("betainc"),
    [
        slope_on_host("betainc", 0),
        slope_on_host("betainc", 1),
        lambda ans, a, b, x: _of_defined(ans, _beta_density(a, b, x)),
    ],
    "The regularized incomplete beta function of a, b and x.",
)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative by a of the regularized lower incomplete gamma function `igamma`.

    Args:
        a: the shape parameter, positive.
        x: the argument, not negative.

    Returns:
        An array of the broadcast shape of the arguments.

    Raises:
        DTypeError: what is no array or number.
        ShapeError: shapes that do not broadcast.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.igamma_grad_a(1.0, np.float32([0.5, 1.0]))
    Array([-0.48945758, -0.4317297 ], dtype=float32)
    """
    values = of_one_shape("lax.igamma_grad_a", of_one_type("lax.igamma_grad_a", a, x))
    return _gamma_slope(0, "gammainc")(values[0], *values)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative by a of a sample x of the gamma distribution of shape a, while the value of the distribution
    function at x stays.

    Args:
        a: the shape parameter, positive.
        x: samples.

    Returns:
        An array of the shape of the arguments: `-igamma_grad_a(a, x)`, divided by the density at x, also where both
        are too small for their type.

    Raises:
        DTypeError: what is no array or number.

    >>> import numpy as np
    >>> from tinyxla import lax
    >>> lax.random_gamma_grad(1.0, np.float32([0.5, 1.0]))
    Array([0.8069791, 1.173563 ], dtype=float32)
    """
    shape, sample = of_one_shape("lax.random_gamma_grad", of_one_type("lax.random_gamma_grad", a, x))
    return _gamma_sample_slope(shape, sample)


# --- error and Bessel functions ---------------------------------------------------------------------------------------

# (1 + 2 x) exp(x^2) erfc(x) is 1 + (t + 1) p(t) for x >= 0, where t is (x - middle) / (x + middle) and p a polynomial
_ERFC: dict[int, tuple[float, tuple[float, ...]]] = {
    # 2^-26.8
    4: (3.0, (
        0.253008063, -0.388629163, 0.341066499, -0.211421778, 0.0921524264, -0.0238392297,
        5.03703284e-05, 0.00245640834, -0.000532555936, -0.000201526115, 6.56176129e-05, 1.44569369e-05,
    )),
    # 2^-57.1
    8: (3.75, (
        0.2375126308378276, -0.3777532294233746, 0.3813386449088395, -0.29906190641868974,
        0.19025797627692215, -0.09795365511666321, 0.03926025652730712, -0.010897979106929788,
        0.0011513995467633167, 0.0006042262966685475, -0.00031051262172745374, 2.0358579693926705e-05,
        3.1290494349244584e-05, -8.906355823587831e-06, -2.5377500097954473e-06, 1.5643624930460329e-06,
        1.8723734471233091e-07, -2.4464810544247007e-07, -1.4005353074201294e-08, 3.740388738724219e-08,
        1.276092806152313e-09, -5.07428260388852e-09, -1.0652100892560516e-10, 4.270472427184967e-10,
    )),
}  # fmt: skip


def _erfc(x: Any) -> Any:
    upper = gauss(x) * scaled_erfc(tnp.abs(x))
    return tnp.where(x < 0, 2 - upper, upper)


def scaled_erfc(size: Any) -> Any:
    """exp(x^2) erfc x for x that are not negative. The plan is Shepherd and Laframboise's (Chebyshev Approximation of
    (1 + 2x) exp(x^2) erfc x, Mathematics of Computation 36, 1981)."""
    middle, coefficients = _ERFC[size.dtype.itemsize]
    finite = tnp.minimum(size, 1e18)
    t = (finite - middle) / (finite + middle)
    return (1 + (t + 1) * polynomial(coefficients, t)) / (1 + 2 * size)


def gauss(x: Any) -> Any:
    """exp(-x^2), in two parts: the square of the first is exact."""
    size = tnp.minimum(tnp.abs(x), 30.0)  # beyond, it is 0
    grid = 64.0 if x.dtype.itemsize == 4 else 2.0**20
    coarse = tnp.floor(size * grid) / grid
    return tnp.exp(-coarse * coarse) * tnp.exp((coarse - size) * (coarse + size))


erfc = special_function(
    "lax.erfc",
    "x",
    _erfc,
    [lambda ans, x: -2 / math.sqrt(math.pi) * _density(x)],
    "The complementary error function, 1 - `erf`, accurate where that is small.",
)


def _density(x: Any) -> Any:
    """exp(-x^2), with derivatives that are 0 at infinities."""
    near = constant_beyond(x, 40.0)
    return tnp.exp(-near * near)


def _log_ndtr(x: Any) -> Any:
    """What is near to 1 has its logarithm as W. Kahan's log1p has: by that of the rounded number."""
    half = x / math.sqrt(2)
    below = 0.5 * scaled_erfc(tnp.abs(half))
    rest = below * gauss(half)
    share = tnp.where(x < 0, below, 1 - rest)
    logarithm = tnp.log(share)
    is_rounded = (x < 0) | (share == 1)
    near = tnp.where(share == 1, -rest, logarithm * rest / tnp.where(is_rounded, 1.0, 1 - share))
    return tnp.where(x < 0, logarithm - half * half, near)


def _hazard(ans: Any, x: Any) -> Any:
    """The density over `ndtr`: from `ans` where that is close to zero; far below zero, -x."""
    far = x < -1e9
    low = 1 / (math.sqrt(math.pi / 2) * scaled_erfc(tnp.where(far | (x > 0), 0.0, -x) / math.sqrt(2)))
    high = _density(x / math.sqrt(2)) * tnp.exp(-ans) / math.sqrt(2 * math.pi)
    return cast(tnp.where(far, -x, tnp.where(x < 0, low, high)), x.dtype)


log_ndtr = special_function(
    "lax.log_ndtr",
    "x",
    _log_ndtr,
    [_hazard],
    "The logarithm of the probability that a normal number is below x.",
)


@lru_cache
def _series(order: int, degree: int, far_degree: int) -> tuple[list[float], list[float]]:
    """Chebyshev's coefficients of an exponentially scaled Bessel function, from its values: of what it is up to 8,
    divided by x if it is odd; and of its product with the root of x beyond, by 1 / x, which is smoother. (C. Clenshaw,
    "Chebyshev Series for Mathematical Functions", 1962, has these intervals.)"""
    from numpy.polynomial.chebyshev import chebinterpolate  # here, since few programs need it

    near = chebinterpolate(lambda t: _integral(order, 4 * t + 4), degree)
    far = chebinterpolate(lambda t: _integral(order, 16 / (t + 1)) * (16 / (t + 1)) ** (order + 0.5), far_degree)
    return near.tolist(), far.tolist()


def _integral(order: int, x: Any) -> Any:
    """The scaled function of order 0 or 1, over x to the order: Poisson's integral of it (DLMF 10.32.2). Its integrand
    is periodic, and next to nothing outside of a few standard deviations, so that equal weights leave no error."""
    angles = np.minimum(1.0, 5 / np.sqrt(x)) * np.linspace(0, math.pi, 65)[:, None]
    values = np.exp(-2 * x * np.sin(angles / 2) ** 2) * np.sin(angles) ** (2 * order)
    return (values.sum(0) - (values[0] + values[-1]) / 2) * angles[1] / math.pi


def _bessel(order: int) -> Function:
    def function(x: Any) -> Any:
        near, far = _series(order, *((17, 6) if x.dtype.itemsize < 8 else (32, 32)))
        size = tnp.abs(x)
        low, high = tnp.minimum(size, 8.0), tnp.maximum(size, 8.0)
        small = _summed(near, low / 4 - 1) * (low if order else 1)
        found = tnp.where(size <= 8, small, _summed(far, 16 / high - 1) / tnp.sqrt(high))
        return tnp.where(x < 0, -found, found) if order else found

    def odd_at_zero(function: Function) -> Function:
        return lambda x: tnp.where(x == 0, x, function(x))  # with its sign, which SciPy loses, too

    both = function, on_host(f"i{order}e")
    return _in_programs(*(map(odd_at_zero, both) if order else both))


def _summed(coefficients: Sequence[float], t: Any) -> Any:
    """Clenshaw's sum of Chebyshev polynomials."""
    before, now = 0.0, coefficients[-1]
    for c in coefficients[-2:0:-1]:
        before, now = now, 2 * t * now - before + c
    return t * now - before + coefficients[0]


bessel_i0e = special_function(
    "lax.bessel_i0e",
    "x",
    _bessel(0),
    [lambda ans, x: bessel_i1e(x) - tnp.sign(x) * ans],
    "The modified Bessel function of order 0, times exp(-|x|).",
)
_SERIES_TERMS = 11


def _first_over_argument(ans: Any, x: Any, scale: Any) -> Any:
    """ans / x of `ans`, the modified Bessel function of order 1 times `scale`: near 0 by its series, the sum of
    (x / 2)^2k / (2 k! (k + 1)!), which has accurate derivatives there."""
    near = tnp.abs(x) < 1
    quarter = tnp.where(near, x * x, 0.0) / 4
    series: Any = 0.0
    for k in range(_SERIES_TERMS, -1, -1):
        series = 0.5 / (math.factorial(k) * math.factorial(k + 1)) + quarter * series
    return cast(tnp.where(near, scale * series, ans / tnp.where(near, 1.0, x)), x.dtype)


bessel_i1e = special_function(
    "lax.bessel_i1e",
    "x",
    _bessel(1),
    [lambda ans, x: bessel_i0e(x) - ans * tnp.sign(x) - _first_over_argument(ans, x, tnp.exp(-tnp.abs(x)))],
    "The modified Bessel function of order 1, times exp(-|x|).",
)


def _grown(scaled: Any, x: Any) -> Any:
    """exp(|x|) times the exponentially scaled function."""
    return tnp.exp(tnp.abs(x)) * scaled


def _bessel_i1_slope(ans: Any, x: Any) -> Any:
    """i0(x) - i1(x) / x; where both are infinite, the quotient is the smaller."""
    far = tnp.isinf(ans)
    x = tnp.where(far, 1.0, x)
    return tnp.where(far, tnp.abs(ans), bessel_i0(x) - _first_over_argument(ans, x, 1.0))


bessel_i0 = with_slope("i0", lambda x: _grown(bessel_i0e(x), x), lambda ans, x: bessel_i1(x))
bessel_i1 = with_slope("i1", lambda x: _grown(bessel_i1e(x), x), _bessel_i1_slope)
