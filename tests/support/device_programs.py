"""JAX programs on four devices of the CPU: their HLO text, and what they compute.

`python -m tests.support.device_programs` writes `golden/device_programs.json`. The number of devices is set before
JAX is imported, so this is a process of its own.
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


def partitioned_programs() -> dict[str, tuple[Callable[[Any], Any], Any, Any]]:
    """Functions of a whole array f32[8,4], which XLA's partitioner divides, and how operand and result are divided."""
    import jax
    from jax import numpy as jnp
    from jax.sharding import PartitionSpec

    both, rows, turned = PartitionSpec("a", "b"), PartitionSpec(("a", "b")), PartitionSpec("b", "a")
    return {
        "product": (lambda x: x @ x.T, both, both),
        "transpose": (lambda x: x.T + 1, both, both),
        "sums": (lambda x: (x / x.sum(0)).sum(1), both, PartitionSpec("b")),
        "softmax of columns": (lambda x: jax.nn.softmax(x, 0), turned, turned),
        "sort": (lambda x: jnp.sort(x, 0), rows, rows),
        "cumulative sum": (lambda x: jnp.cumsum(x, 0), rows, rows),
        "rotation of rows": (lambda x: jnp.roll(x, 3, 0), rows, rows),
        "rows by number": (lambda x: x[jnp.array([3, 1, 4, 1, 5, 2, 7, 6])], rows, rows),
    }


def without_paths(text: str) -> str:
    return text.replace(f"{Path(__file__).parent}/", "")


def main() -> None:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

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
    partitioned: dict[str, Any] = {}
    for name, (function, given, asked) in partitioned_programs().items():
        operand = jax.device_put(x, NamedSharding(mesh, given))
        divided = jax.jit(function, out_shardings=NamedSharding(mesh, asked))
        partitioned[name] = {
            "optimized": without_paths(divided.lower(operand).compile().as_text()),
            "operands": parts_of(operand),
            "results": parts_of(divided(operand)),
        }
    written = {"operand": x.tolist(), "programs": found, "partitioned": partitioned}
    GOLDEN.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def parts_of(array: Any) -> list[Any]:
    """What each device has of an array."""
    shards = sorted(array.addressable_shards, key=lambda shard: shard.device.id)
    return [shard.data.tolist() for shard in shards]


if __name__ == "__main__":
    main()
