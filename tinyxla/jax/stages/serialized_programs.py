"""Compiled programs as bytes: `jax.experimental.serialize_executable`.

The bytes are an exported function of the leaves of the arguments; what loads them compiles it, for which the kernels on
disk count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyxla.api.aot import Compiled
from tinyxla.api.jit import jit
from tinyxla.errors import ArgumentError
from tinyxla.export.container import deserialize
from tinyxla.export.exporting import default_export_platform, exported_program
from tinyxla.tracing import pytrees
from tinyxla.tracing.device import all_devices, check_device, check_devices
from tinyxla.tracing.meshes import Mesh, make_mesh
from tinyxla.tracing.shardings import NamedSharding, spec_of


def serialize(compiled: Compiled) -> tuple[bytes, Any, Any]:
    """A compiled function as bytes, and the structures of `(args, kwargs)` and of the result.

    Args:
        compiled: what `jit(f).lower(...).compile()` gives.

    Returns:
        The three arguments of `deserialize_and_load`.

    Raises:
        ArgumentError: what is no compiled function, or it has an operation without a form in StableHLO, as callbacks.
    """
    if not isinstance(compiled, Compiled):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"serialize takes a compiled function, jit(f).lower(...).compile(), but got {compiled!r}.")
    made = exported_program(compiled, (default_export_platform(),))
    flat = replace(
        made,
        in_tree=pytrees.flatten_shown((tuple(made.in_avals), {}))[1],
        out_tree=pytrees.flatten_shown(tuple(made.out_avals))[1],
    )
    return bytes(flat.serialize()), made.in_tree, made.out_tree


def deserialize_and_load(
    serialized: bytes, in_tree: Any, out_tree: Any, backend: Any = None, execution_devices: Any = None
) -> Compiled:
    """The compiled function for what `serialize` gave.

    Args:
        serialized, in_tree, out_tree: bytes and structures.
        backend: None or "cpu".
        execution_devices: the devices to run on, by default the first ones.

    Returns:
        A compiled function.

    Raises:
        BytecodeError: the bytes are damaged.
        ArgumentError: another device, or there are fewer than the function needs.
    """
    if isinstance(backend, str):
        check_device("deserialize_and_load: backend", backend)
    check_devices("deserialize_and_load: execution_devices", execution_devices)
    exported = deserialize(bytearray(serialized))
    described: list[Any] = list(exported.in_avals)
    if exported.layouts is not None:
        axes = exported.layouts.mesh
        devices = list(all_devices() if execution_devices is None else execution_devices)
        mesh: Mesh = make_mesh(axes.axis_sizes, axes.axis_names, devices=devices)
        described = [
            x if spec is None else x.update(sharding=NamedSharding(mesh, spec_of(spec)))
            for x, spec in zip(described, exported.layouts.inputs, strict=True)
        ]

    def program(*args: Any, **kwargs: Any) -> Any:
        return pytrees.unflatten(out_tree, exported.call(*pytrees.flatten_shown((args, kwargs))[0]))

    program.__name__ = exported.fun_name
    args, kwargs = pytrees.unflatten(in_tree, described)
    return jit(program).lower(*args, **kwargs).compile()
