"""Warnings in tests: as errors, recorded, or ignored; also where tests run on several threads, whose warnings are kept
apart."""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Callable, Generator
from typing import Any, NoReturn

Handler = Callable[..., bool]  # gets what `warnings.showwarning` gets, and says whether it deals with the warning


class _Handlers(threading.local):
    def __init__(self) -> None:
        self.found: list[Handler] = []


_handlers = _Handlers()


def _show(message: Any, category: Any, *where: Any, **more: Any) -> None:
    """In place of `warnings.showwarning`: the innermost handler of this thread that deals with a warning."""
    if not any(handler(message, category, *where, **more) for handler in reversed(_handlers.found)):
        raise category(message)


def install_threadsafe_warning_handlers() -> None:
    """Let each thread deal with its own warnings from now on. Those that it does not expect are errors."""
    warnings.showwarning = _show
    warnings.simplefilter("always")


@contextlib.contextmanager
def _handling(handler: Handler) -> Generator[None]:
    _handlers.found.append(handler)
    try:
        yield
    finally:
        _handlers.found.pop()


@contextlib.contextmanager
def _filtering(action: Any, **what: Any) -> Generator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings(action, **what)
        yield


def _is_threaded() -> bool:
    return warnings.showwarning is _show


def raise_on_warnings() -> contextlib.AbstractContextManager[None]:
    """A context in which warnings are errors."""

    def refuse(message: Any, category: Any, *where: Any, **more: Any) -> NoReturn:
        raise category(message)

    return _handling(refuse) if _is_threaded() else _filtering("error")


@contextlib.contextmanager
def record_warnings() -> Generator[list[warnings.WarningMessage]]:
    """A context with the list of the warnings in it, which are not shown."""
    if not _is_threaded():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            yield found
        return
    recorded: list[warnings.WarningMessage] = []

    def record(*what: Any, **more: Any) -> bool:
        recorded.append(warnings.WarningMessage(*what, **more))
        return True

    with _handling(record):
        yield recorded


def ignore_warning(
    *, message: str | None = None, category: type[Warning] = Warning
) -> contextlib.AbstractContextManager[None]:
    """A context, or a decorator of tests, in which warnings are ignored: of this class, and whose text begins with what
    the pattern `message` describes."""

    def ignore(text: Any, kind: Any, *where: Any, **more: Any) -> bool:
        return issubclass(kind, category) and re.match(message or "", str(text)) is not None

    return _ignoring(ignore, message or "", category)


@contextlib.contextmanager
def _ignoring(handler: Handler, message: str, category: type[Warning]) -> Generator[None]:
    """Which of the two ways it is, is known when the context is entered."""
    with _handling(handler) if _is_threaded() else _filtering("ignore", message=message, category=category):
        yield
