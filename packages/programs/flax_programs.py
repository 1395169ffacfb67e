"""Models of flax.linen and flax.nnx."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

KEY = jax.random.PRNGKey(0)
IMAGES = jax.random.normal(KEY, (4, 8, 8, 1))


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Conv(8, (3, 3))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = x.reshape(x.shape[0], -1)
        x = nn.Dropout(0.2, deterministic=not train)(x)
        return nn.Dense(10)(x)


def linen_cnn():
    model = CNN()
    variables = model.init(KEY, IMAGES)
    labels = jnp.arange(4)

    def loss(params, stats):
        logits, changed = model.apply(
            {"params": params, "batch_stats": stats}, IMAGES, train=True, mutable=["batch_stats"], rngs={"dropout": KEY}
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), changed["batch_stats"]

    optimizer = optax.adam(1e-2)
    params, stats = variables["params"], variables["batch_stats"]
    state = optimizer.init(params)

    @jax.jit
    def step(params, stats, state):
        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params, stats)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), stats, state, value

    values = []
    for _ in range(10):
        params, stats, state, value = step(params, stats, state)
        values.append(value)
    return values, stats


def linen_layers():
    sequence = jax.random.normal(KEY, (2, 5, 8))
    layers = {
        "attention": nn.MultiHeadDotProductAttention(2),
        "layer norm": nn.LayerNorm(),
        "embed": None,
        "rnn": nn.RNN(nn.LSTMCell(6)),
        "gru": nn.RNN(nn.GRUCell(6)),
        "conv": nn.ConvTranspose(4, (3,)),
    }
    found = {}
    for name, layer in layers.items():
        if layer is not None:
            found[name] = (
                layer.init_with_output(KEY, sequence)[0]
                if name != "attention"
                else layer.init_with_output(KEY, sequence, sequence)[0]
            )
    found["embed"] = nn.Embed(5, 3).init_with_output(KEY, jnp.arange(4))[0]
    return found


def nnx_training():
    class MLP(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 16, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)
            self.second = nnx.Linear(16, 1, rngs=rngs)

        def __call__(self, x):
            return self.second(self.dropout(nnx.relu(self.norm(self.first(x)))))

    model = MLP(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    x = jax.random.normal(KEY, (32, 3))
    y = jnp.sum(x, 1, keepdims=True)

    @nnx.jit
    def step(model, optimizer):
        value, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        optimizer.update(model, grads)
        return value

    values = [step(model, optimizer) for _ in range(10)]
    graph, state = nnx.split(model)
    return values, nnx.merge(graph, state)(x).shape


def nnx_layers():
    rngs = nnx.Rngs(0)
    x = jax.random.normal(KEY, (2, 5, 8))
    return {
        "attention": nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)(x),
        "conv": nnx.Conv(8, 4, (3,), rngs=rngs)(x),
        "layer norm": nnx.LayerNorm(8, rngs=rngs)(x),
        "embed": nnx.Embed(5, 3, rngs=rngs)(jnp.arange(4)),
    }


def eight_bit_training():
    """The rules of 8-bit products give the new scales for the cotangents of the old ones."""
    layer = nn.Dense(4, dot_general_cls=nn.Fp8DirectDotGeneralOp)
    x = jax.random.normal(KEY, (16, 16))
    variables = layer.init(KEY, x)

    @jax.jit
    def step(variables, x):
        value, grads = jax.value_and_grad(lambda v: jnp.sum(layer.apply(v, x) ** 2))(variables)
        params = jax.tree.map(lambda p, g: p - 1e-3 * g, variables["params"], grads["params"])
        return value, grads | {"params": params}

    values = []
    for k in range(4):
        value, variables = step(variables, x * (k + 1))
        values.append(value)
    return values, variables


PROGRAMS = [eight_bit_training, linen_cnn, linen_layers, nnx_training, nnx_layers]
