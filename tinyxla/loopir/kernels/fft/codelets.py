"""FFT codelets: Stockham passes, transposing copies and butterflies as LLVM text for any sizes, so that no size needs
code of its own.

Signals are interleaved in lanes: arrays [element, lane] of real and of imaginary parts, whose rows are full vectors.
Each routine takes addresses, and an array of its arguments.

Source: C. Van Loan, Computational Frameworks for the Fast Fourier Transform, section 1.7 (Stockham's passes, each of
which reads one array and writes another, in order); M. Frigo and S. Johnson, The design and implementation of FFTW3,
Proceedings of the IEEE 93 (2005) (codelets).
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

PASS_ARGUMENTS = ("radix", "sublength", "stride", "roots", "re", "im", "to_re", "to_im")  # arguments of a pass
COMBINE_ARGUMENTS = ("repeats", "rows", "groups", "width")  # arguments of `combine_rows`
LANE_ARGUMENTS = ("rows", "step", "count", "width")  # arguments of the first and the last pass of lanes
LINE_ARGUMENTS = ("words", "line_pitch", "count", "pitch")  # arguments of the transposing copies
ROW_PAIR_ARGUMENTS = ("line_pitch", "count", "width")  # arguments of the first and the last pass of row pairs
MAX_UNROLLED_RADIX = 8  # radices up to which a pass is unrolled
_SHARED_BASES = 4  # elements whose addresses share a base
SUMS_PER_GROUP = 4  # sums that a loop computes at once
_FROM, _TO, _LINES = ("%re", "%im"), ("%to_re", "%to_im"), ("%line0", "%line1")
_LOAD_PASS_ARGUMENTS = "\n".join(  # arguments of a pass, and the addresses of its source and target
    [
        load_words("plan", PASS_ARGUMENTS, prefix="pass_"),
        *(f"  {side} = getelementptr $e, ptr %lanes, i64 %pass_{side[1:]}" for side in (*_FROM, *_TO)),
    ]
)
RowForm = Literal["full", "half", "padded", "lanes"]  # contents of row pairs
_SCALARS = {"f32": "float", "f64": "double"}
_BYTES = {"f32": 4, "f64": 8}


def lanes_per_vector(real_type: str) -> int:
    """Lanes of a vector."""
    return vector_bytes() // _BYTES[real_type]


def elements_per_row(real_type: str) -> int:
    """Elements of one signal in a vector that two signals share."""
    return lanes_per_vector(real_type) // 2


@functools.cache
def load_transposed(real_type: str) -> str:
    """Declare `load(even, odd, from, arguments)` and return its symbol: transpose lines of words, `line_pitch` apart,
    to lanes.

    Words of even number go to one array and the others to another, in rows `pitch` apart; up to a vector of further
    words is written.
    """
    e = _Emitter(real_type)
    x = [e.load(e.at(f"%line{i}", "%s"), "%mask") for i in range(lanes_per_vector(real_type) // 2)]
    for (even, odd), value in zip(_transposed_addresses(e), e.transpose_pairs(x), strict=True):
        stride = e.value(f"shufflevector $v {value}, $v poison, <$n x i32> <$split_pairs>")
        for at, order in ((even, "$lower"), (odd, "$upper")):
            half = e.value(f"shufflevector $v {stride}, $v poison, <$h x i32> <{order}>")
            e.code.append(f"  store $half {half}, ptr {at}, align $bytes")
    return _declare(f"fourier_in_{real_type}", real_type, _transpose_text(real_type, e.code, ""))


@functools.cache
def store_transposed(real_type: str) -> str:
    """Declare `store(even, odd, to, scale, arguments)` and return its symbol: the inverse of `load_transposed`,
    scaled."""
    e = _Emitter(real_type)
    factor = e.broadcast(e.value("load $e, ptr %scale"))
    x: list[str] = []
    for offsets in _transposed_addresses(e):
        even, odd = (e.value(f"load $half, ptr {at}, align $bytes") for at in offsets)
        pairs = e.value(f"shufflevector $half {even}, $half {odd}, <$n x i32> <$join_pairs>")
        x.append(e.value(f"fmul $v {pairs}, {factor}"))
    for i, value in reversed(
        [*enumerate(e.transpose_pairs(x))]
    ):  # in reverse: rows past the last one repeat it and are overwritten
        e.store(value, e.at(f"%line{i}", "%s"), "%mask")
    return _declare(f"fourier_out_{real_type}", real_type, _transpose_text(real_type, e.code, "ptr %scale, "))


def _transposed_addresses(e: _Emitter) -> list[Complex]:
    """Addresses of the rows of a vector's pairs of words."""
    row = e.value("add i64 (mul i64 (lshr i64 %s, 1), %pitch), %g")
    starts = e.at("%even", row), e.at("%odd", row)
    steps = [e.value(f"mul i64 %pitch, {k}") for k in range(lanes_per_vector(e.real_type) // 2)]
    return [(e.at(starts[0], step), e.at(starts[1], step)) for step in steps]


def _transpose_text(real_type: str, body: list[str], extra: str) -> str:
    """Loops over groups of lines and over vectors of words, with a mask of valid words. Lines past the last one repeat
    it."""
    lines = "".join(
        f"""
  %i{i} = call i64 @llvm.smin.i64(i64 (add i64 %g, {i}), i64 %last)
  %line{i} = getelementptr $e, ptr %lines, i64 (mul i64 %i{i}, %line_pitch)"""
        for i in range(lanes_per_vector(real_type) // 2)
    )
    return f"""
define void @routine(ptr noalias %even, ptr noalias %odd, ptr noalias %lines, {extra}ptr %numbers) nounwind {{
{load_words("numbers", LINE_ARGUMENTS)}
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


def _declare(name: str, real_type: str, text: str) -> str:
    """Declare a routine for a real element type and return its symbol."""
    text += _DECLARATIONS
    for word, meaning in _substitutions(real_type).items():
        text = text.replace(word, meaning)
    declare_llvm(name, text, "routine", is_optimized=True)
    return name


@functools.cache
def _substitutions(real_type: str) -> dict[str, str]:
    """What the placeholders of the text stand for: types, sizes and shuffle orders."""
    n = lanes_per_vector(real_type)

    def order(indices: Sequence[int]) -> str:
        return ", ".join(f"i32 {k}" for k in indices)

    return {
        "$even": order(range(0, 2 * n, 2)),
        "$odd": order(range(1, 2 * n, 2)),
        "$mask": f"<{n} x i1>",
        "$first_two": ", ".join(f"i1 {int(k < 2)}" for k in range(n)),
        "$half": f"<{n // 2} x {_SCALARS[real_type]}>",
        "$h": str(n // 2),
        "$lower": order(range(n // 2)),
        "$upper": order(range(n // 2, n)),
        "$split_pairs": order([*range(0, n, 2), *range(1, n, 2)]),
        "$join_pairs": order([k // 2 + n // 2 * (k % 2) for k in range(n)]),
        "$interleave_low": order([k // 2 + n * (k % 2) for k in range(n)]),
        "$interleave_high": order([n // 2 + k // 2 + n * (k % 2) for k in range(n)]),
        "$bytes": str(_BYTES[real_type]),
        "$v": f"<{n} x {_SCALARS[real_type]}>",
        "$n": str(n),
        "$e": _SCALARS[real_type],
        "$t": real_type,
    }


_DECLARATIONS = """
declare i64 @llvm.smin.i64(i64, i64)
declare $v @llvm.fmuladd.v$n$t($v, $v, $v)
declare $mask @llvm.get.active.lane.mask.v$ni1.i64(i64, i64)
declare $v @llvm.masked.load.v$n$t.p0(ptr, i32, $mask, $v)
declare void @llvm.masked.store.v$n$t.p0($v, ptr, i32, $mask)
"""


@functools.cache
def combine_rows(real_type: str) -> str:
    """Declare `combine(lanes, offsets, factors)` and return its symbol: weighted sums of rows of lanes.

    The offsets begin with the number of repetitions, rows, groups of sums and lanes; then follow the offsets of the
    rows and of the sums for each repetition. A sum has a factor for each row; the factors of a group's sums are
    interleaved.
    """
    term, end = _Emitter(real_type, "term"), _Emitter(real_type, "end")
    x = term.load("%lanes[$e (add i64 (load i64, ptr %row_offsets[%i]), %q)]")
    first = term.value(f"mul i64 %i, {SUMS_PER_GROUP}")
    sums: list[str] = []
    for j in range(SUMS_PER_GROUP):
        factor = term.value(f"load $e, ptr %group_factors[$e (add i64 {first}, {j})]")
        sums.append(term.multiply_add(x, term.broadcast(factor), f"%sum{j}"))
        end.store(sums[j], f"%lanes[$e (add i64 (load i64, ptr %group_offsets[{j}]), %q)]")
    phis = [f"  %sum{j} = phi $v [ zeroinitializer, %i.begin ], [ {x}, %i.end ]" for j, x in enumerate(sums)]
    text = f"""
define void @routine(ptr %lanes, ptr noalias %offsets, ptr noalias %factors) nounwind {{
{load_words("offsets", COMBINE_ARGUMENTS)}
  %first_offsets = getelementptr i64, ptr %offsets, i64 {len(COMBINE_ARGUMENTS)}
  %group_size = mul i64 %rows, {SUMS_PER_GROUP}
  for %p from 0 below %repeats by 1
  %row_offsets = phi ptr [ %first_offsets, %p.begin ], [ %next_offsets, %p.end ]
  %time_factors = phi ptr [ %factors, %p.begin ], [ %next_factors, %p.end ]
  %sum_offsets = getelementptr i64, ptr %row_offsets, i64 %rows
  for %g from 0 below %groups by 1
  %group_offsets = phi ptr [ %sum_offsets, %g.begin ], [ %next_offsets, %g.end ]
  %group_factors = phi ptr [ %time_factors, %g.begin ], [ %next_factors, %g.end ]
  for %q from 0 below %width by $n
  for %i from 0 below %rows by 1
{chr(10).join([*phis, *term.code])}
  end %i
{chr(10).join(end.code)}
  end %q
  %next_offsets = getelementptr i64, ptr %group_offsets, i64 {SUMS_PER_GROUP}
  %next_factors = getelementptr $e, ptr %group_factors, i64 %group_size
  end %g
  end %p
  ret void
}}
"""
    return _declare(f"fourier_combine_{real_type}", real_type, text)


# --- passes -----------------------------------------------------------------------------------------------------------

Complex = tuple[str, str]


class _Emitter:
    """Instructions on vectors, with numbered values."""

    def __init__(self, real_type: str, prefix: str = "v") -> None:
        self.real_type, self.prefix = real_type, prefix
        self.code: list[str] = []

    def value(self, text: str) -> str:
        name = f"%{self.prefix}{len(self.code)}"
        self.code.append(f"  {name} = {text}")
        return name

    def transpose_pairs(self, vectors: list[str]) -> list[str]:
        """The transpose of a square of pairs of elements: as many vectors as each has pairs. Squares within 16 bytes
        that hold two pairs are transposed first, then a square of such parts; LLVM compiles shuffles of wide elements
        faster."""
        words = vector_bytes() // 8
        doubles = f"<{words} x double>"

        def shuffle(vectors: list[str], order: Sequence[int]) -> list[str]:
            orders = f"<{words} x i32> <{', '.join(f'i32 {k}' for k in order)}>"
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            return [self.value(f"shufflevector {doubles} {x}, {doubles} {y}, {orders}") for x, y in pairs]

        def transpose(vectors: list[str]) -> list[str]:
            if len(vectors) == 1:
                return vectors
            order = [k + j for k in range(0, 2 * words, 4) for j in (0, 1)]
            halves = [transpose(shuffle(vectors, [k + start for k in order])) for start in (0, 2)]
            return [x for pair in zip(*halves, strict=True) for x in pair]

        if _BYTES[self.real_type] == 8:
            return transpose(vectors)
        wide = [self.value(f"bitcast $v {x} to {doubles}") for x in vectors]
        order = [k + words * y for k in range(0, words, 2) for y in (0, 1)]
        halves = [transpose(shuffle(wide, [k + start for k in order])) for start in (0, 1)]
        return [self.value(f"bitcast {doubles} {x} to $v") for pair in zip(*halves, strict=True) for x in pair]

    def interleave(self, x: str, y: str, mirrored: bool = False) -> Complex:
        """Even elements of two vectors, interleaved, and odd ones: an involution. `mirrored` reverses the order of
        pairs."""
        n = lanes_per_vector(self.real_type)
        pairs = [k // 2 * 2 for k in range(n)]
        starts = pairs[::-1] if mirrored else pairs
        orders = (", ".join(f"i32 {start + side + n * (k % 2)}" for k, start in enumerate(starts)) for side in (0, 1))
        even, odd = (self.value(f"shufflevector $v {x}, $v {y}, <$n x i32> <{order}>") for order in orders)
        return even, odd

    def broadcast_to_rows(self, array: str, offset: str) -> Complex:
        """Complex numbers of an array, each for both of two rows."""
        both = self.load(f"{array}[$e {offset}]")
        return self.interleave(both, both)

    def with_conjugate(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x plus and minus the conjugate of y."""
        plus, minus = self.add(x, y), self.add(x, y, "fsub")
        return (plus[0], minus[1]), (minus[0], plus[1])

    def add(self, x: Complex, y: Complex, op: str = "fadd") -> Complex:
        return self.value(f"{op} $v {x[0]}, {y[0]}"), self.value(f"{op} $v {x[1]}, {y[1]}")

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return self.value(f"call $v @llvm.fmuladd.v$n$t($v {x}, $v {y}, $v {z})")

    def multiply(self, x: Complex, y: Complex, addend: Complex | None = None) -> Complex:
        """x y, plus `addend`."""
        if addend:
            negated = self.value(f"fneg $v {x[1]}")
            minus, cross = self.multiply_add(negated, y[1], addend[0]), self.multiply_add(x[1], y[0], addend[1])
        else:
            minus = self.value(f"fneg $v (fmul $v {x[1]}, {y[1]})")
            cross = self.value(f"fmul $v {x[1]}, {y[0]}")
        return self.multiply_add(x[0], y[0], minus), self.multiply_add(x[0], y[1], cross)

    def add_scaled(self, x: Complex, y: Complex, factor: str) -> Complex:
        return self.multiply_add(y[0], factor, x[0]), self.multiply_add(y[1], factor, x[1])

    def rotate(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x - i y and x + i y."""
        minus = self.value(f"fadd $v {x[0]}, {y[1]}"), self.value(f"fsub $v {x[1]}, {y[0]}")
        plus = self.value(f"fsub $v {x[0]}, {y[1]}"), self.value(f"fadd $v {x[1]}, {y[0]}")
        return minus, plus

    def broadcast(self, scalar: str) -> str:
        first = f"(insertelement $v poison, $e {scalar}, i64 0)"
        return self.value(f"shufflevector $v {first}, $v poison, <$n x i32> zeroinitializer")

    def broadcast_complex(self, array: str, offset: str) -> Complex:
        """A complex number in all lanes."""
        at = self.at(array, offset)
        re, im = (self.value(f"load $e, ptr {at}[$e {side}]") for side in (0, 1))
        return self.broadcast(re), self.broadcast(im)

    def constant(self, value: float) -> str:
        """A constant in all lanes, written as the bits of a double."""
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.real_type == "f32" else value
        return f"splat ({_SCALARS[self.real_type]} 0x{struct.pack('>d', rounded).hex().upper()})"

    def at(self, array: str, offset: str) -> str:
        return self.value(f"getelementptr $e, ptr {array}, i64 {offset}")

    def mask(self, offset: str, size: str) -> str:
        """Mask of the vector's elements at an offset that are below a size."""
        return self.value(f"call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 {offset}, i64 {size})")

    def load(self, at: str, mask: str = "") -> str:
        """A vector; zeros where the mask is not set."""
        if not mask:
            return self.value(f"load $v, ptr {at}, align $bytes")
        arguments = f"ptr {at}, i32 $bytes, $mask {mask}, $v zeroinitializer"
        return self.value(f"call $v @llvm.masked.load.v$n$t.p0({arguments})")

    def store(self, x: str, at: str, mask: str = "") -> None:
        text = f"store $v {x}, ptr {at}, align $bytes"
        if mask:
            text = f"call void @llvm.masked.store.v$n$t.p0($v {x}, ptr {at}, i32 $bytes, $mask {mask})"
        self.code.append(f"  {text}")

    def load_pair(self, sides: Complex, offset: str, mask: str = "") -> Complex:
        """Vectors of real and of imaginary parts at the same offset of two arrays."""
        re, im = (self.load(f"{side}[$e {offset}]", mask) for side in sides)
        return re, im

    def store_pair(self, x: Complex, sides: Complex, offset: str, mask: str = "") -> None:
        for component, side in zip(x, sides, strict=True):
            self.store(component, f"{side}[$e {offset}]", mask)

    def row_pair_offset(self, element: str) -> str:
        """Offset of a run of elements of a row pair."""
        return self.value(f"add i64 (mul i64 {element}, %width), (mul i64 %g, {elements_per_row(self.real_type)})")

    def offsets(self, entry: _Emitter, count: int, start: str, step: str) -> list[tuple[str, str]]:
        """Offsets of strided elements, as bases that several share and distances from these."""
        steps = [entry.value(f"mul i64 {step}, {k}") for k in range(min(count, _SHARED_BASES))]
        starts = [self.value(f"add i64 {start}, (mul i64 {step}, {k})") for k in range(0, count, _SHARED_BASES)]
        return [(start, step) for start in starts for step in steps][:count]

    def address(self, array: str, offset: tuple[str, str]) -> str:
        return self.at(self.at(array, offset[0]), offset[1])

    def masked_addresses(self, array: str, offset: tuple[str, str]) -> list[tuple[str, str]]:
        """Addresses of two successive vectors, and their masks."""
        at = self.address(array, offset)
        return [(at, "%near_mask"), (self.at(at, "$n"), "%far_mask")]

    def load_lanes(self, sides: Complex, offsets: list[tuple[str, str]]) -> list[Complex]:
        ends = [[self.address(side, offset) for side in sides] for offset in offsets]
        return [(self.load(re), self.load(im)) for re, im in ends]

    def store_with_twiddles(self, outputs: list[Complex], offsets: list[tuple[str, str]], twiddles: str) -> None:
        """Store the outputs of a butterfly, all but the first one times twiddle factors."""
        for t, (value, offset) in enumerate(zip(outputs, offsets, strict=True)):
            product = self.multiply(value, self.broadcast_complex(twiddles, str(2 * (t - 1)))) if t else value
            for side, x in zip(_TO, product, strict=True):
                self.store(x, self.address(side, offset))


@functools.cache
def stockham_pass(real_type: str, radix: int) -> str:
    """Declare `pass(lanes, roots, plan)` and return its symbol: one Stockham pass for transforms of any length."""
    if radix > MAX_UNROLLED_RADIX:
        return _large_prime_pass(real_type)
    entry, row_code, lane = _Emitter(real_type, "entry"), _Emitter(real_type, "row_code"), _Emitter(real_type)
    stride = entry.value("mul i64 %pass_sublength, %pass_stride")
    row = row_code.value("mul i64 %p, %pass_stride")
    twiddles = row_code.at("%roots", f"(mul i64 %p, {2 * (radix - 1)})")
    x = lane.load_lanes(_FROM, lane.offsets(entry, radix, lane.value(f"add i64 {row}, %q"), stride))
    out = lane.value(f"add i64 (mul i64 {row}, {radix}), %q")
    lane.store_with_twiddles(_butterfly(lane, x), lane.offsets(entry, radix, out, "%pass_stride"), twiddles)
    return _declare_pass(f"fourier_pass_{real_type}_{radix}", real_type, entry.code, row_code.code, lane.code)


def _declare_pass(name: str, real_type: str, entry: list[str], row_code: list[str], lane: list[str]) -> str:
    """A pass from its text before the loops, for each row, and for each vector of lanes."""
    text = f"""
define void @routine(ptr %lanes, ptr %all_roots, ptr %plan) nounwind {{
{_LOAD_PASS_ARGUMENTS}
  %roots = getelementptr $e, ptr %all_roots, i64 %pass_roots
{chr(10).join(entry)}
  for %p from 0 below %pass_sublength by 1
{chr(10).join(row_code)}
  for %q from 0 below %pass_stride by $n
{chr(10).join(lane)}
  end %q
  end %p
  ret void
}}
"""
    return _declare(name, real_type, text)


@functools.cache
def first_pass_of_lanes(real_type: str, radix: int, backward: bool) -> str:
    """Declare `first(from, lanes, roots, plan, arguments)` and return its symbol: a first pass that reads columns of
    complex numbers, `step` apart, as lanes, and zeros beyond `count`. The inverse exchanges real and imaginary parts. A
    pass of radix 1 is a copy."""
    entry, row_code, e = _Emitter(real_type, "entry"), _Emitter(real_type, "row_code"), _Emitter(real_type)
    stride = entry.value("mul i64 %pass_sublength, %step_words")
    twiddles = row_code.at("%roots", f"(mul i64 %p, {2 * (radix - 1)})")
    start = e.value("add i64 (mul i64 %p, %step_words), %twice")
    x: list[Complex] = []
    for offset in e.offsets(entry, radix, start, stride):
        first, second = (e.load(at, mask) for at, mask in e.masked_addresses("%complex", offset))
        orders = ("$odd", "$even") if backward else ("$even", "$odd")
        re, im = (e.value(f"shufflevector $v {first}, $v {second}, <$n x i32> <{order}>") for order in orders)
        x.append((re, im))
    out = e.value(f"add i64 (mul i64 (mul i64 %p, %width), {radix}), %j")
    e.store_with_twiddles(_butterfly(e, x), e.offsets(entry, radix, out, "%width"), twiddles)
    text = _lane_text(entry, row_code, e, "%pass_sublength")
    return _declare(f"fourier_enter_{real_type}_{radix}_{backward}", real_type, text)


@functools.cache
def last_pass_of_lanes(real_type: str, radix: int, backward: bool, has_twiddles: bool) -> str:
    """Declare `last(to, lanes, scale, plan, arguments)` and return its symbol: a last pass that writes such columns;
    the inverse is scaled.

    With `has_twiddles`, `last(to, lanes, row twiddles, plan, arguments, element twiddles)` multiplies by two twiddle
    factors, one for each row and one for each element.
    """
    entry, row_code, e = _Emitter(real_type, "entry"), _Emitter(real_type, "row_code"), _Emitter(real_type)
    size = entry.value("udiv i64 %pass_stride, %width")
    stride = entry.value(f"mul i64 {size}, %step_words")
    start = e.value("add i64 (mul i64 %p, %width), %j")
    offsets = e.offsets(entry, radix, start, "%pass_stride")
    outputs = _butterfly(e, e.load_lanes(_FROM, offsets))
    if backward:
        outputs = [(im, re) for re, im in outputs]
    if has_twiddles:
        cells = e.value("mul i64 %rows, %width")
        for t, offset in enumerate(offsets):
            row = e.broadcast_complex("%roots", f"(mul i64 (add i64 %p, (mul i64 {size}, {t})), 2)")
            cell = [e.load(e.address(side, offset)) for side in ("%cells", e.at("%cells", cells))]
            outputs[t] = e.multiply(e.multiply(outputs[t], row), (cell[0], cell[1]))
    elif backward:
        factor = e.broadcast(e.value("load $e, ptr %roots"))
        outputs = [(e.value(f"fmul $v {re}, {factor}"), e.value(f"fmul $v {im}, {factor}")) for re, im in outputs]
    out = e.value("add i64 (mul i64 %p, %step_words), %twice")
    for (re, im), offset in zip(outputs, e.offsets(entry, radix, out, stride), strict=True):
        for order, (at, mask) in zip(
            ("$interleave_low", "$interleave_high"), e.masked_addresses("%complex", offset), strict=True
        ):
            e.store(e.value(f"shufflevector $v {re}, $v {im}, <$n x i32> <{order}>"), at, mask)
    text = _lane_text(entry, row_code, e, size, ", ptr noalias %cells" if has_twiddles else "")
    return _declare(f"fourier_leave_{real_type}_{radix}_{backward}_{has_twiddles}", real_type, text)


def _lane_text(entry: _Emitter, row_code: _Emitter, lane: _Emitter, size: str, extra: str = "") -> str:
    """Loops over rows and over vectors of lanes, with masks of valid lanes."""
    return f"""
define void @routine(ptr %complex, ptr noalias %lanes, ptr noalias %roots, ptr %plan, ptr %numbers{extra}) nounwind {{
{_LOAD_PASS_ARGUMENTS}
{load_words("numbers", LANE_ARGUMENTS)}
  %words = mul i64 %count, 2
  %step_words = mul i64 %step, 2
{chr(10).join(entry.code)}
  for %p from 0 below {size} by 1
{chr(10).join(row_code.code)}
  for %j from 0 below %count by $n
  %twice = mul i64 %j, 2
  %near_mask = call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 %twice, i64 %words)
  %far_mask = call $mask @llvm.get.active.lane.mask.v$ni1.i64(i64 (add i64 %twice, $n), i64 %words)
{chr(10).join(lane.code)}
  end %j
  end %p
  ret void
}}
"""


@functools.cache
def first_pass_of_row_pairs(real_type: str, rows: RowForm, backward: bool) -> str:
    """Declare `first(from, lanes, roots, plan, arguments, factors)` and return its symbol: a first pass that reads rows
    of complex numbers, `line_pitch` words apart, two at a time as interleaved lanes.

    Vectors hold runs of elements; the outputs for a run are transposed, so that a run of the result is a vector. The
    last run may overlap the one before. The inverse exchanges real and imaginary parts.
    """
    e, radix = _Emitter(real_type), elements_per_row(real_type)
    start = e.value(f"call i64 @llvm.smin.i64(i64 %p, i64 (sub i64 %pass_sublength, {radix}))")
    x = [_row_pair_element(e, rows, start, k) for k in range(radix)]
    outputs = _butterfly(e, [(im, re) for re, im in x] if backward else x)
    twiddles = e.value(f"mul i64 %p, {2 * (radix - 1)}")
    for t in range(1, radix):
        root = e.broadcast_to_rows("%roots", e.value(f"add i64 {twiddles}, {(t - 1) * lanes_per_vector(real_type)}"))
        outputs[t] = e.multiply(outputs[t], root)
    row = e.value(f"mul i64 {start}, {(after := e.value(f'mul i64 %pass_stride, {radix}'))}")
    offset = e.value(f"add i64 {row}, (mul i64 %g, {radix})")
    for y, side in zip(map(e.transpose_pairs, map(list, zip(*outputs, strict=True))), _TO, strict=True):
        for i, value in enumerate(y):
            e.store(value, f"{side}[$e (add i64 {offset}, (mul i64 {after}, {i}))]")
    return _declare(f"fourier_first_{real_type}_{rows}_{backward}", real_type, _row_pair_text("%pass_sublength", e))


def _row_pair_element(e: _Emitter, rows: RowForm, start: str, k: int) -> Complex:
    """Input k of a butterfly of the first pass, for a run.

    From the half spectrum of a real signal, which has one element padding, twice the transform of even elements + i odd
    elements is computed; the factors are twiddles for that. Padded rows and lanes are multiplied by a factor for each
    element.
    """
    steps, size = (e.value(f"mul i64 %pass_sublength, {count}") for count in (k, elements_per_row(e.real_type)))
    element = e.value(f"add i64 {start}, {steps}")
    offset = e.value(f"mul i64 {element}, 2")
    if rows == "lanes":
        return e.multiply(e.load_pair(_FROM, e.row_pair_offset(element)), e.broadcast_to_rows("%factors", offset))
    if rows == "padded":
        value = e.interleave(*e.load_pair(_LINES, offset, e.mask(offset, "%line_pitch")))
        return e.multiply(value, e.broadcast_to_rows("%factors", offset))
    value = e.interleave(*e.load_pair(_LINES, offset))
    if rows == "full":
        return value
    mirror = e.value(f"sub i64 {size}, (add i64 {element}, {elements_per_row(e.real_type) - 1})")
    mirrored = e.interleave(*e.load_pair(_LINES, f"(mul i64 {mirror}, 2)"), mirrored=True)
    if k == 0:  # the imaginary parts of the first and the last element are ignored
        ends = e.value(f"select i1 (icmp eq i64 {start}, 0), $mask <$first_two>, $mask zeroinitializer")
        zero = f"select $mask {ends}, $v zeroinitializer, $v"
        value, mirrored = ((re, e.value(f"{zero} {im}")) for re, im in (value, mirrored))
    sums, odd = e.with_conjugate(value, mirrored)
    return e.multiply(odd, e.broadcast_to_rows("%factors", offset), sums)


@functools.cache
def last_pass_of_row_pairs(real_type: str, radix: int, rows: RowForm, backward: bool) -> str:
    """Declare `last(to, lanes, roots, plan, arguments, factors)` and return its symbol: a last pass that writes such
    rows. Padded rows are multiplied by a factor for each element, others, in the inverse, by one factor."""
    e = _Emitter(real_type)
    offset = e.row_pair_offset("%p")
    offsets = [e.value(f"add i64 {offset}, (mul i64 %pass_stride, {k})") for k in range(radix)]
    outputs = _butterfly(e, [e.load_pair(_FROM, offset) for offset in offsets])
    factor = e.broadcast(e.value("load $e, ptr %factors"))
    for t, (re, im) in enumerate(outputs):
        offset, mask = e.value(f"mul i64 (add i64 %p, (mul i64 %size, {t})), 2"), ""
        re, im = (im, re) if backward else (re, im)
        if rows == "padded":
            re, im = e.multiply((re, im), e.broadcast_to_rows("%factors", offset))
            mask = e.mask(offset, "%line_pitch")
        elif backward:
            re, im = (e.value(f"fmul $v {x}, {factor}") for x in (re, im))
        e.store_pair(e.interleave(re, im), _LINES, offset, mask)
    return _declare(f"fourier_last_{real_type}_{radix}_{rows}_{backward}", real_type, _row_pair_text("%size", e))


@functools.cache
def split_real_row_pairs(real_type: str) -> str:
    """Declare `split(to, lanes, roots, plan, arguments, factors)` and return its symbol: from transforms of even
    elements + i odd elements of real signals to their half spectra, which have one element padding.

    The values for k give the mirror image, too, which is the end of one run and the first element of the next (of the
    first run after the last one). Factors are the signal's twiddles times -i / 2. The plan's pass has radix 1.
    """
    e, words = _Emitter(real_type), lanes_per_vector(real_type)
    offset = e.row_pair_offset("%p")
    mirror = e.value("sub i64 %pass_stride, (mul i64 %p, %width)")
    is_first = e.value("icmp eq i64 %p, 0")
    run = elements_per_row(real_type)
    next_offset = e.value(f"add i64 (select i1 {is_first}, i64 0, i64 {mirror}), (mul i64 %g, {run})")
    last_offset = e.value(f"add i64 (sub i64 {mirror}, (mul i64 %width, {run})), (mul i64 %g, {run})")
    order = [0, 1, *(words + 2 * (run - k) + side for k in range(1, run) for side in (0, 1))]
    orders = ", ".join(f"i32 {k}" for k in order)
    x, next_run, last_run = (e.load_pair(_FROM, at) for at in (offset, next_offset, last_offset))
    mirrored = [
        e.value(f"shufflevector $v {first}, $v {second}, <$n x i32> <{orders}>")
        for first, second in zip(next_run, last_run, strict=True)
    ]
    sums, odd = e.with_conjugate(x, (mirrored[0], mirrored[1]))
    odd = e.multiply(odd, e.broadcast_to_rows("%factors", e.value("mul i64 %p, 2")))
    half = e.constant(0.5)
    e.store_pair(e.interleave(*e.add_scaled(odd, sums, half)), _LINES, "(mul i64 %p, 2)")
    negated = e.value(f"fneg $v {odd[0]}"), odd[1]
    conjugate = e.multiply_add(sums[0], half, negated[0]), e.multiply_add(sums[1], e.constant(-0.5), negated[1])
    offset = e.value(f"sub i64 %size, (add i64 %p, {elements_per_row(real_type) - 1})")
    e.store_pair(e.interleave(*conjugate, mirrored=True), _LINES, f"(mul i64 {offset}, 2)")
    return _declare(f"fourier_halves_{real_type}", real_type, _row_pair_text("%to_middle", e))


def _row_pair_text(size: str, body: _Emitter) -> str:
    """Loops over pairs of rows and over runs of elements; an odd last row is paired with itself."""
    extra = "ptr noalias %complex, ptr noalias %lanes, ptr noalias %roots"
    return f"""
define void @routine({extra}, ptr %plan, ptr %numbers, ptr noalias %factors) nounwind {{
{_LOAD_PASS_ARGUMENTS}
{load_words("numbers", ROW_PAIR_ARGUMENTS)}
  %size = udiv i64 %pass_stride, %width
  %to_middle = add i64 (lshr i64 %size, 1), 1
  %last = sub i64 %count, 1
  for %g from 0 below %count by 2
  %other = call i64 @llvm.smin.i64(i64 (add i64 %g, 1), i64 %last)
  %line0 = getelementptr $e, ptr %complex, i64 (mul i64 %line_pitch, %g)
  %line1 = getelementptr $e, ptr %complex, i64 (mul i64 %line_pitch, %other)
  for %p from 0 below {size} by {elements_per_row(body.real_type)}
{chr(10).join(body.code)}
  end %p
  end %g
  ret void
}}
"""


def sum_order(radix: int) -> np.ndarray[Any, Any]:
    """For a large prime radix, the outputs t in the order of their computation: each is the sum over pairs k of even
    parts times cos(2 pi k t / radix) and odd parts times the sine. The last group repeats the last sum."""
    half = radix // 2
    return np.minimum(np.arange(-(-half // SUMS_PER_GROUP) * SUMS_PER_GROUP) + 1, half).reshape(-1, SUMS_PER_GROUP)


@functools.cache
def _large_prime_pass(real_type: str) -> str:
    """A pass of any large prime radix: a group of sums at a time, whose factors follow the twiddle factors in
    memory."""
    entry = f"""
  %half = lshr i64 %pass_radix, 1
  %after_half = add i64 %half, 1
  %groups = udiv i64 (add i64 %half, {SUMS_PER_GROUP - 1}), {SUMS_PER_GROUP}
  %step = mul i64 %pass_sublength, %pass_stride
  %root_words = mul i64 (sub i64 %pass_radix, 1), 2
  %factor_words = mul i64 %half, {2 * SUMS_PER_GROUP}
  %table = getelementptr $e, ptr %roots, i64 (mul i64 %pass_sublength, %root_words)"""
    row_code = """
  %row_roots = getelementptr $e, ptr %roots, i64 (mul i64 %p, %root_words)
  %row = mul i64 %p, %pass_stride
  %out_row = mul i64 %row, %pass_radix"""
    pair, end = _Emitter(real_type, "pair"), _Emitter(real_type, "end")
    first = pair.value("add i64 (mul i64 %k, %step), %at")
    second = pair.value("add i64 (mul i64 (sub i64 %pass_radix, %k), %step), %at")
    a, b = pair.load_pair(_FROM, first), pair.load_pair(_FROM, second)
    even, odd = pair.add(a, b), pair.add(a, b, "fsub")
    offset = pair.value(f"mul i64 (sub i64 %k, 1), {2 * SUMS_PER_GROUP}")
    carried = {"all": pair.add(("%all_re", "%all_im"), even)}
    for i in range(SUMS_PER_GROUP):
        cosine, sine = pair.broadcast_complex("%factors", f"(add i64 {offset}, {2 * i})")
        for name, x, factor in ((f"even{i}", even, cosine), (f"odd{i}", odd, sine)):
            carried[name] = pair.add_scaled((f"%{name}_re", f"%{name}_im"), x, factor)
    phis = [
        f"  %{name}_{side} = phi $v [ {'zeroinitializer' if name[0] == 'o' else f'%x_{side}'}, %k.begin ], "
        f"[ {updated}, %k.end ]"
        for name, both in carried.items()
        for side, updated in zip(("re", "im"), both, strict=True)
    ]

    def store_row(t: str, x: Complex) -> None:
        end.store_pair(x, _TO, end.value(f"add i64 (mul i64 {t}, %pass_stride), %out"))

    store_row("0", carried["all"])
    for i in range(SUMS_PER_GROUP):
        t = end.value(f"call i64 @llvm.smin.i64(i64 (add i64 (mul i64 %g, {SUMS_PER_GROUP}), {i + 1}), i64 %half)")
        rows = t, end.value(f"sub i64 %pass_radix, {t}")
        for row, x in zip(rows, end.rotate(carried[f"even{i}"], carried[f"odd{i}"]), strict=True):
            store_row(row, end.multiply(x, end.broadcast_complex("%row_roots", f"(mul i64 (sub i64 {row}, 1), 2)")))
    lane = f"""
  %at = add i64 %row, %q
  %out = add i64 %out_row, %q
  %x_re = load $v, ptr %re[$e %at], align $bytes
  %x_im = load $v, ptr %im[$e %at], align $bytes
  for %g from 0 below %groups by 1
  %factors = getelementptr $e, ptr %table, i64 (mul i64 %g, %factor_words)
  for %k from 1 below %after_half by 1
{chr(10).join([*phis, *pair.code])}
  end %k
{chr(10).join(end.code)}
  end %g"""
    return _declare_pass(f"fourier_pass_{real_type}", real_type, [entry], [row_code], [lane])


def _butterfly(e: _Emitter, x: list[Complex]) -> list[Complex]:
    """The discrete Fourier transform of a few values."""
    n = len(x)
    if n == 1:
        return x
    if n == 2:
        return [e.add(x[0], x[1]), e.add(x[0], x[1], "fsub")]
    if n == 4:
        a, b = e.add(x[0], x[2]), e.add(x[0], x[2], "fsub")
        c, d = e.add(x[1], x[3]), e.add(x[1], x[3], "fsub")
        minus, plus = e.rotate(b, d)
        return [e.add(a, c), minus, e.add(a, c, "fsub"), plus]
    if n == 8:
        return _butterfly_of_eight(e, x)
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
        minus, plus = e.rotate(even, odd)
        first.append(minus)
        last.append(plus)
    return [*first, *reversed(last)]


def _butterfly_of_eight(e: _Emitter, x: list[Complex]) -> list[Complex]:
    """Radix-8 butterfly: the even outputs are the transform of sums of values four apart; the odd outputs come from
    their differences times powers of the eighth root of unity, whose factor sqrt(1/2) is folded into the last
    additions."""
    sums, (a, b, c, d) = (([e.add(x[k], x[k + 4], op) for k in range(4)]) for op in ("fadd", "fsub"))
    b = e.value(f"fadd $v {b[0]}, {b[1]}"), e.value(f"fsub $v {b[1]}, {b[0]}")
    d = e.value(f"fsub $v {d[0]}, {d[1]}"), e.value(f"fadd $v {d[0]}, {d[1]}")
    minus, plus = e.rotate(a, c)
    difference, total = e.add(b, d, "fsub"), e.add(b, d)
    root, negative = (e.constant(side * math.sqrt(0.5)) for side in (1, -1))
    odd = [
        e.add_scaled(minus, difference, root),
        (e.multiply_add(total[1], root, plus[0]), e.multiply_add(total[0], negative, plus[1])),
        e.add_scaled(minus, difference, negative),
        (e.multiply_add(total[1], negative, plus[0]), e.multiply_add(total[0], root, plus[1])),
    ]
    return [y for pair in zip(_butterfly(e, sums), odd, strict=True) for y in pair]
