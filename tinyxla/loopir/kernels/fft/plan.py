"""Fourier transforms as loop nests, after Stockham: each pass reads one array and writes another, and what comes out is
in order.

A kernel transforms several *lanes* side by side, which are the innermost loop of every pass and become vectors: a batch
of signals, or, for a dimension that is not the last, what comes after it in memory. Rows of a multiple of half a vector
are transformed in pairs: a vector holds runs of elements of two rows. A long signal of n1 n2 elements is a matrix: its
columns are transformed, multiplied by roots of unity, and then its rows, whose transforms are columns of the result.
The rows of a longer one are such matrices again.

Real signals of even length are complex ones of half the length. Of short ones with an odd factor, nearly half of the
transforms that this factor leaves are conjugates of others; long ones of odd length are complex ones of the same.

Lengths with a large prime are done as convolutions - pairs of rows without leaving the cache -, and the host does the
longest ones.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, sections 1.7, 3.2, 4.2 and 4.3.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Kernel, Literal, Operand
from tinyxla.loopir.kernels.fft import codelets as routines
from tinyxla.loopir.kernels.fft.stockham import Form, Pairs, driver, driver_of_pairs, elements_of
from tinyxla.loopir.kernels.fft.twiddles import (
    Array,
    Real,
    constant,
    in_lanes,
    plan_of,
    radices_of,
    tables_of_sums,
    turns_of,
)
from tinyxla.loopir.kernels.gemm import packed
from tinyxla.loopir.lower.axes import parallel_grain
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.ops.fourier import Fft
from tinyxla.shapes import Shape, element_type

_TIMES = {2: 8, 3: 11, 4: 11, 5: 17, 8: 17}  # that passes take for an element, about
_MOST = 1000  # elements of a signal that a kernel transforms at once
_VECTOR = 16  # lanes, about
_NEAR = 10_000  # bytes of lanes' real parts: the first cache holds them, imaginary ones, and what these become
_NEAR_PAIRS = 3000  # the same of pairs of rows: some are read while others are written
_NEAR_COLUMNS = 20_000  # the same where lanes are columns: the second cache does, and rows are read in longer pieces
_PARTS = {"c64": "f32", "c128": "f64"}

Complex = tuple[Operand, Operand]
Place = tuple[Buffer, Index]


@dataclass(frozen=True)
class _Axis:
    """A dimension: how far apart its elements are in what is read and in what is written."""

    size: int
    source: int
    target: int


_ONE = _Axis(1, 0, 0)


def supports(x: Instruction) -> bool:
    options = Fft(*x.attributes)
    return bool(x.array_shape.size) and all(_split(n) or _chirp_length(n) for n in _lengths(options))


def _lengths(options: Fft) -> list[int]:
    """Of the complex signals."""
    *outer, last = options.fft_length
    return [*outer, last // 2 if options.fft_type in ("RFFT", "IRFFT") and last % 2 == 0 else last]


@functools.cache
def _split(n: int) -> tuple[int, ...] | None:
    """One, two or three factors, as few and as equal as can be, each of which a kernel can transform."""
    if radices_of(n) is None or n > _MOST**3:
        return None
    if n <= _MOST:
        return (n,)
    first = _root(n)
    if n // first <= _MOST:
        return first, n // first
    for first in range(math.ceil(n ** (1 / 3)), _MOST + 1):
        second = _root(n // first)
        if n % first == 0 and n // first // second <= _MOST:
            return first, second, n // first // second
    return None


def _root(n: int) -> int:
    """The largest factor that is not above the square root."""
    return max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)


def _are_pairs(n: int, part: str) -> bool:
    """Whether signals are transformed two at a time, with runs of their elements in vectors."""
    run = routines.run(part)
    if run < 4 or n % run or not run**2 <= n <= elements_of(part) // 2:
        return False
    return min(radices_of(n // run) or (n,)) <= routines.WRITTEN_OUT


def _ordered(radices: Sequence[int]) -> list[int]:
    """Of pairs: large ones come first, which have no routine for a last pass, then odd ones, and what there are few of
    comes last, as there is a routine for passes of a radix in the middle, and another one for the last one."""
    large = routines.WRITTEN_OUT
    return sorted(radices, key=lambda radix: (radix <= large, radix % 2 == 0, -radices.count(radix), -radix))


def _are_lanes(outer: int, n: int) -> bool:
    """Whether signals are transformed side by side, for which they must be short, and many or without factors."""
    return n <= _MOST and radices_of(n) is not None and (outer * _VECTOR >= n or n < _VECTOR or _root(n) == 1)


def _passes_of(n: int, reads: bool, writes: bool) -> tuple[int, tuple[int, ...], int]:
    """The radices of a first pass that reads complex numbers, of a last one that writes them - 0 if there is none - and
    of those between. All sums of the first and of the last are written out, if need be those of one term."""
    between = list(radices_of(n) or ())
    few = [k for k, radix in enumerate(between) if radix <= routines.WRITTEN_OUT]
    last = (between.pop(few[-1]) if few else 1) if writes else 0
    first = (between.pop(0) if few[1:] else 1) if reads else 0
    return first, tuple(between), last


def _ends_of(radices: Sequence[int], start: int) -> dict[str, int]:
    """For each radix, after which pass there are no more of it, where passes of a radix follow one another."""
    return {f"passes{min(radix, routines.WRITTEN_OUT + 1)}": k for k, radix in enumerate(radices, start + 1)}


@functools.cache
def _chirp_length(n: int, multiple: int = 1) -> int | None:
    """Of a circular convolution that holds one of two signals of n elements: the quickest that has no primes but 2, 3
    and 5, and is such a multiple."""
    longest = min(4 * n, _MOST**2)

    def time(m: int) -> int:
        return m * sum(_TIMES[radix] for factor in _split(m) or () for radix in radices_of(factor) or ())

    powers = [[p**k for k in range(longest.bit_length()) if p**k <= longest] for p in (2, 3, 5)]
    lengths = (math.prod(factors) for factors in itertools.product(*powers))
    return min(
        (m for m in lengths if 2 * n - 1 <= m <= longest and m % multiple == 0 and _split(m)), key=time, default=None
    )


@functools.lru_cache(64)
def _chirps(n: int, long: int) -> tuple[Array, Array]:
    """The roots exp(-i pi k^2 / n), and the transform of their conjugates, which go both ways around."""
    chirp = np.exp(-1j * np.pi * (np.arange(n) ** 2 % (2 * n)) / n)
    around = np.zeros(long, complex)
    around[:n] = chirp.conj()
    around[long - n + 1 :] = chirp.conj()[:0:-1]
    return chirp, np.fft.fft(around)


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
        found: Storage = Temporary(Shape(self.kind, sizes)) if self.options.fft_type == "IRFFT" else self.x
        for d in order:  # the first one into the result, or what is to be real in the end, and others in place
            target = self.x if d == order[-1] else found
            outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
            if d == last and real:
                self._real(source, target, outer, lengths[-1])
            else:
                self._along(source, target, outer, sizes[d], inner)
            source = target
        return self.found

    def _along(self, source: Storage, target: Storage, outer: int, n: int, inner: int) -> None:
        """The middle one of three dimensions."""
        if inner == 1 and source is not target and _are_pairs(n, self.part):
            self._pairs(source, target, outer, n, ("whole", "whole"))
            return
        factors = _split(n)
        if factors is None:
            self._chirp(source, target, outer, n, inner)
            return
        scale = 1 / n if self.backward else 1.0
        whole = _Axis(outer, n * inner, n * inner)
        lanes = _Axis(inner, 1, 1)
        if len(factors) == 1 and inner > 1:
            self._kernel(source, target, (whole,), lanes, n, (inner, inner), scale)
            return
        if _are_lanes(outer, n):
            self._kernel(source, target, (), whole, n, (1, 1), scale)
            return
        if len(factors) == 1:
            factors = (_root(n), n // _root(n))
        length, count, place = n, outer, source
        found: list[_Axis] = []  # where the transforms of columns are, and where their elements belong
        for factor in factors[:-1]:
            rows, step = _Axis(count, length * inner, length * inner), length // factor * inner
            across = (_ONE, _Axis(step, 1, 1)) if inner == 1 else (_Axis(length // factor, inner, inner), lanes)
            middle = Temporary(Shape(self.kind, (outer, n, inner)))
            self._kernel(place, middle, (rows, *across[:-1]), across[-1], factor, (step, step), 1.0, length)
            found.append(_Axis(factor, step, n // length * inner))
            length, count, place = length // factor, count * factor, middle
        signals = (whole, *found, lanes) if inner > 1 else (whole, *found[1:], found[0])
        self._kernel(place, target, signals[:-1], signals[-1], length, (inner, n // length * inner), scale)

    def _pairs(
        self, source: Storage, target: Storage, outer: int, n: int, rows: tuple[routines.Rows, ...], size: int = 0
    ) -> None:
        """Rows of n elements, or real ones of n pairs, two at a time, by ones of as many elements, or of `size`."""
        part, run, size = self.part, routines.run(self.part), size or n
        types, is_real = (_type(source), _type(target)), "halves" in rows
        near = _NEAR_PAIRS // element_type(part).dtype.itemsize // size
        width = min(max(1, near // 2), -(-outer // 2)) * 2
        radices = run, *_ordered(radices_of(size // run) or ()), *([1] if rows[-1] == "halves" else [])
        sides = [k * elements_of(part) for k in range(4)]
        after = sides[2:] + sides[:2] if len(radices) % 2 else sides
        tables = [plan_of(size, radices, width, part, *places, run=run) for places in (sides, after)[: len(rows) - 1]]
        first, second = self._factors(n, size, rows)
        factors = constant(np.concatenate([first, second]).astype(complex).view(float), part)
        ends = _ends_of(radices[1:-1], 1)
        blocks = -(-outer // width)
        work = width * size * sum(max(2, radix // 4) for radix in radices) * len(tables)
        sizes = [2 * n if type == part else n + is_real for type in types]
        numbers = *sizes, outer, width, len(radices) - 1, 2 * len(first), *ends.values()
        kernel = driver_of_pairs(
            Pairs(part, types, rows, tuple(ends), radices[-1], self.backward and "lanes" not in rows)
        )
        arguments = [source, target, tables[0][1], factors, *(plan for plan, _ in tables)]
        self._finish(kernel, arguments, blocks, work, numbers)

    def _factors(self, n: int, size: int, rows: tuple[routines.Rows, ...]) -> tuple[Array, Array]:
        """For pairs of rows, factors of elements where they are read, and the other ones."""
        scale, sign = (1 / n, 1j) if self.backward else (1.0, -1j)
        if "lanes" in rows:
            chirp, spectrum = self._chirps(n, size)
            return np.pad(chirp, (0, size - n)), spectrum * scale / size
        halves = sign * np.exp(sign * np.pi * np.arange(n) / n)
        if rows[0] == "halves":
            return halves, np.array([scale / 2])
        return np.empty(0), halves / 2 if rows[1] == "halves" else np.array([scale])

    def _kernel(
        self,
        source: Storage,
        target: Storage,
        outer: tuple[_Axis, ...],
        lanes: _Axis,
        n: int,
        steps: tuple[int, int],
        scale: float,
        whole: int = 0,
        real: Real | None = None,
    ) -> None:
        """Transforms of n elements, so far apart in the source and in the target, for lanes and up to three outer axes.
        Of a signal of `whole` elements these are columns: the last outer axis, or else the lanes, count them, and each
        is multiplied by roots of unity."""
        far, outside, middle = (*[_ONE] * (3 - len(outer)), *outer)
        signal = real or Real(n, 1, n, n, False, (), ())
        reads, writes = (not real and step == 1 for step in (lanes.source, lanes.target))
        width = self._width(signal, lanes.size, reads)
        blocks = -(-lanes.size // width)
        first, between, last = _passes_of(n, reads, writes)
        radices = tuple(radix for radix in (first, *between, last) if radix)
        ends = _ends_of(between, min(first, 1))
        (plan, roots), sums, taken = self._stages(signal, radices, width)
        by_middle = int(middle.size > 1)
        numbers = (
            *(signal.read, signal.written, lanes.size, width, blocks, outside.size, middle.size, *steps),
            *(far.source, outside.source, middle.source, lanes.source),
            *(far.target, outside.target, middle.target, lanes.target),
            *(taken, by_middle, 1 - by_middle, len(radices) - 1, *ends.values()),
        )
        arguments = [target, roots, plan, constant(np.array([scale]), self.part)]
        if source is not target:
            arguments.insert(0, source)
        if whole:
            count = middle.size if by_middle else blocks
            arguments += turns_of(whole, n, count, width, bool(by_middle), self.part, self.backward)
        exchanged, stages = self.backward and (reads or writes), (len(signal.before), len(signal.after))
        types, in_place = (_type(source), _type(target)), source is target
        form = Form(
            self.part, types, in_place, first, tuple(ends), last, exchanged, bool(whole), *stages, signal.is_odd
        )
        passed = n * signal.columns * sum(max(2, radix // 4) for radix in radices)
        summed = sum(stage.factors.size for stage in (*signal.before, *signal.after)) // 4
        work = width * (4 * max(signal.read, signal.written) + passed + summed)
        self._finish(driver(form), [*arguments, *sums], math.prod(x.size for x in outer) * blocks, work, numbers)

    def _width(self, signal: Real, lanes: int, are_columns: bool) -> int:
        """How many lanes are transformed at once."""
        vector, rows = routines.vector(self.part), max(signal.read, signal.written)
        more = vector if signal.is_odd else vector // 2  # rows: lines are turned by whole vectors
        near = (_NEAR_COLUMNS if are_columns else _NEAR) // element_type(self.part).dtype.itemsize // rows
        most = min(near, elements_of(self.part) // (rows + more))
        return min(-(-lanes // vector), max(1, most // vector)) * vector

    def _stages(
        self, signal: Real, radices: tuple[int, ...], width: int
    ) -> tuple[tuple[Instruction, Instruction], list[Storage], int]:
        """The tables of the passes and of the sums before and after them, and where these leave the lanes."""
        size, sums = elements_of(self.part), list[Storage]()
        here, there = [0, size], [2 * size, 3 * size]  # real and imaginary parts
        for stage in signal.before:
            sums += tables_of_sums(stage, here, there, width, self.part)
            here, there = there, here
        order = -1 if self.backward else 1  # an inverse transform is one of what has its parts exchanged
        passes = plan_of(signal.n, radices, width * signal.columns, self.part, *here[::order], *there[::order])
        if len(radices) % 2:
            here, there = there, here
        for stage in signal.after:
            sums += tables_of_sums(stage, here, there, width, self.part)
            here, there = there, here
        return passes, sums, here[0]

    # --- real signals

    def _real(self, source: Storage, target: Storage, outer: int, n: int) -> None:
        half = n // 2
        if n % 2 == 0 and _are_pairs(half, self.part):
            self._pairs(source, target, outer, half, ("halves", "whole") if self.backward else ("whole", "halves"))
            return
        if half < _MOST and _are_lanes(outer, n if n % 2 else half):
            short = in_lanes(n, self.backward)
            lanes, scale = _Axis(outer, short.read, short.written), 1 / half if self.backward and n % 2 == 0 else 1.0
            self._kernel(source, target, (), lanes, short.n, (1, 1), scale, real=short)
            return
        if n % 2:
            given, found = (Temporary(Shape(self.kind, (outer, n))) for _ in range(2))
            read, written = (half + 1, n) if self.backward else (n, half + 1)
            self._rows(source, given, (outer, read, n, 1), n)
            self._along(given, found, outer, n, 1)
            self._rows(found, target, (outer, n, written, 1), written)
            return
        packed = Temporary(Shape(self.kind, (outer, half)))
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
    ) -> None:
        """The first n elements of the middle one of three dimensions - (outer, size, wanted, inner) - and zeros; of
        fewer, those that mirror them too. Or times factors: then real numbers are pairs that stand for complex ones."""
        outer, size, wanted, inner = sizes
        b = packed.ParametricBuilder("rows", "size wanted pieces n inner")
        number, lanes = b.parameter, b.parameter["inner"] if inner > 1 else 1
        given, taken = b.argument(_type(source)), b.argument(_type(target), True)
        parts = [] if factors is None else [np.real(factors), np.imag(factors)]
        tables = [b.argument(self.part) for _ in parts]
        given_pairs, taken_pairs = (bool(tables) and x.type == self.part for x in (given, taken))
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = b.delinearize(index, number["pieces"])
            start, stop = b.tile_range(piece, _PIECE, number["wanted"])
            middle = b.max(start, b.min(stop, number["n"]))

            def place(size: str, k: Index, i: Index) -> Index:
                return b.add(b.mul(b.add(b.mul(row, number[size]), k), lanes), i)

            def element(k: Index, i: Index) -> Complex:
                at = place("size", k, i)
                if given_pairs:
                    return b.load(given, b.mul(at, 2)), b.load(given, b.add(b.mul(at, 2), 1))
                value = b.load(given, at)
                re = b.compute("real", self.part, value)
                return re, b.compute("imag", self.part, value)

            def store(k: Index, i: Index, re: Operand, im: Operand) -> None:
                at = place("wanted", k, i)
                if taken_pairs:
                    b.store(taken, b.mul(at, 2), re)
                    b.store(taken, b.add(b.mul(at, 2), 1), im)
                else:
                    b.store(taken, at, re if taken.type == self.part else b.compute("complex", taken.type, re, im))

            with b.loop(start, middle) as (k, _), b.loop(0, lanes) as (i, _):
                x = element(k, i) if size >= n else self._mirrored(b, k, functools.partial(element, i=i))
                store(k, i, *(_times(b, x, (b.load(tables[0], k), b.load(tables[1], k))) if tables else x))
            with b.loop(middle, stop) as (k, _), b.loop(0, lanes) as (i, _):
                store(k, i, _literal(self.part, 0.0), _literal(self.part, 0.0))
        pieces, constants = -(-wanted // _PIECE), [constant(part, self.part) for part in parts]
        numbers, work = (size, wanted, pieces, n, inner), 8 * min(wanted, _PIECE) * inner
        self._finish(b.kernel, [source, target, *constants], outer * pieces, work, numbers)

    def _finish(
        self, kernel: Kernel, arguments: list[Storage], extent: int, work: int, numbers: tuple[int, ...]
    ) -> None:
        pieces = parallel_grain(extent, work)
        self.found.append(LoweredKernel(kernel, arguments, extent, pieces, [self.x], numbers, is_builtin=True))

    def _mirrored(self, b: packed.ParametricBuilder, k: Index, element: Callable[[Index], Complex]) -> Complex:
        """A coefficient of a real signal of odd length: those behind the middle are conjugates of others."""
        n = b.parameter["n"]
        re, im = element(b.min(k, b.sub(n, k)))
        behind = b.compare("GT", k, b.floordiv(n, 2))
        alone = b.compare("EQ", k, 0)
        im = b.select(behind, b.compute("negate", self.part, im), im)
        return re, b.select(alone, _literal(self.part, 0.0), im)

    def _chirp(self, source: Storage, target: Storage, outer: int, n: int, inner: int) -> None:
        """A length with a large prime, as a convolution by one without, after Bluestein."""
        long, backward = _chirp_length(n, routines.run(self.part) ** 2), self.backward
        if long and inner == 1 and source is not target and _are_pairs(long, self.part):
            self._pairs(source, target, outer, n, ("parts", "lanes", "parts"), long)
            return
        long = _chirp_length(n)
        assert long is not None
        one, other = (Temporary(Shape(self.kind, (outer, long, inner))) for _ in range(2))
        chirp, spectrum = self._chirps(n, long)
        self._rows(source, one, (outer, n, long, inner), n, chirp)
        self.backward = False
        self._along(one, other, outer, long, inner)
        self._rows(other, one, (outer, long, long, inner), long, spectrum)
        self.backward = True
        self._along(one, other, outer, long, inner)
        self.backward = backward
        self._rows(other, target, (outer, long, n, inner), n, chirp / (n if backward else 1))

    def _chirps(self, n: int, long: int) -> tuple[Array, Array]:
        """Those of this direction: backward, conjugates, and their transform."""
        chirp, spectrum = _chirps(n, long)
        return (chirp.conj(), np.roll(spectrum[::-1], 1).conj()) if self.backward else (chirp, spectrum)

    def _halved(self, source: Storage, target: Storage, outer: int, half: int) -> None:
        """From the transform of even elements + i odd elements to that of all, or back."""
        b = packed.ParametricBuilder("halves", "half pieces")
        n, part = b.parameter, self.part
        given, taken = b.argument(self.kind.name), b.argument(self.kind.name, True)
        roots = [b.argument(part) for _ in range(4)]
        after = b.add(n["half"], 1)
        rows, written = (after, n["half"]) if self.backward else (n["half"], after)
        minus, plus = ("subtract", "add") if self.backward else ("add", "subtract")
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, piece = b.delinearize(index, n["pieces"])
            begin, end = b.mul(row, rows), b.mul(row, written)
            start, stop = b.tile_range(piece, _PIECE, n["half"])

            def found(op: str, x: Operand, y: Operand) -> Operand:
                return b.compute(op, part, x, y)

            def element(k: Index) -> Complex:
                value = b.load(given, b.add(begin, k))
                re, im = (found("multiply", b.compute(op, part, value), _literal(part, 0.5)) for op in ("real", "imag"))
                return re, im

            def put(k: Index, re: Operand, im: Operand) -> None:
                b.store(taken, b.add(end, k), b.compute("complex", taken.type, re, im))

            # The first coefficient and the last are real, whatever they hold.
            first = b.sub(1, b.min(piece, 1))
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
            with b.loop(b.add(start, first), stop) as (k, _):
                j = b.sub(k, start)
                (re, im), (mirrored_re, mirrored_im) = element(k), element(b.sub(n["half"], k))
                odd = found("subtract", re, mirrored_re), found("add", im, mirrored_im)
                odd = _times(b, odd, _times(b, root, (b.load(roots[2], j), b.load(roots[3], j))))
                re = found(minus, found("add", re, mirrored_re), odd[1])
                put(k, re, found(plus, found("subtract", im, mirrored_im), odd[0]))
        pieces = -(-half // _PIECE)
        turns = (np.arange(pieces) * _PIECE, np.arange(_PIECE))
        tables = [np.exp((1j if self.backward else -1j) * np.pi * turn / half) for turn in turns]
        constants = [constant(side, part) for table in tables for side in (np.real(table), np.imag(table))]
        self._finish(b.kernel, [source, target, *constants], outer * pieces, 16 * min(half, _PIECE), (half, pieces))


_PIECE = 256  # coefficients of a real signal that are done with one root of unity and its small neighbours


def _times(b: packed.ParametricBuilder, x: Complex, y: Complex) -> Complex:
    kind = x[0].type

    def multiply(u: Operand, v: Operand) -> Operand:
        return b.compute("multiply", kind, u, v)

    re = b.compute("subtract", kind, multiply(x[0], y[0]), multiply(x[1], y[1]))
    return re, b.compute("add", kind, multiply(x[0], y[1]), multiply(x[1], y[0]))


def _literal(part: str, value: float) -> Literal:
    return Literal(part, float(element_type(part).dtype.type(value)))


def _type(x: Storage) -> str:
    return (x.shape if isinstance(x, Temporary) else x.array_shape).element_type.name
