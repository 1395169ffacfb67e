"""Sorts of many short lines: lines side by side, in as many lanes as vectors have, by exchanges of neighbours.

All lines take the same steps, whatever is in them: in turn the pairs from the first element on and those from the
second one on are put in order, as many times as a line has elements (A. N. Habermann, Parallel neighbor-sort, 1972).
Only neighbours are exchanged, and only if the second one comes before the first, so equal elements keep their order.

For a plain order of one key, element and place are one number, of which no two are equal; then the pairs may be far
apart, and there are fewer of them (K. E. Batcher, Sorting networks and their applications, 1968; D. E. Knuth, "The Art
of Computer Programming", volume 3, section 5.2.2, algorithm M). What was at the places is read again in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from tinyxla.backends.numba import digits
from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.loops import INDEX, Index, Literal, Operand
from tinyxla.backends.numba.lowering import Coordinates, LoweredKernel, Lowering, Users
from tinyxla.compiler.fusion import Plan
from tinyxla.compiler.sorts import is_side_by_side
from tinyxla.hlo import Instruction
from tinyxla.ops import sorting

LANES = 64
LONGEST = 32  # elements of a line
LANES_OF_ROWS = 16  # of whose lines few elements together make a line of the cache


def supports(x: Instruction) -> bool:
    length, lines = _sizes(x)
    return is_side_by_side(x) or (2 <= length <= LONGEST and lines >= LANES)


def _sizes(x: Instruction) -> tuple[int, int]:
    sizes = x.operands[0].array_shape.dimensions
    length = sizes[x.attributes.dimensions[0]]
    return length, math.prod(sizes) // max(1, length)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    if is_side_by_side(x):
        return _network(x, plan, users)
    (dimension,) = x.attributes.dimensions
    sizes = x.operands[0].array_shape.dimensions
    length, lines = _sizes(x)
    low = Lowering("exchange", plan)
    b = low.builder
    rows = [b.scratch(o.array_shape.element_type.name, length * LANES) for o in x.operands]
    place = partial(_place, low, sizes, dimension)

    def exchange(above: Index, lane: Index) -> None:
        here = b.index("add", b.index("multiply", above, LANES), lane)
        below = b.index("add", here, LANES)
        first, second = ([b.load(row, at) for row in rows] for at in (here, below))
        pairs: list[Operand] = [value for pair in zip(second, first, strict=True) for value in pair]
        wrong = low.apply(x.attributes.to_apply, pairs)[0]
        for row, one, other in zip(rows, first, second, strict=True):
            b.store(row, here, b.compute("select", row.type, wrong, other, one))
            b.store(row, below, b.compute("select", row.type, wrong, one, other))

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin = b.index("multiply", index, LANES)
        count = b.index("minimum", b.index("subtract", lines, begin), LANES)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for o, row in zip(x.operands, rows, strict=True):
                at = b.index("add", b.index("multiply", i, LANES), lane)
                b.store(row, at, low.value(o, place(b.index("add", begin, lane), i)))
        with low.loop(0, length, sequential=True) as (turn, _):
            odd = b.index("remainder", turn, 2)
            with low.loop(0, b.index("divide", b.index("subtract", length, odd), 2), sequential=True) as (pair, _):
                above = b.index("add", b.index("multiply", pair, 2), odd)
                with low.loop(0, count) as (lane, _):
                    exchange(above, lane)
        with low.loop(0, count) as (lane, _), low.loop(0, length) as (i, _):
            for result, row in zip(digits.results_by_number(x, users), rows, strict=True):
                if result is not None:
                    value = b.load(row, b.index("add", b.index("multiply", i, LANES), lane))
                    low.store(result, place(b.index("add", begin, lane), i), value)
    return [finished(low, -(-lines // LANES), LANES * length * length * 4, [x])]


def _place(low: Lowering, sizes: Sequence[int], dimension: int, line: Index, index: Index) -> Coordinates:
    outer = low.split_index(line, [n for d, n in enumerate(sizes) if d != dimension])
    return (*outer[:dimension], index, *outer[dimension:])


def _network(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    (dimension,) = x.attributes.dimensions
    order, key = sorting.order_of(x.attributes.to_apply), x.operands[0]
    assert order is not None, "it is a plain one"
    length, lines = _sizes(x)
    low = Lowering("network", plan)
    along_last = dimension == key.array_shape.rank - 1  # else lines are side by side in memory too
    line_by_line = along_last and not 8 < length <= LONGEST  # that is neither written out nor long
    b, lanes = low.builder, LANES_OF_ROWS if along_last else LANES
    keys = digits.Keys(key.array_shape.element_type.name, order.descending, False)
    numbers = b.scratch("u64", length * lanes)
    place = partial(_place, low, key.array_shape.dimensions, dimension)

    def exchange(one: Index, other: Index) -> None:
        with low.loop(0, lanes) as (lane, _):
            here, there = (b.index("add", b.index("multiply", i, lanes), lane) for i in (one, other))
            first, second = b.load(numbers, here), b.load(numbers, there)
            b.store(numbers, here, b.compute("minimum", "u64", first, second))
            b.store(numbers, there, b.compute("maximum", "u64", first, second))

    results = digits.results_by_number(x, users)
    taken = [(o, result) for o, result in zip(x.operands, results, strict=True) if result is not None]
    rows = [b.scratch(o.array_shape.element_type.name, length * lanes) for o, _ in taken]

    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        begin = b.index("multiply", index, lanes)
        count = b.index("minimum", b.index("subtract", lines, begin), lanes)
        outer, inner = (count, length) if line_by_line else (length, count)
        with low.loop(0, outer) as (j, _), low.loop(0, inner) as (k, _):
            lane, i = (j, k) if line_by_line else (k, j)
            here, there = b.index("add", b.index("multiply", i, lanes), lane), place(b.index("add", begin, lane), i)
            number = b.compute("convert", "u64", keys.key(low, low.value(key, there)))
            number = b.compute("shift-left", "u64", number, Literal("u64", 32))
            b.store(numbers, here, b.compute("or", "u64", number, b.compute("convert", "u64", i)))
            for (o, _), row in zip(taken, rows, strict=True):
                b.store(row, here, low.value(o, there))
        _exchanges(low, length, exchange)
        with low.loop(0, outer) as (j, _), low.loop(0, inner) as (k, _):
            lane, i = (j, k) if line_by_line else (k, j)
            number = b.load(numbers, b.index("add", b.index("multiply", i, lanes), lane))
            at = b.compute("convert", INDEX, b.compute("convert", "u32", number))
            b.bound(at, 0, length - 1)
            for (_, result), row in zip(taken, rows, strict=True):
                value = b.load(row, b.index("add", b.index("multiply", at, lanes), lane))
                low.store(result, place(b.index("add", begin, lane), i), value)
    steps = length * (length - 1).bit_length() ** 2
    return [finished(low, -(-lines // lanes), lanes * steps, [x])]


def _exchanges(low: Lowering, length: int, exchange: Callable[[Index, Index], None]) -> None:
    """The pairs that make lines sorted: for each p = 1, 2, 4, ... those k = p, p/2, ..., 1 apart inside of 2 p."""
    b, compute, one = low.builder, low.builder.compute, Literal(INDEX, 1)
    turns = (length - 1).bit_length()
    with low.loop(0, turns, [one], sequential=True) as (turn, widths):
        width = widths.carried[0].inside
        with low.loop(0, b.index("add", turn, 1), [width], sequential=True) as (_, distances):
            apart = distances.carried[0].inside
            start, double = (
                compute("and", INDEX, apart, compute("subtract", INDEX, width, one)),
                b.index("multiply", apart, 2),
            )
            beyond = b.index("subtract", length, apart)
            rest = b.index("subtract", b.index("add", beyond, double), b.index("add", start, 1))
            with low.loop(0, b.index("divide", rest, double), sequential=True) as (group, _):
                first = b.index("add", start, b.index("multiply", group, double))
                stop = b.index("minimum", b.index("add", first, apart), beyond)
                with low.loop(first, stop, sequential=True) as (i, _):
                    other = compute("add", INDEX, i, apart)
                    near, limit = compute("xor", INDEX, i, other), compute("add", INDEX, width, width)
                    inside = compute("compare", "pred", near, limit, direction="LT", compare_type="SIGNED")
                    with low.loop(0, compute("select", INDEX, inside, one, Literal(INDEX, 0)), sequential=True):
                        exchange(i, other)
            distances.carried[0].updated = compute("shift-right-logical", INDEX, apart, one)
        widths.carried[0].updated = compute("shift-left", INDEX, width, one)
