"""Factors of matrices and what is computed with them, values and gradients, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy
import jax.scipy.linalg
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.ops.test_linear_algebra import (
    COMPLEX,
    REAL,
    close,
    matrices,
    positive,
    same_with_gradients as same_with_two_gradients,
)
from tinyxla import lax
from tinyxla.errors import ArgumentError, DifferentiationError, DTypeError, ShapeError
from tinyxla.ops.linalg import factorizations
from tinyxla.scipy import linalg as scipy
from tinyxla.test_util import check_grads
from tinyxla.tracing import wrap

same_with_gradients = partial(same_with_two_gradients, twice=False)


def regular(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any = REAL) -> Any:
    """Far from singular, with eigenvalues and singular values far from each other."""
    diagonal = np.zeros(shape[-2:])
    np.fill_diagonal(diagonal, 2 + 2 * np.arange(min(shape[-2:])))
    return (0.3 * matrices(generator, shape, dtype) + diagonal).astype(dtype)


def adjoint(x: Any) -> Any:
    return x.mT.conj()


# --- factors ----------------------------------------------------------------------------------------------------------


mixed = pytest.mark.parametrize(("shape", "dtype"), [((3, 3), COMPLEX), ((2, 3, 2), REAL), ((2, 4), REAL)])


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(("shape", "dtype"), [((3, 3), REAL), ((2, 3, 2), COMPLEX), ((2, 4), REAL), ((6, 2, 2), REAL)])
def test_lu(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> None:
    """Few large matrices, and many small ones, which are factored together."""
    a = matrices(generator, shape, dtype)
    for x, y in zip(lax.linalg.lu(a), jax.lax.linalg.lu(a), strict=True):
        assert x.dtype == y.dtype
        close(x, y)
    a = regular(generator, shape, dtype)
    same_with_gradients(lambda x: lax.linalg.lu(x)[0], lambda x: jax.lax.linalg.lu(x)[0], a)


def test_singular_matrices_have_factors() -> None:
    a = np.stack([np.zeros((2, 2)), [[0, 1], [0, 1]], [[1, 1], [1, 1]]] * 2).astype(REAL)
    for given in (a, a[:1], a[1:2]):
        for x, y in zip(lax.linalg.lu(given), jax.lax.linalg.lu(given), strict=True):
            close(x, y)


@pytest.mark.sample(every=3)
@mixed
def test_qr(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> None:
    a = regular(generator, shape, dtype)
    for full_matrices in (True, False):
        found, expected = (lib.linalg.qr(a, full_matrices=full_matrices) for lib in (lax, jax.lax))
        for x, y in zip(found, expected, strict=True):
            close(x, y)
    if shape[-2] < shape[-1]:  # where JAX has no derivative: what the factors make is the matrix
        x, tangent = a, matrices(generator, shape, dtype)
        _, change = tx.jvp(lambda y: jnp.matmul(*lax.linalg.qr(y)), (x,), (tangent,))
        close(change, tangent)
    else:
        ours = lambda x: jnp.concatenate(lax.linalg.qr(x, full_matrices=False), -2)  # noqa: E731
        theirs = lambda x: jax.numpy.concatenate(jax.lax.linalg.qr(x, full_matrices=False), -2)  # noqa: E731
        same_with_gradients(ours, theirs, a)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("shape", [(128, 64), (91, 91), (2, 333, 41), (33, 250), (8200, 1)])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_qr_of_large_matrices(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> None:
    """Reflections come in blocks, of which the last may be short."""
    a = matrices(generator, shape, dtype)
    for full_matrices in (True, False)[shape[-2] > 1000 :]:
        q, r = lax.linalg.qr(a, full_matrices=full_matrices)
        expected, triangle = jax.lax.linalg.qr(a, full_matrices=full_matrices)
        steps = min(shape[-2:])
        close(r, triangle)
        close(q[..., :steps], expected[..., :steps])
        close(q @ r, a)
        close(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *q.shape[-1:] * 2)))


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", [(5, 2), (2, 4, 3), (3, 1)])
def test_derivative_of_complete_qr_is_that_of_the_reflectors(
    shape: tuple[int, ...], dtype: Any, generator: np.random.Generator
) -> None:
    a, change = matrices(generator, shape, dtype), matrices(generator, shape, dtype)
    for f, g in ((lax.linalg.qr, jax.lax.linalg.qr), (tx.jit(lax.linalg.qr), jax.lax.linalg.qr)):
        for found, wanted in zip(tx.jvp(f, (a,), (change,))[1], jax.jvp(g, (a,), (change,))[1], strict=True):
            close(found, wanted)
    weights = matrices(generator, (*shape[:-2], shape[-2], shape[-2]), dtype)
    found = tx.grad(lambda x: (lax.linalg.qr(x)[0] * weights).real.sum())(a)
    close(found, jax.grad(lambda x: (jax.lax.linalg.qr(x)[0] * weights).real.sum())(a))
    ours = tx.jvp(lambda x: tx.jvp(lax.linalg.qr, (x,), (change,))[1][0], (a,), (change,))[1]
    close(ours, jax.jvp(lambda x: jax.jvp(jax.lax.linalg.qr, (x,), (change,))[1][0], (a,), (change,))[1])


def test_the_complete_basis_of_singular_vectors_has_no_derivative() -> None:
    with pytest.raises(DifferentiationError, match="full_matrices=False"):
        tx.grad(lambda x: lax.linalg.svd(x)[0].sum())(np.ones((3, 2), REAL))


@pytest.mark.parametrize(("lower", "dtype"), [(True, COMPLEX), (False, REAL)])
def test_eigh(lower: bool, dtype: Any, generator: np.random.Generator) -> None:
    """What does not depend on the phases of the vectors: values, and functions of the matrix."""
    a = positive(generator, (2, 3, 3), dtype) + np.diag([0, 5, 10]).astype(dtype)

    def cube(lib: Any, x: Any) -> Any:
        v, w = lib.linalg.eigh(x, lower=lower)
        return (v * w[..., None, :] ** 3) @ adjoint(v) / 1000

    same_with_two_gradients(partial(cube, lax), partial(cube, jax.lax), a)
    spoilt = np.where((np.triu if lower else np.tril)(np.ones((3, 3), bool), 1 if lower else -1), np.nan, a)
    unread = lax.linalg.eigh(spoilt.astype(dtype), lower=lower, symmetrize_input=False)[1]
    close(unread, np.linalg.eigvalsh(a))


@pytest.mark.sample(every=3)
@mixed
def test_svd(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> None:
    a = regular(generator, shape, dtype)
    for full_matrices in (True, False):
        found = lax.linalg.svd(a, full_matrices=full_matrices)
        expected = jax.lax.linalg.svd(a, full_matrices=full_matrices)
        for x, y in zip(found, expected, strict=True):
            close(jnp.abs(x), np.abs(y))

    def cube(lib: Any, x: Any) -> Any:
        u, s, vh = lib.linalg.svd(x, full_matrices=False)
        return (u * s[..., None, :] ** 3) @ vh / 100

    same_with_two_gradients(partial(cube, lax), partial(cube, jax.lax), a)
    close(lax.linalg.svd(a, compute_uv=False), np.linalg.svd(a, compute_uv=False))


def test_nearly_equal_singular_values_keep_the_digits_of_their_difference() -> None:
    large, small = np.float32(3 + 2**-22), np.float32(3)
    turn = np.float32([[0, 1], [1, 0]])
    _, (du, _, _) = tx.jvp(partial(jnp.linalg.svd, full_matrices=False), (np.diag([large, small]),), (turn,))
    np.testing.assert_allclose(abs(np.asarray(du)), turn / (large - small), 1e-5)
    by_u = tx.grad(lambda x: jnp.linalg.svd(x, full_matrices=False)[0][0, 1])(np.diag([large, small]))
    np.testing.assert_allclose(abs(np.asarray(by_u)), turn / (large - small) / 2, 1e-5)


def reconstructed_by_svd(a: Any) -> Any:
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    return jnp.real((u * s) @ vh)


def reconstructed_by_eigh(a: Any) -> Any:
    w, v = jnp.linalg.eigh(a + a.T)
    return (v * w) @ v.T


RANK_2 = np.zeros((4, 4), REAL)
RANK_2[:2, :2] = [[2, 1], [0.5, 1.5]]


@pytest.mark.parametrize(
    ("whole", "a"),
    [
        (reconstructed_by_svd, np.zeros((3, 3), REAL)),
        (reconstructed_by_svd, RANK_2),
        (reconstructed_by_svd, RANK_2[:, :3]),
        (reconstructed_by_svd, RANK_2[:3]),
        (reconstructed_by_svd, np.diag([2, 0]).astype(COMPLEX)),
        (reconstructed_by_eigh, np.zeros((3, 3), REAL)),
        (reconstructed_by_eigh, RANK_2),
    ],
)
def test_derivatives_that_vectors_of_zero_values_lose_are_nan(whole: Any, a: Any) -> None:
    """A is the sum of its factors; the vectors of zeros turn by amounts that the factors' derivatives do not hold."""
    weights = np.arange(1.0, 1.0 + a.size, dtype=REAL).reshape(a.shape)
    assert np.isnan(np.asarray(tx.grad(lambda x: (whole(x) * weights).sum())(a))).any()
    tangent = (weights + (weights.T * 1j if a.dtype == COMPLEX else 0)).astype(a.dtype)
    assert np.isnan(np.asarray(tx.jvp(whole, (a,), (tangent,))[1])).any()


def test_derivatives_by_factors_of_other_values_than_zeros_are_finite() -> None:
    def truncated(a: Any) -> Any:
        u, s, vh = jnp.linalg.svd(a, full_matrices=False)
        return ((u[:, :2] * s[:2]) @ vh[:2])[:2, :2]

    weights = np.arange(4.0, dtype=REAL).reshape(2, 2)
    for a in (RANK_2, RANK_2[:, :3], RANK_2[:3]):
        slope = np.asarray(tx.grad(lambda x: (truncated(x) * weights).sum())(a))
        np.testing.assert_allclose(slope[:2, :2], weights, atol=1e-5)
        np.testing.assert_allclose(
            tx.grad(lambda x: jnp.linalg.svd(x, False)[1].sum())(a),
            jax.grad(lambda x: jax.numpy.linalg.svd(x, False)[1].sum())(a),
            atol=1e-5,
        )
    np.testing.assert_allclose(
        tx.grad(lambda x: (reconstructed_by_svd(x) * weights).sum())(np.diag([2, 0]).astype(REAL)), weights
    )
    np.testing.assert_allclose(tx.grad(lambda x: jnp.linalg.eigh(x)[0].sum())(np.zeros((3, 3))), np.eye(3))


@pytest.mark.parametrize("dtype", [REAL, COMPLEX, np.float64, np.complex128])
def test_eig(generator: np.random.Generator, dtype: Any) -> None:
    """Compiled and not, whether vectors are wanted or not; with real eigenvalues, and pairs of conjugate ones."""
    with tx.enable_x64(True):
        for shape in ((1, 1), (2, 4, 4), (3, 30, 30)):
            a = matrices(generator, shape, dtype)
            close(jnp.linalg.eigvals(a), jnp.linalg.eig(a).eigenvalues)
            for eig in (jnp.linalg.eig, tx.jit(jnp.linalg.eig)):
                values, vectors = map(np.asarray, eig(a))
                assert values.dtype == vectors.dtype == np.result_type(dtype, COMPLEX)
                close(a @ vectors, vectors * values[..., None, :], 10)
                close(np.linalg.norm(vectors, axis=-2), np.ones(shape[:-1]))
                close(tx.jit(jnp.linalg.eigvals)(a).sum(-1), np.trace(a, axis1=-2, axis2=-1), 10)
                close(jnp.linalg.eigvals(a).prod(-1), np.linalg.det(a), 100)


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_derivatives_of_eig(generator: np.random.Generator, dtype: Any) -> None:
    """Of the values as JAX has them, where they are equal, too; of the vectors by functions that know no phases."""
    a = matrices(generator, (2, 4, 4), dtype) + np.diag([0, 3, 6, 9]).astype(dtype)

    def cubes(lib: Any, x: Any) -> Any:
        return lib.linalg.eigvals(x) ** 3 / 100

    same_with_gradients(partial(cubes, jnp), partial(cubes, jax.numpy), a)
    once = partial(tx.vjp, lambda x: jnp.linalg.eigvals(x).real.sum())
    close(once(np.eye(3, dtype=dtype))[1](REAL(1))[0], np.eye(3))

    def cube(x: Any) -> Any:
        w, v = jnp.linalg.eig(x)
        return jnp.linalg.solve(v.swapaxes(-1, -2), (v * w[..., None, :] ** 3).swapaxes(-1, -2)).swapaxes(-1, -2) / 100

    same_with_two_gradients(cube, lambda x: jax.numpy.linalg.matrix_power(x + 0j, 3) / 100, a)

    def lengths(x: Any) -> Any:
        return jnp.abs(jnp.linalg.eig(x).eigenvectors) ** 2

    check_grads(lengths, (a,), 1, atol=2e-2, rtol=2e-2)


def test_what_lapack_refuses_is_nan_alone() -> None:
    a = np.stack([np.eye(2), np.full((2, 2), np.nan), 2 * np.eye(2)]).astype(REAL)
    for function in (jnp.linalg.eigvalsh, jnp.linalg.svdvals, jnp.linalg.eigvals):
        found = np.asarray(tx.jit(function)(a))
        close(found[[0, 2]], [[1, 1], [2, 2]])
        assert np.isnan(found[1]).all()


def test_pivots_to_permutations(generator: np.random.Generator) -> None:
    pivots = np.minimum(generator.integers(0, 5, (3, 4)) + np.arange(4), 4).astype(np.int32)
    for size in (5, 7):
        found = tx.jit(lambda p, n=size: lax.linalg.lu_pivots_to_permutation(p, n))(pivots)
        np.testing.assert_array_equal(found, jax.lax.linalg.lu_pivots_to_permutation(pivots, size))


# --- what is computed with them ---------------------------------------------------------------------------------------


def test_solve(generator: np.random.Generator) -> None:
    a, b = regular(generator, (2, 3, 3), COMPLEX), matrices(generator, (2, 3, 2), COMPLEX)
    same_with_gradients(jnp.linalg.solve, jax.numpy.linalg.solve, a, b)
    close(jnp.linalg.solve(a, b[0, :, 0]), jax.numpy.linalg.solve(a, b[0, :, 0]))
    close(jnp.linalg.solve(a[0], b), jax.numpy.linalg.solve(a[0], b))
    close(jnp.linalg.solve(np.array([[2, 0], [0, 4]]), np.array([2, 4])), [1, 1])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4])
def test_determinants_and_inverses(size: int, generator: np.random.Generator) -> None:
    a = matrices(generator, (4, size, size), COMPLEX if size % 2 else REAL)
    close(jnp.linalg.det(a), np.linalg.det(a))
    for x, y in zip(jnp.linalg.slogdet(a), np.linalg.slogdet(a), strict=True):
        close(x, y, 1e-3)
    close(jnp.linalg.inv(a), np.linalg.inv(a), 1e-3)


def _numbers(lib: Any, x: Any) -> Any:
    _, size = lib.linalg.slogdet(x)
    return lib.linalg.inv(x) + (lib.linalg.det(x) + size)[:, None, None]


def test_gradients_of_determinants_and_inverses(generator: np.random.Generator) -> None:
    for size, dtype in ((2, REAL), (4, COMPLEX)):
        a = (regular(generator, (2, size, size), dtype) / 3).astype(dtype)
        same_with_gradients(partial(_numbers, jnp), partial(_numbers, jax.numpy), a)


def test_second_derivatives_of_determinants(generator: np.random.Generator) -> None:
    a = regular(generator, (4, 4)) / 3
    for function in (lambda lib, x: lib.linalg.det(x), lambda lib, x: lib.linalg.slogdet(x)[1]):
        expected = jax.jit(jax.hessian(partial(function, jax.numpy)))(a)
        close(tx.hessian(partial(function, jnp))(a), expected, 1e-3)


@pytest.mark.parametrize(("shape", "dtype"), [((4, 2), REAL), ((2, 4), COMPLEX)])
def test_least_squares(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> None:
    a, b = regular(generator, shape, dtype), matrices(generator, (shape[0], 2), dtype)
    for sides in (b, b[:, 0]):
        for x, y in zip(jnp.linalg.lstsq(a, sides), jax.numpy.linalg.lstsq(a, sides), strict=True):
            close(x, y, 1e-3)
    close(jnp.linalg.pinv(a), np.linalg.pinv(a), 1e-3)
    ours, theirs = (lambda x, y, lib=lib: lib.linalg.lstsq(x, y)[0] for lib in (jnp, jax.numpy))
    same_with_gradients(ours, theirs, a, b)


def test_deficient_matrices(generator: np.random.Generator) -> None:
    a = matrices(generator, (5, 2)) @ matrices(generator, (2, 4))
    b = matrices(generator, (5,))
    assert int(jnp.linalg.matrix_rank(a)) == int(jnp.linalg.lstsq(a, b)[2]) == 2
    close(jnp.linalg.lstsq(a, b)[0], np.linalg.lstsq(a, b, 1e-5)[0], 1e-3)
    close(jnp.linalg.pinv(a), np.linalg.pinv(a, 1e-5), 1e-3)
    assert jnp.linalg.matrix_rank(np.stack([np.eye(3), np.zeros((3, 3))])).tolist() == [3, 0]


@pytest.mark.parametrize("ord", ["nuc", 2, -2, "fro", 1, np.inf])
def test_norms_and_conditions(ord: Any, generator: np.random.Generator) -> None:
    a = regular(generator, (2, 3, 3))
    for keepdims in (False, True):
        close(jnp.linalg.norm(a, ord, (2, 0), keepdims), np.linalg.norm(a, ord, (2, 0), keepdims))
        close(jnp.linalg.matrix_norm(a, ord=ord), np.linalg.matrix_norm(a, ord=ord))
    close(jnp.linalg.cond(a, ord), np.linalg.cond(a, ord), 1e-3)


def test_other_functions(generator: np.random.Generator) -> None:
    a = regular(generator, (4, 4))
    close(jnp.linalg.matrix_power(a, -2), np.linalg.matrix_power(a, -2), 1e-3)
    close(jnp.linalg.cholesky(a @ a.T, upper=True), np.linalg.cholesky(a @ a.T, upper=True))
    close(jnp.linalg.tensorinv(a.reshape(2, 2, 4)), np.linalg.tensorinv(a.reshape(2, 2, 4)), 1e-3)
    b = matrices(generator, (2, 2))
    close(jnp.linalg.tensorsolve(a.reshape(2, 2, 4), b), np.linalg.tensorsolve(a.reshape(2, 2, 4), b), 1e-3)
    given = a.reshape(2, 4, 2)
    close(jnp.linalg.tensorsolve(given, b, (1,)), np.linalg.tensorsolve(given, b, (1,)), 1e-3)
    for mode in ("reduced", "complete", "r"):
        for x, y in zip(jnp.linalg.qr(a[:, :2], mode), np.linalg.qr(a[:, :2], mode), strict=True):
            close(x, y)
    close(jnp.linalg.eigvalsh(a, "U", symmetrize_input=False), np.linalg.eigvalsh(a, "U"))


def test_scipy(generator: np.random.Generator) -> None:
    a, b = positive(generator, (3, 3), COMPLEX), matrices(generator, (3, 2), COMPLEX)

    def results(lib: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for lower in (True, False):
            found[f"cholesky, {lower}"] = lib.cholesky(a, lower)
            for sides in (b, b[:, 0]):
                found[f"cho_solve, {lower}, {sides.shape}"] = lib.cho_solve(lib.cho_factor(a, lower), sides)
                for trans in (0, 1, 2) if sides is b else ("N", "T", "C"):
                    options = {"trans": trans, "lower": lower, "unit_diagonal": trans == 1}
                    found[f"solve_triangular, {options}"] = lib.solve_triangular(a, sides, **options)
        for assume_a in ("gen", "pos"):
            found[f"solve, {assume_a}"] = lib.solve(a, b, assume_a=assume_a)
        found["lu_solve"] = lib.lu_solve(lib.lu_factor(a), b)
        for place, x in enumerate(lib.lu(b)):
            found[f"lu, {place}"] = x
        for mode in ("full", "economic", "r"):
            for place, x in enumerate(lib.qr(b, mode=mode)):
                found[f"qr, {mode}, {place}"] = x
        found["eigh"] = lib.eigh(a, eigvals_only=True)
        found["svd"] = lib.svd(b, compute_uv=False)
        return found | {"block_diag": lib.block_diag(b, 1.0, b[0])}

    found, expected = results(scipy), jax.jit(lambda: results(jax.scipy.linalg))()
    assert found.keys() == expected.keys()
    for name, x in found.items():
        close(x, expected[name], what=name)
    u, s, vh = scipy.svd(b, full_matrices=False)
    close((u * s) @ vh, b)
    w, v = scipy.eigh(a)
    close((v * w) @ adjoint(v), a)


# --- errors -----------------------------------------------------------------------------------------------------------

M = np.eye(2, dtype=REAL)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ShapeError, "linalg.solve: takes square matrices", lambda: jnp.linalg.solve(M[:1], M)),
        (ShapeError, "the sizes of a and b must be equal", lambda: jnp.linalg.solve(M, np.ones(3, REAL))),
        (ShapeError, "linalg.inv: takes square matrices, but got f32", lambda: jnp.linalg.inv(M[0])),
        (ShapeError, "takes a matrix and as many", lambda: jnp.linalg.lstsq(M, np.ones(3, REAL))),
        (ShapeError, "linalg.svd: takes matrices", lambda: jnp.linalg.svd(M[0])),
        (ShapeError, "tensorinv: the sizes before and after", lambda: jnp.linalg.tensorinv(np.ones((2, 3, 4)), 1)),
        (ShapeError, "do not make a square system", lambda: jnp.linalg.tensorsolve(M, np.ones(3))),
        (
            ArgumentError,
            "mode must be one of 'reduced', 'complete', 'r', 'raw', but got 'full'",
            lambda: jnp.linalg.qr(M, "full"),
        ),
        (ArgumentError, "UPLO must be one of 'L', 'U', but got 'X'", lambda: jnp.linalg.eigh(M, "X")),
        (ArgumentError, "trans must be one of '0', '1'", lambda: scipy.solve_triangular(M, M, trans=3)),
        (ArgumentError, "assume_a must be", lambda: scipy.solve(M, M, assume_a="tri")),
        (ArgumentError, "mode must be one of 'full'", lambda: scipy.qr(M, mode="raw")),
        (ShapeError, "numbers, vectors and matrices", lambda: scipy.block_diag(M[None])),
        (
            ShapeError,
            "pivots must be integers, at most 1",
            lambda: lax.linalg.lu_pivots_to_permutation(np.array([0, 1]), 1),
        ),
        (DTypeError, "LuDecomposition: a must have a floating", lambda: factorizations.lu(wrap(np.eye(2, dtype=int)))),
        (
            DTypeError,
            "pivots must be s32",
            lambda: factorizations.pivots_to_permutation(wrap(np.zeros(2)), permutation_size=2),
        ),
        (
            ShapeError,
            "permutation_size must not be below the number of pivots, but got 1",
            lambda: factorizations.pivots_to_permutation(wrap(np.zeros(2, np.int32)), permutation_size=1),
        ),
    ],
)
def test_errors(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", [(3, 5), (2, 2, 4)])
def test_derivatives_of_qr_of_wide_matrices_are_those_of_jax(
    shape: tuple[int, ...], dtype: Any, generator: np.random.Generator
) -> None:
    a, tangent = matrices(generator, shape, dtype), matrices(generator, shape, dtype)
    found, expected = (
        lib.jvp(lambda x, lib=lib: tuple(lib.lax.linalg.qr(x, full_matrices=False)), (a,), (tangent,))
        for lib in (tx, jax)
    )
    for x, y in zip(found[1], expected[1], strict=True):
        close(x, y)
    cotangents = tuple(matrices(generator, x.shape, dtype) for x in expected[0])
    for ways in (lambda f: f, tx.jit):
        pullback = tx.vjp(lambda x, w=ways: tuple(w(lambda y: lax.linalg.qr(y, full_matrices=False))(x)), a)[1]
        reference = jax.vjp(lambda x: tuple(jax.lax.linalg.qr(x, full_matrices=False)), a)[1]
        close(pullback(cotangents)[0], reference(cotangents)[0])
