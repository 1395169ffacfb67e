"""Registry of routines: functions that the loop IR calls by name (`Call`, `Multiply`) and does not contain.

A lowering declares a routine before it emits a call. The backend begins all declared routines: it compiles kernels,
and resolves BLAS and LAPACK symbols. Beginning a routine twice must be harmless, since an asynchronous
exception may arrive between beginning a routine and removing it from the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tinyxla.loopir.ir.loop_ir import Call, Kernel, Loop, Multiply, Statement


@dataclass(eq=False, frozen=True, slots=True)
class KernelRoutine:
    """A kernel of the loop IR; its parameters are passed as the address of an array of 64-bit words. One that `is_cold`
    runs seldom, so that cheap compilation matters more than fast code."""

    symbol: str
    kernel: Kernel
    is_cold: bool = False


@dataclass(frozen=True, slots=True)
class FortranRoutine:
    """A BLAS or LAPACK routine, by its Fortran name in lower case without underscore."""

    name: str


@dataclass(frozen=True, slots=True)
class NativeRoutine:
    """A function of this process, by its address; all its arguments are pointers."""

    name: str
    address: int


@dataclass(frozen=True, slots=True)
class MultiplyRoutine:
    """The GEMM of an element type, which `Multiply` calls."""

    type: str


Routine = KernelRoutine | FortranRoutine | NativeRoutine | MultiplyRoutine

_declared: dict[Routine, None] = {}  # in order
_kernels: dict[str, Kernel] = {}  # of routines, by symbol


def routine_symbol(routine: str) -> str:
    """The symbol of a routine that `Call` names."""
    return f"tinyxla_{routine}"


def multiply_symbol(type: str) -> str:
    """The symbol of the GEMM of an element type."""
    return f"tinyxla_multiply_{type}"


def declare(routine: Routine) -> None:
    """Register a routine for the backend to begin."""
    _declared[routine] = None
    if isinstance(routine, KernelRoutine):
        _kernels[routine.symbol] = routine.kernel


def kernel_of(routine: str) -> Kernel | None:
    """The kernel of a routine that `Call` names; None of a routine that is no kernel."""
    return _kernels.get(routine_symbol(routine))


def declare_kernel(name: str, kernel: Kernel, is_cold: bool = False) -> str:
    """Register a kernel as a routine; returns its name, for `Call`, which passes the addresses of its arguments and
    that of an array of its parameters, if it has some."""
    declare(KernelRoutine(routine_symbol(name), kernel, is_cold))
    return name


def begin_declared(kernel: Kernel, begin: Callable[[Routine], None]) -> None:
    """Begin all routines that were declared since the last time, and those of the BLAS and LAPACK that a kernel calls.

    The latter may be missing, which is an error of the programs that call them alone.
    """
    declared = tuple(_declared)
    of_library = {x for x in declared if isinstance(x, (FortranRoutine, MultiplyRoutine))}
    not_called = of_library - _library_routines(kernel.body) if of_library else of_library
    for routine in declared:
        if routine not in not_called:
            begin(routine)
            _declared.pop(routine, None)


def _library_routines(statements: Sequence[Statement]) -> set[Routine]:
    """The routines that statements call, as if all were of the BLAS and LAPACK."""
    called: set[Routine] = set()
    for x in statements:
        if isinstance(x, Call):
            called.add(FortranRoutine(x.routine))
        elif isinstance(x, Multiply):
            called.add(MultiplyRoutine(x.result.buffer.type))
        elif isinstance(x, Loop):
            called |= _library_routines(x.body)
    return called
