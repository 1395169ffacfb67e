"""Training: optax's Adam on a perceptron, a convolutional network of flax, a transformer of equinox."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS = 30


def epochs(step, *state):
    """A run of `STEPS` steps from the same start; their losses."""

    def run():
        values, current = [], state
        for _ in range(STEPS):
            *current, value = step(*current)
            values.append(value)
        return values

    return run


def perceptron():
    sizes = (64, 128, 128, 10)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(128, 64)).astype(np.float32)
    labels = generator.integers(0, 10, 128)
    keys = jax.random.split(jax.random.key(0), len(sizes))
    parameters = [
        (jax.random.normal(k, (m, n)) / m**0.5, jnp.zeros(n))
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=False)
    ]
    optimizer = optax.adam(1e-3)

    def loss(parameters):
        y = x
        for w, b in parameters[:-1]:
            y = jax.nn.relu(y @ w + b)
        w, b = parameters[-1]
        return optax.softmax_cross_entropy_with_integer_labels(y @ w + b, labels).mean()

    @jax.jit
    def step(parameters, state):
        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, value

    return epochs(step, parameters, optimizer.init(parameters))


class Convolutional(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.avg_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(32, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(64)(x.reshape(len(x), -1)))
        return nn.Dense(10)(x)


def convolutional_network():
    generator = np.random.default_rng(0)
    images = generator.normal(size=(32, 28, 28, 1)).astype(np.float32)
    labels = generator.integers(0, 10, 32)
    model, optimizer = Convolutional(), optax.adam(1e-3)
    parameters = model.init(jax.random.key(0), images)

    @jax.jit
    def step(parameters, state):
        def loss(parameters):
            logits = model.apply(parameters, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, value

    return epochs(step, parameters, optimizer.init(parameters))


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norms: list
    mlp: eqx.nn.MLP

    def __init__(self, size, key):
        a, b = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, size, key=a)
        self.norms = [eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)]
        self.mlp = eqx.nn.MLP(size, size, 4 * size, 1, activation=jax.nn.gelu, key=b)

    def __call__(self, x):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((len(x), len(x)), bool)))
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Transformer(eqx.Module):
    embedding: eqx.nn.Embedding
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, words, size, depth, key):
        a, b, c = jax.random.split(key, 3)
        self.embedding = eqx.nn.Embedding(words, size, key=a)
        self.blocks = [Block(size, k) for k in jax.random.split(b, depth)]
        self.head = eqx.nn.Linear(size, words, key=c)

    def __call__(self, tokens):
        x = jax.vmap(self.embedding)(tokens)
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def transformer():
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 64, (8, 33)))
    model, optimizer = Transformer(64, 64, 3, jax.random.key(0)), optax.adam(1e-3)

    @eqx.filter_value_and_grad
    def loss(model):
        logits = jax.vmap(model)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @eqx.filter_jit
    def step(model, state):
        value, gradient = loss(model)
        updates, state = optimizer.update(gradient, state)
        return eqx.apply_updates(model, updates), state, value

    return epochs(step, model, optimizer.init(eqx.filter(model, eqx.is_array)))


WORKLOADS = [perceptron, convolutional_network, transformer]
