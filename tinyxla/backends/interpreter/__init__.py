"""The interpreter: op by op on NumPy, with each op's `evaluate`. The readable reference, and what runs without a
compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Module
from tinyxla.ops import calls
from tinyxla.shapes import TupleShape


class InterpretedModule:
    """A module that is run as it stands."""

    kernels: Sequence[Any] = ()

    def __init__(self, module: Module) -> None:
        self.module = module

    def __call__(self, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        result = calls.evaluate(self.module.entry, arguments)
        parts = result if isinstance(self.module.entry.root.shape, TupleShape) else (result,)
        return [np.asarray(part, order="C") for part in parts]

    def as_text(self) -> str:
        return "\n".join(repr(x) for x in self.module.entry.instructions)
