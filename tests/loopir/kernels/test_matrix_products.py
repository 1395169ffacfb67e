"""Products of matrices that this library computes itself, compiled: against the interpreter, for all types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinyxla
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.kernels.gemm import arithmetic, packing
from tinyxla.shapes import element_type

Array = np.ndarray[Any, Any]
INTEGERS = ("s4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = {"bf16": 2e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-13}
SHAPES = ((5, 5, 2), (33, 70, 65), (9, 7, 3000), (130, 66, 31))  # m, n, k: parts of tiles, odd terms, long sums


def _numbers(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """All values of an integer type, up to its ends, so that sums wrap."""
    dtype = element_type(name).dtype
    if name in FLOATS:
        return random.standard_normal(shape).astype(dtype)
    ends = ml_dtypes.iinfo(dtype)
    wide = np.uint64 if name[0] == "u" else np.int64
    return random.integers(ends.min, ends.max, shape, dtype=wide, endpoint=True).astype(dtype)


def _product(left: int, right: int, preferred: str | None = None) -> Any:
    """Contracting a dimension of each matrix."""
    return lambda x, y: lax.dot_general(x, y, (((left,), (right,)), ((), ())), preferred_element_type=preferred)


def _operands(random: np.random.Generator, name: str, m: int, n: int, k: int, left: int, right: int) -> list[Array]:
    shapes = ((m, k) if left else (k, m), (k, n) if right == 0 else (n, k))
    return [_numbers(random, name, shape) for shape in shapes]


def _check(function: Any, operands: list[Array], tolerance: float) -> None:
    found = np.asarray(tinyxla.jit(function)(*operands))
    expected = np.asarray(function(*map(jnp.asarray, operands)))
    assert found.dtype == expected.dtype
    if not tolerance:
        np.testing.assert_array_equal(found, expected)
        return
    expected = expected.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), expected, 0, tolerance * np.abs(expected).max())


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_types_and_strides(generator: np.random.Generator, name: str, left: int, right: int) -> None:
    with tinyxla.enable_x64(True):
        for m, n, k in SHAPES:
            _check(_product(left, right), _operands(generator, name, m, n, k, left, right), FLOATS.get(name, 0))


@pytest.mark.parametrize(("name", "preferred"), [("s8", "int32"), ("u8", "uint32"), ("s16", "int64"), ("s8", "int16")])
def test_wider_sums_of_integers(generator: np.random.Generator, name: str, preferred: str) -> None:
    with tinyxla.enable_x64(True):
        _check(_product(1, 0, preferred), _operands(generator, name, 40, 50, 333, 1, 0), 0)


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_narrow_floats_are_summed_in_wide_ones(generator: np.random.Generator, name: str) -> None:
    _check(_product(1, 0, "float32"), _operands(generator, name, 40, 50, 333, 1, 0), 1e-5)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", ["s4", "s8", "u8", "s16", "s32", "bf16", "f16"])
@pytest.mark.parametrize("few", [1, 2, 4])
def test_few_rows_of_a_large_matrix_of_narrow_types(generator: np.random.Generator, name: str, few: int) -> None:
    """Which is multiplied as it is."""
    preferred = "float32" if name in FLOATS else "uint32" if name[0] == "u" else "int32"
    for left, right in ((1, 0), (0, 1), (1, 1)):
        for m, n in ((few, 563), (563, few)):
            operands = _operands(generator, name, m, n, 1001, left, right)
            _check(_product(left, right, preferred), operands, 1e-5 * (name in FLOATS))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", ["f32", "f64", "s32"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 11, 16, 40])
def test_few_rows(generator: np.random.Generator, name: str, rows: int) -> None:
    """By a matrix that is read once, by ones that a cache holds, and by those of a batch."""
    with tinyxla.enable_x64(True):
        for n, k in ((2050, 517), (5000, 67), (563, 1001), (37, 70)):
            for left in (0, 1):
                operands = _operands(generator, name, rows, n, k, left, 0)
                _check(_product(left, 0), operands, FLOATS.get(name, 0))
            kernels = tinyxla.jit(_product(left, 0)).lower(*operands).compile().kernels
            assert bool(kernels) == (rows > 1 or n > 37 or name == "s32")  # else it is the BLAS that multiplies
        operands = [_numbers(generator, name, shape) for shape in ((3, rows, 600), (3, 600, 450))]
        _check(jnp.matmul, operands, FLOATS.get(name, 0))


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("equation", ["k,kn->n", "kn,k->n", "bk,bkn->bn", "k,knm->nm", "nk,k->n"])
def test_vectors_of_integers_weigh_rows(generator: np.random.Generator, name: str, equation: str) -> None:
    """Which are summed in the order in which they are read."""
    sizes = {"b": 3, "k": 331, "n": 97, "m": 5}
    with tinyxla.enable_x64(True):
        terms = equation.partition("->")[0].split(",")
        operands = [_numbers(generator, name, tuple(sizes[d] for d in term)) for term in terms]
        _check(lambda x, y: jnp.einsum(equation, x, y), operands, 0)
    kernels = tinyxla.jit(lambda x, y: jnp.einsum(equation, x, y)).lower(*operands).compile().kernels
    assert not any(kernel.name == "product" for kernel in kernels)


@pytest.mark.parametrize("name", ["f32", "s8", "bf16"])
@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bqhd,bkhd->bhqk", "bij,jk->bik", "ij,bjk->bik"])
def test_batches(generator: np.random.Generator, name: str, equation: str) -> None:
    sizes = dict(zip("bijkqhd", (3, 17, 18, 40, 9, 5, 33), strict=True))
    given = equation.split("->")[0].split(",")
    operands = [_numbers(generator, name, tuple(sizes[c] for c in letters)) for letters in given]
    _check(lambda x, y: jnp.einsum(equation, x, y), operands, FLOATS.get(name, 0))


@pytest.mark.parametrize("shape", [(50, 130), (3000, 256), (3, 128)])
def test_a_matrix_by_its_transpose_is_exactly_symmetric(generator: np.random.Generator, shape: tuple[int, ...]) -> None:
    x = _numbers(generator, "f32", shape)
    for function, operand in ((lambda x: x.T @ x, x), (lambda x: x @ x.T, np.ascontiguousarray(x.T))):
        found = np.asarray(tinyxla.jit(function)(operand))
        np.testing.assert_array_equal(found, found.T)
        np.testing.assert_allclose(found, x.T.astype(np.float64) @ x, 0, 1e-5 * np.abs(found).max())


@pytest.mark.parametrize(("m", "n", "k"), [(20, 2048, 300), (520, 1030, 260), (12, 4100, 1100), (8, 640, 40)])
def test_right_operands_are_read_in_place_or_copied(generator: np.random.Generator, m: int, n: int, k: int) -> None:
    """Rows that meet in the cache, many rows of the left one, one that no cache holds, and a small one."""
    _check(_product(1, 0), _operands(generator, "f32", m, n, k, 1, 0), 1e-5)


def test_equal_words_of_different_types(generator: np.random.Generator) -> None:
    """Floats and integers of one program are copied by the same routine."""
    operands = [_numbers(generator, name, (60, 40)) for name in ("f32", "s32", "bf16", "s16")]

    def function(*operands: Any) -> list[Any]:
        return [_product(1, 1)(x, x + 1) for x in operands]

    for x, found in zip(operands, tinyxla.jit(function)(*operands), strict=True):
        expected = np.asarray(_product(1, 1)(jnp.asarray(x), jnp.asarray(x) + 1)).astype(np.float64)
        np.testing.assert_allclose(np.asarray(found).astype(np.float64), expected, 0, 2e-2 * np.abs(expected).max())


def test_rows_and_columns_do_not_meet() -> None:
    """The last rows and columns are computed with others; what those hold does not matter."""
    x, y = np.ones((37, 20), np.float32), np.ones((20, 45), np.float32)
    x[3], x[36], y[:, 0], y[:, 44] = np.nan, np.inf, np.nan, np.inf
    found = np.asarray(tinyxla.jit(jnp.matmul)(x, y))
    clean = np.ones_like(found, bool)
    clean[[3, 36]] = clean[:, [0, 44]] = False
    assert (found[clean] == 20).all()
    assert not np.isfinite(found[~clean]).any()


@pytest.mark.parametrize(("m", "n", "k"), [(300, 200, 100), (16, 40, 20_000)])
def test_bits_do_not_depend_on_threads(generator: np.random.Generator, m: int, n: int, k: int) -> None:
    function = tinyxla.jit(jnp.matmul)
    operands = _operands(generator, "f32", m, n, k, 1, 0)
    found: list[Array] = []
    for count in (1, 2, 3):
        with tinyxla.num_threads(count):
            found.append(np.asarray(function(*operands)))
    assert all(x.tobytes() == found[0].tobytes() for x in found)


def test_code_serves_all_shapes(generator: np.random.Generator) -> None:
    """What is compiled for one shape is found again for others."""
    function = tinyxla.jit(jnp.matmul)
    np.asarray(function(*_operands(generator, "f32", 100, 300, 500, 1, 0)))
    before = engine.cache_info().compilations
    np.asarray(function(*_operands(generator, "f32", 90, 310, 490, 1, 0)))
    assert engine.cache_info().compilations == before


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("text", ["mk,kn", "km,kn", "mk,nk"])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 4096), (3, 7, 4098), (2, 2, 4097), (7, 1, 5000)])
def test_long_sums_with_few_results(m: int, n: int, k: int, text: str, dtype: Any) -> None:
    """Which are cut into 8 pieces, fewer, or none."""
    random = np.random.default_rng(m + k)
    size = {"m": m, "n": n, "k": k}
    shapes = [[size[letter] for letter in part] for part in text.split(",")]
    a, b = ((random.normal(size=s) + (1j * random.normal(size=s) if dtype is np.complex64 else 0)) for s in shapes)
    a, b = a.astype(dtype), b.astype(dtype)
    found = tinyxla.jit(lambda a, b: jnp.einsum(text + "->mn", a, b))(a, b)
    expected = np.einsum(text + "->mn", a.astype(np.complex128), b)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "text",
    ["bij,bi->bj", "bi,bij->bj", "bji,bi->bj", "abij,abi->abj", "ibj,bi->bj", "bhij,bhi->bj", "bij,bik->bjk"],
)
def test_many_matrices_by_vectors(text: str, dtype: Any) -> None:
    random = np.random.default_rng(len(text))
    size = {"a": 2, "b": 9, "h": 3, "i": 64, "j": 17, "k": 1}
    shapes = [[size[letter] for letter in part] for part in text.split("->")[0].split(",")]
    a, b = (random.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    found = tinyxla.jit(lambda a, b: jnp.einsum(text, a, b, preferred_element_type=a.dtype))(a, b)
    wide = np.complex128 if dtype is np.complex64 else np.float64
    expected = np.einsum(text, a.astype(wide), b.astype(wide))
    if dtype is np.int8:
        expected = expected.astype(np.int64).astype(np.int8)
    np.testing.assert_allclose(
        np.asarray(found).astype(wide), expected, rtol=1e-2 if dtype is ml_dtypes.bfloat16 else 0
    )


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("text", ["bij,bj->bi", "bj,bij->bi"])
@pytest.mark.parametrize(
    ("m", "k"), [(2, 8), (3, 50), (7, 9), (8, 16), (16, 20), (17, 12), (20, 17), (33, 32), (5, 200)]
)
def test_small_matrices_by_vectors(text: str, m: int, k: int, type: str) -> None:
    """Their rows are vectors: with a part of one at the end, which must not read on."""
    random = np.random.default_rng(m * k)
    a, x = random.standard_normal((70, m, k)).astype(type), random.standard_normal((70, k)).astype(type)
    a[:, 1] = np.nan
    with tinyxla.enable_x64(True):
        found = np.asarray(tinyxla.jit(lambda *o: jnp.einsum(text, *o))(*((a, x) if text[0:3] == "bij" else (x, a))))
    np.testing.assert_allclose(found, np.einsum("bij,bj->bi", a, x), 0, 1e-4 if type == "float32" else 1e-12)
    assert found.dtype == type
    assert np.isnan(found[:, 1]).all()


@pytest.mark.parametrize(("width", "feature"), [(16, "sse2"), (32, "avx2"), (64, "avx512bw")])
def test_narrow_integers_are_multiplied_in_pairs_on_all_x86(
    monkeypatch: pytest.MonkeyPatch, width: int, feature: str
) -> None:
    """Also without AVX-512, where copies must not load narrow elements with masks: that is one by one."""
    monkeypatch.setattr(packing, "vector_bytes", lambda: width)
    monkeypatch.setattr(arithmetic, "vector_bytes", lambda: width)
    monkeypatch.setattr(arithmetic, "has_feature", lambda name: name == feature)
    monkeypatch.setattr(packing, "declare_kernel", lambda name, kernel: print_python(kernel))
    for name in ("s8", "u8", "s16"):
        kind = arithmetic.choose_arithmetic(name, "s32", 40, 50, 60)
        assert kind is not None
        assert (kind.packed_type, kind.lanes) == ("s16", width // 4)
        text = packing.pack_rows.__wrapped__(name, kind, True)
        _, _, *inner_loops = text.split("for i")
        assert ["masked_load" in loop for loop in inner_loops] == [False, True]
