"""Odd-even transposition sort of many short lines by any comparator; lines are interleaved, one per lane.

All lines take the same steps: the pairs from the first element on and those from the second element on are put in order
alternately, as many times as a line has elements. Only neighbours are swapped, and only if the second one comes first,
so the sort is stable.

Source: A. N. Habermann, Parallel neighbor-sort (1972).
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

GROUP_LINES = 64
MAX_ELEMENTS = 32  # of a line


def supports(x: Instruction) -> bool:
    """Whether lines are short and many."""
    length, lines = _sizes(x)
    return 2 <= length <= MAX_ELEMENTS and lines >= GROUP_LINES


def _sizes(x: Instruction) -> tuple[int, int]:
    """The length of a line, and the number of lines."""
    sizes = x.operands[0].array_shape.dimensions
    length = sizes[x.attributes.dimensions[0]]
    return length, math.prod(sizes) // max(1, length)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernel over groups of interleaved lines."""
    (dimension,) = x.attributes.dimensions
    sizes = x.operands[0].array_shape.dimensions
    length, lines = _sizes(x)
    low = Lowering("compare_exchange", plan)
    b = low.builder
    rows = [b.scratch(o.array_shape.element_type.name, length * GROUP_LINES) for o in x.operands]
    index_of = partial(_index_of, low, sizes, dimension)

    def compare_exchange(row: Index, lane: Index) -> None:
        upper = b.add(b.mul(row, GROUP_LINES), lane)
        lower = b.add(upper, GROUP_LINES)
        first, second = ([b.load(array, at) for array in rows] for at in (upper, lower))
        pairs: list[Operand] = [value for pair in zip(second, first, strict=True) for value in pair]
        is_out_of_order = low.apply(x.attributes.to_apply, pairs)[0]
        for array, first_value, second_value in zip(rows, first, second, strict=True):
            b.store(array, upper, b.select(is_out_of_order, second_value, first_value))
            b.store(array, lower, b.select(is_out_of_order, first_value, second_value))

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin, count = b.tile_start_and_size(index, GROUP_LINES, lines)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for o, row in zip(x.operands, rows, strict=True):
                at = b.add(b.mul(i, GROUP_LINES), lane)
                b.store(row, at, low.value(o, index_of(b.add(begin, lane), i)))
        with low.loop(0, length, sequential=True) as (step, _):
            parity = b.remainder(step, 2)
            with low.loop(0, b.floordiv(b.sub(length, parity), 2), sequential=True) as (pair, _):
                row = b.add(b.mul(pair, 2), parity)
                with low.loop(0, count) as (lane, _):
                    compare_exchange(row, lane)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for result, row in zip(radix_sort.results_by_index(x, users), rows, strict=True):
                if result is not None:
                    value = b.load(row, b.add(b.mul(i, GROUP_LINES), lane))
                    low.store(result, index_of(b.add(begin, lane), i), value)
    return [make_kernel(low, -(-lines // GROUP_LINES), GROUP_LINES * length * length * 4, [x])]


def _index_of(low: Lowering, sizes: Sequence[int], dimension: int, line: Index, index: Index) -> Coordinates:
    """The index of an element of a line."""
    outer = low.split_index(line, [n for d, n in enumerate(sizes) if d != dimension])
    return (*outer[:dimension], index, *outer[dimension:])
