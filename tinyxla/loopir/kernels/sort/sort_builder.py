"""Builder of kernels that sort by keys: the key mapping, payloads, and the restoration of zeros and NaNs.

All types of one width share their kernels: sizes and the constants of the key mapping are parameters. Elements that the
order holds for equal, zeros and NaNs, share a key; their own bits are restored at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand, Value, operand_of
from tinyxla.loopir.kernels.sort.problem import SortProblem
from tinyxla.loopir.kernels.sort.radix_kernel import KeyStorage, declare_radix_sort
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage, Temporary
from tinyxla.shapes import ElementType


class SortBuilder:
    """A builder of kernels that serve all sizes and all types of one width: whatever depends on them is a parameter.
    What is sorted with a key is an element of the second source, or of another type `payload`."""

    def __init__(self, sort: SortProblem, name: str, payload: str | None = None) -> None:
        assert sort.keys is not None, "the order is a plain one"
        self.sort, self.keys, self.low = sort, sort.keys, Lowering(name, sort.plan)
        self.builder, self.type = self.low.builder, self.keys.type
        self.payload_type = payload or _payload_type(sort)
        self.storage = KeyStorage.of(self.type, self.payload_type)
        self._parameters = list[int]()
        self._key_constants = [self.builder.convert(self.type, self.parameter(n)) for n in self.keys.constants]

    def parameter(self, value: int) -> Value:
        """A scalar parameter of the kernel with this value."""
        self._parameters.append(value - (value >> 63 << 64))  # as a signed word
        self.builder.kernel.parameters.append(Value(INDEX, f"n{len(self._parameters)}"))
        return self.builder.kernel.parameters[-1]

    def buffer(self, x: Storage, written: bool = False) -> Buffer:
        """An array, as the bits of its elements."""
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.low.buffer(x, written, bits_of(shape.element_type))

    @contextmanager
    def chunks(self, count: int, length: int) -> Generator[tuple[Index, Index, Index, Index]]:
        """A loop over chunks of lines: the chunk's number, its line, and the range of its elements in the line."""
        b = self.builder
        chunks, size, end = (self.parameter(n) for n in (count, -(-length // count), length))
        with self.low.loop(b.kernel.first, b.kernel.last) as (index, _):
            if count == 1:
                yield index, index, 0, end
                return
            line = b.floordiv(index, chunks)
            chunk = b.sub(index, b.mul(line, chunks))
            start = b.min(b.mul(chunk, size), end)
            yield index, line, start, b.min(b.add(start, size), end)

    def make_kernel(self, extent: int, work: int) -> LoweredKernel:
        """The lowered kernel with the values of its parameters."""
        kernel = make_kernel(self.low, extent, work, [self.sort.x])
        kernel.parameters, kernel.is_builtin = tuple(self._parameters), True
        return kernel

    # --- keys

    def key(self, x: Operand) -> Operand:
        """The key of the element with these bits."""
        b, type = self.builder, self.type
        negative, flipped, infinity, nan = self._key_constants
        if self.keys.restores:
            magnitude = b.and_(x, negative)
            is_zero, is_nan = b.compare("EQ", magnitude, Literal(type, 0)), b.compare("GT", magnitude, infinity)
            x = b.select(is_nan, nan, b.select(is_zero, Literal(type, 0), x))
        return b.compute("xor", type, self._flip_negative(x), flipped)

    def of(self, key: Operand) -> Operand:
        """The bits of the element with this key."""
        return self._flip_negative(self.builder.compute("xor", self.type, key, self._key_constants[1]))

    def _flip_negative(self, x: Operand) -> Operand:
        """Flip the bits of a negative element that the mapping flips."""
        b, type = self.builder, self.type
        sign = b.compute("shift-right-arithmetic", type, x, Literal(type, self.keys.bits - 1))
        return b.compute("xor", type, x, b.and_(sign, self._key_constants[0]))

    def restore_equal(
        self,
        bounds: tuple[Index, Index],
        length: Value,
        ordered: Callable[[Index], Operand],
        element: Callable[[Index], Operand],
        store: Callable[[Index, Operand], None],
    ) -> None:
        """Restore the bits of elements that share a key, zeros and NaNs, in their original order.

        A binary search finds the first position of the key within `bounds` of the ordered elements.
        """
        low, b, (start, stop) = self.low, self.builder, bounds
        zero, nan = (self.key(x) for x in (Literal(self.type, 0), self._key_constants[3]))
        with low.loop(0, b.select(b.compare("LT", start, stop), 2), sequential=True) as (which, _):
            last = b.sub(stop, 1)
            wanted = b.select(b.compare("EQ", which, 0), zero, nan)
            with low.loop(0, length, [operand_of(start), operand_of(last)], sequential=True) as (_, loop):
                first, end = loop.carried
                middle = b.floordiv(b.add(first.arg, end.arg), 2)
                is_less = b.compare("LT", ordered(middle), wanted)
                first.next = b.select(is_less, b.min(b.add(middle, 1), last), first.arg)
                end.next = b.select(is_less, end.arg, middle)
                loop.continue_while = b.compare("LT", first.next, end.next)
            at = loop.carried[0].result
            has_key = b.compare("EQ", ordered(at), wanted)
            with low.loop(0, b.select(has_key, length), [at], sequential=True) as (i, loop):
                value, at = element(i), loop.carried[0].arg
                is_equal = b.compare("EQ", self.key(value), wanted)
                with low.loop(0, b.select(is_equal, 1), sequential=True):
                    store(at, value)
                loop.carried[0].next = operand_of(b.add(at, b.select(is_equal, 1)))

    # --- elements

    def scratch(self, size: int) -> list[Buffer]:
        """Scratch arrays for `size` keys and payloads."""
        return [self.builder.scratch(type, size) for type in self.storage.types]

    def element(self, k: int, i: Index, offset: Index) -> Operand:
        """The bits of a source's element at an index of its line and an offset in memory."""
        if self.sort.is_iota(k):
            return self.index_value(k, i)
        return self.builder.load(self.buffer(self.sort.sources[k]), offset)

    def index_value(self, k: int, offset: Index | Operand) -> Operand:
        """An index along the line, as the bits of a source's element."""
        type, b = self.sort.sources[k].array_shape.element_type, self.builder
        return b.compute("bitcast-convert", bits_of(type), b.convert(type.name, offset))

    def put(self, arrays: Sequence[Buffer], at: Index, values: Sequence[Operand]) -> None:
        """Store a key and its payload."""
        b, offset = self.builder, self.storage.offset
        if offset:
            key, value = (b.convert("u64", x) for x in values)
            values = [b.or_(b.shift_left(key, offset), value)]
        for to, value in zip(arrays, values, strict=True):
            b.store(to, at, value)

    def key_at(self, arrays: Sequence[Buffer], at: Index) -> Operand:
        return self.storage.key_of(self.builder, self.builder.load(arrays[0], at))

    def payload(self, arrays: Sequence[Buffer], at: Index) -> Operand:
        """The payload of a key."""
        return self.builder.convert(self.payload_type, self.builder.load(arrays[-1], at))

    # --- order

    def order(self, arrays: Sequence[Sequence[Buffer]], start: Index, count: Index, spare: Index) -> None:
        """Sort `count` elements of the first arrays from `start` on; the second arrays have room for them from `spare`
        on."""
        b = self.builder
        indices = b.scratch(INDEX, 3)
        for k, offset in enumerate((start, count, spare)):
            b.store(indices, k, operand_of(offset))
        both = [(x, 0) for buffers in arrays for x in buffers]
        b.call(declare_radix_sort(self.storage), *both, (indices, 0))

    def write_results(
        self, arrays: Sequence[Buffer], at: Index, line: Index, bounds: tuple[Index, Index], sizes: tuple[Value, Value]
    ) -> None:
        """Write sorted elements, which begin at an offset of the arrays, to a range of a line of the results; `sizes`
        are the lengths of lines of sources and results."""
        sort, low, b, (length, result_length) = self.sort, self.low, self.builder, sizes
        start, stop = bounds[0], b.min(bounds[1], result_length)
        to, source, base = b.mul(line, result_length), b.mul(line, length), b.sub(at, start)
        with low.loop(start, stop) as (i, _):
            offset = b.add(base, i)
            for k, result in enumerate(sort.results):
                if result is not None:
                    value = self.payload(arrays, offset) if k else self.of(self.key_at(arrays, offset))
                    b.store(self.buffer(result, True), b.add(to, i), value)
        result = sort.results[0]
        if self.keys.restores and result is not None:
            self.restore_equal(
                (start, stop),
                length,
                lambda i: self.key_at(arrays, b.add(base, i)),
                lambda i: b.load(self.buffer(sort.sources[0]), b.add(source, i)),
                lambda i, value: b.store(self.buffer(result, True), b.add(to, i), value),
            )


def key_storage(sort: SortProblem) -> KeyStorage:
    """How the keys and the payload of a sort are stored."""
    assert sort.keys is not None, "the order is a plain one"
    return KeyStorage.of(sort.keys.type, _payload_type(sort))


def _payload_type(sort: SortProblem) -> str:
    """The type of the bits of the payload; empty if there is none."""
    return bits_of(sort.sources[1].array_shape.element_type) if len(sort.sources) > 1 else ""


def bits_of(type: ElementType) -> str:
    """The unsigned type of an element's bits; the type itself if it is wider than 64 bits."""
    return type.name if type.bits > 64 else f"u{max(8, type.bits)}"
