"""Collective operations among processes as steps of a schedule: native code that calls MPI. One is a call that blocks,
or a start and a done with kernels in between, after each of which MPI is called to make progress.

The code of a routine of MPI is printed from its list of parameters, and knows neither addresses nor sizes: these are
words of the step. So one object file on disk serves all programs and processes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from string import Template
from typing import TypeGuard

from tinyxla.backends.numba.emit.llvm_templates import load_words
from tinyxla.backends.numba.jit.engine import start_function
from tinyxla.backends.numba.runtime.bytecode import Schedule
from tinyxla.compiler.fusion.plan import Collective, CollectiveDone, CollectiveStart
from tinyxla.compiler.schedule.blocks import Block, Work, inner_blocks
from tinyxla.hlo import Instruction
from tinyxla.ops.distributed.process_collectives import is_message, message_of, step_of
from tinyxla.runtime.mpi.calls import ROUTINES, STARTING_ROUTINES, TEST_ALL, WAIT, Call, Requests, call_of
from tinyxla.runtime.mpi.comparison import Communicator, Part, Step
from tinyxla.runtime.mpi.library import BUFFERS, HANDLES, MAX_COUNT, Routine
from tinyxla.runtime.mpi.world import World, world

# Where this process takes part, what follows `call`, with the communicator and whether the operand is the result.
_BEGIN = """
define void @$NAME(ptr %table, i64 %first, i64 %last) {
entry:
$WORDS
  call void @llvm.memset.p0.i64(ptr %result, i8 0, i64 %zero_bytes, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %result, ptr %operand, i64 %copy_bytes, i1 false)
  br i1 (icmp sgt i64 %elements, 0), label %call, label %done
call:
  %handle = load i64, ptr %communicator
  %is_in_place = icmp eq ptr %operand, %result
"""
_END = """
  br label %done
done:
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
"""
# `waits` are two words that tell which step waits for others, and how many have; see `World`.
_WAIT = """
  store i64 %number, ptr %waits
"""
_WAITED = """
  store i64 0, ptr %waits
  store i64 (add i64 (load i64, ptr %waits[1]), 1), ptr %waits[1]
"""

_GLUE = Template(
    f"""{_BEGIN}{_WAIT}
  br label %next
next:
  %start = phi i64 [ 0, %call ], [ %end, %next ]
  %left = sub i64 %elements, %start
  %chunk = call i64 @llvm.smin.i64(i64 %left, i64 $MAX_COUNT)
  %count = trunc i64 %chunk to i32
  %offset = mul i64 %start, %item_bytes
  %operand_chunk = getelementptr i8, ptr %operand, i64 %offset
  %send = select i1 %is_in_place, ptr %in_place, ptr %operand_chunk
  %receive = getelementptr i8, ptr %result, i64 %offset
$NARROWED
  %error = call i32 %routine($ARGUMENTS)
  %end = add i64 %start, %chunk
  br i1 (icmp slt i64 %end, %elements), label %next, label %waited
waited:{_WAITED}{_END}"""
)
_COMMON = "operand result routine waits number in_place elements item_bytes zero_bytes copy_bytes".split()
_COMPUTED = frozenset({"send", "receive", "count"})  # parameters that the code computes

# The start of an exchange: its routines, each with the address of a request.
_START = Template(
    f"""{_BEGIN}
  %send = select i1 %is_in_place, ptr %in_place, ptr %operand
  %receive = getelementptr i8, ptr %result, i64 0
  %count = trunc i64 %elements to i32
$NARROWED
$CALLS{_END}"""
)
_STARTING = "operand result in_place elements zero_bytes copy_bytes".split()

_DONE = Template(
    f"""
define void @done(ptr %table, i64 %first, i64 %last) {{
entry:
$WORDS{_WAIT}
$CALLS{_WAITED}
  ret void
}}
"""
)
_WAITING = "routine waits number status".split()

# MPI moves messages on while one of its routines runs.
_PROGRESS = Template("""
define void @progress(ptr %table, i64 %first, i64 %last) {
entry:
$WORDS
  %flag = alloca i32, align 4
  %count = trunc i64 %requests to i32
  %error = call i32 %routine(i32 %count, ptr %request, ptr %flag, ptr %status)
  ret void
}
""")
_PROGRESSING = "routine requests request status".split()


class Exchanges:
    """The exchanges among processes of a program: as steps of its schedule, and as the part of the program that
    processes compare before they run it. `count` is how many there are."""

    def __init__(self, name: str, block: Block) -> None:
        self._numbers: dict[Instruction, int] = {}
        self._request_numbers: dict[Instruction, int] = {}  # of the first request of an exchange that is split
        self._request_count = 0
        self._under_way: list[Instruction] = []  # where the schedule ends that is being made
        self._steps: list[Step] = []
        self._participants: set[int] = set()
        self._communicators: dict[Communicator, None] = {}
        self._name = name
        self._collect(block)
        self._requests = Requests(self._request_count, _processes().library) if self._request_count else None

    @property
    def count(self) -> int:
        return len(self._numbers)

    def part(self) -> Part:
        return Part(self._name, tuple(self._steps), tuple(sorted(self._participants)), tuple(self._communicators))

    def _collect(self, block: Block) -> None:
        for step in block.steps:
            work = step.work
            if is_exchange(work) and not isinstance(work, CollectiveDone):
                is_split = isinstance(work, CollectiveStart)
                message, operand = message_of(work.root), work.root.operands[0].array_shape
                if is_split:
                    self._request_numbers[work.root] = self._request_count
                    self._request_count += _request_count(work.root)
                self._numbers[work.root] = len(self._steps)
                self._steps.append(step_of(message, operand, str(work.root.source or ""), is_split))
                self._participants.update(message.participants)
            for number, inner in enumerate(inner_blocks(step)):
                self._steps.append(Step(f"computation {number} of a loop or branch, with"))
                before = len(self._steps)
                self._collect(inner)
                if len(self._steps) == before:
                    self._steps.pop()

    def append(self, work: Collective, operand: int, result: int, schedule: Schedule) -> None:
        """Append an exchange, its start or its done to a schedule, with the slots of its operand and result."""
        if isinstance(work, CollectiveDone):
            self._append_done(work.root, schedule)
            return
        among = _processes()
        call = call_of(message_of(work.root), work.root.operands[0].array_shape, among)
        if call.communicator is not None:
            self._communicators[call.communicator] = None
        is_split = isinstance(work, CollectiveStart)
        if is_split:
            self._under_way.append(work.root)
        names = _start_names(call.kind) if is_split else _names(call.kind)
        glue = (_start if is_split else _glue)(call.kind, among.library.handle_bytes)
        schedule.kernel(glue, [operand, result], 1, constants=self._words(names[2:], call, work.root, among))

    def _words(self, names: Sequence[str], call: Call, root: Instruction, among: World) -> list[int]:
        library = among.library
        started = {f"routine{k}": library.address(x.name) for k, x in enumerate(STARTING_ROUTINES[call.kind])}
        given = {
            **call._asdict(),
            **call.words,
            **started,
            "routine": library.address(ROUTINES[call.kind].name),
            "waits": among.waits,
            "number": self._numbers[root] + 1,
            "in_place": library.in_place,
            "communicator": call.communicator.cell if call.communicator is not None else 0,
            "status": library.status,
            **self._request_words(root),
        }
        return [given.get(name, 0) for name in names]

    def _request_words(self, root: Instruction) -> dict[str, int]:
        """The addresses of the requests of an exchange that is split."""
        requests = self._requests
        if root not in self._request_numbers or requests is None:
            return {}
        first = self._request_numbers[root]
        return {f"request{k}": requests.address(first + k) for k in range(_request_count(root))}

    def _append_done(self, root: Instruction, schedule: Schedule) -> None:
        among = _processes()
        self._under_way.remove(root)
        words = {
            "routine": among.library.address(WAIT.name),
            "waits": among.waits,
            "number": self._numbers[root] + 1,
            "status": among.library.status,
            **self._request_words(root),
        }
        schedule.kernel(_done(_request_count(root)), [], 1, constants=list(words.values()))

    def progress(self, schedule: Schedule) -> None:
        """Let MPI move on the exchanges that are under way, if there are any."""
        if not self._under_way or self._requests is None:
            return
        first, last = self._under_way[0], self._under_way[-1]
        begin, end = self._request_numbers[first], self._request_numbers[last] + _request_count(last)
        requests = self._requests
        words = [_processes().library.address(TEST_ALL.name), end - begin, requests.address(begin), requests.statuses]
        schedule.kernel(_progress(), [], 1, constants=words)


def _processes() -> World:
    among = world()
    assert isinstance(among, World), "exchanges are of several processes"
    return among


def is_exchange(work: Work) -> TypeGuard[Collective]:
    """Whether a step is an exchange among processes, of which there are several."""
    return isinstance(work, Collective) and is_message(work.root) and isinstance(world(), World)


def _request_count(root: Instruction) -> int:
    return len(STARTING_ROUTINES[message_of(root).kind])


def _names(kind: str) -> list[str]:
    """The words of a step, in order."""
    return [*_COMMON, *dict.fromkeys(x for x in ROUTINES[kind].parameters if x not in _COMPUTED)]


def _start_names(kind: str) -> list[str]:
    """The words of the start of a step, in order."""
    routines = STARTING_ROUTINES[kind]
    of_each = [f"{name}{k}" for k in range(len(routines)) for name in ("routine", "request")]
    others = dict.fromkeys(x for routine in routines for x in routine.parameters if x not in (*_COMPUTED, "request"))
    return [*_STARTING, *of_each, *others]


_POINTERS = "operand result routine waits in_place communicator status request routine0 routine1 request0 request1"


@functools.cache
def _glue(kind: str, handle_bytes: int) -> Callable[[], int]:
    """Queue the code for a kind of exchange, where handles have so many bytes."""
    arguments, narrowed = _arguments(ROUTINES[kind], handle_bytes)
    text = _GLUE.substitute(
        NAME="glue",
        WORDS=load_words("table", _names(kind), _POINTERS),
        NARROWED="\n".join(narrowed),
        ARGUMENTS=arguments,
        MAX_COUNT=MAX_COUNT,
    )
    return start_function(text, "glue", is_cold=True)


@functools.cache
def _start(kind: str, handle_bytes: int) -> Callable[[], int]:
    """Queue the code that starts a kind of exchange."""
    calls: list[str] = []
    narrowed: dict[str, None] = {}
    for k, routine in enumerate(STARTING_ROUTINES[kind]):
        arguments, lines = _arguments(routine, handle_bytes)
        narrowed.update(lines)
        calls.append(f"  %error{k} = call i32 %routine{k}({arguments.replace('%request', f'%request{k}')})")
    text = _START.substitute(
        NAME="start",
        WORDS=load_words("table", _start_names(kind), _POINTERS),
        NARROWED="\n".join(narrowed),
        CALLS="\n".join(calls),
    )
    return start_function(text, "start", is_cold=True)


@functools.cache
def _done(requests: int) -> Callable[[], int]:
    """Queue the code that waits for so many requests."""
    names = [*_WAITING, *(f"request{k}" for k in range(requests))]
    calls = [f"  %error{k} = call i32 %routine(ptr %request{k}, ptr %status)" for k in range(requests)]
    text = _DONE.substitute(WORDS=load_words("table", names, _POINTERS), CALLS="\n".join(calls))
    return start_function(text, "done", is_cold=True)


@functools.cache
def _progress() -> Callable[[], int]:
    """Queue the code that lets MPI progress."""
    text = _PROGRESS.substitute(WORDS=load_words("table", _PROGRESSING, _POINTERS))
    return start_function(text, "progress", is_cold=True)


def _arguments(routine: Routine, handle_bytes: int) -> tuple[str, dict[str, None]]:
    """The arguments of a call of a routine as text, and lines that narrow words to what it takes."""
    lines: dict[str, None] = {}
    arguments: list[str] = []
    for name in routine.parameters:
        if name in BUFFERS:
            arguments.append(f"ptr %{name}")
        elif name == "count":
            arguments.append("i32 %count")
        elif name in HANDLES and handle_bytes == 8:
            arguments.append("i64 %handle" if name == "communicator" else f"i64 %{name}")
        else:
            arguments.append(f"i32 %narrow_{name}")
            word = "%handle" if name == "communicator" else f"%{name}"
            lines[f"  %narrow_{name} = trunc i64 {word} to i32"] = None
    return ", ".join(arguments), lines
