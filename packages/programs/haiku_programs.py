"""Models of haiku, and distrax, chex, tinygp, einops, jaxtyping."""

import chex
import distrax
import einops
import haiku as hk
import jax
import jax.numpy as jnp
import tinygp
from jaxtyping import Array, Float, jaxtyped

KEY = jax.random.PRNGKey(0)


def haiku_models():
    def network(x):
        x = hk.Conv2D(4, 3)(x)
        x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(x, is_training=True))
        return hk.nets.MLP([16, 4])(hk.Flatten()(x))

    transformed = hk.transform_with_state(network)
    x = jax.random.normal(KEY, (3, 6, 6, 1))
    params, state = transformed.init(KEY, x)
    output, state = transformed.apply(params, state, KEY, x)
    grads = jax.grad(lambda p: transformed.apply(p, state, KEY, x)[0].sum())(params)

    recurrent = hk.transform(lambda xs: hk.dynamic_unroll(hk.LSTM(5), xs, hk.LSTM(5).initial_state(2)))
    sequence = jax.random.normal(KEY, (7, 2, 3))
    weights = recurrent.init(KEY, sequence)
    attention = hk.transform(lambda q: hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())(q, q, q))
    return (
        output,
        state,
        grads,
        recurrent.apply(weights, KEY, sequence)[0],
        attention.apply(attention.init(KEY, sequence), KEY, sequence),
    )


def distrax_distributions():
    normal = distrax.MultivariateNormalDiag(jnp.zeros(3), jnp.ones(3))
    flow = distrax.Transformed(
        normal, distrax.Block(distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(1.0, 2.0)]), 1)
    )
    x = flow.sample(seed=KEY, sample_shape=4)
    bijector = distrax.Lambda(lambda x: jnp.exp(x) * 2)
    mixture = distrax.MixtureSameFamily(distrax.Categorical(jnp.ones(2)), distrax.Normal(jnp.arange(2.0), jnp.ones(2)))
    return (
        x,
        flow.log_prob(x),
        bijector.inverse(jnp.array([2.0, 4.0])),
        bijector.forward_log_det_jacobian(1.0),
        mixture.log_prob(0.3),
    )


def chex_checks():
    @chex.dataclass
    class State:
        a: chex.Array
        b: chex.Array

    state = State(a=jnp.ones(2), b=jnp.zeros(3))
    chex.assert_shape(state.a, (2,))
    chex.assert_tree_all_finite(state)
    chex.assert_trees_all_close(state, jax.tree.map(lambda x: x + 0, state))
    try:
        chex.assert_rank(state.a, 2)
        caught = False
    except AssertionError:
        caught = True
    return jax.tree.map(lambda x: x + 1, state).a, caught


def gaussian_process():
    x = jnp.linspace(0, 5, 20)
    y = jnp.sin(x)

    def negative(params):
        kernel = jnp.exp(params[0]) * tinygp.kernels.ExpSquared(jnp.exp(params[1]))
        return -tinygp.GaussianProcess(kernel, x, diag=0.01).log_probability(y)

    value, grad = jax.jit(jax.value_and_grad(negative))(jnp.zeros(2))
    quasi = tinygp.GaussianProcess(tinygp.kernels.quasisep.Matern32(1.0), x, diag=0.01)
    condition = tinygp.GaussianProcess(tinygp.kernels.Matern52(1.0), x, diag=0.01).condition(y, jnp.linspace(0, 5, 7))
    return value, grad, quasi.log_probability(y), condition.gp.mean


def shapes():
    x = jnp.arange(24.0).reshape(2, 3, 4)

    @jaxtyped(typechecker=None)
    def total(x: Float[Array, "a b c"]) -> Float[Array, "a"]:
        return x.sum((1, 2))

    return (
        einops.rearrange(x, "a b c -> c (a b)"),
        einops.reduce(x, "a b c -> b", "mean"),
        einops.repeat(x[0], "a b -> a b k", k=2),
        jax.jit(lambda x: einops.einsum(x, x, "a b c, a b d -> c d"))(x),
        total(x),
        isinstance(x, Float[Array, "2 3 4"]),
    )


PROGRAMS = [haiku_models, distrax_distributions, chex_checks, gaussian_process, shapes]
