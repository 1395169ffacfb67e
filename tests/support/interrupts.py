"""Interrupts of computations at every moment, and what they leave: `python -m tests.support.interrupts --help`.

An exception from outside (a signal's handler, or one that is set for a thread) arrives between two bytecodes. The
`Interrupter` counts bytecodes in native code, and at the chosen one makes CPython believe that a signal came, so that
CPython itself raises the exception, at the next point where it does. That is as dense as interrupts can be, and can be
repeated. `timed` interrupts come from a timer instead, at random times, and meet native code too.

After each interrupt the same computation must succeed, with the values that NumPy gives.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import gc
import itertools
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np

_TRACER = """
@left = global i64 0
@seen = global i64 0
@signal = global i32 0
@thread = global i64 0
@error = global ptr null
@opcodes = internal constant [16 x i8] c"f_trace_opcodes\\00"

declare void @PyErr_SetInterruptEx(i32)
declare i32 @PyThreadState_SetAsyncExc(i64, ptr)
declare i32 @PyObject_SetAttrString(ptr, ptr, ptr)

define i32 @trace(ptr %true, ptr %frame, i32 %event, ptr %argument) {
entry:
  %seen = load i64, ptr @seen
  %more = add i64 %seen, 1
  store i64 %more, ptr @seen
  %is_call = icmp eq i32 %event, 0
  br i1 %is_call, label %call, label %count
call:
  %status = call i32 @PyObject_SetAttrString(ptr %frame, ptr @opcodes, ptr %true)
  br label %count
count:
  %left = load i64, ptr @left
  %less = sub i64 %left, 1
  store i64 %less, ptr @left
  %is_now = icmp eq i64 %less, 0
  br i1 %is_now, label %interrupt, label %done
interrupt:
  %error = load ptr, ptr @error
  %is_signal = icmp eq ptr %error, null
  br i1 %is_signal, label %signal, label %raise
signal:
  %number = load i32, ptr @signal
  call void @PyErr_SetInterruptEx(i32 %number)
  br label %done
raise:
  %thread = load i64, ptr @thread
  %threads = call i32 @PyThreadState_SetAsyncExc(i64 %thread, ptr %error)
  br label %done
done:
  ret i32 0
}
"""


class Interrupted(Exception):
    """Comes from outside."""


class AsynchronouslyInterrupted(Interrupted):
    """Is set for this thread, as plugins do that limit the time of tests."""


def _raise(number: int, frame: object) -> None:
    raise Interrupted


class Interrupter:
    """Interrupts this thread, the main one, after a number of bytecodes."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for name in ("PyErr_SetInterruptEx", "PyThreadState_SetAsyncExc", "PyObject_SetAttrString"):
            address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
            llvm.add_symbol(name, address)
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_TRACER), machine)
        self._engine.finalize_object()
        self._trace = ctypes.c_void_p(self._engine.get_function_address("trace"))
        self._left = ctypes.c_int64.from_address(self._engine.get_global_value_address("left"))
        self._seen = ctypes.c_int64.from_address(self._engine.get_global_value_address("seen"))
        self._error = ctypes.c_void_p.from_address(self._engine.get_global_value_address("error"))
        ctypes.c_int64.from_address(self._engine.get_global_value_address("thread")).value = threading.get_ident()
        number = ctypes.c_int32.from_address(self._engine.get_global_value_address("signal"))
        number.value = signal.SIGALRM if hasattr(signal, "SIGALRM") else signal.SIGINT
        self._set_trace = ctypes.pythonapi.PyEval_SetTrace
        self._set_trace.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._set_trace.restype = None
        self._clear = ctypes.pythonapi.PyThreadState_SetAsyncExc
        self._clear.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
        self.handler = signal.signal(number.value, _raise)
        self._dropped: list[Any] = []  # by Python, since a callback of a weak reference cannot raise them
        sys.unraisablehook = self._drop

    def _drop(self, unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, Interrupted) and getattr(unraisable.object, "__module__", "") == "weakref":
            self._dropped.append(unraisable.exc_value)
        else:
            sys.__unraisablehook__(unraisable)

    def count(self, function: Callable[[], Any]) -> int:
        """How many bytecodes it takes."""
        self._left.value = self._seen.value = 0
        self._set_trace(self._trace, id(True))
        try:
            function()
        finally:
            self._set_trace(None, None)
        return self._seen.value

    def call(self, function: Callable[[], Any], bytecodes: int, asynchronous: bool = False) -> Any:
        """The result; or `Interrupted`, which must come out once the bytecodes have been counted."""
        self._error.value = id(AsynchronouslyInterrupted) if asynchronous else None
        self._left.value = bytecodes
        self._set_trace(self._trace, id(True))
        try:
            result = function()
        finally:
            self._set_trace(None, None)
        if self._left.value <= 0:
            raise self._dropped.pop() if self._dropped else Lost
        return result


class Lost(Exception):
    """An interrupt did not come out of the computation."""


# Programs: each makes, of a number that no other has, a function to call and what it gives.

Case = tuple[Callable[[], Any], Any]


def _elementwise(tx: Any, k: int) -> Case:
    x = np.linspace(0, 1, 100 + k % 900, dtype=np.float32)
    function = tx.jit(lambda x: tx.numpy.sin(x * (k + 1.5)) + tx.numpy.exp(x).max())
    return lambda: function(x), np.sin(x * np.float32(k + 1.5)) + np.exp(x).max()


def _product(tx: Any, k: int) -> Case:
    x = np.random.default_rng(k).standard_normal((20 + k % 300, 30)).astype(np.float32)
    function = tx.jit(lambda x: tx.numpy.tanh(x @ x.T + k % 7).sum(1))
    return lambda: function(x), np.tanh(x @ x.T + k % 7).sum(1)


def _loop(tx: Any, k: int) -> Case:
    x = np.linspace(0, 1, 30 + k, dtype=np.float32)

    @tx.jit
    def function(x: Any) -> Any:
        return tx.lax.fori_loop(0, 3, lambda i, y: y * 0.5 + tx.numpy.where(y > 0.1, i + k, y), x)

    y = x
    for i in range(3):
        y = y * np.float32(0.5) + np.where(y > 0.1, np.float32(i + k), y)
    return lambda: function(x), y


def _gradient(tx: Any, k: int) -> Case:
    x = np.linspace(0.1, 1, 40 + k, dtype=np.float32)
    function = tx.jit(tx.vmap(tx.grad(lambda x: tx.numpy.log(x) * (k + 2.5) + x**3)))
    return lambda: function(x), (k + 2.5) / x + 3 * x**2


def _eager(tx: Any, k: int) -> Case:
    x = np.linspace(0.1, 1, (1 << 16) + k, dtype=np.float32)
    return lambda: tx.numpy.sqrt(tx.numpy.asarray(x)) * 2, np.sqrt(x) * 2


def _sorting(tx: Any, k: int) -> Case:
    x = np.random.default_rng(k).standard_normal((7, 90 + k % 500)).astype(np.float32)
    function = tx.jit(lambda x: tx.numpy.cumsum(tx.numpy.sort(x, 1), 1) - k)
    return lambda: function(x), np.cumsum(np.sort(x, 1), 1, dtype=np.float64) - k


def _callback(tx: Any, k: int) -> Case:
    x = np.linspace(0, 1, 50 + k, dtype=np.float32)
    shape = tx.ShapeDtypeStruct(x.shape, x.dtype)
    function = tx.jit(lambda x: tx.pure_callback(lambda x: np.asarray(x) * 2 + k, shape, x) + 1)
    return lambda: function(x), x * 2 + k + 1


def _options(tx: Any, k: int) -> Case:
    x = np.linspace(0, 1, 60 + k)

    def compute() -> Any:
        with tx.enable_x64(), tx.named_scope("interrupted"):
            return tx.jit(lambda x: x * k + 1e-12)(x)

    return compute, x * k + 1e-12


def _donation(tx: Any, k: int) -> Case:
    x = np.linspace(0, 1, 5000 + k, dtype=np.float32)
    function = tx.jit(lambda x: x * 2 + k, donate_argnums=0)

    def compute() -> Any:
        given = tx.numpy.asarray(x)
        try:
            return function(given)
        except Interrupted:
            if not given.is_deleted():
                np.testing.assert_array_equal(np.asarray(given), x)
            raise

    return compute, x * 2 + k


def _matrices(tx: Any, k: int) -> Case:
    x = np.random.default_rng(k).standard_normal((9 + k % 20, 9 + k % 20)).astype(np.float32)
    x = x @ x.T + 9 * np.eye(len(x), dtype=np.float32)
    function = tx.jit(lambda x: tx.numpy.linalg.solve(x, x[0] + k) + tx.numpy.linalg.cholesky(x)[0])
    return lambda: function(x), np.linalg.solve(x, x[0] + k) + np.linalg.cholesky(x)[0]


def _on_threads(tx: Any, k: int) -> Case:
    x = np.linspace(0, 1, 300_000 + k, dtype=np.float32)
    function = tx.jit(lambda x: tx.numpy.exp(x * (k % 9)) - k)
    return lambda: function(x), np.exp(x * np.float32(k % 9)) - k


PROGRAMS = (
    _elementwise,
    _product,
    _loop,
    _gradient,
    _eager,
    _sorting,
    _callback,
    _options,
    _donation,
    _matrices,
    _on_threads,
)


def check(tx: Any, found: Any, expected: Any) -> None:
    """The result is right, and nothing is left over."""
    found = np.asarray(found)
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found.astype(np.float64), expected, 2e-4, 2e-5 * scale)
    check_state()


def check_state() -> None:
    """Nothing of a trace or of an option's block is left over."""
    state, config = sys.modules["tinyxla.tracing.core"].state, sys.modules["tinyxla.tracing.config"].config
    assert (state.depth, state.staging, state.source, state.scope, dict(state.axes)) == (0, None, None, "", {})
    assert not vars(config), vars(config)


def check_disk() -> None:
    """No entry of the cache is damaged, and none was left unfinished."""
    cache = sys.modules["tinyxla.cache"]
    assert cache.verify() == []
    assert list(cache.directory().glob("*.part")) == []


class Others:
    """Threads that compile and compute meanwhile; nothing may stop them."""

    def __init__(self, tx: Any, count: int, numbers: Iterator[int]) -> None:
        self.rounds = [0] * count
        self.errors: list[BaseException] = []
        self._end = threading.Event()

        def work(index: int) -> None:
            try:
                while not self._end.is_set():
                    k = next(numbers)
                    function, expected = PROGRAMS[k % len(PROGRAMS)](tx, k)
                    check(tx, function(), expected)
                    self.rounds[index] += 1
            except BaseException as error:
                self.errors.append(error)

        self._threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(count)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs"
        if self.errors:
            raise self.errors[0]


_MAX_INTERRUPTS = 4  # of one computation, until it is left alone


class Campaign:
    """Interrupts programs, one after the other."""

    def __init__(self, tx: Any, arguments: argparse.Namespace) -> None:
        self._tx = tx
        self._random = random.Random(arguments.seed)
        self._arguments = arguments
        self._numbers = itertools.count(arguments.seed * 1000 % 9000)
        self._kept: list[BaseException] = []
        self.interrupts = self.computations = 0
        self.lost: list[str] = []
        sys.unraisablehook = self._note_lost

    def _note_lost(self, report: Any) -> None:
        lines = traceback.format_exception(report.exc_type, report.exc_value, report.exc_traceback)
        self.lost.append(f"{report.err_msg} {report.object!r}\n{''.join(lines)}")

    def run(self) -> None:
        others = Others(self._tx, self._arguments.threads, self._numbers)
        interrupt = self._timed if self._arguments.timed else self._counted(Interrupter())
        try:
            while self.interrupts < self._arguments.rounds:
                k = next(self._numbers)
                function, expected = PROGRAMS[self._random.randrange(len(PROGRAMS))](self._tx, k)
                for _ in range(_MAX_INTERRUPTS):
                    try:
                        found = interrupt(function)
                        break
                    except Interrupted as error:
                        self.interrupts += 1
                        self._keep(error)
                else:
                    found = function()
                check(self._tx, found, expected)
                check(self._tx, function(), expected)
                self.computations += 1
                if self._random.random() < 0.05:
                    self._tx.clear_caches()
        finally:
            others.finish()
        assert self._arguments.threads == 0 or min(others.rounds) > 0, others.rounds

    def _keep(self, error: BaseException) -> None:
        """As a notebook does with the last one; or in a cycle, which the garbage collector meets some time."""
        choice = self._random.randrange(4)
        if choice == 0:
            self._kept.append(error)
        elif choice == 1:
            error.itself = error  # pyright: ignore[reportAttributeAccessIssue]
        elif choice == 2:
            gc.collect()
        if len(self._kept) > 5:
            self._kept.clear()
            gc.collect()

    def _counted(self, interrupter: Interrupter) -> Callable[[Callable[[], Any]], Any]:
        mean = self._arguments.bytecodes

        def interrupt(function: Callable[[], Any]) -> Any:
            bytecodes = 1 + int(self._random.expovariate(1 / mean))
            asynchronous = self._random.random() < 0.3
            try:
                return interrupter.call(function, bytecodes, asynchronous)
            except Lost:
                self.lost.append(f"lost after {bytecodes} bytecodes of {function}")
                return function()

        return interrupt

    def _timed(self, function: Callable[[], Any]) -> Any:
        delay = self._random.uniform(1e-4, self._arguments.seconds)
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            return function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


# Short programs, which are interrupted everywhere.


def _short_programs(tx: Any) -> list[Callable[[], Any]]:
    x = tx.numpy.asarray(np.arange(3, dtype=np.float32))
    memory = sys.modules["tinyxla.backends.numba.runtime.buffer_pool"]
    pool = memory.BufferPool(1 << 20)

    def allocate() -> None:
        held = [pool.allocate(1 << bits)[0] for bits in (12, 15, 18, 18, 18, 18, 12)]
        pool.release()
        held.append(pool.allocate(1 << 12)[0])
        del held
        pool.release()

    def trace() -> Any:
        return tx.jit(lambda x: x * 2 + 1).trace(x)

    return [
        allocate,
        trace,
        lambda: tx.vmap(lambda x: x * tx.lax.psum(x, "i"), axis_name="i")(x),
        lambda: tx.grad(lambda x: (x * x).sum())(x),
        lambda: tx.jvp(lambda x: x * x, (x,), (x,)),
        lambda: tx.eval_shape(lambda x: tx.lax.reduce(x, 0.0, lambda a, b: a + b, (0,)), x),
        lambda: np.concatenate([x, [1.0, 2.0]]),
    ]


def sweep(tx: Any, stride: int) -> None:
    """Interrupt short programs at every bytecode, or every so many; afterwards they run as before."""
    interrupter = Interrupter()
    tx.jit(lambda x: x + 1)(1.0)
    kept: list[BaseException] = []
    interrupts = 0
    for function in _short_programs(tx):
        function()
        function()
        count = interrupter.count(function)
        for bytecodes in range(1, count, stride):
            for asynchronous in (False, True):
                try:
                    interrupter.call(function, bytecodes, asynchronous)
                except Interrupted as error:
                    kept.append(error)
                    interrupts += 1
                check_state()
                function()
            if len(kept) > 100:
                kept.clear()
    print(f"{interrupts} interrupts of short programs")


def run_cold(arguments: argparse.Namespace) -> None:
    """Interrupt the very first computation of processes, which loads the compiler. Each is a fork of this one."""
    import tinyxla as tx

    if arguments.no_threads:
        _forbid_threads()
    generator = random.Random(arguments.seed)
    came = 0
    for _ in range(arguments.rounds):
        bytecodes = int(generator.expovariate(1 / arguments.bytecodes)) + 1
        seed, asynchronous = generator.randrange(1000), generator.random() < 0.3
        child = os.fork()
        if child == 0:
            os._exit(_cold_call(tx, bytecodes, seed, asynchronous))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 3), f"seed {seed}, {bytecodes} bytecodes, asynchronous: {asynchronous}: status {status}"
        came += status == 3
    print(f"{came} interrupts of {arguments.rounds} processes")


def _forbid_threads() -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    sys.modules["tinyxla.runtime.threads"].start_new_thread = refused  # pyright: ignore[reportAttributeAccessIssue]


def _cold_call(tx: Any, bytecodes: int, seed: int, asynchronous: bool) -> int:
    faulthandler.dump_traceback_later(60, exit=True)
    function, expected = PROGRAMS[seed % len(PROGRAMS)](tx, seed)
    came = 0
    try:
        try:
            found = Interrupter().call(function, bytecodes, asynchronous)
        except Interrupted:
            came = 3
            found = function()
        check(tx, found, expected)
        other, expected = _elementwise(tx, seed + 1)
        thread = threading.Thread(target=lambda: check(tx, other(), expected), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "another thread hangs"
    except BaseException:
        traceback.print_exc()
        return 1
    return came


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="interrupts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="other threads that compile meanwhile")
    parser.add_argument("--timed", action="store_true", help="interrupts come from a timer")
    parser.add_argument("--seconds", type=float, default=0.1, help="the longest time before one of these")
    parser.add_argument("--bytecodes", type=float, default=60_000, help="how many there are on average before another")
    parser.add_argument("--sweep", type=int, default=0, help="interrupt short programs at every so many bytecodes")
    parser.add_argument("--cold", action="store_true", help="interrupt the first computation of many processes")
    parser.add_argument("--no-threads", action="store_true", help="no thread can be started")
    arguments = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _raise)
    if arguments.cold:
        run_cold(arguments)
        return
    faulthandler.dump_traceback_later(arguments.rounds * 2 + 60, exit=True)
    import tinyxla as tx

    if arguments.no_threads:
        _forbid_threads()
    if arguments.sweep:
        sweep(tx, arguments.sweep)
        return
    campaign = Campaign(tx, arguments)
    campaign.run()
    check_disk()
    print(f"{campaign.interrupts} interrupts of {campaign.computations} computations")
    for text in campaign.lost:
        print(text)
    if campaign.lost:
        sys.exit(f"{len(campaign.lost)} interrupts were lost")


if __name__ == "__main__":
    main()
