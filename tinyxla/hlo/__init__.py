"""The graph: instructions in computations in modules. The one representation that everything here reads and writes."""

from tinyxla.hlo.graph import (
    Computation,
    Instruction,
    Literal,
    Module,
    Operation,
    axis_names,
    is_constant,
    map_computations,
    own_axes,
)
from tinyxla.hlo.verifier import verify

__all__ = [
    "Computation",
    "Instruction",
    "Literal",
    "Module",
    "Operation",
    "axis_names",
    "is_constant",
    "map_computations",
    "own_axes",
    "verify",
]
