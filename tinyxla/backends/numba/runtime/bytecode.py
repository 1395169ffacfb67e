"""Bytecode of schedules, and its interpreter: one native call from Python executes all steps of a compiled program.

A *schedule* is an array of 64-bit words, made by `Schedule`; *slots* are the 64-bit words of one call: addresses of
inputs, outputs and temporaries, and integers. A kernel step names a kernel, the extent of its outermost index, the
grain at which that may be cut, the slots whose words are its arguments, and words that are arguments themselves; it
runs `kernel(table, first, last)` with all of these in `table`. Control flow is steps too: jumps within the schedule,
and arithmetic on slots, so that a loop over a sequence advances an address instead of copying. A *fork* runs parts of
the schedule at the same time, as a parallel region whose chunks are these parts.

Signals interrupt a run: loops of the schedule, loops of unknown trip count inside kernels, and threads that wait for
workers call `poll`. Once a second, `poll` lets Python handle pending signals on the main thread. If a handler raises an
exception, as that of Ctrl-C does, the run ends on that thread and on the workers that run its chunks, and the call from
Python raises it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyxla.backends import clock
from tinyxla.backends.numba.emit.printer import POLL
from tinyxla.backends.numba.jit.engine import define_symbol, start_llvm
from tinyxla.backends.numba.runtime import denormals, thread_pool
from tinyxla.loopir.ir.routines import routine_symbol
from tinyxla.runtime.threads import get_num_threads, watch


class Opcode(IntEnum):
    """What a step does. A step is its opcode and operands; jumps count words from the step that jumps."""

    END = 0
    KERNEL = 1
    JUMP = 2
    JUMP_UNLESS = 3
    SWITCH = 4
    COUNT = 5
    SET = 6
    MOVE = 7
    ADD = 8
    HOST = 9
    CHECK = 10
    MARK = 11
    FORK = 12


_SOURCE = Template("""
@main = global i64 0  ; the identity of Python's main thread, on which alone it handles signals
@second = internal global i64 0  ; when it was last asked to
@ended = internal global i64 0  ; whether a handler raised an exception, so that what runs must end
@two_integers = internal constant [3 x i8] c"LL\\00"

define i64 @$POLL() {
entry:
  %thread = call i64 @PyThread_get_thread_ident()
  %is_ended = icmp ne i64 (load atomic i64, ptr @ended monotonic, align 8), 0
  br i1 (icmp eq i64 %thread, (load i64, ptr @main)), label %on_main, label %on_other
on_other:
  br i1 %is_ended, label %ask_pool, label %quiet
ask_pool:
  %works = call i1 @works_for(i64 %thread, i64 (load i64, ptr @main))
  br i1 %works, label %end, label %quiet
on_main:
  br i1 %is_ended, label %end, label %timed
timed:
  %now = call i64 @time(ptr null)
  br i1 (icmp ne i64 %now, (load i64, ptr @second)), label %handle, label %quiet
handle:
  store i64 %now, ptr @second
  %state = call i32 @PyGILState_Ensure()
  %error = call ptr @PyErr_Occurred()
  br i1 (icmp eq ptr %error, null), label %ask, label %answered
ask:
  %signals = call i32 @PyErr_CheckSignals()
  br label %answered
answered:
  %status = phi i32 [ -1, %handle ], [ %signals, %ask ]
  call void @PyGILState_Release(i32 %state)
  br i1 (icmp ne i32 %status, 0), label %raise, label %quiet
raise:
  store atomic i64 1, ptr @ended monotonic, align 8
  br label %end
end:
  ret i64 1
quiet:
  ret i64 0
}

define void @launch(ptr %schedule, ptr %slots, ptr %pool) {
  %state = call ptr @PyEval_SaveThread()
  %mode = call i64 @flush_subnormals()
  call void @run(ptr %schedule, ptr %schedule[1], ptr %slots, ptr %pool)
  call void @set_float_mode(i64 %mode)
  call void @PyEval_RestoreThread(ptr %state)
  %error = call ptr @PyErr_Occurred()
  br i1 (icmp eq ptr %error, null), label %done, label %raised
raised:
  %thread = call i64 @PyThread_get_thread_ident()
  br i1 (icmp eq i64 %thread, (load i64, ptr @main)), label %on_main, label %done
on_main:
  store atomic i64 0, ptr @ended monotonic, align 8
  br label %done
done:
  ret void
}

define void @call(ptr %template, ptr %arrays) {  ; the list's arrays have their data's address after the object's header
entry:
  %schedule = load ptr, ptr %template
  %pool = load ptr, ptr %template[1]
  %count = load i64, ptr %template[2]
  %size = load i64, ptr %template[3]
  %slots = alloca i64, i64 %size, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %template[4], i64 (shl i64 %size, 3), i1 false)
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %one_more, %fill ]
  br i1 (icmp sge i64 %number, %count), label %run, label %fill
fill:
  %array = call ptr @PyList_GetItem(ptr %arrays, i64 %number)
  store i64 (load i64, ptr %array[i8 $HEADER]), ptr %slots[%number]
  %one_more = add i64 %number, 1
  br label %next
run:
  call void @launch(ptr %schedule, ptr %slots, ptr %pool)
  ret void
}

declare i64 @PyThread_get_thread_ident()
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @time(ptr)
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)

; Run the steps of a schedule from `first_step` to the next end.
define internal void @run(ptr %schedule, ptr %first_step, ptr %slots, ptr %pool) {
entry:
  %table = alloca i64, i64 (load i64, ptr %schedule), align 8
  %forked = alloca i64, i64 4, align 8
  br label %next
next:
  %step = phi ptr [ %first_step, %entry ], [ %after_kernel, %kernel ], [ %after_kernel, %called ],
    [ %target, %jump ], [ %chosen, %jump_unless ], [ %selected, %switch ], [ %counted, %count ],
    [ %after, %set ], [ %after, %move ], [ %after, %add ], [ %after, %host_done ], [ %after_check, %check ],
    [ %after, %marked ], [ %joined, %fork ]
  %after = getelementptr i64, ptr %step, i64 3  ; where a step has two operands
  switch i64 (load i64, ptr %step), label %end [
$CASES
  ]

kernel:  ; address, extent, grain (negative: in order), number of slots, number of constants, the slots, the constants
  %extent = load i64, ptr %step[2]
  %slot_count = load i64, ptr %step[4]
  %constant_count = load i64, ptr %step[5]
  %slots_at = getelementptr i64, ptr %step, i64 6
  %constants_at = getelementptr i64, ptr %slots_at, i64 %slot_count
  %after_kernel = getelementptr i64, ptr %constants_at, i64 %constant_count
  br i1 (icmp sle i64 %extent, 0), label %next, label %gather
gather:
  %gathered = phi i64 [ 0, %kernel ], [ %one_more, %copy ]
  br i1 (icmp sge i64 %gathered, %slot_count), label %append, label %copy
copy:
  store i64 (load i64, ptr %slots[(load i64, ptr %slots_at[%gathered])]), ptr %table[%gathered]
  %one_more = add i64 %gathered, 1
  br label %gather
append:
  %constant_bytes = shl i64 %constant_count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %table[%slot_count], ptr %constants_at, i64 %constant_bytes, i1 false)
  %address = load ptr, ptr %step[1]
  %grain = load i64, ptr %step[3]
  %chunk = call i64 @llvm.abs.i64(i64 %grain, i1 true)
  br i1 (or i1 (icmp eq i64 %grain, 0), (icmp sle i64 %extent, %chunk)), label %at_once, label %split
at_once:
  call void %address(ptr %table, i64 0, i64 %extent)
  br label %called
split:
  call void @run_split(ptr %pool, ptr %address, ptr %table, i64 %extent, i64 %grain)
  br label %called
called:
  br label %next

jump:  ; distance
  %target = getelementptr i64, ptr %step, i64 (load i64, ptr %step[1])
  br label %next

jump_unless:  ; slot of the address of a pred, distance
  %pred = load i8, ptr (load ptr, ptr %slots[(load i64, ptr %step[1])])
  %moved = select i1 (icmp eq i8 %pred, 0), i64 (load i64, ptr %step[2]), i64 3
  %chosen = getelementptr i64, ptr %step, i64 %moved
  br label %next

switch:  ; slot of the address of an s32, number of cases, their distances; what is out of range takes the last
  %short_index = load i32, ptr (load ptr, ptr %slots[(load i64, ptr %step[1])])
  %case = call i64 @llvm.smin.i64(i64 (zext i32 %short_index to i64), i64 (sub i64 (load i64, ptr %step[2]), 1))
  %selected = getelementptr i64, ptr %step, i64 (load i64, ptr %after[%case])
  br label %next

count:  ; slot of a counter, distance: count down, jump while it is positive
  %counter_at = getelementptr i64, ptr %slots, i64 (load i64, ptr %step[1])
  %lower = sub i64 (load i64, ptr %counter_at), 1
  store i64 %lower, ptr %counter_at
  %count_moved = select i1 (icmp sgt i64 %lower, 0), i64 (load i64, ptr %step[2]), i64 3
  %counted = getelementptr i64, ptr %step, i64 %count_moved
  br label %next

set:  ; slot, constant
  store i64 (load i64, ptr %step[2]), ptr %slots[(load i64, ptr %step[1])]
  br label %next

move:  ; destination slot, source slot
  store i64 (load i64, ptr %slots[(load i64, ptr %step[2])]), ptr %slots[(load i64, ptr %step[1])]
  br label %next

add:  ; slot, constant
  %sum_at = getelementptr i64, ptr %slots, i64 (load i64, ptr %step[1])
  store i64 (add i64 (load i64, ptr %sum_at), (load i64, ptr %step[2])), ptr %sum_at
  br label %next

check:  ; has a signal come that ends the run?
  %after_check = getelementptr i64, ptr %step, i64 1
  %checked = call i64 @$POLL()
  br i1 (icmp ne i64 %checked, 0), label %end, label %next

mark:  ; slot of the address of a record, word of a pair in it: count, and add the time since the mark before; while
       ; there is room for events, note one. A record begins with that time, the free word and the last word for events
  %pair = load i64, ptr %step[2]
  %record = load ptr, ptr %slots[(load i64, ptr %step[1])]
  %count_at = getelementptr i64, ptr %record, i64 %pair
  %now = call i64 @now()
  %elapsed = sub i64 %now, (load i64, ptr %record)
  store i64 %now, ptr %record
  store i64 (add i64 (load i64, ptr %count_at), 1), ptr %count_at
  store i64 (add i64 (load i64, ptr %count_at[1]), %elapsed), ptr %count_at[1]
  %free_word = load i64, ptr %record[1]
  br i1 (icmp slt i64 %free_word, (load i64, ptr %record[2])), label %note, label %marked
note:
  %event_at = getelementptr i64, ptr %record, i64 %free_word
  store i64 %pair, ptr %event_at
  store i64 %now, ptr %event_at[1]
  store i64 (add i64 %free_word, 2), ptr %record[1]
  br label %marked
marked:
  br label %next

host:  ; a Python function, number: call it with this and the address of the slots; an exception ends the run, as does
       ; one that a signal's handler raised in a kernel before
  call void @keep_subnormals()
  %callable = load ptr, ptr %step[1]
  %host_number = load i64, ptr %step[2]
  %slots_address = ptrtoint ptr %slots to i64
  %state = call i32 @PyGILState_Ensure()
  %error = call ptr @PyErr_Occurred()
  br i1 (icmp eq ptr %error, null), label %host_call, label %host_failed
host_call:
  %given = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr %callable, ptr @two_integers, i64 %host_number,
    i64 %slots_address)
  call i64 @flush_subnormals()
  br i1 (icmp eq ptr %given, null), label %host_failed, label %host_done
host_done:
  call void @Py_DecRef(ptr %given)
  call void @PyGILState_Release(i32 %state)
  br label %next
host_failed:
  call void @PyGILState_Release(i32 %state)
  br label %end

fork:  ; number of branches, distance of what follows, distances of the branches
  store ptr %schedule, ptr %forked
  store ptr %step, ptr %forked[1]
  store ptr %slots, ptr %forked[2]
  store ptr %pool, ptr %forked[3]
  call void @run_split(ptr %pool, ptr @run_branches, ptr %forked, i64 (load i64, ptr %step[1]), i64 1)
  %joined = getelementptr i64, ptr %step, i64 (load i64, ptr %step[2])
  br label %next

end:
  ret void
}

; A kernel whose iterations are the branches of a fork.
define internal void @run_branches(ptr %forked, i64 %first, i64 %last) {
entry:
  %schedule = load ptr, ptr %forked
  %step = load ptr, ptr %forked[1]
  %slots = load ptr, ptr %forked[2]
  %pool = load ptr, ptr %forked[3]
  %branches = getelementptr i64, ptr %step, i64 3
  br label %branch
branch:
  %number = phi i64 [ %first, %entry ], [ %one_more, %branch ]
  %distance = load i64, ptr %branches[%number]
  call void @run(ptr %schedule, ptr %step[%distance], ptr %slots, ptr %pool)
  %one_more = add i64 %number, 1
  br i1 (icmp slt i64 %one_more, %last), label %branch, label %done
done:
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @now() {  ; in nanoseconds
  %read = alloca { i64, i64 }, align 8
  store { i64, i64 } zeroinitializer, ptr %read  ; the nanoseconds may be of 32 bits
  call i32 @tinyxla_clock($ARGUMENTS)
  %whole = mul i64 (load i64, ptr %read), 1000000000
  %time = add i64 %whole, (load i64, ptr (getelementptr { i64, i64 }, ptr %read, i64 0, i32 1))
  ret i64 %time
}

declare i32 @tinyxla_clock($PARAMETERS)
""")


def _source() -> str:
    return (
        denormals.source()
        + thread_pool.source(POLL)
        + _SOURCE.substitute(
            CASES="\n".join(f"    i64 {opcode}, label %{opcode.name.lower()}" for opcode in Opcode),
            HEADER=object.__basicsize__,
            POLL=POLL,
            PARAMETERS=clock.PARAMETERS,
            ARGUMENTS=clock.ARGUMENTS,
        )
    )


class Label:
    """A place in a schedule that jumps name before or after it is known."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.uses: list[tuple[int, int]] = []  # (position of the word to fill, position of the step)


class Schedule:
    """Collects steps; `finish` gives the array that `launch` runs."""

    def __init__(self) -> None:
        self._words: list[int] = [1]  # the longest argument list; at least one, since an empty table has no address
        self._kernels: list[tuple[int, Callable[[], int]]] = []  # (position of an address, what gives it)
        self._labels: list[Label] = []

    def kernel(
        self,
        address: int | Callable[[], int],
        slots: Sequence[int],
        extent: int,
        grain: int = 0,
        constants: Sequence[int] = (),
        in_order: bool = False,
    ) -> None:
        """Run the kernel at `address` over [0, extent), in chunks of `grain` that threads share; 0 means never split.
        Chunks that wait for others are begun `in_order`.

        Its table holds the words of `slots`, then `constants`. An address that is a function is asked for at the end,
        so that kernels may be compiled together.
        """
        if callable(address):
            self._kernels.append((len(self._words) + 1, address))
            address = -1
        if address == 0 or extent < 0 or grain < 0:
            raise ValueError(
                f"a kernel step needs an address, extent >= 0 and grain >= 0; it got {address}, {extent} and {grain}"
            )
        self._words[0] = max(self._words[0], len(slots) + len(constants))
        signed = -grain if in_order else grain
        self._words += [Opcode.KERNEL, address, extent, signed, len(slots), len(constants), *slots, *constants]

    def label(self) -> Label:
        """A new label, not yet placed."""
        label = Label()
        self._labels.append(label)
        return label

    def place(self, label: Label) -> None:
        """Let `label` stand for the next step."""
        label.position = len(self._words)

    def jump(self, target: Label) -> None:
        self._step(Opcode.JUMP, target)

    def jump_unless(self, slot: int, target: Label) -> None:
        """Jump if the pred at the address in `slot` is false."""
        self._step(Opcode.JUMP_UNLESS, slot, target)

    def switch(self, slot: int, targets: Sequence[Label]) -> None:
        """Jump to `targets[i]` for the s32 `i` at the address in `slot`; to the last one if `i` is out of range."""
        if not targets:
            raise ValueError("a switch needs at least one target")
        self._step(Opcode.SWITCH, slot, len(targets), *targets)

    def count(self, slot: int, target: Label) -> None:
        """Lower the integer in `slot` by one and jump if it is still positive."""
        self._step(Opcode.COUNT, slot, target)

    def set(self, slot: int, word: int) -> None:
        self._step(Opcode.SET, slot, word)

    def move(self, destination: int, source: int) -> None:
        """Copy the word of slot `source` to slot `destination`."""
        self._step(Opcode.MOVE, destination, source)

    def add(self, slot: int, word: int) -> None:
        """Add a constant to the word in `slot`: to advance an address."""
        self._step(Opcode.ADD, slot, word)

    def host(self, address: int, number: int) -> None:
        """Call the Python function `f(number, slots)` whose object is at `address`, and must stay alive; `slots` is an
        address too. An exception ends the run, and `launch` raises it."""
        self._step(Opcode.HOST, address, number)

    def fork(self, branches: Sequence[Label], joined: Label) -> None:
        """Run what begins at the labels at the same time, each up to its `end`, and go on at `joined`."""
        self._step(Opcode.FORK, len(branches), joined, *branches)

    def end(self) -> None:
        """End a branch of a fork."""
        self._step(Opcode.END)

    def check(self) -> None:
        """Let signals end the run: to be part of each loop."""
        self._step(Opcode.CHECK)

    def mark(self, slot: int, pair: int) -> None:
        """Note the time since the mark before in the record at the address in `slot`, in two words of it."""
        self._step(Opcode.MARK, slot, pair)

    def _step(self, opcode: int, *words: int | Label) -> None:
        start = len(self._words)
        self._words.append(opcode)
        for word in words:
            if isinstance(word, Label):
                word.uses.append((len(self._words), start))
                word = 0
            self._words.append(word)

    def finish(self) -> npt.NDArray[np.int64]:
        words = [*self._words, Opcode.END]
        for label in self._labels:
            for position, step in label.uses:
                if label.position is None:
                    raise ValueError("a schedule jumps to a label that was never placed; call place(label)")
                words[position] = label.position - step
        for position, address in self._kernels:
            words[position] = address()
        return np.array(words, np.int64)


_PYTHON = (
    "PyThread_get_thread_ident PyGILState_Ensure PyGILState_Release PyErr_CheckSignals PyEval_SaveThread "
    "PyEval_RestoreThread PyErr_Occurred PyObject_CallFunction PyObject_CallObject PyList_GetItem Py_DecRef"
)
for _name in _PYTHON.split():
    define_symbol(_name, thread_pool.address_of(getattr(ctypes.pythonapi, _name)))
_clock = ctypes.CDLL("ucrtbase")._time64 if sys.platform == "win32" else ctypes.CDLL(None).time
define_symbol("time", thread_pool.address_of(_clock))
define_symbol("tinyxla_yield", thread_pool.yield_address())
define_symbol("tinyxla_clock", thread_pool.address_of(clock.ROUTINE))
_addresses = start_llvm(
    _source(),
    ("launch", "call", POLL, "main", *thread_pool.NAMES),
    {POLL: POLL, "wait": routine_symbol("wait"), "announce": routine_symbol("announce")},
)


class Runtime:
    """The native functions that run schedules, and the thread pool that is used by them.

    `call(template, arrays)` is `launch` with the addresses of a list's NumPy arrays in the first slots.
    """

    def __init__(self, functions: Mapping[str, int]) -> None:
        self.functions = functions
        self.pool = thread_pool.ThreadPool(functions, get_num_threads())
        watch(self.pool.set_threads)
        run = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self.run: Callable[[int, int, int], None] = run(functions["launch"])
        call = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.py_object)
        self.call: Callable[[ctypes.Array[ctypes.c_int64], list[npt.NDArray[Any]]], None] = call(functions["call"])
        self._find_main_thread()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._find_main_thread)

    def _find_main_thread(self) -> None:
        ctypes.c_int64.from_address(self.functions["main"]).value = threading.main_thread().ident or 0


_made: list[Runtime] = []
_lock = threading.Lock()


def _renew_lock() -> None:
    """In the child of a fork, where the thread that took the lock is not."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def runtime() -> Runtime:
    """The runtime of this process. Its functions are being compiled since the import of this module."""
    with _lock:
        if not _made:
            _made.append(Runtime(_addresses()))
        return _made[0]


def launch(schedule: int, slots: int) -> None:
    """Run the schedule at an address on the slots at an address; the GIL is released meanwhile. Raises what a host
    call or the handler of a signal raises."""
    runtime().run(schedule, slots, runtime().pool.address)


def template(schedule: int, arrays: int, words: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """The first argument of `Runtime.call`: the addresses of the schedule and the thread pool, the number of arrays,
    and the initial words of the slots, of which those of the arrays come first."""
    return (ctypes.c_int64 * (4 + len(words)))(schedule, runtime().pool.address, arrays, len(words), *words)
