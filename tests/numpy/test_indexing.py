"""Indexing, updated copies, and the functions of places, against NumPy (values) and JAX (places outside)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    ConcretizationError,
    DTypeError,
    IndexTypeError,
    OutOfBoundsError,
    PromotionError,
    ShapeError,
    TinyxlaError,
)
from tinyxla.hlo import Computation
from tinyxla.ops import calls, sorting
from tinyxla.tracing import ConcreteArray, trace
from tinyxla.tracing.config import setting

moderate = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape, dtype=int)) * 7 % 23 - 9).astype(np.float32).reshape(shape)


@st.composite
def array_and_index(draw: Any, repeated: bool = True) -> tuple[np.ndarray[Any, Any], Any]:
    """An array, and an index of any kind that fits it; without places that are named twice if not `repeated`."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    entries: list[Any] = []
    d = 0
    while d < len(shape):
        kind = draw(st.sampled_from(["int", "slice", "array", "mask", "new", "rest", "end"]))
        n = shape[d]
        if kind == "int":
            entries.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            bound = st.none() | st.integers(-n - 2, n + 2)
            entries.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))))
        elif kind == "array" and repeated:
            sizes = tuple(draw(st.sampled_from([1, size])) for size in batch)[draw(st.integers(0, len(batch))) :]
            count = int(np.prod(sizes))
            places = draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))
            entries.append(np.array(places, np.int32).reshape(sizes))
        elif kind == "mask" and repeated and all(e.size == 1 for e in entries if isinstance(e, np.ndarray)):
            repeated = False  # how many places it has is not known here, so no other array fits it for sure
            entries.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
        elif kind == "new":
            entries.append(None)
            continue
        elif kind == "rest" and Ellipsis not in [e for e in entries if not isinstance(e, np.ndarray)]:
            entries.append(Ellipsis)
            d += draw(st.integers(0, len(shape) - d))
            continue
        elif kind == "end" and Ellipsis not in [e for e in entries if not isinstance(e, np.ndarray)]:
            break
        else:
            entries.append(slice(None))
        d += 1
    return values(shape), entries[0] if len(entries) == 1 else tuple(entries)


def recorded(function: Callable[..., Any], *arrays: Any) -> Any:
    """The result by way of a graph, in which the arrays are not known."""
    operands = [jnp.asarray(x) for x in arrays]
    shapes = [tx.tracing.core.Shape.of(x) for x in operands]
    graph, _, _ = trace(lambda *xs: [function(*xs)], shapes, "recorded")
    (result,) = calls.evaluate(graph, [np.asarray(x) for x in operands])
    return result


def same(found: Any, expected: Any, what: str = "") -> None:
    a, b = np.asarray(found), np.asarray(expected)
    assert a.shape == b.shape, what
    assert a.dtype == b.dtype, what
    np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=what)


@moderate
@given(array_and_index())
def test_reading(pair: tuple[np.ndarray[Any, Any], Any]) -> None:
    x, index = pair
    expected = x[index]
    same(jnp.asarray(x)[index], expected)
    same(recorded(lambda v: v[index], x), expected)
    stacked = np.stack([x, x + 1])
    same(tx.vmap(lambda v: v[index])(stacked), np.stack([expected, expected + 1]))


@moderate
@given(array_and_index())
def test_gradient_of_reading(pair: tuple[np.ndarray[Any, Any], Any]) -> None:
    x, index = pair
    weights = values(x[index].shape) + 0.5
    expected = np.zeros_like(x)
    np.add.at(expected, index, weights)
    same(tx.grad(lambda v: (v[index] * weights).sum())(x), expected)


UPDATES: dict[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "subtract": np.subtract,
}


@moderate
@given(array_and_index(), st.sampled_from(sorted(UPDATES)), st.booleans())
def test_updating(pair: tuple[np.ndarray[Any, Any], Any], name: str, whole: bool) -> None:
    x, index = pair
    y = values(x[index].shape) / 3 if whole else np.float32(1.5)
    expected = x.copy()
    UPDATES[name].at(expected, index, y)
    same(getattr(jnp.asarray(x).at[index], name)(y), expected)
    same(recorded(lambda v, w: getattr(v.at[index], name)(w), x, y), expected)
    mapped = tx.vmap(lambda v: getattr(v.at[index], name)(y))(np.stack([x, x]))
    same(mapped, np.stack([expected, expected]))


@moderate
@given(array_and_index())
def test_setting(pair: tuple[np.ndarray[Any, Any], Any]) -> None:
    x, index = pair
    y = np.float32(99)
    expected = x.copy()
    expected[index] = y
    same(jnp.asarray(x).at[index].set(y), expected)
    same(recorded(lambda v, w: v.at[index].set(w), x, y), expected)
    kept = np.ones_like(x)
    kept[index] = 0
    same(tx.grad(lambda v: v.at[index].set(0.0).sum())(x), kept)


@moderate
@given(array_and_index(repeated=False))
def test_other_updates(pair: tuple[np.ndarray[Any, Any], Any]) -> None:
    x, index = pair
    for name, apply in (
        ("divide", lambda v: v / np.float32(4)),
        ("power", lambda v: v**3),
    ):
        expected = x.copy()
        expected[index] = apply(x[index])
        same(getattr(jnp.asarray(x).at[index], name)(4 if name == "divide" else 3), expected)
    expected = x.copy()
    expected[index] = np.sin(x[index])
    same(jnp.asarray(x).at[index].apply(jnp.sin), expected)
    same(jnp.asarray(x).at[index].get(), x[index])


def test_gradient_of_setting() -> None:
    """Of several values that are set at one place, the last stays."""
    x, y = values((4,)), values((3,))
    index = np.array([1, 1, 3])
    gx, gy = tx.grad(lambda x, y: (x.at[index].set(y) * jnp.arange(4.0)).sum(), argnums=(0, 1))(x, y)
    same(gx, np.float32([0, 0, 2, 0]))
    same(gy, np.float32([0, 1, 3]))


@pytest.mark.parametrize("name", ["add", "multiply", "set", "min", "max", "divide", "power"])
def test_gradients_of_updates(name: str) -> None:
    """Against differences of values (no place is named twice where JAX has no derivative for that)."""
    x, y = np.float64([1.5, 2.5, -1.0, 3.0]), np.float64([2.0, 1.25])
    index = np.array([0, 0] if name in ("add", "multiply") else [0, 3])

    def loss(x: Any, y: Any) -> Any:
        return (jnp.sin(getattr(x.at[index], name)(y)) * jnp.arange(1.0, 5.0)).sum()

    tx.config.update("enable_x64", True)
    try:
        gradients = tx.grad(loss, argnums=(0, 1))(x, y)
        for k, v in enumerate((x, y)):
            for d in range(v.size):
                step = np.zeros_like(v)
                step[d] = 1e-6
                up, down = ((x + s * step, y) if k == 0 else (x, y + s * step) for s in (1, -1))
                expected = (float(loss(*map(jnp.asarray, up))) - float(loss(*map(jnp.asarray, down)))) / 2e-6
                assert abs(float(gradients[k][d]) - expected) < 1e-6
    finally:
        tx.config.update("enable_x64", False)


def test_products_with_zeros_have_gradients() -> None:
    index = np.array([0, 0, 1])
    gradient = tx.grad(lambda y: jnp.ones(2).at[index].multiply(y).sum())(np.float32([0, 3, 0]))
    same(gradient, np.float32([3, 0, 1]))


@pytest.mark.parametrize("x", [0.0, 1.5])
@pytest.mark.parametrize("factors", list(itertools.product((0.0, 2.0), repeat=3)))
def test_products_with_zeros_have_second_derivatives(x: float, factors: tuple[float, ...]) -> None:
    def scattered(x: Any, y: Any) -> Any:
        return x.at[np.array([0, 0, 0])].multiply(y).sum()

    def multiplied(x: Any, y: Any) -> Any:
        return x[0] * y[0] * y[1] * y[2]

    given = jnp.array([x]), jnp.array(factors)
    expected = tx.tree.leaves(tx.hessian(multiplied, (0, 1))(*given))
    for transform in (tx.jacfwd, tx.jacrev):
        for found, part in zip(
            tx.tree.leaves(transform(tx.grad(scattered, (0, 1)), (0, 1))(*given)), expected, strict=True
        ):
            np.testing.assert_allclose(found, part, 1e-6)


@pytest.mark.parametrize(("x", "factors"), [(1e-30, (1e30, 1e30)), (1e30, (1e-30, 1e-30)), (0.0, (1e30, 1e30))])
def test_products_of_factors_out_of_range_have_gradients_where_the_value_is_in_range(x: float, factors: Any) -> None:
    def total(x: Any, y: Any) -> Any:
        return jnp.asarray(x).at[np.array([0, 0])].multiply(y).sum()

    for gradient in (tx.grad(total, 1), tx.jit(tx.grad(total, 1))):
        np.testing.assert_allclose(gradient(np.float32([x]), np.float32(factors)), [x * factors[1]] * 2, 1e-6)


def test_unique_factors_have_the_element_as_derivative_whatever_they_are() -> None:
    factors, x = np.float32([np.inf, np.nan, 1e30, 0]), np.float32([2, 3, 1e30, 5])

    def total(x: Any, y: Any) -> Any:
        return x.at[np.arange(4)].multiply(y, unique_indices=True).sum()

    for found, expected in zip(tx.grad(total, (0, 1))(x, factors), (factors, x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


# --- traced places ----------------------------------------------------------------------------------------------------


def uses_of_places(mode: str | None) -> dict[str, Callable[..., Any]]:
    """Functions of the package, an array and places in it, which have such a mode in JAX."""
    uses: dict[str, Callable[..., Any]] = {}
    if mode != "drop":
        uses["take"] = lambda m, v, i: m.numpy.take(v, i, axis=1, mode=mode)
    if mode == "wrap":
        return uses
    uses["get"] = lambda m, v, i: v.at[i].get(mode=mode)
    if mode is None:
        uses["rows"] = lambda m, v, i: v[i]
        uses["columns"] = lambda m, v, i: v[:, i]
        uses["both"] = lambda m, v, i: v[i, None, i]
    for name in ("set", "add", "max"):
        uses[name] = lambda m, v, i, name=name: getattr(v.at[i], name)(7.0, mode=mode)
    return uses


@functools.cache
def by_jax(mode: str | None) -> Callable[..., list[Any]]:
    return jax.jit(lambda x, i: [run(jax, x, i) for run in uses_of_places(mode).values()])


@moderate
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=5), st.sampled_from([None, "clip", "fill", "wrap", "drop"]))
def test_places_that_are_not_known(places: list[int], mode: str | None) -> None:
    """Outside the array they do what JAX does."""
    x = values((4, 3))
    i = np.array(places, np.int32)
    uses = uses_of_places(mode)
    for (name, run), expected in zip(uses.items(), by_jax(mode)(x, i), strict=True):
        same(recorded(functools.partial(run, tx), x, i), expected, name)
        if name == "take" and mode is not None:
            same(jnp.take(x, i, axis=1, mode=mode), expected)
        if name == "get":
            same(tx.vmap(lambda k: jnp.asarray(x).at[k].get(mode=mode))(i), expected)


@pytest.mark.parametrize("known", [False, True])
def test_negative_places_that_are_outside(known: bool) -> None:
    x, places = values((4,)), np.array([-1, 2, -4, 5])
    for mode in ("drop", "clip", "fill"):
        for name in ("get", "add"):

            def run(m: Any, i: Any, mode: str = mode, name: str = name) -> Any:
                at = m.numpy.asarray(x).at[i]
                y = () if name == "get" else (np.ones(4, np.float32),)
                return getattr(at, name)(*y, mode=mode, wrap_negative_indices=False)

            found = run(tx, places) if known else tx.jit(lambda i: run(tx, i))(places)
            np.testing.assert_array_equal(np.asarray(found), np.asarray(run(jax, places)))


@pytest.mark.parametrize("mode", ["drop", "clip", "fill"])
@pytest.mark.parametrize("index", [-1, (slice(1, None), -2), (-1, slice(None)), (None, -1), (-1, np.array([0, -1]))])
def test_negative_integers_that_are_outside(index: Any, mode: str) -> None:
    x = values((4, 3))
    for name in ("get", "set", "multiply"):

        def run(m: Any, x: Any, name: str = name) -> Any:
            y = () if name == "get" else (np.float32(9),)
            return getattr(m.numpy.asarray(x).at[index], name)(*y, mode=mode, wrap_negative_indices=False)

        same(run(tx, x), run(jax, x))
        same(recorded(functools.partial(run, tx), x), run(jax, x))


def test_nothing_and_from_nothing() -> None:
    empty = np.zeros((0, 3), np.float32)
    none = np.zeros(0, np.int32)
    same(jnp.asarray(empty)[none], empty)
    same(recorded(lambda v, i: v[i], values((4, 3)), none), empty)
    same(recorded(lambda v, i: v.at[i].set(1.0), values((4, 3)), none), values((4, 3)))
    same(recorded(lambda v, i: v.at[i].add(1.0), empty, np.array([0, 1], np.int32)), empty)
    filled = recorded(lambda v, i: jnp.take(v, i, axis=0, fill_value=7), empty, np.array([0, 1], np.int32))
    same(filled, np.full((2, 3), 7, np.float32))
    same(jnp.asarray(values((4,)))[[]], np.zeros(0, np.float32))
    with pytest.raises(OutOfBoundsError, match="is empty: no index is inside"):
        recorded(lambda v, i: v[i], empty, np.int32(0))
    with pytest.raises(OutOfBoundsError, match=r"take: axis 0 of the array of shape .* is empty"):
        recorded(lambda v, i: jnp.take(v, i, axis=0), empty, np.int32(0))


def test_fill_values_may_be_traced() -> None:
    i = np.array([5, 1], np.int32)
    same(
        recorded(lambda v, f: v.at[i].get(mode="fill", fill_value=f), values((4,)), np.float32(3)), np.float32([3, -2])
    )


def test_one_place_that_is_not_known() -> None:
    x = values((4, 3))
    for k in (-5, -1, 0, 3, 9):
        same(recorded(lambda v, i: v[i], x, np.int32(k)), jax.numpy.asarray(x)[k])
        same(recorded(lambda v, i: v[0, i], x, np.int32(k)), jax.numpy.asarray(x)[0, k])
        same(recorded(lambda v, i: v.at[i].add(1.0), x, np.int32(k)), jax.numpy.asarray(x).at[k].add(1.0))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint32"])
def test_places_of_any_integer_type(dtype: str) -> None:
    x = values((300,))
    i = np.array([0, 100, 120], dtype)
    same(recorded(lambda v, i: v[i], x, jnp.asarray(i, dtype)), x[i])
    same(jnp.asarray(x)[i], x[i])


def test_sizes_that_are_given() -> None:
    x = values((3, 4))
    for size in (0, 3, 12, 15):
        found = recorded(lambda v, size=size: jnp.stack(jnp.nonzero(v > 0, size=size, fill_value=-1)), x)
        expected = jax.numpy.stack(jax.numpy.nonzero(x > 0, size=size, fill_value=-1))
        same(found, expected)
    same(jnp.bincount(jnp.array([1, 1, 5]), length=3), np.array([0, 2, 0], np.int32))
    same(jnp.unique(jnp.array([3, 1, 3]), size=4), jax.numpy.unique(np.array([3, 1, 3]), size=4))
    counts = np.array([1, 2, 0])
    expected = jax.numpy.repeat(np.arange(3), counts, total_repeat_length=5)
    same(jnp.repeat(jnp.arange(3), counts, total_repeat_length=5), expected)


# --- eager ------------------------------------------------------------------------------------------------------------


def test_slices_are_views() -> None:
    x = jnp.arange(10.0)
    assert np.shares_memory(x[2:5].numpy(), x.numpy())
    assert np.shares_memory(x.reshape(2, 5)[1, ::-1].numpy(), x.numpy())


def test_updates_leave_the_array_alone() -> None:
    x = jnp.arange(4)
    y = x.at[1:3].set(9).at[np.array([0])].add(5)
    assert x.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [5, 9, 9, 3]


def test_types_of_updates() -> None:
    """The result has the array's type (but for division, as in JAX); arithmetic is done in the common one."""
    expected = {"set": [0, 2, 2, 2], "add": [0, 2, 3, 4], "multiply": [0, 0, 1, 1], "min": [0, 1, 1, 1]}
    for name, value in (("set", 2.7), ("add", 1.5), ("multiply", 0.5), ("min", 1.5)):
        found = getattr(jnp.arange(4).at[1:], name)(value)
        assert (found.dtype, found.weak_type) == (np.int32, False)
        assert found.tolist() == expected[name]
    for name in ("divide", "power"):
        same(getattr(jnp.arange(4).at[1:], name)(2), getattr(jax.numpy.arange(4).at[1:], name)(2))


# --- errors -----------------------------------------------------------------------------------------------------------

x = jnp.asarray(values((3, 4)))
ERRORS: list[tuple[type[TinyxlaError], str, Callable[[], Any]]] = [
    (OutOfBoundsError, r"index 3 is out of range for axis 0 of size 3, of an array of shape \(3, 4\)", lambda: x[3]),
    (OutOfBoundsError, r"index -5 is out of range for axis 1", lambda: x[0, -5]),
    (OutOfBoundsError, r"index 4 is out of range for axis 1", lambda: x[:, np.array([0, 4])]),
    (OutOfBoundsError, r"index 3 is out of range for axis 0", lambda: x.at[3].set(1.0)),
    (OutOfBoundsError, r"index -4 is out of range for axis 0", lambda: x.at[jnp.array([-4])].add(1.0)),
    (OutOfBoundsError, r"3 indices are too many for an array of shape \(3, 4\)", lambda: x[0, 0, 0]),
    (
        OutOfBoundsError,
        r"a boolean mask has size 2 where the array of shape \(3, 4\) has 3",
        lambda: x[np.array([True, False])],
    ),
    (OutOfBoundsError, r"index 7 is out of range", lambda: jnp.take(x, 7, axis=0)),
    (DTypeError, r"indices are integers or booleans, but got an array of float32", lambda: x[jnp.array([1.0])]),
    (DTypeError, r"indices are integers or booleans, but got an array of float64", lambda: x[1.0]),
    (DTypeError, r"'a' is no index", lambda: x["a"]),
    (DTypeError, r"a slice bound is an integer or None, but got 1.5", lambda: x[1.5:]),
    (ArgumentError, r"a slice has the step 0", lambda: x[::0]),
    (ArgumentError, r"at most one ellipsis", lambda: x[..., ...]),
    (
        ShapeError,
        r"indexing: Incompatible shapes for broadcasting: \(2,\) and \(3,\): sizes",
        lambda: x[np.arange(2), np.arange(3)],
    ),
    (
        ShapeError,
        r"at\[\].set: values of shape \(3,\) do not broadcast to the elements' shape \(4,\)",
        lambda: x.at[0].set(np.ones(3)),
    ),
    (AttributeValueError, r"at\[\].add: mode is one of None, 'fill'", lambda: x.at[0].add(1, mode="around")),
    (ArgumentError, r"at\[\].add: there is no option colour", lambda: x.at[0].add(1, colour="red")),
    (ConcretizationError, r"A boolean mask as an index needs the value", lambda: tx.vmap(lambda v: v[v > 0])(x)),
    (
        ConcretizationError,
        r"for a slice of fixed size at a traced place use lax.dynamic_slice",
        lambda: tx.vmap(lambda i: x[i:])(jnp.arange(2)),
    ),
]


@pytest.mark.parametrize(("kind", "text", "function"), ERRORS, ids=range(len(ERRORS)))
def test_errors(kind: type[TinyxlaError], text: str, function: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=text) as caught:
        function()
    assert caught.value.line is not None
    assert caught.value.line.file == __file__


# --- sorting by any comparator ----------------------------------------------------------------------------------------


@moderate
@given(st.lists(st.integers(-4, 4), max_size=20), st.booleans())
def test_sorting_network_is_a_stable_sort(keys: list[int], by_size: bool) -> None:
    """The general way agrees with the plain one; equal elements keep their order."""
    x = np.array(keys, np.int32)
    number = np.arange(x.size, dtype=np.int32)
    if by_size:
        comparator = sorting.by_magnitude(x.dtype)
        order = np.argsort(np.abs(x), kind="stable")
        expected = x[order]
        found = sorting.sort(ConcreteArray(x), dimensions=(0,), to_apply=comparator, is_stable=True)
        same(found, expected)
        return
    known = sorting.order_computation((x.dtype, number.dtype))
    unknown = Computation("anything", *renamed(known))
    arguments = ConcreteArray(x), ConcreteArray(number)
    plain, general = (sorting.sort(*arguments, dimensions=(0,), to_apply=c, is_stable=True) for c in (known, unknown))
    for a, b in zip(plain, general, strict=True):
        same(a, b)


def renamed(comparator: Computation) -> tuple[Any, Any, Any]:
    """A comparator of another form that says the same: "x < y" as "not x >= y"."""
    from tinyxla.hlo import Instruction
    from tinyxla.ops import elementwise

    made, _ = comparator.copy()
    a, b = made.parameters[:2]
    pred = made.root.shape
    compare = Instruction(elementwise.compare, (a, b), elementwise.Compare("GE", "SIGNED"), pred)
    root = Instruction(elementwise.not_, (compare,), elementwise.not_.attributes(), pred)
    return made.parameters, [*made.parameters, compare, root], root


def test_a_mode_covers_integers_outside_the_array() -> None:
    x = jnp.ones(3)
    assert x.at[5].get(mode="fill", fill_value=7) == 7
    np.testing.assert_array_equal(x.at[5].set(2.0, mode="drop"), np.ones(3))
    np.testing.assert_array_equal(x.at[-1].set(2.0, mode="drop"), [1, 1, 2])
    np.testing.assert_array_equal(jnp.ones((2, 3)).at[4, :2].get(mode="fill", fill_value=0), [0, 0])


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_unsigned_places_are_never_negative(dtype: str) -> None:
    last = np.iinfo(dtype).max
    with tx.enable_x64():
        x, places = jnp.arange(33.0), jnp.array([last, 2, last - 33], dtype)
        for wanted in ([33 + 65, 2, 33 + 65], [32, 2, 32], [int(last) % 33, 2, int(last - 33) % 33]):
            mode = {98: "fill", 32: "clip"}.get(wanted[0], "wrap")
            taken = tx.jit(functools.partial(jnp.take, mode=mode, fill_value=98))(x, places)
            np.testing.assert_array_equal(taken, wanted)
        along = tx.jit(functools.partial(jnp.take_along_axis, axis=0, mode="clip"))(x, places)
        np.testing.assert_array_equal(along, [32, 2, 32])
        np.testing.assert_array_equal(tx.jit(lambda x, i: x.at[i].set(-1))(x, places), x.at[2].set(-1))
        with pytest.raises(OutOfBoundsError, match="out of range for axis 0 of size 33"):
            x[np.array([last], dtype)]


def test_list_is_no_index_where_that_is_refused() -> None:
    x = jnp.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(x[[1, 0]], np.asarray(x)[[1, 0]])
    tx.config.update("list_indices", "refuse")
    try:
        for index, meant in (([1, 0], "array"), ([0, [1]], "tuple"), ([0, slice(None)], "tuple"), ([0, x[0]], "tuple")):
            for call in (lambda i: x[i], lambda i: x.at[i].set(0), lambda i: tx.jit(lambda: x[i])()):
                with pytest.raises(IndexTypeError, match=rf"write x\[{meant}\(index\)\]"):
                    call(index)
        np.testing.assert_array_equal(x[[0, 1], [1, 2]], [1, 5])  # in a tuple lists are arrays
    finally:
        tx.config.update("list_indices", "allow")


@pytest.mark.parametrize("compiled", [False, True])
def test_known_indices_are_as_traced_ones_where_that_is_asked_for(compiled: bool) -> None:
    x = jnp.arange(6).reshape(2, 3)
    indices = [5, -7, (0, 9), (5, slice(1, None)), np.array([0, 7]), (..., 4), np.uint8(200)]
    expected = [[3, 4, 5], [0, 1, 2], 2, [4, 5], [[0, 1, 2], [3, 4, 5]], [2, 5], [3, 4, 5]]
    for index, wanted in zip(indices, expected, strict=True):
        read = tx.jit(lambda x, i=index: x[i]) if compiled else lambda x, i=index: x[i]
        with setting("out_of_bounds_indices", "trace"):
            np.testing.assert_array_equal(read(x), wanted)
        with pytest.raises(OutOfBoundsError):
            read(x)


def test_known_arrays_of_indices_are_clamped_where_that_is_asked_for() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    with setting("out_of_bounds_indices", "clamp"):
        np.testing.assert_array_equal(x[np.array([0, 7])], [[0, 1, 2], [3, 4, 5]])
        np.testing.assert_array_equal(x[:, jnp.array([-9, -1])], [[0, 2], [3, 5]])
        np.testing.assert_array_equal(jnp.take(x, np.array([-2, 2]), axis=0), [[0, 1, 2], [np.nan] * 3])
        np.testing.assert_array_equal(x[7, -9], 3)
        np.testing.assert_array_equal(tx.grad(lambda x: x[7, 1:].sum())(x), [[0, 0, 0], [0, 1, 1]])
        np.testing.assert_array_equal(x.at[np.array([0, 7])].set(0), x.at[0].set(0))
        with pytest.raises(OutOfBoundsError, match="index 7 is out of range"):
            x[:, :0][0, 7]
    with pytest.raises(OutOfBoundsError, match="index 7 is out of range"):
        x[np.array([0, 7])]


@pytest.mark.parametrize("mode", [None, "promise_in_bounds"])
@pytest.mark.parametrize("known", [False, True])
def test_reads_outside_have_no_gradient_where_that_is_asked_for(mode: str | None, known: bool) -> None:
    m, given = np.arange(1, 13, dtype=np.float32).reshape(3, 4), np.array([0, -1, 3, -4, 7, -9])
    clamped = [np.clip(np.where(given < 0, given + n, given), 0, n - 1) for n in m.shape]
    inside = [(-n <= given) & (given < n) for n in m.shape]
    for index, at, counts in (
        (lambda i: (i,), (clamped[0],), inside[0][:, None]),
        (lambda i: (i, i), (clamped[0], clamped[1]), inside[0] & inside[1]),
        (lambda i: (slice(None), i), (slice(None), clamped[1]), inside[1]),
        (lambda i: (1, i), (1, clamped[1]), inside[1]),
        (lambda i: (i[:, None], i), (clamped[0][:, None], clamped[1]), inside[0][:, None] & inside[1]),
    ):

        def read(x: Any, i: Any, index: Any = index) -> Any:
            return x[index(i)] if mode is None else x.at[index(i)].get(mode=mode)

        gradient = np.zeros_like(m)
        np.add.at(gradient, at, 2 * m[at] * counts)
        with setting("out_of_bounds_indices", "clamp"):
            called = read if known else tx.jit(read)
            f = functools.partial(lambda called, x: called(x, given), called)
            np.testing.assert_array_equal(f(jnp.asarray(m)), m[at])
            for moved in (tx.jvp(f, (m,), (m + 1,))[1], tx.linearize(f, m)[1](m + 1)):
                np.testing.assert_array_equal(moved, m[at] + 1)
            np.testing.assert_array_equal(tx.grad(lambda x, f=f: (f(x) ** 2).sum())(m), gradient)


def test_gradient_of_what_is_added_outside_is_that_of_the_nearest_element_where_indices_are_promised() -> None:
    weights, index = np.arange(1.0, 5.0, dtype=np.float32), np.array([0, 7, -1])

    def weighted(u: Any, mode: str, index: Any = index) -> Any:
        return (jnp.zeros(4).at[index].add(u, mode=mode) * weights).sum()

    for mode, expected in (("promise_in_bounds", [1, 4, 4]), ("drop", [1, 0, 4])):
        np.testing.assert_array_equal(tx.grad(weighted)(np.ones(3, np.float32), mode), expected)


@pytest.mark.parametrize(("mode", "gradient"), [(None, [3, 0, 1]), ("clip", [5, 0, 3])])
def test_gather_without_a_mode_has_no_gradient_outside_where_that_is_asked_for(mode: Any, gradient: list[int]) -> None:
    numbers = tx.lax.GatherDimensionNumbers((), (0,), (0,))
    starts = np.array([[0], [-1], [0], [2], [7], [3], [0], [-9]])

    def read(x: Any) -> Any:
        return tx.lax.gather(x, starts, numbers, (1,), mode=mode)

    with setting("out_of_bounds_indices", "clamp"):
        x = np.float32([1, 2, 3])
        np.testing.assert_array_equal(read(x), x[np.clip(starts[:, 0], 0, 2)])
        np.testing.assert_array_equal(tx.grad(lambda x: tx.jit(read)(x).sum())(x), gradient)


def test_traced_bound_of_a_slice_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="A slice bound"):
        tx.jit(lambda x, n: x[:n])(jnp.arange(3), 2)


def test_strict_promotion_holds_for_updates() -> None:
    with tx.numpy_dtype_promotion("strict"):
        assert jnp.zeros(2).at[0].set(1)[0] == 1
        with pytest.raises(PromotionError):
            jnp.zeros(2).at[0].set(jnp.int32(1))


def test_nested_sequences_of_traced_numbers_are_indices() -> None:
    x = jnp.arange(6).reshape(2, 3)
    place = ((0, 1), (1, 0)), 2
    found = tx.jit(lambda x, place: (x[place], x.at[place].set(9)))(x, place)
    wanted = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(found[0], wanted[np.array(place[0]), 2])
    wanted[:, 2] = 9
    np.testing.assert_array_equal(found[1], wanted)


def test_nested_lists_of_traced_places_and_places_of_different_rank_index() -> None:
    x = np.arange(60).reshape(3, 4, 5)
    with tx.numpy_rank_promotion("raise"):
        found = tx.jit(lambda v, i, j: v[[[i], [-1]], [[2, j, 0]]])(jnp.asarray(x), 0, 3)
        np.testing.assert_array_equal(found, x[[[0], [-1]], [[2, 3, 0]]])
        rows, columns = np.array([[0, 2, 1]]), np.array([1, 3, 0])
        found = tx.jit(lambda v, i, j: v[i, j])(jnp.asarray(x), rows, columns)
        np.testing.assert_array_equal(found, x[rows, columns])


@pytest.mark.parametrize("method", ["add", "set", "multiply", "max", "min"])
def test_gradient_of_updates_of_an_empty_array_is_zero(method: str) -> None:
    def total(updates: Any) -> Any:
        update = getattr(jnp.zeros((0, 4)).at[jnp.zeros(2, int)], method)
        return update(updates, mode="drop").sum()

    np.testing.assert_array_equal(tx.grad(total)(jnp.ones((2, 4))), np.zeros((2, 4)))
    np.testing.assert_array_equal(tx.jit(tx.grad(total))(jnp.ones((2, 4))), np.zeros((2, 4)))
