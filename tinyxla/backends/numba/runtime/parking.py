"""Parking of threads on a word in memory: futexes on Linux, and the equal functions of macOS and Windows.

`park(pool, word, value)` blocks while the 32-bit word has the value, and may return early; `unpark(pool, word, count)`
wakes threads that are blocked on it. Elsewhere, and on versions of macOS before 14.4, `addresses` are zeros: workers
leave native code and wait for a `threading.Condition`, which takes the GIL.

Sources: futex(2); Apple's <os/os_sync_wait_on_address.h>; Microsoft's documentation of WaitOnAddress (synchapi.h).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Any, NamedTuple

_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98}

# The texts differ in how the functions are called whose addresses are in the words PARK, UNPARK_ONE and UNPARK_ALL.
# 128 and 129 are FUTEX_WAIT and FUTEX_WAKE with FUTEX_PRIVATE_FLAG; -1 is Windows' INFINITE.
_LINUX = """
define internal void @park(ptr %pool, ptr %word, i64 %value) noinline {
  %syscall = load ptr, ptr %pool[$PARK]
  call i64 (i64, ...) %syscall(i64 $FUTEX, ptr %word, i64 128, i64 %value, ptr null)
  ret void
}

define internal void @unpark(ptr %pool, ptr %word, i64 %count) noinline {
  %syscall = load ptr, ptr %pool[$UNPARK_ALL]
  call i64 (i64, ...) %syscall(i64 $FUTEX, ptr %word, i64 129, i64 %count, ptr null)
  ret void
}
"""

_MACOS = """
define internal void @park(ptr %pool, ptr %word, i64 %value) noinline {
  %function = load ptr, ptr %pool[$PARK]
  %wide = and i64 %value, 4294967295
  call i32 %function(ptr %word, i64 %wide, i64 4, i32 0)
  ret void
}

define internal void @unpark(ptr %pool, ptr %word, i64 %count) noinline {
  %one = load ptr, ptr %pool[$UNPARK_ONE]
  %all = load ptr, ptr %pool[$UNPARK_ALL]
  %function = select i1 (icmp eq i64 %count, 1), ptr %one, ptr %all
  call i32 %function(ptr %word, i64 4, i32 0)
  ret void
}
"""

_WINDOWS = """
define internal void @park(ptr %pool, ptr %word, i64 %value) noinline {
  %function = load ptr, ptr %pool[$PARK]
  %compared = alloca i32, align 4
  store i32 (trunc i64 %value to i32), ptr %compared
  call i32 %function(ptr %word, ptr %compared, i64 4, i32 -1)
  ret void
}

define internal void @unpark(ptr %pool, ptr %word, i64 %count) noinline {
  %one = load ptr, ptr %pool[$UNPARK_ONE]
  %all = load ptr, ptr %pool[$UNPARK_ALL]
  %function = select i1 (icmp eq i64 %count, 1), ptr %one, ptr %all
  call void %function(ptr %word)
  ret void
}
"""

_TEXTS = {"linux": _LINUX, "darwin": _MACOS, "win32": _WINDOWS}


class Addresses(NamedTuple):
    """The functions that `park` and `unpark` call; zeros where there are none."""

    park: int = 0
    unpark_one: int = 0
    unpark_all: int = 0


def source(system: str = sys.platform) -> str:
    """The LLVM text of `park` and `unpark`; `$PARK` and so on are words of the pool."""
    return _TEXTS.get(system, _LINUX).replace("$FUTEX", str(_FUTEX_NUMBERS.get(platform.machine(), 0)))


def addresses() -> Addresses:
    """The functions of this system."""
    if sys.platform == "linux" and platform.machine() in _FUTEX_NUMBERS:
        return Addresses(*[_address(ctypes.CDLL(None), "syscall")] * 3)
    if sys.platform == "darwin":
        return _all(
            ctypes.CDLL(None), "os_sync_wait_on_address", "os_sync_wake_by_address_any", "os_sync_wake_by_address_all"
        )
    if sys.platform == "win32":
        return _all(ctypes.WinDLL("kernelbase"), "WaitOnAddress", "WakeByAddressSingle", "WakeByAddressAll")
    return Addresses()


def _all(library: Any, *names: str) -> Addresses:
    found = [_address(library, name) for name in names]
    return Addresses(*found) if all(found) else Addresses()


def _address(library: Any, name: str) -> int:
    function = getattr(library, name, None)
    return (ctypes.cast(function, ctypes.c_void_p).value or 0) if function is not None else 0
