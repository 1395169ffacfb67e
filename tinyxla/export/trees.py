"""Structures of arguments and results, as they are written.

Tuples, lists, dicts and ordered dicts with keys that are strings or integers, and None are known. Named tuples and
other containers are written under names with which they are registered, where they are read, too.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import optree

from tinyxla.errors import ArgumentError, BytecodeError
from tinyxla.stablehlo.bytecode import Tree
from tinyxla.tracing import pytrees


class _Custom(NamedTuple):
    """How a registered container is written and read."""

    kind: type[Any]
    serialize_auxdata: Callable[[Any], bytes]
    deserialize_auxdata: Callable[[bytes], Any]
    from_children: Callable[[Any, Sequence[Any]], Any]


_customs: dict[str, _Custom] = {}  # by the names under which they are written
_names: dict[type[Any], str] = {}
_LEAF = object()
_DEEPEST = 120
_DICT = "tinyxla.dict"  # the name of a dict whose keys are not all strings, which artifacts do not have


def register_pytree_node_serialization(
    nodetype: type[Any],
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type[Any]:
    """Let exported functions have arguments and results of a container class.

    Args:
        nodetype: a class that is registered as a pytree node.
        serialized_name: under which it is written; one for each class.
        serialize_auxdata: what the class keeps beside its children, as bytes.
        deserialize_auxdata: the inverse.
        from_children: of the auxiliary data and the children, gives an instance; by default as it was registered.

    Returns:
        The class.

    Raises:
        ArgumentError: the name or the class is registered already.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla import export
        >>> @tx.tree_util.register_pytree_node_class
        ... class Pair:
        ...     def __init__(self, *pair):
        ...         self.pair = pair
        ...     def tree_flatten(self):
        ...         return self.pair, None
        ...     @classmethod
        ...     def tree_unflatten(cls, rest, pair):
        ...         return cls(*pair)
        >>> _ = export.register_pytree_node_serialization(
        ...     Pair,
        ...     serialized_name="example.Pair",
        ...     serialize_auxdata=lambda _: b"",
        ...     deserialize_auxdata=lambda _: None,
        ... )
    """
    if serialized_name in _customs or nodetype in _names:
        raise ArgumentError(
            f"register_pytree_node_serialization: {nodetype.__name__} or the name {serialized_name!r} is registered "
            "already; register each class once, under a name of its own."
        )

    def rebuilt(auxdata: Any, children: Sequence[Any]) -> Any:
        return optree.register_pytree_node.get(nodetype, namespace=pytrees.NAMESPACE).unflatten_func(  # type: ignore[attr-defined]
            auxdata, tuple(children)
        )

    _customs[serialized_name] = _Custom(nodetype, serialize_auxdata, deserialize_auxdata, from_children or rebuilt)
    _names[nodetype] = serialized_name
    return nodetype


def register_namedtuple_serialization(nodetype: type[Any], *, serialized_name: str) -> type[Any]:
    """Let exported functions have arguments and results of a named tuple.

    Args:
        nodetype: a class of named tuples.
        serialized_name: under which it is written; one for each class.

    Returns:
        The class.

    Raises:
        ArgumentError: the class is no named tuple, or it or the name is registered already.

    Example:
        >>> from typing import NamedTuple
        >>> from tinyxla import export
        >>> class Point(NamedTuple):
        ...     x: float
        ...     y: float
        >>> export.register_namedtuple_serialization(Point, serialized_name="example.Point").__name__
        'Point'
    """
    if not hasattr(nodetype, "_fields"):
        raise ArgumentError(f"register_namedtuple_serialization: {nodetype!r} is no named tuple.")

    def of_fields(names: Any, children: Sequence[Any]) -> Any:
        if not isinstance(names, list) or sorted(map(str, names)) != sorted(nodetype._fields):
            raise ArgumentError(
                f"An exported function has a named tuple {serialized_name!r} with the fields {names}, but "
                f"{nodetype.__name__}, which is registered for it, has {list(nodetype._fields)}."
            )
        if len(children) != len(names):
            raise BytecodeError("a named tuple has other numbers of fields and values", 0)
        return nodetype(**dict(zip(names, children, strict=True)))

    return register_pytree_node_serialization(
        nodetype,
        serialized_name=serialized_name,
        serialize_auxdata=lambda _: json.dumps(nodetype._fields).encode(),
        deserialize_auxdata=json.loads,
        from_children=of_fields,
    )


def _is_key(key: Any) -> bool:
    """Whether a key of a dict can be written."""
    return type(key) in (str, int)


def _checked_keys(kind: type[Any], keys: Iterable[Any]) -> list[Any]:
    """The keys of a dict of that class, all of which can be written."""
    checked = list(keys)
    for key in checked:
        if not _is_key(key):
            raise ArgumentError(
                f"The keys of {kind.__name__}s of an exported function are strings or integers, but one is {key!r}."
            )
    return checked


def _written_keys(keys: Sequence[Any]) -> bytes:
    return json.dumps(_checked_keys(OrderedDict, keys)).encode()


def _read_keys(data: bytes) -> list[Any]:
    try:
        keys = json.loads(data)
    except ValueError:
        keys = None
    if not isinstance(keys, list) or not all(map(_is_key, keys)):
        raise BytecodeError("the keys of an ordered dict are not written as a list of strings and integers", 0)
    return keys


def _ordered_dict(keys: Sequence[Any], children: Sequence[Any]) -> OrderedDict[Any, Any]:
    if len(set(keys)) != len(children):
        raise BytecodeError("an ordered dict has other numbers of keys and values", 0)
    return OrderedDict(zip(keys, children, strict=True))


# under the name that artifacts of `jax.export` have
register_pytree_node_serialization(
    OrderedDict,
    serialized_name="collections.OrderedDict",
    serialize_auxdata=_written_keys,
    deserialize_auxdata=_read_keys,
    from_children=_ordered_dict,
)


def written_tree(tree: pytrees.TreeDef) -> Tree:
    """A structure as it is written.

    Raises:
        ArgumentError: a container is not registered, or a key of a dict cannot be written.
    """
    return _written(pytrees.unflatten(tree, [_LEAF] * tree.num_leaves), 0)


def _written(node: Any, depth: int) -> Tree:
    if depth > _DEEPEST:
        raise ArgumentError(f"An exported function nests at most {_DEEPEST} containers, but here are more.")
    if node is _LEAF:
        return Tree("leaf")
    if node is None:
        return Tree("none")
    kind = type(node)
    if kind in _names:
        name = _names[kind]
        children, auxdata = (tuple(node), None) if hasattr(kind, "_fields") else _one_level(node)
        data = _customs[name].serialize_auxdata(auxdata)
        if not isinstance(data, bytes | bytearray):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"The function serialize_auxdata that is registered for {kind.__name__} must give bytes, but gave "
                f"{data!r}."
            )
        return Tree("custom", _all_written(children, depth), name=name, auxdata=bytes(data))
    if kind in (tuple, list):
        return Tree(kind.__name__, _all_written(node, depth))
    if kind is dict:
        keys = _checked_keys(dict, node)
        children = _all_written([node[key] for key in keys], depth)
        if all(isinstance(key, str) for key in keys):
            return Tree("dict", children, tuple(keys))
        return Tree("custom", children, name=_DICT, auxdata=_written_keys(keys))
    register = "register_namedtuple_serialization" if hasattr(kind, "_fields") else "register_pytree_node_serialization"
    raise ArgumentError(
        f"A container {kind.__name__} among the arguments or results of an exported function cannot be written; "
        f"register it by export.{register}."
    )


def _all_written(nodes: Iterable[Any], depth: int) -> tuple[Tree, ...]:
    return tuple(_written(node, depth + 1) for node in nodes)


def _one_level(node: Any) -> tuple[Sequence[Any], Any]:
    children, auxdata, *_ = optree.tree_flatten_one_level(node, namespace=pytrees.NAMESPACE)
    return children, auxdata


def _registered(name: str, auxdata: bytes, children: Sequence[Any]) -> Any:
    custom = _customs.get(name)
    if custom is None:
        raise ArgumentError(
            f"An exported function has a container {name!r} among its arguments or results, which is not registered "
            "here; call export.register_pytree_node_serialization or register_namedtuple_serialization first."
        )
    return custom.from_children(custom.deserialize_auxdata(auxdata), children)


def read_tree(tree: Tree) -> pytrees.TreeDef:
    """The structure that is written so.

    Raises:
        BytecodeError: containers are nested too deeply, or the keys of a dict are damaged.
        ArgumentError: a container is not registered.
    """
    return pytrees.flatten_shown(_rebuilt(tree, 0))[1]


def _rebuilt(tree: Tree, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BytecodeError(f"a structure of arguments nests more than {_DEEPEST} containers", 0)
    if tree.kind == "leaf":
        return _LEAF
    if tree.kind == "none":
        return None
    children = [_rebuilt(child, depth + 1) for child in tree.children]
    if tree.kind == "tuple":
        return tuple(children)
    if tree.kind == "list":
        return children
    if tree.kind == "dict":
        return dict(zip(tree.keys, children, strict=True))
    if tree.name == _DICT:
        return dict(_ordered_dict(_read_keys(tree.auxdata), children))
    return _registered(tree.name, tree.auxdata, children)
