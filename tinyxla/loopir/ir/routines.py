"""Registry of routines: functions that the loop IR calls by name (`Call`, `Multiply`) and does not contain.

A lowering declares a routine before it emits a call of it. The backend begins what was declared: it compiles LLVM text
and kernels, and resolves routines of the BLAS and LAPACK. Beginning the same routine twice must be harmless, since an
exception from outside may come between beginning a routine and taking it off the list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinyxla.loopir.ir.loop_ir import Kernel


@dataclass(eq=False, frozen=True, slots=True)
class LlvmRoutine:
    """The function `function` of LLVM text (`llvm_templates`). A `final` text gains nothing by LLVM's passes; of a
    `seldom` one the instructions are executed so seldom that its compilation must be cheap."""

    symbol: str
    text: str
    function: str
    final: bool = False
    seldom: bool = False


@dataclass(eq=False, frozen=True, slots=True)
class KernelRoutine:
    """A kernel of the loop IR; its parameters are passed as the address of an array of words."""

    symbol: str
    kernel: Kernel


@dataclass(eq=False, frozen=True, slots=True)
class FortranRoutine:
    """A routine of the BLAS or LAPACK, under its Fortran name in lower case without underscore."""

    name: str


@dataclass(eq=False, frozen=True, slots=True)
class MultiplyRoutine:
    """The GEMM of an element type, which `Multiply` calls."""

    type: str


Routine = LlvmRoutine | KernelRoutine | FortranRoutine | MultiplyRoutine

_declared: dict[Routine, None] = {}  # in order


def routine_symbol(routine: str) -> str:
    """The symbol that a `Call` of a routine calls."""
    return f"tinyxla_{routine}"


def multiply_symbol(type: str) -> str:
    """The symbol of the GEMM of an element type."""
    return f"tinyxla_multiply_{type}"


def declare(routine: Routine) -> None:
    """Ask the backend for a routine."""
    _declared[routine] = None


def declare_llvm(name: str, text: str, function: str, final: bool = False, seldom: bool = False) -> str:
    """Declare a routine in LLVM text; returns its name, for `Call`."""
    declare(LlvmRoutine(routine_symbol(name), text, function, final, seldom))
    return name


def begin_declared(begin: Callable[[Routine], None]) -> None:
    """Begin all routines that were declared since the last time."""
    for routine in tuple(_declared):
        begin(routine)
        _declared.pop(routine, None)
