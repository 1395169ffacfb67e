"""Factors of matrices and triangular systems: kernels that call SciPy's BLAS and LAPACK, one matrix after the other.

Matrices are row-major here and column-major there. A triangular or Hermitian matrix is handed over as it is, which
swaps sides and triangles; others are turned on the way in and out. A batch is cut into pieces at fixed places, which
threads share; each piece has memory of its own for what routines need besides their arguments. What has no result is
NaN.

Many small matrices are factored side by side instead: see `small_factors`. L U and Cholesky factors of real numbers,
and triangular systems of these, are this library's own: see `eliminations`, `definite_factors` and `substitutions`.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyxla.compiler.fusion.plan import Plan, results_of
from tinyxla.hlo import Instruction
from tinyxla.loopir.blas_library import library_routine
from tinyxla.loopir.ir.loop_ir import INDEX, Index, Literal, Operand, Value
from tinyxla.loopir.kernels.gemm.packing import COPY, bits_of, tile_rows, turn
from tinyxla.loopir.kernels.linalg import batched_small, cholesky as blocked_cholesky, lu as blocked_lu, trsm
from tinyxla.loopir.kernels.linalg.fortran_abi import PREFIXES, REAL, Argument, Calls, Place
from tinyxla.loopir.lower.axes import make_kernel, tile_of
from tinyxla.loopir.lower.emit import LoweredKernel, Lowering, Storage, Temporary, Users, zero
from tinyxla.loopir.lower.routine_calls import store_arguments
from tinyxla.ops.linear_algebra import TriangularSolve
from tinyxla.shapes import Shape, element_type

_ALONE = 384  # rows or columns from which on a single matrix is worth the threads of the BLAS
_PIECES = 16  # of a batch
_CALL = 300  # what a call costs, in simple operations
_SPLIT = 2000  # work for a matrix from which on threads gain: OpenBLAS hands out its memory to one at a time
_SIDES = 32  # of right-hand sides that are one part of the work, at least
_COMPACT, _REFLECTIONS = 1 << 13, 32  # elements of a matrix that is multiplied by so many reflections at once, at least
_COMPLEX = {real: kind for kind, real in REAL.items()}
_UNTHREADED = 8  # rows or columns for which OpenBLAS uses no threads


def supports(x: Instruction) -> bool:
    return x.operands[0].array_shape.element_type.name in PREFIXES and all(o.array_shape.size for o in x.operands)


@dataclass(frozen=True)
class _Workspace:
    """Memory that a routine asks for, of an element type: the place and the size, which are two arguments."""

    type: str


class _Matrices(Calls):
    """Emits the kernel of one instruction, over the matrices of its first operand, or parts of their work."""

    def __init__(self, x: Instruction, plan: Plan, users: Users, cost: int, parts: int = 1) -> None:
        """`cost` is what an element of the last operand costs, in simple operations."""
        results = results_of(x, users)
        self.x, self.low = x, Lowering(x.op.name.replace("-", "_"), plan, results)
        super().__init__(self.low.builder, x.operands[0].array_shape.element_type.name)
        *batch, self.rows, self.columns = x.operands[0].array_shape.dimensions
        self.count = math.prod(batch)
        self.results: dict[int, Storage] = {r.attributes.index if r is not x else 0: r for r in results}
        self.sizes = (self.rows, self.columns, *x.operands[-1].array_shape.dimensions[-2:])
        self.parts = parts
        self.numbers = self.b.scratch(INDEX, len(COPY))
        work = cost * math.prod(self.sizes[2:]) // parts
        self.work = _CALL + work
        self.pieces = min(self.count * parts, _PIECES) if work > _SPLIT else 1
        self.piece: Index = 0
        self.index: Index = 0  # of the matrix
        self.part: Index = 0

    def kernel(self, body: Callable[[], None], by_threads: bool = True) -> list[LoweredKernel]:
        """`by_threads` says that those of the BLAS may share the work for one matrix."""
        is_alone = by_threads and self.count == 1 and min(self.sizes) > _ALONE
        guarded = max(self.sizes) > _UNTHREADED and not is_alone
        with self.low.loop(self.b.kernel.first, self.b.kernel.last) as (self.piece, _):
            _, start, stop = tile_of(self.low, self.piece, self.pieces, self.count * self.parts)
            if guarded:
                self.call("enter_blas")
            with self.low.loop(start, stop, sequential=True) as (number, _):
                self.index, self.part = self.low.split_index(number, (self.count, self.parts))
                body()
            if guarded:
                self.call("leave_blas")
        return [make_kernel(self.low, self.pieces, self.work * -(-self.count * self.parts // self.pieces), [self.x])]

    # --- memory

    def matrix(self, x: Storage, written: bool = False) -> Place:
        """Where the matrix (or vector) at hand begins in an array that has one for each."""
        shape = x.shape if isinstance(x, Temporary) else x.array_shape
        return self.low.buffer(x, written), self.b.mul(self.index, shape.size // self.count)

    def result(self, number: int) -> Place:
        return self.matrix(self.results[number], True)

    def result_or_temporary(self, number: int, size: int, kind: str | None) -> Place:
        """Where a result is made, taken or not."""
        return self.result(number) if number in self.results else self.temporary(size, kind)

    def call(self, routine: str, *arguments: Argument | _Workspace) -> None:
        sizes = iter(_asked(routine, arguments) if any(isinstance(a, _Workspace) for a in arguments) else ())
        given: list[Argument] = []
        for argument in arguments:
            if isinstance(argument, _Workspace):
                size = next(sizes)
                given += [self.temporary(size, argument.type), size]
            else:
                given.append(argument)
        super().call(routine, *given)

    def blas(self, name: str, *arguments: Argument | _Workspace) -> None:
        self.call(PREFIXES[self.kind] + name, *arguments)

    def temporary(self, size: int, kind: str | None = None) -> Place:
        memory = Temporary(Shape(element_type(kind or self.kind), (self.pieces, size)))
        return self.low.buffer(memory, True), self.b.mul(self.piece, size)

    def load(self, place: Place, offset: Index) -> Value:
        return self.b.load(place[0], self.b.add(place[1], offset))

    def store(self, place: Place, offset: Index, value: Operand) -> None:
        self.b.store(place[0], self.b.add(place[1], offset), value)

    def at(self, row: Index, pitch: int, column: Index) -> Index:
        return self.b.add(self.b.mul(row, pitch), column)

    def turn(self, rows: int, columns: int, source: Place, source_pitch: int, target: Place, target_pitch: int) -> None:
        """Copy what is at (row, column) of the target from (column, row) of the source."""
        b, lines, routine = self.b, tile_rows(), turn(bits_of(target[0].type), is_exact=True)
        store_arguments(b, self.numbers, COPY, steps=rows, row=source_pitch, pitch=target_pitch)
        with b.loop(0, b.ceil_div(columns, lines), sequential=True) as (group, _):
            column = b.mul(group, lines)
            store_arguments(b, self.numbers, COPY, rows=b.sub(columns, column))
            line = source[0], b.add(source[1], b.mul(column, source_pitch))
            b.call(routine, (target[0], b.add(target[1], column)), line, (self.numbers, 0))

    def turned_operand(self, size: int) -> Place:
        """A copy of the operand's matrix, column-major."""
        copy = self.temporary(size)
        self.turn(self.columns, self.rows, self.matrix(self.x.operands[0]), self.columns, copy, self.rows)
        return copy

    def spoil(self, place: Place, size: int, failed: Operand) -> None:
        """NaN for what has no result."""
        with self.low.loop(0, self.b.select(failed, size)) as (k, _):
            self.store(place, k, self.nan(place))


def _asked(routine: str, arguments: Sequence[Argument | _Workspace]) -> list[int]:
    """How large a routine wants its workspaces: that is what it says if it is told that they have -1 elements."""
    given: list[Any] = []
    asked: list[tuple[Any, str]] = []
    for argument in arguments:
        if isinstance(argument, _Workspace):
            number = {"s32": ctypes.c_int32, "f32": ctypes.c_float, "c64": ctypes.c_float}.get(
                argument.type, ctypes.c_double
            )
            asked.append(((number * 2)(), argument.type))
            given += [asked[-1][0], ctypes.c_int32(-1)]
        elif isinstance(argument, str):
            given.append(ctypes.c_char(argument.encode()))
        elif isinstance(argument, int):
            given.append(ctypes.c_int32(argument))
        else:
            given.append((ctypes.c_double * 4)())
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(given))(library_routine(routine))
    function(*(ctypes.addressof(x) for x in given))
    return [max(1, math.ceil(memory[0])) for memory, _ in asked]


# --- the ops ----------------------------------------------------------------------------------------------------------


def cholesky(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """In place; the other triangle becomes zero."""
    if batched_small.supports(x):
        return batched_small.cholesky(x, plan)
    if blocked_cholesky.supports(x):
        return blocked_cholesky.cholesky(x, plan)
    m, lower = _Matrices(x, plan, users, 20), x.attributes.lower
    n = m.rows

    def fill(rows: Index, inside: bool, value: Operand) -> None:
        """The triangle with the diagonal, or what is outside of it."""
        with m.low.loop(0, rows, sequential=True) as (row, _):
            start, stop = m.b.add(row, int(not inside)), m.b.add(row, int(inside))
            with m.low.loop(*((0, stop) if inside == lower else (start, n))) as (column, _):
                m.store(m.matrix(x, True), m.at(row, n, column), value)

    def body() -> None:
        m.blas("potrf", "U" if lower else "L", n, m.matrix(x, True), n, m.status)
        fill(n, False, zero(x.array_shape))
        fill(m.b.select(m.failed(), n), True, m.nan(m.matrix(x, True)))

    return m.kernel(body)


def triangular_solve(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """In place of the right-hand sides; of these some at a time, if there are many."""
    if batched_small.supports(x):
        return batched_small.triangular_solve(x, plan)
    if trsm.supports(x):
        return trsm.triangular_solve(x)
    options = TriangularSolve(*x.attributes)
    *_, rows, columns = x.array_shape.dimensions
    sides = columns if options.left_side else rows
    shared = max(1, (os.cpu_count() or 1) // math.prod(x.array_shape.dimensions[:-2]))  # each part reads the matrix
    multiple = 16 if options.left_side else 4  # the BLAS takes as long for fewer
    width = min(sides, max(_SIDES, math.ceil(sides / shared / multiple) * multiple))
    m = _Matrices(x, plan, users, 20, -(-sides // width))
    is_vector = options.left_side and sides == 1 and not (m.kind in REAL and options.transpose_a == "ADJOINT")

    def body() -> None:
        solved, start = m.matrix(x, True)
        triangle, unit = "U" if options.lower else "L", "U" if options.unit_diagonal else "N"
        if is_vector:
            form = "T" if options.transpose_a == "NO_TRANSPOSE" else "N"
            m.blas("trsv", triangle, form, unit, rows, m.matrix(x.operands[0]), rows, (solved, start), 1)
            return
        side = m.b.mul(m.part, width)
        some = m.b.min(m.b.sub(sides, side), width) if m.parts > 1 else width
        first = side if options.left_side else m.b.mul(side, columns)
        m.blas(
            "trsm",
            "R" if options.left_side else "L",
            triangle,
            {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[options.transpose_a],
            unit,
            *((some, rows) if options.left_side else (columns, some)),
            1.0,
            m.matrix(x.operands[0]),
            m.rows,
            (solved, m.b.add(start, first)),
            columns,
        )

    return m.kernel(body, by_threads=False)


def lu(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    if batched_small.supports_lu(x):
        return batched_small.lu(x, plan, {r.attributes.index: r for r in results_of(x, users)})
    if blocked_lu.supports(x):
        return _eliminated(x, plan, users)
    m = _Matrices(x, plan, users, 30)
    steps = min(m.rows, m.columns)

    def body() -> None:
        copy, pivots = m.turned_operand(m.rows * m.columns), m.temporary(steps, "s32")

        def pivot(k: Index) -> Operand:
            return m.b.compute("subtract", "s32", m.load(pivots, k), Literal("s32", 1))

        m.blas("getrf", m.rows, m.columns, copy, m.rows, pivots, m.status)
        if 0 in m.results:
            m.turn(m.rows, m.columns, copy, m.rows, m.result(0), m.columns)
        if 1 in m.results:
            with m.low.loop(0, steps) as (k, _):
                m.store(m.result(1), k, pivot(k))
        if 2 in m.results:
            _permute(m.low, m.result(2), m.rows, steps, pivot)

    return m.kernel(body)


def _eliminated(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    """By this library's routines, and the permutation after them."""
    results: dict[int, Storage] = {r.attributes.index: r for r in results_of(x, users)}
    kernels, pivots = blocked_lu.lu(x, results)
    order = next((r for r in results_of(x, users) if r.attributes.index == 2), None)
    if order is None:
        return kernels
    *batch, rows, columns = x.operands[0].array_shape.dimensions
    steps = min(rows, columns)
    low = Lowering("permutation", plan, [order])
    b, places, into = low.builder, low.buffer(pivots), low.buffer(order, True)
    with low.loop(b.kernel.first, b.kernel.last) as (index, _):
        start = b.mul(index, steps)
        _permute(low, (into, b.mul(index, rows)), rows, steps, lambda k: b.load(places, b.add(start, k)))
    return [*kernels, make_kernel(low, math.prod(batch), rows + 4 * steps, [x])]


def supports_permutation(x: Instruction) -> bool:
    return True


def permutation(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    (pivots,) = x.operands
    *batch, size = x.array_shape.dimensions
    steps = pivots.array_shape.dimensions[-1]
    low = Lowering("permutation", plan, [x])
    with low.loop(low.builder.kernel.first, low.builder.kernel.last) as (index, _):
        order = low.buffer(x, True), low.builder.mul(index, size)
        place = low.builder.mul(index, steps)
        _permute(low, order, size, steps, lambda k: low.load(pivots, (*[0] * len(batch), low.builder.add(place, k))))
    return [make_kernel(low, math.prod(batch) if size else 0, size + 4 * steps, [x])]


def _permute(low: Lowering, order: Place, size: int, steps: int, pivot: Callable[[Index], Operand]) -> None:
    """The order in which rows stand after they have been exchanged. A pivot is moved to one of the rows."""
    b, (buffer, start) = low.builder, order
    with low.loop(0, size) as (k, _):
        b.store(buffer, b.add(start, k), b.convert("s32", k))
    with low.loop(0, steps, sequential=True) as (k, _):
        row = b.compute("clamp", INDEX, Literal(INDEX, 0), b.convert(INDEX, pivot(k)), Literal(INDEX, size - 1))
        here, there = b.add(start, k), b.add(start, row)
        value, other = b.load(buffer, here), b.load(buffer, there)
        b.store(buffer, here, other)
        b.store(buffer, there, value)


def qr(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    if batched_small.supports_qr(x):
        return batched_small.qr(x, plan, {r.attributes.index: r for r in results_of(x, users)})
    m = _Matrices(x, plan, users, 60)
    inner = m.rows if x.attributes.full_matrices else min(m.rows, m.columns)
    reflected = _reflected_at_once if m.rows * m.columns >= _COMPACT else _reflected

    def body() -> None:
        triangle, orthogonal = reflected(m, inner)
        if 1 in m.results:
            upper = m.result(1)
            m.turn(inner, m.columns, triangle, m.rows, upper, m.columns)
            with (
                m.low.loop(0, inner, sequential=True) as (row, _),
                m.low.loop(0, m.b.min(row, m.columns)) as (column, _),
            ):
                m.store(upper, m.at(row, m.columns, column), zero(x.operands[0].array_shape))
        if 0 in m.results:
            m.turn(m.rows, inner, orthogonal(), m.rows, m.result(0), inner)

    return m.kernel(body)


def _reflected(m: _Matrices, inner: int) -> tuple[Place, Callable[[], Place]]:
    """R above the diagonal, and what makes Q of so many columns of what is below, both column-major."""
    steps, of_type = min(m.rows, m.columns), _Workspace(m.kind)
    copy, factors = m.turned_operand(m.rows * max(m.columns, inner)), m.temporary(steps)
    m.blas("geqrf", m.rows, m.columns, copy, m.rows, factors, of_type, m.status)

    def orthogonal() -> Place:
        name = "ungqr" if m.kind in REAL else "orgqr"
        m.blas(name, m.rows, inner, steps, copy, m.rows, factors, of_type, m.status)
        return copy

    return copy, orthogonal


def _reflected_at_once(m: _Matrices, inner: int) -> tuple[Place, Callable[[], Place]]:
    """The same for large matrices: LAPACK can find some reflections by products of their halves (Elmroth and Gustavson,
    2000), but then has no routine for Q. That is the product of all with the identity; from the last ones on, each
    changes what is below and right of its corner. NaN in a column spreads over all columns of its block."""
    b, steps = m.b, min(m.rows, m.columns)
    width = min(steps, _REFLECTIONS)
    copy, factors = m.turned_operand(m.rows * m.columns), m.temporary(width * steps)
    memory = m.temporary(width * max(m.columns, inner))
    m.blas("geqrt", m.rows, m.columns, width, copy, m.rows, factors, width, memory, m.status)

    def orthogonal() -> Place:
        q, blocks = m.temporary(m.rows * inner), -(-steps // width)
        with m.low.loop(0, m.rows * inner) as (place, _):
            m.store(q, place, Literal(m.kind, 0))
        with m.low.loop(0, inner) as (k, _):
            m.store(q, m.at(k, m.rows, k), Literal(m.kind, 1))
        with b.loop(0, blocks, sequential=True) as (block, _):
            start = b.mul(b.sub(blocks - 1, block), width)
            count, corner = b.min(b.sub(steps, start), width), m.at(start, m.rows, start)
            below, factor = (copy[0], b.add(copy[1], corner)), (factors[0], b.add(factors[1], b.mul(start, width)))
            sizes = b.sub(m.rows, start), b.sub(inner, start), count, count
            changed = q[0], b.add(q[1], corner)
            m.blas("gemqrt", "L", "N", *sizes, below, m.rows, factor, width, changed, m.rows, memory, m.status)
        return q

    return copy, orthogonal


def eigh(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    m = _Matrices(x, plan, users, 600)
    n, real = m.rows, REAL.get(m.kind)
    workspaces = [_Workspace(kind) for kind in (m.kind, *((real,) if real else ()), "s32")]

    def body() -> None:
        copy, values = m.turned_operand(n * n), m.result_or_temporary(1, n, real)
        letters = "V" if 0 in m.results else "N", "L" if x.attributes.lower else "U"
        m.blas("heevd" if real else "syevd", *letters, n, copy, n, values, *workspaces, m.status)
        failed = m.failed()
        m.spoil(values, n, failed)
        if 0 in m.results:
            m.turn(n, n, copy, n, m.result(0), n)
            m.spoil(m.result(0), n * n, failed)

    return m.kernel(body)


def eig(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    m = _Matrices(x, plan, users, 3000)
    b, n, real = m.b, m.rows, REAL.get(m.kind)
    has_vectors, complex_kind = 0 in m.results, m.kind if real else _COMPLEX[m.kind]

    def body() -> None:
        copy, is_undefined = m.turned_operand(n * n), (b.scratch("s32", 1), 0)
        _without_undefined(m, copy, n * n, is_undefined)
        values, vectors = m.result_or_temporary(1, n, complex_kind), m.temporary(n * n if has_vectors else 1)
        parts = [values] if real else [m.temporary(n), m.temporary(n)]
        work = [_Workspace(m.kind), *([m.temporary(2 * n, real)] if real else [])]
        letters = "N", "V" if has_vectors else "N"  # no vectors on the left
        m.blas("geev", *letters, n, copy, n, *parts, m.temporary(1), 1, vectors, n, *work, m.status)
        failed = b.compare("NE", b.or_(m.load(is_undefined, 0), b.load(*m.status)), Literal("s32", 0))
        if not real:
            with m.low.loop(0, n) as (k, _):
                m.store(values, k, b.compute("complex", complex_kind, *(m.load(part, k) for part in parts)))
        m.spoil(values, n, failed)
        if has_vectors:
            if real:
                m.turn(n, n, vectors, n, m.result(0), n)
            else:
                _from_pairs(m, n, parts[1], vectors, complex_kind)
            m.spoil(m.result(0), n * n, failed)

    return m.kernel(body)


def _without_undefined(m: _Matrices, place: Place, size: int, found: Place) -> None:
    """Zero for infinities and NaN, with which LAPACK might not end, and whether there were any."""
    b, real = m.b, REAL.get(m.kind)
    m.store(found, 0, Literal("s32", 0))
    with m.low.loop(0, size, sequential=True) as (k, _):
        element = m.load(place, k)
        none = b.compute("subtract", m.kind, element, element)
        for part in [b.compute(name, real, none) for name in ("real", "imag")] if real else [none]:
            is_undefined = b.compare("NE", part, Literal(real or m.kind, 0))
            m.store(found, 0, b.or_(m.load(found, 0), b.convert("s32", is_undefined)))
            element = b.select(is_undefined, Literal(m.kind, 0), element)
        m.store(place, k, element)


def _from_pairs(m: _Matrices, n: int, imaginary: Place, vectors: Place, kind: str) -> None:
    """The vectors of a real matrix: where eigenvalues are conjugate, the first one's column has real parts of vectors,
    and the second one's the imaginary parts of the first vector, says LAPACK's manual."""
    b, nothing = m.b, Literal(m.kind, 0)
    with m.low.loop(0, n, sequential=True) as (column, _):
        part = m.load(imaginary, column)
        is_first, is_second = b.compare("GT", part, nothing), b.compare("LT", part, nothing)
        real_at = b.max(b.sub(column, b.select(is_second, 1)), 0)
        imaginary_at = b.min(b.add(column, b.select(is_first, 1)), n - 1)  # if LAPACK failed, parts may be anything
        with m.low.loop(0, n) as (row, _):
            re, im = (m.load(vectors, m.at(at, n, row)) for at in (real_at, imaginary_at))
            im = b.select(is_first, im, b.select(is_second, b.compute("negate", m.kind, im), nothing))
            m.store(m.result(0), m.at(row, n, column), b.compute("complex", kind, re, im))


def svd(x: Instruction, plan: Plan, users: Users) -> list[LoweredKernel]:
    m = _Matrices(x, plan, users, 1000)
    rows, columns, full, real = m.rows, m.columns, x.attributes.full_matrices, REAL.get(m.kind)
    k, longest = min(rows, columns), max(rows, columns)
    left, right = (rows, columns) if full else (k, k)
    vectors = 0 in m.results or 2 in m.results
    rotations = max(5 * k * k + 7 * k, 2 * longest * k + 2 * k * k + k)  # that many numbers, says LAPACK's manual

    def body() -> None:
        copy, values = m.turned_operand(rows * columns), m.result_or_temporary(1, k, real)
        with m.low.loop(0, rows * columns) as (place, _):  # NaN for infinities, with which LAPACK would not end
            element = m.load(copy, place)
            none = m.b.compute("subtract", m.kind, element, element)
            m.store(copy, place, m.b.compute("add", m.kind, element, none))
        u, vh = m.temporary(rows * left), m.temporary(right * columns)
        m.blas(
            "gesdd",
            "N" if not vectors else "A" if full else "S",
            *(rows, columns, copy, rows, values, u, rows, vh, right),
            _Workspace(m.kind),
            *((m.temporary(rotations, real),) if real else ()),
            m.temporary(8 * k, "s32"),
            m.status,
        )
        failed = m.failed()
        m.spoil(values, k, failed)
        for number, found, size, pitch in ((0, u, rows, left), (2, vh, right, columns)):
            if number in m.results:
                m.turn(size, pitch, found, size, m.result(number), pitch)
                m.spoil(m.result(number), size * pitch, failed)

    return m.kernel(body)
