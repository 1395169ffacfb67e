"""Value numbering of loop nests: of equal nests in a program, such as those of equal layers, one is lowered; the others
reuse its kernels with other arguments.

Two nests are equal if the graphs of their instructions are, down to arrays in memory: operations, attributes, shapes,
and which instructions are materialized and live-out. A kernel with an argument that is no node of this graph is lowered
anew each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tinyxla.compiler.fusion.plan import LoopNest, Plan, is_in_memory, producer_of, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.pointwise import lower
from tinyxla.ops import movement

# By the keys of nests: the instructions of one, in order, and its kernels.
LoweredNests = dict[Any, tuple[list[Instruction], list[LoweredKernel]]]


class Lowerings:
    """Lowers the nests of one plan, each distinct nest of a program once: `lowered` are those of its other plans."""

    def __init__(self, plan: Plan, users: Users, lowered: LoweredNests) -> None:
        self._plan, self._users = plan, users
        self._cache = lowered

    def kernels(self, fusion: LoopNest) -> list[LoweredKernel]:
        """The kernels of a nest."""
        nodes, key = fingerprint(fusion, self._plan, self._users)
        cached = self._cache.get(key)
        if cached is not None:
            return _with_arguments(cached[1], dict(zip(cached[0], nodes, strict=True)))
        kernels = lower(fusion, self._plan, self._users)
        graph = set(nodes)
        if all(isinstance(x, Temporary) or x in graph for k in kernels for x in (*k.arguments, *k.roots)):
            self._cache[key] = nodes, kernels
        return kernels


def _with_arguments(kernels: Sequence[LoweredKernel], new: dict[Instruction, Instruction]) -> list[LoweredKernel]:
    """The same kernels with instructions substituted; each nest has temporaries of its own."""
    temporaries: dict[Storage, Temporary] = {}

    def substitute(x: Storage) -> Storage:
        return new[x] if isinstance(x, Instruction) else temporaries.setdefault(x, replace(x))

    return [replace(k, arguments=list(map(substitute, k.arguments)), roots=[new[x] for x in k.roots]) for k in kernels]


def fingerprint(fusion: LoopNest, plan: Plan, users: Users) -> tuple[list[Instruction], Any]:
    """The instructions of a nest and the arrays that it reads, in an order determined by the nest alone; and a key
    that is equal for equal nests."""
    ordinals: dict[Instruction, int] = {}
    entries: list[Any] = []

    def enter(x: Instruction, operands: Sequence[Instruction]) -> None:
        ordinals[x] = len(ordinals)
        attributes = None if x.op is movement.parameter else x.attributes
        flags = x in plan.materialized, x in plan.live_out
        entries.append((x.op.name, attributes, x.shape, tuple(ordinals[o] for o in operands), flags))

    def visit(outputs: Iterable[Instruction]) -> None:
        pending = [(x, False) for x in outputs]
        while pending:
            x, is_ready = pending.pop()
            if x in ordinals:
                continue
            if is_ready:
                enter(x, x.operands)
            elif is_in_memory(x, plan.materialized) and x not in roots:
                enter(x, ())
            else:
                pending.append((x, True))
                pending += [(o, False) for o in reversed(x.operands)]

    roots = set(map(producer_of, fusion.roots))
    visit(map(producer_of, fusion.roots))
    for root in map(producer_of, fusion.roots):
        for result in results_of(root, users):
            if result not in ordinals:
                enter(result, [root])
    visit(fusion.reads)
    return list(ordinals), (*entries, _nest_key(fusion, ordinals))


def _nest_key(fusion: LoopNest, ordinals: dict[Instruction, int]) -> Any:
    cross_row = None if fusion.cross_row is None else _nest_key(fusion.cross_row, ordinals)
    roots, reads = ([ordinals.get(x, -1) for x in xs] for xs in (fusion.roots, fusion.reads))
    return fusion.kind, fusion.outer, tuple(roots), tuple(reads), cross_row
