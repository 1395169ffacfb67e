"""Solvers of jaxopt."""

import jax
import jax.numpy as jnp
import jaxopt

A = jax.random.normal(jax.random.PRNGKey(0), (20, 5))
B = A @ jnp.arange(5.0) + 0.1


def ridge(params, l2):
    return jnp.mean((A @ params - B) ** 2) + l2 * jnp.sum(params**2)


def minimizers():
    init = jnp.zeros(5)
    return {
        "gradient descent": jaxopt.GradientDescent(ridge, maxiter=50).run(init, l2=0.1).params,
        "lbfgs": jaxopt.LBFGS(ridge, maxiter=20).run(init, l2=0.1).params,
        "bfgs": jaxopt.BFGS(ridge, maxiter=20).run(init, l2=0.1).params,
        "conjugate": jaxopt.NonlinearCG(ridge, maxiter=20).run(init, l2=0.1).params,
        "gauss newton": jaxopt.GaussNewton(lambda p: A @ p - B).run(init).params,
        "levenberg": jaxopt.LevenbergMarquardt(lambda p: A @ p - B).run(init).params,
    }


def proximal():
    lasso = jaxopt.ProximalGradient(jaxopt.objective.least_squares, prox=jaxopt.prox.prox_lasso, maxiter=100)
    projected = jaxopt.ProjectedGradient(ridge, jaxopt.projection.projection_simplex, maxiter=100)
    return lasso.run(jnp.zeros(5), 0.1, (A, B)).params, projected.run(jnp.ones(5) / 5, l2=0.0).params


def implicit_gradients():
    solution = lambda l2: jaxopt.GradientDescent(ridge, maxiter=200, tol=1e-5).run(jnp.zeros(5), l2=l2).params
    root = jaxopt.Bisection(lambda x, a: x**3 - a, 0.0, 3.0)
    return jax.jacobian(solution)(0.1), jax.grad(lambda a: root.run(None, a).params)(2.0)


PROGRAMS = [minimizers, proximal, implicit_gradients]
