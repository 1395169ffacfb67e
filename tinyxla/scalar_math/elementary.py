"""The scalar math of kernels: every function that an element-wise operation needs, in one place.

All are branch-free and written against the `Scalar` protocol alone, so they vectorise. `exponentials`, `powers`,
`trigonometry`, `error_functions` and `integers` hold them by kind; those of complex numbers are in `complex_numbers`.
How accurate they are is in `accuracy`.
"""

from __future__ import annotations

from tinyxla.scalar_math.error_functions import erf, erf_inv
from tinyxla.scalar_math.exponentials import cosh, exp, expm1, log, log1p, logistic, sinh, tanh
from tinyxla.scalar_math.integers import (
    absolute,
    convert,
    count_leading_zeros,
    divide,
    divide_in_vectors,
    multiply_high,
    population_count,
    power,
    reduce_precision,
    rem,
    remainder,
    remainder_in_vectors,
    round_afz,
    round_even,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    total_order,
)
from tinyxla.scalar_math.powers import cbrt, pow, rsqrt, sqrt
from tinyxla.scalar_math.trigonometry import atan2, cos, sin, sin_and_cos, tan

__all__ = [
    "absolute",
    "atan2",
    "cbrt",
    "convert",
    "cos",
    "cosh",
    "count_leading_zeros",
    "divide",
    "divide_in_vectors",
    "erf",
    "erf_inv",
    "exp",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "multiply_high",
    "population_count",
    "pow",
    "power",
    "reduce_precision",
    "rem",
    "remainder",
    "remainder_in_vectors",
    "round_afz",
    "round_even",
    "rsqrt",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sin_and_cos",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "total_order",
]
