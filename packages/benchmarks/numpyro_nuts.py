"""The No-U-Turn sampler of numpyro: eight schools, a hierarchical linear regression, a logistic regression."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.infer import MCMC, NUTS

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(errors, effects):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    scale = numpyro.sample("scale", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(errors)):
        offset = numpyro.sample("offset", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mean + scale * offset, errors), obs=effects)


def regression(group, x, y):
    groups = 12
    intercepts = numpyro.sample("intercepts", dist.Normal(0, 10))
    slopes = numpyro.sample("slopes", dist.Normal(0, 10))
    between = numpyro.sample("between", dist.HalfNormal(5).expand([2]).to_event(1))
    with numpyro.plate("groups", groups):
        a = numpyro.sample("a", dist.Normal(0, 1))
        b = numpyro.sample("b", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.HalfNormal(5))
    line = intercepts + between[0] * a[group] + (slopes + between[1] * b[group]) * x
    numpyro.sample("y", dist.Normal(line, noise), obs=y)


def logistic(x, y):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), 1).to_event(1))
    bias = numpyro.sample("bias", dist.Normal(0, 5))
    numpyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)


def sampler(model, *data):
    mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=500, progress_bar=False)

    def run():
        mcmc.run(random.key(0), *data)
        return mcmc.get_samples()

    return run


def eight_schools():
    return sampler(schools, ERRORS, EFFECTS)


def hierarchical_regression():
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(12), 20)
    x = generator.normal(size=240).astype(np.float32)
    a, b = generator.normal(1, 0.5, size=12), generator.normal(-2, 0.7, size=12)
    y = (a[group] + b[group] * x + 0.3 * generator.normal(size=240)).astype(np.float32)
    return sampler(regression, group, x, y)


def logistic_regression():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 10)).astype(np.float32)
    y = generator.random(500) < 1 / (1 + np.exp(-x @ generator.normal(size=10)))
    return sampler(logistic, x, y.astype(np.int32))


WORKLOADS = [eight_schools, hierarchical_regression, logistic_regression]
