"""Products of matrices that are gathered from memory: what a convolution is, without a copy of the input.

    c[results[i] + j] (+)= sum over t of a[rows[i] + terms[t]] * b[factors[t] + j]

or, where each column has an input of its own, with `a[rows[i] + terms[t] + j]`. A tile of results stays in vector
registers while one loop goes over the terms. In each step it loads some vectors of `b`, and for each of its rows one
element of `a`, wherever that is. So everything is read in place, at the speed of the multipliers. The last columns are
masked, and the last row is computed as often as it takes to fill the tile.

A routine takes the addresses of c, a and b, of the four lists of places, and of four numbers: how many rows, columns
and terms there are, and whether to add to what c has. So an element type has one routine for each number of vectors
that a tile is wide.

Places are those of an array's elements along some axes, in order, which another routine lists: it takes the address of
the list and of numbers, which are the place of the first element of all, the number of the list's first element, how
many the list shall have, the number of axes, and for each axis from the innermost its size, its step, and room.
"""

from __future__ import annotations

import functools
from itertools import product
from string import Template

from tinyxla.backends.numba.llvm_printer import routine_name
from tinyxla.backends.numba.native import compile_llvm, provide_function, vector_bytes

_ELEMENTS = {"f32": ("float", 4), "f64": ("double", 8)}
_NUMBERS = ("m", "n", "k", "more")
NUMBERS = len(_NUMBERS)
PREFIX = "gathered_"
_PRODUCT, _COLUMNS, _PLACES = (PREFIX + name for name in ("product", "columns", "places"))
_MOST_ROWS = 8  # of a tile: beyond, their addresses do not fit into registers


def lanes(type: str) -> int:
    """Elements of a vector."""
    return vector_bytes() // _ELEMENTS[type][1]


def provide_product(type: str, columns: int, is_by_columns: bool) -> str:
    """Let kernels of the loop IR call the routine for products with so many columns; its name."""
    vectors = -(-columns // lanes(type))
    passes = -(-vectors // (4 if vector_bytes() == 64 else 2))
    return _provide(f"{_COLUMNS if is_by_columns else _PRODUCT}_{type}_{-(-vectors // passes)}")


def provide_list() -> str:
    """Let kernels of the loop IR call the routine that lists places; its name."""
    return _provide(_PLACES)


def _provide(name: str) -> str:
    provide_function(routine_name(name), routine(name))
    return name


@functools.cache
def routine(name: str) -> int:
    """The address of one of the routines."""
    if name == _PLACES:
        return compile_llvm(_LIST, (name,))[name]
    *_, type, vectors = name.split("_")
    return compile_llvm(_text(name, type, int(vectors)), (name,))[name]


_LIST = """
define void @gathered_places(ptr %into, ptr %numbers) nounwind {
entry:
  %start = load i64, ptr %numbers
  %first_at = getelementptr i64, ptr %numbers, i64 1
  %first = load i64, ptr %first_at
  %count_at = getelementptr i64, ptr %numbers, i64 2
  %count = load i64, ptr %count_at
  %rank_at = getelementptr i64, ptr %numbers, i64 3
  %rank = load i64, ptr %rank_at
  %axes = getelementptr i64, ptr %numbers, i64 4
  %inner_size = load i64, ptr %axes
  %inner_step_at = getelementptr i64, ptr %axes, i64 1
  %inner_step = load i64, ptr %inner_step_at
  %inner_index_at = getelementptr i64, ptr %axes, i64 2
  %inner_whole = mul i64 %inner_size, %inner_step
  br label %split
split:  ; the first element's index along each axis
  %d = phi i64 [ 0, %entry ], [ %d_next, %split ]
  %rest = phi i64 [ %first, %entry ], [ %rest_next, %split ]
  %sum = phi i64 [ %start, %entry ], [ %sum_next, %split ]
  %axis = getelementptr [3 x i64], ptr %axes, i64 %d
  %size = load i64, ptr %axis
  %step_at = getelementptr i64, ptr %axis, i64 1
  %step = load i64, ptr %step_at
  %index_at = getelementptr i64, ptr %axis, i64 2
  %index = urem i64 %rest, %size
  store i64 %index, ptr %index_at
  %rest_next = udiv i64 %rest, %size
  %offset = mul i64 %index, %step
  %sum_next = add i64 %sum, %offset
  %d_next = add i64 %d, 1
  %d_more = icmp slt i64 %d_next, %rank
  br i1 %d_more, label %split, label %begin
begin:
  %inner_index = load i64, ptr %inner_index_at
  br label %run
run:  ; along the innermost axis
  %k = phi i64 [ 0, %begin ], [ %k_end, %carry_end ]
  %i = phi i64 [ %inner_index, %begin ], [ 0, %carry_end ]
  %place = phi i64 [ %sum_next, %begin ], [ %carried, %carry_end ]
  %left = sub i64 %inner_size, %i
  %k_last = add i64 %k, %left
  %k_end = call i64 @llvm.smin.i64(i64 %k_last, i64 %count)
  br label %element
element:
  %e = phi i64 [ %k, %run ], [ %e_next, %element ]
  %here = phi i64 [ %place, %run ], [ %here_next, %element ]
  %into_at = getelementptr i64, ptr %into, i64 %e
  store i64 %here, ptr %into_at
  %here_next = add i64 %here, %inner_step
  %e_next = add i64 %e, 1
  %e_more = icmp slt i64 %e_next, %k_end
  br i1 %e_more, label %element, label %run_end, !llvm.loop !0
run_end:
  %k_more = icmp slt i64 %k_end, %count
  %back = sub i64 %here_next, %inner_whole
  br i1 %k_more, label %carry, label %done
carry:  ; to the axis around, and where that is at its end, to the next
  %c = phi i64 [ 1, %run_end ], [ %c_next, %wrap ]
  %at = phi i64 [ %back, %run_end ], [ %wrapped, %wrap ]
  %outer = getelementptr [3 x i64], ptr %axes, i64 %c
  %outer_size = load i64, ptr %outer
  %outer_step_at = getelementptr i64, ptr %outer, i64 1
  %outer_step = load i64, ptr %outer_step_at
  %outer_index_at = getelementptr i64, ptr %outer, i64 2
  %outer_index = load i64, ptr %outer_index_at
  %moved = add i64 %at, %outer_step
  %following = add i64 %outer_index, 1
  %is_end = icmp eq i64 %following, %outer_size
  %kept = select i1 %is_end, i64 0, i64 %following
  store i64 %kept, ptr %outer_index_at
  br i1 %is_end, label %wrap, label %carry_end
wrap:
  %outer_whole = mul i64 %outer_size, %outer_step
  %wrapped = sub i64 %moved, %outer_whole
  %c_next = add i64 %c, 1
  br label %carry
carry_end:
  %carried = phi i64 [ %moved, %carry ]
  br label %run
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)

!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
"""

_TEXT = Template("""
define void @$name(ptr %c, ptr %a, ptr %b, ptr %rows, ptr %results, ptr %terms,
    ptr %factors, ptr %numbers) nounwind {
entry:
$numbers
  %m_less = sub i64 %m, 1
  %is_more = icmp ne i64 %more, 0
  %more_one = insertelement <$lanes x i1> poison, i1 %is_more, i64 0
  %more_mask = shufflevector <$lanes x i1> %more_one, <$lanes x i1> poison, <$lanes x i32> zeroinitializer
  br label %columns
columns:
  %j = phi i64 [ 0, %entry ], [ %j_next, %columns_end ]
  %b_first = getelementptr $element, ptr %b, i64 %j
$masks
  br label %tile
tile:
  %i = phi i64 [ 0, %columns ], [ %i_next, %tile_end ]
$begin
  br label %term
term:
  %t = phi i64 [ 0, %tile ], [ %t_next, %term ]
$sums
  %term_at = getelementptr i64, ptr %terms, i64 %t
  %place = load i64, ptr %term_at
  %factor_at = getelementptr i64, ptr %factors, i64 %t
  %factor = load i64, ptr %factor_at
  %b_row = getelementptr $element, ptr %b_first, i64 %factor
$step
  %t_next = add i64 %t, 1
  %t_more = icmp slt i64 %t_next, %k
  br i1 %t_more, label %term, label %tile_end, !llvm.loop !0
tile_end:
$end
  %i_next = add i64 %i, $height
  %i_more = icmp slt i64 %i_next, %m
  br i1 %i_more, label %tile, label %columns_end
columns_end:
  %j_next = add i64 %j, $width
  %j_more = icmp slt i64 %j_next, %n
  br i1 %j_more, label %columns, label %done
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare $vector @llvm.masked.load.$suffix.p0(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.$suffix.p0($vector, ptr, i32, $mask)
declare $vector @llvm.fmuladd.$suffix($vector, $vector, $vector)

!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}
""")  # unrolled, it would need more registers than there are


def _text(name: str, type: str, vectors: int) -> str:
    element, size = _ELEMENTS[type]
    count, is_by_columns = lanes(type), name.startswith(_COLUMNS)
    vector, mask, suffix = f"<{count} x {element}>", f"<{count} x i1>", f"v{count}{type}"
    height = min(_MOST_ROWS, (24 if vector_bytes() == 64 else 12) // vectors)
    tile = list(product(range(height), range(vectors)))
    numbers: list[str] = []
    for position, number in enumerate(_NUMBERS):
        numbers.append(f"%{number}_at = getelementptr i64, ptr %numbers, i64 {position}")
        numbers.append(f"%{number} = load i64, ptr %{number}_at")
    masks: list[str] = []
    for v in range(vectors):
        masks.append(f"%j{v} = add i64 %j, {v * count}")
        masks.append(f"%mask{v} = call {mask} @llvm.get.active.lane.mask.v{count}i1.i64(i64 %j{v}, i64 %n)")
        masks.append(f"%kept{v} = and {mask} %mask{v}, %more_mask")
    begin: list[str] = []
    for r in range(height):
        begin.append(f"%i{r} = add i64 %i, {r}")
        begin.append(f"%row{r} = call i64 @llvm.smin.i64(i64 %i{r}, i64 %m_less)")
        begin.append(f"%row_at{r} = getelementptr i64, ptr %rows, i64 %row{r}")
        begin.append(f"%start{r} = load i64, ptr %row_at{r}")
        begin.append(f"%a_row{r} = getelementptr $element, ptr %a, i64 %start{r}")
        begin.append(f"%a{r} = getelementptr $element, ptr %a_row{r}, i64 {'%j' if is_by_columns else 0}")
        begin.append(f"%result_at{r} = getelementptr i64, ptr %results, i64 %row{r}")
        begin.append(f"%c_row{r} = load i64, ptr %result_at{r}")
        begin.append(f"%c_place{r} = add i64 %c_row{r}, %j")
        begin.append(f"%c{r} = getelementptr $element, ptr %c, i64 %c_place{r}")
        for v in range(vectors):
            begin.append(f"%c{r}_{v} = getelementptr $element, ptr %c{r}, i64 {v * count}")
            begin.append(
                f"%old{r}_{v} = call $vector @llvm.masked.load.$suffix.p0(ptr %c{r}_{v}, i32 {size}, $mask %kept{v}, "
                "$vector zeroinitializer)"
            )
    sums = [f"%sum{r}_{v} = phi $vector [ %old{r}_{v}, %tile ], [ %new{r}_{v}, %term ]" for r, v in tile]
    step: list[str] = []
    for v in range(vectors):
        step.append(f"%b{v} = getelementptr $element, ptr %b_row, i64 {v * count}")
        step.append(
            f"%right{v} = call $vector @llvm.masked.load.$suffix.p0(ptr %b{v}, i32 {size}, $mask %mask{v}, "
            "$vector zeroinitializer)"
        )
    for r in range(height):
        step.append(f"%at{r} = getelementptr $element, ptr %a{r}, i64 %place")
        if not is_by_columns:
            step.append(f"%left{r} = load $element, ptr %at{r}")
            step.append(f"%one{r} = insertelement $vector poison, $element %left{r}, i64 0")
            step.append(f"%all{r} = shufflevector $vector %one{r}, $vector poison, <{count} x i32> zeroinitializer")
        for v in range(vectors):
            left = f"%all{r}"
            if is_by_columns:
                left = f"%left{r}_{v}"
                step.append(f"%at{r}_{v} = getelementptr $element, ptr %at{r}, i64 {v * count}")
                step.append(
                    f"{left} = call $vector @llvm.masked.load.$suffix.p0(ptr %at{r}_{v}, i32 {size}, $mask %mask{v}, "
                    "$vector zeroinitializer)"
                )
            factors = f"$vector {left}, $vector %right{v}, $vector %sum{r}_{v}"
            step.append(f"%new{r}_{v} = call $vector @llvm.fmuladd.$suffix({factors})")
    end = [
        f"call void @llvm.masked.store.$suffix.p0($vector %new{r}_{v}, ptr %c{r}_{v}, i32 {size}, $mask %mask{v})"
        for r, v in tile
    ]
    parts = {"numbers": numbers, "masks": masks, "begin": begin, "sums": sums, "step": step, "end": end}
    whole = _TEXT.safe_substitute({part: "\n".join(f"  {line}" for line in lines) for part, lines in parts.items()})
    names = {"element": element, "vector": vector, "mask": mask, "suffix": suffix, "lanes": count}
    return Template(whole).substitute(names, name=name, height=height, width=vectors * count)
