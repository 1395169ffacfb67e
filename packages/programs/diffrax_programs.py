"""Differential equations with diffrax."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


def lorenz(t, y, args):
    x, y_, z = y
    return jnp.stack([10 * (y_ - x), x * (28 - z) - y_, x * y_ - 8 / 3 * z])


def solvers():
    found = {}
    start = jnp.array([1.0, 0.0, 0.0])
    for solver in (dfx.Euler(), dfx.Heun(), dfx.Tsit5(), dfx.Dopri5(), dfx.Dopri8(), dfx.Kvaerno3()):
        controller = dfx.ConstantStepSize() if isinstance(solver, dfx.Euler) else dfx.PIDController(1e-5, 1e-5)
        solution = dfx.diffeqsolve(
            dfx.ODETerm(lorenz),
            solver,
            0,
            0.5,
            0.01,
            start,
            stepsize_controller=controller,
            saveat=dfx.SaveAt(ts=jnp.linspace(0, 0.5, 6)),
        )
        found[type(solver).__name__] = solution.ys
    return found


def adjoints():
    def final(scale, adjoint):
        term = dfx.ODETerm(lambda t, y, args: -args * y)
        return dfx.diffeqsolve(term, dfx.Tsit5(), 0, 1, 0.1, jnp.ones(2), args=scale, adjoint=adjoint).ys.sum()

    def implicit(start, scale):  # of a state without axes
        term = dfx.ODETerm(lambda t, y, args: args * jnp.sin(y) - y**2)
        controller = dfx.PIDController(1e-3, 1e-5)
        return dfx.diffeqsolve(term, dfx.Kvaerno3(), 0, 1, 0.1, start, args=scale, stepsize_controller=controller).ys[0]

    kinds = (dfx.RecursiveCheckpointAdjoint(), dfx.DirectAdjoint(), dfx.BacksolveAdjoint())
    explicit = [jax.grad(final)(0.7, adjoint) for adjoint in kinds]
    return [*explicit, jax.value_and_grad(implicit, (0, 1))(jnp.array(0.5), jnp.array(2.0))]


def events():
    event = dfx.Event(lambda t, y, args, **kwargs: y[0], None)
    term = dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -9.8]))
    import optimistix as optx

    event = dfx.Event(lambda t, y, args, **kwargs: y[0], optx.Newton(1e-5, 1e-5))
    solution = dfx.diffeqsolve(term, dfx.Tsit5(), 0, jnp.inf, 0.1, jnp.array([10.0, 0.0]), event=event)
    return solution.ts, solution.ys


def stochastic():
    path = dfx.VirtualBrownianTree(0, 1, tol=1e-3, shape=(2,), key=jax.random.PRNGKey(0))
    terms = dfx.MultiTerm(
        dfx.ODETerm(lambda t, y, args: -y), dfx.ControlTerm(lambda t, y, args: 0.1 * jnp.eye(2), path)
    )
    return dfx.diffeqsolve(terms, dfx.Heun(), 0, 1, 0.05, jnp.ones(2), saveat=dfx.SaveAt(t1=True)).ys


def neural_ode():
    class Field(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, t, y, args):
            return self.mlp(y)

    field = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=jax.random.PRNGKey(0)))
    times = jnp.linspace(0, 1, 8)
    target = jnp.stack([jnp.cos(times), jnp.sin(times)], 1)

    @eqx.filter_value_and_grad
    def loss(model):
        solution = dfx.diffeqsolve(
            dfx.ODETerm(model),
            dfx.Tsit5(),
            0,
            1,
            0.1,
            target[0],
            saveat=dfx.SaveAt(ts=times),
            stepsize_controller=dfx.PIDController(1e-3, 1e-6),
        )
        return jnp.mean((solution.ys - target) ** 2)

    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(field, eqx.is_array))

    @eqx.filter_jit
    def step(model, state):
        value, grads = loss(model)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(model, updates), state, value

    values = []
    for _ in range(10):
        field, state, value = step(field, state)
        values.append(value)
    return values


PROGRAMS = [solvers, adjoints, events, stochastic, neural_ode]
