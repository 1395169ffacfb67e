"""The kinds that the axes of a mesh have where a program is: the compiler, the types or the function decide how arrays
are split along them, as the mesh says or as something around does."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from typing import TypeVar

from tinyxla.tracing.core import Kinds, state
from tinyxla.tracing.meshes import AbstractMesh, AxisType

_Result = TypeVar("_Result")


class _Every:
    """Contains all axes."""

    def __contains__(self, name: object) -> bool:
        return True


EVERY = _Every()


def with_auto_axes(names: Container[Hashable], function: Callable[[], _Result]) -> _Result:
    """Call a function inside of which axes are left to the compiler: they are not part of types."""
    return with_kinds(Kinds(names, ()), function)


def with_explicit_axes(names: Container[Hashable], function: Callable[[], _Result]) -> _Result:
    """Call a function inside of which axes are part of types, whatever their mesh says."""
    return with_kinds(Kinds(() if state.kinds is None else state.kinds.auto, names), function)


def with_kinds(kinds: Kinds | None, function: Callable[[], _Result]) -> _Result:
    """Call a function inside of which axes have these kinds; None: those that their mesh says."""
    outer = state.kinds
    try:
        state.kinds = kinds
        return function()
    finally:
        state.kinds = outer


def axis_types(mesh: AbstractMesh) -> tuple[AxisType, ...]:
    """The kinds that the axes of a mesh have here."""
    auto, explicit = state.kinds or ((), ())

    def kind(name: Hashable, own: AxisType) -> AxisType:
        mapped, _ = state.axes.get(name, (state, 0))
        if mapped is None:
            return AxisType.Manual
        if name in explicit:
            return AxisType.Explicit
        return AxisType.Auto if own is AxisType.Explicit and name in auto else own

    return tuple(map(kind, mesh.axis_names, mesh.axis_types))


def explicit_axes(mesh: AbstractMesh) -> tuple[Hashable, ...]:
    """The axes of a mesh that are part of types here."""
    return _axes_of_type(mesh, AxisType.Explicit)


def manual_axes(mesh: AbstractMesh) -> tuple[Hashable, ...]:
    """The axes of a mesh that a function of parts around is about."""
    return _axes_of_type(mesh, AxisType.Manual)


def _axes_of_type(mesh: AbstractMesh, kind: AxisType) -> tuple[Hashable, ...]:
    kinds = zip(mesh.axis_names, axis_types(mesh), strict=True)
    return tuple(name for name, found in kinds if found is kind)
