"""Models, filtered transformations and internals of equinox."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

KEY = jax.random.PRNGKey(0)


def mlp_training():
    model = eqx.nn.MLP(3, 1, 16, 2, key=KEY)
    x = jax.random.normal(jax.random.PRNGKey(1), (32, 3))
    y = jnp.sum(jnp.sin(x), 1, keepdims=True)
    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state):
        value, grads = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2))(model)
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(model, updates), state, value

    values = []
    for _ in range(20):
        model, state, value = step(model, state)
        values.append(value)
    return values, jax.vmap(model)(x)


def layers():
    keys = jax.random.split(KEY, 8)
    x = jax.random.normal(KEY, (4, 8, 8))
    sequence = jax.random.normal(KEY, (10, 16))
    attention = eqx.nn.MultiheadAttention(4, 16, key=keys[2])
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "batch", mode="ema")
    normed, state = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
        x[None] * jnp.arange(1.0, 4)[:, None, None, None], state
    )
    return {
        "conv": eqx.nn.Conv2d(4, 6, 3, padding=1, key=keys[0])(x),
        "transposed": eqx.nn.ConvTranspose2d(4, 6, 3, stride=2, key=keys[1])(x),
        "attention": attention(sequence, sequence, sequence),
        "gru": eqx.nn.GRUCell(16, 5, key=keys[3])(sequence[0], jnp.zeros(5)),
        "lstm": eqx.nn.LSTMCell(16, 5, key=keys[4])(sequence[0], (jnp.zeros(5), jnp.ones(5))),
        "layer norm": eqx.nn.LayerNorm((16,))(sequence[0]),
        "group norm": eqx.nn.GroupNorm(2, 4)(x),
        "batch norm": normed,
        "pool": eqx.nn.MaxPool2d(2, 2)(x),
        "embedding": eqx.nn.Embedding(10, 3, key=keys[5])(jnp.array(3)),
        "dropout": eqx.nn.Dropout(0.5)(sequence, key=keys[6]),
    }


def loops():
    import equinox.internal as eqxi

    def total(x, kind):
        body = lambda c: (c[0] + 1, jnp.sin(c[1]) + 0.1 * x)
        kwargs = {"checkpoints": 4} if kind == "checkpointed" else {}
        return eqxi.while_loop(lambda c: c[0] < 10, body, (0, x), max_steps=16, kind=kind, **kwargs)[1].sum()

    x = jnp.arange(3.0)
    kinds = ("lax", "checkpointed", "bounded")
    found = {kind: total(x, kind) for kind in kinds}
    found["gradients"] = [jax.grad(total)(x, kind) for kind in kinds[1:]]
    found["scan"] = eqxi.scan(lambda c, a: (c * a, c), jnp.ones(()), x + 1, kind="checkpointed", checkpoints=2)
    return found


def transformations():
    @eqx.filter_custom_vjp
    def f(x, y):
        return jnp.sum(x * y)

    @f.def_fwd
    def forward(perturbed, x, y):
        return f(x, y), (x, y)

    @f.def_bwd
    def backward(residuals, g, perturbed, x, y):
        return 2 * g * y

    closed = eqx.filter_closure_convert(lambda x: jnp.sin(x) * KEY[1].astype(float), jnp.ones(3))
    return {
        "custom vjp": eqx.filter_grad(lambda x: f(x, jnp.arange(3.0)))(jnp.ones(3)),
        "closure": closed(jnp.arange(3.0)),
        "jvp": eqx.filter_jvp(
            lambda x: x["a"] * 2,
            (
                {
                    "a": jnp.ones(2),
                },
            ),
            ({"a": jnp.arange(2.0)},),
        ),
        "checkpoint": jax.grad(eqx.filter_checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum()))(jnp.ones(3)),
        "vmap": eqx.filter_vmap(lambda m, x: m(x), in_axes=(None, 0))(eqx.nn.Linear(2, 2, key=KEY), jnp.ones((3, 2))),
        "jacobian": eqx.filter_jacrev(lambda x: x**2)(jnp.arange(3.0)),
        "hessian": eqx.filter_hessian(lambda x: jnp.sum(x**3))(jnp.arange(3.0)),
        "shape": [
            x.shape
            for x in jax.tree.leaves(eqx.filter_eval_shape(eqx.nn.MLP, 2, 2, 4, 1, key=KEY))
            if hasattr(x, "shape")
        ],
    }


def errors():
    def checked(x):
        return eqx.error_if(x, jnp.any(x < 0), "x must not be negative")

    found = []
    for value in (1.0, -1.0):
        try:
            found.append(float(eqx.filter_jit(checked)(jnp.array(value))))
        except Exception as error:
            found.append("x must not be negative" in str(error))
    return found


PROGRAMS = [mlp_training, layers, loops, transformations, errors]
