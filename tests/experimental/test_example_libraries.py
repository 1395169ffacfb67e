"""Layers and optimizers that are pairs and triples of functions: against JAX's of the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest
from jax.example_libraries import optimizers as jax_optimizers, stax as jax_stax

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.example_libraries import optimizers, stax

RANDOM = np.random.default_rng(0)
PARAMS = {"w": RANDOM.standard_normal((3, 4)).astype("f"), "b": RANDOM.standard_normal(4).astype("f")}
GRADIENTS = [
    {"w": RANDOM.standard_normal((3, 4)).astype("f"), "b": np.array([0, 1e-3, -2, 5], "f") * k} for k in range(6)
]

OPTIMIZERS: dict[str, tuple[Any, ...]] = {
    "sgd": (0.1,),
    "momentum": (0.1, 0.9),
    "nesterov": (0.1, 0.9),
    "adagrad": (0.1,),
    "rmsprop": (0.1,),
    "rmsprop_momentum": (0.1, 0.8),
    "adam": (0.1,),
    "adamax": (0.1,),
    "sm3": (0.1,),
}
SCHEDULES: dict[str, tuple[Any, ...]] = {
    "constant": (0.5,),
    "exponential_decay": (0.5, 10, 0.3),
    "inverse_time_decay": (0.5, 10, 0.3),
    "polynomial_decay": (0.5, 10, 0.1, 2.0),
}


def agree(found: Any, expected: Any) -> None:
    leaves, others = tx.tree.leaves(found), jax.tree.leaves(expected)
    assert len(leaves) == len(others)
    for x, y in zip(leaves, others, strict=True):
        np.testing.assert_allclose(x, y, 2e-5, 2e-6)


def trained(make: Any, jit: Callable[..., Any]) -> Any:
    init, update, params = make
    state, step = init(PARAMS), jit(update)
    for k, gradients in enumerate(GRADIENTS):
        state = step(k, gradients, state)
    return params(state)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    arguments = OPTIMIZERS[name]
    expected = trained(getattr(jax_optimizers, name)(*arguments), jax.jit)
    agree(trained(getattr(optimizers, name)(*arguments), tx.jit), expected)
    agree(trained(getattr(optimizers, name)(*arguments), lambda f: f), expected)
    # a step size that depends on the step
    own, other = (x.exponential_decay(0.2, 3, 0.5) for x in (optimizers, jax_optimizers))
    expected = trained(getattr(jax_optimizers, name)(other, *arguments[1:]), jax.jit)
    agree(trained(getattr(optimizers, name)(own, *arguments[1:]), tx.jit), expected)


def test_a_number_as_parameter() -> None:
    for name, arguments in OPTIMIZERS.items():
        init, update, params = getattr(optimizers, name)(*arguments)
        state = init(jnp.float32(2.0))
        for k in range(3):
            state = update(k, params(state), state)
        assert jnp.shape(params(state)) == ()
        assert 0 < abs(float(params(state))) < 2


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    own, other = (getattr(x, name)(*SCHEDULES[name]) for x in (optimizers, jax_optimizers))
    for step in range(0, 25, 3):
        np.testing.assert_allclose(own(step), other(step), 1e-6)
        np.testing.assert_allclose(tx.jit(own)(step), other(step), 1e-6)


def test_schedules_by_steps() -> None:
    own, other = (x.inverse_time_decay(1.0, 4, 0.5, staircase=True) for x in (optimizers, jax_optimizers))
    pieces, others = (x.piecewise_constant([3, 6], [1.0, 0.1, 0.01]) for x in (optimizers, jax_optimizers))
    for step in range(9):
        np.testing.assert_allclose(own(step), other(step), 1e-6)
        np.testing.assert_allclose(tx.jit(pieces)(step), others(step), 1e-6)


def test_norms() -> None:
    agree(optimizers.l2_norm(PARAMS), jax_optimizers.l2_norm(PARAMS))
    for most in (0.5, 100.0):
        agree(optimizers.clip_grads(PARAMS, most), jax_optimizers.clip_grads(PARAMS, most))


def test_states_are_pytrees() -> None:
    init, update, params = optimizers.adam(0.1)
    state = init(PARAMS)
    doubled = tx.tree.map(lambda x: 2 * x, state)
    agree(params(doubled), {k: 2 * v for k, v in PARAMS.items()})
    marked = optimizers.unpack_optimizer_state(state)
    assert set(marked) == set(PARAMS)
    assert len(marked["w"].subtree) == 3
    again = optimizers.pack_optimizer_state(marked)
    agree(params(update(0, GRADIENTS[1], again)), params(update(0, GRADIENTS[1], state)))


NHWC = ("NHWC", "HWIO", "NHWC")
KEY = tx.random.key(0)
steps: Any = optimizers  # which are called wrongly
layers: Any = stax


@pytest.mark.parametrize(
    ("message", "function"),
    [
        (
            "must be a pytree like the parameters",
            lambda: steps.sgd(0.1).update_fn(0, [1.0], steps.sgd(0.1)[0](PARAMS)),
        ),
        ("must be a number or a function of the step", lambda: steps.sgd(np.ones(2))),
        ("opt_maker must be a function", lambda: steps.optimizer(3)),
        ("must give three functions", lambda: steps.optimizer(lambda: 3)()),
        ("adam: b1 must be a number", lambda: steps.adam(0.1, b1=np.ones(2))),
        ("decay_steps must be positive", lambda: steps.polynomial_decay(1.0, 0, 0.5)),
        ("decay_rate must be a number", lambda: steps.exponential_decay(1.0, 3, np.ones(2))),
        ("one value more than boundaries", lambda: steps.piecewise_constant([1, 2], [0.1, 0.2])),
        ("boundaries must ascend", lambda: steps.piecewise_constant([2, 1], [0.1, 0.2, 0.3])),
        ("max_norm must not be negative", lambda: steps.clip_grads([np.ones(2)], -1.0)),
        ("takes the state", lambda: steps.unpack_optimizer_state(3)),
        ("every leaf must be a JoinPoint", lambda: steps.pack_optimizer_state({"x": 1.0})),
        ("mode must be one of", lambda: layers.Dropout(0.5, "never")),
        ("needs a key", lambda: layers.Dropout(0.5)[1]((), np.ones(3))),
        ("Dense: out_dim is an integer", lambda: layers.Dense(2.5)),
        ("Dense: W_init must be a function", lambda: layers.Dense(2, W_init=3)),
        ("dimension_numbers must have 3 elements", lambda: layers.GeneralConv(NHWC[:2], 3, (2, 2))),
        ("must have the letters N and C", lambda: layers.GeneralConv(("NHWX", *NHWC[1:]), 3, (2, 2))),
        ("must have the letters N and C", lambda: layers.Conv(3, (2,))),
        ("strides must have 2 elements", lambda: layers.Conv(3, (2, 2), strides=(1,))),
        ("filter_shape must be positive", lambda: layers.ConvTranspose(3, (0, 2))),
        ("axis must be|axis is an integer", lambda: layers.BatchNorm(1.5)),
        ("fun must be a function", lambda: layers.elementwise(3)),
        ("strides must have 2 elements", lambda: layers.MaxPool((2, 2), strides=(1,))),
        ("window_shape must be positive", lambda: layers.AvgPool((0, 2))),
        ("spec must have the letters", lambda: layers.SumPool((2, 2), spec="NXC")),
        ("num is an integer", lambda: layers.FanOut("2")),
        ("at least one shape", lambda: layers.FanInConcat()[0](KEY, [])),
        (r"a layer is a pair \(init, apply\)", lambda: layers.serial(layers.Dense)),
        ("params must have 2 elements", lambda: layers.serial(layers.Relu, layers.Relu)[1]([()], np.ones(2))),
        ("inputs must have 2 elements", lambda: layers.parallel(layers.Relu, layers.Relu)[1]([(), ()], [np.ones(2)])),
        ("shape_dependent: a layer is a pair", lambda: layers.shape_dependent(lambda _: 3)[0](KEY, (1, 2))),
    ],
)
def test_errors(message: str, function: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match=message):
        function()


@pytest.mark.parametrize(
    ("message", "function"),
    [
        (
            "the shape of its parameters",
            lambda: steps.sgd(0.1).update_fn(0, np.ones((2, 3)), steps.sgd(0.1).init_fn(np.ones(3))),
        ),
        ("out_dim must not be negative", lambda: layers.Dense(-1)),
        ("at least one dimension", lambda: layers.Dense(2)[0](KEY, ())),
        ("must have 4 dimensions", lambda: layers.Conv(3, (2, 2))[0](KEY, (-1, 8, 3))),
        ("axis 7 is out of range", lambda: layers.BatchNorm(7)[0](KEY, (-1, 4, 3))),
        ("num must not be negative", lambda: layers.FanOut(-1)),
        ("axis 5 is out of range", lambda: layers.FanInConcat(5)[0](KEY, [(1, 2), (1, 3)])),
        ("equal shapes but for axis -1", lambda: layers.FanInConcat()[0](KEY, [(1, 2), (4, 3)])),
    ],
)
def test_shapes_that_do_not_fit(message: str, function: Callable[[], Any]) -> None:
    with pytest.raises(ShapeError, match=message):
        function()


def test_batch_norm_over_an_axis_from_the_back() -> None:
    _, (beta, gamma) = stax.BatchNorm(-1)[0](KEY, (2, 4, 3))
    assert beta.shape == gamma.shape == (2, 4)


def test_batches_of_any_size_are_concatenated() -> None:
    assert stax.FanInConcat(0)[0](KEY, [(-1, 8), (-1, 8)])[0] == (-1, 8)


def test_gradients_of_zeros_are_clipped_to_zeros() -> None:
    assert optimizers.clip_grads([jnp.zeros(2)], 0.0)[0].tolist() == [0.0, 0.0]


def images(x: Any) -> Any:
    return x.serial(
        x.Conv(8, (3, 3), padding="SAME"),
        x.BatchNorm(),
        x.Relu,
        x.MaxPool((2, 2), strides=(2, 2)),
        x.FanOut(3),
        x.parallel(x.Identity, x.serial(x.Conv(8, (1, 1)), x.Tanh), x.elementwise(lambda y: y * 2)),
        x.FanInConcat(),
        x.ConvTranspose(4, (3, 3), strides=(2, 2)),
        x.AvgPool((2, 2), padding="SAME"),
        x.SumPool((3, 3), strides=(3, 3)),
        x.Flatten,
        x.Dense(10),
        x.LogSoftmax,
    )


def mixed(x: Any) -> Any:
    def half(shape: Any) -> Any:
        return x.Dense(shape[-1] // 2)

    activations = [x.Exp, x.Softmax, x.Softplus, x.Sigmoid, x.Elu, x.LeakyRelu, x.Selu, x.Gelu]
    return x.serial(
        x.shape_dependent(half),
        x.FanOut(2),
        x.parallel(x.serial(*activations), x.Dense(6)),
        x.FanInSum,
        x.BatchNorm(axis=0, center=False),
        x.BatchNorm(axis=(0,), scale=False),
    )


def series(x: Any) -> Any:
    return x.serial(
        x.GeneralConv(("NHC", "HIO", "NHC"), 4, (3,), (2,), [(1, 1)]),
        x.Conv1DTranspose(5, (4,), padding="SAME"),
        x.MaxPool((2,), spec="NHC"),
    )


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    ("make", "shape"),
    [(images, (-1, 8, 9, 3)), (mixed, (-1, 12)), (series, (-1, 10, 3))],
    ids=["images", "mixed", "series"],
)
def test_layers(make: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    x = RANDOM.standard_normal((4, *shape[1:])).astype("f")
    (init, apply), (other_init, other_apply) = make(stax), make(jax_stax)
    found, params = init(tx.random.PRNGKey(1), shape)
    expected, other_params = other_init(jax.random.PRNGKey(1), x.shape)
    assert found == (-1, *expected[1:])
    agree(params, other_params)
    result = tx.jit(apply)(params, x)
    assert result.shape[1:] == found[1:]
    agree(result, jax.jit(other_apply)(other_params, x))


def test_dropout() -> None:
    x = np.ones((50, 20), "f")
    for mode in ("train", "test"):
        net, other = (y.serial(y.Dense(30), y.Dropout(0.7, mode), y.Tanh) for y in (stax, jax_stax))
        _, params = net[0](tx.random.PRNGKey(0), (-1, 20))
        _, other_params = other[0](jax.random.PRNGKey(0), (-1, 20))
        agree(net[1](params, x, rng=tx.random.PRNGKey(3)), other[1](other_params, x, rng=jax.random.PRNGKey(3)))


def test_training() -> None:
    x, y = RANDOM.standard_normal((32, 8)).astype("f"), np.eye(3, dtype="f")[RANDOM.integers(0, 3, 32)]

    def losses(library: Any, layers: Any, steps: Any, numpy: Any) -> list[float]:
        init, apply = layers.serial(layers.Dense(16), layers.Relu, layers.Dense(3), layers.LogSoftmax)
        _, params = init(library.random.PRNGKey(0), (-1, 8))
        start, update, params_of = steps.momentum(0.1, 0.9)

        def loss(params: Any) -> Any:
            return -numpy.mean(numpy.sum(apply(params, x) * y, 1))

        @library.jit
        def step(k: Any, state: Any) -> Any:
            value, gradients = library.value_and_grad(loss)(params_of(state))
            return update(k, gradients, state), value

        state, found = start(params), list[float]()
        for k in range(20):
            state, value = step(k, state)
            found.append(float(value))
        return found

    found = losses(tx, stax, optimizers, jnp)
    np.testing.assert_allclose(found, losses(jax, jax_stax, jax_optimizers, jax.numpy), 1e-4)
    assert found[-1] < found[0] / 2
