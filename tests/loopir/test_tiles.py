"""Tiles of a matrix unit in the loop IR: as Python, and what LLVM's intrinsics are called with, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.loopir.test_loop_ir import run_python
from tests.support.matrix_unit import FACTORS, dot_add, matrix_unit
from tinyxla.backends.numba.emit.operations import UnsupportedKernel
from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.loopir.ir.fingerprint import kernel_fingerprint
from tinyxla.loopir.ir.loop_ir import Builder, Kernel
from tinyxla.loopir.target import is_x86
from tinyxla.shapes.element_types import element_types

pytestmark = pytest.mark.platform

ROWS, WORDS, COLUMNS, PITCH = 5, 3, 7, 9


def product(factors: str) -> Kernel:
    """out[0] = c + a @ b and out[1] = a @ b, of tiles whose rows are further apart than they are long."""
    b = Builder("product")
    c, left, right = b.argument(FACTORS[factors], True), b.argument("u32"), b.argument("u32")
    x, y = b.tile("u32", ROWS, WORDS), b.tile("u32", WORDS, COLUMNS)
    sums = [b.tile(FACTORS[factors], ROWS, COLUMNS) for _ in range(2)]
    b.tile_load(x, left, 2, PITCH)
    b.tile_load(y, right, 0, b.add(b.kernel.last, PITCH - 1))
    b.tile_load(sums[0], c, 1, PITCH)
    b.tile_zero(sums[1])
    for k, tile in enumerate(sums):
        b.tile_multiply_add(tile, x, y, factors)
        b.tile_store(tile, c, 1 + k * ROWS * PITCH, PITCH)
    return b.kernel


def words(numbers: np.ndarray[Any, Any], start: int) -> np.ndarray[Any, Any]:
    """A matrix of words in memory, from an element on and with a pitch."""
    packed = np.ascontiguousarray(numbers).view(np.uint32)[..., 0]
    padded = np.pad(packed, ((0, 1), (0, PITCH - packed.shape[1]))).ravel()
    return np.pad(padded, (start, 0))


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize(
    "printer", ["python", pytest.param("llvm", marks=pytest.mark.skipif(not is_x86(), reason="x86"))]
)
def test_products_of_tiles(factors: str, printer: str, generator: np.random.Generator) -> None:
    """Bit for bit: integers are large, and sums of floats are rounded in the order of the unit."""
    dtype, wide = element_types[factors].dtype, element_types[FACTORS[factors]].dtype
    group = 4 // dtype.itemsize
    a, b, c = (
        generator.integers(-(1 << 31), 1 << 31, shape).astype(kind)
        if kind.kind in "iu"
        else (generator.standard_normal(shape) * 10.0 ** generator.integers(-4, 5, shape)).astype(kind)
        for shape, kind in (((ROWS, WORDS, group), dtype), ((WORDS, COLUMNS, group), dtype), ((ROWS, COLUMNS), wide))
    )
    found = np.zeros(1 + 2 * ROWS * PITCH, wide)
    found[1 : 1 + ROWS * PITCH].reshape(ROWS, PITCH)[:, :COLUMNS] = c
    arrays = [found, words(a, 2), words(b, 0)]
    if printer == "python":
        run_python(product(factors), arrays, 0, 1)
    else:
        matrix_unit.run(product(factors), arrays)
    stored = found[1:].reshape(2, ROWS, PITCH)
    np.testing.assert_array_equal(stored[..., :COLUMNS], [dot_add(x, a, b) for x in (c, 0 * c)])
    assert found[0] == 0
    assert not stored[..., COLUMNS:].any()


def test_printed_products_flush_subnormal_numbers() -> None:
    """Of factors, sums and accumulators; the product of two numbers below 1 may be added to a larger sum."""
    b = Builder("product")
    c, left, right = b.argument("f32", True), b.argument("u32"), b.argument("u32")
    x, y, sums = b.tile("u32", 1, 2), b.tile("u32", 2, 1), b.tile("f32", 1, 1)
    b.tile_load(sums, c, 0, 1)
    b.tile_load(x, left, 0, 2)
    b.tile_load(y, right, 0, 1)
    b.tile_multiply_add(sums, x, y, "bf16")
    b.tile_store(sums, c, 0, 1)
    tiny, bf16 = float(np.finfo(np.float32).tiny), element_types["bf16"].dtype
    cases = [
        (1.0, (tiny / 2, 0, 0, 0), (2.0**126, 0, 0, 0), 1.0),  # a factor
        (0.0, (tiny, 0, 0, 0), (0.5, 0, 0, 0), 0.0),  # a sum
        (tiny / 2, (tiny, 0, 0, 0), (1, 0, 0, 0), tiny),  # the accumulator
        (0.0, (tiny, 0, tiny, 0), (1, 0, 0.5, 0), 1.5 * tiny),  # no product by itself, if it is added to another
        (-tiny, (1.5 * tiny, 0, 0, 0), (1, 0, 0, 0), 0.0),  # the result
    ]
    for before, a_values, b_values, wanted in cases:
        found = np.array([before], np.float32)
        operands = [np.array(values).astype(bf16).view(np.uint32) for values in (a_values, b_values)]
        run_python(b.kernel, [found, *operands], 0, 1)
        assert found[0] == np.float32(wanted)


@pytest.mark.skipif(not is_x86(), reason="no tiles have native code")
@pytest.mark.parametrize(("tiles", "rows", "columns"), [(9, 1, 1), (1, 17, 1), (1, 1, 17)])
def test_tiles_beyond_the_unit_are_refused(tiles: int, rows: int, columns: int) -> None:
    b = Builder("large")
    for _ in range(tiles):
        b.tile("f32", rows, columns)
    with pytest.raises(UnsupportedKernel, match=f"{tiles} tiles of up to {rows} rows of {4 * columns} bytes"):
        print_llvm(b.kernel)


def test_fingerprints_tell_tiles_apart() -> None:
    def made(rows: int = 4, pitch: int = 4, number: int = 0, factors: str = "s8", is_loaded: bool = True) -> str:
        b = Builder("made")
        memory = b.argument("s32", True)
        tiles = [b.tile("s32", rows, rows) for _ in range(2)]
        (b.tile_load if is_loaded else b.tile_store)(tiles[number], memory, 0, pitch)
        b.tile_zero(tiles[1])
        b.tile_multiply_add(tiles[0], tiles[1], tiles[number], factors)
        return kernel_fingerprint(b.kernel)

    assert len({made(), made(rows=5), made(pitch=5), made(number=1), made(factors="u8"), made(is_loaded=False)}) == 6
