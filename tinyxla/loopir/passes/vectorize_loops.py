"""Loop vectorization (strip mining): innermost loops become loops over vectors, with a masked vector or a scalar loop
for the remainder.

LLVM's loop vectorizer does the same; with the passes that prepare its loops and clean up after it, it takes most of the
time of a compilation. A kernel all of whose innermost loops are vectorized here needs none of them: loop-invariant code
is hoisted here, too, and several vectors are interleaved to hide the latency of reductions. How a sum is split among
accumulators then depends on the kernel and on the width of vectors alone.

Applies to loops of elementwise operations that load with unit stride, or gather, and store with unit stride, and whose
loop-carried values are reductions. Accesses with a stride of 2 or 4 are vectorized where those of one iteration are of
consecutive elements (interleaved access groups): as an access of all of them, and shuffles. Not to complex numbers,
other small strides, operations with slow paths, and loops that end early: these are left to LLVM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal as Choice

from tinyxla.compiler.costs import INTERLEAVED, LINE_BYTES, MAX_UNROLLED
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
    folded_index,
    lanes_of,
    operand_of,
)
from tinyxla.loopir.ir.operations import (
    has_vector_form,
    is_index_arithmetic,
    is_vector_code,
    max_element_bytes,
    vector_op,
)
from tinyxla.loopir.ir.types import COMPONENT_BYTES, PAIRS
from tinyxla.loopir.passes.split_nan_check import split_nan_check
from tinyxla.ops import ops
from tinyxla.ops.op import TRANSCENDENTAL

# Loop-invariant, the loop's index plus a loop-invariant number, or different for each iteration.
Kind = Choice["uniform", "induction", "varying"]

_FLOATS = ("f16", "bf16", "f32", "f64")
_IDEMPOTENT = frozenset("and or maximum minimum".split())
_NEUTRAL = {  # the elements that reductions begin with which may not combine the initial value several times
    "add": 0,
    "multiply": 1,
    "maximum-of-numbers": -math.inf,
    "minimum-of-numbers": math.inf,
}
_SHORT_BODY, _LONG_BODY = 8, 24  # work in additions up to which four vectors of a reduction are interleaved, and two
_LONG_CODE = 100  # statements of a loop that is not unrolled
_UNROLLED_WORK = 200  # of a loop over scratch memory that is unrolled


def are_vectorizable(
    statements: Sequence[Statement], vector_bytes: int, has_masks: bool, is_scalar: bool = False
) -> bool:
    """Whether all innermost loops can be vectorized and have enough iterations, and all else is scalar code and calls.
    In a kernel that `is_scalar`, there are no outer iterations that could be vectors instead."""
    waiting, innermost = list(statements), list[Loop]()
    for x in waiting:
        if not isinstance(x, (Loop, Compute, Load, Store, Call)):
            return False
        if isinstance(x, Loop):
            if _is_outer(x):
                waiting += x.body
            else:
                innermost.append(x)
    return bool(innermost) and all(
        _fills_vectors(x, vector_bytes, has_masks, is_scalar) and kinds_of(x) is not None for x in innermost
    )


def _is_outer(loop: Loop) -> bool:
    return any(isinstance(x, (Loop, Call)) for x in loop.body)


def _fills_vectors(loop: Loop, vector_bytes: int, has_masks: bool, is_scalar: bool) -> bool:
    """Whether a loop has the iterations of a vector, or more than those of a loop that is unrolled. Without outer
    iterations, powers of two do, and a few iterations of long code."""
    count, lanes = loop.trip_count, _max_lanes(loop, vector_bytes)
    if count is None or count >= lanes:
        return True
    is_long = count > MAX_UNROLLED or (is_scalar and count > 2 and count * len(loop.body) >= _LONG_CODE)
    return (has_masks and is_long) or (is_scalar and count >= 4 and count.bit_count() == 1)


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
    strided: list[Load | Store] = []

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
            if x.buffer.type in PAIRS:
                return None
            if kind == "varying" and not _is_gathered(x, loop):
                strided.append(x)
            kinds[x.result.name] = "uniform" if kind == "uniform" else "varying"
        elif isinstance(x, Store) and of(x.index) != "uniform" and x.buffer.type not in PAIRS:
            if of(x.index) == "varying":
                strided.append(x)
        else:
            return None
    groups = interleaved_groups(loop, kinds) if strided else {}
    return kinds if all(id(x) in groups for x in strided) else None


def _kind_of_result(x: Compute, kinds: Sequence[Kind]) -> Kind | None:
    if all(kind == "uniform" for kind in kinds):
        return "uniform"
    if is_index_arithmetic(x):
        is_sum = x.op == "add" and "varying" not in kinds and kinds.count("induction") == 1
        if is_sum or (x.op == "subtract" and list(kinds) == ["induction", "uniform"]):
            return "induction"
        return None if x.op in ("divide", "remainder") else "varying"
    if not has_vector_form(x):
        return None
    is_narrowed = x.op == "convert" and kinds[0] == "induction" and x.operands[0].type == INDEX
    return "induction" if is_narrowed and x.result.type in ("s32", "u32") else "varying"


def _is_gathered(x: Load, loop: Loop) -> bool:
    """Whether elements are gathered: they have no stride, or one so large that no two are in a cache line. LLVM loads
    what is nearer as whole vectors, and shuffles them."""
    assert isinstance(x.index, Value), "the index varies"
    width, stride = COMPONENT_BYTES[x.buffer.type], stride_of(loop.index, x.index, loop.body)
    return width >= 4 and (math.isnan(stride) or abs(stride) * width >= LINE_BYTES)


@dataclass(frozen=True, eq=False, slots=True)
class Interleaved:
    """An interleaved access group: in iteration i element `stride * i + uniform + offset` of a buffer, and those that
    follow it, are loaded or stored by one of `members` each, by `last` after all others."""

    members: tuple[Load | Store, ...]
    uniform: Operand
    offset: int
    last: Load | Store

    @property
    def stride(self) -> int:
        return len(self.members)


def interleaved_groups(loop: Loop, kinds: Mapping[str, Kind]) -> dict[int, Interleaved]:
    """The interleaved access groups of a loop, by the identities of their members."""
    forms = _linear_forms(loop, kinds)
    found: dict[tuple[type[Load | Store], Buffer, Operand, int], dict[int, Load | Store]] = {}
    for x in loop.body:
        if isinstance(x, (Load, Store)) and x.index in forms:
            stride, uniform, offset = forms[x.index]
            if stride in (2, 4):
                found.setdefault((type(x), x.buffer, uniform, stride), {})[offset] = x
    result: dict[int, Interleaved] = {}
    for (kind, buffer, uniform, stride), accesses in found.items():
        first = min(accesses)
        members = [accesses[first + k] for k in range(stride) if first + k in accesses]
        if len(members) == len(accesses) == stride and not _is_ordered(kind, buffer, members, loop):
            group = Interleaved(tuple(members), uniform, first, list(accesses.values())[-1])
            result |= dict.fromkeys(map(id, members), group)
    return result


def _is_ordered(kind: type[Load | Store], buffer: Buffer, members: Sequence[Load | Store], loop: Loop) -> bool:
    """Whether the order of a group and other accesses of a loop to the same memory may matter."""
    others = [x for x in loop.body if isinstance(x, (Load, Store)) and not any(x is y for y in members)]
    return any(x.buffer.memories & buffer.memories and (kind is Store or isinstance(x, Store)) for x in others)


def _linear_forms(loop: Loop, kinds: Mapping[str, Kind]) -> dict[Operand | Index, tuple[int, Operand, int]]:
    """Indices that are `stride * i + uniform + offset` in iteration i: these three."""
    zero = Literal(INDEX, 0)
    forms: dict[Operand | Index, tuple[int, Operand, int]] = {loop.index: (1, zero, 0)}

    def of(x: Operand) -> tuple[int, Operand, int] | None:
        if isinstance(x, Literal):
            return 0, zero, x.value
        return (0, x, 0) if kinds.get(x.name, "uniform") == "uniform" else forms.get(x)

    for x in loop.body:
        if not (isinstance(x, Compute) and is_index_arithmetic(x) and x.op in ("add", "subtract", "multiply")):
            continue
        left, right = map(of, x.operands)
        if left is None or right is None:
            continue
        if x.op == "multiply":
            left, right = (right, left) if left[:2] == (0, zero) else (left, right)
            if left[1] == right[1] == zero and right[0] == 0:
                forms[x.result] = left[0] * right[2], zero, left[2] * right[2]
        elif right[1] == zero or (x.op == "add" and left[1] == zero):
            sign = 1 if x.op == "add" else -1
            uniform = right[1] if left[1] == zero else left[1]
            forms[x.result] = left[0] + sign * right[0], uniform, left[2] + sign * right[2]
    return forms


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
            result += _strip_mined(x, kernel, vector_bytes, has_masks)
    return result


def _strip_mined(x: Loop, kernel: Kernel, vector_bytes: int, has_masks: bool) -> Sequence[Statement]:
    """An innermost loop as a vector main loop and a remainder, or as it is if it cannot be vectorized."""
    before, loop, after = split_nan_check(x, kernel.first)
    count, lanes, kinds = loop.trip_count, _max_lanes(x, vector_bytes), kinds_of(loop)
    if count is not None and 0 < count < lanes:
        lanes = _power(2 * count - 1) if has_masks else _power(count)
    if kinds is None or lanes < 2 or count == 0:
        return [x]
    is_nonempty = bool(count) or loop.nonempty or (loop.start is kernel.first and loop.stop is kernel.last)
    return [*before, *_StripMining(loop, kinds, lanes, has_masks, is_nonempty).statements(), *after]


class _StripMining:
    """Emits the statements that a loop becomes. Vectors that are interleaved are one vector of more lanes, which LLVM
    splits."""

    def __init__(self, loop: Loop, kinds: Mapping[str, Kind], lanes: int, has_masks: bool, is_nonempty: bool) -> None:
        self.loop, self.kinds, self.lanes = loop, kinds, lanes
        self.has_masks, self.is_nonempty = has_masks, is_nonempty
        self.reductions = [x for c in loop.carried if (x := _reduction(c, loop.body))]
        self.emitted: list[Statement] = []
        self.count = 0  # of new names
        self.bases: dict[Operand, Index] = {loop.index: 0}  # of induction values: what the loop's index is added to
        self.views: dict[tuple[Buffer, Operand], Buffer] = {}  # the elements of buffers from such a base on
        self.vectors: dict[Operand, Value] = {}  # of values in the loop that is emitted
        uniform = [x for x in loop.body if not isinstance(x, Store) and self._kind(_result(x)) == "uniform"]
        self.indices = [x for x in loop.body if isinstance(x, Compute) and self._kind(x.result) == "induction"]
        self.groups = interleaved_groups(loop, kinds)
        self.group_views: dict[Interleaved, Buffer] = {}  # that begin at the first element of the first iteration
        self.varying = self._needed(
            [x for x in loop.body if isinstance(x, Store) or self._kind(_result(x)) == "varying"]
        )
        self.stays = self._hoist(uniform)
        if not self.stays:
            self._find_bases()

    def statements(self) -> list[Statement]:
        loop, lanes, count = self.loop, self.lanes, self.loop.trip_count
        place, accumulators = self._main_loop()
        remainder = lanes - 1 if count is None else count % lanes  # at most
        is_scalar = remainder == 1 or (remainder > 0 and not self.has_masks)
        if remainder and not is_scalar:
            stop = place + lanes if isinstance(place, int) else loop.stop
            accumulators = self._loop(place, stop, accumulators, lanes, is_masked=True)
        results = [self._new(c.result.type) if is_scalar else c.result for c in loop.carried]
        self._finish(results, self._narrowed(accumulators, 1))
        if is_scalar:
            self._scalar_loop(place, results)
        return self.emitted

    def _main_loop(self) -> tuple[Index, list[Value]]:
        """The vector main loop: the iterations that fill vectors. Returns the index at which the remainder begins, and
        the accumulators."""
        loop, lanes, count = self.loop, self.lanes, self.loop.trip_count
        step = lanes * (self._interleaved() if count is None else min(self._interleaved(), _power(count // lanes)))
        accumulators = [self._neutral(c, x, step) for c, x in zip(loop.carried, self.reductions, strict=True)]
        place: Index = loop.start
        if count is None:
            size = self._index("maximum", self._index("subtract", loop.stop, place), 0)
            whole = self._compute(INDEX, "and", (operand_of(size), Literal(INDEX, -step)))
            middle = self._index("add", place, whole)
            return middle, self._narrowed(self._loop(place, middle, accumulators, step), lanes)
        is_unrolled, remaining = self._is_unrolled(), count // lanes
        while remaining:
            step = min(step, lanes * _power(remaining))
            steps = 1 if is_unrolled else remaining * lanes // step
            middle = self._index("add", place, steps * step)
            accumulators = self._loop(place, middle, self._narrowed(accumulators, step), step)
            place, remaining = middle, remaining - steps * step // lanes
        return place, self._narrowed(accumulators, lanes)

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
        if op == "add" and isinstance(left, int):
            left, right = right, left
        folded = folded_index(op, left, right)
        return self._compute(INDEX, op, (operand_of(left), operand_of(right)), WIDE) if folded is None else folded

    def _shuffle(self, x: Operand, order: Sequence[int]) -> Value:
        result = self._new(x.type, len(order))
        self.emitted.append(Shuffle(result, (x,), tuple(order)))
        return result

    def _needed(self, statements: Sequence[Statement]) -> list[Statement]:
        """Dead code elimination: the indices of interleaved groups are not needed as vectors."""
        result: list[Statement] = []
        needed: set[Operand | Index | None] = {c.next for c in self.loop.carried}
        for x in reversed(statements):
            if isinstance(x, Store) or _result(x) in needed:
                result.append(x)
                read = x.operands if isinstance(x, Compute) else (x.value,) if isinstance(x, Store) else ()
                needed.update(read)
                if isinstance(x, Load) and id(x) not in self.groups:
                    needed.add(x.index)
        return result[::-1]

    # Before the loop.

    def _hoist(self, uniform: Sequence[Statement]) -> list[Statement]:
        """Loop-invariant code motion of uniform statements; returns those that stay in the loop: loads, and what needs
        them, if there may be no iteration."""
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
        self.views = {}
        for x in self.varying:
            if isinstance(x, (Load, Store)) and self._kind(operand_of(x.index)) == "induction":
                self._view(x.buffer, x.index)
        for group in dict.fromkeys(self.groups.values()):
            base = self._index("add", _index_of(group.uniform), group.offset)
            self.group_views[group] = self._new_view(group.members[0].buffer, base)

    def _view(self, buffer: Buffer, index: Index) -> Buffer:
        """A buffer whose element at the loop's index is that of another one at an induction value."""
        x = operand_of(index)
        base = self.bases[x]
        if base == 0:
            return buffer
        if (buffer, x) not in self.views:
            self.views[buffer, x] = self._new_view(buffer, base)
        return self.views[buffer, x]

    def _new_view(self, buffer: Buffer, base: Index) -> Buffer:
        view = Buffer(buffer.type, f"{buffer.name}_{self._new(INDEX).name}", buffer.size, buffer.written, (buffer,))
        self.emitted.append(View(view, buffer, base))
        return view

    def _interleaved(self) -> int:
        """Vectors of a step: several hide the latency of reductions and of the long chains of transcendental functions,
        and the instructions of a short loop itself. Others overlap anyway, since processors execute out of order."""
        count, work = self.loop.trip_count, [_work(x) for x in self.varying]
        if self.loop.carried:
            return INTERLEAVED if sum(work) <= _SHORT_BODY else 2 if sum(work) <= _LONG_BODY else 1
        has_latency = max(work, default=0) >= TRANSCENDENTAL.work and (count is None or count >= LONG_LOOP_ITERATIONS)
        return 2 if has_latency or sum(work) <= _SHORT_BODY // 2 else 1

    def _is_unrolled(self) -> bool:
        """Whether all steps of a loop follow each other: of a short one over scratch memory, which is in registers if
        the code knows each access."""
        count, work = self.loop.trip_count, sum(map(_work, self.varying))
        has_scratch = any(x.buffer.size is not None for x in self.varying if isinstance(x, (Load, Store)))
        return count is not None and has_scratch and count // self.lanes * work <= _UNROLLED_WORK

    def _neutral(self, carried: LoopCarried, x: Compute, lanes: int) -> Value:
        """The accumulator that a reduction begins with: the initial value, if that may be combined several times."""
        number = carried.init if x.op in _IDEMPOTENT else Literal(carried.arg.type, _NEUTRAL[x.op])
        return self._shuffle(number, [0] * lanes)

    # Loops over vectors.

    def _loop(
        self, start: Index, stop: Index, accumulators: Sequence[Value], lanes: int, is_masked: bool = False
    ) -> list[Value]:
        """The iterations from `start` up to `stop`, so many at a time; returns the accumulators after them."""
        staying = {_result(x) for x in self.stays}
        self.vectors = {}
        for x in self.varying:
            for o in x.operands if isinstance(x, Compute) else (x.value,) if isinstance(x, Store) else ():
                is_hoisted = isinstance(o, Value) and self._kind(o) == "uniform" and o not in staying
                if is_hoisted and o not in self.vectors:
                    self.vectors[o] = self._shuffle(o, [0] * lanes)
        if isinstance(start, int) and isinstance(stop, int) and stop - start == lanes:
            return self._step(start, accumulators, lanes, is_masked)
        index = self._new(INDEX)
        carried = [LoopCarried(self._new(x.type, lanes), x, self._new(x.type, lanes)) for x in accumulators]
        around, self.emitted = self.emitted, []
        for c, x in zip(carried, self._step(index, [c.arg for c in carried], lanes, is_masked), strict=True):
            c.next = x
        body, self.emitted = self.emitted, around
        self.emitted.append(Loop(index, start, stop, body, carried, sequential=True, step=lanes))
        return [c.result for c in carried]

    def _step(self, index: Index, accumulators: Sequence[Value], lanes: int, is_masked: bool) -> list[Value]:
        """One vector of iterations; returns the accumulators after it."""
        if self.stays:
            self.emitted += self.stays
            self._find_bases()
        mask = None
        if is_masked:
            bounds = operand_of(index), operand_of(self.loop.stop)
            mask = self._compute("pred", "lane-mask", bounds, (("lanes", lanes),))
        self.vectors.update(zip((c.arg for c in self.loop.carried), accumulators, strict=True))
        for x in self.varying:
            if isinstance(x, Compute):
                operands = [self._vector(o, index, lanes) for o in x.operands]
                self.vectors[x.result] = self._compute(x.result.type, vector_op(x), operands, x.attributes)
            elif isinstance(x, (Load, Store)) and id(x) in self.groups:
                self._access_group(self.groups[id(x)], x, index, lanes, mask)
            elif isinstance(x, Store):
                value = self._all_lanes(x.value, index, lanes)
                self.emitted.append(Store(self._view(x.buffer, x.index), index, value, mask))
            elif isinstance(x, Load):
                self.vectors[x.result] = self._load(x, index, lanes, mask)
        updated = [self.vectors[x.result] for x in self.reductions]
        if mask is None:
            return updated
        pairs = zip(updated, accumulators, strict=True)
        return [self._compute(after.type, "select", (mask, after, before)) for after, before in pairs]

    def _access_group(self, group: Interleaved, x: Load | Store, index: Index, lanes: int, mask: Value | None) -> None:
        """The accesses of an interleaved group: all loads where the first of them is, all stores where the last is."""
        is_due = x.result not in self.vectors if isinstance(x, Load) else x is group.last
        if not is_due:
            return
        stride, view = group.stride, self.group_views[group]
        place = self._index("multiply", index, stride)
        if mask is not None:
            mask = self._shuffle(mask, [k // stride for k in range(lanes * stride)])
        values = [self._all_lanes(y.value, index, lanes) for y in group.members if isinstance(y, Store)]
        if values:
            self.emitted.append(Store(view, place, self._interleave(values), mask))
            return
        elements = self._new(x.buffer.type, lanes * stride)
        self.emitted.append(Load(elements, view, place, mask))
        for k, y in enumerate(group.members):
            assert isinstance(y, Load), "a group loads or stores"
            self.vectors[y.result] = self._shuffle(elements, range(k, lanes * stride, stride))

    def _interleave(self, vectors: Sequence[Value]) -> Value:
        """The first lanes of all vectors, then their second lanes, and so on."""
        if len(vectors) == 1:
            return vectors[0]
        even, odd = self._interleave(vectors[::2]), self._interleave(vectors[1::2])
        result = self._new(even.type, 2 * even.lanes)
        order = tuple(k // 2 + even.lanes * (k % 2) for k in range(result.lanes))
        self.emitted.append(Shuffle(result, (even, odd), order))
        return result

    def _load(self, x: Load, index: Index, lanes: int, mask: Value | None) -> Value:
        result = self._new(x.result.type, lanes)
        if self._kind(operand_of(x.index)) == "varying":
            indices = self._vector(operand_of(x.index), index, lanes)
            assert isinstance(indices, Value), "a literal does not vary"
            self.emitted.append(Gather(result, x.buffer, indices, mask))
        else:
            self.emitted.append(Load(result, self._view(x.buffer, x.index), index, mask))
        return result

    def _vector(self, x: Operand, index: Index, lanes: int) -> Operand:
        """An operand in all lanes; numbers stand for their broadcasts."""
        if self._kind(x) == "induction" and x not in self.vectors:
            definition = next((y for y in self.indices if y.result is x and y.op == "convert"), None)
            base = self.bases[definition.operands[0] if definition else x]
            first = operand_of(self._index("add", base, index))
            first = self._compute(x.type, "convert", (first,)) if definition else first
            self.vectors[x] = self._compute(x.type, "iota", (first,), (("lanes", lanes),))
        return self.vectors.get(x, x)

    def _all_lanes(self, x: Operand, index: Index, lanes: int) -> Value:
        """An operand as a vector, a number too."""
        vector = self._vector(x, index, lanes)
        return vector if isinstance(vector, Value) and vector.lanes > 1 else self._shuffle(vector, [0] * lanes)

    # After the loops.

    def _finish(self, results: Sequence[Value], found: Sequence[Value]) -> None:
        """Combine the numbers that reductions found with the initial values. `split_nan_check` does that for extrema of
        numbers, whose initial value may be NaN."""
        for result, c, x, number in zip(results, self.loop.carried, self.reductions, found, strict=True):
            if x.op.endswith("-of-numbers"):
                self.emitted.append(Compute(result, "copy", (number,)))
            else:
                self.emitted.append(Compute(result, x.op, (c.init, number), x.attributes))

    def _narrowed(self, accumulators: Sequence[Value], lanes: int) -> list[Value]:
        """Accumulators of no more than so many lanes: halves are combined."""
        found = list(accumulators)
        for k, x in enumerate(self.reductions):
            while found[k].lanes > lanes:
                half = found[k].lanes // 2
                halves = [self._shuffle(found[k], range(first, first + half)) for first in (0, half)]
                found[k] = self._compute(x.result.type, x.op, halves, x.attributes)
        return found

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


def _power(number: int) -> int:
    """The largest power of two up to a number, at least 1."""
    return 1 << max(0, number.bit_length() - 1)


def _index_of(x: Operand) -> Index:
    return x.value if isinstance(x, Literal) else x


def _work(x: Statement) -> int:
    """The cost of a statement, in additions, as its operation declares it."""
    scalar = ops[x.op].scalar if isinstance(x, Compute) and x.op in ops else None
    return scalar.cost.work if scalar else 1


def _result(x: Statement) -> Value:
    assert isinstance(x, (Compute, Load)), "the loop is vectorizable"
    return x.result
