"""How accurate the scalar math is, for all arguments: what an operation's `result_accuracy` can rely on.

`docs/accuracy.md` has the largest errors that were found; `test_scalar_math.py` and `test_accuracy.py` in
`tests/kernels` hold the functions to the bounds here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest errors in units in the last place of the exact result, subnormal results included, which compiled
    code takes for zeros.

    They were found by comparing with wider arithmetic at some 10^8 (f32) and 10^6 (f64) arguments, and rounded up.
    Those of complex numbers are relative to the magnitude of the result, and 0 where there is no such function. The
    interpreter, which computes with NumPy's functions, is within those of f64 and c128.
    """

    f32: float
    f64: float
    c64: float = 0.0
    c128: float = 0.0


ACCURACY = {
    "atan2": Accuracy(1.6, 1.6),
    "cbrt": Accuracy(0.51, 0.6),
    "cos": Accuracy(1.0, 1.0, 2.6, 2.6),
    "cosh": Accuracy(1.5, 1.5, 3.3, 3.3),
    "erf": Accuracy(3.0, 1.2),
    "erf_inv": Accuracy(2.1, 2.1),
    "exp": Accuracy(1.1, 1.1, 2.0, 2.0),
    "expm1": Accuracy(1.5, 1.9, 3.3, 3.3),
    "log": Accuracy(0.9, 1.0, 2.8, 2.8),
    "log1p": Accuracy(1.2, 1.2, 2.9, 2.9),
    "logistic": Accuracy(1.6, 2.3, 3.4, 3.4),
    "pow": Accuracy(1.2, 1.2),
    "rsqrt": Accuracy(1.5, 1.5, 2.7, 2.7),
    "sin": Accuracy(1.0, 1.0, 2.6, 2.6),
    "sinh": Accuracy(1.6, 1.6, 2.8, 2.8),
    "sqrt": Accuracy(0.5, 0.5, 2.0, 2.0),
    "tan": Accuracy(1.2, 1.4, 6.0, 6.0),
    "tanh": Accuracy(2.6, 2.7, 6.0, 6.0),
}
