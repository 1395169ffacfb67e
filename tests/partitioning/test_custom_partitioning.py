"""Functions that say themselves what each device of a mesh computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, ClosedOverTracerError, ShapeError
from tinyxla.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)

P = tx.P
X = np.arange(32, dtype=np.float32).reshape(8, 4)


pytestmark = pytest.mark.usefixtures("eight_devices")


def _put(*spec: Any, x: Any = X) -> Any:
    return tx.device_put(x, tx.NamedSharding(tx.make_mesh((4, 2), ("x", "y")), P(*spec)))


def _specs(tree: Any) -> list[Any]:
    return [tuple(x.sharding.spec) for x in tx.tree.leaves(tree)]


def _double(seen: list[Any], **rules: Any) -> custom_partitioning:
    """Twice the operand, and of parts three times, so that one sees which it was."""

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        seen.append((_specs(arguments), _specs(result)))
        return mesh, lambda x: 3 * x, result.sharding, (arguments[0].sharding,)

    double = custom_partitioning(lambda x: 2 * x)
    double.def_partition(partition, **rules)
    return double


WAYS: dict[str, Any] = {
    "alone": lambda f: f,
    "amid others": lambda f: lambda x: f(x + 0) + 0,
    "in a compiled function": lambda f: lambda x: tx.jit(f)(x),
    "in a loop": lambda f: lambda x: tx.lax.fori_loop(0, 1, lambda k, x: f(x), x),
    "in a branch": lambda f: lambda x: tx.lax.cond(x[0, 0] == 0, f, lambda x: x, x),
}


@pytest.mark.parametrize("way", WAYS)
def test_devices_compute_what_partition_says(way: str) -> None:
    seen: list[Any] = []
    found = tx.jit(WAYS[way](_double(seen, sharding_rule="... -> ...")))(_put("x", "y"))
    np.testing.assert_array_equal(found, 3 * X)
    assert seen == [([("x", "y")], [("x", "y")])]
    assert found.sharding.spec == P("x", "y")


@pytest.mark.parametrize(
    "use",
    [
        lambda f: f(_put("x")),
        lambda f: tx.jit(f)(X),
        lambda f: tx.jit(f, device=tx.devices()[1])(X),
        lambda f: tx.jit(tx.vmap(f))(_put("x")),
        lambda f: tx.jit(tx.grad(lambda x: f(x).sum()))(_put("x")) * X,
        lambda f: tx.jit(lambda x: tx.jvp(f, (x,), (x,))[1])(_put("x")),
    ],
)
def test_without_a_mesh_and_under_transformations_it_is_the_function(use: Any) -> None:
    seen: list[Any] = []
    np.testing.assert_array_equal(use(_double(seen, sharding_rule="... -> ...")), 2 * X)
    assert not seen


def test_arrays_are_brought_to_the_shardings_that_partition_returns() -> None:
    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        rows, columns = (tx.NamedSharding(mesh, spec) for spec in (P("x", "y"), P("y")))
        return mesh, lambda a, b: tx.lax.psum(a @ b, "y"), tx.NamedSharding(mesh, P("x")), (rows, columns)

    product = custom_partitioning(lambda a, b: a @ b)
    product.def_partition(partition, sharding_rule="i j, j k -> i k", reduction_factors=("j",))
    for specs in ((("x", "y"), ("y",)), ((), (None, "x")), (("y", "x"), ())):
        found = tx.jit(product)(_put(*specs[0]), _put(*specs[1], x=X.T.copy()))
        np.testing.assert_array_equal(found, X @ X.T)


@pytest.mark.parametrize(
    ("rule", "of", "to"),
    [
        ("i j -> j i", ("x", "y"), ("y", "x")),
        ("(a b) j -> a b j", ("x", "y"), ("x", None, "y")),
        (SdyShardingRule((("i", "j"),), (("i", "j"),), need_replication_factors=("j",)), ("x", "y"), ("x", "y")),
        (SdyShardingRule((ArrayMapping(BATCHING, "j"),), ((BATCHING,),)), ("x", "y"), ("x",)),
        (lambda mesh, arguments, result: "i j -> i j k", ("x", "y"), ("x", "y", None)),
        (lambda mesh, arguments, result: ("(i k) j -> i j", {"k": 2}), ("x", "y"), ("x", "y")),
        (None, ("x", "y"), ()),
    ],
)
def test_sharding_rules_say_how_results_are_split(rule: Any, of: Any, to: Any) -> None:
    shapes = {("y", "x"): (4, 8), ("x", None, "y"): (4, 2, 4), ("x",): (8,), ("x", "y", None): (8, 4, 1)}
    shape = shapes.get(to, (4, 4) if callable(rule) else (8, 4))
    seen: list[Any] = []

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        seen.append(_specs(result))
        whole = tx.NamedSharding(mesh, P())
        return mesh, lambda x: jnp.resize(x, shape), whole, (whole,)

    f = custom_partitioning(lambda x: jnp.resize(x, shape))
    f.def_partition(partition, sharding_rule=rule)
    np.testing.assert_array_equal(tx.jit(f)(_put(*of)), np.resize(X, shape))
    assert seen == [[(*to, *[None] * (len(shape) - len(to)))]]


def test_shardings_are_inferred_by_functions_without_a_sharding_rule() -> None:
    def infer(mesh: Any, arguments: Any, result: Any) -> Any:
        assert result.shape == (8, 4)
        return tx.NamedSharding(mesh, P(*arguments[0].sharding.spec[:1]))

    seen: list[Any] = []
    found = tx.jit(_double(seen, infer_sharding_from_operands=infer))(_put("x"))
    assert (found.sharding.spec, seen) == (P("x"), [([("x", None)], [("x", None)])])
    whole = lambda mesh, result: tx.NamedSharding(mesh, P("x"))  # noqa: E731
    tx.jit(_double(seen, infer_sharding_from_operands=infer, propagate_user_sharding=whole))(_put("x"))
    assert seen[1:] == seen[:1]


def test_static_arguments_and_pytrees() -> None:
    def partition(factor: int, mesh: Any, arguments: Any, result: Any) -> Any:
        sharding = arguments[0]["b"].sharding
        parts = lambda x: (factor * x["a"], x["b"])  # noqa: E731
        return mesh, parts, [sharding] * 2, ({"a": sharding, "b": sharding},)

    f = custom_partitioning(lambda x, factor=2: (factor * x["a"], x["b"]), static_argnums=(1,))
    f.def_partition(partition, sharding_rule="i j, i j -> i j, i j")
    a, b = tx.jit(lambda x: f(x, factor=5))({"a": _put(), "b": _put("x")})
    np.testing.assert_array_equal(a, 5 * X)
    np.testing.assert_array_equal(b, X)
    assert a.sharding.spec == P("x")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("i j", "'->', and those of results"),
        ("i j -> i $", "'\\$' begins with no factor"),
        ("(i j -> i j", "parentheses do not match"),
        ("(i) j -> i j", "at least two factors"),
        ("i ... -> i", "BATCHING stands before"),
        ("(a b) j -> j", "pass its size as a="),
        ("i j k -> i j", "has 3 dimensions for number 0 of the operands, which is f32\\[8,4\\]"),
        ("i j, i -> i j", "has 2 operands, but the function has 1"),
        ("... i -> ... i j", "stands for 1 leading dimensions, but for 0 of number 0 of the results"),
        (3, "is text or an SdyShardingRule, but got 3"),
    ],
)
def test_rules_that_are_wrong(rule: Any, words: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=words):
        tx.jit(_double([], sharding_rule=rule))(_put("x"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"i": 2}, "'i', which is in no compound factor"),
        ({"reduction_factors": ("k",)}, "reduction_factors has 'k', which is no factor"),
        ({"reduction_factors": ("i",), "permutation_factors": ("i",)}, "is in reduction_factors, and again in perm"),
    ],
)
def test_factors_that_are_wrong(arguments: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        SdyShardingRule((("i",),), (("i",),), **arguments)
    with pytest.raises(ArgumentError, match=words):
        _double([], sharding_rule="i -> i", **arguments)


def test_compound_factors_have_the_size_of_their_dimension() -> None:
    rule = SdyShardingRule(((CompoundFactor("a", "b"), "j"),), (("b", "j"),), a=3)
    f = custom_partitioning(lambda x: x[:4])
    f.def_partition(lambda *args: args, sharding_rule=rule)
    with pytest.raises(ShapeError, match="size 8, but its factors \\('a', 'b'\\) have the sizes \\(3, 4\\)"):
        tx.jit(f)(_put("x"))


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda mesh, s: (mesh, lambda x: x, s, (s,)), None),
        (lambda mesh, s: (mesh, lambda x: x[:1], s, (s,)), r"have the shapes f32\[2,4\], but .* gives f32\[1,4\]"),
        (lambda mesh, s: (mesh, lambda x: (x, x), s, (s,)), "but the function of parts gives f32"),
        (lambda mesh, s: (mesh, lambda x: x, s, ()), "for the arguments, returns a NamedSharding for each of 1 arrays"),
        (lambda mesh, s: (mesh, lambda x: x, None, (s,)), "for the results, returns a NamedSharding"),
        (lambda mesh, s: (None, lambda x: x, s, (s,)), "returns the mesh that it got"),
        (lambda mesh, s: (mesh, lambda x: x), "returns the mesh, the function of parts, and the shardings"),
    ],
)
def test_what_partition_returns_is_checked(returned: Any, words: str | None) -> None:
    f = custom_partitioning(lambda x: x)
    f.def_partition(lambda mesh, arguments, result: returned(mesh, arguments[0].sharding), sharding_rule="i j -> i j")
    if words is None:
        np.testing.assert_array_equal(tx.jit(f)(_put("x")), X)
        return
    with pytest.raises((ArgumentError, ShapeError), match=words):
        tx.jit(f)(_put("x"))


def test_calls_that_are_wrong() -> None:
    f = custom_partitioning(lambda x, **options: x)
    with pytest.raises(ArgumentError, match=r"have positions, but \['y'\] have none"):
        f(X, y=1)
    g = custom_partitioning(lambda x, n: x, static_argnums=(1,))
    with pytest.raises(ArgumentError, match="a static argument of custom_partitioning is a Python value"):
        tx.jit(g)(X, X)

    def outer(x: Any) -> Any:
        h = custom_partitioning(lambda y: x + y)
        h.def_partition(lambda *args: args, sharding_rule="i j -> i j")
        return h(x)

    with pytest.raises(ClosedOverTracerError, match="uses a traced array from around"):
        tx.jit(outer)(_put("x"))
