"""What `jax.export.Exported.serialize` writes: a FlatBuffer with a portable artifact, and how its function is called.

Source: the schema, `jax/_src/export/serialization.fbs` in https://github.com/jax-ml/jax.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from tinyxla.errors import BytecodeError
from tinyxla.stablehlo.bytecode.flatbuffer import Buffer, Table

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
    `hlo` has the bytes of XLA's form of older artifacts instead."""

    axis_names: tuple[str, ...] = ()
    axis_sizes: tuple[int, ...] = ()
    partitions: tuple[tuple[str, ...], ...] = ()
    memory_kind: str = ""
    hlo: bytes = b""


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
    return Sharding(mesh.strings(1), mesh.numbers(0, "u4"), partitions, table.string(2))


def _check(table: Table) -> str:
    return f"custom_call:{table.string(1)}" if table.number(0, "b") == 1 else "platform"
