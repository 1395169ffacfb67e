"""Concurrent steps: which steps run at the same time, that results are those of one thread, and how runs end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as jnp
from tinyxla import lax
from tinyxla.compiler.schedule import concurrent_steps
from tinyxla.tracing.config import setting

INPUTS = np.linspace(-1, 1, 300, dtype=np.float32)


@pytest.fixture(autouse=True)
def several_processors() -> Iterator[None]:
    with setting("target", "processors=4"):
        yield


def recurrence(y: Any, c: float, steps: int = 1000) -> Any:
    return lax.fori_loop(0, steps, lambda _, y: y + c * jnp.sin(y[::-1]), y)


def newton(a: Any, steps: Any) -> Any:
    """Loops of scalars, each a kernel."""
    return lax.while_loop(lambda s: s[1] < steps, lambda s: (s[0] - (s[0] ** 2 - a) / (2 * s[0]), s[1] + 1), (a, 0))[0]


def bidirectional(x: Any, w: Any) -> Any:
    def pass_over(x: Any, w: Any) -> Any:
        return lax.scan(lambda h, row: (jnp.tanh(h @ w + row), h), jnp.zeros(64), x)[1]

    return jnp.concatenate([pass_over(x, w), pass_over(x[::-1], 0.5 * w)[::-1]], 1)


def products(y: Any, x: Any) -> Any:
    return lax.fori_loop(0, 200, lambda _, y: jnp.sin(y @ x)[::-1], y)


def two_levels(y: Any) -> Any:
    """Two independent loops, and two that depend on both."""
    a, b = recurrence(y, 0.1), recurrence(y, 0.2)
    total = jnp.sum(a + b) / 300
    return recurrence(a + total, 0.3), recurrence(b - total, 0.4)


def overwritten(y: Any) -> Any:
    """The memory of one loop's input is free for others only when that loop is over."""
    z = 2 * y
    a = recurrence(z, 0.1)
    z = z.at[0].set(5.0)
    return a, recurrence(z, 0.2), z


def in_a_loop(y: Any) -> Any:
    return lax.fori_loop(0, 3, lambda _, y: recurrence(y, 0.1) + recurrence(-y, 0.2), y)


def branches(text: str) -> list[int]:
    """For each concurrent step of a program how many branches it has."""
    lines = [line[4:] for line in text.splitlines() if re.match(r" *\d+ ", line)]
    counts: list[int] = []
    depth = -1
    for line in lines:
        own = len(line) - len(line.lstrip())
        if depth >= 0 and own == depth + 2:
            counts[-1] += 1
        elif own <= depth:
            depth = -1
        if line.lstrip().startswith("concurrent"):
            counts.append(0)
            depth = own
    return counts


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (lambda y: (recurrence(y, 0.1), recurrence(y, 0.2)), [INPUTS], [2]),
        (lambda y: [recurrence(y, 0.1 * k) for k in range(1, 6)], [INPUTS], [5]),
        (lambda y: recurrence(recurrence(y, 0.1), 0.2), [INPUTS], []),
        (two_levels, [INPUTS], [2, 2]),
        (overwritten, [INPUTS], None),
        (in_a_loop, [INPUTS], [2]),
        (bidirectional, [np.ones((100, 64), np.float32) / 50, np.ones((64, 64), np.float32) / 50], [2]),
        (lambda y: (recurrence(y, 0.1, 3), recurrence(y, 0.2, 3)), [INPUTS], []),  # too short
        # Products that threads share.
        (lambda y, x: (products(y, x), products(-y, x)), [np.ones(1024, np.float32), np.eye(1024, dtype="f4")], []),
    ],
    ids="two five chain levels overwritten nested bidirectional short products".split(),
)
def test_results_are_those_of_steps_in_order(
    function: Callable[..., Any], arguments: list[Any], expected: list[int] | None
) -> None:
    compiled = tx.jit(function).lower(*arguments).compile()
    with setting("disabled_passes", ("concurrent-steps",)):
        in_order = tx.jit(function).lower(*arguments).compile()
    assert branches(in_order.as_text()) == []
    if expected is not None:
        assert branches(compiled.as_text()) == expected
    else:
        assert branches(compiled.as_text())
    wanted = tx.tree.leaves(in_order(*arguments))
    for _ in range(20):
        for found, want in zip(tx.tree.leaves(compiled(*arguments)), wanted, strict=True):
            np.testing.assert_array_equal(found, want)


def test_every_step_that_may_be_a_branch_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without thresholds, programs of many small steps fork at every level."""
    monkeypatch.setattr(concurrent_steps, "WAKE_NANOSECONDS", 1e-9)
    generator = np.random.default_rng(0)
    forked = 0
    for _ in range(6):
        numbers = generator.integers(0, 6, (8, 3))

        def program(x: Any, numbers: Any = numbers) -> Any:
            values = [x, x + 1, 2 * x]
            for op, i, j in numbers:
                a, b = values[i % len(values)], values[j % len(values)]
                values.append(
                    [
                        lambda a, b: jnp.cumsum(a) - b,
                        lambda a, b: jnp.sort(a) * b.max(),
                        lambda a, b: a.at[3].set(b[5]),
                        lambda a, b: lax.fori_loop(0, 4, lambda _, c: c[::-1] + b, a),
                        lambda a, b: lax.cond(a[0] > b[1], lambda: jnp.cumsum(a), lambda: b - 1),
                        lambda a, b: jnp.convolve(a, b[:3], "same"),
                    ][op](a, b)
                )
            return values[3:]

        x = generator.standard_normal(40).astype(np.float32)
        compiled = tx.jit(program).lower(x).compile()
        forked += len(branches(compiled.as_text()))
        with setting("disabled_passes", ("concurrent-steps",)):
            wanted = tx.jit(program).lower(x).compile()(x)
        for _ in range(5):
            for found, want in zip(compiled(x), wanted, strict=True):
                np.testing.assert_array_equal(found, want)
    assert forked > 6


def test_calls_of_the_host_are_in_no_branch() -> None:
    seen: list[int] = []

    def noisy(y: Any, number: int) -> Any:
        def body(_: Any, y: Any) -> Any:
            tx.debug.callback(lambda: seen.append(number), ordered=True)
            return y + jnp.sin(y)

        return lax.fori_loop(0, 1000, body, y)

    compiled = tx.jit(lambda y: (noisy(y, 1), noisy(y, 2))).lower(INPUTS).compile()
    assert branches(compiled.as_text()) == []
    tx.block_until_ready(compiled(INPUTS))
    tx.effects_barrier()
    assert seen == [1] * 1000 + [2] * 1000


def test_profile_has_the_time_of_each_branch() -> None:
    compiled = tx.jit(lambda y: (recurrence(y, 0.1), recurrence(y, 0.2))).lower(INPUTS).compile()
    profile = str(compiled.profile(INPUTS))
    assert "concurrent over 2 steps" in profile
    assert re.search(r" 2000 .* 2 times loop over 300", profile)


def test_bound_on_parallel_efficiency_counts_branches_together() -> None:
    both = tx.jit(lambda y: (recurrence(y, 0.1), recurrence(y, 0.2))).lower(INPUTS).compile()
    one = tx.jit(lambda y: recurrence(y, 0.1)).lower(INPUTS).compile()
    assert both.parallel_efficiency([2])[2] == pytest.approx(1.0)
    assert one.parallel_efficiency([2])[2] == pytest.approx(0.5)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals of threads")
@pytest.mark.parametrize("kind", ["loops of kernels", "loops in kernels"])
def test_interrupt_ends_all_branches(kind: str) -> None:
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    if kind == "loops in kernels":
        function, arguments = lambda a, n: [newton(a + k, n) for k in range(4)], (np.float32(2), np.int32(2**31 - 1))
        minimum = {"WAKE_NANOSECONDS": 1.0}
    else:
        function, arguments = lambda y: [recurrence(y, 0.1 * k, 2**31 - 1) for k in range(4)], (INPUTS,)
        minimum = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in minimum.items():
            patch.setattr(concurrent_steps, name, value)
        compiled = tx.jit(function).lower(*arguments).compile()
    assert branches(compiled.as_text()) == [4]
    main, stopped = threading.get_ident(), threading.Event()

    def interrupt() -> None:
        while not stopped.wait(0.5):
            signal.pthread_kill(main, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Thread(target=interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(*arguments)
    finally:
        stopped.set()
        timer.join()
        signal.signal(signal.SIGINT, handler)
    small = tx.jit(lambda y: (recurrence(y, 0.1), recurrence(y, 0.2)))  # the next run is whole again
    np.testing.assert_array_equal(small(INPUTS)[0], tx.jit(lambda y: recurrence(y, 0.1))(INPUTS))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_process_runs_branches() -> None:
    """In a process of its own: one that has run other tests may hold locks of other threads when it forks."""
    code = """
import os
import numpy as np
import tinyxla as tx
from tests.compiler.schedule.test_concurrent_steps import INPUTS, recurrence

tx.config.update("target", "processors=4")
function = tx.jit(lambda y: (recurrence(y, 0.1), recurrence(y, 0.2)))
want = np.asarray(function(INPUTS)[1])
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(np.asarray(function(INPUTS)[1]), want) else 1)
print(os.waitpid(child, 0)[1])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout == "0\n", found.stderr
