"""LSD radix sort kernel: sorts keys and payloads of any number.

Counting sorts by one digit after the other, from the least significant one on. The first attempt sorts by the two upper
digits in which keys differ, and finishes with a bounded insertion sort: most keys are in order then, and the others
nearby. Only if a key is far from its position are all digits sorted by.

Source: D. E. Knuth, "The Art of Computer Programming", volume 3, sections 5.2.1 and 5.2.5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, Self

from tinyxla.loopir.ir.loop_ir import INDEX, Builder, Index, Literal, Operand, Value, operand_of
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.sort.problem import BLOCK
from tinyxla.shapes import element_type

_DIGIT_BITS = 10  # bits of a digit
_MAX_INSERTION_DISTANCE = 16  # positions that insertion moves an element at most


class KeyStorage(NamedTuple):
    """How keys and payloads are stored: the type of keys, and the types of the arrays. The first array holds the keys,
    above `offset` other bits; the other arrays hold payloads."""

    key: str
    types: tuple[str, ...]
    offset: int

    @classmethod
    def of(cls, key: str, payload: str = "") -> Self:
        """Keys of a type, with a payload of another type if there is one; they share 64-bit words if both fit."""
        if {key, payload} <= {"u8", "u16", "u32"}:
            return cls(key, ("u64",), 32)
        return cls(key, (key, payload) if payload else (key,), 0)

    def key_of(self, b: Builder, value: Operand) -> Operand:
        """The key in a word of the first array."""
        return b.convert(self.key, b.shift_right(value, self.offset)) if self.offset else value


@functools.cache
def declare_radix_sort(storage: KeyStorage) -> str:
    """Declare `radix_sort(arrays, spare arrays, (start, count, spare start))` and return its symbol: it sorts `count`
    elements of the arrays from `start` on; the spare arrays have room for them."""
    name = "_".join(["radix", storage.key, *storage.types])
    return declare_kernel(name, _Radix(storage).builder.kernel)


class _Radix:
    """The builder of the kernel."""

    def __init__(self, storage: KeyStorage) -> None:
        self.storage, self.builder = storage, Builder("radix")
        b = self.builder
        self.arrays = [[b.argument(type, written=True) for type in storage.types] for _ in (0, 1)]
        self.start, self.count, self.spare = b.kernel.parameters = [Value(INDEX, f"n{k}") for k in range(3)]
        self.counters = [b.scratch(INDEX, 1 << _DIGIT_BITS) for _ in (0, 1)]
        self._sort()

    def _sort(self) -> None:
        """Both attempts: by two upper digits and insertion, then by all digits."""
        b, (type, *_), offset = self.builder, self.storage.types, self.storage.offset
        stop = b.add(self.start, self.count)
        bounds = min_max(b, type, self.start, stop, lambda i: b.load(self.arrays[0][0], i))
        smallest, largest = (self.storage.key_of(b, x) for x in bounds)
        bits = bit_width(b, smallest, largest)
        if offset:
            smallest = b.shift_left(b.convert(type, smallest), offset)
        max_digit_bits = b.max(b.min(bit_width(b, Literal(INDEX, 0), self.count), _DIGIT_BITS), 1)
        pair_bits, has_one_digit = b.mul(max_digit_bits, 2), b.compare("LE", bits, max_digit_bits)
        pass_pairs = b.ceil_div(bits, pair_bits)
        with b.loop(0, 2, sequential=True) as (attempt, attempts):
            pairs = b.select(b.compare("EQ", attempt, 0), b.min(pass_pairs, 1), pass_pairs)
            lower = b.max(b.sub(bits, b.mul(pairs, pair_bits)), 0)
            upper, digits = b.sub(bits, lower), b.max(b.mul(pairs, 2), 1)
            width = b.select(has_one_digit, bits, b.ceil_div(upper, digits))
            with b.loop(0, pairs, sequential=True) as (pair, _):
                shift = b.add(b.mul(pair, width, 2), b.add(lower, offset))
                self._two_passes(smallest, shift, width, has_one_digit)
            unsorted_count = b.select(b.compare("GT", lower, 0), self.count)
            attempts.continue_while = self._insert_out_of_order(unsorted_count)

    def _two_passes(self, smallest: Operand, shift: Index, width: Index, has_one_digit: Operand) -> None:
        """Two counting passes by digits of `width` bits, from bit `shift` on, of the distance to the smallest key: to
        the spare arrays and back. If keys have one digit, the second pass is a copy."""
        b, arrays, counters, type = self.builder, self.arrays, self.counters, self.storage.types[0]
        values = b.shift_left(1, operand_of(width))
        mask = b.convert(type, b.sub(values, 1))
        max_shift = element_type(type).bits - 1  # a further pass over sorted keys changes nothing
        shifts = [shift_operand(b, type, b.min(bits, max_shift)) for bits in (shift, b.add(shift, width))]

        def next_position(pass_index: int, value: Operand) -> Value:
            """The next position of a value's digit, which is counted up."""
            distance = b.compute("subtract", type, value, smallest)
            index = b.convert(INDEX, b.and_(b.shift_right(distance, shifts[pass_index]), mask))
            position = b.load(counters[pass_index], index)
            b.store(counters[pass_index], index, operand_of(b.add(position, 1)))
            return position

        def move(pass_index: int, start: Index, count: Index) -> None:
            with b.loop(start, b.add(start, count), sequential=True) as (i, _):
                loaded = [b.load(x, i) for x in arrays[pass_index]]
                position = next_position(pass_index, loaded[0])
                for to, value in zip(arrays[1 - pass_index], loaded, strict=True):
                    b.store(to, position, value)

        with b.loop(0, values) as (k, _):
            for counter in counters:
                b.store(counter, k, Literal(INDEX, 0))
        with b.loop(self.start, b.add(self.start, self.count), sequential=True) as (i, _):
            value = b.load(arrays[0][0], i)
            for pass_index in (0, 1):
                next_position(pass_index, value)
        with b.loop(0, values, [self.spare, self.start], sequential=True) as (k, loop):
            for counter, slot in zip(counters, loop.carried, strict=True):
                slot.next = operand_of(b.add(slot.arg, b.load(counter, k)))
                b.store(counter, k, slot.arg)
        move(0, self.start, self.count)
        with b.loop(0, b.select(has_one_digit, self.count)) as (i, _):
            for to, x in zip(*arrays, strict=True):
                b.store(to, b.add(self.start, i), b.load(x, b.add(self.spare, i)))
        move(1, self.spare, b.select(has_one_digit, 0, self.count))

    def _insert_out_of_order(self, count: Index) -> Operand:
        """Insertion sort that moves elements a bounded distance; the result tells whether one had further to go. Blocks
        that are in order are skipped."""
        b, zero = self.builder, Literal(INDEX, 0)
        pairs = b.max(b.sub(count, 1), 0)
        with b.loop(0, b.ceil_div(pairs, BLOCK), [zero], sequential=True) as (block, blocks):
            offset, size = b.tile_start_and_size(block, BLOCK, pairs)
            first = b.add(self.start, 1, offset)
            with b.loop(0, size, [Literal(self.storage.key, 0)]) as (k, out_of_order):
                slot, index = out_of_order.carried[0], b.add(first, k)
                is_out_of_order = b.convert(self.storage.key, self._is_out_of_order(index, b.sub(index, 1)))
                slot.next = b.or_(slot.arg, is_out_of_order)
            has_unsorted = b.compare("NE", slot.result, Literal(self.storage.key, 0))
            with b.loop(0, b.select(has_unsorted, size), [blocks.carried[0].arg], sequential=True) as (k, loop):
                moved_far = self._insert(b.add(first, k), loop.carried[0].arg)
                loop.carried[0].next = moved_far
            blocks.carried[0].next = loop.carried[0].result
        return b.compare("NE", blocks.carried[0].result, 0)

    def _is_out_of_order(self, index: Index, previous: Index) -> Value:
        b, keys = self.builder, self.arrays[0][0]
        return b.compare("LT", *(self.storage.key_of(b, b.load(keys, i)) for i in (index, previous)))

    def _insert(self, position: Index, moved_far: Operand) -> Operand:
        """Move the element at `position` to its place in order, at most a bounded distance. The result is 1, or else
        `moved_far`, if it had further to go."""
        b = self.builder
        is_out_of_order = self._is_out_of_order(position, b.sub(position, 1))
        with b.loop(0, b.select(is_out_of_order, 1), [moved_far], sequential=True) as (_, guard):
            with b.loop(0, _MAX_INSERTION_DISTANCE, [guard.carried[0].arg], sequential=True) as (step, loop):
                index = b.sub(position, step)
                previous = b.sub(index, 1)
                for x in self.arrays[0]:
                    first, second = b.load(x, previous), b.load(x, index)
                    b.store(x, previous, second)
                    b.store(x, index, first)
                loop.continue_while = self._is_out_of_order(previous, b.max(b.sub(previous, 1), self.start))
                is_far = b.and_(loop.continue_while, b.compare("EQ", step, _MAX_INSERTION_DISTANCE - 1))
                loop.carried[0].next = b.select(is_far, 1, loop.carried[0].arg)
            guard.carried[0].next = loop.carried[0].result
        return guard.carried[0].result


def min_max(
    b: Builder, type: str, start: Index, stop: Index, value: Callable[[Index], Operand], sequential: bool = False
) -> list[Operand]:
    """The minimum and the maximum of values."""
    bounds = [Literal(type, (1 << element_type(type).bits) - 1), Literal(type, 0)]
    with b.loop(start, stop, bounds, sequential) as (i, loop):
        x = value(i)
        for slot, op in zip(loop.carried, ("minimum", "maximum"), strict=True):
            slot.next = b.compute(op, type, slot.arg, x)
    return [slot.result for slot in loop.carried]


def bit_width(b: Builder, smallest: Operand, largest: Operand) -> Value:
    """Bits of the difference of two values."""
    type = smallest.type
    zeros = b.compute("count-leading-zeros", type, b.compute("subtract", type, largest, smallest))
    return b.compute("subtract", INDEX, Literal(INDEX, element_type(type).bits), b.convert(INDEX, zeros))


def shift_operand(b: Builder, type: str, bits: Index) -> Operand:
    """A shift count that is known to be less than the width of the type."""
    return b.and_(b.convert(type, bits), element_type(type).bits - 1)
