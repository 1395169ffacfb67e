"""What every op must satisfy, one function for each demand: `check(op, sample)` raises AssertionError if it does not.

The checks know an op only by its rules, so new ops are tested without a new line here; and planted wrong ops are given
to the same functions, to see that each of them can object.

Derivatives are compared with differences at 64 bits: `lifted` makes a sample and its computations wide. Complex numbers
count as pairs of reals; cotangents and tangents pair without conjugation, as `tinyxla.ops.elementwise` says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tinyxla.errors import DifferentiationError
from tinyxla.hlo import Computation, Instruction, Literal, Module, verify
from tinyxla.ops import Op, Sample, calls
from tinyxla.ops.op import NotDifferentiable, Zero
from tinyxla.shapes import AnyShape, ElementType, Shape, TupleShape, element_type
from tinyxla.text import print_module
from tinyxla.tracing import wrap
from tinyxla.tracing.core import trace
from tinyxla.transforms import batch, jvp, vjp
from tinyxla.transforms.reverse import derivative_of

Function = Callable[..., list[Any]]  # of values, to a flat list of values
NumPyArray = np.ndarray[Any, Any]


WITHOUT_SAMPLES = {
    "parameter": "is given",
    **dict.fromkeys(("outfeed", "recv", "recv-done", "send"), "with its other end, in test_transfers"),
}
IN_ORDER = ("infeed", "outfeed", "recv", "recv-done", "send")  # refused under vmap: items have an order

# --- values -----------------------------------------------------------------------------------------------------------


def flat(value: Any) -> list[Any]:
    """The arrays of a value that may be a tuple of tuples."""
    return [part for element in value for part in flat(element)] if isinstance(value, tuple) else [value]


def regrouped(template: Any, parts: Iterator[Any]) -> Any:
    """The inverse of `flat`: the structure of `template` with other arrays."""
    if isinstance(template, tuple):
        return tuple(regrouped(element, parts) for element in template)
    return next(parts)


def to_numpy(value: Any) -> NumPyArray:
    return np.asarray(value.numpy())


def shape_of(value: Any) -> AnyShape:
    return TupleShape(tuple(map(shape_of, value))) if isinstance(value, tuple) else Shape.of(value)


def on_arrays(op: Op, sample: Sample) -> Function:
    """The op with the sample's attributes, from and to flat lists of arrays."""

    def function(*arrays: Any) -> list[Any]:
        return flat(op(*regrouped(sample.operands, iter(arrays)), **sample.attributes))

    return function


def attributes_of(op: Op, sample: Sample) -> dict[str, Any]:
    """All of them: a sample may leave out those that have a default."""
    return op.defaults | sample.attributes


def evaluated(op: Op, sample: Sample) -> list[NumPyArray]:
    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in flat(op.evaluate(*sample.operands, **attributes_of(op, sample)))]


def graph_of(op: Op, sample: Sample) -> Computation:
    """The op recorded, with the sample's operands as parameters."""
    shapes = [Shape.of(x) for x in flat(sample.operands)]
    return trace(on_arrays(op, sample), shapes, "sample")[0]


def comparable(x: Any) -> NumPyArray:
    """The same values in a type that NumPy itself has, since its comparisons know no others."""
    x = np.asarray(x)
    kind = element_type(x.dtype)
    if kind.kind == "token":
        return np.zeros(x.shape)
    if kind.kind == "float" and kind.bits < 32:
        return x.astype(np.float32)
    return x.astype(np.int8) if kind.is_integer and kind.bits < 8 else x


def assert_equal(actual: Sequence[Any], expected: Sequence[Any], what: str) -> None:
    """Same shapes, same types, same values (any NaN is as good as another)."""
    assert len(actual) == len(expected), f"{what}: {len(actual)} results, expected {len(expected)}"
    for x, y in zip(actual, expected, strict=True):
        assert Shape.of(x) == Shape.of(y), f"{what}: {Shape.of(x)}, expected {Shape.of(y)}"
        np.testing.assert_array_equal(comparable(x), comparable(y), what)


RELATIVE = {"f64": 1e-13, "c128": 1e-13, "f32": 3e-6, "c64": 3e-6, "f16": 2e-3, "bf16": 2e-2}


def assert_close(actual: Sequence[Any], expected: Sequence[Any], what: str, scale: float = 1.0) -> None:
    """Same shapes and types, and values as near as the type allows, times `scale`."""
    assert len(actual) == len(expected), f"{what}: {len(actual)} results, expected {len(expected)}"
    for x, y in zip(actual, expected, strict=True):
        assert Shape.of(x) == Shape.of(y), f"{what}: {Shape.of(x)}, expected {Shape.of(y)}"
        bound = scale * RELATIVE.get(element_type(x.dtype).name, 0.0)
        np.testing.assert_allclose(comparable(x), comparable(y), bound, bound, err_msg=what)


# --- samples at 64 bits -----------------------------------------------------------------------------------------------


def lifted(value: Any) -> Any:
    """The same with the widest element types: arrays, types, shapes, constants, computations, and samples of them."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value).astype(lifted(element_type(value.dtype)).dtype)
    if isinstance(value, ElementType):
        return {"float": element_type("f64"), "complex": element_type("c128")}.get(value.kind, value)
    if isinstance(value, Shape):
        return Shape(lifted(value.element_type), value.dimensions)
    if isinstance(value, Literal):
        return Literal(lifted(value.value))
    if isinstance(value, Computation):
        return _lifted_computation(value)
    if isinstance(value, Sample):
        return Sample(lifted(value.operands), {name: lifted(x) for name, x in value.attributes.items()})
    if isinstance(value, tuple):
        parts = map(lifted, value)  # pyright: ignore[reportUnknownArgumentType]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _lifted_computation(computation: Computation) -> Computation:
    new: dict[Instruction, Instruction] = {}
    for x in computation.instructions:
        operands = [new[o] for o in x.operands]
        attributes = lifted(x.attributes)
        shape = x.op.shape(*(o.shape for o in operands), **attributes._asdict())
        new[x] = Instruction(x.op, operands, attributes, shape, x.source)
    parameters = [new[x] for x in computation.parameters]
    return Computation(computation.name, parameters, list(new.values()), new[computation.root])


def is_inexact(x: Any) -> bool:
    return element_type(x.dtype).is_inexact


def is_narrow(sample: Sample) -> bool:
    """Whether the sample has an operand of a type so coarse that it equals others or is an integer by chance."""
    return any(is_inexact(x) and element_type(x.dtype).bits < 32 for x in flat(sample.operands))


# --- the value --------------------------------------------------------------------------------------------------------


def check_shape(op: Op, sample: Sample) -> None:
    """The shape rule says what `evaluate` gives: for a dynamic dimension, as much as its bound or less."""
    attributes = attributes_of(op, sample)
    inferred = op.shape(*map(shape_of, sample.operands), **attributes)
    with np.errstate(all="ignore"):
        given = shape_of(op.evaluate(*sample.operands, **attributes))
    fits = inferred == given
    if isinstance(inferred, Shape) and isinstance(given, Shape) and inferred.dynamic:
        fits = inferred.element_type is given.element_type and inferred.admits(given.dimensions)
    assert fits, f"{op.name}: the shape rule gives {inferred}, evaluate {given}"


def check_eager(op: Op, sample: Sample) -> None:
    """Called on arrays, the op gives what `evaluate` gives, and leaves its operands alone."""
    operands = [np.array(x) for x in flat(sample.operands)]
    before = [x.copy() for x in operands]
    for x in operands:
        x.flags.writeable = False
    results = on_arrays(op, sample)(*map(wrap, operands))
    assert_equal([to_numpy(x) for x in results], evaluated(op, sample), f"{op.name}, called")
    assert_equal(operands, before, f"{op.name}: the operands after the call")


def check_graph(op: Op, sample: Sample) -> None:
    """Recorded, verified and interpreted, the op gives what `evaluate` gives."""
    computation = graph_of(op, sample)
    verify(Module("sample", computation))
    results = flat(calls.evaluate(computation, flat(sample.operands)))
    assert_equal(results, evaluated(op, sample), f"{op.name}, recorded")


def check_prints(op: Op, sample: Sample) -> None:
    """The graph has a text, in which the root, its shape and all parameters are to be found."""
    computation = graph_of(op, sample)
    text = print_module(Module("sample", computation))
    assert text.startswith("HloModule sample"), text
    assert "ROOT" in text, text
    for number in range(len(computation.parameters)):
        assert f"parameter({number})" in text, text


def check_against(oracle: Function, op: Op, sample: Sample, scale: float = 1.0) -> None:
    """The values are those of another implementation."""
    expected = [np.asarray(x) for x in oracle(*sample.operands, **sample.attributes)]
    assert_close(evaluated(op, sample), expected, f"{op.name} of {sample}", scale)


def check_compiled(jit: Callable[..., Any], op: Op, sample: Sample) -> None:
    """Compiled, the op gives what `evaluate` gives (nearly: the order of sums is free); it is traced once."""
    traced = 0

    def function(*arrays: Any) -> list[Any]:
        nonlocal traced
        traced += 1
        return on_arrays(op, sample)(*arrays)

    compiled = jit(function)
    operands = [wrap(np.asarray(x)) for x in flat(sample.operands)]
    for _ in range(2):
        results = [to_numpy(x) for x in compiled(*operands)]
        assert_close(results, evaluated(op, sample), f"{op.name} of {sample}, compiled", scale=4.0)
    assert traced == 1, f"{op.name}: traced {traced} times for the same shapes"


# --- derivatives ------------------------------------------------------------------------------------------------------

_STEP = 1e-5
_CLOSE = 1e-6


def derivative_kind(op: Op, sample: Sample) -> Any:
    return derivative_of(op, sample.operands, attributes_of(op, sample))


def _real_part_of_sum(x: NumPyArray, y: NumPyArray) -> float:
    with np.errstate(all="ignore"):
        return float(np.real(np.sum(x * y)))


def _direction(random: np.random.Generator, x: NumPyArray) -> NumPyArray:
    real = random.uniform(-1, 1, x.shape)
    whole = real + 1j * random.uniform(-1, 1, x.shape) if x.dtype.kind == "c" else real
    return np.asarray(whole).astype(x.dtype)


def _differences(function: Function, operands: Sequence[NumPyArray], directions: Sequence[NumPyArray]) -> list[Any]:
    """The derivative along a direction by central differences, of fourth order in the step."""

    def at(step: float) -> list[NumPyArray]:
        moved = [wrap(np.asarray(x + step * d)) for x, d in zip(operands, directions, strict=True)]
        return [to_numpy(y) for y in function(*moved)]

    points = [at(k * _STEP) for k in (-2, -1, 1, 2)]
    with np.errstate(all="ignore"):
        return [(a - 8 * b + 8 * c - d) / (12 * _STEP) for a, b, c, d in zip(*points, strict=True)]


def _active(op: Op, sample: Sample) -> tuple[Function, list[NumPyArray]]:
    """The op as a function of its finite inexact operands, to its inexact results."""
    wide = lifted(sample)
    arrays = flat(wide.operands)
    moving = [is_inexact(x) and bool(np.all(np.isfinite(x))) for x in arrays]
    whole = on_arrays(op, wide)

    def function(*given: Any) -> list[Any]:
        values = iter(given)
        inputs = [next(values) if m else wrap(x) for x, m in zip(arrays, moving, strict=True)]
        return [y for y in whole(*inputs) if is_inexact(y)]

    return function, [x for x, m in zip(arrays, moving, strict=True) if m]


def tangents_of(function: Function, directions: Sequence[Any]) -> Function:
    """The function that gives the derivative along fixed directions (zeros where there is none)."""

    def derivative(*operands: Any) -> list[Any]:
        values, tangents = jvp(function, operands, directions)
        return [wrap(np.zeros(y.shape, y.dtype)) if t is None else t for y, t in zip(values, tangents, strict=True)]

    return derivative


def assert_forward(
    function: Function, operands: Sequence[NumPyArray], random: np.random.Generator, what: str, alone: bool = True
) -> None:
    """`jvp` gives the derivatives that differences give, along all operands together and along each `alone`."""
    choices = [[True] * len(operands)]
    if alone and len(operands) > 1:
        choices += [[k == j for j in range(len(operands))] for k in range(len(operands))]
    for choice in choices:
        directions = [_direction(random, x) if c else np.zeros_like(x) for x, c in zip(operands, choice, strict=True)]
        tangents = [wrap(d) if c else None for d, c in zip(directions, choice, strict=True)]
        found = tangents_of(function, tangents)(*map(wrap, operands))
        expected = _differences(function, operands, directions)
        for t, e in zip(found, expected, strict=True):
            assert Shape.of(t) == Shape.of(e), f"{what}: a tangent {Shape.of(t)} for a result {Shape.of(e)}"
            finite = np.isfinite(e)
            np.testing.assert_allclose(to_numpy(t)[finite], e[finite], _CLOSE, _CLOSE, err_msg=f"{what}: jvp")


def assert_transposed(
    function: Function, operands: Sequence[NumPyArray], random: np.random.Generator, what: str
) -> None:
    """<u, J v> = <J' u, v>: `vjp` is the transpose of `jvp`, where derivatives are finite."""
    directions = [_direction(random, x) for x in operands]
    forward = [to_numpy(t) for t in tangents_of(function, list(map(wrap, directions)))(*map(wrap, operands))]
    seeds = [_direction(random, t) for t in forward]
    _, pullback = vjp(function, list(map(wrap, operands)))
    cotangents = pullback(list(map(wrap, seeds)))
    left = sum(_real_part_of_sum(u, t) for u, t in zip(seeds, forward, strict=True))
    right = 0.0
    for x, v, c in zip(operands, directions, cotangents, strict=True):
        if c is not None:
            assert Shape.of(c) == Shape.of(x), f"{what}: a cotangent {Shape.of(c)} for an operand {Shape.of(x)}"
            right += _real_part_of_sum(to_numpy(c), v)
    if np.isfinite(left):
        np.testing.assert_allclose(right, left, 1e-10, 1e-10, err_msg=f"{what}: <J'u, v> and <u, Jv>")


def check_forward(op: Op, sample: Sample, random: np.random.Generator) -> None:
    """Tangents against differences, to second order."""
    if isinstance(derivative_kind(op, sample), NotDifferentiable):
        return
    function, operands = _active(op, sample)
    if operands:
        assert_forward(function, operands, random, f"{op.name} of {sample}")
        directions = [wrap(_direction(random, x)) for x in operands]
        tangents = tangents_of(function, directions)
        assert_forward(tangents, operands, random, f"{op.name} of {sample}, second order", alone=False)


def cotangents_of(function: Function, seeds: Sequence[Any]) -> Function:
    """The function that pulls fixed cotangents back (zeros where there is none)."""

    def derivative(*operands: Any) -> list[Any]:
        found = vjp(function, operands)[1](seeds)
        return [wrap(np.zeros(x.shape, x.dtype)) if c is None else c for x, c in zip(operands, found, strict=True)]

    return derivative


def check_reverse(op: Op, sample: Sample, random: np.random.Generator) -> None:
    """Cotangents against tangents, to second order in all orders of the modes."""
    if isinstance(derivative_kind(op, sample), NotDifferentiable):
        return
    function, operands = _active(op, sample)
    if operands:
        assert_transposed(function, operands, random, f"{op.name} of {sample}")
        directions = [wrap(_direction(random, x)) for x in operands]
        assert_transposed(tangents_of(function, directions), operands, random, f"{op.name} of {sample}, second order")
        pulled = cotangents_of(
            function, [wrap(_direction(random, to_numpy(y))) for y in function(*map(wrap, operands))]
        )
        assert_forward(pulled, operands, random, f"{op.name} of {sample}, forward over reverse", alone=False)
        assert_transposed(pulled, operands, random, f"{op.name} of {sample}, reverse over reverse")


def check_derivative_types(op: Op, sample: Sample) -> None:
    """At the sample's own types: a tangent has the shape and type of its result, a cotangent those of its operand."""
    if isinstance(derivative_kind(op, sample), NotDifferentiable):
        return
    arrays = list(map(wrap, flat(sample.operands)))
    function = on_arrays(op, sample)
    ones = [wrap(np.ones(x.shape, x.dtype)) if is_inexact(x) else None for x in arrays]
    for y, t in zip(*jvp(function, arrays, ones), strict=True):
        assert t is None or Shape.of(t) == Shape.of(y), f"{op.name}: a tangent {Shape.of(t)} for a result {Shape.of(y)}"
        assert t is None or is_inexact(y), f"{op.name}: a tangent for a result {Shape.of(y)}"
    values, pullback = vjp(function, arrays)
    seeds = [wrap(np.ones(y.shape, y.dtype)) if is_inexact(y) else None for y in values]
    for x, c in zip(arrays, pullback(seeds), strict=True):
        assert c is None or Shape.of(c) == Shape.of(x), f"{op.name}: a cotangent {Shape.of(c)} for {Shape.of(x)}"


def error_of(run: Callable[[], Any]) -> str | None:
    """The message with which a derivative is refused, if it is."""
    try:
        run()
    except DifferentiationError as error:
        return str(error)
    return None


def check_no_derivative(op: Op, sample: Sample) -> None:
    """No tangent and no cotangent comes out of an op without derivative; one that has a reason gives it as an error."""
    arrays = list(map(wrap, flat(sample.operands)))
    function = on_arrays(op, sample)
    ones = [wrap(np.ones(x.shape, x.dtype)) if is_inexact(x) else None for x in arrays]
    kind = derivative_kind(op, sample)
    moving = any(t is not None for t in ones)
    if isinstance(kind, NotDifferentiable) and moving and not op.structural:
        for run in (lambda: jvp(function, arrays, ones), lambda: vjp(function, arrays)):
            message = error_of(run)
            assert message is not None, f"{op.name}: there is no derivative, but asking for one is no error"
            assert kind.reason in message, f"{op.name}: the error does not give the reason: {message}"
    if isinstance(kind, Zero):
        values, tangents = jvp(function, arrays, ones)
        assert all(t is None for t in tangents), f"{op.name}: the derivative is zero, but there is a tangent"
        values, pullback = vjp(function, arrays)
        seeds = [wrap(np.ones(y.shape, y.dtype)) if is_inexact(y) else None for y in values]
        assert all(c is None for c in pullback(seeds)), f"{op.name}: the derivative is zero, but there is a cotangent"


# --- batching ---------------------------------------------------------------------------------------------------------


def batch_axes(ranks: Iterable[int]) -> Iterator[tuple[int | None, ...]]:
    """Every subset of operands to map, each along every axis it can have."""
    choices: list[list[int | None]] = [[None, *range(rank + 1)] for rank in ranks]
    return (axes for axes in itertools.product(*choices) if any(axis is not None for axis in axes))


def lanes(function: Function, copies: Sequence[Sequence[NumPyArray]], mapped: Sequence[bool]) -> list[list[NumPyArray]]:
    """The results for each copy of what is mapped, with the first copy of the rest."""
    size = len(copies[0]) if copies else 0
    chosen = [[c[k] if m else c[0] for c, m in zip(copies, mapped, strict=True)] for k in range(size)]
    return [[to_numpy(y) for y in function(*map(wrap, arrays))] for arrays in chosen]


def assert_batched(
    function: Function,
    copies: Sequence[Sequence[NumPyArray]],
    axes: Sequence[int | None],
    expected: Sequence[Sequence[NumPyArray]],
    what: str,
) -> None:
    """`batch` gives the `expected` results of each of the copies."""
    size = len(expected)
    stacked = [c[0] if axis is None else np.stack(c, axis) for c, axis in zip(copies, axes, strict=True)]
    pairs = batch(function, size, list(map(wrap, stacked)), axes)
    for number, (value, axis) in enumerate(pairs):
        together = to_numpy(value)
        for k in range(size):
            one = together if axis is None else np.take(together, k, axis)
            assert_close([one], [expected[k][number]], f"{what}, mapped over {axes}, lane {k}", scale=4.0)


def check_batch(op: Op, sample: Sample, size: int = 2) -> None:
    """Mapped over every subset of operands and every axis, the op gives what a loop gives over copies whose elements
    are in another order each. Sizes of dynamic dimensions are the same for all lanes: there are no ragged arrays."""
    if op.name in IN_ORDER:
        return
    copies = [[np.roll(x, k) for k in range(size)] for x in map(np.asarray, flat(sample.operands))]
    function = on_arrays(op, sample)
    expected: dict[tuple[bool, ...], list[list[NumPyArray]]] = {}  # the axes make no difference to it
    for axes in batch_axes(c[0].ndim for c in copies):
        if op.name in ("set-dimension-size", "dynamic-reshape") and any(axis is not None for axis in axes[1:]):
            continue
        mapped = tuple(axis is not None for axis in axes)
        if mapped not in expected:
            expected[mapped] = lanes(function, copies, mapped)
        assert_batched(function, copies, axes, expected[mapped], f"{op.name} of {sample}")
