"""A stand-in for JAX where it is not installed, so that modules of tests can be imported that compare with it.

It is there while tests are collected: tables of cases at the top of modules are made with it. What is called later is
an error: tests that use JAX are skipped.
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

from tests.support.uses import PACKAGES

IS_ABSENT = importlib.util.find_spec("jax") is None
_ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg getitem or ror and rand".split()


class Absent:
    """An attribute of JAX, or what a call of it would give."""

    _is_collecting = False

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        if not Absent._is_collecting:
            raise ModuleNotFoundError(f"JAX is not installed: {self._name} is called by a test without the marker jax")
        return Absent(f"{self._name}()")

    def __iter__(self) -> Iterator[Any]:
        pytest.skip("JAX is not installed, and cases come from it", allow_module_level=True)

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
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in PACKAGES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


_finder = _Finder()


def stand_in() -> None:
    """Begin to give the stand-in to who imports JAX."""
    Absent._is_collecting = True
    sys.meta_path.append(_finder)


def withdraw() -> None:
    """Importing JAX is an error again."""
    Absent._is_collecting = False
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [x for x, module in sys.modules.items() if isinstance(module, _AbsentModule)]:
        del sys.modules[name]
