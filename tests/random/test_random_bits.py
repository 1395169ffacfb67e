"""Random bits as functions of a state, against XLA and JAX; and numbers drawn from a hidden state, which nothing may
merge, fold or repeat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.compiler import pipeline
from tinyxla.errors import AttributeValueError, DifferentiationError, DTypeError, ShapeError
from tinyxla.hlo import Literal
from tinyxla.ops import movement, random_bits
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing import trace, wrap

ALGORITHMS = tuple(lax.RandomAlgorithm)
F32 = element_type("f32")


def scalars(dtype: Any, *values: float) -> list[Any]:
    return [wrap(np.asarray(x).astype(dtype)) for x in values]


def draw(low: float, high: float, shape: tuple[int, ...], dtype: Any = np.float32, kind: str = "uniform") -> Any:
    wanted = Shape(element_type(dtype), shape)
    return random_bits.rng(*scalars(dtype, low, high), distribution=f"rng_{kind}", shape=wanted)


# --- bits -------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bits_are_those_of_jax(algorithm: lax.RandomAlgorithm, generator: np.random.Generator) -> None:
    """Eager and compiled; shapes with even sizes nowhere, first, last."""
    shapes = ((), (7,), (3, 5), (5, 3), (3, 4), (2, 3, 5), (0,))
    for shape, dtype in [*((shape, np.uint32) for shape in shapes), ((33,), np.uint8), ((5,), np.uint16)]:
        key = generator.integers(0, 2**32, 4, np.uint32)
        theirs = jax.lax.rng_bit_generator(key, shape, dtype, algorithm=jax.lax.RandomAlgorithm(algorithm))
        eager = lax.rng_bit_generator(key, shape, dtype, algorithm)
        compiled = tx.jit(lax.rng_bit_generator, static_argnums=(1, 2, 3))(key, shape, dtype, algorithm)
        for ours in (eager, compiled):
            for x, y in zip(ours, theirs, strict=True):
                assert x.dtype == y.dtype
                np.testing.assert_array_equal(x, y)


def test_long_words_and_states_of_64_bits(generator: np.random.Generator) -> None:
    for algorithm, count in ((lax.RandomAlgorithm.RNG_THREE_FRY, 2), (lax.RandomAlgorithm.RNG_PHILOX, 2)):
        key = generator.integers(0, 2**64, count, np.uint64)
        with jax.enable_x64(True):
            name = jax.lax.RandomAlgorithm(algorithm)
            after, found = map(np.asarray, jax.lax.rng_bit_generator(key, (3, 5), np.uint64, algorithm=name))
        state, bits = lax.rng_bit_generator(jnp.asarray(key, dtype=np.uint64), (3, 5), np.uint64, algorithm)
        np.testing.assert_array_equal(state, after)
        np.testing.assert_array_equal(bits, found)


def test_known_answers_of_philox() -> None:
    """The answers for philox4x32 with 10 rounds that the authors' library Random123 comes with."""
    for counter, key, expected in (
        ((0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**64 - 1, 2**64 - 1), 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        state = jnp.asarray(np.array([key, *counter], np.uint64), dtype=np.uint64)
        _, bits = lax.rng_bit_generator(state, (4,), algorithm=lax.RandomAlgorithm.RNG_PHILOX)
        assert bits.tolist() == list(expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_states_go_on(algorithm: lax.RandomAlgorithm) -> None:
    """The state afterwards gives the bits that come next: 64-bit ones do not depend on where draws begin."""
    state = jnp.asarray(np.array([5, 2**64 - 3], np.uint64), dtype=np.uint64)
    middle, first = lax.rng_bit_generator(state, (4,), np.uint64, algorithm)
    if algorithm == lax.RandomAlgorithm.RNG_THREE_FRY:  # with two numbers, Philox keeps no carry
        end, second = lax.rng_bit_generator(middle, (4,), np.uint64, algorithm)
        last, whole = lax.rng_bit_generator(state, (8,), np.uint64, algorithm)
        np.testing.assert_array_equal(np.concatenate([first, second]), whole)
        np.testing.assert_array_equal(end, last)


def test_bits_are_native() -> None:
    """They are made in loops, and what uses them is fused with them: no array of bits is made."""

    def mean(key: Any) -> Any:
        _, bits = lax.rng_bit_generator(key, (64, 64), algorithm=lax.RandomAlgorithm.RNG_PHILOX)
        return bits.astype(np.float32).sum()

    key = jnp.asarray(np.array([1, 2], np.uint64), dtype=np.uint64)
    program = tx.jit(mean).lower(key).compile()
    assert "host call" not in program.report().text()
    np.testing.assert_allclose(program(key), mean(key), 1e-5)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (DTypeError, "the key must be of unsigned integers", lambda: lax.rng_bit_generator(np.zeros(4), (2,))),
        (ShapeError, "must be u64.2., u64.3., u32.4. or", lambda: lax.rng_bit_generator(np.zeros(3, np.uint32), (2,))),
        (
            ShapeError,
            r"state of rng_default must be u64\[2\]",
            lambda: lax.rng_bit_generator(np.zeros(8, np.uint32), ()),
        ),
        (
            ShapeError,
            r"the state of rng_three_fry must be u64\[2\], but got u64\[3\]",
            lambda: lax.rng_bit_generator(np.zeros(6, np.uint32), (2,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
        ),
        (
            DTypeError,
            "an integer or floating type",
            lambda: lax.rng_bit_generator(np.zeros(4, np.uint32), (), np.bool_),
        ),
        (
            AttributeValueError,
            "algorithm must be one of rng_default, rng_three_fry, rng_philox, but got 'rng_best'",
            lambda: random_bits.rng_bit_generator(wrap(np.zeros(2, np.uint64)), algorithm="rng_best", shape=Shape(F32)),
        ),
        (
            DTypeError,
            "the state must be of 64-bit unsigned",
            lambda: random_bits.rng_bit_generator(wrap(np.zeros(2)), algorithm="rng_philox", shape=Shape(F32)),
        ),
        (AttributeValueError, "delta must not be negative", lambda: random_bits.rng_get_and_update_state(delta=-1)),
        (DTypeError, "rng_normal must be of a type .* but got s32", lambda: draw(0, 1, (2,), np.int32, "normal")),
        (DTypeError, "rng_uniform must be of a type .* but got c64", lambda: draw(0, 1, (2,), np.complex64)),
        (AttributeValueError, "must be one of rng_uniform, rng_normal", lambda: draw(0, 1, (2,), kind="poisson")),
        (ShapeError, "must be scalars f32", lambda: lax.rng_uniform(np.zeros(2), np.ones(2), (2,))),
    ],
)
def test_errors(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=message):
        call()


# --- numbers from the hidden state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_every_draw_is_another(compiled: bool) -> None:
    """Two draws in one program, with constant parameters that nothing may fold, and in two runs of it."""

    def two() -> Any:
        return lax.rng_uniform(0.0, 1.0, (50,)), lax.rng_uniform(0.0, 1.0, (50,))

    run = tx.jit(two) if compiled else two
    (a, b), (c, d) = run(), run()
    values = np.concatenate([a, b, c, d])
    assert len(np.unique(values)) > 190


def test_passes_keep_draws_apart() -> None:
    """Also those that see the op itself."""

    def two() -> list[Any]:
        parameters = [movement.constant(literal=Literal(np.float32(x).reshape(()))) for x in (0, 1)]
        return [random_bits.rng(*parameters, distribution="rng_uniform", shape=Shape(F32, (2,))) for _ in range(2)]

    computation = trace(two, [], "two")[0]
    for apply in (pipeline.eliminate_common_subexpressions, pipeline.simplify, pipeline.fold_constants):
        assert [x.op.name for x in apply(computation).instructions].count("rng") == 2
    expanded = pipeline.optimize(computation)
    assert [x.op.name for x in expanded.instructions].count("rng-get-and-update-state") == 2


def _number() -> Any:
    return lax.rng_uniform(0.0, 1.0, ())


PROGRAMS: dict[str, Callable[[], Any]] = {
    "calls": lambda: (tx.jit(_number)(), tx.jit(_number)()),
    "branches": lambda: tuple(lax.cond(jnp.array(True), _number, lambda: jnp.float32(0)) for _ in range(2)),
    "loops": lambda: lax.fori_loop(0, 2, lambda k, found: found.at[k].set(_number()), jnp.zeros(2)),
    "conditions": lambda: tuple(lax.while_loop(lambda x: x < 1, lambda x: x + _number(), 0.0) for _ in range(2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_draws_in_computations_are_kept_apart(name: str) -> None:
    """Equal calls, branches and loops that draw are not one, and none is folded though all it takes is constant."""
    run = tx.jit(PROGRAMS[name])
    assert len({float(x) for _ in range(2) for x in run()}) == 4


def test_the_hidden_state_is_shared_by_threads() -> None:
    found: list[int] = []

    def work() -> None:
        for _ in range(200):
            low, high = random_bits.rng_get_and_update_state.evaluate(delta=3)
            found.append(int(low) + (int(high) << 64))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(found)) == 800
    assert {(x - min(found)) % 3 for x in found} == {0}


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_uniform_floats(dtype: str) -> None:
    """Inside the interval, its end excluded, also where rounding would reach it; with the moments they should have."""
    kind = element_type(dtype).dtype
    values = np.asarray(draw(1, 2, (20000,), kind)).astype(np.float64)
    assert values.min() >= 1
    assert values.max() < 2
    assert abs(values.mean() - 1.5) < 0.02
    assert abs(values.var() - 1 / 12) < 0.005


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_uniform_integers(dtype: Any) -> None:
    low = 0 if np.dtype(dtype).kind == "u" else -3
    run = tx.jit(lambda: random_bits.rng(*scalars(dtype, low, 5), distribution="rng_uniform", shape=shape))
    shape = Shape(element_type(dtype), (8000,))
    values, counts = np.unique(np.asarray(run()), return_counts=True)
    assert values.tolist() == list(range(low, 5))
    assert counts.min() > 0.8 * 8000 / len(values)


def test_the_whole_range_of_integers() -> None:
    values = np.asarray(draw(-(2**31), 2**31 - 1, (4000,), np.int32)).astype(np.float64)
    assert abs(values.mean()) < 2**31 / 20
    assert abs(values.std() / 2**32 - 1 / np.sqrt(12)) < 0.01


def test_truth_values() -> None:
    assert 800 < np.asarray(draw(0, 1, (2000,), np.bool_)).sum() < 1200


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_normal(dtype: str) -> None:
    values = np.asarray(draw(3, 2, (20000,), element_type(dtype).dtype, "normal")).astype(np.float64)
    scaled = (values - 3) / 2
    assert np.isfinite(scaled).all()
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert abs((scaled**power).mean() - moment) < 0.3


def test_mapped_parameters_have_draws_of_their_own() -> None:
    lows = np.array([0, 0, 100], np.float32)
    values = np.asarray(tx.vmap(lambda a: lax.rng_uniform(a, a + 1, (300,)))(lows))
    assert values.shape == (3, 300)
    assert ((values >= lows[:, None]) & (values < lows[:, None] + 1)).all()
    assert (values[0] != values[1]).mean() > 0.9


def test_no_derivative() -> None:
    with pytest.raises(DifferentiationError, match="hidden state"):
        tx.grad(lambda a: lax.rng_uniform(a, 1.0, (2,)).sum())(0.0)
