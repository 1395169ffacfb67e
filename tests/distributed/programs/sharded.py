"""Sharded arrays, `shard_map` and partitioned programs among processes; what they give is what one process gives.

`python -m tests.distributed.programs.sharded N` has N devices in each process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.ops.distributed.communication import Communication

P = tx.P
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: tx.nn.softmax(x, axis=-1),
    "transpose": lambda x: x.T,
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "sort": lambda x: jnp.sort(x, 0),
    "product": lambda x: x @ x.T,
    "difference": lambda x: x[1:] - x[:-1],
    "roll": lambda x: jnp.roll(x, 3, 0),
    "scan": lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x)[1],
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, abs(x)),
    "cond": lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    "random": lambda x: x + tx.random.normal(tx.random.key(0), x.shape),
    "gradient": tx.grad(lambda x: jnp.sum(jnp.tanh(x @ x.T) ** 2)),
    "gather": lambda x: x[jnp.array([3, 1, 1])],
    "update": lambda x: x.at[2].add(1.0),
    "argmax": lambda x: jnp.argmax(x, 0).astype("float32"),
}


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def main() -> None:
    tx.config.update("num_cpu_devices", int(sys.argv[1]))
    tx.distributed.initialize()
    count = tx.device_count()
    mesh = tx.make_mesh((2, count // 2), ("x", "y"))
    whole = tx.NamedSharding(mesh, P())
    random = np.random.default_rng(0)
    a, w = random.normal(size=(8, 8)).astype(np.float32), random.normal(size=(8, 4)).astype(np.float32)
    cases = 0

    def check(found: Any, wanted: Any, what: str) -> None:
        nonlocal cases
        np.testing.assert_allclose(tx.reshard(found, whole), wanted, rtol=2e-5, atol=2e-5, err_msg=what)
        cases += 1

    for spec in (P("x", "y"), P("y"), P(None, ("x", "y")), P(("y", "x"))):
        x = tx.device_put(a, tx.NamedSharding(mesh, spec))
        check(x, a, f"{spec}")
        for name, function in FUNCTIONS.items():
            check(tx.jit(function)(x), function(jnp.asarray(a)), f"{name} of {spec}")
        for other in (P("y", "x"), P(None, "x")):
            check(tx.reshard(x, tx.NamedSharding(mesh, other)), a, f"{spec} to {other}")

    both = P(("x", "y"))
    expected = tx.grad(loss)(w, a)
    gradient = tx.shard_map(tx.grad(loss), mesh=mesh, in_specs=(P(), both), out_specs=P())
    check(gradient(w, a), expected, "a gradient in shard_map")
    total = tx.shard_map(lambda w, x: lax.psum(loss(w, x), ("x", "y")), mesh=mesh, in_specs=(P(), both), out_specs=P())
    check(tx.grad(total)(w, a), expected, "a gradient of shard_map")
    n = count // 2
    moved = tx.shard_map(
        lambda x: lax.ppermute(x, "y", [(k, (k + 1) % n) for k in range(n)]),
        mesh=mesh,
        in_specs=P(None, "y"),
        out_specs=P(None, "y"),
    )
    check(moved(a), np.roll(a, 8 // n, 1), "ppermute")
    numbers = tx.shard_map(
        lambda x: x + lax.axis_index("x") * 10 + lax.axis_index("y"),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
    places = np.add.outer(np.arange(8) // 4 * 10, np.arange(8) // (8 // n))
    check(numbers(jnp.zeros((8, 8))), places, "axis_index")
    made = tx.make_array_from_callback((8, 8), tx.NamedSharding(mesh, P("x", "y")), lambda index: a[index])
    check(made, a, "make_array_from_callback")
    compiled = tx.jit(lambda x: (x @ x.T).sum(0)).lower(tx.device_put(a, tx.NamedSharding(mesh, P("x", "y")))).compile()
    report = compiled.report()
    among_processes = [x.communication for x in report.steps if x.communication.messages]
    assert among_processes
    assert report.communication == functools.reduce(Communication.plus, among_processes)
    assert "each process sends" in report.text()
    if count == tx.distributed.process_count():  # each device is one
        assert report.communication == compiled.process_cost().communication
        assert report.devices is None
    cases += 1
    print(f"{cases} cases\n", end="")


if __name__ == "__main__":
    main()
