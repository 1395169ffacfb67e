"""Linear algebra: values and gradients against JAX, what is not read, what has no solution, and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.errors import AttributeValueError, DTypeError, ShapeError
from tinyxla.ops.linalg import linear_algebra
from tinyxla.tracing import wrap

REAL, COMPLEX = np.float32, np.complex64


def matrices(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any = REAL) -> Any:
    x = generator.normal(size=shape)
    return (x + 1j * generator.normal(size=shape) if dtype == COMPLEX else x).astype(dtype)


def positive(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any = REAL) -> Any:
    x = matrices(generator, shape, dtype)
    return x @ np.swapaxes(x.conj(), -1, -2) + shape[-1] * np.eye(shape[-1], dtype=dtype)


def close(found: Any, expected: Any, tolerance: float = 2e-4, what: str = "") -> None:
    expected = np.asarray(expected)
    assert np.shape(found) == expected.shape, what
    size = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, tolerance, tolerance * size, err_msg=what)


def same_with_gradients(
    ours: Callable[..., Any], theirs: Callable[..., Any], *operands: Any, twice: bool = True
) -> None:
    """Values, first and second derivatives, compiled and not."""

    def loss(lib: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def scalar(*xs: Any) -> Any:
            y = function(*xs)
            return (lib.abs(y) ** 2 + lib.sin(y).real).sum()

        return scalar

    here, there = loss(jnp, ours), loss(jax.numpy, theirs)
    places = tuple(range(len(operands)))

    def squared(grad: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: sum((g.real**2).sum() for g in grad(function, places)(*xs))

    @jax.jit
    def by_jax(*xs: Any) -> tuple[Any, ...]:
        second = jax.grad(squared(jax.grad, there), places)(*xs) if twice else ()
        return theirs(*xs), jax.grad(there, places)(*xs), second

    value, first, second = by_jax(*operands)
    close(ours(*operands), value)
    close(tx.jit(ours)(*operands), value)
    for found, expected in zip(tx.grad(here, places)(*operands), first, strict=True):
        close(found, expected, 1e-3)
    if twice:
        for found, expected in zip(tx.jit(tx.grad(squared(tx.grad, here), places))(*operands), second, strict=True):
            close(found, expected, 3e-3)


# --- cholesky ---------------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4)])
def test_cholesky(shape: tuple[int, ...], dtype: Any, generator: np.random.Generator) -> None:
    same_with_gradients(lax.linalg.cholesky, jax.lax.linalg.cholesky, positive(generator, shape, dtype))


@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle_is_read(lower: bool, dtype: Any, generator: np.random.Generator) -> None:
    """Whatever stands in the other one, in values and in derivatives; and that has a cotangent of zero."""
    a = positive(generator, (2, 3, 3), dtype)
    outside = (np.triu if lower else np.tril)(np.ones((3, 3), bool), 1 if lower else -1)
    spoilt = np.where(outside, np.nan, a).astype(dtype)

    def loss(x: Any) -> Any:
        return (jnp.abs(linear_algebra.cholesky(x, lower=lower)) ** 4).sum()

    close(linear_algebra.cholesky(wrap(spoilt), lower=lower), linear_algebra.cholesky(wrap(a), lower=lower), 0)
    for compiled in (lambda f: f, tx.jit):
        gradient = np.asarray(compiled(tx.grad(loss))(spoilt))
        close(gradient, compiled(tx.grad(loss))(a))
        assert (gradient[:, outside] == 0).all()


def test_the_factors_are_factors(generator: np.random.Generator) -> None:
    for dtype in (REAL, COMPLEX):
        a = positive(generator, (2, 5, 5), dtype)
        low, up = (np.asarray(linear_algebra.cholesky(wrap(a), lower=lower)) for lower in (True, False))
        close(low @ np.swapaxes(low.conj(), -1, -2), a)
        close(np.swapaxes(up.conj(), -1, -2) @ up, a)


def test_what_is_not_positive_definite_is_nan_alone() -> None:
    """The others in the batch have factors."""
    a = np.stack([np.eye(2), -np.eye(2), 4 * np.eye(2), [[1, 2], [2, 1]]]).astype(REAL)
    for function in (lax.linalg.cholesky, tx.jit(lax.linalg.cholesky)):
        found = np.asarray(function(a))
        close(found[[0, 2]], np.stack([np.eye(2), 2 * np.eye(2)]))
        lower = np.tril(np.ones((2, 2), bool))
        assert np.isnan(found[[1, 3]][:, lower]).all()


# --- triangular-solve -------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
def test_triangular_solve(left_side: bool, lower: bool, dtype: Any, generator: np.random.Generator) -> None:
    """Few large systems, and many small ones, which are solved in another way."""
    turns = ((False, False), (True, False), (True, True), (False, True))
    shapes = ((3, 3), (2, 2, 2), (5, 2, 2), (3, 2, 3, 3))
    several: list[tuple[Any, ...]] = []
    for number, ((transpose_a, conjugate_a), shape) in enumerate(zip(turns, shapes, strict=True)):
        for unit_diagonal in (False, True):
            options = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal}
            options |= {"transpose_a": transpose_a, "conjugate_a": conjugate_a}
            a = matrices(generator, shape, dtype) + 3 * np.eye(shape[-1], dtype=dtype)
            b = matrices(generator, (*shape[:-1], 2), dtype)
            sides = b if left_side else np.swapaxes(b, -1, -2)
            ours, theirs = (partial(lib.linalg.triangular_solve, **options) for lib in (lax, jax.lax))
            if unit_diagonal == lower and number == left_side + 2 * (dtype == COMPLEX):
                same_with_gradients(ours, theirs, a, sides)
            else:
                several.append((ours, theirs, a, sides))
    wanted = jax.jit(lambda: [theirs(a, sides) for _, theirs, a, sides in several])()
    for (ours, _, a, sides), expected in zip(several, wanted, strict=True):
        close(ours(a, sides), expected)


def test_large_systems(generator: np.random.Generator) -> None:
    a, b = matrices(generator, (40, 40)) / 10 + 3 * np.eye(40, dtype=REAL), matrices(generator, (40, 30))
    for options in ({"lower": True}, {"transpose_a": True}, {"lower": True, "left_side": True, "transpose_a": True}):
        x = b if options.get("left_side") else b.T
        close(lax.linalg.triangular_solve(a, x, **options), jax.lax.linalg.triangular_solve(a, x, **options))


def test_vectors(generator: np.random.Generator) -> None:
    a, b = matrices(generator, (4, 3, 3)) + 3 * np.eye(3, dtype=REAL), matrices(generator, (4, 3))
    for left_side in (True, False):
        ours, theirs = (lib.linalg.triangular_solve(a, b, left_side=left_side) for lib in (lax, jax.lax))
        close(ours, theirs)


def test_what_triangular_solve_does_not_read(generator: np.random.Generator) -> None:
    """The other triangle, and the diagonal of ones."""
    b = matrices(generator, (3, 2))
    for lower in (True, False):
        for unit_diagonal in (True, False):
            a = matrices(generator, (3, 3)) + 3 * np.eye(3, dtype=REAL)
            read = (np.tril if lower else np.triu)(np.ones((3, 3), bool), (-1 if lower else 1) * unit_diagonal)
            spoilt = np.where(read, a, np.nan).astype(REAL)
            options = {"left_side": True, "lower": lower, "unit_diagonal": unit_diagonal}
            solve = partial(lax.linalg.triangular_solve, b=b, **options)
            for many in (1, 6):  # both ways of solving
                close(tx.vmap(solve)(np.stack([spoilt] * many)), np.stack([solve(a)] * many))
            gradient = np.asarray(tx.grad(lambda x, f=solve: (f(x) ** 2).sum())(spoilt))
            assert np.isfinite(gradient).all()
            assert (gradient[~read] == 0).all()


def test_singular_systems_are_no_errors() -> None:
    for many in (1, 5):
        a, b = np.zeros((many, 2, 2), REAL), np.ones((many, 2, 1), REAL)
        found = np.asarray(lax.linalg.triangular_solve(a, b, left_side=True, lower=True))
        assert np.isposinf(found[:, 0]).all()
        assert not np.isfinite(found[:, 1]).any()


def test_one_matrix_for_mapped_sides_is_solved_once(generator: np.random.Generator) -> None:
    """The sides stand next to each other, in any axis; so no copies of the matrix are made."""
    a = matrices(generator, (3, 3)) + 3 * np.eye(3, dtype=REAL)
    b = matrices(generator, (3, 2, 4))
    for left_side in (True, False):
        sides = b if left_side else np.swapaxes(b, 0, 1)
        for axis in (0, 1, 2):
            given = np.moveaxis(sides, 2, axis)
            solve = partial(lax.linalg.triangular_solve, a, left_side=left_side)
            mapped = tx.vmap(solve, axis, axis)(given)
            close(np.moveaxis(np.asarray(mapped), axis, 2), np.stack([solve(sides[..., k]) for k in range(4)], 2))


# --- errors -----------------------------------------------------------------------------------------------------------

M = np.eye(2, dtype=REAL)
OPTIONS = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}


def solved(a: Any, b: Any, **options: Any) -> Any:
    return linear_algebra.triangular_solve(wrap(a), wrap(b), **(OPTIONS | options))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            ShapeError,
            "cholesky: the last two dimensions of a must be equal",
            lambda: linear_algebra.cholesky(wrap(M[:1]), lower=True),
        ),
        (ShapeError, "cholesky: a must be a matrix", lambda: linear_algebra.cholesky(wrap(M[0]), lower=True)),
        (DTypeError, "at least 16 bits, but got s32", lambda: linear_algebra.cholesky(wrap(M.astype(int)), lower=True)),
        (ShapeError, "lax.linalg.cholesky: takes square matrices", lambda: lax.linalg.cholesky(M[:1])),
        (ShapeError, "triangular-solve: the last two dimensions of a", lambda: solved(M[:1], M)),
        (ShapeError, "b must be a matrix", lambda: solved(M, M[0])),
        (DTypeError, "must have one element type", lambda: solved(M, M.astype(np.float64))),
        (ShapeError, "equal batch dimensions", lambda: solved(M, M[None])),
        (ShapeError, "dimension -2 of b must have the size of a", lambda: solved(M, M[:1])),
        (ShapeError, "dimension -1 of b must have the size of a", lambda: solved(M, M[:, :1], left_side=False)),
        (
            AttributeValueError,
            "must be one of NO_TRANSPOSE, TRANSPOSE, ADJOINT, but got 'T'",
            lambda: solved(M, M, transpose_a="T"),
        ),
        (DTypeError, "different element types", lambda: lax.linalg.triangular_solve(M, M.astype(np.complex64))),
    ],
)
def test_errors(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()


def test_routines_are_found_without_importing_the_package_around_them() -> None:
    """That would take longer than many programs; an import of it afterwards is as ever."""
    program = """
import sys, numpy, tinyxla as tx
x = numpy.eye(40, dtype=numpy.float32)
assert (tx.jit(tx.numpy.linalg.cholesky)(x) == x).all()
assert not [name for name in sys.modules if name.startswith("scipy.linalg")]
import scipy.linalg.cython_blas, scipy.linalg.cython_lapack
assert scipy.linalg.cython_lapack.__pyx_capi__ and scipy.linalg.cython_blas.__pyx_capi__
"""
    subprocess.run(
        [sys.executable, "-c", program.replace(".cython_lapack\n", ".cython_lapack, scipy.linalg.cython_blas\n")],
        check=True,
    )


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("batch", [(), (2,)], ids=["alone", "two"])
def test_large_matrices(batch: tuple[int, ...]) -> None:
    """Those that the threads of the BLAS share, and those that each have one."""
    x = positive(np.random.default_rng(0), (*batch, 400, 400)) / 400
    for found, expected in (
        (tx.jit(jnp.linalg.cholesky)(x), np.linalg.cholesky(x)),
        (tx.jit(jnp.linalg.eigvalsh)(x), np.linalg.eigvalsh(x)),
        (tx.jit(jnp.linalg.inv)(x), np.linalg.inv(x)),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_cholesky_by_blocks(dtype: Any, upper: bool) -> None:
    """Of one matrix, whose last block is not whole; and of one that fails in a block in the middle, or in the last."""
    size = 149
    x = positive(np.random.default_rng(1), (size, size), dtype)
    function = tx.jit(lambda x: jnp.linalg.cholesky(x, upper=upper))
    expected = np.linalg.cholesky(x)
    close(function(x), expected.conj().T if upper else expected, 1e-3)
    inside = np.tri(size).T if upper else np.tri(size)
    for place in (60, size - 1):
        failing = x.copy()
        failing[place, place] = -1
        np.testing.assert_array_equal(np.isnan(function(failing)), inside == 1)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("shape", [(149, 149), (130, 200), (200, 130)])
@pytest.mark.parametrize("dtype", [REAL, COMPLEX])
def test_lu_by_blocks(shape: tuple[int, int], dtype: Any) -> None:
    """Of one matrix, also if one of its columns is zero, as LAPACK factors it."""
    x = matrices(np.random.default_rng(2), shape, dtype)
    for given in (x, np.where(np.arange(shape[1]) == 70, 0, x).astype(dtype)):
        factors, pivots, order = map(np.asarray, tx.jit(tx.lax.linalg.lu)(given))
        _, expected, at = jax.lax.linalg.lu(given)
        np.testing.assert_array_equal(pivots, expected)
        np.testing.assert_array_equal(order, at)
        steps = min(shape)
        product = (np.tril(factors[:, :steps], -1) + np.eye(shape[0], steps)) @ np.triu(factors[:steps])
        np.testing.assert_allclose(product, given[order], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("size", "sides"), [(20, 70), (400, 20), (100, 1)])
@pytest.mark.parametrize("left_side", [True, False])
def test_many_right_hand_sides(size: int, sides: int, left_side: bool) -> None:
    """Which are cut into parts of unequal size."""
    generator = np.random.default_rng(3)
    a = np.tril(matrices(generator, (size, size)) / size + np.eye(size)).astype(REAL)
    b = matrices(generator, (size, sides) if left_side else (sides, size))
    found = np.asarray(tx.jit(lambda a, b: lax.linalg.triangular_solve(a, b, left_side=left_side, lower=True))(a, b))
    np.testing.assert_allclose(a @ found if left_side else found @ a, b, rtol=0, atol=1e-3)


def test_symmetric_product() -> None:
    random = np.random.default_rng(0)
    a, c = (random.normal(size=s).astype(np.float32) for s in ((2, 3, 4), (2, 3, 3)))
    for symmetrize in (False, True):
        options = {"alpha": 2.0, "beta": 0.5, "symmetrize_output": symmetrize}
        expected = jax.lax.linalg.symmetric_product(a, c, **options)
        product = partial(lax.linalg.symmetric_product, **options)
        for found in (product(a, c), tx.jit(product)(a, c)):
            assert found.dtype == np.float32
            np.testing.assert_allclose(np.tril(np.asarray(found)), np.tril(np.asarray(expected)), 1e-5, 1e-5)
        if symmetrize:
            np.testing.assert_array_equal(found, np.swapaxes(np.asarray(found), 1, 2))
    with pytest.raises(ShapeError, match=r"c_matrix must have the shape \[..., m, m\]"):
        lax.linalg.symmetric_product(a, a)
