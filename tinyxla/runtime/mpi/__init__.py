"""Processes of an MPI program: their number, their communicators, and calls of MPI from native code.

`library` has the routines by address and the handles of types as machine words, `calls` what each collective operation
calls, `world` the processes themselves. Nothing of MPI is imported until `world.start`.

Source: "MPI: A Message-Passing Interface Standard, Version 4.1" (MPI Forum, 2023), whose names are kept.
"""

from tinyxla.runtime.mpi.world import World, is_started, simulated, start, stop, together, world

__all__ = ["World", "is_started", "simulated", "start", "stop", "together", "world"]
