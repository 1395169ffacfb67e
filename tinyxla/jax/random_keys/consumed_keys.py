"""The option `debug_key_reuse`: a random key that is used a second time, outside of traced functions, is an error.

Which keys are consumed is kept by the buffers of their words, as long as these are there.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyxla.errors import TinyxlaError
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.config import config
from tinyxla.tracing.core import state
from tinyxla.transforms.key_arrays import KeyArray


class KeyReuseError(TinyxlaError, RuntimeError):
    """A random key that is used a second time."""


_consumed: dict[int, Any] = {}  # by the ids of buffers: whether the keys are, or which


def is_checking() -> bool:
    """Whether keys are looked at when a function of these is called: with the option, and where nothing is traced."""
    return config.debug_key_reuse and state.staging is None


def _buffer(keys: Any) -> Any:
    words = keys.words if isinstance(keys, KeyArray) else keys
    return words.buffer() if isinstance(words, ConcreteArray) else None


def consumption(keys: Any) -> Any:
    """Whether keys, or the words of such, are consumed: one answer, or an array of these.

    >>> from tinyxla import random
    >>> consumption(random.key(0))
    False
    """
    return _consumed.get(id(_buffer(keys)), False)


def consume(keys: Any, mask: Any, what: str, index: int = 0) -> None:
    """Mark keys as consumed.

    Raises:
        KeyReuseError: they are already. `what` and `index` say of which function they are which operand.
    """
    before = consumption(keys)
    if np.any(np.logical_and(before, mask)):
        raise KeyReuseError(f"Previously-consumed key passed to {what} at index {index}")
    mark(keys, np.logical_or(before, mask))


def mark(keys: Any, consumed: Any) -> None:
    """Set which keys are consumed."""
    buffer = _buffer(keys)
    if buffer is None:
        return
    name = id(buffer)
    if name not in _consumed:
        weakref.finalize(buffer, _consumed.pop, name, None)
    _consumed[name] = consumed if np.ndim(consumed) else bool(consumed)


def checked(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """A function of a key that it consumes, which is looked at while the option is set."""

    @functools.wraps(function)
    def call(key: Any, *args: Any, **kwargs: Any) -> Any:
        if is_checking() and isinstance(key, KeyArray):
            consume(key, True, what if config.disable_jit else "jit-compiled function")
        return function(key, *args, **kwargs)

    return call
