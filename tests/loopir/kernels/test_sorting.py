"""Sorts by digits and selections, compiled: against the reference, for every type of key and any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tests.loopir.kernels.test_indexing_kernels import host_calls
from tinyxla.loopir.kernels.sort.problem import ALL_SEGMENTS, Ranks, segment_shift
from tinyxla.ops import sorting
from tinyxla.shapes import element_type
from tinyxla.tracing.config import setting

KINDS = "f32 f64 f16 bf16 s8 s16 s32 s64 u8 u16 u32 u64 pred".split()
# Lines that are sorted in registers, side by side, by one thread, by several, and more than one of them.
SHAPES = [(5,), (9,), (3, 40), (20, 3), (17, 300), (2, 3, 300), (9, 25_000), (70_001,), (2, 66_000)]


def keys_of(kind: str, shape: tuple[int, ...], random: np.random.Generator) -> Any:
    """Many equal keys, and those that are equal and yet differ."""
    dtype = element_type(kind).dtype
    if kind == "pred":
        return random.random(shape) < 0.4
    if element_type(kind).is_integer:
        info = np.iinfo(dtype)
        wide = random.integers(info.min, info.max, shape, dtype, endpoint=True)
        return np.where(random.random(shape) < 0.5, wide, wide % 3).astype(dtype)
    x = np.where(random.random(shape) < 0.5, random.integers(-2, 3, shape), random.standard_normal(shape))
    for value, share in ((-0.0, 0.1), (np.nan, 0.1), (-np.nan, 0.1), (np.inf, 0.05), (-np.inf, 0.05)):
        x = np.where(random.random(shape) < share, value, x)
    return x.astype(dtype)


def check(op: Any, operands: tuple[Any, ...], **attributes: Any) -> None:
    """The compiled op gives the reference's results, bit for bit."""
    wanted = op.evaluate(*operands, **attributes)
    arrays = [tx.numpy.asarray(x, dtype=x.dtype) for x in operands]
    found = tx.jit(lambda *x: op(*x, **attributes))(*arrays)
    for got, expected in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
        assert got.dtype == expected.dtype
        assert np.asarray(got).tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_alone_and_with_another_array(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> None:
    keys = keys_of(kind, shape, generator)
    other = generator.integers(0, 200, shape, dtype=np.int16)
    for descending in (False, True):
        alone = sorting.order_computation((keys.dtype,), 1, descending)
        pair = sorting.order_computation((keys.dtype, other.dtype), 1, descending)
        check(sorting.sort, (keys,), dimensions=(len(shape) - 1,), to_apply=alone)
        check(sorting.sort, (keys, other), dimensions=(len(shape) - 1,), to_apply=pair)


@pytest.mark.parametrize("axis", [0, 1])
def test_several_keys_complex_ones_and_other_dimensions(axis: int, generator: np.random.Generator) -> None:
    shape = (40, 30)
    first, second = keys_of("f32", shape, generator), keys_of("u8", shape, generator)
    last = generator.standard_normal(shape)
    for keys in (1, 2, 3):
        order = sorting.order_computation((first.dtype, second.dtype, last.dtype), keys, keys == 2)
        check(sorting.sort, (first, second, last), dimensions=(axis,), to_apply=order)
    numbers = np.empty(shape, np.complex64)
    numbers.real, numbers.imag = keys_of("f32", shape, generator), keys_of("f32", shape, generator)
    order = sorting.order_computation((numbers.dtype, second.dtype))
    check(sorting.sort, (numbers, second), dimensions=(axis,), to_apply=order)


def test_lines_whose_digits_are_equal(generator: np.random.Generator) -> None:
    """Digits that all keys have in common move nothing."""
    for x in (
        np.zeros(70_000, np.int32),
        generator.integers(0, 7, 70_000, dtype=np.int64),
        np.full((3, 20), np.nan, "f4"),
    ):
        check(sorting.sort, (x,), dimensions=(x.ndim - 1,), to_apply=sorting.order_computation((x.dtype,)))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("kind", "pred s4 f8e4m3fn s8 bf16 f32 u32 s64 c64".split())
def test_arrays_of_every_type_go_along(kind: str, generator: np.random.Generator) -> None:
    for size in (300, 40_000):
        other = generator.integers(-8, 8, size).astype(element_type(kind).dtype)
        for keys in (keys_of("f16", (size,), generator), keys_of("u32", (size,), generator)):
            order = sorting.order_computation((keys.dtype, other.dtype), 1)
            check(sorting.sort, (keys, other), dimensions=(0,), to_apply=order)


@pytest.mark.parametrize("kind", ["u32", "s64", "f32"])
@pytest.mark.parametrize("size", [9000, 70_000])
def test_keys_that_differ_in_lower_digits_alone(kind: str, size: int, generator: np.random.Generator) -> None:
    """One far-away key makes the upper digits of all others equal, and these come in the opposite order."""
    keys = np.arange(size, 0, -1).astype(element_type(kind).dtype)
    keys[::1000] = 2**31 - 1 if kind == "u32" else 2**40
    other = generator.integers(0, 200, size, dtype=np.int16)
    for operands in ((keys,), (keys, other), (np.stack([keys, keys[::-1]]),)):
        order = sorting.order_computation(tuple(x.dtype for x in operands), 1)
        check(sorting.sort, operands, dimensions=(operands[0].ndim - 1,), to_apply=order)


@pytest.mark.parametrize("kind", ["u16", "u32", "s64", "f64"])
def test_short_lines_with_keys_as_far_apart_as_can_be(kind: str, generator: np.random.Generator) -> None:
    """Their digits are narrow, and the last of them begin where keys end."""
    dtype = element_type(kind).dtype
    ends = [-1e300, 1e300] if dtype.kind == "f" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    for length in [*range(17, 70), 127, 128]:
        keys = generator.integers(0, 9, (4, length)).astype(dtype)
        keys[:, 0] = ends[1]
        keys[2:, 1] = ends[0]
        order = sorting.order_computation((dtype,), 1)
        check(sorting.sort, (generator.permuted(keys, axis=1),), dimensions=(1,), to_apply=order)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("shape", [(9000,), (70_001,), (2, 66_000), (9, 30_000)], ids=str)
@pytest.mark.parametrize("kind", ["f32", "u16", "u32", "s8", "f64"])
def test_what_is_read_of_sorted_lines(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> None:
    """Parts of lines of which nothing is read are not sorted, and zeros and NaNs are put back in the others."""
    keys, axis = keys_of(kind, shape, generator), len(shape) - 1
    pair = sorting.order_computation((keys.dtype, np.dtype(np.int32)), 1)
    places = np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape)
    ordered, order = sorting.sort.evaluate(keys, places, dimensions=(axis,), to_apply=pair)
    x = tx.numpy.asarray(keys, dtype=keys.dtype)
    size = shape[-1]
    middle = size // 2
    for start, stop in ((0, 10), (middle, middle + 1), (size - 4000, size), (size // 5, middle)):

        def both(x: Any, start: int = start, stop: int = stop) -> Any:
            return tx.numpy.sort(x)[..., start:stop], tx.numpy.argsort(x)[..., start:stop]

        for got, expected in zip(tx.jit(both)(x), (ordered, order), strict=True):
            assert np.asarray(got).tobytes() == expected[..., start:stop].tobytes()

    def apart(x: Any) -> Any:
        y = tx.numpy.sort(x)
        return y[..., 5], y[..., -3:]

    first, last = tx.jit(apart)(x)
    assert np.asarray(first).tobytes() == ordered[..., 5].tobytes()
    assert np.asarray(last).tobytes() == ordered[..., -3:].tobytes()
    if not np.isnan(keys).any():
        assert np.asarray(tx.jit(lambda x: tx.numpy.median(x, -1))(x)).tolist() == np.median(keys, -1).tolist()


@pytest.mark.parametrize("shape", [(9, 400), (40, 1000), (3, 70_000), (300_000,)], ids=str)
@pytest.mark.parametrize("kind", ["f32", "f64", "u8"])
def test_first_ranks_of_a_sort_are_selected(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> None:
    """Equal keys keep their order, and zeros and NaNs their bits."""
    keys, other = keys_of(kind, shape, generator), generator.integers(0, 200, shape, dtype=np.int16)
    order = sorting.order_computation((keys.dtype, other.dtype), 1)
    attributes = {"dimensions": (len(shape) - 1,), "to_apply": order}
    expected = sorting.sort.evaluate(keys, other, **attributes)

    def first(x: Any, y: Any) -> Any:
        return [z[..., :5] for z in sorting.sort(x, y, **attributes)]

    compiled = tx.jit(first).lower(tx.numpy.asarray(keys, dtype=keys.dtype), other).compile()
    assert any(kernel.name == "threshold_selection" for kernel in compiled.kernels)
    for got, wanted in zip(compiled(tx.numpy.asarray(keys, dtype=keys.dtype), other), expected, strict=True):
        assert np.asarray(got).tobytes() == wanted[..., :5].tobytes()


def test_quantiles_at_many_places(generator: np.random.Generator) -> None:
    """Only what lies around each of them is sorted, at either end of a line and where none is left out."""
    x = generator.standard_normal(70_001).astype(np.float32)
    for shares in ([0.25, 0.5, 0.75], [0.0, 1.0], [1e-6, 0.999], np.linspace(0, 1, 200)):
        found = tx.jit(lambda x, shares=shares: tx.numpy.quantile(x, tx.numpy.asarray(shares)))(x)
        np.testing.assert_allclose(np.asarray(found), np.quantile(x, shares), rtol=1e-5, atol=1e-6)


def test_ranks_are_masks_of_segments() -> None:
    for length in (1, 64, 65, 1000, 70_001):
        bits = segment_shift(length)
        assert (length - 1) >> bits < 64
        assert Ranks.between(0, length, length) == (length, (1 << ((length - 1 >> bits) + 1)) - 1)
        middle = Ranks.between(length // 2, length // 2 + 1, length)
        assert middle == (length // 2 + 1, 1 << (length // 2 >> bits))
        assert middle.union(Ranks(length)) == (length, ALL_SEGMENTS)
        assert Ranks.between(5, 5, length) == (0, 0)


@pytest.mark.parametrize("kind", ["f32", "f64", "u16", "u32", "s64"])
@pytest.mark.parametrize("far", [1, 100, 2000])
def test_keys_far_from_the_others(kind: str, far: int, generator: np.random.Generator) -> None:
    """At one end or at both: so few that cells are made without them, and too many for that."""
    dtype = element_type(kind).dtype
    least, last = (-1e30, 1e30) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    near = generator.integers(20_000, 20_500, 70_000).astype(dtype)
    for ends in ((last,), (least, last)):
        x = near.copy()
        for value in ends:
            x[generator.integers(0, x.size, far)] = value
        other = generator.integers(0, 200, x.size, dtype=np.int16)
        for operands in ((x,), (x, other)):
            order = sorting.order_computation(tuple(y.dtype for y in operands), 1)
            check(sorting.sort, operands, dimensions=(0,), to_apply=order)


def test_types_and_orders_share_kernels(generator: np.random.Generator) -> None:
    """What differs between types of as many bits are numbers."""
    x = generator.integers(0, 1000, 70_000)

    def code(kind: str, descending: bool) -> list[str]:
        found = tx.jit(lambda x: tx.numpy.sort(x, descending=descending)).lower(x.astype(element_type(kind).dtype))
        return [kernel.source for kernel in found.compile().kernels]

    assert len({tuple(code(kind, down)) for kind in ("s32", "u32") for down in (False, True)}) == 1
    assert code("f32", True) == code("f32", False)
    assert code("f16", True) == code("bf16", False) != code("f32", False)


@pytest.mark.parametrize("size", [9000, 40_000])
def test_places_of_64_bits_go_along(size: int, generator: np.random.Generator) -> None:
    x = generator.integers(0, 500, size, dtype=np.int32)
    for places in (np.arange(size), np.arange(size, dtype=np.float32)):
        order = sorting.order_computation((x.dtype, places.dtype), 1)

        def both(x: Any, dtype: Any = places.dtype, order: Any = order) -> Any:
            return sorting.sort(x, tx.numpy.arange(size, dtype=dtype), dimensions=(0,), to_apply=order)

        with tx.enable_x64(True):
            keys, found = tx.jit(both)(x)
        assert np.asarray(keys).tolist() == np.sort(x).tolist()
        assert found.dtype == places.dtype
        assert np.asarray(found).tolist() == np.argsort(x, kind="stable").tolist()


@pytest.mark.parametrize("shape", [(5, 700), (100, 20), (3, 9), (30_000,)], ids=str)
@pytest.mark.parametrize("kind", "u8 s4 s16 bf16 f32 f8e4m3fn c64".split())
def test_indices_of_every_type_go_along(kind: str, shape: tuple[int, ...], generator: np.random.Generator) -> None:
    x, dtype, axis = keys_of("f32", shape, generator), element_type(kind).dtype, len(shape) - 1
    order = sorting.order_computation((x.dtype, dtype), 1)
    indices = np.asarray(tx.lax.broadcasted_iota(dtype, shape, axis))
    expected = sorting.sort.evaluate(x, indices, dimensions=(axis,), to_apply=order)[1]

    def sorted_indices(x: Any) -> Any:
        return sorting.sort(x, tx.lax.broadcasted_iota(dtype, shape, axis), dimensions=(axis,), to_apply=order)[1]

    assert np.asarray(tx.jit(sorted_indices)(x)).tobytes() == expected.tobytes()


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(
    ("shape", "k"),
    [((5,), 2), ((3, 1000), 7), ((2, 3, 700), 3), ((90_000,), 10), ((70_000,), 1999), ((2, 9000), 99), ((20, 90), 60)],
)
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "s32", "u8", "u64", "pred"])
def test_first_elements(kind: str, shape: tuple[int, ...], k: int, generator: np.random.Generator) -> None:
    for largest in (True, False):
        check(sorting.topk, (keys_of(kind, shape, generator),), k=k, largest=largest)
    if element_type(kind).kind == "float":  # few equal ones
        x = generator.standard_normal(shape).astype(element_type(kind).dtype)
        check(sorting.topk, (x,), k=k, largest=True)


@pytest.mark.parametrize("k", [3, 99])
@pytest.mark.parametrize("lines", [2, 5])
def test_top_k_of_several_lines_that_threads_share(lines: int, k: int, generator: np.random.Generator) -> None:
    x = generator.standard_normal((lines, 250_000)).astype(np.float32)
    check(sorting.topk, (x,), k=k, largest=True)


@pytest.mark.parametrize("remainder", [1, 3, 15])
def test_top_k_reads_no_element_of_the_next_line(remainder: int, generator: np.random.Generator) -> None:
    """The last chunk of a line is shorter than the others; the next line begins with the largest elements."""
    x = generator.standard_normal((2, (1 << 18) + remainder)).astype(np.float32)
    x[0, -5:], x[1, :14] = 50, 1000
    check(sorting.topk, (x,), k=10, largest=True)


@pytest.mark.parametrize("k", [3, 100])
def test_first_elements_of_lines_that_gain_nothing_by_a_bound(k: int) -> None:
    """Many are equal, or each comes before all those that were looked at."""
    rising = np.arange(50_000, dtype=np.int32)
    for x in (rising, rising[::-1].copy(), 0 * rising, (rising // 7000).astype(np.uint8), rising % 5000):
        for largest in (True, False):
            check(sorting.topk, (x,), k=k, largest=largest)
            check(sorting.topk, (np.full(x.shape, 255, np.uint8),), k=k, largest=largest)


def test_sorts_of_lines_need_no_temporaries() -> None:
    x = np.ones((300, 3000), np.float32)
    for f in (
        lambda x: tx.lax.top_k(x, 10),
        lambda x: tx.lax.top_k(x, 200),
        lambda x: tx.numpy.sort(x, 0),
        lambda x: tx.numpy.argsort(x, 0),
        lambda x: tx.numpy.argsort(x, 1),
    ):
        assert tx.jit(f).lower(x).compile().memory_analysis().temp_size_in_bytes == 0


def test_results_do_not_depend_on_the_number_of_threads(generator: np.random.Generator) -> None:
    x = keys_of("f32", (100_000,), generator)
    order = tx.jit(lambda x: (tx.numpy.sort(x), tx.numpy.argsort(x)))
    with tx.num_threads(1):
        alone = [np.asarray(y).tobytes() for y in order(x)]
    with tx.num_threads(2):
        assert [np.asarray(y).tobytes() for y in order(x)] == alone


def test_orders_run_natively(generator: np.random.Generator) -> None:
    """Nothing is left to the host."""
    x = generator.standard_normal((20, 30)).astype(np.float32)

    def ordered(x: Any) -> Any:
        return tx.numpy.sort(x, axis=0), tx.numpy.lexsort([x, -x]), tx.lax.top_k(x, 3)[1], tx.numpy.median(x)

    assert not host_calls(ordered, x)


@pytest.mark.parametrize(("option", "dtype"), [("index", "int64"), ("int32", "int32")])
def test_searchsorted_and_digitize_give_the_dtype_of_the_option(option: str, dtype: str) -> None:
    with tx.enable_x64(), setting("searchsorted_dtype", option):
        edges, x = np.arange(3.0), np.float64([0.5, 7])
        for function in (tx.numpy.searchsorted, lambda edges, x: tx.numpy.digitize(x, edges)):
            assert function(edges, x).dtype == tx.jit(function)(edges, x).dtype == dtype
        assert tx.numpy.digitize(x, edges[:0]).dtype == dtype


@pytest.mark.parametrize("shape", [(9,), (40, 33), (3, 300), (2, 30_000)])
def test_places_may_be_keys(shape: tuple[int, ...], generator: np.random.Generator) -> None:
    """They are in memory then, though a sort counts those that go along by itself."""
    x = generator.integers(0, 4, shape).astype(np.int16)

    def sorted_by(x: Any, keys: int) -> Any:
        places = tx.lax.broadcasted_iota("int32", x.shape, x.ndim - 1)
        return tx.lax.sort((x, places), num_keys=keys), tx.lax.sort((places, x)), tx.lax.sort(places)

    order = np.argsort(x, -1, kind="stable")
    places = np.broadcast_to(np.arange(shape[-1]), shape)
    for keys in (1, 2):
        function = tx.jit(lambda x, keys=keys: sorted_by(x, keys))
        for _ in range(2):  # the second time memory has what the first one left there
            (values, at), same, alone = function(x)
            np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))
            np.testing.assert_array_equal(at, order)
            np.testing.assert_array_equal(same[1], x)
            np.testing.assert_array_equal(alone, places)
