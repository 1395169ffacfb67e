"""Compiled programs each of whose arrays lies at the end, then at the start, of pages between two that are protected.

What a program reads or writes outside of an array is a fault at once, and ends the process: pytest-xdist and
faulthandler say in which test. Inside of the pages, but beside the array, a pattern must be left as it is. Arguments
and constants are read-only; results and temporaries, each with pages of its own, hold the pattern until written.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinyxla
from tinyxla.backends.numba import CompiledModule
from tinyxla.backends.numba.program import executable
from tinyxla.backends.numba.runtime.bytecode import template
from tinyxla.shapes import Shape

NumPyArray = np.ndarray[Any, Any]

_PATTERN = 0xAB
_NOTHING, _READ, _BOTH = 0, 1, 3  # what mprotect(2) allows


class Region:
    """Memory for an array: NumPy's arrays in it keep it."""

    def __init__(self, nbytes: int, at_end: bool) -> None:
        self._library = ctypes.CDLL(None)
        size = max(-(-nbytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self._pages = mmap.mmap(-1, size + 2 * mmap.PAGESIZE)
        self._whole = np.frombuffer(self._pages, np.uint8)
        for page in (0, size + mmap.PAGESIZE):
            self._protect(page, mmap.PAGESIZE, _NOTHING)
        first = mmap.PAGESIZE + (size - nbytes if at_end else 0)
        self._inside = slice(mmap.PAGESIZE, mmap.PAGESIZE + size)
        self._around = slice(mmap.PAGESIZE, first), slice(first + nbytes, mmap.PAGESIZE + size)
        self._whole[self._inside] = _PATTERN
        self.bytes = self._whole[first : first + nbytes]
        self.address = self._whole.ctypes.data + first

    def _protect(self, first: int, size: int, allowed: int) -> None:
        start = ctypes.c_void_p(self._whole.ctypes.data + first)
        assert self._library.mprotect(start, ctypes.c_size_t(size), allowed) == 0

    def view(self, sizes: Sequence[int], dtype: np.dtype[Any]) -> NumPyArray:
        return np.ndarray(sizes, dtype, self.bytes)

    def make_read_only(self) -> None:
        self._protect(self._inside.start, self._inside.stop - self._inside.start, _READ)

    def check(self) -> None:
        for part in self._around:
            assert (self._whole[part] == _PATTERN).all(), "a program wrote beside an array"


class Guard:
    """Gives every program that is compiled from now on its memory: for one call at the end of pages, for the next at
    their start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tinyxla.clear_caches()  # what was compiled before has memory of the usual kind
        self.calls = 0
        self._regions: list[Region] = []
        self._run = CompiledModule.__call__
        monkeypatch.setattr(executable, "_allocator", self._allocator)
        monkeypatch.setattr(CompiledModule, "__call__", lambda module, arguments: self._call(module, arguments))
        monkeypatch.setattr(CompiledModule, "_filled", lambda module, base: self._filled(module))

    def _region(self, shape: Shape) -> Region:
        self._regions.append(Region(shape.size * shape.dtype.itemsize, at_end=self.calls % 2 == 1))
        return self._regions[-1]

    def _copied(self, array: NumPyArray) -> Region:
        region = self._region(Shape.of(array))
        region.view(array.shape, array.dtype)[...] = array
        region.make_read_only()
        return region

    def _allocator(self, shape: Shape) -> Callable[[], NumPyArray]:
        return lambda: self._region(shape).view(shape.dimensions, shape.dtype)

    def _call(self, module: CompiledModule, arguments: Sequence[NumPyArray]) -> list[NumPyArray]:
        self.calls += 1
        results = self._run(module, [self._copied(x).view(x.shape, x.dtype) for x in arguments])
        for region in self._regions:
            region.check()
        results = [x.copy() for x in results]
        self._regions.clear()
        return results

    def _filled(self, module: CompiledModule) -> Any:
        constants = [self._copied(x).address for x in module._constants]
        temporaries = [self._region(executable.shape_of(x)).address for x in module._offsets]
        known = [*[0] * module._fixed, *constants, *temporaries]
        return template(module._schedule_address, module._fixed, known + [0] * (len(module.slots) - len(known)))
