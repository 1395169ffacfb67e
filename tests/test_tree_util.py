"""Pytrees: values and structures as JAX gives them, registered classes, and errors that name the place."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optree
import pytest
from hypothesis import given, strategies as st
from jax import tree_util as jax_trees

import tinyxla
from tinyxla import flatten_util, tree, tree_util
from tinyxla.errors import ArgumentError, DTypeError, PytreeError
from tinyxla.tracing import pytrees


class Point(NamedTuple):
    x: Any
    y: Any


class Size(NamedTuple):
    x: Any
    y: Any


TREES: list[Any] = [
    1,
    None,
    (),
    [1, (2, 3)],
    {"b": 2, "a": [1, {"c": None, "d": (4,)}]},
    Point(1, [2, Point(3, None)]),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {"k": 1}),
    {3: 1, 1: 2},
]

values = st.one_of(st.integers(), st.none())
trees = st.recursive(
    values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
        st.builds(Point, inner, inner),
    ),
    max_leaves=12,
)


# --- against JAX ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", TREES, ids=repr)
def test_leaves_and_paths_are_those_of_jax(example: Any) -> None:
    assert tree_util.tree_leaves(example) == jax_trees.tree_leaves(example)
    ours = [(tree_util.keystr(path), leaf) for path, leaf in tree_util.tree_leaves_with_path(example)]
    theirs = [(jax_trees.keystr(path), leaf) for path, leaf in jax_trees.tree_leaves_with_path(example)]
    assert ours == theirs


@given(trees)
def test_unflatten_undoes_flatten(example: Any) -> None:
    leaves, treedef = tree_util.tree_flatten(example)
    assert leaves == jax_trees.tree_leaves(example)
    again = tree_util.tree_unflatten(treedef, leaves)
    assert again == example
    assert type(again) is type(example)
    assert tree_util.tree_structure(again) == treedef
    assert treedef.num_leaves == len(leaves)


@given(trees)
def test_map_is_that_of_jax(example: Any) -> None:
    assert tree_util.tree_map(lambda x: [x], example) == jax_trees.tree_map(lambda x: [x], example)
    assert tree_util.tree_map(operator.add, example, example) == jax_trees.tree_map(operator.add, example, example)


@given(trees)
def test_simple_names_are_those_of_jax(example: Any) -> None:
    ours = [tree_util.keystr(p, simple=True, separator="/") for p, _ in tree_util.tree_leaves_with_path(example)]
    theirs = [jax_trees.keystr(p, simple=True, separator="/") for p, _ in jax_trees.tree_leaves_with_path(example)]
    assert ours == theirs


@given(st.lists(trees, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
def test_trees_that_are_like_the_last_one_are_flattened_alike(several: list[Any], order: list[int]) -> None:
    flatten = pytrees.Flattener()
    for example in [*TREES, *TREES, *(several[k % len(several)] for k in order)]:
        leaves, treedef = pytrees.flatten((example, 1.0))
        found, like = flatten((example, 1.0))
        if all(map(optree.tree_is_leaf, found)):  # else what stood at the place of a leaf is left whole
            assert (found, like) == (leaves, treedef)
        else:
            assert [x for part in found for x in pytrees.leaves(part)] == leaves


def test_a_container_in_the_place_of_an_argument_is_seen() -> None:
    add = tinyxla.jit(lambda tree: sum(tree_util.tree_leaves(tree)))
    one = tinyxla.numpy.ones(())
    dicts = {"a": one, "b": one}, {"a": one, "b": [one, one]}, {"a": one, "b": None}, {"a": one, "c": one}
    tuples = (one, one), Point(one, one), Point(one, Size(one, one)), Size(one, one), Size(one, None)
    for example in (*dicts, *tuples) * 3:
        assert add(example) == len(tree_util.tree_leaves(example))


def test_map_goes_on_below_leaves_of_the_first_tree() -> None:
    assert tree_util.tree_map(lambda x, y: (x, y), [1, 2], [3, {"a": 4}]) == [(1, 3), (2, {"a": 4})]


def test_is_leaf() -> None:
    is_pair = lambda x: isinstance(x, tuple)  # noqa: E731
    assert tree_util.tree_leaves([(1, 2), 3], is_leaf=is_pair) == [(1, 2), 3]
    assert tree_util.tree_map(type, [(1, 2), None], is_leaf=lambda x: x is None or is_pair(x)) == [tuple, type(None)]


def test_folds() -> None:
    example = {"a": [1, 2], "b": 3}
    assert tree_util.tree_reduce(operator.add, example) == 6
    assert tree_util.tree_reduce(operator.sub, example, 10) == 4
    assert tree_util.tree_reduce_associative(operator.add, example) == 6
    assert tree_util.tree_reduce_associative(operator.add, {}, identity=0) == 0
    assert tree_util.tree_reduce_associative(lambda x, y: f"({x}{y})", [1, 2, 3, 4, 5]) == "(((12)(34))5)"
    assert tree_util.tree_all({"a": True, "b": [1]})
    assert not tree_util.tree_all([True, (0,)])
    with pytest.raises(tree_util.PytreeError, match="no leaves; give an initializer"):
        tree_util.tree_reduce(operator.add, ())


def test_transpose() -> None:
    outer, inner = tree_util.tree_structure([0, 0]), tree_util.tree_structure({"a": 0, "b": (0, 0)})
    given = [{"a": 1, "b": (2, 3)}, {"a": 4, "b": (5, 6)}]
    turned = {"a": [1, 4], "b": ([2, 5], [3, 6])}
    assert tree_util.tree_transpose(outer, inner, given) == turned
    assert tree_util.tree_transpose(outer, None, given) == turned
    with pytest.raises(tree_util.PytreeError, match="an inner tree has the structure"):
        tree_util.tree_transpose(outer, tree_util.tree_structure([0]), given)
    with pytest.raises(tree_util.PytreeError, match="does not begin as the outer"):
        tree_util.tree_transpose(tree_util.tree_structure((0, 0)), inner, given)


def test_broadcast() -> None:
    assert tree_util.tree_broadcast(1, {"a": 0, "b": [0, None]}) == {"a": 1, "b": [1, None]}
    with pytest.raises(tree_util.PytreeError, match="At the root the first list has 2 elements, the other 1"):
        tree_util.tree_broadcast([1, 2], [0])


def test_structures() -> None:
    treedef = tree_util.tree_structure([1, (2, 3)])
    assert [tree_util.treedef_is_leaf(t) for t in tree_util.treedef_children(treedef)] == [True, False]
    assert tree_util.treedef_tuple([treedef]) == tree_util.tree_structure(([1, (2, 3)],))
    assert tree_util.all_leaves([1, "a"])
    assert not tree_util.all_leaves([1, []])


def test_short_names() -> None:
    for name in tree.__all__:
        assert hasattr(jax.tree, name)
        if name != "static":
            assert getattr(tree, name) is getattr(tree_util, f"tree_{name}")


# --- classes ----------------------------------------------------------------------------------------------------------


@tree_util.register_pytree_node_class
class Scaled:
    def __init__(self, value: Any, scale: float) -> None:
        self.value, self.scale = value, scale

    def tree_flatten(self) -> tuple[tuple[Any], float]:
        return (self.value,), self.scale

    @classmethod
    def tree_unflatten(cls, scale: float, children: Any) -> Scaled:
        return cls(*children, scale)


@tree_util.register_pytree_with_keys_class
class Named:
    def __init__(self, value: Any) -> None:
        self.value = value

    def tree_flatten_with_keys(self) -> Any:
        return ((tree_util.GetAttrKey("value"), self.value),), None

    @classmethod
    def tree_unflatten(cls, rest: None, children: Any) -> Named:
        return cls(*children)


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = tree.static(default="layer")


@tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Options:
    width: int


def test_registered_classes() -> None:
    doubled = tree_util.tree_map(lambda x: 2 * x, [Scaled(1, 0.5), Named((2, 3))])
    assert (doubled[0].value, doubled[0].scale, doubled[1].value) == (2, 0.5, (4, 6))
    paths = [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path([Scaled(1, 0.5), Named((2, 3))])]
    assert paths == ["[0][<flat index 0>]", "[1].value[0]", "[1].value[1]"]
    with pytest.raises(tinyxla.errors.ConcretizationError, match=r"it depends on the argument model\.value\[1\]\."):
        tinyxla.jit(lambda model: bool(model.value[1]))(Named((2, 3)))
    assert tree_util.tree_structure(Scaled(1, 2.0)) != tree_util.tree_structure(Scaled(1, 3.0))


def test_register_a_named_tuple_gives_no_warning() -> None:
    class Pair(NamedTuple):
        value: Any
        name: str

    tree_util.register_pytree_node(Pair, lambda x: ((x.value,), x.name), lambda name, x: Pair(*x, name))
    assert tree_util.tree_leaves(Pair(1, "first")) == [1]
    values = tinyxla.jit(lambda pair: pair.value)
    assert [float(values(Pair(float(k), "first"))) for k in range(3)] == [0, 1, 2]


def test_dataclasses() -> None:
    layer = Layer(1, [2, 3], "first")
    assert tree_util.tree_leaves(layer) == [1, 2, 3]
    assert tree_util.tree_map(lambda x: -x, layer) == Layer(-1, [-2, -3], "first")
    assert [tree_util.keystr(p) for p, _ in tree_util.tree_leaves_with_path(layer)] == [
        ".weight",
        ".bias[0]",
        ".bias[1]",
    ]
    assert tree_util.tree_leaves([Options(3), 1]) == [1]
    assert tree_util.tree_structure(Options(3)) != tree_util.tree_structure(Options(4))

    @dataclasses.dataclass
    class Other:
        a: int
        b: int

    with pytest.raises(ArgumentError, match=r"Other has the fields \['a', 'b'\].*dropped: {'b'}"):
        tree_util.register_dataclass(Other, data_fields=["a"], meta_fields=[])
    with pytest.raises(ArgumentError, match="given together"):
        tree_util.register_dataclass(Other, data_fields=["a"])
    with pytest.raises(ArgumentError, match=r"int'> is not a dataclass"):
        tree_util.register_dataclass(int)
    with pytest.raises(tree_util.PytreeError, match="Layer is registered already"):
        tree_util.register_dataclass(Layer)


def test_partial_is_a_container() -> None:
    partial = tree_util.Partial(max, 3, key=None)
    assert tree_util.tree_leaves(partial) == [3]
    again = tree_util.tree_map(lambda x: x + 1, partial)
    assert isinstance(again, tree_util.Partial)
    assert again.func is max
    assert again(2) == 4


def test_registered_classes_pass_through_transformations() -> None:
    layer = Layer(np.float32(2.0), np.float32(1.0), "first")
    gradient = tinyxla.grad(lambda p, x: p.weight * x * x + p.bias)(layer, 3.0)
    assert gradient.name == "first"
    assert (float(gradient.weight), float(gradient.bias)) == (9.0, 1.0)
    compiled = tinyxla.jit(lambda p: tree_util.tree_map(lambda x: x + 1, p))(layer)
    assert (float(compiled.weight), compiled.name) == (3.0, "first")


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ({"a": 1}, {"b": 1}, r"At the root the other dict lacks the keys \['a'\] and has the further keys \['b'\]"),
        ([1, (2, 3)], [1, (2,)], r"At \[1\] the first tuple has 2 elements, the other 1\."),
        ([1, None], [1, 2], r"At \[1\] the first has None, the other has a leaf of type int: 2\."),
        (
            [None, {"x": (2,)}],
            [None, {"x": 2}],
            r"At \[1\]\['x'\] the first has a tuple, the other has a leaf",
        ),
        ((1,), [1], "At the root the first has a tuple, the other has a container of type list"),
        ({"a": (1,)}, collections.OrderedDict(a=(1,)), "a dict, the other has a container of type OrderedDict"),
        ([Point(1, 2)], [Point(1, (2,)).x], r"At \[0\] the first has a Point, the other has a leaf of type int"),
        ([Scaled(1, 0.5)], [Scaled(1, 0.25)], r"At \[0\] the two Scaled differ in what is not a leaf: 0.5 and 0.25"),
    ],
)
def test_mismatches_name_the_place(first: Any, other: Any, message: str) -> None:
    for function in (tree_util.tree_map, tree_util.tree_map_with_path):
        with pytest.raises(tree_util.PytreeError, match=message):
            function(lambda *args: None, first, other)
        with pytest.raises(ValueError, match=function.__name__):
            function(lambda *args: None, first, other)


def test_wrong_number_of_leaves() -> None:
    with pytest.raises(tree_util.PytreeError, match="has 2 leaves, but 1 were given"):
        tree_util.tree_unflatten(tree_util.tree_structure([1, 2]), [1])


def test_errors_of_the_mapped_function_pass() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        tree_util.tree_map(fail, [1])


def test_names_of_children_are_found_for_paths_alone() -> None:
    asked: list[str] = []

    class Pair:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    def with_keys(pair: Pair) -> Any:
        asked.append("keys")
        return [(tree_util.GetAttrKey("x"), pair.x), (tree_util.GetAttrKey("y"), pair.y)], None

    def plain(pair: Pair) -> Any:
        return (pair.x, pair.y), None

    tree_util.register_pytree_node(Pair, plain, lambda _, children: Pair(*children), with_keys)
    tree = [Pair(1, {"a": 2}), 3]
    tree_util.tree_map(lambda x, y: x + y, tree, tree)
    assert asked == []
    pairs, treedef = tree_util.tree_flatten_with_path(tree)
    assert [tree_util.keystr(path) for path, _ in pairs] == ["[0].x", "[0].y['a']", "[1]"]
    assert treedef == tree_util.tree_structure(tree)


def test_is_leaf_is_asked_once_for_each_node_of_a_tree_with_paths() -> None:
    asked: list[Any] = []

    def is_leaf(node: Any) -> bool:
        asked.append(node)
        return isinstance(node, tuple)

    pairs, treedef = tree_util.tree_flatten_with_path([(1, 2), {"a": None}, 3], is_leaf)
    assert [(tree_util.keystr(path), leaf) for path, leaf in pairs] == [("[0]", (1, 2)), ("[2]", 3)]
    assert asked == [[(1, 2), {"a": None}, 3], (1, 2), {"a": None}, None, 3]
    assert treedef == tree_util.tree_structure([0, {"a": None}, 3])


def test_dicts_of_different_kinds_differ_at_any_depth() -> None:
    first, other = [1, (2, ({"a": 3}, 4))], [1, (2, (collections.OrderedDict(a=3), 4))]
    with pytest.raises(PytreeError, match=r"At .*the first has a dict"):
        tree_util.tree_map(lambda x, y: x, first, other)


def test_children_may_be_a_sequence_that_only_has_getitem() -> None:
    class Blocks:
        def __init__(self, blocks: Any) -> None:
            self.blocks = list(blocks)

        def __getitem__(self, k: int) -> Any:
            return self.blocks[k]

    tree_util.register_pytree_node(Blocks, lambda x: (x, None), lambda _, blocks: Blocks(blocks))  # type: ignore[arg-type]
    assert tree_util.tree_leaves(tree_util.tree_map(lambda x: 2 * x, Blocks([1, (2, 3)]))) == [2, 4, 6]


def test_flatten_function_that_gives_no_pair_is_an_error_with_its_result() -> None:
    class Three:
        pass

    tree_util.register_pytree_node(Three, lambda _: (2, 3, 4), lambda _, children: Three())  # type: ignore[arg-type]
    with pytest.raises(PytreeError, match=r"must return a pair .*, but returned \(2, 3, 4\)"):
        tree_util.tree_leaves(Three())


def test_partial_of_a_partial_keeps_the_arguments_of_that_out_of_the_leaves() -> None:
    inner = functools.partial(pow, 2)
    outer = tree_util.Partial(inner, 3)
    assert tree_util.tree_leaves(outer) == [3]
    assert outer() == 8
    assert tree_util.tree_structure(outer) == tree_util.tree_structure(tree_util.Partial(inner, 5))


def test_transpose_of_containers_that_keep_the_structure_of_what_is_in_them() -> None:
    class Kept:
        def __init__(self, tree: Any) -> None:
            self.tree = tree

    tree_util.register_pytree_node(Kept, lambda k: tree_util.tree_flatten(k.tree), lambda t, xs: Kept(_kept(t, xs)))
    outer, inner = tree_util.tree_structure(Kept({"a": 1, "b": 2})), tree_util.tree_structure([1, 2])
    found = tree_util.tree_transpose(outer, inner, Kept({"a": [3, 4], "b": [5, 6]}))
    assert [k.tree for k in found] == [{"a": 3, "b": 5}, {"a": 4, "b": 6}]


def _kept(treedef: Any, children: Any) -> Any:
    return tree_util.tree_unflatten(treedef, children)


def test_unravel_of_leaves_of_one_type_keeps_the_type_of_the_vector() -> None:
    tree = {"a": tinyxla.numpy.ones(2), "b": tinyxla.numpy.zeros((2, 2))}
    vector, unravel = flatten_util.ravel_pytree(tree)
    assert unravel(vector > 0)["b"].dtype == bool
    assert unravel == flatten_util.ravel_pytree(tree)[1]
    _, of_several_types = flatten_util.ravel_pytree([tree, tinyxla.numpy.arange(3)])
    with pytest.raises(DTypeError, match="takes a vector of float32, but got bool; the arrays have several types"):
        of_several_types(tinyxla.numpy.ones(9, bool))


@pytest.mark.parametrize(
    "call",
    [
        lambda: tree_util.treedef_children(3),  # type: ignore[arg-type]
        lambda: tree_util.treedef_is_leaf(None),  # type: ignore[arg-type]
        lambda: tree_util.treedef_tuple(3),  # type: ignore[arg-type]
        lambda: tree_util.treedef_tuple([3]),  # type: ignore[list-item]
        lambda: tree_util.tree_unflatten(3, [1]),  # type: ignore[arg-type]
        lambda: tree_util.tree_transpose(3, None, 1),  # type: ignore[arg-type]
        lambda: tree_util.register_pytree_node(3, None, None),  # type: ignore[arg-type]
        lambda: tree_util.register_pytree_node(bytes, 3, 4),  # type: ignore[arg-type]
        lambda: tree_util.register_pytree_with_keys(3, None, None),  # type: ignore[arg-type]
        lambda: tree_util.register_pytree_node_class(bytes),
        lambda: tree_util.register_pytree_with_keys_class(bytes),
        lambda: tree_util.register_dataclass(3, [], []),  # type: ignore[type-var]
        lambda: tree_util.register_static(3),  # type: ignore[type-var]
    ],
)
def test_what_is_no_structure_or_class_is_an_error_that_names_the_function(call: Any) -> None:
    with pytest.raises(PytreeError, match=r"(treedef_|tree_|register_)\w+( takes| of bytes takes|: bytes must have)"):
        call()


WRONG: Any = 3


@pytest.mark.parametrize(
    ("message", "function"),
    [
        ("tree_flatten: is_leaf must be a function", lambda: tree.leaves([1], is_leaf=WRONG)),
        ("tree_flatten_with_path: is_leaf must be a function", lambda: tree.leaves_with_path([1], is_leaf=WRONG)),
        ("takes an iterable of values", lambda: tree_util.all_leaves(WRONG)),
        ("takes a class", lambda: tree_util.is_tree_node(WRONG)),
        ("takes a tuple of keys", lambda: tree_util.keystr(WRONG)),
        ("the separator must be a text", lambda: tree_util.keystr((), separator=WRONG)),
    ],
)
def test_arguments_of_another_kind_raise(message: str, function: Callable[[], Any]) -> None:
    with pytest.raises(PytreeError, match=message):
        function()
