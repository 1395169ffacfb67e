"""The bytes of an exported function: an artifact of `jax.export`, and behind it what such artifacts do not have.

    artifact        a FlatBuffer (`tinyxla.stablehlo.bytecode.exported`), with an identifier in its bytes 4 to 8
    additions       JSON in UTF-8: constraints of symbolic dimensions and where arrays are, for the function and each of
                    its derivatives
    length          of the additions in 4 bytes, little-endian
    checksum        32 bytes, SHA-256 of all that precedes

`jax.export.deserialize` reads the artifact and passes the others by; artifacts without the identifier, which are
JAX's, have none. Nothing is executed when they are read.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, BytecodeError, DTypeError, TinyxlaError
from tinyxla.export.exported import DisabledSafetyCheck, Exported
from tinyxla.export.exporting import no_derivative
from tinyxla.export.layouts import Layouts, layouts_of_artifact
from tinyxla.export.symbols import SymbolicScope
from tinyxla.export.trees import read_tree, written_tree
from tinyxla.shapes import KEY_TYPES, element_type
from tinyxla.shapes.symbolic_text import parse_dimensions
from tinyxla.stablehlo import bytecode
from tinyxla.text.mlir.assembly import parse_module
from tinyxla.text.mlir.ir import ModuleOp
from tinyxla.tracing.promotion import float0

_MAX_ORDERS = 10
_KEYS = {t.name: t for t in KEY_TYPES.values()}


def serialized(exported: Exported, vjp_order: Any) -> bytearray:
    """The bytes of an exported function, with so many derivatives."""
    if not isinstance(vjp_order, int) or not 0 <= vjp_order <= _MAX_ORDERS:
        raise ArgumentError(f"serialize: vjp_order is an integer from 0 to {_MAX_ORDERS}, but is {vjp_order!r}.")
    functions = [exported]
    for _ in range(vjp_order):
        functions.append(functions[-1].vjp())
    written: bytecode.Exported | None = None
    for function in reversed(functions):
        written = _artifact(function, written)
    assert written is not None, "there is the function itself"
    additions = json.dumps([_additions(function) for function in functions]).encode()
    body = bytecode.write_exported(written) + additions + struct.pack("<I", len(additions))
    return bytearray(body + hashlib.sha256(body).digest())


def _artifact(exported: Exported, vjp: bytecode.Exported | None) -> bytecode.Exported:
    in_shardings, out_shardings = (
        ((None,) * len(exported.in_avals), (None,) * len(exported.out_avals))
        if exported.layouts is None
        else exported.layouts.shardings()
    )
    return bytecode.Exported(
        function_name=exported.fun_name,
        in_tree=written_tree(exported.in_tree),
        in_avals=tuple(map(_written, exported.in_avals)),
        out_tree=written_tree(exported.out_tree),
        out_avals=tuple(map(_written, exported.out_avals)),
        nr_devices=exported.nr_devices,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        platforms=exported.platforms,
        ordered_effects=(),
        unordered_effects=(),
        disabled_checks=tuple(map(str, exported.disabled_safety_checks)),
        mlir_module_serialized=exported.mlir_module_serialized,
        calling_convention_version=exported.calling_convention_version,
        module_kept_var_idx=exported.module_kept_var_idx,
        uses_global_constants=exported.uses_global_constants,
        vjp=vjp,
    )


def _written(t: ShapeDtypeStruct) -> bytecode.Aval:
    name = "float0" if t.dtype == float0 else t.dtype.name
    return bytecode.Aval(tuple(map(str, t.shape)), name, "device")


def _additions(exported: Exported) -> dict[str, Any]:
    scope = exported._system.scope  # pyright: ignore[reportPrivateUsage]
    return {
        "constraints": [] if scope is None else scope.texts,
        "layouts": None if exported.layouts is None else exported.layouts.to_json(),
    }


def deserialize(blob: Any) -> Exported:
    """An exported function from its bytes.

    Args:
        blob: what `Exported.serialize` gave, here or in `jax.export`.

    Returns:
        The exported function.

    Raises:
        BytecodeError: the bytes are neither, or damaged.
        ArgumentError: a container among arguments or results is not registered, or what the program needs is not
            supported.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla import export
        >>> data = export.export(tx.jit(lambda x: 2 * x))(1.0).serialize()
        >>> export.deserialize(data).call(3.0)
        Array(6., dtype=float32)
    """
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise ArgumentError(f"deserialize takes bytes, but got {type(blob).__name__}.")
    data = bytes(blob)
    additions: Any = []
    if data[4:8] == bytecode.IDENTIFIER:
        data, additions = _with_additions(data)
    found = bytecode.read_exported(data)
    try:
        return _exported(found, additions)
    except TinyxlaError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise BytecodeError(f"an exported function is not as it is written: {error}", 0) from None


def _with_additions(data: bytes) -> tuple[bytes, Any]:
    """The artifact of what is written here, and its additions."""
    body = data[:-32]
    if len(body) < 12 or hashlib.sha256(body).digest() != data[-32:]:
        raise BytecodeError("the exported function is damaged: its checksum is another one", len(body))
    (size,) = struct.unpack("<I", body[-4:])
    if size > len(body) - 12:
        raise BytecodeError("an exported function ends early", len(body))
    try:
        found = json.loads(body[-4 - size : -4])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(x, dict) for x in found):
        raise BytecodeError("an exported function has no list behind its artifact", len(body) - size)
    return body[: -4 - size], found


def _module(program: bytes) -> ModuleOp:
    return bytecode.read(program) if program.startswith(bytecode.MAGIC) else parse_module(program.decode())


def _layouts(given: Any, inputs: int, outputs: int) -> Layouts | None:
    """The shardings in a file, for so many leaves of the arguments and of the results."""
    found = None if given is None else Layouts.from_json(given)
    if found is not None and [len(x) for x in found[1:]] != [inputs, outputs, outputs]:
        raise BytecodeError("an exported function has a sharding for each leaf of its arguments and results", 0)
    return found


def _checked(exported: Exported) -> Exported:
    """The same, if its parts fit each other."""
    counts = (len(exported.in_avals), len(exported.out_avals))
    kept = exported.module_kept_var_idx
    main = exported.module.functions.get("main")
    if (exported.in_tree.num_leaves, exported.out_tree.num_leaves) != counts or main is None:
        raise BytecodeError("an exported function has a type for each leaf of its arguments and results, and @main", 0)
    takes = len(main.type.inputs) - (len(exported.platforms) > 1)
    some = sum(t.dtype != float0 for t in exported.out_avals)
    if (
        any(not 0 <= k < counts[0] for k in kept)
        or takes != len(kept)
        or len(main.type.results) not in (some, counts[1])
    ):
        raise BytecodeError("an exported function's @main does not take its arguments or give its results", 0)
    return exported


def _aval(t: bytecode.Aval, scope: SymbolicScope) -> ShapeDtypeStruct:
    dimensions = parse_dimensions(", ".join(t.shape), scope, None, "The shape")
    if t.dtype == "float0":
        return no_derivative(ShapeDtypeStruct(dimensions, "bool"))
    if t.dtype.startswith("key<"):
        if t.dtype not in _KEYS:
            raise DTypeError(f"deserialize: there are no keys of the type {t.dtype} here.")
        return ShapeDtypeStruct(dimensions, _KEYS[t.dtype])
    return ShapeDtypeStruct(dimensions, element_type(t.dtype).dtype)


def _exported(given: bytecode.Exported, additions: list[dict[str, Any]]) -> Exported:
    """The function of an artifact, with the additions for it and its derivatives, if there are such."""
    effects = (*given.ordered_effects, *given.unordered_effects)
    if effects:
        raise ArgumentError(
            f"deserialize: {given.function_name} has effects ({', '.join(effects)}), calls of Python, which cannot be "
            "run from an artifact; export it without them."
        )
    own: dict[str, Any] = additions[0] if additions else {}
    scope = SymbolicScope(own.get("constraints", ()))
    in_avals, out_avals = (tuple(_aval(t, scope) for t in avals) for avals in (given.in_avals, given.out_avals))
    inner = given.vjp
    return _checked(
        Exported(
            fun_name=given.function_name,
            in_tree=read_tree(given.in_tree),
            in_avals=in_avals,
            out_tree=read_tree(given.out_tree),
            out_avals=out_avals,
            platforms=given.platforms,
            module_kept_var_idx=given.module_kept_var_idx,
            module=_module(given.mlir_module_serialized),
            disabled_safety_checks=tuple(map(DisabledSafetyCheck, given.disabled_checks)),
            nr_devices=given.nr_devices,
            layouts=_layouts(own["layouts"], len(in_avals), len(out_avals)) if own else layouts_of_artifact(given),
            calling_convention_version=given.calling_convention_version,
            get_vjp=(lambda _: _exported(inner, additions[1:])) if inner is not None else None,
        )
    )
