"""What runs a module: the interpreter everywhere, compiled loops where LLVM is installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tinyxla.errors import AttributeValueError, warn
from tinyxla.hlo import Module
from tinyxla.ops.dynamic_sizes import has_dynamic_sizes
from tinyxla.runtime.imports import import_shielded
from tinyxla.tracing.config import config

if TYPE_CHECKING:
    from tinyxla.compiler.report import Report


class Executable(Protocol):
    """A module made ready to run."""

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The results for arguments of the parameters' shapes, which must be dense and row-major."""
        ...

    @property
    def kernels(self) -> Sequence[Any]:
        """The fused loops, with their `source` as Python text; none in the interpreter."""
        ...

    def report(self) -> Report:
        """The steps in their order, their memory and their cost."""
        ...

    def parallel_efficiency(self, threads: Sequence[int]) -> dict[int, float]:
        """The bound on parallel efficiency for each number of threads."""
        ...

    def instrumented(self, events: int) -> Any:
        """The executable with a timestamp around each step: after a call, its `record()` has the times of the steps,
        and at most `events` timestamps. None where there are no native steps."""
        ...


@cache
def default_backend() -> str:
    """`numba` where llvmlite, Numba's binding of LLVM, is installed, else `interpreter`; with a warning where it is
    installed but cannot be imported."""
    if find_spec("llvmlite") is None:
        return "interpreter"
    error = import_shielded("llvmlite.binding")
    if error is not None:
        warn(
            f"llvmlite is installed, but cannot be imported ({type(error).__name__}: {error}): functions are not "
            "compiled, but run in the interpreter. Install it again by python -m pip install --force-reinstall "
            "llvmlite.",
            RuntimeWarning,
        )
        return "interpreter"
    return "numba"


@cache
def load_compiler() -> None:
    """Load it where it is installed, so that no call waits for that."""
    if default_backend() != "numba":
        return
    options = dict(vars(config))  # those of this thread's blocks: where the cache is, say
    error = import_shielded("tinyxla.backends.numba", lambda: vars(config).update(options))
    if error is not None:
        raise error


def compile_module(module: Module, backend: str | None = None, donated: Sequence[int] = ()) -> Executable:
    """Make a module ready to run. It may overwrite arguments of the numbers `donated` that only the list holds."""
    chosen = backend or default_backend()
    if has_dynamic_sizes(module.entry):
        from tinyxla.backends.dynamic import DynamicExecutable  # here, since few programs need it

        return DynamicExecutable(module, partial(compile_module, backend=chosen))
    if chosen == "interpreter":
        from tinyxla.backends.interpreter import InterpretedModule

        return InterpretedModule(module)
    if chosen == "numba":  # imported here: `import tinyxla` loads no LLVM
        load_compiler()
        from tinyxla.backends.numba import CompiledModule

        return CompiledModule(module, donated)
    raise AttributeValueError(f"there is no backend {chosen!r}; there are 'numba' and 'interpreter'.")


def forget_kernels() -> None:
    """Forget the kernels that were compiled in this process, and memory kept for results. (The cache on disk stays.)"""
    for name in ("backends.numba.jit.engine", "loopir.passes.specialization", "backends.numba.runtime.buffer_pool"):
        module = sys.modules.get(f"tinyxla.{name}")  # if a module is not loaded, there are none
        if module is not None:
            module.forget()
