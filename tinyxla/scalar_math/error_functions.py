"""The error function and its inverse, without branches. The polynomials are fitted as those in `exponentials`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinyxla.scalar_math.exponentials import (
    exp_of_remainder,
    expm1_of_negative,
    exponent_and_fraction,
    log_of_parts,
    split_by_ln_2,
)
from tinyxla.scalar_math.float_formats import format_of, polynomial, power_of_two
from tinyxla.scalar_math.scalar import Scalar

__all__ = ["erf", "erf_inv"]

# log(1 - erf(x)) / x as a polynomial in x for 0 <= x <= 3.93, in f32, 2^-24.7 of erf(x)
LOG_ERFC = (
    -1.1283792,
    -0.63661534,
    -0.1028253,
    0.019358175,
    -0.0002615933,
    -0.0012092865,
    0.00036551346,
    -3.8556296e-05,
)
# In f64: erf(x) / x - 1 as a polynomial in x^2 for |x| <= 1.01, 2^-56.3
ERF_NEAR = (
    0.1283791670955126,
    -0.3761263890318409,
    0.11283791670970589,
    -0.026866170647893553,
    0.005223977650981127,
    -0.0008548328417779503,
    0.00012055381230763387,
    -1.4926747684466863e-05,
    1.6478698657361512e-06,
    -1.6530020382519448e-07,
    1.5817981324371813e-08,
    -1.5664200900986804e-09,
    1.2918137476813226e-10,
)
# log(1 - erf(x)) for 1 <= x <= 6, 2^-59.5 of erf(x)
ERF_FAR = (
    -1.8440608144420506e-07,
    -1.1283772821793823,
    -0.6366287047930151,
    -0.10274663938762059,
    0.019076948631563,
    0.00028223884871498634,
    -0.0017709371024235247,
    0.000642844037537056,
    -4.5963139072691656e-05,
    -6.974646742762875e-05,
    4.476815829225331e-05,
    -1.64208564462537e-05,
    4.301601922247352e-06,
    -8.451528947172401e-07,
    1.248239350257376e-07,
    -1.352134319949638e-08,
    1.0169684162736004e-09,
    -4.751271809995053e-11,
    1.038937681625416e-12,
)
ERF_SPLIT = 1.005
ERF_ONE = {"f32": 3.92, "f64": 5.93}  # erf rounds to 1 from here on


@dataclass(frozen=True, slots=True)
class _Piece:
    """erf_inv(x) / x as a polynomial in t - middle, where t is w = -log(1 - x^2), or its square root, for w up to end.

    The middle was chosen so that rounding the coefficients costs least.
    """

    rooted: bool
    end: float
    middle: float
    coefficients: tuple[float, ...]


ERF_INV = {
    "f32": (
        # 2^-27.2
        _Piece(
            rooted=False,
            end=4.7,
            middle=2.205078125,
            coefficients=(
                1.4283402,
                0.24875484,
                -0.0029542008,
                -0.001512698,
                0.00022074945,
                1.9456338e-06,
                -4.352906e-06,
                3.9067677e-07,
                4.6976805e-08,
                -9.349372e-09,
            ),
        ),
        # 2^-26.8
        _Piece(
            rooted=True,
            end=16.8,
            middle=2.94140625,
            coefficients=(
                2.774319,
                1.0004847,
                0.010912803,
                -0.00910117,
                0.006813816,
                -0.004109314,
                0.0014863269,
                7.290749e-05,
                -0.00037167812,
                0.00014419343,
                -1.3198381e-05,
            ),
        ),
    ),
    "f64": (
        # 2^-55.2
        _Piece(
            rooted=False,
            end=4.5,
            middle=2.23046875,
            coefficients=(
                1.4346543054591427,
                0.24860189996576312,
                -0.003068560776583297,
                -0.0014902134882408993,
                0.00022093904024876997,
                1.2373371476493483e-06,
                -4.273768061279066e-06,
                4.195019621446709e-07,
                4.2261024150071525e-08,
                -1.2692999341459303e-08,
                4.0159614831232113e-10,
                2.210441135659948e-10,
                -3.0123013282180254e-11,
                -1.6384253452877468e-12,
                7.915339936068315e-13,
                -4.2221416464288673e-14,
                -1.2532551686937686e-14,
                1.940262664807716e-15,
                7.581824595747121e-17,
                -3.2862378889643365e-17,
                1.2374794405353313e-18,
            ),
        ),
        # 2^-55.8
        _Piece(
            rooted=True,
            end=15.0,
            middle=2.970703125,
            coefficients=(
                2.8036391469878517,
                1.0011015608119807,
                0.01014752999035814,
                -0.008341332937311877,
                0.006225708544701829,
                -0.0038218730187703173,
                0.0015070278280441135,
                -7.605631034726765e-05,
                -0.00033900479914000066,
                0.00021792395261858275,
                -3.780505931263754e-05,
                -3.0965684347810136e-05,
                2.4045827794480384e-05,
                -5.080168366484965e-06,
                -2.5915644561772697e-06,
                2.287060060068026e-06,
                -5.905878987590876e-07,
                -1.7256394454539286e-07,
                2.152215124593485e-07,
                -6.74827837487099e-08,
                -1.9595054715263008e-08,
                1.9299620487111967e-08,
                -9.637625935237507e-10,
                -1.6052964413881463e-09,
            ),
        ),
        # 2^-57.1
        _Piece(
            rooted=True,
            end=37.0,
            middle=5.083984375,
            coefficients=(
                4.93475475239503,
                1.0102727895751906,
                -0.00018979398668855896,
                -0.00019083674039133762,
                6.818950667506255e-05,
                -1.7540949905876564e-05,
                3.98441261110164e-06,
                -8.544513226154581e-07,
                1.8587595386352212e-07,
                -4.820180414116099e-08,
                1.8066319224299854e-08,
                -9.011453243755003e-09,
                4.713692895621811e-09,
                -2.2505456930489975e-09,
                8.950303823157085e-10,
                -2.7815222329400833e-10,
                7.44012736493281e-11,
                -9.91831259273457e-12,
                -1.1726922433025192e-11,
                5.839965855980078e-12,
            ),
        ),
    ),
}


def erf(x: Scalar) -> Scalar:
    """The error function: 1 - exp(polynomial), and for f64 another polynomial near zero."""
    form = format_of(x)
    magnitude = x.abs()
    if form.type == "f32":
        bounded = (magnitude > ERF_ONE["f32"]).where(ERF_ONE["f32"], magnitude)
        return expm1_of_negative(bounded * polynomial(bounded, LOG_ERFC), form).copysign(x)
    near = magnitude.fma(polynomial(x * x, ERF_NEAR), magnitude)
    n, r = split_by_ln_2(polynomial(magnitude, ERF_FAR), form)
    far = exp_of_remainder(r, form).fma(-power_of_two(n, form), 1.0)
    y = (magnitude > ERF_SPLIT).where(far, near)
    return (magnitude > ERF_ONE["f64"]).where(1.0, y).copysign(x)


def erf_inv(x: Scalar) -> Scalar:
    """The inverse of the error function: infinite at -1 and 1, NaN beyond.

    The plan, polynomials in w = -log(1 - x^2) and its square root, is Giles' (Approximating the erfinv function, GPU
    Computing Gems, Jade edition, 2012).
    """
    form = format_of(x)
    n, f = exponent_and_fraction(x.fma(-x, 1.0).bits(), form)
    w = -log_of_parts(n.to(form.type), f, form)
    root = w.sqrt()
    *pieces, last = ERF_INV[form.type]
    ratio = _value_of(last, w, root)
    for piece in reversed(pieces):
        ratio = (w <= piece.end).where(_value_of(piece, w, root), ratio)
    magnitude = x.abs()
    return (magnitude < 1.0).where(x * ratio, magnitude.equal(1.0).where(x * math.inf, math.nan))


def _value_of(piece: _Piece, w: Scalar, root: Scalar) -> Scalar:
    return polynomial((root if piece.rooted else w) - piece.middle, piece.coefficients)
