"""Products in a processor's matrix unit: the routine that sums them in tiles, as text.

Intel's AMX has eight registers of 16 rows of 64 bytes each. One instruction multiplies a tile of words of the left
operand, 16 rows by 16 terms, with one of the right operand, 16 terms by 16 columns, and adds the products to 16 x 16
sums. A word holds two bf16, or four integers of 8 bits: as many terms in a row are multiplied and added together (see
Intel's "Architecture Instruction Set Extensions Programming Reference", chapter 3).

The routine is called as those in `gathered` are. It computes blocks of 32 x 32 sums, or half as many rows or columns,
in four registers; two tiles of each operand are in the others. A tile's rows must lie equally far apart in memory. So
before the sums of 32 rows are begun, a list says for each 16 terms where tiles of the left operand are: in place, if
the rows are equally far apart and the terms one behind the other, else in a copy. So it is for the right operand, whose
rows are in place nearly always. The last terms are always copied, with zeros behind them, and sums that are not 32
columns, or whose rows are not equally far apart, are stored by way of a copy. Of the right operand's rows what makes
16 columns whole is read, too, and does not matter.
"""

from __future__ import annotations

from itertools import product
from string import Template

MOST_TERMS = 512  # words of a row in one call
SIDE = 16  # rows, columns or words of a tile
BLOCK = 2 * SIDE
_VECTOR = 8  # places
_INSTRUCTIONS = {"bf16": "tdpbf16ps", "s8": "tdpbssd", "u8": "tdpbuud"}
FEATURES = {"bf16": "amx-bf16", "s8": "amx-int8", "u8": "amx-int8"}  # that have them

_TEXT = Template("""
define void @routine(ptr %c, ptr %a, ptr %b, ptr %rows, ptr %results, ptr %terms,
    ptr %factors, ptr %numbers) nounwind {
entry:
$numbers
  %shapes = alloca <64 x i8>, align 64
  %a_copy = alloca [$copy_bytes x i8], align 64
  %b_copy = alloca [$copy_bytes x i8], align 64
  %sums = alloca [$sums_bytes x i8], align 64
  %a_tiles = alloca [$most_steps x [2 x i64]], align 64 ; where each is, and how many bytes its rows are apart
  %b_tiles = alloca [$most_steps x [2 x i64]], align 64
  %runs = alloca [$most_steps x i64], align 64  ; whether terms follow one another
  %odds = alloca [$most_steps x i64], align 64  ; whether rows of the right operand are copied
  store <64 x i8> <$shapes>, ptr %shapes, align 64
  call void @llvm.x86.ldtilecfg(ptr %shapes)
  %is_more = icmp ne i64 %more, 0
  %k_last = sub i64 %k, 1
  %k_up = add i64 %k_last, $side
  %steps = udiv i64 %k_up, $side

  for %s from 0 below %steps by 1
  %t = mul i64 %s, $side
  %t_left = sub i64 %k, %t
$terms
  %run_word = zext i1 %term.is to i64
  store i64 %run_word, ptr %runs[%s]
$factors
  %is_whole = icmp sge i64 %t_left, $side
  %is_odd = xor i1 (and i1 %factor.is, %is_whole), true
  %odd_word = zext i1 %is_odd to i64
  store i64 %odd_word, ptr %odds[%s]
  %b_tile = getelementptr [2 x i64], ptr %b_tiles, i64 %s
  %b_first = getelementptr i32, ptr %b, i64 %factor.first
  store ptr %b_first, ptr %b_tile
  %factor_bytes = mul i64 %factor.apart, 4
  %b_apart = select i1 %is_odd, i64 $row_bytes, i64 %factor_bytes
  store i64 %b_apart, ptr %b_tile[1]
  end %s

  for %i from 0 below %m by $block
  %m_left = sub i64 %m, %i
  %height = call i64 @llvm.smin.i64(i64 %m_left, i64 $block)
  %is_high = icmp sgt i64 %m_left, $side
  br i1 (icmp sge i64 %m_left, $block), label %all_rows, label %with_rows
all_rows:
$rows
  %row_bytes = select i1 %row.is, i64 (mul i64 %row.apart, 4), i64 0
$results
  %result_bytes = select i1 %result.is, i64 (mul i64 %result.apart, 4), i64 0
  br label %with_rows
with_rows:  ; how many bytes they are apart, or 0
  %a_apart = phi i64 [ 0, %i.loop ], [ %row_bytes, %all_rows ]
  %c_apart = phi i64 [ 0, %i.loop ], [ %result_bytes, %all_rows ]
  %are_apart = icmp ne i64 %a_apart, 0

  for %u from 0 below %steps by 1
  %first_term = mul i64 %u, $side
  %u_left = sub i64 %k, %first_term
  %a_tile = getelementptr [2 x i64], ptr %a_tiles, i64 %u
  %is_run = icmp ne i64 (load i64, ptr %runs[%u]), 0
  %is_regular = and i1 %is_run, %are_apart
  %is_in_place = and i1 %is_regular, (icmp sge i64 %u_left, $side)
  %place = load i64, ptr %terms[%first_term]
  br i1 %is_in_place, label %in_place, label %copied
in_place:
  %first_place = add i64 (load i64, ptr %rows[%i]), %place
  %a_first = getelementptr i32, ptr %a, i64 %first_place
  store ptr %a_first, ptr %a_tile
  store i64 %a_apart, ptr %a_tile[1]
  br label %u_done
copied:
  %a_block = getelementptr [$block_bytes x i8], ptr %a_copy, i64 %u
  store ptr %a_block, ptr %a_tile
  store i64 $line, ptr %a_tile[1]
  %u_mask = call <16 x i1> @llvm.get.active.lane.mask.v16i1.i64(i64 %first_term, i64 %k)
  %places_at = getelementptr i64, ptr %terms, i64 %first_term
  %places = load <16 x i64>, ptr %places_at, align 8
  br i1 %is_run, label %copy_rows, label %gather_rows
copy_rows:
  for %r from 0 below %height by 1
  %r_index = add i64 %i, %r
  %r_place = add i64 (load i64, ptr %rows[%r_index]), %place
  %r_from = getelementptr i32, ptr %a, i64 %r_place
  %r_words = call <16 x i32> @llvm.masked.load.v16i32.p0(
    ptr %r_from, i32 2, <16 x i1> %u_mask, <16 x i32> zeroinitializer)
  %r_to = getelementptr <16 x i32>, ptr %a_block, i64 %r
  store <16 x i32> %r_words, ptr %r_to, align 64
  end %r
  br label %u_done
gather_rows:
  for %g from 0 below %height by 1
  %g_index = add i64 %i, %g
  %g_row = getelementptr i32, ptr %a, i64 (load i64, ptr %rows[%g_index])
  %g_from = getelementptr i32, ptr %g_row, <16 x i64> %places
  %g_words = call <16 x i32> @llvm.masked.gather.v16i32.v16p0(
    <16 x ptr> %g_from, i32 2, <16 x i1> %u_mask, <16 x i32> zeroinitializer)
  %g_to = getelementptr <16 x i32>, ptr %a_block, i64 %g
  store <16 x i32> %g_words, ptr %g_to, align 64
  end %g
  br label %u_done
u_done:
  end %u

  for %j from 0 below %n by $block
  %j_right = add i64 %j, $side
  %n_left = sub i64 %n, %j
  %left_mask = call <16 x i1> @llvm.get.active.lane.mask.v16i1.i64(i64 %j, i64 %n)
  %right_mask = call <16 x i1> @llvm.get.active.lane.mask.v16i1.i64(i64 %j_right, i64 %n)
  %is_wide = icmp sgt i64 %n_left, $side

  for %o from 0 below %steps by 1
  br i1 (icmp ne i64 (load i64, ptr %odds[%o]), 0), label %b_copied, label %o_done
b_copied:
  %o_first = mul i64 %o, $side
  %b_block = getelementptr [$block_bytes x i8], ptr %b_copy, i64 %o
  %b_origin = getelementptr i32, ptr %b_block, i64 (sub i64 0, %j)
  %o_tile = getelementptr [2 x i64], ptr %b_tiles, i64 %o
  store ptr %b_origin, ptr %o_tile
  for %q from 0 below $side by 1
  %q_term = add i64 %o_first, %q
  %q_in = call i64 @llvm.smin.i64(i64 %q_term, i64 %k_last)
  %q_is = icmp slt i64 %q_term, %k
  %q_row = getelementptr i32, ptr %b, i64 (load i64, ptr %factors[%q_in])
  %q_to = getelementptr [$row_bytes x i8], ptr %b_block, i64 %q
$b_rows
  end %q
  br label %o_done
o_done:
  end %o

  %n_rest = and i64 %n_left, 15
  %are_whole = or i1 (icmp sge i64 %n_left, $block), (icmp eq i64 %n_rest, 0)
  %is_direct = and i1 (icmp ne i64 %c_apart, 0), %are_whole
  %c_place = add i64 (load i64, ptr %results[%i]), %j
  %c_first = getelementptr i32, ptr %c, i64 %c_place
  %to = select i1 %is_direct, ptr %c_first, ptr %sums
  %apart = select i1 %is_direct, i64 %c_apart, i64 $row_bytes
  %low = getelementptr i8, ptr %to, i64 (mul i64 %apart, $side)
  %to_0_0 = getelementptr i8, ptr %to, i64 0
  %to_0_1 = getelementptr i8, ptr %to, i64 $line
  %to_1_0 = getelementptr i8, ptr %low, i64 0
  %to_1_1 = getelementptr i8, ptr %low, i64 $line
  br i1 (and i1 %is_more, (xor i1 %is_direct, true)), label %old_sums, label %high_or_not
old_sums:
  for %p from 0 below %height by 1
$old
  end %p
  br label %high_or_not
high_or_not:
  br i1 %is_high, label %high, label %flat
high:
  br i1 %is_wide, label %block_2_2, label %block_2_1
flat:
  br i1 %is_wide, label %block_1_2, label %block_1_1
$blocks
summed:
  br i1 %is_direct, label %j_done, label %new_sums
new_sums:
  for %w from 0 below %height by 1
$new
  end %w
  br label %j_done
j_done:
  end %j
  end %i
  call void @llvm.x86.tilerelease()
  ret void
}

declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.$multiply(i8 immarg, i8 immarg, i8 immarg)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.vector.reduce.or.v8i64(<8 x i64>)
declare <8 x i1> @llvm.get.active.lane.mask.v8i1.i64(i64, i64)
declare <16 x i1> @llvm.get.active.lane.mask.v16i1.i64(i64, i64)
declare <16 x i32> @llvm.masked.load.v16i32.p0(ptr, i32, <16 x i1>, <16 x i32>)
declare <16 x i32> @llvm.masked.gather.v16i32.v16p0(<16 x ptr>, i32, <16 x i1>, <16 x i32>)
declare void @llvm.masked.store.v16i32.p0(<16 x i32>, ptr, i32, <16 x i1>)
""")

_BLOCK_TEXT = Template("""
block_$name:
  br i1 %is_more, label %old_$name, label %none_$name
old_$name:
$old
  br label %sum_$name
none_$name:
$none
  br label %sum_$name
sum_$name:
  for %s_$name from 0 below %steps by 1
  %at_$name = getelementptr [2 x i64], ptr %a_tiles, i64 %s_$name
  %a_$name = load ptr, ptr %at_$name
  %a_apart_$name = load i64, ptr %at_$name[1]
  %a_low_$name = getelementptr i8, ptr %a_$name, i64 (mul i64 %a_apart_$name, $side)
  %b_at_$name = getelementptr [2 x i64], ptr %b_tiles, i64 %s_$name
  %b_$name = getelementptr i32, ptr (load ptr, ptr %b_at_$name), i64 %j
  %b_apart_$name = load i64, ptr %b_at_$name[1]
  %b_right_$name = getelementptr i8, ptr %b_$name, i64 $line
$multiply
  end %s_$name
$new
  br label %summed
""")


def product_text(factors: str, numbers: str) -> str:
    """The routine for factors of a type, which reads its numbers so."""
    line, side = 4 * SIDE, SIDE
    shapes = [1, *[0] * 15, *[line, 0] * 8, *[0] * 16, *[side] * 8, *[0] * 8]
    return _TEXT.substitute(
        numbers=numbers,
        shapes=", ".join(f"i8 {x}" for x in shapes),
        side=side,
        block=BLOCK,
        line=line,
        row_bytes=2 * line,
        block_bytes=BLOCK * line,
        sums_bytes=BLOCK * 2 * line,
        copy_bytes=MOST_TERMS // side * BLOCK * line,
        most_steps=MOST_TERMS // side,
        terms=_spaced("term", "terms", "%t", side, "%t_left", 1),
        factors=_spaced("factor", "factors", "%t", side),
        rows=_spaced("row", "rows", "%i", BLOCK),
        results=_spaced("result", "results", "%i", BLOCK),
        b_rows=_row_of_b(),
        old=_moved("p", is_out=False),
        new=_moved("w", is_out=True),
        blocks="\n".join(_block(factors, down, across) for down, across in product((1, 2), repeat=2)),
        multiply=_INSTRUCTIONS[factors],
    )


def _spaced(name: str, places: str, first: str, count: int, valid: str = "", apart: int | None = None) -> str:
    """Whether so many places - of which those behind the valid ones do not count - are equally far apart."""
    text = [
        f"  %{name}.at = getelementptr i64, ptr %{places}, i64 {first}",
        f"  %{name}.first = load i64, ptr %{name}.at",
        *([f"  %{name}.apart = sub i64 (load i64, ptr %{name}.at[1]), %{name}.first"] if apart is None else []),
        *_same(f"{name}.firsts", f"%{name}.first"),
        *_same(f"{name}.steps", f"%{name}.apart" if apart is None else str(apart)),
    ]
    found = "zeroinitializer"
    for k in range(0, count, _VECTOR):
        here = f"%{name}.{k}"
        numbers = ", ".join(f"i64 {k + lane}" for lane in range(_VECTOR))
        text += [
            f"  {here}.at = getelementptr i64, ptr %{name}.at, i64 {k}",
            f"  {here} = load <8 x i64>, ptr {here}.at, align 8",
            f"  {here}.from = mul <8 x i64> %{name}.steps, <{numbers}>",
            f"  {here}.expected = add <8 x i64> %{name}.firsts, {here}.from",
            f"  {here}.differs = xor <8 x i64> {here}, {here}.expected",
        ]
        differs = f"{here}.differs"
        if valid:
            text += [
                f"  {here}.mask = call <8 x i1> @llvm.get.active.lane.mask.v8i1.i64(i64 {k}, i64 {valid})",
                f"  {here}.counts = select <8 x i1> {here}.mask, <8 x i64> {differs}, <8 x i64> zeroinitializer",
            ]
            differs = f"{here}.counts"
        text.append(f"  {here}.all = or <8 x i64> {found}, {differs}")
        found = f"{here}.all"
    text.append(f"  %{name}.any = call i64 @llvm.vector.reduce.or.v8i64(<8 x i64> {found})")
    text.append(f"  %{name}.is = icmp eq i64 %{name}.any, 0")
    return "\n".join(text)


def _same(name: str, value: str) -> list[str]:
    return [
        f"  %{name}.one = insertelement <8 x i64> poison, i64 {value}, i64 0",
        f"  %{name} = shufflevector <8 x i64> %{name}.one, <8 x i64> poison, <8 x i32> zeroinitializer",
    ]


_PART_OF_B = Template("""
  %q_$part.mask = select i1 %q_is, <16 x i1> %${part}_mask, <16 x i1> zeroinitializer
  %q_$part.at = getelementptr i32, ptr %q_row, i64 $column
  %q_$part = call <16 x i32> @llvm.masked.load.v16i32.p0(
    ptr %q_$part.at, i32 2, <16 x i1> %q_$part.mask, <16 x i32> zeroinitializer)
  %q_$part.to = getelementptr <16 x i32>, ptr %q_to, i64 $half
  store <16 x i32> %q_$part, ptr %q_$part.to, align 64""")


def _row_of_b() -> str:
    return "".join(
        _PART_OF_B.substitute(part=part, column=f"%j{'_right' * half}", half=half)
        for half, part in enumerate(("left", "right"))
    )


_MOVED_IN = Template("""
  %$r.$half = call <16 x i32> @llvm.masked.load.v16i32.p0(
    ptr %$r.c_at.$half, i32 4, <16 x i1> %${part}_mask, <16 x i32> zeroinitializer)
  store <16 x i32> %$r.$half, ptr %$r.sums_at.$half, align 64""")
_MOVED_OUT = Template("""
  %$r.$half = load <16 x i32>, ptr %$r.sums_at.$half, align 64
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %$r.$half, ptr %$r.c_at.$half, i32 4, <16 x i1> %${part}_mask)""")


def _moved(r: str, is_out: bool) -> str:
    """A row of sums, from where they are to the copy of them or back."""
    text = f"""
  %{r}.index = add i64 %i, %{r}
  %{r}.c = getelementptr i32, ptr %c, i64 (load i64, ptr %results[%{r}.index])
  %{r}.sums = getelementptr <32 x i32>, ptr %sums, i64 %{r}"""
    for half, part in enumerate(("left", "right")):
        text += f"""
  %{r}.c_at.{half} = getelementptr i32, ptr %{r}.c, i64 %j{"_right" * half}
  %{r}.sums_at.{half} = getelementptr <16 x i32>, ptr %{r}.sums, i64 {half}"""
        text += (_MOVED_OUT if is_out else _MOVED_IN).substitute(r=r, half=half, part=part)
    return text


def _block(factors: str, down: int, across: int) -> str:
    """The sums of so many tiles."""
    name, tiles = f"{down}_{across}", list(product(range(down), range(across)))

    def all_sums(move: str) -> str:
        return "\n".join(f"  call void @llvm.x86.{move}(i8 {2 * r + v}, ptr %to_{r}_{v}, i64 %apart)" for r, v in tiles)

    def load(to: int, operand: str, part: str) -> str:
        place = f"ptr %{operand}{part}_{name}, i64 %{operand}_apart_{name}"
        return f"  call void @llvm.x86.tileloadd64(i8 {to}, {place})"

    multiply: list[str] = []
    for r, v in tiles:
        multiply += [load(4 + r, "a", "_low" * r)] if v == 0 else []
        multiply += [load(6 + v, "b", "_right" * v)] if r == 0 else []
        multiply.append(f"  call void @llvm.x86.{_INSTRUCTIONS[factors]}(i8 {2 * r + v}, i8 {4 + r}, i8 {6 + v})")
    return _BLOCK_TEXT.substitute(
        name=name,
        side=SIDE,
        line=4 * SIDE,
        old=all_sums("tileloadd64"),
        none="\n".join(f"  call void @llvm.x86.tilezero(i8 {2 * r + v})" for r, v in tiles),
        multiply="\n".join(multiply),
        new=all_sums("tilestored64"),
    )
