"""Functions of one array f32[b,4] for every b, with which exporting is tested, and a training step."""

from __future__ import annotations

from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as tnp
from tinyxla import lax, nn, random

W = np.cos(np.arange(12, dtype=np.float32)).reshape(4, 3)

PROGRAMS: dict[str, Any] = {
    "elementwise": lambda x: tnp.tanh(x) + 1,
    "product": lambda x: nn.relu(x @ W),
    "gram matrix": lambda x: x @ x.T,
    "contraction": lambda x: tnp.einsum("bi,bj->bij", x, x),
    "reshapes": lambda x: (x.reshape(-1), x.reshape(x.shape[0], 1, 4), x.reshape(2 * x.shape[0], 2), x.reshape(-1, 2)),
    "broadcast": lambda x: (tnp.broadcast_to(x, (2, *x.shape)), tnp.ones(x.shape), tnp.zeros_like(x)),
    "slices": lambda x: (x[1:], x[:, 1:3], x[:3], x[::-1], x[::2], x[-1], x[0]),
    "padding": lambda x: tnp.pad(x, ((1, 2), (0, 0))),
    "concatenation": lambda x: (tnp.concatenate([x, x]), tnp.stack([x, x]), tnp.tile(x, (2, 1)), tnp.repeat(x, 2, axis=0)),
    "counting": lambda x: (tnp.arange(x.shape[0]) + x[:, 0], tnp.arange(0, x.shape[0], 2), tnp.eye(x.shape[0])),
    "size as a number": lambda x: (x.sum() / x.shape[0], x * x.shape[0], 1.5 * x.shape[0], x.sum() / x.size),
    "sizes as an array": lambda x: tnp.array([x.shape[0], x.shape[0] // 2, x.shape[0] % 3, 7]),
    "statistics": lambda x: (x.mean(), x.mean(0), x.var(0), x.std(1), x.max(0), tnp.median(x, 0)),
    "arguments": lambda x: (x.argmax(0), x.argmin(1), tnp.argsort(x, 0)),
    "softmax": lambda x: (nn.softmax(x), nn.softmax(x, axis=0), nn.logsumexp(x, 0)),
    "sorting": lambda x: (tnp.sort(x, 0), *lax.top_k(x, 2)),
    "cumulative": lambda x: (tnp.cumsum(x, 0), lax.cummax(x, 0), lax.associative_scan(tnp.add, x)),
    "indexing": lambda x: (x[:, np.array([0, 2])], x[np.array([0])], x.at[0].set(1.0), tnp.take_along_axis(x, x.argsort(1), 1)),
    "dynamic slices": lambda x: (lax.dynamic_slice(x, (1, 0), (1, 4)), lax.dynamic_slice_in_dim(x, 1, 2, axis=1)),
    "triangle": lambda x: tnp.tril(x @ x.T),
    "scan": lambda x: lax.scan(lambda c, a: (tnp.sin(c + a), c * a), tnp.zeros(4), x),
    "counted loop": lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i] * i, tnp.zeros(4)),
    "loop on a condition": lambda x: lax.while_loop(lambda c: c[0].sum() < 100.0, lambda c: (c[0] + 1 + c[1] ** 2,) * 2, (x, x))[0],
    "branch": lambda x: lax.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * y.shape[0], x),
    "call": lambda x: tx.jit(lambda y: tnp.sin(y) * y.shape[0])(x) + tx.jit(tnp.sin)(x),
    "mapped function": lambda x: tx.vmap(lambda r: nn.softmax(r) * r.sum())(x),
    "convolution": lambda x: lax.conv_general_dilated(x.reshape(-1, 1, 2, 2), tnp.ones((2, 1, 2, 2)), (1, 1), "SAME"),
    "windows": lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), "VALID"),
    "random numbers": lambda x: x + random.normal(random.key(0), x.shape) * random.bernoulli(random.key(1), 0.5, x.shape),
    "rows by key": lambda x: tx.vmap(lambda k: random.uniform(k, (2,)))(random.split(random.key(0), x.shape[0])),
    "segments": lambda x: tx.ops.segment_sum(x, tnp.arange(x.shape[0]) % 3, 3),
    "positions": lambda x: x + tnp.sin(tnp.arange(x.shape[0])[:, None] * 0.1),
    "cholesky": lambda x: tnp.linalg.cholesky(tx.vmap(lambda r: tnp.outer(r, r) + tnp.eye(4))(x)),
    "fourier": lambda x: tnp.abs(tnp.fft.fft(x)),
    "attention": lambda x: nn.dot_product_attention(*[x[:, :, None, None]] * 3),
    "jacobian": lambda x: tx.jacrev(lambda w: tnp.tanh(x @ w))(tnp.ones(4)),
    "gradient": tx.grad(lambda x: (tnp.sin(x) ** 2).mean() + x[1:].sum() + x.prod(0).sum() + x.max(0).sum()),
    "gradient of a scan": tx.grad(lambda x: lax.scan(lambda c, a: (tnp.sin(c + a), c * a), tnp.zeros(4), x)[1].sum()),
    "gradient of a loss": tx.grad(lambda x: -nn.log_softmax(x)[:, 0].mean() + tnp.cumsum(x * x, 0).sum()),
}  # fmt: skip
# ruff: noqa: E501


def rows(b: int) -> Any:
    """An argument of b rows."""
    return np.sin(np.arange(4 * b, dtype=np.float32) + 1).reshape(b, 4)


def parameters() -> dict[str, Any]:
    """Parameters of a network."""
    return {"w": [W / 2, W.T.copy() / 2], "b": np.zeros(3, np.float32)}


def loss(weights: Any, x: Any) -> Any:
    """How far a network is from giving its input."""
    hidden = tnp.tanh(x @ weights["w"][0] + weights["b"])
    return ((hidden @ weights["w"][1] - x) ** 2).mean()


def train(weights: Any, x: Any) -> Any:
    """The loss, and the parameters after a step."""
    value, slopes = tx.value_and_grad(loss)(weights, x)
    return value, tx.tree.map(lambda w, s: w - 0.1 * s, weights, slopes)
