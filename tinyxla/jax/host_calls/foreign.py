"""Lowering rules of primitives that are foreign functions, or functions of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.ffi import ffi_call
from tinyxla.jax.host_calls.callbacks import io_callback, pure_callback


def ffi_lowering(call_target_name: str, **ignored: Any) -> Callable[..., list[Any]]:
    """The lowering rule of a primitive that is a registered foreign function, whose results have the types that the
    primitive's abstract evaluation gives.

    Args:
        call_target_name: the name under which `ffi.register_ffi_target` knows the function.

    Raises:
        ArgumentError: when it is called, for a name that is not registered.
    """

    def rule(context: Any, *operands: Any, **params: Any) -> list[Any]:
        structs = [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in context.avals_out]
        found: Any = ffi_call(call_target_name, structs)(*operands, **params)
        return list(found)

    return rule


def emit_python_callback(
    context: Any,
    callback: Callable[..., Any],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    **ignored: Any,
) -> tuple[list[Any], Any, None]:
    """In a lowering rule: a call of a function of Python for NumPy's arrays, which gives a sequence of the results.

    Returns:
        The results, the token, and None: the program refers to the function itself.
    """
    structs = [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in result_avals]
    call: Any = io_callback if has_side_effect else pure_callback
    return list(call(lambda *values: list(callback(*values)), structs, *operands)), token, None
