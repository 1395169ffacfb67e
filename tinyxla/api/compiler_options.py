"""Options of XLA's compiler, which say nothing to this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyxla.errors import ArgumentError, AttributeValueError, warn

_warned_of: list[Any] = []
# Those of XLA's CompileOptions and ExecutableBuildOptions that JAX's documentation names.
_COMPILER_OPTIONS = (
    "exec_time_optimization_effort",
    "memory_fitting_effort",
    "optimization_level",
    "memory_fitting_level",
    "num_replicas",
    "num_partitions",
)


def check_compiler_options(options: Any) -> None:
    """An error for what are no options of XLA's compiler, and the first time a warning that they have no effect.

    Raises:
        ArgumentError: no dictionary of names.
        AttributeValueError: a name that XLA does not have.
    """
    if options is None:
        return
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise ArgumentError(f"jit: compiler_options must be a dictionary of options or None, but is {options!r}.")
    for name in options:
        if not name.startswith("xla_") and name not in _COMPILER_OPTIONS:
            raise AttributeValueError(
                f"jit: there is no option {name!r} of XLA's compiler; its options begin with xla_, or are "
                f"{', '.join(_COMPILER_OPTIONS)}."
            )
    if options and not _warned_of:
        _warned_of.append(options)
        names = ", ".join(map(repr, options))
        warn(f"jit: compiler_options are those of XLA, and have no effect here: {names}; leave them out.")
