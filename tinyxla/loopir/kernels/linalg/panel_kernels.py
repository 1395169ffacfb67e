"""Panel kernels of dense factorizations (getf2, potf2, laswp and small trsm), as LLVM text that needs none of LLVM's
loop passes.

A panel holds columns of a block of a matrix one after the other, `pitch` elements apart, so that vectors run along
columns. Behind its last row and column is padding of any value. In a matrix, vectors run along its rows, which are
`pitch` elements apart.
"""

from __future__ import annotations

import functools
from string import Template

from tinyxla.loopir.kernels.gemm.arithmetic import bits_of
from tinyxla.loopir.lower.routine_calls import declare_routine, load_arguments
from tinyxla.loopir.target import vector_bytes

UNROLLED = 4  # columns of a panel, or vectors of a row of the matrix, that a loop computes at once
GETF2_ARGUMENTS = ("rows", "columns", "pitch", "first")
SWAP_ROWS_ARGUMENTS = ("pivot_count", "columns", "pitch", "first")
TRSM_ARGUMENTS = ("unknowns", "columns", "pitch", "row_stride", "column_stride", "unit")
_SCALARS = {"f32": "float", "f64": "double"}


def lanes(type: str) -> int:
    """Elements of a vector."""
    return 8 * vector_bytes() // bits_of(type)


_GETF2 = Template("""
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

  for %i from %start below %rows by $lanes  ; the first row with the largest element, in each lane
  %max = phi $vector [ zeroinitializer, %i.begin ], [ %max_next, %i.end ]
  %max_row = phi $words [ %k_all, %i.begin ], [ %max_row_next, %i.end ]
  %x_at = getelementptr $scalar, ptr %column, i64 %i
  %x = load $vector, ptr %x_at, align $size
  %magnitude = call $vector @llvm.fabs.v$lanes$type($vector %x)
  %i_word = trunc i64 %i to i32
$i_all
  %row = add $words %i_all, <$order>
  %is_remaining = icmp sge $words %row, %k_all
  %is_row = icmp slt $words %row, %rows_all
  %is_greater = fcmp ogt $vector %magnitude, %max
  %is_candidate = and $mask %is_remaining, %is_row
  %is_better = and $mask %is_candidate, %is_greater
  %max_next = select $mask %is_better, $vector %magnitude, $vector %max
  %max_row_next = select $mask %is_better, $words %row, $words %max_row
  end %i
  %column_max = call $scalar @llvm.vector.reduce.fmax.v$lanes$type($vector %max_next)
$column_max_all
  %is_largest = fcmp oeq $vector %max_next, %column_max_all
  %candidates = select $mask %is_largest, $words %max_row_next, $words %rows_all
  %pivot_index = call i32 @llvm.vector.reduce.smin.v${lanes}i32($words %candidates)
  %p = zext i32 %pivot_index to i64
  %pivot_at = getelementptr i32, ptr %pivots, i64 %k
  %pivot_row = add i64 %p, %first
  store i32 (trunc i64 %pivot_row to i32), ptr %pivot_at

  for %c from 0 below %columns by 1
  %c_column = getelementptr $scalar, ptr %panel, i64 (mul i64 %c, %pitch)
  %k_at = getelementptr $scalar, ptr %c_column, i64 %k
  %p_at = getelementptr $scalar, ptr %c_column, i64 %p
  %k_value = load $scalar, ptr %k_at
  %p_value = load $scalar, ptr %p_at
  store $scalar %p_value, ptr %k_at
  store $scalar %k_value, ptr %p_at
  end %c

  %pivot = load $scalar, ptr %column[$scalar %k]
  %is_zero = fcmp oeq $scalar %pivot, 0.0
  %divisor = select i1 %is_zero, $scalar 1.0, $scalar %pivot
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
  %group_or_panel_end = select i1 %is_group, i64 %group_end, i64 %columns
  br i1 (icmp slt i64 %k_next, %group_or_panel_end), label %in_group, label %in_group_done
in_group:
  for %n from %k_next below %group_or_panel_end by 1
  %n_column = getelementptr $scalar, ptr %panel, i64 (mul i64 %n, %pitch)
  %top = load $scalar, ptr %n_column[$scalar %k]
$top_all
  for %e from %start below %rows by $lanes
  %e_word = trunc i64 %e to i32
$e_all
  %e_row = add $words %e_all, <$order>
  %is_changed = icmp sgt $words %e_row, %k_all
  %multiplier_at = getelementptr $scalar, ptr %column, i64 %e
  %multiplier = load $vector, ptr %multiplier_at, align $size
  %negated = fneg $vector %multiplier
  %target_at = getelementptr $scalar, ptr %n_column, i64 %e
  %old = load $vector, ptr %target_at, align $size
  %new = call $vector @llvm.fmuladd.v$lanes$type($vector %negated, $vector %top_all, $vector %old)
  %selected = select $mask %is_changed, $vector %new, $vector %old
  store $vector %selected, ptr %target_at, align $size
  end %e
  end %n
  br label %in_group_done
in_group_done:
  %is_last = icmp eq i64 %k_next, %group_end
  %is_full_group = and i1 %is_last, %is_group
  %has_trailing = and i1 %is_full_group, (icmp slt i64 %k_next, %columns)
  br i1 %has_trailing, label %trailing, label %trailing_done
trailing:  ; columns that the group has not updated yet
$group
  for %j from %k_next below %columns by $unrolled
$begin
  for %g from %start below %rows by $lanes
  %g_word = trunc i64 %g to i32
$g_all
  %g_row = add $words %g_all, <$order>
  %is_below_group = icmp sgt $words %g_row, %k_all
$group_columns
$update
  end %g
  end %j
  br label %trailing_done
trailing_done:
  end %k
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare $vector @llvm.fabs.v$lanes$type($vector)
declare $vector @llvm.fmuladd.v$lanes$type($vector, $vector, $vector)
declare $scalar @llvm.fmuladd.$type($scalar, $scalar, $scalar)
declare $scalar @llvm.vector.reduce.fmax.v$lanes$type($vector)
declare i32 @llvm.vector.reduce.smin.v${lanes}i32($words)
""")

_GROUP_COLUMNS = """
  %first$s = sub i64 %k, $back
  %group$s = getelementptr $scalar, ptr %panel, i64 (mul i64 %first$s, %pitch)"""
_GROUP_MULTIPLIERS = """
  %multiplier$r.$s = load $scalar, ptr %group$s[$scalar %first$r]
  %negated$r.$s = fneg $scalar %multiplier$r.$s"""

_BEGIN_COLUMN = """
  %j$v = add i64 %j, $v
  %column$v = getelementptr $scalar, ptr %panel, i64 (mul i64 %j$v, %pitch)"""
_LOAD_TOP = """
  %top$v.$r.at = getelementptr $scalar, ptr %column$v, i64 %first$r
  %top$v.$r.0 = load $scalar, ptr %top$v.$r.at"""
_UPDATE_TOP = """
  %top$v.$r.$next = call $scalar @llvm.fmuladd.$type(
    $scalar %negated$r.$s, $scalar %top$v.$s.$s, $scalar %top$v.$r.$s)"""
_STORE_TOP = """
  store $scalar %top$v.$r.$r, ptr %top$v.$r.at"""

_LOAD_GROUP = """
  %below$s.at = getelementptr $scalar, ptr %group$s, i64 %g
  %below$s = load $vector, ptr %below$s.at, align $size
  %negated$s = fneg $vector %below$s"""
_LOAD_COLUMN = """
  %at$v = getelementptr $scalar, ptr %column$v, i64 %g
  %new$v.0 = load $vector, ptr %at$v, align $size"""
_UPDATE_COLUMN = """
  %new$v.$next = call $vector @llvm.fmuladd.v$lanes$type(
    $vector %negated$s, $vector %tops$v.${s}_all, $vector %new$v.$s)"""
_STORE_COLUMN = """
  %selected$v = select $mask %is_below_group, $vector %new$v.$unrolled, $vector %new$v.0
  store $vector %selected$v, ptr %at$v, align $size"""


@functools.cache
def getf2(type: str) -> str:
    """Declare `getf2(panel, pivots, arguments)` and return its symbol: unblocked LU with partial pivoting, in place.

    The pivot is the first row whose element has the largest magnitude; pivots count from `first`. Columns are processed
    in groups: a group is factored, and then applied to all columns behind it.
    """
    group = range(UNROLLED)

    def fill(text: str, **names: object) -> str:
        return Template(text).safe_substitute(names)

    group_text = "".join(fill(_GROUP_COLUMNS, s=s, back=UNROLLED - 1 - s) for s in group)
    group_text += "".join(fill(_GROUP_MULTIPLIERS, r=r, s=s) for r in group for s in range(r))
    begin, update = "", ""
    for v in group:
        begin += fill(_BEGIN_COLUMN, v=v)
        update += fill(_LOAD_COLUMN, v=v)
        for r in group:
            begin += fill(_LOAD_TOP, v=v, r=r)
            begin += "".join(fill(_UPDATE_TOP, v=v, r=r, s=s, next=s + 1) for s in range(r))
            begin += fill(_STORE_TOP, v=v, r=r) + "\n" + _splat(f"top{v}.{r}.{r}", "$scalar", f"tops{v}.{r}")
            update += fill(_UPDATE_COLUMN, v=v, s=r, next=r + 1)
        update += fill(_STORE_COLUMN, v=v)
    return _declare(
        "getf2",
        type,
        _GETF2.safe_substitute(
            numbers=load_arguments(GETF2_ARGUMENTS),
            last=UNROLLED - 1,
            group=group_text,
            begin=begin,
            group_columns="".join(fill(_LOAD_GROUP, s=s) for s in group),
            update=update,
            top_all=_splat("top", "$scalar"),
            column_max_all=_splat("column_max", "$scalar"),
            divisor_all=_splat("divisor", "$scalar"),
            **{f"{x}_all": _splat(f"{x}_word", "i32", x) for x in ("rows", "k", "i", "d", "e", "g")},
        ),
    )


_SWAP_ROWS = Template("""
define void @routine(ptr %matrix, ptr readonly %pivots, ptr readonly %numbers) nounwind {
entry:
$numbers
  for %k from 0 below %pivot_count by 1
  %pivot = load i32, ptr %pivots[i32 %k]
  %pivot_row = zext i32 %pivot to i64
  %current_row = add i64 %k, %first
  br i1 (icmp eq i64 %current_row, %pivot_row), label %next, label %swap
swap:
  %current = getelementptr $scalar, ptr %matrix, i64 (mul i64 %current_row, %pitch)
  %pivoted = getelementptr $scalar, ptr %matrix, i64 (mul i64 %pivot_row, %pitch)
  for %j from 0 below %columns by $lanes
  %mask = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 %j, i64 %columns)
  %current_at = getelementptr $scalar, ptr %current, i64 %j
  %pivoted_at = getelementptr $scalar, ptr %pivoted, i64 %j
  %x = call $vector @llvm.masked.load.v$lanes$type(ptr %current_at, i32 $size, $mask %mask, $vector zeroinitializer)
  %y = call $vector @llvm.masked.load.v$lanes$type(ptr %pivoted_at, i32 $size, $mask %mask, $vector zeroinitializer)
  call void @llvm.masked.store.v$lanes$type($vector %y, ptr %current_at, i32 $size, $mask %mask)
  call void @llvm.masked.store.v$lanes$type($vector %x, ptr %pivoted_at, i32 $size, $mask %mask)
  end %j
  br label %next
next:
  end %k
  ret void
}
""")

_TRSM = Template("""
define void @routine(ptr %matrix, ptr readonly %factors, ptr readonly %numbers) nounwind {
entry:
$numbers
  for %j from 0 below %columns by $width
$masks
  for %k from 0 below %unknowns by 1
  %current_row = getelementptr $scalar, ptr %matrix, i64 (mul i64 %k, %pitch)
  %factor_row = getelementptr $scalar, ptr %factors, i64 (mul i64 %k, %row_stride)
$begin
  br i1 (icmp sgt i64 %k, 0), label %solved, label %substituted
solved:
  for %s from 0 below %k by 1
$sums
  %factor = load $scalar, ptr %factor_row[$scalar (mul i64 %s, %column_stride)]
  %negated = fneg $scalar %factor
$negated_all
  %known = getelementptr $scalar, ptr %matrix, i64 (mul i64 %s, %pitch)
$update
  end %s
  br label %substituted
substituted:
$totals
$divide
  end %k
  end %j
  ret void
}

declare $vector @llvm.fmuladd.v$lanes$type($vector, $vector, $vector)
declare $scalar @llvm.sqrt.$type($scalar)
""")

_DIVIDE = Template("""
  br i1 (icmp eq i64 %unit, 0), label %divided, label %quotient_done
divided:
  %diagonal = load $scalar, ptr %factor_row[$scalar (mul i64 %k, %column_stride)]
$diagonal_all
$quotients
  br label %quotient_done
quotient_done:
$end""")

_POTF2_PIVOT = Template("""
$store_totals
  %pivot_at = getelementptr $scalar, ptr %current_row, i64 %k
  %pivot = load $scalar, ptr %pivot_at
  %is_not_positive = fcmp ole $scalar %pivot, 0.0
  %sqrt_pivot = call $scalar @llvm.sqrt.$type($scalar %pivot)
  %diagonal = select i1 %is_not_positive, $scalar %pivot, $scalar %sqrt_pivot
$diagonal_all
$quotients
$store_quotients
  store $scalar %diagonal, ptr %pivot_at""")

_MASKED_DECLARATIONS = """
declare $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64, i64)
declare $vector @llvm.masked.load.v$lanes$type(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.v$lanes$type($vector, ptr, i32, $mask)
"""

_MASK = """
  %j$v = add i64 %j, (mul i64 $v, $lanes)
  %mask$v = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 %j$v, i64 %columns)"""
_LOAD = """
  %$x$v.at = getelementptr $scalar, ptr %$from, i64 %j$v
  %$x$v = call $vector @llvm.masked.load.v$lanes$type(
    ptr %$x$v.at, i32 $size, $mask %mask$v, $vector zeroinitializer)"""
_PHI_SUM = """
  %sum$v = phi $vector [ %first$v, %s.begin ], [ %next$v, %s.end ]"""
_ADD_TERM = """
  %next$v = call $vector @llvm.fmuladd.v$lanes$type($vector %negated_all, $vector %known$v, $vector %sum$v)"""
_PHI_TOTAL = """
  %total$v = phi $vector [ %first$v, %k.loop ], [ %next$v, %s.done ]"""
_QUOTIENT = """
  %quotient$v = fdiv $vector %total$v, %diagonal_all"""
_SELECT_RESULT = """
  %result$v = phi $vector [ %total$v, %substituted ], [ %quotient$v, %divided ]"""
_STORE = """
  call void @llvm.masked.store.v$lanes$type($vector %$x$v, ptr %first$v.at, i32 $size, $mask %mask$v)"""


@functools.cache
def swap_rows(type: str) -> str:
    """Declare `swap_rows(matrix, pivots, arguments)` and return its symbol: swap row `first` + k with row pivots[k],
    for all k in order (laswp)."""
    text = _SWAP_ROWS.safe_substitute(numbers=load_arguments(SWAP_ROWS_ARGUMENTS))
    return _declare("swap_rows", type, text + _MASKED_DECLARATIONS)


@functools.cache
def trsm(type: str, vectors: int = UNROLLED) -> str:
    """Declare `trsm(matrix, factors, arguments)` and return its symbol: forward substitution in place.

    The first `unknowns` rows of the matrix are right-hand sides. The triangle has strides `row_stride` and
    `column_stride`, and a diagonal of ones if `unit` is 1. Each iteration solves for `vectors` vectors of columns.
    """

    divide = _DIVIDE.safe_substitute(
        diagonal_all=_splat("diagonal", "$scalar"),
        quotients=_for_vectors(vectors, _QUOTIENT),
        end=_for_vectors(vectors, _SELECT_RESULT) + _for_vectors(vectors, _STORE, x="result"),
    )
    return _trsm_text("trsm", type, vectors, divide)


@functools.cache
def potf2(type: str, vectors: int) -> str:
    """Declare `potf2(matrix, factors, arguments)` and return its symbol: unblocked Cholesky, in place, of the upper
    factor U in U' U.

    The arguments are those of `trsm`, of a matrix whose first columns are the triangle. A pivot that is not positive is
    left as it is.
    """
    divide = _POTF2_PIVOT.safe_substitute(
        store_totals=_for_vectors(vectors, _STORE, x="total"),
        diagonal_all=_splat("diagonal", "$scalar"),
        quotients=_for_vectors(vectors, _QUOTIENT),
        store_quotients=_for_vectors(vectors, _STORE, x="quotient"),
    )
    return _trsm_text("potf2", type, vectors, divide)


def _for_vectors(count: int, text: str, **names: str) -> str:
    """The text for each of `count` vectors."""
    return "".join(Template(text).safe_substitute(names, v=v) for v in range(count))


def _trsm_text(name: str, type: str, vectors: int, divide: str) -> str:
    """Declare a substitution whose text `divide` computes the unknowns from the sums."""
    text = _TRSM.safe_substitute(
        numbers=load_arguments(TRSM_ARGUMENTS),
        masks=_for_vectors(vectors, _MASK),
        begin=_for_vectors(vectors, _LOAD, x="first", **{"from": "current_row"}),
        sums=_for_vectors(vectors, _PHI_SUM),
        negated_all=_splat("negated", "$scalar"),
        update=_for_vectors(vectors, _LOAD, x="known", **{"from": "known"}) + _for_vectors(vectors, _ADD_TERM),
        totals=_for_vectors(vectors, _PHI_TOTAL),
        divide=divide,
    )
    return _declare(f"{name}_{vectors}", type, text + _MASKED_DECLARATIONS, vectors)


def _splat(value: str, type: str, name: str = "") -> str:
    """LLVM text that broadcasts a value to all lanes."""
    name, vector = f"{name or value}_all", f"<$lanes x {type}>"
    return (
        f"  %{name}.first = insertelement {vector} poison, {type} %{value}, i64 0\n"
        f"  %{name} = shufflevector {vector} %{name}.first, {vector} poison, <$lanes x i32> zeroinitializer"
    )


def _declare(name: str, type: str, text: str, vectors: int = UNROLLED) -> str:
    """Declare a routine for an element type and return its symbol."""
    count, scalar = lanes(type), _SCALARS[type]
    expanded = Template(text).substitute(
        type=type,
        scalar=scalar,
        size=bits_of(type) // 8,
        lanes=count,
        unrolled=vectors,
        width=vectors * count,
        vector=f"<{count} x {scalar}>",
        words=f"<{count} x i32>",
        mask=f"<{count} x i1>",
        order=", ".join(f"i32 {k}" for k in range(count)),
    )
    return declare_routine(f"{name}_{type}", expanded)
