"""Loops whose elements do not meet are one kernel: random bodies against the interpreter, and what must stay a loop of
the schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.backends.numba import CompiledModule
from tinyxla.hlo import Module
from tinyxla.ops import calls, dynamic_slices, elementwise, movement
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms import while_

Array = np.ndarray[Any, Any]
TYPES = ("f32", "f64", "f16", "bf16", "s32", "u8", "c64")
SPACES = ((70,), (3000,), (5, 40), (3, 1, 100), (40, 7, 33))
STEPS = 5


def kinds_of_steps(compiled: Any) -> list[str]:
    return [step.kind for step in compiled.report().steps]


def assert_one_kernel(function: Callable[..., Sequence[Any]], arguments: Sequence[Array]) -> None:
    made = trace(function, [Shape.of(x) for x in arguments], "test")[0]
    before = [x.copy() for x in arguments]
    wanted = calls.evaluate(made, arguments)
    compiled = CompiledModule(Module("test", made))
    assert "while" not in kinds_of_steps(compiled)
    for _ in range(2):
        for x, y in zip(compiled(arguments), wanted, strict=True):
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            tolerance = {2: 5e-2, 8: 1e-5}.get(x.dtype.itemsize, 1e-5)
            np.testing.assert_allclose(x.astype(wide), y.astype(wide), tolerance, tolerance)
    for x, y in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(x, y)


def broadcast(x: Any, sizes: tuple[int, ...]) -> Any:
    """Along the last dimensions."""
    first = len(sizes) - x.ndim
    return movement.broadcast(x, sizes=sizes, dimensions=tuple(range(first, len(sizes))))


class Bodies:
    """Draws what a step makes of two arrays, a counter, a scalar, and arrays that stay."""

    def __init__(self, seed: int, type: str, space: tuple[int, ...]) -> None:
        self.random, self.space = np.random.default_rng(seed), space
        self.dtype = element_type(type).dtype
        self.is_float = type[0] in ("f", "b")

    def array(self, *sizes: int) -> Array:
        if self.dtype.kind == "c":
            return np.asarray(self.array_of(sizes) + 1j * self.array_of(sizes), self.dtype)
        return self.array_of(sizes).astype(self.dtype)

    def array_of(self, sizes: tuple[int, ...]) -> Array:
        return self.random.uniform(0, 3, sizes) if self.dtype.kind in "iu" else self.random.uniform(-1, 1, sizes)

    def some(self, of: Sequence[Any], depth: int) -> Any:
        if not depth:
            return of[self.random.integers(len(of))]
        x, y = self.some(of, depth - 1), self.some(of, depth - 1)
        way = self.random.integers(6)
        if way == 0 and self.is_float:
            return elementwise.sin(x)
        if way == 1 and self.dtype.kind != "c":
            return elementwise.max_(x, y)
        if way == 2 and self.dtype.kind != "c":
            smaller = elementwise.compare(x, y, direction="LT", type=elementwise.comparison_type(self.dtype))
            return elementwise.select(smaller, x, y)
        if way == 3:
            return elementwise.sub(x, y)
        return elementwise.add(x, y) if way == 4 or not self.is_float else elementwise.mul(x, y)

    def run(self, reverse: bool) -> tuple[Callable[..., Sequence[Any]], list[Array]]:
        space, zero = self.space, jnp.int32(0)
        zeros = (zero,) * len(space)

        def row(x: Any, t: Any) -> Any:
            part = dynamic_slices.dynamic_slice(x, t, *zeros, dynamic_slice_sizes=(1, *space))
            return movement.reshape_to(part, space)

        def put(x: Any, y: Any, t: Any) -> Any:
            return dynamic_slices.dynamic_update_slice(x, movement.reshape_to(y, (1, *space)), t, *zeros)

        def body(t: Any, x: Any, y: Any, number: Any, bias: Any, sequence: Any, added: Any, made: Any) -> list[Any]:
            place = elementwise.sub(jnp.int32(STEPS - 1), t) if reverse else t
            of = [x, y, broadcast(number, space), broadcast(bias, space), row(sequence, place), row(added, place)]
            new, other = self.some(of, 2), self.some(of, 1)
            whole = put(added, self.some([*of, new], 1), place)
            values = {0: [new, x], 1: [y, new], 2: [new, other]}[int(self.random.integers(3))]
            grown = elementwise.add(number, number)
            return [elementwise.add(t, jnp.int32(1)), *values, grown, bias, sequence, whole, put(made, other, place)]

        def condition(t: Any, *_: Any) -> list[Any]:
            return [elementwise.compare(t, jnp.int32(STEPS), direction="LT", type="SIGNED")]

        arguments = [
            np.zeros((), np.int32),
            self.array(*space),
            self.array(*space),
            self.array(),
            self.array(space[-1]),
            *(self.array(STEPS, *space) for _ in range(3)),
        ]
        shapes = [Shape.of(x) for x in arguments]
        goes_on, step = trace(condition, shapes, "condition")[0], trace(body, shapes, "body")[0]
        goes_on = type(goes_on)(goes_on.name, goes_on.parameters, goes_on.instructions[:-1], goes_on.outputs[0])
        taken = sorted(self.random.permutation(len(shapes))[:5].tolist())

        def function(*x: Any) -> list[Any]:
            found = while_(*x, condition=goes_on, body=step, known_trip_count=STEPS)
            return [found[k] for k in {1, *taken}]

        return function, arguments


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("space", SPACES)
def test_random_bodies(type: str, space: tuple[int, ...]) -> None:
    for seed in range(4):
        assert_one_kernel(*Bodies(seed, type, space).run(reverse=seed % 2 == 1))


def of_jit(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The kinds of steps of a compiled function, whose results must be those of the interpreter."""
    with tx.disable_jit():
        wanted = tx.tree_util.tree_leaves(function(*arguments))
    compiled = tx.jit(function).lower(*arguments).compile()
    for x, y in zip(tx.tree_util.tree_leaves(compiled(*arguments)), wanted, strict=True):
        np.testing.assert_allclose(x, y, 1e-4, 1e-4)
    return kinds_of_steps(compiled)


X = np.random.default_rng(3).standard_normal((6, 200)).astype(np.float32)


def decays(c: Any, x: Any) -> tuple[Any, Any]:
    c = jnp.sin(0.9 * c + x)
    return c, c * c


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("unroll", [1, 2, 4])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_and_their_gradients(unroll: int, reverse: bool) -> None:
    def scan(x: Any) -> Any:
        return lax.scan(decays, x[0], x, unroll=unroll, reverse=reverse)

    assert "while" not in of_jit(scan, X)
    found = of_jit(tx.grad(lambda x: scan(x)[1].sum()), X)
    assert unroll > 1 or "while" not in found


def test_sines_of_large_numbers_are_taken_again() -> None:
    def scan(x: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.sin(c + t), c), x[0], x)

    assert "while" not in of_jit(scan, np.where(np.arange(200) == 70, np.float32(1e7), X))


def test_numbers_and_counters_are_carried_too() -> None:
    def integrate(y: Any, t: Any) -> Any:
        return lax.fori_loop(0, 7, lambda k, s: (s[0] + 0.1 * s[1] * k, s[1] * 1.5, s[1]), (y, t, t))

    assert "while" not in of_jit(integrate, X[0], np.float32(0.5))


def test_rows_along_another_dimension() -> None:
    def fill(x: Any) -> Any:
        def body(k: Any, s: Any) -> Any:
            value = s[0] * 0.5 + k
            return value, lax.dynamic_update_slice(s[1], value[:, None, :], (0, 3 - k, 0))

        return lax.fori_loop(0, 4, body, (x, jnp.zeros((6, 4, 200), "float32")))

    assert "while" not in of_jit(fill, X)


def test_a_stack_that_only_the_loop_reads() -> None:
    def body(k: Any, s: Any) -> Any:
        kept = lax.dynamic_update_index_in_dim(s[1], s[0], k, 0)
        return s[0] * 0.5 + kept[k // 2], kept

    def before(k: Any, s: Any) -> Any:
        value = s[0] * 0.5 + s[1][k // 2]
        return value, lax.dynamic_update_index_in_dim(s[1], value, k, 0)

    start = (X[0], X)
    assert "while" not in of_jit(lambda x, y: lax.fori_loop(0, 6, before, (x, y))[0], *start)
    assert "while" in of_jit(lambda x, y: lax.fori_loop(0, 6, body, (x, y))[0], *start)  # of what a step has written


@pytest.mark.parametrize(
    "step",
    [
        lambda k, x: x[::-1] * 0.5,
        lambda k, x: jnp.roll(x, 1),
        lambda k, x: x - x.sum(),
        lambda k, x: x + x[3],
        lambda k, x: jnp.cumsum(x) * 0.1,
    ],
)
def test_elements_that_meet_stay_a_loop(step: Callable[[Any, Any], Any]) -> None:
    assert "while" in of_jit(lambda x: lax.fori_loop(0, 5, step, x), X[0])


def test_rows_of_other_elements_stay_a_loop() -> None:
    def body(k: Any, s: Any) -> Any:
        x, rows = s
        return x + rows[k, ::-1], lax.dynamic_update_index_in_dim(rows, x, k, 0)

    assert "while" in of_jit(lambda x: lax.fori_loop(0, 6, body, (x[0], x)), X)
    mixed = lambda k, s: (s[0] * 0.5, s[1] + 1)  # noqa: E731
    assert "while" in of_jit(lambda x: lax.fori_loop(0, 6, mixed, (x[0], x)), X)


@pytest.mark.parametrize("size", [31, 32, 64])
def test_what_fills_vectors_is_no_scalars(size: int) -> None:
    def smoothed(rows: Any) -> Any:
        def step(total: Any, row: Any) -> tuple[Any, Any]:
            total = 0.9 * total + 0.1 * row
            return total, total

        return lax.scan(step, jnp.zeros(size), rows)[1]

    rows = np.random.default_rng(size).standard_normal((40, size)).astype(np.float32)
    compiled = tx.jit(smoothed).lower(rows).compile()
    expected = "small_while" if size < 32 else "elements"
    assert any(line.split()[1:2] == [expected] for line in compiled.as_text().splitlines()), compiled.as_text()
    total, wanted = np.zeros(size), []
    for row in rows:
        total = 0.9 * total + 0.1 * row
        wanted.append(total)
    np.testing.assert_allclose(compiled(rows), wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("unknowns", [4, 16])
def test_systems_are_solved_in_a_loop(unknowns: int) -> None:
    def sums(matrices: Any, right: Any, shifts: Any) -> Any:
        def step(total: Any, shift: Any) -> tuple[Any, None]:
            return total + shift * jnp.linalg.solve(matrices[0] + matrices[1] * shift, right), None

        return lax.scan(step, jnp.zeros_like(right), shifts)[0]

    eye = np.eye(unknowns)
    matrices = np.array([np.arange(unknowns**2).reshape(unknowns, unknowns) % 7 / 50, eye], np.complex64)
    right = np.arange(3 * unknowns).reshape(unknowns, 3).astype(np.complex64)
    shifts = np.array([2, 3 + 1j, 4j, 5], np.complex64)
    wanted = sum(s * np.linalg.solve(matrices[0] + matrices[1] * s, right) for s in shifts)
    np.testing.assert_allclose(tx.jit(sums)(matrices, right, shifts), wanted, rtol=1e-4)
