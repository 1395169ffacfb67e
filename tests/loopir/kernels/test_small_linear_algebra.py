"""Factorizations and systems as native steps: against the interpreter, NumPy and JAX, for all sizes and flags, for
matrices without a result, and inside transformations and loops."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax
from tinyxla.ops.linalg import factorizations, linear_algebra
from tinyxla.runtime.threads import num_threads

SIZES = (0, 1, 2, 3, 5, 8, 17, 33, 70)
TYPES = (np.float32, np.float64, np.complex64, np.complex128)
BATCHES = ((), (1,), (19,), (2, 3), (0,))


def matrices(generator, *shape, dtype=np.float32):
    x = generator.standard_normal(shape)
    return (x + 1j * generator.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def definite(generator, *shape, dtype=np.float32):
    x = matrices(generator, *shape, dtype=dtype)
    return (x @ np.swapaxes(x.conj(), -1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def adjoint(x):
    return np.swapaxes(np.asarray(x).conj(), -1, -2)


def exact(x):
    """An array of the type that it has, 64 bits too."""
    return tnp.asarray(x, dtype=x.dtype)


def close(actual, desired, factor=100):
    actual, desired = np.asarray(actual), np.asarray(desired)
    eps = np.finfo(actual.dtype).eps if actual.dtype.kind in "fc" else 0
    scale = np.max(np.abs(desired), initial=1)
    np.testing.assert_allclose(actual, desired, rtol=0, atol=factor * eps * scale)


def native(f, *arguments):
    """The compiled results; nothing may be left to the host."""
    given = [exact(x) for x in arguments]
    function = tx.jit(f)
    steps = function.lower(*given).compile().as_text()  # which shows this line too
    assert "host call" not in steps
    return function(*given)


def test_batches_and_sizes_of_cholesky(generator):
    for k, (n, batch, lower) in enumerate(itertools.product(SIZES, BATCHES, (True, False))):
        dtype = TYPES[k % 2]
        a = definite(generator, *batch, n, n, dtype=dtype)
        unread = np.triu(np.full((n, n), np.nan, dtype), 1)
        given = np.where(np.isnan(unread if lower else unread.T), np.nan, a).astype(dtype)
        found = tx.jit(lambda x, lower=lower: linear_algebra.cholesky(x, lower=lower))(exact(given))
        desired = np.linalg.cholesky(a)
        close(found, desired if lower else adjoint(desired))
        close(linear_algebra.cholesky(exact(given), lower=lower), np.asarray(found))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_way_to_solve_triangular_systems(dtype, generator):
    flags = itertools.product((True, False), (True, False), (True, False), range(3))
    for (n, count), (left, lower, unit, form) in zip(
        itertools.cycle(((9, 12), (3, 1), (1, 400), (20, 150), (2, 192))), flags, strict=False
    ):
        batch = (3,) if n == 3 else ()
        a = matrices(generator, *batch, n, n, dtype=dtype) / np.asarray(n, dtype) + 2 * np.eye(n, dtype=dtype)
        b = matrices(generator, *batch, *((n, count) if left else (count, n)), dtype=dtype)
        attributes = {
            "left_side": left,
            "lower": lower,
            "unit_diagonal": unit,
            "transpose_a": ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")[form],
        }
        found = native(lambda a, b, at=attributes: linear_algebra.triangular_solve(a, b, **at), a, b)
        close(found, np.asarray(linear_algebra.triangular_solve(exact(a), exact(b), **attributes)))
        t = np.tril(a) if lower else np.triu(a)
        if unit:
            t = t * (1 - np.eye(n, dtype=dtype)) + np.eye(n, dtype=dtype)
        op = (t, np.swapaxes(t, -1, -2), adjoint(t))[form]
        close(op @ np.asarray(found) if left else np.asarray(found) @ op, b)


def test_empty_systems_and_batches(generator):
    for n, count, batch in itertools.product((0, 2), (0, 1), ((), (0,), (2,))):
        a, b = definite(generator, *batch, n, n), matrices(generator, *batch, n, count)
        for f in (tnp.linalg.solve, lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True)):
            assert tx.jit(f)(a, b).shape == b.shape
        assert tx.jit(tnp.linalg.cholesky)(a).shape == a.shape
        assert [x.shape for x in tx.jit(lax.linalg.lu)(a)] == [a.shape, a.shape[:-1], a.shape[:-1]]


@pytest.mark.parametrize("dtype", TYPES)
def test_lu_is_that_of_lapack(dtype, generator):
    cases = list(zip((1, 2, 5, 33, 5, 70), (1, 3, 8, 17, 2, 33), BATCHES[:4] * 2, strict=False))
    for n, m, batch in cases[TYPES.index(dtype) // 2 :: 2]:
        a = matrices(generator, *batch, n, m, dtype=dtype)
        lu, pivots, permutation = native(lambda x: tuple(lax.linalg.lu(x)), a)
        k = min(n, m)
        lower = np.tril(lu, -1)[..., :k] + np.eye(n, k, dtype=dtype)
        product = lower @ np.triu(lu)[..., :k, :]
        close(product, np.take_along_axis(a, np.asarray(permutation)[..., None], -2))
        assert (
            np.abs(lower).max(initial=0) <= 1.5
        )  # the largest element, by what LAPACK takes for a modulus, is the pivot
        expected = jax.lax.linalg.lu(a) if np.dtype(dtype).itemsize * (1 + (np.dtype(dtype).kind != "c")) == 8 else None
        if expected is not None:
            np.testing.assert_array_equal(pivots, expected[1])
            np.testing.assert_array_equal(permutation, expected[2])


def test_the_first_of_equal_pivots_is_taken():
    a = np.array([[1, 2, 3], [-4, 5, 6], [4, 1, 1]], np.float32)
    for x in (a, np.tile(a, (20, 1, 1))):
        _, pivots, permutation = native(lambda x: tuple(lax.linalg.lu(x)), x)
        assert (np.asarray(pivots).reshape(-1, 3)[0] == [1, 2, 2]).all()
        np.testing.assert_array_equal(permutation, jax.lax.linalg.lu(x)[2])


def test_singular_and_ill_conditioned_matrices(generator):
    singular = np.zeros((3, 3), np.float32)
    singular[0, 1] = 1
    hilbert = (1 / (np.arange(8)[:, None] + np.arange(8) + 1)).astype(np.float64)
    for a in (singular, np.ones((5, 5), np.float32), np.tile(singular, (20, 1, 1)), hilbert):
        lu, _, permutation = native(lambda x: tuple(lax.linalg.lu(x)), a)
        k = a.shape[-1]
        product = (np.tril(lu, -1) + np.eye(k, dtype=a.dtype)) @ np.triu(lu)
        close(product, np.take_along_axis(a, np.asarray(permutation)[..., None], -2))
    x = native(tnp.linalg.solve, hilbert, hilbert.sum(1))
    close(hilbert @ np.asarray(x), hilbert.sum(1))
    assert not np.isfinite(native(tnp.linalg.solve, singular, np.ones(3, np.float32))).any()


@pytest.mark.parametrize("n", [2, 12])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 0.0])
def test_what_is_not_positive_definite(n, value, generator):
    """As LAPACK has it: NaN for the matrix, but not for its neighbours."""
    good = definite(generator, n, n)
    for place in ((0, 0), (1, 1), (n - 1, n - 1), (n - 1, 0)):
        bad = good.copy()
        bad[place] = value if place[0] == place[1] else value * 100
        for lower in (True, False):
            given = np.stack([good, bad if lower else bad.T, good])
            found = native(lambda x, lower=lower: linear_algebra.cholesky(x, lower=lower), given)
            expected = np.asarray(linear_algebra.cholesky(exact(given), lower=lower))
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            close(np.nan_to_num(found, posinf=1, neginf=1), np.nan_to_num(expected, posinf=1, neginf=1))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_in_systems(value, generator):
    for n in (2, 12):
        a, b = definite(generator, n, n), matrices(generator, n, 2)
        for matrix, place in itertools.product((a, b), ((0, 0), (1, 1), (n - 1, 0))):
            x, y = (z.copy() for z in (a, b))
            (x if matrix is a else y)[place] = value
            for left, lower in itertools.product((True, False), repeat=2):
                f = partial(lax.linalg.triangular_solve, left_side=left, lower=lower)
                sides = y if left else y.T
                desired = np.asarray(f(tnp.asarray(x), tnp.asarray(sides)))
                np.testing.assert_array_equal(np.isfinite(native(f, x, sides)), np.isfinite(desired))
            assert np.isfinite(native(tnp.linalg.solve, x, y)).sum() <= n * 2 - (1 if value != value else 0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_has_no_factors(value, generator):
    """In one matrix; its neighbour has them."""
    for n in (3, 30):
        a = np.stack([definite(generator, n, n), np.eye(n, dtype=np.float32)])
        a[0, n // 2, 0] = a[0, 0, n // 2] = value
        for f in (
            lambda x: tuple(factorizations.svd(x, full_matrices=False)),
            lambda x: tuple(factorizations.eigh(x, lower=True)),
        ):
            for results in (native(f, a), f(exact(a))):
                for x in results:
                    assert np.isnan(np.asarray(x)[0]).any()
                    assert np.isfinite(np.asarray(x)[1]).all()


@pytest.mark.parametrize("dtype", TYPES[::3])
def test_orthogonal_factors_values_and_vectors(dtype, generator):
    for n, batch in zip((1, 5, 17), BATCHES[1:4], strict=True):
        a = definite(generator, *batch, n, n, dtype=dtype)
        vectors, values = native(lambda x: tuple(factorizations.eigh(x, lower=True)), a)
        close(np.asarray(vectors) * np.asarray(values)[..., None, :], a @ np.asarray(vectors), 1000)
        alone = native(lambda x: factorizations.eigh(x, lower=False)[1], a)
        close(alone, np.linalg.eigvalsh(a), 1000)
        for m, full in ((n, n == 5), (n + 3, True), (n + 3, False), (max(1, n - 2), n > 5)):
            b = matrices(generator, *batch, n, m, dtype=dtype)
            q, r = native(lambda x, full=full: tuple(factorizations.qr(x, full_matrices=full)), b)
            close(np.asarray(q) @ np.asarray(r), b, 1000)
            close(adjoint(q) @ np.asarray(q), np.broadcast_to(np.eye(q.shape[-1]), (*batch, *q.shape[-1:] * 2)), 1000)
            assert np.all(np.tril(r, -1) == 0)
            u, s, vh = native(lambda x, full=full: tuple(factorizations.svd(x, full_matrices=full)), b)
            k = min(n, m)
            close((np.asarray(u)[..., :k] * np.asarray(s)[..., None, :]) @ np.asarray(vh)[..., :k, :], b, 1000)
            close(adjoint(u) @ np.asarray(u), np.broadcast_to(np.eye(u.shape[-1]), (*batch, *u.shape[-1:] * 2)), 1000)
            alone = native(lambda x, full=full: factorizations.svd(x, full_matrices=full)[1], b)
            close(alone, np.linalg.svd(b, compute_uv=False), 1000)


def test_only_the_results_that_are_taken(generator):
    """Each result alone is what it is among the others."""
    a = matrices(generator, 3, 5, 4)
    for f in (
        lax.linalg.lu,
        lambda x: factorizations.qr(x, full_matrices=True),
        lambda x: factorizations.svd(x, full_matrices=True),
    ):
        together = tx.jit(lambda x, f=f: tuple(f(x)))(a)
        for k, whole in enumerate(together):
            close(native(lambda x, f=f, k=k: f(x)[k], a), np.asarray(whole))


def test_results_do_not_depend_on_threads(generator):
    a, b = definite(generator, 300, 20, 20), matrices(generator, 300, 20, 5)

    def f(a, b):
        return (
            tnp.linalg.cholesky(a),
            tnp.linalg.solve(a, b),
            *tnp.linalg.eigh(a),
            *tnp.linalg.svd(a),
            *tnp.linalg.qr(a),
        )

    results = []
    for count in (1, 2, 3):
        with num_threads(count):
            results.append([np.asarray(x) for x in tx.jit(f)(a, b)])
    for others in results[1:]:
        for x, y in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(x, y)


def test_operands_are_left_as_they_are(generator):
    """What is factored in place may be needed after it."""
    a, b = definite(generator, 5, 5), matrices(generator, 5, 2)

    def f(a, b):
        c, d = a * 2, b + 1
        factor = linear_algebra.cholesky(c, lower=True)
        solved = lax.linalg.triangular_solve(factor, d, left_side=True, lower=True)
        return factor, solved, c, d, a, b

    factor, solved, *others = native(f, a, b)
    for found, desired in zip(others, (a * 2, b + 1, a, b), strict=True):
        np.testing.assert_array_equal(found, desired)
    close(np.asarray(factor) @ np.asarray(solved), b + 1)


# --- inside transformations and loops ---------------------------------------------------------------------------------


def both(f, *arguments):
    """The function of `numpy` and `lax`, compiled here and by JAX."""
    found = tx.jit(f(tx, tnp, lax))(*arguments)
    desired = jax.jit(f(jax, jnp, jax.lax))(*arguments)
    for x, y in zip(tx.tree_util.tree_leaves(found), jax.tree.leaves(desired), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4)


def test_derivatives_of_small_systems(generator):
    n = 9
    a, b = definite(generator, 6, n, n), matrices(generator, 6, n, 2)
    tangents = matrices(generator, 6, n, n), matrices(generator, 6, n, 2)

    def functions(numpy):
        yield lambda a, b: numpy.linalg.solve(a, b)
        yield lambda a, b: numpy.linalg.inv(a) @ b
        yield lambda a, b: numpy.linalg.cholesky(a) @ b
        yield lambda a, b: numpy.linalg.slogdet(a)[1]
        yield lambda a, b: numpy.linalg.eigh(a)[0]

    for k in range(5):

        def gradients(xla, numpy, lax, k=k):
            f = list(functions(numpy))[k]
            return xla.grad(lambda a, b: numpy.sin(f(a, b)).sum(), (0, 1))

        def tangent(xla, numpy, lax, k=k):
            return lambda a, b, s, t: xla.jvp(list(functions(numpy))[k], (a, b), (s, t))

        both(gradients, a, b)
        both(tangent, a, b, *tangents)


def test_systems_under_vmap(generator):
    a, b = definite(generator, 6, 3, 3), matrices(generator, 6, 3, 2)
    both(lambda xla, numpy, lax: xla.vmap(numpy.linalg.solve), a, b)
    both(lambda xla, numpy, lax: xla.vmap(numpy.linalg.solve, (0, None)), a, b[0])
    both(lambda xla, numpy, lax: xla.vmap(numpy.linalg.solve, (None, 0)), a[0], b)
    both(lambda xla, numpy, lax: xla.vmap(numpy.linalg.solve, (None, 2), 1), a[0], np.moveaxis(b, 0, 2))


def test_systems_are_factored_once(generator):
    """The derivative of a solution, and that of the derivative, share the factors."""
    a, b = definite(generator, 4, 4), matrices(generator, 4, 1)

    def value(a):
        return tnp.sum(tnp.sin(tnp.linalg.solve(a, b)))

    for f in (tx.grad(value), tx.grad(lambda a: tnp.sum(tx.grad(value)(a) ** 2))):
        steps = tx.jit(f).lower(a).compile().report().steps
        assert [step.kind for step in steps].count("LuDecomposition") == 1
    both(lambda xla, numpy, lax: xla.hessian(lambda b: (numpy.linalg.solve(a, b) ** 3).sum()), b)


def test_kalman_filter_by_scan(generator):
    z = matrices(generator, 40, 2)
    dynamics = np.eye(4, dtype=np.float32) + 0.1 * np.eye(4, k=2, dtype=np.float32)
    seen = np.eye(2, 4, dtype=np.float32)

    def f(xla, numpy, lax):
        def run(z):
            def step(carry, z):
                x, p = carry
                x, p = dynamics @ x, dynamics @ p @ dynamics.T + 0.01 * numpy.eye(4)
                gain = numpy.linalg.solve(seen @ p @ seen.T + 0.1 * numpy.eye(2), seen @ p).T
                x, p = x + gain @ (z - seen @ x), p - gain @ seen @ p
                return (x, p), x

            return lax.scan(step, (numpy.zeros(4), numpy.eye(4)), z)[1]

        return run

    both(f, z)
    both(lambda xla, numpy, lax: xla.grad(lambda z: (f(xla, numpy, lax)(z) ** 2).sum()), z)
    both(lambda xla, numpy, lax: xla.vmap(f(xla, numpy, lax)), np.stack([z, 2 * z, -z]))
    assert "host call" not in tx.jit(f(tx, tnp, lax)).lower(z).compile().as_text()


def test_newton_by_solve_in_a_loop(generator):
    a, b = matrices(generator, 5, 5) + 5 * np.eye(5, dtype=np.float32), matrices(generator, 5)

    def f(xla, numpy, lax):
        def step(_, x):
            return x - numpy.linalg.solve(a + numpy.diag(3 * x * x), a @ x + x**3 - b)

        return lambda x: lax.fori_loop(0, 12, step, x)

    both(f, np.zeros(5, np.float32))
    assert "host call" not in tx.jit(f(tx, tnp, lax)).lower(np.zeros(5, np.float32)).compile().as_text()


def test_kernels_as_python(generator):
    """The source of a kernel calls LAPACK, too."""
    a = definite(generator, 12, 12).astype(np.complex64)
    (kernel,) = tx.jit(lambda x: linear_algebra.cholesky(x, lower=True)).lower(a).compile().kernels[-1:]
    names: dict = {}
    exec(kernel.source, names)
    out = a.ravel().copy()
    names["cholesky"](out, 0, 1)
    close(out.reshape(12, 12), np.linalg.cholesky(a))
