"""The heat equation on a plate that is divided among devices, with halo exchange.

Each device has a strip of rows. At every step it hands its first and last row to its neighbours, which need them for
the second difference at their edges (`lax.ppermute`), and then steps its own strip by the explicit Euler method. The
whole loop is one compiled program on every device.

    python examples/heat.py --devices 4
    mpirun -n 4 python examples/heat.py

Checked against the exact decay of a sine wave.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax

SIZE = 128  # points along each edge; outside the temperature is 0
STEPS = 400
COURANT = 0.2  # dt / dx^2, stable up to 1/4


def step(strip: Any) -> Any:
    """One step of a device's strip `f32[rows, columns]`."""
    count = lax.axis_size("rows")
    above = lax.ppermute(strip[-1:], "rows", [(k, k + 1) for k in range(count - 1)])
    below = lax.ppermute(strip[:1], "rows", [(k + 1, k) for k in range(count - 1)])
    tall = jnp.concatenate([above, strip, below])
    wide = jnp.pad(strip, ((0, 0), (1, 1)))
    second_difference = tall[2:] + tall[:-2] + wide[:, 2:] + wide[:, :-2] - 4 * strip
    return strip + COURANT * second_difference


def main() -> None:
    parser = argparse.ArgumentParser(description="Solve the heat equation on several devices.")
    parser.add_argument("--devices", type=int, default=1, help="devices in each process (default: %(default)s)")
    tx.config.update("num_cpu_devices", parser.parse_args().devices)
    tx.distributed.initialize()
    mesh = tx.make_mesh((tx.device_count(),), ("rows",))

    @tx.jit
    @tx.shard_map(mesh=mesh, in_specs=tx.P("rows"), out_specs=tx.P("rows"))
    def solve(strip: Any) -> Any:
        return lax.fori_loop(0, STEPS, lambda _, strip: step(strip), strip)

    angle = np.pi * np.arange(1, SIZE + 1, dtype=np.float32) / (SIZE + 1)
    start = np.sin(angle)[:, None] * np.sin(2 * angle)
    plate = solve(tx.device_put(start, tx.NamedSharding(mesh, tx.P("rows"))))

    # A sine wave is an eigenvector of the second difference, so that each step multiplies it by a number.
    eigenvalue = 2 * np.cos(np.pi / (SIZE + 1)) + 2 * np.cos(2 * np.pi / (SIZE + 1)) - 4
    exact = start * (1 + COURANT * eigenvalue) ** STEPS
    whole = np.asarray(tx.reshard(plate, tx.NamedSharding(mesh, tx.P())))
    error = np.abs(whole - exact).max()
    if tx.process_index() == 0:
        print(f"{tx.device_count()} devices, {STEPS} steps: largest error {error:.1e}")
    assert error < 1e-5, error


if __name__ == "__main__":
    main()
