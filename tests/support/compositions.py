"""Transformations in every order, over functions that together use every family of operations.

All transformations take a function from 4 numbers to 4 numbers and give such a function, so that any of them may follow
any other. What JAX makes of them is in `golden/compositions.npz`; `python -m tests.support.compositions` computes it
again.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Function = Callable[[Any], Any]
START = np.array([0.3, -0.7, 1.1, 0.6])
WEIGHTS = np.array([0.5, -1.0, 0.25, 0.75])
GOLDEN = Path(__file__).parent / "golden" / "compositions.npz"

# --- functions --------------------------------------------------------------------------------------------------------


def elementwise(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        y = jnp.tanh(x) * jnp.exp(-x * x) + jnp.log1p(x * x) / (2 + jnp.cos(x))
        y = y + jnp.where(x > 0, jnp.sqrt(jnp.abs(x) + 1), jnp.arctan2(x, 2.0)) ** 3
        return y + jx.nn.sigmoid(x) - jx.scipy.special.erf(x) + jnp.floor(x) * x + jnp.maximum(x, 0.5)

    return f


def dense(jx: Any) -> Function:
    jnp = jx.numpy
    w = jnp.asarray(np.sin(np.arange(16.0)).reshape(4, 4))

    def f(x: Any) -> Any:
        h = jx.nn.gelu(w @ x + 0.1)
        h = (h - h.mean()) / jnp.sqrt(h.var() + 0.1)
        attention = jx.nn.softmax(jnp.outer(h, x) / 2, axis=-1)
        return attention @ x + jnp.einsum("ij,jk,k->i", w, w, h) + jx.nn.logsumexp(h) * x

    return f


def reductions(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        y = jnp.cumsum(x) * jnp.prod(x + 2) + jx.lax.cumlogsumexp(x)
        z = jx.lax.reduce_window(x, -jnp.inf, jx.lax.max, (2,), (1,), "SAME")
        total = jx.lax.reduce(x * x, jnp.zeros_like(x[0]), jx.lax.add, (0,))
        return y + z * jnp.max(x) + jnp.linalg.norm(x) * total - jnp.min(x) * jnp.argmax(x)

    return f


def indices(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        y = x[jnp.array([2, 0, 0, 3])] * jnp.sort(x)
        y = y.at[jnp.array([1, 1, 3])].add(x[:3] ** 2).at[0].set(x[1] * x[2])
        first = jnp.argmax(x)
        part = jx.lax.dynamic_slice(x, (first - 1,), (2,))
        y = jx.lax.dynamic_update_slice(y, part * y[:2], (first - 1,))
        values, places = jx.lax.top_k(x, 2)
        return y + jnp.take(x, jnp.argsort(x)) * values[0] + jnp.sin(y)[places[1]]

    return f


def movement(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        y = jnp.concatenate([jnp.roll(x, 1)[:2], x[::-1][1:3]]) * jnp.pad(x[1:3], 1, mode="edge")
        z = jnp.tile(x.reshape(2, 2).T, (1, 2))[:, 1:3].ravel()
        parts = jnp.split(y * z, 2)
        return jnp.stack(parts, axis=1).reshape(-1) + jnp.repeat(x[:2], 2) * x

    return f


def windows(jx: Any) -> Function:
    jnp = jx.numpy
    kernel = jnp.asarray(np.array([[[0.5, -1.0, 0.3]], [[0.2, 0.1, 1.0]]]))

    def f(x: Any) -> Any:
        y = jx.lax.conv_general_dilated(x[None, None], kernel, (1,), "SAME")[0]
        pooled = jx.lax.reduce_window(jnp.sin(y), 0.0, jx.lax.add, (1, 2), (1, 1), "SAME")
        return jnp.convolve(x, y[0], mode="same") * pooled[1] + pooled[0]

    return f


def linear_algebra(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        m = jnp.outer(x, x) + jnp.diag(jnp.asarray([2.0, 3.0, 4.0, 5.0]))
        factor = jnp.linalg.cholesky(m)
        y = jx.scipy.linalg.solve_triangular(factor, jnp.sin(x), lower=True)
        values, _ = jnp.linalg.eigh(m)
        return y + jnp.linalg.solve(m, x) * values + jnp.linalg.slogdet(m)[1]

    return f


def complex_numbers(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        z = jnp.fft.fft(x * jnp.exp(0.3j * x))
        spectrum = jnp.abs(z) ** 2 + jnp.angle(z + 5)
        return jnp.real(jnp.fft.ifft(z * jnp.conj(z) + 1j * z)) + spectrum * jnp.imag(jnp.tanh(x + 0.2j))

    return f


def loops(jx: Any) -> Function:
    jnp, lax = jx.numpy, jx.lax

    def f(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = jnp.sin(carry) * x + row
            return carry, carry.sum()

        carry, totals = lax.scan(step, x, jnp.stack([x, x * x]))
        carry = lax.fori_loop(0, 2, lambda i, c: c * 0.9 + jnp.cos(c) * i, carry)
        branch = lax.cond(x[0] > 0.25, lambda a: a * a, lambda a: a + 1, carry)
        number = (x[1] > 0).astype(jnp.int32) + 1
        chosen = lax.switch(number, [jnp.sin, jnp.cos, jnp.tanh], branch)
        return chosen + lax.map(lambda a: a * totals[0], x) + lax.associative_scan(jnp.multiply, 1 + x / 4)

    return f


def rules(jx: Any) -> Function:
    jnp = jx.numpy

    @jx.custom_jvp
    def by_jvp(x: Any) -> Any:
        return jnp.sin(x)

    by_jvp.defjvp(lambda p, t: (by_jvp(*p), 2 * jnp.cos(p[0]) * t[0]))

    def f(x: Any) -> Any:
        y = jx.checkpoint(lambda a: jnp.sin(jnp.exp(a) * a))(by_jvp(x))
        newton = lambda g, a: jx.lax.fori_loop(0, 9, lambda _, a: a - g(a) / 4, a)  # noqa: E731
        root = jx.lax.custom_root(
            lambda z: z**3 + 2 * z - x, jnp.zeros_like(x), newton, lambda g, v: v / g(jnp.ones_like(v))
        )
        return y * jx.lax.stop_gradient(x) + root

    return f


def numbers(jx: Any) -> Function:
    jnp = jx.numpy

    def f(x: Any) -> Any:
        key = jx.random.key(3) if hasattr(jx.random, "key") else jx.random.PRNGKey(3)
        noise = jx.random.normal(key, (4,), dtype=x.dtype)
        whole = jnp.round(x * 3).astype(jnp.int32)
        bits = ((whole & 3) ^ (whole >> 1)).astype(x.dtype)
        return x * noise + bits * x**2 + (whole % 3) * jnp.sin(x)

    return f


FUNCTIONS: dict[str, Callable[[Any], Function]] = {
    f.__name__: f
    for f in (
        elementwise,
        dense,
        reductions,
        indices,
        movement,
        windows,
        linear_algebra,
        complex_numbers,
        loops,
        rules,
        numbers,
    )
}

# --- transformations --------------------------------------------------------------------------------------------------


def _rows(jx: Any, x: Any) -> Any:
    return jx.numpy.stack([x, 0.9 * x, x + 0.1])


def _custom_jvp(jx: Any, f: Function) -> Function:
    wrapped = jx.custom_jvp(f)
    wrapped.defjvp(lambda p, t: jx.jvp(f, p, t))
    return wrapped


def _while(jx: Any, f: Function) -> Function:
    """A loop of two steps whose length JAX can differentiate in both modes, and a `while_loop` around what does not
    depend on x."""

    def looped(x: Any) -> Any:
        n = jx.lax.while_loop(lambda n: n < 3, lambda n: n + 1, 0)
        return jx.lax.fori_loop(0, 2, lambda i, c: 0.5 * f(c) + 0.1 * n, x)

    return looped


TRANSFORMATIONS: dict[str, Callable[[Any, Function], Function]] = {
    "jit": lambda jx, f: jx.jit(f),
    "grad": lambda jx, f: jx.grad(lambda x: (f(x) * WEIGHTS).sum()),
    "jvp": lambda jx, f: lambda x: jx.jvp(f, (x,), (x * 0 + WEIGHTS,))[1],
    "vjp": lambda jx, f: lambda x: jx.vjp(f, x)[1](x)[0],
    "vmap": lambda jx, f: lambda x: jx.numpy.tensordot(WEIGHTS[:3], jx.vmap(f)(_rows(jx, x)), 1),
    "vmap over columns": lambda jx, f: lambda x: jx.vmap(f, -1, -1)(_rows(jx, x).T)[:, 1],
    "named vmap": lambda jx, f: (
        lambda x: jx.vmap(
            lambda row: jx.lax.pmean(f(row), "rows") + 0.1 * jx.lax.axis_index("rows") * row, axis_name="rows"
        )(_rows(jx, x))[2]
    ),
    "jacfwd": lambda jx, f: lambda x: jx.jacfwd(f)(x) @ WEIGHTS,
    "jacrev": lambda jx, f: lambda x: WEIGHTS @ jx.jacrev(f)(x),
    "linearize": lambda jx, f: lambda x: jx.linearize(f, x)[1](x),
    "checkpoint": lambda jx, f: jx.checkpoint(f),
    "custom_jvp": _custom_jvp,
    "scan": lambda jx, f: lambda x: jx.lax.scan(lambda c, r: (0.5 * f(c) + r, c.sum()), x, _rows(jx, x)[:2])[0],
    "while": _while,
    "cond": lambda jx, f: lambda x: jx.lax.cond(x.sum() > 0, f, lambda x: 2 * f(x), x),
}


def transformed(jx: Any, function: str, path: tuple[str, ...]) -> Function:
    """The function with the transformations applied, the last of the path outermost."""
    f = FUNCTIONS[function](jx)
    for name in path:
        f = TRANSFORMATIONS[name](jx, f)
    return f


OFTEN = ("jit", "grad", "jvp", "vjp", "vmap", "named vmap", "jacfwd", "checkpoint", "scan", "cond")


def cases() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every transformation of every function; every pair, of two functions each; and every triple of those that are
    used most (but branches), of one. Functions take turns, so that each meets every transformation in every place."""
    for function in FUNCTIONS:
        for name in TRANSFORMATIONS:
            yield function, (name,)
    functions = itertools.cycle(FUNCTIONS)
    for pair in itertools.product(TRANSFORMATIONS, repeat=2):
        for function in list(itertools.islice(functions, 4))[::2]:
            yield function, pair
    for triple in itertools.product(OFTEN, repeat=3):
        function = next(functions)
        if "cond" not in triple:  # which compiles both branches, each with what is inside; nor are loops in loops quick
            yield "elementwise" if function == "loops" else function, triple


def key(function: str, path: tuple[str, ...]) -> str:
    return " of ".join([*reversed(path), function])


def expected() -> dict[str, Any]:
    """The values that JAX gives, by `key`."""
    with np.load(GOLDEN) as file:
        return dict(zip(map(str, file["names"]), file["values"], strict=True))


def save(found: dict[str, Any]) -> None:
    np.savez_compressed(GOLDEN, names=np.array(list(found)), values=np.array(list(found.values())))


def main() -> None:
    """Compute what is missing in the file, or all again with `--all`."""
    import jax

    jax.config.update("jax_enable_x64", True)
    known = expected() if GOLDEN.exists() and "--all" not in sys.argv else {}
    wanted = {key(*case): case for case in cases()}
    found = {name: value for name, value in known.items() if name in wanted}
    for number, (name, case) in enumerate(wanted.items()):
        if name not in found:
            found[name] = np.asarray(jax.jit(transformed(jax, *case))(START))
            if number % 50 == 0:
                print(f"{number} of {len(wanted)}", flush=True)
                jax.clear_caches()
                save(found)
    save(found)


if __name__ == "__main__":
    main()
