"""The contestants: modules with the same interface, and NumPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NUMPY = "numpy"


@dataclass(frozen=True)
class Library:
    """A contestant: `tx` has `jit`, `grad` and so on, `jnp` the array functions; for NumPy both are NumPy."""

    name: str
    tx: Any
    jnp: Any

    @staticmethod
    def load(name: str) -> Library:
        module = importlib.import_module(name)
        arrays = module if name == NUMPY else importlib.import_module(f"{name}.numpy")
        return Library(name, module, arrays)

    @property
    def transforms(self) -> bool:
        """Whether the library has `jit` and `grad`."""
        return self.name != NUMPY

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self.tx.__version__)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function compiled, or as it is for NumPy."""
        return self.tx.jit(function) if self.transforms else function

    def waiter(self, result: object) -> Callable[[Any], object]:
        """Return what waits for results like this one; for a single array its method, which is the cheapest way."""
        if not self.transforms:
            return _nothing
        if hasattr(result, "block_until_ready"):
            return type(result).block_until_ready  # type: ignore[attr-defined]
        return self.tx.block_until_ready


def _nothing(result: Any) -> object:
    """NumPy's results are ready when they are returned."""
    return result
