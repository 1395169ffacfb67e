"""Where a pytree that may stop earlier departs from another one, as JAX describes the places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tinyxla.errors import PytreeError
from tinyxla.tree_util import (
    KeyPath,
    flatten_one_level,
    flatten_one_level_with_keys,
    keystr,
    tree_structure,
    treedef_is_leaf,
)


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], PytreeError]]:
    """For each place where a tree departs from its prefix a function from the prefix's name to the error.

    Args:
        prefix_tree: the tree that may stop earlier.
        full_tree: the other one.
        is_leaf: tells for a part of the prefix whether it is a leaf.
    """
    return [partial(_error, path, *words) for path, *words in _differences((), prefix_tree, full_tree, is_leaf)]


def _error(path: KeyPath, different: str, details: str, name: str) -> PytreeError:
    return PytreeError(
        f"pytree structure error: different {different} at key path\n    {name}{keystr(path)}\n{details}"
    )


def _differences(path: KeyPath, prefix: Any, full: Any, is_leaf: Any) -> Iterator[tuple[KeyPath, str, str]]:
    if treedef_is_leaf(tree_structure(prefix, is_leaf)):
        return
    kind = type(prefix)
    if kind is not type(full):
        yield path, "types", f"The prefix has {kind} there, the tree {type(full)}."
        return
    children, others = flatten_one_level_with_keys(prefix)[0], flatten_one_level_with_keys(full)[0]
    if len(children) != len(others):
        if issubclass(kind, list | tuple):
            details = f"There are {len(children)} in the prefix, {len(others)} in the tree."
            yield path, f"lengths of {kind.__name__}", details
            return
        own, other = ([getattr(key, "key", key) for key, _ in pairs] for pairs in (children, others))
        differing = [key for key in own if key not in other] + [key for key in other if key not in own]
        details = f"The prefix has {own}, the tree {other}, so the symmetric difference on key sets is\n    "
        yield path, "numbers of pytree children", details + " ".join(map(str, differing))
        return
    metadata, other_metadata = flatten_one_level(prefix)[1], flatten_one_level(full)[1]
    if metadata != other_metadata:
        yield path, "pytree metadata", f"It is {metadata!r} in the prefix, {other_metadata!r} in the tree."
        return
    for (key, child), (_, other) in zip(children, others, strict=True):
        yield from _differences((*path, key), child, other, is_leaf)
