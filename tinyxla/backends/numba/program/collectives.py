"""Collective operations among processes as steps of a schedule: native code that calls MPI.

The code of a routine of MPI is printed from its list of parameters, and knows neither addresses nor sizes: these are
words of the step. So one object file on disk serves all programs and processes.
"""

from __future__ import annotations

import functools
from string import Template
from typing import TypeGuard

from tinyxla.backends.numba.jit.engine import compile_llvm
from tinyxla.backends.numba.runtime.bytecode import Schedule
from tinyxla.compiler.fusion.plan import Collective
from tinyxla.compiler.schedule.blocks import Block, Work, inner_blocks
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.ops.process_collectives import is_message, message_of, step_of
from tinyxla.runtime.mpi.calls import ROUTINES, Call, call_of
from tinyxla.runtime.mpi.comparison import Communicator, Part, Step
from tinyxla.runtime.mpi.library import BUFFERS, HANDLES, MAX_COUNT
from tinyxla.runtime.mpi.world import World, world

# `waits` are two words that tell which step waits for others, and how many have; see `World`.
_GLUE = Template("""
define void @glue(ptr %table, i64 %first, i64 %last) {
entry:
$WORDS
  call void @llvm.memset.p0.i64(ptr %result, i8 0, i64 %zero_bytes, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %result, ptr %operand, i64 %copy_bytes, i1 false)
  br i1 (icmp sgt i64 %elements, 0), label %wait, label %done
wait:
  store i64 %number, ptr %waits
  %handle = load i64, ptr %communicator
  %is_in_place = icmp eq ptr %operand, %result
  br label %next
next:
  %start = phi i64 [ 0, %wait ], [ %end, %next ]
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
waited:
  store i64 0, ptr %waits
  store i64 (add i64 (load i64, ptr %waits[1]), 1), ptr %waits[1]
  br label %done
done:
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
""")
_COMMON = "operand result routine waits number in_place elements item_bytes zero_bytes copy_bytes".split()
_COMPUTED = frozenset({"send", "receive", "count"})  # parameters that the code computes


class Exchanges:
    """The exchanges among processes of a program: as steps of its schedule, and as the part of the program that
    processes compare before they run it. `count` is how many there are."""

    def __init__(self, name: str, block: Block) -> None:
        self._numbers: dict[Instruction, int] = {}
        self._steps: list[Step] = []
        self._participants: set[int] = set()
        self._communicators: dict[Communicator, None] = {}
        self._name = name
        self._collect(block)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def part(self) -> Part:
        return Part(self._name, tuple(self._steps), tuple(sorted(self._participants)), tuple(self._communicators))

    def _collect(self, block: Block) -> None:
        for step in block.steps:
            work = step.work
            if is_exchange(work):
                self._numbers[work.root] = len(self._steps)
                message, operand = message_of(work.root), work.root.operands[0].array_shape
                self._steps.append(step_of(message, operand, str(work.root.source or "")))
                self._participants.update(message.participants)
            for number, inner in enumerate(inner_blocks(step)):
                self._steps.append(Step(f"computation {number} of a loop or branch, with"))
                before = len(self._steps)
                self._collect(inner)
                if len(self._steps) == before:
                    self._steps.pop()

    def append(self, root: Instruction, operand: int, result: int, schedule: Schedule) -> None:
        """Append an exchange to a schedule, with the slots of its operand and result."""
        among = world()
        assert isinstance(among, World), "exchanges are of several processes"
        call = call_of(message_of(root), root.operands[0].array_shape, among)
        if call.communicator is not None:
            self._communicators[call.communicator] = None
        schedule.kernel(
            _glue(call.kind, among.library.handle_bytes), [operand, result], 1, constants=self._words(call, root, among)
        )

    def _words(self, call: Call, root: Instruction, among: World) -> list[int]:
        library, routine = among.library, ROUTINES[call.kind]
        given = {
            **call._asdict(),
            **call.words,
            "routine": library.address(routine.name),
            "waits": among.waits,
            "number": self._numbers[root] + 1,
            "in_place": library.in_place,
            "communicator": call.communicator.cell if call.communicator is not None else 0,
            "status": library.status,
        }
        return [given.get(name, 0) for name in _names(call.kind)[2:]]


def is_exchange(work: Work) -> TypeGuard[Collective]:
    """Whether a step is an exchange among processes, of which there are several."""
    return isinstance(work, Collective) and is_message(work.root) and isinstance(world(), World)


def _names(kind: str) -> list[str]:
    """The words of a step, in order."""
    return [*_COMMON, *dict.fromkeys(x for x in ROUTINES[kind].parameters if x not in _COMPUTED)]


@functools.cache
def _glue(kind: str, handle_bytes: int) -> int:
    """The address of the code for a kind of exchange, where handles have so many bytes."""
    pointers = "operand result routine waits in_place communicator status"
    lines: list[str] = []
    arguments: list[str] = []
    for name in ROUTINES[kind].parameters:
        if name in BUFFERS:
            arguments.append(f"ptr %{name}")
        elif name == "count":
            arguments.append("i32 %count")
        elif name in HANDLES and handle_bytes == 8:
            arguments.append("i64 %handle" if name == "communicator" else f"i64 %{name}")
        else:
            arguments.append(f"i32 %narrow_{name}")
            word = "%handle" if name == "communicator" else f"%{name}"
            lines.append(f"  %narrow_{name} = trunc i64 {word} to i32")
    text = _GLUE.substitute(
        WORDS=load_words("table", _names(kind), pointers),
        NARROWED="\n".join(dict.fromkeys(lines)),
        ARGUMENTS=", ".join(arguments),
        MAX_COUNT=MAX_COUNT,
    )
    return compile_llvm(text, ["glue"], is_cold=True)["glue"]
