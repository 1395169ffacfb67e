"""Optimizers as triples of functions, under the names of `jax.example_libraries.optimizers`.

An optimizer is a tuple of `init_fn(params)`, which gives a state, `update_fn(step, gradients, state)`, which gives the
next one, and `params_fn(state)`, which gives the parameters that it holds. Parameters are any pytree, gradients one
like it, and states are pytrees too, so all three functions may be compiled.

>>> import tinyxla.numpy as tnp
>>> from tinyxla.example_libraries.optimizers import adam
>>> optimizer = adam(0.1)
>>> state = optimizer.init_fn({"x": tnp.float32(1.0)})
>>> for step in range(100):
...     gradients = {"x": 2 * optimizer.params_fn(state)["x"]}  # of x ** 2
...     state = optimizer.update_fn(step, gradients, state)
>>> bool(abs(optimizer.params_fn(state)["x"]) < 0.1)
True
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tinyxla import numpy as tnp
from tinyxla.errors import ArgumentError, ShapeError
from tinyxla.numpy.arguments import array_of, function_of, listed, number_of, shown, vector_of
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tree_util import (
    PyTreeDef,
    register_pytree_node,
    register_pytree_node_class,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

Schedule = Callable[[Any], Any]


class Optimizer(NamedTuple):
    """What makes a state from parameters, what updates it, and what gives the parameters back.

    >>> from tinyxla.example_libraries.optimizers import sgd
    >>> init_fn, update_fn, params_fn = sgd(0.5)
    >>> state = update_fn(0, {"x": 1.0}, init_fn({"x": 3.0}))  # step, gradients, state
    >>> params_fn(state)
    {'x': 2.5}
    """

    init_fn: Callable[[Any], OptimizerState]
    update_fn: Callable[[Any, Any, OptimizerState], OptimizerState]
    params_fn: Callable[[OptimizerState], Any]


@dataclass(frozen=True)
class OptimizerState:
    """The state of each array of parameters, in the order of the leaves of a tree with this structure.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import adam
    >>> state = adam(0.1).init_fn({"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)})
    >>> len(state.states), len(state.states[0])  # arrays, and of each the value and two means
    (2, 3)
    """

    states: tuple[Any, ...]
    structure: PyTreeDef


register_pytree_node(
    OptimizerState,
    lambda x: (x.states, x.structure),
    lambda structure, states: OptimizerState(tuple(states), structure),
)


def _number(what: str, name: str, value: Any) -> Any:
    """A scalar, which may be traced."""
    shape = array_of(value, f"optimizers.{what}: {name}").shape
    if shape:
        raise ArgumentError(f"optimizers.{what}: {name} must be a number, but has the shape {shape}.")
    return value


def _is_known(value: Any) -> bool:
    return not isinstance(value, Array) or isinstance(value, ConcreteArray)


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """A maker of optimizers for pytrees from one of optimizers for an array: it gives `init(x)`,
    `update(step, gradient, state)` and `get_params(state)`, whose states may be any pytrees.

    Args:
        opt_maker: a function that gives `(init, update, get_params)` for one array.

    Returns:
        A function of the same arguments that gives an `Optimizer`.

    Raises:
        ArgumentError: what is no function or does not give three functions, or the optimizer is given gradients of
            another structure than that of the parameters.
        ShapeError: the optimizer is given a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.example_libraries.optimizers import optimizer
    >>> @optimizer
    ... def signs(step_size):
    ...     return lambda x: x, lambda step, gradient, x: x - step_size * tnp.sign(gradient), lambda x: x
    >>> init_fn, update_fn, params_fn = signs(0.5)
    >>> params_fn(update_fn(0, [tnp.float32(3.0)], init_fn([tnp.float32(1.0)])))
    [Array(0.5, dtype=float32)]
    """

    function_of("optimizers.optimizer", "opt_maker", opt_maker)

    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        made = opt_maker(*args, **kwargs)
        if not isinstance(made, (tuple, list)) or len(made) != 3 or not all(map(callable, made)):
            raise ArgumentError(
                f"optimizers.optimizer: {getattr(opt_maker, '__name__', opt_maker)} must give three functions, (init, "
                f"update, get_params), but gives {shown(made)}."
            )
        init, update, get_params = made

        def init_fn(params: Any) -> OptimizerState:
            leaves, structure = tree_flatten(params)
            return OptimizerState(tuple(init(x) for x in leaves), structure)

        def update_fn(step: Any, gradients: Any, state: OptimizerState) -> OptimizerState:
            leaves, structure = tree_flatten(gradients)
            if structure != state.structure:
                raise ArgumentError(
                    f"optimizers: gradients must be a pytree like the parameters, {state.structure}, but are one of "
                    f"{structure}."
                )
            for gradient, x in zip(leaves, state.states, strict=True):
                found, wanted = tnp.shape(gradient), tnp.shape(get_params(x))
                if found != wanted:
                    raise ShapeError(
                        f"optimizers: a gradient must have the shape of its parameters, {wanted}, but has {found}."
                    )
            pairs = zip(leaves, state.states, strict=True)
            return OptimizerState(tuple(update(step, g, x) for g, x in pairs), structure)

        def params_fn(state: OptimizerState) -> Any:
            return tree_unflatten(state.structure, [get_params(x) for x in state.states])

        return Optimizer(init_fn, update_fn, params_fn)

    return make


def _first(state: Any) -> Any:
    return state[0]


# --- optimizers -------------------------------------------------------------------------------------------------------


@optimizer
def sgd(step_size: float | Schedule) -> Any:
    """Gradient descent: steps of size `step_size`, a number or a function of the step, against the gradient.

    Args:
        step_size: a number, or a function of the step.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import sgd
    >>> init_fn, update_fn, params_fn = sgd(0.5)
    >>> float(params_fn(update_fn(0, jnp.float32(2.0), init_fn(jnp.float32(3.0)))))
    2.0
    """
    size = make_schedule(step_size)
    return lambda x: x, lambda step, g, x: x - size(step) * g, lambda x: x


def _with_velocity(step_size: float | Schedule, change: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
    """Steps along what `change` makes of the gradient and a velocity, which it also updates."""
    size = make_schedule(step_size)

    def update(step: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        along, velocity = change(g, velocity)
        return x - size(step) * along, velocity

    return lambda x: (x, tnp.zeros_like(x)), update, _first


@optimizer
def momentum(step_size: float | Schedule, mass: float) -> Any:
    """Gradient descent with momentum: steps against a sum of all gradients, each of which counts `mass` times as much
    as the next (B. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964).

    Args:
        step_size: a number, or a function of the step.
        mass: the decay of the sum of gradients.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import momentum
    >>> init_fn, update_fn, params_fn = momentum(1.0, mass=0.5)
    >>> state = init_fn(jnp.float32(0.0))
    >>> for step in range(2):
    ...     state = update_fn(step, jnp.float32(1.0), state)
    >>> float(params_fn(state))  # -1 - 1.5
    -2.5
    """
    _number("momentum", "mass", mass)

    def change(g: Any, velocity: Any) -> tuple[Any, Any]:
        velocity = mass * velocity + g
        return velocity, velocity

    return _with_velocity(step_size, change)


@optimizer
def nesterov(step_size: float | Schedule, mass: float) -> Any:
    """Nesterov's accelerated gradient: as `momentum`, but by what the sum will be (Y. Nesterov, "A method of solving a
    convex programming problem with convergence rate O(1/k^2)", 1983).

    Args:
        step_size: a number, or a function of the step.
        mass: the decay of the sum of gradients.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import nesterov
    >>> init_fn, update_fn, params_fn = nesterov(1.0, mass=0.5)
    >>> float(params_fn(update_fn(0, jnp.float32(1.0), init_fn(jnp.float32(0.0)))))
    -1.5
    """
    _number("nesterov", "mass", mass)

    def change(g: Any, velocity: Any) -> tuple[Any, Any]:
        velocity = mass * velocity + g
        return mass * velocity + g, velocity

    return _with_velocity(step_size, change)


def _inverse_root(x: Any) -> Any:
    """1 / sqrt(x), and 0 of 0."""
    return tnp.where(x > 0, 1 / tnp.sqrt(tnp.where(x > 0, x, 1)), 0)


@optimizer
def adagrad(step_size: float | Schedule, momentum: float = 0.9) -> Any:
    """Gradients over the root of the sum of all squares so far (J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient
    methods for online learning and stochastic optimization", 2011).

    Args:
        step_size: a number, or a function of the step.
        momentum: the decay of the sum of gradients.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import adagrad
    >>> init_fn, update_fn, params_fn = adagrad(1.0, momentum=0.0)
    >>> state = update_fn(0, jnp.array([0.001, 1000.0]), init_fn(jnp.zeros(2)))
    >>> params_fn(state)  # steps do not depend on the scale of gradients
    Array([-1., -1.], dtype=float32)
    """
    _number("adagrad", "momentum", momentum)
    size = make_schedule(step_size)

    def update(step: Any, g: Any, state: Any) -> Any:
        x, squares, mean = state
        squares = squares + tnp.square(g)
        mean = (1 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        return x - size(step) * mean, squares, mean

    return lambda x: (x, tnp.zeros_like(x), tnp.zeros_like(x)), update, _first


@optimizer
def rmsprop(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """Gradients over the root of a running mean of their squares (T. Tieleman, G. Hinton, "Neural networks for machine
    learning", lecture 6.5, 2012).

    Args:
        step_size: a number, or a function of the step.
        gamma: the decay of the running mean of squares.
        eps: a small number added to roots.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import rmsprop
    >>> init_fn, update_fn, params_fn = rmsprop(1.0, gamma=0.75)
    >>> float(params_fn(update_fn(0, jnp.float32(8.0), init_fn(jnp.float32(0.0)))))
    -2.0
    """
    _number("rmsprop", "gamma", gamma)
    _number("rmsprop", "eps", eps)
    size = make_schedule(step_size)

    def update(step: Any, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + tnp.square(g) * (1 - gamma)
        return x - size(step) * g / tnp.sqrt(squares + eps), squares

    return lambda x: (x, tnp.zeros_like(x)), update, _first


@optimizer
def rmsprop_momentum(step_size: float | Schedule, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """`rmsprop`, whose steps also have a momentum.

    Args:
        step_size: a number, or a function of the step.
        gamma: the decay of the running mean of squares.
        eps: a small number added to roots.
        momentum: the decay of the sum of gradients.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import rmsprop_momentum
    >>> init_fn, update_fn, params_fn = rmsprop_momentum(1.0, gamma=0.75, momentum=0.5)
    >>> state = init_fn(jnp.float32(0.0))
    >>> for step, gradient in enumerate([8.0, 0.0]):
    ...     state = update_fn(step, jnp.float32(gradient), state)
    >>> float(params_fn(state))  # the second step is half of the first
    -3.0
    """
    _number("rmsprop_momentum", "gamma", gamma)
    _number("rmsprop_momentum", "eps", eps)
    _number("rmsprop_momentum", "momentum", momentum)
    size = make_schedule(step_size)

    def update(step: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares * gamma + tnp.square(g) * (1 - gamma)
        velocity = momentum * velocity + size(step) * g / tnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return lambda x: (x, tnp.zeros_like(x), tnp.zeros_like(x)), update, _first


@optimizer
def adam(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """A running mean of gradients over the root of one of their squares, both as if they had begun long ago (D. Kingma,
    J. Ba, "Adam: a method for stochastic optimization", 2015).

    Args:
        step_size: a number, or a function of the step.
        b1, b2: the decay of the running means of gradients and of their squares.
        eps: a small number added to roots.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import adam
    >>> init_fn, update_fn, params_fn = adam(0.5)
    >>> params_fn(update_fn(0, jnp.array([0.01, -100.0]), init_fn(jnp.zeros(2)))).round(3)
    Array([-0.5,  0.5], dtype=float32)
    """
    _number("adam", "b1", b1)
    _number("adam", "b2", b2)
    _number("adam", "eps", eps)
    size = make_schedule(step_size)

    def update(step: Any, g: Any, state: Any) -> Any:
        x, mean, squares = state
        mean = (1 - b1) * g + b1 * mean
        squares = (1 - b2) * tnp.square(g) + b2 * squares
        unbiased = mean / (1 - tnp.asarray(b1, mean.dtype) ** (step + 1))
        unbiased_squares = squares / (1 - tnp.asarray(b2, mean.dtype) ** (step + 1))
        return x - size(step) * unbiased / (tnp.sqrt(unbiased_squares) + eps), mean, squares

    return lambda x: (x, tnp.zeros_like(x), tnp.zeros_like(x)), update, _first


@optimizer
def adamax(step_size: float | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """`adam` with the largest of decaying magnitudes in place of a root (section 7.1 of the same paper).

    Args:
        step_size: a number, or a function of the step.
        b1, b2: the decay of the running means of gradients and of their squares.
        eps: a small number added to roots.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import adamax
    >>> init_fn, update_fn, params_fn = adamax(0.5)
    >>> params_fn(update_fn(0, jnp.array([0.01, -100.0]), init_fn(jnp.zeros(2)))).round(3)
    Array([-0.5,  0.5], dtype=float32)
    """
    _number("adamax", "b1", b1)
    _number("adamax", "b2", b2)
    _number("adamax", "eps", eps)
    size = make_schedule(step_size)

    def update(step: Any, g: Any, state: Any) -> Any:
        x, mean, largest = state
        mean = (1 - b1) * g + b1 * mean
        largest = tnp.maximum(b2 * largest, tnp.abs(g))
        scale = size(step) / (1 - tnp.asarray(b1, mean.dtype) ** (step + 1))
        return x - scale * mean / (largest + eps), mean, largest

    return lambda x: (x, tnp.zeros_like(x), tnp.zeros_like(x)), update, _first


@optimizer
def sm3(step_size: float | Schedule, momentum: float = 0.9) -> Any:
    """As `adagrad`, but with a sum of squares for each index of each dimension instead of each element (R. Anil et al.,
    "Memory-efficient adaptive optimization", 2019, algorithm SM3-II).

    Args:
        step_size: a number, or a function of the step.
        momentum: the decay of the sum of gradients.

    Returns:
        An `Optimizer`.

    Raises:
        ArgumentError: an argument that is an array but no scalar, or gradients of another structure than that of the
            parameters.
        DTypeError: an argument that is no number.
        ShapeError: a gradient of another shape than that of its parameters.

    >>> import tinyxla.numpy as jnp
    >>> from tinyxla.example_libraries.optimizers import sm3
    >>> init_fn, update_fn, params_fn = sm3(1.0)
    >>> _, _, sums = init_fn(jnp.zeros((2, 3))).states[0]
    >>> [x.shape for x in sums]  # for each row and for each column
    [(2,), (3,)]
    """
    _number("sm3", "momentum", momentum)
    size = make_schedule(step_size)

    def init(x: Any) -> Any:
        return x, tnp.zeros_like(x), [tnp.zeros(n, x.dtype) for n in tnp.shape(x) or [()]]

    def update(step: Any, g: Any, state: Any) -> Any:
        x, mean, bounds = state
        others = [[k for k in range(x.ndim) if k != d] for d in range(len(bounds))]
        squares = functools.reduce(tnp.minimum, map(tnp.expand_dims, bounds, others)) + tnp.square(g)
        mean = (1 - momentum) * (g * _inverse_root(squares)) + momentum * mean
        return x - size(step) * mean, mean, [tnp.max(squares, axes) for axes in others]

    return init, update, _first


# --- step sizes -------------------------------------------------------------------------------------------------------


def make_schedule(scalar_or_schedule: float | Schedule) -> Schedule:
    """A step size as a function of the step: a number becomes a constant function, a function stays.

    Args:
        scalar_or_schedule: a number, or a function of the step.

    Returns:
        A function of the step.

    Raises:
        ArgumentError: an array that is no scalar.
        DTypeError: what is neither a number nor a function.

    >>> from tinyxla.example_libraries.optimizers import make_schedule
    >>> make_schedule(0.5)(100), make_schedule(lambda step: 1 / (1 + step))(1)
    (0.5, 0.5)
    """
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if tnp.ndim(scalar_or_schedule):
        raise ArgumentError(
            "optimizers.make_schedule: a step size must be a number or a function of the step, but has the shape "
            f"{tnp.shape(scalar_or_schedule)}."
        )
    return constant(scalar_or_schedule)


def _decay_steps(what: str, value: Any) -> Any:
    """A number of steps that is not 0 or less, as far as it is known."""
    _number(what, "decay_steps", value)
    if _is_known(value) and not number_of(f"optimizers.{what}", "decay_steps", value) > 0:
        raise ArgumentError(f"optimizers.{what}: decay_steps must be positive, but got {shown(value)}.")
    return value


def constant(step_size: Any) -> Schedule:
    """The step size that is the same at all steps.

    Args:
        step_size: a number: the step size at all steps.

    Returns:
        A function of the step.

    Raises:
        ArgumentError: an array that is no scalar.
        DTypeError: what is no number.

    >>> from tinyxla.example_libraries.optimizers import constant
    >>> constant(0.5)(100)
    0.5
    """
    _number("constant", "step_size", step_size)
    return lambda step: step_size


def exponential_decay(step_size: Any, decay_steps: Any, decay_rate: Any) -> Schedule:
    """`decay_rate` times as much after `decay_steps` steps.

    Args:
        step_size: a number: the step size at step 0.
        decay_steps: a number of steps, positive.
        decay_rate: a factor.

    Returns:
        A function of the step.

    Raises:
        ArgumentError: an array that is no scalar, or `decay_steps` that are not positive.
        DTypeError: an argument that is no number.

    >>> from tinyxla.example_libraries.optimizers import exponential_decay
    >>> float(exponential_decay(1.0, 10, 0.5)(20))
    0.25
    """
    what = "exponential_decay"
    _decay_steps(what, decay_steps)
    for name, value in (("step_size", step_size), ("decay_rate", decay_rate)):
        _number(what, name, value)
    return lambda step: step_size * decay_rate ** (step / decay_steps)


def inverse_time_decay(step_size: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False) -> Schedule:
    """1 / (1 + decay_rate t) times as much, t being the steps over `decay_steps`: as many as are whole, if `staircase`.

    Args:
        step_size: a number: the step size at step 0.
        decay_steps: a number of steps, positive.
        decay_rate: a factor.
        staircase: whether only whole multiples of `decay_steps` count.

    Returns:
        A function of the step.

    Raises:
        ArgumentError: an array that is no scalar, or `decay_steps` that are not positive.
        DTypeError: an argument that is no number.

    >>> from tinyxla.example_libraries.optimizers import inverse_time_decay
    >>> float(inverse_time_decay(1.0, 10, 1.0)(10))
    0.5
    """
    what = "inverse_time_decay"
    _decay_steps(what, decay_steps)
    for name, value in (("step_size", step_size), ("decay_rate", decay_rate)):
        _number(what, name, value)

    def schedule(step: Any) -> Any:
        time = tnp.floor(step / decay_steps) if staircase else step / decay_steps
        return step_size / (1 + decay_rate * time)

    return schedule


def polynomial_decay(step_size: Any, decay_steps: Any, final_step_size: Any, power: Any = 1.0) -> Schedule:
    """From `step_size` to `final_step_size` in `decay_steps` steps: what is left of the way is that power of what is
    left of the steps.

    Args:
        step_size: a number: the step size at step 0.
        decay_steps: a number of steps, positive.
        final_step_size: the step size after `decay_steps` steps.
        power: the exponent.

    Returns:
        A function of the step.

    Raises:
        ArgumentError: an array that is no scalar, or `decay_steps` that are not positive.
        DTypeError: an argument that is no number.

    >>> from tinyxla.example_libraries.optimizers import polynomial_decay
    >>> float(polynomial_decay(1.0, 10, 0.5)(5))
    0.75
    """
    what = "polynomial_decay"
    _decay_steps(what, decay_steps)
    for name, value in (("step_size", step_size), ("final_step_size", final_step_size), ("power", power)):
        _number(what, name, value)

    def schedule(step: Any) -> Any:
        left = 1 - tnp.minimum(step, decay_steps) / decay_steps
        return final_step_size + (step_size - final_step_size) * left**power

    return schedule


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """The first value up to and with the first boundary, and so on; there is one value more than boundaries.

    Args:
        boundaries: steps, ascending.
        values: step sizes.

    Returns:
        A function of the step.

    Raises:
        ArgumentError: boundaries that descend, or whose number is not one less than that of values.
        DTypeError: what are no numbers.
        ShapeError: what are no vectors.

    >>> from tinyxla.example_libraries.optimizers import piecewise_constant
    >>> schedule = piecewise_constant([10, 20], [1.0, 0.5, 0.25])
    >>> float(schedule(10)), float(schedule(11))
    (1.0, 0.5)
    """
    what = "optimizers.piecewise_constant"
    ends = vector_of(what, "boundaries", listed(boundaries, what))
    sizes = vector_of(what, "values", listed(values, what))
    if ends.size != sizes.size - 1:
        raise ArgumentError(
            f"{what}: there must be one value more than boundaries, but got {sizes.size} and {ends.size}."
        )
    if isinstance(ends, ConcreteArray) and bool(tnp.any(ends[1:] < ends[:-1])):
        raise ArgumentError(f"{what}: boundaries must ascend, but got {shown(boundaries)}.")
    return lambda step: sizes[tnp.sum(step > ends)]


# --- gradients and states ---------------------------------------------------------------------------------------------


def l2_norm(tree: Any) -> Array:
    """The root of the sum of the squares of all elements of a pytree.

    Args:
        tree: a pytree of arrays.

    Returns:
        A scalar.

    Raises:
        DTypeError: a leaf that is no number or array of numbers.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.example_libraries.optimizers import l2_norm
    >>> float(l2_norm([tnp.float32(3.0), tnp.float32(4.0)]))
    5.0
    """
    squares: Any = sum(tnp.vdot(x, x) for x in tree_leaves(tree))
    return tnp.sqrt(squares)


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients divided by as much as makes their `l2_norm` at most `max_norm`.

    Args:
        grad_tree: a pytree of arrays.
        max_norm: the largest norm: a number, not negative.

    Returns:
        A pytree of arrays.

    Raises:
        ArgumentError: a `max_norm` that is negative, or an array but no scalar.
        DTypeError: a `max_norm` or a leaf that is no number or array of numbers.

    >>> import tinyxla.numpy as tnp
    >>> from tinyxla.example_libraries.optimizers import clip_grads
    >>> clip_grads([tnp.float32(3.0), tnp.float32(-4.0)], 1.0)
    [Array(0.6, dtype=float32), Array(-0.8, dtype=float32)]
    """
    _number("clip_grads", "max_norm", max_norm)
    if _is_known(max_norm) and number_of("optimizers.clip_grads", "max_norm", max_norm) < 0:
        raise ArgumentError(f"optimizers.clip_grads: max_norm must not be negative, but got {shown(max_norm)}.")
    norm = l2_norm(grad_tree)
    return tree_map(lambda g: tnp.where(norm <= max_norm, g, g * (max_norm / norm)), grad_tree)


@register_pytree_node_class
class JoinPoint:
    """Marks where the states of single arrays begin in a pytree that `unpack_optimizer_state` gives.

    >>> from tinyxla.example_libraries.optimizers import JoinPoint, pack_optimizer_state
    >>> pack_optimizer_state({"x": JoinPoint((3.0, 0.5))}).states
    ((3.0, 0.5),)
    """

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.subtree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Sequence[Any]) -> JoinPoint:
        return cls(children[0])


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A pytree like the parameters, with the state of each array in a `JoinPoint`: what may be saved.

    Args:
        opt_state: a state.

    Returns:
        A pytree of `JoinPoint`s.

    Raises:
        ArgumentError: what is no state.

    >>> from tinyxla.example_libraries.optimizers import momentum, unpack_optimizer_state
    >>> state = momentum(0.1, 0.9).init_fn({"x": 1.0})
    >>> unpack_optimizer_state(state)["x"].subtree[0]
    1.0
    """
    if not isinstance(opt_state, OptimizerState):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            "optimizers.unpack_optimizer_state: takes the state that an optimizer's init_fn or update_fn gives, but "
            f"got {shown(opt_state)}."
        )
    return tree_unflatten(opt_state.structure, [JoinPoint(x) for x in opt_state.states])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of `unpack_optimizer_state`: a state from a pytree with a `JoinPoint` for each array.

    Args:
        marked_pytree: a pytree of `JoinPoint`s.

    Returns:
        A state.

    Raises:
        ArgumentError: a leaf that is no `JoinPoint`.

    >>> from tinyxla.example_libraries.optimizers import momentum, pack_optimizer_state, unpack_optimizer_state
    >>> state = momentum(0.1, 0.9).init_fn({"x": 1.0})
    >>> pack_optimizer_state(unpack_optimizer_state(state)).structure == state.structure
    True
    """
    marked, structure = tree_flatten(marked_pytree, is_leaf=lambda x: isinstance(x, JoinPoint))
    if not all(isinstance(x, JoinPoint) for x in marked):
        raise ArgumentError(
            "optimizers.pack_optimizer_state: every leaf must be a JoinPoint, as unpack_optimizer_state makes them."
        )
    return OptimizerState(tuple(x.subtree for x in marked), structure)


__all__ = [
    "JoinPoint",
    "Optimizer",
    "OptimizerState",
    "adagrad",
    "adam",
    "adamax",
    "clip_grads",
    "constant",
    "exponential_decay",
    "inverse_time_decay",
    "l2_norm",
    "make_schedule",
    "momentum",
    "nesterov",
    "optimizer",
    "pack_optimizer_state",
    "piecewise_constant",
    "polynomial_decay",
    "rmsprop",
    "rmsprop_momentum",
    "sgd",
    "sm3",
    "unpack_optimizer_state",
]


def __dir__() -> list[str]:
    return __all__
