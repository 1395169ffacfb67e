"""A training step of several layers: the order of what its plan computes and sends, and weights after some steps."""

from __future__ import annotations

from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import distributed

SIZE, LAYERS = 96, 4


def loss(weights: list[Any], x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.sum(x**2)


@tx.jit
def step(weights: list[Any], x: Any) -> list[Any]:
    return [w - 0.01 * g for w, g in zip(weights, tx.grad(loss)(weights, x), strict=True)]


def main() -> None:
    distributed.initialize()
    count = distributed.process_count()
    mesh = tx.make_mesh((count,), ("x",))
    random = np.random.default_rng(0)
    weights: list[Any] = [
        tx.device_put(random.normal(size=(SIZE, SIZE)).astype(np.float32) / SIZE**0.5, tx.NamedSharding(mesh, tx.P()))
        for _ in range(LAYERS)
    ]
    x = tx.device_put(random.normal(size=(64 * count, SIZE)).astype(np.float32), tx.NamedSharding(mesh, tx.P("x")))
    plan = step.lower(weights, x).compile().as_text()
    steps = [line.split()[1] for line in plan.split("\n") if line.strip()[:1].isdigit()]
    print(" ".join(x for x in steps if x == "product" or x.startswith("all-reduce")) + "\n", end="")
    for _ in range(3):
        weights = step(weights, x)
    print(b"".join(np.asarray(w).tobytes() for w in weights).hex()[-2000:] + "\n", end="")


if __name__ == "__main__":
    main()
