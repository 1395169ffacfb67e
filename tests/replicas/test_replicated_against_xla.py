"""Programs of several replicas and partitions against XLA, which runs the text that is printed here, HLO's and
StableHLO's, on eight devices: the worked examples of the documents, and random operations on all element types.

XLA has no RaggedAllToAll and no CollectiveBroadcast for CPUs; test_collectives has the documents' numbers of these.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.replicas.test_collectives import ADD, MAX, built, f32, scalars
from tests.support import ROOT
from tests.support.replicated_oracle import Replicated
from tinyxla import xla
from tinyxla.compiler.passes.expand import expand_to_hlo
from tinyxla.hlo import Module
from tinyxla.shapes import element_type
from tinyxla.text import print_stablehlo
from tinyxla.xla import XlaComputation

BACKENDS = ("interpreter", "numba")
Case = tuple[XlaComputation, Replicated]


def case(build: Callable[..., Any], arguments: list[list[Any]], partitions: int = 1) -> Case:
    program = built(build, *arguments[0])
    given = [[np.asarray(x) for x in several] for several in arguments]
    return program, Replicated(program.as_hlo_text(), given, len(arguments) // partitions, partitions)


def rows(count: int, *shape: int) -> list[list[Any]]:
    """An argument of integers for each device, all different."""
    values = np.arange(count * int(np.prod(shape)), dtype=np.float32).reshape(count, *shape)
    return [[x] for x in values]


def channel(number: int) -> xla.ChannelHandle:
    return xla.ChannelHandle(number)


IN_PAIRS = [[0, 2], [1, 3]]
OF_DEVICES = [[0, 1, 4, 5], [2, 3, 6, 7]]

# The documents' sections, each example or sentence about who takes part.
DOCUMENTS: dict[str, Callable[[], Case]] = {
    "AllGather": lambda: case(lambda b, x: xla.AllGather(x, 0, 2), [[f32(1, 2.5)], [f32(3, 5.25)]]),
    "AllGather in groups": lambda: case(lambda b, x: xla.AllGather(x, 0, 2, IN_PAIRS), rows(4, 2)),
    "AllGather in another order": lambda: case(lambda b, x: xla.AllGather(x, 1, 2, [[2, 0], [1, 3]]), rows(4, 2, 3)),
    "AllGather of devices": lambda: case(
        lambda b, x: xla.AllGather(x, 0, 4, OF_DEVICES, channel(1), None, True), rows(8, 2), 4
    ),
    "AllGather of replicas with all partitions": lambda: case(
        lambda b, x: xla.AllGather(x, 0, 4, [[1, 0]], channel(1)), rows(4, 2), 2
    ),
    "AllReduce": lambda: case(lambda b, x: xla.AllReduce(x, ADD), [[f32(1, 2.5)], [f32(3, 5.25)]]),
    "AllReduce in groups": lambda: case(lambda b, x: xla.AllReduce(x, ADD, IN_PAIRS), rows(4, 2)),
    "AllReduce of a tuple": lambda: case(
        lambda b, x, y: xla.AllReduce(xla.Tuple(b, [x, y]), ADD), [[f32(1, 2), f32(3)], [f32(10, 20), f32(30)]]
    ),
    "AllReduce of each partition": lambda: case(lambda b, x: xla.AllReduce(x, ADD, [[0, 1]]), rows(4, 2), 2),
    "AllReduce of replicas with all partitions": lambda: case(
        lambda b, x: xla.AllReduce(x, ADD, [[0], [1]], channel(1)), rows(4, 2), 2
    ),
    "AllReduce of devices": lambda: case(
        lambda b, x: xla.AllReduce(x, MAX, OF_DEVICES, channel(1), None, True), rows(8, 2), 4
    ),
    "CrossReplicaSum": lambda: case(lambda b, x: xla.CrossReplicaSum(x), [[f32(1, 2.5)], [f32(3, 5.25)]]),
    "CrossReplicaSum of 2017": lambda: case(lambda b, x: xla.CrossReplicaSum(x), [[f32(1, 2.5)], [f32(3, 5.1)]]),
    "CrossReplicaSum in groups": lambda: case(lambda b, x: xla.CrossReplicaSum(x, IN_PAIRS), rows(4, 2)),
    "AllToAll of 4 replicas": lambda: case(lambda b, x: xla.AllToAll(x, 1, 0, 4, [[0, 1, 2, 3]]), rows(4, 4, 16)),
    "AllToAll of StableHLO": lambda: case(lambda b, x: xla.AllToAll(x, 1, 0, 2, [[0, 1]]), rows(2, 2, 4)),
    "AllToAll in groups of another order": lambda: case(
        lambda b, x: xla.AllToAll(x, 0, 0, 3, [[1, 2, 3], [4, 5, 0]]), rows(6, 3)
    ),
    "AllToAll of partitions": lambda: case(lambda b, x: xla.AllToAll(x, 0, 1, 2, [[1, 0]], None, 3), rows(4, 2, 3), 2),
    "AllToAllTuple": lambda: case(
        lambda b, x, y: xla.AllToAllTuple([x, y], [[1, 0]]), [[f32(1, 2), f32(3, 4)], [f32(5, 6), f32(7, 8)]]
    ),
    "CollectivePermute, cyclic": lambda: case(
        lambda b, x: xla.CollectivePermute(x, [(0, 1), (1, 2), (2, 0)], inplace=True), rows(3, 2)
    ),
    "CollectivePermute, partial": lambda: case(
        lambda b, x: xla.CollectivePermute(x, [(0, 2), (3, 3), (2, 1)]), rows(4, 2)
    ),
    "CollectivePermute of partitions": lambda: case(
        lambda b, x: xla.CollectivePermute(x, [(0, 1)], channel(3)), rows(4, 2), 2
    ),
    "ReduceScatter": lambda: case(lambda b, x: xla.ReduceScatter(x, ADD, 0, 2), [[f32(1, 2.25)], [f32(3, 5.25)]]),
    "ReduceScatter of StableHLO": lambda: case(lambda b, x: xla.ReduceScatter(x, ADD, 1, 2, [[0, 1]]), rows(2, 2, 4)),
    "ReduceScatter of devices": lambda: case(
        lambda b, x: xla.ReduceScatter(x, ADD, 0, 4, OF_DEVICES, channel(1), None, True), rows(8, 4), 4
    ),
    "ReplicaId": lambda: case(lambda b: xla.ReplicaId(b), [[]] * 3),
    "PartitionId": lambda: case(lambda b: xla.Tuple(b, [xla.PartitionId(b), xla.ReplicaId(b)]), [[]] * 6, 2),
}

TYPES = "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128".split()
COUNT = 45


def random_case(number: int) -> Case:
    random = np.random.default_rng(number)
    kind = element_type(TYPES[number % len(TYPES)])
    partitions, replicas = [(1, 2), (1, 3), (1, 4), (1, 8), (2, 2), (4, 2), (2, 4)][random.integers(7)]
    devices = partitions * replicas
    mode = ["replicas", "both", "devices"][random.integers(3)] if partitions > 1 else "replicas"
    among = devices if mode == "devices" else replicas
    size = int(random.choice([n for n in range(1, among + 1) if among % n == 0]))
    groups = random.permutation(among).reshape(-1, size).tolist()
    if mode == "replicas" and random.integers(4) == 0:
        groups, size = [], among
    given: dict[str, Any] = {} if mode == "replicas" else {"channel_id": 1, "use_global_device_ids": mode == "devices"}
    members = size * partitions if mode == "both" else size
    shape = [int(n) for n in random.choice([0, 1, 2, 3, 5], random.integers(1, 4))]
    dimension = int(random.integers(len(shape)))
    shape[dimension] += shape[dimension] == 0  # which StableHLO does not take
    scattered = list(shape)
    scattered[dimension] *= members
    reductions = {"pred": [xla.Or, xla.And], "complex": [xla.Add]}.get(kind.kind, [xla.Add, xla.Max, xla.Min, xla.Mul])
    reduce = reductions[random.integers(len(reductions))]
    pairs = list(zip(random.permutation(replicas).tolist(), random.permutation(replicas).tolist(), strict=True))
    pairs = pairs[: int(random.integers(replicas + 1))]
    builds: list[tuple[Callable[..., Any], list[int]]] = [
        (lambda b, x: xla.AllReduce(x, scalars(reduce, kind), groups, **given), shape),
        (lambda b, x: xla.AllGather(x, dimension, members, groups, **given), shape),
        (lambda b, x: xla.ReduceScatter(x, scalars(reduce, kind), dimension, members, groups, **given), scattered),
        (lambda b, x: xla.CollectivePermute(x, pairs), shape),
    ]
    if mode == "replicas":
        other = int(random.integers(len(shape)))
        everyone = [list(range(among))]
        builds.append((lambda b, x: xla.AllToAll(x, dimension, other, size, groups or everyone), scattered))
    build, sizes = builds[random.integers(len(builds))]
    values = random.integers(0, 2 if kind.kind == "pred" else 4, (devices, *sizes)).astype(kind.dtype)
    return case(build, [[x] for x in values], partitions)


BOTH = [*DOCUMENTS, *(f"random {k}" for k in range(0, COUNT, 3))]  # are run in StableHLO too


def in_stablehlo(program: XlaComputation, given: Replicated) -> Case:
    module = Module("program", expand_to_hlo(program.computation))
    return program, given._replace(text=print_stablehlo(module))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[XlaComputation, Replicated, Any]]:
    """All programs, their arguments, and what XLA gives."""
    pytest.importorskip("jaxlib._hlo")
    made = {name: make() for name, make in DOCUMENTS.items()} | {f"random {k}": random_case(k) for k in range(COUNT)}
    made |= {f"{name} in StableHLO": in_stablehlo(*made[name]) for name in BOTH}
    folder = tmp_path_factory.mktemp("replicated")
    given, results = folder / "programs", folder / "results"
    given.write_bytes(pickle.dumps([replicated for _, replicated in made.values()]))
    command = [sys.executable, "-m", "tests.support.replicated_oracle", str(given), str(results)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    found = pickle.loads(results.read_bytes())
    return {name: (*pair, result) for (name, pair), result in zip(made.items(), found, strict=True)}


def compare(program: XlaComputation, given: Replicated, expected: Any) -> None:
    for backend in BACKENDS:
        found = program.execute_replicated(given.arguments, given.replicas, given.partitions, backend)
        for several, wanted in zip(found, expected, strict=True):
            parts = several if isinstance(several, tuple) else (several,)
            for x, y in zip(parts, wanted, strict=True):
                assert x.dtype == y.dtype
                np.testing.assert_array_equal(np.asarray(x), y)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_example_of_the_documents(name: str, cases: Any) -> None:
    program, given, expected = cases[name]
    assert not isinstance(expected, str), expected
    compare(program, given, expected)


@pytest.mark.parametrize("name", BOTH)
def test_program_in_stablehlo(name: str, cases: Any) -> None:
    program, given, expected = cases[f"{name} in StableHLO"]
    assert not isinstance(expected, str), expected
    compare(program, given, expected)


@pytest.mark.parametrize("number", range(COUNT))
def test_random_operation(number: int, cases: Any) -> None:
    program, given, expected = cases[f"random {number}"]
    assert not isinstance(expected, str), expected
    compare(program, given, expected)
