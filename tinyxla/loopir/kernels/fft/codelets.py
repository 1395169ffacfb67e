"""FFT codelets: Stockham passes, transposing copies and weighted sums as routines, each for any sizes.

Signals are interleaved in lanes: arrays [element, lane] of real and of imaginary parts, whose rows are full vectors.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, section 1.7 (Stockham's passes, each of
which reads one array and writes another, in order); M. Frigo and S. Johnson, The design and implementation of FFTW3,
Proceedings of the IEEE 93 (2005) (codelets).
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from tinyxla.compiler.costs import INTERLEAVED, MAX_UNROLLED
from tinyxla.loopir.ir.loop_ir import Buffer, Index, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.fft.complex_vectors import (
    Address,
    Arrays,
    Complex,
    ComplexBuilder,
    butterfly,
    elements_per_row,
)

PASS_ARGUMENTS = ("radix", "sublength", "stride", "roots", "re", "im", "to_re", "to_im")  # arguments of a pass
COMBINE_ARGUMENTS = ("repeats", "rows", "groups", "width")  # arguments of `combine_rows`
LANE_ARGUMENTS = ("rows", "step", "count", "width")  # arguments of the first and the last pass of lanes
LINE_ARGUMENTS = ("words", "line_pitch", "count", "pitch")  # arguments of the transposing copies
ROW_PAIR_ARGUMENTS = ("line_pitch", "count", "width")  # arguments of the first and the last pass of row pairs
RowForm = Literal["full", "half", "padded", "lanes"]  # contents of row pairs


# --- transposing copies -----------------------------------------------------------------------------------------------


@functools.cache
def load_transposed(real_type: str) -> str:
    """Declare `load(even, odd, from, arguments)` and return its name: transpose lines of words, `line_pitch` apart, to
    lanes.

    Words of even number go to one array and the others to another, in rows `pitch` apart; up to a vector of further
    words is written.
    """
    b = ComplexBuilder("fourier_in", real_type, LINE_ARGUMENTS)
    arrays, source = (b.argument(real_type, True), b.argument(real_type, True)), b.argument(real_type)
    half = b.lanes // 2
    with _line_squares(b, source, arrays) as square:
        x = [b.load(line, square.word, b.lanes, mask=square.mask) for line in square.lines]
        for (sides, offset), value in zip(square.rows, b.transpose_pairs(x), strict=True):
            split = b.shuffle([*range(0, b.lanes, 2), *range(1, b.lanes, 2)], value)
            for side, start in zip(sides, (0, half), strict=True):
                b.store(side, offset, b.shuffle(range(start, start + half), split))
    return declare_kernel(f"fourier_in_{real_type}", b.kernel)


@functools.cache
def store_transposed(real_type: str) -> str:
    """Declare `store(even, odd, to, scale, arguments)` and return its name: `load_transposed` back, scaled."""
    b = ComplexBuilder("fourier_out", real_type, LINE_ARGUMENTS)
    arrays, target = (b.argument(real_type), b.argument(real_type)), b.argument(real_type, True)
    scale, half = b.argument(real_type), b.lanes // 2
    with _line_squares(b, target, arrays) as square:
        factor = b.broadcast(b.load(scale, 0), b.lanes)
        x: list[Value] = []
        for sides, offset in square.rows:
            even, odd = (b.load(side, offset, half) for side in sides)
            pairs = b.shuffle([k // 2 + half * (k % 2) for k in range(b.lanes)], even, odd)
            x.append(b.real("multiply", pairs, factor))
        # In reverse: lines past the last one repeat it and are overwritten.
        for line, value in reversed([*zip(square.lines, b.transpose_pairs(x), strict=True)]):
            b.store(line, square.word, value, mask=square.mask)
    return declare_kernel(f"fourier_out_{real_type}", b.kernel)


class _LineSquare(NamedTuple):
    """A square of pairs of words: the lines, the number of the first word and the mask of valid ones, and the rows."""

    lines: list[Buffer]
    word: Index
    mask: Value
    rows: list[Address]


@contextmanager
def _line_squares(b: ComplexBuilder, array: Buffer, arrays: Arrays) -> Generator[_LineSquare]:
    """Loops over groups of lines and over vectors of words. Lines past the last one repeat it."""
    words, line_pitch, count, pitch = (b.parameter[name] for name in LINE_ARGUMENTS)
    size, last = b.lanes // 2, b.sub(count, 1)
    with b.steps(count, size) as group:
        lines = [b.view(array, b.mul(b.min(b.add(group, k), last), line_pitch)) for k in range(size)]
        with b.steps(words, b.lanes) as word:
            mask = b.lane_mask(word, words, b.lanes)
            start = b.add(b.mul(b.floordiv(word, 2), pitch), group)
            bases = b.views(arrays, start)
            yield _LineSquare(lines, word, mask, [Address(bases, b.mul(pitch, k)) for k in range(size)])


@functools.cache
def combine_rows(real_type: str) -> str:
    """Declare `combine(lanes, offsets, factors)` and return its name: weighted sums of rows of lanes.

    The offsets begin with the number of repetitions, rows, groups of sums and lanes; then follow the offsets of the
    rows and of the sums for each repetition. A sum has a factor for each row; the factors of a group's sums are
    interleaved.
    """
    b = ComplexBuilder("fourier_combine", real_type)
    lanes, offsets, factors = b.argument(real_type, True), b.argument("s64"), b.argument(real_type)
    repeats, rows, groups, width = (b.load(offsets, k) for k in range(len(COMBINE_ARGUMENTS)))
    group_size = b.mul(rows, INTERLEAVED)
    repeat_words, repeat_size = b.add(rows, b.mul(groups, INTERLEAVED)), b.mul(groups, group_size)
    with b.steps(repeats) as p:
        row_offsets = b.view(offsets, b.add(b.mul(p, repeat_words), len(COMBINE_ARGUMENTS)))
        repeat_factors = b.view(factors, b.mul(p, repeat_size))
        with b.steps(groups) as g:
            sum_offsets = b.view(row_offsets, b.add(rows, b.mul(g, INTERLEAVED)))
            group_factors = b.view(repeat_factors, b.mul(g, group_size))
            with b.steps(width, b.lanes) as q:
                zeros = [b.broadcast(b.constant(0.0), b.lanes)] * INTERLEAVED
                with b.loop(0, rows, zeros, sequential=True, nonempty=True) as (i, loop):
                    x = b.load(lanes, b.add(b.load(row_offsets, i), q), b.lanes)
                    for j, total in enumerate(loop.carried):
                        factor = b.load(group_factors, b.add(b.mul(i, INTERLEAVED), j))
                        total.next = b.multiply_add(x, b.broadcast(factor, b.lanes), total.arg)
                for j, total in enumerate(loop.carried):
                    b.store(lanes, b.add(b.load(sum_offsets, j), q), total.result)
    return declare_kernel(f"fourier_combine_{real_type}", b.kernel)


# --- passes -----------------------------------------------------------------------------------------------------------


class _Pass(NamedTuple):
    """The arguments of a pass: its radix, the number of butterflies of a lane, the lanes of all signals, the offset of
    its twiddle factors, and the arrays that it reads and writes."""

    radix: Value
    sublength: Value
    stride: Value
    roots: Value
    source: Arrays
    target: Arrays


def _pass_arguments(b: ComplexBuilder, lanes: Buffer, plan: Buffer) -> _Pass:
    radix, sublength, stride, roots, *sides = (b.load(plan, k) for k in range(len(PASS_ARGUMENTS)))
    re, im, to_re, to_im = (b.view(lanes, side) for side in sides)
    return _Pass(radix, sublength, stride, roots, (re, im), (to_re, to_im))


@functools.cache
def stockham_pass(real_type: str, radix: int) -> str:
    """Declare `pass(lanes, roots, plan)` and return its name: one Stockham pass for transforms of any length."""
    if radix > MAX_UNROLLED:
        return _large_prime_pass(real_type)
    b = ComplexBuilder("fourier_pass", real_type)
    lanes, all_roots, plan = b.argument(real_type, True), b.argument(real_type), b.argument("s64")
    stage = _pass_arguments(b, lanes, plan)
    roots = b.view(all_roots, stage.roots)
    inputs = b.multiples(b.mul(stage.sublength, stage.stride), radix)
    outputs = b.multiples(stage.stride, radix)
    with b.steps(stage.sublength) as p:
        row = b.mul(p, stage.stride)
        twiddles, out_row = b.view(roots, b.mul(p, 2 * (radix - 1))), b.mul(row, radix)
        with b.steps(stage.stride, b.lanes) as q:
            x = [b.load_complex(*address) for address in b.strided(stage.source, b.add(row, q), inputs, radix)]
            y = butterfly(b, x)
            target = b.strided(stage.target, b.add(out_row, q), outputs, radix)
            _store_with_twiddles(b, y, target, twiddles, evens_first=True)
    return declare_kernel(f"fourier_pass_{real_type}_{radix}", b.kernel)


def _store_with_twiddles(
    b: ComplexBuilder,
    outputs: Sequence[Complex],
    target: Sequence[Address],
    twiddles: Buffer,
    evens_first: bool = False,
) -> None:
    """Store the outputs of a butterfly, all but the first one times twiddle factors. The order spills few registers:
    outputs t and radix - t of an odd radix are computed together; those of an even radix come in their order, or
    `evens_first`."""
    radix = len(outputs)

    def rank(t: int) -> int:
        return min(t, radix - t) if radix % 2 else t % 2 * evens_first

    for t in sorted(range(radix), key=rank):
        value = b.product(outputs[t], b.broadcast_complex(twiddles, 2 * (t - 1))) if t else outputs[t]
        b.store_complex(*target[t], value)


def sum_order(radix: int) -> np.ndarray[Any, Any]:
    """For a large prime radix, the outputs t in the order of their computation: each is the sum over pairs k of even
    parts times cos(2 pi k t / radix) and odd parts times the sine. The last group repeats the last sum."""
    half = radix // 2
    return np.minimum(np.arange(-(-half // INTERLEAVED) * INTERLEAVED) + 1, half).reshape(-1, INTERLEAVED)


@functools.cache
def _large_prime_pass(real_type: str) -> str:
    """A pass of any large prime radix: a group of sums at a time, whose factors follow the twiddle factors in
    memory."""
    b = ComplexBuilder("fourier_pass", real_type)
    lanes, all_roots, plan = b.argument(real_type, True), b.argument(real_type), b.argument("s64")
    stage = _pass_arguments(b, lanes, plan)
    roots, half = b.view(all_roots, stage.roots), b.floordiv(stage.radix, 2)
    root_words, factor_words = b.mul(b.sub(stage.radix, 1), 2), b.mul(half, 2 * INTERLEAVED)
    table, step = b.view(roots, b.mul(stage.sublength, root_words)), b.mul(stage.sublength, stage.stride)
    with b.steps(stage.sublength) as p:
        twiddles, row = b.view(roots, b.mul(p, root_words)), b.mul(p, stage.stride)
        out_row = b.mul(row, stage.radix)
        with b.steps(stage.stride, b.lanes) as q:
            source, target = b.views(stage.source, b.add(row, q)), b.views(stage.target, b.add(out_row, q))
            x = b.load_complex(source, 0)
            with b.steps(b.ceil_div(half, INTERLEAVED)) as g:
                factors = b.view(table, b.mul(g, factor_words))
                total, *sums = _large_prime_sums(b, source, step, stage.radix, x, factors)
                b.store_complex(target, 0, total)
                for i, (even, odd) in enumerate(zip(sums[:INTERLEAVED], sums[INTERLEAVED:], strict=True)):
                    t = b.min(b.add(b.mul(g, INTERLEAVED), i + 1), half)
                    for k, value in zip((t, b.sub(stage.radix, t)), b.rotated_sums(even, odd), strict=True):
                        root = b.broadcast_complex(twiddles, b.mul(b.sub(k, 1), 2))
                        b.store_complex(target, b.mul(k, stage.stride), b.product(value, root))
    return declare_kernel(f"fourier_pass_{real_type}", b.kernel)


def _large_prime_sums(
    b: ComplexBuilder, source: Arrays, step: Index, radix: Value, x: Complex, factors: Buffer
) -> list[Complex]:
    """The sum of all inputs, which are a step apart, and a group's sums of even and of odd parts; x is the first
    input."""
    zero = b.broadcast(b.constant(0.0), b.lanes)
    initial = [*x] * (1 + INTERLEAVED) + [zero, zero] * INTERLEAVED
    with b.loop(1, b.add(b.floordiv(radix, 2), 1), initial, sequential=True, nonempty=True) as (k, loop):
        first, second = (b.load_complex(source, b.mul(row, step)) for row in (k, b.sub(radix, k)))
        even, odd = b.sum(first, second), b.difference(first, second)
        offset = b.mul(b.sub(k, 1), 2 * INTERLEAVED)
        roots = [b.broadcast_complex(factors, b.add(offset, 2 * i)) for i in range(INTERLEAVED)]
        carried = [*zip(loop.carried[::2], loop.carried[1::2], strict=True)]
        total, *sums = [(re.arg, im.arg) for re, im in carried]
        terms = [(even, cosine) for cosine, _ in roots] + [(odd, sine) for _, sine in roots]
        updated = [b.add_scaled(y, part, factor) for y, (part, factor) in zip(sums, terms, strict=True)]
        for (re, im), value in zip(carried, [b.sum(total, even), *updated], strict=True):
            re.next, im.next = value
    return [(re.result, im.result) for re, im in carried]


# --- first and last passes that read or write columns -----------------------------------------------------------------


@functools.cache
def first_pass_of_lanes(real_type: str, radix: int, backward: bool) -> str:
    """Declare `first(from, lanes, roots, plan, arguments)` and return its name: a first pass that reads columns of
    complex numbers, `step` apart, as lanes, and zeros beyond `count`. The inverse exchanges real and imaginary parts. A
    pass of radix 1 is a copy."""
    b = ComplexBuilder("fourier_enter", real_type, LANE_ARGUMENTS)
    source, lanes, roots = b.argument(real_type), b.argument(real_type, True), b.argument(real_type)
    stage = _pass_arguments(b, lanes, b.argument("s64"))
    step, width = b.mul(b.parameter["step"], 2), b.parameter["width"]
    inputs, outputs = b.multiples(b.mul(stage.sublength, step), radix), b.multiples(width, radix)
    with b.steps(stage.sublength) as p:
        twiddles = b.view(roots, b.mul(p, 2 * (radix - 1)))
        row, out_row = b.mul(p, step), b.mul(p, width, radix)
        with _column_vectors(b) as (j, masks):
            columns = b.strided((source,), b.add(row, b.mul(j, 2)), inputs, radix)
            x = [_load_columns(b, address, masks, backward) for address in columns]
            target = b.strided(stage.target, b.add(out_row, j), outputs, radix)
            _store_with_twiddles(b, butterfly(b, x), target, twiddles)
    return declare_kernel(f"fourier_enter_{real_type}_{radix}_{backward}", b.kernel)


@functools.cache
def last_pass_of_lanes(real_type: str, radix: int, backward: bool, has_twiddles: bool) -> str:
    """Declare `last(to, lanes, scale, plan, arguments)` and return its name: a last pass that writes such columns; the
    inverse is scaled.

    With `has_twiddles`, `last(to, lanes, row twiddles, plan, element twiddles, arguments)` multiplies by two twiddle
    factors, one for each row and one for each element.
    """
    b = ComplexBuilder("fourier_leave", real_type, LANE_ARGUMENTS)
    target, lanes, factors = b.argument(real_type, True), b.argument(real_type), b.argument(real_type)
    stage = _pass_arguments(b, lanes, b.argument("s64"))
    rows, step, _, width = (b.parameter[name] for name in LANE_ARGUMENTS)
    size, step = b.floordiv(stage.stride, width), b.mul(step, 2)
    inputs, outputs = b.multiples(stage.stride, radix), b.multiples(b.mul(size, step), radix)
    elements: Arrays = ()
    if has_twiddles:
        table = b.argument(real_type)
        elements = table, b.view(table, b.mul(rows, width))
    with b.steps(size) as p:
        row, out_row = b.mul(p, width), b.mul(p, step)
        with _column_vectors(b) as (j, masks):
            start = b.add(row, j)
            x = butterfly(b, [b.load_complex(*address) for address in b.strided(stage.source, start, inputs, radix)])
            if backward:
                x = [(im, re) for re, im in x]
            if has_twiddles:
                for t, address in enumerate(b.strided(elements, start, inputs, radix)):
                    root = b.broadcast_complex(factors, b.mul(b.add(p, b.mul(size, t)), 2))
                    x[t] = b.product(b.product(x[t], root), b.load_complex(*address))
            elif backward:
                factor = b.broadcast(b.load(factors, 0), b.lanes)
                x = [b.scaled(value, factor) for value in x]
            columns = b.strided((target,), b.add(out_row, b.mul(j, 2)), outputs, radix)
            for value, address in zip(x, columns, strict=True):
                _store_columns(b, address, masks, value)
    return declare_kernel(f"fourier_leave_{real_type}_{radix}_{backward}_{has_twiddles}", b.kernel)


@contextmanager
def _column_vectors(b: ComplexBuilder) -> Generator[tuple[Index, list[Value]]]:
    """A loop over vectors of columns: the first column, and masks of the words of the two vectors that hold their
    elements in a row."""
    count = b.parameter["count"]
    words = b.mul(count, 2)
    with b.steps(count, b.lanes) as j:
        yield j, [b.lane_mask(b.add(b.mul(j, 2), k * b.lanes), words, b.lanes) for k in (0, 1)]


def _load_columns(b: ComplexBuilder, address: Address, masks: Sequence[Value], exchanged: bool) -> Complex:
    """A row's elements of some columns, maybe with real and imaginary parts exchanged."""
    (array,), offset = address
    near, far = (b.load(array, b.add(offset, k * b.lanes), b.lanes, mask=mask) for k, mask in enumerate(masks))
    re, im = (b.shuffle(range(side, 2 * b.lanes, 2), near, far) for side in (0, 1))
    return (im, re) if exchanged else (re, im)


def _store_columns(b: ComplexBuilder, address: Address, masks: Sequence[Value], x: Complex) -> None:
    (array,), offset = address
    for start, mask in zip((0, b.lanes), masks, strict=True):
        order = [word // 2 + b.lanes * (word % 2) for word in range(start, start + b.lanes)]
        b.store(array, b.add(offset, start), b.shuffle(order, *x), mask=mask)


# --- first and last passes that read or write pairs of rows -----------------------------------------------------------


class _RowPairs:
    """A codelet on pairs of rows of complex numbers, `array`. Lanes hold runs of elements of both rows."""

    def __init__(self, name: str, real_type: str, is_first: bool) -> None:
        self.b = b = ComplexBuilder(name, real_type, ROW_PAIR_ARGUMENTS)
        self.run = elements_per_row(real_type)
        self.array, lanes = b.argument(real_type, not is_first), b.argument(real_type, is_first)
        self.roots, plan, self.factors = b.argument(real_type), b.argument("s64"), b.argument(real_type)
        self.stage = _pass_arguments(b, lanes, plan)
        self.line_pitch, self.count, self.width = (b.parameter[x] for x in ROW_PAIR_ARGUMENTS)

    @contextmanager
    def runs(self, size: Index) -> Generator[tuple[Arrays, Index, Index]]:
        """Loops over pairs of rows and over runs of elements: the rows, the offset of their lanes, and the first
        element. An odd last row is paired with itself."""
        b = self.b
        last = b.sub(self.count, 1)
        with b.steps(self.count, 2) as first:
            rows = tuple(b.view(self.array, b.mul(self.line_pitch, k)) for k in (first, b.min(b.add(first, 1), last)))
            offset = b.mul(first, self.run)
            with b.steps(size, self.run) as element:
                yield rows, offset, element

    def size(self) -> Index:
        """Elements of a row over those of a run of the first pass."""
        return self.b.floordiv(self.stage.stride, self.width)

    def for_both_rows(self, array: Buffer, index: Index) -> Complex:
        """Complex numbers of an array, each for both of two rows."""
        both = self.b.load(array, index, self.b.lanes)
        return self.b.interleave(both, both)


@functools.cache
def first_pass_of_row_pairs(real_type: str, rows: RowForm, backward: bool) -> str:
    """Declare `first(from, lanes, roots, plan, factors, arguments)` and return its name: a first pass that reads rows
    of complex numbers, `line_pitch` words apart, two at a time as interleaved lanes.

    Vectors hold runs of elements; the outputs for a run are transposed, so that a run of the result is a vector. The
    last run may overlap the one before. The inverse exchanges real and imaginary parts.
    """
    pairs = _RowPairs("fourier_first", real_type, is_first=True)
    b, stage, radix = pairs.b, pairs.stage, pairs.run
    row_size = b.mul(stage.stride, radix)
    with pairs.runs(stage.sublength) as (lines, offset, p):
        start = b.min(p, b.sub(stage.sublength, radix))
        x = [_row_pair_input(pairs, rows, lines, offset, start, k) for k in range(radix)]
        values = butterfly(b, [(im, re) for re, im in x] if backward else x)
        twiddles = b.view(pairs.roots, b.mul(p, 2 * (radix - 1)))
        for t in range(1, radix):
            values[t] = b.product(values[t], pairs.for_both_rows(twiddles, (t - 1) * b.lanes))
        first_row = b.add(b.mul(start, row_size), offset)
        for array, components in zip(stage.target, zip(*values, strict=True), strict=True):
            for k, row in enumerate(b.transpose_pairs(components)):
                b.store(array, b.add(first_row, b.mul(row_size, k)), row)
    return declare_kernel(f"fourier_first_{real_type}_{rows}_{backward}", b.kernel)


def _row_pair_input(pairs: _RowPairs, rows: RowForm, lines: Arrays, offset: Index, start: Index, k: int) -> Complex:
    """Input k of a butterfly of the first pass, for a run.

    From the half spectrum of a real signal, which has one element padding, twice the transform of even elements + i odd
    elements is computed; the factors are twiddles for that. Padded rows and lanes are multiplied by a factor for each
    element.
    """
    b, stage = pairs.b, pairs.stage
    element = b.add(start, b.mul(stage.sublength, k))
    word = b.mul(element, 2)
    if rows == "full":
        return b.interleave(*b.load_complex(lines, word))
    factor = pairs.for_both_rows(pairs.factors, word)
    if rows == "lanes":
        return b.product(b.load_complex(stage.source, b.add(b.mul(element, pairs.width), offset)), factor)
    if rows == "padded":
        mask = b.lane_mask(word, pairs.line_pitch, b.lanes)
        return b.product(b.interleave(*b.load_complex(lines, word, mask)), factor)
    value = b.interleave(*b.load_complex(lines, word))
    mirror = b.sub(b.mul(stage.sublength, pairs.run), b.add(element, pairs.run - 1))
    mirrored = b.interleave(*b.load_complex(lines, b.mul(mirror, 2)), mirrored=True)
    if k == 0:  # the imaginary parts of the first and the last element are ignored
        is_end, zero = b.lane_mask(word, 2, b.lanes), b.constant(0.0)
        value, mirrored = ((re, b.select(is_end, zero, im)) for re, im in (value, mirrored))
    sums, odd = b.sums_with_conjugate(value, mirrored)
    return b.product(odd, factor, sums)


@functools.cache
def last_pass_of_row_pairs(real_type: str, radix: int, rows: RowForm, backward: bool) -> str:
    """Declare `last(to, lanes, roots, plan, factors, arguments)` and return its name: a last pass that writes such
    rows. Padded rows are multiplied by a factor for each element, others, in the inverse, by one factor."""
    pairs = _RowPairs("fourier_last", real_type, is_first=False)
    b, stage, size = pairs.b, pairs.stage, pairs.size()
    with pairs.runs(size) as (lines, offset, p):
        start = b.add(b.mul(p, pairs.width), offset)
        indices = [b.add(start, b.mul(stage.stride, k)) for k in range(radix)]
        values = butterfly(b, [b.load_complex(stage.source, index) for index in indices])
        factor = b.broadcast(b.load(pairs.factors, 0), b.lanes)
        for t, (re, im) in enumerate(values):
            word, mask = b.mul(b.add(p, b.mul(size, t)), 2), None
            value = (im, re) if backward else (re, im)
            if rows == "padded":
                value = b.product(value, pairs.for_both_rows(pairs.factors, word))
                mask = b.lane_mask(word, pairs.line_pitch, b.lanes)
            elif backward:
                value = b.scaled(value, factor)
            b.store_complex(lines, word, b.interleave(*value), mask)
    return declare_kernel(f"fourier_last_{real_type}_{radix}_{rows}_{backward}", b.kernel)


@functools.cache
def split_real_row_pairs(real_type: str) -> str:
    """Declare `split(to, lanes, roots, plan, factors, arguments)` and return its name: from transforms of even elements
    + i odd elements of real signals to their half spectra, which have one element padding.

    The values for k give the mirror image, too, which is the end of one run and the first element of the next (of the
    first run after the last one). Factors are the signal's twiddles times -i / 2. The plan's pass has radix 1.
    """
    pairs = _RowPairs("fourier_halves", real_type, is_first=False)
    b, stage, run, size = pairs.b, pairs.stage, pairs.run, pairs.size()
    half, negative = b.constant(0.5), b.constant(-0.5)
    with pairs.runs(b.add(b.floordiv(size, 2), 1)) as (lines, offset, p):
        mirror = b.sub(stage.stride, b.mul(p, pairs.width))
        next_run = b.select(b.compare("EQ", p, 0), 0, mirror)
        last_run = b.sub(mirror, b.mul(pairs.width, run))
        starts = (b.add(index, offset) for index in (b.mul(p, pairs.width), next_run, last_run))
        x, first, others = (b.load_complex(stage.source, start) for start in starts)
        order = [0, 1, *(b.lanes + 2 * (run - k) + side for k in range(1, run) for side in (0, 1))]
        re, im = (b.shuffle(order, *both) for both in zip(first, others, strict=True))
        sums, odd = b.sums_with_conjugate(x, (re, im))
        word = b.mul(p, 2)
        odd = b.product(odd, pairs.for_both_rows(pairs.factors, word))
        b.store_complex(lines, word, b.interleave(*b.add_scaled(odd, sums, half)))
        conjugate = b.multiply_add(sums[0], half, b.real("negate", odd[0])), b.multiply_add(sums[1], negative, odd[1])
        mirrored_word = b.mul(b.sub(size, b.add(p, run - 1)), 2)
        b.store_complex(lines, mirrored_word, b.interleave(*conjugate, mirrored=True))
    return declare_kernel(f"fourier_halves_{real_type}", b.kernel)
