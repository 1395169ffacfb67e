"""Pytrees as named arrays and a structure in JSON, and back.

None is null, and every other node of the structure an object with one name that says its kind:

    {"list": [node, ...]}, {"tuple": [node, ...]}           containers
    {"dict": [[key, node], ...]}                            keys are scalars, as below
    {"class": [path, [[name, node], ...]]}                  a named tuple or a registered class, by its import path
    {"bool" | "int" | "float" | "complex" | "str": text}    Python's scalars
    {"array" | "weak" | "numpy": [name, element type]}      an array of the file, what it was, and its element type
    {"key": [name, generator]}                              random keys, whose words are an array of the file

A class is never imported because a file names it: it is built from an instance that the reader gives (`like`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, DTypeError, PytreeError
from tinyxla.partitioning.array import ShardedArray, from_callback, layout_of
from tinyxla.saving.checkpoint import CheckpointReader, Offset, Tiles, one_tile
from tinyxla.saving.container import DTYPES, NAMES, Box, Reader, unique_names
from tinyxla.shapes import KEY_TYPES, Shape, element_type
from tinyxla.shapes.element_types import element_types
from tinyxla.tracing.array import Array, ConcreteArray
from tinyxla.tracing.device import process_index
from tinyxla.tracing.pytrees import NAMESPACE
from tinyxla.tracing.shardings import Shard
from tinyxla.transforms.key_arrays import KeyArray
from tinyxla.tree_util import (
    DictKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
    flatten_one_level_with_keys,
    is_tree_node,
    keystr,
    tree_flatten_with_path,
    tree_leaves,
)

_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple}
_SCALARS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "bool": (bool, repr, {"False": False, "True": True}.__getitem__),
    "int": (int, hex, lambda text: int(text, 16)),  # of any size: decimal digits are limited
    "float": (float, repr, float),
    "complex": (complex, repr, complex),
    "str": (str, str, str),
}
_ARRAYS = ("array", "weak", "numpy", "key")
_SCALAR_KINDS = {kind: name for name, (kind, _, _) in _SCALARS.items()}
ABSENT = object()  # in place of a tree that the result must be like


# --- writing ----------------------------------------------------------------------------------------------------------


def is_split_among_processes(tree: Any) -> bool:
    """Whether a tree has an array of which this process has only some elements."""
    leaves = [x.words if isinstance(x, KeyArray) else x for x in tree_leaves(tree)]
    return any(isinstance(x, ShardedArray) and x.is_split_among_processes for x in leaves)


def encode(tree: Any) -> tuple[Any, dict[str, Tiles]]:
    """The structure of a tree, and its arrays by their names in the file. An array of which this process has all
    elements is one tile; the tiles of others are the shards."""
    leaves, _ = tree_flatten_with_path(tree)
    paths = [path for path, _ in leaves]
    names = unique_names(keystr(path, simple=True, separator=".") or "array" for path in paths)
    encoder = _Encoder(dict(zip(paths, names, strict=True)))
    return encoder.node(tree, ()), encoder.arrays


class _Encoder:
    def __init__(self, names: dict[KeyPath, str]) -> None:
        self._names = names
        self.arrays: dict[str, Tiles] = {}

    def node(self, tree: Any, path: KeyPath) -> Any:
        if tree is None:
            return None
        if not is_tree_node(type(tree)):
            return self._leaf(tree, path)
        kind = _container(tree)
        children = [(key, self.node(child, (*path, key))) for key, child in _children(tree)]
        if kind in _SEQUENCES:
            return {kind: [child for _, child in children]}
        if kind == "dict":
            return {kind: [[_scalar_key(key.key, path), child] for key, child in children]}
        return {"class": [kind, [[keystr((key,)), child] for key, child in children]]}

    def _leaf(self, leaf: Any, path: KeyPath) -> Any:
        if type(leaf) in _SCALAR_KINDS:
            return _scalar(leaf)
        what = f"save: the leaf {keystr(path) or 'tree'}"
        name = self._names[path]
        if isinstance(leaf, KeyArray):
            self.arrays[name] = _tiles(leaf.words, what)
            return {"key": [name, leaf.dtype.implementation]}
        if isinstance(leaf, Array):
            kind, tiles = "weak" if leaf.weak_type else "array", _tiles(leaf, what)
        elif isinstance(leaf, np.ndarray | np.generic):
            kind, tiles = "numpy", one_tile(np.asarray(leaf))
        else:
            raise ArgumentError(
                f"{what} is of type {type(leaf).__name__}, but arrays, numbers and strings can be saved; leave it out, "
                "or register its class as a container by tree_util."
            )
        try:
            of = element_type(tiles.dtype)
        except DTypeError:
            raise ArgumentError(
                f"{what} is a NumPy array of {tiles.dtype}, which is no element type; save numbers."
            ) from None
        self.arrays[name] = _carried_tiles(tiles, of.dtype)
        return {kind: [name, of.name]}


def _tiles(x: Array, what: str) -> Tiles:
    if not isinstance(x, ShardedArray) or not x.is_split_among_processes:
        return one_tile(np.asarray(x.concrete(what).buffer()))
    shards = {_offset(shard): shard for shard in x.global_shards if shard.replica_id == 0}
    owners = {offset: shard.device.process_index for offset, shard in shards.items()}
    own = [offset for offset, owner in owners.items() if owner == process_index()]
    values = {offset: np.asarray(shards[offset].data.concrete(what).buffer()) for offset in own}
    return Tiles(x.dtype, x.shape, x.layout.shard_shape(x.shape), owners, values)


def _offset(shard: Shard) -> Offset:
    return tuple(s.start or 0 for s in shard.index)


def _carried_tiles(x: Tiles, dtype: np.dtype[Any]) -> Tiles:
    """An array of an element type that the format has, as `_carried` makes it."""
    like = _carried(np.empty((0,), dtype))
    inner = like.shape[1:]
    origin = (0,) * len(inner)
    return Tiles(
        like.dtype,
        (*x.shape, *inner),
        (*x.tile, *inner),
        {(*offset, *origin): owner for offset, owner in x.owners.items()},
        {(*offset, *origin): _carried(value.astype(dtype, copy=False)) for offset, value in x.values.items()},
    )


def _container(tree: Any) -> str:
    """What kind of container it is: a kind of node, or the import path of a class."""
    kind = type(tree)
    return kind.__name__ if kind in (list, tuple, dict) else f"{kind.__module__}.{kind.__qualname__}"


def _children(tree: Any) -> list[tuple[Any, Any]]:
    """The children of a container, each with its key; those of a dict in its own order."""
    return (
        [(DictKey(key), x) for key, x in tree.items()] if type(tree) is dict else flatten_one_level_with_keys(tree)[0]
    )


def _scalar(value: Any) -> Any:
    name = _SCALAR_KINDS[type(value)]
    return {name: _SCALARS[name][1](value)}


def _scalar_key(key: Any, path: KeyPath) -> Any:
    if type(key) not in _SCALAR_KINDS:
        raise ArgumentError(
            f"save: the dict {keystr(path) or 'tree'} has the key {key!r} of type {type(key).__name__}; keys that can "
            "be saved are strings and numbers."
        )
    return _scalar(key)


def _carried(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array as one of an element type that the format has: integers of a few bits are bytes of the same value,
    complex numbers of twice 64 bits have an axis of real and imaginary part, others are the bytes that they are."""
    if value.dtype in NAMES:
        return value
    if value.dtype == np.complex128:
        return np.ascontiguousarray(value).reshape(*value.shape, 1).view(np.float64)
    of = element_type(value.dtype)
    return value.astype(f"{'i' if of.kind == 'signed' else 'u'}1") if of.is_integer else value.view(np.uint8)


# --- reading ----------------------------------------------------------------------------------------------------------


class Decoder:
    """The trees of a file.

    Args:
        reader: the file, or the checkpoint.
        is_mapped: whether arrays stay in the file's memory, or are copied.
    """

    def __init__(self, reader: Reader | CheckpointReader, is_mapped: bool) -> None:
        self._reader = reader
        self._is_mapped = is_mapped

    def node(self, node: Any, like: Any, path: KeyPath = ()) -> Any:
        """What a node of the structure stands for. It must have the structure, shapes and types of `like`, unless that
        is `ABSENT`."""
        if node is None:
            self._check(like is None, "None", like, path)
            return None
        kind, content = self._parts(node, dict, 1).popitem()
        if kind in _SEQUENCES:
            nodes = self._parts(content, list)
            return self._container(kind, [SequenceKey(k) for k in range(len(nodes))], nodes, like, path)
        if kind == "dict":
            pairs = [self._parts(pair, list, 2) for pair in self._parts(content, list)]
            keys = [DictKey(self._scalar(*self._parts(key, dict, 1).popitem())) for key, _ in pairs]
            return self._container(kind, keys, [node for _, node in pairs], like, path)
        if kind == "class":
            name, children = self._parts(content, list, 2)
            pairs = [self._parts(pair, list, 2) for pair in self._parts(children, list)]
            return self._container(str(name), [str(key) for key, _ in pairs], [node for _, node in pairs], like, path)
        if kind in _SCALARS:
            self._check(type(like) is _SCALARS[kind][0], f"a Python {kind}", like, path)
            return self._scalar(kind, content)
        name, of = self._parts(content, list, 2)
        return self._array(kind, name, of, like, path)

    def _container(self, kind: str, keys: Sequence[Any], nodes: Sequence[Any], like: Any, path: KeyPath) -> Any:
        is_class = kind not in _SEQUENCES and kind != "dict"
        if like is ABSENT and is_class:
            raise PytreeError(
                f"load: {keystr(path) or 'the tree'} of {self._reader.path} is a {kind}. Give a tree of the same "
                "structure as `like`: a file cannot say which classes are imported."
            )
        inner: dict[Any, Any] = dict.fromkeys(keys, ABSENT)
        if like is not ABSENT:
            self._check(is_tree_node(type(like)) and _container(like) == kind, f"a {kind}", like, path)
            inner = {keystr((key,)) if is_class else key: child for key, child in _children(like)}
            self._check(inner.keys() == set(keys), f"a {kind} of {', '.join(map(str, keys))}", like, path)
        steps = [GetAttrKey(key.removeprefix(".")) if is_class else key for key in keys]
        found = {
            key: self.node(node, inner[key], (*path, step)) for key, step, node in zip(keys, steps, nodes, strict=True)
        }
        if len(found) < len(keys):
            raise self._reader.damaged("a container has a key twice")
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](found.values())
        return _like(like, [found[key] for key in inner]) if is_class else {key.key: x for key, x in found.items()}

    def _scalar(self, kind: str, text: Any) -> Any:
        try:
            return _SCALARS[kind][2](text)
        except (KeyError, TypeError, ValueError):
            raise self._reader.damaged(f"{text!r} is no {kind}") from None

    def _array(self, kind: str, name: Any, of: Any, like: Any, path: KeyPath) -> Any:
        if kind not in _ARRAYS or not isinstance(name, str) or name not in self._reader.entries:
            raise self._reader.damaged(f"{name!r} is no array of it that can be a leaf of the kind {kind!r}")
        entry = self._reader.entries[name]
        if not isinstance(of, str) or of not in (KEY_TYPES if kind == "key" else element_types):
            raise self._reader.damaged(f"the array {name!r} is no {kind} of the type {of!r}")
        dtype = np.dtype(np.uint32) if kind == "key" else element_types[of].dtype
        carried = _carried(np.empty((0, KEY_TYPES[of].words) if kind == "key" else (0,), dtype))
        ndim = len(entry.shape) - carried.ndim + 1
        if DTYPES[entry.dtype] != carried.dtype or ndim < 0 or entry.shape[ndim:] != carried.shape[1:]:
            held = "words of keys" if kind == "key" else "elements"
            raise self._reader.damaged(f"the array {name!r} of {entry.dtype}{entry.shape} does not hold {held} {of}")
        shown = ShapeDtypeStruct(entry.shape[:ndim], KEY_TYPES[of] if kind == "key" else dtype)
        wanted = (getattr(like, "shape", None), getattr(like, "dtype", None))
        self._check(wanted == (shown.shape, shown.dtype), f"an array {Shape.of(shown)}", like, path)

        def read(box: Box | None = None) -> np.ndarray[Any, Any]:
            return _uncarried(self._checked(self._reader.read(name, box)), dtype)

        layout = layout_of(like.words if isinstance(like, KeyArray) else like)
        if layout is not None:
            shape = entry.shape if kind == "key" else shown.shape
            made = from_callback(shape, dtype, layout, read, kind == "weak", f"load: {keystr(path) or 'the tree'}")
        elif kind == "numpy":
            return self._kept(read())[()]
        else:
            made = ConcreteArray(self._kept(read()), kind == "weak")
        return KeyArray(KEY_TYPES[of], made) if kind == "key" else made

    def whole(self, like: Any) -> Any:
        """All arrays by name: what a file is that another library wrote."""
        entries = self._reader.entries
        leaves = [{"array": [name, element_type(DTYPES[entry.dtype]).name]} for name, entry in entries.items()]
        return self._container("dict", list(map(DictKey, entries)), leaves, like, ())

    def _checked(self, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if value.dtype == np.bool_ and value.view(np.uint8).max(initial=0) > 1:
            raise self._reader.damaged("an array of booleans has other bytes than 0 and 1")
        return value

    def _kept(self, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return value if self._is_mapped else value.copy()

    def _parts(self, found: Any, kind: type, count: int | None = None) -> Any:
        """A part of the structure, which must be a list or an object of so many parts; an object's is copied."""
        if not isinstance(found, kind) or (count is not None and len(found) != count):
            raise self._reader.damaged(f"in its structure {reprlib.repr(found)} is out of place")
        return kind(found)

    def _check(self, holds: bool, what: str, like: Any, path: KeyPath) -> None:
        if not holds and like is not ABSENT:
            where = keystr(path) or "the tree"
            raise PytreeError(f"load: {where} is {what} in {self._reader.path}, but {_described(like)} in `like`.")


def _uncarried(value: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The inverse of `_carried`."""
    if value.dtype == dtype:
        return value
    if dtype == np.complex128:
        return value.view(dtype).reshape(value.shape[:-1])
    return value.astype(dtype) if element_type(dtype).is_integer else value.view(dtype)


def _like(instance: Any, children: Sequence[Any]) -> Any:
    """A container of the same class and with the same other contents, of other children."""
    flattened = optree.tree_flatten_one_level(instance, namespace=NAMESPACE)
    return flattened[3](flattened[1], children)


def _described(like: Any) -> str:
    if is_tree_node(type(like)):
        keys = ", ".join(keystr((key,)) for key, _ in _children(like)) if like is not None else ""
        return f"a {_container(like)} of {keys}" if keys else "None" if like is None else f"an empty {_container(like)}"
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        return f"an array {Shape.of(like)}"
    return f"of type {type(like).__name__}"
