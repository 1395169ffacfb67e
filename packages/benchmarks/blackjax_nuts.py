"""The No-U-Turn sampler of blackjax with window adaptation: eight schools, a logistic regression."""

import blackjax
import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def sampler(density, start):
    @jax.jit
    def sample(key):
        warm, inference = jax.random.split(key)
        adaptation = blackjax.window_adaptation(blackjax.nuts, density)
        (state, parameters), _ = adaptation.run(warm, start, num_steps=500)
        step = blackjax.nuts(density, **parameters).step

        def one(state, key):
            state, _ = step(key, state)
            return state, state.position

        return jax.lax.scan(one, state, jax.random.split(inference, 500))[1]

    return lambda: sample(jax.random.key(0))


def eight_schools():
    def density(q):
        prior = stats.norm.logpdf(q["mean"], 0, 5) + stats.norm.logpdf(q["offset"]).sum()
        prior += stats.cauchy.logpdf(jnp.exp(q["log_scale"]), 0, 5) + q["log_scale"]
        return prior + stats.norm.logpdf(EFFECTS, q["mean"] + jnp.exp(q["log_scale"]) * q["offset"], ERRORS).sum()

    return sampler(density, {"mean": jnp.zeros(()), "log_scale": jnp.zeros(()), "offset": jnp.zeros(8)})


def logistic_regression():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(500, 10)).astype(np.float32)
    y = (generator.random(500) < 1 / (1 + np.exp(-x @ generator.normal(size=10)))).astype(np.float32)

    def density(q):
        logits = x @ q["weights"] + q["bias"]
        likelihood = jnp.sum(y * logits - jax.nn.softplus(logits))
        return likelihood + stats.norm.logpdf(q["weights"]).sum() + stats.norm.logpdf(q["bias"], 0, 5)

    return sampler(density, {"weights": jnp.zeros(10), "bias": jnp.zeros(())})


WORKLOADS = [eight_schools, logistic_regression]
