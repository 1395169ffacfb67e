"""Workloads of one operation or loop each: windows, convolutions, order, indexing, loops, random bits, transforms.

`OPERATIONS` has for each a function `make(tx)` of the library, which gives the function to compile, and its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Function = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """`inputs(generator)` gives the arrays that the function takes."""

    name: str
    make: Callable[[Any], Function]
    inputs: Callable[[np.random.Generator], tuple[Any, ...]]


def _normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda generator: tuple(generator.standard_normal(shape, dtype=np.float32) for shape in shapes)


def _rows(generator: np.random.Generator) -> tuple[Any, ...]:
    table = generator.standard_normal((10_000, 64), dtype=np.float32)
    updates = generator.standard_normal((20_000, 64), dtype=np.float32)
    return table, generator.integers(0, 10_000, 20_000, dtype=np.int32), updates


def _max_pool(tx: Any) -> Function:
    window = (1, 2, 2, 1)
    return lambda x: tx.lax.reduce_window(x, -np.inf, tx.lax.max, window, window, "VALID")


def _convolution(tx: Any, groups: int = 1) -> Function:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lambda x, kernel: tx.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def _summed_gradient(function: Function, tx: Any, arguments: tuple[int, ...] = (0,)) -> Function:
    return tx.grad(lambda *x: tx.numpy.sum(function(*x) ** 2), arguments)


def _kalman(tx: Any) -> Function:
    """Means of a state of 4 numbers, of which 2 are measured, 500 times."""
    dynamics, seen = (
        np.eye(4, dtype=np.float32) + 0.1 * np.eye(4, k=2, dtype=np.float32),
        np.eye(2, 4, dtype=np.float32),
    )

    def step(carry: Any, measured: Any) -> tuple[Any, Any]:
        mean, spread = dynamics @ carry[0], dynamics @ carry[1] @ dynamics.T + 0.01 * tx.numpy.eye(4)
        gain = tx.numpy.linalg.solve(seen @ spread @ seen.T + 0.1 * tx.numpy.eye(2), seen @ spread).T
        mean, spread = mean + gain @ (measured - seen @ mean), spread - gain @ seen @ spread
        return (mean, spread), mean

    return lambda x: tx.lax.scan(step, (tx.numpy.zeros(4), tx.numpy.eye(4)), x)[1]


def _counting(tx: Any) -> Function:
    def step(carry: Any) -> tuple[Any, Any]:
        return carry[0] + 1, carry[1] * 0.999 + 1

    return lambda x: tx.lax.while_loop(lambda carry: carry[0] < 100_000, step, (0, x[0]))


def _lorenz(tx: Any, length: int = 1000) -> Function:
    """The last state of so many Runge-Kutta steps."""

    def slope(x: Any) -> Any:
        return tx.numpy.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    def step(x: Any, _: Any) -> tuple[Any, None]:
        k1 = slope(x)
        k2 = slope(x + 0.005 * k1)
        k3 = slope(x + 0.005 * k2)
        k4 = slope(x + 0.01 * k3)
        return x + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return lambda x: tx.numpy.sum(tx.lax.scan(step, x, None, length=length)[0])


def _lstm(tx: Any) -> Function:
    """The sum of the outputs of an LSTM of 64 units on a sequence of vectors."""
    xp, sigmoid = tx.numpy, tx.nn.sigmoid

    def cell(carry: Any, x: Any, weights: Any) -> tuple[Any, Any]:
        output, memory = carry
        into, forget, change, out = xp.split(xp.concatenate([x, output]) @ weights, 4)
        memory = sigmoid(forget) * memory + sigmoid(into) * xp.tanh(change)
        output = sigmoid(out) * xp.tanh(memory)
        return (output, memory), output

    def total(weights: Any, sequence: Any) -> Any:
        start = (xp.zeros(64), xp.zeros(64))
        return xp.sum(tx.lax.scan(lambda carry, x: cell(carry, x, weights), start, sequence)[1])

    return total


def _settling(tx: Any) -> Function:
    """A damped oscillator until it is at rest, after some 1,200 steps: a loop whose length a value decides. JAX has no
    derivative of that in reverse mode; there it is a scan of 2,000 steps, which do nothing once it is at rest."""

    def step(state: Any) -> Any:
        position, speed = state
        speed = speed - 0.01 * (tx.numpy.sin(position) + 0.5 * speed)
        return position + 0.01 * speed, speed

    def moves(state: Any) -> Any:
        return tx.numpy.max(tx.numpy.abs(state[0]) + tx.numpy.abs(state[1])) > 0.05

    def bounded(state: Any, _: Any) -> Any:
        return tx.lax.cond(moves(state), step, lambda state: state, state), None

    def last(x: Any) -> Any:
        start = (tx.numpy.tanh(x), tx.numpy.zeros_like(x))
        if tx.__name__ == "jax":
            return tx.numpy.sum(tx.lax.scan(bounded, start, None, length=2000)[0][0])
        return tx.numpy.sum(tx.lax.while_loop(moves, step, start)[0])

    return last


def _newton(tx: Any, each: Callable[[Any, Any, Any], Any]) -> Function:
    """Square roots of 1,000 numbers, each by as many steps as it takes."""

    def root(x: Any) -> Any:
        def better(state: Any) -> Any:
            y = 0.5 * (state[0] + x / state[0])
            return y, tx.numpy.abs(y - state[0])

        return tx.lax.while_loop(lambda state: state[1] > 1e-5 * state[0], better, (x, x))[0]

    return lambda x: each(tx, root, x * x + 1)


def _mandelbrot(tx: Any) -> Function:
    """After how many steps, at most 200, each point of a grid leaves the circle."""

    def steps(x: Any, y: Any) -> Any:
        def step(state: Any) -> Any:
            count, a, b = state
            return count + 1, a * a - b * b + x, 2 * a * b + y

        def inside(state: Any) -> Any:
            count, a, b = state
            return (count < 200) & (a * a + b * b < 4)

        return tx.lax.while_loop(inside, step, (0, 0 * x, 0 * y))[0]

    return tx.vmap(tx.vmap(steps, (0, None)), (None, 0))


def _plane(_: np.random.Generator) -> tuple[Any, ...]:
    return np.linspace(-2, 0.5, 200, dtype=np.float32), np.linspace(-1, 1, 100, dtype=np.float32)


def _switched(tx: Any) -> Function:
    """For each number one of three functions, two of which are loops."""

    def sines(x: Any) -> Any:
        return tx.lax.fori_loop(0, 10, lambda _, y: tx.numpy.sin(y), x)

    def shrink(x: Any) -> Any:
        return tx.lax.while_loop(lambda y: tx.numpy.abs(y) > 0.01, lambda y: 0.9 * y, x)

    return tx.vmap(lambda choice, x: tx.lax.switch(choice, [sines, shrink, lambda x: x + 1], x))


def _choices(generator: np.random.Generator) -> tuple[Any, ...]:
    return generator.integers(0, 3, 1000, dtype=np.int32), generator.standard_normal(1000, dtype=np.float32)


def _bodies(tx: Any) -> Function:
    """Three bodies that attract each other."""

    def pull(places: Any) -> Any:
        apart = places[None] - places[:, None]
        return tx.numpy.sum(apart * ((tx.numpy.sum(apart * apart, -1) + 0.01) ** -1.5)[..., None], 1)

    def step(state: Any, _: Any) -> tuple[Any, None]:
        places, speeds = state
        speeds = speeds + 0.01 * pull(places)
        return (places + 0.01 * speeds, speeds), None

    return lambda x, v: tx.numpy.sum(tx.lax.scan(step, (x, v), None, length=1000)[0][0])


def _collatz(tx: Any) -> Function:
    """How many steps each of 1,000 numbers takes to come to 1."""

    def steps(n: Any) -> Any:
        def step(state: Any) -> Any:
            count, n = state
            return count + 1, tx.numpy.where(n % 2 == 0, n // 2, 3 * n + 1)

        return tx.lax.while_loop(lambda state: state[1] > 1, step, (tx.numpy.int32(0), n))[0]

    return lambda n: tx.lax.map(steps, n)


def _power_iteration(tx: Any) -> Function:
    """The largest eigenvalue of a matrix, by 1,000 products with a vector."""
    xp = tx.numpy

    def step(state: Any) -> Any:
        count, x, a = state
        y = a @ x
        return count + 1, y / xp.sqrt(xp.sum(y * y)), a

    def largest(a: Any) -> Any:
        _, x, _ = tx.lax.while_loop(lambda state: state[0] < 1000, step, (0, xp.ones(8), a))
        return x @ (a @ x)

    return lambda a: largest(a @ a.T)


def _rosenbrock(tx: Any) -> Function:
    return lambda x: tx.numpy.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def _example_gradients(tx: Any) -> Function:
    """The gradients of a network's loss, for each example on its own."""

    def loss(weights: Any, example: Any) -> Any:
        hidden, out = weights
        return tx.numpy.sum(tx.numpy.tanh(tx.numpy.tanh(example @ hidden) @ out) ** 2)

    gradients = tx.vmap(tx.grad(loss), (None, 0))
    return lambda hidden, out, examples: gradients((hidden, out), examples)


def _normal_numbers(tx: Any) -> Function:
    return lambda x: tx.random.normal(tx.random.key(0), (10**6,)) + x


_IMAGES = ((8, 32, 32, 64), (3, 3, 64, 64))
_DEPTHWISE = ((8, 32, 32, 64), (3, 3, 1, 64))
_LSTM_SHAPES = ((128, 256), (200, 64))

OPERATIONS: tuple[Operation, ...] = (
    Operation("cumulative sum, 1e6", lambda tx: tx.numpy.cumsum, _normal((10**6,))),
    Operation("cumulative sum of rows, 1000 x 1000", lambda tx: lambda x: tx.numpy.cumsum(x, 1), _normal((1000, 1000))),
    Operation("max pool 2 x 2, 16 x 64 x 64 x 32", _max_pool, _normal((16, 64, 64, 32))),
    Operation("gradient of the max pool", lambda tx: _summed_gradient(_max_pool(tx), tx), _normal((16, 64, 64, 32))),
    Operation("convolution 3 x 3, 8 x 32 x 32, 64 to 64", _convolution, _normal(*_IMAGES)),
    Operation(
        "gradients of the convolution", lambda tx: _summed_gradient(_convolution(tx), tx, (0, 1)), _normal(*_IMAGES)
    ),
    Operation("depthwise convolution 3 x 3", lambda tx: _convolution(tx, 64), _normal(*_DEPTHWISE)),
    Operation("sort, 1e6", lambda tx: tx.numpy.sort, _normal((10**6,))),
    Operation("argsort, 1e5", lambda tx: tx.numpy.argsort, _normal((10**5,))),
    Operation("top 10 of rows, 64 x 10000", lambda tx: lambda x: tx.lax.top_k(x, 10), _normal((64, 10_000))),
    Operation("gather of 20000 rows", lambda tx: lambda x, i, u: x[i], _rows),
    Operation("scatter-add of 20000 rows", lambda tx: lambda x, i, u: x.at[i].add(u), _rows),
    Operation("while, 1e5 steps on scalars", _counting, _normal((1,))),
    Operation("Lorenz, 1000 steps", _lorenz, _normal((3,))),
    Operation("gradient of Lorenz", lambda tx: tx.grad(_lorenz(tx)), _normal((3,))),
    Operation("Lorenz, 10000 steps", lambda tx: _lorenz(tx, 10_000), _normal((3,))),
    Operation("gradient of 10000 steps of Lorenz", lambda tx: tx.grad(_lorenz(tx, 10_000)), _normal((3,))),
    Operation("oscillator until it rests", _settling, _normal((16,))),
    Operation("gradient of the oscillator", lambda tx: tx.grad(_settling(tx)), _normal((16,))),
    Operation(
        "Newton's method, 1000 times", lambda tx: _newton(tx, lambda tx, f, x: tx.lax.map(f, x)), _normal((1000,))
    ),
    Operation(
        "Newton's method, vmap of 1000", lambda tx: _newton(tx, lambda tx, f, x: tx.vmap(f)(x)), _normal((1000,))
    ),
    Operation("Mandelbrot set, vmap of 200 x 100", _mandelbrot, _plane),
    Operation("vmap of a switch between loops, 1000", _switched, _choices),
    Operation("three bodies, 1000 steps", _bodies, _normal((3, 2), (3, 2))),
    Operation("Collatz, 1000 numbers", _collatz, lambda generator: (np.arange(1, 1001, dtype=np.int32),)),
    Operation("power iteration, 8 x 8", _power_iteration, _normal((8, 8))),
    Operation("Hessian of Rosenbrock, 64", lambda tx: tx.hessian(_rosenbrock(tx)), _normal((64,))),
    Operation("gradients of 64 examples", _example_gradients, _normal((64, 128), (128, 8), (64, 64))),
    Operation("LSTM, 200 steps", _lstm, _normal(*_LSTM_SHAPES)),
    Operation("gradient of the LSTM", lambda tx: tx.grad(_lstm(tx)), _normal(*_LSTM_SHAPES)),
    Operation("normal numbers, 1e6", _normal_numbers, _normal((1,))),
    Operation("FFT of rows, 64 x 4096", lambda tx: lambda x: tx.numpy.abs(tx.numpy.fft.fft(x)), _normal((64, 4096))),
    Operation(
        "Cholesky, 300 x 300",
        lambda tx: lambda x: tx.numpy.linalg.cholesky(x @ x.T + 300 * tx.numpy.eye(300)),
        _normal((300, 300)),
    ),
    Operation(
        "1,000 systems of 4",
        lambda tx: lambda a, b: tx.numpy.linalg.solve(a + 4 * tx.numpy.eye(4), b),
        _normal((1000, 4, 4), (1000, 4, 1)),
    ),
    Operation("Kalman filter, 500 steps", _kalman, _normal((500, 2))),
)
