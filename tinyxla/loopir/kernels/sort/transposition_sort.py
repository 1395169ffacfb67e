"""Sorts of many short lines by any comparator: lines side by side, by exchanges of neighbours.

All lines take the same steps, whatever is in them: in turn the pairs from the first element on and those from the
second one on are put in order, as many times as a line has elements (A. N. Habermann, Parallel neighbor-sort, 1972).
Only neighbours are exchanged, and only if the second one comes before the first, so equal elements keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Operand
from tinyxla.loopir.kernels.sort import radix_sort
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import Coordinates, LoweredKernel, Lowering, Users

LANES = 64
LONGEST = 32  # elements of a line


def supports(x: Instruction) -> bool:
    length, lines = _sizes(x)
    return 2 <= length <= LONGEST and lines >= LANES


def _sizes(x: Instruction) -> tuple[int, int]:
    sizes = x.operands[0].array_shape.dimensions
    length = sizes[x.attributes.dimensions[0]]
    return length, math.prod(sizes) // max(1, length)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    (dimension,) = x.attributes.dimensions
    sizes = x.operands[0].array_shape.dimensions
    length, lines = _sizes(x)
    low = Lowering("exchange", plan)
    b = low.builder
    rows = [b.scratch(o.array_shape.element_type.name, length * LANES) for o in x.operands]
    place = partial(_place, low, sizes, dimension)

    def exchange(above: Index, lane: Index) -> None:
        here = b.add(b.mul(above, LANES), lane)
        below = b.add(here, LANES)
        first, second = ([b.load(row, at) for row in rows] for at in (here, below))
        pairs: list[Operand] = [value for pair in zip(second, first, strict=True) for value in pair]
        wrong = low.apply(x.attributes.to_apply, pairs)[0]
        for row, one, other in zip(rows, first, second, strict=True):
            b.store(row, here, b.select(wrong, other, one))
            b.store(row, below, b.select(wrong, one, other))

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, count = b.tile_start_and_size(index, LANES, lines)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for o, row in zip(x.operands, rows, strict=True):
                at = b.add(b.mul(i, LANES), lane)
                b.store(row, at, low.value(o, place(b.add(begin, lane), i)))
        with low.loop(0, length, sequential=True) as (turn, _):
            odd = b.remainder(turn, 2)
            with low.loop(0, b.floordiv(b.sub(length, odd), 2), sequential=True) as (pair, _):
                above = b.add(b.mul(pair, 2), odd)
                with low.loop(0, count) as (lane, _):
                    exchange(above, lane)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for result, row in zip(radix_sort.results_by_number(x, users), rows, strict=True):
                if result is not None:
                    value = b.load(row, b.add(b.mul(i, LANES), lane))
                    low.store(result, place(b.add(begin, lane), i), value)
    return [make_kernel(low, -(-lines // LANES), LANES * length * length * 4, [x])]


def _place(low: Lowering, sizes: Sequence[int], dimension: int, line: Index, index: Index) -> Coordinates:
    outer = low.split_index(line, [n for d, n in enumerate(sizes) if d != dimension])
    return (*outer[:dimension], index, *outer[dimension:])
