"""Workloads: random numbers from a key. Each is called with a seed, so that none is a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Calls, Function, Inputs, Once, Workload, normal

MILLION = 10**6


def _seeded(draw: Callable[[Any, Any], Any]) -> Callable[[Any], Function]:
    """`draw(random, key)`, as a function of a seed."""
    return lambda tx: lambda seed: draw(tx.random, tx.random.key(seed[0]))


def _seed(generator: np.random.Generator) -> tuple[Any, ...]:
    return (generator.integers(0, 1000, 1, dtype=np.int32),)


def _numpy(draw: Callable[[np.random.Generator], Any]) -> Function:
    generator = np.random.default_rng(0)
    return lambda _: draw(generator)


def _drawn(
    name: str,
    draw: Callable[[Any, Any], Any],
    numpy: Callable[[np.random.Generator], Any] | None = None,
    torch: Callable[[Any], Any] | None = None,
) -> Workload:
    return Workload(
        name,
        _seeded(draw),
        _seed,
        numpy=numpy and _numpy(numpy),
        torch=torch and (lambda torch_, f=torch: lambda _: f(torch_)),
    )


def _dropout(tx: Any) -> Function:
    def dropout(x: Any, seed: Any) -> Any:
        kept = tx.random.bernoulli(tx.random.key(seed[0]), 0.9, x.shape)
        return tx.numpy.where(kept, x / 0.9, 0)

    return dropout


def _with_seed(inputs: Inputs) -> Inputs:
    return lambda generator: (*inputs(generator), *_seed(generator))


WORKLOADS: tuple[Workload | Calls | Once, ...] = (
    _drawn(
        "random bits, 1e6",
        lambda random, key: random.bits(key, (MILLION,)),
        lambda generator: generator.integers(0, 2**32, MILLION, dtype=np.uint32),
    ),
    _drawn(
        "uniform numbers, 1e6",
        lambda random, key: random.uniform(key, (MILLION,)),
        lambda generator: generator.random(MILLION, dtype=np.float32),
        lambda torch: torch.rand(MILLION),
    ),
    _drawn(
        "normal numbers, 1e6",
        lambda random, key: random.normal(key, (MILLION,)),
        lambda generator: generator.standard_normal(MILLION, dtype=np.float32),
        lambda torch: torch.randn(MILLION),
    ),
    _drawn(
        "random integers, 1e6",
        lambda random, key: random.randint(key, (MILLION,), 0, 1000),
        lambda generator: generator.integers(0, 1000, MILLION, dtype=np.int32),
        lambda torch: torch.randint(0, 1000, (MILLION,), dtype=torch.int32),
    ),
    _drawn(
        "Bernoulli, 1e6",
        lambda random, key: random.bernoulli(key, 0.3, (MILLION,)),
        lambda generator: generator.random(MILLION, dtype=np.float32) < 0.3,
    ),
    _drawn("split into 1e5 keys", lambda random, key: random.key_data(random.split(key, 10**5))),
    _drawn(
        "permutation, 1e6",
        lambda random, key: random.permutation(key, MILLION),
        lambda generator: generator.permutation(MILLION),
        lambda torch: torch.randperm(MILLION),
    ),
    _drawn(
        "choice of 1e5 of 1e6 without replacement",
        lambda random, key: random.choice(key, MILLION, (10**5,), replace=False),
        lambda generator: generator.choice(MILLION, 10**5, replace=False),
    ),
    Workload(
        "categorical, 1000 x 1000",
        lambda tx: lambda x, seed: tx.random.categorical(tx.random.key(seed[0]), x),
        _with_seed(normal((1000, 1000))),
    ),
    _drawn(
        "gamma numbers, 1e5",
        lambda random, key: random.gamma(key, 2.5, (10**5,)),
        lambda generator: generator.standard_gamma(2.5, 10**5, dtype=np.float32),
    ),
    _drawn(
        "truncated normal numbers, 1e6",
        lambda random, key: random.truncated_normal(key, -2.0, 2.0, (MILLION,)),
    ),
    _drawn(
        "exponential numbers, 1e6",
        lambda random, key: random.exponential(key, (MILLION,)),
        lambda generator: generator.standard_exponential(MILLION, dtype=np.float32),
    ),
    Workload("dropout, 1000 x 1000", _dropout, _with_seed(normal((1000, 1000)))),
)
