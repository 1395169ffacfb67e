"""Fourier transforms as loop nests, after Stockham: each pass reads one array and writes another, and what comes out is
in order.

A kernel transforms several *lanes* side by side, which are the innermost loop of every pass and become vectors: a batch
of signals, or, for a dimension that is not the last, what comes after it in memory. A long signal of n1 n2 elements is
a matrix: its columns are transformed, multiplied by roots of unity, and then its rows, whose transforms are columns of
the result.

Real signals of even length are complex ones of half the length. Of short ones with an odd factor, nearly half of the
transforms that this factor leaves are conjugates of others; long ones of odd length are complex ones of the same.

Lengths with a large prime are done as convolutions, and the host does the longest ones.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, sections 1.7, 3.2, 4.2 and 4.3.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tinyxla.backends.numba import fourier_routines as routines, panel_routines, panels
from tinyxla.backends.numba.axes import grain
from tinyxla.backends.numba.loops import INDEX, Buffer, Index, Kernel, Literal, Operand
from tinyxla.backends.numba.lowering import LoweredKernel, Partial, Storage, Users
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction, Literal as Constant
from tinyxla.ops import movement
from tinyxla.ops.fourier import Fft
from tinyxla.shapes import Shape, element_type

_LARGEST = 300  # the time for a number grows with the prime, in which its sum is
_TIMES = {2: 8, 3: 11, 4: 11, 5: 17}  # that passes take for an element, about
_FEW = 13  # terms, for which factors are not shared
_MOST = 1000  # elements of a signal that a kernel transforms at once
_BYTES = 64_000  # of all lanes; no power of two, so that real and imaginary parts do not share lines of the cache
_SQUARE_BYTES = 4096  # that are turned at once
_VECTOR = 16  # lanes, about
_PARTS = {"c64": "f32", "c128": "f64"}

Array = np.ndarray[Any, Any]
Complex = tuple[Operand, Operand]
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


def _root(n: int) -> int:
    """The largest factor that is not above the square root."""
    return max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)


def _are_lanes(outer: int, n: int) -> bool:
    """Whether signals are transformed side by side, for which they must be short, and many or without factors."""
    return n <= _MOST and _radices(n) is not None and (outer * _VECTOR >= n or n < _VECTOR or _root(n) == 1)


@functools.cache
def _radices(n: int) -> tuple[int, ...] | None:
    """Of the passes, in order."""
    found: list[int] = []
    for radix in (4, 2, 5, *range(3, _LARGEST + 1, 2)):
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return tuple(found) if n == 1 else None


@functools.cache
def _chirp_length(n: int) -> int | None:
    """Of a circular convolution that holds one of two signals of n elements: the quickest that has no primes but 2, 3
    and 5."""
    longest = min(4 * n, _MOST**2)

    def time(m: int) -> int:
        return m * sum(_TIMES[radix] for factor in _split(m) or () for radix in _radices(factor) or ())

    powers = [[p**k for k in range(longest.bit_length()) if p**k <= longest] for p in (2, 3, 5)]
    lengths = (math.prod(factors) for factors in itertools.product(*powers))
    return min((m for m in lengths if 2 * n - 1 <= m <= longest and _split(m)), key=time, default=None)


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
        root = _root(n)
        if _are_lanes(outer, n):
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
        real: _Real | None = None,
    ) -> None:
        """Transforms of n elements, so far apart in the source and in the target. Of a signal of `whole` elements these
        are columns: the last outer axis, or else the lanes, count them, and each is multiplied by roots of unity."""
        part, vector = self.part, max(routines.vector(self.part), panel_routines.tile_rows())
        elements, square = _elements(part)
        turns = (True, True) if real else (lanes.source != 1, lanes.target != 1)
        rows, written = (real.read, real.written) if real else (n, n)
        most = elements // max(rows, written) // vector * vector
        if any(turns):
            most = min(most, square // panel_routines.tile_rows() // vector * vector)
        width = min(-(-lanes.size // vector) * vector, most)
        blocks = -(-lanes.size // width)
        radices = _radices(n) or ()
        length = max(1, min(rows, square // width // panel_routines.tile_rows() * panel_routines.tile_rows()))
        here, there = [0, elements], [2 * elements, 3 * elements]  # real and imaginary parts
        order = -1 if self.backward else 1  # an inverse transform is one of what has its parts exchanged
        columns, before, after = (real.columns, real.before, real.after) if real else (1, (), ())
        given = here if before else here[::order]
        sums: list[Storage] = []
        for k, stage in enumerate(before, 1):
            sums += _summed(stage, here, there[::order] if k == len(before) else there, width, part)
            here, there = there, here
        plan, roots = _plan(n, radices, width * columns, part, *here, *there)
        ends = {f"passes{min(radix, routines.WRITTEN_OUT + 1)}": k for k, radix in enumerate(radices, 1)}
        if len(radices) % 2:
            here, there = there, here
        taken = here[::order]
        for stage in after:
            sums += _summed(stage, taken, there, width, part)
            taken, there, here = there, here, there
        by_outer = int(outer[1].size > 1)
        numbers = (
            *(rows, written, lanes.size, width, blocks, outer[1].size, length, *steps),
            *(outer[0].source, outer[1].source, lanes.source, outer[0].target, outer[1].target, lanes.target),
            *(*given, *taken, by_outer, 1 - by_outer, *ends.values()),
        )
        arguments: list[Storage] = [source, target, roots, plan, _constant(np.array([scale]), part)]
        if whole:
            arguments += _turns(
                whole, n, outer[1].size if by_outer else blocks, width, bool(by_outer), part, self.backward
            )
        kinds = (_type(source), _type(target))
        is_odd = bool(real and real.is_odd)
        form = _Form(part, self.kind.name, kinds, turns, bool(whole), tuple(ends), len(before), len(after), is_odd)
        passed = n * columns * sum(max(2, radix // 4) for radix in radices)
        summed = sum(stage.factors.size for stage in (*before, *after)) // 4
        work = width * (4 * max(rows, written) + passed + summed)
        extent = outer[0].size * outer[1].size * blocks
        self._finish(_driver(form), [*arguments, *sums], extent, work, numbers)

    # --- real signals

    def _real(self, source: Storage, target: Storage, outer: int, n: int) -> None:
        half = n // 2
        if half < _MOST and _are_lanes(outer, n if n % 2 else half):
            short, one = _in_lanes(n, self.backward), _Axis(1, 0, 0)
            lanes, scale = _Axis(outer, short.read, short.written), 1 / half if self.backward and half else 1.0
            self._kernel(source, target, (one, one), lanes, short.n, (1, 1), scale, real=short)
            return
        if n % 2 and _split(n) is None:
            self._chirp(source, target, outer, n, 1, is_real=True)
            return
        if n % 2:
            given, found = (Partial(Shape(self.kind, (outer, n))) for _ in range(2))
            read, written = self._ends(n)
            self._rows(source, given, (outer, read, n, 1), n)
            self._along(given, found, outer, n, 1)
            self._rows(found, target, (outer, n, written, 1), written)
            return
        packed = Partial(Shape(self.kind, (outer, half)))
        if self.backward:
            self._halved(source, packed, outer, half)
            self._along(packed, target, outer, half, 1)
        else:
            self._along(source, packed, outer, half, 1)
            self._halved(packed, target, outer, half)

    def _rows(
        self,
        source: Storage,
        target: Storage,
        sizes: tuple[int, int, int, int],
        n: int,
        factors: Array | None = None,
        pairs: bool = False,
    ) -> None:
        """The first n elements of the middle one of three dimensions - (outer, size, wanted, inner) - times factors,
        and zeros; of fewer, those that mirror them too. Real numbers may be pairs that stand for complex ones."""
        outer, size, wanted, inner = sizes
        b = panels.Numbers("rows", "size wanted pieces n inner")
        number, lanes = b.number, b.number["inner"] if inner > 1 else 1
        given, taken = b.argument(_type(source)), b.argument(_type(target), True)
        parts = [] if factors is None else [np.real(factors), np.imag(factors)]
        tables = [b.argument(self.part) for _ in parts]
        given_pairs, taken_pairs = (pairs and x.type == self.part for x in (given, taken))
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = b.split(index, number["pieces"])
            start, stop = b.piece(piece, _PIECE, number["wanted"])
            middle = b.most(start, b.least(stop, number["n"]))

            def place(size: str, k: Index, i: Index) -> Index:
                return b.sum(b.times(b.sum(b.times(row, number[size]), k), lanes), i)

            def element(k: Index, i: Index) -> Complex:
                at = place("size", k, i)
                if given_pairs:
                    return b.load(given, b.times(at, 2)), b.load(given, b.sum(b.times(at, 2), 1))
                value = b.load(given, at)
                re = b.compute("real", self.part, value)
                return re, b.compute("imag", self.part, value)

            def store(k: Index, i: Index, re: Operand, im: Operand) -> None:
                at = place("wanted", k, i)
                if taken_pairs:
                    b.store(taken, b.times(at, 2), re)
                    b.store(taken, b.sum(b.times(at, 2), 1), im)
                else:
                    b.store(taken, at, re if taken.type == self.part else b.compute("complex", taken.type, re, im))

            with b.loop(start, middle) as (k, _), b.loop(0, lanes) as (i, _):
                x = element(k, i) if size >= n else self._mirrored(b, k, functools.partial(element, i=i))
                store(k, i, *(_times(b, x, (b.load(tables[0], k), b.load(tables[1], k))) if tables else x))
            with b.loop(middle, stop) as (k, _), b.loop(0, lanes) as (i, _):
                store(k, i, _literal(self.part, 0.0), _literal(self.part, 0.0))
        pieces, constants = -(-wanted // _PIECE), [_constant(part, self.part) for part in parts]
        numbers, work = (size, wanted, pieces, n, inner), 8 * min(wanted, _PIECE) * inner
        self._finish(b.kernel, [source, target, *constants], outer * pieces, work, numbers)

    def _finish(
        self, kernel: Kernel, arguments: list[Storage], extent: int, work: int, numbers: tuple[int, ...]
    ) -> None:
        pieces = grain(extent, work)
        self.found.append(LoweredKernel(kernel, arguments, extent, pieces, [self.x], numbers, lasts=True))

    def _mirrored(self, b: panels.Numbers, k: Index, element: Callable[[Index], Complex]) -> Complex:
        """A coefficient of a real signal of odd length: those behind the middle are conjugates of others."""
        n = b.number["n"]
        re, im = element(b.least(k, b.minus(n, k)))
        behind = b.compare("GT", k, b.quotient(n, 2))
        alone = b.compare("EQ", k, 0)
        im = b.choose(behind, b.compute("negate", self.part, im), im)
        return re, b.choose(alone, _literal(self.part, 0.0), im)

    def _chirp(self, source: Storage, target: Storage, outer: int, n: int, inner: int, is_real: bool = False) -> None:
        """A length with a large prime, as a convolution by one without, after Bluestein; real signals are of odd
        length."""
        long, backward = _chirp_length(n), self.backward
        assert long is not None
        one, other = (Partial(Shape(self.kind, (outer, long, inner))) for _ in range(2))
        chirp, spectrum = _chirps(n, long)
        read, written = self._ends(n) if is_real else (n, n)

        def times(source: Storage, target: Storage, sizes: tuple[int, int], factors: Array) -> None:
            self._rows(source, target, (outer, *sizes, inner), len(factors), factors, not is_real)

        if backward:
            chirp, spectrum = chirp.conj(), _reversed(spectrum)
        times(source, one, (read, long), chirp)
        self.backward = False
        self._along(one, other, outer, long, inner)
        times(other, one, (long, long), spectrum)
        self.backward = True
        self._along(one, other, outer, long, inner)
        self.backward = backward
        times(other, target, (long, written), chirp[:written] / (n if backward else 1))

    def _ends(self, n: int) -> tuple[int, int]:
        """How many numbers of a real signal of n elements are read, and written."""
        return (n // 2 + 1, n) if self.backward else (n, n // 2 + 1)

    def _halved(self, source: Storage, target: Storage, outer: int, half: int) -> None:
        """From the transform of even elements + i odd elements to that of all, or back."""
        b = panels.Numbers("halves", "half pieces")
        n, part = b.number, self.part
        given, taken = b.argument(self.kind.name), b.argument(self.kind.name, True)
        roots = [b.argument(part) for _ in range(4)]
        after = b.sum(n["half"], 1)
        rows, written = (after, n["half"]) if self.backward else (n["half"], after)
        minus, plus = ("subtract", "add") if self.backward else ("add", "subtract")
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = b.split(index, n["pieces"])
            begin, end = b.times(row, rows), b.times(row, written)
            start, stop = b.piece(piece, _PIECE, n["half"])

            def found(op: str, x: Operand, y: Operand) -> Operand:
                return b.compute(op, part, x, y)

            def element(k: Index) -> Complex:
                value = b.load(given, b.sum(begin, k))
                re, im = (found("multiply", b.compute(op, part, value), _literal(part, 0.5)) for op in ("real", "imag"))
                return re, im

            def put(k: Index, re: Operand, im: Operand) -> None:
                b.store(taken, b.sum(end, k), b.compute("complex", taken.type, re, im))

            # The first coefficient and the last are real, whatever they hold.
            first = b.minus(1, b.least(piece, 1))
            with b.loop(0, first, sequential=True):
                re, im = element(0)
                if self.backward:
                    last = element(n["half"])[0]
                    put(0, found("add", re, last), found("subtract", re, last))
                else:
                    zero = _literal(part, 0.0)
                    for k, op in ((0, "add"), (n["half"], "subtract")):
                        both = found(op, re, im)
                        put(k, found("add", both, both), zero)
            root = b.load(roots[0], piece), b.load(roots[1], piece)
            with b.loop(b.sum(start, first), stop) as (k, _):
                j = b.minus(k, start)
                (re, im), (mirrored_re, mirrored_im) = element(k), element(b.minus(n["half"], k))
                odd = found("subtract", re, mirrored_re), found("add", im, mirrored_im)
                odd = _times(b, odd, _times(b, root, (b.load(roots[2], j), b.load(roots[3], j))))
                re = found(minus, found("add", re, mirrored_re), odd[1])
                put(k, re, found(plus, found("subtract", im, mirrored_im), odd[0]))
        pieces = -(-half // _PIECE)
        turns = (np.arange(pieces) * _PIECE, np.arange(_PIECE))
        tables = [np.exp((1j if self.backward else -1j) * np.pi * turn / half) for turn in turns]
        constants = [_constant(side, part) for table in tables for side in (np.real(table), np.imag(table))]
        self._finish(b.kernel, [source, target, *constants], outer * pieces, 16 * min(half, _PIECE), (half, pieces))


_PIECE = 256  # coefficients of a real signal that are done with one root of unity and its small neighbours


def _times(b: panels.Numbers, x: Complex, y: Complex) -> Complex:
    kind = x[0].type

    def multiply(u: Operand, v: Operand) -> Operand:
        return b.compute("multiply", kind, u, v)

    re = b.compute("subtract", kind, multiply(x[0], y[0]), multiply(x[1], y[1]))
    return re, b.compute("add", kind, multiply(x[0], y[1]), multiply(x[1], y[0]))


def _constant(values: Array, part: str) -> Instruction:
    kind = element_type(part)
    attributes = movement.Constant(Constant(values.astype(kind.dtype)))
    return Instruction(movement.constant, (), attributes, Shape(kind, values.shape))


def _literal(part: str, value: float) -> Literal:
    return Literal(part, float(element_type(part).dtype.type(value)))


# --- short real signals -----------------------------------------------------------------------------------------------


class _Sums(NamedTuple):
    """Sums of rows of real lanes, several times: which rows, which sums, and the factors [time, sum, row]. A row is
    2 k for the real parts of the element k, and 2 k + 1 for the imaginary ones."""

    rows: Array
    found: Array
    factors: Array


class _Real(NamedTuple):
    """A transform of real signals, as complex ones of n elements, of which there are `columns` side by side."""

    n: int
    columns: int
    read: int
    written: int
    is_odd: bool
    before: tuple[_Sums, ...]
    after: tuple[_Sums, ...]


@functools.lru_cache(64)
def _in_lanes(n: int, backward: bool) -> _Real:
    """Of even length, as transforms of even elements + i odd elements; of odd length, the transforms x[r k + t] of each
    t below r / 2, since the others are their conjugates, for a factor r of n."""
    half = n // 2
    ends = (half + 1, n) if backward else (n, half + 1)
    if n % 2 == 0:
        ends, sums = (half + 1, half) if backward else (half, half + 1), (_of_halves(half, backward),)
        return _Real(half, 1, *ends, False, sums if backward else (), () if backward else sums)
    radices = _radices(n) or (1,)
    radix = max([r for r in radices if r <= _FEW] or radices)
    if _FEW < radix == n:
        return _Real(1, half + 1, *ends, True, (), _of_prime(n, backward))
    length, columns = n // radix, radix // 2 + 1
    j = np.arange(length)[:, None] + np.arange(radix) * length
    t = np.arange(columns)
    roots = np.exp(-2j * np.pi * (j[:, :, None] * t % n) / n)  # [element of a column, term, column]
    parts = np.stack([np.real(roots), np.imag(roots)], -1).reshape(length, radix, 2 * columns)
    columned = 2 * (np.arange(length)[:, None] * columns) + np.arange(2 * columns)
    if backward:
        parts = parts * np.where(np.arange(2 * columns) < 2, 1, 2) / n
        sums = _Sums(np.delete(columned, 1, 1), 2 * j, np.delete(parts, 1, 2))
    else:
        sums = _Sums(2 * j, columned, parts.swapaxes(1, 2))
    if length == 1:
        return _Real(1, columns, *ends, True, (), (sums,))
    # The coefficient r k + t is that of the row k, column t, or the conjugate of another.
    if backward:
        k = (np.arange(length)[:, None] * radix + t).ravel()
        is_behind, rows = k > half, np.minimum(k, n - k)
    else:
        k = np.arange(half + 1)
        is_behind = k % radix >= columns
        rows = np.where(is_behind, n - k, k)
        rows = rows // radix * columns + rows % radix
    pairs = np.array([0, 1])
    factors = np.eye(2) * np.where(is_behind[:, None] & (pairs == 1), -1, 1)[:, None, :]
    chosen = _Sums(2 * rows[:, None] + pairs, 2 * np.arange(k.size)[:, None] + pairs, factors)
    if backward:  # the first coefficient is real, whatever it holds
        chosen.rows[0, 1], chosen.factors[0, 1] = 0, 0
    return _Real(length, columns, *ends, True, *(((chosen,), (sums,)) if backward else ((sums,), (chosen,))))


def _of_prime(n: int, backward: bool) -> tuple[_Sums, ...]:
    """Sums of elements and those that mirror them have cosines as factors, and differences have sines."""
    count = n // 2 + 1
    k = np.arange(count)
    pairs = np.array([0, 1])
    folded = np.tile(np.array([[1, 1], [1, -1]]), (count, 1, 1))
    folded[0] = [[1, 0], [0, 0]]
    ends, parts = 2 * np.stack([k, (n - k) % n], 1), 2 * k[:, None] + pairs
    turns = 2 * np.pi * (k[:, None] * k % n) / n
    factors = np.stack([np.cos(turns), -np.sin(turns)])
    rows = 2 * k + pairs[:, None]
    if not backward:
        return _Sums(ends, parts, folded), _Sums(rows, rows, factors)
    factors = factors * np.where(k == 0, 1, 2) / n
    found, rows = rows, rows.copy()
    rows[1, 0] = 0  # the first coefficient is real, whatever it holds
    folded[0] = [[1, 0], [1, 0]]
    return _Sums(rows, found, factors), _Sums(parts, ends, folded)


def _of_halves(half: int, backward: bool) -> _Sums:
    """Coefficients of a real signal of 2 `half` elements from those of even elements + i odd elements, or back: two,
    and those that mirror them, at once."""
    k = np.arange(half // 2 + 1)[:, None]
    k = np.concatenate([k, half - k], 1)  # [time, 2]
    x, y = np.array([1, 1j, 0, 0]), np.array([0, 0, 1, 1j])  # of k and of what mirrors it: one of their parts is 1
    x, y = np.stack([x, y]), np.stack([y, x]).conj()
    turn = (1j if backward else -1j) * np.exp((1j if backward else -1j) * np.pi * k / half)
    found = (x + y) / 2 + turn[:, :, None] * (x - y) / 2
    factors = np.stack([np.real(found), np.imag(found)], 2).reshape(len(k), 4, 4)
    pairs = np.array([0, 1])
    inner, outer = ((2 * places[:, :, None] + pairs).reshape(len(k), 4) for places in (k % half, k))
    if not backward:
        return _Sums(inner, outer, factors)
    outer[0, 1::2] -= 1  # the first and the last are real, whatever they hold
    factors[0, :, 1::2] = 0
    return _Sums(outer, inner, factors)


def _summed(sums: _Sums, given: list[int], taken: list[int], width: int, part: str) -> list[Storage]:
    """The tables for `combine`: whole groups of sums, the last of which is made several times."""
    times, rows = sums.rows.shape
    groups = -(-sums.found.shape[1] // routines.SUMS)
    more = ((0, 0), (0, groups * routines.SUMS - sums.found.shape[1]))
    found, factors = np.pad(sums.found, more, "edge"), np.pad(sums.factors, (*more, (0, 0)), "edge")

    def place(row: Array, sides: list[int]) -> Array:
        return np.array(sides)[row % 2] + row // 2 * width

    places = np.concatenate([place(sums.rows, given), place(found, taken)], 1)
    factors = factors.reshape(times, groups, routines.SUMS, rows).swapaxes(2, 3)
    head = np.array([times, rows, groups, width])
    return [_constant(np.concatenate([head, places.ravel()]), "s64"), _constant(factors.ravel(), part)]


# --- the kernel of a dimension ----------------------------------------------------------------------------------------


def _elements(part: str) -> tuple[int, int]:
    """Of all lanes, and of the square."""
    size = element_type(part).dtype.itemsize
    return _BYTES // size, _SQUARE_BYTES // (2 * size)


def _type(x: Storage) -> str:
    return (x.shape if isinstance(x, Partial) else x.array_shape).element_type.name


@functools.lru_cache(64)
def _plan(n: int, radices: tuple[int, ...], width: int, part: str, *sides: int) -> tuple[Instruction, Instruction]:
    """What the passes do, from one of two sides to the other and back, and their roots of unity."""
    passes: list[tuple[int, ...]] = []
    roots: list[Array] = []
    length, stride, place = n, width, 0
    for radix in radices:
        rest = length // radix
        passes.append((radix, rest, stride, place, *sides))
        sides = sides[2:] + sides[:2]
        roots.append(_roots(np.arange(rest)[:, None] * np.arange(1, radix) / length).ravel())
        if radix > routines.WRITTEN_OUT:
            turns = routines.sums_of(radix)[:, None] * np.arange(1, radix // 2 + 1)[:, None] % radix / radix
            roots[-1] = np.concatenate([roots[-1], (_roots(turns) * [1, -1]).ravel()])
        place, length, stride = place + roots[-1].size, rest, stride * radix
    flat = np.concatenate(roots) if roots else np.zeros(1)
    return _constant(np.array(passes or [()], np.int64), "s64"), _constant(flat, part)


def _roots(turns: Array) -> Array:
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
    "rows written lanes width blocks middle length from_step to_step "
    "source0 source1 source_lane target0 target1 target_lane "
    "in_re in_im out_re out_im by_middle by_block"
)


class _Form(NamedTuple):
    """What tells kernels apart. `turns` says where lanes are rows of the memory; real signals need sums before or
    after, and are no pairs where their length is odd."""

    part: str
    kind: str
    types: tuple[str, str]
    turns: tuple[bool, bool]
    is_column: bool
    passes: tuple[str, ...]
    before: int
    after: int
    is_odd: bool


@functools.cache
def _driver(form: _Form) -> Kernel:
    """Reads blocks of lanes, transforms them and writes them."""
    return _Driver(form).kernel()


class _Driver:
    """One such kernel: what it is given, its lanes, and the square in which rows are turned into lanes and back."""

    def __init__(self, form: _Form) -> None:
        self.form, self.part, types = form, form.part, form.types
        self.b = b = panels.Numbers("fourier", " ".join([_NUMBERS, *form.passes]))
        self.source, self.target = b.argument(types[0]), b.argument(types[1], True)
        self.roots, self.plan, self.scale = b.argument(form.part), b.argument("s64"), b.argument(form.part)
        self.more = [b.argument(form.part), b.argument(form.part)] if form.is_column else []
        elements, room = _elements(form.part)
        self.lanes = b.scratch(form.part, 4 * elements)
        self.square = b.scratch(form.kind, room) if any(form.turns) else self.lanes
        self.are_real = [form.is_odd and type == form.part for type in types]
        self.words = [2 if type == form.part and not form.is_odd else 1 for type in types]
        self.moved, self.copied = b.scratch(INDEX, len(routines.LANES)), b.scratch(INDEX, len(panel_routines.COPY))

    def kernel(self) -> Kernel:
        b, n, form = self.b, self.b.number, self.form
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            outer, middle, block = b.split(index, n["middle"], n["blocks"])
            first = b.times(block, n["width"])
            count = b.least(b.minus(n["lanes"], first), n["width"])
            begin, end = (
                b.sum(b.times(outer, n[f"{x}0"]), b.times(middle, n[f"{x}1"]), b.times(first, n[f"{x}_lane"]))
                for x in ("source", "target")
            )
            if form.turns[0]:
                self._read_turned(begin, count)
            else:
                self._lanes(n["rows"], n["from_step"], count)
                source = (self.source, b.times(begin, self.words[0]))
                b.call(routines.split(self.part), self._at("in_re"), self._at("in_im"), source, (self.moved, 0))
            for _ in range(form.before):
                self._combine()
            start: Index = 0
            for name in form.passes:
                with b.loop(start, n[name], sequential=True) as (k, _):
                    plan = (self.plan, b.times(k, len(routines.PLAN)))
                    radix = int(name.removeprefix("passes"))
                    b.call(routines.passed(self.part, radix), (self.lanes, 0), (self.roots, 0), plan)
                start = n[name]
            for _ in range(form.after):
                self._combine()
            if form.turns[1]:
                self._write_turned(end, count)
            else:
                column = b.sum(b.times(middle, n["by_middle"]), b.times(block, n["by_block"]))
                target = (self.target, b.times(end, self.words[1]))
                more = [(self.more[0], b.times(column, n["rows"], 2)), (self.more[1], 0)] if form.is_column else []
                self._lanes(n["rows"], n["to_step"], count)
                b.call(
                    routines.join(self.part, form.is_column),
                    *(self._at("out_re"), self._at("out_im"), target, (self.scale, 0), *more, (self.moved, 0)),
                )
        return b.kernel

    def _combine(self) -> None:
        places, factors = self.b.argument("s64"), self.b.argument(self.part)
        self.b.call(routines.combine(self.part), (self.lanes, 0), (places, 0), (factors, 0))

    def _read_turned(self, begin: Index, count: Index) -> None:
        b, n = self.b, self.b.number
        is_real = self.are_real[0]
        with self._pieces(n["rows"]) as (start, stop):
            size = b.minus(stop, start)
            with self._groups(count) as (lane, left):
                place = b.times(b.sum(begin, b.times(lane, n["source_lane"]), start), self.words[0])
                into = self._at("in_re", start, lane) if is_real else (self.square, lane)
                self._turned(is_real, into, (self.source, place), size, n["source_lane"], left, n["width"])
            if not is_real:
                self._lanes(size, n["width"], count)
                lanes = (self._at("in_re", start), self._at("in_im", start))
                b.call(routines.split(self.part), *lanes, (self.square, 0), (self.moved, 0))

    def _write_turned(self, end: Index, count: Index) -> None:
        b, n = self.b, self.b.number
        is_real = self.are_real[1]
        with self._pieces(n["written"]) as (start, stop):
            size = b.minus(stop, start)
            if not is_real:
                self._lanes(size, n["width"], count)
                lanes = (self._at("out_re", start), self._at("out_im", start))
                b.call(routines.join(self.part, False), *lanes, (self.square, 0), (self.scale, 0), (self.moved, 0))
            with self._groups(size) as (row, left):
                place = b.times(b.sum(end, start, row), self.words[1])
                given = (self.square, b.times(row, n["width"]))
                given = self._at("out_re", b.sum(start, row)) if is_real else given
                self._turned(is_real, (self.target, place), given, count, n["width"], left, n["target_lane"])

    @contextmanager
    def _pieces(self, rows: Index) -> Generator[tuple[Index, Index]]:
        """Rows of lanes, as many at once as the square holds: the first, and the one after the last."""
        b, n = self.b, self.b.number
        with b.loop(0, b.up(rows, n["length"]), sequential=True) as (chunk, _):
            yield b.piece(chunk, n["length"], rows)

    @contextmanager
    def _groups(self, size: Index) -> Generator[tuple[Index, Index]]:
        """Of rows that are turned at once: the first, and how many are left."""
        b, height = self.b, panel_routines.tile_rows()
        with b.loop(0, b.up(size, height), sequential=True) as (group, _):
            yield b.times(group, height), b.minus(size, b.times(group, height))

    def _at(self, name: str, row: Index = 0, lane: Index = 0) -> Place:
        b, n = self.b, self.b.number
        return self.lanes, b.sum(n[name], b.times(row, n["width"]), lane)

    def _lanes(self, rows: Index, step: Index, count: Index) -> None:
        """Say which lanes are split or joined next."""
        width = self.b.number["width"]
        panels.give(self.b, self.moved, routines.LANES, rows=rows, step=step, count=count, width=width)

    def _turned(
        self, is_real: bool, to: Place, given: Place, steps: Index, row: Index, rows: Index, pitch: Index
    ) -> None:
        panels.give(self.b, self.copied, panel_routines.COPY, steps=steps, row=row, rows=rows, pitch=pitch)
        bits = panel_routines.bits_of(self.part) * (1 if is_real else 2)
        self.b.call(panel_routines.turn(bits, is_exact=True), to, given, (self.copied, 0))
