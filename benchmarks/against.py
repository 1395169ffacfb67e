"""Two versions of tinyxla side by side: one process each, which take turns row by row and sample by sample.

A process imports the library of its version and the workloads of this checkout, so that both run the same programs. The
figure of a row is the ratio of medians, old to new: above 1, the new version is faster.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import ONCE, PAUSE, QUICK, THOROUGH, Effort, Timing, take_turns
from benchmarks.workload import Calls, Once, Workload

PACKAGES = ("tinyxla", "tinyxla_kernels")  # the second one in commits before version 0.1.0 only
SLOWER = 0.9  # rows below this ratio are listed


@dataclass(frozen=True)
class Comparison:
    """The times of a row in both versions, in seconds, and of its first call where it has one."""

    group: str
    name: str
    old: Timing
    new: Timing
    first: tuple[float, float] | None = None

    @property
    def ratio(self) -> float:
        return self.old.median / self.new.median

    @property
    def first_ratio(self) -> float | None:
        return self.first[0] / self.first[1] if self.first else None

    def __str__(self) -> str:
        first = "" if self.first_ratio is None else f", first call {self.first_ratio:.2f}"
        times = f"{self.old.median * 1e6:.4g} -> {self.new.median * 1e6:.4g} us"
        return f"{self.ratio:.2f}  {self.group}: {self.name} ({times}{first})"


class Contestant:
    """A process with the library of one version."""

    def __init__(self, packages: Path, scratch: Path) -> None:
        paths = os.pathsep.join([str(packages), str(ROOT)])
        environment = {"PYTHONPATH": paths, "TINYXLA_CACHE_DIR": str(scratch / "kernels")}
        command = [sys.executable, "-P", "-m", "benchmarks.contestant"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment, text=True
        )

    def ask(self, request: str, *arguments: Any) -> Any:
        """Let the process do something, and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([request, *arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process that measures {request} of {arguments} ended; its error stands above.")
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def contestants(against: str) -> Generator[tuple[Contestant, Contestant]]:
    """The processes of a commit, or of a checkout in a directory, and of this checkout."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        old = Path(against).resolve()
        if not old.is_dir():
            old = scratch / "checkout"
            _git("worktree", "add", "--detach", str(old), against)
            stack.callback(_git, "worktree", "remove", "--force", str(old))
        versions: list[Contestant] = []
        for name, tree in (("old", old), ("new", ROOT)):
            versions.append(Contestant(_packages(tree, scratch / name), scratch / name))
            stack.callback(versions[-1].close)
        yield versions[0], versions[1]


def _git(*arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _packages(tree: Path, target: Path) -> Path:
    """A directory with the library's packages alone, so that nothing else of that checkout is imported."""
    target.mkdir()
    for package in filter(lambda name: (tree / name).is_dir(), PACKAGES):
        (target / package).symlink_to(tree / package)
    return target


def compare(
    group: str, workload: Workload | Calls | Once, versions: Sequence[Contestant], quick: bool = False
) -> Comparison:
    """Measure one row in both versions."""
    row = group, workload.name
    effort, once = (QUICK, QUICK) if quick else (THOROUGH, ONCE)
    if isinstance(workload, Once):
        old, new = _samples(versions, "once", row, (), once)
        return Comparison(*row, Timing.of(old), Timing.of(new))
    first = None
    if isinstance(workload, Workload):
        firsts = _samples(versions, "first", row, (), once)
        first = min(firsts[0]), min(firsts[1])
    counts = [version.ask("prepare", *row, effort.sample) for version in versions]
    old, new = _samples(versions, "sample", row, (counts[0],), effort)
    return Comparison(*row, Timing.of(old), Timing.of(new), first)


def _samples(
    versions: Sequence[Contestant], request: str, row: tuple[str, str], arguments: Sequence[Any], effort: Effort
) -> list[list[float]]:
    samplers = [lambda version=version: float(version.ask(request, *row, *arguments)) for version in versions]
    count = arguments[0] if arguments else 1
    longest = max(sampler() for sampler in samplers) * count + PAUSE
    return take_turns(samplers, effort.rounds(longest))


def summary(rows: Sequence[Comparison]) -> str:
    """Geometric means of the ratios by group, and the rows that became slower."""
    lines = ["", "old / new, geometric means (above 1: the new version is faster)"]
    for group in dict.fromkeys(row.group for row in rows):
        ratios = [row.ratio for row in rows if row.group == group]
        firsts = [row.first_ratio for row in rows if row.group == group and row.first_ratio is not None]
        first = f", first calls {_mean(firsts):.3f}" if firsts else ""
        lines.append(f"{_mean(ratios):.3f}  {group} ({len(ratios)} rows{first})")
    slower = sorted((row for row in rows if row.ratio < SLOWER), key=lambda row: row.ratio)
    return "\n".join([*lines, "", f"rows below {SLOWER}: {len(slower)}", *map(str, slower)])


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
