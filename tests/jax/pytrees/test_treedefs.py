"""Structures of pytrees under the hook are those of JAX: their text, what nodes hold, what they say of other trees."""

from __future__ import annotations

import contextlib
import io
import textwrap

import pytest

from tests.jax.test_jax_hook import lines as printed

jax = pytest.importorskip("jax")

CLASSES = """
    import collections, pickle
    import jax
    from jax import tree_util

    Point = collections.namedtuple("Point", "x y")

    class Box:
        def __init__(self, held, label):
            self.held, self.label = held, label

        def __repr__(self):
            return f"Box({self.held})"

    tree_util.register_pytree_node(Box, lambda b: ((b.held,), b.label), lambda label, held: Box(*held, label))
    """
OF_EACH_KIND = """
    trees = [1, None, (), (1,), [1, (2, None)], {"b": 2, "a": [1]}, Point(1, {"c": 2}), [Box((1, 2), "here")]]
    trees += [collections.OrderedDict(b=1, a=2), collections.defaultdict(list, k=1)]
    trees += [tree_util.Partial(print, 1, end="")]
    for tree in trees:
        treedef = jax.tree.structure(tree)
        data = treedef.node_data()
        print(treedef, data and (data[0].__name__, data[1]), treedef.num_leaves, treedef.num_nodes, treedef.children())
        leaves = list(range(treedef.num_leaves))
        treedef.walk(lambda children, data: print(children, data) or "node", lambda leaf: 10 * leaf, leaves)
    """
OF_OTHERS = """
    pairs = [([1, 2], [3]), ((1,), (2, 3)), ((1,), [2]), ({"a": 1}, {"b": 2}), ({"a": (1,)}, {"a": 2}), (None, [2])]
    pairs += [([Point(1, 2)], [(1, 2)]), ([(1, 2)], [Point(1, 2)]), (collections.OrderedDict(b=1), {"b": 1})]
    pairs += [(collections.OrderedDict(b=1), collections.OrderedDict(c=1))]
    for tree, other in pairs:
        try:
            jax.tree.structure(tree).flatten_up_to(other)
        except ValueError as error:
            print(str(error).splitlines()[0])
    """
OPERATIONS = """
    tree = {"b": Point(3, None), "a": [1, 2]}
    leaves, treedef = jax.tree.flatten(tree)
    print(jax.tree.unflatten(treedef, leaves), treedef.unflatten(leaves), isinstance(treedef, tree_util.PyTreeDef))
    print(pickle.loads(pickle.dumps(jax.tree.structure([{"a": 1}]))))
    outer, inner = jax.tree.structure([0, 0]), jax.tree.structure({"a": 0})
    print(outer.compose(inner), jax.tree.transpose(outer, inner, [{"a": 1}, {"a": 2}]))
    print(tree_util.treedef_tuple([outer, inner]), tree_util.treedef_children(outer))
    print(*map(tree_util.treedef_is_leaf, map(jax.tree.structure, [1, [1], None, ()])))
    print(outer == jax.tree.structure([1, 2]), outer == inner)
    out_tree = jax.jit(lambda x: [x, {"a": x}]).lower(1.0).out_tree
    print(out_tree == jax.tree.structure([0, {"a": 0}]), isinstance(out_tree, tree_util.PyTreeDef))
    print(jax.tree.unflatten(out_tree, [1, 2]), jax.tree.flatten_with_path(tree)[1] == treedef)
    print(jax.tree.leaves(jax.jit(lambda x, t: x, static_argnums=1)(1.0, treedef)))
    """
ENTRIES = """
    from jax._src.tree_util import _registry
    trees = [[1, (2, 3)], (1, 2), {"b": 2, "a": [1]}, None, Box((1, 2), "here"), collections.OrderedDict(b=1, a=2)]
    for tree in trees:
        entry = _registry[type(tree)]
        children, data = entry.to_iter(tree)
        print(tuple(children), entry.from_iter(data, children), len({data}))
    try:
        _registry[int]
    except KeyError as error:
        print(error)
    """


@pytest.mark.parametrize(
    "source", [OF_EACH_KIND, OF_OTHERS, OPERATIONS, ENTRIES], ids=["kinds", "others", "operations", "entries"]
)
def test_structures_are_those_of_jax(source: str) -> None:
    program = textwrap.dedent(CLASSES) + textwrap.dedent(source)
    theirs = io.StringIO()
    with contextlib.redirect_stdout(theirs):
        exec(program, {"__name__": "__main__"})
    assert printed(program) == theirs.getvalue().splitlines()


def test_departures_from_a_prefix_are_named_by_place_and_kind() -> None:
    assert printed(
        textwrap.dedent(CLASSES)
        + textwrap.dedent("""
            from jax._src.tree_util import flatten_one_level, prefix_errors

            for prefix, tree in (
                ((1, 2), [1, 2]),
                (((1,), (2,)), ([3], [4])),
                ([[1]], [[2, 3]]),
                ({"a": 1}, {"a": 2, "b": 3}),
                ([{1: 2}], [{3: 4}]),
                ([Box([1], "here")], [Box(2, "here")]),
                (Box(1, "here"), Box(1, "there")),
                ((None, 1), (2, 1)),
                ({"{}": []}, {"{}": [{}]}),
                ((1, 2), ((11, 12, 13), 2)),
            ):
                for error in prefix_errors(prefix, tree):
                    print(str(error("in_axes")).split(chr(10))[:2])
            try:
                flatten_one_level(1)
            except ValueError as error:
                print(str(error).split("In JAX: ")[1])
            """)
    ) == [
        f"['pytree structure error: different {kind} at key path', '    in_axes{place}']"
        for kind, place in (
            ("types", ""),
            ("types", "[0]"),
            ("types", "[1]"),
            ("lengths of list", "[0]"),
            ("numbers of pytree children", ""),
            ("pytree metadata", "[0]"),
            ("types", "[0][<flat index 0>]"),
            ("pytree metadata", ""),
            ("types", "[0]"),
        )
    ] + [
        """['pytree structure error: different lengths of list at key path', "    in_axes['{}']"]""",
        "can't tree-flatten type: int",
    ]
