"""Options as JAX has them: environment variables such as `JAX_ENABLE_X64`, and objects that are read by `.value` and
called for a context."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from tinyxla.api.sharding.devices import default_device
from tinyxla.jax.devices import backend
from tinyxla.jax.flags import FALSE, TRUE
from tinyxla.tracing.config import NoEffect, config, option_names, setting, warn_unless_satisfied
from tinyxla.tracing.device import call_before_first_use


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

    def __call__(self, new_val: Any = True) -> AbstractContextManager[None]:
        """A context in which the option has that value. An option without effect warns of what does not hold here."""
        if self._name == "default_device":
            return default_device(new_val)
        if hasattr(type(config), self._name):
            return setting(self._name, new_val)
        warn_unless_satisfied(self._name, new_val)
        return NoEffect()

    def __bool__(self) -> bool:
        raise TypeError(f"bool() of the option {self._name}; use {self._name}.value.")

    def __repr__(self) -> str:
        return f"State({self._name}, value={self.value!r})"


states = {name: State(name) for name in option_names()}

_DEVICE_COUNT = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def _flagged_count(variables: Mapping[str, str]) -> int | None:
    counts = _DEVICE_COUNT.findall(variables.get("XLA_FLAGS", ""))
    return int(counts[-1]) if counts else None


def set_from_environment(variables: Mapping[str, str] = os.environ) -> None:
    """Set the options that environment variables name: `JAX_ENABLE_X64=1` for `enable_x64`. The number of devices is
    also a flag in `XLA_FLAGS`, which programs may set until they first use devices."""
    count = _flagged_count(variables)
    if count is not None:
        config.update("num_cpu_devices", count)
    for option in option_names():
        given = variables.get(f"JAX_{option.upper()}")
        if given is None:
            continue
        is_flag = isinstance(getattr(config, option), bool) or given.lower() in ("true", "false")
        value: Any = given
        if is_flag and given.lower() in (*TRUE, *FALSE):
            value = given.lower() in TRUE
        elif given.lstrip("-").isdigit():
            value = int(given)
        config.update(option, value)
    known = config.num_cpu_devices

    def fix_devices() -> None:
        found = _flagged_count(variables)
        if found not in (None, count) and config.num_cpu_devices == known:
            config.update("num_cpu_devices", found)
        backend.started["cpu"] = backend.get_backend()

    if not backend.started:
        call_before_first_use(fix_devices)
