"""Matrix products by the BLAS and by small kernels: steps of schedules, against NumPy."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("llvmlite")

import tinyxla as tx
from tests.backends.numba.test_runtime import launch
from tinyxla.backends.numba.program import blas_gemm
from tinyxla.backends.numba.runtime import blas_symbols, bytecode
from tinyxla.loopir.kernels.gemm.problem import GemmProblem, StridedMatrices

pytestmark = pytest.mark.platform

TYPES: dict[str, type[np.generic]] = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def random(shape: tuple[int, ...], type: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape)
    if type.startswith("c"):
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(TYPES[type])


def multiply(
    type: str,
    a: np.ndarray,
    b: np.ndarray,
    transpose_a: bool = False,
    transpose_b: bool = False,
    pad: int = 0,
    batched: tuple[bool, bool] = (True, True),
) -> np.ndarray:
    """The step's C for matrices of shape [batch, rows, columns] put into wider ones, which it must not write to."""
    m, k = a.shape[:0:-1] if transpose_a else a.shape[1:]
    n = b.shape[1] if transpose_b else b.shape[2]
    batch = len(a)
    c = np.full((batch, m, n), np.nan, TYPES[type])
    wide = [np.full((batch, x.shape[1] + (pad > 0), x.shape[2] + pad), np.nan, TYPES[type]) for x in (a, b, c)]
    for target, x in zip(wide[:2], (a, b), strict=True):
        target[:, : x.shape[1], : x.shape[2]] = x
    steps = [x.shape[1] * x.shape[2] for x in wide]
    step_a, step_b, step_c = (step if used else 0 for step, used in zip(steps, (*batched, True), strict=True))
    pitch_a, pitch_b, pitch_c = (x.shape[2] for x in wide)
    left = StridedMatrices(step_a, 1, pitch_a, False) if transpose_a else StridedMatrices(step_a, pitch_a, 1, True)
    right = StridedMatrices(step_b, 1, pitch_b, False) if transpose_b else StridedMatrices(step_b, pitch_b, 1, True)
    result = StridedMatrices(step_c, pitch_c, 1, True)
    step = blas_gemm.gemm_step(GemmProblem((type,) * 3, batch, m, n, k, left, right, result), 1)
    schedule = bytecode.Schedule()
    step.append(schedule, 0, 1, 2)
    launch(schedule, [x.ctypes.data for x in wide])
    written = wide[2]
    assert np.isnan(written[:, m:]).all()
    assert np.isnan(written[:, :, n:]).all()
    return written[:, :m, :n]


def product(type: str, m: int, n: int, k: int, batch: int = 1) -> bool:
    """Whether a random product is right."""
    a, b = random((batch, m, k), type, 0), random((batch, k, n), type, 1)
    with np.errstate(all="ignore"):  # as some builds of NumPy warn of a product without reason
        expected = a @ b
    check(multiply(type, a, b), expected, k)
    return True


def check(actual: np.ndarray, expected: np.ndarray, k: int) -> None:
    assert actual.dtype == expected.dtype
    precision = float(np.finfo(actual.dtype).eps)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=4 * precision * (k + 4))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [
        (1, 3, 4, 5),
        (2, 40, 30, 20),
        (1, 300, 280, 260),  # tiles
        (1, 2000, 60, 100),
        (3, 200, 250, 130),
        (2, 1, 9, 7),  # vectors
        (2, 9, 1, 7),
        (2, 1, 1, 700),
        (1, 1, 1500, 300),  # vectors in tiles
        (1, 1500, 1, 300),
        (1, 2, 50, 30),  # few rows or columns
        (1, 50, 3, 30),
        (70, 3, 4, 5),  # small ones
        (70, 7, 16, 9),
        (70, 1, 29, 11),  # small ones with vectors
        (70, 29, 1, 11),
        (1, 800, 5, 6),  # tall ones
    ],
)
def test_products(type: str, batch: int, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> None:
    a = random((batch, k, m) if transpose_a else (batch, m, k), type, 2)
    b = random((batch, n, k) if transpose_b else (batch, k, n), type, 3)
    expected = (a.swapaxes(1, 2) if transpose_a else a) @ (b.swapaxes(1, 2) if transpose_b else b)
    for pad in (0, 3):
        check(multiply(type, a, b, transpose_a, transpose_b, pad), expected, k)


@pytest.mark.parametrize(("m", "n"), [(1, 29), (29, 1)])
def test_vectors_with_rows_of_a_small_matrix_have_a_kernel(m: int, n: int) -> None:
    left = StridedMatrices(0, 11, 1, True) if m == 1 else StridedMatrices(0, 1, 29, False)
    right, result = (StridedMatrices(0, n, 1, True) for _ in range(2))
    step = blas_gemm.gemm_step(GemmProblem(("f32",) * 3, 1, m, n, 11, left, right, result), 70)
    assert step.kernel is blas_gemm.start_small("f32", 1, 29, 11, True, False)


@settings(deadline=None, max_examples=60)
@given(
    type=st.sampled_from(list(TYPES)),
    batch=st.sampled_from([1, 2, 5, 64]),
    m=st.integers(1, 20),
    n=st.integers(1, 20),
    k=st.integers(1, 20),
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    pad=st.integers(0, 2),
    batched=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 1000),
)
def test_any_product(
    type: str,
    batch: int,
    m: int,
    n: int,
    k: int,
    transpose_a: bool,
    transpose_b: bool,
    pad: int,
    batched: tuple[bool, bool],
    seed: int,
) -> None:
    a = random((batch, k, m) if transpose_a else (batch, m, k), type, seed)
    b = random((batch, n, k) if transpose_b else (batch, k, n), type, seed + 1)
    result = multiply(type, a, b, transpose_a, transpose_b, pad, batched)
    a = a if batched[0] else a[:1]
    b = b if batched[1] else b[:1]
    expected = (a.swapaxes(1, 2) if transpose_a else a) @ (b.swapaxes(1, 2) if transpose_b else b)
    check(result, np.broadcast_to(expected, result.shape), k)


@pytest.mark.parametrize("type", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [(1, 500, 400, 300), (200, 12, 10, 8), (40, 50, 50, 50), (1, 3000, 1, 200), (1, 1, 3000, 200)],
)
def test_products_have_the_same_bits_for_any_number_of_threads(type: str, batch: int, m: int, n: int, k: int) -> None:
    a, b = random((batch, m, k), type, 4), random((batch, k, n), type, 5)
    results: list[np.ndarray] = []
    for threads in (1, 2, 3):
        with tx.num_threads(threads):
            results.append(multiply(type, a, b))
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()


@pytest.mark.parametrize(
    ("m", "n", "k"), [(20, 20, 20), (20, 1, 20), (1, 20, 20), (1, 1, 20), (20, 20, 2), (20, 3, 20)]
)
def test_products_keep_nan_and_infinity(m: int, n: int, k: int) -> None:
    a, b = np.zeros((1, m, k), np.float32), np.zeros((1, k, n), np.float32)
    a[0, 0, 1] = np.inf
    b[0, 0, 0] = np.nan
    with np.errstate(all="ignore"):
        expected = a @ b
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(multiply("f32", a, b), expected)


def test_products_leave_the_number_of_blas_threads_alone() -> None:
    guard = blas_symbols.guard()
    if guard is None:
        pytest.skip("SciPy has no OpenBLAS here")
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(guard.words[3])
    before = threads()
    workers = [threading.Thread(target=lambda: [product("f32", 200, 200, 200) for _ in range(20)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert threads() == before
    assert guard.words[:2] == [0, 0]


def dense_problem(m: int, n: int, k: int) -> GemmProblem:
    left, right, result = (StridedMatrices(0, width, 1, True) for width in (k, n, n))
    return GemmProblem(("f32",) * 3, 1, m, n, k, left, right, result)


def test_a_product_with_more_terms_than_the_blas_can_count_is_refused() -> None:
    with pytest.raises(ValueError, match="BLAS counts to 2147483647: split it"):
        blas_gemm.gemm_step(dense_problem(1, 1, 2**31), 1)


def test_tiles_cover_a_product_evenly() -> None:
    for m, n, k in [(1024, 1024, 1024), (17, 5000, 3000), (100_000, 64, 64), (64, 64, 100_000), (513, 511, 700)]:
        rows, columns = blas_gemm._tile_shape(dense_problem(m, n, k))
        assert 1 <= rows <= m
        assert 1 <= columns <= n
        assert rows < 2 * (m - (m - 1) // rows * rows) + 32  # the last is not a sliver
