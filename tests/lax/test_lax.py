"""`tinyxla.lax` against `jax.lax`: values, types, gradients, batching, compilation, and its own errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tinyxla
from tinyxla import lax
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
    TinyxlaError,
    TracerError,
)
from tinyxla.lax import elementwise
from tinyxla.text.hlo_text import OPCODES

F = np.array([[0.3, -1.2, 2.5], [-0.7, 0.9, -2.1]], np.float32)
UNIT = np.array([[0.3, -0.2, 0.5], [-0.7, 0.9, -0.1]], np.float32)
ABOVE = np.abs(F) + 1.5
I = np.array([[3, -7, 12], [5, 0, -1]], np.int32)  # noqa: E741
U = np.array([[3, 7, 200], [5, 0, 1]], np.uint8)
B = np.array([[True, False, True], [False, False, True]])
C = F + 1j * np.flip(F, 1)


HALVES = np.float32([0.5, 1.5, -2.5])
SPECIAL = np.float32([1e-6, 1.23, 7e4, np.nan, -0.0])
BYTES = np.arange(16, dtype=np.uint8).reshape(4, 4)


class Case(NamedTuple):
    """A function of a namespace - `tinyxla.lax` or `jax.lax` - and arrays."""

    name: str
    call: Callable[..., Any]
    arrays: tuple[Any, ...]


def simple(names: str, *arrays: Any) -> list[Case]:
    return [
        Case(f"{name}:{arrays[0].dtype}", lambda ns, *xs, name=name: getattr(ns, name)(*xs), arrays)
        for name in names.split()
    ]


ELEMENTWISE = [
    *simple("abs ceil cos cosh erf exp exp2 expm1 floor is_finite logistic neg round sign sin sinh square tan tanh", F),
    *simple("asinh atan cbrt reciprocal", F),
    *simple("acos asin atanh erf_inv", UNIT),
    *simple("acosh log log1p rsqrt sqrt", ABOVE),
    *simple("abs neg sign square bitwise_not population_count clz", I),
    *simple("bitwise_not population_count clz", U),
    *simple("abs conj cos exp imag neg real sin sign tanh", C),
    *simple("bitwise_not", B),
    *simple("add atan2 div eq ge gt le lt max min mul ne rem sub complex nextafter", F, ABOVE),
    *simple("pow", ABOVE, F),
    *simple("add bitwise_and bitwise_or bitwise_xor div max min mul rem sub eq lt", I, np.flip(I)),
    *simple("shift_left shift_right_arithmetic shift_right_logical", I, np.abs(I)),
    *simple("shift_left shift_right_logical div rem", U, np.flip(U)),
    *simple("bitwise_and bitwise_or bitwise_xor max min eq", B, np.flip(B)),
    *simple("add mul sub div pow eq", C, np.conj(C) + 1),
    Case("add number", lambda ns, x: ns.add(x, 1.5), (F,)),
    Case("number minus", lambda ns, x: ns.sub(2, x), (I,)),
    Case("scalar array", lambda ns, x, y: ns.mul(x, y), (F, np.float32(3))),
    Case("size 1", lambda ns, x, y: ns.mul(x, y), (F[:, :1], F[:1])),
    Case("pow of integers", lambda ns, x, y: ns.pow(x, y), (F, np.abs(I) % 4)),
    Case("integer_pow", lambda ns, x: ns.integer_pow(x, 5), (F,)),
    Case("integer_pow negative", lambda ns, x: ns.integer_pow(x, -3), (F,)),
    Case("integer_pow zero", lambda ns, x: ns.integer_pow(x, 0), (F,)),
    Case("integer_pow of integers", lambda ns, x: ns.integer_pow(x, 3), (I,)),
    Case("round to even", lambda ns, x: ns.round(x, ns.RoundingMethod.TO_NEAREST_EVEN), (HALVES,)),
    Case("select", lambda ns, p, x, y: ns.select(p, x, y), (B, F, ABOVE)),
    Case("select scalar", lambda ns, p, x, y: ns.select(p, x, y), (np.bool_(True), F, ABOVE)),
    Case("select_n", lambda ns, k, x, y, z: ns.select_n(k, x, y, z), (np.abs(I) % 3, F, ABOVE, UNIT)),
    Case("clamp", lambda ns, x: ns.clamp(-1.0, x, 1.0), (F,)),
    Case("clamp arrays", lambda ns, a, x, b: ns.clamp(a, x, b), (UNIT - 1, F, UNIT + 1)),
    Case("convert", lambda ns, x: ns.convert_element_type(x, np.int32), (F * 10,)),
    Case("convert to bool", lambda ns, x: ns.convert_element_type(x, bool), (I,)),
    Case("convert narrow", lambda ns, x: ns.convert_element_type(x, jnp.bfloat16), (F,)),
    Case("reduce_precision", lambda ns, x: ns.reduce_precision(x, 5, 3), (SPECIAL,)),
    Case("bitcast", lambda ns, x: ns.bitcast_convert_type(x, np.int32), (F,)),
    Case("bitcast narrower", lambda ns, x: ns.bitcast_convert_type(x, np.uint8), (F,)),
    Case(
        "bitcast wider",
        lambda ns, x: ns.bitcast_convert_type(x, np.float32),
        (BYTES,),
    ),
]

T = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
MOVEMENT = [
    Case("broadcast", lambda ns, x: ns.broadcast(x, (2, 2)), (F,)),
    Case("broadcast_in_dim", lambda ns, x: ns.broadcast_in_dim(x, (2, 4, 3), (0, 2)), (F,)),
    Case("broadcast_in_dim size 1", lambda ns, x: ns.broadcast_in_dim(x, (2, 3), (0, 1)), (F[:, :1],)),
    Case("broadcast_to_rank", lambda ns, x: ns.broadcast_to_rank(x, 4), (F,)),
    Case("reshape", lambda ns, x: ns.reshape(x, (4, 6)), (T,)),
    Case("reshape in order", lambda ns, x: ns.reshape(x, (4, 6), (2, 0, 1)), (T,)),
    Case("expand_dims", lambda ns, x: ns.expand_dims(x, (0, -1)), (F,)),
    Case("squeeze", lambda ns, x: ns.squeeze(x, (1,)), (T[:, :1],)),
    Case("collapse", lambda ns, x: ns.collapse(x, 1), (T,)),
    Case("collapse two", lambda ns, x: ns.collapse(x, 0, 2), (T,)),
    Case("transpose", lambda ns, x: ns.transpose(x, (2, 0, 1)), (T,)),
    Case("rev", lambda ns, x: ns.rev(x, (0, 2)), (T,)),
    Case("slice", lambda ns, x: ns.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3)), (T,)),
    Case("slice_in_dim", lambda ns, x: ns.slice_in_dim(x, 1, -1, axis=2), (T,)),
    Case("index_in_dim", lambda ns, x: ns.index_in_dim(x, -1, axis=1), (T,)),
    Case("index_in_dim gone", lambda ns, x: ns.index_in_dim(x, 1, axis=1, keepdims=False), (T,)),
    Case("split", lambda ns, x: ns.split(x, (1, 2), axis=1), (T,)),
    Case("pad", lambda ns, x: ns.pad(x, 7.0, [(1, 0, 1), (-1, 2, 0)]), (F,)),
    Case("concatenate", lambda ns, x, y: ns.concatenate([x, y, x], 1), (F, ABOVE)),
    Case("dynamic_slice", lambda ns, x, i: ns.dynamic_slice(x, (0, i, 1), (2, 2, 3)), (T, np.int32(2))),
    Case("dynamic_slice negative", lambda ns, x, i: ns.dynamic_slice(x, (i, -2, 0), (1, 2, 3)), (T, np.int32(-1))),
    Case("dynamic_slice vector", lambda ns, x, i: ns.dynamic_slice(x, i, (2, 2)), (F, np.array([1, 0], np.int32))),
    Case("dynamic_slice_in_dim", lambda ns, x, i: ns.dynamic_slice_in_dim(x, i, 2, axis=2), (T, np.int32(1))),
    Case("dynamic_index_in_dim", lambda ns, x, i: ns.dynamic_index_in_dim(x, i, 1, False), (T, np.int32(1))),
    Case("dynamic_update_slice", lambda ns, x, y, i: ns.dynamic_update_slice(x, y, (i, 0)), (F, UNIT[:1], np.int32(1))),
    Case(
        "dynamic_update_slice_in_dim",
        lambda ns, x, y, i: ns.dynamic_update_slice_in_dim(x, y, i, 1),
        (F, UNIT[:, :2], np.int32(9)),
    ),
    Case(
        "dynamic_update_index_in_dim",
        lambda ns, x, y, i: ns.dynamic_update_index_in_dim(x, y, i, 1),
        (F, UNIT[:, 0], np.int32(1)),
    ),
    Case(
        "gather",
        lambda ns, x, i: ns.gather(x, i, ns.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3)),
        (F, np.array([[1], [0], [1]], np.int32)),
    ),
    Case(
        "gather clip",
        lambda ns, x, i: ns.gather(x, i, ns.GatherDimensionNumbers((1,), (0,), (0,)), (1, 3), mode="clip"),
        (F, np.array([[1], [0], [5], [-1]], np.int32)),
    ),
    Case(
        "gather fill",
        lambda ns, x, i: ns.gather(x, i, ns.GatherDimensionNumbers((1, 2), (), (0, 1)), (1, 2), mode="fill"),
        (F, np.array([[1, 0], [5, 2]], np.int32)),
    ),
    Case(
        "gather integers",
        lambda ns, x, i: ns.gather(x, i, ns.GatherDimensionNumbers((), (0,), (0,)), (1,), mode="fill"),
        (I[0], np.array([[1], [7]], np.int32)),
    ),
    *(
        Case(
            name,
            lambda ns, x, i, y, name=name, mode=mode: getattr(ns, name)(
                x, i, y, ns.ScatterDimensionNumbers((1,), (0,), (0,)), mode=mode, unique_indices=True
            ),
            (F, np.array([[1], [5], [0]], np.int32), np.stack([UNIT[0], UNIT[1], F[0]])),
        )
        for name, mode in (
            ("scatter", None),
            ("scatter_add", None),
            ("scatter_mul", None),
            ("scatter_min", None),
            ("scatter_max", "drop"),
            ("scatter_sub", None),
        )
    ),
    Case(
        "scatter_add clip",
        lambda ns, x, i, y: ns.scatter_add(x, i, y, ns.ScatterDimensionNumbers((1,), (0,), (0,)), mode="clip"),
        (F, np.array([[1], [5]], np.int32), UNIT),
    ),
    Case("sort", lambda ns, x: ns.sort(x), (F,)),
    Case("sort down", lambda ns, x: ns.sort(x, 0), (F,)),
    Case("sort several", lambda ns, k, x: ns.sort((k, x), num_keys=1), (np.abs(I) % 2, F)),
    Case("sort by two", lambda ns, k, x: ns.sort((k, x), num_keys=2), (np.abs(I) % 2, F)),
    Case("sort_key_val", lambda ns, k, x: ns.sort_key_val(k, x, 0), (I, F)),
    Case("top_k", lambda ns, x: ns.top_k(x, 2), (F,)),
    Case("top_k along", lambda ns, x: ns.top_k(x, 1, axis=0), (F,)),
    Case("stop_gradient", lambda ns, x: ns.mul(x, ns.stop_gradient(x)), (F,)),
    Case("stop_gradient of complex", lambda ns, x: ns.mul(x, ns.stop_gradient(x)), (C,)),
]

DOTS = [
    Case("dot", lambda ns, x, y: ns.dot(x, y), (F, F.T)),
    Case("dot of vectors", lambda ns, x, y: ns.dot(x, y), (F[0], F[1])),
    Case("dot of a vector", lambda ns, x, y: ns.dot(x, y), (F, F[1])),
    Case("dot of mixed types", lambda ns, x, y: ns.dot(x, y), (F, I.T)),
    Case("batch_matmul", lambda ns, x, y: ns.batch_matmul(x, y), (T, T.swapaxes(1, 2))),
    Case("dot_general", lambda ns, x, y: ns.dot_general(x, y, (((2, 1), (0, 1)), ((), ()))), (T, T.transpose(2, 1, 0))),
    Case(
        "dot_general preferring",
        lambda ns, x, y: ns.dot_general(x, y, (((1,), (1,)), ((0,), (0,))), preferred_element_type=np.float32),
        (U[:, :2].astype(np.int8), U[:, 1:].astype(np.int8)),
    ),
]

REDUCTIONS = [
    *(
        Case(f"{name}:{x.dtype}", lambda ns, x, name=name: getattr(ns, name)(x, (0,)), (x,))
        for names, x in (
            ("reduce_sum reduce_max reduce_min reduce_prod", F),
            ("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor", I),
            ("reduce_and reduce_or", B),
        )
        for name in names.split()
    ),
    Case("reduce_sum of all", lambda ns, x: ns.reduce_sum(x, (2, 0)), (T,)),
    Case("reduce", lambda ns, x: ns.reduce(x, 0.0, lambda a, b: a + b, (1,)), (F,)),
    Case("reduce max", lambda ns, x: ns.reduce(x, -np.inf, ns.max, (0, 1)), (F,)),
    Case("reduce by a formula", lambda ns, x: ns.reduce(x, 0.0, lambda a, b: a + b + a * b, (1,)), (UNIT,)),
    Case(
        "reduce of a tree",
        lambda ns, x, y: ns.reduce(
            {"x": x, "y": y}, {"x": 0.0, "y": 1}, lambda a, b: {"x": a["x"] + b["x"], "y": a["y"] * b["y"]}, (0,)
        ),
        (F, I),
    ),
    Case("argmax", lambda ns, x: ns.argmax(x, 1, np.int32), (F,)),
    Case("argmin", lambda ns, x: ns.argmin(x, 0, np.int32), (I,)),
    Case("argmax of bool", lambda ns, x: ns.argmax(x, 1, np.int32), (B,)),
    Case("argmax of NaN", lambda ns, x: ns.argmax(x, 0, np.int32), (np.float32([1, np.nan, 3, np.nan]),)),
    Case("argmax of -inf", lambda ns, x: ns.argmax(x, 0, np.int32), (np.full(3, -np.inf, np.float32),)),
    *(
        Case(f"{name} {reverse}", lambda ns, x, name=name, r=reverse: getattr(ns, name)(x, axis=1, reverse=r), (F,))
        for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
        for reverse in (False, True)
    ),
    Case("cumsum of integers", lambda ns, x: ns.cumsum(x), (U,)),
    Case("associative_scan", lambda ns, x: ns.associative_scan(lambda a, b: a * b, x, axis=1), (ABOVE,)),
    Case(
        "associative_scan of a tree",
        lambda ns, x, y: ns.associative_scan(
            lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, y), reverse=True, axis=1
        ),
        (UNIT[:, :2], F[:, :2]),
    ),
]

CREATION = [
    Case("full", lambda ns: ns.full((2, 3), 7), ()),
    Case("full of a type", lambda ns: ns.full((2,), 1.5, jnp.bfloat16), ()),
    Case("full_like", lambda ns, x: ns.full_like(x, 3), (F,)),
    Case("full_like of a type", lambda ns, x: ns.full_like(x, 3, np.int8, (4,)), (F,)),
    Case("iota", lambda ns: ns.iota(np.float32, 4), ()),
    Case("broadcasted_iota", lambda ns: ns.broadcasted_iota(np.int32, (2, 3), 1), ()),
]

CASES = [*ELEMENTWISE, *MOVEMENT, *DOTS, *REDUCTIONS, *CREATION]
assert len({case.name for case in CASES}) == len(CASES)


def close(ours: Any, theirs: Any) -> None:
    found, treedef = jax.tree.flatten(tinyxla.tree.map(np.asarray, ours))
    wanted, expected = jax.tree.flatten(theirs)
    assert treedef.num_leaves == expected.num_leaves
    for x, y in zip(found, wanted, strict=True):
        want = np.asarray(y)
        assert x.dtype == want.dtype
        assert x.shape == want.shape
        if x.dtype.kind in "fcV":
            wide = np.complex128 if x.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(x.astype(wide), want.astype(wide), rtol=2e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(x, want)


def by_name(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


# --- values -----------------------------------------------------------------------------------------------------------


PARTS = 4  # of the cases: as JAX compiles a part at once, the sample of the default run needs one of them


def by_name_in_parts(cases: list[Case]) -> Any:
    """The first part is in the default run."""
    marks = [pytest.mark.thorough if k % PARTS else () for k in range(len(cases))]
    return pytest.mark.parametrize(
        "case", [pytest.param(c, id=c.name, marks=m) for c, m in zip(cases, marks, strict=True)]
    )


def part_of(case: Case, cases: list[Case]) -> int:
    return next(k for k, c in enumerate(cases) if c is case) % PARTS


@functools.cache
def of_jax(part: int) -> dict[str, Any]:
    """What JAX gives for a part of the cases, by their names."""
    return together({c.name: (functools.partial(c.call, jax.lax), c.arrays) for c in CASES[part::PARTS]})


def together(calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]) -> dict[str, Any]:
    """The results of many functions of arrays, which JAX compiles as one program."""
    program = jax.jit(lambda arrays: {name: function(*arrays[name]) for name, (function, _) in calls.items()})
    return program({name: arrays for name, (_, arrays) in calls.items()})


@by_name_in_parts(CASES)
def test_values(case: Case) -> None:
    expected = of_jax(part_of(case, CASES))[case.name]
    close(case.call(lax, *case.arrays), expected)
    close(tinyxla.jit(lambda *xs: case.call(lax, *xs))(*case.arrays), expected)


BATCHED = [case for case in CASES if case.arrays]


def mappings(case: Case) -> dict[str, tuple[tuple[int | None, ...], tuple[Any, ...]]]:
    """The first array is mapped; then all of them are."""
    stacked = tuple(np.stack([x, np.flip(x)]) for x in case.arrays)
    rest = len(stacked) - 1
    every = {"all": ((0,) * (rest + 1), stacked)}
    return {"the first": ((0,) + (None,) * rest, (stacked[0], *case.arrays[1:])), **every} if rest else every


@functools.cache
def mapped_by_jax(part: int) -> dict[str, Any]:
    return together(
        {
            f"{case.name}, {which}": (jax.vmap(functools.partial(case.call, jax.lax), in_axes=axes), arrays)
            for case in BATCHED[part::PARTS]
            for which, (axes, arrays) in mappings(case).items()
        }
    )


@by_name_in_parts(BATCHED)
def test_batches(case: Case) -> None:
    expected = mapped_by_jax(part_of(case, BATCHED))
    for which, (axes, arrays) in mappings(case).items():
        mapped = tinyxla.vmap(functools.partial(case.call, lax), in_axes=axes)
        close(mapped(*arrays), expected[f"{case.name}, {which}"])


# JAX rounds tangents too, or has no rule.
NOT_LIKE_JAX = ("nextafter:float32", "convert narrow", "reduce_precision", "reduce of a tree")


DIFFERENTIABLE = [case for case in BATCHED if case.arrays[0].dtype == np.float32 and case.name not in NOT_LIKE_JAX]


def floating(case: Case) -> tuple[int, ...]:
    return tuple(k for k, x in enumerate(case.arrays) if x.dtype == np.float32)


def total(case: Case, ns: Any, real: Any, leaves: Any) -> Callable[..., Any]:
    """The sum of all floating-point results, weighted."""

    def function(*xs: Any) -> Any:
        parts = [
            (real(y) * np.cos(np.arange(y.size)).reshape(y.shape).astype(np.float32)).sum()
            for y in leaves(case.call(ns, *xs))
            if y.dtype.kind in "fcV"
        ]
        return sum(parts[1:], parts[0]).astype(np.float32)

    return function


def floats(case: Case) -> bool:
    results = jax.eval_shape(functools.partial(case.call, jax.lax), *case.arrays)
    return any(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(results))


@functools.cache
def gradients_of_jax(part: int) -> dict[str, Any]:
    return together(
        {
            case.name: (jax.grad(total(case, jax.lax, jnp.real, jax.tree.leaves), floating(case)), case.arrays)
            for case in DIFFERENTIABLE[part::PARTS]
            if floats(case)
        }
    )


@by_name_in_parts(DIFFERENTIABLE)
def test_gradients(case: Case) -> None:
    if not floats(case):
        pytest.skip("there are no floating-point results")
    ours = total(case, lax, tinyxla.numpy.real, tinyxla.tree.leaves)
    wanted, places = gradients_of_jax(part_of(case, DIFFERENTIABLE))[case.name], floating(case)
    close(tinyxla.grad(ours, places)(*case.arrays), wanted)
    close(tinyxla.jit(tinyxla.grad(ours, places))(*case.arrays), wanted)
    moving = [case.arrays[k] for k in places]
    tangents = [np.asarray(np.sin(x + 1)) for x in moving]
    _, found = tinyxla.jvp(lambda *xs: ours(*_filled(case.arrays, places, xs)), moving, tangents)
    along = sum(np.sum(np.asarray(g) * t) for g, t in zip(wanted, tangents, strict=True))
    np.testing.assert_allclose(float(found), along, rtol=1e-3, atol=1e-4)


def _filled(arrays: tuple[Any, ...], places: tuple[int, ...], values: tuple[Any, ...]) -> list[Any]:
    new = dict(zip(places, values, strict=True))
    return [new.get(k, x) for k, x in enumerate(arrays)]


# --- single matters ---------------------------------------------------------------------------------------------------


def test_every_name_is_one_of_jax() -> None:
    public = {name for name, x in vars(lax).items() if name[0] != "_" and not inspect.ismodule(x)}
    ours = public - {"infeed", "outfeed", "pvary", "zeros_like_array"}  # which older releases had
    additions = {name for op, name in elementwise.UNARY.items() if op not in OPCODES}  # of ops that XLA lacks, too
    assert ours - additions <= set(dir(jax.lax))


def test_weakly_typed_booleans_are_of_one_type_with_booleans() -> None:
    weak = jnp.where(True, 1, 2) > 0
    assert weak.weak_type
    for found in (lax.select(True, weak, False), lax.select(True, np.True_, weak), lax.max(weak, False)):
        assert (bool(found), found.dtype, found.weak_type) == (True, np.bool_, False)


def test_weak_types_give_way() -> None:
    x = tinyxla.numpy.asarray(np.float16([1.5]))
    assert lax.mul(x, 2.0).dtype == np.float16
    assert lax.add(1, 2).weak_type
    assert not lax.convert_element_type(1.5, float).weak_type
    assert not lax.bitcast_convert_type(1.5, np.int32).weak_type
    assert [x.weak_type for x in lax.sort((np.arange(2), tinyxla.numpy.full(2, 1.0)))] == [False, True]


def test_stop_gradient_under_transformations() -> None:
    def f(x: Any) -> Any:
        return (x * lax.stop_gradient(x)).sum()

    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(tinyxla.grad(f)(x), x)
    np.testing.assert_array_equal(tinyxla.grad(tinyxla.jit(f))(x), x)
    np.testing.assert_array_equal(tinyxla.jit(tinyxla.grad(f))(x), x)
    np.testing.assert_array_equal(tinyxla.vmap(tinyxla.grad(f))(x), x)
    assert float(tinyxla.jvp(f, (x,), (np.ones_like(x),))[1]) == 3.0
    tree = lax.stop_gradient({"a": x, "b": (None, 3)})
    assert tree["b"][0] is None
    assert int(tree["b"][1]) == 3
    second = tinyxla.grad(tinyxla.grad(lambda x: x * x * lax.stop_gradient(x)))(3.0)
    assert float(second) == 6.0


def test_derivatives_pass_through_rounding() -> None:
    def rounded(x: Any) -> Any:
        narrow = lax.convert_element_type(lax.reduce_precision(x, 8, 3), "bfloat16")
        return lax.convert_element_type(narrow, np.float32)

    assert float(rounded(np.float32(1.2345))) == 1.25
    assert float(tinyxla.grad(lambda x: rounded(x) * 1.5)(np.float32(1.2345))) == 1.5


def test_derivative_of_a_reduction_of_a_tree() -> None:
    def total(x: Any, y: Any) -> Any:
        parts = lax.reduce((x, y), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,))
        return parts[0] * parts[1]

    x, y = np.float32([1, 2, 3]), np.float32([2, 3, 4])
    by_x, by_y = tinyxla.grad(total, (0, 1))(x, y)
    np.testing.assert_allclose(by_x, [24, 24, 24])
    np.testing.assert_allclose(by_y, [72, 48, 36])


def test_nextafter_of_special_numbers() -> None:
    special = np.float32([0.0, -0.0, 1e-45, -1e-45, 1.0, np.inf, -np.inf, 3e38, np.nan])
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    close(lax.nextafter(x, y), np.nextafter(x, y))


def test_reduce_may_use_constants_but_no_tracers() -> None:
    scale = np.float32(2.0)
    close(lax.reduce(F, 0.0, lambda a, b: a + b * scale / scale, (0, 1)), F.sum(dtype=np.float32))
    with pytest.raises(TracerError, match=r"traced values of the function around it, f32\[\]; hand them in"):
        tinyxla.jit(lambda x, s: lax.reduce(x, 0.0, lambda a, b: a + b * s, (0,)))(F, 2.0)


def test_narrow_indices_of_long_arrays() -> None:
    """The size does not fit the type of the index, but the place does."""
    close(lax.dynamic_slice_in_dim(np.arange(300, dtype=np.int32), np.int8(-2), 2), np.array([298, 299], np.int32))


@pytest.mark.parametrize("count", range(10))
def test_scans_of_every_length(count: int) -> None:
    x = np.arange(1, count + 1, dtype=np.int32)
    close(lax.cumsum(x), np.cumsum(x, dtype=np.int32))
    close(lax.associative_scan(lambda a, b: a + b, x), np.cumsum(x, dtype=np.int32))
    close(lax.cummax(x[::-1], reverse=True), np.flip(np.maximum.accumulate(x)) if count else x)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: lax.add(F, I),
            DTypeError,
            r"lax.add: the operands have different element types, f32\[2,3\] and s",
        ),
        (lambda: lax.add(I, 1.5), DTypeError, r"s32\[2,3\] and 1.5; convert them"),
        (lambda: lax.add(F, F[0]), ShapeError, r"different ranks, f32\[2,3\] and f32\[3\]"),
        (lambda: lax.add(F, F[:, :2]), ShapeError, r"lax.add: .*broadcasting: \(2, 3\) and \(2, 2\)"),
        (lambda: lax.sin(I), DTypeError, r"sine: not defined for s32\[2,3\]"),
        (lambda: lax.asin(I), DTypeError, r"lax.asin takes floating-point or complex numbers, but got s32\[2,3\]"),
        (lambda: lax.integer_pow(I, -1), DTypeError, "no power -1 among the integers"),
        (lambda: lax.round(F, 7), AttributeValueError, "rounding_method is one of RoundingMethod, but got 7"),
        (lambda: lax.select(B, F, F[:1]), ShapeError, r"the cases have different shapes, f32\[1,3\] and f32\[2,3\]"),
        (lambda: lax.select(B[0], F, F), ShapeError, r"pred\[3\] chooses among f32\[2,3\]"),
        (lambda: lax.select_n(F, F, F, F), DTypeError, r"choice among 3 cases is an integer, but got f32\[2,3\]"),
        (lambda: lax.clamp(F[0], F, 1.0), ShapeError, r"a limit is a scalar or has the shape of x, but got f32\[3\]"),
        (lambda: lax.bitcast_convert_type(B, np.uint8), DTypeError, "types must not be pred or complex"),
        (lambda: lax.bitcast_convert_type(U, np.float32), ShapeError, r"the last dimension must be 4.*got u8\[2,3\]"),
        (lambda: lax.reduce_precision(F, 0, 3), AttributeValueError, "exponent_bits must be at least 1, but got 0"),
        (lambda: lax.full((2,), F), ShapeError, r"the value is a scalar, but got f32\[2,3\]"),
        (lambda: lax.reshape(F, (4,)), ShapeError, "has 6 elements"),
        (lambda: lax.squeeze(F, (0,)), ShapeError, r"dimension 0 of f32\[2,3\] has size 2, not 1"),
        (lambda: lax.collapse(F, 1, 1), ShapeError, "no dimensions lie from 1 up to 1"),
        (lambda: lax.slice_in_dim(F, 0, 9), ShapeError, r"0 <= start <= limit <= 2 in dimension 0 of .*\[0, 9\)"),
        (lambda: lax.index_in_dim(F, 2), OutOfBoundsError, r"index 2 is out of bounds for dimension 0 of f32\[2,3\]"),
        (lambda: lax.split(F, (1, 2)), ShapeError, r"the sizes \(1, 2\) make 3"),
        (lambda: lax.pad(F, 0.0, [(1, 1)] * 2), ArgumentError, "triples"),
        (lambda: lax.concatenate([], 0), ArgumentError, "at least one array"),
        (lambda: lax.concatenate([F, I], 0), DTypeError, "lax.concatenate: the operands have different element types"),
        (lambda: lax.dot(T, F), ShapeError, r"vectors or matrices, but got f32\[2,3,4\]"),
        (lambda: lax.dot(F, F), ShapeError, "contracting dimension"),
        (lambda: lax.dot_general(F, F, (1, 2, 3)), ArgumentError, "dimension_numbers is"),
        (lambda: lax.batch_matmul(F[0], F[0]), ShapeError, "equal ranks of at least 2"),
        (lambda: lax.reduce_sum(F, (2,)), ShapeError, "axis 2 is out of range"),
        (lambda: lax.reduce(F, np.int32(0), lax.add, (0,)), DTypeError, r"initial value for f32\[2,3\].*s32\[\]"),
        (
            lambda: lax.reduce(F, 0.0, lambda a, b: a > b, (0,)),
            DTypeError,
            r"gives pred\[\] where its operand is",
        ),
        (lambda: lax.reduce(F, 0.0, lambda a, b: (a, b), (0,)), ArgumentError, "the computation gives the structure"),
        (lambda: lax.reduce((F, I), 0.0, lax.add, (0,)), ArgumentError, "differ in structure"),
        (lambda: lax.argmax(F[:, :0], 1, int), ShapeError, r"dimension 1 of f32\[2,0\] is empty"),
        (lambda: lax.argmax(F, 1, float), DTypeError, "index_dtype is an integer type, but got float32"),
        (lambda: lax.dynamic_slice(F, (0,), (1, 1)), ShapeError, "must be 2 start indices for .*, but got 1"),
        (lambda: lax.dynamic_slice(F, (0, 1.5), (1, 1)), DTypeError, "a start index is an integer scalar"),
        (lambda: lax.dynamic_slice(F, (0, 0), (3, 1)), ShapeError, r"must fit inside .*, but got \(3, 1\)"),
        (lambda: lax.sort([]), ArgumentError, "at least one array"),
        (
            lambda: lax.sort([F], num_keys=2),
            ArgumentError,
            "num_keys must be from 1 to the number of arrays, 1, but got 2",
        ),
        (lambda: lax.top_k(F, 4), ShapeError, r"k must be from 0 to the size of axis 1 of f32\[2,3\], but got 4"),
        (
            lambda: tinyxla.eval_shape(
                lambda x: lax.top_k(x, 2), tinyxla.ShapeDtypeStruct(((1 << 31) + 1,), np.float16)
            ),
            ShapeError,
            "has more places than its result, of s32, can name",
        ),
        (lambda: lax.add(0, 0.0), DTypeError, "the operands have different element types, 0 and 0.0"),
        (lambda: lax.associative_scan(lax.add, (F, I[:1])), ShapeError, "different sizes along axis 0"),
        (lambda: lax.GatherScatterMode.from_any("wrap"), AttributeValueError, "'promise_in_bounds', but got 'wrap'"),
        (lambda: lax.sin("x"), DTypeError, "lax.sin takes arrays and numbers, but got 'x'"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[TinyxlaError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert caught.value.line is not None
    assert caught.value.line.file == __file__


def test_products_of_different_types_need_no_implicit_promotion() -> None:
    with tinyxla.numpy_dtype_promotion("strict"):
        assert lax.dot(F, np.ones(3, np.int16)).dtype == np.float32


@pytest.mark.parametrize("function", [lax.digamma, lax.lgamma, lax.erfc, lax.bessel_i0e, lax.reciprocal, lax.conj])
def test_functions_of_python_numbers_are_weakly_typed(function: Callable[..., Any]) -> None:
    assert function(1.0).weak_type
    assert not function(np.float32(1)).weak_type


def test_random_bits_of_mapped_keys_do_not_depend_on_the_option_of_rank_promotion() -> None:
    keys = np.arange(12, dtype=np.uint32).reshape(3, 4)
    with tinyxla.numpy_rank_promotion("raise"):
        _, bits = tinyxla.vmap(lambda key: lax.rng_bit_generator(key, (5, 7)))(keys)
    assert bits.shape == (3, 5, 7)


def test_full_like_takes_descriptions_of_arrays() -> None:
    found = lax.full_like(tinyxla.ShapeDtypeStruct((2,), "int8"), 7)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, [7, 7])
