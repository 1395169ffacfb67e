"""TensorFlow Probability's JAX substrate."""

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

tfd, tfb = tfp.distributions, tfp.bijectors
KEY = jax.random.PRNGKey(0)


def distributions():
    made = {
        "normal": tfd.Normal(0.0, 1.0),
        "gamma": tfd.Gamma(2.0, 1.0),
        "beta": tfd.Beta(2.0, 3.0),
        "mvn": tfd.MultivariateNormalTriL(jnp.zeros(2), jnp.eye(2)),
        "transformed": tfd.TransformedDistribution(tfd.Normal(0.0, 1.0), tfb.Sigmoid()),
    }
    # Of this one the shape alone: it draws float64, which JAX narrows to float32 unless enable_x64 is set.
    student = tfd.StudentT(3.0, 0.0, 1.0).sample(5, seed=KEY)
    return {name: d.log_prob(d.sample(5, seed=KEY)) for name, d in made.items()}, student.shape


def bijectors():
    chain = tfb.Chain([tfb.Shift(1.0), tfb.Scale(2.0), tfb.Softplus()])
    x = jnp.arange(3.0)
    return chain.forward(x), chain.inverse(chain.forward(x)), chain.forward_log_det_jacobian(x, 0)


def hamiltonian():
    kernel = tfp.mcmc.HamiltonianMonteCarlo(lambda x: -0.5 * jnp.sum(x**2), step_size=0.2, num_leapfrog_steps=3)
    states = tfp.mcmc.sample_chain(20, jnp.zeros(2), kernel=kernel, trace_fn=None, seed=KEY)
    return states.shape


PROGRAMS = [distributions, bijectors, hamiltonian]
