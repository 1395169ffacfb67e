"""Batching of dots out of loops with a known trip count: matrix products on single rows of arrays become one product on
all rows (as cuDNN's RNNs batch the input GEMM).

A matrix product with one row reads the full matrix in every step. So of the dots of a step

- those on rows that exist before the loop (a sequence's elements times weights) become one dot before the loop,
- those that are only summed over the steps (gradients of weights) become one dot after the loop, of values that the
  steps stack: sum_t a_t' b_t = A' B,
- those that only write rows of a result become one dot after the loop, too.

A dot whose factor concatenates rows of both kinds is split: (x h) (U; V) = x U + h V.

Does not apply to loops of unknown or small trip count, and to loops with side effects.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tinyxla.compiler.costs import CALL_OPS, L2_BYTES
from tinyxla.compiler.passes.algebraic_simplifier import scalar_value, simplify
from tinyxla.compiler.passes.licm import sink_constants
from tinyxla.compiler.rewriter import Rewriter, for_opcodes, is_unique, rewrite
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, dynamic_slices, elementwise, movement, ops, reduction
from tinyxla.ops.products import contraction
from tinyxla.shapes import Shape
from tinyxla.tracing.core import trace
from tinyxla.transforms.computations import batched, effects, needed, run, subgraph, with_parameters
from tinyxla.transforms.invariants import computed, counting, literal_of, unchanged
from tinyxla.transforms.while_reverse import allocated, at, integer, put

_MIN_DOT_OPS = CALL_OPS * 20  # multiplications per step, below which a dot stays
_ORDERS = {"LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge}
_LINEAR = frozenset("add subtract negate transpose reshape slice pad concatenate broadcast reduce".split())

Values = Sequence[Any]
_StackedValues = dict[Instruction, Any]  # values of all steps, stacked along a new first dimension


@for_opcodes("while")
def batch_loop_dots(computation: Computation) -> Computation:
    """The computation with dots batched out of its loops, and without rows that are written but never read."""
    users = computation.users()

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if x.op.name != "while":
            return None
        loop = sink_constants(x.attributes, operands)
        if (loop.known_trip_count or 0) >= 4 and not any(effects(c) for c in x.computations()):
            used = {u.attributes.index if u.op is calls.get_tuple_element else -1 for u in users[x]}
            read = needed([loop.condition.root])
            used |= {k for k, p in enumerate(loop.condition.parameters) if p in read}
            if -1 not in used:
                loop = sink_constants(_drop_dead_row_updates(loop, operands, used), operands)
            if any(_is_heavy(y) or _is_outer_product(y) for y in loop.body.instructions):
                batched_loop = _BatchedLoop(loop, operands)
                if batched_loop.row_counter is not None and batched_loop.is_profitable:
                    return batched_loop.emit(rewriter)
        return None if loop is x.attributes else rewriter.emit(x.op, *operands, **loop._asdict())

    return rewrite(computation, visit)


def _drop_dead_row_updates(loop: Any, operands: Sequence[Instruction], used: set[int]) -> Any:
    """The loop without updates of rows that no later step reads, of arrays that are unused after the loop."""
    body = loop.body
    analysis = LoopValueAnalysis(body, operands, loop.known_trip_count)
    outputs = list(body.outputs)
    for k, (p, x) in enumerate(zip(body.parameters, outputs, strict=True)):
        if k in used or x.op is not dynamic_slices.dynamic_update_slice or x.operands[0] is not p:
            continue
        if analysis.users[x] != [body.root]:
            continue
        row = analysis.lowest_row(p.array_shape, x.operands[1].array_shape, x.operands[2:])
        reads = [read for read in analysis.users[p] if read is not x]
        reads_only_that_row = all(
            read.op is dynamic_slices.dynamic_slice
            and read.shape == x.operands[1].shape
            and analysis.counter(read.operands[1]) == analysis.counter(x.operands[2])
            and analysis.lowest_row(p.array_shape, read.array_shape, read.operands[1:]) is not None
            for read in reads
        )
        if row is not None and reads_only_that_row:
            outputs[k] = p
    return loop if outputs == list(body.outputs) else loop._replace(body=subgraph(body.name, body.parameters, outputs))


def _multiplications(x: Instruction) -> int:
    lhs = x.operands[0].array_shape.dimensions
    return x.array_shape.size * math.prod(lhs[d] for d in x.attributes.lhs_contracting_dims)


def _bytes(x: Instruction) -> int:
    return x.array_shape.size * x.array_shape.dtype.itemsize


class _Counter(NamedTuple):
    """An integer that is `start` in the first step and grows by `step`."""

    start: int
    step: int

    def lowest(self, count: int) -> int:
        """The lowest value in `count` steps."""
        return min(self.start, self.start + (count - 1) * self.step)


class LoopValueAnalysis:
    """Values of a loop body that are known before the loop: `invariant` ones, and `rows`, which depend on invariants
    and counters."""

    def __init__(self, body: Computation, operands: Sequence[Instruction], count: int) -> None:
        self.body, self.users, self.count = body, body.users(), count
        parameters = list(zip(body.parameters, operands, strict=True))
        is_invariant = unchanged(body)
        self.invariant = {p for (p, _), invariant in zip(parameters, is_invariant, strict=True) if invariant}
        initial_values = {p: literal_of(o) for p, o in parameters}
        steps = {body.parameters[k]: step for k, step in counting(body).items()}
        self.counters = {
            p: _Counter(start, steps.get(p, 0))
            for p, start in initial_values.items()
            if start is not None and (p in steps or p in self.invariant)
        }
        self.rows = {p for p in steps if p in self.counters}
        for x in body.instructions:
            if x.op is movement.parameter or not _is_batchable(x):
                continue
            if all(o in self.invariant for o in x.operands):
                self.invariant.add(x)
            elif all(o in self.invariant or o in self.rows for o in x.operands):
                self.rows.add(x)

    def is_known(self, x: Instruction) -> bool:
        return x in self.invariant or x in self.rows

    def counter(self, x: Instruction) -> _Counter | None:
        """The integer as a counter or constant; None if it is neither."""
        if x in self.counters:
            return self.counters[x]
        if x.op is movement.constant:
            value = literal_of(x)
            return None if value is None else _Counter(value, 0)
        if x.op is elementwise.select:
            condition = self._comparison_value(x.operands[0])
            return None if condition is None else self.counter(x.operands[1 if condition else 2])
        if x.op not in (elementwise.add, elementwise.sub, elementwise.mul) or x.array_shape.rank:
            return None
        a, b = map(self.counter, x.operands)
        if a is None or b is None:
            return None
        if x.op is elementwise.mul:
            if a.step and b.step:
                return None
            return _Counter(a.start * b.start, a.step * b.start + b.step * a.start)
        sign = 1 if x.op is elementwise.add else -1
        return _Counter(a.start + sign * b.start, a.step + sign * b.step)

    def lowest_row(self, array: Shape, slice_shape: Shape, starts: Sequence[Instruction]) -> int | None:
        """The lowest row that the steps access, if each step accesses one full row, another than all others;
        otherwise None."""
        if not array.rank or slice_shape.dimensions != (1, *array.dimensions[1:]):
            return None
        row, *columns = map(self.counter, starts)
        if row is None or abs(row.step) != 1 or any(column != (0, 0) for column in columns):
            return None
        first = row.lowest(self.count)
        return first if 0 <= first <= array.dimensions[0] - self.count else None

    def _comparison_value(self, x: Instruction) -> bool | None:
        """The value of an integer comparison that is the same in all steps; otherwise None."""
        test = _ORDERS.get(x.attributes.direction) if x.op is elementwise.compare else None
        a, b = map(self.counter, x.operands) if test is not None else (None, None)
        if test is None or a is None or b is None:
            return None
        first, last = (a.start + t * a.step - b.start - t * b.step for t in (0, self.count - 1))
        return test(first, 0) if test(first, 0) == test(last, 0) else None


def _is_batchable(x: Instruction) -> bool:
    """True if an instruction can be evaluated for all steps at once."""
    has_computation = x.op is not reduction.reduce and any(x.computations())
    return isinstance(x.shape, Shape) and not (has_computation or x.has_side_effect or is_unique(x))


class _BatchedLoop:
    """A loop and the values moved out of it: `dropped` are the indices of results that are computed after the loop;
    `stacked` are the values that steps keep for them; `hoisted` are computed before the loop, for all steps or once."""

    def __init__(self, attributes: Any, operands: tuple[Instruction, ...]) -> None:
        self.condition, self.operands, self.count = attributes.condition, operands, attributes.known_trip_count
        body = simplify(attributes.body)
        self.analysis = LoopValueAnalysis(
            _split_concatenated_dots(LoopValueAnalysis(body, operands, self.count)), operands, self.count
        )
        self.body = self.analysis.body
        self.dropped: list[int] = []
        self.stacked: dict[Instruction, None] = {}
        self.hoisted: list[Instruction] = []
        if self.row_counter is not None:
            self._choose_results()
            self._choose_hoisted()

    @functools.cached_property
    def row_counter(self) -> Instruction | None:
        """The counter that numbers the rows; None if there is none."""
        counters = (
            p
            for p, counter in self.analysis.counters.items()
            if abs(counter.step) == 1 and p.array_shape.element_type.name == "s32"
        )
        return next(counters, None)

    @property
    def is_profitable(self) -> bool:
        return bool(self.dropped) or any(x in self.analysis.rows for x in self.hoisted)

    # --- choices

    def _choose_results(self) -> None:
        outputs, read = self.body.outputs, needed([self.condition.root])
        candidates = {
            k: value
            for k, p in enumerate(self.condition.parameters)
            if p not in read and (value := self._accumulated_term(k) or self._written_row(k))
        }
        while True:
            live = needed(x for k, x in enumerate(outputs) if k not in candidates)
            kept = {k: leaves for k, x in candidates.items() if (leaves := self._leaf_values(k, x, live)) is not None}
            if len(kept) == len(candidates):
                break
            candidates = {k: candidates[k] for k in kept}
        free_bytes = max(L2_BYTES, 2 * sum(map(_bytes, self.operands)))
        for k, leaves in kept.items():
            rows = [x for x in leaves if not self.analysis.is_known(x) and x not in self.stacked]
            free_bytes -= self.count * sum(map(_bytes, rows))
            if free_bytes < 0:
                break
            self.dropped.append(k)
            self.stacked.update(dict.fromkeys(rows))
        for k in range(len(outputs)):  # sums of values that are stacked anyway
            term = None if k in self.dropped else self._accumulated_term(k)
            if term is not None and self.dropped:
                leaves = set[Instruction]()
                if self._sum_leaves(term, leaves) is not None and leaves <= self.stacked.keys():
                    self.dropped.append(k)

    def _only_user(self, x: Instruction, user: Instruction) -> bool:
        return self.analysis.users[x] == [user]

    def _accumulated_term(self, k: int) -> Instruction | None:
        """The term that a step adds to a value that it does not use otherwise; None if result k is no such sum."""
        p, x = self.body.parameters[k], self.body.outputs[k]
        if x.op is not elementwise.add or not x.array_shape.element_type.is_inexact or not self._only_user(p, x):
            return None
        a, b = x.operands
        return (b if a is p else a) if self._only_user(x, self.body.root) and a is not b else None

    def _written_row(self, k: int) -> Instruction | None:
        """The row that a step writes to, or adds to the row of, an array that all steps together fill; None if
        result k is no such array."""
        p, x = self.body.parameters[k], self.body.outputs[k]
        if x.op is not dynamic_slices.dynamic_update_slice or x.operands[0] is not p:
            return None
        row, array = x.operands[1], p.array_shape
        first = self.analysis.lowest_row(array, row.array_shape, x.operands[2:])
        if first is None or array.dimensions[0] != self.count or not self._only_user(x, self.body.root):
            return None
        if self._only_user(p, x):
            return row
        for old_row, added in (row.operands, row.operands[::-1]) if row.op is elementwise.add else ():
            is_same_row = (
                old_row.op is dynamic_slices.dynamic_slice
                and old_row.operands[0] is p
                and old_row.operands[1:] == x.operands[2:]
            )
            if (
                is_same_row
                and set(self.analysis.users[p]) == {old_row, x}
                and self._only_user(old_row, row)
                and self._only_user(row, x)
            ):
                return added
        return None

    def _leaf_values(self, k: int, x: Instruction, live: set[Instruction]) -> set[Instruction] | None:
        """The values from which the rows or the sum of a result can be computed after the loop; None if that is not
        profitable."""
        leaves: set[Instruction] = set()
        if self.body.outputs[k].op is elementwise.add:
            has_heavy_dot = self._sum_leaves(x, leaves)
            return (
                leaves
                if has_heavy_dot and all(_is_batchable(y) or y.op is movement.parameter for y in leaves)
                else None
            )

        def is_leaf(y: Instruction) -> bool:
            is_opaque = y.op in (movement.parameter, calls.get_tuple_element) or not _is_batchable(y)
            return not self.analysis.is_known(y) and (y in live or is_opaque)

        reached = _reachable(x, lambda y: () if is_leaf(y) else y.operands)
        leaves.update(filter(is_leaf, reached))
        has_heavy_dot = any(_is_heavy(y) for y in reached if y not in leaves)
        if not has_heavy_dot or not all(isinstance(y.shape, Shape) for y in leaves):
            return None
        return leaves if sum(map(_bytes, leaves)) <= 4 * _bytes(x) else None

    def _sum_leaves(self, x: Instruction, leaves: set[Instruction]) -> bool | None:
        """Collect the values from which the sum of x over all steps can be computed; returns whether it includes a
        large dot, or None if the sum cannot be computed."""
        has_heavy_dot = False
        for y in _reachable(x, lambda y: [] if y in self.stacked or y.op is contraction.dot else self._terms(y)):
            if y in self.analysis.invariant or not isinstance(y.shape, Shape):
                return None
            if y.op is contraction.dot and y not in self.stacked:
                leaves.update(o for o in y.operands if not self.analysis.is_known(o))
                size = sum(o.array_shape.size for o in y.operands if o not in self.analysis.invariant)
                has_heavy_dot |= _multiplications(y) >= _MIN_DOT_OPS and size <= 2 * y.array_shape.size
            elif y in self.stacked or not self._terms(y):
                leaves.update(() if self.analysis.is_known(y) else (y,))
        return has_heavy_dot

    def _terms(self, x: Instruction) -> list[Instruction]:
        """The operands in which x is linear, if these are all that vary between steps."""
        first = x.operands[:1]
        if x.op.name not in _LINEAR or (x.op is movement.pad and scalar_value(x.operands[1]) != 0):
            return []
        if x.op is reduction.reduce:
            is_sum = len(x.operands) == 2 and reduction.monoid(x.attributes.to_apply) == "add"
            return list(first) if is_sum and scalar_value(x.operands[1]) == 0 else []
        return list(first) if x.op is movement.pad else list(x.operands)

    def _choose_hoisted(self) -> None:
        """Choose the values to compute before the loop: dots that are known before it and used by the remaining
        steps, and their operands."""
        outputs = [x for k, x in enumerate(self.body.outputs) if k not in self.dropped]
        remaining = needed([*outputs, *self.stacked])
        heavy: set[Instruction] = set()
        candidates: dict[Instruction, None] = {}
        for x in self.body.instructions:
            if x in self.analysis.rows and (_is_heavy(x) or any(o in heavy for o in x.operands)):
                heavy.add(x)
            if x not in remaining or x is self.body.root or self.analysis.is_known(x):
                continue
            for o in x.operands:
                candidates.update((y, None) for y in computed(o) if y in heavy)
                if x.op is contraction.dot and o in self.analysis.invariant and o.operands:
                    candidates[o] = None
        free_bytes = max(L2_BYTES, 2 * sum(map(_bytes, self.operands)))
        for x in candidates:
            free_bytes -= _bytes(x) * (self.count if x in self.analysis.rows else 1)
            if free_bytes >= 0:
                self.hoisted.append(x)

    # --- the new loop

    def emit(self, rewriter: Rewriter) -> Instruction:
        """Emit the new loop; returns the tuple of its results."""
        count, stacks = len(self.operands), list(self.stacked)
        first_stack = count + len(self.hoisted)
        shapes = [o.shape for o in self.operands]

        def before(*values: Any) -> list[Any]:
            rows = [
                self._value_in_all_steps(x, values, {}) if x in self.analysis.rows else self._invariant_value(x, values)
                for x in self.hoisted
            ]
            return [*rows, *(allocated(_stacked_shape(x, self.count)) for x in stacks)]

        def step(*values: Any) -> list[Any]:
            assert self.row_counter is not None
            own, hoisted, stacks_of = values[:count], values[count:first_stack], values[first_stack:]
            values_of: _StackedValues = dict(zip(self.body.parameters, own, strict=True))
            row = elementwise.sub(
                values_of[self.row_counter], integer(self.analysis.counters[self.row_counter].lowest(self.count))
            )
            values_of |= {
                x: at(y, row) if x in self.analysis.rows else y for x, y in zip(self.hoisted, hoisted, strict=True)
            }
            outputs = list(self.body.outputs)
            for k in self.dropped:
                outputs[k] = self.body.parameters[k]
            remaining = subgraph(self.body.name, list(values_of), [*outputs, *stacks])
            results = run(remaining, list(values_of.values()))
            stacked_rows = [put(rows, x, row) for rows, x in zip(stacks_of, results[count:], strict=True)]
            return [*results[:count], *hoisted, *stacked_rows]

        hoisted_values = self._inline(rewriter, before, self.operands, f"{self.body.name}_before")
        shapes += [x.shape for x in hoisted_values]
        attributes = {
            "condition": with_parameters(self.condition, shapes),
            "body": trace(step, shapes, self.body.name)[0],
            "known_trip_count": self.count,
        }
        loop = rewriter.emit(ops["while"], *self.operands, *hoisted_values, **attributes)
        results = [rewriter.emit(calls.get_tuple_element, loop, index=k) for k in range(len(shapes))]

        def after(*values: Any) -> list[Any]:
            stacks_of = dict(zip(stacks, values[count:], strict=True))
            return [self._deferred_result(k, values[:count], stacks_of) for k in self.dropped]

        inputs = [*self.operands, *results[first_stack:]]
        hoisted = self._inline(rewriter, after, inputs, f"{self.body.name}_after")
        for k, x in zip(self.dropped, hoisted, strict=True):
            results[k] = x
        return rewriter.emit(calls.tuple_, *results[:count])

    def _inline(
        self, rewriter: Rewriter, function: Callable[..., list[Any]], operands: Sequence[Instruction], name: str
    ) -> tuple[Instruction, ...]:
        made = trace(function, [o.shape for o in operands], name)[0]
        return rewriter.splice(made, operands, lambda rewriter, x, operands: None).operands

    def _deferred_result(self, k: int, values: Values, stacks: _StackedValues) -> Any:
        x = self.body.outputs[k]
        if x.op is not elementwise.add:
            row = self._written_row(k)
            assert row is not None
            rows = self._in_row_order(self._value_in_all_steps(row, values, stacks), x.operands[2])
            rows = movement.reshape_to(rows, x.array_shape.dimensions)
            return rows if row is x.operands[1] else elementwise.add(values[k], rows)
        increment = self._accumulated_term(k)
        assert increment is not None
        return elementwise.add(values[k], self._sum_over_steps(increment, values, stacks, {}))

    def _sum_over_steps(self, x: Instruction, values: Values, stacks: _StackedValues, totals: _StackedValues) -> Any:
        """The sum of x over all steps; `totals` caches sums."""
        terms = [] if x in stacks or x.op is contraction.dot else self._terms(x)
        for o in terms:
            if o not in totals:
                totals[o] = self._sum_over_steps(o, values, stacks, totals)
        if x.op is contraction.dot and x not in stacks:
            return self._sum_of_dots(x, values, stacks)
        if not terms:
            return reduction.reduce_sum(self._value_in_all_steps(x, values, stacks), (0,))
        operands = [totals[o] if o in terms else self._invariant_value(o, values) for o in x.operands]
        return x.op(*operands, **x.attributes._asdict())

    def _sum_of_dots(self, x: Instruction, values: Values, stacks: _StackedValues) -> Any:
        dims: contraction.Dot = x.attributes
        is_invariant = [o in self.analysis.invariant for o in x.operands]
        factors = [
            self._invariant_value(o, values) if invariant else self._value_in_all_steps(o, values, stacks)
            for o, invariant in zip(x.operands, is_invariant, strict=True)
        ]
        if any(is_invariant):
            factors = [
                f if invariant else reduction.reduce_sum(f, (0,))
                for f, invariant in zip(factors, is_invariant, strict=True)
            ]
            return contraction.dot(*factors, **dims._asdict())
        for side in (0, 1):
            contracting, batch = (tuple(d + 1 for d in kind) for kind in (dims.contracting(side), dims.batch(side)))
            dims = dims.with_side(side, (0, *contracting), batch)
        return contraction.dot(*factors, **dims._asdict())

    def _invariant_value(self, x: Instruction, values: Values) -> Any:
        """The value of an invariant."""
        inputs = [p for p in self.body.parameters if p in self.analysis.invariant]
        chosen = [v for p, v in zip(self.body.parameters, values, strict=True) if p in self.analysis.invariant]
        return run(subgraph(self.body.name, inputs, [x]), chosen)[0]

    def _value_in_all_steps(self, x: Instruction, values: Values, stacks: _StackedValues) -> Any:
        """The values of x in all steps, by row; `stacks` are those that the steps stacked."""
        if x in stacks:
            return stacks[x]
        inputs: list[Instruction] = []
        input_values: list[Any] = []
        axes: list[int | None] = []
        parameter_values = dict(zip(self.body.parameters, values, strict=True))

        def is_input(y: Instruction) -> bool:
            return y in stacks or y in parameter_values or self._sliced_row(y) is not None

        for y in filter(is_input, _reachable(x, lambda y: () if is_input(y) else y.operands)):
            rows = self._sliced_row(y)
            if y in stacks:
                value = stacks[y]
            elif rows is not None:
                value = self._slice_rows(y, rows, parameter_values[y.operands[0]])
            elif y in self.analysis.invariant:
                value = parameter_values[y]
            else:
                value = self._in_row_order(self._counter_values(y), y)
            inputs.append(y)
            input_values.append(value)
            axes.append(None if y in self.analysis.invariant else 0)
        batched_computation = batched(subgraph(self.body.name, inputs, [x]), self.count, tuple(axes), (True,))[0]
        return run(batched_computation, input_values)[0]

    def _sliced_row(self, x: Instruction) -> int | None:
        """The lowest row of an invariant array of which x is one row per step; None otherwise."""
        if (
            x.op is not dynamic_slices.dynamic_slice
            or x.operands[0] not in self.analysis.invariant
            or x.operands[0].operands
        ):
            return None
        if x.operands[0].op is not movement.parameter:
            return None
        return self.analysis.lowest_row(x.operands[0].array_shape, x.array_shape, x.operands[1:])

    def _slice_rows(self, x: Instruction, first_row: int, array: Any) -> Any:
        rows = movement.slice_axis(array, 0, first_row, first_row + self.count)
        return self._in_row_order(movement.reshape_to(rows, (self.count, 1, *array.shape[1:])), x.operands[1])

    def _counter_values(self, x: Instruction) -> Any:
        number, shape = self.analysis.counters[x], Shape(x.array_shape.element_type, (self.count,))
        upwards = movement.iota(shape=shape, iota_dimension=0)
        scaled = elementwise.mul(upwards, movement.full(abs(number.step), shape.dtype, (self.count,)))
        return elementwise.add(scaled, movement.full(number.lowest(self.count), shape.dtype, (self.count,)))

    def _in_row_order(self, rows: Any, number: Instruction) -> Any:
        """Values ordered by another counter, reordered by the row counter."""
        assert self.row_counter is not None
        counter = self.analysis.counter(number)
        assert counter is not None
        if counter.step * self.analysis.counters[self.row_counter].step > 0:
            return rows
        return movement.reverse(rows, dimensions=(0,))


def _stacked_shape(x: Instruction, count: int) -> Shape:
    return x.array_shape.with_dimensions((count, *x.array_shape.dimensions))


def _is_heavy(x: Instruction) -> bool:
    return x.op is contraction.dot and _multiplications(x) >= max(_MIN_DOT_OPS, 2 * x.array_shape.size)


def _is_outer_product(x: Instruction) -> bool:
    """True for an outer product, as a dot or as a multiplication of broadcasts."""
    if not isinstance(x.shape, Shape) or x.shape.size < _MIN_DOT_OPS or not x.shape.element_type.is_inexact:
        return False
    if x.op is not elementwise.mul or any(o.op is not movement.broadcast for o in x.operands):
        return x.op is contraction.dot
    dimensions = [d for o in x.operands for d in o.attributes.dimensions]
    return sorted(dimensions) == list(range(x.shape.rank)) and all(o.attributes.dimensions for o in x.operands)


def _reachable(x: Instruction, successors: Callable[[Instruction], Iterable[Instruction]]) -> list[Instruction]:
    """An instruction and all that are reachable from it, each once."""
    reached: dict[Instruction, None] = {}
    pending = [x]
    while pending:
        y = pending.pop()
        if y not in reached:
            reached[y] = None
            pending.extend(successors(y))
    return list(reached)


# --- splitting of dots ------------------------------------------------------------------------------------------------


def _split_concatenated_dots(analysis: LoopValueAnalysis) -> Computation:
    """The body with dots of concatenations, some of whose operands are known before the loop, as sums of dots; and
    with slices of dots as dots of slices of invariants, if that is less work."""

    def visit(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if _is_heavy(x):
            for side in (0, 1):
                if runs := _known_runs(analysis, x, side):
                    return _sum_of_partial_dots(rewriter, x, operands, side, runs)
        if x.op is elementwise.add:
            return _reassociate_accumulation(analysis, rewriter, x, operands)
        if x.op is elementwise.mul and _is_outer_product(x):
            return _outer_product_as_dot(rewriter, x, operands)
        if x.op is movement.slice_ and x.operands[0].op is operands[0].op is contraction.dot:
            return _dot_of_slice(analysis, rewriter, x, operands[0])
        return None

    return rewrite(analysis.body, visit)


def _reassociate_accumulation(
    analysis: LoopValueAnalysis, rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]
) -> Instruction | None:
    """(p + a) + b as p + (a + b), for a carried value p."""
    for k, (inner, other) in enumerate((operands, operands[::-1])):
        if inner.op is elementwise.add and analysis.users[x.operands[k]] == [x]:
            for p, term in (inner.operands, inner.operands[::-1]):
                if p.op is movement.parameter and other.op is not movement.parameter:
                    return rewriter.emit(elementwise.add, p, rewriter.emit(elementwise.add, term, other))
    return None


def _outer_product_as_dot(rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    product = rewriter.emit(contraction.dot, *(o.operands[0] for o in operands), **contraction.Dot((), ())._asdict())
    dimensions = [d for o in operands for d in o.attributes.dimensions]
    return rewriter.emit(movement.transpose, product, permutation=movement.inverse_permutation(tuple(dimensions)))


def _known_runs(analysis: LoopValueAnalysis, x: Instruction, side: int) -> list[list[int]]:
    """The positions of a concatenated factor's operands, as maximal runs that are known before the loop or not;
    empty unless there are both."""
    concatenation, other, contracting = x.operands[side], x.operands[1 - side], x.attributes.contracting(side)
    if concatenation.op is not movement.concatenate or other not in analysis.invariant or x.attributes.batch(0):
        return []
    groups = itertools.groupby(enumerate(concatenation.operands), lambda item: analysis.is_known(item[1]))
    runs = [[k for k, _ in items] for _, items in groups]
    return runs if contracting == (concatenation.attributes.dimension,) and len(runs) > 1 else []


def _sum_of_partial_dots(
    rewriter: Rewriter, x: Instruction, operands: tuple[Instruction, ...], side: int, runs: list[list[int]]
) -> Instruction:
    products: list[Instruction] = []
    start, (dimension,), (other_dimension,) = 0, x.attributes.contracting(side), x.attributes.contracting(1 - side)
    for positions in runs:
        operands_in_run = [operands[side].operands[k] for k in positions]
        factor = (
            operands_in_run[0]
            if len(operands_in_run) == 1
            else rewriter.emit(movement.concatenate, *operands_in_run, dimension=dimension)
        )
        length = factor.array_shape.dimensions[dimension]
        factors = (factor, _slice_dimension(rewriter, operands[1 - side], other_dimension, start, length))
        products.append(rewriter.emit(contraction.dot, *(factors[:: 1 - 2 * side]), **x.attributes._asdict()))
        start += length
    return functools.reduce(lambda a, b: rewriter.emit(elementwise.add, a, b), products)


def _slice_dimension(rewriter: Rewriter, x: Instruction, dimension: int, start: int, length: int) -> Instruction:
    """A slice along one dimension."""
    sizes = x.array_shape.dimensions
    starts = tuple(start if d == dimension else 0 for d in range(len(sizes)))
    limits = tuple(start + length if d == dimension else size for d, size in enumerate(sizes))
    return rewriter.emit(movement.slice_, x, start_indices=starts, limit_indices=limits, strides=(1,) * len(sizes))


def _dot_of_slice(
    analysis: LoopValueAnalysis, rewriter: Rewriter, x: Instruction, product: Instruction
) -> Instruction | None:
    """A slice of a dot as a dot of a slice, if only slices of the dot are needed."""
    dims: contraction.Dot = x.operands[0].attributes
    slices = analysis.users[x.operands[0]]
    needed_elements = sum(y.array_shape.size for y in slices)
    if _multiplications(x.operands[0]) < _MIN_DOT_OPS or any(y.op is not movement.slice_ for y in slices):
        return None
    sizes = product.array_shape.dimensions
    sliced_dims = [d for d, size in enumerate(sizes) if x.array_shape.dimensions[d] != size]
    if needed_elements >= product.array_shape.size or len(sliced_dims) != 1 or set(x.attributes.strides) != {1}:
        return None
    batch, rank = len(dims.lhs_batch_dims), product.operands[0].array_shape.rank
    operand_dims = [
        *dims.lhs_batch_dims,
        *contraction.free_dimensions(rank, dims.lhs_contracting_dims, dims.lhs_batch_dims),
    ]
    side = int(sliced_dims[0] >= len(operand_dims))
    if side:
        rank = product.operands[1].array_shape.rank
        free = contraction.free_dimensions(rank, dims.rhs_contracting_dims, dims.rhs_batch_dims)
        operand_dims = [*operand_dims, *free]
    if sliced_dims[0] < batch or x.operands[0].operands[side] not in analysis.invariant:
        return None
    start = x.attributes.start_indices[sliced_dims[0]]
    factors = list(product.operands)
    factors[side] = _slice_dimension(
        rewriter, factors[side], operand_dims[sliced_dims[0]], start, x.array_shape.dimensions[sliced_dims[0]]
    )
    return rewriter.emit(contraction.dot, *factors, **dims._asdict())
