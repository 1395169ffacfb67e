"""Lock step: a `while` over a block of independent instances, each iteration of which is a vectorized loop over all of
them (time tiling; SIMT with masks where trip counts differ).

An instance is an element of the carried arrays of a pointwise loop (`pointwise_while`) or a member of a batch
(`batched_while`). Carried values stay in rows of scratch memory, one row for each scalar of an instance, so that a
block which fits into the cache is read from memory and written to it once for all iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyxla.loopir.ir.loop_ir import Buffer, Compute, Index, Literal, Loop, LoopCarried, Operand
from tinyxla.loopir.ir.operations import has_slow_path
from tinyxla.loopir.lower.emit import UNBOUNDED, Lowering

Values = Sequence[Operand]  # the carried values of an instance, one for each row


def _no_counters(counters: Values) -> Values:
    return counters


class LockStepLoop:
    """The rows of up to `width` instances that carry values of the given types, and the loops over them. Callbacks are
    given the position of an instance in the rows."""

    def __init__(self, low: Lowering, types: Sequence[str], width: int) -> None:
        self._low, self._width = low, width
        self._rows = [low.builder.scratch(type, width) for type in types]

    def load(self, position: Index) -> list[Operand]:
        """The carried values of an instance."""
        return [self._low.builder.load(row, position) for row in self._rows]

    def _store(self, position: Index, values: Values, rows: Sequence[Buffer]) -> None:
        for row, value in zip(rows, values, strict=True):
            self._low.builder.store(row, position, value)

    def iterate(
        self,
        count: Index,
        steps: int,
        initial: Callable[[Index], Values],
        step: Callable[[Index, Index], Values],
        counters: Values = (),
        next_counters: Callable[[Values], Values] = _no_counters,
    ) -> list[Operand]:
        """Iterate `count` instances for a known number of steps.

        Args:
            count: number of instances.
            steps: trip count of all.
            initial: their initial values.
            step: their next values in an iteration of this number.
            counters: initial values of scalars that all instances have in common.
            next_counters: emits what an iteration computes once, and gives the next values of the counters.

        Returns:
            The last values of the counters.
        """
        low = self._low
        with low.loop(0, count) as (j, _):
            self._store(j, initial(j), self._rows)
        with low.loop(0, steps, [*counters], sequential=True) as (t, outer):
            for slot, value in zip(outer.carried, next_counters([c.arg for c in outer.carried]), strict=True):
                slot.next = value
            with low.loop(0, count) as (j, inner):
                values = step(t, j)
                rows = self._rows_of_next_values(inner)
                self._store(j, values, rows)
            if rows is not self._rows:
                with low.loop(0, count) as (j, _):
                    self._store(j, [low.builder.load(row, j) for row in rows], self._rows)
        return [c.result for c in outer.carried]

    def _rows_of_next_values(self, loop: Loop) -> list[Buffer]:
        """The rows that a loop writes: others than it reads if it has a slow path, for which it runs again."""
        if any(isinstance(x, Compute) and has_slow_path(x) for x in loop.body):
            return [self._low.builder.scratch(row.type, self._width) for row in self._rows]
        return self._rows

    def iterate_while(
        self,
        count: Index,
        initial: Callable[[Index], Values],
        step: Callable[[Index, Values], Values],
        condition: Callable[[Index, Values], Operand],
    ) -> None:
        """Iterate while the condition of any instance holds; instances that have ended keep their values."""
        low, b, zero = self._low, self._low.builder, Literal("s32", 0)
        running = b.scratch("pred", self._width)

        def record(j: Index, values: Values, is_running: Operand, any_running: LoopCarried) -> None:
            self._store(j, values, self._rows)
            b.store(running, j, is_running)
            any_running.next = b.or_(any_running.arg, b.convert("s32", is_running))

        def holds(any_running: LoopCarried) -> Operand:
            return b.compare("NE", any_running.result, zero)

        with low.loop(0, count, [zero]) as (j, inner):
            values = initial(j)
            record(j, values, condition(j, values), inner.carried[0])
        with low.loop(0, b.select(holds(inner.carried[0]), UNBOUNDED), sequential=True) as (_, outer):
            with low.loop(0, count, [zero]) as (j, inner):
                old, is_running = self.load(j), b.load(running, j)
                new = zip(step(j, old), old, strict=True)
                values = [b.select(is_running, x, y) for x, y in new]
                record(j, values, b.and_(is_running, condition(j, values)), inner.carried[0])
            outer.continue_while = holds(inner.carried[0])
