"""The scalar math of kernels: every function that an element-wise operation needs, in one place.

All are branch-free and written against the `Scalar` protocol alone, so they vectorise. `exponentials`, `powers`,
`trigonometry`, `error_functions` and `integers` hold them by kind; those of complex numbers are in `complex_numbers`.

`ACCURACY` says how accurate the rounding ones are, for all arguments: it is what an operation's `result_accuracy` can
rely on, and `tests/test_scalar_math.py` holds them to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyxla_kernels.error_functions import erf, erf_inv
from tinyxla_kernels.exponentials import cosh, exp, expm1, log, log1p, logistic, sinh, tanh
from tinyxla_kernels.integers import (
    absolute,
    convert,
    count_leading_zeros,
    divide,
    population_count,
    power,
    reduce_precision,
    rem,
    remainder,
    round_afz,
    round_even,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    total_order,
)
from tinyxla_kernels.powers import cbrt, pow, rsqrt, sqrt
from tinyxla_kernels.trigonometry import atan2, cos, sin, tan

__all__ = [
    "ACCURACY",
    "Accuracy",
    "absolute",
    "atan2",
    "cbrt",
    "convert",
    "cos",
    "cosh",
    "count_leading_zeros",
    "divide",
    "erf",
    "erf_inv",
    "exp",
    "expm1",
    "log",
    "log1p",
    "logistic",
    "population_count",
    "pow",
    "power",
    "reduce_precision",
    "rem",
    "remainder",
    "round_afz",
    "round_even",
    "rsqrt",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "total_order",
]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest errors in units in the last place of the exact result, subnormal results included.

    They were found by comparing with wider arithmetic at some 10^8 (f32) and 10^6 (f64) arguments, and rounded up.
    """

    f32: float
    f64: float


ACCURACY = {
    "atan2": Accuracy(1.6, 1.6),
    "cbrt": Accuracy(0.51, 0.51),
    "cos": Accuracy(1.8, 1.8),
    "cosh": Accuracy(1.5, 1.5),
    "erf": Accuracy(1.2, 1.2),
    "erf_inv": Accuracy(2.1, 2.1),
    "exp": Accuracy(1.1, 1.1),
    "expm1": Accuracy(1.5, 1.9),
    "log": Accuracy(0.9, 1.0),
    "log1p": Accuracy(1.2, 1.2),
    "logistic": Accuracy(1.6, 1.6),
    "pow": Accuracy(1.2, 1.2),
    "rsqrt": Accuracy(1.5, 1.5),
    "sin": Accuracy(1.8, 1.8),
    "sinh": Accuracy(1.6, 1.6),
    "sqrt": Accuracy(0.5, 0.5),
    "tan": Accuracy(1.2, 1.4),
    "tanh": Accuracy(1.5, 1.5),
}
