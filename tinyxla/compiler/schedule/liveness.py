"""Liveness analysis: when each memory of a program is in use.

Time counts the steps in the order in which they run. What is live-in of a loop and accessed in it is live until the end
of the loop; what the branches of concurrent blocks access is live while any of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.compiler.schedule.blocks import AliasMap, Block, ConcurrentBlocks, LoopBlocks, Pointer, SwitchBlocks
from tinyxla.hlo import Instruction, is_constant
from tinyxla.loopir.lower.emit import Storage


class Liveness:
    """Live ranges of a program's memories, from `visit` of its block: `spans` has the times of the first and the last
    access of each, `constants` and `pointers` those that have none, and `starts` the time at which each step begins."""

    def __init__(self, aliases: AliasMap) -> None:
        self.starts: list[int] = []
        self.spans: dict[Storage, tuple[int, int]] = {}
        self.constants: dict[Instruction, None] = {}
        self.pointers: dict[Pointer, None] = {}
        self.aliases = aliases
        self._time = 0
        self._accessed: list[Storage] = []  # in the order of the steps, more than once
        self._targets: dict[Pointer, list[Storage]] = {}  # memories that a pointer may point to

    def visit(self, block: Block) -> None:
        for step in block.steps:
            self._time += 1
            self.starts.append(self._time)
            self._access_all([*step.reads, *step.writes])
            if isinstance(step.work, LoopBlocks):
                self._visit_loop(step.work)
            elif isinstance(step.work, SwitchBlocks):
                self._access_all([step.work.index])
                for inside in step.work.blocks:
                    self.visit(inside)
                    self._access_all(inside.results)
                self._access_all(step.work.results)
            elif isinstance(step.work, ConcurrentBlocks):
                self._visit_concurrent(step.work)
        self._time += 1
        self._access_all(block.results)

    def _visit_loop(self, loop: LoopBlocks) -> None:
        start, before = self._time, len(self._accessed)
        self._access_all([loop.counter, *(row.pointer for row in loop.row_pointers)])
        for rotating in loop.rotating:
            self._access_all([*rotating.initials, *rotating.buffers, *rotating.pointers])
        self.visit(loop.condition)
        self.visit(loop.body)
        self._time += 1
        for rotating in loop.rotating:
            self._access_all([*rotating.initials, *rotating.buffers])
        self._accessed[before:] = dict.fromkeys(self._accessed[before:])
        for x in self._accessed[before:]:
            first, last = self.spans[x]
            if first < start <= last:  # live-in of the loop: live in all iterations
                self.spans[x] = (first, self._time)

    def _visit_concurrent(self, concurrent: ConcurrentBlocks) -> None:
        """Concurrent blocks: the live range of what one of them accesses spans them all."""
        start, before = self._time, len(self._accessed)
        for inside in concurrent.blocks:
            self.visit(inside)
        self._accessed[before:] = dict.fromkeys(self._accessed[before:])
        for x in self._accessed[before:]:
            first, last = self.spans[x]
            self.spans[x] = (min(first, start), max(last, self._time))

    def _access_all(self, storages: Sequence[Storage]) -> None:
        for x in storages:
            memory = self.aliases[x]
            if isinstance(memory, Pointer):
                for target in self._memories(memory):
                    self._access(target)
            else:
                self._access(memory)

    def _memories(self, pointer: Pointer) -> list[Storage]:
        """The memories that a pointer may point to, directly or by way of other pointers."""
        if pointer not in self._targets:
            self.pointers[pointer] = None
            found: dict[Storage, None] = {}
            for memory in map(self.aliases.__getitem__, pointer.targets):
                found.update(dict.fromkeys(self._memories(memory) if isinstance(memory, Pointer) else [memory]))
            self._targets[pointer] = list(found)
        return self._targets[pointer]

    def _access(self, memory: Storage) -> None:
        if isinstance(memory, Instruction) and is_constant(memory):
            self.constants[memory] = None
        else:
            self.spans[memory] = (self.spans[memory][0] if memory in self.spans else self._time, self._time)
            self._accessed.append(memory)
