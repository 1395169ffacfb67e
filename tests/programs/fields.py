"""Programs of many fields - finance, signals, images, graphs, search, control, learning - as users of JAX write them:
each takes the package, `jax` or `tinyxla`, and gives the same with both."""

from __future__ import annotations

from typing import Any

import jax.ops
import jax.scipy.linalg
import jax.scipy.special  # noqa: F401 - programs take these from the package
import numpy as np

from tests.programs.harness import Programs, floats

programs = Programs()
random = np.random.default_rng(5)


def whole(high: int, *shape: int) -> np.ndarray[Any, Any]:
    return random.integers(0, high, shape).astype(np.int32)


def fractions(*shape: int) -> np.ndarray[Any, Any]:
    return random.random(shape).astype(np.float32)


# --- element by element -----------------------------------------------------------------------------------------------


@programs(fractions(20) * 100 + 50, fractions(20) * 100 + 50, fractions(20) + 0.1, fractions(20) * 0.5 + 0.1)
def greeks(jax: Any, spot: Any, strike: Any, years: Any, volatility: Any) -> Any:
    """Black and Scholes' prices of options, and what they depend on."""
    jnp, ndtr = jax.numpy, jax.scipy.special.ndtr

    def price(s: Any, k: Any, t: Any, v: Any) -> Any:
        first = (jnp.log(s / k) + (0.05 + v * v / 2) * t) / (v * jnp.sqrt(t))
        return s * ndtr(first) - k * jnp.exp(-0.05 * t) * ndtr(first - v * jnp.sqrt(t))

    return jax.vmap(jax.value_and_grad(price, argnums=(0, 2, 3)))(spot, strike, years, volatility)


@programs(floats(6, 8) * 3, floats(6, 8), whole(8, 6))
def losses(jax: Any, logits: Any, targets: Any, labels: Any) -> Any:
    jnp, nn = jax.numpy, jax.nn

    def total(x: Any) -> Any:
        logs = nn.log_softmax(x)
        smooth = nn.one_hot(labels, 8) * 0.9 + 0.1 / 8
        error = jnp.abs(x - targets)
        near = jnp.minimum(error, 1.0)
        sign = jnp.where(targets > 0, 1.0, 0.0)
        p = nn.sigmoid(x)
        return {
            "cross entropy": -jnp.mean(jnp.take_along_axis(logs, labels[:, None], -1)),
            "smoothed": -jnp.mean(jnp.sum(logs * smooth, -1)),
            "divergence": jnp.sum(nn.softmax(targets) * (nn.log_softmax(targets) - logs)),
            "huber": jnp.mean(0.5 * near**2 + (error - near)),
            "cosine": jnp.mean(jnp.sum(x * targets, -1) / jnp.linalg.norm(x, axis=-1)),
            "log cosh": jnp.mean(jnp.logaddexp(x - targets, targets - x)),
            "hinge": jnp.mean(jnp.maximum(0, 1 - x * (2 * sign - 1))),
            "focal": -jnp.mean((1 - p) ** 2 * sign * nn.log_sigmoid(x) + p**2 * (1 - sign) * nn.log_sigmoid(-x)),
        }

    return total(logits), jax.jacrev(total)(logits)


@programs(np.arange(1, 200, dtype=np.uint32) * 2654435761)
def hashes(jax: Any, x: Any) -> Any:
    """The end of MurmurHash 3, and Marsaglia's generators by shifts."""
    jnp, lax = jax.numpy, jax.lax
    h = x ^ (x >> 16)
    h = h * jnp.uint32(0x85EBCA6B)
    h ^= h >> 13
    h = h * jnp.uint32(0xC2B2AE35)
    h ^= h >> 16
    for left, right, last in ((13, 17, 5), (5, 9, 7)):
        x ^= x << left
        x ^= x >> right
        x ^= x << last
    return h, x, lax.population_count(x), lax.clz(x >> 3), (h % 1000).astype(jnp.uint16), jnp.bitwise_count(h)


@programs(floats(5, 16) * 40)
def quantized(jax: Any, x: Any) -> Any:
    jnp = jax.numpy
    scale = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
    codes = jnp.clip(jnp.round(x / scale), -128, 127).astype(jnp.int8)
    kinds = (jnp.int32, jnp.uint8, jnp.int16, jnp.bfloat16, jnp.float16, jnp.bool_)
    return codes, codes.astype(jnp.float32) * scale, [x.astype(kind).astype(jnp.float32) for kind in kinds]


@programs(floats(40), fractions(7, 5, 3))
def pieces(jax: Any, x: Any, image: Any) -> Any:
    """Functions in pieces, and an image's hue, saturation and value."""
    jnp = jax.numpy
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    high, low = image.max(-1), image.min(-1)
    spread = high - low + 1e-6
    of_red, of_green = (green - blue) / spread % 6, (blue - red) / spread + 2
    hue = jnp.where(high == red, of_red, jnp.where(high == green, of_green, (red - green) / spread + 4)) / 6
    return (
        jnp.piecewise(x, [x < -1, x >= 1], [lambda x: -x, lambda x: jnp.sqrt(x), lambda x: x**3]),
        jnp.select([x < 0, x < 0.5], [x * 2, x + 1], 7.0),
        (jnp.heaviside(x, 0.5), jnp.sinc(x), jnp.polyval(x[:6], x), jnp.nan_to_num(jnp.log(x))),
        jnp.stack([hue, spread / high, high], -1),
    )


# --- sums and products ------------------------------------------------------------------------------------------------


@programs(floats(9, 12), fractions(9, 12) > 0.3)
def statistics(jax: Any, x: Any, kept: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax
    holes = jnp.where(kept, x, jnp.nan)
    some = {"where": kept}
    places = lax.broadcasted_iota(jnp.int32, x.shape, 1)

    def larger(a: Any, b: Any) -> Any:
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    return (
        [getattr(jnp, "nan" + name)(holes, axis=1) for name in ("mean", "std", "max", "argmin", "sum", "median")],
        [jnp.mean(x, 1, **some), jnp.var(x, 1, **some), jnp.max(x, 1, initial=-jnp.inf, **some)],
        [jnp.percentile(x, jnp.array([5.0, 50.0, 90.0]), axis=0), jnp.ptp(x, 0), jnp.average(x, 0, weights=x[:, 0])],
        [jnp.cov(x.T), jnp.corrcoef(x), jnp.trapezoid(x, axis=0), jnp.gradient(x[0])],
        [lax.cummax(x, axis=1), lax.cumlogsumexp(x, axis=0, reverse=True), jnp.cumprod(x, 1)],
        lax.reduce((x, places), (jnp.float32(-jnp.inf), jnp.int32(0)), larger, (1,)),
    )


@programs(floats(2, 6, 4, 8), floats(2, 6, 2, 8), floats(2, 6, 2, 8))
def grouped_attention(jax: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal attention with rotated positions, whose queries share keys and values in groups."""
    jnp = jax.numpy

    def rotated(x: Any) -> Any:
        angle = jnp.arange(6)[:, None] / 100 ** (jnp.arange(0, 8, 2) / 8)
        c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        even, odd = x[..., ::2], x[..., 1::2]
        return jnp.stack([even * c - odd * s, even * s + odd * c], -1).reshape(x.shape)

    def attended(q: Any, k: Any, v: Any) -> Any:
        keys, values = jnp.repeat(rotated(k), 2, axis=2), jnp.repeat(v, 2, axis=2)
        scores = jnp.einsum("bthd,bshd->bhts", rotated(q), keys) / np.sqrt(8)
        scores = jnp.where(jnp.tril(jnp.ones((6, 6), bool)), scores, -1e9)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), values)

    return attended(q, k, v), jax.grad(lambda *x: (attended(*x) ** 2).sum(), (0, 1, 2))(q, k, v)


@programs(floats(10, 4), floats(10), floats(7, 4), floats(6, 6) * 0.5)
def kernels_and_exponentials(jax: Any, x: Any, y: Any, new: Any, a: Any) -> Any:
    jnp = jax.numpy

    def kernel(p: Any, q: Any) -> Any:
        return jnp.exp(-0.5 * (jnp.sum(p**2, 1)[:, None] + jnp.sum(q**2, 1) - 2 * p @ q.T))

    def pairs(p: Any, q: Any) -> Any:
        return jax.vmap(lambda p: jax.vmap(lambda q: jnp.exp(-jnp.sum((p - q) ** 2)) + p @ q)(q))(p)

    def exponential(a: Any) -> Any:
        return jax.scipy.linalg.expm(a)[0]

    ridge = kernel(new, x) @ jnp.linalg.solve(kernel(x, x) + 0.1 * jnp.eye(10), y)
    return ridge, pairs(new, x), jax.scipy.linalg.expm(jnp.stack([a, 9 * a])), jax.jacrev(exponential)(a)


@programs(floats(12, 12), floats(12), floats(8, 5))
def iterated_algebra(jax: Any, m: Any, b: Any, a: Any) -> Any:
    """Conjugate gradients, the power method, Gram and Schmidt's basis, and Riccati's equation."""
    jnp, lax = jax.numpy, jax.lax
    spd = m @ m.T / 12 + jnp.eye(12)

    def descend(state: Any) -> Any:
        x, r, p, size, k = state
        along = spd @ p
        step = size / (p @ along)
        x, r = x + step * p, r - step * along
        return x, r, r + (r @ r) / size * p, r @ r, k + 1

    def direction(_: Any, v: Any) -> Any:
        w = spd @ v
        return w / jnp.linalg.norm(w)

    def column(i: Any, q: Any) -> Any:
        v = a[:, i] - q @ (q.T @ a[:, i])
        return q.at[:, i].set(v / jnp.linalg.norm(v))

    def riccati(p: Any, _: Any) -> Any:
        move, act = jnp.eye(5) + 0.1 * a[:5], a[5:].T
        gain = jnp.linalg.solve(jnp.eye(3) + act.T @ p @ act, act.T @ p @ move)
        return jnp.eye(5) + move.T @ p @ (move - act @ gain), None

    solved = lax.while_loop(lambda s: (s[3] > 1e-9) & (s[4] < 12), descend, (0 * b, b, b, b @ b, 0))[0]
    v = lax.fori_loop(0, 80, direction, b)
    basis = lax.fori_loop(0, 5, column, jnp.zeros_like(a))
    return solved, v @ spd @ v, basis, lax.scan(riccati, jnp.eye(5), None, length=8)[0]


# --- signals and images -----------------------------------------------------------------------------------------------


@programs(floats(300), fractions(33, 10), floats(2, 103), floats(2, 12))
def spectra(jax: Any, x: Any, bands: Any, signal: Any, taps: Any) -> Any:
    """Cepstral coefficients, and a convolution by transforms whose length is a prime's multiple."""
    jnp = jax.numpy
    frames = x[jnp.arange(0, 300 - 64, 32)[:, None] + jnp.arange(64)] * jnp.hanning(64)
    energy = jnp.log((jnp.abs(jnp.fft.rfft(frames)) ** 2) @ bands + 1e-6)
    cosines = jnp.cos(jnp.pi / 10 * (jnp.arange(10) + 0.5)[:, None] * jnp.arange(5))
    n = signal.shape[-1] + taps.shape[-1] - 1
    long = jnp.fft.irfft(jnp.fft.rfft(signal, n) * jnp.fft.rfft(taps, n), n)
    return energy @ cosines, long, jax.vmap(jnp.convolve)(signal, taps)


@programs(floats(2, 20, 4), floats(3, 2, 4, 8) / 3)
def causal_network(jax: Any, x: Any, kernels: Any) -> Any:
    """A gated network of dilated causal convolutions, and its gradient."""
    jnp, lax = jax.numpy, jax.lax

    def loss(kernels: Any) -> Any:
        y = x
        for i, k in enumerate(kernels):
            args = {"rhs_dilation": (2**i,), "dimension_numbers": ("NWC", "WIO", "NWC")}
            a, b = jnp.split(lax.conv_general_dilated(y, k, (1,), [(2**i, 0)], **args), 2, -1)
            y = y + jnp.tanh(a) * jax.nn.sigmoid(b)
        return jnp.mean((y[:, :-1] - x[:, 1:]) ** 2)

    return jax.value_and_grad(loss)(kernels)


@programs(floats(2, 9, 9, 4), floats(3, 3, 1, 8), floats(1, 1, 8, 3))
def separable_convolution(jax: Any, x: Any, deep: Any, point: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax
    order = ("NHWC", "HWIO", "NHWC")

    def loss(x: Any, deep: Any, point: Any) -> Any:
        h = lax.conv_general_dilated(x, deep, (2, 2), "SAME", dimension_numbers=order, feature_group_count=4)
        h = lax.conv_general_dilated(jax.nn.relu6(h), point, (1, 1), "VALID", dimension_numbers=order)
        pooled = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID")
        return jnp.sum(jnp.sin(pooled)), pooled

    return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(x, deep, point)


@programs(fractions(12, 14), fractions(12, 14), np.float32([[0.91, 0.12, 0.3], [-0.13, 1.07, 0.2]]))
def image_filters(jax: Any, image: Any, other: Any, affine: Any) -> Any:
    """Edges, medians, closings, structural similarity, and an image that is moved, with its derivatives."""
    jnp, lax = jax.numpy, jax.lax
    p = jnp.pad(image, 1, mode="edge")
    views = [[p[i : i + 12, j : j + 14] for j in range(3)] for i in range(3)]
    across = sum(w * (r[2] - r[0]) for w, r in zip((1, 2, 1), views, strict=True))
    down = sum(w * (views[2][j] - views[0][j]) for w, j in zip((1, 2, 1), range(3), strict=True))
    median = jnp.median(jnp.stack([v for row in views for v in row]), 0)
    opened = lax.reduce_window(image > 0.7, False, lax.bitwise_or, (3, 3), (1, 1), "SAME")
    closed = lax.reduce_window(opened, True, lax.bitwise_and, (3, 3), (1, 1), "SAME")

    def similarity(a: Any, b: Any) -> Any:
        def blur(x: Any) -> Any:
            return lax.conv(x[None, None], jnp.ones((1, 1, 5, 5)) / 25, (1, 1), "VALID")[0, 0]

        ma, mb = blur(a), blur(b)
        va, vb, joint = blur(a * a) - ma**2, blur(b * b) - mb**2, blur(a * b) - ma * mb
        return jnp.mean((2 * ma * mb + 1e-2) * (2 * joint + 3e-2) / ((ma**2 + mb**2 + 1e-2) * (va + vb + 3e-2)))

    def moved(image: Any, affine: Any) -> Any:
        y, x = jnp.mgrid[0:12, 0:14]
        place = jnp.stack([x - 6.77, y - 5.57, jnp.ones_like(x)], -1) @ affine.T + jnp.array([6.77, 5.57])
        x, y = place[..., 0], place[..., 1]
        left, top = jnp.floor(x).astype(int), jnp.floor(y).astype(int)

        def at(i: Any, j: Any) -> Any:
            inside = (i >= 0) & (i < 14) & (j >= 0) & (j < 12)
            return jnp.where(inside, image[jnp.clip(j, 0, 11), jnp.clip(i, 0, 13)], 0.0)

        above = at(left, top) * (left + 1 - x) + at(left + 1, top) * (x - left)
        below = at(left, top + 1) * (left + 1 - x) + at(left + 1, top + 1) * (x - left)
        return above * (top + 1 - y) + below * (y - top)

    warped = jax.grad(lambda *args: jnp.sum(moved(*args) ** 2), (0, 1))(image, affine)
    return jnp.hypot(across, down), median, closed, jax.value_and_grad(similarity)(image, other), warped


# --- graphs, order and search -----------------------------------------------------------------------------------------


@programs(floats(8, 5), floats(2, 5), floats(12, 8), whole(12, 40), whole(12, 40))
def graph_attention(jax: Any, w: Any, a: Any, x: Any, senders: Any, receivers: Any) -> Any:
    jnp, ops = jax.numpy, jax.ops

    def loss(w: Any, a: Any) -> Any:
        h = x @ w
        e = jax.nn.leaky_relu((h[senders] * a[0]).sum(-1) + (h[receivers] * a[1]).sum(-1))
        e = jnp.exp(e - ops.segment_max(e, receivers, 12)[receivers])
        share = e / ops.segment_sum(e, receivers, 12)[receivers]
        return jnp.sum(jax.nn.elu(ops.segment_sum(h[senders] * share[:, None], receivers, 12)) ** 2)

    return jax.value_and_grad(loss, (0, 1))(w, a)


@programs(floats(3, 30) * 2, whole(4, 3, 30), floats(50), (fractions(50) > 0.4).astype(np.float32))
def ranks(jax: Any, scores: Any, gains: Any, x: Any, truth: Any) -> Any:
    """The kernel of likely words, a discounted gain, the area under a curve, and a loss of sorted numbers."""
    jnp = jax.numpy
    order = jnp.argsort(-scores, -1)
    likely = jax.nn.softmax(jnp.take_along_axis(scores, order, -1))
    keep = jnp.take_along_axis(jnp.cumsum(likely, -1) - likely < 0.9, jnp.argsort(order, -1), -1)

    def gain(s: Any, g: Any) -> Any:
        discount = 1 / jnp.log2(jnp.arange(30) + 2.0)
        return jnp.sum((2.0 ** g[jnp.argsort(-s)] - 1) * discount) / jnp.sum((2.0 ** jnp.sort(g)[::-1] - 1) * discount)

    sorted_truth = truth[jnp.argsort(-x)]
    hits, misses = jnp.cumsum(sorted_truth), jnp.cumsum(1 - sorted_truth)
    area = jnp.trapezoid(hits / hits[-1], misses / misses[-1])
    tails = jax.grad(lambda s: jnp.sum(jnp.sort(s, axis=1)[:, :5] ** 2))(scores)
    return jnp.where(keep, scores, -1.0), jax.vmap(gain)(scores, gains), area, tails


@programs(whole(20, 300), floats(300), fractions(2, 300), np.sort(floats(15)), floats(15))
def counted(jax: Any, k: Any, x: Any, places: Any, edges: Any, heights: Any) -> Any:
    jnp = jax.numpy
    column, row = jnp.clip((places * 6).astype(int), 0, 5)
    return (
        (jnp.bincount(k, length=20), jnp.histogram(x, 12), jnp.histogram2d(x, places[0], 5)[0]),
        (jnp.searchsorted(edges, x), jnp.digitize(x, edges), jnp.interp(x, edges, heights)),
        (jnp.unique(k, size=20), jnp.nonzero(k > 15, size=80, fill_value=-1), jnp.flatnonzero(k == 3, size=30)),
        jnp.zeros((6, 6)).at[row, column].add(x),
        jnp.zeros((20, 20), int).at[k, jnp.roll(k, 1)].add(1),
        jnp.full(20, jnp.inf).at[k].min(x),
    )


@programs(whole(4, 25), whole(4, 30), floats(9, 9), fractions(10, 10), whole(10, 40), whole(10, 40), fractions(40))
def dynamic_programs(jax: Any, a: Any, b: Any, t: Any, far: Any, tails: Any, heads: Any, lengths: Any) -> Any:
    """Local alignment, the likeliest path, all shortest paths, and those from one place."""
    jnp, lax = jax.numpy, jax.lax

    def row(h: Any, letter: Any) -> Any:
        diagonal = jnp.concatenate([jnp.zeros(1, int), h[:-1]]) + jnp.where(b == letter, 3, -2)
        best = jnp.maximum(jnp.maximum(diagonal, h - 1), 0)
        i = jnp.arange(len(b))
        best = lax.cummax(best + i) - i
        return best, best.max()

    def forth(d: Any, word: Any) -> Any:
        s = d[:, None] + t
        return s.max(0) + t[:, word], s.argmax(0)

    end, back = lax.scan(forth, t[0], a)
    path = lax.scan(lambda s, b: (b[s], b[s]), end.argmax(), back, reverse=True)[1]
    paths = lax.fori_loop(0, 10, lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k]), far)
    start = jnp.full(10, jnp.inf).at[0].set(0)
    one = lax.fori_loop(0, 10, lambda _, d: d.at[heads].min(d[tails] + lengths), start)
    return lax.scan(row, jnp.zeros(len(b), int), a)[1].max(), path, paths, one


@programs((fractions(40) > 0.5).astype(np.uint8), floats(32), np.arange(1, 60, dtype=np.int32))
def machines(jax: Any, cells: Any, x: Any, numbers: Any) -> Any:
    """Rule 110, a sorting network, Collatz' and Euclid's loops, one for each number, and a sieve."""
    jnp, lax = jax.numpy, jax.lax
    rule = jnp.array([0, 1, 1, 1, 0, 1, 1, 0], jnp.uint8)

    def generation(s: Any, _: Any) -> Any:
        s = rule[4 * jnp.roll(s, 1) + 2 * s + jnp.roll(s, -1)]
        return s, s

    def network(x: Any) -> Any:
        i = jnp.arange(32)
        for k in (2, 4, 8, 16, 32):
            j = k // 2
            while j:
                partner = x[i ^ j]
                first = ((i & k) == 0) == ((i & j) == 0)
                x = jnp.where(first, jnp.minimum(x, partner), jnp.maximum(x, partner))
                j //= 2
        return x

    def collatz(n: Any) -> Any:
        def step(s: Any) -> Any:
            return jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1

        return lax.while_loop(lambda s: s[0] > 1, step, (n, 0))[1]

    def divisor(a: Any, b: Any) -> Any:
        return lax.while_loop(lambda s: s[1] != 0, lambda s: (s[1], s[0] % s[1]), (a, b))[0]

    i = jnp.arange(100)
    sieve = lax.fori_loop(2, 10, lambda p, s: jnp.where(s[p] & (i % p == 0) & (i > p), False, s), i > 1)
    return (
        lax.scan(generation, cells, None, length=30)[1],
        network(x),
        jax.vmap(collatz)(numbers),
        jax.vmap(divisor, (0, None))(numbers, 36),
        sieve,
    )


# --- chance and control -----------------------------------------------------------------------------------------------


@programs(np.array([0, 7], np.uint32), np.float32(100), np.float32(0.2), floats(12))
def simulations(jax: Any, key: Any, spot: Any, volatility: Any, seen: Any) -> Any:
    """An option on an average, its derivatives, a particle filter, and bootstrapped means."""
    jnp, lax = jax.numpy, jax.lax
    keys = jax.random.split(key, 3)

    def option(spot: Any, v: Any) -> Any:
        def step(s: Any, z: Any) -> Any:
            s = s * jnp.exp((0.05 - v * v / 2) * 0.1 + v * np.sqrt(0.1) * z)
            return s, s

        paths = lax.scan(step, jnp.full(64, spot), jax.random.normal(keys[0], (10, 64)))[1]
        return jnp.mean(jnp.maximum(paths.mean(0) - 100, 0))

    def step(x: Any, t: Any) -> Any:
        key, y = t
        move, draw = jax.random.split(key)
        x = 0.9 * x + jax.random.normal(move, x.shape)
        weight = jax.nn.softmax(-0.5 * (y - x) ** 2)
        points = (jnp.arange(50) + jax.random.uniform(draw)) / 50
        return x[jnp.clip(jnp.searchsorted(jnp.cumsum(weight), points), 0, 49)], (weight * x).sum()

    filtered = lax.scan(step, jnp.zeros(50), (jax.random.split(keys[1], 12), seen))[1]
    means = jax.vmap(lambda k: jax.random.choice(k, seen, (12,)).mean())(jax.random.split(keys[2], 20))
    return jax.value_and_grad(option, (0, 1))(spot, volatility), filtered, means


@programs(floats(4) * 0.1, floats(6, 4) * 0.05, fractions(3, 9, 9), fractions(9, 3), floats(15, 3), floats(16, 3))
def controllers(jax: Any, w: Any, starts: Any, moves: Any, rewards: Any, paid: Any, values: Any) -> Any:
    """A gradient through rollouts of a cart with a pole, values by iteration, and advantages."""
    jnp, lax = jax.numpy, jax.lax

    def cart(s: Any, _: Any) -> Any:
        _, speed, angle, turn = s
        force = (10 * jnp.tanh(s @ w) + 0.05 * turn**2 * jnp.sin(angle)) / 1.1
        bend = (9.8 * jnp.sin(angle) - jnp.cos(angle) * force) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
        push = force - 0.05 * bend * jnp.cos(angle) / 1.1
        s = s + 0.02 * jnp.array([speed, push, turn, bend])
        return s, -(s[2] ** 2) - 0.1 * s[0] ** 2

    def mean(starts: Any) -> Any:
        return jax.vmap(lambda s: lax.scan(cart, s, None, length=20)[1].sum())(starts).mean()

    likely = moves / moves.sum(-1, keepdims=True)

    def sweep(_: Any, v: Any) -> Any:
        return jnp.max(rewards + 0.9 * jnp.einsum("ast,t->sa", likely, v), 1)

    def advantage(a: Any, t: Any) -> Any:
        a = t[0] + 0.99 * t[2] - t[1] + 0.94 * a
        return a, a

    advantages = lax.scan(advantage, jnp.zeros(3), (paid, values[:-1], values[1:]), reverse=True)[1]
    return jax.value_and_grad(mean)(starts), lax.fori_loop(0, 30, sweep, jnp.zeros(9)), advantages


# --- learning ---------------------------------------------------------------------------------------------------------


@programs(floats(2, 12, 6), floats(2, 12, 6), -fractions(6, 4), floats(2, 12, 4), floats(2, 12, 4), floats(12, 6))
def state_spaces(jax: Any, x: Any, dt: Any, a: Any, b: Any, c: Any, decay: Any) -> Any:
    """A selective state space, linear attention, and a linear recurrence by associative scans, with a gradient."""
    jnp, lax = jax.numpy, jax.lax

    def selective(x: Any, dt: Any, b: Any, c: Any) -> Any:
        def step(h: Any, t: Any) -> Any:
            x, dt, b, c = t
            h = jnp.exp(dt[:, None] * a) * h + (dt * x)[:, None] * b
            return h, h @ c

        return lax.scan(step, jnp.zeros((6, 4)), (x, jax.nn.softplus(dt), b, c))[1]

    def linear(q: Any, k: Any, v: Any) -> Any:
        def step(state: Any, t: Any) -> Any:
            s, z = state[0] + jnp.outer(t[1], t[2]), state[1] + t[1]
            return (s, z), t[0] @ s / (t[0] @ z + 1e-6)

        features = (jax.nn.elu(q) + 1, jax.nn.elu(k) + 1, v)
        return lax.scan(step, (jnp.zeros((4, 6)), jnp.zeros(4)), features)[1]

    def recurrent(decay: Any, x: Any) -> Any:
        def joined(p: Any, q: Any) -> Any:
            return p[0] * q[0], q[0] * p[1] + q[1]

        return jnp.mean(lax.associative_scan(joined, (jax.nn.sigmoid(decay), x))[1] ** 2)

    return (
        jax.vmap(selective)(x, dt, b, c),
        jax.vmap(linear)(b, c, x),
        jax.value_and_grad(recurrent, (0, 1))(decay, x[0]),
    )


@programs(floats(20, 6), floats(20, 6), whole(20, 8), whole(20, 8), whole(20, 8, 3), floats(10, 6), floats(10, 6))
def embeddings(jax: Any, inner: Any, outer: Any, centre: Any, word: Any, wrong: Any, a: Any, b: Any) -> Any:
    """Words by negative samples, and views of images by contrast."""
    jnp, nn = jax.numpy, jax.nn

    def words(inner: Any, outer: Any) -> Any:
        v = inner[centre]
        noise = nn.log_sigmoid(-jnp.einsum("bd,bnd->bn", v, outer[wrong])).sum(-1)
        return -jnp.mean(nn.log_sigmoid((v * outer[word]).sum(-1)) + noise)

    def contrast(a: Any, b: Any) -> Any:
        z = jnp.concatenate([a, b])
        z = z / jnp.linalg.norm(z, axis=1, keepdims=True)
        scores = jnp.where(jnp.eye(20, dtype=bool), -jnp.inf, z @ z.T / 0.5)
        return -jnp.mean(nn.log_softmax(scores)[jnp.arange(20), (jnp.arange(20) + 10) % 20])

    return jax.value_and_grad(words, (0, 1))(inner, outer), jax.value_and_grad(contrast, (0, 1))(a, b)


@programs(np.array([3, 4], np.uint32), floats(16, 2), floats(10, 16) / 3, floats(16, 5) / 4, floats(16), whole(4, 16))
def policies_and_noise(jax: Any, key: Any, x: Any, w1: Any, w2: Any, gain: Any, action: Any) -> Any:
    """The losses of a diffusion model and of proximal policy optimization, of one small network."""
    jnp, random = jax.numpy, jax.random

    def network(w: Any, x: Any) -> Any:
        return jnp.tanh(x @ w[0]) @ w[1]

    def diffusion(w: Any) -> Any:
        when, draw = random.split(key)
        t = random.randint(when, (16,), 0, 50)
        kept = jnp.cumprod(1 - jnp.linspace(1e-3, 0.05, 50))[t][:, None]
        noise = random.normal(draw, x.shape)
        waves = t[:, None] * 2.0 ** -jnp.arange(4)
        seen = [jnp.sqrt(kept) * x + jnp.sqrt(1 - kept) * noise, jnp.sin(waves), jnp.cos(waves)]
        return jnp.mean((network(w, jnp.concatenate(seen, -1))[:, :2] - noise) ** 2)

    def proximal(w: Any) -> Any:
        out = network(w, jnp.tile(x, (1, 5)))
        logs = jax.nn.log_softmax(out[:, :4])
        ratio = jnp.exp(jnp.take_along_axis(logs, action[:, None], 1)[:, 0] + 1.4)
        clipped = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
        entropy = -jnp.sum(jnp.exp(logs) * logs, 1)
        return -jnp.mean(clipped) + 0.5 * jnp.mean((out[:, 4] - gain) ** 2) - 0.01 * jnp.mean(entropy)

    return jax.value_and_grad(diffusion)((w1, w2)), jax.value_and_grad(proximal)((w1, w2))


@programs(floats(12, 9), (fractions(12, 9) > 0.4).astype(np.float32), floats(9, 3), floats(4, 4), floats(4, 3, 3, 3))
def alternating_and_layers(jax: Any, r: Any, known: Any, v: Any, x: Any, stack: Any) -> Any:
    """A factor by alternating least squares, and layers in a scan that are computed again for the gradient."""
    jnp, lax = jax.numpy, jax.lax

    def row(r: Any, m: Any) -> Any:
        return jnp.linalg.solve((v * m[:, None]).T @ v + 0.1 * jnp.eye(3), v.T @ (r * m))

    def layer(x: Any, w: Any) -> Any:
        h = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x + jax.nn.softmax(h @ w[0] @ (h @ w[1]).T) @ (h @ w[2]), None

    def loss(stack: Any) -> Any:
        return jnp.mean(lax.scan(jax.checkpoint(layer), x[:, :3], stack)[0] ** 2)

    return jax.vmap(row)(r, known), jax.value_and_grad(loss)(stack)


@programs(floats(3, 5, 4), np.array([3, 0, -1, 2, 1], np.int32), np.array([0, 3, -2, 1, 1], np.int32))
def many_parts_put_together(jax: Any, x: Any, i: Any, j: Any) -> Any:
    """More arrays than a loop chooses among: rolled ones, as streams of a lattice gas; single elements; those kept."""
    jnp = jax.numpy
    rolled = [jnp.roll(x[k % 3], (k % 5, -k), (0, 1)) for k in range(11)]
    patches = [x[:, a : a + 2, b : b + 2] for a in range(4) for b in range(3)]
    picked = x[0][i, j] + jnp.zeros((5, 4)).at[i, j].add(1.0)[i, j]
    return jnp.stack(rolled), jnp.stack(rolled, 1), jnp.concatenate(rolled, 1), jnp.stack(patches, -1), picked
