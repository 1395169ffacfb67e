"""What `jax.export.Exported.serialize` writes: a FlatBuffer with a portable artifact, and how its function is called.

Source: the schema, `jax/_src/export/serialization.fbs` in https://github.com/jax-ml/jax.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinyxla.errors import ArgumentError, BytecodeError
from tinyxla.stablehlo.bytecode import flatbuffer
from tinyxla.stablehlo.bytecode.flatbuffer import Buffer, Number, Table

_T = TypeVar("_T")


class Tree(NamedTuple):
    """The structure of arguments or results. `kind` is `leaf`, `none`, `tuple`, `list`, `dict`, whose `keys` are those
    of the children, or `custom`: a type that was registered under `name`, with `auxdata`."""

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[str, ...] = ()
    name: str = ""
    auxdata: bytes = b""

    @property
    def leaves(self) -> int:
        """How many leaves there are."""
        return 1 if self.kind == "leaf" else sum(child.leaves for child in self.children)


class Aval(NamedTuple):
    """The type of an array: sizes as text, which may be symbolic (`2*b`), and the name of the element type, NumPy's or
    JAX's (`float32`, `bfloat16`, `float0`, `key<fry>`). `memory_space` is `device`, `host`, `any` or empty."""

    shape: tuple[str, ...]
    dtype: str
    memory_space: str = ""


class Sharding(NamedTuple):
    """How an array is distributed: the axes of the mesh, and for each dimension the axes over which it is split.
    `axis_types` are `auto`, `explicit` or `manual`. `hlo` has the bytes of XLA's form of older artifacts instead."""

    axis_names: tuple[str, ...] = ()
    axis_sizes: tuple[int, ...] = ()
    partitions: tuple[tuple[str, ...], ...] = ()
    memory_kind: str = ""
    hlo: bytes = b""
    axis_types: tuple[str, ...] = ()


class Exported(NamedTuple):
    """The fields of a serialized `jax.export.Exported`, under their names there.

    The module's `@main` takes the leaves of the arguments that `module_kept_var_idx` names; with several platforms the
    number of the platform stands before them, and with symbolic sizes the module finds these from the shapes.
    `mlir_module_serialized` is what `read` takes. `disabled_checks` are `platform` or `custom_call:target`.
    """

    function_name: str
    in_tree: Tree
    in_avals: tuple[Aval, ...]
    out_tree: Tree
    out_avals: tuple[Aval, ...]
    nr_devices: int
    in_shardings: tuple[Sharding | None, ...]
    out_shardings: tuple[Sharding | None, ...]
    platforms: tuple[str, ...]
    ordered_effects: tuple[str, ...]
    unordered_effects: tuple[str, ...]
    disabled_checks: tuple[str, ...]
    mlir_module_serialized: bytes
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    uses_global_constants: bool
    vjp: Exported | None


_TREES = ("leaf", "none", "tuple", "list", "dict", "custom")
_DTYPES = (
    *"bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split(),
    *"bfloat16 int4 uint4 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float0".split(),
    *"float8_e4m3 float8_e3m4 float8_e8m0fnu float4_e2m1fn key<fry> key<rbg> key<unsafe_rbg>".split(),
)
_SPACES = ("", "device", "host", "any")
_AXIS_TYPES = ("", "auto", "explicit", "manual")
IDENTIFIER = b"tnxl"  # of what is written here; readers that do not know it pass it by
_SCHEMA = 3  # the version that is written in artifacts, also in those of later forms


def read_exported(data: bytes | bytearray | memoryview) -> Exported:
    """The fields of a function that `jax.export` serialized.

    Args:
        data: what `jax.export.export(...)(...).serialize()` gave.

    Returns:
        The fields by name. `read(exported.mlir_module_serialized)` is the module.

    Raises:
        BytecodeError: the bytes are no such FlatBuffer, or damaged; it says the offset.
    """
    return _exported(Buffer(bytes(data)).root())


def _exported(table: Table) -> Exported:
    avals, shardings = table.tables(19, _aval), table.tables(21, _named_sharding)
    in_avals, out_avals = (
        _chosen(table.numbers(indices, "u4"), avals) if table.place(indices) is not None else table.tables(field, _aval)
        for field, indices in ((3, 22), (5, 23))
    )
    in_shardings, out_shardings = (
        _chosen(table.numbers(indices, "u4"), (None, *shardings))
        if table.place(indices) is not None
        else table.tables(field, _sharding)
        for field, indices in ((7, 24), (8, 25))
    )
    in_tree, out_tree = (_tree(table.table(field)) for field in (2, 4))
    if in_tree.leaves != len(in_avals) or out_tree.leaves != len(out_avals):
        raise BytecodeError("an exported function has a type for each leaf of its arguments and results", 0)
    kept = table.numbers(15, "u2")
    if any(k >= len(in_avals) for k in kept):
        raise BytecodeError(f"of {len(in_avals)} arguments, {kept} cannot be kept", 0)
    inner = table.table(17)
    return Exported(
        function_name=table.string(1),
        in_tree=in_tree,
        in_avals=in_avals,
        out_tree=out_tree,
        out_avals=out_avals,
        nr_devices=table.number(18, "I") or table.number(6, "h"),
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        platforms=table.strings(9),
        ordered_effects=table.tables(10, lambda effect: effect.string(0)),
        unordered_effects=table.tables(11, lambda effect: effect.string(0)),
        disabled_checks=table.tables(12, _check),
        mlir_module_serialized=table.bytes(13),
        calling_convention_version=table.number(14, "H"),
        module_kept_var_idx=kept,
        uses_global_constants=bool(table.number(16, "B")),
        vjp=None if inner is None else _exported(inner),
    )


def _chosen(indices: tuple[int, ...], found: tuple[_T, ...]) -> tuple[_T, ...]:
    if any(k >= len(found) for k in indices):
        raise BytecodeError(f"of {len(found)} types and shardings, {indices} cannot be chosen", 0)
    return tuple(found[k] for k in indices)


def _tree(table: Table | None) -> Tree:
    if table is None:
        raise BytecodeError("an exported function says the structure of its arguments and results", 0)
    kind = table.number(0, "b")
    if not 0 <= kind < len(_TREES):
        raise BytecodeError(f"a node of a tree is one of {', '.join(_TREES)}, but has the number {kind}", 0)
    found = Tree(_TREES[kind], table.tables(1, _tree), table.strings(2), table.string(3), table.bytes(4))
    if found.kind == "dict" and len(found.keys) != len(found.children):
        raise BytecodeError(f"a dict of {len(found.children)} values has {len(found.keys)} keys", 0)
    return found


def _aval(table: Table) -> Aval:
    dtype, space = table.number(2, "b"), table.number(3, "b")
    if not 0 <= dtype < len(_DTYPES) or not 0 <= space < len(_SPACES):
        raise BytecodeError(f"an element type {dtype} or a memory space {space} is not known", 0)
    return Aval(table.strings(1), _DTYPES[dtype], _SPACES[space])


def _sharding(table: Table) -> Sharding | None:
    named = table.table(2)
    if named is not None:
        return _named_sharding(named)
    hlo = table.bytes(1)
    return Sharding(hlo=hlo) if hlo else None


def _named_sharding(table: Table) -> Sharding:
    mesh, spec = table.table(0), table.table(1)
    partitions = () if spec is None else spec.tables(0, lambda axis: axis.strings(0))
    if mesh is None:
        return Sharding(partitions=partitions, memory_kind=table.string(2))
    kinds = mesh.numbers(2, "i1")
    if any(not 0 <= kind < len(_AXIS_TYPES) for kind in kinds):
        raise BytecodeError(f"of the types of axes, one of {kinds} is not known", 0)
    axis_types = tuple(_AXIS_TYPES[kind] for kind in kinds)
    return Sharding(mesh.strings(1), mesh.numbers(0, "u4"), partitions, table.string(2), axis_types=axis_types)


def _check(table: Table) -> str:
    return f"custom_call:{table.string(1)}" if table.number(0, "b") == 1 else "platform"


# --- writing ----------------------------------------------------------------------------------------------------------


def write_exported(exported: Exported) -> bytes:
    """The bytes of an exported function, which `jax.export.deserialize` reads.

    Args:
        exported: the fields.

    Returns:
        The bytes.

    Raises:
        ArgumentError: an element type has no number there.

    Example:
        >>> import tinyxla as tx
        >>> from tinyxla import export
        >>> from tinyxla.stablehlo import bytecode
        >>> data = export.export(tx.jit(lambda x: x + 1))(1.0).serialize()
        >>> bytecode.read_exported(bytecode.write_exported(bytecode.read_exported(data))).function_name
        '<lambda>'
    """
    return flatbuffer.write(_exported_fields(exported), IDENTIFIER)


def _exported_fields(x: Exported) -> dict[int, Any]:
    avals, shardings = _unique((*x.in_avals, *x.out_avals)), _unique((*x.in_shardings, *x.out_shardings))
    named = [s for s in shardings if s is not None]
    meshes = _unique(map(_mesh_of, named))

    def numbers(values: Iterable[Any], table: Sequence[Any]) -> np.ndarray[Any, Any]:
        return np.array([table.index(value) for value in values], np.uint32)

    def named_sharding(s: Sharding) -> dict[int, Any]:
        return _sharding_fields(s) | {3: Number("I", meshes.index(_mesh_of(s)))}

    def sharding(s: Sharding | None) -> dict[int, Any]:
        return {} if s is None else {2: named_sharding(s)}

    return {
        0: Number("H", _SCHEMA),
        1: x.function_name,
        2: _tree_fields(x.in_tree),
        3: [_aval_fields(t) for t in x.in_avals],
        4: _tree_fields(x.out_tree),
        5: [_aval_fields(t) for t in x.out_avals],
        7: [sharding(s) for s in x.in_shardings],
        8: [sharding(s) for s in x.out_shardings],
        9: x.platforms,
        10: [{0: name} for name in x.ordered_effects],
        11: [{0: name} for name in x.unordered_effects],
        12: [_check_fields(check) for check in x.disabled_checks],
        13: x.mlir_module_serialized,
        14: Number("H", x.calling_convention_version),
        15: np.array(x.module_kept_var_idx, np.uint16),
        16: Number("B", x.uses_global_constants),
        17: None if x.vjp is None else _exported_fields(x.vjp),
        18: Number("I", x.nr_devices),
        19: [_aval_fields(t) for t in avals],
        20: [_mesh_fields(mesh) for mesh in meshes],
        21: [named_sharding(s) for s in named],
        22: numbers(x.in_avals, avals),
        23: numbers(x.out_avals, avals),
        24: numbers(x.in_shardings, (None, *named)),
        25: numbers(x.out_shardings, (None, *named)),
    }


def _unique(values: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(values))


def _tree_fields(tree: Tree) -> dict[int, Any]:
    is_custom = tree.kind == "custom"
    return {
        0: Number("b", _TREES.index(tree.kind)),
        1: [_tree_fields(child) for child in tree.children] or None,
        2: tree.keys or None,
        3: tree.name if is_custom else None,
        4: tree.auxdata if is_custom else None,
    }


def _aval_fields(t: Aval) -> dict[int, Any]:
    if t.dtype not in _DTYPES:
        raise ArgumentError(f"serialize: exported functions cannot have arrays of the element type {t.dtype}.")
    numbers = _DTYPES.index(t.dtype), _SPACES.index(t.memory_space)
    return {0: Number("b", 0), 1: t.shape, 2: Number("b", numbers[0]), 3: Number("b", numbers[1])}


def _mesh_of(s: Sharding) -> tuple[Any, ...]:
    return s.axis_sizes, s.axis_names, s.axis_types or ("auto",) * len(s.axis_names)


def _mesh_fields(mesh: tuple[Any, ...]) -> dict[int, Any]:
    sizes, names, types = mesh
    return {
        0: np.array(sizes, np.uint32),
        1: names,
        2: np.array([_AXIS_TYPES.index(kind) for kind in types], np.int8),
    }


def _sharding_fields(s: Sharding) -> dict[int, Any]:
    spec = {0: [{0: axes} for axes in s.partitions], 1: (), 2: ()}
    return {0: _mesh_fields(_mesh_of(s)), 1: spec, 2: s.memory_kind or None}


def _check_fields(check: str) -> dict[int, Any]:
    kind, _, target = check.partition(":")
    return {0: Number("b", int(kind == "custom_call")), 1: target if kind == "custom_call" else None}
