"""Pytrees: nested containers of arrays, by optree. `None` is an empty container; dicts are ordered by key.

A random key is a leaf of users' trees (`flatten_shown`). To the library it is a container of its words (`flatten`), so
that all leaves are arrays of numbers. Either way there are as many leaves, in the same order.

Compiled functions get trees like the last one again and again: for these a `Flattener` only looks whether they are."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, cast

from tinyxla.errors import NestingError, PytreeError
from tinyxla.util.exit_functions import without_exit_functions

with without_exit_functions():
    import optree

NAMESPACE = "tinyxla"
WITH_NAMES = "tinyxla.names"  # the same, with the names of children, which take time to find
_WITH_WORDS = "tinyxla.words"  # as the first, and keys are containers
TreeDef = optree.PyTreeSpec


def _explained(error: RecursionError) -> RecursionError:
    """What optree says of a tree that is too deep, as an error of this library; another error is the user's function's
    own."""
    if not str(error).startswith("Maximum recursion depth exceeded during"):
        return error
    return NestingError(
        f"A pytree has containers in each other, more than {optree.MAX_RECURSION_DEPTH} levels or as many as Python's "
        "recursion limit allows; put what is in them into one list, or stack arrays of one shape into one array."
    )


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None, namespace: str = _WITH_WORDS
) -> tuple[list[Any], TreeDef]:
    leaves, treedef = _flatten(tree, is_leaf, namespace)
    return leaves, _with_sorted_keys(treedef) if _rebuilt.with_sorted_keys else treedef


def _flatten(tree: Any, is_leaf: Callable[[Any], bool] | None, namespace: str) -> tuple[list[Any], TreeDef]:
    try:
        return optree.tree_flatten(tree, is_leaf, namespace=namespace)
    except RecursionError as error:
        raise _explained(error) from None


class _Rebuilt:
    """How dicts are rebuilt from leaves: with their keys in the order in which they were inserted, or sorted."""

    with_sorted_keys = False


_rebuilt = _Rebuilt()


def rebuild_dicts_with_sorted_keys() -> None:
    """From now on, in this process, dicts that are rebuilt from leaves have sorted keys, as JAX's have: what a program
    draws or prints while it goes through a dict of parameters depends on the order."""
    _rebuilt.with_sorted_keys = True


_UNORDERED = (dict, defaultdict)
_sorted_specs: dict[TreeDef, TreeDef] = {}  # of structures without containers of the user's


def _with_sorted_keys(treedef: TreeDef) -> TreeDef:
    """An equal structure whose dicts are rebuilt with sorted keys.

    Structures are equal whatever the order of insertion. So one serves for all that are equal, unless there are
    containers of the user's, of which equal ones may be told apart.
    """
    is_flat = treedef.num_nodes <= 1 + treedef.num_children
    if is_flat and treedef.type not in _UNORDERED:
        return treedef
    if treedef.namespace:  # there are containers of the user's
        return _sorted(treedef)
    try:
        found = _sorted_specs.get(treedef)
    except TypeError:  # the factory of a defaultdict has no hash
        return _sorted(treedef)
    if found is None:
        if len(_sorted_specs) >= 4096:
            _sorted_specs.clear()
        found = _sorted_specs[treedef] = _sorted(treedef)
    return found


def _sorted(treedef: TreeDef) -> TreeDef:
    state: Any = treedef.__getstate__()
    nodes, *rest = state  # a node ends with the keys of a dict in the order of insertion
    unsorted = [k for k, node in enumerate(nodes) if node[-1] is not None and list(node[-1]) != _sorted_keys(node)]
    if not unsorted:
        return treedef
    changed = list(nodes)
    for k in unsorted:
        *others, inserted = nodes[k]
        keys = _sorted_keys(nodes[k])
        changed[k] = (*others, dict.fromkeys(keys) if isinstance(inserted, dict) else keys)  # a list before optree 0.20
    made: Any = TreeDef.__new__(TreeDef)
    made.__setstate__((tuple(changed), *rest))
    return made


def _sorted_keys(node: Any) -> list[Any]:
    """The keys of a dict in the order of its leaves."""
    held = node[2]
    return held[1] if isinstance(held, tuple) else held  # a defaultdict has a factory, too


def flatten_shown(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves and the structure as users see them: a random key is a leaf."""
    return flatten(tree, is_leaf, NAMESPACE)


def shown(treedef: TreeDef) -> TreeDef:
    """The structure as users see it."""
    return flatten_shown(unflatten(treedef, [_LEAF] * treedef.num_leaves))[1]


_LEAF = object()


def alike(one: TreeDef, other: TreeDef) -> bool:
    """Whether structures are equal as users see them: what has no derivative, such as a key, has a leaf for one."""
    if one == other:
        return True
    return (any(key_leaves(one)) or any(key_leaves(other))) and shown(one) == shown(other)


class Flattener:
    """Flattens trees of which many are alike: those whose dicts have names as keys in a quarter of the time."""

    def __init__(self) -> None:
        self._readers: dict[TreeDef, _Reader | None] = {}
        self._last: tuple[_Reader, TreeDef] | None = None

    def __call__(self, tree: Any) -> tuple[list[Any], TreeDef]:
        """The leaves, and the structure to compare: trees are not rebuilt by it. If it is that of the last tree, a leaf
        may hide another container."""
        last = self._last
        if last is not None:
            read, treedef = last
            found: list[Any] = []
            try:
                read(tree, found)
                return found, treedef
            except (LookupError, RecursionError):
                pass
        found, treedef = _flatten(tree, None, _WITH_WORDS)
        if treedef not in self._readers:
            try:
                self._readers[treedef] = _reader(tree)
            except RecursionError:
                self._readers[treedef] = None
        read = self._readers[treedef]
        self._last = None if read is None else (read, treedef)
        return found, treedef


_Reader = Callable[[Any, list[Any]], None]  # appends the leaves of a tree like another; LookupError if it is not


def _reader(tree: Any) -> _Reader | None:
    """What takes trees like this one apart; None if it has other containers than dicts, lists, tuples and None. Tuples
    may be named."""
    if tree is None:
        return _read_nothing
    kind = type(tree)
    if kind is dict and all(type(key) is str for key in tree):
        keys = sorted(tree)
        pick = itemgetter(*keys) if len(keys) > 1 else lambda x: tuple(x[key] for key in keys)
        parts = [tree[key] for key in keys]
    elif kind is list or kind is tuple or _is_named_tuple(tree):
        pick, parts = None, list(tree)
    else:
        return None
    size, children = len(parts), [None if _is_leaf(x) else _reader(x) for x in parts]
    if any(child is None and not _is_leaf(x) for child, x in zip(children, parts, strict=True)):
        return None

    def read(tree: Any, found: list[Any]) -> None:
        if type(tree) is not kind or len(tree) != size:
            raise LookupError
        found += tree if pick is None else pick(tree)

    def read_inside(tree: Any, found: list[Any]) -> None:
        if type(tree) is not kind or len(tree) != size:
            raise LookupError
        for x, child in zip(tree if pick is None else pick(tree), children, strict=True):
            if child is None:
                found.append(x)
            else:
                child(x, found)

    return read if all(child is None for child in children) else read_inside


def _is_named_tuple(tree: Any) -> bool:
    """Whether this is one whose class is not registered as a container of another kind."""
    return isinstance(tree, tuple) and flatten(tree)[1].kind == _NAMED_TUPLE


_NAMED_TUPLE = optree.PyTreeKind.NAMEDTUPLE


def _read_nothing(tree: Any, found: list[Any]) -> None:
    if tree is not None:
        raise LookupError


def _is_leaf(x: Any) -> bool:
    return optree.tree_is_leaf(x, namespace=_WITH_WORDS)


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    return treedef.unflatten(leaves)


def with_placeholders(treedef: TreeDef) -> Any:
    """A tree of a structure, whose leaves are instances of `object`: containers that sort what they hold by its type,
    as those written for JAX do, take these for arrays."""
    return unflatten(treedef, [object() for _ in range(treedef.num_leaves)])


def leaves(tree: Any) -> list[Any]:
    try:
        return optree.tree_leaves(tree, namespace=_WITH_WORDS)
    except RecursionError as error:
        raise _explained(error) from None


def map_tree(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    if _rebuilt.with_sorted_keys:
        found, treedef = flatten(tree, is_leaf)
        return unflatten(treedef, map(function, found, *(treedef.flatten_up_to(x) for x in rest)))
    try:
        return optree.tree_map(function, tree, *rest, is_leaf=is_leaf, namespace=_WITH_WORDS)
    except RecursionError as error:
        raise _explained(error) from None


def register(kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> None:
    """Make a class a container: from an instance to its children and the rest, and back from the rest and children."""
    register_node(kind, flatten, unflatten, optree.AutoEntry)


def register_node(
    kind: type,
    flatten: Callable[..., Any],
    unflatten: Callable[..., Any],
    entry: type[optree.PyTreeEntry],
    flatten_with_names: Callable[..., Any] | None = None,
) -> None:
    """The same for users' trees, too, with the class of the steps to its children, and a function that also gives the
    names of these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # optree's, of named tuples, which are containers without it
        for namespace in (NAMESPACE, WITH_NAMES, _WITH_WORDS):
            function: Any = flatten_with_names or flatten if namespace == WITH_NAMES else flatten
            optree.register_pytree_node(
                cast(Any, kind), function, cast(Any, unflatten), path_entry_type=entry, namespace=namespace
            )


class _Whole(optree.PyTreeEntry):
    """The step from a leaf, as users see it, to the array that it is made of."""

    def codify(self, /, node: str = "") -> str:
        return node


def key_leaves(treedef: TreeDef) -> list[bool]:
    """Whether each leaf is that of a container which users see as a leaf: words of random keys."""
    if not treedef.namespace:  # nor other containers of a class of its own
        return [False] * treedef.num_leaves
    return [bool(path) and type(path[-1]) is _Whole for path in treedef.accessors()]


def register_leaf(kind: type, flatten: Callable[..., Any], unflatten: Callable[..., Any]) -> None:
    """Make a class a container of one array for the library, and a leaf for users."""

    def flatten_leaf(leaf: Any) -> Any:
        children, rest = flatten(leaf)
        return children, rest, (0,)

    optree.register_pytree_node(
        cast(Any, kind), flatten_leaf, cast(Any, unflatten), path_entry_type=_Whole, namespace=_WITH_WORDS
    )


def leaf_names(tree: Any) -> list[str]:
    """How a user would write the way to each leaf: `['w'][0]`."""
    try:
        paths = optree.tree_accessors(tree, namespace=WITH_NAMES)
    except RecursionError as error:
        raise _explained(error) from None
    return [path.codify("") for path in paths]


def broadcast_prefix(prefix: Any, tree: Any, what: str) -> list[Any]:
    """A value for each leaf of `tree`, from a tree that may stop early. There None counts as a value, in `tree` it is
    an empty container."""
    marked = map_tree(lambda x: _NONE if x is None else x, prefix, is_leaf=lambda x: x is None)
    try:
        found = optree.broadcast_prefix(marked, tree, namespace=_WITH_WORDS)
    except ValueError:
        raise PytreeError(
            f"{what} is {prefix!r}, which does not fit {structure_text(flatten(tree)[1])}, where * stands for an "
            "array; it must have the same containers, and may have one value for all that is in a container."
        ) from None
    return [None if x is _NONE else x for x in found]


_NONE = object()


def differences(one: TreeDef, other: TreeDef, path: str = "") -> list[tuple[str, TreeDef, TreeDef]]:
    """The places at which two structures differ, as Python writes them, and the structures there."""
    if one == other:
        return []
    if one.is_leaf() or other.is_leaf() or one.one_level() != other.one_level():
        return [(path, one, other)]
    parts = zip(one.entries(), one.children(), other.children(), strict=True)
    return [d for entry, x, y in parts for d in differences(x, y, f"{path}[{entry!r}]")]


def structure_text(treedef: TreeDef) -> str:
    """The containers as Python writes them, with * for each leaf."""
    text = str(treedef).removeprefix("PyTreeSpec(").removesuffix(")").removesuffix(f", namespace={_WITH_WORDS!r}")
    return _OF_KEYS.sub("*", text)


_OF_KEYS = re.compile(r"CustomTreeNode\(\w+\[key<\w+>\], \[\*\]\)")
