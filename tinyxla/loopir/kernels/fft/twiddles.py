"""What the kernels of Fourier transforms are given besides the signals: what each pass does, roots of unity, and for
short real signals sums before or after the passes."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tinyxla.hlo import Instruction, Literal
from tinyxla.loopir.kernels.fft import codelets as routines
from tinyxla.loopir.lower.emit import Storage
from tinyxla.ops import movement
from tinyxla.shapes import Shape, element_type

_LARGEST = 300  # the time for a number grows with the prime, in which its sum is
_FEW = 13  # terms, for which factors are not shared

Array = np.ndarray[Any, Any]


@functools.cache
def radices_of(n: int) -> tuple[int, ...] | None:
    """Of the passes, in order."""
    power = (n & -n).bit_length() - 1
    n >>= power
    found = [*_of_power(power)]
    for radix in (5, *range(3, _LARGEST + 1, 2)):
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return tuple(found) if n == 1 else None


def _of_power(power: int) -> list[int]:
    """Radices of a power of two: as few as there can be, eights and fours but for two itself."""
    fours = -power % 3
    return [2] if power == 1 else [4] * fours + [8] * ((power - 2 * fours) // 3)


def constant(values: Array, part: str) -> Instruction:
    kind = element_type(part)
    attributes = movement.Constant(Literal(values.astype(kind.dtype)))
    return Instruction(movement.constant, (), attributes, Shape(kind, values.shape))


@functools.lru_cache(64)
def plan_of(
    n: int, radices: tuple[int, ...], width: int, part: str, *sides: int, run: int = 1
) -> tuple[Instruction, Instruction]:
    """What the passes do, from one of two sides to the other and back, and their roots of unity: those of the first
    pass for runs of elements, of which the last one may begin in the one before."""
    passes: list[tuple[int, ...]] = []
    roots: list[Array] = []
    length, stride, place = n, width, 0
    for radix in radices:
        rest = length // radix
        passes.append((radix, rest, stride, place, *sides))
        sides = sides[2:] + sides[:2]
        here = _roots(np.arange(rest)[:, None] * np.arange(1, radix) / length)
        if not passes[1:] and run > 1:
            starts = np.minimum(np.arange(0, rest, run), rest - run)
            here = here[starts[:, None] + np.arange(run)].swapaxes(1, 2)
        roots.append(here.ravel())
        if radix > routines.WRITTEN_OUT:
            turns = routines.sums_of(radix)[:, None] * np.arange(1, radix // 2 + 1)[:, None] % radix / radix
            roots[-1] = np.concatenate([roots[-1], (_roots(turns) * [1, -1]).ravel()])
        place, length, stride = place + roots[-1].size, rest, stride * radix
    flat = np.concatenate(roots) if roots else np.zeros(1)
    return constant(np.array(passes or [()], np.int64), "s64"), constant(flat, part)


def _roots(turns: Array) -> Array:
    """Roots of unity, as pairs in a new last dimension; the turns are those of the way there."""
    return np.stack([np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)], -1)


@functools.lru_cache(64)
def turns_of(whole: int, n: int, columns: int, width: int, apart: bool, part: str, backward: bool) -> list[Instruction]:
    """The roots for each row of each block of columns, and for the elements of a row; or for each row of each column,
    where these are `apart`."""
    step = 1 if apart else width
    rows = _roots(np.arange(columns)[:, None] * step * np.arange(n) % whole / whole)
    cells = _roots(np.arange(n)[:, None] * np.arange(width) * (not apart) % whole / whole)
    sign = np.array([1, -1]) if backward else 1
    return [constant((rows * sign).ravel(), part), constant(np.moveaxis(cells * sign, -1, 0).ravel(), part)]


# --- short real signals -----------------------------------------------------------------------------------------------


class Sums(NamedTuple):
    """Sums of rows of real lanes, several times: which rows, which sums, and the factors [time, sum, row]. A row is
    2 k for the real parts of the element k, and 2 k + 1 for the imaginary ones."""

    rows: Array
    found: Array
    factors: Array


class Real(NamedTuple):
    """A transform of real signals, as complex ones of n elements, of which there are `columns` side by side."""

    n: int
    columns: int
    read: int
    written: int
    is_odd: bool
    before: tuple[Sums, ...]
    after: tuple[Sums, ...]


@functools.lru_cache(64)
def in_lanes(n: int, backward: bool) -> Real:
    """Of even length, as transforms of even elements + i odd elements; of odd length, the transforms x[r k + t] of each
    t below r / 2, since the others are their conjugates, for a factor r of n."""
    half = n // 2
    ends = (half + 1, n) if backward else (n, half + 1)
    if n % 2 == 0:
        ends, sums = (half + 1, half) if backward else (half, half + 1), (_of_halves(half, backward),)
        return Real(half, 1, *ends, False, sums if backward else (), () if backward else sums)
    radices = radices_of(n) or (1,)
    radix = max([r for r in radices if r <= _FEW] or radices)
    if _FEW < radix == n:
        return Real(1, half + 1, *ends, True, (), _of_prime(n, backward))
    length, columns = n // radix, radix // 2 + 1
    j = np.arange(length)[:, None] + np.arange(radix) * length
    t = np.arange(columns)
    roots = np.exp(-2j * np.pi * (j[:, :, None] * t % n) / n)  # [element of a column, term, column]
    parts = np.stack([np.real(roots), np.imag(roots)], -1).reshape(length, radix, 2 * columns)
    columned = 2 * (np.arange(length)[:, None] * columns) + np.arange(2 * columns)
    if backward:
        parts = parts * np.where(np.arange(2 * columns) < 2, 1, 2) / n
        sums = Sums(np.delete(columned, 1, 1), 2 * j, np.delete(parts, 1, 2))
    else:
        sums = Sums(2 * j, columned, parts.swapaxes(1, 2))
    if length == 1:
        return Real(1, columns, *ends, True, (), (sums,))
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
    chosen = Sums(2 * rows[:, None] + pairs, 2 * np.arange(k.size)[:, None] + pairs, factors)
    if backward:  # the first coefficient is real, whatever it holds
        chosen.rows[0, 1], chosen.factors[0, 1] = 0, 0
    return Real(length, columns, *ends, True, *(((chosen,), (sums,)) if backward else ((sums,), (chosen,))))


def _of_prime(n: int, backward: bool) -> tuple[Sums, ...]:
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
        return Sums(ends, parts, folded), Sums(rows, rows, factors)
    factors = factors * np.where(k == 0, 1, 2) / n
    found, rows = rows, rows.copy()
    rows[1, 0] = 0  # the first coefficient is real, whatever it holds
    folded[0] = [[1, 0], [1, 0]]
    return Sums(rows, found, factors), Sums(parts, ends, folded)


def _of_halves(half: int, backward: bool) -> Sums:
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
        return Sums(inner, outer, factors)
    outer[0, 1::2] -= 1  # the first and the last are real, whatever they hold
    factors[0, :, 1::2] = 0
    return Sums(outer, inner, factors)


def tables_of_sums(sums: Sums, given: list[int], taken: list[int], width: int, part: str) -> list[Storage]:
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
    return [constant(np.concatenate([head, places.ravel()]), "s64"), constant(factors.ravel(), part)]
