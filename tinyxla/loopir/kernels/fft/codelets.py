"""What Fourier transforms are made of, as routines for any sizes, so that no size needs code of its own.

Signals are transformed side by side, in *lanes*: arrays [element, lane] of real and of imaginary parts, with a whole
number of vectors in a row. Each routine takes addresses, and reads its numbers at one of them.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, section 1.7 (Stockham's passes, each of
which reads one array and writes another, in order).
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.ir.routines import declare_llvm
from tinyxla.loopir.target import vector_bytes

PLAN = ("radix", "part", "stride", "roots", "re", "im", "to_re", "to_im")  # what a pass is told
SUMMED = ("times", "rows", "groups", "width")  # what `combine` is told
LANES = ("rows", "step", "count", "width")  # what `first_of_lanes` and `last_of_lanes` are told
LINES = ("words", "line", "count", "pitch")  # what `turned_in` and `turned_out` are told
PAIRS = ("line", "count", "width")  # what `first_of_pairs` and `last_of_pairs` are told
WRITTEN_OUT = 8  # the largest radix whose sums are
_REACHED = 4  # elements with addresses that are a common one and a few steps
SUMS = 4  # that are made at once
_FROM, _TO, _LINES = ("%re", "%im"), ("%to_re", "%to_im"), ("%line0", "%line1")
_LOADED_PLAN = "\n".join(  # what a pass is told, and the addresses of what it reads and writes
    [
        load_words("plan", PLAN, prefix="at_"),
        *(f"  {side} = getelementptr $e, ptr %lanes, i64 %at_{side[1:]}" for side in (*_FROM, *_TO)),
    ]
)
Rows = Literal["whole", "halves", "parts", "lanes"]  # what pairs of rows hold
_SCALARS = {"f32": "float", "f64": "double"}
_BYTES = {"f32": 4, "f64": 8}


def vector(part: str) -> int:
    """Lanes of a vector."""
    return vector_bytes() // _BYTES[part]


def run(part: str) -> int:
    """Elements of a signal in a vector that it shares with another."""
    return vector(part) // 2


@functools.cache
def turned_in(part: str) -> str:
    """(even, odd, from, numbers): lines of words, `line` apart, as lanes: the words of even number at one address, the
    others at the other, each in rows `pitch` apart, and up to a vector of words more."""
    e = _Emitter(part)
    x = [e.load(e.at(f"%line{i}", "%s"), "%mask") for i in range(vector(part) // 2)]
    for (even, odd), value in zip(_turned_places(e), e.square_turned(x), strict=True):
        apart = e.value(f"shufflevector $v {value}, $v poison, <$n x i32> <$parted>")
        for at, order in ((even, "$lower"), (odd, "$upper")):
            half = e.value(f"shufflevector $v {apart}, $v poison, <$h x i32> <{order}>")
            e.lines.append(f"  store $half {half}, ptr {at}, align $bytes")
    return _provided(f"fourier_in_{part}", part, _turning(part, e.lines, ""))


@functools.cache
def turned_out(part: str) -> str:
    """(even, odd, to, scale, numbers): the way back, times a number."""
    e = _Emitter(part)
    factor = e.spread(e.value("load $e, ptr %scale"))
    x: list[str] = []
    for places in _turned_places(e):
        even, odd = (e.value(f"load $half, ptr {at}, align $bytes") for at in places)
        pairs = e.value(f"shufflevector $half {even}, $half {odd}, <$n x i32> <$paired>")
        x.append(e.value(f"fmul $v {pairs}, {factor}"))
    for i, value in reversed([*enumerate(e.square_turned(x))]):  # the last line comes after those beyond it
        e.store(value, e.at(f"%line{i}", "%s"), "%mask")
    return _provided(f"fourier_out_{part}", part, _turning(part, e.lines, "ptr %scale, "))


def _turned_places(e: _Emitter) -> list[Complex]:
    """The addresses of the lanes of pairs of words, of which a vector has so many."""
    row = e.value("add i64 (mul i64 (lshr i64 %s, 1), %pitch), %g")
    starts = e.at("%even", row), e.at("%odd", row)
    steps = [e.value(f"mul i64 %pitch, {k}") for k in range(vector(e.part) // 2)]
    return [(e.at(starts[0], step), e.at(starts[1], step)) for step in steps]


def _turning(part: str, body: list[str], given: str) -> str:
    """Loops over as many lines as a vector has pairs of words, and in these over vectors of words, of which a mask says
    how many count. Lines after the last one are that again."""
    lines = "".join(
        f"""
  %i{i} = call i64 @llvm.smin.i64(i64 (add i64 %g, {i}), i64 %last)
  %line{i} = getelementptr $e, ptr %lines, i64 (mul i64 %i{i}, %line)"""
        for i in range(vector(part) // 2)
    )
    return f"""
define void @routine(ptr noalias %even, ptr noalias %odd, ptr noalias %lines, {given}ptr %numbers) nounwind {{
{load_words("numbers", LINES)}
  %last = sub i64 %count, 1
  for %g from 0 below %count by $h
{lines}
  for %s from 0 below %words by $n
  %mask = call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 %s, i64 %words)
{chr(10).join(body)}
  end %s
  end %g
  ret void
}}
"""


def _provided(name: str, part: str, text: str) -> str:
    """The name by which kernels may call a routine for a type of real parts."""
    text += _DECLARATIONS
    for word, meaning in _words(part).items():
        text = text.replace(word, meaning)
    declare_llvm(name, text, "routine", is_optimized=True)
    return name


@functools.cache
def _words(part: str) -> dict[str, str]:
    """What stands for a part's types and numbers of elements."""
    n = vector(part)

    def order(indices: Sequence[int]) -> str:
        return ", ".join(f"i32 {k}" for k in indices)

    return {
        "$even": order(range(0, 2 * n, 2)),
        "$odd": order(range(1, 2 * n, 2)),
        "$mask": f"<{n} x i1>",
        "$first_two": ", ".join(f"i1 {int(k < 2)}" for k in range(n)),
        "$half": f"<{n // 2} x {_SCALARS[part]}>",
        "$h": str(n // 2),
        "$lower": order(range(n // 2)),
        "$upper": order(range(n // 2, n)),
        "$parted": order([*range(0, n, 2), *range(1, n, 2)]),
        "$paired": order([k // 2 + n // 2 * (k % 2) for k in range(n)]),
        "$near": order([k // 2 + n * (k % 2) for k in range(n)]),
        "$far": order([n // 2 + k // 2 + n * (k % 2) for k in range(n)]),
        "$bytes": str(_BYTES[part]),
        "$v": f"<{n} x {_SCALARS[part]}>",
        "$n": str(n),
        "$e": _SCALARS[part],
        "$t": part,
    }


_DECLARATIONS = """
declare i64 @llvm.smin.i64(i64, i64)
declare $v @llvm.fmuladd.v$n$t($v, $v, $v)
declare $mask @llvm.get.active.lane.mask.v$ni1.i64(i64, i64)
declare $v @llvm.masked.load.v$n$t.p0(ptr, i32, $mask, $v)
declare void @llvm.masked.store.v$n$t.p0($v, ptr, i32, $mask)
"""


@functools.cache
def combine(part: str) -> str:
    """(lanes, places, factors): sums of rows of lanes, each times a number. The places start with how many times that
    is done, of how many rows, for how many groups of sums and for how many lanes; then follow for each time those of
    the rows and of the sums. A sum has a factor for each row; the sums of a group take turns."""
    term, end = _Emitter(part, "term"), _Emitter(part, "end")
    x = term.load("%lanes[$e (add i64 (load i64, ptr %row_places[%i]), %q)]")
    first = term.value(f"mul i64 %i, {SUMS}")
    sums: list[str] = []
    for j in range(SUMS):
        factor = term.value(f"load $e, ptr %group_factors[$e (add i64 {first}, {j})]")
        sums.append(term.multiply_add(x, term.spread(factor), f"%sum{j}"))
        end.store(sums[j], f"%lanes[$e (add i64 (load i64, ptr %group_places[{j}]), %q)]")
    phis = [f"  %sum{j} = phi $v [ zeroinitializer, %i.begin ], [ {x}, %i.end ]" for j, x in enumerate(sums)]
    text = f"""
define void @routine(ptr %lanes, ptr noalias %places, ptr noalias %factors) nounwind {{
{load_words("places", SUMMED)}
  %first_places = getelementptr i64, ptr %places, i64 {len(SUMMED)}
  %many_factors = mul i64 %rows, {SUMS}
  for %p from 0 below %times by 1
  %row_places = phi ptr [ %first_places, %p.begin ], [ %next_places, %p.end ]
  %time_factors = phi ptr [ %factors, %p.begin ], [ %next_factors, %p.end ]
  %sum_places = getelementptr i64, ptr %row_places, i64 %rows
  for %g from 0 below %groups by 1
  %group_places = phi ptr [ %sum_places, %g.begin ], [ %next_places, %g.end ]
  %group_factors = phi ptr [ %time_factors, %g.begin ], [ %next_factors, %g.end ]
  for %q from 0 below %width by $n
  for %i from 0 below %rows by 1
{chr(10).join([*phis, *term.lines])}
  end %i
{chr(10).join(end.lines)}
  end %q
  %next_places = getelementptr i64, ptr %group_places, i64 {SUMS}
  %next_factors = getelementptr $e, ptr %group_factors, i64 %many_factors
  end %g
  end %p
  ret void
}}
"""
    return _provided(f"fourier_combine_{part}", part, text)


# --- a pass -----------------------------------------------------------------------------------------------------------

Complex = tuple[str, str]


class _Emitter:
    """Collects instructions on vectors, numbering the values they define."""

    def __init__(self, part: str, prefix: str = "v") -> None:
        self.part, self.prefix = part, prefix
        self.lines: list[str] = []

    def value(self, text: str) -> str:
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def square_turned(self, vectors: list[str]) -> list[str]:
        """As many vectors as each has pairs of elements, turned: first squares within parts of 16 bytes, where these
        hold two pairs, and then a square of such parts. LLVM takes less time for orders of long words."""
        words = vector_bytes() // 8
        doubles = f"<{words} x double>"

        def chosen(vectors: list[str], order: Sequence[int]) -> list[str]:
            orders = f"<{words} x i32> <{', '.join(f'i32 {k}' for k in order)}>"
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            return [self.value(f"shufflevector {doubles} {x}, {doubles} {y}, {orders}") for x, y in pairs]

        def turned(vectors: list[str]) -> list[str]:
            if len(vectors) == 1:
                return vectors
            order = [k + j for k in range(0, 2 * words, 4) for j in (0, 1)]
            halves = [turned(chosen(vectors, [k + more for k in order])) for more in (0, 2)]
            return [x for pair in zip(*halves, strict=True) for x in pair]

        if _BYTES[self.part] == 8:
            return turned(vectors)
        wide = [self.value(f"bitcast $v {x} to {doubles}") for x in vectors]
        order = [k + words * y for k in range(0, words, 2) for y in (0, 1)]
        halves = [turned(chosen(wide, [k + more for k in order])) for more in (0, 1)]
        return [self.value(f"bitcast {doubles} {x} to $v") for pair in zip(*halves, strict=True) for x in pair]

    def woven(self, x: str, y: str, mirrored: bool = False) -> Complex:
        """Elements of even numbers of two vectors, taking turns, and those of odd ones: it is its own inverse. Their
        pairs may be in the opposite order."""
        n = vector(self.part)
        pairs = [k // 2 * 2 for k in range(n)]
        starts = pairs[::-1] if mirrored else pairs
        orders = (", ".join(f"i32 {start + side + n * (k % 2)}" for k, start in enumerate(starts)) for side in (0, 1))
        even, odd = (self.value(f"shufflevector $v {x}, $v {y}, <$n x i32> <{order}>") for order in orders)
        return even, odd

    def woven_alike(self, array: str, place: str) -> Complex:
        """Complex numbers of an array, each for both of two rows."""
        both = self.load(f"{array}[$e {place}]")
        return self.woven(both, both)

    def with_conjugate(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x plus and minus the conjugate of y."""
        plus, minus = self.add(x, y), self.add(x, y, "fsub")
        return (plus[0], minus[1]), (minus[0], plus[1])

    def add(self, x: Complex, y: Complex, op: str = "fadd") -> Complex:
        return self.value(f"{op} $v {x[0]}, {y[0]}"), self.value(f"{op} $v {x[1]}, {y[1]}")

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return self.value(f"call $v @llvm.fmuladd.v$n$t($v {x}, $v {y}, $v {z})")

    def times(self, x: Complex, y: Complex, more: Complex | None = None) -> Complex:
        """x y, and more."""
        if more:
            opposite = self.value(f"fneg $v {x[1]}")
            less, cross = self.multiply_add(opposite, y[1], more[0]), self.multiply_add(x[1], y[0], more[1])
        else:
            less = self.value(f"fneg $v (fmul $v {x[1]}, {y[1]})")
            cross = self.value(f"fmul $v {x[1]}, {y[0]}")
        return self.multiply_add(x[0], y[0], less), self.multiply_add(x[0], y[1], cross)

    def add_scaled(self, x: Complex, y: Complex, factor: str) -> Complex:
        return self.multiply_add(y[0], factor, x[0]), self.multiply_add(y[1], factor, x[1])

    def turned(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x - i y and x + i y."""
        less = self.value(f"fadd $v {x[0]}, {y[1]}"), self.value(f"fsub $v {x[1]}, {y[0]}")
        more = self.value(f"fsub $v {x[0]}, {y[1]}"), self.value(f"fadd $v {x[1]}, {y[0]}")
        return less, more

    def spread(self, scalar: str) -> str:
        one = f"(insertelement $v poison, $e {scalar}, i64 0)"
        return self.value(f"shufflevector $v {one}, $v poison, <$n x i32> zeroinitializer")

    def spread_pair(self, array: str, place: str) -> Complex:
        """A complex number in all lanes."""
        at = self.at(array, place)
        re, im = (self.value(f"load $e, ptr {at}[$e {side}]") for side in (0, 1))
        return self.spread(re), self.spread(im)

    def constant(self, value: float) -> str:
        """A number in all lanes; LLVM writes one exactly by the bits of a double."""
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.part == "f32" else value
        return f"splat ({_SCALARS[self.part]} 0x{struct.pack('>d', rounded).hex().upper()})"

    def at(self, array: str, place: str) -> str:
        return self.value(f"getelementptr $e, ptr {array}, i64 {place}")

    def mask(self, place: str, size: str) -> str:
        """Which elements of a vector at a place are those of an array of some size."""
        return self.value(f"call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 {place}, i64 {size})")

    def load(self, at: str, mask: str = "") -> str:
        """A vector; zeros where a mask is not set."""
        if not mask:
            return self.value(f"load $v, ptr {at}, align $bytes")
        arguments = f"ptr {at}, i32 $bytes, $mask {mask}, $v zeroinitializer"
        return self.value(f"call $v @llvm.masked.load.v$n$t.p0({arguments})")

    def store(self, x: str, at: str, mask: str = "") -> None:
        text = f"store $v {x}, ptr {at}, align $bytes"
        if mask:
            text = f"call void @llvm.masked.store.v$n$t.p0($v {x}, ptr {at}, i32 $bytes, $mask {mask})"
        self.lines.append(f"  {text}")

    def load_pair(self, sides: Complex, place: str, mask: str = "") -> Complex:
        """Vectors of real and of imaginary parts, at the same place of two arrays."""
        re, im = (self.load(f"{side}[$e {place}]", mask) for side in sides)
        return re, im

    def store_pair(self, x: Complex, sides: Complex, place: str, mask: str = "") -> None:
        for part, side in zip(x, sides, strict=True):
            self.store(part, f"{side}[$e {place}]", mask)

    def place_of_pairs(self, element: str) -> str:
        """Of a run of elements of a pair of rows."""
        return self.value(f"add i64 (mul i64 {element}, %width), (mul i64 %g, {run(self.part)})")

    def places(self, entry: _Emitter, count: int, start: str, step: str) -> list[tuple[str, str]]:
        """Of elements that are steps apart, the places of a few, and how far the others are from these."""
        steps = [entry.value(f"mul i64 {step}, {k}") for k in range(min(count, _REACHED))]
        starts = [self.value(f"add i64 {start}, (mul i64 {step}, {k})") for k in range(0, count, _REACHED)]
        return [(start, step) for start in starts for step in steps][:count]

    def reached(self, array: str, place: tuple[str, str]) -> str:
        return self.at(self.at(array, place[0]), place[1])

    def masked(self, array: str, place: tuple[str, str]) -> list[tuple[str, str]]:
        """The addresses of two vectors, one after the other, and their masks."""
        at = self.reached(array, place)
        return [(at, "%near_mask"), (self.at(at, "$n"), "%far_mask")]

    def lanes(self, sides: Complex, places: list[tuple[str, str]]) -> list[Complex]:
        ends = [[self.reached(side, place) for side in sides] for place in places]
        return [(self.load(re), self.load(im)) for re, im in ends]

    def put_turned(self, found: list[Complex], places: list[tuple[str, str]], turns: str) -> None:
        """What a pass finds, all but the first one times roots of unity."""
        for t, (value, place) in enumerate(zip(found, places, strict=True)):
            turned = self.times(value, self.spread_pair(turns, str(2 * (t - 1)))) if t else value
            for side, x in zip(_TO, turned, strict=True):
                self.store(x, self.reached(side, place))


@functools.cache
def passed(part: str, radix: int) -> str:
    """(lanes, roots, plan): one pass of transforms of any lengths; the routine's name."""
    if radix > WRITTEN_OUT:
        return _pass_of_sums(part)
    entry, turn, lane = _Emitter(part, "entry"), _Emitter(part, "turn"), _Emitter(part)
    apart = entry.value("mul i64 %at_part, %at_stride")
    row = turn.value("mul i64 %p, %at_stride")
    turns = turn.at("%roots", f"(mul i64 %p, {2 * (radix - 1)})")
    x = lane.lanes(_FROM, lane.places(entry, radix, lane.value(f"add i64 {row}, %q"), apart))
    out = lane.value(f"add i64 (mul i64 {row}, {radix}), %q")
    lane.put_turned(_butterfly(lane, x), lane.places(entry, radix, out, "%at_stride"), turns)
    return _provided_pass(f"fourier_pass_{part}_{radix}", part, entry.lines, turn.lines, lane.lines)


def _provided_pass(name: str, part: str, entry: list[str], turn: list[str], lane: list[str]) -> str:
    """A routine with what a pass does at first, for each turn, and for each vector of lanes; its name."""
    text = f"""
define void @routine(ptr %lanes, ptr %all_roots, ptr %plan) nounwind {{
{_LOADED_PLAN}
  %roots = getelementptr $e, ptr %all_roots, i64 %at_roots
{chr(10).join(entry)}
  for %p from 0 below %at_part by 1
{chr(10).join(turn)}
  for %q from 0 below %at_stride by $n
{chr(10).join(lane)}
  end %q
  end %p
  ret void
}}
"""
    return _provided(name, part, text)


@functools.cache
def first_of_lanes(part: str, radix: int, backward: bool) -> str:
    """(from, lanes, roots, plan, numbers): the first pass of columns of complex numbers, `step` apart, as lanes;
    these are zero beyond `count`. Backward, parts are exchanged. A pass of radix 1 is a copy."""
    entry, turn, e = _Emitter(part, "entry"), _Emitter(part, "turn"), _Emitter(part)
    apart = entry.value("mul i64 %at_part, %step_words")
    turns = turn.at("%roots", f"(mul i64 %p, {2 * (radix - 1)})")
    start = e.value("add i64 (mul i64 %p, %step_words), %twice")
    x: list[Complex] = []
    for place in e.places(entry, radix, start, apart):
        near, far = (e.load(at, mask) for at, mask in e.masked("%complex", place))
        orders = ("$odd", "$even") if backward else ("$even", "$odd")
        re, im = (e.value(f"shufflevector $v {near}, $v {far}, <$n x i32> <{order}>") for order in orders)
        x.append((re, im))
    out = e.value(f"add i64 (mul i64 (mul i64 %p, %width), {radix}), %j")
    e.put_turned(_butterfly(e, x), e.places(entry, radix, out, "%width"), turns)
    text = _of_lanes(entry, turn, e, "%at_part")
    return _provided(f"fourier_enter_{part}_{radix}_{backward}", part, text)


@functools.cache
def last_of_lanes(part: str, radix: int, backward: bool, turned: bool) -> str:
    """(to, lanes, scale, plan, numbers): the last pass, to such columns; backward, times a number. Where they are
    `turned`, (to, lanes, turns of rows, plan, numbers, turns of elements): times two roots of unity, one for each row,
    and one for each element."""
    entry, turn, e = _Emitter(part, "entry"), _Emitter(part, "turn"), _Emitter(part)
    size = entry.value("udiv i64 %at_stride, %width")
    apart = entry.value(f"mul i64 {size}, %step_words")
    start = e.value("add i64 (mul i64 %p, %width), %j")
    places = e.places(entry, radix, start, "%at_stride")
    found = _butterfly(e, e.lanes(_FROM, places))
    if backward:
        found = [(im, re) for re, im in found]
    if turned:
        cells = e.value("mul i64 %rows, %width")
        for t, place in enumerate(places):
            row = e.spread_pair("%roots", f"(mul i64 (add i64 %p, (mul i64 {size}, {t})), 2)")
            cell = [e.load(e.reached(side, place)) for side in ("%cells", e.at("%cells", cells))]
            found[t] = e.times(e.times(found[t], row), (cell[0], cell[1]))
    elif backward:
        factor = e.spread(e.value("load $e, ptr %roots"))
        found = [(e.value(f"fmul $v {re}, {factor}"), e.value(f"fmul $v {im}, {factor}")) for re, im in found]
    out = e.value("add i64 (mul i64 %p, %step_words), %twice")
    for (re, im), place in zip(found, e.places(entry, radix, out, apart), strict=True):
        for order, (at, mask) in zip(("$near", "$far"), e.masked("%complex", place), strict=True):
            e.store(e.value(f"shufflevector $v {re}, $v {im}, <$n x i32> <{order}>"), at, mask)
    text = _of_lanes(entry, turn, e, size, ", ptr noalias %cells" if turned else "")
    return _provided(f"fourier_leave_{part}_{radix}_{backward}_{turned}", part, text)


def _of_lanes(entry: _Emitter, turn: _Emitter, lane: _Emitter, size: str, more: str = "") -> str:
    """Loops over rows, and in these over vectors of lanes, with the mask of those that count."""
    return f"""
define void @routine(ptr %complex, ptr noalias %lanes, ptr noalias %roots, ptr %plan, ptr %numbers{more}) nounwind {{
{_LOADED_PLAN}
{load_words("numbers", LANES)}
  %words = mul i64 %count, 2
  %step_words = mul i64 %step, 2
{chr(10).join(entry.lines)}
  for %p from 0 below {size} by 1
{chr(10).join(turn.lines)}
  for %j from 0 below %count by $n
  %twice = mul i64 %j, 2
  %near_mask = call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 %twice, i64 %words)
  %far_mask = call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 (add i64 %twice, $n), i64 %words)
{chr(10).join(lane.lines)}
  end %j
  end %p
  ret void
}}
"""


@functools.cache
def first_of_pairs(part: str, rows: Rows, backward: bool) -> str:
    """(from, lanes, roots, plan, numbers, factors): the first pass of rows of complex numbers, `line` words apart, two
    at a time as lanes that take turns. Vectors hold a run of elements; what is found for one is turned, so that it is a
    run of the result. The last run may begin in the one before. Backward, parts are exchanged."""
    e, radix = _Emitter(part), run(part)
    start = e.value(f"call i64 @llvm.smin.i64(i64 %p, i64 (sub i64 %at_part, {radix}))")
    x = [_element_of_pairs(e, rows, start, k) for k in range(radix)]
    found = _butterfly(e, [(im, re) for re, im in x] if backward else x)
    turns = e.value(f"mul i64 %p, {2 * (radix - 1)}")
    for t in range(1, radix):
        root = e.woven_alike("%roots", e.value(f"add i64 {turns}, {(t - 1) * vector(part)}"))
        found[t] = e.times(found[t], root)
    row = e.value(f"mul i64 {start}, {(after := e.value(f'mul i64 %at_stride, {radix}'))}")
    place = e.value(f"add i64 {row}, (mul i64 %g, {radix})")
    for y, side in zip(map(e.square_turned, map(list, zip(*found, strict=True))), _TO, strict=True):
        for i, value in enumerate(y):
            e.store(value, f"{side}[$e (add i64 {place}, (mul i64 {after}, {i}))]")
    return _provided(f"fourier_first_{part}_{rows}_{backward}", part, _of_pairs("%at_part", e))


def _element_of_pairs(e: _Emitter, rows: Rows, start: str, k: int) -> Complex:
    """The first pass's element k of a few, for a run.

    Of the first half of the transform of real numbers, and one element more, twice that of even numbers + i odd numbers
    is made; the factors are roots for that. Parts of rows, and lanes, are multiplied by a factor for each element."""
    steps, size = (e.value(f"mul i64 %at_part, {count}") for count in (k, run(e.part)))
    element = e.value(f"add i64 {start}, {steps}")
    place = e.value(f"mul i64 {element}, 2")
    if rows == "lanes":
        return e.times(e.load_pair(_FROM, e.place_of_pairs(element)), e.woven_alike("%factors", place))
    if rows == "parts":
        value = e.woven(*e.load_pair(_LINES, place, e.mask(place, "%line")))
        return e.times(value, e.woven_alike("%factors", place))
    value = e.woven(*e.load_pair(_LINES, place))
    if rows == "whole":
        return value
    far = e.value(f"sub i64 {size}, (add i64 {element}, {run(e.part) - 1})")
    mirrored = e.woven(*e.load_pair(_LINES, f"(mul i64 {far}, 2)"), mirrored=True)
    if k == 0:  # the first element and the last are real, whatever they hold
        ends = e.value(f"select i1 (icmp eq i64 {start}, 0), $mask <$first_two>, $mask zeroinitializer")
        zero = f"select $mask {ends}, $v zeroinitializer, $v"
        value, mirrored = ((re, e.value(f"{zero} {im}")) for re, im in (value, mirrored))
    sums, odd = e.with_conjugate(value, mirrored)
    return e.times(odd, e.woven_alike("%factors", place), sums)


@functools.cache
def last_of_pairs(part: str, radix: int, rows: Rows, backward: bool) -> str:
    """(to, lanes, roots, plan, numbers, factors): the last pass, to such rows; parts of them are multiplied by a factor
    for each element, and others, backward, by one."""
    e = _Emitter(part)
    place = e.place_of_pairs("%p")
    places = [e.value(f"add i64 {place}, (mul i64 %at_stride, {k})") for k in range(radix)]
    found = _butterfly(e, [e.load_pair(_FROM, place) for place in places])
    factor = e.spread(e.value("load $e, ptr %factors"))
    for t, (re, im) in enumerate(found):
        place, mask = e.value(f"mul i64 (add i64 %p, (mul i64 %size, {t})), 2"), ""
        re, im = (im, re) if backward else (re, im)
        if rows == "parts":
            (re, im), mask = e.times((re, im), e.woven_alike("%factors", place)), e.mask(place, "%line")
        elif backward:
            re, im = (e.value(f"fmul $v {x}, {factor}") for x in (re, im))
        e.store_pair(e.woven(re, im), _LINES, place, mask)
    return _provided(f"fourier_last_{part}_{radix}_{rows}_{backward}", part, _of_pairs("%size", e))


@functools.cache
def halves_of_pairs(part: str) -> str:
    """(to, lanes, roots, plan, numbers, factors): from transforms of even elements + i odd elements of real signals the
    first halves of theirs, as such rows, of one element more. What is found for k gives that for what mirrors it, too:
    the end of one run, and the first element of the next, which is the first of all after the last one. Factors are
    half of the signal's roots, times -i. The plan's is a pass of radix 1."""
    e, words = _Emitter(part), vector(part)
    place = e.place_of_pairs("%p")
    far = e.value("sub i64 %at_stride, (mul i64 %p, %width)")
    is_first = e.value("icmp eq i64 %p, 0")
    behind = e.value(f"add i64 (select i1 {is_first}, i64 0, i64 {far}), (mul i64 %g, {run(part)})")
    before = e.value(f"add i64 (sub i64 {far}, (mul i64 %width, {run(part)})), (mul i64 %g, {run(part)})")
    order = [0, 1, *(words + 2 * (run(part) - k) + side for k in range(1, run(part)) for side in (0, 1))]
    orders = ", ".join(f"i32 {k}" for k in order)
    x, next_run, last_run = (e.load_pair(_FROM, at) for at in (place, behind, before))
    mirrored = [
        e.value(f"shufflevector $v {one}, $v {other}, <$n x i32> <{orders}>")
        for one, other in zip(next_run, last_run, strict=True)
    ]
    sums, odd = e.with_conjugate(x, (mirrored[0], mirrored[1]))
    odd = e.times(odd, e.woven_alike("%factors", e.value("mul i64 %p, 2")))
    half = e.constant(0.5)
    e.store_pair(e.woven(*e.add_scaled(odd, sums, half)), _LINES, "(mul i64 %p, 2)")
    opposite = e.value(f"fneg $v {odd[0]}"), odd[1]
    conjugate = e.multiply_add(sums[0], half, opposite[0]), e.multiply_add(sums[1], e.constant(-0.5), opposite[1])
    place = e.value(f"sub i64 %size, (add i64 %p, {run(part) - 1})")
    e.store_pair(e.woven(*conjugate, mirrored=True), _LINES, f"(mul i64 {place}, 2)")
    return _provided(f"fourier_halves_{part}", part, _of_pairs("%to_middle", e))


def _of_pairs(size: str, body: _Emitter) -> str:
    """A routine with a loop for each pair of rows, over runs of elements; the last row is one with itself."""
    given = "ptr noalias %complex, ptr noalias %lanes, ptr noalias %roots"
    return f"""
define void @routine({given}, ptr %plan, ptr %numbers, ptr noalias %factors) nounwind {{
{_LOADED_PLAN}
{load_words("numbers", PAIRS)}
  %size = udiv i64 %at_stride, %width
  %to_middle = add i64 (lshr i64 %size, 1), 1
  %last = sub i64 %count, 1
  for %g from 0 below %count by 2
  %other = call i64 @llvm.smin.i64(i64 (add i64 %g, 1), i64 %last)
  %line0 = getelementptr $e, ptr %complex, i64 (mul i64 %line, %g)
  %line1 = getelementptr $e, ptr %complex, i64 (mul i64 %line, %other)
  for %p from 0 below {size} by {run(body.part)}
{chr(10).join(body.lines)}
  end %p
  end %g
  ret void
}}
"""


def sums_of(radix: int) -> np.ndarray[Any, Any]:
    """For a large prime radix, in the order of their use, the numbers t of the sums: each is that of the pairs k, as
    even parts times cos(2 pi k t / radix) and odd ones times the sine. The last group repeats the last sum."""
    half = radix // 2
    return np.minimum(np.arange(-(-half // SUMS) * SUMS) + 1, half).reshape(-1, SUMS)


@functools.cache
def _pass_of_sums(part: str) -> str:
    """The same for any large prime: a few sums at once, with their factors in a table that follows the roots."""
    entry = f"""
  %half = lshr i64 %at_radix, 1
  %after_half = add i64 %half, 1
  %groups = udiv i64 (add i64 %half, {SUMS - 1}), {SUMS}
  %step = mul i64 %at_part, %at_stride
  %root_words = mul i64 (sub i64 %at_radix, 1), 2
  %factor_words = mul i64 %half, {2 * SUMS}
  %table = getelementptr $e, ptr %roots, i64 (mul i64 %at_part, %root_words)"""
    turn = """
  %turn_roots = getelementptr $e, ptr %roots, i64 (mul i64 %p, %root_words)
  %row = mul i64 %p, %at_stride
  %out_row = mul i64 %row, %at_radix"""
    pair, end = _Emitter(part, "pair"), _Emitter(part, "end")
    near = pair.value("add i64 (mul i64 %k, %step), %at")
    far = pair.value("add i64 (mul i64 (sub i64 %at_radix, %k), %step), %at")
    a, b = pair.load_pair(_FROM, near), pair.load_pair(_FROM, far)
    even, odd = pair.add(a, b), pair.add(a, b, "fsub")
    place = pair.value(f"mul i64 (sub i64 %k, 1), {2 * SUMS}")
    carried = {"all": pair.add(("%all_re", "%all_im"), even)}
    for i in range(SUMS):
        cosine, sine = pair.spread_pair("%factors", f"(add i64 {place}, {2 * i})")
        for name, x, factor in ((f"even{i}", even, cosine), (f"odd{i}", odd, sine)):
            carried[name] = pair.add_scaled((f"%{name}_re", f"%{name}_im"), x, factor)
    phis = [
        f"  %{name}_{side} = phi $v [ {'zeroinitializer' if name[0] == 'o' else f'%x_{side}'}, %k.begin ], "
        f"[ {updated}, %k.end ]"
        for name, both in carried.items()
        for side, updated in zip(("re", "im"), both, strict=True)
    ]

    def put(t: str, x: Complex) -> None:
        end.store_pair(x, _TO, end.value(f"add i64 (mul i64 {t}, %at_stride), %out"))

    put("0", carried["all"])
    for i in range(SUMS):
        t = end.value(f"call i64 @llvm.smin.i64(i64 (add i64 (mul i64 %g, {SUMS}), {i + 1}), i64 %half)")
        rows = t, end.value(f"sub i64 %at_radix, {t}")
        for row, x in zip(rows, end.turned(carried[f"even{i}"], carried[f"odd{i}"]), strict=True):
            put(row, end.times(x, end.spread_pair("%turn_roots", f"(mul i64 (sub i64 {row}, 1), 2)")))
    lane = f"""
  %at = add i64 %row, %q
  %out = add i64 %out_row, %q
  %x_re = load $v, ptr %re[$e %at], align $bytes
  %x_im = load $v, ptr %im[$e %at], align $bytes
  for %g from 0 below %groups by 1
  %factors = getelementptr $e, ptr %table, i64 (mul i64 %g, %factor_words)
  for %k from 1 below %after_half by 1
{chr(10).join([*phis, *pair.lines])}
  end %k
{chr(10).join(end.lines)}
  end %g"""
    return _provided_pass(f"fourier_pass_{part}", part, [entry], [turn], [lane])


def _butterfly(e: _Emitter, x: list[Complex]) -> list[Complex]:
    """The transform of a few numbers."""
    n = len(x)
    if n == 1:
        return x
    if n == 2:
        return [e.add(x[0], x[1]), e.add(x[0], x[1], "fsub")]
    if n == 4:
        a, b = e.add(x[0], x[2]), e.add(x[0], x[2], "fsub")
        c, d = e.add(x[1], x[3]), e.add(x[1], x[3], "fsub")
        less, more = e.turned(b, d)
        return [e.add(a, c), less, e.add(a, c, "fsub"), more]
    if n == 8:
        return _of_eight(e, x)
    pairs = [(e.add(x[k], x[n - k]), e.add(x[k], x[n - k], "fsub")) for k in range(1, (n + 1) // 2)]
    first: list[Complex] = [functools.reduce(e.add, [x[0], *(s for s, _ in pairs)])]
    last: list[Complex] = []
    for t in range(1, (n + 1) // 2):
        even: Complex = x[0]
        odd: Complex = ("zeroinitializer", "zeroinitializer")
        for k, (s, d) in enumerate(pairs, 1):
            angle = 2 * math.pi * (k * t % n) / n
            even = e.add_scaled(even, s, e.constant(math.cos(angle)))
            odd = e.add_scaled(odd, d, e.constant(math.sin(angle)))
        less, more = e.turned(even, odd)
        first.append(less)
        last.append(more)
    return [*first, *reversed(last)]


def _of_eight(e: _Emitter, x: list[Complex]) -> list[Complex]:
    """Sums of what is four apart make the even ones, differences, turned by eighths, the odd ones. An eighth of a turn
    is one of sums times the root of 1/2, by which the last additions multiply."""
    sums, (a, b, c, d) = (([e.add(x[k], x[k + 4], op) for k in range(4)]) for op in ("fadd", "fsub"))
    b = e.value(f"fadd $v {b[0]}, {b[1]}"), e.value(f"fsub $v {b[1]}, {b[0]}")
    d = e.value(f"fsub $v {d[0]}, {d[1]}"), e.value(f"fadd $v {d[0]}, {d[1]}")
    less, more = e.turned(a, c)
    along, across = e.add(b, d, "fsub"), e.add(b, d)
    root, negative = (e.constant(side * math.sqrt(0.5)) for side in (1, -1))
    odd = [
        e.add_scaled(less, along, root),
        (e.multiply_add(across[1], root, more[0]), e.multiply_add(across[0], negative, more[1])),
        e.add_scaled(less, along, negative),
        (e.multiply_add(across[1], negative, more[0]), e.multiply_add(across[0], root, more[1])),
    ]
    return [y for pair in zip(_butterfly(e, sums), odd, strict=True) for y in pair]
