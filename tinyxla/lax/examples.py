"""The docstrings of element-wise and special functions: what the definition of one says, and an example.

`tests/test_docstrings.py` runs the examples.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.util.docstrings import docstring, example_of

EXAMPLES = {  # by the function's name: a call, and the text of its result
    "abs": ("lax.abs(np.complex64([3 + 4j, -2]))", "Array([5., 2.], dtype=float32)"),
    "acos": ("lax.acos(np.float32([1, -1, 2]))", "Array([0.       , 3.1415927,       nan], dtype=float32)"),
    "acosh": ("lax.acosh(np.float32([1, 2, 0.5]))", "Array([0.      , 1.316958,      nan], dtype=float32)"),
    "add": ("lax.add(np.int8(100), np.int8(100))", "Array(-56, dtype=int8)"),
    "asin": ("lax.asin(np.float32([1, -1, 2]))", "Array([ 1.5707964, -1.5707964,        nan], dtype=float32)"),
    "asinh": ("lax.asinh(np.float32([1e-8, 1e30]))", "Array([1.00000e-08, 6.97707e+01], dtype=float32)"),
    "atan": ("lax.atan(np.float32([1, np.inf]))", "Array([0.7853982, 1.5707964], dtype=float32)"),
    "atan2": ("lax.atan2(np.float32([0.0, -0.0]), -1.0)", "Array([ 3.1415927, -3.1415927], dtype=float32)"),
    "atanh": ("lax.atanh(np.float32([0.5, 1, 2]))", "Array([0.54930615,        inf,        nan], dtype=float32)"),
    "bessel_i0e": (
        "lax.bessel_i0e(np.float32([0, 1, 1000]))",
        "Array([1.        , 0.4657596 , 0.01261724], dtype=float32)",
    ),
    "bessel_i1e": (
        "lax.bessel_i1e(np.float32([0, 1, -1]))",
        "Array([ 0.        ,  0.20791042, -0.20791042], dtype=float32)",
    ),
    "betainc": ("lax.betainc(2.0, 3.0, np.float32([0, 0.5, 1]))", "Array([0.    , 0.6875, 1.    ], dtype=float32)"),
    "bitwise_and": ("lax.bitwise_and(np.uint8(0b1100), np.uint8(0b1010))", "Array(8, dtype=uint8)"),
    "bitwise_not": ("lax.bitwise_not(np.array([0, 5, -1]))", "Array([-1, -6,  0], dtype=int32)"),
    "bitwise_or": (
        "lax.bitwise_or(np.array([True, False]), np.array([False, False]))",
        "Array([ True, False], dtype=bool)",
    ),
    "bitwise_xor": ("lax.bitwise_xor(np.uint8(0b1100), np.uint8(0b1010))", "Array(6, dtype=uint8)"),
    "cbrt": ("lax.cbrt(np.float32([-8, 27]))", "Array([-2.,  3.], dtype=float32)"),
    "ceil": ("lax.ceil(np.float32([-1.5, 1.5, 2]))", "Array([-1.,  2.,  2.], dtype=float32)"),
    "clz": ("lax.clz(np.uint8([0, 1, 255]))", "Array([8, 7, 0], dtype=uint8)"),
    "complex": ("lax.complex(np.float32([1, 2]), np.float32([0, -1]))", "Array([1.+0.j, 2.-1.j], dtype=complex64)"),
    "conj": ("lax.conj(3.0)", "Array(3.+0.j, dtype=complex64, weak_type=True)"),
    "cos": ("lax.cos(np.float32([0, np.pi, np.inf]))", "Array([ 1., -1., nan], dtype=float32)"),
    "cosh": ("lax.cosh(np.float32([0, 100]))", "Array([ 1., inf], dtype=float32)"),
    "cospi": ("lax.cospi(np.float32([0.5, 1, 1e6 + 0.5]))", "Array([ 0., -1.,  0.], dtype=float32)"),
    "digamma": ("lax.digamma(np.float32([1, 0.5, 0]))", "Array([-0.5772154, -1.96351  ,        nan], dtype=float32)"),
    "div": ("lax.div(np.array([7, -7]), 2)", "Array([ 3, -3], dtype=int32)"),
    "eq": ("lax.eq(np.float32([0.0, np.nan]), np.float32([-0.0, np.nan]))", "Array([ True, False], dtype=bool)"),
    "erf": ("lax.erf(np.float32([0, 0.5, 10]))", "Array([0.       , 0.5204999, 1.       ], dtype=float32)"),
    "erf_inv": (
        "lax.erf_inv(np.float32([0, 0.5, 1, 2]))",
        "Array([0.        , 0.47693628,        inf,        nan], dtype=float32)",
    ),
    "erfc": ("lax.erfc(np.float32([0, 9]))", "Array([1.0000000e+00, 4.1370317e-37], dtype=float32)"),
    "exp": ("lax.exp(np.float32([-np.inf, 1, 89]))", "Array([0.      , 2.718282,      inf], dtype=float32)"),
    "expm1": ("lax.expm1(np.float32([0, 1e-8]))", "Array([0.e+00, 1.e-08], dtype=float32)"),
    "floor": ("lax.floor(np.float32([-1.5, 1.5, 2]))", "Array([-2.,  1.,  2.], dtype=float32)"),
    "ge": ("lax.ge(np.array([1, 2, 3]), 2)", "Array([False,  True,  True], dtype=bool)"),
    "gt": ("lax.gt(np.float32([1, np.nan]), 0.0)", "Array([ True, False], dtype=bool)"),
    "igamma": (
        "lax.igamma(2.0, np.float32([0, 1, np.inf]))",
        "Array([0.        , 0.26424113, 1.        ], dtype=float32)",
    ),
    "igammac": (
        "lax.igammac(2.0, np.float32([0, 1, np.inf]))",
        "Array([1.       , 0.7357589, 0.       ], dtype=float32)",
    ),
    "imag": ("lax.imag(np.complex64([1 + 2j, 3]))", "Array([2., 0.], dtype=float32)"),
    "is_finite": ("lax.is_finite(np.float32([1, np.inf, np.nan]))", "Array([ True, False, False], dtype=bool)"),
    "le": ("lax.le(np.array([1, 2, 3]), 2)", "Array([ True,  True, False], dtype=bool)"),
    "lgamma": ("lax.lgamma(np.float32([5, 0, -0.5]))", "Array([3.1780548,       inf, 1.2655118], dtype=float32)"),
    "log": ("lax.log(np.float32([0, 1, -1]))", "Array([-inf,   0.,  nan], dtype=float32)"),
    "log1p": ("lax.log1p(np.float32([1e-8, -1]))", "Array([1.e-08,   -inf], dtype=float32)"),
    "logistic": ("lax.logistic(np.float32([-1000, 0, 1000]))", "Array([0. , 0.5, 1. ], dtype=float32)"),
    "lt": ("lax.lt(np.uint8(3), np.uint8(200))", "Array(True, dtype=bool)"),
    "max": ("lax.max(np.float32([1, np.nan]), 2.0)", "Array([ 2., nan], dtype=float32)"),
    "min": ("lax.min(np.array([1, 5]), 3)", "Array([1, 3], dtype=int32)"),
    "ne": ("lax.ne(np.float32([1, np.nan]), np.float32([1, np.nan]))", "Array([False,  True], dtype=bool)"),
    "neg": ("lax.neg(np.uint8([1, 0]))", "Array([255,   0], dtype=uint8)"),
    "population_count": ("lax.population_count(np.int8([7, -1]))", "Array([3, 8], dtype=int8)"),
    "real": ("lax.real(np.complex64([1 + 2j, 3]))", "Array([1., 3.], dtype=float32)"),
    "rem": ("lax.rem(np.array([7, -7]), 3)", "Array([ 1, -1], dtype=int32)"),
    "rsqrt": ("lax.rsqrt(np.float32([4, 0, -1]))", "Array([0.5, inf, nan], dtype=float32)"),
    "shift_left": ("lax.shift_left(np.uint8([1, 1]), np.uint8([7, 8]))", "Array([128,   0], dtype=uint8)"),
    "shift_right_arithmetic": (
        "lax.shift_right_arithmetic(np.int8([-8, 8]), np.int8(1))",
        "Array([-4,  4], dtype=int8)",
    ),
    "shift_right_logical": ("lax.shift_right_logical(np.int8([-8, 8]), np.int8(1))", "Array([124,   4], dtype=int8)"),
    "sign": ("lax.sign(np.float32([-3, -0.0, 2, np.nan]))", "Array([-1., -0.,  1., nan], dtype=float32)"),
    "sin": ("lax.sin(np.float32([0, 1, np.inf]))", "Array([0.      , 0.841471,      nan], dtype=float32)"),
    "sinh": ("lax.sinh(np.float32([0, -1, 100]))", "Array([ 0.       , -1.1752012,        inf], dtype=float32)"),
    "sinpi": ("lax.sinpi(np.float32([0.5, 1, 1e6]))", "Array([1., 0., 0.], dtype=float32)"),
    "sqrt": ("lax.sqrt(np.float32([4, -1]))", "Array([ 2., nan], dtype=float32)"),
    "sub": ("lax.sub(np.uint8(1), np.uint8(2))", "Array(255, dtype=uint8)"),
    "tan": ("lax.tan(np.float32([0, np.pi / 4]))", "Array([0., 1.], dtype=float32)"),
    "tanh": ("lax.tanh(np.float32([0.5, -100]))", "Array([ 0.4621172, -1.       ], dtype=float32)"),
    "zeta": ("lax.zeta(2.0, np.float32([1, 2, 0]))", "Array([1.644934  , 0.64493406,        inf], dtype=float32)"),
}

_ELEMENT_TYPES = {  # of results, where it is not that of the operands
    **dict.fromkeys(("eq", "ge", "gt", "is_finite", "le", "lt", "ne"), "bool"),
    **dict.fromkeys(("abs", "imag", "real"), "that of x, or of its parts where x is complex"),
    **dict.fromkeys(("complex", "conj"), "complex64, or complex128 of float64 or complex128 operands"),
}


def documented(name: str, text: str, parameters: Sequence[str], has_accuracy: bool = False) -> str:
    """The docstring of an element-wise function: what it gives, of arguments and results the shapes and element types,
    and the example that there is of its name."""
    raises = {"DTypeError": "an element type that the function is not defined for"}
    arguments, returns = "an array, or a number.", "An array of the shape of x"
    if len(parameters) > 1:
        arguments = "arrays of one element type and of one shape; numbers and scalars are spread."
        raises["DTypeError"] += ", or different ones"
        raises["ShapeError"] = "shapes that do not fit."
        returns = "An array of the shape of the arguments"
    raises["DTypeError"] += "."
    kind = _ELEMENT_TYPES.get(name)
    returns += f"; its element type is {kind}." if kind else " and of the same element type."
    example = example_of(*EXAMPLES[name], "from tinyxla import lax") if name in EXAMPLES else []
    described = {", ".join(parameters): arguments}
    if has_accuracy:
        described["accuracy"] = "the required accuracy of the result; None for that of the default implementation."
    return docstring(text, described, returns, raises, example)
