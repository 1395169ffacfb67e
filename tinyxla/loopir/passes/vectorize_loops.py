"""Loop vectorization (strip mining): innermost loops become loops over vectors, with a masked vector or a scalar loop
for the remainder.

LLVM's loop vectorizer does the same; with the passes that prepare its loops and clean up after it, it takes most of the
time of a compilation. A kernel all of whose innermost loops are vectorized here needs none of them: loop-invariant code
is hoisted here, too, and several vectors are interleaved to hide the latency of reductions. How a sum is split among
accumulators then depends on the kernel and on the width of vectors alone.

Applies to loops of elementwise operations that load with unit stride, or gather, and store with unit stride, and whose
loop-carried values are reductions. Not to complex numbers, small strides, operations with slow paths, and loops that
end early: these are left to LLVM.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal as Choice

from tinyxla.compiler.costs import INTERLEAVED, LINE_BYTES, MAX_INSTRUCTIONS, MAX_UNROLLED
from tinyxla.loopir.ir.affine import WIDE, stride_of
from tinyxla.loopir.ir.loop_ir import (
    INDEX,
    LONG_LOOP_ITERATIONS,
    Buffer,
    Call,
    Compute,
    Gather,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    LoopCarried,
    Operand,
    Shuffle,
    Statement,
    Store,
    Value,
    View,
    lanes_of,
    operand_of,
)
from tinyxla.loopir.ir.operations import (
    has_slow_path,
    is_index_arithmetic,
    is_vector_code,
    max_element_bytes,
)
from tinyxla.loopir.ir.types import COMPONENT_BYTES
from tinyxla.loopir.passes.split_nan_check import split_nan_check
from tinyxla.ops import ops
from tinyxla.ops.op import TRANSCENDENTAL

# Loop-invariant, the loop's index plus a loop-invariant number, or different for each iteration.
Kind = Choice["uniform", "induction", "varying"]

_PAIRS = ("c64", "c128")  # two numbers in memory
_FLOATS = ("f16", "bf16", "f32", "f64")
_IDEMPOTENT = frozenset("and or maximum minimum".split())
_NEUTRAL = {  # the elements that reductions begin with which may not combine the initial value several times
    "add": 0,
    "multiply": 1,
    "maximum-of-numbers": -math.inf,
    "minimum-of-numbers": math.inf,
}
_SHORT_BODY, _LONG_BODY = 8, 24  # work in additions up to which four vectors of a reduction are interleaved, and two
_MAX_STATEMENTS = MAX_INSTRUCTIONS // 4  # of a loop; longer ones are compiled with other options


def are_vectorizable(statements: Sequence[Statement], vector_bytes: int, has_masks: bool) -> bool:
    """Whether all innermost loops can be vectorized and have enough iterations, and all else is scalar code and
    calls."""
    waiting, innermost = list(statements), list[Loop]()
    for x in waiting:
        if not isinstance(x, (Loop, Compute, Load, Store, Call)):
            return False
        if isinstance(x, Loop):
            if _is_outer(x):
                waiting += x.body
            else:
                innermost.append(x)
    return bool(innermost) and all(_is_vectorizable(x, vector_bytes, has_masks) for x in innermost)


def _is_outer(loop: Loop) -> bool:
    return any(isinstance(x, (Loop, Call)) for x in loop.body)


def _is_vectorizable(loop: Loop, vector_bytes: int, has_masks: bool) -> bool:
    count, lanes = loop.trip_count, _max_lanes(loop, vector_bytes)
    is_short = count is not None and count < (min(lanes, MAX_UNROLLED + 1) if has_masks else lanes)
    return not is_short and len(loop.body) < _MAX_STATEMENTS and kinds_of(loop) is not None


def _max_lanes(loop: Loop, vector_bytes: int) -> int:
    """Elements of a vector: as many as a register holds of the widest type; 16-bit floats are computed in 32 bits."""
    has_floats = any(x.result.type in _FLOATS for x in loop.body if isinstance(x, (Compute, Load)))
    return vector_bytes // max(max_element_bytes(loop), 4 if has_floats else 1)


def kinds_of(loop: Loop) -> dict[str, Kind] | None:
    """The kinds of the values that a loop computes; None if it cannot be vectorized."""
    if loop.sequential or loop.continue_while is not None or is_vector_code(loop.body):
        return None
    if not all(_reduction(x, loop.body) for x in loop.carried):
        return None
    kinds: dict[str, Kind] = {loop.index.name: "induction", **{x.arg.name: "varying" for x in loop.carried}}

    def of(x: Operand | Index) -> Kind:
        return kinds.get(x.name, "uniform") if isinstance(x, Value) else "uniform"

    for x in loop.body:
        if isinstance(x, Compute):
            found = _kind_of_result(x, [of(operand) for operand in x.operands])
            if found is None:
                return None
            kinds[x.result.name] = found
        elif isinstance(x, Load):
            kind = of(x.index)
            if x.buffer.type in _PAIRS or (kind == "varying" and not _is_gathered(x, loop)):
                return None
            kinds[x.result.name] = "uniform" if kind == "uniform" else "varying"
        elif not (isinstance(x, Store) and of(x.index) == "induction" and x.buffer.type not in _PAIRS):
            return None
    return kinds


def _kind_of_result(x: Compute, kinds: Sequence[Kind]) -> Kind | None:
    if all(kind == "uniform" for kind in kinds):
        return "uniform"
    if is_index_arithmetic(x):
        is_sum = x.op == "add" and "varying" not in kinds and kinds.count("induction") == 1
        if is_sum or (x.op == "subtract" and list(kinds) == ["induction", "uniform"]):
            return "induction"
        return None if x.op in ("divide", "remainder") else "varying"
    if has_slow_path(x) or any(type in _PAIRS for type in (x.result.type, *(o.type for o in x.operands))):
        return None
    is_narrowed = x.op == "convert" and kinds[0] == "induction" and x.operands[0].type == INDEX
    return "induction" if is_narrowed and x.result.type in ("s32", "u32") else "varying"


def _is_gathered(x: Load, loop: Loop) -> bool:
    """Whether elements are gathered: they have no stride, or one so large that no two are in a cache line. LLVM loads
    what is nearer as whole vectors, and shuffles them."""
    assert isinstance(x.index, Value), "the index varies"
    width, stride = COMPONENT_BYTES[x.buffer.type], stride_of(loop.index, x.index, loop.body)
    return width >= 4 and (math.isnan(stride) or abs(stride) * width >= LINE_BYTES)


def _reduction(carried: LoopCarried, body: Sequence[Statement]) -> Compute | None:
    """The operation that combines a loop-carried value with one operand per iteration, if it may be reassociated and
    nothing else reads the value."""
    found: Compute | None = None
    for x in body:
        read = x.operands if isinstance(x, Compute) else (x.value,) if isinstance(x, Store) else ()
        if carried.next in read:
            return None
        if carried.arg in read:
            if found or not isinstance(x, Compute) or x.result is not carried.next:
                return None
            found = x
    if found is None or found.operands.count(carried.arg) > 1:
        return None
    is_exact = carried.arg.type not in _FLOATS or dict(found.attributes).get("reassociate", False)
    is_extremum = found.op in _IDEMPOTENT or found.op.endswith("-of-numbers")
    return found if is_extremum or (found.op in _NEUTRAL and is_exact) else None


def vectorized(kernel: Kernel, vector_bytes: int, has_masks: bool) -> Kernel:
    """The kernel with each innermost loop that can be vectorized as a loop over vectors of so many bytes."""
    return replace(kernel, body=_block(kernel.body, kernel, vector_bytes, has_masks))


def _block(statements: Sequence[Statement], kernel: Kernel, vector_bytes: int, has_masks: bool) -> list[Statement]:
    result: list[Statement] = []
    for x in statements:
        if not isinstance(x, Loop) or (x.sequential and not _is_outer(x)):
            result.append(x)
        elif _is_outer(x):
            result.append(replace(x, body=_block(x.body, kernel, vector_bytes, has_masks)))
        else:
            result += _vectors(x, kernel, vector_bytes, has_masks)
    return result


def _vectors(x: Loop, kernel: Kernel, vector_bytes: int, has_masks: bool) -> Sequence[Statement]:
    """What an innermost loop becomes."""
    before, loop, after = split_nan_check(x, kernel.first)
    count, lanes, kinds = loop.trip_count, _max_lanes(x, vector_bytes), kinds_of(loop)
    if count is not None and 0 < count < lanes:
        lanes = 1 << ((count - 1).bit_length() if has_masks else count.bit_length() - 1)
    if kinds is None or lanes < 2 or count == 0:
        return [x]
    is_nonempty = bool(count) or loop.nonempty or (loop.start is kernel.first and loop.stop is kernel.last)
    return [*before, *_StripMining(loop, kinds, lanes, has_masks, is_nonempty).statements(), *after]


@dataclass(slots=True)
class _Strip:
    """A vector of iterations while its statements are emitted: the offset of its first lane from that of the first
    vector of a step, the mask of its lanes, and the vectors of the values that vary."""

    offset: int
    mask: Value | None
    vectors: dict[Operand, Operand]


class _StripMining:
    """Emits the statements that a loop becomes."""

    def __init__(self, loop: Loop, kinds: Mapping[str, Kind], lanes: int, has_masks: bool, is_nonempty: bool) -> None:
        self.loop, self.kinds, self.lanes = loop, kinds, lanes
        self.has_masks, self.is_nonempty = has_masks, is_nonempty
        self.reductions = [x for c in loop.carried if (x := _reduction(c, loop.body))]
        self.emitted: list[Statement] = []
        self.broadcasts: dict[Operand, Value] = {}  # the vectors of uniform values
        self.bases: dict[Operand, Index] = {loop.index: 0}  # of induction values: what the loop's index is added to
        self.views: dict[tuple[Buffer, Operand], Buffer] = {}  # the elements of buffers from such a base on
        self.index: Index = 0  # the loop's, in the first lane of a step
        self.count = 0  # of new names
        uniform = [x for x in loop.body if not isinstance(x, Store) and self._kind(_result(x)) == "uniform"]
        self.stays = self._hoist(uniform)
        self.indices = [x for x in loop.body if isinstance(x, Compute) and self._kind(x.result) == "induction"]
        varying = [x for x in loop.body if isinstance(x, Store) or self._kind(_result(x)) == "varying"]
        last = max((k for k, x in enumerate(varying) if not isinstance(x, Store)), default=-1) + 1
        self.varying, self.stores = varying[:last], varying[last:]
        if not self.stays:
            self._find_bases()

    def statements(self) -> list[Statement]:
        loop, count = self.loop, self.loop.trip_count
        vectors = [self._neutral(c, x) for c, x in zip(loop.carried, self.reductions, strict=True)]
        place: Index = loop.start
        if count is None:
            interleave = self._interleaved()
            size = self._index("maximum", self._index("subtract", loop.stop, place), 0)
            whole = self._compute(INDEX, "and", (operand_of(size), Literal(INDEX, -self.lanes * interleave)))
            middle = self._index("add", place, whole)
            vectors, place = self._loop(place, middle, vectors, interleave), middle
        else:
            remaining = count // self.lanes
            while remaining:
                assert isinstance(place, int), "the trip count is known"
                interleave = min(self._interleaved(), remaining)
                middle = place + remaining // interleave * interleave * self.lanes
                vectors, place = self._loop(place, middle, vectors, interleave), middle
                remaining %= interleave
        remainder = self.lanes - 1 if count is None else count % self.lanes
        is_scalar = remainder == 1 or (remainder > 0 and not self.has_masks)
        if remainder and not is_scalar:
            stop = place + self.lanes if isinstance(place, int) else loop.stop
            vectors = self._loop(place, stop, vectors, 1, is_masked=True)
        numbers = [self._new(c.result.type) if is_scalar else c.result for c in loop.carried]
        for number, c, x, vector in zip(numbers, loop.carried, self.reductions, vectors, strict=True):
            self._reduce(number, c.init, x, vector)
        if is_scalar:
            self._scalar_loop(place, numbers)
        return self.emitted

    # Values.

    def _kind(self, x: Operand) -> Kind:
        return self.kinds.get(x.name, "uniform") if isinstance(x, Value) else "uniform"

    def _new(self, type: str, lanes: int = 1) -> Value:
        self.count += 1
        return Value(type, f"{self.loop.index.name}_{self.count}", lanes)

    def _compute(
        self, type: str, op: str, operands: Sequence[Operand], attributes: tuple[tuple[str, Any], ...] = ()
    ) -> Value:
        lanes = dict(attributes).get("lanes") or max(map(lanes_of, operands))
        result = self._new(type, lanes)
        self.emitted.append(Compute(result, op, tuple(operands), attributes))
        return result

    def _index(self, op: str, left: Index, right: Index) -> Index:
        if isinstance(left, int) and isinstance(right, int):
            return _FOLD[op](left, right)
        if right == 0 and op == "add":
            return left
        return self._compute(INDEX, op, (operand_of(left), operand_of(right)), WIDE)

    def _shuffle(self, x: Operand, order: Sequence[int]) -> Value:
        result = self._new(x.type, len(order))
        self.emitted.append(Shuffle(result, (x,), tuple(order)))
        return result

    def _broadcast(self, x: Operand) -> Value:
        return self._shuffle(x, [0] * self.lanes)

    # Before the loop.

    def _hoist(self, uniform: Sequence[Statement]) -> list[Statement]:
        """Loop-invariant code motion of uniform statements, and the vectors that they are used as; returns those that
        stay in the loop: loads, and what needs them, if there may be no iteration."""
        stays: list[Statement] = []
        staying: set[Operand] = set()
        for x in uniform:
            assert isinstance(x, (Compute, Load)), "stores are not uniform"
            read = (operand_of(x.index),) if isinstance(x, Load) else x.operands
            if (isinstance(x, Load) and not self.is_nonempty) or not staying.isdisjoint(read):
                stays.append(x)
                staying.add(x.result)
            else:
                self.emitted.append(x)
        for x in self.loop.body:
            is_vector = isinstance(x, Compute) and self._kind(x.result) == "varying"
            used = (x.value,) if isinstance(x, Store) else x.operands if isinstance(x, Compute) and is_vector else ()
            for o in used:
                is_hoisted = isinstance(o, Value) and self._kind(o) == "uniform" and o not in staying
                if is_hoisted and o not in self.broadcasts:
                    self.broadcasts[o] = self._broadcast(o)
        return stays

    def _find_bases(self) -> None:
        """Emit the bases of induction values, and the views that begin there."""
        for x in self.indices:
            if x.op == "convert":
                continue
            left, right = x.operands
            if x.op == "subtract":
                self.bases[x.result] = self._index("subtract", self.bases[left], _index_of(right))
            else:
                uniform, induction = (left, right) if self._kind(right) == "induction" else (right, left)
                self.bases[x.result] = self._index("add", _index_of(uniform), self.bases[induction])
        self.views.clear()
        for x in self.loop.body:
            if isinstance(x, (Load, Store)) and self._kind(operand_of(x.index)) == "induction":
                self._view(x.buffer, x.index)

    def _interleaved(self) -> int:
        """Vectors of a step: several hide the latency of reductions and of the long chains of transcendental functions,
        and the instructions of a short loop itself. Others overlap anyway, since processors execute out of order."""
        work = [_work(x) for x in (*self.varying, *self.stores)]
        if self.loop.carried:
            return INTERLEAVED if sum(work) <= _SHORT_BODY else 2 if sum(work) <= _LONG_BODY else 1
        count = self.loop.trip_count
        has_latency = max(work) >= TRANSCENDENTAL.work and (count is None or count >= LONG_LOOP_ITERATIONS)
        return 2 if has_latency or sum(work) <= _SHORT_BODY // 2 else 1

    def _neutral(self, carried: LoopCarried, x: Compute) -> Operand:
        """The vector that an accumulator begins with: the initial value, if that may be combined several times."""
        if x.op in _IDEMPOTENT:
            return self._broadcast(carried.init)
        return self._broadcast(Literal(carried.arg.type, _NEUTRAL[x.op]))

    # Loops over vectors.

    def _loop(
        self, start: Index, stop: Index, vectors: Sequence[Operand], interleave: int, is_masked: bool = False
    ) -> list[Operand]:
        """The iterations from `start` up to `stop`, in whole steps; returns the accumulators."""
        step = self.lanes * interleave
        more = [self._neutral(c, x) for c, x in zip(self.loop.carried, self.reductions, strict=True)]
        accumulators: list[Operand] = [*vectors, *more * (interleave - 1)]
        if isinstance(start, int) and isinstance(stop, int) and stop - start == step:
            accumulators = self._step(start, accumulators, interleave, is_masked)
        else:
            index = self._new(INDEX)
            new = functools.partial(self._new, lanes=self.lanes)
            carried = [LoopCarried(new(x.type), x, new(x.type)) for x in accumulators]
            around, self.emitted = self.emitted, []
            for c, x in zip(carried, self._step(index, [c.arg for c in carried], interleave, is_masked), strict=True):
                c.next = x
            body, self.emitted = self.emitted, around
            self.emitted.append(Loop(index, start, stop, body, carried, sequential=True, step=step))
            accumulators = [*(c.result for c in carried)]
        count = len(self.reductions)
        found = accumulators[:count]
        for k in range(count, len(accumulators)):
            x, both = self.reductions[k % count], (found[k % count], accumulators[k])
            found[k % count] = self._compute(x.result.type, x.op, both, x.attributes)
        return found

    def _step(self, index: Index, accumulators: Sequence[Operand], interleave: int, is_masked: bool) -> list[Operand]:
        """The iterations of a step: the loads and operations of each vector, then the stores."""
        if self.stays:
            self.emitted += self.stays
            self._find_bases()
        self.index, mask = index, None
        if is_masked:
            bounds = operand_of(index), operand_of(self.loop.stop)
            mask = self._compute("pred", "lane-mask", bounds, (("lanes", self.lanes),))
        carried, count = [c.arg for c in self.loop.carried], len(self.reductions)
        strips: list[_Strip] = []
        for k in range(interleave):
            arguments = accumulators[k * count : (k + 1) * count]
            strips.append(_Strip(k * self.lanes, mask, dict(zip(carried, arguments, strict=True))))
        for x in self.varying:
            for strip in strips:
                self._vector_statement(x, strip)
        for strip in strips:
            for x in self.stores:
                self._vector_statement(x, strip)
        updated = [strip.vectors[x.result] for strip in strips for x in self.reductions]
        if mask is None:
            return updated
        pairs = zip(updated, accumulators, strict=True)
        return [self._compute(after.type, "select", (mask, after, before)) for after, before in pairs]

    def _vector_statement(self, x: Statement, strip: _Strip) -> None:
        if isinstance(x, Store):
            value = self._vector(x.value, strip)
            value = value if lanes_of(value) > 1 else self._broadcast(value)
            place = self._index("add", self.index, strip.offset)
            self.emitted.append(Store(self._view(x.buffer, x.index), place, value, strip.mask))
        elif isinstance(x, Load):
            result = strip.vectors[x.result] = self._new(x.result.type, self.lanes)
            index = operand_of(x.index)
            if self._kind(index) == "varying":
                indices = self._vector(index, strip)
                assert isinstance(indices, Value), "a literal does not vary"
                self.emitted.append(Gather(result, x.buffer, indices, strip.mask))
            else:
                place = self._index("add", self.index, strip.offset)
                self.emitted.append(Load(result, self._view(x.buffer, x.index), place, strip.mask))
        elif isinstance(x, Compute):
            operands = [self._vector(o, strip) for o in x.operands]
            op = f"{x.op}-in-vectors" if _is_division_by_floats(x) else x.op
            strip.vectors[x.result] = self._compute(x.result.type, op, operands, x.attributes)

    def _view(self, buffer: Buffer, index: Index) -> Buffer:
        """A buffer whose element at the loop's index is that of another one at an induction value."""
        x = operand_of(index)
        base = self.bases[x]
        if base == 0:
            return buffer
        if (buffer, x) not in self.views:
            name = f"{buffer.name}_{self._new(INDEX).name}"
            self.views[buffer, x] = Buffer(buffer.type, name, buffer.size, buffer.written, (buffer,))
            self.emitted.append(View(self.views[buffer, x], buffer, base))
        return self.views[buffer, x]

    def _vector(self, x: Operand, strip: _Strip) -> Operand:
        """An operand in all lanes; numbers stand for their broadcasts."""
        found = strip.vectors.get(x)
        if found is not None:
            return found
        if self._kind(x) == "uniform":
            return self.broadcasts.get(x, x)
        definition = next((y for y in self.indices if y.result is x and y.op == "convert"), None)
        base = self.bases[definition.operands[0] if definition else x]
        first = operand_of(self._index("add", self._index("add", base, self.index), strip.offset))
        first = self._compute(x.type, "convert", (first,)) if definition else first
        found = strip.vectors[x] = self._compute(x.type, "iota", (first,), (("lanes", self.lanes),))
        return found

    # After the loops.

    def _reduce(self, result: Value, initial: Operand, x: Compute, vector: Operand) -> None:
        """Combine the lanes of an accumulator by halves, and then with the initial value."""
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            halves = [self._shuffle(vector, range(first, first + lanes)) for first in (0, lanes)]
            vector = self._compute(x.result.type, x.op, halves, x.attributes)
        if x.op.endswith("-of-numbers"):  # the initial value may be NaN; `split_nan_check` compares it
            self.emitted.append(Compute(result, "copy", (vector,)))
        else:
            self.emitted.append(Compute(result, x.op, (initial, vector), x.attributes))

    def _scalar_loop(self, start: Index, initials: Sequence[Operand]) -> None:
        """The remainder without masks: the loop as it is, under other names."""
        names = {x.result: self._new(x.result.type) for x in self.loop.body if isinstance(x, (Compute, Load))}
        names |= {c.arg: self._new(c.arg.type) for c in self.loop.carried}
        names[self.loop.index] = self._new(INDEX)

        def of(x: Any) -> Any:
            return names.get(x, x) if isinstance(x, Value) else x

        body: list[Statement] = []
        for x in self.loop.body:
            if isinstance(x, Compute):
                body.append(replace(x, result=of(x.result), operands=tuple(map(of, x.operands))))
            elif isinstance(x, Load):
                body.append(replace(x, result=of(x.result), index=of(x.index)))
            elif isinstance(x, Store):
                body.append(replace(x, index=of(x.index), value=of(x.value)))
        pairs = zip(self.loop.carried, initials, strict=True)
        carried = [replace(c, arg=of(c.arg), init=init, next=of(c.next)) for c, init in pairs]
        self.emitted.append(Loop(of(self.loop.index), start, self.loop.stop, body, carried, sequential=True))


def _index_of(x: Operand) -> Index:
    return x.value if isinstance(x, Literal) else x


def _work(x: Statement) -> int:
    """What a statement costs, in additions."""
    scalar = ops[x.op].scalar if isinstance(x, Compute) and x.op in ops else None
    return scalar.cost.work if scalar else 1


def _result(x: Statement) -> Value:
    assert isinstance(x, (Compute, Load)), "the loop is vectorizable"
    return x.result


def _is_division_by_floats(x: Compute) -> bool:
    """Whether it is a division of integers that is faster by floats: LLVM multiplies by the reciprocal of a constant
    divisor."""
    is_division = x.op in ("divide", "remainder") and not isinstance(x.operands[1], Literal)
    return is_division and x.result.type[0] in "su" and COMPONENT_BYTES[x.result.type] <= 4


_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "maximum": max,
}
