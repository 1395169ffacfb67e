"""Loops over integers that are printed as loops of vectors: which ones, and what they compute."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.loopir.test_loop_ir import INTEGERS, UNSIGNED, dtype, run_address, run_python, values
from tinyxla import lax
from tinyxla.backends.numba.emit.vectorize_integer import kinds_of
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir.ir.loop_ir import INDEX, Builder, Index, Kernel, Literal, Loop, Value

COUNTS = [0, 1, 7, 8, 16, 63, 64, 65, 128, 200]


def over_a_line(
    type: str, count: int | None, body: Callable[[Builder, Value, Loop], None], folds: tuple[str, ...] = ()
) -> Kernel:
    """out[0], ... = folds of a loop with this body, of so many iterations, or as many as a number of the program's."""
    b = Builder("line")
    for kind in (type, type, INDEX):
        b.argument(kind)
    b.argument(type, written=True)
    out = b.argument(type, written=True)
    number = b.load(b.kernel.arguments[2], 0)
    stop: Index = number if count is None else count
    carried = [Literal(type, 3)] * len(folds)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True):
        with b.loop(0, stop, carried) as (i, loop):
            body(b, i, loop)
        for k, slot in enumerate(loop.carried):
            b.store(out, k, slot.result)
    return b.kernel


def check(kernel: Kernel, type: str, count: int) -> None:
    """The compiled kernel computes what the Python text does, and touches nothing else."""
    found: list[np.ndarray[Any, Any]] = []
    for run in (run_python, lambda kernel, *given: run_address(engine.compile_kernel(kernel, is_builtin=True), *given)):
        results = [np.full(300, 5, dtype(type)), np.full(4, 5, dtype(type))]
        inputs = [values(type, 1, 300), values(type, 2, 300), np.array([count])]
        run(kernel, [*inputs, *results], 0, 1)
        found.append(np.concatenate(results))
    np.testing.assert_array_equal(found[1], found[0])


def inner(kernel: Kernel) -> Loop:
    (outer,) = (x for x in kernel.body if isinstance(x, Loop))
    (found,) = (x for x in outer.body if isinstance(x, Loop))
    return found


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", INTEGERS)
def test_elements(type: str, is_known: bool) -> None:
    """Comparisons, shifts, conversions, places that are numbers, and what comes from around the loop."""

    def body(b: Builder, i: Value, loop: Loop) -> None:
        x, y, _, out = b.kernel.arguments[:4]
        one, other = b.load(x, b.add(i, 5)), b.load(y, i)
        before = b.convert(type, b.load(b.kernel.arguments[2], 0))
        moved = b.compute("shift-right-logical", type, one, b.and_(other, 3))
        mixed = b.compute("xor", type, b.shift_left(moved, 1), b.convert(type, i))
        wide = b.convert(type, b.compute("maximum", "u64", b.convert("u64", mixed), Literal("u64", 9)))
        less = b.or_(b.compare("LT", one, other), b.compare("EQ", other, Literal(type, 2)))
        b.store(out, i, b.select(less, b.compute("subtract", type, wide, before), b.compute("add", type, one, mixed)))

    for count in COUNTS:
        kernel = over_a_line(type, count if is_known else None, body)
        assert kinds_of(inner(kernel))
        check(kernel, type, count)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", INTEGERS)
def test_folds(type: str, is_known: bool) -> None:
    ops = ("minimum", "maximum", "and", "or")

    def body(b: Builder, i: Value, loop: Loop) -> None:
        for slot, op in zip(loop.carried, ops, strict=True):
            slot.next = b.compute(op, type, slot.arg, b.load(b.kernel.arguments[0], i))

    for count in COUNTS:
        kernel = over_a_line(type, count if is_known else None, body, ops)
        assert kinds_of(inner(kernel))
        check(kernel, type, count)


def _gathers(b: Builder, i: Value, loop: Loop) -> None:
    x, y, _, out = b.kernel.arguments[:4]
    b.store(out, i, b.load(x, b.convert(INDEX, b.and_(b.load(y, i), 63))))


def _strides(b: Builder, i: Value, loop: Loop) -> None:
    b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], b.mul(i, 2)))


def _repeats(b: Builder, i: Value, loop: Loop) -> None:
    b.store(b.kernel.arguments[3], 0, b.load(b.kernel.arguments[0], i))


def _sums(b: Builder, i: Value, loop: Loop) -> None:
    slot = loop.carried[0]
    slot.next = b.compute("add", slot.arg.type, slot.arg, b.load(b.kernel.arguments[0], i))


def _reads_what_it_carries(b: Builder, i: Value, loop: Loop) -> None:
    slot = loop.carried[0]
    slot.next = b.compute("maximum", slot.arg.type, slot.arg, b.load(b.kernel.arguments[0], i))
    b.store(b.kernel.arguments[3], i, slot.arg)


@pytest.mark.parametrize("body", [_gathers, _strides, _repeats, _sums, _reads_what_it_carries])
def test_other_loops_are_not_vectors(body: Callable[[Builder, Value, Loop], None]) -> None:
    kernel = over_a_line("u32", None, body, ("one",) * (body in (_sums, _reads_what_it_carries)))
    assert kinds_of(inner(kernel)) is None
    if body is not _repeats:
        check(kernel, "u32", 90)


def test_floats_are_left_to_llvm() -> None:
    def body(b: Builder, i: Value, loop: Loop) -> None:
        b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], i))

    assert kinds_of(inner(over_a_line("f32", None, body))) is None


@pytest.mark.parametrize("type", UNSIGNED)
def test_the_text_has_vectors_and_one_loop_for_the_rest(type: str) -> None:
    def body(b: Builder, i: Value, loop: Loop) -> None:
        b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], i))

    bits = int(type[1:])
    text = engine.kernel_text(over_a_line(type, None, body), is_builtin=True)
    assert len(re.findall(rf"load <{8 * engine.vector_bytes() // bits} x i{bits}>", text)) == 1
    assert len(re.findall(rf"load i{bits}, ptr %t", text)) - (type == "u64") == 1


SORTS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "a few": (lambda x: jnp.sort(x, axis=1), (3, 7)),
    "a line": (jnp.sort, (1000,)),
    "a long line": (jnp.argsort, (300_000,)),
    "lines": (jnp.sort, (9, 5000)),
    "rows": (lambda x: jnp.sort(x, axis=1), (500, 100)),
    "places in rows": (lambda x: jnp.argsort(x, axis=1), (500, 100)),
    "columns": (lambda x: jnp.sort(x, axis=0), (100, 500)),
    "few of a few": (lambda x: lax.top_k(x, 5), (100,)),
    "few of many": (lambda x: lax.top_k(x, 10), (1_000_000,)),
    "many": (lambda x: lax.top_k(x, 1000), (100_000,)),
    "most": (lambda x: lax.top_k(x, 5000), (100_000,)),
}


@pytest.mark.parametrize("which", SORTS)
def test_kernels_that_sort_need_few_passes(which: str) -> None:
    function, shape = SORTS[which]
    kernels = tx.jit(function).lower(tx.ShapeDtypeStruct(shape, jnp.float32)).compile().kernels
    for kernel in kernels:
        assert engine._pipeline(kernel._kernel.body, is_builtin=True) == "inline", kernel.name  # pyright: ignore[reportPrivateUsage]
