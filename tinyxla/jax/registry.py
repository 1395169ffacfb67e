"""The registry of pytree nodes as a set of types, and as the object that JAX's `default_registry` is."""

from __future__ import annotations

from typing import Any

from tinyxla import tree_util
from tinyxla.jax import treedefs


class Registry:
    """Which types are inner nodes of pytrees, and how trees are taken apart."""

    def __contains__(self, kind: Any) -> bool:
        return isinstance(kind, type) and tree_util.is_tree_node(kind)

    def flatten(self, tree: Any, is_leaf: Any = None) -> Any:
        """The leaves and the structure of a tree."""
        return treedefs.tree_flatten(tree, is_leaf)

    def flatten_one_level(self, tree: Any) -> Any:
        """The children and what else an inner node holds; None for a leaf."""
        if not tree_util.is_tree_node(type(tree)):
            return None
        return tree_util.flatten_one_level(tree)

    def register_node(self, kind: Any, to_iterable: Any, from_iterable: Any, *ignored: Any) -> None:
        """Register a type of inner nodes."""
        tree_util.register_pytree_node(kind, to_iterable, from_iterable)
