"""The matrix unit of x86, Intel's AMX, as the printer uses it: eight tile registers of up to 16 rows of 64 bytes.

Source: Intel, Architecture Instruction Set Extensions Programming Reference, chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyxla.backends.numba.emit.llvm_types import BYTES
from tinyxla.backends.numba.emit.operations import UnsupportedKernel, memory_type
from tinyxla.loopir.ir.loop_ir import Tile
from tinyxla.loopir.target import is_x86

PRODUCTS = {"bf16": "tdpbf16ps", "s8": "tdpbssd", "u8": "tdpbuud"}  # instructions by the type of factors
_MAX_TILES, _MAX_ROWS, _MAX_ROW_BYTES = 8, 16, 64
_PALETTE, _CONFIGURED_TILES = 1, 16  # of a configuration


def configuration(tiles: Sequence[Tile]) -> list[int]:
    """The bytes that LDTILECFG reads: the registers' sizes in the order of the tiles."""
    rows = [tile.rows for tile in tiles]
    row_bytes = [BYTES[memory_type(tile.type)] * tile.columns for tile in tiles]
    if not is_x86() or len(tiles) > _MAX_TILES or max(rows) > _MAX_ROWS or max(row_bytes) > _MAX_ROW_BYTES:
        raise UnsupportedKernel(
            f"{len(tiles)} tiles of up to {max(rows)} rows of {max(row_bytes)} bytes have no native code: use at most "
            f"{_MAX_TILES} of {_MAX_ROWS} rows of {_MAX_ROW_BYTES} bytes, on x86."
        )
    missing = [0] * (_CONFIGURED_TILES - len(tiles))
    start_row, reserved = 0, [0] * 14
    row_words = [part for size in (*row_bytes, *missing) for part in (size, 0)]  # of two bytes each
    return [_PALETTE, start_row, *reserved, *row_words, *rows, *missing]
