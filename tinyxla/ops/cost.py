"""What a computation costs, counted on its graph: `cost_analysis` of lowered and compiled programs.

As in XLA's own analysis an element of an element-wise result is one operation (or one transcendental), a product of
matrices two for each pair of factors, and the body of a loop counts once.
"""

from __future__ import annotations

import math

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise
from tinyxla.shapes import AnyShape, Shape, TupleShape

_TRANSCENDENTAL = frozenset(
    """
    exponential exponential-minus-one log log-plus-one logistic power sine cosine tan tanh asin acos asinh acosh atanh
    sinh cosh atan2 sqrt rsqrt cbrt erf erf-inv
    """.split()
)


def cost_of(computation: Computation) -> dict[str, float]:
    """The operations on numbers, those of them that are transcendental, and the bytes that are read and written."""
    flops = transcendentals = 0
    for x in computation.instructions:
        if x.op.name in _TRANSCENDENTAL:
            transcendentals += _size(x.shape)
        elif x.op.name in elementwise.NAMES:
            flops += _size(x.shape)
        else:
            flops += _contraction(x)
            for called in x.computations():
                inner = cost_of(called)
                times = max(_size(x.operands[0].shape) if x.op.name == "reduce" else 1, 1)
                flops += int(inner["flops"]) * times
                transcendentals += int(inner["transcendentals"]) * times
    moved = sum(map(bytes_of, [*computation.parameter_shapes, computation.root.shape]))
    return {"flops": float(flops), "transcendentals": float(transcendentals), "bytes accessed": float(moved)}


def bytes_of(shape: AnyShape) -> int:
    """The memory of an array, or of the arrays of a tuple."""
    if isinstance(shape, TupleShape):
        return sum(map(bytes_of, shape.elements))
    return _size(shape) * shape.dtype.itemsize


def _size(shape: AnyShape) -> int:
    return math.prod(shape.dimensions) if isinstance(shape, Shape) else 0


def _contraction(x: Instruction) -> int:
    if x.op.name == "dot":
        left = x.operands[0].array_shape.dimensions
        return 2 * _size(x.shape) * math.prod(left[d] for d in x.attributes.lhs_contracting_dims)
    if x.op.name == "convolution":
        kernel = x.operands[1].array_shape
        features = kernel.dimensions[x.attributes.dim_labels.rhs_spec[0]]
        return 2 * _size(x.shape) * _size(kernel) // max(features, 1)
    return 0
