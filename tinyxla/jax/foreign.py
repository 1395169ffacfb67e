"""Lowering rules of primitives that are foreign functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.ffi import ffi_call


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
