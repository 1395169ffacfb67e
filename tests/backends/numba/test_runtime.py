"""The native run-time: schedules, threads and the pool of buffers."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import ROOT

pytest.importorskip("llvmlite")

import tinyxla as tx
from tinyxla.backends.numba.jit.engine import compile_llvm
from tinyxla.backends.numba.runtime import buffer_pool, bytecode, denormals, parking, thread_pool
from tinyxla.errors import AttributeValueError

pytestmark = pytest.mark.platform

KERNELS = """
; out[first] = last + 1: where the range was cut
define void @cuts(ptr %table, i64 %first, i64 %last) {
  %out = load ptr, ptr %table
  %at = getelementptr i64, ptr %out, i64 %first
  %mark = add i64 %last, 1
  store i64 %mark, ptr %at
  ret void
}

; sums[first] = the sum of x[first:last], in order
define void @partial_sum(ptr %table, i64 %first, i64 %last) {
entry:
  %x = load ptr, ptr %table
  %sums_word = getelementptr i64, ptr %table, i64 1
  %sums = load ptr, ptr %sums_word
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %more, %loop ]
  %at = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %at
  %more = fadd float %sum, %value
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %last
  br i1 %again, label %loop, label %done
done:
  %out = getelementptr float, ptr %sums, i64 %first
  store float %more, ptr %out
  ret void
}

; arrive, then wait for as many to arrive as the constant says: met[first] = 1 if they did. Only threads that run at
; the same time can meet.
define void @meet(ptr %table, i64 %first, i64 %last) {
entry:
  %arrived = load ptr, ptr %table
  %met_word = getelementptr i64, ptr %table, i64 1
  %met = load ptr, ptr %met_word
  %wanted_word = getelementptr i64, ptr %table, i64 2
  %wanted = load i64, ptr %wanted_word
  atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %wait
wait:
  %patience = phi i64 [ 3000000000, %entry ], [ %less, %wait ]
  %count = load atomic i64, ptr %arrived seq_cst, align 8
  %all = icmp sge i64 %count, %wanted
  %less = sub i64 %patience, 1
  %tired = icmp eq i64 %less, 0
  %stop = or i1 %all, %tired
  br i1 %stop, label %done, label %wait
done:
  %out = getelementptr i64, ptr %met, i64 %first
  %result = zext i1 %all to i64
  store i64 %result, ptr %out
  ret void
}

; out[0] = out[0] * 10 + a constant: in which order steps ran
define void @digit(ptr %table, i64 %first, i64 %last) {
  %out = load ptr, ptr %table
  %digit_word = getelementptr i64, ptr %table, i64 1
  %digit = load i64, ptr %digit_word
  %old = load i64, ptr %out
  %shifted = mul i64 %old, 10
  %new = add i64 %shifted, %digit
  store i64 %new, ptr %out
  ret void
}
"""

kernels = compile_llvm(KERNELS, ("cuts", "partial_sum", "meet", "digit"))


def launch(schedule: bytecode.Schedule, words: Sequence[int]) -> list[int]:
    """Run on slots that hold these words; the slots afterwards."""
    steps = schedule.finish()
    slots = (ctypes.c_int64 * max(1, len(words)))(*words)
    bytecode.launch(steps.ctypes.data, ctypes.addressof(slots))
    return list(slots)


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    with tx.num_threads(2):
        yield


def python(text: str) -> str:
    """What a fresh interpreter prints; it must end by itself, well."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


# Schedules.


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("extent", "grain"), [(0, 0), (0, 4), (1, 4), (4, 4), (5, 4), (8, 4), (1001, 10), (7, 0), (6, 1), (70_001, 1)]
)
@pytest.mark.parametrize("in_order", [False, True])
def test_ranges_are_cut_at_multiples_of_the_grain(extent: int, grain: int, threads: int, in_order: bool) -> None:
    out = np.zeros(extent + 1, np.int64)
    schedule = bytecode.Schedule()
    schedule.kernel(kernels["cuts"], [0], extent, grain, in_order=in_order)
    with tx.num_threads(threads):
        launch(schedule, [out.ctypes.data])
    expected = np.zeros(extent + 1, np.int64)
    for first in range(0, extent, grain or extent or 1):
        expected[first] = min(first + (grain or extent), extent) + 1
    np.testing.assert_array_equal(out, expected)


def test_arguments_are_slots_then_constants() -> None:
    out = np.zeros(1, np.int64)
    schedule = bytecode.Schedule()
    for digit in (1, 2, 3):
        schedule.kernel(kernels["digit"], [1], 1, constants=(digit,))
    schedule.kernel(kernels["digit"], [1, 2], 1)
    launch(schedule, [0, out.ctypes.data, 7])
    assert out[0] == 1237


@pytest.mark.parametrize(("address", "extent", "grain"), [(0, 1, 1), (1, -1, 1), (1, 1, -1)])
def test_impossible_steps_are_refused(address: int, extent: int, grain: int) -> None:
    with pytest.raises(ValueError, match="kernel step needs"):
        bytecode.Schedule().kernel(address, [], extent, grain)


def test_a_label_must_be_placed() -> None:
    schedule = bytecode.Schedule()
    schedule.jump(schedule.label())
    with pytest.raises(ValueError, match="never placed"):
        schedule.finish()


def digits(build: Callable[[bytecode.Schedule], None], words: Sequence[int]) -> int:
    out = np.zeros(1, np.int64)
    schedule = bytecode.Schedule()
    build(schedule)
    launch(schedule, [out.ctypes.data, *words])
    return int(out[0])


def digit(schedule: bytecode.Schedule, number: int) -> None:
    schedule.kernel(kernels["digit"], [0], 1, constants=(number,))


def test_jump_skips() -> None:
    def build(schedule: bytecode.Schedule) -> None:
        end = schedule.label()
        digit(schedule, 1)
        schedule.jump(end)
        digit(schedule, 2)
        schedule.place(end)
        digit(schedule, 3)

    assert digits(build, []) == 13


@pytest.mark.parametrize(("pred", "expected"), [(True, 123), (False, 13)])
def test_jump_unless_reads_a_pred(pred: bool, expected: int) -> None:
    value = np.array([pred])

    def build(schedule: bytecode.Schedule) -> None:
        otherwise = schedule.label()
        digit(schedule, 1)
        schedule.jump_unless(1, otherwise)
        digit(schedule, 2)
        schedule.place(otherwise)
        digit(schedule, 3)

    assert digits(build, [value.ctypes.data]) == expected


@pytest.mark.parametrize(("index", "expected"), [(0, 19), (1, 29), (2, 39), (3, 39), (-1, 39), (-(2**31), 39)])
def test_switch_takes_the_last_case_when_out_of_range(index: int, expected: int) -> None:
    value = np.array([index], np.int32)

    def build(schedule: bytecode.Schedule) -> None:
        cases = [schedule.label() for _ in range(3)]
        end = schedule.label()
        schedule.switch(1, cases)
        for number, case in enumerate(cases, 1):
            schedule.place(case)
            digit(schedule, number)
            schedule.jump(end)
        schedule.place(end)
        digit(schedule, 9)

    assert digits(build, [value.ctypes.data]) == expected


def test_a_switch_needs_a_target() -> None:
    with pytest.raises(ValueError, match="at least one target"):
        bytecode.Schedule().switch(0, [])


def test_counted_loop_advances_an_address() -> None:
    out = np.zeros(5, np.int64)
    schedule = bytecode.Schedule()
    again = schedule.label()
    schedule.set(1, 5)
    schedule.place(again)
    schedule.kernel(kernels["digit"], [0, 1], 1)
    schedule.add(0, 8)
    schedule.count(1, again)
    schedule.move(2, 1)
    slots = launch(schedule, [out.ctypes.data, -1, -1])
    np.testing.assert_array_equal(out, [5, 4, 3, 2, 1])
    assert slots == [out.ctypes.data + 40, 0, 0]


# Threads.


def meeting(threads: int) -> bool:
    """Whether `threads` threads run chunks at the same time."""
    arrived = np.zeros(1, np.int64)
    met = np.zeros(threads, np.int64)
    schedule = bytecode.Schedule()
    schedule.kernel(kernels["meet"], [0, 1], threads, 1, constants=(threads,))
    launch(schedule, [arrived.ctypes.data, met.ctypes.data])
    return bool(met.all())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_run_at_the_same_time(threads: int) -> None:
    with tx.num_threads(threads):
        assert meeting(threads)


def partial_sums(x: np.ndarray, grain: int) -> np.ndarray:
    sums = np.zeros_like(x)
    schedule = bytecode.Schedule()
    schedule.kernel(kernels["partial_sum"], [0, 1], len(x), grain)
    launch(schedule, [x.ctypes.data, sums.ctypes.data])
    return sums


def test_numbers_of_threads_give_the_same_bits() -> None:
    x = np.random.default_rng(0).standard_normal(100_003).astype(np.float32)
    results: list[np.ndarray] = []
    for threads in (1, 2, 3):
        with tx.num_threads(threads):
            results.append(partial_sums(x, 1000))
    assert np.count_nonzero(results[0]) == 101
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.int32), results[0].view(np.int32))


def test_several_python_threads_launch_at_once() -> None:
    x = np.random.default_rng(1).standard_normal((4, 20_000)).astype(np.float32)
    expected = [partial_sums(row, 100) for row in x]
    failures: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            if not np.array_equal(partial_sums(x[number], 100), expected[number]):
                failures.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_a_chunk_may_launch() -> None:
    """The pool is taken, so the inner launch runs on the thread of the chunk."""
    out = np.zeros((4, 6), np.int64)
    inner = bytecode.Schedule()
    inner.kernel(kernels["cuts"], [0], 5, 2)
    steps = inner.finish()

    def body(table: int, first: int, last: int) -> None:
        for i in range(first, last):
            slots = (ctypes.c_int64 * 1)(out[i].ctypes.data)
            bytecode.launch(steps.ctypes.data, ctypes.addressof(slots))

    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(body)
    outer = bytecode.Schedule()
    outer.kernel(ctypes.cast(kernel, ctypes.c_void_p).value or 0, [], 4, 1)
    launch(outer, [])
    np.testing.assert_array_equal(out, [[3, 0, 5, 0, 6, 0]] * 4)


def order_of_chunks(chunks: int, threads: int, is_first_slow: bool = False) -> dict[int, list[int]]:
    """The chunks that each thread runs, in order, if all have begun one before any begins its second; the calling
    thread is number 0. `is_first_slow` holds the first chunk of each other thread until all chunks have begun."""
    meet, order, all_begun = threading.Barrier(threads), dict[int, list[int]](), threading.Event()
    caller = threading.get_ident()

    def body(table: int, first: int, last: int) -> None:
        own = order.setdefault(threading.get_ident() - caller, [])
        own.append(first)
        if len(own) == 1:
            meet.wait(20)
        if sum(map(len, list(order.values()))) == chunks:
            all_begun.set()
        if is_first_slow and len(own) == 1 and threading.get_ident() != caller:
            all_begun.wait(20)

    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(body)
    schedule = bytecode.Schedule()
    schedule.kernel(ctypes.cast(kernel, ctypes.c_void_p).value or 0, [], chunks, 1)
    with tx.num_threads(threads):
        launch(schedule, [])
    return order


@pytest.mark.parametrize(("chunks", "threads"), [(8, 2), (9, 2), (10, 3), (3, 3), (200, 2)])
def test_each_thread_begins_at_its_own_range_of_chunks_in_job_after_job(chunks: int, threads: int) -> None:
    first = {thread: taken[0] for thread, taken in order_of_chunks(chunks, threads).items()}
    assert first[0] == 0
    assert sorted(first.values()) == [k * chunks // threads for k in range(threads)]
    again = order_of_chunks(chunks, threads)
    assert {thread: taken[0] for thread, taken in again.items()} == first
    assert sorted(chunk for taken in again.values() for chunk in taken) == list(range(chunks))


def test_chunks_are_stolen_from_the_end_of_a_range() -> None:
    assert order_of_chunks(8, 2, is_first_slow=True)[0] == [0, 1, 2, 3, 7, 6, 5]


@pytest.fixture(params=["parking", "condition"])
def sleepy_pool(request: pytest.FixtureRequest) -> Iterator[thread_pool.ThreadPool]:
    """A pool whose workers sleep as soon as they have nothing to do."""
    pool = thread_pool.ThreadPool(bytecode.runtime().functions, 3)
    if request.param == "condition":
        pool.state[thread_pool.Word.PARK] = 0
    elif not pool.state[thread_pool.Word.PARK]:
        pytest.skip("threads cannot park here")
    yield pool
    pool.close()


# The functions of macOS and Windows by Linux's system call, as their documents describe them.
PARKING_SHIMS = """
@syscall_at = global ptr null

define void @set_syscall(ptr %function) {
  store ptr %function, ptr @syscall_at
  ret void
}

define internal i32 @futex(ptr %word, i64 %operation, i64 %value) {
  %function = load ptr, ptr @syscall_at
  %result = call i64 (i64, ...) %function(i64 FUTEX, ptr %word, i64 %operation, i64 %value, ptr null)
  %short = trunc i64 %result to i32
  ret i32 %short
}

define i32 @os_sync_wait_on_address(ptr %word, i64 %value, i64 %size, i32 %flags) {
  %result = call i32 @futex(ptr %word, i64 128, i64 %value)
  ret i32 %result
}

define i32 @os_sync_wake_by_address_any(ptr %word, i64 %size, i32 %flags) {
  %result = call i32 @futex(ptr %word, i64 129, i64 1)
  ret i32 %result
}

define i32 @os_sync_wake_by_address_all(ptr %word, i64 %size, i32 %flags) {
  %result = call i32 @futex(ptr %word, i64 129, i64 2147483647)
  ret i32 %result
}

define i32 @WaitOnAddress(ptr %word, ptr %compared, i64 %size, i32 %milliseconds) {
  %value = load i32, ptr %compared
  %wide = zext i32 %value to i64
  %result = call i32 @futex(ptr %word, i64 128, i64 %wide)
  ret i32 1
}

define void @WakeByAddressSingle(ptr %word) {
  %result = call i32 @futex(ptr %word, i64 129, i64 1)
  ret void
}

define void @WakeByAddressAll(ptr %word) {
  %result = call i32 @futex(ptr %word, i64 129, i64 2147483647)
  ret void
}
"""
SHIMS_OF = {
    "darwin": ("os_sync_wait_on_address", "os_sync_wake_by_address_any", "os_sync_wake_by_address_all"),
    "win32": ("WaitOnAddress", "WakeByAddressSingle", "WakeByAddressAll"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the shims need futexes")
@pytest.mark.parametrize("system", SHIMS_OF)
def test_workers_park_by_the_functions_of_other_systems(system: str) -> None:
    own = parking.addresses()
    if not own.park:
        pytest.skip("threads cannot park here")
    number = str(parking._FUTEX_NUMBERS[platform.machine()])
    shims = compile_llvm(PARKING_SHIMS.replace("FUTEX", number), ("set_syscall", *SHIMS_OF[system]))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(shims["set_syscall"])(own.park)
    around = "define i64 @no_signal() {\n  ret i64 0\n}\ndeclare i64 @PyThread_get_thread_ident()\n"
    text = denormals.source() + around + thread_pool.source("no_signal", system)
    functions = compile_llvm(text, thread_pool.NAMES)
    pool = thread_pool.ThreadPool(functions, 3)
    words = thread_pool.Word.PARK, thread_pool.Word.UNPARK_ONE, thread_pool.Word.UNPARK_ALL
    for word, name in zip(words, SHIMS_OF[system], strict=True):
        pool.state[word] = shims[name]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(functions["run_split"])

    def meet(threads: int) -> bool:
        arrived, met = np.zeros(1, np.int64), np.zeros(threads, np.int64)
        table = (ctypes.c_int64 * 3)(arrived.ctypes.data, met.ctypes.data, threads)
        run(pool.address, kernels["meet"], ctypes.addressof(table), threads, 1)
        return bool(met.all())

    assert meet(3)
    pool.state[thread_pool.Word.SPIN] = 0
    for threads in (3, 2, 3, 1, 3):
        pool.set_threads(threads)
        for _ in range(50):
            assert meet(threads)
    pool.close()
    assert not any(worker.is_alive() for worker in pool._workers)


def meeting_in(pool: thread_pool.ThreadPool, threads: int) -> bool:
    arrived = np.zeros(1, np.int64)
    met = np.zeros(threads, np.int64)
    schedule = bytecode.Schedule()
    schedule.kernel(kernels["meet"], [0, 1], threads, 1, constants=(threads,))
    steps = schedule.finish()
    slots = (ctypes.c_int64 * 2)(arrived.ctypes.data, met.ctypes.data)
    bytecode.runtime().run(steps.ctypes.data, ctypes.addressof(slots), pool.address)
    return bool(met.all())


@pytest.mark.sample(every=2)
def test_sleeping_workers_are_woken(sleepy_pool: thread_pool.ThreadPool) -> None:
    assert meeting_in(sleepy_pool, 3)
    sleepy_pool.state[thread_pool.Word.SPIN] = 0
    for _ in range(300):
        assert meeting_in(sleepy_pool, 3)


def test_fewer_and_more_threads(sleepy_pool: thread_pool.ThreadPool) -> None:
    assert meeting_in(sleepy_pool, 3)
    sleepy_pool.state[thread_pool.Word.SPIN] = 0
    for threads in (1, 2, 4, 2, 3, 1, 4):
        sleepy_pool.set_threads(threads)
        assert meeting_in(sleepy_pool, threads)


def test_a_closed_pool_runs_on_the_caller(sleepy_pool: thread_pool.ThreadPool) -> None:
    assert meeting_in(sleepy_pool, 2)
    workers = [thread for thread in threading.enumerate() if thread in sleepy_pool._workers]
    assert len(workers) == 2
    sleepy_pool.close()
    assert not any(worker.is_alive() for worker in workers)
    assert meeting_in(sleepy_pool, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_its_own_threads() -> None:
    output = python("""
        import os, warnings
        warnings.simplefilter("ignore")
        from tests.backends.numba.test_runtime import meeting, tx
        with tx.num_threads(2):
            assert meeting(2)
            child = os.fork()
            assert meeting(2)
            if child == 0:
                print("child", flush=True)
            else:
                print("parent", os.waitpid(child, 0)[1])
        """)
    assert output == "child\nparent 0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks_while_another_thread_computes() -> None:
    output = python("""
        import os, threading, warnings
        warnings.simplefilter("ignore")
        import numpy as np
        from tests.backends.numba.test_blas_gemm import multiply, random
        from tests.backends.numba.test_runtime import meeting, partial_sums, tx
        tx.set_num_threads(2)
        x = np.ones(100_000, np.float32)
        a = random((1, 300, 300), "f32", 0)
        expected = multiply("f32", a, a)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                partial_sums(x, 100)
                multiply("f32", a, a)
        worker = threading.Thread(target=work)
        worker.start()
        codes = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if meeting(2) and np.array_equal(multiply("f32", a, a), expected) else 1)
            codes.append(os.waitpid(child, 0)[1])
        stop.set()
        worker.join()
        print(codes)
        """)
    assert output == f"{[0] * 10}\n"


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("spin", ["", "bytecode.runtime().pool.state[1] = 0; time.sleep(0.05)", "time.sleep(0.05)"])
def test_the_interpreter_exits_with_idle_workers(spin: str) -> None:
    output = python(f"""
        import time
        from tests.backends.numba.test_runtime import bytecode, meeting, tx
        tx.set_num_threads(3)
        print(meeting(3))
        {spin}
        """)
    assert output == "True\n"


def test_the_interpreter_exits_while_daemon_threads_launch() -> None:
    output = python("""
        import threading, time
        import numpy as np
        from tests.backends.numba.test_runtime import meeting, partial_sums, tx
        tx.set_num_threads(2)
        x = np.ones(100_000, np.float32)
        def work():
            while True:
                partial_sums(x, 100)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.1)
        print("end")
        """)
    assert output == "end\n"


# Buffers.


@pytest.fixture
def pool() -> buffer_pool.BufferPool:
    return buffer_pool.BufferPool(1 << 26)


def view(owner: buffer_pool.Owner, *shape: int) -> np.ndarray:
    return np.ndarray(shape, np.float32, owner)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000, 4096, 100_000, 1 << 20, (1 << 20) + 1, 5_000_001])
def test_buffers_are_aligned_writable_and_large_enough(pool: buffer_pool.BufferPool, nbytes: int) -> None:
    owner, address = pool.allocate(nbytes)
    assert address % 64 == 0
    assert address == owner.ctypes.data
    assert nbytes <= owner.nbytes <= max(nbytes + 64, nbytes * 5 // 4)
    owner[:] = 1


def test_a_dropped_buffer_is_used_again(pool: buffer_pool.BufferPool) -> None:
    first = pool.allocate(1000)
    address = first[1]
    second = pool.allocate(1000)
    assert second[1] != address
    del first
    third = pool.allocate(1001)
    assert third[1] == address
    assert pool.allocate(1000)[1] not in (second[1], address)


HOLDERS: dict[str, Callable[[np.ndarray], object]] = {
    "array": lambda x: x,
    "row": lambda x: x[1],
    "view of views": lambda x: x[1:].T.reshape(3, 1, 1)[::2].view(np.int32),
    "asarray": np.asarray,
    "memoryview": memoryview,
    "part of a memoryview": lambda x: memoryview(x)[1:],
    "dlpack": np.from_dlpack,
    "capsule": lambda x: x.__dlpack__(),
    "interface": lambda x: np.asarray(SimpleNamespace(__array_interface__=x.__array_interface__, array=x)),
    "iterator": iter,
    "ctypes": lambda x: ctypes.c_float.from_buffer(x),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_whatever_refers_to_a_buffer_keeps_it(pool: buffer_pool.BufferPool, name: str) -> None:
    owner, address = pool.allocate(24)
    holder: object = HOLDERS[name](view(owner, 2, 3))
    del owner
    assert pool.free_bytes() == 0
    assert pool.allocate(24)[1] != address
    del holder
    addresses = [pool.allocate(24), pool.allocate(24)]
    assert address in [found for _, found in addresses]


def test_a_cycle_holds_its_buffer_until_it_is_collected(pool: buffer_pool.BufferPool) -> None:
    owner, address = pool.allocate(100)
    cycle: list[object] = [view(owner, 5)]
    cycle.append(cycle)
    del owner, cycle
    held = pool.allocate(100)
    assert held[1] != address
    gc.collect()
    assert pool.allocate(100)[1] == address


def test_no_buffer_is_given_out_twice(pool: buffer_pool.BufferPool) -> None:
    """Many live arrays, dropped in an arbitrary order: each keeps what was written to it."""
    generator = np.random.default_rng(6)
    live: dict[int, np.ndarray] = {}
    for step in range(5000):
        owner, _ = pool.allocate(256)
        live[step] = np.ndarray(32, np.int64, owner)
        live[step][:] = step
        del owner
        while len(live) > 300 or (live and generator.random() < 0.4):
            number = list(live)[generator.integers(len(live))]
            assert (live.pop(number) == number).all()
    assert all((array == number).all() for number, array in live.items())


def test_a_temporary_among_many_live_buffers_is_found_at_once(pool: buffer_pool.BufferPool) -> None:
    live = [pool.allocate(512) for _ in range(200)]
    address = pool.allocate(512)[1]
    assert all(pool.allocate(512)[1] == address for _ in range(10))
    assert len({found for _, found in live}) == 200


def test_all_dropped_buffers_are_found(pool: buffer_pool.BufferPool) -> None:
    live = [pool.allocate(512) for _ in range(100)]
    addresses = {address for _, address in live}
    del live
    again = [pool.allocate(512) for _ in range(100)]
    assert {address for _, address in again} == addresses


def test_the_pool_never_refers_to_more_than_its_limit() -> None:
    pool = buffer_pool.BufferPool(1 << 20)
    live: list[buffer_pool.Owner] = []
    for nbytes in [100_000] * 30 + [50_000] * 30 + [2_000_000, 300]:
        live.append(pool.allocate(nbytes)[0])
        live[-1][:] = len(live) % 256
        assert sum(owner.nbytes for ring in pool._rings.values() for owner, _ in ring.entries) == pool._bytes <= 1 << 20
    assert all((owner == number % 256).all() for number, owner in enumerate(live, 1))
    assert pool._bytes > 0
    del live
    assert pool.free_bytes() == pool._bytes


def test_a_pool_without_memory_gives_out_fresh_buffers() -> None:
    pool = buffer_pool.BufferPool(0)
    assert pool.allocate(100)[0].nbytes >= 100
    assert pool.free_bytes() == 0


def test_free_buffers_are_dropped_when_others_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_MIN_FREE_BYTES", 1 << 20)
    pool = buffer_pool.BufferPool(1 << 30)
    live = [pool.allocate(1 << 18) for _ in range(40)]
    live = [pool.allocate(1 << 18) for _ in range(40)]
    del live
    assert pool.free_bytes() == 80 << 18  # old and new ones lived at the same time
    live = [pool.allocate(1000 + 64 * i) for i in range(10_000)]
    assert pool.free_bytes() <= max(1 << 20, sum(owner.nbytes for owner, _ in live))


def test_release_gives_back_what_is_free(pool: buffer_pool.BufferPool) -> None:
    kept = pool.allocate(1000)
    del (lambda: [pool.allocate(size) for size in (1000, 2000, 3000)])()[:]
    assert pool.free_bytes() > 0
    pool.release()
    assert pool.free_bytes() == 0
    assert pool._bytes == kept[0].nbytes
    assert pool.allocate(1000)[1] != kept[1]


def test_threads_share_the_pool(pool: buffer_pool.BufferPool) -> None:
    failures: list[int] = []

    def work(number: int) -> None:
        for _ in range(2000):
            owners = [pool.allocate(128)[0] for _ in range(3)]
            for owner in owners:
                owner[:] = number
            if any((owner != number).any() for owner in owners):
                failures.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_the_limit_of_the_pool() -> None:
    assert buffer_pool.default_limit({"TINYXLA_POOL_BYTES": "123"}) == 123
    assert buffer_pool.default_limit({}) > 1 << 20
    with pytest.raises(AttributeValueError, match=r"TINYXLA_POOL_BYTES must be a number of bytes.*but is '1GB'"):
        buffer_pool.default_limit({"TINYXLA_POOL_BYTES": "1GB"})


def test_results_of_programs_that_nobody_looks_at_are_overwritten_where_they_are_donated() -> None:
    x = tx.numpy.arange(100000.0) * 2
    place = x._value.__array_interface__["data"][0]
    written = tx.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert written._value.__array_interface__["data"][0] == place
    seen = np.asarray(written)
    tx.jit(lambda x: x + 1, donate_argnums=0)(written)
    np.testing.assert_array_equal(seen[:3], [1, 3, 5])  # what others look at stays


def test_where_counts_of_references_are_not_exact_no_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Python without its global lock."""
    (alone,) = buffer_pool.with_own_memory(given := [np.ones(3)], [0])
    assert alone is given[0]
    monkeypatch.setattr(buffer_pool, "_COUNTS_ARE_EXACT", False)
    (copied,) = buffer_pool.with_own_memory(given, [0])
    assert copied is not given[0]
    np.testing.assert_array_equal(copied, np.ones(3))
    assert buffer_pool.default_limit({"TINYXLA_POOL_BYTES": "123"}) == buffer_pool.default_limit({}) == 0
    pool = buffer_pool.BufferPool(0)
    pool.allocate(100)
    assert pool._rings == {}  # it refers to no memory that it gave out


def test_a_call_finds_the_data_of_its_arrays() -> None:
    schedule = bytecode.Schedule()
    schedule.kernel(kernels["digit"], [0, 2], 1)
    schedule.kernel(kernels["digit"], [1, 3], 1)
    steps = schedule.finish()
    filled = bytecode.template(steps.ctypes.data, 2, [0, 0, 4, 7])
    first, second = np.array([1, 2], np.int64)[1:], np.array(3, np.int64)
    for _ in range(2):  # the template stays as it is
        bytecode.runtime().call(filled, [first, second])
    assert (int(first[0]), int(second)) == (244, 377)
