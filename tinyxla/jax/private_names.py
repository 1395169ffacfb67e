"""Private names of JAX, `jax._src.a.b`, that this library lacks.

A file that imports many of them at its top, as JAX's own tests do, is not to fail as a whole for one that a few of its
functions use. So an import statement gets a stand-in for such a name or module, whose use is an error. Where the import
may fail, inside of `try` or `with`, it does; and `hasattr` and `getattr` find nothing: programs that look for what
there is take their other way.
"""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

from tinyxla.errors import TinyxlaError

_IMPORTS = tuple(dis.opmap[name] for name in ("IMPORT_NAME", "IMPORT_FROM"))
_PASSED_FILES = (__file__, __file__.replace("private_names", "finder"), importlib.__file__)


class PrivateNameError(TinyxlaError, NotImplementedError, AttributeError):
    """The use of a private name of JAX that this library lacks."""


class PrivateModule(ModuleType):
    """A private module of JAX without a file of its own, or a private name, which an import statement does not tell
    from a module. It has the names that public modules show; any other use is an error."""

    def _refuse(self, use: str) -> NoReturn:
        raise PrivateNameError(
            f"{self.__name__}: {use}, but it is an implementation detail of JAX, which tinyxla does not have. What is "
            "public in JAX is there under its public name."
        )

    def __repr__(self) -> str:
        return f"<{self.__name__}, of which tinyxla has what is public in JAX>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"{self!r} has no attribute {name!r}")  # what protocols ask for
        self._refuse(f"its attribute {name!r} is asked for")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("it is called")

    def __getitem__(self, index: Any) -> Any:
        self._refuse("it is indexed")

    def __iter__(self) -> Iterator[Any]:
        self._refuse("it is iterated over")

    def __bool__(self) -> bool:
        self._refuse("its truth is asked for")

    def _compared(self, other: Any) -> bool:
        self._refuse("it is compared")

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __enter__(self) -> Any:
        self._refuse("it is entered")

    def __exit__(self, *_: object) -> None: ...

    def __instancecheck__(self, instance: Any) -> bool:
        self._refuse("instances of it are asked for")

    def __mro_entries__(self, bases: Any) -> Any:
        self._refuse("a class is derived from it")

    def __or__(self, other: Any) -> Any:
        return Any  # in annotations

    __ror__ = __or__


def is_required() -> bool:
    """Whether the module or name that is being looked up is imported by a statement outside of `try` and `with`. Where
    that statement is in a module that is being imported itself, so is the import of that module, and so on."""
    frame = _importer(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    if frame is None or not _is_importing(frame):
        return False
    while frame is not None and _is_importing(frame):
        if _is_guarded(frame):
            return False
        if frame.f_code.co_name != "<module>":
            return True
        frame = _importer(frame.f_back)
    return True


def _importer(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from this one on, that belongs neither to the import system nor to the finder."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _PASSED_FILES and not file.startswith("<frozen importlib"):
            return frame
        frame = frame.f_back
    return None


def _is_importing(frame: FrameType) -> bool:
    return frame.f_code.co_code[frame.f_lasti] in _IMPORTS


def _is_guarded(frame: FrameType) -> bool:
    """Whether the current instruction is inside of `try` or `with`."""
    return any(start <= frame.f_lasti < end for start, end in _guarded_ranges(frame.f_code))


def _guarded_ranges(code: CodeType) -> Iterator[tuple[int, int]]:
    """The ranges of instructions for which there is a handler of exceptions, by the format of CPython's
    `InternalDocs/exception_handling.md`: four numbers for each in digits of six bits, the first ones first."""
    numbers = list(_numbers(code.co_exceptiontable))
    for start, length in zip(numbers[::4], numbers[1::4], strict=True):
        yield 2 * start, 2 * (start + length)


def _numbers(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0
