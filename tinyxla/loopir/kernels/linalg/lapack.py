"""LAPACK and BLAS kernels of matrix decompositions and triangular solves: calls of SciPy's OpenBLAS, matrix by matrix.

Matrices are row-major here and column-major there. A triangular or Hermitian matrix is passed as it is, which exchanges
sides and triangles; other matrices are transposed before and after the call. A batch is cut into chunks at fixed
places, which threads share; each chunk has its own workspaces. Results that do not exist are NaN.

Many small matrices are factored in an interleaved layout instead (`batched_small`). LU and Cholesky of real matrices,
and real triangular solves, have algorithms of this library (`lu`, `cholesky`, `trsm`).
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyxla.compiler.costs import CALL_OPS, L1_ELEMENTS
from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.blas_library import library_routine
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand, Value
from tinyxla.loopir.kernels.gemm.arithmetic import bits_of
from tinyxla.loopir.kernels.gemm.packing import COPY_ARGUMENTS, transpose, transpose_size
from tinyxla.loopir.kernels.linalg import batched_small, cholesky as blocked_cholesky, lu as blocked_lu, trsm
from tinyxla.loopir.kernels.linalg.fortran_abi import PREFIXES, REAL, Address, Argument, FortranCalls
from tinyxla.loopir.lower.axes import make_kernel, tile_of
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage, Temporary, Users, zero
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.loopir.target import current_target
from tinyxla.ops.linalg.linear_algebra import TriangularSolve
from tinyxla.shapes import Shape, element_type

_MIN_BLAS_THREADED_SIZE = 384  # rows and columns from which a single matrix pays for the BLAS's own threads
_COMPLEX = {real: type for type, real in REAL.items()}
_MAX_UNTHREADED_SIZE = 8  # rows and columns up to which OpenBLAS uses one thread


def supports(x: Instruction) -> bool:
    """Whether LAPACK has the element type and there are elements."""
    return x.operands[0].array_shape.element_type.name in PREFIXES and all(o.array_shape.size for o in x.operands)


@dataclass(frozen=True)
class _Workspace:
    """A LAPACK workspace of an element type, which is two arguments: its address and its size."""

    type: str


class _BatchedLapack(FortranCalls):
    """Emits the kernel of one operation over the matrices of its first operand, or over parts of each matrix's work."""

    def __init__(self, x: Instruction, plan: Plan, users: Users, cost: int, components: int = 1) -> None:
        """`cost` is the number of simple operations per element of the last operand."""
        results = results_of(x, users)
        self.x, self.low = x, Lowering(x.op.name.replace("-", "_"), plan, results)
        super().__init__(self.low.builder, x.operands[0].array_shape.element_type.name)
        *batch, self.rows, self.columns = x.operands[0].array_shape.dimensions
        self.count = math.prod(batch)
        self.results: dict[int, Storage] = {r.attributes.index if r is not x else 0: r for r in results}
        self.sizes = (self.rows, self.columns, *x.operands[-1].array_shape.dimensions[-2:])
        self.components = components
        self.copy_arguments = self.b.scratch(INDEX, len(COPY_ARGUMENTS))
        work = cost * math.prod(self.sizes[2:]) // components
        self.work = 3 * CALL_OPS + work  # with a transpose before the call and after it
        are_large = work > 20 * CALL_OPS  # OpenBLAS allocates memory under a lock
        self.chunks = min(self.count * components, current_target().balanced_tasks) if are_large else 1
        self.chunk: Index = 0
        self.index: Index = 0  # of the current matrix
        self.part: Index = 0

    def kernel(self, body: Callable[[], None], allows_blas_threads: bool = True) -> list[LoweredKernel]:
        """The kernel that runs `body` for each matrix and part. `allows_blas_threads` says that the BLAS's threads may
        share the work of a single matrix."""
        uses_blas_threads = allows_blas_threads and self.count == 1 and min(self.sizes) > _MIN_BLAS_THREADED_SIZE
        is_guarded = max(self.sizes) > _MAX_UNTHREADED_SIZE and not uses_blas_threads
        with self.low.loop(self.b.kernel.first, self.b.kernel.last) as (self.chunk, _):
            _, start, stop = tile_of(self.low, self.chunk, self.chunks, self.count * self.components)
            if is_guarded:
                self.call("enter_blas")
            with self.low.loop(start, stop, sequential=True) as (number, _):
                self.index, self.part = self.low.split_index(number, (self.count, self.components))
                body()
            if is_guarded:
                self.call("leave_blas")
        return [
            make_kernel(self.low, self.chunks, self.work * -(-self.count * self.components // self.chunks), [self.x])
        ]

    # --- memory

    def matrix(self, x: Storage, written: bool = False) -> Address:
        """Address of the current matrix (or vector) in an array of a batch."""
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.low.buffer(x, written), self.b.mul(self.index, shape.size // self.count)

    def result(self, number: int) -> Address:
        return self.matrix(self.results[number], True)

    def result_or_temporary(self, number: int, size: int, type: str | None) -> Address:
        """Address of a result, or of memory for a result that is not read."""
        return self.result(number) if number in self.results else self.temporary(size, type)

    def call(self, routine: str, *arguments: Argument | _Workspace) -> None:
        """Call a routine; workspaces get the sizes that it asks for."""
        sizes = iter(_workspace_query(routine, arguments) if any(isinstance(a, _Workspace) for a in arguments) else ())
        fortran_arguments: list[Argument] = []
        for argument in arguments:
            if isinstance(argument, _Workspace):
                size = next(sizes)
                fortran_arguments += [self.temporary(size, argument.type), size]
            else:
                fortran_arguments.append(argument)
        super().call(routine, *fortran_arguments)

    def blas(self, name: str, *arguments: Argument | _Workspace) -> None:
        self.call(PREFIXES[self.type] + name, *arguments)

    def temporary(self, size: int, type: str | None = None) -> Address:
        work = Temporary(Shape(element_type(type or self.type), (self.chunks, size)))
        return self.low.buffer(work, True), self.b.mul(self.chunk, size)

    def load(self, address: Address, offset: Index) -> Value:
        return self.b.load(address[0], self.b.add(address[1], offset))

    def store(self, address: Address, offset: Index, current: Operand) -> None:
        self.b.store(address[0], self.b.add(address[1], offset), current)

    def at(self, row: Index, pitch: int, column: Index) -> Index:
        return self.b.add(self.b.mul(row, pitch), column)

    def transpose(
        self, rows: int, columns: int, source: Address, source_pitch: int, target: Address, target_pitch: int
    ) -> None:
        """Copy the transpose of the source: element (row, column) of the target is element (column, row) of the
        source."""
        b, height, routine = self.b, transpose_size(), transpose(bits_of(target[0].type), is_exact=True)
        store_arguments(
            b, self.copy_arguments, COPY_ARGUMENTS, columns=rows, source_pitch=source_pitch, target_pitch=target_pitch
        )
        with b.loop(0, b.ceil_div(columns, height), sequential=True) as (group, _):
            column = b.mul(group, height)
            store_arguments(b, self.copy_arguments, COPY_ARGUMENTS, rows=b.sub(columns, column))
            from_column = source[0], b.add(source[1], b.mul(column, source_pitch))
            b.call(routine, (target[0], b.add(target[1], column)), from_column, (self.copy_arguments, 0))

    def column_major_operand(self, size: int) -> Address:
        """A column-major copy of the operand's matrix."""
        copy = self.temporary(size)
        self.transpose(self.columns, self.rows, self.matrix(self.x.operands[0]), self.columns, copy, self.rows)
        return copy

    def fill_nan(self, address: Address, size: int, failed: Operand) -> None:
        """Fill a result with NaN if the call failed."""
        with self.low.loop(0, self.b.select(failed, size)) as (k, _):
            self.store(address, k, self.nan(address))


def _workspace_query(routine: str, arguments: Sequence[Argument | _Workspace]) -> list[int]:
    """LAPACK's workspace query (LWORK = -1): the sizes that a routine wants for its workspaces."""
    fortran_arguments: list[Any] = []
    workspaces: list[tuple[Any, str]] = []
    for argument in arguments:
        if isinstance(argument, _Workspace):
            number = {"s32": ctypes.c_int32, "f32": ctypes.c_float, "c64": ctypes.c_float}.get(
                argument.type, ctypes.c_double
            )
            workspaces.append(((number * 2)(), argument.type))
            fortran_arguments += [workspaces[-1][0], ctypes.c_int32(-1)]
        elif isinstance(argument, str):
            fortran_arguments.append(ctypes.c_char(argument.encode()))
        elif isinstance(argument, int):
            fortran_arguments.append(ctypes.c_int32(argument))
        else:
            fortran_arguments.append((ctypes.c_double * 4)())
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(fortran_arguments))(library_routine(routine))
    function(*(ctypes.addressof(x) for x in fortran_arguments))
    return [max(1, math.ceil(work[0])) for work, _ in workspaces]


# --- operations -------------------------------------------------------------------------------------------------------


def cholesky(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Cholesky in address (potrf); the other triangle becomes zero."""
    if batched_small.supports(x):
        return batched_small.cholesky(x, plan)
    if blocked_cholesky.supports(x):
        return blocked_cholesky.cholesky(x, plan)
    m, lower = _BatchedLapack(x, plan, users, 20), x.attributes.lower
    n = m.rows

    def fill_triangle(rows: Index, with_diagonal: bool, current: Operand) -> None:
        """Fill the triangle with the diagonal, or the elements outside of it."""
        with m.low.loop(0, rows, sequential=True) as (row, _):
            start, stop = m.b.add(row, int(not with_diagonal)), m.b.add(row, int(with_diagonal))
            with m.low.loop(*((0, stop) if with_diagonal == lower else (start, n))) as (column, _):
                m.store(m.matrix(x, True), m.at(row, n, column), current)

    def body() -> None:
        m.blas("potrf", "U" if lower else "L", n, m.matrix(x, True), n, m.status)
        fill_triangle(n, False, zero(x.array_shape))
        fill_triangle(m.b.select(m.failed(), n), True, m.nan(m.matrix(x, True)))

    return m.kernel(body)


def triangular_solve(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Triangular solve in address of the right-hand sides (trsm, or trsv for one), in parts if they are many."""
    if batched_small.supports(x):
        return batched_small.triangular_solve(x, plan)
    if trsm.supports(x):
        return trsm.triangular_solve(x)
    options = TriangularSolve(*x.attributes)
    *_, rows, columns = x.array_shape.dimensions
    rhs_count = columns if options.left_side else rows
    threads = max(1, (os.cpu_count() or 1) // math.prod(x.array_shape.dimensions[:-2]))  # each part reads the triangle
    multiple = 16 if options.left_side else 4  # the BLAS takes as long for fewer right-hand sides
    width = min(rhs_count, max(blocked_lu.BLOCK, math.ceil(rhs_count / threads / multiple) * multiple))
    m = _BatchedLapack(x, plan, users, 20, -(-rhs_count // width))
    is_single_rhs = options.left_side and rhs_count == 1 and not (m.type in REAL and options.transpose_a == "ADJOINT")

    def body() -> None:
        solved, start = m.matrix(x, True)
        triangle, unit = "U" if options.lower else "L", "U" if options.unit_diagonal else "N"
        if is_single_rhs:
            form = "T" if options.transpose_a == "NO_TRANSPOSE" else "N"
            m.blas("trsv", triangle, form, unit, rows, m.matrix(x.operands[0]), rows, (solved, start), 1)
            return
        first_rhs = m.b.mul(m.part, width)
        count = m.b.min(m.b.sub(rhs_count, first_rhs), width) if m.components > 1 else width
        first = first_rhs if options.left_side else m.b.mul(first_rhs, columns)
        m.blas(
            "trsm",
            "R" if options.left_side else "L",
            triangle,
            {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[options.transpose_a],
            unit,
            *((count, rows) if options.left_side else (columns, count)),
            1.0,
            m.matrix(x.operands[0]),
            m.rows,
            (solved, m.b.add(start, first)),
            columns,
        )

    return m.kernel(body, allows_blas_threads=False)


def lu(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """LU with partial pivoting (getrf), its pivots and its permutation."""
    if batched_small.supports_lu(x):
        return batched_small.lu(x, plan, {r.attributes.index: r for r in results_of(x, users)})
    if blocked_lu.supports(x):
        return _lu_with_permutation(x, plan, users)
    m = _BatchedLapack(x, plan, users, 30)
    steps = min(m.rows, m.columns)

    def body() -> None:
        copy, pivots = m.column_major_operand(m.rows * m.columns), m.temporary(steps, "s32")

        def pivot(k: Index) -> Operand:
            return m.b.compute("subtract", "s32", m.load(pivots, k), Literal("s32", 1))

        m.blas("getrf", m.rows, m.columns, copy, m.rows, pivots, m.status)
        if 0 in m.results:
            m.transpose(m.rows, m.columns, copy, m.rows, m.result(0), m.columns)
        if 1 in m.results:
            with m.low.loop(0, steps) as (k, _):
                m.store(m.result(1), k, pivot(k))
        if 2 in m.results:
            _permutation_of_pivots(m.low, m.result(2), m.rows, steps, pivot)

    return m.kernel(body)


def _lu_with_permutation(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Blocked LU, followed by the kernel of the permutation if that is read."""
    results: dict[int, Storage] = {r.attributes.index: r for r in results_of(x, users)}
    kernels, pivots = blocked_lu.lu(x, results)
    order = next((r for r in results_of(x, users) if r.attributes.index == 2), None)
    if order is None:
        return kernels
    *batch, rows, columns = x.operands[0].array_shape.dimensions
    steps = min(rows, columns)
    low = Lowering("permutation", plan, [order])
    b, pivot_buffer, into = low.builder, low.buffer(pivots), low.buffer(order, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        start = b.mul(index, steps)
        _permutation_of_pivots(
            low, (into, b.mul(index, rows)), rows, steps, lambda k: b.load(pivot_buffer, b.add(start, k))
        )
    return [*kernels, make_kernel(low, math.prod(batch), rows + 4 * steps, [x])]


def supports_permutation(x: Instruction) -> bool:
    """Every permutation of pivots is supported."""
    return True


def permutation(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """The permutation that LAPACK's pivots stand for."""
    (pivots,) = x.operands
    *batch, size = x.array_shape.dimensions
    steps = pivots.array_shape.dimensions[-1]
    low = Lowering("permutation", plan, [x])
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        order = low.buffer(x, True), low.builder.mul(index, size)
        address = low.builder.mul(index, steps)
        _permutation_of_pivots(
            low, order, size, steps, lambda k: low.load(pivots, (*[0] * len(batch), low.builder.add(address, k)))
        )
    return [make_kernel(low, math.prod(batch) if size else 0, size + 4 * steps, [x])]


def _permutation_of_pivots(
    low: Lowering, order: Address, size: int, steps: int, pivot: Callable[[Index], Operand]
) -> None:
    """Apply row swaps in order to the identity permutation. Pivots out of range are clamped."""
    b, (buffer, start) = low.builder, order
    with low.loop(0, size) as (k, _):
        b.store(buffer, b.add(start, k), b.convert("s32", k))
    with low.loop(0, steps, sequential=True) as (k, _):
        row = b.compute("clamp", INDEX, Literal(INDEX, 0), b.convert(INDEX, pivot(k)), Literal(INDEX, size - 1))
        position, pivot_position = b.add(start, k), b.add(start, row)
        current, pivoted = b.load(buffer, position), b.load(buffer, pivot_position)
        b.store(buffer, position, pivoted)
        b.store(buffer, pivot_position, current)


def qr(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """QR by Householder reflectors."""
    if batched_small.supports_qr(x):
        return batched_small.qr(x, plan, {r.attributes.index: r for r in results_of(x, users)})
    m = _BatchedLapack(x, plan, users, 60)
    inner = m.rows if x.attributes.full_matrices else min(m.rows, m.columns)
    factorize = _blocked_householder if m.rows * m.columns >= L1_ELEMENTS else _householder

    def body() -> None:
        triangle, form_q = factorize(m, inner)
        if 1 in m.results:
            upper = m.result(1)
            m.transpose(inner, m.columns, triangle, m.rows, upper, m.columns)
            with (
                m.low.loop(0, inner, sequential=True) as (row, _),
                m.low.loop(0, m.b.min(row, m.columns)) as (column, _),
            ):
                m.store(upper, m.at(row, m.columns, column), zero(x.operands[0].array_shape))
        if 0 in m.results:
            m.transpose(m.rows, inner, form_q(), m.rows, m.result(0), inner)

    return m.kernel(body)


def _householder(m: _BatchedLapack, inner: int) -> tuple[Address, Callable[[], Address]]:
    """Factorize (geqrf): R, and the function that forms Q (orgqr), both column-major."""
    steps, of_type = min(m.rows, m.columns), _Workspace(m.type)
    copy, tau = m.column_major_operand(m.rows * max(m.columns, inner)), m.temporary(steps)
    m.blas("geqrf", m.rows, m.columns, copy, m.rows, tau, of_type, m.status)

    def form_q() -> Address:
        name = "ungqr" if m.type in REAL else "orgqr"
        m.blas(name, m.rows, inner, steps, copy, m.rows, tau, of_type, m.status)
        return copy

    return copy, form_q


def _blocked_householder(m: _BatchedLapack, inner: int) -> tuple[Address, Callable[[], Address]]:
    """Recursive factorization of large matrices (geqrt; Elmroth and Gustavson, 2000): R, and the function that forms Q.

    LAPACK has no routine that forms Q from this factorization, so the block reflectors are applied to the identity
    (gemqrt), the last block first; each changes the elements below and right of its corner. A NaN in a column spreads
    over all columns of its block.
    """
    b, steps = m.b, min(m.rows, m.columns)
    width = min(steps, blocked_lu.BLOCK)
    copy, tau = m.column_major_operand(m.rows * m.columns), m.temporary(width * steps)
    work = m.temporary(width * max(m.columns, inner))
    m.blas("geqrt", m.rows, m.columns, width, copy, m.rows, tau, width, work, m.status)

    def form_q() -> Address:
        q, block_count = m.temporary(m.rows * inner), -(-steps // width)
        with m.low.loop(0, m.rows * inner) as (address, _):
            m.store(q, address, Literal(m.type, 0))
        with m.low.loop(0, inner) as (k, _):
            m.store(q, m.at(k, m.rows, k), Literal(m.type, 1))
        with b.loop(0, block_count, sequential=True) as (block, _):
            start = b.mul(b.sub(block_count - 1, block), width)
            count, corner = b.min(b.sub(steps, start), width), m.at(start, m.rows, start)
            reflectors, block_tau = (copy[0], b.add(copy[1], corner)), (tau[0], b.add(tau[1], b.mul(start, width)))
            sizes = b.sub(m.rows, start), b.sub(inner, start), count, count
            q_block = q[0], b.add(q[1], corner)
            m.blas("gemqrt", "L", "N", *sizes, reflectors, m.rows, block_tau, width, q_block, m.rows, work, m.status)
        return q

    return copy, form_q


def eigh(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Eigenvalues and eigenvectors of a Hermitian matrix (syevd, heevd)."""
    m = _BatchedLapack(x, plan, users, 600)
    n, real = m.rows, REAL.get(m.type)
    workspaces = [_Workspace(type) for type in (m.type, *((real,) if real else ()), "s32")]

    def body() -> None:
        copy, values = m.column_major_operand(n * n), m.result_or_temporary(1, n, real)
        letters = "V" if 0 in m.results else "N", "L" if x.attributes.lower else "U"
        m.blas("heevd" if real else "syevd", *letters, n, copy, n, values, *workspaces, m.status)
        failed = m.failed()
        m.fill_nan(values, n, failed)
        if 0 in m.results:
            m.transpose(n, n, copy, n, m.result(0), n)
            m.fill_nan(m.result(0), n * n, failed)

    return m.kernel(body)


def eig(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Eigenvalues and right eigenvectors of a general matrix (geev)."""
    m = _BatchedLapack(x, plan, users, 3000)
    b, n, real = m.b, m.rows, REAL.get(m.type)
    has_vectors, complex_type = 0 in m.results, m.type if real else _COMPLEX[m.type]

    def body() -> None:
        copy, is_non_finite = m.column_major_operand(n * n), (b.scratch("s32", 1), 0)
        _replace_non_finite(m, copy, n * n, is_non_finite)
        values, vectors = m.result_or_temporary(1, n, complex_type), m.temporary(n * n if has_vectors else 1)
        components = [values] if real else [m.temporary(n), m.temporary(n)]
        work = [_Workspace(m.type), *([m.temporary(2 * n, real)] if real else [])]
        letters = "N", "V" if has_vectors else "N"  # no left eigenvectors
        m.blas("geev", *letters, n, copy, n, *components, m.temporary(1), 1, vectors, n, *work, m.status)
        failed = b.compare("NE", b.or_(m.load(is_non_finite, 0), b.load(*m.status)), Literal("s32", 0))
        if not real:
            with m.low.loop(0, n) as (k, _):
                m.store(values, k, b.compute("complex", complex_type, *(m.load(part, k) for part in components)))
        m.fill_nan(values, n, failed)
        if has_vectors:
            if real:
                m.transpose(n, n, vectors, n, m.result(0), n)
            else:
                _unpack_conjugate_pairs(m, n, components[1], vectors, complex_type)
            m.fill_nan(m.result(0), n * n, failed)

    return m.kernel(body)


def _replace_non_finite(m: _BatchedLapack, address: Address, size: int, has_non_finite: Address) -> None:
    """Replace infinities and NaN, with which LAPACK may not terminate, by zeros, and record whether there were any."""
    b, real = m.b, REAL.get(m.type)
    m.store(has_non_finite, 0, Literal("s32", 0))
    with m.low.loop(0, size, sequential=True) as (k, _):
        element = m.load(address, k)
        difference = b.compute("subtract", m.type, element, element)
        for part in [b.compute(name, real, difference) for name in ("real", "imag")] if real else [difference]:
            is_non_finite = b.compare("NE", part, Literal(real or m.type, 0))
            m.store(has_non_finite, 0, b.or_(m.load(has_non_finite, 0), b.convert("s32", is_non_finite)))
            element = b.select(is_non_finite, Literal(m.type, 0), element)
        m.store(address, k, element)


def _unpack_conjugate_pairs(m: _BatchedLapack, n: int, imaginary: Address, vectors: Address, type: str) -> None:
    """Complex eigenvectors of a real matrix: of a pair of conjugate eigenvalues, the first column has the real parts of
    the first vector, and the second column the imaginary parts (LAPACK's documentation of geev)."""
    b, zero_literal = m.b, Literal(m.type, 0)
    with m.low.loop(0, n, sequential=True) as (column, _):
        part = m.load(imaginary, column)
        is_first, is_second = b.compare("GT", part, zero_literal), b.compare("LT", part, zero_literal)
        real_column = b.max(b.sub(column, b.select(is_second, 1)), 0)
        # Clamped: after a failure of LAPACK the parts are undefined.
        imaginary_column = b.min(b.add(column, b.select(is_first, 1)), n - 1)
        with m.low.loop(0, n) as (row, _):
            real_part, imaginary_part = (m.load(vectors, m.at(at, n, row)) for at in (real_column, imaginary_column))
            imaginary_part = b.select(
                is_first, imaginary_part, b.select(is_second, b.compute("negate", m.type, imaginary_part), zero_literal)
            )
            m.store(m.result(0), m.at(row, n, column), b.compute("complex", type, real_part, imaginary_part))


def svd(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """Singular value decomposition (gesdd)."""
    m = _BatchedLapack(x, plan, users, 1000)
    rows, columns, full, real = m.rows, m.columns, x.attributes.full_matrices, REAL.get(m.type)
    k, max_size = min(rows, columns), max(rows, columns)
    left, right = (rows, columns) if full else (k, k)
    vectors = 0 in m.results or 2 in m.results
    rwork_size = max(5 * k * k + 7 * k, 2 * max_size * k + 2 * k * k + k)  # size of RWORK in LAPACK's manual

    def body() -> None:
        copy, values = m.column_major_operand(rows * columns), m.result_or_temporary(1, k, real)
        with m.low.loop(0, rows * columns) as (address, _):  # NaN for infinities, with which LAPACK may not terminate
            element = m.load(copy, address)
            difference = m.b.compute("subtract", m.type, element, element)
            m.store(copy, address, m.b.compute("add", m.type, element, difference))
        u, vh = m.temporary(rows * left), m.temporary(right * columns)
        m.blas(
            "gesdd",
            "N" if not vectors else "A" if full else "S",
            *(rows, columns, copy, rows, values, u, rows, vh, right),
            _Workspace(m.type),
            *((m.temporary(rwork_size, real),) if real else ()),
            m.temporary(8 * k, "s32"),
            m.status,
        )
        failed = m.failed()
        m.fill_nan(values, k, failed)
        for number, has_non_finite, size, pitch in ((0, u, rows, left), (2, vh, right, columns)):
            if number in m.results:
                m.transpose(size, pitch, has_non_finite, size, m.result(number), pitch)
                m.fill_nan(m.result(number), size * pitch, failed)

    return m.kernel(body)
