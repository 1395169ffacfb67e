"""Differential equations of diffrax: a Lorenz trajectory, its gradient by each adjoint, an event, a neural ODE."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import optimistix as optx


def lorenz_field(t, y, args):
    a, b, c = y
    sigma, rho, beta = args
    return jnp.stack([sigma * (b - a), a * (rho - c) - b, a * b - beta * c])


PARAMETERS = jnp.array([10.0, 28.0, 8 / 3])
START = jnp.array([1.0, 0.0, 0.0])


def lorenz():
    @jax.jit
    def solve(start, parameters):
        return dfx.diffeqsolve(
            dfx.ODETerm(lorenz_field),
            dfx.Tsit5(),
            0,
            4,
            0.01,
            start,
            parameters,
            saveat=dfx.SaveAt(ts=jnp.linspace(0, 4, 100)),
            stepsize_controller=dfx.PIDController(1e-5, 1e-5),
        ).ys

    return lambda: solve(START, PARAMETERS)


def gradient(adjoint):
    @jax.jit
    @jax.grad
    def solve(parameters):
        return dfx.diffeqsolve(
            dfx.ODETerm(lorenz_field), dfx.Tsit5(), 0, 0.5, 0.01, START, parameters, adjoint=adjoint, max_steps=64
        ).ys.sum()

    return lambda: solve(PARAMETERS)


def recursive_adjoint():
    return gradient(dfx.RecursiveCheckpointAdjoint())


def direct_adjoint():
    return gradient(dfx.DirectAdjoint())


def backsolve_adjoint():
    return gradient(dfx.BacksolveAdjoint())


def event():
    falling = dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -args]))
    ground = dfx.Event(lambda t, y, args, **_: y[0], optx.Newton(1e-5, 1e-5))

    @jax.jit
    def fall(gravity):
        start = jnp.array([10.0, 0.0])
        solution = dfx.diffeqsolve(falling, dfx.Tsit5(), 0, jnp.inf, 0.1, start, gravity, event=ground)
        return solution.ts, solution.ys

    return lambda: fall(9.8)


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.mlp(y)


def neural_ode():
    field = Field(eqx.nn.MLP(2, 2, 32, 2, activation=jax.nn.softplus, key=jax.random.key(0)))
    times = jnp.linspace(0, 3, 20)
    starts = jax.random.uniform(jax.random.key(1), (32, 2), minval=0.5, maxval=1.5)
    targets = jax.vmap(lambda y: jnp.stack([y[0] * jnp.cos(times), y[1] * jnp.sin(times)], 1))(starts)
    optimizer = optax.adam(1e-3)

    @eqx.filter_value_and_grad
    def loss(field):
        def solve(start):
            return dfx.diffeqsolve(
                dfx.ODETerm(field),
                dfx.Tsit5(),
                0,
                3,
                0.1,
                start,
                saveat=dfx.SaveAt(ts=times),
                stepsize_controller=dfx.PIDController(1e-3, 1e-6),
            ).ys

        return jnp.mean((jax.vmap(solve)(targets[:, 0]) - targets) ** 2)

    @eqx.filter_jit
    def step(field, state):
        value, gradient = loss(field)
        updates, state = optimizer.update(gradient, state)
        return eqx.apply_updates(field, updates), state, value

    def run():
        model, state, values = field, optimizer.init(eqx.filter(field, eqx.is_array)), []
        for _ in range(20):
            model, state, value = step(model, state)
            values.append(value)
        return values

    return run


WORKLOADS = [lorenz, recursive_adjoint, direct_adjoint, backsolve_adjoint, event, neural_ode]
