"""The contestants: modules with the same interface, and NumPy and PyTorch."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

NUMPY = "numpy"
TORCH = "torch"


@dataclass(frozen=True)
class Library:
    """A contestant: `tx` has `jit`, `grad` and so on, `jnp` the array functions; for NumPy and PyTorch both are the
    library itself."""

    name: str
    tx: Any
    jnp: Any

    @staticmethod
    def load(name: str) -> Library:
        module = importlib.import_module(name)
        arrays = module if name in (NUMPY, TORCH) else importlib.import_module(f"{name}.numpy")
        return Library(name, module, arrays)

    @staticmethod
    def load_all(names: Sequence[str]) -> list[Library]:
        """The libraries of these names, without PyTorch where it is not installed, which is told."""
        found: list[Library] = []
        for name in names:
            if name == TORCH and importlib.util.find_spec(name) is None:
                print("PyTorch is not installed; it is left out.", file=sys.stderr)
            else:
                found.append(Library.load(name))
        return found

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self.tx.__version__)

    def arrays(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """NumPy arrays, in any containers, as this library's."""
        if self.name == NUMPY:
            return inputs
        if self.name == TORCH:
            return tuple(self.tx.from_numpy(x.copy()) for x in inputs)
        return self.tx.tree_util.tree_map(self.jnp.asarray, inputs)

    def waiter(self, result: object) -> Callable[[Any], object]:
        """Return what waits for results like this one; for a single array its method, which is the cheapest way."""
        if self.name in (NUMPY, TORCH):
            return _nothing
        if hasattr(result, "block_until_ready"):
            return type(result).block_until_ready  # type: ignore[attr-defined]
        return self.tx.block_until_ready


def _nothing(result: Any) -> object:
    """Results of NumPy and PyTorch are ready when they are returned."""
    return result
