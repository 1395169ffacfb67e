"""Programs whose plans stand in `tests/compiler/schedule/golden`; `python -m tests.support.plan_programs FEATURES`
prints the plans as JSON, as they are on a processor with these features. TARGET are the sizes of its caches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
TARGET = "processors=2,line_bytes=64,l1_bytes=32768,l2_bytes=1048576,l2_ways=8,last_level_bytes=33554432"


def floats(*sizes: int) -> Array:
    return np.random.default_rng(0).normal(size=sizes).astype(np.float32)


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions with arguments."""
    import tinyxla as tx  # here, when the processor is known
    import tinyxla.numpy as jnp
    from tinyxla import lax

    def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + bias

    def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

    def convolution(x: Any, w: Any, b: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return tx.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers) + b)

    def recurrence(x: Any, w: Any) -> Any:
        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            carry = jnp.tanh(carry @ w + row)
            return carry, carry

        return lax.scan(step, jnp.zeros_like(x[0]), x)[1]

    def branches(x: Any, w: Any) -> Any:
        return lax.cond(x[0, 0] > 0, lambda x: jnp.sort(x @ w, 1), lambda x: x - 1, x)

    def called(x: Any) -> Any:
        return tx.pure_callback(np.sin, tx.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    x = floats(256, 512)
    return {
        "softmax": (lambda x: tx.nn.softmax(x, axis=-1), (x,)),
        "layer_norm": (layer_norm, (x, x[0], x[0])),
        "optimiser_step": (adam, (x, x, x, x)),
        "convolution_epilogue": (convolution, (floats(4, 16, 16, 8), floats(3, 3, 8, 16), floats(16))),
        "small_matmul_and_bias": (lambda x, w, b: x @ w + b, (floats(32, 24), floats(24, 10), floats(10))),
        "complex_matmul": (lambda x, w: x @ w, (x[:32, :32] + 0j, x[:32, :32] + 1j)),
        "transposes": (lambda x, y: (x.transpose(2, 0, 1) + 1, x.T + y), (floats(20, 64, 96), floats(96, 64, 20))),
        "sort": (lambda x: jnp.sort(x, 0), (x,)),
        "column_sums": (lambda x, y: (x * y).sum(0), (x, x)),
        "scan": (recurrence, (floats(50, 16, 64), floats(64, 64))),
        "cond": (branches, (floats(64, 64), floats(64, 64))),
        "fft": (lambda x: jnp.fft.fft(x, axis=-1), (x + 0j,)),
        "callback": (called, (x[:4],)),
    }


PROGRAMS = (
    "softmax layer_norm optimiser_step convolution_epilogue small_matmul_and_bias complex_matmul transposes sort "
    "column_sums scan cond fft callback"
).split()


def plan_of(function: Callable[..., Any], *args: Any) -> str:
    """The plan without the lines of the source."""
    import tinyxla as tx

    text = tx.jit(function).lower(*args).compile().as_text()
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("line ")) + "\n"


def main(kept: list[str]) -> None:
    import llvmlite.binding as llvm

    host = llvm.get_host_cpu_features()
    missing = [x for x in ("avx2", "fma", "f16c", "bmi2") if not host.get(x)]
    if missing:
        sys.exit(f"this processor lacks {missing}")
    for feature in host:
        host[feature] = host[feature] and feature in kept
    llvm.get_host_cpu_name, llvm.get_host_cpu_features = (lambda: "haswell"), (lambda: host)
    made = {name: plan_of(function, *args) for name, (function, args) in programs().items()}
    assert list(made) == PROGRAMS
    print(json.dumps(made))


if __name__ == "__main__":
    main(sys.argv[1].split())
