"""Intel's AMX by NumPy: LLVM's intrinsics as functions that native code calls, on processors without the unit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.backends.numba.emit.printer import print_llvm
from tinyxla.backends.numba.jit import engine
from tinyxla.loopir.ir.loop_ir import Kernel
from tinyxla.shapes.element_types import element_types

Array = np.ndarray[Any, Any]
FACTORS = {"bf16": "f32", "s8": "s32", "u8": "s32"}  # and the type of their sums
_PRODUCTS = {"tdpbf16ps": "bf16", "tdpbssd": "s8", "tdpbuud": "u8"}


def dot_add(accumulator: Array, left: Array, right: Array) -> Array:
    """accumulator + sum of left[m, k, f] * right[k, n, f], in the order of the unit."""
    if accumulator.dtype.kind in "iu":
        products = np.einsum("mkf,knf->mn", left.astype(np.int64), right.astype(np.int64))
        return (accumulator + products).astype(accumulator.dtype)
    sums = np.zeros((*accumulator.shape, 2), np.float32)
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)  # in which one product is exactly added
    for k in range(len(right)):
        sums = (sums + wide_left[:, k, None] * wide_right[k]).astype(np.float32)
    return accumulator + (sums[..., 0] + sums[..., 1])


class _MatrixUnit:
    """The registers, and the text of kernels whose intrinsics are calls of these methods. Compiled code keeps their
    addresses, so there is one unit."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, int]] = []  # rows and bytes of each, while the unit is set up
        self.registers: dict[int, Array] = {}
        self.errors: list[str] = []
        number, address, pitch = ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64
        functions: dict[str, tuple[Callable[..., None], Sequence[Any]]] = {
            "ldtilecfg": (self._configure, (address,)),
            "tilerelease": (self._release, ()),
            "tilezero": (self._zero, (number,)),
            "tileloadd64": (self._load, (number, address, pitch)),
            "tilestored64": (self._store, (number, address, pitch)),
        }
        for name, type in _PRODUCTS.items():
            functions[name] = (lambda *tiles, type=type: self._multiply(type, *tiles), (number, number, number))
        self._callbacks = {
            name: ctypes.CFUNCTYPE(None, *types)(self._checked(function))
            for name, (function, types) in functions.items()
        }

    def run(self, kernel: Kernel, arrays: Sequence[Array], parameters: Sequence[int] = ()) -> None:
        """Run a kernel's LLVM text on this processor."""
        self.errors.clear()
        for name, callback in self._callbacks.items():
            engine.define_symbol(f"test_{name}", ctypes.cast(callback, ctypes.c_void_p).value or 0)
        text = print_llvm(kernel, "kernel").replace("@llvm.x86.", "@test_")
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            engine.start_llvm(text, ["kernel"], {})()["kernel"]
        )
        table = np.array([*(x.ctypes.data for x in arrays), *parameters], np.int64)
        function(table.ctypes.data, 0, 1)
        assert not self.errors, self.errors
        assert not self.sizes, "the unit was not released"

    def _checked(self, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: int) -> None:
            try:
                with np.errstate(all="ignore"):  # rows that are not used hold anything
                    function(*arguments)
            except Exception as error:
                self.errors.append(repr(error))

        return call

    def _configure(self, address: int) -> None:
        values = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
        assert values[0] == 1
        assert not values[1:16].any()
        self.sizes = [*zip(values[48:56].tolist(), values[16:32].view(np.uint16).tolist(), strict=True)]
        assert max(self.sizes) <= (16, 64)
        self.registers = {k: np.zeros(size, np.uint8) for k, size in enumerate(self.sizes)}

    def _release(self) -> None:
        self.sizes, self.registers = [], {}

    def _zero(self, tile: int) -> None:
        self.registers[tile][:] = 0

    def _load(self, tile: int, address: int, pitch: int) -> None:
        rows, size = self.sizes[tile]
        for i in range(rows):
            self.registers[tile][i] = np.frombuffer(ctypes.string_at(address + i * pitch, size), np.uint8)

    def _store(self, tile: int, address: int, pitch: int) -> None:
        for i, row in enumerate(self.registers[tile]):
            ctypes.memmove(address + i * pitch, row.tobytes(), row.size)

    def _multiply(self, type: str, accumulator: int, left: int, right: int) -> None:
        dtype = element_types[type].dtype
        sums = self.registers[accumulator].view(element_types[FACTORS[type]].dtype)
        a, b = (
            self.registers[tile].view(dtype).reshape(len(self.registers[tile]), -1, 4 // dtype.itemsize)
            for tile in (left, right)
        )
        sums[:] = dot_add(sums, a, b)


matrix_unit = _MatrixUnit()
