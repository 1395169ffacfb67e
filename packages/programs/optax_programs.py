"""Small training runs with optax."""

import jax
import jax.numpy as jnp
import optax

X = jax.random.normal(jax.random.PRNGKey(0), (64, 5))
TRUE = jnp.arange(1.0, 6.0)
Y = X @ TRUE + 0.5


def loss(params):
    return jnp.mean((X @ params["w"] + params["b"] - Y) ** 2)


def train(optimizer, steps=20, value=False):
    params = {"w": jnp.zeros(5), "b": jnp.zeros(())}
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        now, grads = jax.value_and_grad(loss)(params)
        extra = {"value": now, "grad": grads, "value_fn": loss} if value else {}
        updates, state = optimizer.update(grads, state, params, **extra)
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params


def optimizers():
    made = {
        "sgd": optax.sgd(0.1, momentum=0.9, nesterov=True),
        "adam": optax.adam(0.1),
        "adamw": optax.adamw(0.1, weight_decay=0.01),
        "lamb": optax.lamb(0.1),
        "lion": optax.lion(0.01),
        "rmsprop": optax.rmsprop(0.05),
        "adagrad": optax.adagrad(0.5),
        "adafactor": optax.adafactor(0.1),
        "adabelief": optax.adabelief(0.1),
        "radam": optax.radam(0.1),
        "yogi": optax.yogi(0.1),
        "nadam": optax.nadam(0.1),
        "rprop": optax.rprop(0.1),
        "novograd": optax.novograd(0.1),
    }
    return {name: train(optimizer) for name, optimizer in made.items()}


def chained_with_schedules():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.2, 10, 50)
    chain = optax.chain(
        optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.scale_by_schedule(schedule), optax.scale(-1.0)
    )
    every = optax.MultiSteps(optax.adam(0.1), 4).gradient_transformation()
    masked = optax.multi_transform({"a": optax.adam(0.1), "b": optax.sgd(0.05)}, {"w": "a", "b": "b"})
    return train(chain), train(every), train(masked), [schedule(k) for k in (0, 5, 10, 30, 50)]


def line_search():
    return train(optax.lbfgs(), 15, value=True)


def losses():
    logits = jax.random.normal(jax.random.PRNGKey(1), (8, 4))
    labels = jnp.arange(8) % 4
    return {
        "cross entropy": optax.softmax_cross_entropy_with_integer_labels(logits, labels),
        "sigmoid": optax.sigmoid_binary_cross_entropy(logits, jax.nn.one_hot(labels, 4)),
        "huber": optax.huber_loss(logits, jnp.ones_like(logits)),
        "cosine": optax.cosine_distance(logits, jnp.ones_like(logits)),
        "ctc": optax.ctc_loss(
            jnp.tile(logits[None], (2, 1, 1)), jnp.zeros((2, 8)), jnp.array([[1, 2, 3], [2, 1, 0]]), jnp.zeros((2, 3))
        ),
        "gradient": jax.grad(lambda x: optax.softmax_cross_entropy_with_integer_labels(x, labels).sum())(logits),
    }


PROGRAMS = [optimizers, chained_with_schedules, line_search, losses]
