"""Differences from JAX that are intended, one line each: function, kind and way, message; and the reason.

The three are regular expressions that must match in full, except the message, which is searched.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .differences import Difference


class Intended(NamedTuple):
    """A difference that is no defect."""

    name: str
    kind: str
    message: str
    reason: str

    def covers(self, found: Difference) -> bool:
        return bool(
            re.fullmatch(self.name, found.name)
            and re.fullmatch(self.kind, f"{found.kind} {found.way}")
            and re.search(self.message, found.detail)
        )


ANY = ".*"
INTENDED: tuple[Intended, ...] = (
    Intended(ANY, "accepts eager", "narrow-width integers|1-bit, 2-bit and 4-bit|int4|uint4|data type .V.|Invalid integer", "4-bit integers have all operations"),
    Intended(ANY, "accepts eager", "(bfloat16|float16|float8_e\\w+)['> ]* is not supported|not accept dtype (bfloat16|float16|float8)|Unsupported dtype (bfloat16|float16|float8)|Unimplemented.*16|failed to legalize operation 'chlo", "all types of floats have all functions of floats"),
    Intended(r"(lax|nn|ops)\..*", "accepts eager", "negative axes|[Oo]ut-of-bounds|Invalid axis -", "negative axes count from the end"),
    Intended(r"lax\..*", "accepts eager", "requires arguments to have the same dtypes|dtypes should match", "a Python number takes the type of the array beside it"),
    Intended(r"lax\.(real|imag|conj)", "accepts eager", "does not accept dtype", "real numbers are complex ones, too"),
    Intended(r"nn\..*", "accepts eager", "does not accept dtype", "integers and booleans become floats, as in numpy"),
    Intended(r"lax\.p(broadcast|permute)", "accepts eager", ANY, "receivers of nothing get zeros; a list of names is one"),
    Intended(r"numpy\.(double|float64|complex128|cdouble|int64|uint64|float_|complex_)", "dtype .*", "64|128", "a 64-bit type that is asked for by name is honoured"),
    Intended(r"numpy\.array_repr", "value .*", "^value: 'Array", "arrays print as Array"),
    Intended(r"numpy\.einsum_path", "structure .*", ANY, "the path is in NumPy's form"),
    Intended(r"nn\.log1mexp", "nan .*", "expected nan", "unsigned numbers become floats before they are negated"),
    Intended(ANY, "nan (jvp|vjp|forward_over_reverse|reverse_over_reverse).*", r"^nan: [^n]+ at .*expected \(?nan", "no NaN from the branch of where that is not taken"),
    Intended(ANY, "accepts eager", "not implemented|NotImplemented", "JAX does not have it"),
    Intended(r"scipy\.stats\..*", "accepts eager", "unexpected keyword argument '(loc|scale)'", "all families have a location and a scale"),
    Intended(r"scipy\.linalg\.sqrtm", "accepts eager", "out of bounds for axis 0 with size 0", "an empty matrix is a matrix"),
    Intended(r"nn\.dot_product_attention", "nan .*", "^nan: 0.0", "what is beyond a length is left out, also a NaN"),
    Intended(r"nn\.logsumexp|scipy\.special\.logsumexp", "value (vjp|jvp|.*reverse).*", ANY, "the value is NaN: the logarithm of a negative sum"),
    Intended(r"scipy\.stats\.norm\.isf", "dtype .*", "float32, expected float64", "JAX widens it with a constant of NumPy's"),
    Intended(r"(numpy|scipy)\.fft\..*|scipy\.signal\.(stft|istft|csd|welch|fftconvolve)", "(nan|infinity) .*", r"nan|inf", "where an infinity goes in a transform is left to its algorithm"),
    Intended(r"lax\.reduce_precision", "value (jvp|vjp|forward_over_reverse|reverse_over_reverse).*", ANY, "derivatives are not rounded"),
    Intended(ANY, "accepts eager", "RFFT input must be float32", "all types of floats have all functions of floats"),
    Intended(r"scipy\.linalg\.(lu|cho_factor|sqrtm|expm)", "accepts eager", "too many values to unpack|2D|square|ndim", "decompositions take batches of matrices"),
    Intended(r"numpy\.(nan)?(percentile|quantile|median)", "shape .*", r"\(\), expected \(1,\)", "keepdims of a scalar is a scalar, as in NumPy"),
    Intended(r"numpy\.unique(_all|_inverse|_counts|_values)?", "(value|nan) value.*", r"nan at|expected \(?nan|-?0\.0 at|value: \d+ at", "of NaN and of zeros of either sign the first index counts, as in NumPy"),
    Intended(r"lax\.conv.*", "nan .*", "^nan: .*(inf|expected \\(?nan)", "whether an infinite factor meets the zeros of padding and holes is left to the algorithm"),
    Intended(r"lax\.ragged_dot(_general)?", "nan .*", ANY, "rows of other groups are left out, also a NaN"),
    Intended(r"lax\.ragged_dot(_general)?", "raises .*", "different element types", "operands of one type"),
    Intended(r"numpy\.trapezoid|scipy\.integrate\.trapezoid", "nan .*", ANY, "sums of infinities depend on the order"),
    Intended(r"(numpy|scipy)\.fft\..*", "raises .*", "the lengths must be positive", "a transform of no elements is an error, as in NumPy"),
    Intended(r"numpy\.tri|scipy\.linalg\.pascal", "dtype .*", "float64, expected float32", "the default type of floats, as in NumPy"),
    Intended(r"lax\.conj", "dtype .*", "float(32|64), expected complex", "the conjugate of a real number is real, as in NumPy"),
    Intended(r"nn\.(log_sigmoid|softplus)", "value .*", r"^value: \(.*j\) at", "complex logarithms of nearly 1 keep their digits"),
    Intended(r"scipy\.special\.softmax", "(value|nan) .*", ANY, "SciPy's default is all axes"),
    Intended(r"numpy\.argpartition", "dtype .*", "int64, expected int32", "indices are of the default type, as in NumPy"),
    Intended(r"nn\.dot_product_attention", "value .*", r"^value: -?\d\.\d{9,}", "weights of 64-bit operands have 64 bits: JAX's have 32"),
    Intended(r"lax\.random_gamma_grad", "value .*", r"^value: (-?\d+\.\d{10})\d* at .*expected \1", "twelve digits of sixteen are right"),
    Intended(r"lax\.acosh?", "value .*", r"^value: -?[\d.]+j at .*expected -?[\d.]+j", "the sign of a zero chooses the side of a branch cut, as in NumPy"),
    Intended(r"numpy\.polyder", "dtype .*", "int|bool", "derivatives of polynomials of integers have integers, as in NumPy"),
)  # fmt: skip


def reason_for(found: Difference) -> Intended | None:
    """The line of the table that the difference is covered by."""
    return next((line for line in INTENDED if line.covers(found)), None)
