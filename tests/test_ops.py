"""Every op of the registry, with every sample that it gives, against all the demands of `op_checks`."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import jax_oracle
import numpy as np
import op_checks
import pytest

import tinyxla.transforms  # noqa: F401 - its ops are in the registry too
from tinyxla.ops import Sample, ops

NAMES = sorted(ops)


@pytest.fixture
def random(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


def samples_of(name: str) -> list[Sample]:
    return list(ops[name].samples(np.random.default_rng(zlib.crc32(name.encode()))))


def test_every_op_has_samples() -> None:
    assert [name for name in NAMES if name != "parameter" and not samples_of(name)] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "check",
    [
        op_checks.check_shape,
        op_checks.check_eager,
        op_checks.check_graph,
        op_checks.check_prints,
        op_checks.check_derivative_types,
        op_checks.check_no_derivative,
        op_checks.check_batch,
    ],
)
def test_op(check: Callable[..., Any], name: str) -> None:
    for sample in samples_of(name):
        check(ops[name], sample)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", [op_checks.check_forward, op_checks.check_reverse])
def test_derivative(check: Callable[..., Any], name: str, random: np.random.Generator) -> None:
    for sample in samples_of(name):
        if not op_checks.is_narrow(sample):
            check(ops[name], sample, random)


def test_every_op_has_an_oracle() -> None:
    assert [name for name in NAMES if (name in jax_oracle.functions) == (name in jax_oracle.absent)] == []


@pytest.mark.parametrize("name", sorted(jax_oracle.functions))
def test_op_against_jax(name: str) -> None:
    for sample in samples_of(name):
        op_checks.check_against(jax_oracle.oracle(name), ops[name], sample)
