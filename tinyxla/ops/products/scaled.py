"""ScaledDot: a product of arrays of very few bits, of which blocks along the contracting dimensions share a scale.

Operands are lhs, lhs_scale, rhs, rhs_scale, and attributes those of a dot. A scale has the sizes of what it scales,
divided in contracting dimensions by those of its blocks.

Source: section "ScaledDot" of the XLA documents; formats with such scales are those of the "OCP Microscaling Formats
(MX)" specification.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinyxla.errors import DTypeError, ShapeError
from tinyxla.ops import elementwise, movement
from tinyxla.ops.op import Array, Axes, Decomposition, Ints, Op, Sample, Value
from tinyxla.ops.products.contraction import Dot, batched, dot, dot_shape
from tinyxla.shapes import AnyShape, ElementType, Shape, element_type


def factor_type(*types: ElementType) -> ElementType:
    """The type in which an operand is multiplied with its scale: bf16, unless one is wider than that."""
    wide = max(types, key=lambda t: t.bits)
    return wide if wide.bits > 16 else element_type("bf16")


def _blocks(x: Ints, scale: Ints) -> Ints:
    return tuple(n // m if m else 1 for n, m in zip(x, scale, strict=True))


def _scaled_dot_shape(
    lhs: AnyShape, lhs_scale: AnyShape, rhs: AnyShape, rhs_scale: AnyShape, **attributes: Any
) -> Shape:
    x, x_scale, y, y_scale = (movement.array_operand("scaled-dot", s) for s in (lhs, lhs_scale, rhs, rhs_scale))
    dims = Dot(**attributes)
    for shape in (x, x_scale, y, y_scale):
        if shape.element_type.kind != "float":
            raise DTypeError(f"scaled-dot: operands and scales must be floats, but got {shape}; convert it.")
    for side, whole, scale, contracting in (
        ("lhs", x, x_scale, dims.lhs_contracting_dims),
        ("rhs", y, y_scale, dims.rhs_contracting_dims),
    ):
        fits = whole.rank == scale.rank and all(
            n == m or (d in contracting and m and n % m == 0)
            for d, (n, m) in enumerate(zip(whole.dimensions, scale.dimensions, strict=True))
        )
        if not fits:
            raise ShapeError(
                f"scaled-dot: {side}_scale must have the sizes of {whole}, or in the contracting dimensions "
                f"{contracting} divisors of them, but got {scale}."
            )
    kind = factor_type(*(s.element_type for s in (x, x_scale, y, y_scale)))
    return dot_shape(x.with_type(kind), y.with_type(kind), **attributes, name="scaled-dot")


def _scaled_dot_evaluate(x: Array, x_scale: Array, y: Array, y_scale: Array, **attributes: Any) -> Array:
    kind = factor_type(*(element_type(a.dtype) for a in (x, x_scale, y, y_scale))).dtype
    factors: list[Array] = []
    for whole, scale in ((x, x_scale), (y, y_scale)):
        spread = scale.astype(kind)
        for d, block in enumerate(_blocks(whole.shape, scale.shape)):
            spread = np.repeat(spread, block, d)
        factors.append(whole.astype(kind) * spread)
    return dot.evaluate(*factors, **attributes)


def _expanded(x: Value, x_scale: Value, y: Value, y_scale: Value, **attributes: Any) -> Value:
    """Scales spread over their blocks, times what they scale; then a dot."""
    kind = factor_type(*(element_type(a.dtype) for a in (x, x_scale, y, y_scale)))
    factors: list[Value] = []
    for whole, scale in ((x, x_scale), (y, y_scale)):
        pairs = [size for pair in zip(scale.shape, _blocks(whole.shape, scale.shape), strict=True) for size in pair]
        spread = movement.broadcast(scale, sizes=tuple(pairs), dimensions=tuple(range(0, 2 * scale.ndim, 2)))
        spread = movement.reshape_to(spread, whole.shape)
        factors.append(elementwise.mul(*(elementwise.convert(a, new_element_type=kind) for a in (whole, spread))))
    return dot(*factors, **attributes)


def _scaled_dot_batch(size: int, operands: tuple[Value, ...], axes: Axes, **attributes: Any) -> tuple[Value, int]:
    """As a dot, with the mapped axis in front; a side of which one array is mapped has the other spread."""
    aligned: list[Value] = []
    mapped: list[int | None] = []
    for side in (0, 2):
        none = axes[side] is None and axes[side + 1] is None
        mapped.append(None if none else 0)
        for k in (side, side + 1):
            aligned.append(operands[k] if none else movement.align_axis(operands[k], axes[k], 0, size))
    dims, axis = batched(Dot(**attributes), (aligned[0].ndim, aligned[2].ndim), mapped[0], mapped[1])
    return scaled_dot(*aligned, **dims._asdict()), axis


def _scaled_dot_samples(random: np.random.Generator) -> Iterator[Sample]:
    f8, f4, scale = (element_type(name).dtype for name in ("f8e4m3fn", "f4e2m1fn", "f8e8m0fnu"))
    for sizes, dims in (
        (((2, 4), (2, 2), (4, 3), (2, 3)), Dot((1,), (0,))),
        (((4, 2), (2, 2), (4, 3), (1, 3)), Dot((0,), (0,))),
        (((2, 2, 4), (2, 2, 1), (3, 2, 4), (3, 2, 1)), Dot((2,), (2,), (0,), (1,))),
        (((0, 4), (0, 2), (4, 1), (2, 1)), Dot((1,), (0,))),
    ):
        for dtype, scales in ((f8, scale), (f4, f8), (np.float32, np.float32)):
            x, y = (elementwise.sample_array(random, dtype, sizes[k], -3, 3) for k in (0, 2))
            x_scale, y_scale = (elementwise.sample_array(random, scales, sizes[k], 0.5, 4) for k in (1, 3))
            yield Sample((x, x_scale, y, y_scale), dims._asdict())
            if scales is not np.float32:
                wide = dims._replace(preferred_element_type=element_type("f32"))
                yield Sample((x, x_scale, y, y_scale), wide._asdict())


scaled_dot = Op(
    "scaled-dot",
    attributes=Dot,
    shape=_scaled_dot_shape,
    evaluate=_scaled_dot_evaluate,
    derivative=Decomposition(_expanded),
    batch=_scaled_dot_batch,
    samples=_scaled_dot_samples,
    expand=_expanded,
)
