"""Asking for lines of the cache before they are needed, by routines that kernels of the loop IR call.

A processor gets all that the memory can give only if it waits for many lines at once: it takes a fifth of a microsecond
until one is there. By itself it asks for few, and reads ahead within a page of 4096 bytes, in each page apart. So what
comes in pieces, such as rows or blocks, is best asked for in parts of several pieces at once: with each piece, the last
part of the next one, the part before that of the one after it, and so on. When its turn comes, all of a piece was asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tinyxla.loopir.ir.affine import IndexRewriter, is_unit_stride
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Call, Compute, Index, Load, Loop, Statement, Value
from tinyxla.loopir.ir.operations import is_function
from tinyxla.loopir.ir.routines import declare_llvm

REQUEST, CLAIM = "request", "claim"  # routines that change nothing
PARTS = 8  # of a piece
_SHORT = ("convert", "bitcast-convert")  # functions that take little time
_LONG = ("divide", "sqrt")  # instructions that take much

PrefetchStream = tuple[tuple[Buffer, Index], ...]  # those from one element to another


def prefetch_loop(name: str, lines: Callable[[IndexRewriter, Value, Value], Iterable[PrefetchStream]]) -> Loop:
    """A loop that asks for parts of the pieces that follow. `lines` gives what to ask for of the piece that is so many
    ahead, of whose parts that of a number is meant."""
    part, inside = Value(INDEX, f"{name}_part"), IndexRewriter()
    ahead = inside.compute(f"{name}_ahead", "subtract", PARTS, part)
    calls = [Call(declare_prefetch_read(), ends) for ends in lines(inside, ahead, part)]
    return Loop(part, 0, PARTS, [*inside.statements, *calls], [])


def prefetch_stream_of(
    load: Load, inside: IndexRewriter, body: Sequence[Statement], ends: Sequence[Mapping[Value, Index]], name: str
) -> PrefetchStream:
    """What a load in the body of a loop reads, from where some indices have their first values to the last ones."""
    return tuple((load.buffer, inside.at(load.index, body, at, f"{name}{k}")) for k, at in enumerate(ends))


def loads_of_arguments(loop: Loop) -> Iterator[Load]:
    """Those that go along what nothing changes, element by element."""
    for x in loop.body:
        if isinstance(x, Load) and x.buffer.size is None and not x.buffer.written and is_unit_stride(x.index, loop):
            yield x


def computes_long(loop: Loop) -> bool:
    """Whether it computes what takes its time: functions, quotients or roots."""
    return any(x.op in _LONG or (is_function(x) and x.op not in _SHORT) for x in loop.body if isinstance(x, Compute))


def declare_prefetch_read() -> str:
    """Let kernels call the routine that asks for what will be read soon, up to an address; its name."""
    return _provide(REQUEST, "i32 0, i32 2")


def declare_prefetch_write() -> str:
    """The same of what will be written soon: else the first store to a line waits for it, and for the right to it."""
    return _provide(CLAIM, "i32 1, i32 3")


def _provide(name: str, hints: str) -> str:
    declare_llvm(name, _TEXT.replace("$HINTS", hints), "request", final=True)
    return name


_TEXT = """
define void @request(ptr %from, ptr %to) {
entry:
  %start = call ptr @llvm.ptrmask.p0.i64(ptr %from, i64 -64)
  %end = ptrtoint ptr %to to i64
  br label %line
line:
  %at = phi ptr [ %start, %entry ], [ %next, %line ]
  call void @llvm.prefetch.p0(ptr %at, $HINTS, i32 1)
  %next = getelementptr i8, ptr %at, i64 64
  %here = ptrtoint ptr %next to i64
  br i1 (icmp ult i64 %here, %end), label %line, label %done
done:
  ret void
}

declare ptr @llvm.ptrmask.p0.i64(ptr, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""
