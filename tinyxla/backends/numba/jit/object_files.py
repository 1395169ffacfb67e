"""Object files as the cache on disk keeps them: their format and machine, and the symbols that they need.

Sources: System V ABI, "ELF Header" (https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html), with the
machines of its supplements; Apple's <mach-o/loader.h> and <mach/machine.h>; Microsoft's "PE Format", "COFF File
Header".
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Sequence

_ELF_MACHINES = {"x86_64": 62, "amd64": 62, "i686": 3, "aarch64": 183, "arm64": 183, "riscv64": 243, "ppc64le": 21}
_MACH_MACHINES = {"x86_64": 0x01000007, "arm64": 0x0100000C}
_COFF_MACHINES = {"amd64": 0x8664, "x86": 0x14C, "arm64": 0xAA64}
_RELOCATABLE = 1  # ELF's ET_REL, and Mach-O's MH_OBJECT


def is_native_object(code: bytes) -> bool:
    """Whether code is a relocatable object file for the machine that this process runs on."""
    machine = platform.machine().lower()
    if sys.platform == "win32":
        return _is_elf(code, machine) or _starts(code, "<H", (_COFF_MACHINES.get(machine),), 20)
    if sys.platform == "darwin":
        magic = 0xFEEDFACF  # of 64 bits
        header = struct.unpack_from("<IIII", code) if len(code) >= 32 else ()
        return header[:2] == (magic, _MACH_MACHINES.get(machine)) and header[3] == _RELOCATABLE
    return _is_elf(code, machine)


def _is_elf(code: bytes, machine: str) -> bool:
    bits = 2 if struct.calcsize("P") == 8 else 1
    order = 1 if sys.byteorder == "little" else 2
    identity = b"\x7fELF" + bytes([bits, order, 1])
    expected = (_RELOCATABLE, _ELF_MACHINES.get(machine, _machine_of(code)), 1)
    return code.startswith(identity) and _starts(code[16:], "=HHI", expected, 36)


def _machine_of(code: bytes) -> int | None:
    """What an object says: the only knowledge of machines that are not in the table."""
    return struct.unpack_from("=H", code, 18)[0] if len(code) >= 20 else None


def _starts(code: bytes, layout: str, expected: tuple[int | None, ...], least: int) -> bool:
    return len(code) >= least and struct.unpack_from(layout, code) == expected


def packed(code: bytes, called: Sequence[str]) -> bytes:
    """An entry of the cache: the names of the functions that code calls, then the code."""
    names = [name for name in called if not name.startswith("llvm.")]  # the rest are instructions
    return "\n".join(names).encode() + b"\0" + code


def unpacked(entry: bytes) -> tuple[bytes, list[str]] | None:
    """Code and the names of what it calls; None for what this process cannot run."""
    names, separator, code = entry.partition(b"\0")
    return (code, names.decode().split()) if separator and is_native_object(code) else None
