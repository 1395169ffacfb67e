"""`jax.experimental.colocated_python`: functions that run on the hosts of their arguments' devices.

The devices here are those of a CPU, whose host is this process: functions are called where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tinyxla as tx
from tinyxla.api.functions import check_callable
from tinyxla.errors import ArgumentError
from tinyxla.tracing.meshes import Mesh


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPU devices on the hosts of devices: these themselves, as a tuple or as the mesh that is given."""
    return devices_or_mesh if isinstance(devices_or_mesh, Mesh) else tuple(devices_or_mesh)


def colocated_python(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a method `specialize` that gives one for known types of arguments and results."""
    check_callable("colocated_python", fun)
    return _Colocated(fun)


def colocated_python_class(cls: type) -> type:
    """The class: its objects live in this process."""
    return cls


class _Colocated:
    def __init__(self, fun: Callable[..., Any], has_devices: bool = False) -> None:
        self._fun = fun
        self._has_devices = has_devices
        self.__name__: str = getattr(fun, "__name__", type(fun).__name__)
        self.__wrapped__ = fun

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._has_devices and not tx.tree.leaves((args, kwargs)):
            raise ArgumentError(
                f"colocated_python: {self.__name__} has no arguments, whose devices say where it runs; give them by "
                "specialize(devices=...)."
            )
        return tx.tree.map(tx.numpy.asarray, self._fun(*args, **kwargs))

    def specialize(self, in_specs: Any = None, out_specs_fn: Any = None, devices: Any = None) -> _Colocated:
        """The function for known devices: types of results are those that it gives."""
        return _Colocated(self._fun, self._has_devices or devices is not None)
