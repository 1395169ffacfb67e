"""Random programs for property tests: a list of op applications that can be run on any kind of value.

Values stay where comparisons make sense: integers are exact, floats are bounded and only smooth or exact functions are
applied to them, and nothing decides by a float's value, so that passes which round differently agree but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tinyxla.hlo import Computation, Literal
from tinyxla.ops import Op, elementwise, movement, ops, reduction
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import wrap
from tinyxla.tracing.core import trace

F64, S32, PRED = element_type("f64"), element_type("s32"), element_type("pred")
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Step(NamedTuple):
    """An op on earlier values, by number."""

    op: Op
    operands: tuple[int, ...]
    attributes: dict[str, Any]


class Program(NamedTuple):
    """Parameters, then steps; the results are the values with the numbers `outputs`."""

    parameters: tuple[Shape, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __call__(self, *operands: Any) -> list[Any]:
        values = list(operands)
        for step in self.steps:
            values.append(step.op(*(values[k] for k in step.operands), **step.attributes))
        return [values[k] for k in self.outputs]

    def computation(self) -> Computation:
        return trace(self, self.parameters, "random")[0]

    def operands(self, seed: int) -> list[np.ndarray[Any, Any]]:
        random = np.random.default_rng(seed)
        return [_operand(random, shape) for shape in self.parameters]

    def arrays(self, seed: int) -> list[Any]:
        return list(map(wrap, self.operands(seed)))


def _operand(random: np.random.Generator, shape: Shape) -> np.ndarray[Any, Any]:
    if shape.element_type is PRED:
        return np.asarray(random.random(shape.dimensions) < 0.5)
    if shape.element_type is S32:
        return np.asarray(random.integers(-5, 6, shape.dimensions), np.int32)
    return np.asarray(random.uniform(-2, 2, shape.dimensions))


# --- one step ---------------------------------------------------------------------------------------------------------

_UNARY = {F64: ["negate", "sine", "tanh", "abs", "logistic"], S32: ["negate", "abs", "sign", "not"], PRED: ["not"]}
_BINARY = {
    F64: ["add", "subtract", "multiply"],
    S32: ["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor"],
    PRED: ["and", "or", "xor"],
}


def _unary(draw: Draw, shapes: Sequence[Shape], x: int) -> Step:
    return Step(ops[draw(st.sampled_from(_UNARY[shapes[x].element_type]))], (x,), {})


def _binary(draw: Draw, shapes: Sequence[Shape], x: int) -> Step:
    return Step(ops[draw(st.sampled_from(_BINARY[shapes[x].element_type]))], (x, _like(draw, shapes, x)), {})


def _like(draw: Draw, shapes: Sequence[Shape], x: int) -> int:
    """A value of the same shape."""
    return draw(st.sampled_from([k for k, shape in enumerate(shapes) if shape == shapes[x]]))


def _compare(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    if shapes[x].element_type is not S32:
        return None
    direction = draw(st.sampled_from(["EQ", "NE", "LT", "GE"]))
    return Step(elementwise.compare, (x, _like(draw, shapes, x)), {"direction": direction, "type": "SIGNED"})


def _select(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    flags = [k for k, shape in enumerate(shapes) if shape == shapes[x].with_type(np.bool_)]
    return Step(elementwise.select, (draw(st.sampled_from(flags)), x, _like(draw, shapes, x)), {}) if flags else None


def _convert(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    target = {PRED: S32, S32: F64}.get(shapes[x].element_type)
    return Step(elementwise.convert, (x,), {"new_element_type": target}) if target else None


def _broadcast(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    sizes = list(shapes[x].dimensions)
    if len(sizes) > 2:
        return None
    at = draw(st.integers(0, len(sizes)))
    dimensions = tuple(d + (d >= at) for d in range(len(sizes)))
    sizes.insert(at, draw(st.integers(1, 4)))
    return Step(movement.broadcast, (x,), {"sizes": tuple(sizes), "dimensions": dimensions})


def _reshape(draw: Draw, shapes: Sequence[Shape], x: int) -> Step:
    size = shapes[x].size
    factor = draw(st.sampled_from([f for f in range(1, max(size, 1) + 1) if size % f == 0]))
    sizes = draw(st.sampled_from([(size,), (factor, size // factor), (1, size)]))
    return Step(movement.reshape, (x,), {"sizes": sizes})


def _transpose(draw: Draw, shapes: Sequence[Shape], x: int) -> Step:
    permutation = tuple(draw(st.permutations(range(shapes[x].rank))))
    return Step(movement.transpose, (x,), {"permutation": permutation})


def _reverse(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    return Step(movement.reverse, (x,), {"dimensions": _some_dimensions(draw, shapes[x])})


def _some_dimensions(draw: Draw, shape: Shape) -> tuple[int, ...]:
    chosen = [draw(st.booleans()) for _ in shape.dimensions]
    return tuple(d for d, c in enumerate(chosen) if c)


def _slice(draw: Draw, shapes: Sequence[Shape], x: int) -> Step:
    ranges = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shapes[x].dimensions]
    attributes = {
        "start_indices": tuple(start for start, _ in ranges),
        "limit_indices": tuple(limit for _, limit in ranges),
        "strides": tuple(draw(st.integers(1, 2)) for _ in ranges),
    }
    return Step(movement.slice_, (x,), attributes)


def _pad(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    scalars = [k for k, shape in enumerate(shapes) if shape == shapes[x].with_dimensions(())]
    if not scalars or not shapes[x].rank:
        return None
    config = tuple(
        (draw(st.integers(-min(n, 1), 2)), draw(st.integers(0, 2)), draw(st.integers(0, 1)))
        for n in shapes[x].dimensions
    )
    return Step(movement.pad, (x, draw(st.sampled_from(scalars))), {"padding_config": config})


def _concatenate(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    if not shapes[x].rank:
        return None
    dimension = draw(st.integers(0, shapes[x].rank - 1))
    return Step(movement.concatenate, (x, _like(draw, shapes, x)), {"dimension": dimension})


def _reduce(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    kind = shapes[x].element_type
    starts = [k for k, shape in enumerate(shapes) if shape == Shape(kind)]
    dimensions = _some_dimensions(draw, shapes[x])
    if kind is PRED or not starts or not dimensions:  # over no dimensions, XLA drops the initial value
        return None
    op = draw(st.sampled_from(["add", "maximum", "minimum"]))
    attributes = {"dimensions": dimensions, "to_apply": reduction.scalar_computation(op, kind.dtype)}
    return Step(reduction.reduce, (x, draw(st.sampled_from(starts))), attributes)


def _dot(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    shape = shapes[x]
    if shape.rank == 0 or shape.element_type is PRED or shape.size > 64:
        return None
    contracted = shape.rank - 1
    partners = [
        (k, d)
        for k, other in enumerate(shapes)
        if other.element_type is shape.element_type and other.rank <= 2
        for d, size in enumerate(other.dimensions)
        if size == shape.dimensions[contracted]
    ]
    if not partners:
        return None
    y, dimension = draw(st.sampled_from(partners))
    return Step(contraction.dot, (x, y), contraction.Dot((contracted,), (dimension,))._asdict())


def _iota(draw: Draw, shapes: Sequence[Shape], x: int) -> Step | None:
    if not shapes[x].rank or shapes[x].element_type is PRED:
        return None
    return Step(movement.iota, (), {"shape": shapes[x], "iota_dimension": draw(st.integers(0, shapes[x].rank - 1))})


def _constant(draw: Draw, shapes: Sequence[Shape], x: int) -> Step:
    value = np.asarray(draw(st.sampled_from([0, 1, -1, 2]))).astype(shapes[x].dtype)
    return Step(movement.constant, (), {"literal": Literal(value)})


_KINDS = [
    _unary,
    _binary,
    _binary,
    _compare,
    _select,
    _convert,
    _broadcast,
    _reshape,
    _transpose,
    _reverse,
    _slice,
    _pad,
    _concatenate,
    _reduce,
    _dot,
    _iota,
    _constant,
]

_SMALL = st.integers(1, 4)


@st.composite
def programs(
    draw: Draw, most_steps: int = 12, sizes_of: st.SearchStrategy[int] = _SMALL, largest: int = 300
) -> Program:
    """Programs of a few parameters and at most so many steps, with sizes of their dimensions, and values that have at
    most so many elements."""
    sizes = st.lists(sizes_of, max_size=3).map(tuple)
    first = draw(sizes)
    kinds = draw(st.lists(st.sampled_from([F64, S32, PRED]), min_size=1, max_size=3))
    parameters = [Shape(F64, first), *(Shape(kind, draw(st.sampled_from([first, ()]))) for kind in kinds)]
    shapes = list(parameters)
    steps: list[Step] = []
    for _ in range(draw(st.integers(most_steps // 2, most_steps))):
        step = draw(st.sampled_from(_KINDS))(draw, shapes, draw(st.integers(0, len(shapes) - 1)))
        if step is None:
            continue
        shape = step.op.shape(*(shapes[k] for k in step.operands), **step.attributes)
        if math.prod(shape.dimensions) <= largest:
            steps.append(step)
            shapes.append(shape)
    others = draw(st.lists(st.integers(0, len(shapes) - 1), max_size=2))
    return Program(tuple(parameters), tuple(steps), (len(shapes) - 1, *others))
