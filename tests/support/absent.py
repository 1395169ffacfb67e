"""Stand-ins for JAX and for what compiles where JAX or LLVM is not installed, so that tests can be collected.

They are there while tests are collected: tables of cases at the top of modules are made with them. What is called later
is an error: tests that use these packages are skipped.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from tests.support.uses import PACKAGES, is_in

_NEEDED = {"jax": "jax", "llvm": "llvmlite"}
ABSENT = [marker for marker, package in _NEEDED.items() if importlib.util.find_spec(package) is None]
_ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg getitem or ror and rand".split()


class Absent:
    """An attribute of what is not installed, or what a call of it would give."""

    _is_collecting = False

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        if not Absent._is_collecting:
            raise ModuleNotFoundError(f"{self._name}, which is not installed, is called by a test without its marker")
        return Absent(f"{self._name}()")

    def __iter__(self) -> Iterator[Any]:
        pytest.skip(f"{self._name} is not installed, and cases come from it", allow_module_level=True)

    def __len__(self) -> int:
        return len(list(self))

    def __bool__(self) -> bool:
        return True

    def __instancecheck__(self, _: Any) -> bool:
        return False

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return (object,)


for _name in _ARITHMETIC:
    setattr(Absent, f"__{_name}__", Absent.__call__)


class _AbsentModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class _Finder(MetaPathFinder, Loader):
    def __init__(self, *modules: str) -> None:
        self.modules = modules

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return ModuleSpec(fullname, self, is_package=True) if is_in(fullname, self.modules) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


# Not Numba and llvmlite themselves: where they are looked for, the library sees that they are absent.
_finder = _Finder(*(x for marker in ABSENT for x in PACKAGES[marker] if x not in ("numba", "llvmlite")))


def stand_in() -> None:
    """Begin to give stand-ins to who imports what is not installed."""
    Absent._is_collecting = True
    sys.meta_path.insert(0, _finder)


def withdraw() -> None:
    """Importing it is an error again."""
    Absent._is_collecting = False
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [x for x, module in sys.modules.items() if isinstance(module, _AbsentModule)]:
        module = sys.modules.pop(name)
        folder, _, last = name.rpartition(".")
        if getattr(sys.modules.get(folder), last, None) is module:
            delattr(sys.modules[folder], last)
