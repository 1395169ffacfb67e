"""Blocked right-looking Cholesky factorization (LAPACK potrf) of row-major matrices, in place.

A panel of columns is transposed into a buffer, so the buffer has the rows of the transposed factor. Its square is
factored (`potf2`), the other rows are solved for (trsm), and the panel is copied back. Then the product of the
transposed panel with the panel (syrk) is subtracted from the columns on its right, in strips that begin at the
diagonal; the negated panel is kept beside the panel for that. An upper factor has panels of rows, which are copied
without a transpose, and strips of rows.

Threads share strips of a large matrix, or take whole matrices of a batch; see `lu`.

Source: G. Golub and C. Van Loan, Matrix Computations, section 4.2.
"""

from __future__ import annotations

import functools
import math

from tinyxla.compiler.fusion.plan import Plan
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import Index, Kernel, Literal
from tinyxla.loopir.kernels.gemm.packed import bind_parameters
from tinyxla.loopir.kernels.linalg import panel_kernels as panel_kernels
from tinyxla.loopir.kernels.linalg.lu import BLOCK, MIN_SHARED_SIZE, PanelBuilder, panel_layout, strip_width
from tinyxla.loopir.lower.axes import make_kernel
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Temporary, zero
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.shapes import Shape, element_type


def supports(x: Instruction) -> bool:
    """Whether the element type is real."""
    return x.array_shape.element_type.name in ("f32", "f64")


class _CholeskyBuilder(PanelBuilder):
    """The steps of blocked Cholesky for lower or upper factors."""

    def __init__(self, name: str, names: str, type: str, lower: bool) -> None:
        self.lower = lower
        super().__init__(name, f"{names} panel_elements strip_columns", type, "pitch")
        self.matrix, self.panels = self.argument(type, True), self.argument(type, True)

    def factor(self, start: Index, matrix: Index, panel: Index) -> None:
        """Factor the panel that begins at column `start` of the matrix at offset `matrix`, into the buffer at `panel`,
        followed by the negated panel."""
        begin = self.matrix, self.add(matrix, self.mul(start, self.columns), start)
        height = self.sub(self.rows, start)
        width, buffer, pitch = self.min(BLOCK, height), (self.panels, panel), self.pitch
        if self.lower:
            self.transpose(
                buffer, begin, False, rows=height, columns=width, source_pitch=self.columns, target_pitch=pitch
            )
        else:
            with self.loop(0, width, sequential=True) as (k, _), self.loop(0, height) as (i, _):
                value = self.load(self.matrix, self.add(begin[1], self.mul(k, self.columns), i))
                self.store(self.panels, self.add(panel, self.mul(k, pitch), i), value)
        vectors = BLOCK // panel_kernels.lanes(self.type)
        store_arguments(self, self.sizes, panel_kernels.POTF2_ARGUMENTS, order=width, pitch=pitch)
        self.call(panel_kernels.potf2(self.type, vectors), buffer, (self.sizes, 0))
        with self.when_positive(self.sub(height, width)):
            names, right = panel_kernels.TRSM_ARGUMENTS, self.add(panel, width)
            store_arguments(self, self.sizes, names, unknowns=width, columns=self.sub(height, width))
            store_arguments(self, self.sizes, names, matrix_start=right, pitch=pitch, factors_start=panel)
            store_arguments(self, self.sizes, names, row_stride=1, column_stride=pitch, unit=0)
            self.call(panel_kernels.trsm(self.type), (self.panels, 0), (self.panels, 0), (self.sizes, 0))
        if self.lower:
            self.transpose(
                begin, buffer, True, rows=width, columns=height, source_pitch=pitch, target_pitch=self.columns
            )
        with self.loop(0, width, sequential=True) as (k, _), self.loop(0, height) as (i, _):
            offset = self.add(panel, self.mul(k, pitch), i)
            value = self.load(self.panels, offset)
            if not self.lower:
                self.store(self.matrix, self.add(begin[1], self.mul(k, self.columns), i), value)
            minus = self.compute("negate", self.type, value)
            self.store(self.panels, self.add(offset, self.parameter["panel_elements"]), minus)
        # A first diagonal element of -1 marks a matrix that is not positive definite.
        with self.loop(0, width, sequential=True) as (k, _):
            diagonal, first = self.load(self.panels, self.add(panel, self.mul(k, pitch), k)), (self.matrix, matrix)
            failed = self.compare("LE", diagonal, Literal(self.type, 0.0))
            self.store(*first, self.select(failed, Literal(self.type, -1.0), self.load(*first)))

    def update(self, start: Index, matrix: Index, panel: Index, first: Index, width: Index) -> None:
        """Update `width` columns on the right of a factored panel, or rows below if the factor is upper."""
        target = self.matrix, self.add(matrix, self.mul(first, self.columns), first)
        right = self.panels, self.add(panel, self.sub(first, start))
        left = self.panels, self.add(right[1], self.parameter["panel_elements"])
        remaining = self.sub(self.rows, first)
        height, width = (remaining, width) if self.lower else (width, remaining)
        self.gemm_update(target, left, right, (height, width, BLOCK))

    def strip_count(self, first: Index) -> Index:
        """Strips of the trailing matrix from column `first` on."""
        return self.ceil_div(self.max(0, self.sub(self.columns, first)), self.parameter["strip_columns"])

    def strip_bounds(self, index: Index, first: Index) -> tuple[Index, Index]:
        """First column and width of a strip."""
        start, width = self.tile_start_and_size(index, self.parameter["strip_columns"], self.sub(self.columns, first))
        return self.add(first, start), width


@functools.cache
def _cholesky_kernel(type: str, lower: bool) -> Kernel:
    """The kernel that factors whole matrices, a chunk of the batch at a time with one panel buffer."""
    b = _CholeskyBuilder("cholesky", "count length", type, lower)
    size = b.mul(b.rows, b.columns)
    with b.loop(b.kernel.first, b.kernel.last) as (chunk, _):
        panel = b.mul(chunk, b.parameter["panel_elements"], 2)
        with b.loop(*b.tile_range(chunk, b.parameter["length"], b.parameter["count"]), sequential=True) as (index, _):
            matrix = b.mul(index, size)
            with b.loop(0, b.ceil_div(b.rows, BLOCK), sequential=True) as (block, _):
                start = b.mul(block, BLOCK)
                b.factor(start, matrix, panel)
                after = b.add(start, BLOCK)
                with b.loop(0, b.strip_count(after), sequential=True) as (index, _):
                    b.update(start, matrix, panel, *b.strip_bounds(index, after))
    return b.kernel


@functools.cache
def _cholesky_step_kernel(type: str, lower: bool) -> Kernel:
    """The kernel of one step with look-ahead: iteration 0 updates and factors the next panel, the others update
    strips."""
    b = _CholeskyBuilder("cholesky_step", "start next_start panel_offset next_panel_offset", type, lower)
    start, next_start, panel_offset = (b.parameter[name] for name in ("start", "next_start", "panel_offset"))
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        with b.when_positive(b.sub(1, index)):
            with b.when_positive(next_start):
                b.update(start, 0, panel_offset, next_start, b.min(BLOCK, b.sub(b.columns, next_start)))
            b.factor(next_start, 0, b.parameter["next_panel_offset"])
        with b.when_positive(index):
            b.update(start, 0, panel_offset, *b.strip_bounds(b.sub(index, 1), b.add(next_start, BLOCK)))
    return b.kernel


def cholesky(x: Instruction, plan: Plan) -> list[LoweredKernel]:
    """Kernels of the factorization, in place."""
    *batch, n, _ = x.array_shape.dimensions
    type, lower, count = x.array_shape.element_type.name, x.attributes.lower, math.prod(batch)
    pitch, panel_elements = panel_layout(type, n)

    def panels(index: int) -> Temporary:
        return Temporary(Shape(element_type(type), (2 * index * panel_elements,)))

    strip_columns = strip_width(n)
    if count > 1 or n < MIN_SHARED_SIZE:
        chunks = min(count, current_target().balanced_tasks)
        length = -(-count // chunks)
        parameters, work = (n, n, pitch, count, length, panel_elements, strip_columns), length * n * n * (n // 8 + 8)
        kernels = [bind_parameters(_cholesky_kernel(type, lower), [x, panels(chunks)], parameters, chunks, work, x)]
    else:
        kernels, two_panels = list[LoweredKernel](), panels(2)
        for next_start in range(0, n, BLOCK):
            start, is_odd = max(0, next_start - BLOCK), next_start // BLOCK % 2
            extent = 1 + (-(-max(0, n - next_start - BLOCK) // strip_columns) if next_start else 0)
            parameters = (
                n,
                n,
                pitch,
                start,
                next_start,
                2 * panel_elements * (1 - is_odd),
                2 * panel_elements * is_odd,
                panel_elements,
                strip_columns,
            )
            kernels.append(
                bind_parameters(
                    _cholesky_step_kernel(type, lower),
                    [x, two_panels],
                    parameters,
                    extent,
                    strip_columns * BLOCK * (n - start),
                    x,
                )
            )
    return [*kernels, _finish_triangle(x, plan)]


def _finish_triangle(x: Instruction, plan: Plan) -> LoweredKernel:
    """Zeros in the other triangle; NaN in this one if the matrix is not positive definite or its first element is
    NaN."""
    n, lower = x.array_shape.dimensions[-1], x.attributes.lower
    low = Lowering("triangle", plan, [x])
    b, matrix = low.builder, low.buffer(x, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        index, row = low.split_index(index, (x.array_shape.size // (n * n), n))
        start = b.mul(index, n * n)
        begin, after = b.add(start, b.mul(row, n)), b.add(row, 1)
        stop = b.select(b.compare("GT", b.load(matrix, start), Literal(matrix.type, 0.0)), 0, n)
        with low.loop(*((0, b.min(stop, after)) if lower else (row, stop))) as (column, _):
            b.store(matrix, b.add(begin, column), Literal(matrix.type, math.nan))
        with low.loop(*((after, n) if lower else (0, row))) as (column, _):
            b.store(matrix, b.add(begin, column), zero(x.array_shape))
    return make_kernel(low, x.array_shape.size // n, n, [x])
