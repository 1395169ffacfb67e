"""The benchmarks run, treat all contestants alike and report what they measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import QUICK, Timing, compare_calls, take_turns
from benchmarks.report import Row, duration, summary
from benchmarks.workloads import ROOT


def test_contestants_take_turns_in_a_rotating_order() -> None:
    order: list[str] = []

    def sampler(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    timings = take_turns([lambda: sampler("a", 1.0), lambda: sampler("b", 2.0), lambda: sampler("c", 3.0)], rounds=3)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert timings == [Timing(1.0, 0.0), Timing(2.0, 0.0), Timing(3.0, 0.0)]


def test_one_disturbed_sample_moves_neither_the_median_nor_the_spread() -> None:
    assert Timing.of([1.0, 1.0, 50.0, 1.0, 1.0]) == Timing(1.0, 0.0)


def test_every_result_is_waited_for() -> None:
    made: list[object] = []
    waited: list[object] = []

    def call() -> object:
        made.append(object())
        return made[-1]

    compare_calls([(call, waited.append)], QUICK, wait_each=True)
    assert len(made) > QUICK.least
    assert waited == made


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 ns"), (3.217e-6, "3.22 µs"), (0.0123, "12.3 ms"), (0.308, "308 ms"), (2.0, "2.00 s")],
)
def test_durations_have_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_summary_counts_only_what_both_ran() -> None:
    rows = [
        Row("first", {"tinyxla": Timing(1.0, 0.0), "jax": Timing(4.0, 0.0), "numpy": Timing(0.5, 0.0)}),
        Row("second", {"tinyxla": Timing(2.0, 0.0), "jax": Timing(2.0, 0.0)}),
    ]
    assert summary(rows, ["tinyxla", "jax", "numpy"]) == [
        "JAX takes longer than tinyxla in 1 of 2 workloads; the geometric mean of the ratios is 2.00.",
        "NumPy takes longer than tinyxla in 0 of 1 workloads; the geometric mean of the ratios is 0.50.",
    ]


def run_benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_a_quick_run_writes_a_table(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    words = ["compile", "1e3", "dispatch"]
    finished = run_benchmarks("--quick", "--libraries", "tinyxla", "numpy", "--output", str(table), "--only", *words)
    assert finished.returncode == 0, finished.stderr
    text = table.read_text(encoding="utf-8")
    assert "| workload | tinyxla | NumPy | NumPy / tinyxla |" in text
    for name in ("digits step: compile", "chain of 10 operations, 1e3", "dispatch: 100 leaves", "eager: sin(a), 1e3"):
        assert f"| {name} |" in text
        assert f"{name} " in finished.stdout


def test_an_unknown_workload_is_refused_with_the_names() -> None:
    finished = run_benchmarks("--quick", "--only", "nonsense")
    assert finished.returncode == 2
    assert "no workload has nonsense in its name" in finished.stderr
    assert "softmax, 4096 x 1024" in finished.stderr
