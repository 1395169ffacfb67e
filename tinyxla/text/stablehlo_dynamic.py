"""Operations of StableHLO whose sizes are operands: what an instruction becomes if a size in its attributes or result
is symbolic.

Source: StableHLO specification, sections of the operations `dynamic_*` and `real_dynamic_slice`; the custom calls
`stablehlo.dynamic_*` are those that StableHLO's own passes know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyxla.errors import ArgumentError
from tinyxla.hlo import Instruction
from tinyxla.shapes import Shape, TupleShape
from tinyxla.shapes.symbolic import has_symbolic, is_symbolic
from tinyxla.text.mlir.element_types import to_mlir
from tinyxla.text.mlir.ir import (
    ArrayAttr,
    Attribute,
    DenseAttr,
    IntegerAttr,
    StringAttr,
    SymbolAttr,
    TensorType,
    Value,
    enumeration,
)

if TYPE_CHECKING:
    from tinyxla.text.stablehlo import Body

Attributes = dict[str, Attribute]
Rule = Callable[["Body", Instruction, list[Value]], list[Value]]

RNG_ALGORITHMS = {"rng_default": "DEFAULT", "rng_three_fry": "THREE_FRY", "rng_philox": "PHILOX"}


def has_symbolic_attributes(x: Instruction) -> bool:
    """Whether an attribute of an instruction has a symbolic size."""
    return any(map(_has_symbolic, x.attributes))


def _has_symbolic(value: Any) -> bool:
    if isinstance(value, Shape):
        return has_symbolic(value.dimensions)
    if isinstance(value, TupleShape):
        return any(map(_has_symbolic, value.elements))
    return any(map(_has_symbolic, value)) if isinstance(value, tuple) else is_symbolic(value)


def has_symbolic_result(x: Instruction) -> bool:
    """Whether the result of an instruction has a symbolic size."""
    return _has_symbolic(x.shape)


def integers(values: Sequence[int]) -> DenseAttr:
    """An attribute of 64-bit integers."""
    found = np.array(values, np.int64).reshape(-1)
    return DenseAttr(found, TensorType((found.size,), "i64"), is_array=True)


def _broadcast(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    sizes = body.sizes.vector(x.array_shape.dimensions)
    attributes: Attributes = {"broadcast_dimensions": integers(x.attributes.dimensions)}
    return body.of(x, "stablehlo.dynamic_broadcast_in_dim", [*operands, sizes], attributes)


def _reshape(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    return body.of(x, "stablehlo.dynamic_reshape", [*operands, body.sizes.vector(x.array_shape.dimensions)], {})


def _iota(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    attributes: Attributes = {"iota_dimension": IntegerAttr(x.attributes.iota_dimension)}
    return body.of(x, "stablehlo.dynamic_iota", [body.sizes.vector(x.array_shape.dimensions)], attributes)


def _slice(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    bounds = [body.sizes.vector(b) for b in (a.start_indices, a.limit_indices, a.strides)]
    return body.of(x, "stablehlo.real_dynamic_slice", [*operands, *bounds], {})


def _dynamic_slice(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    """A gather of one slice: its starts are moved inside the array as those of a dynamic slice are."""
    operand, *starts = operands
    element = starts[0].type.element  # type: ignore[union-attr] - of a tensor
    rows = [body.emit("stablehlo.reshape", [s], [TensorType((1,), element)], {})[0] for s in starts]
    whole = TensorType((len(rows),), element)
    places = body.emit("stablehlo.concatenate", rows, [whole], {"dimension": IntegerAttr(0)})[0]
    axes = tuple(range(x.array_shape.rank))
    attributes: Attributes = {
        "dimension_numbers": body.group("gather", offset_dims=axes, start_index_map=axes, index_vector_dim=0)
    }
    attributes["indices_are_sorted"] = IntegerAttr(0, "i1")
    sizes = body.sizes.vector(x.attributes.dynamic_slice_sizes)
    return body.of(x, "stablehlo.dynamic_gather", [operand, places, sizes], attributes)


def _pad(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    sides = zip(*x.attributes.padding_config, strict=True)
    return body.of(x, "stablehlo.dynamic_pad", [*operands, *map(body.sizes.vector, sides)], {})


def _window_call(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    a = x.attributes
    if any(w.window_reversal for w in a.window):
        raise ArgumentError("StableHLO: a reduce-window with a reversed window has no form there.")
    columns = ("size", "stride", "base_dilation", "window_dilation")
    numbers = [body.sizes.vector([getattr(w, name) for w in a.window]) for name in columns]
    padding = body.sizes.matrix([(w.padding_low, w.padding_high) for w in a.window], 2)
    name = body.module.function(a.to_apply, "window_body", has_variables=False)
    attributes: Attributes = {
        "call_target_name": StringAttr(b"stablehlo.dynamic_reduce_window"),
        "called_computations": ArrayAttr((SymbolAttr((name,)),)),
    }
    return body.of(x, "stablehlo.custom_call", [*operands, *numbers, padding], attributes)


def _random_bits(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    attributes: Attributes = {
        "call_target_name": StringAttr(b"stablehlo.dynamic_rng_bit_generator"),
        "rng_algorithm": enumeration("rng_algorithm", RNG_ALGORITHMS[x.attributes.algorithm]),
    }
    sizes = body.sizes.vector(x.attributes.shape.dimensions)
    return body.of(x, "stablehlo.custom_call", [*operands, sizes], attributes)


def _top_k(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    if not x.attributes.largest:
        raise ArgumentError("StableHLO: top-k of the smallest elements has no form there.")
    attributes: Attributes = {"call_target_name": StringAttr(b"stablehlo.dynamic_top_k")}
    return body.of(x, "stablehlo.custom_call", [*operands, body.sizes.value(x.attributes.k)], attributes)


def _size(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    return [body.sizes.value(x.attributes.size)]


def _memory(body: Body, x: Instruction, operands: list[Value]) -> list[Value]:
    """Memory that is written before it is read: zeros. Other custom calls with symbolic sizes have no form."""
    if x.attributes.custom_call_target != "AllocateBuffer":
        raise ArgumentError(
            f"StableHLO: a call of {x.attributes.custom_call_target!r} with the symbolic size {x.shape} has no form "
            "there."
        )
    type = TensorType((), to_mlir(x.array_shape.element_type))
    zero = DenseAttr(np.zeros((), x.array_shape.dtype), type)
    scalar = body.emit("stablehlo.constant", [], [type], {"value": zero})
    sizes = body.sizes.vector(x.array_shape.dimensions)
    attributes: Attributes = {"broadcast_dimensions": integers(())}
    return body.of(x, "stablehlo.dynamic_broadcast_in_dim", [*scalar, sizes], attributes)


OF_RESULT: dict[str, Rule] = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "iota": _iota,
    "custom-call": _memory,
    "topk": _top_k,
}
OF_ATTRIBUTES: dict[str, Rule] = {
    "slice": _slice,
    "dynamic-slice": _dynamic_slice,
    "pad": _pad,
    "reduce-window": _window_call,
    "rng-bit-generator": _random_bits,
    "topk": _top_k,
    "symbolic-size": _size,
}
