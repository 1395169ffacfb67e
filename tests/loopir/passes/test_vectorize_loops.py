"""Loop vectorization: which loops become loops over vectors, and what they compute with and without masks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.loopir.test_loop_ir import FLOATS, INTEGERS, dtype, run_address, run_python, values
from tinyxla import lax, nn
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir.ir.loop_ir import INDEX, Builder, Index, Kernel, Literal, Load, Loop, Value
from tinyxla.loopir.passes.vectorize_loops import are_vectorizable, kinds_of, vectorized
from tinyxla.loopir.target import has_masks, vector_bytes

COUNTS = [0, 1, 7, 9, 16, 33, 64, 65, 200]
Body = Callable[[Builder, Value, Loop], None]


def over_a_line(type: str, count: int | None, body: Body, initials: Sequence[float] = (), result: str = "") -> Kernel:
    """A loop with this body, of so many iterations, or as many as the third argument says, which stores the results of
    its loop-carried values."""
    b = Builder("line")
    for kind in (type, type, INDEX):
        b.argument(kind)
    b.argument(result or type, written=True)
    out = b.argument(type, written=True)
    number = b.load(b.kernel.arguments[2], 0)
    stop: Index = number if count is None else count
    carried = [Literal(type, x) for x in initials]
    with b.loop(b.kernel.first, b.kernel.last, sequential=True):
        with b.loop(0, stop, carried) as (i, loop):
            body(b, i, loop)
        for k, slot in enumerate(loop.carried):
            b.store(out, k, slot.result)
    return b.kernel


def inner(kernel: Kernel) -> Loop:
    (outer,) = (x for x in kernel.body if isinstance(x, Loop))
    (found,) = (x for x in outer.body if isinstance(x, Loop))
    return found


def run_vectors(width: int, masks: bool) -> Callable[..., None]:
    """Run a kernel whose loops are vectorized for registers of so many bytes."""

    def run(kernel: Kernel, arrays: Sequence[np.ndarray[Any, Any]], first: int, last: int) -> None:
        text = print_llvm(vectorized(kernel, width, masks), vector_bytes=width)
        run_address(engine.compile_llvm(text, [kernel.name])[kernel.name], arrays, first, last)

    return run


def run_vectors_in_python(kernel: Kernel, *given: Any) -> None:
    run_python(vectorized(kernel, 64, has_masks=True), *given)


def check(kernel: Kernel, type: str, count: int, rtol: float = 0, result: str = "") -> None:
    """All forms of a kernel compute what its Python text does, and touch nothing else."""
    ways = [run_python, run_vectors(16, False), run_vectors(32, False), run_vectors_in_python]
    if has_masks():
        ways += [run_vectors(64, True), run_vectors(32, True)]
    found: list[list[np.ndarray[Any, Any]]] = []
    for run in ways:
        results = [np.full(300, 1, dtype(result or type)), np.full(4, 1, dtype(type))]
        inputs = [values(type, 1, 300), values(type, 2, 300), np.array([count])]
        run(kernel, [*inputs, *results], 0, 1)
        found.append([x.astype(np.float64) if rtol else x for x in results])
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_allclose(y, x, rtol, 0) if rtol else np.testing.assert_array_equal(y, x)


def _elements(b: Builder, i: Value, loop: Loop) -> None:
    """Comparisons, shifts, conversions, indices that are numbers, and what comes from around the loop."""
    type = b.kernel.arguments[0].type
    x, y, _, out = b.kernel.arguments[:4]
    one, other = b.load(x, b.add(i, 5)), b.load(y, i)
    before = b.convert(type, b.load(b.kernel.arguments[2], 0))
    moved = b.compute("shift-right-logical", type, one, b.and_(other, 3))
    mixed = b.compute("xor", type, b.shift_left(moved, 1), b.convert(type, i))
    wide = b.convert(type, b.compute("maximum", "u64", b.convert("u64", mixed), Literal("u64", 9)))
    less = b.or_(b.compare("LT", one, other), b.compare("EQ", other, Literal(type, 2)))
    b.store(out, i, b.select(less, b.compute("subtract", type, wide, before), b.compute("add", type, one, mixed)))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", INTEGERS)
def test_integers(type: str, is_known: bool) -> None:
    for count in COUNTS:
        kernel = over_a_line(type, count if is_known else None, _elements)
        assert kinds_of(inner(kernel))
        check(kernel, type, count)


def _float_elements(b: Builder, i: Value, loop: Loop) -> None:
    """Arithmetic with literals, signs of zeros, an index as a number, a uniform value, and a quotient by a constant."""
    type = b.kernel.arguments[0].type
    x, y, number, out = b.kernel.arguments[:4]
    one, other = b.load(x, b.add(i, 5)), b.load(y, i)
    scale = b.compute("multiply", type, b.convert(type, b.load(number, 0)), Literal(type, 0.5))
    zero = b.compute("multiply", type, Literal(type, -0.0), b.compute("abs", type, one))
    chosen = b.select(b.compare("LT", one, other), b.compute("negate", type, one), zero)
    summed = b.compute("add", type, b.compute("divide", type, chosen, Literal(type, 49.0)), scale)
    b.store(out, i, b.compute("maximum", type, summed, b.convert(type, b.convert("s32", i))))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", FLOATS)
def test_floats(type: str, is_known: bool) -> None:
    for count in COUNTS:
        kernel = over_a_line(type, count if is_known else None, _float_elements)
        assert kinds_of(inner(kernel))
        check(kernel, type, count, 2 * float(jnp.finfo(dtype(type)).eps))


@pytest.mark.parametrize("type", ["f32", "s8", "bf16"])
def test_predicates_are_stored_as_bytes(type: str) -> None:
    def body(b: Builder, i: Value, loop: Loop) -> None:
        x, y, _, out = b.kernel.arguments[:4]
        b.store(out, i, b.compare("LT", b.load(x, i), b.load(y, i)))

    for count in COUNTS:
        check(over_a_line(type, count, body, result="pred"), type, count, result="pred")


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", INTEGERS)
@pytest.mark.parametrize("ops", [("minimum", "maximum", "and", "or"), ("add", "multiply")])
def test_reductions_of_integers(ops: tuple[str, ...], type: str, is_known: bool) -> None:
    def body(b: Builder, i: Value, loop: Loop) -> None:
        for slot, op in zip(loop.carried, ops, strict=True):
            slot.next = b.compute(op, type, slot.arg, b.load(b.kernel.arguments[0], i))

    for count in COUNTS:
        kernel = over_a_line(type, count if is_known else None, body, [3] * len(ops))
        assert kinds_of(inner(kernel))
        check(kernel, type, count)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", ["f32", "f64"])
def test_sums_products_and_extrema_of_floats(type: str, is_known: bool) -> None:
    """With a second operation on the element, and a store beside the reductions."""

    def body(b: Builder, i: Value, loop: Loop) -> None:
        x, out = b.kernel.arguments[0], b.kernel.arguments[3]
        element = b.compute("clamp", type, Literal(type, 0.5), b.load(x, b.add(i, 10)), Literal(type, 1.5))
        total, product, largest, least = loop.carried
        total.next = b.compute("add", type, total.arg, element, reassociate=True)
        product.next = b.compute("multiply", type, element, product.arg, reassociate=True)
        largest.next = b.compute("maximum", type, largest.arg, element)
        least.next = b.compute("minimum", type, least.arg, element)
        b.store(out, i, element)

    for count in COUNTS:
        kernel = over_a_line(type, count if is_known else None, body, [2.0, 3.0, -math.inf, math.inf])
        assert kinds_of(inner(kernel))
        check(kernel, type, count, 1e-5 if type == "f32" else 1e-13)


@pytest.mark.parametrize("place", [0, 3, 16, 40])
def test_extrema_with_a_nan_are_nan(place: int) -> None:
    x = jnp.ones((5, 41)).at[2, place].set(jnp.nan)
    assert np.isnan(tx.jit(lambda x: x.max(1))(x)).tolist() == [False, False, True, False, False]


def test_gathers() -> None:
    """Elements at loaded indices, clamped into bounds, and those with a large stride."""
    x = np.arange(200.0 * 33, dtype=np.float32).reshape(200, 33)
    which = np.array([3, -1, 500, 7, 0] * 10)
    taken = tx.jit(lambda x, k: jnp.take(x, k, axis=1, mode="clip") + 1)(x, which)
    np.testing.assert_array_equal(taken, np.take(x, which, 1, mode="clip") + 1)
    np.testing.assert_allclose(tx.jit(lambda x: (x.T * 2).sum(1))(x), x.sum(0) * 2, rtol=1e-6)


def _gathers_bytes(b: Builder, i: Value, loop: Loop) -> None:
    x, y, _, out = b.kernel.arguments[:4]
    b.store(out, i, b.load(x, b.convert(INDEX, b.and_(b.load(y, i), 63))))


def _strides(b: Builder, i: Value, loop: Loop) -> None:
    b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], b.mul(i, 2)))


def _stores_at_one_index(b: Builder, i: Value, loop: Loop) -> None:
    b.store(b.kernel.arguments[3], 0, b.load(b.kernel.arguments[0], i))


def _reads_what_it_carries(b: Builder, i: Value, loop: Loop) -> None:
    slot = loop.carried[0]
    slot.next = b.compute("maximum", slot.arg.type, slot.arg, b.load(b.kernel.arguments[0], i))
    b.store(b.kernel.arguments[3], i, slot.arg)


def _reads_the_next_value(b: Builder, i: Value, loop: Loop) -> None:
    slot = loop.carried[0]
    slot.next = b.compute("maximum", slot.arg.type, slot.arg, b.load(b.kernel.arguments[0], i))
    b.store(b.kernel.arguments[3], i, slot.next)


@pytest.mark.parametrize(
    "body", [_gathers_bytes, _strides, _stores_at_one_index, _reads_what_it_carries, _reads_the_next_value]
)
def test_other_loops_are_left_to_llvm(body: Body) -> None:
    kernel = over_a_line("u8", None, body, (3,) * (body in (_reads_what_it_carries, _reads_the_next_value)))
    assert kinds_of(inner(kernel)) is None
    assert not are_vectorizable(kernel.body, 64, True)
    if body is not _stores_at_one_index:
        check(kernel, "u8", 90)


def test_sums_in_order_are_left_to_llvm() -> None:
    """A sum of floats that may not be reassociated, and operations with slow paths."""

    def in_order(b: Builder, i: Value, loop: Loop) -> None:
        slot = loop.carried[0]
        slot.next = b.compute("add", "f32", slot.arg, b.load(b.kernel.arguments[0], i))

    def slow_path(b: Builder, i: Value, loop: Loop) -> None:
        b.store(b.kernel.arguments[3], i, b.compute("sine", "f32", b.load(b.kernel.arguments[0], i)))

    assert kinds_of(inner(over_a_line("f32", None, in_order, [0.0]))) is None
    assert kinds_of(inner(over_a_line("f32", None, slow_path))) is None


def _interleaved(stride: int, order: Sequence[int], offset: int) -> Body:
    """Rows of `stride` elements from an offset on: loaded, and stored in some order, with an index from around."""

    def body(b: Builder, i: Value, loop: Loop) -> None:
        x, y, _, out = b.kernel.arguments[:4]
        row = b.add(b.mul(i, stride), offset, b.load(b.kernel.arguments[2], 0))
        elements = [b.load(x, b.add(row, k)) for k in range(stride)]
        factor = b.load(y, i)
        for k in order:
            b.store(out, b.add(row, k), b.compute("multiply", x.type, elements[k], factor if k else elements[1]))

    return body


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("type", ["f32", "f64", "bf16", "u8", "s64"])
@pytest.mark.parametrize(("stride", "order"), [(2, (0, 1)), (2, (1, 0)), (4, (2, 0, 3, 1))])
def test_interleaved_access_groups(stride: int, order: Sequence[int], type: str, is_known: bool) -> None:
    for count in (1, 7, 16, 33, 49):
        kernel = over_a_line(type, count if is_known else None, _interleaved(stride, order, 3))
        assert kinds_of(inner(kernel))
        check(kernel, type, count, 1e-9 if type == "bf16" else 0)


def test_incomplete_groups_are_left_to_llvm() -> None:
    """Those without all elements of a row, whose rows overlap, or whose order matters."""

    def loads(b: Builder, i: Value, loop: Loop) -> None:
        b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], b.mul(i, 2)))

    def rows_apart(b: Builder, i: Value, loop: Loop) -> None:
        x, row = b.kernel.arguments[0], b.mul(i, 4)
        b.store(b.kernel.arguments[3], i, b.compute("add", "f32", b.load(x, row), b.load(x, b.add(row, 1))))

    def reads_what_it_stores(b: Builder, i: Value, loop: Loop) -> None:
        out, row = b.kernel.arguments[3], b.mul(i, 2)
        b.store(out, row, b.load(b.kernel.arguments[0], i))
        b.store(out, b.add(row, 1), b.load(out, i))

    for body in (loads, rows_apart, reads_what_it_stores):
        assert kinds_of(inner(over_a_line("f32", None, body))) is None


def test_short_loops_are_vectors_if_there_are_no_outer_iterations() -> None:
    def body(b: Builder, i: Value, loop: Loop) -> None:
        b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], i))

    found = [
        [are_vectorizable(over_a_line("f32", count, body).body, 64, True, is_scalar) for count in (2, 3, 4, 6, 8, 9)]
        for is_scalar in (False, True)
    ]
    assert found == [[False, False, False, False, False, True], [False, False, True, False, True, True]]


@pytest.mark.parametrize("type", ["u8", "u16", "u32", "u64", "f32", "f64"])
def test_widths_of_vectors(type: str) -> None:
    def body(b: Builder, i: Value, loop: Loop) -> None:
        b.store(b.kernel.arguments[3], i, b.load(b.kernel.arguments[0], i))

    kernel = vectorized(over_a_line(type, None, body), 64, has_masks=True)
    outer = next(x for x in kernel.body if isinstance(x, Loop))
    whole, rest = (x for x in outer.body if isinstance(x, Loop))
    lanes = 64 // dtype(type).itemsize
    widths = [{x.result.lanes for x in loop.body if isinstance(x, Load)} for loop in (whole, rest)]
    assert widths == [{2 * lanes}, {lanes}]  # two vectors are interleaved
    assert (whole.step, rest.step) == (2 * lanes, lanes)


def test_short_loops_over_scratch_are_unrolled() -> None:
    """So that LLVM keeps the accumulators of columns in registers."""
    (kernel,) = tx.jit(lambda x: x.sum(1)).lower(tx.ShapeDtypeStruct((64, 256, 256), jnp.float32)).compile().kernels
    body = vectorized(kernel._kernel, 64, has_masks=True).body  # pyright: ignore[reportPrivateUsage]
    (chunk,) = (x for x in body if isinstance(x, Loop))
    (rows,) = (x for x in chunk.body if isinstance(x, Loop))
    assert not any(isinstance(x, Loop) for x in rows.body)
    if has_masks():
        assert not re.search(r"vmov\w+\s+%zmm\d+, -?\d*\(%rsp", kernel.assembly)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: nn.softmax(x, -1),
    "layer normalization": lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5),
    "columns": lambda x: (x - x.mean(0)).max(0),
    "activation": lambda x: nn.gelu(x) + jnp.log1p(jnp.exp(x)),
    "bfloat16": lambda x: (x.astype(jnp.bfloat16) * 3).sum(1),
    "mask": lambda x: jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -jnp.inf).max(1),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_kernels_need_no_loop_passes(program: str) -> None:
    x = np.random.default_rng(1).normal(size=(50, 70)).astype(np.float32)
    compiled = tx.jit(PROGRAMS[program]).lower(x).compile()
    for kernel in compiled.kernels:
        assert are_vectorizable(kernel._kernel.body, vector_bytes(), has_masks()), kernel.source  # pyright: ignore[reportPrivateUsage]
    with tx.disable_jit():
        expected = PROGRAMS[program](jnp.asarray(x))
    found = compiled(x)
    tolerance = 1e-2 if program == "bfloat16" else 1e-5
    np.testing.assert_allclose(np.float64(found), np.float64(expected), tolerance, tolerance)


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
def test_kernels_that_sort_need_no_loop_passes(which: str) -> None:
    function, shape = SORTS[which]
    kernels = tx.jit(function).lower(tx.ShapeDtypeStruct(shape, jnp.float32)).compile().kernels
    for kernel in kernels:
        assert engine._pipeline(kernel._kernel.body, is_builtin=True) in ("inline", "vectors"), kernel.name  # pyright: ignore[reportPrivateUsage]
