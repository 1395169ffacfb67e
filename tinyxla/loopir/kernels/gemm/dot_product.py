"""Products of rows with rows, C = A B', of which one operand has few or one: both are read where they lie, along rows.

Other products spread elements of A over vectors of rows of B', for which B is copied to panels, and few rows of A are
not worth that. Here a tile is of some rows of A by some of B, and each of its sums is a vector until all terms are in.
Then two are folded into one vector, half of which is of either, and so on, until it has all sums of the tile in order.
"""

from __future__ import annotations

import functools
from string import Template

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Kernel
from tinyxla.loopir.kernels.gemm.packed import step_of
from tinyxla.loopir.kernels.gemm.packing import bits_of
from tinyxla.loopir.kernels.gemm.problem import MatrixProduct, product_of
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, declare_routine, load_arguments, store_arguments
from tinyxla.loopir.target import vector_bytes
from tinyxla.shapes import Shape

_FEW, _MANY = 32, 32  # rows: of one operand at most, and of the other at least
_TURNED, _MANY_FOR_TURNED = 8, 128  # the same where the rows of the one are copied first
_SHORTEST, _SHORTEST_ALONE = 32, 256  # terms, and those for a single row
_FOLD = 8  # terms for each of the few rows, for which folding costs less than copying the other operand
_PIECES = 16  # into which the work is cut
_NUMBERS = ("m", "n", "k", "a_row", "b_row", "next_a", "down", "next_b", "across", "first", "last")
_SCALARS = {"f32": "float", "f64": "double"}

_TEXT = Template("""
define void @routine(ptr %c, ptr %a, ptr %b, ptr %numbers) nounwind {
entry:
$numbers
  %m_last = sub i64 %m, 1
  %n_last = sub i64 %n, 1
  %whole = and i64 (sub i64 %k, 1), -$lanes
  %rest = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 %whole, i64 %k)
  for %tile from %first below %last by 1
  %i = mul i64 (urem i64 (udiv i64 %tile, %next_a), %down), $rows
  %j = mul i64 (urem i64 (udiv i64 %tile, %next_b), %across), $columns
$begin
  for %t from 0 below %whole by $lanes
$sums
$terms
  end %t
$end
  end %tile
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare $vector @llvm.fmuladd.v$lanes$kind($vector, $vector, $vector)
declare $vector @llvm.masked.load.v$lanes$kind(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.v$part$kind(<$part x $scalar>, ptr, i32, <$part x i1>)
$masks
""")

_BEGIN_ROW = """
  %$x$r.in = call i64 @llvm.smin.i64(i64 (add i64 %$first, $r), i64 %${last}_last)
  %$x$r = getelementptr $scalar, ptr %$x, i64 (mul i64 %$x$r.in, %${x}_row)"""
_TERMS = """
  %$x$r.at = getelementptr $scalar, ptr %$x$r, i64 %t
  %$x$r.terms = load $vector, ptr %$x$r.at, align $size"""
_LAST_TERMS = """
  %$x$r.end = getelementptr $scalar, ptr %$x$r, i64 %whole
  %$x$r.last = call $vector @llvm.masked.load.v$lanes$kind(
    ptr %$x$r.end, i32 $size, $mask %rest, $vector zeroinitializer)"""
_SUM = """
  %sum$i.$j = phi $vector [ zeroinitializer, %t.begin ], [ %next$i.$j, %t.end ]"""
_ADD = """
  %$new$i.$j = call $vector @llvm.fmuladd.v$lanes$kind($vector %a$i.$terms, $vector %b$j.$terms, $vector %$old$i.$j)"""
_STORE = """
  %part$p = shufflevector $vector $found, $vector poison, <$part x i32> <$order>
  %column$p = add i64 %j, $j
  %mask$p = call <$part x i1> @llvm.get.active.lane.mask.v${part}i1.i64(i64 %column$p, i64 %n)
  %c$p = getelementptr $scalar, ptr %c, i64 (add i64 (mul i64 %a$i.in, %n), %column$p)
  call void @llvm.masked.store.v$part$kind(<$part x $scalar> %part$p, ptr %c$p, i32 $size, <$part x i1> %mask$p)"""


@functools.cache
def _provide(kind: str, rows: int, columns: int) -> str:
    """(c, a, b, numbers): some tiles of C, counted along rows of A for every `next_a` and of B for every `next_b`. What
    is behind the last row is that row again. The routine's name."""
    lanes = 8 * vector_bytes() // bits_of(kind)
    part = min(columns, lanes)
    tile = [(i, j) for i in range(rows) for j in range(columns)]

    def of_rows(text: str) -> str:
        operands = (("a", "i", "m", rows), ("b", "j", "n", columns))
        return "".join(
            Template(text).safe_substitute(x=x, first=first, last=last, r=r)
            for x, first, last, count in operands
            for r in range(count)
        )

    def of_tile(text: str, **names: str) -> str:
        return "".join(Template(text).safe_substitute(names, i=i, j=j) for i, j in tile)

    end = of_rows(_LAST_TERMS) + of_tile(_ADD, new="all", old="next", terms="last")
    for p in range(0, len(tile), lanes):
        found, folds = _folded([f"%all{i}.{j}" for i, j in tile[p : p + lanes]])
        end += folds
        for q in range(p, p + lanes, part):
            order = ", ".join(f"i32 {k - p}" for k in range(q, q + part))
            end += Template(_STORE).safe_substitute(p=q, found=found, order=order, i=tile[q][0], j=tile[q][1])
    text = _TEXT.safe_substitute(
        numbers=load_arguments(_NUMBERS),
        begin=of_rows(_BEGIN_ROW),
        sums=of_tile(_SUM),
        terms=of_rows(_TERMS) + of_tile(_ADD, new="next", old="sum", terms="terms"),
        end=end,
        masks="\n".join(f"declare <{n} x i1> @llvm.get.active.lane.mask.v{n}i1.i64(i64, i64)" for n in {lanes, part}),
    )
    names = {
        "kind": kind,
        "scalar": _SCALARS[kind],
        "vector": f"<{lanes} x {_SCALARS[kind]}>",
        "mask": f"<{lanes} x i1>",
    }
    sizes = {"lanes": lanes, "size": bits_of(kind) // 8, "rows": rows, "columns": columns, "part": part}
    return declare_routine(f"rows_{kind}_{rows}_{columns}", Template(text).substitute(names, **sizes))


def _folded(sums: list[str]) -> tuple[str, str]:
    """The sums of the elements of as many vectors as each has, in order: the vector, and what makes it. Of two whose
    numbers differ in a bit, either gives the elements whose numbers have that bit as its own has, and the others are
    added to these."""
    lanes, text, bit = len(sums), "", 1
    while bit < lanes:
        kept = [k + lanes * (k & bit > 0) for k in range(lanes)]
        moved = [(k ^ bit) + lanes * (k & bit > 0) for k in range(lanes)]
        pairs = list(zip(sums[::2], sums[1::2], strict=True))
        sums = [f"{x}.{bit}" for x, _ in pairs]
        for (x, y), into in zip(pairs, sums, strict=True):
            for name, order in (("kept", kept), ("moved", moved)):
                lanes_in = ", ".join(f"i32 {k}" for k in order)
                text += f"\n  {into}.{name} = shufflevector $vector {x}, $vector {y}, <$lanes x i32> <{lanes_in}>"
            text += f"\n  {into} = fadd $vector {into}.kept, {into}.moved"
        bit *= 2
    return sums[0], text


@functools.cache
def _kernel(kind: str, rows: int, columns: int) -> Kernel:
    b = ParametricBuilder("product", "m n k a_batch a_row b_batch b_row next_a down next_b across pieces length")
    n = b.parameter
    a, other, c, sizes = b.argument(kind), b.argument(kind), b.argument(kind, True), b.scratch(INDEX, len(_NUMBERS))
    store_arguments(b, sizes, _NUMBERS, **{name: n[name] for name in _NUMBERS[:-2]})
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, piece = b.delinearize(index, n["pieces"])
        first, last = b.tile_range(piece, n["length"], b.mul(n["down"], n["across"]))
        store_arguments(b, sizes, _NUMBERS, first=first, last=last)
        into = c, b.mul(batch, n["m"], n["n"])
        operands = (a, b.mul(batch, n["a_batch"])), (other, b.mul(batch, n["b_batch"]))
        b.call(_provide(kind, rows, columns), into, *operands, (sizes, 0))
    return b.kernel


@functools.cache
def _turned(kind: str) -> Kernel:
    """The columns of matrices, one behind the other."""
    b = ParametricBuilder("columns", "columns k batch row")
    n = b.parameter
    source, target = b.argument(kind), b.argument(kind, True)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, column = b.delinearize(index, n["columns"])
        first, into = b.add(b.mul(batch, n["batch"]), column), b.mul(index, n["k"])
        with b.loop(0, n["k"]) as (t, _):
            b.store(target, b.add(into, t), b.load(source, b.add(first, b.mul(t, n["row"]))))
    return b.kernel


def supports(x: Instruction) -> bool:
    """Whether the rows of one operand are few, and those of the other contiguous; theirs are, too, or soon copied."""
    p, kinds = product_of(x), {y.array_shape.element_type.name for y in (x, *x.operands)}
    if p is None or len(kinds) > 1 or not kinds <= set(_SCALARS) or not p.batch:
        return False
    few, many = sorted((p.m, p.n))
    sides = _lie_along_rows(p)
    if not sides[p.m <= p.n] or p.k < max(_SHORTEST if few > 1 else _SHORTEST_ALONE, _FOLD * few):
        return False
    most, least = (_FEW, _MANY) if sides[p.m > p.n] else (_TURNED, _MANY_FOR_TURNED)
    return few <= most and many >= least


def _lie_along_rows(p: MatrixProduct) -> tuple[bool, bool]:
    """Whether rows of A and B are contiguous; a single one may be seen as a dense column."""
    return p.left.by_rows or (p.m, p.left.column) == (1, 1), not p.right.by_rows or (p.n, p.right.row) == (1, 1)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    p, kind = product_of(x), x.array_shape.element_type.name
    assert p is not None
    together = 16 if vector_bytes() == 64 else 8  # sums that there are registers for
    few = min(4, 1 << (min(p.m, p.n) - 1).bit_length())
    if few == 1:  # more rows at once are more streams than are read ahead
        together = 8 * vector_bytes() // bits_of(kind)
    rows, columns = (few, together // few) if p.m <= p.n else (together // few, few)
    operands: list[Storage] = [*x.operands]
    distances, kernels = list[int](), list[LoweredKernel]()
    along_rows = _lie_along_rows(p)
    for side, (matrices, count) in enumerate(((p.left, p.m), (p.right, p.n))):
        batch, row = matrices.batch, matrices.distance
        if not along_rows[side]:
            number = p.batch if batch else 1
            operands[side] = Temporary(Shape(x.array_shape.element_type, (number, count, p.k)))
            numbers, arguments = (count, p.k, batch, row), [x.operands[side], operands[side]]
            kernels.append(step_of(_turned(kind), arguments, numbers, number * count, p.k, x))
            batch, row = count * p.k if batch else 0, p.k
        distances += [batch, row]
    down, across = -(-p.m // rows), -(-p.n // columns)
    orders = (1, down, down, across) if p.m <= p.n else (across, down, 1, across)  # the few rows stay in the cache
    length = -(-down * across // max(1, _PIECES // p.batch))
    pieces = -(-down * across // length)
    numbers = (p.m, p.n, p.k, *distances, *orders, pieces, length)
    work = length * together * p.k // min(2, few)  # what is loaded for one row is multiplied once
    return [*kernels, step_of(_kernel(kind, rows, columns), [*operands, x], numbers, p.batch * pieces, work, x)]
