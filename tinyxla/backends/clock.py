"""The clock of profiles and traces: one for Python and for native code, in nanoseconds."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

# The C library's function, which writes seconds and nanoseconds to a pair of words; as LLVM declares and calls it.
if sys.platform == "win32":
    ROUTINE: Any = ctypes.CDLL("ucrtbase")._timespec64_get
    PARAMETERS, ARGUMENTS = "ptr, i32", "ptr %read, i32 1"
    now = time.time_ns
else:
    ROUTINE = ctypes.CDLL(None).clock_gettime
    PARAMETERS, ARGUMENTS = "i32, ptr", f"i32 {time.CLOCK_MONOTONIC}, ptr %read"

    def now() -> int:
        """The time, on a clock that never goes back."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
