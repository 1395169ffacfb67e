"""Special functions. `lgamma`, `digamma` and `erfc` are formulas of other operations; the others are
computed by SciPy on the host, also in compiled functions, and have derivatives by all their arguments.

Sources: C. Lanczos, "A Precision Approximation of the Gamma Function" (1964), in the form with g = 7 and nine terms;
the "Digital Library of Mathematical Functions", chapters 5, 7, 8, 10 and 25, for the derivatives.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla import numpy as tnp
from tinyxla.api import ShapeDtypeStruct
from tinyxla.callbacks import pure_callback
from tinyxla.custom_derivatives import custom_jvp
from tinyxla.errors import DTypeError
from tinyxla.lax.operands import of_one_shape, of_one_type
from tinyxla.shapes import element_type
from tinyxla.tracing.array import Array

ArrayLike = Any
Function = Callable[..., Any]
Partial = Callable[..., Any]  # of the result and the operands: the derivative by one of these


def _special(name: str, names: str, function: Function, partials: Sequence[Partial], text: str) -> Function:
    """The function of arrays of one floating type and shape that has these derivatives; `names` are its arguments'."""
    signature = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names.split()]
    )
    ruled = custom_jvp(function)

    def rule(operands: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        ans = ruled(*operands)
        moving = [t is not None for t in tangents]
        parts = [t * p(ans, *operands) for t, p, m in zip(tangents, partials, moving, strict=True) if m]
        return ans, sum(parts[1:], parts[0])

    ruled.defjvp(rule)

    def apply(*args: ArrayLike, **kwargs: ArrayLike) -> Array:
        operands = signature.bind(*args, **kwargs).args
        values = of_one_shape(f"lax.{name}", of_one_type(f"lax.{name}", *operands))
        if element_type(values[0].dtype).kind != "float":
            raise DTypeError(f"lax.{name}: not defined for {values[0].dtype.name}; convert to a floating type.")
        return ruled(*values)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = text
    apply.__signature__ = signature  # type: ignore[attr-defined]
    return apply


def _narrowed(function: Function) -> Function:
    """Types of less than 32 bits are computed in 32."""

    def widened(x: Any) -> Any:
        wide = x.astype(np.float32) if element_type(x.dtype).bits < 32 else x
        return function(wide).astype(x.dtype)

    return widened


def _on_host(name: str) -> Function:
    """The function of SciPy of that name."""

    def compute(*values: Any) -> Any:
        import scipy.special  # here, since importing it costs more than importing this package

        wide = [np.asarray(x, np.float64 if x.dtype == np.float64 else np.float32) for x in values]
        with np.errstate(all="ignore"):
            return np.asarray(getattr(scipy.special, name)(*wide)).astype(values[0].dtype)

    def function(*operands: Any) -> Any:
        result = ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
        return pure_callback(compute, result, *operands, vmap_method="broadcast_all")

    return function


def _slope(name: str, number: int) -> Partial:
    """The derivative of a function of SciPy by an operand, by differences of fourth order in double precision; it has
    no derivative itself. Its error is some 1e-10 of the function's value."""

    def compute(*values: Any) -> Any:
        import scipy.special  # here, since importing it costs more than importing this package

        wide = [np.asarray(x, np.float64) for x in values]
        step = 1e-3 * np.minimum(np.abs(wide[number]), 1.0)

        def at(k: int) -> Any:
            return getattr(scipy.special, name)(*(x + k * step if n == number else x for n, x in enumerate(wide)))

        with np.errstate(all="ignore"):
            found = (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * step)
        return np.asarray(found).astype(values[0].dtype)

    def partial(ans: Any, *operands: Any) -> Any:
        return pure_callback(compute, ShapeDtypeStruct(ans.shape, ans.dtype), *operands, vmap_method="broadcast_all")

    return partial


# --- the gamma function -----------------------------------------------------------------------------------------------

_G = 7
_TERMS = (
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)
_FIRST = 0.99999999999980993227684700473478


def _log_gamma(x: Any) -> Any:
    """Lanczos' sum for x of at least 1/2; below that by the reflection, pi / sin(pi x) = gamma(x) gamma(1 - x)."""
    reflected = x < 0.5
    z = tnp.where(reflected, -x, x - 1)
    total = _FIRST + sum(c / (z + k) for k, c in enumerate(_TERMS, 1))
    shifted = z + (_G + 0.5)
    log_shifted = math.log(_G + 0.5) + tnp.log1p(z / (_G + 0.5))
    direct = (z + 0.5 - shifted / log_shifted) * log_shifted + 0.5 * math.log(2 * math.pi) + tnp.log(total)
    part = tnp.abs(x) - tnp.floor(tnp.abs(x))
    sine = tnp.sin(math.pi * tnp.where(part > 0.5, 1 - part, part))
    mirrored = tnp.where(sine == 0, tnp.inf, math.log(math.pi) - tnp.log(sine) - direct)
    return tnp.where(tnp.isinf(x), tnp.inf, tnp.where(reflected, mirrored, direct))


def _digamma(x: Any) -> Any:
    """The derivative of the above, and digamma(1 - x) - digamma(x) = pi / tan(pi x)."""
    reflected = x < 0.5
    z = tnp.where(reflected, -x, x - 1)
    total = _FIRST + sum(c / (z + k) for k, c in enumerate(_TERMS, 1))
    slope = -sum(c / ((z + k) * (z + k)) for k, c in enumerate(_TERMS, 1))
    log_shifted = math.log(_G + 0.5) + tnp.log1p(z / (_G + 0.5))
    direct = log_shifted + slope / total - _G / (z + (_G + 0.5))
    part = x + tnp.abs(tnp.floor(x + 0.5))  # nearer to zero by whole periods, for the sake of accuracy
    mirrored = direct - math.pi / tnp.tan(math.pi * part)
    pole = (x <= 0) & (x == tnp.floor(x))
    return tnp.where(pole, tnp.nan, tnp.where(reflected, mirrored, direct))


zeta = _special(
    "zeta",
    "x q",
    _on_host("zeta"),
    [_slope("zeta", 0), lambda ans, s, q: -s * zeta(s + 1, q)],
    "Hurwitz' zeta function, the sum of (q + k)^-s over k = 0, 1, ...; of s > 1 and q.",
)
lgamma = _special(
    "lgamma",
    "x",
    _narrowed(_log_gamma),
    [lambda ans, x: digamma(x)],
    "The logarithm of the absolute value of the gamma function.",
)
digamma = _special(
    "digamma",
    "x",
    _narrowed(_digamma),
    [lambda ans, x: polygamma(1.0, x)],
    "The derivative of `lgamma`.",
)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order m of `digamma`, for whole numbers m; differentiable by x."""
    order, value = of_one_shape("lax.polygamma", of_one_type("lax.polygamma", m, x))
    sign = tnp.where(order % 2 == 0, -1.0, 1.0).astype(value.dtype)
    higher = sign * tnp.exp(lgamma(order + 1)) * zeta(order + 1, tnp.where(order == 0, 1.0, value))
    return tnp.where(order == 0, digamma(value), higher)


def _gamma_density(a: Any, x: Any) -> Any:
    return tnp.exp((a - 1) * tnp.log(x) - x - lgamma(a))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    logarithm = (a - 1) * tnp.log(x) + (b - 1) * tnp.log1p(-x)
    return tnp.exp(logarithm - lgamma(a) - lgamma(b) + lgamma(a + b))


igamma = _special(
    "igamma",
    "a x",
    _on_host("gammainc"),
    [_slope("gammainc", 0), lambda ans, a, x: _gamma_density(a, x)],
    "The regularized lower incomplete gamma function of a and x.",
)
igammac = _special(
    "igammac",
    "a x",
    _on_host("gammaincc"),
    [_slope("gammaincc", 0), lambda ans, a, x: -_gamma_density(a, x)],
    "The regularized upper incomplete gamma function of a and x: 1 - `igamma`.",
)
betainc = _special(
    "betainc",
    "a b x",
    _on_host("betainc"),
    [_slope("betainc", 0), _slope("betainc", 1), lambda ans, a, b, x: _beta_density(a, b, x)],
    "The regularized incomplete beta function of a, b and x.",
)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `igamma` by a; it is not differentiable again."""
    values = of_one_shape("lax.igamma_grad_a", of_one_type("lax.igamma_grad_a", a, x))
    return _slope("gammainc", 0)(values[0], *values)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """How a sample x of the gamma distribution of shape a moves with a, when its place among all samples is kept."""
    shape, sample = of_one_shape("lax.random_gamma_grad", of_one_type("lax.random_gamma_grad", a, x))
    return -igamma_grad_a(shape, sample) / _gamma_density(shape, sample)


# --- error and Bessel functions ---------------------------------------------------------------------------------------

# (1 + 2 x) exp(x^2) erfc(x) is 1 + (t + 1) p(t) for x >= 0, where t is (x - middle) / (x + middle) and p a polynomial
_ERFC: dict[int, tuple[float, tuple[float, ...]]] = {
    # 2^-26.8
    4: (
        3.0,
        (
            0.253008063,
            -0.388629163,
            0.341066499,
            -0.211421778,
            0.0921524264,
            -0.0238392297,
            5.03703284e-05,
            0.00245640834,
            -0.000532555936,
            -0.000201526115,
            6.56176129e-05,
            1.44569369e-05,
        ),
    ),
    # 2^-57.1
    8: (
        3.75,
        (
            0.2375126308378276,
            -0.3777532294233746,
            0.3813386449088395,
            -0.29906190641868974,
            0.19025797627692215,
            -0.09795365511666321,
            0.03926025652730712,
            -0.010897979106929788,
            0.0011513995467633167,
            0.0006042262966685475,
            -0.00031051262172745374,
            2.0358579693926705e-05,
            3.1290494349244584e-05,
            -8.906355823587831e-06,
            -2.5377500097954473e-06,
            1.5643624930460329e-06,
            1.8723734471233091e-07,
            -2.4464810544247007e-07,
            -1.4005353074201294e-08,
            3.740388738724219e-08,
            1.276092806152313e-09,
            -5.07428260388852e-09,
            -1.0652100892560516e-10,
            4.270472427184967e-10,
        ),
    ),
}


def _erfc(x: Any) -> Any:
    """The plan is Shepherd and Laframboise's (Chebyshev Approximation of (1 + 2x) exp(x^2) erfc x, Mathematics of
    Computation 36, 1981); the square is exponentiated in two parts, the first of which is exact."""
    middle, coefficients = _ERFC[x.dtype.itemsize]
    size = tnp.minimum(tnp.abs(x), 30.0)  # beyond, it is 0
    t = (size - middle) / (size + middle)
    p: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        p = p * t + c
    grid = 64.0 if x.dtype.itemsize == 4 else 2.0**20
    coarse = tnp.floor(size * grid) / grid
    gauss = tnp.exp(-coarse * coarse) * tnp.exp((coarse - size) * (coarse + size))
    upper = gauss * (1 + (t + 1) * p) / (1 + 2 * size)
    return tnp.where(x < 0, 2 - upper, upper)


erfc = _special(
    "erfc",
    "x",
    _narrowed(_erfc),
    [lambda ans, x: -2 / math.sqrt(math.pi) * tnp.exp(-x * x)],
    "The complementary error function, 1 - `erf`, accurate where that is small.",
)
bessel_i0e = _special(
    "bessel_i0e",
    "x",
    _on_host("i0e"),
    [lambda ans, x: bessel_i1e(x) - tnp.sign(x) * ans],
    "The modified Bessel function of order 0, times exp(-|x|).",
)
bessel_i1e = _special(
    "bessel_i1e",
    "x",
    _on_host("i1e"),
    [
        lambda ans, x: tnp.where(
            x == 0, 0.5, bessel_i0e(x) - ans * (tnp.sign(x) + 1 / tnp.where(x == 0, 1.0, x))
        ).astype(x.dtype)
    ],
    "The modified Bessel function of order 1, times exp(-|x|).",
)
