"""The docstrings of element-wise functions: what the definition of one says, and an example.

`tests/test_docstrings.py` runs the examples.
"""

from __future__ import annotations

from tinyxla.util.docstrings import docstring, example_of

EXAMPLES = {  # by the function's name: a call, and the text of its result
    "absolute": ("jnp.abs(jnp.array([-1.5, 2.0]))", "Array([1.5, 2. ], dtype=float32)"),
    "add": ("jnp.add(jnp.array([1, 2]), jnp.array([[10], [20]]))", "Array([[11, 12],\n       [21, 22]], dtype=int32)"),
    "arccos": ("jnp.arccos(jnp.array([1.0, 0.0]))", "Array([0.       , 1.5707964], dtype=float32)"),
    "arccosh": ("jnp.arccosh(jnp.array([1.0, 2.0]))", "Array([0.      , 1.316958], dtype=float32)"),
    "arcsin": ("jnp.arcsin(jnp.array([0.0, 1.0]))", "Array([0.       , 1.5707964], dtype=float32)"),
    "arcsinh": ("jnp.arcsinh(jnp.array([0.0, 1.0]))", "Array([0.       , 0.8813736], dtype=float32)"),
    "arctan": ("jnp.arctan(jnp.array([0.0, 1.0]))", "Array([0.       , 0.7853982], dtype=float32)"),
    "arctan2": (
        "jnp.arctan2(jnp.array([1.0, 1.0]), jnp.array([1.0, -1.0]))",
        "Array([0.7853982, 2.3561945], dtype=float32)",
    ),
    "arctanh": ("jnp.arctanh(jnp.array([0.0, 0.5]))", "Array([0.        , 0.54930615], dtype=float32)"),
    "bitwise_and": ("jnp.bitwise_and(jnp.array([6, 5]), 3)", "Array([2, 1], dtype=int32)"),
    "bitwise_or": ("jnp.bitwise_or(jnp.array([6, 5]), 3)", "Array([7, 7], dtype=int32)"),
    "bitwise_xor": ("jnp.bitwise_xor(jnp.array([6, 5]), 3)", "Array([5, 6], dtype=int32)"),
    "cbrt": ("jnp.cbrt(jnp.array([8.0, -27.0]))", "Array([ 2., -3.], dtype=float32)"),
    "ceil": ("jnp.ceil(jnp.array([1.2, -1.2]))", "Array([ 2., -1.], dtype=float32)"),
    "conjugate": ("jnp.conj(jnp.array([1 + 2j, 3.0]))", "Array([1.-2.j, 3.-0.j], dtype=complex64)"),
    "copysign": ("jnp.copysign(jnp.array([1.0, -2.0]), -1.0)", "Array([-1., -2.], dtype=float32)"),
    "cos": ("jnp.cos(jnp.array([0.0, jnp.pi]))", "Array([ 1., -1.], dtype=float32)"),
    "cosh": ("jnp.cosh(jnp.array([0.0]))", "Array([1.], dtype=float32)"),
    "deg2rad": ("jnp.deg2rad(jnp.array([0.0, 180.0]))", "Array([0.       , 3.1415927], dtype=float32)"),
    "degrees": ("jnp.degrees(jnp.array([0.0, jnp.pi]))", "Array([  0., 180.], dtype=float32)"),
    "equal": ("jnp.equal(jnp.array([1, 2]), jnp.array([1, 3]))", "Array([ True, False], dtype=bool)"),
    "exp": ("jnp.exp(jnp.array([0.0, 1.0]))", "Array([1.      , 2.718282], dtype=float32)"),
    "exp2": ("jnp.exp2(jnp.array([0.0, 3.0]))", "Array([1., 8.], dtype=float32)"),
    "expm1": ("jnp.expm1(jnp.array([0.0, 1e-6]))", "Array([0.0000000e+00, 1.0000005e-06], dtype=float32)"),
    "fabs": ("jnp.fabs(jnp.array([-1, 2]))", "Array([1., 2.], dtype=float32)"),
    "fix": ("jnp.fix(jnp.array([1.7, -1.7]))", "Array([ 1., -1.], dtype=float32)"),
    "float_power": ("jnp.float_power(jnp.array([2, 3]), 2)", "Array([4., 9.], dtype=float32)"),
    "floor": ("jnp.floor(jnp.array([1.7, -1.7]))", "Array([ 1., -2.], dtype=float32)"),
    "floor_divide": ("jnp.floor_divide(jnp.array([7, -7]), 2)", "Array([ 3, -4], dtype=int32)"),
    "fmod": ("jnp.fmod(jnp.array([7, -7]), 3)", "Array([ 1, -1], dtype=int32)"),
    "greater": ("jnp.greater(jnp.array([1, 2]), 1)", "Array([False,  True], dtype=bool)"),
    "greater_equal": ("jnp.greater_equal(jnp.array([1, 2]), 2)", "Array([False,  True], dtype=bool)"),
    "heaviside": ("jnp.heaviside(jnp.array([-2.0, 0.0, 2.0]), 0.5)", "Array([0. , 0.5, 1. ], dtype=float32)"),
    "hypot": ("jnp.hypot(jnp.array([3.0, 5.0]), jnp.array([4.0, 12.0]))", "Array([ 5., 13.], dtype=float32)"),
    "imag": ("jnp.imag(jnp.array([1 + 2j, 3.0]))", "Array([2., 0.], dtype=float32)"),
    "invert": ("jnp.invert(jnp.array([0, 5]))", "Array([-1, -6], dtype=int32)"),
    "isfinite": ("jnp.isfinite(jnp.array([1.0, jnp.inf, jnp.nan]))", "Array([ True, False, False], dtype=bool)"),
    "isinf": ("jnp.isinf(jnp.array([1.0, jnp.inf, jnp.nan]))", "Array([False,  True, False], dtype=bool)"),
    "isnan": ("jnp.isnan(jnp.array([1.0, jnp.inf, jnp.nan]))", "Array([False, False,  True], dtype=bool)"),
    "left_shift": ("jnp.left_shift(jnp.array([1, 3]), 2)", "Array([ 4, 12], dtype=int32)"),
    "less": ("jnp.less(jnp.array([1, 2]), 2)", "Array([ True, False], dtype=bool)"),
    "less_equal": ("jnp.less_equal(jnp.array([1, 2]), 1)", "Array([ True, False], dtype=bool)"),
    "log": ("jnp.log(jnp.array([1.0, 10.0]))", "Array([0.       , 2.3025851], dtype=float32)"),
    "log10": ("jnp.log10(jnp.array([1.0, 1000.0]))", "Array([0., 3.], dtype=float32)"),
    "log1p": ("jnp.log1p(jnp.array([0.0, 1e-6]))", "Array([0.000000e+00, 9.999995e-07], dtype=float32)"),
    "log2": ("jnp.log2(jnp.array([1.0, 8.0]))", "Array([0., 3.], dtype=float32)"),
    "logaddexp": ("jnp.logaddexp(jnp.array([-jnp.inf, 0.0]), 0.0)", "Array([0.       , 0.6931472], dtype=float32)"),
    "logaddexp2": ("jnp.logaddexp2(jnp.array([0.0, 3.0]), 3.0)", "Array([3.169925, 4.      ], dtype=float32)"),
    "maximum": ("jnp.maximum(jnp.array([1, 5]), 3)", "Array([3, 5], dtype=int32)"),
    "minimum": ("jnp.minimum(jnp.array([1, 5]), 3)", "Array([1, 3], dtype=int32)"),
    "multiply": ("jnp.multiply(jnp.array([1, 2]), jnp.array([3, 4]))", "Array([3, 8], dtype=int32)"),
    "negative": ("jnp.negative(jnp.array([1, -2]))", "Array([-1,  2], dtype=int32)"),
    "not_equal": ("jnp.not_equal(jnp.array([1, 2]), jnp.array([1, 3]))", "Array([False,  True], dtype=bool)"),
    "power": ("jnp.power(jnp.array([2, 3]), 2)", "Array([4, 9], dtype=int32)"),
    "rad2deg": ("jnp.rad2deg(jnp.array([0.0, jnp.pi]))", "Array([  0., 180.], dtype=float32)"),
    "radians": ("jnp.radians(jnp.array([0.0, 180.0]))", "Array([0.       , 3.1415927], dtype=float32)"),
    "real": ("jnp.real(jnp.array([1 + 2j, 3.0]))", "Array([1., 3.], dtype=float32)"),
    "reciprocal": ("jnp.reciprocal(jnp.array([2.0, 4.0]))", "Array([0.5 , 0.25], dtype=float32)"),
    "remainder": ("jnp.remainder(jnp.array([7, -7]), 3)", "Array([1, 2], dtype=int32)"),
    "right_shift": ("jnp.right_shift(jnp.array([8, 12]), 2)", "Array([2, 3], dtype=int32)"),
    "sign": ("jnp.sign(jnp.array([-3.0, 0.0, 2.0]))", "Array([-1.,  0.,  1.], dtype=float32)"),
    "signbit": ("jnp.signbit(jnp.array([-0.0, 1.0]))", "Array([ True, False], dtype=bool)"),
    "sin": ("jnp.sin(jnp.array([0.0, 1.0]))", "Array([0.      , 0.841471], dtype=float32)"),
    "sinc": ("jnp.sinc(jnp.array([0.0, 0.5]))", "Array([1.        , 0.63661975], dtype=float32)"),
    "sinh": ("jnp.sinh(jnp.array([0.0, 1.0]))", "Array([0.       , 1.1752012], dtype=float32)"),
    "sqrt": ("jnp.sqrt(jnp.array([4.0, 2.0]))", "Array([2.       , 1.4142135], dtype=float32)"),
    "subtract": ("jnp.subtract(jnp.array([5, 7]), jnp.array([1, 2]))", "Array([4, 5], dtype=int32)"),
    "tan": ("jnp.tan(jnp.array([0.0, 1.0]))", "Array([0.       , 1.5574077], dtype=float32)"),
    "tanh": ("jnp.tanh(jnp.array([0.0, 1.0]))", "Array([0.       , 0.7615942], dtype=float32)"),
    "true_divide": ("jnp.divide(jnp.array([1, 6]), 4)", "Array([0.25, 1.5 ], dtype=float32)"),
}

_ARRAY = "an array of any shape, or a number."


def documented(name: str, text: str, parameters: tuple[str, ...], has_options: bool = False) -> str:
    """The docstring of an element-wise function: what it gives, of arguments and results the types and shapes, and the
    example that there is of its name. `has_options` says that it has those of NumPy's ufuncs."""
    together = " and ".join(parameters)
    result = f"the shape of {together}" if len(parameters) == 1 else f"the shape that {together} broadcast to"
    raises = {"DTypeError": "an argument that is no array or number, or of a type that this is not defined for."}
    if len(parameters) > 1:
        raises["ShapeError"] = "shapes that do not broadcast."
    example = example_of(*EXAMPLES[name], "import tinyxla.numpy as jnp") if name in EXAMPLES else []
    arguments = {", ".join(parameters): _ARRAY}
    if has_options:
        arguments["out, where"] = "must be None: arrays are immutable."
    return docstring(text, arguments, f"An array of {result}, element by element.", raises, example)
