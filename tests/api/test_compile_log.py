"""Tracing and compiling say what they do where they are asked to, and where they take long."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla.api import compile_log
from tinyxla.errors import AttributeValueError
from tinyxla.tracing.config import setting


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """The messages that are logged in the test."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tinyxla")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def step(weights: Any, x: Any, times: int = 2) -> Any:
    return weights["w"] * x.sum() * times


# --- log_compiles -----------------------------------------------------------------------------------------------------


def test_log_compiles_tells_function_shapes_times_and_line(messages: list[str]) -> None:
    f = tx.jit(step)
    weights, x = {"w": jnp.ones(3)}, jnp.ones(4)
    with tx.log_compiles():
        f(weights, x)
        f(weights, x)
    tracing, compiling, done = messages
    assert tracing.startswith("Finished tracing step(f32[3], f32[4]) -> f32[3] for jit in ")
    assert "operations, called at " in tracing
    assert __file__ in tracing
    assert compiling.startswith("Compiling step(f32[3], f32[4]) -> f32[3], called at ")
    assert done.startswith("Finished compilation of step in ")


def test_equal_programs_are_compiled_once(messages: list[str]) -> None:
    x = jnp.full(17, 2.0)
    with tx.log_compiles():
        for _ in range(2):
            tx.jit(lambda x: x * 17 + 4)(x)
    assert [message.split()[1] for message in messages] == [
        "tracing",
        "lambda(f32[17])",
        "compilation",
        "tracing",
        "compilation",
    ]


def test_compiling_is_logged_for_debugging(messages: list[str], caplog: pytest.LogCaptureFixture) -> None:
    tx.jit(lambda x: x + 5)(1.0)
    assert not messages
    with caplog.at_level(logging.DEBUG, "tinyxla"):
        tx.jit(lambda x: x + 6)(1.0)
    assert [m.split()[0] for m in messages] == ["Finished", "Compiling", "Finished"]
    assert {r.levelno for r in caplog.records} == {logging.DEBUG}


def test_options_of_messages_leave_programs(messages: list[str]) -> None:
    f = tx.jit(step)
    f({"w": jnp.ones(3)}, jnp.ones(4))
    weights, x = {"w": jnp.ones(3)}, jnp.ones(4)
    with tx.log_compiles(), tx.explain_cache_misses(), setting("slow_compile_seconds", 1):
        f(weights, x)
        assert not tx.config.special
    tx.config.update("jax_log_compiles", True)
    try:
        f(weights, x)
    finally:
        tx.config.update("jax_log_compiles", False)
    assert not messages


# --- explain_cache_misses ---------------------------------------------------------------------------------------------


def explained(messages: list[str], function: Any, before: tuple[Any, ...], now: tuple[Any, ...]) -> list[str]:
    """The differences that the message about a second call lists."""
    function(*before)
    with tx.explain_cache_misses():
        function(*now)
    (message,) = messages
    head, *lines = message.splitlines()
    assert head.startswith("Cache miss of step, called at ")
    assert __file__ in head
    assert lines.pop() == "  compared with the program there is."
    return [line.strip() for line in lines]


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        (
            ({"w": np.ones(3, "f")}, np.ones(4, "f")),
            ({"w": np.ones((2, 1), "f")}, np.ones(4, "f")),
            ["the argument 0['w'] has the shape (2, 1), but had (3,)"],
        ),
        (
            ({"w": np.ones(3, "f")}, np.ones(4, "f")),
            ({"w": np.ones(3, "f")}, np.ones(4, "int32")),
            ["the argument 1 has the type int32, but had float32"],
        ),
        (
            ({"w": jnp.float32(1)}, np.ones(4, "f")),
            ({"w": 1.0}, np.ones(4, "f")),
            ["the argument 0['w'] is weakly typed, as a Python number, but was not weakly typed"],
        ),
        (
            ({"w": 1.0}, np.ones(4, "f")),
            ({"w": 1.0, "b": 2.0}, np.ones(4, "f")),
            ["the structure of the arguments is ({'b': *, 'w': *}, *), but was ({'w': *}, *)"],
        ),
        (
            ({"w": 1.0}, np.ones(4, "f"), 2),
            ({"w": 1.0}, np.ones(4, "f"), 3),
            ["the static argument 2 is 3, but was 2"],
        ),
    ],
)
def test_cache_miss_says_what_is_different(
    messages: list[str], before: tuple[Any, ...], now: tuple[Any, ...], lines: list[str]
) -> None:
    function = tx.jit(step, static_argnums=2)
    function.clear_cache()  # of programs that others made of the function
    assert explained(messages, function, before, now) == lines


def test_cache_miss_is_compared_with_the_nearest_program(messages: list[str]) -> None:
    f = tx.jit(step)
    f.clear_cache()
    f({"w": np.ones(3, "f")}, np.ones(4, "f"))
    f({"w": np.ones(5, "f")}, np.ones(5, "f"))
    with tx.explain_cache_misses():
        f({"w": np.ones(3, "f")}, np.ones(7, "f"))
    assert messages[0].splitlines()[1:] == [
        "  the argument 1 has the shape (7,), but had (4,)",
        "  compared with the nearest of 2 programs.",
    ]


def test_static_arguments_without_equality_are_told_of(messages: list[str]) -> None:
    class Settings:
        def __repr__(self) -> str:
            return "Settings()"

    def of_settings(x: Any, settings: Settings) -> Any:
        return x

    f = tx.jit(of_settings, static_argnums=1)
    f(1.0, Settings())
    with tx.explain_cache_misses():
        f(1.0, Settings())
    assert "Settings has no __eq__, so that only one and the same object is equal" in messages[0]


def test_functions_that_are_made_anew_are_told_of(messages: list[str]) -> None:
    with tx.explain_cache_misses():
        for _ in range(2):
            tx.jit(lambda x: x + 1)(1.0)
    first, second = messages
    assert first.endswith("it is its first call.")
    assert "A function made at the same line was traced before" in second


# --- work that takes long ---------------------------------------------------------------------------------------------


def unrolled(x: Any) -> Any:
    for k in range(200):
        x = jnp.sin(x) * k
    return x


def test_copies_of_a_line_are_found() -> None:
    program = tx.jit(unrolled).trace(jnp.ones(3))._program  # pyright: ignore[reportPrivateUsage]
    found = compile_log.copies(program.computation)
    assert found is not None
    assert found[0] == 200
    assert "x = jnp.sin(x) * k" in found[1]


def test_loops_that_are_recorded_once_have_no_copies() -> None:
    def rolled(x: Any) -> Any:
        return tx.lax.fori_loop(0, 200, lambda k, x: jnp.sin(x) * k, x)

    program = tx.jit(rolled).trace(jnp.ones(3))._program  # pyright: ignore[reportPrivateUsage]
    assert compile_log.copies(program.computation) is None


def test_report_says_function_operations_stage_and_advice() -> None:
    program = tx.jit(unrolled).trace(jnp.ones(3))._program  # pyright: ignore[reportPrivateUsage]
    text = compile_log.report("unrolled", program.computation, 2.5, None)
    assert text.startswith("compiling unrolled for 2.5 s (802 operations): starting\n  200 copies of ")
    assert "lax.scan" in text
    assert "TINYXLA_SLOW_COMPILE_SECONDS=off" in text


def test_stage_is_named_after_the_innermost_frame_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyxla.compiler.passes import cse

    frames: list[FrameType] = []
    monkeypatch.setattr(cse, "rewrite", lambda *_: frames.append(sys._getframe()))  # pyright: ignore[reportPrivateUsage]
    program = tx.jit(unrolled).trace(jnp.ones(3))._program  # pyright: ignore[reportPrivateUsage]
    cse.eliminate_common_subexpressions(program.computation)
    assert [compile_log.stage(frame) for frame in frames] == ["simplifying the graph"]


def test_slow_work_is_told() -> None:
    entered, told = threading.Event(), threading.Event()
    traces: list[int] = []
    lines: list[str] = []

    def waits(x: Any) -> Any:
        traces.append(1)
        entered.set()
        assert told.wait(60)
        return tx.jit(lambda x: x + 1)(x)

    def say_once_it_waits(text: str) -> None:
        lines.append(text)
        told.set()

    watched_text = compile_log._Watch.text  # pyright: ignore[reportPrivateUsage]

    def text_once_it_waits(watch: Any) -> str:
        assert entered.wait(60)
        return watched_text(watch)

    with pytest.MonkeyPatch.context() as patch, setting("slow_compile_seconds", 0):
        patch.setattr(compile_log, "_say", say_once_it_waits)
        patch.setattr(compile_log._Watch, "text", text_once_it_waits)  # pyright: ignore[reportPrivateUsage]
        tx.jit(waits)(1.0)
    assert traces == [1]
    assert lines[0].startswith("tracing waits for ")
    assert "test_compile_log.py" in lines[0] or "threading.py" in lines[0]
    assert lines[1].startswith("tracing waits took ")


def test_slow_work_is_at_the_line_of_the_user_not_of_a_package_that_the_library_calls() -> None:
    """A thread that traces is in optree half of the time."""
    frames: list[FrameType] = []

    class Node:
        def children(self) -> tuple[tuple[Any, ...], None]:
            frames.append(sys._getframe())  # pyright: ignore[reportPrivateUsage]
            return (1.0,), None

    tx.tree_util.register_pytree_node(Node, Node.children, lambda _, children: Node())
    tx.tree_util.tree_map(lambda x: x, Node())
    in_optree: FrameType | None = frames[0].f_back
    assert in_optree is not None
    line = compile_log._line_of_user(in_optree)  # pyright: ignore[reportPrivateUsage]
    assert line.endswith("(test_slow_work_is_at_the_line_of_the_user_not_of_a_package_that_the_library_calls)")


def test_quick_work_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    with setting("slow_compile_seconds", 3600):
        tx.jit(lambda x: x + 41)(1.0)
    assert capsys.readouterr().err == ""
    assert compile_log._watcher.is_idle  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("value", [-1, True, "2", float("nan")])
def test_seconds_must_be_a_number(value: Any) -> None:
    with pytest.raises(AttributeValueError, match="must be a number of seconds or None"):
        tx.config.update("slow_compile_seconds", value)
