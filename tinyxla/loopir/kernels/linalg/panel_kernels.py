"""Steps of an elimination, as routines for any sizes: text that needs none of LLVM's passes.

A *panel* holds the columns of a block of a matrix one behind the other, `pitch` elements apart, so that vectors are
along its rows. Behind the last row and the last column there is room, and anything. In the matrix, vectors are along
rows of it, which are `row` elements apart.
"""

from __future__ import annotations

import functools
from string import Template

from tinyxla.loopir.kernels.gemm.packing import bits_of
from tinyxla.loopir.lower.routine_calls import declare_routine, load_arguments
from tinyxla.loopir.target import vector_bytes

TOGETHER = 4  # columns of a panel, or vectors of a row of the matrix, that are computed side by side
FACTOR = ("rows", "columns", "pitch", "first")
EXCHANGE = ("steps", "columns", "row", "first")
SUBSTITUTE = ("steps", "columns", "row", "down", "along", "unit")
_SCALARS = {"f32": "float", "f64": "double"}


def lanes(kind: str) -> int:
    """Elements of a vector."""
    return 8 * vector_bytes() // bits_of(kind)


_FACTOR = Template("""
define void @routine(ptr noalias %panel, ptr noalias %pivots, ptr readonly %numbers) nounwind {
entry:
$numbers
  %steps = call i64 @llvm.smin.i64(i64 %rows, i64 %columns)
  %rows_word = trunc i64 %rows to i32
$rows_all
  for %k from 0 below %steps by 1
  %column = getelementptr $scalar, ptr %panel, i64 (mul i64 %k, %pitch)
  %start = and i64 %k, -$lanes
  %k_next = add i64 %k, 1
  %k_word = trunc i64 %k to i32
$k_all

  for %i from %start below %rows by $lanes  ; in each lane the first of the largest
  %most = phi $vector [ zeroinitializer, %i.begin ], [ %most_next, %i.end ]
  %where = phi $words [ %k_all, %i.begin ], [ %where_next, %i.end ]
  %x_at = getelementptr $scalar, ptr %column, i64 %i
  %x = load $vector, ptr %x_at, align $size
  %x_size = call $vector @llvm.fabs.v$lanes$kind($vector %x)
  %i_word = trunc i64 %i to i32
$i_all
  %row = add $words %i_all, <$order>
  %is_open = icmp sge $words %row, %k_all
  %is_row = icmp slt $words %row, %rows_all
  %is_larger = fcmp ogt $vector %x_size, %most
  %is_candidate = and $mask %is_open, %is_row
  %is_better = and $mask %is_candidate, %is_larger
  %most_next = select $mask %is_better, $vector %x_size, $vector %most
  %where_next = select $mask %is_better, $words %row, $words %where
  end %i
  %largest = call $scalar @llvm.vector.reduce.fmax.v$lanes$kind($vector %most_next)
$largest_all
  %is_largest = fcmp oeq $vector %most_next, %largest_all
  %candidates = select $mask %is_largest, $words %where_next, $words %rows_all
  %found = call i32 @llvm.vector.reduce.smin.v${lanes}i32($words %candidates)
  %p = zext i32 %found to i64
  %pivot_at = getelementptr i32, ptr %pivots, i64 %k
  %pivot_row = add i64 %p, %first
  store i32 (trunc i64 %pivot_row to i32), ptr %pivot_at

  for %c from 0 below %columns by 1
  %c_column = getelementptr $scalar, ptr %panel, i64 (mul i64 %c, %pitch)
  %here = getelementptr $scalar, ptr %c_column, i64 %k
  %there = getelementptr $scalar, ptr %c_column, i64 %p
  %from_here = load $scalar, ptr %here
  %from_there = load $scalar, ptr %there
  store $scalar %from_there, ptr %here
  store $scalar %from_here, ptr %there
  end %c

  %pivot = load $scalar, ptr %column[$scalar %k]
  %is_none = fcmp oeq $scalar %pivot, 0.0
  %divisor = select i1 %is_none, $scalar 1.0, $scalar %pivot
$divisor_all
  for %d from %start below %rows by $lanes
  %below_at = getelementptr $scalar, ptr %column, i64 %d
  %below = load $vector, ptr %below_at, align $size
  %quotient = fdiv $vector %below, %divisor_all
  %d_word = trunc i64 %d to i32
$d_all
  %d_row = add $words %d_all, <$order>
  %is_below = icmp sgt $words %d_row, %k_all
  %divided = select $mask %is_below, $vector %quotient, $vector %below
  store $vector %divided, ptr %below_at, align $size
  end %d

  %group_end = add i64 (or i64 %k, $last), 1
  %is_group = icmp sle i64 %group_end, %steps
  %near_end = select i1 %is_group, i64 %group_end, i64 %columns
  br i1 (icmp slt i64 %k_next, %near_end), label %near, label %near_done
near:
  for %n from %k_next below %near_end by 1
  %n_column = getelementptr $scalar, ptr %panel, i64 (mul i64 %n, %pitch)
  %top = load $scalar, ptr %n_column[$scalar %k]
$top_all
  for %e from %start below %rows by $lanes
  %e_word = trunc i64 %e to i32
$e_all
  %e_row = add $words %e_all, <$order>
  %is_changed = icmp sgt $words %e_row, %k_all
  %factor_at = getelementptr $scalar, ptr %column, i64 %e
  %factor = load $vector, ptr %factor_at, align $size
  %minus = fneg $vector %factor
  %near_at = getelementptr $scalar, ptr %n_column, i64 %e
  %old = load $vector, ptr %near_at, align $size
  %new = call $vector @llvm.fmuladd.v$lanes$kind($vector %minus, $vector %top_all, $vector %old)
  %kept = select $mask %is_changed, $vector %new, $vector %old
  store $vector %kept, ptr %near_at, align $size
  end %e
  end %n
  br label %near_done
near_done:
  %is_last = icmp eq i64 %k_next, %group_end
  %is_whole = and i1 %is_last, %is_group
  %are_more = and i1 %is_whole, (icmp slt i64 %k_next, %columns)
  br i1 %are_more, label %others, label %others_done
others:  ; on which a group of columns has had no influence yet
$group
  for %j from %k_next below %columns by $together
$begin
  for %g from %start below %rows by $lanes
  %g_word = trunc i64 %g to i32
$g_all
  %g_row = add $words %g_all, <$order>
  %is_below_group = icmp sgt $words %g_row, %k_all
$factors
$update
  end %g
  end %j
  br label %others_done
others_done:
  end %k
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare $vector @llvm.fabs.v$lanes$kind($vector)
declare $vector @llvm.fmuladd.v$lanes$kind($vector, $vector, $vector)
declare $scalar @llvm.fmuladd.$kind($scalar, $scalar, $scalar)
declare $scalar @llvm.vector.reduce.fmax.v$lanes$kind($vector)
declare i32 @llvm.vector.reduce.smin.v${lanes}i32($words)
""")

_GROUP_COLUMN = """
  %first$s = sub i64 %k, $back
  %group$s = getelementptr $scalar, ptr %panel, i64 (mul i64 %first$s, %pitch)"""
_GROUP_FACTOR = """
  %factor$r.$s = load $scalar, ptr %group$s[$scalar %first$r]
  %minus$r.$s = fneg $scalar %factor$r.$s"""

_BEGIN_COLUMN = """
  %j$v = add i64 %j, $v
  %column$v = getelementptr $scalar, ptr %panel, i64 (mul i64 %j$v, %pitch)"""
_TOP = """
  %top$v.$r.at = getelementptr $scalar, ptr %column$v, i64 %first$r
  %top$v.$r.0 = load $scalar, ptr %top$v.$r.at"""
_TOP_CHANGED = """
  %top$v.$r.$next = call $scalar @llvm.fmuladd.$kind($scalar %minus$r.$s, $scalar %top$v.$s.$s, $scalar %top$v.$r.$s)"""
_TOP_FOUND = """
  store $scalar %top$v.$r.$r, ptr %top$v.$r.at"""

_FACTORS = """
  %below$s.at = getelementptr $scalar, ptr %group$s, i64 %g
  %below$s = load $vector, ptr %below$s.at, align $size
  %minus$s = fneg $vector %below$s"""
_OLD_COLUMN = """
  %at$v = getelementptr $scalar, ptr %column$v, i64 %g
  %new$v.0 = load $vector, ptr %at$v, align $size"""
_CHANGED_COLUMN = """
  %new$v.$next = call $vector @llvm.fmuladd.v$lanes$kind(
    $vector %minus$s, $vector %tops$v.${s}_all, $vector %new$v.$s)"""
_NEW_COLUMN = """
  %kept$v = select $mask %is_below_group, $vector %new$v.$together, $vector %new$v.0
  store $vector %kept$v, ptr %at$v, align $size"""


@functools.cache
def factor(kind: str) -> str:
    """(panel, pivots, numbers): L and U of a panel of so many rows and columns, in place, by partial pivoting: the row
    that comes to place k is the first of those whose element is largest. Rows count from `first`. A group of columns
    comes first to itself, and then all of it to each of those behind it. The name."""
    group = range(TOGETHER)

    def each(text: str, **names: object) -> str:
        return Template(text).safe_substitute(names)

    factors = "".join(each(_GROUP_COLUMN, s=s, back=TOGETHER - 1 - s) for s in group)
    factors += "".join(each(_GROUP_FACTOR, r=r, s=s) for r in group for s in range(r))
    begin, update = "", ""
    for v in group:
        begin += each(_BEGIN_COLUMN, v=v)
        update += each(_OLD_COLUMN, v=v)
        for r in group:
            begin += each(_TOP, v=v, r=r)
            begin += "".join(each(_TOP_CHANGED, v=v, r=r, s=s, next=s + 1) for s in range(r))
            begin += each(_TOP_FOUND, v=v, r=r) + "\n" + _all(f"top{v}.{r}.{r}", "$scalar", f"tops{v}.{r}")
            update += each(_CHANGED_COLUMN, v=v, s=r, next=r + 1)
        update += each(_NEW_COLUMN, v=v)
    return _provided(
        "factor",
        kind,
        _FACTOR.safe_substitute(
            numbers=load_arguments(FACTOR),
            last=TOGETHER - 1,
            group=factors,
            begin=begin,
            factors="".join(each(_FACTORS, s=s) for s in group),
            update=update,
            top_all=_all("top", "$scalar"),
            largest_all=_all("largest", "$scalar"),
            divisor_all=_all("divisor", "$scalar"),
            **{f"{x}_all": _all(f"{x}_word", "i32", x) for x in ("rows", "k", "i", "d", "e", "g")},
        ),
    )


_EXCHANGE = Template("""
define void @routine(ptr %matrix, ptr readonly %pivots, ptr readonly %numbers) nounwind {
entry:
$numbers
  for %k from 0 below %steps by 1
  %place = load i32, ptr %pivots[i32 %k]
  %other = zext i32 %place to i64
  %one = add i64 %k, %first
  br i1 (icmp eq i64 %one, %other), label %same, label %exchanged
exchanged:
  %here = getelementptr $scalar, ptr %matrix, i64 (mul i64 %one, %row)
  %there = getelementptr $scalar, ptr %matrix, i64 (mul i64 %other, %row)
  for %j from 0 below %columns by $lanes
  %mask = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 %j, i64 %columns)
  %here_at = getelementptr $scalar, ptr %here, i64 %j
  %there_at = getelementptr $scalar, ptr %there, i64 %j
  %x = call $vector @llvm.masked.load.v$lanes$kind(ptr %here_at, i32 $size, $mask %mask, $vector zeroinitializer)
  %y = call $vector @llvm.masked.load.v$lanes$kind(ptr %there_at, i32 $size, $mask %mask, $vector zeroinitializer)
  call void @llvm.masked.store.v$lanes$kind($vector %y, ptr %here_at, i32 $size, $mask %mask)
  call void @llvm.masked.store.v$lanes$kind($vector %x, ptr %there_at, i32 $size, $mask %mask)
  end %j
  br label %same
same:
  end %k
  ret void
}
""")

_SUBSTITUTE = Template("""
define void @routine(ptr %matrix, ptr readonly %factors, ptr readonly %numbers) nounwind {
entry:
$numbers
  for %j from 0 below %columns by $width
$masks
  for %k from 0 below %steps by 1
  %line = getelementptr $scalar, ptr %matrix, i64 (mul i64 %k, %row)
  %beside = getelementptr $scalar, ptr %factors, i64 (mul i64 %k, %down)
$begin
  br i1 (icmp sgt i64 %k, 0), label %others, label %all
others:
  for %s from 0 below %k by 1
$sums
  %factor = load $scalar, ptr %beside[$scalar (mul i64 %s, %along)]
  %minus = fneg $scalar %factor
$minus_all
  %known = getelementptr $scalar, ptr %matrix, i64 (mul i64 %s, %row)
$update
  end %s
  br label %all
all:
$totals
$divide
  end %k
  end %j
  ret void
}

declare $vector @llvm.fmuladd.v$lanes$kind($vector, $vector, $vector)
declare $scalar @llvm.sqrt.$kind($scalar)
""")

_DIVIDE = Template("""
  br i1 (icmp eq i64 %unit, 0), label %divided, label %found
divided:
  %diagonal = load $scalar, ptr %beside[$scalar (mul i64 %k, %along)]
$diagonal_all
$quotients
  br label %found
found:
$end""")

_ROOT = Template("""
$store_totals
  %pivot_at = getelementptr $scalar, ptr %line, i64 %k
  %pivot = load $scalar, ptr %pivot_at
  %has_none = fcmp ole $scalar %pivot, 0.0
  %root = call $scalar @llvm.sqrt.$kind($scalar %pivot)
  %diagonal = select i1 %has_none, $scalar %pivot, $scalar %root
$diagonal_all
$quotients
$store_quotients
  store $scalar %diagonal, ptr %pivot_at""")

_MASKS = """
declare $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare $vector @llvm.masked.load.v$lanes$kind(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.v$lanes$kind($vector, ptr, i32, $mask)
"""

_MASK = """
  %j$v = add i64 %j, (mul i64 $v, $lanes)
  %mask$v = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 %j$v, i64 %columns)"""
_LOAD = """
  %$x$v.at = getelementptr $scalar, ptr %$from, i64 %j$v
  %$x$v = call $vector @llvm.masked.load.v$lanes$kind(
    ptr %$x$v.at, i32 $size, $mask %mask$v, $vector zeroinitializer)"""
_SUM = """
  %sum$v = phi $vector [ %first$v, %s.begin ], [ %next$v, %s.end ]"""
_NEXT = """
  %next$v = call $vector @llvm.fmuladd.v$lanes$kind($vector %minus_all, $vector %known$v, $vector %sum$v)"""
_TOTAL = """
  %total$v = phi $vector [ %first$v, %k.loop ], [ %next$v, %s.done ]"""
_QUOTIENT = """
  %quotient$v = fdiv $vector %total$v, %diagonal_all"""
_FOUND = """
  %found$v = phi $vector [ %total$v, %all ], [ %quotient$v, %divided ]"""
_STORE = """
  call void @llvm.masked.store.v$lanes$kind($vector %$x$v, ptr %first$v.at, i32 $size, $mask %mask$v)"""


@functools.cache
def exchange(kind: str) -> str:
    """(matrix, pivots, numbers): exchange row `first` + k with the one that pivot k says, in some columns."""
    return _provided("exchange", kind, _EXCHANGE.safe_substitute(numbers=load_arguments(EXCHANGE)) + _MASKS)


@functools.cache
def substitute(kind: str, together: int = TOGETHER) -> str:
    """(matrix, factors, numbers): from each of the first rows of some columns, subtract the rows before it, times its
    factors, and divide it by the one on the diagonal where `unit` is 0 and not 1. Factors lie `down` apart from row to
    row, and `along` apart in a row. So many vectors are computed side by side. The name."""

    divide = _DIVIDE.safe_substitute(
        diagonal_all=_all("diagonal", "$scalar"),
        quotients=_each(together, _QUOTIENT),
        end=_each(together, _FOUND) + _each(together, _STORE, x="found"),
    )
    return _substitution("substitute", kind, together, divide)


@functools.cache
def root(kind: str, together: int) -> str:
    """(matrix, factors, numbers): the same where the matrix begins with what is to be the triangle of factors: that of
    U in U' U, whose diagonal is found by the way. What has no positive root stays there."""
    divide = _ROOT.safe_substitute(
        store_totals=_each(together, _STORE, x="total"),
        diagonal_all=_all("diagonal", "$scalar"),
        quotients=_each(together, _QUOTIENT),
        store_quotients=_each(together, _STORE, x="quotient"),
    )
    return _substitution("root", kind, together, divide)


def _each(count: int, text: str, **names: str) -> str:
    """For so many vectors."""
    return "".join(Template(text).safe_substitute(names, v=v) for v in range(count))


def _substitution(name: str, kind: str, together: int, divide: str) -> str:
    text = _SUBSTITUTE.safe_substitute(
        numbers=load_arguments(SUBSTITUTE),
        masks=_each(together, _MASK),
        begin=_each(together, _LOAD, x="first", **{"from": "line"}),
        sums=_each(together, _SUM),
        minus_all=_all("minus", "$scalar"),
        update=_each(together, _LOAD, x="known", **{"from": "known"}) + _each(together, _NEXT),
        totals=_each(together, _TOTAL),
        divide=divide,
    )
    return _provided(f"{name}_{together}", kind, text + _MASKS, together)


def _all(value: str, type: str, name: str = "") -> str:
    """Instructions that repeat a value in all lanes."""
    name, kind = f"{name or value}_all", f"<$lanes x {type}>"
    return (
        f"  %{name}.one = insertelement {kind} poison, {type} %{value}, i64 0\n"
        f"  %{name} = shufflevector {kind} %{name}.one, {kind} poison, <$lanes x i32> zeroinitializer"
    )


def _provided(name: str, kind: str, text: str, together: int = TOGETHER) -> str:
    count, scalar = lanes(kind), _SCALARS[kind]
    whole = Template(text).substitute(
        kind=kind,
        scalar=scalar,
        size=bits_of(kind) // 8,
        lanes=count,
        together=together,
        width=together * count,
        vector=f"<{count} x {scalar}>",
        words=f"<{count} x i32>",
        mask=f"<{count} x i1>",
        order=", ".join(f"i32 {k}" for k in range(count)),
    )
    return declare_routine(f"{name}_{kind}", whole)
