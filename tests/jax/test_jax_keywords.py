"""Keywords and small functions of `jax.numpy`, `jax.lax`, `jax.tree` and `jax`: each call gives what JAX gives."""

from __future__ import annotations

import array
import functools
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, DTypeError, NumberRangeError, ShapeError, TracerError

generator = np.random.default_rng(5)
X = generator.normal(size=(3, 4, 5)).astype(np.float32)
V = X[0, :, 0]
W = generator.uniform(size=(3, 4, 5)).astype(np.float32)
I = generator.integers(-6, 6, (3, 4, 5))  # noqa: E741
WITH_NAN = np.where(np.arange(60).reshape(3, 4, 5) % 17 == 3, np.nan, X)
GRID = np.arange(12).reshape(3, 4)
ZEROS = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0]], np.float32)

Call = Callable[[Any, Any], Any]  # of a package and its `numpy`

CALLS: dict[str, Call] = {
    "argsort": lambda p, n: n.argsort(n.array(X), dtype="int8"),
    "convolve": lambda p, n: n.convolve(n.array(I[0, 0]), n.array(I[0, 1]), preferred_element_type="int32"),
    "correlate": lambda p, n: n.correlate(V.astype("float16"), n.array(V), "full", preferred_element_type="float32"),
    "cov": lambda p, n: n.cov(n.array(I[0]), dtype="float32"),
    "corrcoef": lambda p, n: n.corrcoef(n.array(I[0]), dtype="float32"),
    "polymul": lambda p, n: n.polymul(n.array([0, 0, 1, 2]), n.array([0, 3]), trim_leading_zeros=True),
    "polymul of zeros": lambda p, n: n.polymul(n.zeros(2), n.array([0.0, 3.0]), trim_leading_zeros=True),
    "ravel_multi_index": lambda p, n: n.ravel_multi_index((n.array([1, 2]), n.array([0, 1])), (3, 4), dtype="uint8"),
    "trim_zeros of nothing": lambda p, n: n.trim_zeros(n.zeros((3, 2))),
    "vecdot": lambda p, n: n.vecdot(
        n.array(X.astype("float16")), X.astype("float16"), axis=0, preferred_element_type="float32", precision="highest"
    ),
    "modf": lambda p, n: n.modf(n.array(X), out=None),
    "std of uint4": lambda p, n: n.std(n.array([1, 2, 3], "uint4")),
    "round": lambda p, n: n.round(a=n.array(X), decimals=1),
    "isclose": lambda p, n: n.isclose(a=1.0, b=n.array([1.0, 2.0])),
    "average over axes in another order": lambda p, n: n.average(n.array(X), (2, 0), weights=n.array(W[:, 0].T)),
    "average returned": lambda p, n: n.average(n.array(X), (0, 2), weights=W[:, 0], keepdims=True, returned=True),
    "take_along_axis": lambda p, n: n.take_along_axis(n.arange(3.0), n.array([5, -7, -1]), 0),
    "interp": lambda p, n: n.interp(n.array([-1.0, 0.5, 5]), n.arange(3.0), n.array([0.0, 2, 3]), "extrapolate", 7.0),
    "interp right": lambda p, n: n.interp(n.array([-1.0, 5]), n.arange(3.0), V[:3], right="extrapolate"),
    "polyval of columns": lambda p, n: n.polyval(n.arange(6.0).reshape(3, 2), n.array([1.0, 2.0])),
    "polyval of columns at matrices": lambda p, n: n.polyval(n.arange(6.0).reshape(3, 2), n.ones((4, 1))),
    "byteswap": lambda p, n: n.array([1, 256], "int16").byteswap(),
    "byteswap of complex": lambda p, n: n.array([1.5], "complex64").byteswap(),
    "tri": lambda p, n: p.jit(lambda k: n.tri(3, 5, k=k))(1),
    "tri far below": lambda p, n: p.jit(lambda k: n.tri(3, 5, k=k))(-7),
    "eye": lambda p, n: p.jit(lambda k: n.eye(3, k=k))(-1),
    "asarray": lambda p, n: n.asarray(array.array("l", [1, 2])),
    "item": lambda p, n: n.array(n.array(3.0).item(())),
    "mul": lambda p, n: p.lax.mul(n.array([300], "int16"), n.array([300], "int16"), out_dtype="int32"),
    "mul of integers": lambda p, n: p.lax.mul(n.array([300], "int16"), n.array([300], "int16"), out_dtype="float32"),
    "gradient of mul": lambda p, n: p.grad(lambda x: p.lax.mul(x, x, out_dtype="float32"))(n.array(3.0, "bfloat16")),
    "exp2": lambda p, n: p.lax.exp2(3.0, accuracy=None),
    "zeros": lambda p, n: n.zeros(3, out_sharding=None),
    "size": lambda p, n: n.array(n.size(n.ones((2, 3, 4)), (0, -1))),
    "insert": lambda p, n: n.insert(n.arange(24).reshape(2, 3, 4), 1, n.arange(8).reshape(2, 4), axis=1),
    "insert a column": lambda p, n: n.insert(n.arange(6).reshape(2, 3), 1, n.array([7, 8]), axis=1),
    "insert at a vector of one": lambda p, n: n.insert(
        n.arange(6).reshape(2, 3), n.array([1]), n.array([7, 8]), axis=1
    ),
    "delete": lambda p, n: p.jit(lambda x, i: n.delete(x, i, 1, assume_unique_indices=True))(X, n.array([0, -1])),
    "dot algorithm": lambda p, n: p.lax.dot(n.ones(2), n.ones(2), precision=p.lax.DotAlgorithmPreset.F32_F32_F32),
    "dot algorithm by name": lambda p, n: n.dot(n.ones(2), n.ones(2), precision="F32_F32_F32"),
    "ds": lambda p, n: p.jit(lambda x, i: x[p.ds(i, 2), p.ds(i, 2)])(GRID, 5),
    "ds negative": lambda p, n: p.jit(lambda x, i: x[p.ds(i, 2), p.ds(i, 2)])(GRID, -2),
    "ds set": lambda p, n: p.jit(lambda x, i: x.at[p.ds(i, 2), 1].set(0))(GRID, 0),
    "ds add": lambda p, n: p.jit(lambda x, i: x.at[..., p.ds(i, 2)].add(1))(GRID, 1),
    "ds and array": lambda p, n: p.jit(lambda x, i: x[p.ds(i, 2), n.array([0, 1])])(GRID, 0),
    "ds stride": lambda p, n: n.arange(10)[p.ds(1, 3, 2)],
    "ds after a new axis": lambda p, n: n.arange(10)[None, p.ds(1, 3)],
    "ds gradient": lambda p, n: p.grad(lambda x: (x[p.ds(1, 2)] ** 2).sum())(n.arange(4.0)),
    "ds mapped": lambda p, n: p.vmap(lambda x, i: x[p.ds(i, 2)], (None, 0))(n.arange(4.0), n.arange(3)),
}
for _size in (1, 3, 4):
    CALLS[f"intersect1d {_size}"] = lambda p, n, k=_size: p.jit(
        lambda x, y: n.intersect1d(x, y, size=k, return_indices=True)
    )(n.array([3, 1, 2, 2]), n.array([2, 3, 5]))
for _at in (0, 2, -1, 4):
    CALLS[f"insert traced {_at}"] = lambda p, n, k=_at: p.jit(lambda x, i: n.insert(x, i, 7.0, axis=1))(X, k)
    CALLS[f"insert vector {_at}"] = lambda p, n, k=_at: p.jit(lambda x, i: n.insert(x, i, n.arange(3.0)))(V, k)
for _axis in (None, 0, 1, (0, 1), -1):
    for _trim in ("fb", "f", "b"):
        CALLS[f"trim_zeros {_axis} {_trim}"] = lambda p, n, a=_axis, t=_trim: n.trim_zeros(n.array(ZEROS), t, axis=a)
for _mode in (None, "fill", "clip", "one_hot"):
    for _wraps in (None, True, False):
        CALLS[f"take_along_axis {_mode} {_wraps}"] = lambda p, n, m=_mode, w=_wraps: p.jit(
            lambda x, i: n.take_along_axis(x, i, axis=2, mode=m, wrap_negative_indices=w)
        )(X, I)
for _name in ("quantile", "nanquantile", "percentile", "nanpercentile"):
    for _axis in (None, 0, (0, 2)):
        CALLS[f"{_name} {_axis}"] = lambda p, n, f=_name, a=_axis: getattr(n, f)(
            n.array(WITH_NAN if f.startswith("nan") else X),
            n.array([0.0, 0.3, 1.0]) * (100 if "percent" in f else 1),
            axis=a,
            weights=n.array(W),
            method="inverted_cdf",
            keepdims=a == 0,
        )


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", CALLS)
def test_call_gives_what_jax_gives(name: str) -> None:
    found, expected = CALLS[name](tx, jnp), CALLS[name](jax, jax.numpy)
    for a, b in zip(tx.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert (a.shape, str(a.dtype)) == (b.shape, str(b.dtype))
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


def test_wrong_keywords_raise_typed_errors() -> None:
    with pytest.raises(NumberRangeError, match="argsort: int8 does not hold the indices of 300 elements"):
        jnp.argsort(jnp.zeros(300), dtype="int8")
    with pytest.raises(DTypeError, match="argsort: indices have an integer type"):
        jnp.argsort(jnp.zeros(3), dtype="float32")
    with pytest.raises(ArgumentError, match="quantile with weights: method must be"):
        jnp.quantile(jnp.ones(3), 0.5, weights=jnp.ones(3))
    with pytest.raises(ShapeError, match=r"average: weights of shape \(3, 5\) fit neither"):
        jnp.average(X, axis=(2, 0), weights=W[:, 0])
    with pytest.raises(ArgumentError, match="interp: left is a number, None or 'extrapolate'"):
        jnp.interp(jnp.ones(1), jnp.arange(3.0), jnp.arange(3.0), left="nearest")
    with pytest.raises(DTypeError, match=r"lax\.mul: out_dtype must be of the operands' kind and not narrower"):
        tx.lax.mul(jnp.ones(1), jnp.ones(1), out_dtype="float16")
    with pytest.raises(ShapeError, match="insert: values of shape"):
        jnp.insert(jnp.ones(3), 1, jnp.ones((1, 2)))
    with pytest.raises(TracerError, match="delete"):
        tx.jit(lambda i: jnp.delete(jnp.arange(5), i))(jnp.array([1, 2]))
    with pytest.raises(ArgumentError, match="zeros: out_sharding: the only device"):
        jnp.zeros(3, out_sharding="gpu")


# --- ds ---------------------------------------------------------------------------------------------------------------


def test_ds_makes_slices_of_static_size() -> None:
    assert tx.ds(None) == tx.ds(None, 3) == slice(None)
    assert (tx.ds(3).start, tx.ds(3).size, tx.ds(3).stride) == (0, 3, 1)
    assert tx.ds(2, 3, 4) == tx.ds(2, 3, 4)
    with pytest.raises(ShapeError, match=r"size=5, stride=1\) does not fit axis 0 of size 3"):
        jnp.arange(3)[tx.ds(2, 5)]
    with pytest.raises(ArgumentError, match="ds: the stride must be positive"):
        tx.ds(0, 3, -1)
    with pytest.raises(TypeError, match="the start of a slice is one integer"):
        jnp.arange(3)[tx.ds(jnp.array([0, 1]), 2)]


def test_ds_updates_are_one_dynamic_update() -> None:
    text = str(tx.make_graph(lambda x, i: x.at[tx.ds(i, 2)].multiply(2.0))(jnp.ones(5), 1))
    assert text.count("dynamic-update-slice(") == text.count("dynamic-slice(") == 1


# --- others -----------------------------------------------------------------------------------------------------------


def test_files_take_allow_pickle() -> None:
    file = io.BytesIO()
    jnp.save(file, jnp.arange(3), allow_pickle=False)
    file.seek(0)
    np.testing.assert_array_equal(jnp.load(file, allow_pickle=True), [0, 1, 2])
    file = io.BytesIO()
    jnp.savez(file, a=jnp.arange(2), allow_pickle=False)
    file.seek(0)
    assert list(jnp.load(file)) == ["a"]


def test_text_of_arrays_takes_the_options_of_numpy() -> None:
    assert jnp.array_str(jnp.array([1.23456]), precision=2) == "[1.23]"
    assert jnp.array_repr(jnp.array([1.23456]), precision=2) == "Array([1.23], dtype=float32)"


def test_is_leaf_takes_path_sees_the_nodes_that_jax_shows() -> None:
    tree = {"a": [1, (2, 3)], "b": {"c": 4}, "n": None}
    seen: dict[Any, list[tuple[str, str]]] = {tx: [], jax: []}
    for package in (tx, jax):

        def is_leaf(path: Any, node: Any, package: Any = package) -> bool:
            seen[package].append((package.tree_util.keystr(path), str(node)))
            return len(path) == 2 and isinstance(node, tuple)

        pairs, _ = package.tree.flatten_with_path(tree, is_leaf, is_leaf_takes_path=True)
        assert [x for _, x in pairs] == [1, (2, 3), 4]
        found = package.tree.map_with_path(lambda p, x: x, tree, is_leaf=is_leaf, is_leaf_takes_path=True)
        assert found == tree
        assert len(package.tree.leaves_with_path(tree, is_leaf, is_leaf_takes_path=True)) == 3
    assert seen[tx] == seen[jax]


def test_live_arrays_are_those_that_something_refers_to() -> None:
    x = jnp.ones(3)
    assert any(y is x for y in tx.live_arrays())
    x.delete()
    assert not any(y is x for y in tx.live_arrays())
    assert tx.copy_to_host_async({"a": x})["a"] is x


def test_shape_dtype_struct_like_has_shape_type_and_weakness() -> None:
    assert tx.ShapeDtypeStruct.like(jnp.ones(3)) == tx.ShapeDtypeStruct((3,), "float32")
    assert tx.ShapeDtypeStruct.like(np.ones(3)) == tx.ShapeDtypeStruct((3,), "float64")
    assert tx.ShapeDtypeStruct.like(3.0).weak_type


def test_array_namespace_refuses_unknown_versions() -> None:
    x = jnp.ones(1)
    assert x.__array_namespace__(api_version=jnp.__array_api_version__) is jnp
    with pytest.raises(ValueError, match=r"api_version is one of .*, but got '2020.1'"):
        x.__array_namespace__(api_version="2020.1")


class Described:
    """What has a shape and an element type, and no values."""

    shape, dtype = (2, 3), np.dtype("float32")


def test_eval_shape_takes_what_has_a_shape_and_a_dtype() -> None:
    assert tx.eval_shape(lambda x: x.T, Described()) == tx.ShapeDtypeStruct((3, 2), "float32")
    (found,) = tx.linear_transpose(lambda x: 2 * x, Described())(jnp.ones((2, 3)))
    np.testing.assert_array_equal(found, np.full((2, 3), 2.0))
    assert jnp.result_type(Described(), np.float16) == np.float32
    assert tx.jit(lambda x: x.T).lower(Described()).out_info.shape == (3, 2)
    with pytest.raises(ArgumentError, match="has no value to compute with"):
        tx.jit(lambda x: x)(Described())


def scaled_sum(x: Any, y: Any, scale: Any) -> Any:
    return x + y * scale


def test_custom_jvp_of_partial_with_a_bound_keyword_uses_it() -> None:
    f = tx.custom_jvp(functools.partial(scaled_sum, scale=0.5))
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] + 10 * tangents[1]))
    assert f(1.0, 2.0) == 2.0
    assert tx.grad(f, 1)(1.0, 2.0) == 10.0
    with pytest.raises(ArgumentError, match="take its arguments by position"):
        f(1.0, 2.0, scale=1.0)
