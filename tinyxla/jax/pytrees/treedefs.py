"""Structures of pytrees as JAX has them: their text, what their nodes hold, and what `flatten_up_to` says of trees that
do not fit. `jax.tree_util` and `jax.tree` give them; elsewhere structures are this library's, which are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import optree

from tinyxla import tree_util
from tinyxla.errors import PytreeError
from tinyxla.tracing import pytrees
from tinyxla.tree_util import may_have_dicts

_Kind = optree.PyTreeKind
_BRACKETS = {_Kind.LIST: "[]", _Kind.TUPLE: "()"}


class _Structures(type):
    """The class of a class that has this library's structures for instances, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(instance, optree.PyTreeSpec)


class PyTreeDef(metaclass=_Structures):
    """The structure of a pytree.

    Example:
        >>> tree_structure({"a": (1, None), "b": [2, 3]})
        PyTreeDef({'a': (*, None), 'b': [*, *]})
    """

    __slots__ = ("spec",)

    def __init__(self, spec: Any) -> None:
        self.spec: optree.PyTreeSpec = spec.spec if type(spec) is PyTreeDef else spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spec, name)

    def __eq__(self, other: object) -> bool:
        return self.spec == (other.spec if type(other) is PyTreeDef else other)

    def __hash__(self) -> int:
        return hash(self.spec)

    def __reduce__(self) -> Any:
        return PyTreeDef, (self.spec,)

    def __repr__(self) -> str:
        return f"PyTreeDef({_text(self.spec)})"

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return self.spec.num_leaves

    @property
    def num_nodes(self) -> int:
        """The number of containers and leaves."""
        return self.spec.num_nodes

    def children(self) -> list[PyTreeDef]:
        """The structures of what is in the container."""
        return [PyTreeDef(child) for child in self.spec.children()]

    def compose(self, inner: Any) -> PyTreeDef:
        """The structure with another in the place of each leaf."""
        return PyTreeDef(self.spec.compose(_spec(inner)))

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The pytree with these leaves."""
        return self.spec.unflatten(leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What a tree has in the places of the leaves.

        Raises:
            PytreeError: the tree begins with another structure.
        """
        try:
            found = self.spec.flatten_up_to(tree)
        except ValueError as error:
            raise PytreeError(_difference(self.spec, tree) or str(error)) from None
        difference = _difference(self.spec, tree) if may_have_dicts(self.spec) else ""
        if difference:  # one kind of dict is another
            raise PytreeError(difference)
        return found

    def node_data(self) -> tuple[type, Any] | None:
        """The class of the container, and what it is beside its children; None of a leaf."""
        return None if self.spec.is_leaf() else (self.spec.type or type(None), _data(self.spec))

    def walk(
        self, f_node: Callable[[Any, Any], Any], f_leaf: Callable[[Any], Any] | None, leaves: Iterable[Any]
    ) -> Any:
        """Fold the pytree with these leaves: of each leaf `f_leaf`, of each container `f_node` of what its children
        gave, a tuple, and of what it holds beside them."""
        given = iter(leaves)

        def visit(spec: optree.PyTreeSpec) -> Any:
            if spec.is_leaf():
                leaf = next(given)
                return leaf if f_leaf is None else f_leaf(leaf)
            data = spec.type if spec.kind == _Kind.NAMEDTUPLE else _data(spec)
            return f_node(tuple(visit(child) for child in spec.children()), data)

        return visit(self.spec)


def _spec(treedef: Any) -> Any:
    return treedef.spec if type(treedef) is PyTreeDef else treedef


def _data(spec: optree.PyTreeSpec) -> Any:
    """What the outermost container is beside its children: the keys of a dict, the metadata of a registered class."""
    state: Any = spec.__getstate__()  # the nodes, each after its children, as tuples whose third element it is
    held = state[0][-1][2]
    if spec.kind == _Kind.ORDEREDDICT:
        return tuple(held)
    if spec.kind == _Kind.DEFAULTDICT:
        return held[0], tuple(held[1])
    return None if spec.kind == _Kind.NAMEDTUPLE else held


def _text(spec: optree.PyTreeSpec) -> str:
    if spec.is_leaf():
        return "*"
    kind, children = spec.kind, [_text(child) for child in spec.children()]
    if kind == _Kind.NONE:
        return "None"
    if kind in _BRACKETS:
        first, last = _BRACKETS[kind]
        return first + ", ".join(children) + ("," if kind == _Kind.TUPLE and len(children) == 1 else "") + last
    if kind == _Kind.DICT:
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(_data(spec), children, strict=True)) + "}"
    name = getattr(spec.type, "__name__", "")
    named = f"namedtuple[{name}]" if kind == _Kind.NAMEDTUPLE else f"{name}[{_data(spec)}]"
    return f"CustomNode({named}, [{', '.join(children)}])"


def _difference(spec: optree.PyTreeSpec, x: Any) -> str:
    """Where a tree first departs from a structure, in JAX's words; nothing if it does not."""
    if spec.is_leaf():
        return ""
    found = _outermost_difference(spec, x)
    if found or x is None:
        return found
    children = tree_util.flatten_one_level(x)[0]
    pairs = zip(spec.children(), children, strict=True)
    return next(filter(None, (_difference(child, part) for child, part in pairs)), "")


def _outermost_difference(spec: optree.PyTreeSpec, x: Any) -> str:
    wanted, kind = spec.kind, spec.type
    if wanted == _Kind.NONE:
        return "" if x is None else f"Expected None, got {x!r}."
    if wanted in _BRACKETS or wanted == _Kind.DICT:
        assert kind is not None
        if type(x) is not kind:
            return f"Expected {kind.__name__}, got {x!r}."
        if wanted == _Kind.DICT:
            keys = _data(spec)
            is_same = set(keys) == set(x)
            return "" if is_same else f"Dict key mismatch; expected keys: {keys}; present keys: {sorted(x, key=repr)}."
        sizes = f"{len(x)} != {spec.num_children}; {kind.__name__}: {x!r}"
        return "" if len(x) == spec.num_children else f"{kind.__name__.capitalize()} arity mismatch: {sizes}."
    if wanted == _Kind.NAMEDTUPLE:
        if not (isinstance(x, tuple) and hasattr(x, "_fields")):
            return f"Expected named tuple, got {x!r}."
        return "" if type(x) is kind else f"Named tuple type mismatch: expected type: {kind}, tuple: {x!r}."
    if type(x) is not kind:
        return f"Custom node type mismatch: expected type: {kind}, value: {x!r}."
    own, other = _data(spec), _data(tree_util.tree_structure(x))
    return "" if own == other else f"Mismatch custom node data: {own} != {other}; value: {x!r}."


# --- the functions of `jax.tree_util` that give or take structures ----------------------------------------------------


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves, in order, and the structure without them."""
    leaves, spec = pytrees.flatten(tree, is_leaf, pytrees.NAMESPACE)
    return leaves, PyTreeDef(spec)


def tree_structure(tree: Any, is_leaf: Any = None) -> PyTreeDef:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_flatten_with_path(
    tree: Any, is_leaf: Any = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[Any, Any]], PyTreeDef]:
    """The leaves, each with the keys that lead to it, and the structure."""
    pairs, spec = tree_util.tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    return pairs, PyTreeDef(spec)


def tree_transpose(outer_treedef: Any, inner_treedef: Any, pytree_to_transpose: Any) -> Any:
    """A tree of trees turned inside out."""
    return tree_util.tree_transpose(_spec(outer_treedef), _spec(inner_treedef), pytree_to_transpose)


def tree_unflatten(treedef: Any, leaves: Iterable[Any]) -> Any:
    """The tree of that structure with those leaves."""
    return tree_util.tree_unflatten(_spec(treedef), leaves)


def treedef_children(treedef: Any) -> list[PyTreeDef]:
    """The structures of the immediate children."""
    return [PyTreeDef(child) for child in tree_util.treedef_children(_spec(treedef))]


def treedef_is_leaf(treedef: Any) -> bool:
    """Whether a structure has one node: it is a leaf, None or an empty container."""
    spec = _spec(treedef)
    return tree_util.treedef_is_leaf(spec) or spec.num_nodes == 1


def treedef_tuple(treedefs: Iterable[Any]) -> PyTreeDef:
    """The structure of a tuple of trees of those structures."""
    given: Any = map(_spec, treedefs) if isinstance(treedefs, Iterable) else treedefs  # pyright: ignore[reportUnnecessaryIsInstance]
    return PyTreeDef(tree_util.treedef_tuple(given))
