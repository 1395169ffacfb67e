"""Programs with dynamic dimensions: a static program with its sizes, on either backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyxla.backends.wrapped import WrappedExecutable
from tinyxla.compiler.passes.dynamic_padder import pad_dynamic_dimensions
from tinyxla.errors import ShapeError
from tinyxla.hlo import Module
from tinyxla.shapes import AnyShape, Shape


class DynamicExecutable(WrappedExecutable):
    """A module with dynamic dimensions: takes arrays up to their bounds, and gives as much of a result as there is."""

    def __init__(self, module: Module, compile_static: Callable[[Module], Any]) -> None:
        self._shapes = module.entry.parameter_shapes
        self._static = pad_dynamic_dimensions(module.entry)
        self._results = len(module.entry.outputs)
        super().__init__(compile_static(Module(module.name, self._static.computation, module.attributes)))

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        padded = [_padded(k, x, shape) for k, (x, shape) in enumerate(zip(arguments, self._shapes, strict=True))]
        sizes = [np.asarray(arguments[k].shape[d], np.int32) for k, d in self._static.parameters]
        found = self._inside([*padded, *sizes])
        results, real = found[: self._results], found[self._results :]
        for (k, d), size in zip(self._static.results, real, strict=True):
            results[k] = results[k][(slice(None),) * d + (slice(int(size)),)]
        return results


def _padded(number: int, x: np.ndarray[Any, Any], shape: AnyShape) -> np.ndarray[Any, Any]:
    assert isinstance(shape, Shape)
    if x.shape == shape.dimensions:
        return x
    if not shape.admits(x.shape):
        raise ShapeError(f"argument {number} must fit into {shape}, but it is {Shape.of(x)}; pass a smaller array.")
    made = np.zeros(shape.dimensions, x.dtype)
    made[tuple(map(slice, x.shape))] = x
    return made
