"""`pmap`: a function mapped over an axis that stands for devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, cast

from tinyxla.api import callbacks, vmap
from tinyxla.api.functions import Function, as_integers, check_callable, name_of
from tinyxla.api.jit import jit
from tinyxla.errors import ArgumentError
from tinyxla.partitioning.execution import constrained
from tinyxla.tracing import pytrees
from tinyxla.tracing.core import state
from tinyxla.tracing.device import Device, check_device, check_devices, devices_of, process_index
from tinyxla.tracing.meshes import Mesh
from tinyxla.tracing.promotion import as_array
from tinyxla.tracing.shardings import NamedSharding, PartitionSpec
from tinyxla.tracing.signatures import P, R
from tinyxla.util.tracebacks import boundary
from tinyxla.util.wrapping import transformed, wraps


@boundary
def pmap(
    fun: Callable[P, R],
    axis_name: Hashable | None = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
) -> Callable[P, R]:
    """Compile a function, with one copy of it for each element of an axis of its arguments.

    Each device has one copy, and its part of the results. Without as many devices the copies are computed together, as
    by `vmap`, on all processors that the process has: so the axis may have any size. The function may talk over it by
    `lax.psum(x, axis_name)` and the like.

    Args:
        fun: written for one copy.
        axis_name: a name of the axis.
        in_axes: for each positional argument (or for all) the axis to map over, or None. Keyword arguments are mapped
            over their first axis.
        out_axes: where the mapped axis stands in the results.
        static_broadcasted_argnums: positions of arguments that stay Python values, the same for all copies.
        devices: those of the copies; by default the first ones of this process.
        backend: None or "cpu".
        axis_size: the number of copies, needed only where no argument has the axis.
        donate_argnums: positions of arguments that the caller does not use again.

    Returns:
        A function of the same arguments with one more axis.

    Raises:
        ArgumentError: another device.
        The errors of `vmap` and `jit`.

    Example:
        >>> import tinyxla as tx
        >>> tx.pmap(lambda x: x / tx.lax.psum(x, "i"), axis_name="i")(tx.numpy.array([1.0, 3.0]))
        Array([0.25, 0.75], dtype=float32)
    """
    check_callable("pmap", fun)
    function: Function = cast(Any, fun)
    check_devices("pmap: devices", devices)
    check_device("pmap: backend", backend)
    static = as_integers(static_broadcasted_argnums, "pmap: static_broadcasted_argnums")

    @transformed("pmap", fun)
    def mapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(not -len(args) <= n < len(args) for n in static):
            raise ArgumentError(
                f"pmap of {name_of(fun)}: static_broadcasted_argnums is {static}, but the call has {len(args)} "
                "positional arguments; pass these by position."
            )
        held = {n % len(args): args[n % len(args)] for n in static}
        places = [n for n in range(len(args)) if n not in held]

        @wraps(fun)
        def copy(*values: Any, **named: Any) -> Any:
            whole = {**held, **dict(zip(places, values, strict=True))}
            with callbacks.for_each_copy():
                return function(*(whole[n] for n in range(len(args))), **named)

        axes: Any = in_axes
        if held and isinstance(in_axes, (tuple, list)) and len(in_axes) == len(args):
            axes = tuple(in_axes[n] for n in places)
        result = vmap(copy, axes, out_axes, axis_name, axis_size)(*(args[n] for n in places), **kwargs)
        if state.axes:  # of an outer pmap, or vmap: that one's copies are on the devices
            return result
        return _over_devices(result, out_axes, local if devices is None else list(dict.fromkeys(devices)))

    local = devices_of(process_index())
    return jit(mapped, static_argnums=static, donate_argnums=donate_argnums)


_AXIS = "devices"  # of all meshes, so that what one function gives another takes, whatever they call the axis


def _over_devices(result: Any, out_axes: Any, devices: Sequence[Device]) -> Any:
    """The results of copies, split along their axes over as many devices, if there are several and enough of them."""
    leaves, structure = pytrees.flatten(result)
    of_keys = pytrees.key_leaves(structure)
    axes = pytrees.broadcast_prefix(out_axes, result, "pmap: out_axes")
    leaves = [x if keys else as_array(x) for x, keys in zip(leaves, of_keys, strict=True)]
    axes = [
        axis if axis is None else axis % (x.ndim - keys) for axis, x, keys in zip(axes, leaves, of_keys, strict=True)
    ]
    counts = {x.shape[axis] for x, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(devices) == 1 or not counts or not 0 < max(counts) <= len(devices):
        return pytrees.unflatten(structure, leaves)
    mesh = Mesh(devices[: max(counts)], (_AXIS,))
    specs = [PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, _AXIS) for axis in axes]
    return pytrees.unflatten(
        structure, [constrained(x, NamedSharding(mesh, spec)) for x, spec in zip(leaves, specs, strict=True)]
    )
