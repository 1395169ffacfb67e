"""Twiddle factors and tables of the Fourier transform kernels: the plan of the passes, roots of unity, and the sums of
short real transforms."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tinyxla.compiler.costs import INTERLEAVED, MAX_UNROLLED
from tinyxla.hlo import Instruction, Literal
from tinyxla.loopir.kernels.fft import codelets as codelets
from tinyxla.loopir.lower.emit import Storage
from tinyxla.ops import movement
from tinyxla.shapes import Shape, element_type

_MAX_RADIX = 300  # largest prime radix: the time per element grows with the radix
_MAX_SPLIT_RADIX = 13  # largest odd radix that splits a short real transform: its sums share no factors

Array = np.ndarray[Any, Any]


@functools.cache
def radices_of(n: int) -> tuple[int, ...] | None:
    """The radices of the passes, in order; None if a prime factor is too large."""
    power = (n & -n).bit_length() - 1
    n >>= power
    radices = [*_radices_of_power_of_two(power)]
    for radix in (5, *range(3, _MAX_RADIX + 1, 2)):
        while n % radix == 0:
            radices.append(radix)
            n //= radix
    return tuple(radices) if n == 1 else None


def _radices_of_power_of_two(power: int) -> list[int]:
    """Radices of a power of two: as few passes as possible, of radix 8 and 4, or one of radix 2."""
    fours = -power % 3
    return [2] if power == 1 else [4] * fours + [8] * ((power - 2 * fours) // 3)


def constant(values: Array, real_type: str) -> Instruction:
    """A constant of the element type."""
    type = element_type(real_type)
    attributes = movement.Constant(Literal(values.astype(type.dtype)))
    return Instruction(movement.constant, (), attributes, Shape(type, values.shape))


@functools.lru_cache(64)
def pass_plan(
    n: int, radices: tuple[int, ...], width: int, real_type: str, *sides: int, run: int = 1
) -> tuple[Instruction, Instruction]:
    """The arguments of each pass, from one side (`sides`) of the lanes to the other and back, and the twiddle factors.

    For pairs of rows the first pass reads runs of `run` elements, of which the last one may overlap the one before.
    """
    passes: list[tuple[int, ...]] = []
    roots: list[Array] = []
    length, stride, offset = n, width, 0
    for radix in radices:
        remaining = length // radix
        passes.append((radix, remaining, stride, offset, *sides))
        sides = sides[2:] + sides[:2]
        twiddles = _roots(np.arange(remaining)[:, None] * np.arange(1, radix) / length)
        if not passes[1:] and run > 1:
            starts = np.minimum(np.arange(0, remaining, run), remaining - run)
            twiddles = twiddles[starts[:, None] + np.arange(run)].swapaxes(1, 2)
        roots.append(twiddles.ravel())
        if radix > MAX_UNROLLED:
            angles = codelets.sum_order(radix)[:, None] * np.arange(1, radix // 2 + 1)[:, None] % radix / radix
            roots[-1] = np.concatenate([roots[-1], (_roots(angles) * [1, -1]).ravel()])
        offset, length, stride = offset + roots[-1].size, remaining, stride * radix
    flat = np.concatenate(roots) if roots else np.zeros(1)
    return constant(np.array(passes or [()], np.int64), "s64"), constant(flat, real_type)


def _roots(angles: Array) -> Array:
    """Roots of unity exp(-2 pi i angle), as pairs in a new last dimension; angles are fractions of a full circle."""
    return np.stack([np.cos(2 * np.pi * angles), -np.sin(2 * np.pi * angles)], -1)


@functools.lru_cache(64)
def four_step_twiddles(
    signal_length: int, n: int, columns: int, width: int, by_column: bool, real_type: str, backward: bool
) -> list[Instruction]:
    """Twiddle factors between the column and row transforms of a long signal: one for each row of a block of columns
    and one for each element of a row, or with `by_column` one for each element of each column."""
    step = 1 if by_column else width
    rows = _roots(np.arange(columns)[:, None] * step * np.arange(n) % signal_length / signal_length)
    column_twiddles = _roots(np.arange(n)[:, None] * np.arange(width) * (not by_column) % signal_length / signal_length)
    sign = np.array([1, -1]) if backward else 1
    return [
        constant((rows * sign).ravel(), real_type),
        constant(np.moveaxis(column_twiddles * sign, -1, 0).ravel(), real_type),
    ]


# --- short real signals -----------------------------------------------------------------------------------------------


class RowSums(NamedTuple):
    """Weighted sums of rows of real lanes, several groups of them: the rows, the rows of the sums, and the factors
    [group, sum, row]. Row 2 k holds the real parts of element k, and row 2 k + 1 the imaginary parts."""

    rows: Array
    outputs: Array
    factors: Array


class RealTransform(NamedTuple):
    """A transform of real signals by `columns` interleaved complex ones of n elements, with sums before or after."""

    n: int
    columns: int
    read: int
    written: int
    is_odd: bool
    before: tuple[RowSums, ...]
    after: tuple[RowSums, ...]


@functools.lru_cache(64)
def short_real_transform(n: int, backward: bool) -> RealTransform:
    """The real transform of even length n by a complex one of half the length; of odd length by the transforms of x[r k
    + t] for t < r / 2 and a factor r of n, since the others are their conjugates."""
    half = n // 2
    lengths = (half + 1, n) if backward else (n, half + 1)
    if n % 2 == 0:
        lengths, sums = (half + 1, half) if backward else (half, half + 1), (_half_length_sums(half, backward),)
        return RealTransform(half, 1, *lengths, False, sums if backward else (), () if backward else sums)
    radices = radices_of(n) or (1,)
    radix = max([r for r in radices if r <= _MAX_SPLIT_RADIX] or radices)
    if _MAX_SPLIT_RADIX < radix == n:
        return RealTransform(1, half + 1, *lengths, True, (), _prime_sums(n, backward))
    length, columns = n // radix, radix // 2 + 1
    j = np.arange(length)[:, None] + np.arange(radix) * length
    t = np.arange(columns)
    roots = np.exp(-2j * np.pi * (j[:, :, None] * t % n) / n)  # [element of a column, term, column]
    parts = np.stack([np.real(roots), np.imag(roots)], -1).reshape(length, radix, 2 * columns)
    column_rows = 2 * (np.arange(length)[:, None] * columns) + np.arange(2 * columns)
    if backward:
        parts = parts * np.where(np.arange(2 * columns) < 2, 1, 2) / n
        sums = RowSums(np.delete(column_rows, 1, 1), 2 * j, np.delete(parts, 1, 2))
    else:
        sums = RowSums(2 * j, column_rows, parts.swapaxes(1, 2))
    if length == 1:
        return RealTransform(1, columns, *lengths, True, (), (sums,))
    # Coefficient r k + t is row k of column t, or the conjugate of another one.
    if backward:
        k = (np.arange(length)[:, None] * radix + t).ravel()
        is_mirrored, rows = k > half, np.minimum(k, n - k)
    else:
        k = np.arange(half + 1)
        is_mirrored = k % radix >= columns
        rows = np.where(is_mirrored, n - k, k)
        rows = rows // radix * columns + rows % radix
    pairs = np.array([0, 1])
    factors = np.eye(2) * np.where(is_mirrored[:, None] & (pairs == 1), -1, 1)[:, None, :]
    selected = RowSums(2 * rows[:, None] + pairs, 2 * np.arange(k.size)[:, None] + pairs, factors)
    if backward:  # the imaginary part of the first coefficient is ignored
        selected.rows[0, 1], selected.factors[0, 1] = 0, 0
    return RealTransform(
        length, columns, *lengths, True, *(((selected,), (sums,)) if backward else ((sums,), (selected,)))
    )


def _prime_sums(n: int, backward: bool) -> tuple[RowSums, ...]:
    """Real transforms of prime length: sums of mirror images times cosines, and differences times sines."""
    count = n // 2 + 1
    k = np.arange(count)
    pairs = np.array([0, 1])
    mirrored = np.tile(np.array([[1, 1], [1, -1]]), (count, 1, 1))
    mirrored[0] = [[1, 0], [0, 0]]
    mirror_rows, part_rows = 2 * np.stack([k, (n - k) % n], 1), 2 * k[:, None] + pairs
    angles = 2 * np.pi * (k[:, None] * k % n) / n
    factors = np.stack([np.cos(angles), -np.sin(angles)])
    rows = 2 * k + pairs[:, None]
    if not backward:
        return RowSums(mirror_rows, part_rows, mirrored), RowSums(rows, rows, factors)
    factors = factors * np.where(k == 0, 1, 2) / n
    outputs, rows = rows, rows.copy()
    rows[1, 0] = 0  # the imaginary part of the first coefficient is ignored
    mirrored[0] = [[1, 0], [1, 0]]
    return RowSums(rows, outputs, factors), RowSums(part_rows, mirror_rows, mirrored)


def _half_length_sums(half: int, backward: bool) -> RowSums:
    """Coefficients of a real signal of 2 `half` elements from those of even elements + i odd elements, or back, two and
    their mirror images at a time."""
    k = np.arange(half // 2 + 1)[:, None]
    k = np.concatenate([k, half - k], 1)  # [group, 2]
    # Unit vectors of the parts of coefficient k and of its mirror image.
    x, y = np.array([1, 1j, 0, 0]), np.array([0, 0, 1, 1j])
    x, y = np.stack([x, y]), np.stack([y, x]).conj()
    twiddle = (1j if backward else -1j) * np.exp((1j if backward else -1j) * np.pi * k / half)
    outputs = (x + y) / 2 + twiddle[:, :, None] * (x - y) / 2
    factors = np.stack([np.real(outputs), np.imag(outputs)], 2).reshape(len(k), 4, 4)
    pairs = np.array([0, 1])
    inner, outer = ((2 * offsets[:, :, None] + pairs).reshape(len(k), 4) for offsets in (k % half, k))
    if not backward:
        return RowSums(inner, outer, factors)
    outer[0, 1::2] -= 1  # the imaginary parts of the first and last coefficients are ignored
    factors[0, :, 1::2] = 0
    return RowSums(outer, inner, factors)


def sum_tables(
    sums: RowSums, source_sides: list[int], target_sides: list[int], width: int, real_type: str
) -> list[Storage]:
    """The tables for `combine_rows`: full groups of sums, the last of which repeats its last sum."""
    repeats, rows = sums.rows.shape
    groups = -(-sums.outputs.shape[1] // INTERLEAVED)
    padding = ((0, 0), (0, groups * INTERLEAVED - sums.outputs.shape[1]))
    outputs, factors = np.pad(sums.outputs, padding, "edge"), np.pad(sums.factors, (*padding, (0, 0)), "edge")

    def offset(row: Array, sides: list[int]) -> Array:
        return np.array(sides)[row % 2] + row // 2 * width

    offsets = np.concatenate([offset(sums.rows, source_sides), offset(outputs, target_sides)], 1)
    factors = factors.reshape(repeats, groups, INTERLEAVED, rows).swapaxes(2, 3)
    head = np.array([repeats, rows, groups, width])
    return [constant(np.concatenate([head, offsets.ravel()]), "s64"), constant(factors.ravel(), real_type)]
