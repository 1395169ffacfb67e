"""Solvers, minimization, interpolation, cosine transforms and differential equations, against JAX and SciPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.ode
import jax.numpy as jnp
import jax.scipy.interpolate
import jax.scipy.ndimage
import numpy as np
import pytest
import scipy.fft
import scipy.linalg

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.experimental.ode import odeint
from tinyxla.scipy import fft, integrate, interpolate, linalg, ndimage, optimize, sparse

RANDOM = np.random.default_rng(0)
A, B, POINTS = (RANDOM.normal(size=(12, 12)).astype(np.float32) for _ in range(3))
POSITIVE = A @ A.T + 12 * np.eye(12, dtype=np.float32)
RIGHT = A[0] + B[0]


def close(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_iterative_solvers(name: str) -> None:
    mine = getattr(sparse.linalg, name)
    matrix = POSITIVE if name == "cg" else A + 9 * np.eye(12, dtype=np.float32)
    near = np.diag(1 / np.diag(matrix))
    for options in ({}, {"M": near}, {"x0": RIGHT}):
        close(matrix @ np.asarray(tx.jit(lambda b, o=options: mine(matrix, b, tol=1e-6, **o)[0])(RIGHT)), RIGHT)
    turned = matrix + 1j * (B - B.T if name == "cg" else B)
    close(turned @ np.asarray(mine(turned, RIGHT * 1j, tol=1e-6)[0]), RIGHT * 1j)
    both = tx.vmap(lambda b: mine(matrix, b)[0])(np.stack([RIGHT, 2 * RIGHT]))
    close(both @ matrix.T, np.stack([RIGHT, 2 * RIGHT]))
    tree = mine(lambda x: {"a": 2 * x["a"], "b": 4 * x["b"]}, {"a": np.ones(2), "b": np.float32(8)})[0]
    close(tree["a"], [0.5, 0.5])
    by_matrix, by_right = tx.grad(lambda m, b: (mine(m, b, tol=1e-7)[0] ** 2).sum(), (0, 1))(matrix, RIGHT)
    x = np.linalg.solve(matrix, RIGHT)
    back = np.linalg.solve(matrix.T, 2 * x)
    close(by_right, back)
    close(by_matrix, -np.outer(back, x))
    with pytest.raises(ShapeError, match=r"takes a square matrix or a function, but got a shape \(2, 3\)"):
        mine(np.ones((2, 3)), np.ones(3))
    with pytest.raises(ShapeError, match="x0 must have the shapes of b"):
        mine(matrix, RIGHT, np.ones(3))
    with pytest.raises(ArgumentError, match="solve_method must be"):
        sparse.linalg.gmres(matrix, RIGHT, solve_method="direct")


def test_gmres_begins_again_and_stops() -> None:
    matrix = A + 9 * np.eye(12, dtype=np.float32)
    close(matrix @ np.asarray(sparse.linalg.gmres(matrix, RIGHT, restart=4, tol=1e-6)[0]), RIGHT)
    few = sparse.linalg.cg(POSITIVE, RIGHT, maxiter=1)[0]
    close(few, RIGHT * (RIGHT @ RIGHT) / (RIGHT @ POSITIVE @ RIGHT))
    close(sparse.linalg.bicgstab(np.eye(3), np.zeros(3))[0], np.zeros(3))


def _rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def test_minimize() -> None:
    for start in (np.zeros(2), np.full(5, -1.0), np.array([3.0, 3.0])):
        found = tx.jit(lambda x: optimize.minimize(_rosenbrock, x, method="BFGS", tol=1e-3))(start)
        assert found.success
        assert found.nfev >= found.nit > 5
        close(found.x, np.ones(start.size), 1e-3)
    hessian = POSITIVE[:3, :3]
    bowl = optimize.minimize(lambda x: x @ hessian @ x / 2, np.ones(3), method="BFGS", tol=1e-6)
    close(bowl.hess_inv @ hessian, np.eye(3), 0.1)
    few = optimize.minimize(
        lambda x, c: (c * x**4).sum(), np.ones(3), (np.arange(1.0, 4),), method="bfgs", options={"maxiter": 3}
    )
    assert (few.nit, few.status, few.success) == (3, 1, False)
    starts = np.stack([np.zeros(2), np.full(2, 2.0)])
    close(tx.vmap(lambda x: optimize.minimize(_rosenbrock, x, method="BFGS", tol=1e-3).x)(starts), 1.0, 1e-3)
    with pytest.raises(ArgumentError, match=r"method must be 'BFGS' or .* and options among gtol"):
        optimize.minimize(_rosenbrock, np.ones(2), method="CG")
    with pytest.raises(ShapeError, match="x0 must be a vector"):
        optimize.minimize(_rosenbrock, np.ones((2, 2)), method="BFGS")


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
def test_map_coordinates(mode: str) -> None:
    places = [RANDOM.uniform(-9, 12, (6, 2)).astype(np.float32) for _ in range(2)]
    theirs = jax.scipy.ndimage.map_coordinates
    whole = (10 * A[:5, :4]).astype(np.int32)
    cases = ((A[:5, :4], 1), (whole, 0), (whole, 1))

    @jax.jit
    def by_jax(c: Any) -> tuple[Any, Any]:
        values = [theirs(jnp.asarray(x), c, order, mode, 2.0) for x, order in cases]
        return values, jax.grad(lambda c: theirs(jnp.asarray(A), c, 1, mode).sum())(c)

    values, expected = by_jax(places)
    for (x, order), wanted in zip(cases, values, strict=True):
        close(ndimage.map_coordinates(x, places, order, mode, 2.0), wanted)
    slopes = tx.grad(lambda c: ndimage.map_coordinates(A, c, 1, mode).sum())(places)
    for found, wanted in zip(slopes, expected, strict=True):
        close(found, wanted)
    with pytest.raises(ArgumentError, match="order must be 0 or 1"):
        ndimage.map_coordinates(A, places, 3)
    with pytest.raises(ShapeError, match="coordinates for 2 dimensions"):
        ndimage.map_coordinates(A, places[:1], 1)


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_grid_interpolation(method: str) -> None:
    grid = (np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0, 5.0]))
    points = RANDOM.uniform(-1, 6, (20, 2)).astype(np.float32)
    cases = list(itertools.product((A[:3, :4], A[:6, :4].reshape(3, 4, 2)), (np.nan, None, 1.0)))

    @jax.jit
    def by_jax(points: Any) -> list[Any]:
        of_jax = jax.scipy.interpolate.RegularGridInterpolator
        functions = [of_jax(grid, jnp.asarray(values), method, fill_value=outside) for values, outside in cases]
        return [(f(points), f(points[0])) for f in functions]

    for (values, outside), (wanted, wanted_alone) in zip(cases, by_jax(points), strict=True):
        mine = interpolate.RegularGridInterpolator(grid, values, method, fill_value=outside)
        close(mine(points), wanted)
        close(mine((points[:, 0], points[:, 1])), wanted)
        alone = mine(points[0])
        assert alone.shape == wanted_alone.shape
        close(alone, wanted_alone)
    line = interpolate.RegularGridInterpolator(grid[:1], A[:3, 0], method)
    close(line(points[:5, 0]), line(points[:5, :1]))
    with pytest.raises(ArgumentError, match="method must be"):
        interpolate.RegularGridInterpolator(grid, A, "cubic")
    with pytest.raises(ShapeError, match="do not fit a grid"):
        interpolate.RegularGridInterpolator(grid, A)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", ["dct", "idct", "dctn", "idctn"])
def test_cosine_transforms(name: str) -> None:
    mine, theirs = getattr(fft, name), getattr(scipy.fft, name)
    for n in (1, 2, 5, 8, 9):
        for norm in (None, "ortho"):
            close(mine(A[:3, :n], norm=norm), theirs(A[:3, :n], norm=norm))
    sizes: Any = {"s": (2, 7)} if name.endswith("n") else {"n": 7, "axis": 0}
    close(tx.jit(lambda x: mine(x, **sizes))(A[:3, :5]), theirs(A[:3, :5], **sizes))
    complex_numbers = A[:3, :5] + 1j * B[:3, :5]
    for norm in (None, "ortho"):
        close(mine(complex_numbers, norm=norm), theirs(complex_numbers, norm=norm))
    close(tx.jvp(mine, (A[:2],), (B[:2],))[1], theirs(B[:2]))
    np.testing.assert_allclose(np.vdot(tx.vjp(mine, A[:2])[1](B[:2])[0], A[:2]), np.vdot(theirs(A[:2]), B[:2]), 1e-3)
    with pytest.raises(ArgumentError, match="type must be 2"):
        mine(A, type=3)


def _oscillator(module: Any) -> Callable[..., Any]:
    return lambda y, t, mu: module.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0] + 0.1 * module.sin(t)])


def test_differential_equations() -> None:
    times, start = np.linspace(0, 10, 40).astype(np.float32), np.array([1.0, 0.5], np.float32)
    options = {"rtol": 1e-6, "atol": 1e-6}

    def mine(y: Any, t: Any, mu: Any) -> Any:
        return odeint(_oscillator(tnp), y, t, mu, **options)

    def theirs(y: Any, t: Any, mu: Any) -> Any:
        return jax.experimental.ode.odeint(_oscillator(jnp), y, t, mu, **options)

    def summed(*p: Any) -> Any:
        path = theirs(*p)
        return (path**2).sum(), path

    wanted, path = jax.jit(jax.grad(summed, (0, 1, 2), has_aux=True))(start, times, 1.5)
    close(mine(start, times, 1.5), path, 1e-3)
    slopes = tx.jit(tx.grad(lambda *p: (mine(*p) ** 2).sum(), (0, 1, 2)))(start, times, 1.5)
    for found, expected in zip(slopes, wanted, strict=True):
        close(found, expected, 2e-3)
    moving, turned = tx.jvp(lambda mu: mine(start, times, mu), (1.5,), (1.0,))
    close(2 * np.vdot(moving, turned), wanted[2], 2e-3 * abs(wanted[2]))
    close(tx.vmap(lambda y: mine(y, times[:4], 1.0))(np.stack([start, 2 * start]))[1], mine(2 * start, times[:4], 1.0))
    tree = odeint(lambda y, t: {"a": -y["a"], "b": 2 * y["b"]}, {"a": 1.0, "b": np.ones(2)}, times[:3], **options)
    close(tree["a"], np.exp(-times[:3]))
    close(tree["b"][:, 1], np.exp(2 * times[:3]))
    with pytest.raises(ShapeError, match="func must give what has the shapes of y0, 2 numbers, but gives 3"):
        odeint(lambda y, t: np.ones(3), start, times)


def test_integrals() -> None:
    close(integrate.trapezoid(A, dx=0.5), np.trapezoid(A, dx=0.5))


def test_options_of_scipy() -> None:
    close(linalg.cholesky(POSITIVE, lower=True, check_finite=False), np.linalg.cholesky(POSITIVE))
    close(linalg.inv(POSITIVE, overwrite_a=True) @ POSITIVE, np.eye(12))
    for matrix in (A, A + 1j * B):
        for way in (0, 1, 2):
            found = linalg.lu_solve(linalg.lu_factor(matrix), RIGHT + 0 * matrix[0], way, check_finite=False)
            close([matrix, matrix.T, matrix.conj().T][way] @ np.asarray(found), RIGHT, 1e-3)
    first, upper = linalg.lu(A, permute_l=True)
    close(first @ upper, A)
    with pytest.raises(ArgumentError, match="trans must be 0, 1 or 2"):
        linalg.lu_solve(linalg.lu_factor(A), RIGHT, 3)


def test_roots_of_matrices() -> None:
    close(tx.jit(linalg.sqrtm)(POSITIVE), scipy.linalg.sqrtm(POSITIVE), 1e-3)
    both = np.stack([A, B])
    roots = tx.vmap(linalg.sqrtm)(both)
    close(roots @ roots, both, 1e-3)


def test_tridiagonal_systems() -> None:
    low, middle, high = (v[:, :6].copy() for v in (A[:2], B[:2] + 4, POINTS[:2]))
    low[:, 0] = high[:, -1] = 0
    right = A[:6].reshape(2, 6, 6)
    solve, theirs = tx.lax.linalg.tridiagonal_solve, jax.lax.linalg.tridiagonal_solve
    found = tx.jit(solve)(low, middle, high, right)
    arguments = tuple(v[0] for v in (low, middle, high, right))
    slopes = tx.grad(lambda *v: (solve(*v) ** 2).sum(), (0, 1, 2, 3))(*arguments)

    @jax.jit
    def by_jax(*several: Any) -> tuple[Any, Any]:
        first, second = ([v[k] for v in several] for k in (0, 1))
        slopes = jax.grad(lambda *v: (theirs(*v) ** 2).sum(), (0, 1, 2, 3))(*first)
        return [theirs(*first), theirs(*second)], slopes

    both, wanted = by_jax(low, middle, high, right)
    for k in range(2):
        close(found[k], both[k])
    for found, expected in zip(slopes, wanted, strict=True):
        close(found, expected, 1e-3)
    with pytest.raises(ShapeError, match="must have the shape"):
        solve(low, middle, high[:, :3], right)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_of_a_given_size(name: str) -> None:
    x, y = np.array([3.0, 1.0, 2.0, 3.0], np.float32), np.array([2.0, 5.0, 3.0, 7.0], np.float32)
    all_of_them = getattr(np, name)(x, y)
    for size in (1, 3, 8):
        for fill in (None, 9.0):
            found = tx.jit(lambda x, y, s=size, f=fill: getattr(tnp, name)(x, y, size=s, fill_value=f))(x, y)
            rest = (0 if name == "setdiff1d" else all_of_them[0]) if fill is None else fill
            np.testing.assert_array_equal(found, [*all_of_them, *[rest] * 8][:size])


@pytest.mark.parametrize("name", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets_of_a_given_size_keep_nan_as_numpy_does(name: str) -> None:
    x, y = np.array([np.nan, 1.0, np.nan, 2.0], np.float32), np.array([2.0, np.nan, 3.0], np.float32)
    expected = getattr(np, name)(x, y)
    found = tx.jit(lambda x, y: getattr(tnp, name)(x, y, size=6, fill_value=9.0))(x, y)
    np.testing.assert_array_equal(found, [*expected, *[9.0] * 6][:6])
