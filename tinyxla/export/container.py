"""The bytes of an exported function: a header in JSON, the program, and derivatives.

    magic           16 bytes
    checksum        32 bytes, SHA-256 of all that follows
    version         4 bytes, little-endian
    header          its length in 4 bytes, and JSON in UTF-8
    program         its length in 8 bytes, and a portable artifact of StableHLO or text in UTF-8
    derivative      its length in 8 bytes, and another such container; of length 0 if there is none

Nothing in it is executed when it is read; damaged bytes do not have the checksum. Artifacts of `jax.export` are read,
too: they are told by the magic number of their own.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from typing import Any

from tinyxla.api.functions import ShapeDtypeStruct
from tinyxla.errors import ArgumentError, BytecodeError, DTypeError, TinyxlaError
from tinyxla.export.exported import DisabledSafetyCheck, Exported
from tinyxla.export.exporting import no_derivative
from tinyxla.export.layouts import Layouts
from tinyxla.export.symbols import SymbolicScope
from tinyxla.export.trees import tree_from_json, tree_of_artifact, tree_to_json
from tinyxla.shapes import KEY_TYPES, element_type
from tinyxla.shapes.symbolic_text import parse_dimensions
from tinyxla.stablehlo import bytecode
from tinyxla.text.mlir.assembly import parse_module
from tinyxla.text.mlir.ir import ModuleOp
from tinyxla.tracing.promotion import float0

_MAGIC = b"tinyxla exported"
_VERSION = 1
_MAX_ORDERS = 10
_KEYS = {t.name: t for t in KEY_TYPES.values()}


def serialized(exported: Exported, vjp_order: Any) -> bytearray:
    """The bytes of an exported function, with so many derivatives."""
    if not isinstance(vjp_order, int) or not 0 <= vjp_order <= _MAX_ORDERS:
        raise ArgumentError(f"serialize: vjp_order is an integer from 0 to {_MAX_ORDERS}, but is {vjp_order!r}.")
    header = json.dumps(_header(exported)).encode()
    program = exported.mlir_module_serialized
    derivative = bytes(serialized(exported.vjp(), vjp_order - 1)) if vjp_order else b""
    sections = (struct.pack("<II", _VERSION, len(header)), header, struct.pack("<Q", len(program)), program)
    body = b"".join((*sections, struct.pack("<Q", len(derivative)), derivative))
    return bytearray(_MAGIC + hashlib.sha256(body).digest() + body)


def _header(exported: Exported) -> dict[str, Any]:
    scope = exported._system.scope  # pyright: ignore[reportPrivateUsage]
    return {
        "fun_name": exported.fun_name,
        "in_tree": tree_to_json(exported.in_tree),
        "in_avals": [_written(t) for t in exported.in_avals],
        "out_tree": tree_to_json(exported.out_tree),
        "out_avals": [_written(t) for t in exported.out_avals],
        "constraints": [] if scope is None else scope.texts,
        "platforms": exported.platforms,
        "nr_devices": exported.nr_devices,
        "layouts": None if exported.layouts is None else exported.layouts.to_json(),
        "module_kept_var_idx": exported.module_kept_var_idx,
        "calling_convention_version": exported.calling_convention_version,
        "takes_platform": exported.takes_platform,
        "disabled_checks": [str(check) for check in exported.disabled_safety_checks],
    }


def _written(t: ShapeDtypeStruct) -> list[Any]:
    name = "float0" if t.dtype == float0 else t.dtype.name
    return [", ".join(map(str, t.shape)), name, t.weak_type]


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
    if data.startswith(_MAGIC):
        return _read(data)
    return _of_artifact(bytecode.read_exported(data))


def _read(data: bytes) -> Exported:
    start = len(_MAGIC) + 32
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise BytecodeError("the exported function is damaged: its checksum is another one", len(_MAGIC))
    try:
        version, size = struct.unpack_from("<II", body)
        if version > _VERSION:
            raise BytecodeError(f"its version is {version}, but this library reads up to {_VERSION}; update it", start)
        header, at = _section(body, 8, size)
        program, at = _section(body, at + 8, *struct.unpack_from("<Q", body, at))
        derivative, at = _section(body, at + 8, *struct.unpack_from("<Q", body, at))
        fields = json.loads(header)
        if at != len(body) or not isinstance(fields, dict):
            raise BytecodeError("an exported function has bytes after its end, or no header", start + at)
        return _of_fields(fields, _module(program), derivative)
    except TinyxlaError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, struct.error) as error:
        raise BytecodeError(f"an exported function is not as it is written here: {error}", start) from None


def _module(program: bytes) -> ModuleOp:
    return bytecode.read(program) if program.startswith(bytecode.MAGIC) else parse_module(program.decode())


def _section(body: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(body):
        raise BytecodeError("an exported function ends early", at)
    return body[at : at + size], at + size


def _of_fields(fields: dict[str, Any], module: ModuleOp, derivative: bytes) -> Exported:
    scope = SymbolicScope(fields["constraints"])
    in_avals, out_avals = (
        tuple(_aval(*row, scope=scope) for row in fields[name]) for name in ("in_avals", "out_avals")
    )
    in_tree, out_tree = (tree_from_json(fields[name]) for name in ("in_tree", "out_tree"))
    return _checked(
        Exported(
            fun_name=str(fields["fun_name"]),
            in_tree=in_tree,
            in_avals=in_avals,
            out_tree=out_tree,
            out_avals=out_avals,
            platforms=tuple(map(str, fields["platforms"])),
            module_kept_var_idx=tuple(map(int, fields["module_kept_var_idx"])),
            module=module,
            disabled_safety_checks=_checks(fields["disabled_checks"]),
            nr_devices=int(fields["nr_devices"]),
            layouts=_layouts(fields.get("layouts"), len(in_avals), len(out_avals)),
            calling_convention_version=int(fields["calling_convention_version"]),
            takes_platform=bool(fields["takes_platform"]),
            get_vjp=(lambda _: _read(derivative)) if derivative else None,
        )
    )


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
    takes = len(main.type.inputs) - exported.takes_platform
    some = sum(t.dtype != float0 for t in exported.out_avals)
    if (
        any(not 0 <= k < counts[0] for k in kept)
        or takes != len(kept)
        or len(main.type.results) not in (some, counts[1])
    ):
        raise BytecodeError("an exported function's @main does not take its arguments or give its results", 0)
    return exported


def _checks(names: Sequence[str]) -> tuple[DisabledSafetyCheck, ...]:
    return tuple(DisabledSafetyCheck(str(name)) for name in names)


def _aval(shape: str, dtype: str, weak_type: bool = False, *, scope: SymbolicScope) -> ShapeDtypeStruct:
    dimensions = parse_dimensions(shape, scope, None, "The shape")
    if dtype == "float0":
        return no_derivative(ShapeDtypeStruct(dimensions, "bool"))
    if dtype.startswith("key<"):
        if dtype not in _KEYS:
            raise DTypeError(f"deserialize: there are no keys of the type {dtype} here.")
        return ShapeDtypeStruct(dimensions, _KEYS[dtype])
    return ShapeDtypeStruct(dimensions, element_type(dtype).dtype, weak_type=bool(weak_type))


def _of_artifact(given: bytecode.Exported) -> Exported:
    """An artifact of `jax.export`."""
    effects = (*given.ordered_effects, *given.unordered_effects)
    if effects:
        raise ArgumentError(
            f"deserialize: {given.function_name} has effects ({', '.join(effects)}), calls of Python, which cannot be "
            "run from an artifact; export it without them."
        )
    if given.nr_devices != 1:
        raise ArgumentError(
            f"deserialize: {given.function_name} was exported for {given.nr_devices} devices, but there is one here."
        )
    scope = SymbolicScope()
    in_avals, out_avals = (
        tuple(_aval(", ".join(t.shape), t.dtype, scope=scope) for t in avals)
        for avals in (given.in_avals, given.out_avals)
    )
    inner = given.vjp
    return _checked(
        Exported(
            fun_name=given.function_name,
            in_tree=tree_of_artifact(given.in_tree),
            in_avals=in_avals,
            out_tree=tree_of_artifact(given.out_tree),
            out_avals=out_avals,
            platforms=given.platforms,
            module_kept_var_idx=given.module_kept_var_idx,
            module=bytecode.read(given.mlir_module_serialized),
            disabled_safety_checks=_checks(given.disabled_checks),
            nr_devices=given.nr_devices,
            calling_convention_version=given.calling_convention_version,
            takes_platform=len(given.platforms) > 1,
            get_vjp=(lambda _: _of_artifact(inner)) if inner is not None else None,
        )
    )
