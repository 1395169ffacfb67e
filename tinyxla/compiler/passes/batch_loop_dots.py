"""Loops of known length: products of what their steps do to rows of arrays are made of all rows at once.

A matrix product with one row reads the whole matrix for it, in every step again. So of the products of a step

- those of rows that are there before the loop - of a sequence's elements with weights - are one product before it,
- those that are only summed over the steps - the gradients of weights - are one product after it, of the rows that the
  steps stack; as sum_t a_t' b_t = A' B,
- those that only make rows of a result are one product after it, too.

A product with rows of both kinds put together is parted for that: (x h) (U; V) = x U + h V.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tinyxla.compiler.passes.algebraic_simplifier import scalar_value, simplify
from tinyxla.compiler.passes.licm import with_constants
from tinyxla.compiler.rewriter import Rewriter, is_unshared, of_opcodes, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, contraction, dynamic_slices, elementwise, movement, ops, reduction
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import batched, effects, needed, run, subgraph, with_parameters
from tinyxla.transforms.invariants import computed, counting, literal_of, unchanged
from tinyxla.transforms.while_reverse import allocated, at, integer, put

_FEWEST_STEPS = 4
_LEAST_WORK = 1 << 11  # multiplications of a product that is worth moving
_SMALL_STACK = 1 << 20  # bytes that rows may take, however little the loop has
_ORDERS = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge}
_LINEAR = frozenset("add subtract negate transpose reshape slice pad concatenate broadcast reduce".split())

Values = Sequence[Any]
_Rows = dict[Instruction, Any]  # for what a step computes, that of all steps, along a new first dimension


@of_opcodes("while")
def compute_together(computation: Computation) -> Computation:
    """Move products of the steps of loops out of these; and leave away rows that are written and never read."""
    users = computation.users()

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name != "while":
            return None
        loop = with_constants(x.attributes, operands)
        if (loop.known_trip_count or 0) >= _FEWEST_STEPS and not any(effects(c) for c in x.computations()):
            used = {u.attributes.index if u.op is calls.get_tuple_element else -1 for u in users[x]}
            read = needed([loop.condition.root])
            used |= {k for k, p in enumerate(loop.condition.parameters) if p in read}
            if -1 not in used:
                loop = with_constants(_without_dead_rows(loop, operands, used), operands)
            if any(_is_heavy(y) or _is_outer(y) for y in loop.body.instructions):
                moving = _Loop(loop, operands)
                if moving.main is not None and moving.is_worth:
                    return moving.emitted(rewriter)
        return None if loop is x.attributes else rewriter.emit(x.op, *operands, **loop._asdict())

    return rewrite(computation, visit)


def _without_dead_rows(loop: Any, operands: Sequence[Instruction], used: set[int]) -> Any:
    """Where a step reads but the row that it then writes, and nobody needs the array later: without the writing."""
    body = loop.body
    kinds = Kinds(body, operands, loop.known_trip_count)
    outputs = list(body.outputs)
    for k, (p, x) in enumerate(zip(body.parameters, outputs, strict=True)):
        if k in used or x.op is not dynamic_slices.dynamic_update_slice or x.operands[0] is not p:
            continue
        if kinds.users[x] != [body.root]:
            continue
        place = kinds.first_row(p.array_shape, x.operands[1].array_shape, x.operands[2:])
        reads = [y for y in kinds.users[p] if y is not x]
        same = all(
            y.op is dynamic_slices.dynamic_slice
            and y.shape == x.operands[1].shape
            and kinds.number(y.operands[1]) == kinds.number(x.operands[2])
            and kinds.first_row(p.array_shape, y.array_shape, y.operands[1:]) is not None
            for y in reads
        )
        if place is not None and same:
            outputs[k] = p
    return loop if outputs == list(body.outputs) else loop._replace(body=subgraph(body.name, body.parameters, outputs))


def _work(x: Instruction) -> int:
    lhs = x.operands[0].array_shape.dimensions
    return x.array_shape.size * math.prod(lhs[d] for d in x.attributes.lhs_contracting_dims)


def _bytes(x: Instruction) -> int:
    return x.array_shape.size * x.array_shape.dtype.itemsize


class _Counter(NamedTuple):
    """A number that is `start` in the first step and grows by `step`."""

    start: int
    step: int

    def lowest(self, count: int) -> int:
        """The least that it is in so many steps."""
        return min(self.start, self.start + (count - 1) * self.step)


class Kinds:
    """What a step computes from values that stay the `same`, and from these and counters (`rows`): all of that is known
    before the loop."""

    def __init__(self, body: Computation, operands: Sequence[Instruction], count: int) -> None:
        self.body, self.users, self.count = body, body.users(), count
        parameters = list(zip(body.parameters, operands, strict=True))
        stays = unchanged(body)
        self.same = {p for (p, _), s in zip(parameters, stays, strict=True) if s}
        numbers = {p: literal_of(o) for p, o in parameters}
        steps = {body.parameters[k]: step for k, step in counting(body).items()}
        self.numbers = {
            p: _Counter(n, steps.get(p, 0))
            for p, n in numbers.items()
            if n is not None and (p in steps or p in self.same)
        }
        self.rows = {p for p in steps if p in self.numbers}
        for x in body.instructions:
            if x.op is movement.parameter or not _is_mapped(x):
                continue
            if all(o in self.same for o in x.operands):
                self.same.add(x)
            elif all(o in self.same or o in self.rows for o in x.operands):
                self.rows.add(x)

    def is_known(self, x: Instruction) -> bool:
        return x in self.same or x in self.rows

    def number(self, x: Instruction) -> _Counter | None:
        """What an integer is in each step, if it counts or stays."""
        if x in self.numbers:
            return self.numbers[x]
        if x.op is movement.constant:
            found = literal_of(x)
            return None if found is None else _Counter(found, 0)
        if x.op is elementwise.select:
            holds = self._holds(x.operands[0])
            return None if holds is None else self.number(x.operands[1 if holds else 2])
        if x.op not in (elementwise.add, elementwise.sub, elementwise.mul) or x.array_shape.rank:
            return None
        a, b = map(self.number, x.operands)
        if a is None or b is None:
            return None
        if x.op is elementwise.mul:
            if a.step and b.step:
                return None
            return _Counter(a.start * b.start, a.step * b.start + b.step * a.start)
        sign = 1 if x.op is elementwise.add else -1
        return _Counter(a.start + sign * b.start, a.step + sign * b.step)

    def first_row(self, whole: Shape, part: Shape, starts: Sequence[Instruction]) -> int | None:
        """The lowest of the rows that steps touch, each another one, if they touch all of a row."""
        if not whole.rank or part.dimensions != (1, *whole.dimensions[1:]):
            return None
        number, *others = map(self.number, starts)
        if number is None or abs(number.step) != 1 or any(n != (0, 0) for n in others):
            return None
        first = number.lowest(self.count)
        return first if 0 <= first <= whole.dimensions[0] - self.count else None

    def _holds(self, x: Instruction) -> bool | None:
        """Whether a comparison of integers holds in all steps (True), or in none (False)."""
        test = _ORDERS.get(x.attributes.direction) if x.op is elementwise.compare else None
        a, b = map(self.number, x.operands) if test is not None else (None, None)
        if test is None or a is None or b is None:
            return None
        first, last = (a.start + t * a.step - b.start - t * b.step for t in (0, self.count - 1))
        return test(first, 0) if test(first, 0) == test(last, 0) else None


def _is_mapped(x: Instruction) -> bool:
    """Whether it can be computed for all steps at once."""
    inside = x.op is not reduction.reduce and any(x.computations())
    return isinstance(x.shape, Shape) and not (inside or x.has_side_effect or is_unshared(x))


class _Loop:
    """A while, and what of it is moved: `dropped` are the numbers of the results that are made after it; `stacked` is
    what the steps keep for them; `before` is made for all steps, or once and for all, before the loop."""

    def __init__(self, attributes: Any, operands: tuple[Instruction, ...]) -> None:
        self.condition, self.operands, self.count = attributes.condition, operands, attributes.known_trip_count
        body = simplify(attributes.body)
        self.kinds = Kinds(_parted(Kinds(body, operands, self.count)), operands, self.count)
        self.body = self.kinds.body
        self.dropped: list[int] = []
        self.stacked: dict[Instruction, None] = {}
        self.before: list[Instruction] = []
        if self.main is not None:
            self._choose_results()
            self._choose_before()

    @functools.cached_property
    def main(self) -> Instruction | None:
        """The counter that numbers the rows."""
        found = (
            p for p, n in self.kinds.numbers.items() if abs(n.step) == 1 and p.array_shape.element_type.name == "s32"
        )
        return next(found, None)

    @property
    def is_worth(self) -> bool:
        return bool(self.dropped) or any(x in self.kinds.rows for x in self.before)

    # --- choices

    def _choose_results(self) -> None:
        outputs, read = self.body.outputs, needed([self.condition.root])
        found = {
            k: made
            for k, p in enumerate(self.condition.parameters)
            if p not in read and (made := self._increment(k) or self._row(k))
        }
        while True:
            live = needed(x for k, x in enumerate(outputs) if k not in found)
            kept = {k: leaves for k, x in found.items() if (leaves := self._leaves(k, x, live)) is not None}
            if len(kept) == len(found):
                break
            found = {k: found[k] for k in kept}
        room = max(_SMALL_STACK, 2 * sum(map(_bytes, self.operands)))
        for k, leaves in kept.items():
            rows = [x for x in leaves if not self.kinds.is_known(x) and x not in self.stacked]
            room -= self.count * sum(map(_bytes, rows))
            if room < 0:
                break
            self.dropped.append(k)
            self.stacked.update(dict.fromkeys(rows))
        for k in range(len(outputs)):  # sums of what is stacked anyway
            total = None if k in self.dropped else self._increment(k)
            if total is not None and self.dropped:
                leaves = set[Instruction]()
                if self._sum_leaves(total, leaves) is not None and leaves <= self.stacked.keys():
                    self.dropped.append(k)

    def _only_user(self, x: Instruction, user: Instruction) -> bool:
        return self.kinds.users[x] == [user]

    def _increment(self, k: int) -> Instruction | None:
        """What a step adds to a value that it does not read otherwise."""
        p, x = self.body.parameters[k], self.body.outputs[k]
        if x.op is not elementwise.add or not x.array_shape.element_type.is_inexact or not self._only_user(p, x):
            return None
        a, b = x.operands
        return (b if a is p else a) if self._only_user(x, self.body.root) and a is not b else None

    def _row(self, k: int) -> Instruction | None:
        """What a step puts into its row of an array that all steps together fill, or adds to what is there."""
        p, x = self.body.parameters[k], self.body.outputs[k]
        if x.op is not dynamic_slices.dynamic_update_slice or x.operands[0] is not p:
            return None
        row, whole = x.operands[1], p.array_shape
        first = self.kinds.first_row(whole, row.array_shape, x.operands[2:])
        if first is None or whole.dimensions[0] != self.count or not self._only_user(x, self.body.root):
            return None
        if self._only_user(p, x):
            return row
        for old, other in (row.operands, row.operands[::-1]) if row.op is elementwise.add else ():
            same = (
                old.op is dynamic_slices.dynamic_slice and old.operands[0] is p and old.operands[1:] == x.operands[2:]
            )
            if same and set(self.kinds.users[p]) == {old, x} and self._only_user(old, row) and self._only_user(row, x):
                return other
        return None

    def _leaves(self, k: int, x: Instruction, live: set[Instruction]) -> set[Instruction] | None:
        """What the rows or the sum that make a result are made of, if that is worth it."""
        leaves: set[Instruction] = set()
        if self.body.outputs[k].op is elementwise.add:
            gains = self._sum_leaves(x, leaves)
            return leaves if gains and all(_is_mapped(y) or y.op is movement.parameter for y in leaves) else None

        def is_leaf(y: Instruction) -> bool:
            made_elsewhere = y.op in (movement.parameter, calls.get_tuple_element) or not _is_mapped(y)
            return not self.kinds.is_known(y) and (y in live or made_elsewhere)

        reached = _walked(x, lambda y: () if is_leaf(y) else y.operands)
        leaves.update(filter(is_leaf, reached))
        gains = any(_is_heavy(y) for y in reached if y not in leaves)
        if not gains or not all(isinstance(y.shape, Shape) for y in leaves):
            return None
        return leaves if sum(map(_bytes, leaves)) <= 4 * _bytes(x) else None

    def _sum_leaves(self, x: Instruction, leaves: set[Instruction]) -> bool | None:
        """Collect whose rows make the sum of x over all steps; says whether a large product is among that, or None if
        the sum cannot be made."""
        gains = False
        for y in _walked(x, lambda y: [] if y in self.stacked or y.op is contraction.dot else self._terms(y)):
            if y in self.kinds.same or not isinstance(y.shape, Shape):
                return None
            if y.op is contraction.dot and y not in self.stacked:
                leaves.update(o for o in y.operands if not self.kinds.is_known(o))
                size = sum(o.array_shape.size for o in y.operands if o not in self.kinds.same)
                gains |= _work(y) >= _LEAST_WORK and size <= 2 * y.array_shape.size
            elif y in self.stacked or not self._terms(y):
                leaves.update(() if self.kinds.is_known(y) else (y,))
        return gains

    def _terms(self, x: Instruction) -> list[Instruction]:
        """The operands that x is linear in, if it is in all that differ from step to step."""
        first = x.operands[:1]
        if x.op.name not in _LINEAR or (x.op is movement.pad and scalar_value(x.operands[1]) != 0):
            return []
        if x.op is reduction.reduce:
            plain = len(x.operands) == 2 and reduction.monoid(x.attributes.to_apply) == "add"
            return list(first) if plain and scalar_value(x.operands[1]) == 0 else []
        return list(first) if x.op is movement.pad else list(x.operands)

    def _choose_before(self) -> None:
        """Of what is known before the loop and read by what is left of a step: products, and what they are made of."""
        outputs = [x for k, x in enumerate(self.body.outputs) if k not in self.dropped]
        left = needed([*outputs, *self.stacked])
        heavy: set[Instruction] = set()
        found: dict[Instruction, None] = {}
        for x in self.body.instructions:
            if x in self.kinds.rows and (_is_heavy(x) or any(o in heavy for o in x.operands)):
                heavy.add(x)
            if x not in left or x is self.body.root or self.kinds.is_known(x):
                continue
            for o in x.operands:
                found.update((y, None) for y in computed(o) if y in heavy)
                if x.op is contraction.dot and o in self.kinds.same and o.operands:
                    found[o] = None
        room = max(_SMALL_STACK, 2 * sum(map(_bytes, self.operands)))
        for x in found:
            room -= _bytes(x) * (self.count if x in self.kinds.rows else 1)
            if room >= 0:
                self.before.append(x)

    # --- the parts

    def emitted(self, rewriter: Rewriter) -> Instruction:
        """The tuple of the loop's results."""
        count, stacks = len(self.operands), list(self.stacked)
        first_stack = count + len(self.before)
        shapes = [o.shape for o in self.operands]

        def before(*values: Any) -> list[Any]:
            rows = [
                self._all_rows(x, values, {}) if x in self.kinds.rows else self._once(x, values) for x in self.before
            ]
            return [*rows, *(allocated(_stack(x, self.count)) for x in stacks)]

        def step(*values: Any) -> list[Any]:
            assert self.main is not None
            own, made, kept = values[:count], values[count:first_stack], values[first_stack:]
            known: _Rows = dict(zip(self.body.parameters, own, strict=True))
            place = elementwise.sub(known[self.main], integer(self.kinds.numbers[self.main].lowest(self.count)))
            known |= {x: at(y, place) if x in self.kinds.rows else y for x, y in zip(self.before, made, strict=True)}
            outputs = list(self.body.outputs)
            for k in self.dropped:
                outputs[k] = self.body.parameters[k]
            remaining = subgraph(self.body.name, list(known), [*outputs, *stacks])
            found = run(remaining, list(known.values()))
            pushed = [put(rows, x, place) for rows, x in zip(kept, found[count:], strict=True)]
            return [*found[:count], *made, *pushed]

        further = self._spliced(rewriter, before, self.operands, f"{self.body.name}_before")
        shapes += [x.shape for x in further]
        attributes = {
            "condition": with_parameters(self.condition, shapes),
            "body": trace(step, shapes, self.body.name)[0],
            "known_trip_count": self.count,
        }
        loop = rewriter.emit(ops["while"], *self.operands, *further, **attributes)
        found = [rewriter.emit(calls.get_tuple_element, loop, index=k) for k in range(len(shapes))]

        def after(*values: Any) -> list[Any]:
            kept = dict(zip(stacks, values[count:], strict=True))
            return [self._result(k, values[:count], kept) for k in self.dropped]

        inputs = [*self.operands, *found[first_stack:]]
        made = self._spliced(rewriter, after, inputs, f"{self.body.name}_after")
        for k, x in zip(self.dropped, made, strict=True):
            found[k] = x
        return rewriter.emit(calls.tuple_, *found[:count])

    def _spliced(
        self, rewriter: Rewriter, function: Callable[..., list[Any]], operands: Sequence[Instruction], name: str
    ) -> tuple[Instruction, ...]:
        made = trace(function, [o.shape for o in operands], name)[0]
        return rewriter.splice(made, operands, lambda rewriter, x, operands: None).operands

    def _result(self, k: int, values: Values, kept: _Rows) -> Any:
        x = self.body.outputs[k]
        if x.op is not elementwise.add:
            row = self._row(k)
            assert row is not None
            rows = self._ordered(self._all_rows(row, values, kept), x.operands[2])
            rows = movement.reshape_to(rows, x.array_shape.dimensions)
            return rows if row is x.operands[1] else elementwise.add(values[k], rows)
        increment = self._increment(k)
        assert increment is not None
        return elementwise.add(values[k], self._total(increment, values, kept, {}))

    def _total(self, x: Instruction, values: Values, kept: _Rows, totals: _Rows) -> Any:
        """The sum of what x is in each step; `totals` are known."""
        terms = [] if x in kept or x.op is contraction.dot else self._terms(x)
        for o in terms:
            if o not in totals:
                totals[o] = self._total(o, values, kept, totals)
        if x.op is contraction.dot and x not in kept:
            return self._total_of_products(x, values, kept)
        if not terms:
            return reduction.reduce_sum(self._all_rows(x, values, kept), (0,))
        operands = [totals[o] if o in terms else self._once(o, values) for o in x.operands]
        return x.op(*operands, **x.attributes._asdict())

    def _total_of_products(self, x: Instruction, values: Values, kept: _Rows) -> Any:
        dims: contraction.Dot = x.attributes
        fixed = [o in self.kinds.same for o in x.operands]
        factors = [
            self._once(o, values) if same else self._all_rows(o, values, kept)
            for o, same in zip(x.operands, fixed, strict=True)
        ]
        if any(fixed):
            factors = [f if same else reduction.reduce_sum(f, (0,)) for f, same in zip(factors, fixed, strict=True)]
            return contraction.dot(*factors, **dims._asdict())
        for side in (0, 1):
            contracting, batch = (tuple(d + 1 for d in kind) for kind in (dims.contracting(side), dims.batch(side)))
            dims = dims.with_side(side, (0, *contracting), batch)
        return contraction.dot(*factors, **dims._asdict())

    def _once(self, x: Instruction, values: Values) -> Any:
        """What stays the same."""
        inputs = [p for p in self.body.parameters if p in self.kinds.same]
        chosen = [v for p, v in zip(self.body.parameters, values, strict=True) if p in self.kinds.same]
        return run(subgraph(self.body.name, inputs, [x]), chosen)[0]

    def _all_rows(self, x: Instruction, values: Values, kept: _Rows) -> Any:
        """What x is in each step, by the number of its row; `kept` are those that the steps have stacked."""
        if x in kept:
            return kept[x]
        inputs: list[Instruction] = []
        known: list[Any] = []
        axes: list[int | None] = []
        own = dict(zip(self.body.parameters, values, strict=True))

        def is_given(y: Instruction) -> bool:
            return y in kept or y in own or self._slice(y) is not None

        for y in filter(is_given, _walked(x, lambda y: () if is_given(y) else y.operands)):
            rows = self._slice(y)
            if y in kept:
                value = kept[y]
            elif rows is not None:
                value = self._sliced(y, rows, own[y.operands[0]])
            elif y in self.kinds.same:
                value = own[y]
            else:
                value = self._ordered(self._counted(y), y)
            inputs.append(y)
            known.append(value)
            axes.append(None if y in self.kinds.same else 0)
        made = batched(subgraph(self.body.name, inputs, [x]), self.count, tuple(axes), (True,))[0]
        return run(made, known)[0]

    def _slice(self, x: Instruction) -> int | None:
        """The first of the rows that x is, step by step."""
        if x.op is not dynamic_slices.dynamic_slice or x.operands[0] not in self.kinds.same or x.operands[0].operands:
            return None
        if x.operands[0].op is not movement.parameter:
            return None
        return self.kinds.first_row(x.operands[0].array_shape, x.array_shape, x.operands[1:])

    def _sliced(self, x: Instruction, first: int, whole: Any) -> Any:
        rows = movement.slice_axis(whole, 0, first, first + self.count)
        return self._ordered(movement.reshape_to(rows, (self.count, 1, *whole.shape[1:])), x.operands[1])

    def _counted(self, x: Instruction) -> Any:
        number, shape = self.kinds.numbers[x], Shape(x.array_shape.element_type, (self.count,))
        upwards = movement.iota(shape=shape, iota_dimension=0)
        scaled = elementwise.mul(upwards, movement.full(abs(number.step), shape.dtype, (self.count,)))
        return elementwise.add(scaled, movement.full(number.lowest(self.count), shape.dtype, (self.count,)))

    def _ordered(self, rows: Any, number: Instruction) -> Any:
        """Rows by what this counter is, from low to high, by the main counter, or the other way round."""
        assert self.main is not None
        counter = self.kinds.number(number)
        assert counter is not None
        if counter.step * self.kinds.numbers[self.main].step > 0:
            return rows
        return movement.reverse(rows, dimensions=(0,))


def _stack(x: Instruction, count: int) -> Shape:
    return x.array_shape.with_dimensions((count, *x.array_shape.dimensions))


def _is_heavy(x: Instruction) -> bool:
    return x.op is contraction.dot and _work(x) >= max(_LEAST_WORK, 2 * x.array_shape.size)


def _is_outer(x: Instruction) -> bool:
    """Whether it is an outer product, of two arrays or written as a multiplication."""
    if not isinstance(x.shape, Shape) or x.shape.size < _LEAST_WORK or not x.shape.element_type.is_inexact:
        return False
    if x.op is not elementwise.mul or any(o.op is not movement.broadcast for o in x.operands):
        return x.op is contraction.dot
    dimensions = [d for o in x.operands for d in o.attributes.dimensions]
    return sorted(dimensions) == list(range(x.shape.rank)) and all(o.attributes.dimensions for o in x.operands)


def _walked(x: Instruction, further: Callable[[Instruction], Iterable[Instruction]]) -> list[Instruction]:
    """An instruction and what can be reached from it, each once."""
    found: dict[Instruction, None] = {}
    waiting = [x]
    while waiting:
        y = waiting.pop()
        if y not in found:
            found[y] = None
            waiting.extend(further(y))
    return list(found)


# --- products in parts ------------------------------------------------------------------------------------------------


def _parted(kinds: Kinds) -> Computation:
    """With products of rows put together, of which some are known before the loop, as sums of products; and with parts
    of products as products of parts of what stays the same, if that is less."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if _is_heavy(x):
            for side in (0, 1):
                if runs := _runs(kinds, x, side):
                    return _sum_of_parts(rewriter, x, operands, side, runs)
        if x.op is elementwise.add:
            return _added_last(kinds, rewriter, x, operands)
        if x.op is elementwise.mul and _is_outer(x):
            return _as_product(rewriter, x, operands)
        if x.op is movement.slice_ and x.operands[0].op is operands[0].op is contraction.dot:
            return _part_of_product(kinds, rewriter, x, operands[0])
        return None

    return rewrite(kinds.body, visit)


def _added_last(
    kinds: Kinds, rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]
) -> Instruction | None:
    """(p + a) + b as p + (a + b), for a value p that the loop carries."""
    for k, (inner, other) in enumerate((operands, operands[::-1])):
        if inner.op is elementwise.add and kinds.users[x.operands[k]] == [x]:
            for p, term in (inner.operands, inner.operands[::-1]):
                if p.op is movement.parameter and other.op is not movement.parameter:
                    return rewriter.emit(elementwise.add, p, rewriter.emit(elementwise.add, term, other))
    return None


def _as_product(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    product = rewriter.emit(contraction.dot, *(o.operands[0] for o in operands), **contraction.Dot((), ())._asdict())
    dimensions = [d for o in operands for d in o.attributes.dimensions]
    return rewriter.emit(movement.transpose, product, permutation=movement.inverse_permutation(tuple(dimensions)))


def _runs(kinds: Kinds, x: Instruction, side: int) -> list[list[int]]:
    """The numbers of the pieces of a factor that are known before the loop, and of the others, in turn; if it has
    both."""
    whole, other, contracting = x.operands[side], x.operands[1 - side], x.attributes.contracting(side)
    if whole.op is not movement.concatenate or other not in kinds.same or x.attributes.batch(0):
        return []
    numbered = itertools.groupby(enumerate(whole.operands), lambda item: kinds.is_known(item[1]))
    runs = [[k for k, _ in items] for _, items in numbered]
    return runs if contracting == (whole.attributes.dimension,) and len(runs) > 1 else []


def _sum_of_parts(
    rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...], side: int, runs: list[list[int]]
) -> Instruction:
    products: list[Instruction] = []
    place, (dimension,), (others,) = 0, x.attributes.contracting(side), x.attributes.contracting(1 - side)
    for numbers in runs:
        pieces = [operands[side].operands[k] for k in numbers]
        part = pieces[0] if len(pieces) == 1 else rewriter.emit(movement.concatenate, *pieces, dimension=dimension)
        length = part.array_shape.dimensions[dimension]
        factors = (part, _slice_of(rewriter, operands[1 - side], others, place, length))
        products.append(rewriter.emit(contraction.dot, *(factors[:: 1 - 2 * side]), **x.attributes._asdict()))
        place += length
    return functools.reduce(lambda a, b: rewriter.emit(elementwise.add, a, b), products)


def _slice_of(rewriter: Rewriter, x: Instruction, dimension: int, start: int, length: int) -> Instruction:
    """Some of the elements along a dimension."""
    sizes = x.array_shape.dimensions
    starts = tuple(start if d == dimension else 0 for d in range(len(sizes)))
    limits = tuple(start + length if d == dimension else size for d, size in enumerate(sizes))
    return rewriter.emit(movement.slice_, x, start_indices=starts, limit_indices=limits, strides=(1,) * len(sizes))


def _part_of_product(kinds: Kinds, rewriter: Rewriter, x: Instruction, product: Instruction) -> Instruction | None:
    """A slice of a product as a product of a slice, where no more of the product is needed than its parts."""
    dims: contraction.Dot = x.operands[0].attributes
    parts = kinds.users[x.operands[0]]
    total = sum(y.array_shape.size for y in parts)
    if _work(x.operands[0]) < _LEAST_WORK or any(y.op is not movement.slice_ for y in parts):
        return None
    sizes = product.array_shape.dimensions
    cut = [d for d, size in enumerate(sizes) if x.array_shape.dimensions[d] != size]
    if total >= product.array_shape.size or len(cut) != 1 or set(x.attributes.strides) != {1}:
        return None
    batch, rank = len(dims.lhs_batch_dims), product.operands[0].array_shape.rank
    places = [*dims.lhs_batch_dims, *contraction.free_dimensions(rank, dims.lhs_contracting_dims, dims.lhs_batch_dims)]
    side = int(cut[0] >= len(places))
    if side:
        rank = product.operands[1].array_shape.rank
        free = contraction.free_dimensions(rank, dims.rhs_contracting_dims, dims.rhs_batch_dims)
        places = [*places, *free]
    if cut[0] < batch or x.operands[0].operands[side] not in kinds.same:
        return None
    start = x.attributes.start_indices[cut[0]]
    factors = list(product.operands)
    factors[side] = _slice_of(rewriter, factors[side], places[cut[0]], start, x.array_shape.dimensions[cut[0]])
    return rewriter.emit(contraction.dot, *factors, **dims._asdict())
