"""Complex arithmetic on vectors, and butterflies: discrete Fourier transforms of a few complex numbers in registers.

A complex number is two vectors, of real and of imaginary parts, from two arrays. Products are fused multiply-adds where
the processor has them.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, section 1.7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import Buffer, Index, Literal, Operand, Value
from tinyxla.loopir.lower.routine_calls import ParametricBuilder
from tinyxla.loopir.target import vector_bytes
from tinyxla.shapes import element_type

_ELEMENTS_PER_BASE = 4  # whose addresses share a base

Complex = tuple[Operand, Operand]
Arrays = tuple[Buffer, ...]  # of real and of imaginary parts


class Address(NamedTuple):
    """Elements at the same offset in some arrays."""

    arrays: Arrays
    offset: Index


def lanes_per_vector(real_type: str) -> int:
    """Lanes of a vector."""
    return vector_bytes() // element_type(real_type).dtype.itemsize


def elements_per_row(real_type: str) -> int:
    """Elements of one signal in a vector that two signals share."""
    return lanes_per_vector(real_type) // 2


class ComplexBuilder(ParametricBuilder):
    """A builder of kernels on full vectors of `lanes` numbers of a real type."""

    def __init__(self, name: str, real_type: str, parameters: Sequence[str] = ()) -> None:
        super().__init__(name, " ".join(parameters))
        self.real_type, self.lanes = real_type, lanes_per_vector(real_type)

    @contextmanager
    def steps(self, size: Index, step: int = 1) -> Generator[Index]:
        """A loop over the multiples of a step below a size, which is not zero."""
        with self.loop(0, size, sequential=True, step=step, nonempty=True) as (k, _):
            yield k

    # --- arithmetic

    def real(self, op: str, *operands: Operand) -> Value:
        return self.compute(op, self.real_type, *operands)

    def constant(self, value: float) -> Literal:
        return Literal(self.real_type, value)

    def sum(self, x: Complex, y: Complex) -> Complex:
        return self.real("add", x[0], y[0]), self.real("add", x[1], y[1])

    def difference(self, x: Complex, y: Complex) -> Complex:
        return self.real("subtract", x[0], y[0]), self.real("subtract", x[1], y[1])

    def rotated_sums(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x - i y and x + i y."""
        minus = self.real("add", x[0], y[1]), self.real("subtract", x[1], y[0])
        plus = self.real("subtract", x[0], y[1]), self.real("add", x[1], y[0])
        return minus, plus

    def sums_with_conjugate(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x plus and minus the conjugate of y."""
        plus, minus = self.sum(x, y), self.difference(x, y)
        return (plus[0], minus[1]), (minus[0], plus[1])

    def scaled(self, x: Complex, factor: Operand) -> Complex:
        return self.real("multiply", x[0], factor), self.real("multiply", x[1], factor)

    def multiply_add(self, x: Operand, y: Operand, addend: Operand) -> Value:
        return self.real("multiply-add", x, y, addend)

    def add_scaled(self, x: Complex, y: Complex, factor: Operand) -> Complex:
        """x plus a real factor times y."""
        return self.multiply_add(y[0], factor, x[0]), self.multiply_add(y[1], factor, x[1])

    def product(self, x: Complex, y: Complex, addend: Complex | None = None) -> Complex:
        """x y, plus `addend`."""
        if addend:
            negated = self.real("negate", x[1])
            minus, cross = self.multiply_add(negated, y[1], addend[0]), self.multiply_add(x[1], y[0], addend[1])
        else:
            minus = self.real("negate", self.real("multiply", x[1], y[1]))
            cross = self.real("multiply", x[1], y[0])
        return self.multiply_add(x[0], y[0], minus), self.multiply_add(x[0], y[1], cross)

    # --- memory

    def load_complex(self, arrays: Arrays, index: Index, mask: Value | None = None) -> Complex:
        re, im = (self.load(array, index, self.lanes, mask=mask) for array in arrays)
        return re, im

    def store_complex(self, arrays: Arrays, index: Index, x: Complex, mask: Value | None = None) -> None:
        for array, component in zip(arrays, x, strict=True):
            self.store(array, index, component, mask=mask)

    def broadcast_complex(self, array: Buffer, index: Index) -> Complex:
        """A complex number, of two successive elements, in all lanes."""
        number = self.view(array, index)
        re, im = (self.broadcast(self.load(number, side), self.lanes) for side in (0, 1))
        return re, im

    def views(self, arrays: Arrays, index: Index) -> Arrays:
        return tuple(self.view(array, index) for array in arrays)

    def multiples(self, step: Index, count: int) -> list[Index]:
        """The first `count` multiples of a step, or as many as `strided` needs."""
        return [self.mul(step, k) for k in range(min(count, _ELEMENTS_PER_BASE))]

    def strided(self, arrays: Arrays, start: Index, multiples: Sequence[Index], count: int) -> list[Address]:
        """The addresses of `count` elements that are a step apart. Several share a base, and bases share the multiples
        of the step, since a processor adds a base and an offset in an access."""
        bases = [self.add(start, self.mul(multiples[1], k) if k else 0) for k in range(0, count, _ELEMENTS_PER_BASE)]
        views = [self.views(arrays, base) for base in bases]
        return [Address(*address) for address in itertools.product(views, multiples)][:count]

    # --- shuffles

    def interleave(self, x: Operand, y: Operand, mirrored: bool = False) -> Complex:
        """Even elements of two vectors, interleaved, and odd ones: an involution. `mirrored` reverses the order of
        pairs."""
        n = self.lanes
        pairs = [k // 2 * 2 for k in range(n)]
        starts = pairs[::-1] if mirrored else pairs
        even, odd = ([start + side + n * (k % 2) for k, start in enumerate(starts)] for side in (0, 1))
        return self.shuffle(even, x, y), self.shuffle(odd, x, y)

    def transpose_pairs(self, vectors: Sequence[Value]) -> list[Value]:
        """The transpose of a square of pairs of elements: as many vectors as each has pairs. First come squares within
        16 bytes that hold two pairs, then a square of such parts."""
        part = 16 // element_type(self.real_type).dtype.itemsize
        if part == 2:
            return self._transpose_parts(vectors, part)
        starts = [k + second for k in range(0, self.lanes, part) for second in (0, self.lanes)]
        merged = [self._merge(vectors, [start + side for start in starts], 2) for side in (0, 2)]
        return _alternate(*(self._transpose_parts(half, part) for half in merged))

    def _transpose_parts(self, vectors: Sequence[Value], part: int) -> list[Value]:
        """The transpose of a square of parts of so many elements: even parts, transposed, and odd ones."""
        if len(vectors) == 1:
            return [*vectors]
        merged = [self._merge(vectors, range(start, 2 * self.lanes, 2 * part), part) for start in (0, part)]
        return _alternate(*(self._transpose_parts(half, part) for half in merged))

    def _merge(self, vectors: Sequence[Value], starts: Sequence[int], size: int) -> list[Value]:
        """Of each two successive vectors those runs of elements that begin at `starts`."""
        order = [start + k for start in starts for k in range(size)]
        return [self.shuffle(order, x, y) for x, y in zip(vectors[::2], vectors[1::2], strict=True)]


def _alternate(even: Sequence[Value], odd: Sequence[Value]) -> list[Value]:
    return [x for pair in zip(even, odd, strict=True) for x in pair]


# --- butterflies ------------------------------------------------------------------------------------------------------


def butterfly(b: ComplexBuilder, x: Sequence[Complex]) -> list[Complex]:
    """The discrete Fourier transform of a few values: of 1, 2, 4, 8 or an odd number."""
    n = len(x)
    if n == 1:
        return [*x]
    if n == 2:
        return [b.sum(x[0], x[1]), b.difference(x[0], x[1])]
    if n == 4:
        sums, differences = (b.sum(x[0], x[2]), b.sum(x[1], x[3])), (b.difference(x[0], x[2]), b.difference(x[1], x[3]))
        minus, plus = b.rotated_sums(*differences)
        return [b.sum(*sums), minus, b.difference(*sums), plus]
    return _butterfly_of_eight(b, x) if n == 8 else _odd_butterfly(b, x)


def _odd_butterfly(b: ComplexBuilder, x: Sequence[Complex]) -> list[Complex]:
    """Odd radix n: outputs t and n - t are E - i O and E + i O. For 0 < k < n / 2, E is x[0] plus the sum of x[k] +
    x[n - k] times cos(2 pi k t / n), and O is the sum of x[k] - x[n - k] times the sine."""
    n = len(x)
    half = range(1, (n + 1) // 2)
    first = x[0]
    even: list[Complex] = [x[0] for _ in half]
    odd: list[Complex] = [(b.constant(0.0), b.constant(0.0)) for _ in half]
    for k in half:
        total, difference = b.sum(x[k], x[n - k]), b.difference(x[k], x[n - k])
        first = b.sum(first, total)
        for i, t in enumerate(half):
            angle = 2 * math.pi * (k * t % n) / n
            even[i] = b.add_scaled(even[i], total, b.constant(math.cos(angle)))
            odd[i] = b.add_scaled(odd[i], difference, b.constant(math.sin(angle)))
    minus, plus = zip(*map(b.rotated_sums, even, odd), strict=True)
    return [first, *minus, *reversed(plus)]


def _butterfly_of_eight(b: ComplexBuilder, x: Sequence[Complex]) -> list[Complex]:
    """Radix-8 butterfly: the even outputs are the transform of sums of values four apart; the odd outputs come from
    their differences times powers of the eighth root of unity, whose factor sqrt(1/2) is folded into the last
    additions."""
    sums, (p, q, r, s) = ([combine(x[k], x[k + 4]) for k in range(4)] for combine in (b.sum, b.difference))
    q = b.real("add", q[0], q[1]), b.real("subtract", q[1], q[0])
    s = b.real("subtract", s[0], s[1]), b.real("add", s[0], s[1])
    minus, plus = b.rotated_sums(p, r)
    difference, total = b.difference(q, s), b.sum(q, s)
    root, negative = (b.constant(sign * math.sqrt(0.5)) for sign in (1, -1))
    odd = [
        b.add_scaled(minus, difference, root),
        (b.multiply_add(total[1], root, plus[0]), b.multiply_add(total[0], negative, plus[1])),
        b.add_scaled(minus, difference, negative),
        (b.multiply_add(total[1], negative, plus[0]), b.multiply_add(total[0], root, plus[1])),
    ]
    return [y for pair in zip(butterfly(b, sums), odd, strict=True) for y in pair]
