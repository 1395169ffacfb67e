"""Command-line flags for the options, by absl, under JAX's names: `--jax_enable_x64=true`."""

from __future__ import annotations

import importlib
import itertools
import sys
from typing import Any

from tinyxla.runtime.imports import requiring
from tinyxla.tracing.config import Config, option_names


def values(config: Config) -> dict[str, Any]:
    """The values of all options, by JAX's names."""
    return {f"jax_{name}": getattr(config, name) for name in option_names()}


def read(config: Config, name: str) -> Any:
    """The value of an option."""
    return getattr(config, name)


def config_with_absl(config: Config) -> None:
    """Define an absl flag for each option. `absl.app.run`, which parses the command line, then sets the options.

    Raises:
        MissingPackageError: absl is not installed.
    """
    flags, app = _absl("flags"), _absl("app")
    for name, value in values(config).items():
        if name not in flags.FLAGS:
            define = flags.DEFINE_bool if isinstance(value, bool) else flags.DEFINE_string
            define(name, None, f"The option {name!r}.", module_name="jax")
    app.call_after_init(lambda: _set_options(config, flags.FLAGS))


def parse_flags_with_absl(config: Config) -> None:
    """Define the flags, and set the options for which the command line has one.

    Raises:
        MissingPackageError: absl is not installed.
    """
    flags = _absl("flags")
    config_with_absl(config)
    arguments = itertools.takewhile(lambda argument: argument != "--", sys.argv[1:])
    flags.FLAGS(["", *(a for a in arguments if a.startswith(("--jax", "--nojax")))], known_only=True)
    _set_options(config, flags.FLAGS)


def _absl(module: str) -> Any:
    with requiring(f"absl.{module}", "absl-py", "jax.config with flags"):
        return importlib.import_module(f"absl.{module}")


def _set_options(config: Config, flags: Any) -> None:
    for name, before in values(config).items():
        if name in flags and flags[name].present:
            value = flags[name].value
            config.update(name, int(value) if type(before) is int else value)
