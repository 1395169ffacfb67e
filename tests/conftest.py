"""What all tests share: a compile cache of their own, JAX on the CPU and quick to compile, and seeds that come from the
test's name."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest

from tests.support import absent
from tests.support.uses import PACKAGES, names_using
from tinyxla.tracing.config import config

os.environ["TINYXLA_SLOW_COMPILE_SECONDS"] = "off"  # no test depends on how long something takes
config.update("slow_compile_seconds", None)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # what it compiles runs once
os.environ["XLA_FLAGS"] = "--xla_cpu_parallel_codegen_split_count=1"  # of which each part would be compiled by a thread

_CACHE = "TINYXLA_CACHE_DIR"
_FOLDERS = {"llvm": ("tests/backends/numba/", "tests/compiler/fusion/", "tests/compiler/schedule/", "tests/loopir/")}

hypothesis.settings.register_profile("tinyxla", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("tinyxla")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing that another run compiled is used. The workers of pytest-xdist inherit the directory, and share it."""
    if not hasattr(config, "workerinput"):
        os.environ[_CACHE] = tempfile.mkdtemp(prefix="tinyxla-test-cache-")
    absent.stand_in()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(_CACHE), ignore_errors=True)


def _number(test: pytest.Item) -> int:
    """A number that belongs to the test, wherever its file is."""
    folder, slash, _ = test.nodeid.partition("::")[0].rpartition("/")
    return zlib.crc32(f"tests/{test.nodeid.removeprefix(folder + slash)}".encode())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number that belongs to the test: it does not change with the order or the number of tests."""
    return _number(request.node)


@pytest.fixture
def generator(seed: int) -> np.random.Generator:
    """Random numbers that are the same in every run of the test."""
    return np.random.default_rng(seed)


@pytest.fixture
def use_target() -> Iterator[Callable[[str], None]]:
    """Compile for a machine of other sizes until the test ends: `use_target("l2_bytes=65536")`."""
    before = config.target
    yield lambda sizes: config.update("target", sizes)
    config.update("target", before)


def _with_devices(count: int) -> Iterator[None]:
    before = config.num_cpu_devices
    config.update("num_cpu_devices", count)
    yield
    config.update("num_cpu_devices", before)


@pytest.fixture
def four_devices() -> Iterator[None]:
    """The process is divided into four devices until the test ends."""
    yield from _with_devices(4)


@pytest.fixture
def eight_devices() -> Iterator[None]:
    """The same with eight."""
    yield from _with_devices(8)


@pytest.fixture(autouse=True)
def _fixed_seeds(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for what draws from NumPy's own state


def _is_using(item: pytest.Item, marker: str) -> bool:
    parameters = (
        item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    )
    if marker == "llvm" and any(isinstance(x, str) and x == "interpreter" for x in parameters):
        return False
    names = {item.nodeid.split("::")[1].partition("[")[0], "*"}
    return bool(names & names_using(marker, item.path)) or item.nodeid.startswith(_FOLDERS.get(marker, ()))


@pytest.hookimpl(tryfirst=True)  # before the option -m is applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = [m for m in PACKAGES if m in config.option.markexpr or m in absent.ABSENT]  # the analysis takes a while
    for item in items:
        for marker in asked:
            if _is_using(item, marker):
                item.add_marker(marker)
            if marker in absent.ABSENT and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"{marker} is not installed"))
    _choose_samples(items)
    for item in items:
        if item.get_closest_marker("thorough") or item.get_closest_marker("exhaustive"):
            item.add_marker("slow")


def _parameters(item: pytest.Item) -> list[tuple[Any, ...]]:
    """The parameters with their values, or with the index of a value that has no hash."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return []
    found = []
    for name, value in item.callspec.params.items():
        try:
            hash(value)
            found.append((name, type(value), value))
        except TypeError:
            found.append((name, item.callspec.indices[name]))
    return found


def _choose_samples(items: list[pytest.Item]) -> None:
    """Of a test marked `sample(every=k)` one of k sets of parameters is in the default run, of others with at least
    `_LONG` sets one of eight. One in 32 of what remains is marked `thorough`, the rest `exhaustive`."""
    sweeps = defaultdict[tuple[str, int], list[pytest.Item]](list)
    for item in items:
        mark = item.get_closest_marker("sample")
        sweeps[item.nodeid.partition("[")[0], mark.kwargs["every"] if mark is not None else 0].append(item)
    in_files = defaultdict[str, Counter[tuple[Any, ...]]](Counter)
    for (test, every), sets in sweeps.items():
        if every or len(sets) >= _LONG:
            chosen = _sample(sets, every or 8, in_files[test.partition("::")[0]])
            for item in sets:
                if item not in chosen:
                    item.add_marker("exhaustive" if _number(item) % 32 else "thorough")


def _sample(sets: list[pytest.Item], every: int, in_file: Counter[tuple[Any, ...]]) -> set[pytest.Item]:
    """One of so many sets of parameters, by greedy set cover: the next one has the fewest values that the ones before
    have; of several, those that are the rarest among the chosen ones of the file, `in_file`, to which they are added;
    then it is of a part of the sweep without one. Ties are broken by a hash of the name."""
    left = {item: (_parameters(item), k // every, _number(item)) for k, item in enumerate(sets)}
    covered: set[Any] = set()
    chosen: set[pytest.Item] = set()

    def rank(item: pytest.Item) -> tuple[int, int, bool, int]:
        values, part, number = left[item]
        return sum(x in covered for x in values), sum(in_file[x] for x in values), part in covered, number

    for _ in range(-(-len(sets) // every)):
        best = min(left, key=rank)
        values, part, _ = left.pop(best)
        chosen.add(best)
        covered.update(values, [part])
        in_file.update(values)
    return chosen


_LONG = 12  # sets of parameters


_MAX_YOUNG = 1_000_000  # objects that are new when garbage is collected, beside the end of each module of tests


def pytest_collection_finish() -> None:
    """The tests themselves, of which there are many, stay to the end; the garbage collector leaves them alone."""
    absent.withdraw()
    gc.set_threshold(_MAX_YOUNG, *gc.get_threshold()[1:])
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _released_programs() -> Iterator[None]:
    """What a module of tests has compiled, with either package, is not kept for the next. The garbage collector never
    looks again at what is left: else collections take most of the time in the end."""
    yield
    for package in ("jax", "tinyxla"):
        if package in sys.modules:
            sys.modules[package].clear_caches()
    gc.collect()
    gc.freeze()
