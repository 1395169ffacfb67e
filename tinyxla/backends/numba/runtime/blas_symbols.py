"""Symbol lookup in SciPy's BLAS and LAPACK, and the guard that keeps a multithreaded BLAS to one thread per call.

SciPy's wheels for Linux contain an OpenBLAS, which is loaded without SciPy's modules: importing these takes six times
as long. Elsewhere routines come from `scipy.linalg.cython_blas`, whose capsules hold their addresses.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import time
from pathlib import Path
from string import Template

from tinyxla.backends.numba.jit.engine import compile_llvm, define_symbol, function_address, start_function
from tinyxla.loopir.blas_library import address_of, extension, library_routine, openblas
from tinyxla.loopir.ir.routines import routine_symbol

_FORK_TIMEOUT = 10.0  # seconds that a fork waits for calls of the BLAS to end; afterwards its child may deadlock
_LOCKED_FOR_FORK = 2  # value of the lock
_GATES = ("enter_blas", "leave_blas")


@functools.cache
def routine(name: str) -> int:
    """The address of a routine of the BLAS, of LAPACK or of this library, which was provided before."""
    if name in _GATES:
        return _gates()[name]
    provided = function_address(routine_symbol(name))
    if provided:
        return provided
    return library_routine(name)


class Guard:
    """The words that `enter` and `leave` share: a lock (0 if it is free), the number of kernels inside the BLAS, the
    BLAS's number of threads before the first entered, and its functions that get and set that number.

    A fork waits until no kernel is inside, and lets none enter: else the child would inherit locks of the BLAS that
    are held by threads it does not have.
    """

    def __init__(self, get_threads: int, set_threads: int) -> None:
        self.words = (ctypes.c_int64 * 5)(0, 0, 0, get_threads, set_threads)
        self.address = ctypes.addressof(self.words)
        self._set_threads = ctypes.CFUNCTYPE(None, ctypes.c_int)(set_threads)
        self._hold = start_function(_HOLD, "hold", is_cold=True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._reset)

    def _close(self) -> None:
        deadline = time.monotonic() + _FORK_TIMEOUT
        try:
            hold = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self._hold())
            while self.words[0] != _LOCKED_FOR_FORK and time.monotonic() < deadline:
                if not hold(self.address):
                    time.sleep(1e-4)
        except BaseException:  # from a signal handler: Python reports it, and forks nevertheless
            self._close()
            raise

    def _open(self) -> None:
        if self.words[0] == _LOCKED_FOR_FORK:
            self.words[0] = 0

    def _reset(self) -> None:
        """After the timeout, kernels may be inside: they do not leave in the child."""
        if self.words[1] > 0:
            self._set_threads(self.words[2])
        self.words[0] = self.words[1] = 0


@functools.cache
def guard() -> Guard | None:
    """The guard of SciPy's OpenBLAS; None for another BLAS, whose large products are then left to its own threads."""
    for library in _libraries():
        for prefix in ("scipy_openblas_", "openblas_"):
            get = getattr(library, prefix + "get_num_threads", None)
            put = getattr(library, prefix + "set_num_threads", None)
            if get is not None and put is not None:
                return Guard(address_of(get), address_of(put))
    return None


def guard_address() -> int:
    """The address of the guard's words; 0 without one."""
    found = guard()
    return found.address if found is not None else 0


def _libraries() -> list[ctypes.CDLL]:
    """The shared libraries that may hold OpenBLAS: a symbol of one is also looked for in those it was linked with."""
    own = openblas()
    if own is not None:
        return [own]
    module = Path(str(extension("cython_blas").__file__))
    paths = [module]
    if sys.platform == "win32":  # but not on Windows
        paths = sorted((module.parents[2] / "scipy.libs").glob("*openblas*.dll"))
    return [ctypes.CDLL(str(path)) for path in paths]


_HOLD = """
define i64 @hold(ptr %guard) {  ; take the lock for a fork if no kernel is inside: 1 if so, else 0
entry:
  %exchange = cmpxchg ptr %guard, i64 0, i64 1 acquire monotonic
  %acquired = extractvalue { i64, i1 } %exchange, 1
  br i1 %acquired, label %look, label %failed
look:
  br i1 (icmp eq i64 (load i64, ptr %guard[1]), 0), label %held, label %release
release:
  store atomic i64 0, ptr %guard release, align 8
  br label %failed
held:
  store atomic i64 2, ptr %guard release, align 8
  ret i64 1
failed:
  ret i64 0
}
"""

_PASSAGE = Template("""
define internal void @$name(ptr %guard) noinline {
entry:
  %users_at = getelementptr i64, ptr %guard, i64 1
  %saved_at = getelementptr i64, ptr %guard, i64 2
  %get_at = getelementptr i64, ptr %guard, i64 3
  br i1 (icmp eq ptr %guard, null), label %done, label %acquire
acquire:
  %exchange = cmpxchg ptr %guard, i64 0, i64 1 acquire monotonic
  %acquired = extractvalue { i64, i1 } %exchange, 1
  br i1 %acquired, label %count, label %acquire
count:
  %before = load i64, ptr %users_at
  %after = add i64 %before, $change
  store i64 %after, ptr %users_at
  br i1 (icmp eq i64 %$others, 0), label %limit, label %release
limit:
$limit
  call void (load ptr, ptr %guard[4])(i32 %threads)
  br label %release
release:
  store atomic i64 0, ptr %guard release, align 8
  br label %done
done:
  ret void
}
""")

_SAVE = """
  %get = load ptr, ptr %get_at
  %own = call i32 %get()
  %saved = zext i32 %own to i64
  store i64 %saved, ptr %saved_at
  %threads = add i32 0, 1"""

_RESTORE = """
  %saved = load i64, ptr %saved_at
  %threads = trunc i64 %saved to i32"""

# Internal functions for kernels that call the BLAS: `enter` and `leave`, with the address of a guard's words, or null.
GUARD = _PASSAGE.substitute(name="enter", change=1, others="before", limit=_SAVE) + _PASSAGE.substitute(
    name="leave", change=-1, others="after", limit=_RESTORE
)

_GATE = """
@guard_word = internal global ptr null

define void @connect(ptr %guard) {
  store ptr %guard, ptr @guard_word
  ret void
}

define void @enter_blas() {
  call void @enter(ptr (load ptr, ptr @guard_word))
  ret void
}

define void @leave_blas() {
  call void @leave(ptr (load ptr, ptr @guard_word))
  ret void
}
"""


@functools.cache
def _gates() -> dict[str, int]:
    """Functions without arguments; between them the BLAS has one thread."""
    found = compile_llvm(GUARD + _GATE, ("connect", *_GATES), is_cold=True)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found["connect"])(guard_address())
    return found


@functools.cache
def provide_routine(name: str) -> None:
    """Let kernels of the loop IR call a routine."""
    define_symbol(routine_symbol(name), routine(name))
