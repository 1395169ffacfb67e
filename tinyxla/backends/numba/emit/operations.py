"""Scalar operations as LLVM instructions: a table for each class of element types, and how registers hold the types.

| element type | in memory | in registers |
|---|---|---|
| `pred` | a byte, 0 or 1 | `i1` |
| integers | as such | as such |
| `f16`, `bf16` | `half`; the upper half of a `float` | `float`, rounded to the type after every operation |
| `f32`, `f64` | `float`, `double` | as such |
| `c64`, `c128` | real, imaginary, interleaved | two registers |

Rounding after every operation gives the 16-bit floats the results that evaluation operation by operation gives.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np

from tinyxla.backends.numba.emit.llvm_types import MEMORY_TYPES, REGISTER_TYPES, constant
from tinyxla.backends.numba.emit.scalar import Emitter, LlvmScalar, LlvmVector, broadcast, mangled
from tinyxla.errors import TinyxlaError
from tinyxla.loopir.target import has_feature, has_masks
from tinyxla.ops import ops
from tinyxla.scalar_math import complex_numbers, elementary
from tinyxla.scalar_math.complex_numbers import Complex

NARROW = ("f16", "bf16")
PARTS = {"c64": "f32", "c128": "f64"}

Number = LlvmScalar | Complex


class UnsupportedKernel(TinyxlaError):
    """A kernel that cannot be compiled: an element type or operation without native code, or too much scratch."""


# A row of a table takes the operands, and attributes by name.


def _compare(x: Any, y: Any, direction: str, compare_type: str = "") -> Any:
    if compare_type == "TOTALORDER" and x.type in ("f32", "f64"):
        x, y = elementary.total_order(x), elementary.total_order(y)
    return _COMPARISONS[direction](x, y)


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda x, y: x.equal(y),
    "NE": lambda x, y: x.not_equal(y),
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


def _add(x: Any, y: Any, reassociate: bool = False) -> Any:
    return x.flagged("fadd", "reassoc contract", y) if reassociate else x + y


def _multiply(x: Any, y: Any, reassociate: bool = False) -> Any:
    """`contract` here and in `_add` together make the accumulation of a product one fused multiply-add."""
    return x.flagged("fmul", "reassoc contract" if reassociate else "contract", y)


def _divide(x: Any, y: Any) -> Any:
    """A quotient; by a number that the code knows, the sum of two products, with the reciprocal and with what the
    reciprocal lacks: divisions follow each other several times slower. The reciprocal is rounded towards zero, so that
    both products have one sign, also where x is infinite or zero. The sum is the nearest number but for one x in
    millions, and where the second product is too small to be normal. N. Brisebarre, J.-M. Muller and S. K. Raina,
    "Accelerating Correctly Rounded Floating-Point Division When the Divisor Is Known in Advance", IEEE Transactions on
    Computers 53 (2004)."""
    divisor = y.known()
    if divisor is None or not 2.0**-100 <= abs(divisor) <= 2.0**100 or abs(math.frexp(divisor)[0]) == 0.5:
        return x / y
    exact, kind = 1 / Fraction(divisor), np.float32 if x.type == "f32" else np.float64
    high = kind(float(exact))
    if abs(Fraction(float(high))) > abs(exact):
        high = np.nextafter(high, kind(0))
    low = float(exact - Fraction(float(high)))
    return x.flagged("fmul", "contract", float(high)).flagged("fadd", "contract", x * low)


def _minimum(x: Any, y: Any, reassociate: bool = False) -> Any:
    """NaN if either is; which of two zeros is the lesser is left open (`nsz`), which makes it half as long on x86."""
    return x.intrinsic("minimum", y, flags="nsz ")


def _maximum(x: Any, y: Any, reassociate: bool = False) -> Any:
    return x.intrinsic("maximum", y, flags="nsz ")


def iota(first: LlvmScalar, lanes: int) -> LlvmVector:
    """The vector first, first + 1, ..."""
    steps = ", ".join(f"{first.register} {k}" for k in range(lanes))
    x = broadcast(first, lanes)
    return x.of(x.type, x.emitter.value(f"add {x.register} {x.text}, <{steps}>"))


def _lane_mask(first: LlvmScalar, stop: LlvmScalar, lanes: int) -> LlvmVector:
    """The lanes whose index is below `stop`, if that of the first one is `first`. A mask register takes them from as
    many low bits of a number."""
    if has_masks() and lanes < 64:
        count = (stop - first).maximum(0).minimum(lanes)
        ones = (first.literal(1) << count) - 1
        bits = first.emitter.value(f"trunc i64 {ones.text} to i{lanes}")
        text = first.emitter.value(f"bitcast i{lanes} {bits} to <{lanes} x i1>")
        return LlvmVector(first.emitter, "pred", text, lanes)
    register, name = f"<{lanes} x i1>", f"get.active.lane.mask.{mangled('i1', lanes)}.i64"
    text = first.emitter.intrinsic(name, register, f"i64 {first.text}, i64 {stop.text}", "i64, i64")
    return LlvmVector(first.emitter, "pred", text, lanes)


_PAIR_PRODUCTS = {  # x86's products of pairs of s16 by the number of their sums
    4: "x86.sse2.pmadd.wd",
    8: "x86.avx2.pmadd.wd",
    16: "x86.avx512.pmaddw.d.512",
}


def _dot_product_add(x: LlvmVector, y: LlvmVector, addend: LlvmVector, factors: str) -> LlvmVector:
    """The addend plus the products of the pairs of factors that each word holds."""
    emitter, words, sums, lanes = addend.emitter, x.register, addend.register, addend.lanes
    if factors == "s16" and has_feature("avx512vnni") and lanes == max(_PAIR_PRODUCTS):
        arguments = f"{sums} {addend.text}, {words} {x.text}, {words} {y.text}"
        text = emitter.intrinsic("x86.avx512.vpdpwssd.512", sums, arguments, ", ".join([sums] * 3))
        return addend.of(addend.type, text)
    halves = f"<{2 * lanes} x {'bfloat' if factors == 'bf16' else 'i16'}>"
    left, right = (emitter.value(f"bitcast {words} {operand.text} to {halves}") for operand in (x, y))
    if factors == "bf16":
        arguments = f"{sums} {addend.text}, {halves} {left}, {halves} {right}"
        text = emitter.intrinsic("x86.avx512bf16.dpbf16ps.512", sums, arguments, f"{sums}, {halves}, {halves}")
        return addend.of(addend.type, text)
    arguments = f"{halves} {left}, {halves} {right}"
    products = emitter.intrinsic(_PAIR_PRODUCTS[lanes], sums, arguments, f"{halves}, {halves}")
    return addend.of(addend.type, emitter.value(f"add {sums} {addend.text}, {products}"))


def _chain(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Of zero and anything zero; with `either`, of anything and zero, too."""

    def apply(g: Any, d: Any, either: bool = False) -> Any:
        real = _imaginary_of_real(g.real if isinstance(g, Complex) else g)
        zero = Complex(real, real) if isinstance(g, Complex) else real
        is_zero = g.equal(zero) | d.equal(zero) if either else g.equal(zero)
        return _select(is_zero, zero, product(g, d))

    return apply


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return _minimum(_maximum(x, low), high)


def _imaginary_of_real(x: Any) -> Any:
    return x.literal(0)


def _functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The scalar math of all operations that a module has it for."""
    named = {name: op.scalar.name for name, op in ops.items() if op.scalar}
    return {op: getattr(module, name) for op, name in named.items() if hasattr(module, name)}


_FLOAT: Mapping[str, Callable[..., Any]] = {
    **_functions(elementary),
    "abs": lambda x: x.abs(),
    "add": _add,
    "ceil": lambda x: x.ceil(),
    "chain-divide": _chain(_divide),
    "chain-multiply": _chain(_multiply),
    "clamp": _clamp,
    "compare": _compare,
    "complex": Complex,
    "divide": _divide,
    "dot-product-add": _dot_product_add,
    "floor": lambda x: x.floor(),
    "imag": _imaginary_of_real,
    "is-finite": lambda x: x.abs() < float("inf"),
    "maximum": _maximum,
    "maximum-of-numbers": lambda x, y: x.intrinsic("maximum", y, flags="nnan nsz "),
    "minimum": _minimum,
    "minimum-of-numbers": lambda x, y: x.intrinsic("minimum", y, flags="nnan nsz "),
    "multiply": _multiply,
    "multiply-add": lambda x, y, addend: x.intrinsic("fmuladd", y, addend),
    "negate": operator.neg,
    "real": lambda x: x,
    "reduce-precision": elementary.reduce_precision,
    "round-nearest-afz": elementary.round_afz,
    "round-nearest-even": elementary.round_even,
    "sign": elementary.sign,
    "subtract": operator.sub,
}


def _of_two(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Integer arithmetic is associative as it is: leave to reassociate says nothing."""
    return lambda x, y, reassociate=False: function(x, y)


_INTEGER: Mapping[str, Callable[..., Any]] = {
    "abs": lambda x: x.abs(),
    "add": _of_two(operator.add),
    "and": _of_two(operator.and_),
    "clamp": lambda low, x, high: x.maximum(low).minimum(high),
    "compare": _compare,
    "count-leading-zeros": elementary.count_leading_zeros,
    "divide": elementary.divide,
    "divide-in-vectors": elementary.divide_in_vectors,
    "dot-product-add": _dot_product_add,
    "imag": _imaginary_of_real,
    "iota": iota,
    "lane-mask": _lane_mask,
    "maximum": _of_two(lambda x, y: x.maximum(y)),
    "minimum": _of_two(lambda x, y: x.minimum(y)),
    "mulhi": elementary.multiply_high,
    "multiply": _of_two(operator.mul),
    "negate": operator.neg,
    "not": operator.invert,
    "or": _of_two(operator.or_),
    "popcnt": elementary.population_count,
    "power": elementary.power,
    "real": lambda x: x,
    "remainder": elementary.remainder,
    "remainder-in-vectors": elementary.remainder_in_vectors,
    "shift-left": elementary.shift_left,
    "shift-right-arithmetic": elementary.shift_right_arithmetic,
    "shift-right-logical": elementary.shift_right_logical,
    "sign": elementary.sign,
    "subtract": operator.sub,
    "xor": _of_two(operator.xor),
}

_PRED: Mapping[str, Callable[..., Any]] = {
    "add": _of_two(operator.or_),
    "and": _of_two(operator.and_),
    "clamp": lambda low, x, high: (x | low) & high,
    "compare": _compare,
    "maximum": _of_two(operator.or_),
    "minimum": _of_two(operator.and_),
    "multiply": _of_two(operator.and_),
    "not": operator.invert,
    "or": _of_two(operator.or_),
    "xor": _of_two(operator.xor),
}


def _each_part(function: Callable[..., Any]) -> Callable[..., Any]:
    def both(x: Complex, y: Complex, **attributes: Any) -> Complex:
        return Complex(function(x.real, y.real, **attributes), function(x.imag, y.imag, **attributes))

    return both


def _of_ordered(after: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Of two complex numbers the one that comes after the other by its real part, then by the imaginary; a NaN before
    all."""

    def pick(x: Complex, y: Complex) -> Any:
        later = after(x.real, y.real) | (x.real.equal(y.real) & after(x.imag, y.imag))
        return _select(later | x.not_equal(x), x, y)

    return pick


_COMPLEX: Mapping[str, Callable[..., Any]] = {
    **_functions(complex_numbers),
    "abs": complex_numbers.absolute,
    "add": _each_part(_add),
    "chain-divide": _chain(complex_numbers.divide),
    "chain-multiply": _chain(operator.mul),
    "compare": _compare,
    "divide": complex_numbers.divide,
    "imag": lambda x: x.imag,
    "maximum": _of_ordered(operator.gt),
    "minimum": _of_ordered(operator.lt),
    "multiply": _of_two(operator.mul),
    "negate": operator.neg,
    "real": lambda x: x.real,
    "sign": complex_numbers.sign,
    "subtract": operator.sub,
}

# Index arithmetic never overflows, and its operands are not negative where it divides.
INDEX: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x.flagged("add", "nsw", y),
    "subtract": lambda x, y: x.flagged("sub", "nsw", y),
    "multiply": lambda x, y: x.flagged("mul", "nsw", y),
    "divide": lambda x, y: x.bitcast("u64") // y.bitcast("u64"),
    "remainder": lambda x, y: x.bitcast("u64") % y.bitcast("u64"),
    "minimum": lambda x, y: x.minimum(y),
    "maximum": lambda x, y: x.maximum(y),
}

# Where 32 bits hold the operands; and where these are not negative, since LLVM moves whole vectors of memory, and takes
# every so many elements of them, only if it sees that no index wraps.
NARROW_INDEX: Mapping[str, Callable[[Any, Any], Any]] = {
    "divide": lambda x, y: (x.to("u32") // y.to("u32")).to("u64"),
    "remainder": lambda x, y: (x.to("u32") % y.to("u32")).to("u64"),
}
NATURAL_INDEX: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x.flagged("add", "nuw nsw", y),
    "multiply": lambda x, y: x.flagged("mul", "nuw nsw", y),
}
INDICES = {"wide": INDEX, "narrow": NARROW_INDEX, "natural": NATURAL_INDEX}

# The results of these are operands or small integers, which a 16-bit float holds as they are.
_EXACT = frozenset(
    "abs ceil clamp floor imag maximum maximum-of-numbers minimum minimum-of-numbers negate real round-nearest-afz"
    " round-nearest-even sign".split()
)


def emit(op: str, operands: Sequence[Any], types: Sequence[str], result: str, attributes: Mapping[str, Any]) -> Number:
    """The instructions of one operation, rounded to the result's type."""
    if op == "copy":
        return operands[0]
    if op == "select":
        return _select(*operands)
    if op == "convert":
        value = _convert(operands[0], types[0], result)
    elif op == "bitcast-convert":
        return widen(narrow(operands[0], types[0]).bitcast(_carrier(result)), result)
    else:
        function = _table(types[-1]).get(op)
        if function is None:
            raise UnsupportedKernel(f"{op} of {', '.join(types)} has no native code; run it in the interpreter.")
        value = function(*operands, **attributes)
    return _round(value, result) if result in NARROW and op not in _EXACT else value


def _table(type: str) -> Mapping[str, Callable[..., Any]]:
    if type in PARTS:
        return _COMPLEX
    if type == "pred":
        return _PRED
    return _FLOAT if type in ("f32", "f64", *NARROW) else _INTEGER


def _select(chosen: Any, on_true: Any, on_false: Any) -> Number:
    if isinstance(on_true, Complex):
        return complex_numbers.choose(chosen, on_true, on_false)
    return chosen.where(on_true, on_false)


def _convert(x: Any, source: str, target: str) -> Any:
    """By value, as XLA does. An integer or bf16 comes and goes through f32; f64 becomes f16 with a single rounding."""
    if isinstance(x, Complex):
        if target not in PARTS:
            return _convert(x.real, PARTS[source], target)
        return Complex(x.real.to(PARTS[target]), x.imag.to(PARTS[target]))
    if target in PARTS:
        real = _convert(x, source, PARTS[target])
        return Complex(real, LlvmScalar(x.emitter, PARTS[target], constant(PARTS[target], 0)))
    if target == "f16" and source == "f64":
        return _to_odd_f32(x)
    return elementary.convert(x, "f32" if target in NARROW else target)


def _to_odd_f32(x: Any) -> Any:
    """f64 to f32, where a value between two becomes the one whose last bit is odd.

    Rounding that to a type with at least two bits less is as rounding the f64 (Boldo and Melquiond, Emulation of FMA
    and correctly rounded sums: proved algorithms using rounding to odd, 2008).
    """
    nearest = x.to("f32")
    back = nearest.to("f64")
    too_far = (back.abs() > x.abs()).to("u32")
    inexact = ((back > x) | (back < x)).to("u32")
    return ((nearest.bits() - too_far) | inexact).bitcast("f32")


# 16-bit floats: `_carrier` is the integer or float type that holds one in memory and in conversions of bits.


def _round(x: Any, type: str) -> Any:
    """An f32 rounded to `type`, still as an f32."""
    if type == "f16":
        half = x.emitter.value(f"fptrunc {x.register} {x.text} to {_half(x)}")
        return x.of("f32", x.emitter.value(f"fpext {_half(x)} {half} to {x.register}"))
    bits = x.bits()
    up = bits + 0x7FFF + ((bits >> 16) & 1)
    return (x.not_equal(x).where(bits | 0x400000, up) & 0xFFFF0000).bitcast("f32")


def narrow(x: Any, type: str) -> Any:
    """The bits of a scalar that holds a value of `type`, without the padding that registers have."""
    if type == "bf16":
        return (x.bits() >> 16).to("u16")
    if type == "f16":
        half, found = _half(x), x.of("u16", "")
        text = x.emitter.value(f"fptrunc {x.register} {x.text} to {half}")
        return x.of("u16", x.emitter.value(f"bitcast {half} {text} to {found.register}"))
    return x


def widen(x: Any, type: str) -> Any:
    """The inverse of `narrow`."""
    if type == "bf16":
        return (x.to("u32") << 16).bitcast("f32")
    if type == "f16":
        found = x.of("f32", "")
        text = x.emitter.value(f"bitcast {x.register} {x.text} to {_half(found)}")
        return x.of("f32", x.emitter.value(f"fpext {_half(found)} {text} to {found.register}"))
    return x


def _half(x: Any) -> str:
    """The register type of an f32 with f16 elements."""
    return x.register.replace("float", "half")


def _carrier(type: str) -> str:
    return "u16" if type in NARROW else type


@functools.cache
def register_type(type: str) -> str:
    """The type of the scalar, or of each of the two, that holds a value of `type`."""
    held = "f32" if type in NARROW else PARTS.get(type, type)
    if held not in REGISTER_TYPES:
        raise UnsupportedKernel(f"{type} has no native code; run the operation in the interpreter.")
    return held


def scalars(x: Any) -> tuple[Any, ...]:
    return (x.real, x.imag) if isinstance(x, Complex) else (x,)


def number(emitter: Emitter, type: str, texts: Sequence[str], lanes: int = 1) -> Number:
    """A value of a type, in one register or two; a vector of several lanes."""
    held = register_type(type)
    parts = [LlvmScalar(emitter, held, x) if lanes == 1 else LlvmVector(emitter, held, x, lanes) for x in texts]
    return Complex(*parts) if len(parts) == 2 else parts[0]


def named(emitter: Emitter, type: str, name: str, lanes: int = 1) -> Number:
    """Registers called after `name`."""
    return number(emitter, type, [f"%{name}.real", f"%{name}.imag"] if type in PARTS else [f"%{name}"], lanes)


def memory_type(type: str) -> str:
    """The LLVM type of an element, or of each of its parts, in memory."""
    register_type(type)
    return MEMORY_TYPES[type]
