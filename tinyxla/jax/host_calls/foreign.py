"""Foreign functions with JAX's arguments, and lowering rules of primitives that are foreign functions, or functions of
Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tinyxla import ffi, numpy as jnp
from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, MissingPackageError
from tinyxla.ops.movement import inverse_permutation


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A registered function as a function of arrays; see `tinyxla.ffi.ffi_call`.

    Args:
        target_name: the name it has been registered with.
        result_shape_dtypes: the type of the result, or a sequence of such.
        has_side_effect: it runs even if nothing needs its result.
        vmap_method: what `vmap` does.
        input_layouts: for each argument the order of its dimensions in memory, the major one first; None is row-major.
        output_layouts: the same of the result, or of each in a sequence.
        input_output_aliases: for arguments, by their number, the number of the result that shares their memory.
        custom_call_api_version: 4 for typed handlers; C functions know by their registration what they are.
        legacy_backend_config: a text for functions that are no typed handlers.

    Returns:
        A function of arrays, whose keywords are attributes of the call.

    Raises:
        ArgumentError: an unknown `vmap_method`, a layout that is no order of the dimensions, attributes beside
            `legacy_backend_config`.
    """
    is_sequence = isinstance(result_shape_dtypes, list | tuple)
    results = list(result_shape_dtypes) if is_sequence else [result_shape_dtypes]
    outputs = [None] * len(results) if output_layouts is None else output_layouts if is_sequence else [output_layouts]
    orders = [_order(layout, len(x.shape)) for layout, x in zip(outputs, results, strict=True)]
    call: Any = ffi.ffi_call(
        target_name,
        [ShapeDtypeStruct(tuple(x.shape), x.dtype) for x in results],
        has_side_effect=has_side_effect,
        vmap_method=vmap_method,
        input_output_aliases=input_output_aliases,
        backend_config=legacy_backend_config or "",
    )

    def function(*args: Any, **attributes: Any) -> Any:
        if attributes and legacy_backend_config is not None:
            raise ArgumentError(
                f"ffi_call of {target_name!r}: attributes are for typed handlers, legacy_backend_config is for others; "
                "give one of them."
            )
        inputs = [None] * len(args) if input_layouts is None else input_layouts
        given = [_laid_out(x, _order(layout, jnp.ndim(x))) for layout, x in zip(inputs, args, strict=True)]
        found = [_row_major(x, order) for x, order in zip(call(*given, **attributes), orders, strict=True)]
        return type(result_shape_dtypes)(found) if is_sequence else found[0]

    return function


def _order(layout: Any, rank: int) -> tuple[int, ...] | None:
    """The order of dimensions in memory that a layout says; None if it is row-major."""
    order = getattr(layout, "major_to_minor", layout)
    if order is None or tuple(order) == tuple(range(rank)):
        return None
    if sorted(order) != list(range(rank)):
        raise ArgumentError(f"ffi_call: the layout {order} is no order of the {rank} dimensions of its array.")
    return tuple(order)


def _laid_out(x: Any, order: tuple[int, ...] | None) -> Any:
    """An array whose row-major memory is that of x with its dimensions in another order."""
    return x if order is None else jnp.transpose(x, order).reshape(jnp.shape(x))


def _row_major(x: Any, order: tuple[int, ...] | None) -> Any:
    """The array whose memory, with its dimensions in another order, is that of x."""
    if order is None:
        return x
    return x.reshape([x.shape[k] for k in order]).transpose(inverse_permutation(order))


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> None:
    """Give a type of states its number; see `tinyxla.ffi.register_ffi_type`."""
    ffi.register_ffi_type(name, {"type_id": obj}, platform)


def include_dir() -> str:
    """The folder of the C and C++ headers with which handlers are compiled, those of `jaxlib`.

    Raises:
        MissingPackageError: `jaxlib` is not installed.
    """
    for folder in sys.path:
        found = Path(folder or ".", "jaxlib", "include")
        if (found / "xla" / "ffi" / "api" / "ffi.h").is_file():
            return str(found)
    raise MissingPackageError(
        "jax.ffi.include_dir: the headers of XLA's foreign function interface come with jaxlib, which is not "
        "installed; handlers that are compiled run without it."
    )


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
        found: Any = ffi.ffi_call(call_target_name, structs)(*operands, **params)
        return list(found)

    return rule
