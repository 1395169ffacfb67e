"""`jax._src.checkify`."""

from typing import TypeVar

from tinyxla.experimental.checkify import *  # noqa: F403
from tinyxla.experimental import checkify as _checkify

Out = TypeVar("Out")
JaxException = _checkify.JaxException
