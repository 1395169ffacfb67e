"""The docstrings of element-wise builder functions: what the definition of one says, and an example.

`tests/test_docstrings.py` runs the examples.
"""

from __future__ import annotations

from tinyxla.util.docstrings import docstring, example_of

EXAMPLES = {  # by the function's name: an operation of a builder b, and the text of its result
    "Abs": ("Abs(b.Constant(np.complex64(3 + 4j)))", "Array(5., dtype=float32)"),
    "Ceil": ("Ceil(b.Constant(np.float32([-1.5, 1.5])))", "Array([-1.,  2.], dtype=float32)"),
    "Floor": ("Floor(b.Constant(np.float32([-1.5, 1.5])))", "Array([-2.,  1.], dtype=float32)"),
    "Round": ("Round(b.Constant(np.float32([0.5, 1.5, -2.5])))", "Array([ 1.,  2., -3.], dtype=float32)"),
    "RoundNearestEven": (
        "RoundNearestEven(b.Constant(np.float32([0.5, 1.5, -2.5])))",
        "Array([ 0.,  2., -2.], dtype=float32)",
    ),
    "Sign": ("Sign(b.Constant(np.float32([-3, -0.0, np.nan])))", "Array([-1., -0., nan], dtype=float32)"),
    "Neg": ("Neg(b.Constant(np.uint8([1, 0])))", "Array([255,   0], dtype=uint8)"),
    "Real": ("Real(b.Constant(np.complex64(1 + 2j)))", "Array(1., dtype=float32)"),
    "Imag": ("Imag(b.Constant(np.float32([1, 2])))", "Array([0., 0.], dtype=float32)"),
    "Conj": ("Conj(b.Constant(np.complex64(1 + 2j)))", "Array(1.-2.j, dtype=complex64)"),
    "Not": ("Not(b.Constant(np.array([True, False])))", "Array([False,  True], dtype=bool)"),
    "Clz": ("Clz(b.Constant(np.uint8([0, 1, 255])))", "Array([8, 7, 0], dtype=uint8)"),
    "PopulationCount": ("PopulationCount(b.Constant(np.int8([7, -1])))", "Array([3, 8], dtype=int8)"),
    "IsFinite": ("IsFinite(b.Constant(np.float32([1, np.inf, np.nan])))", "Array([ True, False, False], dtype=bool)"),
    "Cbrt": ("Cbrt(b.Constant(np.float32([-8, 27])))", "Array([-2.,  3.], dtype=float32)"),
    "Cos": ("Cos(b.Constant(np.float32([0, np.inf])))", "Array([ 1., nan], dtype=float32)"),
    "Cosh": ("Cosh(b.Constant(np.float32([0, 100])))", "Array([ 1., inf], dtype=float32)"),
    "Erf": ("Erf(b.Constant(np.float32([0, -10])))", "Array([ 0., -1.], dtype=float32)"),
    "Exp": ("Exp(b.Constant(np.float32([-np.inf, 0, 89])))", "Array([ 0.,  1., inf], dtype=float32)"),
    "Expm1": ("Expm1(b.Constant(np.float32(1e-8)))", "Array(1.e-08, dtype=float32)"),
    "Log": ("Log(b.Constant(np.float32([0, 1, -1])))", "Array([-inf,   0.,  nan], dtype=float32)"),
    "Log1p": ("Log1p(b.Constant(np.float32(1e-8)))", "Array(1.e-08, dtype=float32)"),
    "Logistic": ("Logistic(b.Constant(np.float32([-1000, 0])))", "Array([0. , 0.5], dtype=float32)"),
    "Rsqrt": ("Rsqrt(b.Constant(np.float32([4, 0])))", "Array([0.5, inf], dtype=float32)"),
    "Sin": ("Sin(b.Constant(np.float32([0, np.inf])))", "Array([ 0., nan], dtype=float32)"),
    "Sinh": ("Sinh(b.Constant(np.float32([0, -100])))", "Array([  0., -inf], dtype=float32)"),
    "Sqrt": ("Sqrt(b.Constant(np.float32([4, -1])))", "Array([ 2., nan], dtype=float32)"),
    "Tan": ("Tan(b.Constant(np.float32([0, np.inf])))", "Array([ 0., nan], dtype=float32)"),
    "Tanh": ("Tanh(b.Constant(np.float32([0, -100])))", "Array([ 0., -1.], dtype=float32)"),
    "Add": (
        "Add(b.Constant(np.ones((2, 3), np.float32)), b.Constant(np.float32([10, 20])), [0])",
        "Array([[11., 11., 11.],\n       [21., 21., 21.]], dtype=float32)",
    ),
    "Sub": ("Sub(b.Constant(np.uint8(1)), b.Constant(np.uint8(2)))", "Array(255, dtype=uint8)"),
    "Mul": ("Mul(b.Constant(np.array([1, 2], np.int32)), b.Constant(3))", "Array([3, 6], dtype=int32)"),
    "Div": ("Div(b.Constant(np.int32([7, -7])), b.Constant(2))", "Array([ 3, -3], dtype=int32)"),
    "Rem": ("Rem(b.Constant(np.int32([7, -7])), b.Constant(3))", "Array([ 1, -1], dtype=int32)"),
    "Max": ("Max(b.Constant(np.float32([1, np.nan])), b.Constant(2.0))", "Array([ 2., nan], dtype=float32)"),
    "Min": ("Min(b.Constant(np.float32([1, np.nan])), b.Constant(2.0))", "Array([ 1., nan], dtype=float32)"),
    "Pow": (
        "Pow(b.Constant(np.float32([2, 0])), b.Constant(np.float32([0.5, 0])))",
        "Array([1.4142135, 1.       ], dtype=float32)",
    ),
    "Atan2": (
        "Atan2(b.Constant(np.float32([0.0, -0.0])), b.Constant(-1.0))",
        "Array([ 3.1415927, -3.1415927], dtype=float32)",
    ),
    "Complex": ("Complex(b.Constant(1.0), b.Constant(2.0))", "Array(1.+2.j, dtype=complex64)"),
    "And": ("And(b.Constant(np.uint8(0b1100)), b.Constant(np.uint8(0b1010)))", "Array(8, dtype=uint8)"),
    "Or": ("Or(b.Constant(np.uint8(0b1100)), b.Constant(np.uint8(0b1010)))", "Array(14, dtype=uint8)"),
    "Xor": ("Xor(b.Constant(True), b.Constant(True))", "Array(False, dtype=bool)"),
    "ShiftLeft": (
        "ShiftLeft(b.Constant(np.uint8([1, 1])), b.Constant(np.uint8([7, 8])))",
        "Array([128,   0], dtype=uint8)",
    ),
    "ShiftRightArithmetic": (
        "ShiftRightArithmetic(b.Constant(np.int8([-8, 8])), b.Constant(np.int8(1)))",
        "Array([-4,  4], dtype=int8)",
    ),
    "ShiftRightLogical": (
        "ShiftRightLogical(b.Constant(np.int8([-8, 8])), b.Constant(np.int8(1)))",
        "Array([124,   4], dtype=int8)",
    ),
    "Eq": (
        "Eq(b.Constant(np.float32([0.0, np.nan])), b.Constant(np.float32([-0.0, np.nan])))",
        "Array([ True, False], dtype=bool)",
    ),
    "Ne": (
        "Ne(b.Constant(np.float32([0.0, np.nan])), b.Constant(np.float32([-0.0, np.nan])))",
        "Array([False,  True], dtype=bool)",
    ),
    "Ge": ("Ge(b.Constant(np.int32([1, 2, 3])), b.Constant(2))", "Array([False,  True,  True], dtype=bool)"),
    "Gt": ("Gt(b.Constant(np.int32([1, 2, 3])), b.Constant(2))", "Array([False, False,  True], dtype=bool)"),
    "Le": ("Le(b.Constant(np.float32([1, np.nan])), b.Constant(2.0))", "Array([ True, False], dtype=bool)"),
    "Lt": ("Lt(b.Constant(np.uint8(3)), b.Constant(np.uint8(200)))", "Array(True, dtype=bool)"),
    "EqTotalOrder": (
        "EqTotalOrder(b.Constant(np.float32([0.0, np.nan])), b.Constant(np.float32([-0.0, np.nan])))",
        "Array([False,  True], dtype=bool)",
    ),
    "NeTotalOrder": (
        "NeTotalOrder(b.Constant(np.float32([0.0, np.nan])), b.Constant(np.float32([-0.0, np.nan])))",
        "Array([ True, False], dtype=bool)",
    ),
    "GeTotalOrder": (
        "GeTotalOrder(b.Constant(np.float32([-0.0, np.nan])), b.Constant(np.float32([0.0, np.inf])))",
        "Array([False,  True], dtype=bool)",
    ),
    "GtTotalOrder": (
        "GtTotalOrder(b.Constant(np.float32(np.nan)), b.Constant(np.float32(np.inf)))",
        "Array(True, dtype=bool)",
    ),
    "LeTotalOrder": (
        "LeTotalOrder(b.Constant(np.float32(-0.0)), b.Constant(np.float32(0.0)))",
        "Array(True, dtype=bool)",
    ),
    "LtTotalOrder": (
        "LtTotalOrder(b.Constant(np.float32([-0.0, -np.nan])), b.Constant(np.float32([0.0, -np.inf])))",
        "Array([ True,  True], dtype=bool)",
    ),
}

_COMPARISONS = frozenset(
    f"{name}{order}" for name in ("Eq", "Ne", "Ge", "Gt", "Le", "Lt") for order in ("", "TotalOrder")
)
_ELEMENT_TYPES = {  # of results, where it is not that of the operands
    **dict.fromkeys((*_COMPARISONS, "IsFinite"), "pred"),
    **dict.fromkeys(("Abs", "Imag", "Real"), "that of the operand, or of its parts where that is complex"),
    "Complex": "c64 of f32 operands and c128 of f64 ones",
}
_ARRAYS = """arrays of one element type and rank, or of which one is a scalar, unless there are
    `broadcast_dimensions`. Dimensions of size 1 are expanded."""
_DIMENSIONS = """for each dimension of the operand of lower rank, the dimension of the other that it is, in
    increasing order."""


def documented(name: str, text: str, is_binary: bool = False, is_accurate: bool = False) -> str:
    """The docstring of an element-wise function: what it gives, of arguments and results the shapes and element types,
    and the example that there is of its name."""
    arguments, result = {"operand": "an array."}, "the shape of the operand"
    raises = {"DTypeError": "an element type that the operation is not defined for"}
    if is_accurate:
        arguments["result_accuracy"] = "a `ResultAccuracy` that the result must have; the usual one, if None."
        raises["AttributeValueError"] = "an accuracy that no implementation has."
    if is_binary:
        arguments, result = {"lhs, rhs": _ARRAYS, "broadcast_dimensions": _DIMENSIONS}, "the shape after broadcasting"
        raises["DTypeError"] += ", or different ones"
        raises["ShapeError"] = "shapes that do not broadcast."
    raises["DTypeError"] += "."
    kind = _ELEMENT_TYPES.get(name)
    returns = f"An `XlaOp` of {result}" + (f"; its element type is {kind}." if kind else " and the same element type.")
    call, shown = EXAMPLES[name]
    lines = (f"from tinyxla.xla import {name}, XlaBuilder", "b = XlaBuilder()")
    return docstring(text, arguments, returns, raises, example_of(f"b.Build({call})()", shown, *lines))
