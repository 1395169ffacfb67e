"""Compilation of the routines that lowerings declare (`loopir.ir.routines`); the BLAS and LAPACK are SciPy's."""

from __future__ import annotations

from tinyxla.backends.numba.jit.engine import define_kernel, define_symbol
from tinyxla.backends.numba.program.blas_gemm import declare_gemm
from tinyxla.backends.numba.runtime.blas_symbols import provide_routine
from tinyxla.loopir.ir.loop_ir import Kernel
from tinyxla.loopir.ir.routines import (
    FortranRoutine,
    KernelRoutine,
    NativeRoutine,
    Routine,
    begin_declared,
    routine_symbol,
)


def begin_routines(kernel: Kernel) -> None:
    """Begin the compilation of the routines that were declared for a kernel, on other threads."""
    begin_declared(kernel, _begin)


def _begin(routine: Routine) -> None:
    match routine:
        case KernelRoutine(symbol, kernel, is_cold):
            define_kernel(symbol, kernel, is_cold)
        case FortranRoutine(name):
            provide_routine(name)
        case NativeRoutine(name, address):
            define_symbol(routine_symbol(name), address)
        case _:
            declare_gemm(routine.type)
