"""Programs as users of JAX write them: each takes the package, `jax` or `tinyxla`, and gives the same with both."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.harness import Programs

programs = Programs()
generator = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return generator.normal(size=shape).astype(np.float32)


# --- dynamics ---------------------------------------------------------------------------------------------------------


@programs(np.float32([1, 1, 1]), np.float32([10, 28, 8 / 3]))
def lorenz_by_runge_kutta(jax: Any, start: Any, parameters: Any) -> Any:
    """The trajectory, and how its end depends on start and parameters."""
    jnp = jax.numpy

    def velocity(state: Any, p: Any) -> Any:
        x, y, z = state
        return jnp.array([p[0] * (y - x), x * (p[1] - z) - y, x * y - p[2] * z])

    def solve(state: Any, p: Any) -> Any:
        def step(s: Any, _: Any) -> Any:
            k1 = velocity(s, p)
            k2 = velocity(s + 0.005 * k1, p)
            k3 = velocity(s + 0.005 * k2, p)
            k4 = velocity(s + 0.01 * k3, p)
            s = s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return s, s

        return jax.lax.scan(step, state, None, length=12)

    gradient = jax.grad(lambda *x: solve(*x)[0].sum(), (0, 1))(start, parameters)
    return solve(start, parameters), gradient, jax.jacfwd(lambda s: solve(s, parameters)[0])(start)


@programs(floats(2), floats(2, 8), floats(8, 2))
def adaptive_steps(jax: Any, start: Any, w1: Any, w2: Any) -> Any:
    """An ODE integrator that chooses its steps, and a tangent through it."""
    jnp = jax.numpy

    def velocity(y: Any) -> Any:
        return jnp.tanh(y @ w1) @ w2

    def solve(y: Any) -> Any:
        def body(state: Any) -> Any:
            y, t, h, count = state
            k1 = velocity(y)
            k2 = velocity(y + h * k1)
            error = jnp.max(jnp.abs(h / 2 * (k2 - k1)))
            is_good = error < 2e-2
            y = jnp.where(is_good, y + h / 2 * (k1 + k2), y)
            return y, jnp.where(is_good, t + h, t), jnp.clip(0.9 * h * jnp.sqrt(2e-2 / error), 0.01, 0.5), count + 1

        return jax.lax.while_loop(lambda s: (s[1] < 1.0) & (s[3] < 100), body, (y, jnp.float32(0), jnp.float32(0.1), 0))

    return solve(start), jax.jvp(lambda y: solve(y)[0], (start,), (jnp.ones(2),))


@programs(floats(4, 2), floats(4, 2))
def bodies_under_gravity(jax: Any, places: Any, velocities: Any) -> Any:
    jnp = jax.numpy
    masses = jnp.arange(1.0, 5.0)

    def potential(q: Any) -> Any:
        distances = jnp.sqrt(((q[:, None] - q[None]) ** 2).sum(-1) + 0.1)
        return -0.5 * jnp.sum(jnp.where(jnp.eye(4, dtype=bool), 0, masses[:, None] * masses / distances))

    def step(state: Any, _: Any) -> Any:
        q, v = state
        v = v - 0.01 * jax.grad(potential)(q) / masses[:, None]
        q = q + 0.01 * v
        return (q, v), potential(q)

    return jax.lax.scan(step, (places, velocities), None, length=5), jax.hessian(potential)(places)


@programs(np.exp(-(np.linspace(-3, 3, 16, dtype=np.float32) ** 2)))
def heat(jax: Any, line: Any) -> Any:
    jnp = jax.numpy
    lax = jax.lax

    def explicit(rate: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, u: u + rate * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), line)

    def plate(u: Any, _: Any) -> Any:
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return u.at[1:-1, 1:-1].add(0.2 * (around - 4 * u[1:-1, 1:-1])), u.max()

    matrix = 2 * jnp.eye(16) - 0.5 * (jnp.eye(16, k=1) + jnp.eye(16, k=-1))
    return (
        jax.value_and_grad(lambda rate: (explicit(rate) ** 2).sum())(0.2),
        jnp.linalg.solve(matrix, line),
        lax.scan(plate, jnp.outer(line, line), None, length=4),
    )


@programs(floats(16, 16))
def poisson_by_fourier(jax: Any, source: Any) -> Any:
    jnp = jax.numpy

    def solve(f: Any) -> Any:
        k = jnp.fft.fftfreq(16, 1 / 16)
        squares = (k[:, None] ** 2 + k**2).at[0, 0].set(1.0)
        return jnp.fft.ifft2((-jnp.fft.fft2(f) / squares).at[0, 0].set(0)).real

    return solve(source), jax.grad(lambda f: (solve(f) ** 2).sum())(source)


@programs(generator.random((12, 12)) < 0.4)
def game_of_life(jax: Any, board: Any) -> Any:
    jnp = jax.numpy
    kernel = jnp.ones((1, 1, 3, 3)).at[0, 0, 1, 1].set(0)

    def step(alive: Any, _: Any) -> Any:
        padded = jnp.pad(alive.astype(jnp.float32), 1, mode="wrap")[None, None]
        neighbours = jax.lax.conv_general_dilated(padded, kernel, (1, 1), "VALID")[0, 0]
        return (neighbours == 3) | (alive & (neighbours == 2)), alive.sum()

    return jax.lax.scan(step, board, None, length=6)


@programs(np.linspace(-2, 1, 12, dtype=np.float32), np.linspace(-1.2, 1.2, 8, dtype=np.float32))
def mandelbrot(jax: Any, x: Any, y: Any) -> Any:
    jnp = jax.numpy

    def steps(c: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return (jnp.abs(state[0]) < 2) & (state[1] < 30)

        return jax.lax.while_loop(goes_on, lambda s: (s[0] ** 2 + c, s[1] + 1), (jnp.zeros_like(c), 0))[1]

    return jax.vmap(jax.vmap(steps))(x + 1j * y[:, None])


@programs(np.int32(0))
def ising_model(jax: Any, seed: Any) -> Any:
    jnp, random = jax.numpy, jax.random
    key = random.PRNGKey(seed)
    even = jnp.indices((6, 6)).sum(0) % 2 == 0

    def half(spins: Any, key: Any, mask: Any) -> Any:
        field = sum(jnp.roll(spins, by, axis) for by in (1, -1) for axis in (0, 1))
        flips = random.uniform(key, spins.shape) < jnp.exp(-0.8 * spins * field)
        return jnp.where(flips & mask, -spins, spins)

    def sweep(spins: Any, key: Any) -> Any:
        first, second = random.split(key)
        spins = half(half(spins, first, even), second, ~even)
        return spins, spins.mean()

    start = jnp.where(random.bernoulli(key, 0.5, (6, 6)), 1, -1)
    return jax.lax.scan(sweep, start, random.split(key, 5))


# --- inference --------------------------------------------------------------------------------------------------------


@programs(floats(8, 1))
def kalman_filter(jax: Any, observed: Any) -> Any:
    jnp = jax.numpy
    motion, seen = jnp.array([[1.0, 0.5], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])

    def likelihood(noise: Any) -> Any:
        def step(state: Any, y: Any) -> Any:
            mean, covariance = state
            mean, covariance = motion @ mean, motion @ covariance @ motion.T + jnp.exp(noise) * jnp.eye(2)
            s = seen @ covariance @ seen.T + jnp.eye(1)
            gain = jnp.linalg.solve(s, seen @ covariance).T
            error = y - seen @ mean
            found = error @ jnp.linalg.solve(s, error) + jnp.linalg.slogdet(s)[1]
            return (mean + gain @ error, covariance - gain @ s @ gain.T), found

        state, found = jax.lax.scan(step, (jnp.zeros(2), jnp.eye(2)), observed)
        return found.sum(), state

    return jax.value_and_grad(likelihood, has_aux=True)(-1.0)


@programs(floats(3, 3), floats(3, 5), np.int32([0, 2, 4, 1, 3, 3, 0]))
def hidden_markov_model(jax: Any, transitions: Any, emissions: Any, observed: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def forward(transitions: Any, emissions: Any) -> Any:
        moves, shows = jax.nn.log_softmax(transitions), jax.nn.log_softmax(emissions)

        def step(a: Any, seen: Any) -> Any:
            return jax.scipy.special.logsumexp(a[:, None] + moves, axis=0) + shows[:, seen], None

        return jax.nn.logsumexp(lax.scan(step, shows[:, observed[0]], observed[1:])[0])

    def best(d: Any, seen: Any) -> Any:
        scores = d[:, None] + transitions
        return scores.max(0) + emissions[:, seen], jnp.argmax(scores, 0)

    d, back = lax.scan(best, emissions[:, observed[0]], observed[1:])
    _, path = lax.scan(lambda s, b: (b[s], b[s]), jnp.argmax(d), back, reverse=True)
    return jax.value_and_grad(forward, (0, 1))(transitions, emissions), path


@programs(floats(8, 2), floats(3, 2))
def gaussian_process(jax: Any, x: Any, asked: Any) -> Any:
    jnp, linalg = jax.numpy, jax.scipy.linalg
    y = jnp.sin(x.sum(-1))

    def kernel(p: Any, a: Any, b: Any) -> Any:
        return jnp.exp(p["scale"] - 0.5 * jnp.sum((a[:, None] - b[None]) ** 2 / jnp.exp(p["length"]), -1))

    def loss(p: Any) -> Any:
        factor = jnp.linalg.cholesky(kernel(p, x, x) + jnp.exp(p["noise"]) * jnp.eye(8))
        return 0.5 * y @ linalg.cho_solve((factor, True), y) + jnp.log(jnp.diag(factor)).sum()

    p = {"scale": jnp.float32(0), "length": jnp.zeros(2), "noise": jnp.float32(-2)}
    value, gradient = jax.value_and_grad(loss)(p)
    p = jax.tree.map(lambda a, g: a - 0.05 * g, p, gradient)
    factor = linalg.cho_factor(kernel(p, x, x) + jnp.exp(p["noise"]) * jnp.eye(8), lower=True)
    between = kernel(p, x, asked)
    spread = linalg.solve_triangular(factor[0], between, lower=True)
    return value, gradient, between.T @ linalg.cho_solve(factor, y), kernel(p, asked, asked) - spread.T @ spread


@programs(np.ones((3, 2), np.float32), np.int32(9))
def hamiltonian_monte_carlo(jax: Any, starts: Any, seed: Any) -> Any:
    jnp, random = jax.numpy, jax.random

    def density(x: Any) -> Any:
        return -0.5 * jnp.sum(x**2) - jnp.sum(x**4)

    def sample(x: Any, key: Any) -> Any:
        first, second = random.split(key)
        momentum = random.normal(first, x.shape)

        def leap(_: Any, state: Any) -> Any:
            y, p = state
            p = p + 0.05 * jax.grad(density)(y)
            y = y + 0.1 * p
            return y, p + 0.05 * jax.grad(density)(y)

        y, p = jax.lax.fori_loop(0, 4, leap, (x, momentum))
        gain = density(y) - 0.5 * p @ p - density(x) + 0.5 * momentum @ momentum
        x = jnp.where(jnp.log(random.uniform(second)) < gain, y, x)
        return x, x

    keys = random.split(random.PRNGKey(seed), 3)
    return jax.vmap(lambda x, key: jax.lax.scan(sample, x, random.split(key, 4))[1])(starts, keys)


@programs(floats(20, 4))
def principal_components(jax: Any, x: Any) -> Any:
    jnp = jax.numpy
    centred = x - x.mean(0)
    _, values, axes = jnp.linalg.svd(centred, full_matrices=False)
    covariance = jnp.cov(x, rowvar=False)

    def body(state: Any) -> Any:
        v, _, count = state
        w = covariance @ v
        return w / jnp.linalg.norm(w), v, count + 1

    def goes_on(state: Any) -> Any:
        return (jnp.linalg.norm(state[0] - state[1]) > 1e-4) & (state[2] < 100)

    v, _, _ = jax.lax.while_loop(goes_on, body, (jnp.full(4, 0.5), jnp.zeros(4), 0))
    return jnp.abs(centred @ axes[:2].T), values**2 / 19, v @ covariance @ v, jnp.linalg.eigvalsh(covariance)


@programs(floats(30, 2), floats(3, 2))
def k_means(jax: Any, points: Any, centres: Any) -> Any:
    jnp = jax.numpy

    def step(_: Any, centres: Any) -> Any:
        nearest = jnp.argmin(((points[:, None] - centres) ** 2).sum(-1), 1)
        counts = jnp.bincount(nearest, length=3)
        return jnp.zeros((3, 2)).at[nearest].add(points) / jnp.maximum(counts, 1)[:, None]

    return jax.lax.fori_loop(0, 5, step, centres)


@programs(np.float32([1, -1.7]))
def newton(jax: Any, start: Any) -> Any:
    jnp = jax.numpy

    def equations(x: Any) -> Any:
        return jnp.array([x[0] ** 2 + x[1] ** 2 - 4, jnp.exp(x[0]) + x[1] - 1])

    def step(x: Any) -> Any:
        return x - jnp.linalg.solve(jax.jacfwd(equations)(x), equations(x))

    return jax.lax.while_loop(lambda x: jnp.linalg.norm(equations(x)) > 1e-4, step, start)


# --- learning ---------------------------------------------------------------------------------------------------------


@programs(floats(4, 8, 8, 1), floats(3, 3, 1, 4), floats(3, 3, 4, 8), floats(8, 3), np.int32([0, 2, 1, 1]))
def convolutional_network(jax: Any, images: Any, k1: Any, k2: Any, w: Any, labels: Any) -> Any:
    """Loss and gradients with batch norm, max and average pooling."""
    jnp, lax = jax.numpy, jax.lax

    def convolve(x: Any, k: Any, strides: Any) -> Any:
        return lax.conv_general_dilated(x, k, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(p: Any) -> Any:
        x = convolve(images, p[0], (1, 1))
        x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5)
        x = lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.gelu(convolve(x, p[1], (2, 2)))
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4
        scores = jax.nn.log_softmax(x.reshape(4, -1) @ p[2])
        return -jnp.mean(jnp.sum(scores * jax.nn.one_hot(labels, 3), -1))

    return jax.value_and_grad(loss)([k1, k2, w])


@programs(floats(5, 2, 3), floats(3, 16), floats(4, 16))
def long_short_term_memory(jax: Any, inputs: Any, w: Any, u: Any) -> Any:
    jnp = jax.numpy

    def cell(p: Any, state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ p["w"] + h @ p["u"], 4, axis=-1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(p: Any) -> Any:
        (h, _), hidden = jax.lax.scan(lambda s, x: cell(p, s, x), (jnp.zeros((2, 4)), jnp.zeros((2, 4))), inputs)
        return jnp.mean(h**2), hidden

    return jax.value_and_grad(loss, has_aux=True)({"w": w, "u": u})


@programs(floats(2, 6, 2, 4), floats(2, 6, 2, 4), floats(2, 6, 2, 4), np.int32([3, 6]))
def attention(jax: Any, q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """With a causal mask, a mask of lengths, and rotated positions."""
    jnp = jax.numpy

    def rotated(x: Any) -> Any:
        angles = jnp.arange(6)[:, None] / 10000 ** (jnp.arange(0, 4, 2) / 4)
        sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bthd,bshd->bhts", rotated(q), rotated(k)) / 2
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -jnp.inf)
        known = jnp.arange(6) < lengths[:, None]
        scores = jnp.where(known[:, None, None], scores, jnp.finfo(scores.dtype).min)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, axis=-1), v)

    return attend(q, k, v), jax.grad(lambda *x: (attend(*x) ** 2).sum(), (0, 1, 2))(q, k, v)


@programs(floats(7, 4), floats(3, 4, 4))
def decoding_with_a_cache(jax: Any, embedding: Any, weights: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def step(state: Any, _: Any) -> Any:
        token, place, keys, values = state
        q, k, v = weights @ embedding[token]
        keys = lax.dynamic_update_slice(keys, k[None], (place, 0))
        values = lax.dynamic_update_index_in_dim(values, v, place, 0)
        scores = jnp.where(jnp.arange(5) <= place, keys @ q / 2, -1e9)
        token = jnp.argmax(embedding @ (jax.nn.softmax(scores) @ values)).astype(jnp.int32)
        return (token, place + 1, keys, values), token

    return lax.scan(step, (jnp.int32(3), jnp.int32(0), jnp.zeros((5, 4)), jnp.zeros((5, 4))), None, length=5)


@programs(floats(10, 4), floats(4, 5), floats(5, 4, 3), floats(5, 3, 4))
def mixture_of_experts(jax: Any, x: Any, gate: Any, up: Any, down: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def layer(x: Any, gate: Any, up: Any, down: Any) -> Any:
        shares, experts = lax.top_k(jax.nn.softmax(x @ gate), 2)
        order = jnp.argsort(experts.ravel())
        rows = jnp.repeat(x, 2, axis=0)[order]
        sizes = jnp.bincount(experts.ravel(), length=5)
        y = lax.ragged_dot(jax.nn.silu(lax.ragged_dot(rows, up, sizes)), down, sizes)
        y = jnp.zeros_like(y).at[order].set(y).reshape(10, 2, 4)
        return (y * shares[..., None]).sum(1)

    return jax.value_and_grad(lambda *p: (layer(*p) ** 2).sum(), (0, 1, 2, 3))(x, gate, up, down)


@programs(floats(30, 3), floats(3))
def logistic_regression_by_adam(jax: Any, x: Any, truth: Any) -> Any:
    jnp, tree = jax.numpy, jax.tree
    y = (x @ truth > 0).astype(jnp.float32)

    def loss(p: Any) -> Any:
        z = x @ p["w"] + p["b"]
        return jnp.mean(jax.nn.softplus(z) - y * z)

    def step(state: Any, t: Any) -> Any:
        p, m, v = state
        value, g = jax.value_and_grad(loss)(p)
        m = tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        scale = jnp.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        return (tree.map(lambda p, m, v: p - 0.1 * scale * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v), value

    p = {"w": jnp.zeros(3), "b": jnp.float32(0)}
    zeros = tree.map(jnp.zeros_like, p)
    return jax.lax.scan(step, (p, zeros, zeros), jnp.arange(1.0, 9.0)), jax.hessian(loss)(p)


@programs(floats(4, 2), np.int32(0))
def policy_gradient(jax: Any, weights: Any, seed: Any) -> Any:
    jnp, random, lax = jax.numpy, jax.random, jax.lax

    def objective(w: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            scores = jnp.stack([*state, *jnp.sin(state)]) @ w
            action = random.categorical(key, scores)
            speed = state[1] + 0.1 * (2 * action - 1) - 0.05 * state[0]
            state = jnp.stack([state[0] + 0.1 * speed, speed])
            return state, (jax.nn.log_softmax(scores)[action], -jnp.abs(state[0]))

        _, (chances, rewards) = lax.scan(step, jnp.array([1.0, 0.0]), random.split(key, 6))
        _, returns = lax.scan(lambda g, r: (r + 0.9 * g,) * 2, jnp.float32(0), rewards, reverse=True)
        return -(chances * lax.stop_gradient(returns)).sum()

    keys = random.split(random.PRNGKey(seed), 3)
    return jax.value_and_grad(lambda w: jax.vmap(objective, (None, 0))(w, keys).mean())(weights)


@programs(floats(4, 3), floats(3, 3))
def graph_network(jax: Any, nodes: Any, weights: Any) -> Any:
    jnp = jax.numpy
    source, target = jnp.array([0, 1, 2, 3, 0, 2]), jnp.array([1, 2, 3, 0, 2, 1])

    def layer(w: Any) -> Any:
        received = jnp.zeros_like(nodes).at[target].add(nodes[source] @ w)
        return jax.nn.relu(received / jnp.zeros(4).at[target].add(1.0)[:, None]) + nodes

    lengths = jnp.full((4, 4), jnp.inf).at[source, target].set(1.0)
    paths = jax.lax.fori_loop(0, 4, lambda k, d: jnp.minimum(d, d[:, k, None] + d[k]), lengths)
    return layer(weights), jax.grad(lambda w: layer(w).sum())(weights), paths


# --- algorithms -------------------------------------------------------------------------------------------------------


@programs(np.int32([1, 2, 3, 4, 2]), np.int32([1, 3, 4, 4]))
def edit_distance(jax: Any, a: Any, b: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def row(before: Any, x: Any) -> Any:
        def cell(left: Any, c: Any) -> Any:
            up, diagonal, y = c
            value = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + (x != y))
            return value, value

        first = before[0] + 1
        _, others = lax.scan(cell, first, (before[1:], before[:-1], b))
        return jnp.concatenate([first[None], others]), None

    return lax.scan(row, jnp.arange(b.size + 1), a)[0]


@programs(np.int32([2, 3, 4, 5]), np.int32([3, 4, 5, 8]))
def knapsack(jax: Any, weights: Any, values: Any) -> Any:
    jnp = jax.numpy

    def with_item(k: Any, best: Any) -> Any:
        fits = jnp.arange(11) >= weights[k]
        return jnp.maximum(best, jnp.where(fits, jnp.roll(best, weights[k]) + values[k], 0))

    return jax.lax.fori_loop(0, 4, with_item, jnp.zeros(11, jnp.int32))


@programs(floats(6), floats(6, 2, 2))
def associative_scans(jax: Any, x: Any, matrices: Any) -> Any:
    jnp, scan = jax.numpy, jax.lax.associative_scan

    def recurrence(a: Any, b: Any) -> Any:
        return scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b))[1]

    gradient = jax.grad(lambda a: (recurrence(a, x) ** 2).sum())(x)
    return recurrence(x, x), gradient, scan(lambda p, q: q @ p, matrices), scan(jnp.maximum, x, reverse=True)


@programs(floats(9))
def sorts(jax: Any, x: Any) -> Any:
    """Bubbles with branches inside loops; and order that has a gradient."""
    jnp, lax = jax.numpy, jax.lax

    def exchanged(j: Any, x: Any) -> Any:
        return lax.cond(x[j] > x[j + 1], lambda x: x.at[j].set(x[j + 1]).at[j + 1].set(x[j]), lambda x: x, x)

    bubbled = lax.fori_loop(0, 9, lambda _, x: lax.fori_loop(0, 8, exchanged, x), x)

    def rank(x: Any) -> Any:
        return (jax.nn.softmax(-jnp.abs(jnp.sort(x)[:, None] - x)) @ x * jnp.arange(9)).sum()

    return bubbled, jax.grad(rank)(x), jnp.searchsorted(bubbled, x)
