"""Sorts of many short lines by plain orders: lines side by side, in as many lanes as a vector has, by a network.

All lines take the same steps, whatever is in them, each of which puts pairs of rows in order. A number is a key; where
more than the keys is taken it is a key and a place, of which no two are equal, and what was at the places is read again
in the end. Keys alone do not tell zeros, nor NaNs, from each other: where any is unlike the usual one, these are put
back in their order.

Source: K. E. Batcher, Sorting networks and their applications, 1968; D. E. Knuth, "The Art of Computer Programming",
volume 3, section 5.2.2, algorithm M (for a few rows) and section 5.3.4 (bitonic merges).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tinyxla.compiler.passes.canonicalize.sort import MAX_SHORT_ELEMENTS
from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Literal, Operand, operand_of
from tinyxla.loopir.kernels.gemm import packing
from tinyxla.loopir.kernels.sort import radix_sort
from tinyxla.loopir.lower.emit import LoweredKernel
from tinyxla.shapes import element_type

VECTOR = 512  # bits


def kernels(sort: radix_sort.Sort) -> list[LoweredKernel]:
    """Of a sort whose lines are sorted side by side."""
    return [_SideBySide(sort).kernel()] if sort.keep else []


class _SideBySide:
    """As many lines at once as a vector has numbers: keys alone, or with places if more than the keys is taken."""

    def __init__(self, sort: radix_sort.Sort) -> None:
        self.sort, self.keys = sort, sort.keys
        self.routine = radix_sort.Routine(sort, "network")
        self.low, self.b = self.routine.low, self.routine.builder
        self.alone = len(sort.sources) == 1
        self.nothing = [Literal(self.keys.type, 0)] if self.alone and self.keys.restores else []
        wide = ("u32", 16) if self.keys.bits <= 16 else ("u64", 32)
        self.kind, self.shift = (self.keys.type, 0) if self.alone else wide
        self.every = Literal(self.kind, (1 << element_type(self.kind).bits) - 1)
        self.lanes = VECTOR // element_type(self.kind).bits
        self.across = sort.inner >= self.lanes  # lines side by side are so in memory too
        self.rows = self.b.scratch(self.kind, MAX_SHORT_ELEMENTS * self.lanes)
        self.length, self.keep = self.routine.number(sort.length), self.routine.number(sort.keep)
        self.inner: Index = 1 if sort.inner == 1 else self.routine.number(sort.inner)
        self.is_turned = sort.inner == 1 and not self.across
        # Elements in rows: those of keys where they are numbers.
        self.elements = self.rows if self.alone else self.b.scratch(self.keys.type, MAX_SHORT_ELEMENTS * self.lanes)
        self.sizes = self.b.scratch(INDEX, len(packing.COPY))

    def kernel(self) -> LoweredKernel:
        low, b, sort, number = self.low, self.b, self.sort, self.routine.number
        network, numbers = _network(self.kind), b.scratch(INDEX, 2)
        most = sort.inner if self.across else sort.lines
        blocks, width = number(-(-most // self.lanes)), number(most)
        levels = number(max(0, (sort.length - 1).bit_length() - BASE))
        with low.loop(b.kernel.first, b.kernel.last) as (index, _):
            self.outer = b.floordiv(index, blocks) if self.across else 0
            block = b.sub(index, b.mul(self.outer, blocks))
            self.begin, self.count = b.tile_start_and_size(block, self.lanes, width)
            if self.is_turned:
                self._turn_lines()
            elif not self.across:
                self._nest(self.length, self._copy)
            unlike = self._by_rows(self.length, self._put, self.nothing)
            for k, value in enumerate((self.length, levels)):
                b.store(numbers, k, value)
            b.call(network, (self.rows, 0), (numbers, 0))
            if self.alone and not self.across:
                self._by_rows(self.keep, self._restore)
            if self.is_turned and self.alone:
                self._turn_rows()
            else:
                self._nest(self.keep, self._take)
            for found in unlike:
                some = b.compare("NE", found, Literal(found.type, 0))
                with low.loop(0, b.select(some, self.count), sequential=True) as (lane, _):
                    self._put_back(lane)
        steps = sort.length * (sort.length - 1).bit_length() ** 2
        return self.routine.finished(sort.lines // most * (-(-most // self.lanes)), self.lanes * steps // 8)

    # --- elements

    def _nest(self, stop: Index, body: Callable[[Index, Index], None]) -> None:
        """A loop over the elements of the lines, in the order in which they are in memory."""
        turn, bounds = 1 if self.across else -1, [(0, stop), (0, self.count)]

        def element(at: tuple[Index, ...], carried: Sequence[Operand]) -> list[Operand]:
            body(*at[::turn])
            return []

        one_by_one = not (self.across and self.alone)
        self.low.nest(bounds[::turn], [], element, one_by_one, not one_by_one)

    def _by_rows(
        self, stop: Index, body: Callable[[Index, Index], Sequence[Operand]], none: Sequence[Operand] = ()
    ) -> list[Operand]:
        """A loop over the elements in the order in which they are in the rows: the bits that it gives of any."""

        def element(at: tuple[Index, ...], carried: Sequence[Operand]) -> list[Operand]:
            return [self.b.or_(x, more) for x, more in zip(carried, body(*at), strict=True)]

        return self.low.nest([(0, stop), (0, self.count)], none, element, force_vectorize=True)

    def _row(self, i: Index, lane: Index) -> Index:
        return self.b.add(self.b.mul(i, self.lanes), lane)

    def _place(self, size: Index, i: Index, lane: Index) -> Index:
        """Of an element in an array whose lines have such a size."""
        b, line = self.b, self.b.add(self.begin, lane)
        if self.across or self.inner == 1:
            around, inside = (self.outer, line) if self.across else (line, 0)
        else:
            around, inside = b.floordiv(line, self.inner), b.remainder(line, self.inner)
        start = b.add(b.mul(around, b.mul(size, self.inner)), inside)
        return b.add(start, b.mul(i, self.inner))

    def _element(self, k: int, i: Index, lane: Index) -> Operand:
        return self.b.load(self.routine.buffer(self.sort.sources[k]), self._place(self.length, i, lane))

    def _copy(self, i: Index, lane: Index) -> None:
        self.b.store(self.elements, self._row(i, lane), self._element(0, i, lane))

    def _turn_lines(self) -> None:
        """Let the elements of the lines, each of which lies apart, be columns."""
        b, several = self.b, packing.tile_rows()
        source = self.routine.buffer(self.sort.sources[0])
        with self.low.loop(0, b.ceil_div(self.count, several)) as (block, _):
            lane, rows = b.tile_start_and_size(block, several, self.count)
            start = b.mul(b.add(self.begin, lane), self.length)
            self._turn((self.elements, lane), (source, start), (self.length, self.length, rows, self.lanes))

    def _turn_rows(self) -> None:
        """The other way round."""
        b, several, (result,) = self.b, packing.tile_rows(), self.sort.results
        assert result is not None, "nothing else is taken"
        to, start = self.routine.buffer(result, True), b.mul(self.begin, self.keep)
        with self.low.loop(0, b.ceil_div(self.keep, several)) as (block, _):
            row, rows = b.tile_start_and_size(block, several, self.keep)
            source = (self.elements, b.mul(row, self.lanes))
            self._turn((to, b.add(start, row)), source, (self.count, self.lanes, rows, self.keep))

    def _turn(self, to: tuple[Buffer, Index], source: tuple[Buffer, Index], sizes: Sequence[Index]) -> None:
        for k, size in enumerate((*sizes, sizes[0])):
            self.b.store(self.sizes, k, operand_of(size))
        self.b.call(packing.turn(self.keys.bits, is_exact=True), to, source, (self.sizes, 0))

    def _put(self, i: Index, lane: Index) -> list[Operand]:
        """Make a number of an element; gives what its key does not tell of it."""
        b, at = self.b, self._row(i, lane)
        x = self._element(0, i, lane) if self.across else b.load(self.elements, at)
        key = found = self.routine.key(x)
        if self.shift:
            above = b.shift_left(b.convert(self.kind, key), self.shift)
            found = b.or_(above, b.convert(self.kind, i))
        b.store(self.rows, at, found)
        return [b.compute("xor", key.type, x, self.routine.of(key))] if self.nothing else []

    def _restore(self, i: Index, lane: Index) -> list[Operand]:
        """Let elements take the place of their keys in the rows."""
        at = self._row(i, lane)
        self.b.store(self.rows, at, self.routine.of(self.b.load(self.rows, at)))
        return []

    def _take(self, i: Index, lane: Index) -> None:
        b, found = self.b, self.b.load(self.rows, self._row(i, lane))
        for k, result in enumerate(self.sort.results):
            if result is None:
                continue
            if self.alone:
                value = self.routine.of(found) if self.across else found
            else:
                place = b.convert(INDEX, b.and_(found, (1 << self.shift) - 1))
                value = self.routine.counted(k, place) if self.sort.counts_places(k) else self._element(k, place, lane)
            self.b.store(self.routine.buffer(result, True), self._place(self.keep, i, lane), value)

    def _put_back(self, lane: Index) -> None:
        result = self.sort.results[0]
        assert result is not None, "nothing else is taken"
        self.routine.put_back(
            (0, self.length),
            self.length,
            lambda i: self._ordered(i, lane),
            lambda i: self._element(0, i, lane),
            lambda i, value: self.b.store(self.routine.buffer(result, True), self._place(self.length, i, lane), value),
        )

    def _ordered(self, i: Index, lane: Index) -> Operand:
        """The key of an element in order."""
        found = self.b.load(self.rows, self._row(i, lane))
        return found if self.across else self.routine.key(found)


# --- exchanges --------------------------------------------------------------------------------------------------------

BASE = 3  # 2^3 rows are sorted in registers


@functools.cache
def _network(kind: str) -> str:
    """(rows, numbers): rows of vectors, to which as many follow as make a power of two of them, sorted along columns.

    Blocks are sorted, and merged by one step for each doubling: the first row of a half meets the last one of the other
    half, and so on; after that each half rises and falls, and is sorted by pairs half as far apart each time, two such
    steps in one and the last ones in registers. What is beyond comes last, and stays there.
    """
    bits, step = element_type(kind).bits, 1 << BASE
    t = _Text(f"<{VECTOR // bits} x i{bits}>", f"v{VECTOR // bits}i{bits}")
    length, levels = (t.value(f"load i64, ptr %{name}") for name in ("numbers", "levels"))

    def blocks(size: str, stop: str) -> str:
        return t.value(f"sdiv i64 {t.add(stop, t.add(size, '-1'))}, {size}")

    def strided(start: str, rest: str, stride: str, count: int) -> None:
        size = t.value(f"mul i64 {stride}, {count}")
        with t.loop("0", blocks(size, rest)) as block:
            begin = t.add(start, t.value(f"mul i64 {block}, {size}"))
            with t.loop("0", stride) as j:
                first = t.add(begin, j)
                t.exchange([t.add(first, t.value(f"mul i64 {stride}, {k}")) for k in range(count)], _falling(count))

    def in_registers(start: str, rest: str, pairs: Sequence[tuple[int, int]]) -> None:
        with t.loop("0", blocks(str(step), rest)) as block:
            first = t.add(start, t.value(f"mul i64 {block}, {step}"))
            t.exchange([t.add(first, str(k)) for k in range(step)], pairs)

    with t.loop(length, t.value(f"shl i64 {step}, {levels}")) as i:
        t.store(i, f"splat (i{bits} -1)")
    in_registers("0", length, _sorting(step))
    with t.loop("0", levels) as level:
        half = t.value(f"shl i64 {step}, {level}")
        size = t.value(f"shl i64 {half}, 1")
        with t.loop("0", blocks(size, length)) as block:
            start = t.value(f"mul i64 {block}, {size}")
            end = t.add(start, size)
            beyond = t.value(f"call i64 @llvm.smax.i64(i64 {t.value(f'sub i64 {end}, {length}')}, i64 0)")
            with t.loop(beyond, half) as j:
                t.exchange([t.add(start, j), t.value(f"sub i64 {t.add(end, '-1')}, {j}")], _falling(2))
            rest = t.value(f"call i64 @llvm.smin.i64(i64 {t.value(f'sub i64 {length}, {start}')}, i64 {size})")
            with t.loop("0", t.value(f"and i64 {level}, 1")):
                strided(start, rest, t.value(f"lshr i64 {half}, 1"), 2)
            with t.loop("0", t.value(f"lshr i64 {level}, 1")) as turn:
                done = t.value(f"sub i64 {t.value(f'or i64 {level}, 1')}, {t.value(f'shl i64 {turn}, 1')}")
                strided(start, rest, t.value(f"lshr i64 {t.value(f'shl i64 {step}, {done}')}, 3"), 4)
            in_registers(start, rest, _falling(step))
    return packing.declare_routine(f"network_{kind}", t.routine())


class _Text:
    """LLVM text of loops over rows of vectors."""

    def __init__(self, vector: str, suffix: str) -> None:
        self.vector, self.suffix = vector, suffix
        self.lines, self.block = list[str](), "entry"
        self.lines.append("  %levels = getelementptr i64, ptr %numbers, i64 1")

    def value(self, text: str) -> str:
        self.lines.append(f"  %v{len(self.lines)} = {text}")
        return f"%v{len(self.lines) - 1}"

    def add(self, x: str, y: str) -> str:
        return self.value(f"add i64 {x}, {y}")

    def store(self, row: str, vector: str) -> None:
        self.lines.append(f"  store {self.vector} {vector}, ptr {self._at(row)}, align 64")

    def _at(self, row: str) -> str:
        return self.value(f"getelementptr {self.vector}, ptr %rows, i64 {row}")

    def exchange(self, rows: Sequence[str], pairs: Sequence[tuple[int, int]]) -> None:
        x = [self.value(f"load {self.vector}, ptr {self._at(row)}, align 64") for row in rows]
        for i, j in pairs:
            given = f"{self.vector} {x[i]}, {self.vector} {x[j]}"
            calls = [f"call {self.vector} @llvm.{op}.{self.suffix}({given})" for op in ("umin", "umax")]
            x[i], x[j] = map(self.value, calls)
        for row, vector in zip(rows, x, strict=True):
            self.store(row, vector)

    @contextmanager
    def loop(self, start: str, stop: str) -> Generator[str]:
        k, before = len(self.lines), self.block
        some = self.value(f"icmp slt i64 {start}, {stop}")
        self.lines += [f"  br i1 {some}, label %body{k}, label %end{k}", f"body{k}:"]
        self.lines.append(f"  %i{k} = phi i64 [ {start}, %{before} ], [ %next{k}, %latch{k} ]")
        self.block = f"body{k}"
        yield f"%i{k}"
        self.lines += [f"  br label %latch{k}", f"latch{k}:", f"  %next{k} = add nsw i64 %i{k}, 1"]
        more = self.value(f"icmp slt i64 %next{k}, {stop}")
        self.lines += [f"  br i1 {more}, label %body{k}, label %end{k}", f"end{k}:"]
        self.block = f"end{k}"

    def routine(self) -> str:
        v = self.vector
        declared = [f"declare {v} @llvm.{op}.{self.suffix}({v}, {v})" for op in ("umin", "umax")]
        declared += [f"declare i64 @llvm.{op}.i64(i64, i64)" for op in ("smin", "smax")]
        head = "define void @routine(ptr %rows, ptr %numbers) nounwind {"
        return "\n".join([head, "entry:", *self.lines, "  ret void", "}", *declared])


def _falling(count: int) -> list[tuple[int, int]]:
    """The pairs that sort what rises and then falls."""
    apart = [count >> k for k in range(1, count.bit_length())]
    return [(i, i + d) for d in apart for i in range(count) if not i & d]


def _sorting(count: int) -> list[tuple[int, int]]:
    """The pairs that sort anything: for each p = 1, 2, 4, ... those k = p, p/2, ..., 1 apart inside of 2 p."""
    found: list[tuple[int, int]] = []
    for p in (1 << n for n in range(count.bit_length() - 1)):
        for k in (p >> n for n in range(p.bit_length())):
            starts = range(k % p, count - k, 2 * k)
            near = [(i + j, i + j + k) for i in starts for j in range(k)]
            found += [(i, j) for i, j in near if j < count and i // (2 * p) == j // (2 * p)]
    return found
