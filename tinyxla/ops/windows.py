"""Computations over windows that move over arrays: reduce-window, select-and-scatter.

Sources: sections "ReduceWindow" and "SelectAndScatter" of the XLA documents. Computations are associative. Places of a
window outside of the array, or in the holes of a dilated one, are left out, as XLA does: each result begins with the
initial value once, whatever the padding is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.hlo import Computation, Instruction, Literal
from tinyxla.ops import bits, calls, elementwise, indexing, movement, reduction, window_doubling
from tinyxla.ops.numerics import integers
from tinyxla.ops.op import (
    Array,
    Axes,
    ByOperands,
    Cotangent,
    Decomposition,
    Derivative,
    Factors,
    Ints,
    Linear,
    Op,
    Rules,
    Sample,
    Value,
    Zero,
    but_for,
    ops,
)
from tinyxla.shapes import AnyShape, Shape, TupleShape, element_type
from tinyxla.shapes.symbolic import exceeds_int32, is_symbolic, may_exceed
from tinyxla.shapes.window import Window, WindowDimension, dilated, window_text


class ReduceWindow(NamedTuple):
    window: Window
    to_apply: Computation


class SelectAndScatter(NamedTuple):
    window: Window
    select: Computation  # whether of two elements of a window the first is selected
    scatter: Computation  # of an element so far and what comes to it


# --- shapes -----------------------------------------------------------------------------------------------------------


def _check_window(name: str, window: Window, x: Shape) -> None:
    if len(window) != x.rank:
        raise ShapeError(f"{name}: window must have one entry for each dimension of {x}, but has {len(window)}.")
    for d, w in enumerate(window):
        for field in ("size", "stride", "window_dilation", "base_dilation"):
            if getattr(w, field) < 1:
                raise AttributeValueError(
                    f"{name}: window must have a positive {field} in dimension {d}, but got {getattr(w, field)}."
                )
        if w.window_reversal:
            raise AttributeValueError(f"{name}: window must not have window_reversal, but dimension {d} has it.")


@cache
def is_narrow(dtype: Any) -> bool:
    """Whether a sum of many elements needs a wider type than theirs."""
    kind = element_type(dtype)
    return kind.kind == "float" and kind.bits < 32


def _reduce_window_shape(*operands: AnyShape, window: Window, to_apply: Computation) -> AnyShape:
    arrays = reduction.check_folded("reduce-window", operands, to_apply)
    _check_window("reduce-window", window, arrays[0])
    results = tuple(x.with_dimensions(window_doubling.positions(window, x.dimensions)) for x in arrays)
    return TupleShape(results) if isinstance(to_apply.root.shape, TupleShape) else results[0]


def _select_and_scatter_shape(
    x: AnyShape, source: AnyShape, initial: AnyShape, *, window: Window, select: Computation, scatter: Computation
) -> Shape:
    name = "select-and-scatter"
    operand, given, start = (movement.array_operand(name, s) for s in (x, source, initial))
    _check_window(name, window, operand)
    if any((w.window_dilation, w.base_dilation) != (1, 1) for w in window):
        raise AttributeValueError(f"{name}: window must not be dilated, but got {window_text(window)}.")
    wanted = operand.with_dimensions(window_doubling.positions(window, operand.dimensions))
    if given.element_type is not operand.element_type:
        raise DTypeError(f"{name}: source must have the element type of {operand}, but got {given}; convert it.")
    if given.dimensions != wanted.dimensions:
        raise ShapeError(f"{name}: source must be {wanted}, one element for each window, but got {given}.")
    scalar = Shape(operand.element_type)
    if start != scalar:
        raise ShapeError(f"{name}: the initial value must be a scalar {scalar}, but got {start}.")
    reduction.check_computation(f"{name}: select", select, [scalar, scalar], [Shape(element_type("pred"))])
    reduction.check_computation(f"{name}: scatter", scatter, [scalar, scalar], [scalar])
    return operand


# --- cumulative windows -----------------------------------------------------------------------------------------------


def cumulative(x: Value, axis: int, to_apply: Computation, start: Value, reverse: bool = False) -> Value:
    """The fold of all elements up to each along an axis, or of all from it on."""
    edge = x.shape[axis] - 1
    if not is_symbolic(edge) and edge < 1:
        return x
    w = WindowDimension(edge + 1, padding_low=0 if reverse else edge, padding_high=edge if reverse else 0)
    window = tuple(w if d == axis else window_doubling.STILL for d in range(x.ndim))
    return reduce_window(x, start, window=window, to_apply=to_apply)


def cumulative_monoid(x: Value, axis: int, op: str, reverse: bool = False) -> Value:
    """The same with a monoid, by the name of its op."""
    start = np.asarray(reduction.identity_element(op, x.dtype)).astype(x.dtype)
    to_apply = reduction.scalar_computation(op, x.dtype)
    return cumulative(x, axis, to_apply, movement.constant(literal=Literal(start)), reverse)


# --- linear recurrences -----------------------------------------------------------------------------------------------
#
# What is cumulative, y[k] = f(y[k-1], x[k]), has the tangents dy[k] = a[k] dy[k-1] + b[k] dx[k] with a and b the
# derivatives of f: a linear recurrence; the cotangents are one in the other direction. That is cumulative, too, with
# affine maps that are composed: so second derivatives are found in the same way.


@cache
def affine_composition(dtype: Any) -> Computation:
    """The composition of two maps y -> a y + u and y -> c y + v, the first one first. As in all derivatives, zeros stay
    zero beside factors that are not finite."""

    def body(emit: Emit, a: Instruction, u: Instruction, c: Instruction, v: Instruction) -> Instruction:
        product = emit(elementwise.chain_mul, a, c, either=True)
        moved = emit(elementwise.add, emit(elementwise.chain_mul, u, c), v)
        return emit(calls.tuple_, product, moved)

    return _computation("affine", [Shape(element_type(dtype))] * 4, body)


class _Line(NamedTuple):
    """The dimension along which windows are beginnings, or ends (`backward`). What the methods take and give begins
    where the windows begin."""

    d: int
    backward: bool

    def turned(self, x: Value) -> Value:
        return movement.reverse(x, dimensions=(self.d,)) if self.backward else x

    def first(self, x: Value) -> Value:
        return movement.slice_axis(x, self.d, 0, 1)

    def before(self, y: Value, start: Value) -> Value:
        """The element before each: `start` before the first."""
        edges = tuple((1, -1, 0) if k == self.d else (0, 0, 0) for k in range(y.ndim))
        return movement.pad(y, start, padding_config=edges)

    def at_first(self, x: Value) -> Value:
        """The first elements, and zero elsewhere."""
        edges = tuple((0, x.shape[k] - 1, 0) if k == self.d else (0, 0, 0) for k in range(x.ndim))
        return movement.pad(self.first(x), movement.full(0, x.dtype), padding_config=edges)

    def recurrence(self, a: Value, u: Value) -> Value:
        """y[k] = a[k] y[k-1] + u[k], from 0."""
        if not may_exceed(a.shape[self.d], 1):
            return u
        w = WindowDimension(a.shape[self.d], padding_low=a.shape[self.d] - 1)
        window = tuple(w if k == self.d else window_doubling.STILL for k in range(a.ndim))
        starts = movement.full(1, a.dtype), movement.full(0, a.dtype)
        return reduce_window(a, u, *starts, window=window, to_apply=affine_composition(a.dtype))[1]

    def transposed(self, a: Value, g: Value) -> Value:
        """l[k] = g[k] + a[k+1] l[k+1]: the cotangents of u."""
        a, g = (movement.reverse(x, dimensions=(self.d,)) for x in (a, g))
        found = self.recurrence(self.before(a, movement.full(0, a.dtype)), g)
        return movement.reverse(found, dimensions=(self.d,))

    def tangent(self, a: Value, u: Value | None, start: Cotangent) -> Value:
        """The recurrence from a tangent of what comes before the first."""
        if start is not None:
            whole = self.at_first(elementwise.chain_mul(movement.broadcast(start, sizes=a.shape, dimensions=()), a))
            u = whole if u is None else elementwise.add(u, whole)
        assert u is not None
        return self.recurrence(a, u)

    def to_start(self, a: Value, cotangent: Value) -> Value:
        return reduction.reduce_sum(self.first(elementwise.chain_mul(cotangent, a)), tuple(range(a.ndim)))


def _cumulative_line(x: Value, window: Window) -> _Line | None:
    moving = [d for d, w in enumerate(window) if w != window_doubling.STILL]
    if len(moving) != 1 or not may_exceed(x.size, 0):
        return None
    direction = window_doubling.cumulative_direction(window[moving[0]], x.shape[moving[0]])
    return _Line(moving[0], direction == "backward") if direction else None


def _steps(ans: Value, x: Value, initial: Value, window: Window, to_apply: Computation) -> tuple[_Line, Value, Value]:
    """The line, and the derivatives of each step by the result before it and by the element."""
    line = _cumulative_line(x, window)
    assert line is not None
    one = movement.full(1, x.dtype, x.shape)
    given = [line.before(line.turned(ans), initial), line.turned(x)]
    _, a, b = reduction.combine_values(calls.gradient(to_apply), given, [one])
    return line, a, b


def _cumulative_jvp(
    tangents: tuple[Cotangent, ...], ans: Value, x: Value, initial: Value, *, window: Window, to_apply: Computation
) -> Value:
    line, a, b = _steps(ans, x, initial, window, to_apply)
    moved = None if tangents[0] is None else elementwise.chain_mul(line.turned(tangents[0]), b)
    return line.turned(line.tangent(a, moved, tangents[1]))


def _cumulative_vjp(
    g: Value, ans: Value, x: Value, initial: Value, *, window: Window, to_apply: Computation
) -> tuple[Value, Value]:
    line, a, b = _steps(ans, x, initial, window, to_apply)
    cotangent = line.transposed(a, line.turned(g))
    return line.turned(elementwise.chain_mul(cotangent, b)), line.to_start(a, cotangent)


def _recurrence_jvp(
    tangents: tuple[Cotangent, ...],
    ans: tuple[Value, Value],
    a: Value,
    u: Value,
    *initial: Value,
    window: Window,
    to_apply: Computation,
) -> tuple[Value | None, Value | None]:
    """Both results, the products and the sums, are recurrences by a."""
    line = _cumulative_line(a, window)
    assert line is not None
    da, du, *starts = tangents

    def tangent(y: Value, moved: Cotangent, y0: Value, start: Cotangent) -> Value | None:
        if da is not None:
            by_factor = elementwise.chain_mul(da, line.before(y, y0))
            moved = by_factor if moved is None else elementwise.add(by_factor, moved)
        return None if moved is None and start is None else line.tangent(a, moved, start)

    return tangent(ans[0], None, initial[0], starts[0]), tangent(ans[1], du, initial[1], starts[1])


def _recurrence_vjp(
    g: tuple[Value, Value],
    ans: tuple[Value, Value],
    a: Value,
    u: Value,
    *initial: Value,
    window: Window,
    to_apply: Computation,
) -> tuple[Value, ...]:
    line = _cumulative_line(a, window)
    assert line is not None
    cotangents = [line.transposed(a, x) for x in g]
    by_factor = [
        elementwise.chain_mul(c, line.before(y, y0)) for y, y0, c in zip(ans, initial, cotangents, strict=True)
    ]
    return elementwise.add(*by_factor), cotangents[1], *(line.to_start(a, c) for c in cotangents)


# --- reduce-window ----------------------------------------------------------------------------------------------------


def accumulates_in_single(dtype: Any, to_apply: Computation) -> bool:
    """Whether windows are folded in f32: sums and products of narrower floats, which are rounded once, at the end."""
    return is_narrow(dtype) and reduction.monoid(to_apply) in ("add", "multiply")


def in_single(x: Value, initial: Value, *, window: Window, to_apply: Computation) -> Value:
    """The windows folded in f32."""
    op = reduction.monoid(to_apply)
    assert op is not None
    single, kind = element_type(np.float32), element_type(x.dtype)
    wide = [elementwise.convert(v, new_element_type=single) for v in (x, initial)]
    found = reduce_window(*wide, window=window, to_apply=reduction.scalar_computation(op, np.float32))
    return elementwise.convert(found, new_element_type=kind)


def _reduce_window_evaluate(*operands: Array, window: Window, to_apply: Computation) -> Any:
    if accumulates_in_single(operands[0].dtype, to_apply):
        op, dtype = reduction.monoid(to_apply), operands[0].dtype
        assert op is not None
        wide = [integers.convert(x, np.dtype(np.float32)) for x in operands]
        single = reduction.scalar_computation(op, np.float32)
        with np.errstate(all="ignore"):
            return integers.convert(_reduce_window_evaluate(*wide, window=window, to_apply=single), dtype)
    moving = [d for d, w in enumerate(window) if w != window_doubling.STILL]
    x = operands[0]
    ufunc = reduction.ufunc_of(to_apply, x.dtype)
    if len(moving) == 1 and ufunc:
        (d,) = moving
        direction = window_doubling.cumulative_direction(window[d], x.shape[d])
        if direction:
            with np.errstate(all="ignore"):
                ordered = x if direction == "forward" else np.flip(x, d)
                found = ufunc(operands[1], ufunc.accumulate(ordered, d, x.dtype))
                return found if direction == "forward" else np.flip(found, d)
    with np.errstate(all="ignore"):
        return window_doubling.fold(window_doubling.ON_ARRAYS, *operands, window=window, to_apply=to_apply)


def transposed(w: WindowDimension, size: int, count: int) -> WindowDimension:
    """The window that has, for each of `size` elements, those of `count` windows that the element is in. These are as
    far apart as the windows were."""
    extent = dilated(w.size, w.window_dilation)
    low = extent - 1 - w.padding_low
    high = (size - 1) * w.base_dilation + extent - low - dilated(count, w.stride)
    return WindowDimension(w.size, w.base_dilation, low, high, w.window_dilation, w.stride)


def _sum_transpose(
    g: Value, x: Value, initial: Value, *, window: Window, to_apply: Computation
) -> tuple[Cotangent, Value]:
    """Each element adds up the cotangents of the windows that it is in."""
    whole = reduction.reduce_sum(g, tuple(range(g.ndim)))
    if not g.size or not x.size:
        return movement.full(0, x.dtype, x.shape), whole
    back = tuple(transposed(w, n, m) for w, n, m in zip(window, x.shape, g.shape, strict=True))
    zero = movement.full(0, g.dtype)
    return reduce_window(g, zero, window=back, to_apply=to_apply), whole


def _from_initial(ans: Value, initial: Value, to_apply: Computation) -> Value:
    """Where the initial value is the extremum. The identity never is one: elements that are equal to it come first."""
    identity = window_doubling.neutral(ans.dtype, to_apply)
    found = elementwise.eq(ans, movement.broadcast(initial, sizes=ans.shape, dimensions=()))
    if identity is None:
        return found
    counts = elementwise.ne(initial, movement.constant(literal=Literal(identity)))
    return elementwise.and_(found, movement.broadcast(counts, sizes=ans.shape, dimensions=()))


def _extremum_jvp(
    tangents: tuple[Cotangent, ...], ans: Value, x: Value, initial: Value, *, window: Window, to_apply: Computation
) -> Value:
    """Of equal elements the first counts; the initial value comes before all."""
    zero = movement.full(0, ans.dtype, ans.shape)
    moved, start = zero, zero
    if tangents[0] is not None and x.size:
        index = _selected(window_doubling.ON_VALUES, x, window, _first_extremum(to_apply))
        is_empty = elementwise.lt(index, elementwise.zeros_like(index))
        moved = elementwise.select(is_empty, zero, _read(tangents[0], index))
    if tangents[1] is not None:
        start = movement.broadcast(tangents[1], sizes=ans.shape, dimensions=())
    return elementwise.select(_from_initial(ans, initial, to_apply), start, moved)


def _extremum_vjp(
    g: Value, ans: Value, x: Value, initial: Value, *, window: Window, to_apply: Computation
) -> tuple[Value, Value]:
    from_initial = _from_initial(ans, initial, to_apply)
    zero = movement.full(0, g.dtype, g.shape)
    to_initial = reduction.reduce_sum(elementwise.select(from_initial, g, zero), tuple(range(g.ndim)))
    rest = elementwise.select(from_initial, zero, g)
    select, scatter = _first_extremum(to_apply), reduction.scalar_computation("add", g.dtype)
    start = movement.full(0, g.dtype)
    if all((w.window_dilation, w.base_dilation) == (1, 1) for w in window):
        return select_and_scatter(x, rest, start, window=window, select=select, scatter=scatter), to_initial
    return by_index(x, rest, start, window=window, select=select, scatter=scatter), to_initial


def _extremum_in_steps(x: Value, initial: Value, *, window: Window, to_apply: Computation) -> Value:
    """A cumulative extremum. Elements that are equal to the initial value come first: it may be the identity, which
    stands for no element."""
    line = _cumulative_line(x, window)
    assert line is not None
    direction = "backward" if line.backward else "forward"
    (found,) = window_doubling.prefixes(window_doubling.ON_VALUES, [x], line.d, direction, to_apply)
    start = movement.broadcast(initial, sizes=x.shape, dimensions=())
    beyond = elementwise.ne(ops[to_apply.root.op.name](start, found), found)
    return elementwise.select(elementwise.and_(beyond, elementwise.eq(found, found)), start, found)


def _derivative(*operands: Value, window: Window, to_apply: Computation) -> Derivative:
    """Where equal elements meet, a cumulative extremum has the derivatives of the extrema of pairs that it is made of:
    so these depend on which pairs there are, and it is taken apart."""
    op = reduction.monoid(to_apply)
    if op == "add":
        return Linear(_sum_transpose)
    dtypes = [x.array_shape.element_type for x in to_apply.outputs]
    if not any(t.is_inexact for t in dtypes):
        return Zero()
    line = _cumulative_line(operands[0], window)
    if op in ("maximum", "minimum"):
        return Decomposition(_extremum_in_steps) if line else Rules(_extremum_jvp, _extremum_vjp)
    if line and op == "multiply":
        return Rules(_cumulative_jvp, _cumulative_vjp)
    if line and not line.backward and op is None:
        if len(operands) == 2 and dtypes[0].kind == "float":
            return Rules(_cumulative_jvp, _cumulative_vjp)
        if len(operands) == 4 and dtypes[1].is_inexact and to_apply == affine_composition(dtypes[1].dtype):
            return Rules(_recurrence_jvp, _recurrence_vjp)
    return Decomposition(window_doubling.in_steps)


def _reduce_window_batch(
    size: int, operands: tuple[Value, ...], axes: Axes, *, window: Window, to_apply: Computation
) -> tuple[Any, Any]:
    arrays, initial = reduction.halves(operands)
    array_axes, initial_axes = reduction.halves(axes)
    arrays = movement.in_front(arrays, array_axes, size)
    wider = (window_doubling.STILL, *window)
    if all(a is None for a in initial_axes):
        result = reduce_window(*arrays, *initial, window=wider, to_apply=to_apply)
    else:
        initial = movement.in_front(initial, initial_axes, size)
        result = window_doubling.in_steps(*arrays, *initial, window=wider, to_apply=to_apply)
    return result, (0,) * len(arrays) if isinstance(result, tuple) else 0


_WINDOWS: tuple[tuple[Ints, Window], ...] = (
    ((), ()),
    ((5,), (WindowDimension(2),)),
    ((5,), (WindowDimension(3, 2, 1, 1),)),
    ((4,), (WindowDimension(4, padding_low=3),)),
    ((3,), (WindowDimension(3, padding_high=2),)),
    ((4,), (WindowDimension(2, padding_low=1),)),
    ((2, 3), (WindowDimension(1), WindowDimension(3, padding_low=2))),
    ((3, 2), (WindowDimension(2, 4, 2, 1, 3, 2), WindowDimension(1))),
    ((4, 3), (WindowDimension(2, 2), WindowDimension(2, 1, 1, 0))),
    ((5,), (WindowDimension(2, 1, -1, -2),)),
    ((3,), (WindowDimension(2, 1, 3, 0),)),
    ((1, 3), (WindowDimension(2), WindowDimension(1))),
    ((0,), (WindowDimension(2, 1, 2, 1),)),
)


def _reduce_window_samples(random: np.random.Generator) -> Iterator[Sample]:
    def sample(shape: Ints, window: Window, op: str, dtype: Any, start: Any) -> Sample:
        x = movement.sample_values(shape, dtype) if op in ("maximum", "minimum") else None
        x = elementwise.sample_array(random, dtype, shape, 1, 3) if x is None else x
        initial = np.asarray(start).astype(dtype)
        return Sample((x, initial), {"window": window, "to_apply": reduction.scalar_computation(op, dtype)})

    for shape, window in _WINDOWS:
        for op in ("add", "multiply", "maximum"):
            yield sample(shape, window, op, np.float32, reduction.identity_element(op, np.float32))
    for op, dtype, start in (
        ("minimum", np.int32, 2),
        ("minimum", np.float64, 0.25),
        ("maximum", element_type("bf16").dtype, -np.inf),
        ("add", np.complex64, 1),
        ("add", np.uint8, 250),
        ("and", np.int16, -1),
        ("or", np.bool_, False),
        ("xor", np.uint32, 0),
        ("add", np.float16, 1),
    ):
        for shape, window in (_WINDOWS[2], _WINDOWS[3], _WINDOWS[6]):
            yield sample(shape, window, op, dtype, start)
    for shape, window in (_WINDOWS[2], _WINDOWS[5], _WINDOWS[6]):
        x, index = movement.sample_values(shape), np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        start = (np.float32(-np.inf).reshape(()), np.int32(-1).reshape(()))
        by_size = reduction.argument_computation("GT", np.float32, np.int32)
        yield Sample((x, index, *start), {"window": window, "to_apply": by_size})
    for shape, window in (_WINDOWS[3], _WINDOWS[4], _WINDOWS[6]):
        yield sample(shape, window, "multiply", np.complex64, 2)
        (x, start), attributes = sample(shape, window, "multiply", np.float32, 0.5)
        yield Sample((x, start), attributes | {"to_apply": _probability_of_either(x.dtype)})
        yield Sample((x, 2 - x, start, start), attributes | {"to_apply": affine_composition(x.dtype)})


@cache
def _probability_of_either(dtype: Any) -> Computation:
    """x + y - x y: a computation that is not one op."""

    def body(emit: Emit, x: Instruction, y: Instruction) -> Instruction:
        return emit(elementwise.sub, emit(elementwise.add, x, y), emit(elementwise.mul, x, y))

    return _computation("either", [Shape(element_type(dtype))] * 2, body)


def _reduce_window_factors(*operands: Shape, window: Window, to_apply: Computation) -> Factors:
    """Windows along a dimension that is split reach into other parts; where they are folded by one associative op, the
    identity can stand outside of the array."""
    count = len(operands) // 2
    still = [d for d, w in enumerate(window) if w == window_doubling.STILL]
    moving = frozenset(range(len(window))).difference(still)
    plain = but_for((), len(window), count, count)
    made = plain._replace(operands=(*plain.operands, *((),) * count), communicating=moving)
    return made if reduction.monoid(to_apply) else made.without(moving)


reduce_window = Op(
    "reduce-window",
    sharding=_reduce_window_factors,
    attributes=ReduceWindow,
    shape=_reduce_window_shape,
    evaluate=_reduce_window_evaluate,
    derivative=ByOperands(_derivative),
    batch=_reduce_window_batch,
    samples=_reduce_window_samples,
)

# --- select-and-scatter -----------------------------------------------------------------------------------------------

Emit = Callable[..., Instruction]


def _computation(name: str, shapes: Sequence[Shape], body: Callable[..., Instruction]) -> Computation:
    """`body(emit, *parameters)` gives the root, where `emit(op, *operands, **attributes)` adds an instruction."""
    parameters = [Instruction(movement.parameter, (), movement.Parameter(k, s), s) for k, s in enumerate(shapes)]
    instructions = list(parameters)

    def emit(op: Op, *operands: Instruction, **attributes: Any) -> Instruction:
        shape = op.shape(*(x.shape for x in operands), **attributes)
        instructions.append(Instruction(op, operands, op.attributes(**attributes), shape))
        return instructions[-1]

    root = body(emit, *parameters)
    return Computation(name, parameters, instructions, root)


@cache
def comparison(direction: str, dtype: Any) -> Computation:
    """A comparison of two scalars: what select-and-scatter selects by."""
    kind = elementwise.comparison_type(dtype)
    scalar = Shape(element_type(dtype))
    return _computation(
        "compare", [scalar] * 2, lambda emit, x, y: emit(elementwise.compare, x, y, direction=direction, type=kind)
    )


def _first_extremum(to_apply: Computation) -> Computation:
    direction = "GE" if reduction.monoid(to_apply) == "maximum" else "LE"
    return comparison(direction, to_apply.root.array_shape.dtype)


@cache
def _selection(select: Computation, index: Any) -> Computation:
    """The computation on (element, index) pairs that keeps the selected one; a negative index means no element."""
    value, number = Shape(element_type(select.parameter_shapes[0].dtype)), Shape(element_type(index))  # type: ignore[union-attr]

    def body(emit: Emit, x: Instruction, i: Instruction, y: Instruction, j: Instruction) -> Instruction:
        made = {select.parameters[0]: x, select.parameters[1]: y}
        for z in select.instructions:
            if z not in made:
                made[z] = emit(z.op, *(made[o] for o in z.operands), **z.attributes._asdict())
        zero = emit(movement.constant, literal=Literal(np.zeros((), index)))

        def compare(k: Instruction, direction: str) -> Instruction:
            return emit(elementwise.compare, k, zero, direction=direction, type="SIGNED")

        either = emit(elementwise.or_, compare(j, "LT"), made[select.root])
        keep = emit(elementwise.and_, compare(i, "GE"), either)
        return emit(calls.tuple_, emit(elementwise.select, keep, x, y), emit(elementwise.select, keep, i, j))

    return _computation("selection", [value, number, value, number], body)


def _selected(how: window_doubling.Calls, x: Any, window: Window, select: Computation) -> Any:
    """For each window, which element of x is selected, as an index into all of x; negative if the window has none."""
    dtype = np.dtype(np.int64 if exceeds_int32(x.size) else np.int32)
    kind = element_type(x.dtype)
    if kind.kind == "float":  # there and back through integers: of what is selected no derivative is taken
        whole = how.op(bits.bitcast_convert, x, new_element_type=element_type(f"u{kind.bits}"))
        x = how.op(bits.bitcast_convert, whole, new_element_type=kind)
    number = how.op(movement.iota, shape=Shape(element_type(dtype), (x.size,)), iota_dimension=0)
    number = how.op(movement.reshape, number, sizes=x.shape)
    starts = how.constant(np.zeros((), x.dtype)), how.constant(np.full((), -1, dtype))
    return how.op(reduce_window, x, number, *starts, window=window, to_apply=_selection(select, dtype))[1]


def _flat(index: Value) -> dict[str, Any]:
    """The dimension numbers of a gather from a vector by an array of indices."""
    return indexing.Gather((), (0,), (0,), index.ndim, (1,))._asdict()


def _read(x: Value, index: Value) -> Value:
    return indexing.gather(movement.reshape_to(x, (x.size,)), index, **_flat(index))


def _select_and_scatter(
    how: window_doubling.Calls,
    x: Any,
    source: Any,
    initial: Any,
    *,
    window: Window,
    select: Computation,
    scatter: Computation,
) -> Any:
    """The initial value may have a leading dimension."""
    result = how.op(movement.broadcast, initial, sizes=x.shape, dimensions=tuple(range(initial.ndim)))
    if not x.size or not source.size:
        return result
    index = _selected(how, x, window, select)
    places = indexing.Scatter((), (0,), (0,), index.ndim, scatter)
    result = how.op(movement.reshape, result, sizes=(x.size,))
    result = how.op(indexing.scatter, result, index, source, **places._asdict())
    return how.op(movement.reshape, result, sizes=x.shape)


by_index = partial(
    _select_and_scatter, window_doubling.ON_VALUES
)  # as a reduce-window that gives indices, and a scatter


def _select_and_scatter_batch(
    size: int, operands: tuple[Value, ...], axes: Axes, *, window: Window, select: Computation, scatter: Computation
) -> tuple[Value, int]:
    x, source = movement.in_front(operands[:2], axes[:2], size)
    apply = select_and_scatter if axes[2] is None else by_index
    return apply(x, source, operands[2], window=(window_doubling.STILL, *window), select=select, scatter=scatter), 0


def _select_and_scatter_samples(random: np.random.Generator) -> Iterator[Sample]:
    for dtype, direction, op, start in (
        (np.float32, "GE", "add", 0),
        (np.float64, "LE", "multiply", 1.5),
        (np.int32, "GT", "add", 3),
        (np.float32, "LT", "maximum", 0.25),
        (element_type("bf16").dtype, "GE", "add", 0),
        (np.bool_, "GE", "or", False),
    ):
        for shape, window in _WINDOWS:
            if any((w.window_dilation, w.base_dilation) != (1, 1) for w in window):
                continue
            sizes = window_doubling.positions(window, shape)
            yield Sample(
                (
                    movement.sample_values(shape, dtype),
                    elementwise.sample_array(random, dtype, sizes, 1, 3),
                    np.asarray(start).astype(dtype),
                ),
                {
                    "window": window,
                    "select": comparison(direction, dtype),
                    "scatter": reduction.scalar_computation(op, dtype),
                },
            )


def _select_and_scatter_factors(x: Shape, source: Shape, initial: Shape, *, window: Window, **others: Any) -> Factors:
    """Dimensions along which windows lie side by side."""
    beside = [WindowDimension(w.size, w.size) for w in window]
    places = zip(window, beside, x.dimensions, strict=True)
    apart = [d for d, (w, tiling, n) in enumerate(places) if w != tiling or n % w.size]
    plain = but_for(apart, x.rank, 2)
    return plain._replace(operands=(*plain.operands, ()))


select_and_scatter = Op(
    "select-and-scatter",
    sharding=_select_and_scatter_factors,
    attributes=SelectAndScatter,
    shape=_select_and_scatter_shape,
    evaluate=partial(_select_and_scatter, window_doubling.ON_ARRAYS),
    derivative=Decomposition(by_index),
    batch=_select_and_scatter_batch,
    samples=_select_and_scatter_samples,
)
