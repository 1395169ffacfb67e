"""Random programs under random shardings give what they give by themselves, and so do their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.support.partitioned import MESHES, check_partitioned, random_spec
from tests.support.random_graphs import F64, Program, programs
from tinyxla.hlo import Computation
from tinyxla.transforms.computations import inexact, reverse

FEW, MANY = 40, 600
SIZES = st.sampled_from([2, 3, 4, 6, 8, 12])


def _check(computation: Computation, program: Program, seed: int, seeds: list[Any]) -> None:
    random = np.random.default_rng(seed)
    mesh = MESHES[seed % len(MESHES)]
    arrays = [*program.operands(seed), *seeds]
    check_partitioned(computation, mesh, [random_spec(random, x.shape, mesh) for x in arrays], arrays)


def _values(program: Program, seed: int) -> None:
    _check(program.computation(), program, seed, [])


def _gradients(program: Program, seed: int) -> None:
    computation = program.computation()
    active = tuple(shape.element_type is F64 for shape in program.parameters)
    flowing = inexact(computation)
    if not any(flowing):
        return
    both = reverse(computation, active, flowing, True).both
    random = np.random.default_rng(seed)
    outputs = [x.array_shape for x, flows in zip(computation.outputs, flowing, strict=True) if flows]
    _check(both, program, seed, [np.asarray(random.normal(size=s.dimensions)) for s in outputs])


@settings(max_examples=FEW, derandomize=True, deadline=None)
@given(programs(12, SIZES, 4096), st.integers(0, 1 << 16))
def test_random_programs(program: Program, seed: int) -> None:
    _values(program, seed)


@settings(max_examples=FEW // 2, derandomize=True, deadline=None)
@given(programs(8, SIZES, 4096), st.integers(0, 1 << 16))
def test_gradients_of_random_programs(program: Program, seed: int) -> None:
    _gradients(program, seed)


@pytest.mark.thorough
@settings(max_examples=MANY, derandomize=True, deadline=None)
@given(programs(20, SIZES, 4096), st.integers(0, 1 << 16))
def test_many_random_programs(program: Program, seed: int) -> None:
    _values(program, seed)


@pytest.mark.thorough
@settings(max_examples=MANY // 2, derandomize=True, deadline=None)
@given(programs(12, SIZES, 4096), st.integers(0, 1 << 16))
def test_gradients_of_many_random_programs(program: Program, seed: int) -> None:
    _gradients(program, seed)
