"""A matrix product divided among devices, by the compiler and by hand.

The compiler's way: the operands are placed, one by rows and one by columns, and `jit` finds what every device computes
and sends. By hand (`shard_map`): each device multiplies its rows with the block of columns that it holds, while the
blocks travel around a ring (Cannon's algorithm in one dimension), so that no device ever has all of the second matrix.

    python examples/matmul.py --devices 4
    mpirun -n 4 python examples/matmul.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax

SIZE = 512


def ring_product(rows: Any, columns: Any) -> Any:
    """A device's rows `f32[n/d, k]` times all columns, of which it has `f32[k, n/d]`."""
    count, own = lax.axis_size("d"), lax.axis_index("d")
    onward = [(k, (k + 1) % count) for k in range(count)]

    def turn(k: Any, carry: Any) -> Any:
        columns, product = carry
        block = (own - k) % count  # whose columns are here now
        start = block * columns.shape[1]
        product = lax.dynamic_update_slice_in_dim(product, rows @ columns, start, axis=1)
        return lax.ppermute(columns, "d", onward), product

    empty = jnp.zeros((rows.shape[0], columns.shape[1] * count), rows.dtype)
    _, product = lax.fori_loop(0, count, turn, (columns, lax.pvary(empty, "d")))
    return product


def main() -> None:
    parser = argparse.ArgumentParser(description="Multiply matrices on several devices.")
    parser.add_argument("--devices", type=int, default=1, help="devices in each process (default: %(default)s)")
    tx.config.update("num_cpu_devices", parser.parse_args().devices)
    tx.distributed.initialize()
    mesh = tx.make_mesh((tx.device_count(),), ("d",))
    by_rows, by_columns = (tx.NamedSharding(mesh, spec) for spec in (tx.P("d", None), tx.P(None, "d")))

    random = np.random.default_rng(0)
    a, b = (random.normal(size=(SIZE, SIZE)).astype(np.float32) for _ in range(2))
    placed = tx.device_put(a, by_rows), tx.device_put(b, by_columns)

    product = tx.jit(jnp.matmul, out_shardings=by_rows)
    ring = tx.jit(
        tx.shard_map(ring_product, mesh=mesh, in_specs=(by_rows.spec, by_columns.spec), out_specs=by_rows.spec)
    )
    errors = []
    for multiply in (product, ring):
        whole = tx.reshard(multiply(*placed), tx.NamedSharding(mesh, tx.P()))
        errors.append(np.abs(np.asarray(whole) - a @ b).max())
    if tx.process_index() == 0:
        print(f"{tx.device_count()} devices: largest errors {errors[0]:.1e} by the compiler, {errors[1]:.1e} by hand")
        print(product.lower(*placed).as_text())
    assert max(errors) < 1e-3, errors


if __name__ == "__main__":
    main()
