"""Programs in plain NumPy, in the style of autograd's examples: only the gradient comes from here. They run as
they are, and under `jit` where no Python decision needs a value; gradients are checked against finite differences."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import tinyxla
from tinyxla import elementwise_grad, grad, hessian, jacobian, jvp, tree, value_and_grad, vjp
from tinyxla.errors import TracerArrayConversionError


@pytest.fixture(autouse=True)
def _sixty_four_bits() -> Iterator[None]:
    tinyxla.config.update("enable_x64", True)
    yield
    tinyxla.config.update("enable_x64", False)


def check_gradient(loss: Callable[..., Any], *args: Any, jit: bool = True, tolerance: float = 1e-6) -> Any:
    """The gradient by the first argument, checked along random directions, and compiled."""
    found = grad(loss)(*args)
    if jit:
        compiled = tinyxla.jit(grad(loss))(*args)
        for a, b in zip(tree.leaves(compiled), tree.leaves(found), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 1e-7, 1e-9)
    rng = np.random.default_rng(7)
    for _ in range(2):
        direction = tree.map(lambda x: rng.normal(size=np.shape(x)), args[0])
        ahead, behind = (tree.map(lambda x, d, h=h: x + h * d, args[0], direction) for h in (1e-5, -1e-5))
        difference = (loss(ahead, *args[1:]) - loss(behind, *args[1:])) / 2e-5
        along = sum(np.sum(np.asarray(g) * d) for g, d in zip(tree.leaves(found), tree.leaves(direction), strict=True))
        np.testing.assert_allclose(along, difference, tolerance, tolerance)
    return found


# --- calculus ---------------------------------------------------------------------------------------------------------


def test_six_derivatives_of_tanh() -> None:
    def tanh(x: Any) -> Any:
        y = np.exp(-2.0 * x)
        return (1.0 - y) / (1.0 + y)

    x = np.linspace(-3, 3, 13)
    derivative, known = tanh, np.polynomial.Polynomial([0.0, 1.0])  # a polynomial in tanh(x)
    for _ in range(6):
        derivative = elementwise_grad(derivative)
        known = known.deriv() * np.polynomial.Polynomial([1.0, 0.0, -1.0])
        np.testing.assert_allclose(derivative(x), known(np.tanh(x)), 1e-9, 1e-9)
    scalar = tanh
    for _ in range(6):
        scalar = grad(scalar)
    np.testing.assert_allclose(scalar(0.4), known(np.tanh(0.4)), 1e-9)
    np.testing.assert_allclose(tinyxla.jit(grad(grad(tanh)))(0.4), grad(grad(tanh))(0.4), 1e-8)


def test_series_that_stops_when_it_is_accurate() -> None:
    def sine(x: Any) -> Any:
        total = term = x
        k = 1
        while np.abs(term) > 1e-12:
            term = -term * x * x / ((k + 1) * (k + 2))
            total = total + term
            k += 2
        return total

    assert float(sine(1.2)) == pytest.approx(np.sin(1.2))
    for order, known in enumerate([np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)], 1):
        derivative = functools.reduce(lambda f, _: grad(f), range(order), sine)
        assert float(derivative(1.2)) == pytest.approx(known(1.2), rel=1e-8)


def test_square_root_by_newton_with_python_loop() -> None:
    def root(a: Any) -> Any:
        x = a
        while abs(x * x - a) > 1e-12:
            x = 0.5 * (x + a / x)
        return x

    assert float(grad(root)(2.0)) == pytest.approx(0.5 / np.sqrt(2.0))


def test_gradient_by_other_arguments() -> None:
    def f(x: Any, y: Any, scale: float = 1.0) -> Any:
        return np.sum(x * y**2) * scale

    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    np.testing.assert_allclose(grad(f, 1)(x, y), 2 * x * y)
    np.testing.assert_allclose(grad(f, 1)(x, y, scale=2.0), 4 * x * y)
    by_both = grad(f, (0, 1))(x, y)
    np.testing.assert_allclose(by_both[0], y**2)
    value, gradient = value_and_grad(f)(x, y)
    assert float(value) == 41.0
    np.testing.assert_allclose(gradient, y**2)
    np.testing.assert_allclose(jacobian(lambda x: x * np.sum(x))(x), 3 * np.eye(2) + x[:, None])
    np.testing.assert_allclose(hessian(lambda x: np.sum(x) ** 3)(x), np.full((2, 2), 18.0))
    result, back = vjp(np.sin, x)
    np.testing.assert_allclose(back(result)[0], np.sin(x) * np.cos(x))
    by_vector = jvp(grad(lambda x: np.sum(x**3)), (x,), (y,))[1]  # the Hessian times a vector
    np.testing.assert_allclose(by_vector, 6 * x * y)


def test_gradient_of_containers() -> None:
    def loss(parameters: dict[str, Any], x: Any) -> Any:
        hidden = x
        for weights, bias in parameters["layers"]:
            hidden = np.tanh(np.dot(hidden, weights) + bias)
        return np.mean(hidden**2) * parameters["scale"]

    rng = np.random.default_rng(0)
    parameters = {"layers": [(rng.normal(size=(3, 4)), rng.normal(size=4)), (rng.normal(size=(4, 2)), np.zeros(2))]}
    found = check_gradient(loss, {**parameters, "scale": 2.0}, rng.normal(size=(5, 3)))
    assert found["layers"][1][0].shape == (4, 2)


# --- models -----------------------------------------------------------------------------------------------------------


def test_logistic_regression() -> None:
    inputs = np.array([[0.52, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]])
    labels = np.array([True, True, False, True])

    def predictions(weights: Any) -> Any:
        return 0.5 * (np.tanh(np.dot(inputs, weights) / 2) + 1)

    def loss(weights: Any) -> Any:
        p = predictions(weights)
        return -np.sum(np.log(p * labels + (1 - p) * (1 - labels)))

    weights = np.zeros(3)
    check_gradient(loss, weights)
    first = loss(weights)
    for _ in range(100):
        weights = weights - 0.1 * grad(loss)(weights)
    assert loss(weights) < first / 5
    before = np.array([0.1, 0.2, 0.3])
    before -= 0.01 * grad(loss)(before)  # into an array of NumPy's
    assert isinstance(before, np.ndarray)


def test_neural_network_with_minibatches() -> None:
    rng = np.random.default_rng(1)
    images = rng.normal(size=(60, 8))
    classes = (images[:, 0] > 0).astype(int) + (images[:, 1] > 0)
    targets = np.eye(3)[classes]
    sizes = [8, 12, 3]
    parameters = [(0.3 * rng.normal(size=(m, n)), np.zeros(n)) for m, n in itertools.pairwise(sizes)]

    def logits(parameters: Any, inputs: Any) -> Any:
        for w, b in parameters:
            outputs = np.dot(inputs, w) + b
            inputs = np.maximum(outputs, 0)
        return outputs - np.log(np.sum(np.exp(outputs), axis=1, keepdims=True))

    def loss(parameters: Any, inputs: Any, targets: Any) -> Any:
        return -np.mean(np.sum(logits(parameters, inputs) * targets, axis=1))

    check_gradient(loss, parameters, images[:20], targets[:20])
    for _ in range(30):
        order = rng.permutation(60)
        for start in range(0, 60, 20):
            batch = order[start : start + 20]
            gradient = grad(loss)(parameters, images[batch], targets[batch])
            parameters = [(w - 0.5 * dw, b - 0.5 * db) for (w, b), (dw, db) in zip(parameters, gradient, strict=True)]
    accuracy = np.mean(np.argmax(logits(parameters, images), axis=1) == classes)
    assert float(accuracy) > 0.85


def test_recurrent_network() -> None:
    rng = np.random.default_rng(2)
    parameters = {"change": 0.5 * rng.normal(size=(3 + 5 + 1, 5)), "predict": rng.normal(size=(6, 3))}

    def concat_and_multiply(weights: Any, *inputs: Any) -> Any:
        ones = np.ones((inputs[0].shape[0], 1))
        return np.dot(np.hstack((*inputs, ones)), weights)

    def loss(parameters: Any, sequence: Any) -> Any:
        hidden = np.repeat(np.zeros((1, 5)), sequence.shape[1], axis=0)
        total = 0.0
        for now, after in itertools.pairwise(sequence):
            hidden = np.tanh(concat_and_multiply(parameters["change"], now, hidden))
            output = concat_and_multiply(parameters["predict"], hidden)
            total = total - np.sum(after * (output - np.log(np.sum(np.exp(output), 1, keepdims=True))))
        return total

    check_gradient(loss, parameters, np.eye(3)[rng.integers(0, 3, (6, 2))])


def test_lstm_written_with_split() -> None:
    rng = np.random.default_rng(3)

    def loss(weights: Any, sequence: Any) -> Any:
        hidden, cell = np.zeros(4), np.zeros(4)
        for x in sequence:
            gates = np.split(np.dot(weights, np.concatenate([x, hidden, [1.0]])), 4)
            keep, write, show = (0.5 * (np.tanh(g) + 1) for g in gates[:3])
            cell = keep * cell + write * np.tanh(gates[3])
            hidden = show * np.tanh(cell)
        return np.linalg.norm(hidden - 0.1) ** 2

    check_gradient(loss, rng.normal(size=(16, 2 + 4 + 1)), rng.normal(size=(2, 2)))


def test_convolutional_layer_by_windows() -> None:
    rng = np.random.default_rng(4)
    image = rng.normal(size=(8, 8))

    def loss(kernel: Any) -> Any:
        windows = np.stack([image[i : i + 6, j : j + 6] for i in range(3) for j in range(3)], axis=-1)
        responses = np.maximum(np.tensordot(windows, np.ravel(kernel), axes=1), 0)
        pooled = responses.reshape(3, 2, 3, 2).max(axis=(1, 3))
        return np.sum(pooled**2)

    check_gradient(loss, rng.normal(size=(3, 3)))


def test_gaussian_mixture() -> None:
    rng = np.random.default_rng(5)
    data = np.concatenate([rng.normal(-2, 0.5, (20, 2)), rng.normal(2, 0.5, (20, 2))])

    def log_density(parameters: Any) -> Any:
        weights = parameters["weights"] - np.log(np.sum(np.exp(parameters["weights"])))
        scores = []
        for weight, mean, root in zip(weights, parameters["means"], parameters["roots"], strict=True):
            precision = np.dot(root, root.T) + 0.1 * np.eye(2)
            from_mean = data - mean
            distance = np.einsum("ni,ij,nj->n", from_mean, precision, from_mean)
            scores.append(weight + 0.5 * np.linalg.slogdet(precision)[1] - np.log(2 * np.pi) - 0.5 * distance)
        stacked = np.vstack(scores)
        largest = np.max(stacked, axis=0)
        return np.sum(largest + np.log(np.sum(np.exp(stacked - largest), axis=0)))

    def loss(parameters: Any) -> Any:
        return -log_density(parameters) / len(data)

    parameters = {"weights": np.zeros(2), "means": rng.normal(size=(2, 2)), "roots": np.stack([np.eye(2)] * 2)}
    check_gradient(loss, parameters)
    first = float(loss(parameters))
    for _ in range(40):
        parameters = tree.map(lambda x, g: x - 0.2 * g, parameters, tinyxla.jit(grad(loss))(parameters))
    assert float(loss(parameters)) < first - 0.5


def test_gaussian_process() -> None:
    x = np.linspace(0, 4, 12)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * np.random.default_rng(13).normal(size=12)

    def covariance(parameters: Any, a: Any, b: Any) -> Any:
        scaled = (a[:, None, :] - b[None, :, :]) / np.exp(parameters[1])
        return np.exp(parameters[0]) * np.exp(-0.5 * np.sum(scaled**2, axis=2))

    def loss(parameters: Any) -> Any:
        noisy = covariance(parameters, x, x) + np.exp(parameters[2]) * np.eye(len(y))
        root = np.linalg.cholesky(noisy)
        solved = np.linalg.solve(noisy, y)
        return 0.5 * np.dot(y, solved) + np.sum(np.log(np.diag(root))) + 0.5 * len(y) * np.log(2 * np.pi)

    start = np.array([0.1, -0.3, -2.0])
    check_gradient(loss, start)
    found = scipy.optimize.minimize(tinyxla.jit(value_and_grad(loss)), start, jac=True, method="BFGS")
    assert loss(np.asarray(found.x)) < loss(start) - 1
    assert np.linalg.norm(np.asarray(grad(loss)(found.x))) < 1e-3


def test_black_box_variational_inference() -> None:
    noise = np.random.default_rng(6).normal(size=(200, 2))
    entropy_constant = 0.5 * 2 * (1.0 + np.log(2 * np.pi))

    def log_density(z: Any) -> Any:
        return -0.5 * (z[:, 0] / 1.3) ** 2 - 0.5 * ((z[:, 1] - 1.0) / np.exp(0.5 * z[:, 0])) ** 2 - 0.5 * z[:, 0]

    def objective(parameters: Any) -> Any:
        mean, log_scale = parameters[:2], parameters[2:]
        samples = noise * np.exp(log_scale) + mean
        return -(entropy_constant + np.sum(log_scale) + np.mean(log_density(samples)))

    parameters = np.array([-1.0, -1.0, -1.0, -1.0])
    check_gradient(objective, parameters)
    velocity = np.zeros(4)
    for _ in range(150):
        velocity = 0.8 * velocity - 0.05 * grad(objective)(parameters)
        parameters = parameters + velocity
    assert abs(float(parameters[1]) - 1.0) < 0.2


def test_k_means_by_newton() -> None:
    rng = np.random.default_rng(8)
    data = np.concatenate([rng.normal(m, 0.3, (15, 2)) for m in (-2.0, 0.0, 2.0)])

    def loss(centres: Any) -> Any:
        distances = np.sum((data[:, None] - centres.reshape(3, 2)) ** 2, axis=2)
        return np.sum(np.min(distances, axis=1))

    centres = np.array([-1.0, -1.0, 0.3, 0.2, 1.0, 1.5])
    check_gradient(loss, centres)
    for _ in range(4):
        centres = centres - np.linalg.solve(hessian(loss)(centres), grad(loss)(centres))
    close = np.argmin(np.sum((data[:, None] - np.asarray(centres).reshape(3, 2)) ** 2, axis=2), axis=1)
    expected = np.stack([data[close == k].mean(0) for k in range(3)])
    np.testing.assert_allclose(np.asarray(centres).reshape(3, 2), expected, 1e-6)


def test_sinusoid_by_adam() -> None:
    t = np.linspace(0, 2, 50)
    data = 1.5 * np.sin(3.0 * t + 0.4)

    def loss(parameters: Any, step: int) -> Any:
        amplitude, frequency, phase = parameters
        return np.mean((amplitude * np.sin(frequency * t + phase) - data) ** 2)

    def adam(gradient: Callable[..., Any], x: Any, steps: int, rate: float = 0.03) -> Any:
        m, v = np.zeros(len(x)), np.zeros(len(x))
        for i in range(steps):
            g = gradient(x, i)
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            x = x - rate * (m / (1 - 0.9 ** (i + 1))) / (np.sqrt(v / (1 - 0.999 ** (i + 1))) + 1e-8)
        return x

    check_gradient(loss, np.array([1.0, 2.5, 0.0]), 0)
    np.testing.assert_allclose(adam(tinyxla.jit(grad(loss)), np.array([1.0, 2.5, 0.0]), 400), [1.5, 3.0, 0.4], 0.02)


def test_fluid_advected_on_a_torus() -> None:
    rng = np.random.default_rng(9)
    rows, columns = 6, 7
    smoke = rng.uniform(size=(rows, columns))

    def project(vx: Any, vy: Any) -> Any:
        """Without divergence, by Jacobi iterations for the pressure."""
        pressure = np.zeros(vx.shape)
        div = -0.5 * (np.roll(vx, -1, 1) - np.roll(vx, 1, 1) + np.roll(vy, -1, 0) - np.roll(vy, 1, 0))
        for _ in range(2):
            around = np.roll(pressure, 1, 1) + np.roll(pressure, -1, 1) + np.roll(pressure, 1, 0)
            pressure = (div + around + np.roll(pressure, -1, 0)) / 4.0
        return (
            vx - 0.5 * (np.roll(pressure, -1, 1) - np.roll(pressure, 1, 1)),
            vy - 0.5 * (np.roll(pressure, -1, 0) - np.roll(pressure, 1, 0)),
        )

    def advect(f: Any, vx: Any, vy: Any) -> Any:
        """What is carried there, by bilinear interpolation."""
        cell_y, cell_x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        from_x, from_y = (cell_x - vx).ravel(), (cell_y - vy).ravel()
        left, top = np.floor(from_x).astype(int), np.floor(from_y).astype(int)
        wx, wy = from_x - left, from_y - top
        left, right, top, bottom = left % columns, (left + 1) % columns, top % rows, (top + 1) % rows
        flat = (1 - wx) * ((1 - wy) * f[top, left] + wy * f[bottom, left])
        return np.reshape(flat + wx * ((1 - wy) * f[top, right] + wy * f[bottom, right]), (rows, columns))

    def loss(velocities: Any) -> Any:
        vx, vy = velocities
        f = smoke
        vx, vy = advect(vx, vx, vy), advect(vy, vx, vy)
        vx, vy = project(vx, vy)
        f = advect(f, vx, vy)
        return np.mean((f - np.roll(smoke, 2, 1)) ** 2)

    velocities = rng.normal(size=(2, rows, columns)) * 0.3
    check_gradient(loss, velocities, jit=False)
    with pytest.raises(TracerArrayConversionError, match="index one by a traced array"):
        tinyxla.jit(grad(loss))(velocities)
    plain, smoke = smoke, tinyxla.numpy.asarray(smoke)  # one of NumPy's cannot be indexed by what has no value yet
    compiled = tinyxla.jit(grad(loss))(velocities)
    smoke = plain
    np.testing.assert_allclose(compiled, grad(loss)(velocities), 1e-8, 1e-10)


def test_wave_equation_stencil() -> None:
    start = np.exp(-(np.linspace(-3, 3, 16) ** 2))

    def loss(speed: Any) -> Any:
        u = before = start
        for _ in range(4):
            u, before = 2 * u - before + speed**2 * (np.roll(u, 1) - 2 * u + np.roll(u, -1)), u
        return np.sum(np.where(u > 0, u, 0.1 * u) ** 2)

    check_gradient(loss, 0.4 * np.ones(16))


def test_deblurring_by_fft() -> None:
    rng = np.random.default_rng(10)
    kernel = np.pad(np.array([0.25, 0.5, 0.25]), (0, 13))
    transfer = np.fft.rfft(kernel)
    truth = rng.normal(size=16)
    blurred = np.fft.irfft(np.fft.rfft(truth) * transfer, 16)

    def loss(x: Any) -> Any:
        back = np.fft.irfft(np.fft.rfft(x) * transfer, n=16)
        spectrum = np.abs(np.fft.fft(x)) ** 2
        return np.sum((back - blurred) ** 2) + 1e-4 * np.sum(spectrum[8:])

    check_gradient(loss, np.zeros(16) + 0.1)


def test_ode_by_runge_kutta() -> None:
    def integrate(f: Any, y: Any, times: Any) -> Any:
        yield y
        for t0, t1 in itertools.pairwise(times):
            h = t1 - t0
            k1 = f(y, t0)
            k2 = f(y + h / 2 * k1, t0 + h / 2)
            k3 = f(y + h / 2 * k2, t0 + h / 2)
            k4 = f(y + h * k3, t1)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            yield y

    def loss(parameters: Any) -> Any:
        a, b = parameters

        def predator_prey(y: Any, t: Any) -> Any:
            return np.stack([a * y[0] - y[0] * y[1], -b * y[1] + y[0] * y[1]])

        path = np.stack(list(integrate(predator_prey, np.array([1.0, 0.5]), np.linspace(0, 1, 4))))
        return np.sum(path[-1] ** 2) + np.max(path[:, 0])

    check_gradient(loss, np.array([1.1, 0.7]))


def test_adaptive_quadrature() -> None:
    def integral(f: Any, a: Any, b: Any, depth: int = 0) -> Any:
        middle = (a + b) / 2
        whole = (b - a) / 6 * (f(a) + 4 * f(middle) + f(b))
        halves = (b - a) / 12 * (f(a) + 4 * f((a + middle) / 2) + 2 * f(middle) + 4 * f((middle + b) / 2) + f(b))
        if abs(whole - halves) < 1e-7 or depth > 12:
            return halves
        return integral(f, a, middle, depth + 1) + integral(f, middle, b, depth + 1)

    def area(rate: Any) -> Any:
        return integral(lambda t: np.exp(-rate * t) * np.cos(t), 0.0, 3.0)

    check_gradient(area, 0.7, jit=False, tolerance=1e-5)


def test_evolution_by_natural_gradient() -> None:
    rng = np.random.default_rng(11)

    def log_normal(parameters: Any, x: Any) -> Any:
        mean, log_scale = np.split(parameters, 2)
        return np.sum(-0.5 * ((x - mean) / np.exp(log_scale)) ** 2 - log_scale, axis=-1)

    def fitness(x: Any) -> Any:
        return -np.sum((x - np.array([1.0, -0.5])) ** 2, axis=-1)

    parameters = np.zeros(4)
    scores = jacobian(log_normal)  # a row for each sample
    for _ in range(60):
        mean, scale = np.asarray(parameters)[:2], np.exp(np.asarray(parameters)[2:])
        samples = mean + scale * rng.normal(size=(40, 2))
        each = np.asarray(scores(parameters, samples))
        values = fitness(samples)
        advantage = (values - values.mean()) / values.std()
        fisher = each.T @ each / 40 + 1e-3 * np.eye(4)
        parameters = parameters + 0.1 * np.linalg.solve(fisher, each.T @ advantage / 40)
    np.testing.assert_allclose(np.asarray(parameters)[:2], [1.0, -0.5], atol=0.1)
    check_gradient(lambda p: np.sum(log_normal(p, samples)), parameters)


def test_hamiltonian_of_a_pendulum() -> None:
    def energy(state: Any) -> Any:
        angle, momentum = state
        return 0.5 * momentum**2 - np.cos(angle)

    def flow(state: Any) -> Any:
        by_angle, by_momentum = grad(energy)(state)
        return np.stack([by_momentum, -by_angle])

    def end(start: Any) -> Any:
        state = start
        for _ in range(4):
            middle = state + 0.05 * flow(state)
            state = state + 0.1 * flow(middle)
        return np.sum(state * np.array([1.0, 0.3]))

    check_gradient(end, np.array([0.8, 0.1]))


def test_factorization_with_missing_entries() -> None:
    rng = np.random.default_rng(12)
    ratings = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 6))
    known = rng.uniform(size=ratings.shape) < 0.7

    def loss(factors: Any) -> Any:
        left, right = factors
        error = (np.dot(left, right) - ratings)[known]
        return np.mean(error**2) + 0.01 * (np.linalg.norm(left) ** 2 + np.linalg.norm(right) ** 2)

    check_gradient(loss, [rng.normal(size=(5, 2)), rng.normal(size=(2, 6))])


# --- SciPy's minimizers -----------------------------------------------------------------------------------------------


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


METHODS = ["BFGS", "L-BFGS-B", "CG", "Newton-CG", "SLSQP", "trust-ncg", "trust-exact", "trust-constr"]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(("method", "wide"), [*((m, True) for m in METHODS), ("BFGS", False), ("L-BFGS-B", False)])
def test_minimizers_of_scipy_take_the_gradient(method: str, wide: bool) -> None:
    tinyxla.config.update("enable_x64", wide)
    second = {"hess": tinyxla.jit(hessian(rosenbrock))} if method.startswith("trust") or method == "Newton-CG" else {}
    start = np.array([-0.6, 0.8, 0.5])
    found = scipy.optimize.minimize(rosenbrock, start, jac=grad(rosenbrock), method=method, **second)
    np.testing.assert_allclose(np.asarray(found.x), 1.0, atol=1e-3 if wide else 5e-3)
    both = tinyxla.jit(value_and_grad(rosenbrock))
    found = scipy.optimize.minimize(both, start, jac=True, method=method, **second)
    np.testing.assert_allclose(np.asarray(found.x), 1.0, atol=1e-3 if wide else 5e-3)


def test_solvers_of_scipy_take_the_jacobian() -> None:
    def residuals(x: Any) -> Any:
        return np.stack([x[0] ** 2 + x[1] - 3, x[0] - x[1] ** 2 + 1])

    root = scipy.optimize.root(residuals, np.array([1.0, 1.0]), jac=jacobian(residuals))
    np.testing.assert_allclose(np.asarray(residuals(np.asarray(root.x))), 0, atol=1e-8)
    least = scipy.optimize.least_squares(residuals, np.array([1.0, 1.0]), jac=jacobian(residuals))
    np.testing.assert_allclose(least.x, root.x, 1e-6)
    assert float(scipy.optimize.newton(lambda x: x**2 - 2, 1.0, fprime=grad(lambda x: x**2 - 2))) == pytest.approx(
        2**0.5
    )
    assert float(scipy.optimize.check_grad(rosenbrock, grad(rosenbrock), np.ones(3) * 0.3)) < 1e-4
