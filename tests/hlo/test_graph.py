"""Random graphs keep their value and their validity through all that is done with them; the verifier objects to graphs
that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tinyxla
from tests.support import random_graphs, xla_oracle
from tinyxla.compiler import pipeline
from tinyxla.errors import VerificationError
from tinyxla.hlo import Computation, Instruction, Module, verify
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.text import print_module, to_dot, to_svg
from tinyxla.tracing import wrap
from tinyxla.tracing.core import trace
from tinyxla.transforms import batch, jvp, vjp

SEEDS = st.integers(0, 1000)
REPEATABLE = settings(deadline=None, derandomize=True, database=None)


def assert_close(actual: Any, expected: Any) -> None:
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        assert Shape.of(x) == Shape.of(y)
        np.testing.assert_allclose(x, y, 1e-9, 1e-9)


def eager(program: random_graphs.Program, seed: int) -> list[Any]:
    return [np.asarray(x.numpy()) for x in program(*program.arrays(seed))]


# --- random graphs ----------------------------------------------------------------------------------------------------


@settings(REPEATABLE, max_examples=100)
@given(random_graphs.programs(20), SEEDS)
def test_a_recorded_program_is_valid_and_has_the_value_of_the_eager_one(
    program: random_graphs.Program, seed: int
) -> None:
    computation = program.computation()
    verify(Module("random", computation))
    results = calls.evaluate(computation, program.operands(seed))
    for x, y in zip(results, eager(program, seed), strict=True):
        assert Shape.of(x) == Shape.of(y)
        np.testing.assert_array_equal(x, y)


@settings(REPEATABLE, max_examples=100)
@given(random_graphs.programs())
def test_equal_graphs_are_equal(program: random_graphs.Program) -> None:
    computation = program.computation()
    copy, new = computation.copy()
    assert set(new) == set(computation.instructions)
    again = trace(lambda *x: calls.inline(computation, x), computation.parameter_shapes, "again")[0]
    for other in (copy, program.computation()):
        assert other == computation
        assert hash(other) == hash(computation)
    verify(Module("copy", copy))
    verify(Module("again", again))
    extended = trace(lambda *x: [*program(*x), x[0]], computation.parameter_shapes, "longer")[0]
    assert extended != computation


@settings(REPEATABLE, max_examples=100)
@given(random_graphs.programs(20), SEEDS)
def test_every_pass_keeps_the_value(program: random_graphs.Program, seed: int) -> None:
    expected = eager(program, seed)

    def check(name: str, computation: Computation) -> None:
        verify(Module(name, computation))
        assert_close(calls.evaluate(computation, program.operands(seed)), expected)

    pipeline.optimize(program.computation(), check)


@settings(REPEATABLE, max_examples=25)
@given(random_graphs.programs(16), SEEDS)
def test_a_compiled_program_has_the_value_of_the_eager_one(program: random_graphs.Program, seed: int) -> None:
    assert_close([x.numpy() for x in tinyxla.jit(program)(*program.arrays(seed))], eager(program, seed))


@settings(REPEATABLE, max_examples=30)
@given(random_graphs.programs(), SEEDS)
def test_a_mapped_program_is_a_loop(program: random_graphs.Program, seed: int) -> None:
    lanes = [program.operands(seed + k) for k in range(3)]
    last = [len(shape.dimensions) for shape in program.parameters]
    stacked = [wrap(np.stack(several, axis)) for several, axis in zip(zip(*lanes, strict=True), last, strict=True)]
    for value, axis, *expected in zip(
        *zip(*batch(program, 3, stacked, last), strict=True), *(eager(program, seed + k) for k in range(3)), strict=True
    ):
        for k, one in enumerate(expected):
            assert_close([value.numpy() if axis is None else np.take(value.numpy(), k, axis)], [one])


@settings(REPEATABLE, max_examples=50)
@given(random_graphs.programs(), SEEDS)
def test_forward_and_reverse_derivatives_agree(program: random_graphs.Program, seed: int) -> None:
    random = np.random.default_rng(seed)
    operands = program.arrays(seed)
    directions = [np.asarray(random.normal(size=x.shape)) if x.dtype.kind == "f" else None for x in operands]
    _, tangents = jvp(program, operands, [None if d is None else wrap(d) for d in directions])
    values, pullback = vjp(program, operands)
    seeds = [np.asarray(random.normal(size=y.shape)) if y.dtype.kind == "f" else None for y in values]
    cotangents = pullback([None if u is None else wrap(u) for u in seeds])
    left = sum(np.sum(u * t.numpy()) for u, t in zip(seeds, tangents, strict=True) if t is not None)
    right = sum(np.sum(c.numpy() * d) for c, d in zip(cotangents, directions, strict=True) if c is not None)
    np.testing.assert_allclose(right, left, 1e-8, 1e-8)


@settings(REPEATABLE, max_examples=25)
@given(random_graphs.programs(), SEEDS)
def test_xla_reads_and_computes_the_same(program: random_graphs.Program, seed: int) -> None:
    computation = program.computation()
    results = xla_oracle.run(print_module(Module("random", computation)), program.operands(seed))
    assert_close(results, eager(program, seed))


@settings(REPEATABLE, max_examples=30)
@given(random_graphs.programs(30))
def test_random_graphs_have_pictures(program: random_graphs.Program) -> None:
    computation = program.computation()
    assert to_svg(computation).count("<rect") > 1
    assert to_dot(computation).count("label=") >= 1


# --- broken graphs ----------------------------------------------------------------------------------------------------

F32 = element_type("f32")


def small() -> Computation:
    """sin(x) + y, and its sum."""
    shape = Shape(F32, (3,))

    def function(x: Any, y: Any) -> list[Any]:
        total = elementwise.add(elementwise.sin(x), y)
        return [total, reduction.reduce_sum(total, (0,))]

    made = trace(function, [shape, shape], "small")[0]
    assert [x.op.name for x in made.instructions] == [
        *("parameter", "parameter", "sine", "add", "constant", "reduce", "tuple")
    ]
    return made


def _replaced(computation: Computation, at: int, **changes: Any) -> None:
    """Put another instruction in the place of one."""
    old = computation.instructions[at]
    parts = {name: changes.get(name, getattr(old, name)) for name in ("op", "operands", "attributes", "shape")}
    new = Instruction(**parts)
    computation.instructions[at] = new
    for x in computation.instructions[at + 1 :]:
        x.operands = tuple(new if o is old else o for o in x.operands)
    computation.parameters[:] = [new if p is old else p for p in computation.parameters]


def use_before_definition(c: Computation) -> None:
    c.instructions[2], c.instructions[3] = c.instructions[3], c.instructions[2]


def foreign_operand(c: Computation) -> None:
    c.instructions[3].operands = (small().instructions[2], c.instructions[1])


def listed_twice(c: Computation) -> None:
    c.instructions.insert(3, c.instructions[2])


def wrong_size(c: Computation) -> None:
    _replaced(c, 2, shape=Shape(F32, (4,)))


def wrong_type(c: Computation) -> None:
    _replaced(c, 2, shape=Shape(element_type("f64"), (3,)))


def tuple_for_an_array(c: Computation) -> None:
    _replaced(c, 2, shape=TupleShape((Shape(F32, (3,)),)))


def wrong_tuple(c: Computation) -> None:
    c.root.shape = TupleShape((Shape(F32, (3,)),))


def bad_attribute(c: Computation) -> None:
    old = c.instructions[5]
    old.attributes = old.attributes._replace(dimensions=(1,))


def wrong_computation(c: Computation) -> None:
    old = c.instructions[5]
    old.attributes = old.attributes._replace(to_apply=reduction.scalar_computation("add", np.dtype(np.float64)))


def broken_computation(c: Computation) -> None:
    inner, _ = reduction.scalar_computation("add", np.dtype(np.float32)).copy()
    inner.instructions.reverse()
    old = c.instructions[5]
    old.attributes = old.attributes._replace(to_apply=inner)


def unlisted_parameter(c: Computation) -> None:
    c.parameters[1] = small().parameters[1]


def parameters_out_of_order(c: Computation) -> None:
    c.parameters.reverse()


def no_parameter(c: Computation) -> None:
    c.parameters[0] = c.instructions[2]


def unlisted_root(c: Computation) -> None:
    c.root = small().root


def unlisted_instruction(c: Computation) -> None:
    del c.instructions[2]


def missing_operand(c: Computation) -> None:
    c.instructions[3].operands = c.instructions[3].operands[:1]


def forgotten_parameter(c: Computation) -> None:
    del c.parameters[1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (missing_operand, "is not a valid instruction"),
        (forgotten_parameter, "is not among the parameters"),
        (use_before_definition, "comes before its operand"),
        (foreign_operand, "or that is of another computation"),
        (listed_twice, "is listed twice"),
        (wrong_size, r"has a wrong shape: its operands give f32\[3\]"),
        (wrong_type, r"has a wrong shape: its operands give f32\[3\]"),
        (tuple_for_an_array, "has a wrong shape"),
        (wrong_tuple, r"has a wrong shape: its operands give \(f32\[3\], f32\[\]\)"),
        (bad_attribute, "is not a valid instruction: reduce: dimensions"),
        (wrong_computation, "is not a valid instruction: reduce: to_apply must map"),
        (broken_computation, "comes before its operand"),
        (unlisted_parameter, "is not among the parameters"),
        (parameters_out_of_order, "parameter 0 has the number 1"),
        (no_parameter, "is not among the parameters"),
        (unlisted_root, "the root .* is not among the instructions"),
        (unlisted_instruction, "comes before its operand"),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)
def test_the_verifier_objects_to_broken_graphs(damage: Callable[[Computation], None], message: str) -> None:
    computation = small().copy()[0]
    verify(Module("small", computation))
    damage(computation)
    with pytest.raises(VerificationError, match=message):
        verify(Module("small", computation))


def test_modules_list_computations_before_their_users() -> None:
    computation = small()
    module = Module("small", computation)
    assert [c.name for c in module.computations()] == ["add", "small"]


def test_users_count_every_use() -> None:
    made = trace(lambda x: [elementwise.mul(x, x)], [Shape(F32, (2,))], "square")[0]
    assert [len(users) for users in made.users().values()] == [2, 1, 0]
    assert [x.op for x in made.users()[made.parameters[0]]] == [elementwise.mul, elementwise.mul]


def test_constants_are_compared_by_their_bits() -> None:
    def constant(value: float) -> Computation:
        return trace(lambda: [movement.full(value, np.float32)], [], "constant")[0]

    assert constant(float("nan")) == constant(float("nan"))
    assert constant(0.0) != constant(-0.0)
    assert constant(1.0) == constant(1.0)
