"""The benchmarks run, treat all contestants alike, compute the same in all libraries and report what they measured."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import ROOT
from benchmarks.against import Comparison, compare, contestants, summary
from benchmarks.chart import charts
from benchmarks.first_calls import DISK
from benchmarks.groups import GROUPS
from benchmarks.libraries import Library
from benchmarks.machine import Level, Machine, measure_machine
from benchmarks.measure import QUICK, Effort, Timing, compare_calls, compare_once, take_turns
from benchmarks.memory import Memory, measure_memory
from benchmarks.report import Row, behind, document, duration, missed_goals, summary_table
from benchmarks.workload import Calls, Workload

WORKLOADS = {w.name: w for group in GROUPS.values() for w in group if isinstance(w, Workload)}
FREE_SIGNS = frozenset(["QR, 256 x 64", "eigh, 128 x 128", "SVD, 128 x 128"])  # of vectors
LARGE = frozenset(w.name for w in GROUPS["Large arrays"])  # where JAX is enough to compare with
WHOLE = frozenset(["exp, 128 MB", "softmax, 128 MB", "sum, 128 MB", "channels to the end, 127 MB"])  # of these
# Operations are tested elsewhere: of other rows every third is computed here, to see that workloads are what they say.
CHECKED = [name for n, name in enumerate(WORKLOADS) if n % 3 == 0 or name in LARGE]
OWN_NUMBERS = frozenset(w.name for w in GROUPS["Random numbers"])  # JAX's are the same as tinyxla's
IN_HASTE = {"xla_backend_optimization_level": 0}


# What is measured.


def test_names_are_unique() -> None:
    names = [workload.name for group in GROUPS.values() for workload in group]
    assert sorted(names) == sorted(set(names))


@pytest.fixture(scope="module")
def libraries() -> dict[str, Library]:
    return {library.name: library for library in Library.load_all(["tinyxla", "jax", "numpy", "torch"])}


class Sixteenths:
    """Numbers for arrays a sixteenth as long in each dimension."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.generator.standard_normal([n // 16 for n in shape], dtype)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: Any) -> Any:
        return self.generator.integers(low, high, [n // 16 for n in shape], dtype)


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # that is the result, in NumPy too
def test_all_libraries_compute_the_same(
    name: str, libraries: dict[str, Library], use_target: Callable[[str], None]
) -> None:
    """Of large arrays most are made smaller, and so are the caches: the kernels stay those that go past them."""
    workload, is_smaller = WORKLOADS[name], name in LARGE - WHOLE
    random: Any = Sixteenths() if is_smaller else np.random.default_rng(0)
    if is_smaller:
        use_target("last_level_bytes=512")
    inputs = workload.inputs(random)
    compiled = jax.jit(workload.make(jax), compiler_options=IN_HASTE)
    wanted = _leaves(compiled(*libraries["jax"].arrays(inputs)))
    for library in libraries.values():
        others = ("numpy", "torch") if name in LARGE else ()
        if library.name not in ("jax", *others) and workload.runs_in(library):
            found = _leaves(workload.function(library)(*library.arrays(inputs)))
            assert [x.shape for x in found] == [y.shape for y in wanted]
            if library.name == "tinyxla":
                assert [x.dtype for x in found] == [y.dtype for y in wanted]
            if name not in FREE_SIGNS and (library.name == "tinyxla" or name not in OWN_NUMBERS):
                for x, y in zip(found, wanted, strict=True):
                    assert_close(x, y)


def _leaves(result: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a result, also of the tuples that PyTorch has of its own, and of its bfloat16."""
    leaves = jax.tree_util.tree_leaves(list(result) if isinstance(result, tuple) else result)
    return [np.asarray(x.float() if str(x.dtype) == "torch.bfloat16" else x) for x in leaves]


def assert_close(x: Any, y: Any) -> None:
    """Up to rounding, which sums of many terms of either sign make large next to the smallest results."""
    if y.dtype.kind in "biu":
        assert np.mean(x != y) < 1e-3  # of ties, rounding may choose another
        return
    x, y = (z.astype(np.complex64 if z.dtype.kind == "c" else np.float32) for z in (x, y))
    size = np.abs(y)
    largest = float(np.max(size, initial=0.0, where=np.isfinite(size)))
    with np.errstate(invalid="ignore"):
        seldom = ~(np.abs(x - y) <= 2e-3 * largest + 1e-2 * size)  # wrong, or no number in both
    np.testing.assert_allclose(x[seldom], y[seldom], rtol=1e-2, atol=2e-3 * largest)


# How it is measured.


def test_contestants_take_turns_in_a_rotating_order() -> None:
    order: list[str] = []

    def sampler(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    samples = take_turns([lambda: sampler("a", 1.0), lambda: sampler("b", 2.0), lambda: sampler("c", 3.0)], rounds=3)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert samples == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


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


def test_what_happens_once_is_sampled_as_often_as_time_allows() -> None:
    effort = Effort(sample=0.0, budget=2.0, least=2, most=5)
    assert compare_once([lambda: 0.5, lambda: 0.1], effort) == [[0.5] * 4, [0.1] * 4]
    assert compare_once([lambda: 30.0], effort) == [[30.0] * 2]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux tells of processes")
def test_the_memory_of_calls_counts_inputs_and_results() -> None:
    name = "chain of 10 operations, 1e7"
    (memory,) = measure_memory([("tinyxla", name)])
    assert memory is not None
    assert 8e7 <= memory.calls <= 1.6e8 <= memory.process  # one input and one result, of which two may be alive


MACHINE = Machine((Level("L2", 1e6, 1e11, 2e11), Level("L3", 3e7, 8e10, 1e11), Level("DRAM", np.inf, 1e10, 2e10)), 1e11)


def test_the_limit_is_that_of_the_level_that_holds_the_data() -> None:
    assert MACHINE.limit(0, 1e6) == 1e6 / 2e11
    assert MACHINE.limit(0, 2e6) == 2e6 / 1e11
    assert MACHINE.limit(0, 1e9) == 1e9 / 2e10
    assert MACHINE.limit(1e11, 1e9) == 1.0


def test_the_machine_is_measured() -> None:
    machine = measure_machine(0.01)
    assert [level.name for level in machine.levels] == ["L2", "L3", "DRAM"]
    assert all(1e8 < level.one < 1e13 and 1e8 < level.all < 1e13 for level in machine.levels)
    assert 1e8 < machine.peak < 1e15


# How it is reported.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 ns"), (3.217e-6, "3.22 µs"), (0.0123, "12.3 ms"), (0.308, "308 ms"), (2.0, "2.00 s"), (None, "")],
)
def test_durations_have_three_digits(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def _timings(**seconds: float) -> dict[str, Timing]:
    return {name: Timing(value, 0.01) for name, value in seconds.items()}


ROWS = [
    Row(
        "Windows",
        "convolution",
        _timings(tinyxla=1e-3, jax=4e-3, numpy=2e-3, torch=5e-4),
        {"tinyxla": 0.3, DISK: 0.01, "jax": 0.1},
        {"tinyxla": Memory(2 * 10**6, 10**8), "jax": Memory(10**6, 2 * 10**8)},
        5e-4,
    ),
    Row("Latency", "x < 1", _timings(tinyxla=2e-6, jax=1e-6)),
    Row("Latency", "import", _timings(tinyxla=1.0, jax=2.0)),
]


def test_a_row_knows_how_it_is_behind() -> None:
    assert missed_goals(ROWS[0]) == [
        "takes 2.00 times as long as PyTorch",
        "its first call takes 3.00 times as long as JAX's",
        "needs 2.00 times JAX's memory",
    ]
    assert missed_goals(ROWS[1]) == ["takes 2.00 times as long as JAX"]
    assert missed_goals(ROWS[2]) == []
    large = Row("Large arrays", "sum", _timings(tinyxla=2e-3, jax=4e-3), limit=1e-3)
    assert missed_goals(large) == ["reaches 0.50 of the memory's bandwidth"]
    assert missed_goals(replace(large, limit=1.7e-3)) == []


def test_reasons_stand_with_the_rows_that_are_behind() -> None:
    text = behind(ROWS, {"x < 1": "a reason."})
    assert "- **x < 1** (Latency): takes 2.00 times as long as JAX. Why: a reason." in text
    assert "not looked into yet." in text.splitlines()[0]
    assert behind(ROWS[2:], {}) == "None."


def test_the_summary_has_geometric_means_of_what_both_ran() -> None:
    lines = summary_table(ROWS).splitlines()
    assert lines[2] == "| Windows | 1 | 4.00 | 1 of 1 | 0.50 | 2.00 | 8.00 | 3.00 | 0.10 | 2.00 |"
    assert lines[3] == "| Latency | 2 | 1.00 | 1 of 2 |  |  |  |  |  |  |"
    assert lines[4].startswith("| all | 3 | 1.59 | 2 of 3 | 0.50 |")


def test_the_document_has_all_rows_the_machine_and_the_command(libraries: dict[str, Library]) -> None:
    text = document(ROWS, list(libraries.values()), MACHINE, "python -m benchmarks", {"all": "some.svg"}, {})
    assert "Written by `python -m benchmarks` on " in text
    assert "](some.svg)" in text
    assert f"JAX {jax.__version__}" in text
    assert "| DRAM |  | 10 | 20 |" in text
    assert "| convolution | 1.00 ms ±1% | 4.00 ms ±1% | 4.00 | PyTorch 500 µs | 0.50 | 500 µs | 2.00 | 8.00 |" in text
    assert "| convolution | 300 ms | 100 ms | 3.00 | 10.0 ms | 0.10 | 2.00 | 1.00 | 2.00 | 100 | 200 |" in text
    assert "| x < 1 | 2.00 µs ±1% | 1.00 µs ±1% | 0.50 |" in text


SVG = "{http://www.w3.org/2000/svg}"


def bars_of(chart: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(chart).findall(f"{SVG}rect")


def test_a_chart_has_a_bar_for_each_row_to_the_side_where_it_belongs() -> None:
    chart = charts(ROWS)["Latency"]
    bars = bars_of(chart)
    assert [bar.get("class") for bar in bars] == ["behind", "ahead"]
    picture = ElementTree.fromstring(chart)
    one = next(line for line in picture.findall(f"{SVG}line") if line.get("class") == "one")
    starts = [float(bar.get("x", "nan")) for bar in bars]
    assert starts[1] == float(one.get("x1", "nan")) > starts[0]
    assert not picture.findall(f"{SVG}circle")
    assert {"x < 1", "0.5×", "import", "2×"} <= {text.text for text in picture.findall(f"{SVG}text")}


def test_the_chart_of_all_has_the_geometric_means_of_groups() -> None:
    picture = ElementTree.fromstring(charts(ROWS)["all"])
    shown = [text.text or "" for text in picture.findall(f"{SVG}text")]
    assert shown.index("Windows") + 1 == shown.index("4×")
    assert shown.index("Latency") + 1 == shown.index("1×", shown.index("Latency"))
    assert shown.index("all") + 1 == shown.index("1.59×")
    assert len(picture.findall(f"{SVG}circle")) == 2


def test_a_row_without_ratios_is_on_no_chart() -> None:
    assert list(charts([*ROWS, Row("Alone", "sum", _timings(tinyxla=1.0))])) == ["all", "Windows", "Latency"]


# The command.


def run_benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.thorough
def test_a_quick_run_writes_tables_and_charts(tmp_path: Path) -> None:
    output = tmp_path / "table.md"
    words = ["operations, 1e3", "100 leaves", "sin(a), 1e3"]
    finished = run_benchmarks(
        "--quick", "--no-memory", "--libraries", "tinyxla", "numpy", "--output", str(output), "--only", *words
    )
    assert finished.returncode == 0, finished.stderr
    text = output.read_text(encoding="utf-8")
    for name in ("chain of 10 operations, 1e3", "dispatch: 100 leaves", "eager: sin(a), 1e3"):
        assert f"| {name} |" in text
        assert f"{name} " in finished.stdout
    found = re.findall(r"!\[[^]]*\]\((.*?)\)", text)
    assert found == ["table/all.svg", "table/element-wise.svg", "table/latency.svg"]
    assert all(bars_of((tmp_path / path).read_text(encoding="utf-8")) == [] for path in found)  # JAX did not run


def test_an_unknown_workload_is_refused_with_the_names() -> None:
    finished = run_benchmarks("--quick", "--only", "nonsense")
    assert finished.returncode == 2
    assert "no workload has such a name" in finished.stderr
    assert "softmax, 4096 x 1024" in finished.stderr


def test_against_compares_a_checkout_row_by_row() -> None:
    """Workloads of each sort, in two processes with this checkout's library."""
    chosen = {"Element-wise": Workload, "Latency": Calls}
    with contestants(str(ROOT)) as versions:
        rows = [
            compare(group, next(x for x in GROUPS[group] if type(x) is sort), versions, quick=True)
            for group, sort in chosen.items()
        ]
    assert [row.first is not None for row in rows] == [True, False]
    assert all(row.ratio > 0 for row in rows)
    text = summary([*rows, Comparison("Latency", "slow", Timing(1.0, 0.0), Timing(4.0, 0.0))])
    assert "rows below 0.9: " in text
    assert "0.25  Latency: slow (1e+06 -> 4e+06 us)" in text


def test_against_tells_which_row_ended_its_process() -> None:
    with contestants(str(ROOT)) as (old, _), pytest.raises(RuntimeError, match="that measures prepare"):
        old.ask("prepare", "Latency", "no such row", 0.1)
