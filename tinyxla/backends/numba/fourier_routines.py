"""What Fourier transforms are made of, as routines for any sizes, so that no size needs code of its own.

Signals are transformed side by side, in *lanes*: arrays [element, lane] of real and of imaginary parts, with a whole
number of vectors in a row. Each routine takes addresses, the last of which is that of its numbers.

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

PLAN = ("radix", "part", "stride", "roots")  # what `transform` is told of each pass
TRANSFORM = ("passes", "re", "im", "to_re", "to_im")
LANES = ("rows", "step", "count", "width")
WRITTEN_OUT = 13  # the largest prime whose sums are
SUMS = 4  # that are made at once of a larger one
_SCALARS = {"f32": "float", "f64": "double"}
_BYTES = {"f32": 4, "f64": 8}


def vector(part: str) -> int:
    """Lanes of a vector."""
    return vector_bytes() // _BYTES[part]


@functools.cache
def transform(part: str, radices: tuple[int, ...]) -> str:
    """(lanes, roots, plan, numbers): transforms of lengths that these factors make; the routine's name."""
    name = f"fourier_{part}_{'_'.join(map(str, radices))}"
    lines = [
        "define void @transform(ptr %lanes, ptr %roots, ptr %plan, ptr %numbers) nounwind {",
        "entry:",
        loaded_words("numbers", TRANSFORM),
        "  br label %pass",
        "pass:",
        "  %k = phi i64 [ 0, %entry ], [ %next, %passed ]",
        *(f"  %{x}{j} = phi i64 [ %{x}, %entry ], [ %{y}{j}, %passed ]" for j in (0,) for x, y in _SWAPPED),
        f"  %at = mul i64 %k, {len(PLAN)}",
        "  %step = getelementptr i64, ptr %plan, i64 %at",
        loaded_words("step", PLAN, prefix="pass_"),
        f"  %roots_at = getelementptr {_SCALARS[part]}, ptr %roots, i64 %pass_roots",
        *(f"  %{x}_at0 = getelementptr {_SCALARS[part]}, ptr %lanes, i64 %{x}0" for x, _ in _SWAPPED),
    ]
    cases = " ".join(f"i64 {radix}, label %radix{radix}" for radix in radices)
    lines.append(f"  switch i64 %pass_radix, label %passed [ {cases} ]")
    given = ", ".join(f"ptr %{x}_at0" for x, _ in _SWAPPED)
    passes = {radix: routine_name(_pass(part, radix)) for radix in radices}
    for radix, name_of_pass in passes.items():
        lines += [
            f"radix{radix}:",
            f"  call void @{name_of_pass}({given}, ptr %roots_at, i64 %pass_part, i64 %pass_stride)",
            "  br label %passed",
        ]
    lines += [
        "passed:",
        "  %next = add i64 %k, 1",
        "  %more = icmp slt i64 %next, %passes",
        "  br i1 %more, label %pass, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    lines += [f"declare void @{x}({', '.join(['ptr'] * 5)}, i64, i64)" for x in passes.values()]
    return _provided(name, "transform", "\n".join(lines))


_SWAPPED = (("re", "to_re"), ("im", "to_im"), ("to_re", "re"), ("to_im", "im"))


@functools.cache
def split(part: str) -> str:
    """(re, im, from, numbers): rows of complex numbers, `step` apart, as lanes; zero beyond `count`."""
    body = """
  %mask = call <$both x i1> @llvm.get.active.lane.mask.v${both}i1.i64(i64 %twice, i64 %twice_count)
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
  %mask = call <$both x i1> @llvm.get.active.lane.mask.v${{both}}i1.i64(i64 %twice, i64 %twice_count)
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
declare <$both x i1> @llvm.get.active.lane.mask.v${both}i1.i64(i64, i64)
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
        at = self.value(f"getelementptr $e, ptr {array}, i64 {place}")
        other = self.value(f"getelementptr $e, ptr {at}, i64 1")
        return self.spread(self.value(f"load $e, ptr {at}")), self.spread(self.value(f"load $e, ptr {other}"))

    def constant(self, value: float) -> str:
        """A number in all lanes; LLVM writes one exactly by the bits of a double."""
        rounded = struct.unpack("f", struct.pack("f", value))[0] if self.part == "f32" else value
        return self.spread(f"0x{struct.pack('>d', rounded).hex().upper()}")


@functools.cache
def _pass(part: str, radix: int) -> str:
    """One pass, as a function of its own, which transforms of any lengths share; its name."""
    if radix > WRITTEN_OUT:
        return _pass_of_sums(part, radix)
    outer, inner = _Emitter(part, "turn"), _Emitter(part)
    outer.lines.append(f"  %first_root = mul i64 %p, {2 * (radix - 1)}")
    roots: list[Complex] = []
    for t in range(1, radix):
        outer.lines.append(f"  %root{t} = add i64 %first_root, {2 * (t - 1)}")
        roots.append(outer.spread_pair("%roots", f"%root{t}"))
    x: list[Complex] = []
    for k in range(radix):
        row = inner.value(f"mul i64 %part, {k}")
        row = inner.value(f"add i64 {row}, %p")
        row = inner.value(f"mul i64 {row}, %stride")
        place = inner.value(f"add i64 {row}, %q")
        ends = [inner.value(f"getelementptr $e, ptr %{side}, i64 {place}") for side in ("re", "im")]
        re, im = (inner.value(f"load $v, ptr {at}, align $bytes") for at in ends)
        x.append((re, im))
    for t, value in enumerate(_butterfly(inner, x)):
        value = inner.times(value, roots[t - 1]) if t else value
        row = inner.value(f"mul i64 %p, {radix}")
        row = inner.value(f"add i64 {row}, {t}")
        row = inner.value(f"mul i64 {row}, %stride")
        place = inner.value(f"add i64 {row}, %q")
        for side, part_of in zip(("to_re", "to_im"), value, strict=True):
            at = inner.value(f"getelementptr $e, ptr %{side}, i64 {place}")
            inner.lines.append(_filled(part, f"  store $v {part_of}, ptr {at}, align $bytes"))
    names = ", ".join(f"ptr noalias %{x}" for x in ("re", "im", "to_re", "to_im", "roots"))
    lines = [
        f"define void @pass({names}, i64 %part, i64 %stride) nounwind {{",
        "entry:",
        "  br label %turn",
        "turn:",
        "  %p = phi i64 [ 0, %entry ], [ %p_next, %turn_end ]",
        *outer.lines,
        "  br label %lane",
        "lane:",
        "  %q = phi i64 [ 0, %turn ], [ %q_next, %lane ]",
        *inner.lines,
        _filled(part, "  %q_next = add i64 %q, $n"),
        "  %q_more = icmp slt i64 %q_next, %stride",
        "  br i1 %q_more, label %lane, label %turn_end",
        "turn_end:",
        "  %p_next = add i64 %p, 1",
        "  %p_more = icmp slt i64 %p_next, %part",
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


def _pass_of_sums(part: str, radix: int) -> str:
    """The same for a large prime: a few sums at once, with their factors in a table that follows the roots."""
    half, groups = radix // 2, len(sums_of(radix))
    pair, end = _Emitter(part, "pair"), _Emitter(part, "end")

    def element(e: _Emitter, row: str) -> tuple[str, str]:
        return e.value(f"getelementptr $e, ptr %re, i64 {row}"), e.value(f"getelementptr $e, ptr %im, i64 {row}")

    def loaded(row: str) -> Complex:
        re, im = (pair.value(f"load $v, ptr {at}, align $bytes") for at in element(pair, row))
        return re, im

    near = pair.value(f"add i64 {pair.value('mul i64 %k, %step')}, %at")
    mirrored = pair.value(f"sub i64 {radix}, %k")
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
        row = end.value(f"add i64 {end.value(f'mul i64 {t}, %stride')}, %out")
        for side, value in zip(("to_re", "to_im"), x, strict=True):
            at = end.value(f"getelementptr $e, ptr %{side}, i64 {row}")
            end.lines.append(_filled(part, f"  store $v {value}, ptr {at}, align $bytes"))

    put("0", carried["all"])
    for i in range(SUMS):
        t = end.value(f"add i64 {end.value(f'mul i64 %g, {SUMS}')}, {i + 1}")
        t = end.value(f"call i64 @llvm.smin.i64(i64 {t}, i64 {half})")
        for row, x in zip(
            (t, end.value(f"sub i64 {radix}, {t}")),
            end.turned(carried[f"even{i}"], carried[f"odd{i}"]),
            strict=True,
        ):
            root = end.value(f"mul i64 {end.value(f'sub i64 {row}, 1')}, 2")
            put(row, end.times(x, end.spread_pair("%turn_roots", root)))
    names = ", ".join(f"ptr noalias %{x}" for x in ("re", "im", "to_re", "to_im", "roots"))
    text = f"""define void @pass({names}, i64 %part, i64 %stride) nounwind {{
entry:
  %step = mul i64 %part, %stride
  %all_roots = mul i64 %part, {2 * (radix - 1)}
  %table = getelementptr $e, ptr %roots, i64 %all_roots
  br label %turn
turn:
  %p = phi i64 [ 0, %entry ], [ %p_next, %turn_end ]
  %first_root = mul i64 %p, {2 * (radix - 1)}
  %turn_roots = getelementptr $e, ptr %roots, i64 %first_root
  %row = mul i64 %p, %stride
  %out_row = mul i64 %row, {radix}
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
  %words = mul i64 %g, {half * 2 * SUMS}
  %factors = getelementptr $e, ptr %table, i64 %words
  br label %pair
pair:
  %k = phi i64 [ 1, %group ], [ %k_next, %pair ]
{chr(10).join([*phis, *pair.lines])}
  %k_next = add i64 %k, 1
  %k_more = icmp sle i64 %k_next, {half}
  br i1 %k_more, label %pair, label %group_end
group_end:
{chr(10).join(end.lines)}
  %g_next = add i64 %g, 1
  %g_more = icmp slt i64 %g_next, {groups}
  br i1 %g_more, label %group, label %lane_end
lane_end:
  %q_next = add i64 %q, $n
  %q_more = icmp slt i64 %q_next, %stride
  br i1 %q_more, label %lane, label %turn_end
turn_end:
  %p_next = add i64 %p, 1
  %p_more = icmp slt i64 %p_next, %part
  br i1 %p_more, label %turn, label %done
done:
  ret void
}}
declare i64 @llvm.smin.i64(i64, i64)
"""
    return _provided(f"fourier_pass_{part}_{radix}", "pass", _filled(part, text) + _declarations(part))


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
