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
        custom_call_api_version: 4 for typed handlers, less for other functions.
        legacy_backend_config: a text for functions that are no typed handlers.

    Returns:
        A function of arrays, whose keywords are attributes of the call.

    Raises:
        ArgumentError: an unknown `vmap_method`, a result without shape or type, layouts that are no orders of the
            dimensions or not one for each array, `legacy_backend_config` of a typed handler, attributes of another.
    """
    is_sequence = isinstance(result_shape_dtypes, list | tuple)
    results = list(result_shape_dtypes) if is_sequence else [result_shape_dtypes]
    for number, result in enumerate(results):
        if not hasattr(result, "shape") or not hasattr(result, "dtype"):
            raise ArgumentError(
                f"ffi_call of {target_name!r}: result {number} must have a shape and a dtype, but is {result!r}."
            )
    if custom_call_api_version >= 4 and legacy_backend_config is not None:
        raise ArgumentError(
            f"ffi_call of {target_name!r}: legacy_backend_config is for functions that are no typed handlers, and "
            f"custom_call_api_version is {custom_call_api_version}; give attributes, or a version below 4."
        )
    outputs = [None] * len(results) if output_layouts is None else output_layouts if is_sequence else [output_layouts]
    _check_one_each(target_name, "output_layouts", outputs, "results", results)
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
        if attributes and custom_call_api_version < 4:
            raise ArgumentError(
                f"ffi_call of {target_name!r}: attributes are for typed handlers, and custom_call_api_version is "
                f"{custom_call_api_version}; give legacy_backend_config, or version 4."
            )
        inputs = [None] * len(args) if input_layouts is None else input_layouts
        _check_one_each(target_name, "input_layouts", inputs, "arguments", args)
        given = [_laid_out(x, _order(layout, jnp.ndim(x))) for layout, x in zip(inputs, args, strict=True)]
        found = [_row_major(x, order) for x, order in zip(call(*given, **attributes), orders, strict=True)]
        return type(result_shape_dtypes)(found) if is_sequence else found[0]

    return function


def _check_one_each(target: str, name: str, layouts: Sequence[Any], kind: str, arrays: Sequence[Any]) -> None:
    if len(layouts) != len(arrays):
        raise ArgumentError(
            f"ffi_call of {target!r}: {name} has {len(layouts)} entries, but the {kind} are {len(arrays)}."
        )


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


def ffi_lowering(
    call_target_name: str,
    *,
    operand_layouts: Sequence[Any] | None = None,
    result_layouts: Sequence[Any] | None = None,
    has_side_effect: bool = False,
    operand_output_aliases: Mapping[int, int] | None = None,
    api_version: int = 4,
    backend_config: Any = None,
    **ignored: Any,
) -> Callable[..., list[Any]]:
    """The lowering rule of a primitive that is a registered foreign function, whose results have the types that the
    primitive's abstract evaluation gives.

    Args:
        call_target_name: the name under which `ffi.register_ffi_target` knows the function.
        operand_layouts: for each operand a `Layout`, or the order of its dimensions in memory, the minor one first as
            in XLA; None is row-major.
        result_layouts: the same of the results.
        has_side_effect, operand_output_aliases, api_version: `has_side_effect`, `input_output_aliases` and
            `custom_call_api_version` of `ffi_call`.
        backend_config: attributes of the call beside the primitive's parameters, or a text for functions that are no
            typed handlers.

    Raises:
        ArgumentError: when it is called: layouts and aliases as of `ffi_call`.
    """
    attributes = backend_config if isinstance(backend_config, Mapping) else {}

    def rule(context: Any, *operands: Any, **params: Any) -> list[Any]:
        call = ffi_call(
            call_target_name,
            [ShapeDtypeStruct(aval.shape, aval.dtype) for aval in context.avals_out],
            has_side_effect=has_side_effect,
            input_layouts=_major_to_minor(operand_layouts),
            output_layouts=_major_to_minor(result_layouts),
            input_output_aliases=operand_output_aliases,
            custom_call_api_version=api_version,
            legacy_backend_config=backend_config if isinstance(backend_config, str) else None,
        )
        return list(call(*operands, **attributes, **params))

    return rule


def _major_to_minor(layouts: Sequence[Any] | None) -> list[Any] | None:
    """Layouts whose orders begin with the major dimension, of such that begin with the minor one."""
    if layouts is None:
        return None
    return [x if x is None or hasattr(x, "major_to_minor") else tuple(x)[::-1] for x in layouts]


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Say that a function treats the leading dimensions of its operands as examples. Programs over several devices give
    such functions whole arrays, as they do others.

    Args:
        name: of the function.
    """
