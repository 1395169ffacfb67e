"""Vectorization of loops that LLVM leaves scalar: reductions in lanes, short rows across vectors, transposes in
registers, and loop versions without slow paths."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir import target
from tinyxla.loopir.lower import reductions
from tinyxla.ops import reduction
from tinyxla.scalar_math.trigonometry import REDUCTION_LIMIT

tnp = tx.numpy
SHAPES = [(5,), (1000,), (70, 130), (3, 50_000), (7, 128), (300, 1), (2, 3, 200), (40, 33), (16, 100)]


@pytest.fixture(autouse=True)
def wide() -> Any:
    with tx.enable_x64(True):
        yield


def random(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).integers(-9, 9, shape)
    return values.astype(dtype)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint64])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_place_of_the_extremum(name: str, dtype: Any) -> None:
    """With ties, and of the NaNs the first."""
    for seed, shape in enumerate(SHAPES):
        x = random(shape, dtype, seed)
        if x.dtype.kind == "f":
            x[np.random.default_rng(seed).random(shape) < 1e-3] = np.nan
        for axis in (None, *range(len(shape))):
            found = tx.jit(lambda x, axis=axis: getattr(tnp, name)(x, axis))(x)
            np.testing.assert_array_equal(found, getattr(np, name)(x, axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_place_among_infinities(name: str) -> None:
    worst = np.full(1000, -np.inf if name == "argmax" else np.inf)
    assert int(tx.jit(getattr(tnp, name))(worst)) == 0


def test_the_place_beside_other_reductions() -> None:
    """It is found by itself, from what the others kept."""

    def together(x: Any) -> Any:
        weights = tx.nn.softmax(x)
        return tnp.argmax(weights, 1), tnp.sum(weights * x, 1), tnp.max(x, 1), tnp.argmin(x, 1)

    for width in (10, 33, 100, 300):
        x = np.random.default_rng(width).normal(size=(50, width))
        for found, expected in zip(tx.jit(together)(x), together(x), strict=True):
            np.testing.assert_allclose(found, expected, 1e-12)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "argmax"])
def test_many_short_rows_are_joined_once(name: str, dtype: Any) -> None:
    x = random((5, 4, 9, 40), dtype)
    x = np.where(x > 0, 1, -1).astype(dtype) if name == "prod" else x
    for axes in ((0, 3), (1, 3), (0, 2, 3), (0, 1, 3)):
        expected = np.moveaxis(x, axes, range(len(axes))).reshape(-1, *np.delete(x.shape, axes))
        if name == "argmax":
            found = tx.jit(lambda x, axes=axes: lax.reduce((x, x * 2), (dtype(-9), dtype(-18)), _larger, axes)[1])(x)
            expected = 2 * expected.max(0)
        else:
            options = {} if name == "max" else {"dtype": dtype}
            found = tx.jit(partial(getattr(tnp, name), axis=axes, **options))(x)
            expected = getattr(expected, name)(0, **options)
        np.testing.assert_allclose(found, expected, 1e-5)


def _larger(x: Any, y: Any) -> Any:
    first = x[0] >= y[0]
    return tuple(lax.select(first, one, other) for one, other in zip(x, y, strict=True))


def test_what_does_not_commute_keeps_its_order() -> None:
    """Affine maps one after the other."""

    def after(f: Any, g: Any) -> Any:
        return f[0] * g[0], f[1] * g[0] + g[1]

    def together(x: Any, y: Any) -> Any:
        return lax.reduce((x, y), (np.int32(1), np.int32(0)), after, (1,))

    x, y = random((4, 3000), np.int32), random((4, 3000), np.int32, 1)
    for found, expected in zip(tx.jit(together)(x, y), together(x, y), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_samples_tell_what_commutes() -> None:
    assert reductions.is_commutative(reduction.argument_computation("GT", np.float32, np.int32))
    assert reductions.is_commutative(reduction.scalar_computation("multiply", np.float32))
    assert not reductions.is_commutative(reduction.scalar_computation("subtract", np.float32))


def softmax(xp: Any, x: Any) -> Any:
    powers = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


SHORT: dict[str, Any] = {
    "sum": lambda xp, x: xp.sum(x, -1),
    "softmax": softmax,
    "two": lambda xp, x: (xp.sum(x, -1), xp.max(2 * x, -1)),
    "argmax": lambda xp, x: xp.argmax(x, -1),
    "turned": lambda xp, x: xp.sum(2 * x[..., ::-1] + x, -1, keepdims=True) - x,
    "around the middle": lambda xp, x: xp.sum(x, (0, -1)),
    "all but the first": lambda xp, x: xp.sum(x, tuple(range(1, x.ndim))),
}


@pytest.mark.parametrize("name", SHORT)
def test_short_rows(name: str) -> None:
    for shape in ((1000, 4), (50, 60, 3), (7, 20, 5, 2), (100, 1), (4, 90, 3)):
        x = np.random.default_rng(0).random(shape)
        found, expected = tx.jit(lambda x: SHORT[name](tnp, x))(x), SHORT[name](np, x)
        for ours, theirs in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, expected)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14)


def test_distances() -> None:
    x, y = np.random.default_rng(0).random((100, 3)), np.random.default_rng(1).random((80, 3))

    def distances(xp: Any, x: Any, y: Any) -> Any:
        return xp.sqrt(xp.sum((x[:, None] - y[None]) ** 2, -1))

    made = tx.jit(lambda x, y: distances(tnp, x, y))
    np.testing.assert_allclose(made(x, y), distances(np, x, y), rtol=1e-14)
    (kernel,) = made.lower(x, y).compile().kernels
    assert kernel.source.count("for ") == 2  # the three differences are written out


def _beside(xp: Any, x: Any) -> Any:
    """What else may be in a row: other rows, other places of this one, and what belongs to the whole row."""
    y = xp.exp(x - xp.max(x, 1, keepdims=True))
    z = y / xp.sum(y, 1, keepdims=True)
    return z, z[:, ::-1] - x, xp.sum(z * x, 1), x[::-1] * xp.mean(x, 1)[:, None], x[:, 0] + xp.min(x, 1)


ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "beside": _beside,
    "places": lambda xp, x: (xp.argmax(x, 1), xp.argmin(x, 1), xp.max(x, 1)),
    "shares": lambda xp, x: x / xp.max(abs(x), axis=1, keepdims=True),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("rows", [960, 961, 1023])
@pytest.mark.parametrize("width", [9, 10, 16, 31, 63])
@pytest.mark.parametrize("name", ROWS)
def test_strips_of_rows(name: str, width: int, rows: int) -> None:
    x = np.random.default_rng(width).normal(size=(rows, width))
    compiled = tx.jit(lambda x: ROWS[name](tnp, x)).lower(x).compile()
    for found, wanted in zip(
        tx.tree_util.tree_leaves(compiled(x)), tx.tree_util.tree_leaves(ROWS[name](np, x)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, 1e-12, 1e-12)
    assert width > 31 or any("transpose_" in kernel.source for kernel in compiled.kernels)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128", "int8", "uint64", "bool"])
def test_strips_of_rows_of_each_type(dtype: str) -> None:
    x = random((30, 40, 2, 7), np.int8).astype(dtype)

    def spread(xp: Any, x: Any) -> Any:
        y = xp.sum(x, (2, 3), keepdims=True, dtype=x.dtype)
        return xp.where(x != 0, y, x), xp.squeeze(y, (2, 3))

    for found, wanted in zip(tx.jit(lambda x: spread(tnp, x))(x), spread(np, x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_strips_of_bytes_are_vectors() -> None:
    """A strip has as many rows as one vector of bytes has elements, and the last one a rest."""
    x = random((1000, 50), np.int8)
    made = tx.jit(lambda x: x.max(1))
    np.testing.assert_array_equal(made(x), x.max(1))
    text = made.lower(x).compile().kernels[0].llvm
    assert f"store <{target.vector_bytes()} x i8>" in text
    assert (f"@llvm.masked.store.v{target.vector_bytes()}i8" in text) == target.has_masks()


def test_strips_of_rows_in_place() -> None:
    """Rows of an array that is given away take its memory; the last strip has more of them."""
    for rows in (1000, 64 * 40 + 63):
        x = np.random.default_rng(0).normal(size=(rows, 20))
        wanted = x / np.sqrt((x * x).sum(1, keepdims=True)) + x
        update = tx.jit(lambda x: x / tnp.linalg.norm(x, axis=1, keepdims=True) + x, donate_argnums=0)
        np.testing.assert_allclose(update(tnp.asarray(x)), wanted, 1e-12)


def test_strips_of_rows_of_others() -> None:
    """Rows that are read for many others, and along a dimension between: strips end with each of the outer ones."""
    x, y = (np.random.default_rng(k).normal(size=(70 + k, 12)) for k in range(2))
    for f in (
        lambda xp, a, b: xp.max(a[:, None] - b, 2),
        lambda xp, a, b: a[:, None] * b - xp.sum(a[:, None] + b, 2, keepdims=True),
    ):
        np.testing.assert_allclose(tx.jit(lambda a, b, f=f: f(tnp, a, b))(x, y), f(np, x, y), 1e-12, 1e-12)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_short_rows_of_complex_numbers(dtype: Any) -> None:
    """Their two parts lie in turn, which masked vectors would gather one by one."""
    for width in (4, 5, 8, 9, 15, 20, 33):
        x, y = (random((n, 2 * width), np.float64, width).astype(dtype().real.dtype).view(dtype) for n in (70, 1))
        compiled = tx.jit(lambda x, y: (x * y, x + tnp.real(y), tnp.abs(x))).lower(x, y).compile()
        for found, wanted in zip(compiled(x, y), (x * y, x + y.real, np.abs(x)), strict=True):
            np.testing.assert_allclose(found, wanted, 1e-6)
        assert not any("gather" in kernel.assembly for kernel in compiled.kernels)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.complex64, np.complex128, np.bool_])
def test_turned_arrays(dtype: Any) -> None:
    for shape in ((257, 129), (1030, 12), (4, 160, 64), (40, 1000, 3)):
        x = random(shape, dtype)
        for order in [*permutations(range(len(shape)))][1::2]:
            expected = np.transpose(x, order)
            y = random(expected.shape, dtype, 1)
            found, plain = tx.jit(lambda x, y, order=order: (tnp.transpose(x, order) + y, tnp.transpose(x, order)))(
                x, y
            )
            np.testing.assert_array_equal(plain, expected)
            np.testing.assert_array_equal(found, expected + y)


def test_arrays_of_several_types_that_lie_across() -> None:
    arrays = [random((150, 270), dtype, k) for k, dtype in enumerate([np.uint8, np.float32, np.int16] * 4)]
    found = tx.jit(lambda *arrays: sum(x.T for x in arrays))(*arrays)
    np.testing.assert_array_equal(found, sum(x.T.astype(np.float32) for x in arrays))


def test_large_copies_of_numpy_arrays_begin_with_a_line_of_the_cache() -> None:
    for make in (tnp.asarray, tx.device_put):
        x = make(np.ones((300, 70), np.float32).T)
        assert np.asarray(x).ctypes.data % 64 == 0
        np.testing.assert_array_equal(x, np.ones((70, 300)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 70_001])
@pytest.mark.parametrize("times", [1, 6])
def test_huge_arguments_among_others(dtype: Any, count: int, times: int) -> None:
    """Taken in, and called with vectors."""

    def chain(xp: Any, x: Any) -> Any:
        y = x
        for _ in range(times):
            y = xp.sin(y) + x
        return y

    x = np.random.default_rng(0).standard_normal(count).astype(dtype)
    for place, value in ((0, 3 * REDUCTION_LIMIT["f32"]), (-1, 1e30)):
        plain = chain(np, x.astype(np.longdouble))
        np.testing.assert_allclose(tx.jit(lambda x: chain(tnp, x))(x), plain, rtol=64 * np.finfo(dtype).eps)
        x[place] = value
    total = tx.jit(lambda x: tnp.sum(tnp.cos(x)))(x)
    np.testing.assert_allclose(total, np.sum(np.cos(x.astype(np.longdouble))), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: Any) -> None:
    """Of quotients that are whole but for rounding, of large ones, and of special values."""
    random = np.random.default_rng(0)
    divisors, factors = random.standard_normal(5000).astype(dtype), random.integers(1, 2000, 5000).astype(dtype)
    special = np.array([0.0, -0.0, 0.3, -2.0, 5e5, np.inf, -np.inf, np.nan, 4 * np.finfo(dtype).tiny], dtype)
    sizes = (2.0 ** random.uniform(-30, 30, 5000)).astype(dtype)
    x = np.concatenate([divisors * factors, sizes * factors, *([v] * len(special) for v in special)])
    y = np.concatenate([divisors, divisors, *[special] * len(special)])
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    for several in (x[:10_000], x):
        found = np.asarray(tx.jit(lax.rem)(several, y[: len(several)]))
        np.testing.assert_array_equal(found, expected[: len(several)])
        kept = found == found
        np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(expected[: len(several)])[kept])


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32])
def test_powers_of_integers_wrap_around(dtype: Any) -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 9, 2000).astype(dtype)
    x[::3] = 0 * x[::3] - dtype(1)
    for most in (10, 100):  # the second one has powers that are rarely needed
        y = random.integers(0, most, 2000).astype(dtype)
        expected = [pow(int(base), int(exponent), 1 << 32) for base, exponent in zip(x, y, strict=True)]
        found = np.asarray(tx.jit(lax.pow)(x, y))
        np.testing.assert_array_equal(found, np.array(expected, np.uint32).astype(dtype))


def compiled_texts(function: Any, *arguments: Any) -> list[str]:
    """The LLVM text of what a function becomes."""
    texts: list[str] = []
    compiled = engine._object_code

    def watched(text: str, *more: Any) -> Any:
        texts.append(text)
        return compiled(text, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_object_code", watched)
        tx.clear_caches()
        tx.jit(function)(*arguments)
    return texts


def test_slow_paths_are_no_part_of_vectorized_loops() -> None:
    texts = compiled_texts(lambda x: tnp.sin(x) * 1.375, np.ones(1234, np.float32))
    (text,) = (text for text in texts if "@sine" in text)
    calls = re.findall(r"call .* @sine[\w.]*\.(\w+)\(", text)
    assert calls == ["fast", "branching"]
    assert text.count(".repeat:") == 1


def waves(a: Any, b: Any, c: Any, d: Any) -> Any:
    return tnp.sin(a) + tnp.cos(b) * tnp.sin(c) + tnp.cos(d)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("huge", [1, 997])
def test_several_slow_paths_in_one_loop(dtype: Any, huge: int) -> None:
    random = np.random.default_rng(huge)
    inputs = [random.uniform(-9, 9, 997).astype(dtype) for _ in range(4)]
    usual = np.asarray(tx.jit(waves)(*inputs))
    for x in inputs:
        x[997 - huge :] *= dtype(1e12)
    inputs[0][:3] = [np.nan, np.inf, -np.inf]
    with np.errstate(invalid="ignore"):
        a, b, c, d = (x.astype(np.float64) for x in inputs)
        expected = np.sin(a) + np.cos(b) * np.sin(c) + np.cos(d)
    found = np.asarray(tx.jit(waves)(*inputs))
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(found[3 : 997 - huge], usual[3 : 997 - huge])


def test_a_slow_path_called_more_than_once_is_not_inlined() -> None:
    arrays = (np.full(1500, 0.25 * k, np.float32) for k in range(4))
    texts = compiled_texts(lambda *x: waves(*x) * 1.375, *arrays)
    (text,) = (text for text in texts if "@sine" in text)
    heads = {line.split("(")[0].split()[-1]: line for line in text.split("\n") if line.startswith("define")}
    for name in ("@sine.f32.f32", "@cosine.f32.f32"):
        assert [text.count(f"{name}.{kind}(") for kind in ("fast", "branching")] == [3, 3]
        assert "alwaysinline" in heads[f"{name}.fast"]
        assert "noinline" in heads[f"{name}.branching"]


# --- the remainder of a row -------------------------------------------------------------------------------------------


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("length", [513, 700, 4095])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32, np.int8, bool, np.complex64])
def test_rows_with_a_remainder(length: int, dtype: Any) -> None:
    random = np.random.default_rng(length)
    x = random.integers(0 if dtype is bool else -3, 2 if dtype is bool else 4, (5, length)).astype(dtype)
    x[2] = 0
    x[1, -1] = x[3, length // 64 * 64 - 1] = x[4, 512] = 1

    def function(x: Any) -> Any:
        rows = x.sum(-1)
        return rows, (x != 0).any(-1), (x * x[0]).astype(x.dtype), x + rows[:, None], tnp.sum(x * x, -1), x.argmax(-1)

    for found, expected in zip(tx.jit(function)(x), function(tnp.asarray(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_a_remainder_is_one_masked_vector() -> None:
    """After one without a mask, for loops inside others that are longer than some vectors and not much longer."""
    texts = {
        length: tx.jit(lambda x: tnp.exp(x).sum(-1)).lower(np.ones((4, length), np.float32)).compile().kernels[0].llvm
        for length in (448, 704, 700, 1000, 20_000)
    }
    masked = [len(re.findall(r"call <\d+ x float> @llvm.masked.load", text)) for text in texts.values()]
    assert masked == [0, 0, *[int(target.has_masks())] * 2, 0]
