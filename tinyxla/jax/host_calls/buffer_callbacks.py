"""Callbacks that write their results into buffers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.jax.host_calls.callbacks import io_callback, pure_callback
from tinyxla.tracing import pytrees


class ExecutionStage(enum.Enum):
    """When a callback is called: here always when its results are computed."""

    PREPARE = 0
    INITIALIZE = 1
    EXECUTE = 2


class ExecutionContext(NamedTuple):
    """What a callback is told of the execution: there is one stage, and no stream."""

    stage: ExecutionStage = ExecutionStage.EXECUTE
    stream: int = 0


class Buffer:
    """The memory of an array: `numpy.asarray(buffer)` is a view of it, which can be written to if it is a result's."""

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self._memory = memory

    shape = property(lambda self: self._memory.shape)
    dtype = property(lambda self: self._memory.dtype)
    ndim = property(lambda self: self._memory.ndim)
    writeable = property(lambda self: self._memory.flags.writeable)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the memory."""
        return self._memory.ctypes.data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._memory, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._memory.__dlpack_device__()


def buffer_callback(
    callback: Callable[..., None],
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_output_aliases: dict[int, int] | None = None,
    command_buffer_compatible: bool = False,
) -> Callable[..., Any]:
    """A function whose results a Python function writes into buffers, also inside of compiled functions.

    Args:
        callback: `callback(context, results, *args)`, of a pytree of `Buffer`s like the results, and of pytrees of
            `Buffer`s with the arguments.
        result_shape_dtypes: a pytree of `ShapeDtypeStruct`s, or of arrays that are like the results.
        has_side_effect: whether the callback does anything else than writing its results.
        vmap_method: what `vmap` does, as for `pure_callback`.
        input_output_aliases: for numbers of arguments that of the result whose buffer has the argument's elements when
            the callback is called; both are counted as leaves.
        command_buffer_compatible: of GPUs; says nothing here.

    Example:
        >>> import tinyxla.jax
        >>> import jax, numpy as np
        >>> from jax.experimental.buffer_callback import buffer_callback
        >>> def add_one(context, out, x):
        ...     np.asarray(out)[...] = np.asarray(x) + 1
        >>> jax.jit(buffer_callback(add_one, jax.ShapeDtypeStruct((), np.int32)))(41)
        Array(42, dtype=int32)
    """
    structs, tree = pytrees.flatten(result_shape_dtypes)
    aliases = dict(input_output_aliases or {})
    for operand, result in aliases.items():
        if not 0 <= result < len(structs):
            raise ArgumentError(
                f"buffer_callback: input_output_aliases gives argument {operand} the result {result}, but there are "
                f"{len(structs)} results."
            )

    def on_host(*args: Any) -> Any:
        leaves, args_tree = pytrees.flatten(args)
        given = [_read_only(x) for x in leaves]
        found = [np.zeros(s.shape, s.dtype) for s in structs]
        for operand, result in aliases.items():
            found[result] = np.array(given[operand]).reshape(structs[result].shape)
        results = pytrees.unflatten(tree, list(map(Buffer, found)))
        callback(ExecutionContext(), results, *pytrees.unflatten(args_tree, list(map(Buffer, given))))
        return pytrees.unflatten(tree, found)

    def call(*args: Any) -> Any:
        if has_side_effect:
            return io_callback(on_host, result_shape_dtypes, *args)
        return pure_callback(on_host, result_shape_dtypes, *args, vmap_method=vmap_method)

    return call


def _read_only(x: Any) -> np.ndarray[Any, Any]:
    memory = np.asarray(x).view()
    memory.flags.writeable = False
    return memory
