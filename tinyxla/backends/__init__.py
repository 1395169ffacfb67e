"""What runs a module: the interpreter everywhere, compiled loops where LLVM is installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from tinyxla.compiler.dynamic_sizes import has_dynamic_sizes, make_static
from tinyxla.errors import AttributeValueError, ShapeError
from tinyxla.hlo import Module
from tinyxla.shapes import AnyShape, Shape


class Executable(Protocol):
    """A module made ready to run."""

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The results for arguments of the parameters' shapes, which must be dense and row-major."""
        ...

    @property
    def kernels(self) -> Sequence[Any]:
        """The fused loops, with their `source` as Python text; none in the interpreter."""
        ...

    def as_text(self) -> str:
        """The plan: what runs in which order on which buffers."""
        ...


def default_backend() -> str:
    """`numba` where llvmlite, Numba's binding of LLVM, is installed, else `interpreter`."""
    return "numba" if find_spec("llvmlite") is not None else "interpreter"


def compile_module(module: Module, backend: str | None = None) -> Executable:
    """Make a module ready to run."""
    if has_dynamic_sizes(module.entry):
        return DynamicExecutable(module, backend)
    chosen = backend or default_backend()
    if chosen == "interpreter":
        from tinyxla.backends.interpreter import InterpretedModule

        return InterpretedModule(module)
    if chosen == "numba":  # imported here: LLVM is loaded by the first compilation, not by `import tinyxla`
        from tinyxla.backends.numba import CompiledModule

        return CompiledModule(module)
    raise AttributeValueError(f"there is no backend {chosen!r}; there are 'numba' and 'interpreter'.")


class DynamicExecutable:
    """A module with dynamic dimensions: takes arrays up to their bounds, and gives as much of a result as there is."""

    def __init__(self, module: Module, backend: str | None) -> None:
        self._shapes = module.entry.parameter_shapes
        self._static = make_static(module.entry)
        self._results = len(module.entry.outputs)
        self._inside = compile_module(Module(module.name, self._static.computation, module.attributes), backend)

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        padded = [_padded(k, x, shape) for k, (x, shape) in enumerate(zip(arguments, self._shapes, strict=True))]
        sizes = [np.asarray(arguments[k].shape[d], np.int32) for k, d in self._static.parameters]
        found = self._inside([*padded, *sizes])
        results, real = found[: self._results], found[self._results :]
        for (k, d), size in zip(self._static.results, real, strict=True):
            results[k] = results[k][(slice(None),) * d + (slice(int(size)),)]
        return results

    @property
    def kernels(self) -> Sequence[Any]:
        return self._inside.kernels

    def as_text(self) -> str:
        return self._inside.as_text()


def _padded(number: int, x: np.ndarray[Any, Any], shape: AnyShape) -> np.ndarray[Any, Any]:
    assert isinstance(shape, Shape)
    if not shape.dynamic or x.shape == shape.dimensions:
        return x
    if x.ndim != shape.rank or any(n > m for n, m in zip(x.shape, shape.dimensions, strict=True)):
        raise ShapeError(f"argument {number} must fit into {shape}, but it is {Shape.of(x)}; pass a smaller array.")
    made = np.zeros(shape.dimensions, x.dtype)
    made[tuple(map(slice, x.shape))] = x
    return made


def forget_kernels() -> None:
    """Forget the kernels that were compiled in this process. (The cache on disk stays.)"""
    native = sys.modules.get("tinyxla.backends.numba.native")  # if it is not loaded, there are none
    if native is not None:
        native.forget()
