"""Windows, cumulative functions and batch normalization: random windows against a loop over their places, against JAX
and XLA; kernels for every way of going through them; derivatives where elements are equal; errors."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tests.support import op_checks, xla_oracle
from tests.support.jax_oracle import functions as of_jax
from tinyxla import lax, numpy as tnp
from tinyxla.backends.numba import CompiledModule
from tinyxla.errors import ArgumentError, AttributeValueError, DTypeError, ShapeError
from tinyxla.hlo import Module
from tinyxla.lax.reductions import fold_operands
from tinyxla.ops import Sample, batch_norm, ops, reduction, windows
from tinyxla.shapes import Shape, element_type
from tinyxla.shapes.window import Window, WindowDimension
from tinyxla.text import print_module
from tinyxla.tracing import wrap
from tinyxla.tracing.core import trace

Array = np.ndarray[Any, Any]


@pytest.fixture
def random(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


def program_of(op: Any, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Callable[[], list[Array]]:
    """The op in a compiled program in which the host takes no part."""
    operands = tuple(map(np.asarray, operands))
    graph = trace(
        lambda *x: op_checks.on_arrays(op, Sample(operands, attributes))(*x), list(map(Shape.of, operands)), "windows"
    )
    made = CompiledModule(Module("windows", graph[0]))
    assert "host call" not in made.report().text()
    return lambda: [np.asarray(x) for x in made(list(operands))]


def compiled(op: Any, operands: tuple[Any, ...], attributes: dict[str, Any]) -> list[Array]:
    return program_of(op, operands, attributes)()


def both(op: Any, operands: tuple[Any, ...], attributes: dict[str, Any]) -> list[list[Array]]:
    return [op_checks.evaluated(op, Sample(operands, attributes)), compiled(op, operands, attributes)]


# --- values -----------------------------------------------------------------------------------------------------------


def _latest(x: Any, y: Any) -> Any:
    """The later of two that is not negative: associative, but not commutative, and without a neutral element."""
    return tnp.where(y >= 0, y, x)


def later_than(start: Any) -> Any:
    return fold_operands("test", start, start, _latest)[2]


FOLDS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "add": (lambda x, y: x + y, reduction.scalar_computation("add", np.int32)),
    "maximum": (max, reduction.scalar_computation("maximum", np.int32)),
    "latest": (lambda x, y: y if y >= 0 else x, later_than(np.int32(0))),
}


def one_by_one(x: Array, start: Any, window: Window, combine: Callable[[Any, Any], Any]) -> Array:
    sizes = tuple(w.positions(n) for w, n in zip(window, x.shape, strict=True))
    result = np.full(sizes, start, x.dtype)
    for place in np.ndindex(*sizes):
        for offset in np.ndindex(*(w.size for w in window)):
            at = [
                divmod(p * w.stride + o * w.window_dilation - w.padding_low, w.base_dilation)
                for p, o, w in zip(place, offset, window, strict=True)
            ]
            if all(hole == 0 and 0 <= i < n for (i, hole), n in zip(at, x.shape, strict=True)):
                result[place] = combine(result[place], x[tuple(i for i, _ in at)])
    return result


def some_window(random: np.random.Generator, largest: int, dilated: bool = True) -> WindowDimension:
    size, stride, low, high = (int(random.integers(a, b)) for a, b in ((1, largest), (1, 4), (-2, largest), (-2, 9)))
    window, base = (int(random.choice([1, 1, 2, 3])) if dilated else 1 for _ in (0, 1))
    return WindowDimension(size, stride, low, high, window, base)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("seed", range(6))
def test_random_windows(random: np.random.Generator, seed: int) -> None:
    for _ in range(9):
        rank = int(random.integers(1, 4))
        shape = tuple(int(n) for n in random.integers(1, (40, 12, 7)[rank - 1], rank))
        largest = (30, 12, 6)[rank - 1]
        window = tuple(some_window(random, largest) if random.random() < 0.7 else WindowDimension(1) for _ in shape)
        x, start = random.integers(-50, 50, shape).astype(np.int32), np.int32(3)
        combine, to_apply = FOLDS[random.choice(list(FOLDS))]
        expected = one_by_one(x, start, window, combine)
        for (found,) in both(ops["reduce-window"], (x, start), {"window": window, "to_apply": to_apply}):
            np.testing.assert_array_equal(found, expected, f"{window} of {shape} by {to_apply.name}")


def test_large_dilated_windows(random: np.random.Generator) -> None:
    """Over rows as long as the dilation, where everything is whole rows."""
    for op, shape, window in (
        ("add", (80,), (WindowDimension(36, window_dilation=2),)),
        ("latest", (60, 2), (WindowDimension(40, 1, 60, 30, 3), WindowDimension(1))),
        ("maximum", (12, 18), (WindowDimension(5, 1, 4, 4, 2), WindowDimension(7, 1, 6, -3, 3))),
        ("latest", (12, 17), (WindowDimension(5, 1, 4, 4, 2), WindowDimension(7, 1, 1, 7, 2))),
    ):
        x, start = random.integers(-50, 50, shape).astype(np.int32), np.int32(3)
        combine, to_apply = FOLDS[op]
        (found,) = compiled(ops["reduce-window"], (x, start), {"window": window, "to_apply": to_apply})
        np.testing.assert_array_equal(found, one_by_one(x, start, window, combine), str(window))


@pytest.mark.parametrize("seed", range(3))
def test_random_selections(random: np.random.Generator, seed: int) -> None:
    """Many elements are equal: the first one is selected, whatever the order of the loops is."""
    for _ in range(6):
        rank = int(random.integers(1, 4))
        shape = tuple(int(n) for n in random.integers(1, (20, 9, 6)[rank - 1], rank))
        window = tuple(some_window(random, (12, 5, 4)[rank - 1], False) for _ in shape)
        sizes = tuple(w.positions(n) for w, n in zip(window, shape, strict=True))
        operands = random.integers(-4, 4, shape).astype(np.float32), random.integers(1, 9, sizes).astype(np.float32)
        attributes = {
            "window": window,
            "select": windows.comparison(str(random.choice(["GE", "GT", "LE", "LT"])), np.float32),
            "scatter": reduction.scalar_computation(str(random.choice(["add", "maximum"])), np.float32),
        }
        expected = of_jax["select-and-scatter"](*operands, np.float32(3), **attributes)
        for (found,) in both(ops["select-and-scatter"], (*operands, np.float32(3)), attributes):
            np.testing.assert_array_equal(found, expected, str(attributes))


def line(size: int, reverse: bool = False) -> WindowDimension:
    """All beginnings of so many elements, or all ends."""
    edge = size - 1
    return WindowDimension(size, padding_low=0 if reverse else edge, padding_high=edge if reverse else 0)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(200_001,), (5, 7), (7, 5), (3, 1500), (1, 70_000, 2)], ids=str)
def test_cumulative_folds(random: np.random.Generator, shape: tuple[int, ...], reverse: bool) -> None:
    """Long lines, which are cut; many short ones; and across rows. Of integers, so every order gives the same."""
    x = random.integers(-9, 9, shape).astype(np.int32)
    for axis in (d for d, n in enumerate(shape) if n > 2):
        window = tuple(line(n, reverse) if d == axis else WindowDimension(1) for d, n in enumerate(shape))
        ordered = np.flip(x, axis) if reverse else x
        index = np.arange(x.size, dtype=np.int32).reshape(shape)
        for op, ufunc in (("add", np.add), ("minimum", np.minimum)):
            to_apply = reduction.scalar_computation(op, np.int32)
            expected = ufunc(np.int32(5), ufunc.accumulate(ordered, axis))
            for (found,) in both(ops["reduce-window"], (x, np.int32(5)), {"window": window, "to_apply": to_apply}):
                np.testing.assert_array_equal(np.flip(found, axis) if reverse else found, expected)
        if x.size < 100:
            for start in (-1, 2):
                attributes = {"window": window, "to_apply": FOLDS["latest"][1]}
                evaluated, made = both(ops["reduce-window"], (x, np.int32(start)), attributes)
                np.testing.assert_array_equal(made[0], evaluated[0])
                np.testing.assert_array_equal(made[0], one_by_one(x, start, window, FOLDS["latest"][0]))
        to_apply = reduction.argument_computation("GT", np.int32, np.int32)
        starts = np.int32(np.iinfo(np.int32).min), np.int32(x.size)
        evaluated, made = both(ops["reduce-window"], (x, index, *starts), {"window": window, "to_apply": to_apply})
        for found, expected in zip(made, evaluated, strict=True):
            np.testing.assert_array_equal(found, expected)


def _latest_of_all(x: Array, axis: int, start: int, reverse: bool) -> Array:
    """The folds by `latest`, row by row."""
    rows, found, last = np.moveaxis(x, axis, 0), [], None
    for row in rows[::-1] if reverse else rows:
        if reverse:
            last = row if last is None else np.where(last >= 0, last, row)
            found.append(np.where(last >= 0, last, start))
        else:
            last = np.where(row >= 0, row, start if last is None else last)
            found.append(last)
    return np.moveaxis(np.array(found[::-1] if reverse else found), 0, axis)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("is_large", [False, True], ids=["in the caches", "past the caches"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((50_003,), 0), ((3, 40_001), 1), ((33, 131), 1), ((20_003, 3), 0), ((2, 3001, 40), 1), ((70, 5000), 0)],
    ids=str,
)
def test_cumulative_pieces(
    random: np.random.Generator, use_target: Callable[[str], None], shape: tuple[int, ...], axis: int, is_large: bool
) -> None:
    """Of each way through lines, pieces that wait for one another: the same bits from any number of threads."""
    if is_large:
        use_target("last_level_bytes=512")
    x = random.integers(-9, 9, shape).astype(np.int32)
    for reverse in (False, True):
        window = tuple(line(n, reverse) if d == axis else WindowDimension(1) for d, n in enumerate(shape))
        (found,) = compiled(
            ops["reduce-window"], (x, np.int32(5)), {"window": window, "to_apply": later_than(np.int32(5))}
        )
        np.testing.assert_array_equal(found, _latest_of_all(x, axis, 5, reverse))
        for op, ufunc in (("add", np.add), ("maximum", np.maximum)):
            dtype = np.float32 if op == "maximum" else np.int32
            expected = ufunc.accumulate(np.flip(x, axis) if reverse else x, axis)
            attributes = {"window": window, "to_apply": reduction.scalar_computation(op, dtype)}
            (found,) = compiled(ops["reduce-window"], (x.astype(dtype), dtype(-9)), attributes)
            expected = expected - 9 if op == "add" else expected
            np.testing.assert_array_equal(np.flip(found, axis) if reverse else found, expected)
        y, several = random.normal(size=shape).astype(np.float32), []
        attributes = {"window": window, "to_apply": reduction.scalar_computation("add", np.float32)}
        sums = program_of(ops["reduce-window"], (y, np.float32(0)), attributes)
        for threads in (1, 3):
            with tx.num_threads(threads):
                several += sums()
        assert several[0].tobytes() == several[1].tobytes()


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["s8", "u16", "s32", "u64", "f32", "f64"])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "minimum", "and", "xor"])
def test_cumulative_vectors(random: np.random.Generator, op: str, name: str, reverse: bool) -> None:
    """Each operation and type of the routine, for lines of whole vectors and others."""
    dtype = element_type(name).dtype
    if op in ("and", "xor") and dtype.kind == "f":
        return
    combine = reduction.ufunc_of(reduction.scalar_computation(op, dtype), dtype)
    assert combine is not None
    for n in (32, 64, 101):
        x = random.integers(0, 3 if op == "multiply" else 99, (3, n)).astype(dtype)
        expected = combine.accumulate(np.flip(x, 1) if reverse else x, 1, dtype=dtype)
        start = np.asarray(reduction.identity_element(op, dtype)).astype(dtype)
        window = (WindowDimension(1), line(n, reverse))
        attributes = {"window": window, "to_apply": reduction.scalar_computation(op, dtype)}
        (found,) = compiled(ops["reduce-window"], (x, start), attributes)
        np.testing.assert_array_equal(np.flip(found, 1) if reverse else found, expected)


def test_cumulative_extremes_keep_nan() -> None:
    x = np.zeros(300, np.float32)
    x[100] = np.nan
    for function in (lax.cummax, lax.cummin):
        found = np.asarray(tx.jit(function)(x))
        assert not np.isnan(found[:100]).any()
        assert np.isnan(found[100:]).all()


def test_rows_longer_than_a_row_of_accumulators(random: np.random.Generator) -> None:
    for shape, window in (
        ((2, 3000), (WindowDimension(1), WindowDimension(3, 2, 1, 1))),
        ((6, 2500), (WindowDimension(3, 1, 1, 1), WindowDimension(1))),
        ((2, 700), (WindowDimension(2), WindowDimension(5, 1, 4, 4, 1, 4))),
        ((5, 2500), (WindowDimension(40, 3, 20, 20), WindowDimension(1))),
        ((2, 3000), (WindowDimension(1), WindowDimension(70, 2, 35, 35))),
        ((40, 50), (WindowDimension(21, 1, 10, 10), WindowDimension(21, 1, 10, 10))),
    ):
        x = random.integers(-50, 50, shape).astype(np.int32)
        to_apply = reduction.scalar_computation("add", np.int32)
        evaluated, made = both(ops["reduce-window"], (x, np.int32(1)), {"window": window, "to_apply": to_apply})
        np.testing.assert_array_equal(made[0], evaluated[0])
        attributes = {"window": window, "select": windows.comparison("GE", np.int32), "scatter": to_apply}
        if all(w.base_dilation == 1 for w in window):
            evaluated, made = both(ops["select-and-scatter"], (x, evaluated[0], np.int32(1)), attributes)
            np.testing.assert_array_equal(made[0], evaluated[0])


def test_sums_do_not_cancel() -> None:
    """A large element leaves nothing behind in windows that it is not in."""
    x = np.ones(3000, np.float32)
    x[::500] = 1e9
    found = np.asarray(tx.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, (100,)))(x))
    expected = np.array([100.0 if x[k : k + 100].max() == 1 else 1e9 + 99 for k in range(2901)])
    np.testing.assert_allclose(found, expected, 1e-6)


def test_a_result_of_several_that_nobody_takes() -> None:
    x, index = np.array([[3.0, 1, 4, 1, 5, 9, 2, 6]], np.float32), np.arange(8, dtype=np.int32)[None]

    def places(x: Any, index: Any) -> Any:
        return windows.reduce_window(
            x,
            index,
            wrap(np.float32(-np.inf)),
            wrap(np.int32(0)),
            window=(WindowDimension(1), line(8)),
            to_apply=reduction.argument_computation("GT", np.float32, np.int32),
        )[1]

    np.testing.assert_array_equal(np.asarray(tx.jit(places)(x, index)), [[0, 0, 2, 2, 4, 5, 5, 5]])


@pytest.mark.parametrize("name", ["s4", "u2", "f8e4m3fn", "f8e5m2", "f16", "bf16", "c64", "pred", "s64"])
def test_types(name: str) -> None:
    """Also those that kernels have no scalars of, and those without infinities."""
    kind = element_type(name)
    x = np.array([1, 0, 1, 1, 0], np.int8).astype(kind.dtype)
    several = ("add", "multiply") if kind.kind == "complex" or kind.bits < 8 else ("add", "multiply", "maximum")
    for op in ("add", "or") if kind.kind == "pred" else several:
        start = np.asarray(reduction.identity_element(op, kind.dtype)).astype(kind.dtype)
        start = np.zeros((), kind.dtype) if start != start else start
        attributes = {
            "window": (WindowDimension(3, 1, 1, 1),),
            "to_apply": reduction.scalar_computation(op, kind.dtype),
        }
        combine: Callable[[Any, Any], Any] = {
            "add": lambda x, y: x + y,
            "multiply": lambda x, y: x * y,
            "maximum": max,
            "or": lambda x, y: x | y,
        }[op]
        expected = one_by_one(x, start, attributes["window"], combine)  # type: ignore[arg-type]
        for form in (lambda f: f, tx.jit):
            found = form(lambda x, a=attributes, s=start: windows.reduce_window(x, wrap(s), **a))(wrap(x))
            op_checks.assert_equal([found.numpy()], [expected], f"{op} of {name}")


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("shape", [(70_001,), (3, 40_000), (40, 700), (5, 70), (9, 60, 3)], ids=str)
def test_costly_folds(random: np.random.Generator, shape: tuple[int, ...]) -> None:
    """Blocks and lines are gone through side by side, also where the last one is shorter: beginnings, ends, and windows
    of which each is the end of a block and the beginning of the next."""
    axis, size = 1 % len(shape), 37
    x, start = random.normal(size=shape).astype(np.float32) * 9, np.float32(-1)
    to_apply = fold_operands("test", start, start, tnp.logaddexp)[2]
    exact = np.moveaxis(x.astype(np.float64), axis, -1)
    ends = np.flip(np.logaddexp.accumulate(np.flip(exact, -1), -1), -1)
    inside = np.logaddexp.reduce(np.lib.stride_tricks.sliding_window_view(exact, size, -1), -1)
    beginnings = np.logaddexp.accumulate(exact, -1)
    for w, expected in (
        (line(shape[axis]), beginnings),
        (line(shape[axis], True), ends),
        (WindowDimension(size), inside),
    ):
        window = tuple(w if d == axis else WindowDimension(1) for d in range(len(shape)))
        (found,) = compiled(ops["reduce-window"], (x, start), {"window": window, "to_apply": to_apply})
        np.testing.assert_allclose(np.moveaxis(found, axis, -1), np.logaddexp(start, expected), 1e-5, 1e-5)


def test_narrow_floats_are_added_up_in_wide_ones() -> None:
    ones = np.ones(1000, element_type("bf16").dtype)
    assert float(lax.cumsum(ones)[-1]) == float(tx.jit(lax.cumsum)(ones)[-1]) == 1000


# --- the documents' examples ------------------------------------------------------------------------------------------


def test_examples_of_reduce_window() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    found = lax.reduce_window(x, np.finfo(np.float32).min, lax.max, (2, 3), (2, 3), "VALID")
    np.testing.assert_array_equal(np.asarray(found), [[8, 11], [20, 23]])
    falling, largest = np.array([10000, 1000, 100, 10, 1], np.float32), np.finfo(np.float32).max
    for padding, expected in (("VALID", [100, 1]), ("SAME", [1000, 10, 1])):
        np.testing.assert_array_equal(
            np.asarray(lax.reduce_window(falling, largest, lax.min, (3,), (2,), padding)), expected
        )
    rows = np.array([[1, 2], [3, 4], [5, 6]], np.int32)
    found = lax.reduce_window(rows, 0, lax.add, (2, 1), (4, 1), ((2, 1), (0, 0)), (2, 1), (3, 1))
    np.testing.assert_array_equal(np.asarray(found), [[0, 0], [3, 4]])


def test_example_of_select_and_scatter() -> None:
    """The figure's: where windows overlap, the element 9 is selected by two of them, and gets 2 + 6."""
    x = np.array([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]], np.float32)
    source, attributes = (
        np.array([[2, 6], [3, 1]], np.float32),
        {
            "window": (WindowDimension(2, 2), WindowDimension(3, 2)),
            "select": windows.comparison("GE", np.float32),
            "scatter": reduction.scalar_computation("add", np.float32),
        },
    )
    expected = np.zeros((4, 5))
    expected[1, 2], expected[2, 2], expected[3, 3] = 8, 3, 1
    for (found,) in both(ops["select-and-scatter"], (x, source, np.float32(0)), attributes):
        np.testing.assert_array_equal(found, expected)


# --- against JAX and XLA ----------------------------------------------------------------------------------------------

POOLS = [
    ((2, 2), (1, 1), "SAME", (1, 1), (1, 1)),
    ((3, 2), (2, 2), "VALID", (1, 1), (1, 1)),
    ((2, 3), (1, 2), "SAME_LOWER", (2, 1), (1, 1)),
    ((2, 2), (2, 1), ((1, 0), (2, 1)), (1, 1), (2, 1)),
    ((2, 2), (1, 1), ((-1, 0), (0, -1)), (1, 2), (1, 1)),
    ((9, 9), (1, 1), "SAME", (1, 1), (1, 1)),
]


@pytest.fixture
def wide() -> Iterator[None]:
    """64 bits, here and in JAX."""
    tx.config.update("enable_x64", True)
    with jax.enable_x64(True):
        yield
    tx.config.update("enable_x64", False)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    ("op", "pool"),
    [
        *(("max", p) for p in POOLS),
        *(("add", p) for p in POOLS[1:4]),
        ("min", POOLS[0]),
        *(("mul", p) for p in POOLS[2:4]),
    ],
    ids=str,
)
def test_pools_against_jax(random: np.random.Generator, op: str, pool: Any) -> None:
    """Values, derivatives in both modes, and the second derivative, as far as JAX has them. Backwards also where many
    elements are equal, since the first one counts; forwards XLA does not keep to that order."""
    start = {"add": 0.0, "max": -np.inf, "min": np.inf, "mul": 1.0}[op]
    x, direction = random.integers(1, 4, (4, 5)).astype(np.float64), random.normal(size=(4, 5))
    distinct = random.permutation(20).reshape(4, 5) / 10 + 0.5
    backwards = op == "add" or (op != "mul" and pool[4] == (1, 1) and pool != POOLS[4])

    def results(transform: Any, library: Any) -> list[Any]:
        def pooled(x: Any) -> Any:
            return library.reduce_window(x, start, getattr(library, op), *pool)

        gradient = transform.grad(lambda x: library.sin(pooled(x)).sum())
        found = [pooled(x), transform.jit(pooled)(x), transform.jvp(pooled, (distinct,), (direction,))[1]]
        return [*found, gradient(x), transform.jvp(gradient, (distinct,), (direction,))[1]] if backwards else found

    expected = jax.jit(lambda: results(jax, jax.lax))()
    for mine, theirs in zip(results(tx, lax), expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), 1e-10, 1e-10)


@pytest.mark.sample(every=5)
@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    ("name", "reverse"),
    [
        *itertools.product(("cumsum", "cumprod", "cumlogsumexp"), (False, True)),
        ("cummax", False),
        ("cummin", True),
    ],
)
def test_cumulative_functions_against_jax(random: np.random.Generator, name: str, reverse: bool) -> None:
    """With equal elements, at which the derivatives are JAX's, too; and to third order."""
    axis, shape = (1, (2, 6)) if reverse else (0, (6, 2))
    x, directions = random.integers(-2, 3, shape).astype(np.float64), random.normal(size=(3, *shape))

    def results(transform: Any, library: Any) -> list[Any]:
        def function(x: Any) -> Any:
            return getattr(library, name)(x, axis=axis, reverse=reverse)

        def scalar(x: Any) -> Any:
            return library.sin(function(x)).sum()

        first = transform.grad(scalar)
        second: Any = lambda x: transform.jvp(first, (x,), (directions[0],))[1]  # noqa: E731
        third: Any = lambda x: transform.vjp(second, x)[1](directions[1])[0]  # noqa: E731
        return [
            function(x),
            transform.jvp(function, (x,), (directions[2],))[1],
            *(f(x) for f in (first, second, third)),
            transform.vmap(function, 1, 1)(np.stack([x, x + 1], 1)),
            transform.jit(first)(x),
        ]

    expected = jax.jit(lambda: results(jax, jax.lax))()
    for mine, theirs in zip(results(tx, lax), expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), 1e-9, 1e-9)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("name", "sign", "gradient", "tangent"),
    [
        ("cummax", 1, [2, 1, 7.5, 4.5, 0], [1, 1.5, 3, 3.5, 3.5]),
        ("cummin", -1, [2, 1, 7.5, 4.5, 0], [1, 1.5, 3, 3.5, 3.5]),
        ("cumprod", 1, [-np.inf, -np.inf, np.inf, np.inf, np.inf], [1, -np.inf, np.nan, np.nan, np.nan]),
        ("cumlogsumexp", 1, [1, 2, 7.111594, 4.111594, 0.776812], [1, 2, 3, 3.5, 3.733043]),
    ],
)
def test_elements_equal_to_the_identity_have_derivatives(
    name: str, sign: float, gradient: list[float], tangent: list[float], jit: bool
) -> None:
    x, weights = sign * np.float32([-np.inf, -np.inf, 1, 1, 0]), np.arange(1, 6, dtype=np.float32)
    function = getattr(lax, name)
    mine = [tx.grad(lambda x: (weights * function(x)).sum()), lambda x: tx.jvp(function, (x,), (weights,))[1]]
    for f, expected in zip(mine, (gradient, tangent), strict=True):
        np.testing.assert_allclose(np.asarray((tx.jit(f) if jit else f)(x)), expected, 1e-5)


@pytest.mark.parametrize(
    ("start", "dilation", "gradient", "tangent"),
    [
        (-np.inf, 1, [3, 3, 0, 9], [1, 1, 2, 4, 4]),
        (0, 1, [0, 0, 0, 9], [0, 0, 0, 4, 4]),
        (-np.inf, 2, [1, 2, 3, 4], [0, 1, 0, 2, 0, 3, 0, 4]),
    ],
)
@pytest.mark.parametrize(("name", "sign"), [("max", 1), ("min", -1)])
def test_extrema_of_windows_that_are_the_initial_value(
    name: str, sign: float, start: float, dilation: int, gradient: list[float], tangent: list[float]
) -> None:
    """It has the derivative, unless it is the identity; and it is all of a window without elements."""
    x = sign * np.float32([-np.inf, -np.inf, -np.inf, 1])
    sizes = {1: ((2,), ((1, 1),)), 2: ((1,), ((1, 0),))}[dilation]

    def pooled(x: Any) -> Any:
        size, edges = sizes
        return lax.reduce_window(x, np.float32(sign * start), getattr(lax, name), size, (1,), edges, (dilation,))

    weights = np.float32([1, 2, 3, 4, 5]) if dilation == 1 else np.float32([0, 1, 0, 2, 0, 3, 0, 4])
    np.testing.assert_array_equal(np.asarray(tx.grad(lambda x: (weights * pooled(x)).sum())(x)), gradient)
    np.testing.assert_array_equal(np.asarray(tx.jvp(pooled, (x,), (np.float32([1, 2, 3, 4]),))[1]), tangent)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(("name", "axis", "reverse"), [("cumprod", 1, False), ("cumlogsumexp", 0, True)])
def test_compiled_second_derivatives_against_jax(
    random: np.random.Generator, name: str, axis: int, reverse: bool
) -> None:
    """Forwards over backwards, mapped, and backwards over backwards; with several zeros in a product, and numbers of
    very different size under a logarithm."""
    x, direction = random.normal(size=(2, 3, 7))
    other = random.normal(size=(3, 7))
    x[0, 2] = x[1, 1] = x[1, 5] = 0
    x *= 300 if name == "cumlogsumexp" else 1

    def results(transform: Any, library: Any) -> Callable[..., list[Any]]:
        def scalar(x: Any) -> Any:
            return library.sin(getattr(library, name)(x, axis=axis, reverse=reverse)).sum()

        first = transform.grad(scalar)
        second = transform.grad(lambda x: (first(x) * direction).sum())
        ahead = transform.vmap(lambda x, t: transform.jvp(first, (x,), (t,))[1], (None, 0))
        return transform.jit(lambda x: [first(x), second(x), ahead(x, np.stack([direction, other]))])

    for mine, theirs in zip(results(tx, lax)(x), results(jax, jax.lax)(x), strict=True):
        assert np.isfinite(np.asarray(mine)).all()
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), 1e-9, 1e-9)


@pytest.mark.usefixtures("wide")
def test_cumulative_folds_by_any_function_against_jax(random: np.random.Generator) -> None:
    """Of a computation that is not one op, the derivatives by the array and by the initial value."""
    operands, directions = (random.uniform(size=(2, 6)), 0.25), (random.normal(size=(2, 6)), 1.5)

    def either(x: Any, y: Any) -> Any:
        return x + y - x * y

    def mine(x: Any, start: Any) -> Any:
        return lax.sin(lax.reduce_window(x, start, either, (1, 6), (1, 1), ((0, 0), (5, 0)))).sum()

    def theirs(x: Any, start: Any) -> Any:
        return jax.numpy.sin(either(start, jax.lax.associative_scan(either, x, axis=1))).sum()

    def derivatives(transform: Any, function: Any) -> list[Any]:
        return transform.jit(
            lambda *x: [*transform.grad(function, (0, 1))(*x), transform.jvp(function, x, directions)[1]]
        )(*operands)

    for found, expected in zip(derivatives(tx, mine), derivatives(jax, theirs), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), 1e-12, 1e-12)


@pytest.mark.parametrize("name", ["cumprod", "cumlogsumexp"])
def test_cumulative_derivatives_take_few_kernels(name: str) -> None:
    """They are cumulative windows again, not a tree: a line twice as long takes as many kernels."""
    gradient = tx.grad(lambda x: lax.sin(getattr(lax, name)(x)).sum())

    def kernels(function: Callable[[Any], Any], size: int) -> int:
        graph = trace(lambda x: [function(x)], [Shape(element_type("f32"), (size,))], "line")[0]
        return len(CompiledModule(Module("line", graph)).kernels)

    assert kernels(gradient, 1 << 19) == kernels(gradient, 1 << 20) <= 10
    assert kernels(lambda x: tx.jvp(gradient, (x,), (x,))[1], 1000) <= 9


def test_windows_over_trees_against_jax(random: np.random.Generator) -> None:
    """Several arrays at once, mapped over some operands, also over initial values."""
    x, y = random.normal(size=(2, 3, 6)).astype(np.float32), random.integers(0, 9, (2, 3, 6)).astype(np.int32)
    starts = np.array([-np.inf, 0.25], np.float32)

    def folded(library: Any, where: Any) -> Callable[..., Any]:
        def larger(left: Any, right: Any) -> Any:
            keep = left["x"] >= right["x"]
            return {"x": where(keep, left["x"], right["x"]), "y": where(keep, left["y"], right["y"])}

        def function(x: Any, y: Any, start: Any) -> Any:
            return library.reduce_window({"x": x, "y": y}, {"x": start, "y": -1}, larger, (2, 3), (1, 2), "SAME")

        return function

    mine, theirs = folded(lax, tnp.where), folded(jax.lax, jax.numpy.where)
    for axes in ((0, 0, None), (0, 0, 0), (None, None, 0), (0, None, 0)):
        operands = [v if a == 0 else v[0] for v, a in zip((x, y, starts), axes, strict=True)]
        found = tx.vmap(mine, axes)(*operands)
        for lane in (0, 1):
            one = theirs(*(v if a is None else v[lane] for v, a in zip(operands, axes, strict=True)))
            for key in ("x", "y"):
                np.testing.assert_array_equal(np.asarray(found[key][lane]), np.asarray(one[key]))


def test_max_pool_goes_back_by_select_and_scatter() -> None:
    gradient = tx.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (2,)).sum())
    computation = trace(lambda x: [gradient(x)], [Shape(element_type("f32"), (8,))], "pool")[0]
    assert "select-and-scatter" in {x.op.name for x in computation.instructions}


@pytest.mark.parametrize("name", ["reduce-window", "select-and-scatter", *(n for n in ops if "batch-norm" in n)])
def test_text_runs_in_xla(random: np.random.Generator, name: str) -> None:
    for sample in itertools.islice(ops[name].samples(random), 0, None, 3):
        text = print_module(Module("sample", op_checks.graph_of(ops[name], sample)))
        xla_oracle.parse(text)
        window = sample.attributes.get("window")
        if name == "select-and-scatter" and (not window or any(w.padding_low or w.padding_high for w in window)):
            continue  # which end the process in XLA on the CPU
        found = xla_oracle.run(text, sample.operands)
        op_checks.assert_close(op_checks.evaluated(ops[name], sample), found, text, scale=4.0)


# --- batch normalization ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("wide")
def test_batch_norm_grad_is_the_gradient(random: np.random.Generator) -> None:
    x, g = random.normal(size=(2, 4, 3, 5)), random.normal(size=(2, 4, 3, 5))
    scale, offset = random.normal(size=(2, 4))
    attributes = {"epsilon": 1e-3, "feature_index": 1}

    def output(*operands: Any) -> Any:
        return batch_norm.batch_norm_training(*operands, **attributes)[0]

    _, mean, variance = batch_norm.batch_norm_training(wrap(x), wrap(scale), wrap(offset), **attributes)
    expected = tx.vjp(output, x, scale, offset)[1](wrap(g))
    for form in (lambda f: f, tx.jit):
        found = form(lambda *o: batch_norm.batch_norm_grad(*o, **attributes))(
            *map(wrap, (x, scale)), mean, variance, wrap(g)
        )
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), 1e-9, 1e-9)
    inferred = batch_norm.batch_norm_inference(wrap(x), wrap(scale), wrap(offset), mean, variance, **attributes)
    np.testing.assert_allclose(np.asarray(inferred), np.asarray(output(*map(wrap, (x, scale, offset)))), 1e-12)
    axes = (0, 2, 3)
    np.testing.assert_allclose(np.asarray(mean), x.mean(axes), 1e-12)
    np.testing.assert_allclose(np.asarray(variance), x.var(axes), 1e-12)


# --- errors -----------------------------------------------------------------------------------------------------------

ADD = reduction.scalar_computation("add", np.float32)
X, ZERO = np.ones((2, 3), np.float32), np.float32(0)
PLAIN = (WindowDimension(1), WindowDimension(2))


def _reduced(*operands: Any, window: Any = PLAIN, to_apply: Any = ADD) -> Any:
    return windows.reduce_window(*map(wrap, operands), window=window, to_apply=to_apply)


def _scattered(*operands: Any, window: Any = PLAIN, select: Any = None, scatter: Any = ADD) -> Any:
    select = select or windows.comparison("GE", np.float32)
    return windows.select_and_scatter(*map(wrap, operands), window=window, select=select, scatter=scatter)


def _normalized(*operands: Any, feature_index: int = 1) -> Any:
    return batch_norm.batch_norm_training(*map(wrap, operands), epsilon=0.1, feature_index=feature_index)


ERRORS: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (ShapeError, "as many initial values as arrays, but got 1 operands", lambda: _reduced(X)),
    (ShapeError, "must have the same dimensions", lambda: _reduced(X, X[:1], ZERO, ZERO)),
    (ShapeError, "must be a scalar f32", lambda: _reduced(X, np.int32(0))),
    (ShapeError, "must be a scalar f32", lambda: _reduced(X, X)),
    (ShapeError, "must have one entry for each dimension of", lambda: _reduced(X, ZERO, window=PLAIN[:1])),
    *(
        (
            AttributeValueError,
            f"positive {field} in dimension 1, but got 0",
            lambda field=field: _reduced(X, ZERO, window=(PLAIN[0], PLAIN[1]._replace(**{field: 0}))),
        )
        for field in ("size", "stride", "window_dilation", "base_dilation")
    ),
    (
        AttributeValueError,
        "must not have window_reversal",
        lambda: _reduced(X, ZERO, window=(PLAIN[0]._replace(window_reversal=True), PLAIN[1])),
    ),
    (ShapeError, "to_apply must map", lambda: _reduced(X, ZERO, to_apply=windows.comparison("GE", np.float32))),
    (DTypeError, "source must have the element type", lambda: _scattered(X, np.ones((2, 2), np.int32), ZERO)),
    (ShapeError, "source must be f32", lambda: _scattered(X, X, ZERO)),
    (ShapeError, "the initial value must be a scalar", lambda: _scattered(X, X[:, :2], X)),
    (ShapeError, "select must map", lambda: _scattered(X, X[:, :2], ZERO, select=ADD)),
    (
        ShapeError,
        "scatter must map",
        lambda: _scattered(X, X[:, :2], ZERO, scatter=windows.comparison("GE", np.float32)),
    ),
    (
        AttributeValueError,
        "must not be dilated",
        lambda: _scattered(X, X[:, :1], ZERO, window=(PLAIN[0], WindowDimension(2, window_dilation=2))),
    ),
    (DTypeError, "must be of a floating-point type", lambda: _normalized(np.ones((2, 3), np.int32), X[0], X[0])),
    (ShapeError, "feature_index must be a dimension", lambda: _normalized(X, X[0], X[0], feature_index=2)),
    (ShapeError, "operand 2 must be f32", lambda: _normalized(X, X[0], X[0, :2])),
    (DTypeError, "operand 1 must have the element type", lambda: _normalized(X, np.ones(3), X[0])),
    (ArgumentError, "must have 2 entries", lambda: lax.reduce_window(X, 0.0, lax.add, (2,))),
    (ArgumentError, "padding must have 2 pairs", lambda: lax.reduce_window(X, 0.0, lax.add, (2, 1), padding=[(0, 0)])),
    (AttributeValueError, "padding must be VALID", lambda: lax.reduce_window(X, 0.0, lax.add, (2, 1), padding="FULL")),
    (AttributeValueError, "positive stride", lambda: lax.reduce_window(X, 0.0, lax.add, (2, 1), (0, 1), "SAME")),
    (DTypeError, "must have a number type", lambda: lax.cumsum(np.ones(3, np.bool_))),
    (ShapeError, "axis 2 is out of range", lambda: lax.cummax(X, 2)),
]


@pytest.mark.parametrize(("error", "text", "call"), ERRORS, ids=[text for _, text, _ in ERRORS])
def test_errors(error: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(")):
        call()


def test_shape_tuple() -> None:
    for window, strides, padding, base, holes in POOLS:
        expected = lax.reduce_window(np.zeros((4, 5)), 0, lax.add, window, strides, padding, base, holes).shape
        assert lax.reduce_window_shape_tuple((4, 5), window, strides, padding, base, holes) == expected


# --- kernels for windows of different sizes ---------------------------------------------------------------------------

LONG = [(60,), (100, 9), (9, 100), (3, 60, 70), (2, 30, 31, 5)]


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("shape", LONG)
@pytest.mark.parametrize("name", ["add", "maximum"])
def test_long_windows_against_jax(random: np.random.Generator, shape: tuple[int, ...], name: str) -> None:
    """Windows of many elements, put together from shorter ones: of all sizes, with strides and with any padding."""
    x = random.integers(-100, 100, shape).astype(np.int32)
    ways = []
    for _ in range(4):
        sizes = tuple(int(random.integers(1, max(2, n))) for n in shape)
        strides = tuple(int(random.integers(1, 4)) for _ in shape)
        ways.append((sizes, strides, tuple((int(random.integers(0, n)), int(random.integers(0, n))) for n in sizes)))

    def pooled(ns: Any, x: Any) -> list[Any]:
        start, fold = (0, ns.lax.add) if name == "add" else (-1000, ns.lax.max)
        return [ns.lax.reduce_window(x, np.int32(start), fold, *how) for how in ways]

    results = [ns.jit(lambda x, ns=ns: pooled(ns, x))(x) for ns in (tx, jax)]
    for how, found, expected in zip(ways, *results, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected, str(how))


def test_windows_of_many_elements_in_several_parts(random: np.random.Generator) -> None:
    x = random.normal(size=(2, 9000)).astype(np.float32)
    for size in (17, 100, 1023, 4096, 8000):
        found = tx.jit(lambda x, size=size: lax.reduce_window(x, -np.inf, lax.max, (1, size), (1, 1), "SAME"))(x)
        edges = ((size - 1) // 2, size // 2)
        padded = np.pad(x, ((0, 0), edges), constant_values=-np.inf)
        expected = np.lib.stride_tricks.sliding_window_view(padded, size, 1).max(-1)
        np.testing.assert_array_equal(found.numpy(), expected, str(size))


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_one_element_move_data(random: np.random.Generator, seed: int) -> None:
    """Over an array with holes as long as the window, as in the gradient of an average pool."""
    for _ in range(5):
        shape = tuple(int(n) for n in random.integers(1, 7, int(random.integers(1, 4))))
        x = random.normal(size=shape).astype(np.float32)
        apart = tuple(int(n) for n in random.integers(1, 5, len(shape)))
        window = tuple(int(random.integers(1, n + 1)) for n in apart)
        strides = tuple(int(n) for n in random.integers(1, 3, len(shape)))
        padding = tuple((int(random.integers(0, 4)), int(random.integers(0, 4))) for _ in shape)

        def pooled(ns: Any, x: Any, how: Any = (window, strides, padding, apart)) -> Any:
            return ns.lax.reduce_window(x, np.float32(0), ns.lax.add, *how)

        compiled = tx.jit(lambda x: pooled(tx, x))
        assert "windows" not in [kernel.name for kernel in compiled.lower(x).compile().kernels]
        np.testing.assert_array_equal(compiled(x).numpy(), jax.jit(lambda x: pooled(jax, x))(x), f"{window} {apart}")


KINDS = {
    "edges": ((3, 20, 9), (WindowDimension(1), WindowDimension(3, 1, 1, 1), WindowDimension(4, 1, 2, 1))),
    "strided lines": ((4, 9, 40), (WindowDimension(1), WindowDimension(3, 2), WindowDimension(3, 2, 1, 1))),
    "tiles": ((2, 21, 15, 3), (WindowDimension(1), WindowDimension(7, 7), WindowDimension(7, 7), WindowDimension(1))),
    "blocks": ((150, 40), (WindowDimension(33, 1, 20, 9), WindowDimension(1))),
    "strided blocks": ((2, 150, 20), (WindowDimension(1), WindowDimension(50, 3, 7, 60), WindowDimension(1))),
    "dilated blocks": ((160, 3), (WindowDimension(20, 1, 8, 16, 8), WindowDimension(1))),
    "steps": ((2, 300), (WindowDimension(1), WindowDimension(77, 2, 40, 30))),
    "steps over holes": ((90,), (WindowDimension(60, 1, 9, 9, 1, 2),)),
    "both": ((70, 80), (WindowDimension(21, 1, 10, 10), WindowDimension(35, 1, 10, 10))),
    "outside": ((5, 4), (WindowDimension(2, 1, 9, 9), WindowDimension(1))),
}


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_windows(random: np.random.Generator, kind: str) -> None:
    """With what follows element by element, which is made where the result is."""
    shape, window = KINDS[kind]
    for dtype, op in ((np.int32, "add"), (np.float16, "maximum"), (np.float32, "minimum"), (np.int8, "xor")):
        x = random.integers(-50, 50, shape).astype(dtype)
        to_apply, start = reduction.scalar_computation(op, dtype), np.asarray(3, dtype)
        expected = op_checks.evaluated(
            ops["reduce-window"], Sample((x, start), {"window": window, "to_apply": to_apply})
        )

        def function(x: Any, op: str = op, start: Array = start, to_apply: Any = to_apply) -> Any:
            found = windows.reduce_window(x, tnp.asarray(start), window=window, to_apply=to_apply)
            return found if op == "xor" else found * 2 + 1

        found = tx.jit(function)(x).numpy()
        np.testing.assert_array_equal(found, expected[0] if op == "xor" else expected[0] * 2 + 1)


def test_an_average_is_one_kernel() -> None:
    x = np.ones((2, 8, 8, 3), np.float32)
    made = tx.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1)) / 4).lower(x).compile()
    assert len(made.kernels) == 1


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID"])
def test_named_padding_of_dilated_arrays_is_that_of_jax(padding: str) -> None:
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    for size, stride, base, holes in itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (1, 2)):
        window = (1, size), (1, stride), padding, (1, base), (1, holes)
        wanted = jax.lax.reduce_window(x, 0.0, jax.lax.add, *window)
        np.testing.assert_array_equal(lax.reduce_window(x, 0.0, lax.add, *window), wanted, str(window))
