"""Deferred imports: packages and the compiler, which the first call that needs them imports.

An import that an exception from outside ends half way (Ctrl-C, a timer's handler) is neither a package that is missing
nor one that can be imported again for certain: extension modules set up the process. So such imports run in a thread
of their own, which no signal interrupts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tinyxla.errors import MissingPackageError, TinyxlaError
from tinyxla.runtime.threads import shielded


def import_shielded(name: str, prepare: Callable[[], object] | None = None) -> Exception | None:
    """Import a module in a thread that no signal interrupts; the error that ended the import, if one did.

    `prepare` is called in that thread before: it sets the thread's options, say.

    Where this thread is itself importing a package around the module, it imports the module: another thread would wait
    for that package, and this one for the thread.
    """
    if _is_imported(name):
        return None
    failed: list[Exception] = []

    def load() -> None:
        try:
            if prepare is not None:
                prepare()
            import_module(name)
        except Exception as error:
            failed.append(error)

    parts = name.split(".")
    if any(_is_being_imported(".".join(parts[:count])) for count in range(1, len(parts))):
        load()
    else:
        shielded(load)
    if failed and isinstance(failed[0], TinyxlaError):
        failed[0].add_user_line()  # which the other thread does not know
    return failed[0] if failed else None


def _is_imported(name: str) -> bool:
    return sys.modules.get(name) is not None and not _is_being_imported(name)


def _is_being_imported(name: str) -> bool:
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)  # as importlib asks


class requiring:
    """Around the import of a module of an optional package: a `MissingPackageError` that says what needs the package,
    if it is not installed or is broken."""

    __slots__ = ("_module", "_package", "_what")

    def __init__(self, module: str, package: str, what: str) -> None:
        self._module = module
        self._package = package
        self._what = what

    def __enter__(self) -> None:
        error = import_shielded(self._module)
        if error is not None:
            raise MissingPackageError(
                f"{self._what} needs {self._package}, which cannot be imported ({type(error).__name__}: {error}); "
                f"install it by python -m pip install {self._package.lower()}."
            ) from error

    def __exit__(self, *_: Any) -> None:
        return None
