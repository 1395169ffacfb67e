"""Matrix products as kernels of the native run-time: row-major C = op(A) @ op(B) over a batch, through SciPy's BLAS.

A kernel is told the address of the Fortran routine in its table, so its object code holds nothing of this process and
can be kept on disk. A row-major matrix is the transpose of the column-major matrix in the same memory, and
C' = op(B)' op(A)', so the operands swap places and no data moves.

Threads: a product is cut into tiles of the output at fixed places, and this library's threads take tiles. The BLAS
itself runs each on one thread: OpenBLAS gives different bits for different numbers of threads, and its idle threads
would compete with ours. Tiles cost a few per cent, because each packs its own copy of its operands; see `_tile`.

A BLAS spends more on setting up a tiny product than on its arithmetic, so where there are many of one shape they run
through a kernel of vector instructions made for that shape.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import Template
from typing import TYPE_CHECKING, Literal

from tinyxla.backends.numba.blas_library import GUARD, guard, guard_address, routine
from tinyxla.backends.numba.llvm_printer import multiplier_name
from tinyxla.backends.numba.native import compile_llvm, loaded_words, provide_function
from tinyxla.backends.numba.small_products import small_kernel

if TYPE_CHECKING:
    from tinyxla.backends.numba.runtime import Schedule

ElementType = Literal["f32", "f64", "c64", "c128"]

_PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_SCALARS = {"f32": "float", "f64": "double", "c64": "float", "c128": "double"}
_BYTES = {"f32": 4, "f64": 8, "c64": 8, "c128": 16}
_LARGEST_INTEGER = 2**31 - 1  # the Fortran routines count with 32 bits

_CHUNK_MULTIPLIES = 1 << 19  # some ten microseconds of a core's time: what is worth handing to another thread
_UNGUARDED_MULTIPLIES = 1 << 13  # OpenBLAS uses one thread for so little anyway
_VECTOR_TILE = 1 << 17  # matrix elements that one tile of a matrix-vector product reads
_SMALL = 16  # largest dimension of a product that gets a kernel of its own
_MANY = 64  # how often such a kernel must run to be worth compiling
_FEW = 4  # up to so many columns (or rows) are products with vectors rather than a product with a thin matrix
_STRIDED_VECTOR_TILE = 512  # least width of a tile of rows that are read in pieces
_LONG_VECTOR_TILE = 1 << 13  # and where there are several matrices to share


@dataclass(frozen=True, slots=True)
class MatmulStep:
    """A kernel and what it needs besides the three addresses: `append` makes it a step of a schedule."""

    kernel: int
    order: tuple[int, int, int]  # where the kernel's operands are found in (a, b, c)
    constants: tuple[int, ...]
    extent: int
    grain: int

    def append(self, schedule: Schedule, a: int, b: int, c: int) -> None:
        """Add the step that reads the matrices at the addresses in slots `a` and `b`, and writes that in slot `c`."""
        slots = (a, b, c)
        schedule.kernel(self.kernel, [slots[i] for i in self.order], self.extent, self.grain, self.constants)


@dataclass(frozen=True, slots=True)
class _Product:
    """C[m, n] = op(A)[m, k] @ op(B)[k, n], `batch` times; steps and leading dimensions count elements."""

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
        return self.m * self.n * self.k * (4 if self.type.startswith("c") else 1)


def matmul_step(
    type: ElementType,
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    steps: Sequence[int] | None = None,
    leading: Sequence[int] | None = None,
    repeats: int = 1,
) -> MatmulStep:
    """The step for C[i] = op(A[i]) @ op(B[i]), i < batch, on row-major matrices.

    A is stored [m, k], or [k, m] if `transpose_a`; B is stored [k, n], or [n, k] if `transpose_b`; C is [m, n].
    `leading` holds the distances between rows of A, B and C and `steps` those between matrices of a batch, in elements;
    without them, matrices are dense. A step of 0 uses one A or B throughout. `repeats` says how often the step runs in
    one call of the program, as far as is known.
    """
    stored_a, stored_b = (k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n)
    stored = (stored_a, stored_b, (m, n))
    lda, ldb, ldc = leading or (columns for _, columns in stored)
    rows = [count for count, _ in stored]
    step_a, step_b, step_c = steps or (rows[0] * lda, rows[1] * ldb, rows[2] * ldc)
    product = _Product(type, m, n, k, batch, transpose_a, transpose_b, step_a, step_b, step_c, lda, ldb, ldc)
    _check(product, stored)
    if batch == 0 or m == 0 or n == 0:
        return MatmulStep(_zero_kernel(), (0, 1, 2), (0, 0, 0, 0, 0), 0, 0)
    if k == 0:
        size = _BYTES[type]
        return MatmulStep(_zero_kernel(), (0, 1, 2), (m, n * size, product.step_c * size, ldc * size), batch, 0)
    small = _in_small_blocks(product)
    if small is not None and small.batch * repeats >= _MANY:
        return _small_step(small)
    if batch == 1:
        product = _by_vectors(product)
    return _vector_step(product) if product.m == 1 or product.n == 1 else _matrix_step(product)


def _check(product: _Product, stored: Sequence[tuple[int, int]]) -> None:
    if product.type not in _PREFIXES:
        raise ValueError(f"BLAS has no {product.type} products; it has {', '.join(_PREFIXES)}")
    sizes = (product.m, product.n, product.k, product.batch)
    if min(sizes) < 0:
        raise ValueError(f"a product has sizes m, n, k, batch = {sizes}; none may be negative")
    leading = (product.lda, product.ldb, product.ldc)
    for name, (rows, columns), distance in zip("ABC", stored, leading, strict=True):
        if distance < columns and rows > 1:
            raise ValueError(
                f"rows of {name} stand {distance} apart but have {columns} elements; copy it to a dense buffer"
            )
    if max(product.k, *leading) > _LARGEST_INTEGER:
        raise ValueError(
            f"a product has k = {product.k} and row distances {leading}; BLAS counts to {_LARGEST_INTEGER}: split it"
        )


def _in_small_blocks(product: _Product) -> _Product | None:
    """The product as a batch of ones that a small kernel can do: itself, or a tall A by some rows at a time."""
    if product.type not in ("f32", "f64") or max(product.n, product.k) > _SMALL:
        return None
    if product.m <= _SMALL:
        return product
    height = math.gcd(product.m, 8)
    if product.batch > 1 or product.transpose_a or height == 1:
        return None
    step_a, step_c = height * product.lda, height * product.ldc
    return replace(product, m=height, batch=product.m // height, step_a=step_a, step_b=0, step_c=step_c)


def _by_vectors(product: _Product) -> _Product:
    """A product with a matrix of few columns or rows as a batch of products with vectors.

    Each reads the large matrix, but at the speed of memory, while `gemm` rearranges it first.
    """
    if product.n <= product.m and product.n <= _FEW:
        step = product.ldb if product.transpose_b else 1
        return replace(product, n=1, batch=product.n, step_a=0, step_b=step, step_c=1)
    if product.m <= _FEW:
        step = 1 if product.transpose_a else product.lda
        return replace(product, m=1, batch=product.m, step_a=step, step_b=0, step_c=product.ldc)
    return product


def _tile(product: _Product) -> tuple[int, int]:
    """The rows and columns of the tiles of C: depends on the product and the machine, not on the number of threads in
    use, so that neither do results.

    Measured with OpenBLAS on squares of 256 to 2048, tiles of r rows and c columns cost about 20 / r + 8 / c more than
    one call. About cbrt(m n k) / 128 tiles keep that near 4 %; two for each processor keep all of them busy.
    """
    m, n = product.m, product.n
    wanted = round(product.multiplies ** (1 / 3) / 128 / min(product.batch, 8))
    wanted = min(wanted, 2 * (os.cpu_count() or 1))
    if wanted <= 1 or guard() is None:
        return m, n
    down = min(range(1, wanted + 1), key=lambda parts: 20 * parts / m + 8 * -(-wanted // parts) / n)
    return min(m, _up(m / down, 16)), min(n, _up(n / -(-wanted // down), 32))


def _up(size: float, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def _grain(product: _Product, tiles: int = 1) -> int:
    """How many tiles are worth handing to a thread; to read or write an element is counted as four multiplies."""
    m, n, k = product.m, product.n, product.k
    work = (product.multiplies + 4 * (m * n + m * k + k * n)) // tiles
    return max(1, _CHUNK_MULTIPLIES // work)


def _matrix_step(product: _Product) -> MatmulStep:
    rows, columns = _tile(product)
    tiles = -(-product.m // rows) * -(-product.n // columns)
    constants = (
        *(product.m, product.n, product.k, product.transpose_a, product.transpose_b),
        *(product.step_a, product.step_b, product.step_c),
        *(max(1, product.lda), max(1, product.ldb), max(1, product.ldc)),
        *(rows, columns, _routine(product.type, "gemm"), _guard_for(product)),
    )
    extent = product.batch * tiles
    return MatmulStep(_matrix_kernel(product.type), (0, 1, 2), constants, extent, _grain(product, tiles))


def _vector_step(product: _Product) -> MatmulStep:
    """y = op(M) x with M = A and x = B if B is a column, or with M = B' and x = A' if A is a row."""
    if product.n == 1:
        length, order, transposed = product.m, (0, 1, 2), product.transpose_a
        steps, distance = (product.step_a, product.step_b), product.lda
        step_x, step_y = 1 if product.transpose_b else product.ldb, product.ldc
    else:
        length, order, transposed = product.n, (1, 0, 2), not product.transpose_b
        steps, distance = (product.step_b, product.step_a), product.ldb
        step_x, step_y = product.lda if product.transpose_a else 1, 1
    least = (_LONG_VECTOR_TILE if product.batch > 1 else _STRIDED_VECTOR_TILE) if transposed else 16
    rows = min(length, max(least, _up(_VECTOR_TILE / product.k, 16))) if guard() else length
    tiles = -(-length // rows)
    constants = (
        *(length, product.k, transposed, *steps, product.step_c),
        *(max(1, distance), max(1, step_x), max(1, step_y)),
        *(rows, _routine(product.type, "gemv"), _guard_for(product)),
    )
    grain = max(1, _VECTOR_TILE // (rows * product.k))
    return MatmulStep(_vector_kernel(product.type), order, constants, product.batch * tiles, grain)


def _small_step(product: _Product) -> MatmulStep:
    shape = (product.type, product.m, product.n, product.k, product.transpose_a, product.transpose_b)
    constants = (product.step_a, product.step_b, product.step_c, product.lda, product.ldb, product.ldc)
    return MatmulStep(small_kernel(*shape), (0, 1, 2), constants, product.batch, _grain(product))


def _routine(type: ElementType, name: str) -> int:
    """The address of `gemm` or `gemv` for an element type."""
    return routine(_PREFIXES[type] + name)


def _guard_for(product: _Product) -> int:
    return guard_address() if product.multiplies > _UNGUARDED_MULTIPLIES else 0


# Kernels. Their tables hold pointers, then integers; the Fortran routines take the address of everything.


def _by_address(names: str) -> str:
    """Instructions that put integers into memory as Fortran's: `%k` at `%k_in`."""
    lines: list[str] = []
    for name in names.split():
        lines.append(f"  %{name}_in = alloca i32")
        lines.append(f"  %{name}_short = trunc i64 %{name} to i32")
        lines.append(f"  store i32 %{name}_short, ptr %{name}_in")
    return "\n".join(lines)


def _forms() -> str:
    """Instructions that put letters into memory which say whether the BLAS shall transpose its operands."""
    allocated = [f"  %form_{x} = alloca i8" for x in "ab"]
    asked = [f"  %is_transposed_{x} = icmp ne i64 %transpose_{x}, 0" for x in "ab"]
    letters = [f"  %letter_{x} = select i1 %is_transposed_{x}, i8 {ord('T')}, i8 {ord('N')}" for x in "ab"]
    stored = [f"  store i8 %letter_{x}, ptr %form_{x}" for x in "ab"]
    return "\n".join([*allocated, *asked, *letters, *stored])


_ZERO = Template("""
define void @zero(ptr %table, i64 %first, i64 %last) {
entry:
$loads
  br label %product
product:
  %i = phi i64 [ %first, %entry ], [ %next, %product_done ]
  %offset = mul i64 %i, %step
  %matrix = getelementptr i8, ptr %c, i64 %offset
  br label %row
row:
  %r = phi i64 [ 0, %product ], [ %next_row, %row ]
  %row_offset = mul i64 %r, %distance
  %row_at = getelementptr i8, ptr %matrix, i64 %row_offset
  call void @llvm.memset.p0.i64(ptr %row_at, i8 0, i64 %row_bytes, i1 false)
  %next_row = add i64 %r, 1
  %more_rows = icmp slt i64 %next_row, %rows
  br i1 %more_rows, label %row, label %product_done
product_done:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %product, label %done
done:
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
""")

_MATRIX = Template("""
define void @matrix_matrix(ptr %table, i64 %first, i64 %last) {  ; the range counts tiles of C, row by row
entry:
$loads
$integers
$scalars
  %height_in = alloca i32
  %width_in = alloca i32
$forms
  %row_step_a = select i1 %is_transposed_a, i64 1, i64 %lda
  %column_step_b = select i1 %is_transposed_b, i64 %ldb, i64 1
  %m_less = sub i64 %m, 1
  %n_less = sub i64 %n, 1
  %full_down = udiv i64 %m_less, %rows
  %full_across = udiv i64 %n_less, %columns
  %tiles_down = add i64 %full_down, 1
  %tiles_across = add i64 %full_across, 1
  %tiles = mul i64 %tiles_down, %tiles_across
  call void @enter(ptr %guard)
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %loop ]
  %product = udiv i64 %i, %tiles
  %tile = urem i64 %i, %tiles
  %tile_row = udiv i64 %tile, %tiles_across
  %tile_column = urem i64 %tile, %tiles_across
  %row = mul i64 %tile_row, %rows
  %column = mul i64 %tile_column, %columns
  %rows_left = sub i64 %m, %row
  %columns_left = sub i64 %n, %column
  %height = call i64 @llvm.smin.i64(i64 %rows, i64 %rows_left)
  %width = call i64 @llvm.smin.i64(i64 %columns, i64 %columns_left)
  %height_short = trunc i64 %height to i32
  %width_short = trunc i64 %width to i32
  store i32 %height_short, ptr %height_in
  store i32 %width_short, ptr %width_in
  %product_a = mul i64 %product, %step_a
  %product_b = mul i64 %product, %step_b
  %product_c = mul i64 %product, %step_c
  %tile_in_a = mul i64 %row, %row_step_a
  %tile_in_b = mul i64 %column, %column_step_b
  %row_in_c = mul i64 %row, %ldc
  %tile_in_c = add i64 %row_in_c, %column
  %offset_a = add i64 %product_a, %tile_in_a
  %offset_b = add i64 %product_b, %tile_in_b
  %offset_c = add i64 %product_c, %tile_in_c
  %tile_a = getelementptr $ELEMENT, ptr %a, i64 %offset_a
  %tile_b = getelementptr $ELEMENT, ptr %b, i64 %offset_b
  %tile_c = getelementptr $ELEMENT, ptr %c, i64 %offset_c
  call void %gemm(ptr %form_b, ptr %form_a, ptr %width_in, ptr %height_in, ptr %k_in, ptr %one,
    ptr %tile_b, ptr %ldb_in, ptr %tile_a, ptr %lda_in, ptr %nothing, ptr %tile_c, ptr %ldc_in)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  call void @leave(ptr %guard)
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_VECTOR = Template("""
define void @matrix_vector(ptr %table, i64 %first, i64 %last) {  ; the range counts tiles of y
entry:
$loads
$integers
$scalars
  %height_in = alloca i32
  %form = alloca i8
  %is_transposed = icmp ne i64 %transpose, 0
  %letter = select i1 %is_transposed, i8 $N, i8 $T  ; Fortran sees the transpose of the matrix
  store i8 %letter, ptr %form
  %row_step = select i1 %is_transposed, i64 1, i64 %distance
  %length_less = sub i64 %length, 1
  %full = udiv i64 %length_less, %rows
  %tiles = add i64 %full, 1
  call void @enter(ptr %guard)
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %next, %call ]
  %product = udiv i64 %i, %tiles
  %tile = urem i64 %i, %tiles
  %row = mul i64 %tile, %rows
  %rows_left = sub i64 %length, %row
  %height = call i64 @llvm.smin.i64(i64 %rows, i64 %rows_left)
  %height_short = trunc i64 %height to i32
  store i32 %height_short, ptr %height_in
  %product_matrix = mul i64 %product, %step_matrix
  %product_x = mul i64 %product, %step_x
  %product_y = mul i64 %product, %step_y
  %tile_in_matrix = mul i64 %row, %row_step
  %tile_in_y = mul i64 %row, %apart_y
  %offset_matrix = add i64 %product_matrix, %tile_in_matrix
  %offset_y = add i64 %product_y, %tile_in_y
  %tile_matrix = getelementptr $ELEMENT, ptr %matrix, i64 %offset_matrix
  %tile_x = getelementptr $ELEMENT, ptr %x, i64 %product_x
  %tile_y = getelementptr $ELEMENT, ptr %y, i64 %offset_y
  %columns_first = select i1 %is_transposed, ptr %height_in, ptr %k_in
  %columns_second = select i1 %is_transposed, ptr %k_in, ptr %height_in
  br label %clear
clear:  ; some versions multiply what y held by zero, and it may hold NaN
  %j = phi i64 [ 0, %loop ], [ %next_j, %clear ]
  %place = mul i64 %j, %apart_y
  %y_at = getelementptr $ELEMENT, ptr %tile_y, i64 %place
  store $ELEMENT zeroinitializer, ptr %y_at
  %next_j = add i64 %j, 1
  %uncleared = icmp slt i64 %next_j, %height
  br i1 %uncleared, label %clear, label %call
call:
  call void %gemv(ptr %form, ptr %columns_first, ptr %columns_second, ptr %one, ptr %tile_matrix, ptr %distance_in,
    ptr %tile_x, ptr %apart_x_in, ptr %nothing, ptr %tile_y, ptr %apart_y_in)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  call void @leave(ptr %guard)
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")


def _scalars(type: ElementType) -> tuple[str, str]:
    """The LLVM type of an element, and instructions that put one and zero into memory at `%one` and `%nothing`."""
    scalar = _SCALARS[type]
    element, one = scalar, "1.0"
    if type.startswith("c"):
        element, one = f"{{ {scalar}, {scalar} }}", f"{{ {scalar} 1.0, {scalar} 0.0 }}"
    lines = (
        f"  %one = alloca {element}",
        f"  %nothing = alloca {element}",
        f"  store {element} {one}, ptr %one",
        f"  store {element} zeroinitializer, ptr %nothing",
    )
    return element, "\n".join(lines)


@functools.cache
def _zero_kernel() -> int:
    text = _ZERO.substitute(loads=loaded_words("table", "a b c rows row_bytes step distance".split(), "a b c"))
    return compile_llvm(text, ("zero",))["zero"]


@functools.cache
def _matrix_kernel(type: ElementType) -> int:
    element, scalars = _scalars(type)
    words = "a b c m n k transpose_a transpose_b step_a step_b step_c lda ldb ldc rows columns gemm guard".split()
    text = GUARD + _MATRIX.substitute(
        ELEMENT=element,
        loads=loaded_words("table", words, "a b c gemm guard"),
        integers=_by_address("k lda ldb ldc"),
        scalars=scalars,
        forms=_forms(),
    )
    return compile_llvm(text, ("matrix_matrix",))["matrix_matrix"]


@functools.cache
def _vector_kernel(type: ElementType) -> int:
    element, scalars = _scalars(type)
    words = "matrix x y length k transpose step_matrix step_x step_y distance apart_x apart_y rows gemv guard".split()
    text = GUARD + _VECTOR.substitute(
        ELEMENT=element,
        T=ord("T"),
        N=ord("N"),
        loads=loaded_words("table", words, "matrix x y gemv guard"),
        integers=_by_address("k distance apart_x apart_y"),
        scalars=scalars,
    )
    return compile_llvm(text, ("matrix_vector",))["matrix_vector"]


# Products inside of kernels of the loop IR: a function that they call by name.

_MULTIPLIER = Template("""
@gemm_word = internal global ptr null
@guard_word = internal global ptr null

define void @connect(ptr %gemm, ptr %guard) {
  store ptr %gemm, ptr @gemm_word
  store ptr %guard, ptr @guard_word
  ret void
}

define void @multiply(ptr %c, ptr %a, ptr %b, i64 %m, i64 %n, i64 %k, i64 %ldc, i64 %lda, i64 %ldb,
    i64 %transpose_a, i64 %transpose_b, i64 %more) {
entry:
$integers
$scalars
$forms
  %is_more = icmp ne i64 %more, 0
  %kept = select i1 %is_more, ptr %one, ptr %nothing
  %gemm = load ptr, ptr @gemm_word
  %guard = load ptr, ptr @guard_word
  call void @enter(ptr %guard)
  call void %gemm(ptr %form_b, ptr %form_a, ptr %n_in, ptr %m_in, ptr %k_in, ptr %one,
    ptr %b, ptr %ldb_in, ptr %a, ptr %lda_in, ptr %kept, ptr %c, ptr %ldc_in)
  call void @leave(ptr %guard)
  ret void
}
""")


@functools.cache
def provide_multiplier(type: ElementType) -> None:
    """Let kernels of the loop IR multiply matrices of this type."""
    _, scalars = _scalars(type)
    integers = _by_address("m n k ldc lda ldb")
    text = GUARD + _MULTIPLIER.substitute(integers=integers, scalars=scalars, forms=_forms())
    found = compile_llvm(text, ("connect", "multiply"))
    connect = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(found["connect"])
    connect(_routine(type, "gemm"), guard_address())
    provide_function(multiplier_name(type), found["multiply"])
