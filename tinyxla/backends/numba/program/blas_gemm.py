"""BLAS GEMM and GEMV kernels: row-major C = op(A) op(B) over a batch, through the OpenBLAS of SciPy.

A kernel takes the address of the Fortran routine in its table, so its object code holds nothing of this process and can
be cached on disk. A row-major matrix is the transpose of the column-major matrix in the same memory, and C' = op(B)'
op(A)', so the operands are exchanged and no data moves.

Threads: C is cut into tiles at fixed places, which this library's threads share. The BLAS itself runs each tile on one
thread: OpenBLAS gives different bits for different numbers of threads, and its idle threads would compete with ours.
Tiles cost a few per cent, because each packs its own copy of its operands; see `_tile_shape`.

A BLAS spends more on the set-up of a tiny product than on its arithmetic, so a batch of small products runs a kernel of
vector instructions that is compiled for its shape (see `small_gemm`).
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from dataclasses import dataclass, replace
from string import Template
from typing import TYPE_CHECKING, Literal, NamedTuple

from tinyxla.backends.numba.jit.engine import compile_kernel, compile_llvm, define_symbol
from tinyxla.backends.numba.runtime.blas_symbols import GUARD, guard, guard_address, routine
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.ir.routines import multiply_symbol
from tinyxla.loopir.kernels.gemm.problem import MAX_SMALL_SIZE, gemm_problem
from tinyxla.loopir.kernels.gemm.small_gemm import row_kernel, small_kernel, vectors_in_matrix
from tinyxla.loopir.target import current_target

if TYPE_CHECKING:
    from tinyxla.backends.numba.runtime.bytecode import Schedule

ElementType = Literal["f32", "f64", "c64", "c128"]

_PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_SCALARS = {"f32": "float", "f64": "double", "c64": "float", "c128": "double"}
_MAX_FORTRAN_INTEGER = 2**31 - 1  # the Fortran routines take 32-bit integers

_CHUNK_MULTIPLIES = 1 << 19  # some ten microseconds of a core's time, which pays for waking a thread
_MAX_UNGUARDED_MULTIPLIES = 1 << 13  # up to which OpenBLAS uses one thread anyway
_GEMV_TILE_ELEMENTS = 1 << 17  # matrix elements of a tile of a matrix-vector product
_MIN_SMALL_RUNS = 64  # runs of a small GEMM that pay for compiling it
_MIN_ROW_ELEMENTS = 8  # elements of a contiguous row in a small matrix-vector product
_MAX_MATRIX_VECTORS = 96  # vectors of the matrix in a small matrix-vector product
_MAX_GEMV_COLUMNS = 4  # columns of B (or rows of A) up to which a GEMM becomes matrix-vector products
_STRIDED_GEMV_TILE = (
    512,
    4096,
)  # bounds of a tile's columns if M' is stored: an eighth of a row within these bounds, or half of a row
_BATCHED_GEMV_TILE = 1 << 13  # the same for a batch, which has enough tiles


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """A GEMM kernel with its constants; `append` makes it a step of a schedule."""

    name: str  # of the method
    kernel: int
    order: tuple[int, int, int]  # positions of the kernel's operands in (a, b, c)
    constants: tuple[int, ...]
    extent: int
    grain: int

    def append(self, schedule: Schedule, a: int, b: int, c: int) -> None:
        """Append a step that reads the matrices at the addresses in slots `a` and `b` and writes the matrix in slot
        `c`."""
        slots = (a, b, c)
        schedule.kernel(self.kernel, [slots[i] for i in self.order], self.extent, self.grain, self.constants)


@dataclass(frozen=True, slots=True)
class _Gemm:
    """C[m, n] = op(A)[m, k] op(B)[k, n] for a batch; steps (between matrices) and leading dimensions count elements."""

    type: ElementType
    m: int
    n: int
    k: int
    batch: int
    transpose_a: bool
    transpose_b: bool
    step_a: int
    step_b: int
    step_c: int
    lda: int
    ldb: int
    ldc: int

    @property
    def multiplies(self) -> int:
        """Real multiplications of one matrix of the batch."""
        return self.m * self.n * self.k * (4 if self.type.startswith("c") else 1)


def gemm_step(
    type: ElementType,
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    steps: tuple[int, int, int],
    leading: tuple[int, int, int],
    repeats: int = 1,
) -> MatmulStep:
    """The step for C[i] = op(A[i]) op(B[i]), i < batch, on row-major matrices.

    A is stored [m, k], or [k, m] if `transpose_a`; B is stored [k, n], or [n, k] if `transpose_b`; C is [m, n].
    `leading` holds the leading dimensions of A, B and C, and `steps` the strides between matrices of a batch, in
    elements; a stride of 0 uses one A or B throughout. `repeats` is the expected number of runs in one call of the
    program. No size is 0: empty products are simplified away.
    """
    if max(k, *leading) > _MAX_FORTRAN_INTEGER:
        raise ValueError(
            f"a gemm has k = {k} and rows {leading} apart; BLAS counts to {_MAX_FORTRAN_INTEGER}: split it"
        )
    gemm = _Gemm(type, m, n, k, batch, transpose_a, transpose_b, *steps, *leading)
    if 1 in (m, n) and batch * repeats >= _MIN_SMALL_RUNS:
        if _has_contiguous_rows(gemm):
            return _row_gemv_step(gemm)
        if _has_contiguous_columns(gemm):
            return _column_gemv_step(gemm)
    small_gemm = _as_batched_small(gemm)
    if small_gemm is not None and small_gemm.batch * repeats >= _MIN_SMALL_RUNS:
        return _small_gemm_step(small_gemm)
    if batch == 1:
        gemm = _as_gemv_batch(gemm)
    return _gemv_step(gemm) if gemm.m == 1 or gemm.n == 1 else _gemm_step(gemm)


def _as_batched_small(gemm: _Gemm) -> _Gemm | None:
    """The GEMM as a batch of small ones: itself, or a tall A by some rows at a time; None if it is too large."""
    if gemm.type not in ("f32", "f64") or max(gemm.n, gemm.k) > MAX_SMALL_SIZE:
        return None
    if gemm.m <= MAX_SMALL_SIZE:
        return gemm
    height = math.gcd(gemm.m, 8)
    if gemm.batch > 1 or gemm.transpose_a or height == 1:
        return None
    step_a, step_c = height * gemm.lda, height * gemm.ldc
    return replace(gemm, m=height, batch=gemm.m // height, step_a=step_a, step_b=0, step_c=step_c)


def _as_gemv_batch(gemm: _Gemm) -> _Gemm:
    """A GEMM with few columns of B or rows of A as a batch of GEMVs, which read the large matrix at the speed of
    memory, while GEMM packs it first."""
    if gemm.n <= gemm.m and gemm.n <= _MAX_GEMV_COLUMNS:
        stride = gemm.ldb if gemm.transpose_b else 1
        return replace(gemm, n=1, batch=gemm.n, step_a=0, step_b=stride, step_c=1)
    if gemm.m <= _MAX_GEMV_COLUMNS:
        stride = 1 if gemm.transpose_a else gemm.lda
        return replace(gemm, m=1, batch=gemm.m, step_a=stride, step_b=0, step_c=gemm.ldc)
    return gemm


def _tile_shape(gemm: _Gemm) -> tuple[int, int]:
    """Rows and columns of a tile of C: a function of the problem and the processor, not of the number of threads in
    use, so that results do not depend on that.

    Measured with OpenBLAS on squares of 256 to 2048, tiles of r rows and c columns cost about 20 / r + 8 / c more than
    one call. About cbrt(m n k) / 128 tiles keep that near 4 %; two for each processor keep all of them busy.
    """
    m, n = gemm.m, gemm.n
    tiles = round(gemm.multiplies ** (1 / 3) / 128 / min(gemm.batch, 8))
    tiles = min(tiles, 2 * max(os.cpu_count() or 1, current_target().processors))
    if tiles <= 1 or guard() is None:
        return m, n
    row_tiles = min(range(1, tiles + 1), key=lambda r: 20 * r / m + 8 * -(-tiles // r) / n)
    return min(m, _round_up(m / row_tiles, 16)), min(n, _round_up(n / -(-tiles // row_tiles), 32))


def _round_up(size: float, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def _parallel_grain(gemm: _Gemm, tiles: int = 1) -> int:
    """Tiles that a thread takes at a time; an element that is read or written counts as four multiplications."""
    m, n, k = gemm.m, gemm.n, gemm.k
    work = (gemm.multiplies + 4 * (m * n + m * k + k * n)) // tiles
    return max(1, _CHUNK_MULTIPLIES // work)


def _gemm_step(gemm: _Gemm) -> MatmulStep:
    """The step of a BLAS GEMM, in tiles of C."""
    rows, columns = _tile_shape(gemm)
    column_tiles = -(-gemm.n // columns)
    tiles = -(-gemm.m // rows) * column_tiles
    constants = (
        *(gemm.m, gemm.n, gemm.k, gemm.transpose_a, gemm.transpose_b),
        *(gemm.step_a, gemm.step_b, gemm.step_c, gemm.lda, gemm.ldb, gemm.ldc),
        *(rows, columns, column_tiles, tiles, _blas_address(gemm.type, "gemm"), _guard_for(gemm)),
    )
    return MatmulStep(
        "gemm", _gemm_kernel(gemm.type), (0, 1, 2), constants, gemm.batch * tiles, _parallel_grain(gemm, tiles)
    )


class _Gemv(NamedTuple):
    """y = op(M) x: the length of y, the positions of (M, x, y) among (A, B, C), and strides in elements."""

    length: int
    order: tuple[int, int, int]
    transposed: bool
    batch_strides: tuple[int, int]
    leading_dimension: int
    stride_x: int
    stride_y: int


def _as_gemv(gemm: _Gemm) -> _Gemv:
    """M = A and x = B if B is a column, or M = B' and x = A' if A is a row. `transposed` says that the rows of M' are
    contiguous in memory."""
    p = gemm
    if p.n == 1:
        stride_x = 1 if p.transpose_b else p.ldb
        return _Gemv(p.m, (0, 1, 2), p.transpose_a, (p.step_a, p.step_b), p.lda, stride_x, p.ldc)
    stride_x = p.lda if p.transpose_a else 1
    return _Gemv(p.n, (1, 0, 2), not p.transpose_b, (p.step_b, p.step_a), p.ldb, stride_x, 1)


def _has_contiguous_rows(gemm: _Gemm) -> bool:
    """Whether rows of M are contiguous and M is small, so that a small kernel loads its rows as vectors."""
    x = _as_gemv(gemm)
    is_dense = not x.transposed and x.stride_x == x.stride_y == 1
    if gemm.type not in ("f32", "f64") or not is_dense or gemm.k < _MIN_ROW_ELEMENTS:
        return False
    return vectors_in_matrix(gemm.type, x.length, gemm.k) <= _MAX_MATRIX_VECTORS


def _row_gemv_step(gemm: _Gemm) -> MatmulStep:
    """The step of a batch of small matrix-vector products with contiguous rows."""
    x = _as_gemv(gemm)
    constants = (*x.batch_strides, gemm.step_c, x.leading_dimension, 1, 1)
    return MatmulStep(
        "row_gemv", _compiled_row(gemm.type, x.length, gemm.k), x.order, constants, gemm.batch, _parallel_grain(gemm)
    )


def _has_contiguous_columns(gemm: _Gemm) -> bool:
    """Whether rows of M' are contiguous and M is small, so that a small kernel adds multiples of them."""
    x = _as_gemv(gemm)
    if gemm.type not in ("f32", "f64") or not x.transposed or x.stride_y != 1 or x.length < _MIN_ROW_ELEMENTS:
        return False
    return vectors_in_matrix(gemm.type, gemm.k, x.length) <= _MAX_MATRIX_VECTORS


def _column_gemv_step(gemm: _Gemm) -> MatmulStep:
    """The step of y' = x' M' as a GEMM of one row."""
    x = _as_gemv(gemm)
    matrix, vector, result = x.order
    constants = (x.batch_strides[1], x.batch_strides[0], gemm.step_c, x.stride_x, x.leading_dimension, 1)
    kernel = compiled_small(gemm.type, 1, x.length, gemm.k, True, False)
    return MatmulStep("column_gemv", kernel, (vector, matrix, result), constants, gemm.batch, _parallel_grain(gemm))


def _gemv_step(gemm: _Gemm) -> MatmulStep:
    """The step of a BLAS GEMV, in tiles of y."""
    length, order, transposed, steps, leading_dimension, stride_x, stride_y = _as_gemv(gemm)
    min_rows = 16
    if transposed:  # a tile reads a part of each stored row, and long parts are faster
        min_part, max_part = _STRIDED_GEMV_TILE
        min_rows = max(min(min_part, _round_up(length / 2, 16)), min(max_part, _round_up(length / 8, 16)))
        min_rows = _BATCHED_GEMV_TILE if gemm.batch > 1 else min_rows
    rows = min(length, max(min_rows, _round_up(_GEMV_TILE_ELEMENTS / gemm.k, 16))) if guard() else length
    tiles = -(-length // rows)
    constants = (
        *(length, gemm.k, not transposed, *steps, gemm.step_c, leading_dimension, stride_x, stride_y),
        *(rows, tiles, _blas_address(gemm.type, "gemv"), _guard_for(gemm)),
    )
    grain = max(1, _GEMV_TILE_ELEMENTS // (rows * gemm.k))
    return MatmulStep("gemv", _gemv_kernel(gemm.type), order, constants, gemm.batch * tiles, grain)


def _small_gemm_step(gemm: _Gemm) -> MatmulStep:
    """The step of a batch of small GEMMs."""
    shape = (gemm.type, gemm.m, gemm.n, gemm.k, gemm.transpose_a, gemm.transpose_b)
    constants = (gemm.step_a, gemm.step_b, gemm.step_c, gemm.lda, gemm.ldb, gemm.ldc)
    return MatmulStep("small_gemm", compiled_small(*shape), (0, 1, 2), constants, gemm.batch, _parallel_grain(gemm))


@functools.cache
def compiled_small(type: str, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> int:
    """The address of a batched small GEMM (`small_kernel`)."""
    return compile_kernel(small_kernel(type, m, n, k, transpose_a, transpose_b), is_builtin=True)


@functools.cache
def _compiled_row(type: str, m: int, k: int) -> int:
    """The address of a batch of small matrix-vector products (`row_kernel`)."""
    return compile_kernel(row_kernel(type, m, k), is_builtin=True)


def _blas_address(type: ElementType, name: str) -> int:
    """The address of the BLAS's `gemm` or `gemv` for an element type."""
    return routine(_PREFIXES[type] + name)


def _guard_for(gemm: _Gemm) -> int:
    """The address of the guard that keeps the BLAS on one thread; 0 if it uses one anyway."""
    return guard_address() if gemm.multiplies > _MAX_UNGUARDED_MULTIPLIES else 0


# Kernels. Their tables hold pointers, then integers; Fortran routines take all arguments by reference.


def _by_reference(names: str) -> str:
    """LLVM text that stores 32-bit integers in memory for Fortran: `%k` at `%k_in`."""
    return "\n".join(
        f"  %{x}_in = alloca i32\n  %{x}_short = trunc i64 %{x} to i32\n  store i32 %{x}_short, ptr %{x}_in"
        for x in names.split()
    )


def _transpose_flags(names: str) -> str:
    """LLVM text that stores the BLAS's flags TRANSA and TRANSB."""
    return "\n".join(
        f"  %trans_{x} = alloca i8\n  %is_transposed_{x} = icmp ne i64 %transpose_{x}, 0\n"
        f"  %letter_{x} = select i1 %is_transposed_{x}, i8 {ord('T')}, i8 {ord('N')}\n"
        f"  store i8 %letter_{x}, ptr %trans_{x}"
        for x in names.split()
    )


_GEMM = Template("""
define void @product(ptr %table, i64 %first, i64 %last) {  ; the range counts tiles of C, row by row
$prologue
  %height_in = alloca i32
  %width_in = alloca i32
  %row_step_a = select i1 %is_transposed_a, i64 1, i64 %lda
  %column_step_b = select i1 %is_transposed_b, i64 %ldb, i64 1
  call void @enter(ptr %guard)
  for %i from %first below %last by 1
    %matrix_index = udiv i64 %i, %tiles
    %tile = urem i64 %i, %tiles
    %row = mul i64 (udiv i64 %tile, %column_tiles), %rows
    %column = mul i64 (urem i64 %tile, %column_tiles), %columns
    %height = call i64 @llvm.smin.i64(i64 %rows, i64 (sub i64 %m, %row))
    %width = call i64 @llvm.smin.i64(i64 %columns, i64 (sub i64 %n, %column))
    store i32 (trunc i64 %height to i32), ptr %height_in
    store i32 (trunc i64 %width to i32), ptr %width_in
    %offset_a = add i64 (mul i64 %matrix_index, %step_a), (mul i64 %row, %row_step_a)
    %offset_b = add i64 (mul i64 %matrix_index, %step_b), (mul i64 %column, %column_step_b)
    %offset_c = add i64 (mul i64 %matrix_index, %step_c), (add i64 (mul i64 %row, %ldc), %column)
    %tile_a = getelementptr $element, ptr %a, i64 %offset_a
    %tile_b = getelementptr $element, ptr %b, i64 %offset_b
    %tile_c = getelementptr $element, ptr %c, i64 %offset_c
    call void %gemm(ptr %trans_b, ptr %trans_a, ptr %width_in, ptr %height_in, ptr %k_in, ptr %alpha,
      ptr %tile_b, ptr %ldb_in, ptr %tile_a, ptr %lda_in, ptr %beta, ptr %tile_c, ptr %ldc_in)
  end %i
  call void @leave(ptr %guard)
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_GEMV = Template("""
define void @product(ptr %table, i64 %first, i64 %last) {  ; the range counts tiles of y
$prologue
  %height_in = alloca i32
  %row_step = select i1 %is_transposed_a, i64 %lda, i64 1  ; Fortran sees the transpose of the matrix
  call void @enter(ptr %guard)
  for %i from %first below %last by 1
    %matrix_index = udiv i64 %i, %tiles
    %row = mul i64 (urem i64 %i, %tiles), %rows
    %height = call i64 @llvm.smin.i64(i64 %rows, i64 (sub i64 %length, %row))
    store i32 (trunc i64 %height to i32), ptr %height_in
    %offset_matrix = add i64 (mul i64 %matrix_index, %batch_stride_matrix), (mul i64 %row, %row_step)
    %offset_y = add i64 (mul i64 %matrix_index, %batch_stride_y), (mul i64 %row, %stride_y)
    %tile_matrix = getelementptr $element, ptr %matrix, i64 %offset_matrix
    %tile_x = getelementptr $element, ptr %x, i64 (mul i64 %matrix_index, %batch_stride_x)
    %tile_y = getelementptr $element, ptr %y, i64 %offset_y
    %columns_first = select i1 %is_transposed_a, ptr %k_in, ptr %height_in
    %columns_second = select i1 %is_transposed_a, ptr %height_in, ptr %k_in
    for %j from 0 below %height by 1  ; some BLAS versions compute 0 * y, which is NaN if y holds NaN
      store $element zeroinitializer, ptr %tile_y[$element (mul i64 %j, %stride_y)]
    end %j
    call void %gemv(ptr %trans_a, ptr %columns_first, ptr %columns_second, ptr %alpha, ptr %tile_matrix, ptr %lda_in,
      ptr %tile_x, ptr %stride_x_in, ptr %beta, ptr %tile_y, ptr %stride_y_in)
  end %i
  call void @leave(ptr %guard)
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")


def _element(type: ElementType) -> str:
    """The LLVM type of an element."""
    scalar = _SCALARS[type]
    return f"{{ {scalar}, {scalar} }}" if type.startswith("c") else scalar


def _alpha_beta(type: ElementType) -> str:
    """LLVM text that stores alpha = 1 at `%alpha` and beta = 0 at `%beta`."""
    scalar, element = _SCALARS[type], _element(type)
    alpha = f"{{ {scalar} 1.0, {scalar} 0.0 }}" if type.startswith("c") else "1.0"
    return (
        f"  %alpha = alloca {element}\n  %beta = alloca {element}\n"
        f"  store {element} {alpha}, ptr %alpha\n  store {element} zeroinitializer, ptr %beta"
    )


def gemm_step_of(x: Instruction, repeats: int) -> MatmulStep:
    """The step for a dot whose operands are batches of matrices without a copy; `repeats` is the expected number of
    runs."""
    p = gemm_problem(x)
    if p is None:
        raise AssertionError("operands that are no matrices are transposed before")
    return gemm_step(
        x.array_shape.element_type.name,  # pyright: ignore[reportArgumentType]
        p.m,
        p.n,
        p.k,
        batch=p.batch,
        transpose_a=not p.left.row_major,
        transpose_b=not p.right.row_major,
        steps=(p.left.batch, p.right.batch, p.m * p.n),
        leading=(
            p.left.row if p.left.row_major else p.left.column,
            p.right.row if p.right.row_major else p.right.column,
            p.n,
        ),
        repeats=repeats,
    )


def _compile(
    text: Template, type: ElementType, routine: str, pointers: str, integers: str, flags: str, by_reference: str
) -> int:
    """The kernel whose table has pointers, integers, the routine's address and the guard's. GEMM takes long beside the
    instructions around it, which need little optimization."""
    words = [*pointers.split(), *integers.split(), routine, "guard"]
    loads = load_words("table", words, f"{pointers} {routine} guard")
    prologue = "\n".join([loads, _by_reference(by_reference), _alpha_beta(type), _transpose_flags(flags)])
    module = GUARD + text.substitute(element=_element(type), prologue=prologue)
    return compile_llvm(module, ("product",), is_cold=text is _GEMM)["product"]


@functools.cache
def _gemm_kernel(type: ElementType) -> int:
    """The kernel of BLAS GEMMs of a type."""
    integers = "m n k transpose_a transpose_b step_a step_b step_c lda ldb ldc rows columns column_tiles tiles"
    return _compile(_GEMM, type, "gemm", "a b c", integers, "a b", "k lda ldb ldc")


@functools.cache
def _gemv_kernel(type: ElementType) -> int:
    """The kernel of BLAS GEMVs of a type."""
    integers = "length k transpose_a batch_stride_matrix batch_stride_x batch_stride_y lda stride_x stride_y rows tiles"
    return _compile(_GEMV, type, "gemv", "matrix x y", integers, "a", "k lda stride_x stride_y")


# GEMM inside kernels of the loop IR: a function that they call by name.

_IN_KERNEL_GEMM = Template("""
@gemm_word = internal global ptr null
@guard_word = internal global ptr null

define void @connect(ptr %gemm, ptr %guard) {
  store ptr %gemm, ptr @gemm_word
  store ptr %guard, ptr @guard_word
  ret void
}

define void @multiply(ptr %c, ptr %a, ptr %b, i64 %m, i64 %n, i64 %k, i64 %ldc, i64 %lda, i64 %ldb,
    i64 %transpose_a, i64 %transpose_b, i64 %accumulate) {
$prologue
  %beta_in = select i1 (icmp ne i64 %accumulate, 0), ptr %alpha, ptr %beta
  %gemm = load ptr, ptr @gemm_word
  %guard = load ptr, ptr @guard_word
  call void @enter(ptr %guard)
  call void %gemm(ptr %trans_b, ptr %trans_a, ptr %n_in, ptr %m_in, ptr %k_in, ptr %alpha,
    ptr %b, ptr %ldb_in, ptr %a, ptr %lda_in, ptr %beta_in, ptr %c, ptr %ldc_in)
  call void @leave(ptr %guard)
  ret void
}
""")


@functools.cache
def declare_gemm(type: ElementType) -> None:
    """Let kernels of the loop IR call GEMM on matrices of this type."""
    prologue = "\n".join([_by_reference("m n k ldc lda ldb"), _alpha_beta(type), _transpose_flags("a b")])
    functions = compile_llvm(
        GUARD + _IN_KERNEL_GEMM.substitute(prologue=prologue), ("connect", "multiply"), is_cold=True
    )
    connect = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(functions["connect"])
    connect(_blas_address(type, "gemm"), guard_address())
    define_symbol(multiply_symbol(type), functions["multiply"])
