"""Optimal transport by ott-jax."""

import jax
import jax.numpy as jnp
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import implicit_differentiation, sinkhorn
from ott.tools import sinkhorn_divergence

X = jax.random.normal(jax.random.key(0), (40, 3))
Y = jax.random.normal(jax.random.key(1), (50, 3)) + 1


def transport(x, **options):
    geometry = pointcloud.PointCloud(x, Y, epsilon=0.1)
    return sinkhorn.Sinkhorn(threshold=1e-4, **options)(linear_problem.LinearProblem(geometry))


def plans_and_implicit_gradients():
    found = jax.jit(transport)(X)
    implicit = implicit_differentiation.ImplicitDiff()
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(transport(x, implicit_diff=implicit).matrix ** 2)))
    return found.reg_ot_cost, found.matrix, found.n_iters, found.converged, gradient(X)


def divergences():
    cost = lambda x: sinkhorn_divergence.sinkhorn_divergence(pointcloud.PointCloud, x, Y, epsilon=0.1)[0]
    return jax.jit(jax.value_and_grad(cost))(X)


PROGRAMS = [plans_and_implicit_gradients, divergences]
