"""Shardy's attributes in bytecode, as text: how arrays are distributed over a mesh of devices.

Source: the declarations of the encodings, `shardy/dialect/sdy/ir/bytecode.td` in https://github.com/openxla/shardy.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyxla.stablehlo.bytecode.tables import Decoders, EntryCursor
from tinyxla.text.mlir.ir import Attribute, Location, OpaqueAttr, SymbolAttr

_SUMS = ("", "max", "min")  # what shards that are not reduced are combined with; the first is the sum
_LETTERS = "ijklmnopqrstuvwxyz"


def _body(cursor: EntryCursor) -> str:
    """The text of an attribute, without its name."""
    start = cursor.at
    return _text(cursor, cursor.attribute(), start)


def _text(cursor: EntryCursor, x: Attribute, start: int) -> str:
    if isinstance(x, SymbolAttr):
        return f"@{x.path[0]}"
    if not isinstance(x, OpaqueAttr):
        cursor.fail("a sharding refers to an attribute that is no part of one", start)
    return x.text.removeprefix("#sdy.").partition("<")[2][:-1] if x.text.startswith("#sdy.") else x.text


def _bodies(cursor: EntryCursor) -> list[str]:
    return cursor.list_of(lambda: _body(cursor), "parts")


def _string(cursor: EntryCursor) -> str:
    return f'"{cursor.string().decode(errors="replace")}"'


def _part(read: Callable[[EntryCursor], str], name: str = "") -> Callable[[EntryCursor], OpaqueAttr]:
    """An attribute from its text. Those that stand inside of others alone have no name."""
    return lambda cursor: OpaqueAttr(f"#sdy.{name}<{read(cursor)}>" if name else read(cursor))


def _manual_axes(cursor: EntryCursor) -> str:
    return ", ".join(f'"{name}"' for name in cursor.list_of(cursor.name, "axes"))


def _mesh_axis(cursor: EntryCursor) -> str:
    return f"{_string(cursor)}={cursor.signed()}"


def _mesh(cursor: EntryCursor) -> str:
    axes, devices = ", ".join(_bodies(cursor)), cursor.integers()
    return f"[{axes}]" + (f", device_ids={devices}" if devices else "")


def _sub_axis(cursor: EntryCursor) -> str:
    return f"({cursor.signed()}){cursor.signed()}"


def _axis(cursor: EntryCursor) -> str:
    name, start = _string(cursor), cursor.at
    part = cursor.optional_attribute()
    return name if part is None else f"{name}:{_text(cursor, part, start)}"


def _dimension(cursor: EntryCursor) -> str:
    axes, is_closed = _bodies(cursor), cursor.byte()
    priority, has_priority = cursor.flagged()
    inside = ", ".join([*axes, *([] if is_closed else ["?"])])
    return f"{{{inside}}}" + (f"p{priority}" if has_priority else "")


def _sharding(reads_unreduced: bool, reads_kind: bool = False) -> Callable[[EntryCursor], str]:
    def read(cursor: EntryCursor) -> str:
        start = cursor.at
        mesh = cursor.attribute()
        text = _text(cursor, mesh, start)
        shown = [text if isinstance(mesh, SymbolAttr) else f"mesh<{text}>", f"[{', '.join(_bodies(cursor))}]"]
        replicated = _bodies(cursor)
        unreduced = _bodies(cursor) if reads_unreduced else []
        kind = cursor.signed() if reads_kind else 0
        if not 0 <= kind < len(_SUMS):
            cursor.fail(f"shards are combined by a sum, max or min, not {kind}")
        shown += [f"replicated={{{', '.join(replicated)}}}"] if replicated else []
        shown += [f"unreduced={_SUMS[kind]}{{{', '.join(unreduced)}}}"] if unreduced else []
        return ", ".join(shown)

    return read


def _shardings(cursor: EntryCursor) -> str:
    return f"[{', '.join(f'<{x}>' for x in _bodies(cursor))}]"


def _factor(number: int) -> str:
    last = len(_LETTERS) - 1
    return _LETTERS[number] if 0 <= number <= last else f"z_{number - last}"


def _factors(cursor: EntryCursor) -> list[str]:
    return [_factor(k) for k in cursor.integers()]


def _rule(cursor: EntryCursor) -> str:
    sizes = [f"{_factor(k)}={size}" for k, size in enumerate(cursor.integers())]
    operands, results = (", ".join(f"[{x}]" for x in _bodies(cursor)) for _ in range(2))
    text = f"({operands})->({results})" + (f" {{{', '.join(sizes)}}}" if sizes else "")
    for word in ("reduction", "need_replication", "permutation", "blocked_propagation"):
        factors = _factors(cursor)
        text += f" {word}={{{', '.join(factors)}}}" if factors else ""
    return text + (", custom" if cursor.byte() else "")


_ATTRIBUTES: dict[int, Callable[[EntryCursor], Attribute | Location | None]] = {
    0: lambda cursor: OpaqueAttr(f"#sdy<manual_axes{{{_manual_axes(cursor)}}}>"),
    1: _part(_mesh_axis),
    2: _part(_mesh, "mesh"),
    3: _part(_sub_axis),
    4: _part(_axis),
    5: _part(_dimension),
    6: _part(_sharding(reads_unreduced=False), "sharding"),
    7: _part(_shardings, "sharding_per_value"),
    8: _part(lambda cursor: "".join(_factors(cursor))),
    9: _part(lambda cursor: ", ".join(_bodies(cursor))),
    10: _part(_rule, "op_sharding_rule"),
    15: _part(_sharding(reads_unreduced=True), "sharding"),
    16: _part(_shardings, "sharding_per_value"),
    17: _part(_sharding(reads_unreduced=True, reads_kind=True), "sharding"),
}

SDY = Decoders(_ATTRIBUTES, {})

# The properties of operations in alphabetical order.
SDY_PROPERTIES: dict[str, tuple[str, ...]] = {
    "sdy.manual_computation": ("in_shardings", "manual_axes", "out_shardings"),
    "sdy.mesh": ("mesh", "sym_name"),
    "sdy.reshard": ("sharding",),
    "sdy.sharding_constraint": ("sharding",),
}
