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
from tinyxla.tracing.device import check_device, check_devices


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
        backend, execution_devices: None, or those there are.

    Returns:
        A compiled function.

    Raises:
        BytecodeError: the bytes are damaged.
        ArgumentError: another device.
    """
    if isinstance(backend, str):
        check_device("deserialize_and_load: backend", backend)
    check_devices("deserialize_and_load: execution_devices", execution_devices)
    exported = deserialize(bytearray(serialized))

    def program(*args: Any, **kwargs: Any) -> Any:
        return pytrees.unflatten(out_tree, exported.call(*pytrees.flatten_shown((args, kwargs))[0]))

    program.__name__ = exported.fun_name
    args, kwargs = pytrees.unflatten(in_tree, exported.in_avals)
    return jit(program).lower(*args, **kwargs).compile()
