"""What a computation costs, counted on its graph: `cost_analysis` of lowered and compiled programs.

As in XLA's own analysis an element of an element-wise result is one operation (or one transcendental), a product of
matrices two for each pair of factors, and the body of a loop counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinyxla.hlo import Computation, Instruction
from tinyxla.ops import elementwise, ops
from tinyxla.shapes import AnyShape, Shape, TupleShape

TRANSCENDENTAL = frozenset(name for name, op in ops.items() if op.cost.is_transcendental)


def cost_of(computation: Computation) -> dict[str, float]:
    """The operations on numbers, those of them that are transcendental, and the bytes that are read and written."""
    flops = transcendentals = 0
    needed = {computation.root}
    for x in reversed(computation.instructions):
        if x not in needed:
            continue  # dead code costs nothing
        needed.update(x.operands)
        more = operations_of(x)
        flops, transcendentals = flops + more[0], transcendentals + more[1]
    moved = sum(map(bytes_of, [*computation.parameter_shapes, computation.root.shape]))
    return {"flops": float(flops), "transcendentals": float(transcendentals), "bytes accessed": float(moved)}


def operations_of(x: Instruction) -> tuple[int, int]:
    """The operations of an instruction, and the transcendental ones, which are apart."""
    if x.op.cost.is_transcendental:
        return 0, _size(x.shape)
    if x.op.name in elementwise.NAMES:
        return _size(x.shape), 0
    flops, transcendentals = _contraction(x), 0
    for called in x.computations():
        inner = cost_of(called)
        times = _times(x)
        flops += int(inner["flops"]) * times
        transcendentals += int(inner["transcendentals"]) * times
    return flops, transcendentals


def _times(x: Instruction) -> int:
    """How often an instruction counts as calling its computations."""
    if x.op.name == "reduce-window":
        return _size(x.shape) * (math.prod(w.size for w in x.attributes.window) - 1)
    return max(_size(x.operands[0].shape), 1) if x.op.name == "reduce" else 1


def bytes_of(shape: AnyShape) -> int:
    """The memory of an array, or of the arrays of a tuple."""
    if isinstance(shape, TupleShape):
        return sum(map(bytes_of, shape.elements))
    return _size(shape) * shape.dtype.itemsize


def _size(shape: AnyShape) -> int:
    return math.prod(shape.dimensions) if isinstance(shape, Shape) else 0


def _contraction(x: Instruction) -> int:
    counted = _COUNTED.get(x.op.name)
    return 0 if counted is None else round(counted(x))


def _dot(x: Instruction) -> float:
    left = x.operands[0].array_shape.dimensions
    return 2 * _size(x.shape) * math.prod(left[d] for d in x.attributes.lhs_contracting_dims)


def _convolution(x: Instruction) -> float:
    """As in XLA, products with padding and with the gaps of a dilated input do not count."""
    labels = x.attributes.dim_labels
    lengths, kernel, outputs = (shape.dimensions for shape in (*(y.array_shape for y in x.operands), x.array_shape))
    positions = 1
    for d, w in enumerate(x.attributes.window):
        taps = np.arange(outputs[labels.out_spec[2 + d]])[:, None] * w.stride + np.arange(w.size) * w.window_dilation
        places = taps - w.padding_low
        inside = (places >= 0) & (places < lengths[labels.lhs_spec[2 + d]] * w.base_dilation)
        positions *= int(np.count_nonzero(inside & (places % w.base_dilation == 0)))
    features = math.prod(outputs[d] for d in labels.out_spec[:2])
    return 2 * positions * features * kernel[labels.rhs_spec[1]]


def _triangular_solve(x: Instruction) -> float:
    return _size(x.operands[1].shape) * x.operands[0].array_shape.dimensions[-1]


def _fft(x: Instruction) -> float:
    lengths = x.attributes.fft_length
    whole = max(_size(x.shape), _size(x.operands[0].shape))
    return (5 if x.attributes.fft_type == "FFT" else 2.5) * whole * math.log2(max(2, math.prod(lengths)))


def _of_matrix(share: float) -> Callable[[Instruction], float]:
    """For a factorisation that takes this share of n^3."""
    return lambda x: share * _size(x.operands[0].shape) * min(x.operands[0].array_shape.dimensions[-2:])


# The leading terms of the usual algorithms: Golub and Van Loan, "Matrix Computations" (2013); for the transform Cooley
# and Tukey (1965).
_COUNTED: dict[str, Callable[[Instruction], float]] = {
    "dot": _dot,
    "convolution": _convolution,
    "cholesky": _of_matrix(1 / 3),
    "LuDecomposition": _of_matrix(2 / 3),
    "Qr": _of_matrix(4 / 3),
    "Eig": _of_matrix(25),
    "Eigh": _of_matrix(9),
    "Svd": _of_matrix(21),
    "triangular-solve": _triangular_solve,
    "fft": _fft,
}
