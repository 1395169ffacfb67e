"""Superword-level parallelism: which scalars become lanes of vectors, and that kernels compute what they did."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.loopir.test_loop_ir import run_address, run_python, values
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir.ir.loop_ir import (
    Buffer,
    Builder,
    Kernel,
    Literal,
    Load,
    Loop,
    Operand,
    Shuffle,
    Statement,
    Store,
    Value,
)
from tinyxla.loopir.passes.slp_vectorize import slp_vectorized

TYPES = ["f32", "f64", "f16", "bf16", "s32", "u32", "s64", "u8"]
Arrays = Sequence[np.ndarray[Any, Any]]


def small_arrays(body: Callable[[Builder, list[Buffer], list[Buffer]], None], type: str = "f32") -> Kernel:
    """A kernel of a single iteration over two arrays that it reads, and three that it writes and may read."""
    b = Builder("small")
    sources = [b.argument(type) for _ in range(2)]
    targets = [b.argument(type, written=True) for _ in range(3)]
    with b.loop(b.kernel.first, b.kernel.last, sequential=True):
        body(b, sources, targets)
    return b.kernel


def all_statements(statements: Sequence[Statement]) -> Iterator[Statement]:
    for x in statements:
        yield x
        if isinstance(x, Loop):
            yield from all_statements(x.body)


def lanes(kernel: Kernel, kind: type[Load | Store], width: int = 64) -> list[int]:
    """The lanes of all loads or stores of a vectorized kernel."""
    found = all_statements(slp_vectorized(kernel, width).body)
    values = [x.result if isinstance(x, Load) else x.value for x in found if isinstance(x, kind)]
    return [x.lanes if isinstance(x, Value) else 1 for x in values]


def check(kernel: Kernel, type: str = "f32") -> None:
    """The scalar kernel and its vectors, for registers of several sizes and in Python, give the same numbers."""

    def run(way: Callable[[Kernel, Arrays], None], kernel: Kernel) -> Arrays:
        arrays = [values(type, k, 40) for k in range(5)]
        way(kernel, arrays)
        return arrays

    def python(kernel: Kernel, arrays: Arrays) -> None:
        run_python(kernel, arrays, 0, 1)

    def native(kernel: Kernel, arrays: Arrays) -> None:
        text = print_llvm(kernel)
        run_address(engine.compile_llvm(text, [kernel.name])[kernel.name], arrays, 0, 1)

    expected = run(python, kernel)
    for vectors in (kernel, *(slp_vectorized(kernel, width) for width in (16, 32, 64))):
        for way in (python, native):
            for x, y in zip(run(way, vectors), expected, strict=True):
                np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))


def elementwise(b: Builder, sources: list[Buffer], targets: list[Buffer], count: int) -> None:
    type = sources[0].type
    x, y = ([b.load(source, k) for k in range(count)] for source in sources)
    for k in range(count):
        less = b.compare("LT", x[k], y[0])
        b.store(targets[0], k, b.select(less, y[k], b.compute("maximum", type, x[k], Literal(type, 1))))


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("count", [3, 4, 7, 8, 21])
def test_elementwise(type: str, count: int) -> None:
    kernel = small_arrays(lambda b, x, y: elementwise(b, x, y, count), type)
    check(kernel, type)


def test_vectors_have_powers_of_two_lanes_up_to_a_register() -> None:
    kernel = small_arrays(lambda b, x, y: elementwise(b, x, y, 23))
    assert lanes(kernel, Store) == [16, 4, 1, 1, 1]
    assert lanes(kernel, Store, 16) == [4, 4, 4, 4, 4, 1, 1, 1]
    assert lanes(small_arrays(lambda b, x, y: elementwise(b, x, y, 23), "f64"), Store, 16) == [1] * 23


def carried(b: Builder, sources: list[Buffer], targets: list[Buffer]) -> None:
    """Two arrays that a loop rotates, one of which begins with zeros, and a scalar."""
    number = b.load(sources[0], 0)
    x = [b.load(sources[0], k) for k in range(8)]
    with b.loop(0, 5, [*x, *[Literal("f32", 0.0)] * 8, number], sequential=True) as (_, loop):
        x, y = ([slot.arg for slot in loop.carried[first : first + 8]] for first in (0, 8))
        total = b.compute("add", "f32", loop.carried[16].arg, x[3])
        added = [b.compute("multiply", "f32", b.compute("add", "f32", *pair), total) for pair in zip(x, y, strict=True)]
        for slot, following in zip(loop.carried, [*y, *added, total], strict=True):
            slot.next = following
    for k, slot in enumerate(loop.carried[:8]):
        b.store(targets[0], k, slot.result)
    b.store(targets[1], 0, loop.carried[16].result)


def test_values_that_loops_carry() -> None:
    kernel = small_arrays(carried)
    check(kernel)
    assert lanes(kernel, Load) == [8]
    loops = [x for x in all_statements(slp_vectorized(kernel, 64).body) if isinstance(x, Loop)]
    assert [[c.arg.lanes for c in loop.carried] for loop in loops] == [[], [8, 8, 1]]


def test_a_lane_that_is_needed_as_a_scalar_is_extracted_where_the_vector_is() -> None:
    def body(b: Builder, sources: list[Buffer], targets: list[Buffer]) -> None:
        x = [b.load(sources[0], k) for k in range(4)]
        for k in range(4):
            b.store(targets[0], k, x[k])
        b.store(targets[1], 9, x[2])

    kernel = small_arrays(body)
    check(kernel)
    assert lanes(kernel, Load) == [4]
    assert [x.order for x in all_statements(slp_vectorized(kernel, 64).body) if isinstance(x, Shuffle)] == [(2,)]


def test_a_scalar_that_is_needed_before_all_lanes_are_there_is_not_packed() -> None:
    def body(b: Builder, sources: list[Buffer], targets: list[Buffer]) -> None:
        x = [b.load(sources[0], 0)]
        for k in range(1, 4):
            x.append(b.compute("add", "f32", b.load(sources[0], k), x[-1]))
        for k in range(4):
            b.store(targets[0], k, x[k])

    kernel = small_arrays(body)
    check(kernel)
    assert lanes(kernel, Store) == [1, 1, 1, 1]


@pytest.mark.parametrize("element", [2, 9])
def test_accesses_do_not_pass_stores_to_the_same_elements(element: int) -> None:
    """Neither loads nor stores; those of other elements do not matter."""

    def body(b: Builder, sources: list[Buffer], targets: list[Buffer]) -> None:
        x: list[Operand] = []
        for k in range(4):
            x.append(b.load(targets[0], k))
            if k == 2:
                b.store(targets[0], element, Literal("f32", 3.0))
        for k in range(4):
            b.store(targets[1], k, x[k])
            if k == 2:
                b.store(targets[2], 0, b.load(targets[1], element))

    kernel = small_arrays(body)
    check(kernel)
    assert (4 in lanes(kernel, Store)) == (element == 9)


def test_elements_at_unknown_indices_may_be_any() -> None:
    def body(b: Builder, sources: list[Buffer], targets: list[Buffer]) -> None:
        x: list[Operand] = []
        for k in range(4):
            x.append(b.load(targets[0], k))
            if k == 2:
                b.store(targets[0], b.convert("s64", b.load(sources[1], 2)), Literal("f32", 3.0))
        for k in range(4):
            b.store(targets[1], k, x[k])

    assert lanes(small_arrays(body), Store) == [1] * 5


class _RandomKernel:
    """Statements about arrays of a few elements: element by element, mixed up, in loops and conditionals, in place."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = self.random.choice([4, 5, 8, 11])

    def __call__(self, b: Builder, sources: list[Buffer], targets: list[Buffer]) -> None:
        self.buffers, self.targets = [*sources, *targets], targets
        known = [self._loaded(b) for _ in range(2)]
        self._block(b, known, 2)
        for target in targets:
            self._store(b, target, self.random.choice(known))

    def _loaded(self, b: Builder) -> list[Operand]:
        buffer, first = self.random.choice(self.buffers), self.random.randrange(3)
        return [b.load(buffer, first + k) for k in range(self.count)]

    def _store(self, b: Builder, target: Buffer, x: list[Operand]) -> None:
        first = self.random.randrange(3)
        order = self._order()
        for k in order:
            b.store(target, first + k, x[k])

    def _order(self) -> list[int]:
        order = list(range(self.count))
        if self.random.random() < 0.2:
            self.random.shuffle(order)
        return order

    def _block(self, b: Builder, known: list[list[Operand]], depth: int) -> None:
        for _ in range(self.random.randrange(2, 7)):
            match self.random.randrange(8 if depth else 6):
                case 0:
                    known.append(self._loaded(b))
                case 1:
                    self._store(b, self.random.choice(self.targets), self.random.choice(known))
                case 2:
                    x = self.random.choice(known)
                    known.append([x[k] for k in self._order()])
                case 3:
                    x = self.random.choice(known)
                    known.append([self.random.choice(x)] * self.count)
                case 4 | 5:
                    known.append(self._computed(b, known))
                case _:
                    self._loop(b, known, depth)

    def _computed(self, b: Builder, known: list[list[Operand]]) -> list[Operand]:
        x, y = (self.random.choice(known) for _ in range(2))
        op = self.random.choice(["add", "multiply", "maximum", "select"])
        result: list[Operand] = [Literal("s32", 0)] * self.count
        for k in self._order():
            if op == "select":
                result[k] = b.select(b.compare("LT", x[k], y[k]), y[k], Literal("s32", 7))
            else:
                result[k] = b.compute(op, "s32", x[k], y[k])
            if self.random.random() < 0.03:
                b.store(self.random.choice(self.targets), self.random.randrange(30), result[k])
        return result

    def _loop(self, b: Builder, known: list[list[Operand]], depth: int) -> None:
        initial = [self.random.choice(known), [Literal("s32", 0)] * self.count]
        stop: Any = self.random.randrange(3)
        if self.random.random() < 0.5:
            stop = b.convert("s64", b.compare("LT", initial[0][0], Literal("s32", 3)))
        with b.loop(0, stop, [*initial[0], *initial[1]], sequential=True) as (_, loop):
            within = known.copy()
            for first in (0, self.count):
                within.append([slot.arg for slot in loop.carried[first : first + self.count]])
            self._block(b, within, depth - 1)
            following = [*self.random.choice(within), *self.random.choice(within)]
            for slot, x in zip(loop.carried, following, strict=True):
                slot.next = x
        for first in (0, self.count):
            known.append([slot.result for slot in loop.carried[first : first + self.count]])


@pytest.mark.parametrize("seed", range(40))
def test_random_kernels(seed: int) -> None:
    check(small_arrays(_RandomKernel(seed), "s32"), "s32")
