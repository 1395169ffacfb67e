"""Differences from JAX that are intended, one line each: functions, kind and way, message; and the reason.

Functions are words, in which `*` stands for any text; kind and way a regular expression that must match in full; the
message one that is searched. A line that only holds for arrays with an infinity or NaN, or for finite ones with a
subnormal or huge number, says so, and so does one that only holds for derivatives where the value is infinite or NaN, or for
some types of the inputs' elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from .differences import Difference


class Intended(NamedTuple):
    """A difference that is no defect."""

    names: str
    kind: str
    message: str
    reason: str
    inputs: str = ""
    value: str = ""
    types: str = ".*"

    def covers(self, found: Difference) -> bool:
        return bool(
            any(fnmatchcase(found.name, word) for word in self.names.split())
            and re.fullmatch(self.kind, f"{found.kind} {found.way}")
            and re.search(self.message, found.detail)
            and self.inputs in ("", found.inputs)
            and self.value in ("", found.value)
            and re.fullmatch(self.types, found.types)
        )

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The words that no function's name matches."""
        known = list(names)
        return [word for word in self.names.split() if not any(fnmatchcase(name, word) for name in known)]


ANY = ".*"
INFINITE = "infinite"
SUBNORMAL = "subnormal"
HUGE = "huge"
INTENDED: tuple[Intended, ...] = (
    Intended("*", "accepts eager", "narrow-width integers|1-bit, 2-bit and 4-bit|int4|uint4|data type .V.|Invalid integer", "4-bit integers have all operations"),
    Intended("*", "accepts eager", "(bfloat16|float16|float8_e\\w+)['> ]* is not supported|not accept dtype (bfloat16|float16|float8)|Unsupported dtype (bfloat16|float16|float8)|Unimplemented.*16|failed to legalize operation 'chlo", "all types of floats have all functions of floats"),
    Intended("*", "accepts eager", "not implemented|NotImplemented", "JAX does not have it"),
    Intended("numpy.frexp", "accepts eager", "KeyError: 8", "8-bit floats have all functions of floats"),
    Intended("scipy.linalg.expm", "value (reverse|forward)_over_(reverse|forward).*", ANY, "with upper_triangular=True first derivatives by elements below the diagonal, which are zero, depend on the degree of the rational approximant, in JAX on its element type; second derivatives lead through them", types="float32"),
    Intended("scipy.special.polygamma", "nan (reverse|forward)_over_.*", "-?inf at .*expected -?nan", "derivatives at poles are SciPy's infinities"),
    Intended("lax.integer_pow", "value value .*", r"^value: \(.*j\) at", "powers of complex numbers near the smallest ones are not flushed", inputs=SUBNORMAL),
    Intended("nn.log_sigmoid", "value value .*", r"expected -\d+\.", "unsigned numbers become floats before they are negated", types="uint\\d+"),
    Intended("scipy.special.erfcx", "value (reverse|forward)_over_(reverse|forward).*", r"^value: \(.*j\) at", "digits of second derivatives of complex functions, which are differences of large terms", types="complex128"),
    Intended("lax.gt lax.ge lax.lt lax.le lax.eq lax.ne", "value value .*", ANY, "eager comparisons do not take subnormal numbers for zeros", SUBNORMAL),
    Intended("numpy.divide numpy.true_divide numpy.reciprocal lax.div lax.reciprocal nn.sigmoid scipy.special.expit", "sign of zero value .*", ANY, "the sign of a zero part of a complex quotient depends on its formula", types=".*complex.*"),
    Intended("lax.igamma lax.igammac scipy.special.gammainc scipy.special.gammaincc", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", "^nan: -?0\\.0 at", "where one of the arguments is a pole the derivative by the other is 0", value=INFINITE),
    Intended("numpy.pad", "nan value .*", r"^nan: .*expected nan", "a ramp ends in its end value, also where it begins in a NaN", INFINITE),
    Intended("lax.sign numpy.sign", "value (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", "expected -?0j", "the sign of a complex number turns with it", types=".*complex.*"),
    Intended("numpy.cumulative_prod numpy.cumulative_sum", "dtype value .*", r"expected u?int[248]$|expected u?int16", "small integers widen, as in the array API"),
    Intended("scipy.special.zeta", "dtype value eager", "^dtype: float32, expected bfloat16", "NumPy adds a number to bfloat16 in float32", types="bfloat16 bfloat16"),
    Intended("scipy.stats.gennorm.logsf", "(infinity|value) value .*", ANY, "probabilities in half precision vanish early", types="float16.*"),
    Intended("scipy.special.loggamma lax.lgamma", "value (jvp|vjp|linearize) .*", r"^value: -?0\.0 at .*e-0[6-9]", "a zero that JAX rounds"),
    Intended("scipy.stats.gamma.logpdf scipy.stats.chi2.logpdf", "nan value .*", "^nan: nan at .*expected -inf", "what is no number has no density"),
    Intended("scipy.stats.*.logcdf scipy.stats.*.logsf", "nan (jvp|vjp|linearize) .*", r"^nan: -?inf at .*expected nan", "at the edge of the support the slope of a logarithm is infinite", value=INFINITE),
    Intended("scipy.stats.uniform.cdf", "sign of zero value .*", ANY, "the probability at minus zero is that zero"),
    Intended("numpy.isposinf numpy.isneginf", "accepts eager", "not well defined for complex", "parts of complex numbers are infinite or not"),
    Intended("numpy.argpartition", "value value .*", ANY, "the order inside of the parts is not specified"),
    Intended("Array.clip numpy.clip numpy.piecewise", "raises value .*", "does not fit the element type", "a Python integer outside of the type's range is an error, as in NumPy"),
    Intended("lax.pow numpy.place random.lognormal", "accepts eager", "must match, but got|implicit dtype promotion path|cannot safely cast", "types are promoted"),
    Intended("numpy.floor_divide", "value value .*", "^value: -1 at .*expected -2", "an integer over zero is -1, as XLA documents it"),
    Intended("composition*", "accepts eager", "INTERNAL: RET_CHECK failure", "JAX's compiler fails"),
    Intended("scipy.stats.*.logcdf scipy.stats.*.logsf", "nan (jvp|vjp|linearize) .*", "^nan: nan at .*expected -?0", "at the edge of the support, where the value is infinite, the slope is no number", value=INFINITE),
    Intended("numpy.linalg.slogdet", "nan value .*", r"^nan: nan at .*expected -?1\.0", "the sign of a determinant that is NaN is NaN", INFINITE),
    Intended("scipy.linalg.fiedler", "value (reverse|forward)_over_(reverse|forward).*", ANY, "the modulus of a difference has no second derivative where two elements are equal", types="complex.*"),
    Intended("composition:*argsort*", "value value .*", ANY, "rounding orders elements that are nearly equal"),
    Intended("scipy.special.rel_entr", "value value .*", r"^value: -0\.99", "the logarithm of a quotient near one has few digits in 32 bits", types="uint8 uint8"),
    Intended("scipy.stats.betabinom.*", "value .*", ANY, "JAX computes a part of it from integers in 32 bits", types="int32 .*float64.*"),
    Intended("numpy.vdot", "sign of zero value .*", ANY, "sums start at 0, so that of one product that vanishes is 0"),
    Intended("lax.* nn.* ops.*", "accepts eager", "negative axes|[Oo]ut-of-bounds|Invalid axis -", "negative axes count from the end"),
    Intended("lax.*", "accepts eager", "requires arguments to have the same dtypes|dtypes should match", "a Python number takes the type of the array beside it"),
    Intended("lax.reduce_window", "accepts eager", "inconsistent dtypes for operands and init_values", "a Python number takes the type of the array beside it"),
    Intended("lax.real lax.imag lax.conj", "accepts eager", "does not accept dtype", "real numbers are complex ones, too"),
    Intended("nn.*", "accepts eager", "does not accept dtype", "integers and booleans become floats, as in numpy"),
    Intended("lax.ppermute", "accepts eager", ANY, "receivers of nothing get zeros; a list of names is one"),
    Intended("numpy.double numpy.float64 numpy.complex128 numpy.cdouble numpy.int64 numpy.uint64 numpy.float_ numpy.complex_", "dtype value .*", "64|128", "a 64-bit type that is asked for by name is honoured"),
    Intended("numpy.array_repr", "value value eager", "^value: 'Array", "arrays print as Array"),
    Intended("numpy.einsum_path", "structure value eager", ANY, "the path is in NumPy's form"),
    Intended("nn.log_sigmoid", "value value .*", r"expected -\d{3,}", "unsigned numbers become floats before they are negated"),
    Intended("nn.log1mexp", "nan value .*", "expected nan", "unsigned numbers become floats before they are negated"),
    Intended("scipy.stats.*", "accepts eager", "unexpected keyword argument '(loc|scale)'", "all families have a location and a scale"),
    Intended("scipy.linalg.sqrtm", "accepts eager", "out of bounds for axis 0 with size 0", "an empty matrix is a matrix"),
    Intended("nn.dot_product_attention", "nan value .*", "^nan: 0.0", "what is beyond a length is left out, also a NaN", INFINITE),
    Intended("scipy.stats.norm.isf scipy.stats.norm.ppf", "dtype value .*", "float32, expected float64", "JAX widens it with a constant of NumPy's"),
    Intended("numpy.fft.* scipy.fft.* scipy.signal.stft scipy.signal.istft scipy.signal.csd scipy.signal.welch scipy.signal.fftconvolve lax.fft", "(nan|infinity|value) value .*", "nan|inf", "where an infinity goes in a transform is left to its algorithm", INFINITE),
    Intended("*", "accepts eager", "RFFT input must be float32", "all types of floats have all functions of floats"),
    Intended("scipy.linalg.lu scipy.linalg.cho_factor scipy.linalg.sqrtm scipy.linalg.expm", "accepts eager", "too many values to unpack|2D|square|ndim", "decompositions take batches of matrices"),
    Intended("numpy.percentile numpy.quantile numpy.nanpercentile numpy.nanquantile numpy.median numpy.nanmedian", "shape value .*", r"\(\), expected \(1,\)", "keepdims of a scalar is a scalar, as in NumPy"),
    Intended("numpy.unique numpy.unique_all numpy.unique_inverse numpy.unique_counts numpy.unique_values", "(value|nan) value .*", r"nan at|expected \(?nan|-?0\.0 at|value: \d+ at", "of NaN and of zeros of either sign the first index counts, as in NumPy", INFINITE),
    Intended("lax.conv*", "nan value .*", "^nan: ", "whether an infinite factor meets the zeros of padding and holes is left to the algorithm", INFINITE),
    Intended("lax.ragged_dot lax.ragged_dot_general", "nan value .*", "expected nan", "rows of other groups are left out, also a NaN", INFINITE),
    Intended("lax.ragged_dot lax.ragged_dot_general", "raises value .*", "different element types", "operands of one type"),
    Intended("numpy.trapezoid scipy.integrate.trapezoid", "nan value .*", "inf|nan", "sums of infinities depend on the order", INFINITE),
    Intended("numpy.fft.* scipy.fft.*", "raises value .*", "the lengths must be positive", "a transform of no elements is an error, as in NumPy"),
    Intended("numpy.tri scipy.linalg.pascal", "dtype value .*", "float64, expected float32", "the default type of floats, as in NumPy"),
    Intended("nn.log_sigmoid nn.softplus", "value value .*", r"^value: \(.*j\) at", "complex logarithms of nearly 1 keep their digits"),
    Intended("numpy.argpartition", "dtype value .*", "int64, expected int32", "indices are of the default type, as in NumPy"),
    Intended("lax.min lax.max lax.clamp lax.cummax lax.cummin lax.reduce_max lax.reduce_min numpy.maximum numpy.minimum numpy.clip Array.clip nn.relu6", "sign of zero value .*", ANY, "of zeros of either sign either is the larger, as in NumPy"),
    Intended("scipy.stats.*.log*", "sign of zero value .*", ANY, "the logarithm of one is a zero of either sign"),
    Intended("scipy.stats.*.log*", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?0\.0 at .*expected nan", "outside of its support a density is constant", value=INFINITE),
    Intended("scipy.stats.*.cdf scipy.stats.*.sf scipy.stats.*.pdf scipy.stats.*.pmf", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?0\.0 at .*expected nan", "outside of its support a density is constant, and so is a probability"),
    Intended("Array.nonzero numpy.nonzero numpy.flatnonzero numpy.argwhere numpy.count_nonzero numpy.unique*", "(shape|value) value eager", ANY, "a subnormal number is not zero outside of compiled code"),
    Intended("scipy.special.*", "accepts eager", "dtype=(u?int\\d+|bool) is not supported", "integers become floats, as in SciPy"),
    Intended("nn.squareplus", "(infinity|nan) value .*", r"j\) at", "a product of infinite complex numbers is left to its algorithm", INFINITE),
    Intended("lax.lgamma scipy.special.gammaln scipy.special.betaln", "sign of zero value .*", ANY, "the logarithm of one is a zero of either sign"),
    Intended("lax.pow lax.integer_pow", "accepts eager", "does not accept dtype (u?int|bool)", "integers have whole powers"),
    Intended("Array.at.*", "raises value eager", "index -?\\d+ is out of range", "known indices out of range are errors, as in NumPy, unless a mode is given"),
    Intended("numpy.argmax numpy.argmin Array.argmax Array.argmin numpy.nanargmax numpy.nanargmin", "accepts eager", "does not accept dtype complex", "complex numbers have NumPy's order"),
    Intended("lax.random_gamma_grad", "value value .*", r"^value: (-?\d+\.\d{10})\d* at .*expected \1", "twelve digits of sixteen are right"),
    Intended("Array.ptp numpy.ptp", "nan value .*", r"^nan: \(nan", "NaN if a part of an element is, as in NumPy", INFINITE),
    Intended("scipy.special.entr", "sign of zero value .*", ANY, "0 less the product, which is 0 at one"),
    Intended("random.loggamma random.gamma", "raises (forward|reverse)_over_reverse .*", "DifferentiationError: callback has no derivative", "second derivatives of a sample by its shape are refused"),
    Intended("numpy.power numpy.float_power lax.pow", "nan (forward|reverse)_over_reverse .*", r"^nan: -?[\d.e-]+ at .*expected nan", "no NaN from the logarithm of a base that is not positive, beside a factor of zero"),
    Intended("lax.linalg.schur", "uncalled value", ANY, "JAX has no derivative, and takes matrices of floats alone; test_matrix_reductions has it"),
    Intended("scipy.linalg.fiedler_companion", "nan value .*", r"expected -?0\.0", "a polynomial whose leading coefficient is 0 has no companion matrix"),
    Intended("nn.squareplus", "weak_type value jit", "False, expected True", "of booleans the same as outside of jit"),
    Intended("scipy.special.owens_t", "dtype value .*", "expected float(32|64)", "the type of the operands; JAX's constants widen it"),
    Intended("scipy.special.sici", "nan (forward|reverse)_over_reverse .*", "^nan: -?inf at .*expected nan", "at a pole derivatives are infinite"),
    Intended("numpy.extract", "accepts eager", "size must be positive and not greater", "a size may be larger than the array: the remainder is filled, as in nonzero"),
    Intended("lax.dot_general", "accepts eager", "preferred_element_type. must not be narrower", "the type of the result is the one that is asked for"),
    Intended("numpy.arccosh numpy.acosh lax.acosh", "nan (jvp|vjp|linearize|forward_over_reverse|reverse_over_reverse) .*", "^nan: nan at", "below 1, where the function is NaN, so is its derivative"),
    Intended("scipy.special.zeta lax.zeta", "nan (jvp|vjp|linearize|forward_over_reverse|reverse_over_reverse) .*", "^nan: nan at", "below 1, where the function is NaN, so is its derivative", value=INFINITE),
    Intended("numpy.*", "accepts eager", r"requires ndarray or scalar arguments, got <class '(list|tuple)'>", "sequences are arrays, as in NumPy"),
    Intended("lax.acosh", "(value|sign of zero) value .*", r"^(value|sign of zero): -?[\d.]+j at .*expected -?[\d.]+j", "the sign of a zero chooses the side of a branch cut, as in NumPy"),
    Intended("numpy.polyder", "dtype value .*", "int|bool", "derivatives of polynomials of integers have integers, as in NumPy"),
    Intended("composition:*", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?0\.0 at .*expected nan", "zero times an infinite slope is zero"),
    Intended("lax.conv_transpose", "nan value .*", "^nan: nan at", "whether an infinite factor meets the zeros of padding and holes is left to the algorithm", INFINITE),
    Intended("scipy.stats.betabinom.logpmf", "value (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^value: -?0\.0 at", "outside of its support a density is constant", value=INFINITE),
    Intended("numpy.take", "raises value eager", "index -?\\d+ is out of range", "known indices out of range are errors, as in NumPy, unless a mode is given"),
    Intended("lax.nextafter", "accepts eager", "does not accept dtype u?int", "a Python number takes the type of the array beside it"),
    Intended("numpy.percentile numpy.quantile numpy.nanpercentile numpy.nanquantile numpy.median numpy.nanmedian", "nan value .*", r"^nan: -?inf at .*expected nan", "an infinity beside a weight of zero does not count", INFINITE),
    Intended("lax.igamma lax.igammac scipy.special.gammainc scipy.special.gammaincc", "(nan|value) value .*", r"^(nan: (1\.0|0\.0|nan)|value: 0\.5) at", "SciPy's values at zero, at infinities, and where huge arguments are equal"),
    Intended("scipy.stats.gamma.logcdf scipy.stats.chi2.logcdf", "value value .*", r"^value: -\d\.\d+e-\d+ at .*expected -?0\.0", "the logarithm of nearly one keeps its digits"),
    Intended("scipy.stats.gamma.*cdf scipy.stats.gamma.*sf scipy.stats.chi2.*cdf scipy.stats.chi2.*sf scipy.stats.beta.*cdf scipy.stats.beta.*sf", "infinity (jvp|vjp|linearize) .*", r"^infinity: -?inf at .*expected -?0\.0", "at the edge of its support the slope is that of the density, which is infinite"),
    Intended("numpy.logaddexp2", "nan value .*", r"^nan: \(inf[+-]\d.*expected \(nan\+nanj\)", "one infinite power of two is the sum", INFINITE),
    Intended("image.resize image.scale_and_translate", "nan value .*", r"^nan: -?inf at .*expected nan", "an infinity beside a weight of zero does not count", INFINITE),
    Intended("nn.log_sigmoid", "value value .*", r"^value: -(128|32768|2147483648)\.0 at .*expected -?0\.0", "the smallest integer becomes a float before it is negated"),
    Intended("scipy.special.zeta lax.zeta", "nan value .*", "^nan: inf at .*expected nan", "a power of the first term that overflows is infinite"),
    Intended("scipy.special.spence", "nan (jvp|vjp|linearize|forward_over_reverse|reverse_over_reverse) .*", "^nan: nan at", "below 0, where the function is NaN, so is its derivative", value=INFINITE),
    Intended("scipy.optimize.minimize", "value value .*", r"^value: 0\.952[34]\d* at", "within 3e-5 of the minimum, 1 / 1.05; in 32 bits a line search ends where values do not differ"),
    Intended("numpy.put_along_axis", "accepts eager", "8-bit floats do not support implicit promotion", "what is put takes the type of the array, as in NumPy"),
    Intended("nn.logsumexp scipy.special.logsumexp", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?0\.0 at .*expected nan", "what a mask leaves out has no slope, also where nothing remains", value=INFINITE),
    Intended("lax.igamma lax.igammac lax.igamma_grad_a scipy.special.gammainc scipy.special.gammaincc scipy.stats.gamma.*cdf scipy.stats.gamma.*sf scipy.stats.chi2.*cdf scipy.stats.chi2.*sf", "value (jvp|vjp|linearize) .*", r"^value: (-?\d+\.\d{12})\d* at .*expected \1", "of derivatives by the shape twelve digits of sixteen are right"),
    Intended("nn.squareplus", "nan value .*", r"^nan: 0\.0 at .*expected nan", "0 is the limit at -inf", INFINITE),
    Intended("Array.at.set", "value value .*", r"^value: -?\d{4,} at .*expected -?\d{4,}", "integers that are not set stay what they are; JAX rounds them to the type of what is set"),
    Intended("lax.bitcast_convert_type", "value (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"expected -?0\.0", "to the same type it is the identity, with its derivative"),
    Intended("Array.at.min Array.at.max", "nan value .*", r"^nan: \(.*nan.*j\) at", "NaN if a part of an element is, as in NumPy", INFINITE),
    Intended("scipy.special.gammainc scipy.special.gammaincc lax.igamma lax.igammac lax.betainc scipy.special.betainc", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", "^nan: nan at", "where the function is NaN, so is its derivative", value=INFINITE),
    Intended("numpy.histogram_bin_edges numpy.histogram", "accepts eager", "zero-size array to reduction operation", "the edges of no values are from 0 to 1, as in NumPy"),
    Intended("scipy.special.betaln", "value value .*", r"^value: -?0\.0 at .*expected -?\d\.\d+e-0[678] ", "the logarithm of one is exactly 0"),
    Intended("lax.square", "accepts eager", "does not accept dtype bool", "a truth value is its own square"),
    Intended("nn.celu", "sign of zero value .*", "^sign of zero: -0.0 at", "a zero keeps its sign, as in elu"),
    Intended("nn.dot_product_attention", "accepts eager", "precision .F16_F16_F32. is not supported", "all types of floats have all functions of floats"),
    Intended("lax.abs", "accepts eager", "does not accept dtype (uint|bool)", "what has no sign is its own magnitude"),
    Intended("scipy.special.betaln", "nan value .*", "^nan: -inf at .*expected nan", "where the gamma function of the sum overflows, so does the logarithm"),
    Intended("numpy.true_divide numpy.divide lax.div", "nan value .*", r"^nan: \(-?inf[+-]infj\) at", "an infinity over a finite number has the direction that the C standard gives it", INFINITE),
    Intended("*.logaddexp *.logaddexp2", "nan value .*", r"^nan: \(-?[\d.e+]+[+-][\d.e+-]+j\) at .*expected \(nan\+nanj\)", "the larger operand, where the exponential of the difference is 0, whatever its angle", types=".*complex.*"),
    Intended("numpy.logaddexp", "(nan|infinity) value .*", r"^(nan|infinity): \(inf[+-]\S*j\) at .*expected \(nan\+nanj\)", "one infinite exponential is the sum", INFINITE),
    Intended("nn.squareplus", "(nan|value) value .*", ANY, "integers become floats before they are squared, which does not overflow", types="u?int\\d+"),
    Intended("nn.log_sigmoid", "value value .*", r"^value: -0\.0 at", "unsigned numbers become floats before they are negated", types="uint\\d+"),
    Intended("random.logistic", "value value .*", r"^value: (-?\d+\.\d{12})\d* at .*expected \1", "near its median a sample has the absolute error of a logarithm of nearly 1"),
    Intended("numpy.std numpy.nanstd numpy.nanvar scipy.stats.sem", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?0\.0 at .*expected nan", "the deviation of equal numbers is constant"),
    Intended("scipy.signal.detrend", "nan value .*", r"^nan: -?inf at", "sums of infinities depend on the order", INFINITE),
    Intended("scipy.special.spence", "nan (jvp|vjp|linearize|forward_over_reverse|reverse_over_reverse) .*", "expected nan", "JAX's derivative is NaN everywhere; ours is log(x) / (1 - x), which is compared with differences where all is finite", value=INFINITE),
    Intended("scipy.special.gammaln scipy.special.loggamma lax.lgamma", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?inf at .*expected nan", "at a pole derivatives are infinite", value=INFINITE),
    Intended("scipy.stats.gennorm.logcdf scipy.stats.gennorm.logsf", "infinity value .*", r"^infinity: -inf at .*expected -\d{2,}", "the logarithm of a probability that is 0 in the type", types="(bfloat16|float16|float32)( .*)?"),
    Intended("scipy.stats.gamma.logsf scipy.stats.chi2.logsf", "value value .*", r"^value: -\d\.\d+e-\d+ at .*expected -?0\.0", "the logarithm of nearly one keeps its digits"),
    Intended("lax.atan2", "accepts eager", "does not accept dtype u?int", "a Python number takes the type of the array beside it"),
    Intended("numpy.arctan2 numpy.atan2", "nan (forward|reverse)_over_reverse .*", r"^nan: -?inf at \S* expected nan", "at the origin an angle has no derivatives"),
    Intended("operator.pow", "nan (forward|reverse)_over_reverse .*", r"^nan: -?[\d.e-]+ at .*expected nan", "no NaN from the logarithm of a base that is not positive, beside a factor of zero"),
    Intended("operator.pow numpy.power numpy.float_power lax.pow", "nan (forward|reverse)_over_reverse .*", r"^nan: -?inf at .*expected nan", "at a pole derivatives are infinite", value=INFINITE),
    Intended("lax.conv_with_general_padding", "nan value .*", "^nan: nan at", "whether an infinite factor meets the zeros of padding and holes is left to the algorithm", INFINITE),
    Intended("numpy.convolve numpy.correlate scipy.signal.convolve scipy.signal.correlate scipy.signal.convolve2d scipy.signal.correlate2d", "nan value .*", r"^nan: \(?-?(nan|inf)", "whether an infinite factor meets the zeros of padding is left to the algorithm", INFINITE),
    Intended("scipy.linalg.hessenberg", "raises value .*", r"takes square matrices, but got \w+\[0\]", "a vector without elements is no matrix"),
    Intended("scipy.stats.truncnorm.*", "nan value .*", r"^nan: nan at .*expected (-?[01]\.0|-inf)", "NaN of NaN, as in SciPy", INFINITE),
    Intended("numpy.mean", "accepts eager", "div does not accept dtype bool", "a mean of truth values is a truth value, as in NumPy"),
    Intended("numpy.pow numpy.power numpy.float_power lax.pow operator.pow", "value value eager", r"\dj\)? at", "eager powers of subnormal numbers are exact; JAX takes these numbers for zeros", SUBNORMAL, types=".*complex.*"),
    Intended("numpy.pow numpy.power numpy.float_power lax.pow operator.pow", "nan value .*", r"expected \(nan\+nanj\)", "JAX's complex powers are NaN where a product on the way overflows", types=".*complex.*"),
    Intended("numpy.arctan2 numpy.atan2 lax.atan2", "(nan|infinity) value .*", r"expected \(nan[+-](nan|inf)j\)", "JAX's complex angles are NaN where squares overflow or vanish", types=".*complex.*"),
    Intended("numpy.arctan2 numpy.atan2 lax.atan2", "(value|sign of zero) value .*", ANY, "JAX takes subnormal numbers for zeros, which choose the side of a branch cut", SUBNORMAL, types=".*complex.*"),
    Intended("scipy.stats.*.cdf scipy.stats.*.sf", "sign of zero value .*", r"^sign of zero: 0\.0 at", "a probability of zero is no negative one"),
    Intended("nn.hard_tanh", "value value .*", r"^value: [01] at .*expected (255|65535|4294967295|18446744073709551615)", "no unsigned number is below -1", types="uint\\d+"),
    Intended("scipy.special.xlogy scipy.special.xlog1py", "sign of zero value .*", ANY, "the sign of a zero part of a complex product depends on its formula", types=".*complex.*"),
    Intended("numpy.logaddexp", "value value .*", r"j\) at", "huge angles are reduced exactly; JAX subtracts rounded multiples of a turn", HUGE, types=".*complex.*"),
    Intended("*", "sign of zero value .*", ANY, "the part that a complex subnormal number loses is a zero of either sign", SUBNORMAL, types=".*complex.*"),
    Intended("*.arcsin *.asin *.arccos *.acos *.arccosh *.acosh *.arcsinh *.asinh *.arctanh *.atanh *.arctan *.atan", "value (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^value: \(?(-?)([\d.]{6})\S* at .*expected \((?!\1\2)-?\2", "on a branch cut the sign of a zero chooses the side, for derivatives too", types="complex.*"),
    Intended("lax.igamma lax.igammac scipy.special.gammainc scipy.special.gammaincc", "value value jit", r"^value: (-?\d+\.\d{12})\d* at .*expected \1", "compiled, twelve digits of sixteen are right", types=".*float64.*"),
    Intended("numpy.split numpy.hsplit numpy.vsplit numpy.dsplit numpy.array_split", "accepts eager", "Sizes passed to split must be nonnegative", "places beyond the end give empty parts, as in NumPy"),
    Intended("scipy.special.gamma", "value value .*", r"^value: (-?\d\.\d{10})\d*(e\+\d+) at .*expected \1\d*\2", "an exponential of a large logarithm has twelve digits of sixteen", types="float64"),
    Intended("scipy.stats.gennorm.logcdf scipy.stats.gennorm.logsf", "value value .*", r"^value: -?0\.0 at .*expected -\d\.\d+e-\d+", "the logarithm of a probability that is 1 in the type", types=".*float16.*"),
    Intended("numpy.pow numpy.power lax.pow operator.pow", "value value .*", r"^value: 0 at", "a negative power of an integer is a fraction, which is rounded towards zero", types=".*int.*"),
    Intended("lax.broadcast_to_rank", "raises value .*", "has more dimensions than", "no shape is broadcast to a lower rank"),
    Intended("lax.cummax lax.cummin", "(nan|value) value .*", r"^(nan|value): \(\S*nan", "a part that is NaN makes a complex number the extremum of all that follow, as in NumPy", types=".*complex.*"),
    Intended("numpy.average", "nan value .*", r"^nan: \(-?inf[+-]infj\) at .*expected \(nan\+nanj\)", "an infinity over a finite number has the direction that the C standard gives it", types=".*complex.*"),
    Intended("numpy.linalg.tensorsolve numpy.linalg.solve lax.linalg.triangular_solve", "nan value .*", r"^nan: \(-?inf[+-]\S*j\) at .*expected \(nan\+nanj\)", "an infinity over a finite number has the direction that the C standard gives it", INFINITE, types=".*complex.*"),
    Intended("scipy.special.gammaincc lax.igammac", "nan (jvp|vjp|linearize) .*", r"^nan: -?[\d.e-]+ at .*expected nan", "at a parameter of zero the derivative is the exponential integral; JAX's is NaN"),
    Intended("numpy.fmax numpy.fmin", "sign of zero value .*", ANY, "of zeros of either sign either is the larger, as in NumPy"),
    Intended("numpy.sqrt lax.sqrt", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: \(-?inf[+-]\S*j\) at .*expected \(nan", "at a branch point the derivative is infinite, in the direction that the C standard gives it", types=".*complex.*"),
    Intended("numpy.pow numpy.power numpy.float_power lax.pow operator.pow", "nan (jvp|vjp|linearize) .*", r"^nan: -?inf at .*expected nan", "at a pole derivatives are infinite"),
    Intended("numpy.angle", "nan (forward|reverse)_over_reverse .*", r"^nan: -?0\.0 at", "the angle of real numbers is constant"),
    Intended("scipy.special.expit nn.sigmoid", "nan value .*", r"^nan: \((1|0)", "beside an infinite real part the angle of the exponential does not count", INFINITE, types=".*complex.*"),
    Intended("numpy.var numpy.std", "nan (jvp|vjp|linearize|(forward|reverse)_over_reverse) .*", r"^nan: -?0\.0 at .*expected nan", "what a mask leaves out has no slope, also where nothing remains"),
    Intended("numpy.mean numpy.nanmean", "value value .*", r"^value: -?\d{10,} at", "a mean is a number of floats, which is then rounded", types="u?int64"),
    Intended("numpy.linalg.vector_norm numpy.linalg.norm", "dtype value .*", "float64, expected int64", "a norm of integers is a float, as in NumPy and the array API"),
    Intended("numpy.divmod", "value value .*", r"expected -2 at|^value: -1 at .*expected -2", "an integer over zero is -1, as XLA documents it"),
    Intended("lax.igamma_grad_a", "value value .*", r"^value: (-?\d+\.\d{12})\d* at .*expected \1", "of derivatives by the shape twelve digits of sixteen are right", types=".*float64.*"),
    Intended("lax.zeta scipy.special.zeta", "nan value jit", r"^nan: (0(\.0)?|inf) at .*expected nan", "a power that vanishes is zero, one that overflows is infinite"),
    Intended("lax.random_gamma_grad", "raises value .*", "different element types", "operands of one type"),
    Intended("numpy.matmul numpy.dot numpy.vdot numpy.inner numpy.tensordot numpy.einsum numpy.vecdot lax.dot lax.dot_general", "raises value .*", "cannot be summed in preferred_element_type [su]", "a sum of floats is no integer"),
    Intended("numpy.linalg.cond", "raises value .*", "must have elements", "no elements have no condition, as in NumPy"),
    Intended("lax.population_count numpy.bitwise_count", "value value .*", ANY, "a number of 4 bits has no others, whatever it is extended to", types="int4"),
    Intended("lax.linalg.hessenberg scipy.linalg.hessenberg scipy.linalg.schur", "uncalled value", ANY, "JAX takes matrices of floats alone; test_matrix_reductions has it"),
    Intended("numpy.cumulative_prod numpy.cumulative_sum", "dtype value .*", "uint64, expected uint32", "small integers widen, as in the array API"),
    Intended("numpy.pow numpy.power operator.pow", "value value .*", r"^value: -?\d+ at", "a power of integers is exact in its bits, whatever the exponent", types="(u?int(32|64)[ ,/]*)+"),
    Intended("lax.abs numpy.abs numpy.absolute operator.abs", "value (forward|reverse)_over_(reverse|forward) .*", r"^value: 0j at", "the modulus has no derivative at zero", types=".*complex.*"),
    Intended("nn.gelu", "value value .*", r"^value: -?(0\.0|\d\.\d+e-0?[678]) at", "the tail is exact to 6e-8 of x: the error function from 1 costs a quarter of its complement"),
    Intended("nn.mish", "value value .*", r"^value: -\d\.\d+e-\d+ at .*expected -?0\.0", "an exponential that is not zero"),
    Intended("numpy.histogram2d numpy.histogramdd numpy.histogram", "value value .*", ANY, "on which side of an edge an element is depends on the edge's last bit; the edges are NumPy's", types=".*int.*"),
    Intended("numpy.argpartition", "(infinity|nan|value) value .*", ANY, "the order inside of the parts is not specified"),
    Intended("scipy.special.rel_entr scipy.special.kl_div", "value value .*", r"^value: -?0\.0[0-9]", "the logarithm of a quotient near one has few digits in 32 bits"),
    Intended("numpy.var numpy.std", "nan (forward|reverse)_over_reverse .*", r"^nan: \(?-?0j? at|^nan: 0j at", "what a mask leaves out has no slope, also where nothing remains"),
    Intended("scipy.stats.pareto.*", "value (forward|reverse)_over_reverse .*", ANY, "at the edge of its support a second derivative is that of one side"),
    Intended("numpy.round numpy.around Array.round", "accepts eager", "data type .* not inexact", "a truth value is rounded, as in NumPy"),
)  # fmt: skip


def reason_for(found: Difference) -> Intended | None:
    """The line of the table that the difference is covered by."""
    return next((line for line in INTENDED if line.covers(found)), None)
