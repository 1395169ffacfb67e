"""`jax._src.checkify`."""

from typing import TypeVar

from tinyxla.experimental import checkify as _checkify
from tinyxla.experimental.checkify import *  # noqa: F403

Out = TypeVar("Out")
JaxException = _checkify.JaxException
