"""Pytrees: nested containers of arrays, by optree. `None` is an empty container; dicts are ordered by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import optree

from tinyxla.errors import PytreeError

NAMESPACE = "tinyxla"
TreeDef = optree.PyTreeSpec


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    leaves, treedef = optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)
    return leaves, treedef


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    return optree.tree_unflatten(treedef, leaves)


def leaves(tree: Any) -> list[Any]:
    return optree.tree_leaves(tree, namespace=NAMESPACE)


def map_tree(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    return optree.tree_map(function, tree, *rest, is_leaf=is_leaf, namespace=NAMESPACE)


def register(kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> None:
    """Make a class a container: from an instance to its children and the rest, and back from the rest and children."""
    optree.register_pytree_node(cast(Any, kind), cast(Any, flatten), cast(Any, unflatten), namespace=NAMESPACE)


def leaf_names(tree: Any) -> list[str]:
    """How a user would write the way to each leaf: `['w'][0]`."""
    paths = optree.tree_accessors(tree, namespace=NAMESPACE)
    return [path.codify("") for path in paths]


def broadcast_prefix(prefix: Any, tree: Any, what: str) -> list[Any]:
    """A value for each leaf of `tree`, from a tree that may stop early. There None counts as a value, in `tree` it is
    an empty container."""
    marked = map_tree(lambda x: _NONE if x is None else x, prefix, is_leaf=lambda x: x is None)
    try:
        found = optree.broadcast_prefix(marked, tree, namespace=NAMESPACE)
    except ValueError:
        raise PytreeError(
            f"{what} is {prefix!r}, which does not fit {structure_text(flatten(tree)[1])}, where * stands for an "
            "array; it must have the same containers, and may have one value for all that is in a container."
        ) from None
    return [None if x is _NONE else x for x in found]


_NONE = object()


def structure_text(treedef: TreeDef) -> str:
    """The containers as Python writes them, with * for each leaf."""
    return str(treedef).removeprefix("PyTreeSpec(").removesuffix(")").removesuffix(f", namespace={NAMESPACE!r}")
