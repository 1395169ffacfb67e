"""Guards of transfers: what is copied to a device, or from one device to another, without being asked for.

Calls are looked at where an option of a guard is set; then no short cut is taken, so that calls without a guard do not
ask for it. A function that is traced copies nothing: constants in it are part of the program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import numpy as np

from tinyxla.errors import TransferGuardError
from tinyxla.shapes import Shape
from tinyxla.tracing import pytrees
from tinyxla.tracing.array import Array
from tinyxla.tracing.config import config
from tinyxla.tracing.core import Tracer, state
from tinyxla.util.observers import Event
from tinyxla.util.tracebacks import is_own

copied_to_device: Event[[Any]] = Event()
"""Each value that `check_host_values` is asked about, also where all is allowed."""

_HOST = (np.ndarray, np.generic, bool, int, float, complex)


def check_host_values(what: str, values: Iterable[Any], only_arrays: bool = False, is_explicit: bool = False) -> None:
    """Guard numbers and arrays of NumPy's that a user gives to a function, which copies them to a device. Those that
    the library's own functions give to each other are theirs.

    Args:
        what: names the function.
        values: its arguments.
        only_arrays: whether numbers are no operands.
        is_explicit: whether the copy is what the function is for.

    Raises:
        TransferGuardError: one of them, where the option `transfer_guard_host_to_device` refuses.
    """
    is_allowed = config.transfer_guard_host_to_device == "allow"
    if state.staging is not None or (is_allowed and not copied_to_device.observers):
        return
    for x in values:
        if isinstance(x, _HOST[:2] if only_arrays else _HOST) and not isinstance(x, Array) and _is_given(x):
            copied_to_device.notify(x)
            if is_allowed:
                continue
            found = np.asarray(x)
            described = f"{found.dtype}[{','.join(map(str, found.shape))}]"
            _guard("host_to_device", f"{what}: {described}", "is copied from the host to a device", is_explicit)


def check_move(what: str, x: Any, place: Any, is_explicit: bool = False) -> None:
    """Guard an array of a user's that goes to other devices.

    Args:
        what: names the function.
        x: an array.
        place: where it goes.
        is_explicit: whether that is what the function is for.

    Raises:
        TransferGuardError: the option `transfer_guard_device_to_device` refuses.
    """
    is_traced = isinstance(x, Tracer) or state.staging is not None
    if is_traced or config.transfer_guard_device_to_device == "allow" or x.sharding.device_set == place.device_set:
        return
    if is_explicit or _is_given(x):
        _guard("device_to_device", f"{what}: an array {Shape.of(x)}", f"is copied to {place}", is_explicit)


def check_constant(what: str, value: Any) -> None:
    """Guard an array of equal elements that a user asks for, by the function of this name.

    Raises:
        TransferGuardError: the option `transfer_guard_host_to_device` refuses.
    """
    if state.staging is not None or config.transfer_guard_host_to_device == "allow":
        return
    outermost = _locals_of_call()
    called = outermost.get("function") if outermost is not None else None
    if getattr(called, "__name__", None) == what:
        _guard("host_to_device", f"{what}: the number {value}", "is copied from the host to a device", False)


def _locals_of_call() -> dict[str, Any] | None:
    """The variables of the function of the library that the user called."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    found = None
    while frame is not None and is_own(frame):
        found, frame = frame, frame.f_back
    return None if found is None else found.f_locals


def _is_given(value: Any) -> bool:
    """Whether a value is, or is in, an argument of the function of the library that the user called."""
    outermost = _locals_of_call()
    return outermost is None or any(x is value for x in pytrees.leaves(list(outermost.values())))


def _guard(kind: str, what: str, happens: str, is_explicit: bool) -> None:
    """Log or refuse a transfer, as the option of its kind says."""
    option = f"transfer_guard_{kind}"
    value = getattr(config, option)
    if is_explicit and not value.endswith("_explicit"):
        return
    if value.startswith("log"):
        import logging  # here, since most programs log nothing

        logging.getLogger("tinyxla").warning("%s %s (%s=%r).", what, happens, option, value)
    elif value.startswith("disallow"):
        raise TransferGuardError(
            f"{what} {happens}, which {option}={value!r} refuses; put it there before by device_put, or allow it by "
            f"tinyxla.{option}('allow')."
        )
