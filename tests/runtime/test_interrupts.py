"""Exceptions from outside (Ctrl-C, a timer's handler, a test's time limit) at any moment of a computation.

They must reach the user, crash nothing, stop no other thread, and leave nothing half done: the same computation then
gives the right result. The processes that `interrupts.py` runs are interrupted hundreds of times; run it by itself for
thousands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyxla as tx
import tinyxla.numpy as tnp
from tests.support import ROOT
from tinyxla import cache, profiler
from tinyxla.loopir.ir.loop_ir import Builder, Literal
from tinyxla.runtime import threads
from tinyxla.runtime.threads import Task, shielded

pytest.importorskip("llvmlite")

from tinyxla.backends.numba.jit import binding, engine
from tinyxla.backends.numba.runtime import bytecode, thread_pool

needs_timer = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


class FromOutside(Exception):
    pass


def interrupts(cache_directory: Path, *options: str) -> str:
    script = ROOT / "tests" / "support" / "interrupts.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TINYXLA_CACHE_DIR": str(cache_directory),
        "TINYXLA_NUM_THREADS": "2",
    }
    command = [sys.executable, str(script), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sample(every=5)
@needs_timer
@pytest.mark.parametrize(
    "options",
    [
        ("--rounds", "80", "--seed", "11"),
        ("--rounds", "50", "--seed", "12", "--threads", "2"),
        ("--rounds", "50", "--seed", "13", "--timed", "--seconds", "0.03"),
        ("--rounds", "30", "--seed", "14", "--timed", "--threads", "1"),
        ("--rounds", "25", "--seed", "15", "--no-threads"),
    ],
)
def test_interrupted_first_calls_crash_nothing_and_succeed_afterwards(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "interrupts of" in interrupts(tmp_path, *options)


@needs_timer
def test_interrupted_traces_and_allocations_leave_no_state(tmp_path: Path) -> None:
    printed = interrupts(tmp_path, "--sweep", "97")
    assert int(printed.split()[0]) > 500


@pytest.mark.sample(every=2)
@needs_fork
@needs_timer
@pytest.mark.parametrize("more", [(), ("--no-threads",)])
def test_interrupted_first_call_of_a_process_succeeds_afterwards(tmp_path: Path, more: tuple[str, ...]) -> None:
    assert "interrupts of 3" in interrupts(tmp_path, "--cold", "--rounds", "3", "--bytecodes", "100000", *more)


CYCLES = """
import gc, signal
import numpy as np
import tinyxla as tx


class Timeout(Exception):
    pass


def raise_timeout(*_):
    raise Timeout


signal.signal(signal.SIGALRM, raise_timeout)
x = np.ones(1000, np.float32)
tx.jit(lambda x: x + 1)(x)
came = 0
for k in range(30):
    function = tx.jit(lambda x: tx.numpy.sin(x * (k + 1.5)).sum() + tx.numpy.exp(x).max() + k)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.001 * k)
        function(x)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Timeout as error:
        error.itself = error
        came += 1
    gc.collect()
print(came > 5)
"""


@needs_timer
def test_traceback_of_an_interrupted_compilation_in_a_cycle_is_collected() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TINYXLA_CACHE_BYTES": "0"}
    done = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, text=True, env=environment, timeout=200)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# Native objects.


def test_owner_closed_twice_disposes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    disposed: list[int] = []
    handles = iter([3, 5])
    functions: dict[str, Any] = {"make": lambda: next(handles), "end": disposed.append}
    monkeypatch.setattr(binding, "_function", functions.__getitem__)
    owner = binding.Owner()
    assert [owner.create("make", (), "end"), owner.create("make", (), "end")] == [3, 5]
    owner.close()
    owner.close()
    assert disposed == [5, 3]


TEXT = "define i64 @seven() {\n  ret i64 7\n}\n"


def test_object_added_twice_still_runs() -> None:
    """As happens when an interrupt comes between adding an object and noting its addresses."""
    first = engine.compile_llvm(TEXT, ["seven"])["seven"]
    engine.forget()
    second = engine.compile_llvm(TEXT, ["seven"])["seven"]
    assert 0 not in (first, second)
    call = binding.ctypes.CFUNCTYPE(binding.ctypes.c_int64)
    assert call(first)() == call(second)() == 7


def without_threads(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_exception_from_outside_is_no_error_of_the_module_that_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYXLA_CACHE_BYTES", "0")
    monkeypatch.setattr(threads, "start_new_thread", without_threads)
    text = "define i64 @%s() {\n  ret i64 8\n}\n"

    def interrupted(*_: object) -> None:
        raise FromOutside

    begun_before = Builder("begun_before")
    begun_before.store(begun_before.argument("s64", written=True), 0, Literal("s64", 8))
    engine.define_kernel("tinyxla_test_begun_before", begun_before.kernel)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_object_code", interrupted)
        with pytest.raises(FromOutside):
            engine.compile_llvm(text % "begun_then", ["begun_then"])
    assert engine.function_address("tinyxla_test_begun_before") != 0
    assert engine.compile_llvm(text % "begun_then", ["begun_then"])["begun_then"] != 0


def test_llvm_error_belongs_to_its_module() -> None:
    with pytest.raises(binding.LLVMError, match="parsing error"):
        engine.compile_llvm("define nothing", ["nothing"])
    assert engine.compile_llvm(TEXT, ["seven"])["seven"] != 0


@needs_fork
def test_fork_interrupted_while_it_waits_for_compilations_releases_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def join() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise FromOutside

    monkeypatch.setattr(engine, "_join", join)
    with pytest.raises(FromOutside):
        engine._before_fork()
    assert engine._is_owned()
    assert len(calls) == 2
    engine._after_fork()
    assert not engine._is_owned()


# Threads.


def test_task_waited_for_before_it_began_never_runs() -> None:
    ran: list[int] = []
    task = Task(lambda: ran.append(1))
    assert not task.wait()
    assert not task.wait()
    task._run()
    assert ran == []


@needs_timer
def test_task_interrupted_while_waited_for_runs_to_its_end() -> None:
    ran = threading.Event()
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)
        ran.set()

    task = Task(work)
    assert task.start()
    begun.wait(60)
    handler = signal.signal(signal.SIGINT, raise_from_outside)
    try:
        main = threading.get_ident()
        threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(FromOutside):
            task.wait()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not ran.is_set()
    go_on.set()
    assert task.wait()
    assert ran.is_set()
    assert task.wait()


def raise_from_outside(*_: object) -> None:
    raise FromOutside


def test_shielded_function_without_threads_runs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "start_new_thread", without_threads)
    seen: list[int] = []
    shielded(lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]


def test_shielded_function_runs_in_another_thread_and_raises_its_error() -> None:
    seen: list[int] = []
    shielded(lambda: seen.append(threading.get_ident()))
    assert seen != [threading.get_ident()]

    def fail() -> None:
        raise FromOutside

    with pytest.raises(FromOutside):
        shielded(fail)


def test_exception_while_workers_start_is_raised_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """They start within native code, which must hand it on."""
    start = thread_pool.ThreadPool._start_missing_workers
    errors: list[Exception] = [FromOutside()]

    def interrupted(self: thread_pool.ThreadPool) -> None:
        if errors:
            raise errors.pop()
        start(self)

    monkeypatch.setattr(thread_pool.ThreadPool, "_start_missing_workers", interrupted)
    pool = thread_pool.ThreadPool(bytecode.runtime().functions, 2)
    try:
        output = np.zeros(300, np.float32)
        run = split_run(pool, output)
        with pytest.raises(FromOutside):
            run()
        output[:] = 0
        run()
        np.testing.assert_array_equal(output, np.arange(300) * 2)
    finally:
        pool.close()


DOUBLED = """
define void @doubled(ptr %table, i64 %first, i64 %last) {
entry:
  %output = load ptr, ptr %table
  br label %next
next:
  %i = phi i64 [ %first, %entry ], [ %more, %next ]
  %twice = mul i64 %i, 2
  %value = sitofp i64 %twice to float
  store float %value, ptr %output[float %i]
  %more = add i64 %i, 1
  br i1 (icmp slt i64 %more, %last), label %next, label %done
done:
  ret void
}
"""


def split_run(pool: thread_pool.ThreadPool, output: np.ndarray[Any, Any]) -> Callable[[], None]:
    schedule = bytecode.Schedule()
    schedule.kernel(engine.compile_llvm(DOUBLED, ["doubled"])["doubled"], [0], len(output), 10)
    words, slots = schedule.finish(), np.array([output.ctypes.data], np.int64)
    return lambda: bytecode.runtime().run(words.ctypes.data, slots.ctypes.data, pool.address)


# Files and blocks.


def test_cache_write_interrupted_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a TimeoutError, which is an OSError, but none of the file system's."""
    monkeypatch.setenv("TINYXLA_CACHE_DIR", str(tmp_path / "cache"))

    def interrupted(*_: object) -> None:
        raise TimeoutError("too slow")

    with monkeypatch.context() as patch:
        patch.setattr(cache.os, "replace", interrupted)
        with pytest.raises(TimeoutError):
            cache.write("ab", b"code")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["secret"]
    cache.write("ab", b"code")
    assert cache.read("ab") == b"code"


def test_block_that_decorates_a_function_holds_in_each_of_its_threads() -> None:
    barrier = threading.Barrier(2, timeout=60)

    @tx.enable_x64()
    def dtype() -> Any:
        barrier.wait()
        found = tnp.arange(2.0).dtype
        barrier.wait()
        return found

    found: list[Any] = []
    workers = [threading.Thread(target=lambda: found.append((dtype(), tnp.arange(2.0).dtype))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert found == [(np.dtype("float64"), np.dtype("float32"))] * 2


def test_trace_whose_start_is_interrupted_can_be_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(observer: Any) -> None:
        if observer is not None:
            raise FromOutside

    with monkeypatch.context() as patch:
        patch.setattr(profiler, "observe", interrupted)
        with pytest.raises(FromOutside):
            profiler.start_trace(tmp_path)
    with profiler.trace(tmp_path):
        pass
    assert len(list(tmp_path.glob("*.trace.json"))) == 1


def test_functions_that_are_gone_are_forgotten() -> None:
    from tinyxla.api import jit

    before = len(jit._functions)
    kept = [tx.jit(lambda x: x) for _ in range(5)]
    for _ in range(40):
        _ = [tx.jit(lambda x: x) for _ in range(50)]
    assert {id(x) for x in kept} <= {id(x) for x in jit._all_functions()}
    assert len(jit._functions) <= 2 * (before + 60) + 64
