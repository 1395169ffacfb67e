"""Keywords of `numpy.linalg` that JAX has: norms of nothing, other names of tolerances, residuals as NumPy's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError, TracerError

RANDOM = np.random.default_rng(0)
TALL = RANDOM.normal(size=(5, 3)).astype(np.float32)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3)])
@pytest.mark.parametrize("order", ["fro", "nuc", 1, 2, np.inf])
def test_matrix_norm_of_empty_matrices_is_zero(shape: tuple[int, ...], order: Any) -> None:
    wanted = np.zeros(shape[:-2], np.float32)
    np.testing.assert_array_equal(tnp.linalg.matrix_norm(np.ones(shape, np.float32), ord=order), wanted)


def test_norm_of_empty_vectors_is_zero_or_without_minimum_an_error() -> None:
    np.testing.assert_array_equal(tnp.linalg.norm(np.ones((2, 0)), np.inf, -1), np.zeros(2))
    for order in (-2, -np.inf):
        with pytest.raises(ShapeError, match="min"):
            tnp.linalg.matrix_norm(np.ones((0, 3)), ord=order)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 3, ()), (5, 3, (2,)), (3, 5, (2,)), (4, 4, ())])
def test_lstsq_numpy_resid_gives_residuals_as_numpy(m: int, n: int, k: tuple[int, ...], zero: bool) -> None:
    a, b = RANDOM.normal(size=(m, n)) * (not zero), RANDOM.normal(size=(m, *k))
    for _ in range(3):
        found = tnp.linalg.lstsq(a, b, numpy_resid=True)
        for ours, numpys in zip(found, np.linalg.lstsq(a, b, None), strict=True):
            np.testing.assert_allclose(ours, numpys, rtol=1e-3, atol=1e-3)
    tnp.linalg.lstsq(TALL, TALL[:, 0])
    assert tnp.linalg.lstsq(0 * TALL, TALL[:, 0], numpy_resid=True)[1].shape == (0,)
    with pytest.raises(TracerError):
        tx.jit(lambda x: tnp.linalg.lstsq(x, TALL, numpy_resid=True))(TALL)


def test_tolerances_of_rank_and_pseudo_inverse_have_two_names() -> None:
    a = np.diag(np.array([1.0, 1e-2, 1e-4], np.float32))
    assert int(tnp.linalg.matrix_rank(a, tol=1e-3)) == int(tnp.linalg.matrix_rank(a, rtol=1e-3)) == 2
    np.testing.assert_array_equal(tnp.linalg.pinv(a, rcond=1e-3), tnp.linalg.pinv(a, 1e-3))
    with pytest.raises(ArgumentError, match="rtol and rcond are one argument"):
        tnp.linalg.pinv(a, 1e-3, rcond=1e-3)
    with pytest.raises(ArgumentError, match="rtol and tol are one argument"):
        tnp.linalg.matrix_rank(a, 1e-3, tol=1e-3)


def test_slogdet_takes_a_method() -> None:
    a = TALL[:3]
    for method in (None, "lu", "qr"):
        sign, size = tnp.linalg.slogdet(a, method=method)
        np.testing.assert_allclose(sign * np.exp(size), np.linalg.det(a), rtol=1e-5)
    with pytest.raises(ArgumentError, match="'svd'"):
        tnp.linalg.slogdet(a, method="svd")


def test_products_take_a_precision_and_the_type_of_sums() -> None:
    x = np.array([[100, 100]], np.int8)
    assert tnp.linalg.matmul(x, x.T, precision="highest", preferred_element_type=np.int32)[0, 0] == 20000
    assert tnp.linalg.tensordot(x, x, axes=2, preferred_element_type=np.int32) == 20000
    found = tnp.linalg.vecdot(x, x, precision=None, preferred_element_type=np.int32)
    np.testing.assert_array_equal(found, np.array([20000], np.int32))
    np.testing.assert_allclose(tnp.linalg.vecdot(TALL, TALL, axis=0, precision="high"), (TALL * TALL).sum(0), rtol=1e-5)


def test_svd_and_eigh_give_a_part_by_index() -> None:
    u, s, vh = np.linalg.svd(TALL, full_matrices=False)
    for _ in range(3):
        part = tnp.linalg.svd(TALL, full_matrices=False, subset_by_index=(1, 3))
        np.testing.assert_allclose((part.U * part.S) @ part.Vh, (u * s)[:, 1:] @ vh[1:], atol=1e-5)
    np.testing.assert_allclose(tnp.linalg.svd(TALL, compute_uv=False, subset_by_index=(0, 2)), s[:2], rtol=1e-5)
    symmetric = TALL.T @ TALL
    vectors, values = tx.lax.linalg.eigh(symmetric, subset_by_index=(0, 2))
    np.testing.assert_allclose(symmetric @ vectors, vectors * values, atol=1e-4)
    with pytest.raises(ArgumentError, match="within 0 to 3"):
        tnp.linalg.svd(TALL, full_matrices=False, subset_by_index=(2, 4))
    with pytest.raises(ArgumentError, match="full_matrices=False"):
        tnp.linalg.svd(TALL, subset_by_index=(0, 2))


@pytest.mark.parametrize("a", [np.eye(3), np.diag([1.0, -1.0, 0.0, 2.0]), TALL.T @ TALL])
def test_svd_of_hermitian_matrices_has_the_vectors_and_order_of_jax(a: Any) -> None:
    a = a.astype(np.float32)
    expected = jax.numpy.linalg.svd(a, hermitian=True)
    for _ in range(3):
        found = tnp.linalg.svd(a, hermitian=True)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose((found.U * found.S) @ found.Vh, a, atol=1e-4)
    np.testing.assert_allclose(tnp.linalg.svd(a, compute_uv=False, hermitian=True), found.S, rtol=1e-6)
    np.testing.assert_allclose(tnp.linalg.svd(a, hermitian=True, subset_by_index=(1, 3)).S, found.S[1:3], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_raw_qr_gives_reflectors_that_multiply_to_q(dtype: Any) -> None:
    a = TALL.astype(dtype) * (1 + 2j if dtype is np.complex64 else 1)
    for _ in range(3):
        reflectors, factors = tnp.linalg.qr(a, mode="raw")
    q = tx.lax.linalg.householder_product(reflectors.T, factors)
    np.testing.assert_allclose(q @ np.triu(reflectors.T[:3]), a, atol=1e-5)


def test_matrix_rank_of_a_vector_is_one_unless_it_is_zero() -> None:
    assert [int(tnp.linalg.matrix_rank(np.array(v))) for v in ([0.0, 2.0], [0.0, 0.0], 3.0)] == [1, 0, 1]


def test_multi_dot_takes_batches() -> None:
    a, b, c = (RANDOM.normal(size=s).astype(np.float32) for s in ((4, 1, 3), (4, 3, 5), (4, 5, 2)))
    np.testing.assert_allclose(tnp.linalg.multi_dot([a, b, c]), a @ b @ c, rtol=1e-4)
    np.testing.assert_allclose(tnp.linalg.multi_dot([a[0, 0], b, c[0]]), a[0, 0] @ b @ c[0], rtol=1e-4)


def test_derivative_of_pinv_forms_no_square_of_the_larger_size() -> None:
    x = RANDOM.normal(size=(100_000, 2)).astype(np.float32)
    for a in (x, x.T):
        inverse, change = tx.jvp(tnp.linalg.pinv, (a,), (a,))  # of t a the inverse is 1 / t times that of a
        np.testing.assert_allclose(change, -inverse, atol=1e-6)


def test_tridiagonal_form_of_one_complex_number_is_real() -> None:
    found = tx.lax.linalg.tridiagonal(np.array([[2 + 1j]], np.complex64))
    assert (found[0].tolist(), found[1].tolist()) == ([[2 + 0j]], [2.0])


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_derivative_of_det_of_singular_matrices_is_the_adjugate(dtype: Any) -> None:
    regular, alike, zero = RANDOM.integers(-3, 4, (4, 4)), RANDOM.integers(-3, 4, (4, 4)), np.zeros((4, 4))
    alike[1] = alike[0]
    matrices = np.stack([regular, alike, zero]).astype(dtype) * (1 if dtype is np.float32 else 1 + 1j)
    change = RANDOM.normal(size=(4, 4)).astype(dtype)
    for m, found in zip(matrices, tx.jvp(tnp.linalg.det, (matrices,), (np.stack([change] * 3),))[1], strict=True):
        rows = [np.where(np.arange(4)[:, None] == k, change, m) for k in range(4)]  # each row in turn replaced
        np.testing.assert_allclose(found, sum(np.linalg.det(r) for r in rows), rtol=1e-4, atol=1e-3)


def test_complex_schur_form_of_one_number_is_that_number() -> None:
    found = tx.scipy.linalg.rsf2csf(np.array([[2.0]]), np.array([[1.0]]))
    assert [x.tolist() for x in found] == [[[2 + 0j]], [[1 + 0j]]]


def test_einsum_takes_a_path_of_tuples_and_auto() -> None:
    a, b, c = (RANDOM.normal(size=(2, n)) for n in (3, 4, 5))
    for path in ([(0, 2), (0, 1)], [(0, 1, 2)], "auto"):
        found = tnp.einsum("ij,ik,il->jkl", a, b, c, optimize=path)
        np.testing.assert_allclose(found, np.einsum("ij,ik,il->jkl", a, b, c), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("matrix", [np.zeros((2, 2), np.float32), np.eye(2, dtype=np.float32)])
def test_equal_sums_and_singular_values_share_the_derivative_of_a_norm_as_in_jax(order: float, matrix: Any) -> None:
    expected = jax.grad(lambda x: jax.numpy.linalg.norm(x, order))(matrix)
    np.testing.assert_allclose(tx.grad(lambda x: tnp.linalg.norm(x, order))(matrix), expected, atol=1e-6)


def test_tangent_of_a_cholesky_factor_is_lower_triangular_where_there_is_no_factor() -> None:
    _, moved = tx.jvp(tnp.linalg.cholesky, (tnp.zeros((2, 2)),), (tnp.ones((2, 2)),))
    assert float(moved[0, 1]) == 0


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, -2, np.inf])
def test_condition_of_a_singular_matrix_is_infinite_and_of_nans_is_nan(order: Any) -> None:
    found = tx.jit(lambda x: tnp.linalg.cond(x, order))(np.stack([np.zeros((2, 2)), np.full((2, 2), np.nan)]))
    np.testing.assert_array_equal(found, [np.inf, np.nan])
    if order in ("fro", 1, np.inf):
        assert float(tnp.linalg.cond(np.ones((2, 2), np.float32), order)) == np.inf
