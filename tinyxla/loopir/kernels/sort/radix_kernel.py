"""The routine that sorts numbers by their digits: as many as there are, and wherever they lie.

From the last digit to the first, numbers are moved to where they belong by that digit alone, in their order, after it
was counted how often each digit occurs. This begins with two upper digits of what the keys differ in: most numbers have
their place then, and the others one nearby; only where it is far away all digits are sorted by.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, sections 5.2.1 and 5.2.5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import INDEX, Builder, Index, Literal, Operand, Value, operand_of
from tinyxla.loopir.ir.routines import KernelRoutine, declare, routine_symbol
from tinyxla.shapes import element_type

_DIGIT = 10  # bits
_NEAR = 16  # places that a number goes to the front by exchanges
_BLOCK = 64  # numbers among which those are looked for that must


class Numbers(NamedTuple):
    """What is sorted: the type of the keys; those of the arrays, the first of which has the keys, above so many other
    bits. What the others have goes along."""

    key: str
    types: tuple[str, ...]
    offset: int

    def key_of(self, b: Builder, number: Operand) -> Operand:
        return b.convert(self.key, b.shift_right(number, self.offset)) if self.offset else number


@functools.cache
def provide(numbers: Numbers) -> str:
    """(from, ..., to, ..., places): sorts numbers of the first arrays; the others have room for them. The places are
    the first number's, how many there are, and where the room begins. The routine's name."""
    name = "_".join(["radix", numbers.key, *numbers.types])
    declare(KernelRoutine(routine_symbol(name), _Radix(numbers).builder.kernel))
    return name


class _Radix:
    def __init__(self, numbers: Numbers) -> None:
        self.numbers, self.builder = numbers, Builder("radix")
        b = self.builder
        self.arrays = [[b.argument(type, written=True) for type in numbers.types] for _ in (0, 1)]
        self.start, self.count, self.spare = b.kernel.parameters = [Value(INDEX, f"n{k}") for k in range(3)]
        self.counters = [b.scratch(INDEX, 1 << _DIGIT) for _ in (0, 1)]
        self._sort()

    def _sort(self) -> None:
        b, (type, *_), offset = self.builder, self.numbers.types, self.numbers.offset
        stop = b.add(self.start, self.count)
        ends = limits(b, type, self.start, stop, lambda i: b.load(self.arrays[0][0], i))
        least, last = (self.numbers.key_of(b, x) for x in ends)
        bits = width_of(b, least, last)
        if offset:
            least = b.shift_left(b.convert(type, least), offset)
        most = b.max(b.min(width_of(b, Literal(INDEX, 0), self.count), _DIGIT), 1)
        both, is_short = b.mul(most, 2), b.compare("LE", bits, most)
        every = b.ceil_div(bits, both)
        with b.loop(0, 2, sequential=True) as (attempt, attempts):
            pairs = b.select(b.compare("EQ", attempt, 0), b.min(every, 1), every)
            lower = b.max(b.sub(bits, b.mul(pairs, both)), 0)
            upper, digits = b.sub(bits, lower), b.max(b.mul(pairs, 2), 1)
            width = b.select(is_short, bits, b.ceil_div(upper, digits))
            with b.loop(0, pairs, sequential=True) as (pair, _):
                shift = b.add(b.mul(pair, width, 2), b.add(lower, offset))
                self._move_twice(least, shift, width, is_short)
            some = b.select(b.compare("GT", lower, 0), self.count)
            attempts.continue_while = self._exchange(some)

    def _move_twice(self, least: Operand, shift: Index, width: Index, is_short: Operand) -> None:
        """To the second arrays by so many bits, from so many on, of how far numbers are from the least one, and back by
        as many more, or as they are if the first are all of a key."""
        b, arrays, counters, type = self.builder, self.arrays, self.counters, self.numbers.types[0]
        values = b.shift_left(1, operand_of(width))
        mask = b.convert(type, b.sub(values, 1))
        top = element_type(type).bits - 1  # of what was sorted by all its digits, one more changes nothing
        shifts = [shift_of(b, type, b.min(bits, top)) for bits in (shift, b.add(shift, width))]

        def next_of(half: int, number: Operand) -> Value:
            """What was counted of such numbers so far."""
            apart = b.compute("subtract", type, number, least)
            at = b.convert(INDEX, b.and_(b.shift_right(apart, shifts[half]), mask))
            found = b.load(counters[half], at)
            b.store(counters[half], at, operand_of(b.add(found, 1)))
            return found

        def move(half: int, here: Index, count: Index) -> None:
            with b.loop(here, b.add(here, count), sequential=True) as (i, _):
                numbers = [b.load(x, i) for x in arrays[half]]
                place = next_of(half, numbers[0])
                for to, number in zip(arrays[1 - half], numbers, strict=True):
                    b.store(to, place, number)

        with b.loop(0, values) as (k, _):
            for counter in counters:
                b.store(counter, k, Literal(INDEX, 0))
        with b.loop(self.start, b.add(self.start, self.count), sequential=True) as (i, _):
            number = b.load(arrays[0][0], i)
            for half in (0, 1):
                next_of(half, number)
        with b.loop(0, values, [self.spare, self.start], sequential=True) as (k, loop):
            for counter, slot in zip(counters, loop.carried, strict=True):
                slot.next = operand_of(b.add(slot.arg, b.load(counter, k)))
                b.store(counter, k, slot.arg)
        move(0, self.start, self.count)
        with b.loop(0, b.select(is_short, self.count)) as (i, _):
            for to, x in zip(*arrays, strict=True):
                b.store(to, b.add(self.start, i), b.load(x, b.add(self.spare, i)))
        move(1, self.spare, b.select(is_short, 0, self.count))

    def _exchange(self, count: Index) -> Operand:
        """Let numbers that come too late go to the front, some places at most; gives whether one had further to go.
        Blocks without any are passed over."""
        b, zero = self.builder, Literal(INDEX, 0)
        pairs = b.max(b.sub(count, 1), 0)
        with b.loop(0, b.ceil_div(pairs, _BLOCK), [zero], sequential=True) as (block, blocks):
            before, size = b.tile_start_and_size(block, _BLOCK, pairs)
            first = b.add(self.start, 1, before)
            with b.loop(0, size, [Literal(self.numbers.key, 0)]) as (k, late):
                slot, at = late.carried[0], b.add(first, k)
                is_late = b.convert(self.numbers.key, self._is_late(at, b.sub(at, 1)))
                slot.next = b.or_(slot.arg, is_late)
            some = b.compare("NE", slot.result, Literal(self.numbers.key, 0))
            with b.loop(0, b.select(some, size), [blocks.carried[0].arg], sequential=True) as (k, loop):
                far = self._to_the_front(b.add(first, k), loop.carried[0].arg)
                loop.carried[0].next = far
            blocks.carried[0].next = loop.carried[0].result
        return b.compare("NE", blocks.carried[0].result, 0)

    def _is_late(self, at: Index, before: Index) -> Value:
        b, keys = self.builder, self.arrays[0][0]
        return b.compare("LT", *(self.numbers.key_of(b, b.load(keys, place)) for place in (at, before)))

    def _to_the_front(self, last: Index, far: Operand) -> Operand:
        """Let the number there go as far as it should, some places at most; gives 1, or what `far` is, if it came so
        far."""
        b = self.builder
        is_late = self._is_late(last, b.sub(last, 1))
        with b.loop(0, b.select(is_late, 1), [far], sequential=True) as (_, some):
            with b.loop(0, _NEAR, [some.carried[0].arg], sequential=True) as (step, loop):
                at = b.sub(last, step)
                before = b.sub(at, 1)
                for x in self.arrays[0]:
                    first, second = b.load(x, before), b.load(x, at)
                    b.store(x, before, second)
                    b.store(x, at, first)
                loop.continue_while = self._is_late(before, b.max(b.sub(before, 1), self.start))
                is_far = b.and_(loop.continue_while, b.compare("EQ", step, _NEAR - 1))
                loop.carried[0].next = b.select(is_far, 1, loop.carried[0].arg)
            some.carried[0].next = loop.carried[0].result
        return some.carried[0].result


def limits(
    b: Builder, type: str, start: Index, stop: Index, number: Callable[[Index], Operand], sequential: bool = False
) -> list[Operand]:
    """The least and the last one of some numbers."""
    ends = [Literal(type, (1 << element_type(type).bits) - 1), Literal(type, 0)]
    with b.loop(start, stop, ends, sequential) as (i, loop):
        x = number(i)
        for slot, op in zip(loop.carried, ("minimum", "maximum"), strict=True):
            slot.next = b.compute(op, type, slot.arg, x)
    return [slot.result for slot in loop.carried]


def width_of(b: Builder, least: Operand, last: Operand) -> Value:
    """How many bits tell how far apart two numbers are."""
    type = least.type
    zeros = b.compute("count-leading-zeros", type, b.compute("subtract", type, last, least))
    return b.compute("subtract", INDEX, Literal(INDEX, element_type(type).bits), b.convert(INDEX, zeros))


def shift_of(b: Builder, type: str, bits: Index) -> Operand:
    """A number of bits that is known to be fewer than a number has."""
    return b.and_(b.convert(type, bits), element_type(type).bits - 1)
