"""Portable artifacts of StableHLO: MLIR bytecode, alone and in what `jax.export` serializes.

`read` gives the module that text gives, so that everything behind it is shared.
"""

from tinyxla.stablehlo.bytecode.module import read as read

__all__ = ["read"]
