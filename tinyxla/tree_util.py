"""Pytrees: nested containers - tuples, lists, dicts, named tuples, None, registered classes - whose leaves are values.

The functions have the names and meaning of `jax.tree_util`. Dicts are walked in the order of their keys; `None` is a
container without leaves. The work is done by optree.

>>> from tinyxla.tree_util import tree_map
>>> tree_map(lambda x: x + 1, {"a": 1, "b": (2, None)})
{'a': 2, 'b': (3, None)}
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Concatenate, TypeVar, overload

import optree

from tinyxla.errors import ArgumentError, PytreeError
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.pytrees import NAMESPACE
from tinyxla.tracing.signatures import R, Tree
from tinyxla.util.did_you_mean import missing as _missing
from tinyxla.util.tracebacks import boundary, filter_error

PyTreeDef = optree.PyTreeSpec
IsLeaf = Callable[[Any], bool] | None
C = TypeVar("C", bound=type)
Key = TypeVar("Key")


# --- keys: steps on the way to a leaf ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """An element of a list or tuple.

    >>> from tinyxla import tree_util
    >>> [(path, leaf)] = tree_util.tree_leaves_with_path([(None, 5)])
    >>> path, tree_util.keystr(path)
    ((SequenceKey(idx=0), SequenceKey(idx=1)), '[0][1]')
    """

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclasses.dataclass(frozen=True)
class DictKey:
    """A value of a dict.

    >>> from tinyxla import tree_util
    >>> [(path, leaf)] = tree_util.tree_leaves_with_path({"w": 5})
    >>> path, tree_util.keystr(path)
    ((DictKey(key='w'),), "['w']")
    """

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """An attribute of an object or a field of a named tuple.

    >>> from typing import NamedTuple
    >>> from tinyxla import tree_util
    >>> class Layer(NamedTuple):
    ...     w: float
    >>> [(path, leaf)] = tree_util.tree_leaves_with_path(Layer(5.0))
    >>> path, tree_util.keystr(path)
    ((GetAttrKey(name='w'),), '.w')
    """

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclasses.dataclass(frozen=True)
class FlattenedIndexKey:
    """A child of a registered class that has no better name.

    >>> from tinyxla import tree_util
    >>> class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> tree_util.register_pytree_node(Box, lambda box: ((box.x,), None), lambda _, children: Box(*children))
    >>> [(path, leaf)] = tree_util.tree_leaves_with_path(Box(5))
    >>> path, tree_util.keystr(path)
    ((FlattenedIndexKey(key=0),), '[<flat index 0>]')
    """

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"

    def __hash__(self) -> int:  # which is not that of a `SequenceKey`
        return hash((FlattenedIndexKey, self.key))


KeyEntry = SequenceKey | DictKey | GetAttrKey | FlattenedIndexKey
KeyPath = tuple[Any, ...]


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """The way to a leaf as text: as one would write it in Python, or (`simple`) the bare names with a separator.

    Args:
        keys: the keys that lead to a leaf.
        simple: whether to show bare names.
        separator: what is between simple names.

    Returns:
        The text.

    Raises:
        PytreeError: what is no tuple of keys, or a separator that is no text.

    >>> from tinyxla.tree_util import DictKey, GetAttrKey, SequenceKey, keystr
    >>> keystr((DictKey("layers"), SequenceKey(0), GetAttrKey("bias")))
    "['layers'][0].bias"
    >>> keystr((DictKey("layers"), SequenceKey(0)), simple=True, separator="/")
    'layers/0'
    """
    if not isinstance(keys, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PytreeError(f"keystr: takes a tuple of keys, as tree_flatten_with_path gives it, but got {keys!r}.")
    if not isinstance(separator, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PytreeError(f"keystr: the separator must be a text, but got {separator!r}.")
    return separator.join(_simple_name(key) if simple else str(key) for key in keys)


def _simple_name(key: Any) -> str:
    if isinstance(key, SequenceKey):
        return str(key.idx)
    if isinstance(key, DictKey | FlattenedIndexKey):
        return str(key.key)
    return key.name if isinstance(key, GetAttrKey) else str(key)


def _key(entry: optree.PyTreeEntry) -> Any:
    if isinstance(entry, optree.NamedTupleEntry | optree.StructSequenceEntry):
        return GetAttrKey(entry.field)
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(entry.entry)
    if isinstance(entry, optree.MappingEntry):
        return DictKey(entry.entry)
    if isinstance(entry.entry, int):
        return FlattenedIndexKey(entry.entry)
    return entry.entry  # a class registered with keys gives them itself


class _KeyedEntry(optree.FlattenedEntry):
    """The step to a child of a class of one's own: errors write it as its key, `layer.w`."""

    def codify(self, /, node: str = "") -> str:
        if isinstance(self.entry, int):
            return super().codify(node)
        return f"{node}[{self.entry!r}]" if isinstance(self.entry, str) else f"{node}{self.entry}"


# --- flattening -------------------------------------------------------------------------------------------------------


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves, in order, and the structure without them.

    Args:
        tree: a pytree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        The list of leaves, and the structure.

    Raises:
        PytreeError: an `is_leaf` that is no function.

    >>> from tinyxla.tree_util import tree_flatten
    >>> leaves, treedef = tree_flatten([1, (2, 3)])
    >>> leaves
    [1, 2, 3]
    """
    if is_leaf is not None:
        _check_function("tree_flatten", is_leaf)
    return pytrees.flatten(tree, is_leaf, pytrees.NAMESPACE)


def _check_function(what: str, is_leaf: Any) -> None:
    if not callable(is_leaf):
        raise PytreeError(f"{what}: is_leaf must be a function of a subtree, but got {is_leaf!r}.")


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of that structure with those leaves.

    Args:
        treedef: a structure.
        leaves: the leaves, in order.

    Returns:
        A tree.

    Raises:
        PytreeError: another number of leaves than the structure has, or what is no structure.

    >>> from tinyxla.tree_util import tree_structure, tree_unflatten
    >>> tree_unflatten(tree_structure([0, (0, 0)]), "abc")
    ['a', ('b', 'c')]
    """
    given = list(leaves)
    if len(given) != _checked_treedef("tree_unflatten", treedef).num_leaves:
        raise PytreeError(f"tree_unflatten: {treedef} has {treedef.num_leaves} leaves, but {len(given)} were given.")
    return pytrees.unflatten(treedef, given)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves, in order.

    Args:
        tree: a pytree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        A list.

    Raises:
        PytreeError: an `is_leaf` that is no function.

    >>> from tinyxla.tree_util import tree_leaves
    >>> tree_leaves({"b": 2, "a": 1})
    [1, 2]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of a tree; structures are compared with ==.

    Args:
        tree: a pytree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        The structure.

    Raises:
        PytreeError: an `is_leaf` that is no function.

    Example:
        >>> import tinyxla as tx
        >>> tx.tree.structure({"a": [1, 2]})
        PyTreeSpec({'a': [*, *]})
    """
    return tree_flatten(tree, is_leaf)[1]


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """The leaves, each with the keys that lead to it, and the structure. With `is_leaf_takes_path`, `is_leaf` gets
    these keys before the value.

    Args:
        tree: a pytree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.
        is_leaf_takes_path: whether `is_leaf` gets the keys before the value.

    Returns:
        A list of pairs (keys, leaf), and the structure.

    Raises:
        PytreeError: an `is_leaf` that is no function.

    >>> from tinyxla.tree_util import keystr, tree_flatten_with_path
    >>> pairs, _ = tree_flatten_with_path({"w": [1, 2]})
    >>> [(keystr(path), leaf) for path, leaf in pairs]
    [("['w'][0]", 1), ("['w'][1]", 2)]
    """
    if is_leaf is not None:
        _check_function("tree_flatten_with_path", is_leaf)
    if is_leaf is not None and is_leaf_takes_path:
        is_leaf = _without_path(is_leaf, tree)
    answers: list[bool] = []  # of `is_leaf`, which is asked once of each node
    first = is_leaf and (lambda node: answers.append(is_leaf(node)) or answers[-1])
    leaves, named = pytrees.flatten(tree, first, pytrees.WITH_NAMES)
    again = iter(answers)
    treedef = tree_structure(tree, is_leaf and (lambda node: next(again)))
    paths = [tuple(map(_key, accessor)) for accessor in named.accessors()]
    return list(zip(paths, leaves, strict=True)), treedef


def _without_path(is_leaf: Callable[..., bool], tree: Any) -> Callable[[Any], bool]:
    """A function of nodes alone, called in depth-first order: the keys that lead to the node are kept on a stack."""
    waiting: list[KeyPath] = [()]

    def answer(node: Any) -> bool:
        path = waiting.pop()
        if is_leaf(path, node):
            return True
        waiting.extend(path + keys for keys, child in reversed(_children_with_keys(node)) if child is not node)
        return False

    return answer


def _children_with_keys(node: Any) -> list[tuple[KeyPath, Any]]:
    """The children of a container, each with its key; none of a leaf."""
    leaves, treedef = pytrees.flatten(node, lambda x: x is not node, pytrees.WITH_NAMES)
    return [(tuple(map(_key, a)), x) for a, x in zip(treedef.accessors(), leaves, strict=True) if len(a)]


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The leaves, each with the keys that lead to it; `is_leaf_takes_path` as for `tree_flatten_with_path`.

    Args:
        tree: a pytree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.
        is_leaf_takes_path: whether `is_leaf` gets the keys before the value.

    Returns:
        A list of pairs (keys, leaf).

    Raises:
        PytreeError: an `is_leaf` that is no function.

    Example:
        >>> import tinyxla as tx
        >>> tx.tree.leaves_with_path({"a": [1, 2]})
        [((DictKey(key='a'), SequenceKey(idx=0)), 1), ((DictKey(key='a'), SequenceKey(idx=1)), 2)]
    """
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether no element is a container.

    Args:
        iterable: an iterable of values.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        True or False.

    Raises:
        PytreeError: what is no iterable, or an `is_leaf` that is no function.

    >>> from tinyxla.tree_util import all_leaves
    >>> all_leaves([1, 2]), all_leaves([1, (2,)])
    (True, False)
    """
    if not isinstance(iterable, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PytreeError(f"all_leaves: takes an iterable of values, but got {_short(iterable)}.")
    return all(treedef_is_leaf(tree_structure(x, is_leaf)) for x in iterable)


def is_tree_node(typ: type) -> bool:
    """Whether instances of a class are containers.

    Args:
        typ: a class.

    Returns:
        True or False.

    Raises:
        PytreeError: what is no class.

    >>> from tinyxla.tree_util import is_tree_node
    >>> is_tree_node(list), is_tree_node(int)
    (True, False)
    """
    if not isinstance(typ, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PytreeError(f"is_tree_node: takes a class, but got {_short(typ)}; use its type.")
    return optree.register_pytree_node.get(typ, namespace=NAMESPACE) is not None


def flatten_one_level(tree: Any) -> tuple[list[Any], Any]:
    """The immediate children of a container, and what the rest of it is.

    Args:
        tree: a container.

    Returns:
        The list of children, and the rest.

    Raises:
        PytreeError: what is no container.

    >>> from tinyxla.tree_util import flatten_one_level
    >>> flatten_one_level([1, (2, 3)])
    ([1, (2, 3)], None)
    """
    if not is_tree_node(type(tree)):
        kind = type(tree).__name__
        raise PytreeError(f"flatten_one_level: takes a container, but got {_short(tree)} of type {kind}.")
    children, metadata, _, _ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    return list(children), metadata


def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """The same, each child with its key.

    Args:
        tree: a container.

    Returns:
        The list of pairs (key, child), and the rest.

    Raises:
        PytreeError: what is no container.

    >>> from tinyxla.tree_util import flatten_one_level_with_keys
    >>> flatten_one_level_with_keys([1])
    ([(SequenceKey(idx=0), 1)], None)
    """
    children, metadata = flatten_one_level(tree)
    keys = _child_keys(tree) if tree is not None else []
    return list(zip(keys, children, strict=True)), metadata


def _child_keys(tree: Any) -> list[Any]:
    names = pytrees.WITH_NAMES
    level = optree.tree_structure(tree, is_leaf=lambda x: x is not tree, none_is_leaf=True, namespace=names)
    return [_key(accessor[0]) for accessor in level.accessors()]


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is that of one leaf.

    Args:
        treedef: a structure.

    Returns:
        True or False.

    Raises:
        PytreeError: what is no structure.

    Example:
        >>> import tinyxla as tx
        >>> tx.tree_util.treedef_is_leaf(tx.tree.structure(1)), tx.tree_util.treedef_is_leaf(tx.tree.structure([1]))
        (True, False)
    """
    return _checked_treedef("treedef_is_leaf", treedef).is_leaf()


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the immediate children.

    Args:
        treedef: a structure.

    Returns:
        A list of structures.

    Raises:
        PytreeError: what is no structure.

    Example:
        >>> import tinyxla as tx
        >>> tx.tree_util.treedef_children(tx.tree.structure([1, (2, 3)]))
        [PyTreeSpec(*), PyTreeSpec((*, *))]
    """
    return _checked_treedef("treedef_children", treedef).children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees of those structures.

    Args:
        treedefs: structures.

    Returns:
        A structure.

    Raises:
        PytreeError: what are no structures.

    Example:
        >>> import tinyxla as tx
        >>> leaf = tx.tree.structure(0)
        >>> tx.tree_util.treedef_tuple([leaf, leaf]) == tx.tree.structure((1, 2))
        True
    """
    if not isinstance(treedefs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PytreeError(f"treedef_tuple takes structures, but got {treedefs!r}.")
    return optree.treespec_tuple([_checked_treedef("treedef_tuple", x) for x in treedefs], namespace=NAMESPACE)


def _checked_treedef(what: str, treedef: Any) -> PyTreeDef:
    if isinstance(treedef, PyTreeDef):
        return treedef
    raise PytreeError(
        f"{what} takes a structure, as tree_structure gives it, but got {treedef!r} of type {type(treedef).__name__}."
    )


# --- mapping ----------------------------------------------------------------------------------------------------------


@overload
def tree_map(f: Callable[Concatenate[Array, ...], R], tree: Array, *rest: Any, is_leaf: IsLeaf = None) -> R: ...
@overload
def tree_map(
    f: Callable[Concatenate[Array, ...], R], tree: dict[Key, Array], *rest: Any, is_leaf: IsLeaf = None
) -> dict[Key, R]: ...
@overload
def tree_map(
    f: Callable[Concatenate[Array, ...], R], tree: list[Array], *rest: Any, is_leaf: IsLeaf = None
) -> list[R]: ...
@overload
def tree_map(f: Callable[..., Array], tree: Tree, *rest: Any, is_leaf: IsLeaf = None) -> Tree: ...
@overload
def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any: ...
def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """`f` of each leaf, and of what stands in its place in the further trees, as a tree of the same structure.

    The further trees have the structure of the first, or go on where it has leaves.

    Args:
        f: a function of as many leaves as there are trees.
        tree: a pytree.
        *rest: further trees.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        A tree of the structure of the first.

    Raises:
        PytreeError: a further tree with another structure; the error says where.

    >>> from tinyxla.tree_util import tree_map
    >>> tree_map(lambda x, y: x + y, {"a": 1, "b": 2}, {"a": 10, "b": 20})
    {'a': 11, 'b': 22}
    """
    try:
        leaves, treedef = pytrees.flatten(tree, is_leaf, pytrees.NAMESPACE)
        columns = [leaves, *(_flatten_up_to(treedef, tree, other, "tree_map") for other in rest)]
        return pytrees.unflatten(treedef, [f(*values) for values in zip(*columns, strict=True)])
    except Exception as error:
        filter_error(error)
        raise


@boundary
def tree_map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[..., bool] | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """As `tree_map`, but `f` gets the keys that lead to the leaf as its first argument, and so does `is_leaf` with
    `is_leaf_takes_path`.

    Args:
        f: a function of the keys and of as many leaves as there are trees.
        tree: a pytree.
        *rest: further trees.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.
        is_leaf_takes_path: whether `is_leaf` gets the keys before the value.

    Returns:
        A tree of the structure of the first.

    Raises:
        PytreeError: a further tree with another structure; the error says where.

    >>> from tinyxla.tree_util import keystr, tree_map_with_path
    >>> tree_map_with_path(lambda path, x: keystr(path), {"w": [1, 2]})
    {'w': ["['w'][0]", "['w'][1]"]}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    further = [_flatten_up_to(treedef, tree, other, "tree_map_with_path") for other in rest]
    results = [f(path, leaf, *values) for (path, leaf), *values in zip(pairs, *further, strict=True)]
    return pytrees.unflatten(treedef, results)


def _flatten_up_to(treedef: PyTreeDef, tree: Any, other: Any, what: str) -> list[Any]:
    """What another tree has in the places of the leaves. One kind of dict is not another, as it is for optree."""
    has_dicts = may_have_dicts(treedef)
    if has_dicts:
        leaves, structure = tree_flatten(other)
        if structure == treedef:
            return leaves
    try:
        found = treedef.flatten_up_to(other)
    except ValueError as error:
        found = str(error)
    if isinstance(found, str) or has_dicts:
        difference = _difference(treedef, tree, other, ())
        if difference is not None:
            raise PytreeError(f"{what}: the trees have different structures. {difference}")
    if isinstance(found, str):
        raise PytreeError(f"{what}: the trees have different structures. {found}")
    return found


def may_have_dicts(treedef: PyTreeDef) -> bool:
    """Whether a structure has dicts above leaves, or that is not known."""
    try:
        return _has_dicts(treedef)
    except TypeError:  # of what has no hash
        return True


@functools.lru_cache(256)
def _has_dicts(treedef: PyTreeDef) -> bool:
    """Whether a structure has dicts above leaves."""
    if issubclass(treedef.type or object, dict) and treedef.num_leaves:
        return True
    has_containers = treedef.num_nodes > 1 + treedef.num_children
    return has_containers and any(map(_has_dicts, treedef.children()))


def _difference(treedef: PyTreeDef, tree: Any, other: Any, path: KeyPath) -> str | None:
    """Where the second tree first departs from the structure of the first, in words."""
    if treedef.is_leaf():
        return None
    kind = treedef.type or type(None)
    where = keystr(path) or "the root"
    if type(other) is not kind:
        wanted = "None" if kind is type(None) else f"a {kind.__name__}"
        found = "a leaf" if treedef_is_leaf(tree_structure(other)) else "a container"
        found = f"{found} of type {type(other).__name__}: {_short(other)}"
        return f"At {where} the first has {wanted}, the other has {found}."
    if other is None:
        return None
    children, metadata, _, _ = optree.tree_flatten_one_level(other, namespace=NAMESPACE)
    own, own_metadata, _, _ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    if isinstance(other, dict):
        missing, extra = sorted(set(tree) - set(other), key=repr), sorted(set(other) - set(tree), key=repr)
        if missing or extra:
            return f"At {where} the other dict lacks the keys {missing} and has the further keys {extra}."
    elif len(children) != len(own):
        return f"At {where} the first {kind.__name__} has {len(own)} elements, the other {len(children)}."
    elif metadata != own_metadata:
        return f"At {where} the two {kind.__name__} differ in what is not a leaf: {own_metadata!r} and {metadata!r}."
    for step, part, left, right in zip(_child_keys(tree), treedef.children(), own, children, strict=True):
        difference = _difference(part, left, right, (*path, step))
        if difference is not None:
            return difference
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- folding, transposing, broadcasting -------------------------------------------------------------------------------

_NOTHING = object()


@boundary
def tree_reduce(
    function: Callable[[Any, Any], Any], tree: Any, initializer: Any = _NOTHING, is_leaf: IsLeaf = None
) -> Any:
    """The left fold (reduction) of the leaves: f(f(first, second), third) and so on; it begins with an initializer, if
    there is one.

    Args:
        function: a function of the accumulator and a leaf.
        tree: a pytree.
        initializer: the accumulator at first.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        The last accumulator.

    Raises:
        PytreeError: a tree without leaves, and no initializer.

    >>> from tinyxla.tree_util import tree_reduce
    >>> tree_reduce(lambda total, x: total + x, [1, (2, 3)])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if initializer is not _NOTHING:
        return functools.reduce(function, leaves, initializer)
    if not leaves:
        raise PytreeError(f"tree_reduce: the tree {tree!r} has no leaves; give an initializer.")
    return functools.reduce(function, leaves)


@boundary
def tree_reduce_associative(
    operation: Callable[[Any, Any], Any], tree: Any, *, identity: Any = _NOTHING, is_leaf: IsLeaf = None
) -> Any:
    """The fold (reduction) of the leaves by an associative operation, pairwise, so that each leaf passes few
    operations.

    Args:
        operation: an associative function of two values.
        tree: a pytree.
        identity: the result for a tree without leaves.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        The reduction.

    Raises:
        PytreeError: a tree without leaves, and no identity.

    >>> from tinyxla.tree_util import tree_reduce_associative
    >>> tree_reduce_associative(lambda x, y: x + y, [1, (2, 3)])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if identity is _NOTHING:
            raise PytreeError(f"tree_reduce_associative: the tree {tree!r} has no leaves; give an identity.")
        return identity
    while len(leaves) > 1:
        paired = [operation(x, y) for x, y in zip(leaves[0::2], leaves[1::2], strict=False)]
        leaves = paired + leaves[2 * len(paired) :]
    return leaves[0]


@boundary
def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves are true.

    Args:
        tree: a pytree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        True or False.

    Raises:
        PytreeError: an `is_leaf` that is no function.
        ShapeError: a leaf that is an array of several elements.
        TracerBoolConversionError: a leaf that is traced.

    >>> from tinyxla.tree_util import tree_all
    >>> tree_all({"a": True, "b": [1, 0]})
    False
    """
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any) -> Any:
    """A tree of trees turned inside out; `inner_treedef` None takes the structure of the first inner tree.

    Args:
        outer_treedef: the structure of the outer tree.
        inner_treedef: the structure of the inner ones, or None.
        pytree_to_transpose: an outer tree of inner trees.

    Returns:
        An inner tree of outer trees.

    Raises:
        PytreeError: a tree that does not begin with the outer structure, or go on with the inner one.

    >>> from tinyxla.tree_util import tree_structure, tree_transpose
    >>> tree_transpose(tree_structure([0, 0]), tree_structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    for given in (outer_treedef,) if inner_treedef is None else (outer_treedef, inner_treedef):
        _checked_treedef("tree_transpose", given)
    inner_trees = _inner_trees(outer_treedef, inner_treedef, pytree_to_transpose)
    if inner_treedef is None:
        if not inner_trees:
            raise PytreeError(f"tree_transpose: the outer {outer_treedef} has no leaves; give the inner structure.")
        inner_treedef = tree_structure(inner_trees[0])
    rows: list[list[Any]] = []
    for inner in inner_trees:
        leaves, treedef = tree_flatten(inner)
        if treedef != inner_treedef:
            raise PytreeError(f"tree_transpose: an inner tree has the structure {treedef}, not {inner_treedef}.")
        rows.append(leaves)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(inner_treedef.num_leaves)]
    return tree_unflatten(inner_treedef, [tree_unflatten(outer_treedef, column) for column in columns])


def _inner_trees(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, tree: Any) -> list[Any]:
    """What stands in the places of the leaves of the outer structure. Containers that keep the structure of what is in
    them differ from the outer ones; they fit if these, with the inner trees in them, are like them."""
    try:
        return outer_treedef.flatten_up_to(tree)
    except ValueError as error:
        leaves, treedef = tree_flatten(tree)
        if inner_treedef is not None and len(leaves) == outer_treedef.num_leaves * inner_treedef.num_leaves:
            size = inner_treedef.num_leaves
            chunks = [leaves[i : i + size] for i in range(0, len(leaves), size)] if size else []
            inner_trees = [tree_unflatten(inner_treedef, chunk) for chunk in chunks]
            if chunks and tree_structure(tree_unflatten(outer_treedef, inner_trees)) == treedef:
                return inner_trees
        raise PytreeError(f"tree_transpose: the tree does not begin as the outer {outer_treedef}: {error}") from None


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """A tree with the structure of `full_tree` whose leaves are those of a tree that may stop earlier.

    Args:
        prefix_tree: a tree that may stop earlier.
        full_tree: a tree.
        is_leaf: a function of a subtree that says whether it is a leaf; by default containers are none.

    Returns:
        A tree.

    Raises:
        PytreeError: a tree that is no prefix of the other.

    >>> from tinyxla.tree_util import tree_broadcast
    >>> tree_broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    {'a': [1, 1], 'b': 2}
    """
    values, treedef = tree_flatten(prefix_tree, is_leaf)
    parts = _flatten_up_to(treedef, prefix_tree, full_tree, "tree_broadcast")
    spread = [tree_map(lambda _, value=value: value, part) for value, part in zip(values, parts, strict=True)]
    return pytrees.unflatten(treedef, spread)


# --- classes of one's own ---------------------------------------------------------------------------------------------


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make a class a container.

    Args:
        nodetype: the class.
        flatten_func: from an instance to its children, and anything hashable that the rest of it is.
        unflatten_func: from the rest and children back to an instance.
        flatten_with_keys_func: as `flatten_func`, but with (key, child) pairs.

    Raises:
        PytreeError: what is no class, a class that is registered already, or what are no functions.

    >>> from tinyxla.tree_util import register_pytree_node, tree_leaves
    >>> class Pair:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    >>> register_pytree_node(Pair, lambda p: ((p.x, p.y), None), lambda _, children: Pair(*children))
    >>> tree_leaves(Pair(1, 2))
    [1, 2]
    """

    def with_keys(value: Any) -> tuple[Iterable[Any], Any, Sequence[Any]]:
        assert flatten_with_keys_func is not None
        children, rest = flatten(value)
        return children, rest, tuple(key for key, _ in flatten_with_keys_func(value)[0])

    def flatten(value: Any) -> tuple[Iterable[Any], Any]:
        found = flatten_func(value)
        if type(found) is tuple and len(found) == 2:
            children = found[0]
            if type(children) is tuple or hasattr(children, "__iter__") or hasattr(children, "__getitem__"):
                return found  # `iter` takes the children
        raise PytreeError(
            f"The flatten function of {nodetype.__name__} must return a pair (children, rest) whose children can be "
            f"iterated over, but returned {found!r}."
        )

    _check_class("register_pytree_node", nodetype)
    given = (flatten_func, unflatten_func, *([] if flatten_with_keys_func is None else [flatten_with_keys_func]))
    for function in given:
        if not callable(function):
            raise PytreeError(f"register_pytree_node of {nodetype.__name__} takes functions, but got {function!r}.")
    named = None if flatten_with_keys_func is None else with_keys
    try:
        pytrees.register_node(nodetype, flatten, unflatten_func, _KeyedEntry, named)
    except ValueError as error:
        raise PytreeError(f"register_pytree_node: {nodetype.__name__} is registered already: {error}") from None


def _check_class(what: str, cls: Any, *methods: str) -> None:
    """An error for what is no class, or has not got the methods that make it a container."""
    if not isinstance(cls, type):
        raise PytreeError(f"{what} takes a class, but got {cls!r} of type {type(cls).__name__}.")
    missing = [name for name in methods if not hasattr(cls, name)]
    if missing:
        raise PytreeError(
            f"{what}: {cls.__name__} must have the methods {' and '.join(methods)}, but has no {missing[0]}."
        )


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """As `register_pytree_node`, with a name for each child: `flatten_with_keys` gives (key, child) pairs.

    Args:
        nodetype: a class.
        flatten_with_keys: from an instance to its (key, child) pairs and the rest, which is hashable.
        unflatten_func: from the rest and the children to an instance.
        flatten_func: from an instance to its children and the rest, without keys; optional.

    Raises:
        PytreeError: what is no class, or a class that is registered already.

    Example:
        >>> import tinyxla as tx
        >>> class Pair:
        ...     def __init__(self, x, y):
        ...         self.x, self.y = x, y
        >>> tx.tree_util.register_pytree_with_keys(
        ...     Pair,
        ...     lambda pair: ((("x", pair.x), ("y", pair.y)), None),
        ...     lambda _, children: Pair(*children),
        ... )
        >>> tx.tree.leaves(tx.tree.map(lambda leaf: 10 * leaf, Pair(1, 2)))
        [10, 20]
    """

    def without_keys(value: Any) -> tuple[Iterable[Any], Any]:
        pairs, rest = flatten_with_keys(value)
        return tuple(child for _, child in pairs), rest

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_node_class(cls: C) -> C:
    """Class decorator: a container by its methods `tree_flatten` and (a class method) `tree_unflatten`.

    Args:
        cls: a class.

    Returns:
        The class.

    Raises:
        PytreeError: what is no class, has no such methods, or is registered already.

    >>> from tinyxla.tree_util import register_pytree_node_class, tree_map
    >>> @register_pytree_node_class
    ... class Point:
    ...     def __init__(self, x): self.x = x
    ...     def tree_flatten(self): return (self.x,), None
    ...     @classmethod
    ...     def tree_unflatten(cls, rest, children): return cls(*children)
    >>> tree_map(lambda x: x + 1, Point(1)).x
    2
    """
    _check_class("register_pytree_node_class", cls, "tree_flatten", "tree_unflatten")
    register_pytree_node(cls, operator.methodcaller("tree_flatten"), cls.tree_unflatten)
    return cls


def register_pytree_with_keys_class(cls: C) -> C:
    """Class decorator: a container by its methods `tree_flatten_with_keys` and (a class method) `tree_unflatten`.

    Args:
        cls: a class.

    Returns:
        The class.

    Raises:
        PytreeError: what is no class, has no such methods, or is registered already.

    Example:
        >>> import tinyxla as tx
        >>> @tx.tree_util.register_pytree_with_keys_class
        ... class Point:
        ...     def __init__(self, x, y):
        ...         self.x, self.y = x, y
        ...
        ...     def tree_flatten_with_keys(self):
        ...         return (("x", self.x), ("y", self.y)), None
        ...
        ...     @classmethod
        ...     def tree_unflatten(cls, _, children):
        ...         return cls(*children)
        >>> tx.tree.leaves(Point(1, 2))
        [1, 2]
    """
    _check_class("register_pytree_with_keys_class", cls, "tree_flatten_with_keys", "tree_unflatten")
    own = operator.methodcaller("tree_flatten") if hasattr(cls, "tree_flatten") else None
    with_keys = operator.methodcaller("tree_flatten_with_keys")
    register_pytree_with_keys(cls, with_keys, cls.tree_unflatten, own)
    return cls


def register_dataclass(
    nodetype: C,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> C:
    """Make a dataclass a container of its `data_fields`; `meta_fields` are hashable and belong to the structure.

    Without either, fields are data unless declared with `metadata={"static": True}`. `drop_fields` are left out, and
    get their default again.

    Args:
        nodetype: a dataclass.
        data_fields, meta_fields, drop_fields: names of fields.

    Returns:
        The class.

    Raises:
        ArgumentError: what is no class, or a class that is no dataclass, without fields.

    >>> from tinyxla.tree_util import dataclasses, register_dataclass, tree_map
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     weight: float
    ...     name: str = dataclasses.field(default="", metadata={"static": True})
    >>> tree_map(lambda x: 2 * x, Layer(1.5, "first"))
    Layer(weight=3.0, name='first')
    """
    _check_class("register_dataclass", nodetype)
    cls: type[Any] = nodetype
    is_dataclass: bool = dataclasses.is_dataclass(cls)
    if (data_fields is None) != (meta_fields is None):
        raise ArgumentError(
            "register_dataclass: data_fields and meta_fields are given together, or neither, but got "
            f"data_fields={data_fields} and meta_fields={meta_fields}."
        )
    if data_fields is None or meta_fields is None:
        if not is_dataclass:
            raise ArgumentError(
                f"register_dataclass: {nodetype} is not a dataclass, so it takes data_fields and meta_fields."
            )
        kept = [f for f in dataclasses.fields(cls) if f.init and f.name not in drop_fields]
        data_fields = [f.name for f in kept if not f.metadata.get("static", False)]
        meta_fields = [f.name for f in kept if f.metadata.get("static", False)]
    if is_dataclass:
        _check_fields(cls, {*data_fields, *meta_fields, *drop_fields})
    data, meta = tuple(data_fields), tuple(meta_fields)

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, name) for name in data), tuple(getattr(value, name) for name in meta)

    def flatten_with_keys(value: Any) -> tuple[list[tuple[GetAttrKey, Any]], tuple[Any, ...]]:
        return [(GetAttrKey(name), getattr(value, name)) for name in data], flatten(value)[1]

    def unflatten(rest: tuple[Any, ...], children: Iterable[Any]) -> Any:
        return cls(**dict(zip(data, children, strict=True)), **dict(zip(meta, rest, strict=True)))

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys)
    return nodetype


def _check_fields(nodetype: Any, named: set[str]) -> None:
    fields = {f.name for f in dataclasses.fields(nodetype) if f.init}
    if fields != named:
        missing, unknown = fields - named, named - fields
        raise ArgumentError(
            f"register_dataclass: {nodetype.__name__} has the fields {sorted(fields)}"
            + (f"; not named as data, meta or dropped: {_set_text(missing)}" if missing else "")
            + (f"; named but not there: {_set_text(unknown)}" if unknown else "")
            + "."
        )


def _set_text(names: set[str]) -> str:
    return "{" + ", ".join(map(repr, sorted(names))) + "}"


def register_static(cls: C) -> C:
    """Class decorator: instances have no leaves and belong to the structure whole, so they must be hashable.

    Args:
        cls: a class.

    Returns:
        The class.

    Raises:
        PytreeError: what is no class, or a class that is registered already.

    Example:
        >>> import dataclasses
        >>> import tinyxla as tx
        >>> @tx.tree_util.register_static
        ... @dataclasses.dataclass(frozen=True)
        ... class Padding:
        ...     mode: str
        >>> tx.tree.leaves([1, Padding("same"), 2])
        [1, 2]
    """
    _check_class("register_static", cls)
    register_pytree_node(cls, lambda value: ((), value), lambda value, _: value)
    return cls


class Partial(functools.partial[Any]):
    """`functools.partial` as a container: its arguments are leaves, so it can be handed to transformed functions.

    >>> from tinyxla.tree_util import Partial, tree_leaves
    >>> add = Partial(lambda x, y: x + y, 1)
    >>> add(2), tree_leaves(add)
    (3, [1])
    """

    def __new__(cls, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Partial:
        if isinstance(function, functools.partial) and not isinstance(function, Partial):
            function = _Unmerged(function)  # whose arguments are no leaves
        return super().__new__(cls, function, *args, **keywords)


class _Unmerged:
    """A `functools.partial`, equal to itself and with its hash, that no other one takes apart."""

    def __init__(self, function: functools.partial[Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _Unmerged) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return repr(self.function)


register_pytree_with_keys(
    Partial,
    lambda p: (((GetAttrKey("args"), p.args), (GetAttrKey("keywords"), p.keywords)), p.func),
    lambda func, children: _make_partial(func, *children),
)


def _make_partial(func: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Partial:
    return Partial(func, *args, **keywords)


__getattr__ = _missing(__name__)


__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]


def __dir__() -> list[str]:
    return __all__
