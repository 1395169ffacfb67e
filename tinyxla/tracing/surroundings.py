"""What surrounds a call of a function and decides what the function is traced to, beside its arguments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from tinyxla.tracing.config import config, options_of_traces
from tinyxla.tracing.core import Kinds, state
from tinyxla.tracing.meshes import context


class Surroundings(NamedTuple):
    """A part of the keys by which traces and programs are kept.

    Attributes:
        axes: the named axes, with their sizes.
        mesh: the current mesh and device.
        kinds: those of its axes, where they are not as the mesh says.
        options: those that are set for a block or check what is computed, as far as they change traces.
        frontend_attributes: what instructions that are recorded are marked with.
    """

    axes: tuple[tuple[Hashable, int], ...]
    mesh: Any
    kinds: Kinds | None
    options: tuple[tuple[str, Any], ...]
    frontend_attributes: tuple[tuple[str, str], ...]

    @property
    def are_usual(self) -> bool:
        """Whether there is nothing but a mesh."""
        return not (self.axes or self.kinds or self.options or self.frontend_attributes)


def surroundings() -> Surroundings:
    """Those of here and now."""
    axes = tuple([(name, size) for name, (_, size) in state.axes.items()]) if state.axes else ()
    options = options_of_traces() if config.special else ()
    return Surroundings(axes, context.key, state.kinds, options, state.frontend_attributes)
