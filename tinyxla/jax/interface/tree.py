"""`jax.tree`."""

from tinyxla.jax.pytrees.treedefs import (
    tree_flatten as flatten,
    tree_flatten_with_path as flatten_with_path,
    tree_structure as structure,
    tree_transpose as transpose,
    tree_unflatten as unflatten,
)

__all__ = ["flatten", "flatten_with_path", "structure", "transpose", "unflatten"]
