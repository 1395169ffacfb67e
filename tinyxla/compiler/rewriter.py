"""Rewriting a computation: its instructions are visited in topological order, and those that change are made anew.

Value numbering and dead code elimination come with it: equal instructions are made once, and only what the root needs
is kept. A rewriting that changes nothing gives the computation itself, so `is` tells whether something has changed.

Instructions whose operands stay are shared by the old and the new computation. What has been rewritten once is numbered
already (`VALUE_NUMBERED` is among its fixed points): until a rewriting makes its first instruction, nothing is hashed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.errors import SourceLine
from tinyxla.hlo import Computation, Instruction, Operation
from tinyxla.shapes import AnyShape

Pass = Callable[[Computation], Computation]
Visit = Callable[["Rewriter", Instruction, tuple[Instruction, ...]], "Instruction | None"]

_UNSHARED = frozenset({"parameter", "rng", "rng-get-and-update-state", "custom-call", "opt-barrier"})


def is_unshared(x: Instruction) -> bool:
    """Whether two of them are two, even if they are equal: each gives a value of its own, itself or by a computation
    that it runs."""
    inner = (y for called in x.computations() for y in called.instructions if y.op.name != "parameter")
    return x.op.name in _UNSHARED or any(map(is_unshared, inner))


VALUE_NUMBERED = "value-numbered"  # no two instructions are equal, and the root needs each


class Rewriter:
    """Makes the instructions of the new computation."""

    def __init__(self, numbered: bool = False) -> None:
        self.instructions: list[Instruction] = []
        self._made: dict[Any, Instruction] = {}
        self._is_numbered = numbered  # what is kept differs from all else that is there
        self._source: SourceLine | None = None
        self._origin: Instruction | None = None

    def emit(self, op: Operation, *operands: Instruction, **attributes: Any) -> Instruction:
        """An instruction, with the source of the one that is being rewritten."""
        shape = op.shape(*(x.shape for x in operands), **attributes)
        return self._make(op, operands, op.attributes(**attributes), shape)

    def copy(self, x: Instruction, operands: Sequence[Instruction]) -> Instruction:
        return self._make(x.op, tuple(operands), x.attributes, x.shape)

    def keep(self, x: Instruction) -> Instruction:
        """The instruction itself, whose operands are kept, too; or the one before it that is equal."""
        if not self._is_numbered:
            key = _number(x)
            found = self._made.get(key)
            if found is not None and not _is_two(found):
                return found
            self._made[key] = x
        self.instructions.append(x)
        return x

    def _make(self, op: Any, operands: tuple[Instruction, ...], attributes: Any, shape: AnyShape) -> Instruction:
        if self._is_numbered:
            self._made.update((_number(x), x) for x in self.instructions)
            self._is_numbered = False
        key = (op.name, operands, attributes, shape)
        found = self._made.get(key)
        if found is None or _is_two(found):
            found = Instruction(op, operands, attributes, shape, self._source, origin=self._origin)
            self._made[key] = found
            self.instructions.append(found)
        return found

    def rewritten(self, computation: Computation, visit: Visit) -> Instruction:
        """The root of a computation, rewritten in place of its own parameters."""
        new: dict[Instruction, Instruction] = {p: self.keep(p) for p in computation.parameters}
        for x in computation.instructions:
            if x in new:
                continue
            self._source, self._origin = x.source, x.origin or x
            inputs = tuple([new[o] for o in x.operands])
            made = visit(self, x, inputs)
            if made is None:
                made = self.keep(x) if inputs == x.operands else self.copy(x, inputs)
            new[x] = made
        return new[computation.root]

    def splice(
        self, computation: Computation, operands: Sequence[Instruction], visit: Visit, own: bool = False
    ) -> Instruction:
        """The instructions of a computation, rewritten, with its parameters replaced; gives its root. They are the
        program's `own`, or else parts of the instruction that is being rewritten."""
        new: dict[Instruction, Instruction] = dict(zip(computation.parameters, operands, strict=True))
        outer, whole = self._source, self._origin
        for x in computation.instructions:
            if x in new:
                continue
            self._source, self._origin = x.source or outer, x.origin or (x if own else whole)
            inputs = tuple(new[o] for o in x.operands)
            made = visit(self, x, inputs)
            new[x] = self.copy(x, inputs) if made is None else made
        self._source, self._origin = outer, whole
        return new[computation.root]


def _number(x: Instruction) -> tuple[Any, ...]:
    """Equal for instructions that compute the same."""
    return x.op.name, x.operands, x.attributes, x.shape


def _is_two(x: Instruction) -> bool:
    """Whether an instruction that is equal to x is another one all the same."""
    return x.has_side_effect or is_unshared(x)


def rewrite(computation: Computation, visit: Visit) -> Computation:
    """`visit(rewriter, x, operands)` gives what stands for x, whose operands have been rewritten; None keeps it. Where
    nothing changes, the result is the computation itself."""
    numbered = VALUE_NUMBERED in computation.fixed_points
    rewriter = Rewriter(numbered)
    root = rewriter.rewritten(computation, visit)
    if numbered and rewriter.instructions == computation.instructions:
        return computation
    needed = {root, *computation.parameters, *(x for x in rewriter.instructions if x.has_side_effect)}
    for x in reversed(rewriter.instructions):
        if x in needed:
            needed.update(x.operands)
    instructions = [x for x in rewriter.instructions if x in needed]
    if not _are_same(computation.instructions, instructions):
        computation = Computation(computation.name, computation.parameters, instructions, root)
    computation.fixed_points.add(VALUE_NUMBERED)
    return computation


def _are_same(before: Sequence[Instruction], after: Sequence[Instruction]) -> bool:
    """Whether two lists of instructions are equal one by one."""
    if len(before) != len(after):
        return False
    counterpart = dict(zip(before, after, strict=True))
    return all(
        x.op is y.op
        and (x.attributes is y.attributes or x.attributes == y.attributes)
        and x.shape == y.shape
        and len(x.operands) == len(y.operands)
        and all(counterpart[a] is b for a, b in zip(x.operands, y.operands, strict=True))
        for x, y in counterpart.items()
    )


def of_opcodes(*opcodes: str) -> Callable[[Pass], Pass]:
    """A pass that looks at instructions of these ops alone: without one of them it has nothing to visit."""

    def decorator(apply: Pass) -> Pass:
        @functools.wraps(apply)
        def changed(computation: Computation) -> Computation:
            return computation if computation.opcodes.isdisjoint(opcodes) else apply(computation)

        return changed

    return decorator


def to_fixed_point(apply: Pass) -> Pass:
    """A pass that remembers which computations it leaves as they are, and does not visit them again. For passes that
    visit nested computations, which are otherwise visited once for each computation around them."""
    name = apply.__name__

    @functools.wraps(apply)
    def changed(computation: Computation) -> Computation:
        if name in computation.fixed_points:
            return computation
        found = apply(computation)
        if found is computation:
            computation.fixed_points.add(name)
        return found

    return changed
