"""Target: the processor that code is generated for, with its vector width, features and last-level cache, as read
from the system once per process. LLVM's tables give the instruction sets; the operating system gives the cache size.
Does not serve cross-compilation.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path

import llvmlite.binding as llvm

from tinyxla.runtime.threads import available_processors

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18  # of Linux on x86-64
_LAST_CACHE_SHARE_BYTES = 16 << 20  # per processor at most, since other programs use the cache, too


@functools.cache
def processor() -> tuple[str, str]:
    """LLVM's name of the processor, and its features as LLVM's flags (`+avx2,-avx512f,...`)."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def processor_name() -> str:
    """LLVM's name of the processor."""
    return processor()[0]


def has_feature(name: str) -> bool:
    """True if the processor has an instruction set, by LLVM's name."""
    return f"+{name}," in f"{processor()[1]},"


def has_masks() -> bool:
    """True if vector instructions of every width take masks (AVX-512VL)."""
    return "+avx512vl" in processor()[1]


def vector_bytes() -> int:
    """Bytes of the widest vector register."""
    features = processor()[1]
    return 64 if "+avx512f" in features else 32 if "+avx2" in features else 16


@functools.cache
def has_tiles() -> bool:
    """True if the process may use the matrix unit (AMX). Linux requires a request, which holds for all threads and
    for the children of a fork (see its "Using XSTATE features in user space applications"); without the request, the
    first AMX instruction ends the process."""
    if not has_feature("amx-tile") or sys.platform != "linux" or not sys.maxsize > 1 << 32:
        return False
    request = ctypes.CDLL(None).syscall
    request.argtypes, request.restype = [ctypes.c_long] * 3, ctypes.c_long
    return request(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0


@functools.cache
def last_cache() -> int:
    """Bytes of the last-level cache that this process may count on: the cache's size, or less if the process has few
    of the processors."""
    share = _LAST_CACHE_SHARE_BYTES * available_processors()
    try:
        size = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="ascii").strip()
        return min(share, int(size.removesuffix("K")) << 10)
    except (OSError, ValueError):
        return share
