"""The compiling backend: fused loops as native code through LLVM, products through the BLAS, one native call per
program."""

from tinyxla.backends.numba.program.executable import CompiledModule

__all__ = ["CompiledModule"]
