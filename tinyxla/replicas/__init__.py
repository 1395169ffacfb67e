"""Replicated execution: one program on several replicas, and several programs at once, in one process.

`resolve` numbers the groups of collective operations by devices, `divergence` finds out whether all replicas take the
same way through the program, `execution` runs them: as lanes of one compiled program if they do, else as threads
(`meetings`).
"""

from tinyxla.replicas.execution import Program, execute_parallel, execute_replicated, mesh_of

__all__ = ["Program", "execute_parallel", "execute_replicated", "mesh_of"]
