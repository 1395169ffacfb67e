"""Reductions of matrices and matrix equations of `lax.linalg` and `scipy.linalg`, against SciPy and definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as reference

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError
from tinyxla.lax import linalg as factors
from tinyxla.scipy import linalg
from tinyxla.test_util import check_grads

TYPES = [np.float32, np.complex64]
BATCHES = [(), (2,)]


def sample(dtype: Any, *shape: int, seed: int = 0) -> Any:
    random = np.random.default_rng([seed, *shape])
    x = random.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * random.normal(size=shape)
    return x.astype(dtype)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(np.asarray(x), -1, -2))


def close(found: Any, wanted: Any, tolerance: float = 2e-4) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def product(*x: Any) -> Any:
    found = np.asarray(x[0])
    for y in x[1:]:
        found = found @ np.asarray(y)
    return found


# --- factors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", TYPES)
def test_schur_and_hessenberg_forms_multiply_to_the_matrix(dtype: Any, batch: tuple[int, ...]) -> None:
    a = sample(dtype, *batch, 4, 4)
    unit = np.broadcast_to(np.eye(4), a.shape)
    for form, vectors in (
        linalg.schur(a),
        linalg.schur(a, "complex"),
        linalg.rsf2csf(*linalg.schur(a)),
        linalg.hessenberg(a, calc_q=True),
        tx.jit(linalg.schur)(a),
        tx.vmap(linalg.schur)(a[None]),
    ):
        close(product(vectors, form, adjoint(vectors)).reshape(a.shape), a)
        close(product(adjoint(vectors), vectors).reshape(a.shape), unit)
        close(np.tril(form, -2), np.zeros_like(form))
    close(np.tril(linalg.rsf2csf(*linalg.schur(a))[0], -1), np.zeros_like(a))
    assert len(factors.schur(a, compute_schur_vectors=False)) == 1


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", TYPES)
def test_tridiagonal_has_the_eigenvalues_of_the_matrix(dtype: Any, lower: bool) -> None:
    a = sample(dtype, 5, 5)
    a = a + adjoint(a)
    _, d, e, taus = factors.tridiagonal(a, lower=lower)
    assert (d.shape, e.shape, taus.shape, taus.dtype) == ((5,), (4,), (4,), a.dtype)
    close(reference.eigvalsh_tridiagonal(np.asarray(d), np.asarray(e)), np.linalg.eigvalsh(a), 1e-3)


def test_reductions_of_small_and_infinite_matrices() -> None:
    for n in (0, 1):
        a = np.full((n, n), 2, np.float32)
        close(factors.hessenberg(a)[0], a)
        close(factors.tridiagonal(a)[1], a.diagonal())
        close(factors.schur(a)[0], a)
        close(linalg.hessenberg(a, calc_q=True)[0], a)
    assert np.isnan(factors.schur(np.full((2, 2), np.inf, np.float32))[0]).all()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("dtype", TYPES)
def test_ormqr_multiplies_by_the_q_of_reflectors(dtype: Any, left: bool, transpose: bool) -> None:
    a = sample(dtype, 2, 5, 3)
    reflectors, taus = tnp.linalg.qr(a, mode="raw")
    packed = tnp.matrix_transpose(reflectors)
    q = np.linalg.qr(a, mode="complete")[0]
    close(factors.householder_product(packed, taus), q[..., :3])
    c = sample(dtype, 2, *((5, 2) if left else (2, 5)))
    wanted = adjoint(q) if transpose else q
    close(factors.ormqr(packed, taus, c, left=left, transpose=transpose), wanted @ c if left else c @ wanted)


def test_ormqr_has_derivatives() -> None:
    reflectors, taus = tnp.linalg.qr(sample(np.float32, 4, 3), mode="raw")
    c = sample(np.float32, 4, 2)
    with tx.enable_x64(True):
        arrays = [np.asarray(x, np.float64) for x in (reflectors.T, taus, c)]
        check_grads(factors.ormqr, arrays, order=1)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
@pytest.mark.parametrize("dtype", TYPES)
def test_pivoted_qr_orders_columns_by_size(dtype: Any, shape: tuple[int, ...]) -> None:
    a = sample(dtype, *shape)
    for mode in ("full", "economic"):
        q, r, order = linalg.qr(a, mode=mode, pivoting=True)
        close(product(q, r), np.take_along_axis(a, np.asarray(order)[..., None, :], -1))
        size = np.abs(np.diagonal(np.asarray(r), 0, -2, -1))
        assert (np.diff(size, axis=-1) <= 1e-5).all()
    close(linalg.qr(a, mode="r", pivoting=True)[0], linalg.qr(a, pivoting=True)[1])


def test_pivoted_qr_has_derivatives() -> None:
    with tx.enable_x64(True):
        a = sample(np.float64, 5, 3)
        check_grads(lambda x: factors.qr(x, pivoting=True, full_matrices=False)[:2], (a,), order=1)


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("pivoting", [False, True])
@pytest.mark.parametrize("mode", ["left", "right"])
def test_qr_multiply_equals_scipy(mode: str, pivoting: bool, conjugate: bool) -> None:
    for shape in ((4, 4), (5, 3), (3, 5)):
        a = sample(np.complex64, *shape)
        size = min(shape) if mode == "left" else shape[0]
        for c in (sample(np.complex64, size), sample(np.complex64, *((size, 2) if mode == "left" else (2, size)))):
            found = linalg.qr_multiply(a, c, mode, pivoting, conjugate)
            for ours, scipys in zip(found, reference.qr_multiply(a, c, mode, pivoting, conjugate), strict=True):
                close(ours, scipys)


def test_cholesky_update_is_the_factor_of_the_sum() -> None:
    upper, w = np.triu(sample(np.float32, 2, 4, 4)), sample(np.float32, 2, 4)
    found = factors.cholesky_update(upper, w)
    close(product(adjoint(found), found), adjoint(upper) @ upper + w[:, :, None] * w[:, None, :])
    close(np.tril(found, -1), 0 * upper)


@pytest.mark.parametrize("dtype", TYPES)
def test_qdwh_is_the_polar_decomposition(dtype: Any) -> None:
    a = sample(dtype, 5, 3)
    unitary, positive, steps, ended = factors.qdwh(a)
    wanted = reference.polar(a)
    close(unitary, wanted[0])
    close(positive, wanted[1])
    assert ended
    assert 0 < int(steps) < 9
    assert not factors.qdwh(a, max_iterations=1)[3]
    for side in ("right", "left"):
        for x in (a, adjoint(a)):
            for found in (linalg.polar(x, side), linalg.polar(x, side, max_iterations=10)):
                for ours, scipys in zip(found, reference.polar(x, side), strict=True):
                    close(ours, scipys, 1e-3)


# --- eigenvalues ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("dtype", TYPES)
def test_eig_gives_left_and_right_eigenvectors(dtype: Any, batch: tuple[int, ...]) -> None:
    a = sample(dtype, *batch, 4, 4)
    values, left, right = (np.asarray(x) for x in factors.eig(a))
    close(a @ right, right * values[..., None, :])
    close(adjoint(left) @ a, values[..., :, None] * adjoint(left))
    close(np.linalg.norm(left, axis=-2), np.ones_like(values))
    assert len(factors.eig(a, compute_left_eigenvectors=False)) == 2
    assert len(factors.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_eig_derivatives_are_those_of_lapacks_normalization(dtype: Any) -> None:
    with tx.enable_x64(True):
        a, change = sample(dtype, 3, 3), sample(dtype, 3, 3, seed=1)
        function = lambda x: factors.eig(x, enable_eigvec_derivs=True)  # noqa: E731
        _, moved = tx.jvp(function, (a,), (change,))
        step = 1e-6
        for tangent, after, before in zip(moved, function(a + step * change), function(a - step * change), strict=True):
            close(tangent, (np.asarray(after) - np.asarray(before)) / (2 * step), 1e-6)
        weights = [sample(np.complex128, *x.shape, seed=2) for x in moved]
        value = lambda x: sum(tnp.real(v * w).sum() for v, w in zip(function(x), weights, strict=True))  # noqa: E731
        slope = tx.grad(value)(a)
        close(tnp.real((slope * change).sum()), sum(np.real(t * w).sum() for t, w in zip(moved, weights, strict=True)))


def test_eig_without_derivatives_of_vectors_raises() -> None:
    a = sample(np.float32, 3, 3)
    with pytest.raises(DifferentiationError, match="enable_eigvec_derivs"):
        tx.grad(lambda x: tnp.abs(factors.eig(x)[1]).sum())(a)
    values = tx.grad(
        lambda x: tnp.real(factors.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]).sum()
    )
    close(values(a), np.eye(3), 1e-4)


@pytest.mark.parametrize("dtype", TYPES)
def test_eigh_tridiagonal_equals_scipy(dtype: Any) -> None:
    d, e = sample(np.float32, 5), sample(dtype, 4)
    whole = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    values, vectors = (np.asarray(x) for x in linalg.eigh_tridiagonal(d.astype(dtype), e))
    close(whole @ vectors, vectors * values)
    part = linalg.eigh_tridiagonal(d.astype(dtype), e, eigvals_only=True, select="i", select_range=(1, 3))
    close(part, np.linalg.eigvalsh(whole)[1:4])


# --- equations --------------------------------------------------------------------------------------------------------


def dense(dl: Any, d: Any, du: Any) -> Any:
    return np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [1, 2, 6])
def test_tridiagonal_solve_exchanges_rows(n: int, dtype: Any) -> None:
    dl, d, du, b = (sample(dtype, n, seed=k) for k in range(4))
    for main in (d, d * 1e-6):
        close(factors.tridiagonal_solve(dl, main, du, b[:, None])[:, 0], np.linalg.solve(dense(dl, main, du), b), 2e-2)


def test_tridiagonal_solve_of_singular_matrices_is_nan_or_perturbed() -> None:
    dl, d, du = np.array([0, 1, 1], np.float32), np.array([1, 1, 0], np.float32), np.array([1, 0, 0], np.float32)
    b = np.arange(3, dtype=np.float32)[:, None]
    assert np.isnan(factors.tridiagonal_solve(dl, d, du, b)).any()
    found = factors.tridiagonal_solve(dl, d, du, b, perturb_singular=True)
    assert np.isfinite(found).all()
    assert np.abs(found).max() > 1e5
    regular = (dl, d + 3, du, b)
    close(factors.tridiagonal_solve(*regular, perturb_singular=True), factors.tridiagonal_solve(*regular), 1e-6)


def test_tridiagonal_solve_has_derivatives_and_batches() -> None:
    with tx.enable_x64(True):
        arrays = [sample(np.float64, 4, seed=k) for k in range(3)]
        arrays = [arrays[0], arrays[1] + 3, arrays[2], sample(np.float64, 4, 2)]
        check_grads(factors.tridiagonal_solve, arrays, order=1)
        batch = [np.stack([x, 2 * x]) for x in arrays]
        close(tx.vmap(factors.tridiagonal_solve)(*batch), factors.tridiagonal_solve(*batch), 1e-12)


@pytest.mark.parametrize("method", ["schur", "eigen"])
@pytest.mark.parametrize("dtype", TYPES)
def test_solve_sylvester_equals_scipy(dtype: Any, method: str) -> None:
    a, b, c = sample(dtype, 3, 3), sample(dtype, 2, 4, 4), sample(dtype, 2, 3, 4)
    found = linalg.solve_sylvester(a, b, c, method=method)
    wanted = np.stack([reference.solve_sylvester(a, b[k], c[k]) for k in range(2)])
    close(found, wanted, 2e-3)
    assert found.dtype == dtype
    close(tx.jit(linalg.solve_sylvester)(a, b, c), found, 2e-3)


def test_solve_sylvester_has_derivatives_and_is_nan_where_singular() -> None:
    with tx.enable_x64(True):
        arrays = sample(np.float64, 3, 3), sample(np.float64, 2, 2), sample(np.float64, 3, 2)
        check_grads(linalg.solve_sylvester, arrays, order=1)
        check_grads(linalg.solve_sylvester, [x + 0.5j for x in arrays], order=1)
    unit = np.eye(2, dtype=np.float32)
    assert np.isnan(linalg.solve_sylvester(unit, -unit, unit)).all()


def test_expm_of_zeros_has_no_infinity_on_the_way() -> None:
    with tx.debug_infs():
        np.testing.assert_array_equal(linalg.expm(np.zeros((2, 2), np.float32)), np.eye(2))


@pytest.mark.parametrize("dtype", TYPES)
def test_funm_and_expm_frechet_equal_scipy(dtype: Any) -> None:
    a, e = sample(dtype, 4, 4), sample(dtype, 4, 4, seed=1)
    close(linalg.funm(a, tnp.sin), reference.funm(a, np.sin), 1e-3)
    found, error = linalg.funm(a, tnp.exp, disp=False)
    close(found, reference.expm(a), 2e-3)
    assert float(error) < 1e-3
    for ours, scipys in zip(linalg.expm_frechet(a, e), reference.expm_frechet(a, e), strict=True):
        close(ours, scipys, 2e-3)


# --- matrices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        *(("invhilbert", ()), ("hilbert", ()), ("helmert", ()), ("helmert", (True,)), ("dft", ("n",))),
        *((name, (kind,)) for name in ("pascal", "invpascal") for kind in ("symmetric", "lower", "upper")),
    ],
)
def test_matrices_of_a_size_equal_scipy(name: str, args: tuple[Any, ...], n: int) -> None:
    with tx.enable_x64(True):
        close(getattr(linalg, name)(n, *args), getattr(reference, name)(n, *args), 1e-10)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("dtype", TYPES)
def test_matrices_of_vectors_equal_scipy(dtype: Any, n: int) -> None:
    x = sample(dtype, n)
    close(linalg.fiedler(x), np.abs(x[:, None] - x))
    if n > 1:
        close(linalg.fiedler_companion(x), reference.fiedler_companion(x))
    for m in (1, 3, 8):
        for mode in ("full", "same", "valid"):
            close(linalg.convolution_matrix(x, m, mode), reference.convolution_matrix(x, m, mode))
    assert linalg.fiedler_companion(np.stack([x, x])).shape == (2, n - 1, n - 1)


def test_toeplitz_and_hankel_broadcast_batches() -> None:
    c, r = sample(np.float32, 4, 1, 3), sample(np.float32, 2, 5)
    for name in ("toeplitz", "hankel"):
        found = getattr(linalg, name)(c, r)
        assert found.shape == (4, 2, 3, 5)
        close(found[3, 1], getattr(reference, name)(c[3, 0], r[1]))


CALLS: list[tuple[Callable[[], Any], type, str]] = [
    (lambda: linalg.hadamard(3), ArgumentError, "positive power of 2"),
    (lambda: linalg.hadamard(0), ArgumentError, "positive power of 2"),
    (lambda: linalg.helmert(0), ArgumentError, "n must be a positive integer"),
    (lambda: linalg.convolution_matrix(np.ones(2), 0), ArgumentError, "n must be a positive integer"),
    (lambda: linalg.convolution_matrix(np.ones(0), 2), ShapeError, "at least 1"),
    (lambda: linalg.fiedler_companion(np.ones(0)), ShapeError, "nonzero length"),
    (lambda: linalg.invpascal(2, "other"), ArgumentError, "kind"),
    (lambda: linalg.dft(2, dtype=np.float32), DTypeError, "complex"),
    (lambda: linalg.schur(np.eye(2), "other"), ArgumentError, "output"),
    (lambda: linalg.schur(np.ones((2, 3))), ShapeError, "square"),
    (lambda: linalg.rsf2csf(np.eye(2), np.eye(3)), ShapeError, "one size"),
    (lambda: linalg.funm(np.ones((2, 2, 2)), np.exp), ShapeError, "square matrix"),
    (lambda: linalg.expm_frechet(np.eye(2), np.eye(3)), ShapeError, "one shape"),
    (lambda: linalg.solve_sylvester(np.eye(2), np.eye(3), np.eye(2)), ShapeError, "as many rows"),
    (lambda: linalg.solve_sylvester(np.eye(2), np.eye(2), np.eye(2), method="lu"), ArgumentError, "method"),
    (lambda: linalg.qr_multiply(np.eye(3), np.ones(2)), ShapeError, "do not fit"),
    (lambda: linalg.eigh_tridiagonal(np.ones(3), np.ones(3)), ShapeError, "n - 1"),
    (lambda: linalg.eigh_tridiagonal(np.ones(3), np.ones(2), select="v"), ArgumentError, "select"),
    (lambda: linalg.eigh(np.eye(2), type=2), ArgumentError, "type"),
    (lambda: factors.householder_product(np.eye(2), np.ones(3)), ShapeError, "taus"),
    (lambda: factors.ormqr(np.eye(2), np.ones(2), np.eye(3)), ShapeError, "2 rows"),
    (lambda: factors.cholesky_update(np.eye(2), np.ones(3)), ShapeError, "w_vector"),
    (lambda: factors.qdwh(np.ones((2, 3))), ShapeError, "at least as many rows"),
    (lambda: factors.eig(np.eye(2), implementation="lapack"), ArgumentError, "EigImplementation"),
]


@pytest.mark.parametrize(("call", "error", "text"), CALLS)
def test_wrong_calls_raise_typed_errors(call: Callable[[], Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_scipy_options_without_effect_are_taken_by_position() -> None:
    a = np.eye(2, dtype=np.float32)
    close(linalg.cholesky(a, False, False, True), a)
    close(linalg.svd(a, True, False, False, True, "gesdd"), np.ones(2))
    with pytest.raises(TypeError):
        linalg.cholesky(a, False, False, True, 1)


def test_reductions_keep_to_strict_promotion_of_types_and_ranks() -> None:
    a, b = sample(np.float32, 2, 4, 4), sample(np.float32, 2, 4, 3)
    with tx.numpy_dtype_promotion("strict"), tx.numpy_rank_promotion("raise"):
        linalg.rsf2csf(*linalg.schur(a))
        linalg.hessenberg(a, calc_q=True)
        linalg.solve_sylvester(a, a[:, :3, :3], b)
        linalg.qr_multiply(b, b[:, :3], "left")
        linalg.funm(a[0], tnp.exp, disp=False)
        linalg.polar(b, max_iterations=5)
        factors.eig(a)
        factors.tridiagonal_solve(a[..., 0], a[..., 1], a[..., 2], b, perturb_singular=True)
        factors.cholesky_update(np.triu(a), a[..., 0])
        linalg.toeplitz(a, b[:, :1, :])
        linalg.hankel(a, b[:, :1, :])
        linalg.fiedler_companion(a)
        linalg.convolution_matrix(a, 3)
