"""BLAS GEMM and GEMV kernels: row-major C = op(A) op(B) over a batch, through the OpenBLAS of SciPy.

A kernel takes the address of the Fortran routine in its table, so its object code holds nothing of this process and can
be cached on disk. A row-major matrix is the transpose of the column-major matrix in the same memory, and C' = op(B)'
op(A)', so the operands are exchanged and no data moves.

Threads: C is cut into tiles at fixed places, which this library's threads share. The BLAS itself runs each tile on one
thread: OpenBLAS gives different bits for different numbers of threads, and its idle threads would compete with ours.
Tiles cost a few per cent, because each packs its own copy of its operands; see `_tile_shape`.

A batch of small products, on which a BLAS spends more for the set-up than for the arithmetic, runs a kernel of the loop
IR that is compiled for its shape (see `small_gemm`). `choose_kernel` chooses among them.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Literal, cast

from tinyxla.backends.numba.emit.llvm_templates import load_words
from tinyxla.backends.numba.jit.engine import compile_llvm, define_symbol, start_function, start_kernel
from tinyxla.backends.numba.runtime.blas_symbols import GUARD, guard, guard_address, routine
from tinyxla.compiler.costs import CHUNK_OPS
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.routines import multiply_symbol
from tinyxla.loopir.kernels.gemm.choose_kernel import GemmKernel, choose_blas_kernel
from tinyxla.loopir.kernels.gemm.problem import GemmProblem, as_gemv, gemm_problem
from tinyxla.loopir.kernels.gemm.small_gemm import row_kernel, small_kernel
from tinyxla.loopir.target import current_target

if TYPE_CHECKING:
    from tinyxla.backends.numba.runtime.bytecode import Schedule

ElementType = Literal["f32", "f64", "c64", "c128"]

_PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_SCALARS = {"f32": "float", "f64": "double", "c64": "float", "c128": "double"}
_MAX_FORTRAN_INTEGER = 2**31 - 1  # the Fortran routines take 32-bit integers

_CHUNK_MULTIPLIES = CHUNK_OPS * 4  # some ten microseconds of a core's time, which pays for waking a thread
_MAX_UNGUARDED_MULTIPLIES = 1 << 13  # up to which OpenBLAS uses one thread anyway
_GEMV_TILE_ELEMENTS = CHUNK_OPS  # matrix elements of a tile of a matrix-vector product
_STRIDED_GEMV_TILE = (512, 4096)  # bounds of a tile's rows if M is column-major, of which it is an eighth or half
_BATCHED_GEMV_TILE = 1 << 13  # the same for a batch, which has enough tiles


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """A GEMM kernel with its constants; `append` makes it a step of a schedule."""

    name: str  # of the method
    kernel: Callable[[], int]  # waits for its address
    order: tuple[int, int, int]  # positions of the kernel's operands in (a, b, c)
    constants: tuple[int, ...]
    extent: int
    grain: int

    def append(self, schedule: Schedule, a: int, b: int, c: int) -> None:
        """Append a step that reads the matrices at the addresses in slots `a` and `b` and writes the matrix in slot
        `c`."""
        slots = (a, b, c)
        schedule.kernel(self.kernel, [slots[i] for i in self.order], self.extent, self.grain, self.constants)


def gemm_step(p: GemmProblem, runs: int) -> MatmulStep:
    """The step that computes a GEMM; `runs` is the expected number of its runs. No size is 0: empty products are
    simplified away.

    Raises:
        ValueError: a size or pitch is larger than the integers of the BLAS.
    """
    leading = (p.left.leading_dimension, p.right.leading_dimension, p.result.leading_dimension)
    if max(p.k, *leading) > _MAX_FORTRAN_INTEGER:
        raise ValueError(
            f"a gemm has k = {p.k} and rows {leading} apart; BLAS counts to {_MAX_FORTRAN_INTEGER}: split it"
        )
    kernel, p = choose_blas_kernel(p, runs)
    return _STEPS[kernel](p)


def _tile_shape(p: GemmProblem) -> tuple[int, int]:
    """Rows and columns of a tile of C: a function of the problem and the processor, not of the number of threads in
    use, so that results do not depend on that.

    Measured with OpenBLAS on squares of 256 to 2048, tiles of r rows and c columns cost about 20 / r + 8 / c more than
    one call. About cbrt(m n k) / 128 tiles keep that near 4 %; two for each processor keep all of them busy.
    """
    m, n = p.m, p.n
    tiles = round(p.multiplies ** (1 / 3) / 128 / min(p.batch, 8))
    tiles = min(tiles, 2 * max(os.cpu_count() or 1, current_target().processors))
    if tiles <= 1 or guard() is None:
        return m, n
    row_tiles = min(range(1, tiles + 1), key=lambda r: 20 * r / m + 8 * -(-tiles // r) / n)
    return min(m, _round_up(m / row_tiles, 16)), min(n, _round_up(n / -(-tiles // row_tiles), 32))


def _round_up(size: float, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def _parallel_grain(p: GemmProblem, tiles: int = 1) -> int:
    """Tiles that a thread takes at a time; an element that is read or written counts as four multiplications."""
    m, n, k = p.m, p.n, p.k
    work = (p.multiplies + 4 * (m * n + m * k + k * n)) // tiles
    return max(1, _CHUNK_MULTIPLIES // work)


def _strides(p: GemmProblem) -> tuple[int, ...]:
    """Strides between the matrices of A, B and C, then their leading dimensions."""
    matrices = (p.left, p.right, p.result)
    return (*(x.batch for x in matrices), *(x.leading_dimension for x in matrices))


def _gemm_step(p: GemmProblem) -> MatmulStep:
    """The step of a BLAS GEMM, in tiles of C."""
    type = _blas_type(p)
    rows, columns = _tile_shape(p)
    column_tiles = -(-p.n // columns)
    tiles = -(-p.m // rows) * column_tiles
    constants = (
        *(p.m, p.n, p.k, not p.left.row_major, not p.right.row_major, *_strides(p)),
        *(rows, columns, column_tiles, tiles, _blas_address(type, "gemm"), _guard_for(p)),
    )
    return MatmulStep("gemm", _gemm_kernel(type), (0, 1, 2), constants, p.batch * tiles, _parallel_grain(p, tiles))


def _row_gemv_step(p: GemmProblem) -> MatmulStep:
    """The step of a batch of small matrix-vector products with contiguous rows."""
    x = as_gemv(p)
    constants = (*x.batch_strides, p.result.batch, x.leading_dimension, 1, 1)
    kernel = _start_row(p.types[2], x.length, p.k)
    return MatmulStep("row_gemv", kernel, x.order, constants, p.batch, _parallel_grain(p))


def _column_gemv_step(p: GemmProblem) -> MatmulStep:
    """The step of y' = x' M' as a GEMM of one row."""
    x = as_gemv(p)
    matrix, vector, result = x.order
    constants = (x.batch_strides[1], x.batch_strides[0], p.result.batch, x.stride_x, x.leading_dimension, 1)
    kernel = start_small(p.types[2], 1, x.length, p.k, True, False)
    return MatmulStep("column_gemv", kernel, (vector, matrix, result), constants, p.batch, _parallel_grain(p))


def _gemv_step(p: GemmProblem) -> MatmulStep:
    """The step of a BLAS GEMV, in tiles of y."""
    x, type, min_rows = as_gemv(p), _blas_type(p), 16
    if not x.row_major:  # a tile reads a part of each stored row, and long parts are faster
        min_part, max_part = _STRIDED_GEMV_TILE
        min_rows = max(min(min_part, _round_up(x.length / 2, 16)), min(max_part, _round_up(x.length / 8, 16)))
        min_rows = _BATCHED_GEMV_TILE if p.batch > 1 else min_rows
    rows = min(x.length, max(min_rows, _round_up(_GEMV_TILE_ELEMENTS / p.k, 16))) if guard() else x.length
    tiles = -(-x.length // rows)
    constants = (
        *(x.length, p.k, x.row_major, *x.batch_strides, p.result.batch, x.leading_dimension, x.stride_x, x.stride_y),
        *(rows, tiles, _blas_address(type, "gemv"), _guard_for(p)),
    )
    grain = max(1, _GEMV_TILE_ELEMENTS // (rows * p.k))
    return MatmulStep("gemv", _gemv_kernel(type), x.order, constants, p.batch * tiles, grain)


def _small_gemm_step(p: GemmProblem) -> MatmulStep:
    """The step of a batch of small GEMMs."""
    kernel = start_small(p.types[2], p.m, p.n, p.k, not p.left.row_major, not p.right.row_major)
    return MatmulStep("small_gemm", kernel, (0, 1, 2), _strides(p), p.batch, _parallel_grain(p))


_STEPS: dict[GemmKernel, Callable[[GemmProblem], MatmulStep]] = {
    GemmKernel.ROW_GEMV: _row_gemv_step,
    GemmKernel.COLUMN_GEMV: _column_gemv_step,
    GemmKernel.SMALL_GEMM: _small_gemm_step,
    GemmKernel.BLAS_GEMV: _gemv_step,
    GemmKernel.BLAS_GEMM: _gemm_step,
}


def _blas_type(p: GemmProblem) -> ElementType:
    """The element type of all three matrices."""
    assert p.types[0] == p.types[1] == p.types[2]
    return cast(ElementType, p.types[2])


@functools.cache
def start_small(type: str, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> Callable[[], int]:
    """Queue a batched small GEMM (`small_kernel`) for compilation; returns a function that waits for its address."""
    return start_kernel(small_kernel(type, m, n, k, transpose_a, transpose_b), is_builtin=True)


@functools.cache
def _start_row(type: str, m: int, k: int) -> Callable[[], int]:
    """The same for a batch of small matrix-vector products (`row_kernel`)."""
    return start_kernel(row_kernel(type, m, k), is_builtin=True)


def _blas_address(type: ElementType, name: str) -> int:
    """The address of the BLAS's `gemm` or `gemv` for an element type."""
    return routine(_PREFIXES[type] + name)


def _guard_for(p: GemmProblem) -> int:
    """The address of the guard that keeps the BLAS on one thread; 0 if it uses one anyway."""
    return guard_address() if p.multiplies > _MAX_UNGUARDED_MULTIPLIES else 0


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


def gemm_step_of(x: Instruction, runs: int) -> MatmulStep:
    """The step for a dot whose operands are batches of matrices without a copy; `runs` is the expected number of its
    runs."""
    p = gemm_problem(x)
    if p is None:
        raise AssertionError("operands that are no matrices are transposed before")
    return gemm_step(p, runs)


def _start(
    text: Template, type: ElementType, routine: str, pointers: str, integers: str, flags: str, by_reference: str
) -> Callable[[], int]:
    """Queue the kernel whose table has pointers, integers, the routine's address and the guard's. GEMM takes long
    beside the instructions around it, which need little optimization."""
    words = [*pointers.split(), *integers.split(), routine, "guard"]
    loads = load_words("table", words, f"{pointers} {routine} guard")
    prologue = "\n".join([loads, _by_reference(by_reference), _alpha_beta(type), _transpose_flags(flags)])
    module = GUARD + text.substitute(element=_element(type), prologue=prologue)
    return start_function(module, "product", is_cold=text is _GEMM)


@functools.cache
def _gemm_kernel(type: ElementType) -> Callable[[], int]:
    """The kernel of BLAS GEMMs of a type."""
    integers = "m n k transpose_a transpose_b step_a step_b step_c lda ldb ldc rows columns column_tiles tiles"
    return _start(_GEMM, type, "gemm", "a b c", integers, "a b", "k lda ldb ldc")


@functools.cache
def _gemv_kernel(type: ElementType) -> Callable[[], int]:
    """The kernel of BLAS GEMVs of a type."""
    integers = "length k transpose_a batch_stride_matrix batch_stride_x batch_stride_y lda stride_x stride_y rows tiles"
    return _start(_GEMV, type, "gemv", "matrix x y", integers, "a", "k lda stride_x stride_y")


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
