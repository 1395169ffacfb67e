"""Samplers of blackjax."""

import blackjax
import jax
import jax.numpy as jnp


def density(x):
    return -0.5 * jnp.sum((x - jnp.array([1.0, -1.0])) ** 2 / jnp.array([1.0, 0.25]))


def sampled(kernel, state, steps=50):
    def one(state, key):
        state, info = kernel.step(key, state)
        return state, state.position

    return jax.lax.scan(one, state, jax.random.split(jax.random.PRNGKey(1), steps))[1]


def samplers():
    start = jnp.zeros(2)
    kernels = {
        "hmc": blackjax.hmc(density, 0.2, jnp.ones(2), 5),
        "nuts": blackjax.nuts(density, 0.2, jnp.ones(2)),
        "mala": blackjax.mala(density, 0.1),
        "rmh": blackjax.rmh(density, blackjax.mcmc.random_walk.normal(jnp.ones(2))),
    }
    return {name: sampled(k, k.init(start), 20).shape for name, k in kernels.items()}


def hamiltonian():
    kernel = blackjax.hmc(density, 0.2, jnp.ones(2), 5)
    return sampled(kernel, kernel.init(jnp.zeros(2)), 3)


def window_adaptation():
    warmup = blackjax.window_adaptation(blackjax.nuts, density)
    (state, parameters), _ = warmup.run(jax.random.PRNGKey(0), jnp.zeros(2), num_steps=100)
    positions = sampled(blackjax.nuts(density, **parameters), state, 200)
    return jnp.abs(positions.mean(0) - jnp.array([1.0, -1.0])) < 0.5


def sequential_monte_carlo():
    smc = blackjax.adaptive_tempered_smc(
        lambda x: -0.5 * jnp.sum(x**2),
        density,
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        blackjax.smc.extend_params({"step_size": 0.1, "inverse_mass_matrix": jnp.eye(2), "num_integration_steps": 5}),
        blackjax.smc.resampling.systematic,
        0.5,
        num_mcmc_steps=2,
    )
    state = smc.init(jax.random.normal(jax.random.PRNGKey(0), (50, 2)))
    state, _ = jax.jit(smc.step)(jax.random.PRNGKey(1), state)
    return state.particles.shape


def gaussian_priors():
    covariance = jnp.eye(2)
    slices = blackjax.elliptical_slice(density, mean=jnp.zeros(2), cov=covariance)
    gradients = blackjax.mgrad_gaussian(density, mean=jnp.zeros(2), covariance=covariance, step_size=0.1)
    return [sampled(kernel, kernel.init(jnp.zeros(2)), 3) for kernel in (slices, gradients)]


def stochastic_gradients():
    data = jax.random.normal(jax.random.PRNGKey(2), (100, 2)) + jnp.array([1.0, -1.0])
    estimate = blackjax.sgmcmc.gradients.grad_estimator(density, lambda x, y: -0.5 * jnp.sum((x - y) ** 2), 100)
    positions = []
    for kernel in (blackjax.sgld(estimate), blackjax.sghmc(estimate, 4)):
        position = kernel.init(jnp.zeros(2))
        for key in jax.random.split(jax.random.PRNGKey(3), 3):
            position = jax.jit(kernel.step)(key, position, data[:20], 1e-3)
        positions.append(position)
    return positions


PROGRAMS = [
    samplers,
    hamiltonian,
    window_adaptation,
    sequential_monte_carlo,
    gaussian_priors,
    stochastic_gradients,
]
