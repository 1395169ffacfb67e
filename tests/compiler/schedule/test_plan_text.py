"""Plans as text: `compile().as_text()` prints the steps that run, with kinds, loops, schedules and access maps.

The plans in `golden` are those of a processor with AVX2 and 32 MB of cache. To accept other ones, delete the
files and run the tests once: they write the new ones, and fail.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tests.backends.numba.test_old_processors import HASWELL
from tests.support import ROOT, plan_programs
from tinyxla.backends.numba import CompiledModule
from tinyxla.compiler.fusion import plan as fusion_plan
from tinyxla.compiler.schedule.blocks import walk_steps
from tinyxla.compiler.schedule.describe import accesses_of
from tinyxla.loopir.ir.print_python import print_python
from tinyxla.loopir.lower.emit import LoweredKernel

Array = np.ndarray[Any, Any]
GOLDEN = Path(__file__).parent / "golden"
KINDS = {"LoopNest", "LibraryKernel", "BlasCall", "HostCall", "Loop", "Switch"}  # collectives: in test_meetings.py


@pytest.fixture(scope="module")
def plans() -> dict[str, str]:
    """The plans of all programs, made in a process that takes this processor for a smaller one."""
    command = [sys.executable, "-m", plan_programs.__name__, HASWELL]
    environment = {**os.environ, "TINYXLA_TARGET": plan_programs.TARGET}
    made = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if "this processor lacks" in made.stderr:
        pytest.skip(made.stderr)
    assert not made.returncode, made.stderr
    return json.loads(made.stdout)


@pytest.mark.parametrize("name", plan_programs.PROGRAMS)
def test_plans_read_as_before(name: str, plans: dict[str, str]) -> None:
    path = GOLDEN / f"{name}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(plans[name])
        pytest.fail(f"{path} was written; read it")
    assert plans[name] == path.read_text()


def test_plans_have_every_kind_of_step(plans: dict[str, str]) -> None:
    assert set(re.findall(r"kind +(\w+)", "\n".join(plans.values()))) == KINDS


# --- access maps ------------------------------------------------------------------------------------------------------


class Recorded:
    """The elements of a flat array, which records the positions that are read and written."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.read: set[int] = set()
        self.written: set[int] = set()

    def __getitem__(self, k: int) -> Any:
        self.read.add(int(k))
        return self.values[k]

    def __setitem__(self, k: int, value: Any) -> None:
        self.written.add(int(k))
        self.values[k] = value


def scaled(x: Any, y: Any) -> Any:
    return (x.T + y[:, None] * 2)[1:4]


def normalized(x: Any, y: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * y


def column_sums(x: Any, y: Any) -> Any:
    return (x * y).sum(0) + 1


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    "transpose and broadcast": (scaled, (6, 8), 8),
    "rows": (normalized, (6, 8), 8),
    "softmax": (lambda x, y: tx.nn.softmax(x * y, axis=-1), (3, 5, 7), 7),
    "columns": (column_sums, (40, 8), 8),
    "reversed": (lambda x, y: jnp.flip(x, 1) - y, (6, 8), 8),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_access_the_elements_that_access_maps_say(name: str) -> None:
    """The Python text of each kernel runs on arrays that record positions. A function of indices in a map says which
    elements may be read; all others say which are."""
    function, shape, size = PROGRAMS[name]
    x, y = np.ones(shape, np.float32), np.ones(size, np.float32)
    module = CompiledModule(tx.jit(function).lower(x, y).module)
    checked = 0
    for step, block, *_ in walk_steps(module.block):
        work = step.work
        assert isinstance(work, LoweredKernel)
        arrays = {s: Recorded(np.ones(np.prod(_sizes(s), dtype=int), np.float32)) for s in work.arguments}
        namespace: dict[str, Any] = {}
        exec(print_python(work.kernel, "kernel"), namespace)
        namespace["kernel"](*arrays.values(), 0, work.extent)
        for storage, recorded in arrays.items():
            infos = [i for i in accesses_of(step, block, lambda s: str(id(s))) if i.name == str(id(storage))]
            expected = {False: set[int](), True: set[int]()}
            for info in infos:
                assert info.maps, name
                for text in info.maps:
                    expected[info.is_written] |= _positions(text, info.space, _sizes(storage))
                checked += 1
            is_exact = not any("f(" in text for info in infos for text in info.maps)
            assert recorded.read <= expected[False] | recorded.written
            assert recorded.written == expected[True]
            assert not is_exact or recorded.read >= expected[False]
    assert checked >= 3


def _sizes(storage: Any) -> tuple[int, ...]:
    return storage.array_shape.dimensions


def _positions(text: str, space: tuple[int, ...], sizes: tuple[int, ...]) -> set[int]:
    """The positions in an array of these sizes that a map gives over a space; any index for a function of indices."""
    names = [f"d{k}" for k in range(len(space))]
    indices = re.findall(r"f\([^)]*\)|\w+", text)
    found: set[int] = set()
    for point in itertools.product(*map(range, space)):
        at = dict(zip(names, point, strict=True))
        per_dim = [
            range(size) if index.startswith("f(") else [at[index] if index in at else int(index)]
            for index, size in zip(indices, sizes, strict=True)
        ]
        found.update(int(np.ravel_multi_index(i, sizes)) if sizes else 0 for i in itertools.product(*per_dim))
    return found


def test_each_access_map_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    maps = fusion_plan.operand_access_maps
    monkeypatch.setattr(
        fusion_plan, "operand_access_maps", lambda x, access: computed.append((x, access)) or maps(x, access)
    )
    x = np.ones((64, 128), np.float32)
    CompiledModule(tx.jit(lambda x: tx.nn.softmax(x, axis=-1)).lower(x).module)
    assert 5 < len(computed) == len(set(computed))
