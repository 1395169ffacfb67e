"""The kernel that transforms one dimension of a Fourier transform: it reads blocks of lanes, passes over them, and
writes them."""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from tinyxla.backends.numba import fourier_routines as routines, panel_routines, panels
from tinyxla.backends.numba.loops import INDEX, Buffer, Index, Kernel
from tinyxla.shapes import element_type

_BYTES = 64_000  # of all lanes; no power of two, so that real and imaginary parts do not share lines of the cache
_SQUARE_BYTES = 4096  # that are turned at once

Place = tuple[Buffer, Index]


def elements_of(part: str) -> tuple[int, int]:
    """Of all lanes, and of the square."""
    size = element_type(part).dtype.itemsize
    return _BYTES // size, _SQUARE_BYTES // (2 * size)


_NUMBERS = (
    "rows written lanes width blocks middle length from_step to_step "
    "source0 source1 source_lane target0 target1 target_lane "
    "in_re in_im out_re out_im by_middle by_block"
)


class Form(NamedTuple):
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
def driver(form: Form) -> Kernel:
    """Reads blocks of lanes, transforms them and writes them."""
    return _Driver(form).kernel()


class _Driver:
    """One such kernel: what it is given, its lanes, and the square in which rows are turned into lanes and back."""

    def __init__(self, form: Form) -> None:
        self.form, self.part, types = form, form.part, form.types
        self.b = b = panels.Numbers("fourier", " ".join([_NUMBERS, *form.passes]))
        self.source, self.target = b.argument(types[0]), b.argument(types[1], True)
        self.roots, self.plan, self.scale = b.argument(form.part), b.argument("s64"), b.argument(form.part)
        self.more = [b.argument(form.part), b.argument(form.part)] if form.is_column else []
        elements, room = elements_of(form.part)
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
