"""Fourier transforms by Stockham's algorithm: each pass reads one array and writes another, and results are in order.

A kernel transforms several interleaved signals, the lanes, which are the innermost loop of every pass and become
vectors: a batch of signals or, for a dimension that is not the minor one, the elements of the minor dimensions. Rows of
a multiple of half a vector are transformed in pairs: a vector holds runs of elements of two rows. A long signal of n1
n2 elements is a matrix (four-step): its columns are transformed, multiplied by twiddle factors, and then its rows are
transformed, whose results are columns. Rows of a still longer signal are such matrices again.

Real signals of even length n are complex signals of length n / 2. For short ones with an odd factor, nearly half of the
transforms that this factor leaves are conjugates of others and not computed; long ones of odd length are transformed as
complex signals.

Lengths with a large prime factor are convolutions (Bluestein) - for pairs of rows within the cache -; the host
transforms the longest ones.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, sections 1.7, 3.2, 4.2 and 4.3; L.
Bluestein, A linear filtering approach to the computation of the discrete Fourier transform (1970).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinyxla.compiler.costs import BLOCK_ELEMENTS, MAX_UNROLLED, VECTOR_ELEMENTS
from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Kernel, Literal, Operand
from tinyxla.loopir.kernels.fft import codelets as codelets
from tinyxla.loopir.kernels.fft.complex_vectors import elements_per_row, lanes_per_vector
from tinyxla.loopir.kernels.fft.stockham import LaneForm, RowPairForm, lane_capacity, lane_kernel, row_pair_kernel
from tinyxla.loopir.kernels.fft.twiddles import (
    Array,
    RealTransform,
    constant,
    four_step_twiddles,
    pass_plan,
    radices_of,
    short_real_transform,
    sum_tables,
)
from tinyxla.loopir.kernels.gemm import packed
from tinyxla.loopir.lower.axes import parallel_grain
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.ops.fourier import Fft
from tinyxla.shapes import Shape, element_type

_PASS_TIMES = {2: 8, 3: 11, 4: 11, 5: 17, 8: 17}  # approximate time of a pass per element, by radix
_MAX_KERNEL_LENGTH = 1000  # elements of a signal that one kernel transforms
_L1_BYTES = (
    10_000  # bytes of the lanes' real parts: with the imaginary parts and the pass's results they fit into the L1 cache
)
_L1_ROW_PAIR_BYTES = 3000  # the same for pairs of rows, some of which are read while others are written
_REAL_TYPES = {"c64": "f32", "c128": "f64"}

Complex = tuple[Operand, Operand]
Address = tuple[Buffer, Index]


@dataclass(frozen=True)
class _Axis:
    """A dimension: its size and its strides in the source and in the target."""

    size: int
    source: int
    target: int


_ONE = _Axis(1, 0, 0)


def supports(x: Instruction) -> bool:
    """Whether all lengths factor into small primes, or have a Bluestein length."""
    options = Fft(*x.attributes)
    return bool(x.array_shape.size) and all(_factorize(n) or _bluestein_length(n) for n in _lengths(options))


def _lengths(options: Fft) -> list[int]:
    """Lengths of the complex signals."""
    *outer, last = options.fft_length
    return [*outer, last // 2 if options.fft_type in ("RFFT", "IRFFT") and last % 2 == 0 else last]


@functools.cache
def _factorize(n: int) -> tuple[int, ...] | None:
    """One, two or three factors, as few and as balanced as possible, each of which one kernel can transform."""
    if radices_of(n) is None or n > _MAX_KERNEL_LENGTH**3:
        return None
    if n <= _MAX_KERNEL_LENGTH:
        return (n,)
    first = _balanced_factor(n)
    if n // first <= _MAX_KERNEL_LENGTH:
        return first, n // first
    for first in range(math.ceil(n ** (1 / 3)), _MAX_KERNEL_LENGTH + 1):
        second = _balanced_factor(n // first)
        if n % first == 0 and n // first // second <= _MAX_KERNEL_LENGTH:
            return first, second, n // first // second
    return None


def _balanced_factor(n: int) -> int:
    """The largest factor that is at max_lanes the square root."""
    return max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)


def _uses_row_pairs(n: int, real_type: str) -> bool:
    """Whether signals are transformed two at a time, with runs of their elements in vectors."""
    run = elements_per_row(real_type)
    if run < 4 or n % run or not run**2 <= n <= lane_capacity(real_type) // 2:
        return False
    return min(radices_of(n // run) or (n,)) <= MAX_UNROLLED


def _order_radices(radices: Sequence[int]) -> list[int]:
    """Radices of row pairs in order: large ones first, for which there is no last pass; then odd ones; the least
    frequent last, since the last pass has code of its own for its radix."""
    large = MAX_UNROLLED
    return sorted(radices, key=lambda radix: (radix <= large, radix % 2 == 0, -radices.count(radix), -radix))


def _uses_lanes(outer: int, n: int) -> bool:
    """Whether signals are interleaved: short ones that are many, or have no factors."""
    return (
        n <= _MAX_KERNEL_LENGTH
        and radices_of(n) is not None
        and (outer * VECTOR_ELEMENTS >= n or n < VECTOR_ELEMENTS or _balanced_factor(n) == 1)
    )


def _choose_passes(n: int, reads: bool, writes: bool) -> tuple[int, tuple[int, ...], int]:
    """Radices of the first pass if it reads complex numbers, of the passes between, and of the last pass if it writes
    complex numbers; 0 for none. First and last passes are unrolled, if need be as passes of radix 1."""
    between = list(radices_of(n) or ())
    unrolled = [k for k, radix in enumerate(between) if radix <= MAX_UNROLLED]
    last = (between.pop(unrolled[-1]) if unrolled else 1) if writes else 0
    first = (between.pop(0) if unrolled[1:] else 1) if reads else 0
    return first, tuple(between), last


def _pass_ends(radices: Sequence[int], start: int) -> dict[str, int]:
    """For each radix, the index of the pass after its last one."""
    return {f"passes{min(radix, MAX_UNROLLED + 1)}": k for k, radix in enumerate(radices, start + 1)}


@functools.cache
def _bluestein_length(n: int, multiple: int = 1) -> int | None:
    """The cheapest length of a circular convolution that holds a convolution of two signals of n elements: a product of
    2, 3 and 5 and a multiple of `multiple`."""
    max_length = min(4 * n, _MAX_KERNEL_LENGTH**2)

    def time(m: int) -> int:
        return m * sum(_PASS_TIMES[radix] for factor in _factorize(m) or () for radix in radices_of(factor) or ())

    powers = [[p**k for k in range(max_length.bit_length()) if p**k <= max_length] for p in (2, 3, 5)]
    lengths = (math.prod(factors) for factors in itertools.product(*powers))
    return min(
        (m for m in lengths if 2 * n - 1 <= m <= max_length and m % multiple == 0 and _factorize(m)),
        key=time,
        default=None,
    )


@functools.lru_cache(64)
def _chirp_tables(n: int, padded_length: int) -> tuple[Array, Array]:
    """The chirp exp(-i pi k^2 / n), and the transform of its conjugate, wrapped around."""
    chirp = np.exp(-1j * np.pi * (np.arange(n) ** 2 % (2 * n)) / n)
    wrapped = np.zeros(padded_length, complex)
    wrapped[:n] = chirp.conj()
    wrapped[padded_length - n + 1 :] = chirp.conj()[:0:-1]
    return chirp, np.fft.fft(wrapped)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels of a Fourier transform."""
    return _Transform(x, plan).kernels()


class _Transform:
    """The kernels of one instruction, dimension by dimension."""

    def __init__(self, x: Instruction, plan: Plan) -> None:
        self.x, self.plan = x, plan
        self.options = Fft(*x.attributes)
        self.backward = self.options.fft_type in ("IFFT", "IRFFT")
        (operand,) = x.operands
        complex_array = x if self.options.fft_type != "IRFFT" else operand
        self.complex_type = complex_array.array_shape.element_type
        self.real_type = _REAL_TYPES[self.complex_type.name]
        self.lowered: list[LoweredKernel] = []

    def kernels(self) -> list[LoweredKernel]:
        """The kernels, dimension by dimension: the real one first, or in an inverse transform last."""
        (operand,) = self.x.operands
        lengths = self.options.fft_length
        sizes = (operand if self.options.fft_type == "IRFFT" else self.x).array_shape.dimensions
        last = len(sizes) - 1
        others = [last - k for k in range(1, len(lengths))]
        real = self.options.fft_type in ("RFFT", "IRFFT")
        order = [*others, last] if self.options.fft_type == "IRFFT" else [last, *others]
        source: Storage = operand
        results: Storage = Temporary(Shape(self.complex_type, sizes)) if self.options.fft_type == "IRFFT" else self.x
        for d in order:  # the first one into the result or a complex temporary, the others in place
            target = self.x if d == order[-1] else results
            outer, inner = math.prod(sizes[:d]), math.prod(sizes[d + 1 :])
            if d == last and real:
                self._transform_real(source, target, outer, lengths[-1])
            else:
                self._transform(source, target, outer, sizes[d], inner)
            source = target
        return self.lowered

    def _transform(self, source: Storage, target: Storage, outer: int, n: int, inner: int) -> None:
        """Transform the middle one of three dimensions."""
        if inner == 1 and source is not target and _uses_row_pairs(n, self.real_type):
            self._transform_row_pairs(source, target, outer, n, ("full", "full"))
            return
        factors = _factorize(n)
        if factors is None:
            self._bluestein(source, target, outer, n, inner)
            return
        scale = 1 / n if self.backward else 1.0
        signal = _Axis(outer, n * inner, n * inner)
        lanes = _Axis(inner, 1, 1)
        if len(factors) == 1 and inner > 1:
            self._emit_lanes(source, target, (signal,), lanes, n, (inner, inner), scale)
            return
        if _uses_lanes(outer, n):
            self._emit_lanes(source, target, (), signal, n, (1, 1), scale)
            return
        if len(factors) == 1:
            factors = (_balanced_factor(n), n // _balanced_factor(n))
        length, count, offset = n, outer, source
        results: list[_Axis] = []  # axes of the column transforms: where they are, and where their elements are written
        for factor in factors[:-1]:
            rows, step = _Axis(count, length * inner, length * inner), length // factor * inner
            lane_axes = (_ONE, _Axis(step, 1, 1)) if inner == 1 else (_Axis(length // factor, inner, inner), lanes)
            middle = Temporary(Shape(self.complex_type, (outer, n, inner)))
            self._emit_lanes(offset, middle, (rows, *lane_axes[:-1]), lane_axes[-1], factor, (step, step), 1.0, length)
            results.append(_Axis(factor, step, n // length * inner))
            length, count, offset = length // factor, count * factor, middle
        signals = (signal, *results, lanes) if inner > 1 else (signal, *results[1:], results[0])
        self._emit_lanes(offset, target, signals[:-1], signals[-1], length, (inner, n // length * inner), scale)

    def _transform_row_pairs(
        self, source: Storage, target: Storage, outer: int, n: int, rows: tuple[codelets.RowForm, ...], size: int = 0
    ) -> None:
        """Transform rows of n elements, or of n pairs of real ones, two at a time, by transforms of n or `size`
        elements."""
        real_type, run, size = self.real_type, elements_per_row(self.real_type), size or n
        types, is_real = (_type(source), _type(target)), "half" in rows
        block_rows = _L1_ROW_PAIR_BYTES // element_type(real_type).dtype.itemsize // size
        width = min(max(1, block_rows // 2), -(-outer // 2)) * 2
        radices = run, *_order_radices(radices_of(size // run) or ()), *([1] if rows[-1] == "half" else [])
        sides = [k * lane_capacity(real_type) for k in range(4)]
        after = sides[2:] + sides[:2] if len(radices) % 2 else sides
        tables = [
            pass_plan(size, radices, width, real_type, *order, run=run) for order in (sides, after)[: len(rows) - 1]
        ]
        first, second = self._row_pair_factors(n, size, rows)
        factors = constant(np.concatenate([first, second]).astype(complex).view(float), real_type)
        ends = _pass_ends(radices[1:-1], 1)
        blocks = -(-outer // width)
        work = width * size * sum(max(2, radix // 4) for radix in radices) * len(tables)
        sizes = [2 * n if type == real_type else n + is_real for type in types]
        parameters = *sizes, outer, width, len(radices) - 1, 2 * len(first), *ends.values()
        kernel = row_pair_kernel(
            RowPairForm(real_type, types, rows, tuple(ends), radices[-1], self.backward and "lanes" not in rows)
        )
        arguments = [source, target, tables[0][1], factors, *(plan for plan, _ in tables)]
        self._append_kernel(kernel, arguments, blocks, work, parameters)

    def _row_pair_factors(self, n: int, size: int, rows: tuple[codelets.RowForm, ...]) -> tuple[Array, Array]:
        """Factors of elements that are read, and the other factors."""
        scale, sign = (1 / n, 1j) if self.backward else (1.0, -1j)
        if "lanes" in rows:
            chirp, spectrum = self._chirp_tables(n, size)
            return np.pad(chirp, (0, size - n)), spectrum * scale / size
        halves = sign * np.exp(sign * np.pi * np.arange(n) / n)
        if rows[0] == "half":
            return halves, np.array([scale / 2])
        return np.empty(0), halves / 2 if rows[1] == "half" else np.array([scale])

    def _emit_lanes(
        self,
        source: Storage,
        target: Storage,
        outer: tuple[_Axis, ...],
        lanes: _Axis,
        n: int,
        steps: tuple[int, int],
        scale: float,
        columns_of: int = 0,
        real: RealTransform | None = None,
    ) -> None:
        """Transforms of n elements with strides `steps` in source and target, for lanes and up to three outer axes.

        If the signals are columns of a signal of `columns_of` elements, the last outer axis, or else the lanes, count
        them, and each is multiplied by twiddle factors.
        """
        outermost, outer_axis, middle = (*[_ONE] * (3 - len(outer)), *outer)
        transform = real or RealTransform(n, 1, n, n, False, (), ())
        reads, writes = (not real and step == 1 for step in (lanes.source, lanes.target))
        width = self._lane_count(transform, lanes.size, reads)
        blocks = -(-lanes.size // width)
        first, between, last = _choose_passes(n, reads, writes)
        radices = tuple(radix for radix in (first, *between, last) if radix)
        ends = _pass_ends(between, min(first, 1))
        (plan, roots), sums, result_offset = self._stage_tables(transform, radices, width)
        by_middle = int(middle.size > 1)
        parameters = (
            *(transform.read, transform.written, lanes.size, width, blocks, outer_axis.size, middle.size, *steps),
            *(outermost.source, outer_axis.source, middle.source, lanes.source),
            *(outermost.target, outer_axis.target, middle.target, lanes.target),
            *(result_offset, by_middle, 1 - by_middle, len(radices) - 1, *ends.values()),
        )
        arguments = [target, roots, plan, constant(np.array([scale]), self.real_type)]
        if source is not target:
            arguments.insert(0, source)
        if columns_of:
            count = middle.size if by_middle else blocks
            arguments += four_step_twiddles(columns_of, n, count, width, bool(by_middle), self.real_type, self.backward)
        swaps_parts, stages = self.backward and (reads or writes), (len(transform.before), len(transform.after))
        types, in_place = (_type(source), _type(target)), source is target
        form = LaneForm(
            self.real_type,
            types,
            in_place,
            first,
            tuple(ends),
            last,
            swaps_parts,
            bool(columns_of),
            *stages,
            transform.is_odd,
        )
        pass_work = n * transform.columns * sum(max(2, radix // 4) for radix in radices)
        sum_work = sum(stage.factors.size for stage in (*transform.before, *transform.after)) // 4
        work = width * (4 * max(transform.read, transform.written) + pass_work + sum_work)
        self._append_kernel(
            lane_kernel(form), [*arguments, *sums], math.prod(x.size for x in outer) * blocks, work, parameters
        )

    def _lane_count(self, signal: RealTransform, lanes: int, are_columns: bool) -> int:
        """Lanes that are transformed together."""
        vector, rows = lanes_per_vector(self.real_type), max(signal.read, signal.written)
        padding = vector if signal.is_odd else vector // 2  # rows of padding: lines are transposed by full vectors
        block_rows = (
            (2 * _L1_BYTES if are_columns else _L1_BYTES) // element_type(self.real_type).dtype.itemsize // rows
        )
        max_lanes = min(block_rows, lane_capacity(self.real_type) // (rows + padding))
        return min(-(-lanes // vector), max(1, max_lanes // vector)) * vector

    def _stage_tables(
        self, signal: RealTransform, radices: tuple[int, ...], width: int
    ) -> tuple[tuple[Instruction, Instruction], list[Storage], int]:
        """Tables of the passes and of the sums before and after them, and the offset of the results in the lanes."""
        size, sums = lane_capacity(self.real_type), list[Storage]()
        source_sides, target_sides = [0, size], [2 * size, 3 * size]  # real and imaginary parts
        for stage in signal.before:
            sums += sum_tables(stage, source_sides, target_sides, width, self.real_type)
            source_sides, target_sides = target_sides, source_sides
        # An inverse transform is a forward one with real and imaginary parts exchanged.
        order = -1 if self.backward else 1
        passes = pass_plan(
            signal.n, radices, width * signal.columns, self.real_type, *source_sides[::order], *target_sides[::order]
        )
        if len(radices) % 2:
            source_sides, target_sides = target_sides, source_sides
        for stage in signal.after:
            sums += sum_tables(stage, source_sides, target_sides, width, self.real_type)
            source_sides, target_sides = target_sides, source_sides
        return passes, sums, source_sides[0]

    # --- real signals

    def _transform_real(self, source: Storage, target: Storage, outer: int, n: int) -> None:
        """Transform the minor dimension of a real signal, or to one."""
        half = n // 2
        if n % 2 == 0 and _uses_row_pairs(half, self.real_type):
            self._transform_row_pairs(
                source, target, outer, half, ("half", "full") if self.backward else ("full", "half")
            )
            return
        if half < _MAX_KERNEL_LENGTH and _uses_lanes(outer, n if n % 2 else half):
            real_transform = short_real_transform(n, self.backward)
            lanes = _Axis(outer, real_transform.read, real_transform.written)
            scale = 1 / half if self.backward and n % 2 == 0 else 1.0
            self._emit_lanes(source, target, (), lanes, real_transform.n, (1, 1), scale, real=real_transform)
            return
        if n % 2:
            extended, results = (Temporary(Shape(self.complex_type, (outer, n))) for _ in range(2))
            read, written = (half + 1, n) if self.backward else (n, half + 1)
            self._emit_rows(source, extended, (outer, read, n, 1), n)
            self._transform(extended, results, outer, n, 1)
            self._emit_rows(results, target, (outer, n, written, 1), written)
            return
        packed = Temporary(Shape(self.complex_type, (outer, half)))
        if self.backward:
            self._emit_real_split(source, packed, outer, half)
            self._transform(packed, target, outer, half, 1)
        else:
            self._transform(source, packed, outer, half, 1)
            self._emit_real_split(packed, target, outer, half)

    def _emit_rows(
        self, source: Storage, target: Storage, sizes: tuple[int, int, int, int], n: int, factors: Array | None = None
    ) -> None:
        """Copy the first n elements of the middle one of three dimensions - (outer, size, written, inner) -
        zero-padded, or complete a conjugate-symmetric half; or multiply by factors, and then pairs of real numbers
        stand for complex ones."""
        outer, size, written, inner = sizes
        b = packed.ParametricBuilder("rows", "size written chunks n inner")
        parameter, lanes = b.parameter, b.parameter["inner"] if inner > 1 else 1
        operand, result = b.argument(_type(source)), b.argument(_type(target), True)
        components = [] if factors is None else [np.real(factors), np.imag(factors)]
        tables = [b.argument(self.real_type) for _ in components]
        source_is_pairs, target_is_pairs = (bool(tables) and x.type == self.real_type for x in (operand, result))
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, chunk = b.delinearize(index, parameter["chunks"])
            start, stop = b.tile_range(chunk, _CHUNK_COEFFICIENTS, parameter["written"])
            middle = b.max(start, b.min(stop, parameter["n"]))

            def offset(size: str, k: Index, i: Index) -> Index:
                return b.add(b.mul(b.add(b.mul(row, parameter[size]), k), lanes), i)

            def element(k: Index, i: Index) -> Complex:
                at = offset("size", k, i)
                if source_is_pairs:
                    return b.load(operand, b.mul(at, 2)), b.load(operand, b.add(b.mul(at, 2), 1))
                value = b.load(operand, at)
                re = b.compute("real", self.real_type, value)
                return re, b.compute("imag", self.real_type, value)

            def store(k: Index, i: Index, re: Operand, im: Operand) -> None:
                at = offset("written", k, i)
                if target_is_pairs:
                    b.store(result, b.mul(at, 2), re)
                    b.store(result, b.add(b.mul(at, 2), 1), im)
                else:
                    b.store(
                        result, at, re if result.type == self.real_type else b.compute("complex", result.type, re, im)
                    )

            with b.loop(start, middle) as (k, _), b.loop(0, lanes) as (i, _):
                x = element(k, i) if size >= n else self._conjugate_symmetric(b, k, functools.partial(element, i=i))
                store(k, i, *(_complex_multiply(b, x, (b.load(tables[0], k), b.load(tables[1], k))) if tables else x))
            with b.loop(middle, stop) as (k, _), b.loop(0, lanes) as (i, _):
                store(k, i, _literal(self.real_type, 0.0), _literal(self.real_type, 0.0))
        chunks = -(-written // _CHUNK_COEFFICIENTS)
        constants = [constant(component, self.real_type) for component in components]
        parameters, work = (size, written, chunks, n, inner), 8 * min(written, _CHUNK_COEFFICIENTS) * inner
        self._append_kernel(b.kernel, [source, target, *constants], outer * chunks, work, parameters)

    def _append_kernel(
        self, kernel: Kernel, arguments: list[Storage], extent: int, work: int, parameters: tuple[int, ...]
    ) -> None:
        chunks = parallel_grain(extent, work)
        self.lowered.append(LoweredKernel(kernel, arguments, extent, chunks, [self.x], parameters, is_builtin=True))

    def _conjugate_symmetric(
        self, b: packed.ParametricBuilder, k: Index, element: Callable[[Index], Complex]
    ) -> Complex:
        """A coefficient of a real signal of odd length: those behind the middle are conjugates."""
        n = b.parameter["n"]
        re, im = element(b.min(k, b.sub(n, k)))
        is_mirrored = b.compare("GT", k, b.floordiv(n, 2))
        is_first = b.compare("EQ", k, 0)
        im = b.select(is_mirrored, b.compute("negate", self.real_type, im), im)
        return re, b.select(is_first, _literal(self.real_type, 0.0), im)

    def _bluestein(self, source: Storage, target: Storage, outer: int, n: int, inner: int) -> None:
        """A length with a large prime factor, as a convolution of a length without one."""
        padded_length, backward = _bluestein_length(n, elements_per_row(self.real_type) ** 2), self.backward
        if padded_length and inner == 1 and source is not target and _uses_row_pairs(padded_length, self.real_type):
            self._transform_row_pairs(source, target, outer, n, ("padded", "lanes", "padded"), padded_length)
            return
        padded_length = _bluestein_length(n)
        assert padded_length is not None
        first, second = (Temporary(Shape(self.complex_type, (outer, padded_length, inner))) for _ in range(2))
        chirp, spectrum = self._chirp_tables(n, padded_length)
        self._emit_rows(source, first, (outer, n, padded_length, inner), n, chirp)
        self.backward = False
        self._transform(first, second, outer, padded_length, inner)
        self._emit_rows(second, first, (outer, padded_length, padded_length, inner), padded_length, spectrum)
        self.backward = True
        self._transform(first, second, outer, padded_length, inner)
        self.backward = backward
        self._emit_rows(second, target, (outer, padded_length, n, inner), n, chirp / (n if backward else 1))

    def _chirp_tables(self, n: int, padded_length: int) -> tuple[Array, Array]:
        """The tables for this direction: the inverse has the conjugate chirp, and its transform."""
        chirp, spectrum = _chirp_tables(n, padded_length)
        return (chirp.conj(), np.roll(spectrum[::-1], 1).conj()) if self.backward else (chirp, spectrum)

    def _emit_real_split(self, source: Storage, target: Storage, outer: int, half: int) -> None:
        """From the transform of even elements + i odd elements to the transform of all, or back."""
        b = packed.ParametricBuilder("real_split", "half chunks")
        n, real_type = b.parameter, self.real_type
        operand, result = b.argument(self.complex_type.name), b.argument(self.complex_type.name, True)
        roots = [b.argument(real_type) for _ in range(4)]
        after = b.add(n["half"], 1)
        rows, written = (after, n["half"]) if self.backward else (n["half"], after)
        minus, plus = ("subtract", "add") if self.backward else ("add", "subtract")
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            row, chunk = b.delinearize(index, n["chunks"])
            begin, end = b.mul(row, rows), b.mul(row, written)
            start, stop = b.tile_range(chunk, _CHUNK_COEFFICIENTS, n["half"])

            def results(op: str, x: Operand, y: Operand) -> Operand:
                return b.compute(op, real_type, x, y)

            def element(k: Index) -> Complex:
                value = b.load(operand, b.add(begin, k))
                re, im = (
                    results("multiply", b.compute(op, real_type, value), _literal(real_type, 0.5))
                    for op in ("real", "imag")
                )
                return re, im

            def store_coefficient(k: Index, re: Operand, im: Operand) -> None:
                b.store(result, b.add(end, k), b.compute("complex", result.type, re, im))

            # The imaginary parts of the first and the last coefficient are ignored.
            first = b.sub(1, b.min(chunk, 1))
            with b.loop(0, first, sequential=True):
                re, im = element(0)
                if self.backward:
                    last = element(n["half"])[0]
                    store_coefficient(0, results("add", re, last), results("subtract", re, last))
                else:
                    zero = _literal(real_type, 0.0)
                    for k, op in ((0, "add"), (n["half"], "subtract")):
                        both = results(op, re, im)
                        store_coefficient(k, results("add", both, both), zero)
            root = b.load(roots[0], chunk), b.load(roots[1], chunk)
            with b.loop(b.add(start, first), stop) as (k, _):
                j = b.sub(k, start)
                (re, im), (mirror_re, mirror_im) = element(k), element(b.sub(n["half"], k))
                odd = results("subtract", re, mirror_re), results("add", im, mirror_im)
                odd = _complex_multiply(b, odd, _complex_multiply(b, root, (b.load(roots[2], j), b.load(roots[3], j))))
                re = results(minus, results("add", re, mirror_re), odd[1])
                store_coefficient(k, re, results(plus, results("subtract", im, mirror_im), odd[0]))
        chunks = -(-half // _CHUNK_COEFFICIENTS)
        angles = (np.arange(chunks) * _CHUNK_COEFFICIENTS, np.arange(_CHUNK_COEFFICIENTS))
        tables = [np.exp((1j if self.backward else -1j) * np.pi * angle / half) for angle in angles]
        constants = [constant(side, real_type) for table in tables for side in (np.real(table), np.imag(table))]
        self._append_kernel(
            b.kernel, [source, target, *constants], outer * chunks, 16 * min(half, _CHUNK_COEFFICIENTS), (half, chunks)
        )


# Coefficients of a real signal that share a root of unity, times a table of small powers.
_CHUNK_COEFFICIENTS = BLOCK_ELEMENTS // 4


def _complex_multiply(b: packed.ParametricBuilder, x: Complex, y: Complex) -> Complex:
    """The product of two complex numbers."""
    type = x[0].type

    def multiply(u: Operand, v: Operand) -> Operand:
        return b.compute("multiply", type, u, v)

    re = b.compute("subtract", type, multiply(x[0], y[0]), multiply(x[1], y[1]))
    return re, b.compute("add", type, multiply(x[0], y[1]), multiply(x[1], y[0]))


def _literal(real_type: str, value: float) -> Literal:
    return Literal(real_type, float(element_type(real_type).dtype.type(value)))


def _type(x: Storage) -> str:
    return (x.shape if isinstance(x, Temporary) else x.array_shape).element_type.name
