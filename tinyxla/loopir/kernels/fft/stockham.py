"""The kernel that transforms one dimension of a Fourier transform: it reads blocks of lanes, passes over them, and
writes them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from tinyxla.loopir.ir.loop_ir import INDEX, Buffer, Index, Kernel
from tinyxla.loopir.kernels.fft import codelets as routines
from tinyxla.loopir.kernels.gemm import packed
from tinyxla.shapes import element_type

_BYTES = 64_960  # of all lanes: whole vectors, and no power of two, so that parts do not meet in the cache

Place = tuple[Buffer, Index]


def elements_of(part: str) -> int:
    """Of all lanes."""
    return _BYTES // element_type(part).dtype.itemsize


_NUMBERS = (
    "rows written lanes width blocks outer middle from_step to_step "
    "source0 source1 source2 source_lane target0 target1 target2 target_lane "
    "taken by_middle by_block final"
)


class Form(NamedTuple):
    """What tells kernels apart. The first pass may read, and the last one write, columns of complex numbers; without a
    radix for it, lanes are rows of the memory. Real signals need sums before or after, and are no pairs where their
    length is odd."""

    part: str
    types: tuple[str, str]
    in_place: bool
    first: int
    passes: tuple[str, ...]
    last: int
    backward: bool
    is_column: bool
    before: int
    after: int
    is_odd: bool


class Pairs(NamedTuple):
    """The same for kernels of pairs of rows: `rows` says what the first pass of each transform reads, and what the last
    one of all writes; `types` are those of the elements of both."""

    part: str
    types: tuple[str, str]
    rows: tuple[routines.Rows, ...]
    passes: tuple[str, ...]
    last: int
    backward: bool


@functools.cache
def driver_of_pairs(form: Pairs) -> Kernel:
    """Reads pairs of rows in its first pass, and writes them in the last one. The transform back of a convolution finds
    them in the lanes."""
    b = packed.ParametricBuilder("fourier", " ".join(["read written lanes width final more", *form.passes]))
    n, part = b.parameter, form.part
    source, target = b.argument(form.types[0]), b.argument(form.types[1], True)
    words = [1 if type == part else 2 for type in form.types]
    roots, factors, plans = b.argument(part), b.argument(part), [b.argument("s64") for _ in form.rows[1:]]
    lanes, told = b.scratch(part, 4 * elements_of(part)), b.scratch(INDEX, len(routines.PAIRS))
    end = b.mul(n["final"], len(routines.PLAN))
    with b.loop(b.kernel.first, b.kernel.last) as (block, _):
        first = b.mul(block, n["width"])
        count = b.min(b.sub(n["lanes"], first), n["width"])
        packed.store_arguments(b, told, routines.PAIRS, line=b.mul(n["read"], words[0]), count=count, width=n["width"])
        for k, plan in enumerate(plans):
            if k:
                b.call(routines.passed(part, form.last), (lanes, 0), (roots, 0), (plans[0], end))
            enter = routines.first_of_pairs(part, form.rows[k], form.backward or k > 0)
            read, factor = b.mul(first, n["read"]), b.mul(n["more"], k)
            b.call(enter, (source, read), (lanes, 0), (roots, 0), (plan, 0), (told, 0), (factors, factor))
            _passes(b, part, form.passes, 1, lanes, roots, plan)
        packed.store_arguments(b, told, routines.PAIRS, line=b.mul(n["written"], words[1]))
        if form.rows[-1] == "halves":
            leave = routines.halves_of_pairs(part)
        else:
            leave = routines.last_of_pairs(part, form.last, form.rows[-1], form.backward or len(plans) > 1)
        written, factor = b.mul(first, n["written"]), b.mul(n["more"], len(plans) % 2)
        b.call(leave, (target, written), (lanes, 0), (roots, 0), (plans[-1], end), (told, 0), (factors, factor))
    return b.kernel


def _passes(
    b: packed.ParametricBuilder,
    part: str,
    names: tuple[str, ...],
    start: Index,
    lanes: Buffer,
    roots: Buffer,
    plan: Buffer,
) -> None:
    """Those of each radix, to where a number of the kernel says."""
    for name in names:
        with b.loop(start, b.parameter[name], sequential=True) as (k, _):
            told = plan, b.mul(k, len(routines.PLAN))
            radix = int(name.removeprefix("passes"))
            b.call(routines.passed(part, radix), (lanes, 0), (roots, 0), told)
        start = b.parameter[name]


@functools.cache
def driver(form: Form) -> Kernel:
    """Reads blocks of lanes, transforms them and writes them."""
    return _Driver(form).kernel()


class _Driver:
    """One such kernel: what it is given, and its lanes."""

    def __init__(self, form: Form) -> None:
        self.form, self.part, types = form, form.part, form.types
        self.b = b = packed.ParametricBuilder("fourier", " ".join([_NUMBERS, *form.passes]))
        source = None if form.in_place else b.argument(types[0])
        self.target = b.argument(types[1], True)
        self.source = source or self.target
        self.roots, self.plan, self.scale = b.argument(form.part), b.argument("s64"), b.argument(form.part)
        self.more = [b.argument(form.part), b.argument(form.part)] if form.is_column else []
        self.lanes = b.scratch(form.part, 4 * elements_of(form.part))
        self.are_real = [form.is_odd and type == form.part for type in types]
        self.words = [2 if type == form.part and not form.is_odd else 1 for type in types]
        self.moved = b.scratch(INDEX, len(routines.LANES))

    def kernel(self) -> Kernel:
        b, n, form = self.b, self.b.parameter, self.form
        with b.loop(b.kernel.first, b.kernel.last) as (index, _):
            *outer, block = b.delinearize(index, n["outer"], n["middle"], n["blocks"])
            first = b.mul(block, n["width"])
            self.count = b.min(b.sub(n["lanes"], first), n["width"])
            begin, end = (
                b.add(*(b.mul(i, n[f"{x}{k}"]) for k, i in enumerate(outer)), b.mul(first, n[f"{x}_lane"]))
                for x in ("source", "target")
            )
            source, target = (self.source, b.mul(begin, self.words[0])), (self.target, b.mul(end, self.words[1]))
            if not form.first:
                self._turned(0, routines.turned_in(self.part), 0, source)
            else:
                self._ended(routines.first_of_lanes(self.part, form.first, form.backward), "from_step", source)
            for _ in range(form.before):
                self._combine()
            _passes(b, self.part, form.passes, min(form.first, 1), self.lanes, self.roots, self.plan)
            for _ in range(form.after):
                self._combine()
            if not form.last:
                self._turned(1, routines.turned_out(self.part), n["taken"], target, ((self.scale, 0),))
            else:
                column = b.add(b.mul(outer[-1], n["by_middle"]), b.mul(block, n["by_block"]))
                turns = (self.more[0], b.mul(column, n["rows"], 2)) if form.is_column else (self.scale, 0)
                leave = routines.last_of_lanes(self.part, form.last, form.backward, form.is_column)
                self._ended(leave, "to_step", target, n["final"], turns, tuple((x, 0) for x in self.more[1:]))
        return b.kernel

    def _combine(self) -> None:
        places, factors = self.b.argument("s64"), self.b.argument(self.part)
        self.b.call(routines.combine(self.part), (self.lanes, 0), (places, 0), (factors, 0))

    def _turned(self, side: int, routine: str, start: Index, lines: Place, more: tuple[Place, ...] = ()) -> None:
        """Lines of the source become lanes, or lanes lines of the target. In a line, real and imaginary parts take
        turns, and so do even and odd elements where all are real."""
        b, n = self.b, self.b.parameter
        size, line, pitch = n[("rows", "written")[side]], n[("source_lane", "target_lane")[side]], n["width"]
        if self.are_real[side]:
            apart, pitch = pitch, b.mul(pitch, 2)
        else:
            size, line, apart = b.mul(size, 2), b.mul(line, 2), elements_of(self.part)
        packed.store_arguments(b, self.moved, routines.LINES, words=size, line=line, count=self.count, pitch=pitch)
        b.call(routine, (self.lanes, start), (self.lanes, b.add(start, apart)), lines, *more, (self.moved, 0))

    def _ended(
        self,
        routine: str,
        step: str,
        columns: Place,
        stage: Index = 0,
        roots: Place | None = None,
        more: tuple[Place, ...] = (),
    ) -> None:
        """The first pass, or the last one."""
        b, n = self.b, self.b.parameter
        packed.store_arguments(
            b, self.moved, routines.LANES, rows=n["rows"], step=n[step], count=self.count, width=n["width"]
        )
        plan = self.plan, b.mul(stage, len(routines.PLAN))
        b.call(routine, columns, (self.lanes, 0), roots or (self.roots, 0), plan, (self.moved, 0), *more)
