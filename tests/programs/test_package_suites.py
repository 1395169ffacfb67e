"""`packages/suites.py`: sampling by name, and counting of outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

PACKAGES = ROOT / "packages"
TESTS = """
import pytest

@pytest.mark.parametrize("k", range(40))
def test_passes(k): pass

def test_fails(): assert False

@pytest.mark.skip
def test_skipped(): pass

@pytest.fixture
def broken():
    yield
    raise ValueError

def test_fails_in_tear_down(broken): pass
"""


def outcomes(folder: Path, every: int, *arguments: str) -> dict[str, str]:
    """The outcomes that the plugin writes."""
    (folder / "test_sample.py").write_text(TESTS)
    written = folder / "outcomes.json"
    variables = {"PYTHONPATH": str(PACKAGES), "SUITE_EVERY": str(every), "SUITE_OUTCOMES": str(written)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "suite_plugin", *arguments]
    subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, timeout=100)
    return json.loads(written.read_text())


def test_plugin_counts_a_test_by_its_worst_outcome(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import a_module_that_is_not_there")
    found = outcomes(tmp_path, 1, "--continue-on-collection-errors")
    others = {name: outcome for name, outcome in found.items() if "test_passes" not in name}
    assert others == {
        "test_broken.py": "failed",
        "test_sample.py::test_fails": "failed",
        "test_sample.py::test_skipped": "skipped",
        "test_sample.py::test_fails_in_tear_down": "failed",
    }
    assert sum(outcome == "passed" for outcome in found.values()) == 40


def test_plugin_runs_a_fixed_part_of_the_tests(tmp_path: Path) -> None:
    every, sample, again = (outcomes(tmp_path, k) for k in (1, 4, 4))
    assert sample == again
    assert 2 < len(sample) < 25
    assert sample.items() < every.items()


def test_share_leaves_out_tests_that_fail_on_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))
    from suites import SUITES, Outcome, pinned, table

    outcome = Outcome("optax", passed=97, skipped=5, fail_on_jax=2, failed=["a", "b", "c"], seconds=1.0)
    assert outcome.share == 0.97
    assert table([outcome])[-1] == f"| {pinned('optax').replace('==', ' ')} | 97 | 3 | 2 | 5 |"
    assert all("==" in pinned(suite.package) for suite in SUITES)


def test_failures_count_unless_the_test_fails_on_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))
    from suites import against_jax

    failed = ["a.py::f", "a.py::g", "a.py::h", "b.py", "c.py::lost"]
    on_jax = {"a.py::f": "failed", "a.py::g": "passed", "a.py::h": "skipped", "b.py::x": "passed", "b.py::y": "passed"}
    assert against_jax(failed, on_jax) == (1, ["a.py::g", "b.py::x", "b.py::y", "c.py::lost"])
    assert against_jax(["b.py"], {"b.py": "failed"}) == (1, [])
