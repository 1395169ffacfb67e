"""Ops against XLA itself, which parses and runs the HLO that is printed here.

Element-wise ops of every element type are asked about the values at which things go wrong: ends of the range,
infinities, NaN, both zeros, divisors of zero, shifts past the width. Of other ops, random shapes and attributes are
tried, with small whole numbers, so results are exact. Both backends have to agree with XLA. Gather, scatter and
convolution have tests of this kind in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support import op_checks, xla_oracle
from tinyxla.backends import compile_module
from tinyxla.hlo import Computation, Module
from tinyxla.ops import Sample, elementwise, ops, reduction
from tinyxla.shapes import ElementType, Shape, element_type, element_types
from tinyxla.shapes.window import WindowDimension
from tinyxla.text import print_module
from tinyxla.text.hlo_text import OPCODES
from tinyxla.tracing.core import trace

Random = np.random.Generator
Array = np.ndarray[Any, Any]
Cases = dict[str, tuple[Callable[..., Any], list[Array]]]  # what is computed, of which operands

INTEGERS = ("s8", "u32", "s64", "s4", "u2")
FLOATS = ("f32", "f64", "bf16", "f8e4m3fn", "f8e5m2")
COMPLEX = ("c64",)
BACKENDS = ("interpreter", "numba")

# Of XLA on the CPU: it flushes subnormal numbers, and rounds the functions of 8-bit floats twice.
TOLERANCE = {"f64": 1e-13, "c128": 1e-11, "f32": 3e-6, "c64": 1e-4, "f16": 2e-3, "bf16": 1.6e-2}
TOLERANCE |= {name: 2.0 ** -float(ml_dtypes.finfo(element_types[name].dtype).nmant) for name in FLOATS[3:]}

NOT_IN_XLA = dict.fromkeys(elementwise.NAMES - OPCODES, "no HLO opcode") | dict.fromkeys(
    ("sinh", "cosh"), "not implemented on the CPU"
)
NOT_COMPARED = {
    ("abs", "unsigned"): "StableHLO, by which XLA is entered here, has none",
    ("sign", "unsigned"): "StableHLO, by which XLA is entered here, has none",
    ("maximum", "complex"): "no order of complex numbers is documented",
    ("minimum", "complex"): "no order of complex numbers is documented",
    ("power", "complex"): "of powers of zero XLA gives NaN; the rest is in test_vector_variants and test_loop_ir",
}
WITHOUT_NAN = ("maximum", "minimum", "clamp")  # whose fast form, which XLA takes unless JAX asks otherwise, drops them


@np.errstate(all="ignore")
def special_values(kind: ElementType) -> Array:
    if kind.kind == "pred":
        return np.array([False, True])
    if kind.is_integer:
        info = ml_dtypes.iinfo(kind.dtype)
        low, high = int(info.min), int(info.max)
        near = (low, low + 1, -7, -3, -2, -1, 0, 1, 2, 3, kind.bits - 1, kind.bits, kind.bits + 1, high - 1, high)
        return np.array([np.array(n).astype(kind.dtype) for n in sorted({n for n in near if low <= n <= high})])
    if kind.kind == "complex":
        parts = np.array([0.0, 1, -1, 0.5, 2.5, -3, 1e-3, 20], np.float64)
        return (parts[:, None] + 1j * parts).reshape(-1).astype(kind.dtype)
    info = ml_dtypes.finfo(kind.dtype)
    near = [
        0.0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3,
        -3,
        7.5,
        12,
        20,
        88,
        -88,
        100,
        1e-3,
        1e10,
        math.inf,
        -math.inf,
    ]
    found = np.array([*near, math.nan, float(info.max), float(info.min), float(info.tiny)]).astype(kind.dtype)
    return found[~(np.abs(found.astype(np.float64)) < float(info.tiny)) | (found == 0)]


def check(cases: Cases, message: str = "") -> None:
    """One module of all cases, in XLA and in both backends."""
    operands = [x for _, xs in cases.values() for x in xs]

    def program(*values: Any) -> list[Any]:
        rest = iter(values)
        return [function(*[next(rest) for _ in xs]) for function, xs in cases.values()]

    module = Module("sweep", trace(program, list(map(Shape.of, operands)), "main")[0])
    expected = xla_oracle.run(print_module(module), operands)
    for backend in BACKENDS:
        found = compile_module(module, backend)(operands)
        for name, x, y in zip(cases, found, expected, strict=True):
            assert Shape.of(x) == Shape.of(y), (name, backend)
            what = f"{name} of {[str(Shape.of(o)) for o in cases[name][1]]} on {backend} {message}"
            equal(x, y, TOLERANCE.get(element_type(x.dtype).name, 0.0), what)


def equal(x: Array, y: Array, tolerance: float, what: str) -> None:
    kind = element_type(x.dtype)
    least = float(ml_dtypes.finfo(kind.dtype).tiny) if kind.is_inexact else 0.0
    x, y = (np.nan_to_num(op_checks.comparable(v), nan=math.nan, posinf=None, neginf=None) for v in (x, y))
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=least, err_msg=what)


# --- element-wise ops -------------------------------------------------------------------------------------------------


def accepts(name: str, arity: int, kind: ElementType) -> bool:
    try:
        ops[name].shape(*[Shape(kind)] * arity)
    except (ValueError, TypeError, AttributeError):  # the latter where an operand was taken for an attribute
        return False
    return name not in NOT_IN_XLA and (name, kind.kind) not in NOT_COMPARED


def of_all_pairs(name: str, values: Array) -> list[Array]:
    if name in WITHOUT_NAN:
        values = values[values == values]
    if name == "power" and element_type(values.dtype).is_integer:
        return [np.repeat(values, 4), np.tile(np.array([0, 1, 2, 3]).astype(np.int8).astype(values.dtype), len(values))]
    return [np.repeat(values, len(values)), np.tile(values, len(values))]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("type", ["pred", *INTEGERS, *FLOATS, *COMPLEX])
def test_unary(type: str) -> None:
    kind = element_types[type]
    names = sorted(n for n in elementwise.NAMES if n != "convert" and accepts(n, 1, kind))
    if kind.bits == 4:
        names.remove("popcnt")  # XLA counts the bits of the byte it keeps a negative number in
    check({name: (ops[name], [special_values(kind)]) for name in names})


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("type", ["pred", *INTEGERS, *FLOATS, *COMPLEX])
def test_binary(type: str) -> None:
    kind = element_types[type]
    values = special_values(kind)
    names = sorted(n for n in elementwise.NAMES if n != "mulhi" and accepts(n, 2, kind))  # StableHLO has no mulhi
    if kind.kind == "complex":
        names.remove("atan2")  # most of the special values are on branch cuts, where XLA's formula cancels
    cases: Cases = {name: (ops[name], of_all_pairs(name, values)) for name in names}
    order = elementwise.comparison_type(kind.dtype)
    for form in (order, "TOTALORDER") if kind.kind == "float" else (order,):
        for direction in ("EQ", "NE") if kind.kind == "complex" else ("EQ", "NE", "GE", "GT", "LE", "LT"):
            compared = comparison(direction, form)
            cases[f"compare {direction} {form}"] = (compared, of_all_pairs("compare", values))
    check(cases)


def comparison(direction: str, form: str) -> Callable[..., Any]:
    return lambda x, y: elementwise.compare(x, y, direction=direction, type=form)


@pytest.mark.parametrize("type", ["pred", "s8", "u2", "f32", "f8e5m2"])
def test_clamp(type: str) -> None:
    values = special_values(element_types[type])
    values = values[values == values][:12]
    low, x, high = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(values, values, values))
    check({"clamp": (elementwise.clamp, [low, x, high])})


NOT_ON_CPU = ("s1", "u1", "f6e2m3fn", "f6e3m2fn")  # types of which XLA makes no arrays there


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("type", ["pred", *INTEGERS, *FLOATS, *COMPLEX])
def test_convert(type: str) -> None:
    """To every type; but XLA ends the process over complex numbers that are to become narrow ones."""
    values = special_values(element_types[type])
    without_nan = values[values == values]
    cases: Cases = {}
    for name, target in element_types.items():
        if (type in COMPLEX and target.bits < 32) or name in NOT_ON_CPU:
            continue
        given = without_nan if name in ("f4e2m1fn", "f8e8m0fnu") else values  # NaN of these has no sign, or all have it
        cases[name] = (converted(target), [given])
    check(cases)


def converted(target: ElementType) -> Callable[..., Any]:
    return lambda x: elementwise.convert(x, new_element_type=target)


@pytest.mark.parametrize("type", ["bf16", "f32"])
def test_reduce_precision(type: str, generator: Random) -> None:
    kind = element_types[type]
    tiny = float(ml_dtypes.finfo(kind.dtype).tiny)
    bits = generator.integers(0, 2**kind.bits - 1, 200, np.uint64).astype(f"u{kind.dtype.itemsize}")
    values = np.concatenate([special_values(kind), bits.view(kind.dtype)])
    values = values[~(np.abs(values) < tiny)]
    cases: Cases = {}
    for exponent_bits in (1, 2, 5, 8):
        for mantissa_bits in (0, 1, 3, 10, 23):
            cases[f"e{exponent_bits}m{mantissa_bits}"] = (reduced(exponent_bits, mantissa_bits), [values])
    check(cases)


def reduced(exponent_bits: int, mantissa_bits: int) -> Callable[..., Any]:
    return lambda x: ops["reduce-precision"](x, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)


# --- other ops: random attributes -------------------------------------------------------------------------------------

TYPES = ("f32", "s32", "s8", "u8", "u64", "bf16", "f16", "f64", "c64", "pred", "s4", "f8e4m3fn", "u2", "s64")


def small_integers(random: Random, sizes: Sequence[int], kind: ElementType, reach: int = 4) -> Array:
    if kind.kind == "pred":
        return np.asarray(random.random(sizes) < 0.5)
    reach = min(reach, 2) if kind.bits == 2 else reach
    found = random.integers(0 if kind.kind == "unsigned" else -reach, reach, sizes)
    if kind.kind == "complex":
        return np.asarray(found + 1j * random.integers(-reach, reach, sizes)).astype(kind.dtype)
    return np.asarray(found.astype(np.int8)).astype(kind.dtype)


def some_sizes(random: Random, rank: int, low: int = 0, high: int = 5) -> tuple[int, ...]:
    return tuple(int(random.integers(low if random.random() < 0.15 else 1, high)) for _ in range(rank))


def order_of(random: Random, count: int) -> tuple[int, ...]:
    return tuple(map(int, random.permutation(count)))


def a_monoid(random: Random, kind: ElementType) -> tuple[Computation, Array]:
    """A computation and its neutral element: how often an initial value counts is not said."""
    names = {"pred": ("and", "or", "xor"), "complex": ("add", "multiply")}
    name = str(random.choice(names.get(kind.kind, ("add", "multiply", "maximum", "minimum"))))
    neutral = reduction.identity_element(name, kind.dtype)
    if isinstance(neutral, float) and not np.isinf(np.array(neutral).astype(kind.dtype).astype(np.float64)):
        neutral = math.copysign(float(ml_dtypes.finfo(kind.dtype).max), neutral)
    return reduction.scalar_computation(name, kind.dtype), np.array(neutral).astype(kind.dtype)


def window_dimension(random: Random) -> WindowDimension:
    size, dilation, base = (int(random.integers(1, n)) for n in (4, 3, 3))
    low, high = (int(n) for n in random.integers(0, 4, 2))
    return WindowDimension(size, int(random.integers(1, 4)), low, high, dilation, base)


def a_pad(random: Random, kind: ElementType) -> tuple[str, Sample]:
    sizes = some_sizes(random, int(random.integers(0, 5)))
    config: list[tuple[int, int, int]] = []
    for n in sizes:
        interior, low, high = int(random.integers(0, 3)), *map(int, random.integers(-3, 4, 2))
        fits = n + max(n - 1, 0) * interior + low + high >= 0
        config.append((low, high, interior) if fits else (1, 1, interior))
    operands = small_integers(random, sizes, kind), small_integers(random, (), kind)
    return "pad", Sample(operands, {"padding_config": tuple(config)})


def a_reduce(random: Random, kind: ElementType) -> tuple[str, Sample]:
    rank = int(random.integers(0, 6))
    to_apply, neutral = a_monoid(random, kind)
    dimensions = order_of(random, rank)[: int(random.integers(0, rank + 1))]
    operands = small_integers(random, some_sizes(random, rank), kind, 2), neutral
    return "reduce", Sample(operands, {"dimensions": dimensions, "to_apply": to_apply})


def a_reduce_window(random: Random, kind: ElementType) -> tuple[str, Sample]:
    sizes = some_sizes(random, int(random.integers(0, 4)))
    to_apply, neutral = a_monoid(random, kind)
    window = tuple(window_dimension(random) for _ in sizes)
    return "reduce-window", Sample(
        (small_integers(random, sizes, kind, 2), neutral), {"window": window, "to_apply": to_apply}
    )


def a_select_and_scatter(random: Random, kind: ElementType) -> tuple[str, Sample]:
    """Without padding, which ends the process in XLA on the CPU."""
    kind = element_type("f32") if kind.kind == "complex" else kind
    sizes = some_sizes(random, int(random.integers(1, 4)), 1, 6)
    extents = [int(random.integers(1, min(n, 3) + 1)) for n in sizes]
    window = tuple(WindowDimension(extent, int(random.integers(1, 3))) for extent in extents)
    source = [(n - w.size) // w.stride + 1 for n, w in zip(sizes, window, strict=True)]
    scatter, neutral = a_monoid(random, kind)
    compared = comparison(str(random.choice(["GE", "LE", "GT", "LT"])), elementwise.comparison_type(kind.dtype))
    select = scalar_computation(compared, [kind, kind])
    operands = small_integers(random, sizes, kind), small_integers(random, source, kind), neutral
    return "select-and-scatter", Sample(operands, {"window": window, "select": select, "scatter": scatter})


def scalar_computation(function: Callable[..., Any], kinds: Sequence[ElementType]) -> Computation:
    made = trace(lambda *x: [function(*x)], list(map(Shape, kinds)), "scalar")[0]
    return Computation(made.name, made.parameters, made.instructions[:-1], made.outputs[0])


def a_sort(random: Random, kind: ElementType) -> tuple[str, Sample]:
    """By the first of several, in total order. XLA's sort of elements of less than 8 bits mixes them up."""
    kind = element_type("f32") if kind.bits < 8 or kind.kind == "complex" else kind
    others = [element_types[str(random.choice(["f32", "s8", "pred", "c64"]))] for _ in range(random.integers(0, 3))]
    sizes = some_sizes(random, int(random.integers(1, 4)), 1, 7)
    keys = small_integers(random, sizes, kind)
    if kind.kind == "float" and kind.bits > 8:
        extra = np.array([math.nan, -math.nan, -0.0, math.inf, -math.inf]).astype(kind.dtype)
        keys = np.where(random.random(sizes) < 0.4, random.choice(extra, sizes), keys)
    form = "TOTALORDER" if kind.kind == "float" else elementwise.comparison_type(kind.dtype)
    compared = comparison(str(random.choice(["LT", "GT"])), form)
    to_apply = scalar_computation(lambda x, y, *_: compared(x, y), [k for k in (kind, *others) for _ in range(2)])
    dimension = (int(random.integers(len(sizes))),)
    operands = keys, *(small_integers(random, sizes, k) for k in others)
    return "sort", Sample(operands, {"dimensions": dimension, "to_apply": to_apply, "is_stable": True})


def a_dot(random: Random, kind: ElementType) -> tuple[str, Sample]:
    """XLA on the CPU has no product of 2-bit integers."""
    kind = element_type("s32") if kind.bits == 2 else kind
    batch, contracted, left, right = (some_sizes(random, int(n), 0, 4) for n in random.integers(0, 3, 4))
    sides: list[tuple[tuple[int, ...], Array]] = []
    for free in (left, right):
        sizes = (*batch, *contracted, *free)
        order = order_of(random, len(sizes))
        placed = [n for _, n in sorted(zip(order, sizes, strict=True))]
        sides.append((order, small_integers(random, placed, kind, 2)))
    (lhs, x), (rhs, y) = sides
    b, c = len(batch), len(batch) + len(contracted)
    attributes = {
        "lhs_contracting_dims": lhs[b:c],
        "rhs_contracting_dims": rhs[b:c],
        "lhs_batch_dims": lhs[:b],
        "rhs_batch_dims": rhs[:b],
        "preferred_element_type": None,
        "operand_precision": (),
    }
    return "dot", Sample((x, y), attributes)


def a_dynamic_slice(random: Random, kind: ElementType) -> tuple[str, Sample]:
    """With starts of any integer type, inside or outside."""
    sizes = some_sizes(random, int(random.integers(0, 5)), 1, 6)
    part = tuple(int(random.integers(0, n + 1)) for n in sizes)
    index = random.choice(["int32", "int64", "uint8", "int8", "uint32"])
    starts = [np.asarray(random.integers(-3, 8)).astype(index) for _ in sizes]
    x = small_integers(random, sizes, kind)
    if random.random() < 0.4:
        return "dynamic-slice", Sample((x, *starts), {"dynamic_slice_sizes": part})
    return "dynamic-update-slice", Sample((x, small_integers(random, part, kind), *starts))


def a_movement(random: Random, kind: ElementType) -> tuple[str, Sample]:
    """Of up to 8 dimensions."""
    sizes = some_sizes(random, int(random.integers(1, 9)), 0, 3)
    rank, x = len(sizes), small_integers(random, sizes, kind)
    start = [int(random.integers(0, n + 1)) for n in sizes]
    limit = [int(random.integers(s, n + 1)) for s, n in zip(start, sizes, strict=True)]
    strides = tuple(int(n) for n in random.integers(1, 3, rank))
    cut = {"start_indices": tuple(start), "limit_indices": tuple(limit), "strides": strides}
    some = order_of(random, rank)[: int(random.integers(0, rank + 1))]
    stretched = {"sizes": sizes, "dimensions": some}
    permuted = dict(zip(ops["transpose"].attributes._fields, [order_of(random, rank)], strict=True))
    forms: list[tuple[str, Sample]] = [
        ("transpose", Sample((x,), permuted)),
        ("reverse", Sample((x,), {"dimensions": some})),
        ("slice", Sample((x,), cut)),
        ("broadcast", Sample((small_integers(random, [sizes[d] for d in some], kind),), stretched)),
        ("concatenate", Sample((x, x, x), {"dimension": int(random.integers(rank))})),
    ]
    return forms[random.integers(len(forms))]


FORMS = {
    form.__name__.removeprefix("a_"): form
    for form in (a_pad, a_reduce, a_reduce_window, a_select_and_scatter, a_sort, a_dot, a_dynamic_slice, a_movement)
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("form", FORMS)
def test_random_attributes(form: str, generator: Random) -> None:
    for type in generator.permutation(TYPES)[:4]:
        name, sample = FORMS[form](generator, element_types[type])
        function = op_checks.on_arrays(ops[name], sample)
        results = len(op_checks.evaluated(ops[name], sample))
        for k in range(results):
            check({name: (lambda *x, k=k, f=function: f(*x)[k], list(sample.operands))}, str(sample.attributes))


# --- corners that random attributes seldom find -----------------------------------------------------------------------


def test_an_update_whose_rows_end_in_dimensions_of_one() -> None:
    x, update = np.zeros((2, 3, 4, 1)), np.arange(1.0, 17).reshape(2, 2, 4, 1)
    starts = [np.array(n, np.uint8) for n in (2, 255, 7, 253)]
    check({"update": (ops["dynamic-update-slice"], [x, update, *starts])})


def test_windows_outside_the_array_beside_a_cumulative_dimension() -> None:
    minimum, least = reduction.scalar_computation("minimum", np.float64), np.array(np.finfo(np.float64).max)
    window = WindowDimension(3, 1, 0, 2), WindowDimension(2, 1, 3, 3), WindowDimension(2, 1, 1, 1, 1, 2)
    function = op_checks.on_arrays(ops["reduce-window"], Sample((0, 0), {"window": window, "to_apply": minimum}))
    check({"windows": (lambda x, y: function(x, y)[0], [np.arange(12.0).reshape(1, 4, 3), least])})
