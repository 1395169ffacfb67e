"""Graph rewriter: visits the instructions of a computation in topological order, and builds a new computation from the
replacements.

Value numbering and dead code elimination are built in: equal instructions are created once, and only instructions that
the root or a side effect needs are kept. If nothing changes, the result is the computation itself, so that `is` tells
whether a pass changed something.

Instructions with unchanged operands are shared between the old and the new computation. A rewritten computation is
value-numbered (`VALUE_NUMBERED` is among its fixed points): until a rewrite creates its first instruction, nothing is
hashed.
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

_UNIQUE_OPS = frozenset({"parameter", "rng", "rng-get-and-update-state", "custom-call", "opt-barrier"})


def is_unique(x: Instruction) -> bool:
    """True if two equal instructions of this kind are not interchangeable, such as random numbers and allocations,
    by themselves or in a computation that they call."""
    inner = (y for called in x.computations() for y in called.instructions if y.op.name != "parameter")
    return x.op.name in _UNIQUE_OPS or any(map(is_unique, inner))


VALUE_NUMBERED = "value-numbered"  # no two instructions are equal, and each is needed


class Rewriter:
    """Creates the instructions of the new computation."""

    def __init__(self, is_numbered: bool = False) -> None:
        self.instructions: list[Instruction] = []
        self._by_key: dict[Any, Instruction] = {}
        self._is_numbered = is_numbered  # the instructions to keep are pairwise different
        self._source: SourceLine | None = None
        self._origin: Instruction | None = None
        self.visit: Visit = lambda *_: None  # the visitor of what is rewritten

    def emit(self, op: Operation, *operands: Instruction, **attributes: Any) -> Instruction:
        """A new instruction, with the source line of the instruction that is being rewritten."""
        shape = op.shape(*(x.shape for x in operands), **attributes)
        return self._make(op, operands, op.attributes(**attributes), shape)

    def copy(self, x: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """The instruction with other operands."""
        return self._make(x.op, tuple(operands), x.attributes, x.shape)

    def locate(self, x: Instruction) -> None:
        """Say that x is the instruction that is being rewritten: new ones have its source line, and stand for it."""
        self._source, self._origin = x.source, x.origin or x

    @property
    def scope(self) -> str:
        """That of the instruction that is being rewritten."""
        return self._source.scope if self._source else ""

    def keep(self, x: Instruction) -> Instruction:
        """The instruction itself, whose operands are kept, too; or an equal one before it."""
        if not self._is_numbered:
            key = _value_key(x)
            existing = self._by_key.get(key)
            if existing is not None and not _is_distinct(existing):
                return existing
            self._by_key[key] = x
        self.instructions.append(x)
        return x

    def _make(self, op: Any, operands: tuple[Instruction, ...], attributes: Any, shape: AnyShape) -> Instruction:
        if self._is_numbered:
            self._by_key.update((_value_key(x), x) for x in self.instructions)
            self._is_numbered = False
        key = (op.name, operands, attributes, shape)
        result = self._by_key.get(key)
        if result is None or _is_distinct(result):
            result = Instruction(op, operands, attributes, shape, self._source, origin=self._origin)
            self._by_key[key] = result
            self.instructions.append(result)
        return result

    def rewrite_body(self, computation: Computation, visit: Visit) -> Instruction:
        """The root of a computation after rewriting; its parameters stay."""
        self.visit = visit
        new: dict[Instruction, Instruction] = {p: self.keep(p) for p in computation.parameters}
        for x in computation.instructions:
            if x in new:
                continue
            self.locate(x)
            inputs = tuple([new[o] for o in x.operands])
            result = visit(self, x, inputs)
            if result is None:
                result = self.keep(x) if inputs == x.operands else self.copy(x, inputs)
            new[x] = result
        return new[computation.root]

    def splice(
        self,
        computation: Computation,
        operands: Sequence[Instruction],
        visit: Visit,
        scope: str = "",
        is_program_code: bool = False,
    ) -> Instruction:
        """Inline a computation, rewritten, with its parameters replaced, and its scopes inside of `scope`; returns its
        root. If the computation `is_program_code`, its instructions are origins of their own; otherwise they belong to
        the instruction that is being rewritten."""
        new: dict[Instruction, Instruction] = dict(zip(computation.parameters, operands, strict=True))
        outer_source, outer_origin = self._source, self._origin
        for x in computation.instructions:
            if x in new:
                continue
            self._source = x.source.inside(scope) if x.source else outer_source
            self._origin = x.origin or (x if is_program_code else outer_origin)
            inputs = tuple(new[o] for o in x.operands)
            result = visit(self, x, inputs)
            new[x] = self.copy(x, inputs) if result is None else result
        self._source, self._origin = outer_source, outer_origin
        return new[computation.root]


def _value_key(x: Instruction) -> tuple[Any, ...]:
    """A key that is equal for instructions that compute the same value."""
    return x.op.name, x.operands, x.attributes, x.shape


def _is_distinct(x: Instruction) -> bool:
    """True if an instruction that equals x may not replace x."""
    return x.has_side_effect or is_unique(x)


def rewrite(computation: Computation, visit: Visit) -> Computation:
    """The computation with instructions replaced: `visit(rewriter, x, operands)` returns the replacement of x, given
    its rewritten operands, or None to keep x. The result is the computation itself if nothing changes."""
    is_numbered = VALUE_NUMBERED in computation.fixed_points
    rewriter = Rewriter(is_numbered)
    root = rewriter.rewrite_body(computation, visit)
    if is_numbered and rewriter.instructions == computation.instructions:
        return computation
    needed = {root, *computation.parameters, *(x for x in rewriter.instructions if x.has_side_effect)}
    for x in reversed(rewriter.instructions):
        if x in needed:
            needed.update(x.operands)
    instructions = [x for x in rewriter.instructions if x in needed]
    if not _are_equivalent(computation.instructions, instructions):
        computation = Computation(computation.name, computation.parameters, instructions, root)
    computation.fixed_points.add(VALUE_NUMBERED)
    return computation


def _are_equivalent(before: Sequence[Instruction], after: Sequence[Instruction]) -> bool:
    """True if two lists of instructions are equal one by one."""
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


def for_opcodes(*opcodes: str) -> Callable[[Pass], Pass]:
    """Decorator of a pass that only visits instructions of these ops: the pass is skipped for computations without
    them."""

    def decorator(apply: Pass) -> Pass:
        @functools.wraps(apply)
        def filtered(computation: Computation) -> Computation:
            return computation if computation.opcodes.isdisjoint(opcodes) else apply(computation)

        return filtered

    return decorator


def to_fixed_point(apply: Pass) -> Pass:
    """Decorator of a pass that records the computations that it leaves unchanged, and skips them later. For passes
    that visit nested computations, which would be visited once for each computation around them otherwise."""
    name = apply.__name__

    @functools.wraps(apply)
    def memoized(computation: Computation) -> Computation:
        if name in computation.fixed_points:
            return computation
        result = apply(computation)
        if result is computation:
            computation.fixed_points.add(name)
        return result

    return memoized
