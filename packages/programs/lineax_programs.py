"""Linear systems, root finding and least squares with lineax and optimistix."""

import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx

KEY = jax.random.PRNGKey(0)
M = jax.random.normal(KEY, (6, 6))
SPD = M @ M.T + 6 * jnp.eye(6)
B = jnp.arange(6.0)


def solvers():
    general = lx.MatrixLinearOperator(SPD)
    positive = lx.MatrixLinearOperator(SPD, lx.positive_semidefinite_tag)
    tall = lx.MatrixLinearOperator(jax.random.normal(KEY, (8, 3)))
    return {
        "auto": lx.linear_solve(general, B).value,
        "lu": lx.linear_solve(general, B, lx.LU()).value,
        "qr": lx.linear_solve(tall, jnp.arange(8.0), lx.QR()).value,
        "svd": lx.linear_solve(tall, jnp.arange(8.0), lx.SVD()).value,
        "cholesky": lx.linear_solve(positive, B, lx.Cholesky()).value,
        "cg": lx.linear_solve(positive, B, lx.CG(1e-5, 1e-5)).value,
        "gmres": lx.linear_solve(general, B, lx.GMRES(1e-5, 1e-5)).value,
        "bicgstab": lx.linear_solve(general, B, lx.BiCGStab(1e-5, 1e-5)).value,
        "diagonal": lx.linear_solve(lx.DiagonalLinearOperator(B + 1), B).value,
        "tridiagonal": lx.linear_solve(lx.TridiagonalLinearOperator(B + 5, B[:5], B[:5]), B).value,
    }


def operators():
    function = lx.FunctionLinearOperator(lambda x: SPD @ x, jax.ShapeDtypeStruct((6,), "float32"))
    jacobian = lx.JacobianLinearOperator(lambda x, args: jnp.sin(x) * x, B, None)
    return {
        "function": function.as_matrix(),
        "transpose": function.T.mv(B),
        "jacobian": jacobian.as_matrix(),
        "solve": lx.linear_solve(function, B, lx.LU()).value,
        "sum": (function + lx.IdentityLinearOperator(jax.ShapeDtypeStruct((6,), "float32"))).mv(B),
        "materialised": lx.materialise(jacobian).mv(B),
    }


def gradients():
    def solve(matrix, b):
        return jnp.sum(lx.linear_solve(lx.MatrixLinearOperator(matrix), b).value ** 2)

    return (
        jax.grad(solve, (0, 1))(SPD, B),
        jax.vmap(lambda b: lx.linear_solve(lx.MatrixLinearOperator(SPD), b).value)(jnp.eye(6)),
        jax.jvp(lambda b: solve(SPD, b), (B,), (B,)),
    )


def roots():
    fn = lambda y, args: jnp.tanh(y) * args - 0.5 - 0.1 * y[::-1]
    start = jnp.zeros(3)
    return {
        "newton": optx.root_find(fn, optx.Newton(1e-5, 1e-5), start, jnp.array(2.0)).value,
        "chord": optx.root_find(fn, optx.Chord(1e-5, 1e-5), start, jnp.array(2.0)).value,
        "bisection": optx.root_find(
            lambda y, a: y**3 - a, optx.Bisection(1e-5, 1e-5), 1.0, 2.0, options={"lower": 0.0, "upper": 3.0}
        ).value,
        "fixed point": optx.fixed_point(lambda y, a: jnp.cos(y), optx.FixedPointIteration(1e-5, 1e-5), 1.0).value,
        "gradient": jax.grad(lambda a: optx.root_find(fn, optx.Newton(1e-5, 1e-5), start, a).value.sum())(2.0),
    }


def least_squares():
    residuals = lambda y, args: jnp.array([y[1] - y[0] ** 2, 1 - y[0]]) * args
    start = jnp.array([-1.0, 1.5])
    return {
        "gauss newton": optx.least_squares(residuals, optx.GaussNewton(1e-5, 1e-5), start, 1.0).value,
        "levenberg": optx.least_squares(residuals, optx.LevenbergMarquardt(1e-5, 1e-5), start, 1.0).value,
        "dogleg": optx.least_squares(residuals, optx.Dogleg(1e-5, 1e-5), start, 1.0).value,
        "bfgs": optx.minimise(lambda y, a: jnp.sum(residuals(y, a) ** 2), optx.BFGS(1e-5, 1e-5), start, 1.0).value,
        "lbfgs": optx.minimise(lambda y, a: jnp.sum(residuals(y, a) ** 2), optx.LBFGS(1e-5, 1e-5), start, 1.0).value,
        "nelder mead": optx.minimise(
            lambda y, a: jnp.sum(residuals(y, a) ** 2), optx.NelderMead(1e-4, 1e-4), start, 1.0
        ).value,
    }


PROGRAMS = [solvers, operators, gradients, roots, least_squares]
