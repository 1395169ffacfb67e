"""Error bounds of a scalar function, for all arguments: what an operation's `result_accuracy` can rely on.

The declaration of an operation states those of its scalar function. `docs/accuracy.md` has the largest errors that were
found; `test_scalar_math.py` and `test_accuracy.py` in `tests/kernels` hold the functions to their bounds.
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


EXACT = Accuracy(0.0, 0.0)  # results that need no rounding
