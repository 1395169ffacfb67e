"""What can be seen of compiled programs: reports, profiles, traces, and the machine they are compared with."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import errors, lax, profiler
from tinyxla.backends import compile_module
from tinyxla.compiler.report import Machine, table
from tinyxla.compiler.step_costs import Cost
from tinyxla.util.wording import amount, duration

pytestmark = pytest.mark.llvm  # plans and steps of compiled programs

X = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(48, 48)).astype(np.float32)
SLOW = Machine(1, ((1e6, 2e9), (1e9, 1e9)), 1e9, 1e8)


def layer(x: Any, w: Any) -> Any:
    hidden = jnp.tanh(x @ w)
    return hidden / jnp.sum(hidden * hidden, axis=-1, keepdims=True)


def loop(x: Any, w: Any) -> Any:
    def body(c: Any, t: Any) -> Any:
        return jnp.tanh(c @ w), jnp.sum(c) * t

    return lax.scan(body, x, jnp.arange(5.0))


def compiled(function: Any, *args: Any) -> Any:
    return tx.jit(function).lower(*args).compile()


# --- reports ----------------------------------------------------------------------------------------------------------


def test_instructions_have_the_names_of_the_lowered_text() -> None:
    """Every instruction that a step names stands in the text, and what the text computes is in some step."""
    for function in (layer, loop, tx.grad(lambda x, w: layer(x, w).sum())):
        lowered = tx.jit(function).lower(X, W)
        text = lowered.as_text()
        steps = lowered.compile().report().steps
        named = {name for step in steps for name in step.instructions}
        assert named
        assert all(re.search(rf"\b{re.escape(name)} = ", text) for name in named), named
    steps = compiled(layer, X, W).report().steps
    assert {"dot.1", "tanh.1", "multiply.1", "reduce.1", "divide.1"} <= {n for step in steps for n in step.instructions}


def test_gradients_are_of_the_lines_of_what_they_derive() -> None:
    def total(x: Any) -> Any:
        return layer(x, W).sum()

    program = compiled(tx.grad(total), X)
    lines = {line for step in program.report().steps for line in step.lines}
    assert any("hidden = jnp.tanh(x @ w)" in line for line in lines)
    assert any("return hidden / jnp.sum" in line for line in lines)
    assert not any("program = compiled(" in line for line in lines)


def test_costs_of_products_loops_and_calls_of_the_host() -> None:
    steps = compiled(layer, X, W).report().steps
    assert sum(step.cost.operations for step in steps if step.kind == "product") == 2 * 64 * 48 * 48
    report = compiled(loop, X, W).report()
    inside = [step for step in report.steps if step.depth == 1]
    assert inside
    assert {step.times for step in inside} == {5}
    assert report.cost.operations >= 5 * 2 * 64 * 48 * 48
    counted = compiled(lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c + 1, x), X[:, :40]).report()
    assert None in {step.times for step in counted.steps}
    assert "of unknown length" in str(counted)

    def called(x: Any) -> Any:
        return tx.pure_callback(np.sin, x, x)

    (step,) = [step for step in compiled(called, X).report().steps if step.kind == "host call"]
    assert step.cost.bytes == 2 * X.nbytes


def test_operations_are_counted_where_they_change() -> None:
    """A scalar that no loop changes is computed once; an exponential is no operation but a transcendental."""
    (step,) = compiled(lambda x, s: jnp.exp(x * (s + 1)) - 2, X, np.float32(3)).report().steps
    assert step.cost == Cost(X.nbytes + 4, X.nbytes, 2 * X.size + 1, X.size)


def test_buffers_tell_where_memory_is() -> None:
    report = compiled(loop, X, W).report()
    places = {buffer.name: buffer for buffer in report.buffers}
    assert [b.place for b in report.buffers[:2]] == ["argument 0", "argument 1"]
    arena = [b for b in report.buffers if b.place == "arena"]
    assert arena
    for b in arena:
        assert b.offset is not None
        assert b.life is not None
        assert b.offset + b.bytes <= report.arena_bytes
        assert 0 <= b.life[0] <= b.life[1] < len(report.steps)
    for one in arena:
        for other in arena:
            apart = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset  # type: ignore[operator]
            at_other_times = one.life[1] < other.life[0] or other.life[1] < one.life[0]  # type: ignore[index]
            assert one is other or apart or at_other_times
    touched = {name for step in report.steps for name in (*step.reads, *step.writes)}
    assert touched <= set(places)


def test_an_update_in_place_is_an_alias() -> None:
    def updated(x: Any, row: Any) -> Any:
        return lax.dynamic_update_slice(jnp.sin(x), row, (2, 0))

    report = compiled(updated, X, X[:1]).report()
    assert any("dynamic-update-slice.1" in (b.name, *b.aliases) and b.aliases for b in report.buffers), str(report)
    assert not any(step.kind == "copy" for step in report.steps)


def test_the_page_of_text() -> None:
    program = compiled(layer, X, W)
    page = program.as_text()
    assert page.startswith("layer: ")
    assert "at least" not in page
    assert "argument 0" in page
    assert "test_profiler.py" in page
    page = program.as_text(SLOW)
    assert page.count("at least") == 1 + len(program.report().steps)
    assert "(arithmetic)" in page
    assert "(memory)" in compiled(lambda x: x + 1, X).as_text(SLOW)
    assert str(program.report()) == program.as_text()


def test_kernels_show_their_code_in_three_languages() -> None:
    kernel = compiled(lambda x: jnp.exp(x) + 1, X).kernels[0]
    assert "np.exp(" in kernel.source
    assert "define void @" in kernel.llvm
    assert "ret" in kernel.assembly


def test_reports_of_the_interpreter_and_of_dynamic_sizes() -> None:
    module = tx.jit(layer).lower(X, W).module
    interpreted = compile_module(module, "interpreter")
    assert interpreted.report().cost.operations > 2 * 64 * 48 * 48
    assert "NumPy of dot" in str(interpreted.report())
    assert interpreted.instrumented(0) is None


def test_numbers_are_short() -> None:
    assert [amount(x, "B") for x in (0, 999, 1000, 12345, 999_950, 2e9)] == [
        "0 B",
        "999 B",
        "1 kB",
        "12.3 kB",
        "1 MB",
        "2 GB",
    ]
    assert [duration(x) for x in (0, 2e-9, 1.5e-6, 0.99951e-3, 2)] == ["0 ns", "2 ns", "1.5 us", "1 ms", "2 s"]
    assert table(("a", "bb"), [("ccc", "d")], right=(1,)) == ["a    bb", "ccc   d"]


# --- the roofline -----------------------------------------------------------------------------------------------------


def test_bounds_are_the_larger_of_memory_and_arithmetic() -> None:
    assert SLOW.bound(Cost(500, 500, 0)).seconds == 1000 / 2e9
    assert SLOW.bound(Cost(10**9, 10**9)) == SLOW.bound(Cost(2 * 10**9, 0))
    assert SLOW.bound(Cost(2 * 10**9)).seconds == 2.0
    found = SLOW.bound(Cost(8, 8, 10**9, 10**8))
    assert (found.seconds, found.by) == (2.0, "arithmetic")
    assert Cost(1, 2, 3, 4) + Cost(1, 2, 3, 4) == Cost(1, 2, 3, 4) * 2


def test_the_machine_is_measured_once_for_a_number_of_threads() -> None:
    with tx.num_threads(1):
        found = profiler.machine()
        assert found is profiler.machine()
        assert found.threads == 1
        sizes, speeds = zip(*found.bandwidths, strict=True)
        assert list(sizes) == sorted(sizes)
        assert all(1e8 < speed < 1e13 for speed in speeds)
        assert 1e8 < found.operations < 1e13
        assert 1e6 < found.transcendentals < found.operations
        assert "1 thread: " in str(found)


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_accounts_for_the_time_of_a_call() -> None:
    program = compiled(layer, X, W)
    profile = program.profile(X, W, seconds=0.05, machine=SLOW)
    assert profile.calls >= 1
    parts = profile.python + profile.schedule + sum(step.seconds for step in profile.steps)
    assert parts == pytest.approx(profile.seconds, rel=1e-6)
    assert {step.info.number for step in profile.steps} == set(range(len(program.report().steps)))
    assert [step.seconds for step in profile.steps] == sorted((s.seconds for s in profile.steps), reverse=True)
    assert all(step.runs == 1 for step in profile.steps)
    by_line = profile.by_line()
    assert sum(line.seconds for line in by_line) == pytest.approx(sum(step.seconds for step in profile.steps), rel=1e-6)
    assert "hidden = jnp.tanh(x @ w)" in str(profile)
    np.testing.assert_allclose(program(X, W), layer(jnp.asarray(X), jnp.asarray(W)), 1e-4, 1e-4)


def test_profiles_of_loops_branches_and_calls_of_the_host() -> None:
    def program(x: Any, w: Any, chosen: Any) -> Any:
        c, totals = loop(x, w)
        c = lax.cond(chosen, lambda c: jnp.sort(c, axis=0), lambda c: c @ w, c)
        return tx.pure_callback(lambda c: c + 1, c, c), totals

    def steady(x: Any) -> Any:
        return lax.while_loop(lambda c: c.sum() < 1000, lambda c: c @ c * 0 + c.sum() / c.size + 1, x)

    for threads in (1, 2):
        with tx.num_threads(threads):
            profile = compiled(program, X, W, True).profile(X, W, True, seconds=0.02, machine=SLOW)
            runs = {step.info.number: (step.info, step.runs) for step in profile.steps}
            inside = [n for info, n in runs.values() if info.depth == 1 and info.times == 5]
            assert inside
            assert set(inside) == {5}
            branches = [n for info, n in runs.values() if info.depth == 1 and info.times is None]
            assert 0 in branches  # that which was not chosen
            assert 1 in branches
            assert [n for info, n in runs.values() if info.kind in ("while", "conditional", "host call")] == [1, 1, 1]
    square = np.full((40, 40), 0.1, np.float32)
    profile = compiled(steady, square).profile(square, seconds=0.01, machine=SLOW)
    assert max(step.runs for step in profile.steps) > 1


def test_equal_steps_stand_together() -> None:
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x @ W) @ W
        return x

    profile = compiled(layers, X).profile(X, seconds=0.02, machine=SLOW)
    groups = profile.by_kernel()
    assert sum(map(len, groups)) == len(profile.steps)
    assert any(len(steps) == 3 and "tanh" in steps[0].info.title for steps in groups)
    assert "3 times loop over" in str(profile)


def test_a_profile_of_a_wrong_call_is_an_error() -> None:
    with pytest.raises(errors.ArgumentError, match="lower it for these shapes"):
        compiled(layer, X, W).profile(X, X.T @ X @ W[:, :3], seconds=0.01)


# --- traces -----------------------------------------------------------------------------------------------------------


def _events(directory: Path) -> list[dict[str, Any]]:
    (path,) = directory.glob("*.trace.json")
    return json.loads(path.read_text())["traceEvents"]


def test_a_trace_has_calls_their_steps_and_annotations(tmp_path: Path) -> None:
    before, inside = tx.jit(layer), tx.jit(lambda x: jnp.cumsum(x, 0) @ x.T)
    before(X, W)
    with profiler.trace(tmp_path):
        with profiler.TraceAnnotation("epoch", number=3), profiler.StepTraceAnnotation("train", step_num=1):
            before(X, W)
            result = inside(X)
        profiler.annotate_function(before, name="named")(X, W)
        others = [threading.Thread(target=before, args=(X, W)) for _ in range(3)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
    before(X, W)
    np.testing.assert_allclose(result, np.cumsum(X, 0) @ X.T, 1e-3, 1e-3)
    events = _events(tmp_path)
    calls = [e for e in events if e["cat"] == "call"]
    assert [e["name"] for e in calls].count("layer") == 5
    assert len(calls) == 6
    assert len({e["tid"] for e in calls}) >= 2
    (epoch,) = [e for e in events if e["name"] == "epoch"]
    assert epoch["args"] == {"number": 3}
    assert {"train", "named"} <= {e["name"] for e in events}
    first = min((e for e in calls if e["name"] == "layer"), key=lambda e: e["ts"])
    steps = [e for e in events if e["cat"] == "step" and first["ts"] <= e["ts"] <= first["ts"] + first["dur"]]
    assert len(steps) == len(before.lower(X, W).compile().report().steps)
    assert all(e["ts"] + e["dur"] <= first["ts"] + first["dur"] + 1 for e in steps)
    assert epoch["ts"] <= first["ts"]
    assert first["ts"] + first["dur"] <= epoch["ts"] + epoch["dur"] + 1


def test_traces_begin_and_end_once(tmp_path: Path) -> None:
    with pytest.raises(errors.ArgumentError, match="call start_trace first"):
        profiler.stop_trace()
    profiler.start_trace(tmp_path, create_perfetto_link=False)
    try:
        with pytest.raises(errors.ArgumentError, match="call stop_trace first"):
            profiler.start_trace(tmp_path)
    finally:
        profiler.stop_trace()
    assert _events(tmp_path) == []


def test_a_trace_ends_with_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), profiler.trace(tmp_path):
        raise ZeroDivisionError
    assert _events(tmp_path) == []
