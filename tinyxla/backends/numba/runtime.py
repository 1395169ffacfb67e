"""Running a schedule: one native function, called once from Python, executes all steps of a compiled program.

A *schedule* is an array of 64-bit words, made by `Schedule`; *slots* are the 64-bit words of one call: addresses of
inputs, outputs and temporaries, and integers. A kernel step names a kernel, the extent of its outermost index, the
grain at which that may be cut, the slots whose words are its arguments, and words that are arguments themselves; it
runs `kernel(table, first, last)` with all of these in `table`. Control flow is steps too: jumps within the schedule,
and arithmetic on slots, so that a loop over a sequence advances an address instead of copying.

Signals end what runs too long: loops (those of a schedule, and those inside a kernel whose length is not known) call
`poll`. Once a second that lets Python handle the signals that came in on the main thread; where a handler raises an
exception, as that of Ctrl-C does, the run ends, and the call from Python raises it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyxla.backends import clock
from tinyxla.backends.numba import thread_pool
from tinyxla.backends.numba.llvm_printer import POLL, routine_name
from tinyxla.backends.numba.native import compile_llvm, provide_function
from tinyxla.threads import get_num_threads, watch


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


_SOURCE = Template("""
@main = global i64 0  ; the identity of Python's main thread, on which alone it handles signals
@second = internal global i64 0  ; when it was last asked to
@ended = internal global i64 0  ; whether a handler raised an exception, so that what runs must end
@two_integers = internal constant [3 x i8] c"LL\\00"

define i64 @$POLL() {
entry:
  %thread = call i64 @PyThread_get_thread_ident()
  %main = load i64, ptr @main
  %is_main = icmp eq i64 %thread, %main
  br i1 %is_main, label %on_main, label %quiet
on_main:
  %ended = load i64, ptr @ended
  %is_ended = icmp ne i64 %ended, 0
  br i1 %is_ended, label %end, label %timed
timed:
  %now = call i64 @time(ptr null)
  %before = load i64, ptr @second
  %passed = icmp ne i64 %now, %before
  br i1 %passed, label %handle, label %quiet
handle:
  store i64 %now, ptr @second
  %state = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %raise, label %quiet
raise:
  store i64 1, ptr @ended
  br label %end
end:
  ret i64 1
quiet:
  ret i64 0
}

define void @launch(ptr %schedule, ptr %slots, ptr %pool) {
  %state = call ptr @PyEval_SaveThread()
  call void @run(ptr %schedule, ptr %slots, ptr %pool)
  call void @PyEval_RestoreThread(ptr %state)
  %error = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %error, null
  br i1 %none, label %done, label %raised
raised:
  store i64 0, ptr @ended
  br label %done
done:
  ret void
}

define void @call(ptr %template, ptr %arrays) {  ; the list's arrays have their data's address after the object's header
entry:
  %schedule = load ptr, ptr %template
  %pool_at = getelementptr i64, ptr %template, i64 1
  %count_at = getelementptr i64, ptr %template, i64 2
  %size_at = getelementptr i64, ptr %template, i64 3
  %words_at = getelementptr i64, ptr %template, i64 4
  %pool = load ptr, ptr %pool_at
  %count = load i64, ptr %count_at
  %size = load i64, ptr %size_at
  %slots = alloca i64, i64 %size, align 8
  %bytes = shl i64 %size, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %slots, ptr %words_at, i64 %bytes, i1 false)
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %one_more, %fill ]
  %complete = icmp sge i64 %number, %count
  br i1 %complete, label %run, label %fill
fill:
  %array = call ptr @PyList_GetItem(ptr %arrays, i64 %number)
  %data_at = getelementptr i8, ptr %array, i64 $HEADER
  %data = load i64, ptr %data_at
  %slot_at = getelementptr i64, ptr %slots, i64 %number
  store i64 %data, ptr %slot_at
  %one_more = add i64 %number, 1
  br label %next
run:
  call void @launch(ptr %schedule, ptr %slots, ptr %pool)
  ret void
}

declare i64 @PyThread_get_thread_ident()
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @time(ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare void @Py_DecRef(ptr)

define void @run(ptr %schedule, ptr %slots, ptr %pool) {
entry:
  %most_arguments = load i64, ptr %schedule
  %table = alloca i64, i64 %most_arguments, align 8
  %first_step = getelementptr i64, ptr %schedule, i64 1
  br label %next
next:
  %step = phi ptr [ %first_step, %entry ], [ %after_kernel, %kernel ], [ %after_kernel, %called ],
    [ %target, %jump ], [ %chosen, %jump_unless ], [ %selected, %switch ], [ %counted, %count ],
    [ %after_set, %set ], [ %after_move, %move ], [ %after_add, %add ], [ %after_host, %host_done ],
    [ %after_check, %check ], [ %after_mark, %marked ]
  %opcode = load i64, ptr %step
  %at1 = getelementptr i64, ptr %step, i64 1
  %at2 = getelementptr i64, ptr %step, i64 2
  %at3 = getelementptr i64, ptr %step, i64 3
  %at4 = getelementptr i64, ptr %step, i64 4
  switch i64 %opcode, label %end [
    i64 $KERNEL, label %kernel
    i64 $JUMP, label %jump
    i64 $JUMP_UNLESS, label %jump_unless
    i64 $SWITCH, label %switch
    i64 $COUNT, label %count
    i64 $SET, label %set
    i64 $MOVE, label %move
    i64 $ADD, label %add
    i64 $HOST, label %host
    i64 $CHECK, label %check
    i64 $MARK, label %mark
  ]

kernel:  ; address, extent, grain, number of slots, number of constants, the slots, the constants
  %at5 = getelementptr i64, ptr %step, i64 5
  %at6 = getelementptr i64, ptr %step, i64 6
  %extent = load i64, ptr %at2
  %slot_count = load i64, ptr %at4
  %constant_count = load i64, ptr %at5
  %constants_at = getelementptr i64, ptr %at6, i64 %slot_count
  %after_kernel = getelementptr i64, ptr %constants_at, i64 %constant_count
  %nothing = icmp sle i64 %extent, 0
  br i1 %nothing, label %next, label %gather
gather:
  %gathered = phi i64 [ 0, %kernel ], [ %one_more, %copy ]
  %complete = icmp sge i64 %gathered, %slot_count
  br i1 %complete, label %append, label %copy
copy:
  %slot_at = getelementptr i64, ptr %at6, i64 %gathered
  %slot = load i64, ptr %slot_at
  %word_at = getelementptr i64, ptr %slots, i64 %slot
  %word = load i64, ptr %word_at
  %entry_at = getelementptr i64, ptr %table, i64 %gathered
  store i64 %word, ptr %entry_at
  %one_more = add i64 %gathered, 1
  br label %gather
append:
  %free_at = getelementptr i64, ptr %table, i64 %slot_count
  %constant_bytes = shl i64 %constant_count, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %free_at, ptr %constants_at, i64 %constant_bytes, i1 false)
  %address = load ptr, ptr %at1
  %grain = load i64, ptr %at3
  %never_split = icmp eq i64 %grain, 0
  %one_chunk = icmp sle i64 %extent, %grain
  %whole = or i1 %never_split, %one_chunk
  br i1 %whole, label %at_once, label %split
at_once:
  call void %address(ptr %table, i64 0, i64 %extent)
  br label %called
split:
  call void @run_split(ptr %pool, ptr %address, ptr %table, i64 %extent, i64 %grain)
  br label %called
called:
  br label %next

jump:  ; distance
  %distance = load i64, ptr %at1
  %target = getelementptr i64, ptr %step, i64 %distance
  br label %next

jump_unless:  ; slot of the address of a pred, distance
  %pred_slot = load i64, ptr %at1
  %pred_word_at = getelementptr i64, ptr %slots, i64 %pred_slot
  %pred_at = load ptr, ptr %pred_word_at
  %pred = load i8, ptr %pred_at
  %is_false = icmp eq i8 %pred, 0
  %unless_distance = load i64, ptr %at2
  %moved = select i1 %is_false, i64 %unless_distance, i64 3
  %chosen = getelementptr i64, ptr %step, i64 %moved
  br label %next

switch:  ; slot of the address of an s32, number of cases, their distances; what is out of range takes the last
  %index_slot = load i64, ptr %at1
  %index_word_at = getelementptr i64, ptr %slots, i64 %index_slot
  %index_at = load ptr, ptr %index_word_at
  %short_index = load i32, ptr %index_at
  %index = zext i32 %short_index to i64
  %cases = load i64, ptr %at2
  %last_case = sub i64 %cases, 1
  %case = call i64 @llvm.smin.i64(i64 %index, i64 %last_case)
  %case_at = getelementptr i64, ptr %at3, i64 %case
  %case_distance = load i64, ptr %case_at
  %selected = getelementptr i64, ptr %step, i64 %case_distance
  br label %next

count:  ; slot of a counter, distance: count down, jump while it is positive
  %counter_slot = load i64, ptr %at1
  %counter_at = getelementptr i64, ptr %slots, i64 %counter_slot
  %counter = load i64, ptr %counter_at
  %lower = sub i64 %counter, 1
  store i64 %lower, ptr %counter_at
  %again = icmp sgt i64 %lower, 0
  %count_distance = load i64, ptr %at2
  %count_moved = select i1 %again, i64 %count_distance, i64 3
  %counted = getelementptr i64, ptr %step, i64 %count_moved
  br label %next

set:  ; slot, constant
  %set_slot = load i64, ptr %at1
  %constant = load i64, ptr %at2
  %set_at = getelementptr i64, ptr %slots, i64 %set_slot
  store i64 %constant, ptr %set_at
  %after_set = getelementptr i64, ptr %step, i64 3
  br label %next

move:  ; destination slot, source slot
  %to_slot = load i64, ptr %at1
  %from_slot = load i64, ptr %at2
  %from_at = getelementptr i64, ptr %slots, i64 %from_slot
  %carried = load i64, ptr %from_at
  %to_at = getelementptr i64, ptr %slots, i64 %to_slot
  store i64 %carried, ptr %to_at
  %after_move = getelementptr i64, ptr %step, i64 3
  br label %next

add:  ; slot, constant
  %sum_slot = load i64, ptr %at1
  %addend = load i64, ptr %at2
  %sum_at = getelementptr i64, ptr %slots, i64 %sum_slot
  %old_sum = load i64, ptr %sum_at
  %sum = add i64 %old_sum, %addend
  store i64 %sum, ptr %sum_at
  %after_add = getelementptr i64, ptr %step, i64 3
  br label %next

check:  ; has a signal come that ends the run?
  %after_check = getelementptr i64, ptr %step, i64 1
  %checked = call i64 @$POLL()
  %stopped = icmp ne i64 %checked, 0
  br i1 %stopped, label %end, label %next

mark:  ; slot of the address of a record, word of a pair in it: count, and add the time since the mark before; while
       ; there is room for events, note one. A record begins with that time, the free word and the last word for events
  %record_slot = load i64, ptr %at1
  %pair = load i64, ptr %at2
  %after_mark = getelementptr i64, ptr %step, i64 3
  %record_word_at = getelementptr i64, ptr %slots, i64 %record_slot
  %record = load ptr, ptr %record_word_at
  %count_at = getelementptr i64, ptr %record, i64 %pair
  %total_at = getelementptr i64, ptr %count_at, i64 1
  %free_word_at = getelementptr i64, ptr %record, i64 1
  %last_word_at = getelementptr i64, ptr %record, i64 2
  %now = call i64 @now()
  %previous = load i64, ptr %record
  %elapsed = sub i64 %now, %previous
  store i64 %now, ptr %record
  %old_count = load i64, ptr %count_at
  %new_count = add i64 %old_count, 1
  store i64 %new_count, ptr %count_at
  %old_total = load i64, ptr %total_at
  %new_total = add i64 %old_total, %elapsed
  store i64 %new_total, ptr %total_at
  %free_word = load i64, ptr %free_word_at
  %last_word = load i64, ptr %last_word_at
  %has_room = icmp slt i64 %free_word, %last_word
  br i1 %has_room, label %note, label %marked
note:
  %event_at = getelementptr i64, ptr %record, i64 %free_word
  %event_time_at = getelementptr i64, ptr %event_at, i64 1
  store i64 %pair, ptr %event_at
  store i64 %now, ptr %event_time_at
  %next_word = add i64 %free_word, 2
  store i64 %next_word, ptr %free_word_at
  br label %marked
marked:
  br label %next

host:  ; a Python function, number: call it with this and the address of the slots; an exception ends the run
  %callable = load ptr, ptr %at1
  %host_number = load i64, ptr %at2
  %slots_address = ptrtoint ptr %slots to i64
  %after_host = getelementptr i64, ptr %step, i64 3
  %state = call i32 @PyGILState_Ensure()
  %given = call ptr (ptr, ptr, ...) @PyObject_CallFunction(ptr %callable, ptr @two_integers, i64 %host_number,
    i64 %slots_address)
  %failed = icmp eq ptr %given, null
  br i1 %failed, label %host_failed, label %host_done
host_done:
  call void @Py_DecRef(ptr %given)
  call void @PyGILState_Release(i32 %state)
  br label %next
host_failed:
  call void @PyGILState_Release(i32 %state)
  br label %end

end:
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @now() {  ; in nanoseconds
  %read = alloca { i64, i64 }, align 8
  store { i64, i64 } zeroinitializer, ptr %read  ; the nanoseconds may be of 32 bits
  call i32 @tinyxla_clock($ARGUMENTS)
  %seconds = load i64, ptr %read
  %rest_at = getelementptr { i64, i64 }, ptr %read, i64 0, i32 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %rest
  ret i64 %time
}

declare i32 @tinyxla_clock($PARAMETERS)
""")


def _source() -> str:
    names = {opcode.name: int(opcode) for opcode in Opcode}
    return thread_pool.source() + _SOURCE.substitute(
        names, HEADER=object.__basicsize__, POLL=POLL, PARAMETERS=clock.PARAMETERS, ARGUMENTS=clock.ARGUMENTS
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
    ) -> None:
        """Run the kernel at `address` over [0, extent), in chunks of `grain` that threads share; 0 means never split.

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
        self._words += [Opcode.KERNEL, address, extent, grain, len(slots), len(constants), *slots, *constants]

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
    "PyEval_RestoreThread PyErr_Occurred PyObject_CallFunction PyList_GetItem Py_DecRef"
)
for _name in _PYTHON.split():
    provide_function(_name, thread_pool.address_of(getattr(ctypes.pythonapi, _name)))
_clock = ctypes.CDLL("ucrtbase")._time64 if sys.platform == "win32" else ctypes.CDLL(None).time
provide_function("time", thread_pool.address_of(_clock))
provide_function("tinyxla_yield", thread_pool.yield_address())
provide_function("tinyxla_clock", thread_pool.address_of(clock.ROUTINE))
_functions = compile_llvm(_source(), ("launch", "call", POLL, "main", *thread_pool.NAMES), is_final=True)
provide_function(POLL, _functions[POLL])
for _name in ("wait", "announce"):
    provide_function(routine_name(_name), _functions[_name])
_pool = thread_pool.ThreadPool(_functions, get_num_threads())
watch(_pool.set_threads)
_pool_address = _pool.address
_run: Callable[[int, int, int], None] = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    _functions["launch"]
)


def _find_main_thread() -> None:
    ctypes.c_int64.from_address(_functions["main"]).value = threading.main_thread().ident or 0


_find_main_thread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_find_main_thread)


def launch(schedule: int, slots: int) -> None:
    """Run the schedule at an address on the slots at an address; the GIL is released meanwhile. Raises what a host
    call or the handler of a signal raises."""
    _run(schedule, slots, _pool_address)


def template(schedule: int, arrays: int, words: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """What `call` takes besides arrays: the schedule's address, and the slots' words, of which those of so many arrays
    come first."""
    return (ctypes.c_int64 * (4 + len(words)))(schedule, _pool_address, arrays, len(words), *words)


# call(template, arrays): run a schedule with the addresses of a list's NumPy arrays in its first slots. As `launch`.
call: Callable[[ctypes.Array[ctypes.c_int64], list[npt.NDArray[Any]]], None] = ctypes.PYFUNCTYPE(
    None, ctypes.c_void_p, ctypes.py_object
)(_functions["call"])
