"""Slices at computed places, scatter and sort in compiled programs: random attributes, types and places, against the
readable rules (`evaluate`) bit for bit, and against XLA."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.lax
import numpy as np
import pytest

import tinyxla as tx
from tinyxla.backends.numba import CompiledModule
from tinyxla.errors import DifferentiationError, DTypeError, ShapeError
from tinyxla.hlo import Computation
from tinyxla.ops import dynamic_slices, elementwise, indexing, movement, reduction, sorting
from tinyxla.shapes import ElementType, Shape, element_type
from tinyxla.shapes.element_types import element_types
from tinyxla.tracing import wrap
from tinyxla.tracing.core import trace

Array = np.ndarray[Any, Any]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
VALUES = ("float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool", "complex64")


def some_values(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    whole = random.integers(-20, 20, shape)
    kind = element_type("bf16").dtype if dtype == "bfloat16" else np.dtype(dtype)
    return np.asarray(whole).astype(kind)


def some_indices(random: np.random.Generator, shape: tuple[int, ...], limit: int) -> Array:
    """Places around an array, and now and then the ends of the type."""
    kind = np.iinfo(INTEGERS[random.integers(len(INTEGERS))])
    near = np.clip(random.integers(-3, limit + 3, shape), max(kind.min, -3), kind.max).astype(kind.dtype)
    far = random.choice(np.array([kind.min, kind.max], kind.dtype), shape)
    return np.asarray(np.where(random.uniform(size=shape) < 0.15, far, near))


def some_gather(random: np.random.Generator, empty: bool = True) -> tuple[tuple[int, ...], Array, indexing.Gather]:
    """The operand's sizes, the indices, and attributes that fit them."""
    sizes = [int(n) for n in random.integers(0 if empty and random.uniform() < 0.1 else 1, 6, random.integers(0, 5))]
    rank = len(sizes)
    role = random.permutation(rank).tolist()
    together = role[: random.integers(0, 1 + rank // 2)] if random.uniform() < 0.5 else []
    rest = [d for d in role if d not in together]
    indexed = rest[: random.integers(0, len(rest) + 1)]
    collapsed = sorted(d for d in rest if random.uniform() < (0.6 if d in indexed else 0.2))
    slices = [
        min(1, n) if d in (*collapsed, *together) else int(random.integers(0, n + 1)) for d, n in enumerate(sizes)
    ]
    batch = [int(n) for n in random.integers(1, 5, random.integers(0, 3))]
    where = [int(random.integers(len(batch) + 1 + k)) for k in range(len(together))]
    for d, at in zip(together, where, strict=True):
        batch.insert(at, sizes[d])
    # Where each dimension that runs together ended up: found by inserting marks in the same way.
    marks: list[int | None] = [None] * (len(batch) - len(together))
    for d, at in zip(together, where, strict=True):
        marks.insert(at, d)
    vector_dim = int(random.integers(len(batch) + 1))
    implicit = len(indexed) == 1 and random.uniform() < 0.3
    if implicit:
        vector_dim = len(batch)
    shape = tuple(batch) if implicit else (*batch[:vector_dim], len(indexed), *batch[vector_dim:])
    place = {d: at + (at >= vector_dim and not implicit) for at, d in enumerate(marks) if d is not None}
    window = rank - len(collapsed) - len(together)
    offsets = sorted(random.permutation(len(batch) + window)[:window].tolist())
    attributes = indexing.Gather(
        offset_dims=tuple(offsets),
        collapsed_slice_dims=tuple(collapsed),
        start_index_map=tuple(indexed),
        index_vector_dim=vector_dim,
        slice_sizes=tuple(slices),
        operand_batching_dims=tuple(sorted(together)),
        start_indices_batching_dims=tuple(place[d] for d in sorted(together)),
    )
    return tuple(sizes), some_indices(random, shape, max(sizes, default=1)), attributes


def assert_same(actual: Any, expected: Any, what: Any = "") -> None:
    x, y = np.asarray(actual.numpy()), np.asarray(expected)
    assert x.dtype == y.dtype, what
    assert x.shape == y.shape, what
    assert x.tobytes() == np.ascontiguousarray(y).tobytes(), f"{what}: {x} instead of {y}"


def compiled(function: Callable[..., Any], *args: Any) -> Any:
    """What a compiled function gives for arrays whose types stay what they are."""
    return tx.jit(function)(*map(wrap, args))


def plan_of(function: Callable[..., Any], *args: Any) -> str:
    """The steps of a compiled function, and the bytes of its temporaries."""
    return CompiledModule(tx.jit(function).lower(*map(wrap, args)).module).report().text()


def host_calls(function: Callable[..., Any], *args: Any) -> list[str]:
    return re.findall(r"host call of (\S+):", plan_of(function, *args))


def temporaries(function: Callable[..., Any], *args: Any) -> int:
    return int(re.findall(r"(\d+) bytes of temporaries", plan_of(function, *args))[0])


# --- gather and dynamic-slice -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_gather_takes_what_evaluate_takes(seed: int) -> None:
    """Alone, and between element-wise functions, with which it is one nest."""
    random = np.random.default_rng(seed)
    sizes, indices, attributes = some_gather(random)
    x = some_values(random, VALUES[seed % len(VALUES)], sizes)
    given = attributes._asdict()
    taken = indexing.gather.evaluate(x, indices, **given)
    assert_same(compiled(lambda x, i: indexing.gather(x, i, **given), x, indices), taken, attributes)
    if x.dtype == np.float32:

        def between(x: Any, i: Any) -> Any:
            moved = movement.reverse(x, dimensions=tuple(range(x.ndim)))
            return -indexing.gather(moved + moved, elementwise.add(i, elementwise.zeros_like(i)), **given)

        doubled = indexing.gather.evaluate(np.flip(x) * 2, indices, **given)
        assert_same(compiled(between, x, indices), -doubled, attributes)
        assert not host_calls(between, x, indices)


def for_jax(indices: Array, a: indexing.Gather) -> tuple[Array, indexing.Gather]:
    """The same with index vectors last, and places of the one type that JAX leaves as it is."""
    indices = np.clip(indices.astype(np.float64), -1 << 31, (1 << 31) - 1).astype(np.int32)
    vector_dim = a.index_vector_dim
    if vector_dim == indices.ndim:
        indices = indices[..., None]
    a = a._replace(
        index_vector_dim=indices.ndim - 1,
        start_indices_batching_dims=tuple(d - (d > vector_dim) for d in a.start_indices_batching_dims),
    )
    return np.moveaxis(indices, vector_dim, -1), a


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(16))
def test_gather_and_scatter_do_what_xla_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes, indices, a = some_gather(random, empty=False)
    indices, a = for_jax(indices, a)
    x = some_values(random, "float32", sizes)
    theirs = (a.start_index_map, a.operand_batching_dims, a.start_indices_batching_dims)
    numbers = jax.lax.GatherDimensionNumbers(a.offset_dims, a.collapsed_slice_dims, *theirs)
    expected = jax.lax.gather(x, indices, numbers, a.slice_sizes, mode="clip")
    assert_same(compiled(lambda x, i: indexing.gather(x, i, **a._asdict()), x, indices), expected, a)

    if not a.start_index_map:  # which XLA's scatter fails on
        return
    op, function = [("add", jax.lax.scatter_add), ("multiply", jax.lax.scatter_mul), ("minimum", jax.lax.scatter_min)][
        seed % 3
    ]
    updates = some_values(random, "float32", expected.shape) % 4
    given = indexing._scatter_like(a, reduction.scalar_computation(op, x.dtype))
    places = jax.lax.ScatterDimensionNumbers(a.offset_dims, a.collapsed_slice_dims, *theirs)
    expected = function(x, indices, updates, places, mode="drop")
    found = compiled(lambda *xs: indexing.scatter(*xs, **given._asdict()), x, indices, updates)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("kind", INTEGERS)
def test_dynamic_slices_with_any_start(kind: str) -> None:
    random = np.random.default_rng(0)
    limits = np.iinfo(kind)
    for start in {limits.min, limits.max, 0, 1, 3, 100, limits.max // 2 + 1, max(limits.min, -1)}:
        x = some_values(random, "float32", (4, 7))
        starts = (np.asarray(start, kind), np.asarray(2, kind))
        for sizes in ((2, 7), (1, 3), (4, 7), (0, 2)):

            def take(x: Any, *starts: Any, sizes: tuple[int, int] = sizes) -> Any:
                return dynamic_slices.dynamic_slice(x * 2, *starts, dynamic_slice_sizes=sizes)

            expected = dynamic_slices.dynamic_slice.evaluate(x * 2, *starts, dynamic_slice_sizes=sizes)
            assert_same(compiled(take, x, *starts), expected, (start, sizes))
            assert not host_calls(take, x, *starts)


def test_what_is_taken_is_computed_where_it_is_taken() -> None:
    """Nothing that is as large as the table is stored for a few of its rows."""
    assert temporaries(lambda t, r: tx.numpy.exp(t)[r].sum(-1), np.ones((1000, 8), np.float32), np.arange(3)) == 0


def test_a_costly_table_is_computed_once() -> None:
    table, rows = np.ones((10, 8), np.float32), np.arange(1000) % 10
    assert 0 < temporaries(lambda t, r: tx.numpy.exp(t)[r], table, rows) <= 10 * 8 * 4 + 64


def test_rows_read_elsewhere() -> None:
    """What several loops over a row need is kept for the row; not for those that read another row."""
    x, rows = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32), np.arange(300)[::-1] // 2

    def function(x: Any, rows: Any) -> Any:
        exponential = tx.numpy.exp(x)
        return exponential / exponential.sum(-1, keepdims=True) + exponential[rows] + exponential[::-1]

    exponential = np.exp(x)
    expected = exponential / exponential.sum(-1, keepdims=True) + exponential[rows] + exponential[::-1]
    np.testing.assert_allclose(compiled(function, x, rows).numpy(), expected, 1e-5)


# --- dynamic-update-slice and scatter ---------------------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("kind", INTEGERS)
def test_dynamic_updates_with_any_start(kind: str) -> None:
    random = np.random.default_rng(0)
    limits = np.iinfo(kind)
    for start in {limits.min, limits.max, 0, 1, 3, 100, limits.max // 2 + 1, max(limits.min, -1)}:
        x = some_values(random, "float32", (4, 3, 5))
        starts = (np.asarray(start, kind), np.asarray(2, kind), np.asarray(0, kind))
        for sizes in ((2, 3, 5), (1, 2, 5), (4, 3, 5), (0, 2, 1), (1, 2, 3)):
            update = some_values(random, "float32", sizes) / 2
            expected = dynamic_slices.dynamic_update_slice.evaluate(x * 2, update, *starts)

            def put(x: Any, update: Any, *starts: Any) -> Any:
                return dynamic_slices.dynamic_update_slice(x * 2, update, *starts)

            assert_same(compiled(put, x, update, *starts), expected, (start, sizes))
            assert not host_calls(put, x, update, *starts)


def some_scatter(seed: int, empty: bool = True) -> tuple[list[Array], Array, list[Array], indexing.Scatter]:
    """Operands, indices, updates, and attributes with any of a few computations."""
    random = np.random.default_rng(seed)
    sizes, indices, like = some_gather(random, empty)
    count = 2 if seed % 5 == 0 else 1
    dtypes = [VALUES[int(k)] for k in random.integers(len(VALUES), size=count)]
    arrays = [some_values(random, t, sizes) for t in dtypes]
    shape = indexing.gather.shape(Shape.of(arrays[0]), Shape.of(indices), **like._asdict())
    updates = [some_values(random, t, shape.dimensions) for t in dtypes]
    first = arrays[0].dtype
    if count == 2:
        computation = both_exchanged(arrays[0].dtype, arrays[1].dtype)
    elif first == np.bool_ or first.kind == "c":
        computation = indexing.replacement(first)
    else:
        choices = ["add", "multiply", "maximum", "minimum", "subtract", ""]
        op = choices[int(random.integers(len(choices)))]
        computation = reduction.scalar_computation(op, first) if op else indexing.replacement(first)
    attributes = indexing._scatter_like(like, computation)
    return arrays, indices, updates, attributes


def both_exchanged(first: Any, second: Any) -> Computation:
    """Of two elements and two updates: the first update where the second element is not 0, and always the second."""
    shapes = [Shape(element_type(t)) for t in (first, second)] * 2

    def function(x: Any, y: Any, u: Any, v: Any) -> Any:
        return [elementwise.select(elementwise.ne(y, elementwise.zeros_like(y)), u, x), v]

    return trace(function, shapes, "both_exchanged")[0]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(80))
def test_scatter_gives_what_evaluate_gives(seed: int) -> None:
    arrays, indices, updates, attributes = some_scatter(seed)
    given = attributes._asdict()
    expected = indexing.scatter.evaluate(*arrays, indices, *updates, **given)
    count = len(arrays)

    def function(*operands: Any) -> Any:
        return indexing.scatter(*operands, **given)

    found = compiled(function, *arrays, indices, *updates)
    assert not host_calls(function, *arrays, indices, *updates)
    for x, y in zip(found, expected, strict=True) if count > 1 else ((found, expected),):
        assert_same(x, y, attributes)
    if count > 1:  # a result that nobody takes is seen by the computation all the same
        assert_same(compiled(lambda *operands: function(*operands)[0], *arrays, indices, *updates), expected[0])


@pytest.mark.parametrize(("unique", "window"), [(False, (40, 7)), (True, (3, 5)), (False, (2, 9000)), (False, (1, 1))])
def test_scatter_in_pieces(unique: bool, window: tuple[int, int]) -> None:
    """Work that is cut: by updates if they are unique, else by a dimension of the window; updates stay in order."""
    random = np.random.default_rng(0)
    x = random.normal(size=(50, *window)).astype(np.float32)
    count = 50 if unique else 400
    indices = random.permutation(50)[:, None] if unique else random.integers(-1, 51, (count, 1))
    updates = random.normal(size=(count, *window)).astype(np.float32)
    given = indexing.Scatter((1, 2), (0,), (0,), 1, reduction.scalar_computation("add", x.dtype), unique_indices=unique)
    found = compiled(lambda *xs: indexing.scatter(*xs, **given._asdict()), x, indices, updates)
    assert_same(found, indexing.scatter.evaluate(x, indices, updates, **given._asdict()))


def test_updates_in_place_of_what_nobody_needs() -> None:
    """An operand that is read no more is not copied; one that is still needed stays what it is."""
    x, rows = np.ones((300, 40), np.float32), np.array([[3], [5], [3]])
    given = indexing.Scatter((1,), (0,), (0,), 1, reduction.scalar_computation("add", x.dtype))._asdict()

    def twice(x: Any, rows: Any) -> Any:
        start = wrap(np.zeros((), np.int32))
        first = indexing.scatter(x * 2, rows, x[:3], **given)
        second = dynamic_slices.dynamic_update_slice(first, x[:2], start, start)
        return second * 3

    def kept(x: Any, rows: Any) -> Any:
        doubled = x * 2
        return indexing.scatter(doubled, rows, x[:3], **given), doubled

    assert temporaries(twice, x, rows) < 2 * x.nbytes
    expected = x * 2
    np.add.at(expected, rows[:, 0], x[:3])
    assert_same(compiled(kept, x, rows)[0], expected)
    assert_same(compiled(kept, x, rows)[1], x * 2)
    expected[:2] = x[:2]
    assert_same(compiled(twice, x, rows), expected * 3)


def test_applying_a_function_to_elements() -> None:
    """As often as they are named; with derivatives if that is at most once."""
    x = np.array([1.0, 2.0, 3.0, 0.0], np.float32)
    numbers = tx.lax.ScatterDimensionNumbers((), (0,), (0,))
    theirs = jax.lax.ScatterDimensionNumbers((), (0,), (0,))
    rows = np.array([[1], [2], [1], [9]])
    found = tx.lax.scatter_apply(x, rows, lambda x: x * x, numbers, update_shape=(4,))
    assert_same(found, jax.lax.scatter_apply(x, rows, lambda x: x * x, theirs, update_shape=(4,)))

    def total(x: Any) -> Any:
        rows = np.array([[1], [9], [3]])
        applied = tx.lax.scatter_apply(x, rows, tx.lax.sqrt, numbers, update_shape=(3,), unique_indices=True)
        return (applied * np.array([1, 2, 3, 0], np.float32)).sum()

    gradient = tx.grad(total)(np.array([1.0, 4.0, 3.0, 1.0], np.float32))
    assert_same(gradient, np.array([1, 0.5, 3, 0], np.float32))
    with pytest.raises(DifferentiationError, match="unique_indices"):
        tx.grad(lambda x: tx.lax.scatter_apply(x, rows, tx.lax.sin, numbers, update_shape=(4,)).sum())(x)


# --- sort -------------------------------------------------------------------------------------------------------------


def in_float_order(x: Any, y: Any) -> Any:
    """A comparator that contradicts itself where NaN is: NaN comes neither before nor after anything."""
    return [elementwise.lt(x, y)]


def always(x: Any, y: Any) -> Any:
    return [elementwise.eq(elementwise.sub(x, x), elementwise.sub(x, x))]


def by_chance(x: Any, y: Any) -> Any:
    return [elementwise.gt(elementwise.sin(x * 917 + y * 3.7), elementwise.zeros_like(x))]


def comparator(function: Callable[..., Any], *dtypes: Any) -> Computation:
    traced = trace(function, [Shape(element_type(t)) for t in dtypes for _ in (0, 1)], function.__name__)[0]
    body = [x for x in traced.instructions if x is not traced.root]
    return Computation(traced.name, traced.parameters, body, traced.outputs[0])


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(24))
def test_sort_puts_in_the_order_that_evaluate_has(seed: int) -> None:
    """By one to three keys, up and down, with payload; NaN last, and both zeros equal."""
    random = np.random.default_rng(seed)
    sizes = [int(n) for n in random.integers(1, 6, random.integers(0, 3))]
    axis = int(random.integers(len(sizes) + 1))
    sizes.insert(axis, int(random.choice([0, 1, 2, 7, 8, 9, 31, 100, 5000 if len(sizes) < 2 else 40])))
    dtypes = [VALUES[int(k)] for k in random.integers(len(VALUES), size=random.integers(1, 4))]
    operands = [some_values(random, t, tuple(sizes)) for t in dtypes]
    for x in operands:
        if x.dtype == np.float32:
            x.reshape(-1)[::5], x.reshape(-1)[1::7] = np.nan, -0.0
    keys = int(random.integers(1, len(operands) + 1))
    order = sorting.order_computation(tuple(x.dtype for x in operands), keys, bool(random.integers(2)))
    given = sorting.Sort((axis,), order)._asdict()
    expected = sorting.sort.evaluate(*operands, **given)
    found = compiled(lambda *xs: sorting.sort(*xs, **given), *operands)
    if len(operands) == 1:
        found, expected = (found,), (expected,)
    for x, y in zip(found, expected, strict=True):
        assert_same(x, y, (sizes, axis, dtypes, keys))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("length", [1, 8, 9, 50, 4096, 10_000])
def test_sort_by_any_comparator(length: int) -> None:
    random = np.random.default_rng(length)
    x = random.normal(size=(2, length)).astype(np.float32)
    given = sorting.Sort((1,), sorting.by_magnitude(x.dtype))._asdict()
    found = compiled(lambda x: sorting.sort(x, **given), x)
    assert_same(found, np.take_along_axis(x, np.argsort(np.abs(x), 1, kind="stable"), 1))
    assert not host_calls(lambda x: sorting.sort(x, **given), x)


@pytest.mark.parametrize("function", [in_float_order, always, by_chance])
@pytest.mark.parametrize("length", [7, 9001])
def test_a_comparator_that_contradicts_itself_loses_nothing(function: Callable[..., Any], length: int) -> None:
    random = np.random.default_rng(length)
    x = random.normal(size=length).astype(np.float32)
    x[::3] = np.nan
    given = sorting.Sort((0,), comparator(function, x.dtype))._asdict()
    found = compiled(lambda x: sorting.sort(x, **given), x).numpy()
    np.testing.assert_array_equal(np.sort(found), np.sort(x))


def test_sort_of_many_keys_as_jax_does() -> None:
    random = np.random.default_rng(0)
    keys = [random.integers(0, 4, (50, 300)).astype(t) for t in (np.float32, np.int32)]
    keys[0][keys[0] == 2] = np.nan
    payload = np.arange(keys[0].size, dtype=np.int32).reshape(keys[0].shape)
    for dimension in (0, 1):
        expected = jax.lax.sort([*keys, payload], dimension, num_keys=2)
        found = tx.jit(lambda *xs, d=dimension: tx.lax.sort(xs, d, num_keys=2))(*keys, payload)
        for x, y in zip(found, expected, strict=True):
            assert_same(x, y)


# --- topk -------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("seed", range(12))
def test_topk_finds_what_jax_finds(seed: int) -> None:
    """Ties by place, NaN and zeros by their signs; any axis; compiled and not."""
    random = np.random.default_rng(seed)
    length = [1, 5, 20, 100, 700, 5000][seed // 2]
    x = some_values(random, ("float32", "int8", "float16", "bfloat16", "uint16", "bool")[seed % 6], (3, length, 2))
    if x.dtype == np.float32:
        x[0, ::5], x[1, ::7], x[2, ::3] = np.nan, -0.0, -np.nan
    k = int(random.integers(min(length, 20) + 1))
    expected = jax.lax.top_k(x, k, axis=1)
    for found in (tx.lax.top_k(x, k, axis=1), tx.jit(lambda x: tx.lax.top_k(x, k, axis=1))(x)):
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("kind", ["int64", "float64", "bool"])
def test_topk_of_many_that_are_equal(kind: str) -> None:
    """So that everything is a candidate; and the smallest."""
    x = np.zeros((2, 900), kind)
    x[1, ::3] = 1
    for largest in (False, True):
        given = {"k": 9, "largest": largest}
        found = compiled(lambda x, g=given: sorting.topk(x, **g), x)
        for a, b in zip(found, sorting.topk.evaluate(x, **given), strict=True):
            assert_same(a, b)
    assert not host_calls(lambda x: sorting.topk(x, k=9), x)


def test_approximately_largest_are_the_largest() -> None:
    x = np.array([3.0, 9.0, 1.0, 4.0], np.float32)
    for name in ("approx_max_k", "approx_min_k"):
        for a, b in zip(getattr(tx.lax, name)(x, 2), getattr(jax.lax, name)(x, 2), strict=True):
            assert_same(a, b)


# --- errors -----------------------------------------------------------------------------------------------------------

X, ROWS = wrap(np.zeros((4, 3), np.float32)), wrap(np.zeros((2, 1), np.int32))
G = indexing.Gather((1,), (0,), (0,), 1, (1, 3))
S = indexing._scatter_like(G, reduction.scalar_computation("add", X.dtype))
U = wrap(np.zeros((2, 3), np.float32))
ZERO = wrap(np.zeros((), np.int32))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: dynamic_slices.dynamic_slice(X, ZERO, dynamic_slice_sizes=(1, 1)),
            ShapeError,
            "there must be 2 start indices",
        ),
        (lambda: dynamic_slices.dynamic_slice(X, X, X, dynamic_slice_sizes=(1, 1)), DTypeError, "must be integers"),
        (
            lambda: dynamic_slices.dynamic_slice(X, ROWS, ROWS, dynamic_slice_sizes=(1, 1)),
            ShapeError,
            "must be a scalar",
        ),
        (
            lambda: dynamic_slices.dynamic_slice(X, ZERO, wrap(np.zeros((), np.int8)), dynamic_slice_sizes=(1, 1)),
            DTypeError,
            "must have one type",
        ),
        (
            lambda: dynamic_slices.dynamic_slice(X, ZERO, ZERO, dynamic_slice_sizes=(5, 1)),
            ShapeError,
            "must fit inside",
        ),
        (
            lambda: dynamic_slices.dynamic_update_slice(X, wrap(np.zeros((5, 1), np.float32)), ZERO, ZERO),
            ShapeError,
            "fit inside",
        ),
        (lambda: dynamic_slices.dynamic_update_slice(X, ROWS, ZERO, ZERO), DTypeError, "convert one of them"),
        (lambda: indexing.gather(X, X, **G._asdict()), DTypeError, "must be integers"),
        (
            lambda: indexing.gather(X, ROWS, **G._replace(index_vector_dim=3)._asdict()),
            ShapeError,
            "from 0 to the rank",
        ),
        (
            lambda: indexing.gather(X, ROWS, **G._replace(start_index_map=(0, 1))._asdict()),
            ShapeError,
            "each of the 1 entries",
        ),
        (lambda: indexing.gather(X, ROWS, **G._replace(slice_sizes=(1, 4))._asdict()), ShapeError, "must fit inside"),
        (
            lambda: indexing.gather(X, ROWS, **G._replace(slice_sizes=(2, 3))._asdict()),
            ShapeError,
            "slice_sizes must be 1 in dimension",
        ),
        (lambda: indexing.gather(X, ROWS, **G._replace(offset_dims=())._asdict()), ShapeError, "offset_dims is"),
        (
            lambda: indexing.gather(X, ROWS, **G._replace(collapsed_slice_dims=(1, 0))._asdict()),
            ShapeError,
            "must ascend",
        ),
        (
            lambda: indexing.gather(X, ROWS, **G._replace(operand_batching_dims=(1,))._asdict()),
            ShapeError,
            "as many batching dimensions",
        ),
        (
            lambda: indexing.gather(
                X, ROWS, **G._replace(operand_batching_dims=(1,), start_indices_batching_dims=(1,))._asdict()
            ),
            ShapeError,
            "runs along index vectors",
        ),
        (
            lambda: indexing.gather(
                X, ROWS, **G._replace(operand_batching_dims=(1,), start_indices_batching_dims=(0,))._asdict()
            ),
            ShapeError,
            "must have one size",
        ),
        (lambda: indexing.scatter(X, ROWS, **S._asdict()), ShapeError, "got 2 operands"),
        (
            lambda: indexing.scatter(X, ROWS, wrap(np.zeros((2, 3), np.int32)), **S._asdict()),
            DTypeError,
            "must have its element type",
        ),
        (lambda: indexing.scatter(X, ROWS, U[:1], **S._asdict()), ShapeError, "must have the sizes"),
        (lambda: indexing.scatter(X, X, U, **S._asdict()), DTypeError, "must be integers"),
        (lambda: sorting.sort(**sorting.Sort((0,), sorting.by_magnitude(X.dtype))._asdict()), ShapeError, "one array"),
        (lambda: sorting.sort(X, **sorting.Sort((0, 1), sorting.by_magnitude(X.dtype))._asdict()), ShapeError, "one,"),
        (
            lambda: sorting.sort(ROWS, **sorting.Sort((0,), sorting.by_magnitude(X.dtype))._asdict()),
            ShapeError,
            "must map",
        ),
        (lambda: sorting.topk(X, k=4), ShapeError, "k must be from 0"),
        (lambda: sorting.topk(ZERO, k=1), ShapeError, "must have a dimension"),
        (lambda: sorting.topk(wrap(np.zeros(3, np.complex64)), k=1), DTypeError, "no order"),
    ],
)
def test_what_is_asked_for_must_exist(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        trace(lambda: [make()], [], "asked")


# --- types that are only stored ---------------------------------------------------------------------------------------

NARROW = [t for t in element_types.values() if t.bits < 8 or (t.kind == "float" and t.bits == 8)]
BYTES = np.arange(256, dtype=np.uint8)


def as_bytes(x: Any) -> Array:
    return np.asarray(x.numpy() if hasattr(x, "numpy") else x).view(np.uint8)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_narrow_types_are_moved_in_loops(kind: ElementType) -> None:
    """Bit by bit, by movement of any kind, updates, sorts that carry them, and choice."""
    x = np.arange(24, dtype=np.uint8).reshape(4, 6).view(kind.dtype)
    rows = np.array([[2], [0], [9]], np.int32)
    like = indexing.Gather((1,), (0,), (0,), 1, (1, 6))
    put = indexing._scatter_like(like, indexing.replacement(x.dtype))
    order = sorting.Sort((0,), sorting.order_computation((np.dtype(np.int32), x.dtype)))

    def moved(x: Any, rows: Any) -> Any:
        taken = indexing.gather(x, rows, **like._asdict())
        padded = movement.pad(taken, movement.full(0, x.dtype), padding_config=((1, 0, 0), (0, 2, 0)))
        joined = movement.concatenate(movement.reverse(padded, dimensions=(1,)), padded, dimension=0)
        written = indexing.scatter(x, rows, taken, **put._asdict())
        updated = dynamic_slices.dynamic_update_slice(written, taken, *[wrap(np.zeros((), np.int32))] * 2)
        chosen = elementwise.select(wrap(np.arange(24).reshape(4, 6) % 3 == 0), updated, x)
        _, sorted_too = sorting.sort(rows, movement.slice_axis(taken, 1, 2, 3), **order._asdict())
        return joined, chosen, movement.transpose(x, permutation=(1, 0)), sorted_too

    assert not host_calls(moved, x, rows)
    for found, expected in zip(compiled(moved, x, rows), moved(wrap(x), wrap(rows)), strict=True):
        np.testing.assert_array_equal(as_bytes(found), as_bytes(expected))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_narrow_types_are_converted_in_loops(kind: ElementType) -> None:
    """Each of their values to every type, and every 16-bit float and what is around its middle to them."""
    every = BYTES[: 1 << kind.bits].view(kind.dtype)
    halves = np.arange(1 << 16, dtype=np.uint32)
    wide = [(halves << 16).view(np.float32), (halves << 16 | 1).view(np.float32), ((halves << 16) - 1).view(np.float32)]
    ties = (halves << 16 | 0x8000).view(np.float32)
    integers = np.arange(-(1 << 15), 1 << 15, 7)
    to_kind = [
        *wide,
        ties,
        halves.astype(np.uint16).view(np.float16),
        *(integers.astype(t) for t in ("i1", "u1", "i2")),
    ]
    if kind.is_integer:
        to_kind += [integers * 1_000_003, integers.astype(np.float64) / 1000]
    targets = [t for t in element_types.values() if t.kind != "complex"]

    def both(every: Any, *arrays: Any) -> Any:
        out = [elementwise.convert(every, new_element_type=t) for t in targets]
        return [*out, *(elementwise.convert(x, new_element_type=kind) for x in arrays)]

    arrays = [every, *to_kind]
    assert not host_calls(both, *arrays)
    with np.errstate(all="ignore"):
        expected = both(*map(wrap, arrays))
        found = compiled(both, *arrays)
    for x, y in zip(found, expected, strict=True):
        given, wanted = (np.asarray(v.numpy()) for v in (x, y))
        same = as_bytes(given) == as_bytes(wanted)
        nan = np.repeat((given != given) & (wanted != wanted), given.dtype.itemsize)
        assert np.all(same | nan), (given.dtype, given[~(same | nan)[:: given.dtype.itemsize]])


def test_narrow_types_as_places() -> None:
    table, places = np.arange(10.0, dtype=np.float32), np.array([3, -8, 7], element_type("s4").dtype)
    given = indexing.Gather((), (0,), (0,), 1, (1,))._asdict()
    assert_same(compiled(lambda t, p: indexing.gather(t, p, **given), table, places), table[[3, 0, 7]])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_many_arrays_are_copied_one_by_one(axis: int, generator: np.random.Generator) -> None:
    """Each element of a concatenation is read from its array, not chosen among all of them."""
    arrays = [generator.standard_normal([k % 4 if d == axis else 3 for d in range(3)], np.float32) for k in range(11)]

    def joined(*arrays: Any) -> Any:
        return tx.numpy.concatenate(arrays, axis), tx.numpy.concatenate([2 * x for x in arrays], axis) + 1

    assert not host_calls(joined, *arrays)
    plain, changed = tx.jit(joined)(*arrays)
    np.testing.assert_array_equal(plain, np.concatenate(arrays, axis))
    np.testing.assert_array_equal(changed, 2 * np.concatenate(arrays, axis) + 1)


def test_what_is_written_is_computed_where_it_is_written(generator: np.random.Generator) -> None:
    """Places and values that are simple take no memory."""
    x, places = generator.standard_normal((50, 8), np.float32), generator.integers(-50, 50, 30, np.int32)
    rows = generator.standard_normal((30, 8), np.float32)

    def added(x: Any, places: Any, rows: Any) -> Any:
        return x.at[places].add(2 * rows + 1)

    assert temporaries(added, x, places, rows) == 0
    wanted = x.copy()
    np.add.at(wanted, places, 2 * rows + 1)
    np.testing.assert_allclose(tx.jit(added)(x, places, rows), wanted, rtol=1e-6)


def test_what_is_written_is_computed_from_what_was_there_before(generator: np.random.Generator) -> None:
    """Though the result is made in the memory of the array that is read, in loops too."""
    x, places = generator.integers(-9, 9, 40, np.int32), generator.permutation(40).astype(np.int32)

    def moved(x: Any, places: Any) -> Any:
        return (x + 1).at[places].set((x + 1)[::-1] * 2)

    def shifted(x: Any) -> Any:
        return tx.lax.fori_loop(0, 7, lambda i, y: tx.lax.dynamic_update_slice(y, y[:20] + y[1:21], (i,)), x)

    wanted = x + 1
    wanted[places] = (x + 1)[::-1] * 2
    np.testing.assert_array_equal(tx.jit(moved)(x, places), wanted)
    wanted = x.copy()
    for i in range(7):
        wanted[i : i + 20] = wanted[:20] + wanted[1:21]
    np.testing.assert_array_equal(tx.jit(shifted)(x), wanted)


@pytest.mark.parametrize("ordered", [False, True])
def test_sums_of_segments_do_not_depend_on_the_number_of_threads(ordered: bool, generator: np.random.Generator) -> None:
    x, numbers = generator.standard_normal((20_000, 4), np.float32), generator.integers(-5, 700, 20_000, np.int32)
    numbers = np.sort(numbers) if ordered else numbers
    sums = tx.jit(lambda x, i: tx.ops.segment_sum(x, i, 650, indices_are_sorted=ordered))
    with tx.num_threads(1):
        alone = np.asarray(sums(x, numbers))
    wanted = np.zeros((650, 4), np.float32)
    inside = (numbers >= 0) & (numbers < 650)
    np.add.at(wanted, numbers[inside], x[inside])
    np.testing.assert_array_equal(alone, wanted)
    with tx.num_threads(3):
        np.testing.assert_array_equal(sums(x, numbers), alone)


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_elements_along_lines(mode: str, generator: np.random.Generator) -> None:
    x, places = generator.standard_normal((5, 7), np.float32), generator.integers(-9, 9, (5, 11), np.int32)
    found = tx.jit(lambda x, i: tx.numpy.take_along_axis(x, i, 1, mode=mode))(x, places)
    wrapped = np.where(places < 0, places + 7, places)
    wanted = np.take_along_axis(x, np.clip(wrapped, 0, 6), 1)
    if mode == "fill":
        wanted = np.where((wrapped >= 0) & (wrapped < 7), wanted, np.nan)
    np.testing.assert_array_equal(found, wanted)


def test_an_update_that_is_computed_where_it_is_put(generator: np.random.Generator) -> None:
    x, a, b = (generator.standard_normal(shape, np.float32) for shape in ((2, 3, 5, 8), (3, 5, 1), (3, 8)))

    def put(x: Any, a: Any, b: Any, number: Any) -> Any:
        return tx.lax.dynamic_update_slice(x, (a * b[:, None])[None], (number, 0, 0, 0))

    expected = x.copy()
    expected[1] = a * b[:, None]
    np.testing.assert_array_equal(tx.jit(put)(x, a, b, 1), expected)
