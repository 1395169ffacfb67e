"""The identities of simplification: for each one graphs where it applies, and graphs that it must leave alone.

A case says which operations are left. The value is checked too, at places where careless identities go wrong: signed
zeros, infinities, NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tinyxla.compiler import pipeline
from tinyxla.compiler.passes import algebraic_simplifier
from tinyxla.compiler.rewriter import Rewriter
from tinyxla.hlo import Computation, Instruction, Literal, Module, verify
from tinyxla.ops import Op, bits, calls, dynamic_slices, elementwise, indexing, movement, reduction, windows
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape, TupleShape, WindowDimension, element_type

Array = np.ndarray[Any, Any]
Make = Callable[..., Any]

F32, S32, PRED, C64 = (element_type(name) for name in ("f32", "s32", "pred", "c64"))
EXACT = [np.array([[0, 1, np.inf], [np.nan, -2, 3]], np.float32), np.array([0.5, -4], np.float32)]  # exact quotients
RECIPROCALS = ["broadcast", "divide", "broadcast"]
EXPONENTIALS = ["reduce", "broadcast", "subtract", "exponential", "reduce"]
MASKED = [*EXPONENTIALS[:-1], "broadcast", "compare", "broadcast", "select", "reduce"]
CHAINED = ["broadcast", "chain-divide"]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)


class Graph:
    """Emits instructions for a case."""

    def __init__(self, operands: Sequence[Array]) -> None:
        self.rewriter = Rewriter()
        self.parameters = [
            self(movement.parameter, parameter_number=k, shape=Shape.of(x)) for k, x in enumerate(operands)
        ]

    def __call__(self, op: Op, *operands: Instruction, **attributes: Any) -> Instruction:
        return self.rewriter.emit(op, *operands, **attributes)

    def constant(self, value: Any, dtype: Any = np.float32) -> Instruction:
        return self(movement.constant, literal=Literal(np.asarray(value, dtype)))

    def full(self, value: Any, like: Instruction) -> Instruction:
        shape = like.array_shape
        return self(movement.broadcast, self.constant(value, shape.dtype), sizes=shape.dimensions, dimensions=())

    def reduce(self, op: str, x: Instruction, start: float, dimensions: tuple[int, ...]) -> Instruction:
        body = reduction.scalar_computation(op, x.array_shape.dtype)
        first = self.constant(start, x.array_shape.dtype)
        return self(reduction.reduce, x, first, dimensions=dimensions, to_apply=body)


def left(make: Make, operands: Sequence[Array]) -> list[str]:
    """The operations that simplification leaves, in order, without parameters and constants. It keeps the value."""
    graph = Graph(operands)
    root = make(graph, *graph.parameters)
    rewriter = graph.rewriter
    before = Computation("case", graph.parameters, rewriter.instructions, root)
    after = pipeline.simplify(before)
    verify(Module("case", after))
    expected, found = (calls.evaluate(c, operands) for c in (before, after))
    parts = zip(found, expected, strict=True) if isinstance(root.shape, TupleShape) else [(found, expected)]
    for x, y in parts:
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        if np.asarray(y).dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(x) & ~np.isnan(x), np.signbit(y) & ~np.isnan(y))
    return [x.op.name for x in after.instructions if x.op not in (movement.parameter, movement.constant)]


def _values(*sizes: int, dtype: Any = np.float32) -> Array:
    return movement.sample_values(sizes, dtype)


def _over_rows(op: Op) -> Make:
    def make(g: Graph, x: Instruction, y: Instruction) -> Instruction:
        return g(op, x, g(movement.broadcast, y, sizes=x.array_shape.dimensions, dimensions=(0,)))

    return make


def _softmax(largest: str = "maximum", masked: bool = False) -> Make:
    """Exponentials over their sums."""

    def make(g: Graph, x: Instruction) -> Instruction:
        def spread(op: str, y: Instruction, start: float) -> Instruction:
            return g(movement.broadcast, g.reduce(op, y, start, (1,)), sizes=x.array_shape.dimensions, dimensions=(0,))

        found = g(elementwise.exp, g(elementwise.sub, x, spread(largest, x, -np.inf if largest == "maximum" else 0.0)))
        if masked:
            positive = g(elementwise.compare, x, g.full(-1, x), direction="GT", type="FLOAT")
            found = g(elementwise.select, positive, found, g.full(0, x))
        return g(elementwise.div, found, spread("add", found, 0.0))

    return make


def _unary(op: Op, **attributes: Any) -> Make:
    return lambda g, x: g(op, x, **attributes)


def _with_scalar(op: Op, value: Any, swapped: bool = False) -> Make:
    def make(g: Graph, x: Instruction) -> Instruction:
        operands = [x, g.full(value, x)]
        return g(op, *(operands[::-1] if swapped else operands))

    return make


def _twice(first: tuple[Op, dict[str, Any]], second: tuple[Op, dict[str, Any]]) -> Make:
    return lambda g, x: g(second[0], g(first[0], x, **first[1]), **second[1])


def _select(pred: bool) -> Make:
    return lambda g, x, y: g(elementwise.select, g.full(pred, g(elementwise.compare, x, y, **EQUAL)), x, y)


def _dot(lhs: int, rhs: int, batch: tuple[int, int] | None = None) -> dict[str, Any]:
    batches = ((batch[0],), (batch[1],)) if batch else ((), ())
    return contraction.Dot((lhs,), (rhs,), *batches)._asdict()


def _transposed(op_operands: Callable[[Graph, Instruction, Instruction], Instruction], *permutation: int) -> Make:
    return lambda g, x, y: g(movement.transpose, op_operands(g, x, y), permutation=permutation)


def _window(*window: WindowDimension) -> Make:
    """The largest elements of windows that do not move along the first dimension."""

    def make(g: Graph, x: Instruction) -> Instruction:
        largest = reduction.scalar_computation("maximum", x.array_shape.dtype)
        return g(windows.reduce_window, x, g.constant(0), window=(WindowDimension(1), *window), to_apply=largest)

    return make


def _power_of_square(exponent: float) -> Make:
    def make(g: Graph, x: Instruction) -> Instruction:
        square = g(elementwise.mul, x, x)
        return g(elementwise.pow_, square, g(movement.broadcast, g.constant(exponent), sizes=(6,), dimensions=()))

    return make


def _update(starts: tuple[int, int], is_computed: bool = True) -> Make:
    """An array with others, in the place of a part of it."""

    def make(g: Graph, x: Instruction, y: Instruction) -> Instruction:
        part = g(elementwise.sin, y) if is_computed else y
        return g(dynamic_slices.dynamic_update_slice, x, part, *(g.constant(s, np.int32) for s in starts))

    return make


def _chosen(swapped: bool = False, kept: bool = True) -> Make:
    """An array with other elements at two places, if a predicate says so."""

    def make(g: Graph, p: Instruction, x: Instruction, y: Instruction, i: Instruction) -> Instruction:
        added = indexing.Scatter((), (0,), (0,), 1, reduction.scalar_computation("add", x.array_shape.dtype))
        found = g(dynamic_slices.dynamic_update_slice, x, y, g.constant(2, np.int32))
        found = g(indexing.scatter, found, i, y, **added._asdict())
        other = x if kept else g(elementwise.neg, x)
        if not p.array_shape.rank:
            p = g(movement.broadcast, p, sizes=x.array_shape.dimensions, dimensions=())
        return g(elementwise.select, p, *((other, found) if swapped else (found, other)))

    return make


def _chosen_by_row(along: tuple[int, ...] = (0,)) -> Make:
    """An array with another element in each row, in those rows that a predicate says."""

    def make(g: Graph, p: Instruction, x: Instruction, y: Instruction, i: Instruction) -> Instruction:
        added = reduction.scalar_computation("add", x.array_shape.dtype)
        found = g(indexing.scatter, x, i, y, **indexing.Scatter((), (1,), (1,), 1, added, (0,), (0,))._asdict())
        mask = g(movement.broadcast, p, sizes=x.array_shape.dimensions, dimensions=along)
        return g(elementwise.select, mask, found, x)

    return make


def _part_of_filled(is_filled: bool) -> Make:
    """Times some elements of an array of one number, or of rows."""

    def make(g: Graph, x: Instruction) -> Instruction:
        source, dimensions = (g.constant(2), ()) if is_filled else (x, (0,))
        whole = g(movement.broadcast, source, sizes=(6, 6) if not is_filled else (9,), dimensions=dimensions)
        rank = whole.array_shape.rank
        limits, strides = ((6,), (1,)) if rank == 1 else ((6, 1), (1, 1))
        part = g(movement.slice_, whole, start_indices=(0,) * rank, limit_indices=limits, strides=strides)
        return g(elementwise.mul, x if rank == 1 else g(movement.reshape, x, sizes=(6, 1)), part)

    return make


AT_TWO = [_values(6), _values(2), np.array([[1], [9]], np.int32)]
BY_ROW = [_values(2, 6), _values(2), np.array([[1], [5]], np.int32)]
AT_UNSIGNED = [*AT_TWO[:2], AT_TWO[2].astype(np.uint8)]
CHANGED = ["dynamic-update-slice", "scatter"]
CHOSEN = ["dynamic-slice", "broadcast", "select", CHANGED[0], "broadcast", "broadcast", "select", CHANGED[1]]
UPDATED = ["sine", "slice", "slice", "concatenate", "slice", "slice", "concatenate"]
POWERS = [
    (0.5, ["multiply", "sqrt"]),
    (1.5, ["multiply", "sqrt", "multiply"]),
    (-0.5, ["multiply", "sqrt", "broadcast", "divide"]),
    (-2.5, ["multiply", "sqrt", "multiply", "multiply", "broadcast", "divide"]),
]
EQUAL = {"direction": "EQ", "type": "FLOAT"}
INTEGERS = np.array([0, 3, -7], np.int32)
COMPLEX = np.array([1 + 2j, 0, -1j], np.complex64)

# Rule, what makes the graph, its operands, the operations that are left.
HALVES = _values(4, 3).astype(np.float16)
APPLIES: list[tuple[str, Make, list[Array], list[str]]] = [
    ("_multiply_by_one", _with_scalar(elementwise.mul, 1), [SPECIAL], []),
    ("_multiply_by_one", _with_scalar(elementwise.mul, 1, swapped=True), [INTEGERS], []),
    ("_divide_by_one", _with_scalar(elementwise.div, 1), [SPECIAL], []),
    ("_chain_multiply", _with_scalar(elementwise.chain_mul, 3), [_values(6)], ["broadcast", "multiply"]),
    ("_chain_multiply", _with_scalar(elementwise.chain_mul, 3, swapped=True), [SPECIAL], ["broadcast", "multiply"]),
    ("_chain_divide", _with_scalar(elementwise.chain_div, 3), [_values(6)], ["broadcast", "divide"]),
    ("_chain_divide", _with_scalar(elementwise.chain_div, 3, swapped=True), [SPECIAL], ["broadcast", "divide"]),
    ("_chain_divide_by_broadcast", _over_rows(elementwise.chain_div), EXACT, [*RECIPROCALS, "chain-multiply"]),
    ("_divide_exponentials", _softmax(), [np.zeros((3, 4), np.float32)], [*EXPONENTIALS, *RECIPROCALS, "multiply"]),
    ("_divide_exponentials", _softmax(masked=True), [np.zeros((3, 4))], [*MASKED, *RECIPROCALS, "multiply"]),
    ("_add_zero", _with_scalar(elementwise.add, 0), [INTEGERS], []),
    ("_add_zero", _with_scalar(elementwise.add, -0.0), [SPECIAL], []),
    ("_add_zero", _with_scalar(elementwise.add, -0.0, swapped=True), [SPECIAL], []),
    ("_subtract_zero", _with_scalar(elementwise.sub, 0.0), [SPECIAL], []),
    ("_subtract_zero", _with_scalar(elementwise.sub, 0), [INTEGERS], []),
    ("_negate_twice", _twice((elementwise.neg, {}), (elementwise.neg, {})), [SPECIAL], []),
    ("_power", _with_scalar(elementwise.pow_, 2), [SPECIAL], ["multiply"]),
    ("_power", _with_scalar(elementwise.pow_, 1), [SPECIAL], []),
    ("_power", _with_scalar(elementwise.pow_, 2), [INTEGERS], ["multiply"]),
    ("_power", _with_scalar(elementwise.pow_, -1), [SPECIAL], ["broadcast", "divide"]),
    ("_slice_of_splat", _part_of_filled(True), [SPECIAL], ["broadcast", "multiply"]),
    *(("_power", _power_of_square(exponent), [SPECIAL], left) for exponent, left in POWERS),
    ("_select_update", _chosen(), [np.array(True), *AT_TWO], CHOSEN),
    ("_select_update", _chosen(), [np.array(False), *AT_TWO], CHOSEN),
    ("_select_update", _chosen(swapped=True), [np.array(True), *AT_TWO], CHOSEN),
    ("_select_update", _chosen(swapped=True), [np.array(False), *AT_TWO], CHOSEN),
    ("_select_update", _chosen_by_row(), [np.array([True, False]), *BY_ROW], CHOSEN[4:]),
    ("_select_update", _chosen_by_row(), [np.array([True]), *(x[:1] for x in BY_ROW)], ["reshape", *CHOSEN[4:]]),
    ("_update_as_concatenate", _update((2, 3)), [_values(20, 30), _values(17, 25)], UPDATED),
    ("_update_as_concatenate", _update((0, 9)), [_values(20, 30), _values(20, 25)], UPDATED[:2] + UPDATED[-1:]),
    ("_convert_to_same_type", _unary(elementwise.convert, new_element_type=F32), [SPECIAL], []),
    ("_bitcast", _unary(bits.bitcast_convert, new_element_type=F32), [SPECIAL], []),
    (
        "_bitcast",
        _twice((bits.bitcast_convert, {"new_element_type": S32}), (bits.bitcast_convert, {"new_element_type": F32})),
        [SPECIAL],
        [],
    ),
    ("_select_same", lambda g, p, x: g(elementwise.select, p, x, x), [SPECIAL > 0, SPECIAL], []),
    ("_select_same", _select(True), [SPECIAL, _values(6)], []),
    ("_select_same", _select(False), [SPECIAL, _values(6)], []),
    ("_reshape", _unary(movement.reshape, sizes=(2, 3)), [_values(2, 3)], []),
    (
        "_reshape",
        _twice((movement.reshape, {"sizes": (6,)}), (movement.reshape, {"sizes": (3, 2)})),
        [_values(2, 3)],
        ["reshape"],
    ),
    (
        "_reshape",
        _twice((movement.broadcast, {"sizes": (6,), "dimensions": ()}), (movement.reshape, {"sizes": (3, 2)})),
        [_values()],
        ["broadcast"],
    ),
    ("_transpose", _unary(movement.transpose, permutation=(0, 1)), [_values(2, 3)], []),
    (
        "_transpose",
        _twice((movement.transpose, {"permutation": (1, 2, 0)}), (movement.transpose, {"permutation": (2, 0, 1)})),
        [_values(2, 3, 4)],
        [],
    ),
    (
        "_transpose",
        _twice((movement.transpose, {"permutation": (1, 2, 0)}), (movement.transpose, {"permutation": (1, 2, 0)})),
        [_values(2, 3, 4)],
        ["transpose"],
    ),
    (
        "_transpose",
        _twice(
            (movement.broadcast, {"sizes": (2, 3, 4), "dimensions": (1,)}),
            (movement.transpose, {"permutation": (2, 0, 1)}),
        ),
        [_values(3)],
        ["broadcast"],
    ),
    ("_transpose", _unary(movement.transpose, permutation=(1, 0, 2)), [_values(3, 1, 4)], ["reshape"]),
    (
        "_transpose_of_dot",
        _transposed(lambda g, x, y: g(contraction.dot, x, y, **_dot(1, 0)), 1, 0),
        [_values(2, 3), _values(3, 4)],
        ["dot"],
    ),
    (
        "_transpose_of_dot",
        _transposed(lambda g, x, y: g(contraction.dot, x, y, **_dot(2, 1, (0, 0))), 0, 2, 1),
        [_values(5, 2, 3), _values(5, 3, 4)],
        ["dot"],
    ),
    ("_broadcast", _unary(movement.broadcast, sizes=(2, 3), dimensions=(0, 1)), [_values(2, 3)], []),
    (
        "_broadcast",
        _twice(
            (movement.broadcast, {"sizes": (3, 4), "dimensions": (0,)}),
            (movement.broadcast, {"sizes": (4, 2, 3), "dimensions": (2, 0)}),
        ),
        [_values(3)],
        ["broadcast"],
    ),
    (
        "_broadcast",
        _twice((movement.reshape, {"sizes": (3, 1)}), (movement.broadcast, {"sizes": (3, 1, 2), "dimensions": (0, 1)})),
        [_values(3)],
        ["broadcast"],
    ),
    (
        "_full_slice",
        _unary(movement.slice_, start_indices=(0, 0), limit_indices=(2, 3), strides=(1, 1)),
        [_values(2, 3)],
        [],
    ),
    (
        "_pad_by_nothing",
        lambda g, x: g(movement.pad, x, g.constant(1), padding_config=((0, 0, 0), (0, 0, 0))),
        [_values(2, 3)],
        [],
    ),
    ("_concatenate_single", _unary(movement.concatenate, dimension=0), [_values(2, 3)], []),
    (
        "_concatenate_single",
        lambda g, x, y, z: g(movement.concatenate, x, y, z, dimension=0),
        [_values(2, 3), _values(0, 3), _values(4, 3)],
        ["concatenate"],
    ),
    (
        "_concatenate_single",
        lambda g, x, y: g(movement.concatenate, x, y, dimension=1),
        [_values(2, 3), _values(2, 0)],
        [],
    ),
    ("_reverse_size_one", _unary(movement.reverse, dimensions=(1,)), [_values(2, 1)], []),
    ("_reverse_size_one", _unary(movement.reverse, dimensions=()), [_values(2, 3)], []),
    ("_reduce", lambda g, x: g.reduce("add", x, 0, (1,)), [_values(2, 1, 3)], ["reshape"]),
    ("_reduce", lambda g, x: g.reduce("maximum", x, -np.inf, ()), [SPECIAL], []),
    (
        "_reduce_16_bit_floats",
        lambda g, x: g.reduce("maximum", x, -np.inf, (0,)),
        [HALVES],
        ["convert"] * 2 + ["reduce", "convert"],
    ),
    (
        "_reduce_16_bit_floats",
        lambda g, x: g.reduce("minimum", x, 1.5, (0,)),
        [HALVES],
        ["convert"] * 2 + ["reduce", "convert"],
    ),
    (
        "_reduce_16_bit_floats",
        lambda g, x: g.reduce("add", x, 1, (0,)),
        [HALVES],
        ["convert"] * 2 + ["reduce", "convert"],
    ),
    ("_global_window", _window(WindowDimension(3), WindowDimension(5)), [_values(2, 3, 5)], ["reduce", "reshape"]),
    (
        "_global_window",
        _window(WindowDimension(1), WindowDimension(9, 2, 2, 1, base_dilation=3)),
        [_values(2, 3, 3)],
        ["reduce", "reshape"],
    ),
    (
        "_dot_of_transpose",
        lambda g, x, y: g(contraction.dot, g(movement.transpose, x, permutation=(1, 0)), y, **_dot(1, 0)),
        [_values(3, 2), _values(3, 4)],
        ["dot"],
    ),
    (
        "_dot_of_transpose",
        lambda g, x, y: g(
            contraction.dot,
            g(movement.transpose, x, permutation=(0, 2, 1)),
            g(movement.transpose, y, permutation=(0, 2, 1)),
            **_dot(2, 1, (0, 0)),
        ),
        [_values(5, 3, 2), _values(5, 4, 3)],
        ["dot"],
    ),
    (
        "_dot_of_transpose",
        lambda g, x, y: g(
            contraction.dot,
            x,
            g(movement.transpose, y, permutation=(0, 1, 3, 2)),
            **contraction.Dot((3,), (2,), (0, 1), (0, 1))._asdict(),
        ),
        [_values(2, 3, 4, 5), _values(2, 3, 6, 5)],
        ["dot"],
    ),
    ("_empty", lambda g, x: g(elementwise.exp, x), [_values(0, 3)], []),
    ("_empty", lambda g, x: g.reduce("add", x, 2, (1,)), [_values(3, 0)], ["broadcast"]),
    (
        "_empty",
        lambda g, x: g(movement.pad, x, g.constant(1), padding_config=((1, 2, 0),)),
        [_values(0)],
        ["broadcast"],
    ),
    (
        "_empty",
        lambda g, x, y: g(contraction.dot, x, y, **_dot(1, 0)),
        [_values(2, 0), _values(0, 3)],
        ["broadcast"],
    ),
    (
        "_element",
        lambda g, x, y: g(calls.get_tuple_element, g(calls.tuple_, x, y), index=1),
        [_values(2), _values(3)],
        [],
    ),
]

KEEPS: list[tuple[str, Make, list[Array], list[str]]] = [
    ("_multiply_by_one", _with_scalar(elementwise.mul, 0), [SPECIAL], ["broadcast", "multiply"]),
    ("_multiply_by_one", _with_scalar(elementwise.mul, 1j), [COMPLEX], ["broadcast", "multiply"]),
    ("_multiply_by_one", _with_scalar(elementwise.mul, 1), [COMPLEX], ["broadcast", "multiply"]),
    ("_divide_by_one", _with_scalar(elementwise.div, 1), [COMPLEX], ["broadcast", "divide"]),
    ("_divide_by_one", _with_scalar(elementwise.div, 1, swapped=True), [SPECIAL], ["broadcast", "divide"]),
    ("_divide_by_one", _with_scalar(elementwise.div, -1), [SPECIAL], ["broadcast", "divide"]),
    ("_chain_multiply", _with_scalar(elementwise.chain_mul, np.inf), [SPECIAL], ["broadcast", "chain-multiply"]),
    ("_chain_multiply", lambda g, x, y: g(elementwise.chain_mul, x, y), [SPECIAL, SPECIAL], ["chain-multiply"]),
    ("_chain_divide", _with_scalar(elementwise.chain_div, 0), [SPECIAL], ["broadcast", "chain-divide"]),
    ("_chain_divide_by_broadcast", _over_rows(elementwise.div), EXACT, ["broadcast", "divide"]),
    ("_chain_divide_by_broadcast", _over_rows(elementwise.chain_div), [x.astype(np.float16) for x in EXACT], CHAINED),
    ("_divide_exponentials", _softmax("add"), [np.zeros((3, 4))], [*EXPONENTIALS, "broadcast", "divide"]),
    ("_add_zero", _with_scalar(elementwise.add, 0.0), [SPECIAL], ["broadcast", "add"]),
    ("_add_zero", _with_scalar(elementwise.add, 0.0, swapped=True), [SPECIAL], ["broadcast", "add"]),
    ("_subtract_zero", _with_scalar(elementwise.sub, -0.0), [SPECIAL], ["broadcast", "subtract"]),
    ("_subtract_zero", _with_scalar(elementwise.sub, 0, swapped=True), [INTEGERS], ["broadcast", "subtract"]),
    ("_negate_twice", _twice((elementwise.abs_, {}), (elementwise.neg, {})), [SPECIAL], ["abs", "negate"]),
    ("_power", _with_scalar(elementwise.pow_, 0.5), [SPECIAL], ["broadcast", "power"]),
    ("_power", _with_scalar(elementwise.pow_, 1.5), [SPECIAL], ["broadcast", "power"]),
    ("_slice_of_splat", _part_of_filled(False), [SPECIAL], ["broadcast", "slice", "reshape", "multiply"]),
    ("_power", _with_scalar(elementwise.pow_, 2, swapped=True), [SPECIAL], ["broadcast", "power"]),
    ("_power", _power_of_square(3.5), [SPECIAL], ["multiply", "broadcast", "power"]),
    ("_select_update", _chosen(), [np.array(True), *AT_UNSIGNED], [*CHANGED, "broadcast", "select"]),
    (
        "_select_update",
        _chosen(kept=False),
        [np.array(True), *AT_TWO],
        [*CHANGED, "negate", "broadcast", "select"],
    ),
    ("_select_update", _chosen(), [np.arange(6) > 2, *AT_TWO], [*CHANGED, "select"]),
    ("_select_update", _chosen_by_row((1,)), [np.arange(6) > 2, *BY_ROW], ["scatter", "broadcast", "select"]),
    ("_update_as_concatenate", _update((2, 3)), [_values(20, 30), _values(5, 25)], ["sine", "dynamic-update-slice"]),
    ("_update_as_concatenate", _update((2, 3), False), [_values(20, 30), _values(17, 25)], ["dynamic-update-slice"]),
    ("_update_as_concatenate", _update((0, 1)), [_values(4, 5), _values(4, 4)], ["sine", "dynamic-update-slice"]),
    (
        "_convert_to_same_type",
        _unary(elementwise.convert, new_element_type=element_type("f64")),
        [SPECIAL],
        ["convert"],
    ),
    (
        "_convert_to_same_type",
        _twice((elementwise.convert, {"new_element_type": S32}), (elementwise.convert, {"new_element_type": F32})),
        [SPECIAL],
        ["convert", "convert"],
    ),
    ("_bitcast", _unary(bits.bitcast_convert, new_element_type=S32), [SPECIAL], ["bitcast-convert"]),
    (
        "_bitcast",
        _twice(
            (bits.bitcast_convert, {"new_element_type": S32}),
            (bits.bitcast_convert, {"new_element_type": element_type("u32")}),
        ),
        [SPECIAL],
        ["bitcast-convert", "bitcast-convert"],
    ),
    (
        "_select_same",
        lambda g, p, x, y: g(elementwise.select, p, x, y),
        [SPECIAL > 0, SPECIAL, _values(6)],
        ["select"],
    ),
    ("_reshape", _unary(movement.reshape, sizes=(3, 2)), [_values(2, 3)], ["reshape"]),
    (
        "_reshape",
        _twice((movement.broadcast, {"sizes": (2, 3), "dimensions": (1,)}), (movement.reshape, {"sizes": (3, 2)})),
        [_values(3)],
        ["broadcast", "reshape"],
    ),
    ("_transpose", _unary(movement.transpose, permutation=(1, 0)), [_values(3, 3)], ["transpose"]),
    (
        "_transpose_of_dot",
        _transposed(lambda g, x, y: g(contraction.dot, x, y, **_dot(2, 1, (0, 0))), 1, 0, 2),
        [_values(5, 2, 3), _values(5, 3, 4)],
        ["dot", "transpose"],
    ),
    (
        "_transpose_of_dot",
        _transposed(lambda g, x, y: g(elementwise.mul, x, y), 1, 0),
        [_values(2, 3), _values(2, 3)],
        ["multiply", "transpose"],
    ),
    ("_broadcast", _unary(movement.broadcast, sizes=(3, 3), dimensions=(1,)), [_values(3)], ["broadcast"]),
    ("_broadcast", _unary(movement.broadcast, sizes=(3, 3), dimensions=(1, 0)), [_values(3, 3)], ["broadcast"]),
    (
        "_broadcast",
        _twice((movement.reshape, {"sizes": (3, 2)}), (movement.broadcast, {"sizes": (3, 2, 2), "dimensions": (0, 1)})),
        [_values(6)],
        ["reshape", "broadcast"],
    ),
    (
        "_full_slice",
        _unary(movement.slice_, start_indices=(1,), limit_indices=(4,), strides=(1,)),
        [_values(4)],
        ["slice"],
    ),
    (
        "_pad_by_nothing",
        lambda g, x: g(movement.pad, x, g.constant(1), padding_config=((1, -1, 0),)),
        [_values(4)],
        ["pad"],
    ),
    (
        "_concatenate_single",
        lambda g, x: g(movement.concatenate, x, x, dimension=0),
        [_values(4)],
        ["concatenate"],
    ),
    ("_reverse_size_one", _unary(movement.reverse, dimensions=(0, 1)), [_values(2, 1)], ["reverse"]),
    ("_reduce", lambda g, x: g.reduce("add", x, 1, (1,)), [_values(2, 1)], ["reduce"]),
    ("_reduce", lambda g, x: g.reduce("maximum", x, 0, (0,)), [_values(1, 3)], ["reduce"]),
    ("_reduce", lambda g, x: g.reduce("add", x, 0, (1,)), [_values(1, 3)], ["reduce"]),
    ("_reduce_16_bit_floats", lambda g, x: g.reduce("maximum", x, 0, (0,)), [_values(2, 3)], ["reduce"]),
    ("_global_window", _window(WindowDimension(3, padding_low=1)), [_values(2, 3)], ["reduce-window"]),
    ("_global_window", _window(WindowDimension(2, padding_high=-1)), [_values(2, 3)], ["reduce-window"]),
    ("_global_window", _window(WindowDimension(3, padding_low=-1, padding_high=1)), [_values(2, 3)], ["reduce-window"]),
    ("_global_window", _window(WindowDimension(2, window_dilation=2)), [_values(2, 3)], ["reduce-window"]),
    (
        "_dot_of_transpose",
        lambda g, x, y: g(contraction.dot, g(movement.transpose, x, permutation=(1, 0, 2)), y, **_dot(2, 0)),
        [_values(3, 2, 4), _values(4, 5)],
        ["transpose", "dot"],
    ),
    (
        "_dot_of_transpose",
        lambda g, x, y: g(contraction.dot, g(movement.transpose, x, permutation=(2, 0, 1)), y, **_dot(2, 1, (0, 0))),
        [_values(3, 4, 5), _values(5, 4, 2)],
        ["transpose", "dot"],
    ),
    ("_empty", lambda g, x: g(elementwise.exp, x), [_values(1, 3)], ["exponential"]),
    (
        "_element",
        lambda g, x, y: g(calls.tuple_, y, x),
        [_values(2), _values(3)],
        ["tuple"],
    ),
]


def _names(case: Any) -> str:
    return case if isinstance(case, str) else ""


@pytest.mark.parametrize(("rule", "make", "operands", "expected"), APPLIES, ids=_names)
def test_an_identity_applies(rule: str, make: Make, operands: list[Array], expected: list[str]) -> None:
    assert left(make, operands) == expected


@pytest.mark.parametrize(("rule", "make", "operands", "expected"), KEEPS, ids=_names)
def test_an_identity_leaves_alone_what_is_something_else(
    rule: str, make: Make, operands: list[Array], expected: list[str]
) -> None:
    assert left(make, operands) == expected


def test_every_identity_has_cases() -> None:
    rules = {rule.__name__ for row in algebraic_simplifier.RULES.values() for rule in row} | {"_empty"}
    assert {name for name, *_ in APPLIES} == rules
    assert {name for name, *_ in KEEPS} == rules


@pytest.mark.parametrize("name", sorted({name for name, *_ in APPLIES}))
def test_cases_notice_a_missing_identity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {op: tuple(r for r in row if r.__name__ != name) for op, row in algebraic_simplifier.RULES.items()}
    monkeypatch.setattr(algebraic_simplifier, "RULES", rules)
    if name == "_empty":
        monkeypatch.setattr(algebraic_simplifier, "_empty", lambda r, x, o: None)
    assert any(left(make, operands) != expected for case, make, operands, expected in APPLIES if case == name)


# --- the other passes -------------------------------------------------------------------------------------------------


def test_constants_are_folded_unless_they_are_large() -> None:
    graph = Graph([_values(3)])
    small = graph(elementwise.exp, graph.constant([1.0, 2.0, 3.0]))
    large = graph(elementwise.exp, graph.constant(np.ones(2000)))
    root = graph(calls.tuple_, graph(elementwise.add, small, graph.parameters[0]), large)
    folded = pipeline.fold_constants(Computation("case", graph.parameters, graph.rewriter.instructions, root))
    verify(Module("case", folded))
    assert [x.op.name for x in folded.instructions if x.operands] == ["exponential", "add", "tuple"]
    np.testing.assert_allclose(calls.evaluate(folded, [_values(3)])[0], np.exp([1, 2, 3]) + _values(3), 1e-6)
