"""Fusibility: which instructions loop nests can compute, and what they cost there."""

from __future__ import annotations

from tinyxla.compiler.costs import COSTLY_OPS
from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.shapes import Shape

MOVEMENT = frozenset("broadcast reshape transpose reverse slice pad concatenate iota dynamic-slice gather".split())


def is_inlined(x: Instruction) -> bool:
    """True if loop nests can compute the instruction at its point of use."""
    name = x.op.name
    if name in MOVEMENT or name in elementwise.NAMES or _is_native_bit_operation(x):
        return all(is_native_type(o.array_shape) for o in (x, *x.operands)) or _supports_storage_only(x)
    return x.op is movement.constant


def _supports_storage_only(x: Instruction) -> bool:
    """True for operations on storage-only types (fp8, int4) that loops support: data movement, select, and convert.
    A conversion to a storage-only float needs a source that is exactly representable in f32."""
    if x.op is not elementwise.convert:
        return x.op.name == "select" or (x.op.name in MOVEMENT and x.op is not movement.iota)
    source, target = x.operands[0].array_shape, x.array_shape
    if "complex" in (source.element_type.kind, target.element_type.kind):
        return False
    is_exact = source.element_type.bits <= 16 or source.element_type.name == "f32"
    return is_exact or target.element_type.is_integer or is_native_type(target)


def _is_native_bit_operation(x: Instruction) -> bool:
    """True for an elementwise bitcast, and for reduce-precision in a type that kernels compute in."""
    if x.op.name == "reduce-precision":
        return x.array_shape.element_type.bits >= 32
    if x.op.name != "bitcast-convert" or x.array_shape.dimensions != x.operands[0].array_shape.dimensions:
        return False
    return "pred" not in (x.array_shape.element_type.kind, x.operands[0].array_shape.element_type.kind)


def is_native_type(shape: Shape) -> bool:
    """True if kernels have scalars of this type: not for 8-bit floats and narrower types, which are only stored."""
    type = shape.element_type
    return type.bits >= (16 if type.kind == "float" else 8)


def is_index_payload(x: Instruction, dimension: int | None) -> bool:
    """True for the indices along a dimension, in a type of which kernels have real scalars: a sort along the dimension
    computes them instead of loading them."""
    is_iota = x.op is movement.iota and x.attributes.iota_dimension == dimension
    return is_iota and is_native_type(x.array_shape) and x.array_shape.element_type.kind != "complex"


def is_reduction(x: Instruction) -> bool:
    """True for a reduction with a scalar computation over native types."""
    if x.op is not reduction.reduce:
        return False
    return is_scalar_computation(x.attributes.to_apply) and all(is_native_type(o.array_shape) for o in x.operands)


def is_scalar_computation(computation: Computation) -> bool:
    """True if `Lowering.apply` can emit a computation: its parameters are scalars, and every instruction is inlined,
    a reduction, or a region of such instructions."""
    return all(map(_is_scalar_instruction, computation.instructions))


def _is_scalar_instruction(x: Instruction) -> bool:
    if x.op is movement.parameter:
        return isinstance(x.shape, Shape) and not x.shape.rank
    if x.op in (calls.tuple_, calls.get_tuple_element):
        return True
    if x.op.name in ("while", "conditional"):
        return all(map(is_scalar_computation, x.computations()))
    return is_reduction(x) or is_inlined(x)


def is_costly(x: Instruction) -> bool:
    """True if an element takes as long to compute as several loads."""
    return x.op.cost.work >= COSTLY_OPS
