"""Functions inside of which axes of a mesh are of another kind: left to the compiler, or part of types."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from tinyxla.api.functions import check_callable
from tinyxla.api.jit import Jitted
from tinyxla.errors import ArgumentError, ManualAxisError, MeshError
from tinyxla.partitioning.placement import is_placement, placed
from tinyxla.tracing import pytrees
from tinyxla.tracing.axis_types import manual_axes, with_auto_axes, with_explicit_axes
from tinyxla.tracing.core import state
from tinyxla.tracing.meshes import current_mesh
from tinyxla.tracing.shardings import NamedSharding
from tinyxla.transforms.sharding_types import has_types, with_type_of
from tinyxla.util.wrapping import transformed, wraps

Function = Callable[..., Any]


def auto_axes(f: Function | None = None, /, *, axes: Any = None, out_sharding: Any = None) -> Any:
    """A function inside of which the compiler decides how arrays are split along explicit axes.

    Args:
        f: of pytrees of arrays; without it there is a decorator.
        axes: the axes, a name or several; by default all.
        out_sharding: how the results are split, a pytree of shardings or `PartitionSpec`s that may stop earlier than
            they do. A call may pass it instead.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: there is no out_sharding, or no such axis.

    Source: the documentation of JAX, section "Explicit sharding".

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.sharding import AxisType, auto_axes
        >>> mesh = tx.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))
        >>> with tx.set_mesh(mesh):
        ...     x = tx.device_put(tx.numpy.ones((2, 2)), tx.P("x"))
        ...     tx.typeof(auto_axes(lambda x: x @ x.T, out_sharding=tx.P("x"))(x)).sharding.spec
        PartitionSpec('x', None)
    """
    if f is None:
        return lambda f: auto_axes(f, axes=axes, out_sharding=out_sharding)
    check_callable("auto_axes", f)

    @transformed("auto_axes", f)
    def function(*args: Any, **kwargs: Any) -> Any:
        where = _given("auto_axes", "out_sharding", "results", out_sharding, kwargs)
        names = _names("auto_axes", axes, where)
        _check_not_manual("auto_axes", names)
        found = with_auto_axes(names, lambda: f(*args, **kwargs))
        return placed("auto_axes: out_sharding", found, where, is_type=True)

    return function


def explicit_axes(f: Function | None = None, /, *, axes: Any = None, in_sharding: Any = None) -> Any:
    """A function inside of which the sharding along axes that are left to the compiler is part of types.

    Args:
        f: of pytrees of arrays; without it there is a decorator.
        axes: the axes, a name or several; by default all.
        in_sharding: how the arguments are split, a pytree as for `auto_axes`. A call may pass it instead.

    Returns:
        A function of the same arguments.

    Raises:
        ArgumentError: there is no in_sharding, or no such axis.

    Source: the documentation of JAX, section "Explicit sharding".

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla.sharding import explicit_axes
        >>> with tx.set_mesh(tx.make_mesh((1,), ("x",))):
        ...     explicit_axes(lambda x: x.T, in_sharding=tx.P("x"))(tx.numpy.ones((2, 3))).shape
        (3, 2)
    """
    if f is None:
        return lambda f: explicit_axes(f, axes=axes, in_sharding=in_sharding)
    check_callable("explicit_axes", f)

    @transformed("explicit_axes", f)
    def function(*args: Any, **kwargs: Any) -> Any:
        where = _given("explicit_axes", "in_sharding", "arguments", in_sharding, kwargs)

        def typed(*given: Any) -> Any:
            result = f(*placed("explicit_axes: in_sharding", given, where), **kwargs)
            return pytrees.map_tree(lambda x: with_type_of(x, x), result)

        def call() -> Any:
            if state.staging is None or has_types(state.staging):
                return typed(*args)
            return Jitted(wraps(f)(typed), frozenset(), frozenset())(*args)  # a trace of its own, which knows of types

        return with_explicit_axes(_names("explicit_axes", axes, where), call)

    return function


def _check_not_manual(what: str, names: frozenset[Hashable]) -> None:
    """Refuse axes that a function of parts is about."""
    for name in manual_axes(current_mesh()):
        if name in names:
            raise ManualAxisError(
                f"{what}: the axis {name!r} is manual here, in a function of parts; name other axes, or leave it out."
            )


def _given(what: str, option: str, arrays: str, sharding: Any, kwargs: dict[str, Any]) -> Any:
    """How arrays are split, as the transformation says, or else the call by a keyword."""
    where = kwargs.pop(option, None) if sharding is None else sharding
    if where is None:
        raise ArgumentError(f"{what}: there must be an {option}, which says how the {arrays} are split.")
    return where


def _names(what: str, axes: Any, shardings: Any) -> frozenset[Hashable]:
    """Axes of the current mesh, or of that of shardings: those that are named, or all."""
    leaves, _ = pytrees.flatten_shown(shardings, is_placement)
    mesh = next((x.mesh for x in leaves if current_mesh().empty and isinstance(x, NamedSharding)), current_mesh())
    if mesh.empty:
        raise MeshError(f"{what}: there is no mesh; make one the current by set_mesh.")
    if axes is None:
        return frozenset(mesh.axis_names)
    names = frozenset((axes,) if isinstance(axes, str) else axes)
    unknown = sorted(names - set(mesh.axis_names), key=str)
    if unknown:
        raise ArgumentError(f"{what}: there is no axis {unknown[0]!r} in the current mesh, which has {mesh.shape}.")
    return names
