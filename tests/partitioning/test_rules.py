"""Sharding rules of operations: partitioned over meshes, under random shardings, each gives what it gives by itself."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from tests.support.op_checks import flat, graph_of
from tests.support.partitioned import MESHES, check_partitioned, random_spec
from tests.support.partitioned_samples import large_samples
from tinyxla.ops import movement, ops
from tinyxla.ops.op import Op, Sample
from tinyxla.partitioning import spmd
from tinyxla.shapes import Shape, element_type
from tinyxla.tracing.core import trace

WHOLE = {
    **dict.fromkeys(
        "all-reduce all-gather reduce-scatter all-to-all collective-permute collective-broadcast ragged-all-to-all "
        "replica-id partition-id mpi-collective all-reduce-start all-reduce-done all-gather-start all-gather-done "
        "collective-permute-start collective-permute-done pvary psum-invariant recast".split(),
        "replicas of a program are not the devices of a mesh",
    ),
    **dict.fromkeys(
        "callback custom-call infeed outfeed send send-done recv recv-done".split(), "foreign code takes whole arrays"
    ),
    **dict.fromkeys(
        "get-dimension-size set-dimension-size dynamic-reshape symbolic-size".split(), "sizes that are values"
    ),
    **dict.fromkeys("async-start async-update async-done copy-done after-all".split(), "of schedules and effects"),
    **dict.fromkeys("tuple get-tuple-element parameter".split(), "structure, which the partitioner follows"),
}
SKIPPED = {"after-all", "infeed", "set-dimension-size", "dynamic-reshape", "rng"}


def test_each_op_has_a_sharding_rule_or_is_expanded_or_replicated() -> None:
    without = {n for n, op in ops.items() if op.sharding is None and n not in spmd.RULES and op.expand is None}
    assert without == {name for name in WHOLE if ops[name].expand is None}
    assert not [name for name in WHOLE if ops[name].sharding is not None or name in spmd.RULES]


def _checked(op: Op, sample: Sample, random: np.random.Generator, count: int) -> None:
    computation = graph_of(op, sample)
    arrays = [np.asarray(x) for x in flat(sample.operands)]
    for mesh in MESHES:
        for _ in range(count):
            check_partitioned(computation, mesh, [random_spec(random, x.shape, mesh) for x in arrays], arrays)


def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", sorted(name for name in ops if name not in SKIPPED))
def test_samples_give_the_same_on_a_mesh(name: str) -> None:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    samples = [s for s in ops[name].samples(random) if all(map(_is_array, flat(s.operands)))]
    for sample in samples[:: max(1, len(samples) // 12)]:
        _checked(ops[name], sample, random, 1)


LARGE = large_samples()


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("number", range(len(LARGE)), ids=lambda k: f"{LARGE[k][0].name}-{k}")
def test_large_samples_give_the_same_on_a_mesh(number: int) -> None:
    _checked(*LARGE[number], np.random.default_rng(number), 3)


@pytest.mark.parametrize(
    ("sizes", "start"),
    [((14, 8), 1), ((3, 8), 9), ((1, 8), 0), ((14, 5), 2), ((12, 8), -2), ((4, 8), 30), ((14, 6), 2)],
)
def test_dynamic_updates_at_constant_indices_permute_parts(sizes: tuple[int, ...], start: int) -> None:
    """Others are moved by the devices that have them."""

    def update(x: Any, y: Any) -> list[Any]:
        return [ops["dynamic-update-slice"](x, y, movement.full(start, np.int32), movement.full(1, np.int32))]

    shapes = [Shape(element_type("f32"), given) for given in ((16, 8), sizes)]
    computation, _, _ = trace(update, shapes, "update")
    arrays = [movement.sample_values(s.dimensions) for s in shapes]
    random = np.random.default_rng(start + 5)
    for mesh in MESHES * 4:
        check_partitioned(computation, mesh, [random_spec(random, x.shape, mesh) for x in arrays], arrays)


def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    op, sample = next(pair for pair in LARGE if pair[0].name == "reverse")
    factors = ops["transpose"].sharding
    assert factors is not None
    monkeypatch.setattr(op, "sharding", lambda x, *, dimensions: factors(x, permutation=(0, 1)))
    monkeypatch.setitem(spmd.RULES, "reverse", spmd.by_factors)
    with pytest.raises(AssertionError):
        check_partitioned(graph_of(op, sample), {"x": 4}, [(("x",), ())], sample.operands)
