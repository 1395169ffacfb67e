"""Portable artifacts of StableHLO: MLIR bytecode, alone and in what `jax.export` serializes.

`read` gives the module that text gives, so that everything behind it is shared.
"""

from tinyxla.stablehlo.bytecode.exported import (
    IDENTIFIER as IDENTIFIER,
    Aval as Aval,
    Exported as Exported,
    Sharding as Sharding,
    Tree as Tree,
    read_exported as read_exported,
    write_exported as write_exported,
)
from tinyxla.stablehlo.bytecode.module import MAGIC as MAGIC, read as read
from tinyxla.stablehlo.bytecode.writing import write as write

__all__ = [
    "IDENTIFIER",
    "MAGIC",
    "Aval",
    "Exported",
    "Sharding",
    "Tree",
    "read",
    "read_exported",
    "write",
    "write_exported",
]
