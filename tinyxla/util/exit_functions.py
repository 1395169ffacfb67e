"""Exit functions of packages that must not run before those of users."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_exit_functions() -> Generator[None]:
    """While a package is imported, the functions that it registers to run at exit are not registered.

    optree forgets all containers at exit, tuples included. Exit functions run last registered first, so for one that
    was registered before the import, as logging's and those of test frameworks are, trees would be leaves. What optree
    holds ends with the process.
    """
    register, thread = atexit.register, threading.get_ident()

    def ignored(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return function if threading.get_ident() == thread else register(function, *args, **kwargs)

    atexit.register = ignored
    try:
        yield
    finally:
        atexit.register = register
