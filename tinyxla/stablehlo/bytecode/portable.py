"""Operations of StableHLO as those of VHLO: the opposite of `legalize`.

All attributes are written, groups of them apart, and each operation has the oldest version that has what it needs.

Source: `stablehlo/transforms/StablehloLegalizeToVhlo.cpp` in https://github.com/openxla/stablehlo.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.stablehlo.bytecode.properties import PROPERTIES
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DenseAttr,
    DialectAttr,
    DictAttr,
    IntegerAttr,
    Operation,
    StringAttr,
    SymbolAttr,
    TensorType,
    UnitAttr,
    enumeration,
)

Attributes = dict[str, Attribute]

# The kinds of enumerations by the attribute, which short forms of text leave out.
_KINDS = {
    "comparison_direction": "comparison_direction",
    "compare_type": "comparison_type",
    "fft_type": "fft_type",
    "precision_config": "precision",
    "rng_algorithm": "rng_algorithm",
    "rng_distribution": "rng_distribution",
    "transpose_a": "transpose",
}
_GROUPS = ("dot_dimension_numbers", "dimension_numbers", "scatter_dimension_numbers")
_SEVERAL_OPERANDS = ("all_gather", "all_reduce", "all_to_all")


def portable(operation: Operation) -> tuple[str, Attributes]:
    """The name of an operation in VHLO, without the dialect, and its attributes.

    Raises:
        ArgumentError: the operation has no form in VHLO.
    """
    dialect, _, base = operation.name.partition(".")
    if operation.name in _CUSTOM_CALLS:
        return "custom_call_v1", _custom_call(operation)
    if dialect not in ("stablehlo", "func") or base.startswith("dynamic_reduce_window"):
        raise ArgumentError(f"{operation.name} has no portable form; artifacts consist of operations of StableHLO.")
    found = {key: _with_kind(key, x) for key, x in operation.attributes.items()}
    for key in _GROUPS:
        if key in found:
            found |= _members(operation, found.pop(key))
    algorithm = found.pop("algorithm", None)
    if isinstance(algorithm, DialectAttr):
        found |= algorithm.parameters
    _change_channel(base, found)
    if "api_version" in found:
        found["api_version"] = DialectAttr("vhlo.api_version", {"value": found["api_version"]})
    name = f"{base}_v{_version(base, operation, found)}"
    for key in PROPERTIES.get(name, ()):
        if key not in found:
            found[key] = _default(operation, key, found)
    return name, found


# Operations of CHLO that XLA knows as custom calls too.
_CUSTOM_CALLS = {
    **{f"chlo.{name}": f"mhlo.{name}" for name in "acos acosh asin asinh atanh cosh erf sinh tan".split()},
    "chlo.top_k": "mhlo.topk",
}


def _custom_call(operation: Operation) -> Attributes:
    """The attributes of a custom call in place of an operation of CHLO."""
    settings: Attributes = {}
    if operation.name == "chlo.top_k":
        settings = {"k": operation.attributes["k"], "largest": IntegerAttr(1, "i1")}
    found: Attributes = {
        "call_target_name": StringAttr(_CUSTOM_CALLS[operation.name].encode()),
        "mhlo.attributes": DictAttr(settings),
        "mhlo.version": IntegerAttr(1),
    }
    return found | {key: _default(operation, key, found) for key in PROPERTIES["custom_call_v1"] if key not in found}


def _version(base: str, operation: Operation, attributes: Attributes) -> int:
    """The oldest version of an operation with its attributes and operands."""
    own = {key for key in attributes if "." not in key}
    if base == "custom_call":  # which may have others, as error_message
        return 1
    if base in _SEVERAL_OPERANDS and len(operation.operands) > 1:
        return 2
    for key in ("operand_batching_dims", "start_indices_batching_dims", "input_batching_dims"):
        x = attributes.get(key)
        if isinstance(x, DenseAttr) and not x.value.size:
            own.discard(key)
    x = attributes.get("scatter_indices_batching_dims")
    if isinstance(x, DenseAttr) and not x.value.size:
        own.discard("scatter_indices_batching_dims")
    first = 2 if base == "dynamic_conv" else 1
    for version in range(first, 3):
        if own <= set(PROPERTIES.get(f"{base}_v{version}", ())):
            for key in set(attributes) - own:
                if "." not in key:
                    del attributes[key]
            return version
    raise ArgumentError(f"{operation.name}: its attributes {', '.join(sorted(own))} have no portable form.")


def _with_kind(key: str, x: Attribute) -> Attribute:
    """An enumeration with its kind."""
    if key not in _KINDS:
        return x
    if isinstance(x, ArrayAttr):
        return ArrayAttr(tuple(_with_kind(key, element) for element in x.elements))
    value = x.parameters.get("value", x.parameters.get("0")) if isinstance(x, DialectAttr) else x
    return enumeration(_KINDS[key], value.text) if isinstance(value, StringAttr) else x


# --- groups -----------------------------------------------------------------------------------------------------------

_DOT = "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions".split()
_GATHER = "offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map".split()
_SCATTER = """update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims
    scatter_dims_to_operand_dims""".split()
_LISTS = {"dot_general": _DOT, "gather": _GATHER, "dynamic_gather": _GATHER, "scatter": _SCATTER}
_SPEC = re.compile(r"\[([^\]]*)\]")
_SIDES = {
    "input": {"b": "batch", "f": "feature"},
    "kernel": {"o": "output_feature", "i": "input_feature"},
    "output": {"b": "batch", "f": "feature"},
}


def _members(operation: Operation, group: Attribute) -> Attributes:
    """The attributes that are one in StableHLO."""
    base = operation.name.partition(".")[2]
    if not isinstance(group, DialectAttr):
        raise ArgumentError(f"{operation.name}: the numbers of its dimensions are not as StableHLO has them.")
    text = group.parameters.get("text")
    if isinstance(text, StringAttr):
        return _convolution(operation, text.text)
    found: Attributes = {key: integers(()) for key in _LISTS.get(base, ())}
    for key, x in group.parameters.items():
        found[key] = _as_dense(x)
    if base != "dot_general" and "convolution" not in base:
        found.setdefault("index_vector_dim", IntegerAttr(0))
    return found


def _as_dense(x: Attribute) -> Attribute:
    if isinstance(x, ArrayAttr):
        return integers([element.value for element in x.elements if isinstance(element, IntegerAttr)])
    return x


def integers(values: Sequence[int]) -> DenseAttr:
    """A constant of 64-bit integers."""
    found = np.array(values, np.int64)
    return DenseAttr(found, TensorType(found.shape, "i64"))


def _convolution(operation: Operation, text: str) -> Attributes:
    """`[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]` as numbers."""
    specs = [[label.strip() for label in spec.split(",")] for spec in _SPEC.findall(text)]
    found: Attributes = {}
    try:
        for (side, names), labels in zip(_SIDES.items(), specs, strict=True):
            for sign, name in names.items():
                found[f"{side}_{name}_dimension"] = IntegerAttr(labels.index(sign))
            found[f"{side}_spatial_dimensions"] = integers([labels.index(str(k)) for k in range(len(labels) - 2)])
    except ValueError:
        raise ArgumentError(f"{operation.name}: {text} are no labels of dimensions.") from None
    return found


def _change_channel(base: str, attributes: Attributes) -> None:
    handle = attributes.pop("channel_handle", None)
    if isinstance(handle, DialectAttr):
        attributes["channel_id"] = handle.parameters.get("handle", IntegerAttr(0))
        if base in ("send", "recv"):
            attributes["channel_type"] = handle.parameters.get("type", IntegerAttr(0))
    if isinstance(attributes.get("use_global_device_ids"), UnitAttr):
        attributes["use_global_device_ids"] = IntegerAttr(1, "i1")


# --- defaults ---------------------------------------------------------------------------------------------------------

_FALSE = IntegerAttr(0, "i1")
_NOTHING = ArrayAttr(())
_TEXT = StringAttr(b"")
_DEFAULTS: dict[str, Attribute] = {
    **dict.fromkeys(("has_side_effect", "indices_are_sorted", "is_host_transfer", "is_stable", "lower"), _FALSE),
    **dict.fromkeys(("unique_indices", "use_global_device_ids"), _FALSE),
    **dict.fromkeys(("called_computations", "operand_layouts", "result_layouts", "output_operand_aliases"), _NOTHING),
    **dict.fromkeys(("layout", "arg_attrs", "res_attrs"), _NOTHING),
    **dict.fromkeys(("backend_config", "infeed_config", "outfeed_config", "sym_visibility"), _TEXT),
    **dict.fromkeys(("known_expanding_dimensions", "known_nonexpanding_dimensions"), integers(())),
    **dict.fromkeys(("batch_dims", "channel_id", "channel_type"), IntegerAttr(0)),
    **dict.fromkeys(("batch_group_count", "feature_group_count"), IntegerAttr(1)),
    "api_version": DialectAttr("vhlo.api_version", {"value": IntegerAttr(1, "i32")}),
    "compare_type": enumeration("comparison_type", "NOTYPE"),
    "composite_attributes": DictAttr({}),
    "dimension": IntegerAttr(-1),
    "precision_config": ArrayAttr((enumeration("precision", "DEFAULT"),) * 2),
    "source_target_pairs": DenseAttr(np.zeros((0, 2), np.int64), TensorType((0, 2), "i64")),
    "version": IntegerAttr(0, "i32"),
}
_ONES = ("base_dilations", "lhs_dilation", "rhs_dilation", "window_dilations", "window_dimensions", "window_strides")


def _default(operation: Operation, key: str, attributes: Attributes) -> Attribute:
    """What an attribute is that is left out."""
    if key in _ONES:
        return integers((1,) * _window_rank(operation, attributes))
    if key == "padding":
        return integers(np.zeros((_window_rank(operation, attributes), 2), np.int64))  # type: ignore[arg-type]
    if key == "window_reversal":
        value = np.zeros(_window_rank(operation, attributes), np.bool_)
        return DenseAttr(value, TensorType(value.shape, "i1"))
    if key not in _DEFAULTS:
        raise ArgumentError(f"{operation.name}: the attribute {key!r} is missing.")
    return _DEFAULTS[key]


def _window_rank(operation: Operation, attributes: Attributes) -> int:
    spatial = attributes.get("kernel_spatial_dimensions")
    if isinstance(spatial, DenseAttr):
        return spatial.value.size
    type = operation.operands[0].type
    return len(type.sizes) if isinstance(type, TensorType) else 0


def symbol_text(x: Attribute) -> Attribute:
    """A name of a function, which VHLO has as a string."""
    return StringAttr(x.path[-1].encode()) if isinstance(x, SymbolAttr) else x
