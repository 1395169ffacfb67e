"""Attributes as HLO text has them: written and read side by side.

An attribute prints under its own name, in the form that its annotated type has (`_codec`), so most ops need nothing
here. `_SPELLINGS` has the attributes whose name or form differs, `_IMPLIED` those that say what the shapes say already
and are left out. What is false, None or has the attribute's default is left out too.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Union

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import Op, elementwise
from tinyxla.ops.distributed.replica_groups import REPLICAS
from tinyxla.ops.numerics.accuracy import ResultAccuracy
from tinyxla.ops.products import scaled
from tinyxla.shapes import AnyShape, ElementType, Layout, Shape, TupleShape, WindowDimension, element_types, window_text
from tinyxla.text.lexer import Lexer, inside, parts, read_integer, without_comments
from tinyxla.text.literals import number_text
from tinyxla.text.replica_groups import read_groups, read_pairs, shard_count, write_groups
from tinyxla.text.shapes import read_shape

Names = Callable[[Computation], str]  # the name of a computation
Scope = Callable[[str], Computation]  # and the computation with a name; ValueError if there is none


class Codec(NamedTuple):
    """How values of one kind are written and read; reading raises ValueError for text that is not one."""

    write: Callable[[Any, Names], str]
    read: Callable[[str, Scope], Any]


# --- codecs -----------------------------------------------------------------------------------------------------------


def _plain(write: Callable[[Any], str], read: Callable[[str], Any]) -> Codec:
    return Codec(lambda value, names: write(value), lambda text, scope: read(text))


def _read_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, but found {text[:40]!r}")
    return text == "true"


def _read_word(text: str) -> str:
    if re.fullmatch(r"\w[\w.:-]*", text) is None:
        raise ValueError(f"expected a word, but found {text[:40]!r}")
    return text


_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def quoted(text: str) -> str:
    """A string between quotation marks."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return '"' + escaped.replace("\r", "\\r") + '"'


def unquoted(text: str) -> str:
    """What a string between quotation marks says."""
    return re.sub(r"\\(.)", lambda found: _UNESCAPED.get(found[1], found[1]), inside(text, '""'), flags=re.DOTALL)


def _read_type(text: str) -> ElementType:
    if text not in element_types:
        raise ValueError(f"{text[:40]!r} is no element type; the types are {', '.join(element_types)}")
    return element_types[text]


def _read_window(text: str) -> tuple[WindowDimension, ...]:
    fields: dict[str, list[str]] = {}
    for word in inside(text).split():
        name, _, values = word.partition("=")
        fields[name] = values.split("x")
    sizes = fields.pop("size", [])
    trivial = {"stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}
    if not fields.keys() <= trivial.keys():
        raise ValueError(f"a window has size, {', '.join(trivial)}, but found {', '.join(fields)}")
    columns = {name: fields.get(name, [value] * len(sizes)) for name, value in trivial.items()}
    found: list[WindowDimension] = []
    if any(len(column) != len(sizes) for column in columns.values()):
        raise ValueError(f"every field of a window has as many values as size, {len(sizes)}, but found {text[:80]}")
    for size, stride, pad, base, window, reversal in zip(sizes, *columns.values(), strict=True):
        low, high = map(read_integer, pad.split("_"))
        numbers = [read_integer(x) for x in (size, stride, window, base)]
        if min(numbers[1:]) < 1 or numbers[0] < 0:
            raise ValueError(f"sizes, strides and dilations of a window must be positive, but found {text[:80]}")
        size_, stride_, window_, base_ = numbers
        found.append(WindowDimension(size_, stride_, low, high, window_, base_, bool(read_integer(reversal))))
    return tuple(found)


def _write_padding(config: Sequence[tuple[int, int, int]]) -> str:
    whole = any(interior for _, _, interior in config)
    return "x".join("_".join(map(str, edge if whole else edge[:2])) for edge in config)


def _read_padding(text: str) -> tuple[tuple[int, int, int], ...]:
    edges = [[read_integer(x) for x in edge.split("_")] for edge in text.split("x")] if text else []
    if any(len(edge) not in (2, 3) for edge in edges):
        raise ValueError(f"padding is low_high or low_high_interior for each dimension, but found {text[:80]!r}")
    return tuple((edge[0], edge[1], edge[2] if len(edge) == 3 else 0) for edge in edges)


def _write_slices(value: tuple[Sequence[int], ...]) -> str:
    ranges = zip(*value, strict=True)
    texts = (f"[{start}:{limit}]" if stride == 1 else f"[{start}:{limit}:{stride}]" for start, limit, stride in ranges)
    return "{" + ", ".join(texts) + "}"


def _read_slices(text: str) -> tuple[tuple[int, ...], ...]:
    rows = [[read_integer(x) for x in inside(part, "[]").split(":")] for part in parts(inside(text))]
    if any(len(row) not in (2, 3) for row in rows):
        raise ValueError(f"a slice is [start:limit] or [start:limit:stride], but found {text[:80]}")
    return (
        tuple(row[0] for row in rows),
        tuple(row[1] for row in rows),
        tuple(row[2] if len(row) == 3 else 1 for row in rows),
    )


def _read_shape(text: str) -> AnyShape:
    lexer = Lexer(text)
    shape = read_shape(lexer)
    if not lexer.at_end():
        raise ValueError(f"expected a shape, but found {text[:80]!r}")
    return shape


_LABELS = re.compile(r"([0-9bf?]+)_([0-9oi?]+)->([0-9bf?]+)")


def _read_dim_labels(text: str) -> tuple[tuple[int, ...], ...]:
    found = _LABELS.fullmatch(text)
    if found is None:
        raise ValueError(f"expected labels of dimensions such as b01f_01io->b01f, but found {text[:40]!r}")
    specs: list[tuple[int, ...]] = []
    for labels, letters in zip(found.groups(), ("bf", "oi", "bf"), strict=True):
        wanted = [*letters, *map(str, range(len(labels) - 2))]
        if sorted(labels) != sorted(wanted):
            raise ValueError(f"the labels {labels!r} must be {', '.join(wanted)}, each once")
        specs.append(tuple(labels.index(label) for label in wanted))
    return tuple(specs)


def _read_trip_count(text: str) -> int | None:
    found = re.search(r'"known_trip_count":\s*\{"n":\s*"(\d{1,18})"', text)
    return int(found[1]) if found else None


def read_fields(text: str) -> Iterator[tuple[str, str]]:
    """`name=value, name=value` as pairs."""
    for part in parts(text):
        name, sign, value = part.partition("=")
        if not sign:
            raise ValueError(f"expected name=value, but found {part[:40]!r}")
        yield name.strip(), value.strip()


def _read_function(text: str) -> Any:
    raise ValueError(f"a text cannot hold a Python function, but only its name, {text[:80]}; trace the program again")


def _read_sharding(text: str) -> Any:
    raise ValueError("a text cannot hold the devices of a mesh; trace the program again")


def _write_configuration(text: str) -> str:
    """A dictionary stands as it is, other text between quotation marks."""
    return text if text.startswith("{") and text.endswith("}") and _is_one_value(text) else quoted(text)


def _is_one_value(text: str) -> bool:
    try:
        return Lexer(text).value().text == text
    except ValueError:
        return False


def _read_configuration(text: str) -> str:
    return unquoted(text) if text.startswith('"') else text


def _write_composite(value: Any) -> str:
    texts = [f"composite.name={quoted(value.name)}", f'composite.version="{value.version}"']
    if value.attributes:
        texts.insert(0, f"composite.attributes={_write_configuration(value.attributes)}")
    return "{" + ",".join(texts) + "}"


def _read_composite(text: str) -> tuple[str, str, int] | None:
    fields = dict(read_fields(inside(text)))
    if "composite.name" not in fields:
        return None
    attributes = _read_configuration(fields.get("composite.attributes", ""))
    version = read_integer(unquoted(fields.get("composite.version", '"0"')))
    return unquoted(fields["composite.name"]), attributes, version


def _write_accuracy(value: ResultAccuracy) -> str:
    if value.mode != "tolerance":
        return f"{{mode={value.mode}}}"
    atol, rtol = number_text(value.atol), number_text(value.rtol)
    return f"{{tolerance={{atol={atol},rtol={rtol},ulps={value.ulps}}}}}"


def _read_accuracy(text: str) -> ResultAccuracy | None:
    fields = dict(read_fields(inside(text)))
    if "tolerance" not in fields:
        return ResultAccuracy(fields.get("mode", "default"))
    bounds = dict(read_fields(inside(fields["tolerance"])))
    atol, rtol = (float(bounds.get(name, "0")) for name in ("atol", "rtol"))
    return ResultAccuracy("tolerance", atol, rtol, read_integer(bounds.get("ulps", "0")))


def _read_axis_name(text: str) -> Hashable:
    fields = dict(read_fields(inside(text)))
    return unquoted(fields["axis_name"]) if "axis_name" in fields else REPLICAS


def _read_channel_pairs(text: str) -> tuple[tuple[int, int], ...]:
    pairs = dict(read_fields(inside(text))).get("_xla_send_recv_source_target_pairs", "{}")
    return read_pairs(unquoted(pairs) if pairs.startswith('"') else pairs)


def _read_single(text: str) -> int:
    (found,) = map(read_integer, parts(inside(text)))
    return found


_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}\)")


def _write_aliasing(pairs: Sequence[tuple[tuple[int, ...], int]]) -> str:
    written = (f"{{{','.join(map(str, path))}}}: ({operand}, {{}})" for path, operand in pairs)
    return f"{{{', '.join(written)}}}"


def _read_aliasing(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    found = [((int(path),) if path else (), int(operand)) for path, operand in _ALIAS.findall(text)]
    if _write_aliasing(found) != text:
        raise ValueError(f"expected results and operands such as {{{{0}}: (1, {{}})}}, but found {text[:80]!r}")
    return tuple(found)


INTEGER = _plain(str, read_integer)
FLAG = _plain(lambda value: "true" if value else "false", _read_flag)
NUMBER = _plain(number_text, float)
WORD = _plain(str, _read_word)
RAW = _plain(str, str)
STRING = _plain(lambda value: quoted(str(value)), unquoted)
TYPE = _plain(str, _read_type)
SHAPE = _plain(lambda value: value.text(), _read_shape)
WINDOW = _plain(window_text, _read_window)
PADDING = _plain(_write_padding, _read_padding)
SLICES = _plain(_write_slices, _read_slices)
SINGLE = _plain(lambda value: f"{{{value}}}", _read_single)
DIM_LABELS = _plain(str, _read_dim_labels)
TRIP_COUNT = _plain(lambda count: f'{{"known_trip_count":{{"n":"{count}"}}}}', _read_trip_count)
FUNCTION = _plain(lambda function: quoted(str(function)), _read_function)
SHARDING = _plain(lambda value: quoted(str(value)), _read_sharding)
CONFIGURATION = _plain(_write_configuration, _read_configuration)
API_VERSION = _plain(lambda version: f"API_VERSION_{version}", lambda text: text.removeprefix("API_VERSION_"))
ALIASING = _plain(_write_aliasing, _read_aliasing)
COMPOSITE = _plain(_write_composite, _read_composite)
GROUPS = _plain(write_groups, read_groups)
PAIRS = _plain(write_groups, read_pairs)
CHANNEL_PAIRS = _plain(
    lambda pairs: f"{{_xla_send_recv_source_target_pairs={write_groups(pairs)}}}", _read_channel_pairs
)
AXIS_NAME = _plain(lambda name: f"{{axis_name={quoted(str(name))}}}", _read_axis_name)
RESULT_ACCURACY = _plain(_write_accuracy, _read_accuracy)
COMPUTATION = Codec(lambda value, names: names(value), lambda text, scope: scope(text.removeprefix("%")))


def tuple_of(codec: Codec) -> Codec:
    return Codec(
        lambda values, names: "{" + ",".join(codec.write(x, names) for x in values) + "}",
        lambda text, scope: tuple(codec.read(part, scope) for part in parts(inside(text))),
    )


INTEGERS = tuple_of(INTEGER)
_BY_TYPE: dict[Any, Codec] = {
    int: INTEGER,
    bool: FLAG,
    float: NUMBER,
    str: WORD,
    Hashable: STRING,  # the name of an axis
    ElementType: TYPE,
    Shape: SHAPE,
    TupleShape: SHAPE,
    AnyShape: SHAPE,
    Computation: COMPUTATION,
    ResultAccuracy: RESULT_ACCURACY,
}


def _needed(hint: Any) -> Any:
    """The type of an attribute that may also be None."""
    if hint in _BY_TYPE or typing.get_origin(hint) not in (Union, types.UnionType):
        return hint
    (only,) = (x for x in typing.get_args(hint) if x is not type(None))
    return only


def _codec(hint: Any) -> Codec | None:
    """How values of an annotated type are written; None for one that has no form of its own."""
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and arguments:
        if arguments[0] is WindowDimension:
            return WINDOW
        element = _codec(arguments[0])
        return tuple_of(element) if element else None
    return None


# --- which attributes of an op there are in the text ------------------------------------------------------------------


class Spelling(NamedTuple):
    """Attributes of an op (one, or several together) whose name in the text, or form, is not the plain one."""

    name: str
    attributes: tuple[str, ...]
    codec: Codec
    partial: bool = False  # the text may say more, so it is kept as it stands, too
    missing: bool = False  # for a truth value: what it is if the text does not say
    always: bool = False  # written also where it has its default


_GROUPS = Spelling("replica_groups", ("replica_groups",), GROUPS, always=True)
_AXIS = Spelling("frontend_attributes", ("axis_name",), AXIS_NAME, partial=True)  # XLA has no named axes
_CHANNEL = Spelling("frontend_attributes", ("source_target_pairs",), CHANNEL_PAIRS, partial=True)


_SPELLINGS: dict[str, tuple[Spelling, ...]] = {
    "all-gather": (_GROUPS, _AXIS, Spelling("dimensions", ("all_gather_dimension",), SINGLE)),
    "all-reduce": (_GROUPS, _AXIS),
    "all-to-all": (_GROUPS, _AXIS),
    "collective-broadcast": (_GROUPS, _AXIS),
    "collective-permute": (Spelling("source_target_pairs", ("source_target_pairs",), PAIRS), _AXIS),
    "concatenate": (Spelling("dimensions", ("dimension",), SINGLE),),
    "convolution": (Spelling("dim_labels", ("dim_labels",), DIM_LABELS),),
    "callback": (Spelling("function", ("function",), FUNCTION),),
    "call": (Spelling("frontend_attributes", ("frontend_attributes",), COMPOSITE, partial=True),),
    "custom-call": (
        Spelling("custom_call_target", ("custom_call_target",), STRING),
        Spelling("backend_config", ("backend_config",), CONFIGURATION),
        Spelling("output_to_operand_aliasing", ("output_to_operand_aliasing",), ALIASING),
        Spelling("api_version", ("api_version",), API_VERSION),
    ),
    "domain": (Spelling("domain", ("domain",), RAW),),
    "infeed": (Spelling("infeed_config", ("infeed_config",), STRING),),
    "outfeed": (Spelling("outfeed_config", ("outfeed_config",), STRING),),
    "pad": (Spelling("padding", ("padding_config",), PADDING),),
    "partition-id": (_AXIS,),
    "ragged-all-to-all": (_GROUPS, _AXIS),
    "recv": (_CHANNEL,),
    "recv-done": (_CHANNEL,),
    "reduce-scatter": (_GROUPS, _AXIS, Spelling("dimensions", ("scatter_dimension",), SINGLE)),
    "replica-id": (_AXIS,),
    "send": (_CHANNEL,),
    "shard-map": tuple(Spelling(name, (name,), SHARDING) for name in ("mesh", "in_specs", "out_specs", "manual_axes")),
    "sharding-constraint": tuple(Spelling(name, (name,), SHARDING) for name in ("mesh", "spec")),
    "slice": (Spelling("slice", ("start_indices", "limit_indices", "strides"), SLICES),),
    "topk": (Spelling("largest", ("largest",), FLAG, missing=True),),
    "transpose": (Spelling("dimensions", ("permutation",), INTEGERS),),
    "while": (Spelling("backend_config", ("known_trip_count",), TRIP_COUNT, partial=True),),
}
_SPELLINGS.update({f"{name}-start": _SPELLINGS[name] for name in ("all-gather", "all-reduce", "collective-permute")})


class Context(NamedTuple):
    """What is known of an instruction before its attributes are."""

    shape: Any
    operands: Sequence[Any]  # shapes


def _result_type(x: Context) -> ElementType:
    return x.shape.element_type


def _result_sizes(x: Context) -> tuple[int, ...]:
    return x.shape.dimensions


def _other_result_type(x: Context) -> ElementType | None:
    """The type of the result if it is not that of the operands."""
    return None if x.shape.element_type is x.operands[0].element_type else x.shape.element_type


def _other_factor_type(x: Context) -> ElementType | None:
    factors = scaled.factor_type(*(operand.element_type for operand in x.operands))
    return None if x.shape.element_type is factors else x.shape.element_type


def _dynamic_dimensions(x: Context) -> tuple[bool, ...]:
    return x.shape.dynamic or (False,) * x.shape.rank


def _order(shape: Shape) -> tuple[int, ...]:
    return (shape.layout or Layout.default(shape.rank)).minor_to_major


def _replicas(x: Context) -> Hashable:
    return REPLICAS


_IMPLIED: dict[str, dict[str, Callable[[Context], Any]]] = {
    "async-start": {"state": lambda x: x.shape.elements[2:]},
    "bitcast": {
        "new_element_type": _result_type,
        "sizes": _result_sizes,
        "operand_layout": lambda x: _order(x.operands[0]),
        "result_layout": lambda x: _order(x.shape),
    },
    "bitcast-convert": {"new_element_type": _result_type},
    "broadcast": {"sizes": _result_sizes},
    "collective-permute-start": {"state": lambda x: x.shape.elements[2:]},
    "compare": {"type": lambda x: elementwise.comparison_type(x.operands[0].dtype)},
    "convert": {"new_element_type": _result_type},
    "convolution": {"preferred_element_type": _other_result_type},
    "custom-call": {"shape": lambda x: x.shape},
    "dot": {"preferred_element_type": _other_result_type},
    "dynamic-reshape": {"sizes": _result_sizes, "dims_are_dynamic": _dynamic_dimensions},
    "infeed": {"shape": lambda x: x.shape.elements[0], "axis_name": _replicas},
    "iota": {"shape": lambda x: x.shape},
    "outfeed": {"axis_name": _replicas},
    "ragged-dot": {"preferred_element_type": _other_result_type},
    "recv": {"shape": lambda x: x.shape.elements[0], "axis_name": _replicas},
    "recv-done": {"axis_name": _replicas},
    "reshape": {"sizes": _result_sizes},
    "rng": {"shape": lambda x: x.shape, "axis_name": _replicas},
    "rng-bit-generator": {"shape": lambda x: x.shape.elements[1]},
    "send": {"axis_name": _replicas},
    "scaled-dot": {"preferred_element_type": _other_factor_type},
}


def _shards_gathered(x: Context, values: Mapping[str, Any]) -> int:
    return shard_count(_first(x.shape), x.operands[0], values["all_gather_dimension"], values["replica_groups"])


def _shards_begun(x: Context, values: Mapping[str, Any]) -> int:
    return _shards_gathered(x._replace(shape=x.shape.elements[1]), values)


def _shards_scattered(x: Context, values: Mapping[str, Any]) -> int:
    return shard_count(x.operands[0], _first(x.shape), values["scatter_dimension"], values["replica_groups"])


def _first(shape: AnyShape) -> AnyShape:
    return shape.elements[0] if isinstance(shape, TupleShape) else shape


_DERIVED: dict[str, dict[str, Callable[[Context, Mapping[str, Any]], Any]]] = {  # implied together with others
    "all-gather": {"shard_count": _shards_gathered},
    "all-gather-start": {"shard_count": _shards_begun},
    "reduce-scatter": {"shard_count": _shards_scattered},
}
_BETWEEN_BRACKETS = ("constant", "parameter")  # where others have operands, these have their attributes
_SHOWN_IF_OTHER = ("compare",)  # whose implied attribute may have another value; all others never print theirs


class _Row(NamedTuple):
    spelling: Spelling
    default: Any  # of an attribute that the text leaves out
    required: bool
    group: Any  # the named tuple that the value is, or None


@cache
def _rows(op: str, attributes: Any) -> tuple[_Row, ...]:
    """What the text of an op with attributes of this type has, in order."""
    spelled = _SPELLINGS.get(op, ())
    of = {name: s for s in spelled for name in s.attributes}
    implied = _IMPLIED.get(op, {})
    if op in _BETWEEN_BRACKETS:
        return ()
    hints = typing.get_type_hints(attributes)
    found: dict[str, _Row] = {}
    for name in attributes._fields:
        hint = _needed(hints[name])
        codec = None if name in of else _codec(hint)
        spelling = of.get(name) or (Spelling(name, (name,), codec) if codec else None)
        derived = name in _DERIVED.get(op, {})
        if spelling is None or derived or (name in implied and op not in _SHOWN_IF_OTHER):
            continue
        defaults = attributes._field_defaults
        optional = hint is bool or name in implied or name in defaults
        group = hint if hasattr(hint, "_make") and len(spelling.attributes) == 1 else None
        found[spelling.name] = _Row(
            spelling, spelling.missing if hint is bool else defaults.get(name), not optional, group
        )
    return tuple(found.values())


def attributes_text(x: Instruction, names: Names) -> dict[str, str]:
    """The attributes of an instruction as HLO text, by their names there."""
    values = x.attributes._asdict()
    known = Context(x.shape, [o.shape for o in x.operands])
    implied = _IMPLIED.get(x.op.name, {})
    found: dict[str, str] = {}
    for spelling, default, required, _ in _rows(x.op.name, type(x.attributes)):
        several = [values[name] for name in spelling.attributes]
        value = several[0] if len(several) == 1 else tuple(several)
        (name, *_) = spelling.attributes
        if value is None or (not required and value == default and not spelling.always):
            continue
        if name not in implied or implied[name](known) != value:
            found[spelling.name] = spelling.codec.write(value, names)
    return found


class UnreadableError(ValueError):
    """The text of an attribute, and what is wrong with it."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


def read_attributes(op: Op, fields: Mapping[str, str], known: Context, scope: Scope) -> tuple[Any, set[str]]:
    """The attributes of an op, and which fields of the text they were made of."""
    values = {name: value(known) for name, value in _IMPLIED.get(op.name, {}).items()}
    used: set[str] = set()
    for spelling, default, required, group in _rows(op.name, op.attributes):
        text = fields.get(spelling.name)
        if text is None:
            if required:
                raise UnreadableError("", f"{op.name} needs the attribute {spelling.name}")
            values.setdefault(spelling.attributes[0], default)
            continue
        if not spelling.partial:
            used.add(spelling.name)
        try:
            value = spelling.codec.read(without_comments(text).strip(), scope)
        except ValueError as error:
            raise UnreadableError(spelling.name, f"{op.name}: {spelling.name}: {error}") from error
        if group is not None and value is not None:
            value = group._make(value)
        several: Any = value if len(spelling.attributes) > 1 else (value,)
        values |= zip(spelling.attributes, several, strict=True)
    values |= {name: value(known, values) for name, value in _DERIVED.get(op.name, {}).items()}
    return op.attributes(**values), used
