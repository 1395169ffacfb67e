"""Inference with numpyro."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.module import random_flax_module
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

SIGMA = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SCHOOLS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def eight_schools():
    def model():
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("J", 8):
            with numpyro.handlers.reparam(config={"theta": numpyro.infer.reparam.TransformReparam()}):
                theta = numpyro.sample(
                    "theta",
                    dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau)),
                )
            numpyro.sample("obs", dist.Normal(theta, SIGMA), obs=SCHOOLS)

    mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0))
    samples = mcmc.get_samples()
    return {name: (abs(float(x.mean())) < 50, x.shape) for name, x in samples.items()}


def logistic_regression():
    x = jax.random.normal(jax.random.PRNGKey(0), (50, 3))
    y = (x @ jnp.array([1.0, -2.0, 0.5]) > 0).astype(int)

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), jnp.ones(3)).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=50, num_samples=50, num_chains=2, chain_method="vectorized", progress_bar=False)
    mcmc.run(jax.random.PRNGKey(1), x, y)
    samples = mcmc.get_samples()
    predictive = Predictive(model, samples)(jax.random.PRNGKey(2), x)
    return samples["w"].shape, bool(jnp.sign(samples["w"].mean(0))[1] < 0), predictive["y"].shape


def variational():
    def model(x):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 1))
        with numpyro.plate("n", 20):
            numpyro.sample("x", dist.Normal(mu, sigma), obs=x)

    data = 3 + jax.random.normal(jax.random.PRNGKey(0), (20,))
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(jax.random.PRNGKey(1), 200, data, progress_bar=False)
    return result.params


def distributions():
    key = jax.random.PRNGKey(3)
    made = {
        "normal": dist.Normal(1.0, 2.0),
        "gamma": dist.Gamma(2.0, 3.0),
        "beta": dist.Beta(2.0, 3.0),
        "dirichlet": dist.Dirichlet(jnp.ones(3)),
        "student": dist.StudentT(3.0),
        "mvn": dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2) * 2),
        "lkj": dist.LKJCholesky(3, 1.0),
        "poisson": dist.Poisson(3.0),
        "categorical": dist.Categorical(logits=jnp.arange(3.0)),
        "binomial": dist.Binomial(10, 0.3),
        "truncated": dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
        "mixture": dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), dist.Normal(jnp.array([0.0, 3.0]), 1.0)),
    }
    return {name: (d.sample(key, (3,)), d.log_prob(d.sample(key, (3,)))) for name, d in made.items()}


def bayesian_network():
    """The parameters of the network are drawn in the order of a dict that Flax makes."""

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.tanh(nn.Dense(4)(x)))[..., 0]

    def model(x, y=None):
        network = random_flax_module("network", Network(), prior=dist.Normal(0, 1), input_shape=(2,))
        numpyro.sample("y", dist.Normal(network(x), 0.3), obs=y)

    x = jax.random.normal(jax.random.PRNGKey(0), (30, 2))
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adagrad(0.05), Trace_ELBO())
    result = svi.run(jax.random.PRNGKey(1), 10, x, jnp.sin(x[:, 0]), progress_bar=False)
    return result.losses, result.params


PROGRAMS = [bayesian_network, eight_schools, logistic_regression, variational, distributions]
