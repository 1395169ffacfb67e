"""Fusibility: which instructions loop nests can compute, and what they cost there."""

from __future__ import annotations

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import calls, elementwise, movement, reduction
from tinyxla.shapes import Shape

COSTLY_WORK = 8  # of what is costly, in simple operations
MOVEMENT = frozenset("broadcast reshape transpose reverse slice pad concatenate iota dynamic-slice gather".split())
_COSTLY = frozenset(
    "exponential exponential-minus-one log log-plus-one logistic sine cosine tan tanh sinh cosh erf erf-inv power "
    "atan2 cbrt remainder".split()
)
_UNSUPPORTED_BITS = frozenset({2, 4})


def is_inlined(x: Instruction) -> bool:
    """Whether loops can compute the instruction in place."""
    name = x.op.name
    if name in MOVEMENT or name in elementwise.NAMES or _is_native_bits(x):
        return all(is_native_type(o.array_shape) for o in (x, *x.operands)) or _is_of_bytes(x)
    return x.op is movement.constant


def _is_of_bytes(x: Instruction) -> bool:
    """What loops can do with types that are only stored: move and choose elements, and convert them. To a float among
    them from what an f32 holds."""
    if x.op is not elementwise.convert:
        return x.op.name == "select" or (x.op.name in MOVEMENT and x.op is not movement.iota)
    source, target = x.operands[0].array_shape, x.array_shape
    if "complex" in (source.element_type.kind, target.element_type.kind):
        return False
    exact = source.element_type.bits <= 16 or source.element_type.name == "f32"
    return exact or target.element_type.is_integer or is_native_type(target)


def _is_native_bits(x: Instruction) -> bool:
    """A bitcast element by element, or a loss of precision in a type that kernels compute in."""
    if x.op.name == "reduce-precision":
        return x.array_shape.element_type.bits >= 32
    if x.op.name != "bitcast-convert" or x.array_shape.dimensions != x.operands[0].array_shape.dimensions:
        return False
    return "pred" not in (x.array_shape.element_type.kind, x.operands[0].array_shape.element_type.kind)


def is_native_type(shape: Shape) -> bool:
    """Whether kernels have scalars of this type: not of the 8-bit floats and narrower types, which are only stored."""
    kind = shape.element_type
    return kind.bits not in _UNSUPPORTED_BITS and not (kind.kind == "float" and kind.bits < 16)


def is_reduction(x: Instruction) -> bool:
    """A reduction that loops can do: its computation is of scalars only."""
    if x.op is not reduction.reduce:
        return False
    return is_of_scalars(x.attributes.to_apply) and all(is_native_type(o.array_shape) for o in x.operands)


def is_of_scalars(computation: Computation) -> bool:
    """Whether `Lowering.apply` can do a computation: parameters are scalars, and so is all that is not inlined or
    reduced."""
    return all(map(_is_of_scalars, computation.instructions))


def _is_of_scalars(x: Instruction) -> bool:
    if x.op is movement.parameter:
        return isinstance(x.shape, Shape) and not x.shape.rank
    if x.op in (calls.tuple_, calls.get_tuple_element):
        return True
    if x.op.name in ("while", "conditional"):
        return all(map(is_of_scalars, x.computations()))
    return is_reduction(x) or is_inlined(x)


def is_costly(x: Instruction) -> bool:
    """Whether an element takes as long to compute as several loads."""
    return x.op.name in _COSTLY
