"""Operations of VHLO as those of StableHLO: names without their versions, and attributes in StableHLO's groups.

VHLO writes all attributes, also those at their defaults, and takes groups such as `#stablehlo.gather<...>` apart. Older
versions of operations have fewer attributes or other names for them; what is missing is at its default.

Source: `stablehlo/transforms/VhloLegalizeToStablehlo.cpp` and `VhloToVersion.cpp` in
https://github.com/openxla/stablehlo.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyxla.stablehlo.bytecode.properties import TWO_VERSIONS
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DenseAttr,
    DialectAttr,
    DictAttr,
    IntegerAttr,
    OtherType,
    StringAttr,
    SymbolAttr,
    TypeAttr,
    UnitAttr,
)

Attributes = dict[str, Attribute]
_FUNCTIONS = ("func", "call")  # of the dialect `func`
_FALSE = IntegerAttr(0, "i1")


def legalized(name: str, attributes: Attributes) -> tuple[str, Attributes]:
    """The name and the attributes of an operation of VHLO in StableHLO. `stablehlo.return` stands for the end of a
    function too.

    Raises:
        ValueError: an attribute is missing, or of another kind.
    """
    base, _, version = name.rpartition("_v")
    if version != "1" and not (version == "2" and base in TWO_VERSIONS):
        raise ValueError("this version of the operation is not known; it is newer than VHLO 1.17")
    found = dict(attributes)
    change = _CHANGES.get(base)
    if change is not None:
        change(found)
    for key, default in _DEFAULTS.get(base, {}).items():
        if key in found and _is_default(found[key], default):
            del found[key]
    if base != "constant":
        found = {key: _as_array(key, x) for key, x in found.items()}
    accuracy = found.get("result_accuracy")
    if isinstance(accuracy, DialectAttr) and _word(accuracy.parameters.get("mode")) == b"DEFAULT":
        del found["result_accuracy"]
    return f"{'func' if base in _FUNCTIONS else 'stablehlo'}.{base}", found


def _as_array(key: str, x: Attribute) -> Attribute:
    """Lists of integers and of truth values are `array<...>` in StableHLO and constants in VHLO."""
    if isinstance(x, DenseAttr) and "." not in key and len(x.type.sizes) == 1 and x.type.element in ("i64", "i1"):
        return DenseAttr(x.value, x.type, is_array=True)
    return x


def _word(x: Attribute | None) -> bytes:
    value = x.parameters.get("value", x.parameters.get("0")) if isinstance(x, DialectAttr) else None
    return value.value if isinstance(value, StringAttr) else b""


# --- groups -----------------------------------------------------------------------------------------------------------


def _member(attributes: Attributes, key: str) -> Attribute:
    """A member of a group: an integer, or integers."""
    found = attributes.pop(key)
    if isinstance(found, DenseAttr) and found.value.ndim == 1 and found.value.dtype.kind in "iu":
        return ArrayAttr(tuple(IntegerAttr(int(x)) for x in found.value))
    if isinstance(found, IntegerAttr):
        return found
    raise ValueError(f"the attribute {key} consists of integers")


def _grouped(group: str, kind: str, required: str, optional: str = "") -> Callable[[Attributes], None]:
    """Attributes that are one attribute in StableHLO."""
    keys, more = required.split(), optional.split()

    def change(attributes: Attributes) -> None:
        missing = [key for key in keys if key not in attributes]
        if missing:
            raise ValueError(f"the attribute {missing[0]} is missing")
        members = {key: _member(attributes, key) for key in (*keys, *more) if key in attributes}
        attributes[group] = DialectAttr(f"stablehlo.{kind}", members)

    return change


_dot_dimensions = _grouped(
    "dot_dimension_numbers",
    "dot",
    "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions",
)
_gather = _grouped(
    "dimension_numbers",
    "gather",
    "offset_dims collapsed_slice_dims start_index_map index_vector_dim",
    "operand_batching_dims start_indices_batching_dims",
)
_scatter = _grouped(
    "scatter_dimension_numbers",
    "scatter",
    "update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim",
    "input_batching_dims scatter_indices_batching_dims",
)
_ALGORITHM = """lhs_precision_type rhs_precision_type accumulation_type lhs_component_count rhs_component_count
    num_primitive_operations allow_imprecise_accumulation""".split()


def _dot_general(attributes: Attributes) -> None:
    _dot_dimensions(attributes)
    algorithm = {key: attributes.pop(key) for key in _ALGORITHM if key in attributes}
    if algorithm.get("lhs_precision_type", _NO_TYPE) != _NO_TYPE:
        attributes["algorithm"] = DialectAttr("stablehlo.dot_algorithm", algorithm)


_NO_TYPE = TypeAttr(OtherType("none"))
_SIDES = (("input", "b", "batch", "f", "feature"), ("kernel", "o", "output_feature", "i", "input_feature"))


def _convolution(attributes: Attributes) -> None:
    """`#stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>`."""
    specs = [_labels(attributes, *side) for side in (*_SIDES, ("output", "b", "batch", "f", "feature"))]
    text = f"<{specs[0]}x{specs[1]}->{specs[2]}>"
    attributes["dimension_numbers"] = DialectAttr("stablehlo.conv", {"text": StringAttr(text.encode())})


def _labels(attributes: Attributes, side: str, sign: str, name: str, other_sign: str, other: str) -> str:
    labels = {_dimension(attributes, f"{side}_{word}_dimension"): x for x, word in ((sign, name), (other_sign, other))}
    spatial = _member(attributes, f"{side}_spatial_dimensions")
    elements = spatial.elements if isinstance(spatial, ArrayAttr) else ()
    labels |= {x.value: str(k) for k, x in enumerate(elements) if isinstance(x, IntegerAttr)}
    if sorted(labels) != list(range(len(elements) + 2)):
        raise ValueError(f"the dimensions of the {side} are not 0 to {len(elements) + 1}, each once")
    return f"[{', '.join(labels[k] for k in range(len(labels)))}]"


def _dimension(attributes: Attributes, key: str) -> int:
    found = attributes.pop(key)
    if not isinstance(found, IntegerAttr):
        raise ValueError(f"the attribute {key} is an integer")
    return found.value


# --- attributes of other kinds ----------------------------------------------------------------------------------------


def _symbol(x: Attribute) -> SymbolAttr:
    if not isinstance(x, StringAttr):
        raise ValueError("the name of a function is a string")
    return SymbolAttr((x.value.decode(errors="replace"),))


def _symbols(*keys: str) -> Callable[[Attributes], None]:
    """Names of functions are strings in VHLO."""

    def change(attributes: Attributes) -> None:
        for key in keys:
            attributes[key] = _symbol(attributes[key])

    return change


def _composite(attributes: Attributes) -> None:
    attributes["decomposition"] = _symbol(attributes["decomposition"])
    if attributes.get("composite_attributes") == DictAttr({}):
        del attributes["composite_attributes"]


def _custom_call(attributes: Attributes) -> None:
    called = attributes.pop("called_computations", None)
    if isinstance(called, ArrayAttr) and called.elements:
        attributes["called_computations"] = ArrayAttr(tuple(map(_symbol, called.elements)))
    for key in ("operand_layouts", "result_layouts", "output_operand_aliases"):
        if attributes.get(key) == ArrayAttr(()):
            del attributes[key]


def _collective(attributes: Attributes) -> None:
    """Who takes part: the channel, and whether the numbers are those of devices."""
    channel = attributes.pop("channel_id", None)
    kind = attributes.pop("channel_type", IntegerAttr(0))
    if isinstance(channel, IntegerAttr) and (channel.value or "is_host_transfer" in attributes):
        attributes["channel_handle"] = DialectAttr("stablehlo.channel_handle", {"handle": channel, "type": kind})
    _without_empty(attributes, "source_target_pairs")
    flag = attributes.pop("use_global_device_ids", _FALSE)
    if flag != _FALSE:
        attributes["use_global_device_ids"] = UnitAttr()


def _dynamic_broadcast(attributes: Attributes) -> None:
    for key in ("known_expanding_dimensions", "known_nonexpanding_dimensions"):
        _without_empty(attributes, key)


def _without_empty(attributes: Attributes, key: str) -> None:
    found = attributes.get(key)
    if isinstance(found, DenseAttr) and not found.value.size:
        del attributes[key]


def _dynamic_convolution(attributes: Attributes) -> None:
    attributes.pop("padding", None)  # of the first version, beside the operand
    _convolution(attributes)


# --- defaults ---------------------------------------------------------------------------------------------------------


def _is_default(x: Attribute, default: object) -> bool:
    """Whether an attribute is a truth value, a number, a text or a list all of whose elements are the default."""
    match x:
        case IntegerAttr(value):
            return value == default
        case StringAttr(value):
            return value == default
        case DenseAttr(value):
            return bool((value == default).all())
        case ArrayAttr(elements):
            return all(isinstance(element, DialectAttr) and _word(element) == default for element in elements)
        case DialectAttr():
            return _word(x) == default
        case _:
            return False


_WINDOW: dict[str, object] = {"window_strides": 1, "base_dilations": 1, "window_dilations": 1, "padding": 0}
_CONVOLVED: dict[str, object] = {
    "window_strides": 1,
    "padding": 0,
    "lhs_dilation": 1,
    "rhs_dilation": 1,
    "window_reversal": 0,
}
_PRECISION: dict[str, object] = {"precision_config": b"DEFAULT"}
_SORTED: dict[str, object] = {"indices_are_sorted": 0}
_DEFAULTS: dict[str, dict[str, object]] = {
    "cholesky": {"lower": 0},
    "compare": {"compare_type": b"NOTYPE"},
    "composite": {"version": 0},
    "convolution": {**_CONVOLVED, **_PRECISION},
    "custom_call": {"has_side_effect": 0, "backend_config": b"", "api_version": 1},
    "dot": _PRECISION,
    "dot_general": _PRECISION,
    "dynamic_conv": {**_CONVOLVED, **_PRECISION},
    "dynamic_gather": _SORTED,
    "gather": _SORTED,
    "infeed": {"infeed_config": b"", "layout": b""},
    "outfeed": {"outfeed_config": b""},
    "recv": {"is_host_transfer": 0},
    "reduce_window": _WINDOW,
    "scatter": {**_SORTED, "unique_indices": 0},
    "select_and_scatter": _WINDOW,
    "send": {"is_host_transfer": 0},
    "sort": {"dimension": -1, "is_stable": 0},
}

_COLLECTIVES = """all_gather all_reduce all_to_all collective_broadcast collective_permute reduce_scatter send
    recv""".split()

_CHANGES: dict[str, Callable[[Attributes], None]] = {
    **dict.fromkeys(_COLLECTIVES, _collective),
    "call": _symbols("callee"),
    "composite": _composite,
    "convolution": _convolution,
    "custom_call": _custom_call,
    "dot_general": _dot_general,
    "dynamic_broadcast_in_dim": _dynamic_broadcast,
    "dynamic_conv": _dynamic_convolution,
    "dynamic_gather": _gather,
    "gather": _gather,
    "scatter": _scatter,
}
