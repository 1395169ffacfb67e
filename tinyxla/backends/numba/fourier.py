"""Fourier transforms as loop nests, after Stockham: each pass reads one array and writes another, and what comes out is
in order.

A kernel transforms several *lanes* side by side, which are the innermost loop of every pass and become vectors: a batch
of signals, or, for a dimension that is not the last, what comes after it in memory. A long signal of n1 n2 elements is
a matrix: its columns are transformed, multiplied by roots of unity, and then its rows, whose transforms are columns of
the result. Real signals of even length are complex ones of half the length, and those of odd length complex ones of the
same.

Lengths with a large prime are done as convolutions, and the host does the longest ones.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, sections 1.7, 3.2, 4.2 and 4.3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyxla.backends.numba import fourier_routines as routines, panel_routines, panels
from tinyxla.backends.numba.axes import finished, grain
from tinyxla.backends.numba.loops import INDEX, Buffer, Index, Kernel, Literal, Operand
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Storage, Users
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction, Literal as Constant
from tinyxla.ops import movement
from tinyxla.ops.fourier import Fft
from tinyxla.shapes import Shape, element_type

_PRIMES = (5, 3, 7, 11, 13)
_LARGEST = 300  # the time for a number grows with the prime, in which its sum is
_MOST = 1000  # elements of a signal that a kernel transforms at once
_BYTES = 64_000  # of all lanes; no power of two, so that real and imaginary parts do not share lines of the cache
_SQUARE_BYTES = 4096  # that are turned at once
_VECTOR = 16  # lanes, about
_PARTS = {"c64": "f32", "c128": "f64"}

Array = np.ndarray[Any, Any]
Complex = tuple[Operand, Operand]
_Change = Callable[[Lowering, Index, Callable[[Index], Operand]], Operand]  # of the element k, by those that there are
Place = tuple[Buffer, Index]


@dataclass(frozen=True)
class _Axis:
    """A dimension: how far apart its elements are in what is read and in what is written."""

    size: int
    source: int
    target: int


def supports(x: Instruction) -> bool:
    options = Fft(*x.attributes)
    return bool(x.array_shape.size) and all(_split(n) or _chirp_length(n) for n in _lengths(options))


def _lengths(options: Fft) -> list[int]:
    """Of the complex signals."""
    *outer, last = options.fft_length
    return [*outer, last // 2 if options.fft_type in ("RFFT", "IRFFT") and last % 2 == 0 else last]


def _split(n: int) -> tuple[int, int] | None:
    """Two factors, each of which a kernel can transform; the first is 1 for a short signal."""
    if n <= _MOST:
        return (1, n) if _radices(n) is not None else None
    for first in range(math.isqrt(n), 0, -1):
        if n % first == 0 and n // first <= _MOST:
            return (n // first, first) if _radices(n) is not None else None
    return None


@functools.cache
def _radices(n: int) -> tuple[int, ...] | None:
    """Of the passes, in order."""
    found: list[int] = []
    for radix in (4, 2, *_PRIMES, *range(routines.WRITTEN_OUT, _LARGEST + 1, 2)):
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return tuple(found) if n == 1 else None


@functools.cache
def _chirp_length(n: int) -> int | None:
    """Of a circular convolution that holds one of two signals of n elements: it has no primes but 2, 3 and 5."""
    longest = min(4 * n, _MOST**2 + 1)
    return next((m for m in range(2 * n - 1, longest) if 60 ** m.bit_length() % m == 0 and _split(m)), None)


@functools.lru_cache(64)
def _chirps(n: int, long: int) -> tuple[Array, Array]:
    """The roots exp(-i pi k^2 / n), and the transform of their conjugates, which go both ways around."""
    chirp = np.exp(-1j * np.pi * (np.arange(n) ** 2 % (2 * n)) / n)
    around = np.zeros(long, complex)
    around[:n] = chirp.conj()
    around[long - n + 1 :] = chirp.conj()[:0:-1]
    return chirp, np.fft.fft(around)


def _reversed(spectrum: Array) -> Array:
    """The transform of the conjugates of what has this one."""
    return np.roll(spectrum[::-1], 1).conj()


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    return _Transform(x, plan).kernels()


class _Transform:
    """The kernels of one instruction, one dimension after the other."""

    def __init__(self, x: Instruction, plan: Plan) -> None:
        self.x, self.plan = x, plan
        self.options = Fft(*x.attributes)
        self.backward = self.options.fft_type in ("IFFT", "IRFFT")
        (operand,) = x.operands
        complex_type = x if self.options.fft_type != "IRFFT" else operand
        self.kind = complex_type.array_shape.element_type
        self.part = _PARTS[self.kind.name]
        self.found: list[LoweredKernel] = []

    def kernels(self) -> list[LoweredKernel]:
        (operand,) = self.x.operands
        lengths = self.options.fft_length
        sizes = (operand if self.options.fft_type == "IRFFT" else self.x).array_shape.dimensions
        last = len(sizes) - 1
        others = [last - k for k in range(1, len(lengths))]
        real = self.options.fft_type in ("RFFT", "IRFFT")
        order = [*others, last] if self.options.fft_type == "IRFFT" else [last, *others]
        source: Storage = operand
        for d in order:
            target: Storage = self.x if d == order[-1] else Partial(Shape(self.kind, sizes))
            outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
            if d == last and real:
                self._real(source, target, outer, lengths[-1])
            else:
                self._along(source, target, outer, sizes[d], inner)
            source = target
        return self.found

    def _along(self, source: Storage, target: Storage, outer: int, n: int, inner: int) -> None:
        """The middle one of three dimensions."""
        split = _split(n)
        if split is None:
            self._chirp(source, target, outer, n, inner)
            return
        second, first = split  # columns of the matrix that a signal is, and rows
        scale = 1 / n if self.backward else 1.0
        whole, one = _Axis(outer, n * inner, n * inner), _Axis(1, 0, 0)
        lanes = _Axis(inner, 1, 1)
        if second == 1 and inner > 1:
            self._kernel(source, target, (whole, one), lanes, n, (inner, inner), scale)
            return
        root = max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)
        if second == 1 and (outer * _VECTOR >= n or first < _VECTOR or root == 1):
            self._kernel(source, target, (one, one), whole, n, (1, 1), scale)
            return
        if second == 1:
            first, second = root, n // root
        middle = Partial(Shape(self.kind, (outer, n, inner)))
        step = second * inner
        if inner == 1:
            columns, rows = (one, _Axis(second, 1, 1)), (one, _Axis(first, second, 1))
        else:
            columns, rows = (_Axis(second, inner, inner), lanes), (_Axis(first, step, inner), lanes)
        self._kernel(source, middle, (whole, columns[0]), columns[1], first, (step, step), 1.0, n)
        self._kernel(middle, target, (whole, rows[0]), rows[1], second, (inner, first * inner), scale)

    def _kernel(
        self,
        source: Storage,
        target: Storage,
        outer: tuple[_Axis, _Axis],
        lanes: _Axis,
        n: int,
        steps: tuple[int, int],
        scale: float,
        whole: int = 0,
    ) -> None:
        """Transforms of n elements, so far apart in the source and in the target. Of a signal of `whole` elements these
        are columns: the last outer axis, or else the lanes, count them, and each is multiplied by roots of unity."""
        part, vector = self.part, max(routines.vector(self.part), panel_routines.tile_rows())
        elements, square = _elements(part)
        turns = (lanes.source != 1, lanes.target != 1)
        most = elements // n // vector * vector
        if any(turns):
            most = min(most, square // panel_routines.tile_rows() // vector * vector)
        width = min(-(-lanes.size // vector) * vector, most)
        blocks = -(-lanes.size // width)
        radices = _radices(n) or ()
        plan, roots = _plan(n, radices, width, part)
        length = max(1, min(n, square // width // panel_routines.tile_rows() * panel_routines.tile_rows()))
        places = [0, elements, 2 * elements, 3 * elements]
        out = places[2:] if len(radices) % 2 else places[:2]
        given, taken = (places[1::-1], out[::-1]) if self.backward else (places[:2], out)
        by_outer = int(outer[1].size > 1)
        numbers = (
            *(n, lanes.size, width, blocks, outer[1].size, length, *steps, len(radices)),
            *(outer[0].source, outer[1].source, lanes.source, outer[0].target, outer[1].target, lanes.target),
            *(*given, *taken, *places, by_outer, 1 - by_outer),
        )
        arguments: list[Storage] = [source, target, roots, plan, _constant(np.array([scale]), part)]
        if whole:
            arguments += _turns(
                whole, n, outer[1].size if by_outer else blocks, width, bool(by_outer), part, self.backward
            )
        kinds = (_type(source), _type(target))
        kernel = _driver(part, self.kind.name, kinds, turns, bool(whole), radices and tuple(sorted({*radices})))
        work = width * n * (4 + sum(max(2, radix // 4) for radix in radices))
        extent = outer[0].size * outer[1].size * blocks
        pieces = grain(extent, work)
        self.found.append(LoweredKernel(kernel, arguments, extent, pieces, [self.x], numbers, lasts=True))

    # --- real signals

    def _real(self, source: Storage, target: Storage, outer: int, n: int) -> None:
        half = n // 2
        if n % 2:
            given, found = (Partial(Shape(self.kind, (outer, n))) for _ in range(2))

            def real(low: Lowering, k: Index, element: Callable[[Index], Operand]) -> Operand:
                return low.builder.compute("real", self.part, element(k))

            if self.backward:
                self._rows(source, given, (outer, half + 1, n, 1), functools.partial(self._mirrored, n=n))
                self._along(given, found, outer, n, 1)
                self._rows(found, target, (outer, n, n, 1), real)
            else:
                self._rows(source, given, (outer, n, n, 1), lambda low, k, element: element(k))
                self._along(given, found, outer, n, 1)
                self._rows(found, target, (outer, n, half + 1, 1), lambda low, k, element: element(k))
            return
        packed = Partial(Shape(self.kind, (outer, half)))
        if self.backward:
            self._join(source, packed, outer, half)
            self._along(packed, target, outer, half, 1)
        else:
            self._along(source, packed, outer, half, 1)
            self._part(packed, target, outer, half)

    def _rows(
        self, source: Storage, target: Storage, sizes: tuple[int, int, int, int], value: _Change, pairs: bool = False
    ) -> None:
        """What becomes of the middle one of three dimensions: (outer, size, wanted, inner). Real numbers may be pairs
        that stand for complex ones."""
        outer, size, wanted, inner = sizes
        low = Lowering("rows", self.plan)
        b, given, taken = low.builder, low.buffer(source), low.buffer(target, True)
        pieces = -(-wanted // _PIECE)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = low.split_index(index, [outer, pieces])
            start = b.index("multiply", piece, _PIECE)
            stop = b.index("minimum", b.index("add", start, _PIECE), wanted)
            with low.loop(start, stop) as (k, _), low.loop(0, inner) as (i, _):

                def place(size: int, k: Index, row: Index = row, i: Index = i) -> Index:
                    at = b.index("add", b.index("multiply", row, size), k)
                    return b.index("add", b.index("multiply", at, inner), i)

                def element(k: Index, place: Callable[[int, Index], Index] = place) -> Operand:
                    at = place(size, k)
                    if given.type == self.kind.name or not pairs:
                        return b.load(given, at)
                    at = b.index("multiply", at, 2)
                    parts = b.load(given, at), b.load(given, b.index("add", at, 1))
                    return b.compute("complex", self.kind.name, *parts)

                found, at = value(low, k, element), place(wanted, k)
                if taken.type == self.kind.name or not pairs:
                    b.store(taken, at, b.compute("convert", taken.type, found))
                else:
                    at = b.index("multiply", at, 2)
                    b.store(taken, at, b.compute("real", self.part, found))
                    b.store(taken, b.index("add", at, 1), b.compute("imag", self.part, found))
        self.found.append(finished(low, outer * pieces, 8 * min(wanted, _PIECE) * inner, [self.x]))

    def _mirrored(self, low: Lowering, k: Index, element: Callable[[Index], Operand], n: int) -> Operand:
        """A coefficient of a real signal of odd length: those behind the middle are conjugates of others."""
        b, kind = low.builder, {"compare_type": "SIGNED"}
        value = element(b.index("minimum", k, b.index("subtract", n, k)))
        re, im = (b.compute(op, self.part, value) for op in ("real", "imag"))
        behind = b.compute("compare", "pred", _index(k), Literal("s64", n // 2), direction="GT", **kind)
        alone = b.compute("compare", "pred", _index(k), Literal("s64", 0), direction="EQ", **kind)
        im = b.compute("select", self.part, behind, b.compute("negate", self.part, im), im)
        zero = _literal(self.part, 0.0)
        return b.compute("complex", self.kind.name, re, b.compute("select", self.part, alone, zero, im))

    def _chirp(self, source: Storage, target: Storage, outer: int, n: int, inner: int) -> None:
        """A length with a large prime, as a convolution by one without, after Bluestein."""
        long, backward = _chirp_length(n), self.backward
        assert long is not None
        one, other = (Partial(Shape(self.kind, (outer, long, inner))) for _ in range(2))
        chirp, spectrum = _chirps(n, long)

        def times(source: Storage, target: Storage, size: int, wanted: int, factors: Array) -> None:
            re, im = (_constant(part, self.part) for part in (factors.real, factors.imag))

            def value(low: Lowering, k: Index, element: Callable[[Index], Operand]) -> Operand:
                b = low.builder
                x = element(k if wanted <= size else b.index("minimum", k, size - 1))
                x = b.compute("real", self.part, x), b.compute("imag", self.part, x)
                factor = b.load(low.buffer(re), k), b.load(low.buffer(im), k)
                return b.compute("complex", self.kind.name, *_times(low, x, factor))

            self._rows(source, target, (outer, size, wanted, inner), value, pairs=True)

        if backward:
            chirp, spectrum = chirp.conj(), _reversed(spectrum)
        times(source, one, n, long, np.pad(chirp, (0, long - n)))
        self.backward = False
        self._along(one, other, outer, long, inner)
        times(other, one, long, long, spectrum)
        self.backward = True
        self._along(one, other, outer, long, inner)
        self.backward = backward
        times(other, target, long, n, chirp / n if backward else chirp)

    def _element(self, low: Lowering, source: Buffer, place: Index) -> Complex:
        b = low.builder
        value = b.load(source, place)
        return b.compute("real", self.part, value), b.compute("imag", self.part, value)

    def _scaled(self, low: Lowering, x: Complex, factor: float) -> Complex:
        re, im = (low.builder.compute("multiply", self.part, u, _literal(self.part, factor)) for u in x)
        return re, im

    def _put_turned(self, low: Lowering, target: Buffer, place: Index, x: Complex, y: Complex) -> None:
        """x + i y on the way back, x - i y on the way there."""
        b = low.builder
        signs = ("subtract", "add") if self.backward else ("add", "subtract")
        re, im = b.compute(signs[0], self.part, x[0], y[1]), b.compute(signs[1], self.part, x[1], y[0])
        b.store(target, place, b.compute("complex", target.type, re, im))

    def _part(self, source: Storage, target: Storage, outer: int, half: int) -> None:
        """From the transform of even elements + i odd elements to that of all."""
        low = Lowering("parts", self.plan)
        b, tables = low.builder, _Tables(low, self.part, False)
        given, taken = low.buffer(source), low.buffer(target, True)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = low.split_index(index, [outer, -(-(half + 1) // _PIECE)])
            start = b.index("multiply", piece, _PIECE)
            root = tables.root(2 * half, start)
            base = b.index("multiply", row, half)
            with low.loop(0, b.index("minimum", b.index("subtract", half + 1, start), _PIECE)) as (j, _):
                k = b.index("add", start, j)
                x = self._element(low, given, b.index("add", base, b.index("remainder", k, half)))
                mirrored = b.index("remainder", b.index("subtract", half, k), half)
                y = self._element(low, given, b.index("add", base, mirrored))
                even, odd = self._halves(low, x, y)
                turned = _times(low, odd, _times(low, root, tables.first_roots(2 * half, _PIECE, j)))
                place = b.index("add", b.index("multiply", row, half + 1), k)
                self._put_turned(low, taken, place, even, turned)
        self.found.append(finished(low, outer * -(-(half + 1) // _PIECE), 16 * min(half + 1, _PIECE), [self.x]))

    def _join(self, source: Storage, target: Storage, outer: int, half: int) -> None:
        """From the transform of a real signal to that of even elements + i odd elements."""
        low = Lowering("join", self.plan)
        b, tables = low.builder, _Tables(low, self.part, True)
        given, taken = low.buffer(source), low.buffer(target, True)
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = low.split_index(index, [outer, -(-half // _PIECE)])
            start = b.index("multiply", piece, _PIECE)
            root = tables.root(2 * half, start)
            base = b.index("multiply", row, half + 1)
            with low.loop(0, b.index("minimum", b.index("subtract", half, start), _PIECE)) as (j, _):
                k = b.index("add", start, j)
                x, y = (self._spectrum(low, given, base, place, half) for place in (k, b.index("subtract", half, k)))
                even, odd = self._halves(low, x, y)
                turned = _times(low, odd, _times(low, root, tables.first_roots(2 * half, _PIECE, j)))
                self._put_turned(low, taken, b.index("add", b.index("multiply", row, half), k), even, turned)
        self.found.append(finished(low, outer * -(-half // _PIECE), 16 * min(half, _PIECE), [self.x]))

    def _spectrum(self, low: Lowering, source: Buffer, base: Index, k: Index, half: int) -> Complex:
        """A coefficient of a real signal: the first and the last are real, whatever they hold."""
        b = low.builder
        re, im = self._element(low, source, b.index("add", base, k))
        at = b.compute("remainder", "s64", _index(k), Literal("s64", half), index=True)
        inside = b.compute("compare", "pred", at, Literal("s64", 0), direction="NE", compare_type="SIGNED")
        return re, b.compute("select", self.part, inside, im, _literal(self.part, 0.0))

    def _halves(self, low: Lowering, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """Half of x plus, and of x minus, the conjugate of y."""
        b = low.builder
        x, y = self._scaled(low, x, 0.5), self._scaled(low, y, 0.5)
        plus = b.compute("add", self.part, x[0], y[0]), b.compute("subtract", self.part, x[1], y[1])
        minus = b.compute("subtract", self.part, x[0], y[0]), b.compute("add", self.part, x[1], y[1])
        return plus, minus


_PIECE = 256  # coefficients of a real signal that are done with one root of unity and its small neighbours


class _Tables:
    """Roots of unity, as constants that a kernel reads."""

    def __init__(self, low: Lowering, part: str, backward: bool) -> None:
        self.low, self.part, self.backward = low, part, backward
        self._found: dict[Any, tuple[Buffer, Buffer]] = {}

    def _table(self, key: Any, turns: np.ndarray[Any, Any]) -> tuple[Buffer, Buffer]:
        """Of what `turns` are of a whole turn."""
        if key not in self._found:
            angles = (2 if self.backward else -2) * np.pi * turns
            re, im = (self.low.buffer(_constant(f(angles), self.part)) for f in (np.cos, np.sin))
            self._found[key] = re, im
        return self._found[key]

    def _at(self, table: tuple[Buffer, Buffer], place: Index) -> Complex:
        b = self.low.builder
        return b.load(table[0], place), b.load(table[1], place)

    def root(self, n: int, power: Index) -> Complex:
        """A power below n of the root of order n, from two tables of about sqrt(n)."""
        step = 1 << (n.bit_length() // 2)
        coarse = self._table(("coarse", n), np.arange(-(-n // step) + 1) * step / n)
        fine = self._table(("fine", n), np.arange(step) / n)
        b = self.low.builder
        x = self._at(coarse, b.index("divide", power, step))
        y = self._at(fine, b.index("remainder", power, step))

        return _times(self.low, x, y)

    def first_roots(self, n: int, count: int, power: Index) -> Complex:
        return self._at(self._table(("first", n), np.arange(count) / n), power)


def _times(low: Lowering, x: Complex, y: Complex) -> Complex:
    kind = x[0].type

    def multiply(u: Operand, v: Operand) -> Operand:
        return low.builder.compute("multiply", kind, u, v)

    re = low.builder.compute("subtract", kind, multiply(x[0], y[0]), multiply(x[1], y[1]))
    return re, low.builder.compute("add", kind, multiply(x[0], y[1]), multiply(x[1], y[0]))


def _constant(values: np.ndarray[Any, Any], part: str) -> Instruction:
    kind = element_type(part)
    attributes = movement.Constant(Constant(values.astype(kind.dtype)))
    return Instruction(movement.constant, (), attributes, Shape(kind, values.shape))


def _literal(part: str, value: float) -> Literal:
    return Literal(part, float(element_type(part).dtype.type(value)))


def _index(index: Index) -> Operand:
    return Literal("s64", index) if isinstance(index, int) else index


# --- the kernel of a dimension ----------------------------------------------------------------------------------------


def _elements(part: str) -> tuple[int, int]:
    """Of all lanes, and of the square."""
    size = element_type(part).dtype.itemsize
    return _BYTES // size, _SQUARE_BYTES // (2 * size)


def _type(x: Storage) -> str:
    return (x.shape if isinstance(x, Partial) else x.array_shape).element_type.name


@functools.lru_cache(64)
def _plan(n: int, radices: tuple[int, ...], width: int, part: str) -> tuple[Instruction, Instruction]:
    """What the passes do, and their roots of unity."""
    passes: list[tuple[int, ...]] = []
    roots: list[np.ndarray[Any, Any]] = []
    length, stride, place = n, width, 0
    for radix in radices:
        rest = length // radix
        passes.append((radix, rest, stride, place))
        roots.append(_roots(np.arange(rest)[:, None] * np.arange(1, radix) / length).ravel())
        if radix > routines.WRITTEN_OUT:
            turns = routines.sums_of(radix)[:, None] * np.arange(1, radix // 2 + 1)[:, None] % radix / radix
            roots[-1] = np.concatenate([roots[-1], (_roots(turns) * [1, -1]).ravel()])
        place, length, stride = place + roots[-1].size, rest, stride * radix
    flat = np.concatenate(roots) if roots else np.zeros(1)
    return _constant(np.array(passes or [(0,) * 4], np.int64), "s64"), _constant(flat, part)


def _roots(turns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Roots of unity, as pairs in a new last dimension; the turns are those of the way there."""
    return np.stack([np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)], -1)


@functools.lru_cache(64)
def _turns(whole: int, n: int, columns: int, width: int, apart: bool, part: str, backward: bool) -> list[Instruction]:
    """The roots for each row of each block of columns, and for the elements of a row; or for each row of each column,
    where these are `apart`."""
    step = 1 if apart else width
    rows = _roots(np.arange(columns)[:, None] * step * np.arange(n) % whole / whole)
    cells = _roots(np.arange(n)[:, None] * np.arange(width) * (not apart) % whole / whole)
    sign = np.array([1, -1]) if backward else 1
    return [_constant((rows * sign).ravel(), part), _constant(np.moveaxis(cells * sign, -1, 0).ravel(), part)]


_NUMBERS = (
    "n lanes width blocks middle length from_step to_step passes "
    "source0 source1 source_lane target0 target1 target_lane "
    "in_re in_im out_re out_im re im to_re to_im by_middle by_block"
)


@functools.cache
def _driver(
    part: str, kind: str, types: tuple[str, str], turns: tuple[bool, bool], is_column: bool, radices: tuple[int, ...]
) -> Kernel:
    """Reads blocks of lanes, transforms them and writes them; `turns` says where lanes are rows of the memory."""
    return _Driver(part, kind, types, turns, is_column).kernel(radices)


class _Driver:
    """One such kernel: what it is given, its lanes, and the square in which rows are turned into lanes and back."""

    def __init__(self, part: str, kind: str, types: tuple[str, str], turns: tuple[bool, bool], is_column: bool) -> None:
        self.part, self.kind, self.types, self.turns, self.is_column = part, kind, types, turns, is_column
        self.b = b = panels.Numbers("fourier", _NUMBERS)
        self.source, self.target = b.argument(types[0]), b.argument(types[1], True)
        self.roots, self.plan, self.scale = b.argument(part), b.argument("s64"), b.argument(part)
        self.more = [b.argument(part), b.argument(part)] if is_column else []
        elements, room = _elements(part)
        self.lanes = b.scratch(part, 4 * elements)
        self.square = b.scratch(kind, room) if any(turns) else self.lanes
        self.turn = panel_routines.turn(128 if kind == "c128" else 64) if any(turns) else ""
        self.split, self.join = routines.split(part), routines.join(part, is_column)
        self.words = [2 if type == part else 1 for type in types]
        self.moved, self.copied = b.scratch(INDEX, len(routines.LANES)), b.scratch(INDEX, len(panel_routines.COPY))
        self.passes = b.scratch(INDEX, len(routines.TRANSFORM))

    def kernel(self, radices: tuple[int, ...]) -> Kernel:
        b, n = self.b, self.b.number
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            outer, middle, block = b.split(index, n["middle"], n["blocks"])
            first = b.times(block, n["width"])
            count = b.index("minimum", b.index("subtract", n["lanes"], first), n["width"])
            begin, end = (
                b.sum(b.times(outer, n[f"{x}0"]), b.times(middle, n[f"{x}1"]), b.times(first, n[f"{x}_lane"]))
                for x in ("source", "target")
            )
            if self.turns[0]:
                self._read_turned(begin, count)
            else:
                self._lanes(n["n"], n["from_step"], count)
                source = (self.source, b.times(begin, self.words[0]))
                b.call(self.split, self._at("in_re"), self._at("in_im"), source, (self.moved, 0))
            if radices:
                panels.give(b, self.passes, routines.TRANSFORM, **{name: n[name] for name in routines.TRANSFORM})
                transform = routines.transform(self.part, radices)
                b.call(transform, (self.lanes, 0), (self.roots, 0), (self.plan, 0), (self.passes, 0))
            if self.turns[1]:
                self._write_turned(end, count)
            else:
                column = b.sum(b.times(middle, n["by_middle"]), b.times(block, n["by_block"]))
                target = (self.target, b.times(end, self.words[1]))
                more = [(self.more[0], b.times(column, n["n"], 2)), (self.more[1], 0)] if self.is_column else []
                self._lanes(n["n"], n["to_step"], count)
                b.call(
                    self.join,
                    *(self._at("out_re"), self._at("out_im"), target, (self.scale, 0), *more, (self.moved, 0)),
                )
        return b.kernel

    def _read_turned(self, begin: Index, count: Index) -> None:
        b, n = self.b, self.b.number
        with self._pieces() as (start, stop):
            size = b.index("subtract", stop, start)
            with self._groups(count) as (lane, left):
                place = b.times(b.sum(begin, b.times(lane, n["source_lane"]), start), self.words[0])
                self._turned((self.square, lane), (self.source, place), size, n["source_lane"], left, n["width"])
            self._lanes(size, n["width"], count)
            b.call(self.split, self._at("in_re", start), self._at("in_im", start), (self.square, 0), (self.moved, 0))

    def _write_turned(self, end: Index, count: Index) -> None:
        b, n, square = self.b, self.b.number, self.square
        with self._pieces() as (start, stop):
            size = b.index("subtract", stop, start)
            self._lanes(size, n["width"], count)
            lanes = (self._at("out_re", start), self._at("out_im", start))
            b.call(self.join, *lanes, (square, 0), (self.scale, 0), (self.moved, 0))
            height = panel_routines.tile_rows()
            rest = b.times(b.index("divide", size, height), height)
            with self._groups(rest) as (row, left):
                place = b.times(b.sum(end, start, row), self.words[1])
                given = (square, b.times(row, n["width"]))
                self._turned((self.target, place), given, count, n["width"], left, n["target_lane"])
            with b.loop(0, count, sequential=True) as (lane, _), b.loop(rest, size, sequential=True) as (row, _):
                value = b.load(square, b.sum(b.times(row, n["width"]), lane))
                place = b.sum(end, b.times(lane, n["target_lane"]), start, row)
                if self.types[1] == self.kind:
                    b.store(self.target, place, value)
                else:
                    b.store(self.target, b.times(place, 2), b.compute("real", self.part, value))
                    b.store(self.target, b.sum(b.times(place, 2), 1), b.compute("imag", self.part, value))

    @contextmanager
    def _pieces(self) -> Generator[tuple[Index, Index]]:
        """Rows of lanes, as many at once as the square holds: the first, and the one after the last."""
        b, n = self.b, self.b.number
        with b.loop(0, self._chunks(n["n"], n["length"]), sequential=True) as (chunk, _):
            yield b.piece(chunk, n["length"], n["n"])

    @contextmanager
    def _groups(self, size: Index) -> Generator[tuple[Index, Index]]:
        """Of rows that are turned at once: the first, and how many are left."""
        b, height = self.b, panel_routines.tile_rows()
        with b.loop(0, self._chunks(size, height), sequential=True) as (group, _):
            yield b.times(group, height), b.index("subtract", size, b.times(group, height))

    def _chunks(self, whole: Index, length: Index) -> Index:
        b = self.b
        return b.index("divide", b.sum(whole, b.index("subtract", length, 1)), length)

    def _at(self, name: str, row: Index = 0) -> Place:
        b, n = self.b, self.b.number
        return self.lanes, b.sum(n[name], b.times(row, n["width"]))

    def _lanes(self, rows: Index, step: Index, count: Index) -> None:
        """Say which lanes are split or joined next."""
        width = self.b.number["width"]
        panels.give(self.b, self.moved, routines.LANES, rows=rows, step=step, count=count, width=width)

    def _turned(self, to: Place, given: Place, steps: Index, row: Index, rows: Index, pitch: Index) -> None:
        panels.give(self.b, self.copied, panel_routines.COPY, steps=steps, row=row, rows=rows, pitch=pitch)
        self.b.call(self.turn, to, given, (self.copied, 0))
