"""Blocked right-looking LU factorization with partial pivoting (LAPACK getrf) of row-major matrices.

A panel of columns is transposed into a buffer, factored there (`getf2`) and copied back. Then the columns on its right
are updated: rows are swapped (laswp), the rows beside the panel's upper triangle are solved for (trsm), and their
product with the panel is subtracted from the rows below (gemm). The buffer holds the negated factors by then, so that
the GEMM accumulates.

In a batch, or for a small matrix, a thread factors whole matrices. For one large matrix threads share strips of
columns, with look-ahead: the next panel is updated and factored first, while other threads update the remaining strips.
Either way tiles depend on sizes alone, so results do not depend on the number of threads. Kernels are parametric in
sizes.

Source: G. Golub and C. Van Loan, Matrix Computations, section 3.2; LAPACK Working Notes 1 and 41.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator
from contextlib import contextmanager

from tinyxla.compiler.costs import INTERLEAVED, L1_ELEMENTS, VECTOR_ELEMENTS
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Kernel
from tinyxla.loopir.kernels.gemm import packing as packing
from tinyxla.loopir.kernels.gemm.arithmetic import Arithmetic, bits_of
from tinyxla.loopir.kernels.gemm.microkernel import MICROKERNEL_ARGUMENTS, declare_microkernel
from tinyxla.loopir.kernels.gemm.packed import Address, bind_parameters
from tinyxla.loopir.kernels.linalg import panel_kernels as panel_kernels
from tinyxla.loopir.lower.emit import LoweredKernel, Storage, Temporary
from tinyxla.loopir.lower.routine_calls import ParametricBuilder, store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.shapes import Shape, element_type

BLOCK = VECTOR_ELEMENTS * 2  # columns of a panel, whose square has a row in registers
MIN_SHARED_SIZE = BLOCK * 4  # rows and columns from which threads share one matrix
_COPY_ELEMENTS = L1_ELEMENTS  # of one iteration of the copy
_MC = BLOCK * 3  # rows of the trailing matrix that one GEMM call updates: whole tiles of any height


def supports(x: Instruction) -> bool:
    """Whether blocked LU applies: real matrices that are not tiny."""
    shape = x.operands[0].array_shape
    return (
        shape.element_type.name in ("f32", "f64")
        and shape.size > 0
        and min(shape.dimensions[-2:]) >= VECTOR_ELEMENTS // 2
    )


def panel_layout(type: str, rows: int) -> tuple[int, int]:
    """The pitch of a panel's columns - whole vectors, and no power of two, so that columns do not share cache sets -
    and the number of elements of its buffer."""
    multiple = max(panel_kernels.lanes(type), packing.transpose_size())
    pitch = multiple * (-(-rows // multiple) | 1)
    return pitch, pitch * (BLOCK + INTERLEAVED)


def strip_width(columns: int) -> int:
    """Columns of a strip of the trailing matrix, which one thread updates."""
    return min(4 * BLOCK, max(BLOCK, columns // current_target().balanced_tasks // BLOCK * 2 * BLOCK))


class PanelBuilder(ParametricBuilder):
    """A builder of kernels that factor panels of columns in a transposed buffer."""

    def __init__(self, name: str, names: str, type: str, right: str) -> None:
        """`right` names the parameter that holds the pitch of the right operand of `gemm_update`."""
        super().__init__(name, f"rows columns pitch {names}")
        self.type = type
        n = self.parameter
        self.rows, self.columns, self.pitch = n["rows"], n["columns"], n["pitch"]
        self.arithmetic = Arithmetic(type).choose_tile(_MC, BLOCK, BLOCK)
        arguments = (MICROKERNEL_ARGUMENTS, packing.COPY_ARGUMENTS, panel_kernels.TRSM_ARGUMENTS)
        self.sizes = self.scratch(INDEX, max(map(len, arguments)))
        self.offset_lists = [self.scratch(INDEX, count) for count in (_MC, _MC, BLOCK, BLOCK)]
        for offsets, stride in zip(self.offset_lists, (1, self.columns, self.pitch, n[right]), strict=True):
            self.list(offsets, offsets.size or 0, stride)

    @contextmanager
    def when_positive(self, count: Index) -> Generator[None]:
        """A block that runs if the count is positive."""
        with self.loop(0, self.min(1, self.max(0, count)), sequential=True):
            yield

    def transpose(self, to: Address, source: Address, is_exact: bool, **arguments: Index) -> None:
        """Copy the transpose of a strided block to another."""
        height, routine = packing.transpose_size(), packing.transpose(bits_of(self.type), is_exact)
        rows, pitch = arguments.pop("rows"), arguments["source_pitch"]
        store_arguments(self, self.sizes, packing.COPY_ARGUMENTS, **arguments)
        with self.loop(0, self.ceil_div(rows, height), sequential=True) as (group, _):
            row = self.mul(group, height)
            store_arguments(self, self.sizes, packing.COPY_ARGUMENTS, rows=self.sub(rows, row))
            into = to[0], self.add(to[1], row)
            self.call(routine, into, (source[0], self.add(source[1], self.mul(row, pitch))), (self.sizes, 0))

    def gemm_update(self, target: Address, left: Address, right: Address, sizes: tuple[Index, Index, Index]) -> None:
        """Accumulate the product of panel columns and rows of the matrix into a block of the matrix."""
        height, width, steps = sizes
        store_arguments(self, self.sizes, MICROKERNEL_ARGUMENTS, n=width, k=steps, accumulate=1)
        with self.loop(0, self.ceil_div(height, _MC), sequential=True) as (group, _):
            row, block_rows = self.tile_start_and_size(group, _MC, height)
            store_arguments(self, self.sizes, MICROKERNEL_ARGUMENTS, m=block_rows)
            to = target[0], self.add(target[1], self.mul(row, self.columns))
            matrices = to, (left[0], self.add(left[1], row)), right
            arrays = ((x, 0) for x in (*self.offset_lists, self.sizes))
            self.call(declare_microkernel(self.arithmetic), *matrices, *arrays)


class _LuBuilder(PanelBuilder):
    """The steps of blocked LU."""

    def __init__(self, name: str, names: str, type: str) -> None:
        super().__init__(name, names, type, "columns")

    def arguments(self) -> None:
        """Declare the matrix, the panel buffer and the pivots."""
        self.matrix, self.panel, self.pivots = (self.argument(t, True) for t in (self.type, self.type, "s32"))

    def factor(self, start: Index, matrix: Index, pivots: Index, panel: Index) -> None:
        """Factor the panel that begins at column `start` of the matrix at offset `matrix`, by way of the buffer at
        `panel`."""
        begin = self.matrix, self.add(matrix, self.mul(start, self.columns), start)
        height = self.sub(self.rows, start)
        width = self.min(BLOCK, self.sub(self.columns, start))
        buffer, pitch = (self.panel, panel), self.pitch
        self.transpose(buffer, begin, False, rows=height, columns=width, source_pitch=self.columns, target_pitch=pitch)
        store_arguments(self, self.sizes, panel_kernels.GETF2_ARGUMENTS, rows=height, columns=width)
        store_arguments(self, self.sizes, panel_kernels.GETF2_ARGUMENTS, pitch=pitch, first_row=start)
        self.call(panel_kernels.getf2(self.type), buffer, (self.pivots, self.add(pivots, start)), (self.sizes, 0))
        self.transpose(begin, buffer, True, rows=width, columns=height, source_pitch=pitch, target_pitch=self.columns)
        with self.loop(0, self.mul(width, pitch)) as (k, _):
            element = self.add(panel, k)
            self.store(self.panel, element, self.compute("negate", self.type, self.load(self.panel, element)))

    def swap_rows(self, start: Index, steps: Index, matrix: Index, pivots: Index, column: Index, width: Index) -> None:
        """Apply the panel's pivots to `width` columns from `column` on (laswp)."""
        names = panel_kernels.SWAP_ROWS_ARGUMENTS
        store_arguments(self, self.sizes, names, pivot_count=steps, columns=width, pitch=self.columns, first_row=start)
        buffers = (self.matrix, self.add(matrix, column)), (self.pivots, self.add(pivots, start)), (self.sizes, 0)
        self.call(panel_kernels.swap_rows(self.type), *buffers)

    def update(self, start: Index, steps: Index, matrix: Index, panel: Index, column: Index, width: Index) -> None:
        """Update `width` columns on the right of a factored panel, whose rows have been swapped: trsm, then gemm."""
        right = self.add(matrix, self.mul(start, self.columns), column)
        names = panel_kernels.TRSM_ARGUMENTS
        store_arguments(self, self.sizes, names, unknowns=steps, columns=width, pitch=self.columns)
        store_arguments(self, self.sizes, names, row_stride=self.columns, column_stride=1, unit=1)
        diagonal = self.add(matrix, self.mul(start, self.columns), start)
        store_arguments(self, self.sizes, names, matrix_start=right, factors_start=diagonal)
        self.call(panel_kernels.trsm(self.type), (self.matrix, 0), (self.matrix, 0), (self.sizes, 0))
        sizes = self.sub(self.sub(self.rows, start), steps), width, steps
        target = self.matrix, self.add(right, self.mul(steps, self.columns))
        self.gemm_update(target, (self.panel, self.add(panel, steps)), (self.matrix, right), sizes)


@functools.cache
def _lu_kernel(type: str) -> Kernel:
    """The kernel that factors whole matrices, a chunk of the batch at a time with one panel buffer."""
    b = _LuBuilder("LuDecomposition", "count length panel_elements", type)
    source = b.argument(type)
    b.arguments()
    min_size = b.min(b.rows, b.columns)
    size = b.mul(b.rows, b.columns)
    with b.loop(b.kernel.first, b.kernel.last) as (chunk, _):
        panel = b.mul(chunk, b.parameter["panel_elements"])
        with b.loop(*b.tile_range(chunk, b.parameter["length"], b.parameter["count"]), sequential=True) as (index, _):
            matrix, pivots = b.mul(index, size), b.mul(index, min_size)
            with b.loop(0, size) as (k, _):
                b.store(b.matrix, b.add(matrix, k), b.load(source, b.add(matrix, k)))
            with b.loop(0, b.ceil_div(min_size, BLOCK), sequential=True) as (block, _):
                start, steps = b.tile_start_and_size(block, BLOCK, min_size)
                b.factor(start, matrix, pivots, panel)
                after = b.min(b.add(start, BLOCK), b.columns)
                width = b.sub(b.columns, after)
                with b.when_positive(start):
                    b.swap_rows(start, steps, matrix, pivots, 0, start)
                with b.when_positive(width):
                    b.swap_rows(start, steps, matrix, pivots, after, width)
                    b.update(start, steps, matrix, panel, after, width)
    return b.kernel


@functools.cache
def _copy_kernel(type: str) -> Kernel:
    """The kernel that copies the operand."""
    b = ParametricBuilder("copy", "size")
    source, target = b.argument(type), b.argument(type, True)
    start, stop = b.mul(b.kernel.first, _COPY_ELEMENTS), b.mul(b.kernel.last, _COPY_ELEMENTS)
    with b.loop(start, b.min(stop, b.parameter["size"])) as (k, _):
        b.store(target, k, b.load(source, k))
    return b.kernel


@functools.cache
def _lu_step_kernel(type: str) -> Kernel:
    """The kernel of one step with look-ahead: iteration 0 updates and factors the next panel, the others update strips
    on the right, or swap rows of strips on the left."""
    b = _LuBuilder("lu_step", "start steps next_start strip_columns right panel_offset next_panel_offset", type)
    b.arguments()
    n = b.parameter
    start, steps, next_start, strip_columns, right = (
        n[name] for name in ("start", "steps", "next_start", "strip_columns", "right")
    )
    with b.loop(b.kernel.first, b.kernel.last) as (index, _):
        with b.when_positive(b.sub(1, index)):
            width = b.min(BLOCK, b.sub(b.columns, next_start))
            with b.when_positive(b.min(steps, width)):
                b.swap_rows(start, steps, 0, 0, next_start, width)
                b.update(start, steps, 0, n["panel_offset"], next_start, width)
            with b.when_positive(b.sub(b.min(b.rows, b.columns), next_start)):
                b.factor(next_start, 0, 0, n["next_panel_offset"])
        is_right = b.min(1, b.max(0, b.sub(b.add(right, 1), index)))
        with b.when_positive(b.min(index, is_right)):
            first, width = b.tile_start_and_size(
                b.sub(index, 1), strip_columns, b.sub(b.sub(b.columns, next_start), BLOCK)
            )
            column = b.add(next_start, BLOCK, first)
            b.swap_rows(start, steps, 0, 0, column, width)
            b.update(start, steps, 0, n["panel_offset"], column, width)
        with b.when_positive(b.sub(index, right)):
            column, width = b.tile_start_and_size(b.sub(b.sub(index, right), 1), strip_columns, start)
            b.swap_rows(start, steps, 0, 0, column, width)
    return b.kernel


def lu(x: Instruction, results: dict[int, Storage]) -> tuple[list[LoweredKernel], Storage]:
    """Kernels of the factors, as far as they are read (`results`), and the memory of the pivots."""
    source = x.operands[0]
    *batch, rows, columns = source.array_shape.dimensions
    type, count, min_size = source.array_shape.element_type.name, math.prod(batch), min(rows, columns)
    pitch, panel_elements = panel_layout(type, rows)

    def memory(type: str, size: int) -> Temporary:
        return Temporary(Shape(element_type(type), (size,)))

    matrix = results.get(0) or memory(type, count * rows * columns)
    pivots = results.get(1) or memory("s32", count * min_size)
    if count > 1 or min_size < MIN_SHARED_SIZE:
        chunks = min(count, current_target().balanced_tasks)
        length = -(-count // chunks)
        panels = memory(type, chunks * panel_elements)
        work = length * rows * columns * (min_size // 4 + 8)
        parameters = (rows, columns, pitch, count, length, panel_elements)
        return [
            bind_parameters(_lu_kernel(type), [source, matrix, panels, pivots], parameters, chunks, work, x)
        ], pivots
    arguments = [matrix, memory(type, 2 * panel_elements), pivots]
    size = rows * columns
    kernels = [
        bind_parameters(_copy_kernel(type), [source, matrix], (size,), -(-size // _COPY_ELEMENTS), _COPY_ELEMENTS, x)
    ]
    strip_columns = strip_width(columns)
    for block in range(-1, -(-min_size // BLOCK)):
        start, next_start = max(0, block * BLOCK), (block + 1) * BLOCK
        steps = min(BLOCK, min_size - start) if block >= 0 else 0
        right = max(0, -(-(columns - next_start - BLOCK) // strip_columns)) if steps else 0
        parameters = (
            rows,
            columns,
            pitch,
            start,
            steps,
            next_start,
            strip_columns,
            right,
            block % 2 * panel_elements,
            (block + 1) % 2 * panel_elements,
        )
        kernels.append(
            bind_parameters(
                _lu_step_kernel(type),
                arguments,
                parameters,
                1 + right + -(-start // strip_columns),
                strip_columns * BLOCK * rows,
                x,
            )
        )
    return kernels, pivots
