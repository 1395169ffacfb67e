"""An ensemble over parameters, divided among devices: the final size of an epidemic for many rates of infection.

`vmap` writes the program for all parameters, and a sharding of their array divides the members among devices; nothing
has to be sent but the final mean.

    python examples/ensemble.py --devices 4
    mpirun -n 4 python examples/ensemble.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax

MEMBERS = 1024
STEPS, DT = 2000, 0.05
RECOVERY = 0.5  # per day


def final_size(rate: Any) -> Any:
    """The share of a population that an SIR epidemic with this rate of infection (per day) reaches (Euler's method)."""

    def step(_: Any, state: Any) -> Any:
        susceptible, infected = state
        new = rate * susceptible * infected * DT
        return susceptible - new, infected + new - RECOVERY * infected * DT

    susceptible, _ = lax.fori_loop(0, STEPS, step, (jnp.float32(1 - 1e-4), jnp.float32(1e-4)))
    return 1 - susceptible


@tx.jit
def ensemble(rates: Any) -> Any:
    """The final sizes of all members, and their mean."""
    sizes = tx.vmap(final_size)(rates)
    return sizes, sizes.mean()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run an ensemble on several devices.")
    parser.add_argument("--devices", type=int, default=1, help="devices in each process (default: %(default)s)")
    tx.config.update("num_cpu_devices", parser.parse_args().devices)
    tx.distributed.initialize()
    mesh = tx.make_mesh((tx.device_count(),), ("members",))

    rates = np.linspace(1.0, 3.0, MEMBERS, dtype=np.float32)
    sizes, mean = ensemble(tx.device_put(rates, tx.NamedSharding(mesh, tx.P("members"))))
    whole = np.asarray(tx.reshard(sizes, tx.NamedSharding(mesh, tx.P())))

    # The final size z solves z = 1 - exp(-R z) with the basic reproduction number R.
    residual = np.abs(whole - (1 - np.exp(-rates / RECOVERY * whole))).max()
    if tx.process_index() == 0:
        print(f"{tx.device_count()} devices, {MEMBERS} members")
        print(f"mean final size {float(mean):.4f}; largest residual of the final size equation {residual:.1e}")
    assert residual < 5e-3, residual


if __name__ == "__main__":
    main()
