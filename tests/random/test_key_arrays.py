"""Arrays of random keys: what moves elements moves keys, transformations take them, and arithmetic is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import dtypes, errors, lax, random
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import Tracer

WORDS = np.arange(12, dtype=np.uint32).reshape(6, 2) + 100
KEYS = random.wrap_key_data(WORDS)
KEY = random.key(42)
NUMBERS = jnp.arange(6)

# Functions of keys and of integers: the integers in the result say which keys are to be there.
MOVES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(2, 3),
    "reshape -1": lambda x: x.reshape(3, -1),
    "reshape F": lambda x: jnp.reshape(x, (2, 3), order="F"),
    "ravel": lambda x: x.reshape(2, 3).ravel(),
    "transpose": lambda x: jnp.transpose(x.reshape(1, 2, 3), (2, 0, 1)),
    "T": lambda x: x.reshape(2, 3).T,
    "mT": lambda x: x.reshape(2, 3).mT,
    "swapaxes": lambda x: x.reshape(2, 3).swapaxes(0, -1),
    "moveaxis": lambda x: jnp.moveaxis(x.reshape(2, 3, 1), -1, 0),
    "squeeze": lambda x: x.reshape(1, 6, 1).squeeze(-1),
    "expand_dims": lambda x: jnp.expand_dims(x, (0, -1)),
    "broadcast_to": lambda x: jnp.broadcast_to(x, (2, 6)),
    "broadcast_arrays": lambda x: jnp.broadcast_arrays(x[:3], x.reshape(2, 3))[0],
    "concatenate": lambda x: jnp.concatenate([x, x[:2]]),
    "concatenate -1": lambda x: jnp.concatenate([x.reshape(2, 3), x[:2, None]], axis=-1),
    "stack -1": lambda x: jnp.stack([x, x], axis=-1),
    "hstack": lambda x: jnp.hstack([x, x]),
    "split": lambda x: jnp.split(x, 3)[1],
    "where": lambda x: jnp.where(NUMBERS % 2 == 0, x, x[0]),
    "take": lambda x: jnp.take(x.reshape(2, 3), jnp.array([2, 0]), axis=1),
    "take_along_axis": lambda x: jnp.take_along_axis(x, jnp.array([2, 0]), axis=0),
    "flip": lambda x: jnp.flip(x),
    "roll": lambda x: jnp.roll(x, 2),
    "tile": lambda x: jnp.tile(x, (2, 2)),
    "repeat": lambda x: jnp.repeat(x, 2),
    "rot90": lambda x: jnp.rot90(x.reshape(2, 3)),
    "delete": lambda x: jnp.delete(x, 1),
    "insert": lambda x: jnp.insert(x, 1, x[3]),
    "diagonal": lambda x: x.reshape(2, 3).diagonal(),
    "array": lambda x: jnp.array([[x[0], x[1]], [x[2], x[3]]]),
    "asarray": lambda x: jnp.asarray(x, dtype=x.dtype),
    "index": lambda x: x[-2],
    "index slice": lambda x: x[4:0:-2],
    "index tuple": lambda x: x.reshape(2, 3)[1, ..., None],
    "index array": lambda x: x.reshape(2, 3)[:, jnp.array([0, -1])],
    "index mask": lambda x: x[np.array([True, False] * 3)],
    "at get": lambda x: x.at[jnp.array([1, 5])].get(mode="clip"),
    "at set": lambda x: x.at[1].set(x[4]),
    "at set array": lambda x: x.at[jnp.array([1, 3])].set(x[:2]),
    "at set slice": lambda x: x.at[::2].set(x[3:]),
    "lax.slice": lambda x: lax.slice(x, (1,), (5,), (2,)),
    "lax.dynamic_slice": lambda x: lax.dynamic_slice(x, (2,), (3,)),
    "lax.dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:2], (3,)),
    "lax.dynamic_index_in_dim": lambda x: lax.dynamic_index_in_dim(x, 3, keepdims=False),
    "lax.select": lambda x: lax.select(NUMBERS < 3, x, x[::-1]),
    "lax.select_n": lambda x: lax.select_n(NUMBERS < 3, x, x[::-1]),
    "lax.rev": lambda x: lax.rev(x, (0,)),
    "lax.broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (6, 2), (0,)),
    "lax.pad": lambda x: lax.pad(x, x[0], [(1, 2, 0)]),
    "full": lambda x: jnp.full((2, 2), x[3]),
    "full_like": lambda x: jnp.full_like(x, x[3]),
    "associative_scan": lambda x: lax.associative_scan(lambda a, b: a, x),
    "vmap of an axis -1": lambda x: tx.vmap(lambda y: y[0], in_axes=-1, out_axes=-1)(x.reshape(2, 3)),
    "vmap to an axis -2": lambda x: tx.vmap(lambda y: y, out_axes=-2)(x.reshape(3, 2)),
    "vmap of a closed-over array": lambda x: tx.vmap(lambda n: x[n])(jnp.array([3, 1])),
    "vmap of an index": lambda x: tx.vmap(lambda n, y: y[n], in_axes=(0, 1))(jnp.array([1, 0, 1]), x.reshape(2, 3)),
    "vmap of at set": lambda x: tx.vmap(lambda n: x.at[n].set(x[5]))(jnp.array([3, 1])),
    "scan": lambda x: lax.scan(lambda c, y: (y, c), x[0], x)[1],
    "scan in reverse": lambda x: lax.scan(lambda c, y: (y, c), x[0], x, reverse=True)[1],
    "lax.map": lambda x: lax.map(lambda y: y, x.reshape(2, 3)),
    "while_loop": lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1][::-1]), (0, x[:3]))[1],
    "cond": lambda x: lax.cond(x.shape == (6,), lambda y: y[1], lambda y: y[0], x),
    "all_gather": lambda x: tx.vmap(lambda y: lax.all_gather(y, "i"), axis_name="i")(x[:3]),
    "ppermute": lambda x: tx.vmap(lambda y: lax.ppermute(y, "i", [(0, 1), (1, 0)]), axis_name="i")(x[:2]),
    "tree_map": lambda x: tx.tree_util.tree_map(lambda *y: jnp.stack(y), x[0], x[1]),
    "device_put": lambda x: tx.device_put(x),
    "optimization_barrier": lambda x: lax.optimization_barrier(x),
    "copy": lambda x: copy.deepcopy(copy.copy(x.copy())),
    "pickle": lambda x: x if isinstance(x, Tracer) else pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", MOVES)
def test_movement_of_keys_moves_whole_keys(name: str, compiled: bool) -> None:
    move = MOVES[name]
    if compiled and name == "pickle":
        pytest.skip("what is traced has no value")
    keys = (tx.jit(move) if compiled else move)(KEYS)
    places = np.asarray(move(NUMBERS))
    assert keys.shape == places.shape
    assert keys.dtype is KEYS.dtype
    np.testing.assert_array_equal(random.key_data(keys), WORDS[places])


def test_read_of_keys_outside_with_fill_gives_words_of_ones() -> None:
    found = random.key_data(KEYS.at[jnp.array([2, 10])].get(mode="fill"))
    np.testing.assert_array_equal(found, [WORDS[2], [0xFFFFFFFF] * 2])
    np.testing.assert_array_equal(random.key_data(jnp.zeros((2,), KEY.dtype)), np.zeros((2, 2)))
    assert jnp.zeros_like(KEYS).shape == (6,)


def test_equality_of_keys_is_that_of_all_words() -> None:
    np.testing.assert_array_equal(KEYS[2] == KEYS, NUMBERS == 2)
    np.testing.assert_array_equal(KEYS[2] != KEYS, NUMBERS != 2)
    half = random.wrap_key_data(np.array([[100, 0], [100, 101]], np.uint32))
    np.testing.assert_array_equal(half == KEYS[0], [False, True])
    assert bool(jnp.array_equal(KEYS, KEYS))


def test_attributes_of_keys() -> None:
    assert (KEYS.shape, KEYS.ndim, KEYS.size, len(KEYS), KEYS.itemsize, KEYS.nbytes) == ((6,), 1, 6, 6, 8, 48)
    assert KEY.shape == ()
    assert str(KEY.dtype) == KEY.dtype.name == "key<fry>"
    assert isinstance(KEY, tx.Array)
    assert not isinstance(KEY, (Tracer, ConcreteArray))
    assert repr(KEY) == "Array((), dtype=key<fry>) overlaying:\n[ 0 42]"
    assert KEYS.is_fully_addressable
    assert KEYS.block_until_ready() is KEYS
    assert [x.shape for x in KEYS] == [()] * 6
    gone = random.key(3).copy()
    gone.delete()
    assert gone.is_deleted()
    assert not KEY.is_deleted()


def test_dtypes_of_keys() -> None:
    assert KEY.dtype == random.key(1).dtype == random.key_dtype()
    assert hash(KEY.dtype) == hash(KEYS.dtype)
    assert KEY.dtype != random.key_dtype("rbg")
    assert pickle.loads(pickle.dumps(KEY.dtype)) is KEY.dtype
    for kind in (dtypes.prng_key, dtypes.extended, np.generic, KEY.dtype):
        assert dtypes.issubdtype(KEY.dtype, kind)
    for kind in (np.integer, np.float32, random.key_dtype("rbg")):
        assert not dtypes.issubdtype(KEY.dtype, kind)
    assert not dtypes.issubdtype(np.uint32, dtypes.extended)
    assert jnp.result_type(KEY, KEY.dtype, tx.ShapeDtypeStruct((2,), KEY.dtype)) is KEY.dtype
    assert jnp.isdtype(KEY.dtype, KEY.dtype)
    assert not jnp.isdtype(KEY.dtype, ("numeric", "bool"))


def test_keys_are_leaves_of_trees_for_users() -> None:
    tree = {"key": KEYS, "other": [1.0]}
    leaves, treedef = tx.tree_util.tree_flatten(tree)
    assert leaves[0] is KEYS
    assert treedef.num_leaves == 2
    assert tx.tree_util.tree_unflatten(treedef, [0, 1]) == {"key": 0, "other": [1]}
    paths = [tx.tree_util.keystr(path) for path, _ in tx.tree_util.tree_leaves_with_path(tree)]
    assert paths == ["['key']", "['other'][0]"]
    assert tx.jit(lambda x: x).lower(tree).in_tree == tx.tree_util.tree_structure(((tree,), {}))
    assert tx.jit(lambda x: x).lower(tree).out_tree == treedef


def test_shapes_of_keys_without_values() -> None:
    shape = tx.ShapeDtypeStruct((3,), KEY.dtype)
    found = tx.eval_shape(lambda k: {"k": k[0], "x": random.uniform(k[1])}, shape)
    assert (found["k"].shape, found["k"].dtype, found["x"].shape) == ((), KEY.dtype, ())
    assert isinstance(found["k"], tx.ShapeDtypeStruct)
    assert found["k"] == tx.ShapeDtypeStruct((), KEY.dtype)
    assert tx.typeof(KEYS).shape == (6,)
    compiled = tx.jit(random.split).lower(tx.ShapeDtypeStruct((), KEY.dtype)).compile()
    assert bool((compiled(KEY) == random.split(KEY)).all())
    with pytest.raises(errors.ArgumentError):
        compiled(random.key(0, impl="philox4x32"))  # which has as many words


def uniform_times(x: Any, key: Any) -> Any:
    return x * random.uniform(key)


def test_derivatives_pass_keys_by() -> None:
    drawn = random.uniform(KEY)
    none = np.zeros((), dtypes.float0)
    assert tx.grad(uniform_times)(2.0, KEY) == drawn
    assert tx.jvp(uniform_times, (2.0, KEY), (1.0, none))[1] == drawn
    assert tx.linearize(uniform_times, 2.0, KEY)[1](1.0, none) == drawn
    by_x, by_key = tx.vjp(lambda x, k: x * tx.vmap(random.uniform)(k).sum(), 2.0, KEYS)[1](1.0)
    assert by_key.dtype == dtypes.float0
    assert by_key.shape == (6,)
    np.testing.assert_allclose(by_x, tx.vmap(random.uniform)(KEYS).sum(), rtol=1e-6)
    assert tx.grad(lambda k, x: uniform_times(x, k), allow_int=True)(KEY, 2.0).shape == ()
    assert tx.grad(tx.checkpoint(uniform_times))(2.0, KEY) == drawn
    value, key = tx.jvp(lambda x, k: (x, k[0]), (2.0, KEYS), (1.0, np.zeros(6, dtypes.float0)))[0]
    assert value == 2
    assert bool(key == KEYS[0])


@pytest.mark.parametrize("none", [lambda k: None, lambda k: np.zeros(k.shape, dtypes.float0)])
def test_rules_of_users_pass_keys_by(none: Callable[[Any], Any]) -> None:
    @tx.custom_jvp
    def forward(x: Any, key: Any) -> Any:
        return uniform_times(x, key)

    @forward.defjvp
    def rule(primals: Any, tangents: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        assert tangents[1].shape == primals[1].shape
        assert tangents[1].dtype == dtypes.float0
        return forward(*primals), 3 * tangents[0]

    backward = tx.custom_vjp(uniform_times)
    backward.defvjp(lambda x, k: (uniform_times(x, k), k), lambda k, g: (g * random.uniform(k), none(k)))
    assert tx.grad(forward)(2.0, KEY) == 3
    assert tx.jit(tx.grad(backward))(2.0, KEY) == random.uniform(KEY)
    np.testing.assert_array_equal(tx.vmap(tx.grad(backward), (None, 0))(2.0, KEYS), tx.vmap(random.uniform)(KEYS))


def test_loops_draw_by_carried_keys() -> None:
    def step(carry: Any, _: Any) -> Any:
        x, key = carry
        key, own = random.split(key)
        return (x * (1 + random.uniform(own)), key), own

    (x, last), keys = lax.scan(step, (1.0, KEY), None, length=3)
    wanted, key = 1.0, KEY
    for k in range(3):
        (wanted, key), own = step((wanted, key), None)
        assert bool(own == keys[k])
    np.testing.assert_allclose(x, wanted, rtol=1e-6)
    assert bool(key == last)
    assert tx.grad(lambda y: lax.scan(step, (y, KEY), None, length=3)[0][0])(1.0) == pytest.approx(float(wanted))
    folded = lax.fori_loop(0, 3, lambda n, k: random.fold_in(k, n), KEY)
    assert bool(folded == random.fold_in(random.fold_in(random.fold_in(KEY, 0), 1), 2))


def test_compiled_functions_with_keys_run_without_tracing_again() -> None:
    traced: list[int] = []

    @tx.jit
    def draw(state: dict[str, Any]) -> Any:
        traced.append(1)
        return {"key": random.split(state["key"])[0], "x": random.uniform(state["key"])}

    state: Any = {"key": KEY, "x": 0.0}
    for _ in range(3):
        state = draw({"key": state["key"], "x": jnp.float32(0)})
    assert len(traced) == 1
    draw({"key": random.key(0, impl="philox4x32"), "x": jnp.float32(0)})  # of another type, with as many words
    assert len(traced) == 2


REFUSED: dict[str, Callable[[], Any]] = {
    "+": lambda: KEYS + 1,
    "+ keys": lambda: KEYS + KEYS,
    "reflected *": lambda: 2.0 * KEYS,
    "-": lambda: -KEY,
    "<": lambda: KEYS < KEYS,
    "== number": lambda: KEY == 1,
    "== keys of another generator": lambda: random.key(0, impl="rbg") == KEY,
    "float": lambda: float(KEY),
    "bool": lambda: bool(KEY),
    "asarray": lambda: np.asarray(KEYS),
    "tolist": lambda: KEYS.tolist(),
    "NumPy's add": lambda: np.add(KEYS, 1),
    "sin": lambda: jnp.sin(KEY),
    "sum": lambda: jnp.sum(KEYS),
    "method max": lambda: KEYS.max(),
    "mean": lambda: jnp.mean(KEYS),
    "sort": lambda: jnp.sort(KEYS),
    "argmax": lambda: jnp.argmax(KEYS),
    "cumsum": lambda: jnp.cumsum(KEYS),
    "matmul": lambda: KEYS @ KEYS,
    "astype": lambda: KEYS.astype("float32"),
    "numbers astype": lambda: jnp.zeros(2).astype(KEY.dtype),
    "array of numbers": lambda: jnp.array([1, 2], dtype=KEY.dtype),
    "arange": lambda: jnp.arange(3, dtype=KEY.dtype),
    "list with a number": lambda: jnp.array([KEY, 1]),
    "where with a number": lambda: jnp.where(True, KEYS, 0),
    "concatenate with numbers": lambda: jnp.concatenate([KEYS, jnp.zeros(2)]),
    "stack of two generators": lambda: jnp.stack([KEY, random.key(0, impl="rbg")]),
    "at add": lambda: KEYS.at[0].add(1),
    "at set of a number": lambda: KEYS.at[0].set(1),
    "predicate": lambda: lax.cond(KEY, lambda: 1, lambda: 2),
    "psum": lambda: tx.vmap(lambda k: lax.psum(k, "i"), axis_name="i")(KEYS),
    "pmax": lambda: tx.vmap(lambda k: lax.pmax(k, "i"), axis_name="i")(KEYS),
    "psum_scatter": lambda: tx.vmap(lambda k: lax.psum_scatter(k, "i"), axis_name="i")(KEYS.at[:].get()[:, None]),
    "bitcast": lambda: lax.bitcast_convert_type(KEY, "uint32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arithmetic_on_keys_is_an_error_that_names_their_words(name: str) -> None:
    with pytest.raises(errors.TinyxlaError, match=r"key_data|keys of different generators|must have an element"):
        REFUSED[name]()


@pytest.mark.parametrize(
    "call",
    [
        lambda: tx.vmap(lambda k: k)(KEY),
        lambda: tx.vmap(lambda k: k, in_axes=-2)(KEYS),
        lambda: tx.vmap(lambda k: k, out_axes=1)(KEYS),
        lambda: lax.scan(lambda c, k: (c, k), 0, KEY),
        lambda: lax.map(lambda k: k, KEY),
        lambda: lax.associative_scan(lambda a, b: b, KEYS, axis=-1) and lax.associative_scan(max, KEY),
        lambda: list(KEY),
        lambda: len(KEY),
    ],
)
def test_words_of_keys_are_no_axis(call: Callable[[], Any]) -> None:
    with pytest.raises(errors.TinyxlaError):
        call()


def test_ravel_pytree_of_keys() -> None:
    tree = {"a": KEY, "b": KEYS.reshape(2, 3)}
    vector, unravel = tx.flatten_util.ravel_pytree(tree)
    assert vector.shape == (7,)
    assert bool((unravel(vector)["b"] == tree["b"]).all())
    with pytest.raises(errors.PromotionError, match="key_data"):
        tx.flatten_util.ravel_pytree({"a": KEY, "b": 1.0})
