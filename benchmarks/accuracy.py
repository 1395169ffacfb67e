"""Measure the largest errors of element-wise functions, next to XLA's, and write the table to `docs/accuracy.md`.

python -m benchmarks.accuracy                   # everything; some minutes
python -m benchmarks.accuracy --only exp sin    # the functions with these names, on the screen
python -m benchmarks.accuracy --points 12       # 2^12 arguments instead of 2^20

A 16-bit type is measured at all its numbers, a wider one at numbers spread evenly over all bit patterns, and as many
where the function does most. Exact results come from a type with at least 11 more bits, or from mpmath.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import scipy.special

import tinyxla
from benchmarks import ROOT
from benchmarks.machine import processor
from tinyxla import lax
from tinyxla.ops.numerics.accuracy import ResultAccuracy, accurate_ops, largest_error, working_type
from tinyxla.shapes import element_type

Values = np.ndarray[Any, Any]
TYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}
WIDE = {"f64": np.longdouble, "c64": np.clongdouble, "c128": np.clongdouble}  # float64 for the others
DOCUMENT = ROOT / "docs" / "accuracy.md"
POINTS = 20  # as a power of two
SLOW_POINTS = 12  # where mpmath computes the exact results


# --- functions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function of `lax`, where it does most (as real numbers), and the same in wider types.

    `exact` is the same for mpmath, used for `exact_types` and where mpmath is given no real part of infinity and such.
    """

    name: str
    wide: Callable[..., Any]
    low: float = -8.0
    high: float = 8.0
    exact: Callable[..., Any] | None = None
    exact_types: tuple[str, ...] = ()
    types: tuple[str, ...] = tuple(TYPES)
    second: tuple[float, float] | None = None  # where the second operand is, if there are two

    @property
    def arity(self) -> int:
        return 2 if self.second else 1


FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")


def _logistic(x: Values) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def _of_doubles(function: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """For special values alone where the operand is wider."""
    return lambda x: function(x.astype(np.float64))


def _inverse_error_function(x: Any) -> Any:
    """From SciPy's value, two Newton steps on whichever of erf and erfc loses nothing."""
    small = abs(x) < 0.5
    start = scipy.special.erfinv(float(x)) if small else scipy.special.erfcinv(float(1 - abs(x)))
    y = mpmath.mpf(float(start)) * (1 if small else mpmath.sign(x))
    for _ in range(2):
        residual = mpmath.erf(y) - x if small else mpmath.sign(x) * ((1 - abs(x)) - mpmath.erfc(abs(y)))
        y -= residual * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
    return y


FUNCTIONS = (
    Function("exp", np.exp, -104, 89),
    Function("expm1", np.expm1, -20, 89, mpmath.expm1, COMPLEX),
    Function("exp2", np.exp2, -150, 128, types=FLOATS),
    Function("log", np.log, 0, 100),
    Function("log1p", np.log1p, -1, 100, mpmath.log1p, COMPLEX),
    Function("logistic", _logistic, -104, 104, lambda z: 1 / (1 + mpmath.exp(-z)), COMPLEX),
    Function("sqrt", np.sqrt, 0, 100),
    Function("rsqrt", lambda x: 1 / np.sqrt(x), 0, 100, lambda z: 1 / mpmath.sqrt(z), COMPLEX),
    Function("cbrt", np.cbrt, -100, 100, types=FLOATS),
    Function("sin", np.sin, -1e5, 1e5),
    Function("cos", np.cos, -1e5, 1e5),
    Function("tan", np.tan, -1e5, 1e5),
    Function("sinh", np.sinh, -90, 90),
    Function("cosh", np.cosh, -90, 90),
    Function("tanh", np.tanh, -10, 10),
    Function("asin", np.arcsin, -1, 1),
    Function("acos", np.arccos, -1, 1),
    Function("atan", np.arctan, -10, 10),
    Function("asinh", np.arcsinh, -100, 100),
    Function("acosh", np.arccosh, 1, 100),
    Function("atanh", np.arctanh, -1, 1),
    Function("erf", _of_doubles(scipy.special.erf), -6, 6, mpmath.erf, ("f64",), FLOATS),
    Function("erf_inv", _of_doubles(scipy.special.erfinv), -1, 1, _inverse_error_function, ("f64",), FLOATS),
    Function("abs", np.abs),
    Function("sign", np.sign, types=COMPLEX),
    Function("atan2", np.arctan2, -100, 100, types=FLOATS, second=(-100, 100)),
    Function("pow", np.power, 0, 100, types=FLOATS, second=(-30, 30)),
    Function("pow", np.power, -8, 8, lambda z, w: mpmath.exp(w * mpmath.log(z)), COMPLEX, COMPLEX, second=(-4, 4)),
    Function("div", np.divide, -100, 100, second=(-100, 100)),
    Function("rem", np.fmod, -100, 100, types=FLOATS, second=(-10, 10)),
    Function("mul", np.multiply, types=COMPLEX, second=(-100, 100)),
)


# --- arguments --------------------------------------------------------------------------------------------------------


def _over_all_bits(random: np.random.Generator, dtype: np.dtype[Any], points: int) -> Values:
    """One number from each of equal parts of the bit patterns: all numbers of a type that has fewer."""
    width = 8 * dtype.itemsize
    step = 2 ** max(0, width - points)
    starts = np.arange(2 ** min(points, width), dtype=np.uint64) * np.uint64(step)
    return (starts + random.integers(0, step, starts.shape, np.uint64)).astype(f"u{dtype.itemsize}").view(dtype)


def _where_it_does_most(
    random: np.random.Generator, dtype: np.dtype[Any], points: int, low: float, high: float
) -> Values:
    """Half evenly between the limits, half by logarithm."""
    count = 2 ** (points - 1)
    reach = max(abs(low), abs(high))
    scales = np.exp2(random.uniform(-2.0 * ml_dtypes.finfo(dtype).nmant, math.log2(reach), count))
    signs = random.choice([-1.0, 1.0], count) if low < 0 else 1.0
    return np.concatenate([random.uniform(low, high, count), np.clip(scales * signs, low, high)]).astype(dtype)


def _special(dtype: np.dtype[Any]) -> Values:
    limits = ml_dtypes.finfo(dtype)
    extremes = [limits.max, limits.smallest_normal, limits.smallest_subnormal, limits.smallest_normal / 2]
    magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, math.inf, *map(float, extremes)]
    return np.array([*magnitudes, *(-x for x in magnitudes), math.nan]).astype(dtype)


def _real_arguments(function: Function, dtype: np.dtype[Any], points: int, random: np.random.Generator) -> list[Values]:
    ranges = [(function.low, function.high), *([function.second] if function.second else [])]
    with np.errstate(all="ignore"):
        columns = [
            [_over_all_bits(random, dtype, points), _where_it_does_most(random, dtype, points, *bounds)]
            for bounds in ranges
        ]
        if function.arity == 1:
            return [np.concatenate([*columns[0], _special(dtype)])]
        special = [x.ravel() for x in np.meshgrid(_special(dtype), _special(dtype))]
        mixed = [[random.permutation(part) for part in column] for column in columns]
        return [np.concatenate([*column, extra]) for column, extra in zip(mixed, special, strict=True)]


def _complex_arguments(
    function: Function, dtype: np.dtype[Any], points: int, random: np.random.Generator
) -> list[Values]:
    """A third anywhere near the unit circle, a third with parts of unlike sizes, a third of any direction and size."""
    part = np.dtype(f"f{dtype.itemsize // 2}")

    def numbers() -> Values:
        count = 2**points // 3
        angles = random.uniform(-math.pi, math.pi, (2, count))
        sizes = [1 + np.exp2(random.uniform(-30, -2, count)), np.exp2(random.uniform(-12, 4, count))]
        parts = np.exp2(random.uniform(-20, 4, (2, count))) * random.choice([-1.0, 1.0], (2, count))
        real = np.concatenate([*(s * np.cos(a) for s, a in zip(sizes, angles, strict=True)), parts[0]])
        imag = np.concatenate([*(s * np.sin(a) for s, a in zip(sizes, angles, strict=True)), parts[1]])
        return real.astype(part) + 1j * imag.astype(part)

    return [numbers().astype(dtype) for _ in range(function.arity)]


def arguments(function: Function, type: str, points: int) -> list[Values]:
    """The operands that a function is measured with: the same ones in every run."""
    random = np.random.default_rng(list(f"{function.name} {type}".encode()))
    make = _complex_arguments if type in COMPLEX else _real_arguments
    return make(function, TYPES[type], points, random)


# --- exact results ----------------------------------------------------------------------------------------------------


def _through_mpmath(function: Function, operands: Sequence[Values]) -> Values:
    """By way of mpmath where the wider function has a finite result, since that has the special values."""
    wide = np.clongdouble if operands[0].dtype.kind == "c" else np.longdouble
    out = np.asarray(function.wide(*[x.astype(wide) for x in operands])).astype(wide)
    assert function.exact is not None
    with mpmath.workprec(150):
        for index in np.flatnonzero(np.isfinite(out) & (out != 0)):
            given = [mpmath.mpmathify(x[index].item()) for x in operands]
            exact = mpmath.mpc(function.exact(*given))
            out[index] = _long(exact.real) + (1j * _long(exact.imag) if wide is np.clongdouble else 0)
    return out


def _long(x: Any) -> Any:
    high = float(x)
    return np.longdouble(high) + (np.longdouble(float(x - high)) if math.isfinite(high) else 0)


def exact_results(function: Function, type: str, operands: Sequence[Values]) -> Values:
    """In a wider type."""
    with np.errstate(all="ignore"):
        if type in function.exact_types:
            exact = _through_mpmath(function, operands)
        else:
            exact = np.asarray(function.wide(*[x.astype(WIDE.get(type, np.float64)) for x in operands]))
        odd = function.name in ("erf", "erf_inv")  # whose references lose the sign of zero
        return np.where((exact == 0) & np.signbit(operands[0]), -0.0, exact) if odd else exact


# --- errors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """The largest error in units in the last place of the exact result, and where it is.

    `special` says whether all of zeros, infinities and NaN among operands or results are right, `subnormal` whether
    subnormal operands and results have no larger errors than others.
    """

    places: float
    worst: tuple[Any, ...]
    special: bool = True
    subnormal: bool = True

    def __str__(self) -> str:
        marks = ("" if self.special else " s") + ("" if self.subnormal else " d")
        return (f"{math.ceil(self.places * 100 - 1e-6) / 100:.2f}" if self.places < 1e4 else "> 9999") + marks


def _places(result: Values, exact: Values) -> Values:
    """Distances in units in the last place. Infinity counts as the number that comes after the largest."""
    limits = ml_dtypes.finfo(result.real.dtype)
    after_largest = np.ldexp(exact.real.dtype.type(1), int(limits.maxexp))
    size = np.abs(exact)
    exponent = np.frexp(np.where((size > 0) & (size < after_largest), size, after_largest / 2))[1] - 1
    place = np.ldexp(exact.real.dtype.type(1), np.maximum(exponent, int(limits.minexp)) - int(limits.nmant))
    if result.dtype.kind == "c":
        return np.abs(result.astype(exact.dtype) - exact) / place
    wide = np.clip(result.astype(exact.dtype), -after_largest, after_largest)
    return np.abs(wide - np.clip(exact, -after_largest, after_largest)) / place


def errors_of(result: Values, exact: Values, operands: Sequence[Values]) -> Errors:
    """Compare results with exact ones; of complex numbers, where all are finite and normal."""
    tiny = float(ml_dtypes.finfo(result.real.dtype).smallest_normal)
    with np.errstate(all="ignore"):
        error = _places(result, exact)
        error = np.where(np.isnan(error), np.inf, error)
        if exact.dtype.kind == "c":
            largest = float(ml_dtypes.finfo(result.real.dtype).max)
            usual = np.where((np.abs(exact) < largest) & (np.abs(exact) >= tiny), error, 0)
            index = int(np.argmax(usual))
            return Errors(float(usual[index]), tuple(x[index] for x in operands))
        sizes = [np.abs(x).astype(exact.dtype) for x in (exact, *operands)]
        subnormal = np.any([(s > 0) & (s < tiny) for s in sizes], axis=0)
        special = np.any([(s == 0) | ~np.isfinite(s) for s in sizes], axis=0)
        usual = np.where(np.logical_or(subnormal, special), 0, error)
        index = int(np.argmax(usual))
        largest = float(usual[index])
        right = np.where(np.isnan(exact), np.isnan(result), error <= max(1, largest + 0.5))
        right &= (exact != 0) | ((result == 0) & (np.signbit(result) == np.signbit(exact)))
        return Errors(
            places=largest,
            worst=tuple(x[index] for x in operands),
            special=bool(np.all(right[special & ~subnormal])),
            subnormal=bool(np.all(right[subnormal])),
        )


# --- contestants ------------------------------------------------------------------------------------------------------


def _compiled(name: str, operands: Sequence[Values]) -> Values:
    return np.asarray(tinyxla.jit(getattr(lax, name))(*_arrays(operands)))


def _interpreted(name: str, operands: Sequence[Values]) -> Values:
    arrays = _arrays(operands)
    return np.asarray(tinyxla.jit(getattr(lax, name)).lower(*arrays).module(*arrays, backend="interpreter")[0])


def _arrays(operands: Sequence[Values]) -> list[Any]:
    return [tinyxla.numpy.asarray(x, x.dtype) for x in operands]


def _xla(name: str, operands: Sequence[Values]) -> Values:
    import jax  # here, so that the library's own errors can be measured without it

    with jax.enable_x64(True):
        return np.asarray(jax.jit(getattr(jax.lax, name))(*map(jax.numpy.asarray, operands)))


CONTESTANTS: dict[str, Callable[[str, Sequence[Values]], Values]] = {
    "compiled": _compiled,
    "interpreted": _interpreted,
    "XLA:CPU": _xla,
}


def measure(function: Function, type: str, points: int, contestants: Sequence[str]) -> dict[str, Errors]:
    """The errors of the contestants with these names, all at the same arguments."""
    if type in function.exact_types:
        points = min(points, SLOW_POINTS)
    operands = arguments(function, type, points)
    exact = exact_results(function, type, operands)
    return {name: errors_of(CONTESTANTS[name](function.name, operands), exact, operands) for name in contestants}


# --- the document -----------------------------------------------------------------------------------------------------

Row = tuple[str, str, list[str]]  # function, type, and a cell for each contestant


def document(rows: Sequence[Row], points: int) -> str:
    """The Markdown document: how it was measured, what is promised, and the table."""
    versions = {name: importlib.metadata.version(name) for name in ("tinyxla", "jaxlib", "numpy", "scipy")}
    head = ["function", "type", *CONTESTANTS]
    lines = [head, ["---", "---", *["---:"] * len(CONTESTANTS)]]
    lines += [[function, type, *cells] for function, type, cells in rows]
    count, slow = f"2^{points}", f"2^{SLOW_POINTS}"
    return f"""# Accuracy

Written by `python -m benchmarks.accuracy` on {datetime.date.today().isoformat()}, with
{", ".join(f"{name} {version}" for name, version in versions.items())} on {processor()}.

The largest errors of element-wise functions that were found, in units in the last place of the exact result. 0.5 is
correct rounding, so no figure of a function that rounds is smaller.

- "compiled" is under `jit`, "interpreted" by NumPy's functions, as eager calls on small arrays are, and "XLA:CPU" is
  `jax.jit`.
- f16 and bf16 are measured at all their numbers, f32 and f64 at {count} numbers spread evenly over all bit patterns,
  {count} where the function does most, and special values; functions of two operands at as many pairs. Exact results
  are those of float64 for f32 and narrower types, and of 80-bit numbers or mpmath for f64.
- Errors of complex numbers are relative to the magnitude of the exact result, at {count} numbers near the unit circle,
  of any direction, and with parts of unlike sizes. That of `pow` grows with the angle that it turns through.
- Where only mpmath has exact results, it is at {slow} arguments.
- `d` marks that subnormal operands or results have larger errors or are taken for zero (as XLA does), `s` that a zero,
  an infinity or a NaN is not as IEEE 754 and C have it.

## What `result_accuracy` can rely on

An operation that is asked for a tolerance compares it with these bounds, in the same units. Where the usual
implementation does not meet the tolerance, it computes in the type with twice the bits and rounds, which is also what
the mode `highest` stands for; where that does not meet it either, it refuses with an error.

{table(promises())}

## Errors

{table(lines)}
"""


def promises() -> list[list[str]]:
    """The table of bounds that `result_accuracy` is compared with."""
    head = ["operation", *TYPES]
    return [
        head,
        ["---", *["---:"] * len(TYPES)],
        *[[op, *(_promise(op, type) for type in TYPES)] for op in accurate_ops()],
    ]


def _promise(op: str, type: str) -> str:
    kind = element_type(type)
    usual = largest_error(op, kind, kind)
    best = largest_error(op, kind, working_type(op, kind, ResultAccuracy("highest")))
    if not usual:
        return ""
    return f"{usual:g}" if usual == best else f"{usual:g}, highest {best:g}"


def table(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="Measure the largest errors.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="functions; the table is written if there are all")
    parser.add_argument("--points", type=int, default=POINTS, help=f"as a power of two (default: {POINTS})")
    given = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    rows: list[Row] = []
    for function in FUNCTIONS:
        if given.only and function.name not in given.only:
            continue
        for type in function.types:
            errors = measure(function, type, given.points, tuple(CONTESTANTS))
            rows.append((function.name, type, [str(e) for e in errors.values()]))
            found = "  ".join(f"{name} {e!s:8} at {', '.join(map(str, e.worst))}" for name, e in errors.items())
            print(f"{function.name:9}{type:6}{found}", flush=True)
    if not given.only and given.points == POINTS:
        DOCUMENT.write_text(document(rows, given.points), encoding="utf-8")


if __name__ == "__main__":
    main()
