"""Partial sums: arrays that are the sum of what the devices along mesh axes have. What is linear in them is computed by
each device from its summand; other operations need the sum.

Source: the documentation of JAX, sections "Explicit sharding" and `jax.shard_map`, on unreduced and reduced axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyxla.hlo import Instruction
from tinyxla.ops import Op, calls, elementwise, movement, reduction
from tinyxla.ops.distributed import varying
from tinyxla.ops.op import Bilinear, ByAttributes, Linear
from tinyxla.tracing.array import ConcreteArray
from tinyxla.tracing.core import GraphTracer

NOT_LINEAR = "it is not linear, so it does not take partial sums"
_PRODUCTS = (elementwise.mul, elementwise.chain_mul, elementwise.div, elementwise.chain_div)
_MOVES = (
    movement.broadcast,
    movement.reshape,
    movement.transpose,
    elementwise.convert,
    varying.pvary,
    varying.recast,
)


def is_product(op: Op) -> bool:
    """Whether an operation is linear in one operand for fixed others, as a product is."""
    return op in _PRODUCTS or isinstance(op.derivative, Bilinear)


def linear_operands(op: Op, attributes: Mapping[str, Any], count: int) -> Sequence[int]:
    """The operands in which an operation is linear together; none of a product, or of one that is not linear."""
    derivative = op.derivative
    if isinstance(derivative, ByAttributes):
        derivative = derivative.choose(**attributes)
    if op in (elementwise.add, elementwise.sub):
        return range(count)
    if is_product(op) or not isinstance(derivative, Linear):
        return ()
    return range(count) if derivative.operands is None else derivative.operands


def refusal_of_sums(
    op: Op, attributes: Mapping[str, Any], operands: Sequence[Any], are_sums: Sequence[bool]
) -> str | None:
    """Why an operation does not take operands of which some are partial sums; None if it is linear in these.

    Args:
        op: the operation.
        attributes: its attributes.
        operands: instructions, or arrays and tracers.
        are_sums: which of them are partial sums; others are the same on all devices.
    """
    if op in (elementwise.div, elementwise.chain_div):
        return None if not are_sums[1] else "it is not linear in the divisor, which must not be partial sums"
    if is_product(op):
        return None if sum(are_sums) == 1 else "it is linear in either operand, so both must not be partial sums"
    places = linear_operands(op, attributes, len(operands))
    if not places:
        return NOT_LINEAR
    if any(is_sum and k not in places for k, is_sum in enumerate(are_sums)):
        return "an operand in which it is not linear must not be partial sums"
    if op is reduction.reduce and isinstance(operands[-1], Instruction):
        places = range(len(operands) // 2)  # the initial value of an operation by itself is a parameter, which is zero
    if not all(are_sums[k] or is_zero(operands[k]) for k in places):
        return "operands that are added must all be partial sums, or none"
    return None


def _stays_zero(loop: Instruction, k: int) -> bool:
    """Whether a loop carries zeros in a place, as it does of a cotangent that it does not change."""
    if loop.op.name != "while" or not is_zero(loop.operands[k]):
        return False
    body = loop.attributes.body
    return body.outputs[k] is body.parameters[k] or is_zero(body.outputs[k])


def is_zero(x: Any) -> bool:
    """Whether all elements are known to be zero."""
    if isinstance(x, GraphTracer):
        x = x.instruction
    while isinstance(x, Instruction) and x.op in _MOVES:
        (x,) = x.operands
    if isinstance(x, Instruction) and x.op is calls.get_tuple_element:
        return _stays_zero(x.operands[0], x.attributes.index)
    if isinstance(x, Instruction):
        return x.op is movement.constant and not np.any(x.attributes.literal.value)
    return isinstance(x, ConcreteArray) and not np.any(x.dense())
