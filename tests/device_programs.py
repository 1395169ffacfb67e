"""JAX programs on four devices of the CPU: their HLO text, and what they compute.

`python tests/device_programs.py` writes `golden/device_programs.json`. The number of devices is set before JAX is
imported, so this is a process of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden" / "device_programs.json"
DEVICES = 4


def programs() -> dict[str, Callable[[Any], Any]]:
    """Functions of a device's part of an array, over the axes "a" and "b"."""
    import jax
    from jax import lax, numpy as jnp

    def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        count, x = carry
        return count + 1, x + lax.ppermute(x, "a", [(0, 1), (1, 0)])

    return {
        "psum": lambda x: lax.psum(x, "a") + x,
        "psum of a pair": lambda x: sum(lax.psum((x, jnp.sin(x)), ("a", "b"))),
        "pmax and pmin": lambda x: lax.pmax(x, "b") - lax.pmin(x, ("a", "b")),
        "all_gather": lambda x: lax.all_gather(x, "b").sum(0) * x,
        "all_gather tiled": lambda x: lax.all_gather(x, "a", axis=1, tiled=True),
        "psum_scatter": lambda x: lax.psum_scatter(x, "b", scatter_dimension=1, tiled=True),
        "all_to_all": lambda x: lax.all_to_all(x, "a", 1, 0, tiled=True),
        "ppermute": lambda x: lax.ppermute(x, "b", [(0, 1)]) + lax.ppermute(x, "a", [(0, 1), (1, 0)]),
        "axis_index": lambda x: x * (lax.axis_index("a") + 10 * lax.axis_index("b")),
        "loop": lambda x: lax.while_loop(lambda c: c[0] < 3, step, (jnp.int32(0), x))[1],
        "gradient": lambda x: jax.grad(lambda y: jnp.sum(lax.psum(jnp.sin(y), "a") ** 2))(x),
        "softmax": lambda x: jnp.exp(x) / lax.psum(jnp.exp(x).sum(1, keepdims=True), "b"),
    }


def without_paths(text: str) -> str:
    return text.replace(f"{Path(__file__).parent}/", "")


def main() -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax
    import numpy as np
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
    spec = PartitionSpec(("a", "b"))
    x = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    found: dict[str, Any] = {}
    for name, function in programs().items():
        mapped = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))
        lowered = mapped.lower(x)
        found[name] = {
            "text": without_paths(lowered.as_text("hlo")),
            "optimized": without_paths(lowered.compile().as_text()),
            "result": np.asarray(mapped(x)).tolist(),
        }
    GOLDEN.write_text(json.dumps({"operand": x.tolist(), "programs": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
