"""Loops, branches and calls: `lax` against JAX under nested transformations, the rules where JAX has none, text that
XLA runs, and errors."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
from tests.support import xla_oracle
from tinyxla import ffi, lax
from tinyxla.errors import (
    ArgumentError,
    AttributeValueError,
    DifferentiationError,
    DTypeError,
    KernelError,
    NumberRangeError,
    ShapeError,
    TinyxlaError,
)
from tinyxla.hlo import Module
from tinyxla.ops import elementwise, movement
from tinyxla.shapes import Shape, TupleShape, element_type
from tinyxla.tracing.core import trace
from tinyxla.transforms import call, conditional, map_, while_
from tinyxla.transforms.computations import of_one
from tinyxla.transforms.control_flow import trip_count

X = np.array([0.5, -0.75, 1.25], np.float32)
Function = Callable[..., Any]


# --- against JAX ------------------------------------------------------------------------------------------------------
# Each case is a function of a library and an array, so that both run the same lines.


def running_products(m: Any, x: Any) -> Any:
    total, products = m.lax.scan(lambda c, v: (c * m.numpy.cos(v), c + v), x[0], x)
    return total + (products * products).sum()


def backwards_tree(m: Any, x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        a, b = carry["a"] * row[0], carry["b"] + m.numpy.sin(row[1]["v"])
        return {"a": a, "b": b}, (a - b, {"product": a * b})

    start = {"a": m.numpy.float32(1.5), "b": x}
    rows = (x, {"v": x[:, None] * m.numpy.ones((3, 3), "float32")})
    carry, (differences, rest) = m.lax.scan(step, start, rows, reverse=True)
    return carry["a"] + (carry["b"] * differences.sum(0)).sum() + rest["product"].sum()


def unrolled(m: Any, x: Any) -> Any:
    carry, rows = m.lax.scan(lambda c, _: (c * x[1] + x, c), x, None, length=7, unroll=3)
    return (carry * rows.sum(0)).sum()


def nested(m: Any, x: Any) -> Any:
    def outer(carry: Any, v: Any) -> Any:
        inner, _ = m.lax.scan(lambda c, w: (m.numpy.sin(c * w) + v, None), carry, x)
        return inner, inner * v

    last, rows = m.lax.scan(outer, x[0], x * 2)
    return last * rows.sum()


def counted(m: Any, x: Any) -> Any:
    return m.lax.fori_loop(0, 5, lambda i, c: m.numpy.sin(c) * (i + 1) + x, x * 2).sum()


def branch_in_loop(m: Any, x: Any) -> Any:
    def step(carry: Any, v: Any) -> Any:
        carry = m.lax.cond(v > 0, lambda c: c * m.numpy.exp(v), lambda c: c - v * x[1], carry)
        return carry, carry * 2

    last, rows = m.lax.scan(step, x[0], x)
    return last + (rows * rows).sum()


def several_branches(m: Any, x: Any) -> Any:
    branches = [lambda y: y * y, lambda y: m.numpy.sin(y) + x[0], lambda y: y.sum() * y]
    found = [m.lax.switch(m.numpy.int32(k), branches, x) for k in (-3, 0, 1, 2, 9)]
    return sum((y * (k + 1)).sum() for k, y in enumerate(found))


def chosen_by_value(m: Any, x: Any) -> Any:
    index = m.numpy.floor(x[0] * 4).astype("int32")
    y = m.lax.switch(index, [lambda y: y, lambda y: y * y, lambda y: y**3, m.numpy.sin], x)
    return m.lax.cond(x.sum() > 1, lambda: (y * 2).sum(), lambda: (y * x).sum())


def over_elements(m: Any, x: Any) -> Any:
    return (m.lax.map(lambda v: v * x.sum(), x) * m.lax.map(m.numpy.sin, x, batch_size=2)).sum()


def barred(m: Any, x: Any) -> Any:
    y, z = m.lax.optimization_barrier((x * x, m.numpy.sin(x)))
    return (y * z).sum()


def composed(m: Any, x: Any) -> Any:
    def scale(y: Any, factor: float) -> Any:
        return m.numpy.tanh(y) * factor

    if m is tx:  # JAX's have no derivatives
        scale = m.lax.composite(scale, "test.scale", 1)
    return (scale(x, factor=2.0) * x).sum()


def with_branches_in_branches(m: Any, x: Any) -> Any:
    def deep(y: Any) -> Any:
        return m.lax.cond(y[1] > 0, lambda z: z * 3, lambda z: m.numpy.cos(z) * x, y)

    return m.lax.cond(x[0] > 0, deep, lambda y: deep(y * 2) + y, x).sum()


BRIEF = ("plain", "jit grad", "grad vmap")
CASES = {  # and the transformations of each, since all of all would take long
    running_products: None,
    backwards_tree: ("grad jit", "vmap grad"),
    unrolled: ("jit grad",),
    nested: (*BRIEF, "hessian"),
    counted: BRIEF,
    branch_in_loop: ("jit", "vmap grad"),
    several_branches: ("vmap", "jit grad"),
    chosen_by_value: BRIEF,
    over_elements: ("plain", "jit grad", "vmap"),
    barred: ("jit grad", "vmap"),
    composed: ("jit grad", "vmap"),
    with_branches_in_branches: ("grad", "jvp", "vmap grad"),
}
NESTINGS: dict[str, Callable[[Any, Function], Function]] = {
    "plain": lambda m, f: f,
    "jit": lambda m, f: m.jit(f),
    "grad": lambda m, f: m.grad(f),
    "jit grad": lambda m, f: m.jit(m.grad(f)),
    "grad jit": lambda m, f: m.grad(m.jit(f)),
    "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x * 2,))[1],
    "vmap": lambda m, f: lambda x: m.vmap(f)(x * m.numpy.array([[1.0], [-1.0], [0.25]], "float32")),
    "vmap grad": lambda m, f: m.jit(lambda x: m.vmap(m.grad(f))(x * m.numpy.array([[1.0], [-2.0]], "float32"))),
    "grad vmap": lambda m, f: m.jit(m.grad(lambda x: m.vmap(f)(m.numpy.stack([x, -x])).sum())),
    "hessian": lambda m, f: m.jit(m.hessian(f)),
    "grad of grad": lambda m, f: m.jit(m.grad(lambda x: (m.grad(f)(x) * x).sum())),
}


def assert_same(found: Any, expected: Any, what: str = "") -> None:
    ours, theirs = tx.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert x.shape == y.shape, what
        assert x.dtype == y.dtype, what
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), 3e-5, 3e-5, err_msg=what)


def of_jax(nestings: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """What JAX gives for X: one program, which it compiles sooner than each operation by itself."""
    return jax.jit(lambda x: {name: function(x) for name, function in nestings.items()})(X)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("case", CASES)
def test_against_jax(case: Function) -> None:
    names = CASES[case] or NESTINGS
    expected = of_jax({name: NESTINGS[name](jax, lambda x: case(jax, x)) for name in names})
    for name in names:
        assert_same(NESTINGS[name](tx, lambda x: case(tx, x))(X), expected[name], name)


def root(m: Any, x: Any) -> Any:
    """Newton's method: as many steps as it takes."""

    def step(carry: Any) -> Any:
        y, _ = carry
        better = y - (y * y - x * x - 2) / (2 * y)
        return better, m.numpy.abs(better - y).max()

    return m.lax.while_loop(lambda c: c[1] > 1e-4, step, (m.numpy.ones_like(x), m.numpy.float32(1)))[0].sum()


def dynamic(m: Any, x: Any) -> Any:
    """The length depends on a value."""
    end = m.numpy.floor(x[2] * 4).astype("int32")
    return m.lax.fori_loop(0, end, lambda i, c: m.numpy.sin(c) + x * i, x).sum()


def loop_in_loop(m: Any, x: Any) -> Any:
    def outer(carry: Any) -> Any:
        i, c = carry
        return i + 1, m.lax.fori_loop(0, i, lambda j, d: d * 1.1 + x[0], m.numpy.sin(c))

    return m.lax.while_loop(lambda c: c[0] < 4, outer, (m.numpy.int32(1), x))[1].sum()


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("case", [root, dynamic, loop_in_loop])
def test_loops_of_unknown_length_against_jax(case: Function) -> None:
    """JAX differentiates these in forward mode only."""

    def by_jax(x: Any) -> Any:
        return case(jax, x)

    forward = ("plain", "jvp", "vmap")
    gradient, lanes = jax.jacfwd(by_jax), np.stack([X, X * 2])
    expected = of_jax(
        {
            **{name: NESTINGS[name](jax, by_jax) for name in forward},
            "grad": gradient,
            "vmap grad": lambda _: jax.vmap(gradient)(lanes),
            "forward over reverse": jax.jacfwd(gradient),
        }
    )
    expected |= {"jit": expected["plain"], "jit grad": expected["grad"], "grad jit": expected["grad"]}
    for name in (*forward, "jit", "grad", "jit grad", "grad jit"):
        assert_same(NESTINGS[name](tx, lambda x: case(tx, x))(X), expected[name], name)
    assert_same(tx.jit(tx.vmap(tx.grad(lambda x: case(tx, x))))(lanes), expected["vmap grad"], "vmap grad")
    second = tx.jit(tx.jacfwd(tx.grad(lambda x: case(tx, x))))(X)
    assert_same(second, expected["forward over reverse"], "forward over reverse")


def test_long_loops_of_unknown_length_run_back() -> None:
    """Longer than there are snapshots, and not a multiple of their distance; and such a derivative of a derivative."""

    def last(x: Any, end: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < end, lambda c: (c[0] + 1, c[1] * x + c[1] * 0.5), (0, x))[1]

    gradient = tx.jit(tx.grad(last))
    for end in (0, 1, 63, 64, 65, 203):  # of x (x + 1/2)^n at 1/2
        np.testing.assert_allclose(gradient(0.5, np.int32(end)), 1 + 0.5 * end, 1e-5)
    second = tx.jit(tx.grad(tx.grad(last)))(0.5, np.int32(70))
    np.testing.assert_allclose(second, 2 * 70 + 0.5 * 70 * 69, 1e-4)


def test_values_and_types_are_those_of_jax() -> None:
    def cases(m: Any) -> list[Any]:
        return [
            m.lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 3, c[1] * 2), (1, 1.5)),
            m.lax.fori_loop(2, 2, lambda i, c: c + i, 1),
            m.lax.fori_loop(3, 0, lambda i, c: c + i, np.int8(1)),
            m.lax.fori_loop(0, 3, lambda i, c: c + i, np.float16(1)),
            m.lax.fori_loop(np.int8(0), np.int8(3), lambda i, c: c + i, np.int8(7)),
            m.lax.scan(lambda c, x: (c, x), 0, np.zeros((0, 3), np.int16)),
            m.lax.scan(lambda c, x: (c + x, {"y": (c, True)}), 0.0, np.arange(3, dtype=np.int32)),
            m.lax.scan(lambda c, x: (c + 1, x), 2, {"a": np.ones((2, 1), np.complex64)}, reverse=True),
            m.lax.scan(lambda c, _: (c + 1, None), 0, None, length=4, unroll=True),
            m.lax.cond(0, lambda: np.float32(1), lambda: np.float32(2)),
            m.lax.cond(np.bool_(True), lambda x: (x, 1), lambda x: (x * 2, 2), np.int8(3)),
            m.lax.switch(5, [lambda x: x, lambda x: x + 1], np.float16(1)),
            m.lax.switch(0, [lambda x: m.numpy.sin(x)], 3),
            m.lax.map(lambda t: t[0] + t[1], (np.arange(5), np.ones(5, np.float32)), batch_size=2),
        ]

    for ours, theirs in zip(cases(tx), jax.tree.map(jax.numpy.asarray, cases(jax)), strict=True):
        assert_same(ours, theirs)
        weak = [x.weak_type for x in jax.tree.leaves(theirs)]
        assert [x.weak_type for x in tx.tree.leaves(ours)] == weak


def test_without_compilation_loops_are_those_of_python() -> None:
    tx.config.disable_jit = True
    try:
        seen: list[float] = []
        assert lax.while_loop(lambda x: x < 9, lambda x: (seen.append(float(x)), x * 2)[1], 1) == 16
        assert seen == [1, 2, 4, 8]
        assert lax.fori_loop(0, 3, lambda i, c: c + int(i), 0) == 3
        assert lax.scan(lambda c, x: (c + float(x), x), 0.0, np.arange(3.0), reverse=True)[1].tolist() == [0, 1, 2]
        assert lax.cond(True, lambda: 1, lambda: 2) == 1
        assert lax.switch(1, [lambda: 1, lambda: 2]) == 2
    finally:
        tx.config.disable_jit = False


def test_what_a_loop_captures_may_be_differentiated_and_mapped() -> None:
    def f(m: Any, x: Any, y: Any) -> Any:
        def inner(v: Any) -> Any:
            return m.lax.scan(lambda c, w: (c * y + w * v.sum(), c), v[0], x)[0]

        return m.vmap(inner)(m.numpy.stack([x, x * 2])).sum() * m.grad(lambda v: inner(v) ** 2)(x)[1]

    ours = tx.jit(tx.grad(lambda x, y: f(tx, x, y), (0, 1)))(X, 0.5)
    assert_same(ours, jax.jit(jax.grad(lambda x, y: f(jax, x, y), (0, 1)))(X, 0.5))


def test_other_arrays_make_no_other_program() -> None:
    """What a body closes over is an operand: equal programs share an executable."""
    from tinyxla.api.executables import _compiled  # pyright: ignore[reportPrivateUsage]

    def total(table: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, c: c + table[i], np.float32(0))

    assert total(tx.numpy.array([1.0, 2.0, 3.0])) == 6
    before = _compiled.cache_info().misses
    assert total(tx.numpy.array([4.0, 5.0, 6.0])) == 15
    assert _compiled.cache_info().misses == before


def test_a_batched_choice_runs_no_branch_alone() -> None:
    """Lanes that take one branch are not touched by what the other gives there, also in derivatives."""
    lanes = np.array([4.0, 0.0, -1.0], np.float32)

    def safe(x: Any) -> Any:
        return lax.cond(x > 0, lambda v: tx.numpy.sqrt(v), lambda v: v * 3, x)

    assert tx.vmap(safe)(lanes).tolist() == [2, 0, -3]
    assert tx.vmap(tx.jacfwd(safe))(lanes[::2]).tolist() == [0.25, 3]


def test_loops_with_many_steps() -> None:
    assert lax.fori_loop(0, 100_000, lambda i, c: c + i % 7, 0) == sum(i % 7 for i in range(100_000))


# --- compiled ---------------------------------------------------------------------------------------------------------


def _plan(f: Function, *args: Any) -> str:
    return tx.jit(f).lower(*args).compile().as_text()


def test_loops_carry_what_is_needed() -> None:
    """Neither stacks that nobody reads nor what the body only hands on; and so in loops within."""

    def step(c: Any, v: Any) -> Any:
        last, rows = lax.scan(lambda d, w: (d + w, tx.numpy.sin(d)), c, X)
        return last + v, (rows, c * v)

    def f(x: Any) -> Any:
        return lax.scan(step, 0.0, x)[0]

    text = _plan(f, X)
    assert "sine" not in text
    assert "f32[3,3]" not in text
    np.testing.assert_allclose(tx.jit(f)(X), 4 * X.sum(), 1e-6)


def test_branches_compute_what_is_needed() -> None:
    def f(p: Any, x: Any, y: Any) -> Any:
        return lax.cond(p, lambda: (tx.numpy.exp(y), x * 2), lambda: (x, tx.numpy.sin(x)))[1]

    text = _plan(f, True, X, X)
    assert "exponential" not in text
    np.testing.assert_allclose(tx.jit(f)(False, X, X), np.sin(X), 1e-6)


def test_equal_loops_of_which_different_results_are_used() -> None:
    def f(x: Any) -> Any:
        loops = [lax.fori_loop(0, 3, lambda i, c: (c[0] * 2, c[1] * 2), (x, x)) for _ in range(2)]
        return loops[0][0] + loops[1][1]

    np.testing.assert_allclose(tx.jit(f)(X), 16 * X)


# --- the ops ----------------------------------------------------------------------------------------------------------

SCALAR, COUNTER = Shape(element_type("f32")), Shape(element_type("s32"))


def integer(value: int) -> Any:
    return movement.full(value, np.int32)


@pytest.mark.parametrize(
    ("start", "direction", "step", "stop"),
    [
        (0, "LT", 1, 5),
        (0, "LE", 2, 5),
        (7, "GT", -3, 0),
        (7, "GE", -1, 7),
        (0, "NE", 3, 9),
        (5, "LT", 1, 5),
        (0, "LT", 0, 5),
        (0, "NE", 2, 9),
        (0, "GT", 1, -1),
    ],
)
def test_trip_counts_are_seen(start: int, direction: str, step: int, stop: int) -> None:
    compare: dict[str, Callable[[int, int], bool]] = {
        "LT": int.__lt__,
        "LE": int.__le__,
        "GT": int.__gt__,
        "GE": int.__ge__,
        "NE": int.__ne__,
    }
    count, i = 0, start
    while compare[direction](i, stop) and count < 100:
        count, i = count + 1, i + step

    def test(i: Any, n: Any) -> Any:
        return elementwise.compare(i, integer(stop), direction=direction, type="SIGNED")

    def mirrored(i: Any, n: Any) -> Any:
        other = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}[direction]
        return elementwise.compare(n, i, direction=other, type="SIGNED")

    shapes = [COUNTER, COUNTER]
    body = trace(lambda i, n: [elementwise.add(integer(step), i), n], shapes, "body")[0]
    less = trace(lambda i, n: [elementwise.sub(i, integer(-step)), n], shapes, "body")[0]
    operands = [tx.numpy.int32(start), tx.numpy.int32(stop)]
    expected = count if count < 100 else None
    for condition in (of_one(test, shapes, "test"), of_one(mirrored, shapes, "mirrored")):
        assert trip_count(operands, condition, body) == expected
        assert trip_count(operands, condition, less) == expected


def test_what_is_not_seen_to_count_has_no_trip_count() -> None:
    shapes = [COUNTER, COUNTER]
    test = of_one(lambda i, n: elementwise.lt(i, n), shapes, "test")
    doubled = trace(lambda i, n: [elementwise.add(i, i), n], shapes, "body")[0]
    moving = trace(lambda i, n: [elementwise.add(i, integer(1)), elementwise.sub(n, integer(1))], shapes, "body")[0]
    operands = [tx.numpy.int32(1), tx.numpy.int32(9)]
    assert trip_count(operands, test, doubled) is None
    assert trip_count(operands, test, moving) is None


def _stacks(f: Function) -> set[tuple[int, ...]]:
    """The shapes of arrays in the graph of a gradient."""
    module = tx.make_graph(tx.grad(f))(1.5)
    shapes = (x.shape for c in module.computations() for x in c.instructions)
    return {s.dimensions for s in shapes if isinstance(s, Shape)}


def test_a_loop_of_known_length_keeps_a_row_for_each_step() -> None:
    def f(x: Any, start: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 11, lambda c: (c[0] + 1, c[1] * c[1]), (start, x))[1]

    assert (11,) in _stacks(lambda x: f(x, 0))
    text = tx.jit(tx.grad(lambda x: f(x, lax.convert_element_type(x, np.int32)))).lower(np.float32(1)).as_text()
    assert '"while-pullback"' in text


def test_map() -> None:
    branchy = of_one(
        lambda x, y: lax.cond(x > y, lambda: x * y, lambda: lax.fori_loop(0, 3, lambda i, c: c * x, y)),
        [SCALAR, SCALAR],
        "branchy",
    )
    x, y = X, X[::-1].copy()

    def f(x: Any, y: Any) -> Any:
        return map_(x, y, dimensions=(0,), to_apply=branchy)

    expected = np.where(x > y, x * y, y * x**3)
    for run in (f, tx.jit(f)):
        np.testing.assert_allclose(run(tx.numpy.array(x), tx.numpy.array(y)), expected, 1e-6)
    gradient = tx.jit(tx.grad(lambda x, y: f(x, y).sum()))(x, y)
    np.testing.assert_allclose(gradient, np.where(x > y, y, 3 * y * x**2), 1e-5)


def test_nothing_merges_across_a_barrier() -> None:
    def f(x: Any) -> Any:
        (y,), (z,) = lax.optimization_barrier((x,)), lax.optimization_barrier((x,))
        return tx.numpy.sin(y) + tx.numpy.sin(z)

    assert tx.jit(f).lower(X).as_text().count(" opt-barrier(") == 2
    assert tx.jit(f).lower(X).compile().kernels[-1].source.count("np.sin") == 2
    np.testing.assert_allclose(tx.jit(f)(X), 2 * np.sin(X), 1e-6)


# --- text -------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("case", [running_products, nested, chosen_by_value, several_branches, barred, composed])
def test_xla_runs_the_text(case: Function) -> None:
    for f in (lambda x: case(tx, x), tx.grad(lambda x: case(tx, x))):
        text = tx.jit(f).lower(X).as_text("hlo")
        (found,) = xla_oracle.run(text, [X])
        np.testing.assert_allclose(found, tx.jit(f)(X), 3e-5, 3e-5)


def test_a_composite_prints_as_one() -> None:
    text = tx.jit(lambda x: composed(tx, x)).lower(X).as_text()
    assert "is_composite=true" in text
    assert 'composite.name="test.scale"' in text
    assert 'composite.version="1"' in text


def test_a_known_trip_count_prints() -> None:
    text = tx.jit(lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2, x)).lower(X).as_text()
    assert '{"known_trip_count":{"n":"5"}}' in text


# --- functions of the host --------------------------------------------------------------------------------------------

_C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def _floats(address: Any, count: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,))


@_C_FUNCTION
def _weighted(out: Any, given: Any) -> None:
    _floats(out, 3)[:] = _floats(given[0], 3) * 2 + _floats(given[1], 3)


@_C_FUNCTION
def _extremes(out: Any, given: Any) -> None:
    results = ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))
    _floats(results[0], 1)[:] = _floats(given[0], 3).min()
    _floats(results[1], 1)[:] = _floats(given[0], 3).max()


def test_c_functions() -> None:
    address = ctypes.cast(_weighted, ctypes.c_void_p).value
    vector, single = tx.ShapeDtypeStruct((3,), "float32"), tx.ShapeDtypeStruct((), "float32")
    ffi.register_ffi_target("test.weighted", _weighted)
    ffi.register_ffi_target("test.weighted_at", address)
    ffi.register_ffi_target("test.extremes", _extremes)
    for name in ("test.weighted", "test.weighted_at"):
        f = ffi.ffi_call(name, vector)
        for run in (f, tx.jit(f)):
            assert run(X, X + 1).tolist() == (X * 2 + X + 1).tolist()
    f = tx.jit(ffi.ffi_call("test.extremes", {"low": single, "high": single}))
    found = f(X)
    assert {k: float(v) for k, v in found.items()} == {"high": -0.75, "low": 1.25}  # in the order of the keys
    gc.collect()


def test_numba_functions() -> None:
    numba = pytest.importorskip("numba")
    pointer = numba.types.CPointer(numba.types.voidptr)

    @numba.cfunc(numba.types.void(numba.types.voidptr, pointer))
    def doubled(out: Any, given: Any) -> None:
        x = numba.carray(given[0], (3,), numba.float32)
        y = numba.carray(out, (3,), numba.float32)
        for k in range(3):
            y[k] = 2 * x[k]

    ffi.register_ffi_target("test.doubled", doubled)
    f = tx.jit(ffi.ffi_call("test.doubled", tx.ShapeDtypeStruct((3,), "float32")))
    assert f(X).tolist() == (2 * X).tolist()


def test_rules_of_host_functions() -> None:
    def cube(x: Any) -> Any:
        return ffi.ffi_call("test.cube", tx.ShapeDtypeStruct(x.shape, "float32"))(x)

    ffi.register_ffi_target(
        "test.cube",
        lambda x: x**3,
        jvp=lambda tangents, ans, x: tangents[0] * 3 * x * x,
        vjp=lambda g, ans, x: (g * 3 * x * x,),
        batch=lambda size, operands, axes: (cube(operands[0]), axes[0]),
    )
    for wrap in (lambda f: f, tx.jit):
        np.testing.assert_allclose(wrap(tx.grad(lambda x: cube(x).sum()))(X), 3 * X * X, 1e-6)
        np.testing.assert_allclose(wrap(lambda x: tx.jvp(cube, (x,), (x,))[1])(X), 3 * X**3, 1e-6)
        np.testing.assert_allclose(wrap(tx.vmap(tx.grad(cube)))(X), 3 * X * X, 1e-6)


def test_side_effects_stay() -> None:
    seen: list[Any] = []
    ffi.register_ffi_target("test.seen", lambda x, backend_config: (seen.append(backend_config), x)[1])
    note = ffi.ffi_call("test.seen", tx.ShapeDtypeStruct((3,), "float32"), has_side_effect=True, backend_config="here")

    def f(x: Any) -> Any:
        note(x), note(x)
        return lax.fori_loop(0, 3, lambda i, c: (note(c), c + 1)[1], x)

    for run in (f, tx.jit(f)):
        seen.clear()
        run(X)
        assert seen == ["here"] * 5


def test_errors_of_host_functions() -> None:
    vector = tx.ShapeDtypeStruct((3,), "float32")
    with pytest.raises(KernelError, match=r"custom-call: there is no target 'test.nothing'; register one"):
        ffi.ffi_call("test.nothing", vector)(X)
    with pytest.raises(
        ArgumentError, match="must be a PyCapsule, an address, a ctypes function, a Numba cfunc or a Python function"
    ):
        ffi.register_ffi_target("test.wrong", "a text")
    ffi.register_ffi_target("test.short", lambda x: x[:2])
    f = ffi.ffi_call("test.short", vector)
    with pytest.raises(ArgumentError, match=r"'test.short' must give f32\[3\], but gave \(f32\[2\]\)"):
        f(X)
    ffi.register_ffi_target("test.same", lambda x: x)
    same = ffi.ffi_call("test.same", vector)
    with pytest.raises(DifferentiationError, match=r"'test.same' has no vjp rule; give vjp="):
        tx.grad(lambda x: same(x).sum())(X)
    with pytest.raises(DifferentiationError, match=r"'test.same' has no jvp rule; give jvp="):
        tx.jvp(same, (X,), (X,))
    with pytest.raises(ArgumentError, match=r"'test.same' has no batch rule; give batch="):
        tx.vmap(same)(np.stack([X, X]))


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS: list[tuple[Callable[[], Any], type[TinyxlaError], str]] = [
    (lambda: lax.while_loop(3, lambda c: c, 0), ArgumentError, "lax.while_loop takes functions, but got 3"),
    (lambda: lax.while_loop(lambda c: c, lambda c: c, 0), ArgumentError, r"cond_fun must give one pred.*s32\[\]"),
    (
        lambda: lax.while_loop(lambda c: c["a"][0] < 1, lambda c: {"a": (1.5, c["a"][1])}, {"a": (np.int32(0), 1)}),
        DTypeError,
        r"the leaf \['a'\]\[0\] of what is carried is s32\[\] at the start, but the function makes it f32\[\]; convert",
    ),
    (
        lambda: lax.while_loop(lambda c: True, lambda c: c[None], np.float32(0)),
        ShapeError,
        r"what is carried is f32\[\] at the start, but the function makes it f32\[1\]; the sizes must stay",
    ),
    (
        lambda: lax.scan(lambda c, x: ((c, c), x), 0, X),
        ArgumentError,
        r"in the structure that it has at the start, \* where \* stands for an array, but it gives \(\*, \*\)",
    ),
    (
        lambda: lax.fori_loop(0, 3, lambda i, c: {"a": c["a"] + 0.5}, {"a": np.int32(1)}),
        DTypeError,
        r"lax.fori_loop: the leaf \['a'\] of what is carried is s32\[\] at the start, but",
    ),
    (
        lambda: lax.fori_loop(0, tx.numpy.int8(2), lambda i, c: (c[0], 2), (1.5, np.int8(2))),
        DTypeError,
        r"lax.fori_loop: the leaf \[1\] of what is carried is s8\[\] at the start, but",
    ),
    (lambda: lax.scan(lambda c, x: c, 0, X), ArgumentError, r"must give a pair \(carry, y\)"),
    (lambda: lax.scan(lambda c, x: (c, x), 0), ArgumentError, "length must say how many"),
    (
        lambda: lax.scan(lambda c, x: (c, x), 0, {"a": X, "b": X[:2]}),
        ShapeError,
        r"first axes of one size, \(3,\), but xs\['b'\] is f32\[2\]",
    ),
    (lambda: lax.scan(lambda c, x: (c, x), 0, X, length=4), ShapeError, r"the length 4, but xs is f32\[3\]"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, length=-1), ShapeError, "must not be negative, but is -1"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, X, unroll=-1), ArgumentError, "unroll must be a positive integer"),
    (lambda: lax.fori_loop(0, 1.5, lambda i, c: c, 0), ArgumentError, "lower and upper must be integers"),
    (
        lambda: tx.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 0, unroll=2))(2),
        ArgumentError,
        "unroll takes a range of",
    ),
    (
        lambda: tx.jit(lambda n: lax.fori_loop(-3, n, lambda i, c: c + 1, 0))(np.uint32(2)),
        NumberRangeError,
        "The Python integer -3 does not fit the element type uint32",
    ),
    (lambda: lax.map(lambda x: x, X, batch_size=-1), ArgumentError, "batch_size must not be negative, but is -1"),
    (lambda: lax.cond(X, lambda: 1, lambda: 2), ArgumentError, r"without dimensions, but is f32\[3\]"),
    (lambda: lax.cond(True, lambda: 1, lambda: (1, 2)), ArgumentError, r"function 0 is \* and that of function 1 is"),
    (
        lambda: lax.cond(True, lambda: {"a": np.int32(1)}, lambda: {"a": np.float32(1)}),
        DTypeError,
        r"the result\['a'\] is s32\[\] or f32\[\]",
    ),
    (lambda: lax.cond(True, lambda: X, lambda: X[:2]), ShapeError, r"the result is f32\[3\] or f32\[2\]"),
    (lambda: lax.switch(0, []), AttributeValueError, "at least one branch"),
    (lambda: lax.switch(0.5, [lambda: 1]), ArgumentError, "the index must be an integer"),
    (
        lambda: lax.composite(lambda x, *, f: x, "a.b")(1, f=tx.numpy.ones(3)),
        ArgumentError,
        "an attribute must be a number, a string, a NumPy array",
    ),
]


@pytest.mark.parametrize(("run", "error", "message"), ERRORS)
def test_errors(run: Callable[[], Any], error: type[TinyxlaError], message: str) -> None:
    with pytest.raises(error, match=message):
        run()


def _shape_errors() -> list[tuple[Callable[[], Any], type[TinyxlaError], str]]:
    two = [SCALAR, COUNTER]
    test = of_one(lambda x, n: elementwise.lt(n, n), two, "test")
    body = trace(lambda x, n: [x, n], two, "body")[0]
    swapped = trace(lambda x, n: [n, x], two, "swapped")[0]
    single = of_one(lambda x, n: x, two, "single")
    one = trace(lambda x: [x], [SCALAR], "one")[0]
    pred, index = Shape(element_type("pred")), COUNTER

    def loop(**changes: Any) -> Callable[[], Any]:
        return lambda: while_.shape(*two, **{"condition": test, "body": body, **changes})

    def branch(chooses: Any, *branches: Any) -> Callable[[], Any]:
        return lambda: conditional.shape(chooses, *two, branch_computations=branches)

    def mapped(*operands: Any, **changes: Any) -> Callable[[], Any]:
        scalar = of_one(lambda x: x, [SCALAR], "scalar")
        return lambda: map_.shape(*operands, **{"dimensions": (0,), "to_apply": scalar, **changes})

    vector = SCALAR.with_dimensions((3,))
    return [
        (loop(condition=single), ShapeError, r"while: the condition single must give pred\[\], but it gives f32\[\]"),
        (loop(body=single), ShapeError, r"while: the body single must give a tuple, but it gives f32\[\]"),
        (loop(body=swapped), ShapeError, r"results of the body swapped.*number 0 is s32\[\] where f32\[\] is needed"),
        (loop(body=one), ShapeError, "a parameter for each of the 2 operands, but one has 1"),
        (loop(known_trip_count=-1), AttributeValueError, "known_trip_count must not be negative, but is -1"),
        (
            lambda: while_.shape(*two[::-1], condition=test, body=body),
            ShapeError,
            r"parameters of test.*number 0 is f32",
        ),
        (branch(pred, body), ShapeError, r"with an index pred\[\] there must be two branches, but there are 1"),
        (branch(index), ShapeError, "there must be at least one branch, but there are 0"),
        (branch(SCALAR, body, body), ShapeError, r"must be pred\[\] or s32\[\], but is f32\[\]"),
        (branch(pred, body, swapped), ShapeError, "body gives .* and swapped gives"),
        (branch(pred, single, single), ShapeError, "branches must give tuples, but single gives"),
        (branch(pred, body, one), ShapeError, "a parameter for each of the 2 operands, but one has 1"),
        (mapped(vector, vector.with_dimensions((2,))), ShapeError, "map: the operands must have the same dimensions"),
        (mapped(vector, dimensions=()), AttributeValueError, r"those of the operands in order, \(0,\), but are \(\)"),
        (mapped(vector.with_type(np.int32)), ShapeError, "map: the computation scalar must take scalars"),
        (mapped(vector, to_apply=one), ShapeError, "map: the computation one must give one scalar"),
        (mapped(), ShapeError, "map: the operands must be arrays, at least one"),
        (lambda: call.shape(*two, to_apply=one), ShapeError, "call: the operands of one must be"),
        (
            lambda: ffi.custom_call.custom_call.shape(TupleShape((SCALAR,)), custom_call_target="a", shape=SCALAR),
            ShapeError,
            "custom-call: operands and results must be arrays",
        ),
    ]


@pytest.mark.parametrize(("run", "error", "message"), _shape_errors())
def test_shape_errors(run: Callable[[], Any], error: type[TinyxlaError], message: str) -> None:
    with pytest.raises(error, match=message):
        run()


def test_graphs_verify() -> None:
    from tinyxla.hlo import verify

    for case in (nested, branch_in_loop, root):
        verify(Module("test", tx.make_graph(tx.grad(lambda x, case=case: case(tx, x)))(X).entry))


def test_a_function_may_keep_and_change_its_arguments() -> None:
    kept: list[np.ndarray[Any, Any]] = []

    def keep(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept.append(x)
        result = x + 1
        x[...] = 7
        return result

    ffi.register_ffi_target("test.keep", keep)
    kept_call = ffi.ffi_call("test.keep", tx.ShapeDtypeStruct((3,), np.float32))
    function = tx.jit(lambda x: kept_call(x * 2) + x * 2)
    for _ in range(3):
        np.testing.assert_array_equal(function(np.arange(3, dtype=np.float32)), [1, 5, 9])
    assert [x.tolist() for x in kept] == [[7, 7, 7]] * 3


def test_fori_loop_takes_floats_for_bounds() -> None:
    """Known ones are truncated; others are counted up from the lower one, which is a float, too."""

    def program(jx: Any) -> Any:
        def total(lower: Any, upper: Any) -> Any:
            return jx.lax.fori_loop(lower, upper, lambda i, c: (c[0] + 1, c[1] + i), (0, 0.0))

        counted = jx.jit(lambda n: total(0 * n, n))
        return total(0.0, 3.0), total(0.5, 2.5), counted(2.5), counted(3.0), jx.grad(lambda x: total(0.0, x)[1])(2.5)

    for found, expected in zip(tx.tree.leaves(program(tx)), jax.tree.leaves(program(jax)), strict=True):
        assert (float(found), found.dtype) == (float(expected), expected.dtype)


ZEROS = np.zeros((3, 2), tx.dtypes.float0)


@pytest.mark.parametrize("wraps", [lambda f: f, tx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "function",
    [
        lambda z: tx.lax.cond(True, lambda a: a, lambda a: a, z),
        lambda z: tx.lax.scan(lambda c, x: (c + 1.0, x), 0.0, z)[1],
        lambda z: tx.lax.scan(lambda c, x: (c, x), z, np.arange(3.0))[0],
        lambda z: tx.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0], c[1] + 1), (z, 0))[0],
        lambda z: tx.lax.fori_loop(0, 3, lambda _, c: c, z),
        lambda z: tx.lax.map(lambda pair: pair[0], (z, np.arange(3))),
        tx.lax.stop_gradient,
    ],
    ids=["cond", "scan xs", "scan carry", "while_loop", "fori_loop", "map", "stop_gradient"],
)
def test_zeros_of_integers_go_through_loops_and_branches(
    function: Callable[[Any], Any], wraps: Callable[[Any], Any]
) -> None:
    found = wraps(function)(ZEROS)
    assert (found.shape, found.dtype) == (ZEROS.shape, ZEROS.dtype)


def test_zeros_of_integers_in_xs_must_have_the_length() -> None:
    with pytest.raises(ShapeError, match="first axes of one size"):
        tx.lax.scan(lambda c, x: (c, x), 0.0, (np.arange(4), ZEROS))
