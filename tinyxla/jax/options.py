"""Options as JAX's private module has them: objects that are read by `.value` and called for a context."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tinyxla.tracing.config import config, option_names, setting


class State:
    """An option.

    >>> debug_nans = State("debug_nans")
    >>> with debug_nans(True):
    ...     debug_nans.value
    True
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def value(self) -> Any:
        return getattr(config, self._name)

    def __call__(self, new_val: Any = True) -> AbstractContextManager[Any]:
        """A context in which the option has that value; one of an option without effect says nothing."""
        return setting(self._name, new_val) if hasattr(type(config), self._name) else nullcontext()

    def __bool__(self) -> bool:
        raise TypeError(f"bool() of the option {self._name}; use {self._name}.value.")

    def __repr__(self) -> str:
        return f"State({self._name}, value={self.value!r})"


states = {name: State(name) for name in option_names()}
