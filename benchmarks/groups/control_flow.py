"""Workloads: loops over numbers, recurrent networks, integrators, stencils, and iterations until they settle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Once, Workload, normal, uniform

# --- loops on a few numbers -------------------------------------------------------------------------------------------


def _counting(tx: Any) -> Function:
    def step(carry: Any) -> tuple[Any, Any]:
        return carry[0] + 1, carry[1] * 0.999 + 1

    return lambda x: tx.lax.while_loop(lambda carry: carry[0] < 100_000, step, (0, x[0]))


def _collatz(tx: Any) -> Function:
    """How many steps each of 1,000 numbers takes to come to 1."""

    def steps(n: Any) -> Any:
        def step(state: Any) -> Any:
            count, n = state
            return count + 1, tx.numpy.where(n % 2 == 0, n // 2, 3 * n + 1)

        return tx.lax.while_loop(lambda state: state[1] > 1, step, (tx.numpy.int32(0), n))[0]

    return lambda n: tx.lax.map(steps, n)


def _newton(tx: Any, each: Callable[[Any, Any, Any], Any]) -> Function:
    """Square roots of 1,000 numbers, each by as many steps as it takes."""

    def root(x: Any) -> Any:
        def better(state: Any) -> Any:
            y = 0.5 * (state[0] + x / state[0])
            return y, tx.numpy.abs(y - state[0])

        return tx.lax.while_loop(lambda state: state[1] > 1e-5 * state[0], better, (x, x))[0]

    return lambda x: each(tx, root, x * x + 1)


def _choosing(tx: Any) -> Function:
    """10,000 steps of a switch between three small functions."""
    branches = [lambda x: tx.numpy.sin(x), lambda x: 0.5 * x + 1, lambda x: x * x - 1]

    def step(k: Any, x: Any) -> Any:
        return tx.lax.switch(k % 3, branches, x)

    return lambda x: tx.lax.fori_loop(0, 10_000, step, x[0])


def _switched(tx: Any) -> Function:
    """For each number one of three functions, two of which are loops."""

    def sines(x: Any) -> Any:
        return tx.lax.fori_loop(0, 10, lambda _, y: tx.numpy.sin(y), x)

    def shrink(x: Any) -> Any:
        return tx.lax.while_loop(lambda y: tx.numpy.abs(y) > 0.01, lambda y: 0.9 * y, x)

    return tx.vmap(lambda choice, x: tx.lax.switch(choice, [sines, shrink, lambda x: x + 1], x))


def _choices(generator: np.random.Generator) -> tuple[Any, ...]:
    return generator.integers(0, 3, 1000, dtype=np.int32), generator.standard_normal(1000, dtype=np.float32)


def _bifurcation(tx: Any) -> Function:
    """The logistic map for 1,000 growth rates: 500 steps to settle, and the next 64 numbers."""

    def orbits(rates: Any) -> Any:
        def step(x: Any, _: Any) -> tuple[Any, Any]:
            x = rates * x * (1 - x)
            return x, x

        x = tx.lax.fori_loop(0, 500, lambda _, x: step(x, None)[0], 0.5 + 0 * rates)
        return tx.lax.scan(step, x, None, length=64)[1]

    return orbits


def _bifurcation_numpy(rates: Any) -> Any:
    x, orbit = np.full_like(rates, 0.5), np.empty((64, len(rates)), rates.dtype)
    for _ in range(500):
        x = rates * x * (1 - x)
    for k in range(64):
        x = orbit[k] = rates * x * (1 - x)
    return orbit


def _descent(tx: Any) -> Function:
    """1,000 steps down the Rosenbrock function of 10 numbers."""

    def height(x: Any) -> Any:
        return tx.numpy.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    return lambda x: tx.lax.fori_loop(0, 1000, lambda _, x: x - 1e-4 * tx.grad(height)(x), 0.1 * x)


# --- integrators ------------------------------------------------------------------------------------------------------


def _lorenz_step(tx: Any) -> Function:
    """A Runge-Kutta step."""

    def slope(x: Any) -> Any:
        return tx.numpy.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    def step(x: Any, _: Any) -> tuple[Any, None]:
        k1 = slope(x)
        k2 = slope(x + 0.005 * k1)
        k3 = slope(x + 0.005 * k2)
        k4 = slope(x + 0.01 * k3)
        return x + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return step


def _lorenz(tx: Any, length: int = 1000) -> Function:
    """The last state of so many steps."""
    step = _lorenz_step(tx)
    return lambda x: tx.numpy.sum(tx.lax.scan(step, x, None, length=length)[0])


def _many_lorenz(tx: Any) -> Function:
    """100 steps from 1,000 states."""
    step = _lorenz_step(tx)
    return tx.vmap(lambda x: tx.lax.scan(step, x, None, length=100)[0])


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


def _bodies(tx: Any, steps: int) -> Function:
    """Bodies that attract each other."""

    def pull(places: Any) -> Any:
        apart = places[None] - places[:, None]
        return tx.numpy.sum(apart * ((tx.numpy.sum(apart * apart, -1) + 0.01) ** -1.5)[..., None], 1)

    def step(state: Any, _: Any) -> tuple[Any, None]:
        places, speeds = state
        speeds = speeds + 0.01 / places.shape[0] * pull(places)
        return (places + 0.01 * speeds, speeds), None

    return lambda x, v: tx.numpy.sum(tx.lax.scan(step, (x, v), None, length=steps)[0][0])


# --- sequences --------------------------------------------------------------------------------------------------------


def _zeros(tx: Any, sequence: Any, units: int) -> Any:
    """The first state of a recurrent network, for a sequence of vectors or of batches of them."""
    return tx.numpy.zeros((*sequence.shape[1:-1], units))


def _lstm(tx: Any) -> Function:
    """The sum of the outputs of an LSTM of 64 units."""
    xp, sigmoid = tx.numpy, tx.nn.sigmoid

    def cell(carry: Any, x: Any, weights: Any) -> tuple[Any, Any]:
        output, memory = carry
        into, forget, change, out = xp.split(xp.concatenate([x, output], -1) @ weights, 4, -1)
        memory = sigmoid(forget) * memory + sigmoid(into) * xp.tanh(change)
        output = sigmoid(out) * xp.tanh(memory)
        return (output, memory), output

    def total(weights: Any, sequence: Any) -> Any:
        start = (_zeros(tx, sequence, 64), _zeros(tx, sequence, 64))
        return xp.sum(tx.lax.scan(lambda carry, x: cell(carry, x, weights), start, sequence)[1])

    return total


def _gru(tx: Any) -> Function:
    """The sum of the outputs of gated recurrent units, 64 of them."""
    xp, sigmoid = tx.numpy, tx.nn.sigmoid

    def total(inner: Any, outer: Any, bias: Any, sequence: Any) -> Any:
        def cell(state: Any, x: Any) -> tuple[Any, Any]:
            given, kept = x @ outer + bias, state @ inner
            reset = sigmoid(given[..., :64] + kept[..., :64])
            update = sigmoid(given[..., 64:128] + kept[..., 64:128])
            change = xp.tanh(given[..., 128:] + reset * kept[..., 128:])
            state = update * state + (1 - update) * change
            return state, state

        return xp.sum(tx.lax.scan(cell, _zeros(tx, sequence, 64), sequence)[1])

    return total


def _rnn(tx: Any) -> Function:
    """The sum of the outputs of a plain recurrent network of 128 units."""

    def total(inner: Any, outer: Any, bias: Any, sequence: Any) -> Any:
        def cell(state: Any, x: Any) -> tuple[Any, Any]:
            state = tx.numpy.tanh(state @ inner + x @ outer + bias)
            return state, state

        return tx.numpy.sum(tx.lax.scan(cell, _zeros(tx, sequence, 128), sequence)[1])

    return total


def _weights(steps: tuple[int, ...], *shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Small weights, and a sequence of vectors of 64."""
    make = normal(*shapes, (*steps, 64))

    def inputs(generator: np.random.Generator) -> tuple[Any, ...]:
        *weights, sequence = make(generator)
        return (*(0.1 * w for w in weights), sequence)

    return inputs


def _gradient(make: Callable[[Any], Function], count: int) -> Callable[[Any], Function]:
    return lambda tx: tx.grad(make(tx), tuple(range(count)))


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


def _recurrence(tx: Any) -> Function:
    """x[t] = a[t] x[t - 1] + b[t], of 64 columns, as an associative scan."""

    def joined(first: Any, second: Any) -> Any:
        return first[0] * second[0], first[1] * second[0] + second[1]

    return lambda a, b: tx.lax.associative_scan(joined, (a, b))[1]


def _running(tx: Any) -> Function:
    """Running means and variances of rows, by Welford's method."""

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        count, mean, squares = state
        count = count + 1
        change = x - mean
        mean = mean + change / count
        squares = squares + change * (x - mean)
        return (count, mean, squares), (mean, squares / count)

    def scan(rows: Any) -> Any:
        zeros = tx.numpy.zeros(rows.shape[1:])
        return tx.lax.scan(step, (0.0, zeros, zeros), rows)[1]

    return scan


def _distance(tx: Any) -> Function:
    """The edit distance of two texts, row by row of the table; along a row, the least sum is a cumulative minimum."""
    xp = tx.numpy

    def distance(a: Any, b: Any) -> Any:
        places = xp.arange(b.shape[0] + 1)

        def step(row: Any, letter: Any) -> tuple[Any, None]:
            kept = xp.minimum(row[1:] + 1, row[:-1] + (b != letter))
            following = xp.concatenate([row[:1] + 1, kept])
            return tx.lax.cummin(following - places) + places, None

        return tx.lax.scan(step, places, a)[0][-1]

    return distance


def _texts(generator: np.random.Generator) -> tuple[Any, ...]:
    return generator.integers(0, 4, 300, dtype=np.int32), generator.integers(0, 4, 300, dtype=np.int32)


# --- grids ------------------------------------------------------------------------------------------------------------


def _heat(tx: Any) -> Function:
    """50 steps of diffusion on a plate whose edge keeps its temperature."""

    def step(_: Any, x: Any) -> Any:
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return x.at[1:-1, 1:-1].add(0.2 * (around - 4 * x[1:-1, 1:-1]))

    return lambda x: tx.lax.fori_loop(0, 50, step, x)


def _heat_numpy(x: Any) -> Any:
    x = x.copy()
    for _ in range(50):
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        x[1:-1, 1:-1] += 0.2 * (around - 4 * x[1:-1, 1:-1])
    return x


def _wave(tx: Any) -> Function:
    """50 steps of a wave on a torus, by `roll`."""
    roll = tx.numpy.roll

    def step(state: Any, _: Any) -> tuple[Any, None]:
        now, before = state
        bend = roll(now, 1, 0) + roll(now, -1, 0) + roll(now, 1, 1) + roll(now, -1, 1) - 4 * now
        return (2 * now - before + 0.1 * bend, now), None

    return lambda x: tx.lax.scan(step, (x, x), None, length=50)[0][0]


def _life(tx: Any) -> Function:
    """50 generations of the game of life on a torus."""
    xp = tx.numpy

    def step(_: Any, cells: Any) -> Any:
        around = sum(xp.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        return ((around == 3) | ((around == 2) & (cells == 1))).astype(xp.int32)

    return lambda cells: tx.lax.fori_loop(0, 50, step, cells)


def _life_numpy(cells: Any) -> Any:
    for _ in range(50):
        around = sum(np.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        cells = ((around == 3) | ((around == 2) & (cells == 1))).astype(np.int32)
    return cells


def _cells(generator: np.random.Generator) -> tuple[Any, ...]:
    return (generator.integers(0, 2, (256, 256), dtype=np.int32),)


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


def _mandelbrot_grid(tx: Any) -> Function:
    """The same for 100 steps, all points together."""
    xp = tx.numpy

    def counts(x: Any, y: Any) -> Any:
        x, y = xp.meshgrid(x, y)

        def step(_: Any, state: Any) -> Any:
            count, a, b = state
            inside = a * a + b * b < 4
            a, b = xp.where(inside, a * a - b * b + x, a), xp.where(inside, 2 * a * b + y, b)
            return count + inside, a, b

        return tx.lax.fori_loop(0, 100, step, (xp.zeros(x.shape, xp.int32), 0 * x, 0 * y))[0]

    return counts


def _mandelbrot_numpy(x: Any, y: Any) -> Any:
    x, y = np.meshgrid(x, y)
    count, a, b = np.zeros(x.shape, np.int32), np.zeros_like(x), np.zeros_like(x)
    for _ in range(100):
        inside = a * a + b * b < 4
        a, b = np.where(inside, a * a - b * b + x, a), np.where(inside, 2 * a * b + y, b)
        count += inside
    return count


def _plane(_: np.random.Generator) -> tuple[Any, ...]:
    return np.linspace(-2, 0.5, 200, dtype=np.float32), np.linspace(-1, 1, 100, dtype=np.float32)


# --- matrices ---------------------------------------------------------------------------------------------------------


def _power_iteration(tx: Any) -> Function:
    """The largest eigenvalue of a matrix, by 1,000 products with a vector."""
    xp = tx.numpy

    def step(state: Any) -> Any:
        count, x, a = state
        y = a @ x
        return count + 1, y / xp.sqrt(xp.sum(y * y)), a

    def largest(a: Any) -> Any:
        _, x, _ = tx.lax.while_loop(lambda state: state[0] < 1000, step, (0, xp.ones(a.shape[0]), a))
        return x @ (a @ x)

    return lambda a: largest(a @ a.T)


def _matrix_power(tx: Any) -> Function:
    """The 50th power of a matrix of 64 x 64."""
    return lambda a: tx.lax.fori_loop(0, 50, lambda _, x: 0.1 * (x @ a), a)


def _matrix_power_numpy(a: Any) -> Any:
    x = a
    for _ in range(50):
        x = np.float32(0.1) * (x @ a)
    return x


def _each(tx: Any, function: Function, x: Any) -> Any:
    return tx.lax.map(function, x)


_LSTM = ((128, 256),)
_GRU = ((64, 192), (64, 192), (192,))
_RNN = ((128, 128), (64, 128), (128,))

WORKLOADS: tuple[Workload | Calls | Once, ...] = (
    Workload("while, 1e5 steps on scalars", _counting, normal((1,))),
    Workload("Collatz, 1000 numbers", _collatz, lambda generator: (np.arange(1, 1001, dtype=np.int32),)),
    Workload("Newton's method, 1000 times", lambda tx: _newton(tx, _each), normal((1000,))),
    Workload("Newton's method, vmap of 1000", lambda tx: _newton(tx, lambda tx, f, x: tx.vmap(f)(x)), normal((1000,))),
    Workload("switch in a loop, 1e4 steps", _choosing, normal((1,))),
    Workload("vmap of a switch between loops, 1000", _switched, _choices),
    Workload(
        "logistic map, 1000 rates",
        _bifurcation,
        lambda generator: (np.linspace(2.5, 4, 1000, dtype=np.float32),),
        numpy=_bifurcation_numpy,
    ),
    Workload("gradient descent, 1000 steps", _descent, normal((10,))),
    Workload("Lorenz, 1000 steps", _lorenz, normal((3,))),
    Workload("gradient of Lorenz", lambda tx: tx.grad(_lorenz(tx)), normal((3,))),
    Workload("Lorenz, 10000 steps", lambda tx: _lorenz(tx, 10_000), normal((3,))),
    Workload("gradient of 10000 steps of Lorenz", lambda tx: tx.grad(_lorenz(tx, 10_000)), normal((3,))),
    Workload("Lorenz, vmap of 1000 states", _many_lorenz, normal((1000, 3))),
    Workload("oscillator until it rests", _settling, normal((16,))),
    Workload("gradient of the oscillator", lambda tx: tx.grad(_settling(tx)), normal((16,))),
    Workload("three bodies, 1000 steps", lambda tx: _bodies(tx, 1000), normal((3, 2), (3, 2))),
    Workload("1000 bodies, 5 steps", lambda tx: _bodies(tx, 5), normal((1000, 3), (1000, 3))),
    Workload("LSTM, 200 steps", _lstm, _weights((200,), *_LSTM)),
    Workload("gradient of the LSTM", _gradient(_lstm, 1), _weights((200,), *_LSTM)),
    Workload("LSTM, 100 steps of 32", _lstm, _weights((100, 32), *_LSTM)),
    Workload("gradient of the LSTM, 100 steps of 32", _gradient(_lstm, 1), _weights((100, 32), *_LSTM)),
    Workload("GRU, 200 steps", _gru, _weights((200,), *_GRU)),
    Workload("gradient of the GRU", _gradient(_gru, 3), _weights((200,), *_GRU)),
    Workload("recurrent network of 128, 200 steps", _rnn, _weights((200,), *_RNN)),
    Workload("gradient of the recurrent network", _gradient(_rnn, 3), _weights((200,), *_RNN)),
    Workload("Kalman filter, 500 steps", _kalman, normal((500, 2))),
    Workload(
        "gradient of the Kalman filter",
        lambda tx: tx.grad(lambda x: tx.numpy.sum(_kalman(tx)(x) ** 2)),
        normal((500, 2)),
    ),
    Workload("linear recurrence, associative scan of 4096 x 64", _recurrence, uniform((4096, 64), (4096, 64))),
    Workload("running mean and variance, 1000 x 256", _running, normal((1000, 256))),
    Workload("edit distance, 300 x 300", _distance, _texts),
    Workload("heat, 512 x 512, 50 steps", _heat, normal((512, 512)), numpy=_heat_numpy),
    Workload("waves, 512 x 512, 50 steps", _wave, normal((512, 512))),
    Workload("game of life, 256 x 256, 50 steps", _life, _cells, numpy=_life_numpy),
    Workload("Mandelbrot set, vmap of 200 x 100", _mandelbrot, _plane),
    Workload("Mandelbrot set, 200 x 100, 100 steps", _mandelbrot_grid, _plane, numpy=_mandelbrot_numpy),
    Workload("power iteration, 8 x 8", _power_iteration, normal((8, 8))),
    Workload("power iteration, 100 x 100", _power_iteration, normal((100, 100))),
    Workload("powers of a matrix, 64 x 64", _matrix_power, normal((64, 64)), numpy=_matrix_power_numpy),
)
