"""Loops and branches over small arrays are one kernel, and lanes of them run to their own ends: random bodies against
the interpreter, programs against JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax
from tinyxla.backends.numba import CompiledModule
from tinyxla.compiler.analysis import scalarization
from tinyxla.compiler.pipeline import optimize
from tinyxla.hlo import Computation, Module
from tinyxla.ops import calls, dynamic_slices, elementwise, movement, reduction
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms import conditional, while_

Array = np.ndarray[Any, Any]
S32 = Shape(element_type("s32"))
FLOATS = ("f16", "bf16", "f32", "f64")
NUMBERS = (*FLOATS, "s8", "s16", "s32", "s64", "u8", "u32", "u64", "c64", "c128")
TOLERANCE = {"f16": 2e-2, "bf16": 1e-1, "f64": 1e-12, "c128": 1e-12}


# ruff: noqa: B023 - what is drawn is called at once


def computation(function: Callable[..., Sequence[Any]], *shapes: Shape, as_tuple: bool = True) -> Computation:
    made, _, _ = trace(function, shapes, "test")
    if as_tuple:
        return made
    return Computation("test", made.parameters, made.instructions[:-1], made.root.operands[0])


def assert_compiled(made: Computation, arguments: Sequence[Array], tolerance: float = 1e-5) -> CompiledModule:
    compiled = CompiledModule(Module("test", made))
    before = [x.copy() for x in arguments]
    wanted = calls.evaluate(made, arguments)
    for _ in range(2):
        found = compiled(arguments)
        for x, y in zip(found, wanted, strict=True):
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(x.astype(wide), y.astype(wide), tolerance, tolerance)
    for x, y in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(x, y)
    return compiled


def loops_in_the_schedule(compiled: CompiledModule) -> int:
    """Loops and branches that are not kernels."""
    return sum(step.kind in ("while", "conditional") for step in compiled.report().steps)


# --- random bodies ----------------------------------------------------------------------------------------------------


class Bodies:
    """Draws programs that take and give a counter, a vector, a matrix, a scalar, and rows that stay in memory."""

    def __init__(self, seed: int, type: str) -> None:
        self.random = np.random.default_rng(seed)
        self.type = type
        scalar = Shape(element_type(type))
        self.shapes = (S32, *(scalar.with_dimensions(n) for n in ((3,), (2, 2), (), (30, 3))))

    def pick(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def index(self, i: Any) -> Any:
        """Sometimes out of range."""
        offset = int(self.random.integers(-3, 40)) if self.random.random() < 0.3 else int(self.random.integers(3))
        return elementwise.add(i, movement.full(offset, np.int32))

    def vector(self, i: Any, x: Any, y: Any, s: Any, rows: Any) -> Any:
        zero = movement.full(0, np.int32)
        return self.pick(
            lambda: elementwise.add(x, movement.broadcast(s, sizes=(3,), dimensions=())),
            lambda: elementwise.sub(x, movement.reverse(x, dimensions=(0,))),
            lambda: self.row(rows, self.index(i)),
            lambda: elementwise.add(self.row(rows, self.index(i)), x),
            lambda: movement.slice_(
                movement.concatenate(x, movement.reshape_to(y, (4,)), dimension=0),
                start_indices=(1,),
                limit_indices=(6,),
                strides=(2,),
            ),
            lambda: dynamic_slices.dynamic_update_slice(x, movement.reshape_to(s, (1,)), self.index(i)),
            lambda: movement.pad(
                dynamic_slices.dynamic_slice(x, self.index(i), dynamic_slice_sizes=(2,)), s, padding_config=((1, 0, 0),)
            ),
            lambda: movement.reshape_to(
                movement.slice_(rows, start_indices=(4, 0), limit_indices=(5, 3), strides=(1, 1)), (3,)
            ),
            lambda: tx.numpy.asarray(x).at[tx.numpy.stack([self.index(i), zero])].set(s),
            lambda: tx.numpy.asarray(rows)[tx.numpy.stack([self.index(i), zero, self.index(i)]), 1],
            lambda: elementwise.mul(x, x),
        )()

    def matrix(self, i: Any, x: Any, y: Any, s: Any, rows: Any) -> Any:
        return self.pick(
            lambda: movement.transpose_to(y, (1, 0)),
            lambda: tx.numpy.dot(y, y),
            lambda: elementwise.select(elementwise.eq(y, movement.transpose_to(y, (1, 0))), y, elementwise.add(y, y)),
            lambda: dynamic_slices.dynamic_update_slice(
                y, movement.reshape_to(tx.numpy.asarray(x)[:2], (1, 2)), self.index(i), self.index(i)
            ),
        )()

    def scalar(self, i: Any, x: Any, y: Any, s: Any, rows: Any) -> Any:
        return self.pick(
            lambda: reduction.reduce_sum(x, (0,)),
            lambda: movement.reshape_to(dynamic_slices.dynamic_slice(x, self.index(i), dynamic_slice_sizes=(1,)), ()),
            lambda: elementwise.convert(i, new_element_type=element_type(self.type)),
            lambda: reduction.reduce_sum(self.row(rows, self.index(i)), (0,)),
            lambda: movement.full(1, np.dtype(element_type(self.type).dtype)),
        )()

    @staticmethod
    def row(rows: Any, number: Any) -> Any:
        found = dynamic_slices.dynamic_slice(rows, number, movement.full(0, np.int32), dynamic_slice_sizes=(1, 3))
        return movement.reshape_to(found, (3,))

    def rows(self, i: Any, x: Any, y: Any, s: Any, rows: Any) -> Any:
        zero = movement.full(0, np.int32)
        update = dynamic_slices.dynamic_update_slice
        return self.pick(
            lambda: update(rows, movement.reshape_to(x, (1, 3)), self.index(i), zero),
            lambda: update(update(rows, y, self.index(i), self.index(i)), movement.reshape_to(s, (1, 1)), zero, zero),
            lambda: tx.numpy.asarray(rows).at[self.index(i), 1].add(s),
            lambda: tx.numpy.asarray(rows).at[tx.numpy.stack([self.index(i), zero])].set(x),
        )()

    def halved(self, x: Any) -> Any:
        """Kept from growing without bound."""
        if not element_type(self.type).is_inexact:
            return x
        return elementwise.mul(x, movement.full(0.25, x.dtype, x.shape))

    def state(self, depth: int, state: tuple[Any, ...]) -> tuple[Any, ...]:
        for _ in range(self.random.integers(2, 5)):
            kind = self.random.integers(8) if depth else 9
            if kind == 0:
                state = self.loop(depth - 1, state)
            elif kind == 1:
                state = self.branches(depth - 1, state)
            else:
                i, x, y, s, rows = state
                state = self.pick(
                    lambda: (i, self.halved(self.vector(*state)), y, s, rows),
                    lambda: (i, x, self.halved(self.matrix(*state)), self.halved(self.scalar(*state)), rows),
                    lambda: (i, self.halved(self.vector(*state)), y, s, self.rows(*state)),
                    lambda: (i, x, y, s, self.rows(*state)),
                )()
        return state

    def loop(self, depth: int, state: tuple[Any, ...]) -> tuple[Any, ...]:
        trips = int(self.random.integers(4))
        condition = computation(
            lambda i, *rest: [elementwise.lt(i, movement.full(trips, np.int32))], *self.shapes, as_tuple=False
        )

        def body(i: Any, *rest: Any) -> Sequence[Any]:
            return [elementwise.add(i, movement.full(1, np.int32)), *self.state(depth, (i, *rest))[1:]]

        start = movement.full(0, np.int32)
        _, *rest = while_(start, *state[1:], condition=condition, body=computation(body, *self.shapes))
        return (state[0], *rest)

    def branches(self, depth: int, state: tuple[Any, ...]) -> tuple[Any, ...]:
        count = int(self.random.integers(2, 4))
        made = tuple(computation(lambda *x: self.state(depth, x), *self.shapes) for _ in range(count))
        index = state[0] if count > 2 else elementwise.gt(state[0], movement.full(1, np.int32))
        return tuple(conditional(index, *state, branch_computations=made))

    def operands(self) -> list[Array]:
        def numbers(*sizes: int) -> Array:
            found = self.random.normal(size=sizes) * (1 if element_type(self.type).is_inexact else 4)
            return np.asarray(np.abs(found)).astype(element_type(self.type).dtype)

        return [np.asarray(self.random.integers(3), np.int32), *(numbers(*s.dimensions) for s in self.shapes[1:])]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(40))
def test_random_bodies_agree_with_the_interpreter(seed: int) -> None:
    type = "f32" if seed < 24 else NUMBERS[seed % len(NUMBERS)]
    bodies = Bodies(seed, type)
    made = computation(lambda *state: bodies.loop(2, state), *bodies.shapes)
    assert_compiled(made, bodies.operands(), TOLERANCE.get(type, 1e-5))


def test_random_bodies_are_kernels() -> None:
    """Nearly all: some read an array after it has been changed, which takes a copy."""
    few = 0
    for seed in range(12):
        bodies = Bodies(seed, "f32")
        made = computation(lambda *state, bodies=bodies: bodies.loop(1, state), *bodies.shapes)
        few += loops_in_the_schedule(CompiledModule(Module("test", made))) > 0
    assert few <= 4


# --- what is small ----------------------------------------------------------------------------------------------------


def is_small(function: Callable[..., Any], *operands: Any) -> bool:
    made = CompiledModule(
        Module("test", computation(lambda *x: [function(*map(tx.numpy.asarray, x))], *map(Shape.of, operands)))
    )
    return loops_in_the_schedule(made) == 0


def test_what_is_too_large_stays_steps() -> None:
    def scan(x: Any) -> Any:
        return lax.scan(lambda c, _: (c[::-1] * c, None), x, None, length=5)[0]

    assert is_small(scan, np.zeros(scalarization.MAX_REGISTER_ELEMENTS, np.float32))
    assert not is_small(scan, np.zeros(scalarization.MAX_REGISTER_ELEMENTS + 1, np.float32))


def test_a_swap_of_arrays_in_memory_stays_steps() -> None:
    def swapped(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: (c[1], c[0].at[i].set(1.0)), (x, 2 * x))[0]

    x = np.arange(100, dtype=np.float32)
    assert not is_small(swapped, x)
    np.testing.assert_array_equal(tx.jit(swapped)(x), jax.jit(lambda x: _jax_swapped(x))(x))


def _jax_swapped(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, c: (c[1], c[0].at[i].set(1.0)), (x, 2 * x))[0]


def test_the_parts_of_a_small_computation() -> None:
    """Reads go before the update; the result begins as the parameter."""
    rows = Shape(element_type("f32"), (100,))

    def step(i: Any, x: Any) -> Sequence[Any]:
        new = dynamic_slices.dynamic_update_slice(x, movement.full(0, np.float32, (1,)), i)
        old = dynamic_slices.dynamic_slice(x, i, dynamic_slice_sizes=(1,))
        return [new, old]

    found = scalarization.scalarize_without_memory(optimize(computation(step, S32, rows)))
    assert found is not None
    assert found.result_homes == (1, None)
    assert found.updated == {1}
    names = [x.op.name for x in found.order]
    assert names.index("dynamic-slice") < names.index("dynamic-update-slice")


def test_a_loop_reads_what_it_does_not_change_from_memory() -> None:
    """An array in registers is spilled before a loop that reads it at computed places: no choice among its elements."""

    def longest_common_subsequence(x: Any, y: Any, xp: Any) -> Any:
        def row(before: Any, letter: Any) -> tuple[Any, None]:
            def cell(left: Any, j: Any) -> tuple[Any, Any]:
                longest = xp.numpy.maximum(before[j + 1], left)
                found = xp.numpy.where(letter == y[j], before[j] + 1, longest)
                return found, found

            found = xp.lax.scan(cell, xp.numpy.int32(0), xp.numpy.arange(40))[1]
            return xp.numpy.concatenate([xp.numpy.zeros(1, "int32"), found]), None

        return xp.lax.scan(row, xp.numpy.zeros(41, "int32"), x)[0]

    random = np.random.default_rng(0)
    x, y = (random.integers(0, 4, size).astype(np.int32) for size in (60, 40))
    compiled = tx.jit(lambda x, y: longest_common_subsequence(x, y, tx)).lower(x, y).compile()
    assert sum(kernel.source.count("==") for kernel in compiled.kernels) == 1
    np.testing.assert_array_equal(compiled(x, y), jax.jit(lambda x, y: longest_common_subsequence(x, y, jax))(x, y))


def _many_places(xp: Any, updates: bool) -> Callable[[Any, Any, Any], Any]:
    """A loop that makes an array anew of itself at many places, or of what it is after updates there: some places are
    outside, and some are the same."""

    def step(_: Any, carried: Any) -> Any:
        x, v, places = carried
        new = x.at[places].add(v, mode="drop") if updates else xp.numpy.concatenate([x[places - 1], x[:5]])
        return xp.numpy.maximum(x, new) - x / 2, v, (places * 3 + 1) % 30 - 3

    return lambda *operands: xp.lax.fori_loop(0, 5, step, operands)


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("type", FLOATS)
def test_a_loop_with_many_computed_places_is_steps(type: str, updates: bool) -> None:
    random = np.random.default_rng(0)
    kind = element_type(type).dtype
    x, v = (random.normal(size=size).astype(kind) for size in (20, 15))
    places = random.integers(-3, 25, 15).astype(np.int32)
    compiled = tx.jit(_many_places(tx, updates)).lower(x, v, places).compile()
    assert sum(kernel.source.count("==") for kernel in compiled.kernels) < 5, "no choices among all elements"
    found, wanted = compiled(x, v, places), jax.jit(_many_places(jax, updates))(x, v, places)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), TOLERANCE.get(type, 1e-5), 0.01
        )


def test_what_only_the_host_can_do_stays_steps() -> None:
    def sorts(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: tuple(lax.sort((c[1], c[0]))), (x, -x))[0]

    x = np.array([3, 1, 2], np.float32)
    assert not is_small(sorts, x)
    np.testing.assert_array_equal(tx.jit(sorts)(x), jax.jit(lambda x: _jax_sorts(x))(x))


def _jax_sorts(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, c: tuple(jax.lax.sort((c[1], c[0]))), (x, -x))[0]


def test_one_array_cannot_become_two() -> None:
    rows = Shape(element_type("f32"), (100,))

    def step(i: Any, x: Any) -> Sequence[Any]:
        first = dynamic_slices.dynamic_update_slice(x, movement.full(0, np.float32, (1,)), i)
        second = dynamic_slices.dynamic_update_slice(x, movement.full(1, np.float32, (1,)), i)
        return [first, dynamic_slices.dynamic_slice(second, i, dynamic_slice_sizes=(1,))]

    assert scalarization.scalarize_without_memory(optimize(computation(step, S32, rows))) is None


def test_reading_what_was_overwritten_takes_a_copy() -> None:
    def step(i: Any, x: Any) -> Any:
        new = x.at[i].set(7.0)
        return new.at[0].set(x[new[5].astype(int)])  # which element of the old is known after the update

    x = np.arange(100, dtype=np.float32)
    f = lambda x: lax.fori_loop(0, 9, step, x)  # noqa: E731
    assert not is_small(f, x)
    np.testing.assert_array_equal(tx.jit(f)(x), jax.jit(lambda x: jax.lax.fori_loop(0, 9, step, x))(x))


# --- programs, as JAX runs them ---------------------------------------------------------------------------------------


def lorenz(np_: Any) -> Callable[[Any], Any]:
    def slope(x: Any) -> Any:
        return np_.numpy.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    def step(x: Any, _: Any) -> Any:
        k1 = slope(x)
        k2 = slope(x + 0.005 * k1)
        return x + 0.01 * k2, x

    return lambda x: np_.numpy.sum(np_.lax.scan(step, x, None, length=50)[1])


def bodies_in_space(np_: Any) -> Callable[[Any], Any]:
    """Two of them, by Verlet's method."""
    xp = np_.numpy

    def pull(x: Any) -> Any:
        d = x[:, None] - x[None]
        return -xp.sum(d / (xp.sum(d * d, -1, keepdims=True) + 1.0) ** 1.5, 1)

    def step(carry: Any, _: Any) -> Any:
        x, v = carry
        v = v + 0.05 * pull(x)
        return (x + 0.1 * v, v + 0.05 * pull(x + 0.1 * v)), xp.sum(v * v)

    return lambda x: xp.sum(np_.lax.scan(step, (x, xp.zeros_like(x)), None, length=20)[1])


def kalman(np_: Any) -> Callable[[Any], Any]:
    xp = np_.numpy

    def filtered(z: Any) -> Any:
        move, pick = xp.array([[1.0, 0.1], [0.0, 1.0]]), xp.array([1.0, 0.0])

        def step(carry: Any, z: Any) -> Any:
            m, p = carry
            m, p = move @ m, move @ p @ move.T + 0.01 * xp.eye(2)
            gain = p @ pick / (pick @ p @ pick + 0.5)
            m = m + gain * (z - pick @ m)
            return (m, p - xp.outer(gain, pick @ p)), m

        return xp.sum(np_.lax.scan(step, (xp.zeros(2), xp.eye(2)), z)[1] ** 2)

    return filtered


def network(np_: Any) -> Callable[[Any], Any]:
    xp = np_.numpy
    inputs = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)

    def outputs(w: Any) -> Any:
        return np_.lax.scan(lambda h, x: (xp.tanh(w @ h + x), h), xp.zeros(4), inputs)[1]

    return lambda w: xp.sum(outputs(w) ** 2)


def ring(np_: Any) -> Callable[[Any], Any]:
    """A delay line: written and read at places that go round."""

    def step(line: Any, x: Any) -> Any:
        memory, t = line
        y = x + 0.5 * memory[t % 100]
        return (memory.at[t % 100].set(y), t + 1), y

    def heard(x: Any) -> Any:
        return np_.numpy.sum(np_.lax.scan(step, (np_.numpy.zeros(100), 0), x)[1] ** 2)

    return heard


def nested(np_: Any) -> Callable[[Any], Any]:
    """A loop with a loop and branches in it."""
    xp = np_.numpy

    def step(x: Any, t: Any) -> Any:
        inner = np_.lax.fori_loop(0, 3, lambda k, y: xp.sin(y) + 0.1 * x, x)
        return np_.lax.cond(xp.sum(inner) > 0, lambda y: y * 0.9, lambda y: y[::-1] + t, inner), None

    return lambda x: xp.sum(np_.lax.scan(step, x, xp.arange(10.0))[0])


PROGRAMS = {
    lorenz: np.array([0.1, 0.2, 0.3], np.float32),
    bodies_in_space: np.random.default_rng(1).normal(size=(2, 2)).astype(np.float32),
    kalman: np.random.default_rng(2).normal(size=40).astype(np.float32),
    network: np.random.default_rng(3).normal(size=(4, 4)).astype(np.float32),
    ring: np.random.default_rng(4).normal(size=250).astype(np.float32),
    nested: np.array([0.1, 0.2, 0.3, 0.4], np.float32),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_agree_with_jax_and_are_one_loop_each_way(program: Callable[[Any], Any]) -> None:
    x = PROGRAMS[program]
    ours, theirs = tx.jit(program(tx)), jax.jit(program(jax))
    np.testing.assert_allclose(ours(x), theirs(x), 1e-4)
    assert [k.name for k in ours.lower(x).compile().kernels].count("small_while") == 1
    back, theirs_back = tx.jit(tx.grad(program(tx))), jax.jit(jax.grad(program(jax)))
    np.testing.assert_allclose(back(x), theirs_back(x), 1e-3, 1e-4)
    text = back.lower(x).compile().as_text()
    assert program is ring or text.count("small_while") == 2, text


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("type", [*FLOATS, "c64", "c128"])
@pytest.mark.parametrize("sizes", [(4,), (9,), (4, 4)])
def test_costly_operations_on_several_elements(type: str, sizes: tuple[int, ...]) -> None:
    shape = Shape(element_type(type)).with_dimensions(sizes)

    def number(value: int) -> Any:
        return movement.full(value, np.dtype(np.int32), ())

    def body(count: Any, x: Any, y: Any) -> list[Any]:
        size = elementwise.exp(elementwise.neg(elementwise.mul(x, x)))
        return [
            elementwise.add(count, number(1)),
            elementwise.pow_(size, movement.full(1.5, shape.dtype, sizes)),
            elementwise.pow_(size, y),
        ]

    loop = computation(
        lambda *x: while_(
            *x,
            condition=computation(
                lambda count, *_: [elementwise.lt(count, number(3))], S32, shape, shape, as_tuple=False
            ),
            body=computation(body, S32, shape, shape),
        ),
        S32,
        shape,
        shape,
    )
    random = np.random.default_rng(len(sizes))
    arrays = [random.uniform(0.1, 1, sizes).astype(shape.dtype) for _ in range(2)]
    compiled = assert_compiled(loop, [np.asarray(0, np.int32), *arrays], TOLERANCE.get(type, 1e-5))
    assert [kernel.name for kernel in compiled.kernels] == ["small_while"]


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("function", [np.sin, np.cos, np.tan], ids=lambda function: function.__name__)
def test_huge_angles_in_a_loop_of_scalars(type: str, function: Any) -> None:
    angles = np.array([0, -1.5, 1e5, -131073, 2.0**20, 3e6, -1e10, 1e38, np.inf, np.nan], element_type(type).dtype)
    ours = tx.jit(lambda x: lax.map(getattr(tx.numpy, function.__name__), x))
    with tx.enable_x64(type == "f64"), np.errstate(invalid="ignore"):
        wanted = function(angles.astype(np.float64))
        np.testing.assert_allclose(ours(angles), wanted, 1e-6 if type == "f32" else 1e-14)


# --- lanes ------------------------------------------------------------------------------------------------------------


def escape(np_: Any) -> Callable[..., Any]:
    xp = np_.numpy

    def one(re: Any, im: Any) -> Any:
        def condition(s: Any) -> Any:
            return xp.logical_and(s[0] < 12, s[1] * s[1] + s[2] * s[2] < 4)

        def body(s: Any) -> Any:
            return s[0] + 1, s[1] * s[1] - s[2] * s[2] + re, 2 * s[1] * s[2] + im

        return np_.lax.while_loop(condition, body, (0, xp.float32(0), xp.float32(0)))

    return one


def roots(np_: Any) -> Callable[..., Any]:
    """By Newton's method, or none, or by a fixed number of steps: a switch of loops; with a table that lanes share."""
    xp = np_.numpy

    def newton(a: Any) -> Any:
        return np_.lax.while_loop(lambda x: xp.abs(x * x - a) > 1e-4 * a, lambda x: 0.5 * (x + a / x), a)

    def one(kind: Any, a: Any, table: Any) -> Any:
        a = a + table[kind]
        branches = [newton, lambda a: -a, lambda a: np_.lax.fori_loop(0, 8, lambda i, x: 0.5 * (x + a / x), a)]
        return np_.lax.switch(kind, branches, a)

    return one


def both(f: Callable[[Any], Callable[..., Any]], *arguments: Any, kernel: str | None = "small_lanes") -> None:
    ours, theirs = tx.jit(f(tx)), jax.jit(f(jax))
    for x, y in zip(jax.tree.leaves(ours(*arguments)), jax.tree.leaves(theirs(*arguments)), strict=True):
        np.testing.assert_allclose(x, y, 1e-3, 1e-4)
    names = [k.name for k in ours.lower(*arguments).compile().kernels]
    assert kernel is None or kernel in names, names
    found = ours.lower(*arguments).module(*arguments, backend="interpreter")
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(theirs(*arguments)), strict=True):
        np.testing.assert_allclose(x, y, 1e-3, 1e-4)


def test_lanes_of_loops() -> None:
    re, im = np.linspace(-2, 0.5, 11, dtype=np.float32), np.linspace(-1, 1, 9, dtype=np.float32)
    both(lambda np_: np_.vmap(escape(np_), (0, None)), re, np.float32(0.3))
    both(lambda np_: np_.vmap(np_.vmap(escape(np_), (0, None)), (None, 0)), re, im)


def test_lanes_share_and_hand_on() -> None:
    """Tables that lanes share or have of their own, in memory; values that do not change, or that nothing needs."""

    def f(np_: Any) -> Callable[..., Any]:
        def one(n: Any, x: Any, shared: Any, own: Any, unused: Any) -> Any:
            def body(s: Any) -> Any:
                return s[0] - 1, s[1] * 0.5 + shared[s[0]] - own[s[0]], *s[2:]

            return np_.lax.while_loop(lambda s: s[0] > 0, body, (n, x, own, unused))

        return np_.vmap(one, (0, 0, None, 0, 0))

    random = np.random.default_rng(0)
    count = 70  # more than are in lock step
    n = random.integers(0, 9, count).astype(np.int32)
    arrays = [random.normal(size=sizes).astype(np.float32) for sizes in ((count, 2), (100,), (count, 80), (count,))]
    both(f, n, *arrays)


def test_lanes_of_branches() -> None:
    kinds, a = np.arange(10, dtype=np.int32) % 4 - 0, np.linspace(0.5, 9, 10, dtype=np.float32)
    table = np.arange(3, dtype=np.float32)
    both(lambda np_: np_.vmap(roots(np_), (0, 0, None)), kinds, a, table)
    both(lambda np_: np_.vmap(roots(np_), (0, None, None)), kinds, np.float32(2), table)


def test_lanes_of_branches_whose_loops_are_eliminated() -> None:
    def f(np_: Any) -> Callable[..., Any]:
        unchanged = lambda y: (np_.lax.fori_loop(0, 5, lambda i, c: c, y), y)  # noqa: E731
        return np_.vmap(lambda k, x: np_.lax.cond(k, unchanged, lambda y: (y, -y), x))

    both(f, np.array([True, False, True]), np.arange(3, dtype=np.float32), kernel=None)


def test_branches_without_loops_are_selected() -> None:
    def f(np_: Any) -> Callable[..., Any]:
        return np_.vmap(lambda k, x: np_.lax.cond(k, np_.numpy.sin, np_.numpy.cos, x))

    both(f, np.array([True, False, True]), np.ones(3, np.float32), kernel="loop")


def test_lanes_that_are_not_small_run_in_lock_step() -> None:
    def f(np_: Any) -> Callable[..., Any]:
        def one(n: Any, x: Any) -> Any:
            body = lambda s: (s[0] - 1, np_.numpy.sin(s[1]))  # noqa: E731
            return np_.lax.while_loop(lambda s: s[0] > 0, body, (n, x))[1]

        return np_.vmap(one)

    n = np.array([0, 3, 5], np.int32)
    both(f, n, np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32), kernel=None)
    both(f, n, np.random.default_rng(0).normal(size=(3, 10)).astype(np.float32))


def test_lanes_change_memory_of_their_own() -> None:
    def f(np_: Any) -> Callable[..., Any]:
        def one(n: Any, x: Any) -> Any:
            return np_.lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1].at[s[0]].mul(2.0)), (n, x))[1]

        return np_.vmap(one)

    both(f, np.array([0, 3, 5], np.int32), np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32))


def test_derivatives_of_lanes() -> None:
    def f(np_: Any) -> Callable[..., Any]:
        def root(a: Any) -> Any:
            return np_.lax.while_loop(lambda x: np_.numpy.abs(x * x - a) > 1e-6 * a, lambda x: 0.5 * (x + a / x), a)

        return root

    a = np.linspace(2, 9, 5, dtype=np.float32)
    slopes = 0.5 / np.sqrt(a)
    np.testing.assert_allclose(tx.jit(tx.vmap(tx.grad(f(tx))))(a), slopes, 1e-3)
    np.testing.assert_allclose(tx.jit(tx.grad(lambda a: tx.numpy.sum(tx.vmap(f(tx))(a))))(a), slopes, 1e-3)
    moved = tx.jvp(tx.vmap(f(tx)), (a,), (np.ones_like(a),))[1]
    np.testing.assert_allclose(moved, slopes, 1e-3)


def test_lanes_do_not_depend_on_threads() -> None:
    re = np.random.default_rng(0).uniform(-2, 0.5, 5000).astype(np.float32)
    f = tx.jit(tx.vmap(escape(tx)))
    wanted = [f(re[k : k + 500], re[k : k + 500]) for k in range(0, 5000, 500)]
    for x, parts in zip(f(re, re), zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(x, np.concatenate(parts))
