"""Loops and branches give what JAX gives: values, element types, weak types and structures, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx

# Each case is a function of a library, so that both run the same lines.
CASES: list[Callable[[Any], Any]] = [
    lambda m: m.lax.scan(lambda c, x: (c + x, c), 0, m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: (c + x, c), 0.0, m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: (c + x, c), 0, m.numpy.ones(3)),
    lambda m: m.lax.scan(lambda c, x: (c + 1, c), 0, m.numpy.ones(3)),
    lambda m: m.lax.scan(lambda c, x: (c + 1.5, c), 0, m.numpy.ones(3)),
    lambda m: m.lax.scan(lambda c, x: (c + 1, (c, 1, 2.0)), 0.0, None, length=3),
    lambda m: m.lax.scan(lambda c, x: (c * 2, x), np.float32(1), m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: ((c[1], c[0]), x), (0, 1.0), m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: ((c[1], c[0]), None), (0, m.numpy.int32(1)), None, length=2),
    lambda m: m.lax.scan(lambda c, x: ({"a": c["a"] + 1}, {"b": c["a"]}), {"a": 0}, None, length=2),
    lambda m: m.lax.scan(lambda c, x: (c, x + 1), None, m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: (c, None), (), m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: (c, {}), 1, {"a": m.numpy.arange(3), "b": None}),
    lambda m: m.lax.scan(lambda c, x: (c, x), 1j, m.numpy.arange(3)),
    lambda m: m.lax.scan(lambda c, x: (c ^ x, x), True, m.numpy.array([True, False])),
    lambda m: m.lax.scan(lambda c, x: (c + x, x), 0, np.arange(3, dtype=np.int8)),
    lambda m: m.lax.scan(lambda c, x: (c + x, x), m.numpy.bfloat16(0), np.ones(3, np.float16)),
    lambda m: m.lax.scan(lambda c, x: (c + x, x), 0, m.numpy.ones(0)),
    lambda m: m.lax.scan(lambda c, x: (c + x, x), 0, m.numpy.ones((2, 0))),
    lambda m: m.lax.scan(lambda c, x: (c + x, x), 0, m.numpy.ones(5), unroll=2, reverse=True),
    lambda m: m.lax.scan(m.jit(lambda c, x: (c + x, x)), 0, m.numpy.ones(5)),
    lambda m: m.lax.while_loop(lambda c: c < 5, lambda c: c + 1, 0),
    lambda m: m.lax.while_loop(lambda c: c < 5, lambda c: c + 1.0, 0),
    lambda m: m.lax.while_loop(lambda c: c < 5, lambda c: c + 1, 0.0),
    lambda m: m.lax.while_loop(lambda c: c < 5, lambda c: c + m.numpy.float32(1), 0.0),
    lambda m: m.lax.while_loop(lambda c: c < 5, lambda c: c + m.numpy.float32(1), 0),
    lambda m: m.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[0]), (0, 0.0)),
    lambda m: m.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (m.numpy.int32(0), 1)),
    lambda m: m.lax.fori_loop(0, 3, lambda i, c: c + i, 0),
    lambda m: m.lax.fori_loop(0, 3, lambda i, c: c + i, 0.0),
    lambda m: m.lax.fori_loop(0, 3, lambda i, c: i, 0),
    lambda m: m.lax.fori_loop(0, 3, lambda i, c: i * 1.5, 0),
    lambda m: m.lax.fori_loop(m.numpy.int32(0), 3, lambda i, c: c + i, 0),
    lambda m: m.lax.fori_loop(0, m.numpy.int32(3), lambda i, c: c + i, 0),
    lambda m: m.lax.fori_loop(-3, 3, lambda i, c: c + i * i, 0),
    lambda m: m.lax.fori_loop(3, -3, lambda i, c: c + i * i, 7),
    lambda m: m.lax.fori_loop(np.int8(0), np.int8(3), lambda i, c: i, np.int8(0)),
    lambda m: m.lax.fori_loop(m.numpy.int8(0), m.numpy.int8(3), lambda i, c: i * 100, 0),
    lambda m: m.lax.fori_loop(0, m.numpy.int8(3), lambda i, c: c + i, m.numpy.int16(0)),
    lambda m: m.lax.fori_loop(m.numpy.uint32(1), m.numpy.uint32(3), lambda i, c: i, 0),
    lambda m: m.jit(lambda n: m.lax.fori_loop(0, n, lambda i, c: c + i, n))(np.int8(3)),
    lambda m: m.lax.cond(True, lambda: 1, lambda: 2),
    lambda m: m.lax.cond(True, lambda: 1.0, lambda: m.numpy.float32(2)),
    lambda m: m.lax.cond(2.5, lambda x: x, lambda x: x + 1, 3),
    lambda m: m.lax.cond(np.int8(0), lambda x: x, lambda x: x + 1, 3.0),
    lambda m: m.lax.cond(True, 1.0, lambda x: x, 2.0, lambda x: -x),
    lambda m: m.lax.cond(True, lambda x: 1.0, lambda x: 2.0, operand=None),
    lambda m: m.lax.cond(True, lambda x: x, lambda x: x, operand=None),
    lambda m: m.lax.cond(True, lambda x: x["a"], lambda x: x["b"], {"a": 1, "b": 2}),
    lambda m: m.lax.cond(True, lambda: None, lambda: None),
    lambda m: m.lax.switch(-1, [lambda x: x, lambda x: x * 2], 3),
    lambda m: m.lax.switch(9, [lambda x: x, lambda x: x * 2], 3.0),
    lambda m: m.lax.switch(np.uint8(1), [lambda x: x, lambda x: x * 2], np.float16(3)),
    lambda m: m.lax.switch(0, [lambda x: x], 3),
    lambda m: m.lax.switch(1, [lambda x: x, lambda x: x * 2], operand=3),
    lambda m: m.lax.map(lambda x: x * 2, m.numpy.arange(3)),
    lambda m: m.lax.map(lambda x: 1, m.numpy.arange(3)),
    lambda m: m.lax.map(lambda x: (x["a"], 2.0), {"a": m.numpy.arange(5)}, batch_size=2),
    lambda m: m.lax.map(lambda x: x, m.numpy.ones((0, 3))),
    lambda m: m.lax.associative_scan(lambda a, b: a + b, m.numpy.arange(5)),
    lambda m: m.lax.associative_scan(
        lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (m.numpy.arange(1.0, 6), m.numpy.ones(5)), reverse=True
    ),
    lambda m: m.lax.associative_scan(m.numpy.maximum, m.numpy.ones((2, 0, 3)), axis=1),
    lambda m: m.lax.associative_scan(m.numpy.matmul, m.numpy.ones((3, 2, 2))),
    lambda m: m.lax.platform_dependent(3, cpu=lambda x: x + 1, tpu=lambda x: x + 2),
    lambda m: m.lax.platform_dependent(3, default=lambda x: x + 1, tpu=lambda x: x + 2),
    lambda m: m.lax.associative_scan(
        lambda a, b: m.tree_util.tree_map(lambda x, y: x + y, a, b),
        {"a": m.numpy.arange(7), "b": (m.numpy.ones((7, 2)), None)},
        reverse=True,
    ),
    lambda m: m.lax.associative_scan(lambda a, b: a * b, m.numpy.ones((3, 5)), axis=-1),
    lambda m: m.lax.associative_scan(lambda a, b: a * b, m.numpy.ones((0, 5))),
]


def described(m: Any, case: Callable[[Any], Any]) -> list[Any]:
    """Values, types and the structure of what a case gives."""
    leaves, tree = m.tree_util.tree_flatten(case(m))
    arrays = [m.numpy.asarray(x) for x in leaves]
    types = [(np.dtype(x.dtype).name, x.shape, x.weak_type, np.asarray(x).tolist()) for x in arrays]
    return [*types, str(tree).partition("(")[2].removesuffix(", namespace='tinyxla')").removesuffix(")")]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_as_in_jax(number: int) -> None:
    case = CASES[number]
    try:
        expected = described(jax, case)
    except TypeError:  # of what is carried
        with pytest.raises((tx.errors.DTypeError, tx.errors.ShapeError), match="what is carried is"):
            case(tx)
        return
    for _ in range(3):  # a repeated call is a compiled program
        assert described(tx, case) == expected


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_without_compilation(number: int) -> None:
    case = CASES[number]
    try:
        with jax.disable_jit():
            expected = described(jax, case)
    except (TypeError, ValueError):  # the types of what is carried and stacked are unknown, or other
        return
    tx.config.update("disable_jit", True)
    try:
        assert [x[3] for x in described(tx, case)[:-1]] == [x[3] for x in expected[:-1]]
    finally:
        tx.config.update("disable_jit", False)


@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scans_of_one_operation(reverse: bool) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (3, 70)).astype(np.int32)
    functions = {np.add: lambda a, b: b + a, np.maximum: tx.numpy.maximum, np.bitwise_xor: lambda a, b: a ^ b}
    for ufunc, function in functions.items():
        scan = tx.jit(lambda x, function=function: tx.lax.associative_scan(function, x, reverse, axis=-1))
        wanted = ufunc.accumulate(x[:, ::-1], 1)[:, ::-1] if reverse else ufunc.accumulate(x, 1)
        np.testing.assert_array_equal(scan(x), wanted)
        assert len(scan.lower(x).compile().report().steps) == 1


def test_function_of_an_associative_scan_may_give_its_leaves_in_another_structure() -> None:
    x, y = np.arange(1.0, 5.0, dtype=np.float32), np.ones(4, np.float32)
    found = tx.lax.associative_scan(lambda a, b: [a["x"] * b["x"], a["y"] + b["y"]], {"x": x, "y": y})
    np.testing.assert_array_equal(found["x"], np.cumprod(x))
    np.testing.assert_array_equal(found["y"], np.cumsum(y))


def test_errors_of_associative_scans() -> None:
    with pytest.raises(tx.errors.ShapeError, match="different sizes along axis 0"):
        tx.lax.associative_scan(lambda a, b: a, (np.ones(3), np.ones(4)))
    with pytest.raises(tx.errors.ArgumentError, match="at least one array"):
        tx.lax.associative_scan(lambda a, b: a, ())
    with pytest.raises(tx.errors.ArgumentError, match="must give the structure that it takes"):
        tx.lax.associative_scan(lambda a, b: (a, b), np.ones(3))
