"""Products of the steps of a loop, made for all steps at once: which leave the loop, and that the values stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
from tinyxla import lax, numpy as jnp
from tinyxla.compiler.passes import batch_loop_dots
from tinyxla.compiler.passes.control_flow_dce import control_flow_dce
from tinyxla.compiler.passes.inline_calls import inline_calls
from tinyxla.hlo import Computation
from tinyxla.ops import calls

Function = Callable[..., Any]
UNITS, INPUTS, STEPS = 32, 24, 9


def _arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(len(shapes))
    return [0.3 * random.standard_normal(shape).astype(np.float32) for shape in shapes]


def _moved(f: Function, *args: Any) -> Computation:
    return control_flow_dce(
        batch_loop_dots.batch_loop_dots(control_flow_dce(inline_calls(tx.make_graph(f)(*args).entry)))
    )


def _dots(computation: Computation) -> tuple[int, int]:
    """How many products there are outside and inside of loops."""
    outside = sum(x.op.name == "dot" for x in computation.instructions)
    bodies = [x.attributes.body for x in computation.instructions if x.op.name == "while"]
    return outside, sum(x.op.name == "dot" for body in bodies for x in body.instructions)


def _check(f: Function, *args: Any, compiled: bool = False) -> None:
    """The values stay, by the interpreter; or the whole function compiled."""
    whole = inline_calls(tx.make_graph(f)(*args).entry)
    operands = [np.asarray(x) for x in args]
    expected = calls.evaluate(whole, operands)
    found = tx.tree_util.tree_leaves(tx.jit(f)(*args)) if compiled else calls.evaluate(_moved(f, *args), operands)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, 2e-4, 2e-5 * max(1, np.max(np.abs(y))))


def _plain(weights: Any, sequence: Any, reverse: bool = False) -> Any:
    """A recurrent network whose state and input are put together."""

    def cell(state: Any, x: Any) -> tuple[Any, Any]:
        state = jnp.tanh(jnp.concatenate([x, state], -1) @ weights)
        return state, state

    start = jnp.zeros((*sequence.shape[1:-1], UNITS))
    return lax.scan(cell, start, sequence, reverse=reverse)[1]


def _projected(weights: Any, out: Any, bias: Any, sequence: Any, reverse: bool = False) -> Any:
    """One whose outputs are products of the state."""

    def cell(state: Any, x: Any) -> tuple[Any, Any]:
        state = jnp.tanh(x @ weights[:INPUTS] + state @ weights[INPUTS:] + bias)
        return state, jnp.sin(state @ out) + x[..., :1]

    start = jnp.zeros((*sequence.shape[1:-1], UNITS))
    return lax.scan(cell, start, sequence, reverse=reverse)[1]


WEIGHTS, OUT, BIAS = _arrays((INPUTS + UNITS, UNITS), (UNITS, 40), (UNITS,))


@pytest.mark.parametrize("batch", [(), (5,)])
def test_products_of_a_sequence_leave_the_loop(batch: tuple[int, ...]) -> None:
    (sequence,) = _arrays((STEPS, *batch, INPUTS))
    sequence = np.repeat(sequence, 8, 1) if batch else np.repeat(sequence, 3, 1)
    weights = np.concatenate([np.repeat(WEIGHTS[:INPUTS], 1 if batch else 3, 0), WEIGHTS[INPUTS:]])
    moved = _moved(_plain, weights, sequence)
    assert _dots(moved) == (1, 1)
    _check(_plain, weights, sequence)


def test_products_that_make_rows_leave_the_loop() -> None:
    (sequence,) = _arrays((STEPS, 4, INPUTS))
    assert _dots(_moved(_projected, WEIGHTS, OUT, BIAS, sequence)) == (2, 1)
    _check(_projected, WEIGHTS, OUT, BIAS, sequence)


def _with_loop_inside(weights: Any, out: Any, sequence: Any) -> Any:
    """One whose state takes some steps of its own between inputs, as solutions of differential equations do."""

    def cell(state: Any, x: Any) -> tuple[Any, Any]:
        state = lax.fori_loop(0, 3, lambda i, s: s + 0.2 * jnp.tanh(s @ weights[INPUTS:]), state)
        return state + x @ weights[:INPUTS], jnp.sin(state @ out)

    return lax.scan(cell, jnp.ones((sequence.shape[1], UNITS)), sequence)[1]


def test_products_of_what_a_loop_inside_makes_leave_the_loop() -> None:
    (sequence,) = _arrays((STEPS, 4, INPUTS))
    assert _dots(_moved(_with_loop_inside, WEIGHTS, OUT, sequence)) == (2, 0)
    _check(_with_loop_inside, WEIGHTS, OUT, sequence)
    gradient = tx.grad(lambda weights, out, x: jnp.sum(_with_loop_inside(weights, out, x) ** 2), (0, 1, 2))
    _check(gradient, WEIGHTS, OUT, sequence)
    _check(gradient, WEIGHTS, OUT, sequence, compiled=True)


def _loss(f: Function) -> Function:
    return lambda *x: jnp.sum(f(*x) ** 2)


def test_gradients_of_weights_are_products_after_the_loop() -> None:
    (sequence,) = _arrays((STEPS, 4, INPUTS))
    gradient = tx.grad(_loss(_projected), (0, 1, 2, 3))
    computation = _moved(gradient, WEIGHTS, OUT, BIAS, sequence)
    backward = [x for x in computation.instructions if x.op.name == "while"][-1].attributes.body
    sizes = [p.array_shape.dimensions for p in backward.parameters]
    changed = [s for s, p, x in zip(sizes, backward.parameters, backward.outputs, strict=True) if p is not x]
    assert (UNITS, UNITS) not in changed
    assert (UNITS, 40) not in changed
    assert (UNITS,) not in changed
    assert (STEPS, 4, INPUTS) not in changed
    _check(gradient, WEIGHTS, OUT, BIAS, sequence)
    _check(gradient, WEIGHTS, OUT, BIAS, sequence, compiled=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batch", [(), (1,), (6,), (2, 3)])
def test_values_and_gradients(reverse: bool, batch: tuple[int, ...]) -> None:
    (sequence,) = _arrays((STEPS, *batch, INPUTS))
    for f, weights in ((_plain, (WEIGHTS,)), (_projected, (WEIGHTS, OUT, BIAS))):
        count = len(weights) + 1
        _check(lambda *x, f=f: f(*x, reverse), *weights, sequence)
        _check(tx.grad(_loss(lambda *x, f=f: f(*x, reverse)), tuple(range(count))), *weights, sequence)


def test_second_derivatives() -> None:
    (sequence,) = _arrays((5, 3, INPUTS))
    first = tx.grad(_loss(_plain))
    _check(lambda w, s: tx.jvp(lambda w: first(w, s), (w,), (w,))[1], WEIGHTS, sequence)


def test_sums_of_products_in_loops_of_the_user() -> None:
    """Also of counters, of rows before the first, backwards, and with further terms."""
    x, y = _arrays((12, 48), (12, 50))

    def outer(x: Any, y: Any) -> Any:
        def step(i: Any, total: Any) -> Any:
            a, b = lax.dynamic_slice(x, (i + 2, 0), (1, 48))[0], lax.dynamic_slice(y, (9 - i, 0), (1, 50))[0]
            return total + jnp.outer(a, jnp.cos(b)) + jnp.outer(x[i], -y[i + 1])

        return lax.fori_loop(0, 8, step, jnp.ones((48, 50)))

    def pairs(x: Any, y: Any) -> Any:
        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            total, state = carry
            state = jnp.sin(row[0] + state)
            return (total + jnp.outer(state, row[1]).T, state), None

        return lax.scan(step, (jnp.zeros((50, 48)), x[0]), (x, y), reverse=True)[0]

    for f in (outer, pairs):
        _check(f, x, y)
    assert _dots(_moved(pairs, x, y)) == (1, 0)


def test_sums_that_the_loop_reads_stay() -> None:
    x, y = _arrays((12, 48), (12, 50))

    def read(x: Any, y: Any) -> Any:
        def step(total: Any, row: Any) -> tuple[Any, Any]:
            total = total + jnp.outer(row[0], row[1])
            return total, jnp.sum(total)

        return lax.scan(step, jnp.zeros((48, 50)), (x, y))

    assert _dots(_moved(read, x, y))[0] == 0
    _check(read, x, y)


def test_rows_that_take_more_memory_than_the_loop_stay() -> None:
    """Of 2,000 steps with 8 MB of rows for a sum of 8 KB."""
    (x,) = _arrays((48, 50))

    def f(x: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            total, a = carry
            a = jnp.sin(a * 1.01)
            return (total + a @ a.T, a), None

        return lax.scan(step, (jnp.zeros((48, 48)), x), None, length=2000)[0][0]

    assert _dots(_moved(f, x)) == (0, 1)


def test_rows_that_are_never_read_are_not_written() -> None:
    """The cotangents of rows that a step has taken."""
    (x,) = _arrays((STEPS, UNITS))

    def f(x: Any) -> Any:
        return jnp.sum(lax.scan(lambda c, row: (jnp.sin(c * row), jnp.cos(c)), x[0], x)[1] ** 2)

    computation = _moved(tx.grad(lambda s: f(x * s)), 1.5)
    backward = [x for x in computation.instructions if x.op.name == "while"][-1].attributes.body
    updates = [x for x in backward.instructions if x.op.name == "dynamic-update-slice"]
    assert not any(x.operands[0].op.name == "parameter" and _is_zero(x.operands[1]) for x in updates)
    _check(tx.grad(f), x)


def _is_zero(x: Any) -> bool:
    return x.op.name == "broadcast" and x.operands[0].op.name == "constant"


def _shifted(shift: int) -> Function:
    """Rows are read after others have been written: which is not what is looked for."""

    def f(x: Any) -> Any:
        def step(i: Any, rows: Any) -> Any:
            return rows.at[i].set(jnp.sin(rows[i + shift]) + 1)

        return jnp.sum(lax.fori_loop(2, 7, step, x))

    return f


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_rows_that_are_read_later(shift: int) -> None:
    (x,) = _arrays((STEPS, UNITS))
    _check(_shifted(shift), x)
    _check(tx.grad(_shifted(shift)), x)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_in_row_order", lambda self, found, number: found),
        ("_sliced_row", lambda self, x: None if batch_loop_dots._BatchedLoop._true_sliced_row(self, x) is None else 0),  # type: ignore[attr-defined]
        ("_only_user", lambda self, x, user: True),
    ],
)
def test_planted_errors_are_found(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        batch_loop_dots._BatchedLoop, "_true_sliced_row", batch_loop_dots._BatchedLoop._sliced_row, raising=False
    )
    monkeypatch.setattr(batch_loop_dots._BatchedLoop, name, broken)
    tests: Sequence[Callable[[], None]] = (
        test_sums_of_products_in_loops_of_the_user,
        lambda: test_values_and_gradients(True, (6,)),
        test_sums_that_the_loop_reads_stay,
    )
    wrong = 0
    for test in tests:
        try:
            test()
        except Exception:
            wrong += 1
    assert wrong


# --- rows that are made where they are kept ---------------------------------------------------------------------------

ROWS = np.random.default_rng(5).standard_normal((7, 150)).astype(np.float32)


def _of_loop(first: int, step: int, read: int | None, times: int = 6) -> Function:
    """Rows are put from `first` on, one after the other, after one of them was read, or none."""

    def f(x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            rows, state = carry
            place = first + step * i
            state = jnp.cos(state) + (0 if read is None else rows[place + read])
            return rows.at[place].set(jnp.sin(state) * 2), state

        return lax.fori_loop(0, times, body, (x, x[1]))

    return f


def _scans() -> list[Function]:
    def twice(c: Any, x: Any) -> Any:
        y = jnp.sin(c * x)
        return c + y, (y, y, c, x)

    def nested(c: Any, x: Any) -> Any:
        inner, found = lax.scan(lambda d, z: (d * 0.5 + z, jnp.tanh(d + z)), c, jnp.stack([x, c, x]))
        return inner, (found, jnp.sin(found[1]))

    def narrow(c: Any, x: Any) -> Any:
        return c + x, ((c > x), (c * x).astype(jnp.bfloat16), jnp.sum(c * x))

    return [lambda x, f=f, r=r: lax.scan(f, x[0], x, reverse=r) for f in (twice, nested, narrow) for r in (False, True)]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("function", [_of_loop(0, 1, None), _of_loop(6, -1, None), _of_loop(1, 1, None), *_scans()])
def test_rows_are_made_in_place(function: Function) -> None:
    _check(function, ROWS, compiled=True)
    _check(lambda x: lax.fori_loop(0, 3, lambda _, y: y + function(y)[0][0], x), ROWS, compiled=True)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("read", [-1, 0, 1])
@pytest.mark.parametrize(("first", "step"), [(1, 1), (5, -1), (3, 1), (1, 2)])
def test_rows_that_are_read_are_copied(read: int, first: int, step: int) -> None:
    _check(_of_loop(first, step, read, 5), ROWS, compiled=True)


def test_updates_vanish() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, row: (jnp.sin(c + row), (jnp.cos(c) * row, jnp.tan(c))), x[0], x)

    kernels = [kernel.name for kernel in tx.jit(f).lower(ROWS).compile().kernels]
    assert "update" not in kernels


def test_a_part_of_a_product_with_weights_put_together() -> None:
    """The part begins in the middle of one piece, and ends in that of another."""
    first, second, sequence = _arrays((UNITS, 40), (UNITS, 60), (STEPS, 16, UNITS))

    def f(first: Any, second: Any, sequence: Any) -> Any:
        def step(total: Any, x: Any) -> tuple[Any, Any]:
            product = jnp.tanh(x + total) @ jnp.concatenate([first, second], 1)
            return total + 1, product[:, 20:80]

        return lax.scan(step, jnp.float32(0), sequence)[1]

    _check(f, first, second, sequence)
