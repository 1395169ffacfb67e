"""Thread pool: worker threads that run the chunks of one kernel. Native code, its shared state, and the Python object
that owns both.

Workers are Python threads that enter the native `work` function once and stay there with the GIL released. A parallel
region publishes a *job* (kernel, table, extent, grain) by storing one 64-bit *ticket*: the job's generation in the
high half, in the low half how many chunks nobody took yet. Whoever lowers that number by compare-and-swap owns a chunk,
and while it does the job cannot end, so its fields can be read; a late worker that finds zero has nothing to do and
nothing to acknowledge. That is why a region never waits for a thread that still sleeps.

Which chunk it owns is decided by affinity scheduling with work stealing: each thread has a contiguous range of the
chunks, from whose beginning it takes them, and then steals from the end of the range before its own, and so on
downwards and around. So the same parts of arrays come to the same thread in job after job: they are in its cache, and
in the memory of its NUMA node, since a page belongs to the node whose thread writes it first. A bit per chunk says that
it is taken. Where one chunk may `wait` for what an earlier one will `announce`, the range of each thread is the whole,
so chunks are begun in order.

Source: E. P. Markatos and T. J. LeBlanc, Using processor affinity in loop scheduling on shared-memory multiprocessors
(1994).

Idle workers spin until the next call of a program should have come, then park (`parking`). The publisher stores the
ticket and then reads the number of sleepers; a worker counts itself as a sleeper and then reads the ticket; both with
sequentially consistent order, so one of them sees the other (Dekker's argument) and no wake-up is lost.

One job runs at a time. A caller that finds the pool taken (another Python thread, or a kernel that launches from inside
a chunk) runs its chunks itself: chunks are cut at multiples of the grain whoever runs them, so results are the same.

After `fork` the child has the memory but not the threads: its state is reset and the next region starts new ones.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from string import Template

from tinyxla.backends.numba.runtime import parking
from tinyxla.compiler.costs import LINE_BYTES, SPIN_NANOSECONDS
from tinyxla.runtime.threads import MAX_THREADS

_PAIR = LINE_BYTES // 4  # words on two cache lines: processors fetch lines in pairs


class Word(IntEnum):
    """The state block, an array of 64-bit words. What different threads write is on different pairs of cache lines."""

    HELPERS = 0  # workers that take part, one less than the number of threads; -1 tells all workers to return
    SPIN = 1  # how many pauses an idle worker spins before it sleeps
    STARTER = 2  # address of the Python function that starts missing workers, 0 when none are missing
    WAKER = 3  # address of the Python function that wakes workers where they cannot park
    PARK = 4  # address of the system's function that parks a thread, 0 where there is none
    UNPARK_ONE = 5
    UNPARK_ALL = 6
    PROCESSOR = 7  # address of libc's `sched_getcpu`, 0 where there is none
    MOVE = 8  # address of libc's `sched_setaffinity`
    ALLOWED = 9  # address of the set of processors that workers may run on
    LOCK = 1 * _PAIR  # 1 while a job runs
    TICKET = 2 * _PAIR  # generation << 32 | chunks not yet taken
    PENDING = 3 * _PAIR  # chunks not yet finished
    SLEEPING = 4 * _PAIR  # workers that sleep, or are about to
    KERNEL = 5 * _PAIR  # the job, valid for whoever holds one of its chunks
    TABLE = 5 * _PAIR + 1
    EXTENT = 5 * _PAIR + 2
    GRAIN = 5 * _PAIR + 3
    CHUNKS = 5 * _PAIR + 4
    RANGES = 5 * _PAIR + 5  # of chunks: one for each thread, or 1 where chunks wait for earlier ones
    WAKERS_PROCESSOR = 5 * _PAIR + 6  # on which the thread ran that woke workers last
    TAKEN = 6 * _PAIR  # a bit for each chunk


_MAX_CHUNKS = (1 << 16) - 1  # of a job; more run on the caller
_WORDS = Word.TAKEN + (_MAX_CHUNKS + 63) // 64

# What `work` returns, and takes back as `slept`.
_STOPPED, _ASLEEP, _BENCHED = range(3)

_worker_numbers = itertools.count()  # of all pools: each has a place in the table of identities
_MAX_PROCESSORS = 1024
_PAUSES = {
    "x86_64": "void @llvm.x86.sse2.pause()",
    "AMD64": "void @llvm.x86.sse2.pause()",
    "aarch64": "void @llvm.aarch64.hint(i32 1)",
    "arm64": "void @llvm.aarch64.hint(i32 1)",
}

NAMES = ("run_split", "work", "set_helpers", "spin", "wait", "announce", "workers")

_SOURCE = """
@workers = global [$MAX_WORKERS x i64] zeroinitializer  ; identities of the threads that work, of all pools
@owner = internal global i64 0  ; identity of the thread whose job runs, 0 if there is none

; Whether a thread is a worker, and runs chunks of another thread's job.
define internal i1 @works_for(i64 %thread, i64 %owner) noinline {
entry:
  br i1 (icmp eq i64 (load atomic i64, ptr @owner monotonic, align 8), %owner), label %look, label %no
look:
  %number = phi i64 [ 0, %entry ], [ %next, %other ]
  %place = getelementptr i64, ptr @workers, i64 %number
  %worker = load atomic i64, ptr %place monotonic, align 8
  br i1 (icmp eq i64 %worker, %thread), label %yes, label %other
other:
  %next = add i64 %number, 1
  br i1 (icmp slt i64 %next, $MAX_WORKERS), label %look, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

$declare_pause

define internal void @pause() alwaysinline {
  $call_pause
  ret void
}

define void @spin(i64 %count) {  ; only to measure how long a pause is
entry:
  br label %loop
loop:
  %left = phi i64 [ %count, %entry ], [ %fewer, %loop ]
  call void @pause()
  %fewer = sub i64 %left, 1
  br i1 (icmp sgt i64 %fewer, 0), label %loop, label %done
done:
  ret void
}

; Wait until a word is 0, or no more: for so many pauses, and then as long as others want to run, while signals are
; handled.
define internal void @wait_until(ptr %word, i1 %is_zero, i64 %pauses) {
entry:
  br label %look
look:
  %left = phi i64 [ %pauses, %entry ], [ %fewer, %relax ], [ 0, %yield ]
  %value = load atomic i64, ptr %word acquire, align 8
  br i1 (icmp eq i1 (icmp eq i64 %value, 0), %is_zero), label %done, label %unready
unready:
  br i1 (icmp sle i64 %left, 0), label %yield, label %relax
relax:
  call void @pause()
  %fewer = sub i64 %left, 1
  br label %look
yield:
  call i32 @tinyxla_yield()
  call i64 @$POLL()
  br label %look
done:
  ret void
}

; Wait until a word is not 0. The chunk that makes it so must come before that which waits: chunks are taken in order.
define void @wait(ptr %word, ptr %made) {
  call void @wait_until(ptr %word, i1 false, i64 $PAUSES)
  ret void
}

define void @announce(ptr %word, ptr %made) {
  store atomic i64 1, ptr %word release, align 8
  ret void
}

declare i32 @tinyxla_yield()

define internal void @wake(ptr %pool, i64 %count) noinline {
  br i1 (icmp ne i64 (load i64, ptr %pool[$PARK]), 0), label %native, label %portable
native:
  %own = call i64 @processor(ptr %pool)
  store atomic i64 %own, ptr %pool[$WAKERS_PROCESSOR] monotonic, align 8
  call void @unpark(ptr %pool, ptr %pool[i8 $GENERATION_BYTE], i64 %count)
  ret void
portable:
  call void @call_python(ptr (load ptr, ptr %pool[$WAKER]))
  ret void
}

; Call a Python function without arguments. An exception, which may be that of a signal's handler, is left to whoever
; runs the schedule; and where there is one already, Python cannot be called.
define internal void @call_python(ptr %callable) noinline {
entry:
  %state = call i32 @PyGILState_Ensure()
  %error = call ptr @PyErr_Occurred()
  br i1 (icmp eq ptr %error, null), label %call, label %done
call:
  %given = call ptr @PyObject_CallObject(ptr %callable, ptr null)
  br i1 (icmp eq ptr %given, null), label %done, label %release
release:
  call void @Py_DecRef(ptr %given)
  br label %done
done:
  call void @PyGILState_Release(i32 %state)
  ret void
}

declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyErr_Occurred()
declare ptr @PyObject_CallObject(ptr, ptr)
declare void @Py_DecRef(ptr)

; The processor that this thread runs on; -1 where nobody can say.
define internal i64 @processor(ptr %pool) {
entry:
  %function = load ptr, ptr %pool[$PROCESSOR]
  br i1 (icmp ne ptr %function, null), label %ask, label %unknown
ask:
  %short = call i32 %function()
  ret i64 (sext i32 %short to i64)
unknown:
  ret i64 -1
}

; Leave the processor of whoever woke this worker to it: the system wakes a thread where its waker runs, and may leave
; both there for many milliseconds.
define internal void @part(ptr %pool) noinline {
entry:
  %own = call i64 @processor(ptr %pool)
  %wakers = load atomic i64, ptr %pool[$WAKERS_PROCESSOR] monotonic, align 8
  br i1 (and i1 (icmp eq i64 %own, %wakers), (icmp ult i64 %own, $MAX_PROCESSORS)), label %move, label %done
move:
  %others = alloca i8, i64 $SET_BYTES, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %others, ptr (load ptr, ptr %pool[$ALLOWED]), i64 $SET_BYTES, i1 false)
  %word_at = getelementptr i64, ptr %others, i64 (lshr i64 %own, 6)
  %gone = xor i64 (shl i64 1, (and i64 %own, 63)), -1
  store i64 (and i64 (load i64, ptr %word_at), %gone), ptr %word_at
  %set_affinity = load ptr, ptr %pool[$MOVE]
  call i32 %set_affinity(i32 0, i64 $SET_BYTES, ptr %others)  ; refuses an empty set, which is as well
  br label %done
done:
  ret void
}

; Change the number of workers that take part; whoever sleeps looks at it again.
define void @set_helpers(ptr %pool, i64 %helpers) {
  store atomic i64 %helpers, ptr %pool[$HELPERS] seq_cst, align 8
  atomicrmw add ptr %pool[$TICKET], i64 $ONE_GENERATION seq_cst  ; a worker on its way to sleep finds a changed word
  br i1 (icmp ne i64 (load i64, ptr %pool[$PARK]), 0), label %native, label %done
native:
  call void @wake(ptr %pool, i64 $EVERYBODY)
  %helpers_at = getelementptr i64, ptr %pool, i64 $HELPERS
  call void @unpark(ptr %pool, ptr %helpers_at[i8 $LOW_BYTE], i64 $EVERYBODY)
  br label %done
done:
  ret void
}

; Own a chunk that nobody owns: there is one. Candidates are the thread's range from its beginning, then what is before
; it from the end, then what is after it from the end. Those before number `candidate` are taken. Returns the next
; candidate's number and the chunk.
define internal { i64, i64 } @own_chunk(ptr %pool, i64 %thread, i64 %candidate) alwaysinline {
entry:
  %chunks = load i64, ptr %pool[$CHUNKS]
  %ranges = load i64, ptr %pool[$RANGES]
  %range = urem i64 %thread, %ranges
  %first = udiv i64 (mul i64 %range, %chunks), %ranges
  %last = udiv i64 (mul i64 (add i64 %range, 1), %chunks), %ranges
  %size = sub i64 %last, %first
  br label %try
try:
  %number = phi i64 [ %candidate, %entry ], [ %next, %try ]
  %next = add i64 %number, 1
  %beyond = sub i64 (add i64 %first, %size), %next  ; first - 1 - (number - size)
  %wrapped = select i1 (icmp slt i64 %beyond, 0), i64 (add i64 %beyond, %chunks), i64 %beyond
  %chunk = select i1 (icmp slt i64 %number, %size), i64 (add i64 %first, %number), i64 %wrapped
  %word_at = getelementptr i64, ptr %pool[$TAKEN], i64 (lshr i64 %chunk, 6)
  %bit = shl i64 1, (and i64 %chunk, 63)
  %before = atomicrmw or ptr %word_at, i64 %bit monotonic
  br i1 (icmp eq i64 (and i64 %before, %bit), 0), label %own, label %try
own:
  %numbered = insertvalue { i64, i64 } undef, i64 %next, 0
  %owned = insertvalue { i64, i64 } %numbered, i64 %chunk, 1
  ret { i64, i64 } %owned
}

; Take and run chunks of the current job, as thread number `thread`, until none is left.
define internal void @take_chunks(ptr %pool, i64 %thread) {
entry:
  br label %look
look:
  %candidate = phi i64 [ 0, %entry ], [ %candidate, %take ], [ %next_candidate, %execute ]
  %job = phi i64 [ -1, %entry ], [ %job, %take ], [ %own_job, %execute ]
  %ticket = load atomic i64, ptr %pool[$TICKET] acquire, align 8
  br i1 (icmp eq i64 (and i64 %ticket, $UNTAKEN), 0), label %done, label %take
take:
  %exchange = cmpxchg ptr %pool[$TICKET], i64 %ticket, i64 (sub i64 %ticket, 1) acq_rel acquire
  %taken = extractvalue { i64, i1 } %exchange, 1
  br i1 %taken, label %execute, label %look
execute:
  %own_job = and i64 %ticket, $GENERATION
  %start = select i1 (icmp eq i64 %own_job, %job), i64 %candidate, i64 0
  %owned = call { i64, i64 } @own_chunk(ptr %pool, i64 %thread, i64 %start)
  %next_candidate = extractvalue { i64, i64 } %owned, 0
  %chunk = extractvalue { i64, i64 } %owned, 1
  %kernel = load ptr, ptr %pool[$KERNEL]
  %table = load ptr, ptr %pool[$TABLE]
  %grain = load i64, ptr %pool[$GRAIN]
  %first = mul i64 %chunk, %grain
  %size = call i64 @llvm.smin.i64(i64 (sub i64 (load i64, ptr %pool[$EXTENT]), %first), i64 %grain)
  call void %kernel(ptr %table, i64 %first, i64 (add i64 %first, %size))
  atomicrmw sub ptr %pool[$PENDING], i64 1 release
  br label %look
done:
  ret void
}

; The life of worker number `index`: returns $STOPPED when the pool closes and, without parking, $ASLEEP or $BENCHED
; when it should wait and come back with that number.
define i64 @work(ptr %pool, i64 %index, i64 %slept) {
entry:
  call i64 @flush_subnormals()
  %helpers_at = getelementptr i64, ptr %pool, i64 $HELPERS
  %can_park = icmp ne i64 (load i64, ptr %pool[$PARK]), 0
  br i1 (icmp eq i64 %slept, $ASLEEP), label %awake, label %top
awake:
  atomicrmw sub ptr %pool[$SLEEPING], i64 1 seq_cst
  br label %top
top:
  %helpers = load atomic i64, ptr %helpers_at seq_cst, align 8
  br i1 (icmp slt i64 %helpers, 0), label %stopped, label %open
open:
  br i1 (icmp slt i64 %index, %helpers), label %serve, label %bench
serve:
  call void @take_chunks(ptr %pool, i64 (add i64 %index, 1))
  %pauses = load i64, ptr %pool[$SPIN]
  br label %spin
spin:
  %left = phi i64 [ %pauses, %serve ], [ %fewer, %rest ]
  %ticket = load atomic i64, ptr %pool[$TICKET] acquire, align 8
  br i1 (icmp ne i64 (and i64 %ticket, $UNTAKEN), 0), label %top, label %idle
idle:
  br i1 (icmp sle i64 %left, 0), label %sleep, label %rest
rest:
  call void @pause()
  %fewer = sub i64 %left, 1
  br label %spin
sleep:
  atomicrmw add ptr %pool[$SLEEPING], i64 1 seq_cst
  %ticket_now = load atomic i64, ptr %pool[$TICKET] seq_cst, align 8
  %helpers_now = load atomic i64, ptr %helpers_at seq_cst, align 8
  %stay = or i1 (icmp ne i64 (and i64 %ticket_now, $UNTAKEN), 0), (icmp ne i64 %helpers_now, %helpers)
  br i1 %stay, label %awake, label %rest_long
rest_long:
  br i1 %can_park, label %native_sleep, label %leave
native_sleep:
  call void @park(ptr %pool, ptr %pool[i8 $GENERATION_BYTE], i64 (lshr i64 %ticket_now, 32))
  call void @part(ptr %pool)
  br label %awake
leave:
  ret i64 $ASLEEP
bench:
  br i1 %can_park, label %native_bench, label %leave_bench
native_bench:
  call void @park(ptr %pool, ptr %helpers_at[i8 $LOW_BYTE], i64 %helpers)
  br label %top
leave_bench:
  ret i64 $BENCHED
stopped:
  ret i64 $STOPPED
}

; Run a kernel over [0, extent) in chunks cut at multiples of the grain, on this thread and the pool's; where the grain
; is negative, chunks are begun in order.
define void @run_split(ptr %pool, ptr %kernel, ptr %table, i64 %extent, i64 %signed) {
entry:
  %grain = call i64 @llvm.abs.i64(i64 %signed, i1 true)
  %chunks = add i64 (udiv i64 (sub i64 %extent, 1), %grain), 1
  %helpers = load atomic i64, ptr %pool[$HELPERS] monotonic, align 8
  br i1 (and i1 (icmp ule i64 %chunks, $UNTAKEN), (icmp sgt i64 %helpers, 0)), label %prepare, label %alone
prepare:
  %starter = load atomic ptr, ptr %pool[$STARTER] acquire, align 8
  br i1 (icmp eq ptr %starter, null), label %acquire, label %start
start:
  call void @call_python(ptr %starter)
  br label %acquire
acquire:
  %exchange = cmpxchg ptr %pool[$LOCK], i64 0, i64 1 acquire monotonic
  %acquired = extractvalue { i64, i1 } %exchange, 1
  br i1 %acquired, label %publish, label %alone
publish:
  %identity = call i64 @PyThread_get_thread_ident()
  store atomic i64 %identity, ptr @owner monotonic, align 8
  store ptr %kernel, ptr %pool[$KERNEL]
  store ptr %table, ptr %pool[$TABLE]
  store i64 %extent, ptr %pool[$EXTENT]
  store i64 %grain, ptr %pool[$GRAIN]
  store i64 %chunks, ptr %pool[$CHUNKS]
  store i64 (select i1 (icmp slt i64 %signed, 0), i64 1, i64 (add i64 %helpers, 1)), ptr %pool[$RANGES]
  call void @llvm.memset.p0.i64(ptr %pool[$TAKEN], i8 0, i64 (mul i64 (add i64 (lshr i64 %chunks, 6), 1), 8), i1 false)
  store atomic i64 %chunks, ptr %pool[$PENDING] monotonic, align 8
  %old_ticket = load atomic i64, ptr %pool[$TICKET] monotonic, align 8
  %ticket = or i64 (add i64 (and i64 %old_ticket, $GENERATION), $ONE_GENERATION), %chunks
  store atomic i64 %ticket, ptr %pool[$TICKET] seq_cst, align 8
  %sleeping = load atomic i64, ptr %pool[$SLEEPING] seq_cst, align 8
  br i1 (icmp sle i64 %sleeping, 0), label %take_part, label %rouse
rouse:
  %count = call i64 @llvm.smin.i64(i64 %sleeping, i64 (sub i64 %chunks, 1))
  call void @wake(ptr %pool, i64 %count)
  br label %take_part
take_part:
  call void @take_chunks(ptr %pool, i64 0)
  call void @wait_until(ptr %pool[$PENDING], i1 true, i64 (load i64, ptr %pool[$SPIN]))
  store atomic i64 0, ptr @owner monotonic, align 8
  store atomic i64 0, ptr %pool[$LOCK] release, align 8
  ret void
alone:
  br label %chunk
chunk:
  %first = phi i64 [ 0, %alone ], [ %last, %chunk ]
  %size = call i64 @llvm.smin.i64(i64 (sub i64 %extent, %first), i64 %grain)
  %last = add i64 %first, %size
  call void %kernel(ptr %table, i64 %first, i64 %last)
  br i1 (icmp slt i64 %last, %extent), label %chunk, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.abs.i64(i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def source(poll: str, system: str = sys.platform) -> str:
    """The LLVM text of the functions `NAMES` for this machine; `poll` is called while one waits."""
    little = sys.byteorder == "little"
    pause = _PAUSES.get(platform.machine())
    signature = pause.replace("i32 1", "i32") if pause else ""
    return Template(parking.source(system) + _SOURCE).substitute(
        {word.name: int(word) for word in Word},
        declare_pause=f"declare {signature}" if pause else "",
        call_pause=f"call {pause}" if pause else "",
        STOPPED=_STOPPED,
        ASLEEP=_ASLEEP,
        BENCHED=_BENCHED,
        UNTAKEN=_MAX_CHUNKS,
        GENERATION=-(1 << 32),
        ONE_GENERATION=1 << 32,
        GENERATION_BYTE=8 * Word.TICKET + (4 if little else 0),
        LOW_BYTE=0 if little else 4,
        PAUSES=1000,
        EVERYBODY=0x7FFF_FFFF,
        MAX_PROCESSORS=_MAX_PROCESSORS,
        MAX_WORKERS=MAX_THREADS,
        POLL=poll,
        SET_BYTES=_MAX_PROCESSORS // 8,
    )


class ThreadPool:
    """The state block, the worker threads and the number of threads that take part, the caller's included.

    `functions` holds the addresses of the compiled `NAMES`. No thread is started before the first region that is split.
    """

    def __init__(self, functions: Mapping[str, int], threads: int) -> None:
        self._work = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            functions["work"]
        )
        self._set_helpers = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(functions["set_helpers"])
        self._spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(functions["spin"])
        self._identities = (ctypes.c_int64 * MAX_THREADS).from_address(functions["workers"])
        self._callbacks = (self._start_missing_workers, self._wake_workers)  # which native code calls
        self._memory = (ctypes.c_int64 * (_WORDS + _PAIR))()
        address = ctypes.addressof(self._memory)
        self.address = -(-address // (8 * _PAIR)) * (8 * _PAIR)
        self.state = (ctypes.c_int64 * _WORDS).from_address(self.address)
        self._starter = id(self._callbacks[0])
        self.state[Word.WAKER] = id(self._callbacks[1])
        self.state[Word.PARK], self.state[Word.UNPARK_ONE], self.state[Word.UNPARK_ALL] = parking.addresses()
        self._allowed = (ctypes.c_int64 * (_MAX_PROCESSORS // 64))()
        self.state[Word.ALLOWED] = ctypes.addressof(self._allowed)
        self.state[Word.PROCESSOR], self.state[Word.MOVE] = _placement()
        self._forget_workers()
        self.set_threads(threads)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_inherited_workers)
        atexit.register(self.close)

    @property
    def threads(self) -> int:
        return self._threads

    def set_threads(self, threads: int) -> None:
        """Let `threads` threads, the caller's included, run the chunks of regions that begin from now on."""
        if threads < 1:
            raise ValueError(f"the number of threads is {threads}; it must be at least 1, the calling thread")
        with self._lock:
            self._threads = threads
            if not self._closed:
                if threads - 1 > len(self._workers):
                    self.state[Word.STARTER] = self._starter
                self._change_helpers(threads - 1)

    def close(self) -> None:
        """End the workers; regions run on their caller's thread from now on.

        Called when the interpreter exits: native code that a thread still ran then would be unmapped under it.
        """
        with self._lock:
            self._closed = True
            self.state[Word.STARTER] = 0
            self._change_helpers(-1)
            workers = tuple(self._workers)
        for worker in workers:
            worker.join(timeout=1.0)

    def _change_helpers(self, helpers: int) -> None:
        with self._idle_lock:
            self._set_helpers(self.address, helpers)
            self._idle.notify_all()

    def _forget_workers(self) -> None:
        """No worker exists: at first, and in the child of a fork, whose locks may have been copied while held."""
        self._lock = threading.RLock()  # a signal handler may come back in
        self._idle_lock = threading.RLock()  # taken itself: an interrupt may come while `_idle` takes it, in Python
        self._idle = threading.Condition(self._idle_lock)
        self._workers: list[threading.Thread] = []
        self._closed = False
        for word in (Word.LOCK, Word.TICKET, Word.PENDING, Word.SLEEPING):
            self.state[word] = 0
        self.state[Word.STARTER] = self._starter

    def _forget_inherited_workers(self) -> None:
        ctypes.memset(self._identities, 0, ctypes.sizeof(self._identities))
        self._forget_workers()

    def _start_missing_workers(self) -> None:
        """Called by the first region that is split, without the GIL's protection of what other threads do meanwhile.
        After an exception, the next one calls it again."""
        with self._lock:
            if self.state[Word.SPIN] == 0:
                self.state[Word.SPIN] = self._pauses_in(1e-9 * SPIN_NANOSECONDS)
            self._allow(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
            try:
                while not self._closed and len(self._workers) < self._threads - 1:
                    index = len(self._workers)
                    name = f"tinyxla-{index + 1}"
                    worker = threading.Thread(target=self._serve, args=(index,), name=name, daemon=True)
                    worker.start()
                    self._workers.append(worker)
            except RuntimeError:
                pass  # the system gives no more threads: those there are do the work
            self.state[Word.STARTER] = 0

    def _allow(self, processors: Iterable[int]) -> None:
        """Let these be the processors that workers may run on."""
        for word in range(len(self._allowed)):
            self._allowed[word] = 0
        for number in processors:
            if number < _MAX_PROCESSORS:
                bit = 1 << number % 64
                self._allowed[number // 64] |= bit - (1 << 64) if bit >> 63 else bit

    def _serve(self, index: int) -> None:
        self._identities[next(_worker_numbers) % MAX_THREADS] = threading.get_ident()
        result = self._work(self.address, index, _STOPPED)
        while result != _STOPPED:
            with self._idle_lock:
                if self._may_wait(index, result):
                    self._idle.wait()
            result = self._work(self.address, index, result)

    def _may_wait(self, index: int, result: int) -> bool:
        """Whether nothing happened since `work` returned; who makes it happen next notifies under the same lock."""
        if result == _BENCHED:
            return 0 <= self.state[Word.HELPERS] <= index
        return self.state[Word.TICKET] & 0xFFFF_FFFF == 0 and index < self.state[Word.HELPERS]

    def _wake_workers(self) -> None:
        with self._idle_lock:
            self._idle.notify_all()

    def _pauses_in(self, seconds: float) -> int:
        trial = 500
        best = min(_seconds(lambda: self._spin(trial)) for _ in range(3))
        return max(50, int(trial * seconds / max(best, 1e-9)))


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def address_of(function: object) -> int:
    """Where a native function is."""
    found = ctypes.cast(function, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
    assert found is not None
    return found


def _placement() -> tuple[int, int]:
    """The addresses of libc's `sched_getcpu` and `sched_setaffinity`, or zeros."""
    if not sys.platform.startswith("linux"):
        return 0, 0
    library = ctypes.CDLL(None)
    functions = [getattr(library, name, None) for name in ("sched_getcpu", "sched_setaffinity")]
    return (0, 0) if None in functions else (address_of(functions[0]), address_of(functions[1]))


def yield_address() -> int:
    if sys.platform == "win32":
        return address_of(ctypes.WinDLL("kernel32").SwitchToThread)
    return address_of(ctypes.CDLL(None).sched_yield)
