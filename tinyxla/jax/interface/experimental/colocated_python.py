"""`jax.experimental.colocated_python`: functions and classes that run in the process of the devices, which is this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tinyxla.wrapping import wraps

_Class = TypeVar("_Class", bound=type)


def colocated_python(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, with `specialize`, whose arguments say nothing here: there is one device.

    Example:
        >>> import tinyxla.jax
        >>> from jax.experimental.colocated_python import colocated_python
        >>> colocated_python(lambda x: x + 1)(2)
        3
    """

    @wraps(fun)
    def called(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    called.specialize = lambda *_, **__: called  # type: ignore[attr-defined]
    return called


def colocated_python_class(cls: _Class) -> _Class:
    """The class itself."""
    return cls


def colocated_cpu_devices(devices_or_mesh: Sequence[Any]) -> Sequence[Any]:
    """The devices of the hosts of devices: these, for they are processors."""
    return devices_or_mesh
