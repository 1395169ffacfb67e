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
from dataclasses import dataclass, replace
from string import Template
from typing import TYPE_CHECKING, Literal, NamedTuple

from tinyxla.backends.numba.jit.engine import compile_llvm, provide_function
from tinyxla.backends.numba.program.small_gemm import row_kernel, small_kernel, vectors_of_rows
from tinyxla.backends.numba.runtime.blas_symbols import GUARD, guard, guard_address, routine
from tinyxla.hlo import Instruction
from tinyxla.loopir.ir.llvm_templates import load_words
from tinyxla.loopir.ir.routines import multiply_symbol
from tinyxla.loopir.kernels.gemm.problem import product_of

if TYPE_CHECKING:
    from tinyxla.backends.numba.runtime.bytecode import Schedule

ElementType = Literal["f32", "f64", "c64", "c128"]

_PREFIXES = {"f32": "s", "f64": "d", "c64": "c", "c128": "z"}
_SCALARS = {"f32": "float", "f64": "double", "c64": "float", "c128": "double"}
_LARGEST_INTEGER = 2**31 - 1  # the Fortran routines count with 32 bits

_CHUNK_MULTIPLIES = 1 << 19  # some ten microseconds of a core's time: what is worth handing to another thread
_UNGUARDED_MULTIPLIES = 1 << 13  # OpenBLAS uses one thread for so little anyway
_VECTOR_TILE = 1 << 17  # matrix elements that one tile of a matrix-vector product reads
_SMALL = 16  # largest dimension of a product that gets a kernel of its own
_MANY = 64  # how often such a kernel must run to be worth compiling
_SHORTEST_ROW = 8  # of a matrix that is multiplied with a vector without the BLAS
_MOST_VECTORS = 96  # that such a matrix is
_FEW = 4  # up to so many columns (or rows) are products with vectors rather than a product with a thin matrix
_STRIDED_VECTOR_TILE = (512, 4096)  # least width of a tile of rows read in pieces: an eighth, within these, or half
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
    steps: tuple[int, int, int],
    leading: tuple[int, int, int],
    repeats: int = 1,
) -> MatmulStep:
    """The step for C[i] = op(A[i]) @ op(B[i]), i < batch, on row-major matrices.

    A is stored [m, k], or [k, m] if `transpose_a`; B is stored [k, n], or [n, k] if `transpose_b`; C is [m, n].
    `leading` holds the distances between rows of A, B and C and `steps` those between matrices of a batch, in elements;
    a step of 0 uses one A or B throughout. `repeats` says how often the step runs in one call of the program, as far as
    is known. No size is 0: empty products are simplified away.
    """
    if max(k, *leading) > _LARGEST_INTEGER:
        raise ValueError(f"a product has k = {k} and rows {leading} apart; BLAS counts to {_LARGEST_INTEGER}: split it")
    product = _Product(type, m, n, k, batch, transpose_a, transpose_b, *steps, *leading)
    if 1 in (m, n) and batch * repeats >= _MANY:
        if _by_rows(product):
            return _row_step(product)
        if _by_columns(product):
            return _column_step(product)
    small = _in_small_blocks(product)
    if small is not None and small.batch * repeats >= _MANY:
        return _small_step(small)
    if batch == 1:
        product = _by_vectors(product)
    return _vector_step(product) if product.m == 1 or product.n == 1 else _matrix_step(product)


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
    across = -(-product.n // columns)
    tiles = -(-product.m // rows) * across
    constants = (
        *(product.m, product.n, product.k, product.transpose_a, product.transpose_b),
        *(product.step_a, product.step_b, product.step_c, product.lda, product.ldb, product.ldc),
        *(rows, columns, across, tiles, _routine(product.type, "gemm"), _guard_for(product)),
    )
    return MatmulStep(_matrix_kernel(product.type), (0, 1, 2), constants, product.batch * tiles, _grain(product, tiles))


class _Vectors(NamedTuple):
    """y = op(M) x: the length of y, what of (A, B, C) these are, and how far apart their elements are."""

    length: int
    order: tuple[int, int, int]
    transposed: bool
    steps: tuple[int, int]
    distance: int
    step_x: int
    step_y: int


def _of_vectors(product: _Product) -> _Vectors:
    """With M = A and x = B if B is a column, or with M = B' and x = A' if A is a row; `transposed` says that M' is what
    lies in memory by rows."""
    p = product
    if p.n == 1:
        step_x = 1 if p.transpose_b else p.ldb
        return _Vectors(p.m, (0, 1, 2), p.transpose_a, (p.step_a, p.step_b), p.lda, step_x, p.ldc)
    step_x = p.lda if p.transpose_a else 1
    return _Vectors(p.n, (1, 0, 2), not p.transpose_b, (p.step_b, p.step_a), p.ldb, step_x, 1)


def _by_rows(product: _Product) -> bool:
    """Whether a small kernel can read rows of M as vectors."""
    x = _of_vectors(product)
    is_dense = not x.transposed and x.step_x == x.step_y == 1
    if product.type not in ("f32", "f64") or not is_dense or product.k < _SHORTEST_ROW:
        return False
    return vectors_of_rows(product.type, x.length, product.k) <= _MOST_VECTORS


def _row_step(product: _Product) -> MatmulStep:
    x = _of_vectors(product)
    constants = (*x.steps, product.step_c, x.distance, 1, 1)
    return MatmulStep(row_kernel(product.type, x.length, product.k), x.order, constants, product.batch, _grain(product))


def _by_columns(product: _Product) -> bool:
    """Whether a small kernel can add up rows of M', times the elements of x, in vectors."""
    x = _of_vectors(product)
    if product.type not in ("f32", "f64") or not x.transposed or x.step_y != 1 or x.length < _SHORTEST_ROW:
        return False
    return vectors_of_rows(product.type, product.k, x.length) <= _MOST_VECTORS


def _column_step(product: _Product) -> MatmulStep:
    """As one row, that of x', times M', which is how M is stored."""
    x = _of_vectors(product)
    matrix, vector, result = x.order
    constants = (x.steps[1], x.steps[0], product.step_c, x.step_x, x.distance, 1)
    kernel = small_kernel(product.type, 1, x.length, product.k, True, False)
    return MatmulStep(kernel, (vector, matrix, result), constants, product.batch, _grain(product))


def _vector_step(product: _Product) -> MatmulStep:
    length, order, transposed, steps, distance, step_x, step_y = _of_vectors(product)
    least = 16
    if transposed:  # the tile reads a piece of each row, which is the quicker the longer it is
        shortest, longest = _STRIDED_VECTOR_TILE
        least = max(min(shortest, _up(length / 2, 16)), min(longest, _up(length / 8, 16)))
        least = _LONG_VECTOR_TILE if product.batch > 1 else least
    rows = min(length, max(least, _up(_VECTOR_TILE / product.k, 16))) if guard() else length
    tiles = -(-length // rows)
    constants = (
        *(length, product.k, not transposed, *steps, product.step_c, distance, step_x, step_y),
        *(rows, tiles, _routine(product.type, "gemv"), _guard_for(product)),
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
    return "\n".join(
        f"  %{x}_in = alloca i32\n  %{x}_short = trunc i64 %{x} to i32\n  store i32 %{x}_short, ptr %{x}_in"
        for x in names.split()
    )


def _forms(names: str) -> str:
    """Instructions that put letters into memory which say whether the BLAS shall transpose its operands."""
    return "\n".join(
        f"  %form_{x} = alloca i8\n  %is_transposed_{x} = icmp ne i64 %transpose_{x}, 0\n"
        f"  %letter_{x} = select i1 %is_transposed_{x}, i8 {ord('T')}, i8 {ord('N')}\n"
        f"  store i8 %letter_{x}, ptr %form_{x}"
        for x in names.split()
    )


_MATRIX = Template("""
define void @product(ptr %table, i64 %first, i64 %last) {  ; the range counts tiles of C, row by row
$given
  %height_in = alloca i32
  %width_in = alloca i32
  %row_step_a = select i1 %is_transposed_a, i64 1, i64 %lda
  %column_step_b = select i1 %is_transposed_b, i64 %ldb, i64 1
  call void @enter(ptr %guard)
  for %i from %first below %last by 1
    %product = udiv i64 %i, %tiles
    %tile = urem i64 %i, %tiles
    %row = mul i64 (udiv i64 %tile, %tiles_across), %rows
    %column = mul i64 (urem i64 %tile, %tiles_across), %columns
    %height = call i64 @llvm.smin.i64(i64 %rows, i64 (sub i64 %m, %row))
    %width = call i64 @llvm.smin.i64(i64 %columns, i64 (sub i64 %n, %column))
    store i32 (trunc i64 %height to i32), ptr %height_in
    store i32 (trunc i64 %width to i32), ptr %width_in
    %offset_a = add i64 (mul i64 %product, %step_a), (mul i64 %row, %row_step_a)
    %offset_b = add i64 (mul i64 %product, %step_b), (mul i64 %column, %column_step_b)
    %offset_c = add i64 (mul i64 %product, %step_c), (add i64 (mul i64 %row, %ldc), %column)
    %tile_a = getelementptr $element, ptr %a, i64 %offset_a
    %tile_b = getelementptr $element, ptr %b, i64 %offset_b
    %tile_c = getelementptr $element, ptr %c, i64 %offset_c
    call void %gemm(ptr %form_b, ptr %form_a, ptr %width_in, ptr %height_in, ptr %k_in, ptr %one,
      ptr %tile_b, ptr %ldb_in, ptr %tile_a, ptr %lda_in, ptr %nothing, ptr %tile_c, ptr %ldc_in)
  end %i
  call void @leave(ptr %guard)
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
""")

_VECTOR = Template("""
define void @product(ptr %table, i64 %first, i64 %last) {  ; the range counts tiles of y
$given
  %height_in = alloca i32
  %row_step = select i1 %is_transposed_a, i64 %distance, i64 1  ; Fortran sees the transpose of the matrix
  call void @enter(ptr %guard)
  for %i from %first below %last by 1
    %product = udiv i64 %i, %tiles
    %row = mul i64 (urem i64 %i, %tiles), %rows
    %height = call i64 @llvm.smin.i64(i64 %rows, i64 (sub i64 %length, %row))
    store i32 (trunc i64 %height to i32), ptr %height_in
    %offset_matrix = add i64 (mul i64 %product, %step_matrix), (mul i64 %row, %row_step)
    %offset_y = add i64 (mul i64 %product, %step_y), (mul i64 %row, %apart_y)
    %tile_matrix = getelementptr $element, ptr %matrix, i64 %offset_matrix
    %tile_x = getelementptr $element, ptr %x, i64 (mul i64 %product, %step_x)
    %tile_y = getelementptr $element, ptr %y, i64 %offset_y
    %columns_first = select i1 %is_transposed_a, ptr %k_in, ptr %height_in
    %columns_second = select i1 %is_transposed_a, ptr %height_in, ptr %k_in
    for %j from 0 below %height by 1  ; some versions multiply what y held by zero, and it may hold NaN
      store $element zeroinitializer, ptr %tile_y[$element (mul i64 %j, %apart_y)]
    end %j
    call void %gemv(ptr %form_a, ptr %columns_first, ptr %columns_second, ptr %one, ptr %tile_matrix, ptr %distance_in,
      ptr %tile_x, ptr %apart_x_in, ptr %nothing, ptr %tile_y, ptr %apart_y_in)
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


def _scalars(type: ElementType) -> str:
    """Instructions that put one and zero into memory at `%one` and `%nothing`."""
    scalar, element = _SCALARS[type], _element(type)
    one = f"{{ {scalar} 1.0, {scalar} 0.0 }}" if type.startswith("c") else "1.0"
    return (
        f"  %one = alloca {element}\n  %nothing = alloca {element}\n"
        f"  store {element} {one}, ptr %one\n  store {element} zeroinitializer, ptr %nothing"
    )


def product_step(x: Instruction, repeats: int) -> MatmulStep:
    """The step for a product whose operands are batches of matrices as they stand; it runs about so often."""
    p = product_of(x)
    if p is None:
        raise AssertionError("operands that are no matrices are transposed before")
    return matmul_step(
        x.array_shape.element_type.name,  # pyright: ignore[reportArgumentType]
        p.m,
        p.n,
        p.k,
        batch=p.batch,
        transpose_a=not p.left.by_rows,
        transpose_b=not p.right.by_rows,
        steps=(p.left.batch, p.right.batch, p.m * p.n),
        leading=(
            p.left.row if p.left.by_rows else p.left.column,
            p.right.row if p.right.by_rows else p.right.column,
            p.n,
        ),
        repeats=repeats,
    )


def _compiled(
    text: Template, type: ElementType, routine: str, pointers: str, numbers: str, forms: str, integers: str
) -> int:
    """The kernel whose table has pointers, numbers, the address of the routine and that of the guard. Products of
    matrices take long beside the instructions around them."""
    words = [*pointers.split(), *numbers.split(), routine, "guard"]
    loads = load_words("table", words, f"{pointers} {routine} guard")
    given = "\n".join([loads, _by_address(integers), _scalars(type), _forms(forms)])
    module = GUARD + text.substitute(element=_element(type), given=given)
    return compile_llvm(module, ("product",), is_seldom=text is _MATRIX)["product"]


@functools.cache
def _matrix_kernel(type: ElementType) -> int:
    numbers = "m n k transpose_a transpose_b step_a step_b step_c lda ldb ldc rows columns tiles_across tiles"
    return _compiled(_MATRIX, type, "gemm", "a b c", numbers, "a b", "k lda ldb ldc")


@functools.cache
def _vector_kernel(type: ElementType) -> int:
    numbers = "length k transpose_a step_matrix step_x step_y distance apart_x apart_y rows tiles"
    return _compiled(_VECTOR, type, "gemv", "matrix x y", numbers, "a", "k distance apart_x apart_y")


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
$given
  %kept = select i1 (icmp ne i64 %more, 0), ptr %one, ptr %nothing
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
    given = "\n".join([_by_address("m n k ldc lda ldb"), _scalars(type), _forms("a b")])
    found = compile_llvm(GUARD + _MULTIPLIER.substitute(given=given), ("connect", "multiply"), is_seldom=True)
    connect = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(found["connect"])
    connect(_routine(type, "gemm"), guard_address())
    provide_function(multiply_symbol(type), found["multiply"])
