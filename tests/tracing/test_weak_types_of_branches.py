"""Whether the results of `cond` and `switch` are weakly typed where their branches differ in that: as on JAX."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tinyxla as tx

jax = pytest.importorskip("jax")

BRANCHES = [lambda x, y, z: x, lambda x, y, z: y, lambda x, y, z: z]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("pred", [False, True])
@pytest.mark.parametrize("weak", list(itertools.product([False, True], repeat=2)))
def test_cond_result_is_weakly_typed_as_on_jax(weak: tuple[bool, bool], pred: bool, compiled: bool) -> None:
    def result(package: object) -> bool:
        operands = [package.numpy.asarray(7 if w else np.int32(7)) for w in weak]
        assert [x.weak_type for x in operands] == list(weak)

        def function(p: object, x: object, y: object) -> object:
            return package.lax.cond(p, lambda a, b: a, lambda a, b: b, x, y)

        return (package.jit(function) if compiled else function)(package.numpy.asarray(pred), *operands).weak_type

    assert result(tx) == result(jax)


@pytest.mark.parametrize("weak", list(itertools.product([False, True], repeat=3)))
def test_switch_result_is_weakly_typed_as_on_jax(weak: tuple[bool, ...]) -> None:
    def result(package: object) -> bool:
        operands = [package.numpy.asarray(7.0 if w else np.float32(7)) for w in weak]
        return package.lax.switch(package.numpy.asarray(1), BRANCHES, *operands).weak_type

    assert result(tx) == result(jax)


def test_while_loop_after_cond_keeps_a_weak_carry_that_becomes_a_float() -> None:
    def program(package: object) -> list[object]:
        start = package.numpy.asarray(5)
        exact = package.numpy.ones((), package.numpy.int32)
        start = package.lax.cond(package.numpy.asarray(False), lambda: exact, lambda: start)
        result = package.lax.while_loop(lambda x: x < 20, lambda x: x * package.numpy.float32(1.5), start)
        return [str(result.dtype), float(result)]

    assert program(tx) == program(jax)
