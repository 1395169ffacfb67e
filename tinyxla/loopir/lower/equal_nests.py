"""Value numbering of loop nests: of equal nests of a program, such as those of equal layers, the first one is lowered,
and the others are its kernels with other arguments.

Two nests are equal if the graphs of what they compute are, to the arrays in memory: operations, attributes, shapes,
what is stored and what is read outside. A kernel with an argument from elsewhere is lowered each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tinyxla.compiler.fusion.plan import Fusion, Plan, is_in_memory, producer_of, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.pointwise import lower
from tinyxla.ops import movement


class Lowerings:
    """The kernels of the nests of one plan."""

    def __init__(self, plan: Plan, users: Users) -> None:
        self._plan, self._users = plan, users
        self._found: dict[Any, tuple[list[Instruction], list[LoweredKernel]]] = {}

    def kernels(self, fusion: Fusion) -> list[LoweredKernel]:
        """The kernels of a nest."""
        nodes, key = fingerprint(fusion, self._plan, self._users)
        found = self._found.get(key)
        if found is not None:
            return _with_arguments(found[1], dict(zip(found[0], nodes, strict=True)))
        kernels = lower(fusion, self._plan, self._users)
        known = set(nodes)
        if all(isinstance(x, Temporary) or x in known for k in kernels for x in (*k.arguments, *k.roots)):
            self._found[key] = nodes, kernels
        return kernels


def _with_arguments(kernels: Sequence[LoweredKernel], new: dict[Instruction, Instruction]) -> list[LoweredKernel]:
    """The same kernels for other instructions; what no instruction stands for has memory of its own in each nest."""
    own: dict[Storage, Temporary] = {}

    def renamed(x: Storage) -> Storage:
        return new[x] if isinstance(x, Instruction) else own.setdefault(x, replace(x))

    return [replace(k, arguments=list(map(renamed, k.arguments)), roots=[new[x] for x in k.roots]) for k in kernels]


def fingerprint(fusion: Fusion, plan: Plan, users: Users) -> tuple[list[Instruction], Any]:
    """The instructions of a nest and the arrays that it reads, in an order that depends on the nest alone; and a key
    that is the same for equal nests."""
    number: dict[Instruction, int] = {}
    rows: list[Any] = []

    def enter(x: Instruction, operands: Sequence[Instruction]) -> None:
        number[x] = len(number)
        attributes = None if x.op is movement.parameter else x.attributes
        flags = x in plan.materialized, x in plan.live_out
        rows.append((x.op.name, attributes, x.shape, tuple(number[o] for o in operands), flags))

    def visit(roots: Iterable[Instruction]) -> None:
        waiting = [(x, False) for x in roots]
        while waiting:
            x, is_ready = waiting.pop()
            if x in number:
                continue
            if is_ready:
                enter(x, x.operands)
            elif is_in_memory(x, plan.materialized) and x not in own:
                enter(x, ())
            else:
                waiting.append((x, True))
                waiting += [(o, False) for o in reversed(x.operands)]

    own = set(map(producer_of, fusion.roots))
    visit(map(producer_of, fusion.roots))
    for root in map(producer_of, fusion.roots):
        for result in results_of(root, users):
            if result not in number:
                enter(result, [root])
    visit(fusion.reads)
    return list(number), (*rows, _of_nest(fusion, number))


def _of_nest(fusion: Fusion, number: dict[Instruction, int]) -> Any:
    across = None if fusion.cross_row is None else _of_nest(fusion.cross_row, number)
    roots, reads = ([number.get(x, -1) for x in xs] for xs in (fusion.roots, fusion.reads))
    return fusion.kind, fusion.outer, tuple(roots), tuple(reads), across
