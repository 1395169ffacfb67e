"""Dot-product GEMM microkernel: C = A B' with a skinny A or B (few rows), both operands read in place along k.

An outer-product microkernel broadcasts elements of A over vectors of packed B; packing does not pay for few rows of A.
Here the register tile is a few rows of A by a few rows of B', and each of its accumulators is a vector of partial sums
over k. After the loop over k the accumulators are transposed and reduced (butterfly), which gives a row of C in
order.
"""

from __future__ import annotations

import functools
from string import Template

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Kernel
from tinyxla.loopir.kernels.gemm.arithmetic import bits_of
from tinyxla.loopir.kernels.gemm.packed import bind_parameters
from tinyxla.loopir.kernels.gemm.problem import GemmProblem, gemm_problem
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary, Users
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, declare_routine, load_arguments, store_arguments
from tinyxla.loopir.target import current_target, vector_bytes
from tinyxla.shapes import Shape

_MAX_SKINNY_ROWS, _MIN_OTHER_ROWS = 32, 32  # rows of the skinny operand, and of the other one
_MAX_TRANSPOSED_ROWS, _MIN_OTHER_ROWS_IF_TRANSPOSED = 8, 128  # the same if the skinny operand is transposed first
_MIN_K, _MIN_K_OF_VECTOR = 32, 256  # terms of k, and for a skinny operand of one row
_MIN_K_PER_ROW = 8  # terms of k for each skinny row from which the final reduction costs less than packing
_ARGUMENTS = ("m", "n", "k", "a_row", "b_row", "a_divisor", "a_tiles", "b_divisor", "b_tiles", "first", "last")
_SCALARS = {"f32": "float", "f64": "double"}

_TEXT = Template("""
define void @routine(ptr %c, ptr %a, ptr %b, ptr %numbers) nounwind {
entry:
$arguments
  %m_last = sub i64 %m, 1
  %n_last = sub i64 %n, 1
  %full = and i64 (sub i64 %k, 1), -$lanes
  %remainder_mask = call $mask @llvm.get.active.lane.mask.v${lanes}i1.i64(i64 %full, i64 %k)
  for %tile from %first below %last by 1
  %i = mul i64 (urem i64 (udiv i64 %tile, %a_divisor), %a_tiles), $rows
  %j = mul i64 (urem i64 (udiv i64 %tile, %b_divisor), %b_tiles), $columns
$begin
  for %t from 0 below %full by $lanes
$sums
$terms
  end %t
$end
  end %tile
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare $vector @llvm.fmuladd.v$lanes$type($vector, $vector, $vector)
declare $vector @llvm.masked.load.v$lanes$type(ptr, i32, $mask, $vector)
declare void @llvm.masked.store.v$part$type(<$part x $scalar>, ptr, i32, <$part x i1>)
$masks
""")

_BEGIN_ROW = """
  %$x$r.in = call i64 @llvm.smin.i64(i64 (add i64 %$first, $r), i64 %${last}_last)
  %$x$r = getelementptr $scalar, ptr %$x, i64 (mul i64 %$x$r.in, %${x}_row)"""
_TERMS = """
  %$x$r.at = getelementptr $scalar, ptr %$x$r, i64 %t
  %$x$r.terms = load $vector, ptr %$x$r.at, align $size"""
_LAST_TERMS = """
  %$x$r.end = getelementptr $scalar, ptr %$x$r, i64 %full
  %$x$r.last = call $vector @llvm.masked.load.v$lanes$type(
    ptr %$x$r.end, i32 $size, $mask %remainder_mask, $vector zeroinitializer)"""
_SUM = """
  %sum$i.$j = phi $vector [ zeroinitializer, %t.begin ], [ %next$i.$j, %t.end ]"""
_ADD = """
  %$new$i.$j = call $vector @llvm.fmuladd.v$lanes$type($vector %a$i.$terms, $vector %b$j.$terms, $vector %$old$i.$j)"""
_STORE = """
  %part$p = shufflevector $vector $result, $vector poison, <$part x i32> <$order>
  %column$p = add i64 %j, $j
  %mask$p = call <$part x i1> @llvm.get.active.lane.mask.v${part}i1.i64(i64 %column$p, i64 %n)
  %c$p = getelementptr $scalar, ptr %c, i64 (add i64 (mul i64 %a$i.in, %n), %column$p)
  call void @llvm.masked.store.v$part$type(<$part x $scalar> %part$p, ptr %c$p, i32 $size, <$part x i1> %mask$p)"""


@functools.cache
def _declare_microkernel(type: str, rows: int, columns: int) -> str:
    """Declare `microkernel(c, a, b, arguments)`, which computes tiles `first` to `last` of C, and return its symbol.

    Tile t is row tile t / `a_divisor` % `a_tiles` and column tile t / `b_divisor` % `b_tiles`. Rows past the last one
    repeat the last one and are not stored.
    """
    lanes = 8 * vector_bytes() // bits_of(type)
    part = min(columns, lanes)
    tile = [(i, j) for i in range(rows) for j in range(columns)]

    def for_rows(text: str) -> str:
        operands = (("a", "i", "m", rows), ("b", "j", "n", columns))
        return "".join(
            Template(text).safe_substitute(x=x, first=first, last=last, r=r)
            for x, first, last, count in operands
            for r in range(count)
        )

    def for_tile(text: str, **names: str) -> str:
        return "".join(Template(text).safe_substitute(names, i=i, j=j) for i, j in tile)

    end = for_rows(_LAST_TERMS) + for_tile(_ADD, new="all", old="next", terms="last")
    for p in range(0, len(tile), lanes):
        result, folds = _transpose_reduce([f"%all{i}.{j}" for i, j in tile[p : p + lanes]])
        end += folds
        for q in range(p, p + lanes, part):
            order = ", ".join(f"i32 {k - p}" for k in range(q, q + part))
            end += Template(_STORE).safe_substitute(p=q, result=result, order=order, i=tile[q][0], j=tile[q][1])
    text = _TEXT.safe_substitute(
        arguments=load_arguments(_ARGUMENTS),
        begin=for_rows(_BEGIN_ROW),
        sums=for_tile(_SUM),
        terms=for_rows(_TERMS) + for_tile(_ADD, new="next", old="sum", terms="terms"),
        end=end,
        masks="\n".join(f"declare <{n} x i1> @llvm.get.active.lane.mask.v{n}i1.i64(i64, i64)" for n in {lanes, part}),
    )
    names = {
        "type": type,
        "scalar": _SCALARS[type],
        "vector": f"<{lanes} x {_SCALARS[type]}>",
        "mask": f"<{lanes} x i1>",
    }
    sizes = {"lanes": lanes, "size": bits_of(type) // 8, "rows": rows, "columns": columns, "part": part}
    return declare_routine(f"rows_{type}_{rows}_{columns}", Template(text).substitute(names, **sizes))


def _transpose_reduce(sums: list[str]) -> tuple[str, str]:
    """Horizontal sums of n vectors of n lanes as one vector, in order, by log2(n) butterfly steps: the value's name and
    the LLVM text that computes it."""
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
def _kernel(type: str, rows: int, columns: int) -> Kernel:
    """Tiles of C in chunks of `length`, for each matrix of the batch."""
    b = ParametricBuilder(
        "product", "m n k a_batch a_row b_batch b_row a_divisor a_tiles b_divisor b_tiles chunks length"
    )
    n = b.parameter
    a = b.argument(type)
    right = b.argument(type)
    c = b.argument(type, True)
    sizes = b.scratch(INDEX, len(_ARGUMENTS))
    store_arguments(b, sizes, _ARGUMENTS, **{name: n[name] for name in _ARGUMENTS[:-2]})
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, chunk = b.delinearize(index, n["chunks"])
        first, last = b.tile_range(chunk, n["length"], b.mul(n["a_tiles"], n["b_tiles"]))
        store_arguments(b, sizes, _ARGUMENTS, first=first, last=last)
        into = c, b.mul(batch, n["m"], n["n"])
        operands = (a, b.mul(batch, n["a_batch"])), (right, b.mul(batch, n["b_batch"]))
        b.call(_declare_microkernel(type, rows, columns), into, *operands, (sizes, 0))
    return b.kernel


@functools.cache
def _transposed_columns(type: str) -> Kernel:
    """The columns of a batch of matrices, copied one after the other_rows."""
    b = ParametricBuilder("columns", "columns k batch row")
    n = b.parameter
    source, target = b.argument(type), b.argument(type, True)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, column = b.delinearize(index, n["columns"])
        first, into = b.add(b.mul(batch, n["batch"]), column), b.mul(index, n["k"])
        with b.loop(0, n["k"]) as (t, _):
            b.store(target, b.add(into, t), b.load(source, b.add(first, b.mul(t, n["row"]))))
    return b.kernel


def supports(x: Instruction) -> bool:
    """Whether one operand is skinny, k is long enough, and the other operand has contiguous rows along k; the skinny
    one has too, or is transposed first at little cost."""
    p, types = gemm_problem(x), {y.array_shape.element_type.name for y in (x, *x.operands)}
    if p is None or len(types) > 1 or not types <= set(_SCALARS) or not p.batch:
        return False
    skinny, other_rows = sorted((p.m, p.n))
    has_contiguous_rows = _have_contiguous_rows(p)
    min_k = max(_MIN_K if skinny > 1 else _MIN_K_OF_VECTOR, _MIN_K_PER_ROW * skinny)
    if not has_contiguous_rows[p.m <= p.n] or p.k < min_k:
        return False
    if has_contiguous_rows[p.m > p.n]:
        return skinny <= _MAX_SKINNY_ROWS and other_rows >= _MIN_OTHER_ROWS
    return skinny <= _MAX_TRANSPOSED_ROWS and other_rows >= _MIN_OTHER_ROWS_IF_TRANSPOSED


def _have_contiguous_rows(p: GemmProblem) -> tuple[bool, bool]:
    """Whether rows of A and of B' are contiguous along k; a single row may be described as a dense column."""
    return p.left.row_major or (p.m, p.left.column) == (1, 1), not p.right.row_major or (p.n, p.right.row) == (1, 1)


def lower(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The kernels: a transposing copy of a skinny operand if need be, and the product."""
    p, type = gemm_problem(x), x.array_shape.element_type.name
    assert p is not None
    tile_sums = 16 if vector_bytes() == 64 else 8  # accumulators in registers
    skinny = min(4, 1 << (min(p.m, p.n) - 1).bit_length())
    if skinny == 1:  # one vector of sums: the hardware prefetcher follows few streams
        tile_sums = 8 * vector_bytes() // bits_of(type)
    rows, columns = (skinny, tile_sums // skinny) if p.m <= p.n else (tile_sums // skinny, skinny)
    operands: list[Storage] = [*x.operands]
    strides, kernels = list[int](), list[LoweredKernel]()
    has_contiguous_rows = _have_contiguous_rows(p)
    for side, (matrices, count) in enumerate(((p.left, p.m), (p.right, p.n))):
        batch, row = matrices.batch, matrices.leading_dimension
        if not has_contiguous_rows[side]:
            matrix_count = p.batch if batch else 1
            operands[side] = Temporary(Shape(x.array_shape.element_type, (matrix_count, count, p.k)))
            parameters, arguments = (count, p.k, batch, row), [x.operands[side], operands[side]]
            kernels.append(
                bind_parameters(_transposed_columns(type), arguments, parameters, matrix_count * count, p.k, x)
            )
            batch, row = count * p.k if batch else 0, p.k
        strides += [batch, row]
    a_tiles, b_tiles = -(-p.m // rows), -(-p.n // columns)
    # The skinny operand's rows stay in the cache.
    tile_order = (1, a_tiles, a_tiles, b_tiles) if p.m <= p.n else (b_tiles, a_tiles, 1, b_tiles)
    length = -(-a_tiles * b_tiles // max(1, current_target().balanced_tasks // p.batch))
    chunks = -(-a_tiles * b_tiles // length)
    parameters = (p.m, p.n, p.k, *strides, *tile_order, chunks, length)
    work = length * tile_sums * p.k // min(2, skinny)  # for one row, loads cost as much as multiply-adds
    return [
        *kernels,
        bind_parameters(_kernel(type, rows, columns), [*operands, x], parameters, p.batch * chunks, work, x),
    ]
