"""Dot-product GEMM microkernel: C = A B' with a skinny A or B (few rows), both operands read in place along k.

An outer-product microkernel broadcasts elements of A over vectors of packed B; packing does not pay for few rows of A.
Here the register tile is a few rows of A by a few rows of B', and each of its accumulators is a vector of partial sums
over k. After the loop over k the accumulators are transposed and reduced (butterfly), which gives a row of C in
order.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product

from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Builder, Index, Kernel, Literal, Value
from tinyxla.loopir.ir.routines import declare_kernel
from tinyxla.loopir.kernels.gemm.arithmetic import bits_of
from tinyxla.loopir.kernels.gemm.packed import bind_parameters
from tinyxla.loopir.kernels.gemm.problem import GemmProblem
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.loopir.target import current_target, vector_bytes
from tinyxla.shapes import Shape

_ARGUMENTS = tuple("m n k a_row b_row a_divisor a_tiles b_divisor b_tiles first_tile last_tile".split())


@functools.cache
def _declare_microkernel(type: str, rows: int, columns: int) -> str:
    """Declare `microkernel(c, a, b, arguments)` and return its symbol: it computes tiles `first_tile` to `last_tile` of
    C.

    Tile t is row tile t / `a_divisor` % `a_tiles` and column tile t / `b_divisor` % `b_tiles`. Rows past the last one
    repeat the last one and are not stored.
    """
    b, lanes = ParametricBuilder("rows", " ".join(_ARGUMENTS)), 8 * vector_bytes() // bits_of(type)
    c, left, right, n = b.argument(type, True), b.argument(type), b.argument(type), b.parameter
    last_row, last_column = b.sub(n["m"], 1), b.sub(n["n"], 1)
    full = b.mul(b.floordiv(b.sub(n["k"], 1), lanes), lanes)
    remainder_mask = b.lane_mask(full, n["k"], lanes)
    zero = b.broadcast(Literal(type, 0.0), lanes)
    with b.loop(n["first_tile"], n["last_tile"], sequential=True) as (tile, _):
        i = b.mul(b.remainder(b.floordiv(tile, n["a_divisor"]), n["a_tiles"]), rows)
        j = b.mul(b.remainder(b.floordiv(tile, n["b_divisor"]), n["b_tiles"]), columns)
        a_rows = [b.min(b.add(i, row), last_row) for row in range(rows)]
        b_rows = [b.min(b.add(j, column), last_column) for column in range(columns)]
        a_views = [b.view(left, b.mul(row, n["a_row"])) for row in a_rows]
        b_views = [b.view(right, b.mul(row, n["b_row"])) for row in b_rows]

        def add_products(sums: Sequence[Value], t: Index, mask: Value | None = None) -> list[Value]:
            """The sums with the products of a vector of terms, for all elements of the tile."""
            x, y = ([b.load(row, t, lanes, mask=mask) for row in side] for side in (a_views, b_views))
            return [b.compute("multiply-add", type, *pair, old) for pair, old in zip(product(x, y), sums, strict=True)]

        with b.loop(0, full, [zero] * (rows * columns), sequential=True, step=lanes, nonempty=True) as (t, terms):
            for carried, total in zip(terms.carried, add_products([x.arg for x in terms.carried], t), strict=True):
                carried.next = total
        sums = add_products([x.result for x in terms.carried], full, remainder_mask)
        c_starts = [b.add(b.mul(row, n["n"]), j) for row in a_rows]
        elements, part = _transpose_reduce(b, sums, lanes), min(columns, lanes)
        for position in range(0, rows * columns, part):
            row, column = divmod(position, columns)
            mask = b.lane_mask(b.add(j, column), n["n"], part) if part > 1 else None  # a single column is whole
            order = range(position % lanes, position % lanes + part)
            b.store(c, b.add(c_starts[row], column), b.shuffle(order, elements[position // lanes]), mask=mask)
    return declare_kernel(f"rows_{type}_{rows}_{columns}", b.kernel)


def _transpose_reduce(b: Builder, sums: Sequence[Value], lanes: int) -> list[Value]:
    """Horizontal sums of vectors as vectors, in order: of n vectors of n lanes by log2(n) butterfly steps."""
    bit = 1
    while bit < lanes:
        kept = [k + lanes * (k & bit > 0) for k in range(lanes)]
        moved = [(k ^ bit) + lanes * (k & bit > 0) for k in range(lanes)]
        sums = [
            b.compute("add", x.type, b.shuffle(kept, x, y), b.shuffle(moved, x, y))
            for x, y in zip(sums[::2], sums[1::2], strict=True)
        ]
        bit *= 2
    return [*sums]


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
        store_arguments(b, sizes, _ARGUMENTS, first_tile=first, last_tile=last)
        into = c, b.mul(batch, n["m"], n["n"])
        operands = (a, b.mul(batch, n["a_batch"])), (right, b.mul(batch, n["b_batch"]))
        b.call(_declare_microkernel(type, rows, columns), into, *operands, (sizes, 0))
    return b.kernel


@functools.cache
def _transposed_columns(type: str) -> Kernel:
    """The columns of a batch of matrices, copied one after the other."""
    b = ParametricBuilder("columns", "columns k batch row")
    n = b.parameter
    source, target = b.argument(type), b.argument(type, True)
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        batch, column = b.delinearize(index, n["columns"])
        first, into = b.add(b.mul(batch, n["batch"]), column), b.mul(index, n["k"])
        with b.loop(0, n["k"]) as (t, _):
            b.store(target, b.add(into, t), b.load(source, b.add(first, b.mul(t, n["row"]))))
    return b.kernel


def have_contiguous_rows(p: GemmProblem) -> tuple[bool, bool]:
    """Whether rows of A and of B' are contiguous along k; a single row may be described as a dense column."""
    return p.left.row_major or (p.m, p.left.column) == (1, 1), not p.right.row_major or (p.n, p.right.row) == (1, 1)


def kernels(x: Instruction, p: GemmProblem) -> list[LoweredKernel]:
    """The kernels: a transposing copy of a skinny operand if need be, and the product."""
    type = p.types[2]
    tile_sums = 16 if vector_bytes() == 64 else 8  # accumulators in registers
    skinny = min(4, 1 << (min(p.m, p.n) - 1).bit_length())
    if skinny == 1:  # one vector of sums: the hardware prefetcher follows few streams
        tile_sums = 8 * vector_bytes() // bits_of(type)
    rows, columns = (skinny, tile_sums // skinny) if p.m <= p.n else (tile_sums // skinny, skinny)
    operands: list[Storage] = [*x.operands]
    strides, copies = list[int](), list[LoweredKernel]()
    has_contiguous_rows = have_contiguous_rows(p)
    for side, (matrices, count) in enumerate(((p.left, p.m), (p.right, p.n))):
        batch, row = matrices.batch, matrices.leading_dimension
        if not has_contiguous_rows[side]:
            matrix_count = p.batch if batch else 1
            operands[side] = Temporary(Shape(x.array_shape.element_type, (matrix_count, count, p.k)))
            parameters, arguments = (count, p.k, batch, row), [x.operands[side], operands[side]]
            copies.append(
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
        *copies,
        bind_parameters(_kernel(type, rows, columns), [*operands, x], parameters, p.batch * chunks, work, x),
    ]
