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
from typing import Any

import numpy as np

from tinyxla.backends.numba.llvm_printer import routine_name
from tinyxla.backends.numba.native import loaded_words, provide_llvm, vector_bytes

PLAN = ("radix", "part", "stride", "roots", "re", "im", "to_re", "to_im")  # what a pass is told
SUMMED = ("times", "rows", "groups", "width")  # what `combine` is told
LANES = ("rows", "step", "count", "width")
WRITTEN_OUT = 7  # the largest prime whose sums are
SUMS = 4  # that are made at once
_SCALARS = {"f32": "float", "f64": "double"}
_BYTES = {"f32": 4, "f64": 8}


def vector(part: str) -> int:
    """Lanes of a vector."""
    return vector_bytes() // _BYTES[part]


@functools.cache
def split(part: str) -> str:
    """(re, im, from, numbers): rows of complex numbers, `step` apart, as lanes; zero beyond `count`."""
    body = """
  %mask = call <$both x i1> @llvm.get.active.lane.mask.v${both}i1.i32(i32 %first_word, i32 %words)
  %pairs = call $pairs @llvm.masked.load.v${both}$t.p0(ptr %at, i32 $bytes, <$both x i1> %mask, $pairs zeroinitializer)
  %re_part = shufflevector <$both x $e> %pairs, <$both x $e> poison, <$n x i32> <$even>
  %im_part = shufflevector <$both x $e> %pairs, <$both x $e> poison, <$n x i32> <$odd>
  store <$n x $e> %re_part, ptr %re_at, align $bytes
  store <$n x $e> %im_part, ptr %im_at, align $bytes
"""
    return _provided(f"fourier_split_{part}", "move", _moving(part, body, ""))


@functools.cache
def join(part: str, turned: bool) -> str:
    """(re, im, to, scale, numbers): lanes as rows of complex numbers, times a number. Where they are `turned`,
    (re, im, to, scale, turns of rows, turns of elements, numbers), also times two roots of unity: one for each row, and
    one for each element."""
    body = """
  %factor = load $e, ptr %scale
  %factor_one = insertelement <$n x $e> poison, $e %factor, i64 0
  %factors = shufflevector <$n x $e> %factor_one, <$n x $e> poison, <$n x i32> zeroinitializer
  %re0 = load <$n x $e>, ptr %re_at, align $bytes
  %im0 = load <$n x $e>, ptr %im_at, align $bytes
  %re1 = fmul <$n x $e> %re0, %factors
  %im1 = fmul <$n x $e> %im0, %factors
"""
    found = ("%re1", "%im1")
    if turned:
        emitter = _Emitter(part)
        twice = "%row_twice"
        row = emitter.spread_pair("%row_turns", twice)
        cell = (
            emitter.value("load $v, ptr %cell_re, align $bytes"),
            emitter.value("load $v, ptr %cell_im, align $bytes"),
        )
        found = emitter.times(emitter.times(found, row), cell)
        body += "  %row_twice = mul i64 %k, 2\n" + "\n".join(emitter.lines) + "\n"
    body += f"""
  %pairs = shufflevector <$n x $e> {found[0]}, <$n x $e> {found[1]}, <$both x i32> <$woven>
  %mask = call <$both x i1> @llvm.get.active.lane.mask.v${{both}}i1.i32(i32 %first_word, i32 %words)
  call void @llvm.masked.store.v${{both}}$t.p0(<$both x $e> %pairs, ptr %at, i32 $bytes, <$both x i1> %mask)
"""
    given = "ptr %scale, ptr %row_turns, ptr %cell_turns, " if turned else "ptr %scale, "
    return _provided(f"fourier_join_{part}_{turned}", "move", _moving(part, body, given))


def _moving(part: str, body: str, given: str) -> str:
    """Loops over rows, and in these over vectors of lanes."""
    head = f"define void @move(ptr noalias %re, ptr noalias %im, ptr noalias %complex, {given}ptr %numbers) nounwind {{"
    text = (
        "\n".join([head, "entry:", loaded_words("numbers", LANES)])
        + """
  %twice_count = mul i64 %count, 2
  %words = trunc i64 %twice_count to i32
  %step_words = mul i64 %step, 2
  br label %row
row:
  %k = phi i64 [ 0, %entry ], [ %k_next, %row_end ]
  %line = mul i64 %k, %step_words
  %row_at = mul i64 %k, %width
  br label %lane
lane:
  %j = phi i64 [ 0, %row ], [ %j_next, %lane ]
  %twice = mul i64 %j, 2
  %first_word = trunc i64 %twice to i32
  %word = add i64 %line, %twice
  %at = getelementptr $e, ptr %complex, i64 %word
  %place = add i64 %row_at, %j
  %re_at = getelementptr $e, ptr %re, i64 %place
  %im_at = getelementptr $e, ptr %im, i64 %place
"""
    )
    if "%cell_turns" in given:
        text += """
  %cell_re = getelementptr $e, ptr %cell_turns, i64 %place
  %cells = mul i64 %rows, %width
  %cell_im = getelementptr $e, ptr %cell_re, i64 %cells
"""
    text += (
        body
        + """
  %j_next = add i64 %j, $n
  %j_more = icmp slt i64 %j_next, %count
  br i1 %j_more, label %lane, label %row_end
row_end:
  %k_next = add i64 %k, 1
  %k_more = icmp slt i64 %k_next, %rows
  br i1 %k_more, label %row, label %done
done:
  ret void
}
declare <$both x i1> @llvm.get.active.lane.mask.v${both}i1.i32(i32, i32)
declare <$both x $e> @llvm.masked.load.v${both}$t.p0(ptr, i32, <$both x i1>, <$both x $e>)
declare void @llvm.masked.store.v${both}$t.p0(<$both x $e>, ptr, i32, <$both x i1>)
"""
    )
    return _filled(part, text) + _declarations(part)


def _filled(part: str, text: str) -> str:
    if "$" in text:
        for name, value in _words(part).items():
            text = text.replace(name, value)
    return text


@functools.cache
def _words(part: str) -> dict[str, str]:
    """What stands for a part's types and numbers of elements."""
    n = vector(part)

    def order(indices: Sequence[int]) -> str:
        return ", ".join(f"i32 {k}" for k in indices)

    return {
        "$pairs": f"<{2 * n} x {_SCALARS[part]}>",
        "${both}": str(2 * n),
        "$both": str(2 * n),
        "$even": order(range(0, 2 * n, 2)),
        "$odd": order(range(1, 2 * n, 2)),
        "$woven": order([k // 2 + n * (k % 2) for k in range(2 * n)]),
        "$bytes": str(_BYTES[part]),
        "$v": f"<{n} x {_SCALARS[part]}>",
        "$n": str(n),
        "$e": _SCALARS[part],
        "$t": part,
    }


def _declarations(part: str) -> str:
    return _filled(part, "declare $v @llvm.fmuladd.v$n$t($v, $v, $v)\n")


def _provided(name: str, function: str, text: str) -> str:
    provide_llvm(routine_name(name), text, function, is_final=True)
    return name


@functools.cache
def combine(part: str) -> str:
    """(lanes, places, factors): sums of rows of lanes, each times a number. The places start with how many times that
    is done, of how many rows, for how many groups of sums and for how many lanes; then follow for each time those of
    the rows and of the sums. A sum has a factor for each row; the sums of a group take turns."""
    term, end = _Emitter(part, "term"), _Emitter(part, "end")
    place = term.value("load i64, ptr " + term.value("getelementptr i64, ptr %row_places, i64 %i"))
    x = term.load(term.at("%lanes", term.value(f"add i64 {place}, %q")))
    first = term.value(f"mul i64 %i, {SUMS}")
    sums: list[str] = []
    for j in range(SUMS):
        at = term.at("%group_factors", term.value(f"add i64 {first}, {j}"))
        sums.append(term.multiply_add(x, term.spread(term.value(f"load $e, ptr {at}")), f"%sum{j}"))
        place = end.value("load i64, ptr " + end.value(f"getelementptr i64, ptr %group_places, i64 {j}"))
        end.store(sums[j : j + 1], [end.at("%lanes", end.value(f"add i64 {place}, %q"))])
    phis = [f"  %sum{j} = phi $v [ zeroinitializer, %lane ], [ {x}, %term ]" for j, x in enumerate(sums)]
    text = f"""define void @combine(ptr %lanes, ptr noalias %places, ptr noalias %factors) nounwind {{
entry:
{loaded_words("places", SUMMED)}
  %first_places = getelementptr i64, ptr %places, i64 {len(SUMMED)}
  %many_factors = mul i64 %rows, {SUMS}
  br label %time
time:
  %p = phi i64 [ 0, %entry ], [ %p_next, %time_end ]
  %row_places = phi ptr [ %first_places, %entry ], [ %next_places, %time_end ]
  %time_factors = phi ptr [ %factors, %entry ], [ %next_factors, %time_end ]
  %sum_places = getelementptr i64, ptr %row_places, i64 %rows
  br label %group
group:
  %g = phi i64 [ 0, %time ], [ %g_next, %group_end ]
  %group_places = phi ptr [ %sum_places, %time ], [ %next_places, %group_end ]
  %group_factors = phi ptr [ %time_factors, %time ], [ %next_factors, %group_end ]
  br label %lane
lane:
  %q = phi i64 [ 0, %group ], [ %q_next, %lane_end ]
  br label %term
term:
  %i = phi i64 [ 0, %lane ], [ %i_next, %term ]
{chr(10).join([*phis, *term.lines])}
  %i_next = add i64 %i, 1
  %i_more = icmp slt i64 %i_next, %rows
  br i1 %i_more, label %term, label %lane_end
lane_end:
{chr(10).join(end.lines)}
  %q_next = add i64 %q, $n
  %q_more = icmp slt i64 %q_next, %width
  br i1 %q_more, label %lane, label %group_end
group_end:
  %next_places = getelementptr i64, ptr %group_places, i64 {SUMS}
  %next_factors = getelementptr $e, ptr %group_factors, i64 %many_factors
  %g_next = add i64 %g, 1
  %g_more = icmp slt i64 %g_next, %groups
  br i1 %g_more, label %group, label %time_end
time_end:
  %p_next = add i64 %p, 1
  %p_more = icmp slt i64 %p_next, %times
  br i1 %p_more, label %time, label %done
done:
  ret void
}}
"""
    return _provided(f"fourier_combine_{part}", "combine", _filled(part, text) + _declarations(part))


# --- a pass -----------------------------------------------------------------------------------------------------------

Complex = tuple[str, str]


class _Emitter:
    """Collects instructions on vectors, numbering the values they define."""

    def __init__(self, part: str, prefix: str = "v") -> None:
        self.part, self.prefix = part, prefix
        self.lines: list[str] = []

    def value(self, text: str) -> str:
        name = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(_filled(self.part, f"  {name} = {text}"))
        return name

    def add(self, x: Complex, y: Complex, op: str = "fadd") -> Complex:
        return self.value(f"{op} $v {x[0]}, {y[0]}"), self.value(f"{op} $v {x[1]}, {y[1]}")

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return self.value(f"call $v @llvm.fmuladd.v$n$t($v {x}, $v {y}, $v {z})")

    def times(self, x: Complex, y: Complex) -> Complex:
        negative = self.value(f"fneg $v {self.value(f'fmul $v {x[1]}, {y[1]}')}")
        cross = self.value(f"fmul $v {x[1]}, {y[0]}")
        return self.multiply_add(x[0], y[0], negative), self.multiply_add(x[0], y[1], cross)

    def add_scaled(self, x: Complex, y: Complex, factor: str) -> Complex:
        return self.multiply_add(y[0], factor, x[0]), self.multiply_add(y[1], factor, x[1])

    def turned(self, x: Complex, y: Complex) -> tuple[Complex, Complex]:
        """x - i y and x + i y."""
        less = self.value(f"fadd $v {x[0]}, {y[1]}"), self.value(f"fsub $v {x[1]}, {y[0]}")
        more = self.value(f"fsub $v {x[0]}, {y[1]}"), self.value(f"fadd $v {x[1]}, {y[0]}")
        return less, more

    def spread(self, scalar: str) -> str:
        one = self.value(f"insertelement $v poison, $e {scalar}, i64 0")
        return self.value(f"shufflevector $v {one}, $v poison, <$n x i32> zeroinitializer")

    def spread_pair(self, array: str, place: str) -> Complex:
        """A complex number in all lanes."""
        at = self.at(array, place)
        other = self.at(at, "1")
        return self.spread(self.value(f"load $e, ptr {at}")), self.spread(self.value(f"load $e, ptr {other}"))

    def constant(self, value: float) -> str:
        """A number in all lanes; LLVM writes one exactly by the bits of a double."""
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.part == "f32" else value
        return f"splat ({_SCALARS[self.part]} 0x{struct.pack('>d', rounded).hex().upper()})"

    def at(self, array: str, place: str) -> str:
        return self.value(f"getelementptr $e, ptr {array}, i64 {place}")

    def load(self, at: str) -> str:
        return self.value(f"load $v, ptr {at}, align $bytes")

    def store(self, x: Sequence[str], at: Sequence[str]) -> None:
        self.lines += [_filled(self.part, f"  store $v {u}, ptr {v}, align $bytes") for u, v in zip(x, at, strict=True)]


def _begun(part: str) -> str:
    """A pass up to its first loop, with the addresses of what it is told."""
    sides = ("re", "im", "to_re", "to_im")
    text = f"""
define void @pass(ptr %lanes, ptr %all_roots, ptr %plan) nounwind {{
entry:
{loaded_words("plan", PLAN, prefix="at_")}
  %roots = getelementptr $e, ptr %all_roots, i64 %at_roots
"""
    return _filled(part, text + "".join(f"  %{x} = getelementptr $e, ptr %lanes, i64 %at_{x}\n" for x in sides))


@functools.cache
def passed(part: str, radix: int) -> str:
    """(lanes, roots, plan): one pass of transforms of any lengths; the routine's name."""
    if radix > WRITTEN_OUT:
        return _pass_of_sums(part)
    entry, turn, lane = _Emitter(part, "entry"), _Emitter(part, "turn"), _Emitter(part)
    apart = entry.value("mul i64 %at_part, %at_stride")
    steps = [[entry.value(f"mul i64 {k}, {step}") for k in range(radix)] for step in (apart, "%at_stride")]
    row = turn.value("mul i64 %p, %at_stride")
    rows = (row, turn.value(f"mul i64 {row}, {radix}"))
    turns = turn.at("%roots", turn.value(f"mul i64 %p, {2 * (radix - 1)}"))
    roots = [turn.spread_pair(turns, str(2 * t)) for t in range(radix - 1)]
    ends: list[list[Complex]] = []  # the addresses of what is read, and of what is written
    for row, offsets, sides in zip(rows, steps, (("re", "im"), ("to_re", "to_im")), strict=True):
        place = lane.value(f"add i64 {row}, %q")
        re, im = (lane.at(f"%{side}", place) for side in sides)
        ends.append([(lane.at(re, offset), lane.at(im, offset)) for offset in offsets])
    x = [(lane.load(re), lane.load(im)) for re, im in ends[0]]
    for t, (value, at) in enumerate(zip(_butterfly(lane, x), ends[1], strict=True)):
        lane.store(lane.times(value, roots[t - 1]) if t else value, at)
    lines = [
        _begun(part),
        *entry.lines,
        "  br label %turn",
        "turn:",
        "  %p = phi i64 [ 0, %entry ], [ %p_next, %turn_end ]",
        *turn.lines,
        "  br label %lane",
        "lane:",
        "  %q = phi i64 [ 0, %turn ], [ %q_next, %lane ]",
        *lane.lines,
        _filled(part, "  %q_next = add i64 %q, $n"),
        "  %q_more = icmp slt i64 %q_next, %at_stride",
        "  br i1 %q_more, label %lane, label %turn_end",
        "turn_end:",
        "  %p_next = add i64 %p, 1",
        "  %p_more = icmp slt i64 %p_next, %at_part",
        "  br i1 %p_more, label %turn, label %done",
        "done:",
        "  ret void",
        "}",
        _declarations(part),
    ]
    return _provided(f"fourier_pass_{part}_{radix}", "pass", "\n".join(lines))


def sums_of(radix: int) -> np.ndarray[Any, Any]:
    """For a large prime radix, in the order of their use, the numbers t of the sums: each is that of the pairs k, as
    even parts times cos(2 pi k t / radix) and odd ones times the sine. The last group repeats the last sum."""
    half = radix // 2
    return np.minimum(np.arange(-(-half // SUMS) * SUMS) + 1, half).reshape(-1, SUMS)


@functools.cache
def _pass_of_sums(part: str) -> str:
    """The same for any large prime: a few sums at once, with their factors in a table that follows the roots."""
    pair, end = _Emitter(part, "pair"), _Emitter(part, "end")

    def loaded(row: str) -> Complex:
        return pair.load(pair.at("%re", row)), pair.load(pair.at("%im", row))

    near = pair.value(f"add i64 {pair.value('mul i64 %k, %step')}, %at")
    mirrored = pair.value("sub i64 %at_radix, %k")
    a, b = loaded(near), loaded(pair.value(f"add i64 {pair.value(f'mul i64 {mirrored}, %step')}, %at"))
    even, odd = pair.add(a, b), pair.add(a, b, "fsub")
    place = pair.value(f"mul i64 {pair.value('sub i64 %k, 1')}, {2 * SUMS}")
    carried = {"all": pair.add(("%all_re", "%all_im"), even)}
    for i in range(SUMS):
        cosine, sine = pair.spread_pair("%factors", pair.value(f"add i64 {place}, {2 * i}"))
        for name, x, factor in ((f"even{i}", even, cosine), (f"odd{i}", odd, sine)):
            carried[name] = pair.add_scaled((f"%{name}_re", f"%{name}_im"), x, factor)
    phis = [
        f"  %{name}_{side} = phi $v [ {'zeroinitializer' if name[0] == 'o' else f'%x_{side}'}, %group ], "
        f"[ {updated}, %pair ]"
        for name, both in carried.items()
        for side, updated in zip(("re", "im"), both, strict=True)
    ]

    def put(t: str, x: Complex) -> None:
        row = end.value(f"add i64 {end.value(f'mul i64 {t}, %at_stride')}, %out")
        end.store(x, (end.at("%to_re", row), end.at("%to_im", row)))

    put("0", carried["all"])
    for i in range(SUMS):
        t = end.value(f"add i64 {end.value(f'mul i64 %g, {SUMS}')}, {i + 1}")
        t = end.value(f"call i64 @llvm.smin.i64(i64 {t}, i64 %half)")
        for row, x in zip(
            (t, end.value(f"sub i64 %at_radix, {t}")),
            end.turned(carried[f"even{i}"], carried[f"odd{i}"]),
            strict=True,
        ):
            root = end.value(f"mul i64 {end.value(f'sub i64 {row}, 1')}, 2")
            put(row, end.times(x, end.spread_pair("%turn_roots", root)))
    text = f"""{_begun(part)}
  %half = ashr i64 %at_radix, 1
  %more_sums = add i64 %half, {SUMS - 1}
  %groups = sdiv i64 %more_sums, {SUMS}
  %step = mul i64 %at_part, %at_stride
  %others = sub i64 %at_radix, 1
  %root_words = mul i64 %others, 2
  %factor_words = mul i64 %half, {2 * SUMS}
  %table_words = mul i64 %at_part, %root_words
  %table = getelementptr $e, ptr %roots, i64 %table_words
  br label %turn
turn:
  %p = phi i64 [ 0, %entry ], [ %p_next, %turn_end ]
  %first_root = mul i64 %p, %root_words
  %turn_roots = getelementptr $e, ptr %roots, i64 %first_root
  %row = mul i64 %p, %at_stride
  %out_row = mul i64 %row, %at_radix
  br label %lane
lane:
  %q = phi i64 [ 0, %turn ], [ %q_next, %lane_end ]
  %at = add i64 %row, %q
  %out = add i64 %out_row, %q
  %x_re_at = getelementptr $e, ptr %re, i64 %at
  %x_im_at = getelementptr $e, ptr %im, i64 %at
  %x_re = load $v, ptr %x_re_at, align $bytes
  %x_im = load $v, ptr %x_im_at, align $bytes
  br label %group
group:
  %g = phi i64 [ 0, %lane ], [ %g_next, %group_end ]
  %words = mul i64 %g, %factor_words
  %factors = getelementptr $e, ptr %table, i64 %words
  br label %pair
pair:
  %k = phi i64 [ 1, %group ], [ %k_next, %pair ]
{chr(10).join([*phis, *pair.lines])}
  %k_next = add i64 %k, 1
  %k_more = icmp sle i64 %k_next, %half
  br i1 %k_more, label %pair, label %group_end
group_end:
{chr(10).join(end.lines)}
  %g_next = add i64 %g, 1
  %g_more = icmp slt i64 %g_next, %groups
  br i1 %g_more, label %group, label %lane_end
lane_end:
  %q_next = add i64 %q, $n
  %q_more = icmp slt i64 %q_next, %at_stride
  br i1 %q_more, label %lane, label %turn_end
turn_end:
  %p_next = add i64 %p, 1
  %p_more = icmp slt i64 %p_next, %at_part
  br i1 %p_more, label %turn, label %done
done:
  ret void
}}
declare i64 @llvm.smin.i64(i64, i64)
"""
    return _provided(f"fourier_pass_{part}", "pass", _filled(part, text) + _declarations(part))


def _butterfly(e: _Emitter, x: list[Complex]) -> list[Complex]:
    """The transform of a few numbers."""
    n = len(x)
    if n == 2:
        return [e.add(x[0], x[1]), e.add(x[0], x[1], "fsub")]
    if n == 4:
        a, b = e.add(x[0], x[2]), e.add(x[0], x[2], "fsub")
        c, d = e.add(x[1], x[3]), e.add(x[1], x[3], "fsub")
        less, more = e.turned(b, d)
        return [e.add(a, c), less, e.add(a, c, "fsub"), more]
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
