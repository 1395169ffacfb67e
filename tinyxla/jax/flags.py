"""Command-line flags for the options and of programs, by absl, under JAX's names: `--jax_enable_x64=true`."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any

from tinyxla.errors import AttributeValueError
from tinyxla.runtime.imports import requiring
from tinyxla.tracing.config import Config, option_names

TRUE, FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off", "")
"""Values of environment variables that mean true, and those that mean false."""


class Flag:
    """A flag of programs, which is no option of the library: read by `.value`.

    >>> Flag("retries", 3, "How often it is tried.").value
    3
    """

    def __init__(self, name: str, default: Any, help: str = "", choices: Sequence[str] | None = None) -> None:
        self.name, self.value, self._help, self._choices = name, default, help, choices
        flags[name] = self

    def define(self, absl_flags: Any) -> None:
        """Define it as a flag of absl."""
        kinds = {bool: "bool", int: "integer", float: "float"}
        if self._choices is not None:
            absl_flags.DEFINE_enum(self.name, self.value, self._choices, self._help, module_name="jax")
            return
        define = getattr(absl_flags, f"DEFINE_{kinds.get(type(self.value), 'string')}")
        define(self.name, self.value, self._help, module_name="jax")


flags: dict[str, Flag] = {}
"""The flags of programs by name."""


def bool_env(varname: str, default: bool) -> bool:
    """The truth value of an environment variable.

    Raises:
        AttributeValueError: it is neither true nor false.
    """
    text = os.environ.get(varname, str(default)).lower()
    if text not in (*TRUE, *FALSE):
        raise AttributeValueError(f"{varname} must be one of {', '.join((*TRUE, *FALSE[:-1]))}, but is {text!r}.")
    return text in TRUE


def int_env(varname: str, default: int) -> int:
    """The integer of an environment variable."""
    return int(os.environ.get(varname, str(default)))


def values(config: Config) -> dict[str, Any]:
    """The values of all options, by JAX's names."""
    return {f"jax_{name}": getattr(config, name) for name in option_names()}


def read(config: Config, name: str) -> Any:
    """The value of an option or a flag."""
    return flags[name].value if name in flags else getattr(config, name)


def config_with_absl(config: Config) -> None:
    """Define an absl flag for each option. `absl.app.run`, which parses the command line, then sets the options.

    Raises:
        MissingPackageError: absl is not installed.
    """
    absl_flags, app = _absl("flags"), _absl("app")
    for name, value in values(config).items():
        if name not in absl_flags.FLAGS:
            define = absl_flags.DEFINE_bool if isinstance(value, bool) else absl_flags.DEFINE_string
            define(name, None, f"The option {name!r}.", module_name="jax")
    for flag in flags.values():
        if flag.name not in absl_flags.FLAGS:
            flag.define(absl_flags)
    app.call_after_init(lambda: _set_options(config, absl_flags.FLAGS))


def parse_flags_with_absl(config: Config) -> None:
    """Define the flags, and set the options for which the command line has one.

    Raises:
        MissingPackageError: absl is not installed.
    """
    absl_flags = _absl("flags")
    config_with_absl(config)
    arguments = itertools.takewhile(lambda argument: argument != "--", sys.argv[1:])
    absl_flags.FLAGS(["", *(a for a in arguments if a.startswith(("--jax", "--nojax")))], known_only=True)
    _set_options(config, absl_flags.FLAGS)


def _absl(module: str) -> Any:
    with requiring(f"absl.{module}", "absl-py", "jax.config with flags"):
        return importlib.import_module(f"absl.{module}")


def _set_options(config: Config, found: Any) -> None:
    for name, before in values(config).items():
        if name in found and found[name].present:
            value = found[name].value
            config.update(name, int(value) if type(before) is int else value)
    for name, flag in flags.items():
        if name in found and found[name].present:
            flag.value = found[name].value
