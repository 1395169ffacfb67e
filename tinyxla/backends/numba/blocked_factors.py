"""Factors of one large matrix: a block of columns after the other, each of which all threads put to use.

LAPACK's routines factor a block; this library's threads share the products with it. Blocks are at fixed places, so
results do not depend on the number of threads. Kernels take sizes as numbers, so that one serves all blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import contextmanager

from tinyxla.backends.numba import panel_routines as routines
from tinyxla.backends.numba.axes import finished
from tinyxla.backends.numba.fortran_calls import Calls, Place
from tinyxla.backends.numba.loops import INDEX, Index, Kernel
from tinyxla.backends.numba.lowering import LoweredKernel, Lowering, Partial, Storage, zero
from tinyxla.backends.numba.panels import Numbers, give, step_of
from tinyxla.compiler.fusion import Plan
from tinyxla.hlo import Instruction
from tinyxla.shapes import Shape, element_type

BLOCK = 48  # columns
_LEAST = 128  # rows and columns of a matrix


def supports(x: Instruction) -> bool:
    """Whether it is one matrix, and large enough."""
    shape = x.operands[0].array_shape
    return min(shape.dimensions[-2:]) >= _LEAST and shape.size == shape.dimensions[-1] * shape.dimensions[-2]


def supports_lu(x: Instruction) -> bool:
    """Only complex numbers, and not those that are too wide to be turned: for others see `eliminations`."""
    return supports(x) and x.operands[0].array_shape.element_type.name == "c64"


class _Strips(Numbers):
    """A builder of a kernel of one argument, and others, that does something to strips as wide as blocks are."""

    def __init__(self, name: str, names: str, kind: str) -> None:
        super().__init__(name, names)
        self.calls = Calls(self, kind)
        self.matrix = self.argument(kind, True)

    @contextmanager
    def strips(self) -> Generator[Index]:
        with self.loop(self.kernel.first, self.kernel.last) as (strip, _):
            self.calls.call("enter_blas")
            yield strip
            self.calls.call("leave_blas")

    @contextmanager
    def only(self, condition: Index) -> Generator[None]:
        """Where a number is 1, and not 0."""
        with self.loop(0, condition, sequential=True):
            yield


# --- of positive definite matrices ------------------------------------------------------------------------------------


@functools.cache
def _cholesky_step(kind: str, lower: bool, is_update: bool) -> Kernel:
    """The columns of a block, in strips of rows: less the products with all before, and the first strip factored; or
    divided by that. The BLAS sees transposes, so that of an upper factor is what it sees as lower."""
    b = _Strips("cholesky", "size start width begin", kind)
    n, start, width = (b.number[name] for name in ("size", "start", "width"))

    def at(row: Index, column: Index) -> Place:
        return b.matrix, b.sum(b.times(row, n), column) if lower else b.sum(b.times(column, n), row)

    with b.strips() as strip:
        row = b.sum(b.number["begin"], b.times(strip, BLOCK))
        height = b.least(BLOCK, b.minus(n, row))
        sizes = (width, height) if lower else (height, width)
        if is_update:
            factors = [at(start, 0), n, at(row, 0), n] if lower else [at(row, 0), n, at(start, 0), n]
            b.calls.blas("gemm", *"CN" if lower else "NC", *sizes, start, -1.0, *factors, 1.0, at(row, start), n)
            with b.only(b.minus(1, b.least(strip, 1))):
                b.calls.blas("potrf", "U" if lower else "L", width, at(start, start), n, b.calls.status)
                with b.only(b.choose(b.calls.failed(), 1)):
                    b.store(*at(start, start), b.calls.nan(at(start, start)))
        else:
            form = ("L", "U", "C", "N") if lower else ("R", "L", "C", "N")
            b.calls.blas("trsm", *form, *sizes, 1.0, at(start, start), n, at(row, start), n)
    return b.kernel


def cholesky(x: Instruction, plan: Plan) -> list[LoweredKernel]:
    """In place; NaN for a block that is not positive definite, which comes to all after it, and in the end to all."""
    n, kind, lower = x.array_shape.dimensions[-1], x.array_shape.element_type.name, x.attributes.lower
    kernels: list[LoweredKernel] = []
    for start in range(0, n, BLOCK):
        width = min(BLOCK, n - start)
        for is_update, first in ((True, start), (False, start + width)):
            extent, work = -(-(n - first) // BLOCK), BLOCK * BLOCK * (start if is_update else BLOCK)
            if extent:
                kernel = _cholesky_step(kind, lower, is_update)
                kernels.append(step_of(kernel, [x], (n, start, width, first), extent, work, x))
    low = Lowering("triangle", plan, [x])
    b, matrix = low.builder, low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (row, _):
        last = b.load(matrix, (n - 1) // BLOCK * BLOCK * (n + 1))
        failed = b.compare("NE", last, last)
        begin = b.times(row, n)
        after = b.sum(row, 1)
        nan = Calls(b, kind).nan((matrix, 0))
        stop = b.choose(failed, n)
        with low.loop(*((0, b.least(stop, after)) if lower else (row, stop))) as (column, _):
            b.store(matrix, b.sum(begin, column), nan)
        with low.loop(*((after, n) if lower else (0, row))) as (column, _):
            b.store(matrix, b.sum(begin, column), zero(x.array_shape))
    return [*kernels, finished(low, n, n, [x])]


# --- L U --------------------------------------------------------------------------------------------------------------


@functools.cache
def _lu_step(kind: str, is_first: bool) -> Kernel:
    """What a factored block means for other blocks, the one after it first: that is factored at once, while others
    are still at work."""
    b = _Strips("lu", "rows columns start depth blocks next", kind)
    rows, columns, start, depth, blocks, next = (b.number[name] for name in b.number)
    pivots = b.argument("s32", True)

    def at(row: Index, column: Index) -> Place:
        return b.matrix, b.sum(b.times(column, rows), row)

    with b.strips() as strip:
        block = b.remainder(b.sum(strip, next), blocks)
        column = b.times(block, BLOCK)
        width = b.least(BLOCK, b.minus(columns, column))
        if not is_first:
            b.calls.blas("laswp", width, at(start, column), rows, 1, depth, (pivots, start), 1)
        with b.only(b.least(1, b.most(0, b.minus(b.sum(block, 1), next)))):
            if not is_first:
                row, right = b.sum(start, depth), at(start, column)
                b.calls.blas("trsm", *"LLNU", depth, width, 1.0, at(start, start), rows, right, rows)
                factors = at(row, start), rows, right, rows
                below = b.minus(rows, row)
                b.calls.blas("gemm", *"NN", below, width, depth, -1.0, *factors, 1.0, at(row, column), rows)
            left = b.most(0, b.minus(b.least(rows, columns), column))
            with b.only(b.least(b.minus(1, b.least(strip, 1)), left)):
                height = b.minus(rows, column)
                b.calls.blas("getrf", height, width, at(column, column), rows, (pivots, column), b.calls.status)
    return b.kernel


@functools.cache
def _turn(kind: str) -> Kernel:
    """A matrix as its transpose, some rows at a time, and the last so many in the end."""
    b = Numbers("turn", "rows columns")
    rows, columns, height = b.number["rows"], b.number["columns"], routines.tile_rows()
    source, target, sizes = b.argument(kind), b.argument(kind, True), b.scratch(INDEX, len(routines.COPY))
    routine = routines.turn(64)
    with b.loop(b.kernel.first, b.kernel.last) as (group, _):
        row = b.least(b.times(group, height), b.minus(rows, height))
        give(b, sizes, routines.COPY, steps=columns, row=columns, rows=height, pitch=rows)
        b.call(routine, (target, row), (source, b.times(row, columns)), (sizes, 0))
    return b.kernel


def lu(x: Instruction, results: dict[int, Storage]) -> tuple[list[LoweredKernel], Partial]:
    """The factors, as far as they are taken, and pivots, which count from 1 in each block."""
    rows, columns = x.operands[0].array_shape.dimensions[-2:]
    kind = x.operands[0].array_shape.element_type.name
    copy, pivots = (
        Partial(Shape(element_type(t), (n,))) for t, n in ((kind, rows * columns), ("s32", min(rows, columns)))
    )

    def turned(source: Storage, target: Storage, rows: int, columns: int) -> LoweredKernel:
        extent = -(-rows // routines.tile_rows())
        return step_of(_turn(kind), [source, target], (rows, columns), extent, 8 * columns * routines.tile_rows(), x)

    kernels = [turned(x.operands[0], copy, rows, columns)]
    blocks = -(-columns // BLOCK)
    kernels.append(step_of(_lu_step(kind, True), [copy, pivots], (rows, columns, 0, 0, blocks, 0), 1, 0, x))
    for start in range(0, min(rows, columns), BLOCK):
        depth = min(BLOCK, min(rows, columns) - start)
        numbers = rows, columns, start, depth, blocks, start // BLOCK + 1
        work = BLOCK * BLOCK * rows
        kernels.append(step_of(_lu_step(kind, False), [copy, pivots], numbers, blocks - 1, work, x))
    if 0 in results:
        kernels.append(turned(copy, results[0], columns, rows))
    return kernels, pivots
