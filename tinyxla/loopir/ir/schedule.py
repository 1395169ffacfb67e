"""Schedules of kernels, for reading: the directives that turn a plain nest into the loops that run, in Halide's terms.

Lowerings and passes note what the loops no longer show (`fuse`, `split`, `reorder`, `unroll`, `partition`,
`pipeline`); everything else is read off the kernel (`schedule_of`), so that a schedule cannot differ from it.

- `fuse`: dimensions that are one loop. `split`: a loop in tiles. `reorder`: another order of loops.
- `unroll`: iterations side by side in the body. `partition`: a loop in ranges that test no bounds.
- `pipeline`: rows are loaded one iteration early. `vectorize`: a loop that a lowering forces into vectors; of others
  `passes.vectorize_loops` and LLVM decide.
- `stage`: a buffer in a cache or in registers. `prefetch`, `nontemporal`: arrays.
- `parallel`: the extent of the outermost loop, and the chunks in which threads share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeGuard

from tinyxla.loopir.ir.loop_ir import Call, Kernel, Loop, Multiply, Statement
from tinyxla.loopir.ir.prefetch import PREFETCH_READ, PREFETCH_WRITE

NONTEMPORAL_STORE, FENCE = "stream", "fence"  # routines
_WITHOUT_EFFECT = (PREFETCH_READ, PREFETCH_WRITE, FENCE)


class Directive(NamedTuple):
    """A directive of a schedule with its arguments as text."""

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


def schedule_of(
    kernel: Kernel, extent: int, grain: int, in_order: bool, noted: Iterable[Directive], names: Sequence[str]
) -> list[Directive]:
    """The directives of a kernel whose arguments have these names, the noted ones first."""
    name_of = dict(zip(kernel.arguments, names, strict=True))
    statements = list(_walk(kernel.body))
    found = list(dict.fromkeys(noted))
    found += [Directive("stage", (f"{x.type}[{x.size}]",)) for x in kernel.scratch]
    found += [Directive("vectorize", (_trip_count(x, kernel),)) for x in statements if _is_vectorized(x)]
    routines: dict[str, None] = {}
    for x in statements:
        if isinstance(x, Multiply):
            routines["gemm"] = None
        elif isinstance(x, Call):
            targets = [name_of[buffer] for buffer, _ in x.arguments if buffer in name_of]
            if x.routine in (PREFETCH_READ, PREFETCH_WRITE):
                found.append(Directive("prefetch", tuple(dict.fromkeys(targets))))
            elif x.routine.startswith(NONTEMPORAL_STORE):
                found.append(Directive("nontemporal", tuple(dict.fromkeys(targets))))
            elif x.routine not in _WITHOUT_EFFECT:
                routines[x.routine] = None
    found += [Directive("call", (name,)) for name in routines]
    if extent > grain:
        found.append(Directive("parallel", (f"{extent} by {grain}", *(["in order"] if in_order else []))))
    return list(dict.fromkeys(found))


def loops_of(kernel: Kernel) -> str:
    """The loops of a kernel as one line: trip counts, with the loops inside in braces. The outermost index runs over a
    `chunk`; `n` is a trip count that depends on indices."""
    return " ".join(_loops(kernel.body, kernel))


def _loops(statements: Sequence[Statement], kernel: Kernel) -> Iterator[str]:
    for x in statements:
        if isinstance(x, Loop):
            inside = " ".join(_loops(x.body, kernel))
            yield _trip_count(x, kernel) + (f" {{ {inside} }}" if inside else "")


def _trip_count(loop: Loop, kernel: Kernel) -> str:
    if isinstance(loop.start, int) and isinstance(loop.stop, int):
        return str(loop.stop - loop.start)
    return "chunk" if kernel.first in (loop.start, loop.stop) else "n"


def _is_vectorized(x: Statement) -> TypeGuard[Loop]:
    return isinstance(x, Loop) and x.force_vectorize


def _walk(statements: Iterable[Statement]) -> Iterator[Statement]:
    for x in statements:
        yield x
        if isinstance(x, Loop):
            yield from _walk(x.body)
