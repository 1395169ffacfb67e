"""Eager functions that are recorded and replayed: the same results to the bit, call after call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.api import eager_replay
from tinyxla.errors import TinyxlaError
from tinyxla.numpy.arguments import value_of

_TYPES = ("float32", "int32", "bfloat16", "complex64", "bool")
_CALLS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: jnp.mean(x, axis=0),
    "mean of all": lambda x: x.mean(),
    "var": lambda x: jnp.var(x, 1, ddof=1),
    "std": lambda x: x.std(keepdims=True),
    "average": lambda x: jnp.average(x, axis=1),
    "allclose": lambda x: jnp.allclose(x, x),
    "isclose": lambda x: jnp.isclose(x, 0.5),
    "clip": lambda x: jnp.clip(x, 0, 2),
    "linspace": lambda x: jnp.linspace(x[0], 3.0, 4),
    "linspace of numbers": lambda x: jnp.linspace(-0.0, 1.0, 5, retstep=True),
    "tril": lambda x: jnp.tril(x, 1),
    "median": lambda x: jnp.median(x, axis=0),
    "quantile": lambda x: jnp.quantile(x, 0.3),
    "sort": lambda x: jnp.sort(x, 0),
    "argsort": jnp.argsort,
    "norm": lambda x: jnp.linalg.norm(x, axis=1),
    "inv": lambda x: jnp.linalg.inv(x[:3, :3] + 4 * jnp.eye(3)),
    "solve": lambda x: jnp.linalg.solve(x[:3, :3] + 4 * jnp.eye(3), x[:3, 0]),
    "trace": jnp.trace,
    "diff": lambda x: jnp.diff(x, axis=0),
    "roll": lambda x: jnp.roll(x, (1, 2), (0, 1)),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "stack": lambda x: jnp.stack([x, x + 1], axis=1),
    "split": lambda x: jnp.split(x, 2),
    "cov": jnp.cov,
    "outer": lambda x: jnp.outer(x[0], x[1]),
    "dot": lambda x: jnp.dot(x[0], x[1]),
    "kron": lambda x: jnp.kron(x, x[:2]),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumprod": jnp.cumprod,
    "softmax": lambda x: tx.nn.softmax(x, axis=0),
    "logsumexp": lambda x: tx.nn.logsumexp(x, axis=-1),
    "one_hot": lambda x: tx.nn.one_hot(x[0], 4),
    "gelu": tx.nn.gelu,
    "relu": tx.nn.relu,
    "elu": tx.nn.elu,
    "softplus": tx.nn.softplus,
    "glu": lambda x: tx.nn.glu(x, axis=0),
    "det": lambda x: jnp.linalg.det(x[:3, :3]),
    "slogdet": lambda x: jnp.linalg.slogdet(x[:3, :3]),
    "lstsq": lambda x: jnp.linalg.lstsq(x, x[:, 0]),
    "pinv": jnp.linalg.pinv,
    "matrix_rank": jnp.linalg.matrix_rank,
    "cond": lambda x: jnp.linalg.cond(x + 1),
    "qr": jnp.linalg.qr,
    "matrix_power": lambda x: jnp.linalg.matrix_power(x[:4, :4], 3),
    "fft": jnp.fft.fft,
    "irfft2": jnp.fft.irfft2,
    "vstack": lambda x: jnp.vstack([x, x[0]]),
    "array_split": lambda x: jnp.array_split(x, 3, axis=1),
    "block": lambda x: jnp.block([[x, x], [x, x]]),
    "nan_to_num": lambda x: jnp.nan_to_num(x / 0),
    "modf": jnp.modf,
    "divmod": lambda x: jnp.divmod(x, 2),
    "gcd": lambda x: jnp.gcd(x, 6),
    "take_along_axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "take": lambda x: jnp.take(x, jnp.asarray([3, -1, 9]), axis=0, mode="clip"),
    "polymul": lambda x: jnp.polymul(x[0], x[1]),
    "choose": lambda x: jnp.choose(jnp.asarray([0, 1, 0]), [x[:3, 0], x[:3, 1]]),
    "gamma": tx.scipy.special.gamma,
    "ndtri": lambda x: tx.scipy.special.ndtri(x / 9),
    "xlogy": lambda x: tx.scipy.special.xlogy(x, x),
}


def _bits(result: Any) -> list[Any]:
    """Types and bits of arrays; the sign of a NaN means nothing."""
    found: list[Any] = []
    for x in tx.tree_util.tree_leaves(result):
        values = np.array(x)
        is_nan = values != values
        if is_nan.any():
            values[is_nan] = np.nan
        found.append((x.dtype, x.shape, x.weak_type, values.tobytes()))
    return found


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", _CALLS)
@pytest.mark.parametrize("dtype", _TYPES)
def test_replays_equal_the_first_call(name: str, dtype: str, generator: np.random.Generator) -> None:
    eager_replay.forget_recordings()
    call = _CALLS[name]
    for _ in range(2):  # other elements, the same recordings
        x = jnp.asarray(generator.integers(-3, 4, (4, 5))).astype(dtype)
        calls = [call] * 4
        try:
            expected = _bits(call(x))
        except TinyxlaError as error:
            for again in calls:
                with pytest.raises(type(error)):
                    again(x)
            continue
        for again in calls:
            assert _bits(again(x)) == expected


_SETTLED: dict[str, Callable[[Any], Any]] = {
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x[0]), x),
    "interp": lambda x: jnp.interp(x, jnp.sort(x[0]), x[1]),
    "digitize": lambda x: jnp.digitize(x, jnp.sort(x[1])),
    "median": jnp.median,
    "percentile": lambda x: jnp.percentile(x, 30.0, axis=1),
    "polyval": lambda x: jnp.polyval(x[0], x),
    "gradient": jnp.gradient,
    "frexp": jnp.frexp,
    "modf": jnp.modf,
}


@pytest.mark.parametrize("name", _SETTLED)
def test_functions_compiled_in_the_end_give_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch, generator: np.random.Generator
) -> None:
    eager_replay.forget_recordings()
    call, compiled = _SETTLED[name], list[Any]()
    monkeypatch.setattr(eager_replay, "STEPS_PER_COMPILATION", 100)
    monkeypatch.setattr(eager_replay, "_MIN_COMPILED_STEPS", 2)
    compile_program = eager_replay.jit
    monkeypatch.setattr(eager_replay, "jit", lambda f: _Watched(compile_program(f), compiled))
    for shape in ((4, 5), (3, 7)):
        special = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-37, 3.4e38]
        x = generator.normal(size=shape).astype(np.float32)
        x[1, :3] = generator.choice(special, 3)
        given = jnp.asarray(x)
        expected, before = _bits(call(given)), len(compiled)
        for _ in range(60):
            assert _bits(call(given)) == expected
        assert len(compiled) > before


class _Watched:
    """A program that tells of its calls."""

    def __init__(self, program: Any, calls: list[Any]) -> None:
        self._program, self._calls = program, calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def __call__(self, *arrays: Any) -> Any:
        self._calls.append(arrays)
        return self._program(*arrays)


def _draws(key: Any) -> list[Any]:
    random = tx.random
    return [
        random.normal(key, (100,)),
        random.normal(key, (3,), "complex64"),
        random.uniform(key, (7,), minval=-1.0, maxval=2.5),
        random.randint(key, (50,), 0, 17),
        random.bernoulli(key, 0.3, (9,)),
        random.permutation(key, 33),
        random.choice(key, 20, (5,), replace=False),
        random.gamma(key, 2.0, (5,)),
        random.split(key, 3),
        random.bits(key, (3,)),
    ]


def test_random_numbers_are_the_same_every_time() -> None:
    key = tx.random.PRNGKey(5)
    first = _draws(key)
    for _ in range(40):  # beyond the number of calls that are replayed before they are compiled
        assert _bits(_draws(key)) == _bits(first)
    with tx.disable_jit():
        for found, expected in zip(_draws(key), first, strict=True):
            np.testing.assert_allclose(found, expected, 1e-5)


def test_named_arguments_come_in_any_order() -> None:
    x, y = jnp.arange(2.0), jnp.arange(2.0) + 5
    for _ in range(3):
        np.testing.assert_array_equal(jnp.outer(b=y, a=x), np.outer(x, y))


def test_plain_arguments_are_told_apart() -> None:
    for _ in range(3):
        assert jnp.linspace(0, 1, 3).dtype == jnp.linspace(0.0, 1, 3).dtype
        assert jnp.clip(jnp.arange(3), 0, 1).dtype == np.int32
        assert jnp.clip(jnp.arange(3), 0.0, 1.0).dtype == np.float32
        assert np.signbit(np.asarray(jnp.linspace(-0.0, -0.0, 1)))[0]
        assert not np.signbit(np.asarray(jnp.linspace(0.0, 0.0, 1)))[0]


def test_options_that_decide_types_are_obeyed() -> None:
    assert [jnp.linspace(0.0, 1.0, 3).dtype for _ in range(3)] == [np.float32] * 3
    with tx.enable_x64():
        assert [jnp.linspace(0.0, 1.0, 3).dtype for _ in range(3)] == [np.float64] * 3
    assert jnp.linspace(0.0, 1.0, 3).dtype == np.float32


def test_transformations_see_through_replays() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    for _ in range(3):
        jnp.var(x, 1)
        gradient = tx.grad(lambda y: jnp.var(y, 1).sum())(x)
        np.testing.assert_allclose(gradient, 2 / 3 * (x - x.mean(1, keepdims=True)), rtol=1e-6)
        np.testing.assert_allclose(tx.vmap(jnp.var)(x), np.var(np.asarray(x), 1), rtol=1e-6)
        np.testing.assert_allclose(tx.jit(jnp.var)(x), np.var(np.asarray(x)), rtol=1e-6)


def test_results_may_be_donated() -> None:
    add = tx.jit(lambda x: x + 1, donate_argnums=0)
    expected = np.linspace(0, 1, 5, dtype=np.float32)
    for _ in range(4):
        found = jnp.linspace(0.0, 1.0, 5)
        np.testing.assert_array_equal(found, expected)
        add(found)


@pytest.mark.parametrize("shape", [(), (3,), (1000, 1000)])
def test_constants_are_made_once_and_stay(shape: tuple[int, ...]) -> None:
    """One value takes no more memory, however many elements have it; and a function that may overwrite it does not."""
    spend = tx.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(4):
        x = jnp.zeros(shape)
        assert value_of(x).strides == (0,) * len(shape)
        assert np.all(spend(x).numpy() == 1)
    assert np.all(jnp.zeros(shape).numpy() == 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float_, np.float32, np.dtype("float32"), "float32"])
def test_draws_with_an_element_type_are_replayed(dtype: Any) -> None:
    recordings = inspect.getclosurevars(tx.random.truncated_normal).nonlocals["recordings"]
    eager_replay.forget_recordings()
    tx.random.truncated_normal(tx.random.key(0), -2, 2, (5,), dtype)
    assert len(recordings) == 1


def test_draws_in_traced_functions_are_calls_of_one_computation() -> None:
    """Of each type of draw, however often it is made, and of nested ones; with the numbers of draws outside."""

    def draws(key: Any) -> Any:
        return [tx.random.normal(k, (3,)) for k in tx.random.split(key, 4)]

    key = tx.random.key(0)
    calls = [x for x in tx.jit(draws).trace(key).jaxpr.entry.instructions if x.op.name == "call"]
    assert len(calls) == 4
    assert len({x.attributes.to_apply for x in calls}) == 1
    for found, expected in zip(tx.jit(draws)(key), draws(key), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_recordings_of_draws_in_traced_functions_are_no_replays() -> None:
    key = tx.random.key(0)
    expected = tx.random.normal(key, (3,))
    recorded = tx.jit(lambda: tx.random.normal(key, (3,))).trace().jaxpr.entry
    assert any(x.op.name == "call" for x in recorded.instructions)
    np.testing.assert_array_equal(tx.random.normal(key, (3,)), expected)


def test_nested_draws_are_replayed_without_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    eager_replay.forget_recordings()
    monkeypatch.setattr("tinyxla.api.executables.compile_module", None)
    tx.random.truncated_normal(tx.random.key(0), -2, 2, (5,))


def test_draws_in_traced_functions_obey_blocks_of_options() -> None:
    draw = lambda key: tx.random.normal(key)  # noqa: E731
    shapes = [tx.eval_shape(draw, tx.random.key(0)).dtype]
    with tx.enable_x64(True):
        shapes.append(tx.eval_shape(draw, tx.random.key(0)).dtype)
    assert shapes == [np.float32, np.float64]
