"""`jit`: what is traced when, what goes in and out, and what happens around a compiled function."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tinyxla as tx
from tests.support import ROOT
from tinyxla.errors import ArgumentError, ConcretizationError, DTypeError, LeakedTracerError, ShapeError
from tinyxla.tracing import state
from tinyxla.tracing.config import setting

tnp = tx.numpy


class Counted:
    """A function that counts its traces: under `jit`, how often its Python code runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.count = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


def assert_same(actual: Any, expected: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Equal pytrees of arrays, to rounding, with equal element types and shapes."""
    leaves, tree = tx.tree_util.tree_flatten(actual)
    wanted, wanted_tree = tx.tree_util.tree_flatten(expected)
    assert tree == wanted_tree
    for x, y in zip(leaves, wanted, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        kind = np.complex128 if np.iscomplexobj(y) else np.float64
        np.testing.assert_allclose(np.asarray(x).astype(kind), np.asarray(y).astype(kind), rtol, atol)


# --- when a function is traced ----------------------------------------------------------------------------------------


def test_a_function_is_traced_once_for_equal_shapes() -> None:
    traced = Counted(lambda x: x * 2)
    compiled = tx.jit(traced)
    for k in range(5):
        assert_same(compiled(tnp.full(3, k, "float32")), np.full(3, 2 * k, np.float32))
    assert traced.count == 1


def test_a_trace_for_arrays_serves_traced_ones_too() -> None:
    traced = Counted(lambda x: x * 2)
    compiled, x = tx.jit(traced), tnp.ones(3)
    compiled(x)
    assert_same(tx.jit(lambda x: compiled(compiled(x)))(x), np.full(3, 4, np.float32))
    assert_same(tx.vmap(compiled)(tnp.ones((2, 3))), np.full((2, 3), 2, np.float32))
    assert_same(tx.grad(lambda x: compiled(x).sum())(x), np.full(3, 2, np.float32))
    assert compiled.lower(tx.ShapeDtypeStruct((3,), "float32")).compile()(x).shape == (3,)
    assert traced.count == 1
    compiled(tnp.ones(3, "int32"))
    tx.jit(compiled)(1.0)
    assert traced.count == 3


@pytest.mark.parametrize(
    "other",
    [
        np.ones(4, np.float32),
        np.ones((3, 1), np.float32),
        np.ones(3, np.int32),
        np.ones(3, np.float16),
        1.0,
        [np.ones(3, np.float32)],
        (np.ones(3, np.float32),),
        {"x": np.ones(3, np.float32)},
    ],
    ids=["size", "rank", "integer", "half", "scalar", "list", "tuple", "dict"],
)
def test_other_shapes_types_and_structures_are_traced_anew(other: Any) -> None:
    traced = Counted(lambda tree: tx.tree_util.tree_map(lambda x: x + 1, tree))
    compiled = tx.jit(traced)
    for _ in range(2):
        compiled(np.ones(3, np.float32))
        compiled(other)
    assert traced.count == 2
    assert_same(compiled(other), tx.tree_util.tree_map(lambda x: tnp.asarray(x) + 1, other))


def test_what_eager_calls_make_finds_its_program_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tx.jit(lambda x, y: x * y)
    x = tnp.ones(3)
    f(x, 2.0)
    monkeypatch.delattr("tinyxla.api.jit.Jitted._program")
    np.testing.assert_array_equal(f(x + 1, 2.0), [4, 4, 4])
    np.testing.assert_array_equal(f(f(x, 3.0) + 1, 2.0) - 1, [7, 7, 7])


def test_a_weak_and_a_strong_scalar_are_different_programs() -> None:
    traced = Counted(lambda x: x + np.float16(1))
    compiled = tx.jit(traced)
    assert compiled(2.0).dtype == np.float16
    assert compiled(np.float32(2.0)).dtype == np.float32
    assert compiled(3.0).dtype == np.float16
    assert traced.count == 2


def test_arguments_of_all_kinds_share_a_program() -> None:
    """NumPy arrays, arrays, and views of either, if only their types agree."""
    traced = Counted(lambda x: x.sum())
    compiled = tx.jit(traced)
    values = np.arange(6, dtype=np.float32)
    spread = np.arange(12, dtype=np.float32)[::2]
    for given in (values, tnp.asarray(values), spread, tnp.asarray(spread), tnp.arange(12.0)[::2]):
        assert float(compiled(given)) == np.asarray(given).sum()
    assert traced.count == 1


def test_keywords_and_positions_are_told_apart_but_right() -> None:
    traced = Counted(lambda x, y=10.0: x - y)
    compiled = tx.jit(traced)
    assert float(compiled(3.0)) == -7.0
    assert float(compiled(3.0, 1.0)) == 2.0
    assert float(compiled(3.0, y=1.0)) == 2.0
    assert float(compiled(y=1.0, x=3.0)) == 2.0
    assert float(compiled(x=3.0, y=1.0)) == 2.0
    assert traced.count == 4
    assert float(compiled(3.0, y=2.0)) == 1.0
    assert traced.count == 4


def test_keywords_are_not_taken_for_a_dict() -> None:
    compiled = tx.jit(lambda *args, **named: (len(args), len(named)))
    assert [int(n) for n in compiled((1.0,), {"k": 2.0})] == [2, 0]
    assert [int(n) for n in compiled(1.0, k=2.0)] == [1, 1]
    assert [int(n) for n in compiled((1.0,), {"k": 2.0})] == [2, 0]
    compiled = tx.jit(lambda n, *args, **named: (n, len(args), len(named)), static_argnums=0)
    assert [int(n) for n in compiled(5, (1.0,), {"k": 2.0})] == [5, 2, 0]
    assert [int(n) for n in compiled(5, 1.0, k=2.0)] == [5, 1, 1]


def test_clear_cache_forgets() -> None:
    traced = Counted(lambda x: x + 1)
    compiled = tx.jit(traced)
    compiled(1.0)
    compiled.clear_cache()
    compiled(1.0)
    assert traced.count == 2
    tx.clear_caches()
    assert float(compiled(1.0)) == 2.0


def test_side_effects_happen_when_traced() -> None:
    seen: list[str] = []

    @tx.jit
    def function(x: Any) -> Any:
        seen.append(type(x).__name__)
        return x

    for _ in range(3):
        function(1.0)
    assert seen == ["Tracer"]


# --- static arguments -------------------------------------------------------------------------------------------------


def power(x: Any, n: int) -> Any:
    """Needs `n` as a Python number: it counts a loop."""
    result = 1.0
    for _ in range(n):
        result = result * x
    return result


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 1},
        {"static_argnums": (1,)},
        {"static_argnums": [1]},
        {"static_argnums": -1},
        {"static_argnames": "n"},
        {"static_argnames": ("n",)},
        {"static_argnums": 1, "static_argnames": "n"},
    ],
    ids=str,
)
def test_static_arguments_by_position_and_by_name(options: dict[str, Any]) -> None:
    traced = Counted(power)
    compiled = tx.jit(traced, **options)
    assert float(compiled(2.0, 3)) == 8.0
    assert float(compiled(3.0, 3)) == 27.0
    assert traced.count == 1
    assert float(compiled(2.0, n=4)) == 16.0
    assert float(compiled(x=2.0, n=5)) == 32.0


def test_a_new_static_value_is_a_new_program() -> None:
    traced = Counted(power)
    compiled = tx.jit(traced, static_argnums=1)
    results = [float(compiled(2.0, n)) for n in (1, 2, 3, 1, 2, 3)]
    assert results == [2.0, 4.0, 8.0, 2.0, 4.0, 8.0]
    assert traced.count == 3


def test_static_values_that_are_equal_but_of_other_types_are_told_apart() -> None:
    compiled = tx.jit(lambda x, s: tnp.asarray(s) + x * 0, static_argnums=1)
    assert compiled(np.int32(0), True).dtype == np.int32
    assert compiled(np.int32(0), 1.0).dtype == np.float32
    assert compiled(np.int32(0), 1).dtype == np.int32


def test_static_arguments_of_many_kinds() -> None:
    @functools.partial(tx.jit, static_argnames=("activation", "sizes", "mode"))
    def function(
        x: Any, activation: Callable[[Any], Any], sizes: tuple[int, ...] = (2, 3), mode: str | None = None
    ) -> Any:
        result = activation(x).reshape(sizes)
        return -result if mode == "negative" else result

    x = np.arange(6, dtype=np.float32)
    assert_same(function(x, tnp.square), (x**2).reshape(2, 3))
    assert_same(function(x, tnp.square, (3, 2)), (x**2).reshape(3, 2))
    assert_same(function(x, tnp.square, sizes=(6,), mode="negative"), -(x**2))
    assert_same(function(x, activation=tnp.square, mode=None), (x**2).reshape(2, 3))


@pytest.mark.parametrize("value", [[3], {"n": 3}, np.ones(2), tnp.ones(2)], ids=["list", "dict", "ndarray", "array"])
def test_a_static_argument_that_cannot_be_hashed_is_an_error(value: Any) -> None:
    compiled = tx.jit(lambda x, n: x, static_argnums=1)
    with pytest.raises(
        ArgumentError, match=r"which cannot be hashed .*; pass a tuple instead of a list, or an array as an argument"
    ):
        compiled(1.0, value)
    assert float(compiled(1.0, 3)) == 1.0


def test_static_arguments_that_do_not_exist_are_errors() -> None:
    with pytest.raises(ArgumentError, match="static_argnums has 2, but it takes 2 positional arguments"):
        tx.jit(power, static_argnums=2)
    with pytest.raises(ArgumentError, match="static_argnums has -3, but it takes 2 positional arguments"):
        tx.jit(power, static_argnums=-3)
    with pytest.raises(ArgumentError, match="static_argnames has 'm', but there is no such parameter"):
        tx.jit(power, static_argnames="m")


def test_static_variadic_arguments() -> None:
    compiled = tx.jit(lambda x, *rest: x * sum(rest), static_argnums=(1, 2))
    assert float(compiled(2.0, 3, 4)) == 14.0
    assert float(compiled(2.0, 3)) == 6.0
    named = tx.jit(lambda x, **options: x * options["factor"] + options.get("offset", 0), static_argnames="factor")
    assert float(named(2.0, factor=3)) == 6.0
    assert float(named(2.0, factor=3, offset=1.0)) == 7.0


# --- structures -------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


@tx.tree_util.register_pytree_node_class
class Circle:
    """A registered class: two children and a name that belongs to the structure."""

    def __init__(self, centre: Any, radius: Any, name: str = "circle") -> None:
        self.centre = centre
        self.radius = radius
        self.name = name

    def tree_flatten(self) -> tuple[tuple[Any, Any], str]:
        return (self.centre, self.radius), self.name

    @classmethod
    def tree_unflatten(cls, name: str, children: Any) -> Circle:
        return cls(*children, name)


@tx.tree_util.register_dataclass
@dataclass
class Scale:
    """A registered dataclass with a method that is compiled."""

    factor: Any
    offset: Any

    @tx.jit
    def __call__(self, x: Any) -> Any:
        return x * self.factor + self.offset


TREES: dict[str, Any] = {
    "dict": {"b": 1.0, "a": np.arange(3.0), "nested": {"c": 2}},
    "list": [1.0, [2.0, [3.0]]],
    "tuple": (1.0, (), (2.0,)),
    "namedtuple": Point(1.0, Point(2.0, np.ones(2))),
    "none": (None, {"a": None, "b": 1.0}),
    "empty": {},
    "only none": None,
    "registered": Circle(Point(0.0, 1.0), 2.0, "unit"),
    "dataclass": Scale(2.0, np.ones(2)),
    "integer keys": {2: 1.0, 1: 3.0},
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_pytrees_pass_through(tree: Any) -> None:
    traced = Counted(lambda t: tx.tree_util.tree_map(lambda x: x + 1, t))
    compiled = tx.jit(traced)
    for _ in range(2):
        assert_same(compiled(tree), tx.tree_util.tree_map(lambda x: tnp.asarray(x) + 1, tree))
    assert traced.count == 1
    again = compiled(compiled(tree))
    assert tx.tree_util.tree_structure(again) == tx.tree_util.tree_structure(tree)


def test_pytrees_keep_their_types_and_the_data_of_their_structure() -> None:
    circle = tx.jit(lambda c: c)(TREES["registered"])
    assert type(circle) is Circle
    assert circle.name == "unit"
    assert type(circle.centre) is Point
    traced = Counted(lambda c: c.radius)
    compiled = tx.jit(traced)
    compiled(Circle(0.0, 1.0, "a"))
    compiled(Circle(0.0, 1.0, "b"))
    assert traced.count == 2


def test_the_results_need_not_resemble_the_arguments() -> None:
    def function(x: Any, y: Any) -> Any:
        return {"sum": x + y, "parts": [x, (y, None)], "point": Point(x, {"y": y}), "nothing": None, "number": 3}

    result = tx.jit(function)(1.0, 2.0)
    assert_same(result, tx.tree_util.tree_map(tnp.asarray, function(1.0, 2.0)))
    assert type(result["point"]) is Point
    assert result["nothing"] is None


def test_a_changed_dict_order_is_the_same_structure() -> None:
    traced = Counted(lambda d: d["a"] - d["b"])
    compiled = tx.jit(traced)
    assert float(compiled({"a": 3.0, "b": 1.0})) == 2.0
    assert float(compiled({"b": 1.0, "a": 3.0})) == 2.0
    assert traced.count == 1


# --- unusual signatures -----------------------------------------------------------------------------------------------


def test_no_arguments() -> None:
    traced = Counted(lambda: tnp.arange(3) * 2)
    compiled = tx.jit(traced)
    for _ in range(2):
        assert_same(compiled(), np.array([0, 2, 4], np.int32))
    assert traced.count == 1


@pytest.mark.parametrize("nothing", [None, (), [], {}, (None, [])], ids=repr)
def test_no_results(nothing: Any) -> None:
    assert tx.jit(lambda x: nothing)(np.ones(3)) == nothing


def test_an_argument_returned_as_it_is() -> None:
    x = tnp.arange(4.0)
    for _ in range(2):
        assert_same(tx.jit(lambda x: x)(x), x)
        first, second, third = tx.jit(lambda x: (x, x + 1, x))(x)
        assert_same((first, second, third), (x, x + 1, x))


def test_a_numpy_argument_is_copied_before_its_owner_changes_it() -> None:
    mine = np.arange(3, dtype=np.float32)
    result = tx.jit(lambda x: x)(mine)
    mine[:] = -1
    assert_same(result, np.arange(3, dtype=np.float32))


def test_the_same_result_twice() -> None:
    def function(x: Any) -> Any:
        y = tnp.sin(x)
        return y, y, {"again": y, "reshaped": y.reshape(2, 2)}

    x = np.arange(4, dtype=np.float32)
    assert_same(tx.jit(function)(x), function(x))


def test_an_unused_argument() -> None:
    assert float(tx.jit(lambda x, unused: x)(1.0, np.ones((2, 2)))) == 1.0


def test_results_that_are_constants() -> None:
    @tx.jit
    def function(x: Any) -> Any:
        return 3, 2.5, True, 1j, np.arange(3), tnp.zeros((2, 2)), np.float64(0.5)

    for _ in range(2):
        expected = [3, 2.5, True, 1j, np.arange(3), tnp.zeros((2, 2)), np.float64(0.5)]
        assert_same(list(function(1.0)), [tnp.asarray(x) for x in expected])


def test_variadic_arguments() -> None:
    compiled = tx.jit(lambda *xs, **named: sum(xs) * named.get("scale", 1.0))
    assert float(compiled(1.0, 2.0, 3.0)) == 6.0
    assert float(compiled(1.0, scale=4.0)) == 4.0


def test_what_is_missing_or_too_much_is_pythons_own_error() -> None:
    compiled = tx.jit(lambda x, y: x)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        compiled(1.0)
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        compiled(1.0, 2.0, 3.0)
    assert float(compiled(1.0, 2.0)) == 1.0


def test_docstring_and_name_are_kept() -> None:
    compiled = tx.jit(power, static_argnums=1)
    assert compiled.__name__ == "power"
    assert compiled.__doc__ == power.__doc__
    assert compiled.__wrapped__ is power


@pytest.mark.parametrize(
    "decorate", [tx.jit, tx.jit(), functools.partial(tx.jit), tx.jit(static_argnums=())], ids=range(4)
)
def test_ways_to_decorate(decorate: Callable[..., Any]) -> None:
    @decorate
    def function(x: Any) -> Any:
        return x * 3

    assert float(function(2.0)) == 6.0


def test_callables_that_are_no_functions() -> None:
    class Adder:
        def __init__(self, amount: float) -> None:
            self.amount = amount

        def __call__(self, x: Any) -> Any:
            return x + self.amount

    assert float(tx.jit(Adder(2.0))(1.0)) == 3.0
    assert float(tx.jit(functools.partial(power, n=3))(2.0)) == 8.0
    assert float(tx.jit(functools.partial(power, n=3), static_argnums=())(2.0)) == 8.0
    assert float(tx.jit(tnp.sin)(0.0)) == 0.0
    assert float(tx.jit(tx.jit(lambda x: x + 1))(1.0)) == 2.0


# --- methods ----------------------------------------------------------------------------------------------------------


class Layer:
    """Hashed by identity, so that `self` can be static."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.traces = 0

    @functools.partial(tx.jit, static_argnums=0)
    def by_position(self, x: Any, scale: Any = 1.0) -> Any:
        self.traces += 1
        return self.weight * x * scale

    @functools.partial(tx.jit, static_argnames=("self", "n"))
    def by_name(self, x: Any, n: int = 2) -> Any:
        return self.weight * power(x, n)

    @staticmethod
    @tx.jit
    def plain(x: Any) -> Any:
        return x + 1

    @classmethod
    @functools.partial(tx.jit, static_argnums=0)
    def of_class(cls, x: Any) -> Any:
        assert cls is Layer
        return x + 2


def test_methods_with_a_static_self() -> None:
    first, second = Layer(2.0), Layer(3.0)
    for _ in range(2):
        assert float(first.by_position(5.0)) == 10.0
        assert float(second.by_position(5.0)) == 15.0
        assert float(first.by_position(5.0, scale=2.0)) == 20.0
    assert (first.traces, second.traces) == (2, 1)
    assert float(first.by_name(3.0)) == 18.0
    assert float(first.by_name(3.0, n=1)) == 6.0
    assert float(first.by_name(3.0, 3)) == 54.0
    assert float(Layer.by_position(first, 1.0)) == 2.0


def test_static_and_class_methods() -> None:
    assert float(Layer.plain(1.0)) == 2.0
    assert float(Layer(1.0).plain(1.0)) == 2.0
    assert float(Layer.of_class(1.0)) == 3.0


def test_a_bound_method_is_compiled() -> None:
    class Model:
        def __init__(self) -> None:
            self.bias = 4.0

        def forward(self, x: Any) -> Any:
            return x + self.bias

    assert float(tx.jit(Model().forward)(1.0)) == 5.0


def test_methods_whose_self_is_a_pytree() -> None:
    scale = Scale(2.0, np.ones(2, np.float32))
    assert_same(scale(3.0), np.full(2, 7, np.float32))
    gradient = tx.grad(lambda s: s(3.0).sum())(scale)
    assert type(gradient) is Scale
    assert float(gradient.factor) == 6.0
    assert_same(gradient.offset, np.ones(2, np.float32))


# --- what functions close over ----------------------------------------------------------------------------------------


def test_captured_arrays_small_and_large(generator: np.random.Generator) -> None:
    small = generator.normal(size=3).astype(np.float32)
    large = generator.normal(size=(300, 400)).astype(np.float32)
    arrays = tnp.asarray(small), tnp.asarray(large)
    for _ in range(2):
        assert_same(tx.jit(lambda x: x * small)(2.0), 2 * small)
        assert_same(tx.jit(lambda x: x @ large)(np.ones(300, np.float32)), large.sum(0), 1e-4, 1e-4)
        assert_same(tx.jit(lambda x: (x * arrays[0], x + arrays[1]))(2.0), (2 * small, 2 + large))


def test_captured_arrays_are_those_of_the_trace() -> None:
    """A global that is replaced later does not change a compiled function, as in JAX."""
    holder = {"offset": 1.0}
    compiled = tx.jit(lambda x: x + holder["offset"])
    assert float(compiled(1.0)) == 2.0
    holder["offset"] = 10.0
    assert float(compiled(1.0)) == 2.0
    assert float(compiled(np.int32(1))) == 11.0


def test_different_large_constants_are_different_programs() -> None:
    """Nothing is looked up by a summary of the constants."""
    for k in (0, 5000):
        table = np.zeros(10000, np.float32)
        table[k] = 1.0
        assert float(tx.jit(lambda x, table=table: (x * table)[0])(1.0)) == (k == 0)


def test_closures_over_outer_tracers() -> None:
    def inner_of(y: Any) -> Callable[[Any], Any]:
        return tx.jit(lambda x: x * y + tnp.sin(y))

    def function(y: Any) -> Any:
        return inner_of(y)(3.0) * inner_of(y * 2)(y)

    def of_jax(y: Any) -> Any:
        def inner(y: Any) -> Any:
            return jax.jit(lambda x: x * y + jnp.sin(y))

        return inner(y)(3.0) * inner(y * 2)(y)

    for transform, oracle in ((tx.grad, jax.grad), (tx.jit, jax.jit)):
        assert_same(transform(function)(0.7), oracle(of_jax)(0.7))
    assert_same(tx.jit(tx.grad(function))(0.7), jax.grad(of_jax)(0.7))
    assert_same(tx.grad(tx.grad(function))(0.7), jax.grad(jax.grad(of_jax))(0.7))
    points = np.linspace(-1, 1, 4, dtype=np.float32)
    assert_same(tx.vmap(function)(points), jax.vmap(of_jax)(points))
    assert_same(tx.vmap(tx.grad(tx.jit(function)))(points), jax.vmap(jax.grad(of_jax))(points))


def test_a_closure_does_not_keep_the_tracer_of_an_earlier_trace() -> None:
    current: list[Any] = []
    inner = tx.jit(lambda x: x * current[-1])

    def function(y: Any) -> Any:
        current.append(y)
        return inner(2.0)

    for y in (3.0, 4.0):
        assert float(tx.jit(function)(y)) == 2 * y
        assert float(tx.grad(function)(y)) == 2.0
    current.append(5.0)
    assert float(inner(2.0)) == 10.0


# --- what goes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, 3, 2.5, 1 + 2j, -7, float("inf")], ids=repr)
def test_python_scalars_are_weak(value: Any) -> None:
    result = tx.jit(lambda x: x)(value)
    expected = jax.jit(lambda x: x)(value)
    assert_same(result, expected)
    assert result.weak_type == expected.weak_type


@pytest.mark.parametrize(
    "value", [np.float64(1.5), np.float32(1.5), np.int64(3), np.bool_(True), np.complex128(1j)], ids=repr
)
def test_numpy_scalars_are_not_weak(value: Any) -> None:
    result = tx.jit(lambda x: x)(value)
    expected = jax.jit(lambda x: x)(value)
    assert_same(result, expected)
    assert result.weak_type == expected.weak_type is False
    assert tnp.asarray(value).weak_type is False
    assert_same(
        tx.jit(lambda x, y: x + y)(np.ones(2, np.float16), value), jnp.ones(2, jnp.float16) + jnp.asarray(value)
    )


WEAKNESS: dict[str, Callable[[Any, Any], Any]] = {
    "identity": lambda np_, x: x,
    "times two": lambda np_, x: x * 2,
    "plus weak float": lambda np_, x: x + 1.5,
    "sine": lambda np_, x: np_.sin(x),
    "sum with strong": lambda np_, x: x + np_.float32(1),
    "where": lambda np_, x: np_.maximum(x, 0),
    "reshape": lambda np_, x: np_.reshape(x, (1, 1)),
    "broadcast": lambda np_, x: np_.broadcast_to(x, (3,)),
    "sum": lambda np_, x: np_.sum(x),
    "comparison": lambda np_, x: x > 1,
    "cast": lambda np_, x: x.astype("float32"),
    "power": lambda np_, x: x**2,
    "stack": lambda np_, x: np_.stack([x, x]),
    "negative": lambda np_, x: -x,
    "division": lambda np_, x: x / 2,
}


@pytest.mark.parametrize("value", [3, 2.5], ids=repr)
@pytest.mark.parametrize("function", WEAKNESS.values(), ids=WEAKNESS)
def test_weak_types_are_as_jax_has_them(function: Callable[[Any, Any], Any], value: Any) -> None:
    expected = jax.jit(functools.partial(function, jnp))(value)
    for result in (tx.jit(functools.partial(function, tnp))(value), function(tnp, tnp.asarray(value))):
        assert_same(result, expected)
        assert result.weak_type == expected.weak_type


VIEWS: dict[str, np.ndarray[Any, Any]] = {
    "transposed": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "strided": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::3],
    "reversed": np.arange(5, dtype=np.float32)[::-1],
    "broadcast": np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3)),
    "column-major": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "64-bit": np.arange(5, dtype=np.float64),
    "64-bit integers": np.arange(5),
    "without dimensions": np.array(3.5),
    "empty": np.zeros((0, 3), np.float32),
    "misaligned": np.frombuffer(b"\0" + np.arange(3, dtype=np.float32).tobytes(), np.float32, offset=1, count=3),
    "other byte order": np.arange(4, dtype=">f4"),
    "truth values": np.array([True, False]),
    "read-only": np.arange(3, dtype=np.float32),
}
VIEWS["read-only"].flags.writeable = False


@pytest.mark.parametrize("value", VIEWS.values(), ids=VIEWS)
def test_numpy_arrays_of_all_layouts(value: np.ndarray[Any, Any]) -> None:
    expected = value.astype(jax.dtypes.canonicalize_dtype(value.dtype.newbyteorder("=")))
    compiled = tx.jit(lambda x: (x, x.T, x.sum()))
    for _ in range(2):
        x, transposed, total = compiled(value)
        assert_same(x, expected)
        assert_same(transposed, expected.T)
        np.testing.assert_allclose(np.asarray(total), expected.sum())
        assert_same(compiled(tnp.asarray(value))[0], expected)


def test_64_bits_where_they_are_asked_for() -> None:
    x = tnp.asarray([1.0, 2.0], "float64")
    assert tx.jit(lambda x: x * 2)(x).dtype == np.float64
    assert tx.jit(lambda x: x.astype("float64") + 1)(np.ones(2, np.float32)).dtype == np.float64
    tx.config.update("enable_x64", True)
    try:
        assert tx.jit(lambda x: x * 2)(np.ones(2)).dtype == np.float64
        assert tx.jit(lambda x: x)(3).dtype == np.int64
    finally:
        tx.config.update("enable_x64", False)
    assert tx.jit(lambda x: x)(3).dtype == np.int32


def test_changing_enable_x64_traces_anew() -> None:
    """What a program makes of defaults depends on the option, so it is not looked up across a change."""
    compiled = tx.jit(lambda x: tnp.arange(3) + x)
    x = tnp.ones((), "int8")
    assert compiled(x).dtype == np.int32
    tx.config.update("enable_x64", True)
    try:
        assert compiled(x).dtype == np.int64
    finally:
        tx.config.update("enable_x64", False)
    assert compiled(x).dtype == np.int32


@pytest.mark.parametrize(
    "value", ["text", object(), lambda: 0, {1, 2}, np.array(["a"]), np.array([None])], ids=lambda v: type(v).__name__
)
def test_arguments_that_are_no_arrays(value: Any) -> None:
    compiled = tx.jit(lambda tree: tree)
    with pytest.raises(ArgumentError, match=r"jit of <lambda>: argument tree\['bad'\]\[1\] .*static_argnums"):
        compiled({"bad": [1.0, value], "good": 2.0})
    with pytest.raises(ArgumentError, match=r"jit of <lambda>: argument tree .*static_argnums"):
        compiled(tree=value)


def test_shape_structures_are_for_lowering() -> None:
    compiled = tx.jit(lambda x: x * 2)
    shape = tx.ShapeDtypeStruct((2,), "float32")
    assert "f32[2]" in compiled.lower(shape).as_text()
    with pytest.raises(ArgumentError, match=r"the argument x of type .* is a ShapeDtypeStruct"):
        compiled(shape)


# --- looking inside ---------------------------------------------------------------------------------------------------


def test_lowering_shows_the_graph_and_does_not_compile() -> None:
    traced = Counted(lambda x: tnp.sin(x) * 2)
    compiled = tx.jit(traced)
    lowered = compiled.lower(np.ones(3, np.float32))
    text = lowered.as_text()
    assert text.startswith("HloModule")
    assert "sine(" in text
    assert "multiply(" in text
    assert "digraph" in lowered.as_dot()
    assert lowered.as_svg().startswith("<svg")
    compiled(np.ones(3, np.float32))
    assert traced.count == 1


def test_a_compiled_program_shows_its_kernels() -> None:
    compiled = tx.jit(lambda x: tnp.exp(tnp.sin(x) * 2 + 1)).lower(np.ones(1000, np.float32)).compile()
    assert len(compiled.kernels) == 1
    (kernel,) = compiled.kernels
    assert kernel.name
    assert "for " in kernel.source
    compile(kernel.source, "kernel", "exec")
    assert compiled.as_text()


def test_ahead_of_time_calls() -> None:
    compiled = tx.jit(lambda tree, scale: (tree["a"] + tree["b"]) * scale).lower
    program = compiled({"a": tx.ShapeDtypeStruct((2,), "float32"), "b": np.ones(2)}, scale=2.0).compile()
    x = np.arange(2, dtype=np.float32)
    for _ in range(2):
        assert_same(program({"a": x, "b": x}, scale=3.0), 6 * x)
    with pytest.raises(ArgumentError, match=r"f32\[2\].*f32\[3\]"):
        program({"a": np.ones(3), "b": x}, scale=3.0)
    with pytest.raises(ArgumentError, match="structure"):
        program({"a": x, "c": x}, scale=3.0)
    with pytest.raises(ArgumentError, match="structure"):
        program({"a": x, "b": x}, 3.0)


def test_ahead_of_time_calls_leave_out_static_arguments() -> None:
    program = tx.jit(power, static_argnums=1).lower(2.0, 3).compile()
    assert float(program(2.0)) == 8.0


def test_ahead_of_time_programs_take_values_alone() -> None:
    program = tx.jit(lambda x: x * 2).lower(1.0).compile()
    with pytest.raises(ConcretizationError, match="A compiled program"):
        tx.jit(lambda x: program(x))(1.0)

    def closes_over(y: Any) -> Any:
        return tx.jit(lambda x: x * y).lower(1.0).compile()(2.0)

    with pytest.raises(ArgumentError, match="closes over"):
        tx.grad(closes_over)(1.0)


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_jit() -> Iterator[None]:
    tx.config.update("disable_jit", True)
    yield
    tx.config.update("disable_jit", False)


def test_disable_jit_runs_plain_python(without_jit: None) -> None:
    traced = Counted(lambda x: float(x) if x > 0 else x)
    compiled = tx.jit(traced)
    for _ in range(2):
        assert compiled(tnp.asarray(2.0)) == 2.0
    assert traced.count == 2


def test_disable_jit_also_after_a_program_was_compiled() -> None:
    traced = Counted(lambda x: x + 1)
    compiled = tx.jit(traced)
    x = tnp.ones(2)
    compiled(x)
    tx.config.update("disable_jit", True)
    try:
        compiled(x)
        assert traced.count == 2
    finally:
        tx.config.update("disable_jit", False)
    assert_same(compiled(x), np.full(2, 2, np.float32))


class Trouble(Exception):
    """An exception of the user's."""


@pytest.mark.parametrize(
    "around",
    [lambda f: f, tx.grad, tx.vmap, tx.jit, lambda f: tx.grad(tx.jit(f)), lambda f: tx.jit(tx.grad(f)), tx.make_graph],
    ids=["jit", "grad", "vmap", "jit of jit", "grad of jit", "jit of grad", "graph"],
)
def test_an_exception_leaves_the_state_clean(around: Callable[..., Any]) -> None:
    broken = True
    traced = Counted(lambda x: x)

    def function(x: Any) -> Any:
        traced(x)
        if broken:
            raise Trouble("on purpose")
        return x.sum() * 2.0

    x = np.ones(3, np.float32)
    given = around(tx.jit(function))
    argument = np.ones((2, 3), np.float32) if around is tx.vmap else x
    for _ in range(3):
        with pytest.raises(Trouble, match="on purpose"):
            given(argument)
        assert (state.depth, state.staging) == (0, None)
        eager = tnp.ones(2) + 1
        assert_same(eager, np.full(2, 2, np.float32))  # nothing is staged any more
        assert type(eager).__name__ == "Array"
    assert traced.count == 3  # what failed is not kept
    broken = False
    given(argument)
    assert_same(tx.jit(function)(x), np.asarray(6, np.float32))


def test_a_caught_exception_inside_a_trace() -> None:
    def inner(x: Any) -> Any:
        raise Trouble

    @tx.jit
    def function(x: Any) -> Any:
        try:
            tx.jit(inner)(x)
        except Trouble:
            return x * 2
        return x

    assert float(function(3.0)) == 6.0


def test_recursion() -> None:
    @functools.partial(tx.jit, static_argnums=1)
    def factorial(x: Any, n: int) -> Any:
        return x if n == 0 else n * factorial(x, n - 1)

    assert float(factorial(1.0, 6)) == 720.0
    assert float(tx.grad(lambda x: factorial(x, 4))(1.0)) == 24.0


def test_endless_recursion_is_pythons_own_error() -> None:
    @tx.jit
    def forever(x: Any) -> Any:
        return forever(x)

    with pytest.raises(RecursionError):
        forever(1.0)
    assert float(tx.jit(lambda x: x + 1)(1.0)) == 2.0


def test_a_leaked_tracer_is_an_error_when_used() -> None:
    leaked: list[Any] = []
    tx.jit(lambda x: leaked.append(x * 2) or x)(1.0)
    with pytest.raises(LeakedTracerError, match="has ended"):
        tx.jit(lambda x: x + leaked[0])(1.0)
    assert float(tx.jit(lambda x: x + 1)(1.0)) == 2.0


# --- nesting ----------------------------------------------------------------------------------------------------------


def smooth(np_: Any) -> Callable[[Any], Any]:
    return lambda x: np_.sum(np_.sin(x) * np_.exp(-x * x) + x @ x)


def nested(jit: Any, grad: Any, vmap: Any, function: Callable[[Any], Any]) -> dict[str, Callable[[Any], Any]]:
    """Functions of a matrix, whose rows are mapped over."""
    return {
        "jit vmap": jit(vmap(function)),
        "vmap jit": vmap(jit(function)),
        "jit grad jit": lambda x: jit(grad(jit(function)))(x[0]),
        "vmap grad jit": vmap(grad(jit(function))),
        "jit vmap grad": jit(vmap(grad(function))),
        "vmap jit grad": vmap(jit(grad(function))),
        "grad jit vmap": grad(lambda x: jit(vmap(function))(x).sum()),
        "jit grad vmap jit": jit(grad(lambda x: vmap(jit(function))(x).sum())),
        "jit jit jit": jit(jit(jit(vmap(function)))),
        "grad grad jit": lambda x: grad(lambda y: grad(jit(function))(y).sum())(x[0]),
    }


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", list(nested(jax.jit, jax.grad, jax.vmap, smooth(jnp))))
def test_nesting(name: str, generator: np.random.Generator) -> None:
    x = generator.normal(size=(3, 4)).astype(np.float32)
    given = nested(tx.jit, tx.grad, tx.vmap, smooth(tnp))[name]
    expected = nested(jax.jit, jax.grad, jax.vmap, smooth(jnp))[name](x)
    for _ in range(2):
        assert_same(given(x), expected, 1e-4, 1e-5)


def test_everything_inside_is_recorded() -> None:
    """Also what depends on no argument: it is computed when the program runs, not when it is traced."""
    inner = tx.jit(lambda x: x * 3)
    known = tnp.ones(3)
    inner(known)
    module = tx.make_graph(lambda: (tnp.zeros(3) + tnp.ones(3), inner(known)))()
    names = [x.op.name for x in module.entry.instructions]
    assert "add" in names
    assert "call" in names
    assert "parameter" not in names


def test_an_inner_function_is_traced_once_for_all_its_calls() -> None:
    inner = Counted(lambda x: tnp.sin(x))
    compiled = tx.jit(inner)
    tx.jit(lambda x: compiled(x) + compiled(x * 2) + compiled(x + 1))(1.0)
    assert inner.count == 1


# --- size -------------------------------------------------------------------------------------------------------------


def test_an_unrolled_loop() -> None:
    def function(x: Any, w: Any) -> Any:
        for _ in range(200):
            x = tnp.tanh(x @ w) + x * 0.5
        return x.sum()

    def of_jax(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 200, lambda _, x: jnp.tanh(x @ w) + x * 0.5, x).sum()

    x, w = np.ones((2, 3), np.float32), np.full((3, 3), 0.1, np.float32)
    assert_same(tx.jit(function)(x, w), jax.jit(of_jax)(x, w), 1e-3)
    assert_same(tx.jit(tx.grad(function))(x, w), jax.jit(jax.grad(of_jax))(x, w), 1e-3)


@pytest.mark.parametrize(
    "around", [lambda f: f, tx.grad, lambda f: tx.grad(tx.jit(f))], ids=["jit", "grad", "jit of grad"]
)
def test_a_long_chain_does_not_recurse(around: Callable[..., Any]) -> None:
    count = 1000

    def function(x: Any) -> Any:
        for k in range(count):
            x = x * 0.5 + 1.0 if k % 2 else x + 1.0
        return x

    value, slope = 3.0, 1.0
    for k in range(count):
        value, slope = (value * 0.5 + 1.0, slope * 0.5) if k % 2 else (value + 1.0, slope)
    result = tx.jit(around(function))(3.0)
    np.testing.assert_allclose(float(result), value if around(function) is function else np.float32(slope), 1e-5)


def test_many_results() -> None:
    results = tx.jit(lambda x: [x + k for k in range(300)])(np.ones(2, np.float32))
    assert len(results) == 300
    for k, result in enumerate(results):
        assert_same(result, np.full(2, 1 + k, np.float32))


def test_many_arguments() -> None:
    tree = {f"w{k:03}": np.full(2, k, np.float32) for k in range(300)}
    traced = Counted(lambda t: tx.tree_util.tree_map(lambda x: x * 2, t))
    compiled = tx.jit(traced)
    for _ in range(2):
        assert_same(compiled(tree), {name: 2 * x for name, x in tree.items()})
    assert traced.count == 1


# --- threads and processes --------------------------------------------------------------------------------------------


def test_threads_call_one_function(generator: np.random.Generator) -> None:
    """Each thread has its own arguments, and large ones too, which the function splits over threads of its own."""
    compiled = tx.jit(lambda x: (tnp.tanh(x * 2) @ x.T).sum(1) + x[:, 0])
    inputs = [generator.normal(size=(n, 300)).astype(np.float32) for n in (3, 300, 3, 301)]
    barrier = threading.Barrier(len(inputs))

    def work(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        barrier.wait()
        return [np.asarray(compiled(x)) for _ in range(30)]

    with ThreadPoolExecutor(len(inputs)) as pool:
        for x, results in zip(inputs, pool.map(work, inputs), strict=True):
            expected = (np.tanh(x * 2) @ x.T).sum(1) + x[:, 0]
            for result in results:
                np.testing.assert_allclose(result, expected, 1e-3, 1e-3)


def test_threads_trace_and_compile_different_functions() -> None:
    """A trace belongs to its thread: it records nothing that another thread computes."""
    barrier = threading.Barrier(4)

    def work(k: int) -> list[float]:
        barrier.wait()
        found: list[float] = []
        for n in range(5):
            scale = float(10 * k + n)
            compiled = tx.jit(lambda x, scale=scale, n=n: tnp.sum(tnp.cos(x) * scale) + n)
            found.append(float(compiled(np.zeros(4 + n, np.float32))))
            found.append(float(tnp.sum(tnp.full(3, scale))))
            found.append(float(tx.grad(compiled)(np.full(2, np.pi / 2, np.float32)).sum()))
        return found

    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(work, range(4))):
            expected = [v for n in range(5) for v in ((10 * k + n) * (4 + n) + n, 3 * (10 * k + n), -2 * (10 * k + n))]
            np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_what_other_threads_do_during_a_trace_is_not_recorded() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @tx.jit
    def function(x: Any) -> Any:
        inside.set()
        assert go_on.wait(60)
        return x * 2

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(function, 1.0)
        assert inside.wait(60)
        try:
            assert type(tnp.ones(3) + 1).__name__ == "Array"
            assert float(tx.grad(lambda x: x * x)(3.0)) == 6.0
            assert float(tx.jit(lambda x: x + 1)(3.0)) == 4.0
        finally:
            go_on.set()
        assert float(result.result(60)) == 2.0


def run_python(script: str, **environment: str) -> str:
    """What a script prints in a Python process of its own."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=settings, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_goes_on_computing() -> None:
    script = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
import tinyxla as tx

known = tx.jit(lambda x: (x * 2).sum())
fresh = tx.jit(lambda x: (x + 3).sum())
x = tx.numpy.ones((1000, 1000))
assert float(known(x)) == 2e6
child = os.fork()
if child == 0:
    ok = float(known(x)) == 2e6 and float(fresh(x)) == 4e6 and float(fresh(tx.numpy.ones(3))) == 12.0
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert float(known(x)) == 2e6
print(os.waitstatus_to_exitcode(status))
"""
    assert run_python(script) == "0"


def test_importing_the_package_imports_no_compiler() -> None:
    script = """
import sys
import tinyxla as tx

tx.grad(lambda x: tx.numpy.sin(x).sum())(tx.numpy.arange(3.0))
tx.vmap(tx.numpy.cos)(tx.numpy.arange(3.0))
late = {"numba", "llvmlite", "scipy", "jax", "jaxlib", "matplotlib"}
late |= {f"tinyxla.{name}" for name in "compiler text debug nn random scipy".split()}
print(sorted(late & set(sys.modules)))
tx.jit(lambda x: x)
print(sorted(late & set(sys.modules)))
"""
    assert run_python(script) == "[]\n['llvmlite', 'tinyxla.compiler', 'tinyxla.text']"


def test_without_a_compiler_the_interpreter_does_everything() -> None:
    script = """
import sys

for name in ("llvmlite", "numba"):
    sys.modules[name] = None  # what makes Python say that there is no such module
import numpy as np
import tinyxla as tx

tnp = tx.numpy
x = np.arange(6, dtype=np.float32).reshape(2, 3)
function = lambda x: tnp.sum(tnp.tanh(x @ x.T) ** 2)
slope = tx.grad(function)(x)
assert slope.shape == (2, 3)
np.testing.assert_allclose(tx.jit(function)(x), function(tnp.asarray(x)), 1e-6)
np.testing.assert_allclose(tx.jit(tx.grad(function))(x), slope, 1e-5)
np.testing.assert_allclose(tx.vmap(tx.jit(lambda r: r @ r))(x), (x * x).sum(1), 1e-6)
np.testing.assert_allclose(tx.grad(tx.jit(function))(x), slope, 1e-5)
assert tx.random.normal(tx.random.key(0), (3,)).shape == (3,)
compiled = tx.jit(function).lower(x).compile()
assert len(compiled.kernels) == 0 and compiled.as_text()
print("done")
"""
    assert run_python(script) == "done"


def test_a_size_error_inside_names_the_users_line() -> None:
    with pytest.raises(ShapeError, match=r"test_jit\.py:\d+"):
        tx.jit(lambda x: x + np.ones(4))(np.ones(3))


class _Level(IntEnum):
    LOW = 1
    HIGH = 2


def test_calls_are_told_apart() -> None:
    """By names and their order, static values and their types, numbers and NumPy arrays, and containers."""

    @functools.partial(tx.jit, static_argnums=(-1,), static_argnames="power")
    def function(x: Any, y: Any, kind: Any, *, power: Any = 1) -> Any:
        traced.append((kind, power))
        parts = y.values() if isinstance(y, dict) else [y]
        return (x + sum(parts)) ** power * (2 if isinstance(kind, bool) else 3)

    traced: list[Any] = []
    x = np.arange(3, dtype=np.float32)
    for _ in range(2):
        assert_equal(function(x, 1, True), (x + 1) * 2)
        assert_equal(function(x, 1, 1), (x + 1) * 3)
        assert_equal(function(x, 1.5, 1, power=2), (x + 1.5) ** 2 * 3)
        assert_equal(function(tx.numpy.asarray(x), x, 1, power=2), (x + x) ** 2 * 3)
        assert_equal(function(x, {"a": x, "b": 2.0}, 1), (2 * x + 2) * 3)
    assert len(traced) == 5
    named = tx.jit(lambda a, b: a - b)
    for _ in range(2):
        assert float(named(a=3, b=1)) == float(named(b=1, a=3)) == float(named(3, b=1)) == 2
        assert float(named(_Level.HIGH, _Level.LOW)) == 1
        assert np.isinf(float(named(1e300, 0)))
    with pytest.raises(ArgumentError, match="cannot be hashed"):
        function(x, 1, [1])


def assert_equal(got: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(np.asarray(got), wanted)


def test_arrays_that_were_pickled_in_another_process_find_their_own_programs() -> None:
    first = "import pickle, sys, tinyxla.numpy as jnp; a, b = jnp.ones((2, 3)), jnp.ones((3, 2)); "
    first += "a.signature(), b.signature(); sys.stdout.buffer.write(pickle.dumps((a, b)))"
    sent = subprocess.run([sys.executable, "-c", first], capture_output=True, check=True).stdout
    second = "import pickle, sys, tinyxla as tx, tinyxla.numpy as jnp; f = tx.jit(lambda x: x * 2); "
    second += "f(jnp.ones((3, 2))), f(jnp.ones((2, 3))); "
    second += "print([f(x).shape for x in pickle.loads(sys.stdin.buffer.read())])"
    found = subprocess.run([sys.executable, "-c", second], input=sent, capture_output=True, check=True).stdout
    assert found.decode().strip() == "[(2, 3), (3, 2)]"


def test_pickled_arrays_are_arrays() -> None:
    for x in (tx.numpy.arange(3.0), tx.numpy.asarray(2), tx.numpy.asarray(np.arange(4, dtype=np.int8).reshape(2, 2))):
        twin = pickle.loads(pickle.dumps(x))
        assert (twin.tolist(), twin.dtype, twin.weak_type) == (x.tolist(), x.dtype, x.weak_type)


def test_names_are_those_of_parameters_that_are_passed_by_name() -> None:
    def function(a: Any, /, b: Any, *rest: Any, **others: Any) -> Any:
        return a

    for name in ("a", "rest"):
        for option in ("static_argnames", "donate_argnames"):
            with pytest.raises(ArgumentError, match=f"{name!r}, but this parameter is not passed by name"):
                tx.jit(function, **{option: name})
    tx.jit(function, static_argnames=("b", "anything"))


@pytest.mark.parametrize(
    ("options", "static"),
    [
        ({"static_argnums": 1, "static_argnames": ()}, (True, False)),
        ({"static_argnums": (), "static_argnames": "y"}, (False, True)),
        ({"static_argnames": "y"}, (True, True)),
    ],
)
def test_positions_and_names_that_are_both_given_mean_what_they_say(options: Any, static: tuple[bool, bool]) -> None:
    found = []
    function = tx.jit(lambda x, y: found.append(type(y) is int) or x, **options)
    function(1, 2)
    function(1, y=2)
    assert tuple(found) == static


def test_static_arguments_that_cannot_be_compared_are_an_error() -> None:
    class Incomparable:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            raise NotImplementedError

    function = tx.jit(lambda x, y: x, static_argnums=1)
    function(1, Incomparable())
    with pytest.raises(ArgumentError, match=r"\(Incomparable\) cannot be compared .*NotImplementedError"):
        function(1, Incomparable())


def test_static_methods_are_refused() -> None:
    with pytest.raises(ArgumentError, match="put @staticmethod above @jit"):
        tx.jit(staticmethod(lambda x: x))


def test_masked_arrays_are_refused() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for function in (tx.jit(lambda x: x), tnp.sin, tnp.asarray, tnp.sum):
        with pytest.raises((ArgumentError, DTypeError), match="masked array"):
            function(masked)


def test_no_tracing_is_an_error_where_a_function_is_traced() -> None:
    function = tx.jit(lambda x: x + 1)
    function(1.0)
    with setting("no_tracing", True):
        assert float(function(2.0)) == 3
        with pytest.raises(RuntimeError, match="it is traced for a call, but the option no_tracing"):
            function(2)


def test_no_execution_is_an_error_where_a_function_runs() -> None:
    function = tx.jit(lambda x: x + 1)
    with setting("no_execution", True):
        assert function.lower(1.0).out_info.shape == ()
        with pytest.raises(RuntimeError, match="it runs, but the option no_execution"):
            function(2)


def test_lowered_functions_know_which_arguments_are_weakly_typed() -> None:
    (types, _) = tx.jit(lambda x, y: x + y).lower(1.0, tnp.float32(1)).args_info
    assert [x.weak_type for x in types] == [True, False]


def test_functions_that_are_compiled_anew_by_each_call_are_traced_once() -> None:
    traced = []

    def function(x: Any, n: int = 1) -> Any:
        traced.append(n)
        return x * n

    for _ in range(3):
        assert float(tx.jit(function)(2.0)) == 2
        assert float(tx.jit(function, static_argnums=1)(2.0, 3)) == 6
    assert len(traced) == 2
    tx.jit(function).clear_cache()
    tx.jit(function)(2.0)
    tx.clear_caches()
    tx.jit(function)(2.0)
    assert len(traced) == 4


def test_programs_of_a_function_end_with_it() -> None:
    array = tnp.ones(10)
    function = (lambda x: lambda y: x + y)(array)
    tx.jit(function)(1.0)
    held = weakref.ref(array)
    del array, function
    gc.collect()
    assert held() is None


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [((1, {"a": "text"}), {}, r"x\['a'\]"), ((1, 2, "text"), {}, r"rest\[0\]"), ((1, 2), {"scale": "text"}, "scale")],
)
def test_argument_that_is_no_array_is_named_as_the_function_does(args: Any, kwargs: Any, name: str) -> None:
    function = tx.jit(lambda n, x, *rest, scale=1: x, static_argnums=0)
    with pytest.raises(tx.errors.ArgumentError, match=f"argument {name} is 'text' of type str"):
        function(*args, **kwargs)
