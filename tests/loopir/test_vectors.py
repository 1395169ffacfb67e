"""Vectors in the loop IR: compiled, as Python, and by NumPy; and the routines that are written in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tinyxla as tx
from tests.loopir.test_loop_ir import run_native, run_python
from tinyxla.compiler.costs import INTERLEAVED
from tinyxla.loopir.ir import routines
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import Builder, Kernel, Literal, Operand, Value
from tinyxla.loopir.kernels.gemm.dot_product import _declare_microkernel  # pyright: ignore[reportPrivateUsage]
from tinyxla.loopir.kernels.linalg import panel_kernels
from tinyxla.loopir.kernels.sort.sorting_network import _network  # pyright: ignore[reportPrivateUsage]
from tinyxla.loopir.lower.pad import _declare_row  # pyright: ignore[reportPrivateUsage]
from tinyxla.shapes.element_types import element_types

pytestmark = pytest.mark.platform

LANES = 8
Make = Callable[[Builder, list[Value]], Operand]


def kernel_of(types: Sequence[str], result: str, make: Make) -> Kernel:
    """Each iteration makes a vector from one of each input."""
    b = Builder("vectors")
    inputs = [b.argument(type) for type in types]
    output = b.argument(result, written=True)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True) as (i, _):
        start = b.mul(i, LANES)
        b.prefetch(inputs[0], b.add(start, 1 << 20))
        b.store(output, start, make(b, [b.load(x, start, LANES) for x in inputs]))
    return b.kernel


def check(types: Sequence[str], result: str, make: Make, expected: Callable[..., Any]) -> None:
    """What a kernel and its Python text store is what NumPy says of arrays of vectors."""
    count, random = 5, np.random.default_rng(3)
    inputs = [random.integers(0, 100, count * LANES).astype(element_types[type].dtype) for type in types]
    wanted = np.asarray(expected(*(x.reshape(count, LANES) for x in inputs)))
    for run in (run_native, run_python):
        output = np.zeros(count * LANES, element_types[result].dtype)
        run(kernel_of(types, result, make), [*inputs, output], 0, count)
        np.testing.assert_array_equal(output.reshape(count, LANES), wanted.astype(output.dtype))


@pytest.mark.parametrize("type", ["s8", "u16", "s32", "u64", "f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "minimum", "maximum"])
def test_arithmetic(op: str, type: str) -> None:
    function = getattr(np, op)
    check([type, type], type, lambda b, x: b.compute(op, type, *x), function)


@pytest.mark.parametrize("type", ["s32", "f32"])
def test_scalars_beside_vectors_are_broadcast(type: str) -> None:
    three = Literal(type, 3)
    check([type], type, lambda b, x: b.compute("multiply", type, x[0], three), lambda x: x * 3)


def test_compare_and_select() -> None:
    def larger(b: Builder, x: list[Value]) -> Operand:
        return b.select(b.compare("GT", x[0], x[1]), x[0], x[1])

    check(["f32", "f32"], "f32", larger, np.maximum)
    check(["pred", "pred"], "pred", lambda b, x: b.and_(*x), np.logical_and)


@pytest.mark.parametrize("type", ["s32", "u64"])
def test_iota(type: str) -> None:
    def third_onwards(b: Builder, x: list[Value]) -> Operand:
        return b.iota(b.convert(type, b.shuffle([2], x[0])), LANES)

    check(["s64"], type, third_onwards, lambda x: x[:, 2:3] + np.arange(LANES))


def test_conversions() -> None:
    check(["s32"], "f32", lambda b, x: b.convert("f32", x[0]), lambda x: x.astype(np.float32))
    check(["bf16"], "f32", lambda b, x: b.convert("f32", x[0]), lambda x: x.astype(np.float32))
    check(["u32"], "u32", lambda b, x: b.shift_left(x[0], 5), lambda x: x << 5)


def test_bits_of_vectors_as_wider_lanes() -> None:
    def pairs(b: Builder, x: list[Value]) -> Operand:
        wide = b.compute("bitcast-convert", "u32", x[0], lanes=LANES // 2)
        whole = b.compute("bitcast-convert", "u32", b.shuffle((6, 7), x[0]), lanes=1)
        return b.shuffle([0, 1, 2, 3, 4, 4, 4, 4], wide, b.broadcast(whole, LANES // 2))

    def expected(x: Any) -> Any:
        words = np.ascontiguousarray(x).view(np.uint32)
        return np.concatenate((words, words[:, 3:].repeat(4, axis=1)), 1)

    check(["u16"], "u32", pairs, expected)


@pytest.mark.parametrize("type", ["u8", "s32", "f64"])
def test_shuffles(type: str) -> None:
    check([type], type, lambda b, x: b.shuffle(range(LANES)[::-1], x[0]), lambda x: x[:, ::-1])
    order = [0, 15, 1, 14, 2, 13, 3, 12]
    check([type, type], type, lambda b, x: b.shuffle(order, *x), lambda x, y: np.concatenate((x, y), 1)[:, order])
    check([type], type, lambda b, x: b.broadcast(b.shuffle([2], x[0]), LANES), lambda x: x[:, [2] * LANES])
    check([type], type, lambda b, x: b.broadcast(Literal(type, 7), LANES), lambda x: np.full_like(x, 7))


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_multiply_add(type: str) -> None:
    check([type] * 3, type, lambda b, x: b.compute("multiply-add", type, *x), lambda x, y, z: x * y + z)


@pytest.mark.parametrize("type", ["pred", "u8", "s32", "f16", "bf16", "f32", "f64"])
def test_masks(type: str) -> None:
    """A masked store leaves elements as they are, and a masked load has zeros."""
    count = 2 * LANES + 3
    b = Builder("masks")
    source, target, padded = b.argument(type), b.argument(type, written=True), b.argument(type, written=True)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True) as (i, _):
        start = b.mul(i, LANES)
        mask = b.lane_mask(start, count, LANES)
        b.store(target, start, b.load(source, start, LANES), mask=mask)
        b.store(padded, start, b.load(source, start, LANES, mask=mask))
    ones = np.ones(4 * LANES, element_types[type].dtype)
    for run in (run_native, run_python):
        stored, loaded = np.zeros_like(ones), ones.copy()
        run(b.kernel, [ones, stored, loaded], 0, 4)
        np.testing.assert_array_equal(stored, np.arange(4 * LANES) < count)
        np.testing.assert_array_equal(loaded, stored)


@pytest.mark.parametrize("type", ["pred", "u8", "s32", "f16", "bf16", "f64"])
def test_gathers(type: str) -> None:
    """Of elements of one buffer or another, with zeros where a mask is false; these are not read."""
    b = Builder("gathers")
    first, second, indices = b.argument(type), b.argument(type), b.argument("s64")
    target = b.argument(type, written=True)
    with b.loop(0, b.kernel.last, sequential=True) as (i, _):
        source = b.view(b.select_buffer(b.compare("EQ", i, 0), first, second), 2)
        at, start = b.load(indices, 0, LANES), b.mul(i, 2 * LANES)
        b.store(target, start, b.gather(source, at))
        far = b.compute("add", "s64", at, b.select(b.lane_mask(0, 3, LANES), 0, 1 << 40))
        b.store(target, b.add(start, LANES), b.gather(source, far, mask=b.lane_mask(0, 3, LANES)))
    at = np.array([5, 0, 7, -2, 1, 1, 3, -1])
    sources = [(x + np.arange(12) % 5 > 3).astype(element_types[type].dtype) * (x + 1) for x in range(2)]
    sources = [x.astype(element_types[type].dtype) for x in sources]
    wanted = [y for x in sources for y in (x[at + 2], np.where(np.arange(LANES) < 3, x[at + 2], 0))]
    for run in (run_native, run_python):
        found = np.ones(4 * LANES, sources[0].dtype)
        run(b.kernel, [*sources, at, found], 0, 2)
        np.testing.assert_array_equal(found.reshape(4, LANES), np.array(wanted, found.dtype))


def test_scalars_are_joined() -> None:
    b = Builder("joined")
    source, target = b.argument("f64"), b.argument("f64", written=True)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True, step=2) as (i, _):
        first, second = b.load(source, i), b.load(source, b.add(i, 1))
        b.store(target, i, b.shuffle((1, 0), first, second))
    x = np.arange(6.0)
    for run in (run_native, run_python):
        found = np.zeros(6)
        run(b.kernel, [x, found], 0, 6)
        np.testing.assert_array_equal(found, [1, 0, 3, 2, 5, 4])


def test_carried_vectors() -> None:
    b = Builder("sum")
    source, target = b.argument("f32"), b.argument("f32", written=True)
    zeros = b.broadcast(Literal("f32", 0.0), LANES)
    with b.loop(b.kernel.first, b.kernel.last, [zeros], sequential=True) as (i, loop):
        (total,) = loop.carried
        total.next = b.compute("add", "f32", total.arg, b.load(source, b.mul(i, LANES), LANES))
    b.store(target, 0, loop.carried[0].result)
    x = np.arange(24, dtype=np.float32)
    for run in (run_native, run_python):
        found = np.zeros(LANES, np.float32)
        run(b.kernel, [x, found], 0, 3)
        np.testing.assert_array_equal(found, x.reshape(3, LANES).sum(0))


def test_branches() -> None:
    """The values of one of two bodies, which may store."""
    b = Builder("branches")
    source, target = b.argument("f32"), b.argument("f32", written=True)

    def stored(x: float) -> list[Operand]:
        b.store(target, i, Literal("f32", x))
        return []

    def zeros() -> list[Operand]:
        with b.loop(0, b.kernel.last, sequential=True):
            stored(6)
        return [b.broadcast(Literal("f32", 0.0), LANES), b.convert("f32", i)]

    with b.loop(b.kernel.first, b.kernel.last, sequential=True) as (i, _):
        x, y = b.branch(
            b.compare("LT", i, 2), lambda: [b.load(source, i, LANES), *stored(5), Literal("f32", 1.0)], zeros
        )
        with b.when(b.compare("EQ", i, 3)):
            stored(7)
        b.store(target, b.add(b.mul(i, LANES), LANES), b.compute("add", "f32", x, y))
    x = np.arange(2 * LANES, dtype=np.float32)
    expected = np.zeros((5, LANES))
    expected[0, :4] = 5, 5, 6, 7
    expected[1:] = np.stack((1 + x[:LANES], 2 + x[:LANES], np.full(LANES, 2), np.full(LANES, 3)))
    for run in (run_native, run_python):
        found = np.zeros(5 * LANES, np.float32)
        run(b.kernel, [x, found], 0, 4)
        np.testing.assert_array_equal(found.reshape(5, LANES), expected)


def test_addresses_and_nontemporal_stores() -> None:
    """Of elements from the first multiple of 32 bytes on."""
    b = Builder("stream")
    source, target = b.argument("f32"), b.argument("f32", written=True)
    view = b.view(target, 3)
    distance = b.sub(b.address(view, 5), b.address(target))
    first = b.floordiv(b.remainder(b.sub(32, b.remainder(b.address(target), 32)), 32), 4)
    b.store(target, first, b.load(source, 0, LANES), is_nontemporal=True)
    b.fence()
    b.store(target, b.add(first, LANES), b.convert("f32", distance))
    x = np.arange(1, 1 + LANES, dtype=np.float32)
    for run in (run_native, run_python):
        found = np.zeros(3 * LANES, np.float32)
        run(b.kernel, [x, found], 0, 1)
        np.testing.assert_array_equal(found[found != 0], [*x, 32])


@pytest.mark.parametrize("type", ["pred", "u8", "bf16", "f64", "c64"])
def test_copies_and_zeros(type: str) -> None:
    b = Builder("copies")
    source, target = b.argument(type), b.argument(type, written=True)
    b.copy_elements(target, 1, source, b.kernel.first, b.kernel.last)
    b.fill_zeros(b.view(target, 2), 1, 2)
    x = np.ones(9, element_types[type].dtype)
    expected = [0, 1, 1, 0, 0, 1, 1, 1, 0]
    for run in (run_native, run_python):
        found = np.zeros_like(x)
        run(b.kernel, [x, found], 2, 7)
        np.testing.assert_array_equal(found, np.array(expected, x.dtype))


def test_views() -> None:
    b = Builder("views")
    source, target = b.argument("f32"), b.argument("f32", written=True)
    second = b.view(target, LANES)
    with b.loop(b.kernel.first, b.kernel.last, sequential=True) as (i, _):
        row = b.view(source, b.mul(i, LANES))
        b.store(b.view(second, b.mul(i, LANES)), 1, b.load(b.view(row, 3), 0, LANES // 2))
    x = np.arange(3 * LANES, dtype=np.float32)
    expected = np.zeros((4, LANES), np.float32)
    expected[1:, 1:5] = x.reshape(3, LANES)[:, 3:7]
    for run in (run_native, run_python):
        found = np.zeros(4 * LANES, np.float32)
        run(b.kernel, [x, found], 0, 3)
        np.testing.assert_array_equal(found.reshape(4, LANES), expected)


@pytest.mark.parametrize("count", [7, 64, 77, 3 * 64 + 5, 1000])
def test_views_in_loops_that_are_printed_several_times(count: int) -> None:
    """For vectors and for what these leave, or again for the few elements that need more."""
    b = Builder("views")
    source, target = b.argument("f32"), b.argument("f32", written=True)
    with b.loop(0, count) as (i, _):
        x = b.load(b.view(source, i), 2)
        b.store(b.view(target, 1), i, b.compute("sine", "f32", x))
    b.store(b.view(target, 0), 0, Literal("f32", 7.0))
    x = np.linspace(-1e6, 1e6, count + 2, dtype=np.float32)
    for run in (run_native, run_python):
        found = np.zeros(count + 1, np.float32)
        run(b.kernel, [x, found], 0, 1)
        np.testing.assert_allclose(found, [7, *np.sin(x[2:].astype(np.float64))], 0, 1e-6)


def test_stores_stay_before_loads_from_a_view_of_their_memory() -> None:
    b = Builder("prefix")
    target = b.argument("s32", written=True)
    view = b.view(target, 1)
    with b.loop(0, b.kernel.last, sequential=True) as (i, _):
        b.store(view, i, b.compute("add", "s32", b.load(target, i), Literal("s32", 1)))
        b.store(target, i, b.compute("multiply", "s32", b.load(view, i), Literal("s32", 2)))
    for run in (run_native, run_python):
        found = np.zeros(6, np.int32)
        run(b.kernel, [found], 0, 5)
        np.testing.assert_array_equal(found, [2, 4, 6, 8, 10, 5])


def test_stores_stay_before_loads_from_either_of_two_buffers() -> None:
    b = Builder("prefix")
    target, other = b.argument("s32", written=True), b.argument("s32", written=True)
    either = b.select_buffer(b.compare("EQ", b.kernel.first, 0), target, other)
    with b.loop(0, b.kernel.last, sequential=True) as (i, _):
        b.store(target, b.add(i, 1), b.compute("add", "s32", b.load(target, i), Literal("s32", 1)))
        b.store(other, i, b.load(either, b.add(i, 1)))
    for run in (run_native, run_python):
        found, copied = np.zeros(6, np.int32), np.zeros(6, np.int32)
        run(b.kernel, [found, copied], 0, 5)
        np.testing.assert_array_equal(copied, [1, 2, 3, 4, 5, 0])


@pytest.mark.parametrize("nonempty", [False, True])
def test_steps(nonempty: bool) -> None:
    b = Builder("steps")
    source, target = b.argument("f32"), b.argument("f32", written=True)
    zero = Literal("s64", 0)
    with b.loop(b.kernel.first, b.kernel.last, [zero], sequential=True, step=LANES, nonempty=nonempty) as (i, loop):
        b.store(target, i, b.load(source, i, LANES))
        loop.carried[0].next = b.compute("add", "s64", loop.carried[0].arg, i)
    b.store(target, 0, b.convert("f32", loop.carried[0].result))
    x = np.arange(4 * LANES, dtype=np.float32)
    for run in (run_native, run_python):
        for last in [] if nonempty else [0], [1], [LANES], [LANES + 1], [3 * LANES]:
            for stop in last:
                starts, found = range(0, stop, LANES), np.zeros_like(x)
                run(b.kernel, [x, found], 0, stop)
                expected = np.concatenate((x[: len(starts) * LANES], 0 * x))[: x.size]
                expected[0] = sum(starts)
                np.testing.assert_array_equal(found, expected)


def test_fingerprints_tell_vectors_apart() -> None:
    def loaded(lanes: int, order: Sequence[int], masked: str = "") -> str:
        b = Builder("loaded")
        source, target = b.argument("f32"), b.argument("f32", written=True)
        masks = b.lane_mask(0, 3, lanes), b.lane_mask(0, 3, len(order))
        x = b.load(source, 0, lanes, mask=masks[0] if masked == "load" else None)
        b.store(target, 0, b.shuffle(order, x), mask=masks[1] if masked == "store" else None)
        return kernel_fingerprint(b.kernel)

    unmasked = {loaded(4, (0, 1)), loaded(8, (0, 1)), loaded(8, (1, 0))}

    def looped(**options: Any) -> str:
        b = Builder("looped")
        target = b.argument("f32", written=True)
        with b.loop(0, b.kernel.last, sequential=True, **options) as (i, _):
            b.store(target, i, Literal("f32", 1.0))
        return kernel_fingerprint(b.kernel)

    def viewed(index: int) -> str:
        b = Builder("viewed")
        b.store(b.view(b.argument("f32", written=True), index), 0, Literal("f32", 1.0))
        return kernel_fingerprint(b.kernel)

    assert len({looped(), looped(step=2), looped(nonempty=True), viewed(1), viewed(2)}) == 5

    def moved(start: int, count: int) -> str:
        b = Builder("moved")
        source, target = b.argument("f32"), b.argument("f32", written=True)
        b.copy_elements(target, 0, source, start, 4)
        b.fill_zeros(target, 4, count)
        return kernel_fingerprint(b.kernel)

    assert len({moved(0, 4), moved(1, 4), moved(0, 5)}) == 3

    def gathered(condition: str, masked: bool) -> str:
        b = Builder("gathered")
        buffers, target = [b.argument("f32"), b.argument("f32")], b.argument("f32", written=True)
        source, mask = b.select_buffer(b.compare(condition, b.kernel.last, 1), *buffers), b.lane_mask(0, 3, 4)
        b.store(target, 0, b.gather(source, b.iota(Literal("s64", 1), 4), mask=mask if masked else None))
        return kernel_fingerprint(b.kernel)

    assert len({gathered("LT", False), gathered("GT", False), gathered("LT", True)}) == 3

    def branched(condition: str, chosen: float) -> str:
        b = Builder("branched")
        target, constants = b.argument("f32", written=True), [Literal("f32", x) for x in (chosen, 2.0)]
        (x,) = b.branch(b.compare(condition, b.kernel.last, 1), *((lambda y=y: [y]) for y in constants))
        b.store(target, 0, x)
        return kernel_fingerprint(b.kernel)

    assert len({branched("LT", 1.0), branched("GT", 1.0), branched("LT", 3.0)}) == 3
    assert len(unmasked | {loaded(4, (0, 1), "load"), loaded(4, (0, 1), "store")}) == 5


# --- routines in vectors: kernels that call them are printed with them, as Python that runs ---------------------------


ROUTINES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], str]] = {
    "transpose": (lambda x: tx.numpy.transpose(x) * 2, (512, 512), "transpose_"),
    "block permutation": (lambda x: tx.numpy.transpose(x, (0, 2, 1)), (300, 3, 4), "permute_"),
    "reversed channels": (lambda x: x[..., ::-1], (300, 3), "permute_"),
    "scan": (lambda x: tx.numpy.cumsum(x, axis=1), (3, 100), "scan_add_f32"),
    "backward scan": (lambda x: tx.lax.cummax(x, axis=1, reverse=True), (3, 100), "scan_maximum_f32_backward"),
}


@pytest.mark.parametrize("name", ROUTINES)
def test_printed_routines_run(name: str) -> None:
    function, shape, routine = ROUTINES[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    compiled = tx.jit(function).lower(x).compile()
    (kernel,) = [k for k in compiled.kernels if routine in k.source]
    assert f"def {routine}" in kernel.source
    assert "ctypes" not in kernel.source
    namespace: dict[str, Any] = {}
    exec(kernel.source, namespace)
    result = np.asarray(compiled(x))
    found = np.zeros(result.size, np.float32)
    namespace[kernel.name](x.ravel(), found, 0, kernel.extent)
    np.testing.assert_allclose(found.reshape(result.shape), result, rtol=1e-6)


def run_both(routine: str, arrays: Sequence[np.ndarray[Any, Any]], parameters: Sequence[int]) -> list[list[Any]]:
    """The arrays after a routine, compiled and as Python."""
    kernel = routines.kernel_of(routine)
    assert kernel is not None
    found: list[list[Any]] = []
    for run in (run_native, run_python):
        found.append([x.copy() for x in arrays])
        run(kernel, found[-1], 0, 1, parameters)
    return found


def test_zero_padding(generator: np.random.Generator) -> None:
    """Rows outside of the operand along either outer axis are zeros."""
    x = generator.integers(1, 100, (2, 3, 30)).astype(np.uint8)
    expected = np.pad(x, ((1, 0), (1, 2), (3, 4)))
    sizes, axes = (3, 30, 4, 37), (6, 1, 3, 30, 3, 1, 2, 90, 1, 0, 1, 0)
    for row, wanted in enumerate(expected.reshape(18, 37)):
        arrays = [np.full(expected.size, 7, np.uint8), x.ravel()]
        for found, _ in run_both(_declare_row(), arrays, (row, *sizes, *axes)):
            np.testing.assert_array_equal(found.reshape(18, 37)[row], wanted)
            assert np.sum(found != 7) == np.sum(wanted != 7)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 31, 100])
def test_sorting_network(length: int, generator: np.random.Generator) -> None:
    padded, levels = max(8, 1 << (length - 1).bit_length()), max(0, (length - 1).bit_length() - 3)
    rows = generator.integers(0, 1 << 16, (padded, 32)).astype(np.uint16)
    for (found,) in run_both(_network("u16"), [rows.ravel()], (length, padded, levels)):
        np.testing.assert_array_equal(found.reshape(padded, 32)[:length], np.sort(rows[:length], axis=0))


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize(("rows", "columns"), [(2, 8), (4, 4), (8, 2)])
def test_dot_product_microkernel(type: str, rows: int, columns: int, generator: np.random.Generator) -> None:
    m, n, k, dtype = rows + 1, 2 * columns + 1, 37, element_types[type].dtype
    a, b = (generator.normal(size=(count, k)).astype(dtype) for count in (m, n))
    routine, c = _declare_microkernel(type, rows, columns), np.zeros(m * n, dtype)
    parameters = (m, n, k, k, k, 1, 2, 2, 3, 0, 6)
    for found, *_ in run_both(routine, [c, a.ravel(), b.ravel()], parameters):
        np.testing.assert_allclose(found.reshape(m, n), a @ b.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize(("rows", "columns"), [(21, 21), (30, 10), (6, 19)])
def test_getf2(type: str, rows: int, columns: int, generator: np.random.Generator) -> None:
    pitch, a = 32, generator.normal(size=(rows, columns)).astype(element_types[type].dtype)
    panel = np.zeros((columns + INTERLEAVED, pitch), a.dtype)
    panel[:columns, :rows] = a.T
    factors, expected_pivots = scipy.linalg.lu_factor(a)
    arrays = [panel.ravel(), np.zeros(len(expected_pivots), np.int32)]
    for found, pivots in run_both(panel_kernels.getf2(type), arrays, (rows, columns, pitch, 100)):
        np.testing.assert_array_equal(pivots, expected_pivots + 100)
        np.testing.assert_allclose(found.reshape(panel.shape)[:columns, :rows].T, factors, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_swap_rows(type: str, generator: np.random.Generator) -> None:
    a, pivots = generator.normal(size=(8, 40)).astype(element_types[type].dtype), np.array([4, 3, 7], np.int32)
    expected = a.copy()
    for row, pivot in zip((2, 3, 4), pivots, strict=True):
        expected[[row, pivot], :37] = expected[[pivot, row], :37]
    for found, _ in run_both(panel_kernels.swap_rows(type), [a.ravel(), pivots], (3, 37, 40, 2)):
        np.testing.assert_array_equal(found.reshape(a.shape), expected)


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_trsm(type: str, lower: bool, unit: bool, generator: np.random.Generator) -> None:
    n, columns, pitch, dtype = 9, 37, 40, element_types[type].dtype
    factors = (generator.normal(size=(n, n)) / n + np.eye(n)).astype(dtype)
    rows = generator.normal(size=(n, pitch)).astype(dtype)
    expected = rows.copy()
    expected[:, :columns] = scipy.linalg.solve_triangular(factors, rows[:, :columns], lower=lower, unit_diagonal=unit)
    forward, backward = (0, pitch, 0, n, 1), ((n - 1) * pitch, -pitch, n * n - 1, -n, -1)
    parameters = (n, columns, *(forward if lower else backward), int(unit))
    for found, _ in run_both(panel_kernels.trsm(type, 2), [rows.ravel(), factors.ravel()], parameters):
        np.testing.assert_allclose(found.reshape(rows.shape), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_potf2(type: str, generator: np.random.Generator) -> None:
    n, pitch, dtype = 4, 40, element_types[type].dtype
    root = generator.normal(size=(n, n))
    rows = np.zeros((n, pitch), dtype)
    rows[:, :n] = root @ root.T + np.eye(n)
    for (found,) in run_both(panel_kernels.potf2(type, 2), [rows.ravel()], (n, pitch)):
        upper = np.triu(found.reshape(rows.shape)[:, :n])
        np.testing.assert_allclose(upper, scipy.linalg.cholesky(rows[:, :n]), rtol=1e-3, atol=1e-4)
