"""`tinyxla.numpy.ufunc`: properties, folds, updates and `frompyfunc`, compared with NumPy's and JAX's."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError

NAMES = [n for n in dir(jax.numpy) if isinstance(getattr(jax.numpy, n), jax.numpy.ufunc)]
BINARY = [n for n in NAMES if n != "negative"]
generator = np.random.default_rng(3)
X = generator.normal(size=(4, 40, 3)) * 3


def inputs(name: str) -> list[np.ndarray[Any, Any]]:
    """Arrays of the types that NumPy's ufunc takes, and gives in a type that is not half precision."""
    dtypes: list[Any] = [np.int32]
    if not name.startswith("bitwise"):
        dtypes.append(np.float32)
    if name != "subtract" and not name.startswith("logaddexp"):
        dtypes.append(bool)
    return [X.astype(t) for t in dtypes]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(expected, np.float64), rtol=1e-4, atol=1e-4)


def test_functions_that_are_ufuncs_in_jax_are_ufuncs() -> None:
    assert [n for n in dir(jnp) if isinstance(getattr(jnp, n), jnp.ufunc)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_ufunc_properties_are_those_of_numpy_and_read_only(name: str) -> None:
    ours, theirs = getattr(jnp, name), getattr(np, name)
    for field in ("nin", "nout", "nargs", "identity", "__name__"):
        assert getattr(ours, field) == getattr(theirs, field), field
    for field in ("nin", "nout", "nargs", "identity"):
        with pytest.raises(AttributeError):
            setattr(ours, field, 3)
    assert pickle.loads(pickle.dumps(ours)) is ours
    assert copy.deepcopy(ours) is ours
    assert ours != jnp.sin
    assert repr(ours) == f"<tinyxla.numpy.ufunc {name!r}>"
    assert list(inspect.signature(ours).parameters)[-2:] == ["out", "where"]
    assert ours.__doc__


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", BINARY)
def test_ufunc_reduce_matches_numpy(name: str) -> None:
    for x in inputs(name):
        one = x.dtype.type(1)
        cases: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": 1, "initial": one}]
        cases.append({"axis": 1, "where": x > 0, "initial": one})
        cases += [{"axis": None}, {"axis": (0, 2)}] if name != "subtract" else []
        for options in cases:
            with np.errstate(over="ignore"):
                expected = getattr(np, name).reduce(x, **options)
            found = getattr(jnp, name).reduce(x, **options)
            if name != "multiply" or x.dtype != np.float32:
                close(found, expected)
            close(tx.jit(lambda v, o=options: getattr(jnp, name).reduce(v, **o))(x), found)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", BINARY)
def test_ufunc_accumulate_matches_numpy(name: str) -> None:
    for x in inputs(name):
        for axis in (0, -1) if name == "multiply" else (0, 1, -1):
            expected = getattr(np, name).accumulate(x, axis=axis)
            close(getattr(jnp, name).accumulate(x, axis=axis), expected)
            close(tx.jit(lambda v, a=axis: getattr(jnp, name).accumulate(v, axis=a))(x), expected)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", BINARY)
def test_ufunc_reduceat_matches_numpy_for_known_and_traced_indices(name: str) -> None:
    indices = np.array([0, 10, 5, 39, 20])
    for x in inputs(name):
        x = np.sign(x) if x.dtype == np.float32 else x
        expected = getattr(np, name).reduceat(x, indices, axis=1)
        found = getattr(jnp, name).reduceat(x, indices, axis=1)
        traced = tx.jit(lambda v, i: getattr(jnp, name).reduceat(v, i, axis=1))(x, indices)
        close(found, expected)
        close(traced, expected)
        assert found.dtype == traced.dtype
        assert getattr(jnp, name).reduceat(x, indices[:0], axis=1).shape == (4, 0, 3)


@pytest.mark.parametrize("name", NAMES)
def test_ufunc_at_applies_once_for_each_index(name: str) -> None:
    at = np.array([1, 1, 5, -1])
    for x in inputs(name):
        if name.startswith("log"):
            x = x.astype(bool) if name.startswith("logical") else x.astype(np.float32)
        if name == "negative" and x.dtype == bool:
            continue
        expected, values = x[0].copy(), [x[1, :4]] if name != "negative" else []
        getattr(np, name).at(expected, at, *values)
        close(getattr(jnp, name).at(x[0], at, *values, inplace=False), expected)
        update = tx.jit(lambda v, i, *w: getattr(jnp, name).at(v, i, *w, inplace=False))
        close(update(x[0], at, *values), expected)


@pytest.mark.parametrize("name", BINARY)
def test_ufunc_outer_matches_numpy_also_if_ranks_must_agree(name: str) -> None:
    x = inputs(name)[0]
    with tx.numpy_rank_promotion("raise"):
        found = getattr(jnp, name).outer(x[0], x[1, 0])
    close(found, getattr(np, name).outer(x[0].astype(np.float64) if "addexp" in name else x[0], x[1, 0]))


def test_ufunc_errors_name_the_method_and_the_fix() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    with pytest.raises(ArgumentError, match="add: where must be None"):
        jnp.add(x, 1, where=x > 0)
    with pytest.raises(ArgumentError, match="add: out must be None"):
        jnp.add(x, 1, out=x)
    with pytest.raises(ArgumentError, match="negative: out must be None"):
        jnp.negative(x, x)
    with pytest.raises(ArgumentError, match=r"add\.reduce: out must be None"):
        jnp.add.reduce(x, out=x)
    with pytest.raises(ArgumentError, match=r"add\.at: arrays are immutable; pass inplace=False"):
        jnp.add.at(x, 0, 1.0)
    with pytest.raises(ArgumentError, match=r"add\.at: takes one array and an index, and a second array"):
        jnp.add.at(x, 0, inplace=False)
    with pytest.raises(ArgumentError, match=r"negative\.reduce: needs a function of two arrays"):
        jnp.negative.reduce(x)
    with pytest.raises(ArgumentError, match=r"subtract\.reduce: only an integer axis may be given"):
        jnp.subtract.reduce(x, axis=(0, 1))
    with pytest.raises(ArgumentError, match=r"subtract\.reduce: the function has no identity"):
        jnp.subtract.reduce(x, where=x > 1)
    with pytest.raises(ArgumentError, match=r"subtract\.reduce: there is nothing to reduce along axis 0"):
        jnp.subtract.reduce(x[:0])
    with pytest.raises(ArgumentError, match=r"subtract\.accumulate: axis is an integer, but got None"):
        jnp.subtract.accumulate(x, axis=None)
    with pytest.raises(ShapeError, match=r"add\.reduceat: indices must be a vector of integers"):
        jnp.add.reduceat(x, jnp.array([[0, 1]]))
    with pytest.raises(OutOfBoundsError, match=r"add\.reduceat: indices must be from 0 to 1, but got 7"):
        jnp.add.reduceat(x, [0, 7])
    with pytest.raises(DTypeError, match="fold of bits takes integers"):
        jnp.bitwise_xor.reduce(x)


# --- frompyfunc -------------------------------------------------------------------------------------------------------


def twice_more(x: Any, y: Any) -> Any:
    return x + 2 * y


def test_frompyfunc_folds_match_jax() -> None:
    x = generator.integers(0, 9, (3, 40)).astype(np.float32)
    ours, theirs = (m.frompyfunc(twice_more, 2, 1, identity=0) for m in (jnp, jax.numpy))
    assert (ours.nin, ours.nout, ours.nargs, ours.identity) == (2, 1, 3, 0)
    for options in ({}, {"axis": 1}, {"axis": None}, {"axis": 1, "keepdims": True}, {"dtype": np.int32}):
        close(ours.reduce(x, **options), theirs.reduce(x, **options))
    close(ours.reduce(x[:0]), theirs.reduce(x[:0]))
    for axis in (0, 1):
        close(ours.accumulate(x[:, :20], axis=axis), theirs.accumulate(x[:, :20], axis=axis))
    close(ours.outer(x[0], x[:, 0]), theirs.outer(x[0], x[:, 0]))
    at = np.array([0, 0, 2])
    close(ours.at(x[0], at, 1.0, inplace=False), theirs.at(x[0], at, 1.0, inplace=False))
    close(ours.reduceat(x, np.array([0, 2, 1])), theirs.reduceat(x, np.array([0, 2, 1])))


def test_frompyfunc_under_transformations() -> None:
    ours = jnp.frompyfunc(twice_more, 2, 1)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(tx.jit(ours)(x, x), 3 * x)
    np.testing.assert_array_equal(tx.grad(lambda v: ours.reduce(v, axis=None))(x), [[1, 2, 2], [2, 2, 2]])
    np.testing.assert_array_equal(tx.vmap(ours.reduce)(x), [6, 21])
    long = np.ones((50, 2), np.float32)
    np.testing.assert_array_equal(tx.grad(lambda v: ours.reduce(v).sum())(long), [[1, 1], *[[2, 2]] * 49])


def test_frompyfunc_of_one_function_is_equal_and_pickles() -> None:
    first, second = (jnp.frompyfunc(twice_more, 2, 1, identity=0) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first is not second
    assert first != jnp.frompyfunc(twice_more, 2, 1)
    assert pickle.loads(pickle.dumps(first)) == first
    pair = jnp.frompyfunc(lambda x, y: (x + y, x - y), nin=2, nout=2)
    np.testing.assert_array_equal(pair(jnp.arange(3), 1)[1], [-1, 0, 1])
    with pytest.raises(ArgumentError, match="takes 2 arrays, as frompyfunc was told, but got 1"):
        pair(1)
    with pytest.raises(ArgumentError, match="gives 2 results, but frompyfunc was told that there are 1"):
        jnp.frompyfunc(lambda x: (x, x), 1, 1)(1)
    with pytest.raises(ArgumentError, match=r"reduce: needs a function of two arrays with one result"):
        pair.reduce(jnp.arange(3))
    with pytest.raises(ArgumentError, match="frompyfunc: func must be a function"):
        jnp.frompyfunc(3, 1, 1)
