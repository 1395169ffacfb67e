"""Target: the processor that code is generated for, with its caches, vector registers, features and number of
processors, as read from the system once per process. LLVM's tables give the instruction sets; the caches are those of
the first core, by Linux's sysfs (`/sys/devices/system/cpu/cpu0/cache/index*`, see its ABI documents), macOS' sysctl
(`hw.perflevel0.*`, see sysctl(3)) or Windows' GetLogicalProcessorInformation. What cannot be read has the value that
the fields of `Target` state.

`config.target` (the environment variable TINYXLA_TARGET) replaces sizes, so that code for other machines is generated
and run on this one: `last_level_bytes=4096` compiles small arrays as those beyond the caches are compiled elsewhere.
Instruction sets are always those of this processor. Does not serve cross-compilation.

Which numbers may depend on the target: tile sizes, prefetches, stores past the caches, and cuts of kernels among
threads that change no value. Cuts that decide in which order terms are added follow from shapes alone, so no result
depends on the number of processors or threads. (Rows that are prefetched are summed block by block: whether they are
depends on the caches, as vectors do on the instruction set.)
"""

from __future__ import annotations

import ctypes
import functools
import platform
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import llvmlite.binding as llvm

from tinyxla.compiler.costs import CHUNKS, L1_BYTES, L2_BYTES, LINE_BYTES, MAX_CHUNKS, TASKS
from tinyxla.errors import AttributeValueError
from tinyxla.runtime.threads import available_processors, control_group_limit
from tinyxla.tracing.config import config
from tinyxla.util.did_you_mean import did_you_mean

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18  # of Linux on x86-64
_LAST_LEVEL_SHARE_BYTES = 16 << 20  # per processor at most, since other programs use the cache, too
_SYSTEM_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Target:
    """Sizes of a machine. Defaults are those of a common server core.

    Attributes:
        processors: those that the process may run on, by its affinity and its control group's quota.
        line_bytes: bytes of a cache line.
        l1_bytes: bytes of the first-level data cache of a core.
        l2_bytes: bytes of the second-level cache of a core.
        l2_ways: its associativity; addresses `l2_bytes / l2_ways` apart share a set.
        last_level_bytes: bytes of the last-level cache that the process may count on: the cache's size, or less if the
            process has few of the processors.
    """

    processors: int = 1
    line_bytes: int = LINE_BYTES
    l1_bytes: int = L1_BYTES
    l2_bytes: int = L2_BYTES
    l2_ways: int = 8
    last_level_bytes: int = _LAST_LEVEL_SHARE_BYTES

    @property
    def max_chunks(self) -> int:
        """Chunks of a parallel loop at most, if cutting it changes no value."""
        wanted = 2 * self.processors  # the one with a chunk more than others is late by half of its share only
        return min(MAX_CHUNKS, max(CHUNKS, 1 << (wanted - 1).bit_length()))

    @property
    def tasks(self) -> int:
        """Chunks that suffice for all processors, where further ones cost more than their balance gains."""
        return max(TASKS, self.max_chunks // 4 if self.processors <= TASKS else self.max_chunks)

    @property
    def balanced_tasks(self) -> int:
        """Twice as many: the processor with one chunk more than others is late by half of its share only."""
        return 2 * self.tasks

    @property
    def private_bytes(self) -> int:
        """Bytes from which on arrays are surely not in a core's own caches, whatever ran before."""
        return min(4 * self.l2_bytes, self.last_level_bytes)

    @property
    def prefetched_bytes(self) -> int:
        """Bytes from which on arrays come from beyond the second-level cache, so that prefetching them pays."""
        return min(2 * self.l2_bytes, self.last_level_bytes)

    @property
    def tile_bytes(self) -> int:
        """Bytes of tiles that are written once and read once: twice the first-level cache, which the second feeds."""
        return 2 * self.l1_bytes

    @property
    def rows_bytes(self) -> int:
        """Bytes of rows that stay in the second-level cache beside what else passes through it."""
        return self.l2_bytes // 8


@functools.cache
def host(caches: Path = _SYSTEM_CACHES) -> Target:
    """The machine that this process runs on."""
    processors = max(1, min(available_processors(), control_group_limit()))
    share = _LAST_LEVEL_SHARE_BYTES * available_processors()
    found = Target(processors=processors, last_level_bytes=share)
    sizes = dict(_system_caches(caches))
    if (1, "size") in sizes:
        found = replace(found, l1_bytes=sizes[1, "size"])
    if (2, "size") in sizes:
        found = replace(found, l2_bytes=sizes[2, "size"])
    if (2, "ways_of_associativity") in sizes:
        found = replace(found, l2_ways=sizes[2, "ways_of_associativity"])
    if (1, "coherency_line_size") in sizes:
        found = replace(found, line_bytes=sizes[1, "coherency_line_size"])
    if (3, "size") in sizes:
        found = replace(found, last_level_bytes=min(share, sizes[3, "size"]))
    return found


def _system_caches(folder: Path) -> Iterator[tuple[tuple[int, str], int]]:
    """Properties of the data caches, by level and the name that sysfs has for them."""
    if sys.platform == "darwin":
        return _macos_caches(_sysctl)
    if sys.platform == "win32":
        return _windows_caches(_processor_information())
    return _linux_caches(folder)


def _macos_caches(sysctl: Callable[[str], int]) -> Iterator[tuple[tuple[int, str], int]]:
    """The data caches, by `sysctl`; those of performance cores (`perflevel0`) if cores are of several kinds."""
    for level, name in ((1, "l1dcachesize"), (2, "l2cachesize"), (3, "l3cachesize")):
        size = sysctl(f"hw.perflevel0.{name}") or sysctl(f"hw.{name}")
        if size:
            yield (level, "size"), size
    line = sysctl("hw.cachelinesize")
    if line:
        yield (1, "coherency_line_size"), line


def _sysctl(name: str) -> int:
    """An integer of the system; 0 if it has none of this name."""
    value, size = ctypes.c_int64(), ctypes.c_size_t(8)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if failed else value.value


def _windows_caches(information: bytes) -> Iterator[tuple[tuple[int, str], int]]:
    """The caches in an array of SYSTEM_LOGICAL_PROCESSOR_INFORMATION (winnt.h): a mask of processors, the relation
    (2 is a cache's), and its level, ways, line, size and kind (0 unified, 2 data)."""
    seen: set[int] = set()
    for _, relation, level, ways, line, size, kind in struct.iter_unpack("<QI4xBBHII4x", information):
        if relation == 2 and kind in (0, 2) and level not in seen:
            seen.add(level)
            values = {"size": size, "coherency_line_size": line, "ways_of_associativity": ways % 0xFF}  # 255: full
            yield from (((level, name), value) for name, value in values.items() if value)


def _processor_information() -> bytes:
    """The array of SYSTEM_LOGICAL_PROCESSOR_INFORMATION of this machine, as bytes; empty if the system gives none."""
    function = ctypes.WinDLL("kernel32").GetLogicalProcessorInformation  # type: ignore[attr-defined,unused-ignore]
    size = ctypes.c_uint32()
    function(None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    return buffer.raw[: size.value] if function(buffer, ctypes.byref(size)) else b""


def _linux_caches(folder: Path) -> Iterator[tuple[tuple[int, str], int]]:
    """The files of sysfs; 0, where a hypervisor hides a number, is none."""
    units = {"K": 10, "M": 20}
    for index in range(8):
        try:
            texts = {name: (folder / f"index{index}" / name).read_text(encoding="ascii").strip() for name in _FILES}
            level, kind = int(texts["level"]), texts["type"]
        except (OSError, ValueError):
            continue
        for name in _FILES[2:] if kind in ("Data", "Unified") else ():
            digits = texts[name].rstrip("KM")
            if digits.isdecimal() and int(digits):
                yield (level, name), int(digits) << units.get(texts[name][-1], 0)


_FILES = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")


def current_target() -> Target:
    """The machine that code is generated for: this one, with the sizes that `config.target` replaces.

    Raises:
        AttributeValueError: `config.target` does not name sizes of a `Target`.
    """
    return _changed(config.target) if config.target else host()


@functools.lru_cache(64)
def _changed(text: str) -> Target:
    names = [x.name for x in fields(Target)]
    sizes: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, _, value = map(str.strip, item.partition("="))
        if name not in names:
            raise AttributeValueError(
                f"config.target: {name!r} is no size of a target.{did_you_mean(name, names)} Sizes are "
                f"{', '.join(names)}."
            )
        if not value.isdecimal() or int(value) == 0:
            raise AttributeValueError(f"config.target: {name} must be a positive integer, but got {value!r}.")
        sizes[name] = int(value)
    return replace(host(), **sizes)


@functools.cache
def processor() -> tuple[str, str]:
    """LLVM's name of the processor, and its features as LLVM's flags (`+avx2,-avx512f,...`)."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def is_x86() -> bool:
    """Whether the processor has x86's intrinsics."""
    return platform.machine().lower() in ("x86_64", "amd64", "i686", "x86")


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
