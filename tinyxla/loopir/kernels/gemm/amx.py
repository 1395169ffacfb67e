"""GEMM microkernel for Intel's AMX: tiles of C in its matrix registers, as LLVM text with the interface of
`microkernel`.

AMX has eight registers of 16 rows of 64 bytes. One instruction multiplies a tile of A, 16 rows by 16 words, with a tile
of B, 16 words by 16 columns, and accumulates in a tile of 16 x 16 sums. A word holds two bf16 or four 8-bit integers,
whose products are added together.

The routine computes blocks of 32 x 32 sums (or half as many rows or columns) in four registers; two tiles of A and of B
are in the others. A tile's rows must have one stride in memory. So before a block of 32 rows a list is made of where
the tiles of A are: in place, if the rows have one stride and the terms are contiguous, else in a copy. The same is done
for B, whose rows nearly always have one stride. The last terms are always copied and zero-padded. Blocks that have
fewer than 32 columns, or whose rows of C have no common stride, are stored through a buffer. Columns of B that complete
a tile of 16 are read but not used.

Source: Intel, Architecture Instruction Set Extensions Programming Reference, chapter 3.
"""

from __future__ import annotations

from itertools import product
from string import Template

from tinyxla.loopir.kernels.gemm.offset_list import OFFSETS_PER_VECTOR

MAX_K_WORDS = 512  # of k in one call
SIDE = 16  # rows of a tile, words of its rows, and columns of its product
BLOCK = 2 * SIDE
_INSTRUCTIONS = {"bf16": "tdpbf16ps", "s8": "tdpbssd", "u8": "tdpbuud"}
FEATURES = {"bf16": "amx-bf16", "s8": "amx-int8", "u8": "amx-int8"}  # the processor feature with this instruction

_MICROKERNEL = Template("""
define void @routine(ptr %c, ptr %a, ptr %b, ptr %a_row_offsets, ptr %c_row_offsets, ptr %a_k_offsets,
    ptr %b_k_offsets, ptr %numbers) nounwind {
entry:
$numbers
  %shapes = alloca <64 x i8>, align 64
  %packed_a = alloca [$copy_bytes x i8], align 64
  %packed_b = alloca [$copy_bytes x i8], align 64
  %sums = alloca [$sums_bytes x i8], align 64
  %a_tiles = alloca [$max_k_tiles x [2 x i64]], align 64  ; address and row pitch in bytes of each tile
  %b_tiles = alloca [$max_k_tiles x [2 x i64]], align 64
  %are_contiguous = alloca [$max_k_tiles x i64], align 64  ; whether the terms of a tile are contiguous in A
  %are_copied = alloca [$max_k_tiles x i64], align 64  ; whether a tile of B is copied
  store <64 x i8> <$shapes>, ptr %shapes, align 64
  call void @llvm.x86.ldtilecfg(ptr %shapes)
  %accumulates = icmp ne i64 %accumulate, 0
  %k_last = sub i64 %k, 1
  %k_up = add i64 %k_last, $side
  %steps = udiv i64 %k_up, $side

  for %s from 0 below %steps by 1
  %t = mul i64 %s, $side
  %t_left = sub i64 %k, %t
$terms
  %contiguous_word = zext i1 %term.is_uniform to i64
  store i64 %contiguous_word, ptr %are_contiguous[%s]
$factors
  %is_full = icmp sge i64 %t_left, $side
  %is_copied = xor i1 (and i1 %factor.is_uniform, %is_full), true
  %copied_word = zext i1 %is_copied to i64
  store i64 %copied_word, ptr %are_copied[%s]
  %b_tile = getelementptr [2 x i64], ptr %b_tiles, i64 %s
  %b_first = getelementptr i32, ptr %b, i64 %factor.first
  store ptr %b_first, ptr %b_tile
  %factor_bytes = mul i64 %factor.stride, 4
  %b_pitch = select i1 %is_copied, i64 $row_bytes, i64 %factor_bytes
  store i64 %b_pitch, ptr %b_tile[1]
  end %s

  for %i from 0 below %m by $block
  %m_left = sub i64 %m, %i
  %height = call i64 @llvm.smin.i64(i64 %m_left, i64 $block)
  %is_high = icmp sgt i64 %m_left, $side
  br i1 (icmp sge i64 %m_left, $block), label %all_rows, label %with_rows
all_rows:
$rows
  %row_bytes = select i1 %row.is_uniform, i64 (mul i64 %row.stride, 4), i64 0
$results
  %result_bytes = select i1 %result.is_uniform, i64 (mul i64 %result.stride, 4), i64 0
  br label %with_rows
with_rows:  ; the pitches in bytes, or 0 if rows have no common stride
  %a_pitch = phi i64 [ 0, %i.loop ], [ %row_bytes, %all_rows ]
  %c_pitch = phi i64 [ 0, %i.loop ], [ %result_bytes, %all_rows ]
  %has_row_stride = icmp ne i64 %a_pitch, 0

  for %u from 0 below %steps by 1
  %first_term = mul i64 %u, $side
  %u_left = sub i64 %k, %first_term
  %a_tile = getelementptr [2 x i64], ptr %a_tiles, i64 %u
  %is_contiguous = icmp ne i64 (load i64, ptr %are_contiguous[%u]), 0
  %is_regular = and i1 %is_contiguous, %has_row_stride
  %is_in_place = and i1 %is_regular, (icmp sge i64 %u_left, $side)
  %k_offset = load i64, ptr %a_k_offsets[%first_term]
  br i1 %is_in_place, label %in_place, label %copied
in_place:
  %first_offset = add i64 (load i64, ptr %a_row_offsets[%i]), %k_offset
  %a_first = getelementptr i32, ptr %a, i64 %first_offset
  store ptr %a_first, ptr %a_tile
  store i64 %a_pitch, ptr %a_tile[1]
  br label %u_done
copied:
  %a_block = getelementptr [$block_bytes x i8], ptr %packed_a, i64 %u
  store ptr %a_block, ptr %a_tile
  store i64 $tile_row_bytes, ptr %a_tile[1]
  %u_mask = call <16 x i1> @llvm.get.active.lane.mask.v16i1.i64(i64 %first_term, i64 %k)
  %offsets_at = getelementptr i64, ptr %a_k_offsets, i64 %first_term
  %offsets = load <16 x i64>, ptr %offsets_at, align 8
  br i1 %is_contiguous, label %copy_rows, label %gather_rows
copy_rows:
  for %r from 0 below %height by 1
  %r_index = add i64 %i, %r
  %r_offset = add i64 (load i64, ptr %a_row_offsets[%r_index]), %k_offset
  %r_from = getelementptr i32, ptr %a, i64 %r_offset
  %r_words = call <16 x i32> @llvm.masked.load.v16i32.p0(
    ptr %r_from, i32 2, <16 x i1> %u_mask, <16 x i32> zeroinitializer)
  %r_to = getelementptr <16 x i32>, ptr %a_block, i64 %r
  store <16 x i32> %r_words, ptr %r_to, align 64
  end %r
  br label %u_done
gather_rows:
  for %g from 0 below %height by 1
  %g_index = add i64 %i, %g
  %g_row = getelementptr i32, ptr %a, i64 (load i64, ptr %a_row_offsets[%g_index])
  %g_from = getelementptr i32, ptr %g_row, <16 x i64> %offsets
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
  br i1 (icmp ne i64 (load i64, ptr %are_copied[%o]), 0), label %b_copied, label %o_done
b_copied:
  %o_first = mul i64 %o, $side
  %b_block = getelementptr [$block_bytes x i8], ptr %packed_b, i64 %o
  %b_origin = getelementptr i32, ptr %b_block, i64 (sub i64 0, %j)
  %o_tile = getelementptr [2 x i64], ptr %b_tiles, i64 %o
  store ptr %b_origin, ptr %o_tile
  for %q from 0 below $side by 1
  %q_term = add i64 %o_first, %q
  %q_in = call i64 @llvm.smin.i64(i64 %q_term, i64 %k_last)
  %q_is = icmp slt i64 %q_term, %k
  %q_row = getelementptr i32, ptr %b, i64 (load i64, ptr %b_k_offsets[%q_in])
  %q_to = getelementptr [$row_bytes x i8], ptr %b_block, i64 %q
$b_rows
  end %q
  br label %o_done
o_done:
  end %o

  %n_remainder = and i64 %n_left, 15
  %is_multiple = or i1 (icmp sge i64 %n_left, $block), (icmp eq i64 %n_remainder, 0)
  %is_direct = and i1 (icmp ne i64 %c_pitch, 0), %is_multiple
  %c_offset = add i64 (load i64, ptr %c_row_offsets[%i]), %j
  %c_first = getelementptr i32, ptr %c, i64 %c_offset
  %to = select i1 %is_direct, ptr %c_first, ptr %sums
  %pitch = select i1 %is_direct, i64 %c_pitch, i64 $row_bytes
  %low = getelementptr i8, ptr %to, i64 (mul i64 %pitch, $side)
  %to_0_0 = getelementptr i8, ptr %to, i64 0
  %to_0_1 = getelementptr i8, ptr %to, i64 $tile_row_bytes
  %to_1_0 = getelementptr i8, ptr %low, i64 0
  %to_1_1 = getelementptr i8, ptr %low, i64 $tile_row_bytes
  br i1 (and i1 %accumulates, (xor i1 %is_direct, true)), label %old_sums, label %high_or_not
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
  br i1 %accumulates, label %old_$name, label %none_$name
old_$name:
$old
  br label %sum_$name
none_$name:
$none
  br label %sum_$name
sum_$name:
  for %step_$name from 0 below %steps by 1
  %at_$name = getelementptr [2 x i64], ptr %a_tiles, i64 %step_$name
  %a_$name = load ptr, ptr %at_$name
  %a_pitch_$name = load i64, ptr %at_$name[1]
  %a_low_$name = getelementptr i8, ptr %a_$name, i64 (mul i64 %a_pitch_$name, $side)
  %b_at_$name = getelementptr [2 x i64], ptr %b_tiles, i64 %step_$name
  %b_$name = getelementptr i32, ptr (load ptr, ptr %b_at_$name), i64 %j
  %b_pitch_$name = load i64, ptr %b_at_$name[1]
  %b_right_$name = getelementptr i8, ptr %b_$name, i64 $tile_row_bytes
$multiply
  end %step_$name
$new
  br label %summed
""")


def microkernel_text(factors: str, numbers: str) -> str:
    """The routine for factors of a type; `numbers` is the text that loads its arguments."""
    tile_row_bytes, side = 4 * SIDE, SIDE
    shapes = [1, *[0] * 15, *[tile_row_bytes, 0] * 8, *[0] * 16, *[side] * 8, *[0] * 8]
    return _MICROKERNEL.substitute(
        numbers=numbers,
        shapes=", ".join(f"i8 {x}" for x in shapes),
        side=side,
        block=BLOCK,
        tile_row_bytes=tile_row_bytes,
        row_bytes=2 * tile_row_bytes,
        block_bytes=BLOCK * tile_row_bytes,
        sums_bytes=BLOCK * 2 * tile_row_bytes,
        copy_bytes=MAX_K_WORDS // side * BLOCK * tile_row_bytes,
        max_k_tiles=MAX_K_WORDS // side,
        terms=_uniform_stride("term", "a_k_offsets", "%t", side, "%t_left", 1),
        factors=_uniform_stride("factor", "b_k_offsets", "%t", side),
        rows=_uniform_stride("row", "a_row_offsets", "%i", BLOCK),
        results=_uniform_stride("result", "c_row_offsets", "%i", BLOCK),
        b_rows=_copy_row_of_b(),
        old=_copy_sums("p", to_c=False),
        new=_copy_sums("w", to_c=True),
        blocks="\n".join(_block_text(factors, *tiles) for tiles in product((1, 2), repeat=2)),
        multiply=_INSTRUCTIONS[factors],
    )


def _uniform_stride(name: str, offsets: str, first: str, count: int, valid: str = "", stride: int | None = None) -> str:
    """LLVM text that tests whether `count` offsets from `first` on, of which only the first `valid` count, have one
    stride."""
    text = [
        f"  %{name}.at = getelementptr i64, ptr %{offsets}, i64 {first}",
        f"  %{name}.first = load i64, ptr %{name}.at",
        *([f"  %{name}.stride = sub i64 (load i64, ptr %{name}.at[1]), %{name}.first"] if stride is None else []),
        *_splat(f"{name}.origins", f"%{name}.first"),
        *_splat(f"{name}.strides", f"%{name}.stride" if stride is None else str(stride)),
    ]
    mismatches = "zeroinitializer"
    for k in range(0, count, OFFSETS_PER_VECTOR):
        chunk = f"%{name}.{k}"
        numbers = ", ".join(f"i64 {k + lane}" for lane in range(OFFSETS_PER_VECTOR))
        text += [
            f"  {chunk}.at = getelementptr i64, ptr %{name}.at, i64 {k}",
            f"  {chunk} = load <8 x i64>, ptr {chunk}.at, align 8",
            f"  {chunk}.from = mul <8 x i64> %{name}.strides, <{numbers}>",
            f"  {chunk}.expected = add <8 x i64> %{name}.origins, {chunk}.from",
            f"  {chunk}.differs = xor <8 x i64> {chunk}, {chunk}.expected",
        ]
        differs = f"{chunk}.differs"
        if valid:
            text += [
                f"  {chunk}.mask = call <8 x i1> @llvm.get.active.lane.mask.v8i1.i64(i64 {k}, i64 {valid})",
                f"  {chunk}.counts = select <8 x i1> {chunk}.mask, <8 x i64> {differs}, <8 x i64> zeroinitializer",
            ]
            differs = f"{chunk}.counts"
        text.append(f"  {chunk}.all = or <8 x i64> {mismatches}, {differs}")
        mismatches = f"{chunk}.all"
    text.append(f"  %{name}.any = call i64 @llvm.vector.reduce.or.v8i64(<8 x i64> {mismatches})")
    text.append(f"  %{name}.is_uniform = icmp eq i64 %{name}.any, 0")
    return "\n".join(text)


def _splat(name: str, value: str) -> list[str]:
    """LLVM text of a vector of eight copies of a 64-bit value."""
    return [
        f"  %{name}.one = insertelement <8 x i64> poison, i64 {value}, i64 0",
        f"  %{name} = shufflevector <8 x i64> %{name}.one, <8 x i64> poison, <8 x i32> zeroinitializer",
    ]


_HALF_ROW_OF_B = Template("""
  %q_$side.mask = select i1 %q_is, <16 x i1> %${side}_mask, <16 x i1> zeroinitializer
  %q_$side.at = getelementptr i32, ptr %q_row, i64 $column
  %q_$side = call <16 x i32> @llvm.masked.load.v16i32.p0(
    ptr %q_$side.at, i32 2, <16 x i1> %q_$side.mask, <16 x i32> zeroinitializer)
  %q_$side.to = getelementptr <16 x i32>, ptr %q_to, i64 $half
  store <16 x i32> %q_$side, ptr %q_$side.to, align 64""")


def _copy_row_of_b() -> str:
    """LLVM text that copies a row of 32 columns of B, masked."""
    return "".join(
        _HALF_ROW_OF_B.substitute(side=side, column=f"%j{'_right' * half}", half=half)
        for half, side in enumerate(("left", "right"))
    )


_LOAD_HALF_ROW = Template("""
  %$r.$half = call <16 x i32> @llvm.masked.load.v16i32.p0(
    ptr %$r.c_at.$half, i32 4, <16 x i1> %${side}_mask, <16 x i32> zeroinitializer)
  store <16 x i32> %$r.$half, ptr %$r.sums_at.$half, align 64""")
_STORE_HALF_ROW = Template("""
  %$r.$half = load <16 x i32>, ptr %$r.sums_at.$half, align 64
  call void @llvm.masked.store.v16i32.p0(<16 x i32> %$r.$half, ptr %$r.c_at.$half, i32 4, <16 x i1> %${side}_mask)""")


def _copy_sums(r: str, to_c: bool) -> str:
    """LLVM text that copies a row of 32 sums from C to the buffer or back."""
    text = f"""
  %{r}.index = add i64 %i, %{r}
  %{r}.c = getelementptr i32, ptr %c, i64 (load i64, ptr %c_row_offsets[%{r}.index])
  %{r}.sums = getelementptr <32 x i32>, ptr %sums, i64 %{r}"""
    for half, side in enumerate(("left", "right")):
        text += f"""
  %{r}.c_at.{half} = getelementptr i32, ptr %{r}.c, i64 %j{"_right" * half}
  %{r}.sums_at.{half} = getelementptr <16 x i32>, ptr %{r}.sums, i64 {half}"""
        text += (_STORE_HALF_ROW if to_c else _LOAD_HALF_ROW).substitute(r=r, half=half, side=side)
    return text


def _block_text(factors: str, row_tiles: int, column_tiles: int) -> str:
    """LLVM text of the product of `row_tiles` x `column_tiles` tiles."""
    name, tiles = f"{row_tiles}_{column_tiles}", list(product(range(row_tiles), range(column_tiles)))

    def all_tiles(move: str) -> str:
        return "\n".join(f"  call void @llvm.x86.{move}(i8 {2 * r + v}, ptr %to_{r}_{v}, i64 %pitch)" for r, v in tiles)

    def load(to: int, operand: str, side: str) -> str:
        tile = f"ptr %{operand}{side}_{name}, i64 %{operand}_pitch_{name}"
        return f"  call void @llvm.x86.tileloadd64(i8 {to}, {tile})"

    multiply: list[str] = []
    for r, v in tiles:
        multiply += [load(4 + r, "a", "_low" * r)] if v == 0 else []
        multiply += [load(6 + v, "b", "_right" * v)] if r == 0 else []
        multiply.append(f"  call void @llvm.x86.{_INSTRUCTIONS[factors]}(i8 {2 * r + v}, i8 {4 + r}, i8 {6 + v})")
    return _BLOCK_TEXT.substitute(
        name=name,
        side=SIDE,
        tile_row_bytes=4 * SIDE,
        old=all_tiles("tileloadd64"),
        none="\n".join(f"  call void @llvm.x86.tilezero(i8 {2 * r + v})" for r, v in tiles),
        multiply="\n".join(multiply),
        new=all_tiles("tilestored64"),
    )
