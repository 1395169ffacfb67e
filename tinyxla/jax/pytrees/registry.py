"""The registry of pytree nodes as a set of types, and as the object that JAX's `default_registry` is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import optree

from tinyxla import tree_util
from tinyxla.jax.pytrees import treedefs
from tinyxla.tracing.pytrees import NAMESPACE


class Entry(NamedTuple):
    """How nodes of one type are taken apart into children and what else they hold, and made of these."""

    to_iter: Callable[[Any], tuple[Any, Any]]
    from_iter: Callable[[Any, Any], Any]


_DICT = Entry(
    lambda x: (tuple(x[k] for k in sorted(x)), tuple(sorted(x))), lambda keys, x: dict(zip(keys, x, strict=True))
)


class Registry:
    """Which types are inner nodes of pytrees, and how trees are taken apart."""

    def __getitem__(self, kind: type) -> Entry:
        found = optree.register_pytree_node.get(kind, namespace=NAMESPACE)
        if found is None:
            raise KeyError(kind)

        def to_iter(node: Any) -> tuple[Any, Any]:
            children, data = found.flatten_func(node)[:2]
            keys: Any = data
            return children, tuple(keys) if type(keys) is list else data  # which programs compare as sets

        return _DICT if kind is dict else Entry(to_iter, found.unflatten_func)

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
